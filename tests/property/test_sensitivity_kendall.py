"""Sensitivities of `dpsql/statistics/kendall.py`: exhaustive on small domains, random, and attained."""

from __future__ import annotations

import itertools
import math
import random
import zlib
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.errors import ParameterError
from dpsql.kernels.kendall import RankedTable
from dpsql.statistics.kendall import exact_utilities, scaled_tau, utility_range
from dpsql.testing import check_sensitivity, neighbouring_pairs, random_pairs
from dpsql.testing.neighbours import RELATIONS, Relation, Table
from support.cases import cases

# A row is (target, features..., block); the block goes with the row.
FEATURES = 4


def ranked(table: Table, blocked: bool) -> RankedTable:
    columns = np.array([row[: FEATURES + 1] for row in table], dtype=float).reshape(len(table), FEATURES + 1).T
    blocks = np.array([row[-1] for row in table], dtype=np.int32)
    return RankedTable(columns, blocks if blocked else None)


def utilities(table: Table, selected: Sequence[int] = (), blocked: bool = False) -> list[Fraction]:
    """Return the utility of every feature that is not selected yet, along the product's own path."""
    pairs = ranked(table, blocked)
    rest = [j for j in range(1, FEATURES + 1) if j not in selected]
    scores = [pairs.scores(base, rest) for base in (0, *selected)]
    values, unit = exact_utilities(scores[0], scores[1:], pairs.sizes)
    return [Fraction(int(value), unit) for value in values]


def taus(table: Table, blocked: bool = False) -> list[Fraction]:
    return utilities(table, (), blocked)


def changes(first: Table, second: Table, selected: Sequence[int] = (), blocked: bool = False) -> list[Fraction]:
    before, after = utilities(first, selected, blocked), utilities(second, selected, blocked)
    return [b - a for a, b in zip(before, after, strict=True)]


def spread(moves: Sequence[Fraction]) -> Fraction:
    return max(moves) - min(moves)


def slow_tau(x: Sequence[Any], y: Sequence[Any]) -> Fraction:
    def sign(a: Any, b: Any) -> int:
        return 0 if None in (a, b) else (a > b) - (a < b)

    pairs = itertools.combinations(range(len(x)), 2)
    score = sum(sign(x[i], x[j]) * sign(y[i], y[j]) for i, j in pairs)
    return Fraction(score, max(1, len(x) - 1))


# --- what the statistic is


@cases("blocked", [False, True], quick=3)
@cases("selected", [(), (2,), (2, 4)])
def test_utilities_are_the_definition(blocked: bool, selected: tuple[int, ...]) -> None:
    draw = random.Random(3)
    for rows in (0, 1, 2, 3, 9):
        for _ in range(20):
            table = tuple(
                (*(draw.choice([None, -1.0, 0.0, 0.5, 2.0]) for _ in range(FEATURES + 1)), draw.randrange(3))
                for _ in range(rows)
            )
            parts = [[row for row in table if row[-1] == block] for block in range(3)] if blocked else [table]

            def tau(i: int, j: int, parts: Any = parts) -> Fraction:
                return abs(sum((slow_tau([r[i] for r in part], [r[j] for r in part]) for part in parts), Fraction(0)))

            expected = [
                tau(0, j) - sum((tau(s, j) for s in selected), Fraction(0)) / max(1, len(selected))
                for j in range(1, FEATURES + 1)
                if j not in selected
            ]
            assert utilities(table, selected, blocked) == expected


def test_one_block_has_a_plain_unit() -> None:
    scores = np.array([[5, -3, 0]])
    assert exact_utilities(scores, [], np.array([7]))[1] == 6
    values, unit = exact_utilities(scores, [scores, -scores, scores], np.array([7]))
    assert (values.tolist(), unit) == ([0, 0, 0], 18)
    for size in (0, 1):
        assert [int(v) for v in exact_utilities(0 * scores, [], np.array([size]))[0]] == [0, 0, 0]


def test_large_tables_do_not_overflow() -> None:
    rows = 10**9
    score = rows * (rows - 1) // 2
    values, unit = exact_utilities(np.array([[score]]), [np.array([[-score]])] * 3, np.array([rows]))
    assert (values.tolist(), unit) == ([0], 3 * (rows - 1))
    values, unit = exact_utilities(np.array([[score], [score]]), [], np.array([rows, rows]))
    assert Fraction(values[0], unit) == rows


def test_many_sizes_of_blocks() -> None:
    draw = np.random.default_rng(0)
    sizes = draw.integers(0, 300, 2000)
    scores = draw.integers(-1000, 1000, (2000, 3))
    numerators, denominator = scaled_tau(scores, sizes)
    for j in range(3):
        terms = [Fraction(int(s), int(n) - 1) for s, n in zip(scores[:, j], sizes, strict=True) if n > 1]
        assert Fraction(numerators[j], denominator) == sum(terms, Fraction(0))
    assert denominator == math.lcm(*(int(n) - 1 for n in sizes if n > 1))


