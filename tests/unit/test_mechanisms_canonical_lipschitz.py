from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import ParameterError
from dpsql.mechanisms import ranking as ranking_module
from dpsql.mechanisms.one_shot import SubsetRace, canonical_lipschitz
from dpsql.mechanisms.ranking import Ranking
from dpsql.noise.discrete import LazyExponential
from dpsql.noise.entropy import WordReader
from dpsql.noise.race import integer_scores
from dpsql.testing.bits import ScriptedBits, SeededBits
from dpsql.testing.distribution import fit
from support.cases import cases
from support.laws.selection import canonical_lipschitz_law, subset_loss

HALF = Fraction(1, 2)


def draw(utility, *, k, epsilon, gamma=HALF, utility_range=2, **options):
    return canonical_lipschitz(
        utility, utility_range=utility_range, epsilon=Fraction(epsilon), k=k, gamma=gamma, **options
    ).tolist()


def classes(size, k):
    """Pairs (h, places behind k) with their sizes, as the mechanism counts them."""
    yield k - 1, 0, 1
    for h in range(k):
        for last in range(1, size - k + 1):
            yield h, last, math.comb(k + last - h - 2, k - h - 1)


@cases("size", [2, 3, 5, 8, 13, 40, 200])
def test_class_sizes_sum_to_the_number_of_subsets(size):
    for k in range(1, size) if size <= 40 else (1, 7, 100, 199):
        found = list(classes(size, k))
        assert len(found) == 1 + k * (size - k)
        assert sum(members for _, _, members in found) == math.comb(size, k)


@pytest.mark.parametrize("gamma", [Fraction(1, 10), HALF, Fraction(9, 10)])
def test_loss_is_its_closed_form(gamma):
    generator = np.random.default_rng(0)
    for _ in range(200):
        size = int(generator.integers(2, 8))
        k = int(generator.integers(1, size))
        utility = generator.integers(0, 4, size).tolist()  # many ties
        for subset in itertools.combinations(range(size), k):
            worst = min(utility[j] for j in subset)
            best = max(utility[j] for j in range(size) if j not in subset)
            assert subset_loss(utility, subset, gamma) == (1 - gamma) * max(best, worst) - gamma * worst


@cases("seed", range(30))
def test_every_class_has_the_loss_of_its_members(seed):
    """exponent = coefficient * (loss - least loss), by which the sampler goes, against the definition."""
    generator = np.random.default_rng(seed)
    size = int(generator.integers(2, 8))
    k = int(generator.integers(1, size))
    gamma = Fraction(int(generator.integers(1, 10)), 10)
    utility = generator.integers(0, 6, size).tolist()
    ranking = Ranking(integer_scores(utility), k)
    race = SubsetRace(ranking, Fraction(3), gamma)
    reader = WordReader(SeededBits(seed))
    least = min(subset_loss(utility, subset, gamma) for subset in itertools.combinations(range(size), k))
    for _ in range(40):
        candidate = race._propose(reader)
        subset = ranking.subset(candidate.included, candidate.last, reader)
        assert candidate.exponent == 3 * (subset_loss(utility, subset, gamma) - least)


def settings(monkeypatch, sort_all=256, levels=1 << 16, step=1.0):
    monkeypatch.setattr(ranking_module, "_SORT_ALL", sort_all)
    monkeypatch.setattr(ranking_module, "_LEVELS", levels)
    monkeypatch.setattr(ranking_module, "_STEP", step)
    ranking_module._growth_edges.cache_clear()


@pytest.fixture(autouse=True)
def _fresh_edges():
    yield
    ranking_module._growth_edges.cache_clear()


