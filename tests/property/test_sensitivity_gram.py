"""The sensitivity of best-subset scores on random neighbouring tables, and where it is attained."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

from dpsql.kernels.ball_least_squares import SCORE_UNIT, SCORE_WIDTH, BallLeastSquares
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, quantise
from dpsql.kernels.gram import gram_products
from dpsql.statistics.regression import score_sensitivity, utility_range
from dpsql.testing import random_pairs
from dpsql.testing.neighbours import RELATIONS, Relation, Table
from support.cases import cases

COLUMNS = 4
PROBLEMS = [
    (Fraction(radius), Fraction(ridge), forced)
    for radius in ("1/5", "11/10", "4")
    for ridge in ("0", "7/3")
    for forced in (0, 1)
]


def scores(table: Table, size: int, radius: Fraction, ridge: Fraction, forced: int) -> np.ndarray:
    """Return the scores of all subsets, in units of 1; the target is the last column."""
    values = np.array([[math.nan if value is None else value for value in row] for row in table], dtype=np.float64)
    rows = quantise(values.reshape(len(table), COLUMNS + 1), 0.0, float(FIXED_POINT_ONE))
    if forced:
        rows = np.column_stack((np.full(len(rows), float(FIXED_POINT_ONE)), rows))
    products = gram_products(rows)
    problem = BallLeastSquares(
        products[:-1, :-1], products[:-1, -1], int(products[-1, -1]), radius=radius, ridge=ridge, forced=forced
    )
    return problem.scores(list(combinations(range(COLUMNS), size))) * float(SCORE_UNIT)


@cases("size", [1, 2, 3], quick=4)
@cases(("radius", "ridge", "forced"), PROBLEMS)
def test_a_row_raises_every_score_by_at_most_delta(size: int, radius: Fraction, ridge: Fraction, forced: int) -> None:
    delta, width = score_sensitivity(size + forced, radius), SCORE_WIDTH
    for pair in random_pairs(size, "add_remove", columns=COLUMNS + 1, count=40):
        first, second = sorted(pair, key=len)
        changes = scores(second, size, radius, ridge, forced) - scores(first, size, radius, ridge, forced)
        assert changes.min() >= -width
        assert changes.max() <= delta + width
        assert changes.max() - changes.min() <= utility_range("add_remove", size + forced, radius, width=width)


@cases("size", [1, 2, 3], quick=5)
@cases(("radius", "ridge", "forced"), PROBLEMS)
def test_a_replaced_row_moves_scores_by_at_most_delta(
    size: int, radius: Fraction, ridge: Fraction, forced: int
) -> None:
    delta, width = score_sensitivity(size + forced, radius), SCORE_WIDTH
    for first, second in random_pairs(size, "replace", columns=COLUMNS + 1, count=40):
        changes = scores(second, size, radius, ridge, forced) - scores(first, size, radius, ridge, forced)
        assert abs(changes).max() <= delta + width
        assert changes.max() - changes.min() <= utility_range("replace", size + forced, radius, width=width)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("rows", [2, 3])
def test_units_of_several_rows(relation: Relation, rows: int) -> None:
    """A unit's rows go, or go and come back as other rows, perhaps fewer."""
    generator = random.Random(rows)
    radius = Fraction(11, 10)
    for _ in range(60):
        base = [tuple(generator.uniform(-1, 1) for _ in range(COLUMNS + 1)) for _ in range(generator.randrange(5))]
        old, new = (
            [
                tuple(generator.choice((-1.0, 1.0)) for _ in range(COLUMNS + 1))
                for _ in range(generator.randint(1, rows))
            ]
            for _ in range(2)
        )
        first, second = tuple(base + old), tuple(base + new if relation == "replace" else base)
        changes = scores(second, 2, radius, Fraction(0), 0) - scores(first, 2, radius, Fraction(0), 0)
        assert abs(changes).max() <= rows * score_sensitivity(2, radius) + SCORE_WIDTH
        assert changes.max() - changes.min() <= utility_range(
            relation, 2, radius, width=SCORE_WIDTH, max_rows_per_unit=rows
        )


