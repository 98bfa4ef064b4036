"""The common part of AdaSSP and boosted AdaSSP: the budget, the columns, and private bounds before the fit."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.fold import Collector
from dpsql.contract.gaussian_profile import share_of_mu, usable_mu
from dpsql.contract.json import Json
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.plan import Quantity, refuse_small_part
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.regression.method import (
    Interval,
    Magnitudes,
    Method,
    NoModel,
    RegressionCall,
    bounds_needed,
    scaling_numbers,
    unclear_terms,
)
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, affine_map, affine_maps
from dpsql.kernels.typed_cells import OCTAVE, TypedCells, is_few
from dpsql.mechanisms.ada_ssp import LinearFit
from dpsql.mechanisms.gaussian import MOST_COORDINATES, GaussianNoise
from dpsql.mechanisms.prefix_bounds import ClippedShare, ColumnBounds, within
from dpsql.statistics.regression import (
    DEVIATIONS,
    STANDARD_ONE,
    QuantisedMagnitudes,
    RowMap,
    Scales,
    Standard,
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
