"""dp_covariance and dp_correlation: the right numbers for every layout, and refusals that charge nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from support.cases import cases

# Noise beyond the fixed point's own error of about 1e-6.
EXACT = "epsilon := 1e9, delta := NULL"
LARGE = "epsilon := 5e5, delta := 0.1"
BOUNDS = "lower := -2, upper := 2"


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        opened.execute(
            "CREATE TABLE t AS SELECT i AS id, i // 2 AS person, ((i * 37) % 101) / 25 - 2 AS a, "
            "((i * 53) % 97) / 50 - 1 + a / 3 AS b, ((i * 71) % 89) / 30 - a AS c FROM range(400) AS r(i)"
        )
        opened.execute(
            "CREATE VIEW holes AS SELECT id, CASE WHEN id % 7 = 0 THEN NULL WHEN id % 11 = 0 THEN 'nan'::DOUBLE "
            "WHEN id % 13 = 0 THEN 'inf'::DOUBLE ELSE a END AS a, CASE WHEN id % 5 = 0 THEN NULL ELSE b END AS b, c FROM t"
        )
        opened.execute("CREATE VIEW vectors AS SELECT [a, b, c]::DOUBLE[3] AS x FROM holes")
        opened.execute(
            "CREATE VIEW lists AS SELECT [a, b, c] AS x FROM holes UNION ALL SELECT [1, 1] UNION ALL SELECT NULL"
        )
        opened.execute("CREATE VIEW structs AS SELECT {'a': a, 'b': b, 'c': c} AS x FROM holes UNION ALL SELECT NULL")
        opened.execute(
            "CREATE VIEW cells AS SELECT id, unnest(['a', 'b', 'c']) AS f, unnest([a, b, c]) AS v FROM holes"
        )
        yield opened


def complete(con: Any, table: str = "holes") -> np.ndarray:
    """Return the rows that count, clipped."""
    found = con.execute(f"SELECT a, b, c FROM {table}").fetchnumpy()
    rows = np.stack([np.ma.filled(found[name].astype(float), math.nan) for name in "abc"], axis=1)
    return np.clip(rows[~np.isnan(rows).any(axis=1)], -2, 2)


def values(con: Any, sql: str) -> list[float]:
    return [row[0] for row in con.execute(sql).fetchall()]


LAYOUTS = {
    "wide": "'holes', features := ['a', 'b', 'c']",
    "array": "'vectors', features := 'x'",
    "list": "'lists', features := 'x', n_features := 3",
    "struct": "'structs', features := 'x'",
    "long": "'cells', features := 'f', row_id := 'id', value := 'v', names := ['a', 'b', 'c']",
}


@cases("layout", LAYOUTS, quick=3)
@cases("budget", [EXACT, LARGE])
def test_without_noise_it_is_the_matrix_of_the_complete_clipped_rows(con: Any, layout: str, budget: str) -> None:
    rows, close = complete(con), 1e-5 if budget == EXACT else 3e-3
    upper, beside = np.triu_indices(3), np.triu_indices(3, 1)
    for ddof in (1, 0):
        call = f"SELECT value FROM dp_covariance({LAYOUTS[layout]}, {BOUNDS}, {budget}, ddof := {ddof})"
        assert values(con, call) == pytest.approx(np.cov(rows.T, ddof=ddof)[upper], abs=close)
    call = f"SELECT value FROM dp_correlation({LAYOUTS[layout]}, {BOUNDS}, {budget})"
    assert values(con, call) == pytest.approx(np.corrcoef(rows.T)[beside], abs=close)


def test_it_is_what_duckdb_computes(con: Any) -> None:
    exact = con.execute("SELECT covar_samp(a, b), covar_pop(a, b), corr(a, b) FROM t").fetchone()
    call = f"'t', features := ['a', 'b'], lower := -3, upper := 3, {EXACT}"
    ours = [
        values(con, f"SELECT value FROM {function} WHERE feature_1 <> feature_2")[0]
        for function in (f"dp_covariance({call})", f"dp_covariance({call}, ddof := 0)", f"dp_correlation({call})")
    ]
    assert ours == pytest.approx(exact, abs=1e-5)


def test_rows_and_names(con: Any) -> None:
    call = f"(SELECT * FROM dp_covariance('t', features := ['c', 'a'], {BOUNDS}, epsilon := 1))"
    rows = con.execute(f"SELECT feature_1, feature_2 FROM {call}").fetchall()
    assert rows == [("c", "c"), ("c", "a"), ("a", "a")]
    described = con.execute(f"DESCRIBE SELECT * FROM {call}").fetchall()
    assert [row[:2] for row in described] == [
        *(("feature_1", "VARCHAR"), ("feature_2", "VARCHAR"), ("value", "DOUBLE"), ("std_error", "DOUBLE")),
        *(
            ("lower", "DOUBLE"),
            ("upper", "DOUBLE"),
            ("verdict", "VARCHAR"),
            ("covers", "VARCHAR"),
            ("speaks_of", "VARCHAR"),
        ),
    ]
    one = con.execute(
        f"SELECT feature_1, feature_2, value FROM dp_covariance('t', features := ['a'], {BOUNDS}, {EXACT})"
    )
    assert one.fetchall()[0][:2] == ("a", "a")
    every = f"dp_correlation('t', lower := 0, upper := 400, privacy_unit := 'person', max_rows_per_unit := 2, {LARGE})"
    assert len(con.execute(f"FROM {every}").fetchall()) == math.comb(4, 2)


def test_the_aggregate_form(con: Any) -> None:
    rows = complete(con)
    call = f"dp_covariance([a, b, c], n_features := 3, {BOUNDS}, {EXACT})"
    [(found,)] = con.execute(f"SELECT {call} FROM holes").fetchall()
    assert [row["value"] for row in found] == pytest.approx(np.cov(rows.T)[np.triu_indices(3)], abs=1e-5)
    assert [row["feature_2"] for row in found] == ["x[1]", "x[2]", "x[3]", "x[2]", "x[3]", "x[3]"]
    groups = con.execute(f"SELECT id % 2 AS g, {call} FROM holes GROUP BY g ORDER BY g").fetchall()
    for odd, found in groups:
        own = complete(con, f"holes WHERE id % 2 = {odd}")
        assert [row["value"] for row in found] == pytest.approx(np.cov(own.T)[np.triu_indices(3)], abs=1e-5)


def test_a_unit_counts_with_so_many_rows(con: Any) -> None:
    con.execute("CREATE OR REPLACE TABLE owned AS SELECT 7 AS u, 1.0 AS a, 1.0 AS b FROM range(50) UNION ALL "
                "SELECT 100 + i, -1.0, -1.0 FROM range(5) AS r(i)")  # fmt: skip
    call = "dp_covariance('owned', features := ['a', 'b'], privacy_unit := 'u', max_rows_per_unit := 5, ddof := 0"
    assert values(con, f"SELECT value FROM {call}, {BOUNDS}, {EXACT})") == pytest.approx([1, 1, 1], abs=1e-5)


def test_bounds_by_feature_and_by_name(con: Any) -> None:
    exact = values(con, "SELECT covar_samp(least(greatest(a, -1), 1), least(greatest(b, 0), 2)) FROM t")
    for bounds in ("lower := [-1, 0], upper := [1, 2]", "lower := {'b': 0, 'a': -1}, upper := {'a': 1, 'b': 2}"):
        call = f"SELECT value FROM dp_covariance('t', features := ['a', 'b'], {bounds}, {EXACT})"
        assert values(con, call)[1] == pytest.approx(exact[0], abs=1e-5)


@pytest.mark.parametrize("more", ["epsilon := 1", "epsilon := 1, delta := 1e-6", "epsilon := 0.001"])
def test_no_rows_and_constant_columns(con: Any, more: str) -> None:
    con.execute("CREATE OR REPLACE TABLE flat AS SELECT 0.5 AS a, 1.0 AS b FROM range(3)")
    for table in ("flat", "(none)"):
        source = "flat" if table == "flat" else "nobody"
        con.execute("CREATE OR REPLACE TABLE nobody AS FROM flat WHERE false")
        for function in ("dp_covariance", "dp_correlation"):
            rows = con.execute(f"FROM {function}('{source}', features := ['a', 'b'], {BOUNDS}, {more})").fetchall()
            assert all(low <= high for *_, low, high, _, _, _ in rows)
            assert all(value is None or math.isfinite(value) for _, _, value, *_ in rows)


REFUSED = {
    "one feature": ("dp_correlation('t', features := ['a'], lower := 0, upper := 1, epsilon := 1)", "P072"),
    "four features without delta": (
        "dp_covariance('t', features := ['a', 'b', 'c', 'id'], lower := 0, upper := 1, epsilon := 1)",
        "P046",
    ),
    "too many features": (
        "dp_covariance('vectors', features := 'x', n_features := 501, lower := 0, upper := 1, epsilon := 1, delta := 1e-6)",
        "P041",
    ),
    "too many elements": (
        "dp_covariance('lists', features := 'x', n_features := 501, lower := 0, upper := 1, epsilon := 1, delta := 1e-6)",
        "P026",
    ),
    "no bounds": ("dp_covariance('t', features := ['a', 'b'], epsilon := 1)", "P003"),
    "no epsilon": ("dp_covariance('t', features := ['a', 'b'], lower := 0, upper := 1)", "P001"),
    "bounds of others": (
        "dp_covariance('t', features := ['a', 'b'], lower := [0], upper := [1], epsilon := 1)",
        "P035",
    ),
    "ddof": ("dp_covariance('t', features := ['a', 'b'], lower := 0, upper := 1, epsilon := 1, ddof := 2)", "P005"),
    "ddof as truth": (
        "dp_covariance('t', features := ['a'], lower := 0, upper := 1, epsilon := 1, ddof := true)",
        "P005",
    ),
    "a text": ("dp_covariance('cells', features := ['f'], lower := 0, upper := 1, epsilon := 1)", "S003"),
    "no such column": ("dp_covariance('t', features := ['a', 'z'], lower := 0, upper := 1, epsilon := 1)", "S002"),
    "a column twice": ("dp_covariance('t', features := ['a', 'a'], lower := 0, upper := 1, epsilon := 1)", "P044"),
    "the unit's column": (
        "dp_covariance('t', features := ['a', 'person'], lower := 0, upper := 1, epsilon := 1, "
        "privacy_unit := 'person', max_rows_per_unit := 1)",
        "P011",
    ),
    "little epsilon": ("dp_covariance('t', features := ['a'], lower := 0, upper := 1, epsilon := 1e-9)", "P038"),
    "little epsilon, normal": (
        "dp_covariance('t', features := ['a'], lower := 0, upper := 1, epsilon := 1e-9, delta := 1e-12)",
        "P038",
    ),
    "delta": ("dp_covariance('t', features := ['a'], lower := 0, upper := 1, epsilon := 1, delta := 1)", "P027"),
    "products that are no doubles": (
        "dp_covariance('t', features := ['a'], lower := 0, upper := 1e155, epsilon := 1)",
        "P036",
    ),
    "products that are almost no doubles": (
        "dp_correlation('t', features := ['a', 'b'], lower := -1e101, upper := 0, epsilon := 1, delta := 1e-6)",
        "P036",
    ),
    "list of unknown length": ("dp_covariance('lists', features := 'x', lower := 0, upper := 1, epsilon := 1)", "S006"),
}


@cases("case", REFUSED, quick=9)
def test_a_refused_call_charges_nothing(con: Any, case: str) -> None:
    call, code = REFUSED[case]
    before = con.execute("SELECT count(*) FROM dp_ledger()").fetchall()
    with pytest.raises(duckdb.Error, match=f"DPSQL-{code}"):
        con.execute(f"FROM {call}").fetchall()
    assert con.execute("SELECT count(*) FROM dp_ledger()").fetchall() == before


def test_one_event_and_a_replay(con: Any) -> None:
    call = f"SELECT * FROM dp_correlation('t', features := ['a', 'b', 'c'], {BOUNDS}, epsilon := 1, delta := 1e-6"
    before = len(con.execute("FROM dp_ledger()").fetchall())
    first = con.execute(f"{call}, dataset := 'd', release := 'r')").fetchall()
    assert con.execute(f"{call}, dataset := 'd', release := 'r')").fetchall() == first
    [event] = values(con, "SELECT event FROM dp_ledger() WHERE kind = 'release' AND dataset = 'd'")
    assert '"mechanism":"gaussian_dp"' in event.replace(" ", "")
    assert con.execute(f"{call}, dataset := 'd')").fetchall() != first
    assert len(con.execute("FROM dp_ledger()").fetchall()) > before
    assert con.execute("SELECT epsilon_spent FROM dp_budget() WHERE dataset = 'd'").fetchall() == [(2,)]


def test_an_estimate_is_the_noise_of_a_call(con: Any) -> None:
    call = "dp_estimate('dp_correlation', n_features := 2, n_rows := 1000, epsilon := 1, delta := 1e-6)"
    found = dict(con.execute(f"SELECT quantity, value FROM {call}").fetchall())
    assert found["moment_std_error"] == pytest.approx(8.9622, abs=1e-3)  # sqrt(4.5) / 0.236704
    assert found["covariance_std_error"] == pytest.approx(found["moment_std_error"] / 1000)


def test_the_matrix_of_a_release(con: Any) -> None:
    ctx = dpsql.Context(con)
    given = {"features": ["a", "b", "c"], "lower": -2, "upper": 2, "epsilon": 100, "delta": 1e-6}
    release = ctx.dp_covariance("t", **given)
    matrix = release.matrix()
    assert matrix.shape == (3, 3)
    assert (matrix == matrix.T).all()
    assert matrix[np.triu_indices(3)].tolist() == release.value.column("value").to_pylist()
    assert np.linalg.eigvalsh(matrix).min() >= -1e-12
    assert release.matrix("upper")[0, 1] == release.value.column("upper")[1].as_py()
    related = ctx.dp_correlation("t", **given)
    assert np.diagonal(related.matrix()).tolist() == [1, 1, 1]
    assert related.matrix()[np.triu_indices(3, 1)].tolist() == related.value.column("value").to_pylist()
    with pytest.raises(AttributeError, match="no matrix"):
        ctx.dp_bounds("t", target="a", epsilon=1).matrix()


def test_the_owner_states_bounds(tmp_path: Any) -> None:
    with dpsql.connect(tmp_path / "d.duckdb") as con:
        con.execute("CREATE TABLE t AS SELECT random() AS a, random() AS b, i AS u FROM range(100) AS r(i)")
        con.execute(
            "SELECT dp_protect('t', epsilon := 3, privacy_unit := 'u', max_rows_per_unit := 2, lower := 0, upper := 1)"
        )
        rows = con.execute("FROM dp_covariance('t', features := ['a', 'b'], epsilon := 1)").fetchall()
        assert len(rows) == 3
        with pytest.raises(duckdb.Error, match="DPSQL-B001"):
            con.execute("FROM dp_covariance('t', features := ['a', 'b'], epsilon := 2.5)").fetchall()
