"""Quantiles that are not private are caught by the exact check, and the product's law passes the same check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest

from dpsql.testing import check_exhaustively
from dpsql.testing.broken.quantile import (
    closed_cells_law,
    fixed_rank_law,
    median_constant_halving_law,
    median_constant_law,
    noisy_rank_law,
    rank_split_law,
)
from dpsql.testing.neighbours import Relation
from dpsql.testing.quantile import quantile_law

HALF = Fraction(1, 2)
QUARTILES = [Fraction(1, 4), HALF, Fraction(3, 4)]
Law = Callable[[list[Any]], Mapping[Any, float]]


def share(
    law: Law, cells: int, max_rows: int, epsilon: Fraction, relation: Relation, public: Sequence[int] = ()
) -> float:
    """Return the largest loss as a share of epsilon."""
    domain = [*((cell,) for cell in range(cells)), (None,)]
    report = check_exhaustively(lambda table: law([*public, *(row[0] for row in table)]), domain, max_rows, relation)
    return report.log_ratio / float(epsilon)


def right(cells: int, quantiles: Sequence[Fraction], epsilon: Fraction, relation: Relation) -> Law:
    return lambda rows: quantile_law(rows, cells, quantiles=quantiles, epsilon=epsilon, neighbours=relation)


def test_a_fixed_rank_with_the_constant_of_the_median() -> None:
    epsilon = Fraction(8)
    loss = share(lambda rows: fixed_rank_law(rows, 3, rank=Fraction(3), epsilon=epsilon), 3, 6, epsilon, "add_remove")
    assert loss == pytest.approx(2, abs=0.01)
    assert share(right(3, [HALF], epsilon, "add_remove"), 3, 6, epsilon, "add_remove") <= 1 + 1e-9


def test_a_fixed_rank_on_twenty_rows_at_epsilon_one() -> None:
    epsilon = Fraction(1)
    public = [0] * 9 + [1] * 11
    loss = share(
        lambda rows: fixed_rank_law(rows, 2, rank=Fraction(10), epsilon=epsilon), 2, 1, epsilon, "add_remove", public
    )
    assert loss == pytest.approx(2, abs=0.01)
    assert share(right(2, [HALF], epsilon, "add_remove"), 2, 1, epsilon, "add_remove", public) <= 1 + 1e-9


def test_a_noisy_rank_with_the_constant_of_the_median() -> None:
    claimed = Fraction(9)

    def law(rows: list[Any]) -> Mapping[Any, float]:
        return noisy_rank_law(rows, 3, quantile=HALF, epsilon=Fraction(8), count_epsilon=Fraction(1), most=8)

    assert 9 * share(law, 3, 6, claimed, "add_remove") == pytest.approx(17, abs=0.01)


@pytest.mark.parametrize(("quantile", "loss"), [(Fraction(3, 4), 1.5), (Fraction(9, 10), 1.35)])
def test_the_constant_of_the_median_elsewhere(quantile: Fraction, loss: float) -> None:
    epsilon = Fraction(8)
    broken = share(
        lambda rows: median_constant_law(rows, 3, quantile=quantile, epsilon=epsilon), 3, 8, epsilon, "add_remove"
    )
    assert broken == pytest.approx(loss, abs=0.01)
    assert share(right(3, [quantile], epsilon, "add_remove"), 3, 8, epsilon, "add_remove") <= 1 + 1e-9


def test_the_constant_of_the_median_below_the_first_level() -> None:
    epsilon, quantiles = Fraction(16), [Fraction(1, 3), HALF, Fraction(5, 6)]
    public = [0] * 5 + [1] * 3 + [3] * 4 + [4] * 7 + [5] * 4
    broken = share(
        lambda rows: median_constant_halving_law(rows, 6, quantiles=quantiles, epsilon=epsilon),
        6,
        1,
        epsilon,
        "replace",
        public,
    )
    assert broken == pytest.approx(7 / 6, abs=0.002)
    assert share(right(6, quantiles, epsilon, "replace"), 6, 1, epsilon, "replace", public) <= 1 + 1e-9


@pytest.mark.parametrize(
    ("law", "cells", "max_rows", "loss"), [(closed_cells_law, 3, 8, 1.5), (rank_split_law, 4, 8, 1.96)]
)
def test_sub_ranges_that_share_rows(law: Any, cells: int, max_rows: int, loss: float) -> None:
    epsilon = Fraction(16)
    broken = share(
        lambda rows: law(rows, cells, quantiles=QUARTILES, epsilon=epsilon), cells, max_rows, epsilon, "add_remove"
    )
    assert broken == pytest.approx(loss, abs=0.01)
    assert share(right(cells, QUARTILES, epsilon, "add_remove"), cells, max_rows, epsilon, "add_remove") <= 1 + 1e-9
