"""Random plain SQL on random tables and on those without one person: no part sees more of a person than it is charged for.

What is compared are the exact integers before noise of all parts of a query. Their distances over the scales of their
noise add up to epsilon at most, in exact fractions; types, refusals and the parts themselves do not depend on rows, and
no row can stop a query.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import duckdb
import pytest

import dpsql
from support.exact_parts import Call, ExactCalls, exact_parts
from support.plain_sql import Writer, mutated
from support.plain_tables import create, fill, neighbours, random_rows
from support.sessions import one_key
from support.sql_text import literal

EPSILON = 1
# Refusals that public values alone decide; L and I would be faults.
_FAULT = "stopped:"
_REFUSED = re.compile(r"DPSQL-([PSB]\d{3})")


BOUNDED = "lower := -8, upper := 8"
MORE = (
    *(
        "delta := 1e-6",
        f"delta := 1e-6, {BOUNDED}",
        f"{BOUNDED}, max_rows_per_unit := 3",
        "lower := {v: -2}, upper := {v: 2}",
    ),
    f"delta := 1e-6, max_rows_per_unit := 1, {BOUNDED}",
)


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        create(opened)
        yield opened


def asked(sql: str, more: str = "delta := 1e-6") -> str:
    return f"FROM dp_query({literal(sql)}, epsilon := {EPSILON}, {more}, fresh := true)"


def outcome(con: Any, calls: ExactCalls, sql: str, more: str) -> Call | str:
    """Return what a query's parts would add noise to, or the code with which it is refused."""
    try:
        return calls.run(con, asked(sql, more))
    except duckdb.Error as error:
        found = _REFUSED.search(str(error))
        if found:
            return found[1]
        try:
            con.execute(f"EXPLAIN {sql}").fetchall()
        except duckdb.Error:
            return "DuckDB's own"
        return f"{_FAULT} {str(error)[:400]}"


@dataclass
class Found:
    """What random queries came to."""

    answered: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    losses: list[Fraction] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def examine(con: Any, queries: list[tuple[str, str]], databases: list[Any]) -> Found:
    """Ask all queries of a database and of its neighbours, which come behind it."""
    found = Found()
    outcomes: list[list[Call | str]] = []
    with one_key(), exact_parts() as calls:
        for database in databases:
            fill(con, database)
            outcomes.append([outcome(con, calls, sql, more) for sql, more in queries])
    for place, (sql, more) in enumerate(queries):
        first = outcomes[0][place]
        if isinstance(first, str):
            found.refused[first] = found.refused.get(first, 0) + 1
            if first.startswith(_FAULT):
                found.wrong.append(f"{sql} {first}")
        else:
            found.answered += 1
            if first.epsilon > EPSILON:
                found.wrong.append(f"{sql}: its parts spend {first.epsilon}")
        for others in outcomes[1:]:
            other = others[place]
            if isinstance(first, str) or isinstance(other, str):
                if first != other:
                    found.wrong.append(f"{sql}: refused for its rows, {first if isinstance(first, str) else other}")
                continue
            if first.types != other.types:
                found.wrong.append(f"{sql}: its types depend on its rows")
            try:
                loss = first.loss(other)
            except AssertionError as error:
                found.wrong.append(f"{sql}: {error}")
                continue
            found.losses.append(loss)
            if loss > EPSILON:
                found.wrong.append(f"{sql} ({more}): a person is worth {float(loss)}")
    return found


def random_queries(draw: random.Random, count: int) -> list[tuple[str, str]]:
    """Return queries, half of them with a piece changed, and the arguments they are asked with."""
    made = []
    for _ in range(count):
        sql = Writer(draw).query()
        more = draw.choice(
            (
                "delta := 1e-6",
                "delta := 1e-6",
                "max_rows_per_unit := 1, delta := 1e-6",
                "lower := {v: -2}, upper := {v: 2}",
            )
        )
        made.append((mutated(sql, draw) if draw.random() < 0.5 else sql, more))
    return made


@pytest.mark.parametrize("seed", range(6))
def test_a_person_is_worth_epsilon_at_most(con: Any, seed: int) -> None:
    draw = random.Random(seed)
    assert examine(con, random_queries(draw, 14), neighbours(random_rows(draw))).wrong == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1080))
def test_a_person_is_worth_epsilon_at_most_in_many(con: Any, seed: int) -> None:
    draw = random.Random(seed)
    databases = [neighbours(random_rows(draw)) for _ in range(4)]
    queries = random_queries(draw, 40)
    assert [one for pair in databases for one in examine(con, queries, pair).wrong] == []


def test_most_random_queries_are_answered_and_some_use_all_of_epsilon(con: Any) -> None:
    """Without this the tests above could pass because everything is refused, or the tables are never neighbours."""
    draw = random.Random(7)
    queries = [(Writer(draw).query(), f"delta := 1e-6, {BOUNDED}") for _ in range(30)]
    queries.append(("SELECT count(*) FROM orders", "delta := 1e-6"))
    rows = {"people": [], "notes": [], "parts": [], "lines": [], "orders": [(1, 1, *["NULL"] * 6)] * 3}
    found = examine(con, queries, neighbours(rows))  # type: ignore[arg-type]
    assert found.wrong == []
    assert 2 * found.answered > len(queries), found.refused
    assert max(found.losses) == EPSILON
