"""Models without bounds: what noise hides is left out and said, and nothing that looks like a result is made of noise."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.released.model import LinearModel
from support.cases import cases
from support.twins import same_draws

METHODS = ["boosted_ada_ssp", "ada_ssp"]
BUDGET = "epsilon := 2, delta := 1e-5"
NOTHING = [("not released", None, None)]
CALLS = 5


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """20,000 rows: two features with values, one with 20, and odd ones; a numeric target and a label of the first two."""
    opened = dpsql.connect()
    opened.execute(
        "CREATE TABLE t AS SELECT a, b, CASE WHEN i < 20 THEN a END AS rare, NULL::DOUBLE AS empty, 7.0 AS same, "
        "0.0 AS zero, CASE WHEN i % 2 = 0 THEN 'inf'::DOUBLE ELSE '-inf'::DOUBLE END AS infinite, "
        "3 * a - b + 10 AS y, a > b AS label, CASE WHEN i < 3 THEN a END AS unknown "
        "FROM (SELECT i, (i * 7919) % 1009 / 100.9 AS a, (i * 104729) % 997 / 99.7 AS b FROM range(20000) AS r(i))"
    )
    yield opened
    opened.close()


def fit(con: Any, features: str, *, target: str = "y", method: str = METHODS[0], source: str = "t", **more: Any) -> Any:
    rest = "".join(f", {name} := {value!r}" for name, value in more.items())
    return con.execute(
        f"SELECT term, coefficient, std_error FROM dp_linear_regression('{source}', target := '{target}', "
        f"features := [{features}], {BUDGET}, method := '{method}'{rest})"
    ).fetchall()


def several(con: Any, features: str, method: str, release: str | None = None) -> Iterator[Any]:
    """Yield some calls: noise alone is taken for rows in one of 40."""
    for call in range(CALLS):
        yield fit(con, features, method=method, **({} if release is None else {"release": f"{release} {call}"}))


def spent(con: Any) -> float:
    [(found,)] = con.execute("SELECT coalesce(sum(epsilon), 0) FROM dp_ledger() WHERE kind = 'release'").fetchall()
    return float(found)


@cases("method", METHODS, quick=1)
def test_a_feature_that_noise_hides_is_left_out(con: Any, method: str) -> None:
    with same_draws():  # noise alone may take rows for some beyond an end, which widens an error
        model, rows = next(
            (f"rare {method} {call}", rows)
            for call, rows in enumerate(several(con, "'a', 'rare', 'b'", method, release=f"rare {method}"))
            if rows[2][1:] == (0.0, None)
        )
    assert [row[0] for row in rows] == ["intercept", "a", "rare", "b"]
    assert [rows[1][1], rows[3][1]] == pytest.approx([3, -1], abs=0.1)
    assert all(0 < rows[place][2] < 0.1 for place in (0, 1, 3))
    # Its values are not read: neither NULL nor a number changes a prediction.
    for value in ("NULL", "1e9"):
        con.execute(f"CREATE OR REPLACE TABLE one AS SELECT 2.0 AS a, {value}::DOUBLE AS rare, 1.0 AS b")
        [(one,)] = con.execute(f"SELECT dp_predict('{model}', one) FROM one").fetchall()
        [(other,)] = con.execute(f"SELECT prediction FROM dp_predictions('{model}', 'one')").fetchall()
        assert one == pytest.approx(15, abs=0.3)
        assert other == pytest.approx(one, rel=1e-12)
    assert con.execute(f"SELECT dp_predict('{model}', {{a: NULL::DOUBLE, rare: 1.0, b: 1.0}})").fetchall() == [(None,)]
    [(text,)] = con.execute(f"SELECT json FROM dp_models() WHERE model = '{model}'").fetchall()
    assert json.loads(text)["feature_bounds_"][1] is None
    assert LinearModel.from_json(text).left_out == [1]


@cases("method", METHODS, quick=1)
def test_a_target_that_noise_hides_gives_no_model_and_is_charged(con: Any, method: str) -> None:
    """Bounds and fit keep epsilon and delta, one point for both branches; rho is that of the bounds.

    A part without a privacy profile, the choice of rounds, is not made and not charged (decision 75).
    """
    rounds = {"boosted_ada_ssp": 0.2, "ada_ssp": 0.0}[method]
    for _ in range(CALLS):
        before = spent(con)
        if fit(con, "'a', 'b'", target="unknown", method=method) == NOTHING:
            break
    assert spent(con) == pytest.approx(before + 2 - rounds)
    last = "SELECT epsilon, delta, rho FROM dp_ledger() ORDER BY sequence DESC LIMIT 1"
    [(epsilon, delta, rho)] = con.execute(last).fetchall()
    fit(con, "'a', 'b'", method=method)
    [(whole_epsilon, whole_delta, whole_rho)] = con.execute(last).fetchall()
    assert epsilon == pytest.approx(whole_epsilon - rounds, rel=1e-12)
    assert delta == whole_delta
    assert rho < whole_rho / 2


@cases("method", METHODS, quick=2)
@cases("feature", ["empty", "same", "zero", "infinite", "unknown"])
def test_odd_columns_leave_the_others_as_they_are(con: Any, method: str, feature: str) -> None:
    rows = fit(con, f"'a', '{feature}', 'b'", method=method)
    found = {term: value for term, value, _ in rows}
    assert [found["a"], found["b"]] == pytest.approx([3, -1], abs=0.3)
    assert abs(found[feature]) * (2.0**65 if feature == "infinite" else 1.0) < 1e6


@cases("method", METHODS, quick=3)
@cases("rows", [0, 1])
def test_without_rows_there_is_no_model(con: Any, method: str, rows: int) -> None:
    con.execute(f"CREATE OR REPLACE VIEW few AS FROM t LIMIT {rows}")
    assert NOTHING in (fit(con, "'a', 'b'", method=method, source="few") for _ in range(CALLS))


def test_no_feature_left_is_a_model_of_the_intercept(con: Any) -> None:
    for method in METHODS:
        rows = next(
            rows for rows in several(con, "'rare', 'empty'", method) if [row[1] for row in rows[1:]] == [0.0, 0.0]
        )
        assert 10 < rows[0][1] < 30


LABEL = "target := 'label', features := ['a', 'rare', 'b']"


def test_logistic_regression_draws_bounds_and_leaves_out_what_is_hidden(con: Any) -> None:
    for call in range(CALLS):
        name = f"logistic {call}"
        con.execute(f"FROM dp_logistic_regression('t', {LABEL}, {BUDGET}, release := '{name}')")
        [(text,)] = con.execute(f"SELECT json FROM dp_models() WHERE model = '{name}'").fetchall()
        model = LinearModel.from_json(text)
        if model.left_out:
            break
    assert model.left_out == [1]
    assert model.coef_[0] > 0.3 > 0 > -0.3 > model.coef_[2]
    assert model.coef_[1] == 0
    [(share,)] = con.execute(
        f"SELECT avg((dp_predict_class('{name}', {{a: a, rare: rare, b: b}}) = label::VARCHAR)::INT) FROM t"
    ).fetchall()
    assert share > 0.95


def test_logistic_regression_without_delta_needs_bounds(con: Any) -> None:
    before = spent(con)
    with pytest.raises(duckdb.Error, match=r"P003.*delta"):
        con.execute(f"FROM dp_logistic_regression('t', {LABEL}, epsilon := 1)")
    with pytest.raises(duckdb.Error, match="P051"):
        con.execute(f"FROM dp_logistic_regression('t', {LABEL}, {BUDGET}, bounds_share := 0.6, moments_share := 0.4)")
    assert spent(con) == before


@pytest.mark.long
def test_a_standard_error_covers_what_the_noise_does(con: Any) -> None:
    """Forty boosted fits of the same rows, in public bounds: 95 % of the coefficients within 1.96 of them, or nearly so."""
    bounds = {"lower": 0, "upper": 10, "target_lower": 0, "target_upper": 40}
    inside = total = 0
    for _ in range(40):
        for term, value, error in fit(con, "'a', 'b'", **bounds):
            true = {"intercept": 10.0, "a": 3.0, "b": -1.0}[term]
            assert math.isfinite(error)
            inside += abs(value - true) <= 1.96 * error
            total += 1
    # 120 coefficients, three of a fit together: fewer than 90 with a chance below 1e-6, if each has one of 0.93.
    assert inside >= 90
    assert inside / total > 0.75
