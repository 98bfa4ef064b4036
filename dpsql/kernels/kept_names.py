"""Which of a row's private names count: each once, and at most so many, chosen by a keyed hash of the row and the name.

A row's choice is a function of its own names, its seed and the key, whatever other rows there are and in whatever order
its names come. That, and the limit, is all that privacy needs of the hash; that it mixes well keeps every name as
likely as another. Why names are chosen where features have shares: see `dpsql.statistics.presence.NameCounts`.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from dpsql.kernels.xty import distinct_features

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def count_kept(
    counts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    positions: NDArray[np.int64],
    most: int,
    seeds: NDArray[np.uint64] | None,
    key: bytes,
    words: NDArray[np.uint64],
) -> None:
    """Count the names of rows that count.

    Parameters
    ----------
    counts : ndarray of int64
        For every name of a row that counts, the place of its position is raised by 1.
    lengths : ndarray of int64, shape (rows,)
        Number of names of each row, repeats included.
    positions : ndarray of int64, shape (sum of lengths,)
        Positions of these names, >= 0; a row may repeat one.
    most : int
        Largest number of names that count per row, >= 1.
    seeds : ndarray of uint64, shape (rows,), or None
        Keyed hash of each row's identity; needed if a row has more than `most`.
    key : bytes
        Secret, new for every call.
    words : ndarray of uint64, shape (names, 2)
        Keyed hash of the name at each position, different for different names.

    Notes
    -----
    A row's names are ordered by ``mixed(words[position, 0] ^ mixed(seed ^ lanes[0]))``, of equal ones by the same of
    the second word and lane, and at last by both words. This order is total, so the first `most` different names are
    the same ones in whatever order they come and however they are repeated.

    **Sensitivity**: a row raises at most `most` places, each by 1, and they follow from the row alone.
    """
    if seeds is None:
        if (lengths > most).any():
            raise ValueError("long rows carry a hash of their identity")
        seeds = np.zeros(len(lengths), dtype=np.uint64)
    lanes = np.frombuffer(hashlib.blake2b(b"dpsql items", digest_size=16, key=key).digest(), dtype=np.uint64).copy()
    rows, names = distinct_features(lengths, positions)
    overfull = np.bincount(rows, minlength=len(lengths))[rows] > most
    if overfull.any():
        kept = ~overfull
        kept[overfull] = first_by_key(rows[overfull], words[names[overfull]], seeds, lanes, most)
        names = names[kept]
    np.add.at(counts, names, 1)


def first_by_key(
    rows: NDArray[np.int64], items: NDArray[np.uint64], seeds: NDArray[np.uint64], lanes: NDArray[np.uint64], most: int
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
