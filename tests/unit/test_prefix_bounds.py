"""Bounds of several columns from noisy prefix sums: what is released is exact, and nothing is told that noise explains."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.errors import ParameterError
from dpsql.kernels.cells import FINE_CELLS, ZERO_FINE, MagnitudeCounts, fine_edges
from dpsql.mechanisms import prefix_bounds as module
from dpsql.mechanisms.gaussian import GaussianRelease
from dpsql.mechanisms.prefix_bounds import PrefixMatrix, prefix_bounds, rows_needed
from dpsql.testing.bits import SeededBits
from support.columns import odd_columns

ROWS = 20_000
SMALLEST = float(fine_edges()[ZERO_FINE + 1])
COLUMNS = odd_columns(ROWS)


def counted(*columns: Any) -> np.ndarray:
    magnitudes = MagnitudeCounts(len(columns))
    magnitudes.add(np.array([np.asarray(column, dtype=np.float64) for column in columns]))
    return magnitudes.counts


def bounds(*columns: Any, mu: Any = 1, neighbours: str = "add_remove", **more: Any) -> list[Any]:
    each = Fraction(mu) ** 2 / max(1, len(columns))
    return prefix_bounds(counted(*columns), squared_mus=[each] * len(columns), neighbours=neighbours, **more)


def dense(cells: int) -> np.ndarray:
    """The matrix of the products in multiples of 2**-20, from the binomial coefficients of 1 / sqrt(1 - z)."""
    column = [math.floor(Fraction(math.comb(2 * k, k), 4**k) * 2**20) for k in range(cells)]
    return np.array([[column[i - j] if i >= j else 0 for j in range(cells)] for i in range(cells)], dtype=object)


def test_products_are_exact_and_prefix_sums_come_back() -> None:
    matrix, exact = PrefixMatrix.of(60), dense(60)
    counts = np.random.default_rng(0).integers(0, 1 << 20, 60)
    assert (matrix.products(counts) == exact @ counts).all()
    assert matrix.sums(matrix.products(counts) / 2.0**20) == pytest.approx(np.cumsum(counts), rel=1e-9)
    columns = [sum(int(value) ** 2 for value in column) for column in exact.T]
    assert matrix.squared == max(columns) == columns[0]
    # Its square is the matrix of prefix sums, but for the rounding.
    square = (exact @ exact).astype(float) / 4.0**20
    assert square == pytest.approx(np.tri(60), abs=1e-3)


def test_the_norm_of_all_cells_is_that_of_the_specification() -> None:
    matrix = PrefixMatrix.of(FINE_CELLS)
    norm = math.sqrt(matrix.squared) / 2**20
    assert 3.716 <= norm * matrix.prefix_deviation <= 3.717


@pytest.mark.parametrize(("first", "last"), [(0, 59), (0, 0), (20, 25), (59, 59), (3, 58)])
def test_the_deviation_of_a_share_is_that_of_its_form(first: int, last: int) -> None:
    matrix = PrefixMatrix.of(60)
    back = np.tri(60) @ np.linalg.inv(dense(60).astype(float) / 2.0**20)
    form = back[last] - (back[first - 1] if first else 0.0) - module._HELD * back[-1]
    assert matrix.deviation(first, last) == pytest.approx(np.linalg.norm(form), rel=1e-6)
    assert matrix.prefix_deviation == pytest.approx(np.linalg.norm(back, axis=1).max(), rel=1e-6)
    octave = np.linalg.norm(back[40] - back[24])
    assert octave <= matrix.range_deviation * (1 + 1e-9)
    assert octave == pytest.approx(matrix.range_deviation, rel=0.02)


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("name", COLUMNS)
def test_bounds_hold_the_bulk(name: str, neighbours: str) -> None:
    values = np.asarray(COLUMNS[name], dtype=np.float64)
    (found,) = bounds(values, mu=Fraction(1, 2), neighbours=neighbours, source=SeededBits(len(name)))
    lower, upper = found
    known = np.clip(values[~np.isnan(values)], fine_edges()[0], fine_edges()[-1])
    assert np.mean((known >= lower) & (known <= upper)) > 0.98
    assert math.isfinite(lower)
    assert math.isfinite(upper)
    if name == "binary":
        assert -1e-15 < lower <= 0
        assert 1 < upper <= 1.5
    elif name == "zeros":
        assert found == module.ZEROS
    elif name != "constant":
        # Cells are as wide as a sixteenth of a value, or half of that.
        wide = np.ptp(np.quantile(known, [0.01, 0.99])) + np.abs(known).max() / 8
        assert upper - lower < 20 * wide


def test_zeros_are_told_from_tiny_values_whatever_the_noise() -> None:
    """Bounds beside zero that noise alone draws would make a coefficient of 1e20."""
    zeros = np.zeros((60, ROWS))
    assert bounds(*zeros, mu=60, source=SeededBits(1)) == [module.ZEROS] * 60
    tiny = np.repeat([0.0, 3 * SMALLEST], ROWS // 2)
    assert bounds(tiny, source=SeededBits(2))[0] != module.ZEROS


@pytest.mark.parametrize("values", [[], [math.nan] * 9, [4.5] * 5], ids=str)
def test_without_rows_there_are_no_bounds(values: Any) -> None:
    for _ in range(100):
        assert bounds(values, values, neighbours="replace", max_rows_per_unit=2) == [None, None]


def test_noise_alone_is_taken_for_rows_as_rarely_as_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rows in 1,000 columns: at most 1 % by the statement; with a tenth of the margin, many are found."""
    columns = np.zeros((1000, FINE_CELLS), dtype=np.int64)

    def found() -> int:
        drawn = [
            prefix_bounds(column[np.newaxis], squared_mus=[Fraction(1)], neighbours="add_remove", source=SeededBits(n))
            for n, column in enumerate(columns)
        ]
        return sum(pair is not None for (pair,) in drawn)

    assert found() <= 10
    right = module._farthest
    monkeypatch.setattr(module, "_farthest", lambda *given: right(*given) / 10)
    assert found() > 50


