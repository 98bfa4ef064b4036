"""Folds: any cut of the rows, any order and any tree of merges gives the same state, to the bit."""

from __future__ import annotations

import inspect
import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpsql.contract.fold import Batch, Fold, Several
from dpsql.contract.relation import NEIGHBOURS, relation_of
from dpsql.functions.value_cells import CutCells
from dpsql.kernels import block_gram
from dpsql.kernels.cells import GridCounts, TypedCells
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, affine_maps
from dpsql.kernels.value_grid import ValueGrid
from dpsql.statistics.additive import CELLS, CellMap, CellRows, CellWeights, ResidualSums, StepRows, Steps
from dpsql.statistics.aggregates import GroupedSums, NamedSums
from dpsql.statistics.auc import ClassScores, ScoreCounts
from dpsql.statistics.coded_columns import CodedColumn, ColumnCounts, PairTables
from dpsql.statistics.comparison import PairedScores
from dpsql.statistics.counts import GridHistogram, MagnitudeHistogram, RowCount
from dpsql.statistics.feature_moments import CompleteProducts
from dpsql.statistics.kendall import BlockScores
from dpsql.statistics.logistic_rows import Scaling, StepSums
from dpsql.statistics.presence import FeatureCounts, NameCounts
from dpsql.statistics.regression import (
    ColumnMoments,
    ErrorSums,
    Gram,
    QuantisedMagnitudes,
    RoundProducts,
    RowMap,
    RowProducts,
    Scales,
)
from dpsql.statistics.score_rows import ScoreRows
from dpsql.statistics.votes import BlockProducts, BlockVotes, ColumnRanges, VoteRule
from dpsql.statistics.xty import CrossProducts, TargetSums
from support.cases import cases
from support.planted_work import drawing_fails

