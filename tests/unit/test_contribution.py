"""What a call's arguments state about a privacy unit's contribution, and what is refused."""

from __future__ import annotations

import pytest

from dpsql.contract.relation import Contribution, relation_of
from dpsql.errors import ParameterError
from support.cases import cases

NEIGHBOURS = ("add_remove", "replace")


@cases(
    ("rows", "groups", "rows_per_group", "key_count", "stated"),
    [
        (None, None, None, 1, (1, 1, 1)),
        (None, None, None, None, (1, 1, 1)),
        # Without `by` there is one group, and nothing to spread the rows over.
        (7, None, None, 1, (7, 1, 7)),
        (None, None, 7, 1, (7, 1, 7)),
        (7, 3, 7, 1, (7, 1, 7)),
        # Rows alone: all of them in as many groups, or in one.
        (7, None, None, None, (7, 7, 7)),
        (7, None, None, 50, (7, 7, 7)),
        (7, None, None, 4, (7, 4, 7)),
        # Groups and rows in each.
        (None, 3, 2, None, (6, 3, 2)),
        (None, 9, 2, 4, (8, 4, 2)),
        (None, None, 2, 4, (8, 4, 2)),
        (7, None, 2, None, (7, 7, 2)),
        (5, 3, 2, None, (5, 3, 2)),
        (9, 3, 2, None, (6, 3, 2)),
        (2, 3, 9, None, (2, 2, 2)),
        (7, 3, None, None, (7, 3, 7)),
    ],
)
def test_defaults(rows, groups, rows_per_group, key_count, stated):
    found = Contribution.of("replace", rows, groups, rows_per_group, key_count=key_count)
    assert (found.rows, found.groups, found.rows_per_group) == stated


@cases(
    ("given", "code"),
    [
        ({"groups": 3, "key_count": None}, "P046"),
        ({"groups": 3, "key_count": 5}, "P046"),
        ({"rows_per_group": 3, "key_count": None}, "P046"),
        ({"rows": 0}, "P021"),
        ({"rows": 1.5}, "P021"),
        ({"groups": "x", "rows_per_group": 1}, "P021"),
        ({"rows": 10**10}, "P050"),
    ],
)
def test_refused(given, code):
    with pytest.raises(ParameterError, match=code):
        Contribution.of("add_remove", **given)


@pytest.mark.parametrize(
    "given", [("other", 1, 1, 1), ("replace", 0, 1, 1), ("replace", 1, 1, 0.5), ("replace", 1, -1, 1)]
)
def test_a_contribution_is_whole(given):
    with pytest.raises(ParameterError, match="P018"):
        Contribution(*given)


@cases(
    ("stated", "squared"),
    [((1, 1, 1), 1), ((7, 7, 7), 49), ((6, 3, 2), 12), ((5, 3, 2), 9), ((20, 20, 1), 20), ((4, 9, 3), 10)],
)
def test_squared_rows(stated, squared):
    """The norm of the units' row counts: ``groups * rows_per_group**2`` where caps hold, and not ``rows**2``."""
    assert Contribution("add_remove", *stated).squared_rows == squared


@cases("rows", [1, 2, 5])
@cases("neighbours", NEIGHBOURS)
def test_rows_alone_mean_what_they_mean_elsewhere(neighbours, rows):
    """The factors are those of `dpsql.contract.relation`, where terms oppose each other and where they do not."""
    grouped, relation = Contribution.of(neighbours, rows, key_count=None), relation_of(neighbours, rows)
    assert grouped.norm(3, distance=6) == relation.norm(3)
    assert grouped.squared_norm(3, distance=0, opposing=0) == relation.squared_norm(3, opposing=False)
    assert grouped.squared_norm(3, distance=12, opposing=3) == relation.squared_norm(3, opposing=True)


def test_a_rest_takes_the_larger_bound():
    """Five rows, two per group: under replace the bound of equal parts does not hold."""
    uneven = Contribution("replace", 5, 3, 2)
    assert uneven.squared_norm(2, distance=4, opposing=1) == 2 * 9 * 3
    assert Contribution("replace", 6, 3, 2).squared_norm(2, distance=4, opposing=1) == 12 * 4
    assert uneven.changed_groups == 6


@cases(
    ("keys", "shape", "norm", "squared", "changed"),
    [
        # min(2 g, K) r, and the same times r.
        (1, (1, 1, 1), 1, 1, 1),
        (2, (1, 1, 1), 2, 2, 2),
        (1, (3, 1, 3), 3, 9, 1),
        (3, (4, 2, 2), 6, 12, 3),
        (5, (4, 2, 2), 8, 16, 4),
        (2, (7, 2, 4), 8, 32, 2),
        # Five rows, two per group: halves of two groups and one, or of three and two.
        (3, (5, 3, 2), 6, 12, 3),
        (5, (5, 3, 2), 9, 17, 5),
        (None, (5, 3, 2), 10, 18, 6),
    ],
)
def test_counts_of_few_groups(keys, shape, norm, squared, changed):
    """Under replace the units that go and come share groups where there are few; that one comes costs the same."""
    stated = Contribution("replace", *shape, keys)
    assert stated.norm(1, distance=0) == norm
    assert stated.squared_norm(1, distance=0, opposing=0) == squared
    assert stated.changed_groups == changed
    comes = Contribution("add_remove", *shape, keys)
    assert (comes.norm(1, distance=0), comes.changed_groups) == (shape[0], shape[1])


def test_no_unit_is_in_more_groups_than_there_are():
    assert Contribution("replace", 6, 3, 2, 2) == Contribution("replace", 4, 2, 2, 2)
    with pytest.raises(ParameterError, match="P018"):
        Contribution("replace", 6, 3, 2, 0)
