"""dp_compare through SQL on neighbouring tables: what its noise lets tell apart, and planted faults.

The samplers are replaced by ones that add nothing and record their scales. Then a release holds the exact numbers, and
the loss of a pair of tables is the sum over all numbers of how far they move, in units of their scale. A number for
which no noise was drawn has an infinite loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.functions import compare
from dpsql.mechanisms import aggregates, auc, laplace
from dpsql.testing.neighbours import RELATIONS, Relation, random_pairs, random_unit_pairs, to_arrow
from dpsql.testing.sql import load
from support.broken.comparison import BROKEN_COMPARISON, broken_comparison
from support.cases import cases

EPSILON = 0.7
GROUPS = "groups := 'g', keys := [0, 1]"
SCORES = "scores := ['a', 'b'], label := 'g', target_levels := [0, 1]"
CASES = {
    "mean": f"of := 'mean', target := 'a', lower := 0, upper := 1, {GROUPS}",
    "mean of these rows": f"of := 'mean', target := 'a', lower := 0, upper := 1, sampling := false, {GROUPS}",
    "share": f"of := 'share', target := 'a', {GROUPS}",
    "count": f"of := 'count', {GROUPS}",
    "error": f"of := 'error', {SCORES}",
    "absolute error": f"of := 'error', loss := 'absolute', lower := 0, upper := 1, {SCORES}",
    "auc": f"of := 'auc', cells := 64, {SCORES}",
    "auc of these rows": f"of := 'auc', cells := 64, sampling := false, {SCORES}",
}
UNIT = "privacy_unit := 'owner', max_rows_per_unit := 3"
VIEW = (
    "CREATE OR REPLACE VIEW t AS SELECT * EXCLUDE (g), CASE WHEN g > 0.6 THEN 1 WHEN g > 0.2 THEN 0 END AS g FROM raw"
)
Numbers = list[tuple[int, Fraction]]


@contextmanager
def exact_numbers(into: list[Numbers]) -> Iterator[None]:
    """Record every integer that a call releases, with the scale of its noise; noise is 0."""
    scales: list[Fraction] = []

    def nothing(scale: Fraction, size: int, *rest: Any, source: Any = None) -> np.ndarray[Any, Any]:
        scales.extend([Fraction(scale)] * size)
        return np.zeros(size, dtype=np.int64)

    real = compare._with_needed

    def record(plan: Any, found: Any) -> Any:
        numbers = released(plan, found)
        drawn = [*scales, *[Fraction(0)] * (len(numbers) - len(scales))]
        into.append(list(zip(numbers, drawn, strict=True)))
        scales.clear()
        return real(plan, found)

    with pytest.MonkeyPatch.context() as patch:
        for module in (aggregates, auc, laplace):
            patch.setattr(module, "discrete_laplace", nothing)
        patch.setattr(compare, "_with_needed", record)
        yield


def released(plan: Any, found: Any) -> list[int]:
    """Return the integers of a release, in the order of their noise."""
    if plan.of != "auc":
        blocks = [compare_block(stored) for stored in found["blocks"]]
        return [int(value) for block in blocks for value in block.words.integers().ravel()]
    area, bits = found["area"], plan.area_part.bits
    numbers = [round(math.ldexp(area[name], bits)) for name in ("difference", "total")]
    numbers += [round(area[name]) for name in ("positives", "negatives")]
    if area["disagreement"] is not None:
        numbers.append(round(math.ldexp(area["disagreement"], plan.pairs_bits)))
    return numbers


def compare_block(stored: Any) -> Any:
    from dpsql.released.aggregates import restored_block

    return restored_block(stored)


def loss(connection: Any, call: str, pair: tuple[Any, Any]) -> float:
    """Return the loss of a pair of tables."""
    found: list[Numbers] = []
    with exact_numbers(found):
        for table in pair:
            load(connection, table, "raw")
            connection.execute(VIEW)
            connection.execute(f"FROM dp_compare('t', epsilon := {EPSILON}, {call})").fetchall()
    total = 0.0
    for (one, scale), (other, _) in zip(*found, strict=True):
        total += 0.0 if one == other else float(abs(one - other) / scale) if scale else math.inf
    return total


@pytest.fixture(scope="module")
def connection() -> Iterator[Any]:
    with dpsql.connect() as opened:
        yield opened


@cases("relation", RELATIONS, quick=2)
@cases("name", CASES)
def test_rows(connection: Any, name: str, relation: Relation) -> None:
    """NULL, NaN, infinities, ties, rows of neither group."""
    pairs = random_pairs(11, relation, columns=3, count=6, lower=0.0, upper=1.0)
    tables = [tuple(to_arrow(table, ["g", "a", "b"], ["double"] * 3) for table in pair) for pair in pairs]
    found = [loss(connection, f"{CASES[name]}, neighbours := '{relation}'", (one, other)) for one, other in tables]
    assert max(found) <= EPSILON * (1 + 1e-9)
    assert max(found) > 0


@cases("relation", RELATIONS, quick=1)
@cases("name", ["mean", "count", "error", "auc"])
def test_units(connection: Any, name: str, relation: Relation) -> None:
    """All rows of a unit, of which three count."""
    pairs = random_unit_pairs(3, relation, columns=3, count=4, max_rows_per_unit=5, lower=0.0, upper=1.0)
    names, types = ["owner", "g", "a", "b"], ["int64", "double", "double", "double"]
    call = f"{CASES[name]}, {UNIT}, neighbours := '{relation}'"
    for pair in pairs:
        one, other = (to_arrow(table, names, types) for table in pair)
        assert loss(connection, call, (one, other)) <= EPSILON * (1 + 1e-9)


NEGATIVES = "SELECT i AS owner, 0.5 AS g, 0.5 AS a, 0.5 AS b FROM range(8) AS r(i)"


def tables(*rows: str) -> tuple[str, str]:
    both = f"{NEGATIVES} UNION ALL {' UNION ALL '.join(rows)}"
    return f"CREATE OR REPLACE TABLE raw AS {NEGATIVES}", f"CREATE OR REPLACE TABLE raw AS {both}"


FIRST_AND_LAST = tables("SELECT 99, 1, 1, 0")
THREE = tables("SELECT 99, 1, 1, 0 FROM range(3)")
FAULTS = {
    "sensitivity of one score": ("auc", "", FIRST_AND_LAST),
    "class sizes without noise": ("auc", "", FIRST_AND_LAST),
    "squares without noise": ("mean", "", FIRST_AND_LAST),
    "one row of a unit": ("mean", UNIT, THREE),
    "disagreement for one row": ("auc", UNIT, THREE),
}


def test_every_fault_is_tried() -> None:
    assert set(FAULTS) == set(BROKEN_COMPARISON)


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults(connection: Any, name: str) -> None:
    case, more, pair = FAULTS[name]
    call = ", ".join([CASES[case], *([more] if more else [])])
    assert loss(connection, call, pair) <= EPSILON * (1 + 1e-9)
    with broken_comparison(name):
        assert loss(connection, call, pair) > EPSILON * 1.05
