"""Broken thresholds of keys: each is caught by its exact law, and the right one passes the same check."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from dpsql.mechanisms.count_noise import gaussian_count_noise
from dpsql.mechanisms.key_limits import gaussian_key_budget, limits_by_group, limits_by_weight
from dpsql.mechanisms.partition_selection import LAWS, key_threshold, partition_selection
from support.broken import keys as broken
from support.laws.keys import joint_excess, normal_profile, upper_tail

ONE, SMALL = Fraction(1), Fraction(1, 10**6)
ALONE = [(1, 0)]


@pytest.mark.parametrize("law", LAWS)
def test_the_right_threshold_of_one_key(law: str) -> None:
    right = partition_selection(epsilon=ONE, delta=SMALL, neighbours="add_remove", limits=limits_by_group(1), law=law)
    assert joint_excess(right.noise, right.threshold, ALONE, 1.0) <= 1e-6
    wrong = broken.threshold_of_one(right)
    assert joint_excess(wrong.noise, wrong.threshold, ALONE, 1.0) > 0.49


@pytest.mark.parametrize(("epsilon", "factor"), [("1/2", 1.2), ("2", 1.7), ("5", 1.9)])
def test_discrete_noise_with_the_continuous_threshold(epsilon: str, factor: float) -> None:
    """With a delta such that the threshold is a whole number: up to 2 / (1 + exp(-epsilon)) of it."""
    loss = Fraction(epsilon)
    delta = Fraction(math.exp(-8 * float(loss)) / 2) * (1 + Fraction(1, 10**9))
    wrong = broken.continuous_threshold(loss, delta)
    right = partition_selection(
        epsilon=loss, delta=delta, neighbours="add_remove", limits=limits_by_group(1), law="laplace"
    )
    assert wrong.threshold < right.threshold
    assert joint_excess(right.noise, right.threshold, ALONE, float(loss)) <= delta
    # Below 9 by a rounding: one step more is lost.
    assert joint_excess(wrong.noise, wrong.threshold + 1, ALONE, float(loss)) > factor * delta


def test_the_continuous_threshold_rounded_down() -> None:
    wrong = broken.continuous_threshold(ONE, SMALL)
    assert wrong.threshold == 14
    assert joint_excess(wrong.noise, wrong.threshold, ALONE, 1.0) == pytest.approx(1.65e-6, rel=5e-3)


def test_gaussian_noise_with_the_laplace_threshold() -> None:
    wrong = broken.laplace_threshold(ONE, SMALL, limits=limits_by_group(1))
    assert wrong.least_count == 15
    assert wrong.noise.deviation == pytest.approx(4.225, abs=1e-3)
    assert joint_excess(wrong.noise, wrong.threshold, ALONE, 1.0) == pytest.approx(4.7e-4, rel=0.03)


def test_three_noises_with_the_threshold_of_two() -> None:
    noise, threshold = broken.threshold_of_two_noises(ONE, SMALL, steps=20)
    assert threshold / 20 == pytest.approx(16.3, abs=0.06)
    assert upper_tail(noise, threshold - 20) == pytest.approx(4.5e-6, rel=0.06)
    assert float(noise.tail(threshold - 20)) == pytest.approx(upper_tail(noise, threshold - 20), rel=1e-6)
    assert noise.tail(noise.least(SMALL)) <= SMALL


def test_integer_noise_with_the_continuous_threshold() -> None:
    noise, threshold = broken.continuous_gaussian(Fraction("2.588"), Fraction("8.996"))
    weights = [math.exp(-(k**2) / (2 * 2.588**2)) for k in range(-60, 61)]
    real = math.fsum(weights[60 + threshold - 1 :]) / math.fsum(weights)
    assert real == pytest.approx(1.77e-3, rel=2e-3)
    assert float(noise.tail(threshold - 1)) == pytest.approx(real, rel=1e-12)
    assert noise.least(Fraction(1, 1000)) == threshold


def test_truncated_noise_loses_values_of_both_units() -> None:
    limits, delta = limits_by_group(1), Fraction(68, 1000)
    right = partition_selection(epsilon=Fraction(2), delta=delta, neighbours="replace", limits=limits, law="truncated")
    wrong = broken.lost_on_one_side(Fraction(2), delta, limits=limits)
    high = [(100, 99), (99, 100)]
    assert joint_excess(right.noise, right.threshold, high, 2.0) <= delta
    assert joint_excess(wrong.noise, wrong.threshold, high, 2.0) > 1.9 * delta


def test_lone_keys_that_leave_the_norm_of_the_others() -> None:
    """A unit of 5 rows, 2 to a key, in 3 keys: beside a lone key of one row, 8 of 9 squares are left, and not two thirds."""
    epsilon, delta = Fraction(1, 10), Fraction(1, 20)
    limits = limits_by_group(3, 2, 5)
    assert limits.squares == 9
    options: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "neighbours": "add_remove"}
    for used in (limits, broken.shares_by_key(limits)):
        mu = gaussian_key_budget(epsilon, delta, neighbours="add_remove", limits=used).mu
        noise = gaussian_count_noise(limits.squares, mu)
        threshold = key_threshold(noise, limits=used, mu=mu, **options)
        real = 0.0
        for lone, squares in [((1,), 8), ((2,), 5), ((1, 1), 4), ((1, 2), 4), ((2, 2), 1), ((1, 2, 2), 0)]:
            kept = math.prod(1 - upper_tail(noise, threshold - rows * noise.unit) for rows in lone)
            rest = normal_profile(float(mu) * math.sqrt(squares / 9), 0.1 - math.log(kept))
            real = max(real, 1 - kept + kept * rest)
        assert (real > 1.08 * float(delta)) == (used != limits)
        assert real > 0.6 * float(delta)


@pytest.mark.parametrize(("epsilon", "delta"), [("1/10", "1/20"), ("1", "1/1000"), ("3", "1/100")])
def test_weights_that_do_not_shrink(epsilon: str, delta: str) -> None:
    """A unit with k keys has the weight ``1 / sqrt(k)`` in each; if it had ones, six lone keys would show too often."""
    loss, chance, most = Fraction(epsilon), Fraction(delta), 6
    limits = limits_by_weight(most)
    mu = gaussian_key_budget(loss, chance, neighbours="add_remove", limits=limits).mu
    noise = gaussian_count_noise(limits.squares, mu)
    options: dict[str, Any] = {"epsilon": loss, "delta": chance, "neighbours": "add_remove"}
    threshold = key_threshold(noise, limits=limits, mu=mu, **options)

    def excess(weight: Callable[[int], float]) -> float:
        worst = 0.0
        for keys in range(1, most + 1):
            for lone in range(keys + 1):
                kept = (1 - upper_tail(noise, threshold - weight(keys) * noise.unit)) ** lone
                common = float(mu) * weight(keys) * math.sqrt(keys - lone)
                worst = max(worst, 1 - kept + kept * normal_profile(common, float(loss) - math.log(kept)))
        return worst

    assert 0.5 * chance < excess(lambda keys: 1 / math.sqrt(keys)) <= chance
    assert excess(lambda keys: 1.0) > 1.5 * chance
