"""Handle a ledger's file: its name next to a database, its creation, and the check that it is still the opened file."""

from __future__ import annotations

import glob
import os
import secrets
import sqlite3
import stat
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from dpsql.errors import LedgerError

SUFFIX = ".dpsql-ledger"
_duckdb_magic = b"DUCK"  # at byte 8 of every DuckDB database file

_settling_seconds = 2  # closing waits this long for readers in other processes
_attempts = 20
_log_header, _frame_header = 32, 24  # https://sqlite.org/walformat.html

T = TypeVar("T")
Identity = tuple[int, int] | None  # device and inode; None without a file


class LedgerFile:
    """The open file of a store.

    SQLite continues to write to a file that was unlinked, and does not notice another file under the same name. So the
    store compares the file in every transaction.

    Parameters
    ----------
    path : str
        The path with every link resolved.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_read_only = _is_read_only(path)
        self.has_log = _has_log(path)
        self._identity: Identity = None
        self._log_size = 0

    @property
    def number(self) -> str | None:
        """The file's number on its disk; the disk's own number changes when it is mounted."""
        identity = _identity_of(self.path)
        return None if identity is None else str(identity[1])

    def connect(self, *, timeout: float, check_same_thread: bool) -> sqlite3.Connection:
        """Open a file without write permission for it or its folder."""
        # Nobody writes without a log; `read` notices a change.
        mode = "mode=ro" if _has_log(self.path) else "immutable=1"
        connection: sqlite3.Connection = sqlite3.connect(
            f"{Path(self.path).as_uri()}?{mode}", uri=True, timeout=timeout, check_same_thread=check_same_thread
        )
        return connection

    def note(self, info: MutableMapping[str, object]) -> None:
        """Note the files that a new connection has opened."""
        info["dpsql_files"] = files = self._files()
        if self._identity is None:
            self._identity = files[0]

    def refuse_moved(self, info: MutableMapping[str, object]) -> None:
        """Raise unless the connection's files are still the same.

        Raises
        ------
        LedgerError
            L031; L032 if the file was emptied; L052 if it has a second name.
        """
        refuse_linked(self.path)
        files = self._files()
        if files != info["dpsql_files"] or files[0] != self._identity:
            refuse_empty(self.path)
            raise LedgerError(
                "L031",
                f"the file of ledger {self.path!r} was deleted, replaced or moved while it was open. Nothing was "
                "released. Put the file back, or restore a backup with dpsql ledger restore; then connect again.",
            )

    def refuse_cut(self, connection: sqlite3.Connection) -> None:
        """Raise if the log was cut: cached pages would continue to answer, and new entries would follow a gap.

        Parameters
        ----------
        connection : sqlite3.Connection
            A connection outside of any transaction.

        Raises
        ------
        LedgerError
            L051.
        """
        if self.is_read_only:
            return
        size = _size_of(f"{self.path}-wal")
        if size < self._log_size and not self._is_whole(connection):
            raise LedgerError(
                "L051",
                f"the log of ledger {self.path!r} was cut short while it was open, and its last entries with it. "
                "Nothing was released. Close the ledger everywhere and put the log back, or restore a backup with "
                "dpsql ledger restore.",
            )
        self._log_size = size

    def _is_whole(self, connection: sqlite3.Connection) -> bool:
        """Whether a shorter log means that its contents are in the file now.

        Only SQLite can tell: a process that opens one of its files separately and closes it releases SQLite's locks.
        """
        (page,) = connection.execute("PRAGMA page_size").fetchone()
        for _ in range(_attempts):
            try:
                _, frames, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            except sqlite3.Error:  # it cannot read missing files
                return False
            if frames == moved or _size_of(f"{self.path}-wal") >= _log_header + frames * (_frame_header + page):
                return True
        return False

    def read(self, run: Callable[[], T]) -> T:
        """Run a read that the file's writer cannot see; repeat it if the file changed."""
        failure = LedgerError("L002", f"ledger {self.path!r} is being written all the time. Try again.")
        for _ in range(_attempts):
            before = _state_of(self.path)
            try:
                result = run()
            except LedgerError as error:
                failure = error
            else:
                if _state_of(self.path) == before:
                    return result
                continue
            if _state_of(self.path) == before:
                break
        raise failure

    def _files(self) -> tuple[Identity, Identity]:
        return _identity_of(self.path, least=1), None if self.is_read_only else _identity_of(f"{self.path}-wal")


