"""dp_bounds: a private interval that holds the bulk of one column, without any prior bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from dpsql.contract.arguments import EPSILON, TARGET, Signature, share
from dpsql.contract.call import Call
from dpsql.contract.fold import Collector
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.plan import Quantity
from dpsql.functions.column import GROUPED_COLUMN, ColumnPlan
from dpsql.mechanisms.interval_scan import IntervalNoise
from dpsql.mechanisms.parts import ScannedInterval
from dpsql.progress import Progress
from dpsql.released.bounds import interval_record
from dpsql.statistics.counts import MagnitudeHistogram


@dataclass(frozen=True, kw_only=True)
class BoundsPlan(ColumnPlan):
    """The checked public arguments of one ``dp_bounds`` call.

    Attributes
    ----------
    failure : Fraction
        Upper bound on the chance that one of the two claims about a clear interval is false, in (0, 1).
    """

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
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        return cls._read(given, "failure")

    @property
    def interval_noise(self) -> IntervalNoise:
        """The noise of the interval."""
        return IntervalNoise(self.epsilon, self.neighbours, self.max_rows_per_unit, self.failure)

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement: the interval of one column."""
        return measurement_of(ScannedInterval("interval", self.interval_noise))

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scales of the noise in scans and counts."""
        return self.interval_noise.scales

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how noisy the call would be."""
        return interval_quantities(self.interval_noise)


def interval_quantities(noise: IntervalNoise) -> list[Quantity]:
    """Return how many rows an interval needs and leaves out, of noise that is drawn for it."""
    return [
        ("rows_needed", float(noise.rows_needed), "rows with a value from which the verdict is clear, but for noise"),
        ("rows_left", float(noise.rows_left), "rows that either end leaves outside, but for noise"),
        ("std_error", noise.deviation, "standard deviation of the noise in rows_inside and in rows_outside"),
        ("count_reach", float(noise.count_reach), "error of both, with a chance of at least 1 - failure"),
    ]


class BoundsCall(Call):
    """A dp_bounds call, with the column types of its source."""

    plan: BoundsPlan

    def start(self) -> Collector:
        """Return an empty histogram."""
        return MagnitudeHistogram(0, target=True)

    def prepare(self, statistic: MagnitudeHistogram, progress: Progress) -> Callable[[], Json]:
        """Return the draw of the interval."""
        part: ScannedInterval = self.plan.measurement["interval"]
        counts = statistic.cells.counts[0]
        return lambda: {"interval": interval_record(part.draw(counts)), "std_error": part.noise.deviation}
