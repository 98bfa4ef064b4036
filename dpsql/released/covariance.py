"""Covariances and correlations from noisy moments of features: post-processing, so they cost no privacy.

A release stores the noisy moments of `dpsql.statistics.feature_moments`: the number of rows n, and for the features,
scaled to z in [-1, 1], sums s, ``Q_i = sum(z_i**2 - 1/2)`` and ``P_ij = sum z_i z_j``. All have independent noise of
one law. With ``P_ii = Q_i + n / 2`` and the noisy mean ``m = s / n``, the noisy covariance of z is ``C = P / n - m
m'``.

*Values.* Noise can make C indefinite, so its negative eigenvalues become 0. The result is the nearest positive
semidefinite matrix, which is never farther from the true matrix. A variance is then at most ``1 - m_i**2``, as for any
values in [-1, 1].

*Standard errors* follow from the derivatives of the formula at the released values.

*Intervals.* Each of the six numbers of a pair (n, two sums, two squares, one product) is within `reach` of its true
value with a chance of ``1 - 0.05 / 6`` at least, so all six are with a chance of 95 %. An interval is the range of the
formula over this box: at the corners of squares and products, in which the formula is monotone, and on a grid of rows
and sums. The interval is conservative, and often [-1, 1] for correlations. It is about these rows, clipped to the
bounds, and about one pair at a time; it does not cover sampling.

**Moments.** Counts, sums, means, variances and standard deviations from noisy blocks, with intervals: post-processing
alone.

An interval covers the aggregate *of these rows*, after clipping and row limits, with the given confidence: it covers
noise and not sampling, for each group by itself. If groups were released because their noisy count was large, it covers
less often. A count may be below 0, and a sum beyond its bounds, so that totals over groups are not biased; the interval
of a count is not below 0, and a mean and a variance are never out of bounds. So their standard errors are at most the
largest standard deviation of numbers within the bounds, for any number of rows.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles, Longs
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.mechanisms.aggregates import Lattice, NoisyBlock, expected_block
from dpsql.released.intervals import Interval, interval_verdict, mean_interval, noise_quantile, variance_interval
from dpsql.released.results import FeatureMoments
from dpsql.statistics.aggregates import AGGREGATES, AVG, COUNT, SUM, VARIANCE, Block, ValueBlock


@dataclass(frozen=True, eq=False)
class Estimated:
    """One aggregate of one target in every group; NaN stands for NULL.

    Attributes
    ----------
    value, std_error, lower, upper : ndarray of float64, shape (G,)
    """

    value: Doubles
    std_error: Doubles
    lower: Doubles
    upper: Doubles

    def without(self, groups: NDArray[np.bool_] | None) -> Estimated:
        """Return the estimates with NaN for some groups."""
        if groups is None or not groups.any():
            return self
        columns = (self.value, self.std_error, self.lower, self.upper)
        return Estimated(*(np.where(groups, np.nan, column) for column in columns))


def estimates(
    noisy: NoisyBlock,
    aggregates: Sequence[str],
    *,
    confidence: float | None = 0.95,
    ddof: int = 1,
    sizes: Sequence[int] | None = None,
) -> dict[str, Estimated]:
    """Return the aggregates of a noisy block.

    Parameters
    ----------
    noisy : NoisyBlock
    aggregates : sequence of str
        Any of 'count', 'sum', 'avg', 'variance' and 'stddev', as for `dpsql.statistics.aggregates.blocks_for`.
    confidence : float or None
        Coverage of every interval, in (0, 1). None omits intervals: their ends are NaN, and the laws of the noise are
        not computed.
    ddof : int
        Variances divide by ``n - ddof``; 0 or 1. They are NULL if the noisy count is below ``ddof + 1``.
    sizes : sequence of int, length G, or None
        The public number of rows of each group, for a `CentredSum`: sums and means alone.

    Raises
    ------
    ParameterError
        P018, when an argument is out of range.
    """
    fit = ddof in (0, 1) and set(aggregates) <= set(AGGREGATES)
    if not fit or (confidence is not None and not 0.0 < confidence < 1.0):
        raise ParameterError("P018", "confidence, ddof or aggregates is out of range. See the docstring.")
    sums = _GroupMoments(noisy, None if confidence is None else 1.0 - confidence, ddof)
    if sizes is not None:
        counts = np.array(sizes, dtype=np.float64)
        return {name: sums.of_known_size(name, counts) for name in aggregates}
    return {name: sums.estimate(name) for name in aggregates}


def nothing_left(
    noisy: NoisyBlock, name: str, *, confidence: float, ddof: int = 1, sizes: Sequence[int] | None = None
) -> NDArray[np.bool_] | None:
    """Return in which groups noise leaves nothing of an aggregate; None if there are no such groups.

    These are means, variances and standard deviations of a group whose noisy count is not above 0 with 95 %, or whose
    interval at the confidence is the earlier public interval. Noise always leaves something of counts and sums. The
    arguments are the same as for `estimates`.
    """
    return _GroupMoments(noisy, 1.0 - confidence, ddof).nothing_left(name, sizes)


def rows_needed(block: Block, lattice: Lattice, name: str, *, confidence: float) -> int:
    """Return the least rows of a group, half of them at each bound, of whose average release something is left.

    The arguments are public, and so is the number; `name` and `confidence` are those of `nothing_left`.
    """

    def has_some(rows: int) -> bool:
        lost = nothing_left(expected_block(block, lattice, rows), name, confidence=confidence)
        return lost is None or not lost.any()

    most = 1
    while not has_some(most) and most < 1 << 40:
        most *= 2
    return bisect_left(range(most), True, most // 2, key=has_some)


class _GroupMoments:
    """The noisy moments of one block: number of rows, and sums of z and of ``z**2``."""

    def __init__(self, noisy: NoisyBlock, tail: float | None, ddof: int) -> None:
        self._noisy, self._tail, self._ddof = noisy, tail, ddof
        self._weights = np.array(noisy.block.moments)
        self._sums = self._weights @ noisy.values
        self._rows = np.maximum(self._sums[0], 1.0)

    @property
    def _bounds(self) -> tuple[float, float]:
        """Return the middle and half width of the bounds."""
        block = self._noisy.block
        if not isinstance(block, ValueBlock):
            raise ParameterError("P018", "a count tells nothing of values. Take the block of the aggregates.")
        return block.middle_and_half

    def estimate(self, name: str) -> Estimated:
        """Return one aggregate."""
        if name == COUNT:
            counted = self._linear(self._weights[0])
            ends = np.maximum(counted.lower, 0.0), np.maximum(counted.upper, 0.0)
            return Estimated(counted.value, counted.std_error, *ends)
        if name == SUM:
            middle, half = self._bounds
            return self._linear(middle * self._weights[0] + half * self._weights[1])
        if name == AVG:
            return self._mean()
        return self._variance if name == VARIANCE else _root(self._variance)

    def of_known_size(self, name: str, rows: Doubles) -> Estimated:
        """Return the sum or the mean of groups with public numbers of rows."""
        total = self._linear(self._weights[1])
        middle, half = self._bounds
        if name == SUM:
            shifted = (middle * rows + half * part for part in (total.value, total.lower, total.upper))
            value, lower, upper = shifted
            return Estimated(value, half * total.std_error, lower, upper)
        # If no mean within the bounds fits a number of rows, the number is wrong, or the noise is beyond its reach.
        impossible = (total.lower > rows) | (total.upper < -rows)
        ends = np.where(impossible, -rows, total.lower), np.where(impossible, rows, total.upper)
        value, lower, upper = (middle + half * np.clip(part / rows, -1.0, 1.0) for part in (total.value, *ends))
        return Estimated(value, half * np.minimum(total.std_error / rows, _MEAN_SPREAD), lower, upper)

    def nothing_left(self, name: str, sizes: Sequence[int] | None) -> NDArray[np.bool_] | None:
        """Return in which groups noise leaves nothing of an aggregate.

        The noise of a form is symmetric and log-concave, so it exceeds t standard deviations with a chance of at most
        ``exp(1 - t)`` (Lovasz and Vempala 2007). If this bound does not decide, quantiles of the noise law do.
        """
        if name in (COUNT, SUM) or self._tail is None:
            return None
        if sizes is not None:
            counts = np.array(sizes, dtype=np.float64)
            mean = self.of_known_size(AVG, counts)
            return self._is_all(mean, *self._bounds)
        count, most = self._sums[0], 1.0 - math.log(min(self._tail * _PART_OF_TAIL, _COUNTED))
        rows, *others = self._weights
        forms = [rows, *others, *(other + side * rows for other in others for side in _CORNERS)]
        sure = count > self._noisy.deviation * most * sum(math.sqrt(form @ form) for form in forms)
        if sure.all():
            return None
        middle, half = self._bounds
        if name == AVG:
            is_full = self._is_all(self._mean(), middle, half)
        else:
            is_full = (self._variance.lower <= 0.0) & (self._variance.upper >= half**2)
        empty = count <= noise_quantile(self._noisy, rows, 2.0 * _COUNTED)
        return np.asarray(~sure & (empty | is_full), dtype=np.bool_)

    def _is_all(self, mean: Estimated, middle: float, half: float) -> NDArray[np.bool_]:
        """Return where the interval of a mean is all of its bounds."""
        return (mean.lower <= middle - half) & (mean.upper >= middle + half)

    def _linear(self, weights: Doubles) -> Estimated:
        """Return a linear form of the coordinates."""
        value: Doubles = weights @ self._noisy.values
        reach = np.nan if self._tail is None else noise_quantile(self._noisy, weights, self._tail)
        error = np.full_like(value, self._noisy.deviation * math.sqrt(weights @ weights))
        return Estimated(value, error, value - reach, value + reach)

    def _centre(self) -> Doubles:
        """Return the mean of z: upper less lower end, as shares of the sum of their positive parts."""
        count, total = self._sums[:2]
        above, below = np.maximum(count + total, 0.0), np.maximum(count - total, 0.0)
        mass = above + below
        centre: Doubles = np.divide(above - below, mass, out=np.zeros_like(mass), where=mass > 0.0)
        return centre

    def _mean(self) -> Estimated:
        centre = self._centre()
        form = self._weights[1] - centre[:, np.newaxis] * self._weights[0]
        error = np.minimum(self._noisy.deviation * np.sqrt((form**2).sum(axis=1)) / self._rows, _MEAN_SPREAD)
        ends = _no_ends(centre)
        if self._tail is not None:
            ends = _around(centre, mean_interval(self._noisy, self._tail))
        middle, half = self._bounds
        return Estimated(middle + half * centre, half * error, middle + half * ends[0], middle + half * ends[1])

    @cached_property
    def _variance(self) -> Estimated:
        centre = self._centre()
        square = self._sums[2] / self._rows
        spread = np.clip(square - centre**2, 0.0, 1.0 - centre**2)
        # The derivative of the variance by the coordinates, times the count.
        slope = (
            self._weights[2]
            - 2.0 * centre[:, np.newaxis] * self._weights[1]
            + (2.0 * centre**2 - np.clip(square, 0.0, 1.0))[:, np.newaxis] * self._weights[0]
        )
        error = np.minimum(self._noisy.deviation * np.sqrt((slope**2).sum(axis=1)) / self._rows, _VARIANCE_SPREAD)
        is_defined = self._sums[0] >= self._ddof + 1
        rows = np.where(is_defined, self._sums[0], np.nan)
        factor = rows / (rows - self._ddof)
        low, high = _no_ends(spread)
        if self._tail is not None:
            low, high = _around(spread * factor, variance_interval(self._noisy, self._tail, self._ddof))
        square_of_half = self._bounds[1] ** 2
        columns = (
            spread * factor,
            error * factor,
            np.where(is_defined, low, np.nan),
            np.where(is_defined, high, np.nan),
        )
        return Estimated(*(square_of_half * column for column in columns))


def _no_ends(value: Doubles) -> Interval:
    """Return empty ends for intervals that are not requested."""
    return np.full_like(value, np.nan), np.full_like(value, np.nan)


def _around(value: Doubles, ends: Interval) -> Interval:
    """Return an interval that also holds the value; only the value if nothing is compatible with the noisy sums."""
    return np.fmin(ends[0], value), np.fmax(ends[1], value)


def _root(variance: Estimated) -> Estimated:
    """Return the standard deviation. Its error is half the change of the root over the error of the variance."""
    low = np.sqrt(np.maximum(variance.value - variance.std_error, 0.0))
    error = (np.sqrt(variance.value + variance.std_error) - low) / 2.0
    return Estimated(np.sqrt(variance.value), error, np.sqrt(variance.lower), np.sqrt(variance.upper))


# No number in [-1, 1] has a larger standard deviation than the first, none in [0, 1] than the second: the spread of a
# mean and of a variance, in units of half the bounds, if the noise explains every value.
_MEAN_SPREAD, _VARIANCE_SPREAD = 1.0, 0.5
# The chance that a count of 0 looks positive; and the smallest share of a tail for a part of an interval.
_COUNTED, _PART_OF_TAIL = 0.05, 0.1
# A normal variable exceeds this number with a chance of 5 %, in either direction.
_AWAY = 1.96
# A correlation needs variances of this many standard deviations of their noise.
_CLEAR = 2.0
_TINY = 1e-100
_GRID, _CORNERS = (-1.0, 0.0, 1.0), (-1.0, 1.0)


@dataclass(frozen=True)
class MatrixEstimate:
    """A symmetric matrix of released numbers; NaN stands for NULL.

    Attributes
    ----------
    names : list of str, length p
    value, std_error, lower, upper : ndarray of float64, shape (p, p)
        Each number with its standard error and the ends of its 95 % interval.
    """

    names: list[str]
    value: Doubles
    std_error: Doubles
    lower: Doubles
    upper: Doubles

    def rows(self, *, diagonal: bool) -> Iterator[dict[str, Any]]:
        """Yield one row per pair of features in their order, each pair once, with or without the diagonal."""
        first, second = np.triu_indices(len(self.names), 0 if diagonal else 1)
        columns = ("value", "std_error", "lower", "upper")
        numbers = np.stack([getattr(self, column)[first, second] for column in columns], axis=1)
        for i, j, row in zip(first.tolist(), second.tolist(), numbers.tolist(), strict=True):
            cells = dict(zip(columns, (None if number != number else number for number in row), strict=True))
            verdict = interval_verdict(cells["value"], cells["lower"], cells["upper"])
            yield {"feature_1": self.names[i], "feature_2": self.names[j], **cells, "verdict": verdict}


@dataclass(frozen=True)
class _Moments:
    """Noisy moments: rows, sums, and a matrix of the products, whose diagonal holds the squares less half the rows."""

    rows: float
    sums: Doubles
    products: Doubles

    @classmethod
    def of(cls, record: FeatureMoments) -> _Moments:
        """Return the moments of a record; there is at least one row."""
        products = np.diag(np.asarray(record["squares"], dtype=np.float64))
        products[np.triu_indices(len(products), 1)] = record["products"]
        products += np.triu(products, 1).T
        return cls(max(1.0, record["rows"]), np.asarray(record["sums"], dtype=np.float64), products)

    def part(self, features: Longs) -> _Moments:
        """Return the moments of some features."""
        return _Moments(self.rows, self.sums[features], self.products[np.ix_(features, features)])

    @property
    def means(self) -> Doubles:
        """Return noisy means of z, shape (p,), in [-1, 1]."""
        return np.clip(self.sums / self.rows, -1.0, 1.0)

    @property
    def squares(self) -> Doubles:
        """Return the diagonal of the products."""
        return np.diagonal(self.products)

    def covariance(self) -> Doubles:
        """Return C, shape (p, p)."""
        half = np.eye(len(self.sums)) / 2
        return self.products / self.rows + half - np.outer(self.means, self.means)

    def derivatives(self, covariance: Doubles) -> tuple[Doubles, Doubles]:
        """Return how much C and its diagonal grow per row of noise in the number of rows, times that number."""
        means, variances = self.means, np.diagonal(covariance)
        return np.outer(means, means) - covariance, means**2 + 0.5 - variances

    def errors(self, covariance: Doubles, deviation: float) -> Doubles:
        """Return the standard errors of C, given the standard deviation of the noise."""
        squares = self.means**2
        by_rows, by_rows_of_variances = self.derivatives(covariance)
        variance = 1 + squares[:, None] + squares + by_rows**2
        np.fill_diagonal(variance, 1 + 4 * squares + by_rows_of_variances**2)
        return deviation / self.rows * np.sqrt(variance)


def covariance(record: FeatureMoments) -> MatrixEstimate:
    """Return the covariance matrix in the features' own units; NaN if fewer rows than `ddof` + 1 are likely."""
    moments, ddof = _Moments.of(record), record["ddof"]
    widths = _half_widths(record)
    noisy = moments.covariance()
    value = _shrunk(_semidefinite(noisy), 1 - moments.means**2)
    low, high = _range(moments, record["reach"], _covariance_at)
    np.fill_diagonal(low, np.clip(np.diagonal(low), 0.0, 1.0))
    unit = np.outer(widths, widths)
    factor = moments.rows / (moments.rows - ddof) if record["rows"] >= 1 + ddof else np.nan
    fewest, most = (max(1.0 + ddof, moments.rows + side * record["reach"]) for side in _CORNERS)
    factors = most / (most - ddof), fewest / (fewest - ddof)
    return MatrixEstimate(
        names=record["names"],
        value=value * unit * factor,
        std_error=moments.errors(noisy, record["std_error"]) * unit * factor,
        lower=np.minimum(low * factors[0], low * factors[1]) * unit,
        upper=np.maximum(high * factors[0], high * factors[1]) * unit,
    )


