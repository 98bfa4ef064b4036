"""Convert Arrow arrays to doubles as DuckDB casts them, so that kernels and SQL see the same numbers.

`StagedColumns` receives columns batch by batch and releases them one by one. It stores a long column in separately
mapped slabs, so ranking or fitting column after column returns memory to the system: never two copies of a whole table.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsql.arrays import to_numbers

_EXACT_DOUBLE = 1 << 53


def is_numeric(kind: pa.DataType) -> bool:
    """Return whether a column of this type is a feature by default."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_boolean(kind: pa.DataType) -> bool:
    """Return whether the type is BOOLEAN."""
    return bool(pa.types.is_boolean(kind))


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds text."""
    plain = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)
    return bool(plain or kind == pa.string_view())


def is_vector(kind: pa.DataType) -> bool:
    """Return whether the type is a list or array of numbers."""
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(lists and (is_numeric(kind.value_type) or is_boolean(kind.value_type)))


def to_doubles(array: pa.Array) -> NDArray[np.float64]:
    """Return the values of a numeric or boolean array as new doubles, NULL as NaN.

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
        return np.array(to_numbers(array))
    if pa.types.is_null(array.type):
        return np.full(len(array), np.nan)
    if pa.types.is_decimal(array.type):
        values = _decimal_to_doubles(array)
    else:
        filled = array.fill_null(False if is_boolean(array.type) else 0) if array.null_count else array
        values = to_numbers(pc.cast(filled, pa.float64(), safe=False))
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
    """Return text, enum or boolean values as text; invalid UTF-8 becomes NULL."""
    texts = pc.cast(array, pa.string())
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([_text_of(value) for value in texts.cast(pa.binary()).to_pylist()], type=pa.string())
    return texts


def _text_of(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def single_chunk(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return one contiguous array from a DuckDB function's argument."""
    if isinstance(array, pa.ChunkedArray):
        return array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    return array


_LARGEST_SLAB = 1 << 17  # rows: 1 MiB of doubles in a column


class StagedColumns:
    """A table of doubles that grows by rows and is read by columns.

    Parameters
    ----------
    width : int
        Number of columns, >= 1.

    Notes
    -----
    Memory: 8 bytes per cell, and at most as much again while the first slabs double.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.rows = 0
        self._columns: list[list[NDArray[np.float64]]] = [[] for _ in range(width)]
        self._filled: list[int] = []
        self._room = 0  # in the last slab

    def append(self, columns: Sequence[NDArray[np.float64]]) -> None:
        """Add rows, given as columns of equal length."""
        start, count = 0, len(columns[0])
        while start < count:
            if self._room == 0:
                self._open(count - start)
            stop = min(count, start + self._room)
            offset = self._filled[-1]
            for slabs, values in zip(self._columns, columns, strict=True):
                slabs[-1][offset : offset + stop - start] = values[start:stop]
            self._filled[-1] += stop - start
            self._room -= stop - start
            start = stop
        self.rows += count

    def extend(self, other: StagedColumns) -> None:
        """Append the rows of another table; do not use the other table afterwards."""
        for slabs, more in zip(self._columns, other._columns, strict=True):
            slabs.extend(more)
        self._filled += other._filled
        self._room = other._room if other._filled else self._room
        self.rows += other.rows

    def _open(self, needed: int) -> None:
        """Begin a slab in every column, as large as the new rows or the table, within `_LARGEST_SLAB`."""
        size = min(_LARGEST_SLAB, max(needed, self.rows))
        together = None if size == _LARGEST_SLAB else np.empty((self.width, size))
        for position, slabs in enumerate(self._columns):
            slabs.append(
                np.frombuffer(mmap.mmap(-1, 8 * size), dtype=np.float64) if together is None else together[position]
            )
        self._filled.append(0)
        self._room = size

    def take(self, position: int) -> NDArray[np.float64]:
        """Return a column, shape (rows,), and release it; afterwards it is empty."""
        slabs, self._columns[position] = self._columns[position], []
        parts = [slab[:filled] for slab, filled in zip(slabs, self._filled, strict=False)]
        return np.concatenate(parts) if parts else np.empty(0)
