"""dp_predictions: a model of columns as a formula in SQL, and the same numbers as dp_predict in every row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

import dpsql
from dpsql.released.model import LinearModel
from support.cases import cases

NUMBERS = "features := ['a', 'b'], lower := -1, upper := 1"
FITS = {
    "line": f"dp_linear_regression('t', target := 'y', {NUMBERS}, method := 'ada_ssp', target_lower := -9, "
    "target_upper := 9, epsilon := 1000, delta := 1e-6",
    "free": "dp_linear_regression('t', target := 'y', features := ['a', 'b'], method := 'tukey', blocks := 400, "
    "epsilon := 1000, delta := 1e-6",
    "odds": f"dp_logistic_regression('t', target := 'z', {NUMBERS}, epsilon := 1000",
    "words": "dp_naive_bayes('t', target := 'z', features := ['p', 'q'], epsilon := 1000",
    "above": "dp_naive_bayes('t', target := 'z', features := ['a', 'b'], present_above := 0.25, epsilon := 1000",
    "vector": "dp_linear_regression('t', target := 'y', features := 'x', n_features := 2, lower := -1, upper := 1, method := 'ada_ssp', "
    "target_lower := -9, target_upper := 9, epsilon := 1000, delta := 1e-6",
    "long": "dp_naive_bayes('mail', target := 'z', features := 'token', row_id := 'doc', names := ['u', 'v'], "
    "epsilon := 1000",
}
ODD = "[NULL, 'nan', 'inf', '-inf', '-7', '-1', '-0.0', '0.25', '0.5', '1', '1e300']::DOUBLE[]"


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with one model of each kind."""
    opened = dpsql.connect()
    opened.execute(
        "CREATE TABLE t AS SELECT *, [a, b] AS x, 2 * a - 3 * b + 1 AS y, a > b AS z, a > 0 AS p, b > 0 AS q FROM "
        "(SELECT i AS id, sin(i * 1.7) AS a, cos(i * 2.3) AS b FROM range(20_000) AS r(i))"
    )
    opened.execute(
        "CREATE TABLE mail AS SELECT id AS doc, CASE WHEN a > 0 THEN 'u' ELSE 'w' END AS token, z FROM t "
        "UNION ALL SELECT id, CASE WHEN b > 0 THEN 'v' ELSE 'w' END, z FROM t"
    )
    for name, fit in FITS.items():
        opened.execute(f"FROM {fit}, release := '{name}')").fetchall()
    opened.execute(
        "CREATE TABLE odd AS SELECT row_number() OVER () AS id, a, b FROM "
        f"(SELECT unnest({ODD}) AS a), (SELECT unnest({ODD}) AS b)"
    )
    yield opened
    opened.close()


def assert_as_function(con: Any, name: str, source: str, row: str = "s") -> None:
    """Compare the table form with dp_predict, and of a classifier with dp_predict_class."""
    columns = con.execute(f"DESCRIBE FROM dp_predictions('{name}', '{source}')").fetchall()
    number = "probability" if columns[-1][0] == "probability" else "prediction"
    class_text = f"dp_predict_class('{name}', {row})" if number == "probability" else "NULL"
    rows = con.execute(
        f"SELECT {number}, dp_predict('{name}', {row}), prediction::VARCHAR, {class_text} "
        f"FROM dp_predictions('{name}', '{source}') AS s"
    ).fetchall()
    assert rows
    found, exact, given, classes = zip(*rows, strict=True)
    assert [value is None for value in found] == [value is None for value in exact]
    np.testing.assert_allclose(np.array(found, float), np.array(exact, float), rtol=1e-12, atol=1e-14)
    if number == "probability":
        assert given == classes


@cases("name", ["line", "free", "odds", "above"])
@cases("source", ["t", "odd"])
def test_rows_are_predicted_as_by_the_function(con: Any, name: str, source: str) -> None:
    assert_as_function(con, name, source)


