"""The drawn limit on a person's rows in a query: the 99th percentile of the rows per person of a core.

The limit decides more than the noise: a small limit drops rows, which no interval covers, and a large limit adds noise.
The number of each person's rows is one value of one row of that person, so a quantile of these numbers has the
sensitivity of any quantile of a table with one row per person. Numbers are distinguished up to steps of a fourth root
of two, and the drawn limit is the upper end of a step; so most people have no more rows.

The drawn limit is public, and the other parts of the core use it: adaptively chosen mechanisms, which cost as much as
with a declared limit.

The quantiles of a core of dp_query are the quantiles of `dp_quantile`, with intervals for any confidence. If a column
of a query is made of j numbers, it uses for each an interval that fails with a j-th of the chance. The release has an
interval for each of a few j; all are functions of the same noisy counts, so they cost nothing more.

Where the owner allows it, quantiles near 0 and 1 answer min and max (`ExtremesPlan`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self, TypeVar

import numpy as np

from dpsql.arrays import Longs
from dpsql.contract.arguments import Signature
from dpsql.contract.fold import Collector, Ignoring
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Draw, Measurement, measurement_of
from dpsql.contract.plan import Pass, Plan, Quantity
from dpsql.contract.relation import Contribution
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError
from dpsql.functions.grouped.plan import CONFIDENCE, GroupedPlan
from dpsql.functions.grouped.quantile import QuantileCall, QuantilePlan
from dpsql.functions.query_bounds import Intervals, WaitingCall
from dpsql.mechanisms.quantile import LaterQuantiles
from dpsql.mechanisms.rank_counts import RankCounts
from dpsql.progress import Progress
from dpsql.released.quantile_spans import rows_needed
from dpsql.rendering import double
from dpsql.statistics.counts import GridHistogram

# A column with a quantile has an interval if it is made of at most this many numbers.
MOST_NUMBERS = 6


@dataclass(frozen=True, kw_only=True)
class CoreQuantilePlan(QuantilePlan):
    """The plan of the quantiles of one column of a core."""

    confidence: float

    function: ClassVar[str] = "dp_query.quantile"
    arguments: ClassVar[Signature] = Signature(*QuantilePlan.arguments.values(), CONFIDENCE)

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        """Return the checked arguments; another part draws missing bounds."""
        return {**super()._own(arguments, layout), **cls._read(arguments, "confidence"), "bounds_share": None}

    @property
    def failures(self) -> tuple[float, ...]:
        """Return the failure chances of intervals, for columns that are made of 1, 2 and more numbers."""
        return tuple((1.0 - float(self.confidence)) / numbers for numbers in range(1, MOST_NUMBERS + 1))


@dataclass(frozen=True)
class CoreQuantileCall(QuantileCall, WaitingCall):
    """A call of the quantiles of one column of a core."""

    plan: CoreQuantilePlan

    def within(self, intervals: Intervals) -> Self:
        """Return the call with the bounds of its column."""
        return replace(self, interval=intervals[self.plan.target])

    def _without_bounds(self, record: dict[str, Json]) -> Callable[[], Json]:
        """Return the end of a part without bounds: the query's charge does not depend on it."""
        return lambda: record


# The levels of quantiles in place of min, and 1 less these in place of max; nearest to the end first.
LEVELS = tuple(Fraction(times, 1000) for times in (1, 2, 5, 10, 20, 50, 100, 250))
# The share of epsilon of a part of extremes that counts rows, for the level.
_COUNTING = Fraction(1, 10)


