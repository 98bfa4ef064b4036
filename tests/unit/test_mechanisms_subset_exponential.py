from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import InternalError, ParameterError
from dpsql.mechanisms import subset_exponential as module
from dpsql.mechanisms import subsets
from dpsql.mechanisms.subset_exponential import (
    Strata,
    SubsetRejection,
    subset_exponential,
    top_r_exponential,
)
from dpsql.mechanisms.subsets import SubsetList, uniform_below, uniform_subsets
from dpsql.noise.entropy import SYSTEM
from dpsql.testing.bits import ScriptedBits, SeededBits
from dpsql.testing.distribution import fit
from support.cases import cases

ONE = Fraction(1)
LAST = 2**64 - 1


def empty(size):
    return np.empty((0, size), dtype=np.int64)


def table(p, s, seed, top=12):
    """Scores of all s-subsets, with ties."""
    generator = np.random.default_rng(seed)
    return {A: int(generator.integers(0, top)) for A in itertools.combinations(range(p), s)}


def lookup(scores):
    return lambda rows: [scores[tuple(row)] for row in rows.tolist()]


def rejection(scores, p, listed, lower_bound, coefficient=ONE):
    rows = np.array(listed, dtype=np.int64).reshape(-1, len(next(iter(scores))))
    return SubsetRejection(
        SubsetList(rows, p), [scores[A] for A in listed], lower_bound, lookup(scores), Fraction(coefficient)
    )


def exact_weights(scores, coefficient):
    with localcontext() as context:
        context.prec = 60
        b = Decimal(coefficient.numerator) / coefficient.denominator
        weights = {A: (-b * score).exp() for A, score in scores.items()}
        total = sum(weights.values())
        return {A: weight / total for A, weight in weights.items()}


def random_strata(p, s, generator):
    """Some shared classes, and for each of their counts one of three divisions of the rest."""
    shared = int(generator.integers(0, p + 1))
    rest = p - shared
    front = np.sort(generator.integers(0, 3, shared))
    _, front = np.unique(front, return_inverse=True)
    n_front = int(front.max(initial=-1)) + 1
    back = n_front + np.unique(generator.integers(0, 3, rest), return_inverse=True)[1]
    candidates = generator.permutation(p)
    classes = np.empty((3, p), dtype=np.intp)
    classes[:, candidates[:shared]] = front
    for row in classes:
        row[candidates[shared:]] = generator.permutation(back)
    divisions, rows = {}, {}
    for A in itertools.combinations(range(p), s):
        held = tuple(np.bincount(classes[0, list(A)], minlength=n_front)[:n_front])
        division = divisions.setdefault(held, int(generator.integers(0, 3)))
        count = tuple(np.bincount(classes[division, list(A)], minlength=int(classes.max()) + 1).tolist())
        rows.setdefault((division, count), []).append(A)
    return classes, rows


def stratified(sampler, strata):
    sampler._stratify(strata)
    return sampler


def implied_law(sampler, scores):
    """The law that follows from the sampler's integer weights and its thresholds: one round, then normalised.

    A stratum's uniform draw gives each of its subsets; what these are follows from classes and counts alone.
    """
    listed = {tuple(row): place for place, row in enumerate(sampler._listed.rows.tolist())}
    first = len(listed)
    ends = np.cumsum(sampler._sizes)
    place_of = None if sampler._grouped is None else np.argsort(sampler._grouped, axis=1)
    with localcontext() as context:
        context.prec = 60
        weights = {}
        for A, score in scores.items():
            if A in listed:
                branches = [listed[A]]
            else:
                branches = []
                for stratum, counts in enumerate(sampler._counts):
                    places = list(A) if place_of is None else place_of[sampler._division[stratum], list(A)]
                    held = np.bincount(np.searchsorted(ends, places, side="right"), minlength=len(ends))
                    if (held == counts).all():
                        branches.append(first + stratum)
            weights[A] = Decimal(0)
            for branch in branches:
                low, high = sampler._threshold(branch, score)(50)
                assert 0 <= low <= high <= low + 10**3
                members = 1 if branch < first else sampler._members[branch - first]
                proposed = Decimal(int(sampler._weights[branch])) / members
                weights[A] += proposed * (-Decimal(low).scaleb(-50)).exp()
        total = sum(weights.values())
        return {A: weight / total for A, weight in weights.items()}


