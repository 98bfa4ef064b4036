"""A standard Cauchy variable, known as precisely as a decision needs."""

from __future__ import annotations

from fractions import Fraction

from dpsql.noise.entropy import WordReader


class LazyCauchy:
    """A standard Cauchy variable of which only some bits are known: a ratio of coordinates in the unit disk."""

    __slots__ = ("_reader", "_x", "_y", "bits", "negative")

    def __init__(self, reader: WordReader) -> None:
        self._reader = reader
        self.negative = bool(reader.word() & 1)
        self._draw()
        while (inside := self._inside()) is not True:
            if inside is None:
                self.extend()
            else:
                self._draw()

    def _draw(self) -> None:
        """Draw the first bits of either coordinate anew."""
        self.bits, self._x, self._y = 64, self._reader.word(), self._reader.word()

    def extend(self) -> None:
        """Draw 64 more bits of either coordinate."""
        self._x, self._y = (part << 64 | self._reader.word() for part in (self._x, self._y))
        self.bits += 64

    def bounds(self) -> tuple[Fraction, Fraction | None]:
        """Enclose the magnitude; no upper bound while all known bits of the divisor are zero."""
        return Fraction(self._x, self._y + 1), Fraction(self._x + 1, self._y) if self._y else None

    def _inside(self) -> bool | None:
        """Return whether the point is in the disk; None if the bits do not decide it."""
        one = 1 << 2 * self.bits
        if (self._x + 1) ** 2 + (self._y + 1) ** 2 <= one:
            return True
        return False if self._x**2 + self._y**2 >= one else None
