"""Private quantiles on every small table: the largest log ratio against the claimed epsilon, from exact laws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest

from dpsql.mechanisms.quantile import halving_levels, quantile_event
from dpsql.testing import check_exhaustively, neighbouring_pairs, tables
from dpsql.testing.exhaustive import ExhaustiveReport
from dpsql.testing.neighbours import RELATIONS, Relation, Row
from support.cases import cases
from support.laws.quantile import quantile_law

HALF, THIRD, MOST, NEARLY = Fraction(1, 2), Fraction(1, 3), Fraction(3, 4), Fraction(9, 10)
SINGLE = [HALF, MOST, NEARLY, THIRD]
SEVERAL = [
    [THIRD, Fraction(2, 3)],
    [Fraction(1, 4), HALF, MOST],
    [HALF, MOST, NEARLY],
    [Fraction(1, 10), HALF, NEARLY],
    [Fraction(9, 20), HALF, Fraction(11, 20)],
]
# A cell at the rank itself stays the best one, whatever the row. A row spends all of epsilon where so many empty
# cells beside it come nearer that they outweigh it: blocks of empty cells between the cells that rows are in.
BLOCK = 100
WIDE = [0, 1, BLOCK + 2, BLOCK + 3]
TWO_BLOCKS = [0, 1, 10, 11, 20, 21]


def domain(cells: Sequence[int]) -> list[Row]:
    return [*((cell,) for cell in cells), (None,)]


def worst(
    occupied: Sequence[int], max_rows: int, relation: Relation, *, public: Sequence[int] = (), **arguments: Any
) -> ExhaustiveReport:
    """Return the largest loss on the grid that ends with the last of the cells that rows may be in."""
    cells = occupied[-1] + 1
    report = check_exhaustively(
        lambda table: quantile_law([*public, *(row[0] for row in table)], cells, neighbours=relation, **arguments),
        domain(occupied),
        max_rows,
        relation,
    )
    assert report.within(arguments["epsilon"]), str(report)
    return report


@cases("epsilon", [Fraction(1, 2), Fraction(2), Fraction(8)])
@cases("relation", RELATIONS)
@cases("quantile", SINGLE)
def test_one_quantile_stays_within_epsilon(quantile: Fraction, relation: Relation, epsilon: Fraction) -> None:
    worst(range(3), 8, relation, quantiles=[quantile], epsilon=epsilon)


@cases("relation", RELATIONS)
@cases("quantile", [*SINGLE, Fraction(1, 10)])
def test_one_quantile_spends_epsilon_beside_empty_cells(quantile: Fraction, relation: Relation) -> None:
    # Far quantiles need more rows to be off by as much as a row can move them.
    public = {NEARLY: [0] * 8, Fraction(1, 10): [WIDE[-1]] * 8}.get(quantile, [])
    report = worst(WIDE, 4, relation, public=public, quantiles=[quantile], epsilon=Fraction(2))
    assert report.log_ratio > 2 * 0.985, str(report)


@cases("epsilon", [Fraction(1), Fraction(16)])
@cases("relation", RELATIONS)
@cases("quantiles", SEVERAL, ids=str)
def test_several_quantiles_stay_within_epsilon(
    quantiles: list[Fraction], relation: Relation, epsilon: Fraction
) -> None:
    worst(range(3), 6, relation, quantiles=quantiles, epsilon=epsilon)
    worst(range(4), 5, relation, quantiles=quantiles, epsilon=epsilon)


def test_two_levels_spend_most_of_epsilon() -> None:
    quartiles = [Fraction(1, 4), HALF, MOST]
    report = worst(TWO_BLOCKS, 4, "add_remove", quantiles=quartiles, epsilon=Fraction(1))
    assert report.log_ratio > 0.95, str(report)
    report = worst(TWO_BLOCKS, 4, "replace", quantiles=quartiles, epsilon=Fraction(1))
    assert report.log_ratio > 0.87, str(report)


@pytest.mark.slow
@cases("relation", RELATIONS)
@cases("quantiles", SEVERAL, ids=str)
def test_larger_tables_stay_within_epsilon(quantiles: list[Fraction], relation: Relation) -> None:
    worst(range(4), 8, relation, quantiles=quantiles, epsilon=Fraction(12))
    worst(TWO_BLOCKS, 5, relation, quantiles=quantiles, epsilon=Fraction(1))


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_three_levels_stay_within_epsilon(relation: Relation) -> None:
    quantiles = [Fraction(number, 10) for number in (1, 2, 3, 5, 6, 8)]
    worst(range(3), 6, relation, quantiles=quantiles, epsilon=Fraction(6))


@cases("relation", RELATIONS)
@cases("quantiles", [[HALF], [MOST], SEVERAL[2], SEVERAL[4]], ids=str)
def test_a_unit_with_two_rows_stays_within_epsilon(quantiles: list[Fraction], relation: Relation) -> None:
    """Neighbours differ in all rows of one unit, which owns up to two."""
    cells = WIDE if len(quantiles) == 1 else range(3)
    units: list[Row] = [*((cell,) for cell in cells), *itertools.combinations_with_replacement(cells, 2)]
    epsilon = Fraction(2 if len(quantiles) == 1 else 8)
    report = check_exhaustively(
        lambda table: quantile_law(
            list(itertools.chain.from_iterable(table)),
            cells[-1] + 1,
            quantiles=quantiles,
            epsilon=epsilon,
            neighbours=relation,
            max_rows_per_unit=2,
        ),
        units,
        3 if len(quantiles) == 1 else 4,
        relation,
        key=lambda table: tuple(sorted(itertools.chain.from_iterable(table))),
    )
    assert report.within(epsilon), str(report)
    if quantiles == [HALF]:
        assert report.log_ratio > 0.95 * epsilon, str(report)


def renyi(first: Mapping[Any, float], second: Mapping[Any, float], order: float) -> float:
    return math.log(math.fsum(p**order * second[output] ** (1 - order) for output, p in first.items())) / (order - 1)


@cases("relation", RELATIONS)
@cases("quantiles", [[HALF], [MOST], SEVERAL[1], SEVERAL[3]], ids=str)
def test_zcdp_of_the_event(quantiles: list[Fraction], relation: Relation) -> None:
    """``epsilon**2 / (8 levels)`` bounds the Rényi divergence of every order, over its order."""
    levels = halving_levels(len(quantiles))
    cells, rows = (WIDE, 3) if len(quantiles) == 1 else (TWO_BLOCKS, 2)
    shares = []
    for epsilon in (Fraction(1, 2), Fraction(4)):
        rho = quantile_event(epsilon, levels, relation).cost.rho
        assert rho == epsilon**2 / (8 * levels)
        laws = {
            table: quantile_law(
                [row[0] for row in table],
                cells[-1] + 1,
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
