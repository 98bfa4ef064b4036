"""A generated column is computed when a row is read: its text and the plan that has it are judged, each by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.lineage import placing, refusals
from dpsql.engines.duckdb.lineage.closure import Closure
from dpsql.engines.duckdb.lineage.texts import UnreadableTextError, generated_columns
from support.cases import cases
from support.sessions import ledger_of

# What no row of a source may follow from, as an expression; whether the plan shows it, and it is not folded.
HIDDEN = {
    "CASE WHEN getvariable('top') > 150 THEN 100 ELSE 0 END": False,
    "length(current_setting('TimeZone'))": False,
    "length(current_schema())": False,
    "CAST(random() * 100 AS INTEGER)": True,
    "nextval('counter')": True,
    "age + CAST(hidden() AS INTEGER)": False,
    "CASE WHEN age > 3 THEN CAST(100 * random() AS INTEGER) ELSE length('a''b)') END": True,
}
QUERY = "FROM dp_query('SELECT avg({}) AS y FROM people', epsilon := 0.5, lower := {{y: 0}}, upper := {{y: 100}})"
ASKED = {
    "a function": "FROM dp_avg('people', target := 'y', lower := 0, upper := 100, epsilon := 0.5)",
    "plain SQL": QUERY.format("y"),
    "a view": "FROM dp_avg('seen', target := 'y', lower := 0, upper := 100, epsilon := 0.5)",
    "a view of a view": "FROM dp_avg('seen_again', target := 'y', lower := 0, upper := 100, epsilon := 0.5)",
    "plain SQL over a view": QUERY.format("y").replace("people", "seen"),
    "an aggregate": "SELECT dp_quantile(y, epsilon := 0.5, lower := 0, upper := 100, quantiles := [0.5], "
    "dataset := 'people') FROM people",
}


def stage(expression: str, rows: int = 20) -> Any:
    con = dpsql.connect(":memory:")
    con.execute("CREATE SEQUENCE counter; CREATE MACRO hidden() AS getvariable('top'); SET VARIABLE top = 200")
    con.execute(f"CREATE TABLE people (id BIGINT, age BIGINT, y INTEGER GENERATED ALWAYS AS ({expression}))")
    con.execute(f"INSERT INTO people SELECT range, range % 50 FROM range({rows})")
    con.execute("CREATE VIEW seen AS SELECT id, age, y FROM people; CREATE VIEW seen_again AS FROM seen")
    con.execute("SELECT dp_protect('people', epsilon := 100)").fetchall()
    return con


def refused(con: Any, statement: str) -> str:
    with pytest.raises(duckdb.Error) as caught:
        con.execute(statement).fetchall()
    assert all(row.releases == 0 for row in ledger_of(con).budgets())
    return str(caught.value)


@pytest.fixture(params=HIDDEN)
def hiding(request: pytest.FixtureRequest) -> Iterator[Any]:
    con = stage(request.param)
    yield con
    con.close()


@pytest.mark.long
def test_what_a_generated_column_hides(hiding: Any) -> None:
    for statement in ASKED.values():
        assert "DPSQL-S041" in refused(hiding, statement)
    # Whoever reads other columns of the table reads the text, too; no place of the statement tells which are read.
    assert "DPSQL-S041" in refused(hiding, "FROM dp_count('people', epsilon := 0.5)")


@cases("expression", HIDDEN, quick=1)
def test_the_judge_of_texts_alone(expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "refuse_functions", lambda source, names: None)
    con = stage(expression)
    for statement in ASKED.values():
        assert "DPSQL-S041" in refused(con, statement)
    con.close()


@cases("expression", [one for one, shown in HIDDEN.items() if shown], quick=1)
def test_the_judge_of_plans_alone(expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Closure, "_generated_in", lambda self, sql: ())
    con = stage(expression)
    for statement in ASKED.values():
        assert "DPSQL-S041" in refused(con, statement)
    con.close()


def test_without_both_judges_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted faults are faults: what each judge alone refuses, none refuses without them."""
    monkeypatch.setattr(Closure, "_generated_in", lambda self, sql: ())
    monkeypatch.setattr(refusals, "refuse_functions", lambda source, names: None)
    con = stage("CAST(random() * 100 AS INTEGER)")
    assert con.execute(ASKED["a function"]).fetchall()
    con.close()


