"""The exact output law of ``dp_kendall`` on a given table, along the path that the product takes.

Rows are read, collected and counted by the product's own code, its own rounds compute utilities, ranges and shares of
epsilon; only what draws the winner of a round is replaced by the exact law of the draw.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsql.contract.fold import Batch
from dpsql.functions.kendall import KendallCall, KendallPlan, peel
from dpsql.mechanisms.one_shot import SelectionRounds
from dpsql.statistics.kendall import Pairs
from dpsql.testing.neighbours import Table, to_arrow
from support.laws.selection import select_law

Outcome = tuple[str, ...]
# Size of a block (or of the blocks of one size), and S of every column with every feature; the target comes last.
Statistic = tuple[tuple[int, tuple[tuple[int, ...], ...]], ...]


class KendallLaw:
    """Exact laws of one ``dp_kendall`` call over tables of floats.

    Parameters
    ----------
    features : sequence of str
        Names of the feature columns, in the order of a row's values; the target follows them. With blocks := m a row
        ends with the number of its block, an int in [0, m), which stands for the keyed hash of its id.
    **arguments
        What the call is given besides source, target and features: k, epsilon, mechanism, split, blocks,
        neighbours, ...

    Notes
    -----
    - **Guarantee**: none; this computes what a release would do.
    - **Assumes**: the sampler draws from the stated law (tested in ``tests/statistical``), and one row
      per privacy unit, or rows that were capped before.
    """

    def __init__(self, features: Sequence[str], **arguments: Any) -> None:
        import pyarrow as pa

        self.plan = KendallPlan.from_arguments(
            "t", {"target": "target", "features": list(features), "verdict_share": 0, **arguments}
        )
        self._names = (*features, "target")
        self.call = KendallCall.resolve(self.plan, pa.struct([(name, pa.float64()) for name in self._names]), {})

    def statistic(self, table: Table) -> Statistic:
        """Return the exact counts of a table; they determine `law`: a `key` for `check_exhaustively`."""
        import pyarrow as pa

        columns = [column.combine_chunks() for column in to_arrow(table, self._names).columns]
        collector: Any = self.call.start()
        batch = Batch()
        if self.plan.blocks is not None:
            blocks = np.array([row[len(self._names)] for row in table], dtype=np.uint64)
            batch = Batch(blocks, np.array([np.count_nonzero(blocks == block) for block in blocks], dtype=np.int64))
        collector.add(*self.call.read(pa.StructArray.from_arrays(columns, list(self._names))), batch)
        pairs = collector.pairs(_ignore)
        features = range(pairs.features)
        counted = np.zeros((len(pairs.sizes), len(self._names), len(features)), dtype=np.int64)
        for base in range(len(self._names)):
            others = [feature for feature in features if feature != base]
            counted[:, base, others] = pairs.scores(base, others, _ignore)
        return tuple((size, _nested(one)) for size, one in zip(pairs.sizes.tolist(), counted.tolist(), strict=True))

    def selection_law(self, statistic: Statistic) -> dict[Outcome, float]:
        """Return the law of the selected names, round by round, for given counts."""
        width = len(self.call.features)
        sizes = np.array([size for size, _ in statistic], dtype=np.int64)
        counted = np.array([counts for _, counts in statistic], dtype=np.int64).reshape(-1, width + 1, width)
        pairs = Pairs(width, sizes, lambda base, others, _: counted[:, base, others])
        rounds: dict[tuple[int, ...], dict[tuple[int, ...], float]] = {}
        law = {}
        for winners in itertools.product(*(range(width - number) for number in range(self.plan.k))):
            drawn: list[int] = []

            steps = [_ForcedRound(part, winners, drawn, rounds) for part in self.plan.rounds]
            names = tuple(self.call.features[position] for position in peel(self.plan, pairs, _ignore, steps))
            law[names] = math.prod(rounds[winners[:number]][winners[number],] for number in range(self.plan.k))
        return law

    def law(self, table: Table) -> dict[Outcome, float]:
        """Return the exact law of the output."""
        return self.selection_law(self.statistic(table))


@dataclass(frozen=True)
class _ForcedRound:
    """A round of the product that notes the law of its winner, and returns the one it is told."""

    part: SelectionRounds
    winners: Sequence[int]
    drawn: list[int]
    laws: dict[tuple[int, ...], dict[tuple[int, ...], float]]

    def draw(self, utility: Any, *, utility_range: int) -> int:
        before = tuple(self.drawn)
        if before not in self.laws:
            part = self.part
            given: dict[str, Any] = {"epsilon": part.round_epsilon, "k": 1, "noise": part.noise}
            self.laws[before] = select_law([int(value) for value in utility], utility_range=utility_range, **given)
        self.drawn.append(self.winners[len(self.drawn)])
        return self.drawn[-1]


def _ignore(share: float) -> None:
    pass


def _nested(rows: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in rows)
