"""What a release costs: exact amounts, and the privacy loss of every mechanism's event.

An event names a mechanism and its parameters and is what the ledger keeps, so that a past release can be
re-evaluated under a better accountant. Amounts are integers in units of 1e-18; a charge is rounded up and a
limit down, so that rounding never favours the spender.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

from dpsql.errors import ParameterError

UNITS_PER_ONE = 10**18
DEFAULT_REPORT_DELTA = Fraction(1, 10**6)
# 60 digits leave an error far below this margin, which is far below one unit.
_MARGIN = Fraction(1, 10**30)


def units_up(amount: Fraction) -> int:
    """Return `amount` in units of 1e-18, rounded up: for a charge."""
    return -(-amount.numerator * UNITS_PER_ONE // amount.denominator)


def units_down(amount: Fraction) -> int:
    """Return `amount` in units of 1e-18, rounded down: for a limit."""
    return amount.numerator * UNITS_PER_ONE // amount.denominator


def units_text(units: int) -> str:
    """Return an amount >= 0 in units of 1e-18 as the shortest exact decimal, such as ``'0.2'`` or ``'1e-06'``."""
    whole, part = divmod(units, UNITS_PER_ONE)
    if whole == 0 and 0 < part < 10**14:
        digits = str(part).rstrip("0")
        exponent = 18 - (len(str(part)) - 1)
        return f"{digits[0]}{'.' + digits[1:] if digits[1:] else ''}e-{exponent:02d}"
    return f"{whole}.{part:018d}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class Cost:
    """The privacy loss of one release in the two accountings that a budget may use.

    Attributes
    ----------
    epsilon : Fraction or None
        With `delta`: the release is (epsilon, delta)-DP, >= 0. None when no finite epsilon was stated, as for
        Gaussian noise whose event names no delta.
    delta : Fraction
        In [0, 1).
    rho : Fraction or None
        The release is rho-zCDP, >= 0. None when it is not zCDP at all, as for a propose-test-release.
    event : mapping or None
        The mechanism that has this loss; None for several.
    parts : tuple of Cost
        Of several mechanisms, the loss of each one; for accountants that add up something else.
    """

    epsilon: Fraction | None
    delta: Fraction
    rho: Fraction | None
    event: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    parts: tuple[Cost, ...] = field(default=(), compare=False, repr=False)

    @property
    def mechanisms(self) -> tuple[Cost, ...]:
        """The losses of the single mechanisms."""
        return self.parts or (self,)

    @property
    def is_profile(self) -> bool:
        """Whether delta belongs to one reading of the loss only, and rho needs none: so it is of Gaussian noise."""
        return self.event is not None and self.event.get("mechanism") in _profiles


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
        A multiple of 1e-18, rounded up. The smaller of ``rho + 2 sqrt(rho ln(1/delta))`` and the bound below.

    Notes
    -----
    Every alpha > 1 gives a valid epsilon, ``alpha rho + ln(1 - 1/alpha) + (ln(1/delta) - ln alpha)/(alpha - 1)``
    [1]_. Floating point only picks the alpha; the bound at that alpha is evaluated with 60 digits.

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


def renyi_conversion(order: Fraction, delta: Fraction) -> Fraction:
    """Return what converting a Rényi loss of some order into the epsilon of (epsilon, delta)-DP adds to it.

    Parameters
    ----------
    order : Fraction
        > 1.
    delta : Fraction
        In (0, 1).

    Returns
    -------
    conversion : Fraction
        ``ln(1 - 1/order) + (ln(1/delta) - ln order) / (order - 1)``, a little above; it may be negative.

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
    """Return the Rényi order alpha > 1 that about minimises the converted epsilon."""

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


def _number(event: Mapping[str, Any], key: str) -> Fraction:
    try:
        number = Fraction(event[key])
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        raise _malformed(event, f"a number {key}") from None
    if not number > 0:
        raise _malformed(event, f"{key} > 0")
    return number


def _delta(event: Mapping[str, Any]) -> Fraction:
    delta = _number(event, "delta")
    if not delta < 1:
        raise _malformed(event, "delta < 1")
    return delta


def _malformed(event: Mapping[str, Any], requirement: str) -> ParameterError:
    return ParameterError("P048", f"event {event.get('mechanism')!r} must have {requirement}.")


def _rounds(event: Mapping[str, Any]) -> int:
    rounds = event.get("rounds", 1)
    if not (isinstance(rounds, int) and not isinstance(rounds, bool) and rounds >= 1):
        raise _malformed(event, "an integer rounds >= 1")
    return rounds


