"""Noise on the count of a key, and a bound on its chance to lift a count over a threshold.

Counts and noise are integers: one count is `unit` steps of a lattice. A threshold is safe only for the sampled law, so
every bound here holds for that law and not for its continuous relative. Each bound is rigorous: roundings enlarge it.

With ``a = exp(-1 / scale)`` and k >= 1:

- the sum of n discrete Laplace noises is the difference of two sums of n geometric noises, so ``P(Z = s) = (1 - a)**(2
  n) a**s sum_j C(s + j + n - 1, n - 1) C(j + n - 1, n - 1) a**(2 j)``. Vandermonde's identity makes it a polynomial in
  s, Euler's transformation of the hypergeometric series makes its coefficients finite, and summing over s >= k leaves,
  with ``N = n - 1 - i``, positive terms only::

    P(Z >= k) = a**k sum_{p <= i < n} C(n - 1, i) C(k, p) (1 - a)**p a**(i - p) (1 + a)**(i + 1 - 2 n) S_i
    S_i = sum_{j <= N} (N! / (N - j)!)**2 i! / ((i + j)! j!) a**(2 j)

  For n = 1 it is ``a**k / (1 + a)``, for n = 2 ``a**k ((1 + a**2) / (1 + a)**3 + (k (1 - a) + a) / (1 + a)**2)``;
- cut to ``[-K, K]``, one noise has ``P(Z >= k) = a**k (1 - a**(K + 1 - k)) / (1 + a - 2 a**(K + 1))``;
- discrete Gaussian noise of variance v has ``P(Z = k) <= exp(1 / (24 v)) P(k - 1/2 <= X < k + 1/2)`` for the continuous
  X, by Jensen's inequality over the cell and because the weights of all integers add up to at least ``sqrt(2 pi v)``
  (Poisson summation). So ``P(Z >= k) <= exp(1 / (24 v)) P(X >= k - 1/2)``, too large by a share of at most ``(1 + k**2
  / v) / (12 v)``. If that share is not small, the code adds up the weights themselves.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.gaussian_profile import normal_tail
from dpsql.dataclass import dataclass
from dpsql.mechanisms.gaussian import counting_unit, gaussian_noise
from dpsql.noise.discrete import discrete_laplace, exp_bounds, laplace_deviation, truncated_laplace
from dpsql.noise.entropy import SYSTEM, BitSource

_DIGITS = 60
# An exponential of less than minus this is negligible: no delta is below 1e-300.
_LARGEST_EXPONENT = 2400
_NEGLIGIBLE = Fraction(1, 10**1000)
# The bound by the continuous law is tight from this variance on.
_FINE_VARIANCE = 1 << 26
# Least noise variance of counts of keys, in squared steps.
_LEAST_VARIANCE = 1 << 64


@dataclass(frozen=True, kw_only=True)
class CountNoise(ABC):
    """Independent, symmetric noise on the counts of keys, with a single mode at 0.

    Attributes
    ----------
    unit : int
        Lattice steps of one count, >= 1.
    """

    unit: int = 1

    @abstractmethod
    def tail(self, steps: int) -> Fraction:
        """Return an upper bound on the probability that the noise is at least `steps`; 1 for steps <= 0."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """Standard deviation in lattice steps, or slightly more."""

    @abstractmethod
    def draw(self, size: int, *, source: BitSource = SYSTEM) -> NDArray[np.int64]:
        """Draw independent noises, in lattice steps."""

    @property
    def deviation(self) -> float:
        """Standard deviation in counts, or slightly more."""
        return self.spread / self.unit

    def least(self, chance: Fraction) -> int:
        """Return the least k >= 1 with ``tail(k) <= chance``; chance > 0."""
        return _first(lambda steps: self.tail(steps) <= chance, 0, max(1, math.ceil(self.spread)))


@dataclass(frozen=True, kw_only=True)
class LaplaceCountNoise(CountNoise):
    """The sum of `terms` discrete Laplace noises, as on a count that adds as many noisy numbers.

    Attributes
    ----------
    scale : Fraction
        Of each noise, in lattice steps, in (0, 2**50].
    terms : int
        >= 1.
    """

    scale: Fraction
    terms: int = 1

    def tail(self, steps: int) -> Fraction:
        """Return an upper bound on the probability that the noise is at least `steps`."""
        if steps <= 0:
            return Fraction(1)
        low, high = exponential(-1 / self.scale)
        n, total = self.terms, Fraction(0)
        for i in range(n):
            series, below = _series(n - 1 - i, i, high * high), (1 + low) ** (2 * n - 1 - i)
            for p in range(i + 1):
                count = math.comb(n - 1, i) * math.comb(steps, p)
                total += count * (1 - low) ** p * high ** (i - p) * series / below
        return min(Fraction(1), exponential(-steps / self.scale)[1] * total)

    @property
    def spread(self) -> float:
        """Standard deviation in lattice steps."""
        return math.sqrt(self.terms) * laplace_deviation(self.scale)

    def draw(self, size: int, *, source: BitSource = SYSTEM) -> NDArray[np.int64]:
        """Draw independent noises; a sum exceeds 64 bits with a chance below ``exp(-2**60 / scale)``."""
        total = np.zeros(size, dtype=np.int64)
        for _ in range(self.terms):
            total += discrete_laplace(self.scale, size, source=source)
        return total


def laplace_reach(scale: Fraction, failure: Fraction) -> int:
    """Return the least integer that the size of discrete Laplace noise exceeds with at most that chance.

    Its chance to exceed k is ``2 a**(k + 1) / (1 + a)`` with ``a = exp(-1 / scale)``; doubles propose k.
    """
    width, noise = float(scale), LaplaceCountNoise(scale=scale)
    steps = math.ceil(width * (math.log(2 / failure) - math.log1p(math.exp(-1 / width)))) - 1
    proposed = max(0, steps)
    return _first(lambda reach: 2 * noise.tail(reach + 1) <= failure, proposed - 1, proposed)


@dataclass(frozen=True, kw_only=True)
class TruncatedCountNoise(CountNoise):
    """Discrete Laplace noise within ``[-bound, bound]``.

    Attributes
    ----------
    scale : Fraction
        In lattice steps, in (0, 2**50].
    bound : int
        In lattice steps, at least the scale.
    """

    scale: Fraction
    bound: int

    def tail(self, steps: int) -> Fraction:
        """Return an upper bound on the probability that the noise is at least `steps`."""
        if steps <= 0:
            return Fraction(1)
        if steps > self.bound:
            return Fraction(0)
        power = exponential(-steps / self.scale)[1]
        cut = 1 - exponential(-(self.bound + 1 - steps) / self.scale)[0]
        mass = 1 + exponential(-1 / self.scale)[0] - 2 * exponential(-(self.bound + 1) / self.scale)[1]
        return min(Fraction(1), power * cut / mass)

    @property
    def spread(self) -> float:
        """Standard deviation in lattice steps of the noise before it is cut."""
        return laplace_deviation(self.scale)

    def draw(self, size: int, *, source: BitSource = SYSTEM) -> NDArray[np.int64]:
        """Draw independent noises."""
        return truncated_laplace(self.scale, self.bound, size, source=source)


@dataclass(frozen=True, kw_only=True)
class GaussianCountNoise(CountNoise):
    """Discrete Gaussian noise.

    Attributes
    ----------
    variance : Fraction
        In squares of the lattice's step, > 0. The sampler needs at least 2**60 (`gaussian_noise`).
    """

    variance: Fraction

    def tail(self, steps: int) -> Fraction:
        """Return an upper bound on the probability that the noise is at least `steps`."""
        if steps <= 0:
            return Fraction(1)
        if self.variance >= _FINE_VARIANCE:
            squared = Fraction(2 * steps - 1, 2) ** 2 / self.variance
            share = 1 / (24 * self.variance)
            return min(Fraction(1), normal_tail(_root_below(squared)) * (1 + share + share**2))
        above = _weights_from(self.variance, steps, ROUND_CEILING)
        mass = 1 + 2 * _weights_from(self.variance, 1, ROUND_FLOOR)
        return min(Fraction(1), above / mass)

    @property
    def spread(self) -> float:
        """Standard deviation in lattice steps."""
        return math.sqrt(self.variance)

    def draw(self, size: int, *, source: BitSource = SYSTEM) -> NDArray[np.int64]:
        """Draw independent noises."""
        return gaussian_noise(self.variance, size, source=source)


def gaussian_count_noise(squared_sensitivity: int, mu: Fraction) -> GaussianCountNoise:
    """Return the noise that makes counts mu-GDP, on a lattice fine enough for the sampler.

    Parameters
    ----------
    squared_sensitivity : int
        Bound on the square of the L2 norm by which neighbouring tables differ, in counts, > 0.
    mu : Fraction
        > 0.
    """
    shift, root = counting_unit(squared_sensitivity, mu**2, _LEAST_VARIANCE)
    return GaussianCountNoise(variance=(root / mu) ** 2, unit=1 << shift)


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the first integer above `low` from which on `holds` is true.

    If `holds` is false at `high`, upward steps double: their number is the logarithm of the distance from `high`.
    """
    step = high - low
    while not holds(high):
        low, high, step = high, high + step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def exponential(exponent: Fraction, near: Fraction = Fraction(1)) -> tuple[Fraction, Fraction]:
    """Enclose ``exp(exponent)`` for an exponent <= 0, within 1e-58 of itself and of `near`, in (0, 1], or 1e-1000."""
    if exponent < -_LARGEST_EXPONENT:
        return Fraction(0), _NEGLIGIBLE
    small = near.denominator.bit_length() - near.numerator.bit_length()
    # 0.435 is above the logarithm of e to base 10, 0.302 above that of 2.
    digits = _DIGITS + math.ceil(-exponent * Fraction(435, 1000)) + small * 302 // 1000 + 1
    low, high = exp_bounds(exponent, digits)
    return Fraction(low, 10**digits), min(Fraction(1), Fraction(high, 10**digits))


