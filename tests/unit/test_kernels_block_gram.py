"""Models of blocks: exact sums in any order, least squares, and one row changes one model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.kernels import block_gram
from dpsql.kernels.block_gram import BlockGram, BlockRanges
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, quantise

Doubles = NDArray[np.float64]
BLOCKS = 7


@pytest.fixture(params=["numpy", "compiled"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name = str(request.param)
    if name == "compiled":
        block_gram.warm_up()
        kernels = block_gram.compiled_kernels.kernels
        monkeypatch.setattr(block_gram, "compiled_kernels", lambda _: kernels)
    else:
        monkeypatch.setattr(block_gram, "compiled_kernels", lambda _: None)
    return name


def table(rows: int, width: int, seed: int = 0) -> tuple[Doubles, NDArray[np.int64]]:
    """Rows with the target last, and a block for each; a tenth of the cells is missing or strange."""
    generator = np.random.default_rng(seed)
    values = generator.normal(size=(rows, width)) * 10.0 ** generator.integers(-3, 9, width)
    strange = generator.choice([np.nan, np.inf, -np.inf, 1e300, 0.0], size=values.shape)
    values = np.where(generator.random(values.shape) < 0.1, strange, values)
    return values, generator.integers(-1, BLOCKS + 1, rows)


def feed(into: Any, values: Doubles, assigned: NDArray[np.int64], batch: int = 1 << 60) -> Any:
    for start in range(0, len(values), batch):
        into.add(assigned[start : start + batch], values[start : start + batch].T)
    return into


def fitted(values: Doubles, assigned: NDArray[np.int64], blocks: int = BLOCKS, batch: int = 1 << 60) -> BlockGram:
    maps = feed(BlockRanges(blocks, values.shape[1]), values, assigned, batch).maps()
    return feed(BlockGram(*maps), values, assigned, batch)


def models(values: Doubles, assigned: NDArray[np.int64], blocks: int = BLOCKS, **options: Any) -> Doubles:
    return fitted(values, assigned, blocks, **options).models(threads=0)


def upper(gram: BlockGram, block: int) -> Doubles:
    return np.triu(gram.gram(block))


def in_fits(values: Doubles, assigned: NDArray[np.int64], block: int) -> Doubles:
    return values[(assigned == block) & np.isfinite(values[:, -1])]


@pytest.mark.long
def test_ranges_are_of_ordinary_values(path: str) -> None:
    values, assigned = table(400, 5)
    middle, scale = feed(BlockRanges(BLOCKS, 5), values, assigned).maps()
    for block in range(BLOCKS):
        for column, kept in enumerate(in_fits(values, assigned, block).T):
            ordinary = kept[np.abs(kept) <= block_gram.LARGEST]
            low, high = ordinary.min(), ordinary.max()
            assert middle[block, column] == low / 2 + high / 2
            assert scale[block, column] == 2 * FIXED_POINT_ONE / (high - low)


def test_the_gram_matrix_is_exact(path: str) -> None:
    values, assigned = table(400, 5)
    middle, scale = feed(BlockRanges(BLOCKS, 5), values, assigned).maps()
    gram = feed(BlockGram(middle, scale), values, assigned)
    for block in range(BLOCKS):
        rows = quantise(in_fits(values, assigned, block).copy(), middle[block], scale[block])
        whole = np.column_stack([np.ones(len(rows)), rows]).astype(np.int64)
        assert np.array_equal(upper(gram, block), np.triu(whole.T @ whole).astype(np.float64))


def orders(values: Doubles, assigned: NDArray[np.int64]) -> Iterator[BlockGram]:
    yield fitted(values, assigned, batch=17)
    order = np.random.default_rng(1).permutation(len(values))
    yield fitted(values[order], assigned[order], batch=50)
    maps = feed(BlockRanges(BLOCKS, values.shape[1]), values, assigned).maps()
    gram = BlockGram(*maps)
    parts = [slice(start, start + 23) for start in range(0, len(values), 23)]
    others = [BlockGram(*maps) for _ in range(4)]
    for number, part in enumerate(parts):
        others[number % 4].add(assigned[part], np.ascontiguousarray(values[part].T))
    for other in others:
        gram.add_products(other.products())
    yield gram


def test_batches_order_and_merges_change_no_bit(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values, assigned = table(1000, 4, seed=2)
    once = models(values, assigned)
    monkeypatch.setattr(block_gram, "CHUNK_CELLS", 300)
    for gram in orders(values, assigned):
        assert np.array_equal(gram.models(threads=2), once)


def test_both_paths_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    values, assigned = table(3000, 20, seed=3)
    found = []
    block_gram.warm_up()
    kernels = block_gram.compiled_kernels.kernels
    for choice in (None, kernels):
        monkeypatch.setattr(block_gram, "compiled_kernels", lambda _, choice=choice: choice)
        found.append(models(values, assigned))
    assert np.abs(found[0]).max() > 0
    assert np.array_equal(found[0], found[1])


def test_one_row_changes_one_model(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_gram, "CHUNK_CELLS", 500)
    values, assigned = table(500, 4, seed=4)
    assigned = np.clip(assigned, 0, BLOCKS - 1)
    before = models(values, assigned, batch=64)
    for row in range(0, 500, 29):
        after = models(np.delete(values, row, axis=0), np.delete(assigned, row), batch=64)
        others = np.arange(BLOCKS) != assigned[row]
        assert np.array_equal(before[others], after[others])
        assert np.isfinite(values[row, -1]) == (before[~others] != after[~others]).any()


def test_least_squares_is_that_of_numpy(path: str) -> None:
    generator = np.random.default_rng(5)
    x = generator.normal(size=(600, 6)) * [1, 1e-6, 1e6, 1, 1, 1] + [0, 1, 1e7, 0, 0, 5]
    y = x @ [1, 1e6, 1e-6, 0, -2, 0.5] + generator.normal(size=600) + 100
    assigned = generator.integers(0, 5, 600)
    found = models(np.column_stack([x, y]), assigned, 5)
    for block in range(5):
        rows = assigned == block
        ones = np.column_stack([np.ones(rows.sum()), x[rows]])
        expected = np.linalg.lstsq(ones / [1, 1, 1e-6, 1e6, 1, 1, 1], y[rows], rcond=None)[0]
        assert found[block] / [1, 1, 1e6, 1e-6, 1, 1, 1] == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_collinear_and_short_blocks_have_the_least_norm(path: str) -> None:
    generator = np.random.default_rng(6)
    x = generator.normal(size=(300, 3))
    x[:, 2] = x[:, 1]
    y = x[:, 0] + 2 * x[:, 1] + 7
    assigned = np.repeat([0, 1], [298, 2])
    found = models(np.column_stack([x, y]), assigned, 3)
    assert found[0] == pytest.approx([7, 1, 1, 1], abs=1e-4)
    assert np.isfinite(found[1]).all()
    assert found[1, 0] + x[298:] @ found[1, 1:] == pytest.approx(y[298:], abs=1e-4)
    assert (found[2] == 0).all()


def test_constant_columns_have_coefficient_zero(path: str) -> None:
    generator = np.random.default_rng(7)
    values = np.column_stack([np.full(100, 3.7), generator.normal(size=100), np.full(100, np.nan)])
    target = 2 * values[:, 1] - 5
    found = models(np.column_stack([values, target]), np.zeros(100, dtype=np.int64), 1)[0]
    assert found[[1, 3]].tolist() == [0.0, 0.0]
    assert found[[0, 2]] == pytest.approx([-5, 2], abs=1e-5)
    constant = models(np.column_stack([values, np.full(100, 9.0)]), np.zeros(100, dtype=np.int64), 1)[0]
    assert constant.tolist() == [9.0, 0.0, 0.0, 0.0]


def test_missing_features_count_as_the_middle(path: str) -> None:
    values = np.array([[0.0, 0.0], [4.0, 8.0], [np.nan, 4.0], [1.0, 2.0], [2.0, np.nan]])
    found = models(values, np.zeros(5, dtype=np.int64), 1)[0]
    assert found == pytest.approx([0.0, 2.0], abs=1e-5)


def test_extreme_values_leave_finite_models(path: str) -> None:
    values = np.array([[1e300, 1.0], [-1e300, 2.0], [5e-324, 3.0], [0.0, 4.0], [1e140, 1e145]] * 2)
    found = models(values, np.repeat([0, 1], 5), 2)
    assert np.isfinite(found).all()


def test_public_bounds_need_one_pass(path: str) -> None:
    generator = np.random.default_rng(8)
    x = generator.uniform(-1, 1, size=(400, 2))
    values = np.column_stack([x, x @ [1.0, -1.0]])
    maps = np.zeros((4, 3)), np.full((4, 3), FIXED_POINT_ONE / 2.0)
    found = feed(BlockGram(*maps), values, generator.integers(0, 4, 400)).models(threads=0)
    assert found == pytest.approx(np.tile([0.0, 1.0, -1.0], (4, 1)), abs=1e-4)


@pytest.mark.parametrize("limit", ["_LARGEST_SUM", "_CARRY_ROWS"])
def test_sums_beyond_a_double_and_an_int64(path: str, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values, assigned = table(3000, 3, seed=9)
    expected = fitted(values, assigned)
    monkeypatch.setattr(block_gram, "CHUNK_CELLS", 900)
    monkeypatch.setattr(block_gram, "_LARGEST_SUM", 100)
    if limit == "_CARRY_ROWS":
        monkeypatch.setattr(block_gram, "_CARRY_ROWS", 150)
    gram = fitted(values, assigned, batch=100)
    gram.gram(0)
    assert (gram._high is not None) == (limit == "_CARRY_ROWS")
    for block in range(BLOCKS):
        assert np.array_equal(upper(gram, block), upper(expected, block))


def test_many_rows_of_one_block(path: str) -> None:
    generator = np.random.default_rng(10)
    x = generator.normal(size=20_000)
    values = np.column_stack([x, 3 * x + 1])
    gram = fitted(values, np.zeros(20_000, dtype=np.int64), 1)
    assert gram.models(threads=0)[0] == pytest.approx([1.0, 3.0], abs=1e-5)
    assert gram.gram(0)[0, 0] == 20_000


@pytest.mark.long
def test_no_rows_at_all(path: str) -> None:
    assert (models(np.empty((0, 3)), np.empty(0, dtype=np.int64)) == 0).all()
    nothing = np.full((5, 3), np.nan)
    assert (models(nothing, np.zeros(5, dtype=np.int64)) == 0).all()


def test_a_failed_decomposition_leaves_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise np.linalg.LinAlgError

    monkeypatch.setattr(np.linalg, "eigh", fail)
    values = np.random.default_rng(11).normal(size=(3, 6))  # too few rows for the Cholesky factor
    assert (models(values, np.zeros(3, dtype=np.int64), 1) == 0).all()


def test_progress_is_reported_and_may_stop_the_work() -> None:
    values, assigned = table(200, 3)
    said: list[float] = []
    fitted(values, assigned).models(said.append)
    assert said[-1] == 1.0

    def stop(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(values, assigned).models(stop)
