"""Queries whose numbers are one vector with noise of a cube, on random tables and on those without one person."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from test_sensitivity_query import examine

import dpsql
from dpsql.contract.query import relations
from support.broken.planting import planted
from support.broken.query_parts import CELLS_OVERLAP, OWN_COUNTS_WITH_ONE_NOISE, VECTOR_OF_ONE_ROW
from support.cases import cases
from support.plain_tables import create, neighbours, random_rows

MORE = ("during := NULL", "max_rows_per_unit := 1", "max_groups_per_unit := 1")
ASKED = (
    "SELECT ward, count(*), sum(n), avg(n), sum(x), avg(x) FROM orders GROUP BY ward",
    "SELECT count(*), sum(n), avg(n), count(n), sum(n * n) FROM orders WHERE n BETWEEN 0 AND 9",
    "SELECT ward, sum(CASE WHEN ward = 'A' THEN 1 ELSE 0 END), sum(CASE WHEN ward = 'A' THEN 0 ELSE 1 END), count(*) "
    "FROM orders GROUP BY ward",
    "SELECT kind, count(*) FILTER (WHERE n > 0), count(x), stddev(n), avg(coalesce(n, 0)) FROM orders GROUP BY kind",
    "SELECT ward, avg(age), avg(n), sum(n + age), count(*) FROM orders LEFT JOIN people ON id = who GROUP BY ward",
    "SELECT code, count(price), sum(qty), avg(qty), sum(n) FROM orders JOIN lines ON ok = o WHERE qty > -9 GROUP BY code",
)


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        create(opened)
        yield opened


@pytest.mark.long
@cases("seed", range(25))
@cases("more", MORE)
def test_a_person_is_worth_epsilon_at_most(con: Any, seed: int, more: str) -> None:
    found = examine(con, [(sql, more) for sql in ASKED], neighbours(random_rows(random.Random(seed))))
    assert found.wrong == []
    assert found.answered == len(ASKED), found.refused


DISJOINT = (
    "SELECT ward, count_if(n > 3), count_if(NOT n > 3), count_if(n IS NULL) FROM orders GROUP BY ward",
    "SELECT sum(CASE WHEN ward = 'A' THEN 1 ELSE 0 END), sum(CASE WHEN ward <> 'A' THEN 1 ELSE 0 END) FROM orders",
    "SELECT ward, count_if(n > 1), count_if(n > 2), sum(CASE WHEN n >= 0 THEN 1 ELSE 0 END) FROM orders GROUP BY ward",
    "SELECT count_if(x > 0), count_if(who > 0), count(*) FILTER (WHERE n < 9) FROM orders",
)


@pytest.mark.long
@cases("seed", range(25))
@cases("more", MORE)
def test_a_wrong_proof_that_counts_are_disjoint_costs_no_privacy(con: Any, seed: int, more: str) -> None:
    with planted((relations, "exclude", lambda *_: True)):
        found = examine(con, [(sql, more) for sql in DISJOINT], neighbours(random_rows(random.Random(seed))))
    assert found.wrong == []
    assert found.answered == len(DISJOINT), found.refused


OVERLAPPING: dict[str, Any] = {
    **{name: [] for name in ("people", "notes", "parts", "lines")},
    "orders": [(at, 1, 1, 4, "'A'", "NULL", "NULL", "NULL") for at in (1, 2)],
}


@cases("fault", [None, CELLS_OVERLAP], ids=["product", "in every cell"], quick=1)
def test_a_row_that_is_in_every_cell_is_noticed(con: Any, fault: Any) -> None:
    query = [("SELECT ward, count_if(n > 1), count_if(n > 2) FROM orders GROUP BY ward", "during := NULL")]
    with planted((relations, "exclude", lambda *_: True), *(fault.patches if fault else ())):
        found = examine(con, query, neighbours(OVERLAPPING))
    assert (found.wrong != []) == (fault is not None)


# One person's rows, of which one lacks the second number; of the other person nothing counts.
ROWS: dict[str, Any] = {
    **{name: [] for name in ("people", "notes", "parts", "lines")},
    "orders": [(1, 1, 1, 4, "'A'", "NULL", "NULL", "NULL"), (2, 1, 1, "NULL", "'A'", "NULL", "NULL", "NULL")],
}
VECTOR = [("SELECT ward, count(*), sum(n), sum(x) FROM orders GROUP BY ward", "left_out_share := 0")]


def test_a_person_may_use_all_of_epsilon(con: Any) -> None:
    found = examine(con, VECTOR, neighbours(ROWS))
    assert (found.wrong, max(found.losses)) == ([], 1)


@cases("fault", [OWN_COUNTS_WITH_ONE_NOISE, VECTOR_OF_ONE_ROW], ids=["own counts", "one row"], quick=1)
def test_faults_are_found(con: Any, fault: Any) -> None:
    with planted(*fault.patches):
        found = examine(con, VECTOR, neighbours(ROWS))
    assert found.wrong != []
