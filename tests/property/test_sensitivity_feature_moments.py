"""The sensitivity of the moments of features on random neighbouring tables, and where it is attained."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.contract.fold import Batch
from dpsql.kernels.fixed_point import FIXED_POINT_BITS, affine_maps
from dpsql.statistics.feature_moments import (
    COARSE_UNIT,
    UNIT,
    CompleteProducts,
    coarse_l1_sensitivity,
    l1_sensitivity,
    moments_length,
    squared_l2_sensitivity,
)
from dpsql.testing import random_pairs
from dpsql.testing.neighbours import RELATIONS, Relation, random_unit_pairs
from support.cases import cases
from support.laws.feature_moments import row_of_moments


def moments(table: Any, features: int) -> list[int]:
    """Return the released integers of a table with bounds [-1, 1]."""
    values = [[math.nan if value is None else value for value in row] for row in table]
    fold = CompleteProducts(affine_maps([(-1.0, 1.0)] * features))
    fold.add(np.empty(0), np.array(values, dtype=np.float64).reshape(-1, features).T, Batch())
    return list(fold.total())


def moved(first: Any, second: Any, features: int) -> tuple[Fraction, Fraction, int]:
    """Return by how much neighbours differ: squared L2 and L1 norm, in rows, and L1 norm of the coarse moments."""
    pairs = [*zip(moments(first, features), moments(second, features), strict=True)]
    by = [b - a for a, b in pairs]
    coarse = sum(abs((b >> FIXED_POINT_BITS) - (a >> FIXED_POINT_BITS)) for a, b in pairs)
    return Fraction(sum(x * x for x in by), UNIT**2), Fraction(sum(map(abs, by)), UNIT), coarse


def check(first: Any, second: Any, features: int, relation: Relation, rows: int = 1) -> None:
    squared, total, coarse = moved(first, second, features)
    assert squared <= squared_l2_sensitivity(relation, features, rows)
    assert total <= l1_sensitivity(relation, features, rows)
    assert coarse <= coarse_l1_sensitivity(relation, features, rows)


@cases("relation", RELATIONS, quick=1)
@cases("features", [1, 2, 3, 5])
def test_random_neighbours(features: int, relation: Relation) -> None:
    for first, second in random_pairs(features, relation, columns=features, count=300):
        check(first, second, features, relation)


@cases("relation", RELATIONS, quick=1)
@cases("features", [1, 2, 4])
def test_units_of_several_rows(features: int, relation: Relation) -> None:
    """A unit's rows go, or go and come back as others, perhaps fewer, and some of them incomplete."""
    for pair in random_unit_pairs(features, relation, columns=features, count=150, max_rows_per_unit=3):
        first, second = ([row[1:] for row in table] for table in pair)
        check(first, second, features, relation, 3)
    generator = random.Random(features)
    for _ in range(300):
        old, new = (
            [
                [generator.choice((-1.0, 0.0, 1.0, None)) for _ in range(features)]
                for _ in range(generator.randint(0, 3))
            ]
            for _ in range(2)
        )
        check(old, new if relation == "replace" else [], features, relation, 3)


def corners(features: int) -> list[tuple[float, ...]]:
    return list(itertools.product((-1.0, 0.0, 1.0), repeat=features))


@cases("features", [1, 2, 3, 4, 5], quick=5)
@cases("rows", [1, 3])
def test_squared_norms_are_attained(features: int, rows: int) -> None:
    points = corners(features)
    one = max(moved([], [point] * rows, features)[0] for point in points)
    assert one == squared_l2_sensitivity("add_remove", features, rows)
    two = max(moved([points[-1]] * rows, [point] * rows, features)[0] for point in points)
    assert two == squared_l2_sensitivity("replace", features, rows)
    assert max(moved([], [point] * rows, features)[1] for point in points) == l1_sensitivity(
        "add_remove", features, rows
    )


@pytest.mark.parametrize("features", [1, 2, 3, 4])
def test_a_replaced_row_attains_the_sum(features: int) -> None:
    inner = (-1 / (features + 1),) * features
    beside = moved([(1.0,) * features], [inner], features)[1]
    alone = l1_sensitivity("add_remove", features)
    assert float(max(beside, alone)) == pytest.approx(float(l1_sensitivity("replace", features)), rel=1e-5)


def test_the_numbers_of_the_specification() -> None:
    """4.5 and 17.25 for two and five features; a replacement is worth D**2 of all pairs, not the bound (p + 1)**2."""
    assert [float(squared_l2_sensitivity("add_remove", p)) for p in (1, 2, 5)] == [2.25, 4.5, 17.25]
    assert [int(squared_l2_sensitivity("replace", p)) for p in (1, 2, 3, 4, 5, 6)] == [4, 8, 16, 24, 36, 48]
    assert [float(l1_sensitivity("add_remove", p)) for p in (1, 2, 3)] == [2.5, 5, 8.5]
    assert [float(l1_sensitivity("replace", p)) for p in (1, 2, 3)] == pytest.approx([2.5, 16 / 3, 9.375])
    assert coarse_l1_sensitivity("add_remove", 2, 3) == 15 * COARSE_UNIT + moments_length(2) == 15 * COARSE_UNIT + 6


@cases("features", [1, 2, 3, 4, 5, 6], quick=1)
def test_no_pair_of_rows_is_farther_apart(features: int) -> None:
    """A climb from random pairs of rows within the bounds comes to the stated norms, and never beyond."""
    optimize = pytest.importorskip("scipy.optimize")
    generator = np.random.default_rng(features)
    squared, total = (float(norm("replace", features)) for norm in (squared_l2_sensitivity, l1_sensitivity))

    def apart(both: np.ndarray) -> np.ndarray:
        difference: np.ndarray = row_of_moments(both[:features]) - row_of_moments(both[features:])
        return difference

    for _ in range(10):
        start = generator.uniform(-1, 1, 2 * features)
        bounds = [(-1, 1)] * (2 * features)
        far = optimize.minimize(lambda both: -(apart(both) ** 2).sum(), start, bounds=bounds).fun
        assert -far <= squared * (1 + 1e-12)
        far = optimize.minimize(lambda both: -abs(apart(both)).sum(), start, bounds=bounds, method="Powell").fun
        assert -far <= total * (1 + 1e-12)


@pytest.mark.parametrize("wrong", [0.7, 0.95])
def test_a_smaller_constant_is_refuted(wrong: float) -> None:
    squared, total, _ = moved([], [(1.0, -1.0)], 2)
    assert squared > wrong * squared_l2_sensitivity("add_remove", 2)
    assert total > wrong * l1_sensitivity("add_remove", 2)
