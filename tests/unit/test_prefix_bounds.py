"""Bounds of several columns from noisy prefix sums: what is released is exact, and nothing is told that noise explains."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpsql.errors import ParameterError
from dpsql.kernels.cells import MOST_CELLS, ZERO_FINE, MagnitudeCounts, TypedCells, fine_edges
from dpsql.mechanisms import prefix_bounds as module
from dpsql.mechanisms.gaussian import GaussianRelease
from dpsql.mechanisms.prefix_bounds import UNDETERMINED, PrefixMatrix, prefix_bounds, rows_needed
from dpsql.testing.bits import SeededBits
from support.cases import cases
from support.columns import odd_columns

ROWS = 20_000
SMALLEST = float(fine_edges()[ZERO_FINE + 1])
COLUMNS = odd_columns(ROWS)


DOUBLE, TINYINT = pa.float64(), pa.int8()


def counted(columns: Any, cells: list[TypedCells]) -> list[np.ndarray]:
    """The exact counts of columns in cells, from those in fine cells."""
    magnitudes = MagnitudeCounts(len(columns))
    magnitudes.add(
        np.array([of.coded(np.asarray(one, dtype=np.float64)) for one, of in zip(columns, cells, strict=True)])
        if columns
        else np.empty((0, 1))
    )
    return [of.counts(fine) for of, fine in zip(cells, magnitudes.counts, strict=True)]


def drawn(*columns: Any, kind: pa.DataType = DOUBLE, mu: Any = 1, neighbours: str = "add_remove", **more: Any) -> Any:
    """What is drawn of columns of one type."""
    cells = [TypedCells.of(kind)] * len(columns)
    each = Fraction(mu) ** 2 / max(1, len(columns))
    return prefix_bounds(
        counted(columns, cells), cells, squared_mus=[each] * len(columns), neighbours=neighbours, **more
    )


def bounds(*columns: Any, **more: Any) -> list[Any]:
    """The intervals that are drawn of columns of one type."""
    return [one.interval for one in drawn(*columns, **more)]


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


@cases(
    ("kind", "squared"),
    [
        (pa.int8(), 2.290),
        (pa.int16(), 2.565),
        (pa.int32(), 2.809),
        (pa.int64(), 3.041),
        (pa.float64(), 3.275),
        (pa.float32(), 3.275),
    ],
    ids=str,
)
def test_the_norm_of_the_cells_of_a_type_is_that_of_the_specification(kind: pa.DataType, squared: float) -> None:
    matrix = PrefixMatrix.of(TypedCells.of(kind).count)
    assert matrix.squared / 4.0**20 == pytest.approx(squared, abs=1e-3)
    assert math.sqrt(matrix.squared) / 2**20 * matrix.prefix_deviation == pytest.approx(squared, abs=2e-3)


@pytest.mark.parametrize(("first", "last"), [(0, 59), (0, 0), (20, 25), (59, 59), (3, 58)])
def test_the_deviation_of_a_share_is_that_of_its_form(first: int, last: int) -> None:
    matrix = PrefixMatrix.of(60)
    back = np.tri(60) @ np.linalg.inv(dense(60).astype(float) / 2.0**20)
    form = back[last] - (back[first - 1] if first else 0.0) - module._HELD * back[-1]
    assert matrix.deviation(first, last) == pytest.approx(np.linalg.norm(form), rel=1e-6)
    assert matrix.prefix_deviation == pytest.approx(np.linalg.norm(back, axis=1).max(), rel=1e-6)
    octave = np.linalg.norm(back[40] - back[36])
    assert octave <= matrix.range_deviation * (1 + 1e-9)
    assert octave == pytest.approx(matrix.range_deviation, rel=0.02)


@cases("neighbours", ["add_remove", "replace"])
@cases("name", COLUMNS)
def test_bounds_hold_the_bulk(name: str, neighbours: str) -> None:
    values = np.asarray(COLUMNS[name], dtype=np.float64)
    [found] = drawn(values, mu=Fraction(1, 2), neighbours=neighbours, source=SeededBits(len(name)))
    if name == "zeros":
        assert found == UNDETERMINED
        return
    assert found.clear
    assert not found.is_whole or name in ("binary", "signs")
    lower, upper = found.interval
    known = np.clip(values[~np.isnan(values)], fine_edges()[0], fine_edges()[-1])
    assert np.mean((known >= lower) & (known <= upper)) > 0.98
    assert math.isfinite(lower)
    assert math.isfinite(upper)
    if name == "binary":
        assert lower == 0
        assert 1 < upper <= 1.5
    elif name != "constant":
        # Cells are as wide as a quarter of a value, or half of that.
        wide = np.ptp(np.quantile(known, [0.01, 0.99])) + np.abs(known).max() / 2
        assert upper - lower < 20 * wide


def test_zeros_are_undetermined_whatever_the_noise() -> None:
    """Bounds beside zero that noise alone draws would make a coefficient of 1e20."""
    zeros = np.zeros((60, ROWS))
    assert bounds(*zeros, mu=60, source=SeededBits(1)) == [None] * 60
    tiny = np.repeat([2 * SMALLEST, 3 * SMALLEST], ROWS // 2)
    [found] = drawn(tiny, source=SeededBits(2))
    assert found.clear
    assert bounds(np.repeat([0.0, 3 * SMALLEST], [ROWS, ROWS // 3]), source=SeededBits(3)) == [None]


@cases("ones", [0, 1, 3, 30, 300, 3000, ROWS // 2], quick=5)
@cases("mu", [Fraction(1, 50), Fraction(1), Fraction(50)])
def test_no_interval_of_a_rare_flag_is_narrower_than_it(ones: int, mu: Fraction) -> None:
    """Zeros and r ones in TINYINT: the width is in {2 .. 255}, and at least 1 whatever the noise."""
    values = np.repeat([0.0, 1.0], [ROWS - ones, ones])
    for trial in range(20):
        [found] = drawn(values, kind=TINYINT, mu=mu, source=SeededBits(1000 * ones + trial))
        lower, upper = found.interval
        assert 1 <= upper - lower <= 255
        assert lower == int(lower)
        assert upper == int(upper)
        if mu >= 1:
            assert found.clear
            assert -8 < lower <= 0 < upper < 8


def test_an_unsigned_flag_has_no_bound_below_zero() -> None:
    assert bounds(np.zeros(ROWS), kind=pa.uint8(), source=SeededBits(4)) == [(0.0, 1.0)]
    assert bounds(np.full(ROWS, 127.0), kind=TINYINT, source=SeededBits(5)) == [(111.0, 127.0)]
    assert bounds(np.full(ROWS, -128.0), kind=TINYINT, source=SeededBits(5)) == [(-128.0, -111.0)]


def test_an_end_goes_on_to_the_next_occupied_magnitude() -> None:
    """90 % zeros, the rest N(5, 1), as doubles: the interval reaches 3 or the column is undetermined."""
    generator = np.random.default_rng(6)
    spread = 0
    for trial in range(60):
        values = np.where(generator.random(600) < 0.9, 0.0, generator.normal(5, 1, 600))
        [found] = drawn(values, mu=Fraction(1, 2), source=SeededBits(trial))
        if found.interval is None:
            continue
        spread += 1
        assert found.interval[1] >= 3 or found.interval[0] <= -3, found
    assert spread > 20


def test_an_end_of_no_size_beside_the_other_is_zero() -> None:
    values = np.repeat([2.0**-30, 5.0], [ROWS // 2, ROWS])
    [(lower, upper)] = bounds(values, source=SeededBits(7))
    assert lower == 0
    assert 5 < upper <= 6


def test_decimals_are_bounded_in_their_own_units() -> None:
    kind = pa.decimal128(9, 2)
    cents = np.random.default_rng(8).integers(100, 1600, ROWS) / 100
    [(lower, upper)] = bounds(cents, kind=kind, source=SeededBits(8))
    assert 0.5 <= lower <= 1.3
    assert 15 <= upper <= 20.48
    assert bounds(np.zeros(ROWS), kind=kind, source=SeededBits(9)) == [None]
    assert bounds(np.zeros(ROWS), kind=pa.decimal128(9, 0), source=SeededBits(9)) == [(-1.0, 1.0)]


def test_few_rows_give_an_interval_that_is_not_clear() -> None:
    """Where anything is seen, the interval is used; the strict rule is its verdict."""
    values = np.random.default_rng(9).normal(10, 1, 14)
    found = [drawn(values, source=SeededBits(trial))[0] for trial in range(40)]
    assert sum(one.interval is not None for one in found) > 35
    assert sum(one.clear for one in found) <= 5


@cases("values", [[], [math.nan] * 9, [4.5] * 5], ids=str, quick=1)
def test_without_rows_no_bounds_are_clear(values: Any) -> None:
    for _ in range(100):
        found = drawn(values, values, neighbours="replace", max_rows_per_unit=2)
        assert not any(one.clear for one in found)


@pytest.mark.long
def test_noise_alone_is_clear_as_rarely_as_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rows in 1,000 columns: at most 1 % by the statement; with a tenth of the margin, nearly all that is seen is clear."""

    def found() -> int:
        return sum(drawn([], source=SeededBits(n))[0].clear for n in range(1000))

    assert found() <= 10
    right = module._farthest
    monkeypatch.setattr(module, "_farthest", lambda *given: right(*given) / 10)
    assert found() > 15