def _series(order: int, i: int, square: Fraction) -> Fraction:
    """Return the sum S_i of the module's docstring, of a square that is not too small."""
    total = Fraction(0)
    for j in range(order + 1):
        factor = math.perm(order, j) ** 2 * math.factorial(i)
        total += Fraction(factor, math.factorial(i + j) * math.factorial(j)) * square**j
    return total


def _root_below(square: Fraction) -> Fraction:
    """Return the square root, rounded down, within 1e-40."""
    return Fraction(math.isqrt(square.numerator * 10**80 // square.denominator), 10**40)


@lru_cache(maxsize=256, typed=True)
def _weights_from(variance: Fraction, first: int, rounding: str) -> Fraction:
    """Add up ``exp(-j**2 / (2 variance))`` from j = first >= 1 on; every rounding is in one direction."""
    context = Context(prec=_DIGITS, rounding=rounding, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
    up = rounding == ROUND_CEILING

    def power(exponent: Fraction) -> Decimal:
        bound = exponential(exponent)[up]
        return context.divide(Decimal(bound.numerator), Decimal(bound.denominator))

    term, ratio = power(Fraction(-(first**2)) / (2 * variance)), power(Fraction(-2 * first - 1) / (2 * variance))
    step, total = power(-1 / variance), Decimal(0)
    # The rest is below a geometric series, by far more than its rounding.
    while (rest := context.divide(term, context.subtract(Decimal(1), ratio))) > total * Decimal("1e-16"):
        total = context.add(total, term)
        term, ratio = context.multiply(term, ratio), context.multiply(ratio, step)
    return Fraction(context.add(total, rest) if up else total)
