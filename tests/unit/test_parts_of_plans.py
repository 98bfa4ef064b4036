"""The parts of a call spend its epsilon and delta together, and each protects the units that the call protects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from fractions import Fraction
from typing import Any

import pytest

from dpsql.contract.events import zcdp_epsilon
from dpsql.contract.gaussian_profile import gaussian_covers
from dpsql.contract.plan import Plan
from dpsql.contract.relation import Contribution
from dpsql.errors import ParameterError
from dpsql.functions.registry import FUNCTIONS
from dpsql.mechanisms.aggregates import GroupedNoise
from dpsql.mechanisms.gaussian import GaussianNoise
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.mechanisms.private_tree import TreeNoise
from support.cases import cases

REPLACE = {"neighbours": "replace"}
UNIT = {"privacy_unit": "u", "max_rows_per_unit": 3}
BOUNDS = {"lower": 0, "upper": 1}
TARGET = {"target_lower": 0, "target_upper": 1}
DELTA = {"delta": 1e-5}
SPENT = {"epsilon": Fraction(7, 10)}
KEYS = {"by": "h", "keys": ["a", "b"]}
PRIVATE = {"by": "h", "keys": "private", **DELTA}
GROUPS = {"privacy_unit": "u", "max_groups_per_unit": 2, "max_rows_per_unit_group": 2}
WIDE = {"features": ["a", "b", "c"]}
PRIVATE_NAMES = {"features": "word", "row_id": "id", "vocabulary": "private", **DELTA}
SCORES = {"scores": ["a", "b"], "label": "y"}

# Of each function the arguments that it needs, and options that divide its budget in another way.
CALLS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "dp_count": ({}, [KEYS, PRIVATE, {**KEYS, **GROUPS}, {**PRIVATE, **GROUPS, "noise": "gaussian"}]),
    "dp_sum": (
        {"target": "x"},
        [BOUNDS, {**KEYS, **BOUNDS}, {**PRIVATE, **BOUNDS}, {**KEYS, **GROUPS}, {**PRIVATE, **DELTA}],
    ),
    "dp_avg": ({"target": ["x", "y"]}, [BOUNDS, {**BOUNDS, "nulls": "middle"}, {**KEYS, **GROUPS, **DELTA}]),
    "dp_variance": ({"target": "x"}, [BOUNDS, {**KEYS, **BOUNDS, **GROUPS, "noise": "gaussian", **DELTA}]),
    "dp_aggregate": (
        {"aggregates": ["count", "avg", "stddev"], "target": ["x", "y"]},
        [BOUNDS, {**BOUNDS, **KEYS, **GROUPS, "left_out_share": 0.2}, {**KEYS, **GROUPS, "bounds_share": 0.4}],
    ),
    "dp_histogram": ({"target": "x", "bins": [0, 1, 2]}, [{"by": "h", "keys": ["a", "b"]}]),
    "dp_crosstab": ({"by": ["g", "h"], "keys": {"g": [0, 1], "h": ["a", "b"]}}, [DELTA, {"margins": True}]),
    "dp_compare": (
        {},
        [
            {"target": "x", "groups": "g", "keys": [0, 1], **BOUNDS},
            {"of": "count", "groups": "g", "keys": [0, 1]},
            {"of": "error", **SCORES},
            {"of": "error", "loss": "absolute", **SCORES, **BOUNDS},
            {"of": "auc", **SCORES, **BOUNDS},
            {"of": "auc", **SCORES, **BOUNDS, **DELTA, "noise": "gaussian"},
            {"of": "auc", **SCORES, **BOUNDS, "sampling": False},
        ],
    ),
    "dp_synthetic": (
        {**DELTA},
        [
            {},
            BOUNDS,
            {**BOUNDS, "bounds_share": 0.9, "report_share": 0.09},
            {"private_keys": True},
            {"report_share": 0},
        ],
    ),
    "dp_sis": (
        {"target": "y", **WIDE, "k": 2},
        [
            {**BOUNDS, **TARGET},
            {**BOUNDS, **TARGET, "center": "target", "mechanism": "canonical_lipschitz"},
            {"score": "rank"},
            {"score": "rank", "verdict_share": 0.2, "verdict": "each"},
        ],
    ),
    "dp_kendall": ({"target": "y", **WIDE, "k": 2}, [{}, {"split": "scaled"}, {"verdict_share": 0}]),
    "dp_two_stage": ({"target": "y", **WIDE, "k": 2}, [{"blocks": 9, "row_id": "id"}, {"rows_per_block": 9}]),
    "dp_best_subset": (
        {"target": "y", **WIDE, "k": 2, **BOUNDS, **TARGET},
        [{}, {"intercept": True}, {"method": "steps"}],
    ),
    "dp_score_filter": (
        {"target": "y", **WIDE},
        [
            {"threshold": 9},
            {"threshold": 9, "method": "gaussian", **DELTA},
            {"threshold": 9, "method": "svt", "cutoff": 2},
            {"k": 2, "method": "gumbel"},
            {"method": "cluster"},
            {**PRIVATE_NAMES, "threshold": 9},
            {**PRIVATE_NAMES, "threshold": 9, "method": "gaussian"},
        ],
    ),
    "dp_naive_bayes": ({"target": "y", **WIDE}, [{}, DELTA, {"count_share": 0.4}]),
    "dp_linear_regression": (
        {"target": "y", **WIDE, **DELTA},
        [
            {},
            {**BOUNDS, **TARGET, "method": "ada_ssp"},
            {**BOUNDS, **TARGET, "method": "boosted_ada_ssp"},
            {**BOUNDS, **TARGET, "method": "additive"},
            {"method": "tukey", "blocks": 800, "row_id": "id"},
            {"method": "tukey", "count_share": 0.3},
        ],
    ),
    "dp_logistic_regression": (
        {"target": "y", **WIDE},
        [BOUNDS, DELTA, {**BOUNDS, **DELTA, "method": "additive"}, {**DELTA, "method": "additive"}],
    ),
    "dp_pipeline": (
        {"target": "y", **WIDE, **DELTA, "k": 2},
        [{}, {"selector": "two_stage"}, {"selector": "sis", **BOUNDS, **TARGET}, {"selection_share": 0.2}],
    ),
    "dp_quantile": (
        {"target": "x", "quantiles": [0.25, 0.5]},
        [{}, BOUNDS, {**BOUNDS, "interval_share": 0}, {"bounds_share": 0.4}, {**BOUNDS, **KEYS, "interval_share": 0.3}],
    ),
    "dp_bounds": ({"target": "x"}, [{}]),
    "dp_covariance": ({**WIDE, **BOUNDS}, [{}, DELTA]),
    "dp_correlation": ({**WIDE, **BOUNDS}, [{}, DELTA]),
    "dp_regression_metrics": ({"target": "y", "prediction": "p", **BOUNDS}, [{}, {"error_bound": 2}]),
    "dp_roc": (
        {"label": "y", "score": "s", **BOUNDS},
        [{"thresholds": way} for way in ("recursive", "fixed", "smooth_medians")] + [{"threshold_share": 0.6}, DELTA],
    ),
    "dp_auc": ({"label": "y", "score": "s", **BOUNDS}, [{}, DELTA, {"method": "smooth"}]),
    "dp_confusion": ({"label": "y", "score": "s", **BOUNDS}, [{}, DELTA]),
}


CALLS["dp_stddev"] = CALLS["dp_variance"]


def plans(function: str) -> Iterator[Plan]:
    """Yield the plans of a function's calls, of single rows and of privacy units, under both relations."""
    needed, ways = CALLS[function]
    for way in ways:
        unit = {} if "privacy_unit" in way else UNIT
        for more in ({}, REPLACE, {**unit, **REPLACE}):
            yield FUNCTIONS[function].plan.from_arguments("t", {**needed, **way, **more, **SPENT})


