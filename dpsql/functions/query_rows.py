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
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Self, TypeVar

from dpsql.contract.arguments import Signature
from dpsql.contract.fold import Collector, Ignoring
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Draw
from dpsql.contract.plan import Pass, Plan, Quantity
from dpsql.contract.relation import Contribution
from dpsql.errors import InternalError
from dpsql.functions.grouped.plan import CONFIDENCE, GroupedPlan
from dpsql.functions.grouped.quantile import QuantileCall, QuantilePlan
from dpsql.functions.query_bounds import Intervals, WaitingCall
from dpsql.progress import Progress
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
