"""Neighbour generators: complete on a small domain, repeatable and awkward where random."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest

from dpsql.testing import neighbouring_pairs, random_pairs, random_unit_pairs, tables, to_arrow
from dpsql.testing.neighbours import RELATIONS, Table

DOMAIN = [(0,), (1,), (2,)]


def distance(first: Table, second: Table, relation: str) -> int:
    """Rows to add and remove (or to replace) between two multisets; NaN rows compare by identity."""
    a, b = Counter(map(repr, first)), Counter(map(repr, second))
    surplus, missing = sum((a - b).values()), sum((b - a).values())
    if relation == "replace":
        return surplus if surplus == missing else 10**6
    return surplus + missing


@pytest.mark.parametrize("relation", RELATIONS)
def test_exhaustive_pairs_are_exactly_the_neighbours(relation: str) -> None:
    found = Counter(frozenset(map(str, pair)) for pair in neighbouring_pairs(DOMAIN, 3, relation))
    everything = list(tables(DOMAIN, 3))
    expected = {
        frozenset(map(str, (a, b))) for a, b in itertools.combinations(everything, 2) if distance(a, b, relation) == 1
    }
    assert set(found) == expected


@pytest.mark.parametrize("relation", RELATIONS)
def test_ordered_pairs_hold_every_order(relation: str) -> None:
    found = {frozenset(map(str, pair)) for pair in neighbouring_pairs(DOMAIN, 2, relation, ordered=True)}
    everything = list(tables(DOMAIN, 2, ordered=True))
    assert len(everything) == 1 + 3 + 9
    expected = {
        frozenset(map(str, (a, b)))
        for a, b in itertools.combinations(everything, 2)
        if distance(a, b, relation) <= 1 and (relation == "add_remove" or a)
    }
    assert found == expected


@pytest.mark.parametrize("relation", RELATIONS)
def test_random_pairs_are_neighbours_and_repeatable(relation: str) -> None:
    pairs = list(random_pairs(7, relation, columns=3, count=200))
    assert repr(pairs) == repr(list(random_pairs(7, relation, columns=3, count=200)))
    assert all(distance(first, second, relation) <= 1 for first, second in pairs)
    values = [value for pair in pairs for table in pair for row in table for value in row]
    assert None in values
    assert any(value is not None and math.isnan(value) for value in values)
    assert {math.inf, -math.inf} <= set(values)
    assert any(value is not None and 1.0 < abs(value) < math.inf for value in values)
    assert any(() in pair for pair in pairs) or relation == "replace"


@pytest.mark.parametrize("relation", RELATIONS)
def test_random_unit_pairs_differ_in_one_unit(relation: str) -> None:
    sizes = set()
    for first, second in random_unit_pairs(3, relation, columns=2, count=200):
        a, b = Counter(map(repr, first)), Counter(map(repr, second))
        changed = {row.split(",")[0] for row in ((a - b) + (b - a))}
        assert len(changed) == (2 if relation == "replace" else 1)
        assert "(None" not in changed
        sizes.add(abs(len(first) - len(second)))
    assert len(sizes) > 2


def test_unknown_relation_is_refused() -> None:
    with pytest.raises(ValueError, match="relation must be one of"):
        next(neighbouring_pairs(DOMAIN, 1, "swap"))  # type: ignore[arg-type]


def test_to_arrow_keeps_null_and_nan_apart() -> None:
    arrow = to_arrow(((None, 1), (math.nan, 2)), ["x", "id"], ["double", "int64"])
    assert arrow.column("x").null_count == 1
    assert math.isnan(arrow.column("x")[1].as_py())
    assert to_arrow((), ["x"]).num_rows == 0
