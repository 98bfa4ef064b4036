"""Broken limits of groups: faults that are small enough to look right, for the integers of neighbouring tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dpsql.contract.relation import Contribution
from dpsql.engines.duckdb.steps import grouped, rows
from dpsql.engines.duckdb.steps.step import Frame, GroupedFrame, Step
from dpsql.mechanisms import aggregates, prefix_sums
from dpsql.mechanisms.aggregates import Lattice
from dpsql.mechanisms.prefix_sums import CumulativeCounts
from dpsql.statistics.aggregates import DirectSum, GroupCount, ValueBlock
from dpsql.statistics.counts import MarginalCounts
from support.broken.planting import Fault

_kept, _lattice = grouped.sample_rows, aggregates.laplace_lattice
_limits: Any = vars(ValueBlock)["limits"]
_direct_limits: Any = vars(DirectSum)["limits"]


def _one_more(*names: str) -> Callable[..., Iterator[Step]]:
    """Return what lets a unit have one more than its plan says."""

    def kept(frame: GroupedFrame, rows: str) -> Iterator[Step]:
        more: dict[str, Any] = {name: getattr(frame.plan, name) + 1 for name in (*names, "max_rows_per_unit")}
        return _kept(replace(frame, plan=replace(frame.plan, **more)), rows)

    return kept


def _twice(block: ValueBlock) -> tuple[int, int]:
    low, high = _limits.fget(block)
    return 2 * low, 2 * high


def _twice_direct(block: DirectSum) -> tuple[int, int]:
    low, high = _direct_limits.fget(block)
    return 2 * low, 2 * high


def _narrow(*given: Any) -> Lattice:
    law = _lattice(*given)
    return replace(law, spread=law.spread * Fraction(7, 10))


def _of_cells(block: MarginalCounts, contribution: Contribution) -> int:
    return len(block.measured) * GroupCount.squared_norm(block, contribution)


def _of_rows(part: CumulativeCounts, strategy: prefix_sums.PrefixStrategy) -> Fraction:
    return prefix_sums.laplace_scale(strategy, part.epsilon, part.neighbours, 1)


ONE_ROW_MORE = Fault(
    "A unit counts with one row more than its limit.", ((grouped, "sample_rows", _one_more("rows_per_group")),)
)
ONE_ROW_MORE_IN_ALL = Fault(
    "A unit counts with one row more than its limit in all, without groups.",
    ((Frame, "most_of_unit", property(lambda frame: frame.plan.max_rows_per_unit + 1)),),
)
ONE_GROUP_MORE = Fault(
    "A unit counts in one group more than its limit.", ((grouped, "sample_rows", _one_more("groups")),)
)
TWICE_THE_BOUND = Fault(
    "Values beyond their bounds count as twice the bound.",
    ((ValueBlock, "limits", property(_twice)), (DirectSum, "limits", property(_twice_direct))),
)


def _equal(word: str, rows: str, owners: str, columns: Sequence[str]) -> str:
    return f"(SELECT * FROM {rows} {word} JOIN {owners} USING ({', '.join(columns)}))"


EQUAL_OWNERS = Fault(
    "Owners of a key that is NULL are never equal, so their rows all count.", ((rows, "_joined", _equal),)
)
NARROW_NOISE = Fault("Noise is 0.7 times as wide as stated.", ((aggregates, "laplace_lattice", _narrow),))
POOLED_MARGINS = Fault(
    "Margins are taken for cells, of which no two rows of a unit are added up: 8 where the squares are 12.",
    ((MarginalCounts, "squared_norm", _of_cells),),
)
CURVE_OF_ROWS = Fault(
    "The noise of a curve is for one row, and a unit has several.", ((CumulativeCounts, "laplace_scale", _of_rows),)
)
SQUARES_OF_ROWS = Fault(
    "Squares are taken for single rows: r rows of a unit in one group move it by r, and its square by r squared.",
    ((Contribution, "_squares_in", Contribution._rows_in),),
)
