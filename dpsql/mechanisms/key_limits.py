"""Bounds on the counts of keys of one privacy unit, and on the cost of keys that no other unit has.

A key is *lone* if a single unit has it. Noise Z is added to counts, and a key is released when its noisy count is at
least T. Let ``f(a) = -log(1 - P(Z >= T - a))`` for a lone key of a rows, so that no lone key is released with
probability ``exp(-sum of f)``. The noise has one mode, so its tail is convex where T is at least the rows. Then f is
convex as well, and lies below the chord between its ends. Let K2 be the largest sum of squares of a unit's rows per
key.

- With at most g keys of at most r rows each: b lone keys have a sum of f of at most ``b f(r)``. Common keys can have
  the share ``left = min(K2, (g - b) r**2) / K2`` of the squares.
- With at most m rows of at most r keys each: the rows of the lone keys add up to some b, at most ``m r``, and by the
  chord their sum of f is at most ``b max(f(1), f(m) / m)``. Common keys have at most ``m r - b`` rows, and no key more
  than m, so squares of at most ``m (m r - b)``: ``left = 1 - b / (m r)``.

Both are a number of *pieces*. A piece costs at most a *rate* of f in lone keys, and takes some *weight* from the
others.

**Gaussian noise** on the vectors of private keys has one delta for the noise and the threshold together.

By (1) of `dpsql.mechanisms.partition_selection` the excess of one table over its neighbour is, with d the profile of
the common keys' noise (`gaussian_delta`) and ``G1``, ``G2`` the chances that no lone key of either table is released::

    1 - G1 + G1 d(epsilon + log(G2 / G1))                                                                (2)

A unit with lone keys has fewer rows for common keys: their part is ``mu sqrt(left)``-GDP (`KeyLimits.remainder`).
Under replace the squares of two units add up, and left is the mean of their shares. That needs only that the
sensitivity behind mu allows for rows whose products oppose, as it must anyway: the bounds ``2 K2 (B + c)`` and ``K2
max(2 B, D**2)`` of vectors with ``||f||**2 <= B``, ``-<f, f'> <= c`` and ``||f - f'||**2 <= D**2`` both shrink at least
by that share.

(2) falls in G1 and in G2, and rises in mu: it is a supremum over events of such terms. So its corners bound a rectangle
of numbers of lone keys; the code halves the rectangle while that bound is too large. The noise can use all of delta,
and so, nearly, can the threshold: if one of them takes all, the other has next to nothing.

The noise is discrete. Its profile is the continuous one at an epsilon and for a delta that are less by the margins of
`dpsql.mechanisms.gaussian`, whose inequalities hold at every real epsilon, also at one below 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import TypeVar

from dpsql.contract.gaussian_profile import DELTA_MARGIN, EPSILON_MARGIN, gaussian_covers, gaussian_delta, usable_mu
from dpsql.contract.relation import relation_of
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.mechanisms.count_noise import exponential
from dpsql.mechanisms.gaussian import MOST_COORDINATES
from dpsql.noise.discrete import log_bounds


@dataclass(frozen=True)
class KeyLimits:
    """Bounds on one unit's counts of keys, made by `limits_by_group`, `limits_by_row` and `limits_by_weight`.

    Attributes
    ----------
    pieces : int
        Number of pieces that lone keys can take.
    lone : tuple of (int, int)
        Pieces and counts of the worst lone keys.
    weight : Fraction
        Least share of the squared norm that common keys lose with a piece; see `remainder`.
    total : int
        Largest sum of counts of one unit: the L1 norm under add_remove, half of it under replace.
    squares : int
        Largest sum of their squares over keys: the squared L2 norm under add_remove, half of it under replace.
    """

    pieces: int
    lone: tuple[tuple[int, int], ...]
    weight: Fraction
    total: int
    squares: int

    def remainder(self, pieces: int) -> Fraction:
        """Return the share of `squares` for common keys next to lone keys of so many pieces."""
        return min(Fraction(1), (self.pieces - pieces) * self.weight)


def limits_by_group(groups: int, rows: int = 1, most_rows: int | None = None) -> KeyLimits:
    """Return the limits of a unit with at most `groups` keys, of `rows` rows each, and `most_rows` rows in all.

    Raises
    ------
    ParameterError
        P018, when one of them is not an integer >= 1.
    """
    most = groups * rows if most_rows is None else most_rows
    _check_integers(max_groups_per_unit=groups, max_rows_per_unit_group=rows, max_rows_per_unit=most)
    groups, total = min(groups, most), min(most, groups * rows)
    full, rest = divmod(total, rows)
    squares = full * rows**2 + rest**2
    return KeyLimits(groups, ((1, rows),), Fraction(rows**2, squares), total, squares)


def limits_by_row(keys_per_row: int, rows: int = 1) -> KeyLimits:
    """Return the limits of a unit with at most `rows` rows, of at most `keys_per_row` different keys each.

    Raises
    ------
    ParameterError
        P018, when one of them is not an integer >= 1.
    """
    _check_integers(max_keys_per_row=keys_per_row, max_rows_per_unit=rows)
    pieces = keys_per_row * rows
    lone = ((1, 1), (rows, rows)) if rows > 1 else ((1, 1),)
    return KeyLimits(pieces, lone, Fraction(1, pieces), pieces, pieces * rows)


def limits_by_weight(groups: int) -> KeyLimits:
    """Return the limits of a unit that adds ``1 / sqrt(k)`` to each of its k keys, at most `groups` keys.

    Of its k keys b may be lone, each with a count of at most 1, and the others then have ``(k - b) / k`` of the
    squares: at most ``(groups - b) / groups``. So the limits hold for all k at once.

    Raises
    ------
    ParameterError
        P018, when `groups` is not an integer >= 1.
    """
    _check_integers(max_groups_per_unit=groups)
    return KeyLimits(groups, ((1, 1),), Fraction(1, groups), groups, 1)


def _digits_of(value: Fraction) -> int:
    """Return the decimal places that give a number below 1 40 digits of its own."""
    return 40 + max(0, value.denominator.bit_length() - value.numerator.bit_length()) * 302 // 1000


def pure_rate(delta: Fraction, pieces: int) -> Fraction:
    """Return ``-log(1 - delta) / pieces``, rounded down."""
    digits = _digits_of(delta)
    log = log_bounds(delta.denominator, digits)[0] - log_bounds(delta.denominator - delta.numerator, digits)[1]
    return Fraction(log, 10**digits * pieces)


def chance_of_rate(rate: Fraction) -> Fraction:
    """Return ``1 - exp(-rate)``, rounded down."""
    digits = _digits_of(rate)
    near = min(Fraction(1), rate)
    return Fraction(math.floor((1 - exponential(-rate, near)[1]) * 10**digits), 10**digits)


def _check_integers(**values: int) -> None:
    for name, value in values.items():
        if not isinstance(value, int) or not value >= 1:
            raise ParameterError("P018", f"{name} must be an integer >= 1; got {value}.")


_Number = TypeVar("_Number", Fraction, float)

_LITTLE_DELTA = "delta leaves nothing for the threshold of private keys. Raise delta."
# Shares of delta for the noise alone: all of it is best, unless lone keys leave common keys unchanged.
_SHARES = (Fraction(1), *(1 - Fraction(1, 1 << bits) for bits in (10, 7, 5, 4, 3, 2, 1)))
# Steps of a bisection, stored bits of a rate, and examined rectangles of mixes.
_STEPS = 30
_RATE_BITS = 32
_MOST_RECTANGLES = 400


@dataclass(frozen=True)
class KeyBudget:
    """Split of a Gaussian call's epsilon and delta on noise and threshold together.

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
    """Return the mu with the lowest threshold, among the mu for certain shares of delta.

    Parameters
    ----------
    epsilon : Fraction
        In (0, 2**19].
    delta : Fraction
        In [1e-300, 1).
    neighbours : {'add_remove', 'replace'}
    limits : KeyLimits
    squared_sensitivity : Fraction, optional
        Variance of the count's noise times ``mu**2``, in squares of a count; by default for counts alone. Larger if
        other numbers share mu.

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
    budgets = []
    for share in _SHARES:
        mu = usable_mu(epsilon, share * delta)
        rate = _approximate_rate(float(epsilon), float(delta), float(mu), changes, limits)
        if rate > 0.0:
            budgets.append(KeyBudget(mu, _approximate_threshold(rate, math.sqrt(squared) / float(mu), limits)))
    if not budgets:
        raise ParameterError("P038", _LITTLE_DELTA)
    return min(budgets, key=lambda budget: budget.threshold)


@lru_cache(maxsize=256, typed=True)
def gaussian_rate(epsilon: Fraction, delta: Fraction, mu: Fraction, changes: int, limits: KeyLimits) -> Fraction:
    """Return about the largest rate per piece at which every mix of lone keys has an excess of at most delta."""
    if changes * limits.pieces > MOST_COORDINATES or not gaussian_covers(mu, epsilon, delta):
        raise ParameterError("P038", _LITTLE_DELTA)
    most = delta * (1 - DELTA_MARGIN)
    proposed = _approximate_rate(float(epsilon), float(delta), float(mu), changes, limits)
    rate = min(pure_rate(most, limits.pieces), _few_bits(proposed))
    for bits in range(_RATE_BITS, 0, -2):

        def excess(first: int, second: int, remainder: Fraction, rate: Fraction = rate) -> Fraction:
            factor = exponential(-rate * first, delta)[0]
            return 1 - factor * (1 - _profile(mu, remainder, epsilon - EPSILON_MARGIN + rate * (first - second)))

        if rate > 0 and _holds(excess, most, changes, limits):
            return rate
        rate *= 1 - Fraction(1, 1 << bits)
    raise ParameterError("P038", _LITTLE_DELTA)


def _few_bits(value: float) -> Fraction:
    """Round a double down, so that it does not depend on the processor's last bits."""
    mantissa, exponent = math.frexp(value)
    return Fraction(math.floor(mantissa * (1 << _RATE_BITS))) * Fraction(2) ** (exponent - _RATE_BITS)


