"""How far a privacy unit moves what dp_synthetic counts: on random neighbouring tables, and attained on small ones."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpsql.contract.fold import Batch
from dpsql.functions.synthetic import draw_grids
from dpsql.kernels.value_grid import ValueGrid
from dpsql.mechanisms.private_tree import (
    CROWDS,
    ONE,
    distance,
    distance_sensitivity,
    quality_sensitivity,
    table_sensitivity,
)
from dpsql.statistics.coded_columns import CodedColumn, ColumnCounts, PairTables, ValueSlots, to_numbers
from dpsql.statistics.counts import MagnitudeHistogram
from support.cases import cases

WIDTH = 4
PAIRS = list(itertools.combinations(range(WIDTH), 2))
COLUMNS = [
    CodedColumn("a", "BIGINT", None, False, ValueGrid((0.0, 1.0, 2.0), 2.0, discrete=True), 0),
    CodedColumn("b", "VARCHAR", ("x", "y"), True, None, 0),
    CodedColumn("c", "BOOLEAN", ("false", "true"), False, None, 0),
    CodedColumn("x", "DOUBLE", None, False, ValueGrid.of_doubles(-1.0, 9.0), 0, is_drawn=True),
]


def halves() -> ValueSlots:
    """Slots of x that list halves in each second cell of several numbers."""
    grid = COLUMNS[3].grid
    assert grid is not None
    first, counts = grid.multiples((2, 1))
    counts[::2], counts[~COLUMNS[3].wide[1:]] = 0, 0
    ones = np.ones(grid.count)
    return ValueSlots(COLUMNS[3], 2 * ones, ones, first, counts.astype(np.int64))


SLOTS = halves()


def random_rows(generator: np.random.Generator, count: int) -> list[tuple[Any, ...]]:
    values: list[list[Any]] = [[None, 0, 1, 2, 9], [None, "x", "y", "other"], [None, False, True]]
    values.append([None, 0.0, -1.0, 9.0, 0.25, 0.5, 2.5, 3.0, 3.25, 3.3, 7.0, np.pi, np.nan, -4.0, 11.0, np.inf])
    return [tuple(options[generator.integers(len(options))] for options in values) for _ in range(count)]


def arrays(rows: list[tuple[Any, ...]]) -> list[pa.Array]:
    kinds = (pa.int64(), pa.string(), pa.bool_(), pa.float64())
    return [pa.array([row[place] for row in rows], type=kind) for place, kind in enumerate(kinds)]


def crowds(rows: list[tuple[Any, ...]], ends: tuple[float, float]) -> np.ndarray:
    """Return the counts that tell where the numbers of two columns crowd within public bounds."""
    numbers = np.array([to_numbers(column) for column in arrays(rows)[::3]])
    histogram, drawn = MagnitudeHistogram(2, target=False), []
    histogram.add(np.zeros(len(rows)), numbers, Batch(None, None, b""))

    def draw_parts(share: str, counts: list[np.ndarray]) -> SimpleNamespace:
        assert (share, len(counts)) == (CROWDS, 2)
        drawn.append(np.concatenate(counts))
        return SimpleNamespace(values=drawn[0].astype(np.float64), sigma=1.0)

    noise = SimpleNamespace(draw_parts=draw_parts)
    plan = SimpleNamespace(bounds_share=None, noise_part=noise, unit={}, deviations=lambda columns: (1.0,))
    given = {"coded": COLUMNS[::3], "kinds": [pa.int64(), pa.float64()], "features": ["a", "x"]}
    draw_grids(
        SimpleNamespace(plan=plan, public_bounds=lambda name: ends, **given), dict(enumerate(histogram.cells.counts))
    )  # type: ignore[arg-type]
    return drawn[0]


def counted(rows: list[tuple[Any, ...]]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return counts of cells, grains and listed values; and those that distances are of: all pairs, and slots."""
    one = ColumnCounts(COLUMNS)
    two = PairTables(COLUMNS, [np.arange(column.count) for column in COLUMNS], slots={3: SLOTS})
    one.add_columns(arrays(rows))
    two.add_columns(arrays(rows))
    values = two.values(3)
    slots = np.append(values, len(rows) - values.sum())
    cells = np.concatenate(one.cell_counts)
    return [cells, one.grains[3], values[: SLOTS.listed]], [*(two.fine_table(pair) for pair in PAIRS), slots]


