"""Run the statement of a release: hide DuckDB's messages about rows, and charge every call that read rows.

Statements of threads that share a DuckDB connection take turns, and each runs exactly once. A query of plain SQL from
Python is planned on a connection as its macro plans it, and runs once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import duckdb
import pyarrow as pa

from dpsql.contract.grant_fields import Asker
from dpsql.contract.names import source_sql
from dpsql.contract.parameters import plain_value, show
from dpsql.contract.plan import Plan
from dpsql.engines.duckdb.query_planner import QueryStatement, query_lines, text_of
from dpsql.engines.duckdb.session import FAILED, Session
from dpsql.errors import DpsqlError, InternalError, ParameterError, SourceError, original
from dpsql.functions.estimate import of_query, query_to_estimate
from dpsql.functions.query import QueryPlan
from dpsql.ledger.rows import Entry
from dpsql.progress import interruptible

# One lock per connection: DuckDB gives one thread's result to another thread's fetch.
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
        """Let no other thread use the connection; raise Ctrl-C as KeyboardInterrupt, not as DuckDB's error."""
        with interruptible(), self._lock:
            yield

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement other than a release, and return its rows."""
        with self.alone():
            return self.connection.execute(statement, values).fetchall()

    def columns(self, source: str) -> list[str]:
        """Return a source's column names; none if DuckDB cannot read the source."""
        try:
            return [row[0] for row in self.rows(f"DESCRIBE FROM {source_sql(source)}")]
        except (duckdb.Error, DpsqlError):
            return []

    def tables(self) -> list[str]:
        """Return the names of the tables."""
        return [name for [name] in self.rows("SELECT table_name FROM system.main.duckdb_tables()")]

    def plans(self, queries: Iterable[str], *, optimize: bool = False) -> list[tuple[str, str]]:
        """Return queries with DuckDB's plans of them; run none."""
        listed = list(queries)
        parameters = "?, optimize := true" if optimize else "?"
        return list(zip(listed, self._of_each(f"json_serialize_plan({parameters})", listed), strict=True))

    def trees(self, queries: Sequence[str]) -> list[str]:
        """Return DuckDB's parse trees of queries."""
        return self._of_each("json_serialize_sql(?)", queries)

    def _of_each(self, function: str, queries: Sequence[str]) -> list[str]:
        """Return a system function's result for each query, with one statement for all."""
        if not queries:
            return []
        [row] = self.rows(f"SELECT {', '.join([f'system.main.{function}::VARCHAR'] * len(queries))}", *queries)
        return list(row)

    def table(self, statement: str) -> pa.Table:
        """Run a statement and return its rows as an Arrow table; raise dpsql's own errors unwrapped."""
        with unwrapped(), self.alone():
            # A relation runs its query at every fetch, and this is the only one.
            relation = self.connection.sql(statement)
            return pa.table({}) if relation is None else relation.to_arrow_table()


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise dpsql's own errors without DuckDB's wrapper."""
    try:
        yield
    except duckdb.Error as error:
        ours = original(error)
        if ours is None:
            raise
        raise ours from None


# DuckDB errors from binding names, or for a busy connection, before it reads any row.
NAMING_ERRORS: tuple[type[duckdb.Error], ...] = (
    duckdb.CatalogException,
    duckdb.BinderException,
    duckdb.ParserException,
    *((duckdb.ResourceInUseException,) if hasattr(duckdb, "ResourceInUseException") else ()),  # from 2.0
)


class AfterReleaseError(Exception):
    """A statement failed after its release was stored and charged, in the part after the answers."""


def run_release(
    session: Session, turns: Turns, statement: str, plan: Plan, released: Callable[[], bool] = lambda: False
) -> pa.Table:
    """Run a release; hide DuckDB's messages about rows, and charge a call that read rows.

    `released` says whether the release is stored, if its statement goes on after that.

    Raises
    ------
    AfterReleaseError
        The release is stored; no further charge is due.
    SourceError
        The source does not exist, or DuckDB cannot read it.
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

    DuckDB 2.0 may compute a view of a single row before it asks the gate. An error on a row also aborts the caller's
    transaction, so nothing binds afterwards; of the binding errors only an unreadable file aborts it.
    """
    try:
        turns.rows(f"EXPLAIN {statement}")
    except duckdb.TransactionException:
        if isinstance(error, duckdb.TransactionException | duckdb.IOException):
            return False
    except KeyboardInterrupt:  # outcome unknown
        session.charge_lost(plan)
        raise
    except duckdb.Error:
        return False
    session.charge_lost(plan)
    return True


_SETTINGS = (
    "SELECT system.main.current_setting('search_path'), system.main.current_database(), "
    "system.main.current_setting('TimeZone'), system.main.json_serialize_sql(?)::VARCHAR"
)


@dataclass(frozen=True)
class Answered:
    """The answer of a query.

    Attributes
    ----------
    value : pyarrow.Table
    plan : QueryPlan or None
        None if the query reads no protected rows and so costs nothing.
    entry : Entry or None
        Its ledger entry.
    replayed : bool
        Whether the answer was already stored, so that it cost nothing.
    """

    value: pa.Table
    plan: QueryPlan | None = None
    entry: Entry | None = None
    replayed: bool = False


def planned_query(
    session: Session, turns: Turns, sql: object, arguments: Mapping[str, object], asker: Asker | None = None
) -> tuple[QueryStatement | None, str]:
    """Return a query's statement, or only its text if it reads no protected rows; read and charge nothing."""
    return session.queries.plan(*_bound(session, turns, sql, arguments), asker)