S = FIXED_POINT_ONE
ROWS, WIDTH, BLOCKS = 120, 3, 5
MAPS = affine_maps([(-1.0, 1.0), (0.0, 3.0), (-2.0, 5.0)])
NAMES = [b"wine", b"beer", b"tea", b"ink"]

Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def table(seed: int) -> Rows:
    """Return target, features, keys and sizes of blocks; awkward values, blocks of one to many rows."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(WIDTH, ROWS)) * 2
    features[0, :40] = np.round(features[0, :40])
    features[1, ::7] = np.nan
    features[2, ::11] = generator.choice([np.inf, -np.inf, 0.0, -0.0, 1e300], size=len(features[2, ::11]))
    target = generator.integers(-S, S + 1, ROWS).astype(float)
    target[:5] = [0.0, -0.0, S, -S, 1.0]
    keys = generator.integers(0, 12, ROWS).astype(np.uint64)
    sizes = np.bincount(keys.astype(int), minlength=12)[keys.astype(int)]
    return target, features, keys, sizes


def named() -> NameCounts:
    counts = NameCounts(2)
    counts.learn(NAMES, b"secret")
    return counts


def scales() -> Scales:
    return Scales(*MAPS, 0.0, 1.0)


def scaling() -> Scaling:
    """Return the map of a classifier, over features in the bounds of `MAPS`."""
    low, high = np.array([(-1.0, 1.0), (0.0, 3.0), (-2.0, 5.0)]).T
    side = S // 2
    return Scaling(low, high, RowMap(scales()), 0.5 / math.sqrt(WIDTH), side, math.isqrt(S**2 - side**2), False)


def step() -> StepSums:
    return StepSums(scaling(), [7, -(10**6), 0, 3 * 10**9])


def coded(keys: tuple[str, ...] | None) -> list[CodedColumn]:
    """Return the columns of `columns_of`: a number in cells, a text of listed or of private keys, and nothing."""
    grid = ValueGrid.of_doubles(-1.0, 2.0)
    return [
        CodedColumn("x", "DOUBLE", None, False, grid, 0),
        CodedColumn("t", "VARCHAR", keys, True, None, 0, draws_keys=keys is None),
        CodedColumn("n", "DOUBLE", None, False, None, 0),
    ]


def pair_tables() -> PairTables:
    columns = coded(("v0", "v2"))
    return PairTables(columns, [np.arange(column.count) // 2 for column in columns])


def columns_of(target: np.ndarray, features: np.ndarray) -> list[pa.Array]:
    """Return rows of doubles as columns of numbers and texts, with NULLs."""
    texts = [None if value > 0.9 * S else f"v{int(value) % 5}" for value in np.nan_to_num(features[0])]
    return [pa.array(target / S), pa.array(texts, type=pa.string()), pa.array(features[0])]


def additive_rows() -> StepRows:
    return StepRows.of(RowMap(scales()), scales(), np.array([0.1, -0.3, 0.7, 1.5]))


def score_rows() -> ScoreRows:
    return ScoreRows.of(scaling(), np.array([0.1, -0.3, 0.7, 5.5]))


def residuals(rows: CellMap) -> ResidualSums:
    steps = np.zeros((WIDTH, CELLS + 1))
    steps[:, :CELLS] = np.arange(WIDTH * CELLS).reshape(WIDTH, CELLS) * 1000
    return ResidualSums(rows, Steps(steps, 3 * S // 2), [2, 0])


FOLDS: dict[str, Callable[[], Fold]] = {
    "cells and sizes": lambda: CellRows(additive_rows()),
    "weights of scores": lambda: CellWeights(score_rows()),
    "residuals": lambda: residuals(additive_rows()),
    "residuals of scores": lambda: residuals(score_rows()),
    "columns": lambda: ColumnCounts(coded(("v0", "v2"))),
    "columns with private keys": lambda: ColumnCounts(coded(None)),
    "pairs of columns": pair_tables,
    "row count": RowCount,
    "target sums": TargetSums,
    "cross products": lambda: CrossProducts(MAPS),
    "centred cross products": lambda: CrossProducts(MAPS, S // 3),
    "error sums": lambda: ErrorSums(-S, S, S // 5),
    "grid": lambda: GridHistogram(GridCounts(-S, S, 40)),
    "magnitudes": lambda: MagnitudeHistogram(WIDTH, target=True),
    "magnitudes of the target": lambda: MagnitudeHistogram(0, target=True),
    "magnitudes of integers": lambda: QuantisedMagnitudes(
        RowMap(scales()),
        {0: TypedCells.of(pa.float64()), 2: TypedCells.of(pa.int32())},
        TypedCells.of(pa.int64()),
        (-S, S),
    ),
    "no magnitudes": lambda: MagnitudeHistogram(0, target=False),
    "scores": lambda: ScoreCounts(CutCells([-1.0, 0.0, 2.0]), -4.0, 4.0, 0.0),
    "feature counts": lambda: FeatureCounts(WIDTH, WIDTH, above=0.5),
    "feature counts of crowded rows": lambda: FeatureCounts(WIDTH, 1, denominator=S, above=-0.5),
    "sparse feature counts": lambda: FeatureCounts(len(NAMES), 2, denominator=S),
    "name counts": named,
    "class scores": lambda: ClassScores(-4.0, 4.0, 0.5),
    "paired scores": lambda: PairedScores(CutCells([-1.0, 2.0]), -4.0, 4.0, tied=False),
    "paired scores in cells": lambda: PairedScores(CutCells([-1.0, 0.0, 2.0]), -4.0, 4.0, tied=True),
    "gram": lambda: Gram(MAPS, intercept=True),
    "gram without intercept": lambda: Gram(MAPS, intercept=False),
    "clipped products": lambda: RowProducts(RowMap(scales(), 3 * S // 2), (-1.0, 1.0)),
    "block ranges": lambda: ColumnRanges(BLOCKS, WIDTH + 1),
    "block products": lambda: BlockProducts(
        *(
            np.broadcast_to(np.append(side, one), (BLOCKS, WIDTH + 1))
            for side, one in zip(MAPS, (0.0, 1.0), strict=True)
        )
    ),
    "block scores": lambda: BlockScores(WIDTH + 1, 12),
    "step of logistic regression": step,
    "votes": lambda: BlockVotes(WIDTH, 12, VoteRule(1, 0.1, True, True)),
    "first round": lambda: RoundProducts(RowMap(scales(), 3 * S // 2), scales(), np.zeros(1 + WIDTH), first=True),
    "round": lambda: RoundProducts(RowMap(scales()), scales(), np.array([0.1, -3.0, 7.7, 1e9]), first=False),
    "several": lambda: Several(RowCount(), GridHistogram(GridCounts(-S, S, 40)), ColumnMoments(RowMap(scales()))),
    "column moments": lambda: ColumnMoments(RowMap(scales())),
    "complete products": lambda: CompleteProducts(MAPS),
    "grouped sums": lambda: GroupedSums(1, WIDTH, squares=True),
    "grouped sums without squares": lambda: GroupedSums(1, WIDTH, squares=False),
}
SPARSE = {"sparse feature counts", "name counts"}


def feed(fold: Any, rows: Rows, places: np.ndarray, sparse: bool) -> None:
    """Add some rows as one batch."""
    target, features, keys, sizes = (part[..., places] for part in rows)
    if isinstance(fold, (ColumnCounts, PairTables)):
        fold.add_columns(columns_of(target, features))
        return
    batch = Batch(keys, sizes, b"secret")
    if isinstance(fold, GroupedSums):  # which takes codes
        features = np.floor(np.clip(features * S, -S, S))
    if isinstance(fold, PairedScores):
        features = features[:2]
    if not sparse:
        fold.add(target, features, batch)
        return
    lengths = 1 + places % 4
    fold.add_sparse(
        target, lengths, np.concatenate([np.arange(length) for length in lengths] or [[]]).astype(int), batch
    )


def parts_of(fold: Fold, rows: Rows, generator: np.random.Generator) -> list[np.ndarray]:
    """Cut the rows, in any order, into batches, some of them empty; whole blocks where the fold takes no others."""
    if fold.whole_blocks:
        keys = generator.permutation(np.unique(rows[2]))
        return [generator.permutation(np.flatnonzero(rows[2] == key)) for key in keys]
    cuts = np.sort(generator.integers(0, ROWS + 1, generator.integers(0, 9)))
    return np.split(generator.permutation(ROWS), cuts)


def tree(folds: Sequence[Fold], generator: np.random.Generator) -> Fold:
    """Merge folds two by two, any two of them, until one is left."""
    left = list(folds)
    while len(left) > 1:
        first, second = generator.choice(len(left), 2, replace=False).tolist()
        left[first].merge(left[second])
        del left[second]
    return left[0]


def same(first: pa.RecordBatch, second: pa.RecordBatch) -> bool:
    """Whether two records are equal to the bit: all that they hold are integers and bytes."""
    return bool(first.equals(second, check_metadata=True))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sums of blocks be emptied and carried at small sizes, too."""
    monkeypatch.setattr(block_gram, "CHUNK_CELLS", 90)
    monkeypatch.setattr(block_gram, "_LARGEST_SUM", 20)
    monkeypatch.setattr(block_gram, "_CARRY_ROWS", 50)


