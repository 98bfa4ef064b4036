"""exact_xty: the same integers on every layout, engine, thread count and row order, and as a slow reference."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from exact_reference import ONE, coded, cross_products, exact, exact_rows, literal, load, load_arrow, quantised
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsql
from support.cases import cases

SQL = Path(__file__).resolve().parents[2] / "sql" / "exact"
INF = math.inf
NAN = math.nan
AWKWARD = [None, NAN, INF, -INF, 0.0, -0.0, 1.0, 0.5, 1e308, -1e308, 5e-324, 1 / 3, 2.0**-21, 0.75 + 2.0**-22]


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    opened = dpsql.connect()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def bare() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection as the plain command line has it: the SQL files read, and no Python function."""
    opened = duckdb.connect()
    for name in ("fixed_point.sql", "xty.sql"):
        opened.execute((SQL / name).read_text(encoding="utf-8"))
    yield opened
    opened.close()


def random_rows(seed: int, count: int, width: int) -> tuple[list[list[Any]], list[Any]]:
    draw = random.Random(seed)

    def value() -> Any:
        return draw.choice(AWKWARD) if draw.random() < 0.2 else draw.uniform(-3, 3)

    return [[value() for _ in range(width)] for _ in range(count)], [value() for _ in range(count)]


def load_layouts(con: Any, features: list[list[Any]], target: list[Any]) -> None:
    width = len(features[0]) if features else 3
    columns = list(zip(*features, strict=True)) if features else [()] * width
    wide = {f"f{j}": ("DOUBLE", column) for j, column in enumerate(columns)}
    y = {"y": ("DOUBLE", target)}
    load(con, "wide", {**wide, **y})
    for name, kind in (("doubles", f"DOUBLE[{width}]"), ("lists", "DOUBLE[]")):
        load(con, name, {"x": (kind, features), **y})
    cells = [(i, f"f{j}", v, target[i]) for i, row in enumerate(features) for j, v in enumerate(row)]
    kinds = {"doc": "BIGINT", "token": "VARCHAR", "value": "DOUBLE", "y": "DOUBLE"}
    load(con, "long", {name: (kind, [cell[p] for cell in cells]) for p, (name, kind) in enumerate(kinds.items())})


def all_layouts(con: Any, width: int, bounds: dict[str, Any]) -> dict[str, list[int]]:
    b = {"target": "y", **bounds}
    names = [f"f{j}" for j in range(width)]
    return {
        "wide": exact(con, "wide", **b),
        "wide, named": exact(con, "wide", features=names, **b),
        "array": exact(con, "doubles", features="x", **b),
        "list, n_features": exact(con, "lists", features="x", n_features=width, **b),
        "list, names": exact(con, "lists", features="x", names=names, **b),
        "long": exact(con, "long", features="token", value="value", row_id="doc", names=names, **b),
    }


@pytest.mark.parametrize("count", [0, 1, 2, 300])
def test_layouts_agree_with_each_other_and_the_reference(con: Any, bare: Any, count: int) -> None:
    features, target = random_rows(count, count, 3)
    load_layouts(con, features, target)
    bounds = {"lower": -1, "upper": 2.5, "target_lower": -2, "target_upper": 2}
    expected = cross_products(
        [(row, quantised(y, -2.0, 2.0)) for row, y in zip(features, target, strict=True)], 3, (-1.0, 2.5)
    )
    assert all_layouts(con, 3, bounds) == dict.fromkeys(all_layouts(con, 3, bounds), expected)
    macro = "exact_xty(COLUMNS(* EXCLUDE y), y, -1, 2.5, -2, 2)"
    assert list(con.execute(f"SELECT {macro} FROM wide").fetchall()[0]) == expected
    bare.register("arrow_wide", con.sql("FROM wide").to_arrow_table())
    assert list(bare.execute(f"SELECT {macro} FROM arrow_wide").fetchall()[0]) == expected


