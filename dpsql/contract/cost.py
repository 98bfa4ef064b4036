"""Cost of a release: exact amounts, and conversions between the two accountings.

`dpsql.contract.events` defines the cost of each mechanism. Amounts are integers in units of 1e-18. dpsql rounds charges
up and limits down, so that rounding never favours the spender.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

from dpsql.errors import ParameterError

UNITS_PER_ONE = 10**18
DEFAULT_REPORT_DELTA = Fraction(1, 10**6)
# The error at 60 digits is far below this margin; the margin is far below one unit.
_MARGIN = Fraction(1, 10**30)
# Inverse of the least rho: noise of a million rows.
_LARGEST_NOISE = 10**12


def units_up(amount: Fraction) -> int:
    """Return `amount` in units of 1e-18, rounded up: for a charge."""
    return -(-amount.numerator * UNITS_PER_ONE // amount.denominator)


def units_down(amount: Fraction) -> int:
    """Return `amount` in units of 1e-18, rounded down: for a limit."""
    return amount.numerator * UNITS_PER_ONE // amount.denominator


def units_text(units: int) -> str:
    """Return an amount >= 0 in units of 1e-18 as the shortest exact decimal, such as ``'0.2'`` or ``'1e-06'``."""
    integer, part = divmod(units, UNITS_PER_ONE)
    if integer == 0 and 0 < part < 10**14:
        digits = str(part).rstrip("0")
        exponent = 18 - (len(str(part)) - 1)
        return f"{digits[0]}{'.' + digits[1:] if digits[1:] else ''}e-{exponent:02d}"
    return f"{integer}.{part:018d}".rstrip("0").rstrip(".")


class Spender(Protocol):
    """Part of an event that a cost stores (`dpsql.contract.events.Event`)."""

    @property
    def is_profile(self) -> bool:
        """Whether delta is one point of a privacy profile and rho needs no delta, as for Gaussian noise."""

    @property
    def repetitions(self) -> int:
        """Number of rounds that share the loss equally."""


@dataclass(frozen=True)
class Cost:
    """The privacy loss of one release in the two accountings that a budget may use.

    Attributes
    ----------
    epsilon : Fraction or None
        With `delta`: the release is (epsilon, delta)-DP, >= 0. None without a finite epsilon, as for Gaussian noise
        whose event names no delta.
    delta : Fraction
        In [0, 1).
    rho : Fraction or None
        The release is rho-zCDP, >= 0. None without zCDP, as for a propose-test-release.
    event : Spender or None
        Mechanism with this loss; None for several.
    parts : tuple of Cost
        Losses of the single mechanisms if there are several, for accountants that add up other quantities.
    """

    epsilon: Fraction | None
    delta: Fraction
    rho: Fraction | None
    event: Spender | None = field(default=None, compare=False, repr=False)
    parts: tuple[Cost, ...] = field(default=(), compare=False, repr=False)

    @property
    def mechanisms(self) -> tuple[Cost, ...]:
        """The losses of the single mechanisms."""
        return self.parts or (self,)

    @property
    def is_profile(self) -> bool:
        """Whether delta is one point of a privacy profile and rho needs no delta, as for Gaussian noise."""
        return self.event is not None and self.event.is_profile


def zcdp_epsilon(rho: Fraction, delta: Fraction) -> Fraction:
    """Convert rho-zCDP into the epsilon of (epsilon, delta)-DP.

    Parameters
    ----------
    rho : Fraction
        Zero-concentrated privacy loss, >= 0.
    delta : Fraction
        In (0, 1).

    Returns
    -------
    epsilon : Fraction
        A multiple of 1e-18, rounded up: the smaller of ``rho + 2 sqrt(rho ln(1/delta))`` and the bound below.

    Notes
    -----
    Every alpha > 1 gives a valid epsilon, ``alpha rho + ln(1 - 1/alpha) + (ln(1/delta) - ln alpha)/(alpha - 1)``
    [1]_. Floating point only picks alpha; the bound at that alpha has 60 digits.

    References
    ----------
    .. [1] Canonne, Kamath, Steinke. The discrete Gaussian for differential privacy. NeurIPS 2020, Proposition 12.
    """
    if not 0 < delta < 1:
        raise ParameterError("P018", "delta must be strictly between 0 and 1 to convert a zCDP loss.")
    if rho == 0:
        return Fraction(0)
    alpha = Fraction(_best_order(float(rho), math.log(delta.denominator) - math.log(delta.numerator)))
    with localcontext() as context:
        context.prec = 60
        loss = Decimal(rho.numerator) / Decimal(rho.denominator)
        log_inverse_delta = Decimal(delta.denominator).ln() - Decimal(delta.numerator).ln()
        simple = Fraction(loss + 2 * (loss * log_inverse_delta).sqrt()) + _MARGIN
    tight = alpha * rho + renyi_conversion(alpha, delta)
    return Fraction(units_up(max(_MARGIN, min(simple, tight))), UNITS_PER_ONE)


@lru_cache(maxsize=256)
def zcdp_rho(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return nearly the largest rho with `zcdp_epsilon` at most epsilon.

    Parameters
    ----------
    epsilon : Fraction
        > 0.
    delta : Fraction
        In (0, 1).

    Returns
    -------
    rho : Fraction
        At most a millionth part below the largest rho.

    Raises
    ------
    ParameterError
        P038: no useful rho exists.
    """
    high, low = epsilon, epsilon
    while zcdp_epsilon(low, delta) > epsilon:
        high, low = low, low / 4
        if not low * _LARGEST_NOISE > 1:
            raise ParameterError("P038", "epsilon is too small: the noise would drown any table. Raise epsilon.")
    while high - low > low / 10**6:
        middle = (low + high) / 2
        low, high = (middle, high) if zcdp_epsilon(middle, delta) <= epsilon else (low, middle)
    return low


