"""Selection mechanisms against their exact laws; noise scaled by 0.7 and 1.3 must be told apart.

Per case the rates of a false alarm and of missing the wrong scale are 1e-8; `runs_needed` sizes the samples.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import chdtrc

from dpsql.mechanisms.one_shot import SubsetRace, select
from dpsql.mechanisms.ranking import Ranking
from dpsql.noise.entropy import SYSTEM, WordReader
from dpsql.noise.race import integer_scores
from support.audits import FALSE_ALARM, judge
from support.cases import cases
from support.laws.selection import canonical_lipschitz_law, select_law


@cases("noise", ["exponential", "gumbel"], quick=1)
@cases(
    ("utility", "k", "epsilon"),
    [([5, 3, 3, 1, 0], 2, 5), ([8, 0, 1], 1, 1), ([2, 9, 4, 4], 3, 7), ([10**25 + 3, 10**25], 2, 2)],
)
def test_select(noise, utility, k, epsilon):
    def sampler(at, runs):
        return [tuple(select(utility, utility_range=2, epsilon=at, k=k, noise=noise).tolist()) for _ in range(runs)]

    def law(at):
        return select_law(utility, utility_range=2, epsilon=at, k=k, noise=noise)

    judge(sampler, law, Fraction(epsilon), runs=1000)


@pytest.mark.long
@pytest.mark.parametrize(
    ("utility", "k", "gamma", "epsilon"),
    [
        ([5, 3, 3, 1, 0], 2, Fraction(1, 2), 4),
        ([0, 6, 1, 6, 2], 3, Fraction(1, 4), 3),
        ([4, 9, 0], 1, Fraction(3, 4), 1),
        ([3, 3, 0, 0, 7, 2], 4, Fraction(1, 2), 3),
    ],
)
def test_canonical_lipschitz(utility, k, gamma, epsilon):
    def sampler(at, runs):
        race = SubsetRace(Ranking(integer_scores(utility), k), at / 2, gamma)
        reader = WordReader(SYSTEM)
        return [tuple(race.draw(reader).tolist()) for _ in range(runs)]

    def law(at):
        return canonical_lipschitz_law(utility, utility_range=2, epsilon=at, k=k, gamma=gamma)

    judge(sampler, law, Fraction(epsilon), runs=1000)


def levels_law(scores, k, coefficient, gamma):
    """Law of (best excluded, worst included) when many scores tie, by quadrature over the winning level.

    With S uniform on (0, exp(loss)] per subset, P(level wins) is the integral of
    ``n_l w_l / (1 - s w_l) * prod_m (1 - s w_m)**n_m``; w is at most 1 and the n add up to C(d, k).
    """
    values = sorted(scores, reverse=True)
    sizes: Counter[tuple[int, int]] = Counter()
    sizes[values[k - 1], values[k - 1]] += 1
    for h, last in itertools.product(range(k), range(1, len(values) - k + 1)):
        members = math.comb(k + last - h - 2, k - h - 1)
        outside, inside = values[h], values[k + last - 1]
        sizes[outside, inside] += members
    levels = list(sizes)
    count = np.array([float(sizes[level]) for level in levels])
    loss = np.array([float((1 - gamma) * outside - gamma * inside) for outside, inside in levels])
    weight = np.exp(-coefficient * (loss - loss.min()))
    total = float(count @ weight)
    nodes, quadrature = np.polynomial.legendre.leggauss(400)
    law = np.zeros(len(levels))
    reach = min(1.0, 60.0 / total)  # beyond, nobody is left: exp(-60)
    for low, high in itertools.pairwise(np.linspace(0.0, reach, 21)):
        s = (high - low) / 2 * nodes + (high + low) / 2
        log_all = (np.log1p(-np.minimum(s[:, None] * weight, 1 - 1e-16)) * count).sum(axis=1)
        law += (high - low) / 2 * (quadrature * np.exp(log_all)) @ (count * weight / (1.0 - s[:, None] * weight))
    return dict(zip(levels, law.tolist(), strict=True))


@pytest.mark.long
@pytest.mark.parametrize(
    ("repeats", "k", "epsilon"),
    [
        ([(9, 3), (6, 30), (0, 300)], 4, 3),
        ([(20, 2), (10, 5), (0, 600)], 5, 2),
        ([(4, 20), (0, 300)], 3, 4),
        ([(8, 1), (4, 1), (2, 1), (0, 300)], 2, 2),
    ],
)
def test_canonical_lipschitz_with_many_candidates(repeats, k, epsilon):
    """Hundreds of candidates take the path with levels and blocks; few distinct scores keep the law countable."""
    scores = np.random.default_rng(0).permutation([value for value, times in repeats for _ in range(times)])
    gamma = Fraction(1, 2)

    def level(chosen):
        outside, inside = int(np.delete(scores, chosen).max()), int(scores[chosen].min())
        return max(outside, inside), inside

    def sampler(at, runs):
        race = SubsetRace(Ranking(integer_scores(scores), k), at, gamma)
        reader = WordReader(SYSTEM)
        return [level(race.draw(reader)) for _ in range(runs)]

    def law(at):
        found = levels_law(scores.tolist(), k, float(at), float(gamma))
        assert math.fsum(found.values()) == pytest.approx(1.0, abs=1e-9)
        return found

    judge(sampler, law, Fraction(epsilon), runs=1000)


def test_tied_candidates_are_selected_equally_often():
    """Flat scores: every one of 300 candidates, at every position in the table, with chance k / d."""
    race = SubsetRace(Ranking(integer_scores([7] * 300), 10), Fraction(1), Fraction(1, 2))
    reader = WordReader(SYSTEM)
    runs = 1500
    counts = sum(np.bincount(race.draw(reader), minlength=300) for _ in range(runs))
    # Counts are binomial and negatively correlated: chi-square with 299 degrees, times 299 / 300 * 10 / 9.7 or so.
    expected = runs * 10 / 300
    statistic = float(((counts - expected) ** 2).sum() / (expected * (1 - 10 / 300))) * 299 / 300
    assert chdtrc(299, statistic) > FALSE_ALARM
    assert chdtrc(299, statistic) < 1 - FALSE_ALARM