@cases("coefficient", [Fraction(1, 7), Fraction(3), Fraction(40)], quick=35)
@cases("seed", range(12))
def test_law_is_the_exponential_mechanism_for_any_list_and_bound(seed, coefficient):
    generator = np.random.default_rng(seed)
    p = int(generator.integers(2, 8))
    s = int(generator.integers(1, p + 1))
    scores = table(p, s, seed)
    everything = list(scores)
    count = int(generator.integers(0, len(everything) + 1))
    listed = [everything[place] for place in generator.permutation(len(everything))[:count]]
    rest = [score for A, score in scores.items() if A not in listed]
    bound = min(rest, default=100) - int(generator.choice([0, 1, 30]))
    found = implied_law(rejection(scores, p, listed, bound, coefficient), scores)
    for A, probability in exact_weights(scores, coefficient).items():
        assert abs(found[A] - probability) <= Decimal("1e-40")
        assert abs(found[A] / probability - 1) <= Decimal("1e-12")


@cases("coefficient", [Fraction(1, 7), Fraction(3), Fraction(40)], quick=25)
@cases("seed", range(12))
def test_law_is_the_exponential_mechanism_for_any_strata(seed, coefficient):
    generator = np.random.default_rng(seed)
    p = int(generator.integers(2, 9))
    s = int(generator.integers(1, p + 1))
    scores = table(p, s, seed)
    everything = list(scores)
    count = int(generator.integers(0, len(everything)))
    listed = [everything[place] for place in generator.permutation(len(everything))[:count]]
    classes, rows = random_strata(p, s, generator)
    bounds = [
        min((scores[A] for A in members if A not in listed), default=10**6) - int(generator.choice([0, 1, 30]))
        for members in rows.values()
    ]
    strata = Strata(classes, np.array([row[0] for row in rows]), np.array([row[1] for row in rows]), bounds)
    sampler = rejection(scores, p, listed, -5, coefficient)
    found = implied_law(stratified(sampler, strata), scores)
    for A, probability in exact_weights(scores, coefficient).items():
        assert abs(found[A] - probability) <= Decimal("1e-40")
        assert abs(found[A] / probability - 1) <= Decimal("1e-12")
    # What is proposed in a stratum are its members, and no others.
    proposed = sampler._proposals(np.repeat(np.arange(len(rows)), 40), SYSTEM)
    for place, members in enumerate(rows.values()):
        drawn = set(map(tuple, proposed[40 * place : 40 * place + 40].tolist()))
        assert drawn <= set(members)
        assert len(drawn) == len(members) or len(members) > 5
    assert sorted(map(len, rows.values())) == sorted(sampler._members)


# The pairs of 4 candidates, 0 and 1 with a class each: none of them, one of them, both.
CLASSES = np.array([[0, 1, 2, 2]])
COUNTS = [(0, 0, 2), (0, 1, 1), (1, 0, 1), (1, 1, 0)]


def strata_of(classes=CLASSES, counts=COUNTS, bounds=(0, 0, 0, 0), division=None):
    division = np.zeros(len(counts), dtype=np.intp) if division is None else np.array(division)
    return Strata(np.array(classes), division, np.array(counts), bounds)


@pytest.mark.long
def test_overlapping_strata_give_a_wrong_law(monkeypatch):
    """A subset in two strata is twice as likely, were the strata not checked."""
    scores = dict.fromkeys(itertools.combinations(range(4), 2), 0)
    overlapping = strata_of(counts=[*COUNTS, COUNTS[1]], bounds=[0] * 5)
    with pytest.raises(ParameterError, match="P018"):
        stratified(rejection(scores, 4, [], 0), overlapping)
    monkeypatch.setattr(module, "count_distinct", lambda rows: 5)
    sampler = rejection(scores, 4, [], 0)
    sampler._listed.total = 8
    found = implied_law(stratified(sampler, overlapping), scores)
    assert [round(8 * found[A]) for A in scores] == [1, 1, 1, 2, 2, 1]
    law = {A: float(probability) for A, probability in exact_weights(scores, ONE).items()}
    assert not fit([sampler.draw(SeededBits(seed)) for seed in range(1500)], law, false_alarm=1e-8).accepted


