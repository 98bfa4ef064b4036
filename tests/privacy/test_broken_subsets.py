"""Planted faults of subset selection, by exact laws; the right mechanism passes the same checks."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from dpsql.testing import check_exhaustively
from dpsql.testing.neighbours import RELATIONS, Relation, Table
from support.broken import subsets as broken
from support.broken.subsets import Law, Subset, ball_scores, exponential_law, near_tie, steep_rows
from support.cases import cases

# Of scores that a row raises by amounts in [0, 1].
RANGE = {"add_remove": 1, "replace": 2}
MISREAD = [broken.accepted_listed_law, broken.kept_branch_law, broken.overweight_tail_law]


def log_ratio(first: Mapping[Any, float], second: Mapping[Any, float]) -> float:
    """Largest loss over all outputs, in either direction."""
    ratios = [(first.get(output, 0.0), second.get(output, 0.0)) for output in {*first, *second}]
    return max(math.inf if not (p and q) else abs(math.log(p / q)) for p, q in ratios)


def best(scores: Mapping[Subset, float], count: int) -> list[Subset]:
    return sorted(scores, key=lambda A: (scores[A], A))[:count]


def numbered(values: tuple[int, ...]) -> dict[Subset, int]:
    return {(number,): value for number, value in enumerate(values)}


def with_best_list(
    law: Callable[..., Law], scores: Mapping[Subset, int], count: int, slack: int, **options: Any
) -> Law:
    listed = best(scores, count)
    return law(scores, listed, scores[listed[-1]] + slack, **options)


@cases("law", MISREAD)
@cases("epsilon", [0.01, 1.0])
def test_misread_rejection_depends_on_the_list(law: Callable[..., Law], epsilon: float) -> None:
    """Two tied sets, one listed: the law tells which, on one and the same table."""
    scores = numbered((0, 0))
    one, other = (law(scores, [listed], 0, utility_range=1, epsilon=epsilon) for listed in scores)
    assert log_ratio(one, other) == pytest.approx(math.log(2))
    assert max(one.values()) == pytest.approx(2 / 3)


# Scores 4 units apart are the range; the bound is the last listed score, plus 2 ranges for the unsound one.
PAIRS = [
    (
        broken.accepted_listed_law,
        6,
        0,
        ((7, 38, 1, 3, 26, 34, 38, 30, 18), (11, 42, 5, 7, 30, 34, 42, 34, 22)),
        {0.25: 3.741, 1.0: 1.693},
    ),
    (
        broken.kept_branch_law,
        8,
        0,
        ((2, 16, 4, 10, 35, 33, 14, 6, 12), (2, 16, 4, 10, 37, 37, 14, 6, 12)),
        {0.25: 9.575, 1.0: 3.196},
    ),
    (
        broken.overweight_tail_law,
        8,
        0,
        ((38, 37, 3, 23, 5, 10, 23, 23, 4), (38, 38, 6, 27, 9, 13, 27, 23, 8)),
        {0.25: 9.189, 1.0: 2.821},
    ),
    (
        broken.unsound_bound_law,
        8,
        8,
        ((2, 16, 4, 10, 35, 33, 14, 6, 12), (2, 16, 4, 10, 37, 37, 14, 6, 12)),
        {0.25: 2.958, 1.0: 2.9999},
    ),
]


@pytest.mark.parametrize(("law", "count", "slack", "pair", "losses"), PAIRS)
def test_wrong_rejection_on_neighbours(
    law: Callable[..., Law],
    count: int,
    slack: int,
    pair: tuple[tuple[int, ...], tuple[int, ...]],
    losses: dict[float, float],
) -> None:
    """Scores that rise by amounts in [0, 4]: loss in units of epsilon."""
    tables = [numbered(values) for values in pair]
    assert all(0 <= tables[1][A] - tables[0][A] <= 4 for A in tables[0])
    for epsilon, loss in losses.items():
        options = {"utility_range": 4, "epsilon": epsilon}
        found = log_ratio(*(with_best_list(law, scores, count, slack, **options) for scores in tables)) / epsilon
        assert found == pytest.approx(loss, abs=2e-3)
        assert log_ratio(*(exponential_law(scores, **options) for scores in tables)) <= epsilon * (1 + 1e-9)


def test_a_gap_that_shrinks_when_the_list_is_full() -> None:
    tables = [numbered((39, 2)), numbered((43, 2))]
    options = {"utility_range": 4, "epsilon": 1}
    laws = [broken.shrinking_gap_law(scores, gap=40, most=1, **options) for scores in tables]
    assert log_ratio(*laws) == pytest.approx(7.4211, abs=1e-3)
    cut = [{A: min(score, 2 + 40, min(scores.values())) for A, score in scores.items()} for scores in tables]
    assert log_ratio(*(exponential_law(scores, **options) for scores in cut)) <= 1 + 1e-9


BASE = (0, 1, 3, 5)
ROWS = list(itertools.product((0, 1), repeat=len(BASE)))


def worst(law: Callable[[dict[Subset, int]], Law], relation: Relation) -> float:
    """Loss over all neighbouring tables of at most 4 rows, each of which raises every score by 0 or 1."""

    def values(table: Table) -> tuple[int, ...]:
        return tuple(start + sum(row[number] for row in table) for number, start in enumerate(BASE))

    return check_exhaustively(lambda table: law(numbered(values(table))), ROWS, 4, relation, key=values).log_ratio


def cut_law(scores: dict[Subset, int], *, rank: int, gap: int, **options: Any) -> Law:
    order = sorted(scores.values())
    limit = min(order[rank - 1], order[0] + gap)
    return exponential_law({A: min(score, limit) for A, score in scores.items()}, **options)


@pytest.mark.long
@pytest.mark.parametrize("relation", RELATIONS)
def test_exhaustively(relation: Relation) -> None:
    options = {"utility_range": RANGE[relation], "epsilon": 0.5}
    assert 0.4 < worst(lambda scores: exponential_law(scores, **options), relation) <= 0.5 + 1e-9
    for rank, gap in [(1, 3), (2, 100), (3, 2), (4, 100)]:
        assert worst(lambda scores, r=rank, g=gap: cut_law(scores, rank=r, gap=g, **options), relation) <= 0.5 + 1e-9
    for law in MISREAD:
        assert worst(lambda scores, law=law: with_best_list(law, scores, 2, 0, **options), relation) > 0.55
    assert worst(lambda s: with_best_list(broken.unsound_bound_law, s, 2, 2, **options), relation) > 0.55
    assert worst(lambda s: broken.shrinking_gap_law(s, gap=4, most=3, **options), relation) > 0.55
    # Twice the coefficient, as if scores that fall and rise were monotone.
    if relation == "replace":
        assert worst(lambda scores: exponential_law(scores, utility_range=1, epsilon=0.5), relation) > 0.55


@cases("relation", RELATIONS, quick=1)
def test_scores_in_an_interval(relation: Relation) -> None:
    """Scores that lie anywhere in an interval of width 1 above the true ones: Delta + 2 w, and 2 (Delta + w)."""

    def used(scores: dict[Subset, int]) -> dict[Subset, int]:
        anywhere = random.Random(str(scores))
        return {A: score + anywhere.choice((0, 1)) for A, score in scores.items()}

    inflated = {"add_remove": 3, "replace": 4}[relation]
    law = worst(lambda scores: exponential_law(used(scores), utility_range=inflated, epsilon=0.5), relation)
    assert law <= 0.5 + 1e-9
    plain = worst(lambda s: exponential_law(used(s), utility_range=RANGE[relation], epsilon=0.5), relation)
    assert plain > 0.55


def scores_with_and_without(
    example: tuple[np.ndarray, np.ndarray, np.ndarray, float], size: int, radius: float, largest: float
) -> tuple[dict[Subset, float], dict[Subset, float]]:
    """Brute-force scores of a table, and of the table with its row more; every score rises by at most `largest`."""
    features, target, row, value = example
    before = ball_scores(features, target, size, radius)
    after = ball_scores(np.vstack([features, row]), np.append(target, value), size, radius)
    assert all(-1e-9 <= after[A] - before[A] <= largest for A in before)
    return before, after


@pytest.mark.parametrize(("repeats", "loss"), [(1, 0.4642), (4, 2.2804), (16, 9.8231), (64, 39.9663)])
def test_mistakes(repeats: int, loss: float) -> None:
    """Features in [-1/2, 1/2], target in [-1, 1], coefficients in a ball of radius 3/2, epsilon = 1."""
    radius = 1.5
    options = {"utility_range": (1 + 0.5 * radius * math.sqrt(2)) ** 2, "epsilon": 1}
    tables = scores_with_and_without(near_tie(repeats), 2, radius, options["utility_range"])
    assert [best(scores, 1) for scores in tables] == [[(0, 1)], [(2, 3)]]
    mistakes = [broken.mistakes_law(scores, **options) for scores in tables]
    assert log_ratio(*mistakes) == pytest.approx(loss, abs=1e-3)
    assert log_ratio(*(broken.best_of_class_law(scores, **options) for scores in tables)) == math.inf
    assert log_ratio(*(exponential_law(scores, **options) for scores in tables)) <= 1


def test_mistakes_law_is_that_of_the_definition() -> None:
    scores = {A: float(sum(A)) for A in itertools.combinations(range(5), 2)}
    law = broken.mistakes_law(scores, utility_range=2, epsilon=1)
    weights = [math.comb(2, k) * math.comb(3, k) * math.exp(-least / 2) for k, least in enumerate((1, 2, 5))]
    assert law[0, 1] == pytest.approx(weights[0] / sum(weights))
    assert law[0, 4] == pytest.approx(weights[1] / sum(weights) / 6)
    assert law[3, 4] == pytest.approx(weights[2] / sum(weights) / 3)
    single = broken.best_of_class_law(scores, utility_range=2, epsilon=1)
    assert single[0, 2] == pytest.approx(weights[1] / sum(weights))
    assert list(single) == [(0, 1), (0, 2), (2, 3)]


def test_range_without_the_radius() -> None:
    tables = scores_with_and_without(steep_rows(1000), 1, 3.0, 4.0)
    wrong = broken.range_without_radius(feature_bound=0.5, target_bound=0.5, size=1)
    assert wrong == 1
    for utility_range, loss in [(wrong, 3.29), (4, 0.6136)]:
        laws = [exponential_law(scores, utility_range=utility_range, epsilon=1) for scores in tables]
        assert log_ratio(*laws) == pytest.approx(loss, abs=1e-3)


def test_ball_scores_are_least_squares_in_the_ball() -> None:
    generator = np.random.default_rng(0)
    for radius in (0.3, 100.0):
        x, y = generator.normal(size=(30, 3)), generator.normal(size=30)
        found = ball_scores(x, y, 2, radius)
        angle, length = np.meshgrid(np.linspace(0, 2 * math.pi, 721), np.linspace(0, min(radius, 2), 201))
        for subset, score in found.items():
            residuals = y - np.stack([length * np.cos(angle), length * np.sin(angle)], -1) @ x[:, list(subset)].T
            assert score <= (residuals**2).sum(-1).min() <= score + 0.02
