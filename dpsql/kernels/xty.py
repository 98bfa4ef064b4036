"""Partial cross products of one batch of rows: quantise, multiply, add, all in exact integers.

The products are at most ``2**40`` and a block has at most 4096 rows, so every partial sum is an integer below
``2**53``: doubles hold it exactly and the order of additions does not matter. So a BLAS product computes an exact
integer sum.

Every feature counts fully in a row of few features, and an equal share in a row of too many. A row with k different
features counts ``denominator`` for each if k is at most `most`, and otherwise ``floor(most * denominator / k)``.
Nothing is chosen: the shares follow from k alone, so every engine and every attempt counts the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Floats
from dpsql.kernels.columns import to_doubles
from dpsql.kernels.fixed_point import quantise
from dpsql.kernels.workers import Compiled


def feature_shares(counts: NDArray[np.int64], most: int, denominator: int) -> NDArray[np.int64]:
    """Return the share of each feature of a row.

    Parameters
    ----------
    counts : ndarray of int64
        Numbers of different features of the rows.
    most : int
        Largest total share of a row's features, in rows, >= 1.
    denominator : int
        One row, in the unit of the counts; ``most * denominator`` below ``2**62``.

    Notes
    -----
    **Sensitivity**: all features of a row together count at most ``most * denominator``, and each at most
    `denominator`, because the share is rounded down.
    """
    return np.where(counts > most, most * denominator // np.maximum(counts, 1), denominator)


def add_shares(
    counts: NDArray[np.int64],
    sides: NDArray[np.int64],
    lengths: NDArray[np.int64],
    positions: NDArray[np.int64],
    most: int,
    denominator: int,
) -> None:
    """Count the features of rows that list them.

    Parameters
    ----------
    counts : ndarray of int64
        Raised by the row's share at ``side + position``, for every different feature of a row.
    sides : ndarray of int64, shape (rows,)
        Side of each row, >= 0; -1 for a row that raises nothing.
    lengths, positions
        As for `distinct_features`.
    most, denominator : int
        As for `feature_shares`.
    """
    rows, features = distinct_features(lengths, positions)
    shares = feature_shares(np.bincount(rows, minlength=len(lengths)), most, denominator)
    counted = sides[rows] >= 0
    rows = rows[counted]
    np.add.at(counts, sides[rows] + features[counted], shares[rows])


def distinct_features(
    lengths: NDArray[np.int64], positions: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return row and position of every different feature of each row, ascending.

    Parameters
    ----------
    lengths : ndarray of int64, shape (rows,)
        Number of features of each row, repeats included.
    positions : ndarray of int64, shape (sum of lengths,)
        Positions of these features, >= 0; a row may repeat one.
    """
    rows = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    width = int(positions.max(initial=0)) + 1
    cells = np.sort(rows * width + positions)
    cells = cells[np.diff(cells, prepend=-1) > 0]  # np.unique hashes, which takes longer
    return cells // width, cells % width


BLOCK_ROWS = 4096
# Cells that a process sums before the compiled kernels are worth loading: about 50 ms of NumPy.
_WORTH_COMPILING = 10_000_000

compiled_kernels = Compiled("dpsql.kernels.compiled", _WORTH_COMPILING)


def warm_up() -> None:
    """Load the compiled kernels and wait for them."""
    compiled_kernels.start().join()


def _values(array: pa.Array) -> Floats:
    """Return the values as doubles, or Arrow's own buffer if it holds doubles or floats without NULL."""
    if (pa.types.is_float64(array.type) or pa.types.is_float32(array.type)) and array.null_count == 0:
        return np.asarray(array.to_numpy(zero_copy_only=True))
    return to_doubles(array)


