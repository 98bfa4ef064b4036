"""The auditor itself: its bound holds, it finds what is wrong, and it says when it cannot tell."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest

from dpsql.testing import audit, default_views
from dpsql.testing.auditor import binomial_limits
from dpsql.testing.views import atoms, grain

Release = Callable[[float, int], list[object]]


def laplace(scale: float, seed: int) -> Release:
    generator = np.random.default_rng(seed)
    decay = math.exp(-1.0 / scale)

    def release(value: float, count: int) -> list[object]:
        draws = generator.geometric(1 - decay, count) - generator.geometric(1 - decay, count)
        return list((int(value) + draws).tolist())

    return release


def test_clopper_pearson_limits_are_exact() -> None:
    # 5 of 10 at 2.5 % per side, and the closed forms at 0 and at all.
    lower, upper = binomial_limits([5, 0, 10], 10, 0.025)
    assert lower == pytest.approx([0.18708603, 0.0, 0.025 ** (1 / 10)])
    assert upper == pytest.approx([0.81291397, 1 - 0.025 ** (1 / 10), 1.0])


@pytest.mark.long
def test_bound_holds_over_many_audits() -> None:
    violated = sum(
        audit(laplace(1.0, seed), (0, 1), epsilon=1.0, runs=200, confidence=0.9).epsilon_lower > 1.0
        for seed in range(200)
    )
    # At most Binomial(200, 0.1): above 38 with probability below 1e-4; the seeds are fixed.
    assert violated <= 38


def test_right_scale_passes_and_half_scale_violates() -> None:
    assert audit(laplace(1.0, 1), (0, 1), epsilon=1.0).verdict == "passes"
    report = audit(laplace(0.5, 2), (0, 1), epsilon=1.0)
    assert report.verdict == "violates"
    assert 1.0 < report.epsilon_lower <= 2.0
    assert "violates" in str(report)


def test_scale_of_seven_tenths_violates() -> None:
    assert audit(laplace(0.7, 3), (0, 1), epsilon=1.0, runs=20_000).verdict == "violates"


def test_the_event_is_chosen_for_the_outputs_that_judge_it() -> None:
    """Outputs that choose are few: by their own limits, a set of two likely outputs beats the one that tells tables apart."""
    generator = np.random.default_rng(5)
    chances = (0.475, 0.44, 0.08, 0.005), (0.455, 0.0001, 0.525, 0.0199)

    def release(side: int, count: int) -> list[object]:
        return list(generator.choice(4, size=count, p=chances[side]).tolist())

    reports = [audit(release, (0, 1), epsilon=0.5, runs=400, confidence=1 - 1e-6) for _ in range(40)]
    assert {report.verdict for report in reports} == {"violates"}


def test_too_few_runs_cannot_tell() -> None:
    assert audit(laplace(0.5, 4), (0, 1), epsilon=1.0, runs=16).verdict == "cannot tell"


def test_tables_that_do_not_differ_cannot_tell() -> None:
    report = audit(laplace(1.0, 5), (0, 0), epsilon=1.0)
    assert report.verdict == "cannot tell"
    assert report.epsilon_lower < 0.3


def test_constant_output_cannot_tell() -> None:
    assert audit(lambda table, count: [None] * count, (0, 1), epsilon=1.0).verdict == "cannot tell"


def test_delta_is_taken_off() -> None:
    def release(value: float, count: int) -> list[object]:
        generator = random.Random(int(value) + 11)
        return ["shown" if value and generator.random() < 0.2 else "hidden" for _ in range(count)]

    assert audit(release, (0, 1), epsilon=1.0).verdict == "violates"
    assert audit(release, (0, 1), epsilon=1.0, delta=0.25).verdict == "cannot tell"


def test_exact_value_among_noisy_ones_is_found() -> None:
    noisy = laplace(5.0, 6)

    def release(value: float, count: int) -> list[object]:
        return [(noise, f"id {noise}", value) for noise in noisy(0, count)]

    assert audit(release, (3.5, 4.5), epsilon=1.0, runs=400).verdict == "violates"


def test_shared_noise_is_found_by_differences() -> None:
    noisy = laplace(50.0, 7)

    def release(value: float, count: int) -> list[object]:
        return [(10 + noise, int(value) + noise) for noise in noisy(0, count)]

    report = audit(release, (3, 4), epsilon=0.1, runs=400)
    assert report.verdict == "violates"
    assert "output[0] - output[1]" in report.event


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="runs must be >= 10"):
        audit(laplace(1.0, 0), (0, 1), epsilon=1.0, runs=4)
    with pytest.raises(ValueError, match="must return count outputs"):
        audit(lambda table, count: [], (0, 1), epsilon=1.0)


def test_atoms_and_grain() -> None:
    assert atoms([(1, "a"), {"x": np.float64(2.0)}, np.arange(2)]) == (1, "a", "x", 2.0, 0, 1)
    assert [grain(value) for value in (1.0, 0.75, 6.0, 0.0, math.inf, 2.0**-60)] == [0, -2, 1, 0, 0, -60]


def test_views_take_anything() -> None:
    odd = [None, math.nan, math.inf, "a", 10**400, (1, None), {"k": [1.5]}, True, b"x", {1, 2}]
    for name, view in default_views(odd):
        for outcome in [*odd, (), -math.inf, ("a", "b", 3.0)]:
            assert hash(view(outcome)) is not None, name
