"""Upgrade a ledger of an earlier version to the present one, in one transaction."""

from __future__ import annotations

from sqlalchemy import Connection, text
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable

from dpsql.ledger import schema
from dpsql.ledger.chain import MISSING_COLUMNS, Last, note, verified_rows


def upgrade(connection: Connection, ledger_id: str, place: str) -> None:
    """Add what an earlier version does not have; its rows keep their hashes. The caller is the only writer.

    Raises
    ------
    LedgerError
        L030: a row is not what was written. Nothing is changed.
    """
    version = connection.execute(schema.read_version).scalar_one()
    if version not in schema.UPGRADED_VERSIONS:
        return  # another process was first while this one waited for the lock
    lasts: dict[str, Last] = {}
    if version == "1":
        for row in verified_rows(place, ledger_id, schema.stream(connection, version)):
            note(lasts, row)
    for name in MISSING_COLUMNS[version]:
        column = CreateColumn(schema.entry.c[name]).compile(dialect=connection.dialect)
        connection.execute(text(f"ALTER TABLE dpsql_ledger ADD COLUMN {column}"))
    if version == "1":
        _note_lasts(connection, lasts)
    connection.execute(CreateIndex(schema.reservations_index))
    connection.execute(schema.set_version)


def _note_lasts(connection: Connection, lasts: dict[str, Last]) -> None:
    """Make the second place for the end of the chain."""
    connection.execute(CreateTable(schema.last))
    connection.execute(CreateIndex(schema.declarations_index))
    if lasts:
        names = ("key", "sequence", "hash", "number")
        connection.execute(
            schema.add_last, [dict(zip(names, (key, *last), strict=True)) for key, last in lasts.items()]
        )
    for statement in schema.note_triggers[connection.dialect.name]:
        connection.exec_driver_sql(statement)
