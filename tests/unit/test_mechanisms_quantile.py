"""Private quantiles: the path through the product has the exact law, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.errors import ParameterError
from dpsql.mechanisms import quantile as module
from dpsql.mechanisms.quantile import halving_levels, parts_of_a_cell, quantile_event, quantiles, tied_quantiles
from dpsql.testing import check_exhaustively
from support.cases import cases
from support.laws.quantile import quantile_law
from support.laws.selection import select_law

HALF = Fraction(1, 2)
QUARTILES = [Fraction(1, 4), HALF, Fraction(3, 4)]
LISTS = [
    [HALF],
    [Fraction(9, 10)],
    [Fraction(1, 3), Fraction(2, 3)],
    QUARTILES,
    [HALF, Fraction(3, 4), Fraction(9, 10), Fraction(99, 100)],
]
GIVEN: dict[str, Any] = {"quantiles": QUARTILES, "epsilon": Fraction(1), "neighbours": "add_remove"}


def path_law(monkeypatch: pytest.MonkeyPatch, counts: Sequence[int], **arguments: Any) -> dict[Any, float]:
    """Return the law of the cells along the product's own path: every selection takes every outcome in turn."""
    law: dict[Any, float] = {}
    pending: list[tuple[int, ...]] = [()]
    while pending:
        script = pending.pop()
        drawn: list[int] = []
        chances: list[float] = []

        def choose(
            utility: Any,
            *,
            source: Any,
            script: tuple[int, ...] = script,
            drawn: list[int] = drawn,
            chances: list[float] = chances,
            **given: Any,
        ) -> list[int]:
            options = select_law([int(value) for value in utility], **given)
            if len(drawn) < len(script):
                choice = script[len(drawn)]
            else:
                choice = 0
                pending.extend((*drawn, other) for other in range(1, len(options)))
            drawn.append(choice)
            chances.append(options[choice,])
            return [choice]

        monkeypatch.setattr(module, "select", choose)
        cells = tuple(quantiles(np.array(counts), **arguments))
        assert cells not in law
        law[cells] = float(np.prod(chances))
    return law


@cases("max_rows_per_unit", [1, 3], quick=5)
@cases("neighbours", ["add_remove", "replace"])
@cases("chosen", LISTS, ids=str)
def test_the_path_has_the_law(
    monkeypatch: pytest.MonkeyPatch, chosen: list[Fraction], neighbours: str, max_rows_per_unit: int
) -> None:
    arguments: dict[str, Any] = {
        "quantiles": chosen,
        "epsilon": Fraction(7, 2),
        "neighbours": neighbours,
        "max_rows_per_unit": max_rows_per_unit,
    }
    for counts in ([0, 0, 0], [3, 1, 4], [9, 0, 0], [0, 0, 2], [1, 17, 2], [5], [2, 0, 9, 1]):
        rows = [cell for cell, count in enumerate(counts) for _ in range(count)]
        found = path_law(monkeypatch, counts, **arguments)
        expected = quantile_law([*rows, None], len(counts), **arguments)
        assert found.keys() == expected.keys()
        assert [found[cells] for cells in expected] == pytest.approx(list(expected.values()), rel=1e-9, abs=1e-12)


