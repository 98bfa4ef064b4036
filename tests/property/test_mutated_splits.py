"""Whatever a splitter writes: it is refused, or what it answers depends on no person beyond what is charged.

Splits of random queries are changed at random. Those that are answered are asked of random tables and of these without
one person: the exact integers before noise differ by epsilon at most, and what follows from the answers is the same
where the answers are.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from test_sensitivity_query import BOUNDED, Found, examine_bound

import dpsql
from dpsql.contract.query.split import Split
from dpsql.engines.duckdb import query_planner, releases
from dpsql.engines.duckdb.lineage.rows import Rows
from dpsql.released.query import CoreRows, core_rows
from support import mutated_splits
from support.broken.planting import Patch, planted
from support.broken.queries import UNJUDGED
from support.cases import cases
from support.mutated_splits import wrong_split
from support.plain_sql import Writer
from support.plain_tables import create, neighbours, random_rows

_MORE = (f"delta := 1e-6, {BOUNDED}", f"max_rows_per_unit := 1, {BOUNDED}", BOUNDED)


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        create(opened)
        yield opened


def _told_alike(*given: Any) -> CoreRows:
    """Return the same numbers whatever was drawn."""
    found = core_rows(*given)
    return replace(found, numbers=[["1" for _ in row] for row in found.numbers])


@contextmanager
def mutated(draw: random.Random, *faults: Patch) -> Iterator[None]:
    """Let every query be split wrongly, and every answer be the same."""
    split = vars(query_planner)["split"]

    def wrong(*given: Any) -> Split:
        return wrong_split(split(*given), draw)

    with planted((query_planner, "split", wrong), (releases, "core_rows", _told_alike), *faults):
        yield


# Queries that are answered unless they are split wrongly.
SIMPLE = (
    "SELECT ward, count(*) AS n, sum(x) AS s FROM orders GROUP BY ward",
    "SELECT count(*) AS n FROM lines JOIN orders ON o = ok WHERE price > 1",
    "SELECT kind, sum(age) AS s FROM people JOIN orders ON id = who GROUP BY kind",
)


def examined(con: Any, seed: int, count: int, *faults: Patch, databases: int = 1, asked: Sequence[str] = ()) -> Found:
    """Ask queries that are split wrongly, of databases and of their neighbours."""
    draw = random.Random(seed)
    texts = [draw.choice(asked) if asked else Writer(draw).query() for _ in range(count)]
    queries = [(f"{text} -- {seed} {at} {draw.random()}", draw.choice(_MORE)) for at, text in enumerate(texts)]
    made = [neighbours(random_rows(draw)) for _ in range(databases)]
    with mutated(draw, *faults):
        return examine_bound(
            con, queries, [one for pair in made for one in pair], [len(pair) for pair in made], same_rows=True
        )


@pytest.mark.long
@cases("seed", range(4))
@cases("asked", [SIMPLE, ()], ids=["simple", "random"])
def test_a_wrong_split_is_refused_or_tells_no_more(con: Any, seed: int, asked: Sequence[str]) -> None:
    assert examined(con, seed, 40, asked=asked).wrong == []


@pytest.mark.slow
@cases("seed", range(1000, 1020))
def test_a_wrong_split_is_refused_or_tells_no_more_in_many(con: Any, seed: int) -> None:
    assert examined(con, seed, 100, databases=2).wrong == []


@pytest.mark.long
def test_texts_that_nobody_judges_are_found(con: Any) -> None:
    """Without this the tests above could pass because every wrong split fails to bind."""
    assert any(examined(con, seed, 40, *UNJUDGED, asked=SIMPLE).wrong for seed in range(6))


@pytest.mark.long
def test_sources_that_nobody_judges_are_found(con: Any) -> None:
    """A rule of the lineage is broken: rows that are chosen or made by several people's keep their owner."""
    only = ((mutated_splits, "_WAYS", (mutated_splits.rows_moved,)), (mutated_splits, "_WEIGHTS", (1,)))
    fault = (Rows, "broken", lambda rows, by: rows)
    found = [examined(con, 1, 30, *only, *more, databases=3, asked=SIMPLE[:1]) for more in ((), (fault,))]
    assert found[0].wrong == []
    assert found[1].wrong != []
