"""What the exit code of a command says about its outcome, so that a scheduler can tell what to do next."""

from __future__ import annotations

import re

from click import ClickException

from dpsql.cli.messages import is_from_duckdb
from dpsql.cli.stopping import Terminated
from dpsql.errors import BudgetError, LedgerError, SourceError, original

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
