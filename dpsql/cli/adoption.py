"""`dpsql ledger adopt`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click
import duckdb

from dpsql.cli.receipts import ledger_place
from dpsql.engines.duckdb.mark import adopt
from dpsql.ledger.ledger import Ledger


def adopt_ledger(database: str, ledger: str | None) -> None:
    """Tie a database to a ledger, whatever ledger it was tied to, and record it there."""
    place = ledger_place(database, ledger)
    if not Path(database).is_file():
        raise click.UsageError(f"there is no database {database!r}.")
    with duckdb.connect(database) as connection, closing(Ledger.open(place)) as opened:
        before, after = adopt(connection, opened)
    was = "no ledger" if before is None else f"ledger {before.ledger}…"
    click.echo(f"ok: {database} belonged to {was}, and now belongs to ledger {after.ledger}… at {place}.")