def correlation(record: FeatureMoments) -> MatrixEstimate:
    """Return the correlation matrix; NaN for features whose variance is hidden by the noise."""
    moments, deviation = _Moments.of(record), record["std_error"]
    noisy = moments.covariance()
    indices = np.flatnonzero(np.diagonal(noisy) >= _CLEAR * np.diagonal(moments.errors(noisy, deviation)))
    clear, inner = moments.part(indices), np.ix_(indices, indices)
    value, std_error = np.full((2, *noisy.shape), np.nan)
    if len(indices):
        value[inner] = _normalised(_semidefinite(noisy[inner]))
        std_error[inner] = _correlation_errors(clear, noisy[inner], value[inner], deviation)
    lower, upper = _range(moments, record["reach"], _correlation_at)
    if "sampled" in record:
        # The error of a correlation r of n rows has a variance of at most (1 - r**2) / (n - 2), if columns are normal
        # or independent of each other; rows of a unit count as one row.
        rows = max(1.0, (moments.rows - record["reach"]) / record["sampled"] - 2.0)
        nearest = np.where((lower <= 0.0) & (upper >= 0.0), 0.0, np.minimum(np.abs(lower), np.abs(upper)))
        error = np.sqrt((1.0 - nearest**2) / rows)
        below, above = (np.hypot(way, _AWAY * error) for way in (value - lower, upper - value))
        lower, upper = np.maximum(value - below, -1.0), np.minimum(value + above, 1.0)
        std_error = np.hypot(std_error, error)
    for matrix, diagonal in ((value, 1.0), (std_error, 0.0), (lower, 1.0), (upper, 1.0)):
        np.fill_diagonal(matrix, diagonal)
    return MatrixEstimate(record["names"], value, std_error, lower, upper)


