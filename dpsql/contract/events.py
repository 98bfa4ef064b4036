"""Events record the spending of a release: one class per kind of mechanism, with its parameters and its exact cost.

The ledger stores events, so that a better accountant can re-evaluate past releases. An event is stored as
``{"mechanism": name, …}`` with exact numbers as text. A released name never changes its meaning: a new mechanism is a
new class.

Amounts are integers in units of 1e-18. dpsql rounds charges up and limits down, so that rounding never favours the
spender. The module also converts between the two accountings.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache
from numbers import Rational
from typing import ClassVar, Protocol, Self

from dpsql.contract.gaussian_profile import gaussian_covers, gaussian_mu
from dpsql.contract.json import Json
from dpsql.contract.parameters import show
from dpsql.dataclass import dataclass
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


@lru_cache(maxsize=256, typed=True)
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


@dataclass(frozen=True)
class Event(ABC):
    """Spending of one or more mechanisms.

    Notes
    -----
    The constructor checks numbers that determine the cost (P048). Other values, such as the number of selected
    features, stay unchanged.
    """

    mechanism: ClassVar[str]
    # Fields that are exact numbers, in the order of the checks.
    numbers: ClassVar[tuple[str, ...]] = ()
    # Whether delta is one point of a privacy profile and rho needs no delta, as for Gaussian noise.
    is_profile: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in self.numbers:
            number = getattr(self, name)
            if number is not None and not number > 0:
                raise _malformed(self.mechanism, f"{name} > 0")
            if name == "delta" and number is not None and not number < 1:
                raise _malformed(self.mechanism, "delta < 1")

    @cached_property
    def cost(self) -> Cost:
        """The privacy loss."""
        return replace(self._loss(), event=self)

    @property
    def repetitions(self) -> int:
        """Number of rounds that share the loss equally."""
        return 1

    @abstractmethod
    def _loss(self) -> Cost:
        """Return the privacy loss, without its event."""

    def scaled(self, factor: Fraction) -> Event:
        """Return approximately the event of the same call at `factor` times its epsilon; only for advice."""
        powers = {"epsilon": 1, "rho": 2}
        parameters = {name: getattr(self, name, None) for name in powers}
        changed = {name: value * factor ** powers[name] for name, value in parameters.items() if value is not None}
        return replace(self, **changed)

    def to_json(self) -> dict[str, Json]:
        """Return the record that the ledger stores; `event_from_json` reads it back."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        texts = {name: str(value) if isinstance(value, Fraction) else value for name, value in values.items()}
        return {"mechanism": self.mechanism} | {name: value for name, value in texts.items() if value is not None}

    @classmethod
    def from_json(cls, record: Mapping[str, object]) -> Self:
        """Return the event of this class that `to_json` recorded."""
        parameters = {field.name: record[field.name] for field in fields(cls) if record.get(field.name) is not None}
        optional = {field.name for field in fields(cls) if field.default is None}
        for name in cls.numbers:
            if name in parameters or name not in optional:
                parameters[name] = _number(record, name)
        build: Callable[..., Self] = cls
        return build(**parameters)


@dataclass(frozen=True)
class _Pure(Event):
    """A pure loss: `rounds` releases of epsilon/rounds each.

    Attributes
    ----------
    epsilon : Fraction
        Total over all rounds, > 0.
    rounds : int or None
        None for one round.
    """

    numbers: ClassVar[tuple[str, ...]] = ("epsilon",)

    epsilon: Fraction
    rounds: int | None = field(default=None, kw_only=True)

    @classmethod
    def from_json(cls, record: Mapping[str, object]) -> Self:
        """Return the event of this class that `to_json` recorded."""
        if record.get("rounds", 1) is None:
            raise _malformed(cls.mechanism, "an integer rounds >= 1")
        return super().from_json(record)

    def __post_init__(self) -> None:
        super().__post_init__()
        rounds = self.repetitions
        if not (isinstance(rounds, int) and not isinstance(rounds, bool) and rounds >= 1):
            raise _malformed(self.mechanism, "an integer rounds >= 1")

    @property
    def repetitions(self) -> int:
        """Number of rounds that share the loss equally."""
        return 1 if self.rounds is None else self.rounds

    def _loss(self) -> Cost:
        """Return the loss: e-DP is e²/2-zCDP (Bun and Steinke 2016, Proposition 1.4)."""
        return Cost(self.epsilon, Fraction(0), self.epsilon**2 / (2 * self.repetitions))


@dataclass(frozen=True)
class _BoundedRange(_Pure):
    """`rounds` exponential mechanisms of epsilon/rounds each."""

    def _loss(self) -> Cost:
        """Return the loss: eps0-bounded range is eps0²/8-zCDP.

        Cesar and Rogers, Bounding, concentrating, and truncating, ALT 2021.
        """
        return Cost(self.epsilon, Fraction(0), self.epsilon**2 / (8 * self.repetitions))


@dataclass(frozen=True)
class ExponentialNoise(_Pure):
    """The k largest scores with exponential noise."""

    mechanism: ClassVar[str] = "exponential_noise"

    k: int | None = None


