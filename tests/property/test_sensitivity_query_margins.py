"""Queries of several grouping sets, on random tables and on those without one person."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from test_sensitivity_query import examine
from test_sensitivity_query_rows import small_limits

import dpsql
from support.broken.left_out import UNCUT
from support.broken.planting import planted
from support.broken.query_parts import EPSILON_FOR_EACH_SET
from support.cases import cases
from support.plain_sql import create, neighbours, random_rows

MORE = ("", "delta := 1e-6", "max_rows_per_unit := 1", "max_rows_per_unit := 'drawn'")
ASKED = (
    "SELECT ward, count(*), sum(x) FROM orders GROUP BY ROLLUP (ward)",
    "SELECT ward, kind, avg(x), count(*) FROM orders GROUP BY CUBE (ward, kind)",
    "SELECT ward, kind, stddev(x), count(DISTINCT who), median(x) FROM orders GROUP BY ROLLUP (ward, kind)",
    "SELECT ward, kind, count(x) FROM orders GROUP BY GROUPING SETS ((ward), (ward, kind), ())",
    "SELECT sex, ward, count(*), sum(n) FROM people JOIN orders ON id = who GROUP BY CUBE (sex, ward)",
    "SELECT ward, sum(x + age) FROM people JOIN orders ON id = who GROUP BY ROLLUP (ward)",
    "SELECT code, count(*) FROM orders JOIN lines ON ok = o GROUP BY ROLLUP (code)",
)


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        create(opened)
        yield opened


@pytest.mark.long
@cases("seed", range(10))
@cases("more", MORE)
def test_a_person_is_worth_epsilon_at_most(con: Any, seed: int, more: str) -> None:
    draw = random.Random(seed)
    with small_limits():
        found = examine(con, [(sql, more or "during := NULL") for sql in ASKED], neighbours(random_rows(draw)))
    assert found.wrong == []
    assert found.answered == len(ASKED), found.refused


ONE = [("SELECT ward, count(*) FROM orders GROUP BY ROLLUP (ward)", "max_rows_per_unit := 3")]
UNTOLD = [(sql, f"{more}, left_out_share := 0") for sql, more in ONE]
ROWS: dict[str, Any] = {
    **{name: [] for name in ("people", "notes", "parts", "lines")},
    "orders": [(1, 1, 1, 1, "'A'", "NULL", "NULL", "NULL")] * 3,
}


def test_a_person_may_use_all_of_epsilon(con: Any) -> None:
    """With as many rows as count, and with twice as many where what is left out is told, too."""
    found = examine(con, UNTOLD, neighbours(ROWS))
    assert (found.wrong, max(found.losses)) == ([], 1)
    found = examine(con, ONE, neighbours({**ROWS, "orders": ROWS["orders"] * 2}))
    assert (found.wrong, max(found.losses)) == ([], 1)


def test_rows_left_out_that_are_not_cut_are_found(con: Any) -> None:
    with planted(*UNCUT.patches):
        found = examine(con, ONE, neighbours({**ROWS, "orders": ROWS["orders"] * 4}))
    assert found.wrong != []


def test_all_of_epsilon_for_each_set_is_found(con: Any) -> None:
    with planted(*EPSILON_FOR_EACH_SET.patches):
        found = examine(con, ONE, neighbours(ROWS))
    assert found.wrong != []
