"""Our accounting beside Google's dp-accounting: equal where both are exact, never below where ours is a bound."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.contract.events import Cost, cost_of, zcdp_epsilon
from dpsql.contract.gaussian_profile import gaussian_delta, gaussian_mu

pytest.importorskip("dp_accounting", reason="pip install dp-accounting")

from dp_accounting import dp_event
from dp_accounting.pld import privacy_loss_distribution as distribution
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.pld.privacy_loss_mechanism import DiscreteGaussianPrivacyLoss, GaussianPrivacyLoss
from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant

from support.cases import cases

STEP = 1e-3


def their_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon at which their profile of a Gaussian mechanism comes down to delta."""
    loss = GaussianPrivacyLoss(standard_deviation=1 / mu)
    low, high = 0.0, mu**2 + 50 * mu
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if loss.get_delta_for_epsilon(middle) > delta else (low, middle)
    return high


@cases("mu", ["0.01", "0.291999", "1", "4.5"])
@cases("epsilon", ["0.01", "1", "10"])
def test_the_profile(mu: str, epsilon: str) -> None:
    theirs = GaussianPrivacyLoss(standard_deviation=1 / float(mu)).get_delta_for_epsilon(float(epsilon))
    assert float(gaussian_delta(Fraction(mu), Fraction(epsilon))) == pytest.approx(theirs, rel=1e-6, abs=1e-14)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [("1", "1e-6"), ("0.1", "1e-6"), ("10", "1e-6"), ("1", "1e-12"), ("3", "0.1")]
)
def test_the_calibration(epsilon: str, delta: str) -> None:
    mu = float(gaussian_mu(Fraction(epsilon), Fraction(delta)))
    smallest = their_epsilon(mu, float(delta))
    assert smallest == pytest.approx(float(epsilon), rel=1e-4)
    assert smallest <= float(epsilon) * (1 + 1e-9)
    assert their_epsilon(1.001 * mu, float(delta)) > float(epsilon)


def test_numbers_of_the_literature() -> None:
    """The loss of a program whose noise is mu itself (100 rounds), and of AdaSSP's published multiplier."""
    mu = float(gaussian_mu(Fraction(1), Fraction("1e-6")))
    wrong = math.sqrt(102) / mu
    assert wrong == pytest.approx(42.67, abs=5e-3)
    assert round(their_epsilon(wrong, 1e-6)) == 1112
    published = math.sqrt(math.log(6e6)) * 3
    assert published == pytest.approx(11.8518, abs=1e-4)
    assert 1 / float(gaussian_mu(Fraction(1, 3), Fraction(1, 3 * 10**6))) == pytest.approx(12.4712, abs=1e-4)
    total = Fraction(math.sqrt(3) / published)
    assert float(total) == pytest.approx(0.14614, abs=1e-5)
    assert float(gaussian_delta(total, Fraction(1))) == pytest.approx(1.312e-13, rel=1e-3)


@pytest.mark.long
@cases("multipliers", [[1.0], [2.0, 3.0, 1.5], [42.67] * 102, [7.32, 7.32] + [73.18] * 100], quick=1)
@cases("epsilon", ["0.5", "1"])
def test_composition_of_gaussians(multipliers: list[float], epsilon: str) -> None:
    """``mu**2`` adds up: between their optimistic and their pessimistic delta."""
    mu = Fraction(math.sqrt(sum(multiplier**-2 for multiplier in multipliers)))
    ends = []
    for pessimistic in (False, True):
        counted = {multiplier: multipliers.count(multiplier) for multiplier in multipliers}
        composed: Any = None
        for multiplier, count in counted.items():
            part = distribution.from_gaussian_mechanism(
                multiplier, pessimistic_estimate=pessimistic, value_discretization_interval=1e-4, use_connect_dots=False
            ).self_compose(count)
            composed = part if composed is None else composed.compose(part)
        ends.append(composed.get_delta_for_epsilon(float(epsilon)))
    assert ends[0] <= float(gaussian_delta(mu, Fraction(epsilon))) * (1 + 1e-6) <= ends[1] * (1 + 2e-6)
    assert ends[1] < 1.25 * ends[0] + 1e-9


def composed(events: list[dict[str, object]]) -> Cost:
    return cost_of({"mechanism": "composed", "events": events})


@cases("scale", [0.3, 1.0, 4.0], quick=7)
@cases("epsilon", ["0.2", "1", "3"])
def test_mixed_composition_is_never_below_theirs(scale: float, epsilon: str) -> None:
    """Laplace noise, a pure mechanism in general (the worst pair of laws) and Gaussian noise at its (epsilon, delta)."""
    delta = Fraction("1e-6")
    mu = gaussian_mu(Fraction(epsilon), delta)
    pure = Fraction(str(scale))
    ours = composed(
        [
            {"mechanism": "discrete_laplace", "epsilon": str(pure)},
            {"mechanism": "canonical_lipschitz", "epsilon": str(pure)},
            {"mechanism": "gaussian_dp", "mu": str(mu), "epsilon": epsilon, "delta": str(delta)},
        ]
    )
    assert ours.epsilon == 2 * pure + Fraction(epsilon)
    assert ours.delta == delta
    assert ours.rho == pure**2 + mu**2 / 2
    theirs = (
        distribution.from_laplace_mechanism(1 / scale, value_discretization_interval=STEP)
        .compose(
            distribution.from_privacy_parameters(
                DifferentialPrivacyParameters(scale, 0), value_discretization_interval=STEP
            )
        )
        .compose(distribution.from_gaussian_mechanism(1 / float(mu), value_discretization_interval=STEP))
    )
    for target in (1e-6, 1e-4):
        assert float(zcdp_epsilon(ours.rho, Fraction(target))) >= theirs.get_epsilon_for_delta(target) - 3 * STEP
    assert float(ours.epsilon) >= theirs.get_epsilon_for_delta(float(ours.delta)) - 3 * STEP


@cases("rho", ["0.0005", "0.02", "0.5", "8"], quick=5)
@cases("delta", ["1e-9", "1e-6", "0.01"])
def test_the_zcdp_conversion(rho: str, delta: str) -> None:
    """As good as theirs over a fine grid of orders, and never below the exact epsilon of a Gaussian of that rho."""
    ours = float(zcdp_epsilon(Fraction(rho), Fraction(delta)))
    orders = 1 + np.exp(np.linspace(-6, 9, 20_001))
    accountant = RdpAccountant(orders=list(orders))
    accountant.compose(dp_event.ZCDpEvent(float(rho)))
    theirs = accountant.get_epsilon(float(delta))
    assert ours == pytest.approx(theirs, rel=1e-5)
    assert ours >= their_epsilon(math.sqrt(2 * float(rho)), float(delta)) * (1 - 1e-9)


@pytest.mark.parametrize("sigma", [10, 30])
@pytest.mark.parametrize("sensitivity", [1, 7])
def test_the_discrete_profile(sigma: int, sensitivity: int) -> None:
    """Their exact profile of discrete noise against ours of the continuous: apart by the margin of this sigma."""
    theirs = DiscreteGaussianPrivacyLoss(sigma=sigma, sensitivity=sensitivity)
    margin = (1 + 12**2) / (24 * sigma**2)
    mu = Fraction(sensitivity, sigma)
    for epsilon in (0.1, 0.4, 1.0):
        delta = theirs.get_delta_for_epsilon(epsilon)
        assert delta <= float(gaussian_delta(mu, max(Fraction(0), Fraction(epsilon - margin)))) * (1 + margin) + 1e-15
        assert delta >= float(gaussian_delta(mu, Fraction(epsilon + margin))) * (1 - margin) - 1e-15
