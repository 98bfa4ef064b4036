"""Subsets as ascending rows: lists of distinct subsets, and uniform draws."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.errors import ParameterError
from dpsql.noise.entropy import BitSource

_HALF_WORD = np.uint64(32)
_LOW_HALF = np.uint64((1 << 32) - 1)


class SubsetList:
    """Distinct s-subsets of p candidates, and a membership test.

    Parameters
    ----------
    subsets : array_like of int, shape (listed, s)
        In any order, members in any order.
    n_candidates : int
        p.

    Attributes
    ----------
    rows : ndarray of intp, shape (listed, s)
        Members ascending.
    n_candidates, size, total : int
        p, s, and the number of all subsets, ``C(p, s)``.

    Raises
    ------
    ParameterError
        P018 (s, or no distinct subsets).
    """

    def __init__(self, subsets: ArrayLike, n_candidates: int) -> None:
        rows = np.asarray(subsets)
        if rows.ndim != 2 or (rows.size and rows.dtype.kind not in "iu") or not isinstance(n_candidates, int):
            raise ParameterError("P018", "subsets must be a table of integers, one row per subset.")
        if not 1 <= rows.shape[1] <= n_candidates < 1 << 32:
            raise ParameterError("P018", f"subsets must have 1 to {n_candidates} members; got {rows.shape[1]}.")
        self.n_candidates, self.size = n_candidates, rows.shape[1]
        self.total = math.comb(self.n_candidates, self.size)
        self.rows = np.sort(rows.astype(np.intp), axis=1)
        keys = _keys(self.rows)
        order = np.argsort(keys, kind="stable")
        self._sorted, self._keys = self.rows[order], keys[order]
        proper = not len(rows) or (int(self.rows.min()) >= 0 and int(self.rows.max()) < n_candidates)
        if not proper or (np.diff(self.rows, axis=1) <= 0).any() or self._repeats():
            raise ParameterError("P018", f"subsets must be distinct subsets of range({n_candidates}).")

    def __len__(self) -> int:
        return len(self.rows)

    def holds(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return which of the rows, members ascending, are in the list."""
        is_listed = np.zeros(len(rows), dtype=np.bool_)
        keys = _keys(rows)
        candidates = np.arange(len(rows))
        positions = np.searchsorted(self._keys, keys)
        while True:
            # Rows whose entry at `positions` has their key; different subsets may share a key.
            same = np.flatnonzero(positions < len(self))
            same = same[self._keys[positions[same]] == keys[candidates[same]]]
            candidates, positions = candidates[same], positions[same]
            equal = (self._sorted[positions] == rows[candidates]).all(axis=1)
            is_listed[candidates[equal]] = True
            candidates, positions = candidates[~equal], positions[~equal] + 1
            if not len(candidates):
                return is_listed

    def _repeats(self) -> bool:
        alike = np.flatnonzero(self._keys[1:] == self._keys[:-1])
        rows = self._sorted[np.union1d(alike, alike + 1)]
        return len(set(map(tuple, rows.tolist()))) < len(rows)


def count_distinct(rows: NDArray[np.intp]) -> int:
    """Return the number of distinct rows."""
    return len(set(map(bytes, np.ascontiguousarray(rows))))


def _keys(rows: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Return one word per row: equal for equal rows, and rarely for others."""
    state, keys = 0x9E3779B97F4A7C15, np.zeros(len(rows), dtype=np.uint64)
    for column in rows.T:
        state = (state * 0xD1342543DE82EF95 + 1) % (1 << 64)
        keys = (keys ^ (keys >> _HALF_WORD)) * np.uint64(state | 1) + column.astype(np.uint64)
    return keys


def uniform_below(bound: int, count: int, source: BitSource) -> NDArray[np.uint64]:
    """Return integers uniform on ``[0, bound)``, bound in [1, 2**63], by rejection."""
    shift = np.uint64(64 - max(1, (bound - 1).bit_length()))
    integers = np.empty(0, dtype=np.uint64)
    while len(integers) < count:
        words = source.words(count - len(integers)) >> shift
        integers = np.concatenate([integers, words[words < np.uint64(bound)]])
    return integers


def uniform_subsets(n: int, size: int, count: int, source: BitSource) -> NDArray[np.intp]:
    """Return independent uniform subsets of ``range(n)``, n < 2**32, members ascending (Floyd's algorithm)."""
    if n == size:
        return np.tile(np.arange(n), (count, 1))
    lasts = np.arange(n - size, n, dtype=np.uint64)[:, None]
    # Uniform on [0, last] by Lemire's method: the high half of a product, if the low half is not in the surplus.
    bounds = np.broadcast_to(lasts + np.uint64(1), (size, count))
    surplus = np.uint64(1 << 32) % bounds
    products = np.zeros((size, count), dtype=np.uint64)
    is_open = np.ones((size, count), dtype=np.bool_)
    while is_open.any():
        needed = int(is_open.sum())
        halves = source.words(-(-needed // 2)).view(np.uint32)[:needed]
        products[is_open] = halves.astype(np.uint64) * bounds[is_open]
        is_open = (products & _LOW_HALF) < surplus
    chosen = products >> _HALF_WORD
    for index in range(1, size):
        is_repeat = (chosen[:index] == chosen[index]).any(axis=0)
        chosen[index, is_repeat] = lasts[index]
    return np.sort(chosen.T.astype(np.intp), axis=1)
