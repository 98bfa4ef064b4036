"""Events: what is stored of each, and that every record of this and of earlier versions is read as it was charged."""

from __future__ import annotations

import json
import sqlite3
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dpsql.contract.events import (
    Approximate,
    CanonicalLipschitz,
    Composed,
    CubeNoise,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    ExponentialNoise,
    GaussianDP,
    GumbelNoise,
    IntervalScan,
    ObjectivePerturbation,
    PrivateTree,
    SmoothSensitivity,
    SparseVectorTechnique,
    SubsetExponential,
    composed,
    cost_of,
    event_from_json,
    units_up,
)
from dpsql.errors import ParameterError
from support.cases import cases

FIXTURES = Path(__file__).parents[1] / "fixtures"
THIRD = Fraction(1, 3)
LAPLACE = DiscreteLaplace(Fraction(1, 10))
GAUSSIAN = GaussianDP(Fraction("0.236704"), Fraction(1), Fraction(1, 10**6))
# What the ledger held of each before events had classes.
RECORDS: list[tuple[Event, dict[str, Any]]] = [
    (ExponentialNoise(THIRD, 5), {"mechanism": "exponential_noise", "k": 5, "epsilon": "1/3"}),
    (
        ExponentialNoise(Fraction(2), 2, rounds=2),
        {"mechanism": "exponential_noise", "k": 2, "epsilon": "2", "rounds": 2},
    ),
    (GumbelNoise(Fraction(2), 3, rounds=3), {"mechanism": "gumbel_noise", "k": 3, "epsilon": "2", "rounds": 3}),
    (GumbelNoise(THIRD, rounds=2), {"mechanism": "gumbel_noise", "epsilon": "1/3", "rounds": 2}),
    (
        CanonicalLipschitz(Fraction(1), 2, "1/2"),
        {"mechanism": "canonical_lipschitz", "k": 2, "epsilon": "1", "gamma": "1/2"},
    ),
    (SparseVectorTechnique(THIRD, 4), {"mechanism": "sparse_vector", "epsilon": "1/3", "cutoff": 4}),
    (IntervalScan(THIRD), {"mechanism": "interval_scan", "epsilon": "1/3"}),
    (ObjectivePerturbation(THIRD), {"mechanism": "objective_perturbation", "epsilon": "1/3"}),
    (SmoothSensitivity(THIRD), {"mechanism": "smooth_sensitivity", "epsilon": "1/3"}),
    (
        SubsetExponential(Fraction(3), 3, "top_r"),
        {"mechanism": "subset_exponential", "k": 3, "epsilon": "3", "method": "top_r"},
    ),
    (LAPLACE, {"mechanism": "discrete_laplace", "epsilon": "1/10"}),
    (CubeNoise(THIRD), {"mechanism": "cube_noise", "epsilon": "1/3"}),
    (DiscreteGaussian(Fraction(1, 4)), {"mechanism": "discrete_gaussian", "rho": "1/4"}),
    (
        DiscreteGaussian(Fraction(1, 4), Fraction(1, 10**6)),
        {"mechanism": "discrete_gaussian", "rho": "1/4", "delta": "1/1000000"},
    ),
    (GAUSSIAN, {"mechanism": "gaussian_dp", "mu": "7397/31250", "epsilon": "1", "delta": "1/1000000"}),
    (
        PrivateTree(Fraction(1, 40), Fraction(1), Fraction(1, 10**4)),
        {"mechanism": "private_tree", "rho": "1/40", "epsilon": "1", "delta": "1/10000"},
    ),
    (Approximate(THIRD, Fraction(1, 8)), {"mechanism": "approximate", "epsilon": "1/3", "delta": "1/8"}),
    (
        Approximate(THIRD, Fraction(1, 8), "tukey"),
        {"mechanism": "approximate", "method": "tukey", "epsilon": "1/3", "delta": "1/8"},
    ),
    (
        Composed((LAPLACE, Composed((GAUSSIAN, LAPLACE)))),
        {
            "mechanism": "composed",
            "events": [
                LAPLACE.to_json(),
                {"mechanism": "composed", "events": [GAUSSIAN.to_json(), LAPLACE.to_json()]},
            ],
        },
    ),
]


@cases(("event", "record"), RECORDS)
def test_the_record_of_each_event_is_the_one_that_was_always_stored(event: Event, record: dict[str, Any]) -> None:
    assert event.to_json() == record
    assert event_from_json(json.loads(json.dumps(record))) == event


def test_every_kind_has_a_record() -> None:
    kinds, found = {type(event) for event, _ in RECORDS}, list(Event.__subclasses__())
    for kind in found:
        found += kind.__subclasses__()
    assert {kind for kind in found if hasattr(kind, "mechanism")} == kinds


