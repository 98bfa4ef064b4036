"""The noise of moments against its exact law; noise scaled by 0.7 and by 1.3 must be told apart.

Per case the rates of a false alarm and of missing the wrong scale are 1e-8; `runs_needed` sizes the samples.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.contract.gaussian_profile import gaussian_mu
from dpsql.contract.measurement import draw_once
from dpsql.functions import covariance as module
from dpsql.functions.covariance import CorrelationPlan, draw_moments
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.statistics.feature_moments import moments_length
from dpsql.testing.distribution import fit, runs_needed
from support.cases import cases
from support.laws.feature_moments import row_of_moments

FALSE_ALARM, MISS = 1e-8, 1e-8
UNIT = 2 * FIXED_POINT_ONE**2
MU = float(gaussian_mu(Fraction(1), Fraction("1e-6")))
# Relation, rows of a unit, features: standard deviation of Gaussian noise times mu, scale of Laplace noise times epsilon.
NOISE: dict[tuple[str, int, int], tuple[float, float]] = {
    ("add_remove", 1, 2): (math.sqrt(4.5), 5.0),
    ("replace", 1, 2): (math.sqrt(8.0), 16 / 3),
    ("add_remove", 4, 3): (4 * math.sqrt(7.75), 4 * 8.5),
    ("replace", 2, 3): (2 * 4.0, 2 * 9.375),
}


def plan(relation: str, rows: int, features: int, delta: float | None) -> CorrelationPlan:
    names = [f"x{j}" for j in range(features)]
    unit = {"privacy_unit": "u", "max_rows_per_unit": rows} if rows > 1 else {}
    given = {"features": names, "epsilon": 1, "delta": delta, "lower": -1, "upper": 1, "neighbours": relation, **unit}
    return CorrelationPlan.from_arguments("t", given)


def cells(distribution: Any, factor: float) -> dict[int, float]:
    """P(floor(4 x) = cell) for noise of a nominal size of 1, times factor."""
    edges = np.arange(-80, 81) * 0.25 / factor
    return {cell: float(p) for cell, p in zip(range(-80, 80), np.diff(distribution.cdf(edges)), strict=True)}


def standardised(
    setting: tuple[str, int, int], delta: float | None, factor: float, runs: int, monkeypatch: pytest.MonkeyPatch
) -> list[np.ndarray]:
    """Return the noise of each release in units of its size; the sensitivities are taken for `factor` times theirs."""
    stated = plan(*setting, delta)
    features = setting[2]
    exact = np.array([3 * UNIT + 12345678 * j for j in range(moments_length(features))], dtype=object)
    size = NOISE[setting][0] / MU if delta else NOISE[setting][1]
    found: list[np.ndarray] = []
    times = Fraction(factor)
    with monkeypatch.context() as patch:
        for name, power in (("squared_l2_sensitivity", 2), ("coarse_l1_sensitivity", 1)):
            real = getattr(module, name)
            patch.setattr(module, name, lambda *unit, real=real, power=power: real(*unit) * times**power)
        while sum(map(len, found)) < runs:
            noisy = draw_once(draw_moments, stated, exact, features)
            found.append((np.array(noisy) - exact.astype(float) / UNIT) / size)
    return found


@cases("delta", [1e-6, None], quick=2)
@cases("setting", NOISE)
def test_the_noise_of_a_release(
    setting: tuple[str, int, int], delta: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stats = pytest.importorskip("scipy.stats")
    distribution = stats.norm if delta else stats.laplace
    law, runs = cells(distribution, 1.0), 500
    for factor in (0.7, 1.3):
        needed = runs_needed(law, cells(distribution, factor), false_alarm=FALSE_ALARM, miss=MISS)
        wrong = np.concatenate(standardised(setting, delta, factor, needed, monkeypatch))
        assert not fit(np.floor(wrong * 4).astype(int).tolist(), law, false_alarm=FALSE_ALARM).accepted
        runs = max(runs, needed)
    right = np.concatenate(standardised(setting, delta, 1.0, runs, monkeypatch))
    assert fit(np.floor(right * 4).astype(int).tolist(), law, false_alarm=FALSE_ALARM).accepted


def test_the_numbers_of_a_release_are_independent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Along the row that moves a release farthest, noise is as wide as in every number."""
    stats = pytest.importorskip("scipy.stats")
    law = cells(stats.norm, 1.0)
    needed = runs_needed(law, cells(stats.norm, 1.3), false_alarm=FALSE_ALARM, miss=MISS)
    drawn = standardised(("add_remove", 1, 2), 1e-6, 1.0, 6 * needed, monkeypatch)
    away = row_of_moments(np.array([1.0, -1.0]))
    along = np.array(drawn) @ away / np.linalg.norm(away)
    assert fit(np.floor(along * 4).astype(int).tolist(), law, false_alarm=FALSE_ALARM).accepted


def test_what_a_release_says_of_its_noise() -> None:
    for (relation, rows, features), (gaussian, laplace) in NOISE.items():
        assert plan(relation, rows, features, 1e-6).deviation(features) == pytest.approx(gaussian / MU)
        pure = plan(relation, rows, features, None)
        assert pure.deviation(features) == pytest.approx(laplace * math.sqrt(2), rel=1e-5)
        assert math.exp(-pure.reach(features) / laplace) == pytest.approx(0.05 / 6, rel=1e-4)
