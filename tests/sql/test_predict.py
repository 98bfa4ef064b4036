"""dp_predict and dp_models: what was released, put to use, in SQL and in Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from sklearn.linear_model import LinearRegression

import dpsql
from dpsql.released.model import LinearModel
from support.cases import cases

BUDGET = "epsilon := 1000, delta := 1e-6"
FIT = f"target := 'y', method := 'ada_ssp', features := ['a', 'b'], {BUDGET}, lower := -1, upper := 1, target_lower := -9, target_upper := 9"


def fill(con: Any) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.uniform(-1, 1, size=(2, 500))
    frame = pl.DataFrame({"id": range(500), "a": a, "b": b, "y": 2 * a - 3 * b + 1, "g": np.arange(500) % 5})
    con.register("frame", frame.to_arrow())
    con.execute("CREATE TABLE t AS FROM frame")
    con.unregister("frame")


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the model 'm' of the table t."""
    opened = dpsql.connect()
    fill(opened)
    opened.execute(f"FROM dp_linear_regression('t', {FIT}, release := 'm')").fetchall()
    yield opened
    opened.close()


def model(con: Any, key: Any = "m", dataset: str | None = None) -> LinearModel:
    return dpsql.install(con).model(key, dataset)


def column(con: Any, statement: str) -> list[Any]:
    return [row[0] for row in con.execute(statement).fetchall()]


def assert_close(found: Any, exact: Any) -> None:
    np.testing.assert_allclose(np.array(found, dtype=float), exact, rtol=1e-13, atol=1e-13)


def charged(con: Any) -> int:
    return int(column(con, "SELECT count(*) FROM dp_ledger()")[0])


def test_a_prediction_is_the_intercept_plus_coefficients_times_clipped_features(con: Any) -> None:
    con.execute("CREATE OR REPLACE TEMP TABLE wide AS SELECT a * 3 AS a, b * 3 AS b FROM t ORDER BY id")
    rows = np.array(con.execute("FROM wide").fetchall())
    terms = dict(
        con.execute(f"SELECT term, coefficient FROM dp_linear_regression('t', {FIT}, release := 'm')").fetchall()
    )
    exact = terms["intercept"] + np.clip(rows, -1, 1) @ [terms["a"], terms["b"]]
    assert (np.abs(rows) > 1).any()
    before = charged(con)
    found = column(con, "SELECT dp_predict('m', wide) FROM wide")
    np.testing.assert_allclose(found, exact, rtol=1e-14, atol=1e-14)
    assert_close(found, model(con).predict(rows))
    assert_close(found, model(con).predict(pl.DataFrame(rows, schema=["a", "b"])))
    assert_close(found, model(con).predict(pl.DataFrame(rows, schema=["a", "b"]).to_arrow()))
    number = model(con).ledger_id
    assert_close(found, column(con, f"SELECT dp_predict({number}, wide) FROM wide"))
    assert charged(con) == before


@cases(
    "row",
    [
        "{'a': 0.5, 'b': -0.25}",
        "{'b': -0.25, 'a': 0.5}",
        "{'B': -0.25, 'A': 0.5, 'c': 'text', 'd': NULL}",
        "{'a': 0.5::FLOAT, 'b': '-0.25'::DECIMAL(9, 4)}",
        "row_of_columns",
        "[0.5, -0.25]",
        "[0.5, -0.25]::DOUBLE[2]",
        "[0.5, -0.25]::FLOAT[]",
        "[0.5, -0.25, 77]",
    ],
)
def test_rows_structs_and_vectors(con: Any, row: str) -> None:
    if row == "row_of_columns":
        found = column(con, "SELECT dp_predict('m', r) FROM (SELECT -0.25 AS b, 0.5 AS a) AS r")
    else:
        found = column(con, f"SELECT dp_predict('m', {row})")
    assert found == pytest.approx([model(con).predict(np.array([[0.5, -0.25]]))[0]], rel=1e-15)


