"""The statements of a job, run in order up to the first error."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dpsql.cli.forecast import Forecast
from dpsql.cli.job_receipt import JobReceipt
from dpsql.cli.job_statement import JobError, JobStatement
from dpsql.cli.output import Result
from dpsql.cli.runner import Runner
from dpsql.ledger.receipt import Receipt


class JobLog:
    """What is told of a job while it runs; this one tells nothing."""

    def started(self, **facts: object) -> None:
        """Take note that the job begins."""

    def statement(self, statement: JobStatement, functions: list[str]) -> None:
        """Take note that a statement begins, with the private functions that it calls as far as they are known."""

    def receipt(self, statement: JobStatement, receipt: Receipt) -> None:
        """Take note that the ledger recorded a call, or answered it."""

    def done(self) -> None:
        """Take note that the job is done."""

    def failed(self, job_error: JobError) -> None:
        """Take note of why and where the job ended."""


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
        What `forecast` returned; a job that cannot be run to its end is not begun.
    log : JobLog
    receipt : JobReceipt
        Takes note of what runs.
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
