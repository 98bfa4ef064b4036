"""Columns that arrive batch by batch and leave one by one.

A long column is kept in slabs that are mapped on their own, so that ranking or fitting column after column
returns memory to the system as it goes: never two copies of a whole table.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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
        self._room = 0  # of the last slab

    def append(self, columns: Sequence[NDArray[np.float64]]) -> None:
        """Add rows, given as as many columns of equal length."""
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
        """Put the rows of another table behind those of this one; the other is given up."""
        for slabs, more in zip(self._columns, other._columns, strict=True):
            slabs.extend(more)
        self._filled += other._filled
        self._room = other._room if other._filled else self._room
        self.rows += other.rows

    def _open(self, needed: int) -> None:
        """Begin a slab in every column: of the rows at hand, and as many again as there are."""
        size = min(_LARGEST_SLAB, max(needed, self.rows))
        together = None if size == _LARGEST_SLAB else np.empty((self.width, size))
        for position, slabs in enumerate(self._columns):
            slabs.append(
                np.frombuffer(mmap.mmap(-1, 8 * size), dtype=np.float64) if together is None else together[position]
            )
        self._filled.append(0)
        self._room = size

    def take(self, position: int) -> NDArray[np.float64]:
        """Return a column, shape (rows,), and forget it; taken again it is empty."""
        slabs, self._columns[position] = self._columns[position], []
        parts = [slab[:filled] for slab, filled in zip(slabs, self._filled, strict=False)]
        return np.concatenate(parts) if parts else np.empty(0)
