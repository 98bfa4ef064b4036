"""Which features of a row count: both kernels choose what a loop in Python chooses, from the row's own content alone."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.kernels import kept_features
from dpsql.kernels.identity import text_words
from dpsql.kernels.kept_features import count_kept
from dpsql.kernels.kept_features_numpy import first_by_key
from dpsql.kernels.loading import Compiled

KEY = b"k" * 16
WIDTH = 40
MASK = (1 << 64) - 1
Row = tuple[int, int, list[int]]  # side, seed, positions


@pytest.fixture(scope="module", params=["numpy", "compiled"])
def kernels(request: pytest.FixtureRequest) -> Any:
    fresh = Compiled("dpsql.kernels.kept_features_compiled", 1 << 62)
    if request.param == "compiled":
        fresh.start().join()
        assert fresh.kernels is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_features, "compiled_kernels", fresh)
        yield request.param


def mixed(word: int) -> int:
    word = (word + 0x9E3779B97F4A7C15) & MASK
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & MASK
    return word ^ (word >> 31)


def expected(rows: list[Row], most: int, words: np.ndarray | None, key: bytes = KEY) -> list[int]:
    """Count as the docstring of `count_kept` says."""
    digest = hashlib.blake2b(b"dpsql items", digest_size=16, key=key).digest()
    lanes = [int.from_bytes(digest[start : start + 8], "little") for start in (0, 8)]
    counts = [0] * (2 * WIDTH)
    for side, seed, positions in rows:

        def order(position: int, seed: int = seed) -> tuple[int, ...]:
            read = [position] * 2 if words is None else words[position].tolist()
            return *(mixed(w ^ mixed(seed ^ lane)) for w, lane in zip(read, lanes, strict=True)), *read, position

        for position in sorted(set(positions), key=order)[:most] if side >= 0 else ():
            counts[side + position] += 1
    return counts


def counted(rows: list[Row], most: int, words: np.ndarray | None, key: bytes = KEY) -> list[int]:
    counts = np.zeros(2 * WIDTH, dtype=np.int64)
    sides, seeds = (np.array([row[part] for row in rows], dtype=kind) for part, kind in ((0, np.int64), (1, np.uint64)))
    lengths = np.array([len(row[2]) for row in rows], dtype=np.int64)
    positions = np.array([position for row in rows for position in row[2]], dtype=np.int64)
    count_kept(counts, sides, lengths, positions, most, seeds, key, words)
    return counts.tolist()


ROWS = st.lists(
    st.tuples(
        st.sampled_from([-1, 0, WIDTH]), st.integers(0, MASK), st.lists(st.integers(0, WIDTH - 1), max_size=2 * WIDTH)
    ),
    max_size=8,
)
# Words with equal first halves, so that places tie; and no words, so that positions stand for themselves.
TIED = np.array([[position % 3, position] for position in range(WIDTH)], dtype=np.uint64)
RANDOM = np.random.default_rng(8).integers(0, 1 << 63, (WIDTH, 2)).astype(np.uint64)


@settings(deadline=None, max_examples=150)
@given(ROWS, st.integers(1, 12), st.sampled_from([None, TIED, RANDOM]), st.randoms(use_true_random=False))
def test_counts_are_those_of_a_loop(kernels: str, rows: list[Row], most: int, words: Any, chance: Any) -> None:
    """In any order of the rows and of the features in them, however often a feature is repeated."""
    truth = expected(rows, most, words)
    assert counted(rows, most, words) == truth
    again = [(side, seed, chance.sample(own + own[:3], len(own) + len(own[:3]))) for side, seed, own in rows]
    chance.shuffle(again)
    assert counted(again, most, words) == truth


@settings(deadline=None, max_examples=150)
@given(ROWS, st.tuples(*[st.tuples(st.sampled_from([0, WIDTH]), st.integers(0, 9), st.lists(st.integers(0, 39)))] * 2))
def test_a_row_moves_its_most_by_one_each(kernels: str, rows: list[Row], two: tuple[Row, Row]) -> None:
    """Sensitivity: an added row raises at most `most` counts of one side by 1, whatever other rows there are."""
    base = np.array(counted(rows, 3, None))
    for row in two:
        moved = np.array(counted([row, *rows], 3, None)) - base
        assert set(moved.tolist()) <= {0, 1}
        assert moved.sum() == min(3, len(set(row[2])))
        assert not moved[WIDTH - row[0] : 2 * WIDTH - row[0]].any()
        assert moved.tolist() == counted([row], 3, None)


def test_long_rows(kernels: str) -> None:
    """Rows of thousands of features, most of them repeats, and of more than are there."""
    generator = np.random.default_rng(4)
    rows = [(0, 7, generator.integers(0, WIDTH, size).tolist()) for size in (0, 1, 41, 5000)]
    for most in (1, 7, 1000):
        assert counted(rows, most, None) == expected(rows, most, None)


def test_other_keys_and_other_rows_choose_otherwise(kernels: str) -> None:
    rows: list[Row] = [(0, 5, list(range(WIDTH)))]
    first = counted(rows, 5, None)
    assert counted(rows, 5, None, b"l" * 16) != first
    assert counted([(0, 6, list(range(WIDTH)))], 5, None) != first


def test_every_feature_is_kept_as_often(kernels: str) -> None:
    """Chi-square over 4,000 rows that keep 3 of 8 features: above 60 of 7 degrees with probability below 1e-9."""
    seeds = np.random.default_rng().integers(0, 2**63, 4000).tolist()
    counts = np.array(counted([(0, seed, list(range(8))) for seed in seeds], 3, None)[:8])
    assert counts.sum() == 12000
    assert ((counts - 1500) ** 2 / 1500).sum() < 60


def test_rows_without_a_hash_of_their_identity(kernels: str) -> None:
    counts, one = np.zeros(3, dtype=np.int64), np.ones(1, dtype=np.int64)
    count_kept(counts, one - 1, 2 * one, np.array([0, 2]), 2, None, KEY)
    assert counts.tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match="hash of their identity"):
        count_kept(counts, one - 1, 3 * one, np.array([0, 1, 2]), 2, None, KEY)


def test_the_kernel_is_compiled_for_one_type_each() -> None:
    """Whatever arrays come, so that no call waits for a compiler."""
    fresh = Compiled("dpsql.kernels.kept_features_compiled", 1 << 62)
    fresh.start().join()
    assert fresh.kernels is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_features, "compiled_kernels", fresh)
        for words in (None, RANDOM, text_words([b"a", b"b"], KEY)):
            counted([(0, 1, [0, 1])], 1, words)
    assert len(fresh.kernels.count_kept.signatures) == 1


def test_ties_of_one_word_are_settled_by_the_other() -> None:
    """Items that agree in their first word, whatever order they come in."""
    seconds = list(range(20))
    kept = set()
    for order in (seconds, seconds[::-1], seconds[7:] + seconds[:7]):
        words = np.array([[5, second] for second in order], dtype=np.uint64)
        lanes = np.array([3, 4], dtype=np.uint64)
        found = first_by_key(np.zeros(20, dtype=np.int64), words, np.array([1], dtype=np.uint64), lanes, 6)
        assert found.sum() == 6
        kept.add(frozenset(second for second, there in zip(order, found.tolist(), strict=True) if there))
    assert len(kept) == 1