def test_few_rows_suffice_for_one_column_and_more_for_many() -> None:
    one, many = (rows_needed(Fraction(1), width, "add_remove") for width in (1, 50))
    assert 50 < one < 62
    assert one < many < 1.2 * one
    values = COLUMNS["normal"][:150]
    assert sum(drawn(values)[0].clear for _ in range(40)) >= 38
    assert sum(drawn(values[: round(one / 4)])[0].clear for _ in range(40)) <= 2
    assert rows_needed(Fraction(1), 1, "replace") == pytest.approx(math.sqrt(2) * one)
    assert rows_needed(Fraction(1, 4), 1, "add_remove", 3) == pytest.approx(6 * one)


@pytest.mark.parametrize("mu", [Fraction(1, 100), Fraction(1), Fraction(50), Fraction(10**6)])
def test_the_noise_that_is_asked_for(monkeypatch: pytest.MonkeyPatch, mu: Fraction) -> None:
    """Each column by the matrix of its own type."""
    asked: list[dict[str, Any]] = []

    def record(counts: np.ndarray, **given: Any) -> GaussianRelease:
        asked.append({"counts": counts, **given})
        return GaussianRelease(counts.astype(float), 1.0)

    monkeypatch.setattr(module, "gaussian_counts", record)
    shares = [mu**2 / 4, mu**2 / 4, mu**2 / 2]
    cells = [TypedCells.of(kind) for kind in (TINYINT, DOUBLE, pa.int64())]
    columns = counted([[3.0], [-1.0], [0.0]], cells)
    prefix_bounds(columns, cells, squared_mus=shares, neighbours="replace", max_rows_per_unit=3)
    matrices = [PrefixMatrix.of(count) for count in (47, MOST_CELLS, 495)]
    assert [len(one["counts"]) for one in asked] == [47, MOST_CELLS, 495]
    assert [one["squared_sensitivity"] for one in asked] == [2 * 9 * matrix.squared for matrix in matrices]
    assert [one["squared_mu"] for one in asked] == [min(share, Fraction(64)) for share in shares]


