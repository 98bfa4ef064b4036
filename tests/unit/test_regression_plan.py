"""What a regression's plan settles before a row is read: method, shares, events, limits."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from dpsql.errors import ParameterError
from dpsql.functions.pipeline import PipelinePlan
from dpsql.functions.registry import plan_from_json
from dpsql.functions.regression.least_squares import LeastSquares
from dpsql.functions.regression.linear import RegressionPlan, automatic
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from support.cases import cases

FEATURES = ["a", "b", "c"]
BOUNDS = {"lower": 0, "upper": 1, "target_lower": 0, "target_upper": 1}


def plan(**more: Any) -> RegressionPlan:
    given = {"target": "y", "features": FEATURES, "epsilon": 1, "delta": 1e-6, **more}
    found: RegressionPlan = RegressionPlan.from_arguments("t", given)
    return found


def pipeline(**more: Any) -> PipelinePlan:
    given = {"target": "y", "features": FEATURES, "k": 2, "epsilon": 1, "delta": 1e-6, **more}
    found: PipelinePlan = PipelinePlan.from_arguments("t", given)
    return found


def test_auto_is_a_rule_of_public_numbers() -> None:
    one, delta = Fraction(1), Fraction(1, 10**6)
    assert automatic(3, None, None, one, delta) == "additive"
    assert automatic(None, None, None, one, delta) == "additive"
    assert automatic(3, 500, None, one, delta) == "tukey"
    # sqrt(3) / 0.2367 * 4 = 29.3
    assert automatic(3, None, 29_000, one, delta) == "additive"
    assert automatic(3, None, 10, one, delta) == "additive"
    assert automatic(3, None, 30_000, one, delta) == "ada_ssp"
    assert automatic(3, None, 30_000, one / 10, delta) == "additive"
    assert automatic(30, None, 30_000, one, delta) == "additive"
    assert plan().method == "additive"
    assert plan(n_rows=5_000).method == "additive"
    assert plan(row_norm=1.0, **BOUNDS).method == "boosted_ada_ssp"
    assert plan(n_rows=5_000, row_norm=1.0, **BOUNDS).method == "boosted_ada_ssp"
    assert plan(n_rows=30_000).method == "ada_ssp"
    assert plan(sampling=True).method == "ada_ssp"
    assert plan(features="x", n_features=3, n_rows=30_000).method == "ada_ssp"
    assert plan(features=None, n_rows=30_000).method == "additive"
    # A pipeline fits k features, whatever the number of candidates.
    assert pipeline(features=[f"x{j}" for j in range(200)], n_rows=30_000).regression.method == "ada_ssp"


@pytest.mark.parametrize("more", [{"standardize": False}, {"engine": "polars"}], ids=str)
def test_without_a_count_or_on_an_engine_auto_needs_public_rows(more: dict[str, Any]) -> None:
    """300 sqrt(3) / 0.2367 = 2195 rows are enough for steps."""
    assert plan(**more).method == "boosted_ada_ssp"
    assert plan(**more, n_rows=2_190).method == "boosted_ada_ssp"
    assert plan(**more, n_rows=2_200).method == "additive"
    assert plan(**more, n_rows=30_000).method == "ada_ssp"
    assert pipeline(**more).method == "boosted_ada_ssp"
    assert pipeline(**more, n_rows=2_200).method == "additive"


@pytest.mark.parametrize("make", [plan, pipeline])
@pytest.mark.parametrize("rows", [{}, {"n_rows": 2_500}], ids=["budget alone", "rows"])
def test_who_chose_the_method_is_in_no_record(make: Any, rows: dict[str, Any]) -> None:
    """It decides alone which earlier records are looked for: a call for 'additive' never meant boosting."""
    chosen, asked, boosted = make(**rows), make(**rows, method="additive"), make(**rows, method="boosted_ada_ssp")
    assert chosen.public_arguments == asked.public_arguments
    assert boosted.public_arguments in list(chosen.earlier_arguments())
    assert boosted.public_arguments not in list(asked.earlier_arguments())
    again = plan_from_json(chosen.to_json())
    assert list(again.earlier_arguments()) == list(chosen.earlier_arguments())


EVERY = [
    *({"method": "ada_ssp", **more} for more in ({}, BOUNDS, {"lower": 0, "upper": 1})),
    *(
        {"method": "boosted_ada_ssp", **more}
        for more in ({}, BOUNDS, {"split": "thirds"}, {"target_levels": ["a", "b"]})
    ),
    *({"method": "additive", **more} for more in ({}, BOUNDS, {"n_rows": 10_000}, {"target_levels": ["a", "b"]})),
    *({"method": "tukey", **more} for more in ({}, BOUNDS, {"blocks": 600}, {"n_rows": 10_000})),
    {"method": "tukey", "neighbours": "replace"},
    {"bounds_share": 0.9, "scale_share": 0.3, "epsilon": 0.123456789},
]


@cases("more", EVERY, ids=str)
def test_the_event_costs_what_the_call_says(more: dict[str, Any]) -> None:
    found = plan(**more)
    cost = found.event.cost
    assert (cost.epsilon, cost.delta) == (found.epsilon, found.delta)
    if isinstance(found.fit, LeastSquares):
        shares, mu = found.fit.gaussian_shares, found.fit.mu
        assert mu**2 >= sum(share**2 for _, share in shares) > mu**2 * (1 - Fraction(1, 10**8))
        assert [name for name, _ in shares][-len(found.fit.fit_parts)] == "fit"
        assert ("bounds" in dict(shares)) == found.fit.draws_bounds
        assert ("moments" in dict(shares)) == found.fit.standardizes
    assert plan_from_json(found.to_json()) == found


@cases("selector", ["kendall", "two_stage", "sis", "best_subset"])
@cases("more", [{"method": "ada_ssp"}, {"method": "tukey"}, {"selection_share": 0.4, "count_share": 0.3}])
def test_a_pipeline_costs_what_it_says(selector: str, more: dict[str, Any]) -> None:
    bounds = BOUNDS if selector in ("sis", "best_subset") else {}
    found = pipeline(selector=selector, **bounds, **more)
    cost = found.event.cost
    assert (cost.epsilon, cost.delta) == (found.epsilon, found.delta)
    assert found.selection.epsilon == found.epsilon * found.selection_share
    assert getattr(found.regression.fit, "count_epsilon", 0) in (
        0,
        found.epsilon * Fraction(found.fitting["count_share"]),
    )
    assert found.readings == found.selection.readings + found.regression.readings
    assert plan_from_json(found.to_json()) == found


def test_passes_follow_from_what_is_missing() -> None:
    assert plan(method="ada_ssp", standardize=False, **BOUNDS).readings == 1
    assert plan(method="ada_ssp", row_norm=1, **BOUNDS).readings == 1
    assert plan(method="ada_ssp", **BOUNDS).readings == 2
    assert plan(method="ada_ssp").readings == 3
    assert plan(method="boosted_ada_ssp", **BOUNDS).readings == 1
    assert plan(method="boosted_ada_ssp", lower=0, upper=1).readings == 2
    assert plan(method="tukey", blocks=600, **BOUNDS).readings == 1
    assert plan(method="tukey", blocks=600).readings == 2
    assert plan(method="tukey").readings == 3


@pytest.mark.parametrize("row_norm", [None, 0.25, 1, 1.7, 10])
def test_the_longest_row_holds_features_and_intercept(row_norm: float | None) -> None:
    found: Any = plan(row_norm=row_norm, standardize=False).fit
    radius, whole = found.longest(3), found.radius(3)
    longest = 3 * FIXED_POINT_ONE**2 if radius is None else radius**2
    assert whole**2 >= longest + FIXED_POINT_ONE**2 > (whole - 1) ** 2
    assert (radius is None) == (row_norm is None or row_norm > math.sqrt(3))
    found = plan(row_norm=row_norm).fit
    assert found.standardizes == (row_norm is None)


def test_the_longest_standardised_row_is_that_of_one_deviation_in_each_feature() -> None:
    found: Any = plan().fit
    assert found.radius(3) == 2 * (FIXED_POINT_ONE // 3)


@pytest.mark.parametrize(
    ("more", "count", "code"),
    [
        ({"method": "ada_ssp"}, 2001, "P026"),
        ({"method": "boosted_ada_ssp", "rounds": 50_000}, 400, "P026"),
        ({"method": "tukey", "epsilon": 0.001}, 3, "P039"),
    ],
    ids=str,
)
def test_what_the_number_of_features_refuses(more: dict[str, Any], count: int, code: str) -> None:
    with pytest.raises(ParameterError, match=code):
        plan(**more).check_features(count)


@cases(
    ("more", "code"),
    [
        ({"delta": 0.2}, "P027"),
        ({"delta": 0}, "P027"),
        ({"rounds": 10**6}, "P050"),
        ({"blocks": 20_000}, "P050"),
        ({"lower": 0}, "P003"),
        ({"row_norm": -1}, "P024"),
        ({"method": "ols"}, "P005"),
    ],
    ids=str,
)
def test_refused(more: dict[str, Any], code: str) -> None:
    with pytest.raises(ParameterError, match=code):
        plan(**more)
    with pytest.raises(ParameterError, match=code):
        pipeline(**more)


def test_a_pipeline_without_k_is_the_fit_of_all_features() -> None:
    found = pipeline(k=None, method="ada_ssp")
    assert (found.selection, found.selector, found.selection_share, found.selection_blocks) == (None,) * 4
    assert found.measurement == plan(epsilon=1, delta=1e-6, method="ada_ssp").measurement
    assert not {"k", "selector", "selection_share", "selection_blocks"} & found.public_arguments.keys()
    assert plan_from_json(found.to_json()) == found
    assert found.noise(3, None) == found.regression.noise(3, None)


def test_an_epsilon_without_use_is_refused_with_the_event() -> None:
    with pytest.raises(ParameterError, match="P038"):
        _ = plan(epsilon=1e-9, delta=1e-8, method="ada_ssp").event
    with pytest.raises(ParameterError, match="P051"):
        pipeline(selection_share=0.6, count_share=0.5)
