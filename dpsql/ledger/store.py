"""The store of a ledger: its transactions, its file, its note and forks, for both SQLite and PostgreSQL.

The module connects to the ledger's database, sets the connections up, and begins their transactions. It explains
failures of the database, and what to do about them. It reads the ledger's URL, and names a ledger without its secrets.

No message quotes the input: a malformed text may have the password in the wrong part. `describe` shows only what is
certainly a host, a port or a database. No error has another error as its context, because that one might quote.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, Pool, StaticPool

from dpsql.errors import PASSING, UNWRITABLE, DpsqlError, LedgerError
from dpsql.ledger import schema
from dpsql.ledger.budget import Spent
from dpsql.ledger.chain import SUFFIX, Head, NotedHead
from dpsql.ledger.file import LedgerFile, checkpoint, create, refuse_empty, refuse_linked
from dpsql.ledger.location import HOW_TO_GIVE, is_url
from dpsql.ledger.schema import upgrade
from dpsql.progress import held_back

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy.engine.interfaces import IsolationLevel

_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
_host = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]+")
_directory = re.compile(r"/[A-Za-z0-9._/-]*")
_name = re.compile(r"[A-Za-z0-9_-]+")


def url_of(location: str | os.PathLike[str] | None) -> URL:
    """Return a location as SQLAlchemy's URL.

    Raises
    ------
    LedgerError
        L008: it cannot be a ledger's location; L040: its port is invalid.
    """
    if location is None or os.fspath(location) == ":memory:":
        return URL.create("sqlite")
    if not is_url(location):
        # One name per file: SQLite finds the WAL by name, so two names would be two ledgers.
        return URL.create("sqlite", database=os.path.realpath(location))
    url = _parsed(location)
    if url is None:
        raise LedgerError("L008", f"ledger is not a valid URL. {HOW_TO_GIVE}")
    if url.drivername in _POSTGRESQL:
        return url.set(drivername="postgresql+psycopg")
    if url.drivername == "sqlite" and not (url.host or url.username or url.password):
        path = url.database
        return URL.create("sqlite", database=os.path.realpath(path) if path and path != ":memory:" else None)
    del url  # a raising frame must not contain the URL
    raise LedgerError("L008", f"ledger must be a file, or a sqlite:/// or postgresql:// URL. {HOW_TO_GIVE}")


def _parsed(location: str | os.PathLike[str]) -> URL | None:
    url: URL | None = None
    port, ports = "", list[str]()
    parameter: str | tuple[str, ...] = ()
    try:
        url = make_url(os.fspath(location))
    except ArgumentError:
        return None
    except ValueError:  # SQLAlchemy reads the port as an integer
        port = "no number"
    if url is not None:
        parameter = url.query.get("port", ())
        ports = [parameter] if isinstance(parameter, str) else [*parameter]
        port = ",".join(ports if url.port is None else [str(url.port), *ports])
    is_wrong = bool(port) and not all(map(_is_port, port.split(",")))
    if is_wrong:
        del url, port, parameter, ports  # a raising frame must not contain the URL
        raise LedgerError(
            "L040",
            "the port in the ledger's URL must be a number from 1 to 65535. Write postgresql://user:password@host/"
            "database with the password before an @, its special characters as %40 (@), %2F (/) or %3A (:); or leave "
            "the password to PGPASSFILE.",
        )
    return url


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text) < 1 << 16


def connect_arguments(url: URL) -> dict[str, object]:
    """Return psycopg's connection arguments; an engine made without them shows none of them.

    Raises
    ------
    LedgerError
        L008: the URL contradicts itself; L041: it has an unknown option.
    """
    from psycopg import pq  # an optional package

    arguments: dict[str, object] | None
    try:
        arguments = dict(url.get_dialect()().create_connect_args(url)[1])
    except (ArgumentError, ValueError):
        arguments = None
    if arguments is None:
        del url
        raise LedgerError("L008", f"ledger is not a valid URL. {HOW_TO_GIVE}")
    # psycopg itself would read other options: autocommit=1 would end every transaction at once.
    options = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    if not set(arguments) <= options:
        del url, arguments
        raise LedgerError(
            "L041",
            "an option after the ? of the ledger's URL is unknown to PostgreSQL's client. Check how it is written.",
        )
    return arguments


def describe(url: URL, *, proven: bool) -> str:
    """Return a location in words: a file's path, or the host, port and database of a server.

    Parameters
    ----------
    url : URL
        From `url_of`.
    proven : bool
        A server has answered there. Before that, a URL with a password may be cut at the wrong place, such as an ``@``
        in the password, and the apparent host may be a part of the password.
    """
    if url.get_backend_name() == "sqlite":
        return url.database or "in memory"
    unknown = "postgresql://..."
    if not proven and (url.password is not None or url.query.get("password") or ":" in (url.username or "")):
        return unknown
    if not proven and url.username is None and url.port is not None:  # 'u:12345/db', a URL without its host
        return unknown
    host, database, directory = url.host or "", url.database or "", url.query.get("host", "")
    if not isinstance(directory, str) or not all(
        pattern.fullmatch(part) for pattern, part in ((_host, host), (_name, database), (_directory, directory)) if part
    ):
        return unknown
    address, query = f"[{host}]" if ":" in host else host, f"?host={directory}" if directory else ""
    return f"postgresql://{address}{f':{url.port}' if url.port else ''}/{database}{query}"


LOCK_WAIT_SECONDS = 60

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
# SQLSTATEs of PostgreSQL by their prefixes: longer ones first.
_postgresql_meaning = {
    "25006": "read only",
    "25P03": "time limit",
    "25P04": "time limit",
    "42501": "forbidden",
    "53300": "full",
    "55P03": "locked",
    "57014": "time limit",
    "57P05": "time limit",
    "58030": "disk",
    "08": "unreachable",
    "28": "login",
    "3D": "no database",
    "53": "disk",
    "57": "stopping",
}
# While libpq connects, it hides the SQLSTATE; the code compares its text here and never shows it.
_refused_connection = (
    ("too many", "full"),
    ("connection slots", "full"),
    ("authentication failed", "login"),
    ("no password supplied", "login"),
    ("no pg_hba.conf entry", "login"),
    ("is not permitted to log in", "login"),
    ("shutting down", "stopping"),
    ("starting up", "stopping"),
    ("recovery mode", "stopping"),
    ("timeout expired", "no answer"),
)
_missing = re.compile(r'(role|database) ".*" does not exist', re.DOTALL)
_meanings = {
    "locked": ("L002", f"stayed locked for {LOCK_WAIT_SECONDS} s; nothing was released. Try again."),
    "forbidden": ("L003", "may not be written; nothing was released. Give this user write access."),
    "disk": ("L004", "could not reach its disk or memory; nothing was released. Free space, and try again."),
    "damaged": ("L005", "is damaged, or is not a ledger. Give another file, or restore a backup."),
    "path": ("L001", "cannot be opened. Check the path and its permissions."),
    "unreachable": (
        "L006",
        "cannot be reached; nothing was released. Check host and port in the URL, the service or the environment, "
        "and that the server runs.",
    ),
    "login": (
        "L042",
        "did not let this user in; nothing was released. Check the user and the password in the URL, in PGPASSFILE or "
        "in the service.",
    ),
    "no database": ("L043", "is in a database that does not exist. Create it with createdb, or correct the name."),
    "full": (
        "L044",
        "has no connection left; nothing was released. Close others, or raise max_connections, and try again.",
    ),
    "time limit": (
        "L045",
        "was cut off by a time limit of the server, or by its administrator; nothing was released. Try again, or "
        "raise statement_timeout for this user.",
    ),
    "stopping": ("L046", "is on a server that is starting or stopping; nothing was released. Try again in a minute."),
    "no answer": (
        "L047",
        "did not answer within the connection timeout; nothing was released. Check the network, or raise "
        "connect_timeout in the URL.",
    ),
    "in doubt": (
        "L049",
        "was lost while an entry was written, and does not say whether the entry stands; nothing was released. Look at "
        "dpsql ledger once the server answers: what stands there is charged. Then ask again: a name that has its "
        "result there costs nothing more.",
    ),
    "read only": (
        "L048",
        "is on a server, or belongs to a user, that only reads; nothing was released. Give the URL of the primary "
        "server, or a user without default_transaction_read_only.",
    ),
}


def failure_of(meaning: str, location: str) -> LedgerError:
    """Return the error for a word of `_meanings`."""
    code, message = _meanings[meaning]
    return LedgerError(code, f"ledger {location!r} {message}")


def meaning_of(error: OSError) -> str:
    """Return why writing a ledger's file failed, as a word of `_meanings`."""
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return "forbidden"
    return "disk" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO) else "path"


