"""Where a plan leaves each person one row, one row counts: noise is that of one, whatever limit the owner stated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import dpsql
from dpsql.engines.duckdb.lineage.stability import Reading
from support.cases import cases

PEOPLE = "SELECT patient, sum(days) AS days FROM visits GROUP BY patient"


@pytest.fixture
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        opened.execute("""
            CREATE TABLE visits AS SELECT i % 200 AS patient, i % 7 AS days FROM range(1000) AS r(i);
            SELECT dp_protect('visits', epsilon := 1e9, delta := 0.1, privacy_unit := 'patient', max_rows_per_unit := 40);
        """)
        opened.execute(f"CREATE VIEW people AS {PEOPLE}")
        yield opened


def guarantee(con: Any) -> str:
    return str(con.execute("SELECT guarantee FROM dp_ledger() ORDER BY sequence DESC LIMIT 1").fetchall()[0][0])


@pytest.mark.long
@cases(
    ("call", "rows"),
    [
        ("dp_count('people', epsilon := 1)", 1),
        ("dp_sum('people', target := 'days', lower := 0, upper := 40, epsilon := 1)", 1),
        ("dp_avg('people', target := 'days', epsilon := 1)", 1),
        ("dp_quantile('people', target := 'days', quantiles := [0.5], epsilon := 1)", 1),
        (f"dp_query('SELECT count(*) FROM ({PEOPLE})', epsilon := 1)", 1),
        ("dp_query('SELECT count(*), avg(days) FROM people', epsilon := 1)", 1),
        ("dp_query('SELECT count(*) FROM people', epsilon := 1, max_rows_per_unit := ''drawn'')".replace("''", "'"), 1),
        ("dp_query('SELECT count(*) FROM people', epsilon := 1, max_rows_per_unit := 7)", 7),
        ("dp_count('people', max_rows_per_unit := 7, epsilon := 1)", 7),
        ("dp_count('visits', epsilon := 1)", 40),
        ("dp_query('SELECT count(*) FROM visits', epsilon := 1)", 40),
    ],
)
def test_what_counts_of_a_person(con: Any, call: str, rows: int) -> None:
    con.execute(f"FROM {call}").fetchall()
    assert f"(at most {rows} row" in guarantee(con)


def test_parts_of_one_query_have_limits_of_their_own(con: Any) -> None:
    con.execute(
        "SELECT quantity, value FROM dp_estimate('dp_query', epsilon := 2, sql := "
        "'SELECT (SELECT count(*) FROM people) AS a, (SELECT count(*) FROM visits) AS b')"
    )
    errors = {round(value, 1) for name, value in con.fetchall() if name.startswith("std_error")}
    assert errors == {1.4, 59.5}  # the second tells what its limit leaves out, for a twentieth of its epsilon


def taken_for(patch: pytest.MonkeyPatch, *, once: bool) -> None:
    """Plant that every plan leaves each person one row, or that none does."""
    facts = Reading.facts
    wrong = {"rows_per_unit": None, "once": once}
    patch.setattr(Reading, "facts", lambda self, rows, node: {**facts(self, rows, node), **wrong})


def test_a_limit_of_one_holds_where_it_is_wrong(con: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken for one row a person, rows are left out, and no person counts more than once."""
    taken_for(monkeypatch, once=True)
    [row] = con.execute("SELECT value FROM dp_count('visits', epsilon := 1e6)").fetchall()
    assert row == (200.0,)
    assert "(at most 1 row)" in guarantee(con)


