"""The store of a ledger: its transactions, its file, its note and forks, for both SQLite and PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Engine, create_engine, inspect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import StaticPool

from dpsql.errors import PASSING, UNWRITABLE, DpsqlError, LedgerError
from dpsql.ledger import schema
from dpsql.ledger.chain import SUFFIX, Head, NotedHead
from dpsql.ledger.database import engine_of
from dpsql.ledger.failures import LOCK_WAIT_SECONDS, explain, failure_of, meaning_of
from dpsql.ledger.file import LedgerFile, checkpoint, create, refuse_empty, refuse_linked
from dpsql.ledger.schema import upgrade
from dpsql.ledger.spent import Spent
from dpsql.ledger.url import describe, url_of
from dpsql.progress import held_back

_PAUSE_SECONDS = 0.1
_is_id = re.compile("[0-9a-f]{32}").fullmatch
_NOTE = "noted_head"  # in the ledger: a note of its last entry stands beside it

T = TypeVar("T")


class Store:
    """A database engine for one ledger, which runs a function inside one transaction.

    Parameters
    ----------
    location : str or None
        None for memory, a path of a SQLite file, or a URL.
    read_only : bool
        Only read, and change nothing: neither create nor upgrade.
    accept : bool
        Make a new ledger where there is none any more, whatever was noted of the one before.
    """

    def __init__(
        self, location: str | os.PathLike[str] | None, *, read_only: bool = False, accept: bool = False
    ) -> None:
        self._url = url_of(location)
        self._proven = False
        self.in_memory = self._url.get_backend_name() == "sqlite" and self._url.database is None
        self._is_sqlite = self._url.get_backend_name() == "sqlite"
        self._pid = os.getpid()
        self._file = LedgerFile(str(self._url.database)) if self._is_sqlite and not self.in_memory else None
        self._note = None if self._file is None else NotedHead(self._file.path)
        self._accepts = accept
        self.keeps_note = False
        self.is_read_only = read_only or (self._file is not None and self._file.is_read_only)
        # One writer per process at a time: waiting here is fair and cheap, SQLite's busy handler is neither.
        self.lock = threading.RLock()
        self._engine = engine_of(self._url, self._file, is_read_only=self.is_read_only)
        self._writer = self._engine.execution_options(dpsql_write=True)
        self._reader = self._engine
        if not self._is_sqlite:  # where otherwise each statement would see a state of its own
            self._reader = self._engine.execution_options(isolation_level="REPEATABLE READ")
        self._finalizer = weakref.finalize(self, _checkpoint, self._engine, self._file)
        _stores.add(self)
        self.version = schema.SCHEMA_VERSION
        self.verified: dict[object, tuple[object, ...]] = {}  # rows by their sequence, as `Transaction` verified them
        # What principals spent in a period, as `accounts` composed it.
        self.composed: dict[object, tuple[int, str, Spent]] = {}
        try:
            self.ledger_id = self._initialise()
        except BaseException:
            self.close()
            raise

    @property
    def description(self) -> str:
        """The location in words, without secrets."""
        return describe(self._url, proven=self._proven)

    @property
    def file_number(self) -> str | None:
        """The number of the ledger's file on its disk, which no copy has; None without a file."""
        return None if self._file is None else self._file.number

    def close(self) -> None:
        """Close every connection; a SQLite file then holds everything."""
        with held_back():
            self._finalizer()

    def checkpoint(self) -> None:
        """Write everything to the SQLite file, as `close` does, and stay open."""
        if self._file is not None:
            _checkpoint(self._engine, self._file)

    def read_note(self) -> Head | None:
        """Return which entry was noted as the last one; None where a note is not kept, or not there."""
        return None if self._note is None else self._note.read()

    @property
    def has_log(self) -> bool:
        """Whether there was a log when the ledger was opened: somebody has it open, or did not close it."""
        return self._file is not None and self._file.has_log

    def keep_note(self) -> None:
        """Record in the ledger that a note is kept, and move what is in the log alone into the file."""
        if self._note is not None and not self.keeps_note:
            self.write(_keep_note)
            self.keeps_note = True
        if self.has_log:
            with held_back():
                _checkpoint(self._engine, self._file, wait=False)

    def note(self, head: tuple[int, str], *, replace: bool = False) -> None:
        """Note the last entry, and wait for the disk; with `replace`, whatever was noted before.

        Raises
        ------
        LedgerError
            L003, L004: the note cannot be written. Nobody may be told of the entry then.
        """
        if self._note is None or self.is_read_only:
            return
        found = Head(*head, self.ledger_id)
        try:
            (self._note.replace if replace else self._note.write)(found)
            return
        except OSError as error:
            meaning = meaning_of(error)
        raise failure_of(meaning, self._note.path)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one transaction that sees one state of the ledger."""
        if self._file is not None and self._file.is_read_only:
            return self._file.read(lambda: self._run(self._reader, work))
        return self._run(self._reader, work)

    def write(self, work: Callable[[Connection], T], stands: Callable[[Connection, T], bool] | None = None) -> T:
        """Run `work` as the ledger's only writer, and return once its rows are on disk.

        Parameters
        ----------
        work : callable
        stands : callable, optional
            Whether the rows that `work` appended are there. It is asked when a commit fails: the connection may have
            been lost after the server committed.

        Raises
        ------
        LedgerError
            The database refused, and nothing was recorded; or L049: it is not known whether it was.
        """
        self.refuse_read_only()
        return self._run(self._writer, work, stands)

    def refuse_read_only(self) -> None:
        """Raise where nothing can be written."""
        if self.is_read_only:
            raise failure_of("forbidden", self.description)

    def _run(
        self,
        engine: Engine,
        work: Callable[[Connection], T],
        stands: Callable[[Connection, T], bool] | None = None,
    ) -> T:
        """Run a transaction; Ctrl-C waits for its end, but not for a server, which SQLAlchemy may leave at any moment.

        An interrupt in the midst of SQLAlchemy's pool leaves its lock behind, or takes a ledger in memory for broken.
        """
        with held_back() if self._is_sqlite else contextlib.nullcontext():
            return self._run_whole(engine, work, stands)

    def _run_whole(
        self,
        engine: Engine,
        work: Callable[[Connection], T],
        stands: Callable[[Connection, T], bool] | None,
    ) -> T:
        if self.in_memory and self._pid != os.getpid():
            # The child's copy would grant the same budget a second time.
            raise LedgerError(
                "L009", "a ledger in memory cannot be used after a fork. Give ledger= a file, which processes share."
            )
        done: list[T] = []
        try:
            alone = self.lock if self.in_memory or engine is self._writer else contextlib.nullcontext()
            with alone, self._connect(engine) as connection:
                self._refuse_cut(connection)
                with connection.begin():
                    if engine is self._writer:
                        self._refuse_moved(connection)  # before anything is charged
                    done.append(work(connection))
                self._refuse_moved(connection)  # before anybody sees the result
                self._refuse_cut(connection)
                return done[0]
        except DBAPIError as error:
            failure = explain(error, self.description)
        except UnicodeDecodeError:  # SQLite quotes its damaged schema
            failure = failure_of("damaged", self.description)
        except PoolTimeout:
            failure = failure_of("locked", self.description)
        if done and stands is not None and self._committed(lambda connection: stands(connection, done[0])):
            return done[0]
        # Raised here so that no row and no undelivered result is the context of the error.
        raise failure

    def _committed(self, stands: Callable[[Connection], bool]) -> bool:
        """Whether a transaction whose commit failed stands; it is over once its lock is ours."""
        deadline = time.monotonic() + LOCK_WAIT_SECONDS
        while True:
            try:
                return self._run(self._writer, stands)
            except LedgerError as error:
                if error.code not in PASSING or time.monotonic() > deadline:
                    break
            time.sleep(_PAUSE_SECONDS)
        raise failure_of("in doubt", self.description)

    def _refuse_moved(self, connection: Connection) -> None:
        if self._file is not None:
            self._file.refuse_moved(connection.info)

    def _refuse_cut(self, connection: Connection) -> None:
        if self._file is not None:
            self._file.refuse_cut(connection.connection.driver_connection)  # type: ignore[arg-type]

    def _connect(self, engine: Engine) -> Connection:
        if self._is_sqlite:
            return engine.connect()
        failure = None
        try:
            connection = engine.connect()
        except (DBAPIError, PoolTimeout, DpsqlError):
            raise
        except Exception:  # such as an impossible host; its text may quote what it was given
            failure = failure_of("unreachable", self.description)
        if failure:
            raise failure
        self._proven = True
        return connection

    def _initialise(self) -> str:
        """Create the tables unless they are there; return the id that the chain starts from."""
        if self._file is not None:
            directory = Path(self._file.path).parent
            if not directory.is_dir():
                raise LedgerError("L001", f"ledger directory {str(directory)!r} does not exist. Create it first.")
            self._create_file(self._file.path)
        if not self.read(_has_tables):
            if self._file is not None:
                raise failure_of("damaged", self.description)
            self.write(_create_tables)
        facts = self._facts()
        self.keeps_note = _NOTE in facts
        ledger_id, version = facts.get("ledger_id", ""), facts.get("schema_version", "")
        if not version or not _is_id(ledger_id):
            raise failure_of("damaged", self.description)
        if version in schema.UPGRADED_VERSIONS:
            version = self._upgrade(ledger_id, version)
        elif version != schema.SCHEMA_VERSION:
            raise LedgerError(
                "L007",
                f"ledger {self.description!r} has schema version {version}; this dpsql reads version "
                f"{schema.SCHEMA_VERSION}. Use the dpsql that wrote it, or a newer one.",
            )
        self.version = version
        return ledger_id

    def _create_file(self, path: str) -> None:
        """Make a ledger where there is no file; refuse one that is empty, has a second name, or was there before."""
        if not os.path.exists(path):
            if self.is_read_only:
                raise failure_of("path", self.description)
            noted = self.read_note()
            if noted is not None and noted.sequence and not self._accepts:
                raise LedgerError(
                    "L053",
                    f"the ledger {path!r}, which had {noted.sequence} entries, is gone. Nothing was released. Put it "
                    "back, or restore a backup with dpsql ledger restore; if nothing was ever released under it, "
                    f"delete {path + SUFFIX!r}.",
                )
            try:
                create(path, _new_ledger())
            except OSError as error:
                raise failure_of(meaning_of(error), self.description) from None
        refuse_empty(path)
        refuse_linked(path)

    def _upgrade(self, ledger_id: str, version: str) -> str:
        """Upgrade an earlier ledger, or read it as it is where it may not be written; return its version."""
        if not self.is_read_only:
            try:
                self.write(lambda connection: upgrade(connection, ledger_id, self.description))
            except LedgerError as error:
                if error.code not in UNWRITABLE:
                    raise
                self.is_read_only = True
        return version if self.is_read_only else schema.SCHEMA_VERSION

    def _facts(self) -> dict[str, str]:
        return self.read(lambda connection: {row.key: row.value for row in connection.execute(schema.read_meta)})

    @property
    def statements(self) -> schema.Statements:
        """The statements that read this ledger."""
        return schema.statements(self.version)

    def before_fork(self) -> None:
        """Keep transactions and connections from crossing a fork."""
        self.lock.acquire()
        if not self.in_memory:
            # Not Engine.dispose: a connection in use (a draw that forks) must come back to this pool.
            self._engine.pool.dispose()

    def after_fork(self, *, in_child: bool) -> None:
        """Continue in both processes, each with its own connections."""
        if in_child:
            self.lock = threading.RLock()
        else:
            self.lock.release()


_stores: weakref.WeakSet[Store] = weakref.WeakSet()
_forking = threading.Lock()
_held: list[Store] = []


def _before_fork() -> None:
    _forking.acquire()
    _held[:] = list(_stores)
    for store in _held:
        store.before_fork()


def _after_fork(in_child: bool) -> None:
    for store in _held:
        store.after_fork(in_child=in_child)
    _held.clear()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(in_child=False),
        after_in_child=lambda: _after_fork(in_child=True),
    )


def _checkpoint(engine: Engine, file: LedgerFile | None, *, wait: bool = True) -> None:
    """Close the connections that are not in use; a SQLite file then holds everything that nobody else reads."""
    if file is not None and not file.is_read_only and engine.pool.checkedin():  # type: ignore[attr-defined]
        connection = engine.raw_connection()
        try:
            with contextlib.suppress(sqlite3.Error):  # it stays in the log, where the next connection finds it
                checkpoint(connection.driver_connection, wait=wait)  # type: ignore[arg-type]
        finally:
            connection.close()
    engine.pool.dispose()  # a connection in use comes back to this pool


def _new_ledger() -> bytes:
    """Return the file of an empty ledger."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    try:
        with engine.begin() as connection:
            _create_tables(connection)
        driver = engine.raw_connection().driver_connection
        if not isinstance(driver, sqlite3.Connection):
            raise TypeError("SQLAlchemy opened no SQLite connection")
        return driver.serialize()
    finally:
        engine.dispose()


def _keep_note(connection: Connection) -> None:
    """Record that there is a note beside the ledger, once it is there."""
    if _NOTE not in {row.key for row in connection.execute(schema.read_meta)}:
        connection.execute(schema.add_meta, {"key": _NOTE, "value": "1"})


def _has_tables(connection: Connection) -> bool:
    return inspect(connection).has_table(schema.meta.name)


def _create_tables(connection: Connection) -> None:
    if _has_tables(connection):  # another process was first while this one waited for the lock
        return
    schema.metadata.create_all(connection)
    facts = {"schema_version": schema.SCHEMA_VERSION, "ledger_id": secrets.token_hex(16)}
    connection.execute(schema.add_meta, [{"key": key, "value": value} for key, value in facts.items()])
