"""Bounds that are drawn: one interval for each column of a core, what it costs, and what it makes of the answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

import dpsql
from dpsql.engines.duckdb import query_planner
from support.broken.planting import planted
from support.cases import cases
from support.query_entries import arguments_of, noted_entries, parts_of
from support.sessions import session_of
from support.sql_text import literal

ALL = (
    "SELECT ward, count(*) AS n, avg(days) AS a, median(days) AS m, corr(days, price) AS c, sum(price) AS s, "
    "covar_pop(price, days) AS v FROM visits GROUP BY ward"
)


@pytest.fixture
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        opened.execute("""
            CREATE TABLE visits AS
              SELECT i AS vid, i % 3000 AS patient, ['A', 'B'][1 + i % 2] AS ward, CAST(i * 7 % 40 AS INTEGER) AS days,
                CAST(i * 7 % 40 * 2 + i % 5 AS DOUBLE) AS price, i % 30 AS age, i % 3 = 0 AS urgent
              FROM range(9000) AS r(i);
            ALTER TABLE visits ALTER urgent SET NOT NULL
        """)
        opened.execute("""
            SELECT dp_protect('visits', epsilon := 1e11, delta := 0.09, max_rows_per_unit := 3, privacy_unit := 'patient',
              keys := {ward: ['A', 'B']}, lower := {age: 0}, upper := {age: 29})
        """).fetchall()
        yield opened


def ask(con: Any, sql: str, epsilon: float = 1e6, more: str = "") -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = con.execute(
        f"FROM dp_query({literal(sql)}, epsilon := {epsilon!r}{more})"
    ).fetchall()
    return found


def of_functions(entry: Any) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for told, part in zip(json.loads(entry.arguments)["parts"], parts_of(entry), strict=True):
        found.setdefault(told["function"].partition(".")[2], []).append({**part, "arguments": told["arguments"]})
    return found


def test_a_column_has_one_interval_whatever_is_asked_of_it(con: Any) -> None:
    with noted_entries() as entries:
        ask(con, ALL)
    parts = of_functions(entries[-1])
    [bounds] = parts["bounds"]
    assert len(bounds["targets"]) == len(set(bounds["targets"])) == 2
    drawn = dict(zip(bounds["targets"], bounds["intervals"], strict=True))
    [vector], [quantile], [pairs] = parts["vector"], parts["quantile"], parts["pairs"]
    assert [one["drawn"] for one in vector["blocks"] if "drawn" in one] == [*drawn.values()]
    assert quantile["bounds"]["interval"] == drawn[quantile["arguments"]["target"]]
    assert pairs["intervals"] == drawn


def test_bounds_are_drawn_by_persons() -> None:
    """Of 2,500 persons with two rows each, of at most ten: noise for one row finds them, noise for ten does not."""
    parts: Any = query_planner.parts_of_cores
    means = []
    for earlier in (False, True):
        patch = (query_planner, "parts_of_cores", lambda *given, of=earlier, **_: parts(*given, earlier=of))
        with dpsql.connect() as con, planted(patch):
            con.execute("CREATE TABLE t AS SELECT i % 2500 AS who, 5.0 + i % 10 AS x FROM range(5000) AS r(i)")
            con.execute("SELECT dp_protect('t', epsilon := 9, privacy_unit := 'who', max_rows_per_unit := 10)")
            sql = "SELECT avg(x) AS a FROM t"
            told = con.execute(f"FROM dp_query('{sql}', epsilon := .5, estimate := true)").fetchall()
            [needed] = [value for _, quantity, value, _ in told if quantity == "bounds_rows_needed"]
            [(mean,)] = con.execute(f"FROM dp_query('{sql}', epsilon := .5)").fetchall()
            means.append((needed, mean))
    (fewer, found), (more, lost) = means
    assert 2 * fewer < 2500
    assert more > 2 * 5000
    assert found is not None  # six deviations of the noise on the number of persons, as below
    assert lost is None


@pytest.mark.long
def test_what_needs_bounds_gives_up_a_quarter_for_them(con: Any) -> None:
    """The parts spend epsilon exactly, and what needs none has its whole share."""
    with noted_entries() as entries:
        ask(con, ALL, 3.0)
        ask(con, "SELECT ward, median(days), count(DISTINCT patient) FROM visits GROUP BY ward", 3.0)
    spent = [[Fraction(one["epsilon"]) for one in arguments_of(entry)] for entry in entries]
    assert spent == [[Fraction(3, 4)] * 4, [Fraction(3, 8), Fraction(3, 2), Fraction(9, 8)]]
    assert con.execute("SELECT releases, epsilon_spent FROM dp_budget()").fetchall() == [(2, 6.0)]


MEANT = (
    ALL,
    "SELECT corr(days, price), regr_slope(price, days), regr_intercept(price, days), regr_count(price, days), "
    "regr_avgx(price, days), covar_samp(days, price) FROM visits",
    "SELECT ward, corr(age, price), corr(price, age), quantile_cont(days, 0.9), avg(age) FROM visits GROUP BY ward",
    "SELECT ward, urgent, median(price) FILTER (WHERE days > 3), regr_r2(price, days) FROM visits GROUP BY ward, urgent",
    "SELECT ward, median(price), corr(days, price), avg(price) FROM visits GROUP BY ROLLUP (ward)",
    "SELECT ward, stddev(price), var_pop(days), quantile_disc(days, 0.25) FROM visits WHERE days > 5 GROUP BY ward",
)


@pytest.mark.long
@cases("more", ["", ", max_rows_per_unit := 'drawn'", ", delta := 1e-6, keys := 'private'"])
@cases("sql", MEANT)
def test_with_little_noise_answers_are_duckdbs_own(con: Any, sql: str, more: str) -> None:
    """What lies beyond the interval is clipped; values of a group are 2 or 4 apart, and a quantile is one of them."""
    mine = sorted(ask(con, sql, 1e7, more), key=str)
    theirs = sorted(con.execute(sql).fetchall(), key=str)
    assert len(mine) == len(theirs) > 0
    for found, exact in zip(mine, theirs, strict=True):
        for one, other in zip(found, exact, strict=True):
            if isinstance(other, (int, float, Decimal)) and not isinstance(other, bool):
                assert float(one) == pytest.approx(float(other), rel=0.1, abs=0.02 if abs(other) <= 1 else 2.6)
            else:
                assert one == other


@pytest.mark.long
def test_types_that_are_bounded_cost_nothing(con: Any) -> None:
    with noted_entries() as entries:
        [(share, total)] = ask(con, "SELECT avg(CAST(urgent AS INTEGER)), sum(CAST(days > 3 AS INTEGER)) FROM visits")
        ask(con, "SELECT corr(CAST(urgent AS INTEGER), age) FROM visits")
        ask(con, "SELECT median(days) FROM visits")  # without groups
    assert [list(of_functions(entry)) for entry in entries] == [["vector"], ["pairs"], ["quantile"]]
    assert abs(share - 1 / 3) < 0.01
    assert abs(total - 8100) < 10


def test_where_no_bounds_are_found_what_depends_on_values_is_not_told(con: Any) -> None:
    found = ask(con, ALL + " ORDER BY 1", 0.1, ", errors := true")
    assert len(found) == 2
    for row in found:
        _, n, *rest = row
        assert n is not None
        assert rest[:5] == [None] * 5
        assert [rest[at + 3] for at in range(9, len(rest), 4) if at + 3 < len(rest)] == ["undetermined"] * 5
    assert con.execute("SELECT epsilon_spent FROM dp_budget()").fetchall() == [(0.1,)]


def test_with_periods_they_are_those_of_the_periods_that_are_asked_about() -> None:
    with dpsql.connect() as con:
        con.execute("""
            CREATE TABLE visits AS SELECT i AS patient, DATE '2026-01-01' + CAST(31 * m AS INTEGER) AS day,
              CAST(1 + i % 9 AS DOUBLE) * (CASE m WHEN 0 THEN 1 ELSE 1e6 END) AS price
            FROM range(500) AS p(i), range(2) AS r(m)
        """)
        con.execute("""
            SELECT dp_protect('visits', epsilon := 1e6, privacy_unit := 'patient', max_rows_per_unit := 1,
              period := 'month', period_of := 'day')
        """).fetchall()
        with noted_entries() as entries:
            ask(con, "SELECT avg(price) FROM visits", 100.0, ", during := '2026-01'")
        [bounds] = of_functions(entries[-1])["bounds"]
        [(_, upper, *_)] = bounds["intervals"]
        assert 9 <= upper <= 64


@pytest.mark.long
def test_intervals_hold_what_the_bounds_leave(con: Any) -> None:
    names = [column[0] for column in con.execute(f"DESCRIBE FROM dp_query({literal(ALL)}, epsilon := 9)").fetchall()]
    assert names == ["ward", "n", "a", "m", "c", "s", "v"]
    call = f"FROM dp_query({literal(ALL)}, epsilon := 50, errors := true)"
    cursor = con.execute(call)
    columns = [one[0] for one in cursor.description]
    for values in cursor.fetchall():
        row = dict(zip(columns, values, strict=True))
        for name in ("n", "a", "m", "c", "s", "v"):
            assert row[f"{name}_lower"] <= float(row[name]) <= row[f"{name}_upper"], (name, row)


@pytest.mark.long
def test_asking_again_is_free(con: Any) -> None:
    first = ask(con, ALL + " ORDER BY ward", 5.0)
    again = ask(con, ALL + " ORDER BY ward DESC", 5.0)
    assert again == first[::-1]
    assert ask(con, ALL, 5.0, ", lower := {price: 0}, upper := {price: 90}") not in (first, again)
    assert con.execute("SELECT releases FROM dp_budget()").fetchall() == [(2,)]


def test_explain_and_estimate_tell_of_them(con: Any) -> None:
    sql = "SELECT ward, median(days), corr(days, age), count(*) FROM visits GROUP BY ward"
    with session_of(con).planning() as planned:
        con.execute(f"DESCRIBE FROM dp_query({literal(sql)}, epsilon := 2)").fetchall()
    told = planned[-1].lines
    assert [line for line in told if line.startswith("bounds of")] == [
        "bounds of t0: drawn privately",
        "bounds of t1: 0 to 29",
    ]
    assert any("bounds, epsilon 0.333333 of 2" in line for line in told)
    assert "its bounds are those that part 1 draws" in told
    expected = con.execute(f"FROM dp_query({literal(sql)}, epsilon := 2, estimate := true)").fetchall()
    assert [value for _, quantity, value, _ in expected if quantity == "bounds_rows_needed"] != []
    assert con.execute("SELECT releases FROM dp_budget()").fetchall() == [(0,)]
