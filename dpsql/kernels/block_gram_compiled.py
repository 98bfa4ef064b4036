"""The compiled kernels of `block_gram`: the same minima, maxima and integers as the NumPy forms there.

Sums are of integers below ``2**53``, which doubles hold exactly: fused multiplication cannot change them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from dpsql.statistics.fixed_point import FIXED_POINT_ONE

_ONE = float(FIXED_POINT_ONE)
_LARGEST = 2.0**500
_TILE = 8  # rows per update of a Gram matrix
_LANE = 8


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def ranges(rows: Any, blocks: Any, least: Any, most: Any) -> None:
    """Lower `least` and raise `most`, of shape (blocks, width), to the values of rows of shape (n, width)."""
    for i in range(len(rows)):
        row, low, high = rows[i], least[blocks[i]], most[blocks[i]]
        for j in range(len(low)):
            value = row[j]
            low[j] = value if (value < low[j]) & (value >= -_LARGEST) else low[j]
            high[j] = value if (value > high[j]) & (value <= _LARGEST) else high[j]


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def place(rows: Any, blocks: Any, places: Any, middle: Any, scale: Any, values: Any) -> None:
    """Quantise rows of shape (n, width) and put (1, row) into row ``places[i]`` of `values`; past its end: nowhere."""
    width = rows.shape[1]
    for i in range(len(rows)):
        if blocks[i] == len(middle):
            continue
        values[places[i], 0] = 1.0
        out, row = values[places[i], 1 : width + 1], rows[i]
        m, s = middle[blocks[i]], scale[blocks[i]]
        for j in range(len(out)):
            u = (row[j] - m[j]) * s[j]
            u = _ONE if u > _ONE else u
            u = -_ONE if u < -_ONE else u
            q = np.floor(u + 0.5)
            out[j] = q if q == q else 0.0


@njit(nogil=True, cache=True, fastmath={"contract"})  # type: ignore[untyped-decorator]
def _add_tile(tile: Any, sums: Any, width: int) -> None:
    """Add the products of eight rows to the upper triangle of `sums`."""
    end = (width + _LANE - 1) // _LANE * _LANE
    for i in range(width):
        start = i // _LANE * _LANE
        a, b, c, d = tile[0, i], tile[1, i], tile[2, i], tile[3, i]
        e, f, g, h = tile[4, i], tile[5, i], tile[6, i], tile[7, i]
        into = sums[i, start:end]
        ra, rb, rc, rd = tile[0, start:end], tile[1, start:end], tile[2, start:end], tile[3, start:end]
        re, rf, rg, rh = tile[4, start:end], tile[5, start:end], tile[6, start:end], tile[7, start:end]
        for j in range(len(into)):
            into[j] += (
                (a * ra[j] + b * rb[j]) + (c * rc[j] + d * rd[j]) + ((e * re[j] + f * rf[j]) + (g * rg[j] + h * rh[j]))
            )


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def gram(values: Any, begin: Any, end: Any, first: int, last: int, width: int, tile: Any, sums: Any) -> None:
    """Add the Gram matrices of rows ``values[begin[b] : end[b]]`` to the upper triangles of ``sums[b]``.

    `tile` is room for eight rows, of doubles.
    """
    for block in range(first, last):
        into = sums[block]
        for start in range(begin[block], end[block], _TILE):
            filled = min(_TILE, end[block] - start)
            for r in range(filled):
                target, source = tile[r], values[start + r]
                for j in range(len(target)):
                    target[j] = source[j]
            for r in range(filled, _TILE):
                tile[r] = 0.0
            _add_tile(tile, into, width)


def compile_all() -> None:
    """Compile every kernel for the arrays it is called with."""
    rows, index = np.ones((1, 1)), np.zeros(1, dtype=np.int64)
    least, most = np.full((1, 1), np.inf), np.full((1, 1), -np.inf)
    ranges(rows, index, least, most)
    rows.flags.writeable = False  # as Arrow's buffers are
    ranges(rows, index, least, most)
    values = np.zeros((1, 16), dtype=np.float32)
    for given in (rows, np.ones((1, 1))):
        place(given, index, index, least, most, values)
    gram(values, index, index + 1, 0, 1, 2, np.zeros((_TILE, 16)), np.zeros((1, 16, 16)))
