from __future__ import annotations

import decimal
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import ParameterError
from dpsql.noise.race import _exponential, _gumbel, integer_scores, top_k, weights_above
from dpsql.testing.bits import ScriptedBits, SeededBits
from support.cases import cases

NOISES = ["exponential", "gumbel"]
CONTEXT = decimal.Context(prec=80)
ALL_ONES = 2**64 - 1
MIDDLE = 1 << 63


def exact_order(utility, coefficient, words, noise):
    """Positions by descending score, in 80 digits, taking every prefix to stand for its middle."""
    scores = []
    for value, word in zip(utility, words, strict=True):
        drawn = -CONTEXT.ln(CONTEXT.divide(Decimal(2 * word + 1), Decimal(1 << 65)))
        drawn = drawn if noise == "exponential" else -CONTEXT.ln(drawn)
        lead = CONTEXT.divide(CONTEXT.multiply(value, coefficient.numerator), Decimal(coefficient.denominator))
        scores.append(CONTEXT.add(lead, drawn))
    return sorted(range(len(scores)), key=lambda j: -scores[j])


@cases("noise", NOISES, quick=9)
@cases("seed", range(40))
def test_same_order_as_high_precision_arithmetic(noise, seed):
    generator = np.random.default_rng(seed)
    size = int(generator.integers(1, 60))
    k = int(generator.integers(1, size + 1))
    utility = [int(value) for value in generator.integers(-(10 ** int(generator.integers(1, 18))), 10**3, size)]
    coefficient = Fraction(int(generator.integers(1, 1000)), 10 ** int(generator.integers(0, 6)))
    words = SeededBits(seed + 1000).words(size)
    # Unusual prefixes: deep tails on both sides.
    words[:: int(generator.integers(2, 9))] >>= np.uint64(generator.integers(1, 60))
    words[1 :: int(generator.integers(2, 9))] |= np.uint64(ALL_ONES - (1 << int(generator.integers(1, 60))))
    winners = top_k(utility, coefficient, k, noise=noise, source=ScriptedBits(words.tolist()))
    assert winners.dtype == np.intp
    if len(set(zip(utility, words.tolist(), strict=True))) == size:
        assert winners.tolist() == exact_order(utility, coefficient, words.tolist(), noise)[:k]


@pytest.mark.long
@pytest.mark.parametrize("noise", NOISES)
def test_intervals_hold_the_noise(noise):
    words = SeededBits(0).words(3000)
    words[:1000] >>= np.arange(1000, dtype=np.uint64) % np.uint64(64)
    words[1000:2000] = ~words[:1000]
    words[2000:2002] = 0, ALL_ONES
    low, high = _exponential(words)
    if noise == "gumbel":
        low, high = _gumbel(words, low, high)
    assert (low <= high).all()
    for word, at_least, at_most in zip(words.tolist(), low.tolist(), high.tolist(), strict=True):
        for ends in (Fraction(word), Fraction(word + 1)):
            if ends in (0, 1 << 64):
                unbounded = at_most if (noise == "exponential") is (ends == 0) else at_least
                if not (noise == "exponential" and ends == 1 << 64):
                    assert np.isinf(unbounded)
                continue
            value = CONTEXT.minus(CONTEXT.ln(CONTEXT.divide(Decimal(int(ends)), Decimal(1 << 64))))
            value = value if noise == "exponential" else CONTEXT.minus(CONTEXT.ln(value))
            # `_noisy` adds another 2**-40 for what the prefix's width adds.
            assert Decimal(at_least) - Decimal(2) ** -40 <= value <= Decimal(at_most) + Decimal(2) ** -40
    narrow = (words > 1 << 60) & (words < ALL_ONES - (1 << 40))
    assert (high[narrow] - low[narrow]).max() < 2.0**-25


@cases("noise", NOISES, quick=1)
@cases("word", [0, 1, 1 << 20, MIDDLE, ALL_ONES - 1, ALL_ONES])
def test_equal_prefixes_are_refined(noise, word):
    """Five candidates with equal scores and equal prefixes: only further bits can order them."""
    k = 3
    source = ScriptedBits([word] * 5, seed=1)
    winners = top_k([7] * 5, Fraction(1), k, noise=noise, source=source).tolist()
    assert len(set(winners)) == k
    orders = {
        tuple(top_k([7] * 5, Fraction(1), k, noise=noise, source=ScriptedBits([word] * 5, seed=s)).tolist())
        for s in range(40)
    }
    assert len(orders) > 15


@pytest.mark.parametrize("noise", NOISES)
def test_the_next_bits_decide(noise):
    # Equal prefixes: whoever gets the next word that makes the noise larger wins.
    winners = {
        tuple(top_k([0, 0], Fraction(1), 1, noise=noise, source=ScriptedBits([MIDDLE, MIDDLE, *words])).tolist())
        for words in ([0, ALL_ONES], [ALL_ONES, 0])
    }
    assert winners == {(0,), (1,)}


def test_rounding_is_refined_too():
    """Different prefixes whose doubles coincide."""
    for offset in (1, 3, 200):
        source = ScriptedBits([MIDDLE + offset, MIDDLE])
        assert top_k([0, 0], Fraction(1), 1, noise="exponential", source=source).tolist() == [1]
        source = ScriptedBits([MIDDLE, MIDDLE + offset])
        assert top_k([0, 0], Fraction(1), 1, noise="exponential", source=source).tolist() == [0]