@cases("name", FOLDS, quick=4)
def test_every_cut_order_and_tree_gives_the_same_state(name: str) -> None:
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    rows = table(generator.integers(1 << 30))
    whole = FOLDS[name]()
    feed(whole, rows, np.arange(ROWS), name in SPARSE)
    expected = whole.state()
    for _ in range(25):
        parts = parts_of(whole, rows, generator)
        folds = [whole.zero() for _ in range(generator.integers(1, 6))]
        for part in parts:
            feed(folds[generator.integers(len(folds))], rows, part, name in SPARSE)
        assert same(tree(folds, generator).state(), expected)


@cases("name", FOLDS)
def test_zero_is_neutral_and_a_record_survives(name: str) -> None:
    rows = table(zlib.crc32(name.encode()))
    fold = FOLDS[name]()
    feed(fold, rows, np.arange(ROWS), name in SPARSE)
    expected = fold.state()
    assert name == "no magnitudes" or not same(expected, fold.zero().state()), "the rows must show"
    fold.merge(fold.zero())
    assert same(fold.state(), expected)
    again = fold.zero()
    again.absorb(expected)
    assert same(again.state(), expected)
    with pa.BufferOutputStream() as sink:
        with pa.ipc.new_stream(sink, expected.schema) as writer:
            writer.write_batch(expected)
        travelled = pa.ipc.open_stream(sink.getvalue()).read_next_batch()
    other = fold.zero()
    other.absorb(travelled)
    assert same(other.state(), expected)


def test_every_fold_is_here() -> None:
    # That of private keys takes groups in place of rows: tests/sql/test_engine_groups.py has its laws.
    assert {NamedSums, *(type(make()) for make in FOLDS.values())} == {
        kind for kind in _below(Fold) if kind.__module__.startswith("dpsql.") and not inspect.isabstract(kind)
    }


def _below(kind: type) -> set[type]:
    return {found for below in kind.__subclasses__() for found in {below, *_below(below)}}


