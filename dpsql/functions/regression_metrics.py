"""dp_regression_metrics: how good predictions are, from five exact sums over held-out rows.

Units: target t and prediction p are integers in ``[-S, S]`` (`fixed_point`) by the same public bounds; the error
``e = t - p`` is clipped to ``[-B, B]``, with B at most ``2 S``. One row moves the five sums by at most

==========  ==========  ====================  ================
sum         add_remove  replace               share of epsilon
==========  ==========  ====================  ================
rows        1           0, its noise as 1     1/13
t           S           2 S                   2/13
t squared   S²          S²                    2/13
e squared   B²          B²                    5/13
size of e   B           B                     3/13
==========  ==========  ====================  ================

For a privacy unit, multiply by the number of rows it may have. Each sum gets Laplace noise at its share of epsilon, and
the shares add up to epsilon. Squares and absolute errors are not negative, so replacing a row moves their sums by no
more than adding one does. Under replace, a privacy unit may be replaced by one with fewer rows, so the number of rows
gets noise too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from dpsql.contract.arguments import (
    COLUMN_BOUNDS,
    COLUMN_PROTECTION,
    EPSILON,
    TARGET,
    Signature,
    double,
    row_column,
)
from dpsql.contract.bounds import bounds_by_feature, column_bounds, refuse_extremes
from dpsql.contract.call import Call
from dpsql.contract.fold import Collector
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.plan import Plan, Quantity
from dpsql.errors import ParameterError
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.mechanisms.laplace import SumWithNoise
from dpsql.progress import Progress
from dpsql.released.metrics import Range, consistent_metrics
from dpsql.statistics.gram import ErrorSums, sensitivities

SUMS = ("rows", "t", "t2", "e2", "abs_e")
SHARES = tuple(Fraction(part, 13) for part in (1, 2, 2, 5, 3))
# Joint confidence level of all intervals.
_CONFIDENCE = 0.95
# Sums that need noise of a larger scale than this limit of the sampler are rounded to a coarser unit.
_WIDEST = 1 << 48

PREDICTION = row_column(
    "prediction",
    "Name of the column that holds the predictions.",
    column="p",
    hint="Give the column that holds the predictions.",
)


@dataclass(frozen=True, kw_only=True)
class MetricsPlan(Plan):
    """The checked public arguments of one ``dp_regression_metrics`` call."""

    lower: float
    upper: float
    error_bound: float | None  # None for the full width of the bounds

    function: ClassVar[str] = "dp_regression_metrics"
    target_needs_bounds: ClassVar[bool] = False
    adds_fast: ClassVar[bool] = True
    stated_as: ClassVar[Mapping[str, str | None]] = {
        "lower": None,
        "upper": None,
        "target_lower": "lower",
        "target_upper": "upper",
    }
    arguments: ClassVar[Signature] = Signature(
        TARGET,
        PREDICTION,
        EPSILON,
        *COLUMN_BOUNDS,
        double(
            "error_bound",
            "Bound that errors are clipped to, above 0, in the unit of the target.",
            shown="the width of the bounds",
            hint="Give the largest error that is to count, in the unit of the target, or leave it out.",
        ),
        *COLUMN_PROTECTION,
    )

    @classmethod
    def _layout(cls, given: Mapping[str, object]) -> Layout:
        """Return the layout: the prediction is the one feature."""
        prediction = PREDICTION.read(given)
        return Layout.from_arguments({**given, "features": [prediction]})

    @classmethod
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        own = column_bounds(given, "they bound target and prediction")
        refuse_extremes(bounds_by_feature(own["lower"], own["upper"], ("",), fold_case=True))
        return {**own, **cls._read(given, "error_bound")}

    def check_drawable(self, count: int) -> None:
        """Raise if the noise on the number of rows exceeds the limit of the sampler."""
        if self.scales[0] > _WIDEST:
            raise ParameterError("P038", "epsilon is too small for so many rows per privacy unit. Raise it.")

    @cached_property
    def half_width(self) -> float:
        """Half the width of the bounds: one unit of t."""
        return self.upper / 2 - self.lower / 2

    @cached_property
    def largest_error(self) -> int:
        """The bound B of an error as an integer, S being half the width of the bounds; at least 1."""
        if self.error_bound is None:
            return 2 * FIXED_POINT_ONE
        return int(min(2.0, max(self.error_bound / self.half_width, 2.0**-20)) * FIXED_POINT_ONE)

    @cached_property
    def sensitivities(self) -> tuple[int, ...]:
        """Sensitivity of each sum to one privacy unit."""
        return sensitivities(self.relation, self.largest_error)

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement: five sums, each at its share of epsilon."""
        sums = zip(SUMS, SHARES, self.sensitivities, strict=True)
        return measurement_of(*(SumWithNoise(name, self.epsilon * share, moved) for name, share, moved in sums))

    @property
    def sums(self) -> list[SumWithNoise]:
        """The part that draws each sum."""
        return [part for part in self.measurement.leaves if isinstance(part, SumWithNoise)]

    @cached_property
    def scales(self) -> tuple[Fraction, ...]:
        """Scales of the Laplace noise on the five sums."""
        return tuple(part.scale() for part in self.sums)

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how noisy the call would be, in half widths of the bounds."""
        squares = float(self.scales[3]) / FIXED_POINT_ONE**2
        out: list[Quantity] = [("squares_noise_scale", squares, "scale of the noise on the sum of squared errors")]
        if n_rows is not None:
            out.append(("mean_square_noise", squares / n_rows, "that over n_rows: noise on the mean squared error"))
        return out


class MetricsCall(Call):
    """A dp_regression_metrics call, with the column types of its source."""

    plan: MetricsPlan

    def start(self) -> Collector:
        """Return empty sums."""
        return ErrorSums(self.plan.lower, self.plan.upper, self.plan.largest_error)

    def prepare(self, statistic: ErrorSums, progress: Progress) -> Callable[[], Json]:
        """Return the draw of the metrics."""
        plan = self.plan
        sums = statistic.sums()
        return lambda: draw_metrics(plan, sums)


def draw_metrics(plan: MetricsPlan, sums: list[int]) -> list[list[Json]]:
    """Draw the sums and derive the metrics; return rows of name, value, and lower and upper end of the interval.

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.epsilon``: five sums, each with discrete Laplace noise at its share.
    - **Neighbouring relation**: that of the plan.
    - **Sensitivity**: L1 of each sum; see the module docstring.
    - **Assumes**: exact integer sums.
    - **Interval**: all intervals together contain the metrics of these rows, with values clipped to the bounds, with a
      chance of at least 95 %: the noise of each sum exceeds ``1 + scale * ln(5 / 0.05)`` with a chance of at most 1 %.
      They do not account for sampling error. Metrics do not contradict each other; see `dpsql.released.metrics`.
    """
    noisy = [_noisy(part, total) for part, total in zip(plan.sums, sums, strict=True)]
    units = (1, FIXED_POINT_ONE, FIXED_POINT_ONE**2, FIXED_POINT_ONE**2, FIXED_POINT_ONE)
    box = [
        Range(value / unit, (value - by) / unit, (value + by) / unit)
        for (value, by), unit in zip(noisy, units, strict=True)
    ]
    return consistent_metrics(box, bound=plan.largest_error / FIXED_POINT_ONE, half_width=plan.half_width)


def _noisy(part: SumWithNoise, total: int) -> tuple[int, float]:
    """Return a noisy sum and its error bound, which fails with a chance of at most 1 %."""
    reach = 1 + float(part.unit_scale) * math.log(len(SUMS) / (1 - _CONFIDENCE))
    return part.draw_sum(total), reach * part.unit + (part.unit - 1)
