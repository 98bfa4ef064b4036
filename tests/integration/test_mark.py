"""The schema that ties a database to its ledger."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.lineage import sources
from dpsql.engines.duckdb.spending_record import ROWS, Mark, change_mark, marks_of, new_mark, parse_mark, write_mark
from dpsql.errors import LedgerError

MINE, OTHER = "a" * 32, "b" * 32


def found(connection: Any) -> dict[str, Mark]:
    return marks_of(connection.execute(ROWS).fetchall())


def test_a_schema_s_name_is_read_as_it_was_made() -> None:
    mark = new_mark(MINE)
    assert re.fullmatch("dpsql_ledger_a{16}_[0-9a-f]{16}", mark.schema)
    assert parse_mark(mark.schema) == mark
    assert mark.is_of(MINE)
    assert not mark.is_of(OTHER)
    assert new_mark(MINE) != mark


WHOLE = f"dpsql_ledger_{'a' * 16}_{'0' * 16}"


@pytest.mark.parametrize("name", ["main", "dpsql_ledger_", f"x{WHOLE}", f"{WHOLE}0"])
def test_other_schemas_are_no_marks(name: str) -> None:
    assert parse_mark(name) is None
    assert marks_of([("x", name), ("y", "main")]) == {}


def test_a_database_is_marked_once() -> None:
    connection = duckdb.connect()
    first = write_mark(connection, "memory", MINE)
    assert write_mark(connection, "memory", MINE) == first
    assert found(connection) == {"memory": Mark(MINE[:16], str(first))}
    with pytest.raises(LedgerError, match=r"DPSQL-L033.*ledger a{16}….*opened is b{16}"):
        write_mark(connection, "memory", OTHER)


def test_threads_leave_one_mark() -> None:
    connection = duckdb.connect()
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: write_mark(connection, "memory", MINE), range(8)))) == 1
    assert len(found(connection)) == 1


def test_others_ask_while_the_first_declaration_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database has its ID before its ledger has an entry about it, and every connection sees the ID."""
    own, other = (dpsql.connect(tmp_path / "a.duckdb", ledger=tmp_path / "budgets.dpsql-ledger") for _ in range(2))
    own.execute("CREATE TABLE t AS SELECT 1 AS a; SELECT dp_protect('t', epsilon := 5)").fetchall()
    own.execute(f"ATTACH '{tmp_path / 'o.duckdb'}' AS o; CREATE TABLE o.u AS SELECT 'x' AS b").fetchall()
    answers = []

    def write(*arguments: Any) -> str | None:
        database = write_mark(*arguments)
        answers.extend(other.execute("FROM dp_count('t', epsilon := 0.1)").fetchall())
        return database

    monkeypatch.setattr(sources, "write_mark", write)
    own.execute("SELECT dp_protect('o.u', epsilon := 5)").fetchall()
    assert len(answers) == 1
    assert {row[0] for row in other.execute("SELECT dataset FROM dp_budget()").fetchall()} == {"t", "o.main.u"}


def test_the_mark_outlives_the_caller_s_rollback() -> None:
    connection = duckdb.connect()
    connection.execute("BEGIN; CREATE TABLE t (a INTEGER)")
    write_mark(connection, "memory", MINE)
    connection.execute("ROLLBACK")
    assert set(found(connection)) == {"memory"}


def test_attached_databases_have_marks_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "odd ' name.duckdb"
    with duckdb.connect(path) as connection:
        name = connection.execute("SELECT current_database()").fetchall()[0][0]
        database = write_mark(connection, name, MINE)
    with duckdb.connect() as connection:
        write_mark(connection, "memory", OTHER)
        connection.execute(f"""ATTACH '{str(path).replace("'", "''")}' AS "a ""b" (READ_ONLY)""")
        assert found(connection)['a "b'] == Mark(MINE[:16], str(database))
        assert found(connection)["memory"].is_of(OTHER)
        assert write_mark(connection, 'a "b', MINE) == database  # it stands, so nothing is to be written


def test_a_read_only_database_is_not_marked(tmp_path: Path) -> None:
    duckdb.connect(tmp_path / "x.duckdb").close()
    with duckdb.connect(tmp_path / "x.duckdb", read_only=True) as connection:
        assert write_mark(connection, "x", MINE) is None
        assert found(connection) == {}


def test_a_changed_mark_keeps_the_database_s_digits() -> None:
    connection = duckdb.connect()
    database = write_mark(connection, "memory", MINE)
    told: list[Any] = []
    before, after = change_mark(connection, "memory", OTHER, lambda *both: told.append(both))
    assert told == [(before, after)]
    assert before == Mark(MINE[:16], str(database))
    assert after == Mark(OTHER[:16], str(database))
    assert found(connection) == {"memory": after}
    assert change_mark(connection, "memory", OTHER, lambda *both: told.append(both)) == (after, after)
    assert told[1:] == [(after, after)]  # a ledger that has forgotten the database knows it again


def test_a_change_that_cannot_be_recorded_changes_nothing() -> None:
    connection = duckdb.connect()
    write_mark(connection, "memory", MINE)
    before = found(connection)
    with pytest.raises(ZeroDivisionError):
        change_mark(connection, "memory", OTHER, lambda *_: 1 / 0)
    assert found(connection) == before


def test_two_marks_are_refused() -> None:
    with pytest.raises(LedgerError, match="DPSQL-L034"):
        marks_of([("x", new_mark(MINE).schema), ("x", new_mark(OTHER).schema)])


def test_a_mark_survives_a_copy_and_an_export(tmp_path: Path) -> None:
    with duckdb.connect(tmp_path / "x.duckdb") as connection:
        write_mark(connection, "x", MINE)
        mark = found(connection)["x"]
        connection.execute(f"EXPORT DATABASE '{tmp_path / 'out'}'")
        connection.execute(f"ATTACH '{tmp_path / 'y.duckdb'}' AS y; COPY FROM DATABASE x TO y")
        assert found(connection)["y"] == mark
    with duckdb.connect() as connection:
        connection.execute(f"IMPORT DATABASE '{tmp_path / 'out'}'")
        assert found(connection)["memory"] == mark
