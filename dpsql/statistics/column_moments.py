"""Sums of features and of their squares, without products of two features, and how far one privacy unit moves them.

Units: a feature is an integer ``q_i`` in ``[-S, S]`` (`fixed_point`), 0 where it is NULL or NaN, ``z_i = q_i / S``, and
p is the number of features. A row adds::

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

*A row for another.* A replacement takes away k rows and adds k'. They form min(k, k') pairs, and the rows left over
have squared norms of at most ``1 + 5 p/4 <= 4 p``. In a pair each feature adds ``(z - z')**2 (1 + (z + z')**2)``. With
``u = |z + z'|`` and ``v = |z - z'| <= 2 - u`` that is at most ``(2 - u)**2 (1 + u**2)``, which is 4 at u = 0 and falls
up to u = 2: its derivative is ``-2 (2 - u) (1 - 2 u + 2 u**2)``. Both bounds are attained, by rows of corners.
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
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.kernels.wide_sums import WideSums
from dpsql.kernels.xty import BLOCK_ROWS
from dpsql.statistics.regression import RowMap

# One row counts so many units in the released integers.
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
        """Add a batch of rows; the target is not read."""
        self.add_rows(self._mapped.quantised(features))

    def add_rows(self, quantised: NDArray[np.float64]) -> None:
        """Add quantised rows of shape (rows, p); NaN stands for NULL."""
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
        one = FIXED_POINT_ONE
        return np.concatenate([rows * UNIT, 2 * one * sums, 2 * squares - self._rows * one**2])

    def state(self) -> pa.RecordBatch:
        """Return the number of rows and the sums."""
        return record({"rows": [self._rows], "sums": self._sums.column()})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other sums."""
        self._rows += int(numbers(state, "rows")[0])
        self._sums.absorb(field(state, "sums"))
