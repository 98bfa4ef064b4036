"""How much the features of a row count: what fractions of Python say, from the number of its features alone."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.contract.fold import Batch
from dpsql.kernels.xty import add_shares
from dpsql.statistics.presence import FeatureCounts

WIDTH, ONE = 40, 1 << 20
Row = tuple[int, list[int]]  # side, positions

ROWS = st.lists(
    st.tuples(st.sampled_from([-1, 0, WIDTH]), st.lists(st.integers(0, WIDTH - 1), max_size=2 * WIDTH)), max_size=8
)


def expected(rows: list[Row], most: int) -> list[int]:
    counts = [0] * (2 * WIDTH)
    for side, positions in rows:
        for position in set(positions) if side >= 0 else ():
            counts[side + position] += int(min(Fraction(1), Fraction(most, len(set(positions)))) * ONE)
    return counts


def counted(rows: list[Row], most: int) -> list[int]:
    counts = np.zeros(2 * WIDTH, dtype=np.int64)
    sides, lengths = (np.array(part, dtype=np.int64) for part in ([r[0] for r in rows], [len(r[1]) for r in rows]))
    positions = np.array([position for row in rows for position in row[1]], dtype=np.int64)
    add_shares(counts, sides, lengths, positions, most, ONE)
    return counts.tolist()


@pytest.mark.long
@settings(max_examples=150)
@given(ROWS, st.integers(1, 12), st.randoms(use_true_random=False))
def test_counts_are_those_of_a_loop(rows: list[Row], most: int, chance: Any) -> None:
    """In any order of the rows and of the features in them, however often a feature is repeated."""
    truth = expected(rows, most)
    assert counted(rows, most) == truth
    again = [(side, chance.sample(own + own[:3], len(own) + len(own[:3]))) for side, own in rows]
    chance.shuffle(again)
    assert counted(again, most) == truth


@settings(max_examples=150)
@given(ROWS, st.sampled_from([0, WIDTH]), st.lists(st.integers(0, 39)), st.integers(1, 5))
def test_a_row_moves_as_many_rows_as_it_may(rows: list[Row], side: int, positions: list[int], most: int) -> None:
    """Sensitivity: an added row raises counts of one side, each by one row and together by `most` rows at most."""
    moved = np.array(counted([(side, positions), *rows], most)) - counted(rows, most)
    assert moved.min() >= 0
    assert moved.max() <= ONE
    assert moved.sum() <= most * ONE
    assert moved.sum() > min(most, len(set(positions))) * ONE - WIDTH
    assert not moved[WIDTH - side : 2 * WIDTH - side].any()
    assert moved.tolist() == counted([(side, positions)], most)


@pytest.mark.parametrize("most", [1, 3, WIDTH - 1, WIDTH])
def test_lists_and_values_count_alike(most: int) -> None:
    rng = np.random.default_rng(most)
    present = rng.random((WIDTH, 500)) < rng.random(500)
    target = rng.integers(-1, 2, 500).astype(float)
    listed, dense = (FeatureCounts(WIDTH, most, denominator=ONE) for _ in range(2))
    dense.add(target, present.astype(float), Batch())
    listed.add_sparse(target, present.sum(axis=0), np.nonzero(present.T)[1], Batch())
    assert dense.counts.tolist() == listed.counts.tolist()
    sides = np.where(target > 0, 0, np.where(target < 0, WIDTH, -1)).tolist()
    rows = [(side, np.flatnonzero(present[:, row]).tolist()) for row, side in enumerate(sides)]
    assert dense.counts[:-2].tolist() == expected(rows, most)
