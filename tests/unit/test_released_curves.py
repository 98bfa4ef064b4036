"""Curves read off noisy counts: consistent, with their end points, equal to scikit-learn's without noise."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression
from sklearn.metrics import accuracy_score, auc, confusion_matrix, f1_score, precision_score, recall_score, roc_curve

from dpsql.released.curves import (
    RocCounts,
    area_between,
    area_under,
    calibration,
    confusion_rows,
    consistent,
    precision_recall,
    rate_errors,
    roc_rows,
)

THRESHOLDS = (0.75, 0.5, 0.25, 0.0)


def counts(positives, negatives, errors=(1.0,) * 4, shared=(0.0,) * 4):
    return RocCounts(THRESHOLDS, tuple(positives), tuple(negatives), tuple(errors), tuple(shared), 1.0)


def of_scores(labels, scores, noise=0.0):
    """Return the counts of a table; noise moves every one of them."""
    rng = np.random.default_rng(0)
    sums = [
        [((labels == level) & (scores >= threshold)).sum() + noise * rng.normal() for threshold in THRESHOLDS]
        for level in (1, 0)
    ]
    return counts(*sums)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    scores = rng.random(400)
    return (rng.random(400) < scores).astype(int), scores


def test_without_noise_it_is_the_curve_of_scikit_learn(table):
    labels, scores = table
    rows = roc_rows(of_scores(labels, scores).to_record())
    cut = np.array(THRESHOLDS)[np.searchsorted(-np.array(THRESHOLDS), -scores)]
    fpr, tpr, thresholds = roc_curve(labels, cut, drop_intermediate=False)
    assert [row["threshold"] for row in rows] == [math.inf, *THRESHOLDS] == thresholds.tolist()
    assert [row["fpr"] for row in rows] == pytest.approx(fpr)
    assert [row["tpr"] for row in rows] == pytest.approx(tpr)
    assert area_under(fpr, tpr) == pytest.approx(auc(fpr, tpr))


def test_confusion_precision_and_calibration_without_noise(table):
    labels, scores = table
    record = {**of_scores(labels, scores).to_record(), "levels": [False, True]}
    rows = confusion_rows(json.loads(json.dumps(record)))
    assert [row["threshold"] for row in rows] == [0.25, 0.5, 0.75]
    points = {row["threshold"]: row for row in precision_recall(record)}
    for row in rows:
        predicted = (scores >= row["threshold"]).astype(int)
        (tn, fp), (fn, tp) = confusion_matrix(labels, predicted)
        found = [row[f"{kind}_{level}s"] for kind in ("true", "false") for level in ("positive", "negative")]
        assert found == [tp, tn, fp, fn]
        measures = (accuracy_score, precision_score, recall_score, f1_score)
        expected = [measure(labels, predicted) for measure in measures]
        assert [row[name] for name in ("accuracy", "precision", "recall", "f1")] == pytest.approx(expected)
        assert row["std_error"] == 1
        assert points[row["threshold"]]["precision"] == pytest.approx(expected[1])
        assert points[row["threshold"]]["recall"] == pytest.approx(expected[2])
    assert points[0.0]["recall"] == 1
    bins = calibration(record)
    assert [(one["lower"], one["upper"]) for one in bins] == [(0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1)]
    for one in bins:
        inside = (scores >= one["lower"]) & (scores < one["upper"])
        assert one["rows"] == pytest.approx(inside.sum())
        assert one["positive_rate"] == pytest.approx(labels[inside].mean())
        assert one["mean_score"] == (one["lower"] + one["upper"]) / 2


def test_noise_is_made_consistent():
    curve = counts([3.0, 1.0, -2.0, 8.0], [-4.0, -1.0, 5.0, 4.0])
    positives, negatives = curve.consistent
    assert positives.tolist() == pytest.approx([2 / 3, 2 / 3, 2 / 3, 8])
    assert negatives.tolist() == pytest.approx([0, 0, 4.5, 4.5])
    rows = roc_rows(curve.to_record())
    exact = {"fpr_std_error": 0.0, "tpr_std_error": 0.0, "verdict": "unclear"}
    assert rows[0] == {"threshold": math.inf, "fpr": 0.0, "tpr": 0.0, **exact}
    assert rows[-1] == {"threshold": 0.0, "fpr": 1.0, "tpr": 1.0, **exact}
    errors = [part[1] for part in rate_errors(curve)]
    noise = dict(zip(("fpr_std_error", "tpr_std_error"), errors, strict=True))
    assert rows[2] == {"threshold": 0.5, "fpr": 0.0, "tpr": pytest.approx(1 / 12), **noise, "verdict": "unclear"}


@pytest.mark.long
@settings(max_examples=200)
@given(st.lists(st.tuples(st.floats(0, 300), st.floats(0.1, 20)), min_size=1, max_size=20))
def test_isotonic_regression_is_that_of_scipy(numbers):
    sums, errors = (np.array(column) for column in zip(*numbers, strict=True))
    expected = isotonic_regression(sums, weights=1 / errors**2).x
    assert consistent(sums, errors) == pytest.approx(expected, abs=1e-9)


def test_weights_are_one_over_the_variance():
    assert consistent([2.0, 1.0], [1.0, 2.0]) == pytest.approx([1.8, 1.8])
    assert consistent([2.0, 1.0], [0.0, 0.0]) == pytest.approx([1.5, 1.5])


@pytest.mark.parametrize(
    ("positives", "negatives"), [([-1, -2, -3, -1], [1, 2, 3, 4]), ([1, 1, 1, 1], [-5, -4, -3, -2])]
)
def test_a_level_that_noise_has_emptied_gives_the_diagonal(positives, negatives):
    rows = roc_rows(counts(positives, negatives).to_record())
    assert [(row["fpr"], row["tpr"]) for row in rows] == [(share, share) for share in (0, 0.25, 0.5, 0.75, 1)]
    assert np.isinf(rate_errors(counts(positives, negatives))[0 if negatives[-1] < 0 else 1]).all()


def test_shares_of_nothing_are_none():
    record = counts([0, 0, 0, 0], [0, 0, 0, 0]).to_record()
    assert {row["precision"] for row in precision_recall(record)} == {None}
    assert {row["positive_rate"] for row in calibration(record)} == {None}
    for row in confusion_rows(record):
        assert [row[name] for name in ("accuracy", "precision", "recall", "f1")] == [None] * 4


@pytest.mark.long
@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.floats(-50, 200), st.floats(-50, 200), st.floats(0.1, 20), st.floats(-5, 5)),
        min_size=1,
        max_size=9,
    )
)
def test_every_curve_is_one(numbers):
    """Whatever the noise: rates ascend from (0, 0) to (1, 1), counts are not negative and have one total."""
    thresholds = tuple(float(len(numbers) - place) for place in range(1, len(numbers) + 1))
    curve = RocCounts(thresholds, *(tuple(column) for column in zip(*numbers, strict=True)), 10.0)
    assert RocCounts.from_record(json.loads(json.dumps(curve.to_record()))) == curve
    rows = roc_rows(curve.to_record())
    for name in ("fpr", "tpr"):
        rates = [row[name] for row in rows]
        assert rates[0] == 0
        assert rates[-1] == 1
        assert rates == sorted(rates)
    totals = set()
    for row in confusion_rows(curve.to_record()):
        cells = [row[f"{kind}_{level}s"] for kind in ("true", "false") for level in ("positive", "negative")]
        assert min(cells) >= 0
        totals.add((round(cells[0] + cells[3], 6), round(cells[1] + cells[2], 6)))
        assert all(row[name] is None or 0 <= row[name] <= 1 for name in ("accuracy", "precision", "recall", "f1"))
    assert len(totals) <= 1
    assert sum(one["rows"] for one in calibration(curve.to_record())) == pytest.approx(
        sum(part[-1] for part in curve.consistent)
    )


def test_rate_errors_are_those_of_the_noise():
    """2000 releases with correlated noise: the spread of a rate is the stated one, to first order."""
    rng = np.random.default_rng(3)
    exact = np.array([100.0, 300.0, 600.0, 1000.0])
    factors = np.tri(4) * 10
    covariance = factors @ factors.T
    errors, shared = np.sqrt(np.diag(covariance)), covariance[-1]
    rates = []
    for _ in range(2000):
        noisy = exact + factors @ rng.normal(size=4)
        rates.append(counts(noisy, exact, errors, shared).rates[1])
    fpr, tpr = rate_errors(counts(exact, exact / 2, errors, shared))
    assert tpr[:3] == pytest.approx(np.std(rates, axis=0)[:3], rel=0.1)
    assert tpr[3] == pytest.approx(0, abs=1e-9)
    assert fpr[:3] == pytest.approx(2 * tpr[:3])


def test_area_between_curves():
    diagonal = ([0, 1], [0, 1])
    perfect = ([0, 0, 1], [0, 1, 1])
    assert area_between(diagonal, diagonal) == 0
    assert area_between(diagonal, perfect) == pytest.approx(0.5)
    assert area_between(perfect, ([0, 1, 1], [0, 0, 1])) == pytest.approx(1)
    # Crossing lines: two triangles.
    assert area_between(diagonal, ([0, 0.5, 0.5, 1], [0, 0, 1, 1])) == pytest.approx(0.25)
    assert area_between(diagonal, ([0, 0, 1, 1], [0, 0.5, 0.5, 1])) == pytest.approx(0.25)


@settings(max_examples=100)
@given(*[st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=6)] * 2)
def test_area_between_is_the_integral(one, other):
    curves = []
    for points in (one, other):
        pairs = np.array([(0, 0), *points, (8, 8)])
        curves.append(tuple(np.sort(pairs, axis=0).T / 8))
    middles = (np.arange(8000) + 0.5) / 8000
    heights = []
    for fpr, tpr in curves:
        at = np.searchsorted(fpr, middles, side="right") - 1
        slope = (tpr[at + 1] - tpr[at]) / (fpr[at + 1] - fpr[at])
        heights.append(tpr[at] + slope * (middles - fpr[at]))
    assert area_between(*curves) == pytest.approx(np.abs(heights[0] - heights[1]).mean(), abs=1e-3)
