"""Queries with private keys and several parts, on random tables and on those without one person.

All keys that occur are released here, and later parts answer those of the larger table: that is the worst that may be
released of both.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from test_sensitivity_query import examine

import dpsql
from support.broken.planting import planted
from support.broken.query_parts import WEIGHTS_OF_ONE
from support.cases import cases
from support.plain_sql import create, neighbours, random_rows

MORE = "keys := 'private', delta := 1e-6, max_rows_per_unit := 3"
KEYS = {
    "orders": ("ward", "x", "n", "day", "coalesce(ward, 'none')"),
    "people JOIN orders ON id = who": ("sex", "orders.ward", "age"),
    "orders JOIN lines ON ok = o": ("code", "qty", "ward"),
}
ASKED = (
    "SELECT {key} AS k, count(*), median({value}) FROM {rows} GROUP BY 1",
    "SELECT {key} AS k, count(DISTINCT who), avg({value}), quantile_cont({value}, 0.9) FROM {rows} GROUP BY 1",
    "SELECT {key} AS k, count(DISTINCT {value}), sum({value}) FROM {rows} GROUP BY 1",
    "SELECT {key} AS k, {value} AS l, median({value}), count(*) FROM {rows} GROUP BY 1, 2",
    "SELECT {key} AS k, corr({value}, {value} / 2), median({value}), count(DISTINCT who) FROM {rows} GROUP BY 1",
    "SELECT {key} AS k, median({value}) FROM {rows} GROUP BY 1",
)
VALUES = {"orders": "x", "people JOIN orders ON id = who": "x", "orders JOIN lines ON ok = o": "price"}


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        create(opened)
        yield opened


def keyed_queries(draw: random.Random) -> list[tuple[str, str]]:
    made = []
    for rows, keys in KEYS.items():
        for asked in ASKED:
            made.append((asked.format(key=draw.choice(keys), value=VALUES[rows], rows=rows), MORE))
    return made


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_a_person_is_worth_epsilon_at_most(con: Any, seed: int) -> None:
    draw = random.Random(seed)
    found = examine(con, keyed_queries(draw), neighbours(random_rows(draw)))
    assert found.wrong == []
    assert found.answered >= 14, found.refused


@pytest.mark.long
@cases("seed", range(100, 116))
def test_a_person_is_worth_epsilon_at_most_in_many(con: Any, seed: int) -> None:
    draw = random.Random(seed)
    assert examine(con, keyed_queries(draw), neighbours(random_rows(draw))).wrong == []


def test_some_use_all_of_epsilon(con: Any) -> None:
    """Without this the tests above could pass because no row is seen."""
    rows: dict[str, Any] = {"people": [], "notes": [], "parts": [], "lines": []}
    rows["orders"] = [(1, 1, 1, 1, "'A'", *["NULL"] * 3)] * 3
    sql = "SELECT ward, count(*), count(DISTINCT who) FROM orders GROUP BY ward"
    found = examine(con, [(sql, MORE.replace("3", "1"))], neighbours(rows))
    assert found.wrong == []
    assert max(found.losses) == 1


def test_a_person_in_many_keys_is_worth_epsilon_at_most(con: Any) -> None:
    """Nine keys of one person, of whom three count: weights of each keep to epsilon, and ones in their place do not."""
    rows: dict[str, Any] = {"people": [], "notes": [], "parts": [], "lines": []}
    rows["orders"] = [(at, at // 9, 1, 1, f"'{'ABCDEFGHI'[at % 9]}'", *["NULL"] * 3) for at in range(18)]
    sql = "SELECT ward, count(*) FROM orders GROUP BY ward"
    found = examine(con, [(sql, MORE.replace("3", "9"))], neighbours(rows))
    assert found.wrong == []
    assert found.losses
    with planted(*WEIGHTS_OF_ONE.patches):
        assert examine(con, [(sql, MORE.replace("3", "9"))], neighbours(rows)).wrong
