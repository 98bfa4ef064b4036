"""dp_bounds: a private interval that holds the bulk of one column, without any prior bounds."""

from __future__ import annotations

import math
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
from dpsql.kernels.cells import COARSE_CELLS
from dpsql.mechanisms.parts import LaplaceBounds
from dpsql.progress import Progress
from dpsql.statistics.counts import MagnitudeHistogram, l1_sensitivity


@dataclass(frozen=True, kw_only=True)
class BoundsPlan(ColumnPlan):
    """The checked public arguments of one ``dp_bounds`` call.

    Attributes
    ----------
    failure : Fraction
        Upper bound on the chance that the interval extends to a magnitude that no row has, in (0, 1).
    """

    failure: Fraction

    function: ClassVar[str] = "dp_bounds"
    arguments: ClassVar[Signature] = Signature(
        TARGET,
        EPSILON,
        share(
            "failure",
            "Chance, at most, that the interval reaches out to where no row is, between 0 and 1.",
            0.001,
            hint="0.001 is the usual value.",
        ),
        *GROUPED_COLUMN,
    )

    @classmethod
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        return cls._read(given, "failure")

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement: two histograms of one column."""
        return measurement_of(
            LaplaceBounds("interval", self.epsilon, self.neighbours, self.max_rows_per_unit, self.failure)
        )

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scale of the noise on a count."""
        return (self.scale,)

    @property
    def scale(self) -> Fraction:
        """Scale of the noise on a count. Coarse and fine counts get half of epsilon each."""
        return 2 * l1_sensitivity(self.neighbours, max_rows_per_unit=self.max_rows_per_unit) / self.epsilon

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how noisy the call would be."""
        return bounds_noise(self.scale, self.failure, n_rows)


def bounds_noise(scale: Fraction, failure: Fraction, n_rows: int | None) -> list[Quantity]:
    """Return how many rows a magnitude needs to be seen, for noise of this scale on a count."""
    rows = float(scale) * math.log(COARSE_CELLS / failure)
    out: list[Quantity] = [("threshold", rows, "rows that a magnitude must hold to be inside the interval")]
    if n_rows is not None:
        out.append(("threshold_share", rows / n_rows, "that as a share of the rows"))
    return out


class BoundsCall(Call):
    """A dp_bounds call, with the column types of its source."""

    plan: BoundsPlan

    def start(self) -> Collector:
        """Return an empty histogram."""
        return MagnitudeHistogram(0, target=True)

    def prepare(self, statistic: MagnitudeHistogram, progress: Progress) -> Callable[[], Json]:
        """Return the draw of the interval."""
        plan = self.plan
        interval: LaplaceBounds = plan.measurement["interval"]
        return lambda: list(interval.draw(statistic.cells.counts[0]))
