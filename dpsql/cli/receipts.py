"""Budgets and ledger entries in readable form, straight from the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich import box
from rich.table import Table

from dpsql.errors import LedgerError
from dpsql.ledger.file import beside
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.location import is_url
from dpsql.ledger.policy import PolicyRow
from dpsql.ledger.rows import BudgetRow, LedgerRow


def ledger_place(database: str | None, ledger: str | None) -> str:
    """Return the ledger's location: as given, or beside the database file."""
    if ledger is None and database is None:
        raise click.UsageError("give --db DATABASE or --ledger FILE.")
    return str(beside(str(database))) if ledger is None else ledger


def ledger_location(database: str | None, ledger: str | None) -> str:
    """Return where the ledger is: as given, or beside the database file.

    Raises
    ------
    LedgerError
        There is no such file: reading must not create one.
    """
    location = ledger_place(database, ledger)
    if not is_url(location) and not Path(location).is_file():
        raise LedgerError(
            "L016",
            f"there is no ledger at {location!r}. "
            "It is made with the first connection to the database; give --ledger when it stands elsewhere.",
        )
    return location


def open_ledger(database: str | None, ledger: str | None) -> Ledger:
    """Open a ledger that exists, to read it; the database itself stays closed."""
    return Ledger.open(ledger_location(database, ledger), read_only=True)


def empty_view(*titles: str) -> Table:
    """Return a table to print that has no rows yet; long cells are folded."""
    view = Table(box=box.SQUARE)
    for title in titles:
        view.add_column(title, overflow="fold")
    return view


def budget_view(rows: Sequence[BudgetRow]) -> Table:
    """Return budgets as a table to print: what was granted, spent and remains, in the budget's own measure."""
    view = empty_view("dataset", "budget", "releases", "spent", "remaining", "protects")
    for row in rows:
        view.add_row(row.dataset, row.budget, str(row.releases), row.spent_text, row.remaining_text, _protects(row))
    return view


def ledger_view(rows: Sequence[LedgerRow]) -> Table:
    """Return ledger entries as a table to print that fits 80 columns; the hash is cut to 8 digits."""
    view = Table("#", box=box.SQUARE)
    view.add_column("recorded (UTC)", no_wrap=True)
    for title in ("call", "guarantee", "status"):
        view.add_column(title, overflow="fold")
    view.add_column("hash", no_wrap=True)
    for row in rows:
        call = f"{row.function} {row.dataset}" + (f" release {row.release}" if row.release else "")
        recorded = row.recorded_at[:16].replace("T", " ")
        view.add_row(str(row.sequence), recorded, call, row.guarantee, row.status, row.hash[:8])
    return view


def example_text(tables: Sequence[str]) -> str:
    """Return what is said of the example tables that were made."""
    return (
        f"Invented data: {', '.join(tables)}. None of them has a budget yet; as their owner, begin with\n"
        f"SELECT dp_protect('{tables[0]}', epsilon := 3.0, delta := 1e-6);"
    )


def policy_view(rows: Sequence[PolicyRow]) -> Table:
    """Return what owners stated as a table to print: the arguments of each declaration, by column where they are."""
    view = empty_view("dataset", "declaration", "argument", "column", "value", "stated (UTC)")
    for row in rows:
        stated = "" if row.recorded_at is None else f"{row.recorded_at[:16].replace('T', ' ')}, entry {row.entry}"
        value = "a call may choose" if row.value is None else row.value
        view.add_row(row.dataset, row.declaration, row.argument, row.column_name or "", value, stated)
    return view


def _protects(row: BudgetRow) -> str:
    if row.privacy_unit is None:
        return "one row" if row.neighbours is None else f"one row, {row.neighbours}"
    return f"all rows of one {row.privacy_unit}"
