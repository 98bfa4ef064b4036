from __future__ import annotations

import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_ndtr

from dpsql.contract.events import (
    UNITS_PER_ONE,
    Cost,
    cost_of,
    loss_text,
    units_down,
    units_text,
    units_up,
    zcdp_epsilon,
    zcdp_rho,
)
from dpsql.errors import ParameterError
from support.cases import cases

amounts = st.fractions(min_value=0, max_value=10**6, max_denominator=10**25)


@pytest.mark.long
@given(amounts)
def test_a_charge_is_rounded_up_and_a_limit_down_by_less_than_one_unit(amount: Fraction) -> None:
    up, down = units_up(amount), units_down(amount)
    assert Fraction(down, UNITS_PER_ONE) <= amount <= Fraction(up, UNITS_PER_ONE)
    assert up - down == (0 if (amount * UNITS_PER_ONE).denominator == 1 else 1)


@given(st.integers(0, 10**24))
def test_the_text_of_an_amount_is_exact(units: int) -> None:
    assert Fraction(units_text(units)) * UNITS_PER_ONE == units


@cases(
    ("amount", "text"),
    [
        ("3", "3"),
        ("0.2", "0.2"),
        ("1e-6", "1e-06"),
        ("1.5e-18", "1e-18"),
        ("0", "0"),
        ("10.50", "10.5"),
        ("2.5e-5", "2.5e-05"),
    ],
)
def test_amounts_read_as_a_person_would_write_them(amount: str, text: str) -> None:
    assert units_text(units_down(Fraction(amount))) == text


def test_three_tenths_are_exactly_three_times_a_tenth() -> None:
    assert 3 * units_up(Fraction("0.1")) == units_down(Fraction("0.3"))
    assert 3 * units_up(Fraction(1, 3)) > units_down(Fraction(1))  # not a decimal: against the spender


@cases(
    ("event", "cost"),
    [
        ({"mechanism": "exponential_noise", "epsilon": "0.1", "k": 5}, ("0.1", "0", "0.005")),
        ({"mechanism": "gumbel_noise", "epsilon": "1", "rounds": 5}, ("1", "0", "0.025")),
        ({"mechanism": "gumbel_noise", "epsilon": "2"}, ("2", "0", "0.5")),
        ({"mechanism": "canonical_lipschitz", "epsilon": "1/3"}, ("1/3", "0", "1/18")),
        ({"mechanism": "discrete_laplace", "epsilon": "1"}, ("1", "0", "0.5")),
        ({"mechanism": "discrete_gaussian", "rho": "0.25"}, (None, "0", "0.25")),
        ({"mechanism": "approximate", "epsilon": "1", "delta": "1e-6"}, ("1", "1e-6", None)),
        (
            {"mechanism": "gaussian_dp", "mu": "0.236704", "epsilon": "1", "delta": "1e-6"},
            ("1", "1e-6", "0.028014391808"),
        ),
    ],
)
def test_the_cost_of_each_mechanism(event: dict[str, object], cost: tuple[str | None, str, str | None]) -> None:
    epsilon, delta, rho = (None if part is None else Fraction(part) for part in cost)
    assert cost_of(event) == Cost(epsilon, delta, rho)  # type: ignore[arg-type]


def test_composition_adds_up() -> None:
    laplace = {"mechanism": "discrete_laplace", "epsilon": "0.1"}
    gumbel = {"mechanism": "gumbel_noise", "epsilon": "0.9", "rounds": 3}
    both = cost_of({"mechanism": "composed", "events": [laplace, gumbel]})
    assert both == Cost(Fraction(1), Fraction(0), Fraction("0.005") + Fraction("0.81") / 24)
    gaussian = {"mechanism": "discrete_gaussian", "rho": "0.1"}
    assert cost_of({"mechanism": "composed", "events": [laplace, gaussian]}).epsilon is None
    tested = {"mechanism": "approximate", "epsilon": "1", "delta": "0.01"}
    assert cost_of({"mechanism": "composed", "events": [tested, gaussian]}) == Cost(None, Fraction("0.01"), None)


