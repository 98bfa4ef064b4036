"""exact_gram_sql: plain SQL that gives the integers of the regression's collector, on a plain DuckDB."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from dpsql.kernels.fixed_point import FIXED_POINT_ONE, affine_map, quantise
from dpsql.kernels.gram import GramAccumulator, clip_rows
from support.cases import cases

EXACT = Path(__file__).resolve().parents[2] / "sql" / "exact"


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    opened = duckdb.connect()
    for name in ("fixed_point.sql", "gram.sql"):
        opened.execute((EXACT / name).read_text(encoding="utf-8"))
    yield opened
    opened.close()


def kernel(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], row_norm: float | None) -> list[list[int]]:
    features = quantise(x.copy(), *affine_map(-1.5, 2.0))
    if row_norm is not None:
        clip_rows(features, math.floor(row_norm * FIXED_POINT_ONE))
    sums = GramAccumulator(x.shape[1] + 2)
    target = quantise(y.copy(), *affine_map(-3.0, 3.0))
    sums.add(np.column_stack([np.full(len(x), FIXED_POINT_ONE), features, target]))
    return [[int(value) for value in row] for row in sums.total()]


@cases("row_norm", [None, 0.3, 1.0, 1.7], quick=2, alone=True)
@cases("width", [1, 3, 7])
def test_sql_gives_the_integers_of_the_kernel(
    con: duckdb.DuckDBPyConnection, row_norm: float | None, width: int
) -> None:
    rng = np.random.default_rng(width)
    x, y = rng.normal(size=(400, width)), rng.normal(size=400)
    x[rng.random(x.shape) < 0.05] = np.nan
    x[rng.random(x.shape) < 0.02] = np.inf
    y[:5] = np.nan
    con.register("rows", _table(x, y))
    con.execute("CREATE TABLE t AS FROM rows")
    found = con.execute(
        "SELECT i, j, product FROM exact_gram_sql('t', 'x', 'y', -1.5, 2.0, -3, 3, row_norm := $1)", [row_norm]
    ).fetchall()
    expected = kernel(x, y, row_norm)
    assert {(i, j): int(product) for i, j, product in found} == {
        (i, j): expected[i][j] for i in range(width + 2) for j in range(i, width + 2)
    }


def _table(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> Any:
    import pyarrow as pa

    vectors = [[None if math.isnan(value) else value for value in row] for row in x.tolist()]
    return pa.table({"x": pa.array(vectors, pa.list_(pa.float64())), "y": pa.array(y)})


def test_no_row_is_longer_than_the_bound(con: duckdb.DuckDBPyConnection) -> None:
    """100 coordinates of norm 0.99991 that rounding would carry beyond 1 (methods review, F5)."""
    con.execute("CREATE TABLE t AS SELECT list_transform(range(100), lambda v: 0.100012::DOUBLE) AS x, 0.0 AS y")
    [(length,)] = con.execute(
        "SELECT sum(product) FROM exact_gram_sql('t', 'x', 'y', -1, 1, -1, 1, row_norm := 1) WHERE i = j AND i BETWEEN 1 AND 100"
    ).fetchall()
    assert 0.9999 * 2**40 < length <= 2**40
