"""Columns that have a value in every row share one count: what averages and sums of them mean, and which ones they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import dpsql
from dpsql.functions.query import VectorPlan
from support.broken.planting import planted
from support.cases import cases
from support.sql_text import literal


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        opened.execute("""
            CREATE TABLE people (id BIGINT NOT NULL, age INTEGER NOT NULL);
            CREATE TABLE visits (who BIGINT, cost INTEGER NOT NULL, days INTEGER, pain DOUBLE NOT NULL, ward VARCHAR NOT NULL);
            INSERT INTO people SELECT i, 20 + i % 7 FROM range(20) AS r(i);
            INSERT INTO visits
              SELECT i % 30, i % 11, CASE WHEN i % 3 > 0 THEN i % 5 END, CASE WHEN i % 4 > 0 THEN i % 6 ELSE CAST('nan' AS DOUBLE) END,
                ['A', 'B'][1 + i % 2] FROM range(120) AS r(i);
            CREATE VIEW seen AS FROM visits;
            SELECT dp_protect('clinic', epsilon := 1e11, max_rows_per_unit := 10, tables := {people: 'id', visits: 'who'},
              keys := {ward: ['A', 'B']}, lower := {age: 0, cost: 0, days: 0, pain: 0},
              upper := {age: 30, cost: 20, days: 8, pain: 10});
        """)
        yield opened


NO_NAN = "CASE WHEN NOT isnan(pain) THEN pain END"
# What is asked, and what DuckDB says of it, where a value that is no number counts for nothing.
ASKED = {
    "SELECT ward, count(*), sum(cost), avg(cost), avg(days), sum(days), count(days) FROM visits GROUP BY ward": "",
    "SELECT ward, count(cost), avg(cost * 2 - 1), sum(coalesce(days, 3)), stddev(cost) FROM visits GROUP BY ward": "",
    "SELECT avg(age), count(age), count(*), avg(cost) FROM visits LEFT JOIN people ON id = who": "",
    "SELECT avg(days), sum(days), count(*) FROM visits WHERE days > 0": "",
    "SELECT avg(days), sum(days), count(*) FROM visits WHERE days IS DISTINCT FROM 2": "",
    "SELECT avg(pain), sum(pain), count(*) FROM visits": f"SELECT avg({NO_NAN}), sum({NO_NAN}), count(*) FROM visits",
    "SELECT count(pain), count(*), count(pain + 1), avg(cost) FROM visits": "",
    "SELECT sum(CASE WHEN ward = 'A' THEN 1 ELSE 0 END), sum(CASE WHEN days = 2 THEN 0 ELSE 1 END), avg(cost) FROM visits": "",
    "SELECT avg(CASE WHEN days > 1 THEN cost END), sum(CASE WHEN days > 1 THEN cost END), count(*) FROM visits": "",
    "SELECT sum(cost) FILTER (WHERE days > 1), avg(cost) FILTER (WHERE days > 1), avg(cost) FROM visits": "",
    "SELECT avg(c), sum(d), avg(d), count(*) FROM (SELECT cost + 1 AS c, days AS d, who FROM visits UNION ALL "
    "SELECT days, cost, who FROM visits)": "",
    "SELECT avg(x), avg(cost), count(*) FROM (SELECT cost, (SELECT max(age) FROM people WHERE id = who) AS x FROM visits)": "",
}


@cases("epsilon", [1e5, 1e9], quick=1)
@cases("sql", ASKED, ids=lambda sql: sql[7:40])
def test_answers_mean_what_they_meant(con: Any, sql: str, epsilon: float) -> None:
    more = ", lower := {x: 0, c: 0, d: 0}, upper := {x: 30, c: 20, d: 20}"
    found = con.execute(f"FROM dp_query({literal(sql)}, epsilon := {epsilon}{more}, fresh := true)").fetchall()
    exact = con.execute(ASKED[sql] or sql).fetchall()
    close = 30 / epsilon**0.5
    for ours, theirs in zip(sorted(found), sorted(exact), strict=True):
        for one, other in zip(ours, theirs, strict=True):
            if isinstance(other, str):
                assert one == other
            else:
                assert float(one) == pytest.approx(float(other), abs=1 + close if isinstance(other, int) else close)


def deviation(con: Any, sql: str) -> float:
    """Return the expected error of the first column's count."""
    asked = f"FROM dp_query({literal(sql)}, epsilon := 1, left_out_share := 0, estimate := true)"
    rows = con.execute(asked).fetchall()
    return next(float(row[2]) for row in rows if row[0] == "n" and row[1] == "std_error")


def test_no_number_needs_no_count_of_its_own(con: Any) -> None:
    """Where a column has no NULL, what is counted are rows."""
    both, one = (deviation(con, f"SELECT count(*) AS n, {more} FROM visits") for more in ("count(pain) AS m", "1 AS m"))
    assert both == pytest.approx(one)


def test_a_shared_count_leaves_more_for_the_rest(con: Any) -> None:
    """One count and three sums are four numbers; averages of columns that may be NULL have numbers of values, too."""
    columns = "count(*) AS n, avg({0}) AS a, avg({0} * 2) AS b, avg({0} * 3) AS c"
    whole, maybe, view = (
        deviation(con, f"SELECT {columns.format(column)} FROM {table}")
        for column, table in (("cost", "visits"), ("days", "visits"), ("cost", "seen"))
    )
    assert whole == pytest.approx(10 * (5 * 6 / 3) ** 0.5, rel=1e-3)
    assert maybe == view == pytest.approx(10 * (8 * 9 / 3) ** 0.5, rel=1e-3)


def test_no_other_part_is_seen_while_one_is_chosen(con: Any) -> None:
    """What is charged and what is drawn, maybe by another thread, is one part."""
    seen, cubes = [], vars(VectorPlan)["_cubes"]

    def noted(plan: VectorPlan) -> Any:
        seen.append("part" in vars(plan))
        return cubes(plan)

    with planted((VectorPlan, "_cubes", noted)):
        con.execute(
            "FROM dp_query('SELECT count(*), avg(cost) FROM visits', epsilon := 1, estimate := true)"
        ).fetchall()
    assert seen
    assert not any(seen)
