"""Cauchy noise by smooth sensitivity against its exact law; 0.7 and 1.3 times the noise must show.

Per case the rates of a false alarm and of missing the wrong scale are 1e-8; `runs_needed` sizes the samples.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.mechanisms import smooth
from dpsql.mechanisms.smooth import SmoothBound, cauchy_release, smooth_area, smooth_medians
from dpsql.testing.bits import ScriptedBits, SeededBits
from dpsql.testing.distribution import fit, runs_needed
from support.laws.roc import area_law, cauchy_law, smooth_medians_law

FALSE_ALARM, MISS = 1e-8, 1e-8
WRONG = [0.7, 1.3]
COUNTS = [2, 0, 3, 1, 2, 0]
ROWS = [cell for cell, count in enumerate(COUNTS) for _ in range(count)]


def judge(sampler, law, wrong):
    """Accept the sampler; reject it with noise of 0.7 or 1.3 times, whose law is `wrong(factor)`."""
    runs = 0
    for factor in WRONG:
        needed = runs_needed(law, wrong(factor), false_alarm=FALSE_ALARM, miss=MISS)
        assert not fit(sampler(factor, needed), law, false_alarm=FALSE_ALARM).accepted
        runs = max(runs, needed)
    assert fit(sampler(1, runs), law, false_alarm=FALSE_ALARM).accepted


@pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(1), Fraction(5)])
@pytest.mark.parametrize("share", [Fraction(1, 10), Fraction(1, 2), Fraction(99, 100)])
def test_the_scale_is_the_larger_one(epsilon, share):
    raised, tilted = float(epsilon), float(epsilon * share)
    first = 1 / (2 * math.sinh(raised / 2))
    second = math.sqrt(math.exp(-tilted) / (2 * (math.cosh(raised) - math.cosh(tilted))))
    assert float(smooth.cauchy_scale(epsilon, epsilon * share)) == pytest.approx(max(first, second), rel=1e-6)


def test_steps_between_neighbours_share_epsilon():
    for rows in (1, 3):
        for replaces in (False, True):
            assert smooth.step_epsilon(Fraction(1), "add_remove", rows, replaces=replaces) == Fraction(1, rows)
        assert smooth.step_epsilon(Fraction(1), "replace", rows, replaces=True) == Fraction(1, rows)
        assert smooth.step_epsilon(Fraction(1), "replace", rows, replaces=False) == Fraction(1, 2 * rows)


@pytest.mark.parametrize("count", [1, 3, 15])
@pytest.mark.parametrize("rows", [1, 3])
def test_levels_of_medians_share_epsilon(monkeypatch, count, rows):
    """Of each level, what the rows of a unit spend that come or go; below the first a replaced one does both."""
    found = []

    def noted(counts, low, high, first, epsilon, source):
        found.append(epsilon)
        return (low + high) // 2

    monkeypatch.setattr(smooth, "_smooth_median", noted)
    levels = {1: 1, 3: 2, 15: 4}[count]
    for neighbours, steps in (("add_remove", rows), ("replace", 2 * rows)):
        found.clear()
        smooth_medians(np.arange(40), count=count, epsilon=Fraction(2), neighbours=neighbours, max_rows_per_unit=rows)
        whole, *parts = [Fraction(2, levels) / one for one in found]
        assert whole == rows
        assert parts == [steps] * (count - 1)


@pytest.mark.long
def test_release():
    """A value between points of the grid, S the larger of two terms."""
    bound = SmoothBound(((Fraction(1), 4), (Fraction(1, 2), 0)), Fraction(1, 10))

    def law(factor):
        size = max(math.exp(-0.4), 0.5)
        return cauchy_law(0.3, factor * 0.4 * size, lower=-1.0, upper=2.0, steps=12)

    def sampler(factor, runs):
        scale = Fraction(factor) * Fraction(2, 5)
        given = {"lower": Fraction(-1), "upper": Fraction(2), "steps": 12}
        return [cauchy_release(Fraction(3, 10), bound, scale=scale, **given) for _ in range(runs)]

    judge(sampler, law(1), law)


@pytest.fixture
def noise(monkeypatch):
    original = smooth.cauchy_scale

    def set_factor(factor):
        monkeypatch.setattr(smooth, "cauchy_scale", lambda *given: original(*given) * Fraction(factor))

    return set_factor


def wrong_law(noise_law, factor):
    """Return the law with noise of another scale: that of the definition, its constant multiplied."""
    from support.laws import roc

    original = roc.least_scale
    try:
        roc.least_scale = lambda *given: factor * original(*given)
        return noise_law()
    finally:
        roc.least_scale = original


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "epsilon", "neighbours", "rows"),
    [
        pytest.param(1, 2, "add_remove", 1, marks=pytest.mark.slow),
        pytest.param(1, 3, "replace", 2, marks=pytest.mark.slow),
        pytest.param(3, 6, "add_remove", 2, marks=pytest.mark.slow),
        (3, 8, "replace", 1),
    ],
)
def test_medians(noise, count, epsilon, neighbours, rows):
    given = {"count": count, "epsilon": Fraction(epsilon), "neighbours": neighbours, "max_rows_per_unit": rows}

    def law(factor=1):
        return wrong_law(lambda: smooth_medians_law(ROWS, len(COUNTS), **given), factor)

    def sampler(factor, runs):
        noise(factor)
        return [tuple(smooth_medians(np.array(COUNTS), **given)) for _ in range(runs)]

    judge(sampler, law(), law)


@pytest.mark.long
@pytest.mark.parametrize(
    ("neighbours", "rows"), [("replace", 2), pytest.param("add_remove", 1, marks=pytest.mark.slow)]
)
def test_area(noise, neighbours, rows):
    """In 16 cells of the released grid."""
    labelled = [(False, 0), (False, 1), (False, 1), (True, 1), (True, 2), (True, 0)]
    negatives, positives = np.array([1, 2, 0]), np.array([1, 1, 1])
    given = {"epsilon": Fraction(2), "neighbours": neighbours, "max_rows_per_unit": rows}

    def law(factor=1):
        fine = np.array(list(wrong_law(lambda: area_law(labelled, **given), factor).values()))
        return dict(enumerate(np.add.reduceat(fine, np.arange(0, 1 << 20, 1 << 16)).tolist()))

    def sampler(factor, runs):
        noise(factor)
        return [min(15, int(smooth_area(negatives, positives, **given) * 16)) for _ in range(runs)]

    judge(sampler, law(), law)


def test_more_bits_where_the_first_do_not_decide():
    """Points of the grid that are closer together than 64 bits tell apart: more words are drawn, to the same point."""
    bound = SmoothBound(((Fraction(1), 3),), Fraction(1, 3))
    given = {"scale": Fraction(1), "lower": Fraction(-8), "upper": Fraction(8)}
    for seed in range(20):
        fine = cauchy_release(Fraction(1, 3), bound, steps=1 << 200, source=SeededBits(seed), **given)
        coarse = cauchy_release(Fraction(1, 3), bound, steps=1 << 4, source=SeededBits(seed), **given)
        assert abs(fine / 2**196 - coarse) <= 0.5
        # The ratio of the first two numbers in the disk, to the precision of doubles.
        words = iter(SeededBits(seed).words(64).tolist())
        sign = -1 if next(words) & 1 else 1
        x, y = next((a, b) for a, b in zip(words, words, strict=True) if a**2 + b**2 < 1 << 128)
        expected = 1 / 3 + sign * math.exp(-1) * x / y
        assert fine / 2**196 - 8 == pytest.approx(min(8.0, max(-8.0, expected)), abs=1e-9)


@pytest.mark.parametrize("negative", [0, 1])
def test_a_divisor_without_a_bit_goes_to_the_end(negative):
    """The noise has no upper end while all bits of the divisor are zero; the end of the grid is certain anyway."""
    bound = SmoothBound(((Fraction(1), 0),), Fraction(1))
    source = ScriptedBits([negative, 1 << 63, 0])
    point = cauchy_release(
        Fraction(0), bound, scale=Fraction(1), lower=Fraction(-5), upper=Fraction(5), steps=10, source=source
    )
    assert point == (0 if negative else 10)


def test_points_on_the_edge_of_the_disk_get_more_bits():
    """All bits of both coordinates are ones: outside; a point on the circle up to 64 bits is settled by more."""
    bound = SmoothBound(((Fraction(1), 0),), Fraction(1))
    given = {"scale": Fraction(1), "lower": Fraction(-64), "upper": Fraction(64), "steps": 128}
    ones = (1 << 64) - 1
    assert cauchy_release(Fraction(0), bound, source=ScriptedBits([0, ones, ones, 3 << 61, 1 << 62]), **given) == 64 + 2
    # (1, 0) up to 64 bits: the next ones put it inside or outside, and the magnitude is beyond the grid.
    assert cauchy_release(Fraction(0), bound, source=ScriptedBits([0, ones, 0, 0, 0]), **given) == 128


def test_an_exact_tie_and_a_vanishing_scale():
    """S of exp(-100000): the value itself, whichever the sign; no rows at all: anything."""
    bound = SmoothBound(((Fraction(1), 10**5),), Fraction(1))
    for seed in range(8):
        given = {"scale": Fraction(1), "lower": Fraction(0), "upper": Fraction(9), "steps": 9}
        assert cauchy_release(Fraction(4), bound, source=SeededBits(seed), **given) == 4
    found = {
        tuple(smooth_medians(np.zeros(5, dtype=np.int64), count=1, epsilon=Fraction(1), neighbours="replace"))
        for _ in range(200)
    }
    assert found == {(cell,) for cell in range(5)}
    assert smooth_medians(np.array([7]), count=3, epsilon=Fraction(1), neighbours="replace") == [0, 0, 0]