@cases(
    ("name", "columns"),
    [
        ("line", "a::FLOAT AS a, b::DECIMAL(9, 4) AS b"),
        ("line", "(4 * a)::INT AS B, a > 0 AS A"),
        ("line", "(1e6 * a)::HUGEINT AS b, NULL AS a"),
        ("words", "p, q"),
        ("words", "NULL::BOOLEAN AS p, q"),
        ("words", "(3 * a)::INT AS p, CASE WHEN id > 9 THEN b ELSE 'nan' END AS q"),
    ],
)
def test_types_of_columns(con: Any, name: str, columns: str) -> None:
    con.execute(f"CREATE OR REPLACE TEMP VIEW typed AS SELECT {columns}, 'more' AS more FROM t")
    assert_as_function(con, name, "typed")


def test_vectors(con: Any) -> None:
    con.execute("CREATE OR REPLACE TEMP VIEW vectors AS FROM t UNION ALL BY NAME SELECT NULL::DOUBLE[] AS x")
    assert_as_function(con, "vector", "vectors", "s.x")


def test_long_rows_are_one_row_per_id(con: Any) -> None:
    found = con.execute("FROM dp_predictions('long', 'mail') ORDER BY doc").fetchall()
    exact = con.execute(
        "SELECT doc, dp_predict_class('long', list(token))::BOOLEAN, dp_predict('long', list(token)) FROM mail GROUP BY doc ORDER BY doc"
    ).fetchall()
    assert len(found) == 20_000
    assert found == exact


def test_a_models_numbers_are_exact(con: Any) -> None:
    """With one feature there is one order of additions, so every bit agrees."""
    con.execute(
        "FROM dp_linear_regression('t', target := 'y', features := ['a'], lower := -0.7, upper := 0.3, method := 'ada_ssp', "
        "target_lower := -9, target_upper := 9, epsilon := 0.1, delta := 1e-6, release := 'one')"
    ).fetchall()
    for source in ("t", "odd"):
        [(different,)] = con.execute(
            "SELECT count(*) FILTER (WHERE prediction IS DISTINCT FROM dp_predict('one', s)) "
            f"FROM dp_predictions('one', '{source}') AS s"
        ).fetchall()
        assert different == 0


def test_columns_of_the_source_come_first(con: Any) -> None:
    con.execute("CREATE OR REPLACE TEMP TABLE short AS SELECT 'k' AS kept, a, b, 5 AS prediction FROM t LIMIT 3")
    names = [row[0] for row in con.execute("DESCRIBE FROM dp_predictions('line', 'short')").fetchall()]
    assert names == ["kept", "a", "b", "prediction", "prediction_1"]
    number = dpsql.install(con).model("line").ledger_id
    assert len(con.execute(f"FROM dp_predictions({number}, 'temp.short', dataset := 't')").fetchall()) == 3


def test_a_file_whose_statistics_ignore_nan(con: Any, tmp_path: Path) -> None:
    """DuckDB may decide comparisons from a file's minimum and maximum; NaN must not become a bound, or present."""
    for low in (-5, -0.5, 5):
        path = tmp_path / f"{low}.parquet"
        values = np.where(np.arange(100) == 7, np.nan, low + np.arange(100) / 1000)
        parquet.write_table(
            pa.table({"a": values, "b": np.full(100, 0.5)}), path
        )  # DuckDB's own writer leaves them out
        for name in ("line", "odds", "above"):
            assert_as_function(con, name, str(path))


@cases(
    ("call", "code"),
    [
        ("dp_predictions('nobody', 't')", "P030"),
        ("dp_predictions(NULL, 't')", "P013"),
        ("dp_predictions('line', NULL)", "P013"),
        ("dp_predictions('line', 't', dataset := 'elsewhere')", "P030"),
        ("dp_predictions('line', 'texts')", "S003.*'b'"),
        ("dp_predictions('line', 'dates')", "S003.*'a'"),
    ],
)
def test_refused(con: Any, call: str, code: str) -> None:
    """Texts that hold numbers are refused as well: what a column may be depends on its type alone."""
    con.execute("CREATE OR REPLACE TEMP TABLE texts AS SELECT 0.5 AS a, '0.5' AS b")
    con.execute("CREATE OR REPLACE TEMP TABLE dates AS SELECT DATE '2020-01-01' AS a, 0.5 AS b")
    with pytest.raises(duckdb.Error, match=f"DPSQL-{code}"):
        con.execute(f"FROM {call}").fetchall()


