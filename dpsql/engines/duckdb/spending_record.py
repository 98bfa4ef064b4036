"""Store in a database its memory of the ledger: the last entry, and the spending of each account.

A ledger restored from an earlier copy forgets later charges, so their budgets would come back. To prevent this, the
schema with the database ID has two tables. ``spent`` has a row for each entry of the ledger: its number, the first
digits of its hash, and the totals of its account in the accountant's numbers (`dpsql.ledger.spending`). ``place``
stores the location of the ledger.

dpsql writes rows after the ledger's commit, in a separate transaction. So the database is never ahead of a ledger that
lost nothing, even after a crash, and the caller's transaction does not matter. If a write fails, as in a read-only
database, the next write adds the row: the database may lag, and no release waits. dpsql refuses a ledger without the
last entry that the database remembers, until the owner accepts that ledger.

**The database ID** is the name of a schema, which ties the database to its ledger:
``dpsql_ledger_<ledger>_<database>``: the first 16 hexadecimal digits of the ledger's ID, and 16 random ones of the
database. The schema stores the database's memory of the ledger (`spending_record`). A schema's name survives copies of
the file, EXPORT and COPY FROM DATABASE; a copy shares the budget.
"""

from __future__ import annotations

import re
import secrets
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import duckdb

from dpsql.contract.parameters import show
from dpsql.dataclass import dataclass
from dpsql.errors import LedgerError, LedgerWarning, SourceError
from dpsql.ledger.spending import Lost, Totals
from dpsql.progress import held_back
from dpsql.rendering import identifier

if TYPE_CHECKING:
    import duckdb

    from dpsql.ledger.chain import Row
    from dpsql.ledger.ledger import Ledger

_digits = 16
_schema = re.compile(r"dpsql_ledger_([0-9a-f]{16})_([0-9a-f]{16})")
_in_plan = re.compile(f'"{_schema.pattern}"')
_marking = threading.Lock()
ROWS = "SELECT database_name, schema_name, database_oid FROM system.main.duckdb_schemas()"


@dataclass(frozen=True)
class Mark:
    """The ID of a database.

    Attributes
    ----------
    ledger : str
        The first 16 digits of its ledger's id.
    database : str
        The 16 digits of the database.
    """

    ledger: str
    database: str

    @classmethod
    def of(cls, ledger_id: str, database: str) -> Mark:
        """Return the ID that ties a database to a ledger."""
        return cls(ledger_id[:_digits], database)

    @property
    def schema(self) -> str:
        """The name of the schema with this ID."""
        return f"dpsql_ledger_{self.ledger}_{self.database}"

    def is_of(self, ledger_id: str) -> bool:
        """Whether the ID names this ledger."""
        return self.ledger == ledger_id[:_digits]