# --- bounds


@pytest.mark.long
def test_an_added_row_moves_tau_within_its_interval() -> None:
    """|tau| rises by at most 1 and falls by at most 3/2; both are reached."""
    domain = [(float(y), float(x), 0.0, 0.0, 0.0, 0) for y in range(4) for x in range(4)]
    domain += [(math.nan, 1.0, 0.0, 0.0, 0.0, 0)]
    moves = [changes(first, second)[0] for first, second in neighbouring_pairs(domain, 2, "add_remove")]
    draw = random.Random(8)
    for _ in range(600):
        table = tuple(draw.choices(domain, k=draw.randrange(12)))
        moves.append(changes(table, (*table, draw.choice(domain)))[0])
    row = np.arange(5.0)
    falling = tuple((x, x, 0.0, 0.0, 0.0, 0) for x in row)
    moves.append(changes(falling, (*falling, (9.0, -1.0, 0.0, 0.0, 0.0, 0)))[0])
    assert max(moves) == 1
    assert min(moves) == Fraction(-3, 2)


@pytest.mark.long
@cases("relation", RELATIONS, quick=1)
@cases("blocked", [False, True])
def test_random_neighbours_stay_in_range(relation: Relation, blocked: bool) -> None:
    draw = random.Random(5)
    for first, second in random_pairs(11, relation, columns=FEATURES + 1, count=200, max_rows=14):
        with_blocks = [tuple((*row, zlib.crc32(repr(row).encode()) % 3) for row in table) for table in (first, second)]
        for selected in ((), (1,), tuple(draw.sample(range(1, FEATURES + 1), 2))):
            limit = utility_range(relation, first=not selected, blocked=blocked)
            assert spread(changes(*with_blocks, selected, blocked)) <= limit


@pytest.mark.long
@cases("relation", RELATIONS, quick=1)
@cases("blocked", [False, True])
def test_small_domain_exhaustively(relation: Relation, blocked: bool) -> None:
    values = [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)]
    domain = [
        (y, a, b, b, 1 - a, block) for y, a in values for b in (0.0, 1.0) for block in ((0, 1) if blocked else (0,))
    ]
    for selected in ((), (3,)):
        report = check_sensitivity(lambda t, s=selected: utilities(t, s, blocked), domain, 3, relation)
        assert report.range <= utility_range(relation, first=not selected, blocked=blocked)


@pytest.mark.long
@cases("relation", RELATIONS, quick=1)
@cases("blocked", [False, True])
@cases("rows", [2, 3])
def test_units_of_several_rows(relation: Relation, blocked: bool, rows: int) -> None:
    """A unit of up to `rows` rows comes, goes, or is replaced by one with another number of rows."""
    draw = random.Random(rows)

    def row() -> tuple[Any, ...]:
        return (*(draw.randrange(6) for _ in range(FEATURES + 1)), draw.randrange(2))

    for _ in range(150):
        base = [row() for _ in range(draw.randrange(12))]
        first, second = ([*base, *(row() for _ in range(draw.randint(1, rows)))] for _ in range(2))
        if relation == "add_remove":
            second = base
        for selected in ((), (1,)):
            limit = utility_range(relation, first=not selected, blocked=blocked, max_rows_per_unit=rows)
            assert spread(changes(tuple(first), tuple(second), selected, blocked)) <= limit


# --- the bounds are attained, so smaller constants would be wrong

LOW, HIGH = -99.0, 99.0
ORDER = [0.0, 1.0, 2.0, 3.0]
PLAIN = tuple(zip(*[ORDER] * 5, [0] * 4, strict=True))


def test_first_round_add_remove() -> None:
    """Feature 1 agrees with the target until the new row denies it; feature 2 is constant until it agrees."""
    table = tuple((y, y, 0.0, 0.0, 0.0, 0) for y in ORDER)
    moves = changes(table, (*table, (HIGH, LOW, HIGH, 0.0, 0.0, 0)))
    assert moves[:2] == [Fraction(-3, 2), 1]
    assert spread(moves) == utility_range("add_remove", first=True, blocked=False) == Fraction(5, 2)


@pytest.mark.parametrize("length", [4, 41])
def test_later_round_add_remove(length: int) -> None:
    """Features 1 and 3 agree, and so do 2 and the target, until the new row denies both; 3 is selected."""
    order = [float(i) for i in range(length)]
    table = tuple((y, s, y, s, 0.0, 0) for y, s in zip(order, halfway(length), strict=True))
    moves = changes(table, (*table, (HIGH, HIGH, LOW, LOW, 0.0, 0)), selected=(3,))
    assert moves[:2] == [Fraction(5, 2), Fraction(-5, 2)]
    assert spread(moves) == utility_range("add_remove", first=False, blocked=False) == 5


