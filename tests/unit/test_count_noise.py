"""Tails of the noise on counts: never too small, and tight."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

from dpsql.contract.gaussian_profile import normal_tail
from dpsql.errors import ParameterError
from dpsql.mechanisms.count_noise import (
    CountNoise,
    GaussianCountNoise,
    LaplaceCountNoise,
    TruncatedCountNoise,
    exponential,
    gaussian_count_noise,
    laplace_reach,
)
from dpsql.noise.discrete import truncated_laplace
from dpsql.testing.bits import SeededBits
from support.cases import cases
from support.laws.keys import upper_tail

SCALES = [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(60)]
CHANCES = [Fraction(1, 10**20), Fraction(1, 1000), Fraction(1, 3)]


@cases("scale", SCALES)
@cases("terms", [1, 2, 3, 4])
def test_the_tail_of_a_sum_is_that_of_the_convolution(terms: int, scale: Fraction) -> None:
    noise = LaplaceCountNoise(scale=scale, terms=terms)
    for steps in (1, 2, 5, 20, 100):
        exact = upper_tail(noise, steps)
        if exact > 1e-18:
            assert float(noise.tail(steps)) == pytest.approx(exact, rel=1e-9, abs=1e-17)


def test_closed_forms() -> None:
    """One noise, two as the specification gives them, and exact rational sums of one series for three."""
    for scale in SCALES:
        a = math.exp(-1 / scale)
        for k in (1, 3, 40):
            assert float(LaplaceCountNoise(scale=scale).tail(k)) == pytest.approx(a**k / (1 + a), rel=1e-12)
            two = (1 - a) / (1 + a) ** 2 * a**k * (k + 1 / (1 - a) + 2 * a**2 / (1 - a**2))
            assert float(LaplaceCountNoise(scale=scale, terms=2).tail(k)) == pytest.approx(two, rel=1e-9)
    # The difference of two sums of three geometric variables.
    a = math.exp(-0.5)
    weights = [
        (1 - a) ** 6 * math.fsum(math.comb(s + j + 2, 2) * math.comb(j + 2, 2) * a ** (s + 2 * j) for j in range(120))
        for s in range(150)
    ]
    noise = LaplaceCountNoise(scale=Fraction(2), terms=3)
    for k in (1, 7, 30):
        assert float(noise.tail(k)) == pytest.approx(math.fsum(weights[k:]), rel=1e-9)


@pytest.mark.parametrize("scale", SCALES)
def test_the_truncated_tail(scale: Fraction) -> None:
    noise = TruncatedCountNoise(scale=scale, bound=80)
    for steps in (1, 2, 79, 80):
        assert float(noise.tail(steps)) == pytest.approx(upper_tail(noise, steps), rel=1e-9)
    assert noise.tail(81) == 0
    a = math.exp(-1 / scale)
    assert float(noise.tail(80)) == pytest.approx((1 - a) * a**80 / (1 + a - 2 * a**81), rel=1e-12)


@pytest.mark.parametrize("variance", [Fraction(1, 50), Fraction(1, 4), Fraction(67, 10), Fraction(16), Fraction(3000)])
def test_the_tail_of_coarse_gaussian_noise_is_exact(variance: Fraction) -> None:
    weights = np.exp(-(np.arange(-2000, 2001) ** 2) / (2 * float(variance)))
    for steps in (1, 2, 9, 200):
        exact = math.fsum(weights[2000 + steps :]) / math.fsum(weights)
        if exact > 1e-300:
            assert float(GaussianCountNoise(variance=variance).tail(steps)) == pytest.approx(exact, rel=1e-12)


@pytest.mark.long
def test_the_tail_of_fine_gaussian_noise() -> None:
    """Summed weights just below the limit, the bound by the continuous law just above, and both are above the law."""
    just = 1 << 26
    for steps in (1, 8192, 40_000):
        summed = GaussianCountNoise(variance=Fraction(just) - Fraction(1, 10**9)).tail(steps)
        bound = GaussianCountNoise(variance=Fraction(just)).tail(steps)
        assert summed <= bound <= summed * (1 + Fraction(1, 10**7))
    noise = gaussian_count_noise(1, Fraction("0.236704"))
    assert noise.deviation == pytest.approx(1 / 0.236704, rel=1e-9)
    for deviations in (0.5, 4.753, 30.0):
        steps = round(deviations * noise.spread)
        exact = ndtr(-(steps - 0.5) / noise.spread)
        assert exact * (1 - 1e-12) <= float(noise.tail(steps)) <= exact * (1 + 1e-11)


def test_the_normal_tail() -> None:
    for x in (0.0, 0.1, 1.0, 5.9, 6.1, 12.0, 37.0, 60.0, 69.0):
        found = normal_tail(Fraction(x))
        log = math.log(found.numerator) - math.log(found.denominator)
        assert log == pytest.approx(float(log_ndtr(-x)), abs=1e-12 * (1 + x * x))
        assert log >= float(log_ndtr(-x)) - 1e-12 * (1 + x * x)
    assert normal_tail(Fraction(70)) == Fraction(1, 10**1000)


@cases(
    "noise",
    [
        *(LaplaceCountNoise(scale=scale, terms=terms) for scale in SCALES for terms in (1, 3)),
        TruncatedCountNoise(scale=Fraction(7, 2), bound=30),
        GaussianCountNoise(variance=Fraction(7, 2)),
        gaussian_count_noise(3, Fraction(1, 5)),
    ],
    ids=str,
)
def test_the_least_is_the_least(noise: CountNoise) -> None:
    for chance in CHANCES:
        k = noise.least(chance)
        assert noise.tail(k) <= chance
        assert k == 1 or noise.tail(k - 1) > chance
    assert noise.tail(0) == noise.tail(-5) == 1


def test_exponentials_enclose() -> None:
    low, high = exponential(Fraction(-1, 10**90), Fraction(1, 10**90))
    assert 1 - Fraction(1, 10**90) <= high < 1 - Fraction(9, 10**91)
    assert low < high
    assert high - low < Fraction(1, 10**145)
    assert exponential(Fraction(-(10**9))) == (0, Fraction(1, 10**1000))
    assert exponential(Fraction(0))[1] == 1


def test_truncated_noise_keeps_its_bound() -> None:
    drawn = truncated_laplace(Fraction(5), 6, 20_000, source=SeededBits(3))
    assert len(drawn) == 20_000
    assert set(drawn.tolist()) == set(range(-6, 7))
    assert len(truncated_laplace(Fraction(5), 6, 0)) == 0
    for scale, bound, size in ((Fraction(5), 4, 1), (Fraction(0), 4, 1), (Fraction(5), 6, -1)):
        with pytest.raises(ParameterError, match="P017"):
            truncated_laplace(scale, bound, size)


@cases("digits", [0, 3, 12, 18, 40, 200], quick=10)
@cases("failure", [Fraction(1, 2), Fraction(1, 20), Fraction(1, 10**12)])
def test_a_reach_is_found_however_wide_the_noise_is(digits: int, failure: Fraction) -> None:
    scale = Fraction(7 * 10**digits, 3)
    noise, found = LaplaceCountNoise(scale=scale), laplace_reach(scale, failure)
    assert 2 * noise.tail(found + 1) <= failure
    # Doubles propose a reach, so it may be above the least one by what they round.
    assert 2 * noise.tail(math.floor(found * (1 - Fraction(1, 10**12)))) > failure
