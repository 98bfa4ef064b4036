from __future__ import annotations

import decimal
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import ParameterError
from dpsql.noise import discrete
from dpsql.noise.discrete import LazyExponential, discrete_gaussian, discrete_laplace
from dpsql.noise.entropy import WordReader
from dpsql.testing.bits import ScriptedBits, SeededBits
from support.cases import cases

ALL_ONES = 2**64 - 1
SCALES = [Fraction(1, 10**300), Fraction(1, 1000), Fraction(1, 3), Fraction(1), Fraction(7, 3), Fraction(1000)]
SCALES += [Fraction(2**20), Fraction(2**20) + 1, Fraction(10**12), Fraction(10**13, 7), Fraction(2**50)]


def boundary(exponent: Fraction, bits: int) -> int:
    """The prefix whose interval holds ``exp(-exponent)``."""
    context = decimal.Context(prec=60)
    power = context.exp(context.divide(Decimal(-exponent.numerator), Decimal(exponent.denominator)))
    return int(context.multiply(power, Decimal(1 << bits)))


@pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian])
class TestBoth:
    @pytest.mark.parametrize("size", [0, 1, 2, 7, 300, 100_000])
    def test_size_and_type(self, sampler, size):
        noise = sampler(Fraction(10), size)
        assert noise.shape == (size,)
        assert noise.dtype == np.int64

    @pytest.mark.parametrize("value", [Fraction(0), Fraction(-1), Fraction(2**99), 1, 1.0, float("nan"), None])
    def test_bad_scale(self, sampler, value):
        with pytest.raises(ParameterError, match="P017"):
            sampler(value, 1)

    def test_bad_size(self, sampler):
        with pytest.raises(ParameterError, match="P017"):
            sampler(Fraction(1), -1)

    def test_same_bits_same_noise_and_fresh_bits_fresh_noise(self, sampler):
        first = sampler(Fraction(10**6), 50, source=SeededBits(3))
        assert np.array_equal(first, sampler(Fraction(10**6), 50, source=SeededBits(3)))
        assert not np.array_equal(sampler(Fraction(10**6), 50), sampler(Fraction(10**6), 50))

    @pytest.mark.parametrize("scale", SCALES)
    def test_every_scale_gives_noise_of_its_size(self, sampler, scale):
        noise = sampler(scale if sampler is discrete_laplace else scale**2 / 4, 2000)
        spread = float(np.median(np.abs(noise)))
        if scale < 1:
            assert spread <= 1.0
        elif scale >= 1000:
            assert 0.25 < spread / float(scale) < 1.0  # log 2 and 0.674 / 2

    def test_tiny_scale_is_zero(self, sampler):
        assert not sampler(Fraction(1, 1000), 5000).any()  # P(not zero) < 1e-200

    def test_both_signs_and_zero(self, sampler):
        assert {-1, 0, 1} <= set(sampler(Fraction(1), 2000).tolist())


@cases("scale", [scale for scale in SCALES if scale <= 2**20], quick=1)
def test_fast_floor_is_the_exact_floor(scale):
    """The vectorised path and the exact scalar path give the same integer on the same bits."""
    words = SeededBits(5).words(3000) >> np.uint64(1)
    words[:200] >>= np.arange(200, dtype=np.uint64) % np.uint64(63)  # deep into the tail
    words[200:230] = 2**63 - 1
    fast = discrete._geometric(words, scale, ScriptedBits([]))
    for index in range(len(words)):
        if words[index] >= 1 << 47:  # others need bits beyond the prefix
            variable = LazyExponential(WordReader(SeededBits(0)), int(words[index]), 63)
            assert fast[index] == variable.floor_of_multiple(scale)


def test_prefix_on_a_boundary_is_refined():
    # 63 bits of exp(-5/1000): floor(1000 E) is 5 if U is below, 4 if it is above.
    prefix = boundary(Fraction(5, 1000), 63)
    for word, expected in ((0, 5), (ALL_ONES, 4)):
        # The first word holds sign (lowest bit 0: plus) and prefix; the refinement reads what follows.
        assert discrete_laplace(Fraction(1000), 1, source=ScriptedBits([prefix << 1, word]))[0] == expected
        assert discrete_laplace(Fraction(1000), 1, source=ScriptedBits([prefix << 1 | 1, word]))[0] == -expected


