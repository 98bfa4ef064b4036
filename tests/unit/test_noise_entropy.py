from __future__ import annotations

import os
import warnings
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from dpsql.noise.entropy import SYSTEM, WordReader
from dpsql.testing.bits import ScriptedBits, SeededBits
from dpsql.testing.distribution import fit
from support.cases import cases

pytestmark = pytest.mark.odds("1e-13: 2000 words of the operating system are different ones")


def test_system_words_are_fresh_and_of_the_right_type():
    first, second = SYSTEM.words(1000), SYSTEM.words(1000)
    assert first.dtype == np.uint64
    assert first.shape == (1000,)
    assert len(set(first.tolist()) | set(second.tolist())) == 2000  # a collision has probability 1e-13
    assert SYSTEM.words(0).shape == (0,)


def test_system_source_keeps_no_state():
    assert not getattr(SYSTEM, "__dict__", {})


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_processes_draw_different_words():
    from dpsql.noise.discrete import discrete_laplace  # imported before the fork, as in a server

    outputs = []
    for _ in range(3):
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns about threads at fork
            child = os.fork()
        if child == 0:
            os.write(write, str(discrete_laplace(Fraction(10**9), 4).tolist()).encode())
            os._exit(0)
        os.close(write)
        outputs.append(os.read(read, 4096))
        os.close(read)
        os.waitpid(child, 0)
    assert all(outputs)
    assert len(set(outputs)) == 3


def test_reader_hands_out_every_word_once_and_in_order():
    reader = WordReader(ScriptedBits(range(100)))
    assert [reader.word() for _ in range(100)] == list(range(100))


def test_below_takes_the_highest_bits_and_rejects():
    # Two bits are needed below 3; the pattern 11 is rejected, not reduced.
    reader = WordReader(ScriptedBits([3 << 62, 3 << 62, 1 << 62]))
    assert reader.below(3) == 1
    assert WordReader(ScriptedBits([7 << 61])).below(1) == 0
    assert WordReader(ScriptedBits([1, 1 << 63])).below(1 << 66) == ((1 << 64) + (1 << 63)) >> 62


@cases("bound", [1, 2, 3, 6, 7, 1 << 64, (1 << 64) + 1, 10**30])
def test_below_stays_in_range(bound):
    reader = WordReader(SeededBits(1))
    drawn = [reader.below(bound) for _ in range(200)]
    assert min(drawn) >= 0
    assert max(drawn) < bound


@cases(("size", "bound"), [(0, 0), (0, 3), (3, 3), (1, 5), (2, 5), (4, 5)])
def test_subset_is_uniform(size, bound):
    subsets = list(combinations(range(bound), size))
    reader = WordReader(SeededBits(2))
    drawn = [tuple(sorted(reader.subset(size, bound))) for _ in range(2000)]
    assert fit(drawn, dict.fromkeys(subsets, 1 / len(subsets)), false_alarm=1e-9).accepted
