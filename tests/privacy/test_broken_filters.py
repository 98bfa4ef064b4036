"""Broken feature filters: each is caught by its exact law, and the right mechanism passes the same check."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from dpsql.mechanisms.sparse_vector import SparseVector
from dpsql.statistics.feature_counts import released_norms
from support.broken import filters as broken
from support.laws.filters import (
    Noise,
    comparison_chance,
    discrete_laplace_tail,
    log_ratio,
    product_law,
    sparse_vector_law,
)

ONE, SMALL = Fraction(1), Fraction(1, 10**6)


def right(epsilon: Fraction = ONE, cutoff: int = 1, monotone: bool = False) -> SparseVector:
    return SparseVector(sensitivity=1, epsilon=epsilon, cutoff=cutoff, monotone=monotone)


@pytest.mark.parametrize(("first", "second", "monotone"), [((0, 1), (1, 0), False), ((0, 0), (1, 0), True)])
def test_a_private_threshold_for_exact_scores(first: tuple[int, int], second: tuple[int, int], monotone: bool) -> None:
    """Theorem 2 (PTT) and Corollary 3.4 of Stoddard et al."""
    laws = [broken.one_threshold_law(scores, epsilon=1, threshold=0) for scores in (first, second)]
    assert log_ratio(*laws) == math.inf
    output = (True, False) if monotone else (False, True)
    chances = sorted(law[output] for law in laws)
    assert chances == [0.0, pytest.approx((1 - math.exp(-1)) / 2)]
    assert chances[1] == pytest.approx(0.316, abs=5e-4)
    for cutoff in (1, 2):
        chosen = right(cutoff=cutoff, monotone=monotone)
        assert log_ratio(*(sparse_vector_law(scores, chosen, level=0) for scores in (first, second))) <= 1 + 1e-9


@pytest.mark.parametrize("pairs", [1, 2, 5, 10, 20])
def test_noisycut(pairs: int) -> None:
    """The loss grows without end; with a cutoff it does not depend on the number of scores."""
    stated = {1: 1.03, 2: 2.19, 5: 5.85, 10: 12.14, 20: 24.89}[pairs]
    found = broken.noisycut_log_ratio(pairs, epsilon=1)
    assert found == pytest.approx(stated, abs=6e-3)
    assert found / 2 < broken.noisycut_log_ratio(pairs, epsilon=1, monotone=True) < found
    chosen = right(cutoff=pairs)
    noises = {
        "threshold": Noise("exponential", float(chosen.threshold_scale)),
        "score": Noise("exponential", float(chosen.score_scale)),
        "level": 0.0,
    }
    # Those below first: it stops at the cutoff.
    bits = [False] * pairs + [True] * pairs
    chances = [comparison_chance([low] * pairs + [high] * pairs, bits, **noises) for high, low in ((1, 0), (0, 1))]
    assert abs(math.log(chances[0] / chances[1])) <= 1 + 1e-9


@pytest.mark.parametrize("signs", ["-+", "+-"])
def test_flipped_signs(signs: str) -> None:
    chosen = right()
    scales = {"threshold_scale": float(chosen.threshold_scale), "score_scale": float(chosen.score_scale)}
    pair = ([-1, 0], [0, -1]) if signs == "-+" else ([0, 0], [1, -1])
    laws = [broken.flipped_sparse_vector_law(q, level=0, cutoff=1, signs=signs, **scales) for q in pair]
    assert log_ratio(*laws) == math.inf
    assert log_ratio(*(sparse_vector_law(q, chosen, level=0) for q in pair)) <= 1 + 1e-9


def test_both_signs_flipped_grows_with_the_scores_below() -> None:
    chosen = right()
    scales = {"threshold_scale": float(chosen.threshold_scale), "score_scale": float(chosen.score_scale)}
    losses = []
    for below in (1, 2, 4, 6):
        pair = [-6] * below, [-5] * below
        pair = ([*pair[0], -6], [*pair[1], -7])
        laws = [broken.flipped_sparse_vector_law(q, level=0, cutoff=1, signs="--", **scales) for q in pair]
        losses.append(log_ratio(*laws))
        assert log_ratio(*(sparse_vector_law(q, chosen, level=0) for q in pair)) <= 1 + 1e-9
    assert losses == sorted(losses)
    assert losses[-1] > 2


def test_the_monotone_scale_for_scores_that_move_both_ways() -> None:
    pair = [6, 4, 4], [7, 3, 3]
    narrow, wide = (right(cutoff=2, monotone=monotone) for monotone in (True, False))
    assert log_ratio(*(sparse_vector_law(q, narrow, level=0) for q in pair)) == pytest.approx(1.61, abs=0.01)
    assert log_ratio(*(sparse_vector_law(q, wide, level=0) for q in pair)) <= 1 + 1e-9


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_exact_members_of_noisy_clusters(scale: float) -> None:
    laws = [broken.exact_membership_law(scores, scale=scale, centres=(0, 3)) for scores in ((2, 1), (1, 2))]
    assert all(math.fsum(law.values()) == pytest.approx(1) for law in laws)
    assert log_ratio(*laws) == math.inf
    # With noise on the scores first, members are post-processing: whatever the middle, no output is impossible.
    for middle in (0.5, 1.5, 2.5):
        noisy = [
            product_law({j: discrete_laplace_tail(2.0, middle - score) for j, score in enumerate(scores)})
            for scores in ((2, 1), (1, 2))
        ]
        assert log_ratio(*noisy) <= 1 + 1e-9


def test_repeated_features() -> None:
    for r, real in ((10, 0.050), (20, 0.148)):
        assert float(broken.repeated_features_delta(ONE, SMALL, max_features_per_row=r)) == pytest.approx(
            real, abs=2e-3
        )
    assert broken.repeated_features_delta(ONE, SMALL, max_features_per_row=1) <= SMALL


def test_norms_that_are_too_small() -> None:
    """Differences under replace, and rows with more features than assumed."""
    true = released_norms("differences", "replace", max_features_per_row=5).squared_l2
    used = released_norms("totals", "replace", max_features_per_row=5).squared_l2
    assert (true, used) == (20, 10)
    real = broken.underestimated_delta(ONE, SMALL, true_square=true, used_square=used)
    assert 1e-4 < real < 1e-3
    # The same by its epsilon: 1.455 at delta 1e-6.
    from dpsql.contract.gaussian_profile import gaussian_delta, gaussian_mu

    mu = float(gaussian_mu(ONE, SMALL)) * math.sqrt(2)
    assert gaussian_delta(Fraction(mu), Fraction("1.46")) < SMALL < gaussian_delta(Fraction(mu), Fraction("1.45"))
    longer = [released_norms("totals", "add_remove", max_features_per_row=r).squared_l2 for r in (15, 5)]
    assert broken.underestimated_delta(ONE, SMALL, true_square=longer[0], used_square=longer[1]) > 1e-4
    assert broken.underestimated_delta(ONE, SMALL, true_square=true, used_square=true) <= SMALL


def test_cells_without_rows_left_out() -> None:
    def chance(count: int) -> float:
        return discrete_laplace_tail(1.0, 3 - count)

    before, after = {"old": 4, "new": 0}, {"old": 4, "new": 1}
    wrong = [broken.present_cells_law(counts, chance=chance) for counts in (before, after)]
    assert log_ratio(*wrong) == math.inf
    every = [product_law({key: chance(count) for key, count in counts.items()}) for counts in (before, after)]
    assert log_ratio(*every) <= 1 + 1e-9