@settings(max_examples=40)
@given(
    rows=st.lists(
        st.tuples(
            st.lists(st.none() | st.floats(width=64) | st.sampled_from(AWKWARD), min_size=2, max_size=2),
            st.none() | st.floats(-2, 2) | st.sampled_from(AWKWARD),
        ),
        max_size=6,
    ),
    lower=st.floats(-1e6, 1e6),
    width=st.floats(1e-6, 1e6),
)
def test_layouts_agree_on_any_doubles(rows: list[Any], lower: float, width: float) -> None:
    con = _shared()
    features, target = [row[0] for row in rows], [row[1] for row in rows]
    table = pa.table(
        {
            "f0": pa.array([row[0] for row in features], pa.float64()),
            "f1": pa.array([row[1] for row in features], pa.float64()),
            "y": pa.array(target, pa.float64()),
        }
    )
    load_arrow(con, "any_wide", table)
    con.execute("CREATE OR REPLACE TABLE any_list AS SELECT [f0, f1] AS x, y FROM any_wide")
    con.execute(
        "CREATE OR REPLACE TABLE any_long AS SELECT row_number() OVER () AS doc, y, "
        "unnest(['f0', 'f1']) AS token, unnest([f0, f1]) AS value FROM any_wide"
    )
    upper = lower + width
    b = {"target": "y", "lower": lower, "upper": upper, "target_lower": -1, "target_upper": 1}
    expected = cross_products(
        [(row, quantised(y, -1.0, 1.0)) for row, y in zip(features, target, strict=True)], 2, (lower, upper)
    )
    assert exact(con, "any_wide", **b) == expected
    assert exact(con, "any_list", features="x", n_features=2, **b) == expected
    assert exact(con, "any_long", features="token", value="value", row_id="doc", names=["f0", "f1"], **b) == expected
    macro = f"exact_xty(COLUMNS(* EXCLUDE y), y, {literal(lower)}, {literal(upper)}, -1, 1)"
    assert list(con.execute(f"SELECT {macro} FROM any_wide").fetchall()[0]) == expected


_kept: list[Any] = []


def _shared() -> Any:
    if not _kept:
        _kept.append(dpsql.connect())
    return _kept[0]


def test_the_awkward_values_one_by_one(con: Any, bare: Any) -> None:
    for value in AWKWARD:
        load(con, "one", {"a": ("DOUBLE", [value]), "y": ("DOUBLE", [1.0])})
        expected = quantised(value, 0.0, 1.0) * ONE
        assert exact(con, "one", target="y", lower=0, upper=1, target_lower=-1, target_upper=1) == [expected], value
        assert bare.execute(f"SELECT exact_xty({literal(value)}, 1, 0, 1, -1, 1)").fetchall() == [(expected,)], value
    assert quantised(None, 0, 1) == quantised(NAN, 0, 1) == 0 == quantised(0.5, 0, 1)
    assert quantised(INF, 0, 1) == quantised(7, 0, 1) == ONE == -quantised(-INF, 0, 1)


def test_an_empty_table_gives_zeros(con: Any, bare: Any) -> None:
    load_layouts(con, [], [])
    b = {"lower": 0, "upper": 1, "target_lower": 0, "target_upper": 1}
    assert set(map(tuple, all_layouts(con, 3, b).values())) == {(0, 0, 0)}
    assert bare.execute("SELECT exact_xty(a, a, 0, 1, 0, 1) FROM (SELECT 1 AS a WHERE false)").fetchall() == [(0,)]


INTEGERS = ["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT"]
TYPES = [*INTEGERS, "UHUGEINT", "BOOLEAN", "FLOAT", "DOUBLE", "DECIMAL(4,1)", "DECIMAL(9,3)", "DECIMAL(18,3)"]


