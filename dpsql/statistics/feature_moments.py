"""Compute sums of features, of their squares and of their products, and how far one privacy unit moves them.

A feature is an integer ``q_i`` in ``[-S, S]`` (`fixed_point`), ``z_i = q_i / S``, and p is the number of features.
Every sum excludes rows in which a feature is NULL or NaN. Any other row adds::

    f(z) = (1,  z_1 … z_p,  z_1**2 - 1/2 … z_p**2 - 1/2,  z_i z_j for i < j)

The released integers are ``2 S**2`` times the sum of f. For G, the exact products of the columns ``(S, q_1 … q_p)``,
they are ``2 G_00``, ``2 G_0i``, ``2 G_ii - G_00`` and ``2 G_ij``. So the rows are counted once for all moments, and
each product of two features is there once.

Sensitivities in units of f, with a unit of at most m rows:

==========  ==========================================  ==================================================
norm        add_remove                                  replace
==========  ==========================================  ==================================================
L2 squared  m**2 B,  B = 1 + p + p/4 + p (p-1)/2        m**2 D,  D = 4 floor((p+1)/2) ceil((p+1)/2)
L1          m B1,  B1 = 1 + p + p/2 + p (p-1)/2         m max(B1, D1),  D1 = p (p+2)**2 / (2 (p+1))
==========  ==========================================  ==================================================

m equal rows attain all bounds (but for the grid of z): added rows of corners; replaced rows of 1 … 1, in L2 by rows in
which half of them are -1, in L1 by rows of -1 / (p+1).

*One row.* In ``t_i = z_i**2`` its squared L2 norm ``1 + sum t_i + sum (t_i - 1/2)**2 + sum t_i t_j`` is convex in each
``t_i``, hence largest if every ``t_i`` is 0 or 1; with k ones it is ``1 + k + p/4 + k (k-1)/2``. In L1, each of ``|z_i|
+ |z_i**2 - 1/2|`` and ``|z_i z_j|`` is largest at ``|z_i| = 1``. A unit adds at most m such rows: the triangle
inequality.

*A row for another.* A replacement removes k rows and adds k'. They form min(k, k') pairs, and the remaining rows have
norms of at most sqrt(B) and B1; as B <= D, it suffices to bound pairs. With ``a = z + z'``, ``b = z - z'``, ``u_i =
|a_i|`` and ``v_i = |b_i|``, so that ``u_i + v_i <= 2``, the differences are ``b_i``, ``a_i b_i`` and ``(a_i b_j + a_j
b_i) / 2``.

In L1 they add up to at most ``sum v_i + sum u_i v_i + sum (u_i v_j + u_j v_i) / 2``, the last over i < j. This grows in
each ``u_i``, so let ``u_i = 2 - v_i``. With ``T = sum v_i`` it is ``(p+2) T - sum v_i**2 / 2 - T**2 / 2``, which by
``sum v_i**2 >= T**2 / p`` is at most ``(p+2) T - T**2 (p+1) / (2 p)``, hence at most D1.

In L2, ``|b|**2 + |a|**2 |b|**2 / 4 + (a'b)**2 / 4 + sum (a_i b_i)**2 / 2`` is their sum of squares. It grows in each
``u_i`` and ``v_i`` if ``(sum u_i v_i)**2`` replaces ``(a'b)**2``. Let ``v_i = 2 t`` and ``u_i = 2 - 2 t`` for one i,
and over the others ``X = sum v_j**2``, ``Y = sum u_j**2``, ``T = sum u_j v_j <= sqrt(X Y)``. The part that depends on t
is::

    g(t) = 4 t**2 + (1-t)**2 X + t**2 Y + 2 t (1-t) T + 16 t**2 (1-t)**2,      g(0) = X,  g(1) = 4 + Y

Let M be the larger of X and 4 + Y, and ``w = t (1-t) <= 1/4``. As ``sqrt(M (M-4)) <= M - 2``, it follows that ``g <= M
- 4 w + 16 w**2 <= M``. So every ``v_i`` is 0 or 2; if k of them are 2 the sum is ``4 k (1 + p - k) <= D``.
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
from dpsql.kernels.fixed_point import FIXED_POINT_BITS, FIXED_POINT_ONE, quantise
from dpsql.kernels.gram import GramAccumulator
from dpsql.kernels.xty import BLOCK_ROWS

# Units of one row in the released integers.
UNIT = 2 * FIXED_POINT_ONE**2
# The same after each sum was divided by ``2**FIXED_POINT_BITS`` and rounded down.
COARSE_UNIT = UNIT >> FIXED_POINT_BITS


def moments_length(features: int) -> int:
    """Return the length of the released vector: 1 + p + p + p (p - 1) / 2."""
    return 1 + 2 * features + math.comb(features, 2)


def squared_l2_sensitivity(neighbours: str, features: int, max_rows_per_unit: int = 1) -> Fraction:
    """Return the squared L2 sensitivity of all moments together, in rows squared.

    Parameters
    ----------
    neighbours : {'add_remove', 'replace'}
    features : int
        p, >= 1.
    max_rows_per_unit : int
        Largest number of rows of one privacy unit, >= 1.
    """
    added = 1 + Fraction(5 * features, 4) + math.comb(features, 2)
    replaced = Fraction(4 * ((features + 1) // 2) * ((features + 2) // 2))
    return max_rows_per_unit**2 * relation_of(neighbours, max_rows_per_unit).pick(added, replaced)


def l1_sensitivity(neighbours: str, features: int, max_rows_per_unit: int = 1) -> Fraction:
    """Return the L1 sensitivity of all moments together, in rows; for parameters see `squared_l2_sensitivity`."""
    added = 1 + Fraction(3 * features, 2) + math.comb(features, 2)
    pair = Fraction(features * (features + 2) ** 2, 2 * (features + 1))
    return max_rows_per_unit * relation_of(neighbours, max_rows_per_unit).pick(added, max(added, pair))


def coarse_l1_sensitivity(neighbours: str, features: int, max_rows_per_unit: int = 1) -> Fraction:
    """Return the L1 sensitivity of the moments in `COARSE_UNIT`: rounding down moves each number by one more."""
    return COARSE_UNIT * l1_sensitivity(neighbours, features, max_rows_per_unit) + moments_length(features)


class CompleteProducts(Fold):
    """Exact products of a constant S and all features, over the rows in which no feature is NULL or NaN.

    Parameters
    ----------
    maps : pair of ndarray of float64, shape (p,)
        Middles and scales of the features' affine maps.
    """

    def __init__(self, maps: tuple[NDArray[np.float64], NDArray[np.float64]]) -> None:
        self._maps = maps
        self._sums = GramAccumulator(len(maps[0]) + 1)

    @property
    def size(self) -> int:
        """Bytes of the products."""
        return self._sums.size

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add the products of the complete rows of a batch; there is no target."""
        middle, scale = (part[:, None] for part in self._maps)
        for start in range(0, features.shape[1], BLOCK_ROWS):  # a block stays in the processor's cache
            block = features[:, start : start + BLOCK_ROWS]
            absent = np.isnan(block.min(axis=0))  # the minimum is NaN if a number is NaN
            if absent.any():
                block = block[:, ~absent]
            columns = np.empty((len(block) + 1, block.shape[1]))
            columns[0] = FIXED_POINT_ONE
            columns[1:] = block
            quantise(columns[1:], middle, scale)
            self._sums.add(columns.T)

    def total(self) -> Integers:
        """Return ``2 S**2`` times the sum of f, as Python ints: rows, p sums, p squares, and products by i, then j."""
        products = self._sums.total().astype(object)
        features = len(products) - 1
        above = np.triu_indices(features, 1)
        rows, inner = products[0, 0], products[1:, 1:]
        parts = ([2 * rows], 2 * products[0, 1:], 2 * np.diagonal(inner) - rows, 2 * inner[above])
        return np.concatenate(parts)

    def state(self) -> pa.RecordBatch:
        """Return the number of rows and the products, row by row."""
        return record({"rows": [self._sums.rows], "products": self._sums.sums.column()})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other products."""
        self._sums.add_sums(int(numbers(state, "rows")[0]), field(state, "products"))
