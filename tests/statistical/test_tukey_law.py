"""Draws of the Tukey mechanism against its exact law: right passes, noise and growth times 0.7 and 1.3 fail."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from dpsql.mechanisms.tukey import DepthBoxes, draw_depth, growth_per_level, tail_weights, tukey
from dpsql.noise.entropy import WordReader
from dpsql.testing.bits import SeededBits
from dpsql.testing.distribution import fit, runs_needed
from support.cases import cases
from support.laws.tukey import Models, TukeyLaw, exponential, growing_density, passing_probability, reach, threshold

RUNS = 9_000
TABLES: dict[str, Models] = {
    "line": [(float(i * i),) for i in range(24)],
    "plane": [(float(i), float(5 * i % 16) ** 2) for i in range(16)],
    "ties": [(float(i // 4), 3.0) for i in range(17)],
}
TEST, DRAW, DELTA = Fraction(1, 2), Fraction(3), Fraction(1, 5)


def law(models: Models, noise: float = 1.0, growth: float = 1.0) -> TukeyLaw:
    """Return the law with the noise of the test and the growth per level scaled."""
    factor = exponential(DRAW / 2)
    score = reach(models, factor, DELTA)
    passing = passing_probability(score, Fraction(noise) / TEST, threshold(TEST, DELTA))
    return TukeyLaw(models, passing, growing_density(models, exponential(DRAW / 2 * Fraction(growth))))


@lru_cache
def samples(name: str) -> list[Any]:
    models, source = np.array(TABLES[name]), SeededBits(len(name))
    exact = law(TABLES[name])
    draws = (tukey(models, epsilon_test=TEST, epsilon_draw=DRAW, delta=DELTA, source=source) for _ in range(RUNS))
    return [exact.piece(None if point is None else point.tolist()) for point in draws]


@pytest.mark.long
@pytest.mark.parametrize("name", TABLES)
def test_draws_follow_the_exact_law(name: str) -> None:
    exact = law(TABLES[name]).pieces()
    assert sum(exact.values()) == pytest.approx(1.0)
    assert 0.7 < exact[None] < 0.9
    assert fit(samples(name), exact).accepted


@pytest.mark.long
@cases("name", ["line", "plane"], quick=1)
@cases("scale", [0.7, 1.3])
@cases("what", ["noise", "growth"])
def test_rescaled_laws_are_rejected(name: str, scale: float, what: str) -> None:
    exact, wrong = law(TABLES[name]).pieces(), law(TABLES[name], **{what: scale}).pieces()
    assert runs_needed(wrong, exact, miss=1e-3) <= RUNS
    assert not fit(samples(name), wrong).accepted


def test_the_depths_of_the_worked_example() -> None:
    # Volumes 3.6 and 0.15 of depth 2 and 3 at least, growth e**1.1: 3.45 e**2.2 to 0.15 e**3.3.
    models = [(0.0,), (1.0,), (2.0,), (2.05,), (2.05,), (2.15,), (4.6,), (5.0,)]
    boxes, growth = DepthBoxes(np.array(models)), growth_per_level(Fraction("2.2"))
    tails, reader = tail_weights(boxes, growth), WordReader(SeededBits(5))
    factor = exponential(Fraction("1.1"))
    exact = TukeyLaw(models, Fraction(1), growing_density(models, factor)).depths()
    weights = np.array([3.45 * float(factor) ** 2, 0.15 * float(factor) ** 3])
    assert [exact[2], exact[3]] == pytest.approx(weights / weights.sum(), rel=1e-6)
    drawn = [draw_depth(boxes, tails, growth, reader) for _ in range(RUNS)]
    assert fit(drawn, exact).accepted
