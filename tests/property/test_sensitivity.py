"""Sensitivities of `dpsql/statistics` on random neighbouring tables, and exhaustively on small ones."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.statistics import xty
from dpsql.testing import check_sensitivity, random_pairs, random_unit_pairs
from dpsql.testing.neighbours import RELATIONS, Relation, Row, Table
from support.cases import cases
from support.laws.sis import SisLaw

FEATURES = ("a", "b", "c")
LOWER, UPPER = -3.0, 5.0
BOUNDS = {"lower": LOWER, "upper": UPPER, "target_lower": LOWER, "target_upper": UPPER}
CENTRES = (0, 1, FIXED_POINT_ONE // 3, FIXED_POINT_ONE, -FIXED_POINT_ONE)


def statistic(table: Table, center: int = 0) -> tuple[int, ...]:
    return LAW.statistic(table, center)


LAW = SisLaw(FEATURES, k=1, epsilon=1, **BOUNDS)


def check_cross_products(first: Table, second: Table, relation: str, rows: int) -> None:
    for center in CENTRES:
        changes = [b - a for a, b in zip(statistic(first, center), statistic(second, center), strict=True)]
        assert max(map(abs, changes)) <= xty.component_sensitivity(relation, rows)
        assert max(changes) - min(changes) <= xty.utility_range(relation, rows)


def check_target_sums(first: Table, second: Table, relation: str, rows: int) -> None:
    moved = sum(abs(b - a) for a, b in zip(LAW.target_sums(first), LAW.target_sums(second), strict=True))
    assert moved <= xty.target_sums_sensitivity(relation, rows)


@pytest.mark.long
@pytest.mark.parametrize("relation", RELATIONS)
def test_one_row(relation: Relation) -> None:
    for first, second in random_pairs(2024, relation, columns=4, count=400, lower=LOWER, upper=UPPER):
        check_cross_products(first, second, relation, 1)
        check_target_sums(first, second, relation, 1)


@cases("relation", RELATIONS, quick=1)
@cases("rows", [1, 2, 3])
def test_one_unit_after_the_cap(relation: Relation, rows: int) -> None:
    """Rows without an id are dropped, then at most `rows` of each unit are kept, whichever they are."""
    generator = random.Random(rows)
    for pair in random_unit_pairs(77, relation, columns=4, count=150, max_rows_per_unit=5, lower=LOWER, upper=UPPER):
        kept_of: dict[Any, list[Row]] = {}
        for table in pair:  # a unit in both tables keeps the same rows: the choice depends on its own rows only
            for unit in {row[0] for row in table} - {None}:
                owned = [row[1:] for row in table if row[0] == unit]
                kept_of.setdefault(unit, generator.sample(owned, min(rows, len(owned))))
        capped = [
            tuple(itertools.chain.from_iterable(kept_of[unit] for unit in sorted({row[0] for row in table} - {None})))
            for table in pair
        ]
        check_cross_products(*capped, relation, rows)
        check_target_sums(*capped, relation, rows)


@pytest.mark.parametrize("relation", RELATIONS)
def test_constants_are_reached(relation: Relation) -> None:
    """Upper bounds that nothing reaches would cost utility: these are attained, up to the range."""
    domain: list[Row] = [(*row, UPPER) for row in itertools.product((LOWER, UPPER), repeat=3)]
    report = check_sensitivity(statistic, domain, 3, relation)
    assert report.largest == xty.component_sensitivity(relation)
    assert report.range == xty.utility_range(relation)


def test_target_sums_constants_are_reached() -> None:
    domain: list[Row] = [(0.0, 0.0, 0.0, y) for y in (LOWER, 1.0, UPPER, None)]
    assert check_sensitivity(LAW.target_sums, domain, 2, "add_remove").total == xty.target_sums_sensitivity(
        "add_remove"
    )
    assert check_sensitivity(LAW.target_sums, domain, 2, "replace").total <= xty.target_sums_sensitivity("replace")


@pytest.mark.parametrize("relation", RELATIONS)
def test_row_order_does_not_matter(relation: Relation) -> None:
    generator = random.Random(5)
    for table, _ in random_pairs(9, relation, columns=4, count=100, lower=LOWER, upper=UPPER):
        shuffled = list(table)
        generator.shuffle(shuffled)
        assert statistic(tuple(shuffled)) == statistic(table)


@pytest.mark.parametrize("wrong", [0.5, 0.99])
def test_a_smaller_constant_is_refuted(wrong: float) -> None:
    """The random tables are hard enough: a constant that is too small fails on them."""
    largest = 0
    for first, second in random_pairs(2024, "add_remove", columns=4, count=400, lower=LOWER, upper=UPPER):
        changes = [b - a for a, b in zip(statistic(first), statistic(second), strict=True)]
        largest = max(largest, *map(abs, changes))
    assert largest > wrong * xty.component_sensitivity("add_remove")


def test_mean_stays_inside() -> None:
    generator = random.Random(1)
    for _ in range(2000):
        high, low = (generator.randrange(-(10**8), 10**9) for _ in range(2))
        assert -FIXED_POINT_ONE <= xty.mean_from_sums(high, low) <= FIXED_POINT_ONE
    assert xty.mean_from_sums(0, 0) == xty.mean_from_sums(-5, 3) == 0
