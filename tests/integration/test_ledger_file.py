"""A ledger's file that is deleted, replaced, moved, emptied, cut short, copied, or may not be written."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dpsql.errors import LedgerError
from dpsql.ledger.ledger import Budget, Charge, Ledger
from support.cases import cases

CALL: dict[str, Any] = {
    "event": {"mechanism": "exponential_noise", "epsilon": "0.1"},
    "function": "dp_sis",
    "arguments": {"k": 2},
}
USES: dict[str, Callable[[Ledger], Any]] = {
    "charge": lambda ledger: ledger.charge(Charge("patients", **CALL), lambda: 1),
    "charge_failure": lambda ledger: ledger.charge_failure(Charge("patients", **CALL)),
    "protect": lambda ledger: ledger.protect("others", Budget.of(epsilon=1)),
    "declare": lambda ledger: ledger.declare("public", "airports", {}, "dp_public"),
    "check": lambda ledger: ledger.check(Charge("patients", **CALL)),
    "policy": lambda ledger: ledger.policy("patients"),
    "replay": lambda ledger: ledger.replay("patients", "weekly", "0"),
    "declarations": Ledger.declarations,
    "budgets": Ledger.budgets,
}
WRITES = ("charge", "charge_failure", "protect", "declare")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger of one budget and one release, closed."""
    path = tmp_path / "x.duckdb.dpsql-ledger"
    ledger = Ledger.open(path)
    ledger.protect("patients", Budget.of(epsilon=1))
    USES["charge"](ledger)
    ledger.close()
    return path


def _replace(path: Path) -> None:
    other = path.with_name("other")
    Ledger.open(other).close()
    os.replace(other, path)


CHANGES: dict[str, Callable[[Path], Any]] = {
    "deleted": Path.unlink,
    "moved": lambda path: path.rename(path.with_name("moved")),
    "replaced": _replace,
    "replaced by its own copy": lambda path: (
        shutil.copy(path, path.with_name("y")),
        os.replace(f"{path.parent}/y", path),
    ),
    "log deleted": lambda path: Path(f"{path}-wal").unlink(),
    "folder moved": lambda path: path.parent.rename(path.parent.with_name("moved")),
}


@cases("change", CHANGES, quick=4, alone=True)
def test_a_file_that_is_gone_is_noticed_by_every_use(path: Path, change: str) -> None:
    ledger = Ledger.open(path)
    USES["charge"](ledger)
    CHANGES[change](path)
    for use in USES.values():
        with pytest.raises(LedgerError, match=r"DPSQL-L031.*deleted, replaced or moved"):
            use(ledger)
    ledger.close()


def test_a_file_deleted_while_noise_is_drawn_releases_nothing(path: Path) -> None:
    ledger = Ledger.open(path)
    with pytest.raises(LedgerError, match="DPSQL-L031"):
        ledger.charge(Charge("patients", **CALL), lambda: path.unlink() or "secret")
    ledger.close()


def test_a_file_put_back_is_used_again(path: Path) -> None:
    ledger = Ledger.open(path)
    USES["charge"](ledger)
    away = path.rename(path.with_name("away"))
    with pytest.raises(LedgerError, match="DPSQL-L031"):
        USES["charge"](ledger)
    away.rename(path)
    assert USES["charge"](ledger).sequence == 4
    ledger.close()


def test_an_earlier_copy_written_over_the_file_is_noticed(path: Path) -> None:
    earlier = shutil.copy(path, path.with_name("earlier"))
    ledger = Ledger.open(path)
    USES["charge"](ledger)
    ledger.checkpoint()
    path.write_bytes(earlier.read_bytes())  # the same inode
    with pytest.raises(LedgerError, match=r"DPSQL-L031.*replaced"):
        USES["charge"](ledger)
    ledger.close()


def test_closing_a_ledger_whose_file_was_replaced_leaves_the_log_of_the_new_one(path: Path) -> None:
    ledger = Ledger.open(path)
    USES["charge"](ledger)
    for name in (path, *(Path(f"{path}{ending}") for ending in ("-wal", "-shm", ".head"))):
        name.rename(name.with_name("old" + name.name))
    new = Ledger.open(path)
    USES["charge"](new)
    ledger.close()
    other = Ledger.open(path)
    assert other.verify().entries == 1
    other.close()
    new.close()


