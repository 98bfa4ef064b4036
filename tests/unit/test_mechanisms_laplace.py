"""The scale of Laplace noise on integers, counts and sums: the sensitivity over epsilon, in the unit that is counted in."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.contract.measurement import Permit, measurement_of
from dpsql.errors import InternalError
from dpsql.mechanisms import laplace
from dpsql.mechanisms.laplace import LaplaceNoise, SumWithNoise

EPSILON = Fraction(1, 4)


@pytest.fixture
def scales(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Fraction]]:
    """The scales of all noise that is drawn, one for each number; the noise itself is 0."""
    drawn: list[Fraction] = []

    def nothing(scale: Fraction, size: int) -> np.ndarray[Any, Any]:
        drawn.extend([scale] * size)
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(laplace, "discrete_laplace", nothing)
    return drawn


def drawing(part: LaplaceNoise) -> Any:
    return Permit(measurement_of(part)).drawing()


def test_integers(scales: list[Fraction]) -> None:
    with drawing(part := LaplaceNoise("it", EPSILON, 3)):
        assert part.draw([5, 2**70]) == [5, 2**70]
    with drawing(part := LaplaceNoise("it", EPSILON)):
        part.draw([7], 5)
    assert scales == [12, 12, 20]
    with drawing(part), pytest.raises(InternalError, match="I032"):
        part.draw([7])


@pytest.mark.parametrize("one", [1, 2, 1 << 20])
def test_counts_in_a_finer_unit(scales: list[Fraction], one: int) -> None:
    with drawing(part := LaplaceNoise("it", EPSILON)):
        assert part.draw_counts(np.array([3, 9]) * one, 2, denominator=one).tolist() == [3, 9]
    assert scales == [8 * one, 8 * one]


@pytest.mark.parametrize("sensitivity", [1, 1 << 40, 1 << 60, (1 << 80) + 1])
def test_a_sum_in_a_coarser_unit_moves_by_one_more(scales: list[Fraction], sensitivity: int) -> None:
    with drawing(part := SumWithNoise("it", EPSILON, sensitivity)):
        assert part.draw_sum(5 * part.unit) == 5 * part.unit
    steps = Fraction(sensitivity, part.unit) + (part.unit > 1)
    assert scales == [steps / EPSILON]
    assert steps >= max(abs(total // part.unit) for total in (sensitivity, -sensitivity))
    assert (part.unit > 1) == (sensitivity / EPSILON >= 1 << 48)
