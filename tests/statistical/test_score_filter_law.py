"""Feature filters: exact laws on every small table against (epsilon, delta), and draws against the exact laws."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from dpsql.contract.measurement import draw_once
from dpsql.functions.feature_counts import Counts
from dpsql.functions.score_filter import ScoreFilterPlan, draw_features
from dpsql.statistics.feature_counts import SCORES
from dpsql.testing.distribution import fit, runs_needed
from dpsql.testing.exhaustive import check_exhaustively
from dpsql.testing.neighbours import RELATIONS, Relation, Table, neighbouring_pairs
from support.cases import cases
from support.laws.filters import excess, filter_law, log_ratio

FALSE_ALARM, MISS = 1e-8, 1e-8


def plan(d: int = 2, **more: Any) -> ScoreFilterPlan:
    given = {"target": "y", "features": [f"x{j}" for j in range(d)], "epsilon": 1, "score": "total_count", **more}
    found: ScoreFilterPlan = ScoreFilterPlan.from_arguments("t", given)
    return found


def rows(d: int, r: int) -> list[tuple[Any, ...]]:
    """Label (None: neither level) and features of every row there is."""
    kept = [ones for ones in itertools.product((0, 1), repeat=d) if sum(ones) <= r]
    return [(None, *(0,) * d), *((label, *ones) for label in (1, 0) for ones in kept)]


def counted(table: Table, d: int = 2) -> Counts:
    sides = [[row[1:] for row in table if row[0] == label] for label in (1, 0)]
    positive, negative = (np.array(side, dtype=np.int64).reshape(-1, d).sum(axis=0) for side in sides)
    return Counts(positive, negative, len(sides[0]), len(sides[1]))


def key(table: Table) -> Any:
    counts = counted(table)
    return (*counts.positive.tolist(), *counts.negative.tolist(), counts.positive_rows, counts.negative_rows)


THRESHOLD = {"threshold": 2, "false_positives": 2}
METHODS: dict[str, dict[str, Any]] = {
    "laplace": {"method": "laplace", **THRESHOLD},
    "svt": {"method": "svt", "cutoff": 1, **THRESHOLD},
    "svt two": {"method": "svt", "cutoff": 2, "threshold": 1},
    "one_shot": {"method": "one_shot", "k": 1},
    "gumbel": {"method": "gumbel", "k": 2},
    "canonical_lipschitz": {"method": "canonical_lipschitz", "k": 1},
}


@cases("relation", RELATIONS)
@cases(
    ("method", "score"),
    # Noise on counts and the score computed from them: the norms of the counts say it all.
    [pair for pair in itertools.product(METHODS, SCORES) if pair != ("laplace", "information_gain")],
    quick=6,
)
def test_every_table_of_three_rows_is_within_epsilon(method: str, score: str, relation: Relation) -> None:
    exact_gain = {"n_max": 3} if score == "information_gain" else {}
    chosen = plan(score=score, neighbours=relation, max_features_per_row=2, **METHODS[method], **exact_gain)
    report = check_exhaustively(lambda table: filter_law(chosen, counted(table)), rows(2, 2), 3, relation, key=key)
    assert report.within(1), str(report)
    assert report.log_ratio > 0.1, str(report)


@cases("relation", RELATIONS)
@cases("score", ["total_count", "difference_count", "purity"], quick=1)
def test_every_table_of_two_rows_is_within_epsilon_and_delta(score: str, relation: Relation) -> None:
    options = {"delta": 1e-3, "method": "gaussian", "epsilon": 2}
    chosen = plan(score=score, neighbours=relation, max_features_per_row=2, **options, **THRESHOLD)

    @cache
    def law(counts: Any) -> Any:
        return filter_law(chosen, Counts(np.array(counts[:2]), np.array(counts[2:4]), *counts[4:]))

    largest = 0.0
    for pair in neighbouring_pairs(rows(2, 2), 2, relation):
        laws = [law(key(table)) for table in pair]
        largest = max(largest, excess(*laws, 2), excess(*laws[::-1], 2))
    assert 0 <= largest <= 1e-3


CASES: dict[str, tuple[dict[str, Any], Counts]] = {
    "laplace totals": (
        {"method": "laplace", "threshold": 6, "epsilon": 2},
        Counts(np.array([5, 0, 9]), np.array([2, 1, 3]), 12, 9),
    ),
    "laplace differences": (
        {"method": "laplace", "threshold": 3, "epsilon": 2, "score": "difference_count", "neighbours": "replace"},
        Counts(np.array([5, 0, 2]), np.array([2, 7, 3]), 12, 9),
    ),
    "laplace purity": (
        {"method": "laplace", "threshold": 6, "epsilon": 3, "score": "purity"},
        Counts(np.array([5, 0, 2]), np.array([2, 7, 3]), 12, 9),
    ),
    "gaussian totals": (
        {"delta": 1e-3, "threshold": 6, "epsilon": 3},
        Counts(np.array([5, 0, 9]), np.array([2, 1, 3]), 12, 9),
    ),
    "gaussian purity": (
        {"delta": 1e-3, "threshold": 6, "epsilon": 3, "score": "purity", "neighbours": "replace"},
        Counts(np.array([5, 0, 2]), np.array([2, 7, 3]), 12, 9),
    ),
    "svt": (
        {"method": "svt", "cutoff": 2, "threshold": 4, "epsilon": 3},
        Counts(np.array([5, 0, 9]), np.array([2, 1, 3]), 12, 9),
    ),
    "gumbel gain": (
        {"method": "gumbel", "k": 2, "epsilon": 12, "score": "information_gain", "n_max": 30},
        Counts(np.array([12, 0, 2]), np.array([0, 7, 3]), 12, 9),
    ),
}


LONG = ("laplace totals", "laplace differences", "gaussian totals", "svt", "gumbel gain")


@pytest.mark.long
@cases("case", [pytest.param(case, marks=[pytest.mark.slow] if case in LONG else []) for case in CASES])
def test_draws_follow_the_exact_law(case: str) -> None:
    """As stated; with noise 0.7 and 1.3 times as large, they do not."""
    arguments, counts = CASES[case]
    right = plan(3, max_features_per_row=2, **arguments)
    names = ["0", "1", "2"]

    def output(result: dict[str, Any]) -> Any:
        positions = tuple(map(int, result["names"]))
        if result["stopped_at"] is not None:
            return positions, result["stopped_at"]
        return frozenset(positions) if right.noise_law else positions

    def scaled(factor: float) -> ScoreFilterPlan:
        """The same thresholds with another noise."""
        wrong = plan(3, max_features_per_row=2, **{**arguments, "epsilon": arguments["epsilon"] / factor})
        if right.noise_law:
            object.__setattr__(wrong, "applied_threshold", right.applied_threshold)
            wrong.__dict__["mu"] = right.mu / Fraction(str(factor)) if right.noise_law == "gaussian" else None
        return wrong

    def wrong_law(factor: float) -> Any:
        wrong = scaled(factor)
        if right.noise_law == "gaussian":
            object.__setattr__(wrong, "deviation", lambda count: right.deviation(count) * factor)
        return filter_law(wrong, counts)

    law, runs = filter_law(right, counts), 1000
    assert math.fsum(law.values()) == pytest.approx(1, abs=1e-9)
    for factor in (0.7, 1.3):
        needed = runs_needed(law, wrong_law(factor), false_alarm=FALSE_ALARM, miss=MISS)
        drawn = [output(draw_once(draw_features, scaled(factor), counts, names)) for _ in range(needed)]
        assert not fit(drawn, law, false_alarm=FALSE_ALARM).accepted
        runs = max(runs, needed)
    drawn = [output(draw_once(draw_features, right, counts, names)) for _ in range(runs)]
    assert fit(drawn, law, false_alarm=FALSE_ALARM).accepted


@pytest.mark.long
@cases("delta", [None, 1e-6])
@cases(
    ("score", "false_positives"),
    [
        *(("total_count", number) for number in (0.1, 1, 10)),
        *(pytest.param("difference_count", number, marks=pytest.mark.slow) for number in (0.1, 10)),
        ("difference_count", 1),
    ],
)
def test_false_positives_of_features_without_rows(false_positives: float, score: str, delta: float | None) -> None:
    """2000 features that no row has: as many are reported as asked for, up to a whole number's rounding."""
    d, runs = 2000, 200
    chosen = plan(d, score=score, threshold=0, delta=delta, false_positives=false_positives)
    zeros = np.zeros(d, dtype=np.int64)
    counts = Counts(zeros, zeros, 0, 0)
    names = [str(j) for j in range(d)]
    reported = sum(len(draw_once(draw_features, chosen, counts, names)["names"]) for _ in range(runs))
    expected = runs * false_positives
    slack = 6 * math.sqrt(expected)
    # Laplace noise of scale 10 loses up to exp(-1/10) to whole numbers.
    assert expected * (1.0 if delta else math.exp(-0.1)) - slack < reported < expected + slack
    # Without the limit half of them are; with a threshold above it, fewer.
    none = plan(d, score=score, threshold=0, delta=delta, false_positives=d)
    assert len(draw_once(draw_features, none, counts, names)["names"]) > d / 3
    assert none.applied_threshold(d) == 0
    high = plan(d, score=score, threshold=10**4, delta=delta)
    assert high.applied_threshold(d) == 10**4
    assert draw_once(draw_features, high, counts, names)["names"] == []


