"""The joint cost of many releases on one dataset, under the owner's accountant.

``'basic'`` adds up epsilons and deltas. ``'rdp'`` adds up Rényi losses of one order, in which many small releases cost
about the square root of their sum. A *phase* begins when the owner declares an accountant, and fixes the order a > 1
and ``tail``, half of the remaining delta. It keeps three sums over its releases:

- ``renyi``: of their Rényi losses of order a, in both directions of the neighbouring relation;
- ``pure``: of their epsilons; infinite after a release with Gaussian noise;
- ``failure``: of the deltas of releases that are only (epsilon, delta)-DP. Gaussian noise has none.

**Guarantee.** After any number of releases, each chosen in any way from earlier releases, the phase has cost::

    epsilon = min(pure, max(0, renyi + c)),   c = ln(1 - 1/a) + (ln(1/tail) - ln a) / (a - 1)
    delta   = tail + failure                  (0 before the first release)

If dpsql refuses every release that would bring epsilon above E or delta above D, then all releases together are
(E, D)-DP. Phases add up: a later phase may spend the rest of E and D after earlier phases.

**Proof.** Fix two neighbouring tables. An (e, d)-DP release is a function of a release that fails with chance d, and
else is e-DP [1]_. Let p and q be the densities of everything released, without the branches in which a release failed;
these have at most a mass of `failure`. Let ``Z = ln(p / q)``.

1. Whatever the caller chose after earlier results, a release multiplies the mean of ``exp((a - 1) Z)`` by at most
   ``exp((a - 1) r)``, where r is its Rényi loss. So ``exp((a - 1)(Z - renyi))`` has a mean under p of at most 1,
   though `renyi` itself depends on the results: it is the exponent of a supermartingale [2]_ [3]_.
2. ``max(0, 1 - exp(e - Z)) <= exp((a - 1)(Z - e)) (1 - 1/a)**(a - 1) / a`` for every e and Z. At ``e = renyi + c`` the
   mean of the left side is at most `tail`, by the choice of c [4]_. A larger e makes it smaller. At e = `pure` it is 0,
   as ``Z <= pure``. So the integral of ``max(0, p - exp(epsilon) q)`` is at most `tail`, with the epsilon above, which
   is a function of the results.
3. Filter: if epsilon <= E, any event has ``P <= exp(E) Q + tail + failure``.
4. Phases: let the later phases be (E - epsilon, D - delta)-DP for any results so far. Given these, let A and B be
   the chances of an event on the two tables, ``A <= min(1, exp(E - epsilon) B) + D - delta``. Then ``p A - exp(E) q B
   <= max(0, p - exp(epsilon) q) + p (D - delta)``, and the integral of that, with all failures, is at most D.

**Assumes** that each event's loss holds for any earlier releases, that order and tail do not change within a phase, and
that the owner's E and D do not depend on the releases (as for any budget). Floating point chooses only the order: any
order is valid. Sums are integers of 1e-18, and every term and c is rounded up.

References
----------
.. [1] Kairouz, Oh, Viswanath. The composition theorem for differential privacy. ICML 2015.
.. [2] Feldman, Zrnic. Individual privacy accounting via a Rényi filter. NeurIPS 2021.
.. [3] Whitehouse, Ramdas, Rogers, Wu. Fully adaptive composition in differential privacy. ICML 2023.
.. [4] Canonne, Kamath, Steinke. The discrete Gaussian for differential privacy. NeurIPS 2020, Proposition 12.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from dpsql.contract.events import UNITS_PER_ONE, Cost, renyi_conversion, units_up
from dpsql.dataclass import dataclass

ACCOUNTANTS = ("basic", "rdp")
_ORDER_DIGITS = 3
# Above this, a pure loss hardly exceeds its Rényi loss.
_LARGE_EPSILON = 1000


@dataclass(frozen=True)
class Composition:
    """The state of an accountant after a row of the ledger, in units of 1e-18 (see the module).

    Attributes
    ----------
    order : Fraction or None
        The Rényi order; None under ``'basic'``.
    tail : int
        The part of delta for the conversion; 0 under ``'basic'``.
    before_epsilon, before_delta : int or None
        Cost of earlier phases; None after a release without a finite epsilon.
    pure : int or None
        Sum of epsilons; None if one has none.
    renyi, failure : int
        Sums of Rényi losses (0 under ``'basic'``) and of deltas.
    releases : int
        In this phase.
    """

    order: Fraction | None
    tail: int
    before_epsilon: int | None
    before_delta: int
    pure: int | None = 0
    renyi: int = 0
    failure: int = 0
    releases: int = 0

    def __post_init__(self) -> None:
        amounts = (self.tail, self.before_epsilon or 0, self.before_delta, self.pure or 0, self.renyi, self.failure)
        rdp = self.order is None or (self.order > 1 and 0 < self.tail < UNITS_PER_ONE)
        if min(*amounts, self.releases) < 0 or not rdp:
            raise ValueError("no state of an accountant")

    @property
    def conversion(self) -> int:
        """The constant c, rounded up; 0 under ``'basic'``."""
        return 0 if self.order is None else _conversion(self.order, self.tail)

    @property
    def epsilon(self) -> int | None:
        """Cost of all phases; None without a finite epsilon for it."""
        losses = [] if self.pure is None else [self.pure]
        if self.order is not None and self.releases:
            losses.append(max(0, self.renyi + self.conversion))
        if self.before_epsilon is None or not losses:
            return None
        return self.before_epsilon + min(losses)

    @property
    def delta(self) -> int:
        """Cost of all phases."""
        return self.before_delta + self.failure + (self.tail if self.releases else 0)

    def plus(self, cost: Cost) -> Composition:
        """Return the state after one more release; round every amount up."""
        if self.order is None:
            return self._basically(cost)
        pure, renyi, failure = self.pure, self.renyi, self.failure
        for part in cost.mechanisms:
            renyi += units_up(renyi_loss(part, self.order))
            if part.is_profile:
                pure = None
            else:
                pure = None if pure is None or part.epsilon is None else pure + units_up(part.epsilon)
                failure += units_up(part.delta)
        return replace(self, pure=pure, renyi=renyi, failure=failure, releases=self.releases + 1)

    def _basically(self, cost: Cost) -> Composition:
        pure = None if self.pure is None or cost.epsilon is None else self.pure + units_up(cost.epsilon)
        return replace(self, pure=pure, failure=self.failure + units_up(cost.delta), releases=self.releases + 1)

    def with_added(self, added: Mapping[str, str | None]) -> Composition:
        """Return the state after adding amounts to its sums, by their names; None for one without a finite sum."""
        sums: dict[str, int | None] = {}
        for name, amount in added.items():
            if name not in _SUMS:
                raise ValueError("no sum of an accountant")
            before = getattr(self, name)
            sums[name] = None if before is None or amount is None else before + int(amount)
        return replace(self, **sums)  # type: ignore[arg-type]

    def beyond(self, earlier: Composition) -> dict[str, str | None]:
        """Return the increase since an earlier state of the same phase, for `with_added`."""
        added: dict[str, str | None] = {}
        for name in _SUMS:
            before, after = getattr(earlier, name), getattr(self, name)
            if before is not None and after != before:
                added[name] = None if after is None else str(after - before)
        return added

    def is_phase_of(self, other: Composition | None) -> bool:
        """Whether another state is of the same phase, so that their sums differ by the charges in between."""
        phase = ("order", "tail", "before_epsilon", "before_delta")
        return other is not None and all(getattr(self, name) == getattr(other, name) for name in phase)

    def to_json(self) -> str:
        """Return the state as canonical JSON, amounts as text."""
        record: dict[str, str | int | None] = {
            "accountant": "basic" if self.order is None else "rdp",
            "order": None if self.order is None else str(self.order),
            "releases": self.releases,
        }
        for name in _AMOUNTS:
            amount = getattr(self, name)
            record[name] = None if amount is None else str(amount)
        return json.dumps(record, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Composition:
        """Read back what `to_json` wrote."""
        record = json.loads(text)

        def amount(name: str) -> int | None:
            return None if record[name] is None else int(record[name])

        return cls(
            order=None if record["order"] is None else Fraction(record["order"]),
            tail=int(record["tail"]),
            before_epsilon=amount("before_epsilon"),
            before_delta=int(record["before_delta"]),
            pure=amount("pure"),
            renyi=int(record["renyi"]),
            failure=int(record["failure"]),
            releases=int(record["releases"]),
        )


_AMOUNTS = ("tail", "before_epsilon", "before_delta", "pure", "renyi", "failure")
_SUMS = (*_AMOUNTS[1:], "releases")


def begin(
    accountant: str,
    *,
    epsilon: int,
    delta: int,
    spent: tuple[int | None, int],
    standing: Composition | None,
    order: Fraction | None = None,
) -> Composition | None:
    """Return the state after the owner declares an accountant; earlier charges keep their cost.

    Parameters
    ----------
    accountant : {'basic', 'rdp'}
    epsilon, delta : int
        The limits of the new budget, in units of 1e-18.
    spent : tuple of (int or None, int)
        Epsilon and delta of all releases so far by basic composition.
    standing : Composition or None
        The state until now; None if there never was one, and `spent` is complete.
    order : Fraction, optional
        For ``'rdp'``; by default the order that fits the most small releases.

    Returns
    -------
    state : Composition or None
        None if there was only basic composition. A phase continues under the same accountant: its limits are not part
        of it.
    """
    if accountant == "basic" and (standing is None or standing.order is None):
        return standing
    if accountant == "rdp" and standing is not None and standing.order is not None and standing.releases:
        return standing
    before_epsilon, before_delta = (standing.epsilon, standing.delta) if standing is not None else spent
    if accountant == "basic":
        return Composition(None, 0, before_epsilon, before_delta)
    # If nothing remains, every release will be refused, whatever the order.
    left_epsilon = epsilon - (before_epsilon or 0) if epsilon > (before_epsilon or 0) else epsilon
    left_delta = delta - before_delta if delta - before_delta > 1 else delta
    tail = left_delta // 2
    chosen = order or best_order(left_epsilon / UNITS_PER_ONE, tail / UNITS_PER_ONE)
    return Composition(chosen, tail, before_epsilon, before_delta)


def best_order(epsilon: float, tail: float) -> Fraction:
    """Return about the Rényi order that fits the most releases of equal, small loss in (epsilon, tail).

    Losses grow in proportion to the order, so the best order has a large ``(epsilon - c) / order``.
    """
    log_inverse = -math.log(tail)

    def room(log_excess: float) -> float:
        order = 1 + math.exp(log_excess)
        conversion = math.log1p(-1 / order) + (log_inverse - math.log(order)) / (order - 1)
        return (epsilon - conversion) / order

    low, high = -4.0, 25.0
    while high - low > 1e-6:
        third = (high - low) / 3
        if room(low + third) < room(high - third):
            low += third
        else:
            high -= third
    return 1 + Fraction(f"{math.exp((low + high) / 2):.{_ORDER_DIGITS}g}")


def renyi_loss(cost: Cost, order: Fraction) -> Fraction:
    """Return a mechanism's Rényi loss, at least the true one: the least that its guarantees imply.

    Parameters
    ----------
    cost : Cost
        Of one mechanism.
    order : Fraction
        > 1.
    """
    losses = [] if cost.rho is None else [order * cost.rho]
    if cost.epsilon is not None and not cost.is_profile:
        rounds = 1 if cost.event is None else cost.event.repetitions
        losses.append(rounds * pure_renyi_loss(cost.epsilon / rounds, order))
    return min(losses)


@lru_cache(maxsize=1024, typed=True)
def pure_renyi_loss(epsilon: Fraction, order: Fraction) -> Fraction:
    """Return the largest Rényi loss of any epsilon-DP release (randomised response), rounded up.

    Parameters
    ----------
    epsilon : Fraction
        > 0.
    order : Fraction
        > 1.

    Notes
    -----
    ``ln((exp(a epsilon) + exp((1 - a) epsilon)) / (1 + exp(epsilon))) / (a - 1)``, in a form that cannot overflow.
    """
    if epsilon > _LARGE_EPSILON:
        return epsilon
    with localcontext(Context(prec=60)):
        loss, a = _decimal(epsilon), _decimal(order)
        gain = (1 + (-loss * (2 * a - 1)).exp()).ln() - (1 + (-loss).exp()).ln()
        # 60 digits make an error far below this margin, even divided by a - 1, which is at least 1e-3.
        return min(epsilon, Fraction(loss + gain / (a - 1) + Decimal(10) ** -30))


@lru_cache(maxsize=256, typed=True)
def _conversion(order: Fraction, tail: int) -> int:
    return units_up(renyi_conversion(order, Fraction(tail, UNITS_PER_ONE)))


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)
