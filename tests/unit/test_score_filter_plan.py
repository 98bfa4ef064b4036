"""What a feature filter's plan settles before a row is read: method, shares, events, limits, thresholds."""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from dpsql.contract.gaussian_profile import gaussian_mu
from dpsql.contract.measurement import draw_once
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.estimate import estimate
from dpsql.functions.feature_counts import Counts, best_cluster, point_scores
from dpsql.functions.registry import plan_from_json
from dpsql.functions.score_filter import ScoreFilterPlan, draw_features, noisy_counts, noisy_scores, released_counts
from dpsql.mechanisms.count_noise import GaussianCountNoise, LaplaceCountNoise, TruncatedCountNoise
from dpsql.mechanisms.key_limits import limits_by_row
from dpsql.mechanisms.partition_selection import LAWS, partition_selection
from dpsql.statistics.feature_counts import INFORMATION_UNIT, RELEASED, SCORES, exact_scores, information_sensitivity
from support.cases import cases

FEATURES = [f"x{j}" for j in range(1000)]
LONG = {"features": "word", "row_id": "doc", "names": None}
PRIVATE = {**LONG, "vocabulary": "private", "delta": 1e-6}


def plan(**more: Any) -> ScoreFilterPlan:
    given = {"target": "y", "features": FEATURES, "epsilon": 1, "threshold": 50, **more}
    found: ScoreFilterPlan = ScoreFilterPlan.from_arguments("t", given)
    return found


EVERY: list[dict[str, Any]] = [
    {},
    {"delta": 1e-6},
    *({"score": score} for score in SCORES),
    *({"score": score, "delta": 1e-6, "neighbours": "replace"} for score in SCORES),
    {"method": "svt", "cutoff": 5},
    {"method": "svt", "cutoff": 5, "score": "information_gain", "n_max": 10**6},
    {"method": "cluster", "threshold": None},
    {"method": "cluster", "threshold": None, "delta": 1e-6, "score": "purity", "clusters": 4},
    *(
        {"method": method, "k": 3, "threshold": None}
        for method in ("auto", "laplace", "one_shot", "gumbel", "canonical_lipschitz")
    ),
    {"method": "gaussian", "delta": 1e-6, "k": 3, "threshold": None, "privacy_unit": "u", "max_rows_per_unit": 4},
    {**PRIVATE},
    {**PRIVATE, "method": "laplace", "vocabulary_share": 0.5},
    {**PRIVATE, "method": "svt", "cutoff": 5, "neighbours": "replace"},
    {**PRIVATE, "k": 3, "threshold": None},
    {**PRIVATE, "k": 3, "threshold": None, "method": "gumbel", "score": "information_gain", "n_max": 1000},
]


@cases("more", EVERY, ids=str, quick=5)
def test_the_event_costs_what_the_call_says(more: dict[str, Any]) -> None:
    found = plan(**more)
    cost = found.event.cost
    assert cost.epsilon == found.epsilon
    assert cost.delta == (found.delta if found.noise_law == "gaussian" or found.draws_vocabulary else 0)
    assert (cost.rho is None) == found.draws_vocabulary
    assert plan_from_json(found.to_json()) == found
    found.check_features(0 if found.draws_vocabulary else 1000)
    assert all(math.isfinite(value) for _, value, _ in found.noise(1000, None))


def test_shares_of_a_private_vocabulary() -> None:
    """Gaussian noise on the scores leaves the vocabulary a share of delta, other methods all of it."""
    gaussian, laplace = plan(**PRIVATE), plan(**PRIVATE, method="laplace")
    for found in (gaussian, laplace):
        assert found.score_epsilon == Fraction(1, 2)
    assert gaussian.score_delta == Fraction(5, 10**7)
    assert gaussian.mu == gaussian_mu(Fraction(1, 2), Fraction(5, 10**7))
    assert laplace.score_delta is None
    options: dict[str, Any] = {"epsilon": Fraction(1, 2), "neighbours": "add_remove", "limits": limits_by_row(10)}
    for found, delta in ((gaussian, Fraction(5, 10**7)), (laplace, Fraction(1, 10**6))):
        every = [partition_selection(law=law, delta=delta, **options) for law in LAWS]
        assert found.key_selection == min(every, key=lambda selection: selection.least_count)
    one = plan(**PRIVATE, max_features_per_row=1)
    assert isinstance(one.key_selection.noise, TruncatedCountNoise)
    assert one.key_selection.least_count == 28
    assert isinstance(gaussian.key_selection.noise, GaussianCountNoise)
    # Noise beyond what Gaussian samplers draw is Laplace's.
    assert plan(**PRIVATE, method="laplace", epsilon=10**7).key_selection == partition_selection(
        epsilon=Fraction(10**7, 2),
        delta=Fraction(1, 10**6),
        neighbours="add_remove",
        limits=limits_by_row(10),
        law="laplace",
    )
    # A limit of the rows lets an added row replace another.
    limited = plan(**PRIVATE, method="gumbel", k=2, threshold=None, score="information_gain", n_max=100)
    options["neighbours"] = "replace"
    assert limited.key_selection == partition_selection(delta=Fraction(1, 10**6), **options)
    assert limited.most_rows == 100


