"""Queries whose bounds are drawn for several parts at once, on random tables and on those without one person."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from test_sensitivity_query import examine

import dpsql
from support.broken.planting import Fault, planted
from support.broken.query_parts import BOUNDS_OF_THE_DATA, ROWS_BEYOND_THE_LIMIT
from support.cases import cases
from support.plain_tables import PROTECT, create, neighbours, random_rows

MORE = ("delta := 1e-6", "max_rows_per_unit := 1", "max_rows_per_unit := 'drawn'", "delta := 1e-6, keys := 'private'")
ASKED = (
    "SELECT ward, count(*), sum(ok), median(ok), corr(ok, x / n) FROM orders GROUP BY ward",
    "SELECT kind, corr(ok, n), avg(x / n), quantile_cont(x / n, 0.9) FROM orders GROUP BY kind",
    "SELECT regr_slope(ok, x), covar_pop(x / n, ok), median(ok), stddev(ok) FROM orders",
    "SELECT ward, median(ok) FILTER (WHERE n > 0), sum(x / n) FROM orders GROUP BY ROLLUP (ward)",
    "SELECT code, median(price / qty), corr(lk, ok), count(*) FROM orders JOIN lines ON ok = o GROUP BY code",
    "SELECT ward, min(ok), max(x), max(day), median(ok) FROM orders GROUP BY ward",
    "SELECT min(x), max(x), min(sent), max(price / qty) FILTER (n > 0) FROM orders JOIN lines ON ok = o",
)


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        create(opened)
        opened.execute(
            PROTECT.replace("enum_labels", "extremes := 'quantiles', replace := true, enum_labels")
        ).fetchall()
        yield opened


@pytest.mark.long
@cases("seed", range(10))
@cases("more", MORE)
def test_a_person_is_worth_epsilon_at_most(con: Any, seed: int, more: str) -> None:
    found = examine(con, [(sql, more) for sql in ASKED], neighbours(random_rows(random.Random(seed))))
    assert found.wrong == []
    assert found.answered == len(ASKED), found.refused


# One person's three rows count, of four; the others have one, and that of the last is far away.
PLACES = [*enumerate([1, 1, 1, 1, *range(2, 12)]), (1000, 12)]
ROWS: dict[str, Any] = {
    **{name: [] for name in ("people", "notes", "parts", "lines")},
    "orders": [(at, who, 1, 1, "'A'", "NULL", "NULL", "NULL") for at, who in PLACES],
}
QUERY = [("SELECT ward, sum(ok), median(ok) FROM orders GROUP BY ward", "max_rows_per_unit := 3")]


def test_a_person_may_use_all_of_epsilon_but_no_more(con: Any) -> None:
    found = examine(con, QUERY, neighbours(ROWS))
    assert found.wrong == []
    assert max(found.losses) > 0.6


@cases("fault", [BOUNDS_OF_THE_DATA, ROWS_BEYOND_THE_LIMIT], ids=lambda fault: fault.what, quick=1)
def test_faults_are_found(con: Any, fault: Fault) -> None:
    with planted(*fault.patches):
        found = examine(con, QUERY, neighbours(ROWS))
    assert found.wrong != []
