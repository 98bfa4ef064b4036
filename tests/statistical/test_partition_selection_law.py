"""Selection of keys: the exact delta of its law over all mixes of keys, and draws against the law."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.contract.gaussian_profile import gaussian_mu
from dpsql.errors import InternalError, ParameterError
from dpsql.mechanisms.partition_selection import (
    NOISES,
    PartitionSelection,
    laplace_tail,
    normal_tail,
    partition_selection,
    select_partitions,
)
from dpsql.testing.distribution import fit, runs_needed
from dpsql.testing.neighbours import RELATIONS, Relation
from support.laws.filters import excess, product_law, released_keys_law

FALSE_ALARM, MISS = 1e-8, 1e-6
SETTINGS = [(0.5, 1e-3), (1, 1e-6), (1, 0.05), (3, 1e-3), (8, 0.01)]


def selection(noise: str, epsilon: float, delta: float, relation: Relation, r: int, m: int = 1) -> PartitionSelection:
    return partition_selection(
        noise,
        epsilon=Fraction(str(epsilon)),
        delta=Fraction(str(delta)),
        neighbours=relation,
        max_keys_per_row=r,
        max_rows_per_unit=m,
    )


def shares(total: int, most: int) -> Iterator[tuple[int, ...]]:
    """How a unit's entries may be spread over keys: at most `most` to a key, at most `total` of them."""
    for count in range(total + 1):
        for parts in itertools.combinations_with_replacement(range(1, most + 1), count):
            if sum(parts) <= total:
                yield parts


def excesses(chosen: PartitionSelection, epsilon: float, relation: Relation, r: int, m: int) -> Iterator[float]:
    """Delta of neighbours: keys of the unit that nobody else has, and keys that others have, near the threshold."""
    top = round(chosen.threshold)
    others = [1, max(1, top - 1), top, top + m]
    for left, right in itertools.product(shares(m * r, m), [()] if relation == "add_remove" else shares(m * r, m)):
        for fresh in range(len(left) + 1):
            for base in others:
                # The first keys of the unit are its own; of the others `base` other rows have each.
                own = {f"l{i}": a for i, a in enumerate(left[:fresh])}
                both = {f"b{i}": base for i in range(len(left) - fresh)}
                moved = {f"b{i}": base + a for i, a in enumerate(left[fresh:])}
                new = {f"r{i}": a for i, a in enumerate(right)}
                laws = released_keys_law({**own, **moved}, chosen), released_keys_law({**both, **new}, chosen)
                yield max(excess(*laws, epsilon), excess(*laws[::-1], epsilon))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("r", "m"), [(1, 1), (2, 1), (1, 2), (1, 3), (2, 2)])
def test_delta_holds_for_every_mix_of_keys(r: int, m: int, relation: Relation, noise: str) -> None:
    for epsilon, delta in SETTINGS:
        chosen = selection(noise, epsilon, delta, relation, r, m)
        largest = max(excesses(chosen, epsilon, relation, r, m))
        # Gaussian noise takes half of delta, replacement half of the rest; a whole number is at most one step off.
        step = math.exp(-1 / float(chosen.scale)) if noise == "laplace" else 0.9
        least = delta * step / (1 if noise == "laplace" else 2) / (1 if relation == "add_remove" else 2)
        assert 0.9 * least < largest <= delta * (1 + 1e-9)


def test_thresholds_of_a_row_with_one_key() -> None:
    """Discrete Laplace noise: 1 + k with the least k that holds; the threshold of continuous noise is lower."""
    chosen = selection("laplace", 1, 1e-6, "add_remove", 1)
    ratio = math.exp(-1)
    k = int(chosen.threshold) - 1
    assert ratio**k / (1 + ratio) <= 1e-6 < ratio ** (k - 1) / (1 + ratio)
    gaussian = selection("gaussian", 1, 1e-6, "add_remove", 1)
    assert gaussian.deviation == pytest.approx(1 / float(gaussian_mu(Fraction(1), Fraction(1, 2 * 10**6))), rel=1e-6)
    assert gaussian.threshold == pytest.approx(1 + 4.8916 * gaussian.deviation, rel=1e-4)
    # Ten keys: Gaussian noise grows with the root.
    assert selection("gaussian", 1, 1e-6, "add_remove", 10).threshold < 80
    assert selection("laplace", 1, 1e-6, "add_remove", 10).threshold > 150
    # A unit of five rows: five keys of its own with one row each, or one with five.
    many = selection("laplace", 1, 1e-6, "add_remove", 1, 5)
    assert many.scale == 5
    tails = [laplace_tail(Fraction(5), Fraction(1, 5 * 10**6)), laplace_tail(Fraction(5), Fraction(1, 10**6))]
    assert many.threshold == max(1 + tails[0], 5 + tails[1]) < 5 + tails[0]


