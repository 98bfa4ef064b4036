"""How far a privacy unit moves the statistics of an additive stage, on random tables, and where bounds are attained."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.contract.fold import Batch
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.statistics.additive import (
    CELLS,
    SIZES,
    CellRows,
    CodedRows,
    ResidualSums,
    StepRows,
    Steps,
    cells_sensitivity,
    residuals_sensitivity,
    sizes_sensitivity,
)
from dpsql.statistics.regression import RowMap, Scales, Standard
from dpsql.testing.neighbours import RELATIONS, Relation
from support.cases import cases

S = FIXED_POINT_ONE
FEATURES = 3


def stage(generator: np.random.Generator, *, whole: bool = False) -> StepRows:
    """Return a map of rows with random coefficients, some of them absurd."""
    scales = Scales(np.zeros(FEATURES), np.full(FEATURES, float(S)), 0.0, S / 2)
    standard = Standard(generator.uniform(-0.3, 0.3, FEATURES), generator.uniform(0.05, 1, FEATURES))
    mapped = RowMap(scales, standard=standard, unclipped=np.array([whole, False, True]))
    size = generator.choice([0.0, 0.5, 3.0, 1e6])
    return StepRows.of(mapped, scales, generator.normal(size=1 + FEATURES) * size)


def rows_of(generator: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features of shape (d, rows) and a target: corners, missing values and infinities among them."""
    features = generator.uniform(-1.5, 1.5, (FEATURES, count))
    odd = generator.random((FEATURES, count))
    features[odd < 0.3] = np.sign(features[odd < 0.3])
    features[odd > 0.9] = np.nan
    features[odd > 0.97] = math.inf
    return features, generator.choice([-1e9, -2.0, 0.0, 0.3, 2.0, 1e300, math.nan, -math.inf], count)


def steps_of(generator: np.random.Generator) -> Steps:
    values = np.rint(generator.normal(size=(FEATURES, CELLS + 1)) * S * generator.choice([0.0, 0.1, 100.0]))
    values[:, CELLS] = 0.0
    return Steps(values, int(generator.choice(SIZES)))


def counted(rows: StepRows, parts: list[tuple[np.ndarray, np.ndarray]]) -> CellRows:
    found = CellRows(rows)
    for features, target in parts:
        found.add(target, features, Batch())
    return found


