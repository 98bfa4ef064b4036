"""Rows of a public table that a row of people looks up: the nearest by ASOF JOIN, and the first by ORDER BY and LIMIT 1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from support.cases import cases

BUYS = """
SELECT i % 50 AS pid, i AS bid, DATE '2024-01-01' + (i % 90)::INTEGER AS day, TIMESTAMP '2024-01-01' + INTERVAL 7 HOUR * (i % 300) AS moment,
  ['a', 'b', 'c'][1 + i % 3] AS k, 1 + i % 3 AS n FROM range(600) AS r(i) UNION ALL SELECT 1, -1, NULL, NULL, NULL, 1
"""
PUBLIC = """
CREATE TABLE rates AS SELECT DATE '2024-01-05' + (30 * i)::INTEGER AS since, 1.0 + i AS rate FROM range(4) AS r(i) UNION ALL SELECT NULL, 4.5;
CREATE TABLE prices AS SELECT ['a', 'b'][1 + i % 2] AS k, TIMESTAMP '2024-01-03' + INTERVAL 5 DAY * i AS since, (i * 7) % 10 AS price
  FROM range(20) AS r(i);
CREATE TABLE steps AS SELECT i * 10 AS low, i AS step FROM range(10) AS r(i);
CREATE TABLE tied AS SELECT ['a', 'b'][1 + i % 2] AS k, DATE '2024-01-03' + (i % 3 * 20)::INTEGER AS since, i AS value FROM range(12) AS r(i);
"""
BOUNDS = (
    "lower := {rate: 0, price: 0, step: 0, value: 0, s: 0}, upper := {rate: 5, price: 10, step: 10, value: 12, s: 500}"
)


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    """Buys of people, and the same rows of which each is protected by itself."""
    with dpsql.connect() as opened:
        opened.execute(f"CREATE TABLE buys AS {BUYS}; CREATE TABLE single AS FROM buys; {PUBLIC}")
        opened.execute(
            "SELECT dp_protect('buys', epsilon := 1e10, privacy_unit := 'pid', max_rows_per_unit := 20, lower := {n: 0}, upper := {n: 3})"
        )
        opened.execute("SELECT dp_protect('single', epsilon := 1e10, lower := {n: 0}, upper := {n: 3})")
        for table in ("rates", "prices", "steps", "tied"):
            opened.execute(f"SELECT dp_public('{table}')")
        yield opened


LOOKED_UP = """
rate, count(*) FROM buys ASOF JOIN rates ON day >= since GROUP BY rate
rate, count(*), sum(n) FROM buys ASOF LEFT JOIN rates ON day < since GROUP BY rate
sum(rate * n), count(*) FROM buys b ASOF JOIN rates r ON b.moment > r.since
sum(price * n), count(*) FROM buys ASOF JOIN prices p ON buys.k = p.k AND buys.moment >= p.since
sum(price), count(*), count(price) FROM buys b ASOF LEFT JOIN prices p ON p.since <= b.day AND b.k = p.k WHERE n > 1
sum(step), count(*) FROM buys ASOF JOIN steps ON bid >= low
sum(step), count(*) FROM (SELECT pid, bid AS low, n FROM buys) ASOF JOIN steps USING (low)
sum(m), count(*) FROM buys b ASOF JOIN (SELECT k, since, max(price) AS m FROM prices GROUP BY ALL) p ON b.k = p.k AND b.moment >= p.since
sum(n * (SELECT rate FROM rates WHERE since <= day ORDER BY since DESC LIMIT 1)) FROM buys
sum(n * (SELECT rate FROM rates WHERE day < since ORDER BY since LIMIT 1)) FROM buys
sum((SELECT price FROM prices p WHERE p.k = buys.k AND p.since <= moment ORDER BY p.since DESC LIMIT 1)) FROM buys
(SELECT rate FROM rates WHERE since <= day ORDER BY since DESC LIMIT 1) AS r, count(*) FROM buys GROUP BY r
count(*) FROM buys WHERE (SELECT rate FROM rates WHERE since <= day ORDER BY since DESC LIMIT 1) > 2
"""
OF_PEOPLE = """
rate, count(*) FROM buys JOIN (SELECT since, rate, lead(since, 1, DATE '9999-01-01') OVER (ORDER BY since) AS until FROM rates) ON day >= since AND day < until GROUP BY rate
sum(n * m), count(*) FROM buys JOIN (SELECT k, max(price) AS m, row_number() OVER (ORDER BY k) AS number FROM prices GROUP BY k) p ON buys.k = p.k WHERE number > 1
sum((SELECT price FROM prices p WHERE p.k = buys.k ORDER BY price DESC, since LIMIT 1)) FROM buys
count(*), sum(rate) FROM buys a JOIN buys b ON a.pid = b.pid AND a.bid = b.bid ASOF JOIN rates ON a.day >= since
avg(s) FROM (SELECT pid, sum(n * rate) AS s FROM buys ASOF JOIN rates ON day >= since GROUP BY pid)
"""


def _plain(rows: list[Any]) -> list[list[str]]:
    return sorted([str(x) if isinstance(x, str) or x is None else f"{float(x):.2f}" for x in row] for row in rows)


@cases("text", [*LOOKED_UP.strip().splitlines(), *OF_PEOPLE.strip().splitlines()], quick=5)
def test_the_answer_is_that_of_duckdb(con: Any, text: str) -> None:
    for table in ("buys", "single") if text in LOOKED_UP else ("buys",):
        asked = f"SELECT {text}".replace("buys", table)
        answer = con.execute(f"FROM dp_query(?, epsilon := 1e8, {BOUNDS})", [asked]).fetchall()
        exact = _plain(con.execute(asked).fetchall())
        nobody = [row for row in _plain(answer) if row not in exact]
        assert [row for row in exact if row not in _plain(answer)] == []
        assert all(set(row[1:]) <= {"0.00", "-0.00"} for row in nobody), nobody


TIED = """
sum(value), count(*) FROM buys ASOF JOIN tied ON buys.k = tied.k AND day >= since
sum((SELECT value FROM tied t WHERE t.since <= day ORDER BY since DESC LIMIT 1)) FROM buys
sum((SELECT value FROM tied t WHERE t.k = buys.k ORDER BY since LIMIT 1)) FROM buys
"""


@cases("text", TIED.strip().splitlines())
def test_rows_that_tie_are_chosen_by_their_contents(con: Any, text: str) -> None:
    """Not by the order in which DuckDB reads them."""
    answers = []
    for order in ("value", "value DESC", "hash(value)"):
        con.execute(f"CREATE OR REPLACE TABLE tied AS FROM tied ORDER BY {order}")
        asked = con.execute(f"SELECT * FROM dp_query(?, epsilon := 1e8, fresh := true, {BOUNDS})", [f"SELECT {text}"])
        answers.append([f"{float(value):.1f}" for value in asked.fetchall()[0]])
    assert answers[0] == answers[1] == answers[2]


REFUSED = """
P103 count(*) FROM buys a ASOF JOIN buys b ON a.pid = b.pid AND a.day >= b.day
P103 count(*) FROM rates ASOF JOIN buys ON since >= day
P103 count(*) FROM rates a ASOF JOIN rates b ON a.since >= b.since
P103 count(*) FROM buys ASOF RIGHT JOIN rates ON day >= since
P103 count(*) FROM buys ASOF JOIN rates ON day >= since AND rate > 1
P103 count(*) FROM buys ASOF JOIN (SELECT day AS since FROM buys) b ON day >= since
S003 count(*) FROM buys ASOF JOIN rates ON n >= rate
P107 sum((SELECT rate FROM rates WHERE since <= day ORDER BY since LIMIT 1)) FROM buys
P107 sum((SELECT rate FROM rates WHERE since <= day ORDER BY rate LIMIT 1)) FROM buys
P107 sum((SELECT rate FROM rates WHERE since <= day LIMIT 1)) FROM buys
P107 sum((SELECT rate FROM rates WHERE since <= day ORDER BY since DESC LIMIT 2)) FROM buys
P107 sum((SELECT rate FROM rates WHERE since <= day AND rate < n ORDER BY since DESC LIMIT 1)) FROM buys
P105 sum((SELECT n FROM buys b WHERE b.day <= buys.day ORDER BY b.day DESC LIMIT 1)) FROM buys
"""


@cases(("code", "text"), [line.split(" ", 1) for line in REFUSED.strip().splitlines()], quick=4)
def test_lookups_that_other_rows_decide_are_refused(con: Any, code: str, text: str) -> None:
    with pytest.raises(duckdb.Error, match=f"DPSQL-{code}"):
        con.execute(f"FROM dp_query(?, epsilon := 1, {BOUNDS})", [f"SELECT {text}"])


def test_a_view_looks_up_the_nearest_row_by_a_key(con: Any) -> None:
    keyed = "(SELECT since, max(rate) AS rate FROM rates GROUP BY since)"
    con.execute(f"CREATE VIEW priced AS SELECT pid, n, rate FROM buys ASOF JOIN {keyed} ON day >= since")
    con.execute("CREATE VIEW loose AS SELECT pid, n, rate FROM buys ASOF JOIN rates ON day >= since")
    [(value,)] = con.execute("SELECT value FROM dp_count('priced', epsilon := 1e8)").fetchall()
    assert value == con.execute("SELECT count(*) FROM priced").fetchall()[0][0]
    with pytest.raises(duckdb.Error, match="DPSQL-S012"):
        con.execute("FROM dp_count('loose', epsilon := 1)")
