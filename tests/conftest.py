"""Fixtures shared by all tests: a real PostgreSQL, and a ledger on every kind of database."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from postgres_server import PostgresServer, UnavailableError

from dpsql.ledger.ledger import Ledger

# Whole folders and files that take minutes: audits, laws and studies. `-m long` runs them, and CI does.
LONG = (
    *("conformance", "privacy", "property", "reference", "statistical", "lineage/test_stability"),
    *("integration/test_papers_", "integration/test_cli_commands", "integration/test_ledger_concurrency"),
    *("sql/test_arguments_at_extremes", "sql/test_fits", "sql/test_selectors", "sql/test_sources"),
    *("sql/test_bounds_by_name", "sql/test_logistic"),
)
# The quickest of each kind, so that every mechanism's law or loss is looked at in a minute, too.
QUICK = (
    *(
        "privacy/test_broken.py",
        "privacy/test_neighbours.py",
        "privacy/test_distribution.py",
        "privacy/test_auditor.py",
    ),
    "conformance/test_engines.py",
    "conformance/test_engine_faults.py",
    *("property/test_sensitivity.py", "property/test_sensitivity_counts.py", "property/test_sensitivity_gram.py"),
    *("statistical/test_noise_laws.py", "statistical/test_roc_law.py"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of engines."""
    default = "duckdb,polars,datafusion,sail"
    parser.addoption("--engine", default=default, help=f"engines of tests/conformance: {default}, spark")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test of engines on each that was chosen."""
    if "engine_name" in metafunc.fixturenames:
        metafunc.parametrize("engine_name", metafunc.config.getoption("--engine").split(","), scope="module")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is long, before pytest leaves it out."""
    here = Path(__file__).parent
    for item in items:
        path = item.path.relative_to(here).as_posix()
        if path.startswith(LONG) and path not in QUICK:
            item.add_marker(pytest.mark.long)


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