def _pure(event: Mapping[str, Any]) -> Cost:
    """Read `rounds` pure releases of epsilon/rounds each; e-DP is e²/2-zCDP (Bun and Steinke 2016, Proposition 1.4)."""
    epsilon = _number(event, "epsilon")
    return Cost(epsilon, Fraction(0), epsilon**2 / (2 * _rounds(event)))


def _bounded_range(event: Mapping[str, Any]) -> Cost:
    """Compose `rounds` exponential mechanisms of epsilon/rounds each: eps0-bounded range is eps0²/8-zCDP.

    Cesar and Rogers, Bounding, concentrating, and truncating, ALT 2021.
    """
    epsilon = _number(event, "epsilon")
    return Cost(epsilon, Fraction(0), epsilon**2 / (8 * _rounds(event)))


def _gaussian(event: Mapping[str, Any]) -> Cost:
    """Read rho-zCDP; a delta in the event is the one at which an (epsilon, delta) budget is charged."""
    rho = _number(event, "rho")
    if event.get("delta") is None:
        return Cost(None, Fraction(0), rho)
    delta = _delta(event)
    return Cost(zcdp_epsilon(rho, delta), delta, rho)


def _gaussian_profile(event: Mapping[str, Any]) -> Cost:
    """Read mu-GDP beside the (epsilon, delta) that its exact profile covers; mu-GDP is mu²/2-zCDP."""
    from dpsql.mechanisms.gaussian import gaussian_covers

    mu, epsilon, delta = _number(event, "mu"), _number(event, "epsilon"), _delta(event)
    if not gaussian_covers(mu, epsilon, delta):
        raise _malformed(event, "a mu that epsilon and delta cover")
    return Cost(epsilon, delta, mu**2 / 2)


def _approximate(event: Mapping[str, Any]) -> Cost:
    """Read (epsilon, delta)-DP whose delta is a probability of failure, which no rho covers."""
    return Cost(_number(event, "epsilon"), _delta(event), None)


def _composed(event: Mapping[str, Any]) -> Cost:
    """Add up the losses of events that may depend on each other's results."""
    parts = event.get("events")
    if not isinstance(parts, (list, tuple)) or not parts:
        raise _malformed(event, "a list of one or more events")
    costs = [cost_of(part) for part in parts]
    epsilons = [cost.epsilon for cost in costs if cost.epsilon is not None]
    rhos = [cost.rho for cost in costs if cost.rho is not None]
    return Cost(
        sum(epsilons, Fraction(0)) if len(epsilons) == len(costs) else None,
        sum((cost.delta for cost in costs), Fraction(0)),
        sum(rhos, Fraction(0)) if len(rhos) == len(costs) else None,
        parts=tuple(part for cost in costs for part in cost.mechanisms),
    )


# The one table of mechanisms: to add one is to add a line. A name, once released, keeps its meaning.
_costs: dict[str, Callable[[Mapping[str, Any]], Cost]] = {
    "exponential_noise": _pure,
    "gumbel_noise": _bounded_range,
    "canonical_lipschitz": _pure,
    "sparse_vector": _pure,
    "objective_perturbation": _pure,
    "smooth_sensitivity": _pure,
    "subset_exponential": _bounded_range,
    "discrete_laplace": _pure,
    "discrete_gaussian": _gaussian,
    "gaussian_dp": _gaussian_profile,
    "approximate": _approximate,
    "composed": _composed,
}
_profiles = ("discrete_gaussian", "gaussian_dp")


def cost_of(event: Mapping[str, Any]) -> Cost:
    """Return the privacy loss of an event.

    Parameters
    ----------
    event : mapping
        ``{"mechanism": name, …}`` with numbers as text, such as ``{"mechanism": "gumbel_noise", "epsilon":
        "1", "rounds": 5}``, where epsilon is the loss of all rounds together.

    Raises
    ------
    ParameterError
        P048: the mechanism is unknown, or a parameter is missing or out of range.
    """
    mechanism = event.get("mechanism")
    if mechanism not in _costs:
        raise ParameterError(
            "P048", f"the mechanism of the event is unknown; got {mechanism!r}. Known: {', '.join(_costs)}."
        )
    cost = _costs[mechanism](event)
    return cost if cost.parts else replace(cost, event=event)


def loss_text(cost: Cost) -> str:
    """Return the guarantee of one release in words, such as ``'pure 1-DP'`` or ``'0.1-zCDP'``."""
    if cost.epsilon is not None and cost.delta == 0:
        return f"pure {units_text(units_up(cost.epsilon))}-DP"
    if cost.epsilon is not None:
        return f"({units_text(units_up(cost.epsilon))}, {units_text(units_up(cost.delta))})-DP"
    if cost.rho is not None:
        return f"{units_text(units_up(cost.rho))}-zCDP"
    return f"delta {units_text(units_up(cost.delta))} beside a loss without one number"
