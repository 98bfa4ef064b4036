"""How far a privacy unit moves what dp_synthetic counts: on random neighbouring tables, and attained on small ones."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpsql.kernels.value_grid import ValueGrid
from dpsql.mechanisms.private_tree import ONE, distance, distance_sensitivity, quality_sensitivity, table_sensitivity
from dpsql.statistics.coded_columns import CodedColumn, ColumnCounts, PairTables
from support.cases import cases

WIDTH = 3
PAIRS = list(itertools.combinations(range(WIDTH), 2))
COLUMNS = [
    CodedColumn("a", "BIGINT", None, False, ValueGrid((0.0, 1.0, 2.0), 2.0, discrete=True), 0),
    CodedColumn("b", "VARCHAR", ("x", "y"), True, None, 0),
    CodedColumn("c", "BOOLEAN", ("false", "true"), False, None, 0),
]


def random_rows(generator: np.random.Generator, count: int) -> list[tuple[Any, ...]]:
    values: list[list[Any]] = [[None, 0, 1, 2, 9], [None, "x", "y", "other"], [None, False, True]]
    return [tuple(options[generator.integers(len(options))] for options in values) for _ in range(count)]


def arrays(rows: list[tuple[Any, ...]]) -> list[pa.Array]:
    kinds = (pa.int64(), pa.string(), pa.bool_())
    return [pa.array([row[place] for row in rows], type=kind) for place, kind in enumerate(kinds)]


def counted(rows: list[tuple[Any, ...]]) -> tuple[np.ndarray, list[np.ndarray]]:
    one, two = ColumnCounts(COLUMNS), PairTables(COLUMNS, [np.arange(column.count) for column in COLUMNS])
    one.add_columns(arrays(rows))
    two.add_columns(arrays(rows))
    return np.concatenate(one.cell_counts), [two.table(pair) for pair in PAIRS]


@cases("relation", ["add_remove", "replace"], quick=2)
@cases("rows", [1, 3])
def test_random_neighbours(relation: str, rows: int) -> None:
    generator = np.random.default_rng(rows)
    largest = np.zeros(4)
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
            np.square(one - two).sum(),
            sum(np.square(first - second).sum() for first, second in zip(pairs_one, pairs_two, strict=True)),
            max(map(abs, quality)) / ONE,
            sum(one**2 for one in quality) / ONE**2,
        ]
        largest = np.maximum(largest, moved)
    limits = [
        table_sensitivity(WIDTH, relation, rows),
        table_sensitivity(len(PAIRS), relation, rows),
        quality_sensitivity(relation, rows),
        distance_sensitivity(len(PAIRS), relation, rows),
    ]
    assert (largest <= limits).all()
    assert list(largest[:2]) == limits[:2]  # attained


@pytest.mark.parametrize(("relation", "attained"), [("add_remove", 1), ("replace", 2)])
def test_distances_attain_theirs(relation: str, attained: int) -> None:
    far = [np.array([[9, 0], [0, 0]]) * ONE, np.array([[0, 0], [0, 9]]) * ONE]
    one = np.array([[1, 0], [0, 0]])
    two = np.zeros((2, 2), dtype=int) if relation == "add_remove" else np.array([[0, 0], [0, 1]])
    assert (
        abs(distance(one, far[0]) - distance(two, far[0])) == attained * ONE == quality_sensitivity(relation, 1) * ONE
    )
