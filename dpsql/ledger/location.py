"""Decide whether a ledger's location is a file or a URL.

No message quotes the location: a malformed location may have a password in the wrong part.
"""

from __future__ import annotations

import os
import re

from dpsql.errors import LedgerError

HOW_TO_GIVE = "Give a file, or postgresql://user@host/database."
# Address forms of other databases: "host=h password=p", "u:p@h/db", "u:p/db", "postgresql:h".
_address = re.compile(
    r"(?i)(?:^|[\s?&;,])(?:user|password|passfile|sslpassword|passwd|pwd|host|hostaddr|dbname|service)\s*="
    r"|^(?!file:)[^/\\]*:[^/\\]*/|:[^/\\]*@"
    r"|^\s*(?:postgres|mysql|mariadb|sqlite)[\w+]*(?::|//)"
)
_drive = re.compile(r"[A-Za-z]:[/\\]")


class LedgerPlace(os.PathLike[str]):
    """A ledger's location, whose password no display of variables shows.

    Code wraps the location on arrival: tracebacks with locals, as in rich, Sentry or pytest, show the variables of a
    frame.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    @classmethod
    def of(cls, location: str | os.PathLike[str] | None) -> LedgerPlace | None:
        """Return a location wrapped; None for a ledger in memory."""
        if location is None or isinstance(location, LedgerPlace):
            return location
        return None if os.fspath(location) == ":memory:" else cls(os.fspath(location))

    def __fspath__(self) -> str:
        return self._text

    def __str__(self) -> str:
        return self._text if _is_file(self._text) else "a ledger's URL"

    def __repr__(self) -> str:
        return repr(str(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LedgerPlace) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


def _is_file(text: str) -> bool:
    return "://" not in text and (not _address.search(text) or (os.name == "nt" and bool(_drive.match(text))))


def is_url(location: str | os.PathLike[str]) -> bool:
    """Return whether a ledger's location is a URL; otherwise it is a file.

    Raises
    ------
    LedgerError
        L008: it is another form of database address, which must not become a file name.
    """
    if "://" in os.fspath(location):
        return True
    if not _is_file(os.fspath(location)):
        raise LedgerError("L008", f"ledger is neither a file nor a URL. {HOW_TO_GIVE}")
    return False
