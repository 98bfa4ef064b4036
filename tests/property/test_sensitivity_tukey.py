"""Sensitivities of the Tukey mechanism on random tables, and its exact law on random neighbours."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from dpsql.contract.fold import Batch
from dpsql.mechanisms.tukey import DepthBoxes, growth_per_level, row_budget, stable_reach, tail_weights
from dpsql.statistics.votes import _assigned
from support.laws.tukey import Model, Models, common_volumes, hockey_stick, tukey_law

KINDS = ("integers", "gaussian", "wide", "plateaus", "equal")


def value(kind: str, generator: random.Random) -> float:
    if kind == "integers":
        return float(generator.randint(-2, 2))
    if kind == "gaussian":
        return generator.gauss(0, 1)
    if kind == "wide":
        return generator.choice([-1.0, 1.0]) * 10.0 ** generator.randint(-6, 6)
    if kind == "plateaus":
        return generator.choice([0.0, 1.0, 1.0 + 2.0**-29, 2.0 + generator.random()])
    return 3.0 if generator.random() < 0.95 else generator.gauss(3, 1e-6)


def pair(generator: random.Random, sizes: tuple[int, ...], widths: tuple[int, ...]) -> tuple[Models, Models]:
    """Return a random table and a neighbour: one model replaced by one of any kind."""
    count, width = generator.choice(sizes), generator.choice(widths)
    kinds = [generator.choice(KINDS) for _ in range(width)]

    def model(kinds: list[str]) -> Model:
        return tuple(value(kind, generator) for kind in kinds)

    first = [model(kinds) for _ in range(count)]
    second = list(first)
    second[generator.randrange(count)] = model([generator.choice([kind, "wide"]) for kind in kinds])
    return first, second


def table_reach(models: Models, epsilon: Fraction, delta: Fraction) -> int:
    boxes, growth = DepthBoxes(np.array(models)), growth_per_level(epsilon)
    return stable_reach(boxes, tail_weights(boxes, growth), growth, delta)


def test_the_block_of_a_row_follows_from_its_key() -> None:
    keys = np.random.default_rng(3).integers(0, 2**63, 60, dtype=np.uint64)
    blocks = _assigned(Batch(keys=keys), 7)
    assert set(blocks.tolist()) == set(range(7))
    assert np.array_equal(_assigned(Batch(keys=keys[1:]), 7), blocks[1:])


@pytest.mark.long
def test_reach_moves_by_one_at_most() -> None:
    generator = random.Random(0)
    seen = set()
    for _ in range(4000):
        tables = pair(generator, (8, 9, 13, 20, 40, 60), (1, 1, 2, 3))
        epsilon, delta = Fraction(generator.choice(["1/2", "1", "4"])), Fraction(generator.choice(["1/2", "1/50"]))
        one, other = (table_reach(table, epsilon, delta) for table in tables)
        assert abs(one - other) <= 1
        seen.add((one - other, one >= 0))
    assert {(-1, False), (1, True), (0, True), (-1, True)} <= seen


def test_depth_moves_by_one_at_most() -> None:
    generator = random.Random(1)
    for _ in range(200):
        moves = {there - here for here, there in common_volumes(*pair(generator, (8, 11, 14), (1, 2)))}
        assert moves <= {-1, 0, 1}


@pytest.mark.long
@pytest.mark.parametrize("delta", ["1/2", "1/10", "1/100"])
def test_the_exact_law_of_neighbours_is_as_private_as_claimed(delta: str) -> None:
    generator = random.Random(delta)
    worst, passed = 0.0, 0
    for _ in range(100):
        first, second = pair(generator, (8, 9, 12, 16, 24, 40, 60), (1, 1, 1, 2))
        test, draw = (Fraction(generator.choice(["1/4", "1", "4"])) for _ in range(2))
        factor, shift = growth_per_level(draw)
        laws = [
            tukey_law(models, epsilon_test=test, delta=Fraction(delta), growth=Fraction(factor, 1 << shift))
            for models in (first, second)
        ]
        passed += laws[0].passing > 0.5
        for one, other in (laws, laws[::-1]):
            excess = hockey_stick(one, other, test + draw)
            assert excess <= float(Fraction(delta))
            worst = max(worst, excess)
    assert worst > 0.0
    assert passed > 1


def test_unsafe_tables_pass_with_probability_delta_at_most() -> None:
    delta = Fraction(1, 20)
    for test in ("1/10", "1/2", "2"):
        law = tukey_law([(0.0,)] * 6 + [(1.0,)] * 2, epsilon_test=Fraction(test), delta=delta, growth=Fraction(2))
        assert law.passing <= delta
        assert law.passing > delta / 50


@pytest.mark.long
def test_two_models_of_a_replaced_row_need_the_row_budget() -> None:
    values = [0.1 * i for i in range(122)] + [12.0 + i for i in range(1, 119)]
    first: Models = [(value,) for value in values]
    second: Models = [(value,) for value in [*values[2:], 140.0, 141.0]]
    delta = Fraction(1, 1000)

    def loss(test: Fraction, draw: Fraction, share: Fraction) -> float:
        factor, shift = growth_per_level(draw)
        growth = Fraction(factor, 1 << shift)
        one, other = (tukey_law(models, epsilon_test=test, delta=share, growth=growth) for models in (first, second))
        assert one.passing > 0.5
        return max(hockey_stick(one, other, Fraction(3)), hockey_stick(other, one, Fraction(3)))

    epsilon, share = row_budget("replace", Fraction(3), delta)
    assert loss(epsilon / 3, 2 * epsilon / 3, share) <= delta
    assert loss(Fraction(1), Fraction(2), delta) > 10 * delta
