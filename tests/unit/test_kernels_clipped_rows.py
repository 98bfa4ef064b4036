from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.kernels import gram
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.kernels.gram import ClippedRows, clip_rows, fixed_coefficients
from dpsql.kernels.workers import Compiled
from support.cases import cases

S = FIXED_POINT_ONE
LARGEST_TARGET = 1 << 28  # what `fixed_coefficients` allows for


def squared_norms(matrix: np.ndarray) -> list[int]:
    return [sum(int(value) ** 2 for value in row) for row in matrix]


@pytest.fixture(params=["numpy", "compiled"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    fresh = Compiled("dpsql.kernels.clipped_rows_compiled", 1 << 62)
    if request.param == "compiled":
        fresh.start().join()
        assert fresh.kernels is not None
    monkeypatch.setattr(gram, "compiled_kernels", fresh)
    return str(request.param)


@pytest.mark.long
@settings(max_examples=200)
@given(st.data())
def test_norms_hold_in_integers(data: st.DataObject) -> None:
    width = data.draw(st.integers(1, 12))
    values = st.integers(-S, S) | st.sampled_from([S, -S, 0, 1, S - 1])
    rows = data.draw(st.lists(st.lists(values, min_size=width, max_size=width), min_size=1, max_size=6))
    radius = data.draw(st.integers(0, 2 * S) | st.sampled_from([0, 1, S - 1, S, S + 1, 4 * S]))
    before = np.array(rows, dtype=np.float64)
    after = before.copy()
    clip_rows(after, radius)
    assert (after == np.trunc(after)).all()
    for old, new, norm in zip(before, after, squared_norms(before), strict=True):
        if norm <= radius**2:
            assert (old == new).all()
        else:
            assert sum(int(value) ** 2 for value in new) <= radius**2
            exact = [Fraction(int(value)) * radius / Fraction(math.sqrt(norm)) for value in old]
            assert all(
                abs(int(a)) <= abs(b) and abs(b) - abs(int(a)) < 1 + 1e-6 for a, b in zip(new, exact, strict=True)
            )


@pytest.mark.parametrize("width", [100, 8192, 8193, 20_000])
def test_wide_rows(width: int) -> None:
    """Sums of squares beyond 2**53 are exact too, so that only rows that are too long are touched."""
    generator = np.random.default_rng(width)
    matrix = np.trunc(generator.uniform(-1, 1, (7, width)) * S)
    matrix[0] = S
    norms = squared_norms(matrix)
    radius = math.isqrt(norms[1])
    expected_short = [norm <= radius**2 for norm in norms]
    before = matrix.copy()
    clip_rows(matrix, radius)
    after = squared_norms(matrix)
    assert all(norm <= radius**2 for norm in after)
    assert [(a == b).all() for a, b in zip(before, matrix, strict=True)] == expected_short
    assert min(after) > 0.99 * min(min(norms), radius**2)
    same = before.copy()
    clip_rows(same, 1 << 40)
    assert (same == before).all()


def test_rounding_to_nearest_would_break_the_norm() -> None:
    """F5: a hundred coordinates whose exact values end in .5."""
    matrix = np.full((1, 100), float(S))
    radius = round(104857.5 * 10)
    clip_rows(matrix, radius)
    assert set(matrix[0]) == {104857.0}
    assert squared_norms(np.rint(np.full((1, 100), 104857.5) + 0.01))[0] > radius**2


def test_a_row_is_clipped_alone() -> None:
    generator = np.random.default_rng(0)
    matrix = np.rint(generator.uniform(-1, 1, (10_000, 9)) * S)
    whole, shuffled = matrix.copy(), matrix.copy()
    clip_rows(whole, S)
    order = generator.permutation(len(matrix))
    shuffled = shuffled[order]
    for part in np.array_split(np.arange(len(matrix)), 7):
        block = shuffled[part].copy()
        clip_rows(block, S)
        shuffled[part] = block
    assert (shuffled == whole[order]).all()


@settings(max_examples=200)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=8))
def test_any_coefficients_become_integers_whose_products_are_exact(theta: list[float]) -> None:
    integers, bits = fixed_coefficients(np.array(theta))
    assert 11 <= bits <= 24
    assert (integers == np.trunc(integers)).all()
    # A row of S with a target of the largest size: the sum of all absolute products.
    assert sum(abs(int(value)) for value in integers) * S + (LARGEST_TARGET << bits) <= 1 << 53
    if np.isfinite(theta).all() and sum(map(abs, theta)) <= 2.0**20:
        assert (np.abs(integers * 2.0**-bits - theta) < 2.0**-bits).all()
        assert (fixed_coefficients(integers * 2.0**-bits)[0] == integers).all()


