"""Features that count, in NumPy: used for small inputs, and to check the compiled kernel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def count_kept(
    counts: NDArray[np.int64],
    sides: NDArray[np.int64],
    lengths: NDArray[np.int64],
    positions: NDArray[np.int64],
    most: int,
    seeds: NDArray[np.uint64],
    lanes: NDArray[np.uint64],
    words: NDArray[np.uint64] | None,
) -> None:
    """Count the features of rows that count; see `kept_features.count_kept`."""
    rows, kept = _keep_features(lengths, positions, most, seeds, lanes, words)
    side = sides[rows]
    np.add.at(counts, (side + kept)[side >= 0], 1)


def _keep_features(
    lengths: NDArray[np.int64],
    positions: NDArray[np.int64],
    most: int,
    seeds: NDArray[np.uint64],
    lanes: NDArray[np.uint64],
    words: NDArray[np.uint64] | None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row and the position of each feature that counts."""
    rows = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    width = int(positions.max(initial=0)) + 1
    cells = np.sort(rows * width + positions)
    cells = cells[np.diff(cells, prepend=-1) > 0]  # np.unique hashes, which takes longer
    rows, kept = cells // width, cells % width
    overfull = np.bincount(rows, minlength=len(lengths))[rows] > most
    if overfull.any():
        items = kept[overfull]
        known = np.stack([items, items], axis=1).astype(np.uint64) if words is None else words[items]
        first = ~overfull
        first[overfull] = first_by_key(rows[overfull], known, seeds, lanes, most)
        rows, kept = rows[first], kept[first]
    return rows, kept


def first_by_key(
    rows: NDArray[np.int64],
    items: NDArray[np.uint64],
    seeds: NDArray[np.uint64],
    lanes: NDArray[np.uint64],
    most: int,
) -> NDArray[np.bool_]:
    """Return which items of each row come first in the row's own keyed order.

    Parameters
    ----------
    rows : ndarray of int64, shape (n,)
        Whose item it is, ascending.
    items : ndarray of uint64, shape (n, 2)
        What the items are, different ones within a row.
    seeds : ndarray of uint64, shape (rows,)
        Keyed hash of each row's identity.
    lanes : ndarray of uint64, shape (2,)
        Secret, new for every call.
    most : int
        >= 1.

    Returns
    -------
    kept : ndarray of bool, shape (n,)
        Of every row `most` items, or all that it has. It depends on the row's identity and items, and on the key.
    """
    seed = seeds[rows]
    places = [mixed(items[:, number] ^ mixed(seed ^ lanes[number])) for number in (0, 1)]
    # A total order: 128 bits of place, then the item itself. One word of row and place decides unless there are ties.
    bits = np.uint64(int(rows.max(initial=0)).bit_length())
    word = (places[0] >> bits) | (rows.astype(np.uint64) << (np.uint64(63) - bits) << np.uint64(1))
    order = np.argsort(word)
    if (word[order[1:]] == word[order[:-1]]).any():
        order = np.lexsort((items[:, 1], items[:, 0], places[1], places[0], rows))
    ordered = rows[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    lengths = np.diff(np.append(starts, len(ordered)))
    rank = np.arange(len(ordered)) - np.repeat(starts, lengths)
    kept = np.zeros(len(rows), dtype=np.bool_)
    kept[order[rank < most]] = True
    return kept


def mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return words mixed by the finaliser of splitmix64."""
    words = words + _GOLDEN
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