def test_few_rows_suffice_for_one_column_and_more_for_many() -> None:
    one, many = (rows_needed(Fraction(1), width, "add_remove") for width in (1, 50))
    assert 60 < one < 70
    assert one < many < 1.2 * one
    values = COLUMNS["normal"][:150]
    assert sum(bounds(values)[0] is not None for _ in range(40)) >= 38
    assert sum(bounds(values[: round(one / 4)])[0] is not None for _ in range(40)) <= 2
    assert rows_needed(Fraction(1), 1, "replace") == pytest.approx(math.sqrt(2) * one)
    assert rows_needed(Fraction(1, 4), 1, "add_remove", 3) == pytest.approx(6 * one)


@pytest.mark.parametrize("mu", [Fraction(1, 100), Fraction(1), Fraction(50), Fraction(10**6)])
def test_the_noise_that_is_asked_for(monkeypatch: pytest.MonkeyPatch, mu: Fraction) -> None:
    asked: list[dict[str, Any]] = []

    def record(counts: np.ndarray, **given: Any) -> GaussianRelease:
        asked.append({"counts": counts, **given})
        return GaussianRelease(counts.astype(float), 1.0)

    monkeypatch.setattr(module, "gaussian_counts", record)
    shares = [mu**2 / 4, mu**2 / 4, mu**2 / 2]
    prefix_bounds(counted([3.0], [-1.0], [0.0]), squared_mus=shares, neighbours="replace", max_rows_per_unit=3)
    matrix = PrefixMatrix.of(FINE_CELLS)
    assert [one["squared_sensitivity"] for one in asked] == [2 * 9 * matrix.squared] * 3
    assert [one["squared_mu"] for one in asked] == [min(share, Fraction(64)) for share in shares]


def test_no_columns() -> None:
    assert bounds() == []


@pytest.mark.parametrize(
    "changed",
    [
        {"squared_mus": [Fraction(0)]},
        {"squared_mus": [0.5]},
        {"squared_mus": []},
        {"neighbours": "both"},
        {"max_rows_per_unit": 0},
        {"failure": Fraction(0)},
        {"failure": Fraction(1)},
        {"failure": 0.5},
    ],
    ids=str,
)
def test_what_is_refused(changed: dict[str, Any]) -> None:
    given: dict[str, Any] = {"squared_mus": [Fraction(1)], "neighbours": "add_remove", **changed}
    with pytest.raises(ParameterError, match="P018"):
        prefix_bounds(counted([1.0]), **given)
