"""Turn an error into an HTTP status, headers, and an ``application/problem+json`` document (RFC 9457).

An error of dpsql keeps its code and its text. Any other error becomes ``I000`` with a random number; the owner finds
the number and the cause in the log. Nothing else of it leaves the process.

`GatewayError` is in `dpsql.errors`, because a broker's error also passes through DuckDB.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Mapping
from dataclasses import field

from dpsql.contract.boundary import stack
from dpsql.dataclass import dataclass
from dpsql.errors import DpsqlError, GatewayError, InternalError

__all__ = ["GatewayError"]


MEDIA_TYPE = "application/problem+json"
CHALLENGE = 'Bearer realm="dpsql"'
PREFIX = "DPSQL-"
_log = logging.getLogger("dpsql.gateway")
# Status by code; other codes have the status of their letter.
_STATUS = {"G015": 404, "G017": 403, "G018": 404, "G019": 403, "G020": 401, "G022": 403, "G024": 404, "G030": 429}
# Errors of the gateway: retry later, or ask the owner.
_STATUS |= {"G031": 501, "G032": 503, "G033": 503, "G042": 403, "G036": 503, "G097": 500, "G098": 500}
_STATUS_OF_LETTER = {"G": 400, "P": 400, "S": 400, "B": 403, "L": 503, "I": 500}
_RETRY_AFTER = {429: "1", 503: "2"}


@dataclass(frozen=True)
class Problem:
    """An error, ready to send.

    Attributes
    ----------
    status : int
    document : dict
        type, title, status, code, and if known hint and position.
    headers : dict
        Headers of the status, in addition to the media type.
    """

    status: int
    document: Mapping[str, object]
    headers: Mapping[str, str] = field(default_factory=dict)


# Arguments of a query that no setting states, with a value to write, and the one that may take the place of keys.
_ARGUMENT = re.compile(
    r"\b((?:keys|during|lower|upper|max_rows_per_unit|max_groups_per_unit) :="
    r" (?:\{[^}]*\}|\[[^\]]*\]|'[^']*'|[\d.e-]+))"
)
_PRIVATE_KEYS = "DPSQL-P065", "delta := 1e-6"


def advised(error: DpsqlError, sql: str) -> DpsqlError:
    """Return the refusal of a statement, with the line to write where its advice names arguments of a call.

    Plain SQL has settings and no arguments: here `keys`, `lower` and the like are arguments of ``dp_query``.
    """
    argument_word = _ARGUMENT.search(error.message)
    if argument_word is None or error.hint is not None or "dp_query" in sql.lower() or "$$" in sql:
        return error
    argument = _PRIVATE_KEYS[1] if error.code == _PRIVATE_KEYS[0] else argument_word[1]
    error.saying(f"{error.message} Here these are arguments of dp_query.")
    error.hint = f"FROM dp_query($${sql.strip().rstrip(';')}$$, {argument})"
    return error


def problem_of(error: BaseException, *, status: int | None = None) -> Problem:
    """Return the problem document of an error.

    Parameters
    ----------
    error : BaseException
        From dpsql, or any other error; its text is neither logged nor sent: the log has its stack lines.
    status : int, optional
        Replaces the code's status, such as 404 for an unknown path.
    """
    if not isinstance(error, DpsqlError):
        number = secrets.token_hex(8)
        _log.error("request %s failed\n%s", number, stack(error))
        error = InternalError("I000", f"the request failed. Ask the owner to look for {number} in the log.")
    code = error.code.removeprefix(PREFIX)
    usual_status = _STATUS.get(code) or _STATUS_OF_LETTER[code[0]]
    more = {"hint": error.hint, "position": error.position}
    more = {name: value for name, value in more.items() if value is not None}
    return _problem(code, error.message, status or usual_status, **more)


def _problem(code: str, title: str, status: int, **more: object) -> Problem:
    headers = {"www-authenticate": CHALLENGE} if status == 401 else {}
    if status in _RETRY_AFTER:
        headers["retry-after"] = _RETRY_AFTER[status]
    document = {"type": f"tag:dpsql,2026:{code}", "title": title, "status": status, "code": code, **more}
    return Problem(status, document, headers)
