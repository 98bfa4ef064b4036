"""`condition`: which rows a call sees, whatever the rows hold, and what is refused before anything is charged."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.engines.duckdb.steps import step
from support.broken import conditions as broken
from support.broken.planting import planted
from support.cases import cases
from support.sessions import ledger_of

ROWS = (
    "SELECT i AS id, i // 3 AS person, (i * 37) % 90 AS age, 1::DOUBLE AS one, i % 2 = 0 AS f, "
    "CASE WHEN i % 5 = 0 THEN 'a' WHEN i % 7 > 0 THEN (i % 60)::VARCHAR END AS t, DATE '2020-01-01' + i::INTEGER AS day, "
    "CASE WHEN i % 3 = 0 THEN 9223372036854775807 ELSE i END AS big, {'city': 'c' || i % 2} AS place, "
    "CASE WHEN i % 11 = 0 THEN '2020-02-30' ELSE '2020-02-0' || (1 + i % 9) END AS typed FROM range(900) AS r(i)"
)
# Each raises for some rows; beside it what is true of the rows that neither raise nor fail.
RAISING = {
    "CAST(t AS INTEGER) >= 20": "TRY_CAST(t AS INTEGER) >= 20",
    "CAST(t AS INTEGER) >= 20 AND CAST(t AS INTEGER) < 50": "TRY_CAST(t AS INTEGER) BETWEEN 20 AND 49",
    "CAST(t AS INTEGER) IN (1, 2, 3, 4, 5, 6, 7, 8, 9)": "TRY_CAST(t AS INTEGER) BETWEEN 1 AND 9",
    "CAST(t AS INTEGER) + CAST(t AS INTEGER) > 40": "TRY_CAST(t AS INTEGER) > 20",
    "CAST(t AS INTEGER) IS NULL": "t IS NULL",
    "NOT CAST(t AS INTEGER) > 20": "TRY_CAST(t AS INTEGER) <= 20",
    "big * 2 > 100": "big BETWEEN 51 AND 1000",
    "10 // (age % 4) = 5": "age % 4 = 2",
    "sqrt(age - 30) < 2 AND f": "age BETWEEN 30 AND 33 AND f",
    "CAST(typed AS DATE) > DATE '2020-02-05'": "TRY_CAST(typed AS DATE) > DATE '2020-02-05'",
    "strptime(typed, '%Y-%m-%d') < TIMESTAMP '2020-02-04'": "TRY_CAST(typed AS DATE) < DATE '2020-02-04'",
    "typed": "false",
    "age": "age <> 0",
}


# What does not fit the types of the columns, by code.
MISFITS = {
    "P080] condition: > does not fit what it is given there: column 't' is VARCHAR": "f AND t > 3",
    "P080] condition: date_diff .* column 'age' is BIGINT": "date_diff('day', day, age) > 3",
    "P080] condition makes a BOOLEAN of a DATE, which is not allowed: column .day. is a DATE": "day",
    "P080] condition: dayofweek does not take .INTERVAL.": "dayofweek(day - day::TIMESTAMP) > 3",
    "P080] condition: a field does not fit what it is given there: column 'place' is STRUCT": "place.nope = 1",
    "P082] condition: date_diff takes a literal as its date part of a TIME": "date_diff('day', day::TIMESTAMP::TIME, "
    "CAST('11:00' AS TIME)) = 0",
    "P082] condition: date_part takes a literal as its date part of a DATE": "date_part(t, day) = 0",
    "P082] condition: strptime takes a literal as its format": "strptime(t, '%Z') IS NULL",
    "P082] condition: regexp_matches takes a literal": "regexp_matches(t, t)",
    "P082] condition holds the timestamp": "day < TIMESTAMP '2020-01-01 00:00:00+02'",
    "P070] condition casts to TIMESTAMPTZ": "day::TIMESTAMPTZ IS NULL",
}


@pytest.fixture
def con() -> Any:
    with dpsql.connect() as opened:
        opened.execute(f"CREATE TABLE people AS {ROWS}")
        yield opened


def summed(con: Any, source: str, condition: str | None, more: str = "") -> int:
    """Return the exact sum of the column `one`, that is, the number of rows that a call sees."""
    given = "" if condition is None else f", condition := '{condition.replace(chr(39), chr(39) * 2)}'"
    rows = con.execute(
        f"SELECT * FROM exact_xty('{source}', target := 'one', target_lower := 0, target_upper := 1, features := ['id'], "
        f"lower := -2, upper := -1{more}{given})"
    ).fetchall()
    return int(rows[0][1]) >> 40  # each row is clipped to one and one


def refuse(con: Any, code: str, condition: str, more: str = "target := 'age'") -> str:
    with pytest.raises(duckdb.Error, match=f"DPSQL-{code}") as refused:
        con.execute(
            f"FROM dp_quantile('people', {more}, epsilon := 1, lower := 0, upper := 100, condition := $1)", [condition]
        )
    return str(refused.value)


@cases("condition", RAISING, quick=1)
def test_a_row_whose_condition_raises_does_not_count(con: Any, condition: str) -> None:
    expected = con.execute(f"SELECT count(*) FROM people WHERE {RAISING[condition]}").fetchone()[0]
    assert summed(con, "people", condition) == expected


def test_most_rows_may_raise(con: Any) -> None:
    assert summed(con, "people", "CAST(place.city AS INTEGER) = 1 OR CAST(typed AS INTEGER) = 1") == 0


@pytest.mark.long
def test_a_foreign_row_moves_no_other_row(con: Any) -> None:
    """Whatever it holds: a verdict is of one row."""
    seen = {
        condition: summed(con, "people", condition, ", privacy_unit := 'person', max_rows_per_unit := 9")
        for condition in RAISING
    }
    con.execute(
        "INSERT INTO people SELECT id, NULL, age, 'nan'::DOUBLE, NULL, '1e999', 'infinity', big, {'city': 'c9'}, 'x' "
        "FROM people LIMIT 1"
    )
    for condition, before in seen.items():
        assert summed(con, "people", condition, ", privacy_unit := 'person', max_rows_per_unit := 9") == before


@cases("by", ["pyarrow", "duckdb"], quick=1, alone=True)
@cases("values", [[1.0, 2.0, math.nan, 3.0], [5.0, 5.0, math.nan, 5.0]], ids=["range", "constant"])
def test_statistics_of_a_file_decide_nothing(con: Any, tmp_path: Path, by: str, values: list[float]) -> None:
    """NaN is larger than every number, and no minimum or maximum in a file knows of it."""
    given = pa.table({"id": [1] * 4, "one": [1.0] * 4, "x": values, "y": pa.array(values, pa.float32())})
    path = tmp_path / "given.parquet"
    if by == "pyarrow":
        pq.write_table(given, path)
    else:
        with duckdb.connect() as plain:
            plain.register("given", given)
            plain.execute(f"COPY given TO '{path}'")
    con.execute(f"CREATE VIEW file AS FROM '{path}'")
    for column in ("x", "y"):
        assert summed(con, "file", f"{column} >= 18") == 1
        assert summed(con, "file", f"isnan({column})") == 1
        assert summed(con, "file", f"NOT {column} < 4") == sum(not value < 4 for value in values)
        assert summed(con, "file", f"{column} BETWEEN 1 AND 10") == 3
        assert summed(con, "file", f"{column} <> 5 AND {column} <> 6") == sum(value != 5 for value in values)


def test_a_collation_is_the_callers(con: Any) -> None:
    con.execute("CREATE TABLE spelt (id BIGINT, one DOUBLE, t VARCHAR COLLATE NOCASE)")
    con.execute("INSERT INTO spelt VALUES (1, 1, 'a'), (2, 1, 'A'), (3, 1, 'b'), (4, 1, NULL)")
    for condition in ("t = 'a'", "t IN ('a', 'c')", "t LIKE 'a'", "t < 'B'"):
        expected = con.execute(f"SELECT count(*) FROM spelt WHERE {condition}").fetchone()[0]
        assert summed(con, "spelt", condition) == expected
    assert summed(con, "spelt", "t = 'a'") == 2


def test_no_macro_of_the_caller_stands_in(con: Any) -> None:
    condition = (
        "lower(t) <> 'a' AND age + 1 > 20 AND NOT t LIKE '1%' AND place.city = 'c1' AND coalesce(day > '2020-02-01', f)"
    )
    before = summed(con, "people", condition)
    assert 0 < before < 900
    for macro in (
        "lower(a)",
        '"+"(a, b)',
        '"~~"(a, b)',
        "list_transform(a, b)",
        "list_extract(a, b)",
        "list_value(a)",
        "struct_extract(a, b)",
        "struct_pack(a)",
        "error(a)",
    ):
        for scope in ("", "TEMP "):
            con.execute(f"CREATE OR REPLACE {scope}MACRO {macro} AS NULL")
    con.execute("CREATE TYPE mood AS ENUM ('a')")
    assert summed(con, "people", condition) == before


def test_it_comes_before_ids_and_caps(con: Any) -> None:
    con.execute(
        "CREATE TABLE visits AS SELECT i AS id, i % 10 AS person, 1::DOUBLE AS one, i < 20 AS early FROM range(100) AS r(i)"
    )
    cap = ", privacy_unit := 'person', max_rows_per_unit := 3"
    assert summed(con, "visits", None, cap) == 30
    assert summed(con, "visits", "early", cap) == 20
    assert summed(con, "visits", "person >= 5 AND NOT early", cap) == 15


@cases(
    "condition",
    [
        "nope >= 18",
        "nope LIKE 'a%'",
        "year(nope) = 2020 AND nope > '2020-01-01'",
        "nope.city = 'x' OR f",
        "rowid < 5",
        '"rowid" < 5',
        "file_row_number > 2",
        "filename = 'x'",
        "people.age > 3",
        "elsewhere = 1",
        "nope IS NULL",
    ],
    quick=1,
    alone=True,
)
@cases("layout", ["column", "wide", "array", "long"])
def test_a_column_is_one_of_the_source(con: Any, condition: str, layout: str) -> None:
    """Also beside a relation of the caller that has the column, and under a call that reads every column."""
    con.execute("CREATE TABLE other AS SELECT 1 AS elsewhere")
    con.execute("SET VARIABLE nope = 5")
    call = {
        "column": "dp_quantile('people', target := 'age', epsilon := 1, lower := 0, upper := 9",
        "wide": "dp_kendall('people', target := 'age', k := 1, epsilon := 1",
        "array": "dp_kendall('vectors', target := 'f', features := 'x', n_features := 2, k := 1, epsilon := 1",
        "long": "dp_kendall('people', target := 'f', features := 't', row_id := 'id', names := ['1', '2'], k := 1, epsilon := 1",
    }[layout]
    con.execute("CREATE VIEW vectors AS SELECT *, [age, id] AS x FROM people")
    with pytest.raises(duckdb.Error, match="DPSQL-S002"):
        con.execute(f"SELECT (SELECT count(*) FROM {call}, condition := $1)) FROM other", [condition])
    assert ledger_of(con).entries() == []


def test_a_column_may_be_called_as_a_pseudo_column(con: Any) -> None:
    con.execute("CREATE VIEW named AS SELECT id, one, age AS rowid FROM people")
    assert summed(con, "named", "rowid < 18") == con.execute("SELECT count(*) FROM people WHERE age < 18").fetchone()[0]


def test_refusals_charge_nothing(con: Any) -> None:
    con.execute("SELECT dp_protect('people', epsilon := 2)")
    before = con.execute("FROM dp_budget()").fetchall()
    for condition in ("age > (SELECT avg(age) FROM people)", "random() < 0.5", "row_number() OVER () < 5", "1 = 1"):
        assert "900" not in refuse(con, "P070", condition)
    refuse(con, "S002", "nope > 3")
    refuse(con, "P013", "")
    for code, condition in MISFITS.items():
        assert "900" not in refuse(con, code, condition)
    assert con.execute("FROM dp_budget()").fetchall() == before


def test_it_changes_neither_budget_nor_price(con: Any) -> None:
    con.execute("SELECT dp_protect('people', epsilon := 2)")
    call = "FROM dp_quantile('people', target := 'age', epsilon := 0.75, lower := 0, upper := 100{})"
    con.execute(call.format(", condition := 'age < 18'")).fetchall()
    con.execute(call.format("")).fetchall()
    spent = [(row.dataset, row.epsilon) for row in ledger_of(con).entries() if row.kind == "release"]
    assert spent == [("people", 0.75), ("people", 0.75)]
    with pytest.raises(duckdb.Error, match="DPSQL-B001"):
        con.execute(call.format(", condition := 'age < 0'"))


def test_a_named_release_is_of_one_condition(con: Any) -> None:
    call = "FROM dp_quantile('people', target := 'age', epsilon := 1, lower := 0, upper := 100, release := 'q'{})"
    first = con.execute(call.format(", condition := 'age < 18'")).fetchall()
    assert con.execute(call.format(", condition := ' age < 18 '")).fetchall() == first
    for other in ("", ", condition := 'age < 19'"):
        with pytest.raises(duckdb.Error, match="DPSQL-P014"):
            con.execute(call.format(other))


def test_a_call_without_it_is_recorded_as_before() -> None:
    with dpsql.Context() as ctx:
        ctx.connection.execute(f"CREATE TABLE people AS {ROWS}")
        plans = [
            ctx._session.planner.plan(
                "dp_quantile", "people", {"target": "age", "epsilon": 1, "lower": 0, "upper": 9, **more}
            )
            for more in ({}, {"condition": " age > 1 "})
        ]
        assert "condition" not in plans[0].public_arguments
        assert plans[1].public_arguments == {**plans[0].public_arguments, "condition": "age > 1"}


def test_explain_shows_it() -> None:
    with dpsql.Context() as ctx:
        ctx.connection.execute(f"CREATE TABLE people AS {ROWS}")
        shown = ctx.explain(
            "FROM dp_quantile('people', target := 'age', epsilon := 1, lower := 0, upper := 9, "
            "condition := 'age >= 18 and t like ''a%'' and -age < 3')"
        )
        assert "-- of the rows that meet: age >= 18 and t like 'a%' and -age < 3\n" in shown
        assert "lambda dpsql_one: TRY(" in shown
        assert ctx.dp_quantile(
            pa.table({"age": [1.0] + [50.0, 51.0] * 5}), target="age", epsilon=1e6, lower=0, upper=100, condition="age > 20"
        ).value["value"][0].as_py() > 40  # fmt: skip


@cases("fault", broken.FAULTS, quick=1)
def test_planted_faults_are_caught(con: Any, tmp_path: Path, fault: str) -> None:
    with planted((step, "filtered_rows", broken.FAULTS[fault])), pytest.raises((AssertionError, duckdb.Error)):
        for condition in RAISING:
            test_a_row_whose_condition_raises_does_not_count(con, condition)
        test_statistics_of_a_file_decide_nothing(con, tmp_path, "pyarrow", [1.0, 2.0, math.nan, 3.0])


GROUPED = (
    "dp_count('t', epsilon := 1",
    "dp_avg('t', target := 'x', lower := 0, upper := 1, epsilon := 1",
    "dp_histogram('t', target := 'x', bins := [0, 1, 2], epsilon := 1",
    "dp_quantile('t', target := 'x', lower := 0, upper := 1, epsilon := 1, by := 'g', keys := ['a']",
)


@cases("call", GROUPED, quick=1)
def test_a_column_that_the_source_lacks_is_refused_in_groups(call: str) -> None:
    """It would be NULL for every row, and a release of no rows would be charged."""
    with dpsql.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT 1.0 AS x, 'a' AS g")
        with pytest.raises(duckdb.Error, match="DPSQL-S002"):
            connection.execute(f"SELECT * FROM {call}, condition := 'nope > 3')").fetchall()
        assert connection.execute("SELECT count(*) FROM dp_ledger()").fetchall() == [(0,)]
