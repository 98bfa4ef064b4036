"""Random plain SQL on random tables and on those without one person: no part sees more of a person than it is charged for.

What is compared are the exact integers before noise of all parts of a query. Their distances over the scales of their
noise add up to epsilon at most, in exact fractions; types, refusals and the parts themselves do not depend on rows, and
no row can stop a query.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb import releases
from dpsql.engines.duckdb.query_planner import QueryPlanner, QueryStatement
from support.broken.planting import planted
from support.cases import cases
from support.exact_parts import Call, ExactCalls, exact_parts
from support.plain_sql import Writer, mutated
from support.plain_tables import create, fill, neighbours, random_rows
from support.sessions import one_key
from support.sql_text import literal

EPSILON = 1
# Refusals that public values alone decide; L and I would be faults.
_FAULT = "stopped:"
_REFUSED = re.compile(r"DPSQL-([PSB]\d{3})")
Planned = tuple[QueryStatement | None, str]


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
        return _code_of(con, sql, error)


@dataclass(frozen=True)
class Bound:
    """What a query runs: all of it, and what draws its cores alone."""

    text: str
    cores: str = ""


def bound_once(con: Any, queries: list[tuple[str, str]], planned: list[Planned]) -> list[Bound | str]:
    """Return the statement that each query runs, or the code with which it is refused; its plan reads no row."""
    out: list[Bound | str] = []
    for sql, more in queries:
        planned.clear()
        try:
            con.execute(f"DESCRIBE {asked(sql, more)}").fetchall()
        except duckdb.Error as error:
            out.append(_code_of(con, sql, error))
            continue
        statement, free = planned[-1]
        if statement is None:
            out.append(Bound(free))
        else:
            text = statement.sql()
            before, found, _ = text.rpartition(f" FROM (\n{statement.split.post}\n)")
            before, selected, _ = before.rpartition("SELECT *")
            assert found
            assert selected
            out.append(Bound(text, f'{before} SELECT 1 FROM "__dp"'))
    return out


def _code_of(con: Any, sql: str, error: duckdb.Error) -> str:
    found = _REFUSED.search(str(error))
    if found:
        return found[1]
    try:
        con.execute(f"EXPLAIN {sql}").fetchall()
    except duckdb.Error:
        return "DuckDB's own"
    return f"{_FAULT} {str(error)[:400]}"


@contextmanager
def unnamed(planned: list[Planned]) -> Iterator[None]:
    """Let every run of a statement be a release of its own, and note what is planned."""
    plan = QueryPlanner.plan

    def noted(planner: QueryPlanner, *given: Any) -> Planned:
        planned.append(plan(planner, *given))
        return planned[-1]

    with planted((QueryPlanner, "plan", noted), (QueryPlanner, "_name_plan", lambda planner, found, *_, **__: found)):
        yield


def examine_bound(
    con: Any, queries: list[tuple[str, str]], databases: list[Any], groups: Sequence[int], *, same_rows: bool = False
) -> Found:
    """As `examine`, of several databases, each with its neighbours behind it; every query is bound once.

    `groups` has the number of each database and its neighbours; what binds may not depend on rows, which `examine`
    looks at. With `same_rows`, queries are not split as they should be: whatever refuses them is right, rows may stop
    one, and what they answer must be equal, too, where the numbers are.

    The first group is asked as a caller asks it. With the others, what takes most of the time and sees no row is left
    out: intervals of released numbers, and the search for an order of joins.
    """
    found, planned = Found(same_rows=same_rows), list[Planned]()
    with one_key(), unnamed(planned), exact_parts() as calls:
        texts = bound_once(con, queries, planned)
        for place, text in enumerate(texts):
            if isinstance(text, str):
                found.refused[text] = found.refused.get(text, 0) + 1
                if text.startswith(_FAULT) and not same_rows:
                    found.wrong.append(f"{queries[place][0]} {text}")
        run = [(place, text) for place, text in enumerate(texts) if isinstance(text, Bound)]
        found.answered = len(run)
        start = 0
        for number, count in enumerate(groups):
            outcomes = []
            with hurried(con) if number else nullcontext():
                for database in databases[start : start + count]:
                    fill(con, database)
                    outcomes.append([_ran(con, calls, text) for _, text in run])
            start += count
            for others in outcomes[1:]:
                for (place, _), first, other in zip(run, outcomes[0], others, strict=True):
                    found.compare(queries[place], first, other)
    return found


@contextmanager
def hurried(con: Any) -> Iterator[None]:
    """Leave out what is done after the draw, or without rows."""
    made = releases.core_rows

    def without_intervals(result: Any, answers: Any, confidence: float) -> Any:
        listed = [{name: value for name, value in one.items() if name != "over"} for one in answers["answers"]]
        return made(result, {**answers, "answers": listed}, confidence)

    con.execute("SET disabled_optimizers = 'join_order'")
    try:
        with planted((releases, "core_rows", without_intervals)):
            yield
    finally:
        con.execute("RESET disabled_optimizers")


def _ran(con: Any, calls: ExactCalls, bound: Bound) -> Call | str:
    """Run a statement; where it stops above its cores, as a cast of a released number may, its cores alone."""
    try:
        return calls.run(con, bound.text)
    except duckdb.Error as error:
        if not bound.cores:
            return f"{_FAULT} {str(error)[:400]}"
    try:
        drawn = calls.run(con, bound.cores)
    except duckdb.Error as error:
        return f"{_FAULT} {str(error)[:400]}"
    drawn.types = []
    return drawn


@dataclass
class Found:
    """What random queries came to."""

    answered: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    losses: list[Fraction] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    same_rows: bool = False
    stopped: int = 0

    def compare(self, query: tuple[str, str], first: Call | str, other: Call | str) -> None:
        """Note how far apart a query is on a database and on a neighbour, and what is wrong with that."""
        sql, more = query
        if self.same_rows and (isinstance(first, str) or isinstance(other, str)):
            self.stopped += 1
            return
        if isinstance(first, str) or isinstance(other, str):
            if first != other:
                self.wrong.append(f"{sql}: refused for its rows, {first if isinstance(first, str) else other}")
            return
        if first.types and other.types and first.types != other.types:
            self.wrong.append(f"{sql}: its types depend on its rows")
        if first.epsilon > EPSILON:
            self.wrong.append(f"{sql}: its parts spend {first.epsilon}")
        try:
            loss = first.loss(other)
        except AssertionError as error:
            self.wrong.append(f"{sql}: {error}")
            return
        keyed = any(part.labelled for part in first.parts)  # then the groups are what is released
        if self.same_rows and not keyed and sorted(first.rows, key=str) != sorted(other.rows, key=str):
            self.wrong.append(f"{sql}: what follows depends on rows")
        self.losses.append(loss)
        if loss > EPSILON:
            self.wrong.append(f"{sql} ({more}): a person is worth {float(loss)}")


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
        for others in outcomes[1:]:
            found.compare((sql, more), first, others[place])
    return found


def random_queries(draw: random.Random, count: int) -> list[tuple[str, str]]:
    """Return queries, a third of them with a piece changed, and the arguments they are asked with."""
    made = []
    for _ in range(count):
        sql = Writer(draw).query()
        more = draw.choice(
            (
                "delta := 1e-6",
                f"delta := 1e-6, {BOUNDED}",
                f"delta := 1e-6, {BOUNDED}, max_rows_per_unit := 1",
                BOUNDED,
                f"{BOUNDED}, max_rows_per_unit := 3, errors := true",
                f"delta := 1e-6, {BOUNDED}, max_groups_per_unit := 1",
                "lower := {v: -2}, upper := {v: 2}",
            )
        )
        made.append((mutated(sql, draw) if draw.random() < 0.35 else sql, more))
    return made


@pytest.mark.long
@cases("seed", range(6))
def test_a_person_is_worth_epsilon_at_most(con: Any, seed: int) -> None:
    draw = random.Random(seed)
    assert examine(con, random_queries(draw, 14), neighbours(random_rows(draw))).wrong == []


@pytest.mark.long
@cases("seed", range(100, 106))
def test_a_person_is_worth_epsilon_at_most_on_several_databases(con: Any, seed: int) -> None:
    assert of_seed(con, seed, queries=10, databases=3).wrong == []


@pytest.mark.slow
@cases("seed", range(1000, 1006))
def test_a_person_is_worth_epsilon_at_most_in_many(con: Any, seed: int) -> None:
    assert of_seed(con, seed, queries=60, databases=4).wrong == []


def of_seed(con: Any, seed: int, *, queries: int, databases: int) -> Found:
    """Ask random queries of random databases and of their neighbours."""
    draw = random.Random(seed)
    made = [neighbours(random_rows(draw)) for _ in range(databases)]
    asked_of = random_queries(draw, queries)
    return examine_bound(con, asked_of, [one for pair in made for one in pair], [len(pair) for pair in made])


@pytest.mark.long
def test_most_random_queries_are_answered_and_some_use_all_of_epsilon(con: Any) -> None:
    """Without this the tests above could pass because everything is refused, or the tables are never neighbours."""
    draw = random.Random(7)
    queries = [(Writer(draw).query(), f"delta := 1e-6, {BOUNDED}") for _ in range(30)]
    queries.append(("SELECT count(*) FROM orders", "delta := 1e-6"))
    rows = {"people": [], "notes": [], "parts": [], "lines": [], "orders": [(1, 1, *["NULL"] * 6)] * 4}
    found = examine(con, queries, neighbours(rows))  # type: ignore[arg-type]
    assert found.wrong == []
    assert 2 * found.answered > len(queries), found.refused
    assert max(found.losses) == EPSILON
