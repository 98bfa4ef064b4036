"""Pass arrays of numbers between modules, and rows as one Arrow array."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from decimal import ROUND_CEILING, Context
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
# Doubles; Arrow may hold them as floats.
Floats = NDArray[np.floating]
Longs = NDArray[np.int64]
Words = NDArray[np.uint64]
# Exact integers: 64 bits if they fit, else Python integers.
Integers = Longs | NDArray[np.object_]


def struct_rows(table: pa.Table) -> pa.StructArray:
    """Return the rows of a table as one array; `Table.to_struct_array` of PyArrow 20 refuses an empty table."""
    columns = [column.combine_chunks() for column in table.columns]
    return pa.StructArray.from_arrays(columns, fields=list(table.schema))


# What Arrow makes of values of Python or NumPy, and NumPy of Arrow's (`pyarrow.array`, `scalar`, `to_numpy`), imports
# pandas where it is installed, which takes three times as long as the first count of a process. These do not.
_FEW = 1000
_CODES = {pa.int32(): "i", pa.int64(): "q", pa.float64(): "d"}
_FOUR_DIGITS = Context(prec=4, rounding=ROUND_CEILING)


def from_numbers(values: NDArray[Any], missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return numbers as an Arrow array that shares their memory, with NULL where they are missing."""
    values = np.ascontiguousarray(values)
    valid = None if missing is None or not missing.any() else ~missing
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [_bits(valid), pa.py_buffer(values)])


def to_numbers(values: pa.Array) -> NDArray[Any]:
    """Return the values of an Arrow array, NULL as NaN; numbers without NULL share its memory."""
    is_double = pa.types.is_float64(values.type)
    if values.null_count == 0 and (is_double or pa.types.is_integer(values.type)):
        return np.from_dlpack(values)
    if is_double:
        doubles = np.frombuffer(values.buffers()[1], dtype=np.float64, count=values.offset + len(values))
        return np.where(are_missing(values), np.nan, doubles[values.offset :])
    return np.asarray(values.to_numpy(zero_copy_only=False))


def are_missing(numbers: pa.Array) -> NDArray[np.bool_]:
    """Return which of an Arrow array's numbers are NULL."""
    if numbers.null_count == 0:
        return np.zeros(len(numbers), dtype=bool)
    bits = np.unpackbits(np.frombuffer(numbers.buffers()[0], dtype=np.uint8), bitorder="little")
    missing: NDArray[np.bool_] = bits[numbers.offset : numbers.offset + len(numbers)] == 0
    return missing


def from_values(values: Sequence[Any] | NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return values as an Arrow array: few numbers, texts, lists and structs without pandas, others with it."""
    count = len(values)
    valid = np.array([value is not None for value in values], dtype=bool)
    bits = None if valid.all() else _bits(valid)
    if count <= _FEW and pa.types.is_struct(kind):
        parts = [from_values([value and value.get(part.name) for value in values], part.type) for part in kind]
        return pa.StructArray.from_buffers(kind, count, [bits], children=parts)
    if count <= _FEW and pa.types.is_list(kind):
        lists = [() if value is None else value for value in values]
        if sum(map(len, lists)) <= _FEW:
            items = from_values(list(chain.from_iterable(lists)), kind.value_type)
            return pa.ListArray.from_buffers(kind, count, [bits, _ends(lists)], children=[items])
    if count <= _FEW and pa.types.is_string(kind):
        texts = [(value or "").encode() for value in values]
        return pa.Array.from_buffers(kind, count, [bits, _ends(texts), pa.py_buffer(b"".join(texts))])
    if count <= _FEW and kind in _CODES:
        numbers = array(_CODES[kind], [0 if value is None else value for value in values])
        return pa.Array.from_buffers(kind, count, [bits, pa.py_buffer(numbers)])
    return pa.array(values, type=kind)


def _bits(valid: NDArray[np.bool_] | None) -> pa.Buffer | None:
    """Return which values are there as Arrow's bits."""
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _ends(parts: Sequence[Any]) -> pa.Buffer:
    """Return where the items of each part begin and end."""
    return pa.py_buffer(np.cumsum([0, *map(len, parts)], dtype=np.int32))


def rounded_up(errors: pa.DoubleArray) -> pa.DoubleArray:
    """Return standard deviations to four digits, rounded up, so that they never understate the noise.

    Parameters
    ----------
    errors : DoubleArray
        At least 0; NULL, NaN and infinity stay.
    """
    values = to_numbers(errors)
    some, indices = np.unique(values, return_inverse=True)
    # Round to twelve digits first: rounding errors of double sums must not add a digit.
    numbers = np.array([float(_FOUR_DIGITS.create_decimal(f"{number:.12g}")) for number in some.tolist()])
    return from_numbers(numbers[indices] if len(some) else values, are_missing(errors))
