"""The database ID of a DuckDB database: the name of a schema, which ties the database to its ledger.

``dpsql_ledger_<ledger>_<database>``: the first 16 hexadecimal digits of the ledger's ID, and 16 random ones of the
database. The schema stores the database's memory of the ledger (`spending_record`). A schema's name survives copies of
the file, EXPORT and COPY FROM DATABASE; a copy shares the budget.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.errors import LedgerError, SourceError

if TYPE_CHECKING:
    import duckdb

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


def parse(schema: str) -> Mark | None:
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


def marks(rows: Iterable[Sequence[str]]) -> dict[str, Mark]:
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
        mark = parse(schema)
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
        mark = marks(cursor.execute(f"{ROWS} WHERE database_name = ?", [database]).fetchall()).get(database)
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
        before = marks(cursor.execute(f"{ROWS} WHERE database_name = ?", [database]).fetchall()).get(database)
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
    return alias, marks(rows).get(alias)


def is_read_only(connection: duckdb.DuckDBPyConnection, database: str) -> bool:
    """Whether a database is read-only."""
    row = connection.execute(
        "SELECT readonly FROM system.main.duckdb_databases() WHERE database_name = ?", [database]
    ).fetchone()
    return row is not None and bool(row[0])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