def vectors_to_matrix(array: pa.Array, width: int) -> Floats:
    """Return list or array rows as a dense matrix: shorter rows are padded with NaN, longer ones truncated.

    Parameters
    ----------
    array : pyarrow list, large list or fixed-size list array of numbers
    width : int
        Public length of the vectors.

    Returns
    -------
    matrix : ndarray of float64 or float32, shape (len(array), width)
        Perhaps a read-only view of Arrow's buffer.
    """
    rows = len(array)
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        values = _values(array.values.slice(array.offset * size, rows * size)).reshape(rows, size)
        if array.null_count:
            values = values.copy()
            values[array.is_null().to_numpy(zero_copy_only=False)] = np.nan
        return values
    offsets = array.offsets.to_numpy()
    first = int(offsets[0]) if len(offsets) else 0
    lengths = np.diff(offsets)
    if array.null_count:
        lengths = np.where(array.is_null().to_numpy(zero_copy_only=False), 0, lengths)
    if rows and (lengths == width).all():
        return _values(array.values.slice(first, rows * width)).reshape(rows, width)
    values = _values(array.values)
    matrix = np.full((rows, width), np.nan)
    widths = np.minimum(lengths, width)
    row = np.repeat(np.arange(rows), widths)
    column = np.arange(len(row)) - np.repeat(np.cumsum(widths) - widths, widths)
    matrix[row, column] = values[offsets[row] + column]
    return matrix


def cross_products(
    target: NDArray[np.float64], features: Floats, middle: NDArray[np.float64], scale: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return ``sum_i q_ij t_i`` for a batch of rows, exactly.

    Parameters
    ----------
    target : ndarray of float64, shape (rows,)
        Quantised target: integers in ``[-S, S]``.
    features : ndarray of float64 or float32, shape (rows, d)
        Feature values in their own units, NaN for NULL.
    middle, scale : ndarray of float64, shape (d,)
        The affine maps of `dpsql.kernels.fixed_point`.

    Returns
    -------
    sums : ndarray of int64, shape (d,)
        In units of ``S**2``. Exact for fewer than ``2**23`` rows.
    """
    fast = compiled_kernels(features.size)
    if fast is None or not features.flags.c_contiguous:
        return _blocked(target, features, middle, scale)
    sums = np.zeros(features.shape[1], dtype=np.int64)
    fast.row_major(features, target, middle, scale, sums)
    return sums


def _blocked(
    target: NDArray[np.float64], features: Floats, middle: NDArray[np.float64], scale: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Sum in NumPy: within a block a BLAS product of integers is exact."""
    sums = np.zeros(features.shape[1], dtype=np.int64)
    for start in range(0, len(target), BLOCK_ROWS):
        block = quantise(features[start : start + BLOCK_ROWS].astype(np.float64), middle, scale)
        sums += (target[start : start + BLOCK_ROWS] @ block).astype(np.int64)
    return sums


def column_cross_products(
    target: NDArray[np.float64],
    rows: pa.StructArray,
    positions: Sequence[int],
    middle: NDArray[np.float64],
    scale: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Return the same sums as `cross_products` for features that are columns of a struct array."""
    fast = compiled_kernels(len(target) * len(positions))
    codes = storage_codes(rows.type, tuple(positions)) if fast is not None else None
    if fast is None or codes is None:
        features = np.empty((len(positions), len(target)))
        for row, position in enumerate(positions):
            features[row] = to_doubles(rows.field(position))
        return _blocked(target, features.T, middle, scale)
    sums, addresses, validity, offsets = np.zeros((4, len(positions)), dtype=np.int64)
    struct = np.zeros(10, dtype=np.int64)
    rows._export_to_c(struct.ctypes.data)
    try:
        fast.locate(struct, np.array(positions, dtype=np.int64), addresses, validity, offsets)
        fast.column_major(addresses, validity, offsets, codes, target, middle, scale, sums)
    finally:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(int(struct[8]))(struct.ctypes.data)
    return sums


@lru_cache(maxsize=64, typed=True)
def storage_codes(kind: pa.StructType, positions: tuple[int, ...]) -> NDArray[np.int64] | None:
    """Return the compiled kernel's code for each column; None if it cannot read a column's type."""
    codes = [_codes.get(kind.field(position).type) for position in positions]
    return None if None in codes else np.array(codes, dtype=np.int64)


_codes = {pa.float64(): 0, pa.float32(): 1, pa.int64(): 2, pa.int32(): 3}