@cases("sort_all", [0, 256], quick=6)
@cases("seed", range(12))
def test_envelopes_hold_for_every_class_and_are_tight(monkeypatch, seed, sort_all):
    settings(monkeypatch, sort_all=sort_all)
    generator = np.random.default_rng(seed)
    size = int(generator.integers(10, 120))
    k = int(generator.integers(1, min(size, 20)))
    utility = generator.integers(0, 10 ** int(generator.integers(1, 6)), size)
    ranking = Ranking(integer_scores(utility), k)
    race = SubsetRace(ranking, Fraction(1, 10 ** int(generator.integers(0, 5))), HALF)
    total = 0.0
    for h in range(k):
        weights = race._weights(race._row_bounds(h, h + 1))[0]
        for block, weight in enumerate(weights.tolist()):
            first, last = int(race._firsts[block]), int(race._lasts[block])
            envelope = math.log(weight) + race._scale - 40 * math.log(2) - math.log(last - first + 1)
            for place in range(first, last + 1):
                exponent = race._below * ranking.gap(place) + race._above * int(ranking.head_gaps[h])
                log_rate = math.log(math.comb(k + place - h - 2, k - h - 1)) - float(exponent)
                assert log_rate + 1.5 * 2.0**-20 <= envelope  # the margin of the logarithms and that of the weights
                total += math.exp(log_rate - race._scale)
    proposed = race._cumulative[-1] / 2.0**40
    best = math.exp(-race._scale)
    assert 1.0 - 1e-9 < proposed / (total + best) < math.e**2 + 1e-3


@cases(
    "change",
    [{}, {"sort_all": 0}, {"sort_all": 0, "levels": 3}, {"sort_all": 0, "step": 50.0}, {"sort_all": 0, "step": 0.1}],
    quick=2,
)
@cases(
    ("utility", "k", "gamma"),
    [([5, 3, 3, 1, 0], 2, HALF), ([4, 4, 2, 2, 2, 0], 3, Fraction(1, 5)), ([0, 3, 1, 2], 1, Fraction(9, 10))],
)
def test_law_is_exact_under_any_envelope(monkeypatch, change, utility, k, gamma):
    """Loose or tight blocks change the time of a draw and nothing else. False-alarm rate 1e-8 per case."""
    settings(monkeypatch, **change)
    race = SubsetRace(Ranking(integer_scores(utility), k), Fraction(1), gamma)
    reader = WordReader(SeededBits(6))
    drawn = [tuple(race.draw(reader).tolist()) for _ in range(1500)]
    law = canonical_lipschitz_law(utility, utility_range=1, epsilon=Fraction(1), k=k, gamma=gamma)
    assert fit(drawn, law, false_alarm=1e-8).accepted


@cases("exponent", [Fraction(1, 10), Fraction(1), Fraction(40)], quick=1)
def test_first_visit_has_the_chance_of_the_clock(exponent):
    """``exp(-(1 - p) T)``, T the elapsed time, here 2 standard exponentials of known size over the total rate."""
    race = SubsetRace(Ranking(integer_scores([3, 2, 1]), 1), Fraction(1), HALF)
    reader = WordReader(SeededBits(4))
    unit = math.exp(race._scale) * race._cumulative[-1] / 2.0**40
    runs, words = 4000, [1 << 63, 3 << 61]
    elapsed = (math.log(2) + math.log(8 / 3)) / unit
    chance = math.exp(-(1 - math.exp(-exponent)) * elapsed)
    hits = [
        race._is_first_visit(exponent, [LazyExponential(WordReader(SeededBits(9)), word) for word in words], reader)
        for _ in range(runs)
    ]
    assert fit(hits, {True: chance, False: 1 - chance}, false_alarm=1e-8).accepted


def test_first_visit_with_zero_prefixes():
    """64 zero bits say that a variable is above 44; that decides, unless both are unbounded."""
    race = SubsetRace(Ranking(integer_scores([3, 2, 1]), 1), Fraction(1), HALF)

    def outcome(clock_word, word):
        clock = [LazyExponential(WordReader(SeededBits(1)), clock_word)]
        return race._is_first_visit(Fraction(10), clock, WordReader(ScriptedBits([word]))), clock[0].bits

    assert outcome(0, 1 << 63) == (False, 64)
    assert outcome(1 << 63, 0) == (True, 64)
    assert outcome(0, 0)[1] > 64


