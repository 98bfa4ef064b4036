"""GROUPING SETS, ROLLUP and CUBE: one vector whose sets add up, and what it costs."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

import dpsql
from dpsql.contract.keys import PublicKeys
from dpsql.functions.query import MarginsPlan
from dpsql.statistics.aggregates import GroupCount
from support.answers import differences, private
from support.cases import cases
from support.query_entries import arguments_of, noted_entries, parts_of
from support.sessions import session_of
from support.sql_text import literal

CUBE = "SELECT ward, sex, count(*) AS n, sum(days) AS s FROM visits GROUP BY CUBE (ward, sex)"


@pytest.fixture
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        opened.execute("""
            CREATE TABLE visits AS SELECT i % 1500 AS patient, ['A', 'B', 'Z'][1 + i % 3] AS ward,
              ['F', 'M', NULL][1 + i // 7 % 3] AS sex, CAST(i % 14 AS INTEGER) AS days
            FROM range(4500) AS r(i)
        """)
        opened.execute("""
            SELECT dp_protect('visits', epsilon := 1e11, delta := 0.09, max_rows_per_unit := 3, privacy_unit := 'patient',
              keys := {ward: ['A', 'B', 'C'], sex: ['M', 'F']}, lower := {days: 0}, upper := {days: 14})
        """).fetchall()
        yield opened


def ask(con: Any, sql: str, more: str, epsilon: float = 1.0) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = con.execute(
        f"FROM dp_query({literal(sql)}, epsilon := {epsilon!r}{more})"
    ).fetchall()
    return found


@cases("more", ["", ", delta := 1e-6"], quick=1, alone=True)
def test_finer_groups_add_up_to_coarser_ones(con: Any, more: str) -> None:
    """Exactly, but for rounding of each number to the type of its column."""
    rows = ask(con, CUBE.replace("sum(days)", "sum(days::DOUBLE)").replace("count(*)", "count(*)::DOUBLE"), more)
    assert len(rows) == 3 * 2 + 3 + 2 + 1
    sums: dict[tuple[Any, Any], tuple[float, float]] = {(ward, sex): (n, s) for ward, sex, n, s in rows}
    added: dict[tuple[Any, Any], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (ward, sex), (n, s) in sums.items():
        if ward is not None and sex is not None:
            for one in ((ward, None), (None, sex), (None, None)):
                added[one][0] += n
                added[one][1] += s
    for one, (n, s) in added.items():
        assert sums[one][0] == pytest.approx(n, abs=3.5)  # counts are rounded before they are cast
        assert sums[one][1] == pytest.approx(s, abs=1e-6)


def test_rows_of_unlisted_keys_count_in_no_set(con: Any) -> None:
    found = con.execute(private(CUBE)).fetchall()
    listed = CUBE.replace("FROM visits", "FROM visits WHERE ward IN ('A', 'B', 'C') AND sex IN ('M', 'F')")
    assert differences(found, con.execute(listed).fetchall(), slack=0.5) == []


@cases("neighbours", ["add_remove", "replace"])
@cases(("rows", "groups", "each"), [(3, 3, 1), (4, 2, 2), (3, 1, 3)])
def test_a_person_moves_each_set_no_further_than_its_noise_is_for(
    neighbours: str, rows: int, groups: int, each: int
) -> None:
    """A coarse group has the rows of several fine ones: all of a person's may be in it."""
    keys = PublicKeys((("A", "B", "C"), ("F", "M")))
    plan = MarginsPlan.from_arguments(
        "t",
        {
            **{"by": ["ward", "sex"], "keys": keys, "target": ["x"], "wanted": (("count",),), "whole": (True,)},
            **{"lowest": (None,), "highest": (None,), "sets": ((0, 1), (0,), (1,), ()), "left_out_share": 0},
            **{"privacy_unit": "u", "max_rows_per_unit": rows, "max_groups_per_unit": groups, "epsilon": 1},
            **{"max_rows_per_unit_group": each, "neighbours": neighbours},
        },
    )
    cells = list(itertools.product(range(3), range(2)))
    held = [
        chosen
        for count in range(rows + 1)
        for chosen in itertools.combinations_with_replacement(cells, count)
        if len(set(chosen)) <= groups and max(Counter(chosen).values(), default=0) <= each
    ]
    pairs = [(one, ()) for one in held] if neighbours == "add_remove" else itertools.product(held, held)
    largest = dict.fromkeys(plan.sets, (0, 0))
    for one, other in pairs:
        for axes in plan.sets:
            moved = Counter(tuple(cell[axis] for axis in axes) for cell in one)
            moved.subtract(tuple(cell[axis] for axis in axes) for cell in other)
            l1, l2 = sum(map(abs, moved.values())), sum(change**2 for change in moved.values())
            largest[axes] = max(largest[axes][0], l1), max(largest[axes][1], l2)
    count = GroupCount()
    stated = {
        axes: (count.norm(one), count.squared_norm(one))
        for axes, one in zip(plan.sets, plan.contributions, strict=True)
    }
    assert all(largest[axes][0] <= stated[axes][0] and largest[axes][1] <= stated[axes][1] for axes in plan.sets)
    assert largest[0, 1] == stated[0, 1]


@cases(
    "sql",
    [
        "SELECT ward, sex, avg(days), var_pop(days), count(days) FROM visits WHERE ward <> 'Z' AND sex IS NOT NULL GROUP BY ROLLUP (ward, sex)",
        "SELECT ward, grouping(ward) AS g, count(*), count(DISTINCT patient), median(days) FROM visits WHERE ward <> 'Z' GROUP BY ROLLUP (ward)",
        "SELECT sex, ward, count(*) FROM visits WHERE ward <> 'Z' AND sex IS NOT NULL GROUP BY GROUPING SETS ((sex), (ward, sex), (ward), ()) "
        "HAVING count(*) > 100",
        "SELECT ward, count(*) FILTER (WHERE days > 3) FROM visits WHERE ward <> 'Z' GROUP BY ROLLUP (ward)",
    ],
    quick=1,
)
@cases("more", ["", "max_rows_per_unit := 'drawn'"])
def test_answers_are_those_of_duckdb(con: Any, sql: str, more: str) -> None:
    assert differences(con.execute(private(sql, more)).fetchall(), con.execute(sql).fetchall(), slack=0.6) == []


@pytest.mark.long
def test_all_sets_are_one_part(con: Any) -> None:
    with noted_entries() as entries:
        ask(con, CUBE, "")
        ask(con, CUBE.replace("sum(days)", "median(days)"), "")
    [given] = arguments_of(entries[0])
    assert Fraction(given["epsilon"]) == 1
    assert len(parts_of(entries[0])[0]["sets"]) == 4
    spent = [Fraction(one["epsilon"]) for one in arguments_of(entries[1])]
    assert spent == [Fraction(1, 2), *[Fraction(1, 8)] * 4]  # as much for sums as for medians of all sets


def test_sets_without_a_finest_one_are_answered_apart(con: Any) -> None:
    sql = "SELECT ward, sex, count(*) FROM visits GROUP BY GROUPING SETS ((ward), (sex))"
    with noted_entries() as entries:
        ask(con, sql, "")
    assert [Fraction(one["epsilon"]) for one in arguments_of(entries[0])] == [Fraction(1, 2)] * 2


@pytest.mark.long
def test_private_keys_are_drawn_for_each_set(con: Any) -> None:
    sql = "SELECT ward, sex, count(*) AS n FROM visits GROUP BY ROLLUP (ward, sex)"
    found = ask(con, sql, ", keys := 'private', delta := 1e-6", 1e5)
    assert differences(found, con.execute(sql).fetchall(), slack=0.6) == []


@pytest.mark.long
def test_errors_are_those_of_the_fit(con: Any) -> None:
    """A set of many numbers gains most: its total is measured by itself, and once more as a sum."""
    sql = "SELECT ward, count(*) AS n FROM visits GROUP BY ROLLUP (ward)"
    for ward, n, error, lower, upper, *_ in ask(con, sql, ", errors := true, left_out_share := 0"):
        assert lower <= max(n, 0) <= upper
        # Three rows at half of epsilon: 8.5; the total has one more look at it.
        assert error == pytest.approx(8.47 * (3 / 4) ** 0.5, rel=0.01), (ward, error)


def test_explain_tells_of_sets_that_share_their_sums(con: Any) -> None:
    with session_of(con).planning() as planned:
        con.execute(f"DESCRIBE FROM dp_query({literal(CUBE)}, epsilon := 1)").fetchall()
    lines = planned[0].lines
    assert sum(line.startswith("part of") for line in lines) == 1
    assert any(line.startswith("its sums are those of __dp_") for line in lines)


@pytest.mark.long
def test_a_replay_is_the_same(con: Any) -> None:
    assert ask(con, CUBE, "") == ask(con, CUBE, "")
    assert con.execute("SELECT releases FROM dp_budget()").fetchall() == [(1,)]
