"""What a job says on standard error while it runs: remarks for people, or one JSON line for each event."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from dpsql.cli.exit_code import exit_code_of
from dpsql.cli.job_statement import JobError, JobStatement
from dpsql.cli.messages import clean_message, replay_text, say, say_error, silence, stop_message
from dpsql.errors import original

if TYPE_CHECKING:
    from dpsql.ledger.receipt import Receipt


def now() -> str:
    """Return the time in UTC, as the ledger writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def public_cause(error: BaseException) -> dict[str, object]:
    """Return what may be kept of an error: its code or class, and its message unless that is DuckDB's.

    DuckDB's own text may quote a value of a row.
    """
    ours = original(error) if isinstance(error, Exception) else None
    if ours is not None:
        return {"error": ours.code, "message": ours.message}
    is_public = isinstance(error, (OSError, click.ClickException))
    return {"error": type(error).__name__, **({"message": clean_message(error)} if is_public else {})}


class TextLog:
    """Says what people should know: replays and failures."""

    def started(self, **_: object) -> None:
        """Say nothing."""

    def statement(self, statement: JobStatement, functions: list[str]) -> None:
        """Say nothing."""

    def receipt(self, statement: JobStatement, receipt: Receipt) -> None:
        """Say that a release is a replay, and of when."""
        if receipt.replayed:
            say(replay_text(receipt))

    def done(self) -> None:
        """Say nothing."""

    def failed(self, job_error: JobError) -> None:
        """Say why and where the job ended."""
        error, statement = job_error.error, job_error.statement
        where = "" if statement is None else f"statement {statement.number}, line {statement.line}: "
        if isinstance(error, Exception):
            message = f"{where}{clean_message(error)}"
            if not job_error.ran:
                message += f"{'.' * message[-1].isalnum()} Nothing was run."
            say_error(message)
        else:
            say_error(stop_message(error))


class JsonLog:
    """Writes one JSON object per line and event, without data."""

    def started(self, **facts: object) -> None:
        """Write that the job begins."""
        self._write("start", **facts)

    def statement(self, statement: JobStatement, functions: list[str]) -> None:
        """Write that a statement begins, with the private functions that it calls as far as they are known."""
        self._write("statement", **_place(statement), functions=functions)

    def receipt(self, statement: JobStatement, receipt: Receipt) -> None:
        """Write what the ledger recorded for a call."""
        facts = {name: value for name, value in vars(receipt).items() if name != "replayed"}
        self._write("replayed" if receipt.replayed else "charged", **_place(statement), **facts)

    def done(self) -> None:
        """Write that the job is done."""
        self._write("done")

    def failed(self, job_error: JobError) -> None:
        """Write why and where the job ended."""
        place = {} if job_error.statement is None else _place(job_error.statement)
        code = exit_code_of(job_error.error)
        self._write("failed", **place, **public_cause(job_error.error), exit_code=code, nothing_ran=not job_error.ran)

    def _write(self, event: str, **facts: object) -> None:
        try:
            print(json.dumps({"event": event, "time": now(), **facts}), file=sys.stderr, flush=True)
        except OSError:  # work that is charged goes on where nobody listens
            silence(sys.stderr)


def _place(statement: JobStatement) -> dict[str, object]:
    return {"statement": statement.number, "line": statement.line}
