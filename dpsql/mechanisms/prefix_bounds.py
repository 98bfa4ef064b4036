"""Private bounds of several columns at once, from noisy prefix sums over universal cells on a logarithmic scale.

The values have no prior bounds: the cells of a column follow from its public type (`dpsql.kernels.cells`). For
each column, the mechanism releases the number of rows in the first cell, the first two, the first three, and so on,
with Gaussian noise. The middle of the column is the cell that reaches half of the rows. An end is the first cell from
there outwards beyond which noise explains the rows in the noisy prefix sums.

With C the lower triangular Toeplitz matrix of the coefficients of ``1 / sqrt(1 - z)``, whose square is the matrix of
all prefix sums, the products ``C x`` of the counts x get noise of one variance, and ``C`` times these are the prefix
sums [1]_: their noise is ``norm(c)**2 / mu`` rows, c being the first column of C. That is 2.3 for the 47 cells of a
TINYINT, 2.8 for an INTEGER, and 3.3 for the 1,033 cells of a DOUBLE. C is rounded down to multiples of ``2**-20``; the
noise is calibrated to the rounded matrix, whose exact inverse maps the products back.

*Sensitivity.* Take one column, with m rows in a unit: a row is in one cell, or in none, so it adds one column of C to
the products, and these are no longer than c. So m rows move them by at most ``m norm(c)``. Under replace at most m rows
leave and m come; all entries of C are >= 0, so no two of its columns have a negative inner product, and
``norm(a - b)**2 <= norm(a)**2 + norm(b)**2 <= 2 (m norm(c))**2``. Columns with other cells have another C and their own
c: their products are released side by side, with their own noise, so ``mu**2`` of the columns add up.
A BOOLEAN column has the bounds 0 and 1 by its type: it needs no counts and costs nothing.

*Ends.* These rules read released and public numbers alone. Near an atom, such as a value in half of the rows,
the next octave may be empty, although a farther octave has rows. So an end goes on to the farthest octave with
more rows than noise explains, for all octaves of one end at once but for a chance of 1 %. If values are
discrete and the end is still the middle's own cell, it includes the next value: a rare 0/1 column is [-1, 1].
For doubles an end below ``2**-20`` of the other end is 0. If values may be fractions, bounds within ``2**-14`` of
zero would make a coefficient as large as they are narrow: only the strict rule below accepts them, and never
if the middle is 0; a column of zeros alone has no bounds either.

*Claims.* A column is undetermined if it has no more rows than twice the noise of a prefix sum. Otherwise the
interval is used. It is *clear* by a strict rule. Let T be the rows in the interval less a quarter of all rows. T is
a linear form of the noisy prefix sums, so its noise is normal and known. A column of m cells has
``m (m + 1) / 2`` intervals, and none of them, in any column, has noise beyond ``z = z(failure / all intervals)``
standard deviations, but for the chance `failure`. So if the noisy T exceeds z deviations, more than a quarter of
the column's rows are in the interval, mostly nearly all. A DOUBLE needs about ``56 / mu`` rows for that. The claim,
and its chance of failure, covers clear intervals alone; an interval that is not clear may be anywhere.

*Flags.* The released numbers also show the spread of the rows over the cells of an interval (`SeenRows`).
If two cells have all rows, but for noise, and their widths are much smaller than their distance,
the column is a flag, for any type. Noise explains `_SEEN_CELL` standard deviations of the rows in one cell, and
`_SEEN_BESIDE` of the rows in all others together.

*Clipping.* A fit may clip a column within its interval. If the target goes on along a straight line beyond the clip,
the slope of the clipped values differs from the slope of the line. With c the clipped values and e the clipped excess,
the slope is ``1 + cov(c, e) / var(c)`` times too large, in a fit of several columns as well if the others depend on e
by way of c alone. `SeenRows.clipped` estimates that share from the cells, and adds the rows that noise may hide. More
rows than noise explains may be beyond an end: a tail of few rows over many octaves, or a sentinel. Their distance is
not known, so each counts as lying one width of the interval beyond the end.

**Standardisation** releases private means and standard deviations of features, to scale rows before a model is fitted.

Features in half widths of their bounds differ much in spread: one fills its bounds, another a hundredth of
them. Noise on sums of products is the same for all, so it drowns the narrow features. A first release of sums and sums
of squares, with a small share of the loss, gives means and standard deviations; they are public from then on, and the
rows in units of them are a fixed function of each row.

Given this release, the fit computes its statistics from rows mapped one by one; the losses compose.

References
----------
.. [1] H. Fichtenberger, M. Henzinger, J. Upadhyay, Constant matters: fine-grained error bound on differentially
   private continual observation, ICML 2023.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles, Integers, Longs
from dpsql.contract.parameters import show
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError
from dpsql.kernels.cells import FEW, MOST_CELLS, OCTAVE, TypedCells
from dpsql.mechanisms.gaussian import GaussianNoise, gaussian_counts, gaussian_release
from dpsql.noise.entropy import SYSTEM, BitSource
from dpsql.statistics.counts import squared_l2_sensitivity
from dpsql.statistics.regression import UNIT, Standard, moments_sensitivity

FAILURE = Fraction(1, 100)
# The noisy rows beyond an end are at most this many standard deviations of a prefix sum, or the noisy rows in the next
# octave as many of their own.
_TAIL = 1.0
# Share of a column's rows that a clear interval exceeds.
_HELD = 0.25
# Noise alone shows so many deviations of rows with a chance of less than a millionth.
_FAR = 5.0
# Approximate deviations of rows beyond an end, if values thin out.
_LOST = 4.0
# Coefficients are floor(c 2**20): counts below 2**32 times these sum below 2**53.
_BITS = 20
# A column with fewer rows than so many deviations of a prefix sum is undetermined.
_SEEN = 2.0
# Chance that an end goes on to an octave with noise alone.
_BEYOND = 0.01
# For doubles: an end below this share of the other is 0; only the strict rule accepts bounds this near to zero.
_RELATIVE, _NEAR = 2.0**-20, 2.0**-14
# Noise of a fraction of a row is negligible; less would only need more bits.
_LARGEST_SQUARED_MU = Fraction(64)

# A cell has rows, and all others together have none, by so many standard deviations of the noise.
_SEEN_CELL, _SEEN_BESIDE = 4.5, 3.0
# Rows that noise may hide, in standard deviations of a prefix sum, each one deviation beyond a clip.
_HIDDEN = 1.0
# Noise explains so many rows beyond an end, in standard deviations of a prefix sum.
_EXPLAINED = 2.0

Interval = tuple[float, float]
# Largest width of a flag's values, as a share of their distance.
_FLAG = 1.0 / 3.0
# Share of the loss for the bounds of a target, over the share of a feature's bounds.
TARGET_WEIGHT = Fraction(4)


@dataclass(frozen=True)
class ClippedShare:
    """Change by clipping a column of the coefficients of a linear truth.

    Attributes
    ----------
    slope : float
        >= 0, as a share of the column's slope; 0 if nothing within the interval is clipped.
    level : float
        >= 0: change of the intercept, over the slope.
    spread : float
        >= 0: the mean square of the clipped excess, which is like noise to the other columns.
    """

    slope: float = 0.0
    level: float = 0.0
    spread: float = 0.0


@dataclass(frozen=True, eq=False)
class SeenRows:
    """Noisy spread of a column's rows over the cells of its interval; post-processing.

    Attributes
    ----------
    low, high : ndarray of float64, shape (k,)
        The ends of the cells.
    rows : ndarray of float64, shape (k,)
        Noisy, >= 0.
    unit : float
        Standard deviation of the noise in a prefix sum, in rows.
    flag : bool
        Whether two cells have all rows, but for noise, and are much narrower than their distance.
    below, above : float
        Noisy rows beyond either end, over the rows that noise explains.
    """

    low: Doubles
    high: Doubles
    rows: Doubles
    unit: float
    flag: bool
    below: float = 0.0
    above: float = 0.0

    def clipped(self, low: float, high: float, hidden: float = _HIDDEN) -> ClippedShare:
        """Return the change by clipping of the coefficients of a linear truth, see the module's text.

        Parameters
        ----------
        low, high : float
            Ends of clipped values.
        hidden : float
            Added rows beyond the clip, in standard deviations of a prefix sum, as noise may hide. 0 also ignores rows
            beyond the interval; otherwise each lies a width of the interval beyond it.
        """
        beyond = (self.below, self.above) if hidden else (0.0, 0.0)
        if low <= self.low[0] and high >= self.high[-1] and not any(beyond):
            return ClippedShare()
        width = float(self.high[-1] - self.low[0])
        far = width + max(0.0, low - float(self.low[0])), width + max(0.0, float(self.high[-1]) - high)
        low, high = max(low, float(self.low[0])), min(high, float(self.high[-1]))
        # A wide cell that reaches into the clip stays whole: values far from zero have cells wider than their spread.
        middle, count = (self.low + self.high) / 2.0, max(1.0, float(self.rows.sum()))
        wide = (self.high > low) & (self.low < high) & (self.high - self.low > (high - low) / 2.0)
        middle = np.where(wide, np.clip(middle, low, high), middle)
        inner = np.clip(middle, low, high)
        mean = float(inner @ self.rows) / count
        # A clip is at three deviations, or nearer if the interval ends.
        variance = max(float(np.square(inner - mean) @ self.rows), count * ((high - low) / 6.0) ** 2)
        cut = (middle - inner) * self.rows
        deviation = math.sqrt(variance / count)
        more = hidden * self.unit * deviation * max(high - mean, mean - low)
        more += beyond[0] * far[0] * (mean - low) + beyond[1] * far[1] * (high - mean)
        slope = (float(np.abs(cut) @ np.abs(inner - mean)) + more) / variance
        level = abs(float(cut.sum())) + hidden * self.unit * deviation + float(np.dot(beyond, far))
        spread = float((middle - inner) @ cut) + float(np.dot(beyond, np.square(far)))
        return ClippedShare(slope, level / count + slope * abs(mean), spread / count)


@dataclass(frozen=True)
class ColumnBounds:
    """The bounds of a column, and their properties.

    Attributes
    ----------
    interval : (float, float) or None
        lower < upper; None if the column is undetermined.
    clear : bool
        Whether the interval has a quarter of the column's rows, but for the chance of `prefix_bounds`; true for public
        bounds.
    is_whole : bool
        Whether values count unclipped, all the way to the bounds: true for public bounds, and for private bounds of
        few values, such as a 0/1 column. Otherwise rare values within the bounds may be clipped.
    flag : bool
        Whether the released cells show no more than two values.
    seen : SeenRows or None
        Spread of the rows over the interval; None for public bounds.
    mean, deviation : float
        Of the values, clipped to private bounds, from the noisy prefix sums; NaN for public bounds.
    """

    interval: Interval | None
    clear: bool = True
    is_whole: bool = True
    flag: bool = False
    seen: SeenRows | None = field(default=None, compare=False, repr=False)
    mean: float = field(default=math.nan, compare=False)
    deviation: float = field(default=math.nan, compare=False)


UNDETERMINED = ColumnBounds(None, clear=False, is_whole=False)


@dataclass(frozen=True)
class PrefixMatrix:
    """The lower triangular Toeplitz matrix of the products, and its map to prefix sums; public.

    Attributes
    ----------
    coefficients : ndarray of int64, shape (m,)
        First column of the matrix, in units of ``2**-20``.
    squared : int
        Largest sum of squares of a column, attained by the first; in units of ``2**-40``.
    back : ndarray of float64, shape (m,)
        First column of the Toeplitz matrix that maps products in rows to prefix sums.
    """

    coefficients: Longs
    squared: int
    back: Doubles

    @classmethod
    @lru_cache(maxsize=32, typed=True)
    def of(cls, cells: int) -> PrefixMatrix:
        """Return the matrix for a number of cells."""
        shares = np.cumprod(np.concatenate(([1.0], 1.0 - 1.0 / (2.0 * np.arange(1, cells)))))
        coefficients = np.floor(shares * 2.0**_BITS).astype(np.int64)
        # 1 / (c(z) (1 - z)) as a power series: 1 / c(z), summed up.
        inverse = np.zeros(cells)
        scaled = coefficients / coefficients[0]
        inverse[0] = 1.0
        for index in range(1, cells):
            inverse[index] = -scaled[1 : index + 1] @ inverse[index - 1 :: -1][:index]
        back = np.cumsum(inverse) * (2.0**_BITS / coefficients[0])
        return cls(coefficients, sum(value * value for value in coefficients.tolist()), back)

    def products(self, counts: Longs) -> Longs:
        """Return the exact products of the counts of one column, in units of ``2**-20`` rows."""
        sums = np.zeros(len(counts), dtype=np.int64)
        for cell in np.flatnonzero(counts):
            sums[cell:] += counts[cell] * self.coefficients[: len(counts) - cell]
        return sums

    def sums(self, products: Doubles) -> Doubles:
        """Return the prefix sums of products in rows."""
        size = 1 << (2 * len(products) - 1).bit_length()
        transformed = np.fft.rfft(products, size) * np.fft.rfft(self.back, size)
        return np.asarray(np.fft.irfft(transformed, size)[: len(products)], dtype=np.float64)

    @cached_property
    def prefix_deviation(self) -> float:
        """The largest standard deviation of a prefix sum, for noise of variance 1 on the products."""
        return float(np.sqrt(self.back @ self.back))

    @cached_property
    def range_deviation(self) -> float:
        """The standard deviation of the rows in an octave of cells, for noise of variance 1 on the products."""
        within, before = self.back[:OCTAVE], self.back[OCTAVE:] - self.back[:-OCTAVE]
        return float(np.sqrt(within @ within + before @ before))

    @cached_property
    def cell_deviation(self) -> float:
        """The largest standard deviation of the rows in a cell, for noise of variance 1 on the products."""
        steps = np.diff(self.back, prepend=0.0)
        return float(np.sqrt(steps @ steps))

    def deviation(self, first: int, last: int) -> float:
        """Return the standard deviation of T for the cells first to last, for noise of variance 1 on the products."""
        form = -_HELD * self.back[::-1]
        form[: last + 1] += self.back[: last + 1][::-1]
        form[:first] -= self.back[:first][::-1]
        return float(np.sqrt(form @ form))


def prefix_bounds(
    counts: Sequence[Longs],
    cells: Sequence[TypedCells],
    *,
    squared_mus: Sequence[Fraction],
    neighbours: str,
    max_rows_per_unit: int = 1,
    failure: Fraction = FAILURE,
    source: BitSource = SYSTEM,
) -> list[ColumnBounds]:
    """Release bounds with the bulk of each of several columns.

    Parameters
    ----------
    counts : sequence of ndarray of int64
        Exact counts of columns of the same rows, each of shape (m,), in the cells of its own type.
    cells : sequence of TypedCells
        Cells of each column, by its public type.
    squared_mus : sequence of Fraction
        The share of ``mu**2`` for each column, > 0.
    neighbours : {'add_remove', 'replace'}
        The neighbouring relation.
    max_rows_per_unit : int
        Rows that one privacy unit may have, >= 1.
    failure : Fraction
        In (0, 1): largest chance that any clear interval has a quarter of its column's rows or fewer.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    bounds : list of ColumnBounds
        One per column; intervals are finite.

    Raises
    ------
    ParameterError
        Depends on public parameters only: P018 (squared_mus, neighbours, max_rows_per_unit, failure), P017 (noise
        beyond its largest scale).

    Notes
    -----
    - **Guarantee**: mu-Gaussian DP for all columns together, with ``mu**2`` the sum of `squared_mus`.
    - **Neighbouring relation**: add or remove one unit, or replace one.
    - **Sensitivity**: L2 of the products of one column, by the matrix of its own cells; the module's text has the
      proof. Columns of the table get their own noise; their ``mu**2`` add up.
    - **Randomness**: exact integer sampler, operating-system entropy, no seed.
    - **Assumes**: every row is in one cell of each column, by its values alone, or in none; fewer than 2**32 rows.
    - **Does not protect**: the cells, which follow from public types; the number of columns; running time.
    """
    if len(squared_mus) != len(counts) or not all(
        isinstance(squared_mu, Fraction) and squared_mu > 0 for squared_mu in squared_mus
    ):
        raise ParameterError("P018", "squared_mus must hold a Fraction > 0 per column. Give the privacy loss to spend.")
    if not isinstance(failure, Fraction) or not 0 < failure < 1:
        raise ParameterError("P018", f"failure must be a Fraction in (0, 1); got {show(failure)}.")
    rows = squared_l2_sensitivity(neighbours, max_rows_per_unit=max_rows_per_unit)
    farthest = _farthest(failure, [of.count for of in cells])
    bounds = []
    for column, of, squared_mu in zip(counts, cells, squared_mus, strict=True):
        matrix = PrefixMatrix.of(of.count)
        noisy = gaussian_counts(
            matrix.products(column),
            squared_sensitivity=rows * matrix.squared,
            squared_mu=min(squared_mu, _LARGEST_SQUARED_MU),
            source=source,
        )
        sums = matrix.sums(noisy.values * 2.0**-_BITS)
        bounds.append(interval_from_sums(sums, noisy.sigma * 2.0**-_BITS, farthest, of))
    return bounds


def interval_from_sums(sums: Doubles, sigma: float, farthest: float, cells: TypedCells) -> ColumnBounds:
    """Return the interval from noisy prefix sums; post-processing, so it costs no privacy.

    Parameters
    ----------
    sums : ndarray of float64, shape (m,)
        For the cells, in ascending order of their values.
    sigma : float
        Standard deviation of the noise on every product, in rows.
    farthest : float
        z: standard deviations that T needs above 0.
    cells : TypedCells

    Returns
    -------
    bounds : ColumnBounds
        From the lower end of the first cell to the upper end of the last, by the rules of the module's text.
    """
    matrix = PrefixMatrix.of(cells.count)
    ascending = _ascending(sums)
    total = float(ascending[-1])
    if not total > _SEEN * sigma * matrix.prefix_deviation:
        return UNDETERMINED
    middle = int(np.searchsorted(ascending, total / 2.0))
    last = middle + _end(total - ascending[middle:], sigma, matrix)
    first = middle - _end(np.concatenate(([0.0], ascending[:middle]))[::-1], sigma, matrix)
    below = sums[first - 1] if first else 0.0
    surplus = float(sums[last] - below - _HELD * sums[-1])
    clear = surplus > farthest * sigma * matrix.deviation(first, last)
    lower, upper = _ends(cells, first, middle, last)
    alone, near = first == last == cells.zero, max(abs(lower), abs(upper)) <= _NEAR
    if cells.step < 1.0 and (alone or (near and (middle == cells.zero or not clear))):
        return UNDETERMINED
    seen = _seen(sums, ascending, sigma, matrix, cells, first, last, (lower, upper))
    rows = np.diff(ascending, prepend=0.0)
    rows[first], rows[last] = ascending[first], total - (ascending[last - 1] if last else 0.0)
    mean, deviation = _spread(rows[first : last + 1], cells.low[first : last + 1], cells.high[first : last + 1])
    is_whole = upper - lower <= FEW * cells.step or seen.flag
    return ColumnBounds((lower, upper), clear, is_whole, seen.flag, seen, mean, deviation)


def _seen(
    sums: Doubles,
    ascending: Doubles,
    sigma: float,
    matrix: PrefixMatrix,
    cells: TypedCells,
    first: int,
    last: int,
    ends: Interval,
) -> SeenRows:
    """Return the rows in the cells first to last, with the ends of the interval; `ascending` is fitted to `sums`."""
    within = slice(first, last + 1)
    unit, own = sigma * matrix.prefix_deviation, sigma * matrix.cell_deviation
    rows = np.diff(ascending[within], prepend=ascending[first - 1] if first else 0.0)
    counts = np.diff(sums[within], prepend=sums[first - 1] if first else 0.0)
    full = counts > _SEEN_CELL * own
    count = int(np.count_nonzero(full))
    beside = float(ascending[-1] - counts[full].sum())
    two = count == 2 and beside <= _SEEN_BESIDE * math.hypot(unit, math.sqrt(2.0) * own)
    low, high = cells.low[within].copy(), cells.high[within].copy()
    low[0], high[-1] = ends
    flag = two and bool((high - low)[full].max() <= _FLAG * (low[full][1] - high[full][0]))
    outside = sums[first - 1] if first else 0.0, sums[-1] - sums[last]
    below, above = (max(0.0, float(rows_outside) - _EXPLAINED * unit) for rows_outside in outside)
    return SeenRows(low, high, rows, unit, flag, below, above)


def _spread(rows: Doubles, low: Doubles, high: Doubles) -> tuple[float, float]:
    """Return mean and deviation of values that are even within cells with so many rows each."""
    share, middle, width = rows / rows.sum(), low / 2 + high / 2, high - low
    mean = float(share @ middle)
    return mean, math.sqrt(float(share @ ((middle - mean) ** 2 + width**2 / 12)))


def _ends(cells: TypedCells, first: int, middle: int, last: int) -> Interval:
    """Return the interval from the first cell to the last."""
    lower, upper = float(cells.low[first]), float(cells.high[last])
    if cells.digits is None:
        # Count the values of the zero cell, and values indistinguishable from it, as 0.
        farther = max(abs(lower), abs(upper))
        lower = 0.0 if first == cells.zero or abs(lower) < _RELATIVE * farther else lower
        upper = 0.0 if last == cells.zero or abs(upper) < _RELATIVE * farther else upper
        return lower, upper
    if first == middle:
        lower = max(lower - cells.step, float(cells.low[0]))
    if last == middle:
        upper = min(upper + cells.step, float(cells.high[-1]))
    return lower, upper


def _end(beyond: Doubles, sigma: float, matrix: PrefixMatrix) -> int:
    """Return the number of cells from the middle to an end.

    Noise may show `_TAIL` deviations of rows beyond the last row, all the way to the end of the cells. So if no more
    than `_FAR` deviations remain, an octave that noise explains is an end as well; but no end is before an octave
    with more rows than noise explains.

    Parameters
    ----------
    beyond : ndarray of float64
        Noisy numbers of rows beyond the middle, and beyond each cell from there outwards; descending.
    """
    unit, octave = sigma * matrix.prefix_deviation, sigma * matrix.range_deviation
    within = beyond - np.append(beyond, np.zeros(OCTAVE))[OCTAVE:][: len(beyond)]
    ends = (beyond <= _TAIL * unit) | (beyond <= _FAR * unit) & (within <= _TAIL * octave)
    end = int(np.argmax(ends))  # no rows are beyond the last
    starts = np.arange(end, len(beyond) - 1, OCTAVE)
    stops = np.minimum(starts + OCTAVE, len(beyond) - 1)
    away = -NormalDist().inv_cdf(_BEYOND / (2 * len(starts) + 2))
    octaves = np.flatnonzero(beyond[starts] - beyond[stops] > away * octave)
    return int(stops[octaves[-1]]) if len(octaves) else end


def rows_needed(squared_mu: Fraction, width: int, neighbours: str, max_rows_per_unit: int = 1) -> float:
    """Return about the number of rows that gives a column of doubles clear bounds in most calls.

    Parameters
    ----------
    squared_mu : Fraction
        Share of ``mu**2`` for the column.
    width : int
        Columns with bounds drawn together. Other types have fewer cells, and need fewer rows.
    neighbours, max_rows_per_unit
        As for `prefix_bounds`.
    """
    cells = MOST_CELLS
    matrix, zero = PrefixMatrix.of(cells), cells // 2
    rows = squared_l2_sensitivity(neighbours, max_rows_per_unit=max_rows_per_unit)
    sigma = math.sqrt(rows * matrix.squared / min(squared_mu, _LARGEST_SQUARED_MU)) * 2.0**-_BITS
    lost = 2.0 * _LOST * sigma * matrix.prefix_deviation
    noise = _farthest(FAILURE, [cells] * width) * sigma * matrix.deviation(zero, zero + OCTAVE)
    return (noise + lost) / (1.0 - _HELD)


def _farthest(failure: Fraction, counts: Sequence[int]) -> float:
    """Return z: no interval of any column has noise beyond so many deviations, but for the chance `failure`.

    `counts` has the number of cells of each column.
    """
    return -NormalDist().inv_cdf(float(failure) / max(1, sum(cells * (cells + 1) // 2 for cells in counts)))


def _ascending(sums: Doubles) -> Doubles:
    """Return the least-squares fit of ascending numbers >= 0."""
    from scipy.optimize import isotonic_regression

    fitted: NDArray[np.float64] = isotonic_regression(sums).x
    return np.maximum(fitted, 0.0)


def column_losses(squared_mu: Fraction, width: int, *, last: bool) -> list[Fraction]:
    """Return the share of ``mu**2`` for the bounds of each column.

    Parameters
    ----------
    squared_mu : Fraction
        For all columns.
    width : int
        Number of columns.
    last : bool
        Whether the last column is the target, which every model needs: it gets `TARGET_WEIGHT` times as much as another
        column.
    """
    weights = [Fraction(1)] * width
    if last:
        weights[-1] = TARGET_WEIGHT
    share = squared_mu / sum(weights)
    return [weight * share for weight in weights]


def draw_bounds(
    part: GaussianNoise,
    share: str,
    counts: Sequence[Longs],
    cells: Sequence[TypedCells],
    *,
    last: bool = False,
    losses: Sequence[Fraction] | None = None,
    neighbours: str,
    max_rows_per_unit: int,
) -> list[ColumnBounds]:
    """Return the intervals for a share of Gaussian noise; see `prefix_bounds`.

    `column_losses`, or `losses`, gives the share of ``mu**2`` of each column.

    Raises
    ------
    InternalError
        I034: `losses` add up to more than the share.
    """
    if not counts:
        return []
    most = part.spend(share) ** 2
    losses = column_losses(most, len(counts), last=last) if losses is None else losses
    if sum(losses) > most:
        raise InternalError("I034", f"{part.name} was to spend more than its share. Report it.")
    return prefix_bounds(
        counts,
        cells,
        squared_mus=losses,
        neighbours=neighbours,
        max_rows_per_unit=max_rows_per_unit,
    )


# Means and deviations are multiples of this.
_RESOLUTION = 2.0**-40
# Public bounds so many deviations from the mean are far wider than the bulk of the values.
_WIDE = 8.0
# Integer rows within public bounds do not resolve a deviation below this share of a half width.
_FINEST = 2.0**-14
# A variance is known if it is this many times its noise.
_SURE = 4.0
# Ends within public bounds need rows of at least so many deviations of a prefix sum; they get more noise if the rows
# stay above the second number.
LEAST_SEEN, _WELL_SEEN = 8.0, 256.0
_FACTORS = tuple(Fraction(1, 4**power) for power in range(4))


def far_bounds(standard: Standard, positions: Iterable[int]) -> list[int]:
    """Return the features whose public bounds are far wider than their values, by the release."""
    far = 1.0 + np.abs(standard.mean) > _WIDE * standard.deviation
    far |= standard.deviation**2 <= _SURE * standard.noise
    return [position for position in positions if far[position]]


def rows_over_noise(
    rows: float, squared_mu: Fraction, cells: TypedCells, neighbours: str, max_rows_per_unit: int
) -> float:
    """Return the rows in deviations of a prefix sum, at this share of ``mu**2`` for a column."""
    matrix = PrefixMatrix.of(cells.count)
    squared = squared_l2_sensitivity(neighbours, max_rows_per_unit=max_rows_per_unit) * matrix.squared
    sigma = math.sqrt(squared / min(squared_mu, _LARGEST_SQUARED_MU)) * 2.0**-_BITS
    return rows / (sigma * matrix.prefix_deviation)


def ends_factor(
    rows: float,
    squared_mus: Sequence[Fraction],
    cells: Sequence[TypedCells],
    neighbours: str,
    max_rows_per_unit: int,
    *,
    least: float = LEAST_SEEN,
) -> Fraction:
    """Return the share of some ``mu**2`` for ends within public bounds: as little as the rows allow; maybe 0.

    Only `rows`, the released number of rows, decides. There are no ends if the rows are fewer than `least`
    deviations of a prefix sum.
    """
    factor_used = Fraction(0)
    for factor in _FACTORS:
        over = (
            rows_over_noise(rows, loss * factor, column, neighbours, max_rows_per_unit)
            for loss, column in zip(squared_mus, cells, strict=True)
        )
        if min(over, default=0.0) < (_WELL_SEEN if factor_used else least):
            break
        factor_used = factor
    return factor_used


def _helps(standard: Standard, position: int, pair: Interval, column: ColumnBounds) -> bool:
    """Whether a private spread is smaller than the spread from moments, given their noise."""
    wide = math.sqrt(standard.deviation[position] ** 2 + standard.noise) * (pair[1] / 2 - pair[0] / 2)
    return column.interval is not None and 0.0 < column.deviation < wide


def _respread(standard: Standard, pairs: Sequence[Interval], by_position: Mapping[int, ColumnBounds]) -> Standard:
    """Return means and deviations in half widths of some bounds, with the private ones of some features."""
    mean, deviation = standard.mean.copy(), standard.deviation.copy()
    weight = None if standard.weight is None else standard.weight.copy()
    for position, column in by_position.items():
        low, high = pairs[position]
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        mean[position] = np.clip(np.rint((column.mean - middle) / half / _RESOLUTION) * _RESOLUTION, -1.0, 1.0)
        deviation[position] = np.clip(np.rint(column.deviation / half / _RESOLUTION) * _RESOLUTION, _RESOLUTION, 1.0)
        if weight is not None and standard.rows is not None:
            weight[position] = standard.rows
    return replace(standard, mean=mean, deviation=deviation, weight=weight)


def spread_within(
    standard: Standard, pairs: Sequence[Interval], by_position: Mapping[int, ColumnBounds]
) -> tuple[Standard, list[int]]:
    """Return means and deviations in half widths of public bounds, and the features with private values.

    Post-processing. Undetermined features stay, and so do features that cells resolve no better than moments, or
    integers in [-S, S] too coarsely.

    Parameters
    ----------
    standard : Standard
        In half widths of `pairs`, which are public.
    by_position : mapping
        Private ends.
    """
    helping = {
        position: column
        for position, column in by_position.items()
        if _helps(standard, position, pairs[position], column)
        and column.deviation > _FINEST * (pairs[position][1] / 2 - pairs[position][0] / 2)
    }
    return _respread(standard, pairs, helping), list(helping)


def narrowed(
    standard: Standard, pairs: Sequence[Interval], by_position: Mapping[int, ColumnBounds]
) -> tuple[Standard, list[Interval]]:
    """Return means and deviations as `spread_within`, in half widths of the bounds, and these bounds."""
    bounds, helping = list(pairs), {}
    for position, column in by_position.items():
        ends = within(column, pairs[position])
        if ends is not None and _helps(standard, position, pairs[position], column):
            bounds[position], helping[position] = ends, column
    return _respread(standard, bounds, helping), bounds


def within(column: ColumnBounds, pair: Interval) -> Interval | None:
    """Return private bounds within public bounds; None if they do not overlap."""
    if column.interval is None:
        return None
    low, high = (min(max(end, pair[0]), pair[1]) for end in column.interval)
    return (low, high) if low < high else None


def released_standard(
    moments: Integers,
    *,
    squared_mu: Fraction,
    neighbours: str,
    max_rows_per_unit: int = 1,
    reach: Sequence[float] = (),
    least_rows: float = 0.0,
    source: BitSource = SYSTEM,
) -> Standard:
    """Release means and standard deviations of features.

    Parameters
    ----------
    moments : ndarray of Python ints, shape (1 + 2 p,)
        Exact, `dpsql.statistics.gram.ColumnMoments.total`; p >= 1.
    squared_mu : Fraction
        The share of ``mu**2`` spent here, > 0.
    neighbours : {'add_remove', 'replace'}
    max_rows_per_unit : int
        Rows that one privacy unit may have, >= 1.
    reach : sequence of float
        Largest distance of each feature's bounds from the mean in deviations, > 0: no value within them is clipped.
        Infinite if values may be clipped, as by default. Public.
    least_rows : float
        If the noisy rows are fewer than so many standard deviations of the noise, means are 0 and deviations 1: they
        would be noise.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    standard : Standard
        Means in [-1, 1], and deviations in (0, 1]: at least the deviation that noise alone gives a constant, so that
        scaling does not blow up a noisy feature. A finite `reach` may raise a feature's deviation, even above 1.
        Depends on noisy and public numbers alone.

    Notes
    -----
    - **Guarantee**: mu-GDP with ``mu**2 = squared_mu``, in the sense of `gaussian_mu`.
    - **Neighbouring relation**: `neighbours`, of privacy units with at most `max_rows_per_unit` rows.
    - **Sensitivity**: L2, `dpsql.statistics.regression.moments_sensitivity`.
    - **Randomness**: exact integer sampler, operating-system entropy, no seed.
    - **Assumes**: rows mapped to [-1, 1] one by one.
    - **Does not protect**: running time; p, which is public.
    """
    features = len(moments) // 2
    release = gaussian_release(
        moments,
        sensitivity=moments_sensitivity(neighbours, features, max_rows_per_unit),
        squared_mu=squared_mu,
        source=source,
    )
    values, sigma = release.values / UNIT, release.sigma / UNIT
    rows = max(float(values[0]), 1.0)
    mean = np.clip(values[1 : 1 + features] / rows, -1.0, 1.0)
    variance = values[1 + features :] / rows + 0.5 - mean**2
    noise = min(1.0, 2.0 * sigma / rows)
    deviation = np.sqrt(np.clip(variance, noise, 1.0))
    if rows < least_rows * sigma:
        mean, deviation, variance = np.zeros_like(mean), np.ones_like(mean), np.ones_like(mean)
        noise = 0.0
    mean, deviation = (np.rint(statistic / _RESOLUTION) * _RESOLUTION for statistic in (mean, deviation))
    deviation = np.maximum(deviation, _RESOLUTION)
    if len(reach):
        # A step more than needed, so that no rounding of the limits clips.
        least = (np.ceil((1.0 + np.abs(mean)) / np.asarray(reach) / _RESOLUTION) + 1.0) * _RESOLUTION
        deviation = np.maximum(deviation, least)
    weight = rows * np.clip(variance, 0.0, 1.0) / np.square(deviation)
    return Standard(mean, deviation, weight, rows, noise)