MATRICES: Mapping[str, Callable[[FeatureMoments], MatrixEstimate]] = {
    "dp_covariance": covariance,
    "dp_correlation": correlation,
}


def _half_widths(record: FeatureMoments) -> Doubles:
    lower, upper = np.asarray(record["bounds"], dtype=np.float64).T
    widths: Doubles = upper / 2 - lower / 2
    return widths


def _semidefinite(matrix: Doubles) -> Doubles:
    """Return the nearest positive semidefinite matrix; no number on its diagonal is smaller."""
    values, vectors = np.linalg.eigh(matrix)
    nearest: Doubles = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return (nearest + nearest.T) / 2  # symmetric to the last bit


def _shrunk(matrix: Doubles, most: Doubles) -> Doubles:
    """Return a covariance matrix with its diagonal at most `most`, and the same correlations."""
    shrink = np.sqrt(np.minimum(1.0, most / np.maximum(np.diagonal(matrix), _TINY)))
    shrunk: Doubles = matrix * np.outer(shrink, shrink)
    return shrunk


def _normalised(matrix: Doubles) -> Doubles:
    """Return a covariance matrix with positive variances as correlations."""
    spread = np.sqrt(np.diagonal(matrix))
    normalised: Doubles = np.clip(matrix / np.outer(spread, spread), -1.0, 1.0)
    return normalised