def explain(error: DBAPIError, location: str) -> LedgerError:
    """Explain a database error and its remedy; never quote the error, since it may quote a row or a password."""
    number = getattr(error.orig, "sqlite_errorcode", None)
    if number is not None:
        number &= 0xFF  # other bits only refine it
        meaning, kind = _sqlite_meaning.get(number), f"SQLite code {number}"
    elif isinstance(error.orig, sqlite3.Error):  # from the driver, which could not read a value
        meaning, kind = "damaged", "driver"
    else:
        state = getattr(error.orig, "sqlstate", None) or ""
        meaning, kind = _meaning_of(state, error), f"SQLSTATE {state}"
    if meaning is None:
        return LedgerError(
            "L010", f"ledger {location!r} refused ({kind}); nothing was released. Run dpsql ledger verify."
        )
    return failure_of(meaning, location)


def _meaning_of(state: str, error: DBAPIError) -> str | None:
    """Return why PostgreSQL or its client failed."""
    meaning = next((word for start, word in _postgresql_meaning.items() if state.startswith(start)), None)
    if meaning is not None or (state and not error.connection_invalidated):
        return meaning
    text = str(error.orig)
    missing = _missing.search(text)
    if missing:
        return "login" if missing.group(1) == "role" else "no database"
    return next((word for part, word in _refused_connection if part in text), "unreachable")


