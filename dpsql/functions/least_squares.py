"""AdaSSP and boosted AdaSSP as passes over the rows: private bounds if none were given, then exact sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.fold import Collector, Pass
from dpsql.contract.json import Json
from dpsql.contract.plan import Quantity
from dpsql.kernels.cells import COARSE_CELLS, FINE_CELLS
from dpsql.kernels.clipped_rows import ClippedRows
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, affine_map, affine_maps
from dpsql.mechanisms.ada_ssp import LinearFit
from dpsql.mechanisms.choices import QuantileSelection
from dpsql.mechanisms.parts import GaussianNoise
from dpsql.statistics.counts import MagnitudeHistogram
from dpsql.statistics.regression import RowMap, RowProducts, Scales, StoredRows, cross_sensitivity, gram_sensitivity

if TYPE_CHECKING:
    from dpsql.functions.linear_regression import RegressionCall, RegressionPlan

QUARTILES = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
# Boosting clips residuals to this many interquartile ranges of the target.
_RANGES = 2.0
# Chance that private bounds extend to a magnitude that no row has.
_FAILURE = Fraction(1, 1000)
# Boosting clips the target to 256 times the residual bound.
_FARTHEST_TARGET = 256 * FIXED_POINT_ONE

Interval = tuple[float, float]
Kept = TypeVar("Kept", bound=Collector)


def start(call: RegressionCall) -> Collector:
    """Return the collector of the first pass."""
    features, target = call.intervals, call.bounded_target
    if call.plan.draws_bounds or features is None or target is None:
        return Magnitudes(call)
    return _fitting(call, features, target)


def _fitting(call: RegressionCall, features: list[Interval], target: Interval) -> Collector:
    """Return the collector of the last pass."""
    return (Boosted if call.plan.method == "boosted_ada_ssp" else Products)(call, features, target)


class Magnitudes(Pass[MagnitudeHistogram]):
    """Histograms of magnitudes, one for each column without public bounds."""

    def __init__(self, call: RegressionCall) -> None:
        self._call = call
        self._features: list[Interval] | None = call.intervals
        self._target: Interval | None = call.bounded_target
        # Zero columns if the type of the target determines its bounds.
        width = len(call.features) if self._features is None else 0
        super().__init__(MagnitudeHistogram(width, target=self._target is None))

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Draw the missing bounds."""
        plan = self._call.plan
        features, target = self._features, self._target
        counts = self.inner.cells.counts
        if len(counts):
            part: GaussianNoise = plan.measurement["fit"]
            drawn = part.draw_bounds(
                "bounds",
                counts,
                neighbours=plan.neighbours,
                max_rows_per_unit=plan.max_rows_per_unit,
                failure=_FAILURE,
            )
            if target is None:
                target = drawn.pop()
            if features is None:
                features = drawn
        return _fitting(self._call, features or [], target or (-1.0, 1.0))


class _Fit(Pass[Kept]):
    """The steps of both methods: map columns to [-1, 1], clip long rows, and map the model back."""

    def __init__(
        self, call: RegressionCall, features: list[Interval], target: Interval, kind: Callable[[RowMap, Interval], Kept]
    ) -> None:
        self._call = call
        self._bounds = features
        middle, scale = affine_maps(features)
        self._scales = Scales(middle, scale, *affine_map(*target))
        longest, self._radius = call.plan.radii(len(features))
        super().__init__(kind(RowMap(self._scales, longest), target))

    def result(self, fit: LinearFit, scales: Scales) -> Callable[[], Json]:
        """Return the released model in the units of the columns."""
        unit = self._call.target_unit
        matrix = _unmapping(scales, unit)
        coefficients = matrix @ fit.coefficients
        coefficients[0] += scales.target_middle / unit
        errors = None
        if fit.covariance is not None:
            errors = np.sqrt(np.clip(np.einsum("ij,jk,ik->i", matrix, fit.covariance, matrix), 0.0, None))
        return lambda: self._call.result(coefficients, errors, self._bounds)


def _unmapping(scales: Scales, unit: float) -> NDArray[np.float64]:
    """Return the matrix that maps coefficients of scaled columns to those of the columns, intercept first."""
    matrix = np.diag(np.concatenate(([FIXED_POINT_ONE], scales.scale))) / (scales.target_scale * unit)
    matrix[0, 1:] = -scales.middle * np.diag(matrix)[1:]
    return matrix


