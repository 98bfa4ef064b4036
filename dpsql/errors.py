"""Define errors that users can act on, and that reveal nothing about the data.

Every message reads ``[DPSQL-Lnnn] parameter, requirement; got public value. Next step.`` The text contains the code
because DuckDB turns every exception of a function into its own type. No message may contain a cell, a count, or text
that DuckDB wrote about rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Self

# The first characters of every error's text.
CODED = "[DPSQL-"


class DpsqlError(Exception):
    """Base of every error that dpsql raises on purpose.

    Parameters
    ----------
    code : str
        A letter and three digits, such as ``"P001"``; stable across versions.
    message : str
        The requirement, the given public value, and the next step.
    """

    offset: int | None = None  # byte offset of the refused part in the text of a query
    position: int | None = None  # character offset in the statement that the gateway received, from 0
    hint: str | None = None  # the line to write instead

    def __init__(self, code: str, message: str) -> None:
        self.code = f"DPSQL-{code}"
        self.message = message
        super().__init__(f"[{self.code}] {message}")

    def saying(self, message: str) -> Self:
        """Return this error with another text, such as the next step in Python."""
        self.message = message
        self.args = (f"[{self.code}] {message}",)
        return self

    def in_duckdb(self) -> DpsqlError:
        """Return the same error with a text that begins on its own line.

        DuckDB puts ``Invalid Input Error: Python exception occurred while executing the UDF: ParameterError: `` before
        the text of any exception of a function; the exception's class and notes do not change that. Functions that run
        while DuckDB binds a statement return the text instead (`UdfSpec.spoken`). `original` returns the error without
        the line break.
        """
        error = type(self)(self.code.removeprefix("DPSQL-"), self.message)
        error.args = (f"\n{self}",)
        return error


class ParameterError(DpsqlError):
    """An argument is missing, ill-typed or out of range (codes ``P…``)."""


class SourceError(DpsqlError):
    """The source, one of its columns, or a column's type does not fit (codes ``S…``)."""


class BudgetError(DpsqlError):
    """The budget does not allow this call (codes ``B…``)."""


class LedgerWarning(UserWarning):
    """The ledger works, and its owner should know something about it."""


class LedgerError(DpsqlError):
    """The ledger cannot be opened, or its chain does not verify (codes ``L…``)."""


# The codes of a ledger that is readable and not writable.
UNWRITABLE = ("DPSQL-L003", "DPSQL-L048")
# The codes of a server that may answer later.
PASSING = ("DPSQL-L006", "DPSQL-L044", "DPSQL-L046", "DPSQL-L047")


class InternalError(DpsqlError):
    """A step failed after dpsql read the table; the charge remains (codes ``I…``)."""


class GatewayError(DpsqlError):
    """The gateway does not accept this statement, token or request (codes ``G…``).

    Parameters
    ----------
    code : str
        ``G`` and three digits.
    message : str
        The requirement, and the given value.
    position : int, optional
        The refused part's place in the statement, in characters from 0.
    hint : str, optional
        The line to write instead.
    """

    def __init__(self, code: str, message: str, *, position: int | None = None, hint: str | None = None) -> None:
        super().__init__(code, message)
        self.position = position
        self.hint = hint

    def to_json(self) -> dict[str, str | int | None]:
        """Return the error as a JSON object."""
        code = self.code.removeprefix("DPSQL-")
        return {"code": code, "message": self.message, "position": self.position, "hint": self.hint}

    @classmethod
    def from_json(cls, record: Mapping[str, object]) -> Self:
        """Return an error from the JSON of `to_json`."""
        position, hint = record.get("position"), record.get("hint")
        return cls(
            str(record.get("code")),
            str(record.get("message")),
            position=position if isinstance(position, int) else None,
            hint=hint if isinstance(hint, str) else None,
        )


_kinds: dict[str, type[DpsqlError]] = {
    "P": ParameterError,
    "S": SourceError,
    "B": BudgetError,
    "L": LedgerError,
    "I": InternalError,
    "G": GatewayError,
}


def original(error: Exception) -> DpsqlError | None:
    """Return the dpsql error inside an error of DuckDB, or None for another error."""
    match = re.search(r"\[DPSQL-(([PSBLIG])\d{3})\] (.*?)(?:\n\nAt:|\n\nLINE |$)", str(error), re.DOTALL)
    return None if match is None else _kinds[match.group(2)](match.group(1), match.group(3).strip())
