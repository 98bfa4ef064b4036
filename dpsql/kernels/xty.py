"""Partial cross products of one batch of rows: quantise, multiply, add, all in exact integers.

The products are at most ``2**40`` and a block has at most 4096 rows, so every partial sum is an
integer below ``2**53``: doubles hold it exactly and the order of additions does not matter. That
lets a BLAS product compute an exact integer sum.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.kernels.columns import to_doubles
from dpsql.statistics.fixed_point import quantise

BLOCK_ROWS = 4096


def vectors_to_matrix(array: pa.Array, width: int) -> NDArray[np.float64]:
    """Return list or array rows as a dense matrix; what a row lacks is NaN, what it has too many is cut.

    Parameters
    ----------
    array : pyarrow list, large list or fixed-size list array of numbers
    width : int
        Public length of the vectors.

    Returns
    -------
    matrix : ndarray of float64, shape (len(array), width)
    """
    rows = len(array)
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        values = to_doubles(array.values.slice(array.offset * size, rows * size)).reshape(rows, size)
        if array.null_count:
            values[array.is_null().to_numpy(zero_copy_only=False)] = np.nan
        return values
    offsets = array.offsets.to_numpy()
    first = int(offsets[0]) if len(offsets) else 0
    lengths = np.diff(offsets)
    if array.null_count:
        lengths = np.where(array.is_null().to_numpy(zero_copy_only=False), 0, lengths)
    if rows and (lengths == width).all():
        return to_doubles(array.values.slice(first, rows * width)).reshape(rows, width)
    values = to_doubles(array.values)
    matrix = np.full((rows, width), np.nan)
    kept = np.minimum(lengths, width)
    row = np.repeat(np.arange(rows), kept)
    column = np.arange(len(row)) - np.repeat(np.cumsum(kept) - kept, kept)
    matrix[row, column] = values[offsets[row] + column]
    return matrix


def cross_products(
    target: NDArray[np.float64], features: NDArray[np.float64], middle: NDArray[np.float64], scale: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return ``sum_i q_ij t_i`` for a batch of rows, exactly.

    Parameters
    ----------
    target : ndarray of float64, shape (rows,)
        Quantised target: integers in ``[-S, S]``.
    features : ndarray of float64, shape (rows, d)
        Feature values in their own units, NaN for NULL. Overwritten.
    middle, scale : ndarray of float64, shape (d,)
        The affine maps of `dpsql.statistics.fixed_point`.

    Returns
    -------
    sums : ndarray of int64, shape (d,)
        In units of ``S**2``. Exact for fewer than ``2**23`` rows.
    """
    sums = np.zeros(features.shape[1], dtype=np.int64)
    for start in range(0, len(target), BLOCK_ROWS):
        block = quantise(features[start : start + BLOCK_ROWS], middle, scale)
        sums += (target[start : start + BLOCK_ROWS] @ block).astype(np.int64)
    return sums


def column_cross_products(
    target: NDArray[np.float64], columns: list[pa.Array], middle: NDArray[np.float64], scale: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the same sums as `cross_products` for features that arrive as one array per column."""
    features = np.empty((len(columns), len(target)))
    for position, column in enumerate(columns):
        features[position] = to_doubles(column)
    return cross_products(target, features.T, middle, scale)
