"""What `dpsql run` does around a job: its options, its results, its receipt and its exit code."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql import __version__
from dpsql.cli.destination import DeliveryError, Destination
from dpsql.cli.exit_code import DONE, exit_code_of
from dpsql.cli.forecast import ExpectedCall, Forecast
from dpsql.cli.job import Job
from dpsql.cli.job_log import JsonLog, TextLog
from dpsql.cli.job_receipt import JobReceipt
from dpsql.cli.job_statement import JobError
from dpsql.cli.messages import console, is_expected
from dpsql.cli.placeholders import read_parameters
from dpsql.cli.replacing import try_to_replace
from dpsql.cli.runner import Result, Runner
from dpsql.cli.stopping import Terminated

if TYPE_CHECKING:
    from rich.table import Table

    from dpsql.ledger.receipt import Receipt


@dataclass(frozen=True)
class JobOptions:
    """The options of `dpsql run` beside those of the database.

    Attributes
    ----------
    name : str
        Of the job's file.
    database : str
    parameters : tuple of str
        ``name=value`` each.
    dry_run : bool
    output : Path or None
        Takes the rows of the last statement that has any.
    form : str or None
        The format of rows.
    receipt : Path or None
    json_log : bool
    """

    name: str
    database: str
    parameters: tuple[str, ...] = ()
    dry_run: bool = False
    output: Path | None = None
    form: str | None = None
    receipt: Path | None = None
    json_log: bool = False


@dataclass
class _Deliveries:
    """Shows results as they come, and keeps the latest back where a file is to have the last one."""

    destination: Destination
    shown: Destination
    _kept: tuple[Result, list[Receipt]] | None = field(default=None, init=False)

    def take(self, result: Result, receipts: list[Receipt]) -> None:
        """Take the rows of one statement."""
        self.show_kept()
        if self.destination.path is None:
            self.destination.deliver(result, receipts)
        else:
            self._kept = (result, receipts)

    def show_kept(self) -> None:
        """Show the rows that were kept back, because they are not the last ones, or the job failed."""
        kept, self._kept = self._kept, None
        if kept is not None:
            self.shown.deliver(*kept)

    def finish(self) -> None:
        """Write the last rows to the file."""
        kept, self._kept = self._kept, None
        if kept is not None:
            self.destination.deliver(*kept)


def run_job(open_runner: Callable[[], Runner], text: str, options: JobOptions) -> int:
    """Run a job, or say what it would cost; return the exit code.

    Parameters
    ----------
    open_runner : callable
        Opens the database and its ledger.
    text : str
        The statements.
    options : JobOptions
    """
    log = JsonLog() if options.json_log else TextLog()
    receipt = JobReceipt(options.name, text, options.database)
    error: JobError | None = None
    receipt_path: Path | None = None
    try:
        destination = Destination(options.output, options.form)
        if options.receipt is not None:
            try_to_replace(options.receipt)
            receipt_path = options.receipt
        with open_runner() as runner:
            try:
                _run(runner, text, options, destination, log, receipt)
            except JobError as found:
                error = found
            finally:
                receipt.ended(error, runner.ledger)
    except (Exception, KeyboardInterrupt, Terminated) as found:
        error = error or JobError(found, ran=bool(receipt.calls))
        receipt.ended(error, None)
    if error is None:
        log.done()
    else:
        log.failed(error)
    if receipt_path is not None:
        try:
            receipt.write(receipt_path)
        except OSError as failure:
            unwritten = JobError(DeliveryError(f"{receipt_path}: {failure.strerror}. The receipt is not written."))
            log.failed(unwritten)
            error = error or unwritten
    if error is None:
        return DONE
    told = not isinstance(error.error, Exception) or isinstance(error.error, click.ClickException)
    if not told and not is_expected(error.error):
        raise error.error
    return exit_code_of(error.error)


def _run(
    runner: Runner,
    text: str,
    options: JobOptions,
    destination: Destination,
    log: JsonLog | TextLog,
    receipt: JobReceipt,
) -> None:
    import duckdb

    try:
        parameters = read_parameters(options.parameters)
    except Exception as error:
        raise JobError(error, ran=False) from error
    job = Job(runner, text, parameters)
    log.started(job=options.name, statements=len(job.statements), dpsql=__version__, duckdb=duckdb.__version__)
    try:
        expected = job.forecast()
    except Exception as error:
        raise JobError(error, ran=False) from error
    if options.dry_run:
        _show_forecast(expected, options.form or "table")
        if expected.refusal is not None:
            raise expected.refusal
        return
    deliveries = _Deliveries(destination, Destination(None, "table"))
    try:
        job.run(expected, log, receipt, deliveries.take)
    except JobError:
        deliveries.show_kept()
        raise
    try:
        deliveries.finish()
    except OSError as error:
        raise JobError(error) from error


def _show_forecast(expected: Forecast, form: str) -> None:
    if form == "json":
        shown = {
            "statements": [dataclasses.asdict(statement) for statement in expected.statements],
            "budgets": [dataclasses.asdict(budget) for budget in expected.budgets],
            "known": expected.is_whole,
        }
        click.echo(json.dumps(shown, indent=2))
        return
    out = console()
    out.print(_statements_view(expected))
    if expected.budgets:
        out.print(_budgets_view(expected))
    out.print(
        "Nothing was read or charged. What is known of the cost:", "all of it." if expected.is_whole else "a part."
    )


def _statements_view(expected: Forecast) -> Table:
    view = _view("#", "line", "call", "release", "charges at most", "remark")
    for statement in expected.statements:
        place = (str(statement.statement), str(statement.line))
        for call in statement.calls:
            view.add_row(
                *place,
                _call_text(call),
                call.release or "",
                call.loss,
                f"replay of {call.replay}" if call.replay else "new",
            )
        if statement.unknown:
            view.add_row(*place, "", "", "unknown until it runs", statement.unknown)
        elif not statement.calls:
            view.add_row(*place, "", "", "nothing", "no private call")
    return view


def _call_text(call: ExpectedCall) -> str:
    return f"{call.function} {', '.join(call.datasets)}"


def _budgets_view(expected: Forecast) -> Table:
    view = _view("dataset", "remaining", "this job at most", "remaining after it")
    for budget in expected.budgets:
        view.add_row(budget.dataset, budget.remaining, budget.job, budget.after)
    return view


def _view(*titles: str) -> Table:
    from rich import box
    from rich.table import Table

    view = Table(box=box.SQUARE)
    for title in titles:
        view.add_column(title, overflow="fold")
    return view
