"""Subsets drawn in steps against their exact law; 0.7 and 1.3 times the noise must show, as in `judge`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.errors import InternalError, ParameterError
from dpsql.kernels.subset_floors import completions
from dpsql.mechanisms import subset_selection as module
from dpsql.mechanisms.subset_selection import exponential_above_floors, subset_steps
from support.audits import judge

P = 7
Subset = tuple[int, ...]


def score_of(subset: Sequence[int]) -> int:
    """Return a score that falls with every column, and more where two of them belong together."""
    members = set(subset)
    return 300 - sum(17 * (j % 4) + j for j in members) - 40 * len(members & {1, 5}) ** 2 // 2


def scores(rows: np.ndarray) -> list[int]:
    return [score_of(row) for row in rows.tolist()]


def law_of_steps(sizes: Sequence[int], coefficient: float) -> dict[Subset, float]:
    law: dict[Subset, float] = {(): 1.0}
    for size in sizes:
        after: dict[Subset, float] = {}
        for chosen, chance in law.items():
            sets = [(*chosen, *more) for more in itertools.combinations(set(range(P)) - set(chosen), size)]
            weights = [math.exp(-coefficient * (score_of(each) - 100)) for each in sets]
            for each, weight in zip(sets, weights, strict=True):
                key = tuple(sorted(each))
                after[key] = after.get(key, 0.0) + chance * weight / sum(weights)
        law = after
    return law


def drawer(sizes: Sequence[int], ranges: Sequence[int], below: int) -> Callable[[Fraction, int], list[Subset]]:
    known: dict[tuple[int, ...], np.ndarray] = {}

    def floors(chosen: np.ndarray, others: np.ndarray, taken: int) -> np.ndarray:
        key = tuple(chosen.tolist())
        if key not in known:
            known[key] = computed(chosen, others, taken)
        return known[key]

    def computed(chosen: np.ndarray, others: np.ndarray, taken: int) -> np.ndarray:
        more = completions(others, taken, np.arange(math.comb(len(others), taken)))
        exact = scores(np.column_stack((np.tile(chosen, (len(more), 1)), more)))
        # Lower by another amount for each: some floors are far below, some are scores.
        return np.array([value - below * (place % 3) for place, value in enumerate(exact)])

    def draw(epsilon: Fraction, runs: int) -> list[Subset]:
        given = {"floors": floors, "completions": completions, "score": scores, "n_candidates": P}
        return [subset_steps(sizes, utility_ranges=ranges, epsilon=epsilon, **given) for _ in range(runs)]  # type: ignore[arg-type]

    return draw


@pytest.mark.long
@pytest.mark.parametrize(
    ("sizes", "ranges", "below"),
    [((1, 2), (20, 40), 0), ((1, 2), (20, 40), 15), ((2,), (50,), 10), ((1, 1, 1), (10, 20, 30), 5)],
)
def test_subset_steps(sizes: tuple[int, ...], ranges: tuple[int, ...], below: int) -> None:
    """The sum of the ranges calibrates every step; floors do not change the law."""
    total = sum(ranges)
    judge(drawer(sizes, ranges, below), lambda at: law_of_steps(sizes, float(at) / total), Fraction(4))


def test_all_steps_together_spend_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Fraction] = []

    def noted(*given: Any, coefficient: Fraction, **more: Any) -> Any:
        found.append(coefficient)
        return exponential_above_floors(*given, coefficient=coefficient, **more)

    monkeypatch.setattr(module, "exponential_above_floors", noted)
    ranges = (10, 20, 30)
    drawer((1, 1, 1), ranges, 5)(Fraction(4), 1)
    assert sum(coefficient * width for coefficient, width in zip(found, ranges, strict=True)) == 4


@pytest.mark.long
def test_very_large_losses_end() -> None:
    """All floors lie far below in units of the noise: those that are rejected get their scores."""
    exact = np.arange(40) % 5 + 10
    drawn = {
        exponential_above_floors(exact - 3, lambda places: exact[places], coefficient=Fraction(10**9)) for _ in range(8)
    }
    assert drawn <= set(np.flatnonzero(exact == 10).tolist())
    assert len(drawn) > 1  # else by chance: 5e-7


def test_a_floor_above_a_score_is_refused() -> None:
    with pytest.raises(InternalError, match="I019"):
        exponential_above_floors([5], lambda places: np.array([4]), coefficient=Fraction(1))


@pytest.mark.parametrize("sizes", [(), (0,), (4, 4), (1, 2, 1)])
def test_sizes_are_judged(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ParameterError, match="P018"):
        drawer(sizes, (1,) * min(len(sizes), 2), 0)(Fraction(1), 1)
