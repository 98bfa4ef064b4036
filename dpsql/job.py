"""Run jobs in Python, like `dpsql run`, without a separate process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as changed
from os import PathLike, fspath
from pathlib import Path

import pyarrow as pa

from dpsql.cli.forecast import Forecast, forecast
from dpsql.cli.job import JobLog, JobReceipt, run_statements
from dpsql.cli.job_statement import JobError, read_statements
from dpsql.cli.output import Result
from dpsql.cli.runner import Runner
from dpsql.context import Context
from dpsql.contract.boundary import public_sql, quotes_values, unshown
from dpsql.dataclass import dataclass
from dpsql.errors import original
from dpsql.ledger.charge import Receipt
from dpsql.released.release import Release


@dataclass(frozen=True)
class JobResult:
    """The rows, releases and cost of a job.

    Attributes
    ----------
    releases : list of Release
        One per private call, in order. `replayed` marks releases that were in the ledger before; they cost nothing.
    receipt : dict
        The content of `dpsql run --receipt`, as JSON values, without any value of the data. Empty after a dry run.
    forecast : Forecast
        The expected cost before the job began.
    rows : pyarrow.Table or None
        The rows of the last statement with rows.
    """

    releases: list[Release]
    receipt: dict[str, object]
    forecast: Forecast
    rows: pa.Table | None = None


@public_sql
def run(
    job: str | PathLike[str],
    *,
    database: str | PathLike[str] = ":memory:",
    ledger: str | PathLike[str] | None = None,
    parameters: Mapping[str, object] | None = None,
    dry_run: bool = False,
    strict: bool = False,
) -> JobResult:
    """Run the statements of a job in order, up to the first error.

    First dpsql parses and prices the job; it does not start a job that the budgets cannot pay in full.

    Parameters
    ----------
    job : path or str
        A file: a path, or a string that ends in ``.sql``. Any other string is the statements themselves.
    database : path
        Database file, or ``':memory:'``. The job closes it at its end.
    ledger : path or URL, optional
        As for `dpsql.connect`.
    parameters : mapping, optional
        The value of each ``$name`` of the job: a number, boolean, string, date, None, or a list or mapping of these.
    dry_run : bool
        Only return the expected cost; read no row, and charge nothing. Raise any error that would refuse the job.
    strict : bool
        As for `dpsql.connect`.

    Returns
    -------
    result : JobResult

    Raises
    ------
    DpsqlError, duckdb.Error
        The error of the first failing statement; a note says where. I040 replaces DuckDB's errors about values. Earlier
        charges remain; when you run the job again, its named releases cost nothing.
    """
    is_file = not isinstance(job, str) or job.endswith(".sql")
    text = Path(job).read_text(encoding="utf-8") if is_file else fspath(job)
    receipt = JobReceipt(fspath(job) if is_file else "text", text, fspath(database))
    rows: list[pa.Table] = []

    def take(result: Result, _: list[Receipt]) -> None:
        rows[:] = [result.table]

    location = None if ledger is None else fspath(ledger)
    with Runner(fspath(database), ledger=location, strict=strict) as runner:
        try:
            statements = read_statements(runner.connection, text, parameters or {})
            expected = forecast(runner, statements)
            if dry_run:
                if expected.refusal is not None:
                    raise expected.refusal
                return JobResult([], {}, expected)
            run_statements(runner, statements, expected, JobLog(), receipt, take)
        except JobError as failure:
            error = failure.error
            ours = original(error) if isinstance(error, Exception) else None
            raised = error if ours is None else ours
            if ours is None and quotes_values(error):
                raised = unshown("a statement", error, "Run it in dpsql shell to read what DuckDB says.")
            if failure.statement is not None:
                raised.add_note(f"statement {failure.statement.number}, line {failure.statement.line} of the job")
            raise raised from None
        receipt.ended(None, runner.ledger)
        releases = [_release(runner.context, call) for call in receipt.calls if call.has_result]
    return JobResult(releases, receipt.to_json(), expected, rows[0] if rows else None)


def _release(context: Context, call: Receipt) -> Release:
    release = context.release(call.entry)
    return changed(release, replayed=call.replayed, replay=release.replay if call.replayed else "")
