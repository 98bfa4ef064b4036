"""Messages on standard error: one clean line per failure, coloured only on a terminal.

The exit code of a command classifies its outcome, so a scheduler can choose the next step.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

import click
from click import ClickException

from dpsql.cli.stopping import Terminated
from dpsql.errors import BudgetError, DpsqlError, LedgerError, SourceError, original

if TYPE_CHECKING:
    from rich.console import Console


DONE, FAILED, USAGE, BUDGET, SOURCE, LEDGER, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 4, 5, 130, 143

MEANING = {
    DONE: "done",
    FAILED: "a statement failed for another reason than the ones below",
    USAGE: "usage: an option or a parameter is missing or not allowed; nothing was run",
    BUDGET: "a budget refused (codes B...)",
    SOURCE: "a data source: no such file, table or column, not readable, or the engine cannot be reached (codes S...)",
    LEDGER: "the ledger: damaged, out of reach, or the wrong one (codes L...)",
    INTERRUPTED: "Ctrl-C",
    TERMINATED: "SIGTERM",
}
_BY_KIND = ((BudgetError, BUDGET), (SourceError, SOURCE), (LedgerError, LEDGER))
_WRONG_PARAMETER = "DPSQL-P090"
# DuckDB has error classes for unreadable files and servers, but none for names or for file contents.
_UNREADABLE = ("IOException", "HTTPException")
_SAYS_SOURCE = re.compile(
    r"\A(?:Catalog Error: (?:Table|View) with name .* does not exist"
    r"|Catalog Error: SET schema: No catalog"
    r"|Binder Error: (?:Referenced (?:update )?(?:column|table) |Catalog .* does not exist|Column .* does not exist"
    r"|Table .* does not have a column )"
    r"|Invalid Input Error: (?:No magic bytes|File .* too small to be|Malformed JSON in file|Error when sniffing file)"
    r"|TProtocolException"
    r"|An error occurred while trying to automatically install the required extension)"
)


def exit_code_of(error: BaseException) -> int:
    """Return the exit code for the error that ended a command.

    Parameters
    ----------
    error : BaseException
        From dpsql, DuckDB, click or the operating system; or a request to stop.

    Returns
    -------
    code : int
        A key of `MEANING`. The code depends on names and public values, never on rows.
    """
    if isinstance(error, Terminated):
        return TERMINATED
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, ClickException):
        return error.exit_code
    ours = original(error) if isinstance(error, Exception) else None
    if ours is not None and ours.code == _WRONG_PARAMETER:
        return USAGE
    if ours is not None:
        return next((code for kind, code in _BY_KIND if isinstance(ours, kind)), FAILED)
    if is_from_duckdb(error) and (type(error).__name__ in _UNREADABLE or _SAYS_SOURCE.match(str(error))):
        return SOURCE
    return FAILED


# DuckDB 1.5 appends the Python stack to the error of a function, and its own stack to an internal error.
_stack = re.compile(r"\n+(?:At:\n(?:[ \t]+[^\n]*(?:\n|\Z))+|Stack Trace:\n.*)", re.DOTALL)
_wrapping = re.compile(r"\A.*?Python exception occurred while executing the UDF: ", re.DOTALL)
# A pipe has no width, so tables stay whole.
_width_of_a_pipe = 10_000


def clean_message(error: BaseException) -> str:
    """Return the text of an error without DuckDB's wrapping around an error of dpsql.

    Parameters
    ----------
    error : BaseException
        From DuckDB, dpsql or the operating system.

    Returns
    -------
    message : str
        The ``[DPSQL-…]`` line if there is one; otherwise DuckDB's or the system's own text.
    """
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError) and error.strerror and not is_from_duckdb(error):
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    ours = original(error) if isinstance(error, Exception) else None
    if ours is not None:
        return str(ours)
    text = _wrapping.sub("", _stack.sub("", str(error))).strip()
    return text or type(error).__name__


_closed: set[str] = set()


def stand_in_for_closed_streams() -> None:
    """Replace closed standard streams by the null device.

    Otherwise the next opened file, a database or its ledger, gets the number of a standard stream, and a library's
    output is written into that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
        if getattr(sys, name) is None:
            _closed.add(name)
            setattr(sys, name, open(os.devnull, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115 - to the end


def refuse_closed_output() -> None:
    """Raise if standard output is closed.

    Raises
    ------
    click.UsageError
    """
    if "stdout" in _closed:
        raise click.UsageError("standard output is closed. Give -o FILE, or > /dev/null for no rows.")


def never_fail_to_print() -> None:
    """Make standard output and error accept every character, because dpsql must show a charged result.

    Box characters that the terminal's encoding lacks become ``+``, ``-`` or ``|``; other characters become ``?``.
    """
    codecs.register_error("dpsql", _replacement)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="dpsql")


def _replacement(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_plain_character, error.object[error.start : error.end])), error.end


def _plain_character(character: str) -> str:
    if character in "─━═╌┄":
        return "-"
    if character in "│┃║":
        return "|"
    return "+" if "\u2500" <= character <= "\u257f" else "?"


def silence(stream: TextIO) -> None:
    """Redirect a standard stream that can no longer be written to the null device.

    Otherwise Python flushes the stream's buffer at exit, fails, and changes the exit code.
    """
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def is_from_duckdb(error: BaseException) -> bool:
    """Return whether DuckDB raised `error`, without importing DuckDB."""
    duckdb = sys.modules.get("duckdb")
    return duckdb is not None and isinstance(error, duckdb.Error)


def is_expected(error: BaseException) -> bool:
    """Return whether `error` is a failure of the work, reported in one line, and not a fault of dpsql."""
    if isinstance(error, BrokenPipeError):  # the reader has closed the pipe: print nothing
        return False
    return isinstance(error, (DpsqlError, OSError, UnicodeError, click.ClickException)) or is_from_duckdb(error)


def console(*, stderr: bool = False) -> Console:
    """Return a console on the current standard stream; plain under ``NO_COLOR`` and off a terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _width_of_a_pipe
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def stop_message(stop: BaseException) -> str:
    """Return the message after Ctrl-C or SIGTERM ended a command."""
    what = "Terminated" if isinstance(stop, Terminated) else "Interrupted"
    return f"{what}. A dp_ call that had begun may stand in the ledger, charged."


def say_error(message: str) -> None:
    """Print a failure on standard error."""
    _say(message, "red")


def say(message: str) -> None:
    """Print a remark on standard error, where it does not mix with data."""
    _say(message, "dim")


def _say(message: str, style: str) -> None:
    try:
        console(stderr=True).print(message, style=style, soft_wrap=True)
        sys.stderr.flush()
    except OSError:  # charged work continues without a reader
        silence(sys.stderr)
