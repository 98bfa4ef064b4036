"""What a database remembers of its ledger: which entry was the last one, and what was spent of each account.

A ledger that is restored from an earlier copy forgets what was charged since, and its budgets would come back. So the
schema that is the database's mark holds two tables. ``spent`` has a row for each entry of the ledger: its number, the
first digits of its hash, and the totals of its account in the numbers of the accountant (`dpsql.ledger.spending`).
``place`` says where the ledger was.

Rows are written after the ledger's commit, in a transaction of their own, so that the database is never ahead of a
ledger that lost nothing, also after a crash, and whatever becomes of the caller's transaction. A row that cannot be
written, as in a read-only database, is written with the next one: the database may lag, and no release waits for it.
A ledger that does not hold the last entry that the database remembers is refused until its owner accepts it.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb

from dpsql.contract.parameters import show
from dpsql.engines.duckdb.mark import Mark, change_mark, is_read_only, mark_of_main
from dpsql.errors import LedgerError, LedgerWarning
from dpsql.ledger.spending import Lost, Totals
from dpsql.progress import held_back
from dpsql.rendering import identifier

if TYPE_CHECKING:
    from dpsql.ledger.chain import Row
    from dpsql.ledger.ledger import Ledger

_SPENT = "spent (sequence BIGINT, hash VARCHAR, dataset VARCHAR, block VARCHAR, spent VARCHAR)"
_PLACE = "place (ledger VARCHAR, place VARCHAR, file VARCHAR)"
_AT_ONCE = 500
# So many entries are remembered one by one. Of an older backup of the ledger more is charged than it has lost.
_MOST = 100_000


@dataclass(frozen=True)
class Remembered:
    """What a database remembers.

    Attributes
    ----------
    ledger : str or None
        The id of the ledger; None where nothing is remembered.
    location : str
        Where the ledger was.
    file : str or None
        The number of its file.
    totals : list of Totals
        In the order of the entries; of `read` with `last` the last one alone.
    """

    ledger: str | None
    location: str
    file: str | None
    totals: list[Totals]


def read(cursor: duckdb.DuckDBPyConnection, database: str, mark: Mark, *, last: bool = False) -> Remembered:
    """Return what a database remembers, all of it or the `last` entry alone."""
    schema = f"{identifier(database)}.{mark.schema}"
    columns = "sequence, hash, dataset, block, spent"
    order = "sequence DESC LIMIT 1" if last else "sequence"
    try:
        rows = cursor.execute(f"SELECT {columns} FROM {schema}.spent ORDER BY {order}").fetchall()
        origin = cursor.execute(f"SELECT ledger, place, file FROM {schema}.place").fetchone()
    except duckdb.CatalogException:  # a database of an earlier version remembers nothing
        return Remembered(None, "", None, [])
    ledger, location, file = origin or (None, "", None)
    return Remembered(ledger, location, file, [Totals.read(*row) for row in rows])


class SpendingRecord:
    """Keeps what the attached databases remember of a ledger, and compares it when a database is first seen.

    Parameters
    ----------
    ledger : Ledger
    cursor : callable
        Returns a new connection to the instance, or None when all are closed.
    """

    def __init__(self, ledger: Ledger, cursor: Callable[[], duckdb.DuckDBPyConnection | None]) -> None:
        self._ledger = ledger
        self._cursor = cursor
        self._lock = threading.Lock()
        # The last entry that each attached database remembers, by its alias, mark and number: 0 for none, and None for
        # a database that cannot be written.
        self._last: dict[tuple[str, Mark, int], int | None] = {}
        ledger.recorders.append(self._record)

    def look(self, cursor: duckdb.DuckDBPyConnection, marks: Mapping[str, Mark], numbers: Mapping[str, int]) -> None:
        """Compare what databases remember with the ledger, if that was not done since they were attached.

        Parameters
        ----------
        cursor : duckdb.DuckDBPyConnection
        marks : mapping of str to Mark
            The marked databases by alias; their marks are of this ledger.
        numbers : mapping of str to int
            The number of each attached object.

        Raises
        ------
        LedgerError
            L057: the ledger does not hold what a database remembers.
        """
        present = {(alias, mark, numbers[alias]) for alias, mark in marks.items()}
        if present != self._last.keys():
            new = {attachment: self._compared(cursor, *attachment[:2]) for attachment in present - self._last.keys()}
            with self._lock:
                self._last = {
                    attachment: last for attachment, last in (self._last | new).items() if attachment in present
                }

    def _compared(self, cursor: duckdb.DuckDBPyConnection, alias: str, mark: Mark) -> int | None:
        """Return the last entry that a database remembers, and the ledger holds."""
        memory = read(cursor, alias, mark, last=True)
        if memory.ledger is None or not memory.totals:
            return None if is_read_only(cursor, alias) else 0
        [end] = memory.totals
        if memory.ledger != self._ledger.id or not self._ledger.has_entry(end.sequence, end.hash):
            raise LedgerError(
                "L057",
                f"database {show(alias)} remembers entry {end.sequence} ({end.hash[:8]}…) of its ledger, and the "
                f"ledger at {show(self._ledger.location)} does not hold it: it was restored from an earlier copy, or "
                "replaced. Nothing was released. Put the right ledger back; or charge what the database says was "
                "spent: dpsql ledger accept --db, with the database's file.",
            )
        location, file = self._ledger.place
        if (memory.location, memory.file) != (location, file):
            warnings.warn(
                f"the ledger of database {alias!r} was copied or moved: it was at {memory.location!r}, and is "
                f"{'another file there' if memory.location == location else f'at {location!r}'}. If the first one is "
                "still in use, each of the two spends the budgets once. If it is gone: dpsql ledger accept --db, with "
                "the database's file.",
                LedgerWarning,
                stacklevel=2,
            )
        if is_read_only(cursor, alias):
            return None
        with suppress(duckdb.Error):  # else at another time
            _forget(cursor, f"{identifier(alias)}.{mark.schema}", end.sequence - _MOST)
        return end.sequence

    def _record(self, rows: Sequence[Row]) -> None:
        """Let the databases remember new entries, which are committed, and those before that they missed."""
        if not self._last:
            return
        cursor = self._cursor()
        if cursor is None:
            return
        with self._lock, cursor, held_back():
            for key, last in self._last.items():
                if last is not None and rows[-1]["sequence"] > last:
                    # It is written with the next entry.
                    with suppress(duckdb.Error, RuntimeError, LedgerError):
                        self._last[key] = self._write_after(cursor, *key[:2], last, rows)

    def _write_after(
        self, cursor: duckdb.DuckDBPyConnection, alias: str, mark: Mark, last: int, rows: Sequence[Row]
    ) -> int:
        """Write what a database missed after an entry; return the last entry that it remembers now."""
        if last == 0:
            return write(cursor, alias, mark, self._ledger)
        follows = rows[0]["sequence"] == last + 1
        totals = [Totals.of(row) for row in rows] if follows else self._ledger.totals_since(last)
        _insert(cursor, alias, mark, totals)
        return totals[-1].sequence


def write(cursor: duckdb.DuckDBPyConnection, database: str, mark: Mark, ledger: Ledger) -> int:
    """Let a database remember all accounts of a ledger and where it is, and nothing else; return the last entry."""
    schema, totals = f"{identifier(database)}.{mark.schema}", ledger.totals_since(0)
    cursor.begin()
    try:
        for table in (_SPENT, _PLACE):
            cursor.execute(f"CREATE OR REPLACE TABLE {schema}.{table}")
        _insert(cursor, database, mark, totals)
        cursor.execute(f"INSERT INTO {schema}.place VALUES (?, ?, ?)", [ledger.id, *ledger.place])
        cursor.commit()
    except BaseException:
        with suppress(duckdb.Error):
            cursor.rollback()
        raise
    return totals[-1].sequence if totals else 0


def _forget(cursor: duckdb.DuckDBPyConnection, schema: str, before: int) -> None:
    """Remove old rows, but the last one of each account and those that state budgets."""
    row = cursor.execute(f"SELECT count(*) FROM {schema}.spent").fetchone()
    if row is not None and row[0] > 2 * _MOST:
        last = f"SELECT max(sequence) FROM {schema}.spent GROUP BY dataset, block"
        cursor.execute(
            f"""DELETE FROM {schema}.spent WHERE sequence < ? AND NOT contains(spent, '"budget"') """
            f"AND sequence NOT IN ({last})",
            [before],
        )


def _insert(cursor: duckdb.DuckDBPyConnection, database: str, mark: Mark, totals: Sequence[Totals]) -> None:
    for start in range(0, len(totals), _AT_ONCE):
        some = totals[start : start + _AT_ONCE]
        values = [
            value for total in some for value in (total.sequence, total.hash, total.dataset, total.block, total.text)
        ]
        placeholders = ", ".join(["(?, ?, ?, ?, ?)"] * len(some))
        cursor.execute(f"INSERT INTO {identifier(database)}.{mark.schema}.spent VALUES {placeholders}", values)


@dataclass(frozen=True)
class Accepted:
    """What became of a database and its ledger.

    Attributes
    ----------
    before, after : Mark or None
        `before` is None where there was no mark, and `after` where there is none.
    charged : list of Lost
        What the ledger was charged.
    """

    before: Mark | None
    after: Mark | None
    charged: list[Lost]


def lost(connection: duckdb.DuckDBPyConnection, ledger: Ledger) -> list[Lost]:
    """Return what the connection's database remembers beyond a ledger; changes nothing."""
    with connection.cursor() as cursor:
        database, mark = mark_of_main(cursor)
        memory = None if mark is None else read(cursor, database, mark)
    return [] if memory is None or memory.ledger is None else ledger.lost(memory.totals, memory.ledger)