@dataclass(frozen=True)
class GumbelNoise(_BoundedRange):
    """Rounds of the exponential mechanism, such as the k largest scores with Gumbel noise."""

    mechanism: ClassVar[str] = "gumbel_noise"

    k: int | None = None


@dataclass(frozen=True)
class CanonicalLipschitz(_Pure):
    """A set of k candidates by the canonical Lipschitz mechanism; gamma, the weight of its loss, is text."""

    mechanism: ClassVar[str] = "canonical_lipschitz"

    k: int | None = None
    gamma: str | None = None


@dataclass(frozen=True)
class SparseVectorTechnique(_Pure):
    """Comparisons of scores with a noisy threshold, until a fixed number of scores exceeds it."""

    mechanism: ClassVar[str] = "sparse_vector"

    cutoff: int | None = None


@dataclass(frozen=True)
class IntervalScan(_Pure):
    """Two scans over cells, outwards from one cell, until the remaining rows fall below a noisy threshold."""

    mechanism: ClassVar[str] = "interval_scan"


@dataclass(frozen=True)
class ObjectivePerturbation(_Pure):
    """A fit whose objective has a random linear term with an exponential law."""

    mechanism: ClassVar[str] = "objective_perturbation"


@dataclass(frozen=True)
class SmoothSensitivity(_Pure):
    """Cauchy noise scaled to smooth sensitivity."""

    mechanism: ClassVar[str] = "smooth_sensitivity"


@dataclass(frozen=True)
class SubsetExponential(_BoundedRange):
    """One or several exponential mechanisms over subsets of k features, whose epsilons add up to epsilon.

    Each mechanism is ``epsilon_i**2 / 8``-zCDP; together they are at most ``epsilon**2 / 8``.
    """

    mechanism: ClassVar[str] = "subset_exponential"

    k: int | None = None
    method: str | None = None


@dataclass(frozen=True)
class DiscreteLaplace(_Pure):
    """Integers with discrete Laplace noise."""

    mechanism: ClassVar[str] = "discrete_laplace"


@dataclass(frozen=True)
class CubeNoise(_Pure):
    """Integers with noise of the largest coordinate, one vector per group."""

    mechanism: ClassVar[str] = "cube_noise"


@dataclass(frozen=True)
class DiscreteGaussian(Event):
    """Integers with discrete Gaussian noise, which is rho-zCDP.

    Attributes
    ----------
    rho : Fraction
        > 0.
    delta : Fraction or None
        Delta for the charge of an (epsilon, delta) budget.
    """

    mechanism: ClassVar[str] = "discrete_gaussian"
    numbers: ClassVar[tuple[str, ...]] = ("rho", "delta")
    is_profile: ClassVar[bool] = True

    rho: Fraction
    delta: Fraction | None = None

    def _loss(self) -> Cost:
        if self.delta is None:
            return Cost(None, Fraction(0), self.rho)
        return Cost(zcdp_epsilon(self.rho, self.delta), self.delta, self.rho)


@dataclass(frozen=True)
class GaussianDP(Event):
    """mu-GDP, together with an (epsilon, delta) that its exact profile covers."""

    mechanism: ClassVar[str] = "gaussian_dp"
    numbers: ClassVar[tuple[str, ...]] = ("mu", "epsilon", "delta")
    is_profile: ClassVar[bool] = True

    mu: Fraction
    epsilon: Fraction
    delta: Fraction

    def _loss(self) -> Cost:
        """Return the loss; mu-GDP is mu²/2-zCDP."""
        if not gaussian_covers(self.mu, self.epsilon, self.delta):
            raise _malformed(self.mechanism, "a mu that epsilon and delta cover")
        return Cost(self.epsilon, self.delta, self.mu**2 / 2)

    def scaled(self, factor: Fraction) -> GaussianDP:
        """Return the event for `factor` times epsilon, with the mu that this epsilon and delta allow."""
        epsilon = self.epsilon * factor
        return GaussianDP(gaussian_mu(epsilon, self.delta), epsilon, self.delta)


@dataclass(frozen=True)
class PrivateTree(Event):
    """Counts with Gaussian noise and exponential mechanism rounds, zCDP together, with an implied (epsilon, delta).

    Attributes
    ----------
    rho : Fraction
        > 0.
    epsilon, delta : Fraction
        An (epsilon, delta)-DP that rho-zCDP implies.
    """

    mechanism: ClassVar[str] = "private_tree"
    numbers: ClassVar[tuple[str, ...]] = ("rho", "epsilon", "delta")
    is_profile: ClassVar[bool] = True

    rho: Fraction
    epsilon: Fraction
    delta: Fraction

    def _loss(self) -> Cost:
        if not zcdp_epsilon(self.rho, self.delta) <= self.epsilon:
            raise _malformed(self.mechanism, "a rho that epsilon and delta cover")
        return Cost(self.epsilon, self.delta, self.rho)

    def scaled(self, factor: Fraction) -> PrivateTree:
        """Return the event for `factor` times epsilon, with the rho that this epsilon and delta allow."""
        epsilon = self.epsilon * factor
        return PrivateTree(zcdp_rho(epsilon, self.delta), epsilon, self.delta)


