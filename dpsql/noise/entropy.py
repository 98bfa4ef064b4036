"""Random bits, from the operating system only.

dpsql has no seed and no generator state. Every request goes to ``os.urandom``, so a call in one thread cannot disturb a
call in another, and a forked process cannot repeat the bits of its parent: no drawn bits outlive the call that
requested them.
"""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_READER_WORDS = 32


class BitSource(Protocol):
    """A source of independent uniform 64-bit words."""

    def words(self, size: int, /) -> NDArray[np.uint64]:
        """Return `size` independent words, each uniform on ``[0, 2**64)``."""


class OperatingSystemEntropy:
    """Words from ``os.urandom`` (on Linux ``getrandom(2)``: the kernel's ChaCha20 generator).

    Stateless, hence safe to share between threads and across ``fork``.
    """

    def words(self, size: int, /) -> NDArray[np.uint64]:
        """Return `size` fresh words."""
        return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


SYSTEM = OperatingSystemEntropy()


class WordReader:
    """One word at a time, for the scalar parts of a draw.

    Parameters
    ----------
    source : BitSource
        Source of words.

    Notes
    -----
    Reads ahead a few words. Make one reader per call and drop it at the end of the call: do not share a reader between
    threads or store it, because ``fork`` would copy words read ahead.
    """

    __slots__ = ("_ahead", "_source")

    def __init__(self, source: BitSource) -> None:
        self._source = source
        self._ahead: list[int] = []

    def word(self) -> int:
        """Return an integer uniform on ``[0, 2**64)``."""
        if not self._ahead:
            self._ahead = self._source.words(_READER_WORDS).tolist()
            self._ahead.reverse()
        return self._ahead.pop()

    def below(self, bound: int) -> int:
        """Return an integer uniform on ``[0, bound)``, by rejection: no modulo bias.

        Parameters
        ----------
        bound : int
            >= 1, of any size.
        """
        bits = (bound - 1).bit_length()
        words = -(-bits // 64)
        while True:
            value = 0
            for _ in range(words):
                value = value << 64 | self.word()
            value >>= 64 * words - bits
            if value < bound:
                return value

    def subset(self, size: int, bound: int) -> set[int]:
        """Return a uniform subset of `size` integers out of ``[0, bound)`` (Floyd's algorithm).

        Parameters
        ----------
        size : int
            In [0, bound].
        bound : int
            >= 0.
        """
        chosen: set[int] = set()
        for last in range(bound - size, bound):
            candidate = self.below(last + 1)
            chosen.add(last if candidate in chosen else candidate)
        return chosen
