"""Words that a public seed decides: for derivations from released numbers, and never for noise.

The words come from Philox, a counter-based generator, whose words NumPy promises to keep. The code reads them as
integers, so integer arithmetic on them gives the same result on every platform.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray


class SeededWords:
    """Uniform words of 64 bits, one after the other.

    Parameters
    ----------
    seed : str
        Public; any text.
    """

    def __init__(self, seed: str) -> None:
        key = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:16], "little")
        self._bits = np.random.Philox(key=key)

    def take(self, count: int) -> NDArray[np.uint64]:
        """Return the next words."""
        return np.asarray(self._bits.random_raw(count), dtype=np.uint64)

    def words(self, size: int, /) -> NDArray[np.uint64]:
        """Return the next words, as a source of bits for draws of noise that hide nothing."""
        return self.take(size)

    def order(self, count: int) -> NDArray[np.intp]:
        """Return a permutation of `count` positions."""
        return np.argsort(self.take(count), kind="stable")
