"""AdaSSP and boosted AdaSSP as passes over the rows: private bounds if none were given, moments, then exact sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.fold import Collector, Ignoring, Several, Waiting
from dpsql.contract.json import Json
from dpsql.contract.plan import Quantity
from dpsql.errors import InternalError
from dpsql.functions.feature_scaling import (
    Interval,
    KeptFeatures,
    Magnitudes,
    Moments,
    bounds_needed,
    draw_standard,
    scaling_numbers,
)
from dpsql.kernels.cells import GridCounts
from dpsql.kernels.clipped_rows import ClippedRows
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, affine_map, affine_maps
from dpsql.kernels.gram import GramAccumulator
from dpsql.mechanisms.ada_ssp import Boosting, LinearFit, next_step
from dpsql.mechanisms.choices import QuantileSelection
from dpsql.mechanisms.parts import GaussianNoise
from dpsql.statistics.column_moments import ColumnMoments
from dpsql.statistics.counts import GridHistogram
from dpsql.statistics.regression import (
    CELLS,
    STANDARD_ONE,
    RoundProducts,
    RowMap,
    RowProducts,
    Scales,
    StoredRows,
    cross_sensitivity,
    gram_sensitivity,
)

if TYPE_CHECKING:
    from dpsql.functions.linear_regression import RegressionCall, RegressionPlan

# The middle of the target, and what boosting clips residuals to: the farther of the outer two from it, times a factor
# that makes it the 5 % and 95 % quantiles of a normal target. Drawn themselves, these are lost among empty cells where
# the target fills few cells of its bounds, as years do.
TARGET_QUANTILES = (Fraction(1, 10), Fraction(1, 2), Fraction(9, 10))
_REACH = 1.28


def start(call: RegressionCall) -> Collector:
    """Return the collector of the first pass."""
    features, target = call.intervals, call.bounded_target
    if not (call.plan.draws_bounds or features is None or target is None):
        return _bounded(call, features, target)

    def following(drawn: Sequence[Interval | None], other: Interval | None) -> Collector:
        return _bounded(call, drawn if features is None else features, other if target is None else target)

    # Zero columns if the type of the target determines its bounds.
    return Magnitudes(call.plan, len(call.features) if features is None else 0, target is None, following)


def _bounded(call: RegressionCall, features: Sequence[Interval | None], target: Interval | None) -> Collector:
    """Return the collector that follows once the bounds are known; None stands for undetermined ones."""
    if target is None:
        return Undetermined(call)
    columns = Columns(call, features, target)
    if call.plan.method == "boosted_ada_ssp":
        if call.plan.engine is None:
            return Boosted(columns)
        return (
            BoostingScales(columns) if call.plan.scales_first else _first_round(columns, columns.mapped, columns.scales)
        )
    if not call.plan.standardizes:
        return Products(columns, columns.mapped)
    if not columns.kept:
        return Waiting(Products(columns, columns.mapped))
    return Moments(
        call.plan, columns.kept, columns.mapped, lambda found: Products(columns, columns.mapped.standardised(found))
    )


class Undetermined(Ignoring):
    """The rest of a call whose target has no bounds: there is no model, and all is charged."""

    def __init__(self, call: RegressionCall) -> None:
        self._call = call

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Return itself."""
        return self

    def draw(self, progress: Callable[[float], None]) -> Callable[[], Json]:
        """Return a result without a model."""
        result = self._call.result(None, reason="the noise hides where the target's values lie")
        return lambda: result


class Columns:
    """The columns of a fit: those with bounds, how they are mapped to [-1, 1], and how a model is mapped back.

    A column whose bounds are undetermined is left out. Which these are was released, so they are public.

    Attributes
    ----------
    call : RegressionCall
    kept : list of int
        Positions of the features with bounds.
    scales : Scales
    mapped : RowMap
    target : (float, float)
    """

    def __init__(self, call: RegressionCall, features: Sequence[Interval | None], target: Interval) -> None:
        self.call = call
        self.target = target
        self._bounds = features
        found = [(place, pair) for place, pair in enumerate(features) if pair is not None]
        self.kept = [place for place, _ in found]
        self._ends = np.array([pair for _, pair in found]).reshape(-1, 2).T
        self.scales = Scales(*affine_maps([pair for _, pair in found]), *affine_map(*target))
        self.mapped = RowMap(self.scales, call.plan.longest(len(found)))

    def result(self, fit: LinearFit, mapped: RowMap, scales: Scales) -> Callable[[], Json]:
        """Return the released model in the units of the columns, from the fit of rows that were mapped so."""
        unit = self.call.target_unit
        matrix = _unmapping(mapped, scales, unit)
        coefficients = matrix @ fit.coefficients
        coefficients[0] += scales.target_middle / unit
        errors = None
        if fit.covariance is not None:
            sizes = np.maximum(np.abs(matrix).max(axis=1), np.finfo(np.float64).tiny)  # squares overflow
            scaled = matrix / sizes[:, None]
            errors = sizes * np.sqrt(np.clip(np.einsum("ij,jk,ik->i", scaled, fit.covariance, scaled), 0.0, None))
        places = [0, *(1 + place for place in self.kept)]
        bounds: list[Interval | None] = list(self._bounds)
        for place, pair in zip(self.kept, mapped.counted(*self._ends), strict=True):
            bounds[place] = pair
        width = 1 + len(bounds)
        return lambda: self.call.result(_spread(coefficients, places, width), _spread(errors, places, width), bounds)


