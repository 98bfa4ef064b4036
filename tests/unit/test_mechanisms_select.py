from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import ParameterError
from dpsql.mechanisms.select import select
from dpsql.noise.race import top_k
from dpsql.testing.bits import SeededBits
from dpsql.testing.distribution import fit
from support.cases import cases
from support.laws.selection import select_law

NOISES = ["exponential", "gumbel"]


@pytest.mark.parametrize("noise", NOISES)
def test_coefficient_is_epsilon_over_k_times_range(noise):
    utility = SeededBits(1).words(50).astype(np.int64) >> 56
    for seed in range(20):
        chosen = select(utility, utility_range=6, epsilon=Fraction(1, 2), k=4, noise=noise, source=SeededBits(seed))
        expected = top_k(utility, Fraction(1, 48), 4, noise=noise, source=SeededBits(seed))
        assert chosen.tolist() == expected.tolist()


@pytest.mark.parametrize("noise", NOISES)
def test_infinite_epsilon_gives_the_top_k_in_order(noise):
    utility = [3, 1, 4, 15, 9, 2, 6]
    chosen = select(utility, utility_range=2, epsilon=Fraction(10**6), k=4, noise=noise)
    assert chosen.tolist() == [3, 4, 6, 2]


@cases("noise", NOISES, quick=1)
def test_vanishing_epsilon_is_uniform(noise):
    law = select_law([9, 0, 4, 0], utility_range=1, epsilon=Fraction(1, 10**12), k=2, noise=noise)
    assert max(abs(p - 1 / 12) for p in law.values()) < 1e-11
    drawn = [
        tuple(select([9, 0, 4, 0], utility_range=1, epsilon=Fraction(1, 10**12), k=2, noise=noise).tolist())
        for _ in range(2000)
    ]
    assert fit(drawn, law, false_alarm=1e-9).accepted


@pytest.mark.parametrize("noise", NOISES)
def test_a_constant_shift_changes_nothing(noise):
    utility = [3, 0, -7, 2]
    for shift in (10**6, -(10**15), 10**40):
        for seed in range(10):
            one, other = (
                select(values, utility_range=2, epsilon=Fraction(3), k=2, noise=noise, source=SeededBits(seed)).tolist()
                for values in (utility, [value + shift for value in utility])
            )
            assert one == other


@cases(
    ("change", "code"),
    [
        ({"epsilon": Fraction(0)}, "P018"),
        ({"epsilon": Fraction(-1)}, "P018"),
        ({"epsilon": 1.0}, "P018"),
        ({"k": 0}, "P018"),
        ({"k": 4}, "P002"),
        ({"noise": "laplace"}, "P018"),
        ({"utility_range": 0}, "P018"),
        ({"utility_range": 1.5}, "P018"),
    ],
)
def test_parameters_are_checked(change, code):
    arguments = {"utility_range": 2, "epsilon": Fraction(1), "k": 1, "noise": "exponential"} | change
    with pytest.raises(ParameterError, match=code):
        select([1, 2, 3], **arguments)
