"""Limits that put only rows of owners with more of them in order: the same rows count as when all are put in order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import dpsql
from dpsql.engines.duckdb.steps import rows
from dpsql.engines.duckdb.steps.step import Frame
from support.broken.limits import EQUAL_OWNERS
from support.broken.planting import planted
from support.cases import cases
from support.exact_parts import exact_parts
from support.plain_tables import create, fill, neighbours, random_rows
from support.sessions import one_key

ALL = "epsilon := 1, dataset := 'shop', privacy_unit := 'who'"
CALLS = (
    "dp_count('orders', by := 'ward', {0}, max_rows_per_unit := 2)",
    "dp_sum('orders', 'n', lower := 0, upper := 9, {0}, max_rows_per_unit := 2, left_out_share := 0)",
    "dp_sum('orders', 'n', {0}, by := 'ward', max_rows_per_unit := 2, max_groups_per_unit := 1, left_out_share := 0)",
    "dp_count('orders', by := 'note', keys := 'private', delta := 1e-6, {0}, max_rows_per_unit := 2, "
    "max_rows_per_unit_group := 1)",
    "dp_count('orders', by := ['ward', 'kind'], {0}, max_rows_per_unit := 3, max_rows_per_unit_group := 1)",
    "dp_quantile('orders', 'x', lower := -4, upper := 4, {0}, max_rows_per_unit := 1)",
    "dp_sis('orders', target := 'n', features := ['x'], k := 1, lower := -4, upper := 4, target_lower := 0, "
    "target_upper := 9, {0}, max_rows_per_unit := 2)",
    "dp_linear_regression('orders', target := 'n', features := ['x'], delta := 1e-6, lower := -4, upper := 4, "
    "target_lower := 0, target_upper := 9, {0}, max_rows_per_unit := 1)",
    "dp_query('SELECT ward, count(*), sum(n), avg(x) FROM orders GROUP BY ward', epsilon := 1, fresh := true)",
    "dp_query('SELECT note, count(*) FROM orders GROUP BY note', epsilon := 1, delta := 1e-6, fresh := true)",
    "dp_query('SELECT code, sum(qty) FROM orders JOIN lines ON ok = o GROUP BY code', epsilon := 1, "
    "max_rows_per_unit := ''drawn'', fresh := true)",
)


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        create(opened)
        yield opened


def exact(con: Any, least: int, monkeypatch: Any, asked: Sequence[str] = CALLS) -> list[Any]:
    """Return the exact integers of calls, where limits from `least` on tell owners apart; others order all rows."""

    def divides(cap: rows.Cap) -> bool:
        return bool(cap.owner) and (isinstance(cap.most, str) or cap.most >= least)

    monkeypatch.setattr(rows.Cap, "divides", property(divides))
    with one_key(), exact_parts() as calls:
        found = [calls.run(con, f"FROM {sql.format(ALL).replace(chr(39) * 2, chr(39))}") for sql in asked]
    return [[(part.part.name, [_plain(one) for one in part.vectors]) for part in call.parts] for call in found]


def _plain(vector: Any) -> Any:
    return sorted(vector.items(), key=str) if isinstance(vector, dict) else vector.tolist()


@pytest.mark.long
@cases("seed", range(30))
def test_the_same_rows_count(con: Any, seed: int, monkeypatch: Any) -> None:
    for database in neighbours(random_rows(random.Random(seed))):
        fill(con, database)
        assert exact(con, 1, monkeypatch) == exact(con, 1 << 40, monkeypatch)


ROWS: dict[str, Any] = {
    **{name: [] for name in ("people", "notes", "parts", "lines")},
    "orders": [(ok, 1, 1, 4, "NULL", "NULL", "NULL", "NULL") for ok in range(3)],
}


def test_a_few_calls_count_the_same_rows(con: Any, monkeypatch: Any) -> None:
    fill(con, ROWS)
    few = CALLS[:3]
    assert exact(con, 1, monkeypatch, few) == exact(con, 1 << 40, monkeypatch, few)


# The call with a limit on the rows of a group whose key may be NULL; and all calls.
@pytest.mark.parametrize("asked", [CALLS[3:4], pytest.param(CALLS, marks=pytest.mark.long)], ids=["one", "all"])
def test_keys_that_are_null_are_one_owner(con: Any, monkeypatch: Any, asked: Sequence[str]) -> None:
    fill(con, ROWS)
    assert exact(con, 1, monkeypatch, asked) == exact(con, 1 << 40, monkeypatch, asked)
    with planted(*EQUAL_OWNERS.patches):
        assert exact(con, 1, monkeypatch, asked) != exact(con, 1 << 40, monkeypatch, asked)


@pytest.mark.long
@cases("seed", range(10))
def test_units_that_are_integers_are_told_apart_by_one_column_as_by_two(con: Any, seed: int, monkeypatch: Any) -> None:
    """The bytes of an integer's identity are none, so they tell nobody apart, and the keyed hash is of both."""
    fill(con, random_rows(random.Random(seed)))
    told, usual = list[bool](), Frame.is_numbered.fget  # type: ignore[attr-defined]

    def noted(frame: Frame) -> bool:
        told.append(usual(frame))
        return told[-1]

    monkeypatch.setattr(Frame, "is_numbered", property(noted))
    found = exact(con, 1, monkeypatch)
    assert all(told)
    monkeypatch.setattr(Frame, "is_numbered", property(lambda frame: False))
    assert found == exact(con, 1, monkeypatch)
