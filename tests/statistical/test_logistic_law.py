"""The noise of objective perturbation and the law of its output; noise scaled by 0.7 and by 1.3 must be told apart.

Per case the rates of a false alarm and of missing the wrong scale are 1e-8; `runs_needed` sizes the samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import gammainc
from scipy.stats import norm

from dpsql.errors import InternalError, ParameterError
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.kernels.logistic import SignedRows
from dpsql.mechanisms.objective_perturbation import ObjectiveNoise, calibrate, objective_perturbation
from dpsql.noise import ball
from dpsql.noise.ball import ball_error, exponential_norm, gaussian_vector
from dpsql.testing.bits import ScriptedBits, SeededBits
from dpsql.testing.distribution import fit, runs_needed
from support.cases import cases
from support.laws.logistic import Perturbation, Table, log_density

S = FIXED_POINT_ONE
FALSE_ALARM, MISS = 1e-8, 1e-8
FACTORS = [0.7, 1.3]
Distribution = Callable[[np.ndarray], np.ndarray]


def law_of(distribution: Distribution, edges: np.ndarray) -> dict[int, float]:
    """Return the probability of every cell between edges."""
    below = np.concatenate(([0.0], distribution(edges), [1.0]))
    return {cell: float(chance) for cell, chance in enumerate(np.diff(below))}


def check(draw: Callable[[float, int], np.ndarray], distribution: Distribution, edges: np.ndarray) -> None:
    """Accept the right law, and reject it with its scale multiplied; distributions are given scaled values."""
    law = law_of(distribution, edges)
    runs = 0
    for factor in FACTORS:
        wrong = law_of(distribution, edges / factor)
        needed = runs_needed(law, wrong, false_alarm=FALSE_ALARM, miss=MISS)
        found = np.searchsorted(edges, draw(factor, needed))
        assert not fit(found.tolist(), law, false_alarm=FALSE_ALARM).accepted
        runs = max(runs, needed)
    found = np.searchsorted(edges, draw(1.0, runs))
    assert fit(found.tolist(), law, false_alarm=FALSE_ALARM).accepted


@cases("width", [1, pytest.param(2, marks=pytest.mark.slow), 5, pytest.param(40, marks=pytest.mark.slow)], quick=1)
def test_the_norm_is_gamma(width: int) -> None:
    source = SeededBits(width)

    def draw(factor: float, runs: int) -> np.ndarray:
        vectors = (exponential_norm(Fraction(2 * factor), width, source=source) for _ in range(runs))
        return np.array([math.sqrt(vector @ vector) / 2 for vector in vectors])

    spread = math.sqrt(width)
    check(draw, lambda x: gammainc(width, x), np.maximum(width + spread * np.linspace(-1.5, 2, 15), 0.05 * width))


@cases("width", [1, 2, 3], quick=1)
def test_the_direction_is_uniform(width: int) -> None:
    """The sign; the angle; in three dimensions every coordinate is uniform."""
    source = SeededBits(width)
    vectors = np.array([exponential_norm(Fraction(3), width, source=source) for _ in range(3000)])
    directions = vectors / np.sqrt((vectors**2).sum(axis=1, keepdims=True))
    for coordinate in range(width):
        x = directions[:, coordinate]
        share = {1: (x + 1) / 2.001, 2: np.arccos(x) / math.pi, 3: (x + 1) / 2}[width]
        cells = np.floor(share * (2 if width == 1 else 12)).astype(int)
        law = dict.fromkeys(range(2 if width == 1 else 12), 1 / (2 if width == 1 else 12))
        assert fit(cells.tolist(), law, false_alarm=FALSE_ALARM).accepted
    signs = (directions > 0) @ 2 ** np.arange(width)
    assert fit(signs.tolist(), dict.fromkeys(range(2**width), 2.0**-width), false_alarm=FALSE_ALARM).accepted
    # The norm says nothing about the direction.
    long = np.sqrt((vectors**2).sum(axis=1)) > 3 * width
    half = fit((directions[long, 0] > 0).tolist(), {True: 0.5, False: 0.5}, false_alarm=FALSE_ALARM)
    assert half.accepted


def test_normal_coordinates() -> None:
    source = SeededBits(7)

    def draw(factor: float, runs: int) -> np.ndarray:
        return gaussian_vector(Fraction(5 * factor), runs, source=source) / 5

    check(draw, norm.cdf, np.linspace(-2.5, 2.5, 21))
    pairs = gaussian_vector(Fraction(1), 8000, source=source).reshape(-1, 2)
    cells = (np.searchsorted([-0.67448975, 0.0, 0.67448975], pairs) @ np.array([1, 4])).tolist()
    assert fit(cells, dict.fromkeys(range(16), 1 / 16), false_alarm=FALSE_ALARM).accepted


EXTREME = [0, 1, 2**47, 2**48 - 1, 2**48, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2**48 - 1, 2**64 - 2**48, 2**64 - 1]


@cases("word", EXTREME)
@cases("second", [0, 2**20, 2**63, 2**64 - 1])
def test_the_share_of_error_of_an_exponential(word: int, second: int) -> None:
    """Whatever follows the words that were read, the double is within the share of the true logarithm."""
    script = [word, second, *[12345678901234567890] * 40]
    found = ball._exponentials(1, ScriptedBits(script))[0]
    prefix, bits = word, 64
    for following in script[1:]:
        if ball._LEAST_PREFIX <= prefix < (1 << bits) - ball._LEAST_PREFIX:
            break
        prefix, bits = prefix << 64 | following, bits + 64
    with localcontext() as context:
        context.prec = 120
        for end in (prefix, prefix + 1):
            true = -(Decimal(end) / Decimal(1 << bits)).ln()
            assert abs(Decimal(float(found)) / true - 1) <= Decimal(2) ** -46


def test_the_share_of_error_of_a_normal_variable() -> None:
    """The doubles against extended precision, for the smallest to the largest magnitudes."""
    words = [2**63, *[word for word in EXTREME if 2**48 <= word < 2**64 - 2**48]]
    for radius in words:
        for angle in words:
            for sign in (0, 1):
                found = ball._normals(1, ScriptedBits([radius, angle, sign]))[0]
                uniform = np.longdouble(radius) / np.longdouble(2) ** 64
                turn = np.longdouble(angle) / np.longdouble(2) ** 64 * np.longdouble("1.57079632679489661923132")
                true = np.sqrt(-2 * np.log(uniform)) * np.sin(turn) * (1 - 2 * sign)
                assert abs(found / true - 1) <= 2.0**-44


def test_out_of_range() -> None:
    for scale, size in ((Fraction(0), 3), (Fraction(10**101), 3), (Fraction(1), 0), (1.0, 3)):
        with pytest.raises(ParameterError, match="P017"):
            exponential_norm(scale, size)  # type: ignore[arg-type]
    assert ball_error(Fraction(3), 36) == Fraction(300, 1 << 34)
    with pytest.raises(InternalError, match="I020"):
        exponential_norm(Fraction(1), 1, source=ScriptedBits([0] * 400))
    # A norm so long that its share of error exceeds the bound.
    ball._certain(np.array([16000.0]), Fraction(1))
    with pytest.raises(InternalError, match="I020"):
        ball._certain(np.array([17000.0]), Fraction(1))


TABLES = {
    "no row": Table.of([]),
    "one row": Table.of([1.0]),
    "both labels": Table.of([0.9, 0.8, 0.5, -0.6, 1.0, -0.3]),
}


@pytest.mark.long
@cases("delta", [None, pytest.param(Fraction("1e-6"), marks=pytest.mark.slow)])
@cases(
    "name",
    [pytest.param("no row", marks=pytest.mark.slow), pytest.param("one row", marks=pytest.mark.slow), "both labels"],
)
def test_the_output_of_one_column(name: str, delta: Fraction | None) -> None:
    """Released coefficients against the integral of the exact density."""
    table = TABLES[name]
    store = SignedRows(1)
    store.add(np.trunc(table.rows * S))
    noise = calibrate(Fraction(2), delta, width=1, neighbours="add_remove", regularization=0.7)
    if delta is not None:  # one column takes exponential noise; the other law is to be seen, too
        noise = ObjectiveNoise(Fraction(2), delta, "gaussian", Fraction(3), noise.regularization, noise.output_epsilon)
    exact = Perturbation(noise.law, float(noise.scale), float(noise.regularization))
    grid = np.linspace(-80, 80, 400_001)
    edges = np.linspace(-6, 6, 25) * noise.linear_deviation(1) / 3
    source = SeededBits(len(name))

    def law(factor: float) -> dict[int, float]:
        wrong = replace(exact, scale=exact.scale * factor)
        mass = np.cumsum(np.exp(log_density(grid[:, None], table, wrong))) * (grid[1] - grid[0])
        assert mass[-1] == pytest.approx(1.0, abs=1e-4)
        return law_of(lambda points: np.interp(points, grid, mass / mass[-1]), edges)

    def draw(factor: float, runs: int) -> list[int]:
        scaled = replace(noise, scale=noise.scale * Fraction(factor))
        found = [objective_perturbation(store, scaled, source=source)[0] for _ in range(runs)]
        return np.searchsorted(edges, found).tolist()

    right, runs = law(1.0), 0
    for factor in FACTORS:
        needed = runs_needed(right, law(factor), false_alarm=FALSE_ALARM, miss=MISS)
        assert not fit(draw(factor, needed), right, false_alarm=FALSE_ALARM).accepted
        runs = max(runs, needed)
    assert fit(draw(1.0, runs), right, false_alarm=FALSE_ALARM).accepted


def test_the_output_noise() -> None:
    """With hardly any perturbation nothing else is left: the discrete Laplace noise at its stated scale."""
    store = SignedRows(400)
    source = SeededBits(3)
    noise = ObjectiveNoise(Fraction(1), Fraction(0), "exponential", Fraction(1, 10**9), Fraction(1), Fraction(1, 100))
    scale = float(noise.output_scale(400) * noise.grid(400))

    def draw(factor: float, runs: int) -> np.ndarray:
        found: list[np.ndarray] = []
        part = replace(noise, output_epsilon=noise.output_epsilon / Fraction(factor))
        while 400 * len(found) < runs:
            found.append(objective_perturbation(store, part, source=source) / scale)
        return np.concatenate(found)

    assert noise.linear_deviation(400) < 0.01 * scale
    check(draw, lambda x: np.where(x < 0, np.exp(x) / 2, 1 - np.exp(-x) / 2), np.linspace(-3, 3, 25))