@cases("kind", [*TYPES, "DECIMAL(38,10)"])
def test_every_numeric_type(con: Any, bare: Any, kind: str) -> None:
    values: list[Any] = [None, 0, 1, 5, 100]
    if kind == "BOOLEAN":
        values = [None, False, True, True, False]
    elif kind.startswith("DECIMAL"):
        values = [None, Decimal("0.1"), Decimal("-7.3"), Decimal("12.5"), Decimal("99.9")]
    elif kind in ("FLOAT", "DOUBLE"):
        values = [None, 0.5, -0.25, 7.75, 1000.0]
    target = [1.0, -1.0, 0.5, 0.25, 1.0]
    load(con, "typed", {"a": (kind, values), "y": ("DOUBLE", target)})
    con.execute("CREATE OR REPLACE TABLE typed_list AS SELECT [a, a] AS x, y FROM typed")
    con.execute("CREATE OR REPLACE TABLE typed_array AS SELECT array_value(a, a) AS x, y FROM typed")
    con.execute("CREATE OR REPLACE TABLE typed_long AS SELECT rowid AS doc, 'a' AS token, a AS value, y FROM typed")
    b = {"target": "y", "lower": -10, "upper": 90, "target_lower": -1, "target_upper": 1}
    [expected] = cross_products(
        [([v], quantised(y, -1, 1)) for v, y in zip(values, target, strict=True)], 1, (-10.0, 90.0)
    )
    assert exact(con, "typed", features=["a"], **b) == [expected]
    assert exact(con, "typed_list", features="x", n_features=2, **b) == [expected] * 2
    assert exact(con, "typed_array", features="x", **b) == [expected] * 2
    assert exact(con, "typed_long", features="token", value="value", row_id="doc", names=["a"], **b) == [expected]
    assert bare.execute(
        "SELECT exact_xty(a, y, -10, 90, -1, 1) FROM (VALUES "
        + ", ".join(f"({literal_of(v, kind)}, {literal(y)})" for v, y in zip(values, target, strict=True))
        + ") AS t(a, y)"
    ).fetchall() == [(expected,)]


def literal_of(value: Any, kind: str) -> str:
    return f"CAST({literal(value)} AS {kind})"


@cases(
    ("kind", "values"),
    [
        ("HUGEINT", [2**127 - 1, -(2**127) + 1, 2**64 + 1, 2**53 + 1, -(2**100) - 12345, 3 * 2**62 + 1]),
        ("UHUGEINT", [2**127 - 1, 2**126 + 1, 2**64 + 1, 2**53 + 1, 0, 7]),
        ("BIGINT", [2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 3, 0, 7]),
        ("UBIGINT", [2**64 - 1, 2**63 + 1025, 2**53 + 1, 0, 7, 9]),
        ("DECIMAL(38,5)", ["99999999999999999999999999999.12345", "9007199254740993.5", "-123456789.54321", "0", "1"]),
        ("DECIMAL(18,3)", ["999999999999999.999", "9007199254740.993", "-123456789.543", "0", "1", "2"]),
    ],
)  # fmt: skip
def test_kernel_and_sql_cast_wide_numbers_alike(con: Any, kind: str, values: list[Any]) -> None:
    """Beyond 2**53 a cast to double rounds: the kernel must round as DuckDB does."""
    rows = ", ".join(f"('{value}'::{kind}, {i % 2})" for i, value in enumerate(values))
    con.execute(f"CREATE OR REPLACE TABLE wide_numbers AS FROM (VALUES {rows}) AS t(a, y)")
    for upper in (2.0**53, 2.0**64, 2.0**101, 2.0**128, 1e6, 1.0000000001e29):
        b = {"target": "y", "lower": -upper, "upper": upper, "target_lower": 0, "target_upper": 1}
        macro = f"SELECT exact_xty(a, y, {literal(-upper)}, {literal(upper)}, 0, 1) FROM wide_numbers"
        assert exact(con, "wide_numbers", **b) == list(con.execute(macro).fetchall()[0]), upper


def test_bounds_per_feature(con: Any, bare: Any) -> None:
    features, target = random_rows(5, 50, 3)
    load_layouts(con, features, target)
    pairs = [(-1.0, 1.0), (0.0, 3.0), (-2.0, 0.25)]
    bounds = {
        "lower": [low for low, _ in pairs],
        "upper": [high for _, high in pairs],
        "target_lower": -3,
        "target_upper": 3,
    }
    expected = cross_products(
        [(row, quantised(y, -3.0, 3.0)) for row, y in zip(features, target, strict=True)], 3, pairs
    )
    got = all_layouts(con, 3, bounds)
    assert got == dict.fromkeys(got, expected)
    one_sided = all_layouts(con, 3, {**bounds, "upper": 4})
    mixed = cross_products(
        [(row, quantised(y, -3.0, 3.0)) for row, y in zip(features, target, strict=True)],
        3,
        [(low, 4.0) for low, _ in pairs],
    )
    assert one_sided == dict.fromkeys(one_sided, mixed)