def exact_products(rows: np.ndarray, target: np.ndarray, theta: np.ndarray) -> list[int]:
    """The definition, in Python's integers."""
    integers, bits = fixed_coefficients(theta)
    sums = [0] * rows.shape[1]
    for row, value in zip(rows.astype(int).tolist(), target.astype(int).tolist(), strict=True):
        residual = (value << bits) - sum(a * int(b) for a, b in zip(row, integers, strict=True))
        clipped = min(max(residual, -S << bits), S << bits)
        rounded = (clipped + (1 << (bits - 1))) >> bits
        sums = [total + rounded * a for total, a in zip(sums, row, strict=True)]
    return sums


def table(count: int, width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    rows = np.rint(generator.uniform(-1, 1, (count, width)) * S)
    rows[generator.random((count, width)) < 0.2] = S
    target = np.rint(generator.uniform(-1, 1, count) * S)
    target[::17] = generator.choice([S, -S, LARGEST_TARGET, -LARGEST_TARGET], len(target[::17]))
    return rows, target


@cases("scale", [0.0, 1e-7, 0.3, 40.0, 1e5, 1e300, math.inf, math.nan], quick=6)
def test_products_are_exact(kernels: str, scale: float) -> None:
    rows, target = table(300, 5, 1)
    with np.errstate(invalid="ignore"):
        theta = np.random.default_rng(2).normal(size=5) * scale
    kept = ClippedRows(5)
    kept.add(rows, target)
    assert kept.residual_products(theta).tolist() == exact_products(rows, target, theta)


@pytest.mark.long
def test_neither_order_nor_batches_nor_threads_matter(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gram, "_JOB_ROWS", 5000)
    rows, target = table(30_000, 7, 3)
    theta = np.random.default_rng(4).normal(size=7)
    expected = None
    generator = np.random.default_rng(5)
    for threads in (0, 1, 3):
        order = generator.permutation(len(rows))
        parts = np.split(order, np.sort(generator.integers(0, len(rows), 6)))
        kept = ClippedRows(7, threads=threads)
        for part in parts:
            kept.add(rows[part], target[part])
        assert kept.rows == len(rows)
        found = kept.residual_products(theta).tolist()
        expected = expected or found
        assert found == expected
    assert found == exact_products(rows, target, theta)


def test_sums_beyond_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gram, "_INT64_ROWS", 1)
    kept = ClippedRows(1)
    kept.add(np.full((10, 1), float(S)), np.full(10, float(S)))
    products = kept.residual_products(np.zeros(1))
    assert products.dtype == object
    assert products.tolist() == [10 * S * S]


def test_no_rows_at_all() -> None:
    kept = ClippedRows(3)
    assert kept.residual_products(np.ones(3)).tolist() == [0, 0, 0]
    kept.add(np.zeros((0, 3)), np.zeros(0))
    assert kept.residual_products(np.ones(3)).tolist() == [0, 0, 0]


@pytest.mark.parametrize(("rows", "target"), [((4, 2), 4), ((4, 3), 5)])
def test_batches_that_do_not_fit(rows: tuple[int, int], target: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        ClippedRows(3).add(np.zeros(rows), np.zeros(target))
