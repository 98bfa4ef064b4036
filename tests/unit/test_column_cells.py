"""Cells of a column by its type and bounds: a value is in one of them, and what stands for it is near."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from dpsql.kernels.cells import CellCounts
from dpsql.kernels.column_cells import EVEN_CELLS, ScaleCounts, cells_between, most_cells, whole_steps
from support.cases import cases

DOUBLE, INTEGER, CENTS = pa.float64(), pa.int32(), pa.decimal128(10, 2)
KINDS = [DOUBLE, pa.float32(), pa.int8(), pa.uint16(), INTEGER, pa.int64(), CENTS, pa.decimal128(30, 2), pa.bool_()]
BOUNDS = [(0.0, 1.0), (0.0, 30.0), (-5.0, 5.5), (1900.0, 2100.0), (0.0, 1e7), (-1e300, 1e300), (1e15, 1e15 + 8.0)]


def values_of(kind: pa.DataType, lower: float, upper: float) -> Any:
    rng = np.random.default_rng(1)
    some = np.concatenate([rng.uniform(lower / 2, upper / 2, 400) * 2, rng.normal(0, 3, 400), [0.0, 1.0, 2.0, 1e-9]])
    if kind == CENTS:
        some = np.rint(np.clip(some, -1e7, 1e7) * 100) / 100
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        limits = {pa.int8(): (-126, 127), pa.uint16(): (0, 65535), INTEGER: (-(2**31), 2**31 - 1), pa.bool_(): (0, 1)}
        some = np.clip(np.rint(some), *limits.get(kind, (-(2.0**62), 2.0**62)))
    return np.clip(some, lower, upper)


def check(cells: CellCounts, values: Any, *, exact: bool) -> None:
    found = cells.of(values)
    assert found.min() >= 0
    assert found.max() < cells.cells
    order = np.argsort(values, kind="stable")
    assert (np.diff(found[order]) >= 0).all()
    for value, cell in list(zip(values.tolist(), found.tolist(), strict=True))[::7]:
        lower, upper = cells.ends(cell, cell)
        for inside in (value, cells.middle(cell)):
            assert lower is None or lower <= inside
            assert upper is None or inside <= upper
        if exact:
            assert lower == cells.middle(cell) == upper == value
    cells.add(np.append(values, math.nan))
    assert cells.counts.sum() == len(values)
    other = cells.zero()
    other.add_counts(cells.counts)
    assert (other.counts == np.bincount(found, minlength=cells.cells)).all()


@cases("kind", KINDS, ids=str)
def test_cells_without_bounds(kind: pa.DataType) -> None:
    values = values_of(kind, -1000.0, 1000.0)
    cells = ScaleCounts(kind)
    assert cells.cells <= most_cells(None, bounded=False) == 264_193
    check(cells, values, exact=pa.types.is_integer(kind) or pa.types.is_boolean(kind))
    # As near as a 1024th of the value.
    middles = np.array([cells.middle(cell) for cell in cells.of(values).tolist()])
    assert (np.abs(middles - values) <= np.abs(values) / 1024 + 1e-15).all()


def test_what_is_beyond_every_cell_of_doubles_has_no_end() -> None:
    cells = ScaleCounts(DOUBLE)
    low, high = cells.of(np.array([-math.inf, math.inf])).tolist()
    assert cells.ends(low, high) == (None, None)
    assert ScaleCounts(pa.int8()).ends(0, 254) == (-128.0, 127.0)


@cases("bounds", BOUNDS, ids=str)
@cases("kind", KINDS, ids=str)
def test_cells_between_bounds(kind: pa.DataType, bounds: tuple[float, float]) -> None:
    values = values_of(kind, *bounds)
    cells = cells_between(*bounds, kind)
    assert 2 <= cells.cells <= most_cells(None, bounded=True)
    whole = bounds[0].is_integer() and bounds[1].is_integer()
    few = bounds[1] - bounds[0] < (EVEN_CELLS / 100 if kind == CENTS else EVEN_CELLS) and abs(bounds[0]) < 1e9
    steps = kind == CENTS or pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    check(cells, values, exact=steps and few and (whole or kind == CENTS))


def test_wide_bounds_cost_no_precision() -> None:
    """Of bounds a million times too wide, the cells at the values are still 1024 in an octave."""
    cells = cells_between(0, 1e6, DOUBLE)
    lower, upper = cells.ends(*2 * [int(cells.of(np.array([1.0]))[0])])
    assert lower is not None
    assert upper is not None
    assert upper - lower <= 1 / 1024
    assert cells_between(0, 100, INTEGER).cells == 101
    assert cells_between(0, 100, CENTS).cells == 10_001
    assert cells_between(0, 100, DOUBLE, 64).cells == 64


def test_drawn_bounds_become_values_of_the_type() -> None:
    assert whole_steps(0.84, 99.5, INTEGER) == (0.0, 100.0)
    assert whole_steps(0.841, 99.5, CENTS) == (0.84, 99.5)
    assert whole_steps(0.84, 99.5, DOUBLE) == (0.84, 99.5)
    assert whole_steps(0.5, 2.0**60, pa.int64()) == (0.5, 2.0**60)