def checkpoint(connection: sqlite3.Connection, *, wait: bool = True) -> None:
    """Move the contents of the log into the file, so that a copy of the file alone is complete.

    Without `wait`, the log keeps pages that others are reading now.
    """
    if not wait:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").close()
        return
    connection.execute(f"PRAGMA busy_timeout = {1000 * _settling_seconds}").close()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()


def beside(database: str | os.PathLike[str]) -> Path:
    """Return the ledger of a database file: ``x.duckdb.dpsql-ledger`` next to ``x.duckdb``.

    A ledger of an earlier dpsql, ``x.dpsql-ledger``, is used while the other file does not exist.

    Raises
    ------
    LedgerError
        L035: the earlier name fits two databases of this folder.
    """
    path = Path(database)
    appended = path.with_name(path.name + SUFFIX)
    earlier = path.with_suffix(SUFFIX)
    if not earlier.exists() or (appended.exists() and appended != earlier):
        return appended
    others = [other.name for other in _databases_of(earlier) if other.name != path.name]
    if others:
        raise LedgerError(
            "L035",
            f"the ledger {str(earlier)!r} may belong to {path.name!r} or to {others[0]!r}. Give ledger := the right "
            f"file, or rename the ledger to {appended.name if appended != earlier else others[0] + SUFFIX!r} "
            "if it is that database's.",
        )
    return earlier


def _databases_of(earlier: Path) -> list[Path]:
    """Return the DuckDB databases that a ledger with the earlier name may belong to."""
    return sorted(
        path
        for path in earlier.parent.iterdir()
        if path.with_suffix(SUFFIX) == earlier
        and path != earlier
        and not (path.suffix and path.with_name(path.name + SUFFIX).exists())
        and _is_database(path)
    )


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(12)[8:] == _duckdb_magic
    except OSError:
        return False


def _identity_of(path: str, *, least: int = 0) -> Identity:
    """Return the identity of a file of at least a given size, valid while the file is open."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if status.st_size >= least else None


def _size_of(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _state_of(path: str) -> tuple[object, ...]:
    """Return the file attributes that change with each write to a ledger."""
    seen: list[object] = []
    for name in (path, f"{path}-wal"):
        try:
            status = os.stat(name)
        except OSError:
            seen.append(None)
        else:
            seen.append((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(seen)


def _has_log(path: str) -> bool:
    return _size_of(f"{path}-wal") > 0


def _is_read_only(path: str) -> bool:
    """Whether this user lacks write permission for the file or its folder, which contains SQLite's log."""
    return os.path.isfile(path) and not (os.access(path, os.W_OK) and os.access(os.path.dirname(path) or ".", os.W_OK))


def refuse_empty(path: str) -> None:
    """Raise if the file exists but is empty: a ledger is never empty, so its entries are lost."""
    try:
        is_empty = os.path.getsize(path) == 0 and os.path.isfile(path)
    except OSError:  # the file does not exist
        return
    if is_empty:
        raise LedgerError(
            "L032",
            f"ledger {path!r} is an empty file, and a ledger never is: its entries are gone. Restore a backup with "
            "dpsql ledger restore --set-aside; delete the file only if nothing was ever released under it.",
        )


def refuse_linked(path: str) -> None:
    """Raise if the file has a second name: SQLite finds the log by name, so two names would be two ledgers.

    Raises
    ------
    LedgerError
        L052.
    """
    if _links(path) < 2:
        return
    for draft in glob.glob(f"{glob.escape(path)}.????????.new"):  # its creator was killed, or is still writing
        with suppress(OSError):
            if os.path.samefile(draft, path):
                os.unlink(draft)
    if _links(path) > 1:
        raise LedgerError(
            "L052",
            f"the file of ledger {path!r} has a second name (a hard link), and under each name it would grant its "
            "budgets anew. Nothing was released. Remove the other name, or put a copy in the place of this one.",
        )


def _links(path: str) -> int:
    """Return a file's number of names; 0 for a folder."""
    try:
        status = os.stat(path)
    except OSError:
        return 0
    return status.st_nlink if stat.S_ISREG(status.st_mode) else 0


def create(path: str, content: bytes) -> None:
    """Write a new file completely or not at all; do not replace an existing file."""
    folder = os.path.dirname(path) or "."
    draft = f"{path}.{secrets.token_hex(4)}.new"
    try:
        with open(draft, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return
        except OSError:  # a file system without hard links
            if os.path.exists(path):
                return
            os.rename(draft, path)
    finally:
        with suppress(FileNotFoundError):  # renamed, or removed by `refuse_linked`
            os.unlink(draft)
    sync_folder(folder)


def sync_folder(folder: str) -> None:
    """Wait until the folder's entries are on disk, if the system supports it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