@dataclass(frozen=True, kw_only=True)
class ExtremesPlan(CoreQuantilePlan):
    """The plan of the quantiles that answer min and max of one column of a core.

    Its `quantiles` say which: the first of `LEVELS` for min, 1 less it for max. The part draws in three steps:

    1. the noisy number of rows in each group, at a share of its epsilon (`rows_part`);
    2. of `LEVELS`, all groups have the first that half of them support by their noisy numbers (`rows_for`), or the
       last: a function of the noisy numbers alone;
    3. the quantiles at this level, with their intervals, as of `CoreQuantilePlan`.

    *Proof sketch*. Every row is in at most one group, and a privacy unit has at most ``contribution.rows`` rows in all
    groups, so step 1 is discrete Laplace noise on a vector of that L1 sensitivity: it costs its share. The level is
    post-processing, and fixes the quantiles of step 3, which are private at the remaining epsilon for every level
    (`dpsql.mechanisms.quantile`: the event does not depend on the quantiles). Both add up, as adaptive mechanisms do.
    The noise of step 1 is independent of the noise of the intervals, so each interval holds the quantile of the drawn
    level with its confidence. No value of the answer is the exact least or greatest value.
    """

    function: ClassVar[str] = "dp_query.extremes"

    @cached_property
    def remaining_epsilon(self) -> Fraction:
        """Epsilon that remains for the quantiles and their intervals."""
        return self.epsilon * (1 - _COUNTING)

    @cached_property
    def rows_part(self) -> RankCounts:
        """Return the noisy numbers of rows."""
        return RankCounts("rows", self.epsilon * _COUNTING, self.neighbours, self.contribution.rows)

    @cached_property
    def selection(self) -> LaterQuantiles:
        """Return the selection of the quantiles, which the drawn level replaces."""
        selection = super().selection
        return LaterQuantiles(**vars(selection), number=len(self.at))

    @cached_property
    def measurement(self) -> Measurement:
        """Return the numbers of rows, the selection at the level that they choose, and the counts of the intervals."""
        return measurement_of(self.rows_part, *super().measurement.parts)

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scales of the noise of all counts."""
        return (self.rows_part.scale, *super().laplace_scales(count))

    def at_level(self, level: Fraction) -> ExtremesPlan:
        """Return the plan with the quantiles of a level."""
        ends = (level if share < Fraction(1, 2) else 1 - level for share in self.at)
        return replace(self, quantiles=tuple(map(str, ends)))

    @cached_property
    def rows_for(self) -> list[tuple[Fraction, float]]:
        """Return each level, with the rows from which it is supported.

        These close its intervals but for noise, and the error in ranks of 95 % of calls leaves rows beyond it: half of
        that error between bounds, where fewer cells have no rows.
        """
        bounded = self.public_bounds is not None or bool(self.by)
        out: list[tuple[Fraction, float]] = []
        for level in LEVELS:
            plan = self.at_level(level)
            needed = plan.ranks / float(level * (2 if bounded else 1))
            if plan.rank_part is not None:
                needed = max(needed, rows_needed(plan.at, plan.rank_part.scale, bounded=bounded))
            out.append((level, math.ceil(needed)))
        return out

    def at_levels_of(self, groups: Sequence[Longs]) -> ExtremesPlan:
        """Draw the noisy numbers of rows; return the plan with the quantiles of their level.

        Notes
        -----
        - **Guarantee**: pure DP at the share of epsilon of `rows_part`, see `dpsql.mechanisms.rank_counts`.
        - **Sensitivity**: L1, the rows of a privacy unit in all groups.
        """
        noisy = self.rows_part.draw([np.array([counts.sum()], dtype=np.int64) for counts in groups])
        rows = float(np.median([number[0] for number in noisy])) if noisy else 0.0
        return self.at_level(next((level for level, needed in self.rows_for if rows >= needed), LEVELS[-1]))

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the error in ranks, and the levels with the rows that they need."""
        whose = "rows of half of the groups" if self.by else "rows"
        return [
            ("rank_error", self.ranks, f"{whose} that a quantile is off by, in 95 % of calls"),
            *(
                (f"rows_for_{float(level):g}", needed, f"{whose} from which min and max are quantiles of this level")
                for level, needed in self.rows_for
            ),
        ]


@dataclass(frozen=True)
class ExtremesCall(CoreQuantileCall):
    """A call of the quantiles that answer min and max of one column of a core."""

    plan: ExtremesPlan

    @property
    def remark(self) -> str:
        """Public note next to the guarantee."""
        return "; ".join(filter(None, (super().remark, "min and max are quantiles")))