def test_the_range_of_a_selection_is_that_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replaced row moves ranks by 2 in the whole table, in a sub-range by 4 max(q, 1 - q), and in each of the parts."""
    found: list[int] = []
    original = module.select

    def noted(utility: Any, *, utility_range: int, **more: Any) -> Any:
        found.append(utility_range)
        return original(utility, utility_range=utility_range, **more)

    monkeypatch.setattr(module, "select", noted)
    at, counts = [Fraction(1, 10), Fraction(1, 2), Fraction(9, 10)], np.full(64, 9)
    given: dict[str, Any] = {"epsilon": Fraction(1000), "neighbours": "replace"}
    quantiles(counts, quantiles=at, **given)
    ranges = [2 * 2, 4 * 4, 4 * 4]  # in units of a row over the denominator of q: 1/2, 4/5 and 1/5
    assert found == ranges
    found.clear()
    tied_quantiles(counts, at=at, **given)
    parts = parts_of_a_cell(len(counts), len(at))
    assert parts > 1
    assert found == [parts * one for one in ranges]


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_cells_are_exact_as_epsilon_grows(neighbours: str) -> None:
    generator = np.random.default_rng(0)
    # 399 rows of which no cell has more than one.
    counts = np.zeros(2000, dtype=np.int64)
    occupied = np.sort(generator.choice(2000, 399, replace=False))
    counts[occupied] = 1
    for numbers in ([200], [100, 300], [50, 100, 150, 200, 250, 300, 350]):
        chosen = [Fraction(number, 400) for number in numbers]
        for _ in range(5):
            cells = quantiles(counts, quantiles=chosen, epsilon=Fraction(10**4), neighbours=neighbours)
            ranks = np.array(numbers) / 400 * 399
            before, until = np.searchsorted(occupied, cells), np.searchsorted(occupied, cells, side="right")
            # The rows of a released cell all go left: at most one rank for each level above.
            assert np.maximum(before - ranks, ranks - until).max() <= halving_levels(len(numbers)) - 1


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_one_quantile_of_tied_rows_is_exact_as_epsilon_grows(neighbours: str) -> None:
    generator = np.random.default_rng(1)
    for shares in (3, 7, 40):
        rows = generator.binomial(20, 0.3, 1000) * generator.integers(1, shares, 1000) % 31
        counts = np.bincount(rows, minlength=40)
        for quantile in (Fraction(1, 1001), Fraction(1, 3), Fraction(499, 999), Fraction(9, 11), Fraction(1000, 1001)):
            # No rank is an integer, so that one cell is right.
            expected = np.quantile(rows, float(quantile), method="inverted_cdf")
            found = quantiles(counts, quantiles=[quantile], epsilon=Fraction(10**6), neighbours=neighbours)
            assert found == [expected]


def test_a_rank_between_two_rows_allows_the_cells_of_both_and_those_between() -> None:
    counts = np.array([0, 0, 5, 0, 0, 5, 0])
    given: dict[str, Any] = {**GIVEN, "quantiles": [HALF], "epsilon": Fraction(10**6)}
    found = {quantiles(counts, **given)[0] for _ in range(300)}
    assert found == {2, 3, 4, 5}  # one of four is missing once in 10**37


@cases("neighbours", ["add_remove", "replace"])
@cases("ones", [7500, 5100, 2400])
def test_zeros_and_ones(ones: int, neighbours: str) -> None:
    counts = np.zeros(1024, dtype=np.int64)
    counts[[512, 576]] = [10_000 - ones, ones]
    for quantile in (Fraction(1, 5), HALF, Fraction(4, 5)):
        cells = quantiles(counts, quantiles=[quantile], epsilon=Fraction(10**6), neighbours=neighbours)
        assert cells == [576 if quantile > 1 - Fraction(ones, 10_000) else 512]


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_a_constant_column(neighbours: str) -> None:
    counts = np.zeros(1024, dtype=np.int64)
    counts[700] = 10_000
    for quantile in (Fraction(1, 100), HALF, Fraction(99, 100)):
        found = quantiles(counts, quantiles=[quantile], epsilon=Fraction(10**6), neighbours=neighbours)
        assert found == [700]
    first, median, third = quantiles(counts, **{**GIVEN, "epsilon": Fraction(10**6), "neighbours": neighbours})
    # No rows are left above the median's cell: what is there is drawn evenly.
    assert first == median == 700 <= third


def test_cells_ascend_in_the_order_of_the_quantiles() -> None:
    counts = np.array([4, 0, 0, 9, 1, 1, 0, 3])
    for chosen in (*LISTS, [Fraction(number, 21) for number in range(1, 21)]):
        for neighbours in ("add_remove", "replace"):
            cells = quantiles(counts, quantiles=chosen, epsilon=Fraction(1, 10), neighbours=neighbours)
            assert len(cells) == len(chosen)
            assert all(0 <= first <= second < 8 for first, second in itertools.pairwise([0, *cells])), cells
            assert all(isinstance(cell, int) for cell in cells)


def scripted(monkeypatch: pytest.MonkeyPatch, choices: Sequence[int]) -> list[list[int]]:
    """Let selections take these candidates; return what their utilities will be."""
    seen: list[list[int]] = []

    def choose(utility: Any, **_: Any) -> list[int]:
        seen.append([int(value) for value in utility])
        return [choices[len(seen) - 1]]

    monkeypatch.setattr(module, "select", choose)
    return seen


def test_the_rows_of_a_released_cell_go_left(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = scripted(monkeypatch, [2, 1, 2])
    assert quantiles(np.array([1, 2, 4, 8, 3]), **GIVEN) == [2, 2, 3]
    # In halves of a row: rank 9 of 18; rank 5.5 of the 11 above cell 2, which has none of them; 3.5 of the 7 below.
    assert seen == [[-16, -12, -4, 0, -12], [-11, 0, -5], [-5, -1, 0]]


def test_a_sub_range_without_rows_answers_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = np.array([0, 7, 0, 0, 0])
    seen = scripted(monkeypatch, [2, 1, 2])
    assert quantiles(counts, **GIVEN) == [2, 2, 3]
    assert seen == [[-7, 0, -7, -7, -7], [0, 0, 0], [-7, 0, -7]]
    monkeypatch.undo()
    for _ in range(50):
        first, median, third = quantiles(counts, **GIVEN)
        assert 0 <= first <= median <= third <= 4


def test_a_sub_range_of_one_cell_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = scripted(monkeypatch, [0, 0])
    assert quantiles(np.array([5, 5]), **GIVEN) == [0, 0, 0]
    # The whole table; cell 0 alone is left of it; both cells are to the right, where cell 0 has no rows.
    assert seen == [[0, 0], [-5, 0]]
    seen = scripted(monkeypatch, [])
    assert quantiles(np.array([5]), **GIVEN) == [0, 0, 0]
    assert seen == []


def test_long_numbers() -> None:
    """Counts and denominators whose product is beyond 64 bits."""
    counts = np.array([1 << 40, 0, (1 << 40) + 2000, 1])
    odd = Fraction(10**30 // 2 + 1, 10**30)
    assert quantiles(counts, quantiles=[odd], epsilon=Fraction(1), neighbours="add_remove") == [2]
    assert quantiles(np.zeros(3, dtype=np.int64), quantiles=[odd], epsilon=Fraction(1), neighbours="replace")[0] < 3


def test_levels_and_event() -> None:
    assert [halving_levels(count) for count in (1, 2, 3, 4, 7, 8)] == [1, 2, 2, 3, 3, 4]
    for neighbours in ("add_remove", "replace"):
        event = quantile_event(Fraction(1, 3), 2, neighbours).to_json()
        assert event == {"mechanism": "gumbel_noise", "epsilon": "1/3", "rounds": 2}
    with pytest.raises(ParameterError) as caught:
        quantile_event(Fraction(1), 1, "both")
    assert caught.value.code == "DPSQL-P018"


@cases(
    ("changed", "code"),
    [
        ({"epsilon": Fraction(0)}, "P018"),
        ({"epsilon": 1.0}, "P018"),
        ({"neighbours": "both"}, "P018"),
        ({"max_rows_per_unit": 0}, "P018"),
        ({"max_rows_per_unit": 1.5}, "P018"),
        ({"quantiles": []}, "P018"),
        ({"quantiles": [Fraction(0)]}, "P018"),
        ({"quantiles": [Fraction(1)]}, "P018"),
        ({"quantiles": [0.5]}, "P018"),
        ({"quantiles": [HALF, HALF]}, "P018"),
        ({"quantiles": [Fraction(3, 4), HALF]}, "P018"),
    ],
)
def test_what_is_refused(changed: dict[str, Any], code: str) -> None:
    with pytest.raises(ParameterError) as caught:
        quantiles(np.array([1, 2]), **{**GIVEN, **changed})
    assert caught.value.code == f"DPSQL-{code}"


def exact_cells(values: list[int], at: list[Fraction]) -> list[set[int]]:
    """Cells whose rows reach from at most q n to at least q n."""
    rows = len(values)
    return [
        {
            value
            for value in set(values)
            if sum(other < value for other in values) <= q * rows <= sum(other <= value for other in values)
        }
        for q in at
    ]


@cases("neighbours", ["add_remove", "replace"])
@cases(
    "values",
    [
        [3] * 250 + [4] * 750,
        [3] * 400 + [4] * 600,
        [3] * 600 + [4] * 400,
        [5] * 1000,
        [0] * 100 + [7] * 900,
        [1, 2, 3, 4, 5, 6, 7, 8] * 100,
    ],
    ids=lambda values: f"{values[0]}-{values[-1]}-{len(set(values))}",
)
@cases("at", [[Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)], [Fraction(n, 10) for n in range(1, 10)]])
def test_quantiles_of_tied_rows(neighbours: str, values: list[int], at: list[Fraction]) -> None:
    """Without noise to speak of a quantile is off by a part of a cell's rows at most, level by level."""
    counts = np.bincount(values, minlength=10)
    found = tied_quantiles(counts, at=at, epsilon=Fraction(10**5), neighbours=neighbours)
    assert found == sorted(found)
    slack = Fraction(halving_levels(len(at)), 16)
    for cell, q in zip(found, at, strict=True):
        near = [Fraction(q) + slack * step for step in (-1, 0, 1)]
        inside = [Fraction(1, 10**6) if point <= 0 else min(point, 1 - Fraction(1, 10**6)) for point in near]
        low, _, high = (exact_cells(values, [point])[0] for point in inside)
        assert min(low) <= cell <= max(high)


