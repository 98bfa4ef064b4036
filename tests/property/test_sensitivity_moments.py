"""How far one unit moves the sums that rows are standardised by, and the products that bounds are read from."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpsql.contract.fold import Batch
from dpsql.kernels.cells import MagnitudeCounts, TypedCells
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, affine_maps
from dpsql.kernels.gram import clip_rows, gram_products
from dpsql.mechanisms.prefix_bounds import PrefixMatrix
from dpsql.statistics.counts import squared_l2_sensitivity
from dpsql.statistics.regression import (
    STANDARD_ONE,
    ColumnMoments,
    QuantisedMagnitudes,
    RowMap,
    Scales,
    Standard,
    cross_sensitivity,
    gram_sensitivity,
    moments_sensitivity,
    standard_radius,
)
from support.cases import cases

S = FIXED_POINT_ONE


def plain(width: int) -> RowMap:
    return RowMap(Scales(*affine_maps([(-1.0, 1.0)] * width), 0.0, 1.0))


def moments(rows: Any, width: int) -> np.ndarray:
    found = ColumnMoments(plain(width))
    columns = np.array(rows, dtype=np.float64).reshape(-1, width).T.copy()
    found.add(np.zeros(columns.shape[1]), columns, Batch())
    return found.total()


def squared_move(first: Any, second: Any, width: int) -> int:
    return sum(int(value) ** 2 for value in moments(first, width) - moments(second, width))


@pytest.mark.parametrize("width", [1, 2, 3])
def test_all_small_rows_stay_within_the_bounds_and_corners_attain_them(width: int) -> None:
    """Every pair of rows of -1, -1/2, 0, 1/2, 1 and NULL, added and replaced, alone and three times."""
    grid = list(product([-1.0, -0.5, 0.0, 0.5, 1.0, np.nan], repeat=width))

    def sums(count: int) -> np.ndarray:
        return np.array([moments([row] * count, width) for row in grid], dtype=object)

    def farthest(first: np.ndarray, second: np.ndarray) -> int:
        return int(((first[:, None] - second[None, :: 1 if width < 3 else 7]) ** 2).sum(axis=2).max())

    for unit in (1, 3):
        whole = sums(unit)
        added = int((whole**2).sum(axis=1).max())
        bound = moments_sensitivity("add_remove", width, unit)
        assert bound**2 * (1 - 1e-9) < added <= bound**2
        bound = moments_sensitivity("replace", width, unit)
        assert max(farthest(whole, whole), farthest(whole, sums(unit - 1))) <= bound**2
        corners = squared_move([[1.0] * width] * unit, [[-1.0] * width] * unit, width)
        assert bound**2 * (1 - 1e-9) < corners <= bound**2


def test_the_other_rows_do_not_matter() -> None:
    generator = np.random.default_rng(1)
    base, row = generator.uniform(-1, 1, (50, 2)), generator.uniform(-1, 1, (1, 2))
    assert squared_move(np.vstack([base, row]), base, 2) == squared_move(row, [], 2)


KINDS = [pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.int64(), pa.decimal128(5, 2), pa.float64()]


@cases("neighbours", ["add_remove", "replace"], quick=27)
@cases("unit", [1, 2])
@cases("kind", KINDS, ids=str)
def test_products_of_cells(neighbours: str, unit: int, kind: pa.DataType) -> None:
    """Any cells for the rows that come and go; rows of the first and the last cell attain the bound."""
    number = TypedCells.of(kind).count
    matrix = PrefixMatrix.of(number)
    bound = squared_l2_sensitivity(neighbours, max_rows_per_unit=unit) * matrix.squared
    generator = np.random.default_rng(2)

    def moved(cells: Any, gone: Any) -> int:
        counts = np.bincount(cells, minlength=number) - np.bincount(gone, minlength=number)
        return sum(int(value) ** 2 for value in matrix.products(counts))

    for _ in range(100):
        cells, gone = generator.integers(0, number, (2, unit))
        assert moved(cells, gone if neighbours == "replace" else []) <= bound
    assert moved([0] * unit, []) == unit**2 * matrix.squared
    if neighbours == "replace":
        assert moved([0] * unit, [number - 1] * unit) > 0.5 * bound


@cases("neighbours", ["add_remove", "replace"], quick=2)
@cases("unit", [1, 3])
def test_products_of_random_neighbours_of_all_types(neighbours: str, unit: int) -> None:
    """Tables of all types at once, of odd values: each column moves by at most the norm of its own type's matrix."""
    generator = np.random.default_rng(unit)
    cells = [TypedCells.of(kind) for kind in KINDS]

    def rows(count: int) -> np.ndarray:
        values = generator.standard_cauchy((len(KINDS), count)) * 10.0 ** generator.integers(-3, 9, (len(KINDS), count))
        odd = generator.choice([np.nan, np.inf, -np.inf, 0.0, 127.0, -128.0, 1e300], values.shape)
        return np.where(generator.random(values.shape) < 0.3, odd, values)

    def products(table: np.ndarray) -> list[np.ndarray]:
        magnitudes = MagnitudeCounts(len(KINDS))
        magnitudes.add(np.stack([of.coded(column) for of, column in zip(cells, table, strict=True)]))
        every = zip(cells, magnitudes.counts, strict=True)
        return [PrefixMatrix.of(of.count).products(of.counts(fine)) for of, fine in every]

    most = squared_l2_sensitivity(neighbours, max_rows_per_unit=unit)
    for _ in range(60):
        base, came, gone = rows(20), rows(unit), rows(unit if neighbours == "replace" else 0)
        tables = (np.concatenate([base, other], axis=1) for other in (came, gone))
        for of, first, second in zip(cells, *map(products, tables), strict=True):
            moved = sum(int(value) ** 2 for value in first - second)
            assert moved <= most * PrefixMatrix.of(of.count).squared