@cases("expression", ["age * 2", "length(upper('a' || age))", "twice(age)", "age + year(DATE '2020-01-01')"], quick=1)
def test_what_a_generated_column_may_compute(expression: str) -> None:
    con = dpsql.connect(":memory:")
    con.execute("CREATE MACRO twice(x) AS 2 * x")
    con.execute(
        "CREATE TABLE people (id BIGINT DEFAULT CAST(random() * 100 AS BIGINT), age BIGINT, "
        f"seen TIMESTAMP DEFAULT now(), y INTEGER GENERATED ALWAYS AS ({expression}))"
    )
    con.execute("INSERT INTO people (age) SELECT range % 50 FROM range(20)")
    con.execute("SELECT dp_protect('people', epsilon := 100)").fetchall()
    for statement in (ASKED["a function"], ASKED["plain SQL"], ASKED["an aggregate"]):
        assert con.execute(statement).fetchall()
    con.close()


def test_a_table_of_every_kind_of_constraint() -> None:
    """Of what the text of a table has, generated columns alone are read: the rest was computed when a row was stored."""
    con = dpsql.connect(":memory:")
    con.execute("CREATE SEQUENCE counter")
    con.execute(
        "CREATE TABLE people (id BIGINT DEFAULT nextval('counter') PRIMARY KEY, y INTEGER CHECK (y < 1000), "
        "note VARCHAR DEFAULT 'GENERATED ALWAYS AS (random())', age BIGINT)"
    )
    con.execute(
        "CREATE INDEX by_age ON people ((age + 1)); COMMENT ON TABLE people IS 'GENERATED ALWAYS AS (random())'"
    )
    con.execute("INSERT INTO people (y, age) SELECT range, range % 50 FROM range(20)")
    con.execute("SELECT dp_protect('people', epsilon := 100)").fetchall()
    for statement in (ASKED["a function"], ASKED["plain SQL"], ASKED["an aggregate"]):
        assert con.execute(statement).fetchall()
    con.close()


def test_the_expressions_in_the_text_of_a_table() -> None:
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t (a INTEGER, \"b GENERATED ALWAYS AS (\" INTEGER, s VARCHAR DEFAULT 'GENERATED ALWAYS AS (''', "
        "c INTEGER GENERATED ALWAYS AS (a + length(')''(')), d VARCHAR GENERATED ALWAYS AS ('GENERATED ALWAYS AS (' || a), "
        "e INTEGER AS ((a + 1) * 2))"
    )
    [(sql,)] = con.execute("SELECT sql FROM duckdb_tables()").fetchall()
    found = generated_columns(sql)
    assert len(found) == 3
    names = [con.execute(f"SELECT {one} FROM (SELECT 1 AS a)").fetchall()[0][0] for one in found]
    assert names == [4, "GENERATED ALWAYS AS (1", 4]
    with pytest.raises(UnreadableTextError):
        generated_columns("CREATE TABLE t(a INTEGER GENERATED ALWAYS AS(random();")
    con.close()


def test_a_table_of_stored_columns_is_read_as_before() -> None:
    """No text is asked for where the plan shows every column as it was stored."""
    from dpsql.engines.duckdb.lineage import bound

    con = duckdb.connect()
    con.execute("CREATE TABLE plain (a INTEGER, b INTEGER); CREATE TABLE made (a INTEGER, b INTEGER AS (5))")
    shown = {}
    for name in ("plain", "made"):
        [(plan,)] = con.execute("SELECT json_serialize_plan(?)::VARCHAR", [f"FROM {name}"]).fetchall()
        node = bound.read(plan)
        assert node is not None
        shown[name] = placing.is_stored(node)
    assert shown == {"plain": True, "made": False}
    con.close()