@cases(
    "change",
    [
        {"counts": COUNTS[1:], "bounds": [0] * 3},
        {"counts": [*COUNTS, (0, 0, 3)], "bounds": [0] * 5},
        {"counts": [*COUNTS[1:], COUNTS[1]]},
        {"counts": [(0, 0, 2), (0, 1, 1), (0, 1, 1), (1, 1, 0)]},
        {"bounds": [0] * 3},
        {"bounds": [0.5] * 4},
        {"classes": [[0, 1, 2]]},
        {"classes": [[0, 1, 2, 3]]},
        {"classes": [[0, 1, 2, 2], [0, 1, 1, 2]]},
        # Classes 1 and 2 vary: strata 0 and 1, and 2 and 3, hold as many of class 0 under different divisions.
        {"classes": [[0, 1, 2, 2], [0, 2, 1, 2]], "division": [0, 1, 0, 1]},
    ],
)
def test_strata_that_are_no_partition_are_refused(change):
    scores = table(4, 2, 0)
    with pytest.raises(ParameterError, match="P018"):
        stratified(rejection(scores, 4, [], 0), strata_of(**change))


def test_strata_are_asked_for_once_when_many_rounds_have_failed(monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 600)
    asked, seen = [], []

    def strata():
        asked.append(seen[-1])
        return strata_of(bounds=[10**4, 10**4, 10**4, 10**4])

    options = {"n_candidates": 4, "utility_range": 1, "epsilon": ONE, "strata": strata}
    drawn = subset_exponential(empty(2), [], 0, score=lambda rows: [10**4] * len(rows), progress=seen.append, **options)
    assert len(drawn) == 2
    assert len(asked) == 1
    assert asked[0] >= 600
    asked.clear()
    subset_exponential(empty(2), [], 10**4, score=lambda rows: [10**4] * len(rows), progress=seen.append, **options)
    assert not asked


def test_a_score_below_the_bound_of_its_stratum_is_an_error():
    scores = dict.fromkeys(itertools.combinations(range(4), 2), 5)
    with pytest.raises(InternalError, match="I019"):
        stratified(rejection(scores, 4, [], 0), strata_of(bounds=[6, 6, 6, 6])).draw()


@pytest.mark.parametrize("shift", [0, 10**40, -(10**40)])
def test_strata_with_bounds_of_any_size(shift):
    scores = {A: score + shift for A, score in table(4, 2, 1).items()}
    sampler = stratified(rejection(scores, 4, [], shift), strata_of(bounds=[shift, shift - 1, shift, shift - 3]))
    assert sampler.draw() in scores


@cases("gap", [None, 0, 3, 100], quick=2)
@cases("seed", range(6))
def test_top_r_is_the_exponential_mechanism_for_cut_scores(monkeypatch, seed, gap):
    scores = table(6, 3, seed)
    order = sorted(scores, key=scores.get)
    built = []
    monkeypatch.setattr(SubsetRejection, "draw", lambda self, *_: built.append(self))
    for rank in (1, 7, 20, 50):
        limit = scores[order[min(rank, 20) - 1]]
        if gap is not None:
            limit = min(limit, scores[order[0]] + gap)
        cut = {A: min(score, limit) for A, score in scores.items()}
        lists = [order[:rank], order]
        if gap is not None:
            lists.append([A for A in order if scores[A] < scores[order[0]] + gap][:rank] or order[:1])
        for listed in lists:
            top_r_exponential(
                [scores[A] for A in listed],
                subsets=listed,
                rank=rank,
                n_candidates=6,
                utility_range=2,
                epsilon=ONE,
                gap=gap,
            )
            found = implied_law(built[-1], cut)
            for A, probability in exact_weights(cut, Fraction(1, 2)).items():
                assert abs(found[A] / probability - 1) <= Decimal("1e-12")


