"""Exactly uniform permutations, from the operating system's entropy.

Independent uniform words sort the rows. Given that all words differ, every order of the words is equally likely, so the
order is exactly uniform; if two are equal, all are drawn again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsql.noise.entropy import SYSTEM, BitSource


def permutation(size: int, *, source: BitSource = SYSTEM) -> NDArray[np.intp]:
    """Return a uniform permutation of ``range(size)``.

    Parameters
    ----------
    size : int
        >= 0.
    source : BitSource
        Source of words.

    Returns
    -------
    order : ndarray of intp, shape (size,)

    Notes
    -----
    - **Randomness**: operating-system entropy, no seed. Two of a million words are equal with a chance of 3e-8.
    """
    while True:
        words = source.words(size)
        order = np.argsort(words, kind="stable")
        placed = words[order]
        if not (placed[1:] == placed[:-1]).any():
            return order
