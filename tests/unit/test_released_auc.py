"""The area that a released ROC curve tells, and its interval."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.contract.measurement import Permit
from dpsql.functions.roc import RocPlan, draw_roc
from dpsql.mechanisms.prefix_sums import prefix_strategy
from dpsql.noise.discrete import laplace_deviation
from dpsql.released import areas
from dpsql.released.areas import curve_area, reach
from dpsql.released.curves import RocCounts
from support.cases import cases
from support.laws.roc import discrete_laplace_law


def curve(negatives: list[float], positives: list[float], error: float = 0.0) -> Any:
    count = len(negatives)
    thresholds = tuple(1 - (place + 1) / count for place in range(count))
    errors, none = (error,) * count, (0.0,) * count
    return RocCounts(thresholds, tuple(positives), tuple(negatives), errors, none, 1.0).to_record()


def exact_area(negative: np.ndarray, positive: np.ndarray) -> float:
    """Return the area of exact counts by cell, in ascending order of the score."""
    below = np.cumsum(negative) - negative
    return float((positive * (below + negative / 2)).sum() / positive.sum() / negative.sum())


def test_without_noise_the_ends_are_those_of_the_best_and_the_worst_order() -> None:
    """Two positives and one negative in the upper half, one and three in the lower half."""
    (row,) = curve_area(curve([1, 4], [2, 3]))
    assert row["auc"] == pytest.approx((2 * 3 + (2 * 1 + 1 * 3) / 2) / 12)
    assert row["lower"] == pytest.approx(2 * 3 / 12)
    assert row["upper"] == pytest.approx((2 * 3 + 2 * 1 + 1 * 3) / 12)
    assert (row["std_error"], row["verdict"]) == (None, "unclear")
    assert curve_area(curve([0, 4], [3, 3]))[0]["verdict"] == "clear"


@pytest.mark.parametrize(
    "record",
    [curve([1, 4], [2, 3], 3.0), curve([-2, -1], [2, 3], 0.1), curve([5, 9], [0, 0], 1.0), curve([3, 1], [5, 2], 9.0)],
    ids=["wide noise", "no negatives", "no positives", "descending"],
)
def test_no_area_where_noise_leaves_everything_open(record: Any) -> None:
    assert curve_area(record) == [
        {"auc": None, "std_error": None, "lower": 0.0, "upper": 1.0, "verdict": "undetermined"}
    ]


@pytest.mark.parametrize("empty", ["negatives", "positives"])
def test_a_class_that_surely_has_no_row_leaves_half(empty: str) -> None:
    """Whatever the noise of the concordance: there the area is no ratio of noise to noise."""
    fine = {"laplace": [1e-5, 1e-5], "fineness": [1e-6, 1e-6]}
    errors = {"concordance_error": 1e-5, "count_error": 1e-5, "concordance_reach": 1e-4, "count_reach": 1e-4}
    record: Any = {"positives": 600.0, "negatives": 600.0, empty: 0.0, "concordance": 5e-5, **errors, **fine}
    lower, upper = areas.interval(record)
    assert 0.499 < lower < 0.5 < upper < 0.501
    [row] = areas.area_rows(record)
    assert (row["auc"], row["verdict"]) == (pytest.approx(0.5, abs=1e-3), "unclear")


def test_wider_noise_widens_the_interval() -> None:
    rows = [curve_area(curve([10, 50, 400], [300, 350, 420], error))[0] for error in (0.0, 0.5, 2.0, 8.0)]
    assert [row["lower"] for row in rows] == sorted((row["lower"] for row in rows), reverse=True)
    assert [row["upper"] for row in rows] == sorted(row["upper"] for row in rows)
    assert len({row["auc"] for row in rows}) == 1


@cases("scale", [Fraction(1, 20), Fraction(1, 5), Fraction(1), Fraction(7, 2), Fraction(40)])
@cases("failure", [0.05, 1 / 600])
def test_noise_stays_within_reach(scale: Fraction, failure: float) -> None:
    """Of one and of two sums with Laplace noise, whose laws are exact here; less than half would not do for wide noise."""
    found = reach(laplace_deviation(scale), failure)
    law = discrete_laplace_law(0, float(scale), reach=math.ceil(60 * scale) + 5)
    values, chances = np.array(list(law)), np.array(list(law.values()))
    assert chances[np.abs(values) > found].sum() <= failure
    if scale >= 1:
        assert chances[np.abs(values) > 0.45 * found].sum() > failure
    twice = np.convolve(chances, chances)
    both = reach(math.sqrt(2) * laplace_deviation(scale), failure)
    assert twice[np.abs(np.arange(len(twice)) - len(twice) // 2) > both].sum() <= failure


def test_reach_of_gaussian_noise_and_of_none() -> None:
    assert reach(0.0, 0.01) == 0
    for deviation in (0.3, 5.0, 1e12):
        assert math.erfc(reach(deviation, 0.001) / deviation / math.sqrt(2)) <= 0.001
        assert math.isfinite(reach(deviation, 0.001))


@pytest.mark.parametrize("name", ["identity", "tree", "wavelet"])
def test_weights_of_laplace_noise_are_at_most_1(name: str) -> None:
    """Which `reach` assumes."""
    for cells in (1, 2, 7, 8, 9, 16, 65):
        assert np.abs(prefix_strategy(cells, name=name).reconstruction).max() <= 1 + 1e-9


SETTINGS = [
    (150, 120, 2.0, {"epsilon": 1, "thresholds": "fixed"}),
    (845, 5000, 0.0, {"epsilon": 0.2}),
    (400, 300, 1.0, {"epsilon": 1, "delta": 1e-6, "neighbours": "replace", "n_thresholds": 31}),
    (30, 30, 1.0, {"epsilon": 4, "thresholds": "fixed", "n_thresholds": 31}),
]


def missed(positives: int, negatives: int, shift: float, more: dict[str, Any], runs: int) -> int:
    rng = np.random.default_rng(3)
    scores = [rng.normal(mean, 1.0, size) for mean, size in ((0.0, negatives), (shift, positives))]
    negative, positive = (np.histogram(1 / (1 + np.exp(-some)), 4096, (0, 1))[0] for some in scores)
    plan = RocPlan.from_arguments("t", {"label": "y", "score": "p", "target_levels": ["a", "b"], **more})
    truth, found = exact_area(negative, positive), 0
    for _ in range(runs):
        with Permit(plan.measurement).drawing():
            record: Any = draw_roc(plan, negative, positive).to_record()
        (row,) = curve_area(record)
        assert row["auc"] is None or row["lower"] <= row["auc"] <= row["upper"]  # type: ignore[operator]
        found += not row["lower"] <= truth <= row["upper"]  # type: ignore[operator]
    return found


@pytest.mark.long
@pytest.mark.parametrize(("positives", "negatives", "shift", "more"), SETTINGS)
def test_coverage(positives: int, negatives: int, shift: float, more: dict[str, Any]) -> None:
    """At least 95 %: 19 or more misses of 100 have a chance of at most 1e-6."""
    assert missed(positives, negatives, shift, more, 100) < 19


def test_coverage_falls_without_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a twentieth of it, and steps that meet between thresholds."""
    monkeypatch.setattr(areas, "reach", lambda deviation, failure: deviation / 20)
    monkeypatch.setattr(
        areas, "_steps", lambda false, true: math.fsum((np.diff(true) * (1 - false)).tolist()) / 2 + 0.25
    )
    assert missed(845, 5000, 0.0, {"epsilon": 0.05, "thresholds": "fixed"}, 100) > 19
