"""Private keys of a query: which groups there are is drawn once, and every part answers exactly those."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

import dpsql
from dpsql.engines.duckdb import query_planner
from support.answers import differences
from support.broken.planting import planted
from support.broken.query_parts import KEYS_OF_ROWS
from support.cases import cases
from support.query_entries import arguments_of, noted_entries, parts_of
from support.sessions import session_of
from support.sql_text import literal

SEVERAL = (
    "SELECT ward, count(*) AS n, avg(days) AS a, median(days) AS m, corr(days, price) AS c, count(DISTINCT vid) AS v, "
    "count(DISTINCT patient) AS p FROM visits GROUP BY ward"
)
LONE = "of one person"
BY_ROWS = "SELECT ward, count(*) AS n, sum(days) AS s FROM visits WHERE days < 14 GROUP BY ward"


@pytest.fixture
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        opened.execute("""
            CREATE TABLE visits AS
              SELECT i AS vid, i % 300 AS patient, ['A', 'B'][1 + i % 2] AS ward, CAST(i % 14 AS INTEGER) AS days,
                CAST(i % 50 AS DECIMAL(9, 2)) AS price
              FROM range(900) AS r(i)
        """)
        opened.execute(f"INSERT INTO visits SELECT 900 + i, 300, '{LONE}', 7, 7 FROM range(3) AS r(i)")
        opened.execute("""
            SELECT dp_protect('visits', epsilon := 1e11, delta := 0.09, max_rows_per_unit := 3, privacy_unit := 'patient',
              lower := {days: 0, price: 0}, upper := {days: 30, price: 50})
        """).fetchall()
        yield opened


def ask(con: Any, sql: str, epsilon: float = 1e6) -> list[tuple[Any, ...]]:
    call = f"FROM dp_query({literal(sql)}, epsilon := {epsilon!r}, delta := 1e-6, keys := 'private')"
    found: list[tuple[Any, ...]] = con.execute(call).fetchall()
    return found


def releases(con: Any) -> int:
    [(found,)] = con.execute("SELECT releases FROM dp_budget()").fetchall()
    return int(found)


@pytest.mark.long
def test_every_part_answers_the_same_groups(con: Any) -> None:
    exact = con.execute(SEVERAL.replace("FROM visits", "FROM visits WHERE patient < 300")).fetchall()
    with noted_entries() as entries:
        assert differences(ask(con, SEVERAL), exact, slack=0.05) == []
    parts = parts_of(entries[-1])
    assert len(parts) == 5
    assert all(one["keys"] == parts[0]["keys"] for one in parts)
    assert releases(con) == 1


@pytest.mark.long
def test_a_key_of_one_person_is_in_no_part(con: Any) -> None:
    """Not even where nobody looks: what is stored is what was released."""
    with noted_entries() as entries:
        ask(con, SEVERAL, 10.0)
    assert LONE not in str(entries[-1].result)
    assert "'A'" in str(entries[-1].result)


def test_what_earlier_versions_released_is_read_again(con: Any) -> None:
    """Their keys were drawn by rows: the answer stands, at no charge, and what is asked anew is drawn by persons."""
    parts: Any = query_planner.parts_of_cores
    with planted((query_planner, "parts_of_cores", lambda *given, **_: parts(*given, earlier=True))):
        before = [ask(con, SEVERAL), ask(con, BY_ROWS)]
    assert [ask(con, SEVERAL), ask(con, BY_ROWS)] == before
    assert releases(con) == 2
    with noted_entries() as entries:
        ask(con, BY_ROWS.replace("14", "13"))
    assert [part["function"] for part in json.loads(entries[-1].arguments)["parts"]] == [
        "dp_query.keys",
        "dp_query.vector",
    ]


def test_keys_of_rows_are_found(con: Any) -> None:
    """A planted fault: the later parts answer every key that occurs."""
    with planted(*KEYS_OF_ROWS.patches), noted_entries() as entries:
        ask(con, SEVERAL, 10.0)
    assert LONE in str(entries[-1].result)


def test_no_key_may_be_released(con: Any) -> None:
    sql = SEVERAL.replace("GROUP BY", "WHERE patient = 5 GROUP BY")
    for _ in range(2):  # the second one is a replay
        assert ask(con, sql, 1.0) == []
        assert releases(con) == 1


@pytest.mark.long
def test_a_table_without_rows_has_no_groups(con: Any) -> None:
    con.execute("DELETE FROM visits")
    assert ask(con, SEVERAL, 1.0) == []


@pytest.mark.long
@pytest.mark.parametrize("sql", [SEVERAL, "SELECT ward, median(days), count(DISTINCT vid) FROM visits GROUP BY ward"])
def test_delta_is_that_of_the_part_that_draws_the_keys(con: Any, sql: str) -> None:
    with noted_entries() as entries:
        ask(con, sql, 1.0)
    given = arguments_of(entries[-1])
    assert sum(Fraction(one["epsilon"]) for one in given) == 1
    assert [one.get("delta") is None for one in given] == [False, *[True] * (len(given) - 1)]
    assert Fraction(given[0]["delta"]) == Fraction(1, 10**6)


def test_persons_decide_where_they_are_asked_for(con: Any) -> None:
    """No row is counted that nobody asked for, and one person moves what decides by 1."""
    with noted_entries() as entries:
        ask(con, "SELECT ward, sum(days), count(DISTINCT patient) FROM visits GROUP BY ward", 1.0)
        ask(con, "SELECT ward, median(days) FROM visits GROUP BY ward", 1.0)
    for entry in entries:
        given = arguments_of(entry)
        assert len(given) == 2
        assert given[0]["distinct_of"] == given[0]["layout"]["privacy_unit"]
        assert Fraction(given[0]["epsilon"]) == Fraction(1, 2)


@cases(
    "key",
    [
        "CAST([0.0, -0.0, 'nan', 'inf', 0.1, 1e300, -1e-300][1 + i % 7] AS DOUBLE)",
        "CAST([0.0, -0.0, 'nan', '-inf', 0.1, 16777217, 1e-40][1 + i % 7] AS FLOAT)",
        "CAST(['infinity', '-infinity', '0044-03-15 (BC)', '2026-01-01', NULL][1 + i % 5] AS DATE)",
        "CAST(['infinity', '0044-03-15 (BC) 01:02:03', '2026-01-01 00:00:00.000001', NULL][1 + i % 4] AS TIMESTAMP)",
        "CAST(['24:00:00', '00:00:00', '12:34:56.789012'][1 + i % 3] AS TIME)",
        "['', ' ', 'a', 'A', 'a ', 'e\u0301', '\u00e9', '''', 'null', 'NULL', NULL, '1', '01', chr(0)][1 + i % 14]",
        "['\\x00\\xFF'::BLOB, '\\xC3'::BLOB, ''::BLOB, NULL][1 + i % 4]",
        "CAST(['a', 'it''s', '', NULL][1 + i % 4] AS ENUM('a', 'it''s', ''))",
        "[-170141183460469231731687303715884105728, 170141183460469231731687303715884105727, 0, NULL][1 + i % 4]::HUGEINT",
        "[9223372036854775807, -9223372036854775808, NULL][1 + i % 3]::BIGINT",
        "[18446744073709551615, 0][1 + i % 2]::UBIGINT",
        "CAST([0.10, -0.01, 12345678901234567.89, NULL][1 + i % 4] AS DECIMAL(20, 2))",
        "[true, false, NULL][1 + i % 3]",
        "CAST(['00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff'][1 + i % 2] AS UUID)",
    ],
    quick=1,
)
def test_every_key_comes_back_as_it_went(key: str) -> None:
    """What was released as a text is cast to the type again; no key may fail there, or meet another one."""
    with dpsql.connect() as con:
        con.execute(f"CREATE TABLE t AS SELECT i AS who, {key} AS k, 1.0 * (i % 5) AS x FROM range(4200) AS r(i)")
        con.execute(
            "SELECT dp_protect('t', epsilon := 1e11, delta := .09, privacy_unit := 'who', max_rows_per_unit := 1)"
        )
        sql = "SELECT k, count(*) AS n, median(x) AS m FROM t GROUP BY k"
        call = f"FROM dp_query('{sql}', epsilon := 1e6, delta := 1e-6, keys := 'private', lower := {{x: 0}}, upper := {{x: 4}})"
        found = con.execute(call).fetchall()
        expected = con.execute("SELECT k, count(*), median(x) FROM t GROUP BY k").fetchall()
        assert differences(found, expected, slack=0.02) == []
        assert len(found) == len(expected)


def test_a_collation_makes_no_two_keys_one() -> None:
    with dpsql.connect() as con:
        con.execute("SET default_collation = 'nocase'")
        con.execute("CREATE TABLE t AS SELECT i AS who, ['a', 'A'][1 + i % 2] AS k, 1.0 AS x FROM range(4000) AS r(i)")
        con.execute(
            "SELECT dp_protect('t', epsilon := 1e11, delta := .09, privacy_unit := 'who', max_rows_per_unit := 1)"
        )
        con.execute("SET default_collation = ''")
        sql = "SELECT k, count(*) AS n, median(x) AS m FROM t GROUP BY k"
        call = f"FROM dp_query('{sql}', epsilon := 1e6, delta := 1e-6, keys := 'private', lower := {{x: 0}}, upper := {{x: 4}})"
        assert sorted((k, n) for k, n, _ in con.execute(call).fetchall()) == [("A", 2000), ("a", 2000)]


def test_explain_tells_whose_keys_a_part_has(con: Any) -> None:
    call = f"FROM dp_query({literal(SEVERAL)}, epsilon := 1, delta := 1e-6, keys := 'private')"
    with session_of(con).planning() as planned:
        con.execute(f"DESCRIBE {call}").fetchall()
    assert "its keys are those that part 1 releases" in planned[0].lines


@pytest.mark.long
def test_the_receipt_says_which_keys_are_shown(con: Any) -> None:
    """An answer without a row says why, and so does one that lacks some keys; public keys need no word."""
    assert ask(con, "SELECT ward, count(*) AS n FROM visits GROUP BY ward", epsilon=0.01) == []
    con.execute("FROM dp_count('visits', by := 'ward', keys := 'private', epsilon := 0.01, delta := 1e-6)").fetchall()
    con.execute("FROM dp_count('visits', by := 'ward', keys := ['A'], epsilon := 0.01, delta := 1e-6)").fetchall()
    told = [row[0] for row in con.execute("SELECT guarantee FROM dp_ledger() ORDER BY sequence").fetchall()[-3:]]
    estimated = con.execute(
        "SELECT quantity, value FROM dp_estimate('dp_query', epsilon := 0.01, delta := 1e-6, keys := 'private', sql := "
        "'SELECT ward, count(*) AS n FROM visits GROUP BY ward')"
    ).fetchall()
    least = [math.ceil(value) for quantity, value in estimated if quantity == "least_count"]
    one, most = least
    keyed = (
        f"; keys are shown that about {one} units have, or more, each with one key, or about {most} with 3 keys each"
    )
    assert told[0].endswith(keyed)
    assert re.search("; keys are shown that about [0-9]+ units have, or more$", told[1])
    assert "keys are shown" not in told[2]
    [(half,)] = [(value,) for quantity, value in estimated if quantity == "epsilon_needed"]
    assert 0.02 < half < 0.0201
