"""Which ledger a database opens: by its name, and by its mark."""

from __future__ import annotations

import gc
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

import dpsql
from dpsql.cli.commands import main
from dpsql.engines.duckdb.spending_record import ROWS, marks_of, write_mark
from dpsql.errors import LedgerError
from dpsql.ledger.file import beside
from dpsql.ledger.ledger import Budget, Charge, Ledger

CALL: dict[str, Any] = {
    "event": {"mechanism": "exponential_noise", "epsilon": "0.1"},
    "function": "dp_sis",
    "arguments": {"k": 2},
}


@pytest.fixture
def database(tmp_path: Path) -> Callable[[str], Path]:
    """Make a DuckDB file of a name."""

    def make(name: str) -> Path:
        duckdb.connect(tmp_path / name).close()
        return tmp_path / name

    return make


@pytest.mark.long
def test_databases_of_one_folder_have_ledgers_of_their_own(database: Callable[[str], Path]) -> None:
    paths = [database(name) for name in ("x.duckdb", "x.db", "x", "data.2023", "data.2024")]
    assert len({beside(path) for path in paths}) == len(paths)
    for path in paths:
        with dpsql.connect(path) as connection:
            connection.execute("SELECT 1")
    assert beside(paths[0]).name == "x.duckdb.dpsql-ledger"
    assert all(beside(path).is_file() for path in paths)


def test_a_ledger_of_the_earlier_name_is_found(database: Callable[[str], Path]) -> None:
    path = database("x.duckdb")
    earlier = path.with_suffix(".dpsql-ledger")
    shutil.copyfile(Path(__file__).parents[1] / "fixtures" / "version_1_protected.sqlite", earlier)
    path.with_name("x.csv").write_text("no database\n")
    assert beside(path) == earlier
    with dpsql.connect(path) as connection:
        assert connection.execute("SELECT dataset, releases FROM dp_budget()").fetchall() == [
            ("airports", 1),
            ("patients", 3),
        ]
    appended = earlier.rename(path.with_name("x.duckdb.dpsql-ledger"))
    assert beside(path) == appended


@pytest.mark.long
def test_a_ledger_of_the_earlier_name_of_two_databases_is_refused(database: Callable[[str], Path]) -> None:
    path, other = database("x.duckdb"), database("x.db")
    earlier = path.with_suffix(".dpsql-ledger")
    Ledger.open(earlier).close()
    for each in (path, other):
        with pytest.raises(LedgerError, match=r"DPSQL-L035.*may belong to.*rename"):
            dpsql.connect(each)
    dpsql.connect(path, ledger=earlier).close()
    gc.collect()
    earlier.rename(path.with_name("x.duckdb.dpsql-ledger"))
    assert beside(path).is_file()
    assert beside(other).name == "x.db.dpsql-ledger"


def marked(path: Path, ledger: Path) -> None:
    opened = Ledger.open(ledger)
    with duckdb.connect(path) as connection:
        found = write_mark(connection, "x", opened.id)
    opened.declare("public", "airports", {"table": [f"#{found}", "main", "airports"]}, "dp_public")
    opened.close()


@pytest.mark.long
def test_a_marked_database_opens_with_its_ledger_only(database: Callable[[str], Path], tmp_path: Path) -> None:
    path, mine, other = database("x.duckdb"), tmp_path / "x.duckdb.dpsql-ledger", tmp_path / "other"
    marked(path, mine)
    dpsql.connect(path).close()
    Ledger.open(other).close()
    gc.collect()
    for ledger in (other, ":memory:"):
        with pytest.raises(LedgerError, match=r"DPSQL-L033.*keeps its budgets in ledger"):
            dpsql.connect(path, ledger=ledger)
    plain = duckdb.connect(path)
    with pytest.raises(LedgerError, match="DPSQL-L033"):
        dpsql.install(plain, ledger=other)
    dpsql.install(plain)
    plain.close()


def test_a_renamed_database_does_not_begin_afresh(database: Callable[[str], Path], tmp_path: Path) -> None:
    path = database("x.duckdb")
    marked(path, tmp_path / "x.duckdb.dpsql-ledger")
    renamed = path.rename(tmp_path / "y.duckdb")
    with pytest.raises(LedgerError, match=r"DPSQL-L033.*there is no ledger at"):
        dpsql.connect(renamed)
    assert not (tmp_path / "y.duckdb.dpsql-ledger").exists()
    dpsql.connect(renamed, ledger=tmp_path / "x.duckdb.dpsql-ledger").close()


@pytest.mark.long
def test_adopting_a_ledger_is_recorded_in_it(database: Callable[[str], Path], tmp_path: Path) -> None:
    path = database("x.duckdb")
    marked(path, tmp_path / "lost")
    with duckdb.connect(path) as connection:
        before = marks_of(connection.execute(ROWS).fetchall())["x"]
    done = CliRunner().invoke(main, ["ledger", "adopt", str(path)])
    assert done.exit_code == 0, done.output
    ledger = Ledger.open(tmp_path / "x.duckdb.dpsql-ledger")
    (adopted,) = ledger.declarations().latest[f"database {before.database}"].values()
    assert (adopted.kind, adopted.facts) == ("adopt", {"before": before.ledger, "database": before.database})
    assert ledger.budgets() == []
    ledger.close()
    dpsql.connect(path).close()
    gc.collect()
    with pytest.raises(LedgerError, match="DPSQL-L033"):
        dpsql.connect(path, ledger=tmp_path / "lost")


def spent(ledger: Path) -> float | None:
    opened = Ledger.open(ledger)
    found = opened.budgets()[0].epsilon_spent
    opened.close()
    return found


@pytest.mark.long
def test_copies_of_both_files_after_close_lose_nothing(database: Callable[[str], Path], tmp_path: Path) -> None:
    path = database("x.duckdb")
    copy = tmp_path / "copy.dpsql-ledger"
    kept = []
    for closes in (1, 2, 3):
        connection = dpsql.connect(path)
        kept.append(connection)  # closed, and still referred to
        session = dpsql.install(connection)
        if closes == 1:
            session.ledger.protect("patients", Budget.of(epsilon=1))
        session.ledger.charge(Charge("patients", **CALL), lambda: 1)
        connection.close()
        shutil.copyfile(tmp_path / "x.duckdb.dpsql-ledger", copy)
        with sqlite3.connect(copy) as plain:
            assert plain.execute("SELECT count(*) FROM dpsql_ledger").fetchone() == (closes + 1,)
        plain.close()
        assert spent(copy) == pytest.approx(0.1 * closes)
        copy.unlink()


@pytest.mark.long
def test_a_connection_that_is_dropped_frees_the_database(database: Callable[[str], Path], tmp_path: Path) -> None:
    connection = dpsql.connect(database("x.duckdb"))
    dpsql.install(connection).ledger.charge(Charge("patients", **CALL), lambda: 1)
    del connection
    gc.collect()
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "x.duckdb",
        "x.duckdb.dpsql-ledger",
        "x.duckdb.dpsql-ledger.head",
    ]
    with duckdb.connect(tmp_path / "x.duckdb", read_only=True) as again:
        assert again.execute(
            "SELECT count(*) FROM duckdb_functions() WHERE function_name = 'dpsql_nothing'"
        ).fetchall() == [(0,)]