def test_an_empty_file_is_no_new_ledger(path: Path) -> None:
    path.write_bytes(b"")
    with pytest.raises(LedgerError, match=r"DPSQL-L032.*empty"):
        Ledger.open(path)
    assert path.read_bytes() == b""


def test_another_sqlite_database_is_no_new_ledger(tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "x") as connection:
        connection.execute("CREATE TABLE t (a)")
    connection.close()
    with pytest.raises(LedgerError, match="DPSQL-L005"):
        Ledger.open(tmp_path / "x")


def test_a_file_cut_short_anywhere_is_refused(path: Path) -> None:
    content = path.read_bytes()
    lengths = {
        1,
        16,
        99,
        100,
        511,
        512,
        len(content) - 1,
        *range(1000, len(content), 1024),
        *range(4096, len(content), 4096),
    }
    for length in sorted(lengths):
        path.write_bytes(content[:length])
        with pytest.raises(LedgerError, match=r"DPSQL-L0(05|30|10)"):
            ledger = Ledger.open(path)
            USES["charge"](ledger)
        path.with_name(path.name + "-wal").unlink(missing_ok=True)
        path.with_name(path.name + "-shm").unlink(missing_ok=True)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_file_cut_short_while_it_is_open_is_refused(path: Path, share: float) -> None:
    ledger = Ledger.open(path)
    ledger.checkpoint()  # no page is left in memory
    os.truncate(path, int(share * path.stat().st_size))
    for use in ("charge", "budgets", "policy", "declarations"):
        with pytest.raises(LedgerError, match=r"DPSQL-L0(05|10|30|32)"):
            USES[use](ledger)
    ledger.close()


def test_a_file_emptied_while_pages_are_in_memory_is_refused(path: Path) -> None:
    ledger = Ledger.open(path)
    USES["charge"](ledger)
    os.truncate(path, 0)
    for use in USES.values():
        with pytest.raises(LedgerError, match=r"DPSQL-L0(05|32)"):
            use(ledger)
    ledger.close()


def copies(path: Path) -> int:
    """Return the entries in a copy of the file alone."""
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    ledger = Ledger.open(copy)
    report = ledger.verify()
    ledger.close()
    copy.unlink()
    assert report.ok
    return report.entries


def test_a_copy_after_close_is_whole_at_every_step(path: Path) -> None:
    for entries in range(3, 8):
        ledger = Ledger.open(path)
        USES["charge" if entries != 5 else "protect"](ledger)
        ledger.close()
        assert copies(path) == entries
        assert not Path(f"{path}-wal").exists()


def test_a_copy_after_close_is_whole_while_others_have_it_open(path: Path) -> None:
    other, ledger = Ledger.open(path), Ledger.open(path)
    other.budgets()
    USES["charge"](ledger)
    ledger.close()
    assert copies(path) == 3
    USES["charge"](other)
    other.checkpoint()
    assert copies(path) == 4
    assert USES["charge"](other).sequence == 5
    other.close()


_killed = """
import os, sys
from dpsql.ledger.ledger import Charge, Ledger
ledger = Ledger.open(sys.argv[1])
call = {"event": {"mechanism": "exponential_noise", "epsilon": "0.1"}, "function": "dp_sis", "arguments": {"k": 2}}
for _ in range(int(sys.argv[2])):
    ledger.charge(Charge("patients", **call), lambda: 1)
ledger.charge(Charge("patients", **call), lambda: os.kill(os.getpid(), 9))
"""


@pytest.mark.long
def test_what_was_acknowledged_before_a_kill_is_there_after_the_next_close(path: Path) -> None:
    entries = 2
    for charges in (0, 1, 3):
        killed = subprocess.run([sys.executable, "-c", _killed, str(path), str(charges)], check=False)
        assert killed.returncode == -signal.SIGKILL
        entries += charges
        together = path.with_name("together")
        shutil.copyfile(path, together)
        for ending in ("-wal", ".head"):  # after a kill the log belongs to the file
            shutil.copyfile(f"{path}{ending}", f"{together}{ending}")
        ledger = Ledger.open(together)
        assert ledger.verify().entries == entries
        ledger.close()
        ledger = Ledger.open(path)
        assert ledger.verify().entries == entries
        ledger.close()
        assert copies(path) == entries


