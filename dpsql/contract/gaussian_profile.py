"""The cost of Gaussian noise: its exact privacy profile, in rational arithmetic.

A release with Gaussian noise whose means on neighbouring tables are at most mu standard deviations apart is
mu-GDP, and (epsilon, delta)-DP with [1]_::

    delta(epsilon) = Phi(mu / 2 - epsilon / mu) - exp(epsilon) Phi(-mu / 2 - epsilon / mu)

Releases of mu_1, mu_2, … compose to ``sqrt(mu_1**2 + mu_2**2 + …)``, even if each depends on earlier ones. dpsql draws
*discrete* noise; `EPSILON_MARGIN` and `DELTA_MARGIN` cover the difference, as `dpsql.mechanisms.gaussian` proves.

References
----------
.. [1] J. Dong, A. Roth, W. Su, Gaussian differential privacy, JRSS B 2022, Corollary 2.13.
"""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from dpsql.errors import ParameterError

EPSILON_MARGIN = Fraction(1, 1 << 38)
DELTA_MARGIN = Fraction(1, 1 << 38)
LARGEST_EPSILON = 1 << 19
SMALLEST_DELTA = Fraction(1, 10**300)
MU_UNIT = 10**9
# Parts of a mu round down to a multiple of this.
_SHARE_UNIT = 10**12
# At this mu the noise on every sum is a million rows, which is useless; the samplers' range ends below it.
_LEAST_MU = Fraction(1, 10**6)
# Bounds below `_NEGLIGIBLE` round up to it. Above `_ALL` standard deviations, delta is 1 to within 1e-300.
_NEGLIGIBLE = Fraction(1, 10**1000)
_ALL = 40
# The ratio Phi(x) / phi(x) is a power series above -6 and a continued fraction below.
_SERIES_FROM = -6


def gaussian_delta(mu: Fraction, epsilon: Fraction) -> Fraction:
    """Return the smallest delta for which a mu-GDP release is (epsilon, delta)-DP, rounded up.

    Parameters
    ----------
    mu : Fraction
        > 0: distance of the means in standard deviations.
    epsilon : Fraction
        >= 0.

    Returns
    -------
    delta : Fraction
        In (0, 1]. At least the true value; above it by at most a relative 1e-12 or an absolute 1e-1000.

    Notes
    -----
    With ``a = mu / 2 - epsilon / mu``, ``b = a - mu`` and ``R = Phi / phi``, delta is ``phi(a) (R(a) - R(b))``, because
    ``exp(epsilon) phi(b) = phi(a)``. Two decimal numbers enclose each factor, with more digits until the enclosure is
    tight.
    """
    if not mu > 0 or not epsilon >= 0:
        raise ParameterError("P018", f"mu must be > 0 and epsilon >= 0; got {float(mu)!r} and {float(epsilon)!r}.")
    above = mu / 2 - epsilon / mu
    if above > _ALL:
        return Fraction(1)
    if above < 0 and above**2 > 4800:
        return _NEGLIGIBLE
    digits = 40
    while True:
        with localcontext(_context(digits)):
            low_a, high_a = _distribution_over_density(above, digits)
            low_b, high_b = _distribution_over_density(above - mu, digits)
            if high_a - low_b <= (low_a - high_b) * (1 + Decimal("1e-13")):
                density = _decimal(-(above**2) / 2).exp() / (2 * _pi(digits)).sqrt()
                # The exponent is at most 2400: the last factor covers the rounding of all these steps.
                bound = Fraction(density) * (Fraction(high_a) - Fraction(low_b)) * (1 + Fraction(1, 10**20))
                return min(Fraction(1), bound)
        digits *= 2


def normal_tail(x: Fraction) -> Fraction:
    """Return the probability that a standard normal variable is at least x, rounded up.

    Parameters
    ----------
    x : Fraction
        >= 0.

    Returns
    -------
    chance : Fraction
        In (0, 1/2]; above the true value by at most a relative 1e-19 or an absolute 1e-1000.
    """
    if x**2 > 4800:
        return _NEGLIGIBLE
    digits = 40
    with localcontext(_context(digits)):
        ratio = _distribution_over_density(-x, digits)[1]
        density = _decimal(-(x**2) / 2).exp() / (2 * _pi(digits)).sqrt()
        return min(Fraction(1, 2), Fraction(density) * Fraction(ratio) * (1 + Fraction(1, 10**20)))


def gaussian_covers(mu: Fraction, epsilon: Fraction, delta: Fraction) -> bool:
    """Return whether discrete Gaussian noise (`gaussian_noise`) with this mu is (epsilon, delta)-DP.

    Parameters
    ----------
    mu : Fraction
        > 0: square root of the sum of squares over all coordinates and rounds of a release.
    epsilon, delta : Fraction
        > 0. Outside the range of the proof (see `gaussian_mu`), the result is False.
    """
    if not EPSILON_MARGIN < epsilon <= LARGEST_EPSILON or not delta >= SMALLEST_DELTA:
        return False
    return gaussian_delta(mu, epsilon - EPSILON_MARGIN) <= delta * (1 - DELTA_MARGIN)


