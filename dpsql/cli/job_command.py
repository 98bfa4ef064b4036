"""Run `dpsql run`: price a job, run it, and report its progress."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Unpack

import click
import duckdb
from rich.table import Table

from dpsql.cli.forecast import ExpectedCall, Forecast, forecast
from dpsql.cli.job import JobLog, JobReceipt, now, public_cause, run_statements
from dpsql.cli.job_statement import JobError, JobStatement, read_parameters, read_statements
from dpsql.cli.messages import (
    DONE,
    clean_message,
    console,
    exit_code_of,
    is_expected,
    say,
    say_error,
    silence,
    stop_message,
)
from dpsql.cli.output import DeliveryError, Destination, Result, empty_view, try_to_replace
from dpsql.cli.runner import Runner, RunnerOptions, protects, replay_text
from dpsql.cli.stopping import Terminated
from dpsql.contract.boundary import quotes_values, unshown
from dpsql.dataclass import dataclass
from dpsql.errors import original
from dpsql.ledger.charge import Receipt
from dpsql.manual.slips import slip_in
from dpsql.version import __version__


class TextLog(JobLog):
    """Report replays and failures as text."""

    def receipt(self, statement: JobStatement, receipt: Receipt) -> None:
        """Report a replay and the time of its release."""
        if receipt.replayed:
            say(replay_text(receipt))

    def failed(self, job_error: JobError) -> None:
        """Report why and where the job ended."""
        error, statement = job_error.error, job_error.statement
        where = "" if statement is None else f"statement {statement.number}, line {statement.line}: "
        if isinstance(error, Exception):
            substitute = unshown("it", error, "Run it in dpsql shell to read what DuckDB says.")
            is_value = original(error) is None and quotes_values(error)
            slip = "" if statement is None else slip_in(statement.text)
            message = f"{where}{f'{substitute}{slip}' if is_value else clean_message(error)}"
            if not job_error.ran:
                message += f"{'.' * message[-1].isalnum()} Nothing was run."
            say_error(message)
        else:
            say_error(stop_message(error))


class JsonLog(JobLog):
    """Write one JSON object per line and event, without data."""

    def started(self, **facts: object) -> None:
        """Write that the job begins."""
        self._write("start", **facts)

    def statement(self, statement: JobStatement, functions: list[str]) -> None:
        """Write that a statement begins, with its known private calls."""
        self._write("statement", **_position(statement), functions=functions)

    def receipt(self, statement: JobStatement, receipt: Receipt) -> None:
        """Write the ledger's record of a call."""
        facts = {name: value for name, value in vars(receipt).items() if name != "replayed"}
        self._write("replayed" if receipt.replayed else "charged", **_position(statement), **facts)

    def done(self) -> None:
        """Write that the job is done."""
        self._write("done")

    def failed(self, job_error: JobError) -> None:
        """Write why and where the job ended."""
        position = {} if job_error.statement is None else _position(job_error.statement)
        code = exit_code_of(job_error.error)
        self._write(
            "failed", **position, **public_cause(job_error.error), exit_code=code, nothing_ran=not job_error.ran
        )

    def _write(self, event: str, **facts: object) -> None:
        try:
            print(json.dumps({"event": event, "time": now(), **facts}), file=sys.stderr, flush=True)
        except OSError:  # charged work continues even if nobody reads the log
            silence(sys.stderr)


def _position(statement: JobStatement) -> dict[str, object]:
    return {"statement": statement.number, "line": statement.line}


@dataclass
class _Deliveries:
    """Show results as they come, and hold back the latest rows if a file takes the last rows."""

    destination: Destination
    display: Destination
    _delivery: tuple[Result, list[Receipt]] | None = field(default=None, init=False)

    def take(self, result: Result, receipts: list[Receipt]) -> None:
        """Take the rows of one statement."""
        self.show_kept()
        if self.destination.path is None:
            self.destination.deliver(result, receipts)
        else:
            self._delivery = (result, receipts)

    def show_kept(self) -> None:
        """Show the held-back rows: they were not the last rows, or the job failed."""
        delivery, self._delivery = self._delivery, None
        if delivery is not None:
            self.display.deliver(*delivery)

    def finish(self) -> None:
        """Write the last rows to the file."""
        delivery, self._delivery = self._delivery, None
        if delivery is not None:
            self.destination.deliver(*delivery)


