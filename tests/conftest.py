"""Fixtures shared by all tests: a real PostgreSQL, and a ledger on every kind of database."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

from postgres_server import PostgresServer, UnavailableError

from dpsql.ledger.ledger import Ledger
from support.cases import CHOSEN, Case, name_of, parametrize
from support.fixed_bits import BITS

# How long an example takes says how busy the machine is.
settings.register_profile("dpsql", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dpsql")

# Whole folders and files that take minutes: audits and studies. `-m long` runs them; the gate runs those of privacy whole,
# and of the others a sample.
LONG = (
    *("conformance", "privacy"),
    *("statistical/test_auc_law", "statistical/test_comparison", "statistical/test_sampling"),
    *("engines/test_context_", "engines/test_crowded_rows", "engines/test_frame", "engines/test_spark_connections"),
    *(
        "integration/test_papers_",
        "integration/test_cli_commands",
        "integration/test_interrupt",
        "integration/test_jobs",
    ),
    *("integration/test_ledger_concurrency", "integration/test_ledger_interrupt", "integration/test_shell"),
    *("integration/test_streams", "sql/test_aggregate_charges", "sql/test_aggregate_form", "sql/test_aggregate_keys"),
    *("sql/test_aggregate_samples", "sql/test_aggregates", "sql/test_arguments_at_extremes", "sql/test_bad_input"),
    *(
        "sql/test_bounds_by_name",
        "sql/test_call_types",
        "sql/test_drawn_bounds",
        "sql/test_engine_",
        "sql/test_exact_xty",
    ),
    *("sql/test_extreme_bounds", "sql/test_feature_counts", "sql/test_fits", "sql/test_logistic", "sql/test_metrics"),
    *("sql/test_periods", "sql/test_pipeline", "sql/test_predict", "sql/test_rank_scores", "sql/test_score_filter"),
    *("sql/test_selectors", "sql/test_sources", "sql/test_tables"),
)
# The planted faults, and files of which most tests are quick.
QUICK = (
    *("privacy/test_broken", "privacy/test_neighbours", "privacy/test_distribution", "privacy/test_auditor"),
    *(
        "privacy/test_comparison_sql",
        "privacy/test_fits_sql_law",
        "privacy/test_left_out_sql",
        "privacy/test_synthetic_sql",
    ),
    "sql/test_logistic_steps",
    *("conformance/test_engine_faults", "conformance/test_group_distances", "conformance/test_settings"),
)


# What guards privacy first: a sample has every quick test of these folders.
GUARDS = ("lineage", "privacy", "property", "reference", "statistical")

# The engines that are compared by default, and the file that does.
ENGINES = ("duckdb", "polars", "datafusion", "sail")
COMPARISON = "conformance/test_engines.py"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of engines."""
    help_ = (
        f"engines of tests/conformance: {','.join(ENGINES)}, spark; named, a sample of calls compares them by default"
    )
    parser.addoption("--engine", default=None, help=help_)
    help_ = "run this share of the tests, and all of those that guard privacy and are quick"
    parser.addoption("--sample", type=float, default=1.0, metavar="SHARE", help=help_)
    help_ = "another text chooses others; by default the commit"
    parser.addoption("--sample-key", default=None, metavar="TEXT", help=help_)
    parser.addoption("--case", default=None, metavar="NAME", help="run this case of the tests, see support/cases.py")