@lru_cache(maxsize=1024, typed=True)
def gaussian_mu(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest mu for which `gaussian_noise` is (epsilon, delta)-DP, rounded down.

    Parameters
    ----------
    epsilon : Fraction
        In (0, 2**19].
    delta : Fraction
        In [1e-300, 1).

    Returns
    -------
    mu : Fraction
        A multiple of 1e-9. Noise of standard deviation ``l2_sensitivity / mu`` is enough.

    Raises
    ------
    ParameterError
        P001 (epsilon) or P027 (delta): out of range; P038: mu would be below 1e-9.
    """
    if not isinstance(epsilon, Fraction) or not 0 < epsilon <= LARGEST_EPSILON:
        raise ParameterError(
            "P001", f"epsilon is too large: Gaussian noise takes at most {LARGEST_EPSILON}. Lower epsilon."
        )
    if not isinstance(delta, Fraction) or not SMALLEST_DELTA <= delta < 1:
        raise ParameterError("P027", "delta must be at least 1e-300 where noise is Gaussian. 1e-6 is usual.")

    def covered(units: int) -> bool:
        return units == 0 or gaussian_covers(Fraction(units, MU_UNIT), epsilon, delta)

    low = int(_approximate_mu(float(epsilon), float(delta)) * MU_UNIT)
    step = 1
    if covered(low):
        while covered(low + step):
            low, step = low + step, 2 * step
        high = low + step
    else:
        high = low
        while not covered(low := max(0, high - step)):
            high, step = low, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if covered(middle) else (low, middle)
    if low == 0:
        raise ParameterError("P038", "epsilon and delta are too small for Gaussian noise. Raise one of them.")
    return Fraction(low, MU_UNIT)


def usable_mu(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return `gaussian_mu`, or raise if the noise would be useless.

    Raises
    ------
    ParameterError
        P038: the noise has a scale above a million rows.
    """
    mu = gaussian_mu(epsilon, delta)
    if mu < _LEAST_MU:
        raise ParameterError(
            "P038", "epsilon and delta leave noise of more than a million rows. Raise epsilon or delta."
        )
    return mu


def share_of_mu(share: Fraction, mu: Fraction) -> Fraction:
    """Return ``sqrt(share) * mu``, rounded down: the mu of a release with this share of mu squared.

    Parameters
    ----------
    share : Fraction
        In (0, 1).
    mu : Fraction
        > 0.
    """
    square = share * mu**2 * _SHARE_UNIT**2
    return Fraction(math.isqrt(square.numerator // square.denominator), _SHARE_UNIT)


def _context(digits: int) -> Context:
    return Context(prec=digits + 30, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _distribution_over_density(x: Fraction, digits: int) -> tuple[Decimal, Decimal]:
    """Return lower and upper bounds of ``Phi(x) / phi(x)`` for x <= 40, with `digits` digits.

    30 guard digits keep the rounding errors of x and of fewer than ``10**5`` operations on positive numbers below a
    relative ``10**-(digits + 10)`` of each sum.
    """
    slack = Decimal(10) ** -(digits + 10)
    if x < _SERIES_FROM:
        t = _decimal(-x)
        depth = 20 + int((digits * 2.303 / (2 * float(t))) ** 2)
        # 1 / (t + 1 / (t + 2 / (t + …))): the tail lies between t and t + (depth + 1) / t.
        first, second = t, t + (depth + 1) / t
        for k in range(depth, 0, -1):
            first, second = t + k / first, t + k / second
        low, high = sorted((1 / first, 1 / second))
        return low * (1 - slack), high * (1 + slack)
    # sqrt(pi / 2) exp(x^2 / 2) + (x + x^3 / 3 + x^5 / (3 5) + …), where the sum has the sign of x.
    size = _decimal(abs(x))
    square = size * size
    half = (_pi(digits) / 2).sqrt() * (square / 2).exp()
    term = total = size
    k = 1
    while 2 * square > 2 * k + 1 or term > total * slack / 1000:
        k += 1
        term = term * square / (2 * k - 1)
        total += term
    if x >= 0:
        return (half + total) * (1 - slack), (half + total) * (1 + slack)
    error = 2 * half * slack
    return half - total - error, half - total + error


@lru_cache(maxsize=8, typed=True)
def _pi(digits: int) -> Decimal:
    """Return pi to ``digits + 30`` digits, by Machin's formula."""
    unit = 10 ** (digits + 40)

    def inverse_tangent(x: int) -> int:
        power: int = unit // x
        total, k, sign = power, 1, 1
        while power:
            power //= x * x
            k, sign = k + 2, -sign
            total += sign * (power // k)
        return total

    pi = 4 * (4 * inverse_tangent(5) - inverse_tangent(239))
    with localcontext(_context(digits)):
        return Decimal(pi) / Decimal(unit)


def _approximate_mu(epsilon: float, delta: float) -> float:
    """Return roughly the largest mu by bisection in doubles: the start of the exact search, not its result."""

    def excess(mu: float) -> float:
        above, below = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        tail = 0.5 * math.erfc(-below / math.sqrt(2))
        second = math.exp(epsilon + math.log(tail)) if tail > 0.0 else 0.0
        return 0.5 * math.erfc(-above / math.sqrt(2)) - second - delta

    low, high = 1e-9, math.sqrt(2 * epsilon) + 100.0
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if excess(middle) <= 0 else (low, middle)
    return low
