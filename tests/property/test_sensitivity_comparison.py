"""How far a privacy unit moves two concordances and the pairs that two scores order differently: over small tables."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.contract.fold import Batch
from dpsql.contract.relation import relation_of
from dpsql.functions.compare import ComparePlan
from dpsql.functions.value_cells import EvenCells
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.mechanisms.auc import PairedConcordanceNoise
from dpsql.statistics.auc import Concordance
from dpsql.statistics.comparison import (
    ErrorDifferences,
    PairedScores,
    disagreeing_pairs,
    disagreement_sensitivity,
)
from dpsql.testing import neighbouring_pairs
from dpsql.testing.neighbours import RELATIONS, Relation, Row, Table

# A label that may be neither class, and the cells of two scores.
ROWS: list[Row] = [(label, a, b) for label in (0, 1) for a in range(2) for b in range(2)] + [(2, 0, 0)]


def joint(table: Table) -> np.ndarray:
    counts = np.zeros((2, 2, 2), dtype=np.int64)
    for label, a, b in table:
        if label < 2:
            counts[label, a, b] += 1
    return counts


def numbers(table: Table) -> tuple[Fraction, Fraction, int, int, Fraction]:
    """Return D, M, both class sizes, and Q."""
    counts = joint(table)
    exact = [Concordance.of(*counts.sum(axis=axis)) for axis in (2, 1)]
    others = max(1, int(counts.sum()) - 1)
    one, other = (Fraction(each.balance, others) for each in exact)
    pairs = Fraction(disagreeing_pairs(*counts), others)
    return one - other, one + other, exact[0].positives, exact[0].negatives, pairs


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("most_rows", [3, pytest.param(4, marks=pytest.mark.long)])
def test_of_a_row(relation: Relation, most_rows: int) -> None:
    """Losses of all numbers of the mechanism add up to epsilon at most, and that is reached."""
    part = PairedConcordanceNoise("areas", Fraction(1), None, None, relation, 1)
    by_pair, by_count = part.scales[0] / (1 << part.bits), part.scales[1]
    squares = part._squares[0] >> (2 * part.bits)
    most, most_pairs = Fraction(0), Fraction(0)
    for first, second in neighbouring_pairs(ROWS, most_rows, relation):
        moved = [abs(a - b) for a, b in zip(numbers(first), numbers(second), strict=True)]
        most = max(most, (moved[0] + moved[1]) / by_pair + (moved[2] + moved[3]) / by_count)
        assert moved[0] ** 2 + moved[1] ** 2 <= squares
        most_pairs = max(most_pairs, moved[4])
    assert most == 1
    assert most_pairs <= disagreement_sensitivity(relation_of(relation))
    assert most_pairs == 1


@pytest.mark.parametrize("relation", RELATIONS)
def test_random_tables(relation: Relation) -> None:
    """Larger ones: the L1 norm of difference and sum, and the pairs."""
    rng = np.random.default_rng(5)
    part = PairedConcordanceNoise("areas", Fraction(1), None, None, relation, 1)
    for _ in range(150):
        table = [tuple(map(int, row)) for row in np.c_[rng.integers(0, 2, 30), rng.integers(0, 2, (30, 2))]]
        row = (int(rng.integers(0, 3)), int(rng.integers(0, 2)), int(rng.integers(0, 2)))
        other = [*table, row] if relation == "add_remove" else [row, *table[1:]]
        moved = [abs(a - b) for a, b in zip(numbers(table), numbers(other), strict=True)]
        assert moved[0] + moved[1] <= part.moved
        assert moved[4] <= 1


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("more", [{}, {"delta": 1e-6, "noise": "gaussian"}], ids=["laplace", "gaussian"])
def test_the_areas_and_the_pairs_share_epsilon(relation: Relation, more: dict[str, object]) -> None:
    """Without the pairs the areas have all of it; what is charged is the sum."""
    for sampling, share in ((True, Fraction(4, 5)), (False, Fraction(1))):
        given = {"of": "auc", "scores": ["a", "b"], "label": "y", "neighbours": relation, "sampling": sampling}
        plan = ComparePlan.from_arguments("t", {**given, "epsilon": 0.5, **more})
        assert plan.area_part.epsilon == share / 2
        if sampling:
            assert plan.area_part.epsilon + plan.pairs_part.epsilon == Fraction(1, 2)
        assert plan.measurement.event.cost.epsilon == Fraction(1, 2)


def test_pairs_by_hand() -> None:
    """Against every pair, one by one."""
    rng = np.random.default_rng(2)
    for _ in range(30):
        rows = np.c_[rng.integers(0, 2, 25), rng.integers(0, 4, (25, 2))]
        counts = np.zeros((2, 4, 4), dtype=np.int64)
        np.add.at(counts, tuple(rows.T), 1)
        positive, negative = (rows[rows[:, 0] == label, 1:] for label in (1, 0))
        order = np.sign(positive[:, np.newaxis] - negative)
        alike = (order[..., 0] == order[..., 1]) & (order[..., 0] != 0)
        assert disagreeing_pairs(*counts) == (~alike).sum()


@pytest.mark.parametrize("levels", [True, False])
@pytest.mark.parametrize("loss", ["zero_one", "absolute", "squared"])
def test_errors_are_those_of_the_loss(loss: str, levels: bool) -> None:
    """Whatever scores and truths are; a row moves each sum by one at most."""
    draw = np.random.default_rng(3)
    lower, upper, at = -1.0, 3.0, (0.5, 1.0)
    truth = draw.choice([-1.0, 0.0, 1.0], 200) if levels else draw.normal(1.0, 2.0, 200)
    scores = draw.normal(1.0, 2.0, (2, 200))
    truth[:3], scores[0, 1:5], scores[1, 4:9] = (0.0 if levels else np.nan), np.nan, (np.inf, -np.inf, np.nan, -1, 3)
    expected = np.zeros(2)
    for right, *given in zip(truth, *scores, strict=True):
        if right == 0 if levels else np.isnan(right):
            continue
        errors = []
        for score, threshold in zip(given, at, strict=True):
            clipped = 1.0 if np.isnan(score) else min(max(score, lower), upper)
            if loss == "zero_one":
                errors.append(float((clipped >= threshold) != (right > 0)))
                continue
            whole = (upper if right > 0 else lower) if levels else min(max(right, lower), upper)
            size = abs(whole - clipped) / (upper - lower)
            errors.append(size if loss == "absolute" else size**2)
        expected += [errors[0] - errors[1], 2 * errors[0] - 1]
    sums = ErrorDifferences(loss, (lower, upper), at, levels=levels, squares=True)
    sums.add(truth, scores, Batch())
    found = sums.inner.totals[:, 0] / FIXED_POINT_ONE
    np.testing.assert_allclose(found, expected, atol=200 / FIXED_POINT_ONE)
    one = ErrorDifferences(loss, (lower, upper), at, levels=levels, squares=True)
    one.add(truth[5:6], scores[:, 5:6], Batch())
    assert (np.abs(one.inner.totals) <= FIXED_POINT_ONE).all()


@pytest.mark.parametrize("count", [3, 64, 100, 129])
def test_no_pair_that_is_tied_counts_as_agreeing(count: int) -> None:
    """Else the sampling error is too small: rows whose scores are in one cell, of however many, are in no order."""
    cells = EvenCells(0.0, 1.0, count)
    for cell in range(count):
        low, high = cells.limits(cell, cell)
        inside = low + (high - low) * np.linspace(0.1, 0.9, 9)
        fold = PairedScores(cells, 0.0, 1.0, tied=True)
        fold.add(np.where(np.arange(9) % 2, 1.0, -1.0), np.stack([inside, inside]), Batch())
        assert disagreeing_pairs(*fold.joint) == 4 * 5
        assert [one.balance for one in fold.concordances()] == [0, 0]