def expected_query(
    session: Session, turns: Turns, arguments: Mapping[str, object]
) -> list[dict[str, str | float | None]]:
    """Return the cost of a query and the noise of its columns, by the arguments of ``dp_estimate``."""
    with turns.alone():
        return of_query(session.queries.expected(*_bound(session, turns, *query_to_estimate(arguments))))


def _bound(
    session: Session, turns: Turns, sql: object, arguments: Mapping[str, object]
) -> tuple[object, str, Mapping[str, object], list[tuple[str, str]], list[tuple[str, str, str]]]:
    """Return a query, its tree, its arguments, and DuckDB's plans of its tables and of its written texts."""
    sql = text_of(sql)
    arguments = {name: plain_value(value) for name, value in arguments.items()}
    [(search_path, database, zone, tree)] = turns.rows(_SETTINGS, sql)
    seen = turns.plans(session.queries.tables(sql, tree, search_path, database, zone))
    texts = session.queries.cores(sql, tree, arguments, seen)
    pairs = zip(turns.plans(texts), turns.trees(texts), strict=True)
    return sql, tree, arguments, seen, [(text, plan, syntax) for (text, plan), syntax in pairs]


def run_query(
    session: Session,
    turns: Turns,
    sql: object,
    arguments: Mapping[str, object],
    before: Callable[[QueryStatement], None] | None = None,
    asker: Asker | None = None,
) -> Answered:
    """Return the answer of a query: run and charged, or read from the ledger.

    `sql` is the query's text, or the result of `planned_query`. `before` runs once the budget allows the query and
    before rows are read; it does not run for a stored answer.
    """
    with turns.alone():
        statement, free = (
            (sql, "") if isinstance(sql, QueryStatement) else planned_query(session, turns, sql, arguments, asker)
        )
        if statement is None:
            return Answered(_computed(turns, free, has_details=False))
        session.note(statement.plan.function, statement.plan, aggregate=False, lines=lambda: query_lines(statement))
        stored = session.past.replay(statement.plan)
        if stored is None and before is not None:
            before(statement)
        if stored is None:
            value = _released(session, turns, statement)
        else:
            value = _computed(turns, statement.stored_sql())
    entry = stored or session.past.replay(statement.plan)
    if entry is None:
        raise InternalError("I003", "the stored release is gone from the ledger. Run `dpsql ledger verify`.")
    return Answered(value, statement.plan, entry, stored is not None)


def _released(session: Session, turns: Turns, statement: QueryStatement) -> pa.Table:
    """Return the final result of a query after running and charging it."""
    try:
        return run_release(
            session, turns, statement.sql(), statement.plan, lambda: session.past.replay(statement.plan) is not None
        )
    except AfterReleaseError:
        # Run again over the stored answers: DuckDB's messages then reveal only these answers.
        return _computed(turns, statement.stored_sql())


def _computed(turns: Turns, statement: str, *, has_details: bool = True) -> pa.Table:
    """Return the result of a statement that reads no protected rows.

    Raises
    ------
    ParameterError
        P108: it fails; with DuckDB's text if it `has_details`.
    """
    try:
        return turns.table(statement)
    except DpsqlError:
        raise
    except (duckdb.InterruptException, KeyboardInterrupt):
        raise
    except duckdb.Error as error:
        reason = f": {str(error).strip().splitlines()[0].rstrip('.!')}" if has_details else ""
    note = " The answers are stored, so that it is free." if has_details else ""
    raise ParameterError(
        "P108", f"what the query computes of its answers fails{reason}. Mend that, and ask again.{note}"
    )