def test_auto_is_a_rule_of_public_numbers() -> None:
    assert plan().chosen == "laplace"
    assert plan(delta=1e-6).chosen == "gaussian"
    best = {"threshold": None}
    # One feature: range 1 against noise for ten of them. Many: the noise of a selection grows with k.
    assert plan(k=1, score="total_count", **best).chosen == "one_shot"
    assert plan(k=200, score="total_count", **best).chosen == "laplace"
    assert plan(k=200, score="total_count", delta=1e-6, **best).chosen == "gaussian"
    assert plan(k=1, score="total_count", delta=1e-6, **best).chosen == "one_shot"
    assert plan(k=1, score="total_count", delta=1e-6, **best).event.mechanism == "exponential_noise"
    assert plan(k=3, score="information_gain", **best).chosen == "laplace"
    limited = plan(k=1, score="information_gain", n_max=1000, max_features_per_row=500, **best)
    assert limited.chosen == "one_shot"
    assert limited.most_rows == 1000
    # With noise on the counts a limit of rows would break what an added row can do.
    noisy = plan(k=100, score="information_gain", n_max=1000, delta=1e-6, **best)
    assert noisy.chosen == "gaussian"
    assert noisy.most_rows is None
    # Settled at once, however many subsets there are.
    assert plan(features="x", n_features=10**6, k=5 * 10**5, **best).chosen == "laplace"


def test_more_rows_than_the_limit_cannot_be() -> None:
    """Sensitivities hold up to the limit only, so counts of more rows must come from a fault."""
    nothing = np.zeros(3, dtype=np.int64)
    chosen = plan(k=1, threshold=None, method="one_shot", score="information_gain", n_max=49)
    with pytest.raises(InternalError, match="I033"):
        draw_once(draw_features, chosen, Counts(nothing, nothing, 30, 20), ["a", "b", "c"])
    draw_once(draw_features, chosen, Counts(nothing, nothing, 29, 20), ["a", "b", "c"])


@cases("relation", ["add_remove", "replace"], quick=1)
def test_the_applied_threshold(relation: str) -> None:
    options = {"max_features_per_row": 4, "neighbours": relation, "threshold": 1}
    both = 2 if relation == "replace" else 1
    for score, sides, squared in (("total_count", 1, 4 * both), ("difference_count", 2, 4 * both**2)):
        laplace, gaussian = plan(score=score, **options), plan(score=score, delta=1e-6, **options)
        chance = Fraction(1, sides * 1000)
        one = laplace.denominator(1000)
        least = LaplaceCountNoise(scale=Fraction(4 * both) * one, unit=one).least(chance)
        assert (one, laplace.applied_threshold(1000)) == (2**20, least / one)
        deviation = math.sqrt(squared) / float(gaussian.mu)
        assert gaussian.deviation(1000) == pytest.approx(deviation)
        assert gaussian.applied_threshold(1000) == pytest.approx(deviation * NormalDist().inv_cdf(1 - float(chance)))
        assert plan(score=score, **{**options, "threshold": 10**6}).applied_threshold(1000) == 10**6
        assert plan(score=score, **options, false_positives=1000).applied_threshold(1000) == 1
    for score in ("purity", "information_gain"):
        assert plan(score=score, **options).applied_threshold(1000) == 1
    svt = plan(score="total_count", method="svt", cutoff=3, **options)
    run = svt.sparse_vector
    # Above the means of both noises, a score of 0 needs noise of so many scales.
    reached = svt.applied_threshold(1000) + float(run.score_scale - run.threshold_scale)
    assert reached == pytest.approx(float(run.score_scale) * math.log(1000))
    assert plan(score="purity", method="svt", cutoff=3, **options).applied_threshold(1000) == 1