@cases("name", FOLDS)
def test_states_are_integers(name: str) -> None:
    for field in FOLDS[name]().state().schema:
        allowed = (pa.int64(), pa.decimal128(38, 0), *((pa.binary(),) if field.name == "names" else ()))
        assert field.type.value_type in allowed


@cases("name", FOLDS)
def test_the_size_of_a_state_does_not_tell_the_rows(name: str) -> None:
    fold = FOLDS[name]()
    empty = [len(column.flatten()) for column in fold.state().columns]
    feed(fold, table(3), np.arange(ROWS), name in SPARSE)
    assert ([len(column.flatten()) for column in fold.state().columns] != empty) == fold.grows


def integers(fold: Fold) -> np.ndarray:
    return np.array([int(number) for column in fold.state().columns for number in column.flatten().to_pylist()], object)


def largest(moves: np.ndarray) -> int:
    return int(max(abs(moves)))


def total(moves: np.ndarray) -> int:
    return int(sum(abs(moves)))


# How a fold's own `sensitivity` measures the move of its state.
MEASURED = {
    "row count": total,
    "target sums": total,
    "cross products": largest,
    "centred cross products": largest,
    "grid": total,
    "magnitudes": total,
    "magnitudes of the target": total,
    "scores": total,
}


@cases("rows", [1, 3], quick=3)
@cases("kind", NEIGHBOURS)
@cases("name", MEASURED)
def test_no_neighbours_are_farther_apart_than_a_fold_says(name: str, kind: str, rows: int) -> None:
    relation = relation_of(kind, rows)
    empty: Any = FOLDS[name]()
    limit, most = empty.sensitivity(relation), 0
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    target, features, keys, sizes = table(5)
    # Beside any rows, those that move sums most: at the bounds, or in one cell of their own.
    far = np.array([[1.0, 3.0, 5.0]]).T * np.ones(6)
    target = np.concatenate([target, np.repeat([-S, S], 3).astype(float)])
    features = np.concatenate([features, far], axis=1)
    given = target, features, np.append(keys, np.zeros(6, np.uint64)), np.append(sizes, np.ones(6, np.int64))
    for _ in range(60):
        left, come = (generator.choice(ROWS + 6, rows, replace=False) for _ in range(2))
        if generator.random() < 0.5:
            left, come = np.arange(ROWS, ROWS + rows), np.arange(ROWS + 3, ROWS + 3 + rows)
        first, second = empty.zero(), empty.zero()
        feed(first, given, left, sparse=False)
        if kind == "replace":
            feed(second, given, come, sparse=False)
        most = max(most, MEASURED[name](integers(first) - integers(second)))
    assert most <= limit
    # The planted rows differ in the target alone, are as many before as after, and a centre takes a part of their target.
    if name != "centred cross products" and (kind == "add_remove" or name not in {"row count", "magnitudes"}):
        assert most == limit


def test_sums_beyond_64_bits_merge_exactly() -> None:
    one = CrossProducts(affine_maps([(-1.0, 1.0)]))
    rows = np.full(4096, float(S))
    one.add(rows, np.ones((1, 4096)), Batch())
    for _ in range(40):  # doubling: 2**(40 + 12 + 40)
        again = one.zero()
        again.absorb(one.state())
        one.merge(again)
    assert one.total().tolist() == [1 << 92]
    one.merge(one)
    minus = one.zero()
    minus.add(-rows, np.ones((1, 4096)), Batch())
    assert minus.state().column(0).to_pylist() == [[-(1 << 52)]]
    one.merge(minus)
    assert one.total().tolist() == [(1 << 93) - (1 << 52)]


def test_half_of_a_block_is_refused() -> None:
    target, features, keys, sizes = table(1)
    here = np.flatnonzero(keys == keys[0])[:-1]
    with pytest.raises(ValueError, match="not complete"):
        BlockScores(WIDTH + 1, 12).add(target[here], features[:, here], Batch(keys[here], sizes[here]))


@cases("name", FOLDS)
def test_no_fold_draws(name: str) -> None:
    """A worker of an engine adds rows, and every attempt at them must come to the same state."""
    rows, fold = table(7), FOLDS[name]()
    places = np.flatnonzero(rows[2] == rows[2][0]) if fold.whole_blocks else np.arange(ROWS)
    with drawing_fails():
        feed(fold, rows, places, name in SPARSE)
