"""``dp_best_subset`` on every small table: the largest log ratio against the claimed epsilon, from exact laws."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpsql.testing import check_exhaustively, check_sensitivity
from dpsql.testing.neighbours import RELATIONS, Relation, Row, Table
from support.cases import cases
from support.laws.best_subset import BestSubsetLaw

BOUNDS = {"lower": -1, "upper": 1, "target_lower": -1, "target_upper": 1}
# A row and its negative have the same products: targets >= 0 are all there is.
GRID: list[Row] = [(*x, y) for x in itertools.product((-1.0, -0.5, 0.0, 0.5, 1.0), repeat=2) for y in (0.0, 0.5, 1.0)]
SIGNS: list[Row] = [(*x, 1.0) for x in itertools.product((-1.0, 0.0, 1.0), repeat=3)]
ODD: list[Row] = [
    (1.0, -1.0, 0.5, -1.0),
    (None, math.nan, math.inf, 1.0),
    (1.0, -7.0, 1e300, math.inf),
    (1.0, 1.0, 1.0, None),
    (-1.0, 1.0, -1.0, math.nan),
    (1e-300, -5e-324, -math.inf, -0.5),
]
# Rows that pin both coefficients to 1, rows that only b fits, and one that a misses by as much as a row can.
PINNED: list[Row] = [(1.0, 1.0, 1.0), (0.0, 1.0, 1.0), (-1.0, 1.0, 1.0)]
METHODS: list[dict[str, Any]] = [
    {},
    {"method": "top_r", "list_size": 1},
    {"method": "top_r", "list_size": 2},
    {"method": "top_r", "gap": 0.5},
]
IDS = ["exact", "top 1", "top 2", "gap"]


def exact_scores(law: BestSubsetLaw) -> Callable[[Table], tuple[int, ...]]:
    """Return the scores of a table as a function: products of rows add up, and products decide."""
    products = functools.cache(lambda row: law.products((row,)))
    nothing = law.products(())
    known: dict[bytes, tuple[int, ...]] = {}

    @functools.cache
    def scores(table: Table) -> tuple[int, ...]:
        total = np.add.reduce([products(row) for row in table], axis=0) if table else nothing
        key = total.tobytes()
        if key not in known:
            known[key] = law.scores_of(total)
        return known[key]

    return scores


def worst(domain: list[Row], max_rows: int, relation: Relation, **arguments: Any) -> float:
    """Return the largest loss as a share of epsilon."""
    law = BestSubsetLaw("abc"[: len(domain[0]) - 1], neighbours=relation, **BOUNDS, **arguments)
    scores = exact_scores(law)
    report = check_exhaustively(lambda table: law.selection_law(scores(table)), domain, max_rows, relation, key=scores)
    assert report.within(law.plan.epsilon), str(report)
    return report.log_ratio / float(law.plan.epsilon)


def test_products_of_rows_add_up() -> None:
    law = BestSubsetLaw("abc", k=2, epsilon=1, intercept=True, **BOUNDS)
    for table in (tuple(SIGNS), tuple(ODD), (*ODD, *SIGNS[::3])):
        assert exact_scores(law)(table) == law.scores(table)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("method", METHODS[:2], ids=IDS[:2])
def test_loss_on_a_grid_stays_within_epsilon(method: dict[str, Any], relation: Relation) -> None:
    worst(GRID, 2, relation, k=1, epsilon=4, **method)


@cases("relation", RELATIONS)
@cases("method", METHODS, ids=IDS)
def test_loss_with_three_features_stays_within_epsilon(method: dict[str, Any], relation: Relation) -> None:
    for k, epsilon in ((1, 8), (2, 1)):
        worst(SIGNS, 2, relation, k=k, epsilon=epsilon, **method)


@cases("relation", RELATIONS)
@cases("method", METHODS, ids=IDS)
def test_loss_with_odd_values_stays_within_epsilon(method: dict[str, Any], relation: Relation) -> None:
    worst([*SIGNS[::4], *ODD], 3, relation, k=2, epsilon=2, **method)


@cases("relation", RELATIONS)
@cases("more", [{"radius": 5}, {"radius": 0.25}, {"ridge": 0.5}, {"intercept": True}], ids=str)
def test_loss_with_other_arguments_stays_within_epsilon(more: dict[str, Any], relation: Relation) -> None:
    worst(SIGNS, 2, relation, k=1, epsilon=3, **more)


@cases("method", [METHODS[0], METHODS[2]], ids=[IDS[0], IDS[2]])
@cases(
    ("relation", "domain", "max_rows", "tight"),
    [
        ("add_remove", PINNED, 20, 0.94),
        ("replace", [*PINNED, (1.0, -1.0, 1.0)], 12, 0.86),
        pytest.param("add_remove", PINNED, 30, 0.96, marks=pytest.mark.slow),
        pytest.param("replace", [*PINNED, (1.0, -1.0, 1.0)], 20, 0.93, marks=pytest.mark.slow),
    ],
)
def test_epsilon_is_nearly_used_up(
    method: dict[str, Any], relation: Relation, domain: list[Row], max_rows: int, tight: float
) -> None:
    """A mechanism far below its epsilon would be private, but not the one that is meant.

    All of it is used only in the limit of many rows: these pin the coefficients.
    """
    assert worst(domain, max_rows, relation, k=1, epsilon=8, radius=1, **method) > tight


@cases("relation", RELATIONS)
@cases("method", METHODS, ids=IDS)
def test_loss_of_a_unit_with_two_rows(method: dict[str, Any], relation: Relation) -> None:
    """Neighbours differ in all rows of one unit, which owns up to two."""
    units: list[Row] = [
        *((row,) for row in SIGNS[::2]),
        *itertools.combinations_with_replacement(SIGNS[::4], 2),
    ]
    law = BestSubsetLaw(
        "abc", k=1, epsilon=2, radius=3, neighbours=relation, privacy_unit="u", max_rows_per_unit=2, **BOUNDS, **method
    )
    of_rows = exact_scores(law)

    def scores(table: Table) -> tuple[int, ...]:
        return of_rows(tuple(itertools.chain.from_iterable(table)))

    report = check_exhaustively(lambda table: law.selection_law(scores(table)), units, 2, relation, key=scores)
    assert report.within(2), str(report)


@pytest.mark.parametrize("relation", RELATIONS)
def test_scores_move_by_no_more_than_the_range(relation: Relation) -> None:
    for more in ({"radius": 1}, {"radius": 3, "ridge": 2}, {"intercept": True}):
        law = BestSubsetLaw("ab", k=1, epsilon=1, neighbours=relation, **more, **BOUNDS)
        report = check_sensitivity(exact_scores(law), [*PINNED, (1.0, -1.0, 1.0)], 8, relation)
        assert report.range <= law.utility_range
        if more == {"radius": 1}:
            assert report.range > law.utility_range * 8 / 10


@pytest.mark.slow
@cases("relation", RELATIONS)
@cases("method", METHODS, ids=IDS)
def test_loss_on_larger_tables_stays_within_epsilon(method: dict[str, Any], relation: Relation) -> None:
    worst(SIGNS, 3, relation, k=1, epsilon=4, **method)
    worst(SIGNS, 3, relation, k=2, epsilon=4, **method)
    worst(GRID[::2], 3, relation, k=1, epsilon=4, **method)
