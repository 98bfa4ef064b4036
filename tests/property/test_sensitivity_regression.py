"""How far a privacy unit moves the statistics of regression, on random clipped tables, and where bounds are attained."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.contract.fold import Batch
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.kernels.gram import ClippedRows, clip_rows, gram_products
from dpsql.mechanisms.ada_ssp import (
    MOST_ROWS,
    eigenvalue_error,
    least_eigenvalue,
    release_least_eigenvalue,
    release_target_squares,
)
from dpsql.statistics.regression import (
    RowMap,
    RowProducts,
    Scales,
    cross_sensitivity,
    gram_sensitivity,
    largest_norm,
    least_eigenvalue_sensitivity,
)
from dpsql.testing.neighbours import RELATIONS, Relation
from support.cases import cases

S = FIXED_POINT_ONE
FEATURE_RADIUS = round(1.3 * S)
R = largest_norm(1, FEATURE_RADIUS)


def clipped(features: np.ndarray) -> np.ndarray:
    """Return quantised, clipped rows with their intercept."""
    quantised = np.floor(features * S + 0.5)
    clip_rows(quantised, FEATURE_RADIUS)
    return np.column_stack((np.full(len(quantised), float(S)), quantised))


def changes(first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray]) -> tuple[int, int, int]:
    """Return the squared Frobenius norm, the change of the least eigenvalue and the squared norm of X'y: all exact
    but for the error of an eigenvalue."""
    grams = [gram_products(rows) for rows, _ in (first, second)]
    cross = [gram_products(np.column_stack((rows, target)))[:-1, -1] for rows, target in (first, second)]
    gram = sum(int(value) ** 2 for value in (grams[0] - grams[1]).ravel())
    least = abs(least_eigenvalue(grams[0]) - least_eigenvalue(grams[1]))
    return gram, least, sum(int(value) ** 2 for value in cross[0] - cross[1])


def spent(moved: tuple[int, int, int], bounds: tuple[int, int, int]) -> Fraction:
    """Return the share of the allowed mu**2 that three releases of a third each spend on this pair of tables."""
    gram, least, cross = moved
    parts = (Fraction(gram, bounds[0] ** 2), Fraction(least**2, bounds[1] ** 2), Fraction(cross, bounds[2] ** 2))
    return sum(parts, Fraction(0)) / 3


def bounds_of(relation: Relation, unit: int, width: int) -> tuple[int, int, int]:
    least = least_eigenvalue_sensitivity(relation, R, unit) + 2 * eigenvalue_error(width, R)
    return gram_sensitivity(relation, R, unit), least, cross_sensitivity(relation, R, unit)


def random_table(generator: np.random.Generator, rows: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    features = generator.uniform(-1, 1, (rows, width - 1))
    corners = generator.random(rows) < 0.5
    features[corners] = np.sign(features[corners])
    return clipped(features), generator.choice([-S, S, 0, S // 3], rows).astype(float)


@cases("unit", [1, 3], quick=1)
@cases("relation", RELATIONS)
def test_joint_change_is_within_the_budget(relation: Relation, unit: int) -> None:
    generator = np.random.default_rng(unit)
    largest = Fraction(0)
    for _ in range(400):
        width = int(generator.integers(2, 7))
        base = random_table(generator, int(generator.integers(0, 30)), width)
        parts = [random_table(generator, int(generator.integers(1, unit + 1)), width) for _ in range(2)]
        if relation == "add_remove":
            parts[1] = (parts[1][0][:0], parts[1][1][:0])
        pair = [(np.vstack((base[0], part[0])), np.concatenate((base[1], part[1]))) for part in parts]
        moved, bounds = changes(*pair), bounds_of(relation, unit, width)
        assert moved[0] <= bounds[0] ** 2
        assert moved[1] <= bounds[1]
        assert moved[2] <= bounds[2] ** 2
        largest = max(largest, spent(moved, bounds))
    assert 0.2 < largest <= 1


@pytest.mark.parametrize("unit", [1, 4])
def test_added_rows_attain_all_bounds_at_once(unit: int) -> None:
    """Along a direction that all others are far from: Gram matrix, least eigenvalue and X'y each move by their bound."""
    row = clipped(np.array([[1.0, 1.0, 1.0]]))
    basis = np.linalg.qr(np.column_stack((row[0], np.eye(4)[:, :3])))[0][:, 1:]
    other = np.rint(basis.T * 0.9 * S)
    held = np.vstack([other] * 200), np.zeros(600)
    more = np.vstack((held[0], *[row] * unit)), np.concatenate((held[1], np.full(unit, float(S))))
    share = spent(changes(held, more), bounds_of("add_remove", unit, 4))
    assert 0.998 < share <= 1


def test_replaced_rows_attain_the_gram_and_cross_bounds() -> None:
    """Orthogonal rows, both with an intercept, move G by sqrt(2) R^2; opposite targets move X'y by 2 R S."""
    radius = largest_norm(1, S)
    first, second = np.array([[S, S]]) * 1.0, np.array([[S, -S]]) * 1.0
    assert radius**2 >= 2 * S**2
    gram = changes((first, np.zeros(1)), (second, np.zeros(1)))[0]
    assert gram_sensitivity("add_remove", radius) ** 2 < gram <= gram_sensitivity("replace", radius) ** 2
    assert gram > (1 - 1e-5) * gram_sensitivity("replace", radius) ** 2
    cross = changes((first, np.full(1, float(S))), (first, np.full(1, -float(S))))[2]
    assert (1 - 1e-5) * cross_sensitivity("replace", radius) ** 2 < cross <= cross_sensitivity("replace", radius) ** 2