@dataclass(frozen=True)
class Approximate(Event):
    """(epsilon, delta)-DP whose delta is a chance of failure, so that no rho-zCDP holds."""

    mechanism: ClassVar[str] = "approximate"
    numbers: ClassVar[tuple[str, ...]] = ("epsilon", "delta")

    epsilon: Fraction
    delta: Fraction
    method: str | None = None

    def _loss(self) -> Cost:
        return Cost(self.epsilon, self.delta, None)


@dataclass(frozen=True)
class Composed(Event):
    """Events in order; each event may depend on the results of earlier events."""

    mechanism: ClassVar[str] = "composed"

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        if not self.events:
            raise _malformed(self.mechanism, "a list of one or more events")

    @cached_property
    def cost(self) -> Cost:
        """The privacy loss: the sum, with the loss of every mechanism in its parts."""
        return self._loss()

    def _loss(self) -> Cost:
        costs = [event.cost for event in self.events]
        epsilons = [cost.epsilon for cost in costs if cost.epsilon is not None]
        rhos = [cost.rho for cost in costs if cost.rho is not None]
        return Cost(
            sum(epsilons, Fraction(0)) if len(epsilons) == len(costs) else None,
            sum((cost.delta for cost in costs), Fraction(0)),
            sum(rhos, Fraction(0)) if len(rhos) == len(costs) else None,
            parts=tuple(part for cost in costs for part in cost.mechanisms),
        )

    def scaled(self, factor: Fraction) -> Composed:
        """Return every event with `factor` times its epsilon."""
        return Composed(tuple(event.scaled(factor) for event in self.events))

    def to_json(self) -> dict[str, Json]:
        """Return the record that the ledger stores."""
        return {"mechanism": self.mechanism, "events": [event.to_json() for event in self.events]}

    @classmethod
    def from_json(cls, record: Mapping[str, object]) -> Self:
        """Return the event that `to_json` recorded."""
        parts = record.get("events")
        if not isinstance(parts, (list, tuple)) or not parts:
            raise _malformed(cls.mechanism, "a list of one or more events")
        return cls(tuple(event_from_json(part) for part in parts))


_EVENTS: dict[str, type[Event]] = {
    kind.mechanism: kind
    for kind in (
        ExponentialNoise,
        GumbelNoise,
        CanonicalLipschitz,
        SparseVectorTechnique,
        IntervalScan,
        ObjectivePerturbation,
        SmoothSensitivity,
        SubsetExponential,
        DiscreteLaplace,
        CubeNoise,
        DiscreteGaussian,
        GaussianDP,
        PrivateTree,
        Approximate,
        Composed,
    )
}


def event_from_json(record: Mapping[str, object]) -> Event:
    """Return the event of a record from this version or an earlier one.

    Parameters
    ----------
    record : mapping
        ``{"mechanism": name, …}`` with numbers as text, such as ``{"mechanism": "gumbel_noise", "epsilon": "1",
        "rounds": 5}``, where epsilon is the total loss of all rounds.

    Raises
    ------
    ParameterError
        P048: the mechanism is unknown, or a parameter is missing or out of range.
    """
    mechanism = record.get("mechanism")
    if not isinstance(mechanism, str) or mechanism not in _EVENTS:
        raise ParameterError(
            "P048", f"the mechanism of the event is unknown; got {show(mechanism)}. Known: {', '.join(_EVENTS)}."
        )
    return _EVENTS[mechanism].from_json(record)


def cost_of(record: Mapping[str, object]) -> Cost:
    """Return the privacy loss of an event's record; errors as in `event_from_json`."""
    return event_from_json(record).cost


def additive_noise(epsilon: Fraction, mu: Fraction | None, delta: Fraction | None) -> Event:
    """Return the event of integers with noise: Gaussian, or Laplace if `mu` or `delta` is None."""
    if mu is None or delta is None:
        return DiscreteLaplace(epsilon)
    return GaussianDP(mu, epsilon, delta)


def composed(events: Sequence[Event]) -> Event:
    """Return one event for several in order; a single event unchanged."""
    return events[0] if len(events) == 1 else Composed(tuple(events))


def _number(record: Mapping[str, object], name: str) -> Fraction:
    mechanism, entry = str(record["mechanism"]), record.get(name)
    if not isinstance(entry, (str, Rational, float, Decimal)):
        raise _malformed(mechanism, f"a number {name}")
    try:
        number = Fraction(entry)
    except (ValueError, ZeroDivisionError):
        raise _malformed(mechanism, f"a number {name}") from None
    if not number > 0:
        raise _malformed(mechanism, f"{name} > 0")
    return number


def _malformed(mechanism: str, requirement: str) -> ParameterError:
    return ParameterError("P048", f"event {show(mechanism)} must have {requirement}.")