# The argument that replaces a number, and the share of epsilon for the draw.
DRAWN, SHARE = "drawn", Fraction(1, 20)
AT = 0.99
# The limits that may be drawn, ascending; no query needs more rows of one person.
MOST_ROWS = 1 << 16
LIMITS = tuple(sorted({math.ceil(2 ** (step / 4)) for step in range(4 * 16 + 1)}))
# A limit is at most this multiple of the owner's declared limit. With few people or little epsilon any limit may be
# drawn; the noise is then wider by this factor at most.
_TIMES = 16
# The column with the step of each person's number of rows.
STEPS = "dpsql_rows"
_Limited = TypeVar("_Limited", bound=Plan)


def limits_up_to(rows: object) -> tuple[int, ...]:
    """Return the limits that may be drawn next to a declared limit: a failed draw is no further from it."""
    most = MOST_ROWS if not isinstance(rows, int) else _TIMES * rows
    return tuple(limit for limit in LIMITS if limit <= most)


def step_of(number: str, limits: int) -> str:
    """Return SQL for the step of a number of rows, the middle of its cell; the last step has all larger numbers."""
    steps = enumerate(LIMITS[: limits - 1])
    cases = " ".join(f"WHEN {number} <= {most} THEN {double(at + 0.5)}" for at, most in steps)
    last = double(limits - 0.5)
    return f"CASE {cases} ELSE {last} END" if cases else last


@dataclass(frozen=True, kw_only=True)
class RowsPlan(QuantilePlan):
    """The plan of the part that draws how many rows of a person count."""

    function: ClassVar[str] = "dp_query.rows"

    def _passes(self) -> tuple[Pass, ...]:
        """Return the pass over the persons; after it the limit is drawn, before any other part reads a row."""
        [scan] = super()._passes()
        return (scan, replace(scan, reads_rows=False))

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how many persons may lose rows to the drawn limit, in addition to the intended share."""
        return [("persons_off", self.ranks, "persons by which the drawn limit on rows is off, in 95 % of calls")]


@dataclass(frozen=True)
class RowsCall(QuantileCall):
    """A call that draws the limit.

    Attributes
    ----------
    limit : int or None
        The rows of a person that count, after the draw.
    """

    plan: RowsPlan
    limit: int | None = None

    def after(self, collector: Collector) -> RowsCall:
        """Draw the limit; return the call with this limit.

        Notes
        -----
        - **Guarantee**: pure DP at ``plan.epsilon``, see `dpsql.mechanisms.quantile.quantiles`.
        - **Sensitivity**: the same; a privacy unit has one row.
        """
        if not isinstance(collector, GridHistogram):
            return self
        cells = collector.cells
        [cell] = self.plan.selection.draw_tied(cells.counts)
        step = min(max(math.floor(cells.middle(cell)), 0), (self.plan.cells or 1) - 1)
        return replace(self, limit=LIMITS[step])

    def turn(self, collector: Collector, progress: Progress) -> Collector:
        """Return the end of the part: it reads no row again."""
        return Ignoring()

    def prepare(self, statistic: object, progress: Progress) -> Callable[[], Json] | Draw:
        """Return the drawn limit."""
        if self.limit is None:
            raise InternalError("I032", "the rows of a person were not drawn. Report it.")
        record: dict[str, Json] = {"rows": self.limit}
        return lambda: record


def limited(plan: _Limited, rows: int) -> _Limited:
    """Return a plan with this row limit per unit; a limit of one row in a group stays one.

    In one group of all rows, a limit of one row is one row of a unit at any drawn limit: a person counts once among
    different persons. The largest limit that may be drawn is more than one row, so only a limit of a group makes it
    one.
    """
    if not isinstance(plan, GroupedPlan) or plan.layout.privacy_unit is None:
        raise InternalError("I032", "the rows of a part have no limit. Report it.")
    keys = plan.public_keys
    count = None if keys is None else keys.count
    group_rows = 1 if plan.rows_per_group == 1 else None
    contribution = Contribution.of("add_remove", rows, None, group_rows, key_count=count)
    return replace(
        plan,
        max_rows_per_unit=contribution.rows,
        groups=contribution.groups,
        rows_per_group=contribution.rows_per_group,
    )
