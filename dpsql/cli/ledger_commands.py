"""The commands that read or mend a ledger alone: budget, policy and ledger. The database itself stays closed.

`dpsql ledger adopt`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import click
import duckdb
from rich.console import RenderableType

from dpsql.cli.messages import DONE, LEDGER, console, say, say_error
from dpsql.cli.output import budget_view, ledger_location, ledger_place, ledger_view, open_ledger, policy_view
from dpsql.contract.parameters import show
from dpsql.engines.duckdb.mark import adopt
from dpsql.ledger.copies import Restored, accept, backup, restore
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.policy import PolicyRow
from dpsql.ledger.rows import BudgetRow, LedgerRow

Record = TypeVar("Record", BudgetRow, LedgerRow, PolicyRow)


def print_budget(database: str | None, ledger: str | None, form: str) -> None:
    """Print one row per dataset."""
    with closing(open_ledger(database, ledger)) as opened:
        _print_rows(BudgetRow, opened.budgets(), budget_view, form)


def print_policy(dataset: str | None, database: str | None, ledger: str | None, form: str) -> None:
    """Print one row per thing that an owner stated."""
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
        # Here, because it loads DuckDB.
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
    """Bring a backup up to the ledger."""
    with closing(open_ledger(database, ledger)) as opened:
        entries = backup(opened, destination)
    click.echo(f"ok: {destination} holds {entries} entries.")


def restore_ledger(source: str, database: str | None, ledger: str | None, set_aside: bool) -> None:
    """Bring the ledger up to a backup."""
    place = ledger_place(database, ledger)
    done = restore(ledger_location(None, source), place, set_aside=set_aside)
    if done.aside is not None:
        click.echo(f"The ledger that was there is now {done.aside}.")
    _tell_lost(done)


def accept_ledger(database: str | None, ledger: str | None) -> None:
    """Go on with the entries that a ledger still holds."""
    _tell_lost(accept(ledger_location(database, ledger)))


def _tell_lost(done: Restored) -> None:
    """Print what a ledger holds, and what it has lost."""
    if done.lost is not None:
        say(
            f"Forgotten: entry {done.lost.sequence} ({done.lost.hash[:8]}) had been written, and is not here. What was "
            "charged by it, and by others that are not here, no longer counts; the ledger records that in its last "
            "entry."
        )
    elif not done.known:
        say("Nothing notes what the last entry had been, so entries may be missing that nobody can tell of.")
    click.echo(f"ok: the ledger holds {done.entries} entries.")


def adopt_ledger(database: str, ledger: str | None) -> None:
    """Tie a database to a ledger, whatever ledger it was tied to, and record it there."""
    place = ledger_place(database, ledger)
    if not Path(database).is_file():
        raise click.UsageError(f"there is no database {show(database)}.")
    with duckdb.connect(database) as connection, closing(Ledger.open(place)) as opened:
        before, after = adopt(connection, opened)
    was = "no ledger" if before is None else f"ledger {before.ledger}…"
    click.echo(f"ok: {database} belonged to {was}, and now belongs to ledger {after.ledger}… at {place}.")
