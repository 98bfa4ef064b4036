"""dp_kendall: selection by Kendall rank correlation, less what the features chosen so far already tell."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.arguments import COLUMNS, EPSILON, PROTECTION, TARGET_LEVELS, K, Signature, integer, word
from dpsql.contract.call import Batch, Call, Collector
from dpsql.contract.layout import Layout
from dpsql.contract.plan import Quantity, SelectionPlan
from dpsql.errors import ParameterError
from dpsql.functions.one_shot import CONFIDENCE, log_of_ratio
from dpsql.kernels.kendall import RankedTable, compiled_kernels
from dpsql.kernels.staging import StagedColumns
from dpsql.mechanisms.select import select
from dpsql.progress import Progress
from dpsql.statistics.kendall import exact_utilities, utility_range

NOISES = ("gumbel", "exponential")
SPLITS = ("even", "scaled")
# The scores of all pairs of so many columns still fit in memory, a few times 8 bytes each.
MOST_PAIRED = 5000


@dataclass(frozen=True, kw_only=True)
class KendallPlan(SelectionPlan):
    """The checked public arguments of one ``dp_kendall`` call.

    Attributes
    ----------
    mechanism : {'gumbel', 'exponential'}
        Law of the noise in every round.
    split : {'even', 'scaled'}
        How epsilon is shared by the rounds: alike, or so that all rounds have the same noise.
    blocks : int or None
        Count pairs within this many blocks of rows only, from 1 to 1e9.
    """

    mechanism: str
    split: str
    blocks: int | None

    function: ClassVar[str] = "dp_kendall"
    target_needs_bounds: ClassVar[bool] = False
    arguments: ClassVar[Signature] = Signature(
        *COLUMNS,
        K,
        EPSILON,
        TARGET_LEVELS,
        word("mechanism", "How each round draws its feature.", NOISES, "gumbel"),
        word("split", "How the rounds share epsilon: alike, or so that all have the same noise.", SPLITS, "even"),
        integer(
            "blocks",
            "Public number of blocks: only pairs of rows within a block are compared. Needs row_id or privacy_unit.",
            hint="Give a public number of blocks, or leave it out.",
            table_only=True,
        ),
        *PROTECTION,
    )
    names_after: ClassVar[str | None] = "epsilon"

    @classmethod
    def _own(cls, given: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
        blocks = cls._read(given, "blocks")
        if blocks["blocks"] is not None and layout.row_id is None and layout.privacy_unit is None:
            raise ParameterError(
                "P046",
                "blocks needs a stored unique id to assign rows by. Give row_id := the name of its column; "
                "a row number or a position in a file is none.",
            )
        return {**super()._own(given, layout), **cls._read(given, "mechanism", "split"), **blocks}

    def check_features(self, count: int) -> None:
        """Raise when there are more features than blocks hold all pairs of, too."""
        super().check_features(count)
        if self.blocks is not None and count > MOST_PAIRED:
            raise ParameterError(
                "P026",
                f"dp_kendall with blocks takes at most {MOST_PAIRED} features; got {count}. Leave blocks out, or "
                "select some features first.",
            )

    @property
    def block_by_block(self) -> int | None:
        """Into how many blocks the rows are sorted before they are collected."""
        return self.blocks

    @cached_property
    def round_epsilons(self) -> tuple[Fraction, ...]:
        """The privacy loss of each round; they add up to epsilon."""
        later = 1 if self.split == "even" else 2  # the range of later rounds is twice the first one's
        first = self.epsilon / (1 + later * (self.k - 1))
        return (first, *(later * first,) * (self.k - 1))

    @cached_property
    def event(self) -> dict[str, Any]:
        """What the ledger records: rounds of report-noisy-max."""
        name = {"gumbel": "gumbel_noise", "exponential": "exponential_noise"}[self.mechanism]
        first, later = self.round_epsilons[0], self.round_epsilons[1:]
        if self.split == "even" or not later:
            return {"mechanism": name, "k": self.k, "epsilon": str(self.epsilon), "rounds": self.k}
        rounds = {"mechanism": name, "k": len(later), "epsilon": str(sum(later)), "rounds": len(later)}
        return {
            "mechanism": "composed",
            "events": [{"mechanism": name, "k": 1, "epsilon": str(first), "rounds": 1}, rounds],
        }

    def ranges(self) -> tuple[Fraction, Fraction]:
        """Return the range of the utility in the first round and in later ones."""
        first, later = (
            utility_range(
                self.neighbours,
                first=first,
                blocked=self.blocks is not None,
                max_rows_per_unit=self.max_rows_per_unit,
            )
            for first in (True, False)
        )
        return first, later

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how noisy the call would be; scores are scaled taus, at most half the number of rows."""
        first, later = (
            float(spread / epsilon)
            for spread, epsilon in zip(self.ranges(), (self.round_epsilons[0], self.round_epsilons[-1]), strict=True)
        )
        ties = 2 if self.mechanism == "exponential" else 1
        gap = first * log_of_ratio(n_features - 1, (1 - CONFIDENCE) * ties)
        out: list[Quantity] = [
            ("score_range", float(self.ranges()[0]), "most that one privacy unit can move two scores apart in round 1"),
            ("noise_scale", first, "scale of the noise on a score in round 1"),
            ("noise_scale_later", later if self.k > 1 else first, "scale of the noise on a score in later rounds"),
            (
                "score_gap",
                gap,
                "gap between the best two scores that gives the best one in 95 % of first rounds",
            ),
        ]
        if n_rows is not None:
            out.append(("score_gap_share", 2 * gap / n_rows, "that gap as a difference of Kendall's tau"))
        return out