def test_ties_at_the_last_rank_are_harmless(monkeypatch):
    """Whichever of the tied subsets are listed, the law is one."""
    scores = {A: min(sum(A), 4) for A in itertools.combinations(range(6), 2)}
    order = sorted(scores, key=scores.get)
    tied = [A for A in order if scores[A] == 4]
    better = order[: len(order) - len(tied)]
    built = []
    monkeypatch.setattr(SubsetRejection, "draw", lambda self, *_: built.append(self))
    laws = []
    for extra in ([tied[0]], [tied[-1]]):
        listed = better + extra
        values = [scores[A] for A in listed]
        top_r_exponential(
            values, subsets=listed, rank=len(listed), n_candidates=6, utility_range=1, epsilon=ONE, gap=None
        )
        laws.append(implied_law(built[-1], scores))
    assert all(abs(laws[0][A] - laws[1][A]) < Decimal("1e-40") for A in scores)


SCORES = {(0,): 0, (1,): 0, (2,): 2}


class TestRounds:
    """Scripted words, p = 3, s = 1: the order of words is branch, variable, members of the proposal."""

    def draw(self, words, listed=((0,), (1,)), bound=0, scores=SCORES):
        sampler = rejection(scores, 3, list(listed), bound)
        source = ScriptedBits(words, seed=1)
        return sampler, sampler.draw(source)

    def first_word(self, branch, listed=((0,), (1,)), bound=0):
        sampler = rejection(SCORES, 3, list(listed), bound)
        start = int(sampler._cumulative[branch - 1]) if branch else 0
        return start << (64 - int(sampler._cumulative[-1] - 1).bit_length())

    @staticmethod
    def member(candidate):
        """A word whose lower half (little endian: the first) gives this candidate out of 3."""
        return (candidate << 32) // 3 + 2

    def test_a_listed_branch_is_returned(self):
        assert self.draw([self.first_word(1), 1 << 63])[1] == (1,)

    def test_a_listed_branch_is_thinned_to_its_true_weight(self):
        """A variable near 0 is below the rounding of the weight; the next eight rounds take branch 0."""
        words = [self.first_word(1), LAST, *[self.first_word(0)] * 8, *[1 << 63] * 8]
        assert self.draw(words)[1] == (0,)

    def test_an_unlisted_proposal_is_accepted(self):
        assert self.draw([self.first_word(2), 1 << 40, self.member(2)])[1] == (2,)

    def test_a_listed_proposal_is_rejected_and_the_branch_drawn_again(self):
        tail, listed = self.first_word(2), self.first_word(0)
        words = [tail, 1 << 40, self.member(1), *[listed] * 8, *[1 << 63] * 8]
        assert self.draw(words)[1] == (0,)

    def test_a_refused_proposal_is_rejected_and_the_branch_drawn_again(self):
        """E = log 2 < 2."""
        tail, listed = self.first_word(2), self.first_word(1)
        words = [tail, 1 << 63, self.member(2), *[listed] * 8, *[1 << 63] * 8]
        assert self.draw(words)[1] == (1,)

    def test_the_first_success_of_a_batch_wins(self):
        tail, listed = self.first_word(2), self.first_word(1)
        start = [self.first_word(0), LAST]
        batch = [tail, tail, tail, listed, *[self.first_word(0)] * 4]
        variables = [1 << 63, 1 << 40, 1 << 40, 1 << 63, *[1 << 63] * 4]
        # Refused; a listed proposal; accepted.
        halves = [self.member(2) | self.member(1) << 32, self.member(2)]
        assert self.draw([*start, *batch, *variables, *halves])[1] == (2,)
        halves = [self.member(2) | self.member(1) << 32, self.member(0)]
        assert self.draw([*start, *batch, *variables, *halves])[1] == (1,)

    def test_a_variable_without_bound_is_extended_until_it_decides(self):
        """128 zero bits are above 88, not yet above 100; doubles must not exclude what real numbers accept."""
        scores = {(0,): 0, (1,): 0, (2,): 100}
        accepted = [self.first_word(2), 0, self.member(2), 0, 0]
        assert self.draw(accepted, scores=scores)[1] == (2,)
        refused = [self.first_word(2), 0, self.member(2), 1 << 63, *[0] * 31]
        refused += [*[self.first_word(0)] * 8, *[1 << 63] * 8]
        assert self.draw(refused, scores=scores)[1] == (0,)

    @pytest.mark.parametrize(("word", "kept"), [(1 << 63, False), (int(2**64 * math.exp(-2)), True), (0, True)])
    def test_doubles_exclude_only_what_is_certain(self, word, kept):
        sampler = rejection(SCORES, 3, [(0,)], 0)
        assert bool(len(sampler._open(np.array([2]), np.array([word], dtype=np.uint64)))) == kept


