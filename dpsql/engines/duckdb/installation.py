"""Install dpsql into a DuckDB connection: functions for the instance, macros for the connection.

Macros are in two places. The connection of the install call gets TEMP macros: plain ``dp_sis(...)``, with any search
path. Every other connection and cursor of the same instance uses macros in an in-memory catalog: ``dpsql.dp_sis(...)``,
or plain ``dp_sis`` after ``dpsql.install(cursor)``. dpsql writes nothing to the database file except the database ID of
a database with a budget.
"""

from __future__ import annotations

import atexit
import re
import secrets
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from inspect import Parameter, Signature
from os import PathLike, fspath
from pathlib import Path
from typing import TypedDict, Unpack
from weakref import finalize, ref

import duckdb
from duckdb.sqltypes import DuckDBPyType

from dpsql.contract.boundary import public_sql
from dpsql.contract.names import OTHER_NAMES
from dpsql.contract.parameters import show
from dpsql.engines.attached import Engines
from dpsql.engines.duckdb.lineage.sources import Sources
from dpsql.engines.duckdb.macros import macros_sql
from dpsql.engines.duckdb.session import Session
from dpsql.engines.duckdb.spending_record import mark_of_main
from dpsql.errors import LedgerError
from dpsql.ledger.file import beside
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.location import LedgerPlace, is_url
from dpsql.manual.catalogue import MANUAL
from dpsql.parsing import PARSER
from dpsql.rendering import text
from dpsql.udfs.specs import SPECS
from dpsql.udfs.values import UdfSpec

_instances: dict[str, _Instance] = {}
_lock = threading.RLock()


class ConnectOptions(TypedDict, total=False):
    """Options of `duckdb.connect` except the path."""

    read_only: bool
    config: dict[str, str | bool | int | float | list[str]]


def connect(
    path: str | PathLike[str] = ":memory:",
    *,
    ledger: str | PathLike[str] | None = None,
    strict: bool = False,
    **options: Unpack[ConnectOptions],
) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB database with dpsql installed; see `dpsql.connect`."""
    ledger = LedgerPlace.of(ledger) or ledger
    connection = duckdb.connect(fspath(path), **options)
    try:
        install(connection, ledger=ledger, strict=strict)
    except BaseException:
        connection.close()
        raise
    return connection


@public_sql
def install(
    connection: duckdb.DuckDBPyConnection, *, ledger: str | PathLike[str] | None = None, strict: bool = False
) -> Session:
    """Add dpsql to a connection or cursor; a second call on the same instance joins the first.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
    ledger : path or URL, optional
        As for `connect`. An instance has one ledger.
    strict : bool
        As for `connect`. A strict instance remains strict.

    Returns
    -------
    session : Session
        The shared state of this instance's connections.

    Raises
    ------
    LedgerError
        The ledger does not open, or the instance or the database belongs to another ledger.
    """
    ledger = LedgerPlace.of(ledger) or ledger
    with _lock:
        instance = _instance_of(connection)
        if instance is None:
            instance = _register(connection)
        session = instance.session
        if session is None:
            session = instance.session = _open_session(connection, ledger, instance)
        elif ledger is not None and not session.uses(ledger):
            raise LedgerError(
                "L011",
                f"this database already uses the ledger {show(session.ledger.location)}. "
                "Leave ledger out, or close every connection to the database first.",
            )
        session.strict = session.strict or strict
        _run(connection, _macros(instance.catalog)[1])
        instance.hold(connection)
    return session


def session_of(connection: duckdb.DuckDBPyConnection) -> Session:
    """Return the shared state of this instance's connections; `LedgerError` without dpsql."""
    instance = _instance_of(connection)
    if instance is None or instance.session is None:
        raise _without_session()
    return instance.session


def _without_session() -> LedgerError:
    return LedgerError(
        "L013", "the connection that dpsql was installed on is gone. Run dpsql.install on this connection."
    )


# The signatures of functions: DuckDB would infer each one, which takes longer than the rest of a registration.
_SIGNATURES = {
    False: Signature([Parameter("arguments", Parameter.VAR_POSITIONAL)]),
    True: Signature(),
}