@pytest.mark.parametrize(
    ("noise", "epsilon", "counts"),
    [
        ("gaussian", 1, (2, 5, 9)),
        ("laplace", 4, (1, 3, 4)),
        pytest.param("gaussian", 4, (1, 3, 4), marks=pytest.mark.slow),
        pytest.param("laplace", 1, (2, 5, 9), marks=pytest.mark.slow),
    ],
)
def test_draws_follow_the_exact_law(noise: str, epsilon: int, counts: tuple[int, ...]) -> None:
    names = [f"k{i}" for i in range(len(counts))]

    def chosen(factor: float = 1.0) -> PartitionSelection:
        """The right threshold with noise of a wrong scale."""
        right = selection(noise, epsilon, 0.05, "add_remove", 2)
        scale = right.scale * Fraction(str(factor))
        return PartitionSelection(
            noise, Fraction(round(scale)) if noise == "gaussian" else scale, right.threshold, right.mu, right.shift
        )

    def sampler(factor: float, runs: int) -> list[Any]:
        values = np.array(counts)
        return [frozenset(select_partitions(names, values, chosen(factor))) for _ in range(runs)]

    law, runs = released_keys_law(dict(zip(names, counts, strict=True)), chosen()), 1000
    for factor in (0.7, 1.3):
        wrong = released_keys_law(dict(zip(names, counts, strict=True)), chosen(factor))
        needed = runs_needed(law, wrong, false_alarm=FALSE_ALARM, miss=MISS)
        assert not fit(sampler(factor, needed), law, false_alarm=FALSE_ALARM).accepted
        runs = max(runs, needed)
    assert fit(sampler(1.0, runs), law, false_alarm=FALSE_ALARM).accepted


@pytest.mark.parametrize("noise", NOISES)
def test_names_come_sorted(noise: str) -> None:
    chosen = selection(noise, 100, 1e-12, "add_remove", 3)
    generator = np.random.default_rng(0)
    names = [f"w{i:03d}" for i in generator.permutation(500)]
    counts = np.where(generator.random(500) < 0.5, 1, 10**6)
    released = select_partitions(names, counts, chosen)
    assert released == sorted(name for name, count in zip(names, counts, strict=True) if count > 1)
    assert select_partitions([], np.array([], dtype=np.int64), chosen) == []
    for bad in ([1, 0], [1, 1, 1]):
        with pytest.raises(InternalError, match="I031"):
            select_partitions(["a", "b"], np.array(bad), chosen)
    with pytest.raises(InternalError, match="I031"):
        select_partitions(["a", "a"], np.array([3, 4]), chosen)


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(1000)])
@pytest.mark.parametrize("chance", [Fraction(1, 10**20), Fraction(1, 1000), Fraction(1, 3), Fraction(9, 10)])
def test_the_laplace_tail_is_the_least_that_holds(scale: Fraction, chance: Fraction) -> None:
    def tail(k: int) -> Decimal:
        rate = Decimal(scale.denominator) / Decimal(scale.numerator)
        return (-rate * k).exp() / (1 + (-rate).exp())

    with localcontext() as context:
        context.prec = 60
        allowed = Decimal(chance.numerator) / Decimal(chance.denominator)
        k = laplace_tail(scale, chance)
        assert tail(k) <= allowed
        assert k == 1 or tail(k - 1) > allowed


def test_the_normal_tail_holds() -> None:
    from scipy.stats import norm

    for chance in (Fraction(1, 10**300), Fraction(1, 10**18), Fraction(1, 1000), Fraction(2, 5)):
        z = normal_tail(chance)
        assert math.erfc(z / math.sqrt(2)) / 2 < chance
        assert norm.isf(float(chance)) <= z <= norm.isf(float(chance)) * (1 + 1e-8)
    assert normal_tail(Fraction(1, 2)) == pytest.approx(0, abs=1e-8)
    assert normal_tail(Fraction(2, 3)) == 0
    with pytest.raises(ParameterError, match="P038"):
        normal_tail(Fraction(1, 10**301))


def test_bad_arguments_are_refused() -> None:
    good: dict[str, Any] = {
        "epsilon": Fraction(1),
        "delta": Fraction(1, 10**6),
        "neighbours": "replace",
        "max_keys_per_row": 2,
    }
    for code, bad in [
        ("P018", {"epsilon": Fraction(0)}),
        ("P018", {"epsilon": 1.0}),
        ("P018", {"neighbours": "bounded"}),
        ("P018", {"max_rows_per_unit": 0}),
        ("P018", {"delta": Fraction(1)}),
        ("P018", {"max_keys_per_row": 0}),
    ]:
        for noise in NOISES:
            with pytest.raises(ParameterError, match=code):
                partition_selection(noise, **{**good, **bad})
    with pytest.raises(ParameterError, match="P038"):
        partition_selection("laplace", **{**good, "epsilon": Fraction(1, 10**20)})
    with pytest.raises(ParameterError, match="P038"):
        partition_selection("gaussian", **{**good, "epsilon": Fraction(1, 10**6), "delta": Fraction(1, 10**12)})
    with pytest.raises(ParameterError, match="P038"):
        partition_selection("gaussian", **{**good, "max_rows_per_unit": 10**13})
    with pytest.raises(ParameterError, match="P018"):
        partition_selection("uniform", **good)


def test_product_law() -> None:
    law = product_law({"a": 0.25, "b": 0.5})
    assert law == {frozenset(): 0.375, frozenset("a"): 0.125, frozenset("b"): 0.375, frozenset("ab"): 0.125}
    assert excess(law, {frozenset(): 1.0}, 1.0) == pytest.approx(0.625)
