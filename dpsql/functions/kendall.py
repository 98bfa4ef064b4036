"""dp_kendall: selection by Kendall rank correlation with the target, adjusted for the features chosen before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, partial
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Integers
from dpsql.contract.arguments import EPSILON, TARGET_LEVELS, K, Signature, integer, word
from dpsql.contract.call import Call
from dpsql.contract.fold import Collector
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.parameters import narrow
from dpsql.contract.plan import Pass, Quantity
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.functions.selection import (
    CONFIDENCE,
    VERDICT,
    Certainty,
    ScoredPlan,
    certainty_quantities,
    largest_rank_score,
    lead_record,
    log_of_ratio,
    paid_verdict,
    rounds_certainty,
    scored_record,
    selector_arguments,
)
from dpsql.mechanisms.one_shot import SelectionRounds
from dpsql.mechanisms.ranking import LeadNoise, RankScoreNoise
from dpsql.progress import Progress
from dpsql.statistics.kendall import BlockScores, Pairs, WholeTable, exact_utilities, utility_range
from dpsql.statistics.lead import exact_lead, shuffled_top

NOISES = ("gumbel", "exponential")
SPLITS = ("even", "scaled")
# The scores of all pairs of 5,000 columns still fit in memory, in a few arrays of 8 bytes per pair.
MOST_PAIRED = 5000


@dataclass(frozen=True, kw_only=True)
class KendallPlan(ScoredPlan):
    """The checked public arguments of one ``dp_kendall`` call."""

    mechanism: str
    split: str
    blocks: int | None  # None counts all pairs
    verdict_share: Fraction | None = None
    verdict: str | None = None
    n_rows: int | None = None

    function: ClassVar[str] = "dp_kendall"
    target_needs_bounds: ClassVar[bool] = False
    arguments: ClassVar[Signature] = selector_arguments(
        K,
        EPSILON,
        TARGET_LEVELS,
        word("mechanism", "How each round draws its feature.", NOISES, "gumbel"),
        word("split", "How the rounds share epsilon: equally, or such that all have the same noise.", SPLITS, "even"),
        integer(
            "blocks",
            "Public number of blocks: only pairs of rows within a block are compared. Needs row_id or privacy_unit.",
            hint="Give a public number of blocks, or leave it out.",
            table_only=True,
        ),
        *VERDICT,
    )
    names_after: ClassVar[str | None] = "epsilon"

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        blocks = cls._read(arguments, "blocks")
        if blocks["blocks"] is not None and layout.row_id is None and layout.privacy_unit is None:
            raise ParameterError(
                "P046",
                "blocks needs a stored unique id to assign rows by. Give row_id := the name of its column; "
                "a row number or a position in a file is none.",
            )
        has_scores = blocks["blocks"] is None
        paid = paid_verdict(arguments, has_scores=has_scores, otherwise="scores of all rows, without blocks")
        return {**super()._own(arguments, layout), **cls._read(arguments, "mechanism", "split"), **paid, **blocks}

    @property
    def has_two_levels(self) -> bool:
        """No: a third value is between the levels of a target."""
        return False

    def check_features(self, count: int) -> None:
        """Check the number of features; blocks limit it, because memory holds all pairs."""
        super().check_features(count)
        if self.blocks is not None and count > MOST_PAIRED:
            raise ParameterError(
                "P026",
                f"dp_kendall with blocks takes at most {MOST_PAIRED} features; got {count}. Leave blocks out, or "
                "select some features first.",
            )

    def _passes(self) -> tuple[Pass, ...]:
        """Return one pass; an engine compares pairs of rows within blocks only."""
        if self.blocks is None:
            return (Pass(keeps_rows="Give blocks := a public number and row_id := a stored id."),)
        return (Pass(whole_blocks=self.blocks),)

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement: rounds of report-noisy-max, and the paid part of the verdict."""
        later = 1 if self.split == "even" else 2  # the range of later rounds is twice the first one's
        budget = self.epsilon * (1 - self.paid_share)
        first = budget / (1 + later * (self.k - 1))
        paid = () if self.paid_part is None else (self.paid_part,)
        if self.split == "even" or self.k == 1:
            return measurement_of(SelectionRounds("rounds", self.mechanism, budget, self.k), *paid)
        return measurement_of(
            SelectionRounds("first round", self.mechanism, first, 1),
            SelectionRounds("later rounds", self.mechanism, budget - first, self.k - 1),
            *paid,
        )

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scale of the noise on scores."""
        return self.score_scales

    @property
    def rounds(self) -> list[SelectionRounds]:
        """The part that draws each round."""
        parts = [part for part in self.measurement.leaves if isinstance(part, SelectionRounds)]
        return [part for part in parts for _ in range(part.draws(""))]

    @cached_property
    def round_epsilons(self) -> tuple[Fraction, ...]:
        """Epsilon of each round; the sum is the plan's epsilon, less the share for scores."""
        return tuple(part.round_epsilon for part in self.rounds)

    def ranges(self) -> tuple[Fraction, Fraction]:
        """Return the range of the utility in the first round and in later ones."""
        first, later = (
            utility_range(
                self.neighbours, first=first, blocked=self.blocks is not None, max_rows_per_unit=self.max_rows_per_unit
            )
            for first in (True, False)
        )
        return first, later

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the expected noise of the call. Scores are scaled Kendall taus, at most half the number of rows."""
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
            ("score_gap", gap, "gap between the best two scores that gives the best one in 95 % of first rounds"),
        ]
        if n_rows is not None:
            out.append(("score_gap_share", 2 * gap / n_rows, "that gap as a difference of Kendall's tau"))
        out += certainty_quantities(self.certainty(n_features), n_rows)
        return out + self.paid_quantities(n_rows)

    def certainty(self, n_features: int) -> Certainty:
        """Return the number of rows from which a feature can be sure to be selected.

        With blocks the scores add up over blocks, so their largest sum is below the score of one table.
        """
        ranges, epsilons = self.ranges(), (self.round_epsilons[0], self.round_epsilons[-1])
        first, later = (float(spread / epsilon) for spread, epsilon in zip(ranges, epsilons, strict=True))
        two_levels = self.target_levels is not None and self.blocks is None
        return rounds_certainty(
            noise=self.mechanism,
            scales=(first, later),
            k=self.k,
            count=n_features,
            largest=partial(largest_rank_score, two_levels=two_levels),
            others=partial(largest_rank_score, two_levels=False),
        )


class KendallCall(Call):
    """A dp_kendall call, with the column types of its source."""

    plan: KendallPlan

    def start(self) -> Collector:
        """Return an empty collection of rows."""
        width = len(self.features) + 1
        return WholeTable(width) if self.plan.blocks is None else BlockScores(width, self.plan.blocks)

    def prepare(self, statistic: WholeTable | BlockScores, progress: Progress) -> Callable[[], Json]:
        """Select one feature per round; the scores of a round depend on the features chosen before."""
        plan, features, pairs = self.plan, self.features, statistic.pairs(progress)
        chosen = peel(plan, pairs, progress)
        record = plan.selection_record([features[position] for position in chosen], len(features))
        if plan.paid_part is None:
            return lambda: record
        scores, rows = exact_scores(pairs, chosen, progress), int(pairs.sizes.sum())
        if plan.lead_part is None:
            return lambda: draw_scores(plan, scores, rows, record)
        top = shuffled_top(pairs, plan.k, two_levels=False, progress=progress)
        return lambda: draw_lead(plan, exact_lead(scores, top, rows), record)


def exact_scores(pairs: Pairs, chosen: Sequence[int], progress: Callable[[float], None]) -> list[Fraction]:
    """Return the private scores ``|tau_j|`` of the target with some features, over all rows."""
    signed = pairs.scores(pairs.features, list(chosen), progress)[0].tolist()
    return [Fraction(abs(score), max(1, int(pairs.sizes.sum()) - 1)) for score in signed]


def draw_scores(plan: KendallPlan, scores: Sequence[Fraction], rows: int, record: dict[str, Json]) -> Json:
    """Draw the scores of the selected features and the number of rows.

    Notes
    -----
    - **Guarantee**: pure DP at the share of the plan's epsilon, see `RankScoreNoise`.
    - **Sensitivity**: as for any target, because here a third value is between its two levels.
    """
    part: RankScoreNoise = plan.measurement["scores"]
    numbers = part.draw(scores, rows, two_levels=False)
    compared = record["compared"]
    return scored_record(record, part, numbers, narrow(int, compared), two_levels=False)


def draw_lead(plan: KendallPlan, lead: Fraction, record: dict[str, Json]) -> Json:
    """Draw the lead of the selected features over shuffled targets.

    Notes
    -----
    - **Guarantee**: pure DP at the share of the plan's epsilon, see `LeadNoise`.
    - **Sensitivity**: as for any target, see `draw_scores`.
    """
    part: LeadNoise = plan.measurement["lead"]
    return lead_record(record, part, part.draw(lead, two_levels=False), two_levels=False)


class Round(Protocol):
    """The draw of one round."""

    def draw(self, utility: Integers, *, utility_range: int) -> int:
        """Return the position of the winner."""


def peel(
    plan: KendallPlan, pairs: Pairs, progress: Callable[[float], None], rounds: Sequence[Round] | None = None
) -> list[int]:
    """Select one feature per round by report-noisy-max of its score, adjusted for the features chosen before.

    Parameters
    ----------
    plan : KendallPlan
    pairs : Pairs
    progress : callable
        Called with the share of the work done; an exception that it raises ends the work.
    rounds : sequence of Round, optional
        The draw of each round; by default the plan's own.

    Returns
    -------
    positions : list of int, length k
        Positions in the order of the rounds.

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.epsilon``, the sum over the rounds. With Gumbel noise every round is an
      exponential mechanism, so a round with epsilon e costs ``e**2 / 8`` under zCDP.
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
    for number, part in enumerate(plan.rounds if rounds is None else rounds):

        def report(share: float, number: int = number) -> None:
            progress((number + share) / plan.k)

        base = pairs.features if not chosen else chosen[-1]
        scores = np.zeros((len(pairs.sizes), pairs.features), dtype=np.int64)
        scores[:, rest] = pairs.scores(base, rest, report)
        if target is None:
            target = scores
        else:
            among.append(scores)
        utilities, unit = exact_utilities(target[:, rest], [matrix[:, rest] for matrix in among], pairs.sizes)
        # The range is a multiple of one half, so doubled utilities have an integer range.
        spread = ranges[0 if number == 0 else 1] * 2 * unit
        chosen.append(rest.pop(part.draw(2 * utilities, utility_range=int(spread))))
    return chosen
