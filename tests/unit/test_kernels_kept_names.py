"""Which private names of a row count: the kernel chooses what a loop in Python chooses, from the row alone."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.kernels.identity import count_kept, first_by_key, text_words

KEY = b"k" * 16
WIDTH = 40
MASK = (1 << 64) - 1
Row = tuple[int, list[int]]  # seed, positions


def mixed(word: int) -> int:
    word = (word + 0x9E3779B97F4A7C15) & MASK
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & MASK
    return word ^ (word >> 31)


def expected(rows: list[Row], most: int, words: np.ndarray, key: bytes = KEY) -> list[int]:
    """Count as the docstring of `count_kept` says."""
    digest = hashlib.blake2b(b"dpsql items", digest_size=16, key=key).digest()
    lanes = [int.from_bytes(digest[start : start + 8], "little") for start in (0, 8)]
    counts = [0] * WIDTH
    for seed, positions in rows:

        def order(position: int, seed: int = seed) -> tuple[int, ...]:
            read = words[position].tolist()
            return *(mixed(w ^ mixed(seed ^ lane)) for w, lane in zip(read, lanes, strict=True)), *read

        for position in sorted(set(positions), key=order)[:most]:
            counts[position] += 1
    return counts


def counted(rows: list[Row], most: int, words: np.ndarray, key: bytes = KEY) -> list[int]:
    counts = np.zeros(WIDTH, dtype=np.int64)
    seeds = np.array([seed for seed, _ in rows], dtype=np.uint64)
    lengths = np.array([len(positions) for _, positions in rows], dtype=np.int64)
    positions = np.array([position for row in rows for position in row[1]], dtype=np.int64)
    count_kept(counts, lengths, positions, most, seeds, key, words)
    return counts.tolist()


ROWS = st.lists(st.tuples(st.integers(0, MASK), st.lists(st.integers(0, WIDTH - 1), max_size=2 * WIDTH)), max_size=8)
# Words with equal first halves, so that places tie; and those of names.
TIED = np.array([[position % 3, position] for position in range(WIDTH)], dtype=np.uint64)
WORDS = text_words([b"name %d" % position for position in range(WIDTH)], KEY)


@pytest.mark.long
@settings(max_examples=150)
@given(ROWS, st.integers(1, 12), st.sampled_from([TIED, WORDS]), st.randoms(use_true_random=False))
def test_counts_are_those_of_a_loop(rows: list[Row], most: int, words: Any, chance: Any) -> None:
    """In any order of the rows and of the features in them, however often a feature is repeated."""
    truth = expected(rows, most, words)
    assert counted(rows, most, words) == truth
    again = [(seed, chance.sample(own + own[:3], len(own) + len(own[:3]))) for seed, own in rows]
    chance.shuffle(again)
    assert counted(again, most, words) == truth


@pytest.mark.long
@settings(max_examples=150)
@given(ROWS, st.tuples(st.integers(0, 9), st.lists(st.integers(0, 39))))
def test_a_row_moves_its_most_by_one_each(rows: list[Row], row: Row) -> None:
    """Sensitivity: an added row raises at most `most` counts by 1, whatever other rows there are."""
    moved = np.array(counted([row, *rows], 3, WORDS)) - counted(rows, 3, WORDS)
    assert set(moved.tolist()) <= {0, 1}
    assert moved.sum() == min(3, len(set(row[1])))
    assert moved.tolist() == counted([row], 3, WORDS)


def test_long_rows() -> None:
    """Rows of thousands of features, most of them repeats, and of more than are there."""
    generator = np.random.default_rng(4)
    rows = [(7, generator.integers(0, WIDTH, size).tolist()) for size in (0, 1, 41, 5000)]
    for most in (1, 7, 1000):
        assert counted(rows, most, WORDS) == expected(rows, most, WORDS)


def test_other_keys_and_other_rows_choose_otherwise() -> None:
    rows: list[Row] = [(5, list(range(WIDTH)))]
    first = counted(rows, 5, WORDS)
    assert counted(rows, 5, WORDS, b"l" * 16) != first
    assert counted([(6, list(range(WIDTH)))], 5, WORDS) != first


def test_every_feature_is_kept_as_often() -> None:
    """Chi-square over 4,000 rows that keep 3 of 8 features: 60 of 7 degrees has probability 1e-9."""
    seeds = np.random.default_rng(5).integers(0, 2**63, 4000).tolist()
    counts = np.array(counted([(seed, list(range(8))) for seed in seeds], 3, WORDS)[:8])
    assert counts.sum() == 12000
    assert ((counts - 1500) ** 2 / 1500).sum() < 60


def test_rows_without_a_hash_of_their_identity() -> None:
    counts, one = np.zeros(3, dtype=np.int64), np.ones(1, dtype=np.int64)
    count_kept(counts, 2 * one, np.array([0, 2]), 2, None, KEY, WORDS)
    assert counts.tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match="hash of their identity"):
        count_kept(counts, 3 * one, np.array([0, 1, 2]), 2, None, KEY, WORDS)


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
