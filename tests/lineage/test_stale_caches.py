"""What is remembered changes no outcome: a session that asked before answers, refuses and charges as a new one does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import dpsql
from dpsql.engines.duckdb.lineage.texts import relations
from dpsql.gateway.door import _ReadBefore
from dpsql.gateway.flight_session import Caller
from dpsql.gateway.flight_sql import KnownColumns
from support.cases import cases
from support.sessions import ledger_of, session_of

GUESS = "00000000001001"
TOP = f"(SELECT lpad(count(*)::VARCHAR, {len(GUESS)}, '0') FROM people)"
ASKED = (
    "FROM dp_query('SELECT count(*) AS n FROM v', epsilon := 0.1, estimate := true)",
    "FROM dp_count('v', epsilon := 0.1)",
    "FROM dp_query('SELECT count(*) AS n FROM v', epsilon := 0.1, fresh := true)",
    "FROM dp_query('SELECT * FROM lookup ORDER BY ALL', epsilon := 0.1)",
)


def memos() -> dict[str, Any]:
    """Return every function of dpsql that remembers its values, by its name."""
    return {
        f"{one.__module__}.{one.__qualname__}": one
        for name, module in list(sys.modules.items())
        if name.startswith("dpsql.")
        for one in vars(module).values()
        if hasattr(one, "cache_info") and str(getattr(one, "__module__", "")).startswith("dpsql.")
    }


def stage(extra: bool) -> Any:
    con = dpsql.connect(":memory:")
    con.execute("CREATE TABLE people AS SELECT range AS id, range % 10 AS age FROM range(1000)")
    con.execute("CREATE TABLE lookup AS SELECT range AS age, 'kind ' || range AS kind FROM range(10)")
    con.execute("CREATE SEQUENCE counter")
    con.execute(f"CREATE MACRO m() AS '{GUESS}'")
    if extra:
        con.execute("INSERT INTO people VALUES (-1, 77)")
    con.execute(f"SET VARIABLE s = {TOP}")
    con.execute("SELECT dp_protect('people', epsilon := 1000)").fetchall()
    con.execute("SELECT dp_public('lookup')").fetchall()
    con.execute("CREATE VIEW v AS SELECT id, m() AS x FROM people")
    return con


def outcomes(con: Any) -> list[object]:
    """Return how each statement ends: its code; or its columns, what it charged, and its rows where they are exact."""
    found: list[object] = []
    for statement in ASKED:
        before = sum(row.releases for row in ledger_of(con).budgets())
        exact = "estimate" in statement or "FROM lookup" in statement
        try:
            told = con.execute(statement)
            columns = [tuple(map(str, one[:2])) for one in told.description]
            rows = told.fetchall()
            charged = sum(row.releases for row in ledger_of(con).budgets()) - before
            found.append((columns, charged, rows if exact else len(rows)))
        except duckdb.Error as error:
            assert sum(row.releases for row in ledger_of(con).budgets()) == before
            found.append(str(error).partition("DPSQL-")[2][:4] or type(error).__name__)
    return found


def run(*statements: str) -> Callable[[Any], None]:
    def change(con: Any) -> None:
        for statement in statements:
            con.execute(statement).fetchall()

    return change


def rolled_back(con: Any) -> None:
    con.execute("CREATE OR REPLACE MACRO m() AS getvariable('s')")
    con.begin()
    con.execute(f"CREATE OR REPLACE MACRO m() AS '{GUESS}'")
    for statement in ASKED[1:3]:
        con.execute(statement).fetchall()
    con.rollback()


def spent(con: Any) -> None:
    [(used,)] = con.execute("SELECT epsilon_spent FROM dp_budget()").fetchall()
    con.execute(f"SELECT dp_protect('people', epsilon := {used} + 0.05, replace := true)").fetchall()


# What changes what a judgement, a price or a list of columns is about, with what the statements are then refused with.
CHANGES: dict[str, tuple[Callable[[Any], object], tuple[str, ...]]] = {
    "a variable": (run("CREATE OR REPLACE VIEW v AS SELECT id, getvariable('s') AS x FROM people"), ("S041",)),
    "a setting": (run("CREATE OR REPLACE VIEW v AS SELECT id, current_setting('schema') AS x FROM people"), ("S041",)),
    "a sequence": (run("CREATE OR REPLACE VIEW v AS SELECT id, nextval('counter') AS x FROM people"), ("S041",)),
    "a macro": (run("CREATE OR REPLACE MACRO m() AS getvariable('s')"), ("S041",)),
    "a temporary macro": (run("CREATE TEMP MACRO m() AS getvariable('s')"), ("S041",)),
    "a macro elsewhere": (
        run("CREATE SCHEMA other", "CREATE MACRO other.m() AS getvariable('s')", "SET search_path = 'main,other'"),
        ("S041",),
    ),
    "a type": (
        run(
            f"CREATE TYPE made AS ENUM (SELECT lpad(id::VARCHAR, {len(GUESS)}, '0') FROM people WHERE id >= 0)",
            "CREATE OR REPLACE VIEW v AS SELECT id, NULL::made::VARCHAR AS x FROM people",
        ),
        ("S04",),
    ),
    "a generated column": (
        run(
            "CREATE TABLE more (age BIGINT, more VARCHAR AS (getvariable('s')))",
            "SELECT dp_public('more')",
            "CREATE OR REPLACE VIEW v AS SELECT id, more AS x FROM people LEFT JOIN more USING (age)",
        ),
        ("S04", "S0"),
    ),
    "a transaction that is rolled back": (rolled_back, ("S041",)),
    "an overload": (lambda con: con.create_function("hash", lambda x: x, ["DOUBLE"], "DOUBLE"), ("S051",)),
    "a budget": (
        run(
            "SELECT dp_protect('people', epsilon := 1000, privacy_unit := 'id', max_rows_per_unit := 3, replace := true)"
        ),
        (),
    ),
    "a budget that is spent": (spent, ("B0",)),
    "a public table with other columns": (run("CREATE OR REPLACE TABLE lookup AS SELECT 1 AS age, 2 AS b"), ("B020",)),
    "a public table declared again": (
        run("CREATE OR REPLACE TABLE lookup AS SELECT 1 AS age, 2 AS b", "SELECT dp_public('lookup')"),
        (),
    ),
    "a budget of a public table": (run("SELECT dp_protect('lookup', epsilon := 1000)"), ("P1",)),
    "a protected table under a public name": (
        run("DROP TABLE lookup", "ALTER TABLE people RENAME TO lookup"),
        ("B0", "S016"),
    ),
    "rows of a public table": (run("INSERT INTO lookup VALUES (77, 'more')"), ()),
}


@pytest.mark.long
@cases("change", CHANGES)
def test_who_asked_before_is_told_what_a_new_session_is_told(change: str) -> None:
    changes, codes = CHANGES[change]
    found = {}
    for extra in (False, True):
        for warm in (False, True):
            if not warm:
                for memo in memos().values():
                    memo.cache_clear()
            con = stage(extra)
            for _ in range(3 * warm):
                before = outcomes(con)
                assert not any(isinstance(one, str) for one in before), before
            try:
                changes(con)
            except duckdb.Error as error:
                pytest.fail(f"the change itself failed: {error}")
            found[extra, warm] = [outcomes(con) for _ in range(2)]
            con.close()
    assert found[False, True] == found[False, False]
    assert found[True, True] == found[True, False]
    # The public table may hold another person's row by its new name: nothing else follows from rows.
    assert found[True, False] == found[False, False]
    told = [one for run_ in found[True, True] for one in run_ if isinstance(one, str)]
    assert bool(told) == bool(codes)
    assert all(one.startswith(codes) for one in told), told


def test_a_query_that_was_free_is_so_no_more_once_its_table_has_a_budget() -> None:
    """Nothing but the declarations has changed: text, plans and arguments are those of before."""
    con = stage(False)
    free = ASKED[-1]
    assert len(con.execute(free).fetchall()) == 10
    con.execute("SELECT dp_protect('lookup', epsilon := 1000)").fetchall()
    with pytest.raises(duckdb.Error, match="DPSQL-P1"):
        con.execute(free).fetchall()
    con.close()


PRIVATE = (
    "FROM dp_count('people', condition := 'age > 3 AND age < 30', epsilon := 0.1)",
    "FROM dp_avg('people', target := 'age', lower := 0, upper := 100, epsilon := 0.1)",
    "FROM dp_quantile('people', target := 'age', quantiles := 0.5, lower := 0, upper := 100, epsilon := 0.1)",
    "FROM dp_histogram('people', target := 'age', lower := 0, upper := 100, bins := 10, epsilon := 0.1)",
    "FROM dp_query('SELECT age % 2 = 0 AS even, count(*) AS n, sum(CASE WHEN age < 50 THEN age END) AS s "
    "FROM v WHERE age >= 0 GROUP BY ALL', epsilon := 0.5, delta := 1e-6, lower := {age: 0}, upper := {age: 100})",
)


@pytest.mark.long
def test_the_keys_of_memos_do_not_follow_from_rows() -> None:
    """Neighbours are asked the same questions: each memo is asked for as many keys, and finds as many of them.

    What was released is no row, and the memos of `released` are asked about it alone.
    """
    told = []
    for extra in (False, True, False):  # what is loaded once is loaded in the first round
        for memo in memos().values():
            memo.cache_clear()
        con = stage(extra)
        con.execute("CREATE OR REPLACE VIEW v AS FROM people")
        for statement in PRIVATE:
            for _ in range(2):
                try:
                    con.execute(statement).fetchall()
                except duckdb.Error as error:
                    pytest.fail(str(error))
        told.append({name: one.cache_info() for name, one in memos().items() if not name.startswith("dpsql.released.")})
        con.close()
    assert told[1] == told[2]
    assert sum(one.hits + one.misses for one in told[1].values()) > 20


@pytest.mark.long
def test_a_text_is_parsed_without_the_settings_of_who_asks_first() -> None:
    text = f"SELECT * FROM {'(SELECT * FROM ' * 200}people{')' * 200}"
    told = []
    for settings in (["SET GLOBAL max_expression_depth = 150", "SET GLOBAL integer_division = true"], []):
        con = stage(False)
        con.execute("CREATE SCHEMA s")
        con.execute(f"CREATE VIEW s.deep AS {text}")
        con.execute("CREATE VIEW deep AS FROM people")
        con.execute("CREATE OR REPLACE VIEW v AS FROM main.deep")
        for setting in settings:
            con.execute(setting)
        told.append(outcomes(con))
        assert relations(text) == ("people",)
        con.close()
    assert told[0][1] == told[1][1]


def test_a_name_of_two_models_is_noticed() -> None:
    con = dpsql.connect(":memory:")
    for name in ("one", "two"):
        con.execute(f"CREATE TABLE {name} AS SELECT range::DOUBLE AS x, range * 2.0 AS y FROM range(2000)")
        con.execute(f"SELECT dp_protect('{name}', epsilon := 100, delta := 1e-5)").fetchall()
        con.execute(
            f"FROM dp_linear_regression('{name}', target := 'y', features := ['x'], lower := 0, upper := 2000, "
            "target_lower := 0, target_upper := 4000, epsilon := 1, delta := 1e-7, release := 'm')"
        ).fetchall()
        if name == "one":
            assert session_of(con).model("m") is session_of(con).model("m")
    with pytest.raises(dpsql.ParameterError, match="P055"):
        session_of(con).model("m")
    con.close()


class Door:
    """What tells columns; a table changes."""

    def __init__(self) -> None:
        self.kind, self.asked = "BIGINT", 0

    def describe(self, token: str, name: str) -> dict[str, Any]:
        self.asked += 1
        return {"columns": [{"name": "age", "type": self.kind, "nullable": True}]}


@pytest.fixture
def told() -> tuple[Door, list[float], KnownColumns]:
    door, now = Door(), [0.0]
    return door, now, KnownColumns(door, lambda: now[0])  # type: ignore[arg-type]


def test_columns_are_told_for_a_minute_and_to_one_token(told: tuple[Door, list[float], KnownColumns]) -> None:
    door, now, columns = told
    mine, other = Caller(token="mine"), Caller(token="other")
    first = columns.of_dataset(mine, "people")
    door.kind = "VARCHAR"
    assert columns.of_dataset(mine, "people") == first
    assert door.asked == 1
    assert columns.of_dataset(other, "people") != first
    now[0] = 61.0
    assert columns.of_dataset(mine, "people") != first


def test_columns_of_an_answer_are_told_to_its_token(told: tuple[Door, list[float], KnownColumns]) -> None:
    _, now, columns = told
    mine, other = Caller(token="mine"), Caller(token="other")
    schema = pa.schema([("n", pa.int64())])
    columns.remember(mine, "dp_count('people')", schema)
    assert columns.of_statement(mine, "dp_count('people')", {}) == schema
    assert columns.of_statement(other, "dp_count('people')", {}) is None
    now[0] = 3601.0
    assert columns.of_statement(mine, "dp_count('people')", {}) is None


def test_what_a_box_read_is_kept_for_one_token_and_text() -> None:
    before, said = _ReadBefore(), object()
    before.keep("mine", "SELECT 1", said)  # type: ignore[arg-type]
    assert before.get("mine", "SELECT 1") is said
    assert before.get("other", "SELECT 1") is None
    assert before.get("mine", "SELECT 1 ") is None
    before.keep("mine", "x" * (1 << 18), said)  # type: ignore[arg-type]
    assert before.get("mine", "SELECT 1") is None
