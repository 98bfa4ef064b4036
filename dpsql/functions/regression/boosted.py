"""Boosted AdaSSP: products once, residuals in rounds. DuckDB keeps its rows; an engine reads them in every round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Longs
from dpsql.contract.fold import Collector, Several
from dpsql.contract.json import Json
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.plan import Pass
from dpsql.errors import InternalError
from dpsql.functions.regression.least_squares import ENDS, Columns, LeastSquares
from dpsql.functions.regression.method import KeptFeatures, draw_standard
from dpsql.functions.regression.stage import Result
from dpsql.kernels.cells import SUBCELLS, CellCounts, GridCounts
from dpsql.kernels.clipped_rows import ClippedRows
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.kernels.gram import GramAccumulator
from dpsql.mechanisms import ada_ssp
from dpsql.mechanisms.ada_ssp import Boosting, LinearFit, next_step
from dpsql.mechanisms.gaussian import MOST_COORDINATES, GaussianNoise
from dpsql.mechanisms.prefix_bounds import (
    LEAST_SEEN,
    TARGET_WEIGHT,
    draw_bounds,
    ends_factor,
    far_bounds,
    spread_within,
)
from dpsql.mechanisms.quantile import QuantileSelection
from dpsql.statistics.counts import GridHistogram
from dpsql.statistics.gram import ColumnMoments
from dpsql.statistics.regression import CELLS, QuantisedMagnitudes, RoundProducts, RowMap, Scales, Standard, StoredRows

# Quantiles for the middle of the target, and for the clip of residuals: the larger distance of the outer two from the
# middle, times a factor that reaches the 5 % and 95 % quantiles of a normal target. Direct draws of those are lost
# among empty cells if the target fills few cells of its bounds, as years do.
_TARGET_QUANTILES = (Fraction(1, 10), Fraction(1, 2), Fraction(9, 10))
_REACH = 1.28
# Ends of features are drawn from this number of rows, in deviations of a prefix sum: with fewer rows, slopes are noise,
# and units that are too wide predict better.
_LEAST_ROWS = 20.0
# Drawn ends of the target that are this many times closer than public ones hold few even cells of the public bounds.
_NARROW = 8.0


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
        """One pass for bounds and one for the rows; an engine reads the rows once for scales and once per round."""
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
        """Return the collector of the first pass after boosting; None if there is none. Only engines call this."""
        return None

    def bounded(self, columns: Columns) -> Collector:
        """Return the collector of the rows, or on an engine of its first pass after the bounds."""
        if self.plan.engine is None:
            return BoostedRows(columns)
        if self._scales_first:
            return BoostingScales(columns)
        return _first_round(columns, columns.mapped, columns.scales)


class BoostedRows(KeptFeatures[StoredRows]):
    """The stored rows; every round reads them."""

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns.positions, StoredRows(columns.mapped, columns.target))
        self._columns = columns

    def draw(self, progress: Callable[[float], None]) -> Result:
        """Draw the target's scale, the moments and the noisy products, and boost."""
        return self._columns.result(*self.fitted(progress))

    def fitted(self, progress: Callable[[float], None], *, last: bool = True) -> tuple[LinearFit, RowMap, Scales]:
        """Draw the linear fit; free the stored rows if it is the `last` to read them."""
        plan, mapped = self._columns.plan, self._columns.mapped
        if self._columns.standardizes and self._columns.positions:
            moments = ColumnMoments(mapped)
            for quantised in self.inner.quantised():
                moments.add_rows(quantised)
            standard = draw_standard(plan, moments, self._columns.reach)
            mapped = _narrowed(self._columns, standard, self._magnitudes)
        scales = _draw_scales(self._columns, self.inner.cells, self._magnitudes)
        width = 1 + len(self._columns.positions)
        rows, gram = ClippedRows(width), GramAccumulator(width)
        for matrix, target in self.inner.given_up(mapped, scales) if last else self.inner.boosted(mapped, scales):
            rows.add(matrix, target)
            gram.add(matrix)
        fit = ada_ssp.boosted_ada_ssp(
            rows,
            gram.total(),
            radius=mapped.radius,
            mu=self._columns.method.spend_fit(self._columns, mapped),
            rounds=plan.rounds,
            split=plan.split,
            neighbours=plan.neighbours,
            max_rows_per_unit=plan.max_rows_per_unit,
            progress=progress,
        )
        return fit, mapped, scales

    def _magnitudes(self, positions: Sequence[int], target: bool) -> list[Longs]:
        """Return the rows per magnitude of some features, and of the target."""
        return list(self.inner.magnitudes(self._columns.magnitudes(positions, target=target)).cells.counts)


