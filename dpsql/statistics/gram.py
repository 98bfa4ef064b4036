"""Define the Gram statistics of best-subset selection, column moments and error sums, and their sensitivities.

Features ``x`` and target ``y`` are integers in ``[-S, S]`` (`fixed_point`), so ``G = X'X``, ``h = X'y`` and ``c = y'y``
are exact integers in units of ``S**2``. A score is in units of 1, with data in [-1, 1].

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
from fractions import Fraction

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Integers
from dpsql.contract.fold import Batch, Fold, field, numbers, record
from dpsql.contract.relation import Relation, relation_of
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, WideSums, affine_map, quantise
from dpsql.kernels.gram import GramAccumulator
from dpsql.kernels.xty import BLOCK_ROWS
from dpsql.statistics.regression import RowMap

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


class Gram(Fold):
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

    @property
    def size(self) -> int:
        """Bytes of the products."""
        return self._sums.size

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

    def state(self) -> pa.RecordBatch:
        """Return the number of rows and the products, row by row."""
        return record({"rows": [self._sums.rows], "products": self._sums.sums.column()})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other products."""
        self._sums.add_sums(int(numbers(state, "rows")[0]), field(state, "products"))


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
