"""Compute the statistics of linear regression, and their sensitivities.

A row is ``q = (S, q_1, …, q_d)``, integers in units where ``S = 2**20`` (`fixed_point`) is 1, with an intercept of
exactly S and features whose norm was clipped (`dpsql.kernels.gram`). ``sum q_j**2 <= R**2`` holds exactly for
the public integer R. The target t, and a clipped residual, is an integer in [-S, S]. So ``G = sum q q'`` and ``h = sum
q t`` are exact integers in units of ``S**2``.

Standardised rows are multiples of ``1 / s``, s = floor(S / 3), so that three deviations stay within S. A feature is
clipped there, or it is *whole*: then a row in which it is farther from the mean is multiplied by ``S / |q_j|``, for the
largest one, and truncated. If a row is longer than R = s sqrt(1 + d), all of it is multiplied by ``R / ||q||`` and
truncated. Both shorten the intercept and the target, too: the row weighs less in the least squares, by the square of
the factor, and no feature is clipped. Norms and targets keep their bounds.

Sensitivities, with a unit of at most m rows:

==================  =============  =================  ==========================================================
statistic           add_remove     replace            why
==================  =============  =================  ==========================================================
G, Frobenius norm   m R^2          sqrt(2) m R^2      below
least eigenvalue    m R^2          m R^2              below
h, L2 norm          m R S          2 m R S            each row adds a vector of norm ``||q|| |t| <= R S``
==================  =============  =================  ==========================================================

Replacing removes the sum A of at most m matrices ``q q'``, and adds the sum B of at most m. Each ``q q'`` has Frobenius
norm ``||q||**2 <= R**2``, and A and B are positive semidefinite, so that ``trace(A B) >= 0`` and ``||A - B||**2 =
||A||**2 + ||B||**2 - 2 trace(A B) <= 2 (m R**2)**2``. Add_remove is the case B = 0. Both A and B have eigenvalues in
[0, m R^2], hence the least eigenvalues of G' + A and of G' + B are both between the least eigenvalue of G' and m R^2
more (Weyl): they differ by at most m R^2.

For two rows the identity is ``||q||**4 + ||z||**4 - 2 (q'z)**2``: orthogonal rows attain sqrt(2) R^2.

G is symmetric. The release has its upper triangle, and entries off the diagonal count twice in the norm.

**Gram statistics** of best-subset selection, column moments and error sums. Features ``x`` and target ``y`` are
integers in ``[-S, S]`` (`fixed_point`), so ``G = X'X``, ``h = X'y`` and ``c = y'y`` are exact integers in units of
``S**2``. A score is in units of 1, with data in [-1, 1].

The score of a subset A of s columns is the constrained residual sum of squares::

    R(A) = min over ||b||_2 <= r of  ||y - X_A b||^2 + ridge ||b||^2

with the radius r and the ridge public and independent of the data and of the number of rows.

Sensitivity of every score, with ``Delta = (1 + r sqrt(s))**2`` and a unit of at most m rows:

==============  =====================  =================================================
relation        R(A) moves by          why
==============  =====================  =================================================
add_remove      [0, m Delta], upwards  a row adds ``(y - x_A'b)^2``, which lies in
                                       [0, Delta] for every b in the ball: ``|y| <= 1``
                                       and ``|x_A'b| <= ||x_A|| ||b|| <= r sqrt(s)``. So
                                       the minimum over b rises by a number in [0, Delta]
replace         |change| <= m Delta    up to m rows fewer, then up to m rows more:
                                       two changes of opposite sign
==============  =====================  =================================================

The ridge does not depend on the data, so it does not affect the bounds. Without the ball the change of the residual sum
of squares has no bound: coefficients that fit the old rows may miss the new one by any amount.

A column that is in every subset, such as an intercept, counts in s, because its coefficient is also in the ball.

Scores are computed with rounding errors. If each lies within an interval of public width w around the true score,
errors change a difference by at most w up or down, hence the ranges below.

`ColumnMoments` are sums of features and of their squares, without products of two features. A feature is an integer
``q_i`` in ``[-S, S]`` (`fixed_point`), 0 if it is NULL or NaN, ``z_i = q_i / S``, and p is the number of features. A
row adds::

    f(z) = (1,  z_1 … z_p,  z_1**2 - 1/2 … z_p**2 - 1/2)

The released integers are ``2 S**2`` times the sum of f: ``2 S**2`` for each row, ``2 S q_i`` and ``2 q_i**2 - S**2``.
Squared L2 sensitivities in units of f, with a unit of at most m rows:

================  ========
add_remove        replace
================  ========
m**2 (1 + 5 p/4)  4 m**2 p
================  ========

*One row.* With ``t = z_i**2`` each feature adds ``t + (t - 1/2)**2``, which is convex in t and at most 5/4, at t = 1. A
unit adds at most m such rows: the triangle inequality.

*A row for another.* A replacement removes k rows and adds k'. They form min(k, k') pairs, and the remaining rows have
squared norms of at most ``1 + 5 p/4 <= 4 p``. In a pair each feature adds ``(z - z')**2 (1 + (z + z')**2)``. With ``u =
|z + z'|`` and ``v = |z - z'| <= 2 - u`` this is at most ``(2 - u)**2 (1 + u**2)``, which is 4 at u = 0 and falls up to
u = 2: its derivative is ``-2 (2 - u) (1 - 2 u + 2 u**2)``. Rows of corners attain both bounds.

`ErrorSums` are sums of a target and of the errors of its prediction, for dp_regression_metrics. Target t and prediction
are integers in ``[-S, S]`` by the same public bounds (`fixed_point`). The error e is their difference, clipped to a
public bound B. So the sums of ``1, t, t**2, e**2, abs(e)`` are exact integers. A row adds 1, a term in [-S, S], and
terms from 0 to ``S**2``, ``B**2`` and B; see `sensitivities`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Integers
from dpsql.contract.fold import Batch, Fold, KeptRows, field, numbers, record
from dpsql.contract.relation import Relation, relation_of
from dpsql.dataclass import dataclass
from dpsql.kernels.cells import GridCounts, TypedCells
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, WideSums, affine_map, quantise
from dpsql.kernels.gram import ClippedRows, GramAccumulator, clip_rows
from dpsql.kernels.xty import BLOCK_ROWS
from dpsql.statistics.counts import MagnitudeHistogram

# Cells of the target's histogram, from which the scale of the residuals is drawn.
CELLS = 256
# Standardised features are clipped to this many deviations from the mean. The unit of one deviation keeps clipped
# features within S.
DEVIATIONS = 3
STANDARD_ONE = FIXED_POINT_ONE // DEVIATIONS
# Boosting clips the target to 256 times the residual bound.
FARTHEST_TARGET = 256 * FIXED_POINT_ONE
# Rows of one product, and rows whose products fit an int64.
_ROUND_ROWS, _INT64_ROWS = 1 << 16, 1 << 22


def largest_norm(features: int, longest: int | None = None, denominator: int = FIXED_POINT_ONE) -> int:
    """Return the smallest integer R that bounds the norm of a row, its intercept included.

    Parameters
    ----------
    features : int
        d, >= 0.
    longest : int or None
        Bound on the norm of a row's features, >= 0; None if each is at most `denominator`.
    denominator : int
        The integer for 1, and the first entry of every row.
    """
    squared = features * denominator**2 if longest is None else longest**2
    return 1 + math.isqrt(denominator**2 + squared - 1)


def standard_radius(features: int) -> int:
    """Return R for standardised rows: the norm of an intercept and one deviation in each feature, rounded down."""
    return math.isqrt((1 + features) * STANDARD_ONE**2)


def gram_sensitivity(neighbours: str, radius: int, max_rows_per_unit: int = 1) -> int:
    """Return the sensitivity of G in Frobenius norm, in units of ``S**2``, rounded up.

    Parameters
    ----------
    neighbours : {'add_remove', 'replace'}
    radius : int
        R, >= 1: bound on the norm of a row, in units where S is 1.
    max_rows_per_unit : int
        Largest number of rows of one privacy unit, >= 1.
    """
    squared = relation_of(neighbours, max_rows_per_unit).squared_norm(radius**4, opposing=False)
    return 1 + math.isqrt(squared - 1)


def least_eigenvalue_sensitivity(neighbours: str, radius: int, max_rows_per_unit: int = 1) -> int:
    """Return the sensitivity of the least eigenvalue of G, in units of ``S**2``.

    Parameters
    ----------
    neighbours, radius, max_rows_per_unit
        As for `gram_sensitivity`.
    """
    return relation_of(neighbours, max_rows_per_unit).rise(radius**2)


def cross_sensitivity(neighbours: str, radius: int, max_rows_per_unit: int = 1) -> int:
    """Return the L2 sensitivity of ``sum q t``, in units of ``S**2``; parameters as for `gram_sensitivity`."""
    return relation_of(neighbours, max_rows_per_unit).norm(radius * FIXED_POINT_ONE)


@dataclass(frozen=True)
class Scales:
    """The maps of features and target to [-1, 1]: middles, and scales from column units to integers where S is 1."""

    middle: NDArray[np.float64]
    scale: NDArray[np.float64]
    target_middle: float
    target_scale: float


@dataclass(frozen=True)
class Standard:
    """Released means and standard deviations of features in [-1, 1]; public parameters of a map of rows.

    Attributes
    ----------
    mean, deviation : ndarray of float64, shape (d,)
        The deviations are > 0.
    weight : ndarray of float64, shape (d,), optional
        Rows times the variance in units of the deviation, with noise: the feature is like this many rows at one
        deviation from the mean.
    rows : float, optional
        Rows, with noise.
    noise : float
        Two standard deviations of the noise in a squared deviation; 0 if not known.
    """

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    weight: NDArray[np.float64] | None = None
    rows: float | None = None
    noise: float = 0.0

    def of(self, features: Sequence[int]) -> Standard:
        """Return some features' numbers."""
        chosen = list(features)
        weight = None if self.weight is None else self.weight[chosen]
        return replace(self, mean=self.mean[chosen], deviation=self.deviation[chosen], weight=weight)