def test_a_missing_value_gives_null_and_nothing_else_does(con: Any) -> None:
    rows = "VALUES (1, 0.5, 0.5), (2, NULL, 0.5), (3, 0.5, 'nan'::DOUBLE), (4, 'inf'::DOUBLE, 0)"
    found = column(con, f"SELECT dp_predict('m', r) FROM ({rows}) AS r(i, a, b) ORDER BY i")
    assert [value is None for value in found] == [False, True, True, False]
    assert found[3] == pytest.approx(model(con).predict(np.array([[1.0, 0.0]]))[0])
    assert column(con, "SELECT dp_predict('m', NULL::STRUCT(a DOUBLE, b DOUBLE))") == [None]
    assert column(con, "SELECT dp_predict('m', NULL::DOUBLE[])") == [None]
    assert column(con, "SELECT dp_predict('m', [0.5])") == [None]
    assert column(con, "SELECT dp_predict('m', x) FROM (VALUES ([0.1, 0.2]), (NULL), ([0.1, NULL])) AS v(x)")[1:] == [
        None,
        None,
    ]
    assert column(con, "SELECT dp_predict('m', t) FROM t WHERE id < 0") == []


@cases(
    ("expression", "code"),
    [
        ("dp_predict('m', {'a': 1})", "S002"),
        ("dp_predict('m', {'a': 1, 'b_': 2})", "S002"),
        ("dp_predict('m', {'a': 1, 'b': DATE '2020-01-01'})", "S003"),
        ("dp_predict('m', {'a': 1, 'b': 'text'})", "S003"),
        ("dp_predict('m', 3)", "S010"),
        ("dp_predict('m', 'a')", "S010"),
        ("dp_predict('nobody', {'a': 1, 'b': 1})", "P030"),
        ("dp_predict(12345, {'a': 1, 'b': 1})", "P030"),
        ("dp_predict(NULL, {'a': 1, 'b': 1})", "P013"),
        ("dp_predict('m', {'a': 1, 'b': 1}, dataset := 'elsewhere')", "P030"),
    ],
)
def test_refused(con: Any, expression: str, code: str) -> None:
    before = charged(con)
    with pytest.raises(duckdb.Error, match=f"DPSQL-{code}"):
        con.execute(f"SELECT {expression}").fetchall()
    assert charged(con) == before


def test_one_model_per_statement(con: Any) -> None:
    con.execute(f"FROM dp_linear_regression('t', {FIT}, release := 'second')").fetchall()
    with pytest.raises(duckdb.Error, match="DPSQL-P056"):
        con.execute("SELECT dp_predict(CASE WHEN id = 3 THEN 'm' ELSE 'second' END, t) FROM t").fetchall()
    assert len(column(con, "SELECT dp_predict('m', t) - dp_predict('second', t) FROM t")) == 500


def test_everywhere_that_a_function_stands(con: Any) -> None:
    """Views, joins, updates, groups, filters, windows, prepared statements: it is a plain function of its row."""
    exact = model(con).predict(np.array(con.execute("SELECT a, b FROM t ORDER BY id").fetchall()))
    con.execute("CREATE OR REPLACE TEMP VIEW v AS SELECT id, dp_predict('m', t) AS p FROM t")
    assert_close(column(con, "SELECT p FROM v ORDER BY id"), exact)
    joined = "SELECT dp_predict('m', {'a': x.a, 'b': y.b}) FROM t AS x JOIN t AS y USING (id) ORDER BY id"
    assert_close(column(con, joined), exact)
    con.execute("CREATE OR REPLACE TEMP TABLE u AS SELECT *, NULL::DOUBLE AS p FROM t")
    con.execute("UPDATE u SET p = dp_predict('m', u)")
    assert_close(column(con, "SELECT p FROM u ORDER BY id"), exact)
    means = column(con, "SELECT avg(dp_predict('m', t)) FROM t GROUP BY g ORDER BY g")
    np.testing.assert_allclose(means, [exact[g::5].mean() for g in range(5)])
    assert column(con, "SELECT count(*) FROM t WHERE dp_predict('m', t) > 0") == [(exact > 0).sum()]
    best = column(con, "SELECT id FROM t QUALIFY row_number() OVER (ORDER BY dp_predict('m', t) DESC) = 1")
    assert best == [exact.argmax()]
    con.execute("PREPARE q AS SELECT dp_predict($1, t) FROM t ORDER BY id")
    assert_close(column(con, "EXECUTE q('m')"), exact)
    correlated = "SELECT (SELECT dp_predict('m', {'a': t.a, 'b': t.b})) FROM t ORDER BY id"
    assert_close(column(con, correlated), exact)