def accept(connection: duckdb.DuckDBPyConnection, ledger: Ledger, *, adopt: bool = False) -> Accepted:
    """Charge to a ledger what the connection's database remembers beyond it, and tie the two.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
    ledger : Ledger
    adopt : bool
        Tie a database without a mark, too.
    """
    with connection.cursor() as cursor:
        database, mark = mark_of_main(cursor)
        if mark is None and not adopt:
            return Accepted(None, None, [])
        memory = Remembered(None, "", None, []) if mark is None else read(cursor, database, mark)
        end = memory.totals[-1] if memory.totals else None
        same = mark is not None and mark.is_of(ledger.id)
        charged: list[Lost] = []

        def record(before: Mark | None, after: Mark) -> None:
            facts: dict[str, object] = {"database": after.database, "before": None if before is None else before.ledger}
            if end is not None:
                facts |= {"sequence": end.sequence, "hash": end.hash}
            kind = "adopt" if adopt or not same else "accept"
            charged[:] = ledger.charge_lost(memory.totals, memory.ledger or "", kind, facts)

        holds = end is None or (memory.ledger == ledger.id and ledger.has_entry(end.sequence, end.hash))
        before, after = mark, mark
        if mark is None or adopt or not same or not holds or mark.database not in ledger.declarations().databases:
            before, after = change_mark(connection, database, ledger.id, record)
        if after is not None:
            write(cursor, database, after, ledger)
        return Accepted(before, after, charged)
