"""The same people get one budget: `dp_protect` warns of a second one, and no refusal offers the budget of others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from support.cases import cases
from support.sessions import ledger_of


@pytest.fixture
def con(tmp_path: Path) -> Any:
    connection = dpsql.connect(tmp_path / "clinic.duckdb")
    connection.execute(
        "CREATE TABLE visits AS SELECT i % 20 AS person, i % 7 AS days FROM range(60) AS r(i);"
        "CREATE TABLE stays AS SELECT i % 20 AS Person, i AS nr FROM range(60) AS r(i);"
        "CREATE TABLE scores AS SELECT i AS a, 'x' AS b FROM range(60) AS r(i);"
        "CREATE TABLE copied AS SELECT a AS A, b FROM scores;"
        "CREATE TABLE dates AS SELECT a::DATE AS a, b FROM (SELECT DATE '2026-01-01' AS a, 'x' AS b);"
        "CREATE TABLE loans AS SELECT 1 AS client, 2 AS nr"
    )
    connection.execute("SELECT dp_protect('visits', epsilon := 3, privacy_unit := 'person', max_rows_per_unit := 4)")
    connection.execute("SELECT dp_protect('scores', epsilon := 3)")
    return connection


def said(con: Any, statement: str) -> str:
    [(text,)] = con.execute(statement).fetchall()
    return str(text)


UNIT = "epsilon := 2, privacy_unit := 'person', max_rows_per_unit := 3"


@pytest.mark.long
@cases(
    ("statement", "warning"),
    [
        (f"dp_protect('stays', {UNIT})", "'visits' has the same privacy unit 'person'"),
        ("dp_protect('copied', epsilon := 1)", "'scores' has the same columns and types"),
        (
            "dp_protect('shop', epsilon := 1, max_rows_per_unit := 2, tables := {stays: 'person'})",
            "'visits' has the same",
        ),
        ("dp_protect('dates', epsilon := 1)", None),
        ("dp_protect('loans', epsilon := 1)", None),
        ("dp_protect('loans', epsilon := 1, privacy_unit := 'client', max_rows_per_unit := 2)", None),
        ("dp_protect('visits', epsilon := 4, replace := true)", None),
        (
            "dp_protect('shop', epsilon := 1, max_rows_per_unit := 2, tables := {visits: 'person', stays: 'person'}, "
            "merge := ['visits'])",
            None,
        ),
    ],
)
def test_a_second_budget_of_the_same_people_is_told(con: Any, statement: str, warning: str | None) -> None:
    text = said(con, f"SELECT {statement}")
    assert ("; warning: " in text) == (warning is not None)
    assert warning is None or warning in text
    assert con.execute("SELECT count(*) FROM dp_budget()").fetchone()[0] >= 2  # it was done as asked


@pytest.mark.long
@pytest.mark.parametrize(("table", "more", "base"), [("stays", UNIT, "visits"), ("copied", "epsilon := 1", "scores")])
def test_the_advice_makes_one_budget_of_two(con: Any, table: str, more: str, base: str) -> None:
    text = said(con, f"SELECT dp_protect('{table}', {more})")
    step = re.search(r"SELECT dp_derive\(.*\)$", text)
    assert step is not None
    assert step.group().startswith(f"SELECT dp_derive('{table}', '{base}', ")
    con.execute(step.group()).fetchall()
    con.execute(f"FROM dp_count('{table}', epsilon := 0.5)").fetchall()
    spent = dict(con.execute("SELECT dataset, epsilon_spent FROM dp_budget()").fetchall())
    assert (spent[base], spent[table]) == (0.5, 0)
    with pytest.raises(duckdb.Error, match="DPSQL-B005"):  # the budget that ended does not come back by itself
        con.execute(f"SELECT dp_protect('{table}', {more})")
    assert ledger_of(con).verify().ok


def test_a_budget_that_was_charged_does_not_end(con: Any) -> None:
    con.execute(f"SELECT dp_protect('stays', {UNIT})")
    con.execute("FROM dp_count('stays', epsilon := 0.5)").fetchall()
    with pytest.raises(duckdb.Error, match="DPSQL-B009"):
        con.execute("SELECT dp_derive('stays', 'visits', own_rows_only := true)")
    with pytest.raises(duckdb.Error, match="DPSQL-P061"):  # nor by a call that is refused
        con.execute("SELECT dp_derive('copied', 'scores')")


@cases(
    "statement",
    [
        "FROM dp_count('{file}', epsilon := 0.1)",
        "FROM dp_count('seen', epsilon := 0.1)",
        "FROM dp_query($$SELECT count(*) FROM seen$$, epsilon := 0.1)",
        "FROM dp_query($$SELECT count(*) FROM '{file}'$$, epsilon := 0.1)",
        "FROM dp_query($$SELECT count(*) FROM loans$$, epsilon := 0.1)",
        "FROM dp_count('loans', epsilon := 0.1)",
        "SELECT dp_count(days, epsilon := 0.1) FROM '{file}'",
        "SELECT dp_sis(days, days, k := 1, epsilon := 0.1) FROM '{file}'",
    ],
    quick=1,
    alone=True,
)
def test_no_refusal_names_a_budget_of_others(con: Any, tmp_path: Path, statement: str) -> None:
    file = tmp_path / "x.parquet"
    con.execute(f"COPY (SELECT 1 AS days) TO '{file}'")
    con.execute(f"CREATE VIEW seen AS FROM '{file}'")
    with pytest.raises(duckdb.Error) as refused:
        con.execute(statement.format(file=file)).fetchall()
    text = str(refused.value).split("\nLINE ")[0]
    assert "visits" not in text
    assert "scores" not in text


def test_the_statements_for_undeclared_tables_name_no_budget(con: Any) -> None:
    rows = con.execute("SELECT * FROM dp_unplaced()").fetchall()
    assert {row[0] for row in rows} == {"stays", "copied", "dates", "loans"}
    assert not [text for row in rows for text in row[1:] if "'visits'" in text or "'scores'" in text]
