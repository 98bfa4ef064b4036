"""Statements of two stages under one epsilon: what is above a released answer is free, and WHERE may choose whole groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from support.cases import cases
from support.sql_text import literal

Z = "(SELECT zone, count(*) AS n FROM rides GROUP BY zone)"


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    """Zones of 1 to 5 hundred rides, one for each rider."""
    with dpsql.connect() as opened:
        opened.execute(
            "CREATE TABLE rides AS SELECT z * 1000 + i AS rider, chr(64 + z::INTEGER) AS zone, (i + z) % 7 AS fare, i % 2 AS late "
            "FROM range(1, 6) AS a(z), LATERAL range(z * 100) AS b(i)"
        )
        opened.execute("CREATE TABLE areas AS SELECT chr(64 + z::INTEGER) AS zone, z AS area FROM range(1, 6) AS a(z)")
        opened.execute(
            "SELECT dp_protect('rides', epsilon := 1e9, privacy_unit := 'rider', max_rows_per_unit := 1, "
            "keys := {zone: ['A', 'B', 'C', 'D', 'E'], late: [0, 1]}, lower := {fare: 0}, upper := {fare: 6})"
        )
        opened.execute("SELECT dp_public('areas')")
        yield opened


def ask(con: Any, sql: str, epsilon: float = 10_000.0, more: str = "") -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = con.execute(
        f"FROM dp_query({literal(sql)}, epsilon := {epsilon!r}{more})"
    ).fetchall()
    return found


@cases(
    "sql",
    [
        f"SELECT zone, n FROM {Z} WHERE n > 250 ORDER BY 1",
        f"SELECT max(n), min(n), avg(n), count(*) FROM {Z}",
        "SELECT count(*) FROM (SELECT zone, count(*) AS n FROM rides GROUP BY zone HAVING n > 250)",
        f"SELECT arg_max(zone, n), median(n) FROM {Z}",
        f"WITH z AS {Z} SELECT a.zone, b.zone FROM z AS a JOIN z AS b ON a.n > 2 * b.n ORDER BY ALL",
        f"WITH z AS {Z} SELECT zone, n * area FROM z JOIN areas USING (zone) WHERE n > (SELECT avg(n) FROM z) ORDER BY 1",
        f"SELECT n > 250 AS big, count(*), sum(n)::BIGINT FROM {Z} GROUP BY 1 ORDER BY 1",
        f"SELECT zone, n, rank() OVER (ORDER BY n DESC) AS r FROM {Z} QUALIFY r <= 2 ORDER BY 1",
        # WHERE chooses groups by released numbers.
        "SELECT zone, count(*) FROM rides WHERE zone IN (SELECT zone FROM rides GROUP BY zone HAVING count(*) > 250) GROUP BY zone ORDER BY 1",
        "WITH top AS (SELECT zone FROM rides GROUP BY zone ORDER BY count(*) DESC LIMIT 2) "
        "SELECT late, zone, sum(fare)::BIGINT FROM rides WHERE zone IN (SELECT zone FROM top) AND fare > 1 GROUP BY late, zone ORDER BY ALL",
        f"SELECT r.zone, count(*) FROM rides AS r WHERE r.zone NOT IN (SELECT zone FROM {Z} WHERE n > 250) GROUP BY 1 HAVING count(*) > 150",
        f"SELECT zone, count(*) FROM rides WHERE zone = (SELECT arg_max(zone, n) FROM {Z}) GROUP BY zone",
        f"SELECT zone, count(*) FROM rides AS x WHERE EXISTS (SELECT 1 FROM {Z} AS t WHERE t.zone = x.zone AND n > 350) GROUP BY zone ORDER BY 1",
        f"SELECT zone, count(*) FROM rides WHERE (SELECT max(n) FROM {Z}) > 1000 GROUP BY zone",
        "SELECT late, zone, count(*) FROM rides JOIN (SELECT zone AS zone__, count(*) AS inner__ FROM rides WHERE fare > 1 GROUP BY zone "
        "ORDER BY inner__ DESC LIMIT 2) AS series_limit ON zone = zone__ WHERE fare > 2 GROUP BY late, zone ORDER BY ALL",
        f"SELECT r.zone, count(*) FROM rides AS r JOIN (SELECT zone FROM {Z} GROUP BY 1) AS z ON z.zone = r.zone GROUP BY r.zone ORDER BY 1",
        "SELECT zone, count(*) FROM rides JOIN (SELECT zone FROM rides GROUP BY zone HAVING count(*) > 250) AS z USING (zone) GROUP BY zone ORDER BY 1",
        f"SELECT n FROM (SELECT zone, count(*) AS n FROM rides WHERE zone IN (SELECT zone FROM {Z} WHERE n > 350) GROUP BY zone) ORDER BY n",
    ],
)
def test_what_is_above_an_answer_is_the_query_without_noise(con: Any, sql: str) -> None:
    assert ask(con, sql) == con.execute(sql).fetchall()


@cases(
    "sql",
    [
        "SELECT count(*) FROM rides WHERE zone IN (SELECT zone FROM rides GROUP BY zone HAVING count(*) > 250)",
        "SELECT zone, count(*) FROM rides WHERE fare > (SELECT avg(fare) FROM rides) GROUP BY zone",
        f"SELECT zone, count(*) FROM rides WHERE fare > 2 OR zone IN (SELECT zone FROM {Z} WHERE n > 1) GROUP BY zone",
        f"SELECT late, count(*) FROM rides WHERE zone IN (SELECT zone FROM {Z} WHERE n > 1) GROUP BY late",
        f"SELECT zone, late, count(*) FROM rides WHERE zone IN (SELECT zone FROM {Z} WHERE n > 1) GROUP BY ROLLUP (zone, late)",
        f"SELECT r.zone, max(z.n), count(*) FROM rides AS r JOIN {Z} AS z ON z.zone = r.zone GROUP BY r.zone",
        f"SELECT r.zone, count(*) FROM rides AS r JOIN {Z} AS z ON z.n = r.fare GROUP BY r.zone",
        "SELECT r.zone, count(*) FROM rides AS r JOIN (SELECT zone, fare, count(*) AS n FROM rides GROUP BY zone, fare) AS z ON z.zone = r.zone GROUP BY r.zone",
        "SELECT r.zone, count(*) FROM rides AS r JOIN (SELECT zone FROM rides GROUP BY GROUPING SETS ((zone), (zone))) AS z ON z.zone = r.zone GROUP BY r.zone",
        f"SELECT r.zone, count(*) FROM rides AS r LEFT JOIN {Z} AS z ON z.zone = r.zone GROUP BY r.zone",
        "SELECT late, count(*) FROM rides JOIN (SELECT zone AS z FROM rides GROUP BY zone HAVING count(*) > 1) ON zone = z GROUP BY late",
        f"SELECT upper(zone) AS zone, count(*) FROM rides WHERE zone IN (SELECT zone FROM {Z} WHERE n > 1) GROUP BY upper(zone)",
    ],
)
def test_a_released_number_chooses_no_rows(con: Any, sql: str) -> None:
    with pytest.raises(duckdb.Error, match="DPSQL-P105"):
        ask(con, sql)


def test_no_part_is_asked_that_nobody_reads(con: Any) -> None:
    """The same noise as with HAVING, and the same question: what was tried first has no part of epsilon."""
    having = f"SELECT zone, avg(fare) FROM rides AS x GROUP BY zone HAVING EXISTS (SELECT 1 FROM {Z} AS t WHERE t.zone = x.zone AND n > 350)"
    where = f"SELECT zone, avg(fare) FROM rides AS x WHERE EXISTS (SELECT 1 FROM {Z} AS t WHERE t.zone = x.zone AND n > 350) GROUP BY zone"
    assert sorted(ask(con, having, 7.0)) == sorted(ask(con, where, 7.0))
    kinds = con.execute("SELECT kind FROM dp_ledger() ORDER BY sequence DESC LIMIT 2").fetchall()
    assert kinds == [("replay",), ("release",)]