def _spread(values: NDArray[np.float64] | None, places: list[int], width: int) -> NDArray[np.float64] | None:
    """Return values at their places among zeros."""
    if values is None:
        return None
    found = np.zeros(width)
    found[places] = values
    return found


def _unmapping(mapped: RowMap, scales: Scales, unit: float) -> NDArray[np.float64]:
    """Return the matrix that maps coefficients of mapped columns to those of the columns, intercept first."""
    middle, slopes = mapped.columns
    matrix = np.diag(np.concatenate(([float(mapped.one)], slopes))) / (scales.target_scale * unit)
    matrix[0, 1:] = -middle * np.diag(matrix)[1:]
    return matrix


class Products(KeptFeatures[RowProducts]):
    """AdaSSP: exact products of all columns."""

    def __init__(self, columns: Columns, mapped: RowMap) -> None:
        super().__init__(columns.kept, RowProducts(mapped, columns.target))
        self._columns, self._mapped = columns, mapped

    def draw(self, progress: Callable[[float], None]) -> Callable[[], Json]:
        """Draw the noisy products and solve."""
        plan = self._columns.call.plan
        part: GaussianNoise = plan.measurement["fit"]
        fit = part.draw_fit(
            "fit",
            self.inner.products(),
            radius=self._mapped.radius,
            neighbours=plan.neighbours,
            max_rows_per_unit=plan.max_rows_per_unit,
        )
        return self._columns.result(fit, self._mapped, self._columns.scales)


class Boosted(KeptFeatures[StoredRows]):
    """Boosted AdaSSP: the stored rows, which every round reads."""

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns.kept, StoredRows(columns.mapped, columns.target))
        self._columns = columns

    def draw(self, progress: Callable[[float], None]) -> Callable[[], Json]:
        """Draw the target's scale, the moments and the noisy products, and boost."""
        plan, mapped = self._columns.call.plan, self._columns.mapped
        scales = draw_scales(self._columns, self.inner.cells)
        if plan.standardizes and self._columns.kept:
            moments = ColumnMoments(mapped)
            for quantised in self.inner.quantised():
                moments.add_rows(quantised)
            mapped = mapped.standardised(draw_standard(plan, moments))
        width = 1 + len(self._columns.kept)
        rows, gram = ClippedRows(width), GramAccumulator(width)
        for matrix, target in self.inner.given_up(mapped, scales):
            rows.add(matrix, target)
            gram.add(matrix)
        part: GaussianNoise = plan.measurement["fit"]
        fit = part.draw_boosted(
            "fit",
            rows,
            gram.total(),
            radius=mapped.radius,
            rounds=plan.rounds,
            split=plan.split,
            neighbours=plan.neighbours,
            max_rows_per_unit=plan.max_rows_per_unit,
            progress=progress,
        )
        return self._columns.result(fit, mapped, scales)


class BoostingScales(KeptFeatures[Several]):
    """Boosting on an engine, before the first round: the target's histogram, and the moments of the features."""

    ending = ("_columns",)

    def __init__(self, columns: Columns) -> None:
        cells = GridHistogram(GridCounts(*columns.target, CELLS))
        super().__init__(columns.kept, Several(cells, ColumnMoments(columns.mapped)))
        self._columns = columns

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Draw the target's scale, and means and deviations."""
        plan, mapped = self._columns.call.plan, self._columns.mapped
        target, moments = self.inner.folds
        if not isinstance(target, GridHistogram) or not isinstance(moments, ColumnMoments):
            raise TypeError("the folds are of another pass")
        scales = draw_scales(self._columns, target.cells)
        if plan.standardizes and self._columns.kept:
            mapped = mapped.standardised(draw_standard(plan, moments))
        return _first_round(self._columns, mapped, scales)