def test_no_columns() -> None:
    assert bounds() == []


@cases(
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
    cells = [TypedCells.of(DOUBLE)]
    with pytest.raises(ParameterError, match="P018"):
        prefix_bounds(counted([[1.0]], cells), cells, **given)


def test_two_values_are_a_flag_whatever_the_type() -> None:
    """A rare 0/1 column of doubles is whole, as one of integers is; what lies in few cells is no flag."""
    rng = np.random.default_rng(3)
    rare = (rng.random(ROWS) < 0.05).astype(float)
    for kind, column in (
        (DOUBLE, rare),
        (DOUBLE, 100 * rare),
        (DOUBLE, 1 - 2 * rare),
        (pa.decimal128(9, 2), 40 * rare),
    ):
        [found] = drawn(column, kind=kind, source=SeededBits(1))
        assert (found.flag, found.is_whole) == (True, True)
    [years] = drawn(rng.integers(1990, 2021, ROWS).astype(float), source=SeededBits(1))
    assert (years.flag, years.is_whole) == (False, False)
    [skewed] = drawn(rng.exponential(1, ROWS), source=SeededBits(1))
    assert (skewed.flag, skewed.is_whole) == (False, False)
    # Where noise may hide a third value, there is no flag.
    [few] = drawn(rare[:400], source=SeededBits(1), mu=Fraction(1, 4))
    assert not few.flag


def test_more_rows_beyond_an_end_than_noise_explains_may_move_a_slope_far() -> None:
    """A thin tail over many octaves is beyond the end where noise hides each of them, and shows in all together."""
    rng = np.random.default_rng(4)
    thin = np.where(rng.random(ROWS) < 0.1, rng.lognormal(5, 1, ROWS), 0.0)
    moved, untouched = list[tuple[float, float]](), list[tuple[float, float]]()
    for number in range(20):
        for values, shares in ((thin, moved), (rng.normal(50, 10, ROWS), untouched)):
            [found] = drawn(values, mu=Fraction(1, 80), source=SeededBits(number))
            kept = np.clip(values, *found.interval)
            true = np.cov(kept, values - kept, bias=True)[0, 1] / kept.var()
            shares.append((true, found.seen.clipped(*found.interval).slope))
    far, shares = np.array([of for of in moved if of[0] > 0.5]).T
    assert len(far) >= 10
    assert shares.mean() > far.mean() / 8
    assert np.median([share for _, share in untouched]) < 0.05


@pytest.mark.parametrize("name", ["exponential", "lognormal", "mostly zeros"])
def test_what_a_clip_moves_is_told_by_the_cells(name: str) -> None:
    """The share of a slope by which a clip moves it is that of the values, but for the width of the cells and noise."""
    rng = np.random.default_rng(4)
    values = {
        "exponential": rng.exponential(1, ROWS),
        "lognormal": rng.lognormal(0, 1, ROWS),
        "mostly zeros": np.where(rng.random(ROWS) < 0.1, rng.normal(5, 1, ROWS), 0.0),
    }[name]
    [found] = drawn(values, mu=20, source=SeededBits(2))
    high = values.mean() + 3 * values.std()
    kept = np.clip(values, -10, high)
    covariance = np.cov(kept, values - kept, bias=True)
    told = found.seen.clipped(-10, high)
    assert told.slope == pytest.approx(covariance[0, 1] / covariance[0, 0], rel=0.25, abs=0.005)
    assert told.spread == pytest.approx(np.square(values - kept).mean(), rel=0.5, abs=0.005)
    intercept = values.mean() - (1 + covariance[0, 1] / covariance[0, 0]) * kept.mean()
    assert told.level >= 0.75 * abs(intercept)
    assert found.seen.clipped(*found.interval) == module.ClippedShare()
    # Noise may hide rows beyond the clip: more of it, and the clip may move more.
    [noisy] = drawn(values, mu=Fraction(1, 2), source=SeededBits(2))
    assert noisy.seen.clipped(-10, high).slope > noisy.seen.clipped(-10, high, hidden=0.0).slope
