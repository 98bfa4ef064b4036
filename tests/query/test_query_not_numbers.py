"""Queries whose plans hold what is not a number, which DuckDB 2.0 does not write as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import dpsql
from dpsql.engines.duckdb.lineage import bound
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
