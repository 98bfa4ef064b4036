"""Where a plan leaves each person one row, one row counts: noise is that of one, whatever limit the owner stated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import dpsql
from dpsql.engines.duckdb.lineage.placing import Reading

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


@pytest.mark.parametrize(
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
    assert errors == {1.4, 56.6}


def test_a_limit_of_one_holds_where_it_is_wrong(con: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken for one row a person, rows are left out, and no person counts more than once."""
    monkeypatch.setattr(Reading, "limits", lambda self, rows: {"rows_per_unit": None, "once": True})
    [row] = con.execute("SELECT value FROM dp_count('visits', epsilon := 1e6)").fetchall()
    assert row == (200.0,)
    assert "(at most 1 row)" in guarantee(con)


def test_what_earlier_versions_released_has_its_name(con: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    call = "SELECT value FROM dp_count('people', epsilon := 1, release := 'people in spring')"
    with monkeypatch.context() as patch:
        patch.setattr(Reading, "limits", lambda self, rows: {"rows_per_unit": None, "once": False})
        before = con.execute(call).fetchall()
    assert "(at most 40 rows)" in guarantee(con)
    assert con.execute(call).fetchall() == before
    assert con.execute("SELECT sum(epsilon_spent) FROM dp_budget()").fetchall() == [(1.0,)]