@dataclass(frozen=True)
class RowMap:
    """The map from features to the integers of a row: scaled to [-1, 1], maybe standardised, then clipped in norm.

    A standardised row that is too long, or in which a whole feature is too large, is scaled down with its intercept and
    its target. So it counts less, as a row in weighted least squares does, and a linear model stays the same. If
    `longest` is given, the features alone are shortened.

    Attributes
    ----------
    scales : Scales
    longest : int or None
        Largest norm of the features of a row, in units of `denominator`; None if they are not shortened by
        themselves.
    standard : Standard or None
        Rows in deviations from the mean, with `STANDARD_ONE` for 1, the intercept included; None for rows in half
        widths of the bounds, with S for 1.
    unclipped : ndarray of bool, shape (d,), or None
        Which features are not clipped when they are standardised; None if all are. Public, or by released numbers.
    """

    scales: Scales
    longest: int | None = None
    standard: Standard | None = None
    unclipped: NDArray[np.bool_] | None = None

    @property
    def denominator(self) -> int:
        """The integer for 1: the intercept."""
        return FIXED_POINT_ONE if self.standard is None else STANDARD_ONE

    def standardised(self, standard: Standard) -> RowMap:
        """Return the map to standardised rows, as long as d features at one deviation each."""
        return replace(self, standard=standard)

    @property
    def radius(self) -> int:
        """R: the bound on the norm of a row, intercept included."""
        count = len(self.scales.middle)
        if self.standard is not None and self.longest is None:
            return standard_radius(count)
        return largest_norm(count, self.longest, self.denominator)

    @property
    def columns(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Zero points of features, and integers per unit: middles and slopes, each of shape (d,)."""
        scales, standard = self.scales, self.standard
        if standard is None:
            return scales.middle, scales.scale
        middle = scales.middle + standard.mean * FIXED_POINT_ONE / scales.scale
        return middle, scales.scale / FIXED_POINT_ONE / standard.deviation * STANDARD_ONE

    @property
    def ends(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bounds of features, integers in [-S, S], each of shape (d,): all, or so many deviations."""
        limit = np.full(len(self.scales.middle), float(FIXED_POINT_ONE))
        if self.standard is None:
            return -limit, limit
        mean, reach = self.standard.mean * FIXED_POINT_ONE, self._farthest() * self.standard.deviation * FIXED_POINT_ONE
        return np.maximum(-limit, np.floor(mean - reach)), np.minimum(limit, np.ceil(mean + reach))

    def counted(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> list[tuple[float, float]]:
        """Return the intervals that clip features with these bounds, maybe at deviations from the mean."""
        standard, middle, unit = self.standard, self.scales.middle, FIXED_POINT_ONE / self.scales.scale
        if standard is not None:
            reach = self._farthest() * standard.deviation
            low = np.maximum(low, middle + (standard.mean - reach) * unit)
            high = np.minimum(high, middle + (standard.mean + reach) * unit)
        return list(zip(low.tolist(), high.tolist(), strict=True))

    def _farthest(self) -> NDArray[np.float64]:
        """Return the most deviations of a feature from the mean: infinitely many if it is whole."""
        if self.unclipped is None or self.longest is not None:
            return np.full(len(self.scales.middle), float(DEVIATIONS))
        return np.where(self.unclipped, math.inf, DEVIATIONS)

    def in_deviations(self, quantised: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return quantised features in deviations from the mean, as multiples of ``1 / STANDARD_ONE``."""
        standard = self.standard
        if standard is None:
            return quantised
        deviations = quantised / FIXED_POINT_ONE - standard.mean
        deviations /= standard.deviation
        reach = self._farthest()
        np.clip(deviations, -reach, reach, out=deviations)
        deviations *= STANDARD_ONE
        np.floor(np.add(deviations, 0.5, out=deviations), out=deviations)
        return deviations

    def quantised(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return features of shape (d, rows) as integers in [-S, S], shape (rows, d), NaN if missing."""
        values = np.array(features.T, order="C")  # a copy for quantising in place
        missing = np.isnan(values)
        quantised = quantise(values, self.scales.middle, self.scales.scale)
        if missing.any():
            quantised[missing] = np.nan
        return quantised

    def matrix(self, quantised: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the rows of quantised features, shape (rows, 1 + d), and the factors of their targets.

        A missing feature is 0: the middle of the bounds, or the mean.
        """
        rows, count = quantised.shape
        matrix = np.empty((rows, 1 + count))
        matrix[:, 0] = self.denominator
        matrix[:, 1:] = np.nan_to_num(self.in_deviations(quantised))
        if self.longest is not None:
            features = np.ascontiguousarray(matrix[:, 1:])
            clip_rows(features, self.longest)
            matrix[:, 1:] = features
        elif self.standard is not None:
            factors = np.ones(rows) if self.unclipped is None else _within_one(matrix)
            return matrix, factors * clip_rows(matrix, self.radius)
        return matrix, np.ones(rows)


def _within_one(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale rows down in place so that no entry exceeds S, for exact products, and return the factors."""
    largest = np.abs(matrix).max(axis=1, initial=1.0)
    factors: NDArray[np.float64] = np.minimum(1.0, FIXED_POINT_ONE / largest)
    long = np.flatnonzero(factors < 1.0)
    matrix[long] = np.clip(np.trunc(matrix[long] * factors[long, None]), -FIXED_POINT_ONE, FIXED_POINT_ONE)
    return factors


class _Products(Fold):
    """Exact products of all columns, added up over rows."""

    _sums: GramAccumulator

    @property
    def size(self) -> int:
        """Bytes of the products."""
        return self._sums.size

    def state(self) -> pa.RecordBatch:
        """Return the number of rows and the products, row by row."""
        return record({"rows": [self._sums.rows], "products": self._sums.sums.column()})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other products."""
        self._sums.add_sums(int(numbers(state, "rows")[0]), field(state, "products"))


class RowProducts(_Products):
    """Exact products of intercept, features and target: G, h and the target's sum of squares, in units of ``S**2``.

    Parameters
    ----------
    mapped : RowMap
    target : pair of float
        Public or released bounds of the target, as in `mapped`.
    """

    def __init__(self, mapped: RowMap, target: tuple[float, float]) -> None:
        self._mapped = mapped
        self._sums = GramAccumulator(len(mapped.scales.middle) + 2)

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add the products of a batch of rows."""
        scales = self._mapped.scales
        matrix, weights = self._mapped.matrix(self._mapped.quantised(features))
        values = quantise(target.copy(), scales.target_middle, scales.target_scale)
        self._sums.add(np.column_stack((matrix, np.trunc(values * weights))))

    def products(self) -> Integers:
        """Return the products, shape (d + 2, d + 2)."""
        return self._sums.total()


def boosted_rows(
    mapped: RowMap, scales: Scales, quantised: NDArray[np.float64], target: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the rows of boosting, shape (rows, 1 + d), and their targets: integers within `FARTHEST_TARGET`."""
    matrix, weights = mapped.matrix(quantised)
    with np.errstate(over="ignore", invalid="ignore"):
        moved = (target - scales.target_middle) * scales.target_scale
    np.clip(moved, -FARTHEST_TARGET, FARTHEST_TARGET, out=moved)
    return matrix, np.nan_to_num(np.floor(moved * weights + 0.5))


class QuantisedMagnitudes(MagnitudeHistogram):
    """Histograms of the magnitudes of some features, from their integers, and then of the target.

    The integers, and so the cells, depend on each row alone, and stay the same for stored rows. Sensitivities are as in
    `MagnitudeHistogram`.

    Parameters
    ----------
    mapped : RowMap
        The map to [-1, 1].
    cells : mapping
        The cells of each of these features, by position.
    target : TypedCells or None
        The cells of the target; None if it is not counted.
    bounds : (float, float)
        Public bounds of the target.
    """

    def __init__(
        self,
        mapped: RowMap,
        cells: Mapping[int, TypedCells],
        target: TypedCells | None = None,
        bounds: tuple[float, float] = (-math.inf, math.inf),
    ) -> None:
        super().__init__(len(cells), target=target is not None)
        self._given = mapped, cells, target, bounds

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows."""
        self.add_quantised(self._given[0].quantised(features), target)

    def add_quantised(self, quantised: NDArray[np.float64], target: NDArray[np.float64]) -> None:
        """Add quantised rows of shape (rows, d), and their target."""
        mapped, cells, of_target, bounds = self._given
        coded = np.empty((len(cells) + (of_target is not None), len(target)))
        for row, (position, of) in enumerate(cells.items()):
            scale = mapped.scales.scale[position]
            values = mapped.scales.middle[position] + quantised[:, position] / scale
            values[np.abs(values) < 0.5 / scale] = 0.0  # no integer is exactly 0
            coded[row] = of.coded(values if of.digits is None else np.rint(values / of.step) * of.step)
        if of_target is not None:
            coded[-1] = of_target.coded(np.clip(target, *bounds))
        self.cells.add(coded)


class RoundProducts(Fold):
    """The exact residual products of one round of boosting, and before the first one the Gram matrix.

    Sums of integers, row by row the same as for stored rows (`dpsql.kernels.gram`): so a pass over the rows for
    every round has the sensitivity of `cross_sensitivity`, for any part of the rows in a worker.

    Parameters
    ----------
    mapped : RowMap
    scales : Scales
        Residuals have the target's scale.
    coefficients : ndarray of float64, shape (1 + d,)
        Released.
    first : bool
        Whether to compute the Gram matrix, too.
    """

    def __init__(self, mapped: RowMap, scales: Scales, coefficients: NDArray[np.float64], *, first: bool) -> None:
        self._given = mapped, scales, coefficients
        self._rows = 0
        self._products = WideSums((len(coefficients),))
        self._gram = GramAccumulator(len(coefficients)) if first else None

    @property
    def size(self) -> int:
        """Bytes of the sums."""
        return 2 * self._products.low.nbytes + (0 if self._gram is None else self._gram.size)

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add the products of a batch of rows."""
        mapped, scales, coefficients = self._given
        for start in range(0, len(target), _ROUND_ROWS):
            some = slice(start, start + _ROUND_ROWS)
            matrix, moved = boosted_rows(mapped, scales, mapped.quantised(features[:, some]), target[some])
            rows = ClippedRows(len(coefficients), threads=0)
            rows.add(matrix, moved)
            self._products.add(rows.residual_products(coefficients).astype(np.int64))
            self._rows += len(moved)
            if self._gram is not None:
                self._gram.add(matrix)

    def products(self) -> Integers:
        """Return the residual products, shape (1 + d,): int64 if they fit, else Python ints."""
        return self._products.total(np.int64 if self._rows < _INT64_ROWS else object)

    def gram(self) -> Integers:
        """Return the Gram matrix of the first round."""
        if self._gram is None:
            raise TypeError("only the first round has the Gram matrix")
        return self._gram.total()

    def state(self) -> pa.RecordBatch:
        """Return the number of rows and the sums."""
        gram = {} if self._gram is None else {"gram": self._gram.sums.column()}
        return record({"rows": [self._rows], "products": self._products.column(), **gram})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other sums."""
        rows = int(numbers(state, "rows")[0])
        self._rows += rows
        self._products.absorb(field(state, "products"))
        if self._gram is not None:
            self._gram.add_sums(rows, field(state, "gram"))


class StoredRows(KeptRows):
    """The rows that boosting reads in every round, with the target's histogram.

    Parameters
    ----------
    mapped : RowMap
        The map to [-1, 1]. `boosted` and `given_up` clip norms and standardise rows.
    target : pair of float
        Bounds of the target, for its histogram. The target is stored unscaled: its scale is not known yet.

    Attributes
    ----------
    cells : GridCounts
        Rows per cell of the target.
    """

    def __init__(self, mapped: RowMap, target: tuple[float, float]) -> None:
        self._mapped = mapped
        self.cells = GridCounts(*target, CELLS)
        self._batches: list[tuple[NDArray[np.float32], NDArray[np.float64]]] = []

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows."""
        self.cells.add(target)
        # Exact in single precision: the integers have at most 21 bits.
        self._batches.append((self._mapped.quantised(features).astype(np.float32), target))

    def merge(self, other: StoredRows) -> None:
        """Append the rows of another collection."""
        self.cells.add_counts(other.cells.counts)
        self._batches += other._batches

    def quantised(self) -> Iterator[NDArray[np.float64]]:
        """Yield the features of each batch, shape (rows, d), as `RowMap.quantised` returns them."""
        return (features.astype(np.float64) for features, _ in self._batches)

    def boosted(self, mapped: RowMap, scales: Scales) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Yield batches of mapped rows and their targets."""
        return (boosted_rows(mapped, scales, rows.astype(np.float64), target) for rows, target in self._batches)

    def magnitudes(self, histogram: QuantisedMagnitudes) -> QuantisedMagnitudes:
        """Count the magnitudes of these rows in a histogram, and return it."""
        for features, target in self._batches:
            histogram.add_quantised(features.astype(np.float64), target)
        return histogram

    def drained(self) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Yield batches as `quantised` does, with their targets, and free each batch."""
        while self._batches:
            features, target = self._batches.pop()
            yield features.astype(np.float64), target

    def given_up(self, mapped: RowMap, scales: Scales) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Yield batches of mapped rows and their targets, and free each batch."""
        for features, target in self.drained():
            yield boosted_rows(mapped, scales, features, target)


# Units of one row in the released integers.
UNIT = 2 * FIXED_POINT_ONE**2


def moments_sensitivity(neighbours: str, features: int, max_rows_per_unit: int = 1) -> int:
    """Return the L2 sensitivity of all sums together, in the unit of the released integers, rounded up.

    Parameters
    ----------
    neighbours : {'add_remove', 'replace'}
    features : int
        p, >= 1.
    max_rows_per_unit : int
        Largest number of rows of one privacy unit, >= 1.
    """
    relation = relation_of(neighbours, max_rows_per_unit)
    squared = relation.pick(1 + Fraction(5 * features, 4), Fraction(4 * features))
    return 1 + math.isqrt(math.ceil((UNIT * max_rows_per_unit) ** 2 * squared) - 1)


class ColumnMoments(Fold):
    """Exact sums of features and of their squares.

    Parameters
    ----------
    mapped : RowMap
        The map from features to integers, which neither shortens nor standardises rows.
    """

    def __init__(self, mapped: RowMap) -> None:
        self._mapped = mapped
        self._rows = 0
        self._sums = WideSums((2, len(mapped.scales.middle)))

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows, without the target."""
        self.add_rows(self._mapped.quantised(features))

    def add_rows(self, quantised: NDArray[np.float64]) -> None:
        """Add quantised rows of shape (rows, p); NaN means NULL."""
        self._rows += len(quantised)
        for start in range(0, len(quantised), BLOCK_ROWS):
            block = np.nan_to_num(quantised[start : start + BLOCK_ROWS])
            # Sums of integers below 2**53: exact in any order.
            sums = np.stack([block.sum(axis=0), np.einsum("ij,ij->j", block, block)])
            self._sums.add(sums.astype(np.int64))

    def total(self) -> Integers:
        """Return ``2 S**2`` times the sum of f, as Python ints: rows, p sums and p squares."""
        sums, squares = self._sums.total()
        rows = np.array([self._rows], dtype=object)
        scale = FIXED_POINT_ONE
        return np.concatenate([rows * UNIT, 2 * scale * sums, 2 * squares - self._rows * scale**2])

    def state(self) -> pa.RecordBatch:
        """Return the number of rows and the sums."""
        return record({"rows": [self._rows], "sums": self._sums.column()})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other sums."""
        self._rows += int(numbers(state, "rows")[0])
        self._sums.absorb(field(state, "sums"))


def score_sensitivity(size: int, radius: Fraction) -> Fraction:
    """Return an upper bound on ``(1 + radius * sqrt(size))**2``, at most ``2**-60`` above it.

    Parameters
    ----------
    size : int
        Number of columns of a subset, >= 1, including columns that are in every subset.
    radius : Fraction
        Radius of the ball, >= 0, in units of the target per unit of a feature, both scaled to [-1, 1].
    """
    denominator = 1 << (62 + math.ceil(radius).bit_length())
    root = Fraction(1 + math.isqrt(size * denominator**2 - 1), denominator)
    return 1 + 2 * radius * root + radius**2 * size


def utility_range(
    neighbours: str, size: int, radius: Fraction, *, width: Fraction, max_rows_per_unit: int = 1
) -> Fraction:
    """Return the largest spread of the changes of all computed scores between neighbouring tables.

    Parameters
    ----------
    neighbours : {'add_remove', 'replace'}
    size, radius : int, Fraction
        As for `score_sensitivity`.
    width : Fraction
        Every computed score lies in an interval of this width around the true score.
    max_rows_per_unit : int
        Largest number of rows of one privacy unit, >= 1.
    """
    return relation_of(neighbours, max_rows_per_unit).spread(score_sensitivity(size, radius)) + 2 * width


class Gram(_Products):
    """Exact products of all columns: the intercept first, if there is one, and the target last.

    Parameters
    ----------
    maps : pair of ndarray of float64, shape (d,)
        Middles and scales of the features' affine maps.
    intercept : bool
    """

    def __init__(self, maps: tuple[NDArray[np.float64], NDArray[np.float64]], *, intercept: bool) -> None:
        self._maps = maps
        self._intercept = intercept
        self._sums = GramAccumulator(len(maps[0]) + 1 + intercept)

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add the products of a batch of rows, with the coded target."""
        middle, scale = self._maps
        matrix = np.empty((len(target), len(features) + 1 + self._intercept))
        matrix[:, self._intercept : -1] = quantise(features.T.copy(), middle, scale)
        matrix[:, -1] = target
        if self._intercept:
            matrix[:, 0] = FIXED_POINT_ONE
        self._sums.add(matrix)

    def total(self) -> Integers:
        """Return the products of all rows, in units of ``S**2``."""
        return self._sums.total()


def error_centres(relation: Relation, bound: int) -> tuple[int, int, int, int, int]:
    """Return the amounts that the five sums lose per row before noise.

    Parameters
    ----------
    relation : Relation
    bound : int
        B, in units where S is 1, >= 1.

    Notes
    -----
    A square in ``[0, B**2]`` less half of its bound has half the size, so half the noise, for an added or removed row.
    A replaced row moves both by the same.
    """
    halves = (0, 0, FIXED_POINT_ONE**2 // 2, bound**2 // 2, bound // 2)
    return relation.pick(halves, (0, 0, 0, 0, 0))


def sensitivities(relation: Relation, bound: int) -> tuple[int, int, int, int, int]:
    """Return the sensitivity of each of the five sums about their centres.

    Parameters
    ----------
    relation : Relation
    bound : int
        B, in units where S is 1, >= 1.
    """
    scale = FIXED_POINT_ONE
    _, _, *centres = error_centres(relation, bound)
    # A row adds a term in [0, most] less the centre c, so its size is at most max(c, most - c); under replace c is 0,
    # and each row raises the sum. Terms of t may have either sign.
    raised = [
        relation.rise(max(centre, most - centre))
        for centre, most in zip(centres, (scale**2, bound**2, bound), strict=True)
    ]
    return (relation.rise(1), relation.norm(scale), raised[0], raised[1], raised[2])


class ErrorSums(Fold):
    """The five sums.

    Parameters
    ----------
    lower, upper : float
        Public bounds of target and prediction.
    bound : int
        B, in units where S is 1.
    centres : tuple of int, length 5
        Loss of each sum per row, see `error_centres`; public.
    """

    def __init__(
        self, lower: float, upper: float, bound: int, centres: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    ) -> None:
        self._map = affine_map(lower, upper)
        self._bound, self._centres = bound, centres
        self._sums = WideSums((5,))

    def sensitivity(self, relation: Relation) -> tuple[int, int, int, int, int]:
        """Return the sensitivity of each sum about the centres of the relation."""
        return sensitivities(relation, self._bound)

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows. The prediction is the only feature; NULL counts as the middle of the bounds."""
        coded = quantise(target.copy(), *self._map).astype(np.int64)
        error = np.clip(coded - quantise(features[0].copy(), *self._map).astype(np.int64), -self._bound, self._bound)
        parts = [len(coded), *(part.sum() for part in (coded, coded**2, error**2, np.abs(error)))]
        self._sums.add(np.array(parts, dtype=np.int64))

    def sums(self) -> list[int]:
        """Return rows, t, t², e², abs(e), about their centres."""
        totals: list[int] = self._sums.total().tolist()
        return [total - centre * totals[0] for total, centre in zip(totals, self._centres, strict=True)]

    def state(self) -> pa.RecordBatch:
        """Return the sums."""
        return record({"sums": self._sums.column()})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other sums."""
        self._sums.absorb(field(state, "sums"))
