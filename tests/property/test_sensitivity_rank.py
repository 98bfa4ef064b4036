"""Ranges of `dpsql/statistics/rank_scores.py`: exhaustive on small domains, random, and attained."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.contract.fold import Batch
from dpsql.contract.relation import relation_of
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.statistics.rank_scores import RankScores, rank_spread, released_sensitivity
from dpsql.testing.neighbours import Table
from support.cases import cases

NAN = math.nan
LOW, OTHER, HIGH = -float(FIXED_POINT_ONE), 0.0, float(FIXED_POINT_ONE)


def scores(table: Table, width: int, *, two_levels: bool) -> list[Fraction]:
    """Return ``|tau|`` of every feature, along the product's own path; the target is a row's last value."""
    collected = RankScores(width, two_levels=two_levels)
    for row in table:
        columns = np.array([[NAN if value is None else value] for value in row])
        collected.add(columns[-1], columns[:-1], Batch())
    relation = relation_of("add_remove")
    utilities, spread = collected.utilities(relation, lambda share: None)
    return [Fraction(int(one)) * collected.spread(relation) / spread for one in utilities]


def moved(first: Table, second: Table, *, two_levels: bool) -> Fraction:
    """Return how far a neighbour moves two scores apart."""
    width = len((*first, *second)[0]) - 1
    before, after = (scores(table, width, two_levels=two_levels) for table in (first, second))
    moves = [b - a for a, b in zip(before, after, strict=True)]
    return max(moves) - min(moves)


def all_taus(target: Sequence[float], columns: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return ``|S|`` of the target with every column, pair by pair; missing values tie."""
    total = np.zeros(columns.shape[1], dtype=np.int64)
    for i, j in itertools.combinations(range(len(target)), 2):
        with np.errstate(invalid="ignore"):
            sign = np.nan_to_num(np.sign(columns[i] - columns[j]))
        total += (sign * np.nan_to_num(np.sign(target[i] - target[j]))).astype(np.int64)
    return np.abs(total)


def largest_spread(rows: int, levels: Sequence[float]) -> tuple[Fraction, Fraction, Fraction]:
    """Return the least and largest change of ``|tau|``, and the spread, by a row added to some: every target and column.

    Columns take every order with ties and missing values, independently of each other, so the largest spread for a
    target is that of the two columns that move most.
    """
    values = [*map(float, range(min(rows + 1, 5))), NAN]
    columns = np.array(list(itertools.product(values, repeat=rows + 1))).T
    least, most, spread = Fraction(0), Fraction(0), Fraction(0)
    for before in itertools.combinations_with_replacement(levels, rows):
        old = all_taus(before, columns[:rows])
        for added in levels:
            # Over one denominator: tau after is new / rows, and before it was old / (rows - 1).
            moves = all_taus((*before, added), columns) * max(1, rows - 1) - old * max(1, rows)
            low, high = (Fraction(int(end), max(1, rows) * max(1, rows - 1)) for end in (moves.min(), moves.max()))
            least, most, spread = min(least, low), max(most, high), max(spread, high - low)
    return least, most, spread


@cases("rows", range(6), quick=3)
def test_two_levels_stay_within_two(rows: int) -> None:
    """Every table of up to five rows, and every row more, with ties and missing values in both."""
    least, most, spread = largest_spread(rows, (LOW, HIGH, NAN))
    assert least >= -1
    assert most <= 1
    assert spread == (min(rows, 1) if rows < 2 else 1 + Fraction(rows - 1, rows))


def test_a_third_level_between_the_two_needs_more() -> None:
    """Coded as 0 in place of missing: the planted fault."""
    assert largest_spread(4, (LOW, OTHER, HIGH)) == (-Fraction(4, 3), 1, Fraction(7, 3))


def family(zeros: int) -> tuple[Table, Table]:
    """One row of the second level among many of the first; one feature follows it, another is constant."""
    table = ((0.0, 1.0, HIGH), *((0.0, 0.0, LOW),) * zeros)
    return table, (*table, (1.0, -1.0, HIGH))


def test_the_range_of_two_levels_is_approached() -> None:
    for zeros in (4, 59):
        assert moved(*family(zeros), two_levels=True) == 1 + Fraction(zeros, zeros + 1)
    assert float(moved(*family(59), two_levels=True)) == pytest.approx(1.983, abs=5e-4)


def test_the_range_of_a_numeric_target_is_attained() -> None:
    table = tuple((float(i), 0.0, float(i)) for i in range(5))
    assert moved(table, (*table, (-99.0, 1.0, 99.0)), two_levels=False) == Fraction(5, 2)


def test_three_levels_pass_two() -> None:
    """The same table breaks the range 2 if its third value is a level, and not if it is missing."""
    table = ((1.0, 0.0, LOW), (1.0, 0.0, LOW), (0.0, 0.0, OTHER), (0.0, 0.0, OTHER))
    more = (*table, (2.0, 1.0, HIGH))
    assert moved(table, more, two_levels=False) == Fraction(7, 3)
    assert moved(table, more, two_levels=True) <= 2


def test_two_levels_under_replace_pass_two() -> None:
    """A replaced row moves two scores up to 4 apart in the limit, so two levels get no discount there."""
    shared = ((-1.0, 1.0, HIGH), *((0.0, 0.0, LOW),) * 60)
    spread = moved((*shared, (-1.0, -1.0, HIGH)), (*shared, (1.0, 1.0, HIGH)), two_levels=True)
    assert float(spread) == pytest.approx(3.934, abs=5e-4)
    assert spread <= rank_spread(relation_of("replace"), two_levels=True)