class Products(_Fit[RowProducts]):
    """AdaSSP: exact products of all columns."""

    def __init__(self, call: RegressionCall, features: list[Interval], target: Interval) -> None:
        super().__init__(call, features, target, RowProducts)

    def draw(self, progress: Callable[[float], None]) -> Callable[[], Json]:
        """Draw the noisy products and solve."""
        plan = self._call.plan
        part: GaussianNoise = plan.measurement["fit"]
        fit = part.draw_fit(
            "fit",
            self.inner.products(),
            radius=self._radius,
            neighbours=plan.neighbours,
            max_rows_per_unit=plan.max_rows_per_unit,
        )
        return self.result(fit, self._scales)


class Boosted(_Fit[StoredRows]):
    """Boosted AdaSSP: the stored rows, which every round reads."""

    def __init__(self, call: RegressionCall, features: list[Interval], target: Interval) -> None:
        super().__init__(call, features, target, StoredRows)

    def draw(self, progress: Callable[[float], None]) -> Callable[[], Json]:
        """Draw the target's scale and the noisy products, and boost."""
        plan = self._call.plan
        scales = self._scaled()
        rows = ClippedRows(len(scales.middle) + 1)
        for matrix, values in self.inner.given_up():
            with np.errstate(over="ignore", invalid="ignore"):
                moved = (values - scales.target_middle) * scales.target_scale
            np.clip(moved, -_FARTHEST_TARGET, _FARTHEST_TARGET, out=moved)
            rows.add(matrix, np.nan_to_num(np.floor(moved + 0.5)))
        part: GaussianNoise = plan.measurement["fit"]
        fit = part.draw_boosted(
            "fit",
            rows,
            self.inner.products(),
            radius=self._radius,
            rounds=plan.rounds,
            split=plan.split,
            neighbours=plan.neighbours,
            max_rows_per_unit=plan.max_rows_per_unit,
            progress=progress,
        )
        return self.result(fit, scales)

    def _scaled(self) -> Scales:
        """Return the scales, with that of the target derived from its private median and quartiles.

        Notes
        -----
        - **Guarantee**: pure DP at ``plan.scale_epsilon``. If the quartiles coincide, the scale comes from the bounds.
        """
        plan = self._call.plan
        if self._call.target.levels is not None:
            return self._scales
        part: QuantileSelection = plan.measurement["scale"]
        found = part.draw_tied(self.inner.cells.counts)
        first, median, third = (self.inner.cells.middle(cell) for cell in found)
        if not third > first:
            return self._scales
        return replace(self._scales, target_middle=median, target_scale=FIXED_POINT_ONE / (_RANGES * (third - first)))


def least_share(plan: RegressionPlan) -> Fraction:
    """Return the smallest share of mu squared of any release of the fit; see `dpsql.mechanisms.ada_ssp`."""
    if plan.method != "boosted_ada_ssp":
        return Fraction(1, 3)
    return Fraction(1, plan.rounds + 2) if plan.split == "even" else Fraction(1, 3 * plan.rounds)


def released_numbers(plan: RegressionPlan, n_features: int) -> int:
    """Return the largest number of values with Gaussian noise that a call releases."""
    columns = n_features + 1
    bounds = (COARSE_CELLS + FINE_CELLS) * columns if plan.draws_bounds else 0
    rounds = plan.rounds if plan.method == "boosted_ada_ssp" else 1
    return bounds + columns * (columns + 1) // 2 + 1 + rounds * columns


def noise(plan: RegressionPlan, n_features: int, n_rows: int | None) -> list[Quantity]:
    """Return how noisy a call would be. Columns are in half widths of their bounds."""
    radius = plan.radii(n_features)[1]
    boosted = plan.method == "boosted_ada_ssp"
    releases = plan.rounds + 2 if boosted else 3
    scale = releases**0.5 / float(plan.fit_mu) / FIXED_POINT_ONE**2
    given = (plan.neighbours, radius, plan.max_rows_per_unit)
    products = gram_sensitivity(*given) * scale
    cross = cross_sensitivity(*given) * scale
    out: list[Quantity] = [
        ("mu", float(plan.mu), "Gaussian privacy loss of all Gaussian releases together"),
        ("noise_multiplier", releases**0.5 / float(plan.fit_mu), "noise of each release over its sensitivity"),
        ("products_noise", products, "standard deviation of the noise on a sum of squares of the features"),
        ("cross_noise", cross, "standard deviation of the noise on a sum of feature times target, in each round"),
    ]
    if n_rows is not None:
        out.append(("products_noise_share", products / n_rows, "products_noise as a share of n_rows"))
    return out
