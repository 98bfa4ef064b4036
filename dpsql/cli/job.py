"""A job: the statements of a file or a text, which are checked, priced and run in order, up to the first error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from dpsql.cli.forecast import Forecast, forecast
from dpsql.cli.job_receipt import JobReceipt
from dpsql.cli.job_statement import JobError, JobStatement, read_statements
from dpsql.cli.runner import Result, Runner

if TYPE_CHECKING:
    from dpsql.ledger.receipt import Receipt


class JobLog(Protocol):
    """What is told of a job while it runs: `dpsql.cli.job_log` has one for people and one for programs."""

    def statement(self, statement: JobStatement, functions: list[str]) -> None:
        """Take note that a statement begins."""

    def receipt(self, statement: JobStatement, receipt: Receipt) -> None:
        """Take note that the ledger recorded a call, or answered it."""


class Job:
    """The statements of a text, with values for their parameters.

    Parameters
    ----------
    runner : Runner
    text : str
    parameters : mapping
        Values of ``$name``, by name.

    Attributes
    ----------
    statements : list of JobStatement

    Raises
    ------
    JobError
        A statement does not parse, or a parameter is missing or not used.
    """

    def __init__(self, runner: Runner, text: str, parameters: Mapping[str, object]) -> None:
        self.statements = read_statements(runner.connection, text, parameters)
        self._runner = runner

    def forecast(self) -> Forecast:
        """Return what the job would cost now; nothing is read, drawn or charged."""
        runner = self._runner
        with runner.connection.cursor() as cursor:
            found = runner.interruptibly(lambda: forecast(runner.context, self.statements, cursor), cursor)
        runner.raise_if_stopped()
        return found

    def run(
        self, expected: Forecast, log: JobLog, receipt: JobReceipt, deliver: Callable[[Result, list[Receipt]], None]
    ) -> None:
        """Run every statement.

        Parameters
        ----------
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
        receipt.expects(self.statements)
        if expected.refusal is not None:
            raise expected.refusal
        for statement, prices in zip(self.statements, expected.statements, strict=True):
            try:
                log.statement(statement, [call.function for call in prices.calls])
                self._run_one(statement, log, receipt, deliver)
            except BaseException as error:
                raise JobError(error, statement) from error

    def _run_one(
        self,
        statement: JobStatement,
        log: JobLog,
        receipt: JobReceipt,
        deliver: Callable[[Result, list[Receipt]], None],
    ) -> None:
        runner, failed = self._runner, True
        try:
            result = runner.execute(statement.text)
            failed = False
        finally:
            receipt.ran(statement, runner.receipts, failed=failed)
            for one in runner.receipts:
                log.receipt(statement, one)
        if result is not None:
            deliver(result, runner.receipts)
        runner.raise_if_stopped()
