"""What placing was specified to do and no other test asks: settings that lock a session, old budgets, and each text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.ledger.budget import Budget
from support.cases import cases
from support.sessions import ledger_of

COUNT = "SELECT value FROM dp_count('{}', epsilon := 1)"


@pytest.fixture
def con(tmp_path: Path) -> Iterator[Any]:
    opened = dpsql.connect(tmp_path / "z.duckdb")
    opened.execute("CREATE SCHEMA s; CREATE TABLE patients AS SELECT i AS id, 0.5 AS a FROM range(9) AS r(i)")
    opened.execute("CREATE TABLE s.cohort AS FROM patients; CREATE TABLE visits AS SELECT id AS pid, a FROM patients")
    opened.execute("CREATE TABLE airports AS SELECT i AS code FROM range(3) AS r(i)")
    yield opened
    opened.close()


@pytest.fixture
def governed(con: Any) -> Any:
    con.execute("SELECT dp_protect('patients', epsilon := 100); SELECT dp_protect('s.cohort', epsilon := 100)")
    con.execute("SELECT dp_protect('visits', epsilon := 100, privacy_unit := 'pid', max_rows_per_unit := 1)")
    return con


def spent(con: Any) -> dict[str, int]:
    return {row.dataset: row.releases for row in ledger_of(con).budgets() if row.releases}


def refusal(con: Any, sql: str) -> str:
    before = spent(con)
    with pytest.raises(duckdb.Error) as caught:
        con.execute(sql).fetchall()
    assert spent(con) == before
    return str(caught.value)


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [
        "SET enable_external_access = false",
        "SET enable_external_access = false; SET lock_configuration = true",
        "SET autoload_known_extensions = false; SET autoinstall_known_extensions = false; SET lock_configuration = true",
        "SET python_enable_replacements = false",
        "SET threads = 1; SET preserve_insertion_order = false",
    ],
)
def test_sources_are_placed_in_a_locked_session(governed: Any, settings: str) -> None:
    governed.execute("CREATE VIEW f AS FROM patients; CREATE VIEW g AS SELECT p.* FROM patients p, range(3)")
    governed.execute("CREATE TABLE copied AS FROM patients")
    governed.execute(settings)
    governed.execute(COUNT.format("f")).fetchall()
    assert "DPSQL-S012" in refusal(governed, COUNT.format("g"))
    assert "DPSQL-B006" in refusal(governed, COUNT.format("copied"))
    assert spent(governed) == {"patients": 1}


def test_nothing_is_refused_before_anything_is_protected(con: Any) -> None:
    con.execute("CREATE VIEW g AS SELECT p.* FROM patients p, range(3)")
    for source in ("patients", "g", "main.visits"):
        con.execute(COUNT.format(source)).fetchall()
    assert sum(spent(con).values()) == 3


@pytest.mark.long
def test_a_lenient_connection_is_governed_too(governed: Any, tmp_path: Path) -> None:
    governed.execute("CREATE TABLE copied AS FROM patients")
    governed.close()
    with dpsql.connect(tmp_path / "z.duckdb", strict=False) as con:
        assert "DPSQL-B006" in refusal(con, COUNT.format("copied"))
    with dpsql.connect(strict=True) as con:
        con.execute("CREATE TABLE t AS SELECT 1 AS a")
        assert "DPSQL-B002" in refusal(con, COUNT.format("t"))


@pytest.mark.long
def test_all_budgets_are_charged_or_none(governed: Any) -> None:
    governed.execute("CREATE VIEW adults AS FROM patients; SELECT dp_protect('adults', epsilon := 1)")
    governed.execute(COUNT.format("adults")).fetchall()
    assert "DPSQL-B001" in refusal(governed, COUNT.format("adults"))
    assert spent(governed) == {"adults": 1, "patients": 1}


def test_old_budgets_of_one_table(con: Any) -> None:
    """Two names of one table in a ledger from before there was lineage: both are charged, so the smaller limit stands."""
    ledger_of(con).protect("patients", Budget.of(epsilon=10))
    ledger_of(con).protect("z.main.patients", Budget.of(epsilon=2))
    for _ in range(2):
        con.execute(COUNT.format("patients")).fetchall()
    for spelling in ("patients", "main.patients", "z.main.patients", "PATIENTS"):
        assert "DPSQL-B001" in refusal(con, COUNT.format(spelling))


# Each refusal names the source and the statement, or the argument, that helps.
TEXTS = {
    COUNT.format("copied"): ("DPSQL-B006", "'copied'", "SELECT dp_derive('copied', '", "SELECT dp_public('copied')"),
    COUNT.format("nowhere"): ("DPSQL-S016", "'nowhere'", "CREATE TEMP VIEW"),
    COUNT.format("lost"): ("DPSQL-S017", "'lost'", "'visits'", "'pid'", "Select pid in the view"),
    COUNT.format("times"): ("DPSQL-S012", "'times'", "'patients'", "privacy_unit := the key, max_rows_per_unit := 1"),
    COUNT.format("mixed"): ("DPSQL-S013", "'mixed'", "'patients'", "'visits'", "Release from each"),
    COUNT.format("main.filed"): ("DPSQL-S014", "'main.filed'", "dataset := '...'", "SELECT dp_protect('t', "),
    "SELECT value FROM dp_count('f', epsilon := 1, dataset := 'airports')": ("DPSQL-S015", "'f'", "'patients'", "Leave dataset out"),
    "SELECT dp_avg(a, epsilon := 1, lower := 0, upper := 1) FROM patients": ("DPSQL-P013", "FROM dp_avg('...', ...)", "dataset := "),
    "SELECT dp_protect('pateints', epsilon := 1)": ("DPSQL-S019", "Did you mean 'patients'?", "source := false"),
}  # fmt: skip


@cases("sql", TEXTS, quick=1, alone=True)
def test_a_refusal_names_what_helps(governed: Any, tmp_path: Path, sql: str) -> None:
    governed.execute(f"COPY airports TO '{tmp_path}/a.parquet'; CREATE VIEW filed AS FROM '{tmp_path}/a.parquet'")
    for name, text in {
        "f": "FROM patients",
        "lost": "SELECT a FROM visits",
        "times": "SELECT p.* FROM patients p, range(3)",
        "mixed": "SELECT v.*, p.id FROM patients p JOIN visits v ON id = pid",
    }.items():
        governed.execute(f"CREATE VIEW {name} AS {text}")
    governed.execute("CREATE TABLE copied AS SELECT id AS other FROM patients")
    text = refusal(governed, sql)
    assert [part for part in TEXTS[sql] if part not in text] == [], text[:400]
