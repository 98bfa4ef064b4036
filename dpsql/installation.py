"""Put dpsql into a DuckDB connection: functions for the instance, macros for the connection.

Macros live in two places. The connection that is installed into gets them as TEMP macros: plain
``dp_sis(...)``, whatever its search path. Every other connection and cursor of the same instance
reaches them in an in-memory catalog: ``dpsql.dp_sis(...)``, or plain ``dp_sis`` after
``dpsql.install(cursor)``. Nothing is written into the user's database file.
"""

from __future__ import annotations

import re
import threading
from importlib.resources import files
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import duckdb

from dpsql.errors import LedgerError, ParameterError
from dpsql.parameters import show

if TYPE_CHECKING:
    from dpsql.session import Session

_sessions: WeakValueDictionary[str, Session] = WeakValueDictionary()
_lock = threading.RLock()
_EXACT = ("exact/fixed_point.sql", "exact/xty.sql")
_PRIVATE = ("dp/exact_xty.sql", "dp/dp_sis.sql", "dp/budget.sql")


def connect(
    path: str | PathLike[str] = ":memory:",
    *,
    ledger: str | PathLike[str] | None = None,
    strict: bool = False,
    **options: Any,
) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB database with dpsql installed.

    Parameters
    ----------
    path : path
        Database file, or ``':memory:'``.
    ledger : path or URL, optional
        Where budgets and releases are kept. By default ``x.dpsql-ledger`` beside ``x.duckdb``, and in
        memory for an in-memory database. A ``postgresql://`` URL shares it between machines.
    strict : bool
        Refuse every release on a dataset that `dp_protect` never gave a budget.
    **options
        Passed on to `duckdb.connect`, such as ``read_only=True``.

    Returns
    -------
    connection : duckdb.DuckDBPyConnection
        An ordinary DuckDB connection. Close it when done.

    Raises
    ------
    LedgerError
        The ledger cannot be opened.
    """
    connection = duckdb.connect(fspath(path), **options)
    try:
        install(connection, ledger=ledger, strict=strict)
    except BaseException:
        connection.close()
        raise
    return connection


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
        As for `connect`. Once an instance is strict it stays so.

    Returns
    -------
    session : Session
        What the connections of this instance share.

    Raises
    ------
    LedgerError
        The ledger cannot be opened, or the instance already uses another one.
    """
    with _lock:
        session = session_of(connection)
        if session is None:
            session = _first_install(connection, ledger)
        elif ledger is not None and not session.uses(fspath(ledger)):
            raise LedgerError(
                "L011",
                f"this database already uses the ledger {show(session.ledger.location)}. "
                "Leave ledger out, or close every connection to the database first.",
            )
        session.strict = session.strict or strict
        _run(connection, (*_EXACT, *_PRIVATE), "TEMP MACRO ", session.catalog)
    return session


def session_of(connection: duckdb.DuckDBPyConnection) -> Session | None:
    """Return the session of a connection's instance, or None where dpsql is not installed."""
    try:
        found = connection.execute("SELECT system.main.dpsql_session()").fetchall()
    except duckdb.CatalogException:
        return None
    return _sessions.get(found[0][0])


def _first_install(connection: duckdb.DuckDBPyConnection, ledger: str | PathLike[str] | None) -> Session:
    from dpsql.ledger import Ledger
    from dpsql.session import Session
    from dpsql.udfs import SPECS

    location = default_ledger(connection) if ledger is None else fspath(ledger)
    session = Session(Ledger.open(location), strict=False, location=location)
    for spec in SPECS:
        spec.register(connection, session)
    session.catalog = _attach(connection)
    _run(connection, (*_EXACT, *_PRIVATE), f"MACRO {session.catalog}.main.", session.catalog)
    _sessions[session.identifier] = session
    return session


def default_ledger(connection: duckdb.DuckDBPyConnection) -> str | None:
    """Return the ledger file that belongs to the connection's database, None for one in memory."""
    found = connection.execute("SELECT path FROM duckdb_databases() WHERE database_name = current_database()").fetchall()
    path = found[0][0] if found else None
    if not path or "://" in path:
        return None
    return str(Path(path).with_suffix(".dpsql-ledger"))


def _attach(connection: duckdb.DuckDBPyConnection) -> str:
    """Attach the in-memory catalog of macros; a database that is itself called dpsql gets out of its way."""
    taken = {row[0] for row in connection.execute("SELECT database_name FROM duckdb_databases()").fetchall()}
    name = "dpsql" if "dpsql" not in taken else "dpsql_macros"
    connection.execute(f"ATTACH ':memory:' AS {name} (READ_WRITE)")
    return name


def _run(connection: duckdb.DuckDBPyConnection, names: tuple[str, ...], scope: str, catalog: str) -> None:
    """Create the macros of some SQL files in one scope."""
    for name in names:
        text = files("dpsql.sql").joinpath(name).read_text(encoding="utf-8")
        text = re.sub(r"CREATE OR REPLACE (TEMP )?MACRO ", f"CREATE OR REPLACE {scope}", text)
        if name != "exact/fixed_point.sql":
            text = text.replace("exact_fixed_point(", f"{catalog}.main.exact_fixed_point(")
        connection.execute(text)


def refuse_unknown(arguments: dict[str, Any], known: dict[str, Any], function: str) -> None:
    """Raise when Python code passes an argument that the function does not have."""
    for name in arguments:
        if name not in known:
            raise ParameterError("P016", f"{function} has no argument {show(name)}. It takes: {', '.join(known)}.")