class BoostingScales(KeptFeatures[Several]):
    """Boosting on an engine, before the first round: the statistics for the scales.

    These are the target's histogram and the moments of the features; and magnitudes, if ends may be drawn within
    public bounds.
    """

    ending = ("_columns",)

    def __init__(self, columns: Columns) -> None:
        method, folds = (
            columns.method,
            [GridHistogram(GridCounts(*columns.target, CELLS)), ColumnMoments(columns.mapped)],
        )
        if method.narrows_features or method.narrows_target:
            folds.append(columns.magnitudes(columns.narrowable, target=method.narrows_target))
        super().__init__(columns.positions, Several(*folds))
        self._columns = columns

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Draw the target's scale, and means and deviations."""
        plan, mapped = self._columns.plan, self._columns.mapped
        target, moments, *_ = self.inner.folds
        if not isinstance(target, GridHistogram) or not isinstance(moments, ColumnMoments):
            raise TypeError("the folds are of another pass")
        if self._columns.standardizes and self._columns.positions:
            standard = draw_standard(plan, moments, self._columns.reach)
            mapped = _narrowed(self._columns, standard, self._magnitudes)
        scales = _draw_scales(self._columns, target.cells, self._magnitudes)
        return _first_round(self._columns, mapped, scales)

    def _magnitudes(self, positions: Sequence[int], target: bool) -> list[Longs]:
        """Return the rows per magnitude of some features, and of the target."""
        counted = self.inner.folds[-1]
        if not isinstance(counted, QuantisedMagnitudes):
            raise TypeError("the folds are of another pass")
        numbers = [self._columns.narrowable.index(position) for position in positions]
        return [counted.cells.counts[number] for number in (*numbers, *[-1] * target)]


