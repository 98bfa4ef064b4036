"""What was judged is remembered in one state of the catalog: rows decide nothing of it, and every change is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.installation import session_of
from dpsql.engines.duckdb.lineage.sources import CatalogState
from support.cases import cases
from support.sessions import ledger_of

ASKED = (
    "FROM dp_count('v', epsilon := 0.1)",
    "FROM dp_query('SELECT count(*) AS n FROM v', epsilon := 0.1, fresh := true)",
)
# Two views of one plan where the hidden value equals the literal: what makes them, and what stands for it in each.
GUESS = "00000000001001"
TOP = f"(SELECT lpad(count(*)::VARCHAR, {len(GUESS)}, '0') FROM people)"
HIDES: dict[str, tuple[str, str, str]] = {
    "a variable": (f"SET VARIABLE s = {TOP}", f"'{GUESS}'", "getvariable('s')"),
    "a setting": ("SET VARIABLE s = 1", "'v'", "current_setting('schema')"),
    "a macro": (f"SET VARIABLE s = {TOP}; CREATE OR REPLACE MACRO m() AS getvariable('s')", "m()", "m()"),
    "a type": (
        "CREATE TYPE made AS ENUM (SELECT lpad(id::VARCHAR, 14, '0') FROM people)",
        f"'{GUESS}'",
        "NULL::made::VARCHAR",
    ),
}


def stage(extra: bool, *, sealed: bool = True) -> Any:
    con = dpsql.connect(":memory:")
    session_of(con).sources.state.sealed = sealed
    con.execute("CREATE TABLE people AS SELECT range AS id, range % 10 AS age FROM range(1000)")
    con.execute(f"CREATE MACRO m() AS '{GUESS}'")
    if extra:
        con.execute("INSERT INTO people VALUES (-1, 77)")
    con.execute("SELECT dp_protect('people', epsilon := 1000)").fetchall()
    return con


def outcomes(con: Any) -> list[str]:
    found = []
    for statement in ASKED:
        before = sum(row.releases for row in ledger_of(con).budgets())
        try:
            con.execute(statement).fetchall()
            found.append("answered")
        except duckdb.Error as error:
            assert sum(row.releases for row in ledger_of(con).budgets()) == before
            found.append(str(error).partition("DPSQL-")[2][:4])
    return found


@pytest.mark.long
@cases("sealed", [True, False])
@cases(("kind", "replaces"), [*((kind, "the view") for kind in HIDES), ("a macro", "the macro alone")])
def test_whether_a_text_is_refused_does_not_follow_from_rows(kind: str, replaces: str, *, sealed: bool) -> None:
    makes, before, after = HIDES[kind]
    found = {}
    for extra in (False, True):
        con = stage(extra, sealed=sealed)
        con.execute(f"CREATE OR REPLACE VIEW v AS SELECT id, {before} AS x FROM people")
        for _ in range(4):
            assert outcomes(con) == ["answered"] * len(ASKED)
        con.execute(makes)
        if replaces == "the view":
            con.execute(f"CREATE OR REPLACE VIEW v AS SELECT id, {after} AS x FROM people")
        found[extra] = [outcomes(con) for _ in range(3)]
        con.close()
    assert found[True] == found[False]
    assert all(one.startswith("S04") for run in found[True] for one in run)


# What anybody may do to a catalog; each must be another state than before it.
CHANGES: dict[str, Callable[[Any], object]] = {
    "a view": lambda con: con.execute("CREATE OR REPLACE VIEW v AS FROM people"),
    "a macro": lambda con: con.execute("CREATE OR REPLACE MACRO m() AS 7"),
    "a temporary macro": lambda con: con.execute("CREATE TEMP MACRO m2() AS 7"),
    "a macro that is dropped": lambda con: con.execute("DROP MACRO m"),
    "a type": lambda con: con.execute("CREATE TYPE made AS ENUM ('a')"),
    "a table": lambda con: con.execute("CREATE TABLE other (i INTEGER)"),
    "a table that is altered": lambda con: con.execute("ALTER TABLE people ADD COLUMN more INTEGER"),
    "a view that is renamed": lambda con: con.execute("ALTER VIEW v RENAME TO v2"),
    "a schema": lambda con: con.execute("CREATE SCHEMA s"),
    "a database": lambda con: con.execute("ATTACH ':memory:' AS other"),
    "a frame": lambda con: con.register("frame", con.sql("SELECT 1 AS x").to_arrow_table()),
    "a function": lambda con: con.create_function("mine", lambda x: x, ["DOUBLE"], "DOUBLE"),
    "an overload": lambda con: con.create_function("hash", lambda x: x, ["DOUBLE"], "DOUBLE"),
    "a function that is removed": lambda con: con.remove_function("known"),
}


def now(con: Any) -> int | None:
    return session_of(con).sources.catalog().state


@cases("change", CHANGES, quick=1)
def test_every_change_is_another_state(change: str) -> None:
    con = stage(False)
    con.create_function("known", lambda x: x, ["DOUBLE"], "DOUBLE")
    con.execute("CREATE VIEW v AS FROM people")
    outcomes(con)
    before = now(con)
    assert before is not None
    CHANGES[change](con)
    after = now(con)
    assert after is not None
    assert after > before
    con.close()


def test_nothing_is_remembered_where_a_caller_runs_statements() -> None:
    con = stage(False, sealed=False)
    assert now(con) is None
    con.execute("CREATE VIEW v AS SELECT id, m() AS x FROM people")
    for number in range(4):  # a table that is made changes the catalog before the first row
        con.execute(f"CREATE TABLE answer{number} AS {ASKED[0]}")
    con.close()


@pytest.mark.long
def test_a_transaction_that_is_rolled_back_leaves_nothing_remembered() -> None:
    con = stage(False)
    con.execute("CREATE OR REPLACE MACRO m() AS getvariable('s'); SET VARIABLE s = 'a'")
    con.execute("CREATE VIEW v AS SELECT id, m() AS x FROM people")
    con.begin()
    con.execute("CREATE OR REPLACE MACRO m() AS 'a'")
    for _ in range(4):
        con.execute(ASKED[0]).fetchall()
    con.rollback()
    for _ in range(3):
        assert outcomes(con) == ["S041"] * len(ASKED)
    con.close()


@pytest.mark.long
def test_a_statement_that_was_prepared_before_a_change_is_judged_again() -> None:
    con = stage(False)
    con.execute("CREATE VIEW v AS SELECT id, m() AS x FROM people")
    for _ in range(4):
        outcomes(con)
    con.execute(f"PREPARE asked AS {ASKED[0]}")
    con.execute("EXECUTE asked").fetchall()
    con.create_function("hash", lambda x: x, ["DOUBLE"], "DOUBLE")
    with pytest.raises(duckdb.Error, match=r"DPSQL-(S051|I006)"):
        con.execute("EXECUTE asked").fetchall()
    con.close()


def test_a_state_counts_once_it_was_seen_in_two_transactions() -> None:
    state = CatalogState(lambda: None)
    state.judged("a", 5, 1)
    assert not state.is_judged("a", 5)
    state.judged("a", 5, 1)
    assert not state.is_judged("a", 5)
    state.judged("a", 5, 2)
    assert state.is_judged("a", 5)
    assert not state.is_judged("b", 5)
    assert not state.is_judged("a", 6)
    assert not state.is_judged("a", None)
    state.judged("b", None, 3)
    assert not state.is_judged("b", 5)
    state.judged("b", 6, 4)
    state.judged("b", 6, 5)
    assert state.is_judged("b", 6)
    assert not state.is_judged("a", 6)