@cases("neighbours", ["add_remove", "replace"], quick=4)
@cases("unit", [1, 3])
@cases("bounds", [(-1.0, 1.0), (0.0, 5000.0), (-3.5, 1e6), (100.0, 120.0)], ids=str)
def test_products_within_public_bounds(neighbours: str, unit: int, bounds: tuple[float, float]) -> None:
    """Random neighbours, kept as integers or not: each column moves by at most the norm of the matrix of its cells."""
    generator = np.random.default_rng(unit)
    mapped = RowMap(Scales(*affine_maps([bounds] * len(KINDS)), 0.0, 1.0))
    cells = [TypedCells.of(kind) for kind in KINDS]
    inside = [of.within(*bounds) for of in cells]

    def rows(count: int) -> np.ndarray:
        values = generator.standard_cauchy((len(KINDS), count)) * 10.0 ** generator.integers(-3, 9, (len(KINDS), count))
        odd = generator.choice([np.nan, np.inf, -np.inf, 0.0, *bounds, 1e300], values.shape)
        return np.where(generator.random(values.shape) < 0.3, odd, values)

    def fine(table: np.ndarray, kept: bool) -> np.ndarray:
        if kept:
            magnitudes = QuantisedMagnitudes(mapped, dict(enumerate(cells)))
            magnitudes.add(np.zeros(table.shape[1]), table, Batch())
            return magnitudes.cells.counts
        counts = MagnitudeCounts(len(KINDS))
        counts.add([of.coded(column) for of, column in zip(cells, table, strict=True)])
        return counts.counts

    most = squared_l2_sensitivity(neighbours, max_rows_per_unit=unit)
    for step in range(40):
        base, came, gone = rows(20), rows(unit), rows(unit if neighbours == "replace" else 0)
        tables = [fine(np.concatenate([base, other], axis=1), kept=step % 2 == 0) for other in (came, gone)]
        for of, *pair in zip(inside, *tables, strict=True):
            first, second = (PrefixMatrix.of(of.count).products(of.counts(rows_in)) for rows_in in pair)
            assert sum(int(value) ** 2 for value in first - second) <= most * PrefixMatrix.of(of.count).squared
            assert of.counts(pair[0]).sum() == pair[0].sum()  # no row is outside all cells
            assert bounds[0] <= of.low.min() <= of.high.max() <= bounds[1]