def test_noise_is_for_the_units_rows() -> None:
    one = plan(delta=1e-6)
    many = plan(delta=1e-6, privacy_unit="u", max_rows_per_unit=3)
    assert many.deviation(1000) == pytest.approx(3 * one.deviation(1000))
    assert plan(privacy_unit="u", max_rows_per_unit=3).noise_scale(1000) == 3 * plan().noise_scale(1000) == 30
    assert plan(method="svt", cutoff=2).sparse_vector.sensitivity == 1
    svt = plan(method="svt", cutoff=2, privacy_unit="u", max_rows_per_unit=3, neighbours="replace").sparse_vector
    assert (svt.sensitivity, svt.monotone) == (6, False)
    assert plan(method="svt", cutoff=2, score="total_count").sparse_vector.monotone
    gain = plan(method="svt", cutoff=2, score="information_gain", n_max=500)
    assert gain.sparse_vector.sensitivity == information_sensitivity(500)
    assert gain.most_rows == 500
    # Fewer features than a row may have: the noise is for those there are.
    assert plan(score="total_count").noise_scale(3) == 3
    assert plan(score="purity").noise_scale(3) == 4


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("P046", {"threshold": None}, "either threshold"),
    ("P045", {"k": 3}, "exclude each other"),
    ("P024", {"threshold": -1}, "threshold must"),
    ("P024", {"threshold": math.nan}, "threshold must"),
    ("P005", {"score": "chi_square"}, "score must be one of"),
    ("P005", {"method": "best"}, "method must be one of"),
    ("P021", {"max_features_per_row": 0}, "max_features_per_row"),
    ("P046", {"method": "one_shot"}, "selects k"),
    ("P046", {"method": "svt", "cutoff": 3, "threshold": None, "k": 3}, "svt"),
    ("P046", {"method": "svt"}, "cutoff"),
    ("P045", {"cutoff": 3}, "cutoff"),
    ("P045", {"method": "cluster"}, "Leave out threshold and k"),
    ("P050", {"method": "cluster", "threshold": None, "clusters": 1}, "clusters"),
    ("P046", {"score": "information_gain", "method": "svt", "cutoff": 1}, "n_max"),
    ("P045", {"score": "information_gain", "n_max": 10}, "n_max is for"),
    ("P045", {"n_max": 10, "method": "svt", "cutoff": 1}, "n_max is for"),
    ("P050", {"score": "information_gain", "method": "svt", "cutoff": 1, "n_max": 10**10}, "n_max must be at most"),
    ("P024", {"false_positives": 0}, "false_positives"),
    ("P005", {"vocabulary": "free"}, "vocabulary must be one of"),
    ("P045", {**PRIVATE, "names": ["a"]}, "names are public"),
    ("P046", {**PRIVATE, "delta": None}, "vocabulary := 'private' needs delta"),
    ("P046", {"method": "gaussian"}, "needs delta"),
    ("P045", {"method": "laplace", "delta": 1e-6}, "no use for delta"),
    ("P045", {"method": "one_shot", "k": 1, "threshold": None, "delta": 1e-6}, "no use for delta"),
    ("P027", {"delta": 0.5}, "delta"),
    ("P006", {**PRIVATE, "vocabulary_share": 1}, "vocabulary_share"),
    ("P042", {**LONG}, "vocabulary := 'private'"),
    ("P021", {"k": 0, "threshold": None}, "k must be"),
]


@cases(("code", "more", "words"), REFUSED, ids=str)
def test_contradictions_are_refused(code: str, more: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words) as caught:
        plan(**more)
    assert code in str(caught.value)


def test_what_does_not_fit_the_features_is_refused() -> None:
    with pytest.raises(ParameterError, match="P002"):
        plan(k=1001, threshold=None).check_features(1000)
    plan(**PRIVATE, k=1001, threshold=None).check_features(0)
    with pytest.raises(ParameterError, match="P026"):
        plan().check_features(1 << 23)
    for more in ({}, {"delta": 1e-9}, {**PRIVATE}):
        with pytest.raises(ParameterError, match=r"P001|P027"):
            plan(epsilon=1e-18, **more).check_features(0 if more.get("vocabulary") else 10)


def test_estimates() -> None:
    def values(**more: Any) -> dict[str, float]:
        rows = estimate("dp_score_filter", n_features=8000, **{"epsilon": 1, "threshold": 50, **more})
        return {row["quantity"]: row["value"] for row in rows}

    found = values(delta=1e-6, score="total_count", threshold=5)
    assert found["count_sensitivity_l2"] == pytest.approx(math.sqrt(10))
    assert found["count_std_error"] == pytest.approx(math.sqrt(10) / 0.236704, rel=1e-4)
    assert found["applied_threshold"] == pytest.approx(found["count_std_error"] * 3.6623, rel=1e-3)
    private = values(delta=1e-6, vocabulary="private")
    assert private["vocabulary_threshold"] > 130
    assert values(method="svt", cutoff=4, score="total_count")["noise_scale"] == pytest.approx(
        4 / (1 - 1 / (1 + 4 ** (2 / 3))), rel=1e-4
    )
    assert values(k=3, threshold=None, method="gumbel", score="total_count")["noise_scale"] == 3
    assert values(k=3, threshold=None, method="gumbel", score="information_gain", n_max=100)[
        "score_sensitivity"
    ] == pytest.approx(1 + math.log(100), rel=0.01)