@cases("relation", RELATIONS, quick=1)
def test_every_round_of_boosting_is_within_its_bound(relation: Relation) -> None:
    """For any public coefficients, on random tables: also where residuals are clipped or not numbers."""
    generator = np.random.default_rng(7)
    largest = 0.0
    for number in range(200):
        width = int(generator.integers(2, 6))
        base = random_table(generator, int(generator.integers(0, 20)), width)
        parts = [random_table(generator, 1, width) for _ in range(2)]
        if relation == "add_remove":
            parts[1] = (parts[1][0][:0], parts[1][1][:0])
        theta = generator.normal(size=width) * generator.choice([0.0, 0.3, 1e4])
        if number % 10 == 0:
            theta[0] = generator.choice([math.inf, -math.inf, math.nan])
        sums = []
        for part in parts:
            kept = ClippedRows(width, threads=0)
            for rows, target in (base, part):
                kept.add(rows, target)
            sums.append(kept.residual_products(theta))
        moved = sum(int(value) ** 2 for value in sums[0] - sums[1])
        assert moved <= cross_sensitivity(relation, R) ** 2
        largest = max(largest, math.sqrt(moved) / cross_sensitivity(relation, R))
    assert largest > 0.85


@cases("size", [0, 1, 3, S - 1, S, 5 * S + 7])
def test_the_radius_of_a_row_is_rounded_up(size: int) -> None:
    radius = largest_norm(1, size)
    assert (radius - 1) ** 2 < S**2 + size**2 <= radius**2


@pytest.mark.parametrize("unit", [1, 2, 7])
def test_the_constants(unit: int) -> None:
    """F10: multipliers under add_remove and replace, for a norm of 1."""
    square = unit * S * S
    assert gram_sensitivity("add_remove", S, unit) == square
    assert gram_sensitivity("replace", S, unit) == math.isqrt(2 * square**2) + 1
    assert [least_eigenvalue_sensitivity(relation, S, unit) for relation in RELATIONS] == [square, square]
    assert {relation: cross_sensitivity(relation, S, unit) // square for relation in RELATIONS} == {
        "add_remove": 1,
        "replace": 2,
    }


@pytest.mark.long
def test_the_error_of_an_eigenvalue_is_small_beside_the_bound() -> None:
    """The allowed error against exact eigenvalues: block matrices of known spectra, rotated by Hadamard matrices."""
    generator = np.random.default_rng(3)
    hadamard = np.array([[1]])
    for _ in range(6):
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    width = len(hadamard)
    for _ in range(20):
        values = [int(value) for value in generator.integers(0, 1 << 60, width)]
        values[0] = int(generator.integers(0, 1 << 30))
        # H diag(v) H' / 64 has the eigenvalues v; times 64 it is an integer matrix with 64 v.
        exact = hadamard.astype(object) @ np.diag(np.array(values, dtype=object)) @ hadamard.T.astype(object)
        error = abs(least_eigenvalue(exact) - width * min(values))
        assert error <= 1 + 8 * width * Fraction(width * sum(values), 1 << 53)
    assert eigenvalue_error(width, R) >= 8 * width * Fraction(MOST_ROWS * R**2, 1 << 53)
    assert eigenvalue_error(90, R) < 1e-3 * R**2
    assert eigenvalue_error(2048, R) < 0.01 * R**2


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_noise_of_an_eigenvalue_hides_what_doubles_get_wrong(relation: Relation) -> None:
    """Two tables' eigenvalues may each be off by their error, beside the distance of the exact ones."""
    gram = np.array([[int(S) ** 2, 3], [3, int(S) ** 2]], dtype=object)
    mu = Fraction(1, 2)
    for unit in (1, 4):
        sigma = release_least_eigenvalue(gram, relation, R, unit, squared_mu=mu**2).sigma
        hidden = least_eigenvalue_sensitivity(relation, R, unit) + 2 * eigenvalue_error(2, R)
        assert sigma * float(mu) >= hidden * (1 - 2.0**-40)
        assert sigma * float(mu) <= hidden * (1 + 2.0**-40)


def target_squares(*values: float) -> int:
    """Return the sum of squares of a target with the bounds -1 and 1, in units of S**2."""
    products = RowProducts(RowMap(Scales(np.zeros(1), np.ones(1), 0.0, float(S))), (-1.0, 1.0))
    for value in values:
        products.add(np.array([value]), np.zeros((1, 1)), Batch())
    return int(products.products()[-1, -1])


@pytest.mark.parametrize("unit", [1, 2, 5])
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_noise_of_the_target_squares_hides_all_rows_of_a_unit(relation: Relation, unit: int) -> None:
    """Values beyond the bounds count as the bounds, so no row adds more than S**2; rows at a bound add all of it."""
    mu, others = Fraction(1, 2), (0.3, -1.0, 5.0)
    without = target_squares(*others, *([0.0] * unit if relation == "replace" else []))
    moved = [
        abs(target_squares(*others, *[value] * unit) - without) for value in (-7.0, -1.0, 0.25, 1.0, 3.0, math.inf)
    ]
    noisy = release_target_squares(np.array([without], dtype=object), relation, unit, squared_mu=mu**2)
    assert max(moved) == unit * S**2
    assert noisy.sigma * float(mu) == pytest.approx(max(moved), rel=2.0**-40)
