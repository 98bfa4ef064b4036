"""dp_pipeline: a selection and a fit of what it selected, under one budget and with one receipt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

import dpsql
from dpsql.functions.pipeline import SELECTORS
from support.cases import cases
from support.sessions import ledger_of

ROWS = 2500
NAMES = [f"f{number}" for number in range(12)]
BOUNDS = {"lower": -2, "upper": 2, "target_lower": -9, "target_upper": 9}


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """The target follows f3 and f7 of twelve features."""
    opened = dpsql.connect()
    x = np.random.default_rng(5).uniform(-2, 2, size=(ROWS, len(NAMES)))
    y = 2 * x[:, 3] - 1.5 * x[:, 7] + 0.5
    frame = pl.DataFrame({"id": range(ROWS), **dict(zip(NAMES, x.T, strict=True)), "y": y})
    opened.register("frame", frame.to_arrow())
    opened.execute("CREATE TABLE t AS FROM frame")
    opened.execute(f"CREATE TABLE vectors AS SELECT [{', '.join(NAMES)}] AS x, y FROM t")
    yield opened
    opened.close()


def pipeline(con: Any, source: str = "t", **more: Any) -> dict[str, float]:
    given = {"target": "y", "k": 2, "epsilon": 10**4, "delta": 1e-6, **BOUNDS, **more}
    given = {name: value for name, value in given.items() if value is not None}
    if "features" not in given:
        given["features"] = NAMES
    text = ", ".join(f"{name} := {value!r}" for name, value in given.items())
    return {row[0]: row[1] for row in con.execute(f"FROM dp_pipeline('{source}', {text})").fetchall()}


def event(con: Any) -> dict[str, Any]:
    [(text,)] = con.execute("SELECT event FROM dp_ledger() ORDER BY sequence DESC LIMIT 1").fetchall()
    found: dict[str, Any] = json.loads(text)
    return found


EXACT = {"intercept": 0.5, "f3": 2.0, "f7": -1.5}


@cases("selector", SELECTORS)
@cases("method", ["ada_ssp", "boosted_ada_ssp", "tukey"])
def test_every_selector_with_every_method(con: Any, selector: str, method: str) -> None:
    found = pipeline(con, selector=selector, method=method, selection_blocks=20, selection_share=0.3, rounds=150)
    assert found == pytest.approx(EXACT, abs=0.05)


@pytest.mark.parametrize("selector", SELECTORS)
def test_the_fit_is_that_of_the_selected_features_alone(con: Any, selector: str) -> None:
    """The same call of dp_linear_regression on these features: the others do not move the model."""
    found = pipeline(con, selector=selector, method="ada_ssp", selection_blocks=20, selection_share=0.3)
    con.execute("CREATE OR REPLACE TEMP VIEW two AS SELECT f3, f7, y FROM t")
    text = ", ".join(f"{name} := {value!r}" for name, value in BOUNDS.items())
    alone = con.execute(
        "FROM dp_linear_regression('two', target := 'y', features := ['f3', 'f7'], method := 'ada_ssp', "
        f"epsilon := 7000, delta := 1e-6, {text})"
    ).fetchall()
    assert found == pytest.approx({row[0]: row[1] for row in alone}, abs=0.01)


def test_every_selector_in_the_long_and_vector_layouts(con: Any) -> None:
    cells = " UNION ALL ".join(f"SELECT id, '{name}' AS feature, {name} AS v, y FROM t" for name in NAMES)
    con.execute(f"CREATE OR REPLACE TABLE cells AS {cells}")
    for selector in SELECTORS:
        more = {"selector": selector, "selection_blocks": 20, "selection_share": 0.3}
        found = pipeline(con, "cells", features="feature", row_id="id", value="v", names=NAMES, **more)
        assert found == pytest.approx(EXACT, abs=0.05)
        assert pipeline(con, "vectors", features="x", names=NAMES, **more) == pytest.approx(EXACT, abs=0.05)
        by_place = {"intercept": 0.5, "x[4]": 2.0, "x[8]": -1.5}
        assert pipeline(con, "vectors", features="x", n_features=12, **more) == pytest.approx(by_place, abs=0.05)


@cases(("lower", "upper"), [([-2] * 12, [2] * 12), ([-2] * 12, 2), (-2, [2] * 12)])
@cases("selector", SELECTORS)
@cases("method", ["ada_ssp", "tukey"])
def test_bounds_per_feature_go_with_their_feature(con: Any, lower: Any, upper: Any, selector: str, method: str) -> None:
    """The bounds of f7 are narrow: clipped, its slope is steeper, wherever the selection puts it."""
    more = {"selector": selector, "method": method, "selection_blocks": 20, "selection_share": 0.3}
    assert pipeline(con, lower=lower, upper=upper, **more) == pytest.approx(EXACT, abs=0.05)
    if method == "tukey" or not isinstance(upper, list):
        return
    narrow = [*upper[:7], 0.001, *upper[8:]]
    found = pipeline(con, lower=lower, upper=narrow, release=f"{selector} {lower} {upper}"[:40], **more)
    if "f7" in found:  # a selector that clips may not see it any more
        [(text,)] = con.execute("SELECT json FROM dp_models() ORDER BY ledger_id DESC LIMIT 1").fetchall()
        read = json.loads(text)
        bounds = dict(zip(read["feature_names_in_"], read["feature_bounds_"], strict=True))
        assert bounds["f7"] == [-2, 0.001]
        assert all(pair == [-2, 2] for name, pair in bounds.items() if name != "f7")
    assert "f3" in found


@cases("count", [2, 11, 13])
@cases("selector", SELECTORS)
def test_as_many_bounds_as_features_not_as_selected(con: Any, count: int, selector: str) -> None:
    before = con.execute("SELECT count(*) FROM dp_ledger()").fetchall()
    for more in ({"lower": [-2] * count}, {"upper": [2] * count}, {"lower": [-2] * count, "upper": [2] * count}):
        with pytest.raises(duckdb.Error, match="DPSQL-P035"):
            pipeline(con, selector=selector, selection_blocks=20, **more)
    assert con.execute("SELECT count(*) FROM dp_ledger()").fetchall() == before


def test_shares_are_of_the_whole_epsilon(con: Any) -> None:
    pipeline(con, epsilon=2, selection_share=0.25, method="ada_ssp")
    selection, fit = event(con)["events"]
    assert Fraction(selection["epsilon"]) == Fraction(1, 2)
    assert Fraction(fit["epsilon"]) == Fraction(3, 2)
    pipeline(con, epsilon=2, selection_share=0.25, method="boosted_ada_ssp", scale_share=0.1)
    selection, fit = event(con)["events"]
    scale, gaussian = fit["events"]
    assert [Fraction(part["epsilon"]) for part in (selection, scale, gaussian)] == [
        Fraction(1, 2),
        Fraction(1, 5),
        Fraction(13, 10),
    ]
    pipeline(con, epsilon=20, selection_share=0.25, method="tukey", count_share=0.1)
    selection, fit = event(con)["events"]
    assert [Fraction(part["epsilon"]) for part in (selection, *fit["events"])] == [5, 2, 13]


def test_the_usual_share_hangs_on_the_selector(con: Any) -> None:
    for selector, share in {"kendall": 1, "two_stage": 3, "best_subset": 3, "sis": 3}.items():
        pipeline(con, epsilon=10, selector=selector, method="ada_ssp")
        *selection, fit = event(con)["events"]
        assert sum(Fraction(part["epsilon"]) for part in _leaves(selection)) == share
        assert Fraction(fit["epsilon"]) == 10 - share


def _leaves(events: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in events:
        if "events" in one:
            yield from _leaves(one["events"])
        else:
            yield one


@pytest.mark.parametrize("method", ["ada_ssp", "boosted_ada_ssp"])
@pytest.mark.parametrize("layout", ["wide", "vectors"])
def test_without_k_all_features_are_fitted_with_the_whole_budget(con: Any, method: str, layout: str) -> None:
    more = {"k": None, "method": method, "rounds": 150, "release": f"all {method} {layout}"}
    if layout == "vectors":
        more |= {"source": "vectors", "features": "x", "names": NAMES}
    found = pipeline(con, **more)
    assert found == pytest.approx({"intercept": 0.5, **dict.fromkeys(NAMES, 0.0), "f3": 2.0, "f7": -1.5}, abs=0.05)
    spent = event(con)
    text = ", ".join(f"{name} := {value!r}" for name, value in BOUNDS.items())
    columns = "features := 'x', names := " + repr(NAMES) if layout == "vectors" else f"features := {NAMES!r}"
    con.execute(
        f"FROM dp_linear_regression('{more.get('source', 't')}', target := 'y', {columns}, method := '{method}', "
        f"rounds := 150, epsilon := {10**4}, delta := 1e-6, {text})"
    ).fetchall()
    assert event(con) == spent
    assert pipeline(con, **more) == found
    assert stored(con)["selection"] == "none"


def test_the_result_names_the_selector(con: Any) -> None:
    pipeline(con, selector="sis", selection_share=0.3)
    assert stored(con)["selection"] == "sis"


def stored(con: Any) -> dict[str, Any]:
    entry = ledger_of(con).releases(("dp_pipeline",))[-1]
    found: dict[str, Any] = entry.result
    return found


def test_without_k_there_are_at_most_50_features(con: Any) -> None:
    before = con.execute("SELECT count(*) FROM dp_ledger()").fetchall()
    con.execute(
        f"CREATE OR REPLACE TABLE broad AS SELECT y, {', '.join(f'f{j % 12} AS g{j}' for j in range(51))} FROM t"
    )
    most = [f"g{j}" for j in range(51)]
    for features in (most, None):
        more = {} if features is None else {"features": features}
        call = ", ".join(f"{name} := {value!r}" for name, value in {**more, "epsilon": 10, "delta": 1e-6}.items())
        with pytest.raises(duckdb.Error, match=r"DPSQL-P026.*at most 50 features; got 51. Give k"):
            con.execute(f"FROM dp_pipeline('broad', target := 'y', {call})").fetchall()
    for argument in ("selector := 'sis'", "selection_share := 0.3", "selection_blocks := 20"):
        with pytest.raises(duckdb.Error, match=rf"DPSQL-P046.*{argument.split()[0]} has no effect without k"):
            con.execute(f"FROM dp_pipeline('t', target := 'y', {argument}, epsilon := 1, delta := 1e-6)").fetchall()
    assert con.execute("SELECT count(*) FROM dp_ledger()").fetchall() == before
    assert len(pipeline(con, "broad", features=most[:50], k=None, method="ada_ssp")) == 51


def test_dp_linear_regression_takes_the_same_shares(con: Any) -> None:
    text = "target := 'y', features := ['f3'], epsilon := 2, delta := 1e-6, method := 'boosted_ada_ssp'"
    con.execute(f"FROM dp_linear_regression('t', {text}, scale_share := 0.1)").fetchall()
    assert [Fraction(part["epsilon"]) for part in event(con)["events"]] == [Fraction(1, 5), Fraction(9, 5)]


def test_k_of_one_and_of_all(con: Any) -> None:
    one = pipeline(con, k=1)
    assert set(one) == {"intercept", "f3"}
    everything = pipeline(con, k=12)
    assert set(everything) == {"intercept", *NAMES}
    assert everything == pytest.approx({name: EXACT.get(name, 0) for name in everything}, abs=0.05)


def test_a_model_of_a_pipeline_predicts(con: Any) -> None:
    pipeline(con, release="whole")
    [(worst,)] = con.execute("SELECT max(abs(dp_predict('whole', t) - y)) FROM t").fetchall()
    assert worst < 0.1
    pipeline(con, "vectors", features="x", n_features=12, release="places")
    [(worst,)] = con.execute("SELECT max(abs(dp_predict('places', x) - y)) FROM vectors").fetchall()
    assert worst < 0.1
    [(function, features)] = con.execute("SELECT function, features FROM dp_models() WHERE model = 'places'").fetchall()
    assert function == "dp_pipeline"
    assert set(features) == {"x[4]", "x[8]"}


def test_a_pipeline_over_the_features_of_an_earlier_selection(con: Any) -> None:
    names = repr(NAMES)
    con.execute(
        f"FROM dp_kendall('t', target := 'y', features := {names}, k := 5, epsilon := 1000, release := 'five')"
    ).fetchall()
    text = "target := 'y', features := release('five'), k := 2, epsilon := 1000, delta := 1e-6"
    rows = con.execute(f"FROM dp_pipeline('t', {text})").fetchall()
    assert {row[0] for row in rows} == {"intercept", "f3", "f7"}
    rows = con.execute(f"FROM dp_pipeline('t', {text.replace('k := 2', 'k := 6')})").fetchall()
    assert len(rows) == 6


@cases("selector", SELECTORS)
@cases("named", [True, False])
def test_fewer_features_than_k_are_all_fitted(con: Any, selector: str, named: bool) -> None:
    """Nothing is selected, nor charged for it; where the call names the features, the fit has all of epsilon."""
    names = NAMES[:4]
    con.execute(f"CREATE OR REPLACE VIEW few AS SELECT y, {', '.join(names)} FROM t")
    features = f", features := {names!r}" if named else ""
    bounds = ", ".join(f"{name} := {value!r}" for name, value in BOUNDS.items())
    text = f"target := 'y'{features}, k := 5, selector := '{selector}', epsilon := 1000, delta := 1e-6, {bounds}"
    rows = con.execute(f"FROM dp_pipeline('few', {text})").fetchall()
    assert [row[0] for row in rows] == ["intercept", *names]
    charged = event(con)
    assert "Gumbel" not in str(charged)
    assert "Exponential" not in str(charged)
    con.execute("DROP VIEW few")


def test_private_bounds_are_drawn_for_the_selected_features(con: Any) -> None:
    found = pipeline(con, lower=None, upper=None, target_lower=None, target_upper=None, release="bounds")
    assert found == pytest.approx(EXACT, abs=0.05)
    [(text,)] = con.execute("SELECT json FROM dp_models() WHERE model = 'bounds'").fetchall()
    bounds = json.loads(text)["feature_bounds_"]
    assert len(bounds) == 2
    assert all(-3 <= low <= -1.9 and 1.9 <= high <= 3 for low, high in bounds)


def test_two_people_are_two_privacy_units(con: Any) -> None:
    con.execute("CREATE OR REPLACE TABLE people AS SELECT id // 2 AS person, * FROM t")
    found = pipeline(con, "people", privacy_unit="person", max_rows_per_unit=2)
    assert found == pytest.approx(EXACT, abs=0.05)
    [(guarantee,)] = con.execute("SELECT guarantee FROM dp_ledger() ORDER BY sequence DESC LIMIT 1").fetchall()
    assert guarantee == "(10000, 1e-06)-DP, add_remove of all rows of one person (at most 2 rows)"