class BoostingRound(KeptFeatures[RoundProducts]):
    """A round of boosting on an engine: one pass over the rows, with the coefficients of the previous round.

    Parameters
    ----------
    columns : Columns
    mapped : RowMap
    scales : Scales
        Scales of the target.
    coefficients : ndarray of float64
        Coefficients that define the residuals.
    run : Boosting, optional
        The fit, which requests products round by round; it starts with the Gram matrix of the first round.
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
        super().__init__(columns.positions, RoundProducts(mapped, scales, coefficients, first=run is None))
        self._columns, self._mapped, self._scales, self._run = columns, mapped, scales, run

    def turn(self, progress: Callable[[float], None]) -> Collector:
        """Draw this round, and begin the next."""
        model, run = self._draw_round()
        if isinstance(model, LinearFit):
            method = self._columns.method
            fitted = model, self._mapped, self._scales
            following = method.following(self._columns, *fitted) if isinstance(method, BoostedAdaSsp) else None
            if following is None:
                raise InternalError("I032", "boosting ended before its last round. Report it.")
            return following
        return BoostingRound(self._columns, self._mapped, self._scales, model, run)

    def draw(self, progress: Callable[[float], None]) -> Callable[[], Json]:
        """Draw the last round."""
        model, _ = self._draw_round()
        if not isinstance(model, LinearFit):
            raise InternalError("I032", "boosting did not end after its last round. Report it.")
        return self._columns.result(model, self._mapped, self._scales)

    def _draw_round(self) -> tuple[NDArray[np.float64] | LinearFit, Boosting]:
        """Draw this round; return coefficients or the finished fit, and the run."""
        plan, run = self._columns.plan, self._run
        if run is None:
            run = ada_ssp.boosting(
                self.inner.gram(),
                radius=self._mapped.radius,
                mu=self._columns.method.spend_fit(self._columns, self._mapped),
                rounds=plan.rounds,
                split=plan.split,
                neighbours=plan.neighbours,
                max_rows_per_unit=plan.max_rows_per_unit,
            )
            next(run)  # the coefficients of the first round are zeros
        return next_step(run, self.inner.products()), run


def _first_round(columns: Columns, mapped: RowMap, scales: Scales) -> Collector:
    return BoostingRound(columns, mapped, scales, np.zeros(1 + len(columns.positions)))


Counted = Callable[[Sequence[int], bool], list[Longs]]


def _narrowed(columns: Columns, standard: Standard, magnitudes: Counted) -> RowMap:
    """Return the map to standardised rows; draw ends of columns whose public bounds are far too wide.

    Ends of the target are drawn if there are enough rows: moments say nothing about the target.

    Notes
    -----
    - **Guarantee**: Gaussian DP at the mu of `LeastSquares.ends_share` or less. The unspent part of its square goes to
      the fit, which is released later, whatever was drawn: the sum of squares of mu is the same.
    - **Sensitivity**: `dpsql.mechanisms.prefix_bounds`. The released moments determine which ends are drawn, and
      their noise.
    """
    plan, method, mapped = columns.plan, columns.method, columns.mapped
    unit = plan.neighbours, plan.max_rows_per_unit
    if not method.ends_share:
        return columns.standardised(standard)
    part: GaussianNoise = plan.measurement["fit"]
    most, fit = part.mu_of(ENDS) ** 2, sum((part.mu_of(name) ** 2 for name, _ in method.fit_parts), Fraction(0))
    far = far_bounds(standard, columns.narrowable)
    if method.numbers(len(columns.positions), len(far) + 1) > MOST_COORDINATES:
        far = []
    for positions in (far, []) if method.narrows_target and far else (far,):
        columns_counted: list[int | None] = [*positions, *([None] if method.narrows_target else [])]
        cells = [columns.cells(position) for position in columns_counted]
        count = len(columns.narrowable) + (TARGET_WEIGHT if method.narrows_target else 0)
        losses = [most / count * (1 if position is not None else TARGET_WEIGHT) for position in columns_counted]
        least = _LEAST_ROWS if positions else LEAST_SEEN
        factor = ends_factor(standard.rows or 0.0, losses, cells, *unit, least=least)
        if factor:
            break
    columns.more = 1 + (most - factor * sum(losses, Fraction(0))) / fit
    if not factor:
        return columns.standardised(standard)
    fine = magnitudes(positions, method.narrows_target)
    counts = [column.counts(rows) for column, rows in zip(cells, fine, strict=True)]
    ends = draw_bounds(
        part,
        ENDS,
        counts,
        cells,
        losses=[factor * loss for loss in losses],
        neighbours=plan.neighbours,
        max_rows_per_unit=plan.max_rows_per_unit,
    )
    if method.narrows_target:
        columns.narrow_target(ends.pop())
    by_place = dict(zip(positions, ends, strict=True))
    standard, clipped = spread_within(standard, columns.pairs, by_place)
    for position in clipped:
        columns.narrow(position, by_place[position])
    unclipped = np.array([feature not in clipped for feature in range(len(standard.mean))])
    unclipped &= True if mapped.unclipped is None else mapped.unclipped
    return replace(mapped, unclipped=unclipped).standardised(standard)


def _draw_scales(columns: Columns, cells: CellCounts, magnitudes: Counted) -> Scales:
    """Return the scales; the target's scale comes from its private quantiles.

    If the ends of the target were drawn, and hold few of the even cells between its public bounds, the quantiles are
    drawn among the cells of its type.

    Notes
    -----
    - **Guarantee**: pure DP at ``BoostedAdaSsp.scale_epsilon``. If the quantiles coincide, the scale comes from
      the bounds.
    """
    scales = columns.scales
    if columns.call.target.levels is not None:
        return scales
    part: QuantileSelection = columns.plan.measurement["scale"]
    width, ends = columns.public_target[1] / 2 - columns.public_target[0] / 2, columns.target
    if (ends[1] / 2 - ends[0] / 2) * _NARROW < width:
        typed = columns.target_cells(SUBCELLS).within(*ends)
        quantiles = part.draw_tied(typed.counts(magnitudes([], True)[0]))
        low, median, high = (float(typed.low[cell] / 2 + typed.high[cell] / 2) for cell in quantiles)
    else:
        # Rows beyond drawn ends count in the outermost cells within them.
        middles = np.array([cells.middle(cell) for cell in range(cells.cells)])
        inner = cells.of(np.clip(middles, *ends))
        quantiles = part.draw_tied(
            np.bincount(inner, cells.counts, minlength=cells.cells)[inner[0] : inner[-1] + 1].astype(np.int64)
        )
        low, median, high = (cells.middle(cell + int(inner[0])) for cell in quantiles)
    reach = _REACH * max(median - low, high - median)
    if not reach > 0.0:
        return scales
    return replace(scales, target_middle=median, target_scale=FIXED_POINT_ONE / reach)
