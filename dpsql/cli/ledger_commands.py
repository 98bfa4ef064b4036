"""Read or repair a ledger: the commands budget, policy, ledger and `dpsql ledger adopt`. They open no database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import click
import duckdb
from rich.console import RenderableType

from dpsql.cli.messages import DONE, LEDGER, console, say, say_error
from dpsql.cli.output import budget_view, ledger_location, ledger_place, ledger_view, open_ledger, policy_view
from dpsql.contract.parameters import show
from dpsql.engines.duckdb.spending_record import Accepted, lost
from dpsql.engines.duckdb.spending_record import accept as accept_record
from dpsql.ledger.copies import Restored, accept, backup, restore
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.policy import PolicyRow
from dpsql.ledger.rows import BudgetRow, LedgerRow
from dpsql.ledger.spending import Lost

Record = TypeVar("Record", BudgetRow, LedgerRow, PolicyRow)


def print_budget(database: str | None, ledger: str | None, form: str) -> None:
    """Print one row per dataset."""
    with closing(open_ledger(database, ledger)) as opened:
        _print_rows(BudgetRow, opened.budgets(), budget_view, form)


def print_policy(dataset: str | None, database: str | None, ledger: str | None, form: str) -> None:
    """Print one row per declaration of an owner."""
    with closing(open_ledger(database, ledger)) as opened:
        _print_rows(PolicyRow, opened.policies(dataset), policy_view, form)


def print_ledger(database: str | None, ledger: str | None, form: str) -> None:
    """Print one row per entry."""
    with closing(open_ledger(database, ledger)) as opened:
        _print_rows(LedgerRow, opened.entries(), ledger_view, form)


def _print_rows(
    kind: type[Record], rows: list[Record], view: Callable[[list[Record]], RenderableType], form: str
) -> None:
    if form == "table":
        console().print(view(rows))
    else:
        # Imported here because it loads DuckDB.
        from dpsql.cli.output import Destination, Result, as_arrow

        Destination(None, form).deliver(Result(as_arrow(kind, rows), False, 0.0))


def verify_ledger(database: str | None, ledger: str | None, head: str | None) -> int:
    """Verify the hash chain, report the outcome, and return the exit code."""
    with closing(open_ledger(database, ledger)) as opened:
        report = opened.verify(head)
    if not report.ok:
        say_error(f"tampered: {report.problem}. {report.entries} entries before it are intact.")
        return LEDGER
    click.echo(f"ok: {report.entries} entries, chain and totals are intact.")
    click.echo(f"head {report.head}")
    if head is None:
        console(stderr=True).print(
            "Note the head elsewhere: with --head, a later run also sees rows that were cut off.", style="dim"
        )
    return DONE


def backup_ledger(destination: str, database: str | None, ledger: str | None) -> None:
    """Copy the ledger's new entries to a backup."""
    with closing(open_ledger(database, ledger)) as opened:
        entries = backup(opened, destination)
    click.echo(f"ok: {destination} holds {entries} entries.")


def restore_ledger(source: str, database: str | None, ledger: str | None, set_aside: bool) -> None:
    """Copy a backup's new entries to the ledger."""
    location = ledger_place(database, ledger)
    done = restore(ledger_location(None, source), location, set_aside=set_aside)
    if done.aside is not None:
        click.echo(f"The ledger that was there is now {done.aside}.")
    forgotten = _forgotten(database, location)
    _tell_lost(done, forgotten)
    if forgotten:
        say(f"The database remembers what this backup does not hold. Charge it: dpsql ledger accept --db {database}")
        _list(forgotten)


def accept_ledger(database: str | None, ledger: str | None) -> None:
    """Accept the entries that a ledger still has, and charge it with the spending that the database remembers."""
    if database is None or not Path(database).is_file():
        _tell_lost(accept(ledger_location(database, ledger)), None)
        return
    location = ledger_place(database, ledger)  # a missing ledger is made anew, and charged
    done = accept(location)
    with duckdb.connect(database) as connection, closing(Ledger.open(location)) as opened:
        accepted = accept_record(connection, opened)
        entries = opened.head()[0]
    _tell_lost(replace(done, entries=entries), accepted.charged)
    _tell_charged(database, accepted)


def _forgotten(database: str | None, location: str) -> list[Lost] | None:
    """Return the spending that a database remembers and a ledger lacks; None if the database is unavailable."""
    if database is None or not Path(database).is_file():
        return None
    with (
        suppress(duckdb.Error),
        duckdb.connect(database, read_only=True) as connection,
        closing(Ledger.open(location, read_only=True)) as opened,
    ):
        return lost(connection, opened)
    return None


def _tell_charged(database: str, accepted: Accepted) -> None:
    """Print the charges that a ledger received because a database remembers them."""
    if accepted.charged:
        say(f"Charged again, as {database} remembers it:")
        _list(accepted.charged)
    elif accepted.after is not None:
        say(f"The ledger holds all that {database} remembers.")


def _list(charges: Sequence[Lost]) -> None:
    for charge in charges:
        click.echo(f"  {charge.text}")


def _tell_lost(done: Restored, remembered: Sequence[Lost] | None) -> None:
    """Print the entries of a ledger and its lost entries; `remembered` is the database's memory of the lost entries."""
    if done.lost is not None:
        counts = (
            " What was charged by it, and by others that are not here, no longer counts, unless a database remembers "
            "it: dpsql ledger accept --db charges that."
        )
        say(
            f"Forgotten: entry {done.lost.sequence} ({done.lost.hash[:8]}) had been written, and is not here."
            f"{'' if remembered else counts} The ledger records that."
        )
    elif not done.has_note and remembered is None:
        say(
            "Nothing notes which entry was the last one, so nobody can tell what is missing. A database that has "
            "budgets remembers what was spent: give its file with --db."
        )
    click.echo(f"ok: the ledger holds {done.entries} entries.")


def adopt_ledger(database: str, ledger: str | None) -> None:
    """Tie a database to a ledger, whatever its earlier ledger, and record this in the new ledger."""
    location = ledger_place(database, ledger)
    if not Path(database).is_file():
        raise click.UsageError(f"there is no database {show(database)}.")
    with duckdb.connect(database) as connection, closing(Ledger.open(location)) as opened:
        accepted = accept_record(connection, opened, adopt=True)
        ledger_id = opened.id
    was = "no ledger" if accepted.before is None else f"ledger {accepted.before.ledger}…"
    click.echo(f"ok: {database} belonged to {was}, and now belongs to ledger {ledger_id[:16]}… at {location}.")
    if accepted.charged:
        _tell_charged(database, accepted)
