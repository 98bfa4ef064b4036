"""Provide bit sources for tests: repeatable, scripted, recorded. Never for a release."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


class SeededBits:
    """Words of a seeded PCG64 generator.

    Parameters
    ----------
    seed : int
        >= 0; the same seed gives the same words.
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def words(self, size: int, /) -> NDArray[np.uint64]:
        """Return the next `size` words."""
        return self._generator.integers(0, 2**64, size=size, dtype=np.uint64)


class ScriptedBits:
    """The given words first, then the words of a seeded generator.

    Parameters
    ----------
    words : iterable of int
        Each in ``[0, 2**64)``.
    seed : int
        Seed of the following words.

    Attributes
    ----------
    used : int
        Number of words returned so far.
    """

    def __init__(self, words: Iterable[int], seed: int = 0) -> None:
        self._script = np.array(list(words), dtype=np.uint64)
        self._rest = SeededBits(seed)
        self.used = 0

    def words(self, size: int, /) -> NDArray[np.uint64]:
        """Return the next `size` words."""
        scripted = self._script[self.used : self.used + size]
        self.used += size
        return np.concatenate([scripted, self._rest.words(size - len(scripted))])