def test_losers_are_not_refined():
    # Places 3 and 4 tie in their prefixes, far below the two winners: no further bits are read.
    source = ScriptedBits([MIDDLE, MIDDLE + (1 << 40), MIDDLE, MIDDLE])
    assert top_k([10, 10, 0, 0], Fraction(1000), 2, noise="exponential", source=source).tolist() == [0, 1]
    assert source.used == 4


def test_border_between_winner_and_loser_is_refined():
    winners = {
        tuple(top_k([10, 0, 0], Fraction(1000), 2, noise="exponential", source=ScriptedBits([MIDDLE] * 3 + words)))
        for words in ([0, ALL_ONES], [ALL_ONES, 0])
    }
    assert winners == {(0, 1), (0, 2)}


@pytest.mark.parametrize("noise", NOISES)
class TestScores:
    @pytest.mark.parametrize(
        "utility",
        [
            [2**63 - 1, -(2**63), 0],
            [10**400, -(10**400), 0],
            [10**25, 10**25 - 10**9, 10**25 - 10**6],
            np.array([2**64 - 1, 0, 2**63], dtype=np.uint64),
            np.array([127, -128, 0], dtype=np.int8),
        ],
    )
    def test_huge_gaps_do_not_overflow(self, noise, utility):
        expected = sorted(range(3), key=lambda j: -int(utility[j]))
        assert top_k(utility, Fraction(100), 3, noise=noise).tolist() == expected

    def test_gaps_far_beyond_doubles_still_count(self, noise):
        # Differences of 1 beside a distance of 10**30.
        utility = [10**30, 10**30 + 1, 0, 1]
        assert top_k(utility, Fraction(200), 4, noise=noise).tolist() == [1, 0, 3, 2]
        utility = [0, 2**62, 2**62 + 1, -(2**62)]
        assert top_k(utility, Fraction(200), 4, noise=noise).tolist() == [2, 1, 0, 3]

    @pytest.mark.parametrize("power", [-2000, -350, -300, 300, 350, 2000])
    def test_extreme_coefficients(self, noise, power):
        coefficient = Fraction(10) ** power
        winners = top_k([5, 7, 6], coefficient, 3, noise=noise).tolist()
        assert winners == [1, 2, 0] if power > 0 else sorted(winners) == [0, 1, 2]

    def test_python_ints_and_int64_agree(self, noise):
        utility = SeededBits(2).words(300).astype(np.int64) >> 40
        for seed in range(5):
            one = top_k(utility, Fraction(1, 10**5), 20, noise=noise, source=SeededBits(seed))
            shifted = [int(value) + 2**70 for value in utility]
            other = top_k(shifted, Fraction(1, 10**5), 20, noise=noise, source=SeededBits(seed))
            assert one.tolist() == other.tolist()

    @pytest.mark.parametrize("k", [1, 10, 5000])
    def test_k_up_to_the_number_of_candidates(self, noise, k):
        winners = top_k(np.zeros(5000, dtype=np.int64), Fraction(1), k, noise=noise)
        assert len(set(winners.tolist())) == k


@cases("utility", [[1.0, 2.0], np.array([1.5]), [None], ["1"], [[1, 2]], 3, np.array([True])])
def test_scores_must_be_integers(utility):
    with pytest.raises(ParameterError, match="P018"):
        integer_scores(utility)


@cases("bits", [12, 30, 40])
def test_weights_have_room_for_the_rounding_of_their_logarithms(bits):
    logarithms = np.append(np.random.default_rng(bits).uniform(-45.0, 0.0, 200), [0.0, -745.0, -1e6, -np.inf])
    for logarithm, weight in zip(logarithms.tolist(), weights_above(logarithms, bits).tolist(), strict=True):
        exact = CONTEXT.multiply(CONTEXT.exp(Decimal(logarithm)), Decimal(1 << bits)) if logarithm > -1e5 else 0
        most = CONTEXT.multiply(exact, Decimal(1 + 2.0**-19))
        assert CONTEXT.multiply(exact, Decimal(1 + 2.0**-22)) < weight <= most + 1


def test_scores_keep_every_unit():
    assert integer_scores([2**63, -1]).tolist() == [2**63, -1]
    assert integer_scores([2**63 - 1, -(2**63)]).dtype == np.int64
    assert integer_scores(np.array([2**64 - 1], dtype=np.uint64)).tolist() == [2**64 - 1]


def test_parameters_are_checked():
    for k in (0, -1, 4):
        with pytest.raises(ParameterError, match="P002"):
            top_k([1, 2, 3], Fraction(1), k, noise="gumbel")
    for coefficient in (Fraction(0), Fraction(-1), 1.0, float("nan")):
        with pytest.raises(ParameterError, match="P018"):
            top_k([1, 2, 3], coefficient, 1, noise="gumbel")
    with pytest.raises(ParameterError, match="P018"):
        top_k([1, 2, 3], Fraction(1), 1, noise="laplace")
    with pytest.raises(ParameterError, match="P002"):
        top_k([], Fraction(1), 1, noise="gumbel")
