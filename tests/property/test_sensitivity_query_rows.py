"""Queries whose limit on a person's rows is drawn, on random tables and on those without one person."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from test_sensitivity_query import EPSILON, asked, examine

import dpsql
from dpsql.functions import query_rows
from dpsql.functions.query_rows import SHARE
from support.broken.planting import Fault, planted
from support.broken.query_parts import MOST_OF_ALL, NO_LIMIT, ROWS_OF_TWO
from support.cases import cases
from support.exact_parts import Call, exact_parts
from support.plain_sql import create, fill, neighbours, random_rows
from support.sessions import one_key

MORE = "max_rows_per_unit := 'drawn', delta := 1e-6"
ASKED = (
    "SELECT count(*), avg(x) FROM orders",
    "SELECT ward, count(*), median(x), count(DISTINCT who), sum(x) FROM orders GROUP BY ward",
    "SELECT count(DISTINCT n), median(x), corr(x, x / 2) FROM orders",
    "SELECT sex, count(*), count(DISTINCT id) FROM people JOIN orders ON id = who GROUP BY sex",
    "SELECT code, count(*), sum(price), count(DISTINCT who) FROM orders JOIN lines ON ok = o GROUP BY code",
    "SELECT count(*), (SELECT sum(y) FROM notes) FROM lines",
)


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        create(opened)
        yield opened


def small_limits() -> AbstractContextManager[None]:
    """Let 2 be what is drawn where the middle is."""
    return planted((query_rows, "LIMITS", (1, 2, 4)))


@pytest.mark.long
@cases("seed", range(4))
@cases("more", [MORE, f"{MORE}, keys := 'private'"])
def test_a_person_is_worth_epsilon_at_most(con: Any, seed: int, more: str) -> None:
    draw = random.Random(seed)
    with small_limits():
        found = examine(con, [(sql, more) for sql in ASKED], neighbours(random_rows(draw)))
    assert found.wrong == []
    assert found.answered == len(ASKED), found.refused


def exact_calls(con: Any, sql: str, rows: list[int], *faults: Fault) -> list[Call]:
    """Return what a query draws of orders of these people, and of those without one of them."""
    database: dict[str, Any] = {"people": [], "notes": [], "parts": [], "lines": []}
    database["orders"] = [(at, who, 1, 1, "'A'", "NULL", "NULL", "NULL") for at, who in enumerate(rows)]
    found: list[Call] = []
    patches = [patch for fault in faults for patch in fault.patches]
    with small_limits(), planted(*patches), one_key(), exact_parts() as calls:
        for one in neighbours(database):
            fill(con, one)
            found.append(calls.run(con, asked(sql, MORE)))
    return found


def each_part(con: Any, sql: str, rows: list[int], *faults: Fault) -> list[str]:
    """Return what is wrong with some part, of orders of these people and of those without one of them."""
    found = exact_calls(con, sql, rows, *faults)
    wrong = []
    for other in found[1:]:
        if len(other.parts) != len(found[0].parts):
            wrong.append("the rows decide what is drawn")
            continue
        for part, after in zip(found[0].parts, other.parts, strict=True):
            try:
                if part.loss(after) > part.epsilon:
                    wrong.append(f"{part.part.name} loses {part.loss(after) / part.epsilon} times what it spends")
            except AssertionError:
                wrong.append("a part depends on rows")
    return wrong


PEOPLE = [1, 1, 1, 2, 2, 3]
# Of persons: all of them, those with a value, and both in a group that is the only one.
PERSONS = [
    "SELECT count(DISTINCT who) FROM orders",
    "SELECT count(DISTINCT who) FILTER (WHERE n IS NOT NULL) FROM orders",
    "SELECT ward, count(DISTINCT who) FROM orders WHERE ward = 'A' GROUP BY ward",
    "SELECT ward, count(DISTINCT who) FILTER (WHERE n = 1) FROM orders WHERE ward = 'A' GROUP BY ward",
]


def test_every_part_keeps_its_own_share(con: Any) -> None:
    assert each_part(con, "SELECT count(*) FROM orders", PEOPLE) == []


@cases("sql", PERSONS, quick=2)
def test_a_person_counts_once_among_persons_whatever_limit_is_drawn(con: Any, sql: str) -> None:
    """The noise is that of one row; less would be too little."""
    whole, *others = exact_calls(con, sql, PEOPLE)
    _, part = whole.parts
    assert part.scales == [1 / (EPSILON * (1 - SHARE))]
    for other in others:
        assert part.loss(other.parts[1]) == part.epsilon


@cases("fault", [NO_LIMIT, ROWS_OF_TWO, MOST_OF_ALL], ids=lambda fault: fault.what, quick=1)
def test_planted_faults_are_found(con: Any, fault: Fault) -> None:
    assert each_part(con, "SELECT count(*) FROM orders", PEOPLE, fault) != []
