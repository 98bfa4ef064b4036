"""Words that a public seed decides: for what is made of released numbers, and never for noise.

They come from Philox, a counter-based generator, whose words NumPy promises to keep. They are read as integers as they
are, so that what follows from them by integer arithmetic is the same on every platform.
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

    def order(self, count: int) -> NDArray[np.intp]:
        """Return a permutation of so many positions."""
        return np.argsort(self.take(count), kind="stable")
