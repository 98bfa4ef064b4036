"""Backups of ledgers, and what restoring from one refuses to lose."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dpsql.cli.commands import main
from dpsql.errors import LedgerError
from dpsql.ledger.copies import backup, restore
from dpsql.ledger.ledger import Budget, Charge, Ledger
from support.cases import cases

CALL: dict[str, Any] = {
    "event": {"mechanism": "exponential_noise", "epsilon": "0.1"},
    "function": "dp_sis",
    "arguments": {"k": 2},
}


def charge(ledger: Ledger, **changes: Any) -> int:
    return ledger.charge(Charge("patients", **CALL | changes), lambda: 1).sequence


def head(location: str | Path) -> tuple[bool, int, str]:
    ledger = Ledger.open(location)
    report = ledger.verify()
    ledger.close()
    return report.ok, report.entries, report.head


@pytest.fixture
def filled(durable_ledger: Ledger) -> Ledger:
    durable_ledger.protect("patients", Budget.of(epsilon=9))
    charge(durable_ledger, name="weekly", lineage={"own": "patients"})
    return durable_ledger


def test_a_backup_holds_every_entry_and_grows(filled: Ledger, tmp_path: Path) -> None:
    copy = tmp_path / "backup"
    assert backup(filled, str(copy)) == 2
    assert head(copy) == (True, 2, filled.verify().head)
    for _ in range(3):
        charge(filled)
    filled.declare("public", "airports", {}, "dp_public")
    assert backup(filled, str(copy)) == 6
    assert head(copy) == (True, 6, filled.verify().head)
    assert backup(filled, str(copy)) == 6
    again = Ledger.open(copy)
    assert again.id == filled.id
    assert again.budgets() == filled.budgets()
    assert again.declarations() == filled.declarations()
    again.close()


def test_a_backup_of_a_new_ledger_does_not_replace_that_of_a_lost_one(filled: Ledger, tmp_path: Path) -> None:
    copy = tmp_path / "backup"
    backup(filled, str(copy))
    new = Ledger.open(tmp_path / "new")
    charge(new)
    with pytest.raises(LedgerError, match="DPSQL-L036"):
        backup(new, str(copy))
    assert head(copy)[1] == 2
    new.close()


def test_restoring_brings_back_what_was_lost(
    filled: Ledger, tmp_path: Path, durable_location: str, request: pytest.FixtureRequest
) -> None:
    backup(filled, str(tmp_path / "early"))
    charge(filled)
    backup(filled, str(tmp_path / "late"))
    for present in ("nothing", "early", "empty"):
        place = str(tmp_path / f"place of {present}")
        if durable_location.startswith("postgresql://"):
            place = request.getfixturevalue("postgres").new_url()
        if present == "early":
            restore(str(tmp_path / "early"), place)
        elif present == "empty":
            Ledger.open(place).close()
        done = restore(str(tmp_path / "late"), place)
        assert (done.entries, done.lost, done.aside) == (3, None, None)
        assert head(place) == (True, 3, filled.verify().head)
        ledger = Ledger.open(place)
        assert charge(ledger) == 4
        ledger.close()


def test_restoring_refuses_to_lose_entries(tmp_path: Path) -> None:
    place, copy = tmp_path / "x", tmp_path / "backup"
    ledger = Ledger.open(place)
    charge(ledger)
    backup(ledger, str(copy))
    charge(ledger)
    ledger.close()
    before = head(place)
    with pytest.raises(LedgerError, match=r"DPSQL-L036.*--set-aside"):
        restore(str(copy), str(place))
    assert head(place) == before
    done = restore(str(copy), str(place), set_aside=True)
    assert (done.entries, done.has_note) == (2, True)  # the backup's, and the record of what it does not hold
    assert done.lost is not None
    assert (done.lost.sequence, done.lost.hash) == before[1:]
    assert done.aside is not None
    assert head(done.aside) == before
    assert head(place)[:2] == (True, 2)
    restored = Ledger.open(place)
    (recorded,) = restored.declarations().latest[f"ledger {restored.id[:16]}"].values()
    assert (recorded.kind, recorded.function) == ("restore", "dpsql ledger restore")
    assert recorded.facts == {"entries": 1, "hash": before[2], "ledger": restored.id, "noted": 2}
    restored.close()


@cases("damage", ["empty", "cut", "row", "text"], quick=3, alone=True)
def test_a_damaged_ledger_is_set_aside_only_on_demand(tmp_path: Path, damage: str) -> None:
    place, copy = tmp_path / "x", tmp_path / "backup"
    ledger = Ledger.open(place)
    charge(ledger)
    backup(ledger, str(copy))
    ledger.close()
    content = place.read_bytes()
    changed = {
        "empty": b"",
        "cut": content[:8192],
        "row": content.replace(b"released", b"relEased", 1),
        "text": b"no ledger " * 1000,
    }[damage]
    place.write_bytes(changed)
    with pytest.raises(LedgerError, match=r"DPSQL-L0(32|05|37|30)"):
        restore(str(copy), str(place))
    assert place.read_bytes() == changed
    done = restore(str(copy), str(place), set_aside=True)
    assert (done.entries, done.lost) == (1, None)
    assert head(place)[:2] == (True, 1)


def test_a_damaged_backup_is_refused(filled: Ledger, tmp_path: Path) -> None:
    copy = tmp_path / "backup"
    backup(filled, str(copy))
    copy.write_bytes(copy.read_bytes().replace(b"weekly", b"weakly"))
    with pytest.raises(LedgerError, match=r"DPSQL-L037.*Give another backup"):
        restore(str(copy), str(tmp_path / "new"), set_aside=True)
    assert not (tmp_path / "new").exists()


def test_a_backup_of_version_1_is_restored_and_stays_as_it_is(tmp_path: Path) -> None:
    copy = shutil.copy(Path(__file__).parents[1] / "fixtures" / "version_1_protected.sqlite", tmp_path / "backup")
    before = copy.read_bytes()
    done = restore(str(copy), str(tmp_path / "x"))
    assert (done.entries, done.lost, done.has_note) == (5, None, False)
    assert copy.read_bytes() == before
    assert head(tmp_path / "x")[:2] == (True, 5)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = Ledger.open("x.duckdb.dpsql-ledger")
    charge(ledger)
    ledger.close()
    assert run("ledger", "backup", "copy", "--db", "x.duckdb").output == "ok: copy holds 1 entries.\n"
    Path("x.duckdb.dpsql-ledger").unlink()
    assert run("ledger", "restore", "copy", "--db", "x.duckdb").output == "ok: the ledger holds 1 entries.\n"
    done = run("ledger", "verify", "--db", "x.duckdb")
    assert done.output.startswith("ok: 1 entries, chain and totals are intact.\nhead ")
    ledger = Ledger.open("x.duckdb.dpsql-ledger")
    charge(ledger)
    ledger.close()
    done = run("ledger", "restore", "copy", "--db", "x.duckdb")
    assert done.exit_code == 5
    assert "DPSQL-L036" in done.output
    done = run("ledger", "restore", "copy", "--db", "x.duckdb", "--set-aside")
    assert done.exit_code == 0
    assert "is now" in done.output
    assert "Forgotten: entry 2 (" in done.output
    assert "ok: the ledger holds 2 entries." in done.output
    done = run("ledger", "restore", "nothing", "--db", "x.duckdb")
    assert done.exit_code == 5
    assert "DPSQL-L016" in done.output