def new_mark(ledger_id: str) -> Mark:
    """Return an ID for a database without one."""
    return Mark.of(ledger_id, secrets.token_hex(_digits // 2))


def parse_mark(schema: str) -> Mark | None:
    """Return the database ID in a schema's name, or None."""
    match = _schema.fullmatch(schema)
    return None if match is None else Mark(*match.groups())


def of_mark(plan: str) -> bool:
    """Whether the text of a plan names a schema with a database ID."""
    return _in_plan.search(plan) is not None


def record_named() -> SourceError:
    """Return the refusal of a source in an ID's schema."""
    return SourceError(
        "S016", "the source is no table: dpsql keeps there what was spent. Look at it with SELECT * FROM dp_budget()."
    )


def marks_of(rows: Iterable[Sequence[str]]) -> dict[str, Mark]:
    """Return the IDs of all databases that have an ID, by alias.

    Parameters
    ----------
    rows : iterable
        Database, schema and number of the attached object from `duckdb_schemas()`, as `ROWS` selects them.

    Raises
    ------
    LedgerError
        L034: a database has two IDs.
    """
    aliases: dict[str, Mark] = {}
    for database, schema, *_ in rows:
        mark = parse_mark(schema)
        if mark is None:
            continue
        if aliases.setdefault(database, mark) != mark:
            raise LedgerError(
                "L034",
                f"database {database!r} is marked twice, as {aliases[database].schema} and {mark.schema}. "
                "Drop the schema that is not its own; dpsql ledger shows the id of a ledger.",
            )
    return aliases


def refuse_other(alias: str, mark: Mark, ledger: Ledger) -> None:
    """Raise if a database's ID names another ledger, or the ledger has lost its entries about the database.

    Raises
    ------
    LedgerError
        L033, L054.
    """
    _refuse_id(alias, mark, ledger.id)
    if mark.database not in ledger.declarations().databases:
        raise LedgerError(
            "L054",
            f"database {alias!r} keeps its budgets in this ledger, {mark.ledger}…, which holds nothing about it: its "
            "entries were lost. Nothing was released. Restore a backup with dpsql ledger restore; or run dpsql ledger "
            "accept --db, with the database's file, to go on without them, and dp_protect again.",
        )


def _refuse_id(alias: str, mark: Mark, ledger_id: str) -> None:
    if not mark.is_of(ledger_id):
        raise LedgerError(
            "L033",
            f"database {alias!r} keeps its budgets in ledger {mark.ledger}…; the ledger opened is "
            f"{ledger_id[:_digits]}…. Give ledger := that one; or run dpsql ledger accept --db, with the database's "
            "file, which charges all that remained of its budgets.",
        )


def write_mark(
    connection: duckdb.DuckDBPyConnection,
    database: str,
    ledger_id: str,
    announce: Callable[[Mark], object] | None = None,
) -> str | None:
    """Write a database's ID, even if the caller's transaction is rolled back.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        A cursor of this connection writes the ID.
    database : str
        The database's alias.
    ledger_id : str
    announce : callable, optional
        Called with the ID before other connections can see it.

    Returns
    -------
    database_id : str or None
        The database's digits now; None if the database is read-only and has no ID.

    Raises
    ------
    LedgerError
        L033: the database ID names another ledger. L034: the database has two IDs.
    """
    with _marking, connection.cursor() as cursor:
        mark = marks_of(cursor.execute(f"{ROWS} WHERE database_name = ?", [database]).fetchall()).get(database)
        if mark is not None:
            _refuse_id(database, mark, ledger_id)
        else:
            if is_read_only(cursor, database):
                return None
            mark = new_mark(ledger_id)
            if announce is not None:
                announce(mark)
            cursor.execute(f"CREATE SCHEMA {_quoted(database)}.{mark.schema}")
        return mark.database


def change_mark(
    connection: duckdb.DuckDBPyConnection,
    database: str,
    ledger_id: str,
    record: Callable[[Mark | None, Mark], object],
) -> tuple[Mark | None, Mark]:
    """Tie a database to another ledger, in one transaction; it keeps its digits.

    Parameters
    ----------
    connection, database, ledger_id : optional
        As in `write_mark`.
    record : callable
        Called with the IDs before and after, while the change can still be undone.

    Returns
    -------
    before, after : Mark
        `before` is None if the database had no ID.
    """
    with _marking, connection.cursor() as cursor:
        before = marks_of(cursor.execute(f"{ROWS} WHERE database_name = ?", [database]).fetchall()).get(database)
        after = new_mark(ledger_id) if before is None else Mark.of(ledger_id, before.database)
        if before == after:  # the ledger may have forgotten the ID
            record(before, after)
            return before, after
        cursor.begin()
        cursor.execute(f"CREATE SCHEMA {_quoted(database)}.{after.schema}")
        if before is not None:
            cursor.execute(f"DROP SCHEMA {_quoted(database)}.{before.schema} CASCADE")
        record(before, after)
        cursor.commit()
        return before, after


def mark_of_main(cursor: duckdb.DuckDBPyConnection) -> tuple[str, Mark | None]:
    """Return the name of the connection's database, and its database ID."""
    rows = cursor.execute(f"{ROWS} WHERE database_name = system.main.current_database()").fetchall()
    alias = rows[0][0]
    return alias, marks_of(rows).get(alias)


def is_read_only(connection: duckdb.DuckDBPyConnection, database: str) -> bool:
    """Whether a database is read-only."""
    row = connection.execute(
        "SELECT readonly FROM system.main.duckdb_databases() WHERE database_name = ?", [database]
    ).fetchone()
    return row is not None and bool(row[0])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_SPENT = "spent (sequence BIGINT, hash VARCHAR, dataset VARCHAR, block VARCHAR, spent VARCHAR)"
_PLACE = "place (ledger VARCHAR, place VARCHAR, file VARCHAR)"
_AT_ONCE = 500
# Number of entries that a database remembers one by one. For an older backup, dpsql charges more than the ledger lost.
_MOST = 100_000


@dataclass(frozen=True)
class Remembered:
    """The memory of a database.

    Attributes
    ----------
    ledger : str or None
        The ledger's ID; None if the database remembers nothing.
    location : str
        The location of the ledger.
    file : str or None
        The number of its file.
    totals : list of Totals
        In entry order; `read` with `last` returns only the last one.
    """

    ledger: str | None
    location: str
    file: str | None
    totals: list[Totals]


def read(cursor: duckdb.DuckDBPyConnection, database: str, mark: Mark, *, last: bool = False) -> Remembered:
    """Return a database's memory, or only its `last` entry."""
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
    """Update the attached databases' memory of a ledger, and compare it when a database first appears.

    Parameters
    ----------
    ledger : Ledger
    cursor : callable
        Returns a new connection to the instance, or None if all are closed.
    """

    def __init__(self, ledger: Ledger, cursor: Callable[[], duckdb.DuckDBPyConnection | None]) -> None:
        self._ledger = ledger
        self._cursor = cursor
        self._lock = threading.Lock()
        # The last entry that each attached database remembers, by alias, database ID and number: 0 for no entry, and
        # None for a read-only database.
        self._last: dict[tuple[str, Mark, int], int | None] = {}
        ledger.recorders.append(self._record)

    def look(self, cursor: duckdb.DuckDBPyConnection, marks: Mapping[str, Mark], numbers: Mapping[str, int]) -> None:
        """Compare each database's memory with the ledger, once per attachment.

        Parameters
        ----------
        cursor : duckdb.DuckDBPyConnection
        marks : mapping of str to Mark
            The IDs of databases by alias; all IDs name this ledger.
        numbers : mapping of str to int
            The number of each attached object.

        Raises
        ------
        LedgerError
            L057: the ledger lacks an entry that a database remembers.
        """
        present = {(alias, mark, numbers[alias]) for alias, mark in marks.items()}
        if present != self._last.keys():
            new = {attachment: self._compared(cursor, *attachment[:2]) for attachment in present - self._last.keys()}
            with self._lock:
                self._last = {
                    attachment: last for attachment, last in (self._last | new).items() if attachment in present
                }

    def _compared(self, cursor: duckdb.DuckDBPyConnection, alias: str, mark: Mark) -> int | None:
        """Return the last entry that a database remembers and the ledger has."""
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
        with suppress(duckdb.Error):  # the next comparison tries again
            _forget(cursor, f"{identifier(alias)}.{mark.schema}", end.sequence - _MOST)
        return end.sequence

    def _record(self, rows: Sequence[Row]) -> None:
        """Write new committed entries to the databases, and earlier entries that they missed."""
        if not self._last:
            return
        cursor = self._cursor()
        if cursor is None:
            return
        with self._lock, cursor, held_back():
            for key, last in self._last.items():
                if last is not None and rows[-1]["sequence"] > last:
                    # If this fails, the next entry's write adds it.
                    with suppress(duckdb.Error, RuntimeError, LedgerError):
                        self._last[key] = self._write_after(cursor, *key[:2], last, rows)

    def _write_after(
        self, cursor: duckdb.DuckDBPyConnection, alias: str, mark: Mark, last: int, rows: Sequence[Row]
    ) -> int:
        """Write the entries after `last` to a database; return the last entry that it remembers now."""
        if last == 0:
            return write(cursor, alias, mark, self._ledger)
        follows = rows[0]["sequence"] == last + 1
        totals = [Totals.of(row) for row in rows] if follows else self._ledger.totals_since(last)
        _insert(cursor, alias, mark, totals)
        return totals[-1].sequence


def write(cursor: duckdb.DuckDBPyConnection, database: str, mark: Mark, ledger: Ledger) -> int:
    """Replace a database's memory by all accounts of a ledger and its location; return the last entry."""
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
    """Delete old rows, but not each account's last row and rows that declare budgets."""
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
    """The result of `accept` for a database and its ledger.

    Attributes
    ----------
    before, after : Mark or None
        The database IDs; None if there is no ID.
    charged : list of Lost
        The charges to the ledger.
    """

    before: Mark | None
    after: Mark | None
    charged: list[Lost]


def lost(connection: duckdb.DuckDBPyConnection, ledger: Ledger) -> list[Lost]:
    """Return spending that a ledger lacks and its database remembers; change nothing."""
    with connection.cursor() as cursor:
        database, mark = mark_of_main(cursor)
        memory = None if mark is None else read(cursor, database, mark)
    return [] if memory is None or memory.ledger is None else ledger.lost(memory.totals, memory.ledger)


def accept(connection: duckdb.DuckDBPyConnection, ledger: Ledger, *, adopt: bool = False) -> Accepted:
    """Charge a ledger for spending that only its database remembers, and tie the two.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
    ledger : Ledger
    adopt : bool
        Tie a database without an ID, too.
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
