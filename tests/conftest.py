"""Fixtures shared by all tests: a real PostgreSQL, and a ledger on every kind of database."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from postgres_server import PostgresServer, UnavailableError

from dpsql.ledger import Ledger


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    pytest.importorskip("psycopg", reason="no driver: pip install 'dpsql[postgres]'")
    try:
        server = PostgresServer()
    except UnavailableError as reason:
        pytest.skip(str(reason))
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgres"])
def durable_location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger that outlives its process is: a SQLite file, or a PostgreSQL URL."""
    if request.param == "sqlite":
        return str(tmp_path / "test.dpsql-ledger")
    return str(request.getfixturevalue("postgres").new_url())


@pytest.fixture
def durable_ledger(durable_location: str) -> Iterator[Ledger]:
    ledger = Ledger.open(durable_location)
    yield ledger
    ledger.close()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """An empty ledger, in memory, in a file and on a server."""
    location = {"memory": lambda: None, "sqlite": lambda: str(tmp_path / "test.dpsql-ledger")}.get(request.param)
    opened = Ledger.open(location() if location else request.getfixturevalue("postgres").new_url())
    yield opened
    opened.close()
