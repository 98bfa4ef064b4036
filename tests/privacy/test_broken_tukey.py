"""Planted faults of the Tukey mechanism: each is caught, and the right mechanism passes the same check."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.kernels.block_gram import BlockGram, BlockRanges
from dpsql.mechanisms.tukey import growth_per_level
from dpsql.testing.bits import SeededBits
from dpsql.testing.distribution import fit
from support.broken.tukey import (
    inner_slabs_point,
    inverted_noise_law,
    monotone_law,
    off_by_one_law,
    position_blocks,
    too_deep_law,
    too_deep_point,
)
from support.cases import cases
from support.laws.tukey import Models, TukeyLaw, hockey_stick, tukey_law

Doubles = Any


def line(values: Any) -> Models:
    return [(float(value),) for value in values]


def right_law(models: Models, *, epsilon_test: Fraction, epsilon_draw: Fraction, delta: Fraction) -> TukeyLaw:
    factor, shift = growth_per_level(epsilon_draw)
    return tukey_law(models, epsilon_test=epsilon_test, delta=delta, growth=Fraction(factor, 1 << shift))


def loss(law: Callable[..., TukeyLaw], pair: tuple[Models, Models], test: str, draw: str, delta: str) -> float:
    """Return the least delta for which the claimed epsilon holds."""
    budget = {"epsilon_test": Fraction(test), "epsilon_draw": Fraction(draw), "delta": Fraction(delta)}
    first, second = (law(models, **budget) for models in pair)
    epsilon = Fraction(test) + Fraction(draw)
    return max(hockey_stick(first, second, epsilon), hockey_stick(second, first, epsilon))


INTEGERS = line(range(148))
WIDE_ABOVE = [0.1 * i for i in range(61)] + [6.0 + i for i in range(1, 60)]
GAPPED = [float(i) for i in range(-60, 0)] + [1.0, 1.001] + [float(i) for i in range(3, 61)]
CASES = {
    "noise of scale epsilon": (
        inverted_noise_law,
        (INTEGERS, line([*range(1, 148), 74.5])),
        ("2/5", "2/5", "0.075"),
    ),
    "K + 1": (off_by_one_law, (line([0] * 6 + [1] * 2), line([0] * 7 + [1])), ("1/2", "1", "0.1116")),
    "monotone": (monotone_law, (line(WIDE_ABOVE), line([*WIDE_ABOVE[1:], 66.0])), ("3/10", "2", "0.01")),
    "too deep": (too_deep_law, (line(GAPPED), line([*GAPPED[1:], -1.001])), ("1/2", "1", "0.05")),
}


@pytest.mark.long
@cases("name", CASES, quick=1)
def test_a_broken_law_exceeds_the_claim_and_the_right_one_does_not(name: str) -> None:
    law, pair, budget = CASES[name]
    assert loss(law, pair, *budget) > 1.2 * float(Fraction(budget[2]))
    assert loss(right_law, pair, *budget) <= float(Fraction(budget[2]))


def test_the_noise_of_the_test_costs_what_it_claims() -> None:
    law, pair, budget = CASES["noise of scale epsilon"]
    assert loss(law, pair, *budget) > 0.5


@pytest.mark.long
@cases("sampler", [too_deep_point, inner_slabs_point], quick=1)
def test_a_broken_sampler_does_not_have_the_law(sampler: Callable[..., Any]) -> None:
    models: Models = [(float(i), float(7 * i % 16) ** 2) for i in range(16)]
    law = right_law(models, epsilon_test=Fraction(1), epsilon_draw=Fraction(1), delta=Fraction(1, 4))
    draws = TukeyLaw(models, Fraction(1), law.density)
    source = SeededBits(1)
    points = [sampler(np.array(models), epsilon_draw=Fraction(1), source=source) for _ in range(1500)]
    assert not fit([draws.piece(point) for point in points], draws.pieces()).accepted


def test_a_point_too_deep_never_has_the_least_depth() -> None:
    models: Models = [(float(i),) for i in range(16)]
    law = right_law(models, epsilon_test=Fraction(1), epsilon_draw=Fraction(1), delta=Fraction(1, 4))
    source = SeededBits(2)
    depths = {law.depth(too_deep_point(np.array(models), epsilon_draw=Fraction(1), source=source)) for _ in range(300)}
    assert law.depths()[4] > 0.03
    assert min(depths) == 5


def models_of(rows: Doubles, assigned: Doubles, blocks: int) -> Doubles:
    ranges = BlockRanges(blocks, rows.shape[1])
    ranges.add(assigned, rows.T)
    gram = BlockGram(*ranges.maps())
    gram.add(assigned, rows.T)
    return gram.models(threads=0)


def test_blocks_by_position_change_many_models() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 3))
    one_less = models_of(rows[:49], position_blocks(49, 10), 10)
    changed = (one_less != models_of(rows, position_blocks(50, 10), 10)).any(axis=1)
    assert changed.sum() > 5
    keyed = np.random.default_rng(1).integers(0, 10, 50)
    changed = (models_of(rows[:49], keyed[:49], 10) != models_of(rows, keyed, 10)).any(axis=1)
    assert changed.tolist() == (np.arange(10) == keyed[49]).tolist()
