"""What stands behind a connection with dpsql in it, without the macros that `dpsql.install` would make anew."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

from dpsql.engines.duckdb import installation, running
from dpsql.engines.duckdb.keys import block_hash
from dpsql.engines.duckdb.session import Session
from dpsql.ledger.ledger import Ledger
from dpsql.rendering import call
from support.broken.planting import planted

ONE_KEY = b"one key of calls"


def session_of(connection: Any) -> Session:
    """Return the session of a connection's instance."""
    instance = installation._instance_of(connection)
    assert instance is not None
    assert instance.session is not None
    return instance.session


def ledger_of(connection: Any) -> Ledger:
    """Return the ledger that a connection charges to."""
    return session_of(connection).ledger


def one_key(key: bytes = ONE_KEY) -> AbstractContextManager[None]:
    """Give all calls one key for as long as the context lasts, so that units keep their rows, and rows their blocks."""
    return planted((running, "secrets", SimpleNamespace(token_bytes=lambda size: key[:size])))


def known_block(*parts: tuple[str, str] | str) -> str:
    """Return the SQL of the hash that decides a block under `ONE_KEY`; parts as of `keys.block_hash`."""
    return block_hash("0", *parts).replace(call("dpsql_sampling_key", "0"), f"'{ONE_KEY.decode()}'::BLOB")