@pytest.fixture
def read_only(path: Path) -> Iterator[Path]:
    """The ledger in a folder that others than its owner may only read."""
    folder = Path(tempfile.mkdtemp())  # not below tmp_path, which others may not enter
    place = folder / path.name
    shutil.copyfile(path, place)
    place.chmod(0o444)
    folder.chmod(0o555)
    yield place
    folder.chmod(0o755)
    shutil.rmtree(folder)


def as_nobody(work: Callable[[], None]) -> None:
    """Run `work` in a fork of this process as a user who owns nothing."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("version", [1, 2])
def test_a_ledger_in_a_read_only_folder_can_be_read(read_only: Path, version: int) -> None:
    import dpsql.ledger.store
    import dpsql.ledger.transaction  # noqa: F401 - before the user changes

    if version == 1:
        read_only.parent.chmod(0o755)
        shutil.copyfile(Path(__file__).parents[1] / "fixtures" / "version_1_protected.sqlite", read_only)
        read_only.parent.chmod(0o555)
    before = read_only.read_bytes()

    def work() -> None:
        ledger = Ledger.open(read_only)
        assert ledger.budgets()[-1].dataset == "patients"
        assert len(ledger.entries()) == (5 if version == 1 else 2)
        assert ledger.policy("patients") is not None
        assert ledger.declarations().counter == 1
        assert ledger.verify().ok
        for name in (*WRITES, "check"):
            with pytest.raises(LedgerError, match="DPSQL-L003"):
                USES[name](ledger)
        ledger.close()

    as_nobody(work)
    assert read_only.read_bytes() == before
    assert [each.name for each in read_only.parent.iterdir()] == [read_only.name]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_reader_without_rights_sees_what_is_still_in_the_log(read_only: Path) -> None:
    import dpsql.ledger.store
    import dpsql.ledger.transaction  # noqa: F401 - before the user changes

    if os.geteuid() != 0:
        pytest.skip("one user cannot be two")
    ready, go_on = os.pipe(), os.pipe()

    def work() -> None:
        ledger = Ledger.open(read_only)
        assert len(ledger.entries()) == 2
        os.write(ready[1], b"x")
        os.read(go_on[0], 1)
        assert len(ledger.entries()) == 3  # it is in the log by now
        ledger.close()

    child = os.fork()
    if child == 0:
        try:
            as_nobody(work)
        except BaseException:
            os._exit(1)
        os._exit(0)
    os.read(ready[0], 1)
    owner = Ledger.open(read_only)
    USES["charge"](owner)
    os.write(go_on[1], b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    owner.close()


@pytest.mark.parametrize("version", [1, 2])
def test_reading_changes_nothing(path: Path, version: int) -> None:
    if version == 1:
        shutil.copyfile(Path(__file__).parents[1] / "fixtures" / "version_1_protected.sqlite", path)
        Path(f"{path}.head").unlink()
    before = path.read_bytes()
    ledger = Ledger.open(path, read_only=True)
    assert ledger.verify().ok
    assert {row.dataset for row in ledger.budgets()} >= {"patients"}
    assert len(ledger.entries()) == (5 if version == 1 else 2)
    if version == 1:
        entry = ledger.replay("patients", "weekly", Ledger.fingerprint("patients", "dp_sis", {"k": 2}))
        assert entry is not None
        assert entry.result == ["g17", "größe"]
        assert ledger.releases(["dp_sis"], None, "weekly")[0].sequence == 2
    for name in WRITES:
        with pytest.raises(LedgerError, match="DPSQL-L003"):
            USES[name](ledger)
    ledger.close()
    assert path.read_bytes() == before


def test_reading_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="DPSQL-L001"):
        Ledger.open(tmp_path / "x", read_only=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_folder_that_may_not_be_written_gets_no_ledger(read_only: Path) -> None:
    import dpsql.ledger.store  # noqa: F401 - before the user changes

    def work() -> None:
        with pytest.raises(LedgerError, match="DPSQL-L003"):
            Ledger.open(read_only.with_name("new"))

    as_nobody(work)
