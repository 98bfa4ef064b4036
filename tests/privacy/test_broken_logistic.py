"""Planted faults of private logistic regression, caught by exact laws; the right calibration passes the same checks."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.kernels.gram import clip_rows
from dpsql.kernels.logistic import SignedRows
from dpsql.mechanisms.objective_perturbation import calibrate, objective_epsilon, objective_perturbation
from dpsql.testing.bits import SeededBits
from support.broken import logistic as broken
from support.cases import cases
from support.laws.logistic import Perturbation, Table, loss_at, replaced_pair, shifted

S = FIXED_POINT_ONE
FAR = np.concatenate((np.linspace(-30, 30, 20_001), np.linspace(-1000, 1000, 2001)))[:, None]
COMMON = [shifted(-40.0), shifted(40.0), Table.of([1.0, -1.0])]


def added(noise: Perturbation, row: float = 1.0, count: float = 1.0) -> float:
    return max(float(np.abs(loss_at(FAR, table.plus([row], count), table, noise)).max()) for table in COMMON)


def replaced(noise: Perturbation) -> float:
    pairs = (replaced_pair(float(odds)) for odds in np.linspace(-10, 10, 401))
    return max(abs(float(loss_at(point, one, other, noise)[0])) for one, other, point in pairs)


def right(epsilon: float, neighbours: str = "add_remove", rows: int = 1) -> Perturbation:
    noise = calibrate(Fraction(epsilon), None, width=1, neighbours=neighbours, max_rows_per_unit=rows)
    return Perturbation(noise.law, float(noise.scale), float(noise.regularization))


@cases(("epsilon", "share"), [(0.1, 1.271), (0.5, 1.235), (1.0, 1.201), (2.0, 1.156)], quick=1)
def test_constants_for_added_rows(epsilon: float, share: float) -> None:
    fault = broken.constants_for_added_rows(epsilon)
    assert replaced(fault) == pytest.approx(share * epsilon, rel=2e-3)
    stated = objective_epsilon(1 / Fraction(fault.scale), Fraction(fault.regularization), "replace")
    assert float(stated) == pytest.approx(share * epsilon, rel=1e-3)
    assert added(fault) < epsilon
    assert replaced(right(epsilon, "replace")) <= epsilon


def test_nothing_left_for_the_determinants() -> None:
    assert added(broken.whole_epsilon_to_noise(1.0, 0.3)) > 1.2
    assert added(right(1.0)) <= 1.0


def test_one_row_for_a_unit() -> None:
    assert added(broken.one_row_for_a_unit(1.0), count=4) > 3.9
    assert added(right(1.0, rows=4), count=4) <= 1.0


def test_rows_that_are_too_long() -> None:
    """The right noise under a row of norm 3: what an unclipped norm costs."""
    assert added(right(1.0), row=3.0) > 2.5
    assert added(right(1.0), row=1.0) <= 1.0


def test_a_coordinate_without_noise() -> None:
    """Without noise in the intercept the gradient in that coordinate tells the two tables apart, with certainty."""
    rows = np.trunc(np.array([[0.7, 0.7], [-0.7, 0.5], [0.7, -0.1]]) * S)
    table, neighbour = SignedRows(2), SignedRows(2)
    table.add(rows)
    neighbour.add(rows[:-1])
    noise = calibrate(Fraction(1), None, width=2, neighbours="add_remove")
    ridge = float(noise.regularization)

    def residuals(released: np.ndarray) -> list[float]:
        return [abs(float(one.gradient(released, ridge, np.zeros(2)).value[0])) for one in (table, neighbour)]

    for seed in range(20):
        options = {"scale": noise.scale, "regularization": ridge, "source": SeededBits(seed)}
        on_table, on_neighbour = residuals(broken.without_intercept_noise(table, **options))
        assert on_table < 1e-8 < 1e-3 < on_neighbour
        on_table, on_neighbour = residuals(broken.without_intercept_noise(neighbour, **options))
        assert on_neighbour < 1e-8 < 1e-3 < on_table
        assert min(residuals(objective_perturbation(table, noise, source=SeededBits(seed)))) > 1e-5


def test_an_intercept_without_a_ridge() -> None:
    one = shifted(-40.0, short=1e-8).plus([1.0, -1.0])
    fault = broken.unregularised(1.0)
    worst = float(np.abs(loss_at(np.linspace(-10, 10, 2001)[:, None], one.plus([1.0]), one, fault)).max())
    assert worst == pytest.approx(1 + math.log(1.5), abs=0.01)
    assert added(right(1.0)) <= 1.0


def test_rounding_after_the_clip() -> None:
    features = np.full((1, 100), 32768.0)
    radius = 327655
    assert (broken.rounded_rows(features.copy(), radius) ** 2).sum() > radius**2
    clip_rows(features, radius)
    assert (features**2).sum() <= radius**2


def test_an_iterate_in_place_of_the_minimiser() -> None:
    """One Newton step and no output noise: the loss has no bound, where the minimiser's is epsilon."""
    noise = right(1.0)
    one, other = (COMMON[2].plus([1.0]), COMMON[2])
    losses = [
        float(
            np.abs(
                broken.one_step_log_density(points, one, noise) - broken.one_step_log_density(points, other, noise)
            ).max()
        )
        for points in (FAR, 10 * FAR)
    ]
    assert losses[0] > 100
    assert losses[1] > 5 * losses[0]
    assert float(np.abs(loss_at(10 * FAR, one, other, noise)).max()) <= 1.0
