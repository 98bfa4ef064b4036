"""What is on disk when a charge returns, and what happens when the database refuses."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import pytest
from postgres_server import PostgresServer
from sqlalchemy import event

from dpsql.errors import LedgerError
from dpsql.ledger.ledger import Budget, Charge, Entry, Ledger

CALL: dict[str, Any] = {
    "event": {"mechanism": "exponential_noise", "epsilon": "0.1"},
    "function": "dp_sis",
    "arguments": {"k": 2},
}


def charge(ledger: Ledger, result: Any = 1) -> Entry:
    return ledger.charge(Charge("patients", **CALL), lambda: result)


def value(ledger: Ledger, text: str) -> Any:
    return ledger._opened().write(lambda connection: connection.exec_driver_sql(text).scalar_one())


def test_the_row_is_committed_when_the_charge_returns_and_not_before(durable_location: str) -> None:
    ledger, other = Ledger.open(durable_location), Ledger.open(durable_location)
    seen_while_drawing = ledger.charge(Charge("patients", **CALL), lambda: len(other.entries())).result
    assert seen_while_drawing == 0
    assert len(other.entries()) == 1
    ledger.close()
    other.close()


def test_a_ledger_opened_again_goes_on(durable_location: str) -> None:
    first = Ledger.open(durable_location)
    first.protect("patients", Budget.of(epsilon=0.2))
    entry = charge(first)
    first.close()
    second = Ledger.open(durable_location)
    assert second.entries()[-1].hash == entry.hash
    assert charge(second).sequence == entry.sequence + 1
    assert second.verify(entry.hash).ok
    second.close()


def test_sqlite_waits_for_the_disk_at_every_commit(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "x.dpsql-ledger")
    assert value(ledger, "PRAGMA journal_mode") == "wal"
    assert value(ledger, "PRAGMA synchronous") == 2  # FULL
    assert value(ledger, "PRAGMA busy_timeout") == 60_000
    ledger.close()


def test_postgresql_waits_for_the_disk_even_where_the_server_would_not(postgres: PostgresServer) -> None:
    ledger = Ledger.open(postgres.new_url(synchronous_commit="off"))
    assert value(ledger, "SHOW synchronous_commit") == "on"
    assert value(ledger, "SHOW fsync") == "on"
    ledger.close()
    stronger = Ledger.open(postgres.new_url(synchronous_commit="remote_apply"))
    assert value(stronger, "SHOW synchronous_commit") == "remote_apply"
    stronger.close()


def test_postgresql_that_isolates_transactions_more_strictly_sees_the_newest_row(postgres: PostgresServer) -> None:
    ledger = Ledger.open(postgres.new_url(default_transaction_isolation="serializable"))
    assert value(ledger, "SHOW transaction_isolation") == "read committed"
    ledger.close()


@pytest.mark.long
def test_a_charge_survives_a_crash_of_the_server(postgres: PostgresServer) -> None:
    url = postgres.new_url(synchronous_commit="off")
    ledger = Ledger.open(url)
    entries = [charge(ledger) for _ in range(5)]
    postgres.crash_and_restart()
    assert [row.hash for row in ledger.entries()] == [entry.hash for entry in entries]  # the same object reconnects
    assert charge(ledger).sequence == 6
    ledger.close()


def test_a_full_disk_releases_nothing(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "x.dpsql-ledger")
    charge(ledger)
    store = ledger._opened()
    event.listen(store._engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count = 40"))
    store._engine.dispose()
    with pytest.raises(LedgerError, match="DPSQL-L004") as caught:
        charge(ledger, "secret" * 100_000)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None  # SQLAlchemy's error would hold the undelivered result
    assert "secret" not in str(caught.value)
    assert ledger.verify().entries == 1
    assert charge(ledger).sequence == 2
    ledger.close()


def test_a_commit_that_fails_returns_nothing(durable_ledger: Ledger) -> None:
    charge(durable_ledger)

    def fail(_: Any) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    engine = durable_ledger._opened()._engine
    event.listen(engine, "commit", fail)
    with pytest.raises(sqlite3.OperationalError):
        charge(durable_ledger)
    event.remove(engine, "commit", fail)
    assert len(durable_ledger.entries()) == 1
    assert charge(durable_ledger).sequence == 2


def test_a_read_only_ledger_can_be_read_and_charges_nothing(tmp_path: Path, postgres: PostgresServer) -> None:
    path = tmp_path / "x.dpsql-ledger"
    ledger = Ledger.open(path)
    charge(ledger)
    store = ledger._opened()
    event.listen(store._engine, "connect", lambda connection, _: connection.execute("PRAGMA query_only = ON"))
    store._engine.dispose()
    url = postgres.new_url()
    first = Ledger.open(url)
    released = charge(first)
    first.close()
    server = Ledger.open(postgres.url_of(url.rsplit("%3D", 1)[1], default_transaction_read_only="on"))
    for each, code in ((ledger, "L003"), (server, "L048")):
        with pytest.raises(LedgerError, match=f"DPSQL-{code}"):
            charge(each)
        each.note_replay("patients", "dp_sis", "a", released)  # left out
        assert len(each.entries()) == 1
        each.close()


@pytest.mark.long
@pytest.mark.usefixtures("short_waits")
def test_a_locked_ledger_says_so(durable_location: str) -> None:
    ledger, other = Ledger.open(durable_location), Ledger.open(durable_location)

    def draw() -> str:
        with pytest.raises(LedgerError, match="DPSQL-L002"):
            charge(other)
        other.budgets()  # reading waits for nobody
        return "alone"

    assert ledger.charge(Charge("patients", **CALL), draw).result == "alone"
    assert charge(other).sequence == 2
    ledger.close()
    other.close()


def test_another_schema_version_is_refused(durable_location: str) -> None:
    ledger = Ledger.open(durable_location)
    ledger._opened().write(
        lambda connection: connection.exec_driver_sql(
            "UPDATE dpsql_ledger_meta SET value = '99' WHERE key = 'schema_version'"
        )
    )
    ledger.close()
    with pytest.raises(LedgerError, match=r"DPSQL-L007.*version 99.*Use"):
        Ledger.open(durable_location)


def test_places_that_hold_no_ledger(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, but long enough to have a header of a hundred bytes " * 4)
    duckdb.connect(tmp_path / "x.duckdb").close()
    for location, code in [
        (tmp_path / "missing" / "x", "L001"),
        (tmp_path, "L001"),
        (tmp_path / "text", "L005"),
        (tmp_path / "x.duckdb", "L005"),
        ("mysql://host/database", "L008"),
        ("://", "L008"),
    ]:
        with pytest.raises(LedgerError, match=f"DPSQL-{code}"):
            Ledger.open(location)


def test_an_unreachable_server_is_named_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="DPSQL-L006") as caught:
        Ledger.open(f"postgresql://me:hunter2@/db?host={tmp_path}")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["a b%20?x=1#y.ledger", "Größe.ledger", "file:x?mode=memory", "semi;colon'\".ledger"])
def test_a_path_is_only_a_path(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = Ledger.open(name)
    charge(ledger)
    ledger.close()
    assert (tmp_path / name).is_file()
    again = Ledger.open(tmp_path / name)
    assert len(again.entries()) == 1
    assert again.location == str(tmp_path / name)
    again.close()


def test_a_sqlite_url_and_a_link_lead_to_the_same_file(tmp_path: Path) -> None:
    path, link = tmp_path / "x.ledger", tmp_path / "link"
    os.symlink(path, link)
    for location in (path, link, f"sqlite:///{path}"):
        ledger = Ledger.open(location)
        charge(ledger)
        ledger.close()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["link", "x.ledger", "x.ledger.head"]
    final = Ledger.open(path)
    assert final.verify().entries == 3
    final.close()


def test_postgres_urls_of_every_spelling_are_one_kind(postgres: PostgresServer) -> None:
    url = postgres.new_url()
    for spelling in ("postgresql://", "postgresql+psycopg://", "postgres://"):
        ledger = Ledger.open(url.replace("postgresql://", spelling))
        charge(ledger)
        ledger.close()
    final = Ledger.open(url)
    assert final.verify().entries == 3
    final.close()