def test_a_missing_column(con: Any) -> None:
    con.execute("CREATE OR REPLACE TEMP TABLE less AS SELECT 0.5 AS a")
    with pytest.raises(duckdb.BinderException, match='"b"'):
        con.execute("FROM dp_predictions('line', 'less')")
    with dpsql.Context(con) as context, pytest.raises(dpsql.SourceError, match=r'S002.*"b"'):
        context.dp_predict("line", pl.DataFrame({"a": [1.0]}))


def test_python_form_is_the_table_form(con: Any) -> None:
    with dpsql.Context(con) as context:
        for name in ("line", "odds"):
            rows = con.execute(f"FROM dp_predictions('{name}', 'odd') ORDER BY id").fetchall()
            table = context.dp_predict(name, "odd").sort_by("id")
            assert repr([tuple(row.values()) for row in table.to_pylist()]) == repr(rows)


def test_no_python_runs_per_batch(con: Any) -> None:
    """The check of types is folded while the statement is planned; what is left are DuckDB's own operators."""
    [(_, plan)] = con.execute("EXPLAIN SELECT prediction, probability FROM dp_predictions('odds', 't')").fetchall()
    assert "dpsql_numeric" not in plan
    assert "dpsql_predict" not in plan


def test_nothing_of_the_callers_replaces_a_function() -> None:
    """Macros with the names of all functions and operators in the statement change nothing."""
    with dpsql.connect() as opened:
        opened.execute(
            "CREATE TABLE t AS SELECT sin(i) AS a, cos(i) AS b, sin(i) > cos(i) AS z FROM range(3000) AS r(i)"
        )
        opened.execute(
            f"FROM dp_logistic_regression('t', target := 'z', {NUMBERS}, epsilon := 9, release := 'm')"
        ).fetchall()
        before = opened.execute("FROM dp_predictions('m', 't')").fetchall()
        shadows = (
            "nextafter(x, y)",
            "isnan(x)",
            "exp(x)",
            '"-"(x)',
            '"+"(x, y)',
            '"*"(x, y)',
            '"/"(x, y)',
            "typeof(x)",
            "list_value(x, y)",
        )
        for shadow in shadows:
            opened.execute(f"CREATE OR REPLACE TEMP MACRO {shadow} AS 42")
        assert opened.execute("FROM dp_predictions('m', 't')").fetchall() == before


@pytest.mark.parametrize("name", ["__dpsql__rows", "found", "rows", "prediction"])
def test_a_source_or_column_may_be_called_as_a_part_of_ours(con: Any, name: str) -> None:
    con.execute(f'CREATE OR REPLACE TEMP TABLE "{name}" AS SELECT id AS "{name}", a, b FROM odd')
    found = con.execute(
        f"SELECT * EXCLUDE (\"{name}\") FROM dp_predictions('line', '{name}') ORDER BY \"{name}\""
    ).fetchall()
    exact = con.execute("SELECT * EXCLUDE (id) FROM dp_predictions('line', 'odd') ORDER BY id").fetchall()
    assert repr(found) == repr(exact)


def test_a_view_of_predictions_is_charged_to_its_table() -> None:
    """The formula reads one row at a time, and DuckDB's plan of it says so."""
    with dpsql.connect() as opened:
        opened.execute(
            "CREATE TABLE t AS SELECT sin(i) AS a, cos(i) AS b, sin(i) > cos(i) AS z FROM range(3000) AS r(i)"
        )
        opened.execute("SELECT dp_protect('t', epsilon := 1000)").fetchall()
        opened.execute(
            f"FROM dp_logistic_regression('t', target := 'z', {NUMBERS}, epsilon := 90, release := 'm')"
        ).fetchall()
        opened.execute("CREATE VIEW scored AS FROM dp_predictions('m', 't')")
        [(area,)] = opened.execute(
            "SELECT auc FROM dp_auc('scored', label := 'z', score := 'probability', epsilon := 100)"
        ).fetchall()
        assert area == pytest.approx(1, abs=0.05)
        assert {row[0] for row in opened.execute("SELECT dataset FROM dp_ledger()").fetchall()} == {"t"}


