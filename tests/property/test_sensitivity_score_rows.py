"""How far a privacy unit moves the statistics of a classifier's steps, on random tables, and where bounds are attained."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.contract.fold import Batch
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.statistics.additive import (
    CELLS,
    CellWeights,
    ResidualSums,
    Steps,
    cells_sensitivity,
    residuals_sensitivity,
)
from dpsql.statistics.logistic_rows import Scaling
from dpsql.statistics.regression import Standard
from dpsql.statistics.score_rows import LabelledFeatures, ScoreRows
from dpsql.testing.neighbours import RELATIONS, Relation
from support.cases import cases

S = FIXED_POINT_ONE
FEATURES = 3
PAIRS = [(-1.0, 1.0), (0.0, 5.0), (-2.0, 0.5)]
Part = tuple[np.ndarray, np.ndarray]


def scaling_of(generator: np.random.Generator) -> Scaling:
    standard = Standard(generator.uniform(-0.3, 0.3, FEATURES), generator.uniform(0.05, 1, FEATURES))
    about_zero = bool(generator.random() < 0.3)
    longest = math.sqrt(FEATURES) * generator.choice([0.3, 1.0, 2.0])
    drawn = None if about_zero else standard
    return Scaling.of(PAIRS, drawn, longest=longest, about_zero=about_zero, nearest=False)


def stage(generator: np.random.Generator) -> ScoreRows:
    """Return a map of rows with random coefficients, some of them absurd."""
    size = generator.choice([0.0, 0.5, 5.0, 1e9])
    return ScoreRows.of(scaling_of(generator), generator.normal(size=1 + FEATURES) * size)


def rows_of(generator: np.random.Generator, count: int) -> Part:
    """Return features of shape (d, rows) and labels: corners, missing values, infinities and neither level."""
    features = generator.uniform(-3, 6, (FEATURES, count))
    odd = generator.random((FEATURES, count))
    features[odd < 0.3] = np.sign(features[odd < 0.3])
    features[odd > 0.9] = np.nan
    features[odd > 0.97] = math.inf
    return features, generator.choice(
        [-1.0, 1.0, 0.0, 1e300, -S, math.nan], count, p=[0.4, 0.4, 0.05, 0.05, 0.05, 0.05]
    )


def steps_of(generator: np.random.Generator) -> Steps:
    values = np.rint(generator.normal(size=(FEATURES, CELLS + 1)) * S * generator.choice([0.0, 1.0, 100.0]))
    values[:, CELLS] = 0.0
    return Steps(values, S)


def weighed(rows: ScoreRows, parts: list[Part]) -> np.ndarray:
    found = CellWeights(rows)
    for features, target in parts:
        found.add(target, features, Batch())
    return found.cells


def summed(rows: ScoreRows, steps: Steps, places: list[int], parts: list[Part]) -> np.ndarray:
    found = ResidualSums(rows, steps, places)
    for features, target in parts:
        found.add(target, features, Batch())
    return found.sums()


def squared(first: np.ndarray, second: np.ndarray) -> int:
    return sum((int(a) - int(b)) ** 2 for a, b in zip(first.ravel(), second.ravel(), strict=True))


@cases("unit", [1, 3], quick=1)
@cases("relation", RELATIONS)
def test_changes_are_within_the_bounds(relation: Relation, unit: int) -> None:
    """Of neighbouring tables, whatever was released before, of weights and of residuals."""
    generator = np.random.default_rng(unit)
    largest = [0.0, 0.0]
    for number in range(96):
        rows, steps = stage(generator), steps_of(generator)
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
        # A weight of 1 is S; residuals are at most S.
        moved = (
            Fraction(squared(*(weighed(rows, table) for table in tables)), S**2)
            / cells_sensitivity(relation, FEATURES, unit),
            Fraction(
                squared(*(summed(rows, steps, places, table) for table in tables)),
                residuals_sensitivity(relation, len(places), S, unit),
            ),
        )
        assert all(share <= 1 for share in moved), moved
        largest = [max(a, float(b)) for a, b in zip(largest, moved, strict=True)]
    assert largest[0] > 0.5, largest
    # A residual and its opposite in one cell add up to 1, unless scores differ: see below.
    assert largest[1] > (0.2 if relation == "replace" else 0.6), largest


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_bounds_are_attained(relation: Relation) -> None:
    """By even odds, and by rows of the same cells whose scores are as wrong as can be, each in its way."""
    pairs = [(-1.0, 1.0)] * 3
    scaling = Scaling.of(pairs, None, longest=math.sqrt(3), about_zero=False, nearest=False)
    none = np.empty((FEATURES, 0)), np.empty(0)
    low, high = np.full((FEATURES, 2), -1.0), np.full((FEATURES, 2), 1.0)
    even = ScoreRows.of(scaling, np.zeros(1 + FEATURES))
    tables = [(low, np.ones(2))], [none if relation == "add_remove" else (high, np.ones(2))]
    assert squared(*(weighed(even, table) for table in tables)) == cells_sensitivity(relation, FEATURES, 2) * S**2
    # The third feature decides the score, and the first two have the cells that are summed.
    sure = ScoreRows.of(scaling, np.array([0.0, 0.0, 0.0, 1e6]))
    steps = Steps(np.zeros((FEATURES, CELLS + 1)), S)
    one = np.array([[0.5] * 2, [0.5] * 2, [-1.0] * 2]), np.ones(2)
    other = np.array([[0.5] * 2, [0.5] * 2, [1.0] * 2]), -np.ones(2)
    parts = [one], [none if relation == "add_remove" else other]
    assert squared(*(summed(sure, steps, [0, 1], part) for part in parts)) == residuals_sensitivity(relation, 2, S, 2)


def test_a_row_is_mapped_by_itself_and_kept_as_it_is_read() -> None:
    """Scores do not depend on the other rows of a batch; kept rows have the integers of those that are read anew."""
    generator = np.random.default_rng(5)
    rows, steps = stage(generator), steps_of(generator)
    features, target = rows_of(generator, 700)
    quantised = rows.quantised(features)
    codes, start = rows.codes(quantised), rows.start(quantised, target)
    for at in range(0, 700, 97):
        alone = rows.quantised(features[:, at : at + 1])
        assert np.array_equal(rows.codes(alone)[0], codes[at])
        assert np.array_equal(rows.start(alone, target[at : at + 1])[0], start[at])
    kept = LabelledFeatures(rows.scaling)
    for some in (slice(0, 300), slice(300, 700)):
        kept.add(target[some], features[:, some], Batch())
    assert kept.signed.rows == np.count_nonzero(start[:, 1])
    again, read = ResidualSums(rows, steps, [0, 2]), ResidualSums(rows, steps, [0, 2])
    kept.given_up(rows).into(again)
    read.add(target, features, Batch())
    assert (again.sums() == read.sums()).all()


def test_a_score_is_what_the_model_predicts_and_its_residual_the_label_less_the_chance() -> None:
    """In the units of the columns, of rows of any length, to the fineness of the table."""
    generator = np.random.default_rng(6)
    scaling = scaling_of(generator)
    drawn = generator.normal(size=1 + FEATURES)
    rows, coefficients = ScoreRows.of(scaling, drawn), scaling.unmapped(drawn)
    features = generator.uniform(-3, 6, (FEATURES, 500))
    counted = np.array(scaling.mapped.counted(scaling.low, scaling.high))
    score = coefficients[0] + coefficients[1:] @ np.clip(features, counted[:, :1], counted[:, 1:])
    signs = generator.choice([-1.0, 1.0], 500)
    start = rows.start(rows.quantised(features), signs)
    assert np.abs(start[:, 0] / S - score).max() < 1e-4
    chance = 1 / (1 + np.exp(-(score + 0.25)))
    residuals = rows.residuals(start, np.full(500, 0.25 * S), S) / S
    assert np.abs(residuals - ((signs > 0) - chance)).max() < 2e-4
    before = 1 / (1 + np.exp(-score))
    assert np.abs(rows.weights(start) / S - 4 * before * (1 - before)).max() < 4e-4
    ends = rows.residuals(np.array([[1e12, -1.0], [-1e12, -1.0], [0.0, 0.0]]), np.zeros(3), S)
    assert ends.tolist() == [-S, 0, 0]
