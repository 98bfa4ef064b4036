"""Functions and queries have the same public keys: from declarations, types, bounds, conditions and periods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from support.cases import cases
from support.sql_text import literal

TABLE = """
CREATE TYPE mood AS ENUM ('low', 'high');
CREATE TABLE {0} AS SELECT i % 50 AS pid, DATE '2025-12-20' + (i % 90)::INTEGER AS day, i % 20 AS age, ['A', 'B'][1 + i % 2] AS ward,
  (['low', 'high'][1 + i % 2])::mood AS mood, i % 3 = 0 AS well, i % 7 AS days FROM range(3000) AS r(i);
"""
PROTECT = (
    "SELECT dp_protect('{}', epsilon := 1e11, delta := 0.01, privacy_unit := 'pid', max_rows_per_unit := 60, keys := {{ward: ['A', 'B']}}, "
    "lower := {{age: 0, days: 0}}, upper := {{age: 24, days: 6}}, enum_labels := {}{})"
)


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    """Visits, the same ones with months, and the same ones whose labels of an ENUM are private."""
    with dpsql.connect() as opened:
        opened.execute(
            TABLE.format("visits") + "CREATE TABLE monthly AS FROM visits; CREATE TABLE labelled AS FROM visits;"
        )
        months = ", period := 'month', period_of := 'day', epsilon_total := 1e11, delta_total := 0.1"
        for name, labels, more in (
            ("visits", "public", ""),
            ("monthly", "public", months),
            ("labelled", "private", ""),
        ):
            opened.execute(PROTECT.format(name, literal(labels), more))
        yield opened


# Columns of the groups, what is counted, and the number of groups.
GROUPS = [
    ("age", "", 26),
    ("age, ward", "", 52),
    ("age", "age BETWEEN 3 AND 5", 3),
    ("age", "age IN (3, 7) AND days > 1", 2),
    ("age, mood", "age >= 22", 9),
    ("day", "day >= DATE '2026-01-01' AND day < '2026-01-08'", 7),
    ("day, well", "date_trunc('month', day) = DATE '2026-02-01'", 84),
    ("mood, ward", "", 6),
    ("ward", "ward <> 'A'", 1),
    ("ward, well", "lower(ward) = 'a' AND well IS NOT NULL", 2),
    ("age, ward", "age > 20 AND ward IN ('B')", 4),
    ("mood", "mood = 'low'", 1),
    ("day", "day >= DATE '2026-01-01' AND day < '2026-01-15' AND dayofweek(day) = 1", 2),
]


@cases(("by", "where", "count"), GROUPS)
def test_a_function_has_the_groups_of_a_query(con: Any, by: str, where: str, count: int) -> None:
    """Those of an ENUM or a BOOLEAN have one more for NULL in both."""
    condition = f", condition := {literal(where)}" if where else ""
    names = [name.strip() for name in by.split(",")]
    asked = f"SELECT {by}, count(*) AS n FROM visits{' WHERE ' + where if where else ''} GROUP BY ALL ORDER BY ALL"
    query = con.execute(
        f"SELECT * REPLACE (round(n) AS n) FROM dp_query({literal(asked)}, epsilon := 1e8) ORDER BY ALL"
    ).fetchall()
    counted = con.execute(
        f"SELECT {by}, round(value) AS n FROM dp_count('visits', by := {names}, epsilon := 1e8{condition}) ORDER BY ALL"
    ).fetchall()
    assert counted == query
    assert len(counted) == count


CALLS = """
dp_avg('visits', target := 'days', by := 'age', epsilon := 1) 26
dp_sum('visits', target := 'days', by := ['age', 'ward'], epsilon := 1) 52
dp_quantile('visits', target := 'days', quantiles := [0.5], by := 'age', epsilon := 1) 26
dp_count('visits', by := ['age', 'ward'], keys := {age: [1, 2]}, epsilon := 1) 4
dp_count('monthly', by := 'day', during := '2026-02', epsilon := 1) 28
dp_count('monthly', by := 'day', condition := 'day < DATE ''2026-02-03''', during := ['2026-02'], epsilon := 1) 2
dp_crosstab('visits', rows := 'mood', columns := 'well', margins := false, epsilon := 1) 9
dp_crosstab('visits', rows := 'ward', columns := 'age', margins := false, epsilon := 1) 52
dp_count('labelled', by := ['age', 'ward'], epsilon := 1) 52
dp_count('visits', by := 'ward', condition := 'ward = ''C''', epsilon := 1) 2
dp_count('visits', by := 'ward', condition := 'ward <> ''A'' AND ward <> ''B''', epsilon := 1) 2
dp_count('visits', by := ['age', 'ward'], condition := 'ward <> ''A'' AND ward <> ''B'' AND age < 2', epsilon := 1) 6
dp_count('visits', by := 'ward', condition := 'ward <> ''A''', keys := ['A', 'B'], epsilon := 1) 2
dp_crosstab('visits', rows := 'ward', columns := 'mood', condition := 'ward <> ''A''', margins := false, epsilon := 1) 3
"""


@cases(("call", "count"), [line.rsplit(" ", 1) for line in CALLS.strip().splitlines()], quick=4)
def test_calls_with_keys_that_follow(con: Any, call: str, count: str) -> None:
    assert len(con.execute(f"FROM {call}").fetchall()) == int(count)


def test_a_synthetic_table_has_the_labels_that_an_owner_declared(con: Any) -> None:
    call = "FROM dp_synthetic('{}', columns := ['mood', 'days'], epsilon := 5, delta := 1e-6, release := '{}')"
    con.execute(call.format("visits", "made")).fetchall()
    rows = con.execute("SELECT DISTINCT mood FROM dp_synthetic_rows('made', n := 500)").fetchall()
    assert {value for (value,) in rows} == {"low", "high"}
    with pytest.raises(duckdb.Error, match="DPSQL-P065"):
        con.execute(call.format("labelled", "not made"))


@cases(
    "call",
    [
        "dp_count('visits', by := 'day', epsilon := 1)",
        "dp_count('visits', by := ['age', 'day'], epsilon := 1)",
        "dp_count('labelled', by := 'mood', epsilon := 1)",
        "dp_crosstab('labelled', rows := 'mood', columns := 'well', epsilon := 1)",
        "dp_count('visits', by := 'day', condition := 'day >= DATE ''2026-01-01''', epsilon := 1)",
        "dp_count('visits', by := 'pid', epsilon := 1)",
        "dp_count('visits', by := 'age', condition := 'age >= 50 AND age <= 40', epsilon := 1)",
        "dp_count('visits', by := 'day', condition := 'day >= DATE ''2026-05-01'' AND day < DATE ''2026-04-01''', epsilon := 1)",
    ],
)
def test_keys_that_rows_alone_decide_are_missing(con: Any, call: str) -> None:
    spent = con.execute("SELECT dataset, epsilon_spent FROM dp_budget()").fetchall()
    with pytest.raises(duckdb.Error, match="DPSQL-P065"):
        con.execute(f"FROM {call}")
    assert con.execute("SELECT dataset, epsilon_spent FROM dp_budget()").fetchall() == spent


def test_an_owner_declares_that_a_key_may_be_missing() -> None:
    """NULL is one of the public keys then, and no level of a target; without it the answer is of the other rows."""
    with dpsql.connect() as con:
        con.execute("CREATE TABLE rides AS SELECT ['A', 'B', NULL][1 + i % 3] AS ward, i % 7 AS x FROM range(300) r(i)")
        con.execute("CREATE TABLE trips AS FROM rides")
        for name, keys in (("rides", "'A', NULL, 'B'"), ("trips", "'A', 'B'")):
            con.execute(f"SELECT dp_protect('{name}', epsilon := 1e9, keys := {{ward: [{keys}]}}, replace := true)")
        query = (
            "FROM dp_query('SELECT ward, count(*) AS n FROM {} GROUP BY ROLLUP (ward) ORDER BY ALL', epsilon := 1e4)"
        )
        wards = [("A", 100), ("B", 100)]
        assert con.execute(query.format("rides")).fetchall() == [*wards, (None, 100), (None, 300)]
        assert con.execute(query.format("trips")).fetchall() == [*wards, (None, 200)]
        counts = con.execute("SELECT ward, value FROM dp_count('rides', by := 'ward', epsilon := 1e4)").fetchall()
        assert counts == [("A", 100), (None, 100), ("B", 100)]
        target = "FROM dp_sis('rides', 'ward', k := 1, features := ['x'], lower := [0], upper := [6], epsilon := 1)"
        assert [row[1] for row in con.execute(target).fetchall()] == ["x"]
        con.execute("CREATE TABLE other AS SELECT 1 AS pid, 'A' AS bed")
        for keys in ("[NULL]", "[NULL, NULL, 'A']", "['A', 'A']"):
            with pytest.raises(duckdb.Error, match="DPSQL-P063"):
                con.execute(f"SELECT dp_protect('other', epsilon := 1, keys := {{bed: {keys}}})")
