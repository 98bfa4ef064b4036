"""AdaSSP and boosted AdaSSP: the budget, the columns, private bounds before the fit, and the boosted rounds.

Boosted AdaSSP takes products once, and residuals in rounds. DuckDB keeps its rows; an engine reads them in every
round.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Longs
from dpsql.contract.fold import Collector, Several
from dpsql.contract.gaussian_profile import share_of_mu, usable_mu
from dpsql.contract.json import Json
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.plan import Pass, Quantity, refuse_small_part
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.regression.method import (
    Interval,
    KeptFeatures,
    Magnitudes,
    Method,
    NoModel,
    RegressionCall,
    bounds_needed,
    draw_standard,
    scaling_numbers,
    unclear_terms,
)
from dpsql.functions.regression.stage import Result
from dpsql.kernels.cells import OCTAVE, SUBCELLS, CellCounts, GridCounts, TypedCells, is_few
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, affine_map, affine_maps
from dpsql.kernels.gram import ClippedRows, GramAccumulator
from dpsql.mechanisms import ada_ssp
from dpsql.mechanisms.ada_ssp import Boosting, LinearFit, next_step
from dpsql.mechanisms.gaussian import MOST_COORDINATES, GaussianNoise
from dpsql.mechanisms.prefix_bounds import (
    LEAST_SEEN,
    TARGET_WEIGHT,
    ClippedShare,
    ColumnBounds,
    draw_bounds,
    ends_factor,
    far_bounds,
    spread_within,
    within,
)
from dpsql.mechanisms.quantile import QuantileSelection
from dpsql.statistics.counts import GridHistogram
from dpsql.statistics.regression import (
    CELLS,
    DEVIATIONS,
    STANDARD_ONE,
    ColumnMoments,
    QuantisedMagnitudes,
    RoundProducts,
    RowMap,
    Scales,
    Standard,
    StoredRows,
    cross_sensitivity,
    gram_sensitivity,
    largest_norm,
    standard_radius,
)

# The Gaussian release of ends within public bounds.
ENDS = "ends"
# A column is not clipped if, by released numbers, a clip would move its slope by at most this share of the slope.
LIGHT = 0.125
# Share of the fit's budget for the squares of the target, if sampling counts.
_SQUARES = Fraction(1, 10)


class LeastSquares(Method):
    """Least squares from noisy products of all columns, within bounds that are public or drawn first."""

    @property
    def scale_epsilon(self) -> Fraction:
        """Epsilon spent before the Gaussian releases."""
        return Fraction(0)

    @property
    def rounds(self) -> int:
        """Number of releases of the products of features and target."""
        return 1

    @property
    def releases(self) -> int:
        """Number of Gaussian releases of the fit: the products of features, the least eigenvalue, and the rounds."""
        return self.rounds + 2

    @property
    def least_share(self) -> Fraction:
        """Smallest share of mu squared of any release of the fit; see `dpsql.mechanisms.ada_ssp`."""
        return Fraction(1, self.releases)

    @property
    def fit_parts(self) -> tuple[tuple[str, Fraction], ...]:
        """Share of the fit's mu squared of each release, by its name; the linear fit is 'fit'."""
        return (("fit", Fraction(1)),)

    def spend_fit(self, columns: Columns, mapped: RowMap) -> Fraction:
        """Spend the mu of the linear fit of mapped rows, and return it."""
        part: GaussianNoise = self.measurement["fit"]
        return part.spend("fit")

    @property
    def narrows_features(self) -> bool:
        """Whether ends of features may be drawn within public bounds that turn out to be far too wide."""
        return False

    @property
    def narrows_target(self) -> bool:
        """Whether ends of the target are drawn within its public bounds if there are enough rows."""
        return False

    @property
    def ends_share(self) -> Fraction:
        """Share of mu squared for ends within public bounds; the fit gets the unspent part."""
        return Fraction(0)

    @abstractmethod
    def bounded(self, columns: Columns) -> Collector:
        """Return the collector that follows the bounds."""

    @property
    def unused(self) -> tuple[str, ...]:
        """Names of the arguments for standardizing, if nothing is standardized."""
        return () if self.standardizes else super().unused

    @property
    def draws_bounds(self) -> bool:
        """Whether some bounds are private."""
        return self.plan.lower is None or not self.plan.target_is_bounded

    @property
    def standardizes(self) -> bool:
        """Whether rows are measured in private standard deviations of their features."""
        return self.plan.standardize and self.plan.row_norm is None

    def check_features(self, count: int) -> None:
        """Raise if the call would release too many numbers."""
        if self.numbers(count, count + 1 if self.draws_bounds else 0) > MOST_COORDINATES:
            raise ParameterError(
                "P026",
                f"{count} features in {self.plan.rounds} rounds are more noisy numbers than one call releases. "
                "Give bounds, or take fewer features or rounds.",
            )

    def numbers(self, count: int, bounds: int) -> int:
        """Return the number of noisy numbers of a call with `count` features, and with bounds of `bounds` columns."""
        columns = count + 1
        scaling = scaling_numbers(bounds, count if self.standardizes else 0)
        return scaling + columns * (columns + 1) // 2 + 1 + self.rounds * columns

    @cached_property
    def mu(self) -> Fraction:
        """Gaussian privacy loss of all Gaussian releases together."""
        return usable_mu(self.plan.epsilon - self.scale_epsilon, self.plan.delta)

    @cached_property
    def gaussian_shares(self) -> tuple[tuple[str, Fraction], ...]:
        """The mu of each Gaussian release, by its name. Squares of mu add up."""
        rest = 1 - self.plan.bounds_share if self.draws_bounds else Fraction(1)
        moments = self.plan.moments_share * rest if self.standardizes else Fraction(0)
        bounds, ends = (self.plan.bounds_share - self.ends_share if self.draws_bounds else Fraction(0)), self.ends_share
        remainder = 1 - bounds - ends - moments
        squares = _SQUARES * remainder if self.plan.sampling else Fraction(0)
        fit = remainder - squares
        parts = tuple((name, part * fit) for name, part in self.fit_parts)
        shares = (("bounds", bounds), (ENDS, ends), ("moments", moments), *parts, ("squares", squares))
        return tuple((name, share_of_mu(share, self.mu) if share < 1 else self.mu) for name, share in shares if share)

    @property
    def fit_mu(self) -> Fraction:
        """Mu of the fit if no ends are drawn within public bounds."""
        shares = dict(self.gaussian_shares)
        return share_of_mu(1 + self._unspent(shares), shares["fit"]) if self.ends_share else shares["fit"]

    def _unspent(self, shares: Mapping[str, Fraction]) -> Fraction:
        """Return the mu squared of ends, divided by the sum over all parts of the fit."""
        return shares[ENDS] ** 2 / sum((shares[name] ** 2 for name, _ in self.fit_parts), Fraction(0))

    def check_drawable(self) -> None:
        """Raise if the bounds, the moments or the fit's smallest release would be useless."""
        for name, mu in self.gaussian_shares:
            part = share_of_mu(self.least_share, self.fit_mu) if name == "fit" else mu
            if name != ENDS:
                refuse_small_part(part / self.plan.max_rows_per_unit)

    @cached_property
    def measurement(self) -> Measurement:
        """The Gaussian releases."""
        rest = self.plan.epsilon - self.scale_epsilon
        return measurement_of(GaussianNoise("fit", self.mu, rest, self.plan.delta, self.gaussian_shares))

    def longest(self, n_features: int) -> int | None:
        """Return the norm limit for rows of features if nothing is standardized; None for no limit."""
        norm = self.plan.row_norm
        if norm is not None and norm < math.sqrt(n_features):
            return max(1, math.floor(norm * FIXED_POINT_ONE))
        return None

    def radius(self, n_features: int) -> int:
        """Return the largest norm of a row with its intercept, in units of S, or of `STANDARD_ONE` if standardized."""
        if self.standardizes:
            return standard_radius(n_features)
        return largest_norm(n_features, self.longest(n_features))

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the expected noise of a call. Columns are in half widths of their bounds, or standard deviations."""
        plan = self.plan
        unit = STANDARD_ONE if self.standardizes else FIXED_POINT_ONE
        scale = self.releases**0.5 / float(self.fit_mu)
        limits = (plan.neighbours, self.radius(n_features), plan.max_rows_per_unit)
        products = gram_sensitivity(*limits) * scale / unit**2
        cross = cross_sensitivity(*limits) * scale / (unit * FIXED_POINT_ONE)
        out: list[Quantity] = [
            ("mu", float(self.mu), "Gaussian privacy loss of all Gaussian releases together"),
            ("noise_multiplier", scale, "noise of each release over its sensitivity"),
            ("products_noise", products, "standard deviation of the noise on a sum of squares of the features"),
            ("cross_noise", cross, "standard deviation of the noise on a sum of feature times target, in each round"),
        ]
        if self.draws_bounds:
            bounds_count = n_features if plan.lower is None else 0
            out += bounds_needed(plan, bounds_count + (not plan.target_is_bounded), not plan.target_is_bounded)
        if n_rows is not None:
            out.append(("products_noise_share", products / n_rows, "products_noise as a share of n_rows"))
        return out

    def start(self, call: RegressionCall) -> Collector:
        """Return the collector of the first pass."""
        features, ends = call.given_bounds, call.bounded_target
        target = None if ends is None else ColumnBounds(ends)
        if not (self.draws_bounds or features is None or target is None):
            return self.bounded(Columns(self, call, features, target))

        def following(intervals: Sequence[ColumnBounds], other: ColumnBounds | None) -> Collector:
            of_target = other if target is None else target
            if of_target is None or of_target.interval is None:
                part: GaussianNoise = self.measurement["fit"]
                bounds = measurement_of(part.spent("bounds"))
                return NoModel(call, "the noise hides where the target's values lie", bounds)
            return self.bounded(Columns(self, call, intervals if features is None else features, of_target))

        # Types that determine the bounds need no counts.
        kinds = call.kinds[:-1] if features is None else ()
        return Magnitudes(self.plan, kinds, call.kinds[-1] if target is None else None, following)


class Columns:
    """The columns of a fit: the columns with bounds, their map to [-1, 1], and the map of a model back.

    A column with undetermined bounds is left out. The release names these columns, so they are public.

    Attributes
    ----------
    method : LeastSquares
    plan : FittingPlan
    call : RegressionCall
    standardizes : bool
        Whether rows are measured in private standard deviations.
    positions : list of int
        Positions of the features with bounds.
    reach : list of float
        Largest distance of the bounds of each kept feature from its mean, in deviations. A flag gets units so wide that
        its rows count in full; rows with another whole feature far from its mean count less.
    scales : Scales
    mapped : RowMap
    target : (float, float)
        Bounds of the target: its public bounds, or drawn ends within them.
    public_target : (float, float)
        Bounds of the target before drawn ends.
    narrowable : list of int
        Places, among the kept features, of features whose ends may be drawn within public bounds.
    more : Fraction
        Factor of the mu squared of all parts of the fit: it adds the unspent part of ends within public bounds.
    """

    def __init__(
        self, method: LeastSquares, call: RegressionCall, features: Sequence[ColumnBounds], target: ColumnBounds
    ) -> None:
        if target.interval is None:
            raise InternalError("I032", "a fit began without bounds of the target. Report it.")
        self.method, self.plan, self.standardizes = method, method.plan, method.standardizes
        self.call = call
        self.target = self.public_target = target.interval
        self._bounds, self._of_target = features, target
        self.positions = [position for position, column in enumerate(features) if column.interval is not None]
        intervals = [column.interval for column in features if column.interval is not None]
        flags = [
            features[column].flag or is_few(pair, call.kinds[column])
            for column, pair in zip(self.positions, intervals, strict=True)
        ]
        self.reach = [DEVIATIONS if flag else math.inf for flag in flags]
        self.narrowable = (
            [position for position, flag in enumerate(flags) if not flag] if method.narrows_features else []
        )
        self.more = Fraction(1)
        self._ends = np.array(intervals).reshape(-1, 2).T
        self.scales = Scales(*affine_maps(intervals), *affine_map(*self.target))
        whole_flags = np.array([features[position].is_whole for position in self.positions], dtype=bool)
        self._whole_flags = whole_flags
        self.mapped = RowMap(self.scales, method.longest(len(intervals)), unclipped=whole_flags)

    @property
    def pairs(self) -> list[Interval]:
        """The bounds of each kept feature."""
        return list(zip(*self._ends.tolist(), strict=True))

    def cells(self, position: int | None) -> TypedCells:
        """Return the cells within the public bounds of a kept feature, or of the target for None."""
        if position is None:
            return self.target_cells().within(*self.public_target)
        return TypedCells.of(self.call.kinds[self.positions[position]]).within(*self.pairs[position])

    def magnitudes(self, positions: Sequence[int], *, target: bool) -> QuantisedMagnitudes:
        """Return the empty histogram of the magnitudes of some kept features, and of the target."""
        cells = {position: TypedCells.of(self.call.kinds[self.positions[position]]) for position in positions}
        return QuantisedMagnitudes(self.mapped, cells, self.target_cells() if target else None, self.public_target)

    def target_cells(self, octave: int = OCTAVE) -> TypedCells:
        """Return the cells of the target by its type."""
        return TypedCells.of(self.call.kinds[-1], octave)

    def narrow_target(self, column: ColumnBounds) -> None:
        """Narrow the target's bounds to drawn ends within them, if the ends are as clear as public bounds."""
        ends = within(column, self.target)
        if ends is not None and column.clear:
            self.target, self._of_target = ends, replace(column, interval=ends)

    def narrow(self, position: int, column: ColumnBounds) -> None:
        """Record that drawn ends scale and clip a feature: its verdict and error come from these ends."""
        bounds = list(self._bounds)
        bounds[self.positions[position]] = replace(
            bounds[self.positions[position]], clear=column.clear, seen=column.seen
        )
        self._bounds = bounds

    def standardised(self, standard: Standard) -> RowMap:
        """Return the map to standardised rows; by released numbers alone, it leaves light tails unclipped."""
        mapped = self.mapped.standardised(standard)
        light = [share.slope <= LIGHT for share in self._clipped(mapped, hidden=0.0)]
        return replace(mapped, unclipped=np.array(light, dtype=bool) | self._whole_flags)

    def result(
        self, fit: LinearFit, mapped: RowMap, scales: Scales, steps: Sequence[Mapping[str, Json] | None] = ()
    ) -> Callable[[], Json]:
        """Return the released model in the units of the columns, from the fit of mapped rows.

        `steps` has the steps of an additive stage for each kept feature, in the units of the columns.
        """
        unit = self.call.target_unit
        matrix = _unmapping(mapped, scales, unit)
        coefficients = matrix @ fit.coefficients
        coefficients[0] += scales.target_middle / unit
        errors = None
        if fit.covariance is not None:
            sizes = np.maximum(np.abs(matrix).max(axis=1), np.finfo(np.float64).tiny)  # squares overflow
            scaled = matrix / sizes[:, None]
            errors = sizes * np.sqrt(np.clip(np.einsum("ij,jk,ik->i", scaled, fit.covariance, scaled), 0.0, None))
            errors = self._with_clips(errors, coefficients[1:], mapped)
        positions = [0, *(1 + position for position in self.positions)]
        bounds: list[Interval | None] = [None] * len(self._bounds)
        for position, pair in zip(self.positions, mapped.counted(*self._ends), strict=True):
            bounds[position] = pair
        spread_coefficients = _spread(coefficients, positions, 1 + len(bounds))
        spread_errors = None if errors is None else _spread(errors, positions, 1 + len(bounds))
        clips = self.call.clips(self.target)
        unclear = unclear_terms(
            self.call.features, spread_coefficients[1:] * unit, self._bounds, bounds, self._of_target
        )
        if any(steps):
            shapes: list[Mapping[str, Json] | None] = [None] * len(bounds)
            for position, step in zip(self.positions, steps, strict=True):
                shapes[position] = step
            clips = {**clips, "steps": shapes}
        return lambda: self.call.result(spread_coefficients, spread_errors, bounds, clips=clips, unclear=unclear)

    def _with_clips(
        self, errors: NDArray[np.float64], slopes: NDArray[np.float64], mapped: RowMap
    ) -> NDArray[np.float64]:
        """Return standard errors, intercept first, that include the effect of clipping on a linear truth.

        A column's slope is off by a share of itself; for the other columns, the part cut off is noise of the rows.
        """
        shares = [
            share if share.slope else replace(share, slope=unseen)
            for share, unseen in zip(self._clipped(mapped), self._unseen(mapped), strict=True)
        ]
        if mapped.standard is None or mapped.standard.weight is None or not any(share.slope for share in shares):
            return errors
        moved = np.square(slopes * np.array([share.slope for share in shares]))
        level = np.square(slopes * np.array([share.level for share in shares])).sum()
        cut = np.square(slopes) * np.array([share.spread for share in shares])
        deviations = mapped.standard.deviation * FIXED_POINT_ONE / mapped.scales.scale
        rows = np.maximum(mapped.standard.weight, 1.0) * np.square(deviations)
        moves = np.concatenate(([level], moved + (cut.sum() - cut) / rows))
        combined: NDArray[np.float64] = np.sqrt(np.square(errors) + moves)
        return combined

    def _unseen(self, mapped: RowMap) -> list[float]:
        """Return the largest share by which rows beyond the bounds of an unclipped column may move its slope.

        A row far out weighs as much as a row at `DEVIATIONS`. Noise hides such rows up to a standard deviation of a
        prefix sum. They move the slope by no more than a clip of the tail within the bounds would.
        """
        tails = self._clipped(replace(mapped, unclipped=self._whole_flags), hidden=0.0)
        columns = [self._bounds[feature].seen for feature in self.positions]
        return [
            0.0 if seen is None else min(tail.slope, DEVIATIONS**2 * seen.unit / max(1.0, float(seen.rows.sum())))
            for seen, tail in zip(columns, tails, strict=True)
        ]

    def _clipped(self, mapped: RowMap, **more: float) -> list[ClippedShare]:
        """Return the effect of a map's clips on the coefficients of each kept column."""
        columns = [self._bounds[feature].seen for feature in self.positions]
        pairs = zip(columns, mapped.counted(*self._ends), strict=True)
        return [ClippedShare() if seen is None else seen.clipped(*ends, **more) for seen, ends in pairs]


def _spread(values: NDArray[np.float64], positions: list[int], width: int) -> NDArray[np.float64]:
    """Return zeros with values at some positions."""
    vector = np.zeros(width)
    vector[positions] = values
    return vector


def _unmapping(mapped: RowMap, scales: Scales, unit: float) -> NDArray[np.float64]:
    """Return the matrix from coefficients of mapped columns to coefficients of the columns, intercept first."""
    middle, slopes = mapped.columns
    matrix = np.diag(np.concatenate(([float(mapped.denominator)], slopes))) / (scales.target_scale * unit)
    matrix[0, 1:] = -middle * np.diag(matrix)[1:]
    return matrix


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