@cases("neighbours", ["add_remove", "replace"], quick=2)
@cases("parts", [2, 3])
def test_parts_of_cells_keep_the_guarantee(neighbours: str, parts: int) -> None:
    """A row counts in every part of its cell; the noise is for that many rows."""
    at = [Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)]

    def law(table: Any) -> dict[Any, float]:
        rows = [row[0] * parts + part for row in table if row[0] is not None for part in range(parts)]
        found: dict[Any, float] = {}
        fine = quantile_law(
            rows, 3 * parts, quantiles=at, epsilon=Fraction(2), neighbours=neighbours, max_rows_per_unit=parts
        )
        for cells, chance in fine.items():
            key = tuple(cell // parts for cell in cells)
            found[key] = found.get(key, 0.0) + chance
        return found

    report = check_exhaustively(law, [(0,), (1,), (2,), (None,)], 3, neighbours)
    assert report.within(Fraction(2)), str(report)
    assert report.log_ratio > 0.5


def test_parts_are_public_and_bounded() -> None:
    assert parts_of_a_cell(1024, 1) == 1
    assert parts_of_a_cell(1024, 3) == 16
    assert parts_of_a_cell(1 << 18, 3) == 8
    assert parts_of_a_cell(1 << 20, 3) == 2
    assert parts_of_a_cell(1 << 21, 3) == 1
