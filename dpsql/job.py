"""Jobs in Python: what `dpsql run` does, without a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
from dpsql.errors import original
from dpsql.ledger.charge import Receipt
from dpsql.released.release import Release


@dataclass(frozen=True)
class JobResult:
    """What a job gave and what it cost.

    Attributes
    ----------
    releases : list of Release
        Of every private call, in order. `replayed` says which were in the ledger before; they cost nothing.
    receipt : dict
        What `dpsql run --receipt` writes, as JSON values; it holds no value of the data. Empty after a dry run.
    forecast : Forecast
        What the job was expected to cost, before it began.
    rows : pyarrow.Table or None
        The rows of the last statement that has any.
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

    Before anything is run, the job is parsed and priced: one whose budgets cannot pay for all of it is not begun.

    Parameters
    ----------
    job : path or str
        A file: a path, or a text that ends in ``.sql``. Any other text is the statements themselves.
    database : path
        Database file, or ``':memory:'``. It is closed when the job ends.
    ledger : path or URL, optional
        As for `dpsql.connect`.
    parameters : mapping, optional
        The value of each ``$name`` of the job: a number, boolean, text, date, None, or a list or mapping of these.
    dry_run : bool
        Only say what the job would cost; no row is read, and nothing is charged. It raises what would refuse the job.
    strict : bool
        As for `dpsql.connect`.

    Returns
    -------
    result : JobResult

    Raises
    ------
    DpsqlError, duckdb.Error
        What the first failing statement raised; a note says where. I040 replaces an error of DuckDB's about values.
        What was charged before stays charged, and named releases among it cost nothing when the job is run again.
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