def _correlation_errors(moments: _Moments, noisy: Doubles, value: Doubles, deviation: float) -> Doubles:
    """Return the standard errors of correlations: the lengths of the gradients by the six numbers of each pair."""
    variances = np.diagonal(noisy)
    unit, means = np.sqrt(np.outer(variances, variances)), moments.means
    by_rows, by_rows_of_variances = moments.derivatives(noisy)
    of_variances = by_rows_of_variances / variances
    by_sum = value * (means / variances)[:, None] - means / unit
    by_square = value / (2 * variances)
    rows = by_rows / unit - value / 2 * (of_variances[:, None] + of_variances)
    squared = 1 / unit**2 + by_sum**2 + by_sum.T**2 + by_square**2 + by_square.T**2 + rows**2
    errors: Doubles = deviation / moments.rows * np.sqrt(squared)
    return errors


# Rows, sums of the first and of the second features, products and squares, each within its reach.
_Formula = Callable[[float, Doubles, Doubles, Doubles, Doubles], Doubles]


def _range(moments: _Moments, reach: float, formula: _Formula) -> tuple[Doubles, Doubles]:
    """Return the least and the largest value of a formula in the box, each of shape (p, p), in [-1, 1]."""
    low, high = np.full(moments.products.shape, np.inf), np.full(moments.products.shape, -np.inf)
    sides = product(_GRID, combinations_with_replacement(_GRID, 2), _CORNERS, _CORNERS)
    for rows, (first, second), products, squares in sides:
        matrix = formula(
            max(1.0, moments.rows + reach * rows),
            moments.sums + reach * first,
            moments.sums + reach * second,
            moments.products + reach * products,
            moments.squares + reach * squares,
        )
        np.minimum(low, matrix, out=low)
        np.maximum(high, matrix, out=high)
    # Sums in the other order give the transpose.
    return np.clip(np.minimum(low, low.T), -1.0, 1.0), np.clip(np.maximum(high, high.T), -1.0, 1.0)


def _covariance_at(rows: float, first: Doubles, second: Doubles, products: Doubles, squares: Doubles) -> Doubles:
    matrix: Doubles = products / rows + np.eye(len(first)) / 2 - np.outer(first, second) / rows**2
    return matrix


def _correlation_at(rows: float, first: Doubles, second: Doubles, products: Doubles, squares: Doubles) -> Doubles:
    """Return correlations; if a variance may be 0, they are so large that clipping makes them -1 or 1."""
    variance, other = (np.maximum(squares / rows + 0.5 - (sums / rows) ** 2, _TINY) for sums in (first, second))
    spread = np.sqrt(variance)[:, None] * np.sqrt(other)
    matrix: Doubles = _covariance_at(rows, first, second, products, squares) / spread
    return matrix
