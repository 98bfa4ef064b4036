"""The bounds that a query draws: one interval for each column of a core that has no public bounds.

**Statement.** The rows of the core count, of all its groups, and of each privacy unit a sample of as many as its limit
leaves: m rows, each of which has one value of each of c columns. Each column is a mechanism of its own with a c-th of
the part's epsilon (`dpsql.mechanisms.interval_scan`, whose sensitivity is that of m rows of one unit), and basic
composition adds them up to the part's epsilon. Neighbours and guarantee are those of the query.

Every other part of the core that needs the bounds of a column, be it a vector, a quantile in groups or a pair, has the
one interval that was drawn for it. It is public once it is drawn, so each of them is a mechanism with public bounds,
chosen by what was released before, and costs its own share whatever the interval is. For the bounds each gives up the
same share of its epsilon, and these add up to what the bounds cost.

Where no interval is found, values stand between -1 and 1, and nothing that depends on values is told.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import pyarrow as pa

from dpsql.contract.arguments import BUDGET, EPSILON, Signature
from dpsql.contract.fold import Batch, Collector, Ignoring
from dpsql.contract.json import Json
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.plan import NOT_STATED, Pass, Quantity
from dpsql.errors import InternalError
from dpsql.functions.grouped.aggregate import TARGETS
from dpsql.functions.grouped.drawn_bounds import DrawnBoundsCall, TargetMagnitudes, bounds_noise, drawn_of, read_share
from dpsql.functions.grouped.plan import UNIT, GroupedCall, GroupedPlan
from dpsql.mechanisms.interval_scan import IntervalNoise, PrivateInterval, ScannedInterval
from dpsql.progress import Progress
from dpsql.released.intervals import interval_record

# What a part that needs bounds gives up of its epsilon.
SHARE = read_share({})
Intervals = Mapping[str, PrivateInterval]


@dataclass(frozen=True, kw_only=True)
class CoreBoundsPlan(GroupedPlan):
    """The plan of the part that draws the bounds of columns, for all other parts of its core."""

    function: ClassVar[str] = "dp_query.bounds"
    arguments: ClassVar[Signature] = Signature(TARGETS, EPSILON, *UNIT, *BUDGET)
    takes_private_keys = False
    stated_as = NOT_STATED

    def _passes(self) -> tuple[Pass, ...]:
        """Return the pass over the rows; after it the bounds are drawn, before any part that needs them reads one."""
        [scan] = super()._passes()
        return (scan, replace(scan, reads_rows=False))

    @cached_property
    def interval_noise(self) -> IntervalNoise:
        """The noise of the interval of one column."""
        return bounds_noise(self.epsilon / len(self.targets), self.neighbours, self.contribution.rows, tails=True)

    @cached_property
    def bounds_parts(self) -> tuple[ScannedInterval, ...]:
        """The parts that draw the bounds of each column."""
        columns = range(len(self.targets))
        return tuple(ScannedInterval(f"bounds {position}", self.interval_noise) for position in columns)

    @cached_property
    def measurement(self) -> Measurement:
        """One mechanism for each column."""
        return measurement_of(*self.bounds_parts)

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scales of the noise in scans and counts."""
        return self.interval_noise.scales

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how many rows a column needs for its bounds to be found."""
        needed = float(self.interval_noise.rows_needed)
        return [("bounds_rows_needed", needed, "rows with a value from which bounds are found, but for noise")]


@dataclass(frozen=True)
class CoreBoundsCall(GroupedCall):
    """A call that draws the bounds of columns.

    Attributes
    ----------
    private_bounds : tuple of PrivateInterval
        Of each column, once they were drawn.
    """

    plan: CoreBoundsPlan
    private_bounds: tuple[PrivateInterval, ...] = ()

    def check(self) -> None:
        """Raise if the noise cannot be drawn."""
        self.plan.check_drawable(1)

    @property
    def by_column(self) -> Intervals:
        """The bounds by column; nothing before they were drawn."""
        return dict(zip(self.plan.targets, self.private_bounds, strict=True)) if self.private_bounds else {}

    def start(self) -> Collector:
        """Return empty counts."""
        return TargetMagnitudes(len(self.plan.targets))

    def collect(self, collector: Collector, rows: pa.StructArray, batch: Batch) -> None:
        """Pass a batch of rows to the collector."""
        if not isinstance(collector, TargetMagnitudes):
            raise TypeError("the collector is of another call")
        collector.take(rows, batch)

    def after(self, collector: Collector) -> CoreBoundsCall:
        """Draw the bounds; return the call that knows them.

        Notes
        -----
        - **Guarantee**: pure DP at ``plan.epsilon``, an equal part of it for each column, see
          `dpsql.mechanisms.interval_scan`.
        - **Sensitivity**: as there; the rows of a privacy unit are at most ``contribution.rows``.
        """
        if not isinstance(collector, TargetMagnitudes):
            return self
        return replace(self, private_bounds=drawn_of(self.plan.bounds_parts, collector))

    def turn(self, collector: Collector, progress: Progress) -> Collector:
        """Return the end of the part: no row is read again."""
        return Ignoring()

    def prepare(self, statistic: object, progress: Progress) -> Callable[[], Json]:
        """Return what was drawn."""
        if not self.private_bounds:
            raise InternalError("I032", "the bounds of a query were not drawn. Report it.")
        intervals: list[Json] = [interval_record(interval) for interval in self.private_bounds]
        record: dict[str, Json] = {
            "targets": list(self.plan.targets),
            "intervals": intervals,
            "std_error": self.plan.interval_noise.deviation,
        }
        return lambda: record


class WaitingCall(DrawnBoundsCall):
    """A call of a part whose bounds another part of the query draws."""

    @abstractmethod
    def within(self, intervals: Intervals) -> Self:
        """Return the call that knows the bounds of its columns; its plan, and what that costs, are the same."""
