"""Bounds by name: every feature has the bounds that its name has, in whatever order the features come."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from support.cases import cases

LOWER, UPPER = {"age": 0.0, "BMI": -10.0, "dose": 5.0}, {"age": 1.0, "BMI": 10.0, "dose": 6.0}
# A struct, and a map: names of a struct have no case in SQL, those of a map are as they are.
LOWER_SQL, UPPER_SQL = "{age: 0, BMI: -10, dose: 5}", "MAP {'dose': 6, 'age': 1, 'BMI': 10}"
NAMED = f"lower := {LOWER_SQL}, upper := {UPPER_SQL}"
TARGET = "target := 'y', target_lower := 0, target_upper := 1"


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with dpsql.connect() as opened:
        opened.execute(
            "CREATE TABLE t AS SELECT i AS id, random() AS age, 20 * random() - 10 AS bmi, 5 + random() AS dose, "
            "random() AS y, i % 2 = 0 AS b FROM range(200) AS r(i)"
        )
        opened.execute("CREATE TABLE a AS SELECT id, [age, bmi, dose] AS x, y, b FROM t")
        opened.execute(
            "CREATE TABLE l AS SELECT id, y, b, unnest(['age', 'BMI', 'dose']) AS name, unnest([age, bmi, dose]) AS v FROM t"
        )
        yield opened


WIDE = "'t', features := ['dose', 'bmi', 'AGE']"
LAYOUTS = {
    "wide": WIDE,
    "array": "'a', features := 'x', names := ['age', 'BMI', 'dose']",
    "long": "'l', features := 'name', row_id := 'id', value := 'v', names := ['dose', 'BMI', 'age']",
}
CALLS = {
    "dp_sis": f"dp_sis({{layout}}, {TARGET}, k := 1, epsilon := 1, {{bounds}}",
    "dp_sis, centred": f"dp_sis({{layout}}, {TARGET}, k := 1, epsilon := 1, center := 'target', {{bounds}}",
    "dp_best_subset": f"dp_best_subset({{layout}}, {TARGET}, k := 1, epsilon := 1, {{bounds}}",
    "ada_ssp": f"dp_linear_regression({{layout}}, {TARGET}, epsilon := 1, delta := 1e-6, method := 'ada_ssp', {{bounds}}",
    "boosted": f"dp_linear_regression({{layout}}, {TARGET}, epsilon := 1, delta := 1e-6, {{bounds}}",
    "tukey": f"dp_linear_regression({{layout}}, {TARGET}, epsilon := 1, delta := 1e-6, method := 'tukey', blocks := 3, {{bounds}}",
    "dp_logistic_regression": "dp_logistic_regression({layout}, target := 'b', epsilon := 1, {bounds}",
    **{
        f"dp_pipeline, {selector}": f"dp_pipeline({{layout}}, {TARGET}, k := 2, epsilon := 1, delta := 1e-6, "
        f"selector := '{selector}', selection_blocks := 5, {{bounds}}"
        for selector in ("kendall", "two_stage", "best_subset", "sis")
    },
}


@cases("layout", LAYOUTS)
@cases("call", CALLS)
def test_every_function_takes_them_in_every_layout(con: duckdb.DuckDBPyConnection, call: str, layout: str) -> None:
    statement = f"FROM {CALLS[call]}"
    assert con.execute(statement.format(layout=LAYOUTS[layout], bounds=NAMED) + ")").fetchall()
    with pytest.raises(duckdb.Error, match=r"\[DPSQL-P003\] upper names no bound of '(BMI|bmi)'"):
        con.execute(
            statement.format(layout=LAYOUTS[layout], bounds=f"lower := {LOWER_SQL}, upper := {{age: 1, dose: 6}}") + ")"
        ).fetchall()
    [(releases,)] = con.execute("SELECT releases FROM dp_budget()").fetchall()
    assert releases == 1


@pytest.mark.parametrize("layout", ["wide", "array"])
def test_the_statistic_is_that_of_the_list(con: duckdb.DuckDBPyConnection, layout: str) -> None:
    order = {"wide": ("dose", "BMI", "age"), "array": ("age", "BMI", "dose")}[layout]
    listed = f"lower := {[LOWER[name] for name in order]}, upper := {[UPPER[name] for name in order]}"
    exact = f"FROM exact_xty({LAYOUTS[layout]}, {TARGET}, "
    by_name = con.execute(exact + NAMED + ")").fetchall()
    assert by_name == con.execute(exact + listed + ")").fetchall()
    mixed = f"lower := {[LOWER[name] for name in order]}, upper := {UPPER_SQL}"
    assert by_name == con.execute(exact + mixed + ")").fetchall()


def test_the_statistic_of_long_rows_is_that_of_wide_ones(con: duckdb.DuckDBPyConnection) -> None:
    wide, long = (
        {
            name.lower(): value
            for name, value in con.execute(f"FROM exact_xty({LAYOUTS[layout]}, {TARGET}, {NAMED})").fetchall()
        }
        for layout in ("wide", "long")
    )
    assert wide == long


def fitted_bounds(con: duckdb.DuckDBPyConnection, name: str) -> dict[str, list[float]]:
    [(text,)] = con.execute("SELECT json FROM dp_models() WHERE model = ?", [name]).fetchall()
    model = json.loads(text)
    return dict(zip((name.lower() for name in model["feature_names_in_"]), model["feature_bounds_"], strict=True))


@cases("number", range(6))
def test_a_selection_comes_in_any_order(con: duckdb.DuckDBPyConnection, number: int) -> None:
    """One struct serves every selection: what was not selected is left out."""
    con.execute(f"FROM dp_sis({WIDE}, {TARGET}, k := 2, epsilon := 0.01, {NAMED}, release := 'sel')").fetchall()
    con.execute(
        f"FROM dp_linear_regression('t', {TARGET}, features := release('sel'), epsilon := 1, delta := 1e-6, {NAMED}, "
        "release := 'fit')"
    ).fetchall()
    found = fitted_bounds(con, "fit")
    assert len(found) == 2
    sides = [{name.lower(): bound for name, bound in side.items()} for side in (LOWER, UPPER)]
    assert found == {name: [side[name] for side in sides] for name in found}


@pytest.mark.parametrize("selector", ["kendall", "best_subset"])
def test_a_pipeline_fits_within_the_bounds_of_what_it_selected(con: duckdb.DuckDBPyConnection, selector: str) -> None:
    con.execute(
        f"FROM dp_pipeline({WIDE}, {TARGET}, k := 2, epsilon := 1, delta := 1e-6, selector := '{selector}', {NAMED}, "
        "release := 'fit')"
    ).fetchall()
    found = fitted_bounds(con, "fit")
    sides = [{name.lower(): bound for name, bound in side.items()} for side in (LOWER, UPPER)]
    assert found == {name: [side[name] for side in sides] for name in found}


def test_every_numeric_column_by_name(con: duckdb.DuckDBPyConnection) -> None:
    """Which columns there are, only the types tell."""
    con.execute("CREATE VIEW v AS SELECT * EXCLUDE (id, b) FROM t")
    call = f"FROM dp_linear_regression('v', {TARGET}, epsilon := 1, delta := 1e-6, {{}})"
    assert len(con.execute(call.format(NAMED)).fetchall()) == 4
    with pytest.raises(duckdb.Error, match=r"P003.*lower names no bound of 'bmi', 'dose'"):
        con.execute(call.format("lower := {age: 0}, upper := 9")).fetchall()


def test_the_aggregate_form(con: duckdb.DuckDBPyConnection) -> None:
    arguments = f"k := 1, epsilon := 1, target_lower := 0, target_upper := 1, names := ['age', 'BMI', 'dose'], {NAMED}"
    assert con.execute(f"SELECT dp_sis(x, y, {arguments}) FROM a").fetchall()
    # Elements without names are called x[1], x[2], ...
    unnamed = "n_features := 3, lower := MAP {'x[1]': 0, 'x[2]': -10, 'x[3]': 5}, upper := 100"
    rest = "k := 1, epsilon := 1, target_lower := 0, target_upper := 1"
    assert con.execute(f"SELECT dp_sis(x, y, {rest}, {unnamed}) FROM a").fetchall()


def test_a_named_release_replays_whatever_the_order(con: duckdb.DuckDBPyConnection) -> None:
    call = f"FROM dp_sis({WIDE}, {TARGET}, k := 2, epsilon := 1, {{}}, release := 'sel')"
    first = con.execute(call.format(NAMED)).fetchall()
    again = "lower := {dose: 5.0, BMI: -10, age: 0}, upper := {BMI: 10, age: 1, dose: 6}"
    assert con.execute(call.format(again)).fetchall() == first
    [(releases,)] = con.execute("SELECT releases FROM dp_budget()").fetchall()
    assert releases == 1
    with pytest.raises(duckdb.Error, match="P014"):
        con.execute(call.format("lower := {dose: 4, BMI: -10, age: 0}, upper := {BMI: 10, age: 1, dose: 6}")).fetchall()


def test_python_takes_dicts_and_the_receipt_names_them(con: duckdb.DuckDBPyConnection) -> None:
    ctx = dpsql.Context(con)
    given: dict[str, Any] = {"target": "y", "target_lower": 0, "target_upper": 1, "lower": LOWER, "upper": UPPER}
    selected = ctx.dp_sis("t", k=2, epsilon=1, features=["age", "bmi", "dose"], **given)
    fit = ctx.dp_linear_regression("t", features=selected, epsilon=1, delta=1e-6, **given)
    assert fit.value.num_rows == 3
    [released] = ctx.ledger.releases(["dp_linear_regression"], key=fit.ledger_id)
    assert released.arguments["lower"] == {"BMI": -10, "age": 0, "dose": 5}


def test_the_owner_may_state_them(con: duckdb.DuckDBPyConnection) -> None:
    con.execute(f"SELECT dp_protect('t', epsilon := 10, {NAMED}, target_lower := 0, target_upper := 1)").fetchall()
    assert con.execute(f"FROM dp_sis({WIDE}, target := 'y', k := 2, epsilon := 1)").fetchall()
    assert con.execute("FROM dp_sis('t', target := 'y', features := ['bmi'], k := 1, epsilon := 1)").fetchall()
    with pytest.raises(duckdb.Error, match=r"P003.*lower names no bound of 'id'"):
        con.execute("FROM dp_sis('t', target := 'y', features := ['bmi', 'id'], k := 1, epsilon := 1)").fetchall()


@cases(
    ("code", "arguments"),
    [
        ("P003", "lower := {age: 0}, upper := {age: 0}"),
        ("P003", "lower := {age: 0, dose: 2}, upper := 1"),
        ("P003", "lower := {age: 'x'}, upper := 1"),
        ("P003", "lower := {age: NULL}, upper := 1"),
        ("P003", "lower := {age: {deep: 1}}, upper := 1"),
        ("P003", "lower := {age: [0]}, upper := 1"),
        ("P003", "lower := {age: 'nan'::DOUBLE}, upper := 1"),
        ("P003", "lower := MAP {}::MAP(VARCHAR, INTEGER), upper := 1"),
        ("P013", "lower := MAP {1: 0}, upper := 1"),
        ("P044", "lower := MAP {'age': 0, 'AGE': 0, 'bmi': 0, 'dose': 0}, upper := 1"),
        ("P003", "lower := {age: 0, bmi: 0}, upper := {age: 1, bmi: 1, dose: 1}"),
    ],
)
def test_refused_without_a_charge(con: duckdb.DuckDBPyConnection, code: str, arguments: str) -> None:
    with pytest.raises(duckdb.Error, match=rf"\[DPSQL-{code}\]"):
        con.execute(f"FROM dp_sis({WIDE}, {TARGET}, k := 1, epsilon := 1, {arguments})").fetchall()
    assert con.execute("FROM dp_ledger()").fetchall() == []


@cases(
    ("call", "message"),
    [
        ("dp_sis('t', target := 'y', k := 1, epsilon := 1, features := {age: 1}, lower := 0, upper := 1", "P043.*list of"),
        ("dp_sis('a', target := 'y', k := 1, epsilon := 1, features := 'x', names := release('w'), lower := 0, upper := 1",
         "P043.*list of texts"),
        ("dp_kendall('t', target := 'y', k := 1, epsilon := 1, target_levels := {a: 1, b: 2}", "P012.*list of two"),
        ("dp_quantile('t', target := 'y', epsilon := 1, quantiles := {a: 0.5}, lower := 0, upper := 1", "P006.*a quantile"),
        ("dp_quantile('t', target := 'y', epsilon := 1, lower := {y: 0}, upper := 1", "P037.*one number"),
        ("dp_auc('t', label := 'b', score := 'y', epsilon := 1, lower := {y: 0}", "P037.*one number"),
        ("dp_confusion('t', label := 'b', score := 'y', epsilon := 1, thresholds := {a: 0.5}", "P024.*a threshold"),
        ("dp_regression_metrics('t', target := 'y', prediction := 'age', epsilon := 1, lower := {y: 0}, upper := 1",
         "P037.*one number"),
        ("dp_sis('t', target := 'y', k := 1, epsilon := 1, lower := 0, upper := 1, target_lower := {y: 0}, target_upper := 1",
         "P037.*one number"),
    ],
)  # fmt: skip
def test_a_struct_is_no_list(con: duckdb.DuckDBPyConnection, call: str, message: str) -> None:
    with pytest.raises(duckdb.Error) as failure:
        con.execute(f"FROM {call})").fetchall()
    assert re.search(message, str(failure.value))
    assert con.execute("FROM dp_ledger()").fetchall() == []