def test_what_earlier_versions_released_has_its_name(con: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    call = "SELECT value FROM dp_count('people', epsilon := 1, release := 'people in spring')"
    with monkeypatch.context() as patch:
        taken_for(patch, once=False)
        before = con.execute(call).fetchall()
    assert "(at most 40 rows)" in guarantee(con)
    assert con.execute(call).fetchall() == before
    assert con.execute("SELECT sum(epsilon_spent) FROM dp_budget()").fetchall() == [(1.0,)]


@pytest.fixture
def keyed() -> Iterator[Any]:
    """Two tables of people, of which each has one row in the first, as its primary key says."""
    with dpsql.connect() as opened:
        opened.execute("""
            CREATE TABLE patients (id BIGINT PRIMARY KEY, age INTEGER, code INTEGER UNIQUE);
            INSERT INTO patients SELECT i, i % 90, i FROM range(200) AS r(i);
            CREATE TABLE visits (vid BIGINT PRIMARY KEY, patient BIGINT, days INTEGER);
            INSERT INTO visits SELECT i, i % 200, i % 7 FROM range(1000) AS r(i);
            CREATE TABLE beds (patient BIGINT, night INTEGER, PRIMARY KEY (patient, night));
            INSERT INTO beds SELECT i % 200, i // 200 FROM range(1000) AS r(i);
            CREATE TABLE labs (visit BIGINT PRIMARY KEY, value INTEGER);
            INSERT INTO labs SELECT i, i % 9 FROM range(1000) AS r(i);
            CREATE VIEW adults AS SELECT id, age FROM patients WHERE age >= 18;
            SELECT dp_protect('hospital', epsilon := 1e9, delta := 0.1, max_rows_per_unit := 40, tables :=
              {patients: 'id', visits: 'patient', beds: 'patient', labs: 'visit -> visits.vid'},
              lower := {age: 0}, upper := {age: 120});
        """)
        yield opened


@cases(
    ("call", "rows"),
    [
        ("dp_count('patients', epsilon := 1)", 1),
        ("dp_avg('adults', target := 'age', epsilon := 1)", 1),
        ("dp_query('SELECT count(*), avg(age) FROM patients', epsilon := 1)", 1),
        ("dp_query('SELECT count(*) FROM adults WHERE age < 60', epsilon := 1)", 1),
        ("dp_query('SELECT count(*) FROM (SELECT id, age + 1 AS a FROM patients) WHERE a > 5', epsilon := 1)", 1),
        ("dp_query('SELECT count(*) FROM patients WHERE id IN (SELECT patient FROM visits)', epsilon := 1)", 1),
        (
            "dp_query('SELECT avg(n) FROM (SELECT patient, count(*) AS n FROM visits GROUP BY patient) AS v JOIN patients "
            "ON id = patient', epsilon := 1, lower := {n: 0}, upper := {n: 9})",
            1,
        ),
        ("dp_query('SELECT count(*) FROM patients', epsilon := 1, max_rows_per_unit := 7)", 7),
        # Several rows, or what nobody can see.
        ("dp_query('SELECT count(*) FROM patients JOIN visits ON id = patient', epsilon := 1)", 40),
        ("dp_query('SELECT count(*) FROM visits', epsilon := 1)", 40),
        ("dp_count('beds', epsilon := 1)", 40),
        ("dp_count('labs', epsilon := 1)", 40),
        ("dp_query('SELECT count(*) FROM labs', epsilon := 1)", 40),
        (
            "dp_query('SELECT count(*) FROM (SELECT id FROM patients UNION ALL SELECT id FROM patients)', epsilon := 1)",
            40,
        ),
    ],
    quick=1,
)
def test_a_primary_key_on_the_person_is_one_row_each(keyed: Any, call: str, rows: int) -> None:
    keyed.execute(f"FROM {call}").fetchall()
    assert f"(at most {rows} row" in guarantee(keyed)


@pytest.mark.long
def test_a_table_that_is_made_anew_without_its_key_has_the_stated_limit(keyed: Any) -> None:
    call = "SELECT value FROM dp_count('patients', epsilon := 1e6)"
    query = "FROM dp_query('SELECT count(*) FROM patients', epsilon := 1e6, fresh := true)"
    for asked in (call, query):
        assert keyed.execute(asked).fetchall() == [(200,)]
    keyed.execute("CREATE OR REPLACE TABLE patients AS SELECT id, age FROM patients, range(3)")
    for asked in (call, query):
        assert keyed.execute(asked).fetchall() == [(600,)]
        assert "(at most 40 rows)" in guarantee(keyed)


def test_a_key_that_is_read_wrongly_costs_rows_and_no_privacy(keyed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed.execute("CREATE OR REPLACE TABLE patients AS SELECT id, age FROM patients, range(3)")
    monkeypatch.setattr("dpsql.engines.duckdb.lineage.paths.primary_key", lambda described: frozenset(("id",)))
    assert keyed.execute("SELECT value FROM dp_count('patients', epsilon := 1e6)").fetchall() == [(200,)]
    assert keyed.execute("FROM dp_query('SELECT count(*) FROM patients', epsilon := 1e6)").fetchall() == [(200,)]
    assert "(at most 1 row)" in guarantee(keyed)


def test_a_key_counts_for_a_person_in_a_period(keyed: Any) -> None:
    keyed.execute("""
        CREATE TABLE births (child BIGINT PRIMARY KEY, born DATE);
        INSERT INTO births SELECT i, DATE '2026-01-01' + CAST(i % 60 AS INTEGER) FROM range(200) AS r(i);
        SELECT dp_protect('births', epsilon := 1e9, privacy_unit := 'child', max_rows_per_unit := 40, period := 'month',
          period_of := 'born');
    """)
    keyed.execute("FROM dp_count('births', epsilon := 1, during := '2026-01/2026-02')").fetchall()
    assert "(at most 1 row)" in guarantee(keyed)


def test_whoever_takes_the_names_of_the_catalog_takes_no_key(keyed: Any) -> None:
    keyed.execute("CREATE TABLE columns AS SELECT 1 AS \"key\"; CREATE MACRO lower(x) AS 'id'")
    keyed.execute("FROM dp_count('visits', epsilon := 1)").fetchall()
    assert "(at most 40 rows)" in guarantee(keyed)
