"""The Gram statistics of best-subset selection, and the sensitivity of a subset's score.

Units: features ``x`` and target ``y`` are integers in ``[-S, S]`` (`fixed_point`), so ``G = X'X``,
``h = X'y`` and ``c = y'y`` are exact integers in units of ``S**2``. A score is in units of 1, with
data in [-1, 1].

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

The ridge does not depend on the data, so it does not affect the bounds. Without the ball the change of
the residual sum of squares has no bound: coefficients that fit the old rows may miss the new one by
any amount.

A column that is in every subset, such as an intercept, counts in s, because its coefficient is also in
the ball.

Scores are computed with rounding errors. If each lies within an interval of public width w around the
true score, errors change a difference by at most w up or down, hence the ranges below.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Integers
from dpsql.contract.fold import Batch, Fold, field, numbers, record
from dpsql.contract.relation import relation_of
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, quantise
from dpsql.kernels.gram import GramAccumulator


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
