"""Counts of conditions of which one holds at most: which are seen to be such, and what their noise is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import dpsql
from dpsql.contract.query import relations
from support import BEFORE_2_0
from support.broken.planting import planted
from support.cases import cases
from support.query_entries import noted_entries
from support.sql_text import literal


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        opened.execute("""
            CREATE TABLE visits AS
              SELECT i % 300 AS patient, ['A', 'B'][1 + i % 2] AS ward, ['1', '2', '3', NULL][1 + i % 4] AS kind,
                i % 7 AS days FROM range(900) AS r(i)
        """)
        opened.execute("""
            SELECT dp_protect('visits', epsilon := 1e13, delta := 0.09, max_rows_per_unit := 3, privacy_unit := 'patient',
              keys := {ward: ['A', 'B']}, lower := {days: 0}, upper := {days: 6})
        """).fetchall()
        yield opened


def ask(con: Any, sql: str, more: str = "epsilon := 1e6") -> tuple[list[tuple[Any, ...]], bool]:
    """Return what is answered, and whether one noise is for all counts of a row."""
    with noted_entries() as entries:
        rows: list[tuple[Any, ...]] = con.execute(f"FROM dp_query({literal(sql)}, {more}, fresh := true)").fetchall()
    return rows, any('"dp_query.disjoint"' in entry.arguments for entry in entries)


def counts(*conditions: str) -> str:
    listed = ", ".join(f"sum(CASE WHEN {one} THEN 1 ELSE 0 END)" for one in conditions)
    return f"SELECT ward, {listed} FROM visits GROUP BY ward ORDER BY ward"


APART = (
    ("kind = '1' OR kind = '2'", "kind <> '1' AND kind <> '2'"),
    ("kind IN ('1', '2')", "kind NOT IN ('1', '2')"),
    ("kind IN ('1', '2')", "NOT (kind = '2' OR '1' = kind)"),
    ("kind = '1'", "kind = '2'", "kind = '3'", "kind IS NULL"),
    ("days = 1 AND kind = '1'", "days IN (2, 3)", "days = 4 OR days = 5"),
    ("days > 3 AND kind = '1'", "NOT (days > 3 OR kind = '2')"),
    ("kind IS NULL", "kind IS NOT NULL"),
)
if not BEFORE_2_0:  # which writes the second as days <= 3
    APART = (*APART, ("days > 3", "NOT days > 3"))
NOT_SEEN = (
    ("kind = '1'", "kind <> '2'"),
    ("kind IN ('1', '2')", "kind IN ('2', '3')"),
    ("kind = '1'", "days = 2"),
    ("days > 3", "days < 5"),
    ("days > 3", "days < 2"),  # true, and not looked for
    ("kind = '1' OR days = 1", "kind = '2'"),
    ("days = '1'", "days = '01'"),  # one number
    ("kind NOT IN ('1')", "kind NOT IN ('2')"),
)


@cases("conditions", APART, quick=1)
def test_what_excludes_each_other_is_seen(con: Any, conditions: tuple[str, ...]) -> None:
    sql = counts(*conditions)
    rows, one_noise = ask(con, sql)
    assert one_noise
    assert rows == con.execute(sql).fetchall()


@cases("conditions", NOT_SEEN, quick=1)
def test_what_is_not_plain_is_not_said(con: Any, conditions: tuple[str, ...]) -> None:
    sql = counts(*conditions)
    rows, one_noise = ask(con, sql)
    assert not one_noise
    assert rows == con.execute(sql).fetchall()


@cases(
    ("sql", "seen"),
    [
        ("SELECT count(*) FILTER (WHERE kind = '1'), count_if(kind = '2') FROM visits", True),
        ("SELECT count(CASE WHEN kind = '1' THEN 1 END), sum(CASE WHEN kind = '2' THEN 1 END) FROM visits", True),
        (
            "SELECT sum(CASE kind WHEN '1' THEN 1 ELSE 0 END), sum(CASE kind WHEN '2' THEN 1 ELSE 0 END) FROM visits",
            True,
        ),
        ("SELECT count(CASE WHEN kind = '1' THEN 1 ELSE 0 END), count_if(kind = '2') FROM visits", False),
        ("SELECT count(*), count_if(kind = '1'), count_if(kind = '2') FROM visits", False),
        ("SELECT sum(CASE WHEN kind = '1' THEN 2 ELSE 0 END), count_if(kind = '2') FROM visits", False),
        ("SELECT avg(CASE WHEN kind = '1' THEN 1 ELSE 0 END), count_if(kind = '2') FROM visits", False),
        ("SELECT count_if(kind = '1') FROM visits", False),
    ],
    quick=1,
)
def test_of_which_aggregates(con: Any, sql: str, seen: bool) -> None:
    rows, one_noise = ask(con, sql)
    assert one_noise == seen
    for found, exact in zip(rows[0], con.execute(sql).fetchall()[0], strict=True):
        assert float(found) == pytest.approx(float(exact), abs=0.01)


def test_a_row_is_in_the_first_cell_where_conditions_overlap(con: Any) -> None:
    """What is said of conditions may be wrong: then a row counts once, and not in each of them."""
    sql = "SELECT count_if(days > 1), count_if(days > 3), count_if(days >= 0) FROM visits"
    with planted((relations, "exclude", lambda *_: True)):
        [found], one_noise = ask(con, f"{sql} -- once")
    assert one_noise
    [(first, both, rest)] = con.execute(
        "SELECT count_if(days > 1), count_if(days > 3 AND NOT days > 1), count_if(days <= 1) FROM visits"
    ).fetchall()
    assert found == (first, both, rest)


def test_the_noise_is_that_of_one_count(con: Any) -> None:
    for conditions in (APART[0], APART[3]):
        [row, _], _ = ask(con, counts(*conditions), "epsilon := 1, errors := true, left_out_share := 0")
        errors = [one for one in row if isinstance(one, float)][::3]
        assert errors[0] == pytest.approx(2**0.5 * 3, rel=0.01)
    sql = f"FROM dp_query({literal(counts(*APART[0]))}, epsilon := 1, left_out_share := 0, estimate := true)"
    told = [value for column, quantity, value, _ in con.execute(sql).fetchall() if quantity == "std_error" and column]
    assert told == [pytest.approx(2**0.5 * 3, rel=0.01)] * 2


def test_private_keys_and_grouping_sets_are_as_before(con: Any) -> None:
    sql = counts(*APART[0])
    rows, one_noise = ask(con, sql, "epsilon := 1e6, delta := 1e-6, keys := 'private'")
    assert (rows, one_noise) == (con.execute(sql).fetchall(), False)
    rolled = sql.replace("GROUP BY ward ORDER BY ward", "GROUP BY ROLLUP (ward) ORDER BY ward")
    rows, one_noise = ask(con, rolled)
    assert (rows, one_noise) == (con.execute(rolled).fetchall(), False)
