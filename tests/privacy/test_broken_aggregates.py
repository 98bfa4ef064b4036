"""Aggregates that are not private are caught by exact checks, and the product's laws pass the same checks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.contract.gaussian_profile import gaussian_delta, gaussian_mu
from dpsql.contract.relation import Contribution
from dpsql.statistics.aggregates import (
    Bernstein,
    CentredPair,
    DirectSum,
    GroupCount,
    Sums,
    TransformedPair,
    shared_count,
)
from dpsql.testing import check_exhaustively
from dpsql.testing.neighbours import RELATIONS, Relation
from support.broken.aggregates import (
    coarse_without_charge_law,
    constants_of_one_group,
    count_for_nothing,
    exact_count_mean_law,
    exactly_centred_law,
    groups_as_squared_norm,
    keys_of_the_rows,
    overflowing_law,
    rows_as_squared_norm,
    separately_rounded_law,
    twice_epsilon_law,
    width_as_sensitivity_law,
    width_of_the_bounds,
)
from support.cases import cases
from support.laws.aggregates import Law, block_law, noisy_law

EPSILON = Fraction(1)
SIGNS = (-1, 0, 1)


def loss(law: Callable[[list[Any]], Law], values: tuple[Any, ...], max_rows: int, relation: Relation) -> float:
    """Return the largest loss as a share of epsilon."""
    domain = [*((value,) for value in values), (None,)]
    report = check_exhaustively(lambda table: law([row[0] for row in table]), domain, max_rows, relation)
    return report.log_ratio / float(EPSILON)


@cases("relation", RELATIONS, quick=1)
@cases(
    "block",
    [
        GroupCount(),
        DirectSum(-1.0, 1.0, 1),
        TransformedPair(-1.0, 1.0, 1),
        Bernstein(-1.0, 1.0, 1),
        CentredPair(-1.0, 1.0, 1),
    ],
    ids=lambda block: block.kind,
)
def test_the_right_laws(block, relation):
    """The whole of epsilon is reached, and not more."""
    found = loss(lambda codes: block_law(codes, block, relation, EPSILON), SIGNS, 3, relation)
    # Outputs are clipped where those of three Bernstein sums are far apart.
    assert found == pytest.approx(1.0, abs=1e-6) or (block.kind == "bernstein" and found <= 1.0)


def test_keys_of_the_rows():
    """All pairs of tables of two rows with three keys."""
    stated = Contribution("replace", keys=3)
    tables = [np.bincount(rows, minlength=3) for rows in itertools.product(range(3), repeat=2)]
    moves = [(int(np.abs(one - other).sum()), one) for one in tables for other in tables]
    near = [(moved, counts) for moved, counts in moves if moved <= 2]
    assert max(moved for moved, _ in near) == GroupCount().norm(stated)
    assert any(moved > keys_of_the_rows(counts.tolist(), stated) for moved, counts in near)


@pytest.mark.parametrize("block", [GroupCount(), DirectSum(-2.0, 8.0), CentredPair(0.0, 1.0)], ids=lambda b: b.kind)
def test_constants_of_one_group_for_two(block):
    stated = Contribution("replace", keys=2)
    linear, squared = constants_of_one_group(block, stated)
    assert (linear < block.norm(stated), squared < block.squared_norm(stated)) == (True, block.kind != "centred_pair")


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_count_that_is_shared_for_nothing(noise):
    stated = Contribution("add_remove")
    block = shared_count([(0.0, 1.0)] * 3, noise, stated)
    row = block.words(Sums(np.array([1]), np.full((3, 1), block.denominator))).integers()[:, 0].astype(object)
    linear, squared = count_for_nothing(block)
    assert linear < abs(row).sum() == block.norm(stated)
    assert squared < (row**2).sum() == block.squared_norm(stated)


def test_the_width_of_bounds_that_are_above_zero():
    law = lambda codes: noisy_law([sum(filter(None, codes))], width_of_the_bounds(1, 2) / EPSILON)  # noqa: E731
    assert loss(law, (1, 2), 2, "replace") == pytest.approx(2.0)
    block = DirectSum(1.0, 2.0)
    assert block.norm(Contribution("replace", keys=1)) == block.denominator


def test_the_width_of_the_bounds_is_no_sensitivity():
    assert loss(lambda codes: width_as_sensitivity_law(codes, 9, 10, EPSILON), (9, 10), 2, "add_remove") == (
        pytest.approx(10.0)
    )
    assert loss(lambda codes: width_as_sensitivity_law(codes, 9, 10, EPSILON), (9, 10), 1, "replace") > 1.0 + 1e-9
    present = (9, 10)
    report = check_exhaustively(
        lambda table: width_as_sensitivity_law([row[0] for row in table], 9, 10, EPSILON),
        [(value,) for value in present],
        2,
        "replace",
    )
    assert report.within(EPSILON)


def test_an_exact_count_below_a_noisy_sum():
    assert math.isinf(loss(lambda codes: exact_count_mean_law(codes, 1, EPSILON), SIGNS, 3, "add_remove"))


def test_the_exact_mean_as_the_centre():
    assert loss(lambda codes: exactly_centred_law(codes, 1, EPSILON), SIGNS, 4, "add_remove") == pytest.approx(3.0)


def test_each_coordinate_with_the_whole_of_epsilon():
    assert loss(lambda codes: twice_epsilon_law(codes, 1, EPSILON), SIGNS, 3, "add_remove") == pytest.approx(2.0)


def test_a_pair_that_does_not_add_up():
    values = (-1.0, -0.5, 0.0, 0.5, 1.0)
    found = loss(lambda rows: separately_rounded_law(rows, 1, EPSILON), values, 2, "add_remove")
    assert found == pytest.approx(1.5)


@pytest.mark.long
def test_an_overflow_that_shows():
    assert math.isinf(loss(lambda codes: overflowing_law(codes, 1, EPSILON, 4), SIGNS, 4, "add_remove"))


@pytest.mark.long
def test_a_coarse_lattice_for_nothing():
    found = loss(lambda codes: coarse_without_charge_law(codes, 1, EPSILON, 1), SIGNS, 3, "add_remove")
    assert found == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("broken", "shape"),
    [(rows_as_squared_norm, (3, 1, 3)), (groups_as_squared_norm, (4, 2, 2))],
    ids=["rows", "groups"],
)
def test_a_squared_norm_of_another_cap(broken, shape):
    """The counts of two groups, over all units within the caps."""
    stated = Contribution("add_remove", *shape)
    counts = [
        unit
        for unit in itertools.product(range(stated.rows_per_group + 1), repeat=2)
        if sum(unit) <= stated.rows and np.count_nonzero(unit) <= stated.groups
    ]
    most = max(sum(count**2 for count in unit) for unit in counts)
    assert GroupCount().squared_norm(stated) == most
    assert broken(stated) < most


@pytest.mark.long
@cases(
    "block",
    [TransformedPair(-1.0, 1.0, 1), DirectSum(-1.0, 1.0, 1), Bernstein(-1.0, 1.0, 1)],
    ids=lambda b: b.kind,
    quick=1,
)
def test_constants_of_add_remove_under_replace(block):
    found = loss(lambda codes: block_law(codes, block, "add_remove", EPSILON), SIGNS, 2, "replace")
    assert found == pytest.approx(2.0, abs=1e-6)


def test_gaussian_constants_of_add_remove_under_replace():
    """At (1, 1e-6) the noise of add_remove leaves a delta of 2.2e-4 under replace."""
    delta = Fraction(1, 10**6)
    mu = gaussian_mu(EPSILON, delta)
    block = CentredPair(0.0, 1.0)
    ratio = Fraction(block.squared_norm(Contribution("replace")), block.squared_norm(Contribution("add_remove")))
    assert ratio == 2
    shown = float(gaussian_delta(mu * Fraction(math.isqrt(2 * 10**24), 10**12), EPSILON))
    assert shown == pytest.approx(2.18e-4, rel=0.01)
