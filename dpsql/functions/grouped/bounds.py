"""dp_bounds: a private interval that holds the bulk of one column, or of each of its groups, without prior bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from dpsql.contract.arguments import EPSILON, TARGET, Signature, share
from dpsql.contract.fold import Collector
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.plan import Quantity
from dpsql.dataclass import dataclass
from dpsql.functions.grouped.counts import GROUPED_COLUMN, ColumnCall, ColumnPlan
from dpsql.functions.value_cells import DerivedKey, MagnitudeCells
from dpsql.mechanisms.interval_scan import IntervalNoise, ScannedInterval
from dpsql.progress import Progress
from dpsql.released.intervals import interval_record
from dpsql.statistics.aggregates import GroupedSums
from dpsql.statistics.counts import MagnitudeHistogram


@dataclass(frozen=True, kw_only=True)
class BoundsPlan(ColumnPlan):
    """The checked public arguments of one ``dp_bounds`` call."""

    failure: Fraction

    function: ClassVar[str] = "dp_bounds"
    arguments: ClassVar[Signature] = Signature(
        TARGET,
        EPSILON,
        share(
            "failure",
            "Chance, at most, that either claim about a clear interval is false, between 0 and 1.",
            0.01,
            hint="0.01 is the usual value.",
            earlier=(0.001,),
        ),
        *GROUPED_COLUMN,
    )

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        return {**super()._own(arguments, layout), **cls._read(arguments, "failure")}

    @cached_property
    def derived(self) -> DerivedKey:
        """The universal cells; rows without a value are in no cell."""
        return DerivedKey(MagnitudeCells(), -math.inf, math.inf, missing=False, divides=False)

    @property
    def interval_noise(self) -> IntervalNoise:
        """The noise of each interval. All rows of a unit within its limits count, over all groups."""
        return IntervalNoise(self.epsilon, self.neighbours, self.contribution.rows, self.failure)

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement: the interval of the column, or one interval per group."""
        return measurement_of(ScannedInterval("interval", self.interval_noise))

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scales of the noise in scans and counts."""
        return self.interval_noise.scales

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the expected noise for one group: the rows that an interval needs, and those it excludes."""
        noise = self.interval_noise
        return [
            (
                "rows_needed",
                float(noise.rows_needed),
                "rows with a value from which the verdict is clear, but for noise",
            ),
            ("rows_left", float(noise.rows_left), "rows that either end leaves outside, but for noise"),
            ("std_error", noise.deviation, "standard deviation of the noise in rows_inside and in rows_outside"),
            ("count_reach", float(noise.count_reach), "error of both, with a chance of at least 1 - failure"),
        ]


@dataclass(frozen=True)
class BoundsCall(ColumnCall):
    """A dp_bounds call, with the column types of its source."""

    plan: BoundsPlan

    def start(self) -> Collector:
        """Return empty counts."""
        return super().start() if self.plan.by else MagnitudeHistogram(0, target=True)

    def prepare(self, statistic: GroupedSums | MagnitudeHistogram, progress: Progress) -> Callable[[], Json]:
        """Return the draw of the interval, or of one interval per group."""
        part: ScannedInterval = self.plan.measurement["interval"]
        error: dict[str, Json] = {"std_error": part.noise.deviation}
        if isinstance(statistic, MagnitudeHistogram):
            counts = statistic.cells.counts[0]
            return lambda: {"interval": interval_record(part.draw(counts)), **error}
        groups, keys = self.counts(statistic), self.keys_record
        return lambda: {
            **keys,
            "intervals": [interval_record(draw_group) for draw_group in part.draw_groups(groups)],
            **error,
        }