def test_on_many_rows_and_other_cursors(con: Any) -> None:
    con.execute("CREATE OR REPLACE TEMP TABLE many AS SELECT sin(i) AS a, cos(i) AS b FROM range(200_000) AS r(i)")
    total = column(con, "SELECT sum(dp_predict('m', many)) FROM many")[0]
    rows = np.array(con.execute("FROM many").fetchall())
    assert total == pytest.approx(model(con).predict(rows).sum(), rel=1e-9)
    cursor = con.cursor()
    found = cursor.execute("SELECT dpsql.dp_predict('m', {'a': 0.5, 'b': 0.5})").fetchall()
    assert found == [(pytest.approx(model(con).predict(np.array([[0.5, 0.5]]))[0]),)]
    assert cursor.execute("SELECT count(*) FROM dpsql.dp_models() WHERE model = 'm'").fetchall() == [(1,)]


def test_two_datasets_with_one_name(con: Any) -> None:
    con.execute("CREATE OR REPLACE TABLE other AS SELECT a, b, 5 * a AS y FROM t")
    for dataset in ("t", "other"):
        con.execute(f"FROM dp_linear_regression('{dataset}', {FIT}, release := 'twice')").fetchall()
        if dataset == "t":  # not ambiguous yet; a later release of that name makes it so, whoever asked before
            assert len(column(con, "SELECT dp_predict('twice', {'a': 1, 'b': 0})")) == 1
    with pytest.raises(duckdb.Error, match=r"DPSQL-P055.*dataset"):
        con.execute("SELECT dp_predict('twice', {'a': 1, 'b': 0})").fetchall()
    [other] = column(con, "SELECT dp_predict('twice', {'a': 1, 'b': 0}, dataset := 'OTHER')")
    assert other == pytest.approx(5, abs=0.1)
    [mine] = column(con, "SELECT dp_predict('twice', {'a': 1, 'b': 0}, dataset := 't')")
    assert mine == pytest.approx(3, abs=0.1)


def test_features_of_vectors_by_place(con: Any) -> None:
    """A fit to some elements of a vector predicts from whole vectors, or from a struct with their names."""
    con.execute("CREATE OR REPLACE TABLE vectors AS SELECT [7, a, 7, b] AS x, y FROM t")
    given = f"target := 'y', features := 'x', names := ['p', 'q', 'r', 's'], {BUDGET}"
    con.execute(
        "FROM dp_kendall('vectors', target := 'y', features := 'x', names := ['p', 'q', 'r', 's'], k := 2, "
        "epsilon := 1000, release := 'chosen')"
    ).fetchall()
    con.execute(
        f"FROM dp_linear_regression('vectors', target := 'y', features := release('chosen'), {BUDGET}, release := 'v')"
    ).fetchall()
    assert set(model(con, "v").feature_names_in_) == {"q", "s"}
    assert column(con, "SELECT dp_predict('v', vectors.x) FROM vectors") == pytest.approx(
        column(con, "SELECT y FROM vectors"), abs=0.2
    )
    by_place = column(con, "SELECT dp_predict('v', [7, 0.5, 7, 0.25])")
    assert column(con, "SELECT dp_predict('v', {'s': 0.25, 'q': 0.5})") == by_place
    assert column(con, "SELECT dp_predict('v', [NULL, 0.5, 0, 0.25])") == by_place
    assert model(con, "v").predict(pl.DataFrame({"x": [[7.0, 0.5, 7.0, 0.25]]})).tolist() == by_place
    con.execute(f"FROM dp_linear_regression('vectors', {given}, release := 'whole')").fetchall()
    assert len(model(con, "whole").coef_) == 4
    with dpsql.Context(con) as context:
        predicted = context.dp_predict("v", "vectors")
        np.testing.assert_allclose(
            predicted.column("prediction").to_pylist(), column(con, "SELECT y FROM vectors"), atol=0.2
        )


def test_models_lists_every_release_of_a_model_and_its_json_reads_like_scikit_learn(con: Any) -> None:
    [(found, method, target, features, status, guarantee, text)] = con.execute(
        "SELECT model, method, target, features, status, guarantee, json FROM dp_models() WHERE model = 'm'"
    ).fetchall()
    assert (found, method, target, features, status) == ("m", "ada_ssp", "y", ["a", "b"], "released")
    assert guarantee == "(1000, 1e-06)-DP, add_remove of one row"
    read = json.loads(text)
    rows = np.array(con.execute("SELECT a, b FROM t ORDER BY id").fetchall())
    twin = LinearRegression()
    twin.coef_, twin.intercept_ = np.array(read["coef_"]), read["intercept_"]
    twin.n_features_in_ = read["n_features_in_"]
    np.testing.assert_allclose(twin.predict(rows), column(con, "SELECT dp_predict('m', t) FROM t ORDER BY id"))
    assert read["feature_names_in_"] == ["a", "b"]
    exact = LinearRegression().fit(rows, column(con, "SELECT y FROM t ORDER BY id"))
    np.testing.assert_allclose([*read["coef_"], read["intercept_"]], [*exact.coef_, exact.intercept_], atol=0.05)


