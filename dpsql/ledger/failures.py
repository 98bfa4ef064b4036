"""What a failure of a ledger's database means, and what to do about it."""

from __future__ import annotations

import errno
import re
import sqlite3

from sqlalchemy.exc import DBAPIError

from dpsql.errors import LedgerError

LOCK_WAIT_SECONDS = 60

_sqlite_meaning = {
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_READONLY: "forbidden",
    sqlite3.SQLITE_PERM: "forbidden",
    sqlite3.SQLITE_AUTH: "forbidden",
    sqlite3.SQLITE_FULL: "disk",
    sqlite3.SQLITE_IOERR: "disk",
    sqlite3.SQLITE_NOTADB: "damaged",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_CANTOPEN: "path",
}
# SQLSTATEs of PostgreSQL by their beginning: the longer ones first.
_postgresql_meaning = {
    "25006": "read only",
    "25P03": "time limit",
    "25P04": "time limit",
    "42501": "forbidden",
    "53300": "full",
    "55P03": "locked",
    "57014": "time limit",
    "57P05": "time limit",
    "58030": "disk",
    "08": "unreachable",
    "28": "login",
    "3D": "no database",
    "53": "disk",
    "57": "stopping",
}
# While a connection is made, libpq keeps the SQLSTATE to itself; its text is compared here and never shown.
_refused_connection = (
    ("too many", "full"),
    ("connection slots", "full"),
    ("authentication failed", "login"),
    ("no password supplied", "login"),
    ("no pg_hba.conf entry", "login"),
    ("is not permitted to log in", "login"),
    ("shutting down", "stopping"),
    ("starting up", "stopping"),
    ("recovery mode", "stopping"),
    ("timeout expired", "no answer"),
)
_missing = re.compile(r'(role|database) ".*" does not exist', re.DOTALL)
_meanings = {
    "locked": ("L002", f"stayed locked for {LOCK_WAIT_SECONDS} s; nothing was released. Try again."),
    "forbidden": ("L003", "may not be written; nothing was released. Give this user write access."),
    "disk": ("L004", "could not reach its disk or memory; nothing was released. Free space, and try again."),
    "damaged": ("L005", "is damaged, or is not a ledger. Give another file, or restore a backup."),
    "path": ("L001", "cannot be opened. Check the path and its permissions."),
    "unreachable": (
        "L006",
        "cannot be reached; nothing was released. Check host and port in the URL, the service or the environment, "
        "and that the server runs.",
    ),
    "login": (
        "L042",
        "did not let this user in; nothing was released. Check the user and the password in the URL, in PGPASSFILE or "
        "in the service.",
    ),
    "no database": ("L043", "is in a database that does not exist. Create it with createdb, or correct the name."),
    "full": (
        "L044",
        "has no connection left; nothing was released. Close others, or raise max_connections, and try again.",
    ),
    "time limit": (
        "L045",
        "was cut off by a time limit of the server, or by its administrator; nothing was released. Try again, or "
        "raise statement_timeout for this user.",
    ),
    "stopping": ("L046", "is on a server that is starting or stopping; nothing was released. Try again in a minute."),
    "no answer": (
        "L047",
        "did not answer within the connection timeout; nothing was released. Check the network, or raise "
        "connect_timeout in the URL.",
    ),
    "in doubt": (
        "L049",
        "was lost while an entry was written, and does not say whether the entry stands; nothing was released. Look at "
        "dpsql ledger once the server answers: what stands there is charged. Then ask again: a name that has its "
        "result there costs nothing more.",
    ),
    "read only": (
        "L048",
        "is on a server, or belongs to a user, that only reads; nothing was released. Give the URL of the primary "
        "server, or a user without default_transaction_read_only.",
    ),
}


def failure_of(meaning: str, place: str) -> LedgerError:
    """Return the error that a word of `_meanings` stands for."""
    code, message = _meanings[meaning]
    return LedgerError(code, f"ledger {place!r} {message}")


def meaning_of(error: OSError) -> str:
    """Return what it means that a ledger's file could not be written, as a word of `_meanings`."""
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return "forbidden"
    return "disk" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO) else "path"


def explain(error: DBAPIError, place: str) -> LedgerError:
    """Say what a database error means and what to do; never quote it, since it may quote a row or a password."""
    number = getattr(error.orig, "sqlite_errorcode", None)
    if number is not None:
        number &= 0xFF  # the rest only refines it
        meaning, kind = _sqlite_meaning.get(number), f"SQLite code {number}"
    elif isinstance(error.orig, sqlite3.Error):  # raised by the driver, which could not read a value
        meaning, kind = "damaged", "driver"
    else:
        state = getattr(error.orig, "sqlstate", None) or ""
        meaning, kind = _meaning_of(state, error), f"SQLSTATE {state}"
    if meaning is None:
        return LedgerError("L010", f"ledger {place!r} refused ({kind}); nothing was released. Run dpsql ledger verify.")
    return failure_of(meaning, place)


def _meaning_of(state: str, error: DBAPIError) -> str | None:
    """Return what PostgreSQL or its client said."""
    found = next((word for start, word in _postgresql_meaning.items() if state.startswith(start)), None)
    if found is not None or (state and not error.connection_invalidated):
        return found
    text = str(error.orig)
    missing = _missing.search(text)
    if missing:
        return "login" if missing.group(1) == "role" else "no database"
    return next((word for part, word in _refused_connection if part in text), "unreachable")