def test_ragged_lists(con: Any) -> None:
    """A shorter list is neutral beyond its end, a longer one is cut, NULL and NULL elements are neutral."""
    vectors: list[Any] = [[1.0], [0.0, 1.0, 0.25, 9.0, 9.0], None, [None, 1.0, NAN], [], [1.0, 1.0, 1.0]]
    target = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    load(con, "ragged", {"x": ("DOUBLE[]", vectors), "y": ("DOUBLE", target)})
    b = {"target": "y", "lower": 0, "upper": 1, "target_lower": 0, "target_upper": 1}
    rows = [((vector or [])[:3], quantised(y, 0.0, 1.0)) for vector, y in zip(vectors, target, strict=True)]
    expected = cross_products(rows, 3, (0.0, 1.0))
    assert exact(con, "ragged", features="x", n_features=3, **b) == expected
    assert exact_rows(con, "ragged", features="x", names=["p", "q", "r"], **b) == list(
        zip(["p", "q", "r"], expected, strict=True)
    )
    load(con, "floats", {"x": ("FLOAT[3]", [None, [1.0, None, 0.5]]), "y": ("DOUBLE", [1.0, 1.0])})
    assert exact(con, "floats", features="x", **b) == cross_products([([1.0, None, 0.5], ONE)], 3, (0.0, 1.0))


def test_features_are_called_as_documented(con: Any) -> None:
    con.execute("CREATE OR REPLACE TABLE named AS SELECT [1, 2]::FLOAT[2] AS x, 1 AS y, 2.0 AS \"Odd 'name\", 'z' AS s")
    b = {"target": "y", "lower": 0, "upper": 1, "target_lower": 0, "target_upper": 1}
    assert [row[0] for row in exact_rows(con, "named", features="x", **b)] == ["x[1]", "x[2]"]
    assert [row[0] for row in exact_rows(con, "named", **b)] == ["Odd 'name"]
    assert [row[0] for row in exact_rows(con, "named", features=["odd 'NAME"], **b)] == ["odd 'NAME"]


def test_coded_targets(con: Any) -> None:
    values = [1.0, 0.0, 1.0, 0.75, 0.25]
    for kind, target, levels in (
        ("VARCHAR", ["a", "b", None, "other", "b"], ["b", "a"]),
        ("ENUM('a', 'b')", ["a", "b", None, "a", "b"], ["a", "b"]),
        ("BOOLEAN", [True, False, None, True, False], [False, True]),
        ("INTEGER", [1, 2, None, 3, 1], [1, 2]),
        ("DECIMAL(5,2)", [0.1, 0.25, None, 3, 0.1], [0.1, 0.25]),
    ):
        load(con, "labels", {"a": ("DOUBLE", values), "y": (kind, target)})
        expected = cross_products([([v], coded(y, levels)) for v, y in zip(values, target, strict=True)], 1, (0.0, 1.0))
        assert exact(con, "labels", target="y", lower=0, upper=1, target_levels=levels) == expected, kind
    load(con, "labels", {"a": ("DOUBLE", values), "y": ("BOOLEAN", [True, False, None, True, False])})
    expected = cross_products([([1.0], ONE), ([0.0], -ONE), ([0.75], ONE), ([0.25], -ONE)], 1, (0.0, 1.0))
    assert exact(con, "labels", target="y", lower=0, upper=1) == expected, "booleans need no levels"


def table_of(rows: int) -> str:
    return (
        "SELECT i, ((i * 7919) % 1009) / 1009.0 AS a, ((i * 104729) % 997) / 997.0 AS b, "
        "CASE WHEN i % 13 = 0 THEN NULL ELSE (i % 5) / 4.0 END AS c, (i * i) % 2 = 1 AS y "
        f"FROM range({rows}) AS r(i)"
    )