class _Instance:
    """The functions of one DuckDB instance, and the session that they use.

    DuckDB forgets a Python function when the connection that registered it closes, though the instance and its other
    connections still call the function (2.0.0 and 1.5.6 then crash). So the functions live here until the process ends;
    they are small. The session ends with the last connection that has dpsql.
    """

    def __init__(self) -> None:
        self.identifier = secrets.token_hex(16)
        self.catalog = ""
        self.functions: list[Callable[..., object]] = []
        self.session: Session | None = None
        self._connections: dict[int, finalize[..., object]] = {}
        self._living: dict[int, ref[duckdb.DuckDBPyConnection]] = {}

    def cursor(self) -> duckdb.DuckDBPyConnection | None:
        """Return a new connection to the instance, or None if every connection with dpsql is closed."""
        for reference in list(self._living.values()):
            connection = reference()
            if connection is not None:
                with suppress(duckdb.ConnectionException):  # closed, but not yet collected
                    return connection.cursor()
        return None

    def function(self, spec: UdfSpec) -> Callable[..., object]:
        """Return the function to register, which looks up the session at each call."""

        def call(*arguments: object) -> object:
            session = self.session
            if session is None:
                raise _without_session().in_duckdb()
            return spec.run(session.function(spec.name, spec.bind), arguments)

        def call_without() -> object:  # DuckDB reads *arguments as one or more
            return call()

        function: Callable[..., object] = call_without if spec.nullary else call
        function.__signature__ = _SIGNATURES[spec.nullary]  # type: ignore[attr-defined]
        self.functions.append(function)
        return function

    def hold(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Keep the session while the connection object lives."""
        key = id(connection)
        if key not in self._connections:
            self._living[key] = ref(connection)
            self._connections[key] = finalize(connection, self._drop, key, _on_close(connection, self._checkpoint))

    def _checkpoint(self) -> None:
        session = self.session
        if session is not None:
            with suppress(LedgerError):  # nobody can act on an error while a connection closes
                session.ledger.checkpoint()

    def _drop(self, key: int, watcher: duckdb.DuckDBPyConnection) -> None:
        watcher.close()
        with _lock:
            self._connections.pop(key, None)
            self._living.pop(key, None)
            session = self.session
            if self._connections or session is None:
                return
            self.session = None
        session.ledger.close()


def _on_close(connection: duckdb.DuckDBPyConnection, action: Callable[[], None]) -> duckdb.DuckDBPyConnection:
    """Run `action` when the connection closes; return a cursor, which closes with it.

    DuckDB does not report that a connection closes, but it drops the Python functions of the connection's cursors. This
    cursor rolls its function back at once, so nobody can call the function.
    """

    def nothing() -> str:
        return ""

    finalize(nothing, action).atexit = False
    watcher = connection.cursor()
    watcher.begin()
    watcher.create_function("dpsql_nothing", nothing, None, "VARCHAR")
    watcher.rollback()
    return watcher


def _instance_of(connection: duckdb.DuckDBPyConnection) -> _Instance | None:
    # A cursor, because a failed look-up would abort the caller's transaction.
    with connection.cursor() as cursor:
        try:
            rows = cursor.execute("SELECT system.main.dpsql_instance()").fetchall()
        except duckdb.CatalogException:
            return None
    return _instances[rows[0][0]]


def _register(connection: duckdb.DuckDBPyConnection) -> _Instance:
    """Register functions and macros for the whole instance, even if the caller's transaction is rolled back."""
    instance = _Instance()
    _instances[instance.identifier] = instance
    with connection.cursor() as cursor:
        instance.catalog = _attach(cursor)
        types = _types()
        for spec in SPECS:
            spec.register(cursor, instance.function(spec), types[spec.returns])
        cursor.begin()  # one transaction costs less than one per macro and comment
        cursor.execute("PRAGMA disable_optimizer")  # of this cursor: a macro's plan has nothing to optimize
        _run(cursor, _macros(instance.catalog)[0])
        cursor.commit()

        def identify() -> str:
            return instance.identifier

        instance.functions.append(identify)
        # Registered last: if it is missing, nothing was installed.
        cursor.create_function("dpsql_instance", identify, None, "VARCHAR", side_effects=True)
    return instance


def _open_session(
    connection: duckdb.DuckDBPyConnection, ledger: str | PathLike[str] | None, instance: _Instance
) -> Session:
    location = default_ledger(connection) if ledger is None else ledger
    with connection.cursor() as cursor:
        alias, mark = mark_of_main(cursor)
    if mark is not None and location is not None and not is_url(location) and not Path(location).exists():
        raise LedgerError(
            "L033",
            f"database {alias!r} keeps its budgets in ledger {mark.ledger}…, and there is no ledger at {location!r}. "
            "Give ledger := that one; or run dpsql ledger accept --db, with the database's file, which makes a new one "
            "and charges all that remained.",
        )
    opened = Ledger.open(location)
    (main,) = connection.execute(
        "SELECT database_name FROM duckdb_databases() WHERE NOT internal ORDER BY database_oid LIMIT 1"
    ).fetchone() or ("memory",)
    sources = Sources(opened, main, instance.cursor)
    try:
        if mark is not None:
            with connection.cursor() as cursor:
                sources.compare(cursor, only=alias)
    except BaseException:
        opened.close()
        raise
    return Session(opened, sources, Engines(sources), strict=False, location=location)


def default_ledger(connection: duckdb.DuckDBPyConnection) -> str | None:
    """Return the ledger file of the connection's database; None for a database in memory."""
    rows = connection.execute("SELECT path FROM duckdb_databases() WHERE database_name = current_database()").fetchall()
    path = rows[0][0] if rows else None
    if not path or "://" in path:
        return None
    return str(beside(path))


def _attach(connection: duckdb.DuckDBPyConnection) -> str:
    """Attach the in-memory catalog of macros; a database with the name dpsql keeps its name."""
    databases = {row[0] for row in connection.execute("SELECT database_name FROM duckdb_databases()").fetchall()}
    names = ("dpsql", *(f"dpsql_macros{number or ''}" for number in range(len(databases))))
    name = next(name for name in names if name not in databases)
    connection.execute(f"ATTACH ':memory:' AS {name} (READ_WRITE)")
    return name


def _run(connection: duckdb.DuckDBPyConnection, statements: Iterable[duckdb.Statement]) -> None:
    for statement in statements:
        connection.execute(statement)


@cache
def _macros(catalog: str) -> tuple[list[duckdb.Statement], list[duckdb.Statement]]:
    """Return the statements for the macros of an instance and of a connection; a process parses them once.

    The instance's macros have comments. Comments on each connection's macros would be a quarter of a connection's cost.
    """
    instance, connection = macros_sql(f"MACRO {catalog}.main.", catalog), macros_sql("TEMP MACRO ", catalog)
    return PARSER.statements(instance + _comments_sql(instance)), PARSER.statements(connection)


@cache
def _types() -> dict[str, DuckDBPyType]:
    """Return the return types of functions, by name; a process reads them once, like the macros."""
    return {name: PARSER.type(name) for name in {spec.returns for spec in SPECS}}


# DuckDB 2.0 reports objects that outlive the interpreter on stderr.
atexit.register(_macros.cache_clear)
atexit.register(_types.cache_clear)


def _comments_sql(macros: str) -> str:
    """Return the SQL that lets `duckdb_functions` show each macro's description, guarantee and example.

    DuckDB stores no description and no example of a macro, only a comment.
    """
    defined = re.findall(r"^CREATE OR REPLACE MACRO ((?:\w+\.)*(\w+))\(.*?\) AS\s+(TABLE)?", macros, re.M | re.S)
    comments = {name: f"{other.why}. Call {other.function}." for name, other in OTHER_NAMES.items()}
    comments |= {name: page.comment for name, page in MANUAL.items()}
    return "".join(
        f"COMMENT ON MACRO {kind} {path} IS {text(comments[name])};\n"
        for path, name, kind in dict.fromkeys(defined)
        if name in comments
    )