class KendallCall(Call):
    """A dp_kendall call joined to its source's types."""

    def start(self) -> Collector:
        """Return an empty collection of rows."""
        width = len(self.features) + 1
        return WholeTable(width) if self.plan.blocks is None else Blocks(width)

    def prepare(self, statistic: Any, progress: Progress) -> Callable[[], list[str]]:
        """Peel off one feature a round; counting for a round needs the choice of the one before."""
        names = [self.features[position] for position in peel(self.plan, statistic.pairs(progress), progress)]
        return lambda: names


class WholeTable(Collector):
    """All rows, for counting pairs between any two of them."""

    def __init__(self, width: int) -> None:
        self._staged = StagedColumns(width)

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Keep a batch of rows."""
        self._staged.append([*features, target])

    def _ranked(self, progress: Callable[[float], None] | None = None) -> RankedTable:
        """Rank every column; the rows are given up."""
        compiled_kernels(self._staged.rows * self._staged.width)  # large work is worth waiting for them
        columns = (self._staged.take(position) for position in range(self._staged.width))
        return RankedTable(columns, progress=progress)

    def pairs(self, progress: Callable[[float], None]) -> Pairs:
        """Return the scores of any two columns, counted when they are asked for."""
        table = self._ranked(progress)
        return Pairs(
            self._staged.width - 1,
            table.sizes,
            lambda base, others, progress: table.scores(base, others, progress=progress),
        )

    def counts(self) -> tuple[list[int], list[int]]:
        """Return the concordant and the discordant pairs of every feature with the target."""
        features = self._staged.width - 1
        concordant, discordant = self._ranked().counts(features, range(features))
        return concordant[0].tolist(), discordant[0].tolist()


class Blocks(Collector):
    """Rows that come block by block: what is kept of a block are its scores of all pairs of columns."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._lock = threading.Lock()
        self._open: dict[int, StagedColumns] = {}
        # Sums of S over the blocks of one size.
        self._scores: dict[int, NDArray[np.int64]] = {}

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Take in a batch; a block whose last row has come is counted and forgotten."""
        keys, sizes = batch.keys, batch.sizes
        if keys is None or sizes is None:
            raise ValueError("rows of a blocked call carry their block")
        columns = [*features, target]
        for key in np.unique(keys):
            here = np.flatnonzero(keys == key)
            size = int(sizes[here[0]])
            with self._lock:
                block = self._open.setdefault(int(key), StagedColumns(self._width))
                block.append([column[here] for column in columns])
                full = block.rows == size
                if full:
                    del self._open[int(key)]
            if full:
                self._count(block, size)

    def _count(self, block: StagedColumns, size: int) -> None:
        width = self._width
        table = RankedTable(block.take(position) for position in range(width))
        scores = np.zeros((width, width), dtype=np.int64)
        for base in range(width):
            others = range(base)
            scores[base, :base] = table.scores(base, others, threads=1)[0]
        with self._lock:
            total = self._scores.setdefault(size, np.zeros((width, width), dtype=np.int64))
            total += scores + scores.T

    def pairs(self, progress: Callable[[float], None]) -> Pairs:
        """Return what was counted."""
        if self._open:
            raise ValueError("a block is not complete")
        sizes = np.array(sorted(self._scores), dtype=np.int64)
        scores = np.array([self._scores[size] for size in sizes.tolist()]).reshape(len(sizes), self._width, self._width)
        return Pairs(self._width - 1, sizes, lambda base, others, progress: scores[:, base, others])


@dataclass(frozen=True)
class Pairs:
    """Scores S of pairs of columns; the target stands after the features.

    Attributes
    ----------
    features : int
        Number of features.
    sizes : ndarray of int64, shape (m,)
        Rows of each block.
    scores : callable
        (base, others, progress) to int64 of shape (m, len(others)).
    """

    features: int
    sizes: NDArray[np.int64]
    scores: Callable[..., NDArray[np.int64]]


def peel(plan: KendallPlan, pairs: Pairs, progress: Callable[[float], None]) -> list[int]:
    """Select one feature a round: report-noisy-max of what it tells beyond the features chosen before.

    Parameters
    ----------
    plan : KendallPlan
    pairs : Pairs
    progress : callable
        Given the share of the work that is done; what it raises ends the work.

    Returns
    -------
    positions : list of int, length k
        Round by round.

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.epsilon``, the sum of the rounds' losses. With Gumbel noise every round is
      an exponential mechanism, so a round of loss e costs ``e**2 / 8`` under zCDP.
    - **Sensitivity**: the range of the utilities, `dpsql.statistics.kendall`.
    - **Does not protect**: running time, which grows with the number of rows.

    References
    ----------
    .. [1] K. Amin, J. Gillenwater, M. Joseph, A. Kulesza, S. Vassilvitskii et al., Better private linear regression
       through better private feature selection, 2023; with the ranges of `dpsql.statistics.kendall`.
    """
    rest = list(range(pairs.features))
    chosen: list[int] = []
    target: NDArray[np.int64] | None = None
    among: list[NDArray[np.int64]] = []
    ranges = plan.ranges()
    for number, epsilon in enumerate(plan.round_epsilons):

        def report(share: float, number: int = number) -> None:
            progress((number + share) / plan.k)

        base = pairs.features if not chosen else chosen[-1]
        scores = np.zeros((len(pairs.sizes), pairs.features), dtype=np.int64)
        scores[:, rest] = pairs.scores(base, rest, report)
        if target is None:
            target = scores
        else:
            among.append(scores)
        utilities, unit = exact_utilities(target[:, rest], [one[:, rest] for one in among], pairs.sizes)
        # The range has at most a half: twice the utilities have an integer one.
        spread = ranges[0 if number == 0 else 1] * 2 * unit
        winner = select(
            2 * utilities,
            utility_range=int(spread),
            epsilon=epsilon,
            k=1,
            noise=plan.mechanism,  # type: ignore[arg-type]
        )
        chosen.append(rest.pop(int(winner[0])))
    return chosen
