"""The goodness-of-fit helper: right samplers pass, noise scaled by 0.7 and by 1.3 does not."""

from __future__ import annotations

import math
import random

import pytest

from dpsql.testing import fit, runs_needed

FALSE_ALARM = 1e-6


def two_sided_geometric(scale: float, width: int = 60) -> dict[int, float]:
    decay = math.exp(-1.0 / scale)
    return {x: (1 - decay) / (1 + decay) * decay ** abs(x) for x in range(-width, width + 1)}


def draw(law: dict[int, float], runs: int, seed: int) -> list[int]:
    return random.Random(seed).choices(list(law), weights=list(law.values()), k=runs)


def test_right_scale_passes_and_wrong_scales_fail() -> None:
    law = two_sided_geometric(3.0)
    runs = max(runs_needed(law, two_sided_geometric(3.0 * factor)) for factor in (0.7, 1.3))
    assert runs < 5000
    assert fit(draw(law, runs, 1), law, false_alarm=FALSE_ALARM).accepted
    for factor in (0.7, 1.3):
        assert not fit(draw(two_sided_geometric(3.0 * factor), runs, 2), law, false_alarm=FALSE_ALARM).accepted


def test_false_alarms_come_at_the_stated_rate() -> None:
    law = two_sided_geometric(1.0)
    rejected = sum(not fit(draw(law, 400, seed), law, false_alarm=0.05).accepted for seed in range(1000))
    # Binomial(1000, 0.05): 20..85 holds except with probability 1e-5; the seeds are fixed.
    assert 20 <= rejected <= 85


def test_impossible_output_rejects_at_once() -> None:
    result = fit(["a"] * 99 + ["c"], {"a": 0.99, "b": 0.01})
    assert math.isinf(result.statistic)
    assert not result.accepted


def test_cut_off_tail_is_one_cell() -> None:
    law = two_sided_geometric(3.0, width=6)
    assert fit(draw(two_sided_geometric(3.0), 3000, 5), law).accepted


def test_sure_outcome() -> None:
    assert fit(["a"] * 100, {"a": 1.0}).accepted


def test_equal_laws_cannot_be_told_apart() -> None:
    law = two_sided_geometric(1.0)
    with pytest.raises(ValueError, match="too close"):
        runs_needed(law, law)