@cases("function", FUNCTIONS)
def test_parts_spend_together_the_epsilon_of_the_call_and_no_more_than_its_delta(function: str) -> None:
    for plan in plans(function):
        costs = [part.event.cost for part in plan.measurement.leaves]
        assert sum(cost.epsilon or 0 for cost in costs) == plan.event.cost.epsilon == plan.epsilon, plan
        delta = getattr(plan, "delta", None) or 0
        assert sum(cost.delta for cost in costs) == plan.event.cost.delta, plan
        assert plan.event.cost.delta in (0, delta), plan


@cases("function", FUNCTIONS)
def test_releases_of_one_part_share_its_loss(function: str) -> None:
    for plan in plans(function):
        for part in plan.measurement.leaves:
            if isinstance(part, GaussianNoise):
                assert sum(mu**2 for _, mu in part.shares) <= part.mu**2, plan
                assert gaussian_covers(part.mu, part.epsilon, part.delta), plan
            elif isinstance(part, TreeNoise):
                assert sum(rho for _, rho in part.shares) <= part.rho, plan
                assert zcdp_epsilon(part.rho, part.delta) <= part.epsilon, plan
            elif isinstance(part, GroupedNoise):
                assert sum(part.shares) == 1, plan
                assert part.mu is None or gaussian_covers(part.mu, part.epsilon, part.delta or Fraction(0)), plan


@cases("function", FUNCTIONS)
def test_parts_know_the_relation_of_the_call_and_the_rows_of_its_units(function: str) -> None:
    for plan in plans(function):
        rows = getattr(plan, "contribution", plan.relation).rows
        for part in plan.measurement.leaves:
            if isinstance(part, LaplaceNoise) and part.l1_sensitivity is not None:
                assert part.l1_sensitivity % rows == 0, plan  # each row of a unit moves sums by as much
            for one in (part, *(getattr(part, field.name) for field in fields(part))):
                assert getattr(one, "neighbours", plan.neighbours) == plan.neighbours, plan
                assert getattr(one, "max_rows_per_unit", rows) == rows, plan
                assert not isinstance(one, Contribution) or one.rows == rows, plan


@pytest.mark.parametrize(
    "keys",
    [["a", "b", "a"], [1, 2, 1], ["1", 1], [None, "a", None], {"h": ["a", "a"]}, [{"h": "a"}, {"H": "a"}]],
    ids=str,
)
def test_a_key_that_is_listed_twice_is_refused(keys: Any) -> None:
    """Its rows would count in two groups, and the noise is for one."""
    with pytest.raises(ParameterError, match="P044"):
        FUNCTIONS["dp_count"].plan.from_arguments("t", {**SPENT, "by": "h", "keys": keys})


@cases(("neighbours", "l1", "squared"), [("add_remove", 3, 9), ("replace", 6, 18)])
def test_numbers_of_rows_move_by_all_rows_of_a_person(neighbours: str, l1: int, squared: int) -> None:
    """Replaced, three rows of one class are three of the other one; their number in all is what it was."""
    given = {"target": "y", **WIDE, **UNIT, **SPENT, "neighbours": neighbours}
    classes, _ = FUNCTIONS["dp_naive_bayes"].plan.from_arguments("t", given).norms(3)
    assert (classes.l1, classes.squared_l2) == (l1, squared)
    plan = FUNCTIONS["dp_two_stage"].plan.from_arguments("t", {**given, "k": 2, "rows_per_block": 9})
    assert plan.measurement["count"].scale() == 3 / plan.count_epsilon
