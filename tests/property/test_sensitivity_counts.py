"""How far one privacy unit moves counts per cell, and the utility of every cell: exactly, and on random tables."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.contract.measurement import Permit, measurement_of
from dpsql.errors import ParameterError
from dpsql.functions.registry import function_of
from dpsql.kernels.cells import ZERO_FINE, GridCounts, MagnitudeCounts
from dpsql.mechanisms import quantile as mechanism
from dpsql.mechanisms.quantile import GroupQuantileSelection
from dpsql.mechanisms.rank_counts import RankCounts, bins_between, cuts_around
from dpsql.statistics.counts import l1_sensitivity, rank_utility_range, squared_l2_sensitivity
from dpsql.testing import check_sensitivity, neighbouring_pairs, random_pairs, random_unit_pairs
from dpsql.testing.neighbours import RELATIONS, Relation, Row, Table
from support.cases import cases

# NULL, cells apart and together, both signs, zero.
ROWS: list[Row] = [(None,), (math.nan,), (0.0,), (-3.0,), (3.0,), (3.1,), (math.inf,)]
QUANTILES = [Fraction(1, 2), Fraction(1, 3), Fraction(3, 4), Fraction(9, 10), Fraction(1, 100)]


def values(table: Table) -> np.ndarray:
    return np.array([math.nan if row[-1] is None else row[-1] for row in table], dtype=np.float64)


def histograms(table: Table) -> np.ndarray:
    """Return two histograms of one column: its cells, and its signs."""
    magnitudes = MagnitudeCounts(1)
    magnitudes.add(values(table)[np.newaxis])
    (counts,) = magnitudes.counts
    return np.concatenate([counts, np.add.reduceat(counts, [0, ZERO_FINE, ZERO_FINE + 1])])


def grid(table: Table) -> np.ndarray:
    counts = GridCounts(-2.0, 4.0, 3)
    counts.add(values(table))
    return counts.counts


def utilities(table: Table, quantile: Fraction) -> list[Fraction]:
    """Return ``-max(0, left - q n, q n - right)`` of all cells of a grid of three."""
    below = np.concatenate([[0], np.cumsum(grid(table))]).tolist()
    rank = quantile * below[-1]
    return [-max(Fraction(0), left - rank, rank - right) for left, right in itertools.pairwise(below)]


def units(most: int) -> list[Row]:
    """Return units of 1 to `most` rows, as tuples of rows."""
    return [unit for size in range(1, most + 1) for unit in itertools.combinations_with_replacement(ROWS[1:6], size)]


def flat(table: Any) -> Table:
    return tuple(itertools.chain.from_iterable(table))


@pytest.mark.parametrize("relation", RELATIONS)
def test_counts_move_as_stated(relation: Relation) -> None:
    report = check_sensitivity(lambda table: grid(table).tolist(), ROWS, 3, relation)
    assert report.total == l1_sensitivity(relation)
    assert report.largest == 1
    squares = [
        ((histograms(first) - histograms(second)) ** 2).sum() for first, second in neighbouring_pairs(ROWS, 2, relation)
    ]
    sums = [
        abs(histograms(first) - histograms(second)).sum() for first, second in neighbouring_pairs(ROWS, 2, relation)
    ]
    assert max(squares) == squared_l2_sensitivity(relation, histograms=2)
    assert max(sums) == l1_sensitivity(relation, histograms=2)


@cases("relation", RELATIONS, quick=1)
def test_counts_move_as_stated_for_units_of_two_rows(relation: Relation) -> None:
    moves = [
        histograms(flat(first)) - histograms(flat(second))
        for first, second in neighbouring_pairs(units(2), 2, relation)
    ]
    assert max((move**2).sum() for move in moves) == squared_l2_sensitivity(relation, histograms=2, max_rows_per_unit=2)
    assert max(abs(move).sum() for move in moves) == l1_sensitivity(relation, histograms=2, max_rows_per_unit=2)


@cases("relation", RELATIONS, quick=2)
@cases("quantile", QUANTILES)
def test_utilities_move_within_the_range(quantile: Fraction, relation: Relation) -> None:
    report = check_sensitivity(lambda table: utilities(table, quantile), ROWS, 5, relation)
    bound = rank_utility_range(quantile, relation, is_whole=True)
    assert report.range <= bound
    assert report.largest <= bound / 2
    if max(quantile, 1 - quantile) <= Fraction(3, 4):  # others need more rows
        assert report.range == bound


def distances(counts: tuple[int, ...], quantile: Fraction) -> list[Fraction]:
    """Return how many ranks each cell is away from the quantile."""
    below = [0, *itertools.accumulate(counts)]
    rank = quantile * below[-1]
    return [max(Fraction(0), left - rank, rank - right) for left, right in itertools.pairwise(below)]


@cases("quantile", QUANTILES, quick=1)
def test_a_row_moves_each_cell_as_stated(quantile: Fraction) -> None:
    """On every table of up to four rows a cell, and some with more in one of them."""
    larger = max(quantile, 1 - quantile)
    stated = {"after": (quantile - 1, 1 - quantile), "before": (-quantile, quantile), "itself": (-larger, Fraction(0))}
    seen: dict[str, set[Fraction]] = {place: set() for place in stated}
    wide = [counts for many in (8, 9, 10, *range(95, 105)) for counts in itertools.permutations((0, 0, 1, many))]
    for counts in [*itertools.product(range(5), repeat=4), *wide]:
        old = distances(counts, quantile)
        for row in range(4):
            new = distances((*counts[:row], counts[row] + 1, *counts[row + 1 :]), quantile)
            moves = [b - a for a, b in zip(old, new, strict=True)]
            assert max(moves) - min(moves) <= rank_utility_range(quantile, "add_remove", is_whole=True)
            for cell, move in enumerate(moves):
                seen["after" if cell > row else "before" if cell < row else "itself"].add(move)
    # The ends are reached, so that no interval could be smaller.
    assert {place: (min(moves), max(moves)) for place, moves in seen.items()} == stated


@cases("quantile", QUANTILES, quick=1)
def test_a_replaced_row_moves_no_cell_by_more_than_one(quantile: Fraction) -> None:
    reached = set()
    for counts in itertools.product(range(5), repeat=4):
        old = distances(counts, quantile)
        for source, target in itertools.permutations(range(4), 2):
            if counts[source]:
                moved = [count - (cell == source) + (cell == target) for cell, count in enumerate(counts)]
                new = distances(tuple(moved), quantile)
                reached.update(b - a for a, b in zip(old, new, strict=True))
    assert (min(reached), max(reached)) == (-1, 1)


@cases("relation", RELATIONS, quick=1)
@cases("quantile", QUANTILES[:3])
def test_utilities_move_within_the_range_for_units_of_two_rows(quantile: Fraction, relation: Relation) -> None:
    bound = rank_utility_range(quantile, relation, is_whole=True, max_rows_per_unit=2)
    report = check_sensitivity(lambda table: utilities(flat(table), quantile), units(2), 3, relation)
    assert bound / 2 < report.range <= bound


@cases("relation", RELATIONS, quick=1)
def test_random_tables(relation: Relation) -> None:
    for first, second in random_pairs(3, relation, columns=1, count=300, lower=-2.0, upper=4.0):
        move = histograms(first) - histograms(second)
        assert abs(move).sum() <= l1_sensitivity(relation, histograms=2)
        assert (move**2).sum() <= squared_l2_sensitivity(relation, histograms=2)
        for quantile in QUANTILES:
            pairs = zip(utilities(first, quantile), utilities(second, quantile), strict=True)
            changes = [b - a for a, b in pairs]
            assert max(changes) - min(changes) <= rank_utility_range(quantile, relation, is_whole=True)


@cases("relation", RELATIONS, quick=1)
def test_random_tables_of_units(relation: Relation) -> None:
    for first, second in random_unit_pairs(4, relation, columns=1, count=300, lower=-2.0, upper=4.0):
        move = histograms(first) - histograms(second)
        assert abs(move).sum() <= l1_sensitivity(relation, histograms=2, max_rows_per_unit=4)
        assert (move**2).sum() <= squared_l2_sensitivity(relation, histograms=2, max_rows_per_unit=4)
        for quantile in QUANTILES:
            pairs = zip(utilities(first, quantile), utilities(second, quantile), strict=True)
            changes = [b - a for a, b in pairs]
            assert max(changes) - min(changes) <= rank_utility_range(
                quantile, relation, is_whole=True, max_rows_per_unit=4
            )


@pytest.mark.parametrize("quantile", QUANTILES)
def test_below_the_first_level_a_replaced_row_may_pay_twice(quantile: Fraction) -> None:
    one = rank_utility_range(quantile, "add_remove", is_whole=False)
    assert one == 2 * max(quantile, 1 - quantile) == rank_utility_range(quantile, "add_remove", is_whole=True)
    assert rank_utility_range(quantile, "replace", is_whole=False) == 2 * one
    assert rank_utility_range(quantile, "replace", is_whole=True) == 2


def test_what_is_refused() -> None:
    for function in (l1_sensitivity, squared_l2_sensitivity):
        for given in (("both", 1), ("replace", 0), ("replace", 1.5)):
            with pytest.raises(ParameterError) as caught:
                function(given[0], max_rows_per_unit=given[1])  # type: ignore[arg-type]
            assert caught.value.code == "DPSQL-P018"


@pytest.mark.parametrize("at", [Fraction(1, 4), Fraction(9, 10)])
def test_a_replaced_row_may_leave_one_group_for_another(monkeypatch: pytest.MonkeyPatch, at: Fraction) -> None:
    """So the rows of a group are not public, and its scores move like those of a table that a row comes to."""
    asked: list[Fraction] = []

    def first(utility: Any, *, utility_range: int, **named: Any) -> list[int]:
        asked.append(Fraction(utility_range, at.denominator))
        return [0]

    monkeypatch.setattr(mechanism, "select", first)
    part = GroupQuantileSelection("quantiles", Fraction(1), (at,), "replace", 1)
    with Permit(measurement_of(part)).drawing():
        part.draw_groups(np.array([[1, 2, 3], [3, 0, 1]]))
    assert asked == [rank_utility_range(at, "replace", is_whole=False)] * 2
    assert asked[0] > rank_utility_range(at, "replace", is_whole=True)


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("rows", [1, 3])
def test_counts_between_cuts_move_as_one_histogram(neighbours: str, rows: int) -> None:
    """Rows of a unit leave and come in any bins of any groups; the cuts follow from released cells alone."""
    rng = np.random.default_rng(7)
    part = RankCounts("ranks", Fraction(1), neighbours, rows)
    largest = 0
    for _ in range(300):
        groups, cells = int(rng.integers(1, 4)), int(rng.integers(1, 40))
        before = rng.integers(0, 4, (groups, cells))
        after = before.copy()
        for _ in range(rows):
            after[rng.integers(groups), rng.integers(cells)] += 1
        if neighbours == "replace":  # of a third table that both have come from
            before = before.copy()
            for _ in range(rows):
                before[rng.integers(groups), rng.integers(cells)] += 1
        moved = 0
        for one, other in zip(before, after, strict=True):
            found = sorted(set(rng.integers(0, cells, int(rng.integers(1, 4))).tolist()))
            cuts = cuts_around(found, cells)
            moved += int(np.abs(bins_between(other, cuts) - bins_between(one, cuts)).sum())
        assert moved <= part.scale * part.epsilon
        largest = max(largest, moved)
    assert largest == part.scale * part.epsilon


def test_the_selection_and_the_counts_for_intervals_share_epsilon() -> None:
    given = {"target": "x", "lower": 0, "upper": 1, "quantiles": [0.25, 0.5], "epsilon": 1, "interval_share": 0.1}
    plan: Any = function_of("dp_quantile").plan.from_arguments("t", given, {})
    assert plan.rank_part.epsilon == Fraction(1, 10)
    assert plan.selection.epsilon == Fraction(9, 10)
    assert plan.event.cost.epsilon == 1
