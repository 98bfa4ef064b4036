from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.mechanisms import ranking as module
from dpsql.mechanisms.ranking import Ranking, log_binomial, log_factorial
from dpsql.noise.entropy import WordReader
from dpsql.noise.race import integer_scores
from dpsql.testing.bits import SeededBits
from dpsql.testing.distribution import fit
from support.cases import cases


def example(seed, size):
    """Scores with ties, outliers or a wide spread."""
    generator = np.random.default_rng(seed)
    kind = seed % 4
    if kind == 0:
        return generator.integers(0, 5, size)
    if kind == 1:
        return generator.integers(-(2**63), 2**63 - 1, size)
    if kind == 2:
        return (10**9 / (1.0 + generator.permutation(size))).astype(np.int64)
    return [int(value) * 10**30 + 2**80 for value in generator.integers(-9, 9, size)]


@cases("sort_all", [0, 256], quick=22)
@cases("size", [2, 3, 9, 300, 3000])
@cases("seed", range(8))
def test_places_are_those_of_a_full_sort(monkeypatch, seed, size, sort_all):
    monkeypatch.setattr(module, "_SORT_ALL", sort_all)
    scores = integer_scores(example(seed, size))
    k = 1 + seed * 5 % (size - 1)
    ranking = Ranking(scores, k)
    firsts, lasts, least = ranking.blocks(Fraction(1, 10 ** (seed % 12)), 40.0)
    ordered = sorted((int(value) for value in scores), reverse=True)
    assert [int(gap) for gap in ranking.head_gaps] == [value - ordered[k - 1] for value in ordered[:k]]
    # Blocks cover places 1 to d - k without holes, and `least` bounds the exponents from below.
    assert firsts[0] == 1
    assert lasts[-1] == size - k
    assert (firsts[1:] == lasts[:-1] + 1).all()
    assert (firsts <= lasts).all()
    for first, bound in zip(firsts.tolist(), least.tolist(), strict=True):
        exponent = Fraction(ordered[k - 1] - ordered[k + first - 1], 10 ** (seed % 12))
        assert Fraction(bound) * (1 - Fraction(1, 2**45)) <= exponent
    for place in {1, size - k, *np.random.default_rng(seed).integers(1, size - k + 1, 20).tolist()}:
        assert ranking.gap(place) == ordered[k - 1] - ordered[k + place - 1]
        check_member(ranking, scores, ordered, k - 1 if k < 2 else place % k, place, seed)


def check_member(ranking, scores, ordered, included, last, seed):
    subset = ranking.subset(included, last, WordReader(SeededBits(seed)))
    assert len(set(subset)) == len(subset) == ranking.k
    chosen = sorted((int(scores[j]) for j in subset), reverse=True)
    assert chosen[:included] == ordered[:included]
    assert int(scores[subset[-1]]) == ordered[ranking.k + last - 1] == chosen[-1]
    excluded = np.delete(np.asarray(scores, dtype=object), subset)
    assert max(excluded) == ordered[included]


def test_head_alone():
    assert sorted(Ranking(integer_scores([5, 1, 9, 7]), 2).subset(1, 0, WordReader(SeededBits(0)))) == [2, 3]


@pytest.mark.parametrize("sort_all", [0, 256])
def test_members_of_a_class_are_equally_likely(monkeypatch, sort_all):
    """Class (1, 6) of seven scores, k = 4: j1, two out of {j3, j4, j5}, and j6."""
    monkeypatch.setattr(module, "_SORT_ALL", sort_all)
    utility = [70, 60, 50, 40, 30, 20, 10]
    ranking = Ranking(integer_scores(utility), 4)
    ranking.blocks(Fraction(1), 40.0)
    reader = WordReader(SeededBits(5))
    drawn = [tuple(sorted(ranking.subset(1, 2, reader))) for _ in range(3000)]
    expected = {(0, *pair, 5): 1 / 3 for pair in itertools.combinations((2, 3, 4), 2)}
    assert fit(drawn, expected, false_alarm=1e-9).accepted


@cases(("size", "k"), [(3, 1), (10, 3), (1000, 1), (1000, 10), (1000, 999), (10**6, 100)])
def test_class_sizes_grow_slowly_within_a_block(size, k):
    edges = module._growth_edges(size, k)
    assert edges[-1] == size - k
    assert (np.diff(edges) > 0).all()
    if size <= 1000:
        for first, last in zip([1, *(edges[:-1] + 1).tolist()], edges.tolist(), strict=True):
            for h in range(k):
                growth = math.comb(k + last - h - 2, k - h - 1) / math.comb(k + first - h - 2, k - h - 1)
                assert growth <= math.e + 1e-9
    assert len(edges) < 2 * (log_binomial(size, k) + 3)


def test_log_factorials():
    n = np.array([0, 1, 2, 20, 255, 256, 257, 1000, 10**6, 10**12])
    expected = [math.lgamma(value + 1.0) for value in n.tolist()]
    assert log_factorial(n) == pytest.approx(expected, rel=2.0**-48)
    assert log_binomial(50, 5) == pytest.approx(math.log(math.comb(50, 5)))