def random_table(draw: random.Random, rows: int) -> Table:
    return tuple(random_row(draw) for _ in range(rows))


def random_row(draw: random.Random) -> tuple[float | None, ...]:
    values = (None, NAN, -0.0, 0.0, 1.0, 2.0, 3.0, math.inf, -math.inf)
    return (*(draw.choice(values) for _ in range(4)), draw.choice((LOW, LOW, HIGH, HIGH, OTHER, NAN)))


@cases("neighbours", ["add_remove", "replace"], quick=1)
@cases("two_levels", [True, False])
@cases("unit", [1, 3])
def test_random_neighbours_stay_in_range(neighbours: str, two_levels: bool, unit: int) -> None:
    draw = random.Random(9)
    limit = rank_spread(relation_of(neighbours, unit), two_levels=two_levels)
    for _ in range(250):
        shared = random_table(draw, draw.randrange(10))
        one = random_table(draw, draw.randint(1, unit))
        other = random_table(draw, draw.randint(1, unit)) if neighbours == "replace" else ()
        assert moved((*shared, *one), (*shared, *other), two_levels=two_levels) <= limit


@pytest.mark.parametrize(
    ("neighbours", "two_levels", "expected"),
    [
        ("add_remove", True, Fraction(2)),
        ("add_remove", False, Fraction(5, 2)),
        ("replace", True, Fraction(4)),
        ("replace", False, Fraction(4)),
    ],
)
def test_the_table_of_ranges(neighbours: str, two_levels: bool, expected: Fraction) -> None:
    for unit in (1, 3):
        assert rank_spread(relation_of(neighbours, unit), two_levels=two_levels) == unit * expected


def test_no_rows_and_one_row_score_nothing() -> None:
    for table in ((), ((1.0, 2.0, HIGH),)):
        assert scores(table, 2, two_levels=True) == [0, 0]


def test_copies_merge_to_the_same_scores() -> None:
    table = random_table(random.Random(3), 30)
    whole, parts = (RankScores(4, two_levels=True) for _ in range(2))
    columns = np.array([[NAN if value is None else value for value in row] for row in table]).T
    whole.add(columns[-1], columns[:-1], Batch())
    for start in (20, 0, 10):
        part = parts.zero()
        part.add(columns[-1, start : start + 10], columns[:-1, start : start + 10], Batch())
        parts.merge(part)
    results = [one.utilities(relation_of("add_remove"), lambda share: None) for one in (whole, parts)]
    assert results[0][0].tolist() == results[1][0].tolist()
    assert results[0][1] == results[1][1] == 2 * 2 * 29


def vector(table: Table, width: int, *, two_levels: bool, bits: int) -> list[int]:
    """Return what `RankScoreNoise` adds noise to, for all features: rounded scores, and the number of rows."""
    rounded = [
        math.floor(score * (1 << bits) + Fraction(1, 2)) for score in scores(table, width, two_levels=two_levels)
    ]
    return [*rounded, len(table) << bits]


@cases("neighbours", ["add_remove", "replace"], quick=1)
@cases("two_levels", [True, False])
@cases("unit", [1, 3])
def test_released_scores_of_random_neighbours_stay_within_their_sensitivity(
    neighbours: str, two_levels: bool, unit: int
) -> None:
    """Units are replaced by smaller ones, too, also by none, so that the number of rows is private throughout."""
    draw = random.Random(10)
    relation = relation_of(neighbours, unit)
    for number in range(250):
        bits = (20, 1, 0)[number % 3]
        shared = random_table(draw, draw.randrange(10))
        one = random_table(draw, draw.randint(1, unit))
        other = random_table(draw, draw.randint(0, unit)) if neighbours == "replace" else ()
        before, after = (vector((*shared, *part), 4, two_levels=two_levels, bits=bits) for part in (one, other))
        *moves, rows = (abs(b - a) for a, b in zip(before, after, strict=True))
        for k in (1, 4):
            limit = released_sensitivity(relation, k, two_levels=two_levels, bits=bits)
            assert sum(sorted(moves)[-k:]) + rows <= limit


@pytest.mark.parametrize("k", [1, 3])
def test_the_sensitivity_of_released_scores_is_attained(k: int) -> None:
    """One row that denies what all others follow; under replace, one that had been at the other end in the limit."""
    table = tuple((*(float(i),) * k, float(i)) for i in range(6))
    more = (*table, (*(-1.0,) * k, 99.0))
    before, after = (vector(one, k, two_levels=False, bits=20) for one in (table, more))
    moved_by = sum(abs(b - a) for a, b in zip(before, after, strict=True))
    assert moved_by == released_sensitivity(relation_of("add_remove"), k, two_levels=False, bits=20)
    assert moved_by > k * (1 << 20) + (1 << 20), "that of two levels is too small here"
    turned = (*table[:-1], (*(-1.0,) * k, 5.0))
    moved_by = sum(abs(b - a) for a, b in zip(before, vector(turned, k, two_levels=False, bits=20), strict=True))
    assert moved_by == 2 * k << 20
    assert moved_by <= released_sensitivity(relation_of("replace"), k, two_levels=False, bits=20)