def run_file(
    file: Path,
    database: str,
    parameters: Sequence[str],
    dry_run: bool,
    output: Path | None,
    form: str | None,
    receipt: Path | None,
    log_format: str,
    create: bool,
    **options: Unpack[RunnerOptions],
) -> int:
    """Run the job of a file, or print its expected cost; return the exit code.

    Parameters
    ----------
    file : Path
        ``-`` for standard input.
    database : str
    parameters : sequence of str
        Each is ``name=value``.
    dry_run : bool
    output : Path, optional
        File for the rows of the last statement with rows.
    form : str, optional
        The format of rows.
    receipt : Path, optional
        File for the receipt.
    log_format : {'text', 'json'}
    create : bool
        Make a missing database, for a job that gives a table its budget.
    **options
        As for `Runner`.
    """
    if dry_run and (output is not None or receipt is not None):
        raise click.UsageError("a dry run has no rows and no receipt: leave out -o and --receipt.")
    name = str(file)
    text = sys.stdin.read() if name == "-" else file.read_text(encoding="utf-8")
    log = JsonLog() if log_format == "json" else TextLog()
    report = JobReceipt(name, text, database)
    error: JobError | None = None
    receipt_path: Path | None = None
    try:
        destination = Destination(output, form)
        if receipt is not None:
            try_to_replace(receipt)
            receipt_path = receipt
        with Runner(database, create=create or protects(text), **options) as runner:
            try:
                statements, expected = _priced(runner, text, parameters, name, log)
                if dry_run:
                    _show_forecast(expected, destination.form)
                    if expected.refusal is not None:
                        raise expected.refusal
                else:
                    _run(runner, statements, expected, destination, log, report)
            except JobError as failure:
                error = failure
            finally:
                report.ended(error, runner.ledger)
    except (Exception, KeyboardInterrupt, Terminated) as failure:
        error = error or JobError(failure, ran=bool(report.calls))
        report.ended(error, None)
    if error is None:
        log.done()
    else:
        log.failed(error)
    if receipt_path is not None:
        try:
            report.write(receipt_path)
        except OSError as failure:
            unwritten = JobError(DeliveryError(f"{receipt_path}: {failure.strerror}. The receipt is not written."))
            log.failed(unwritten)
            error = error or unwritten
    if error is None:
        return DONE
    is_reported = not isinstance(error.error, Exception) or isinstance(error.error, click.ClickException)
    if not is_reported and not is_expected(error.error):
        raise error.error
    return exit_code_of(error.error)


def _priced(
    runner: Runner, text: str, parameters: Sequence[str], name: str, log: JobLog
) -> tuple[list[JobStatement], Forecast]:
    """Return the statements of a job and their expected cost."""
    try:
        statements = read_statements(runner.connection, text, read_parameters(parameters))
        log.started(job=name, statements=len(statements), dpsql=__version__, duckdb=duckdb.__version__)
        return statements, forecast(runner, statements)
    except JobError:
        raise
    except Exception as error:
        raise JobError(error, ran=False) from error


def _run(
    runner: Runner,
    statements: list[JobStatement],
    expected: Forecast,
    destination: Destination,
    log: JobLog,
    report: JobReceipt,
) -> None:
    deliveries = _Deliveries(destination, Destination(None, "table"))
    try:
        run_statements(runner, statements, expected, log, report, deliveries.take)
    except JobError:
        deliveries.show_kept()
        raise
    try:
        deliveries.finish()
    except OSError as error:
        raise JobError(error) from error


def _show_forecast(expected: Forecast, form: str) -> None:
    if form == "json":
        document = {
            "statements": [dataclasses.asdict(statement) for statement in expected.statements],
            "budgets": [dataclasses.asdict(budget) for budget in expected.budgets],
            "known": expected.is_whole,
        }
        click.echo(json.dumps(document, indent=2))
        return
    out = console()
    out.print(_statements_view(expected))
    if expected.budgets:
        out.print(_budgets_view(expected))
    out.print(
        "Nothing was read or charged. What is known of the cost:", "all of it." if expected.is_whole else "a part."
    )


def _statements_view(expected: Forecast) -> Table:
    view = empty_view("#", "line", "call", "release", "charges at most", "remark")
    for statement in expected.statements:
        position = (str(statement.statement), str(statement.line))
        for call in statement.calls:
            view.add_row(
                *position,
                _call_text(call),
                call.release or "",
                f"{call.loss} each" if call.blocks and not call.replay else call.loss,
                f"replay of {call.replay}" if call.replay else "new",
            )
        if statement.unknown:
            view.add_row(*position, "", "", "unknown until it runs", statement.unknown)
        elif not statement.calls:
            view.add_row(*position, "", "", "nothing", "no private call")
    return view


def _call_text(call: ExpectedCall) -> str:
    blocks = f" {', '.join(call.blocks)}" if call.blocks else ""
    return f"{call.function} {', '.join(call.datasets)}{blocks}"


def _budgets_view(expected: Forecast) -> Table:
    view = empty_view("dataset", "remaining", "this job at most", "remaining after it")
    for budget in expected.budgets:
        view.add_row(budget.dataset, budget.remaining, budget.job, budget.after)
    return view