@cases("whole", [False, True], quick=5)
@cases("width", [1, 3, 6, 20])
def test_standardised_rows_have_the_stated_norm(width: int, whole: bool) -> None:
    """Random moments and heavy-tailed rows: norms, Gram matrix and cross products never exceed their bounds."""
    generator = np.random.default_rng(width)
    radius = standard_radius(width)
    most = 0.0
    for _ in range(200):
        deviation = np.maximum(2.0**-40, generator.uniform(0, 1, width) ** 4)
        mapped = plain(width).standardised(Standard(generator.uniform(-1, 1, width), deviation))
        if whole:
            mapped = replace(mapped, unclipped=generator.random(width) < 0.7)
        assert mapped.radius == radius
        features = np.clip(generator.standard_cauchy((width, 20)), -9, 9)
        features[generator.random(features.shape) < 0.1] = np.nan
        rows, weights = mapped.matrix(mapped.quantised(features))
        assert ((weights > 0) & (weights <= 1)).all()
        assert (np.abs(rows) <= S).all()
        assert (rows == np.rint(rows)).all()
        squared = max(sum(int(value) ** 2 for value in row) for row in rows)
        assert squared <= radius**2
        most = max(most, squared / radius**2)
        pair = rows[:2]
        change = gram_products(pair[:1]) - gram_products(pair[1:])
        assert sum(int(value) ** 2 for value in change.ravel()) <= gram_sensitivity("replace", radius) ** 2
        target = generator.choice([-S, S], 2)
        moved = pair[0] * target[0] - pair[1] * target[1]
        assert sum(int(value) ** 2 for value in moved) <= cross_sensitivity("replace", radius) ** 2
    assert most > 0.999


def test_rounding_after_the_clip_would_lengthen_rows() -> None:
    """The planted fault: what is rounded once its norm was clipped exceeds it."""
    width = 4
    mapped = plain(width).standardised(Standard(np.zeros(width), np.full(width, 0.3)))
    generator = np.random.default_rng(0)
    quantised = mapped.quantised(generator.uniform(-1, 1, (width, 500)))
    features = mapped.in_deviations(quantised)
    length = standard_radius(width)
    norms = np.linalg.norm(features, axis=1)
    wrong = np.rint(features * np.minimum(1.0, length / norms)[:, np.newaxis])
    assert (np.square(wrong).sum(axis=1) > length**2).any()
    right = features.copy()
    clip_rows(right, length)
    assert (np.square(right).sum(axis=1) <= length**2).all()


def test_nothing_leaves_the_range_that_blocks_of_rows_sum_exactly() -> None:
    """Entries of up to three deviations in units of S would: 4,096 squares of 3 S are beyond 2**53."""
    mapped = plain(1).standardised(Standard(np.array([0.25]), np.array([2.0**-40])))
    rows, weights = mapped.matrix(mapped.quantised(np.array([[-1.0, 1.0, 0.25, np.nan]])))
    # A row at three deviations is scaled down as a whole, from a norm of sqrt(10) to one of sqrt(2).
    assert weights == pytest.approx([math.sqrt(0.2), math.sqrt(0.2), 1, 1], abs=1e-5)
    assert np.abs(rows).max() <= 3 * STANDARD_ONE <= S
    assert rows[3].tolist() == [STANDARD_ONE, 0.0]
    assert 4096 * S**2 <= 2**53 < 4096 * (3 * S) ** 2
