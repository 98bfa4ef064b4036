"""Samplers against their exact laws; noise scaled by 0.7 and by 1.3 must be told apart.

Per case the rates of a false alarm and of missing the wrong scale are 1e-8; `runs_needed` sizes the samples.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.noise.discrete import discrete_gaussian, discrete_laplace, geometric, truncated_laplace
from dpsql.testing.distribution import fit, runs_needed
from support.cases import cases

FALSE_ALARM, MISS = 1e-8, 1e-8
WRONG = [Fraction(7, 10), Fraction(13, 10)]
# Scale (Laplace), standard deviation (Gaussian), and the width of the cells that outcomes are counted in.
CASES = [
    (Fraction(1, 4), 1),
    (Fraction(1), 1),
    (Fraction(31, 7), 2),
    (Fraction(1000), 200),
    (Fraction(2**20) + 1, 2**18),
    (Fraction(10**12), 3 * 10**11),
]


def laplace_cells(scale, width):
    """P(floor(x / width) = cell), in closed form, for the cells that matter."""
    decay = math.exp(-width / float(scale))
    one = math.exp(-1 / float(scale)) if scale < 10**6 else None
    # 1 - a and 1 + a without cancellation at large scales.
    rest = -math.expm1(-1 / float(scale))
    below = 2.0 - rest
    law = {}
    for cell in range(math.ceil(40 * float(scale) / width) + 2):
        # x >= 0: sum over [cell width, (cell + 1) width); x < 0 mirrored onto [1, ...).
        law[cell] = decay**cell * (1.0 - decay) / below
        law[-cell - 1] = decay**cell * (1.0 - decay) / below * (one if one is not None else 1.0 - rest)
    return law


def geometric_cells(scale, width):
    """P(floor(x / width) = cell) of the one-sided law, in closed form."""
    decay = math.exp(-width / float(scale))
    return {cell: decay**cell * (1.0 - decay) for cell in range(math.ceil(40 * float(scale) / width) + 2)}


def gaussian_cells(sigma, width):
    """P(floor(x / width) = cell) by summation, or by the integral where single integers do not matter."""
    reach = math.ceil(9 * float(sigma) / width) + 2
    if sigma < 10**4:
        points = np.arange(-reach * width, reach * width)
        weight = np.exp(-(points.astype(float) ** 2) / (2.0 * float(sigma) ** 2))
        mass = weight.reshape(-1, width).sum(axis=1) / weight.sum()
    else:
        edges = (np.arange(-reach, reach + 1) * float(width) - 0.5) / (float(sigma) * math.sqrt(2.0))
        mass = np.diff([0.5 * math.erfc(-edge) for edge in edges])
    return {cell: float(chance) for cell, chance in zip(range(-reach, reach), mass, strict=True)}


def draw(sampler, spread, width, runs):
    parameter = spread**2 if sampler is discrete_gaussian else spread
    return (sampler(parameter, runs) // width).tolist()


@cases(("spread", "width"), CASES, quick=7)
@cases(
    ("sampler", "cells"),
    [(discrete_laplace, laplace_cells), (discrete_gaussian, gaussian_cells), (geometric, geometric_cells)],
)
def test_law_is_right_and_wrong_scales_are_rejected(sampler, cells, spread, width):
    law = cells(spread, width)
    assert math.fsum(law.values()) == pytest.approx(1.0, abs=1e-9)
    runs = 50_000
    for factor in WRONG:
        wrong = cells(spread * factor, width)
        needed = runs_needed(law, wrong, false_alarm=FALSE_ALARM, miss=MISS)
        assert not fit(draw(sampler, spread * factor, width, needed), law, false_alarm=FALSE_ALARM).accepted
        runs = max(runs, needed)
    assert fit(draw(sampler, spread, width, runs), law, false_alarm=FALSE_ALARM).accepted


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "cells"), [(discrete_laplace, laplace_cells), (discrete_gaussian, gaussian_cells)])
def test_law_at_ten_million_samples(sampler, cells):
    law = cells(Fraction(5, 2), 1)
    assert fit(draw(sampler, Fraction(5, 2), 1, 10**7), law, false_alarm=FALSE_ALARM).accepted


def truncated_law(scale, bound):
    """P(x) of discrete Laplace noise given that it is within a bound."""
    weights = {x: math.exp(-abs(x) / float(scale)) for x in range(-bound, bound + 1)}
    total = math.fsum(weights.values())
    return {x: weight / total for x, weight in weights.items()}


@cases(("scale", "bound"), [(Fraction(1), 1), (Fraction(2), 3), (Fraction(7, 3), 5)])
def test_noise_beyond_its_bound_is_drawn_again_and_not_moved_to_the_bound(scale, bound):
    law = truncated_law(scale, bound)
    # The moved noise: the two ends have what is beyond them as well.
    decay = math.exp(-1 / float(scale))
    moved = {x: (1 - decay) / (1 + decay) * decay ** abs(x) for x in law}
    moved[bound] = moved[-bound] = decay**bound / (1 + decay)
    wrong = [(lambda n: np.clip(discrete_laplace(scale, n), -bound, bound), moved)]
    wrong += [
        (lambda n, spread=scale * factor: truncated_laplace(spread, bound, n), truncated_law(scale * factor, bound))
        for factor in WRONG
        if scale * factor <= bound
    ]
    runs = 0
    for sampler, other in wrong:
        needed = runs_needed(law, other, false_alarm=FALSE_ALARM, miss=MISS)
        assert not fit(sampler(needed).tolist(), law, false_alarm=FALSE_ALARM).accepted
        runs = max(runs, needed)
    assert fit(truncated_laplace(scale, bound, runs).tolist(), law, false_alarm=FALSE_ALARM).accepted


@pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian, geometric])
def test_low_bits_of_large_noise_are_uniform(sampler):
    """Noise with gaps would show here: the last bits of a wide law are all but uniform."""
    noise = sampler(Fraction(10**24) if sampler is discrete_gaussian else Fraction(10**12), 100_000)
    for shift in (0, 4, 8, 12, 16):
        cells = ((noise >> shift) & 15).tolist()
        assert fit(cells, dict.fromkeys(range(16), 1 / 16), false_alarm=FALSE_ALARM).accepted


@pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian])
def test_successive_samples_are_independent(sampler):
    noise = sampler(Fraction(2), 200_000)
    pairs = list(zip((noise[::2] > 0).tolist(), (noise[1::2] > 0).tolist(), strict=True))
    chance = float(np.mean(noise > 0))
    law = {
        (a, b): (chance if a else 1 - chance) * (chance if b else 1 - chance)
        for a in (True, False)
        for b in (True, False)
    }
    assert fit(pairs, law, false_alarm=FALSE_ALARM).accepted
