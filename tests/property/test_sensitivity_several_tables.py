"""One person in several tables: what a call adds up changes by at most the cap when a person goes, and by nothing of others.

The calls run through SQL, on tables in which keys repeat, rows are shared, and ids and keys are NULL.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

import dpsql
from support.broken.planting import planted
from support.broken.several import CAP_BEFORE_JOIN
from support.cases import cases
from support.exact_sums import Seen, distances, exact_sums
from support.sessions import one_key
from support.several import TABLES, Database, create, fill, random_database, without

PEOPLE = (1, 2, 3)
CAP = 2
VIEWS = {
    "of_people": "SELECT id AS who, orders.x FROM people LEFT JOIN orders ON id = who",
    "bought": "SELECT who, orders.x FROM orders JOIN (SELECT DISTINCT o FROM lines WHERE x = 1) ON o = ok",
    "unused": "SELECT who, orders.x FROM orders ANTI JOIN lines ON ok = o",
    "per_order": "SELECT who, s AS x FROM orders JOIN (SELECT o, sum(x) AS s FROM lines GROUP BY o) ON o = ok",
    "copies": "SELECT who, lines.x FROM lines LEFT JOIN orders ON o = ok, range(3)",
    "commas": "SELECT who, c.x FROM people a, orders b, lines c WHERE a.id = b.who AND b.ok = c.o",
    "of_parts": "SELECT who, parts.x FROM parts JOIN lines ON l = lk JOIN orders ON o = ok",
}
SOURCES = ("orders", "lines", "notes", "parts", *VIEWS)


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        create(opened)
        for name, query in VIEWS.items():
            opened.execute(f"CREATE VIEW {name} AS {query}")
        tables = ", ".join(f"{table}: '{path}'" for table, path in TABLES.items())
        opened.execute(f"SELECT dp_protect('shop', epsilon := 1e9, max_rows_per_unit := {CAP}, tables := {{{tables}}})")
        yield opened


def counted(con: Any, source: str, seen: list[Seen]) -> Seen:
    """Return the exact number of rows of each person that a call counts."""
    con.execute(f"FROM dp_count('{source}', by := 'who', keys := {list(PEOPLE)}, epsilon := 0.01)").fetchall()
    return seen[-1]


def wrong(con: Any, database: Database, sources: tuple[str, ...] = SOURCES) -> Iterator[str]:
    """Yield what a person's going changes more than it may, if everybody keeps the same rows of those that count."""
    answers: dict[int, list[Seen]] = {}
    with one_key(), exact_sums() as seen:
        for person in (0, *PEOPLE):
            fill(con, without(database, person))  # nobody is 0
            answers[person] = [counted(con, source, seen) for source in sources]
    for person in PEOPLE:
        for source, before, after in zip(sources, answers[0], answers[person], strict=True):
            if any(l1 > bound or l2 > bounds for l1, bound, l2, bounds in distances(before, after)):
                yield f"{source}: too many rows of {person}"
            groups = [(one.groups[0], other.groups[0]) for one, other in ((before, after),)]
            if any(one[key] != other[key] for one, other in groups for key in one if key != (str(person),)):
                yield f"{source}: rows of others than {person}"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_a_person_changes_as_much_as_the_cap_says(con: Any, seed: int) -> None:
    assert [*wrong(con, random_database(random.Random(seed)))] == []


@pytest.mark.long
@cases("seed", range(100, 200))
def test_a_person_changes_as_much_as_the_cap_says_of_many(con: Any, seed: int) -> None:
    assert [*wrong(con, random_database(random.Random(seed)))] == []


@pytest.mark.long
def test_copies_of_a_row_are_capped_after_the_join(con: Any) -> None:
    """A line of an order that is there three times is three rows of one person, of which two count."""
    empty: Database = {table: [] for table in ("people", "notes", "parts", "public")}
    database: Database = {**empty, "orders": [(1, 1, 0)] * 3 + [(2, 2, 0)], "lines": [(1, None, 0), (2, None, 0)]}
    assert [*wrong(con, database)] == []
    with planted(*CAP_BEFORE_JOIN.patches):
        assert [*wrong(con, database, ("lines",))] == ["lines: too many rows of 1"]
