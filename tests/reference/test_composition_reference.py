"""What the accountant 'rdp' says of many releases, beside the exact loss of the worst mechanisms (dp-accounting's PLD)."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from dpsql.contract.events import UNITS_PER_ONE, GaussianDP, cost_of, renyi_conversion
from dpsql.contract.gaussian_profile import gaussian_mu
from dpsql.ledger import composition
from dpsql.ledger.budget import Budget, Spent
from dpsql.ledger.composition import Composition

pytest.importorskip("dp_accounting", reason="pip install dp-accounting")

from dp_accounting.pld import privacy_loss_distribution as distribution
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from support.cases import cases

STEP = 1e-4
Event = dict[str, Any]
Worst = Callable[[bool], PrivacyLossDistribution]


def worst_of(epsilon: float, delta: float) -> Worst:
    """Randomised response that fails with chance delta: no (epsilon, delta)-DP release is worse."""
    true, false = (1 - delta) / (1 + math.exp(-epsilon)), (1 - delta) / (1 + math.exp(epsilon))
    first = {0: math.log(true), 1: math.log(false)} | ({2: math.log(delta)} if delta else {})
    second = {0: math.log(false), 1: math.log(true)} | ({3: math.log(delta)} if delta else {})
    return lambda pessimistic: distribution.from_two_probability_mass_functions(
        first, second, pessimistic_estimate=pessimistic, value_discretization_interval=STEP
    )


def pure(epsilon: str) -> tuple[Event, Worst]:
    return {"mechanism": "exponential_noise", "epsilon": epsilon}, worst_of(float(epsilon), 0)


def approximate(epsilon: str, delta: str) -> tuple[Event, Worst]:
    event = {"mechanism": "approximate", "epsilon": epsilon, "delta": delta}
    return event, worst_of(float(epsilon), float(delta))


def laplace(epsilon: str) -> tuple[Event, Worst]:
    event = {"mechanism": "discrete_laplace", "epsilon": epsilon}
    return event, lambda pessimistic: distribution.from_laplace_mechanism(
        1 / float(epsilon), pessimistic_estimate=pessimistic, value_discretization_interval=STEP, use_connect_dots=False
    )


def gaussian(epsilon: str, delta: str) -> tuple[Event, Worst]:
    mu = gaussian_mu(Fraction(epsilon), Fraction(delta))
    event = GaussianDP(mu, Fraction(epsilon), Fraction(delta)).to_json()
    return event, lambda pessimistic: distribution.from_gaussian_mechanism(
        1 / float(mu),
        pessimistic_estimate=pessimistic,
        value_discretization_interval=STEP,
        use_connect_dots=False,
    )


MIXES = {
    "100 Laplace": ([(laplace("0.05"), 100)], 1.2),
    "100 pure": ([(pure("0.05"), 100)], 1.2),
    "50 Gaussian": ([(gaussian("0.3", "1e-7"), 50)], 1.2),
    "pure and Gaussian": ([(pure("0.05"), 40), (gaussian("0.3", "1e-7"), 20), (pure("0.2"), 3)], 1.2),
    "with failures": ([(pure("0.05"), 40), (approximate("0.1", "1e-8"), 20)], 1.2),
}


def ours(releases: list[tuple[tuple[Event, Worst], int]], epsilon: float = 3, delta: float = 1e-6) -> Composition:
    spent = Spent().under(Budget.of(epsilon=epsilon, delta=delta, accountant="rdp"))
    for (event, _), count in releases:
        for _ in range(count):
            spent = spent.plus(cost_of(event))
    assert spent.composition is not None
    return spent.composition


def theirs(releases: list[tuple[tuple[Event, Worst], int]], delta: float, *, pessimistic: bool) -> float:
    composed: PrivacyLossDistribution | None = None
    for (_, worst), count in releases:
        part = worst(pessimistic).self_compose(count)
        composed = part if composed is None else composed.compose(part)
    assert composed is not None
    return float(composed.get_epsilon_for_delta(delta))


def amounts(state: Composition) -> tuple[float, float]:
    assert state.epsilon is not None
    return state.epsilon / UNITS_PER_ONE, state.delta / UNITS_PER_ONE


@cases("mix", MIXES, quick=2)
def test_a_mix_is_never_below_its_exact_loss_and_within_a_factor_of_it(mix: str) -> None:
    releases, factor = MIXES[mix]
    epsilon, delta = amounts(ours(releases))
    basic = sum(float(cost_of(event).epsilon or 0) * count for (event, _), count in releases)
    assert epsilon < 0.8 * basic
    assert epsilon >= theirs(releases, delta, pessimistic=False)
    assert epsilon <= factor * theirs(releases, 1e-6, pessimistic=True)


@cases("release", [pure("0.01"), pure("1"), pure("5"), laplace("1"), gaussian("1", "1e-7"), approximate("1", "1e-7")])
def test_one_release_is_never_below_its_exact_loss(release: tuple[Event, Worst]) -> None:
    epsilon, delta = amounts(ours([(release, 1)]))
    # Their grid may round the loss of one discrete mechanism up by a step.
    assert epsilon >= theirs([(release, 1)], delta, pessimistic=False) - STEP


def test_a_wrong_conversion_is_below_the_exact_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above would see a conversion with half of its constant, and losses of bounded range for pure ones."""
    releases, _ = MIXES["50 Gaussian"]
    monkeypatch.setattr(composition, "renyi_conversion", lambda order, tail: renyi_conversion(order, tail) / 2)
    composition._conversion.cache_clear()
    epsilon, delta = amounts(ours(releases))
    assert epsilon < theirs(releases, delta, pessimistic=False)
    monkeypatch.undo()
    composition._conversion.cache_clear()
    releases, _ = MIXES["100 pure"]
    monkeypatch.setattr(composition, "pure_renyi_loss", lambda epsilon, order: order * epsilon**2 / 8)
    epsilon, delta = amounts(ours(releases))
    assert epsilon < theirs(releases, delta, pessimistic=False)
