"""The privacy statements, on exact laws: random neighbouring scores with ties, and constants that are too small."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.mechanisms import one_shot as module
from support.laws.selection import canonical_lipschitz_law, select_law

EPSILON = Fraction(1)


def largest_ratio(law, other):
    return max(abs(math.log(law[output] / other[output])) for output in law)


def neighbours(generator, size, monotone):
    """Scores, and scores that moved by at most 1 each; in one direction if `monotone`."""
    scores = generator.integers(0, int(generator.choice([1, 3, 8, 60])), size)
    kind = generator.integers(0, 3)
    if kind == 0:
        change = generator.choice([0, 1] if monotone else [-1, 1], size)
    else:
        change = generator.integers(0 if monotone else -1, 2, size)
    return scores.tolist(), (scores + change).tolist()


def search(law_of, *, monotone, cases=1500, seed=0):
    generator = np.random.default_rng(seed)
    worst = 0.0
    for _ in range(cases):
        size = int(generator.integers(2, 6))
        k = int(generator.integers(1, size))
        scores, moved = neighbours(generator, size, monotone)
        worst = max(worst, largest_ratio(law_of(scores, k), law_of(moved, k)))
    return worst


def select_of(noise, utility_range):
    return lambda scores, k: select_law(scores, utility_range=utility_range, epsilon=EPSILON, k=k, noise=noise)


def canonical_of(gamma, utility_range):
    return lambda scores, k: canonical_lipschitz_law(
        scores, utility_range=utility_range, epsilon=EPSILON, k=k, gamma=gamma
    )


@pytest.mark.long
@pytest.mark.parametrize("noise", ["exponential", "gumbel"])
def test_select_spends_at_most_epsilon(noise):
    assert 0.8 < search(select_of(noise, 2), monotone=False) <= 1.0 + 1e-9
    assert 0.8 < search(select_of(noise, 1), monotone=True) <= 1.0 + 1e-9


@pytest.mark.long
@pytest.mark.parametrize("gamma", [Fraction(1, 4), Fraction(1, 2), Fraction(9, 10)])
def test_canonical_lipschitz_spends_at_most_epsilon(gamma):
    assert 0.65 < search(canonical_of(gamma, 2), monotone=False) <= 1.0 + 1e-9
    assert 0.65 < search(canonical_of(gamma, 1), monotone=True) <= 1.0 + 1e-9


def test_canonical_lipschitz_spends_all_of_epsilon_at_worst():
    """k = 1, gamma near 1: the others are far below, and rise while the best falls."""
    law = canonical_of(Fraction(999, 1000), 2)
    assert 0.99 < largest_ratio(law([40, 0, 0], 1), law([39, 1, 1], 1)) <= 1.0 + 1e-9


def test_canonical_lipschitz_draws_with_epsilon_over_the_range(monkeypatch):
    """The slopes above and below the border of a subset share the coefficient of the noise."""
    found = []

    class Noted(module.SubsetRace):
        def __init__(self, ranking, coefficient, gamma):
            super().__init__(ranking, coefficient, gamma)
            found.append((coefficient, self._below / coefficient, self._above / coefficient))

    monkeypatch.setattr(module, "SubsetRace", Noted)
    gamma = Fraction(1, 4)
    module.canonical_lipschitz(np.array([9, 7, 2, 0]), utility_range=6, epsilon=Fraction(3, 2), k=2, gamma=gamma)
    assert found == [(Fraction(1, 4), gamma, 1 - gamma)]


@pytest.mark.long
def test_the_search_would_find_a_range_that_is_too_small():
    assert search(select_of("exponential", 1), monotone=False) > 1.5
    assert search(select_of("gumbel", 1), monotone=False) > 1.5
    assert search(canonical_of(Fraction(1, 2), 1), monotone=False) > 1.2


def test_printed_classes_overlap():
    """Sizes C(t-h-1, k-h-1), as printed in the paper, add up to too many subsets."""
    for (size, k), printed in {(6, 3): 32, (9, 4): 206}.items():
        total = 1 + sum(math.comb(t - h - 1, k - h - 1) for h in range(k) for t in range(k + 1, size + 1))
        assert total == printed > math.comb(size, k)
