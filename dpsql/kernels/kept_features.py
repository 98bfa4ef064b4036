"""Which of a row's features count: each once, and at most so many, chosen by a keyed hash of the row and the feature.

A row's choice is a function of its own features, its seed and the key, whatever other rows there are and in whatever
order its features come. That, and the limit, is all that privacy needs of the hash; that it mixes well keeps every
feature as likely as another.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from dpsql.kernels import kept_features_numpy
from dpsql.kernels.loading import Compiled

# Features that a process chooses among before the compiled kernel is worth loading: about 0.3 s of NumPy.
_WORTH_COMPILING = 2_000_000

compiled_kernels = Compiled("dpsql.kernels.kept_features_compiled", _WORTH_COMPILING)


def warm_up() -> None:
    """Load the compiled kernels now, and wait for them."""
    compiled_kernels.start().join()


def keep_features(
    lengths: NDArray[np.int64],
    positions: NDArray[np.int64],
    most: int,
    seeds: NDArray[np.uint64] | None,
    key: bytes,
    words: NDArray[np.uint64] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the features that count.

    Parameters
    ----------
    lengths : ndarray of int64, shape (rows,)
        Number of features of each row, repeats included.
    positions : ndarray of int64, shape (sum of lengths,)
        Positions of these features, >= 0; a row may repeat one.
    most : int
        Largest number of features that count per row, >= 1.
    seeds : ndarray of uint64, shape (rows,), or None
        Keyed hash of each row's identity; needed if a row has more than `most`.
    key : bytes
        Secret, new for every call.
    words : ndarray of uint64, shape (features, 2), optional
        What the hash reads of the feature at each position, different for all; by default the position, twice.

    Returns
    -------
    rows, kept : ndarray of int64, shape (n,)
        Row and position of each. Rows ascend; the positions of one row differ, and their order has no meaning.

    Notes
    -----
    A row's features are ordered by ``mixed(words[position, 0] ^ mixed(seed ^ lanes[0]))``, of equal ones by the same
    of the second word and lane, of equal ones by both words and at last by the position: a total order. The first
    `most` of them count.
    """
    if seeds is None:
        if (lengths > most).any():
            raise ValueError("long rows carry a hash of their identity")
        seeds = np.zeros(len(lengths), dtype=np.uint64)
    lanes = np.frombuffer(hashlib.blake2b(b"dpsql items", digest_size=16, key=key).digest(), dtype=np.uint64).copy()
    kernels = compiled_kernels(len(positions))
    if kernels is None:
        return kept_features_numpy.keep_features(lengths, positions, most, seeds, lanes, words)
    capacity = int(np.minimum(lengths, most).sum())
    rows, kept = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
    given = np.empty((0, 2), dtype=np.uint64) if words is None else words
    count = kernels.keep_features(lengths, positions, most, seeds, lanes, given, rows, kept)
    return rows[:count], kept[:count]
