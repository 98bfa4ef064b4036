"""How far a privacy unit moves counts of two levels, products, medians and areas: exactly, over small domains."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from dpsql.mechanisms.prefix_sums import STRATEGIES, gaussian_sensitivity, laplace_scale, prefix_strategy
from dpsql.mechanisms.smooth import area_bound, area_under_curve, default_beta, median_bound
from dpsql.testing import check_sensitivity, neighbouring_pairs
from dpsql.testing.neighbours import RELATIONS, Relation, Row, Table
from support.laws.roc import area, area_smooth_bound, lower_median, smooth_median_bound

LABELLED: list[Row] = [(label, cell) for label in (False, True) for cell in range(3)]
BETAS = [Fraction(1, 50), Fraction(1, 2), Fraction(2)]


def histograms(table: Table, cells: int = 3) -> np.ndarray:
    counts = np.zeros((2, cells), dtype=np.int64)
    for label, cell in table:
        counts[int(label), cell] += 1
    return counts


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("cells", [1, 3, 5])
def test_products_of_tables(name: str, cells: int, relation: Relation) -> None:
    """L1 and squared L2 of both histograms together, over all neighbouring tables of at most two rows."""
    strategy = prefix_strategy(cells, name=name, noise="gaussian")
    rows: list[Row] = [(label, cell) for label in (False, True) for cell in range(cells)]

    def products(table: Table) -> list[int]:
        return [int(value) for value in (histograms(table, cells) @ strategy.matrix.T).ravel()]

    report = check_sensitivity(products, rows, 2, relation)
    assert report.total == laplace_scale(strategy, Fraction(1), relation)
    squares = [
        sum((a - b) ** 2 for a, b in zip(products(first), products(second), strict=True))
        for first, second in neighbouring_pairs(rows, 2, relation)
    ]
    assert max(squares) == gaussian_sensitivity(strategy, relation)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("cells", [1, 2, 3, 8, 9, 16, 31, 64, 65, 100, 513])
def test_columns(name: str, cells: int) -> None:
    """Sensitivities are those of the worst unit vector; no two columns have a negative inner product."""
    strategy = prefix_strategy(cells, name=name, noise="gaussian")
    columns = strategy.matrix.T.astype(object)
    assert strategy.l1 == max(sum(abs(column)) for column in columns)
    assert strategy.squared_l2 == max(sum(column * column) for column in columns)
    scaled = strategy.matrix / 2.0**strategy.bits
    assert (scaled.T @ scaled).min() >= 0
    if name == "wavelet":
        assert strategy.l1 == 1 + math.ceil(math.log2(cells))
    if name == "tree":
        assert strategy.l1 == max(1, math.ceil(math.log(cells, 8) - 1e-9))


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("relation", RELATIONS)
def test_products_of_units(name: str, relation: Relation) -> None:
    """At most three rows of a unit: all in one cell at worst, and three others under replace."""
    cells, most = 4, 3
    strategy = prefix_strategy(cells, name=name, noise="gaussian")
    columns = [
        np.concatenate([strategy.matrix[:, cell] * (label == side) for side in (0, 1)]).astype(object)
        for label in (0, 1)
        for cell in range(cells)
    ]
    units = [
        sum((columns[row] for row in unit), start=columns[0] * 0)
        for size in range(most + 1)
        for unit in itertools.combinations_with_replacement(range(len(columns)), size)
    ]
    changes = units if relation == "add_remove" else [a - b for a, b in itertools.combinations(units, 2)]
    assert max(sum(abs(change)) for change in changes) == laplace_scale(strategy, Fraction(1), relation, most)
    assert max(sum(change * change) for change in changes) == gaussian_sensitivity(strategy, relation, most)


def counted(rows: Sequence[int], cells: int) -> np.ndarray:
    found = Counter(rows)
    return np.array([found[cell] for cell in range(cells)], dtype=np.int64)


def bound_of(rows: Sequence[int], beta: Fraction, cells: int = 6, low: int = 0) -> tuple[int, float]:
    median, bound = median_bound(counted(rows, cells), low, cells - 1, low, beta)
    below, above = bound.bounds(30)
    assert above - below <= 20 * cells
    return median, above / 10**30


@pytest.mark.parametrize("beta", BETAS)
def test_median_is_the_definition(beta: Fraction) -> None:
    for size in range(7):
        for rows in itertools.combinations_with_replacement(range(6), size):
            median, bound = bound_of(rows, beta)
            assert median == lower_median(rows, 0)
            assert bound == pytest.approx(smooth_median_bound(rows, 0, 5, float(beta)), rel=1e-9)


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("relation", RELATIONS)
def test_median_is_smooth(beta: Fraction, relation: Relation) -> None:
    """The median moves by no more than either S, and S by a factor of no more than exp(beta); ties, no rows."""
    largest = Fraction(0)
    found = {
        rows: bound_of(rows, beta) for n in range(7) for rows in itertools.combinations_with_replacement(range(6), n)
    }
    for first, second in neighbouring_pairs([(cell,) for cell in range(6)], 6, relation):
        (one, s), (other, t) = (found[tuple(sorted(row[0] for row in table))] for table in (first, second))
        assert abs(one - other) <= min(s, t) * (1 + 1e-12)
        largest = max(largest, Fraction(max(s, t) / min(s, t)))
    assert float(largest) <= math.exp(beta) * (1 + 1e-12)
    assert float(largest) > 1 + (math.exp(beta) - 1) / 2


@pytest.mark.parametrize("seed", range(3))
def test_median_of_many_rows(seed: int) -> None:
    """Ties, empty blocks and a sub-range: the bound is still that of the definition."""
    rng = np.random.default_rng(seed)
    rows = sorted(rng.choice([0, 3, 4, 40, 41, 99], size=300).tolist())
    low = 4 if seed else 0
    inside = [row for row in rows if row >= low]
    for beta in (Fraction(1, 100), Fraction(1, 4)):
        median, bound = median_bound(counted(rows, 100), low, 99, low, beta)
        assert median == lower_median(inside, low)
        assert bound.bounds(40)[1] / 10**40 == pytest.approx(
            smooth_median_bound(inside, low, 99, float(beta)), rel=1e-9
        )


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("relation", RELATIONS)
def test_area_is_smooth(beta: Fraction, relation: Relation) -> None:
    """Up to four rows per level: the area moves by no more than either S, and is that of the definition."""
    bounds = {}
    for smaller in range(6):
        bounds[smaller] = area_bound(smaller, relation, beta).bounds(30)[1] / 10**30
        assert bounds[smaller] == pytest.approx(area_smooth_bound(smaller, relation, float(beta)), rel=1e-9)
    for one, other in itertools.pairwise(range(6)):
        assert max(bounds[one], bounds[other]) <= math.exp(beta) * min(bounds[one], bounds[other]) * (1 + 1e-12)

    def of(table: Table) -> tuple[Fraction, float]:
        counts = histograms(table)
        value = area_under_curve(*counts)
        return value, bounds[int(counts.sum(axis=1).min())]

    attained = 0.0
    for first, second in neighbouring_pairs(LABELLED, 5, relation):
        (one, s), (other, t) = of(first), of(second)
        assert abs(one - other) <= min(s, t) * (1 + 1e-12)
        attained = max(attained, float(abs(one - other)) / min(s, t))
    # Attained up to how far S looks ahead.
    assert attained > (0.99 if beta == 2 else 0.4)


def test_area_is_the_definition() -> None:
    for size in range(6):
        for rows in itertools.combinations_with_replacement(LABELLED, size):
            assert area_under_curve(*histograms(rows)) == area(rows)


def test_the_area_s_constant_of_add_remove_does_not_cover_replace() -> None:
    """One negative row below the only positive one, replaced by one above it, moves the area by 1."""
    first, second = ((False, 0), (True, 1)), ((False, 2), (True, 1))
    assert abs(area(first) - area(second)) == 1
    assert area_bound(1, "add_remove", default_beta(Fraction(1))).bounds(9)[1] < 0.6 * 10**9