def _holds(excess: Callable[[int, int, Fraction], _Number], delta: _Number, changes: int, limits: KeyLimits) -> bool:
    """Whether no mix of lone keys in the first and in the second table has an excess above delta; false if in doubt.

    ``excess(first, second, remainder)`` rises in all three: pieces of lone keys in each table, and the rest for others.
    """
    most, looks = limits.pieces, 0
    todo = [(0, most, 0, most)] if changes == 2 else [(0, most, 0, 0), (0, 0, 1, most)]
    while todo:
        looks += 1
        low, high, below, above = todo.pop()
        remainder = (
            limits.remainder(low + below) if changes == 1 else (limits.remainder(low) + limits.remainder(below)) / 2
        )
        if excess(high, above, remainder) <= delta:
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


def _profile(mu: Fraction, remainder: Fraction, epsilon: Fraction) -> Fraction:
    """Return the delta of ``mu sqrt(remainder)``-GDP at any real epsilon, rounded up.

    Below 0 it is ``1 - k + k d(-epsilon)``.
    """
    root = Fraction(math.isqrt(remainder.numerator * 10**40 // remainder.denominator) + 1, 10**20)
    if epsilon >= 0:
        return gaussian_delta(mu * root, epsilon) if remainder > 0 else Fraction(0)
    delta = gaussian_delta(mu * root, -epsilon) if remainder > 0 else Fraction(0)
    return 1 - exponential(epsilon, min(Fraction(1), -epsilon))[0] * (1 - delta)


def _approximate_rate(epsilon: float, delta: float, mu: float, changes: int, limits: KeyLimits) -> float:
    """Return roughly the largest rate by bisection in doubles, or 0.0: a proposal for `gaussian_rate`."""

    def holds(rate: float) -> bool:
        def excess(first: int, second: int, remainder: Fraction) -> float:
            rest = _approximate_profile(mu * math.sqrt(remainder), epsilon + rate * (first - second))
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