def test_all_zero_prefix_is_refined():
    noise = discrete_laplace(Fraction(1), 1, source=ScriptedBits([0, 1 << 63]))
    assert noise[0] == 44  # U in [2**-64, ...): E = 64 log 2 = 44.36


def test_minus_zero_is_redrawn():
    largest = ALL_ONES - 1  # U near 1: magnitude 0
    noise = discrete_laplace(Fraction(1), 1, source=ScriptedBits([largest | 1, largest | 1, largest]))
    assert noise[0] == 0
    source = ScriptedBits([largest | 1, boundary(Fraction(5, 2), 63) << 1 | 1])
    assert discrete_laplace(Fraction(1), 1, source=source)[0] == -2


@pytest.mark.parametrize(("word", "accepted"), [(0, False), (ALL_ONES, True)])
def test_low_part_on_a_boundary_is_refined(word, accepted):
    # scale = 2**21, one low bit, proposal 1: rejected when U < 1 - exp(-1 / 2**21).
    scale = Fraction(2**21)
    prefix = (1 << 63) - 1 - boundary(Fraction(1, 2**21), 63)
    complement_continues = ALL_ONES - word
    # After a rejection: below(2) reads 0 and below(2**63) a large word, so 0 is the value.
    script = [prefix << 1 | 1, complement_continues, 0, ALL_ONES]
    values = discrete._low_part(scale, 1, 1, ScriptedBits(script))
    assert values.tolist() == [1 if accepted else 0]


@cases("variance", [Fraction(1, 1000), Fraction(1, 2), Fraction(5, 2), Fraction(10**6), Fraction(2**98)], quick=1)
def test_fast_acceptance_is_the_exact_acceptance(variance):
    scale = math.isqrt(math.floor(variance)) + 1
    proposals = discrete_laplace(Fraction(scale), 2000, source=SeededBits(8))
    words = SeededBits(9).words(2000)
    fast = discrete._accepted(proposals, variance, scale, ScriptedBits(words.tolist()))
    for proposal, word, accepted in zip(proposals.tolist(), words.tolist(), fast.tolist(), strict=True):
        exponent = (abs(proposal) - variance / scale) ** 2 / (2 * variance)
        variable = LazyExponential(WordReader(SeededBits(0)), word >> 1, 63)
        assert discrete._exceeds(variable, exponent) is accepted


@pytest.mark.parametrize(("word", "accepted"), [(0, True), (ALL_ONES, False)])
def test_acceptance_on_a_boundary_is_refined(word, accepted):
    # variance 1, t = 2, proposal 2: exponent (2 - 1/2)**2 / 2 = 9/8.
    proposal = np.array([2], dtype=np.int64)
    source = ScriptedBits([boundary(Fraction(9, 8), 63) << 1, word])
    assert discrete._accepted(proposal, Fraction(1), 2, source).tolist() == [accepted]


@pytest.mark.long
def test_logarithms_are_far_inside_the_radius():
    """The bound that the samplers assume, on this machine's libraries: 2**-40; required here: 2**-47."""
    context = decimal.Context(prec=40)
    prefixes = SeededBits(4).words(4000) >> np.uint64(1)
    prefixes[:1000] >>= np.arange(1000, dtype=np.uint64) % np.uint64(17)
    uniform = prefixes.astype(np.float64) * 2.0**-63
    for value, logarithm, log1p in zip(uniform, np.log(uniform), np.log1p(-uniform * 2.0**-10), strict=True):
        assert abs(context.ln(Decimal(float(value))) - Decimal(float(logarithm))) < Decimal(2) ** -47
        exact = context.ln(1 - Decimal(float(value)) / 1024)
        assert abs(exact - Decimal(float(log1p))) < abs(exact) * Decimal(2) ** -47
