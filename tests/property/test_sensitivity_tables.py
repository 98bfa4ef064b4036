"""How far a privacy unit moves histograms, tables with margins, and the quantiles of groups: exactly, on small domains."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from dpsql.contract.relation import Contribution
from dpsql.functions.crosstab import CrosstabPlan
from dpsql.functions.grouped.histogram import HistogramPlan
from dpsql.mechanisms.prefix_sums import STRATEGIES, gaussian_sensitivity, laplace_scale, prefix_strategy
from dpsql.statistics.counts import MarginalCounts, marginals_up_to
from dpsql.testing import check_exhaustively, check_sensitivity, neighbouring_pairs
from dpsql.testing.neighbours import RELATIONS, Relation, Row, Table
from support.cases import cases
from support.laws.quantile import group_quantile_law

# (m, g, r): rows of a unit, groups of it, rows of it in one group.
LIMITS = [(1, 1, 1), (2, 2, 1), (2, 1, 2), (3, 3, 1), (3, 2, 2), (4, 2, 2), (3, 3, 3)]


def units(cells: int, rows: int, groups: int, each: int) -> Iterator[np.ndarray]:
    """Yield what one unit may have in each cell."""
    for counts in itertools.product(range(each + 1), repeat=cells):
        if sum(counts) <= rows and sum(map(bool, counts)) <= groups:
            yield np.array(counts, dtype=np.int64)


def changes(cells: int, contribution: Contribution) -> list[np.ndarray]:
    limits = (contribution.rows, contribution.groups, contribution.rows_per_group)
    found = list(units(cells, *limits))
    if contribution.neighbours == "add_remove":
        return found
    return [first - second for first, second in itertools.combinations(found, 2)]


def moved(matrix: np.ndarray, deltas: Sequence[np.ndarray]) -> tuple[int, int]:
    vectors = np.array(deltas) @ matrix.T
    return int(np.abs(vectors).sum(axis=1).max()), int(np.square(vectors).sum(axis=1).max())


def matrix_of(design: MarginalCounts) -> np.ndarray:
    cells = int(np.prod(design.sizes))
    return np.array([design.entries(unit) for unit in np.eye(cells, dtype=np.int64)]).T


@cases("relation", RELATIONS)
@cases("sizes", [(2, 2), (3, 2), (1, 3)])
def test_a_row_moves_each_marginal_once(sizes: tuple[int, int], relation: Relation) -> None:
    design = MarginalCounts(sizes, marginals_up_to(2, 2))
    contribution = Contribution(relation)
    rows: list[Row] = list(itertools.product(*map(range, sizes)))

    def entries(table: Table) -> list[int]:
        counts = np.zeros(sizes, dtype=np.int64)
        for row in table:
            counts[row] += 1
        return [int(value) for value in design.entries(counts.ravel())]

    assert check_sensitivity(entries, rows, 2, relation).total <= design.norm(contribution)
    squares = [
        sum((a - b) ** 2 for a, b in zip(entries(first), entries(second), strict=True))
        for first, second in neighbouring_pairs(rows, 2, relation)
    ]
    # Under replace two entries of each marginal change, and one where there is no other.
    lone = sum(math.prod(sizes[axis] for axis in axes) == 1 for axes in design.measured)
    assert max(squares) <= design.squared_norm(contribution) == (4 if relation == "add_remove" else 8 - lone)


def test_squared_norms_of_units_are_those_of_the_review() -> None:
    """Found by enumeration, and the bound: 4 K2 would be 4, 8, 16, 12 and 20."""
    expected = {(1, 1, 1): (4, 4), (2, 2, 1): (12, 14), (2, 1, 2): (16, 16), (3, 3, 1): (24, 30), (3, 2, 2): (28, 32)}
    design = MarginalCounts((3, 3), marginals_up_to(2, 2))
    for limits, numbers in expected.items():
        contribution = Contribution("add_remove", *limits)
        found = moved(matrix_of(design), changes(9, contribution))[1]
        assert (found, design.squared_norm(contribution)) == numbers


@cases("relation", RELATIONS, quick=17)
@cases("limits", LIMITS)
@cases("sizes", [(2, 2), (2, 3), (2, 2, 2)])
def test_units_stay_within_the_bounds(sizes: tuple[int, ...], limits: tuple[int, int, int], relation: Relation) -> None:
    contribution = Contribution(relation, *limits, keys=int(np.prod(sizes)))
    columns = len(sizes)
    for measured in (marginals_up_to(2, columns), (tuple(range(columns)),), ((),), ((0,),)):
        design = MarginalCounts(sizes, measured)
        linear, squared = moved(matrix_of(design), changes(int(np.prod(sizes)), contribution))
        assert linear <= design.norm(contribution)
        assert squared <= design.squared_norm(contribution)
        # The cells and the total reach their bounds; several marginals do not reach theirs together under replace.
        alone = measured in ((tuple(range(columns)),), ((),))
        assert linear == design.norm(contribution) or not (alone or relation == "add_remove")
        assert squared == design.squared_norm(contribution) or not alone


@cases("relation", RELATIONS)
@cases("limits", LIMITS)
@cases("name", STRATEGIES)
def test_histograms_of_units(name: str, limits: tuple[int, int, int], relation: Relation) -> None:
    """Two keys with three bins each: K2 for bins by themselves; a strategy pools the bins of a key."""
    contribution = Contribution(relation, *limits)
    strategy = prefix_strategy(3, name=name, noise="gaussian")
    both = np.kron(np.eye(2, dtype=np.int64), strategy.matrix).astype(object)
    linear, squared = moved(both, changes(6, contribution))
    assert linear <= laplace_scale(strategy, Fraction(1), relation, contribution.rows)
    assert squared <= gaussian_sensitivity(strategy, relation, contribution.rows)
    if name == "identity":
        assert squared <= contribution.squared_norm(1, distance=2, opposing=0)


def test_plans_take_these_bounds() -> None:
    unit = {"privacy_unit": "p", "max_groups_per_unit": 2, "max_rows_per_unit_group": 3, "neighbours": "replace"}
    columns = {"rows": "a", "columns": "b", "keys": {"a": [1, 2, 3], "b": [1, 2, 3]}}
    for measured in (4, 1):
        plan = CrosstabPlan.from_arguments("t", {**columns, **unit, "epsilon": 2, "margins": measured == 4})
        [lattice] = plan.part.lattices
        # The total moves by six rows, other marginals by twelve.
        assert lattice.spread == Fraction(
            2 * len(plan.design.measured) * 6 - (6 if () in plan.design.measured else 0), 2
        )
    wide = CrosstabPlan.from_arguments("t", {**columns, **unit, "epsilon": 1, "delta": 1e-6, "noise": "gaussian"})
    assert wide.design.squared_norm(wide.contribution) == 36 + 2 * (2 * 36 + 18)
    bins = {"target": "x", "lower": 0, "upper": 1, "n_bins": 40, "epsilon": 2}
    [lattice] = HistogramPlan.from_arguments("t", {**bins, **unit}).part.lattices  # type: ignore[union-attr]
    assert lattice.spread == Fraction(2 * 6, 2)
    tree = HistogramPlan.from_arguments("t", {**bins, **unit, "curve": "tree"})
    assert tree.strategy is not None
    assert tree.part.laplace_scale(tree.strategy) == Fraction(2 * 6 * 2, 2)  # type: ignore[union-attr]


@cases("relation", RELATIONS, quick=2)
@cases("quantiles", [[Fraction(1, 2)], [Fraction(9, 10)], [Fraction(1, 4), Fraction(3, 4)]])
def test_quantiles_of_groups_stay_within_epsilon(quantiles: list[Fraction], relation: Relation) -> None:
    """Two groups, and rows of neither: exact joint laws on all tables of up to four rows."""
    epsilon = Fraction(1)
    given = {"quantiles": quantiles, "epsilon": epsilon, "neighbours": relation}
    rows: list[Row] = [(group, cell) for group in range(2) for cell in range(3)] + [(2, None)]
    report = check_exhaustively(lambda table: group_quantile_law(table, 2, 3, **given), rows, 4, relation)  # type: ignore[arg-type]
    assert report.within(epsilon), str(report)
