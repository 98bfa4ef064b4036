"""Concordant and discordant pairs in NumPy: what small work runs on, and what checks the compiled kernels.

A discordant pair is an inversion: with the rows in the order of one column (ties by the other), a pair is
strictly discordant exactly when the other column falls. Inversions are counted bottom up, many columns and
blocks at once: by comparison in runs of 16, then at each doubling by where the left half's entries land
when both halves are sorted together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_RUN = 16
_ENTRIES = 1 << 19  # per step: about 50 ms, and a few tens of MB


def rank(values: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return how many values of its block are smaller than each value; -1 where it is missing.

    Parameters
    ----------
    values : ndarray of float64, shape (n,)
        Rows of a block stand together.
    offsets : ndarray of int64, shape (m + 1,)
        Block b has the rows from ``offsets[b]`` up to ``offsets[b + 1]``.
    """
    ranks = np.full(len(values), -1, dtype=np.int32)
    order = np.argsort(values)[: len(values) - np.count_nonzero(np.isnan(values))]
    ordered = values[order]
    blocks = np.zeros(len(order), dtype=np.int64)
    if len(offsets) > 2:
        block_of_row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        by_block = np.argsort(block_of_row[order], kind="stable")
        order, ordered = order[by_block], ordered[by_block]
        blocks = block_of_row[order]
    if len(order):
        new_block = np.append(True, blocks[1:] != blocks[:-1])
        new = new_block.copy()
        new[1:] |= ordered[1:] != ordered[:-1]
        starts = np.flatnonzero(new)
        base = np.flatnonzero(new_block)[np.cumsum(new_block)[starts] - 1]
        ranks[order] = np.repeat(starts - base, np.diff(starts, append=len(order)))
    return ranks


def count(
    base: NDArray[np.int32],
    columns: Sequence[NDArray[np.int32]],
    plain: Sequence[bool],
    offsets: NDArray[np.int64],
    concordant: NDArray[np.int64],
    discordant: NDArray[np.int64],
) -> Iterator[int]:
    """Fill in the counts; yield the number of (row, column) cells that each step has done.

    Parameters
    ----------
    base : ndarray of int32, shape (n,)
        Ranks as `rank` gives them.
    columns : sequence of ndarray of int32, shape (n,)
        Likewise.
    plain : sequence of bool
        Per column: neither it nor the base has ties or missing values, so that every pair that is not
        discordant is concordant.
    offsets : ndarray of int64, shape (m + 1,)
    concordant, discordant : ndarray of int64, shape (m, len(columns))
        Overwritten.
    """
    sizes = np.diff(offsets)
    widths = 1 << np.ceil(np.log2(np.maximum(sizes, _RUN))).astype(np.int64)
    for width in np.unique(widths[sizes > 1]):
        blocks = np.flatnonzero((widths == width) & (sizes > 1))
        step = max(1, _ENTRIES // int(width))
        for first in range(0, len(blocks), step):
            group = blocks[first : first + step]
            rows = np.minimum(offsets[group, None] + np.arange(width), len(base) - 1)
            inside = np.arange(width) < sizes[group, None]
            high = base[rows].astype(np.int64)
            total = sizes[group] * (sizes[group] - 1) // 2
            for j, column in enumerate(columns):
                low = column[rows].astype(np.int64)
                counted = inside & (high >= 0) & (low >= 0)
                discordant[group, j] = _inversions(high, low, counted)
                if plain[j]:
                    concordant[group, j] = total - discordant[group, j]
                else:
                    concordant[group, j] = _inversions(high, width - 1 - low, counted)
                yield int(sizes[group].sum())


def _inversions(high: NDArray[np.int64], low: NDArray[np.int64], counted: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return, for each row of the matrices, the number of pairs that rise in `high` and fall in `low`.

    Entries are below the width, a power of two; those that are not counted go last, where they invert nothing.
    """
    rows, width = high.shape
    keys = np.where(counted, high << 32 | low, np.int64(width) << 32 | width)
    keys.sort(axis=1)
    sequence = keys & 0xFFFFFFFF
    bits = width.bit_length() - 1
    kind: Any = np.int32 if 2 * bits + 1 < 32 else np.int64
    keys = (sequence << bits | np.arange(width)).astype(kind)
    total = np.zeros(rows, dtype=np.int64)
    runs = keys.reshape(rows, -1, _RUN)
    for shift in range(1, _RUN):
        total += np.count_nonzero(runs[:, :, :-shift] > runs[:, :, shift:], axis=(1, 2))
    half = _RUN
    while half < width:
        runs = keys.reshape(rows, -1, 2 * half)
        runs.sort(axis=2)
        left = (runs & half == 0).astype(np.float64)
        # Where the left entries landed, less where they would be if all of them came first.
        landed = (left @ np.arange(2 * half, dtype=np.float64)).sum(axis=1).astype(np.int64)
        total += landed - runs.shape[1] * (half * (half - 1) // 2)
        half *= 2
    return total