@cases(
    "event",
    [
        {},
        {"mechanism": "magic", "epsilon": "1"},
        {"mechanism": "exponential_noise"},
        {"mechanism": "exponential_noise", "epsilon": "0"},
        {"mechanism": "exponential_noise", "epsilon": "-1"},
        {"mechanism": "exponential_noise", "epsilon": "nan"},
        {"mechanism": "gumbel_noise", "epsilon": "1", "rounds": 0},
        {"mechanism": "gumbel_noise", "epsilon": "1", "rounds": True},
        {"mechanism": "discrete_gaussian", "rho": "1", "delta": "1"},
        {"mechanism": "approximate", "epsilon": "1", "delta": "1"},
        {"mechanism": "gaussian_dp", "mu": "0.236704", "epsilon": "1"},
        {"mechanism": "gaussian_dp", "mu": "0", "epsilon": "1", "delta": "1e-6"},
        {"mechanism": "gaussian_dp", "mu": "0.236704", "epsilon": "1e-13", "delta": "1e-6"},
        {"mechanism": "composed", "events": []},
    ],
)
def test_a_malformed_event_has_no_cost(event: dict[str, object]) -> None:
    with pytest.raises(ParameterError, match="DPSQL-P048"):
        cost_of(event)


@pytest.mark.parametrize(
    ("mu", "epsilon", "delta"),
    [
        ("0.292", math.log(3), "1e-5"),
        ("0.027545", "0.1", "1e-6"),
        ("0.236705", "1", "1e-6"),
        ("1.848133", "10", "1e-6"),
    ],
)
def test_a_wrong_calibration_has_no_cost(mu: str, epsilon: str, delta: str) -> None:
    """Constants rounded up are refused (two of them were printed so); one digit down they are charged."""
    event = {"mechanism": "gaussian_dp", "epsilon": str(epsilon), "delta": delta}
    with pytest.raises(ParameterError, match=r"DPSQL-P048.*cover"):
        cost_of({**event, "mu": mu})
    fitting = Fraction(mu) - Fraction("1e-6")
    assert cost_of({**event, "mu": str(fitting)}) == Cost(Fraction(str(epsilon)), Fraction(delta), fitting**2 / 2)


def test_the_accountant_stays_light() -> None:
    code = (
        "import sys, dpsql.contract.events; print('numpy' in sys.modules, 'dpsql.mechanisms.gaussian' in sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert loaded == ["False", "False"]


def _gaussian_delta(rho: float, epsilon: float) -> float:
    """Exact delta of a Gaussian mechanism of that rho (Balle and Wang 2018, Theorem 8)."""
    mu = math.sqrt(2 * rho)
    first, second = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return float(np.exp(first) - np.exp(second))


@cases("rho", ["1e-9", "0.0005", "0.01", "0.5", "3", "50"])
@cases("delta", ["1e-15", "1e-6", "0.01", "0.3"])
def test_the_zcdp_conversion_is_sound_and_tight(rho: str, delta: str) -> None:
    epsilon = float(zcdp_epsilon(Fraction(rho), Fraction(delta)))
    r, log_inverse = float(rho), math.log(1 / float(delta))
    assert epsilon <= r + 2 * math.sqrt(r * log_inverse) + 1e-15
    alphas = 1 + np.exp(np.linspace(-8, 30, 400_001))
    grid = alphas * r + np.log1p(-1 / alphas) + (log_inverse - np.log(alphas)) / (alphas - 1)
    assert epsilon == pytest.approx(max(0.0, grid.min()), rel=1e-6, abs=1e-9)
    assert _gaussian_delta(r, epsilon) <= float(delta)  # no Gaussian of this rho may exceed the delta


@cases("epsilon", ["0.01", "0.3", "1", "20"])
@cases("delta", ["1e-12", "1e-5", "0.01"])
def test_rho_is_the_largest_one_whose_conversion_is_within_epsilon(epsilon: str, delta: str) -> None:
    most, chance = Fraction(epsilon), Fraction(delta)
    rho = zcdp_rho(most, chance)
    assert zcdp_epsilon(rho, chance) <= most < zcdp_epsilon(rho * (1 + Fraction(2, 10**6)), chance)


def test_an_epsilon_without_a_rho_of_use_is_refused() -> None:
    with pytest.raises(ParameterError, match="P038"):
        zcdp_rho(Fraction(1, 10**9), Fraction(1, 10**6))


def test_gaussian_noise_is_charged_to_epsilon_at_the_delta_it_names() -> None:
    cost = cost_of({"mechanism": "discrete_gaussian", "rho": "0.02", "delta": "1e-6"})
    assert cost.epsilon == zcdp_epsilon(Fraction("0.02"), Fraction("1e-6"))
    assert cost.delta == Fraction("1e-6")
    assert zcdp_epsilon(Fraction(0), Fraction("1e-6")) == 0


def test_the_guarantee_in_words() -> None:
    assert loss_text(Cost(Fraction(1), Fraction(0), Fraction("0.5"))) == "pure 1-DP"
    assert loss_text(Cost(None, Fraction(0), Fraction("0.1"))) == "0.1-zCDP"
    assert loss_text(Cost(Fraction(1), Fraction("1e-6"), None)) == "(1, 1e-06)-DP"
