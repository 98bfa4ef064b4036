"""Conversion of Arrow arrays to doubles as DuckDB casts them, so that kernels and SQL see the same numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_EXACT_DOUBLE = 1 << 53


def is_numeric(kind: pa.DataType) -> bool:
    """Whether a column of this type is a feature by default."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_boolean(kind: pa.DataType) -> bool:
    """Whether the type is BOOLEAN."""
    return bool(pa.types.is_boolean(kind))


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds text."""
    plain = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)
    return bool(plain or kind == pa.string_view())


def is_vector(kind: pa.DataType) -> bool:
    """Whether the type is a list or array of numbers."""
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(lists and (is_numeric(kind.value_type) or is_boolean(kind.value_type)))


def to_doubles(array: pa.Array) -> NDArray[np.float64]:
    """Return the values of a numeric or boolean array as fresh doubles, NULL as NaN.

    Parameters
    ----------
    array : pyarrow.Array
        Integer, floating, decimal or boolean values.

    Returns
    -------
    values : ndarray of float64, shape (len(array),)
        Owned by the caller.
    """
    if pa.types.is_float64(array.type) and array.null_count == 0:
        return np.array(array.to_numpy())
    if pa.types.is_null(array.type):
        return np.full(len(array), np.nan)
    if pa.types.is_decimal(array.type):
        values = _decimal_to_doubles(array)
    else:
        values = pc.cast(array.fill_null(False if is_boolean(array.type) else 0), pa.float64(), safe=False).to_numpy()
        values = np.array(values, dtype=np.float64)
    if array.null_count:
        values[array.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return values


def _decimal_to_doubles(array: pa.Array) -> NDArray[np.float64]:
    """Cast decimals: unscaled integer over a power of ten, as DuckDB does up to 2**53; beyond, the nearest double."""
    digits = array.cast(pa.decimal128(38, array.type.scale)).fill_null(0)
    words = np.frombuffer(digits.buffers()[1], dtype=np.int64)[2 * digits.offset : 2 * (digits.offset + len(digits))]
    low, high = words[0::2], words[1::2]
    values = low.astype(np.float64) / float(10**digits.type.scale)
    wide = (high != low >> 63) | (np.abs(low.astype(np.float64)) > _EXACT_DOUBLE)
    for position in np.flatnonzero(wide):
        values[position] = float(Fraction(digits[int(position)].as_py()))
    return values


def to_texts(array: pa.Array) -> pa.Array:
    """Return text, enum or boolean values as text."""
    return pc.cast(array, pa.string())


def single_chunk(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return one contiguous array from what DuckDB passes to a function."""
    if isinstance(array, pa.ChunkedArray):
        return array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    return array
