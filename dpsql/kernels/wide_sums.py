"""Sums of integers beyond 64 bits: ``high * 2**32 + low`` with ``0 <= low < 2**32``, element by element."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Integers

_LOW_BITS = 32
_MASK = (1 << _LOW_BITS) - 1
_WIDE = pa.decimal128(38, 0)


class WideSums:
    """An exact sum of arrays of integers."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.low = np.zeros(shape, dtype=np.int64)
        self.high = np.zeros(shape, dtype=np.int64)

    def add(self, parts: NDArray[np.int64]) -> None:
        """Add integers below ``2**62`` in absolute value."""
        self.low += parts
        self._carry()

    def add_at(self, places: NDArray[np.intp], high: NDArray[np.int64], low: NDArray[np.int64]) -> None:
        """Add ``high * 2**32 + low`` at places along the last axis, which may repeat; ``0 <= low < 2**32``."""
        for row in range(len(self.low)):
            np.add.at(self.low[row], places, low[row])
            np.add.at(self.high[row], places, high[row])
        touched = np.unique(places)
        self.high[:, touched] += self.low[:, touched] >> _LOW_BITS
        self.low[:, touched] &= _MASK

    def _carry(self) -> None:
        self.high += self.low >> _LOW_BITS
        self.low &= _MASK

    def total(self, kind: type = object) -> Integers:
        """Return the sums: as Python ints, or as int64 where the caller knows that they fit."""
        total: Integers = (self.high.astype(kind) << _LOW_BITS) + self.low.astype(kind)
        return total

    def column(self) -> pa.Array:
        """Return the sums as decimals, row by row; below ``2**95`` in absolute value."""
        return wide_column(self.high.ravel(), self.low.ravel())

    def absorb(self, column: pa.Array) -> None:
        """Add what `column` returned elsewhere."""
        high, low = wide_parts(column)
        self.high += high.reshape(self.high.shape)
        self.low += low.reshape(self.low.shape)
        self._carry()


def wide_column(high: NDArray[np.int64], low: NDArray[np.int64]) -> pa.Array:
    """Return ``high * 2**32 + low`` as decimal128(38, 0), for ``0 <= low < 2**32``."""
    words = np.empty((len(high), 2), dtype=np.int64)
    words[:, 0] = (high << _LOW_BITS) | low
    words[:, 1] = high >> _LOW_BITS
    return pa.Array.from_buffers(_WIDE, len(high), [None, pa.py_buffer(np.ascontiguousarray(words, dtype="<i8"))])


def wide_parts(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (high, low) of decimals: what `wide_column` takes."""
    words = np.frombuffer(column.buffers()[1], dtype="<i8").reshape(-1, 2)[column.offset : column.offset + len(column)]
    return (words[:, 1] << _LOW_BITS) | ((words[:, 0] >> _LOW_BITS) & _MASK), words[:, 0] & _MASK
