"""Counts per cell: the cell of a value is where the edges say, whatever the order, and the batches."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import ParameterError
from dpsql.kernels.cells import (
    FINE_CELLS,
    SUBCELLS,
    ZERO_FINE,
    GridCounts,
    MagnitudeCounts,
    fine_edges,
    magnitude_cells,
)
from support.cases import cases

LARGEST = 1.7976931348623157e308
GRIDS = [
    (0.0, 1.0, 1),
    (0.0, 1.0, 10),
    (-1.0, 1.0, 1 << 16),
    (0.1, 0.3, 7),
    (-LARGEST, LARGEST, 1000),
    (1.0, 1.0 + 2**-46, 64),
    (0.0, 64 * 5e-324, 8),
    (5e-324, 1e-323, 1),
    (-1e-300, 1e300, 999),
    (1922.0, 2011.0, 89),
]


def awkward(edges: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return the edges, their neighbours, values between and beyond, zeros and infinities."""
    generator = np.random.default_rng(seed)
    shares = generator.random(2000)
    with np.errstate(over="ignore"):
        values = [
            edges,
            np.nextafter(edges, np.inf),
            np.nextafter(edges, -np.inf),
            edges[0] * (1 - shares) + edges[-1] * shares,
            4 * edges[0] - 3 * edges[-1] * shares,
            np.array([0.0, -0.0, math.inf, -math.inf, LARGEST, -LARGEST, 5e-324, -5e-324]),
        ]
    joined = np.concatenate(values)
    return joined[~np.isnan(joined)]


def cell_of(grid: GridCounts, value: float) -> int:
    """Return the one cell that a value counts in."""
    alone = GridCounts(float(grid.edges[0]), float(grid.edges[-1]), grid.cells)
    alone.add(np.array([value]))
    (found,) = np.flatnonzero(alone.counts)
    return int(found)


