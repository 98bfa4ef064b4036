"""Planted faults of the verdict of a set: each is caught, and the right lead passes the same check."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dpsql.testing.neighbours import Table
from support.broken.lead import lead_of_the_best, longer_permutations, public_permutations_top, threshold_law
from support.laws.lead import UNIT, chance_above, lead_law, loss, scores, top_law

LEVELS = (0.0, 1.0, None)
# Two features follow the target; the row more denies one of them.
FOLLOWING: Table = ((0.0, 0.0, 0.0), (1.0, 1.0, 0.0), (2.0, 2.0, 1.0), (3.0, 3.0, 1.0))
DENIED: Table = (*FOLLOWING, (4.0, -1.0, 0.0))


def neighbours_of_three() -> list[tuple[Table, Table]]:
    """Return every target of two levels in three rows of two features, with every row more."""
    rows = ((0.0, 1.0), (1.0, 1.0), (2.0, 0.0))
    found = []
    for targets in itertools.product(LEVELS, repeat=3):
        table = tuple((*row, target) for row, target in zip(rows, targets, strict=True))
        found += [(table, (*table, (a, b, y))) for a in (-1.0, 1.5, None) for b in (0.5, 9.0) for y in LEVELS]
    return found


@pytest.mark.long
def test_the_right_lead_spends_epsilon_and_no_more() -> None:
    """Exact laws of the noisy lead, over all permutations of both tables."""
    losses = [
        loss(*(lead_law(table, chosen, epsilon=1, delta=3, place=place) for table in pair))
        for pair in (*neighbours_of_three(), (FOLLOWING, DENIED))
        for chosen, place in (((0,), 1), ((1,), 2), ((0, 1), 1))
    ]
    assert 0.2 < max(losses) <= 1


@pytest.mark.long
def test_a_sensitivity_of_one_is_caught() -> None:
    """A row moves a score and q: with noise for one of them only, the loss is above epsilon."""
    losses = [
        loss(*(lead_law(table, (0,), epsilon=1, delta=1, place=2) for table in pair)) for pair in neighbours_of_three()
    ]
    assert max(losses) > 1.05


@pytest.mark.long
def test_permutations_of_a_public_seed_are_caught() -> None:
    """The loss is how far q moves, over the sensitivity 3 less 1, which is for the mean over the released features."""
    rows = 4000
    column, target = np.arange(rows + 1.0), np.append(np.arange(rows) % 2.0, 1.0)
    moves = [
        abs(public_permutations_top([column], target, seed) - public_permutations_top([column[:-1]], target[:-1], seed))
        for seed in range(20)
    ]
    assert max(moves) > 2 * 2


def test_a_free_threshold_is_caught() -> None:
    assert loss(threshold_law(FOLLOWING, 1), threshold_law(DENIED, 1)) == math.inf


def test_permutations_of_another_length_are_caught() -> None:
    """With the right ones the chance of a lead is a tenth at most, with longer ones more."""
    table: Table = tuple((float(i), float(i < 2)) for i in range(5))
    count, place = 9, 1
    right = chance_above(table, 1, top_law(table, 1), count, place)
    longer = chance_above(table, 1, longer_permutations(table, 1, 8), count, place)
    assert right <= place / (count + 1) < longer


def test_the_lead_of_another_set_is_caught() -> None:
    """The released feature is constant, and another one follows the target: it is not clear."""
    table: Table = tuple((float(i), 0.0, float(i >= 2)) for i in range(5))
    released, best = lead_law(table, (1,), epsilon=100, delta=3), lead_of_the_best(table, 1, epsilon=100)
    assert scores(table)[1] == 0
    assert sum(chance for step, chance in released.items() if step > UNIT / 2) < 1e-4
    assert sum(chance for step, chance in best.items() if step >= 0) > 0.8
