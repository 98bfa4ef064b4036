"""The noise of additive models against its exact law; noise scaled by 0.7 and by 1.3 must be told apart.

Per case the rates of a false alarm and of missing the wrong scale are 1e-8; `runs_needed` sizes the samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.mechanisms import additive as module
from dpsql.mechanisms.additive import (
    BINS,
    LOGISTIC,
    VISITS,
    Bins,
    StepRounds,
    likely_rows,
    release_bins,
    release_bound,
    smooth_steps,
)
from dpsql.mechanisms.gaussian import GaussianRelease, gaussian_counts
from dpsql.statistics.additive import CELLS, SIZES
from dpsql.testing.bits import SeededBits
from dpsql.testing.distribution import fit, runs_needed
from support.cases import cases

FALSE_ALARM, MISS = 1e-8, 1e-8
MU = Fraction(1, 2)
FEATURES = 3
COUNTS = np.arange(FEATURES * CELLS, dtype=np.int64).reshape(FEATURES, CELLS) * 10
# Squared sensitivities under add/remove and replace, of one row; the last in units of the bound of residuals.
CELL_MOVES = {"add_remove": FEATURES, "replace": 2 * FEATURES}
SIZE_MOVES = {"add_remove": 1, "replace": 2}
SUM_MOVES = {"add_remove": 1, "replace": 4}


def cells(sigma: float) -> dict[int, float]:
    """P(floor(x / (sigma / 4)) = cell) under N(0, sigma^2), in terms of a nominal sigma of 1."""
    edges = np.arange(-60, 61) * 0.25 / (sigma * math.sqrt(2.0))
    mass = np.diff([0.5 * math.erfc(-edge) for edge in edges])
    return {cell: float(chance) for cell, chance in zip(range(-60, 60), mass, strict=True)}


def check(draw: Callable[[float, int], np.ndarray]) -> None:
    """Accept ``draw(1, runs)``, standardised noise, and reject ``draw(factor, runs)``, the noise times factor."""
    law = cells(1.0)
    runs = 500
    for factor in (0.7, 1.3):
        needed = runs_needed(law, cells(factor), false_alarm=FALSE_ALARM, miss=MISS)
        wrong = draw(factor, needed)
        assert not fit(np.floor(wrong * 4).astype(int).tolist(), law, false_alarm=FALSE_ALARM).accepted
        runs = max(runs, needed)
    right = draw(1.0, runs)
    assert fit(np.floor(right * 4).astype(int).tolist(), law, false_alarm=FALSE_ALARM).accepted


@pytest.fixture
def noise(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[np.ndarray]]:
    """Run something whose releases have their noise scaled by a factor; return the noise of each release."""

    def run(factor: float, work: Callable[[], object]) -> list[np.ndarray]:
        released: list[np.ndarray] = []

        def scaled(values: np.ndarray, *, squared_mu: Fraction, **options: Any) -> GaussianRelease:
            release = gaussian_counts(values, squared_mu=squared_mu / Fraction(factor) ** 2, **options)
            released.append(release.values - values.astype(np.float64) / options.get("denominator", 1))
            return release

        with monkeypatch.context() as patch:
            patch.setattr(module, "gaussian_counts", scaled)
            work()
        return released

    return run


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_the_noise_of_bins(noise: Callable[..., list[np.ndarray]], relation: str) -> None:
    source = SeededBits(3)

    def draw(factor: float, runs: int) -> np.ndarray:
        found: list[np.ndarray] = []
        while sum(map(len, found)) < runs:
            found += noise(factor, lambda: release_bins(COUNTS, relation, 2, squared_mu=MU**2, source=source))
        return np.concatenate(found)[:runs] / (2 * math.sqrt(CELL_MOVES[relation]) / float(MU))

    check(draw)


@cases("relation", ["add_remove", "replace"], quick=1, alone=True)
def test_the_noise_of_sizes(noise: Callable[..., list[np.ndarray]], relation: str) -> None:
    source, sizes = SeededBits(4), np.arange(len(SIZES) + 1, dtype=np.int64)

    def draw(factor: float, runs: int) -> np.ndarray:
        found: list[np.ndarray] = []
        while sum(map(len, found)) < runs:
            found += noise(factor, lambda: release_bound(sizes, relation, squared_mu=MU**2, source=source))
        return np.concatenate(found)[:runs] / (math.sqrt(SIZE_MOVES[relation]) / float(MU))

    check(draw)


@cases("features", [pytest.param(3, marks=pytest.mark.long), 40])
@cases("relation", [pytest.param("add_remove", marks=pytest.mark.long), "replace"])
def test_the_noise_of_every_round(noise: Callable[..., list[np.ndarray]], relation: str, features: int) -> None:
    """All rounds of all features together spend mu, whether they are summed one by one or several at once."""
    source, most = SeededBits(5), int(SIZES[6])
    of = np.tile(np.arange(CELLS) * BINS // CELLS, (features, 1))
    bins = Bins(of, [np.full(BINS, 50.0)] * features)
    sums = np.array([[7 * most] * CELLS] * features, dtype=object)

    def work() -> None:
        rounds = StepRounds(bins, most, mu=MU, neighbours=relation, max_rows_per_unit=3, source=source)
        visited: list[int] = []
        while rounds.rounds_left:
            visited += rounds.features
            rounds.take(sums[: len(rounds.features)])
        assert sorted(visited) == sorted(list(range(features)) * VISITS)

    def draw(factor: float, runs: int) -> np.ndarray:
        found: list[np.ndarray] = []
        while sum(map(len, found)) < runs:
            found += noise(factor, work)
        scale = 3 * most * math.sqrt(SUM_MOVES[relation] * features * VISITS) / float(MU)
        return np.concatenate(found)[:runs] / scale

    check(draw)


@cases("relation", ["add_remove", "replace"], quick=1, alone=True)
def test_the_noise_of_a_classifier(noise: Callable[..., list[np.ndarray]], relation: str) -> None:
    """Weights are at most 1, residuals too: the noise of each release, in rows, is that of its share of mu."""
    weights = COUNTS * (FIXED_POINT_ONE // 8)
    sums = np.array([[7 * FIXED_POINT_ONE] * CELLS] * FEATURES, dtype=object)
    mus = {"bins": MU / 2, "steps": MU}

    def work() -> None:
        rounds = StepRounds.of_scores(weights, relation, 3, mus=mus)
        assert rounds.steps.most == FIXED_POINT_ONE
        while rounds.rounds_left:
            rounds.take(sums[: len(rounds.features)])

    def draw(factor: float, runs: int) -> np.ndarray:
        found: list[np.ndarray] = []
        while sum(map(len, found)) < runs:
            [bins, *rounds] = noise(factor, work)
            assert len(rounds) == FEATURES * VISITS
            found.append(bins / (3 * math.sqrt(CELL_MOVES[relation]) / float(MU / 2)))
            scale = 3 * math.sqrt(SUM_MOVES[relation] * FEATURES * VISITS) / float(MU)
            found += [one / FIXED_POINT_ONE / scale for one in rounds]
        return np.concatenate(found)[:runs]

    check(draw)


def test_steps_of_a_classifier_are_newtons() -> None:
    """Log odds that a bin is off by: from the residuals over the curvature, and no farther than is stated."""
    of = np.arange(CELLS) * BINS // CELLS
    bins = Bins(of[None, :], [np.full(BINS, 200.0)])
    rounds = StepRounds(bins, FIXED_POINT_ONE, mu=Fraction(200), neighbours="add_remove", loss=LOGISTIC)
    truth = np.where(np.arange(CELLS) < CELLS // 2, -0.5, 0.5)
    rounds.take(np.array([[int(x) for x in 200 * truth * BINS / CELLS * FIXED_POINT_ONE]], dtype=object))
    steps = rounds.result().values[0] / FIXED_POINT_ONE
    assert np.abs(steps - truth)[[10, 50, 80, 120]].max() < 0.1
    rounds.take(np.array([[int(x) for x in 1e5 * truth * FIXED_POINT_ONE]], dtype=object))
    assert np.abs(rounds.result().values[0] / FIXED_POINT_ONE - steps).max() <= LOGISTIC.farthest + 1e-6


def test_noise_alone_makes_next_to_no_steps_and_a_signal_does() -> None:
    generator = np.random.default_rng(8)
    rows = np.full(BINS, 100.0)
    found = [smooth_steps(generator.normal(0, math.hypot(30, 6), BINS), rows, 30.0)[0] for _ in range(100)]
    assert np.mean([np.abs(steps).max() for steps in found]) < 0.1
    truth = np.sin(np.arange(BINS) / 4)
    steps, variances = smooth_steps(rows * truth + generator.normal(0, 3, BINS), rows, 3.0)
    assert np.abs(steps - truth).max() < 0.25
    assert (variances > 0).all()


def test_the_error_of_steps_is_that_of_their_noise() -> None:
    """For a signal so large that its variance is chosen alike in every draw."""
    generator = np.random.default_rng(9)
    rows, truth = np.full(BINS, 100.0), np.sin(np.arange(BINS) / 4)
    draws = [smooth_steps(rows * truth + generator.normal(0, 20, BINS), rows, 20.0) for _ in range(400)]
    spread = np.var([steps for steps, _ in draws], axis=0)
    stated = np.mean([variances for _, variances in draws], axis=0)
    assert 0.7 < float((spread / stated).mean()) < 1.3


@pytest.mark.parametrize("kind", ["even", "bell", "peaks", "one"])
def test_likely_rows_are_nearer_than_noisy_ones_and_than_even_ones(kind: str) -> None:
    """Whatever the rows: a bin whose rows are taken for a tenth of what they are has steps ten times too high."""
    generator, places = np.random.default_rng(10), np.arange(CELLS)
    shape = {
        "even": np.ones(CELLS),
        "bell": np.exp(-(((places - 50) / 20) ** 2)),
        "peaks": (places % 16 == 3) * 1.0,
        "one": (places == 30) * 1.0,
    }[kind]
    rows = 6400 * shape / shape.sum()
    noisy = [rows + generator.normal(0, 60, CELLS) for _ in range(40)]
    off = [float(np.square(likely_rows(found, 6400.0, 60.0) - rows).mean()) for found in noisy]
    assert np.mean(off) < {"even": 100, "bell": 700, "peaks": 3600, "one": 3600}[kind]
    assert np.mean(off) < 1.0 + float(np.square(rows - 50).mean()) or kind == "even"
    if kind == "one":
        assert all(likely_rows(found, 6400.0, 60.0)[30] > 5000 for found in noisy)


def test_bins_hold_about_as_many_rows_each() -> None:
    counts = np.zeros((2, CELLS), dtype=np.int64)
    counts[0] = 1000
    counts[1, 40] = 128_000
    bins = release_bins(counts, "add_remove", squared_mu=Fraction(4), source=SeededBits(6))
    assert BINS - 6 < len(bins.rows[0]) <= BINS
    assert all(3000 < held < 6000 for held in bins.rows[0][:-1])
    assert len(bins.rows[1]) <= 3
    empty = release_bins(counts * 0, "add_remove", squared_mu=Fraction(1, 100), source=SeededBits(7))
    assert all((held >= 1.0).all() for held in empty.rows)


def test_the_bound_is_what_a_tenth_exceeds() -> None:
    sizes = np.zeros(len(SIZES) + 1, dtype=np.int64)
    sizes[0], sizes[8] = 50, 950
    assert release_bound(sizes, "add_remove", squared_mu=Fraction(100), source=SeededBits(1)) == int(SIZES[7])
    nobody = release_bound(sizes * 0, "add_remove", squared_mu=Fraction(100), source=SeededBits(1))
    assert nobody in SIZES.tolist()
