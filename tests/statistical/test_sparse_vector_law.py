"""The sparse vector technique: its exact law against epsilon, and draws against the exact law.

Per case the rates of a false alarm and of missing noise of the wrong scale are 1e-8.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.contract.measurement import Permit, measurement_of
from dpsql.errors import ParameterError
from dpsql.mechanisms import sparse_vector as technique
from dpsql.mechanisms.sparse_vector import ScoresAbove, SparseVector, sparse_vector
from dpsql.testing.bits import ScriptedBits
from dpsql.testing.distribution import fit, runs_needed
from support.cases import cases
from support.laws.filters import log_ratio, sparse_vector_law, sparse_vector_run_law

FALSE_ALARM, MISS = 1e-8, 1e-8
WRONG = [Fraction(7, 10), Fraction(13, 10)]
ONE = Fraction(1)


def parameters(
    *, epsilon: Fraction = ONE, cutoff: int = 1, monotone: bool = False, sensitivity: int = 1
) -> SparseVector:
    return SparseVector(sensitivity=sensitivity, epsilon=epsilon, cutoff=cutoff, monotone=monotone)


def loss(first: Sequence[int], second: Sequence[int], chosen: SparseVector, level: int = 0) -> float:
    return log_ratio(*(sparse_vector_law(list(scores), chosen, level=level) for scores in (first, second)))


@cases("cutoff", [1, 2, 3], quick=6)
@cases("epsilon", [Fraction(1, 10), Fraction(1), Fraction(3)])
def test_the_loss_of_five_scores_reaches_epsilon_and_no_more(cutoff: int, epsilon: Fraction) -> None:
    """Scores above that fall, after one below that rises: the case of the proof."""
    chosen = parameters(epsilon=epsilon, cutoff=cutoff)
    first, second = [6, *[4] * 4], [7, *[3] * 4]
    found = loss(first, second, chosen)
    assert 0.99 * epsilon < found <= float(epsilon) * (1 + 1e-9)
    # The scale for scores that move in one direction is too small for these, and the loss for rising ones.
    narrow = parameters(epsilon=epsilon, cutoff=cutoff, monotone=True)
    assert loss(first, second, narrow) > 1.2 * epsilon
    rising = [[6, *[4] * 4], [7, *[4] * 4]]
    falling = [[6, *[4] * 4], [6, *[3] * 4]]
    assert 0.99 * epsilon < loss(rising[0], rising[1], narrow) + loss(falling[0], falling[1], narrow)
    assert max(loss(*rising, narrow), loss(*falling, narrow)) <= float(epsilon) * (1 + 1e-9)


@pytest.mark.long
@cases("monotone", [False, True])
@cases("cutoff", [1, 2, 3])
def test_the_loss_stays_below_epsilon(cutoff: int, monotone: bool) -> None:
    """Random and structured neighbours, scores around the level."""
    generator = np.random.default_rng(cutoff)
    chosen = parameters(cutoff=cutoff, monotone=monotone, sensitivity=2)
    moves: Any = generator.integers(0, 3, (60, 5)) if monotone else generator.integers(-2, 3, (60, 5))
    largest = 0.0
    for move in moves:
        first = generator.integers(-6, 7, 5)
        largest = max(largest, loss(first.tolist(), (first + move).tolist(), chosen))
    for pattern in itertools.product((0, 2) if monotone else (-2, 2), repeat=5):
        first = np.array([3, 3, 0, 0, -3])
        largest = max(largest, loss(first.tolist(), (first + pattern).tolist(), chosen))
    assert 0.5 < largest <= 1 + 1e-9


def test_the_law_sums_to_one() -> None:
    for cutoff in (1, 2, 5, 7):
        chosen = parameters(cutoff=cutoff)
        assert math.fsum(sparse_vector_law([3, -1, 0, 8, 2], chosen, level=1).values()) == pytest.approx(1, abs=1e-12)
        run = sparse_vector_run_law([3, -1, 0, 8], chosen, level=1)
        assert math.fsum(run.values()) == pytest.approx(1, abs=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    ("scores", "cutoff", "monotone", "epsilon"),
    [
        pytest.param([8, 0, 3], 1, False, 2, marks=pytest.mark.slow),
        pytest.param([9, 2, 5, 5], 2, True, 3, marks=pytest.mark.slow),
        pytest.param([12, 0, -4], 3, False, 4, marks=pytest.mark.slow),
        ([10**30 + 4, 10**30], 1, True, 1),
    ],
)
def test_draws_follow_the_exact_law(scores: list[int], cutoff: int, monotone: bool, epsilon: int) -> None:
    offset = 10**30 if scores[0] > 10**20 else 0
    level = 3 + offset

    def chosen(at: Fraction) -> SparseVector:
        return parameters(epsilon=at, cutoff=cutoff, monotone=monotone)

    def sampler(at: Fraction, runs: int) -> list[Any]:
        drawn = (sparse_vector(scores, chosen(at), level=level) for _ in range(runs))
        return [(run.above, run.stopped_at) for run in drawn]

    def law(at: Fraction) -> dict[Any, float]:
        return sparse_vector_run_law([score - offset for score in scores], chosen(at), level=level - offset)

    right, runs = law(Fraction(epsilon)), 1000
    for factor in WRONG:
        needed = runs_needed(right, law(epsilon / factor), false_alarm=FALSE_ALARM, miss=MISS)
        assert not fit(sampler(epsilon / factor, needed), right, false_alarm=FALSE_ALARM).accepted
        runs = max(runs, needed)
    assert fit(sampler(Fraction(epsilon), runs), right, false_alarm=FALSE_ALARM).accepted


def word(chance_below: float) -> int:
    """The first word of a uniform number near exp(-x)."""
    return int(chance_below * 2.0**64)


@cases("nudge", [-3, -1, 0, 1, 3], quick=3)
def test_close_comparisons_are_decided_by_more_bits(nudge: int) -> None:
    """Both noises within some 2**-60 of a tie: doubles cannot tell, and the exact path agrees with 60 digits."""
    from decimal import Decimal, localcontext

    chosen = parameters(monotone=True)  # both halves of epsilon are alike, both scales are 2
    assert chosen.threshold_scale == chosen.score_scale == 2
    first = word(math.exp(-1.5))
    # Order of one score: its own word; then 32 words for the reader, the first of which is the threshold's.
    for second in (first + nudge, word(math.exp(-0.5)) + nudge):
        # Score 0 against level 2 is one unit behind, in the unit of the noise's mean; against 0 it is level.
        level = 0 if second == first + nudge else -2
        with localcontext() as context:
            context.prec = 60
            bar = -(Decimal(first) / 2**64).ln() * 2
            noise = -(Decimal(second) / 2**64).ln() * 2
            expected = noise >= level + bar
        source = ScriptedBits([7, first, *[1 << 63] * 31, second, *[1 << 63] * 32])
        run = sparse_vector([0], chosen, level=level, source=source)
        if nudge or level:
            assert run.above == ((0,) if expected else ())
        assert run.stopped_at == 1


def test_it_stops_at_the_cutoff() -> None:
    scores = np.zeros(50_000, dtype=np.int64)
    scores[::10] = 10**6
    chosen = parameters(cutoff=5, epsilon=Fraction(10))
    run = sparse_vector(scores, chosen, level=chosen.level(Fraction(5 * 10**5)))
    assert len(run.above) == len(set(run.above)) == 5
    assert all(scores[j] for j in run.above)
    assert 5 <= run.stopped_at < 1000
    every = sparse_vector(scores, parameters(cutoff=10**4, epsilon=Fraction(10**6)), level=10**3)
    assert sorted(every.above) == list(range(0, 50_000, 10))
    assert every.stopped_at == 50_000
    assert list(every.above) != sorted(every.above)
    nothing = sparse_vector([], chosen, level=3)
    assert (nothing.above, nothing.stopped_at) == ((), 0)
    far = sparse_vector([10**400, -(10**400)], chosen, level=0)
    assert far.above == (0,)


@pytest.mark.long
def test_the_order_is_uniform() -> None:
    chosen = parameters(cutoff=3, epsilon=Fraction(10**4))
    orders = [sparse_vector([9, 9, 9], chosen, level=0).above for _ in range(3000)]
    assert fit(orders, dict.fromkeys(itertools.permutations(range(3)), 1 / 6), false_alarm=FALSE_ALARM).accepted
    # A repeated word gives no order: all are drawn again.
    again = sparse_vector([9, 9], chosen, level=0, source=ScriptedBits([5, 5, 9, 2]))
    assert again.above == (1, 0)


def test_shares_and_scales() -> None:
    for cutoff, monotone, share in [(1, False, 1 / (1 + 2 ** (2 / 3))), (8, True, 1 / 5), (4, False, 1 / 5)]:
        chosen = parameters(cutoff=cutoff, monotone=monotone, epsilon=Fraction(2), sensitivity=3)
        assert chosen.threshold_epsilon == pytest.approx(2 * share, rel=1e-5)
        spent = 3 / chosen.threshold_scale + (1 if monotone else 2) * cutoff * 3 / chosen.score_scale
        assert spent == 2
        means = chosen.score_scale - chosen.threshold_scale
        assert chosen.level(Fraction(10)) == math.ceil(10 + means)
    for bad in ({"epsilon": Fraction(0)}, {"cutoff": 0}, {"sensitivity": 0}, {"epsilon": 1.0}):
        with pytest.raises(ParameterError):
            parameters(**bad)
    with pytest.raises(ParameterError):
        sparse_vector([0.5], parameters(), level=0)


def test_finer_scores_get_noise_that_is_finer_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores in eighths move by eight times the sensitivity, and so must both scales."""
    runs: list[SparseVector] = []

    def record(scores: Any, run: SparseVector, *, level: int) -> None:
        runs.append(run)

    monkeypatch.setattr(technique, "sparse_vector", record)
    part = ScoresAbove("filter", parameters(cutoff=2, monotone=False, sensitivity=3))
    for finer in (1, 8):
        with Permit(measurement_of(part)).drawing():
            part.draw(np.array([8, 16]), threshold=Fraction(5), finer=finer)
    assert runs[1].score_scale == 8 * runs[0].score_scale
    assert runs[1].threshold_scale == 8 * runs[0].threshold_scale
