"""dp_regression_metrics: the quality of predictions, from five exact sums over held-out rows.

Units: target t and prediction p are integers in ``[-S, S]`` (`fixed_point`) with the same public bounds; the error
``e = t - p`` is clipped to ``[-B, B]``, with B at most ``2 S``. One row moves the five sums by at most

==============  ============  =================  ==============  ==============
sum             add_remove    its share          replace         its share
==============  ============  =================  ==============  ==============
rows            1             4/15               1               2/15
t               S             2/15               2 S             2/15
t squared       S² / 2        2/15               S²              2/15
e squared       B² / 2        5/15               B²              6/15
size of e       B / 2         2/15               B               3/15
==============  ============  =================  ==============  ==============

Under add_remove, sums of squares and sizes are centred at the middle of one row's range: a square less ``S**2 / 2``,
and so on. This halves their noise; the sum itself is the centred sum plus the noisy rows times the middle. The noise of
the rows then enters R² twice, with opposite signs. For a privacy unit, multiply by its largest number of rows. Each sum
gets Laplace noise at its share of epsilon, and the shares add up to epsilon. Squares and absolute errors are not
negative, so a replaced row moves their sums by no more than an added row does. Under replace, a unit with fewer rows
may replace a privacy unit, so the number of rows gets noise too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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
from dpsql.contract.call import Call
from dpsql.contract.fold import Collector
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout, bounds_by_feature, column_bounds, refuse_extremes
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.plan import Plan, Quantity
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.mechanisms.laplace import SumWithNoise
from dpsql.progress import Progress
from dpsql.released.metrics import NoisySum, metric_rows
from dpsql.statistics.regression import ErrorSums, error_centres, sensitivities

SUMS = ("rows", "t", "t2", "e2", "abs_e")
# Shares of epsilon under add_remove and under replace; see the module docstring.
_SHARES = tuple(tuple(Fraction(part, 15) for part in parts) for parts in ((4, 2, 2, 5, 2), (2, 2, 2, 6, 3)))
# Assumed variance of a target, in squared half widths of its bounds.
_LIKELY_VARIANCE = 0.25
_ROWS_NEEDED = (
    "rows from which the interval of R² is at most 1 wide, if R² is 1/2 and the target's standard deviation a quarter "
    "of the width of its bounds"
)
# Noise of a smaller scale, in units, is zero.
_FINE = Fraction(1, 28)
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
            default_text="the width of the bounds",
            hint="Give the largest error that is to count, in the unit of the target, or leave it out.",
        ),
        *COLUMN_PROTECTION,
    )

    @classmethod
    def _layout(cls, arguments: Mapping[str, object]) -> Layout:
        """Return the layout: the prediction is the one feature."""
        prediction = PREDICTION.read(arguments)
        return Layout.from_arguments({**arguments, "features": [prediction]})

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        own = column_bounds(arguments, "they bound target and prediction")
        refuse_extremes(bounds_by_feature(own["lower"], own["upper"], ("",), fold_case=True))
        return {**own, **cls._read(arguments, "error_bound")}

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
        """The bound B of an error as an integer, at least 1; S is half the width of the bounds."""
        if self.error_bound is None:
            return 2 * FIXED_POINT_ONE
        return int(min(2.0, max(self.error_bound / self.half_width, 2.0**-20)) * FIXED_POINT_ONE)

    @property
    def shares(self) -> tuple[Fraction, ...]:
        """Share of epsilon of each sum."""
        return self.relation.pick(*_SHARES)

    @property
    def centres(self) -> tuple[int, int, int, int, int]:
        """Offset per row that each sum loses before noise."""
        return error_centres(self.relation, self.largest_error)

    @cached_property
    def sensitivities(self) -> tuple[int, ...]:
        """Sensitivity of each sum to one privacy unit."""
        return sensitivities(self.relation, self.largest_error)

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement: five sums, each at its share of epsilon."""
        sums = zip(SUMS, self.shares, self.sensitivities, strict=True)
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
        """Return the expected noise of the call, in half widths of the bounds."""
        squares = float(self.scales[3]) / FIXED_POINT_ONE**2
        out: list[Quantity] = [("squares_noise_scale", squares, "scale of the noise on the sum of squared errors")]
        if n_rows is not None:
            out.append(("mean_square_noise", squares / n_rows, "that over n_rows: noise on the mean squared error"))
        out.append(("rows_needed", self._rows_needed(), _ROWS_NEEDED))
        return out

    def _rows_needed(self) -> int:
        """Return the rows that determine R² to within 1/2, for an R² of 1/2 and a target of assumed variance."""
        scale, unexplained = FIXED_POINT_ONE, 0.5
        rows, _, squares, errors, _ = (
            float(part.width) / unit
            for part, unit in zip(self.sums, (1, scale, scale**2, scale**2, scale), strict=True)
        )
        _, _, of_square, of_error, _ = self.centres
        both = (of_error - unexplained * of_square) / scale**2
        reach = 1.96 * math.sqrt(2) * math.hypot(errors, unexplained * squares, both * rows)
        return math.ceil(2 * reach / _LIKELY_VARIANCE)


class MetricsCall(Call):
    """A dp_regression_metrics call, with the column types of its source."""

    plan: MetricsPlan

    def start(self) -> Collector:
        """Return empty sums."""
        return ErrorSums(self.plan.lower, self.plan.upper, self.plan.largest_error, self.plan.centres)

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
    - **Neighbouring relation**: the plan's.
    - **Sensitivity**: L1 of each sum; see the module docstring.
    - **Assumes**: exact integer sums.
    - **Interval**: each contains the metric of these rows, with values clipped to the bounds, with a chance of at least
      95 %. The intervals do not cover sampling error. See `dpsql.released.metrics`.
    """
    scale = FIXED_POINT_ONE
    noisy = [
        NoisySum(*(float(number) / unit for number in (_noisy(part, total), part.width, _step(part), centre)))
        for part, total, centre, unit in zip(
            plan.sums, sums, plan.centres, (1, scale, scale**2, scale**2, scale), strict=True
        )
    ]
    return metric_rows(noisy, bound=plan.largest_error / scale, half_width=plan.half_width)


def _noisy(part: SumWithNoise, total: int) -> int:
    return part.draw_sum(total)


def _step(part: SumWithNoise) -> int:
    """Return the most that discrete noise and rounding add to Laplace noise."""
    # Discrete noise is floor(X) - floor(Y) if Laplace noise is X - Y. Noise so fine is 0, but for a chance of 1e-12.
    return 0 if part.unit_scale < _FINE else 2 * part.unit - 1
