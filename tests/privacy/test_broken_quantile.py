"""Quantiles that are not private are caught by the exact check, and the product's law passes the same check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest

from dpsql.testing import check_exhaustively
from dpsql.testing.neighbours import Relation
from support.broken.quantile import (
    closed_cells_law,
    fixed_rank_law,
    median_constant_halving_law,
    median_constant_law,
    noisy_rank_law,
    rank_split_law,
)
from support.cases import cases
from support.laws.quantile import quantile_law

HALF = Fraction(1, 2)
QUARTILES = [Fraction(1, 4), HALF, Fraction(3, 4)]
# Cells that rows are in, with blocks of empty ones between: see tests/privacy/test_exhaustive_quantile.py.
WIDE = [0, 1, 102, 103]
TWO_BLOCKS = [0, 1, 10, 11, 20, 21]
Law = Callable[[list[Any]], Mapping[Any, float]]


def share(
    law: Law,
    occupied: Sequence[int],
    max_rows: int,
    epsilon: Fraction,
    relation: Relation,
    public: Sequence[int] = (),
) -> float:
    """Return the largest loss as a share of epsilon."""
    domain = [*((cell,) for cell in occupied), (None,)]
    report = check_exhaustively(lambda table: law([*public, *(row[0] for row in table)]), domain, max_rows, relation)
    return report.log_ratio / float(epsilon)


def right(cells: int, quantiles: Sequence[Fraction], epsilon: Fraction, relation: Relation) -> Law:
    return lambda rows: quantile_law(rows, cells, quantiles=quantiles, epsilon=epsilon, neighbours=relation)


@pytest.mark.long
def test_a_fixed_rank_with_the_constant_of_the_median() -> None:
    epsilon = Fraction(1)
    loss = share(
        lambda rows: fixed_rank_law(rows, 104, rank=Fraction(3), epsilon=epsilon), WIDE, 5, epsilon, "add_remove"
    )
    assert loss == pytest.approx(1.98, abs=0.01)
    assert share(right(104, [HALF], epsilon, "add_remove"), WIDE, 5, epsilon, "add_remove") <= 1 + 1e-9


def test_a_fixed_rank_on_twenty_rows() -> None:
    epsilon = Fraction(1)
    public = [0] * 9 + [103] * 11

    def law(rows: list[Any]) -> Mapping[Any, float]:
        return fixed_rank_law(rows, 104, rank=Fraction(10), epsilon=epsilon)

    assert share(law, WIDE, 2, epsilon, "add_remove", public) == pytest.approx(1.96, abs=0.01)
    assert share(right(104, [HALF], epsilon, "add_remove"), WIDE, 2, epsilon, "add_remove", public) <= 1 + 1e-9


@pytest.mark.long
def test_a_noisy_rank_with_the_constant_of_the_median() -> None:
    claimed = Fraction(2)

    def law(rows: list[Any]) -> Mapping[Any, float]:
        return noisy_rank_law(rows, 104, quantile=HALF, epsilon=Fraction(1), count_epsilon=Fraction(1), most=6)

    assert 2 * share(law, WIDE, 5, claimed, "add_remove") == pytest.approx(2.98, abs=0.01)


@cases(("quantile", "public", "loss"), [(Fraction(3, 4), 0, 1.49), (Fraction(9, 10), 8, 1.78)], quick=1)
def test_the_constant_of_the_median_elsewhere(quantile: Fraction, public: int, loss: float) -> None:
    epsilon = Fraction(1)
    rows = [0] * public
    broken = share(
        lambda rows: median_constant_law(rows, 104, quantile=quantile, epsilon=epsilon),
        WIDE,
        4,
        epsilon,
        "add_remove",
        rows,
    )
    assert broken == pytest.approx(loss, abs=0.01)
    assert share(right(104, [quantile], epsilon, "add_remove"), WIDE, 4, epsilon, "add_remove", rows) <= 1 + 1e-9


@pytest.mark.long
def test_the_constant_of_the_median_below_the_first_level() -> None:
    """What the second level spends, whatever the first one's cell: its share is half of epsilon."""
    epsilon, quantiles = Fraction(1), [Fraction(4, 9), Fraction(2, 3), Fraction(8, 9)]
    # Empty cells: 2 to 31, 34 to 63. A row that goes from cell 32 to the last one makes both blocks less likely.
    public, cells = [0, 1, 33, 64], 67

    def second_level(law: Mapping[Any, float]) -> Mapping[Any, float]:
        first: dict[int, float] = {}
        for found, chance in law.items():
            first[found[1]] = first.get(found[1], 0.0) + chance
        return {found: chance / first[found[1]] / len(first) for found, chance in law.items()}

    broken = share(
        lambda rows: second_level(median_constant_halving_law(rows, cells, quantiles=quantiles, epsilon=epsilon)),
        [32, 66],
        1,
        epsilon / 2,
        "replace",
        public,
    )
    assert broken == pytest.approx(1.25, abs=0.05)
    law = right(cells, quantiles, epsilon, "replace")
    assert share(lambda rows: second_level(law(rows)), [32, 66], 1, epsilon / 2, "replace", public) <= 1 + 1e-9
    assert share(law, [32, 66], 1, epsilon, "replace", public) <= 1 + 1e-9


@pytest.mark.long
@pytest.mark.parametrize(
    ("law", "max_rows", "loss"),
    [(closed_cells_law, 3, 1.13), pytest.param(rank_split_law, 4, 1.51, marks=pytest.mark.long)],
)
def test_sub_ranges_that_share_rows(law: Any, max_rows: int, loss: float) -> None:
    epsilon = Fraction(1)
    broken = share(
        lambda rows: law(rows, 22, quantiles=QUARTILES, epsilon=epsilon), TWO_BLOCKS, max_rows, epsilon, "add_remove"
    )
    assert broken == pytest.approx(loss, abs=0.01)
    assert share(right(22, QUARTILES, epsilon, "add_remove"), TWO_BLOCKS, max_rows, epsilon, "add_remove") <= 1 + 1e-9
