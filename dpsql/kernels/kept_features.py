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


def count_kept(
    counts: NDArray[np.int64],
    sides: NDArray[np.int64],
    lengths: NDArray[np.int64],
    positions: NDArray[np.int64],
    most: int,
    seeds: NDArray[np.uint64] | None,
    key: bytes,
    words: NDArray[np.uint64] | None = None,
) -> None:
    """Count the features of rows that count.

    Parameters
    ----------
    counts : ndarray of int64
        For every feature of a row that counts, the place ``side + position`` is raised by 1.
    sides : ndarray of int64, shape (rows,)
        Of each row, >= 0, or -1 for a row that raises nothing.
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
        What the hash reads of the feature at each position; by default the position, twice.

    Notes
    -----
    A row's features are ordered by ``mixed(words[position, 0] ^ mixed(seed ^ lanes[0]))``, of equal ones by the same
    of the second word and lane, of equal ones by both words and at last by the position. This order is total, so the
    first `most` different features are the same ones in whatever order they come and however they are repeated.

    **Sensitivity**: a row raises at most `most` places, each by 1, and they follow from the row alone.
    """
    if seeds is None:
        if (lengths > most).any():
            raise ValueError("long rows carry a hash of their identity")
        seeds = np.zeros(len(lengths), dtype=np.uint64)
    lanes = np.frombuffer(hashlib.blake2b(b"dpsql items", digest_size=16, key=key).digest(), dtype=np.uint64).copy()
    kernels = compiled_kernels(len(positions))
    if kernels is None:
        kept_features_numpy.count_kept(counts, sides, lengths, positions, most, seeds, lanes, words)
        return
    given = np.empty((0, 2), dtype=np.uint64) if words is None else words
    kernels.count_kept(counts, sides, lengths, positions, most, seeds, lanes, given)
