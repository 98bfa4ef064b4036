"""Planted faults of private regression; the right calibration passes the same checks."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.contract.events import cost_of
from dpsql.contract.gaussian_profile import gaussian_covers, gaussian_delta, gaussian_mu
from dpsql.errors import ParameterError
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.kernels.gram import clip_rows, gram_products
from dpsql.mechanisms.gaussian import gaussian_release
from dpsql.statistics.regression import cross_sensitivity, gram_sensitivity, largest_norm
from dpsql.testing.distribution import fit
from support.broken import regression as broken

S = FIXED_POINT_ONE
EPSILON, DELTA = Fraction(1), Fraction("1e-6")
MU = gaussian_mu(EPSILON, DELTA)
ROUNDS = 100


def total(multipliers: list[float]) -> float:
    """Mu of releases that each move by their sensitivity."""
    return math.sqrt(math.fsum(multiplier**-2 for multiplier in multipliers))


def right_multipliers(releases: int) -> list[float]:
    return [math.sqrt(releases) / float(MU)] * releases


FAULTS = [
    (broken.repository_multipliers(float(MU), ROUNDS), 42.667, 1.0),
    (broken.one_release_multipliers(float(MU), ROUNDS), 2.3906, 0.6365),
    (broken.whole_budget_multipliers(float(MU)), 0.40998, 1.605e-3),
]


@pytest.mark.parametrize(("multipliers", "mu", "delta"), FAULTS)
def test_all_releases_together(multipliers: list[float], mu: float, delta: float) -> None:
    spent = total(multipliers)
    assert spent == pytest.approx(mu, rel=1e-4)
    found = gaussian_delta(Fraction(spent), EPSILON)
    assert float(found) == pytest.approx(delta, rel=0.02)
    assert found > 500 * DELTA
    right = total(right_multipliers(len(multipliers)))
    assert right == pytest.approx(float(MU), rel=1e-12)
    assert gaussian_delta(Fraction(right), EPSILON) <= DELTA * (1 + Fraction(1, 10**9))


@pytest.mark.parametrize(("multipliers", "mu", "delta"), FAULTS)
def test_the_law_of_the_noise_shows_it(multipliers: list[float], mu: float, delta: float) -> None:
    """500 numbers of noise, in units of what belongs there, at a false-alarm rate of 1e-6."""
    right = right_multipliers(len(multipliers))[0]
    edges = np.array([-np.inf, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, np.inf])
    law = {
        cell: float(chance) for cell, chance in enumerate(np.diff([0.5 * math.erfc(-x / math.sqrt(2)) for x in edges]))
    }
    accepted = []
    for multiplier in (right, multipliers[0]):
        release = gaussian_release(
            np.zeros(500, dtype=np.int64), sensitivity=S * S, squared_mu=1 / Fraction(multiplier) ** 2
        )
        cells = np.searchsorted(edges, release.values / (S * S * right)) - 1
        accepted.append(fit(cells.tolist(), law).accepted)
    assert accepted == [True, False]


def test_replaced_rows_move_more_than_the_constants_of_added_ones() -> None:
    radius = largest_norm(1, S)
    first, second = np.array([[S, S]]) * 1.0, np.array([[S, -S]]) * 1.0
    moved = math.isqrt(sum(int(value) ** 2 for value in (gram_products(first) - gram_products(second)).ravel()))
    cross = math.isqrt(sum((2 * int(value) * S) ** 2 for value in first[0]))
    wrong = broken.add_remove_sensitivities(radius, S)
    assert moved > 1.41 * wrong[0]
    assert cross > 1.99 * wrong[2]
    assert moved <= gram_sensitivity("replace", radius)
    assert cross <= cross_sensitivity("replace", radius)
    # All that a third of the budget each allows, and what this pair spends with the wrong constants.
    spent = math.sqrt(((moved / wrong[0]) ** 2 + (cross / wrong[2]) ** 2) / 3)
    assert spent > 1.4
    assert not gaussian_covers(Fraction(spent) * MU, EPSILON, DELTA)


def squared(rows: np.ndarray) -> int:
    return max(sum(int(value) ** 2 for value in row) for row in rows)


@pytest.mark.parametrize(("one", "radius"), [(32768, 32765), (S, S - 1)])
def test_rounding_after_the_clip(one: int, radius: int) -> None:
    row = np.full((1, 100), float(one))
    wrong = broken.round_after_clip(row, radius)
    assert squared(wrong) > radius**2
    if one == 32768:
        assert set(wrong[0]) == {3277.0}
        assert squared(wrong) / radius**2 - 1 == pytest.approx(3e-4, rel=0.03)
    clip_rows(row, radius)
    assert squared(row) <= radius**2


def test_rounding_after_the_clip_on_random_rows() -> None:
    generator = np.random.default_rng(0)
    rows = np.rint(generator.uniform(-1, 1, (2000, 50)) * S)
    wrong = broken.round_after_clip(rows, S)
    exceeding = sum(squared(row[np.newaxis]) > S**2 for row in wrong)
    assert 500 < exceeding < 1500
    clip_rows(rows, S)
    assert squared(rows) <= S**2


def test_norms_of_the_data() -> None:
    table = np.full((1000, 4), S // 200)
    neighbour = np.vstack((table, np.full((1, 4), S // 2)))
    small, large = (broken.radius_of_the_data(rows.astype(float)) ** 2 for rows in (table, neighbour))
    assert large / small == pytest.approx(10_000, rel=1e-3)
    assert broken.radius_of_the_data(np.zeros((0, 4))) == 0.0
    # Noise within three of the smaller standard deviations tells them apart, whatever the multiplier.
    within = [math.erf(3 / math.sqrt(2)), math.erf(3 * small / large / math.sqrt(2))]
    assert within[0] - math.exp(float(EPSILON)) * within[1] > 0.99
    for rows in (table, neighbour):
        clipped = rows.astype(float)
        clip_rows(clipped, S // 2)
        assert squared(clipped) <= (S // 2) ** 2  # the public radius serves both


@pytest.mark.parametrize(
    ("epsilon", "delta", "step", "excess"),
    [
        (Fraction(math.log(3)), "1e-5", 1e-6, 1.000024),
        (Fraction("0.1"), "1e-6", 1e-6, 1.0002),
        (Fraction(1), "1e-6", 0.01, 1.325),
    ],
)
def test_a_mu_that_is_rounded_up(epsilon: Fraction, delta: str, step: float, excess: float) -> None:
    wrong = Fraction(str(round(broken.rounded_up_mu(float(epsilon), float(delta), step), 9)))
    ratio = gaussian_delta(wrong, epsilon) / Fraction(delta)
    assert ratio > 1
    assert float(ratio) == pytest.approx(excess, rel=1e-5 if step < 0.01 else 1e-3)
    right = gaussian_mu(epsilon, Fraction(delta))
    assert right < wrong
    event = {"mechanism": "gaussian_dp", "epsilon": str(epsilon), "delta": delta}
    assert cost_of({**event, "mu": str(right)}).delta == Fraction(delta)
    with pytest.raises(ParameterError, match="P048"):
        cost_of({**event, "mu": str(wrong)})