_advisory_key = 0x6470_7371_6C00_0001  # 'dpsql'; one writer per PostgreSQL database
# Only `off` acknowledges a commit before it is on disk; stronger settings stay.
_postgresql_lock = (
    f"SELECT pg_advisory_xact_lock({_advisory_key}), CASE current_setting('synchronous_commit') "
    "WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END"
)

# Decodes any damaged text without failing here: it then fails against its hash.
_text = partial(str, encoding="utf-8", errors="surrogateescape")


class EngineOptions(TypedDict, total=False):
    """Options of `sqlalchemy.create_engine` in addition to the URL."""

    hide_parameters: bool
    connect_args: dict[str, object]
    poolclass: type[Pool]
    creator: Callable[[], sqlite3.Connection]
    isolation_level: IsolationLevel
    pool_pre_ping: bool


def engine_of(url: URL, file: LedgerFile | None, *, is_read_only: bool) -> Engine:
    """Return the engine of a ledger: its commits are on disk, and its transactions lock as they must.

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
        # READ COMMITTED: each statement after the lock sees all commits made during the wait for it.
        options |= {"isolation_level": "READ COMMITTED", "pool_pre_ping": True}
    engine = None
    try:
        if not is_sqlite:
            options["connect_args"] = connect_arguments(url)
        # Without user, password and options: an engine's text shows none of them.
        engine = create_engine(url if is_sqlite else URL.create(url.drivername), **options)
    except ImportError:
        pass
    except LedgerError:
        del url  # its repr shows a password that is an option
        raise
    if engine is None:
        location = describe(url, proven=False)
        del url, options
        raise LedgerError(
            "L014", f"ledger {location!r} needs a driver that is not installed. Run pip install 'dpsql[postgres]'."
        )
    configure = partial(_configure_sqlite, file, is_read_only)
    event.listen(engine, "connect", configure if is_sqlite else _configure_postgresql)
    event.listen(engine, "begin", _begin_sqlite if is_sqlite else _begin_postgresql)
    return engine


class _KeptConnection(sqlite3.Connection):
    """The connection that contains a ledger in memory: SQLAlchemy may drop it, and gets it again."""

    def __init__(self) -> None:
        super().__init__(":memory:", check_same_thread=False)

    def again(self) -> sqlite3.Connection:
        """Return this connection, outside any transaction."""
        if self.in_transaction:
            self.rollback()
        return self

    def close(self) -> None:
        """Keep it open until the store ends."""


def _configure_sqlite(
    file: LedgerFile | None, is_read_only: bool, connection: sqlite3.Connection, record: ConnectionPoolEntry
) -> None:
    if file is not None:
        refuse_empty(file.path)  # else SQLite would begin a new database in it
    connection.isolation_level = None  # dpsql begins transactions below; the driver must not guess
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
            # Turning WAL on in a new file does not wait for a lock, unlike other statements.
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


_PAUSE_SECONDS = 0.1
_is_id = re.compile("[0-9a-f]{32}").fullmatch
_NOTE = "noted_head"  # in the ledger: a note of its last entry is next to it

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
        Make a new ledger if the old one is gone, despite the old one's note.
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
        # One writer per process at a time: waiting here is fair and cheap, unlike SQLite's busy handler.
        self.lock = threading.RLock()
        self._engine = engine_of(self._url, self._file, is_read_only=self.is_read_only)
        self._writer = self._engine.execution_options(dpsql_write=True)
        self._reader = self._engine
        if not self._is_sqlite:  # else each statement would see its own state
            self._reader = self._engine.execution_options(isolation_level="REPEATABLE READ")
        self._finalizer = weakref.finalize(self, _checkpoint, self._engine, self._file)
        _stores.add(self)
        self.version = schema.SCHEMA_VERSION
        self.verified: dict[object, tuple[object, ...]] = {}  # rows by sequence, verified by `Transaction`
        # Spending of principals in a period, as `accounts` composed it.
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
        """The number of the ledger's file on its disk, unique among copies; None without a file."""
        return None if self._file is None else self._file.number

    def close(self) -> None:
        """Close every connection; a SQLite file then contains everything."""
        with held_back():
            self._finalizer()

    def checkpoint(self) -> None:
        """Write everything to the SQLite file, as `close` does, and stay open."""
        if self._file is not None:
            _checkpoint(self._engine, self._file)

    def read_note(self) -> Head | None:
        """Return the entry noted as the last one; None if the ledger keeps no note, or it is gone."""
        return None if self._note is None else self._note.read()

    @property
    def has_log(self) -> bool:
        """Whether a log existed when the ledger was opened: somebody has it open, or did not close it."""
        return self._file is not None and self._file.has_log

    def keep_note(self) -> None:
        """Record in the ledger that it keeps a note, and move rows from the log into the file."""
        if self._note is not None and not self.keeps_note:
            self.write(_keep_note)
            self.keeps_note = True
        if self.has_log:
            with held_back():
                _checkpoint(self._engine, self._file, wait=False)

    def note(self, head: tuple[int, str], *, replace: bool = False) -> None:
        """Note the last entry, and wait for the disk; with `replace`, replace any earlier note.

        Raises
        ------
        LedgerError
            L003, L004: writing the note failed. Then nobody may learn of the entry.
        """
        if self._note is None or self.is_read_only:
            return
        entry = Head(*head, self.ledger_id)
        try:
            (self._note.replace if replace else self._note.write)(entry)
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
        """Run `work` as the ledger's only writer, and return after its rows are on disk.

        Parameters
        ----------
        work : callable
        stands : callable, optional
            Whether the rows that `work` appended are there. It runs after a failed commit: the connection may have been
            lost after the server committed.

        Raises
        ------
        LedgerError
            The database refused, and nothing was recorded; or L049: the outcome is unknown.
        """
        self.refuse_read_only()
        return self._run(self._writer, work, stands)

    def refuse_read_only(self) -> None:
        """Raise if the ledger is not writable."""
        if self.is_read_only:
            raise failure_of("forbidden", self.description)

    def _run(
        self,
        engine: Engine,
        work: Callable[[Connection], T],
        stands: Callable[[Connection, T], bool] | None = None,
    ) -> T:
        """Run a transaction; Ctrl-C waits for its end, but not for a server, which SQLAlchemy may leave at any moment.

        An interrupt inside SQLAlchemy's pool leaves its lock behind, or marks a ledger in memory as broken.
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
                        self._refuse_moved(connection)  # before any charge
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
        # Raised here so that the error has no row and no undelivered result as its context.
        raise failure

    def _committed(self, stands: Callable[[Connection], bool]) -> bool:
        """Whether a transaction stands after a failed commit; its end frees its lock for us."""
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
        except Exception:  # such as an impossible host; the text may quote the input
            failure = failure_of("unreachable", self.description)
        if failure:
            raise failure
        self._proven = True
        return connection

    def _initialise(self) -> str:
        """Create the tables unless they exist; return the id at the start of the chain."""
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
        """Make a ledger if it has no file; refuse a file that is empty, has a second name, or existed before."""
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
        """Upgrade an earlier ledger, or read it unchanged if it is not writable; return its version."""
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
_fork_stores: list[Store] = []


def _before_fork() -> None:
    _forking.acquire()
    _fork_stores[:] = list(_stores)
    for store in _fork_stores:
        store.before_fork()


def _after_fork(in_child: bool) -> None:
    for store in _fork_stores:
        store.after_fork(in_child=in_child)
    _fork_stores.clear()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(in_child=False),
        after_in_child=lambda: _after_fork(in_child=True),
    )


def _checkpoint(engine: Engine, file: LedgerFile | None, *, wait: bool = True) -> None:
    """Close the idle connections; a SQLite file then contains everything that nobody else reads."""
    if file is not None and not file.is_read_only and engine.pool.checkedin():  # type: ignore[attr-defined]
        connection = engine.raw_connection()
        try:
            with contextlib.suppress(sqlite3.Error):  # it stays in the log, for the next connection
                checkpoint(connection.driver_connection, wait=wait)  # type: ignore[arg-type]
        finally:
            connection.close()
    engine.pool.dispose()  # connections in use return to this pool


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
    """Record that a note is next to the ledger, after the note exists."""
    if _NOTE not in {row.key for row in connection.execute(schema.read_meta)}:
        connection.execute(schema.add_meta, {"key": _NOTE, "value": "1"})


def _has_tables(connection: Connection) -> bool:
    return inspect(connection).has_table(schema.meta.name)


def _create_tables(connection: Connection) -> None:
    if _has_tables(connection):  # another process was first, while this one waited for the lock
        return
    schema.metadata.create_all(connection)
    facts = {"schema_version": schema.SCHEMA_VERSION, "ledger_id": secrets.token_hex(16)}
    connection.execute(schema.add_meta, [{"key": key, "value": value} for key, value in facts.items()])
