"""Whether the catalog of an instance is still the one that was judged.

To list all macros and functions takes DuckDB as long as the rest of a small call. DuckDB numbers every object of an
instance from one count: what is created, replaced, altered or dropped in any database of it takes numbers, and so does
each new connection, for its temporary database. So a new connection's number, less those of the connections that dpsql
itself opens, stays as it is only as long as nobody changes the catalog: it is the *state* of the catalog. Rows have no
part in it.

Equal states mean equal catalogs with two exceptions, and where one may hold nothing is remembered. Another connection
may commit, later, what it changed before: so the caller's must be the only one, unless all are dpsql's own (`sealed`).
And the caller's own transaction may be rolled back: so a state counts only once it was seen in two transactions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb

if TYPE_CHECKING:
    from collections.abc import Hashable

_MOST_JUDGED = 4096
# The caller's connection, the one that notices when it closes, and the one that asks.
_ALONE = 3
_ASKED = (
    "SELECT database_oid, (SELECT count FROM system.main.duckdb_connection_count()) "
    "FROM system.main.duckdb_databases() WHERE database_name = 'temp'"
)


@dataclass(frozen=True)
class _Asked:
    """What the catalog's state was when a statement asked whether to list it; None if that says nothing."""

    state: int | None
    listed: bool


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
        self._each: int | None = None  # the numbers that a connection takes
        self._lock = threading.RLock()
        self.sealed = False  # whether no code but dpsql's own has a connection
        self._asked: dict[Hashable, _Asked] = {}
        self._seen: tuple[int, int] | None = None  # the state of the last listing, and its transaction
        self._judged: set[Hashable] = set()
        self._state: int | None = None  # the state in which that was judged

    def cursor(self) -> duckdb.DuckDBPyConnection | None:
        """Return a new connection to the instance, or None when all are closed."""
        with self._lock:
            found = self._open()
            self._opened += found is not None
        return found

    def must_list(self, key: Hashable) -> bool:
        """Whether a statement must list the catalog, since `key` was not judged in the state that it has now."""
        with self._lock:
            state = self._now()
            listed = state is None or state != self._state or key not in self._judged
            # Where two statements ask at once, which of them is judged in which state is not known.
            self._asked[key] = _Asked(None if key in self._asked else state, listed)
            if len(self._asked) > _MOST_JUDGED:
                self._asked.clear()
            return listed

    def was_judged(self, key: Hashable) -> bool:
        """Whether `must_list` has told the statement that is running that `key` was judged."""
        with self._lock:
            asked = self._asked.pop(key, None)
            return asked is not None and not asked.listed

    def judged(self, key: Hashable, transaction: int) -> None:
        """Note that `key` was judged by what a statement has listed in a `transaction`."""
        with self._lock:
            asked = self._asked.pop(key, None)
            if asked is None or asked.state is None:
                return
            before, self._seen = self._seen, (asked.state, transaction)
            if before is None or before[0] != asked.state or (before[1] == transaction and self._state != asked.state):
                return
            if self._state != asked.state or len(self._judged) >= _MOST_JUDGED:
                self._judged.clear()
            self._state = asked.state
            self._judged.add(key)

    def _now(self) -> int | None:
        """Return the state of the catalog; None where it may change without another state."""
        if self._each is None:
            numbers = [found[0] for _ in range(4) if (found := self._number()) is not None]
            self._each = min((later - number for number, later in zip(numbers, numbers[1:], strict=False)), default=0)
        found = self._number()
        if found is None or self._each <= 0 or not (self.sealed or found[1] <= _ALONE):
            return None
        return found[0] - self._each * self._opened

    def _number(self) -> tuple[int, int] | None:
        """Return the number that a new connection gets, and how many connections there are."""
        cursor = self.cursor()
        if cursor is None:
            return None
        with cursor, suppress(duckdb.Error):
            row = cursor.execute(_ASKED).fetchone()
            return None if row is None else (int(row[0]), int(row[1]))
        return None
