"""Sensitivity and chance of `dpsql/statistics/lead.py`: exhaustive on small tables, random, and by enumeration."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from property.test_sensitivity_rank import HIGH, LOW, NAN, OTHER, all_taus, random_row, random_table

from dpsql.contract.fold import Batch
from dpsql.contract.relation import relation_of
from dpsql.kernels.kendall import RankedTable
from dpsql.kernels.shuffles import _by_signs, _counted, largest_sums
from dpsql.statistics import lead
from dpsql.statistics.kendall import Pairs
from dpsql.statistics.lead import exact_lead, lead_sensitivity, shuffled_top
from dpsql.statistics.rank_scores import RankScores
from dpsql.testing.neighbours import Table
from support.cases import cases

Order = tuple[int, ...]


def unheard(share: float) -> None:
    """Report no progress."""


def pairs_of(table: Table, *, two_levels: bool) -> Pairs:
    collected = RankScores(len(table[0]) - 1, two_levels=two_levels)
    columns = np.array([[NAN if value is None else value for value in row] for row in table]).T
    collected.add(columns[-1], columns[:-1], Batch())
    return collected.pairs(unheard)


def order_of(order: Order) -> NDArray[np.intp]:
    return np.array(order, dtype=np.intp)


def with_a_row(order: Order, place: int) -> Order:
    """Return the permutation of one row more that the proof couples: row `place` and the new row swap their targets."""
    rows = len(order)
    longer = [*order, rows]
    longer[place], longer[rows] = longer[rows], longer[place]
    return tuple(longer)


def test_the_coupling_makes_a_uniform_permutation() -> None:
    for rows in range(5):
        coupled = [with_a_row(order, i) for order in itertools.permutations(range(rows)) for i in range(rows + 1)]
        assert sorted(coupled) == list(itertools.permutations(range(rows + 1)))


@pytest.mark.parametrize(
    ("neighbours", "two_levels", "expected"),
    [("add_remove", True, 3), ("add_remove", False, 5), ("replace", True, 5), ("replace", False, 6)],
)
def test_the_table_of_sensitivities(neighbours: str, two_levels: bool, expected: int) -> None:
    assert lead_sensitivity(relation_of(neighbours), two_levels=two_levels) == expected
    with pytest.raises(ValueError, match="several rows"):
        lead_sensitivity(relation_of(neighbours, 2), two_levels=two_levels)


@pytest.mark.long
@pytest.mark.parametrize(("two_levels", "levels"), [(True, (LOW, HIGH, NAN)), (False, (0.0, 1.0, 2.0, NAN))])
def test_every_small_table_stays_within_the_move_of_q(two_levels: bool, levels: tuple[float, ...]) -> None:
    """Every permuted target of up to four rows and every column; the new row takes the target of one, which takes its."""
    least = Fraction(0)
    for rows in range(1, 5):
        values = [*map(float, range(min(rows + 1, 3))), NAN]
        columns = np.array(list(itertools.product(values, repeat=rows + 1))).T
        for target in itertools.product(levels, repeat=rows):
            before = all_taus(target, columns[:rows])
            for added, place in itertools.product(levels, range(rows + 1)):
                longer = [*target, added]
                longer[place], longer[rows] = longer[rows], longer[place]
                # Over one denominator: the score after is new / rows, and before it was old / (rows - 1).
                moves = np.abs(all_taus(longer, columns) * max(1, rows - 1) - before * rows)
                least = max(least, Fraction(int(moves.max()), rows * max(1, rows - 1)))
    assert 1 < least <= (2 if two_levels else Fraction(7, 2))


@cases("neighbours", ["add_remove", "replace"], quick=1)
@cases("two_levels", [True, False])
def test_random_neighbours_move_the_lead_within_its_sensitivity(
    monkeypatch: pytest.MonkeyPatch, neighbours: str, two_levels: bool
) -> None:
    """Nine coupled permutations, of which the first or second counts; J is any set of features, the same on both."""
    draw = random.Random(12)
    limit = lead_sensitivity(relation_of(neighbours), two_levels=two_levels)
    most = Fraction(0)
    for number in range(200):
        monkeypatch.setitem(lead.SHUFFLES, two_levels, (9, 1 + number % 2))
        k = 1 + number % 3
        first = (*random_table(draw, draw.randrange(2, 14)), random_row(draw))
        orders = [tuple(draw.sample(range(len(first)), len(first))) for _ in range(9)]
        if neighbours == "replace":
            second, others = (*first[:-1], random_row(draw)), orders
        else:
            second, others = (
                (*first, random_row(draw)),
                [with_a_row(one, draw.randrange(len(first) + 1)) for one in orders],
            )
        chosen = draw.sample(range(4), k)
        leads = []
        for table, drawn in ((first, orders), (second, others)):
            left = iter(drawn)
            monkeypatch.setattr(lead, "permutation", lambda rows, left=left: order_of(next(left)))
            pairs = pairs_of(table, two_levels=two_levels)
            top = shuffled_top(pairs, k, two_levels=two_levels, progress=unheard)
            signed = pairs.scores(pairs.features, chosen, unheard)[0].tolist()
            leads.append(exact_lead([Fraction(abs(one), len(table) - 1) for one in signed], top, len(table)))
        most = max(most, abs(leads[1] - leads[0]))
    assert Fraction(1, 2) < most <= limit


@cases("k", [1, 2], quick=1)
@cases("r", [1, 2])
def test_the_chance_is_exact_by_enumeration(k: int, r: int) -> None:
    """Five rows, two features, nine permutations: pairs of columns with ties and missing values, by every order.

    The target has two rows of the one level, three of the other; or two, two and a missing one. All orders are equally
    likely, so the chance that the best of the target are above the r-th best of the shuffled ones is a sum.
    """
    count = 9
    orders = [order_of(order) for order in itertools.permutations(range(5))]
    largest = 0.0
    for target in ((0.0, 0.0, 0.0, 1.0, 1.0), (0.0, 0.0, 1.0, 1.0, NAN)):
        columns = [np.array(one) for one in itertools.product((0.0, 1.0, 2.0, NAN), repeat=5)]
        scores: dict[tuple[int, ...], NDArray[np.float64]] = {}
        for column in columns[::7]:
            alone = RankedTable([column, np.array(target)])
            scores.setdefault(tuple(largest_sums(alone, 1, orders, 1, unheard)), column)
        kept = list(scores.values())
        for one, other in itertools.combinations_with_replacement(kept[:: max(1, len(kept) // 12)], 2):
            found = largest_sums(RankedTable([one, other, np.array(target)]), 2, orders, k, unheard)
            chance = 0.0
            for value in set(found):
                reached = sum(top >= value for top in found) / len(found)
                fewer = sum(math.comb(count, i) * reached**i * (1 - reached) ** (count - i) for i in range(r))
                chance += found.count(value) / len(found) * fewer
            assert chance <= r / (count + 1) + 1e-12
            largest = max(largest, chance)
    assert largest > 0.1 * r / (count + 1), "the claim is not void"


def test_all_ways_count_the_same() -> None:
    """The product of sides, the product of signs, and pairs counted anew."""
    draw = np.random.default_rng(5)
    for rows, levels in ((2, 2), (9, 2), (40, 2), (40, 3), (40, 1000)):
        columns = [draw.integers(0, 6, rows).astype(float) for _ in range(7)]
        for column in columns[:3]:
            column[draw.random(rows) < 0.3] = NAN
        target = draw.integers(0, levels, rows).astype(float)
        target[0], target[-1] = 0, 1
        for missing in (False, True):
            if missing:
                target[rows // 2] = NAN
            table = RankedTable([*columns, target])
            orders = [order_of(tuple(draw.permutation(rows).tolist())) for _ in range(11)]
            found = largest_sums(table, 7, orders, 3, unheard)
            codes = np.array([table.columns[7].codes[order] for order in orders])
            assert found == _by_signs(table.columns[:7], codes, 3, unheard)
            assert found == _counted(table.columns[7], table.columns[:7], orders, 3, unheard)


def test_no_rows_and_one_row_have_no_lead() -> None:
    for rows in (0, 1):
        table = RankScores(2, two_levels=True)
        table.add(np.full(rows, OTHER), np.zeros((2, rows)), Batch())
        assert shuffled_top(table.pairs(unheard), 1, two_levels=True, progress=unheard) == 0
        assert exact_lead([Fraction(0)], 0, rows) == 0
