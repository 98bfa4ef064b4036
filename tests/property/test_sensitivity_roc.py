"""How far a privacy unit moves counts of two levels, products, medians and areas: exactly, over small domains."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.contract.fold import Batch
from dpsql.contract.relation import relation_of
from dpsql.mechanisms.auc import ConcordanceNoise
from dpsql.mechanisms.prefix_sums import STRATEGIES, gaussian_sensitivity, laplace_scale, prefix_strategy
from dpsql.mechanisms.smooth import area_bound, default_beta, median_bound
from dpsql.statistics.auc import (
    ClassScores,
    Concordance,
    area_under_curve,
    class_sensitivity,
    concordance_sensitivity,
)
from dpsql.testing import check_sensitivity, neighbouring_pairs
from dpsql.testing.neighbours import RELATIONS, Relation, Row, Table
from support.cases import cases
from support.laws.roc import area, area_smooth_bound, concordance, lower_median, smooth_median_bound

LABELLED: list[Row] = [(label, cell) for label in (False, True) for cell in range(3)]
BETAS = [Fraction(1, 50), Fraction(1, 2), Fraction(2)]


def histograms(table: Table, cells: int = 3) -> np.ndarray:
    counts = np.zeros((2, cells), dtype=np.int64)
    for label, cell in table:
        counts[int(label), cell] += 1
    return counts


@cases("relation", RELATIONS, quick=14)
@cases("name", STRATEGIES)
@cases("cells", [1, 3, 5])
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


@pytest.mark.parametrize("relation", RELATIONS)
def test_counts_of_classes(relation: Relation) -> None:
    report = check_sensitivity(lambda table: histograms(table).sum(axis=1).tolist(), LABELLED, 2, relation)
    assert report.total == class_sensitivity(relation_of(relation))


def test_the_area_and_the_counts_share_epsilon() -> None:
    """A row moves both numbers; a replaced one moves the counts by 2, or the concordance by 2."""
    for rows in (1, 3):
        assert sum(ConcordanceNoise("area", Fraction(1), None, None, "add_remove", rows).losses) == 1
        assert ConcordanceNoise("area", Fraction(1), None, None, "replace", rows).losses == (1, Fraction(1, 2))


@cases("name", STRATEGIES, quick=24)
@cases("cells", [1, 2, 3, 8, 9, 16, 31, 64, 65, 100, 513])
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


@cases("name", STRATEGIES, quick=4)
@cases("relation", RELATIONS)
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


@cases("beta", BETAS, quick=1)
def test_median_is_the_definition(beta: Fraction) -> None:
    for size in range(7):
        for rows in itertools.combinations_with_replacement(range(6), size):
            median, bound = bound_of(rows, beta)
            assert median == lower_median(rows, 0)
            assert bound == pytest.approx(smooth_median_bound(rows, 0, 5, float(beta)), rel=1e-9)


@cases("beta", BETAS, quick=1)
@cases("relation", RELATIONS)
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


@cases("beta", BETAS, quick=2)
@cases("relation", RELATIONS)
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


# --- the scaled concordance: rows of two classes and of none

ANY_LABEL: list[Row] = [*LABELLED, (None, 0)]
BITS = 20


def concordance_of(table: Table) -> Concordance:
    counts = histograms(tuple(row for row in table if row[0] is not None))
    return Concordance.of(*counts)


@cache
def numbers_of(table: Table) -> tuple[int, int, int]:
    exact = concordance_of(table)
    return exact.scaled(BITS), exact.positives, exact.negatives


def steps(domain: Sequence[Row], most: int, relation: Relation) -> Counter[tuple[int, int]]:
    """Return by the changes of both counts how far the concordance moves at most, in units of ``2**-20``."""
    found: Counter[tuple[int, int]] = Counter()
    for pair in neighbouring_pairs(domain, most, relation):
        one, other = (numbers_of(tuple(sorted(table, key=str))) for table in pair)
        moved = tuple(sorted(abs(a - b) for a, b in zip(one[1:], other[1:], strict=True)))
        found[moved] = max(found[moved], abs(one[0] - other[0]))  # type: ignore[index]
    return found


def test_concordance_of_scores_is_that_of_cells() -> None:
    """All ties, whichever class is the smaller one; so steps of the one are steps of the other."""
    for size in range(7):
        for table in itertools.combinations_with_replacement(LABELLED, size):
            scores = [
                np.array([cell for label, cell in table if label is wanted], dtype=float) for wanted in (False, True)
            ]
            assert Concordance.of_scores(*scores) == concordance_of(table)


@given(
    st.lists(
        st.tuples(st.sampled_from([-1.0, 0.0, 1.0]), st.floats(width=32) | st.sampled_from([0.5, 0.25])), max_size=12
    )
)
def test_rows_move_the_concordance_of_scores_as_they_may(rows: list[tuple[float, float]]) -> None:
    """At any resolution: of random neighbours, one row added, removed or replaced; batches in any order."""

    def scaled(part: list[tuple[float, float]]) -> tuple[int, int, int]:
        fold = ClassScores(-1.0, 1.0, 0.0)
        for target, score in part:
            fold.add(np.array([target]), np.array([[score]]), Batch())
        exact = Concordance.of_scores(*fold.scores)
        return exact.scaled(BITS), exact.positives, exact.negatives

    one = 1 << BITS
    whole = scaled(rows)
    assert scaled(rows[::-1]) == whole
    if rows:
        without = scaled(rows[1:])
        assert abs(whole[0] - without[0]) <= one
        assert sum(abs(a - b) for a, b in zip(whole[1:], without[1:], strict=True)) <= 1
        replaced = scaled([(rows[0][0], -rows[0][1]), *rows[1:]])
        assert abs(whole[0] - replaced[0]) <= 2 * one
        assert whole[1:] == replaced[1:]


def test_concordance_is_the_definition() -> None:
    for size in range(6):
        for table in itertools.combinations_with_replacement(ANY_LABEL, size):
            exact, rows = concordance_of(table), [row for row in table if row[0] is not None]
            scaled = concordance(rows)
            assert exact.scaled(BITS) == math.floor(scaled * (1 << BITS) + Fraction(1, 2))
            if exact.positives and exact.negatives:
                per = Fraction(len(rows) - 1, 2 * exact.positives * exact.negatives)
                assert area(rows) == Fraction(1, 2) + scaled * per


@pytest.mark.parametrize("most", [5, pytest.param(6, marks=pytest.mark.slow)])
def test_steps_of_the_concordance(most: int) -> None:
    """All tables: a row is worth 1 and one count; a replaced one 2 in its class, 1 and both counts from class to class."""
    one = 1 << BITS
    assert steps(ANY_LABEL, most, "add_remove") == {(0, 1): one, (0, 0): 0}
    assert steps(ANY_LABEL, most, "replace") == {(0, 0): 2 * one, (0, 1): one, (1, 1): one}
    assert concordance_sensitivity(relation_of("add_remove")) == 1
    assert concordance_sensitivity(relation_of("replace")) == 2


def loss_of(part: ConcordanceNoise, first: Table, second: Table) -> float:
    """Return the loss between two tables: an epsilon, or the square of a mu."""
    one, other = (np.array(part_numbers(part, table), dtype=object) for table in (first, second))
    moves = [float(abs(a - b)) for a, b in zip(one, other, strict=True)]
    if part.mu is None:
        scales = [float(part.scales[0]), *[float(part.scales[1])] * 2]
        return math.fsum(move / scale for move, scale in zip(moves, scales, strict=True))
    deviations = [part.deviations[0] * 2.0**part.bits, *[part.deviations[1]] * 2]
    return math.fsum((move / deviation) ** 2 for move, deviation in zip(moves, deviations, strict=True))


def part_numbers(part: ConcordanceNoise, table: Table) -> tuple[int, int, int]:
    exact = concordance_of(table)
    return exact.scaled(part.bits), exact.positives, exact.negatives


def noise_of(relation: Relation, mu: Fraction | None, rows: int = 1) -> ConcordanceNoise:
    delta = None if mu is None else Fraction(1, 10**6)
    return ConcordanceNoise("area", Fraction(1), delta, mu, relation, rows)


@cases("mu", [None, Fraction(1)], quick=2)
@cases("relation", RELATIONS)
def test_loss_of_the_concordance(relation: Relation, mu: Fraction | None) -> None:
    """All of the loss is spent by some pair, and never more."""
    part = noise_of(relation, mu)
    worst = max(loss_of(part, *pair) for pair in neighbouring_pairs(ANY_LABEL, 4, relation))
    assert 0.999 < worst <= 1 + 1e-9


@cases("mu", [None, Fraction(1)], quick=1)
@cases("relation", RELATIONS)
def test_loss_of_the_concordance_for_units(relation: Relation, mu: Fraction | None) -> None:
    """Units of at most two rows, next to at most two rows of others."""
    part = noise_of(relation, mu, 2)
    tables = [t for size in range(3) for t in itertools.combinations_with_replacement(ANY_LABEL, size)]
    worst = 0.0
    for rest in tables:
        pairs = ((t, ()) for t in tables) if relation == "add_remove" else itertools.combinations(tables, 2)
        worst = max(worst, *(loss_of(part, (*rest, *one), (*rest, *other)) for one, other in pairs))
    assert 0.6 < worst <= 1 + 1e-9


@cases("epsilon", [Fraction(1, 10**9), Fraction(1), Fraction(10**6)])
@cases("rows", [1, 10**6])
def test_the_unit_of_the_concordance_is_public_and_fits(epsilon: Fraction, rows: int) -> None:
    part = ConcordanceNoise("area", epsilon, None, None, "replace", rows)
    assert part.bits == 0 or part.scales[0] <= 1 << 47
    assert part.bits == 20 or part.scales[0] * 2 > 1 << 47
