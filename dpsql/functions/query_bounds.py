"""The drawn bounds of a query: one interval for each column of a core that has no public bounds.

**Statement.** The part counts the rows of the core in all groups: one of each privacy unit, or in earlier versions as
many as in other parts, each with one value in each of c columns. Each column is its own mechanism with a c-th of the
part's epsilon (`dpsql.mechanisms.interval_scan`, whose sensitivity is for the rows of one unit), and basic composition
adds them up to the part's epsilon. Neighbours and guarantee are those of the query.

Every other part of the core that needs the bounds of a column (a vector, a quantile in groups or a pair) uses the same
drawn interval. The interval is public after its draw, so each of these parts is a mechanism with public bounds, chosen
by earlier releases, and costs its own share for any interval. Each part gives up the same share of its epsilon for the
bounds, and these shares add up to the cost of the bounds.

If the draw finds no interval, values are between -1 and 1, and the release has no number that depends on values.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import pyarrow as pa

from dpsql.contract.arguments import BUDGET, EPSILON, Signature
from dpsql.contract.fold import Batch, Collector, Ignoring
from dpsql.contract.json import Json
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.plan import NOT_STATED, Pass, Quantity
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError
from dpsql.functions.grouped.aggregate import TARGETS
from dpsql.functions.grouped.plan import (
    UNIT,
    DrawnBoundsCall,
    GroupedCall,
    GroupedPlan,
    TargetMagnitudes,
    bounds_noise,
    drawn_of,
    read_share,
)
from dpsql.mechanisms.interval_scan import IntervalNoise, PrivateInterval, ScannedInterval
from dpsql.progress import Progress
from dpsql.released.intervals import interval_record

# Share of epsilon that a part gives up for its bounds.
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
        """Return the pass over the rows; after it the bounds are drawn, before any part that needs them reads a row."""
        [scan] = super()._passes()
        return (scan, replace(scan, reads_rows=False))

    @cached_property
    def interval_noise(self) -> IntervalNoise:
        """Return the noise of the interval of one column."""
        return bounds_noise(self.epsilon / len(self.targets), self.neighbours, self.contribution.rows, tails=True)

    @cached_property
    def bounds_parts(self) -> tuple[ScannedInterval, ...]:
        """Return the parts that draw the bounds of each column."""
        columns = range(len(self.targets))
        return tuple(ScannedInterval(f"bounds {position}", self.interval_noise) for position in columns)

    @cached_property
    def measurement(self) -> Measurement:
        """Return one mechanism for each column."""
        return measurement_of(*self.bounds_parts)

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scales of the noise in scans and counts."""
        return self.interval_noise.scales

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how many rows a column needs for its bounds."""
        needed = float(self.interval_noise.rows_needed)
        return [("bounds_rows_needed", needed, "rows with a value from which bounds are found, but for noise")]


@dataclass(frozen=True)
class CoreBoundsCall(GroupedCall):
    """A call that draws the bounds of columns.

    Attributes
    ----------
    private_bounds : tuple of PrivateInterval
        The bounds of each column, after their draw.
    """

    plan: CoreBoundsPlan
    private_bounds: tuple[PrivateInterval, ...] = ()

    def check(self) -> None:
        """Raise if the noise cannot be drawn."""
        self.plan.check_drawable(1)

    @property
    def by_column(self) -> Intervals:
        """Return the bounds by column; empty before their draw."""
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
        """Draw the bounds; return the call with these bounds.

        Notes
        -----
        - **Guarantee**: pure DP at ``plan.epsilon``, an equal part of it for each column, see
          `dpsql.mechanisms.interval_scan`.
        - **Sensitivity**: the same; the rows of a privacy unit are at most ``contribution.rows``.
        """
        if not isinstance(collector, TargetMagnitudes):
            return self
        by_unit = self.plan.layout.privacy_unit is not None and self.plan.contribution.rows == 1
        intervals = drawn_of(self.plan.bounds_parts, collector)
        return replace(self, private_bounds=tuple(replace(interval, by_unit=by_unit) for interval in intervals))

    def turn(self, collector: Collector, progress: Progress) -> Collector:
        """Return the end of the part: it reads no row again."""
        return Ignoring()

    def prepare(self, statistic: object, progress: Progress) -> Callable[[], Json]:
        """Return the drawn bounds."""
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
        """Return the call with the bounds of its columns; its plan and its cost stay the same."""
