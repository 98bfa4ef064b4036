"""The Tukey mechanism: grid, volumes, depth, draws, refusals."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.errors import ParameterError
from dpsql.mechanisms import tukey as module
from dpsql.mechanisms.tukey import (
    DepthBoxes,
    cell_at,
    cells,
    draw_depth,
    growth_per_level,
    longest_reach,
    lower_end,
    midpoint,
    models_needed,
    passing_score,
    row_budget,
    stable_reach,
    tail_weights,
    tukey,
    typical_reach,
)
from dpsql.noise.entropy import WordReader
from dpsql.testing.bits import SeededBits
from support.laws.tukey import cell, reach, threshold, volumes

EXAMPLE = np.array([[-0.5, -0.4, -0.2, 0.1, 0.5], [-0.1, 0.4, 1, 1.7, 2.5]]).T
UNIT = Fraction(2) ** -229
BUDGET: dict[str, Any] = {"epsilon_test": Fraction(1), "epsilon_draw": Fraction(1), "delta": Fraction(1, 10**5)}
EDGES = [0.0, -0.0, 5e-324, 1e-70, 2.0**-200, 2.0**-201, 1.0, 1.0 + 2.0**-29, 1.0 + 2.0**-30, 2.0, math.pi, 1e60, 1e300]


def exact_growth(epsilon: Fraction) -> Fraction:
    factor, shift = growth_per_level(epsilon)
    return Fraction(factor, 1 << shift)


def test_cells_have_the_ends_of_their_definition() -> None:
    generator = np.random.default_rng(0)
    scales = 10.0 ** generator.uniform(-70, 70, 300)
    values = np.concatenate([EDGES, np.negative(EDGES), generator.normal(size=300) * scales])
    for value, number in zip(values.tolist(), cells(values).tolist(), strict=True):
        low, high = lower_end(number) * UNIT, lower_end(number + 1) * UNIT
        assert (low, high) == cell(value)
        assert Fraction(midpoint(number)) == (low + high) / 2
        assert cells(np.array([midpoint(number)])).tolist() == [number]
        assert cell_at(lower_end(number)) == cell_at(lower_end(number + 1) - 1) == number
        if abs(value) < 2.0**200:
            assert low <= Fraction(value) <= high


def test_cells_keep_the_order_and_the_sign() -> None:
    values = np.sort(
        np.random.default_rng(1).normal(size=1000) * 10.0 ** np.random.default_rng(2).integers(-80, 80, 1000)
    )
    assert (np.diff(cells(values)) >= 0).all()
    assert (cells(-values) == -cells(values)).all()


def test_volumes_of_the_worked_example() -> None:
    boxes = DepthBoxes(EXAMPLE)
    found = [boxes.volume(i) * Fraction(boxes.volume(1)) ** -1 * Fraction(26, 10) for i in (1, 2, 3)]
    assert [float(value) for value in found] == pytest.approx([2.6, 0.65, 0.0], rel=1e-7)
    assert [float(value) for value in volumes(list(map(tuple, EXAMPLE.tolist())))[1:4]] == pytest.approx([2.6, 0.65, 0])


def test_volumes_by_monte_carlo() -> None:
    generator = np.random.default_rng(3)
    models = np.round(generator.normal(size=(11, 2)), 1)
    points = generator.uniform(-4, 4, size=(200_000, 2))
    below = (models[:, None] <= points).sum(axis=0)
    depth = np.minimum(below, (models[:, None] >= points).sum(axis=0)).min(axis=1)
    boxes, exact = DepthBoxes(models), volumes(list(map(tuple, models.tolist())))
    for i in range(1, 6):
        assert boxes.volume(i) * exact[1] == exact[i] * boxes.volume(1)
        share = float(exact[i]) / 64
        assert abs((depth >= i).mean() - share) < 6 * math.sqrt(share / 200_000)


def test_ties_and_equal_models_have_positive_volumes() -> None:
    for models in (np.zeros((9, 3)), np.full((8, 1), 7.0), np.repeat([[0.0, 1.0], [5.0, 1.0]], 6, axis=0)):
        boxes = DepthBoxes(models)
        assert all(boxes.volume(i) >= boxes.volume(i + 1) > 0 for i in range(1, boxes.deepest))
        assert boxes.volume(boxes.deepest + 1) == 0


@pytest.mark.parametrize("tables", [20, pytest.param(300, marks=pytest.mark.long)])
def test_reach_is_that_of_the_definition(tables: int) -> None:
    generator = random.Random(4)
    delta = Fraction(1, 50)
    for _ in range(tables):
        models = [tuple(generator.choice([generator.gauss(0, 1), 0.0, 1.0]) for _ in range(2)) for _ in range(40)]
        epsilon = Fraction(generator.choice(["1/2", "1", "3"]))
        boxes, growth = DepthBoxes(np.array(models)), growth_per_level(epsilon)
        assert stable_reach(boxes, tail_weights(boxes, growth), growth, delta) == reach(
            models, exact_growth(epsilon), delta
        )


@pytest.mark.parametrize("epsilon", ["1/1000000000", "1/100", "1.0986", "3", "300"])
def test_growth_is_just_below_the_exponential(epsilon: str) -> None:
    growth = exact_growth(Fraction(epsilon))
    assert growth >= 1
    exact = float(Fraction(epsilon) / 2)
    assert math.log1p(float(growth - 1)) == pytest.approx(exact, rel=1e-8)
    with np.errstate(over="ignore"):
        from support.laws.tukey import exponential

        assert growth <= exponential(Fraction(epsilon) / 2) * (1 + Fraction(1, 10**38))


def test_growth_is_capped_for_huge_budgets() -> None:
    assert math.log2(exact_growth(Fraction(10**6))) < 1000


def test_passing_score_is_the_next_integer() -> None:
    for epsilon, delta in itertools.product(["1/3", "0.5493", "2", "60"], ["1/2", "1/10", "1/100000"]):
        least = passing_score(Fraction(epsilon), Fraction(delta))
        assert least == math.floor(threshold(Fraction(epsilon), Fraction(delta))) + 1


def test_longest_reach_by_hand() -> None:
    assert [longest_reach(m) for m in (0, 4, 7, 8, 11, 12, 16, 100)] == [-2, -1, -1, 0, 0, 1, 2, 23]


@pytest.mark.parametrize("models", [0, 1, 7])
def test_too_few_models_are_not_released(models: int) -> None:
    assert tukey(np.ones((models, 2)), **BUDGET) is None


@pytest.mark.long
def test_the_deepest_region_for_a_large_budget() -> None:
    models = np.random.default_rng(5).normal(size=(1001, 3))
    for seed in range(5):
        point = tukey(models, **(BUDGET | {"epsilon_draw": Fraction(10**4)}), source=SeededBits(seed))
        assert point is not None
        assert (np.abs((models <= point).sum(axis=0) - 500) <= 1).all()


def test_a_small_budget_spreads_over_the_stable_region() -> None:
    models = np.random.default_rng(6).normal(size=(200, 1))
    boxes, growth = DepthBoxes(models), growth_per_level(Fraction(1, 10**6))
    tails, reader = tail_weights(boxes, growth), WordReader(SeededBits(7))
    depths = [draw_depth(boxes, tails, growth, reader) for _ in range(400)]
    assert min(depths) < 55
    assert max(depths) > 90


def test_equal_coordinates_come_out_as_they_are() -> None:
    models = np.random.default_rng(8).normal(size=(500, 4))
    models[:, 1], models[:, 3] = 0.0, 7.0
    point = tukey(models, **BUDGET)
    assert point is not None
    assert point[1] == 0.0
    assert point[3] == pytest.approx(7.0, rel=2.0**-29)


def test_models_that_are_not_finite_count_as_zeros() -> None:
    models = np.random.default_rng(9).normal(size=(400, 2))
    zeros = models.copy()
    zeros[3], zeros[5] = 0.0, 0.0
    models[3, 0], models[5, 1] = np.nan, np.inf
    points = [tukey(table, **BUDGET, source=SeededBits(10)) for table in (models, zeros)]
    assert points[0] is not None
    assert np.array_equal(points[0], points[1])


def test_extreme_coordinates_do_not_fail() -> None:
    models = np.random.default_rng(11).normal(size=(300, 3)) * [1e-290, 1.0, 1e290]
    point = tukey(models, **BUDGET, source=SeededBits(12))
    assert point is not None
    assert np.isfinite(point).all()


def test_the_noise_on_the_test_has_its_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Fraction] = []

    def noted(scale: Fraction, *given: Any, **more: Any) -> Any:
        found.append(scale)
        return original(scale, *given, **more)

    original = module.discrete_laplace
    monkeypatch.setattr(module, "discrete_laplace", noted)
    models = np.random.default_rng(13).normal(size=(80, 1))
    tukey(models, epsilon_test=Fraction(1, 3), epsilon_draw=Fraction(2), delta=Fraction(1, 20))
    assert found == [3]


@pytest.mark.long
def test_unsafe_models_pass_with_probability_delta_at_most() -> None:
    models = np.random.default_rng(13).normal(size=(80, 1))
    unsafe = models.copy()
    unsafe[:20] += 1e9  # the ends of the region of depth 20 at least: one model decides
    budget = {"epsilon_test": Fraction(1), "epsilon_draw": Fraction(2), "delta": Fraction(1, 20)}
    source, runs = SeededBits(13), 1000
    passed = [sum(tukey(table, **budget, source=source) is not None for _ in range(runs)) for table in (models, unsafe)]
    assert passed[0] > 0.5 * runs
    assert 0 < passed[1] < 0.05 * runs


def test_refusals_name_public_values() -> None:
    models = np.ones((10, 1))
    for change, code in (
        ({"epsilon_test": Fraction(0)}, "P018"),
        ({"epsilon_draw": 1.0}, "P018"),
        ({"delta": Fraction(0)}, "P018"),
        ({"delta": Fraction(3, 5)}, "P018"),
    ):
        with pytest.raises(ParameterError, match=code):
            tukey(models, **(BUDGET | change))
    for wrong in (np.ones(10), np.ones((10, 0)), np.ones((20_000, 1))):
        with pytest.raises(ParameterError, match="P018"):
            tukey(wrong, **BUDGET)


def test_row_budget_of_a_replacement() -> None:
    assert row_budget("add_remove", Fraction(1), Fraction(1, 10)) == (1, Fraction(1, 10))
    for epsilon in ("1/1000", "1", "20", "300"):
        half, delta = row_budget("replace", Fraction(epsilon), Fraction(1, 100))
        assert half == Fraction(epsilon) / 2
        assert float(delta) == pytest.approx(0.01 / (1 + math.exp(float(half))), rel=1e-12)
        from support.laws.tukey import exponential

        assert delta * (1 + exponential(half)) <= Fraction(1, 100)


@pytest.mark.parametrize(("p", "epsilon", "delta"), [(1, "0.3", "1e-5"), (6, "1.0986", "1e-5"), (30, "3", "1e-6")])
def test_models_needed_pass_nearly_always(p: int, epsilon: str, delta: str) -> None:
    budget, small = Fraction(epsilon), Fraction(delta)
    count = models_needed(p, budget, small)
    least = passing_score(budget / 2, small) + math.ceil(math.log(50) / float(budget / 2))
    generator, growth = np.random.default_rng(14), growth_per_level(budget / 2)
    mixing = generator.normal(size=(p, p))
    for _ in range(5):
        boxes = DepthBoxes(generator.normal(size=(count, p)) @ mixing)
        assert stable_reach(boxes, tail_weights(boxes, growth), growth, small) >= least - 1
    assert typical_reach(count * 9 // 10, p, budget / 2, small) < least


def test_models_needed_of_the_table_in_the_literature() -> None:
    found = [models_needed(p, Fraction("1.0986"), Fraction(1, 10**5)) for p in (1, 3, 6, 11, 20, 30)]
    assert found == sorted(found)
    assert all(count <= most for count, most in zip(found, (500, 500, 750, 1000, 1500, 1500), strict=True))


def test_models_needed_refuses_tiny_budgets() -> None:
    with pytest.raises(ParameterError, match="P039"):
        models_needed(3, Fraction(1, 1000), Fraction(1, 10**5))