class TestLimits:
    @pytest.mark.parametrize("size", [6, 400])
    def test_infinite_epsilon_gives_the_top_k(self, size):
        utility = [(7 * j) % size for j in range(size)]
        expected = sorted(sorted(range(size), key=lambda j: -utility[j])[:5])
        assert draw(utility, k=5, epsilon=10**6) == expected

    @pytest.mark.long
    def test_vanishing_epsilon_is_uniform(self):
        drawn = [tuple(draw([9, 0, 4, 0], k=2, epsilon=Fraction(1, 10**9))) for _ in range(1500)]
        uniform = dict.fromkeys(itertools.combinations(range(4), 2), 1 / 6)
        assert fit(drawn, uniform, false_alarm=1e-8).accepted

    def test_all_features_is_one_subset(self):
        assert draw([3, 1, 2], k=3, epsilon=1, source=ScriptedBits([])) == [0, 1, 2]

    def test_single_candidate(self):
        assert draw([3], k=1, epsilon=1) == [0]

    @pytest.mark.parametrize("gamma", [Fraction(1, 100), HALF, Fraction(99, 100)])
    @pytest.mark.parametrize("shift", [1, -(10**12), 10**40])
    def test_a_constant_shift_changes_nothing(self, gamma, shift):
        utility = [3, 0, -7, 2, 2]
        for seed in range(5):
            one, other = (
                draw(values, k=2, epsilon=3, gamma=gamma, source=SeededBits(seed))
                for values in (utility, [value + shift for value in utility])
            )
            assert one == other

    @pytest.mark.parametrize("unit", [1, 2**60, 10**40])
    def test_units_cancel(self, unit):
        utility = [3, 1, 4, 1, 5]
        for seed in range(3):
            one = draw(utility, k=2, epsilon=3, source=SeededBits(seed))
            scaled = [value * unit for value in utility]
            assert one == draw(scaled, k=2, epsilon=3, utility_range=2 * unit, source=SeededBits(seed))

    @pytest.mark.parametrize(
        "epsilon", [Fraction(1, 10**400), Fraction(1, 10**30), Fraction(10**30), Fraction(10**400)]
    )
    @pytest.mark.parametrize("size", [5, 400])
    def test_extreme_epsilon(self, epsilon, size):
        chosen = draw([j * j % 17 for j in range(size)], k=3, epsilon=epsilon)
        assert len(set(chosen)) == 3
        assert chosen == sorted(chosen)

    @pytest.mark.parametrize("k", [1, 2, 100, 250, 498, 499])
    def test_any_k(self, k):
        chosen = draw(np.arange(500) % 7, k=k, epsilon=1)
        assert len(set(chosen)) == k
        assert min(chosen) >= 0
        assert max(chosen) < 500

    def test_int64_extremes(self):
        assert draw([2**63 - 1, -(2**63), 0], k=1, epsilon=10) == [0]
        assert draw([2**63 - 1, -(2**63), 2**63 - 2], k=2, epsilon=10) == [0, 2]

    def test_a_million_candidates(self):
        utility = np.random.default_rng(0).permutation(10**6)
        chosen = draw(utility, k=100, epsilon=100)
        assert np.sort(utility[chosen]).tolist() == list(range(10**6 - 100, 10**6))
        flat = draw(np.zeros(10**6, dtype=np.int64), k=100, epsilon=1)
        assert len(set(flat)) == 100


@cases(
    ("change", "code"),
    [
        ({"epsilon": Fraction(0)}, "P018"),
        ({"epsilon": 1.0}, "P018"),
        ({"k": 0}, "P002"),
        ({"k": 4}, "P002"),
        ({"gamma": Fraction(0)}, "P018"),
        ({"gamma": Fraction(1)}, "P018"),
        ({"gamma": 0.5}, "P018"),
        ({"utility_range": 0}, "P018"),
        ({"utility": [1.0, 2.0, 3.0]}, "P018"),
    ],
)
def test_parameters_are_checked(change, code):
    arguments = {"utility": [1, 2, 3], "utility_range": 2, "epsilon": Fraction(1), "k": 1, "gamma": HALF} | change
    with pytest.raises(ParameterError, match=code):
        canonical_lipschitz(arguments.pop("utility"), **arguments)
