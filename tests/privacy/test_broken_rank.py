"""Planted faults of rank scores: each is caught, and dp_sis with ``score := 'rank'`` passes the same check."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import pytest

from dpsql.testing import check_exhaustively
from dpsql.testing.neighbours import Table
from support.broken import present_rows_law, range_of_two_levels_law, tau_b_law
from support.cases import cases
from support.laws.rank import RankLaw

LEVELS = {"target_levels": [-1, 1]}
ONE = {"mechanism": "one_shot", "gamma": Fraction(1, 2), "k": 1}
# a follows y, b is constant; the last row denies a and is the first of b's.
NUMERIC: Table = (*((float(i), 0.0, float(i)) for i in range(5)), (-99.0, 1.0, 99.0))
# The target 0 is between the levels, and none of them.
THIRD: Table = ((1.0, 0.0, -1.0), (1.0, 0.0, -1.0), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (2.0, 1.0, 1.0))


def loss(law: Callable[[Table], Mapping[Any, float]], table: Table) -> float:
    """Return the largest log ratio of the laws with and without the last row."""
    first, second = law(table[:-1]), law(table)
    return max(abs(math.log(first[output] / second[output])) for output in first)


def broken(table: Table, mechanism: str = "one_shot") -> Mapping[Any, float]:
    return range_of_two_levels_law(table or ((0.0, 0.0, 0.0),), epsilon=Fraction(1), **{**ONE, "mechanism": mechanism})


@cases(
    ("table", "levels", "expected"),
    [(NUMERIC, {}, 5 / 4), (THIRD, LEVELS, 7 / 6)],
    ids=["numeric", "third level"],
    quick=1,
)
def test_the_range_of_two_levels_elsewhere(table: Table, levels: Any, expected: float) -> None:
    """With many copies of the falling feature, Gumbel noise spends all that the range leaves open."""
    copies = 1000
    wide = tuple((*(a,) * copies, b, y) for a, b, y in table)
    assert loss(lambda table: broken(table, "gumbel"), wide) == pytest.approx(expected, rel=0.01)
    right = RankLaw([f"a{i}" for i in range(copies)] + ["b"], k=1, epsilon=1, mechanism="gumbel", **levels)
    assert loss(right.law, wide) <= 1


def test_the_range_of_two_levels_for_a_numeric_target_is_caught_exhaustively() -> None:
    assert loss(broken, NUMERIC) == pytest.approx(5 / 4)
    domain = list(NUMERIC[::2] + NUMERIC[-1:])
    right = RankLaw("ab", k=1, epsilon=1)
    assert check_exhaustively(right.law, domain, 4, "add_remove", key=right.statistic).within(1)
    report = check_exhaustively(broken, domain, 4, "add_remove")
    assert not report.within(1), str(report)


def rarely_present(rows: int) -> Table:
    """Two of n rows have feature a, and it follows the target there; the last row denies both."""
    return ((0.0, 0.0, 0.0), (1.0, 0.0, 1.0), *((None, 0.0, 0.0),) * (rows - 2), (2.0, 0.0, -1.0))


def test_scores_scaled_up_from_the_present_rows() -> None:
    def fault(table: Table) -> Mapping[Any, float]:
        return present_rows_law(table, epsilon=Fraction(1), **{**ONE, "mechanism": "gumbel"})

    losses = [loss(fault, rarely_present(rows)) for rows in (10, 100, 1000)]
    assert losses == pytest.approx([1.0, 13.2, 133], rel=0.01)
    law = RankLaw("ab", k=1, epsilon=1, mechanism="gumbel")
    assert max(loss(law.law, rarely_present(rows)) for rows in (10, 100, 1000)) <= 1


def test_tau_b() -> None:
    """As for dp_kendall: binary columns, of which few rows differ."""
    table: Table = ((1.0, 1.0, 1.0), *((0.0, 0.0, 0.0),) * 98, (0.0, 1.0, 0.0), (1.0, 0.0, 0.0))
    assert loss(lambda table: tau_b_law(table, epsilon=1), table) > 5
    for levels in ({}, {"target_levels": [0, 1]}):
        assert loss(RankLaw("ab", k=1, epsilon=1, mechanism="gumbel", **levels).law, table) <= 1
