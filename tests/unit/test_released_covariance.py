"""Covariances and correlations from noisy moments: they follow from the record alone."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from dpsql.released.covariance import correlation, covariance
from support.cases import cases

_REACH = NormalDist().inv_cdf(1 - 0.05 / 12)


def table(rows: int, features: int, *, middle: float, width: float, seed: int = 0) -> np.ndarray:
    """Return related columns around a middle, clipped to [-1, 1]."""
    generator = np.random.default_rng(seed)
    common = generator.normal(size=(rows, 1))
    return np.clip(middle + width * (0.7 * common + 0.7 * generator.normal(size=(rows, features))), -1, 1)


def noisy(z: np.ndarray, deviation: float, generator: np.random.Generator, bounds: Any = None) -> Any:
    """Return the record of a release of rows that are scaled to [-1, 1]."""
    features = z.shape[1]
    products = (z.T @ z)[np.triu_indices(features, 1)]
    parts = [np.array([len(z)]), z.sum(axis=0), (z**2 - 0.5).sum(axis=0), products]
    rows, sums, squares, products = (part + deviation * generator.normal(size=len(part)) for part in parts)
    return {
        "names": [f"x{j}" for j in range(features)],
        "bounds": bounds or [(-1.0, 1.0)] * features,
        "rows": float(rows[0]),
        "sums": sums.tolist(),
        "squares": squares.tolist(),
        "products": products.tolist(),
        "std_error": deviation,
        "reach": _REACH * deviation,
        "ddof": 1,
    }


def test_without_noise_it_is_the_exact_matrix() -> None:
    z = table(500, 4, middle=0.2, width=0.3)
    bounds = [(0.0, 10.0), (-1.0, 1.0), (5.0, 6.0), (-3.0, 1.0)]
    record = noisy(z, 0.0, np.random.default_rng(0), bounds)
    own = z * [(high - low) / 2 for low, high in bounds]
    found = covariance(record)
    for matrix in (found.value, found.lower, found.upper):
        assert matrix == pytest.approx(np.cov(own.T), rel=1e-9)
    assert covariance({**record, "ddof": 0}).value == pytest.approx(np.cov(own.T, ddof=0), rel=1e-9)
    for matrix in (correlation(record).value, correlation(record).lower, correlation(record).upper):
        assert matrix == pytest.approx(np.corrcoef(z.T), rel=1e-9)


SETTINGS = [
    (30, 0.0, 0.5),
    (400, 0.0, 0.5),
    (400, 0.8, 0.1),
    (20_000, 0.0, 0.5),
    (20_000, -0.5, 0.1),
    (20_000, 0.9, 0.3),
]


@pytest.mark.long
@cases(("rows", "middle", "width"), SETTINGS)
def test_intervals_cover(rows: int, middle: float, width: float) -> None:
    """In 1,000 releases at (1, 1e-6) each interval holds the exact number at least 95 times of 100; mostly far more."""
    z, generator = table(rows, 2, middle=middle, width=width), np.random.default_rng(rows)
    exact = {covariance: np.cov(z.T), correlation: np.corrcoef(z.T)}
    held = {form: np.zeros((2, 2)) for form in exact}
    for _ in range(1000):
        record = noisy(z, math.sqrt(4.5) / 0.2367, generator)
        for form, truth in exact.items():
            found = form(record)
            assert (found.lower <= found.upper).all()
            held[form] += (found.lower <= truth + 1e-12) & (truth - 1e-12 <= found.upper)
    for form in exact:
        assert held[form].min() >= 950, (form, held[form])


@pytest.mark.long
@pytest.mark.parametrize("middle", [0.0, 0.6])
def test_standard_errors_are_the_spread_of_releases(middle: float) -> None:
    z, generator = table(5000, 3, middle=middle, width=0.3), np.random.default_rng(5)
    for form in (covariance, correlation):
        found = [form(noisy(z, 9.0, generator)) for _ in range(300)]
        spread = np.std([one.value for one in found], axis=0)
        stated = np.mean([one.std_error for one in found], axis=0)
        upper = np.triu_indices(3, 0 if form is covariance else 1)
        assert stated[upper] == pytest.approx(spread[upper], rel=0.2)


@pytest.mark.long
def test_matrices_are_positive_semidefinite_and_within_bounds() -> None:
    generator = np.random.default_rng(1)
    for rows, features, deviation in [(3, 4, 20.0), (50, 8, 10.0), (2000, 20, 30.0)]:
        z = table(rows, features, middle=0.3, width=0.5)
        for _ in range(30):
            record = noisy(z, deviation, generator)
            found = correlation(record)
            known = ~np.isnan(found.value).any(axis=1)
            inner = found.value[np.ix_(known, known)]
            assert abs(inner).max(initial=0.0) <= 1
            assert np.linalg.eigvalsh(inner).min(initial=0.0) >= -1e-9
            assert (abs(found.lower) <= 1).all()
            assert (abs(found.upper) <= 1).all()
            value = covariance({**record, "rows": max(1.0, record["rows"]), "ddof": 0}).value
            assert np.linalg.eigvalsh(value).min() >= -1e-9
            assert np.diagonal(value).max() <= 1 + 1e-12


def test_a_projection_comes_closer() -> None:
    """The nearest positive semidefinite matrix is never farther from the exact one, and usually much closer."""
    z, generator = table(300, 12, middle=0.0, width=0.4), np.random.default_rng(2)
    exact = np.cov(z.T, ddof=0)
    for _ in range(20):
        record = noisy(z, 30.0, generator)
        means, products = np.array(record["sums"]) / record["rows"], np.zeros((12, 12))
        products[np.triu_indices(12, 1)] = record["products"]
        products += products.T + np.diag(np.array(record["squares"]) + record["rows"] / 2)
        raw = products / record["rows"] - np.outer(means, means)
        value = covariance({**record, "ddof": 0}).value
        assert np.linalg.norm(value - exact) < np.linalg.norm(raw - exact)


def test_hidden_variances_are_null_and_few_rows_have_no_covariance() -> None:
    z = table(1000, 3, middle=0.0, width=0.3)
    z[:, 1] = 0.25
    found = correlation(noisy(z, 5.0, np.random.default_rng(3)))
    assert np.isnan(found.value[1, 0])
    assert np.isnan(found.value[1, 2])
    assert not np.isnan(found.value[0, 2])
    assert (found.lower[0, 1], found.upper[0, 1]) == (-1, 1)
    rows = list(found.rows(diagonal=False))
    assert [(row["feature_1"], row["feature_2"], row["value"] is None) for row in rows] == [
        ("x0", "x1", True),
        ("x0", "x2", False),
        ("x1", "x2", True),
    ]
    record = noisy(z, 5.0, np.random.default_rng(3))
    none = covariance({**record, "rows": -7.0})
    assert np.isnan(none.value).all()
    assert np.isfinite(none.lower).all()
    assert np.isfinite(none.upper).all()


def test_a_mean_at_a_bound_leaves_correlations() -> None:
    z = table(500, 2, middle=0.9, width=0.5)
    record = noisy(z, 1.0, np.random.default_rng(4))
    record["sums"] = [record["rows"] + 1.0, record["sums"][1]]
    record["squares"] = [record["rows"] * 0.8, record["squares"][1]]
    assert np.isfinite(correlation(record).value).all()
    assert covariance({**record, "ddof": 0}).value[0, 0] == 0
