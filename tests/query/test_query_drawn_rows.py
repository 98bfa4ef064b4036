"""``max_rows_per_unit := 'drawn'``: what is drawn, what it costs, and where it is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import duckdb
import pytest

import dpsql
from support.cases import cases
from support.query_entries import arguments_of, noted_entries, parts_of
from support.sessions import session_of
from support.sql_text import literal

COUNT = "SELECT count(*) FROM visits"


@pytest.fixture
def con() -> Iterator[Any]:
    """People have 1 to 20 rows, but for ten who have 500."""
    with dpsql.connect() as opened:
        opened.execute("""
            CREATE TABLE visits AS
              SELECT i AS patient, j AS days, ['A', 'B'][1 + j % 2] AS ward, DATE '2026-01-01' + CAST(j AS INTEGER) AS day
              FROM range(20000) AS p(i), LATERAL range(CASE WHEN i < 10 THEN 500 ELSE 1 + i % 20 END) AS r(j)
        """)
        opened.execute("""
            SELECT dp_protect('visits', epsilon := 1e11, delta := 0.09, max_rows_per_unit := 3, privacy_unit := 'patient',
              lower := {days: 0}, upper := {days: 500}, keys := {ward: ['A', 'B']})
        """).fetchall()
        yield opened


def ask(con: Any, sql: str, epsilon: float = 10.0, more: str = "") -> list[tuple[Any, ...]]:
    call = f"FROM dp_query({literal(sql)}, epsilon := {epsilon!r}, max_rows_per_unit := 'drawn'{more})"
    found: list[tuple[Any, ...]] = con.execute(call).fetchall()
    return found


def guarantee(con: Any) -> str:
    [(found,)] = con.execute("SELECT guarantee FROM dp_ledger() ORDER BY sequence DESC LIMIT 1").fetchall()
    return str(found)


def test_the_limit_is_the_99th_percentile_of_the_rows_per_person(con: Any) -> None:
    with noted_entries() as entries:
        [(n,)] = ask(con, COUNT)
    assert parts_of(entries[-1])[0] == {"rows": 20}
    [(exact,)] = con.execute(
        "SELECT sum(least(n, 20)) FROM (SELECT count(*) AS n FROM visits GROUP BY patient)"
    ).fetchall()
    assert abs(n - int(exact)) < 200
    assert guarantee(con).endswith("; rows per patient that count, drawn: 20")


def test_a_stated_limit_that_is_too_small_leaves_out_most(con: Any) -> None:
    """What drawing it is for: the noise is larger, and the answer is better."""
    [(exact,)] = con.execute(COUNT).fetchall()
    [(stated,)] = con.execute(f"FROM dp_query({literal(COUNT)}, epsilon := 10)").fetchall()
    [(drawn,)] = ask(con, COUNT)
    assert abs(stated - exact) > 0.7 * exact
    assert abs(drawn - exact) < 0.03 * exact


def test_it_costs_a_twentieth_of_epsilon(con: Any) -> None:
    sql = "SELECT (SELECT count(*) FROM visits WHERE days > 3) AS a, (SELECT avg(days) FROM visits) AS b"
    with noted_entries() as entries:
        ask(con, sql, 1.0)
    spent = [Fraction(one["epsilon"]) for one in arguments_of(entries[-1])]
    assert spent == [Fraction(1, 40), Fraction(19, 40)] * 2
    assert con.execute("SELECT releases, epsilon_spent FROM dp_budget()").fetchall() == [(1, 1.0)]


def test_asking_again_is_free(con: Any) -> None:
    first = ask(con, COUNT)
    assert ask(con, COUNT) == first
    assert con.execute("SELECT releases FROM dp_budget()").fetchall() == [(1,)]
    con.execute(f"FROM dp_query({literal(COUNT)}, epsilon := 10.0)").fetchall()
    assert con.execute("SELECT releases FROM dp_budget()").fetchall() == [(2,)]


def test_it_is_told_before_it_is_drawn(con: Any) -> None:
    call = f"FROM dp_query({literal(COUNT)}, epsilon := 1, max_rows_per_unit := 'drawn')"
    with session_of(con).planning() as planned:
        con.execute(f"DESCRIBE {call}").fetchall()
    text = str(planned)
    assert "rows per patient: what is drawn" in text
    assert re.search(r"rows, epsilon 0\.05 of 1", text)
    assert "persons by which the drawn limit" in text


@pytest.mark.long
def test_all_parts_have_the_limit(con: Any) -> None:
    sql = (
        "SELECT ward, count(*), median(days), count(DISTINCT patient), count(DISTINCT days), corr(days, days / 2) "
        "FROM visits GROUP BY ward"
    )
    for more in ("", ", keys := 'private', delta := 1e-6"):
        found = ask(con, sql, 100.0, more)
        assert [row[0] for row in found] == ["A", "B"]
        for row, people in zip(found, (20000, 19000), strict=True):
            assert abs(row[3] - people) < 100


def test_a_table_without_rows_is_answered(con: Any) -> None:
    con.execute("DELETE FROM visits")
    assert len(ask(con, COUNT)) == 1


@cases(
    ("more", "code"),
    [
        ("max_rows_per_unit := 'many'", "P021"),
        ("max_rows_per_unit := 'drawn', max_groups_per_unit := 2", "P045"),
    ],
    quick=1,
    alone=True,
)
def test_what_does_not_fit_is_refused(con: Any, more: str, code: str) -> None:
    with pytest.raises(duckdb.Error, match=code):
        con.execute(f"FROM dp_query({literal(COUNT)}, epsilon := 1, {more})")


def test_people_whose_ids_look_alike_are_several() -> None:
    """A collation calls 'a' and 'A' one, and they are two people with one row each."""
    with dpsql.connect() as con:
        con.execute("SET default_collation = 'nocase'")
        con.execute(
            "CREATE TABLE t AS SELECT chr(CAST(97 + i % 26 - 32 * (i // 26 % 2) AS INTEGER)) || i // 52 AS who FROM range(52000) AS r(i)"
        )
        con.execute("SELECT dp_protect('t', epsilon := 1e9, privacy_unit := 'who', max_rows_per_unit := 1)").fetchall()
        with noted_entries() as entries:
            ask(con, "SELECT count(*) FROM t")
        assert parts_of(entries[-1])[0] == {"rows": 1}


@pytest.mark.long
def test_a_draw_that_fails_is_not_far_from_what_was_stated(con: Any) -> None:
    """At next to no epsilon any limit may be drawn: none above 16 times the stated 3."""
    with noted_entries() as entries:
        for _ in range(8):
            ask(con, COUNT, 1e-3, ", fresh := true")
    drawn = [parts_of(entry)[0]["rows"] for entry in entries]
    assert max(drawn) <= 48
    assert len(set(drawn)) > 1


def test_with_periods_it_is_of_a_person_in_a_period() -> None:
    with dpsql.connect() as con:
        con.execute("""
            CREATE TABLE visits AS SELECT i AS patient, DATE '2026-01-01' + CAST(31 * m AS INTEGER) AS day
            FROM range(5000) AS p(i), range(4) AS r(m), range(3)
        """)
        con.execute("""
            SELECT dp_protect('visits', epsilon := 1e6, privacy_unit := 'patient', max_rows_per_unit := 1,
              period := 'month', period_of := 'day')
        """).fetchall()
        with noted_entries() as entries:
            [(n,)] = ask(con, COUNT, 10.0, ", during := ['2026-01', '2026-02', '2026-03']")
        assert parts_of(entries[-1])[0] == {"rows": 3}
        [(exact,)] = con.execute("SELECT count(*) FROM visits WHERE day < DATE '2026-04-01'").fetchall()
        assert abs(n - exact) < 100
