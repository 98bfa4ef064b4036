"""Noise of a cube against its exact law; noise scaled by 0.7 and by 1.3 must be told apart, and quantiles cover."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.noise.cube import cube_deviation, cube_noise
from dpsql.released.intervals import cube_quantile
from dpsql.testing.distribution import fit, runs_needed
from support.cases import cases

FALSE_ALARM, MISS = 1e-8, 1e-8
WRONG = [Fraction(7, 10), Fraction(13, 10)]
REACH = 40


def whole_law(scale: Fraction, size: int) -> dict[tuple[int, ...], float]:
    """Return the law of a vector, whose chance falls with its largest coordinate; far ones are one outcome."""
    near = range(-3, 4)
    weight = {point: math.exp(-max(map(abs, point)) / float(scale)) for point in itertools.product(near, repeat=size)}
    total = math.fsum(
        ((2 * r + 1) ** size - (2 * r - 1) ** size if r else 1) * math.exp(-r / float(scale)) for r in range(60 * REACH)
    )
    law = {point: one / total for point, one in weight.items()}
    law[()] = 1.0 - math.fsum(law.values())
    return law


def drawn(scale: Fraction, size: int, runs: int) -> list[tuple[int, ...]]:
    noise = cube_noise(scale, size, runs)
    far = np.abs(noise).max(axis=0) > 3
    return [() if away else tuple(point) for away, point in zip(far.tolist(), noise.T.tolist(), strict=True)]


@pytest.mark.parametrize(("size", "scale"), [(1, Fraction(2)), (2, Fraction(3, 2)), (3, Fraction(1))])
def test_a_vector_has_its_law_and_wrong_scales_are_rejected(size: int, scale: Fraction) -> None:
    law = whole_law(scale, size)
    runs = 50_000
    for factor in WRONG:
        needed = runs_needed(law, whole_law(scale * factor, size), false_alarm=FALSE_ALARM, miss=MISS)
        assert not fit(drawn(scale * factor, size, needed), law, false_alarm=FALSE_ALARM).accepted
        runs = max(runs, needed)
    assert fit(drawn(scale, size, runs), law, false_alarm=FALSE_ALARM).accepted


def tail(weights: tuple[float, ...], size: int, far: float) -> float:
    """Return the chance of more than `far`, by sums over the radius and over all coordinates but the first."""
    radius = np.linspace(0.0, 60.0 + 3 * size, 6001)[1:]
    density = radius**size * np.exp(-radius) / math.factorial(size)
    steps = (np.arange(200) + 0.5) / 100.0 - 1.0
    others = sum((w * s for w, s in zip(weights[1:], np.meshgrid(*[steps] * (len(weights) - 1)), strict=True)), 0.0)
    rest = np.asarray(others, dtype=np.float64).ravel()
    chance = [np.clip((weights[0] - (far / r - rest)) / (2 * weights[0]), 0.0, 1.0).mean() for r in radius]
    return float(2.0 * (density * chance).sum() * (radius[1] - radius[0]))


@cases(("size", "weights"), [(1, (1.0,)), (6, (2.0,)), (2, (1.0, 1.0)), (5, (3.0, 1.0)), (7, (1.0, 0.0))], quick=1)
@cases("chance", [0.2, 0.05, 0.001])
def test_quantiles_of_weighted_sums(size: int, weights: tuple[float, ...], chance: float) -> None:
    found = float(cube_quantile(np.array(weights), size, chance))
    positive = tuple(one for one in weights if one)
    assert 0.98 * chance <= tail(positive, size, found) * 1.005
    assert tail(positive, size, found) <= chance * 1.01


def test_quantiles_of_three_coordinates_cover() -> None:
    noise = cube_noise(Fraction(1 << 30), 6, 200_000)[:3].astype(np.float64) / (1 << 30)
    for weights in ((1.0, 1.0, 1.0), (1.0, 2.0, 0.5), (1.0, 0.0, 1.0), (0.0, 0.0, 1.0)):
        found = float(cube_quantile(np.array(weights), 6, 0.05))
        assert np.mean(np.abs(np.array(weights) @ noise) > found) == pytest.approx(0.05, abs=0.003)


@cases("size", [1, 2, 6, 20], quick=2)
def test_deviation(size: int) -> None:
    noise = cube_noise(Fraction(1 << 30), size, 400_000 // size)
    assert noise.std() == pytest.approx(cube_deviation(Fraction(1 << 30), size), rel=0.02)


def test_low_bits_are_uniform() -> None:
    """Noise with gaps would show here."""
    noise = cube_noise(Fraction(10**9), 4, 25_000).ravel()
    for shift in (0, 4, 8, 12, 16):
        cells = ((noise >> shift) & 15).tolist()
        assert fit(cells, dict.fromkeys(range(16), 1 / 16), false_alarm=FALSE_ALARM).accepted
