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
from dpsql.mechanisms.quantile import halving_levels, quantile_event, quantiles
from dpsql.testing.laws import select_law
from dpsql.testing.quantile import quantile_law

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
    """Return the law of the cuts along the product's own path: every selection takes every outcome in turn."""
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
        cuts = tuple(quantiles(np.array(counts), **arguments))
        assert cuts not in law
        law[cuts] = float(np.prod(chances))
    return law


@pytest.mark.parametrize("max_rows_per_unit", [1, 3])
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("chosen", LISTS, ids=str)
def test_the_path_has_the_law(
    monkeypatch: pytest.MonkeyPatch, chosen: list[Fraction], neighbours: str, max_rows_per_unit: int
) -> None:
    arguments: dict[str, Any] = {
        "quantiles": chosen,
        "epsilon": Fraction(7, 2),
        "neighbours": neighbours,
        "max_rows_per_unit": max_rows_per_unit,
    }
    for counts in ([0, 0, 0], [3, 1, 4], [9, 0, 0], [0, 0, 2], [1, 17, 2], [5]):
        rows = [cell for cell, count in enumerate(counts) for _ in range(count)]
        found = path_law(monkeypatch, counts, **arguments)
        expected = quantile_law([*rows, None], len(counts), **arguments)
        assert found.keys() == expected.keys()
        assert [found[cuts] for cuts in expected] == pytest.approx(list(expected.values()), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_cuts_are_exact_as_epsilon_grows(neighbours: str) -> None:
    generator = np.random.default_rng(0)
    # 400 rows of which no cell has more than one: the best cut for a rank is the cut at that rank.
    counts = np.zeros(2000, dtype=np.int64)
    cells = np.sort(generator.choice(2000, 400, replace=False))
    counts[cells] = 1
    chosen = [Fraction(number, 8) for number in range(1, 8)]
    for _ in range(5):
        cuts = quantiles(counts, quantiles=chosen, epsilon=Fraction(10**4), neighbours=neighbours)
        assert [int(counts[:cut].sum()) for cut in cuts] == [50, 100, 150, 200, 250, 300, 350]


def test_cuts_ascend_in_the_order_of_the_quantiles() -> None:
    counts = np.array([4, 0, 0, 9, 1, 1, 0, 3])
    for chosen in (*LISTS, [Fraction(number, 21) for number in range(1, 21)]):
        for neighbours in ("add_remove", "replace"):
            cuts = quantiles(counts, quantiles=chosen, epsilon=Fraction(1, 10), neighbours=neighbours)
            assert len(cuts) == len(chosen)
            assert all(0 <= first <= second <= 8 for first, second in itertools.pairwise(cuts)), cuts
            assert all(isinstance(cut, int) for cut in cuts)


def test_cuts_fall_between_the_values_next_to_a_quantile() -> None:
    counts = np.zeros(1000, dtype=np.int64)
    counts[[100, 300, 301, 800]] = [20_000, 25_000, 40_000, 15_000]
    first, median, third = quantiles(counts, **GIVEN)
    # Shares below the cuts after the four values: 0.2, 0.45, 0.85, 1. Between two values all cuts are equally good.
    assert 100 < first <= 300
    assert median == 301
    assert 301 < third <= 800


def test_a_sub_range_without_cells_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def choose(utility: Any, **_: Any) -> list[int]:
        sizes.append(len(utility))
        return [0]

    monkeypatch.setattr(module, "select", choose)
    assert quantiles(np.array([5, 5]), **GIVEN) == [0, 0, 0]
    # The whole table; nothing below cut 0; both cells above it.
    assert sorted(sizes) == [3, 3]


def test_long_numbers() -> None:
    """Counts and denominators whose product is beyond 64 bits."""
    counts = np.array([1 << 40, 0, 1 << 40, 1])
    odd = Fraction(10**30 // 2 + 1, 10**30)
    cuts = quantiles(counts, quantiles=[odd], epsilon=Fraction(1), neighbours="add_remove")
    assert cuts in ([1], [2])
    assert quantiles(np.zeros(3, dtype=np.int64), quantiles=[odd], epsilon=Fraction(1), neighbours="replace")[0] <= 3


def test_levels_and_event() -> None:
    assert [halving_levels(count) for count in (1, 2, 3, 4, 7, 8)] == [1, 2, 2, 3, 3, 4]
    for neighbours in ("add_remove", "replace"):
        event = quantile_event(Fraction(1, 3), 2, neighbours)
        assert event == {"mechanism": "gumbel_noise", "epsilon": "1/3", "rounds": 2}
    with pytest.raises(ParameterError) as caught:
        quantile_event(Fraction(1), 1, "both")
    assert caught.value.code == "DPSQL-P007"


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"epsilon": Fraction(0)}, "P001"),
        ({"epsilon": 1.0}, "P001"),
        ({"neighbours": "both"}, "P007"),
        ({"max_rows_per_unit": 0}, "P009"),
        ({"max_rows_per_unit": 1.5}, "P009"),
        ({"quantiles": []}, "P029"),
        ({"quantiles": [Fraction(0)]}, "P029"),
        ({"quantiles": [Fraction(1)]}, "P029"),
        ({"quantiles": [0.5]}, "P029"),
        ({"quantiles": [HALF, HALF]}, "P029"),
        ({"quantiles": [Fraction(3, 4), HALF]}, "P029"),
    ],
)
def test_what_is_refused(changed: dict[str, Any], code: str) -> None:
    with pytest.raises(ParameterError) as caught:
        quantiles(np.array([1, 2]), **{**GIVEN, **changed})
    assert caught.value.code == f"DPSQL-{code}"
