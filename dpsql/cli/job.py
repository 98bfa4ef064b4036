"""Run the statements of a job in order, up to the first error.

The receipt records statements, charges and the ledger's last entry, and no value of the data.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import click
import duckdb

from dpsql.cli.forecast import Forecast
from dpsql.cli.job_statement import JobError, JobStatement
from dpsql.cli.messages import DONE, clean_message, exit_code_of
from dpsql.cli.output import Result, replacing
from dpsql.cli.runner import Runner
from dpsql.dataclass import dataclass
from dpsql.errors import LedgerError, original
from dpsql.ledger.charge import Receipt
from dpsql.ledger.ledger import Ledger
from dpsql.version import __version__


class JobLog:
    """Receives the events of a job; this class ignores them."""

    def started(self, **facts: object) -> None:
        """Record that the job begins."""

    def statement(self, statement: JobStatement, functions: list[str]) -> None:
        """Record that a statement begins, with the known private functions that it calls."""

    def receipt(self, statement: JobStatement, receipt: Receipt) -> None:
        """Record that the ledger recorded a call, or answered it."""

    def done(self) -> None:
        """Record that the job is done."""

    def failed(self, job_error: JobError) -> None:
        """Record why and where the job failed."""


def run_statements(
    runner: Runner,
    statements: Sequence[JobStatement],
    expected: Forecast,
    log: JobLog,
    receipt: JobReceipt,
    deliver: Callable[[Result, list[Receipt]], None],
) -> None:
    """Run the statements of a job.

    Parameters
    ----------
    runner : Runner
    statements : sequence of JobStatement
    expected : Forecast
        Result of `forecast`; a job that cannot finish does not begin.
    log : JobLog
    receipt : JobReceipt
        Records each statement that runs.
    deliver : callable
        Takes the rows of a statement, and the receipts of its calls.

    Raises
    ------
    JobError
        The first statement that failed, or a request to stop.
    """
    receipt.expects(statements)
    if expected.refusal is not None:
        raise expected.refusal
    for statement, prices in zip(statements, expected.statements, strict=True):
        try:
            log.statement(statement, [call.function for call in prices.calls])
            failed = True
            try:
                result = runner.execute(statement.text)
                failed = False
            finally:
                receipt.ran(statement, runner.receipts, failed=failed)
                for call in runner.receipts:
                    log.receipt(statement, call)
            if result is not None:
                deliver(result, runner.receipts)
            runner.raise_if_stopped()
        except BaseException as error:
            raise JobError(error, statement) from error


NOT_RUN, RAN, FAILED = "not run", "done", "failed"


def now() -> str:
    """Return the time in UTC, as the ledger writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def public_cause(error: BaseException) -> dict[str, object]:
    """Return an error's public part: its code or class, and its message unless DuckDB wrote it.

    DuckDB's own text may quote a value of a row.
    """
    ours = original(error) if isinstance(error, Exception) else None
    if ours is not None:
        return {"error": ours.code, "message": ours.message}
    is_public = isinstance(error, (OSError, click.ClickException))
    return {"error": type(error).__name__, **({"message": clean_message(error)} if is_public else {})}


@dataclass
class _StatementReceipt:
    statement: JobStatement
    outcome: str = NOT_RUN
    calls: list[Receipt] = field(default_factory=list)


class JobReceipt:
    """Records a job, and returns the record as JSON values.

    Parameters
    ----------
    job : str
        The name of the job's file, or ``'text'``.
    text : str
        The job's text as given; the receipt stores its SHA-256.
    database : str
    """

    def __init__(self, job: str, text: str, database: str) -> None:
        self._job = {"job": job, "sha256": sha256(text.encode()).hexdigest()}
        self._database = database
        self._ledger: dict[str, object] | None = None
        self._started = now()
        self._statements: list[_StatementReceipt] = []
        self._error: JobError | None = None

    def expects(self, statements: Iterable[JobStatement]) -> None:
        """Record the statements of the job."""
        self._statements = [_StatementReceipt(statement) for statement in statements]

    def ran(self, statement: JobStatement, calls: Iterable[Receipt], *, failed: bool) -> None:
        """Record a statement that ran or failed."""
        entry = self._statements[statement.number - 1]
        entry.outcome, entry.calls = FAILED if failed else RAN, list(calls)

    def ended(self, error: JobError | None, ledger: Ledger | None) -> None:
        """Record how the job ended, and the ledger's last entry, if the ledger could be opened."""
        self._error = error
        if ledger is not None:
            self._ledger = _ledger_json(ledger)

    @property
    def calls(self) -> list[Receipt]:
        """The receipts of all calls, in the order of the job."""
        return [call for statement in self._statements for call in statement.calls]

    def to_json(self) -> dict[str, object]:
        """Return the receipt as JSON values."""
        error = self._error
        cause: Mapping[str, object] = {}
        if error is not None:
            position = {} if error.statement is None else {"statement": error.statement.number}
            cause = {**position, **public_cause(error.error)}
        return {
            **self._job,
            # Any other location may hold a token.
            "database": self._database if self._database == ":memory:" or Path(self._database).is_file() else None,
            "started": self._started,
            "ended": now(),
            "outcome": RAN if error is None else FAILED,
            "exit_code": DONE if error is None else exit_code_of(error.error),
            **({} if error is None else {"cause": dict(cause)}),
            "dpsql": __version__,
            "duckdb": duckdb.__version__,
            "ledger": self._ledger,
            "statements": [
                {
                    "statement": statement.statement.number,
                    "line": statement.statement.line,
                    "outcome": statement.outcome,
                    "calls": [asdict(call) for call in statement.calls],
                }
                for statement in self._statements
            ],
        }

    def write(self, path: Path) -> None:
        """Write the receipt to a file in one step: a reader sees the old or the new receipt."""
        with replacing(path) as part, part.open("x", encoding="utf-8") as file:
            json.dump(self.to_json(), file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())


def _ledger_json(ledger: Ledger) -> dict[str, object]:
    """Return a ledger's location and last entry; return the error code if the ledger fails."""
    try:
        entries, head = ledger.head()
    except LedgerError as error:
        return {"error": error.code}
    return {"location": ledger.location, "entries": entries, "head": head}