class TestBits:
    @pytest.mark.parametrize("bound", [1, 2, 3, 5, 2**40 + 1])
    def test_below_is_uniform(self, bound):
        drawn = uniform_below(bound, 3000, SeededBits(bound)).astype(object)
        assert max(drawn) < bound
        assert fit([value * 3 // bound for value in drawn], _thirds(bound), false_alarm=1e-8).accepted

    @pytest.mark.parametrize(("n", "size"), [(1, 1), (5, 1), (5, 2), (5, 4), (5, 5), (6, 3)])
    def test_subsets_are_uniform(self, n, size):
        drawn = [tuple(row) for row in uniform_subsets(n, size, 4000, SYSTEM).tolist()]
        subsets = list(itertools.combinations(range(n), size))
        assert fit(drawn, dict.fromkeys(subsets, 1 / len(subsets)), false_alarm=1e-8).accepted

    def test_the_surplus_of_a_half_word_is_drawn_again(self):
        """2**32 = 1 mod 3: of the products with 3 only 0 is surplus."""
        first = uniform_subsets(3, 1, 1, ScriptedBits([0, 1 << 31]))
        assert first.tolist() == [[1]]

    def test_subsets_of_many(self):
        drawn = uniform_subsets(2**32 - 1, 20, 50, SYSTEM)
        assert (np.diff(drawn, axis=1) > 0).all()
        assert drawn.max() > 2**31
        assert drawn.max() < 2**32 - 1


def _thirds(bound):
    sizes = [sum(1 for value in range(bound) if value * 3 // bound == part) for part in range(3)] if bound < 9 else None
    return dict(zip(range(3), [size / bound for size in sizes] if sizes else [1 / 3] * 3, strict=True))


class TestList:
    @pytest.mark.parametrize("alike", [False, True])
    def test_membership(self, monkeypatch, alike):
        if alike:
            monkeypatch.setattr(subsets, "_keys", lambda rows: np.zeros(len(rows), dtype=np.uint64))
        everything = list(itertools.combinations(range(7), 3))
        listed = everything[::3]
        found = SubsetList([row[::-1] for row in listed], 7).holds(np.array(everything))
        assert found.tolist() == [row in listed for row in everything]
        assert SubsetList(empty(3), 7).holds(np.array(everything)).tolist() == [False] * len(everything)

    def test_keys_differ(self):
        rows = np.array(list(itertools.combinations(range(40), 3)))
        assert len(np.unique(subsets._keys(rows))) == len(rows)

    @pytest.mark.parametrize("alike", [False, True])
    @pytest.mark.parametrize("rows", [[(0, 1), (0, 2), (1, 0)], [(1, 1)], [(0, 4)], [(-1, 2)]])
    def test_what_is_no_list_of_subsets(self, monkeypatch, rows, alike):
        if alike:
            monkeypatch.setattr(subsets, "_keys", lambda rows: np.zeros(len(rows), dtype=np.uint64))
        with pytest.raises(ParameterError, match="P018"):
            SubsetList(rows, 4)


class TestLimits:
    @staticmethod
    def draw(scores, p, listed, bound, epsilon=ONE, **options):
        rows = np.array(listed).reshape(-1, len(next(iter(scores))))
        return subset_exponential(
            rows,
            [scores[A] for A in listed],
            bound,
            n_candidates=p,
            score=lookup(scores),
            utility_range=2,
            epsilon=Fraction(epsilon),
            **options,
        )

    @pytest.mark.parametrize("epsilon", [Fraction(10**6), Fraction(10**400)])
    def test_infinite_epsilon_gives_the_best(self, epsilon):
        scores = {A: sum(A) for A in itertools.combinations(range(8), 3)}
        assert self.draw(scores, 8, [(0, 1, 2), (3, 4, 5)], 4, epsilon) == (0, 1, 2)

    @pytest.mark.parametrize("epsilon", [Fraction(1, 10**9), Fraction(1, 10**400)])
    def test_vanishing_epsilon_is_uniform(self, epsilon):
        scores = table(4, 2, 0)
        drawn = [self.draw(scores, 4, [(0, 1)], 0, epsilon) for _ in range(1200)]
        assert fit(drawn, dict.fromkeys(scores, 1 / 6), false_alarm=1e-8).accepted

    def test_a_complete_list_never_asks(self):
        scores = table(4, 2, 0)
        options = {"n_candidates": 4, "score": None, "utility_range": 2, "epsilon": ONE}
        drawn = subset_exponential(list(scores), list(scores.values()), 10**6, **options)
        assert drawn in scores

    def test_all_candidates_are_one_subset(self):
        assert self.draw({(0, 1, 2): 5}, 3, [], 0) == (0, 1, 2)

    @pytest.mark.parametrize("shift", [10**12, -(10**40), 10**40, -(2**63)])
    def test_a_constant_shift_changes_nothing(self, shift):
        scores = table(5, 2, 3)
        shifted = {A: score + shift for A, score in scores.items()}
        for seed in range(4):
            one = self.draw(scores, 5, [(0, 1), (2, 3)], 0, source=SeededBits(seed))
            assert one == self.draw(shifted, 5, [(0, 1), (2, 3)], shift, source=SeededBits(seed))

    @pytest.mark.parametrize("unit", [Fraction(1, 3), 2**60, 10**40])
    def test_units_cancel(self, unit):
        numerator = Fraction(unit).numerator
        scores = table(5, 2, 4)
        scaled = {A: score * numerator for A, score in scores.items()}
        options = {"n_candidates": 5, "epsilon": ONE}
        for seed in range(3):
            one, other = (
                subset_exponential(
                    empty(2),
                    [],
                    0,
                    score=lookup(values),
                    utility_range=utility_range,
                    source=SeededBits(seed),
                    **options,
                )
                for values, utility_range in ((scores, Fraction(2)), (scaled, 2 * numerator))
            )
            assert one == other

    def test_a_bound_far_below_costs_time_only(self):
        scores = {A: 10**40 + score for A, score in table(4, 2, 5).items()}
        assert self.draw(scores, 4, [(0, 1)], 10**40 - 20) in scores
        assert self.draw(scores, 4, list(scores), -(10**80)) in scores

    @pytest.mark.parametrize(("p", "s"), [(250, 5), (10**6, 12), (400, 200)])
    def test_many_subsets(self, p, s):
        """C(p, s) up to 10**118."""

        def score(rows):
            return rows.sum(axis=1)

        chosen = subset_exponential(
            [list(range(s))], [-(10**9)], 0, n_candidates=p, score=score, utility_range=1, epsilon=ONE
        )
        assert chosen == tuple(range(s))
        flat = subset_exponential(
            empty(s), [], 5, n_candidates=p, score=lambda rows: [5] * len(rows), utility_range=1, epsilon=ONE
        )
        assert len(set(flat)) == s
        assert list(flat) == sorted(flat)


def test_a_score_below_the_bound_is_an_error_that_says_nothing():
    with pytest.raises(InternalError, match="I019") as error:
        subset_exponential(
            empty(2), [], 1000, n_candidates=5, score=lambda rows: [999] * len(rows), utility_range=1, epsilon=ONE
        )
    assert "999" not in str(error.value)
    assert "1000" not in str(error.value)


@cases("unit", [1, 10**30], quick=1)
def test_a_floor_saves_scores_and_changes_nothing(unit):
    """The same words give the same subset, whatever the lower bounds are; below the common bound they say nothing."""
    scores = {A: score * unit for A, score in table(9, 3, 1, top=40).items()}
    asked = {}

    def draw(name, floor, seed):
        def score(rows):
            asked[name] = asked.get(name, 0) + len(rows)
            return lookup(scores)(rows)

        options = {"score": score, "floor": floor, "n_candidates": 9, "utility_range": 2 * unit, "epsilon": ONE}
        return subset_exponential(empty(3), [], -2 * unit, source=SeededBits(seed), **options)

    def loose(rows):
        return [scores[tuple(row)] - unit * (sum(row) % 50) for row in rows.tolist()]

    for seed in range(20):
        plain = draw("plain", None, seed)
        assert draw("loose", loose, seed) == plain
        assert draw("tight", lookup(scores), seed) == plain
    assert asked["tight"] < asked["loose"] < asked["plain"]
    assert asked["tight"] <= 8 * 20


def test_a_floor_above_a_score_is_an_error():
    with pytest.raises(InternalError, match="I019"):
        subset_exponential(
            empty(2),
            [],
            0,
            n_candidates=5,
            score=lambda rows: [1] * len(rows),
            floor=lambda rows: [2] * len(rows),
            utility_range=1,
            epsilon=ONE,
        )


def test_progress_counts_rounds_and_may_stop():
    seen = []

    class Stop(Exception):
        pass

    def progress(rounds):
        seen.append(rounds)
        if rounds > 20000:
            raise Stop

    def far(rows):
        return [10**6] * len(rows)

    with pytest.raises(Stop):
        subset_exponential(empty(3), [], 0, n_candidates=9, score=far, utility_range=1, epsilon=ONE, progress=progress)
    assert seen == sorted(seen)
    assert seen[0] == 1
    assert len(seen) >= 5


ARGUMENTS = {
    "subsets": [(0, 1), (1, 2)],
    "scores": [1, 2],
    "lower_bound": 0,
    "n_candidates": 4,
    "score": lambda rows: [3] * len(rows),
    "utility_range": 2,
    "epsilon": ONE,
}


@cases(
    ("change", "code"),
    [
        ({"epsilon": Fraction(0)}, "P018"),
        ({"epsilon": 1.0}, "P018"),
        ({"utility_range": 0}, "P018"),
        ({"utility_range": Fraction(-1, 2)}, "P018"),
        ({"utility_range": 1.5}, "P018"),
        ({"n_candidates": 1}, "P018"),
        ({"n_candidates": 2**32}, "P018"),
        ({"subsets": np.empty((2, 0), dtype=np.int64)}, "P018"),
        ({"subsets": []}, "P018"),
        ({"subsets": [(0.0, 1.0), (1.0, 2.0)]}, "P018"),
        ({"scores": [1]}, "P018"),
        ({"scores": [1.0, 2.0]}, "P018"),
        ({"lower_bound": 0.5}, "P018"),
        ({"score": lambda rows: [3] * (len(rows) + 1), "subsets": empty(2), "scores": []}, "P018"),
        ({"score": lambda rows: [3.0] * len(rows), "subsets": empty(2), "scores": []}, "P018"),
        ({"floor": lambda rows: [3], "subsets": empty(2), "scores": [], "epsilon": Fraction(9)}, "P018"),
    ],
)
def test_parameters_are_checked(change, code):
    arguments = ARGUMENTS | change
    with pytest.raises(ParameterError, match=code):
        subset_exponential(arguments.pop("subsets"), arguments.pop("scores"), arguments.pop("lower_bound"), **arguments)


@cases(
    "change", [{"rank": 0}, {"rank": 1.0}, {"rank": 3}, {"gap": -1}, {"gap": 0.5}, {"subsets": empty(2), "scores": []}]
)
def test_parameters_of_the_cut_are_checked(change):
    arguments = {"subsets": [(0, 1), (1, 2)], "scores": [1, 2], "rank": 2, "gap": None} | change
    with pytest.raises(ParameterError, match="P018"):
        top_r_exponential(arguments.pop("scores"), n_candidates=4, utility_range=2, epsilon=ONE, **arguments)
