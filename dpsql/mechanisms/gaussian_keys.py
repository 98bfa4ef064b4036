"""Gaussian noise on the vectors of private keys: one delta for the noise and for the threshold together.

By (1) of `dpsql.mechanisms.key_threshold` the excess of one table over its neighbour is, with d the profile of the
common keys' noise (`gaussian_delta`) and ``G1``, ``G2`` the chances that no lone key of either table is released::

    1 - G1 + G1 d(epsilon + log(G2 / G1))                                                                (2)

With lone keys a unit has fewer rows left for common ones: their part is ``mu sqrt(left)``-GDP (`KeyLimits.left`). Under
replace the squares of two units add up, and left is the mean of their shares. That needs only that the sensitivity
behind mu allows for rows whose products oppose, as it must anyway: the bounds ``2 K2 (B + c)`` and ``K2 max(2 B,
D**2)`` of vectors with ``||f||**2 <= B``, ``-<f, f'> <= c`` and ``||f - f'||**2 <= D**2`` both shrink at least by that
share.

(2) falls in G1 and in G2, and rises in mu: it is a supremum over events of such terms. So a rectangle of numbers of
lone keys is bounded by its corners, and is cut in two while that bound does not do. All of delta is at hand for the
noise and, but for a hair, for the threshold: where one of them takes all, the other has next to nothing.

The noise is discrete. Its profile is the continuous one at an epsilon and for a delta that are less by the margins of
`dpsql.mechanisms.gaussian`, whose inequalities hold at every real epsilon, also at one below 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import TypeVar

from dpsql.contract.gaussian_profile import DELTA_MARGIN, EPSILON_MARGIN, gaussian_covers, gaussian_delta, usable_mu
from dpsql.contract.relation import relation_of
from dpsql.errors import ParameterError
from dpsql.mechanisms.count_noise import exponential
from dpsql.mechanisms.gaussian import MOST_COORDINATES
from dpsql.mechanisms.key_limits import KeyLimits, pure_rate

_Number = TypeVar("_Number", Fraction, float)

_LITTLE_DELTA = "delta leaves nothing for the threshold of private keys. Raise delta."
# Shares of delta that the noise alone may take: all of it is best, unless lone keys leave common ones as they are.
_SHARES = (Fraction(1), *(1 - Fraction(1, 1 << bits) for bits in (10, 7, 5, 4, 3, 2, 1)))
# Steps of a bisection, bits of a rate that are kept, and rectangles of mixes that are looked at.
_STEPS = 30
_RATE_BITS = 32
_MOST_RECTANGLES = 400


@dataclass(frozen=True)
class KeyBudget:
    """How a Gaussian call spends its epsilon and delta on noise and threshold together.

    Attributes
    ----------
    mu : Fraction
        Of the noisy vectors of all keys together.
    threshold : float
        In counts, to about nine digits; `key_threshold` gives the exact one.
    """

    mu: Fraction
    threshold: float


@lru_cache(maxsize=256, typed=True)
def gaussian_key_budget(
    epsilon: Fraction,
    delta: Fraction,
    *,
    neighbours: str,
    limits: KeyLimits,
    squared_sensitivity: Fraction | None = None,
) -> KeyBudget:
    """Return the mu with the lowest threshold, among those that take certain shares of delta for themselves.

    Parameters
    ----------
    epsilon : Fraction
        In (0, 2**19].
    delta : Fraction
        In [1e-300, 1).
    neighbours : {'add_remove', 'replace'}
    limits : KeyLimits
    squared_sensitivity : Fraction, optional
        Variance of the count's noise times ``mu**2``, in squares of a count; by default that of counts alone. Larger
        where other numbers share mu.

    Returns
    -------
    budget : KeyBudget

    Raises
    ------
    ParameterError
        P001, P018, P027, P038, as `usable_mu`.
    """
    changes = relation_of(neighbours).changes
    squared = Fraction(changes * limits.squares) if squared_sensitivity is None else squared_sensitivity
    found = []
    for share in _SHARES:
        mu = usable_mu(epsilon, share * delta)
        rate = _approximate_rate(float(epsilon), float(delta), float(mu), changes, limits)
        if rate > 0.0:
            found.append(KeyBudget(mu, _approximate_threshold(rate, math.sqrt(squared) / float(mu), limits)))
    if not found:
        raise ParameterError("P038", _LITTLE_DELTA)
    return min(found, key=lambda budget: budget.threshold)


@lru_cache(maxsize=256, typed=True)
def gaussian_rate(epsilon: Fraction, delta: Fraction, mu: Fraction, changes: int, limits: KeyLimits) -> Fraction:
    """Return a rate per piece at which every mix of lone keys has an excess of at most delta, about the largest."""
    if changes * limits.pieces > MOST_COORDINATES or not gaussian_covers(mu, epsilon, delta):
        raise ParameterError("P038", _LITTLE_DELTA)
    most = delta * (1 - DELTA_MARGIN)
    proposed = _approximate_rate(float(epsilon), float(delta), float(mu), changes, limits)
    rate = min(pure_rate(most, limits.pieces), _few_bits(proposed))
    for bits in range(_RATE_BITS, 0, -2):

        def excess(first: int, second: int, left: Fraction, rate: Fraction = rate) -> Fraction:
            kept = exponential(-rate * first, delta)[0]
            return 1 - kept * (1 - _profile(mu, left, epsilon - EPSILON_MARGIN + rate * (first - second)))

        if rate > 0 and _holds(excess, most, changes, limits):
            return rate
        rate *= 1 - Fraction(1, 1 << bits)
    raise ParameterError("P038", _LITTLE_DELTA)


def _few_bits(value: float) -> Fraction:
    """Round a double down, so that it no longer depends on the processor's last bits."""
    mantissa, exponent = math.frexp(value)
    return Fraction(math.floor(mantissa * (1 << _RATE_BITS))) * Fraction(2) ** (exponent - _RATE_BITS)