def test_python_form() -> None:
    with dpsql.Context() as context:
        fill(context.connection)
        fitted = context.dp_linear_regression(
            "t", target="y", features=["a", "b"], epsilon=1000, delta=1e-6, release="m"
        )
        frame = pl.DataFrame({"A": [0.5, 0.25], "b": [0.5, None], "more": ["x", "y"]})
        for key in (fitted, "m", fitted.ledger_id):
            table = context.dp_predict(key, frame)
            assert table.column_names == ["A", "b", "more", "prediction"]
            assert table.column("prediction").to_pylist() == pytest.approx([0.5, None], abs=0.05)
        assert context.dp_predict("m", "t").num_rows == 500
        assert context.dp_models().column("model").to_pylist() == ["m"]
        with pytest.raises(dpsql.SourceError, match=r'S002.*"b"'):
            context.dp_predict("m", pl.DataFrame({"a": [1.0]}))
        with pytest.raises(dpsql.SourceError, match="S003"):
            context.dp_predict("m", pl.DataFrame({"a": ["one"], "b": [1.0]}))
        with pytest.raises(dpsql.ParameterError, match="P030"):
            context.model("nobody")
        assert len(context.dp_ledger()) == 1


def test_a_model_outlives_its_connection(tmp_path: Path) -> None:
    path, ledger = str(tmp_path / "data.duckdb"), str(tmp_path / "kept.dpsql-ledger")
    con = dpsql.connect(path, ledger=ledger)
    fill(con)
    con.execute(f"FROM dp_linear_regression('t', {FIT}, release := 'kept')").fetchall()
    before = column(con, "SELECT dp_predict('kept', t) FROM t ORDER BY id")
    con.close()
    con = dpsql.connect(path, ledger=ledger)
    assert column(con, "SELECT dp_predict('kept', t) FROM t ORDER BY id") == before
    assert column(con, "SELECT model FROM dp_models()") == ["kept"]
    con.close()


def test_a_connection_sees_what_another_one_released(tmp_path: Path) -> None:
    ledger = str(tmp_path / "shared.dpsql-ledger")
    one, two = (dpsql.connect(ledger=ledger) for _ in range(2))
    fill(one)
    with pytest.raises(duckdb.Error, match="DPSQL-P030"):
        two.execute("SELECT dp_predict('m', {'a': 1, 'b': 1})").fetchall()
    one.execute(f"FROM dp_linear_regression('t', {FIT}, release := 'm')").fetchall()
    assert column(two, "SELECT dp_predict('m', {'a': 1, 'b': 1})") == pytest.approx([0], abs=0.1)
    one.close()
    two.close()


@pytest.mark.parametrize(
    "key", ["'no\\u0000name'", "''", "170141183460469231731687303715884105727::HUGEINT", "0", "-1"]
)
def test_names_and_numbers_that_no_ledger_holds(key: str) -> None:
    with dpsql.connect() as opened, pytest.raises(duckdb.Error, match="DPSQL-P030"):
        opened.execute(f"SELECT dp_predict({key}, {{a: 1}})").fetchall()
    for odd in ("no\x00name", "\ud800", 10**30, 0):
        with dpsql.Context() as context, pytest.raises(dpsql.ParameterError, match="P030"):
            context.model(odd)


def test_a_feature_may_be_called_intercept() -> None:
    """The constant term comes first, whatever the features are called."""
    with dpsql.connect() as opened:
        opened.execute(
            "CREATE TABLE u AS SELECT *, 0.5 + 2 * intercept - b AS y "
            "FROM (SELECT (i * 7 % 1000) / 1000 AS intercept, (i * 13 % 997) / 1000 AS b FROM range(5000) AS r(i))"
        )
        rows = opened.execute(
            "FROM dp_linear_regression('u', target := 'y', features := ['intercept', 'b'], lower := 0, upper := 1, "
            "target_lower := -1, target_upper := 3, epsilon := 1e5, delta := 1e-6, release := 'm')"
        ).fetchall()
        assert [row[0] for row in rows] == ["intercept", "intercept", "b"]
        assert [row[1] for row in rows] == pytest.approx([0.5, 2, -1], abs=1e-2)
        [(error,)] = opened.execute("SELECT max(abs(dp_predict('m', u) - y)) FROM u").fetchall()
        assert error < 1e-2
