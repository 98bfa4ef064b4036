"""The URL of a ledger, and how to name a ledger without its secrets.

Nothing here quotes what was given: a password stands in the wrong part of a malformed text. `describe` keeps what is
known to be a host, a port and a database, and leaves out everything else. No error has another one as its context, for
that one might quote.
"""

from __future__ import annotations

import os
import re

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from dpsql.errors import LedgerError
from dpsql.ledger.location import HOW_TO_GIVE, is_url

_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
_host = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]+")
_directory = re.compile(r"/[A-Za-z0-9._/-]*")
_name = re.compile(r"[A-Za-z0-9_-]+")


def url_of(location: str | os.PathLike[str] | None) -> URL:
    """Return a location as SQLAlchemy's URL.

    Raises
    ------
    LedgerError
        L008: it is no place of a ledger; L040: its port is not one.
    """
    if location is None or os.fspath(location) == ":memory:":
        return URL.create("sqlite")
    if not is_url(location):
        # One name per file: SQLite finds the WAL by the name, so two names would be two ledgers.
        return URL.create("sqlite", database=os.path.realpath(location))
    url = _parsed(location)
    if url is None:
        raise LedgerError("L008", f"ledger is not a valid URL. {HOW_TO_GIVE}")
    if url.drivername in _POSTGRESQL:
        return url.set(drivername="postgresql+psycopg")
    if url.drivername == "sqlite" and not (url.host or url.username or url.password):
        path = url.database
        return URL.create("sqlite", database=os.path.realpath(path) if path and path != ":memory:" else None)
    del url  # a frame that raises holds nothing of the URL
    raise LedgerError("L008", f"ledger must be a file, or a sqlite:/// or postgresql:// URL. {HOW_TO_GIVE}")


def _parsed(location: str | os.PathLike[str]) -> URL | None:
    url: URL | None = None
    port, ports = "", list[str]()
    given: str | tuple[str, ...] = ()
    try:
        url = make_url(os.fspath(location))
    except ArgumentError:
        return None
    except ValueError:  # SQLAlchemy reads the port as an integer
        port = "no number"
    if url is not None:
        given = url.query.get("port", ())
        ports = [given] if isinstance(given, str) else [*given]
        port = ",".join(ports if url.port is None else [str(url.port), *ports])
    is_wrong = bool(port) and not all(map(_is_port, port.split(",")))
    if is_wrong:
        del url, port, given, ports  # a frame that raises holds nothing of the URL
        raise LedgerError(
            "L040",
            "the port in the ledger's URL must be a number from 1 to 65535. Write postgresql://user:password@host/"
            "database with the password before an @, its special characters as %40 (@), %2F (/) or %3A (:); or leave "
            "the password to PGPASSFILE.",
        )
    return url


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text) < 1 << 16


def connect_arguments(url: URL) -> dict[str, object]:
    """Return what psycopg connects with; an engine that is made without them shows none of them.

    Raises
    ------
    LedgerError
        L008: the URL contradicts itself; L041: it has an option that is unknown.
    """
    from psycopg import pq  # an optional package

    arguments: dict[str, object] | None
    try:
        arguments = dict(url.get_dialect()().create_connect_args(url)[1])
    except (ArgumentError, ValueError):
        arguments = None
    if arguments is None:
        del url
        raise LedgerError("L008", f"ledger is not a valid URL. {HOW_TO_GIVE}")
    # Others would be read by psycopg itself: autocommit=1 would end every transaction at once.
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    if not set(arguments) <= known:
        del url, arguments
        raise LedgerError(
            "L041",
            "an option after the ? of the ledger's URL is unknown to PostgreSQL's client. Check how it is written.",
        )
    return arguments


def describe(url: URL, *, proven: bool) -> str:
    """Return a location in words: a file's path, or the host, port and database of a server.

    Parameters
    ----------
    url : URL
        From `url_of`.
    proven : bool
        A server has answered there. Before that, a URL with a password may have been cut at the wrong place, such as
        an ``@`` in the password, and what looks like a host may be a part of it.
    """
    if url.get_backend_name() == "sqlite":
        return url.database or "in memory"
    unknown = "postgresql://..."
    if not proven and (url.password is not None or url.query.get("password") or ":" in (url.username or "")):
        return unknown
    if not proven and url.username is None and url.port is not None:  # 'u:12345/db', where the host was forgotten
        return unknown
    host, database, asked = url.host or "", url.database or "", url.query.get("host", "")
    if not isinstance(asked, str) or not all(
        pattern.fullmatch(part) for pattern, part in ((_host, host), (_name, database), (_directory, asked)) if part
    ):
        return unknown
    place = f"[{host}]" if ":" in host else host
    return f"postgresql://{place}{f':{url.port}' if url.port else ''}/{database}{f'?host={asked}' if asked else ''}"
