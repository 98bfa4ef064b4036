"""Numbers that are the sum of two doubles, elementwise: about 106 significant bits, by IEEE arithmetic alone.

The algorithms are those of [1]_. Their relative errors, in units of ``u**2`` with ``u = 2**-53``: a sum is within 3, a
difference too, whatever cancels, and a product within 7. Nothing here needs a fused multiply-add, and NumPy's
elementwise operations use none, so that the results are the same on every processor.

References
----------
.. [1] M. Joldes, J.-M. Muller, V. Popescu, Tight and rigorous error bounds for basic building blocks of double-word
   arithmetic, ACM TOMS 2017.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np

from dpsql.arrays import Doubles

Doubled = tuple[Doubles, Doubles]

# Beyond, the logistic function is 0 or 1 to within 2**-92.
_FAR = 64.0
# log 2 in three parts of at most 44 bits: times a number of up to 8 bits, each is a double.
_LOG2 = Fraction(Context(prec=60).ln(Decimal(2)))
_PART_BITS = 44
_HALVINGS = 5
_TERMS = 14


def two_sum(a: Doubles, b: Doubles) -> Doubled:
    """Return (s, e) with ``s + e = a + b`` exactly, s the rounded sum."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def add(a: Doubled, b: Doubled) -> Doubled:
    """Return the sum."""
    high, high_rest = two_sum(a[0], b[0])
    low, low_rest = two_sum(a[1], b[1])
    high, rest = _quick(high, high_rest + low)
    return _quick(high, low_rest + rest)


def multiply(a: Doubled, b: Doubled) -> Doubled:
    """Return the product."""
    high, rest = _two_product(a[0], b[0])
    return _quick(high, rest + (a[0] * b[1] + a[1] * b[0]))


def share(margin: Doubled) -> Doubled:
    """Return ``1 / (1 + exp(margin))``, within ``2**-88`` beside what an error of the margin does.

    The margin less a multiple of log 2, over 32, goes into a polynomial of degree 13, which is squared five times. The
    relative error is below ``2**-94``: 32 times that of the polynomial, some 20 ``u**2``. Where the margin is beyond
    64, 64 stands for it, which is wrong by less than ``2**-92``.
    """
    far = np.abs(margin[0]) > _FAR
    x = (np.where(far, np.copysign(_FAR, margin[0]), margin[0]), np.where(far, 0.0, margin[1]))
    power = np.rint(x[0] / math.log(2.0))
    zero = np.zeros_like(power)
    for part in _LOG2_PARTS:
        x = add(x, (-power * part, zero))
    x = (x[0] * 2.0**-_HALVINGS, x[1] * 2.0**-_HALVINGS)
    value: Doubled = (np.full_like(power, _TAYLOR[-1][0]), np.full_like(power, _TAYLOR[-1][1]))
    for high, low in reversed(_TAYLOR[:-1]):
        value = add(multiply(value, x), (np.full_like(power, high), np.full_like(power, low)))
    for _ in range(_HALVINGS):
        value = multiply(value, value)
    scale = np.ldexp(1.0, power.astype(np.int32))
    return _inverse(add((value[0] * scale, value[1] * scale), (np.ones_like(power), zero)))


def digits(value: Doubled, bits: int, count: int) -> list[Doubles]:
    """Return integers ``c_1, c_2, ...`` with ``value = sum of c_k 2**(-k bits)``, to half a unit of the last.

    Parameters
    ----------
    value : Doubled
        In [0, 1].
    bits, count : int
        Of each integer, and how many.
    """
    out = []
    high, low = value
    for place in range(1, count + 1):
        unit = 2.0 ** (bits * place)
        found = np.rint(high * unit)
        high, low = two_sum(high - found / unit, low)
        out.append(found)
    return out


def _inverse(value: Doubled) -> Doubled:
    """Return one over a number >= 1: a step of Newton's method, within 10 ``u**2``."""
    first = 1.0 / value[0]
    zero = np.zeros_like(first)
    product = multiply(value, (first, zero))
    left = add((np.ones_like(first), zero), (-product[0], -product[1]))
    return _quick(first, left[0] / value[0])


def _quick(a: Doubles, b: Doubles) -> Doubled:
    total = a + b
    return total, b - (total - a)


def _two_product(a: Doubles, b: Doubles) -> Doubled:
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _halves(a: Doubles) -> Doubled:
    moved = 134217729.0 * a
    high = moved - (moved - a)
    return high, a - high


def _doubled(value: Fraction) -> tuple[float, float]:
    high = float(value)
    return high, float(value - Fraction(high))


def _parts() -> tuple[float, ...]:
    out, rest = [], _LOG2
    for place in range(1, 4):
        unit = 1 << (_PART_BITS * place)
        part = Fraction(math.floor(rest * unit), unit)
        out.append(float(part))
        rest -= part
    return tuple(out)


_LOG2_PARTS = _parts()
_TAYLOR = [_doubled(Fraction(1, math.factorial(n))) for n in range(_TERMS)]
