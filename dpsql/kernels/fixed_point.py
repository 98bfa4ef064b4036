"""Fixed point: how a value becomes an integer, so that sums are exact on every engine.

A value ``v`` with public bounds ``[lower, upper]`` becomes
``q = floor(clip((v - middle) * scale, -S, S) + 0.5)`` with ``S = 2**20``, ``middle`` the midpoint
of the interval and ``scale = S / half_width``; NULL and NaN become 0, the neutral value. The same
double operations in the same order run in SQL (`sql/exact/fixed_point.sql`) and in the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import ParameterError

FIXED_POINT_BITS = 20
FIXED_POINT_ONE = 1 << FIXED_POINT_BITS


def affine_map(lower: float, upper: float) -> tuple[float, float]:
    """Return (middle, scale) that send ``[lower, upper]`` to ``[-S, S]``.

    Raises
    ------
    ParameterError
        When the interval is too narrow or too wide for doubles.
    """
    middle = (lower + upper) / 2.0  # Python's doubles: beyond their range they are infinite, without a warning
    scale = 2.0 * FIXED_POINT_ONE / (upper - lower) if upper > lower else math.inf
    if not (0.0 < scale < math.inf and math.isfinite(middle)):
        raise ParameterError(
            "P036", f"the interval [{lower!r}, {upper!r}] is too narrow or too wide for doubles. Rescale the column."
        )
    return middle, scale


def affine_maps(intervals: Sequence[tuple[float, float]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (middles, scales) of some intervals, each of shape (d,)."""
    maps = {interval: affine_map(*interval) for interval in set(intervals)}
    found = np.array([maps[interval] for interval in intervals], dtype=np.float64).reshape(-1, 2)
    return found[:, 0].copy(), found[:, 1].copy()


def quantise(
    values: NDArray[np.float64], middle: float | NDArray[np.float64], scale: float | NDArray[np.float64]
) -> NDArray[np.float64]:
    """Quantise doubles; the result holds integers in ``[-S, S]``, stored as doubles.

    Parameters
    ----------
    values : ndarray of float64
        NaN stands for NULL. Overwritten and returned.
    middle, scale : float or ndarray
        Broadcast against `values`.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        np.subtract(values, middle, out=values)
        np.multiply(values, scale, out=values)
    np.clip(values, -FIXED_POINT_ONE, FIXED_POINT_ONE, out=values)
    np.add(values, 0.5, out=values)
    np.floor(values, out=values)
    values[np.isnan(values)] = 0.0
    return values
