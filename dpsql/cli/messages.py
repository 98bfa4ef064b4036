"""What a person reads on standard error: one clean line per failure, coloured only on a terminal."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from dpsql.errors import DpsqlError

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED = "Interrupted. A dp_ call that had begun may stand in the ledger, charged."

_coded = re.compile(r"\[DPSQL-[A-Z]\d{3}\][^\n]*")
# DuckDB 1.5 appends the Python stack, with paths of this machine, to what a function raised.
_stack = re.compile(r"\n+At:\n(?:[ \t]+[^\n]*(?:\n|\Z))+")
_wrapping = re.compile(r"^.*?Python exception occurred while executing the UDF: ", re.DOTALL)


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
    if isinstance(error, OSError) and error.strerror and not is_from_duckdb(error):
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    text = str(error)
    coded = _coded.search(text)
    if coded:
        return coded.group().rstrip()
    text = _stack.sub("", text)
    return _wrapping.sub("", text).strip() or type(error).__name__


def is_from_duckdb(error: BaseException) -> bool:
    """Tell whether DuckDB raised `error`, without importing DuckDB."""
    duckdb = sys.modules.get("duckdb")
    return duckdb is not None and isinstance(error, duckdb.Error)


def is_expected(error: BaseException) -> bool:
    """Tell whether `error` is a failure of the work, to be told in one line, and not a fault of dpsql."""
    return isinstance(error, (DpsqlError, OSError, UnicodeDecodeError)) or is_from_duckdb(error)


def console(*, stderr: bool = False) -> Console:
    """Return a console on the present standard stream; plain under ``NO_COLOR`` and off a terminal."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)


def say_error(message: str) -> None:
    """Print a failure on standard error."""
    console(stderr=True).print(message, style="red")


def say(message: str) -> None:
    """Print a remark on standard error, where it does not mix with data."""
    console(stderr=True).print(message, style="dim")
