"""Private quantiles on every small table: the largest log ratio against the claimed epsilon, from exact laws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest

from dpsql.accountant import cost_of
from dpsql.mechanisms.quantile import halving_levels, quantile_event
from dpsql.testing import check_exhaustively, neighbouring_pairs, tables
from dpsql.testing.exhaustive import ExhaustiveReport
from dpsql.testing.neighbours import RELATIONS, Relation, Row
from dpsql.testing.quantile import quantile_law

HALF, THIRD, MOST, NEARLY = Fraction(1, 2), Fraction(1, 3), Fraction(3, 4), Fraction(9, 10)
SINGLE = [HALF, MOST, NEARLY, THIRD]
SEVERAL = [
    [THIRD, Fraction(2, 3)],
    [Fraction(1, 4), HALF, MOST],
    [HALF, MOST, NEARLY],
    [Fraction(1, 10), HALF, NEARLY],
    [Fraction(9, 20), HALF, Fraction(11, 20)],
]
# With these rows (cells 0 to 5) in every table a row that goes from cell 2 to cell 5 spends all of every level.
PUBLIC = [0] * 5 + [1] * 3 + [3] * 4 + [4] * 7 + [5] * 4
SPENT = [THIRD, HALF, Fraction(5, 6)]


def domain(cells: int) -> list[Row]:
    return [*((cell,) for cell in range(cells)), (None,)]


def worst(
    cells: int, max_rows: int, relation: Relation, *, public: Sequence[int] = (), **arguments: Any
) -> ExhaustiveReport:
    report = check_exhaustively(
        lambda table: quantile_law([*public, *(row[0] for row in table)], cells, neighbours=relation, **arguments),
        domain(cells),
        max_rows,
        relation,
    )
    assert report.within(arguments["epsilon"]), str(report)
    return report


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2), Fraction(8)])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("quantile", SINGLE)
def test_one_quantile_stays_within_epsilon(quantile: Fraction, relation: Relation, epsilon: Fraction) -> None:
    report = worst(3, 8, relation, quantiles=[quantile], epsilon=epsilon)
    if epsilon == 8 and quantile != NEARLY:  # far quantiles need more rows to spend all of epsilon
        assert report.log_ratio > 8 * 0.997, str(report)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("quantile", [NEARLY, Fraction(1, 10)])
def test_far_quantiles_spend_epsilon_on_longer_tables(quantile: Fraction, relation: Relation) -> None:
    public = [0] * 10 + [1] * 9 + [2] if quantile > HALF else [0] + [1] * 9 + [2] * 10
    report = worst(3, 3, relation, public=public, quantiles=[quantile], epsilon=Fraction(8))
    assert report.log_ratio > 8 * 0.97, str(report)


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(16)])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("quantiles", SEVERAL, ids=str)
def test_several_quantiles_stay_within_epsilon(
    quantiles: list[Fraction], relation: Relation, epsilon: Fraction
) -> None:
    worst(3, 6, relation, quantiles=quantiles, epsilon=epsilon)
    worst(4, 5, relation, quantiles=quantiles, epsilon=epsilon)


def test_two_levels_spend_all_of_epsilon() -> None:
    quartiles = [Fraction(1, 4), HALF, MOST]
    assert worst(3, 6, "add_remove", quantiles=quartiles, epsilon=Fraction(16)).log_ratio > 16 * 0.999
    report = worst(6, 1, "replace", public=PUBLIC, quantiles=SPENT, epsilon=Fraction(16))
    assert report.log_ratio > 16 * 0.98, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("quantiles", SEVERAL, ids=str)
def test_larger_tables_stay_within_epsilon(quantiles: list[Fraction], relation: Relation) -> None:
    worst(4, 8, relation, quantiles=quantiles, epsilon=Fraction(12))
    worst(6, 3, relation, public=PUBLIC, quantiles=quantiles, epsilon=Fraction(12))


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_three_levels_stay_within_epsilon(relation: Relation) -> None:
    quantiles = [Fraction(number, 10) for number in (1, 2, 3, 5, 6, 8)]
    worst(3, 6, relation, quantiles=quantiles, epsilon=Fraction(6))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("quantiles", [[HALF], [MOST], SEVERAL[2], SEVERAL[4]], ids=str)
def test_a_unit_with_two_rows_stays_within_epsilon(quantiles: list[Fraction], relation: Relation) -> None:
    """Neighbours differ in all rows of one unit, which owns up to two."""
    cells = [0, 1, 2]
    units: list[Row] = [*((cell,) for cell in cells), *itertools.combinations_with_replacement(cells, 2)]
    epsilon = Fraction(8 * halving_levels(len(quantiles)))
    report = check_exhaustively(
        lambda table: quantile_law(
            list(itertools.chain.from_iterable(table)),
            3,
            quantiles=quantiles,
            epsilon=epsilon,
            neighbours=relation,
            max_rows_per_unit=2,
        ),
        units,
        4,
        relation,
        key=lambda table: tuple(sorted(itertools.chain.from_iterable(table))),
    )
    assert report.within(epsilon), str(report)
    if quantiles == [HALF]:
        assert report.log_ratio > 0.9 * epsilon, str(report)


def renyi(first: Mapping[Any, float], second: Mapping[Any, float], order: float) -> float:
    return math.log(math.fsum(p**order * second[output] ** (1 - order) for output, p in first.items())) / (order - 1)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("quantiles", [[HALF], [MOST], SEVERAL[1], SEVERAL[3], SPENT], ids=str)
def test_zcdp_of_the_event(quantiles: list[Fraction], relation: Relation) -> None:
    """``epsilon**2 / (8 levels)`` bounds the Rényi divergence of every order, over its order."""
    levels = halving_levels(len(quantiles))
    public = PUBLIC if quantiles == SPENT else []
    cells, rows = (6, 1) if public else (3, 4)
    shares = []
    for epsilon in (Fraction(1, 2), Fraction(4)):
        rho = cost_of(quantile_event(epsilon, levels, relation)).rho
        assert rho == epsilon**2 / (8 * levels)
        laws = {
            table: quantile_law(
                [*public, *(row[0] for row in table)],
                cells,
                quantiles=quantiles,
                epsilon=epsilon,
                neighbours=relation,
            )
            for table in tables(domain(cells), rows)
        }
        for first, second in neighbouring_pairs(domain(cells), rows, relation):
            for one, other in ((first, second), (second, first)):
                for order in (1.001, 2.0, 8.0):
                    shares.append(renyi(laws[one], laws[other], order) / (order * float(rho)))
    assert max(shares) <= 1.0
    assert max(shares) > (0.1 if relation == "replace" else 0.3)
