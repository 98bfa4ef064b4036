"""Private intervals on every small table, from exact laws: the loss of the scans, and planted faults that exceed it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest

from dpsql.mechanisms.interval_scan import IntervalNoise
from dpsql.testing import check_exhaustively
from dpsql.testing.neighbours import RELATIONS, Relation, Row
from support.broken.interval import (
    added_threshold_law,
    closed_ends_law,
    moved_start_law,
    redrawn_threshold_law,
    told_rows_law,
)
from support.cases import cases
from support.laws.interval import Ends, ends_law, interval_law

Law = Callable[[Sequence[Any], int], Mapping[Ends, float]]
CELLS, ROWS = 4, 5
SCANS = Fraction(3, 5)


def noise_of(relation: Relation, scans: Fraction, rows: int = 1) -> IntervalNoise:
    """Return the product's noise whose scans have this loss."""
    return IntervalNoise(scans / SCANS, relation, rows, Fraction(1, 100))


def scale_of(relation: Relation, scans: Fraction, rows: int = 1) -> float:
    return float(noise_of(relation, scans, rows).scan_scale)


def loss(law: Callable[[Any], Any], relation: Relation, *, cells: int = CELLS, rows: int = ROWS) -> float:
    """Return the largest log ratio over all tables of so many rows in so many cells."""
    return check_exhaustively(
        lambda table: law([row[0] for row in table]), [(cell,) for cell in (*range(cells), None)], rows, relation
    ).log_ratio


def ends(start: int, scale: float, left: Any, law: Any = ends_law, cells: int = CELLS) -> Callable[[Any], Any]:
    return lambda rows: law(rows, cells, start, scale, left)


@cases("left", [0, 2, [1, 1, 4, 4, 4]])
@cases("epsilon", [Fraction(1, 2), Fraction(1), Fraction(2)])
@cases("relation", RELATIONS)
def test_scans_spend_what_they_claim(relation: Relation, epsilon: Fraction, left: Any) -> None:
    """From every start, and all of it from those between other cells; also where far cells stop a scan sooner."""
    scale = scale_of(relation, epsilon)
    losses = [loss(ends(start, scale, left), relation) for start in range(CELLS)]
    assert max(losses) <= float(epsilon) * (1 + 1e-9)
    assert max(losses) > 0.999 * float(epsilon)


@pytest.mark.parametrize("relation", RELATIONS)
def test_scans_of_units_with_two_rows(relation: Relation) -> None:
    units: list[Row] = [
        *((cell,) for cell in range(CELLS)),
        *itertools.combinations_with_replacement(range(CELLS), 2),
    ]
    scale = scale_of(relation, Fraction(1), 2)
    losses = [
        check_exhaustively(
            lambda table: ends_law(list(itertools.chain.from_iterable(table)), CELLS, start, scale, 2),  # noqa: B023
            units,
            3,
            relation,
            key=lambda table: tuple(sorted(itertools.chain.from_iterable(table))),
        ).log_ratio
        for start in range(CELLS)
    ]
    assert 0.95 < max(losses) <= 1 + 1e-9


@pytest.mark.parametrize("left", [2, None])
@pytest.mark.parametrize("relation", RELATIONS)
def test_start_and_scans_stay_within_their_shares(relation: Relation, left: int | None) -> None:
    epsilon = Fraction(4)
    found = loss(
        lambda rows: interval_law(rows, 6, epsilon=epsilon, neighbours=relation, left=left), relation, cells=6, rows=3
    )
    assert found <= 4 * 0.85 * (1 + 1e-9)
    if left == 2:
        assert found > 4 * 0.7


def test_a_row_that_changes_its_group_costs_what_one_in_a_group_does() -> None:
    """Two groups: a replaced row leaves the scans of one and enters those of the other."""
    scale = scale_of("replace", Fraction(1))

    def law(table: Any) -> Mapping[Any, float]:
        laws = [ends_law([cell for group, cell in table if group == one], 3, 0, scale, 2) for one in range(2)]
        return {(first, second): p * q for (first, p), (second, q) in itertools.product(*(law.items() for law in laws))}

    domain = [(group, cell) for group in range(2) for cell in range(3)]
    found = check_exhaustively(law, domain, 4, "replace").log_ratio
    assert 0.99 < found <= 1 + 1e-9


# --- planted faults

# Law, cells, largest number of rows, and how often the scans spend what they claim.
FAULTS: dict[str, tuple[Any, int, int, float]] = {
    "closed": (closed_ends_law, 5, 3, 2.0),
    "redrawn": (lambda *given: ends_law(*given, scan=redrawn_threshold_law), CELLS, ROWS, 1.5),
    "added": (lambda *given: ends_law(*given, scan=added_threshold_law), CELLS, ROWS, math.inf),
    "moved start": (moved_start_law, CELLS, ROWS, math.inf),
    "told rows": (told_rows_law, 2, 2, math.inf),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_spend_more(fault: str) -> None:
    law, cells, rows, times = FAULTS[fault]
    scale = scale_of("add_remove", Fraction(1))
    losses = [loss(ends(start, scale, 2, law, cells), "add_remove", cells=cells, rows=rows) for start in range(cells)]
    assert max(losses) == pytest.approx(times, abs=0.01)


def test_the_scale_of_an_added_row_is_not_enough_for_a_replaced_one() -> None:
    scale = scale_of("add_remove", Fraction(1))
    assert loss(ends(1, scale, 2), "replace") == pytest.approx(1.5, abs=0.01)


@pytest.mark.parametrize(("relation", "factor"), [("add_remove", 2), ("replace", 3)])
def test_the_noise_is_that_of_the_proof(relation: Relation, factor: int) -> None:
    for rows in (1, 3):
        noise = IntervalNoise(Fraction(2), relation, rows, Fraction(1, 100))
        assert noise.scan_scale == Fraction(factor * rows) / Fraction("1.2")
        assert noise.rows_left == math.ceil(2 * noise.scan_scale)
        assert noise.rows_left_far == math.ceil(9 * noise.scan_scale)
        assert noise.count_scale == Fraction((factor - 1) * rows) / Fraction("0.3")
        assert noise.start_epsilon == Fraction(1, 2)
        assert noise.event.cost.epsilon == 2
        assert noise.event.cost.rho == Fraction(1, 4) / 8 + (Fraction(36, 25) + Fraction(9, 100)) / 2
        tails = IntervalNoise(Fraction(2), relation, rows, Fraction(1, 100), tails=True)
        assert tails.scan_scale == Fraction(factor * rows) * Fraction(60, 62)
        assert tails.count_scale == noise.count_scale
        assert tails.start_epsilon == Fraction(2, 3)
        assert tails.event.cost.epsilon == 2