class BoostingRound(KeptFeatures[RoundProducts]):
    """A round of boosting on an engine: one pass over the rows, with the coefficients that the round before released.

    Parameters
    ----------
    columns : Columns
    mapped : RowMap
    scales : Scales
        Of the target.
    coefficients : ndarray of float64
        Those that residuals are taken of.
    run : Boosting, optional
        The fit, which asks for products round by round; it starts with the Gram matrix that the first round computes.
    """

    ending = ("_columns", "_mapped", "_scales", "_run")

    def __init__(
        self,
        columns: Columns,
        mapped: RowMap,
        scales: Scales,
        coefficients: NDArray[np.float64],
        run: Boosting | None = None,
    ) -> None:
        super().__init__(columns.kept, RoundProducts(mapped, scales, coefficients, first=run is None))
        self._columns, self._mapped, self._scales, self._run = columns, mapped, scales, run

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Draw this round, and begin the next."""
        found, run = self._drawn()
        if isinstance(found, LinearFit):
            raise InternalError("I032", "boosting ended before its last round. Report it.")
        return BoostingRound(self._columns, self._mapped, self._scales, found, run)

    def draw(self, progress: Callable[[float], None]) -> Callable[[], Json]:
        """Draw the last round."""
        found, _ = self._drawn()
        if not isinstance(found, LinearFit):
            raise InternalError("I032", "boosting did not end after its last round. Report it.")
        return self._columns.result(found, self._mapped, self._scales)

    def _drawn(self) -> tuple[NDArray[np.float64] | LinearFit, Boosting]:
        """Draw this round: coefficients or the fit, and the fit that goes on."""
        plan, run = self._columns.call.plan, self._run
        if run is None:
            part: GaussianNoise = plan.measurement["fit"]
            run = part.start_boosting(
                "fit",
                self.inner.gram(),
                radius=self._mapped.radius,
                rounds=plan.rounds,
                split=plan.split,
                neighbours=plan.neighbours,
                max_rows_per_unit=plan.max_rows_per_unit,
            )
            next(run)  # the coefficients of the first round are zeros
        return next_step(run, self.inner.products()), run


def _first_round(columns: Columns, mapped: RowMap, scales: Scales) -> Collector:
    return BoostingRound(columns, mapped, scales, np.zeros(1 + len(columns.kept)))


def draw_scales(columns: Columns, cells: GridCounts) -> Scales:
    """Return the scales, with that of the target derived from its private quantiles.

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.scale_epsilon``. If the quantiles coincide, the scale comes from the bounds.
    """
    plan, scales = columns.call.plan, columns.scales
    if columns.call.target.levels is not None:
        return scales
    part: QuantileSelection = plan.measurement["scale"]
    found = part.draw_tied(cells.counts)
    low, median, high = (cells.middle(cell) for cell in found)
    reach = _REACH * max(median - low, high - median)
    if not reach > 0.0:
        return scales
    return replace(scales, target_middle=median, target_scale=FIXED_POINT_ONE / reach)


def least_share(plan: RegressionPlan) -> Fraction:
    """Return the smallest share of mu squared of any release of the fit; see `dpsql.mechanisms.ada_ssp`."""
    if plan.method != "boosted_ada_ssp":
        return Fraction(1, 3)
    return Fraction(1, plan.rounds + 2) if plan.split == "even" else Fraction(1, 3 * plan.rounds)


def released_numbers(plan: RegressionPlan, n_features: int) -> int:
    """Return the largest number of values with Gaussian noise that a call releases."""
    columns = n_features + 1
    scaling = scaling_numbers(columns if plan.draws_bounds else 0, n_features if plan.standardizes else 0)
    rounds = plan.rounds if plan.method == "boosted_ada_ssp" else 1
    return scaling + columns * (columns + 1) // 2 + 1 + rounds * columns


def noise(plan: RegressionPlan, n_features: int, n_rows: int | None) -> list[Quantity]:
    """Return how noisy a call would be. Columns are in half widths of their bounds, or in standard deviations."""
    one = STANDARD_ONE if plan.standardizes else FIXED_POINT_ONE
    radius = plan.radius(n_features)
    boosted = plan.method == "boosted_ada_ssp"
    releases = plan.rounds + 2 if boosted else 3
    scale = releases**0.5 / float(plan.fit_mu)
    given = (plan.neighbours, radius, plan.max_rows_per_unit)
    products = gram_sensitivity(*given) * scale / one**2
    cross = cross_sensitivity(*given) * scale / (one * FIXED_POINT_ONE)
    out: list[Quantity] = [
        ("mu", float(plan.mu), "Gaussian privacy loss of all Gaussian releases together"),
        ("noise_multiplier", scale, "noise of each release over its sensitivity"),
        ("products_noise", products, "standard deviation of the noise on a sum of squares of the features"),
        ("cross_noise", cross, "standard deviation of the noise on a sum of feature times target, in each round"),
    ]
    if plan.draws_bounds:
        drawn = n_features if plan.lower is None else 0
        out += bounds_needed(plan, drawn + (not plan.target_is_bounded), not plan.target_is_bounded)
    if n_rows is not None:
        out.append(("products_noise_share", products / n_rows, "products_noise as a share of n_rows"))
    return out
