"""Concordant and discordant pairs in NumPy: used for small inputs, and to check the compiled kernels.

A discordant pair is an inversion: with the rows in the order of one column (ties by the other), a pair is
strictly discordant exactly when the other column falls. Inversions are counted bottom up, many columns and
blocks at once: by comparison in runs of 16, then at each doubling by where the left half's entries land
when both halves are sorted together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

_RUN = 16
_ENTRIES = 1 << 19  # per step: about 50 ms, and a few tens of MB


def number(
    values: NDArray[np.float64], block_of_row: NDArray[np.int32] | None
) -> tuple[NDArray[np.int32], NDArray[np.int32], int]:
    """Assign numbers to the distinct values, block by block and in ascending order.

    Parameters
    ----------
    values : ndarray of float64, shape (n,)
        Rows of a block stand together, in the order of blocks.
    block_of_row : ndarray of int32, shape (n,), optional

    Returns
    -------
    codes : ndarray of int32, shape (n,)
        Number of each row's value; -1 where it is missing.
    starts : ndarray of int32
        For each number, how many values of the block are smaller.
    present : int
        How many values are not missing.
    """
    codes = np.full(len(values), -1, dtype=np.int32)
    order = np.argsort(values)[: len(values) - np.count_nonzero(np.isnan(values))]
    ordered = values[order]
    blocks = np.zeros(len(order), dtype=np.int32)
    if block_of_row is not None:
        by_block = np.argsort(block_of_row[order], kind="stable")
        order, ordered = order[by_block], ordered[by_block]
        blocks = block_of_row[order]
    new_block = np.append(True, blocks[1:] != blocks[:-1])[: len(order)]
    new = new_block.copy()
    new[1:] |= ordered[1:] != ordered[:-1]
    places = np.flatnonzero(new)
    codes[order] = np.repeat(np.arange(len(places)), np.diff(places, append=len(order)))
    first = np.flatnonzero(new_block)[np.cumsum(new_block)[places] - 1]
    return codes, (places - first).astype(np.int32), len(order)


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
        Numbers in the order of the values, below the size of the block; -1 where a value is missing.
    columns : sequence of ndarray of int32, shape (n,)
        Likewise.
    plain : sequence of bool
        Per column: neither it nor the base has ties or missing values, so that every pair that is not
        discordant is concordant.
    offsets : ndarray of int64, shape (m + 1,)
    concordant, discordant : ndarray of int64, shape (len(columns), m)
        Overwritten.
    """
    sizes = np.diff(offsets)
    widths = 1 << np.ceil(np.log2(np.maximum(sizes, _RUN))).astype(np.int64)
    for width in np.unique(widths[sizes > 1]):
        blocks = np.flatnonzero((widths == width) & (sizes > 1))
        matrices = max(1, _ENTRIES // int(width))
        for first in range(0, len(blocks), matrices):
            group = blocks[first : first + matrices]
            rows = np.minimum(offsets[group, None] + np.arange(width), len(base) - 1)
            high = np.where(np.arange(width) < sizes[group, None], base[rows], -1)
            total = sizes[group] * (sizes[group] - 1) // 2
            step = max(1, matrices // len(group))
            for is_plain in (True, False):
                chosen = np.flatnonzero(np.array(plain, dtype=np.bool_) == is_plain)
                for start in range(0, len(chosen), step):
                    several = chosen[start : start + step]
                    low = np.stack([columns[j][rows] for j in several], axis=1)
                    falls = _inversions(high[:, None], low)
                    rises = total[:, None] - falls if is_plain else _inversions(high[:, None], width - 1 - low)
                    discordant[np.ix_(several, group)] = falls.T
                    concordant[np.ix_(several, group)] = rises.T
                    yield int(sizes[group].sum()) * len(several)


def _inversions(high: NDArray[np.int32], low: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the number of pairs that rise in `high` and fall in `low`, along the last axis.

    Its length is a power of two; numbers are below it. Numbers outside that range go last, where they invert nothing.
    """
    width = low.shape[-1]
    keys = high.astype(np.int64) << 32 | low
    keys[(high < 0) | (low < 0) | (low >= width)] = np.int64(width) << 32 | width
    keys.sort(axis=-1)
    sequence = keys & 0xFFFFFFFF
    bits = width.bit_length() - 1
    kind = np.int32 if 2 * bits + 1 < 32 else np.int64
    keys = (sequence << bits | np.arange(width)).astype(kind)
    total = np.zeros(low.shape[:-1], dtype=np.int64)
    runs = keys.reshape(*total.shape, -1, _RUN)
    for shift in range(1, _RUN):
        total += np.count_nonzero(runs[..., :-shift] > runs[..., shift:], axis=(-2, -1))
    half = _RUN
    while half < width:
        runs = keys.reshape(*total.shape, -1, 2 * half)
        runs.sort(axis=-1)
        left = (runs & half == 0).astype(np.float64)
        # Where the left entries landed, less where they would be if all of them came first.
        landed = (left @ np.arange(2 * half, dtype=np.float64)).sum(axis=-1).astype(np.int64)
        total += landed - runs.shape[-2] * (half * (half - 1) // 2)
        half *= 2
    return total
