"""The file of a ledger: its name beside a database, its creation, and whether it is still the file that was opened."""

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

_settling_seconds = 2  # how long closing waits for readers in other processes
_attempts = 20
_log_header, _frame_header = 32, 24  # https://sqlite.org/walformat.html

T = TypeVar("T")
Identity = tuple[int, int] | None  # device and inode; None where there is no file


class LedgerFile:
    """The file that a store has open.

    SQLite goes on writing to a file that nobody can find any more, and takes another file under its name for the same
    one. So it is compared in every transaction.

    Parameters
    ----------
    path : str
        With every link resolved.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_read_only = _is_read_only(path)
        self.has_log = _has_log(path)
        self._identity: Identity = None
        self._log_size = 0

    @property
    def number(self) -> str | None:
        """The number of the file on its disk; that of the disk changes when it is mounted."""
        identity = _identity_of(self.path)
        return None if identity is None else str(identity[1])

    def connect(self, *, timeout: float, check_same_thread: bool) -> sqlite3.Connection:
        """Open a file without write permission for it or its folder."""
        # Without a log nobody is writing; `read` notices if that changes.
        mode = "mode=ro" if _has_log(self.path) else "immutable=1"
        connection: sqlite3.Connection = sqlite3.connect(
            f"{Path(self.path).as_uri()}?{mode}", uri=True, timeout=timeout, check_same_thread=check_same_thread
        )
        return connection

    def note(self, info: MutableMapping[str, object]) -> None:
        """Note which files a new connection has opened."""
        info["dpsql_files"] = files = self._files()
        if self._identity is None:
            self._identity = files[0]

    def refuse_moved(self, info: MutableMapping[str, object]) -> None:
        """Raise unless the files are still those that the connection has opened.

        Raises
        ------
        LedgerError
            L031, or L032 where it was emptied; L052 where it has a second name.
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
        """Raise if the log was cut: pages in memory would go on answering, and new entries would follow on a hole.

        Parameters
        ----------
        connection : sqlite3.Connection
            Outside of any transaction.

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
        """Whether a log that is shorter than before was moved into the file.

        SQLite itself must tell: whoever opens one of its files beside it takes its locks away when he closes it.
        """
        (page,) = connection.execute("PRAGMA page_size").fetchone()
        for _ in range(_attempts):
            try:
                _, frames, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            except sqlite3.Error:  # it cannot read what is there no more
                return False
            if frames == moved or _size_of(f"{self.path}-wal") >= _log_header + frames * (_frame_header + page):
                return True
        return False

    def read(self, run: Callable[[], T]) -> T:
        """Run a read that the file's writer, if there is one, cannot know of; again when the file was written to."""
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

    Without `wait`, what others read at this moment stays in the log.
    """
    if not wait:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").close()
        return
    connection.execute(f"PRAGMA busy_timeout = {1000 * _settling_seconds}").close()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()


def beside(database: str | os.PathLike[str]) -> Path:
    """Return the ledger that belongs to a database file: ``x.duckdb.dpsql-ledger`` beside ``x.duckdb``.

    A ledger of an earlier dpsql, ``x.dpsql-ledger``, is found as long as the other does not exist.

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
    """Return the DuckDB databases that a ledger of the earlier name may belong to."""
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
    """Return what identifies a file of at least a given size, as long as it is held open."""
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
    """Return what the file system changes when a ledger is written."""
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
    """Whether this user lacks write permission for the file or its folder, where SQLite keeps its log."""
    return os.path.isfile(path) and not (os.access(path, os.W_OK) and os.access(os.path.dirname(path) or ".", os.W_OK))


def refuse_empty(path: str) -> None:
    """Raise if the file exists but is empty: a ledger never is, so its entries are lost."""
    try:
        is_empty = os.path.getsize(path) == 0 and os.path.isfile(path)
    except OSError:  # there is none
        return
    if is_empty:
        raise LedgerError(
            "L032",
            f"ledger {path!r} is an empty file, and a ledger never is: its entries are gone. Restore a backup with "
            "dpsql ledger restore --set-aside; delete the file only if nothing was ever released under it.",
        )


def refuse_linked(path: str) -> None:
    """Raise if the file has a second name: SQLite finds the log by the name, so two names would be two ledgers.

    Raises
    ------
    LedgerError
        L052.
    """
    if _links(path) < 2:
        return
    for draft in glob.glob(f"{glob.escape(path)}.????????.new"):  # whoever made the file was killed, or is making it
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
    """Return how many names a file has; 0 for a folder."""
    try:
        status = os.stat(path)
    except OSError:
        return 0
    return status.st_nlink if stat.S_ISREG(status.st_mode) else 0


def create(path: str, content: bytes) -> None:
    """Write a new file completely or not at all; an existing one is kept."""
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