def summed(rows: StepRows, steps: Steps, places: list[int], parts: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    found = ResidualSums(rows, steps, places)
    for features, target in parts:
        found.add(target, features, Batch())
    return found.sums()


def squared(first: np.ndarray, second: np.ndarray) -> int:
    return sum((int(a) - int(b)) ** 2 for a, b in zip(first.ravel(), second.ravel(), strict=True))


@cases("unit", [1, 3], quick=1)
@cases("relation", RELATIONS)
def test_changes_are_within_the_bounds(relation: Relation, unit: int) -> None:
    """Of neighbouring tables, whatever was released before: the three statistics, and what they spend together."""
    generator = np.random.default_rng(unit)
    largest = [0.0, 0.0, 0.0]
    for number in range(72):
        rows, steps = stage(generator, whole=number % 2 == 0), steps_of(generator)
        places = sorted(generator.permutation(FEATURES)[: int(generator.integers(1, FEATURES + 1))].tolist())
        base = rows_of(generator, int(generator.integers(0, 20)))
        one, other = (rows_of(generator, int(generator.integers(1, unit + 1))) for _ in range(2))
        if number % 3 == 0:  # the same row as often as the unit may have it
            one = np.repeat(one[0][:, :1], unit, axis=1), np.repeat(one[1][:1], unit)
        if number % 6 == 0:
            other = one[0].copy(), -one[1]
        if relation == "add_remove":
            other = other[0][:, :0], other[1][:0]
        tables = [base, one], [base, other]
        first, second = (counted(rows, table) for table in tables)
        moved = (
            squared(first.cells, second.cells) / cells_sensitivity(relation, FEATURES, unit),
            squared(first.sizes, second.sizes) / sizes_sensitivity(relation, unit),
            Fraction(
                squared(*(summed(rows, steps, places, table) for table in tables)),
                residuals_sensitivity(relation, len(places), steps.most, unit),
            ),
        )
        assert all(share <= 1 for share in moved), moved
        largest = [max(a, float(b)) for a, b in zip(largest, moved, strict=True)]
    assert min(largest) > 0.6


def test_the_constants() -> None:
    """Attained: a row has a cell of each feature, and opposite residuals may be in one."""
    assert [cells_sensitivity(relation, 5, 2) for relation in RELATIONS] == [20, 40]
    assert [sizes_sensitivity(relation, 2) for relation in RELATIONS] == [4, 8]
    assert [residuals_sensitivity(relation, 3, 7, 2) for relation in RELATIONS] == [4 * 3 * 49, 16 * 3 * 49]


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_bounds_are_attained(relation: Relation) -> None:
    """By rows that are in the same cells with opposite residuals, and by rows that are nowhere alike."""
    rows = stage(np.random.default_rng(1))
    rows = StepRows(rows.mapped, rows.starts, rows.scales, np.zeros(1 + FEATURES))
    steps = Steps(np.zeros((FEATURES, CELLS + 1)), int(SIZES[-1]))
    low, high, none = np.full((FEATURES, 2), -1.0), np.full((FEATURES, 2), 1.0), np.empty((FEATURES, 0))
    far, near = np.full(2, 1e9), np.zeros(2)
    gone = (none, np.empty(0))
    first, second = counted(rows, [(low, far)]), counted(rows, [gone if relation == "add_remove" else (high, near)])
    assert squared(first.cells, second.cells) == cells_sensitivity(relation, FEATURES, 2)
    assert squared(first.sizes, second.sizes) == sizes_sensitivity(relation, 2)
    others = gone if relation == "add_remove" else (low, -far)
    moved = squared(*(summed(rows, steps, [0, 2], [part]) for part in ((low, far), others)))
    assert moved == residuals_sensitivity(relation, 2, steps.most, 2)


def test_a_row_is_mapped_by_itself() -> None:
    """Codes and starts do not depend on the other rows of a batch, on their order, or on how they are divided."""
    generator = np.random.default_rng(5)
    rows, steps = stage(generator), steps_of(generator)
    features, target = rows_of(generator, 700)
    quantised = rows.mapped.quantised(features)
    codes, start = rows.codes(quantised), rows.start(quantised, target)
    order = generator.permutation(700)
    again = rows.mapped.quantised(features[:, order])
    assert np.array_equal(rows.codes(again), codes[order])
    assert np.array_equal(rows.start(again, target[order]), start[order])
    for at in range(0, 700, 97):
        alone = rows.mapped.quantised(features[:, at : at + 1])
        assert np.array_equal(rows.codes(alone)[0], codes[at])
        assert rows.start(alone, target[at : at + 1])[0] == start[at]
    kept, folded = CodedRows(rows), ResidualSums(rows, steps, [0, 1, 2])
    kept.add(target[:300], features[:, :300], Batch())
    kept.add(target[300:], features[:, 300:], Batch())
    kept.into(folded)
    merged = ResidualSums(rows, steps, [0, 1, 2])
    for some in (slice(0, 1), slice(1, 650), slice(650, 700)):
        part = ResidualSums(rows, steps, [0, 1, 2])
        part.add(target[some], features[:, some], Batch())
        merged.absorb(part.state())
    assert (folded.sums() == merged.sums()).all()
    assert (np.abs(rows.residuals(start, steps.moved(codes), steps.most)) <= steps.most).all()


def test_cells_are_where_their_edges_say() -> None:
    """A value on an edge is in the cell behind it, in the units of the column, and integers are in cells of their own."""
    scales = Scales(np.array([32.0]), np.array([S / 32.0]), 0.0, float(S))
    rows = StepRows.of(RowMap(scales), scales, np.zeros(2))
    values = np.arange(0.0, 65.0)
    codes = rows.codes(rows.mapped.quantised(values[None, :]))[:, 0]
    assert np.array_equal(codes, np.searchsorted(rows.edges[0], values, side="right"))
    assert len(set(codes[:-1].tolist())) == 64
    assert np.array_equal(rows.codes(np.array([[math.nan]])), [[CELLS]])
