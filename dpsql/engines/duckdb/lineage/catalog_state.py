"""Whether the catalog of an instance is still the one that was judged.

To list all macros and functions takes DuckDB as long as the rest of a small call. DuckDB numbers every object of an
instance from one count: what is created, replaced, altered or dropped in any database of it takes numbers, and so does
each new connection, for its temporary database. So a new connection's number, less those of the connections that dpsql
itself opens, stays as it is only as long as nobody changes the catalog: it is the *state* of the catalog. Rows have no
part in it.

Equal states mean equal catalogs with two exceptions, and where one may hold nothing is remembered. Another connection
may commit, later, what it changed before; and a statement such as CREATE TABLE AS changes the catalog between its plan
and its first row. So a state counts only where all connections and statements are dpsql's own (`sealed`): nothing is
yet, as the gateway opens connections beside those that are counted here. And a transaction may be rolled back: so a
state counts only once it was seen in two transactions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

_MOST_JUDGED = 4096
_NUMBER = "SELECT database_oid FROM system.main.duckdb_databases() WHERE database_name = 'temp'"
_TRIALS = 4


class CatalogState:
    """What was judged of one instance's catalog, and in which state of it.

    Parameters
    ----------
    cursor : callable
        Returns a new connection to the instance, or None when all are closed.
    """

    def __init__(self, cursor: Callable[[], duckdb.DuckDBPyConnection | None]) -> None:
        self._open = cursor
        self._opened = 0
        self._each: int | None = None  # how many numbers a connection takes
        self._lock = threading.Lock()
        self.sealed = False  # whether no code but dpsql's own has a connection
        self._seen: tuple[int, int] | None = None  # the state of the last listing, and its transaction
        self._judged: set[str] = set()
        self._state: int | None = None  # the state in which that was judged

    def cursor(self) -> duckdb.DuckDBPyConnection | None:
        """Return a new connection to the instance, or None when all are closed."""
        return self.numbered()[0]

    def numbered(self) -> tuple[duckdb.DuckDBPyConnection | None, int]:
        """Return a new connection to the instance, and how many were opened with it."""
        with self._lock:
            found = self._open()
            self._opened += found is not None
            return found, self._opened

    def of(self, cursor: duckdb.DuckDBPyConnection, number: int, opened: int) -> int | None:
        """Return the state of the catalog when a cursor was opened; None where it may change in one state.

        Parameters
        ----------
        cursor : duckdb.DuckDBPyConnection
        number : int
            Of its temporary database.
        opened : int
            How many cursors were opened with it.
        """
        if not self.sealed:
            return None
        each = self._numbers_of_each()
        return number - each * opened if each > 0 else None

    def _numbers_of_each(self) -> int:
        """Return how many numbers a connection takes; too few would only make states differ."""
        if self._each is None:
            numbers: list[int] = []
            for _ in range(_TRIALS):
                cursor = self.cursor()
                if cursor is None:
                    return 0
                with cursor:
                    numbers.append(cursor.execute(_NUMBER).fetchall()[0][0])
            self._each = min(later - number for number, later in pairwise(numbers))
        return self._each

    def is_judged(self, key: str, state: int | None) -> bool:
        """Whether `key` was judged in a state of the catalog."""
        with self._lock:
            return state is not None and state == self._state and key in self._judged

    def judged(self, key: str, state: int | None, transaction: int) -> None:
        """Note that `key` was judged by what a statement has listed in a `transaction`, in a state of the catalog."""
        with self._lock:
            before, self._seen = self._seen, None if state is None else (state, transaction)
            if state is None or before is None or before[0] != state:
                return
            if self._state != state and before[1] == transaction:
                return
            if self._state != state or len(self._judged) >= _MOST_JUDGED:
                self._judged.clear()
            self._state = state
            self._judged.add(key)
