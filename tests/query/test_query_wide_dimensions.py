"""Groups by several columns of one public table: as many as it has rows, and not all combinations of their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import dpsql
from support.answers import differences, private
from support.cases import cases

ITEMS = 400  # with three columns that differ in each row: 64 million combinations


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        opened.execute(f"""
            CREATE TABLE items AS SELECT i AS item, 'item ' || i AS name, i / 4 AS price, i % 5 AS kind FROM range({ITEMS}) AS r(i);
            CREATE TABLE sales AS SELECT i % 50 AS buyer, i * 7 % {ITEMS} AS item, i % 9 AS amount FROM range(3000) AS r(i);
            SELECT dp_protect('sales', epsilon := 1e11, delta := 0.09, privacy_unit := 'buyer', max_rows_per_unit := 100,
              lower := {{amount: 0}}, upper := {{amount: 10}});
            SELECT dp_public('items');
        """)
        yield opened


@cases(
    "sql",
    [
        "SELECT item, name, price, count(*), sum(amount) FROM sales JOIN items USING (item) GROUP BY ALL",
        "SELECT name, price, kind, count(*) AS n FROM sales s, items i WHERE s.item = i.item AND kind < 3 "
        "GROUP BY name, price, kind HAVING count(*) > 0.5 ORDER BY n DESC, name",
        "SELECT upper(name), price * 2, sum(amount) FROM sales s LEFT JOIN items i ON s.item = i.item WHERE kind = 1 GROUP BY 1, 2",
        "SELECT name, price, i.item, s.item % 2 = 0 AS even, count(DISTINCT buyer) FROM sales s JOIN items i USING (item) GROUP BY ALL",
    ],
quick=1)  # fmt: skip
def test_a_wide_dimension_has_a_group_for_each_of_its_rows(con: Any, sql: str) -> None:
    found = con.execute(private(sql)).fetchall()
    assert differences(found, con.execute(sql).fetchall(), slack=0.6) == []
    assert len(found) <= 3 * ITEMS  # where a comparison may be NULL, too