@pytest.mark.parametrize("score", ["total_count", "difference_count"])
def test_false_positives_of_the_sparse_vector_technique(score: str) -> None:
    """Of 2000 features without rows about as many are reported as asked for; without the limit, all that may be."""
    d, runs = 2000, 200
    zeros = np.zeros(d, dtype=np.int64)
    names = [str(j) for j in range(d)]

    def reported(false_positives: float) -> float:
        chosen = plan(d, score=score, threshold=0, method="svt", cutoff=20, false_positives=false_positives)
        found = (draw_once(draw_features, chosen, Counts(zeros, zeros, 0, 0), names) for _ in range(runs))
        return sum(len(result["names"]) for result in found) / runs

    assert 0.5 < reported(1) < 1.3
    assert 3 < reported(5) < 6
    assert reported(d) > 19


@cases("score", SCORES)
@cases("delta", [None, 1e-6], quick=1)
def test_errors_are_as_wide_as_stated(score: str, delta: float | None) -> None:
    """The spread of released scores over draws; scores far from where an absolute value folds them."""
    counts = Counts(np.array([400, 10, 5]), np.array([10, 300, 2]), 2000, 1000)
    chosen = plan(3, score=score, k=1, delta=delta, method="gaussian" if delta else "laplace", max_features_per_row=2)
    results = [draw_once(draw_features, chosen, counts, ["a", "b", "c"]) for _ in range(1500)]
    best = "b" if score in ("purity", "information_gain") else "a"
    assert all(result["names"] == [best] for result in results)
    spread = np.std([result["scores"][0] for result in results])
    if score == "information_gain":
        assert results[0]["std_error"] is None
    else:
        # Laplace noise has a kurtosis of 6.
        assert spread == pytest.approx(results[0]["std_error"], rel=0.2)


def test_the_log_ratio_of_laws() -> None:
    assert log_ratio({"a": 0.5, "b": 0.5}, {"a": 0.25, "b": 0.75}) == pytest.approx(math.log(2))
    assert log_ratio({"a": 1.0}, {"b": 1.0}) == math.inf
