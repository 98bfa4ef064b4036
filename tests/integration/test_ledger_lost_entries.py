"""Entries that a crash, a copy or a second name would lose are missed before anything is released."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

import dpsql
from dpsql.cli.commands import main
from dpsql.errors import LedgerError
from dpsql.ledger.chain import Head, NotedHead
from dpsql.ledger.copies import accept, restore
from dpsql.ledger.ledger import Budget, Charge, Ledger
from support.cases import cases

CALL: dict[str, Any] = {
    "event": {"mechanism": "exponential_noise", "epsilon": "0.1"},
    "function": "dp_sis",
    "arguments": {"k": 2},
}
ENDINGS = ("", "-wal", "-shm", ".head")
LOST = r"DPSQL-L0(50|05|30|10|56)"
KILLED = """
import os, sys
from dpsql.ledger.ledger import Budget, Charge, Ledger
ledger = Ledger.open(sys.argv[1])
call = {"event": {"mechanism": "exponential_noise", "epsilon": "0.1"}, "function": "dp_sis", "arguments": {"k": 2}}
ledger.protect("patients", Budget.of(epsilon=1))
for _ in range(4):
    ledger.charge(Charge("patients", **call), lambda: 1)
os.kill(os.getpid(), 9)
"""


def charge(ledger: Ledger) -> int:
    return ledger.charge(Charge("patients", **CALL), lambda: 1).sequence


def copied(path: Path, folder: Path) -> Path:
    """Copy a ledger with all that stands beside it."""
    folder.mkdir(exist_ok=True)
    for ending in ENDINGS:
        (folder / (path.name + ending)).unlink(missing_ok=True)
        if ending != "-shm" and Path(f"{path}{ending}").exists():
            shutil.copyfile(f"{path}{ending}", folder / (path.name + ending))
    return folder / path.name


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of five entries, all of them in its log alone, whose process was killed."""
    path = tmp_path_factory.mktemp("crashed") / "x.duckdb.dpsql-ledger"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    return path


def answers(path: Path) -> int:
    """Open a ledger and release something; return the number of its entries before that."""
    ledger = Ledger.open(path)
    try:
        ledger.policy("patients")
        return charge(ledger) - 1
    finally:
        ledger.close()


@pytest.mark.long
def test_after_a_crash_everything_is_there(crashed: Path, tmp_path: Path) -> None:
    assert answers(copied(crashed, tmp_path / "a")) == 5


def test_a_log_that_is_lost_or_cut_anywhere_is_missed(crashed: Path, tmp_path: Path) -> None:
    content = Path(f"{crashed}-wal").read_bytes()
    page = int.from_bytes(content[8:12], "big")
    frames = range(32, len(content), 24 + page)
    lengths = [0, 16, *frames, *(frame + 100 for frame in frames), len(content) - 1]
    for length in lengths:
        path = copied(crashed, tmp_path / "a")
        Path(f"{path}-wal").write_bytes(content[:length])
        with pytest.raises(LedgerError, match=LOST):
            answers(path)
    path = copied(crashed, tmp_path / "a")
    Path(f"{path}-wal").unlink()
    with pytest.raises(LedgerError, match=r"DPSQL-L050.*ends with entry 0, and does not hold what was its entry 5"):
        answers(path)


