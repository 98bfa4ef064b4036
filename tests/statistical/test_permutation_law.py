"""Permutations are uniform, and rows that draw the same word are drawn again."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from dpsql.noise.permutations import permutation
from dpsql.testing import fit


class Words:
    """Words that are given, one array after another."""

    def __init__(self, *given: list[int]) -> None:
        self._given = list(given)

    def words(self, size: int, /) -> NDArray[np.uint64]:
        """Return the next ones."""
        return np.array(self._given.pop(0), dtype=np.uint64)


def test_all_orders_are_equally_likely() -> None:
    law = dict.fromkeys(itertools.permutations(range(4)), 1 / 24)
    assert fit([tuple(permutation(4).tolist()) for _ in range(20_000)], law, false_alarm=1e-8).accepted
    turned = dict.fromkeys(law, 0.5 / 23) | {(0, 1, 2, 3): 0.5}
    assert not fit([tuple(permutation(4).tolist()) for _ in range(20_000)], turned, false_alarm=1e-8).accepted


def test_equal_words_are_drawn_again() -> None:
    assert permutation(3, source=Words([5, 1, 5], [1, 1, 0], [7, 9, 2])).tolist() == [2, 0, 1]


def test_no_rows_and_one_row() -> None:
    assert [permutation(size).tolist() for size in (0, 1)] == [[], [0]]
