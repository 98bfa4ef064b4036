"""Planted faults of histograms, tables and quantiles of groups: every one is caught, and its loss is the one that is stated."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from dpsql.contract.gaussian_profile import gaussian_covers, gaussian_delta, gaussian_mu
from dpsql.contract.relation import Contribution
from dpsql.statistics.counts import MarginalCounts, marginals_up_to
from dpsql.testing import check_exhaustively
from dpsql.testing.neighbours import Row
from support.broken.tables import (
    CellsForMargins,
    added_rows_quantile_law,
    equal_height_law,
    one_group_quantile_law,
    separate_margins_law,
)
from support.cases import cases
from support.laws.quantile import group_quantile_law

ONE = Fraction(1)
GROUPED: list[Row] = [(group, cell) for group in range(2) for cell in (0, 1, 102, 103)]


def test_cells_for_margins() -> None:
    contribution = Contribution("add_remove", 2, 2, 1)
    right, wrong = (kind((2, 2), marginals_up_to(2, 2)) for kind in (MarginalCounts, CellsForMargins))
    assert (right.squared_norm(contribution), wrong.squared_norm(contribution)) == (14, 8)
    mu = gaussian_mu(ONE, Fraction(1, 10**6))
    assert gaussian_delta(mu * Fraction(12247, 10000), ONE) > Fraction(2, 10**5)  # mu sqrt(12 / 8)
    assert gaussian_covers(mu * Fraction(9259, 10000), ONE, Fraction(1, 10**6))  # mu sqrt(12 / 14)


@cases(("law", "loss"), [(one_group_quantile_law, 1.77), (added_rows_quantile_law, 1.97)], quick=1)
def test_quantiles_of_groups_with_the_constants_of_one(law: Any, loss: float) -> None:
    """A row beyond all others goes from one group to the other; nine rows of each group stay.

    With one row more, the many empty cells of the first group come to lie below the quantile, those of the second on
    it.
    """
    given = {"quantiles": [Fraction(9, 10)], "epsilon": ONE, "neighbours": "replace"}
    public = [*[(0, 0)] * 8, (0, 102), *[(1, 0)] * 8, (1, 1)]
    wrong = check_exhaustively(lambda table: law([*public, *table], 2, 104, **given), GROUPED, 1, "replace")
    assert wrong.log_ratio == pytest.approx(loss, abs=0.01), str(wrong)
    right = check_exhaustively(
        lambda table: group_quantile_law([*public, *table], 2, 104, **given), GROUPED, 1, "replace"
    )
    assert right.within(ONE), str(right)


def test_edges_from_the_data() -> None:
    rows: list[Row] = [(0,), (1,), (2,)]
    report = check_exhaustively(
        lambda table: equal_height_law([row[0] for row in table], epsilon=ONE), rows, 3, "add_remove"
    )
    assert report.log_ratio == math.inf


@pytest.mark.long
def test_margins_each_with_all_of_epsilon() -> None:
    inside = {(): separate_margins_law([], epsilon=ONE), ((0, 0),): separate_margins_law([(0, 0)], epsilon=ONE)}
    both = set(inside[()]) & set(inside[((0, 0),)])
    loss = max(abs(math.log(inside[()][one] / inside[((0, 0),)][one])) for one in both)
    assert loss == pytest.approx(3.0)
