"""AdaSSP and boosted AdaSSP as passes over the rows: private bounds where none were given, then exact sums."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.call import Batch, Collector
from dpsql.contract.plan import Quantity
from dpsql.kernels.cells import COARSE_CELLS, FINE_CELLS, GridCounts, MagnitudeCounts
from dpsql.kernels.clipped_rows import ClippedRows, clip_rows
from dpsql.kernels.gram import GramAccumulator
from dpsql.mechanisms.ada_ssp import LinearFit
from dpsql.statistics.fixed_point import FIXED_POINT_ONE, affine_map, affine_maps, quantise
from dpsql.statistics.regression import cross_sensitivity, gram_sensitivity

QUARTILES = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
# Boosting works on residuals of at most so many interquartile ranges of the target.
_RANGES = 2.0
CELLS = 1024
# Chance that private bounds reach out to where no row is.
_FAILURE = Fraction(1, 1000)
# Boosting keeps targets of up to so many residual bounds.
_FARTHEST_TARGET = 256 * FIXED_POINT_ONE

Interval = tuple[float, float]


@dataclass(frozen=True)
class Scales:
    """How features and target become numbers in [-1, 1]: middles, and units of S per unit of a column."""

    middle: NDArray[np.float64]
    scale: NDArray[np.float64]
    target_middle: float
    target_scale: float


def start(call: Any) -> Collector:
    """Return the collector of the first pass."""
    features, target = call.intervals, call.bounded_target
    if call.plan.draws_bounds or features is None or target is None:
        return Magnitudes(call)
    return _fitting(call, features, target)


def _fitting(call: Any, features: list[Interval], target: Interval) -> Collector:
    """Return the collector of the last pass."""
    return (
        StoredRows(call, features, target)
        if call.plan.method == "boosted_ada_ssp"
        else Products(call, features, target)
    )


class Magnitudes(Collector):
    """Rows per magnitude, of every column without public bounds."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._features: list[Interval] | None = call.intervals
        self._target: Interval | None = call.bounded_target
        width = (len(call.features) if self._features is None else 0) + (self._target is None)
        self._cells = MagnitudeCounts(width) if width else None

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Count a batch of rows."""
        if self._cells is None:  # the type of the target told its bounds
            return
        columns = [] if self._features is not None else [features]
        if self._target is None:
            columns.append(target[np.newaxis])
        self._cells.add(np.concatenate(columns))

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Draw the bounds that were not given."""
        plan = self._call.plan
        features, target = self._features, self._target
        if self._cells is not None:
            drawn = plan.measurement["fit"].draw_bounds(
                "bounds",
                self._cells.counts,
                neighbours=plan.neighbours,
                max_rows_per_unit=plan.max_rows_per_unit,
                failure=_FAILURE,
            )
            if target is None:
                target = drawn.pop()
            if features is None:
                features = drawn
        return _fitting(self._call, features or [], target or (-1.0, 1.0))


class _Rows(Collector):
    """What both methods do with a batch: map the features to [-1, 1], and clip rows that are too long."""

    def __init__(self, call: Any, features: list[Interval], target: Interval) -> None:
        self._call = call
        self._bounds = features
        count = len(features)
        middle, scale = affine_maps(features)
        self._scales = Scales(middle, scale, *affine_map(*target))
        self._longest, self._radius = call.plan.radii(count)

    def rows(self, features: NDArray[np.float64], more: int) -> NDArray[np.float64]:
        """Return the intercept and the quantised features, shape (rows, 1 + d + more); the last columns are free."""
        count, rows = features.shape
        matrix = np.empty((rows, 1 + count + more))
        matrix[:, 0] = FIXED_POINT_ONE
        quantised = quantise(np.ascontiguousarray(features.T), self._scales.middle, self._scales.scale)
        if self._longest is not None:
            clip_rows(quantised, self._longest)
        matrix[:, 1 : 1 + count] = quantised
        return matrix

    def result(self, fit: LinearFit, scales: Scales) -> Callable[[], Any]:
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
    """Return the matrix that turns coefficients of mapped columns into those of the columns, the intercept first."""
    matrix = np.diag(np.concatenate(([FIXED_POINT_ONE], scales.scale))) / (scales.target_scale * unit)
    matrix[0, 1:] = -scales.middle * np.diag(matrix)[1:]
    return matrix


