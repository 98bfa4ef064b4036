from __future__ import annotations

import decimal
import math
import random
from decimal import Decimal
from fractions import Fraction

import pytest

from dpsql.noise.discrete import LazyExponential, exp_bounds, fraction_bounds, log_bounds
from dpsql.noise.entropy import WordReader
from dpsql.testing.bits import ScriptedBits, SeededBits

REFERENCE = decimal.Context(prec=400, Emin=-(10**9), Emax=10**9)


def scaled(value: Decimal, digits: int) -> Decimal:
    return REFERENCE.scaleb(value, digits)


@pytest.mark.long
@pytest.mark.parametrize("digits", [5, 29, 80])
def test_log_bounds_enclose_tightly(digits):
    generator = random.Random(0)
    values = [1, 2, 3, 2**64, 2**64 - 1, math.comb(10**6, 100), 10**300 + 1]
    values += [generator.randrange(1, 1 << generator.randrange(1, 900)) for _ in range(200)]
    for value in values:
        low, high = log_bounds(value, digits)
        assert low <= scaled(REFERENCE.ln(Decimal(value)), digits) <= high
        assert high - low <= 12


@pytest.mark.long
@pytest.mark.parametrize("digits", [5, 29, 80])
def test_exp_bounds_enclose_tightly(digits):
    generator = random.Random(1)
    exponents = [Fraction(0), Fraction(-1), Fraction(-1, 10**40), Fraction(-(10**9)), Fraction(-digits * 23, 10)]
    exponents += [-Fraction(generator.randrange(1, 10**6), generator.randrange(1, 10**5)) for _ in range(200)]
    for exponent in exponents:
        low, high = exp_bounds(exponent, digits)
        exact = REFERENCE.exp(REFERENCE.divide(Decimal(exponent.numerator), Decimal(exponent.denominator)))
        assert 0 <= low <= scaled(exact, digits) <= high
        assert high - low <= 8


def test_bounds_do_not_depend_on_the_callers_decimal_context():
    expected = log_bounds(12345, 40), exp_bounds(Fraction(-1, 3), 40)
    with decimal.localcontext() as context:
        context.prec, context.rounding = 3, decimal.ROUND_UP
        context.traps[decimal.Inexact] = True
        assert (log_bounds(12345, 40), exp_bounds(Fraction(-1, 3), 40)) == expected


def test_fraction_bounds():
    assert fraction_bounds(Fraction(1, 3), 2) == (33, 34)
    assert fraction_bounds(Fraction(-1, 3), 2) == (-34, -33)
    assert fraction_bounds(Fraction(7), 1) == (70, 70)


def test_further_bits_narrow_the_interval():
    for seed in range(30):
        variable = LazyExponential(WordReader(SeededBits(seed)))
        before = None
        for _ in range(4):
            low, high = variable.bounds(100)
            assert high is not None
            assert low < high
            if before is not None:
                # Nested but for the last units, and narrower by about 2**64.
                assert before[0] - 4 <= low
                assert high <= before[1] + 4
                assert (high - low) * 2**60 < before[1] - before[0]
            before = (low, high)
            variable.extend()


def test_zero_prefix_has_no_upper_bound():
    variable = LazyExponential(WordReader(ScriptedBits([0, 0, 1])))
    assert variable.bounds(10)[1] is None
    variable.extend()
    assert variable.bounds(10)[1] is None
    variable.extend()
    low, high = variable.bounds(10)
    assert low <= 10**10 * 191 * math.log(2) <= high  # U is in [1, 2] / 2**192


def test_full_prefix_encloses_zero():
    low, high = LazyExponential(WordReader(ScriptedBits([2**64 - 1]))).bounds(40)
    assert low == 0
    assert high == pytest.approx(10**40 * 2.0**-64, rel=1e-6)


def boundary(exponent: int, bits: int) -> int:
    """The prefix whose interval holds exp(-exponent)."""
    return int(REFERENCE.multiply(REFERENCE.exp(Decimal(-exponent)), Decimal(1 << bits)))


@pytest.mark.parametrize(("next_word", "larger"), [(0, True), (2**64 - 1, False)])
def test_undecided_comparison_draws_bits(next_word, larger):
    # U's first 64 bits are those of 1/e: only the next word says on which side of 1 the variable lies.
    source = ScriptedBits([boundary(1, 64), next_word])
    assert LazyExponential(WordReader(source)).exceeds(lambda digits: fraction_bounds(Fraction(1), digits)) is larger


@pytest.mark.parametrize(("next_word", "floor"), [(0, 6), (2**64 - 1, 5)])
def test_undecided_floor_draws_bits(next_word, floor):
    variable = LazyExponential(WordReader(ScriptedBits([next_word])), boundary(2, 63), 63)
    assert variable.floor_of_multiple(Fraction(3)) == floor


def test_refinement_goes_on_as_long_as_it_must():
    # 640 bits of 1/e, then a word that decides.
    prefix = boundary(1, 640)
    words = [prefix >> (64 * place) & (2**64 - 1) for place in reversed(range(10))]
    variable = LazyExponential(WordReader(ScriptedBits([*words, 0])))
    assert variable.exceeds(lambda digits: fraction_bounds(Fraction(1), digits))
    assert variable.bits == 704


def test_floor_of_large_multiples():
    for seed in range(100):
        variable = LazyExponential(WordReader(SeededBits(seed)))
        prefix = variable.prefix
        exponential = REFERENCE.minus(REFERENCE.ln(REFERENCE.divide(Decimal(2 * prefix + 1), Decimal(1 << 65))))
        factor = 10**15 + seed
        assert variable.floor_of_multiple(Fraction(factor)) == int(REFERENCE.multiply(exponential, Decimal(factor)))
