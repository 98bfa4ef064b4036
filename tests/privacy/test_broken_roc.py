"""ROC curves that are not private are caught by the exact checks, and the product's law passes the same checks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest

from dpsql.mechanisms.smooth import cauchy_scale, default_beta
from dpsql.testing import check_exhaustively
from dpsql.testing.neighbours import RELATIONS, Relation, neighbouring_pairs
from support.broken.roc import (
    closed_medians_law,
    middle_label_concordance,
    noisy_divisor_law,
    present_cells_law,
    rank_split_medians_law,
    scaled_for_units_law,
    shared_epsilon_law,
    third_power_constant,
    total_epsilon_constant,
    two_counts_law,
)
from support.cases import cases
from support.laws.roc import (
    area_law,
    best_beta,
    discrete_laplace_law,
    least_scale,
    smooth_medians_law,
    worst_median_loss,
    worst_step_loss,
)

ONE = Fraction(1)
SIX = range(6)
# Cells that rows are in, with empty ones between.
ELEVEN = [0, 1, 5, 9, 10]
Law = Callable[[Sequence[Any]], Mapping[Any, float]]


def loss(law: Law, domain: Sequence[Any], most: int, relation: Relation) -> float:
    """Return the largest loss; a row of the domain is a unit, whose rows are cells."""
    units = [unit if isinstance(unit, tuple) else (unit,) for unit in domain]
    report = check_exhaustively(lambda table: law(list(itertools.chain.from_iterable(table))), units, most, relation)
    return report.log_ratio


def medians(cells: int, neighbours: str, count: int = 3, rows: int = 1, epsilon: Fraction = ONE) -> Law:
    return lambda table: smooth_medians_law(
        table, cells, count=count, epsilon=epsilon, neighbours=neighbours, max_rows_per_unit=rows
    )


def test_halves_by_rank() -> None:
    broken = loss(lambda rows: rank_split_medians_law(rows, 11, count=3, epsilon=ONE), ELEVEN, 4, "add_remove")
    assert broken == pytest.approx(2.75, abs=0.01)


def test_ties_on_both_sides() -> None:
    epsilon = Fraction(2)
    broken = loss(lambda rows: closed_medians_law(rows, 6, count=3, epsilon=epsilon), SIX, 5, "add_remove")
    assert broken / 2 == pytest.approx(1.316, abs=0.001)
    assert 0.9 < loss(medians(6, "add_remove", epsilon=epsilon), SIX, 5, "add_remove") / 2 <= 1


@cases("relation", RELATIONS, quick=1)
@cases(("cells", "occupied"), [(6, SIX), (11, ELEVEN)])
def test_the_right_medians(cells: int, occupied: Sequence[int], relation: Relation) -> None:
    assert 0.6 < loss(medians(cells, relation), occupied, 5, relation) <= 1


@pytest.mark.long
def test_noise_multiplied_for_units() -> None:
    units = [unit for size in (1, 2, 3) for unit in itertools.combinations_with_replacement(ELEVEN, size)]
    broken = loss(lambda rows: scaled_for_units_law(rows, 11, epsilon=ONE, max_rows_per_unit=3), units, 2, "add_remove")
    assert broken == pytest.approx(1.60, abs=0.01)
    for relation in RELATIONS:
        assert 0.5 < loss(medians(11, relation, count=1, rows=3), units, 2, relation) <= 1
        # Three rows of a unit, two levels.
        assert 0.3 < loss(medians(6, relation, rows=2), [*SIX, (0, 5), (2, 3), (4, 4)], 3, relation) <= 1


def test_division_by_the_total_epsilon() -> None:
    """Algorithm 4: ten levels of 0.02 that each lose 0.032."""
    beta, constant = total_epsilon_constant(0.2, 10)
    occupied = [0, 1, 5, 20, 30, 39, 40]
    broken = worst_median_loss(occupied, 41, 3, "add_remove", constant=constant, beta=beta)
    assert broken / 0.02 == pytest.approx(1.586, abs=0.001)
    assert 10 * worst_step_loss(constant, beta) == pytest.approx(0.318, abs=0.001)
    right = least_scale(0.02, beta / 2)
    for relation in RELATIONS:
        loss = worst_median_loss(occupied, 41, 3, relation, constant=right, beta=beta / 2)
        assert 0.8 < loss / 0.02 <= 1 + 1e-9


def test_the_constant_of_another_noise() -> None:
    beta, constant = third_power_constant(1.0)
    assert worst_step_loss(constant, beta) == pytest.approx(1.0024, abs=1e-4)


@pytest.mark.parametrize("epsilon", [Fraction(1, 50), Fraction(1, 2), ONE, Fraction(5), Fraction(30)])
def test_the_product_s_constant_is_exact(epsilon: Fraction) -> None:
    """No way for centre and scale to move loses more than epsilon, and a constant 0.1 % smaller loses more."""
    beta = default_beta(epsilon)
    assert beta < epsilon
    assert float(beta) == pytest.approx(best_beta(float(epsilon)), rel=1e-6)
    constant = float(cauchy_scale(epsilon, beta))
    assert constant == pytest.approx(least_scale(float(epsilon), float(beta)), rel=1e-6)
    worst = worst_step_loss(constant, float(beta))
    assert float(epsilon) * (1 - 1e-6) <= worst <= float(epsilon) * (1 + 1e-9)
    assert worst_step_loss(0.999 * constant, float(beta)) > float(epsilon)


def test_half_of_epsilon_forgotten_under_replace() -> None:
    rows = [((False, 0),), ((True, 0),)]
    broken = loss(lambda rows: shared_epsilon_law(rows, epsilon=ONE, reach=6), rows, 3, "replace")
    assert broken == pytest.approx(2)
    for relation in RELATIONS:
        right = loss(
            lambda rows, relation=relation: two_counts_law(rows, epsilon=ONE, neighbours=relation, reach=6),
            rows,
            3,
            relation,
        )
        assert right == pytest.approx(1)


def test_empty_cells_dropped() -> None:
    rows = [((label, cell),) for label in (False, True) for cell in range(2)]
    broken = loss(lambda rows: present_cells_law(rows, 2, epsilon=ONE, reach=6), rows, 2, "add_remove")
    assert math.isinf(broken)


@pytest.mark.parametrize("relation", RELATIONS)
def test_area(relation: Relation) -> None:
    """With 0 to 3 rows of each level; the constant of add_remove loses more than epsilon under replace."""
    rows = [((label, cell),) for label in (False, True) for cell in range(3)]

    def law(neighbours: str) -> Law:
        return lambda table: area_law(table, epsilon=ONE, neighbours=neighbours, steps=60)

    assert 0.5 < loss(law(relation), rows, 5, relation) <= 1
    if relation == "replace":
        assert loss(law("add_remove"), rows, 5, "replace") > 1.2


def test_third_label_between_the_classes() -> None:
    rows = [(label, cell) for label in (None, False, True) for cell in range(3)]
    losses = []
    for pair in neighbouring_pairs(rows, 3, "add_remove"):
        (one, *counts), (other, *others) = (middle_label_concordance(table) for table in pair)
        moved = sum(abs(a - b) for a, b in zip(counts, others, strict=True))
        losses.append(0.6 * float(abs(one - other)) + 0.4 * moved)
    assert max(losses) == pytest.approx(1.3)


def test_divided_by_the_noisy_rows() -> None:
    rows = [((label, cell),) for label in (False, True) for cell in range(2)]
    assert loss(lambda rows: noisy_divisor_law(rows, epsilon=ONE, reach=5), rows, 4, "add_remove") == pytest.approx(2.2)


def test_laws_sum_to_one() -> None:
    assert math.fsum(discrete_laplace_law(3, 2.0, reach=5).values()) == pytest.approx(1)
    assert math.fsum(area_law([(True, 1), (False, 0)], epsilon=ONE, neighbours="replace", steps=10).values()) == (
        pytest.approx(1)
    )
