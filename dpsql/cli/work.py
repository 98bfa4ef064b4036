"""The commands that run once and end: query, show, budget, ledger, plot."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql.cli import receipts
from dpsql.cli.messages import console, replay_text, say, say_error
from dpsql.cli.output import Destination
from dpsql.cli.receipts import Record
from dpsql.cli.runner import Result, Runner
from dpsql.cli.splitting import check_syntax, split_all
from dpsql.errors import ParameterError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import RenderableType

    from dpsql.ledger.copies import Restored
    from dpsql.ledger.rows import StoredRelease


def run_query(runner: Runner, text: str, destination: Destination) -> None:
    """Run one statement, or several of which one returns rows, and write the rows."""
    statements = split_all(text)
    if not statements:
        raise click.UsageError("there is no statement to run.")
    for statement in statements:
        check_syntax(runner.connection, statement)
    if len(statements) > 1 and (destination.form != "table" or destination.path is not None):
        # Checked here, before a release is charged whose rows could then not be written.
        raise click.UsageError(f"{destination.form} takes one statement; got {len(statements)}. Run them one by one.")
    for statement in statements:
        result = runner.execute(statement.text)
        for receipt in runner.receipts:
            if receipt.replayed:
                say(replay_text(receipt))
        if result is not None:
            destination.deliver(result, runner.receipts)
        runner.raise_if_stopped()


def warm_up() -> None:
    """Load every compiled kernel, and report how long each took."""
    for name in ("xty", "kendall", "best_subsets", "clipped_rows", "block_gram"):
        started = time.perf_counter()
        import_module(f"dpsql.kernels.{name}").warm_up()
        click.echo(f"{name}: ready after {time.perf_counter() - started:.1f} s")


def print_budget(database: str | None, location: str | None, form: str) -> None:
    """Print one row per dataset."""
    from dpsql.ledger.rows import BudgetRow

    with closing(receipts.open_ledger(database, location)) as ledger:
        _print_rows(BudgetRow, ledger.budgets(), receipts.budget_view, form)


def print_policy(database: str | None, location: str | None, dataset: str | None, form: str) -> None:
    """Print one row per thing that an owner stated."""
    from dpsql.ledger.policy import PolicyRow

    with closing(receipts.open_ledger(database, location)) as ledger:
        _print_rows(PolicyRow, ledger.policies(dataset), receipts.policy_view, form)


def print_ledger(database: str | None, location: str | None, form: str) -> None:
    """Print one row per entry."""
    from dpsql.ledger.rows import LedgerRow

    with closing(receipts.open_ledger(database, location)) as ledger:
        _print_rows(LedgerRow, ledger.entries(), receipts.ledger_view, form)


def _print_rows(
    kind: type[Record], rows: list[Record], view: Callable[[list[Record]], RenderableType], form: str
) -> None:
    if form == "table":
        console().print(view(rows))
    else:
        Destination(None, form).deliver(Result(receipts.as_arrow(kind, rows), False, 0.0))


def print_release(
    database: str | None, location: str | None, name: str, dataset: str | None, output: Path | None, form: str | None
) -> None:
    """Print the releases of a name, or the one of a number, as JSON.

    `rows` is what the call returned, `noise` what it says about its noise, and `policy` what bound it. With a file or a
    format it is the rows of one release, as its call returned them.

    Raises
    ------
    ParameterError
        There is none, or of rows more than one.
    """
    from dpsql.functions.noise_statement import noise_statement
    from dpsql.functions.registry import FUNCTIONS
    from dpsql.ledger.policy import in_force

    destination = None if output is None and form is None else Destination(output, form)
    with closing(receipts.open_ledger(database, location)) as ledger:
        found = ledger.releases(tuple(FUNCTIONS), dataset, name)
        if not found and name.isdigit():
            found = ledger.releases(tuple(FUNCTIONS), dataset, int(name))
    if not found:
        raise ParameterError("P030", f"nothing was released as {name!r}. dpsql ledger lists what was.")
    if destination is not None:
        if len(found) > 1:
            raise ParameterError("P055", f"more than one dataset has a release {name!r}. Give --dataset as well.")
        destination.deliver(Result(_rows_of(found[0]), False, 0.0))
        return
    for release in found:
        told = dataclasses.asdict(release)
        del told["result"]
        told |= {
            "rows": _rows_of(release).to_pylist(),
            "noise": noise_statement(release.function, release.arguments, release.result),
            "policy": in_force(release.arguments),
        }
        click.echo(json.dumps(told, indent=2, ensure_ascii=False, default=str))


def _rows_of(release: StoredRelease) -> pa.Table:
    """Return the rows of a release, as the call returned them."""
    import duckdb

    from dpsql.engines.duckdb.result_rows import stored_rows

    with duckdb.connect() as connection:
        return stored_rows(connection, release.function, release.result)


def verify_ledger(database: str | None, location: str | None, head: str | None) -> bool:
    """Verify the hash chain, and report the outcome.

    Returns
    -------
    intact : bool
    """
    with closing(receipts.open_ledger(database, location)) as ledger:
        report = ledger.verify(head)
    if not report.ok:
        say_error(f"tampered: {report.problem}. {report.entries} entries before it are intact.")
        return False
    click.echo(f"ok: {report.entries} entries, chain and totals are intact.")
    click.echo(f"head {report.head}")
    if head is None:
        console(stderr=True).print(
            "Note the head elsewhere: with --head, a later run also sees rows that were cut off.", style="dim"
        )
    return True


def backup_ledger(database: str | None, location: str | None, destination: str) -> None:
    """Bring a backup up to the ledger."""
    from dpsql.ledger.copies import backup

    with closing(receipts.open_ledger(database, location)) as ledger:
        entries = backup(ledger, destination)
    click.echo(f"ok: {destination} holds {entries} entries.")


def restore_ledger(database: str | None, location: str | None, source: str, *, set_aside: bool) -> None:
    """Bring the ledger up to a backup."""
    from dpsql.ledger.copies import restore

    place = receipts.ledger_place(database, location)
    done = restore(receipts.ledger_location(None, source), place, set_aside=set_aside)
    if done.aside is not None:
        click.echo(f"The ledger that was there is now {done.aside}.")
    _tell_lost(done)


def accept_ledger(database: str | None, location: str | None) -> None:
    """Go on with the entries that a ledger still holds."""
    from dpsql.ledger.copies import accept

    _tell_lost(accept(receipts.ledger_location(database, location)))


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


def adopt_ledger(database: str, location: str | None) -> None:
    """Tie a database to a ledger, whatever ledger it was tied to, and record it there."""
    import duckdb

    from dpsql.engines.duckdb.mark import adopt
    from dpsql.ledger.ledger import Ledger

    place = receipts.ledger_place(database, location)
    if not Path(database).is_file():
        raise click.UsageError(f"there is no database {database!r}.")
    with duckdb.connect(database) as connection, closing(Ledger.open(place)) as ledger:
        before, after = adopt(connection, ledger)
    was = "no ledger" if before is None else f"ledger {before.ledger}…"
    click.echo(f"ok: {database} belonged to {was}, and now belongs to ledger {after.ledger}… at {place}.")


def draw(
    database: str | None, location: str | None, release: str | None, dataset: str | None, kind: str | None, output: Path
) -> None:
    """Draw a release, or without one the budgets, into a file."""
    from dpsql.contract.parameters import show as shown
    from dpsql.errors import ParameterError
    from dpsql.functions.registry import FUNCTIONS
    from dpsql.released.plots import plot_budgets, plot_release, save

    with closing(receipts.open_ledger(database, location)) as ledger:
        if release is None:
            save(plot_budgets(ledger.budgets()), output)
            return
        found = ledger.releases(tuple(FUNCTIONS), dataset, int(release) if release.isdigit() else release)
    if not found:
        raise ParameterError("P030", f"nothing was released as {shown(release)}. `dpsql ledger` lists what was.")
    if len(found) > 1:
        raise ParameterError("P055", f"more than one dataset has a release {shown(release)}. Give --dataset as well.")
    one = found[0]
    rows = FUNCTIONS[one.function].shape.rows(one.result)
    save(plot_release(one.function, one.result, rows, kind=kind), output)
