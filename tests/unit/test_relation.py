"""The relation alone turns the moves of one row into sensitivities: checked against every choice of rows."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest

from dpsql.contract.relation import NEIGHBOURS, Relation, relation_of
from dpsql.errors import ParameterError
from support.cases import cases


def exchanges(relation: Relation, terms: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the changes of a sum of vectors over all neighbours, for rows with one of these terms each."""
    units = [
        unit
        for size in range(relation.rows + 1)
        for unit in itertools.combinations_with_replacement(terms, size)
        if relation.kind == "replace" or unit
    ]
    width = len(terms[0])
    sums = [tuple(sum(row[place] for row in unit) for place in range(width)) for unit in units]
    if relation.kind == "add_remove":
        return [*sums, *(tuple(-part for part in one) for one in sums)]
    return [tuple(a - b for a, b in zip(new, old, strict=True)) for new in sums for old in sums]


@cases("rows", [1, 2, 3], quick=1)
@cases("kind", NEIGHBOURS)
def test_bounds_are_attained_and_never_passed(kind: str, rows: int) -> None:
    relation = relation_of(kind, rows)
    signed = exchanges(relation, [(3, 4), (-3, -4), (0, 0)])
    assert max(abs(a) for a, _ in signed) == relation.norm(3)
    assert max(a * a + b * b for a, b in signed) == relation.squared_norm(25, opposing=True)
    cells = exchanges(relation, [(1, 0), (0, 1)])
    assert max(a * a + b * b for a, b in cells) == relation.squared_norm(1, opposing=False)
    assert max(abs(a) + abs(b) for a, b in cells) == relation.norm(1)
    rising = exchanges(relation, [(5,), (2,), (0,)])
    assert max(abs(a) for (a,) in rising) == relation.rise(5)
    # A row moves two scores by something in [-1, 2]: how far apart do they come?
    scores = exchanges(relation, [(-1, 2), (2, -1), (2, 2)])
    assert max(abs(a - b) for a, b in scores) == relation.spread(3)


def test_what_a_statistic_states_of_both() -> None:
    assert relation_of("add_remove").pick(Fraction(5, 2), Fraction(4)) == Fraction(5, 2)
    assert relation_of("replace").pick(Fraction(5, 2), Fraction(4)) == 4
    assert relation_of("add_remove", 7).norm(Fraction(1, 2)) == Fraction(7, 2)
    assert relation_of("replace", 7) == relation_of("replace", 7) != relation_of("add_remove", 7)


@pytest.mark.parametrize("given", [("swap", 1), ("replace", 0), ("replace", 1.5), ("add_remove", -1)])
def test_other_relations_are_refused(given: tuple[str, int]) -> None:
    with pytest.raises(ParameterError, match="P018"):
        relation_of(*given)
