from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.contract.events import CanonicalLipschitz, Event, ExponentialNoise, GumbelNoise
from dpsql.contract.measurement import Permit, measurement_of
from dpsql.errors import ParameterError
from dpsql.mechanisms import one_shot
from dpsql.mechanisms.one_shot import select
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


@pytest.mark.parametrize(
    ("mechanism", "event"),
    [
        ("one_shot", ExponentialNoise(Fraction(1), 3)),
        ("gumbel", GumbelNoise(Fraction(1), 3, rounds=3)),
        ("canonical_lipschitz", CanonicalLipschitz(Fraction(1), 3, "1/2")),
    ],
)
def test_a_selection_is_charged_as_the_noise_that_it_draws(
    monkeypatch: pytest.MonkeyPatch, mechanism: str, event: Event
) -> None:
    """Under zCDP exponential noise costs four times what Gumbel noise does, and k rounds a k-th of one."""
    drawn: list[str] = []
    monkeypatch.setattr(one_shot, "select", lambda *_, noise, **__: drawn.append(noise) or np.arange(3))
    monkeypatch.setattr(one_shot, "canonical_lipschitz", lambda *_, **__: drawn.append("lipschitz") or np.arange(3))
    part = one_shot.OneShotSelection("it", mechanism, Fraction(1), 3, Fraction(1, 2))
    with Permit(measurement_of(part)).drawing():
        part.draw(np.arange(5), utility_range=1)
    assert part.event == event
    assert drawn == [{ExponentialNoise: "exponential", GumbelNoise: "gumbel"}.get(type(event), "lipschitz")]
    assert part.event.cost.rho == Fraction(1, 2) if mechanism != "gumbel" else Fraction(1, 24)
