"""Upgrade a ledger of version 1 to the present version, in one transaction."""

from __future__ import annotations

from sqlalchemy import Connection, text
from sqlalchemy.schema import CreateIndex, CreateTable

from dpsql.ledger import schema
from dpsql.ledger.chain import NEW_COLUMNS, Last, followed, note


def upgrade(connection: Connection, ledger_id: str, place: str) -> None:
    """Add what version 1 does not have; its rows keep their hashes. The caller is the only writer.

    Raises
    ------
    LedgerError
        L030: a row is not what was written. Nothing is changed.
    """
    if connection.execute(schema.read_version).scalar() != schema.UPGRADED_VERSION:
        return  # another process was first while this one waited for the lock
    lasts: dict[str, Last] = {}
    for row in followed(place, ledger_id, schema.stream(connection, schema.UPGRADED_VERSION)):
        note(lasts, row)
    for column in NEW_COLUMNS:
        connection.execute(text(f"ALTER TABLE dpsql_ledger ADD COLUMN {column} TEXT"))
    connection.execute(CreateTable(schema.last))
    connection.execute(CreateIndex(schema.declarations_index))
    if lasts:
        names = ("key", "sequence", "hash", "number")
        connection.execute(
            schema.add_last, [dict(zip(names, (key, *last), strict=True)) for key, last in lasts.items()]
        )
    for statement in schema.note_triggers[connection.dialect.name]:
        connection.exec_driver_sql(statement)
    connection.execute(schema.set_version)
