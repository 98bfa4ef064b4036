"""One compiled pass over stored rows. Importing this module compiles it, or loads it from numba's cache.

It gives the same integers as `clipped_rows`: every sum is of integers below ``2**53``, so the compiler's order of
additions (`reassoc`) and fused multiplications change nothing.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dpsql.arrays import Doubles, Longs
from dpsql.kernels.fixed_point import FIXED_POINT_ONE

_ONE = float(FIXED_POINT_ONE)
_BLOCK = 4096  # rows whose products a double still sums exactly


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})  # type: ignore[untyped-decorator]
def residual_products(rows: NDArray[np.float32], target: Doubles, integers: Doubles, bits: int, sums: Longs) -> None:
    """Add ``sum_i q_i clip(t_i - q_i . theta)`` to `sums`; see `clipped_rows.ClippedRows.residual_products`."""
    width = len(integers)
    unit = 2.0**bits
    inverse = 1.0 / unit
    partial = np.empty(width)
    for start in range(0, len(target), _BLOCK):
        partial[:] = 0.0
        for i in range(start, min(start + _BLOCK, len(target))):
            row = rows[i]
            fitted = 0.0
            for j in range(width):
                fitted += np.float64(row[j]) * integers[j]
            residual = (target[i] * unit - fitted) * inverse
            residual = min(max(residual, -_ONE), _ONE)
            residual = np.floor(residual + 0.5)
            for j in range(width):
                partial[j] += np.float64(row[j]) * residual
        for j in range(width):
            sums[j] += np.int64(partial[j])


def compile_all() -> None:
    """Compile every kernel for its argument types."""
    rows, target = np.zeros((1, 1), dtype=np.float32), np.zeros(1)
    residual_products(rows, target, np.zeros(1), 1, np.zeros(1, dtype=np.int64))
