"""Where a ledger lives: connections, locks, durability and forks, for SQLite and PostgreSQL alike."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import StaticPool

from dpsql import ledger_schema as schema
from dpsql.errors import LedgerError

LOCK_WAIT_SECONDS = 60
_advisory_key = 0x6470_7371_6C00_0001  # 'dpsql'; one writer per PostgreSQL database
# `off` is the one setting that acknowledges a commit before it is on disk; stronger ones are left alone.
_postgresql_lock = (
    f"SELECT pg_advisory_xact_lock({_advisory_key}), CASE current_setting('synchronous_commit') "
    "WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END"
)

T = TypeVar("T")


class Store:
    """An engine on one ledger, which runs a function inside one transaction.

    Parameters
    ----------
    location : str or None
        None for memory, a path of a SQLite file, or a URL.
    """

    def __init__(self, location: str | None) -> None:
        self._url = _url_of(location)
        self.in_memory = self._url.get_backend_name() == "sqlite" and self._url.database is None
        self._is_sqlite = self._url.get_backend_name() == "sqlite"
        self._pid = os.getpid()
        # One writer per process at a time: waiting here is fair and cheap, SQLite's busy handler is neither.
        self.lock = threading.RLock()
        self._engine = self._new_engine()
        self._writer = self._engine.execution_options(dpsql_write=True)
        self._finalizer = weakref.finalize(self, self._engine.dispose)
        _stores.add(self)
        try:
            self.ledger_id = self._initialise()
        except BaseException:
            self.close()
            raise

    @property
    def description(self) -> str:
        """The place in words, without a password."""
        if self.in_memory:
            return "in memory"
        return str(self._url.database) if self._is_sqlite else self._url.render_as_string(hide_password=True)

    def close(self) -> None:
        """Close every connection."""
        self._finalizer()

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one transaction that sees one state of the ledger."""
        return self._run(self._engine, work)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` as the ledger's only writer, and return once its rows are on disk.

        Raises
        ------
        LedgerError
            The database refused; nothing was recorded.
        """
        return self._run(self._writer, work)

    def _run(self, engine: Engine, work: Callable[[Connection], T]) -> T:
        if self.in_memory and self._pid != os.getpid():
            # The child's copy would grant the same budget a second time.
            raise LedgerError(
                "L009", "a ledger in memory cannot be used after a fork. Give ledger= a file, which processes share."
            )
        try:
            alone = self.lock if self.in_memory or engine is self._writer else contextlib.nullcontext()
            with alone, engine.connect() as connection, connection.begin():
                return work(connection)
        except DBAPIError as error:
            failure = _explain(error, self.description)
        except PoolTimeout:
            code, message = _meanings["locked"]
            failure = LedgerError(code, f"ledger {self.description!r} {message}")
        # Raised out here so that the error carries no row, and no undelivered result, as its context.
        raise failure

    def _new_engine(self) -> Engine:
        options: dict[str, Any] = {"hide_parameters": True}
        if self._is_sqlite:
            options["connect_args"] = {"timeout": LOCK_WAIT_SECONDS, "check_same_thread": False}
            if self.in_memory:
                options["poolclass"] = StaticPool
        else:
            # READ COMMITTED: each statement after the lock sees what was committed while we waited for it.
            options |= {"isolation_level": "READ COMMITTED", "pool_pre_ping": True}
        failure = None
        try:
            engine = create_engine(self._url, **options)
        except ImportError:
            failure = "needs a driver that is not installed. Run pip install 'dpsql[postgres]'."
        except (ArgumentError, NoSuchModuleError):
            failure = "is no URL of a ledger. Give a file, or postgresql://user@host/database."
        if failure:
            raise LedgerError("L008", f"ledger {self.description!r} {failure}")
        event.listen(engine, "connect", _configure_sqlite if self._is_sqlite else _configure_postgresql)
        event.listen(engine, "begin", _begin_sqlite if self._is_sqlite else _begin_postgresql)
        return engine

    def _initialise(self) -> str:
        """Create the tables unless they are there; return the id that the chain starts from."""
        directory = Path(self._url.database or "").parent
        if self._is_sqlite and not self.in_memory and not directory.is_dir():
            raise LedgerError("L001", f"ledger directory {str(directory)!r} does not exist. Create it first.")
        if not self.read(_has_tables):
            self.write(_create_tables)
        facts = self.read(lambda connection: {row.key: row.value for row in connection.execute(schema.read_meta)})
        version = facts.get("schema_version")
        if version != schema.SCHEMA_VERSION:
            raise LedgerError(
                "L007",
                f"ledger {self.description!r} has schema version {version}; this dpsql reads version "
                f"{schema.SCHEMA_VERSION}. Use the dpsql that wrote it, or a newer one.",
            )
        return str(facts.get("ledger_id"))

    def before_fork(self) -> None:
        """Let no transaction and no connection cross a fork."""
        self.lock.acquire()
        if not self.in_memory:
            # Not Engine.dispose: a connection in use (a draw that forks) must come back to this pool.
            self._engine.pool.dispose()

    def after_fork(self, *, in_child: bool) -> None:
        """Go on in both processes, each with connections of its own."""
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


def _url_of(location: str | None) -> URL:
    if location is None or location == ":memory:":
        return URL.create("sqlite")
    if "://" not in location:
        # One name per file: SQLite finds the WAL by the name, so two names would be two ledgers.
        return URL.create("sqlite", database=os.path.realpath(location))
    try:
        url = make_url(location)
    except ArgumentError:
        raise LedgerError("L008", "ledger is no valid URL. Give a file, or postgresql://user@host/database.") from None
    if url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    if url.drivername == "sqlite":
        path = url.database
        return URL.create("sqlite", database=os.path.realpath(path) if path and path != ":memory:" else None)
    raise LedgerError(
        "L008",
        f"ledger must be a file, or a sqlite:// or postgresql:// URL; got {url.drivername}://. Give one of those.",
    )


def _configure_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions are begun below, not guessed by the driver
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
            break
        except sqlite3.OperationalError as error:
            # Turning WAL on in a new file does not wait for a lock as other statements do.
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    connection.execute("PRAGMA synchronous = FULL").close()


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get("dpsql_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _configure_postgresql(connection: Any, _record: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = '{LOCK_WAIT_SECONDS}s'")
        cursor.execute("SHOW fsync")
        durable = cursor.fetchone()[0] == "on"
    connection.commit()
    if not durable:
        raise LedgerError(
            "L011",
            "the PostgreSQL server runs with fsync off, and a crash would lose charges. Set fsync = on on the server.",
        )


def _begin_postgresql(connection: Connection) -> None:
    if connection.get_execution_options().get("dpsql_write", False):
        connection.exec_driver_sql(_postgresql_lock)


def _has_tables(connection: Connection) -> bool:
    return inspect(connection).has_table(schema.meta.name)


def _create_tables(connection: Connection) -> None:
    if _has_tables(connection):  # another process was first, while we waited for the lock
        return
    schema.metadata.create_all(connection)
    facts = {"schema_version": schema.SCHEMA_VERSION, "ledger_id": secrets.token_hex(16)}
    connection.execute(schema.add_meta, [{"key": key, "value": value} for key, value in facts.items()])


_sqlite_meaning = {
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_READONLY: "forbidden",
    sqlite3.SQLITE_PERM: "forbidden",
    sqlite3.SQLITE_AUTH: "forbidden",
    sqlite3.SQLITE_FULL: "disk",
    sqlite3.SQLITE_IOERR: "disk",
    sqlite3.SQLITE_NOTADB: "damaged",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_CANTOPEN: "path",
}
# SQLSTATEs of PostgreSQL by their beginning: the longer ones first.
_postgresql_meaning = {
    "55P03": "locked",
    "25006": "forbidden",
    "42501": "forbidden",
    "58030": "disk",
    "53": "disk",
    "08": "unreachable",
    "57": "unreachable",
    "28": "unreachable",
    "3D": "unreachable",
}
_meanings = {
    "locked": ("L002", f"stayed locked for {LOCK_WAIT_SECONDS} s; nothing was released. Try again."),
    "forbidden": ("L003", "may not be written; nothing was released. Give this user write access."),
    "disk": ("L004", "could not reach its disk or memory; nothing was released. Free space, and try again."),
    "damaged": ("L005", "is damaged, or is no ledger. Give another file, or restore a backup."),
    "path": ("L001", "cannot be opened. Check the path and its permissions."),
    "unreachable": ("L006", "cannot be reached; nothing was released. Check the server and the URL, and try again."),
}


def _explain(error: DBAPIError, place: str) -> LedgerError:
    """Say what a database error means and what to do; never quote it, since it may quote a row."""
    state = getattr(error.orig, "sqlstate", None) or ""
    number = getattr(error.orig, "sqlite_errorcode", None)
    if number is not None:
        number &= 0xFF  # the rest only refines it
        meaning, kind = _sqlite_meaning.get(number), f"SQLite code {number}"
    elif not state or error.connection_invalidated:
        meaning, kind = "unreachable", "no connection"
    else:
        meaning = next((word for start, word in _postgresql_meaning.items() if state.startswith(start)), None)
        kind = f"SQLSTATE {state}"
    if meaning is None:
        return LedgerError("L010", f"ledger {place!r} refused ({kind}); nothing was released. Run dpsql ledger verify.")
    code, message = _meanings[meaning]
    return LedgerError(code, f"ledger {place!r} {message}")


def stream(connection: Connection) -> Generator[Any]:
    """Yield every row in the order of the chain, a thousand at a time."""
    with connection.execution_options(yield_per=1000).execute(schema.everything) as result:
        yield from result.mappings()
