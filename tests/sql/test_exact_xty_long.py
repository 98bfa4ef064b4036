"""The long layout's fixed rules, and structs in the aggregate form."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from exact_reference import ONE, exact, load, of_documents, quantised

import dpsql
from support.cases import cases

NAN = math.nan
KINDS = {"unit": "VARCHAR", "doc": "BIGINT", "token": "VARCHAR", "value": "DOUBLE", "y": "DOUBLE"}
NAMES = ["a", "b", "c"]


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    opened = dpsql.connect()
    yield opened
    opened.close()


def load_cells(con: Any, cells: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    load(con, "cells", {name: (kind, [cell[p] for cell in cells]) for p, (name, kind) in enumerate(KINDS.items())})
    return [dict(zip(KINDS, cell, strict=True)) for cell in cells]


def sums(con: Any, *, has_value: bool, unit: bool = False, **more: Any) -> list[int]:
    arguments: dict[str, Any] = {"target": "y", "features": "token", "row_id": "doc", "names": NAMES}
    arguments |= {"lower": -1, "upper": 2, "target_lower": 0, "target_upper": 1}
    if has_value:
        arguments["value"] = "value"
    if unit:
        arguments |= {"privacy_unit": "unit", "max_rows_per_unit": 1000}
    return exact(con, "cells", **{**arguments, **more})


def expected(cells: list[dict[str, Any]], *, has_value: bool, unit: bool = False) -> list[int]:
    kept = [cell for cell in cells if not unit or cell["unit"] is not None]
    if not unit:
        kept = [{**cell, "unit": None} for cell in kept]
    return of_documents(kept, NAMES, (-1.0, 2.0), lambda y: quantised(y, 0.0, 1.0), has_value=has_value)


RULES: dict[str, list[tuple[Any, ...]]] = {
    "plain": [("u", 1, "a", 0.5, 1.0), ("u", 1, "b", 2.0, 1.0), ("u", 2, "a", -1.0, 0.0)],
    "duplicate: the largest value": [("u", 1, "a", 0.5, 1.0), ("u", 1, "a", 1.5, 1.0), ("u", 1, "a", -0.5, 1.0)],
    "duplicate with NULL: NULL is skipped": [("u", 1, "a", None, 1.0), ("u", 1, "a", -0.5, 1.0)],
    "duplicate with NaN: NaN is the largest, and neutral": [("u", 1, "a", NAN, 1.0), ("u", 1, "a", -0.5, 1.0)],
    "a NULL value is neutral, an absent one 0": [("u", 1, "a", None, 1.0)],
    "varying target: the largest": [("u", 1, "a", 1.0, 0.0), ("u", 1, "b", 1.0, 1.0), ("u", 1, "c", 1.0, 0.5)],
    "NULL target is neutral": [("u", 1, "a", 1.0, None), ("u", 1, "b", 1.0, 0.25)],
    "NULL row id dropped": [("u", None, "a", 1.0, 1.0), ("u", 1, "b", 1.0, 1.0)],
    "NULL feature keeps the document": [("u", 1, None, 1.0, 1.0)],
    "a token not in names keeps the document": [("u", 1, "zz", 1.0, 1.0), ("u", 2, "a", 1.0, 0.0)],
    "names are compared with case": [("u", 1, "A", 1.0, 1.0)],
    "one row id under two units": [("u", 1, "a", 1.0, 1.0), ("v", 1, "a", 1.0, 1.0), ("v", 1, "b", 2.0, 1.0)],
    "NULL unit": [(None, 1, "a", 1.0, 1.0), ("v", 2, "b", 2.0, 1.0)],
    "empty": [],
}


@cases("rule", RULES)
def test_rules(con: Any, rule: str) -> None:
    cells = load_cells(con, RULES[rule])
    for has_value in (True, False):
        for unit in (False, True):
            got = sums(con, has_value=has_value, unit=unit)
            assert got == expected(cells, has_value=has_value, unit=unit), (has_value, unit)


def test_the_rules_matter(con: Any) -> None:
    """Spelled out for two of them, so that the reference cannot be wrong in the same way."""
    load_cells(con, RULES["duplicate: the largest value"])
    assert sums(con, has_value=True) == [quantised(1.5, -1, 2) * ONE, *[quantised(0.0, -1, 2) * ONE] * 2]
    load_cells(con, RULES["one row id under two units"])
    by_unit, by_row = sums(con, has_value=False, unit=True), sums(con, has_value=False)
    assert by_unit[0] == 2 * by_row[0], "under a privacy unit these are two documents, without one it is one"


def test_random_tables(con: Any) -> None:
    draw = random.Random(11)
    for rows in (50, 3000):
        cells = load_cells(
            con,
            [
                (
                    draw.choice(["u", "v", "w", None]),
                    draw.choice([*range(rows // 5), None]),
                    draw.choice([*NAMES, "other", None]),
                    draw.choice([None, NAN, math.inf, draw.uniform(-2, 3)]),
                    draw.choice([None, NAN, draw.random(), 0.0, 1.0]),
                )
                for _ in range(rows)
            ],
        )
        for has_value in (True, False):
            for unit in (False, True):
                got = sums(con, has_value=has_value, unit=unit)
                assert got == expected(cells, has_value=has_value, unit=unit), (rows, has_value, unit)


def test_integer_tokens_and_coded_targets(con: Any) -> None:
    con.execute(
        "CREATE OR REPLACE TABLE cells AS FROM (VALUES (1, 10, true), (1, 20, true), (2, 10, false), (3, 30, NULL)) "
        "AS t(doc, token, y)"
    )
    got = exact(con, "cells", target="y", features="token", row_id="doc", names=["10", "20"], lower=0, upper=1)
    assert got == [0, 2 * ONE * ONE]


def test_a_row_id_named_in_a_wide_table_is_not_a_feature(con: Any) -> None:
    con.execute("CREATE OR REPLACE TABLE w AS SELECT 1.0 AS a, 7 AS doc, 3 AS person, true AS y")
    b = {"target": "y", "lower": 0, "upper": 1, "row_id": "doc", "privacy_unit": "person", "max_rows_per_unit": 2}
    rows = con.execute(
        "SELECT feature FROM exact_xty('w', target := 'y', lower := 0, upper := 1, row_id := 'doc', "
        "privacy_unit := 'person', max_rows_per_unit := 2)"
    ).fetchall()
    assert rows == [("a",)]
    assert exact(con, "w", **b) == [ONE * ONE]


def test_struct_in_the_aggregate_form_keeps_names_and_neutral_values(con: Any) -> None:
    """A NULL struct is a row of NULLs, also when Arrow still holds values under it."""
    values = pa.StructArray.from_arrays(
        [pa.array([1.0, 1.0, 1.0]), pa.array([0.0, 0.0, 0.0])], names=["p", "q"], mask=pa.array([False, True, False])
    )
    con.register("masked", pa.table({"x": values, "y": [True, True, True]}))
    try:
        got = con.execute(
            "SELECT dp_sis(x, y, k := 2, epsilon := 1000, lower := 0, upper := 1, neighbours := 'replace') FROM masked"
        ).fetchall()[0][0]
        assert {row["feature"] for row in got} == {"p", "q"}
        assert exact(con, "masked", target="y", features="x", lower=0, upper=1) == [2 * ONE * ONE, -2 * ONE * ONE]
    finally:
        con.unregister("masked")