COUNTS = Counts(np.array([50, 0, 7, 20]), np.array([3, 60, 8, 21]), 100, 90)


def test_released_numbers() -> None:
    found = {kind: released_counts(kind, COUNTS).tolist() for kind in RELEASED}
    assert found == {
        "totals": [53, 60, 15, 41],
        "differences": [47, -60, -1, -1],
        "differences_and_labels": [47, -60, -1, -1, 10],
        "counts": [50, 0, 7, 20, 3, 60, 8, 21],
        "counts_and_labels": [50, 0, 7, 20, 3, 60, 8, 21, 100, 90],
    }


@cases("score", SCORES)
@cases("method", ["laplace", "gaussian", "cluster"])
def test_scores_without_noise_are_the_exact_ones(score: str, method: str) -> None:
    delta = 0.1 if method == "gaussian" else None
    found = plan(
        features=["a", "b", "c", "d"],
        score=score,
        method=method,
        delta=delta,
        threshold=None if method == "cluster" else 1,
    )
    exact = exact_scores(score, COUNTS.positive, COUNTS.negative, COUNTS.positive_rows, COUNTS.negative_rows)
    without_noise = released_counts(found.released, COUNTS).astype(np.float64)
    scores = noisy_scores(found, without_noise, 4)
    assert scores == pytest.approx(exact / found.unit, abs=20 / INFORMATION_UNIT)
    noisy, deviation = draw_once(
        noisy_counts,
        plan(
            features=["a", "b", "c", "d"],
            score=score,
            method=method,
            delta=delta,
            threshold=None if method == "cluster" else 1,
            epsilon=5 * 10**5,
        ),
        COUNTS,
    )
    assert noisy == pytest.approx(without_noise, abs=0.1)
    assert deviation < 0.02


def test_information_of_noisy_counts_is_finite() -> None:
    """Noise may leave counts below zero, above the rows, and no rows at all."""
    points = np.array([[-3.0, 2.0], [500.0, 700.0], [0.0, 0.0], [10.0, -1.0]])
    for labels in ([100.0, 50.0], [-4.0, 60.0], [-1.0, -2.0]):
        found = point_scores("information_gain", points, np.array(labels))
        assert np.isfinite(found).all()
        assert (found >= 0).all()


def test_clusters() -> None:
    generator = np.random.default_rng(0)
    low, high = generator.normal(0, 1, (50, 2)), generator.normal(0, 1, (5, 2)) + 40
    points = np.concatenate([low, high])[np.random.default_rng(1).permutation(55)]
    assert best_cluster(points, points.sum(axis=1), 2).tolist() == (points.sum(axis=1) > 40).tolist()
    # Two kinds of telling features stand on either side; three clusters part one of them off.
    sides = np.concatenate([low, generator.normal((60, 0), 1, (5, 2)), generator.normal((0, 60), 1, (5, 2))])
    scores = np.abs(sides[:, 0] - sides[:, 1])
    found = best_cluster(sides, scores, 3)
    assert found.sum() == 5
    assert (scores[found] > 50).all()
    assert best_cluster(np.zeros((3, 2)), np.zeros(3), 2).all()
    assert best_cluster(np.array([[1.0, 2.0]]), np.array([3.0]), 5).tolist() == [True]
    assert best_cluster(np.zeros((0, 2)), np.zeros(0), 2).tolist() == []


@cases("more", EVERY, ids=str)
def test_no_features_at_all(more: dict[str, Any]) -> None:
    """A private vocabulary may turn out empty."""
    nothing = np.zeros(0, dtype=np.int64)
    result = draw_once(draw_features, plan(**more), Counts(nothing, nothing, 30, 20), [])
    assert result["names"] == []
    assert result["scores"] in (None, [])


def test_a_short_vocabulary_is_selected_whole() -> None:
    for method in ("one_shot", "gumbel", "canonical_lipschitz", "laplace", "auto"):
        chosen = plan(**PRIVATE, k=10, threshold=None, method=method)
        assert sorted(draw_once(draw_features, chosen, COUNTS, ["a", "b", "c", "d"])["names"]) == ["a", "b", "c", "d"]