@pytest.mark.long
def test_delta_is_attained() -> None:
    """One row against a fit that many rows hold in place: (1 + 1.1 sqrt 2)^2 = 6.5313."""
    radius, opposite = Fraction(11, 10), (1.0, 1.0, 0.0, 0.0, -1.0)
    delta = float(score_sensitivity(2, radius))
    assert delta == pytest.approx(6.5313, abs=5e-5)
    held = tuple((x, y, 0.0, 0.0, 1.0) for x, y in ((1.0, 0.0), (0.0, 1.0))) * 100_000
    before = scores(held, 2, radius, Fraction(0), 0)[0]
    after = scores((*held, opposite), 2, radius, Fraction(0), 0)[0]
    assert 0.9999 * delta < after - before <= delta


@pytest.mark.long
def test_the_replaced_range_is_nearly_attained() -> None:
    """One subset's score rises by almost Delta while another's falls by as much: both directions count."""
    radius = Fraction(11, 10)
    held = tuple((x, y, z, w, 1.0) for x, y, z, w in np.eye(4).tolist()) * 50_000
    first = (*held, (1.0, 1.0, -1.0, -1.0, 1.0))
    second = (*held, (-1.0, -1.0, 1.0, 1.0, 1.0))
    changes = scores(second, 2, radius, Fraction(0), 0) - scores(first, 2, radius, Fraction(0), 0)
    assert changes.max() - changes.min() > 0.9 * 2 * ((1 + 1.1 * 2**0.5) ** 2 - (1 - 1.1 * 2**0.5) ** 2)


@pytest.mark.long
def test_without_the_ball_nothing_bounds_the_change() -> None:
    """A column that is almost 0 makes the coefficients, and the new row's residual, as large as one likes."""
    radius = Fraction(1000)
    small = 1e-3
    held = ((small, 0.0, 0.0, 0.0, 1.0),) * 100_000
    far = (-1.0, 0.0, 0.0, 0.0, 1.0)
    changes = scores((*held, far), 1, radius, Fraction(0), 0) - scores(held, 1, radius, Fraction(0), 0)
    assert changes[0] > 1000 * float(score_sensitivity(1, Fraction(1)))
    within = scores((*held, far), 1, Fraction(1), Fraction(0), 0) - scores(held, 1, Fraction(1), Fraction(0), 0)
    assert within[0] <= score_sensitivity(1, Fraction(1))


@pytest.mark.parametrize("wrong", [0.7, 0.95])
def test_a_smaller_constant_is_refuted(wrong: float) -> None:
    radius = Fraction(1)
    held = ((1.0, 0.0, 0.0, 0.0, 1.0),) * 1000
    for constant, refuted in ((wrong, True), (1.0, False)):
        change = scores((*held, (1.0, 0.0, 0.0, 0.0, -1.0)), 1, radius, Fraction(0), 0)[0]
        change -= scores(held, 1, radius, Fraction(0), 0)[0]
        assert (change > constant * score_sensitivity(1, radius)) == refuted


@cases("radius", ["1/7", "1", "11/10", "1000001/3"])
@cases("size", [1, 2, 3, 4, 17])
def test_delta_is_rounded_up_a_little(size: int, radius: str) -> None:
    value = Fraction(radius)
    delta = score_sensitivity(size, value)
    # delta >= (1 + r sqrt s)^2 without roots: (delta - 1 - r^2 s)^2 >= 4 r^2 s.
    for value_tested, above in ((delta, True), (delta - Fraction(1, 1 << 60), False)):
        assert ((value_tested - 1 - value**2 * size) ** 2 >= 4 * value**2 * size) == above
    if math.isqrt(size) ** 2 == size:
        assert delta == (1 + value * math.isqrt(size)) ** 2


@pytest.mark.parametrize("relation", RELATIONS)
def test_scores_known_within_a_width_move_apart_by_two_widths_more(relation: Relation) -> None:
    """Two scores, on two tables, each between the exact one and a width above it."""
    width = Fraction(1, 8)
    exact, known = (utility_range(relation, 2, Fraction(1), width=wide) for wide in (Fraction(0), width))
    errors = product((Fraction(0), width), repeat=4)
    assert known == exact + max((first - other) - (second - last) for first, second, other, last in errors)
