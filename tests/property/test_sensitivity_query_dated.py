"""Random plain SQL on random tables with periods: nothing of a person in a month that is not charged, epsilon of one that is.

As `test_sensitivity_query`, where what is removed is a person in one month. What undated rows add to dated ones is
protected as the whole person is, over all months together, and is not looked at here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
from test_sensitivity_query import BOUNDED, EPSILON, Bound, Planned, _ran, bound_once, unnamed

import dpsql
from support.broken import periods as broken
from support.broken.planting import Fault, planted
from support.cases import cases
from support.dated_plain import DURING, UNDATED, Owner, create, dated_rows, neighbours
from support.exact_parts import Call, exact_parts
from support.plain_sql import Writer, mutated
from support.plain_tables import Database, fill
from support.sessions import one_key

_MORE = (f"delta := 1e-6, {BOUNDED}", BOUNDED, f"delta := 1e-6, {BOUNDED}, max_rows_per_unit := 1")
_DATED = ("orders", "lines", "notes", "parts")
Query = tuple[str, str]


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        create(opened)
        yield opened


@dataclass
class Found:
    """What random queries came to.

    Attributes
    ----------
    answered : int
    refused : dict
        How many by code.
    losses : list of Fraction
        Of owners whose months are charged.
    uncharged : int
        Pairs of databases that differ in rows of a month that is not charged.
    wrong : list of str
    """

    answered: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    losses: list[Fraction] = field(default_factory=list)
    uncharged: int = 0
    wrong: list[str] = field(default_factory=list)

    def compare(
        self, query: Query, charged: tuple[str, ...], owner: Owner, first: Call | str, other: Call | str
    ) -> None:
        """Note how far apart a query is on a database and on one without an owner."""
        if owner[1] == UNDATED and UNDATED not in charged:
            return
        if isinstance(first, str) or isinstance(other, str):
            if first != other:
                self.wrong.append(f"{query}: stopped by rows of {owner}")
            return
        try:
            loss = first.loss(other)
        except AssertionError as error:
            self.wrong.append(f"{query}: {error}")
            return
        if first.types and other.types and first.types != other.types:
            self.wrong.append(f"{query}: its types depend on rows of {owner}")
        if owner[1] in charged:
            self.losses.append(loss)
        else:
            self.uncharged += 1
        most = EPSILON if owner[1] in charged else 0
        if loss > most or first.epsilon > EPSILON:
            self.wrong.append(f"{query}, charged to {charged}: {owner} is worth {float(loss)}")


def examine(con: Any, queries: list[Query], databases: list[Database]) -> Found:
    """Ask queries, each of which is bound once, of databases and of these without each owner."""
    found, run = Found(), list[tuple[Query, Bound, tuple[str, ...]]]()
    planned = list[Planned]()
    with one_key(), unnamed(planned), exact_parts() as calls:
        for query in queries:
            [text] = bound_once(con, [query], planned)
            if isinstance(text, str):
                found.refused[text] = found.refused.get(text, 0) + 1
                found.wrong += [f"{query} {text}"] if text.startswith("stopped") else []
                continue
            found.answered += 1
            statement = planned[-1][0]
            if statement is not None:
                assert statement.plan.during is not None, "a query on tables with periods charges no block"
                run.append((query, text, statement.plan.during.blocks))
        for database in databases:
            fill(con, database)
            first = [_ran(con, calls, text) for _, text, _ in run]
            for owner, without in neighbours(database):
                fill(con, without)
                for (query, text, charged), before in zip(run, first, strict=True):
                    found.compare(query, charged, owner, before, _ran(con, calls, text))
    return found


def random_queries(draw: random.Random, count: int) -> list[Query]:
    """Return queries, of which some have a piece changed, with the months they are asked of."""
    made = list[Query]()
    for _ in range(count):
        sql, more = Writer(draw).query(), draw.choice(_MORE)
        sql = mutated(sql, draw) if draw.random() < 0.2 else sql
        if any(table in sql for table in _DATED):
            more = f"{more}, during := {draw.choice(DURING)}"
        made.append((sql, more))
    return made


def of_seed(con: Any, seed: int, *, queries: int, databases: int) -> Found:
    """Ask random queries of random databases."""
    draw = random.Random(seed)
    made = [dated_rows(draw) for _ in range(databases)]
    return examine(con, random_queries(draw, queries), made)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_an_owner_is_worth_epsilon_of_a_charged_month_and_nothing_else(con: Any, seed: int) -> None:
    assert of_seed(con, seed, queries=8, databases=1).wrong == []


@pytest.mark.long
@cases("seed", range(100, 112))
def test_an_owner_is_worth_no_more_in_several_databases(con: Any, seed: int) -> None:
    assert of_seed(con, seed, queries=12, databases=2).wrong == []


@pytest.mark.slow
@cases("seed", range(1000, 1006))
def test_an_owner_is_worth_no_more_in_many(con: Any, seed: int) -> None:
    assert of_seed(con, seed, queries=40, databases=4).wrong == []


_EMPTY: Database = {"people": [], "lines": [], "notes": [], "parts": []}
_JANUARY_DAY, _FEBRUARY_DAY = "'2024-01-31'", "'2024-02-01'"
# Orders of one person: what fills a limit must not hide what it is filled with.
_ONE: list[Database] = [
    {**_EMPTY, "orders": [(key, 1, key, 1, "'A'", day, "NULL", "NULL") for key, day in enumerate(days)]}
    for days in ((_JANUARY_DAY, _FEBRUARY_DAY), ("NULL", _FEBRUARY_DAY), (_FEBRUARY_DAY, _FEBRUARY_DAY))
]
_FEBRUARY: list[Query] = [("SELECT count(*) FROM orders", "during := '2024-02'")]


@pytest.mark.long
def test_half_the_queries_are_answered_and_some_use_all_of_epsilon(con: Any) -> None:
    """Without this the tests above could pass because everything is refused, or nothing changes."""
    draw = random.Random(9)
    queries = random_queries(draw, 40)
    found = examine(con, [*queries, *_FEBRUARY], _ONE)
    assert found.wrong == []
    assert 2 * found.answered >= len(queries), found.refused
    assert max(found.losses) == EPSILON
    assert found.uncharged > 0


@pytest.mark.long
@pytest.mark.parametrize(
    "fault",
    [broken.CAP_BEFORE_DURING, broken.NULL_PERIOD_EVERYWHERE],
    ids=["cap_before_during", "null_period_everywhere"],
)
def test_a_fault_in_the_rows_of_a_query_is_found(con: Any, fault: Fault) -> None:
    assert examine(con, _FEBRUARY, _ONE).wrong == []
    with planted(*fault.patches):
        assert examine(con, _FEBRUARY, _ONE).wrong != []
