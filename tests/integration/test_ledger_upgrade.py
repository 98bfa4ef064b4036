"""Ledgers that earlier versions wrote: read, upgraded, and safe from a crash meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresServer
from sqlalchemy import Column, Connection, Engine, MetaData, Table, create_engine, event, insert, inspect, text
from sqlalchemy.schema import DropIndex

from dpsql.contract.periods import Dated, During
from dpsql.errors import BudgetError, GatewayError, LedgerError, ParameterError
from dpsql.ledger.budget import Spent
from dpsql.ledger.chain import MISSING_COLUMNS, NEW_COLUMNS, row_hash
from dpsql.ledger.copies import restore
from dpsql.ledger.grants import Grant, Grants
from dpsql.ledger.ledger import Budget, Charge, Ledger
from dpsql.ledger.schema import (
    SCHEMA_VERSION,
    blocks_index,
    declarations_index,
    entry,
    grants_index,
    meta,
    principals_index,
    reservations_index,
    stream,
)
from support.cases import cases

FIXTURES = Path(__file__).parents[1] / "fixtures"
NAMES = ("protected", "varied")
CALL: dict[str, Any] = {
    "event": {"mechanism": "exponential_noise", "epsilon": "0.1"},
    "function": "dp_sis",
    "arguments": {"k": 2},
}


def rows_of(path: Path) -> list[dict[str, Any]]:
    with sqlite3.connect(path) as connection:
        connection.row_factory = sqlite3.Row
        found = [dict(row) for row in connection.execute("SELECT * FROM dpsql_ledger ORDER BY sequence")]
    connection.close()
    return found


def facts_of(path: Path) -> dict[str, str]:
    with sqlite3.connect(path) as connection:
        found = dict(connection.execute("SELECT key, value FROM dpsql_ledger_meta").fetchall())
    connection.close()
    return found


def in_sqlite(name: str, tmp_path: Path) -> str:
    return str(shutil.copy(FIXTURES / f"version_1_{name}.sqlite", tmp_path / "x.ledger"))


def in_postgres(name: str, server: PostgresServer) -> str:
    """Return the URL of a ledger as version 1 made it."""
    url = server.new_url()
    metadata = MetaData()
    for table in (meta, entry):
        columns = [Column(each.name, each.type, primary_key=each.primary_key) for each in table.columns]
        Table(table.name, metadata, *(each for each in columns if each.name not in NEW_COLUMNS))
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    path = FIXTURES / f"version_1_{name}.sqlite"
    with engine.begin() as connection:
        metadata.create_all(connection)
        connection.execute(
            insert(metadata.tables[meta.name]), [{"key": k, "value": v} for k, v in facts_of(path).items()]
        )
        connection.execute(insert(metadata.tables[entry.name]), rows_of(path))
    engine.dispose()
    return url


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Return the location of a ledger of version 1."""
    if request.param == "sqlite":
        return lambda name: in_sqlite(name, tmp_path)
    server = request.getfixturevalue("postgres")
    return lambda name: in_postgres(name, server)


def version(ledger: Ledger) -> str:
    return ledger._opened()._facts()["schema_version"]


@pytest.mark.parametrize("name", NAMES)
def test_an_upgraded_ledger_keeps_its_rows_and_goes_on(place: Callable[[str], str], name: str) -> None:
    old = rows_of(FIXTURES / f"version_1_{name}.sqlite")
    ledger = Ledger.open(place(name))
    assert version(ledger) == SCHEMA_VERSION
    assert [(row.sequence, row.hash) for row in ledger.entries()] == [(row["sequence"], row["hash"]) for row in old]
    assert ledger.verify(old[2]["hash"]).ok
    ledger.charge(Charge("patients", **CALL), lambda: 1)
    ledger.declare("public", "airports", {"a": 1}, "dp_public")
    assert ledger.verify(old[-1]["hash"]).entries == len(old) + 2
    ledger.close()


def test_budgets_totals_and_named_releases_still_stand(place: Callable[[str], str]) -> None:
    ledger = Ledger.open(place("protected"))
    assert ledger.policy("patients") == Budget.of(epsilon=3, delta=1e-6, lower=0, upper=1)
    assert {row.dataset: (row.epsilon_spent, row.releases) for row in ledger.budgets()} == {
        "airports": (0.1, 1),
        "patients": (0.3, 3),
    }
    fingerprint = Ledger.fingerprint("patients", "dp_sis", {"k": 2})
    entry = ledger.replay("patients", "weekly", fingerprint)
    assert entry is not None
    assert (entry.sequence, entry.result) == (2, ["g17", "größe"])
    assert ledger.replay("patients", "failed", fingerprint) is None
    assert ledger.declarations().counter == 1
    with pytest.raises(BudgetError, match="DPSQL-B001"):
        ledger.charge(Charge("patients", **CALL | {"event": {**CALL["event"], "epsilon": "2.8"}}), lambda: 1)
    ledger.close()


