"""The plan: defaults, what the owner stated, and the way through JSON."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import ParameterError
from dpsql.functions.registry import plan_from_json
from dpsql.functions.selection import MECHANISMS
from dpsql.functions.sis import CENTERS, SisPlan

GOOD: dict[str, Any] = {"target": "y", "k": 2, "epsilon": 0.1, "lower": 0, "upper": 1}
TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00"), min_size=1, max_size=8)


@pytest.mark.long
@given(
    names=st.lists(TEXT, min_size=2, max_size=4, unique=True),
    release=st.none() | TEXT,
    epsilon=st.floats(1e-6, 1e6),
    lower=st.lists(st.floats(-9, 9), min_size=2, max_size=2) | st.floats(-9, 9),
    levels=st.none() | st.lists(TEXT, min_size=2, max_size=2, unique=True) | st.just([False, True]) | st.just([0, 1.5]),
    mechanism=st.sampled_from(MECHANISMS),
    center=st.sampled_from(CENTERS),
    unit=st.booleans(),
)
def test_through_json_and_back(
    names: list[str], release: Any, epsilon: float, lower: Any, levels: Any, mechanism: str, center: str, unit: bool
) -> None:
    arguments = {**GOOD, "features": "x", "names": names, "release": release, "epsilon": epsilon, "lower": lower}
    arguments |= {
        "upper": 10,
        "target_levels": levels,
        "mechanism": mechanism,
        "center": center,
        "target": "the target",
    }
    if unit:
        arguments |= {"privacy_unit": "the unit", "max_rows_per_unit": 3}
    plan = SisPlan.from_arguments("t", arguments)
    again = plan_from_json(plan.to_json())
    assert again == plan
    assert again.event == plan.event
    assert again.public_arguments == plan.public_arguments
    assert hash(again) == hash(plan)
    json.dumps(plan.public_arguments)


def test_defaults() -> None:
    plan = SisPlan.from_arguments("t", GOOD)
    assert (plan.mechanism, plan.center, plan.neighbours, plan.dataset) == ("one_shot", "public", "add_remove", "t")
    assert plan.epsilon == Fraction(1, 10)
    assert plan.max_rows_per_unit == 1
    assert SisPlan.from_arguments("", GOOD).dataset == "default"
    assert SisPlan.from_arguments("t", {**GOOD, **dict.fromkeys(SisPlan.arguments.keys() - GOOD.keys())}) == plan


def test_what_the_owner_stated_fills_in_and_is_overridden() -> None:
    stated = {"lower": -1, "upper": 5, "neighbours": "replace", "privacy_unit": "u", "max_rows_per_unit": 4}
    plan = SisPlan.from_arguments("t", {"target": "y", "k": 1, "epsilon": 1}, stated)
    assert (plan.lower, plan.upper, plan.neighbours, plan.max_rows_per_unit) == (-1.0, 5.0, "replace", 4)
    assert plan.layout.privacy_unit == "u"
    assert SisPlan.from_arguments("t", {**GOOD, "max_rows_per_unit": 2}, stated).max_rows_per_unit == 2
    assert SisPlan.from_arguments("t", GOOD, stated).upper == 1.0


@pytest.mark.parametrize(
    ("change", "event"),
    [
        ({}, {"mechanism": "exponential_noise", "epsilon": "1/10", "k": 2}),
        ({"mechanism": "gumbel"}, {"mechanism": "gumbel_noise", "epsilon": "1/10", "rounds": 2, "k": 2}),
        (
            {"mechanism": "canonical_lipschitz", "gamma": 0.25},
            {"mechanism": "canonical_lipschitz", "epsilon": "1/10", "gamma": "1/4", "k": 2},
        ),
        (
            {"center": "target", "center_share": 0.3},
            {
                "mechanism": "composed",
                "events": [
                    {"mechanism": "discrete_laplace", "epsilon": "3/100"},
                    {"mechanism": "exponential_noise", "epsilon": "7/100", "k": 2},
                ],
            },
        ),
    ],
)
def test_events(change: dict[str, Any], event: dict[str, Any]) -> None:
    assert SisPlan.from_arguments("t", {**GOOD, **change}).event.to_json() == event


def test_the_release_name_is_not_an_argument_of_the_release() -> None:
    first, second = (SisPlan.from_arguments("t", {**GOOD, "release": name}) for name in ("a", None))
    assert first.public_arguments == second.public_arguments


def test_k_is_compared_as_soon_as_the_number_of_features_is_known() -> None:
    for more in ({"features": ["a"]}, {"features": "x", "n_features": 1}, {"features": "x", "names": ["a"]}):
        with pytest.raises(ParameterError, match="P002"):
            SisPlan.from_arguments("t", {**GOOD, **more})


@pytest.mark.parametrize("change", [{"privacy_unit": "u"}, {"max_rows_per_unit": 2}])
def test_a_privacy_unit_and_its_rows_go_together(change: dict[str, Any]) -> None:
    """A call that names whom it protects never protects one row of that person alone, without a word."""
    with pytest.raises(ParameterError, match="P009"):
        SisPlan.from_arguments("t", {**GOOD, "target_lower": 0, "target_upper": 1, **change})