@pytest.mark.parametrize("rows", [2047, 2048, 2049, 5000])
def test_chunk_boundaries_threads_and_row_order(con: Any, rows: int) -> None:
    con.execute(f"CREATE OR REPLACE TABLE chunks AS {table_of(rows)}")
    con.execute("CREATE OR REPLACE TABLE shuffled AS FROM chunks ORDER BY hash(i)")
    b = {"target": "y", "lower": 0, "upper": 1}
    expected = list(
        con.execute(
            "SELECT exact_xty(COLUMNS(['a', 'b', 'c']), CASE WHEN y THEN 1 ELSE -1 END, 0, 1, -1, 1) FROM chunks"
        ).fetchall()[0]
    )
    python = cross_products(
        [(row[:3], ONE if row[3] else -ONE) for row in con.execute("SELECT a, b, c, y FROM chunks").fetchall()],
        3,
        (0.0, 1.0),
    )
    assert expected == python
    for name in ("chunks", "shuffled"):
        con.execute(f"CREATE OR REPLACE TABLE {name}_list AS SELECT i, [a, b, c] AS x, y FROM {name}")
        con.execute(
            f"CREATE OR REPLACE TABLE {name}_long AS SELECT i, y, unnest(['a', 'b', 'c']) AS t, "
            f"unnest([a, b, c]) AS v FROM {name}"
        )
        for threads in (1, 2, 4):
            con.execute(f"SET threads = {threads}")
            assert exact(con, name, features=["a", "b", "c"], **b) == expected
            assert exact(con, f"{name}_list", features="x", n_features=3, **b) == expected
            long = {"features": "t", "value": "v", "row_id": "i", "names": ["a", "b", "c"]}
            assert exact(con, f"{name}_long", **long, **b) == expected
    con.execute("RESET threads")


def test_a_constant_table_is_not_folded_to_one_row(con: Any) -> None:
    con.execute("CREATE OR REPLACE TABLE constant AS SELECT 1.0 AS a, true AS y FROM range(5000)")
    assert exact(con, "constant", target="y", lower=0, upper=1) == [5000 * ONE * ONE]
    con.execute("CREATE OR REPLACE VIEW constants AS SELECT 1.0 AS a, true AS y FROM range(5000)")
    assert exact(con, "constants", target="y", lower=0, upper=1) == [5000 * ONE * ONE]


@cases(
    "setting",
    [
        "default_order = 'DESC'",
        "default_null_order = 'nulls_first'",
        "arrow_large_buffer_size = true",
        "arrow_output_list_view = true",
        "produce_arrow_string_view = true",
        "preserve_insertion_order = false",
        "integer_division = true",
        "default_collation = 'nocase'",
        "scalar_subquery_error_on_multiple_rows = false",
    ],
)
def test_the_callers_settings_change_nothing(setting: str) -> None:
    """A list in descending order would give each feature another one's sum."""
    con = dpsql.connect()
    try:
        con.execute(f"CREATE TABLE t AS {table_of(3000)}")
        con.execute("CREATE TABLE l AS SELECT i, [a, b, c] AS x, CASE WHEN y THEN 'yes' ELSE 'no' END AS y FROM t")
        con.execute("CREATE TABLE d AS SELECT i, y, unnest(['a', 'b', 'c']) AS t, unnest([a, b, c]) AS v FROM t")
        calls = (
            ("t", {"features": ["a", "b", "c"]}),
            ("l", {"features": "x", "n_features": 3, "target_levels": ["no", "yes"]}),
            ("d", {"features": "t", "value": "v", "row_id": "i", "names": ["a", "b", "c"]}),
        )
        before = [exact(con, name, target="y", lower=0, upper=1, **more) for name, more in calls]
        con.execute(f"SET {setting}")
        assert [exact(con, name, target="y", lower=0, upper=1, **more) for name, more in calls] == before
        assert before[0] == before[1] == before[2]
    finally:
        con.close()


