"""Convert values to integers (fixed point), so that sums are exact on every engine.

A value ``v`` with public bounds ``[lower, upper]`` becomes ``q = floor(clip((v - middle) * scale, -S, S) + 0.5)`` with
``S = 2**20``, ``middle`` the midpoint of the interval and ``scale = S / half_width``; NULL and NaN become 0, the
neutral value. SQL (`sql/exact/fixed_point.sql`) and the kernels run the same double operations in the same order.

`WideSums` adds integers beyond 64 bits: ``high * 2**32 + low`` with ``0 <= low < 2**32``, element by element.

A `Doubled` number is the sum of two doubles, elementwise: about 106 significant bits, by IEEE arithmetic alone. The
algorithms are from [1]_. Their relative errors, in units of ``u**2`` with ``u = 2**-53``: a sum is within 3, a
difference too, whatever cancels, and a product within 7. No algorithm needs a fused multiply-add, and NumPy's
elementwise operations use none, so the results are the same on every processor.

References
----------
.. [1] M. Joldes, J.-M. Muller, V. Popescu, Tight and rigorous error bounds for basic building blocks of double-word
   arithmetic, ACM TOMS 2017.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Doubles, Integers
from dpsql.errors import ParameterError

FIXED_POINT_BITS = 20
FIXED_POINT_ONE = 1 << FIXED_POINT_BITS


def affine_map(lower: float, upper: float) -> tuple[float, float]:
    """Return (middle, scale) that map ``[lower, upper]`` to ``[-S, S]``.

    Raises
    ------
    ParameterError
        When the interval is too narrow or too wide for doubles.
    """
    middle = (lower + upper) / 2.0  # Python's doubles overflow to infinity without a warning
    scale = 2.0 * FIXED_POINT_ONE / (upper - lower) if upper > lower else math.inf
    if not (0.0 < scale < math.inf and math.isfinite(middle)):
        raise ParameterError(
            "P036", f"the interval [{lower!r}, {upper!r}] is too narrow or too wide for doubles. Rescale the column."
        )
    return middle, scale


def affine_maps(intervals: Sequence[tuple[float, float]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (middles, scales) of intervals, each of shape (d,)."""
    maps = {interval: affine_map(*interval) for interval in set(intervals)}
    pairs = np.array([maps[interval] for interval in intervals], dtype=np.float64).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def quantise(
    values: NDArray[np.float64], middle: float | NDArray[np.float64], scale: float | NDArray[np.float64]
) -> NDArray[np.float64]:
    """Quantise doubles; the result holds integers in ``[-S, S]``, stored as doubles.

    Parameters
    ----------
    values : ndarray of float64
        NaN means NULL. Overwritten and returned.
    middle, scale : float or ndarray
        Broadcast against `values`.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        np.subtract(values, middle, out=values)
        np.multiply(values, scale, out=values)
    np.clip(values, -FIXED_POINT_ONE, FIXED_POINT_ONE, out=values)
    np.add(values, 0.5, out=values)
    np.floor(values, out=values)
    values[np.isnan(values)] = 0.0
    return values


_LOW_BITS = 32
_MASK = (1 << _LOW_BITS) - 1
_WIDE = pa.decimal128(38, 0)


class WideSums:
    """An exact sum of arrays of integers."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.low = np.zeros(shape, dtype=np.int64)
        self.high = np.zeros(shape, dtype=np.int64)

    def add(self, parts: NDArray[np.int64]) -> None:
        """Add integers below ``2**62`` in absolute value."""
        self.low += parts
        self._carry()

    def add_at(self, positions: NDArray[np.intp], high: NDArray[np.int64], low: NDArray[np.int64]) -> None:
        """Add ``high * 2**32 + low`` at positions along the last axis, which may repeat; ``0 <= low < 2**32``."""
        for row in range(len(self.low)):
            np.add.at(self.low[row], positions, low[row])
            np.add.at(self.high[row], positions, high[row])
        touched = np.unique(positions)
        self.high[:, touched] += self.low[:, touched] >> _LOW_BITS
        self.low[:, touched] &= _MASK

    def _carry(self) -> None:
        self.high += self.low >> _LOW_BITS
        self.low &= _MASK

    def total(self, kind: type = object) -> Integers:
        """Return the sums as Python ints, or as int64 if the caller knows that they fit."""
        total: Integers = (self.high.astype(kind) << _LOW_BITS) + self.low.astype(kind)
        return total

    def column(self) -> pa.Array:
        """Return the sums as decimals, row by row; below ``2**95`` in absolute value."""
        return wide_column(self.high.ravel(), self.low.ravel())

    def absorb(self, column: pa.Array) -> None:
        """Add the `column` of another sum."""
        high, low = wide_parts(column)
        self.high += high.reshape(self.high.shape)
        self.low += low.reshape(self.low.shape)
        self._carry()


def wide_column(high: NDArray[np.int64], low: NDArray[np.int64]) -> pa.Array:
    """Return ``high * 2**32 + low`` as decimal128(38, 0), for ``0 <= low < 2**32``."""
    words = np.empty((len(high), 2), dtype=np.int64)
    words[:, 0] = (high << _LOW_BITS) | low
    words[:, 1] = high >> _LOW_BITS
    return pa.Array.from_buffers(_WIDE, len(high), [None, pa.py_buffer(np.ascontiguousarray(words, dtype="<i8"))])


def wide_parts(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (high, low) of decimals, as `wide_column` takes them."""
    words = np.frombuffer(column.buffers()[1], dtype="<i8").reshape(-1, 2)[column.offset : column.offset + len(column)]
    return (words[:, 1] << _LOW_BITS) | ((words[:, 0] >> _LOW_BITS) & _MASK), words[:, 0] & _MASK


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
    """Return ``1 / (1 + exp(margin))``, within ``2**-88`` plus the effect of an error of the margin.

    The margin less a multiple of log 2, over 32, enters a polynomial of degree 13; five squarings follow. The relative
    error is below ``2**-94``: 32 times the polynomial's error, some 20 ``u**2``. If the margin is beyond 64, 64
    replaces it, with an error below ``2**-92``.
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
        Bits of each integer, number of integers.
    """
    out = []
    high, low = value
    for number in range(1, count + 1):
        unit = 2.0 ** (bits * number)
        digit = np.rint(high * unit)
        high, low = two_sum(high - digit / unit, low)
        out.append(digit)
    return out


def _inverse(value: Doubled) -> Doubled:
    """Return the inverse of a number >= 1 by one Newton step, within 10 ``u**2``."""
    first = 1.0 / value[0]
    zero = np.zeros_like(first)
    product = multiply(value, (first, zero))
    remainder = add((np.ones_like(first), zero), (-product[0], -product[1]))
    return _quick(first, remainder[0] / value[0])


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
    for number in range(1, 4):
        unit = 1 << (_PART_BITS * number)
        part = Fraction(math.floor(rest * unit), unit)
        out.append(float(part))
        rest -= part
    return tuple(out)


_LOG2_PARTS = _parts()
_TAYLOR = [_doubled(Fraction(1, math.factorial(n))) for n in range(_TERMS)]
