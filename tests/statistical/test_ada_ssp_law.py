"""The noise of private regression against its exact law; noise scaled by 0.7 and by 1.3 must be told apart.

Per case the rates of a false alarm and of missing the wrong scale are 1e-8; `runs_needed` sizes the samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.contract.gaussian_profile import gaussian_mu
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.kernels.gram import ClippedRows, clip_rows, gram_products
from dpsql.mechanisms import ada_ssp as module
from dpsql.mechanisms.ada_ssp import ada_ssp, boosted_ada_ssp, release_least_eigenvalue
from dpsql.mechanisms.gaussian import GaussianRelease, gaussian_release
from dpsql.statistics.regression import largest_norm
from dpsql.testing.bits import SeededBits
from dpsql.testing.distribution import fit, runs_needed
from support.cases import cases

S = FIXED_POINT_ONE
FEATURE_RADIUS = round(1.2 * S)
R = largest_norm(1, FEATURE_RADIUS)
MU = gaussian_mu(Fraction(1), Fraction("1e-6"))
FALSE_ALARM, MISS = 1e-8, 1e-8
FACTORS = [0.7, 1.3]
# Multipliers of the sensitivities (Gram matrix in units of R^2, X'y in units of R S), by relation.
GRAM = {"add_remove": 1.0, "replace": math.sqrt(2)}
CROSS = {"add_remove": 1.0, "replace": 2.0}


def table(count: int, width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    features = np.rint(generator.uniform(-1, 1, (count, width - 1)) * S)
    clip_rows(features, FEATURE_RADIUS)
    rows = np.column_stack((np.full(count, float(S)), features))
    target = np.rint(rows @ generator.normal(0, 0.1, width) + generator.normal(0, 0.05, count) * S)
    return rows, np.clip(target, -S, S)


def cells(sigma: float) -> dict[int, float]:
    """P(floor(x / (sigma / 4)) = cell) under N(0, sigma^2), in terms of a nominal sigma of 1."""
    edges = np.arange(-60, 61) * 0.25 / (sigma * math.sqrt(2.0))
    mass = np.diff([0.5 * math.erfc(-edge) for edge in edges])
    return {cell: float(chance) for cell, chance in zip(range(-60, 60), mass, strict=True)}


def check(draw: Callable[[float, int], np.ndarray]) -> None:
    """Accept ``draw(1, runs)``, standardised noise, and reject ``draw(factor, runs)``, the noise times factor."""
    law = cells(1.0)
    runs = 500
    for factor in FACTORS:
        needed = runs_needed(law, cells(factor), false_alarm=FALSE_ALARM, miss=MISS)
        wrong = draw(factor, needed)
        assert len(wrong) >= needed
        assert not fit(np.floor(wrong * 4).astype(int).tolist(), law, false_alarm=FALSE_ALARM).accepted
        runs = max(runs, needed)
    right = draw(1.0, runs)
    assert fit(np.floor(right * 4).astype(int).tolist(), law, false_alarm=FALSE_ALARM).accepted


@pytest.fixture
def noise(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[np.ndarray]]:
    """Run a fit whose releases have their noise scaled by a factor; return the noise of each release."""

    def run(factor: float, work: Callable[[], object]) -> list[np.ndarray]:
        released: list[np.ndarray] = []

        def scaled(values: np.ndarray, *, squared_mu: Fraction, **options: Any) -> GaussianRelease:
            release = gaussian_release(values, squared_mu=squared_mu / Fraction(factor) ** 2, **options)
            released.append(release.values - values.astype(np.float64))
            return release

        with monkeypatch.context() as patch:
            patch.setattr(module, "gaussian_release", scaled)
            work()
        return released

    return run


@cases("neighbours", ["add_remove", "replace"], quick=2)
@cases("part", ["diagonal", "off the diagonal", "cross"])
def test_the_releases_of_ada_ssp(noise: Callable[..., list[np.ndarray]], neighbours: str, part: str) -> None:
    """Each release at mu / sqrt(3): the scales are written down here, from the sensitivities of the relation."""
    width = 40
    rows, target = table(200, width)
    products = gram_products(np.column_stack((rows, target)))
    multiplier = math.sqrt(3) / float(MU)
    gram, cross = GRAM[neighbours] * R**2, CROSS[neighbours] * float(R) * S
    upper = np.triu_indices(width)
    diagonal = upper[0] == upper[1]

    def draw(factor: float, runs: int) -> np.ndarray:
        found: list[np.ndarray] = []
        while sum(map(len, found)) < runs:
            noisy = noise(factor, lambda: ada_ssp(products, radius=R, mu=MU, neighbours=neighbours))
            found.append(
                {
                    "diagonal": noisy[0][diagonal] / (gram * multiplier),
                    "off the diagonal": noisy[0][~diagonal] / (gram * multiplier / math.sqrt(2)),
                    "cross": noisy[2] / (cross * multiplier),
                }[part]
            )
        return np.concatenate(found)

    check(draw)


@pytest.mark.long
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_the_least_eigenvalue(noise: Callable[..., list[np.ndarray]], neighbours: str) -> None:
    """One number per release, hence without the rest of the fit; the same sensitivity for both relations."""
    gram = gram_products(table(200, 3)[0])
    options = {"neighbours": neighbours, "radius": R, "squared_mu": MU**2 / 3}

    def draw(factor: float, runs: int) -> np.ndarray:
        noisy = noise(factor, lambda: [release_least_eigenvalue(gram, **options) for _ in range(runs)])
        return np.concatenate(noisy) / (float(R) ** 2 * math.sqrt(3) / float(MU))

    check(draw)


@cases("split", ["even", "thirds"], quick=2)
@cases("neighbours", ["add_remove", "replace"])
def test_the_rounds_of_boosting(noise: Callable[..., list[np.ndarray]], neighbours: str, split: str) -> None:
    width, rounds = 30, 40
    rows, target = table(50, width)
    kept = ClippedRows(width, threads=0)
    kept.add(rows, target)
    gram = gram_products(rows)
    multiplier = math.sqrt(rounds + 2 if split == "even" else 3 * rounds) / float(MU)

    def draw(factor: float, runs: int) -> np.ndarray:
        found: list[np.ndarray] = []
        while sum(map(len, found)) < runs:
            noisy = noise(
                factor,
                lambda: boosted_ada_ssp(kept, gram, radius=R, mu=MU, neighbours=neighbours, rounds=rounds, split=split),
            )
            found += [step / (CROSS[neighbours] * float(R) * S * multiplier) for step in noisy[2:]]
        return np.concatenate(found)

    check(draw)


def standardised(width: int, factor: float, runs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the spread of coefficients over many fits, and the stated standard errors."""
    rows, target = table(60_000, width, seed=2)
    products = gram_products(np.column_stack((rows, target)))
    mu = gaussian_mu(Fraction(1), Fraction("1e-6")) / Fraction(factor)
    source = SeededBits(round(10 * factor))
    fits = [ada_ssp(products, radius=R, mu=mu, neighbours="add_remove", source=source) for _ in range(runs)]
    spread = np.std([one.coefficients for one in fits], axis=0)
    stated = np.median([one.std_errors for one in fits], axis=0)
    return spread, stated


@pytest.mark.long
def test_standard_errors_against_simulation() -> None:
    """500 fits: the spread has an error of 3.2 % itself, and the bound is four times that."""
    spread, stated = standardised(4, 1.0, 500)
    assert spread == pytest.approx(stated, rel=0.125)
    for factor in FACTORS:
        assert (abs(standardised(4, factor, 500)[0] / stated - 1) > 0.125).all()
