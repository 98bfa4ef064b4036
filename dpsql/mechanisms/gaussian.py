"""Gaussian noise by its exact privacy profile, and its exact integer form.

A release with Gaussian noise whose means on neighbouring tables are at most mu standard deviations apart is
mu-GDP, and (epsilon, delta)-DP with [1]_::

    delta(epsilon) = Phi(mu / 2 - epsilon / mu) - exp(epsilon) Phi(-mu / 2 - epsilon / mu)

Releases of mu_1, mu_2, … compose to ``sqrt(mu_1**2 + mu_2**2 + …)``, also when each depends on those before.

What is released is an integer vector plus *discrete* Gaussian noise, whose profile is not that of the continuous law.
`EPSILON_MARGIN` and `DELTA_MARGIN` make up for the difference, for up to `MOST_COORDINATES` numbers per release (all
rounds together), each with a variance of at least `LEAST_VARIANCE`:

Let f be the continuous density of the noise, ``s_i`` its standard deviations, all at least s, and ``m`` the law of
continuous noise rounded to integers. A statistic is an integer, so that statistic plus rounded noise is the rounding of
a mu-GDP release, hence itself mu-GDP. The discrete law is ``p = f / Z``, where the sum Z of f over all integer vectors
is at least 1 and at most ``1 + exp(-s**2)`` (Poisson summation). With d coordinates, for every integer vector y,

- ``m(y) >= f(y) exp(-d / (24 s**2))``, by Jensen's inequality over a unit cell;
- ``m(y) <= f(y) exp(sum of y_i**2 / (24 s_i**4))``, as ``sinh(c / 2) / (c / 2) <= exp(c**2 / 24)``.

The first gives ``p <= exp(A) m`` everywhere, ``A = d / (24 s**2)``. The second gives ``m <= exp(B) p`` in the ball
``sum (y_i / s_i)**2 <= r**2``, with ``B = r**2 / (24 s**2) + exp(-s**2)``; let t be the mass of m outside. For any
event, with primes for the neighbouring table,::

    P <= exp(A) M <= exp(A) (exp(e) M' + delta(e)) <= exp(e + A + B) P' + exp(A) (delta(e) + exp(e) t)

With ``d = 2**24``, ``s = 2**30``, ``r = 2**13``: A + B < 3.1e-12 < 2**-38, and t < exp(-2**22) by the tail of the
chi-square law (Laurent and Massart 2000), so that for e up to 2**19 and a delta of at least 1e-300 the last term is far
below ``2**-39 delta``. Rounds that depend on the results of earlier ones change nothing: their densities multiply.

References
----------
.. [1] J. Dong, A. Roth, W. Su, Gaussian differential privacy, JRSS B 2022, Corollary 2.13.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Integers
from dpsql.errors import InternalError, ParameterError
from dpsql.noise.discrete import discrete_gaussian
from dpsql.noise.entropy import SYSTEM, BitSource

LEAST_VARIANCE = 1 << 60
MOST_COORDINATES = 1 << 24
EPSILON_MARGIN = Fraction(1, 1 << 38)
DELTA_MARGIN = Fraction(1, 1 << 38)
LARGEST_EPSILON = 1 << 19
SMALLEST_DELTA = Fraction(1, 10**300)
MU_UNIT = 10**9
# Parts of a mu are rounded down to a multiple of this.
_SHARE_UNIT = 10**12
# Noise of so many rows on every sum: of no use, and below this the samplers' range ends.
_LEAST_MU = Fraction(1, 10**6)

# Below this the bound is this. Above this many standard deviations, delta is 1 but for 1e-300.
_NEGLIGIBLE = Fraction(1, 10**1000)
_ALL = 40
# The ratio Phi(x) / phi(x) is a power series above -6 and a continued fraction below.
_SERIES_FROM = -6
# Standard deviations from 2**48 on are brought into [2**47, 2**48) by a coarser unit: noise fits 64 bits.
_COARSE_BITS = 48


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
        In (0, 1]. At least the true value, and at most a share of 1e-12 or an amount of 1e-1000 above it.

    Notes
    -----
    With ``a = mu / 2 - epsilon / mu``, ``b = a - mu`` and ``R = Phi / phi`` it is ``phi(a) (R(a) - R(b))``, because
    ``exp(epsilon) phi(b) = phi(a)``. Each factor is enclosed by two decimal numbers, with more digits until the
    enclosure is tight.
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


def gaussian_covers(mu: Fraction, epsilon: Fraction, delta: Fraction) -> bool:
    """Return whether discrete Gaussian noise (`gaussian_noise`) of that mu is (epsilon, delta)-DP.

    Parameters
    ----------
    mu : Fraction
        > 0: square root of the sum of squares over all coordinates and rounds of a release.
    epsilon, delta : Fraction
        > 0. Where the argument above does not reach (see `gaussian_mu`), the answer is no.
    """
    if not EPSILON_MARGIN < epsilon <= LARGEST_EPSILON or not delta >= SMALLEST_DELTA:
        return False
    return gaussian_delta(mu, epsilon - EPSILON_MARGIN) <= delta * (1 - DELTA_MARGIN)


@lru_cache(maxsize=1024)
def gaussian_mu(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest mu for which noise of `gaussian_noise` is (epsilon, delta)-DP, rounded down.

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
        P001 (epsilon), P027 (delta), when out of range; P038, when mu would be below 1e-9.
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
    """Return `gaussian_mu`, unless the noise would be useless.

    Raises
    ------
    ParameterError
        P038: it would be more than a million rows wide.
    """
    mu = gaussian_mu(epsilon, delta)
    if mu < _LEAST_MU:
        raise ParameterError(
            "P038", "epsilon and delta leave noise of more than a million rows. Raise epsilon or delta."
        )
    return mu


def counting_unit(
    squared_sensitivity: int, squared_mu: Fraction, least_variance: int = LEAST_VARIANCE
) -> tuple[int, int]:
    """Return the unit in which noise is added to counts: so fine that the noise is practically continuous.

    Parameters
    ----------
    squared_sensitivity : int
        Of the counts, in rows squared, > 0.
    squared_mu : Fraction
        The share of ``mu**2`` that is spent, > 0.
    least_variance : int
        Of the noise, in squares of the unit.

    Returns
    -------
    shift : int
        The unit is ``2**-shift`` rows.
    sensitivity : int
        L2 sensitivity in that unit, rounded up.
    """
    shift = 0
    while (squared_sensitivity << 2 * shift) < least_variance * squared_mu:
        shift += 1
    # One more than the root rounded down covers the root.
    return shift, math.isqrt(squared_sensitivity << 2 * shift) + 1


def share_of_mu(share: Fraction, mu: Fraction) -> Fraction:
    """Return ``sqrt(share) * mu``, rounded down: the mu of a part of several releases, which add up in squares.

    Parameters
    ----------
    share : Fraction
        In (0, 1).
    mu : Fraction
        > 0.
    """
    square = share * mu**2 * _SHARE_UNIT**2
    return Fraction(math.isqrt(square.numerator // square.denominator), _SHARE_UNIT)


def gaussian_noise(variance: Fraction, size: int, *, source: BitSource = SYSTEM) -> NDArray[np.int64]:
    """Draw independent discrete Gaussian variables of the kind that `gaussian_mu` is for.

    Parameters
    ----------
    variance : Fraction
        ``(l2_sensitivity / mu)**2`` in the unit of an integer statistic; in [2**60, 2**98].
    size : int
        Number of variables, >= 0.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    noise : ndarray of int64, shape (size,)
        ``P(x)`` is proportional to ``exp(-x**2 / (2 variance))``.

    Raises
    ------
    InternalError
        I023, when the variance or the size is outside what the margins of this module cover.

    Notes
    -----
    - **Guarantee**: added to an integer statistic, (epsilon, delta)-DP for ``mu = gaussian_mu(epsilon, delta)``, and
      ``mu**2 / 2``-zCDP.
    - **Neighbouring relation**: the one that the sensitivity in `variance` was derived for.
    - **Sensitivity**: L2, over all coordinates and rounds of the release: their mu add up in squares.
    - **Randomness**: exact integer sampler, operating-system entropy, no seed.
    - **Assumes**: a release of at most 2**24 numbers, rounds included; no overflow of statistic plus noise.
    - **Does not protect**: running time, which depends on the noise.
    """
    if not variance >= LEAST_VARIANCE or not size <= MOST_COORDINATES:
        raise InternalError("I023", "noise is too fine for the calibration. Lower epsilon or the number of features.")
    return discrete_gaussian(variance, size, source=source)


@dataclass(frozen=True)
class GaussianRelease:
    """Numbers with Gaussian noise.

    Attributes
    ----------
    values : ndarray of float64, shape (k,)
        Noisy values, in the unit of the statistic.
    sigma : float
        Standard deviation of the noise, in that unit; of coordinates that count twice, ``sqrt(2)`` times as much as
        theirs.
    """

    values: NDArray[np.float64]
    sigma: float


def gaussian_release(
    values: Integers,
    *,
    sensitivity: int,
    squared_mu: Fraction,
    twice: NDArray[np.bool_] | None = None,
    source: BitSource = SYSTEM,
) -> GaussianRelease:
    """Add Gaussian noise to exact integers.

    Parameters
    ----------
    values : ndarray of int64 or of Python ints, shape (k,)
        The statistic; int64 only below ``2**62`` in absolute value, so that nothing overflows.
    sensitivity : int
        Bound, over neighbouring tables, on the L2 norm of the change, > 0.
    squared_mu : Fraction
        The share of ``mu**2`` spent here, > 0.
    twice : ndarray of bool, shape (k,), optional
        Coordinates whose squared change counts twice in that norm, as the upper triangle of a symmetric matrix does in
        its Frobenius norm. They get half the variance.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    release : GaussianRelease

    Notes
    -----
    - **Guarantee**: mu-GDP with ``mu**2 = squared_mu``, in the sense of `gaussian_mu`; ``squared_mu / 2``-zCDP.
    - **Neighbouring relation**: the one that `sensitivity` was derived for.
    - **Sensitivity**: L2, weighted by `twice`.
    - **Randomness**: exact integer sampler, operating-system entropy, no seed.
    - **Assumes**: see `gaussian_noise`.
    - **Does not protect**: running time, which depends on the noise.

    Large noise does not fit 64 bits, so the values are first rounded to a public multiple of the unit. That moves two
    neighbouring values apart by at most one multiple more per coordinate, which the sensitivity takes in. The multiple
    is below ``2**-46`` standard deviations.
    """
    count = len(values)
    weight = count + (0 if twice is None else int(np.count_nonzero(twice)))
    variance = sensitivity**2 / squared_mu
    shift = max(0, math.isqrt(math.ceil(variance)).bit_length() - _COARSE_BITS)
    rounded = values
    if shift:
        rounded = (values.astype(object) + (1 << (shift - 1))) >> shift
        # Norms add: that of the exact change and that of a vector of ones, whose root is rounded up.
        ones = Fraction(math.isqrt(weight << 40) + 1, 1 << 20)
        variance = (Fraction(sensitivity, 1 << shift) + ones) ** 2 / squared_mu
    noise = np.empty(count, dtype=np.int64)
    halved = np.zeros(count, dtype=np.bool_) if twice is None else twice
    for chosen, part in ((~halved, variance), (halved, variance / 2)):
        size = int(np.count_nonzero(chosen))
        if size:
            noise[chosen] = gaussian_noise(part, size, source=source)
    # The integer sum is the release; doubles from here on.
    return GaussianRelease((rounded + noise).astype(np.float64) * 2.0**shift, math.sqrt(variance) * 2.0**shift)


def gaussian_counts(
    counts: Integers, *, squared_sensitivity: int, squared_mu: Fraction, source: BitSource = SYSTEM
) -> GaussianRelease:
    """Add Gaussian noise to counts of rows, in units so fine that the noise is practically continuous.

    Parameters
    ----------
    counts : ndarray of int64 or of Python ints, shape (k,)
        In rows.
    squared_sensitivity : int
        Bound, over neighbouring tables, on the square of the L2 norm of the change, in rows squared, > 0.
    squared_mu, source
        As for `gaussian_release`, whose guarantee it has.

    Returns
    -------
    release : GaussianRelease
        In rows.
    """
    shift, sensitivity = counting_unit(squared_sensitivity, squared_mu)
    noisy = gaussian_release(
        counts.astype(object) << shift, sensitivity=sensitivity, squared_mu=squared_mu, source=source
    )
    return GaussianRelease(noisy.values / 2.0**shift, noisy.sigma / 2.0**shift)


def _context(digits: int) -> Context:
    return Context(prec=digits + 30, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _distribution_over_density(x: Fraction, digits: int) -> tuple[Decimal, Decimal]:
    """Enclose ``Phi(x) / phi(x)`` for x <= 40, in the context of these digits.

    With 30 digits to spare, the roundings of fewer than ``10**5`` operations on positive numbers, and that of x itself,
    stay below a share of ``10**-(digits + 10)`` of each sum.
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
    # sqrt(pi / 2) exp(x^2 / 2) + (x + x^3 / 3 + x^5 / (3 5) + …), the sum with the sign of x.
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


@lru_cache(maxsize=8)
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
