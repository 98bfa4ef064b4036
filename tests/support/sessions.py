"""What stands behind a connection with dpsql in it, without the macros that `dpsql.install` would make anew."""

from __future__ import annotations

from typing import Any

from dpsql.engines.duckdb import installation
from dpsql.engines.duckdb.session import Session
from dpsql.ledger.ledger import Ledger


def session_of(connection: Any) -> Session:
    """Return the session of a connection's instance."""
    instance = installation._instance_of(connection)
    assert instance is not None
    assert instance.session is not None
    return instance.session


def ledger_of(connection: Any) -> Ledger:
    """Return the ledger that a connection charges to."""
    return session_of(connection).ledger