def renyi_conversion(order: Fraction, delta: Fraction) -> Fraction:
    """Return the term that converts a Rényi loss of order `order` into the epsilon of (epsilon, delta)-DP.

    Parameters
    ----------
    order : Fraction
        > 1.
    delta : Fraction
        In (0, 1).

    Returns
    -------
    conversion : Fraction
        ``ln(1 - 1/order) + (ln(1/delta) - ln order) / (order - 1)``, rounded up; may be negative.

    References
    ----------
    .. [1] Canonne, Kamath, Steinke. The discrete Gaussian for differential privacy. NeurIPS 2020, Proposition 12.
    """
    with localcontext() as context:
        context.prec = 60
        alpha = Decimal(order.numerator) / Decimal(order.denominator)
        log_inverse_delta = Decimal(delta.denominator).ln() - Decimal(delta.numerator).ln()
        return Fraction((1 - 1 / alpha).ln() + (log_inverse_delta - alpha.ln()) / (alpha - 1)) + _MARGIN


def _best_order(rho: float, log_inverse_delta: float) -> float:
    """Return the Rényi order alpha > 1 that approximately minimises the converted epsilon."""

    def epsilon(log_excess: float) -> float:
        alpha = 1 + math.exp(log_excess)
        return alpha * rho + math.log1p(-1 / alpha) + (log_inverse_delta - math.log(alpha)) / (alpha - 1)

    centre = 0.5 * math.log(max(log_inverse_delta, 1e-9) / rho)
    low, high = max(centre - 12, -30.0), max(centre + 12, -6.0)
    for _ in range(80):
        third = (high - low) / 3
        if epsilon(low + third) < epsilon(high - third):
            high -= third
        else:
            low += third
    return 1 + math.exp((low + high) / 2)


def loss_text(cost: Cost) -> str:
    """Return the guarantee of one release in words, such as ``'pure 1-DP'`` or ``'0.1-zCDP'``."""
    if cost.epsilon is not None and cost.delta == 0:
        return f"pure {units_text(units_up(cost.epsilon))}-DP"
    if cost.epsilon is not None:
        return f"({units_text(units_up(cost.epsilon))}, {units_text(units_up(cost.delta))})-DP"
    if cost.rho is not None:
        return f"{units_text(units_up(cost.rho))}-zCDP"
    return f"delta {units_text(units_up(cost.delta))} beside a loss without one number"