def test_a_record_with_more_than_is_known_costs_the_same() -> None:
    record = {"mechanism": "gumbel_noise", "epsilon": "0.5", "rounds": 2, "k": "two", "since": [1]}
    assert cost_of(record) == GumbelNoise(Fraction(1, 2), rounds=2).cost


@pytest.mark.parametrize("name", ["protected", "varied"])
def test_events_of_version_1_cost_what_was_charged(name: str) -> None:
    with sqlite3.connect(f"file:{FIXTURES / f'version_1_{name}.sqlite'}?immutable=1", uri=True) as connection:
        rows = connection.execute(
            "SELECT event, epsilon, delta, rho FROM dpsql_ledger WHERE event IS NOT NULL"
        ).fetchall()
    connection.close()
    assert rows
    for event, *charged in rows:
        cost = cost_of(json.loads(event))
        assert [
            None if part is None else str(units_up(part)) for part in (cost.epsilon, cost.delta, cost.rho)
        ] == charged


def test_the_losses_of_what_is_composed_add_up() -> None:
    parts = (LAPLACE, GAUSSIAN, LAPLACE, GAUSSIAN)
    composed = Composed(parts).cost
    assert composed.epsilon == sum(Fraction(part.cost.epsilon or 0) for part in parts)
    assert composed.delta == sum(part.cost.delta for part in parts)
    assert composed.rho == sum(Fraction(part.cost.rho or 0) for part in parts)


def test_what_is_composed_has_no_loss_of_a_kind_that_a_part_does_not_have() -> None:
    approximate, gaussian = Approximate(THIRD, Fraction(1, 8)), DiscreteGaussian(Fraction(1, 4))
    assert Composed((LAPLACE, approximate)).cost.rho is None
    assert Composed((approximate, LAPLACE)).cost.rho is None
    assert Composed((LAPLACE, gaussian)).cost.epsilon is None
    assert Composed((gaussian, LAPLACE)).cost.epsilon is None


BOUNDED_RANGE = (GumbelNoise, SubsetExponential)


@cases("event", [event for event, _ in RECORDS if hasattr(event, "rounds")])
def test_the_rho_of_a_pure_event_is_that_of_its_rounds(event: Any) -> None:
    """A round of epsilon / k is epsilon**2 / (2 k**2)-zCDP, or with a bounded range a quarter of that; k of them add up."""
    once = (event.epsilon / event.repetitions) ** 2 / (8 if isinstance(event, BOUNDED_RANGE) else 2)
    assert (event.cost.epsilon, event.cost.delta) == (event.epsilon, 0)
    assert event.cost.rho == event.repetitions * once


def test_what_is_composed_is_nothing_but_its_parts() -> None:
    assert composed([LAPLACE]) is LAPLACE
    both = composed([LAPLACE, composed([LAPLACE, GAUSSIAN])])
    assert [part.event for part in both.cost.mechanisms] == [LAPLACE, LAPLACE, GAUSSIAN]
    assert [part.is_profile for part in both.cost.mechanisms] == [False, False, True]


@cases(
    "make",
    [
        lambda: DiscreteLaplace(Fraction(0)),
        lambda: GumbelNoise(Fraction(1), rounds=0),
        lambda: GumbelNoise(Fraction(1), rounds=True),
        lambda: Approximate(Fraction(1), Fraction(1)),
        lambda: DiscreteGaussian(Fraction(-1)),
        lambda: Composed(()),
        lambda: event_from_json({"mechanism": "gumbel_noise", "epsilon": "1", "rounds": None}),
        lambda: GaussianDP(Fraction("0.236705"), Fraction(1), Fraction(1, 10**6)).cost,
        lambda: PrivateTree(Fraction(1, 20), Fraction(1), Fraction(1, 10**4)).cost,
    ],
)
def test_an_event_that_says_nothing_cannot_be(make: Any) -> None:
    with pytest.raises(ParameterError, match="DPSQL-P048"):
        make()


def test_less_epsilon_is_another_event_of_the_same_kind() -> None:
    half = Composed((LAPLACE, GAUSSIAN, DiscreteGaussian(Fraction(1)))).scaled(Fraction(1, 2))
    laplace, gaussian, rho = half.events
    assert (laplace, rho) == (DiscreteLaplace(Fraction(1, 20)), DiscreteGaussian(Fraction(1, 4)))
    assert isinstance(gaussian, GaussianDP)
    assert (gaussian.epsilon, gaussian.delta) == (Fraction(1, 2), Fraction(1, 10**6))
    assert 0 < gaussian.mu < GAUSSIAN.mu / 2 * Fraction("1.1")
    assert gaussian.cost.epsilon == Fraction(1, 2)
