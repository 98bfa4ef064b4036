"""Messages on standard error: one clean line per failure, coloured only on a terminal.

**Exit codes.** What the exit code of a command says about its outcome, so that a scheduler can tell what to do next.
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
# DuckDB has a class of its own for files and servers that cannot be read, and none for names and for what is in a file.
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
    """Return the exit code for what ended a command.

    Parameters
    ----------
    error : BaseException
        From dpsql, DuckDB, click or the operating system; or a request to stop.

    Returns
    -------
    code : int
        A key of `MEANING`. It follows from names and from public values, never from what rows hold.
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


# DuckDB 1.5 appends the Python stack to what a function raised, and its own to an internal error.
_stack = re.compile(r"\n+(?:At:\n(?:[ \t]+[^\n]*(?:\n|\Z))+|Stack Trace:\n.*)", re.DOTALL)
_wrapping = re.compile(r"\A.*?Python exception occurred while executing the UDF: ", re.DOTALL)
# Tables stay whole in a pipe, where there is no width to fit.
_width_of_a_pipe = 10_000


def clean_message(error: BaseException) -> str:
    """Return the text of an error without DuckDB's wrapping around what dpsql raised.

    Parameters
    ----------
    error : BaseException
        From DuckDB, dpsql or the operating system.

    Returns
    -------
    message : str
        The ``[DPSQL-…]`` line when there is one; DuckDB's own text, or the system's, otherwise.
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
    """Put the null device in the place of closed standard streams.

    Otherwise the next file that is opened, a database or its ledger, gets their numbers, and what a library prints is
    written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
        if getattr(sys, name) is None:
            _closed.add(name)
            setattr(sys, name, open(os.devnull, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115 - to the end


def refuse_closed_output() -> None:
    """Raise if nobody can read standard output.

    Raises
    ------
    click.UsageError
    """
    if "stdout" in _closed:
        raise click.UsageError("standard output is closed. Give -o FILE, or > /dev/null for no rows.")


def never_fail_to_print() -> None:
    """Make standard output and error accept every character, because a result that was charged must be shown.

    Box characters become ``+``, ``-`` and ``|`` where the terminal's encoding has none, any other character ``?``.
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
    """Send a standard stream that cannot be written any more to nowhere.

    Python would try to write what it still holds on its way out, and change the exit code for it.
    """
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def is_from_duckdb(error: BaseException) -> bool:
    """Tell whether DuckDB raised `error`, without importing DuckDB."""
    duckdb = sys.modules.get("duckdb")
    return duckdb is not None and isinstance(error, duckdb.Error)


def is_expected(error: BaseException) -> bool:
    """Tell whether `error` is a failure of the work, to be told in one line, and not a fault of dpsql."""
    if isinstance(error, BrokenPipeError):  # nobody reads the output any more: say nothing
        return False
    return isinstance(error, (DpsqlError, OSError, UnicodeError, click.ClickException)) or is_from_duckdb(error)


def console(*, stderr: bool = False) -> Console:
    """Return a console on the present standard stream; plain under ``NO_COLOR`` and off a terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _width_of_a_pipe
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def stop_message(stop: BaseException) -> str:
    """Return what is said when Ctrl-C or SIGTERM ended a command."""
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
    except OSError:  # work that is charged goes on where nobody listens
        silence(sys.stderr)
