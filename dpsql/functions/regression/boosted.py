"""Boosted AdaSSP: products once, residuals in rounds. DuckDB's rows are kept; an engine reads them in every round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.fold import Collector, Several
from dpsql.contract.json import Json
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.plan import Pass
from dpsql.errors import InternalError
from dpsql.functions.regression.least_squares import Columns, LeastSquares
from dpsql.functions.regression.method import KeptFeatures, draw_standard
from dpsql.functions.regression.stage import Result
from dpsql.kernels.cells import CellCounts, GridCounts
from dpsql.kernels.clipped_rows import ClippedRows
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.kernels.gram import GramAccumulator
from dpsql.mechanisms import ada_ssp
from dpsql.mechanisms.ada_ssp import Boosting, LinearFit, next_step
from dpsql.mechanisms.quantile import QuantileSelection
from dpsql.statistics.counts import GridHistogram
from dpsql.statistics.gram import ColumnMoments
from dpsql.statistics.regression import CELLS, RoundProducts, RowMap, Scales, StoredRows

# The middle of the target, and what boosting clips residuals to: the farther of the outer two from it, times a factor
# that makes it the 5 % and 95 % quantiles of a normal target. Drawn themselves, these are lost among empty cells where
# the target fills few cells of its bounds, as years do.
_TARGET_QUANTILES = (Fraction(1, 10), Fraction(1, 2), Fraction(9, 10))
_REACH = 1.28


class BoostedAdaSsp(LeastSquares):
    """Boosted AdaSSP."""

    @property
    def rounds(self) -> int:
        """Number of rounds of boosting."""
        return self.plan.rounds

    @property
    def least_share(self) -> Fraction:
        """Smallest share of mu squared of any release of the fit."""
        return super().least_share if self.plan.split == "even" else Fraction(1, 3 * self.rounds)

    @cached_property
    def scale_epsilon(self) -> Fraction:
        """Epsilon spent on quantiles of the target; 0 if they are not needed."""
        return self.plan.epsilon * self.plan.scale_share if self.plan.target_levels is None else Fraction(0)

    @property
    def _scales_first(self) -> bool:
        """Whether the scale of the target, or moments of the features, are drawn before the first round."""
        return bool(self.scale_epsilon) or self.standardizes

    @property
    def passes(self) -> tuple[Pass, ...]:
        """A pass each for bounds and the rows; on an engine one for scales and one for every round."""
        fitting = 1 if self.plan.engine is None else self._scales_first + self.rounds
        return (Pass(),) * (self.draws_bounds + fitting)

    @cached_property
    def measurement(self) -> Measurement:
        """The target's scale, and the Gaussian releases."""
        gaussian = super().measurement
        if not self.scale_epsilon:
            return gaussian
        unit = (self.plan.neighbours, self.plan.max_rows_per_unit)
        return measurement_of(QuantileSelection("scale", self.scale_epsilon, _TARGET_QUANTILES, *unit), *gaussian.parts)

    def check_features(self, count: int) -> None:
        """Raise if the target's bounds are too narrow, or if the call would release too many numbers."""
        if self.plan.target_bounds is not None:
            GridCounts(*self.plan.target_bounds, CELLS)
        super().check_features(count)

    def following(self, columns: Columns, fit: LinearFit, mapped: RowMap, scales: Scales) -> Collector | None:
        """Return the collector of the first pass after boosting; None where that was all. Asked on engines alone."""
        return None

    def bounded(self, columns: Columns) -> Collector:
        """Return the collector of the rows, or on an engine of its first pass after the bounds."""
        if self.plan.engine is None:
            return BoostedRows(columns)
        if self._scales_first:
            return BoostingScales(columns)
        return _first_round(columns, columns.mapped, columns.scales)


