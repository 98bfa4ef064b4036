"""The compiled kernels of `block_gram`: the same minima, maxima and integers as the NumPy forms there.

Sums are of integers below ``2**53``, which doubles hold exactly; fused and reordered arithmetic cannot change them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from dpsql.statistics.fixed_point import FIXED_POINT_ONE

_ONE = float(FIXED_POINT_ONE)
_LARGEST = 2.0**500
_TILE = 8  # rows per update of a Gram matrix
_BLOCK = 4096  # rows whose products a double still sums exactly
_LANE = 8


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def ranges(matrix: Any, order: Any, starts: Any, least: Any, most: Any) -> None:
    """Lower `least` and raise `most`, both of shape (blocks, width), to the values of each block."""
    width = matrix.shape[1]
    for block in range(len(starts) - 1):
        low = least[block]
        high = most[block]
        for place in range(starts[block], starts[block + 1]):
            row = matrix[order[place]]
            for j in range(width):
                value = row[j]
                low[j] = value if (value < low[j]) & (value >= -_LARGEST) else low[j]
                high[j] = value if (value > high[j]) & (value <= _LARGEST) else high[j]


@njit(nogil=True, cache=True, fastmath={"contract"})  # type: ignore[untyped-decorator]
def _add_tile(tile: Any, sums: Any, width: int) -> None:
    """Add the products of eight rows to the upper triangle of `sums`."""
    for i in range(width):
        start = i // _LANE * _LANE
        a, b, c, d = tile[0, i], tile[1, i], tile[2, i], tile[3, i]
        e, f, g, h = tile[4, i], tile[5, i], tile[6, i], tile[7, i]
        into = sums[i, start:]
        ra, rb, rc, rd = tile[0, start:], tile[1, start:], tile[2, start:], tile[3, start:]
        re, rf, rg, rh = tile[4, start:], tile[5, start:], tile[6, start:], tile[7, start:]
        for j in range(len(into)):
            into[j] += (
                (a * ra[j] + b * rb[j]) + (c * rc[j] + d * rd[j]) + ((e * re[j] + f * rf[j]) + (g * rg[j] + h * rh[j]))
            )


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _quantise(row: Any, middle: Any, scale: Any, out: Any) -> None:
    for j in range(len(middle)):
        value = (row[j] - middle[j]) * scale[j]
        value = min(max(value, -_ONE), _ONE) if value == value else 0.0
        out[j] = np.floor(value + 0.5)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def gram(
    matrix: Any, order: Any, starts: Any, middle: Any, scale: Any, first: int, last: int, into: Any
) -> None:
    """Add the Gram matrices of blocks `first` to `last` to the upper triangles of `into`."""
    width = matrix.shape[1] + 1
    padded = (width + _LANE - 1) // _LANE * _LANE
    tile = np.zeros((_TILE, padded))
    sums = np.zeros((padded, padded))
    for block in range(first, last):
        start = starts[block]
        while start < starts[block + 1]:
            stop = min(start + _BLOCK, starts[block + 1])
            sums[:] = 0.0
            for begin in range(start, stop, _TILE):
                filled = min(_TILE, stop - begin)
                for r in range(filled):
                    tile[r, 0] = 1.0
                    _quantise(matrix[order[begin + r]], middle[block], scale[block], tile[r, 1:width])
                for r in range(filled, _TILE):
                    tile[r] = 0.0
                _add_tile(tile, sums, width)
            for i in range(width):
                target = into[block, i]
                source = sums[i]
                for j in range(i, width):
                    target[j] += np.int64(source[j])
            start = stop


def compile_all() -> None:
    """Compile every kernel for the arrays it is called with."""
    matrix, order, starts = np.ones((2, 2)), np.arange(2), np.array([0, 2])
    least, most = np.full((1, 2), np.inf), np.full((1, 2), -np.inf)
    ranges(matrix, order, starts, least, most)
    gram(matrix, order, starts, least, most, 0, 1, np.zeros((1, 3, 3), dtype=np.int64))