def halfway(length: int) -> list[float]:
    """Return a permutation of which half the pairs are inversions: greedy, largest shifts first."""
    left, out = length * (length - 1) // 4, list(range(length))
    for i in range(length):
        step = min(left, length - 1 - i)
        out.insert(i, out.pop(i + step))
        left -= step
    return [float(v) for v in out]


def test_first_round_replace() -> None:
    first = (*PLAIN, (HIGH, LOW, HIGH, 0.0, 0.0, 0))
    second = (*PLAIN, (HIGH, HIGH, LOW, 0.0, 0.0, 0))
    moves = changes(first, second)
    assert moves[:2] == [2, -2]
    assert spread(moves) == utility_range("replace", first=True, blocked=False) == 4


def test_later_round_replace() -> None:
    first = (*PLAIN, (HIGH, LOW, HIGH, LOW, 0.0, 0))
    second = (*PLAIN, (HIGH, HIGH, LOW, LOW, 0.0, 0))
    moves = changes(first, second, selected=(3,))
    assert moves[:2] == [4, -4]
    assert spread(moves) == utility_range("replace", first=False, blocked=False) == 8


def block(number: int, signs: Sequence[int], length: int = 4) -> tuple[Any, ...]:
    """Return rows where each column rises or falls with the target."""
    return tuple((float(i), *(float(i * sign) for sign in signs), number) for i in range(length))


AGREEING = block(0, (1, 1, 1, 1), 30)  # gives every sum of blocks its sign


def test_first_round_blocks_add_remove() -> None:
    table = (*AGREEING, *block(1, (-1, 1, 1, 1)))
    moves = changes(table, (*table, (HIGH, HIGH, LOW, 0.0, 0.0, 1)), blocked=True)
    assert moves[:2] == [Fraction(3, 2), Fraction(-3, 2)]
    assert spread(moves) == utility_range("add_remove", first=True, blocked=True) == 3


def test_later_round_blocks_add_remove() -> None:
    table = (*AGREEING, *block(1, (-1, 1, -1, 1)))
    moves = changes(table, (*table, (HIGH, HIGH, LOW, LOW, 0.0, 1)), selected=(3,), blocked=True)
    assert moves[:2] == [3, -3]
    assert spread(moves) == utility_range("add_remove", first=False, blocked=True) == 6


@pytest.mark.parametrize(("selected", "limit"), [((), 6), ((3,), 12)])
def test_blocks_replace(selected: tuple[int, ...], limit: int) -> None:
    """A replaced row leaves one block and enters another: more than the 4 and 8 of a single block."""
    base = (*AGREEING, *block(1, (1, -1, -1, 1)), *block(2, (-1, 1, -1, 1)))
    first = (*base, (HIGH, LOW, HIGH, LOW, 0.0, 1))
    second = (*base, (HIGH, HIGH, LOW, LOW, 0.0, 2))
    moves = changes(first, second, selected, blocked=True)
    assert spread(moves) == utility_range("replace", first=not selected, blocked=True) == limit
    assert limit > utility_range("replace", first=not selected, blocked=False)


def test_ranges_of_units_are_multiples() -> None:
    for relation, first, blocked in itertools.product(RELATIONS, (True, False), (True, False)):
        one = utility_range(relation, first=first, blocked=blocked)
        assert utility_range(relation, first=first, blocked=blocked, max_rows_per_unit=3) == 3 * one
    with pytest.raises(ParameterError, match="P018"):
        utility_range("swap", first=True, blocked=False)


def test_tau_b_has_no_bound() -> None:
    """The usual coefficient with ties, times n/2, moves by the order of n: not fit for a release."""
    from scipy.stats import kendalltau

    def move(n: int) -> float:
        x, y = np.zeros((2, n + 1))
        x[:2] = y[:1] = 1  # the row added last stands second
        rest = np.arange(n + 1) != 1
        before = n / 2 * kendalltau(x[rest], y[rest]).statistic
        after = (n + 1) / 2 * kendalltau(x, y).statistic
        mine = [
            abs(Fraction(int(RankedTable([x[keep], y[keep]]).scores(0, [1])[0, 0]), int(keep.sum()) - 1))
            for keep in (rest, rest | True)
        ]
        assert -Fraction(3, 2) <= mine[1] - mine[0] <= 1
        return float(before - after)

    assert [move(n) for n in (10, 100, 1000)] == pytest.approx([1.3, 14.5, 146], rel=0.02)
