"""Connections to a ledger's database, SQLite or PostgreSQL: what they are set to, and how their transactions begin."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypedDict

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, Pool, StaticPool

from dpsql.errors import LedgerError
from dpsql.ledger.failures import LOCK_WAIT_SECONDS
from dpsql.ledger.file import LedgerFile, refuse_empty
from dpsql.ledger.url import connect_arguments, describe

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy.engine.interfaces import IsolationLevel

_advisory_key = 0x6470_7371_6C00_0001  # 'dpsql'; one writer per PostgreSQL database
# `off` is the one setting that acknowledges a commit before it is on disk; stronger ones are left alone.
_postgresql_lock = (
    f"SELECT pg_advisory_xact_lock({_advisory_key}), CASE current_setting('synchronous_commit') "
    "WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END"
)

# Decodes text so that no damage to it fails here: it then fails against its hash.
_text = partial(str, encoding="utf-8", errors="surrogateescape")


class EngineOptions(TypedDict, total=False):
    """What `sqlalchemy.create_engine` is given beside the place."""

    hide_parameters: bool
    connect_args: dict[str, object]
    poolclass: type[Pool]
    creator: Callable[[], sqlite3.Connection]
    isolation_level: IsolationLevel
    pool_pre_ping: bool


def engine_of(url: URL, file: LedgerFile | None, *, is_read_only: bool) -> Engine:
    """Return what makes connections to a ledger, whose commits are on disk and whose transactions lock as they must.

    Raises
    ------
    LedgerError
        L014: the driver is not installed.
    """
    is_sqlite = url.get_backend_name() == "sqlite"
    options: EngineOptions = {"hide_parameters": True}
    if is_sqlite:
        if file is not None and file.is_read_only:
            open_file = partial(file.connect, timeout=LOCK_WAIT_SECONDS, check_same_thread=False)
            options |= {"poolclass": NullPool, "creator": open_file}
        else:
            options["connect_args"] = {"timeout": LOCK_WAIT_SECONDS, "check_same_thread": False}
        if file is None:
            options |= {"poolclass": StaticPool, "creator": _KeptConnection().again}
    else:
        # READ COMMITTED: each statement after the lock sees what was committed while we waited for it.
        options |= {"isolation_level": "READ COMMITTED", "pool_pre_ping": True}
    engine = None
    try:
        if not is_sqlite:
            options["connect_args"] = connect_arguments(url)
        # Without user, password and options: what shows the engine shows none of them.
        engine = create_engine(url if is_sqlite else URL.create(url.drivername), **options)
    except ImportError:
        pass
    except LedgerError:
        del url  # whose repr shows a password that is given as an option
        raise
    if engine is None:
        place = describe(url, proven=False)
        del url, options
        raise LedgerError(
            "L014", f"ledger {place!r} needs a driver that is not installed. Run pip install 'dpsql[postgres]'."
        )
    configure = partial(_configure_sqlite, file, is_read_only)
    event.listen(engine, "connect", configure if is_sqlite else _configure_postgresql)
    event.listen(engine, "begin", _begin_sqlite if is_sqlite else _begin_postgresql)
    return engine


class _KeptConnection(sqlite3.Connection):
    """The connection of a ledger in memory, which holds the ledger: SQLAlchemy may drop it, and is given it again."""

    def __init__(self) -> None:
        super().__init__(":memory:", check_same_thread=False)

    def again(self) -> sqlite3.Connection:
        """Return this connection, outside of any transaction."""
        if self.in_transaction:
            self.rollback()
        return self

    def close(self) -> None:
        """Keep it open; it ends with the store."""


def _configure_sqlite(
    file: LedgerFile | None, is_read_only: bool, connection: sqlite3.Connection, record: ConnectionPoolEntry
) -> None:
    if file is not None:
        refuse_empty(file.path)  # or SQLite would begin a new database in it
    connection.isolation_level = None  # transactions are begun below, not guessed by the driver
    connection.text_factory = _text
    connection.execute("PRAGMA cell_size_check = ON").close()
    if is_read_only:
        connection.execute("PRAGMA query_only = ON").close()
    else:
        _write_ahead(connection)
    if file is not None:
        connection.execute("PRAGMA schema_version").close()  # reads the file, and so opens its log
        file.note(record.info)


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Use a write-ahead log, and wait for the disk at each commit."""
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


def _configure_postgresql(connection: psycopg.Connection[tuple[object, ...]], _record: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = '{LOCK_WAIT_SECONDS}s'")
        cursor.execute("SHOW fsync")
        durable = cursor.fetchone() == ("on",)
    connection.commit()
    if not durable:
        raise LedgerError(
            "L015",
            "the PostgreSQL server runs with fsync off, and a crash would lose charges. Set fsync = on on the server.",
        )


def _begin_postgresql(connection: Connection) -> None:
    if connection.get_execution_options().get("dpsql_write", False):
        connection.exec_driver_sql(_postgresql_lock)