def _holds(excess: Callable[[int, int, Fraction], _Number], delta: _Number, changes: int, limits: KeyLimits) -> bool:
    """Whether no mix of lone keys in the first and in the second table has an excess above delta; in doubt, not.

    ``excess(first, second, left)`` rises in all three: pieces of lone keys in each table, and what is left for others.
    """
    most, looks = limits.pieces, 0
    todo = [(0, most, 0, most)] if changes == 2 else [(0, most, 0, 0), (0, 0, 1, most)]
    while todo:
        looks += 1
        low, high, below, above = todo.pop()
        left = limits.left(low + below) if changes == 1 else (limits.left(low) + limits.left(below)) / 2
        if excess(high, above, left) <= delta:
            continue
        if looks > _MOST_RECTANGLES or (low == high and below == above):
            return False
        if high - low >= above - below:
            middle = (low + high) // 2
            todo += [(low, middle, below, above), (middle + 1, high, below, above)]
        else:
            middle = (below + above) // 2
            todo += [(low, high, below, middle), (low, high, middle + 1, above)]
    return True


def _profile(mu: Fraction, left: Fraction, epsilon: Fraction) -> Fraction:
    """Return the delta of ``mu sqrt(left)``-GDP at any real epsilon, rounded up: ``1 - k + k d(-epsilon)`` below 0."""
    root = Fraction(math.isqrt(left.numerator * 10**40 // left.denominator) + 1, 10**20)
    if epsilon >= 0:
        return gaussian_delta(mu * root, epsilon) if left > 0 else Fraction(0)
    delta = gaussian_delta(mu * root, -epsilon) if left > 0 else Fraction(0)
    return 1 - exponential(epsilon, min(Fraction(1), -epsilon))[0] * (1 - delta)


def _approximate_rate(epsilon: float, delta: float, mu: float, changes: int, limits: KeyLimits) -> float:
    """Return roughly the largest rate by bisection in doubles, or 0.0: a proposal for `gaussian_rate`."""

    def holds(rate: float) -> bool:
        def excess(first: int, second: int, left: Fraction) -> float:
            rest = _approximate_profile(mu * math.sqrt(left), epsilon + rate * (first - second))
            return -math.expm1(-rate * first) + math.exp(-rate * first) * rest

        return _holds(excess, delta, changes, limits)

    high = -math.log1p(-delta) / limits.pieces
    if holds(high):
        return high
    low = high * 2.0**-_STEPS
    if not holds(low):
        return 0.0
    for _ in range(_STEPS):
        middle = (low + high) / 2 if low > high / 4 else math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _approximate_profile(mu: float, epsilon: float) -> float:
    if epsilon < 0.0:
        return -math.expm1(epsilon) + math.exp(epsilon) * _approximate_profile(mu, -epsilon)
    if mu == 0.0:
        return 0.0
    above, below = (epsilon / mu - mu / 2) / math.sqrt(2), (epsilon / mu + mu / 2) / math.sqrt(2)
    tail = math.erfc(below) / 2
    second = math.exp(epsilon + math.log(tail)) if tail > 0.0 else 0.0
    return max(0.0, math.erfc(above) / 2 - second)


def _approximate_threshold(rate: float, deviation: float, limits: KeyLimits) -> float:
    return max(
        rows - deviation * min(0.0, NormalDist().inv_cdf(-math.expm1(-pieces * rate))) for pieces, rows in limits.lone
    )
