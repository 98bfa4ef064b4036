"""Subsets drawn by rejection against the exponential mechanism's exact law; 0.7 and 1.3 times the noise must show.

Per case the rates of a false alarm and of missing the wrong scale are 1e-8; `runs_needed` sizes the samples.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.mechanisms import subset_exponential as module
from dpsql.mechanisms.subset_exponential import Strata, SubsetRejection, top_r_exponential
from dpsql.mechanisms.subsets import SubsetList
from dpsql.testing.distribution import fit
from support.audits import FALSE_ALARM, judge
from support.broken.subsets import exponential_law
from support.cases import cases

P, S = 16, 4
SUBSETS = list(itertools.combinations(range(P), S))
ROWS = np.array(SUBSETS)


def place(rows):
    """Number of each subset in lexicographic order, from the binomials."""
    above = np.array([[math.comb(P - 1 - member, S - at) for at in range(S)] for member in range(P)])
    return len(SUBSETS) - 1 - above[rows, np.arange(S)].sum(axis=1)


def additive():
    """Losses of single candidates add up: a few good subsets, few ties."""
    return np.array([0, 7, 11, 13, 20, 25, 31, 33, 40, 47, 58, 62, 66, 71, 79, 90])[ROWS].sum(axis=1)


def coarse():
    """Eight levels, so that almost all subsets are tied."""
    return additive() // 33


def flat():
    """One good subset, all others nearly equal: the tail has most of the mass."""
    scores = np.random.default_rng(0).integers(90, 100, len(SUBSETS))
    scores[700] = 10
    return scores


def best(scores, count):
    return np.argsort(scores, kind="stable")[:count]


LISTS = {
    "empty": lambda scores: np.arange(0),
    "best": lambda scores: best(scores, 60),
    "arbitrary": lambda scores: np.random.default_rng(1).permutation(len(SUBSETS))[:500],
    "one": lambda scores: best(scores, 1),
    "almost all": lambda scores: best(scores, len(SUBSETS))[2:],
    "complete": lambda scores: best(scores, len(SUBSETS)),
}


PLACES = [*itertools.product(LISTS, [False]), ("best", True), ("arbitrary", True)]
SCORES = {additive: (8, 10), coarse: (150, 1), flat: (9, 10)}


def exhaustive():
    """The lists with additive scores; of the others the slow ones are beside the first lists.

    One subset listed is a shorter list of the best, almost all of them are a longer arbitrary one: slow, too.
    """
    for scores_of, (listed, loose) in itertools.product(SCORES, PLACES):
        fast = (scores_of is additive and listed not in ("one", "almost all")) or (
            scores_of is flat and listed == "best"
        )
        yield pytest.param(scores_of, *SCORES[scores_of], listed, loose, marks=[] if fast else pytest.mark.slow)


@pytest.mark.long
@cases(("scores_of", "epsilon", "slack", "listed", "loose"), list(exhaustive()), quick=1)
def test_subset_exponential(scores_of, epsilon, slack, listed, loose):
    """Utility range 100; the bound is tight, or too low by the slack."""
    scores = scores_of()
    members = LISTS[listed](scores)
    rest = np.delete(scores, members)
    bound = int(rest.min(initial=10**6)) - slack * loose

    def sampler(at, runs):
        drawn = SubsetRejection(
            SubsetList(ROWS[members], P), scores[members], bound, lambda rows: scores[place(rows)], at / 100
        )
        return [drawn.draw() for _ in range(runs)]

    def law(at):
        return exponential_law(dict(zip(SUBSETS, scores.tolist(), strict=True)), utility_range=100, epsilon=float(at))

    judge(sampler, law, Fraction(epsilon))


def strata(scores, listed, slack):
    """Candidates 0 to 3 are strong; the others are in two classes, in one of two divisions."""
    classes = np.array([[0, 1, 2, 3, *[4] * 4, *[5] * 8], [0, 1, 2, 3, *[5] * 8, *[4] * 4]])
    held = (classes[:, ROWS][:, :, :, None] == np.arange(6)).sum(axis=2)
    division = held[0, :, 0]
    counts = np.column_stack((held[division, np.arange(len(ROWS))], division))
    rows, stratum = np.unique(counts, axis=0, return_inverse=True)
    bounds = np.full(len(rows), 10**6)
    unlisted = np.delete(np.arange(len(ROWS)), listed)
    np.minimum.at(bounds, stratum[unlisted], scores[unlisted])
    return Strata(classes, rows[:, -1], rows[:, :-1], bounds - slack)


@pytest.mark.long
@cases(
    ("listed", "slack"),
    [
        *(("empty", 0), ("best", 0), ("arbitrary", 0), ("arbitrary", 10)),
        *(pytest.param(listed, 10, marks=pytest.mark.slow) for listed in ("empty", "best")),
    ],
    quick=1,
)
@cases(("scores_of", "epsilon"), [(additive, 8), pytest.param(flat, 9, marks=pytest.mark.slow)])
def test_strata(monkeypatch, scores_of, epsilon, listed, slack):
    """From the second round on."""
    monkeypatch.setattr(module, "_PATIENCE", 1)
    scores = scores_of()
    members = LISTS[listed](scores)

    def sampler(at, runs):
        drawn = SubsetRejection(
            SubsetList(ROWS[members], P),
            scores[members],
            -100,
            lambda rows: scores[place(rows)],
            at / 100,
            strata=lambda: strata(scores, members, slack),
        )
        return [drawn.draw() for _ in range(runs)]

    def law(at):
        return exponential_law(dict(zip(SUBSETS, scores.tolist(), strict=True)), utility_range=100, epsilon=float(at))

    judge(sampler, law, Fraction(epsilon))


@pytest.mark.long
@pytest.mark.parametrize(
    ("rank", "gap", "epsilon"), [(60, None, 14), (60, 40, 20), (1000, 25, 40), (len(SUBSETS), None, 10)]
)
def test_top_r(rank, gap, epsilon):
    """Of C(16, 4) subsets those beyond the limit count as equally bad; with all of them the plain mechanism."""
    scores = additive()
    order = best(scores, rank)
    limit = int(scores[order[-1]])
    if gap is not None:
        limit = min(limit, int(scores.min()) + gap)
        order = order[scores[order] < scores.min() + gap]
    capped = dict(zip(SUBSETS, np.minimum(scores, limit).tolist(), strict=True))

    def sampler(at, runs):
        options = {"rank": rank, "n_candidates": P, "utility_range": 100, "epsilon": at, "gap": gap}
        return [top_r_exponential(scores[order], subsets=ROWS[order], **options) for _ in range(runs)]

    def law(at):
        return exponential_law(capped, utility_range=100, epsilon=float(at))

    judge(sampler, law, Fraction(epsilon))


@pytest.mark.long
def test_the_tail_is_uniform():
    """Three listed subsets, all of whose weight is gone at this epsilon but for the tail's share."""
    order = [0, 5, 900]
    drawn = [
        top_r_exponential(
            [0, 1, 2],
            subsets=ROWS[order],
            rank=3,
            n_candidates=P,
            utility_range=1,
            epsilon=Fraction(1, 100),
        )
        for _ in range(4000)
    ]
    # 1817 cells of 2.2 expected draws each: by pairs of members instead, whose counts have means of equal size.
    named = {SUBSETS[number] for number in order}
    unlisted = np.array([A for A in drawn if A not in named])
    assert len(unlisted) > 3900
    rest = np.delete(ROWS, order, axis=0)
    for pair in itertools.combinations(range(S), 2):
        cells = {}
        for one in map(tuple, rest[:, pair].tolist()):
            cells[one] = cells.get(one, 0.0) + 1 / len(rest)
        assert fit(map(tuple, unlisted[:, pair].tolist()), cells, false_alarm=FALSE_ALARM).accepted
