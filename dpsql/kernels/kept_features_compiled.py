"""Features that count, compiled. Importing this module compiles it, or loads it from numba's cache.

The same features as in `kept_features_numpy`.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dpsql.arrays import Longs

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)

Words = NDArray[np.uint64]


@njit(nogil=True, cache=True, inline="always")  # type: ignore[untyped-decorator]
def _mixed(word: np.uint64) -> np.uint64:
    """Return a word mixed by the finaliser of splitmix64."""
    word = word + _GOLDEN
    word = (word ^ (word >> np.uint64(30))) * _FIRST
    word = (word ^ (word >> np.uint64(27))) * _SECOND
    return word ^ (word >> np.uint64(31))


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _word(words: Words, position: int, number: int) -> np.uint64:
    """Return what the hash reads of a feature."""
    return words[position, number] if len(words) else np.uint64(position)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _tied_before(first: int, second: int, words: Words, seed: np.uint64) -> bool:
    """Whether one feature comes before another whose first place is equal; `seed` is that of the second lane."""
    if first == second:
        return False
    one = _mixed(_word(words, first, 1) ^ seed)
    other = _mixed(_word(words, second, 1) ^ seed)
    if one != other:
        return bool(one < other)
    for number in (0, 1):
        if _word(words, first, number) != _word(words, second, number):
            return bool(_word(words, first, number) < _word(words, second, number))
    return first < second


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _sort(places: Words, items: Longs, words: Words, seed: np.uint64) -> None:
    """Sort a row's features by their places, of equal ones by what else tells them apart; repeats stand together.

    This is Shell's sort: most rows are short, and numba takes seconds to compile a sort of NumPy's.
    """
    gap = 1
    while gap < len(items) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for k in range(gap, len(items)):
            place, item = places[k], items[k]
            at = k
            while at >= gap:
                below, other = places[at - gap], items[at - gap]
                if below < place or (below == place and not _tied_before(item, other, words, seed)):
                    break
                places[at] = below
                items[at] = other
                at -= gap
            places[at] = place
            items[at] = item
        gap //= 3


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def count_kept(
    counts: Longs, sides: Longs, lengths: Longs, positions: Longs, most: int, seeds: Words, lanes: Words, words: Words
) -> None:
    """Count the features of rows that count; see `kept_features.count_kept`.

    `words` is empty where the positions stand for themselves.
    """
    widest = 0
    for length in lengths:
        widest = max(widest, length)
    places, items = np.empty(widest, dtype=np.uint64), np.empty(widest, dtype=np.int64)
    start = 0
    for row in range(len(lengths)):
        first, length = start, lengths[row]
        start += length
        if sides[row] < 0:
            continue
        seed = _mixed(seeds[row] ^ lanes[0])
        for k in range(length):
            item = positions[first + k]
            items[k] = item
            places[k] = _mixed(_word(words, item, 0) ^ seed)
        _sort(places[:length], items[:length], words, _mixed(seeds[row] ^ lanes[1]))
        left = most
        for k in range(length):
            if left > 0 and (k == 0 or items[k] != items[k - 1]):
                counts[sides[row] + items[k]] += 1
                left -= 1


def compile_all() -> None:
    """Compile every kernel for the types it meets."""
    one, word = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.uint64)
    lanes, words = np.zeros(2, dtype=np.uint64), np.zeros((1, 2), dtype=np.uint64)
    count_kept(one.copy(), one, one + 1, one, 1, word, lanes, words)