@cases(("lower", "upper", "cells"), GRIDS)
def test_edges_decide(lower: float, upper: float, cells: int) -> None:
    grid = GridCounts(lower, upper, cells)
    values = awkward(grid.edges)
    grid.add(values)
    clipped = np.clip(values, lower, upper)
    expected = np.array([np.count_nonzero(grid.edges[1:-1] <= value) for value in clipped[:: max(1, cells // 200)]])
    thinned = GridCounts(lower, upper, cells)
    thinned.add(values[:: max(1, cells // 200)])
    assert np.array_equal(thinned.counts, np.bincount(expected, minlength=cells))
    whole, _ = np.histogram(clipped, bins=grid.edges)
    assert np.array_equal(grid.counts, whole)
    assert grid.counts.sum() == len(values)


@cases(("lower", "upper", "cells"), GRIDS)
def test_edges_of_a_grid_are_even(lower: float, upper: float, cells: int) -> None:
    grid = GridCounts(lower, upper, cells)
    assert grid.edges[0] == lower
    assert grid.edges[cells] == upper
    assert (np.diff(grid.edges[np.abs(grid.edges) < 1e307]) > 0).all()
    unit = Fraction(math.ulp(max(abs(lower), abs(upper))))
    for number in range(0, cells + 1, max(1, cells // 50)):
        exact = Fraction(lower) + (Fraction(upper) - Fraction(lower)) * number / cells
        assert abs(Fraction(float(grid.edges[number])) - exact) <= 2 * unit


def test_the_outermost_edges_are_the_bounds() -> None:
    generator = np.random.default_rng(5)
    for lower, upper in np.sort(generator.normal(size=(2000, 2)) ** 5, axis=1).tolist():
        grid = GridCounts(lower, upper, 3)
        assert (grid.edges[0], grid.edges[3]) == (lower, upper)


def test_an_edge_is_in_the_cell_above_it() -> None:
    grid = GridCounts(0.1, 0.8, 7)
    assert [cell_of(grid, edge) for edge in grid.edges] == [0, 1, 2, 3, 4, 5, 6, 6]
    assert [cell_of(grid, math.nextafter(edge, -9)) for edge in grid.edges] == [0, 0, 1, 2, 3, 4, 5, 6]
    assert [cell_of(grid, value) for value in (-math.inf, -5.0, 5.0, math.inf)] == [0, 0, 6, 6]


@cases(("lower", "upper", "cells"), [*GRIDS, (-LARGEST, LARGEST, 1), (LARGEST / 2, LARGEST, 2)])
def test_the_middle_of_a_cell_is_in_it(lower: float, upper: float, cells: int) -> None:
    grid = GridCounts(lower, upper, cells)
    for cell in {*range(0, cells, max(1, cells // 50)), cells - 1}:
        start, end, middle = float(grid.edges[cell]), float(grid.edges[cell + 1]), grid.middle(cell)
        assert isinstance(middle, float)
        assert math.isfinite(middle)
        assert start <= middle < end
        assert cell_of(grid, middle) == cell
        if math.nextafter(start, end) < end:
            exact = (Fraction(start) + Fraction(end)) / 2
            assert abs(Fraction(middle) - exact) <= Fraction(math.ulp(max(abs(start), abs(end)))) / 2
    assert [GridCounts(-1.0, 1.0, 4).middle(cell) for cell in range(4)] == [-0.75, -0.25, 0.25, 0.75]
    assert GridCounts(-LARGEST, LARGEST, 1).middle(0) == 0.0


def test_a_missing_value_is_in_no_cell() -> None:
    grid, magnitudes = GridCounts(0.0, 1.0, 4), MagnitudeCounts(2)
    grid.add(np.full(5, np.nan))
    grid.add(np.array([np.nan, 0.5, np.nan]))
    magnitudes.add(np.array([[np.nan, 0.5, -np.nan], [np.nan, np.nan, np.nan]]))
    assert grid.counts.tolist() == [0, 0, 1, 0]
    assert magnitudes.counts.sum(axis=1).tolist() == [1, 0]


def test_counts_are_copies() -> None:
    grid, magnitudes = GridCounts(0.0, 1.0, 4), MagnitudeCounts(1)
    grid.counts[:] = 7
    magnitudes.counts[:] = 7
    assert not grid.counts.any()
    assert not magnitudes.counts.any()


@pytest.mark.parametrize("cells", [5, 1 << 12])
def test_neither_order_nor_batches_show(cells: int) -> None:
    generator = np.random.default_rng(1)
    values = np.concatenate([generator.normal(size=60_000), awkward(np.linspace(-3, 3, 50)), [np.nan] * 9])
    expected, magnitudes = GridCounts(-3.0, 3.0, cells), MagnitudeCounts(2)
    expected.add(values)
    magnitudes.add(np.stack([values, -values]))
    for seed in range(3):
        shuffled = np.random.default_rng(seed).permutation(values)
        batches = np.array_split(shuffled, 8) if seed else np.split(shuffled, [1, 2, 30, 40_000])

        grid, other = expected.zero(), magnitudes.zero()
        for batch in batches:
            part, more = expected.zero(), magnitudes.zero()
            part.add(batch)
            more.add(np.stack([batch, -batch]))
            grid.add_counts(part.counts)
            other.add_counts(more.counts)
        assert np.array_equal(grid.counts, expected.counts)
        assert np.array_equal(other.counts, magnitudes.counts)


@cases(
    ("lower", "upper", "cells", "code"),
    [
        (1.0, 1.0, 4, "P018"),
        (1.0, 0.0, 4, "P018"),
        (math.nan, 1.0, 4, "P018"),
        (0.0, math.inf, 4, "P018"),
        (0.0, 1.0, 0, "P018"),
        (0.0, 1.0, (1 << 24) + 1, "P018"),
        (1.0, math.nextafter(1.0, 2.0), 2, "P036"),
        (0.0, 5e-324, 2, "P036"),
    ],
)
def test_grids_that_cannot_be(lower: float, upper: float, cells: int, code: str) -> None:
    with pytest.raises(ParameterError) as caught:
        GridCounts(lower, upper, cells)
    assert caught.value.code == f"DPSQL-{code}"


# --- cells on a logarithmic scale


def by_definition(value: float) -> int:
    """Return the fine cell of a value, in exact arithmetic."""
    magnitude = abs(Fraction(min(max(value, -LARGEST), LARGEST)))
    if magnitude < Fraction(1, 2**64):
        return ZERO_FINE
    exponent = min(math.frexp(min(abs(value), LARGEST))[1] - 1, 64)
    part = min(math.floor((magnitude / Fraction(2) ** exponent - 1) * SUBCELLS), SUBCELLS - 1)
    step = (exponent + 64) * SUBCELLS + part + 1
    return ZERO_FINE + step if value > 0 else ZERO_FINE - step


def test_magnitude_cells_are_as_defined() -> None:
    edges = fine_edges()
    with np.errstate(over="ignore"):
        values = np.concatenate([awkward(edges), np.random.default_rng(2).normal(size=500) ** 31])
    assert magnitude_cells(values).tolist() == [by_definition(value) for value in values.tolist()]


def test_edges_enclose_their_cells() -> None:
    edges = fine_edges()
    assert edges.shape == (FINE_CELLS + 1,)
    assert (np.diff(edges) > 0).all()
    assert np.array_equal(edges, -edges[::-1])
    assert edges[-1] == 2.0**65
    assert edges[ZERO_FINE + 1] == 2.0**-64
    # The end nearer to 0 belongs to the cell.
    upwards = edges[ZERO_FINE + 1 : -1]
    assert np.array_equal(magnitude_cells(upwards), np.arange(ZERO_FINE + 1, FINE_CELLS))
    assert np.array_equal(magnitude_cells(-upwards), np.arange(ZERO_FINE - 1, -1, -1))
    assert np.array_equal(magnitude_cells(np.nextafter(upwards, 0)), np.arange(ZERO_FINE, FINE_CELLS - 1))


def test_columns_are_counted_on_their_own() -> None:
    columns = np.random.default_rng(4).normal(size=(3, 40_000)) * [[1e-9], [1.0], [1e12]]
    together = MagnitudeCounts(3)
    together.add(columns)
    for number, column in enumerate(columns):
        assert np.array_equal(
            together.counts[number], np.bincount(magnitude_cells(column.copy()), minlength=FINE_CELLS)
        )
    strided = MagnitudeCounts(3)
    strided.add(np.asfortranarray(columns))
    assert np.array_equal(strided.counts, together.counts)
