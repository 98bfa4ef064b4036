"""Rigorous bounds, as tight as a decision needs.

A number is enclosed by two integers in units of ``10**-digits``. The logarithm and the exponential of
the standard library's ``decimal`` are correctly rounded at any precision, so one unit outward on either
side encloses the real value. A random number is a prefix of its binary expansion; when its enclosure
does not decide a comparison, more bits are drawn. Comparisons are therefore decided as if on real
numbers: there is no rounding left in the law of what is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import lru_cache

from dpsql.noise.entropy import WordReader

Bounds = tuple[int, int]


def fraction_bounds(value: Fraction, digits: int) -> Bounds:
    """Enclose a rational number, in units of ``10**-digits``."""
    scaled = value.numerator * 10**digits
    return scaled // value.denominator, -(-scaled // value.denominator)


def log_bounds(value: int, digits: int) -> Bounds:
    """Enclose the natural logarithm of an integer >= 1, in units of ``10**-digits``."""
    # Only leading bits go into the logarithm: value is in [lead, lead + 1) * 2**shift.
    shift = max(0, value.bit_length() - (10 * digits) // 3 - 32)
    lead = value >> shift
    low, high = _log_bounds(lead, digits)
    if shift:
        two_low, two_high = _log_two(digits + len(str(shift)))
        unit = 10 ** len(str(shift))
        low += shift * two_low // unit
        high += -(-shift * two_high // unit) + _step_up(lead, digits)
    return low, high


def exp_bounds(exponent: Fraction, digits: int) -> Bounds:
    """Enclose ``e**exponent`` for an exponent <= 0, in units of ``10**-digits``."""
    if exponent < -3 * (digits + 1):
        return 0, 1
    context = _context(digits)
    low, high = fraction_bounds(exponent, digits + 2)
    below = context.exp(context.scaleb(Decimal(low), -digits - 2))
    above = context.exp(context.scaleb(Decimal(high), -digits - 2))
    return max(0, _scaled(context, below, digits)[0]), _scaled(context, above, digits)[1]


class LazyExponential:
    """A standard exponential variable ``-log U`` of which only some bits of U are known.

    Parameters
    ----------
    reader : WordReader
        Where further bits come from.
    prefix : int, optional
        The first `bits` bits of U that are known already; by default one fresh word.
    bits : int
        How many.
    """

    __slots__ = ("_reader", "bits", "prefix")

    def __init__(self, reader: WordReader, prefix: int | None = None, bits: int = 64) -> None:
        self._reader = reader
        self.prefix = reader.word() if prefix is None else prefix
        self.bits = bits

    @property
    def digits(self) -> int:
        """The number of decimal digits that the known bits justify."""
        return 10 + self.bits * 302 // 1000

    def extend(self) -> None:
        """Draw 64 more bits."""
        self.prefix = self.prefix << 64 | self._reader.word()
        self.bits += 64

    def bounds(self, digits: int) -> tuple[int, int | None]:
        """Enclose the variable; no upper bound while all known bits are zero."""
        two_low, two_high = _log_two(digits)
        if self.prefix == 0:
            return self.bits * two_low, None
        log_low, log_high = log_bounds(self.prefix, digits)
        low = self.bits * two_low - log_high - _step_up(self.prefix, digits)
        return max(0, low), self.bits * two_high - log_low

    def exceeds(self, threshold: Callable[[int], Bounds]) -> bool:
        """Decide whether the variable is larger than the number that `threshold` encloses."""
        while True:
            low, high = self.bounds(self.digits)
            at_least, at_most = threshold(self.digits)
            if low >= at_most:
                return True
            if high is not None and high <= at_least:
                return False
            self.extend()

    def floor_of_multiple(self, factor: Fraction) -> int:
        """Return ``floor(factor * variable)``, factor > 0."""
        while True:
            # Digits before the point of the product need as many more behind it.
            digits = self.digits + max(0, factor.numerator.bit_length() - factor.denominator.bit_length()) // 3
            low, high = self.bounds(digits)
            if high is not None:
                divisor = factor.denominator * 10**digits
                floor: int = low * factor.numerator // divisor
                if floor == high * factor.numerator // divisor:
                    return floor
            self.extend()


def _context(digits: int) -> Context:
    return Context(prec=digits + 20, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


def _scaled(context: Context, value: Decimal, digits: int) -> Bounds:
    """Two units outward: one for cutting off the fraction, one for the rounding of `value`'s last digit."""
    whole = int(context.scaleb(value, digits))
    return whole - 2, whole + 2


def _step_up(value: int, digits: int) -> int:
    """Bound ``log((value + 1) / value) < 1 / value`` from above."""
    unit: int = 10**digits
    return -(-unit // value)


def _log_bounds(value: int, digits: int) -> Bounds:
    if value == 1:
        return 0, 0
    context = _context(digits)
    return _scaled(context, context.ln(Decimal(value)), digits)


@lru_cache(maxsize=32)
def _log_two(digits: int) -> Bounds:
    context = _context(digits)
    return _scaled(context, context.ln(Decimal(2)), digits)
