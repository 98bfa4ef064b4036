"""The compiled dual values of `subset_floors`. Importing this module compiles it, or loads it from numba's cache."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dpsql.arrays import Doubles, Longs

# As in `ball_least_squares`.
_SHIFT = 2.0**-42
_TINY = 2.0**-90
_NEWTON_STEPS = 40
_CLOSE = 2.0**-24


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _solve(block: Doubles, right: Doubles, raised: float, factor: Doubles, image: Doubles, point: Doubles) -> float:
    """Solve ``(block + raised I) b = right`` for `point`; return the squared length of ``L^-1 b``, L the factor."""
    size = len(right)
    for i in range(size):
        for j in range(i):
            value = block[i, j]
            for q in range(j):
                value -= factor[i, q] * factor[j, q]
            factor[i, j] = value * factor[j, j]
        value = block[i, i] + raised
        for q in range(i):
            value -= factor[i, q] * factor[i, q]
        factor[i, i] = 1.0 / math.sqrt(max(value, _TINY))
        value = right[i]
        for q in range(i):
            value -= factor[i, q] * image[q]
        image[i] = value * factor[i, i]
    for i in range(size - 1, -1, -1):
        value = image[i]
        for q in range(i + 1, size):
            value -= factor[q, i] * point[q]
        point[i] = value * factor[i, i]
    total = 0.0
    for i in range(size):
        value = point[i]
        for q in range(i):
            value -= factor[i, q] * block[size, q]
        block[size, i] = value * factor[i, i]
        total += block[size, i] * block[size, i]
    return total


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _multiplier(
    block: Doubles, right: Doubles, radius: float, shift: float, start: float, work: Doubles, image: Doubles
) -> float:
    """Return a multiplier of the ball near the best multiplier, with its `image`; `start` is a guess."""
    size = len(right)
    point = work[size]
    longest = 0.0
    for value in right:
        longest += value * value
    most = math.sqrt(longest) / radius
    multiplier = min(start, most)
    for _ in range(_NEWTON_STEPS):
        slope = _solve(block, right, shift + multiplier, work, image, point)
        squared = 0.0
        for i in range(size):
            squared += point[i] * point[i]
        norm = math.sqrt(squared)
        inside = norm <= radius * (1.0 + _CLOSE)
        if inside and (multiplier == 0.0 or norm >= radius * (1.0 - _CLOSE)):
            break
        if not slope > 0.0:
            break
        step = squared / slope * ((norm - radius) / radius)
        moved = min(max(multiplier + step, 0.0), most)
        if moved == multiplier:
            break
        multiplier = moved
    return multiplier


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def duals(
    matrix: Doubles,
    vector: Doubles,
    constant: float,
    radius: float,
    chosen: Longs,
    others: Longs,
    count: int,
    low: int,
    high: int,
    starts: Longs,
    out: Doubles,
    stop: NDArray[np.uint8],
) -> None:
    """Write the dual values of all subsets whose first unchosen column has a place from low to high."""
    base = len(chosen)
    size = base + count
    # The last row holds a solution.
    block, work = np.zeros((size + 1, size)), np.zeros((size + 1, size))
    right, image = np.zeros(size), np.zeros(size)
    for i in range(base):
        right[i] = vector[chosen[i]]
        for j in range(base):
            block[i, j] = matrix[chosen[i], chosen[j]]
    largest = 0.0
    for i in range(len(matrix)):
        largest = max(largest, matrix[i, i])
    shift = largest * _SHIFT + _TINY
    guess = 0.0
    for a in range(low, high):
        if stop[0]:
            return
        first = others[a]
        right[base] = vector[first]
        block[base, base] = matrix[first, first]
        for j in range(base):
            block[base, j] = matrix[first, chosen[j]]
        for b in range(1 if count == 1 else len(others) - a - 1):
            if count == 2:
                second = others[a + 1 + b]
                right[base + 1] = vector[second]
                block[base + 1, base + 1] = matrix[second, second]
                for j in range(base):
                    block[base + 1, j] = matrix[second, chosen[j]]
                block[base + 1, base] = matrix[second, first]
            guess = _multiplier(block, right, radius, shift, guess, work, image)
            value = constant - (guess + shift) * radius * radius
            # `image` belongs to the last multiplier that was tried, which may be one step behind.
            _solve(block, right, shift + guess, work, image, work[size])
            for i in range(size):
                value -= image[i] * image[i]
            out[starts[a] + b] = value


def compile_all() -> None:
    """Compile the kernel for its argument types."""
    columns, stop = np.arange(2), np.zeros(1, dtype=np.uint8)
    starts = np.array([0, 1, 1])
    duals(np.eye(3), np.ones(3), 3.0, 1.0, np.array([2]), columns, 2, 0, 2, starts, np.zeros(1), stop)