def test_disabled_optimizer_changes_nothing() -> None:
    con = dpsql.connect()
    try:
        con.execute(f"CREATE TABLE t AS {table_of(5000)}")
        b = {"features": ["a", "b", "c"], "target": "y", "lower": 0, "upper": 1}
        before = exact(con, "t", **b)
        con.execute("PRAGMA disable_optimizer")
        assert exact(con, "t", **b) == before
    finally:
        con.close()


def test_macros_of_the_same_names_do_not_stand_in(con: Any) -> None:
    """A TEMP macro called sum or dpsql_release would otherwise be called in the place of ours."""
    opened = dpsql.connect()
    try:
        opened.execute(f"CREATE TABLE t AS {table_of(100)}")
        b = {"features": ["a", "b", "c"], "target": "y", "lower": 0, "upper": 1}
        before = exact(opened, "t", **b)
        names = [
            "sum",
            "max",
            "greatest",
            "least",
            "hash",
            "list",
            "dpsql_gate",
            "dpsql_collect",
            "dpsql_exact",
            "dpsql_sampling_key",
            "exact_fixed_point",
        ]
        for name in names:
            arguments = "a, b, c" if name.startswith(("dpsql", "exact")) else "a"
            opened.execute(f"CREATE TEMP MACRO {name}_(x) AS 42")
            opened.execute(f"CREATE OR REPLACE TEMP MACRO {name}({arguments}) AS 42")
        assert exact(opened, "t", **b) == before
        released = opened.execute(
            "SELECT dp_sis([a, b], y, n_features := 2, k := 2, epsilon := 1, lower := 0, upper := 1) FROM t"
        )
        assert {row["feature"] for row in released.fetchall()[0][0]} == {"x[1]", "x[2]"}
    finally:
        opened.close()


def test_many_features_as_array(con: Any) -> None:
    width = 22283
    con.execute(
        f"CREATE OR REPLACE TABLE genes AS SELECT list_transform(range({width}), lambda j: ((j * 31 + i * 17) % 97) / 97.0)"
        f"::FLOAT[{width}] AS x, i % 2 = 0 AS y FROM range(60) AS r(i)"
    )
    rows = con.execute("SELECT x, y FROM genes").fetchall()
    expected = cross_products(
        [([row[0][j] for j in (0, 5, width - 1)], ONE if row[1] else -ONE) for row in rows], 3, (0.0, 1.0)
    )
    got = exact_rows(con, "genes", target="y", features="x", lower=0, upper=1)
    assert len(got) == width
    assert [got[j] for j in (0, 5, width - 1)] == [
        (f"x[{j + 1}]", value) for j, value in zip((0, 5, width - 1), expected, strict=True)
    ]
    one = con.execute(
        "SELECT * FROM dp_sis('genes', target := 'y', features := 'x', k := 5, epsilon := 1, lower := 0, upper := 1)"
    ).fetchall()
    assert [row[0] for row in one] == [1, 2, 3, 4, 5]
    everything = con.execute(
        f"SELECT count(DISTINCT feature), max(rank) FROM dp_sis('genes', target := 'y', features := 'x', k := {width}, "
        "epsilon := 1, lower := 0, upper := 1)"
    ).fetchall()
    assert everything == [(width, width)], "k = d selects every feature"


def test_thousands_of_columns(con: Any) -> None:
    import numpy as np

    width = 3000
    values = np.random.default_rng(3).random((50, width))
    target = np.arange(50) % 2
    columns: dict[str, Any] = {f"c{j}": values[:, j] for j in range(width)}
    load_arrow(con, "columns", pa.table({**columns, "y": target}))
    b = {"target": "y", "lower": 0, "upper": 1, "target_lower": 0, "target_upper": 1}
    got = exact_rows(con, "columns", **b)
    assert [row[0] for row in got] == list(columns)
    quantum = np.floor((values - 0.5) * (2.0 * ONE) + 0.5).astype(np.int64)
    assert [row[1] for row in got] == (quantum * (2 * target - 1)[:, None] * ONE).sum(axis=0).tolist()
