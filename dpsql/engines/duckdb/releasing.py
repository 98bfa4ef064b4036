"""Runs the statement of a release: DuckDB's words about rows are not passed on, and what read rows is charged.

**Turns.** Statements on a DuckDB connection that threads share: they take turns, and each runs exactly once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import duckdb
import pyarrow as pa

from dpsql.contract.names import source_sql
from dpsql.contract.parameters import show
from dpsql.contract.plan import Plan
from dpsql.engines.duckdb.session import FAILED, Session
from dpsql.errors import DpsqlError, InternalError, SourceError, original
from dpsql.progress import interruptible

# One lock for each connection: DuckDB gives the result of one thread's statement to another thread's fetch.
_locks: WeakKeyDictionary[duckdb.DuckDBPyConnection, threading.RLock] = WeakKeyDictionary()
_locking = threading.Lock()


class Turns:
    """Runs the statements of all threads that share a connection, one after another."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        with _locking:
            self._lock = _locks.setdefault(connection, threading.RLock())

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let no other thread use the connection; Ctrl-C is KeyboardInterrupt, whatever DuckDB makes of it."""
        with interruptible(), self._lock:
            yield

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement that is no release, and return its rows."""
        with self.alone():
            return self.connection.execute(statement, values).fetchall()

    def columns(self, source: str) -> list[str]:
        """Return the names of a source's columns; none where the source cannot be read."""
        try:
            return [row[0] for row in self.rows(f"DESCRIBE FROM {source_sql(source)}")]
        except (duckdb.Error, DpsqlError):
            return []

    def tables(self) -> list[str]:
        """Return the names of the tables."""
        return [name for [name] in self.rows("SELECT table_name FROM system.main.duckdb_tables()")]

    def plans(self, queries: Iterable[str], *, optimize: bool = False) -> list[tuple[str, str]]:
        """Return queries with DuckDB's plans of them; none is run."""
        listed = list(queries)
        given = "?, optimize := true" if optimize else "?"
        return list(zip(listed, self._of_each(f"json_serialize_plan({given})", listed), strict=True))

    def trees(self, queries: Sequence[str]) -> list[str]:
        """Return what DuckDB's parser makes of queries."""
        return self._of_each("json_serialize_sql(?)", queries)

    def _of_each(self, function: str, queries: Sequence[str]) -> list[str]:
        """Return what a function of the system returns of each query; one statement asks for all."""
        if not queries:
            return []
        [found] = self.rows(f"SELECT {', '.join([f'system.main.{function}::VARCHAR'] * len(queries))}", *queries)
        return list(found)

    def table(self, statement: str) -> pa.Table:
        """Run a statement and return its rows as an Arrow table; dpsql's own errors are raised unwrapped."""
        with unwrapped(), self.alone():
            # A relation runs its query at every fetch, and this is the only one.
            relation = self.connection.sql(statement)
            return pa.table({}) if relation is None else relation.to_arrow_table()


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise dpsql's own errors without DuckDB's around them."""
    try:
        yield
    except duckdb.Error as error:
        ours = original(error)
        if ours is None:
            raise
        raise ours from None


# Errors that DuckDB raises while it binds names, or for a connection in use, before any row is read.
NAMING_ERRORS: tuple[type[duckdb.Error], ...] = (
    duckdb.CatalogException,
    duckdb.BinderException,
    duckdb.ParserException,
    *((duckdb.ResourceInUseException,) if hasattr(duckdb, "ResourceInUseException") else ()),  # from 2.0
)


class AfterReleaseError(Exception):
    """A statement failed after its release was stored and charged: on what follows from the answers."""


def run_release(
    session: Session, turns: Turns, statement: str, plan: Plan, released: Callable[[], bool] = lambda: False
) -> pa.Table:
    """Run a release; DuckDB's messages about rows are not passed on, and a call that read rows is charged.

    `released` says whether the release is stored, of a statement that goes on after it.

    Raises
    ------
    AfterReleaseError
        It was stored; no further charge is due.
    SourceError
        The source does not exist, or cannot be read.
    InternalError
        DuckDB failed after the call had passed its gate, for example while it evaluated the source's view.
    """
    before = session.opened
    try:
        return turns.table(statement)
    except KeyboardInterrupt:
        session.fail_open_calls(plan, before)
        raise
    except duckdb.Error as error:
        stopped = isinstance(error, duckdb.InterruptException)
        failed = session.fail_open_calls(plan, before)
        if not failed and not stopped and released():
            raise AfterReleaseError from None
        if failed or (not stopped and _charge_unless_refused(session, turns, statement, plan, error)):
            raise InternalError("I001", f"{plan.function} {FAILED}") from None
        reason = str(error).splitlines()[0] if isinstance(error, NAMING_ERRORS) else "DuckDB cannot read it."
        check = "Check the source's name" + ("." if plan.condition is None else ", and the types in the condition.")
        raise SourceError("S001", f"source {show(plan.source)}: {reason} {check}") from None


def _charge_unless_refused(session: Session, turns: Turns, statement: str, plan: Plan, error: duckdb.Error) -> bool:
    """Charge a call without a result, if its statement binds: then it failed on a row, before its gate.

    DuckDB 2.0 may compute a view of a single row before it asks the gate. What fails on a row also aborts the
    caller's transaction, and then nothing binds; of the errors of binding only a file that cannot be read does.
    """
    try:
        turns.rows(f"EXPLAIN {statement}")
    except duckdb.TransactionException:
        if isinstance(error, duckdb.TransactionException | duckdb.IOException):
            return False
    except KeyboardInterrupt:  # before it was known
        session.charge_lost(plan)
        raise
    except duckdb.Error:
        return False
    session.charge_lost(plan)
    return True
