"""Gaussian noise in its exact integer form, and a proof of its cost in `dpsql.contract.gaussian_profile`.

A release is an integer vector plus *discrete* Gaussian noise, whose profile differs from the continuous law.
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
below ``2**-39 delta``. Rounds may depend on the results of earlier rounds: their densities multiply.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Integers
from dpsql.contract.events import Event, GaussianDP
from dpsql.contract.gaussian_profile import MU_UNIT
from dpsql.contract.measurement import Part, one_of, take
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError
from dpsql.noise.discrete import discrete_gaussian
from dpsql.noise.entropy import SYSTEM, BitSource

LEAST_VARIANCE = 1 << 60
MOST_COORDINATES = 1 << 24

# A coarser unit brings standard deviations from 2**48 on into [2**47, 2**48): noise fits 64 bits.
_COARSE_BITS = 48


def counting_unit(
    squared_sensitivity: int, squared_mu: Fraction, least_variance: int = LEAST_VARIANCE, *, least_shift: int = 0
) -> tuple[int, int]:
    """Return the unit of noisy counts: so fine that the noise is practically continuous.

    Parameters
    ----------
    squared_sensitivity : int
        Of the counts, in rows squared, > 0.
    squared_mu : Fraction
        The share of ``mu**2`` to spend, > 0.
    least_variance : int
        Of the noise, in squares of the unit.
    least_shift : int
        Of the unit, so that the counts are integers in it.

    Returns
    -------
    shift : int
        The unit is ``2**-shift`` rows.
    sensitivity : int
        L2 sensitivity in that unit, rounded up.
    """
    shift = least_shift
    while (squared_sensitivity << 2 * shift) < least_variance * squared_mu:
        shift += 1
    # One more than the rounded-down root covers the root.
    return shift, math.isqrt(squared_sensitivity << 2 * shift) + 1


def gaussian_noise(variance: Fraction, size: int, *, source: BitSource = SYSTEM) -> NDArray[np.int64]:
    """Draw independent discrete Gaussian variables, as `gaussian_mu` assumes.

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
        I023, when the margins of this module do not cover the variance or the size.

    Notes
    -----
    - **Guarantee**: added to an integer statistic, (epsilon, delta)-DP for ``mu = gaussian_mu(epsilon, delta)``, and
      ``mu**2 / 2``-zCDP.
    - **Neighbouring relation**: the relation behind the sensitivity in `variance`.
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
        Standard deviation of the noise, in that unit: ``sqrt(2)`` times the deviation of coordinates that count twice.
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
    - **Neighbouring relation**: the relation behind `sensitivity`.
    - **Sensitivity**: L2, weighted by `twice`.
    - **Randomness**: exact integer sampler, operating-system entropy, no seed.
    - **Assumes**: see `gaussian_noise`.
    - **Does not protect**: running time, which depends on the noise.

    Large noise does not fit 64 bits, so the values are first rounded to a public multiple of the unit. That moves two
    neighbouring values apart by at most one multiple more per coordinate, which the sensitivity includes. The multiple
    is below ``2**-46`` standard deviations.
    """
    count = len(values)
    weight = count + (0 if twice is None else int(np.count_nonzero(twice)))
    variance = sensitivity**2 / squared_mu
    shift = max(0, math.isqrt(math.ceil(variance)).bit_length() - _COARSE_BITS)
    rounded = values
    if shift:
        rounded = (values.astype(object) + (1 << (shift - 1))) >> shift
        # Norms add: of the exact change and of a vector of ones, whose root is rounded up.
        ones = Fraction(math.isqrt(weight << 40) + 1, 1 << 20)
        variance = (Fraction(sensitivity, 1 << shift) + ones) ** 2 / squared_mu
    noise = np.empty(count, dtype=np.int64)
    halved = np.zeros(count, dtype=np.bool_) if twice is None else twice
    for chosen, part in ((~halved, variance), (halved, variance / 2)):
        size = int(np.count_nonzero(chosen))
        if size:
            noise[chosen] = gaussian_noise(part, size, source=source)
    # The integer sum is the release; doubles follow.
    return GaussianRelease((rounded + noise).astype(np.float64) * 2.0**shift, math.sqrt(variance) * 2.0**shift)


def gaussian_counts(
    counts: Integers,
    *,
    squared_sensitivity: int,
    squared_mu: Fraction,
    denominator: int = 1,
    source: BitSource = SYSTEM,
) -> GaussianRelease:
    """Add Gaussian noise to counts of rows, in units so fine that the noise is practically continuous.

    Parameters
    ----------
    counts : ndarray of int64 or of Python ints, shape (k,)
        In units of ``1 / denominator`` rows.
    squared_sensitivity : int
        Bound, over neighbouring tables, on the square of the L2 norm of the change, in rows squared, > 0.
    denominator : int
        A power of two.
    squared_mu, source
        As for `gaussian_release`, with its guarantee.

    Returns
    -------
    release : GaussianRelease
        In rows.
    """
    finest = denominator.bit_length() - 1
    shift, sensitivity = counting_unit(squared_sensitivity, squared_mu, least_shift=finest)
    noisy = gaussian_release(
        counts.astype(object) << (shift - finest), sensitivity=sensitivity, squared_mu=squared_mu, source=source
    )
    return GaussianRelease(noisy.values / 2.0**shift, noisy.sigma / 2.0**shift)


@dataclass(frozen=True)
class GaussianNoise(Part):
    """Several releases with Gaussian noise and one cost: their mu add up in squares.

    Attributes
    ----------
    mu : Fraction
        Of all releases together.
    epsilon, delta : Fraction
        Targets of the calibration of mu.
    shares : tuple of (str, Fraction)
        The mu of each release, by its name.
    """

    mu: Fraction
    epsilon: Fraction
    delta: Fraction
    shares: tuple[tuple[str, Fraction], ...]

    @property
    def event(self) -> Event:
        """Event for the ledger."""
        return GaussianDP(self.mu, self.epsilon, self.delta)

    def draws(self, share: str) -> int:
        """Return the allowed number of draws of a release: one."""
        return one_of([name for name, _ in self.shares], share)

    def mu_of(self, share: str) -> Fraction:
        """Return the mu of one release."""
        return dict(self.shares)[share]

    def covers(self, other: Part) -> bool:
        """Whether `other` is this part, or some of its releases at the same epsilon and delta, with a mu for them."""
        if self == other:
            return True
        if not isinstance(other, GaussianNoise) or not set(other.shares) <= set(self.shares):
            return False
        pays = other.mu**2 >= sum(mu**2 for _, mu in other.shares)
        return pays and replace(other, mu=self.mu, shares=self.shares) == self

    def spent(self, *names: str) -> GaussianNoise:
        """Return the cost of some of the releases alone, if their output decides that no more follow.

        Only mu falls. Epsilon and delta are one point of the privacy profile of all releases. If a call that stops paid
        a smaller epsilon at the same delta, both branches of the call could lose delta: 2 delta in all.
        """
        shares = tuple((name, mu) for name, mu in self.shares if name in names)
        squared = sum((mu**2 for _, mu in shares), Fraction(0))
        mu = min(self.mu, Fraction(math.isqrt(math.ceil(squared * MU_UNIT**2) - 1) + 1, MU_UNIT))
        return replace(self, mu=mu, shares=shares)

    def spend(self, share: str) -> Fraction:
        """Use up the one draw of a release, and return the mu that it may spend."""
        take(self, share)
        return self.mu_of(share)

    def draw_counts(
        self, share: str, counts: Integers, *, squared_sensitivity: int, denominator: int = 1
    ) -> GaussianRelease:
        """Return counts with noise; see `gaussian_counts`."""
        squared_mu = self.spend(share) ** 2
        return gaussian_counts(
            counts, squared_sensitivity=squared_sensitivity, squared_mu=squared_mu, denominator=denominator
        )

    def draw_sums(self, share: str, sums: Integers, *, squared_sensitivity: Fraction) -> GaussianRelease:
        """Return integers with noise; see `gaussian_release`."""
        squared_mu = self.spend(share) ** 2
        sensitivity = math.isqrt(math.ceil(squared_sensitivity) - 1) + 1  # the root, rounded up
        return gaussian_release(sums, sensitivity=sensitivity, squared_mu=squared_mu)
