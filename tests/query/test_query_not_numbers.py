"""Queries whose plans hold what is not a number, which DuckDB 2.0 does not write as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import dpsql
from dpsql.engines.duckdb.lineage import bound
from support import BEFORE_2_0
from support.answers import differences, private
from support.cases import cases
from support.worlds import hospital


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        hospital(opened, people=60)
        yield opened


@cases(
    "value",
    ["cost % 7", "ln(cost + 1)", "sqrt(cost)", "log10(cost + 1)", "cost / 3 % 2", "pow(cost, 0.5)", "exp(-cost)"],
    quick=1,
)
def test_functions_that_may_give_no_number_are_answered(con: Any, value: str) -> None:
    sql = f"SELECT count(*) FROM visits WHERE {value} > 0.5"
    assert differences(con.execute(private(sql)).fetchall(), con.execute(sql).fetchall()) == []


@cases("value", ["CAST('nan' AS DOUBLE)", "CAST('-inf' AS DOUBLE)", "CAST('inf' AS FLOAT)"], quick=1)
def test_a_literal_that_is_no_number_is_read(con: Any, value: str) -> None:
    sql = f"SELECT count(*) FROM visits WHERE cost <> {value}"
    assert con.execute(private(sql)).fetchall() == con.execute(sql).fetchall()
    con.execute(f"CREATE OR REPLACE VIEW known AS SELECT * FROM visits WHERE cost <> {value}")
    assert con.execute(private("SELECT count(*) FROM known")).fetchall() == con.execute(sql).fetchall()


def test_words_within_a_text_are_left_alone(con: Any) -> None:
    """Only where JSON has a value: within a text every quote stands behind a backslash."""
    text = '"value":NAN,"value":NaN'
    [(plan,)] = con.execute("SELECT json_serialize_plan(?)::VARCHAR", [f"SELECT '{text}' AS x"]).fetchall()
    assert text in str(bound.read(plan))


COUNTS = (
    *(
        "count(x)",
        "count(x + 1)",
        "count(f)",
        "count(abs(x))",
        "count(x) FILTER (even)",
        "count(CASE WHEN even THEN x END)",
    ),
    *("count(DISTINCT x)", "count(DISTINCT f)", "count(DISTINCT x) FILTER (even)"),
    *(() if BEFORE_2_0 else ("approx_count_distinct(x)",)),  # which is 7 of 8 there
    *("regr_count(x, f)", "count_if(x > 3)", "count(*) FILTER (x IS NOT NULL)", "count(*) FILTER (x > 3)"),
    *("count(x), avg(x)", "count(x), count(*), sum(f)", "count(x), count(f)"),
)


@pytest.fixture(scope="module")
def measured() -> Iterator[Any]:
    """Floats of two sizes; of each ten one is NULL, one no number, and one infinite."""
    with dpsql.connect() as opened:
        opened.execute("""
            CREATE TABLE measured AS SELECT i AS who, i % 2 = 0 AS even, CAST(w AS DOUBLE) AS x, CAST(w AS FLOAT) AS f FROM
              (SELECT i, [NULL, 'nan', 'inf', '-0.0', '0.0', '1', '2', '3', '4', '5.5'][1 + i % 10] AS w FROM range(500) AS r(i));
            SELECT dp_protect('measured', epsilon := 1e11, privacy_unit := 'who', max_rows_per_unit := 1,
              lower := {x: 0, f: 0}, upper := {x: 6, f: 6})""")
        yield opened


@cases("count", COUNTS, quick=3)
def test_what_is_no_number_is_counted_as_in_sql(measured: Any, count: str) -> None:
    """Every count is DuckDB's; sums and averages are of numbers."""
    sql = f"SELECT {count} FROM measured"
    [found] = measured.execute(private(sql)).fetchall()
    [exact] = measured.execute(sql).fetchall()
    counts = [place for place, value in enumerate(exact) if isinstance(value, int)]
    assert counts
    assert [found[place] for place in counts] == [exact[place] for place in counts]