class BoostedRows(KeptFeatures[StoredRows]):
    """The stored rows, which every round reads."""

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns.kept, StoredRows(columns.mapped, columns.target))
        self._columns = columns

    def draw(self, progress: Callable[[float], None]) -> Result:
        """Draw the target's scale, the moments and the noisy products, and boost."""
        return self._columns.result(*self.fitted(progress))

    def fitted(self, progress: Callable[[float], None], *, last: bool = True) -> tuple[LinearFit, RowMap, Scales]:
        """Draw the linear fit; the stored rows are given up unless it is not the last that reads them."""
        plan, mapped = self._columns.plan, self._columns.mapped
        scales = _draw_scales(self._columns, self.inner.cells)
        if self._columns.standardizes and self._columns.kept:
            moments = ColumnMoments(mapped)
            for quantised in self.inner.quantised():
                moments.add_rows(quantised)
            mapped = self._columns.standardised(draw_standard(plan, moments, self._columns.reach))
        width = 1 + len(self._columns.kept)
        rows, gram = ClippedRows(width), GramAccumulator(width)
        for matrix, target in self.inner.given_up(mapped, scales) if last else self.inner.boosted(mapped, scales):
            rows.add(matrix, target)
            gram.add(matrix)
        fit = ada_ssp.boosted_ada_ssp(
            rows,
            gram.total(),
            radius=mapped.radius,
            mu=self._columns.method.spend_fit(mapped),
            rounds=plan.rounds,
            split=plan.split,
            neighbours=plan.neighbours,
            max_rows_per_unit=plan.max_rows_per_unit,
            progress=progress,
        )
        return fit, mapped, scales


class BoostingScales(KeptFeatures[Several]):
    """Boosting on an engine, before the first round: the target's histogram, and the moments of the features."""

    ending = ("_columns",)

    def __init__(self, columns: Columns) -> None:
        cells = GridHistogram(GridCounts(*columns.target, CELLS))
        super().__init__(columns.kept, Several(cells, ColumnMoments(columns.mapped)))
        self._columns = columns

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Draw the target's scale, and means and deviations."""
        plan, mapped = self._columns.plan, self._columns.mapped
        target, moments = self.inner.folds
        if not isinstance(target, GridHistogram) or not isinstance(moments, ColumnMoments):
            raise TypeError("the folds are of another pass")
        scales = _draw_scales(self._columns, target.cells)
        if self._columns.standardizes and self._columns.kept:
            mapped = self._columns.standardised(draw_standard(plan, moments, self._columns.reach))
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
            method = self._columns.method
            fitted = found, self._mapped, self._scales
            following = method.following(self._columns, *fitted) if isinstance(method, BoostedAdaSsp) else None
            if following is None:
                raise InternalError("I032", "boosting ended before its last round. Report it.")
            return following
        return BoostingRound(self._columns, self._mapped, self._scales, found, run)

    def draw(self, progress: Callable[[float], None]) -> Callable[[], Json]:
        """Draw the last round."""
        found, _ = self._drawn()
        if not isinstance(found, LinearFit):
            raise InternalError("I032", "boosting did not end after its last round. Report it.")
        return self._columns.result(found, self._mapped, self._scales)

    def _drawn(self) -> tuple[NDArray[np.float64] | LinearFit, Boosting]:
        """Draw this round: coefficients or the fit, and the fit that goes on."""
        plan, run = self._columns.plan, self._run
        if run is None:
            run = ada_ssp.boosting(
                self.inner.gram(),
                radius=self._mapped.radius,
                mu=self._columns.method.spend_fit(self._mapped),
                rounds=plan.rounds,
                split=plan.split,
                neighbours=plan.neighbours,
                max_rows_per_unit=plan.max_rows_per_unit,
            )
            next(run)  # the coefficients of the first round are zeros
        return next_step(run, self.inner.products()), run


def _first_round(columns: Columns, mapped: RowMap, scales: Scales) -> Collector:
    return BoostingRound(columns, mapped, scales, np.zeros(1 + len(columns.kept)))


def _draw_scales(columns: Columns, cells: CellCounts) -> Scales:
    """Return the scales, with that of the target derived from its private quantiles.

    Notes
    -----
    - **Guarantee**: pure DP at ``BoostedAdaSsp.scale_epsilon``. If the quantiles coincide, the scale comes from
      the bounds.
    """
    scales = columns.scales
    if columns.call.target.levels is not None:
        return scales
    part: QuantileSelection = columns.plan.measurement["scale"]
    found = part.draw_tied(cells.counts)
    low, median, high = (cells.middle(cell) for cell in found)
    reach = _REACH * max(median - low, high - median)
    if not reach > 0.0:
        return scales
    return replace(scales, target_middle=median, target_scale=FIXED_POINT_ONE / reach)