class Products(_Rows):
    """AdaSSP: exact products of all columns."""

    def __init__(self, call: Any, features: list[Interval], target: Interval) -> None:
        super().__init__(call, features, target)
        self._sums = GramAccumulator(len(features) + 2)

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add the products of a batch of rows."""
        matrix = self.rows(features, more=1)
        matrix[:, -1] = quantise(target.copy(), self._scales.target_middle, self._scales.target_scale)
        self._sums.add(matrix)

    def draw(self, progress: Callable[[float], None]) -> Callable[[], Any]:
        """Draw the noisy products and solve."""
        plan = self._call.plan
        fit = plan.measurement["fit"].draw_fit(
            "fit",
            self._sums.total(),
            radius=self._radius,
            neighbours=plan.neighbours,
            max_rows_per_unit=plan.max_rows_per_unit,
        )
        return self.result(fit, self._scales)


class StoredRows(_Rows):
    """Boosted AdaSSP: the rows themselves, which every round reads again."""

    def __init__(self, call: Any, features: list[Interval], target: Interval) -> None:
        super().__init__(call, features, target)
        self._sums = GramAccumulator(len(features) + 1)
        self._cells = GridCounts(*target, CELLS)
        self._batches: list[tuple[NDArray[np.float32], NDArray[np.float64]]] = []
        self._lock = threading.Lock()

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Keep a batch of rows; the target as it is, because its scale is not known yet."""
        matrix = self.rows(features, more=0)
        self._sums.add(matrix)
        self._cells.add(target)
        with self._lock:
            self._batches.append((matrix.astype(np.float32), target))  # integers of at most 21 bits: exact

    def draw(self, progress: Callable[[float], None]) -> Callable[[], Any]:
        """Draw the target's scale and the noisy products, and boost."""
        plan = self._call.plan
        scales = self._scaled()
        rows = ClippedRows(len(scales.middle) + 1)
        while self._batches:
            matrix, target = self._batches.pop()
            with np.errstate(over="ignore", invalid="ignore"):
                moved = (target - scales.target_middle) * scales.target_scale
            np.clip(moved, -_FARTHEST_TARGET, _FARTHEST_TARGET, out=moved)
            rows.add(matrix.astype(np.float64), np.nan_to_num(np.floor(moved + 0.5)))
        fit = plan.measurement["fit"].draw_boosted(
            "fit",
            rows,
            self._sums.total(),
            radius=self._radius,
            rounds=plan.rounds,
            split=plan.split,
            neighbours=plan.neighbours,
            max_rows_per_unit=plan.max_rows_per_unit,
            progress=progress,
        )
        return self.result(fit, scales)

    def _scaled(self) -> Scales:
        """Return the scales with the target's by its private median and quartiles.

        Notes
        -----
        - **Guarantee**: pure DP at ``plan.scale_epsilon``. Where the quartiles coincide the bounds give the scale.
        """
        plan = self._call.plan
        if self._call.target.levels is not None:
            return self._scales
        found = plan.measurement["scale"].draw_tied(self._cells.counts)
        first, median, third = (self._cells.middle(cell) for cell in found)
        if not third > first:
            return self._scales
        return replace(self._scales, target_middle=median, target_scale=FIXED_POINT_ONE / (_RANGES * (third - first)))


def least_share(plan: Any) -> Fraction:
    """Return the least share of mu squared that a release of the fit gets; see `dpsql.mechanisms.ada_ssp`."""
    if plan.method != "boosted_ada_ssp":
        return Fraction(1, 3)
    return Fraction(1, plan.rounds + 2) if plan.split == "even" else Fraction(1, 3 * plan.rounds)


def released_numbers(plan: Any, n_features: int) -> int:
    """Return how many numbers with Gaussian noise a call releases, at most."""
    columns = n_features + 1
    bounds = (COARSE_CELLS + FINE_CELLS) * columns if plan.draws_bounds else 0
    rounds = plan.rounds if plan.method == "boosted_ada_ssp" else 1
    return bounds + columns * (columns + 1) // 2 + 1 + rounds * columns


def noise(plan: Any, n_features: int, n_rows: int | None) -> list[Quantity]:
    """Return how noisy a call would be; columns are in half widths of their bounds."""
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
