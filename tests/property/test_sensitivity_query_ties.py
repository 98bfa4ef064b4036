"""Queries that choose among a person's rows, or among equal values, on tables in which these tie.

Neighbours have their rows in another order, so what DuckDB would choose changes for everybody.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from test_sensitivity_query import BOUNDED, Found, examine

import dpsql
from support.broken.planting import Fault, planted
from support.broken.row_orders import EQUAL_VALUES_AS_READ, ORDER_AS_WRITTEN, UNJUDGED
from support.cases import cases
from support.plain_sql import Writer
from support.plain_tables import create, neighbours, tied_rows

MORE = f"delta := 1e-6, max_rows_per_unit := 1, {BOUNDED}"


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        create(opened)
        yield opened


def examined(con: Any, seed: int, count: int = 8) -> Found:
    draw = random.Random(seed)
    queries = [(Writer(draw).tied(), MORE) for _ in range(count)]
    return examine(con, queries, neighbours(tied_rows(draw)))


@pytest.mark.long
@cases("seed", range(6))
def test_a_person_is_worth_epsilon_at_most(con: Any, seed: int) -> None:
    found = examined(con, seed)
    assert found.wrong == []
    assert found.answered >= 7, found.refused


@pytest.mark.slow
@cases("seed", range(100, 120))
def test_a_person_is_worth_epsilon_at_most_in_many(con: Any, seed: int) -> None:
    assert examined(con, seed, 40).wrong == []


@pytest.mark.long
@pytest.mark.parametrize("fault", [ORDER_AS_WRITTEN, EQUAL_VALUES_AS_READ], ids=lambda fault: fault.what)
def test_planted_faults_are_found(con: Any, fault: Fault) -> None:
    with planted(*fault.patches, *UNJUDGED):
        assert any(examined(con, seed).wrong for seed in range(8))