@cases("relation", ["add_remove", "replace"], quick=2)
@cases("rows", [1, 3])
def test_random_neighbours(relation: str, rows: int) -> None:
    generator = np.random.default_rng(rows)
    largest = np.zeros(6)
    for _ in range(100):
        shared = random_rows(generator, int(generator.integers(0, 6)))
        unit = [random_rows(generator, 1) * rows, random_rows(generator, int(generator.integers(0, rows + 1)))]
        other = unit[generator.integers(2)] if relation == "replace" else []
        (one, pairs_one), (two, pairs_two) = counted(shared + random_rows(generator, 1) * rows), counted(shared + other)
        expected = [np.rint(generator.uniform(0, 9, table.shape) * ONE).astype(np.int64) for table in pairs_one]
        quality = [
            distance(first, of) - distance(second, of)
            for first, second, of in zip(pairs_one, pairs_two, expected, strict=True)
        ]
        moved = [
            *(np.square(first - second).sum() for first, second in zip(one, two, strict=True)),
            sum(np.square(first - second).sum() for first, second in zip(pairs_one[:-1], pairs_two[:-1], strict=True)),
            max(map(abs, quality)) / ONE,
            sum(one**2 for one in quality) / ONE**2,
        ]
        largest = np.maximum(largest, moved)
    limits = [
        table_sensitivity(WIDTH, relation, rows),
        table_sensitivity(1, relation, rows),
        table_sensitivity(1, relation, rows),
        table_sensitivity(len(PAIRS), relation, rows),
        quality_sensitivity(relation, rows),
        distance_sensitivity(len(PAIRS) + 1, relation, rows),
    ]
    assert (largest <= limits).all()
    assert list(largest[:4]) == limits[:4]  # attained


def test_the_cells_of_values_are_those_of_the_first_pass() -> None:
    """Cells that come of the numbers of multiples are the same as searched ones, and slots those of the values."""
    grid = COLUMNS[3].grid
    assert grid is not None
    generator = np.random.default_rng(2)
    edges = np.array([start for start in grid.starts if start == round(start, 9)])  # others are next to one of these
    quarters = np.round(generator.uniform(-3, 12, 999) * 4) / 4
    values = np.concatenate([quarters, generator.uniform(-3, 12, 99), edges, [-np.inf, np.inf, 1e300]])
    cells, slots = SLOTS.of(np.append(values, np.nan))
    assert (cells == COLUMNS[3].numbered(pa.array(np.append(values, np.nan)))[1]).all()
    beyond = (values < -1) | (values > 9)
    assert (slots == SLOTS.size - 1).sum() == beyond.sum()
    found = np.sort(SLOTS.multiples[slots[slots < SLOTS.listed]])
    at, wide = cells[:-1] - 1, COLUMNS[3].wide[cells[:-1]]
    listed = (values * 2 == np.rint(values * 2)) & (SLOTS.counts[at] > 0) & wide & ~beyond
    assert found.tolist() == np.sort(values[listed]).tolist()
    assert len(slots) == (wide | beyond).sum()


@cases("relation", ["add_remove", "replace"], quick=2)
@cases("ends", [(-1.0, 9.0), (-4.0, 4.0), (0.0, 1e9), (5.0, 6.0)], quick=2)
def test_a_row_is_in_one_cell_of_each_crowd(relation: str, ends: tuple[float, float]) -> None:
    generator, largest = np.random.default_rng(4), 0
    for _ in range(100):
        shared = random_rows(generator, int(generator.integers(0, 6)))
        one, two = (random_rows(generator, 1) * rows for rows in (2, 2 if relation == "replace" else 0))
        moved = crowds(shared + one, ends) - crowds(shared + two, ends)
        largest = max(largest, int(np.square(moved).sum()))
    assert largest == table_sensitivity(2, relation, 2)  # attained


@pytest.mark.parametrize(("relation", "attained"), [("add_remove", 1), ("replace", 2)])
def test_distances_attain_theirs(relation: str, attained: int) -> None:
    far = [np.array([[9, 0], [0, 0]]) * ONE, np.array([[0, 0], [0, 9]]) * ONE]
    one = np.array([[1, 0], [0, 0]])
    two = np.zeros((2, 2), dtype=int) if relation == "add_remove" else np.array([[0, 0], [0, 1]])
    assert (
        abs(distance(one, far[0]) - distance(two, far[0])) == attained * ONE == quality_sensitivity(relation, 1) * ONE
    )