def test_a_varied_ledger_reads_the_same(place: Callable[[str], str]) -> None:
    ledger = Ledger.open(place("varied"))
    budgets = {row.dataset: row for row in ledger.budgets()}
    assert list(budgets) == ["free", "people", "visits"]
    assert (budgets["visits"].rho_spent, budgets["visits"].rho_remaining) == (0.25, 0.25)
    assert (budgets["people"].budget, budgets["people"].neighbours) == ("epsilon 2", "replace")
    assert (budgets["free"].rho_spent, budgets["free"].delta_spent) == (None, 1e-6)
    latest = ledger.declarations().latest
    assert {dataset: kinds["protect"].sequence for dataset, kinds in latest.items()} == {"visits": 1, "people": 5}
    ledger.close()


def test_many_may_open_it_at_once(place: Callable[[str], str]) -> None:
    location = place("protected")

    def work(number: int) -> None:
        ledger = Ledger.open(location)
        ledger.charge(Charge("patients", **CALL), lambda: number)
        ledger.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    ledger = Ledger.open(location)
    report = ledger.verify()
    assert (report.ok, report.entries) == (True, 5 + 8)
    ledger.close()


def test_a_process_of_version_1_that_still_runs_loses_nothing(tmp_path: Path) -> None:
    path = Path(in_sqlite("protected", tmp_path))
    old = sqlite3.connect(path, isolation_level=None)
    last = rows_of(path)[-1]
    ledger = Ledger.open(path)
    row = last | {"sequence": 6, "name": "late", "releases": 2, "epsilon_spent": str(2 * int(last["epsilon"]))}
    row |= {"rho_spent": str(2 * int(last["rho"]))}
    row["hash"] = row_hash(last["hash"], row)
    old.execute(f"INSERT INTO dpsql_ledger ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values()))
    old.close()
    assert ledger.verify().entries == 6
    assert [(each.dataset, each.releases) for each in ledger.budgets()] == [("airports", 2), ("patients", 3)]
    assert ledger.charge(Charge("airports", **CALL), lambda: 1).sequence == 7
    assert ledger.verify().ok
    ledger.close()


def die_after(statements: int) -> None:
    """End this process after so many statements, as a kill would."""
    left = iter(range(statements - 1))
    event.listen(Engine, "after_cursor_execute", lambda *_: next(left, None) is None and os._exit(9))


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_process_killed_at_any_step_of_the_upgrade_loses_nothing(tmp_path: Path) -> None:
    old, steps = rows_of(FIXTURES / "version_1_varied.sqlite"), 0
    for steps in range(1, 100):
        path = Path(in_sqlite("varied", tmp_path))
        child = os.fork()
        if child == 0:
            die_after(steps)
            Ledger.open(path)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        found = [{name: row[name] for name in old[0]} for row in rows_of(path)]
        assert found == old
        ledger = Ledger.open(path)
        assert ledger.verify().entries == len(old)
        ledger.close()
        if code == 0:
            break
    assert 10 < steps < 99  # some steps, and an end


def test_a_damaged_ledger_is_not_upgraded(tmp_path: Path) -> None:
    path = Path(in_sqlite("protected", tmp_path))
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER dpsql_ledger_no_update")
        connection.execute("UPDATE dpsql_ledger SET epsilon_spent = '1' WHERE sequence = 3")
    connection.close()
    with pytest.raises(LedgerError, match=r"DPSQL-L030.*entry 3"):
        Ledger.open(path)
    assert facts_of(path)["schema_version"] == "1"


def test_the_hash_covers_the_new_columns_where_they_are_not_null(ledger: Ledger) -> None:
    ledger.protect("patients", Budget.of(epsilon=1), lineage={"source": "z.main.patients"})
    ledger.charge(Charge("patients", lineage={"charged": ["patients"]}, **CALL), lambda: 1)
    ledger.charge(Charge("patients", **CALL), lambda: 1)
    rows = ledger._read(lambda transaction: list(transaction.walk()))
    assert [row["lineage"] for row in rows] == ['{"source":"z.main.patients"}', '{"charged":["patients"]}', None]
    assert row_hash(rows[0]["hash"], rows[1]) == rows[1]["hash"]
    assert row_hash(rows[0]["hash"], {**rows[1], "lineage": None}) != rows[1]["hash"]
    assert row_hash(rows[1]["hash"], {k: v for k, v in rows[2].items() if k not in NEW_COLUMNS}) == rows[2]["hash"]


def test_declarations_charge_nothing_and_are_counted(ledger: Ledger) -> None:
    empty = ledger.declarations()
    assert (empty.counter, empty.latest) == (0, {})
    assert ledger.declare("public", "Airports", {"force": False}, "dp_public")
    assert not ledger.declare("public", "airports", {"force": False}, "dp_public")
    first = ledger.declarations()
    assert first.counter == 1
    ledger.charge(Charge("patients", **CALL), lambda: 1)
    assert ledger.declarations() is first  # a release is no declaration
    ledger.protect("patients", Budget.of(epsilon=1))
    assert ledger.declare("derive", "airports", {"from": "patients"}, "dp_derive", lineage={"a": 1})
    assert ledger.declare("public", "airports", {"force": False}, "dp_public")
    found = ledger.declarations()
    assert found.counter == 5
    assert {dataset: set(kinds) for dataset, kinds in found.latest.items()} == {
        "airports": {"public", "derive"},
        "patients": {"protect"},
    }
    derived, public = found.latest["airports"]["derive"], found.latest["airports"]["public"]
    assert (derived.sequence, derived.facts, derived.lineage) == (4, {"from": "patients"}, {"a": 1})
    assert (public.sequence, public.function) == (5, "dp_public")
    (budget,) = ledger.budgets()  # what was only declared has no budget to show
    assert (budget.dataset, budget.epsilon_spent) == ("patients", 0.1)
    assert [row.kind for row in ledger.entries("airports")] == ["public", "derive", "public"]
    assert ledger.verify().ok


def test_the_accountant_s_state_is_carried_past_rows_that_charge_nothing(ledger: Ledger) -> None:
    ledger.protect("patients", Budget.of(epsilon=1, delta=1e-6, accountant="rdp"))
    entry = ledger.charge(Charge("patients", name="a", **CALL), lambda: 1)

    def spent() -> Spent:
        return ledger._read(lambda transaction: transaction.state("patients")).spent

    before = spent()
    assert before.composition is not None
    assert before.composition.releases == 1
    ledger.declare("derive", "patients", {}, "dp_derive")
    ledger.note_replay("patients", "dp_sis", "a", entry)
    assert spent() == before
    ledger.charge(Charge("patients", **CALL), lambda: 1)
    after = spent()
    assert after.composition is not None
    assert after.composition.releases == 2
    ledger.protect("patients", Budget.of(epsilon=9, delta=1e-6, accountant="rdp"), replace=True)
    assert spent() == after
    assert ledger.verify().ok


def notes_of(old: str) -> str:
    """Return what the trigger of a version does after each row; version 2 has that of version 3."""
    with sqlite3.connect(FIXTURES / f"version_{old}.sqlite") as connection:
        [(trigger,)] = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'dpsql_ledger_note'").fetchall()
    connection.close()
    return str(trigger).split("BEGIN", 1)[1].rsplit("END", 1)[0]


def as_before(connection: Connection, old: str) -> None:
    """Make the table, its indexes and its triggers as version 3 or 4 had them."""
    is_sqlite = connection.dialect.name == "sqlite"
    connection.execute(text(f"DROP TRIGGER dpsql_ledger_note{'' if is_sqlite else ' ON dpsql_ledger'}"))
    for index in (declarations_index, grants_index, principals_index, *([blocks_index] if old == "3" else [])):
        connection.execute(DropIndex(index))
    for name in MISSING_COLUMNS[old]:
        connection.execute(text(f"ALTER TABLE dpsql_ledger DROP COLUMN {name}"))
    declares = "CREATE INDEX dpsql_ledger_declarations ON dpsql_ledger (sequence) WHERE "
    charges = "" if old == "3" else ", 'charge', 'carry'"
    connection.execute(text(f"{declares} kind NOT IN ('release', 'replay'{charges})"))
    notes = notes_of(old)
    if is_sqlite:
        connection.exec_driver_sql(f"CREATE TRIGGER dpsql_ledger_note AFTER INSERT ON dpsql_ledger BEGIN {notes} END")
        return
    connection.exec_driver_sql(
        "CREATE OR REPLACE FUNCTION dpsql_ledger_note() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {notes} RETURN NULL; END $$"
    )
    connection.exec_driver_sql(
        "CREATE TRIGGER dpsql_ledger_note AFTER INSERT ON dpsql_ledger "
        "FOR EACH ROW EXECUTE FUNCTION dpsql_ledger_note()"
    )


def as_version_2(location: str) -> None:
    """Make a ledger as version 2 had it; where nothing was reserved its rows are the same."""
    ledger = Ledger.open(location)

    def work(connection: Connection) -> None:
        as_before(connection, "3")
        connection.execute(DropIndex(reservations_index))
        connection.execute(text("ALTER TABLE dpsql_ledger DROP COLUMN hold"))
        connection.execute(text("UPDATE dpsql_ledger_meta SET value = '2' WHERE key = 'schema_version'"))

    ledger._opened().write(work)
    ledger.close()


def described(ledger: Ledger) -> list[str]:
    """Return the table's columns and indexes, as the database describes them."""

    def work(connection: Connection) -> list[str]:
        found = inspect(connection)
        indexes = [
            f"{each['name']} {each['column_names']} {each['unique']} {[*map(str, each['dialect_options'].values())]}"
            for each in found.get_indexes("dpsql_ledger")
        ]
        columns = [f"{each['name']} {each['type']} {each['nullable']}" for each in found.get_columns("dpsql_ledger")]
        return columns + sorted(indexes)

    return ledger._opened().read(work)


def test_a_ledger_of_version_2_is_upgraded(durable_location: str) -> None:
    first = Ledger.open(durable_location)
    first.protect("patients", Budget.of(epsilon=1, delta=1e-6, accountant="rdp"))
    entry = first.charge(Charge("patients", name="weekly", lineage={"views": ""}, **CALL), lambda: 1)
    new = described(first)
    first.close()
    as_version_2(durable_location)
    old = Ledger.open(durable_location, read_only=True)
    assert old.verify(entry.hash).ok
    assert [row.releases for row in old.budgets()] == [1]
    assert version(old) == "2"
    old.close()
    ledger = Ledger.open(durable_location)
    assert (version(ledger), described(ledger)) == (SCHEMA_VERSION, new)
    reserved = ledger.reserve(Charge("patients", **CALL))
    ledger.charge(Charge("patients", **CALL), lambda: 2, reservation=reserved.sequence)
    assert ledger.verify(entry.hash).entries == 4
    ledger.close()


def test_a_backup_of_version_2_is_restored(tmp_path: Path) -> None:
    place = str(tmp_path / "old")
    first = Ledger.open(place)
    entry = first.charge(Charge("patients", **CALL), lambda: 1)
    first.close()
    as_version_2(place)
    assert restore(place, str(tmp_path / "new")).entries == 1
    ledger = Ledger.open(tmp_path / "new")
    reserved = ledger.reserve(Charge("patients", **CALL))
    ledger.charge_failure(Charge("patients", **CALL), reservation=reserved.sequence)
    assert ledger.verify(entry.hash).entries == 3
    ledger.close()


def test_a_process_of_version_2_that_still_runs_charges_nothing_beside_a_reservation(durable_location: str) -> None:
    ledger, old = Ledger.open(durable_location), Ledger.open(durable_location)
    old._opened().version = "2"  # it reads the columns that it knows
    reserved = ledger.reserve(Charge("patients", **CALL))
    assert old.verify().entries == 1
    assert old.charge(Charge("patients", **CALL), lambda: 1).sequence == 2
    ledger.charge(Charge("patients", **CALL), lambda: 2, reservation=reserved.sequence)
    with pytest.raises(LedgerError, match=r"DPSQL-L030.*entry 3"):
        old.charge(Charge("patients", **CALL), lambda: 3)
    assert ledger.verify().entries == 3
    ledger.close()
    old.close()


def in_version(location: str, old: str = "3") -> str:
    """Return the location of a ledger as version 3 or 4 wrote it, with the rows of the fixture."""
    if "://" not in location:
        return str(shutil.copy(FIXTURES / f"version_{old}.sqlite", location))
    ledger = Ledger.open(location)

    def work(connection: Connection) -> None:
        as_before(connection, old)
        rows = rows_of(FIXTURES / f"version_{old}.sqlite")
        columns = [column for column in entry.columns if column.name not in MISSING_COLUMNS[old]]
        table = Table(entry.name, MetaData(), *(Column(each.name, each.type) for each in columns))
        connection.execute(insert(table), rows)
        for key, value in facts_of(FIXTURES / f"version_{old}.sqlite").items():
            connection.execute(text("DELETE FROM dpsql_ledger_meta WHERE key = :key"), {"key": key})
            connection.execute(insert(meta), {"key": key, "value": value})

    ledger._opened().write(work)
    ledger.close()
    return location


def test_a_ledger_of_version_3_is_upgraded(durable_location: str) -> None:
    old = rows_of(FIXTURES / "version_3.sqlite")
    place = in_version(durable_location)
    reader = Ledger.open(place, read_only=True)
    assert version(reader) == "3"
    assert reader.verify(old[0]["hash"]).entries == len(old)
    assert {row.dataset: (row.block, row.epsilon_spent, row.releases) for row in reader.budgets()} == {
        "patients": (None, 0.1, 1),
        "visits": (None, 0.2, 2),
    }
    reader.close()
    ledger = Ledger.open(place)
    assert version(ledger) == SCHEMA_VERSION == "5"
    assert [row.hash for row in ledger.entries()] == [row["hash"] for row in old]
    assert all("block" not in row for row in old)
    assert ledger._opened().read(lambda found: [row["block"] for row in stream(found, "5")]) == [None] * len(old)
    fingerprint = Ledger.fingerprint("patients", "dp_sis", {"k": 2})
    entry_2 = ledger.replay("patients", "weekly", fingerprint)
    assert entry_2 is not None
    assert entry_2.result == ["g17", "größe"]
    assert ledger.reserve(Charge("visits", name="open", **CALL)).sequence == 7  # it is still open
    dated = {"period": "month", "period_of": "day"}
    patients = ledger.policy("patients")
    assert patients is not None
    ledger.protect("patients", patients.restated(dated), replace=True)
    during = During.read("2026-10", Dated("month", "day"))
    ledger.charge(
        Charge(
            "patients", CALL["event"], "dp_sis", {"during": during.to_json()}, privacy_unit="pid", max_rows_per_unit=2,
            during=during,
        ),
        lambda: 1,
    )  # fmt: skip
    assert [(row.block, row.epsilon_spent) for row in ledger.budgets() if row.dataset == "patients"] == [
        ("2026-10", 0.2),
        ("every other", 0.1),
        ("total", 0.2),
    ]
    assert ledger.verify(old[-1]["hash"]).ok
    ledger.close()


def test_a_ledger_of_version_4_is_upgraded(durable_location: str) -> None:
    old = rows_of(FIXTURES / "version_4.sqlite")
    place = in_version(durable_location, "4")
    reader = Ledger.open(place, read_only=True)
    before = reader.budgets()
    assert (version(reader), reader.grants(), reader.verify(old[0]["hash"]).ok) == ("4", Grants(), True)
    reader.close()
    ledger = Ledger.open(place)
    assert version(ledger) == SCHEMA_VERSION
    assert [row.hash for row in ledger.entries()] == [row["hash"] for row in old]
    assert ledger.budgets() == before
    assert {row.block for row in before} >= {"2026-10", "2026-11", "every other", "total"}
    assert all("principal" not in row for row in old)
    ledger.grant(Grant.of("ana", "patients", epsilon=0.1))
    unit: dict[str, Any] = {"privacy_unit": "pid", "max_rows_per_unit": 2}
    ledger.charge(Charge("patients", principal="ana", **unit, **CALL), lambda: 1)
    with pytest.raises(GatewayError, match="DPSQL-G017"):
        ledger.charge(Charge("patients", principal="ana", **unit, **CALL), lambda: 1)
    assert ledger.verify(old[-1]["hash"]).entries == len(old) + 3
    ledger.close()


@cases("old", ["3", "4"], quick=2, alone=True)
def test_an_upgraded_ledger_has_the_table_of_a_new_one(
    durable_location: str, tmp_path: Path, request: pytest.FixtureRequest, old: str
) -> None:
    upgraded = Ledger.open(in_version(durable_location, old))
    is_server = "://" in durable_location
    new = Ledger.open(request.getfixturevalue("postgres").new_url() if is_server else str(tmp_path / "new"))
    assert described(upgraded) == described(new)
    upgraded.close()
    new.close()


def test_a_process_of_version_3_that_still_runs_does_not_charge_a_dataset_with_periods(durable_location: str) -> None:
    """It knows no periods, so the budget that stands is none that it can read."""
    ledger = Ledger.open(durable_location)
    budget = {"epsilon": 1, "privacy_unit": "pid", "max_rows_per_unit": 2, "period": "month", "period_of": "day"}
    ledger.protect("patients", Budget.of(**budget))
    record = json.loads(Budget.of(**budget).to_json())
    old_fields = {"epsilon", "delta", "rho", "neighbours", "privacy_unit", "max_rows_per_unit", "bounds"}
    assert set(record) - old_fields == {"period", "period_of"}  # which version 3 takes for damage: L030
    with pytest.raises(ParameterError, match="DPSQL-P110"):
        ledger.charge(Charge("patients", privacy_unit="pid", max_rows_per_unit=2, **CALL), lambda: 1)
    ledger.close()
