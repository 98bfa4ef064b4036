"""dp_synthetic and dp_synthetic_rows through SQL: names and types, replay, engines, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import polars as pl
import pytest

import dpsql
import dpsql.polars
from support.cases import cases

TABLE = """CREATE TABLE t AS SELECT (i * 7) % 41 AS age, ((i * 53) % 97 / 4)::DECIMAL(6, 2) AS cost, i % 3 = 0 AS f,
  ['x', 'y', 'z'][1 + (i * 7) % 41 // 14] AS g, DATE '2024-01-01' + (i % 200)::INTEGER AS day,
  TIMESTAMP '2024-01-01 00:00:00' + to_hours(i % 999) AS "at", (i % 10)::FLOAT AS x, [i] AS list, i // 3 AS person,
  CASE WHEN i % 4 > 0 THEN i % 5 END AS n FROM range(3000) AS r(i)"""
PUBLIC = (
    "lower := {'age': 0, 'cost': 0, 'x': 0, 'n': 0, 'day': DATE '2024-01-01', 'at': TIMESTAMP '2024-01-01 00:00:00'}, "
    "upper := {'age': 40, 'cost': 25, 'x': 10, 'n': 4, 'day': DATE '2024-12-31', 'at': TIMESTAMP '2024-03-31 00:00:00'}, "
    "keys := {'g': ['x', 'y', 'z']}"
)
COLUMNS = "columns := ['age', 'cost', 'f', 'g', 'day', 'at', 'x', 'n']"


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    connection = dpsql.connect()
    connection.execute(TABLE)
    connection.execute(f"FROM dp_synthetic('t', {COLUMNS}, {PUBLIC}, epsilon := 1e4, delta := 1e-6, release := 'twin')")
    yield connection
    connection.close()


def rows(con: Any, sql: str) -> list[Any]:
    found: list[Any] = con.execute(sql).fetchall()
    return found


@pytest.mark.long
def test_names_types_and_counts(con: Any) -> None:
    types = "SELECT column_name, column_type FROM (DESCRIBE {})"
    assert rows(con, types.format("FROM dp_synthetic_rows('twin')")) == rows(
        con, types.format('SELECT age, cost, f, g, day, "at", x, n FROM t')
    )
    by = "SELECT g, f, n, count(*) FROM {} GROUP BY ALL ORDER BY ALL"
    twin, real = (rows(con, by.format(one)) for one in ("dp_synthetic_rows('twin')", "t"))
    assert {row[0] for row in twin} == {"x", "y", "z"}
    for column in ("g", "f", "n"):
        counts = f"SELECT {column}, count(*) FROM {{}} GROUP BY ALL ORDER BY ALL"
        for (key, one), (other, two) in zip(
            rows(con, counts.format("dp_synthetic_rows('twin')")), rows(con, counts.format("t")), strict=True
        ):
            assert key == other
            # Rounding in each cell of what a column depends on: at most 11 in the mean over 60 draws, deviating by 9.
            assert abs(one - two) <= 60
    assert abs(len(twin) - len(real)) < 12
    [(low, high, first, last)] = rows(
        con, "SELECT min(age), max(age), min(day), max(\"at\") FROM dp_synthetic_rows('twin')"
    )
    assert (low, high, str(first)) == (0, 40, "2024-01-01")
    assert str(last) <= "2024-03-31 00:00:00"


def test_rows_are_free_and_repeat(con: Any) -> None:
    before = rows(con, "SELECT releases FROM dp_budget()")
    first = rows(con, "FROM dp_synthetic_rows('twin', n := 100, seed := 7)")
    assert len(first) == 100
    assert first == rows(con, "FROM dp_synthetic_rows('twin', n := 100, seed := '7', dataset := 't')")
    assert first != rows(con, "FROM dp_synthetic_rows('twin', n := 100, seed := 8)")
    assert rows(con, "SELECT count(*) FROM dp_synthetic_rows('twin', n := 0)") == [(0,)]
    assert rows(con, "SELECT releases FROM dp_budget()") == before
    context = dpsql.Context(con)
    table = context.dp_synthetic_rows("twin", n=100, seed=7)
    assert [tuple(row.values()) for row in table.to_pylist()] == first
    report = context.release("twin")
    assert report.value.num_rows == 28
    assert report.noise["unit"] == "share of the rows"


@cases(
    ("call", "code"),
    [
        ("dp_synthetic_rows('nothing')", "P030"),
        ("dp_synthetic_rows('twin', n := -1)", "P050"),
        ("dp_synthetic_rows('twin', n := 1.5)", "P002"),
        ("dp_synthetic_rows('twin', seed := [1])", "P013"),
        ("dp_synthetic('t', columns := ['list'], epsilon := 1, delta := 1e-6)", "S003"),
        ("dp_synthetic('t', columns := ['nothing'], epsilon := 1, delta := 1e-6)", "S002"),
        ("dp_synthetic('t', columns := ['age', 'AGE'], epsilon := 1, delta := 1e-6)", "P044"),
        ("dp_synthetic('t', columns := [], epsilon := 1, delta := 1e-6)", "P0"),
        ("dp_synthetic('t', columns := ['g'], epsilon := 1, delta := 1e-6)", "P065"),
        ("dp_synthetic('t', columns := ['age'], epsilon := 1)", "P0"),
        ("dp_synthetic('t', columns := ['age'], target := 'g', epsilon := 1, delta := 1e-6)", "S002"),
        ("dp_synthetic('t', columns := ['age', 'n'], lower := {'n': 0}, upper := {'n': 1}, epsilon := 1, delta := 1e-6)", "P003"),
        ("dp_synthetic('t', columns := ['age'], keys := {'age': [1]}, epsilon := 1, delta := 1e-6)", "P066"),
        ("dp_synthetic('t', columns := ['age'], keys := [1], epsilon := 1, delta := 1e-6)", "P066"),
        ("dp_synthetic('t', columns := ['age'], epsilon := 1e-12, delta := 1e-300)", "P038"),
        ("dp_synthetic('t', columns := ['age'], bounds_share := 0.5, report_share := 0.5, epsilon := 1, delta := 1e-6)", "P045"),
        ("dp_synthetic('t', columns := ['age'], max_rows_per_unit := 2, epsilon := 1, delta := 1e-6)", "P009"),
        ("dp_synthetic('t', columns := ['g'], private_keys := true, epsilon := 1000, delta := 1e-6)", "P001"),
        ("dp_synthetic('t', columns := ['x'], lower := -1e300, upper := 1e300, epsilon := 1, delta := 1e-6)", "P036"),
    ],
quick=10)  # fmt: skip
def test_what_is_refused_charges_nothing(con: Any, call: str, code: str) -> None:
    before = rows(con, "SELECT releases, epsilon_spent FROM dp_budget()")
    with pytest.raises(duckdb.Error, match=f"DPSQL-{code}"):
        con.execute(f"FROM {call}")
    assert rows(con, "SELECT releases, epsilon_spent FROM dp_budget()") == before


def test_one_column_and_none_that_shows(con: Any) -> None:
    con.execute("CREATE OR REPLACE TABLE u AS SELECT NULL::DOUBLE AS a, 3 AS b, NULL::VARCHAR AS g FROM range(500)")
    more = "private_keys := true, epsilon := 10, delta := 1e-6, release := 'u'"
    assert len(rows(con, f"FROM dp_synthetic('u', {more})")) == 3
    found = {row[:3]: row[3] for row in rows(con, "SELECT a, b, g, count(*) FROM dp_synthetic_rows('u') GROUP BY ALL")}
    assert {row[0] for row in found} == {None}
    assert abs(found[None, 3, None] - 500) < 30  # noise beside it may look like a few rows
    assert rows(con, "FROM dp_synthetic('u', columns := 'b', epsilon := 10, delta := 1e-6, release := 'one')") == []
    assert abs(rows(con, "SELECT count(*) FROM dp_synthetic_rows('one') WHERE b = 3")[0][0] - 500) < 30


def test_without_a_report_nothing_is_said(con: Any) -> None:
    found = rows(con, f"FROM dp_synthetic('t', {COLUMNS}, {PUBLIC}, report_share := 0, epsilon := 1, delta := 1e-6)")
    assert {row[3:] for row in found} == {(None, None, None, None, "not measured")}


def test_owners_state_keys_and_bounds() -> None:
    with dpsql.connect() as con:
        con.execute(TABLE)
        con.execute(
            "SELECT dp_protect('t', epsilon := 10, delta := 1e-5, privacy_unit := 'person', max_rows_per_unit := 2, "
            "keys := {'g': ['x', 'y', 'z']}, lower := {'age': 0}, upper := {'age': 40})"
        )
        con.execute("FROM dp_synthetic('t', columns := ['age', 'g', 'f'], epsilon := 5, delta := 1e-6, release := 's')")
        assert abs(rows(con, "SELECT count(*) FROM dp_synthetic_rows('s')")[0][0] - 2000) < 100
        assert rows(con, "SELECT round(epsilon_spent, 9) FROM dp_budget()") == [(5,)]


@pytest.mark.long
@pytest.mark.parametrize("more", [{}, {"privacy_unit": "person", "max_rows_per_unit": 3}])
def test_on_polars(more: dict[str, Any]) -> None:
    with dpsql.Context() as context:
        context.connection.execute(TABLE)
        frame = pl.from_arrow(context.sql('SELECT age, cost, f, g, day, "at", x, n, person FROM t'))
        assert isinstance(frame, pl.DataFrame)
    given: dict[str, Any] = {
        "columns": ["age", "cost", "f", "g", "day", "at", "x", "n"],
        "private_keys": True,
        "epsilon": 1e2 if not more else 50,
        "delta": 1e-6,
        "release": "twin",
        **more,
    }
    with dpsql.polars.context({"t": frame.lazy()}) as context:
        report = context.dp_synthetic("t", dataset="frames", **given)
        assert report.value.num_rows == 28
        twin = context.dp_synthetic_rows("twin")
        assert twin.column_names == given["columns"]
        assert abs(twin.num_rows - 3000) < 60
        found = pl.DataFrame(twin).filter(pl.col("g").is_in(["x", "y", "z"])).group_by("g").len().sort("g")
        real = frame.group_by("g").len().sort("g")
        assert found["g"].to_list() == real["g"].to_list()
        assert (found["len"].cast(int) - real["len"].cast(int)).abs().max() < 60