@cases("seed", range(4), quick=1, alone=True)
def test_a_bit_that_flips_in_the_log_is_missed(crashed: Path, tmp_path: Path, seed: int) -> None:
    content = Path(f"{crashed}-wal").read_bytes()
    choose = random.Random(seed)
    for _ in range(12):
        path, bit = copied(crashed, tmp_path / "a"), choose.randrange(8 * len(content))
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        Path(f"{path}-wal").write_bytes(flipped)
        with pytest.raises(LedgerError, match=LOST):
            answers(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger of three entries, closed, with a copy of its file after the first one in `earlier`."""
    path = tmp_path / "x.duckdb.dpsql-ledger"
    ledger = Ledger.open(path)
    ledger.protect("patients", Budget.of(epsilon=1))
    ledger.checkpoint()
    copied(path, tmp_path / "earlier")
    charge(ledger)
    charge(ledger)
    ledger.close()
    return path


def earlier(path: Path, ending: str = "") -> Path:
    return path.parent / "earlier" / (path.name + ending)


def test_an_earlier_copy_put_back_is_missed(path: Path) -> None:
    shutil.copyfile(earlier(path), path)
    with pytest.raises(LedgerError, match=r"DPSQL-L050.*ends with entry 1.*its entry 3"):
        answers(path)
    report = CliRunner().invoke(main, ["ledger", "verify", "--ledger", str(path)])
    assert report.exit_code == 5
    assert "the entry noted as its last one is lost" in report.output


def test_another_ledger_in_its_place_is_missed(path: Path, tmp_path: Path) -> None:
    other = Ledger.open(tmp_path / "other")
    for _ in range(7):
        charge(other)
    other.close()
    shutil.copyfile(tmp_path / "other", path)
    with pytest.raises(LedgerError, match="DPSQL-L050"):
        answers(path)


def test_a_ledger_that_is_gone_is_missed(path: Path) -> None:
    path.unlink()
    with pytest.raises(LedgerError, match=r"DPSQL-L053.*had 3 entries.*delete '.*\.head'"):
        answers(path)
    assert not path.exists()
    Path(f"{path}.head").unlink()
    assert answers(path) == 0


@cases("note", ["lost", "earlier", "empty", "cut", "noise"], quick=3, alone=True)
def test_a_note_that_is_lost_or_earlier_stops_nobody(path: Path, note: str) -> None:
    place = Path(f"{path}.head")
    content = place.read_bytes()
    place.unlink()
    if note != "lost":
        changed = {"earlier": earlier(path, ".head").read_bytes(), "empty": b"", "cut": content[:700]}
        place.write_bytes(changed.get(note, bytes(range(256)) * 128))
    assert answers(path) == 3
    found = NotedHead(str(path)).read()
    assert found is not None
    assert found.sequence == 4


def test_a_flipped_bit_in_the_note_stops_nobody(path: Path) -> None:
    place, choose = Path(f"{path}.head"), random.Random(1)
    content = place.read_bytes()
    start = content.rindex(b"0000000000000000003") - 40
    for bit in choose.sample(range(8 * start, 8 * (start + 130)), 25):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        place.write_bytes(flipped)
        ledger = Ledger.open(path)
        assert ledger.verify().entries == 3
        ledger.close()


def test_a_note_that_is_gone_after_a_crash_is_asked_for(crashed: Path, tmp_path: Path) -> None:
    path = copied(crashed, tmp_path / "a")
    Path(f"{path}.head").unlink()
    with pytest.raises(LedgerError, match=r"DPSQL-L056.*was not closed"):
        answers(path)
    done = accept(str(path))
    assert (done.entries, done.lost, done.has_note) == (5, None, False)
    assert answers(path) == 5


def test_a_ledger_of_before_there_were_notes_gets_one(tmp_path: Path) -> None:
    path = tmp_path / "x"
    shutil.copyfile(Path(__file__).parents[1] / "fixtures" / "version_1_protected.sqlite", path)
    Ledger.open(path).close()
    assert NotedHead(str(path)).read() is not None


def test_every_entry_is_noted_before_its_answer_leaves(path: Path) -> None:
    ledger, note = Ledger.open(path), NotedHead(str(path))
    for _ in range(3):
        entry = ledger.charge(Charge("patients", **CALL), lambda: 1)
        assert note.read() == Head(entry.sequence, entry.hash, ledger.id)
    Path(note.path).unlink()
    Path(note.path).mkdir()
    with pytest.raises(LedgerError, match=r"DPSQL-L00[134].*\.head'"):
        charge(ledger)
    Path(note.path).rmdir()
    assert charge(ledger) == 8  # what could not be noted is charged, and its answer is lost
    ledger.close()


def test_a_late_note_leaves_that_of_a_later_entry(tmp_path: Path) -> None:
    note = NotedHead(str(tmp_path / "x"))
    heads = [Head(number, f"{number:064x}", "a" * 32) for number in range(200)]
    for number in (3, 2, 5, 4, 70, 6, 68, 199, 135, 136, 7):
        note.write(heads[number])
        seen = max(head for head in heads[: number + 1] if head.sequence in (3, 2, 5, 4, 70, 6, 68, 199, 135, 136, 7))
        found = note.read()
        assert found is not None
        assert found >= seen
    assert note.read() == heads[199]
    note.replace(heads[2])
    assert note.read() == heads[2]


@pytest.mark.parametrize("share", [0.0, 0.4, 0.9])
def test_a_log_cut_while_it_is_open_is_noticed(path: Path, share: float) -> None:
    ledger, other = Ledger.open(path), Ledger.open(path)
    charge(ledger)
    charge(other)
    os.truncate(f"{path}-wal", int(share * os.path.getsize(f"{path}-wal")))
    uses: list[Callable[[Ledger], object]] = [charge, Ledger.budgets, lambda each: each.policy("patients")]
    for each in (ledger, other):
        for use in uses:
            with pytest.raises(LedgerError, match=r"DPSQL-L051" if each is other else r"DPSQL-L0(51|04)"):
                use(each)  # the first one has not seen how long the log was, and SQLite cannot read it
    other.close()
    ledger.close()
    with pytest.raises(LedgerError, match=LOST):
        answers(path)


def test_a_log_that_another_process_moves_into_the_file_is_not_cut(path: Path) -> None:
    ledger, other = Ledger.open(path), Ledger.open(path)
    for _ in range(3):
        charge(ledger)
        charge(other)
        other.checkpoint()
        assert os.path.getsize(f"{path}-wal") == 0
        ledger.budgets()
    assert charge(ledger) == 10
    ledger.close()
    other.close()


def test_accepting_says_and_records_what_is_lost(path: Path) -> None:
    ledger = Ledger.open(path)
    lost, known = ledger.entries()[-1].hash, ledger.id
    ledger.close()
    shutil.copyfile(earlier(path), path)
    done = CliRunner().invoke(main, ["ledger", "accept", "--ledger", str(path)])
    assert done.exit_code == 0, done.output
    assert f"Forgotten: entry 3 ({lost[:8]})" in done.output
    assert "ok: the ledger holds 2 entries." in done.output
    ledger = Ledger.open(path)
    (recorded,) = ledger.declarations().latest[f"ledger {known[:16]}"].values()
    assert (recorded.kind, recorded.function) == ("accept", "dpsql ledger accept")
    assert recorded.facts == {"entries": 1, "noted": 3, "hash": lost, "ledger": known}
    assert charge(ledger) == 3
    ledger.close()
    done = CliRunner().invoke(main, ["ledger", "accept", "--ledger", str(path)])
    assert (done.exit_code, done.output) == (0, "ok: the ledger holds 3 entries.\n")


def test_restoring_an_earlier_backup_says_and_records_what_is_lost(path: Path) -> None:
    path.unlink()
    done = restore(str(earlier(path)), str(path))
    assert done.lost is not None
    assert (done.entries, done.lost.sequence, done.aside) == (2, 3, None)
    assert answers(path) == 2


def test_restoring_a_whole_backup_after_a_loss_forgets_nothing(path: Path, tmp_path: Path) -> None:
    whole = shutil.copy(path, tmp_path / "whole")
    shutil.copyfile(earlier(path), path)
    done = restore(str(whole), str(path))
    assert (done.entries, done.lost, done.has_note) == (3, None, True)
    assert answers(path) == 3


# A database knows its ledger, and the ledger its databases.


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database with a table that is protected in its ledger."""
    place = tmp_path / "patients.duckdb"
    connection = dpsql.connect(place)
    connection.execute("CREATE TABLE patients AS SELECT range AS age FROM range(100)")
    connection.execute("SELECT dp_protect('patients', epsilon := 1)")
    connection.close()
    return place


@pytest.mark.long
def test_a_marked_database_whose_ledger_forgot_it_is_refused(database: Path, tmp_path: Path) -> None:
    ledger = Path(f"{database}.dpsql-ledger")
    opened = Ledger.open(ledger)
    known = opened.id
    opened.close()
    fresh = Ledger.open(tmp_path / "fresh")  # the same ledger without any entry, and without a note
    fresh._opened().write(
        lambda connection: connection.exec_driver_sql(
            "UPDATE dpsql_ledger_meta SET value = ? WHERE key = 'ledger_id'", (known,)
        )
    )
    fresh.close()
    shutil.copyfile(tmp_path / "fresh", ledger)
    Path(f"{ledger}.head").unlink()
    with pytest.raises(LedgerError, match=r"DPSQL-L054.*holds nothing about it"):
        dpsql.connect(database)
    other = dpsql.connect(ledger=ledger)
    other.execute(f"ATTACH '{database}' AS p (READ_ONLY)")
    with pytest.raises(duckdb.Error, match="DPSQL-L054"):
        other.execute("FROM dp_count('p.patients', epsilon := 100)")
    other.close()
    done = CliRunner().invoke(main, ["ledger", "adopt", str(database)])
    assert done.exit_code == 0, done.output
    connection = dpsql.connect(database)
    connection.execute("SELECT dp_protect('patients', epsilon := 1)")
    connection.close()


def test_a_refused_declaration_leaves_no_mark(tmp_path: Path) -> None:
    place = tmp_path / "patients.duckdb"
    connection = dpsql.connect(place)
    connection.execute("CREATE TABLE patients AS SELECT range AS age, 0 AS id FROM range(100)")
    connection.execute("CREATE TABLE visits AS SELECT range AS id, 0 AS age FROM range(100)")
    for refused in (
        "SELECT dp_protect('patients', epsilon := 1, privacy_unit := 'nobody')",
        "SELECT dp_protect('patients', epsilon := 1, public := ['visits'])",
        "SELECT dp_derive('visits', 'patients')",
    ):
        with pytest.raises(duckdb.Error, match="DPSQL-"):
            connection.execute(refused)
    connection.close()
    dpsql.connect(place).close()


# Two names.


def test_a_ledger_under_two_names_is_refused(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "second"
    os.link(path, other)
    for each in (path, other):
        for read_only in (False, True):
            with pytest.raises(LedgerError, match=r"DPSQL-L052.*hard link"):
                Ledger.open(each, read_only=read_only)
    other.unlink()
    assert answers(path) == 3


def test_a_second_name_made_while_a_ledger_is_open_is_refused(path: Path, tmp_path: Path) -> None:
    ledger = Ledger.open(path)
    charge(ledger)
    os.link(path, tmp_path / "second")
    uses: list[Callable[[Ledger], object]] = [charge, Ledger.budgets, Ledger.declarations, Ledger.verify]
    for use in uses:
        with pytest.raises(LedgerError, match="DPSQL-L052"):
            use(ledger)
    with pytest.raises(LedgerError, match="DPSQL-L052"):
        ledger.charge(Charge("patients", **CALL), lambda: "secret")
    (tmp_path / "second").unlink()
    assert charge(ledger) == 5
    ledger.close()


def test_a_second_name_that_making_the_ledger_left_is_removed(path: Path) -> None:
    left = Path(f"{path}.0123abcd.new")
    os.link(path, left)  # as where the process was killed between the two names
    assert answers(path) == 3
    assert not left.exists()


def test_a_symbolic_link_is_the_file(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    ledger, same = Ledger.open(path), Ledger.open(link)
    assert [charge(ledger), charge(same), charge(ledger)] == [4, 5, 6]
    assert not Path(f"{link}-wal").exists()
    assert not Path(f"{link}.head").exists()
    ledger.close()
    same.close()


MAKING = """
import sys
from dpsql.ledger.ledger import Charge, Ledger
ledger = Ledger.open(sys.argv[1])
call = {"event": {"mechanism": "exponential_noise", "epsilon": "0.1"}, "function": "dp_sis", "arguments": {"k": 2}}
print(ledger.charge(Charge("patients", **call), lambda: 1).sequence)
ledger.close()
"""


@pytest.mark.long
def test_processes_that_make_one_ledger_at_once_do_not_trip_over_its_names(tmp_path: Path) -> None:
    place = str(tmp_path / "x")
    children = [
        subprocess.Popen([sys.executable, "-c", MAKING, place], stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    assert sorted(int(child.communicate()[0]) for child in children) == [1, 2, 3, 4]
    found = NotedHead(place).read()
    assert found is not None
    assert found.sequence == 4
    assert sorted(each.name for each in tmp_path.iterdir()) == ["x", "x.head"]