def pytest_configure(config: pytest.Config) -> None:
    """Fix the bits of noise, and leave tests out if the command says so.

    Raises
    ------
    pytest.UsageError
        The share is none.
    """
    config.pluginmanager.register(BITS)
    BITS.install()
    share, case = config.getoption("--sample"), config.getoption("--case")
    if not 0 < share <= 1:
        raise pytest.UsageError(f"--sample must be in (0, 1]; got {share}.")
    if share < 1 or case is not None:
        config.pluginmanager.register(Sample(share, key_of(config), case))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test of engines on each that was chosen."""
    parametrize(metafunc)
    if "engine_name" in metafunc.fixturenames:
        metafunc.parametrize("engine_name", named_engines(metafunc.config) or ENGINES, scope="module")


class Sample:
    """Chooses a share of the tests and of their cases, after marks and words; what guards privacy and is quick, whole."""

    def __init__(self, share: float, key: str, case: str | None) -> None:
        self.share, self.key, self.case = share, key, case

    def _is_in(self, item: pytest.Item) -> bool:
        """Whether a test is in the sample; of one with cases, only those that are in it stay."""
        call = getattr(item, "callspec", None)
        cases: list[Case] | None = None if call is None else call.params.get("cases")
        if self.case is not None:
            cases = [] if cases is None else [case for case in cases if case.name == self.case]
        lasts = any(item.get_closest_marker(mark) for mark in ("long", "slow"))
        if self.share < 1 and (lasts or item.path.parent.name not in GUARDS):
            if cases is None:
                return place_of(item, self.key) < self.share
            test = item.nodeid.partition("[")[0]
            cases = [case for case in cases if case.place(f"{self.key} {test}") < self.share]
        if cases:
            call.params["cases"] = cases
        return cases is None or bool(cases)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave the others out."""
        chosen = {item for item in items if self._is_in(item)}
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]


def place_of(item: pytest.Item, key: str) -> float:
    """Return the place of a test from 0 to 1, which follows from its name and a key."""
    return int.from_bytes(sha256(f"{key} {item.nodeid}".encode()).digest()[:8]) / 2**64


def key_of(config: pytest.Config) -> str:
    """Return the text that chooses samples: by default the commit that is checked out, or nothing without git."""
    given = config.getoption("--sample-key")
    if given is not None:
        return str(given)
    with suppress(OSError):
        here = Path(__file__).parent
        return subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True).stdout.strip()
    return ""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Refuse a test file that reads the clock as it is imported: its tests may run an hour later.

    What is imported stays, so nobody looks for garbage in it: a third of the time of collecting, and less in every test.
    """
    clock, tests = time.time, str(Path(__file__).parent)

    def read() -> float:
        where = sys._getframe(1).f_code.co_filename
        assert not where.startswith(tests), f"{where} reads the clock when it is imported."
        return clock()

    time.time = read
    gc.disable()
    try:
        return (yield)
    finally:
        time.time = clock
        gc.freeze()
        gc.enable()


def named_engines(config: pytest.Config) -> tuple[str, ...]:
    """Return the engines that the command names.

    Raises
    ------
    pytest.UsageError
        There is no such engine.
    """
    named = config.getoption("--engine")
    engines = () if named is None else tuple(named.split(","))
    unknown = {*engines} - {*ENGINES, "spark"}
    if unknown:
        raise pytest.UsageError(f"--engine: there is no engine {', '.join(sorted(unknown))}.")
    return engines


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Mark what is long, before pytest leaves it out; who names engines wants them compared.

    Raises
    ------
    pytest.UsageError
        An engine was named, and no test was collected that compares it.
    """
    named, here = named_engines(config), Path(__file__).parent
    paths = {item: item.path.relative_to(here).as_posix() for item in items}
    for item, path in paths.items():
        if path.startswith(LONG) and not path.startswith(QUICK) and not (named and path == COMPARISON):
            item.add_marker(pytest.mark.long)
        if CHOSEN.get(name_of(item), [""]) == []:
            item.add_marker(pytest.mark.quick)
    yield
    compared = {_engine_of(item) for item in items if paths[item] == COMPARISON}
    missing = [name for name in named if name not in compared]
    if missing:
        raise pytest.UsageError(f"--engine: no test that was collected compares {', '.join(missing)}.")


def _engine_of(item: pytest.Item) -> object:
    """Return the engine that a test runs on; None for others."""
    call = getattr(item, "callspec", None)
    return None if call is None else call.params.get("engine_name")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    pytest.importorskip("psycopg", reason="no driver: pip install 'dpsql[postgres]'")
    try:
        server = PostgresServer()
    except UnavailableError as reason:
        pytest.skip(str(reason))
    yield server
    server.stop()


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger opened from here on waits one second for a lock, not sixty."""
    monkeypatch.setattr("dpsql.ledger.store.LOCK_WAIT_SECONDS", 1)


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