@pytest.mark.parametrize("count", [0, 1, 2, 3, pytest.param(1200, marks=pytest.mark.long)])
def test_any_number_of_features(con: Any, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The formula's depth grows with the logarithm of the number of terms, far below DuckDB's limit of 1000."""
    names = tuple(f"f{place}" for place in range(count))
    made = LinearModel(
        kind="linear_regression",
        name=None,
        ledger_id=0,
        dataset="t",
        target="y",
        method="made",
        guarantee="",
        feature_names_in_=np.array(names, dtype=object),
        coef_=np.linspace(-1, 1, count),
        intercept_=0.5,
        feature_bounds_=((-0.25, 0.25),) * count,
        prediction_bounds_=None,
        vector=None,
        elements=None,
        long=None,
    )
    monkeypatch.setattr(dpsql.install(con), "model", lambda *_: made)
    values = np.linspace(-0.5, 0.5, count)
    columns = ", ".join(
        ["1 AS id", *(f"{value!r}::DOUBLE AS {name}" for name, value in zip(names, values.tolist(), strict=True))]
    )
    con.execute(f"CREATE OR REPLACE TEMP TABLE wide AS SELECT {columns}")
    [row] = con.execute("FROM dp_predictions('made', 'wide')").fetchall()
    assert row[-1] == pytest.approx(made.predict(values.reshape(1, -1))[0], rel=1e-12)


@cases(
    ("levels", "kind"),
    [
        ("z", "BOOLEAN"),
        ("z::INT", "BIGINT"),
        ("z::INT + 0.5", "DOUBLE"),
        ("CASE WHEN z THEN 'yes' ELSE 'no' END", "VARCHAR"),
    ],
    quick=1,
)
def test_a_class_has_the_type_of_the_target(con: Any, levels: str, kind: str) -> None:
    """It is compared with the target as it is."""
    con.execute(f"CREATE OR REPLACE TABLE levelled AS SELECT a, b, {levels} AS z FROM t")
    con.execute("SET VARIABLE known = (SELECT list(DISTINCT z ORDER BY z) FROM levelled)")
    con.execute(
        "FROM dp_logistic_regression('levelled', target := 'z', features := ['a', 'b'], epsilon := 1e4, lower := -1, upper := 1, "
        f"target_levels := getvariable('known'), release := {kind!r})"
    ).fetchall()
    found = con.execute(
        f"SELECT typeof(prediction), avg((prediction = z)::INT) FROM dp_predictions({kind!r}, 'levelled') GROUP BY 1"
    )
    [(shown, right)] = found.fetchall()
    assert shown == kind
    assert right > 0.95


def test_a_view_over_predictions_is_asked_like_its_table() -> None:
    """What `dp_predictions` writes is read as the table that it names, which is charged."""
    with dpsql.connect() as con:
        con.execute("CREATE TABLE t AS SELECT i AS id, i % 10 / 10 AS x, i % 10 > 4 AS y FROM range(400) AS r(i)")
        con.execute("SELECT dp_protect('t', epsilon := 1e6, delta := 0.1)").fetchall()
        con.execute(
            "FROM dp_logistic_regression('t', target := 'y', features := ['x'], epsilon := 1e3, delta := 1e-6, release := 'm')"
        )
        con.fetchall()
        con.execute("CREATE VIEW judged AS FROM dp_predictions('m', 't')")
        before = con.execute("SELECT epsilon_spent FROM dp_budget()").fetchone()
        [(auc,)] = con.execute(
            "SELECT auc FROM dp_auc('judged', label := 'y', score := 'probability', epsilon := 1e3)"
        ).fetchall()
        assert auc > 0.9
        assert con.execute("SELECT epsilon_spent FROM dp_budget()").fetchone() > before
