"""dp_covariance and dp_correlation: private covariance and correlation matrices of columns within public bounds.

Both functions share the plan and the call of this module: one release of noisy moments of features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from numbers import Rational
from statistics import NormalDist
from typing import ClassVar

from dpsql.arrays import Integers
from dpsql.contract.arguments import (
    EPSILON,
    FEATURES,
    LOWER,
    N_FEATURES,
    NAMES,
    OPTIONAL_DELTA,
    PROTECTION,
    UPPER,
    Argument,
    Signature,
    flag,
)
from dpsql.contract.call import BoundedCall
from dpsql.contract.fold import Collector
from dpsql.contract.gaussian_profile import usable_mu
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout, feature_bounds
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.parameters import Side, show
from dpsql.contract.plan import Plan, Quantity
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.kernels.fixed_point import FIXED_POINT_BITS
from dpsql.mechanisms.gaussian import GaussianNoise
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.noise.discrete import laplace_deviation
from dpsql.progress import Progress
from dpsql.statistics.feature_moments import (
    COARSE_UNIT,
    UNIT,
    CompleteProducts,
    coarse_l1_sensitivity,
    squared_l2_sensitivity,
)

# A call releases a number for each of at most 125,250 pairs, and the ledger stores them.
MOST_FEATURES = 500
# With more features Laplace noise is far larger than Gaussian noise at usual deltas.
MOST_PURE = 3
# Chance that one of the six numbers of a pair is out of reach.
_FAILURE = 0.05 / 6


def moments_signature(*own: Argument) -> Signature:
    """Return the arguments of a function of moments, with its own arguments."""
    return Signature(FEATURES, N_FEATURES, NAMES, EPSILON, OPTIONAL_DELTA, LOWER, UPPER, *own, *PROTECTION)


@dataclass(frozen=True, kw_only=True)
class MomentsPlan(Plan):
    """The plan of a function of the moments of features."""

    delta: Fraction | None  # None for Laplace noise, with at most `MOST_PURE` features
    lower: Side
    upper: Side

    fewest_features: ClassVar[int] = 1

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        return {**cls._read(arguments, "delta"), **feature_bounds(arguments)}

    def check_features(self, count: int) -> None:
        """Raise if there are too few or too many features."""
        if count < self.fewest_features:
            raise ParameterError("P072", f"{self.function} needs at least two features; got {count}. Name one more.")
        if count > MOST_FEATURES:
            raise ParameterError(
                "P026", f"{self.function} takes at most {MOST_FEATURES} features; got {count}. Select some first."
            )
        if self.delta is None and count > MOST_PURE:
            raise ParameterError(
                "P046",
                f"{self.function} needs Gaussian noise for more than {MOST_PURE} features; got {count}. "
                "Give delta, such as 1e-6.",
            )

    @cached_property
    def mu(self) -> Fraction | None:
        """Return mu of the moments; None for Laplace noise."""
        return None if self.delta is None else usable_mu(self.epsilon, self.delta)

    @cached_property
    def measurement(self) -> Measurement:
        """Return the measurement: all moments, as one release."""
        if self.delta is None or self.mu is None:
            return measurement_of(LaplaceNoise("moments", self.epsilon))
        return measurement_of(GaussianNoise("moments", self.mu, self.epsilon, self.delta, (("moments", self.mu),)))

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scale of Laplace noise."""
        return (self._coarse_sensitivity(count) / self.epsilon,) if self.mu is None else ()

    def gaussian_parts(self, count: int) -> Iterable[Fraction]:
        """Return the share of mu, over the sensitivity to one row of a privacy unit."""
        if self.mu is None:
            return ()
        squared = squared_l2_sensitivity(self.neighbours, count, self.max_rows_per_unit)
        return (self.mu / (math.isqrt(math.ceil(squared)) + 1),)

    def _coarse_sensitivity(self, count: int) -> Fraction:
        return coarse_l1_sensitivity(self.neighbours, count, self.max_rows_per_unit)

    def deviation(self, count: int) -> float:
        """Return the standard deviation of the noise in each moment of `count` features, in rows."""
        if self.mu is None:
            return laplace_deviation(self._coarse_sensitivity(count) / self.epsilon) / COARSE_UNIT
        squared = squared_l2_sensitivity(self.neighbours, count, self.max_rows_per_unit)
        return math.sqrt(squared) / float(self.mu)

    def reach(self, count: int) -> float:
        """Return a bound that the noise in a moment exceeds with a chance of `_FAILURE` at most, in rows."""
        if self.mu is None:
            scale = self._coarse_sensitivity(count) / self.epsilon
            return (float(scale) * -math.log(_FAILURE) + 1) / COARSE_UNIT  # a number that was rounded down
        return self.deviation(count) * NormalDist().inv_cdf(1 - _FAILURE / 2)

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the noise of the call."""
        deviation = self.deviation(n_features)
        out: list[Quantity] = [
            ("moment_std_error", deviation, "standard deviation of the noise in a sum of products, in half widths")
        ]
        if n_rows is not None:
            out.append(("covariance_std_error", deviation / n_rows, "that over n_rows: noise in a covariance"))
        return out


class MomentsCall(BoundedCall):
    """A call of a function of moments, with the column types of its source."""

    plan: MomentsPlan

    def check(self) -> None:
        """Check the call as `BoundedCall.check` does, and raise if its bounds are too extreme for products."""
        super().check()
        self.refuse_extremes()

    def start(self) -> Collector:
        """Return empty products."""
        return CompleteProducts(self.maps)

    def prepare(self, statistic: CompleteProducts, progress: Progress) -> Callable[[], dict[str, Json]]:
        """Return the draw of the moments."""
        moments = statistic.total()
        count = len(self.features)

        def draw() -> dict[str, Json]:
            noisy = draw_moments(self.plan, moments, count)
            sums, squares, products = 1 + count, 1 + 2 * count, len(noisy)
            return {
                "names": list(self.features),
                "bounds": [list(interval) for interval in self.intervals or []],
                "rows": noisy[0],
                "sums": noisy[1:sums],
                "squares": noisy[sums:squares],
                "products": noisy[squares:products],
                "std_error": self.plan.deviation(count),
                "reach": self.plan.reach(count),
            }

        return draw


def draw_moments(plan: MomentsPlan, moments: Integers, features: int) -> list[float]:
    """Draw all moments, in rows.

    Parameters
    ----------
    plan : MomentsPlan
    moments : ndarray of Python ints
        Result of `CompleteProducts.total`.
    features : int
        Number of features.

    Notes
    -----
    - **Guarantee**: (epsilon, delta)-DP as one mu-GDP release with Gaussian noise; without delta, pure DP at
      ``plan.epsilon``.
    - **Neighbouring relation**: as in the plan.
    - **Sensitivity**: L2, or L1, of all moments together; see `dpsql.statistics.feature_moments`.
    - **Randomness**: exact integer samplers, operating-system entropy, no seed.
    - **Does not protect**: running time.
    """
    unit = (plan.neighbours, features, plan.max_rows_per_unit)
    if plan.mu is None:
        laplace: LaplaceNoise = plan.measurement["moments"]
        noisy = laplace.draw([int(value) >> FIXED_POINT_BITS for value in moments], coarse_l1_sensitivity(*unit))
        return [value / COARSE_UNIT for value in noisy]
    gaussian: GaussianNoise = plan.measurement["moments"]
    squared = UNIT**2 * squared_l2_sensitivity(*unit)
    released = gaussian.draw_sums("moments", moments, squared_sensitivity=squared)
    return [float(value) for value in released.values / UNIT]


def _ddof(ddof: object) -> int:
    if isinstance(ddof, (Rational, Decimal, float)) and not isinstance(ddof, bool) and ddof in (0, 1):
        return 0 if ddof == 0 else 1
    raise ParameterError(
        "P005",
        f"ddof must be one of 0, 1; got {show(ddof)}. Give 1 for the covariance of a sample, as covar_samp, or 0 for "
        "covar_pop.",
    )


@dataclass(frozen=True, kw_only=True)
class CovariancePlan(MomentsPlan):
    """The checked public arguments of one ``dp_covariance`` call."""

    ddof: int

    function: ClassVar[str] = "dp_covariance"
    arguments: ClassVar[Signature] = moments_signature(
        Argument(
            "ddof",
            "The divisor of a covariance is the number of rows less this: 1 as covar_samp, 0 as covar_pop.",
            1,
            check=_ddof,
        )
    )

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        return {**super()._own(arguments, layout), **cls._read(arguments, "ddof")}


class CovarianceCall(MomentsCall):
    """A dp_covariance call, with the column types of its source."""

    plan: CovariancePlan

    def prepare(self, statistic: CompleteProducts, progress: Progress) -> Callable[[], dict[str, Json]]:
        """Return the draw of the moments; its record has the divisor."""
        draw = super().prepare(statistic, progress)
        return lambda: {**draw(), "ddof": self.plan.ddof}


@dataclass(frozen=True, kw_only=True)
class CorrelationPlan(MomentsPlan):
    """The checked public arguments of one ``dp_correlation`` call."""

    sampling: bool | None = None  # None for false, as in records of earlier versions

    function: ClassVar[str] = "dp_correlation"
    arguments: ClassVar[Signature] = moments_signature(
        flag(
            "sampling",
            "Whether the interval is about the population that the rows are from, rather than about these rows, at no "
            "further cost.",
            False,
        )
    )
    fewest_features: ClassVar[int] = 2

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        return {**super()._own(arguments, layout), "sampling": cls.arguments["sampling"].read(arguments) or None}


class CorrelationCall(MomentsCall):
    """A dp_correlation call, with the column types of its source."""

    plan: CorrelationPlan

    def prepare(self, statistic: CompleteProducts, progress: Progress) -> Callable[[], dict[str, Json]]:
        """Return the draw of the moments; its record says whether sampling counts."""
        draw, plan = super().prepare(statistic, progress), self.plan
        return lambda: {**draw(), **({"sampled": plan.max_rows_per_unit} if plan.sampling else {})}
