"""Compute the cross product ``s_j = sum_i q_ij t_i`` of quantised features and target, the statistic of dp_sis.

Feature and target are integers in ``[-S, S]`` (`fixed_point`), so ``s_j`` is in units of ``S**2``; ``S = 2**20``.
Sensitivity of one component, in those units, per privacy unit of at most ``m`` rows:

==============  ==============  =====================================================
relation        |s_j| moves by  why
==============  ==============  =====================================================
add_remove      m S²            one row adds one product in [-S², S²], and
                                ``||a + b| - |a|| <= |b|``; a unit of m rows is m steps
replace         2 m S²          one removal and one addition
==============  ==============  =====================================================

``|s_j|`` is not monotone (a product of either sign may raise or lower it), so the range over features is twice the
sensitivity.

Centring the target at a released mean ``mu`` keeps these constants, because ``t`` is clipped again, ``t' = clip(t - mu,
-S, S)`` row by row, and a released ``mu`` is public.

The mean is ``(P - Q) / (P + Q)`` of two non-negative sums, ``P = sum (S + t)`` and ``Q = sum (S - t)``. One row adds
``(S + t) + (S - t) = 2 S`` to their L1 norm for any target, so the pair has L1 sensitivity ``2 S m`` under add_remove.
Under replace the row count cancels (``P`` moves by ``t' - t`` and ``Q`` by its negative): ``4 S m`` bounds it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Integers
from dpsql.contract.fold import Batch, Fold, field, record
from dpsql.contract.relation import Relation, relation_of
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, WideSums, quantise
from dpsql.kernels.xty import column_cross_products, cross_products

# Middles and scales of the features' affine maps, each of shape (d,).
Maps = tuple[NDArray[np.float64], NDArray[np.float64]]


def component_sensitivity(neighbours: str, max_rows_per_unit: int = 1) -> int:
    """Return the sensitivity of one ``|s_j|`` as an integer, in units of ``S**2``."""
    return CrossProducts.sensitivity(relation_of(neighbours, max_rows_per_unit))


def utility_range(neighbours: str, max_rows_per_unit: int = 1) -> int:
    """Return the largest spread of the changes of all ``|s_j|`` between neighbouring tables."""
    return CrossProducts.spread(relation_of(neighbours, max_rows_per_unit))


def target_sums_sensitivity(neighbours: str, max_rows_per_unit: int = 1) -> int:
    """Return the L1 sensitivity of ``(P, Q)``, in units of S."""
    return TargetSums.sensitivity(relation_of(neighbours, max_rows_per_unit))


def mean_from_sums(high: int, low: int) -> int:
    """Return the mean ``mu`` in ``[-S, S]`` from (noisy) ``P`` and ``Q``; post-processing.

    If noise makes the total of the sums zero or negative, the mean is 0, the public midpoint.
    """
    total = high + low
    if total <= 0:
        return 0
    mean = ((high - low) * FIXED_POINT_ONE + total // 2) // total
    return max(-FIXED_POINT_ONE, min(FIXED_POINT_ONE, mean))


def centre(target: NDArray[np.float64], center: int) -> NDArray[np.float64]:
    """Return the coded target minus a centre, clipped again to ``[-S, S]``."""
    return np.clip(target - center, -FIXED_POINT_ONE, FIXED_POINT_ONE) if center else target


def target_sums(target: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return ``[sum(S + t), sum(S - t)]`` over a batch of rows, exactly; fewer than ``2**31`` rows."""
    return np.array([(FIXED_POINT_ONE + target).sum(), (FIXED_POINT_ONE - target).sum()]).astype(np.int64)


def absent_values(maps: Maps) -> NDArray[np.int64]:
    """Return the quantised value 0 of each feature, for features without a cell in long rows; shape (d,)."""
    return quantise(np.zeros(len(maps[0])), *maps).astype(np.int64)


def cell_products(
    maps: Maps,
    absent: NDArray[np.int64],
    features: NDArray[np.int64],
    values: NDArray[np.float64],
    target: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the parts of long rows' cells in products of absent cells, in units of ``S**2``.

    Parameters
    ----------
    maps : pair of ndarray of float64, shape (d,)
    absent : ndarray of int64, shape (d,)
        `absent_values`.
    features, values, target : ndarray, shape (cells,)
        For each cell: the feature's number from 0, the value in its own unit, and the centred target of its row.
    """
    middles, scales = maps
    quantised = quantise(values, middles[features], scales[features]).astype(np.int64)
    return (quantised - absent[features]) * target


class TargetSums(Fold):
    """``P`` and ``Q``, the sums of S + t and S - t; in units of S."""

    def __init__(self) -> None:
        self._sums = WideSums((2,))

    @property
    def sums(self) -> list[int]:
        """``P`` and ``Q``."""
        return self._sums.total().tolist()  # type: ignore[no-any-return]

    @staticmethod
    def sensitivity(relation: Relation) -> int:
        """Return the L1 sensitivity, in units of S."""
        return relation.norm(2 * FIXED_POINT_ONE)

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows."""
        self._sums.add(target_sums(target))

    def state(self) -> pa.RecordBatch:
        """Return the sums."""
        return record({"sums": self._sums.column()})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other sums."""
        self._sums.absorb(field(state, "sums"))


class CrossProducts(Fold):
    """The products ``s_j`` of features and centred target, in units of ``S**2``.

    Parameters
    ----------
    maps : pair of ndarray of float64, shape (d,)
        Middles and scales of the features' affine maps.
    center : int
        Centre to subtract from the coded target, in ``[-S, S]``; public or released.
    """

    def __init__(self, maps: Maps, center: int = 0) -> None:
        self._maps = maps
        self._center = center
        self._sums = WideSums((len(maps[0]),))

    @staticmethod
    def sensitivity(relation: Relation) -> int:
        """Return the sensitivity of one ``|s_j|``."""
        return relation.norm(FIXED_POINT_ONE**2)

    @staticmethod
    def spread(relation: Relation) -> int:
        """Return the largest spread of the changes of two ``|s_j|``; a row moves each by up to ``S**2``, up or down."""
        return relation.spread(2 * FIXED_POINT_ONE**2)

    def total(self) -> Integers:
        """Return the products, shape (d,), as Python ints."""
        return self._sums.total()

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add the products of a batch of rows, with the coded target."""
        self.add_rows(target, np.ascontiguousarray(features.T))

    def add_rows(self, target: NDArray[np.float64], features: NDArray[np.float32] | NDArray[np.float64]) -> None:
        """Add the products of row-major features, shape (rows, d)."""
        self._sums.add(cross_products(centre(target, self._center), features, *self._maps))

    def add_columns(self, target: NDArray[np.float64], rows: pa.StructArray, positions: Sequence[int]) -> None:
        """Add the products of features that are columns of a struct array."""
        self._sums.add(column_cross_products(centre(target, self._center), rows, positions, *self._maps))

    def state(self) -> pa.RecordBatch:
        """Return the products."""
        return record({"products": self._sums.column()})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other products."""
        self._sums.absorb(field(state, "products"))
