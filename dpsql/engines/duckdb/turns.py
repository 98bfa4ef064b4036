"""Statements on a DuckDB connection that threads share: they take turns, and each runs exactly once."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import duckdb
import pyarrow as pa

from dpsql.errors import original
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

    def plans(self, queries: Iterable[str], *, optimize: bool = False) -> list[tuple[str, str]]:
        """Return queries with DuckDB's plans of them; none is run."""
        plan = f"SELECT system.main.json_serialize_plan(?{', optimize := true' if optimize else ''})::VARCHAR"
        return [(query, self.rows(plan, query)[0][0]) for query in queries]

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
