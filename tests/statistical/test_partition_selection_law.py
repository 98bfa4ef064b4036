"""Selection of keys: the exact delta of its joint law with noisy counts, the tables of thresholds, and draws."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.contract.measurement import Permit, measurement_of
from dpsql.contract.relation import Contribution
from dpsql.errors import InternalError, ParameterError
from dpsql.mechanisms import key_limits
from dpsql.mechanisms.aggregates import count_law
from dpsql.mechanisms.count_noise import (
    GaussianCountNoise,
    LaplaceCountNoise,
    TruncatedCountNoise,
    gaussian_count_noise,
)
from dpsql.mechanisms.key_limits import KeyLimits, gaussian_key_budget, limits_by_group, limits_by_row
from dpsql.mechanisms.keyed_aggregates import KeyedNoise, keyed_noise
from dpsql.mechanisms.partition_selection import (
    LAWS,
    PartitionSelection,
    key_threshold,
    partition_selection,
    release_partitions,
    select_partitions,
    truncated_count_noise,
)
from dpsql.statistics.aggregates import NOISES, Sums, blocks_for
from dpsql.testing.distribution import fit, runs_needed
from dpsql.testing.neighbours import RELATIONS, Relation
from support.cases import cases
from support.laws.filters import excess, product_law, released_keys_law
from support.laws.keys import (
    excess_of_keys,
    joint_excess,
    neighbouring_counts,
    normal_profile,
    one_pair_key,
    released_law,
    upper_tail,
)

FALSE_ALARM, MISS = 1e-8, 1e-8
SETTINGS = [(1, 1e-6), (0.1, 0.05), (3, 1e-3), (8, 0.01), (0.01, 0.1)]
# What a unit may have: limits, its rows in all, its rows in one key, and its keys.
UNITS: dict[str, tuple[KeyLimits, int, int, int]] = {
    "one key": (limits_by_group(1), 1, 1, 1),
    "two keys": (limits_by_group(2), 2, 1, 2),
    "two rows of one key": (limits_by_row(1, 2), 2, 2, 2),
    "one key of two rows": (limits_by_group(1, 2), 2, 2, 1),
    "three rows in two keys": (limits_by_group(2, 2, 3), 3, 2, 2),
}


def selection(law: str, epsilon: float, delta: float, relation: Relation, limits: KeyLimits) -> PartitionSelection:
    return partition_selection(
        epsilon=Fraction(str(epsilon)), delta=Fraction(str(delta)), neighbours=relation, limits=limits, law=law
    )


def largest_excess(chosen: PartitionSelection, epsilon: float, relation: Relation, unit: str) -> float:
    """Delta with noisy counts shown: keys of the unit alone, and keys that others have, near the threshold and above."""
    _, total, most, keys = UNITS[unit]
    top = math.ceil(chosen.least_count)
    mixes = neighbouring_counts(relation == "replace", total, most, keys, [1, max(1, top - 1), top, 3 * top])
    # Two keys with Gaussian noise have a million outcomes already.
    fewer = (mix for mix in mixes if len(mix) <= (2 if isinstance(chosen.noise, GaussianCountNoise) else 4))
    return max(joint_excess(chosen.noise, chosen.threshold, mix, epsilon) for mix in fewer)


def every_call() -> Iterator[Any]:
    """Few by default. The loss of (0.01, 0.1) is small beside delta: a lone key costs more than the loss of its share."""
    for unit in UNITS:
        for setting in SETTINGS if unit in ("one key", "two keys") else SETTINGS[:-1]:
            fast = unit == "one key" or setting == SETTINGS[0]
            yield pytest.param(unit, setting, marks=[] if fast else pytest.mark.slow, id=f"{unit} {setting}")


@cases("law", LAWS, quick=1)
@cases("relation", RELATIONS)
@cases(("unit", "setting"), list(every_call()))
def test_delta_holds_with_noisy_counts_for_every_mix_of_keys(
    unit: str, setting: tuple[float, float], relation: Relation, law: str
) -> None:
    epsilon, delta = setting
    limits, *_, keys = UNITS[unit]
    chosen = selection(law, epsilon, delta, relation, limits)
    largest = largest_excess(chosen, epsilon, relation, unit)
    assert largest <= delta * (1 + 1e-9)
    if law == "gaussian" and keys == 1:
        assert largest > 0.999 * delta
    if law == "laplace":  # a step less would not do
        lone = [
            1 - (1 - upper_tail(chosen.noise, chosen.threshold - 1 - rows)) ** (limits.pieces // pieces)
            for pieces, rows in limits.lone
        ]
        assert max(lone) > delta or chosen.threshold == 1 + max(rows for _, rows in limits.lone)


@cases("law", LAWS)
@cases("factor", [0.7, 1.3])
def test_other_noise_fails_the_same_check(law: str, factor: float) -> None:
    """Less noise is less private beside a key that others have; more noise releases lone keys more often."""
    chosen = selection(law, 1, 1e-3, "add_remove", limits_by_group(1))
    wrong = replace(chosen, noise=scaled(chosen, factor).noise)
    if law == "truncated" and factor > 1:  # the bound stays, and the last value gets more likely
        assert joint_excess(wrong.noise, wrong.threshold, [(1, 0)], 1.0) > 1e-3
    else:
        assert largest_excess(wrong, 1.0, "add_remove", "one key") > 1.5e-3


def scaled(chosen: PartitionSelection, factor: float) -> PartitionSelection:
    """Return the right threshold with noise of a wrong scale."""
    by, noise = Fraction(str(factor)), chosen.noise
    if isinstance(noise, GaussianCountNoise):
        return replace(chosen, noise=replace(noise, variance=noise.variance * by**2))
    assert isinstance(noise, LaplaceCountNoise | TruncatedCountNoise)
    return replace(chosen, noise=replace(noise, scale=noise.scale * by))


def test_thresholds_of_the_specification() -> None:
    """Laplace, truncated and Gaussian noise at (1, 1e-6), for units in g keys."""
    tables: dict[Relation, dict[int, tuple[int, int, float]]] = {
        "add_remove": {
            1: (15, 15, 21.09),
            2: (30, 28, 30.23),
            3: (45, 41, 37.38),
            5: (76, 67, 48.89),
            20: (324, 264, 101.64),
        },
        "replace": {1: (28, 28, 29.40), 2: (57, 54, 42.34), 3: (87, 80, 52.44)},
    }
    for relation, rows in tables.items():
        for groups, (laplace, truncated, gaussian) in rows.items():
            found = {law: selection(law, 1, 1e-6, relation, limits_by_group(groups)).least_count for law in LAWS}
            assert (found["laplace"], found["truncated"]) == (laplace, truncated)
            assert found["gaussian"] == pytest.approx(gaussian, abs=0.011)
    tenth = truncated_count_noise(
        epsilon=Fraction(1, 10), delta=Fraction(1, 10**6), neighbours="add_remove", limits=limits_by_group(1)
    )
    assert tenth.bound + 1 == 110
    assert selection("laplace", 0.1, 1e-6, "add_remove", limits_by_group(1)).threshold == 133


def test_thresholds_of_sums_of_noisy_numbers() -> None:
    """Of a count that is the sum of two or three numbers, on their lattice."""
    steps, options = 1 << 21, {"delta": Fraction(1, 10**6), "neighbours": "add_remove", "limits": limits_by_group(1)}
    found = {
        terms: key_threshold(
            LaplaceCountNoise(scale=Fraction(steps), unit=steps, terms=terms), epsilon=Fraction(1), **options
        )
        for terms in (1, 2, 3)
    }
    assert found[1] / steps == pytest.approx(1 + math.log(5e5), abs=1e-5)
    assert found[2] / steps == pytest.approx(16.3, abs=0.03)
    assert found[3] / steps == pytest.approx(17.99, abs=0.01)


@cases("relation", RELATIONS, quick=1)
@cases(("epsilon", "delta"), [(1, 1e-3), pytest.param(0.6, 0.3, marks=pytest.mark.slow)])
def test_two_numbers_of_a_key_whose_sum_is_the_count(epsilon: float, delta: float, relation: Relation) -> None:
    """A row adds (y, 2 - y): the vector decides the noise, the law of its sum decides the threshold."""
    both = relation == "replace"
    loss, limits = Fraction(str(epsilon)), limits_by_group(1)
    noise = LaplaceCountNoise(scale=(2 + 2 * both) / loss, terms=2, unit=2)
    threshold = key_threshold(noise, epsilon=loss, delta=Fraction(str(delta)), neighbours=relation, limits=limits)
    worst = 0.0
    for y, z in itertools.product((0, 1, 2), (0, 1, 2) if both else (0,)):
        row, other = (y, 2 - y), (z, 2 - z)
        for here, there in itertools.product(((0, 0), (threshold // 2, threshold // 2)), repeat=2):
            left = [(here[0] + row[0], here[1] + row[1]), here]
            right = [there, (there[0] + other[0], there[1] + other[1])]
            keys = [one_pair_key(noise, threshold, *left), *([one_pair_key(noise, threshold, *right)] if both else [])]
            worst = max(worst, excess_of_keys(keys, epsilon))
            same = [(here[0] + a[0], here[1] + a[1]) for a in (row, other)]
            worst = max(worst, excess_of_keys([one_pair_key(noise, threshold, *same)], epsilon) if both else 0.0)
    assert 0.8 * delta * math.exp(-epsilon / 2) < worst <= delta * (1 + 1e-9)


def gaussian_excess(chosen: PartitionSelection, epsilon: float, relation: Relation, groups: int) -> float:
    """Return the largest delta over all numbers of lone keys, by the formulas of the specification, in doubles."""
    sides = 2 if relation == "replace" else 1
    gamma = 1 - upper_tail(chosen.noise, chosen.threshold - chosen.noise.unit)
    worst = 0.0
    for first in range(groups + 1):
        for second in range(groups + 1) if sides == 2 else {0} if first else range(groups + 1):
            mu = math.sqrt(sides * groups - first - second) / chosen.noise.deviation
            rest = normal_profile(mu, epsilon + (second - first) * math.log(gamma))
            worst = max(worst, 1 - gamma**first + gamma**first * rest)
    return worst


@cases("epsilon", [0.01, 0.1, 1, 8], quick=4)
@cases("delta", [1e-9, 1e-3, 0.1])
@cases("relation", RELATIONS)
@cases("groups", [1, 2, 7])
def test_the_gaussian_excess_over_all_numbers_of_lone_keys(
    groups: int, relation: Relation, delta: float, epsilon: float
) -> None:
    """At most delta, and nearly all of it."""
    chosen = selection("gaussian", epsilon, delta, relation, limits_by_group(groups))
    worst = gaussian_excess(chosen, epsilon, relation, groups)
    assert 0.97 * delta < worst <= delta * (1 + 1e-6)


@pytest.mark.parametrize("factor", [1.001, 1.05, 1.2])
@pytest.mark.parametrize(("epsilon", "delta"), [(1, 0.1), (0.1, 1e-3)])
def test_a_threshold_that_doubles_propose_too_low_is_raised_or_refused(
    monkeypatch: pytest.MonkeyPatch, epsilon: float, delta: float, factor: float
) -> None:
    """The exact check of delta decides. Under replace most of delta is that of keys which one unit alone has."""
    proposed = key_limits._approximate_rate
    monkeypatch.setattr(key_limits, "_approximate_rate", lambda *given: factor * proposed(*given))
    key_limits.gaussian_rate.cache_clear()
    try:
        chosen = selection("gaussian", epsilon, delta, "replace", limits_by_group(2))
    except ParameterError as refusal:
        assert "P038" in str(refusal)
    else:
        assert gaussian_excess(chosen, epsilon, "replace", 2) <= delta * (1 + 1e-6)
    finally:
        key_limits.gaussian_rate.cache_clear()


def test_more_numbers_beside_the_count() -> None:
    """Half of mu squared for the count: its noise is wider, the mu of all is what the threshold is for."""
    one, small, limits = Fraction(1), Fraction(1, 10**6), limits_by_group(3)
    alone = gaussian_key_budget(one, small, neighbours="add_remove", limits=limits)
    shared = gaussian_key_budget(
        one, small, neighbours="add_remove", limits=limits, squared_sensitivity=Fraction(2 * limits.squares)
    )
    assert shared.mu == alone.mu
    assert shared.threshold - 1 == pytest.approx(math.sqrt(2) * (alone.threshold - 1))
    noise = gaussian_count_noise(2 * limits.squares, shared.mu)
    options: dict[str, Any] = {"epsilon": one, "delta": small, "neighbours": "add_remove", "limits": limits}
    assert key_threshold(noise, mu=shared.mu, **options) / noise.unit == pytest.approx(shared.threshold, rel=1e-7)
    # No more mu than epsilon and delta allow.
    with pytest.raises(ParameterError, match="P038"):
        key_threshold(noise, mu=shared.mu * Fraction(101, 100), **options)


def test_no_mu_has_a_lower_threshold() -> None:
    """Where lone keys leave the others' norm, delta is to be divided; else the noise takes all of it."""
    for limits, shares in ((limits_by_group(5), {1.0}), (limits_by_group(5, 2, 7), {0.5, 0.75, 0.875})):
        epsilon, delta = Fraction(1), Fraction(1, 1000)
        best = gaussian_key_budget(epsilon, delta, neighbours="add_remove", limits=limits)
        assert round(normal_profile(float(best.mu), 1.0) / 1e-3, 3) in shares
        options: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "neighbours": "add_remove", "limits": limits}
        for share in (0.3, 0.6, 0.9, 0.97):
            mu = best.mu * Fraction(str(share))
            noise = gaussian_count_noise(limits.squares, mu)
            assert key_threshold(noise, mu=mu, **options) / noise.unit > best.threshold - 0.05


@cases("seed", range(6))
def test_counts_of_random_neighbouring_tables_keep_the_limits(seed: int) -> None:
    """A unit of m rows with r keys each: sums, squares, and the pieces of keys that it has alone."""
    generator = np.random.default_rng(seed)
    for _ in range(200):
        r, m = int(generator.integers(1, 5)), int(generator.integers(1, 5))
        limits = limits_by_row(r, m)
        rows = [generator.permutation(6)[: int(generator.integers(0, r + 1))] for _ in range(m)]
        counts = Counter(int(key) for row in rows for key in row)
        lone = {key for key in counts if generator.random() < 0.5}
        common = [count for key, count in counts.items() if key not in lone]
        pieces = sum(counts[key] for key in lone)
        assert pieces <= limits.pieces
        assert sum(counts.values()) <= limits.total
        assert max(counts.values(), default=0) <= max(rows for _, rows in limits.lone)
        assert sum(count**2 for count in common) <= limits.remainder(pieces) * limits.squares
        groups, most = int(generator.integers(1, 5)), int(generator.integers(1, 9))
        limits = limits_by_group(groups, m, most)
        drawn = [int(generator.integers(1, m + 1)) for _ in range(groups)]
        while sum(drawn) > most:
            drawn.pop() if drawn[-1] == 1 else drawn.append(drawn.pop() - 1)
        split = int(generator.integers(0, len(drawn) + 1))
        assert split <= limits.pieces
        assert sum(drawn) <= limits.total
        assert sum(count**2 for count in drawn[split:]) <= limits.remainder(split) * limits.squares


@pytest.mark.long
@cases(
    ("law", "epsilon", "counts"),
    [
        ("gaussian", 1, (2, 5, 9)),
        ("laplace", 4, (1, 3, 4)),
        ("truncated", 2, (1, 3, 4)),
        pytest.param("gaussian", 4, (1, 3, 4), marks=pytest.mark.slow),
        pytest.param("laplace", 1, (2, 5, 9), marks=pytest.mark.slow),
        pytest.param("truncated", 1, (2, 5, 9), marks=pytest.mark.slow),
    ],
)
def test_draws_follow_the_exact_law(law: str, epsilon: int, counts: tuple[int, ...]) -> None:
    names = [f"k{i}" for i in range(len(counts))]
    right = selection(law, epsilon, 0.05, "add_remove", limits_by_row(2))

    def sampler(chosen: PartitionSelection, runs: int) -> list[Any]:
        return [frozenset(select_partitions(names, np.array(counts), chosen)) for _ in range(runs)]

    def exact(chosen: PartitionSelection) -> dict[Any, float]:
        return dict(released_keys_law(dict(zip(names, counts, strict=True)), chosen))

    follow(sampler, exact, right)


@pytest.mark.long
@cases("law", LAWS, quick=1)
def test_noisy_counts_follow_the_exact_law(law: str) -> None:
    """Of one key: nothing, or the whole count that the noisy one is in."""
    right, count = selection(law, 1, 0.05, "add_remove", limits_by_group(1)), 4

    def sampler(chosen: PartitionSelection, runs: int) -> list[Any]:
        found = (release_partitions(["k"], np.array([count]), chosen) for _ in range(runs))
        return [math.floor(shown[0][1]) if shown else None for shown in found]

    def exact(chosen: PartitionSelection) -> dict[Any, float]:
        noise, least = chosen.noise, math.floor(chosen.least_count)
        if not isinstance(noise, GaussianCountNoise):
            *shown, nothing = released_law(noise, chosen.threshold, count, count).tolist()
            return {None: nothing, **{chosen.threshold + i: chance for i, chance in enumerate(shown) if chance}}
        tails = [
            upper_tail(noise, max(edge * noise.unit, chosen.threshold) - count * noise.unit)
            for edge in range(least, least + 60)
        ]
        bins = {least + i: high - low for i, (high, low) in enumerate(itertools.pairwise(tails))}
        return {None: 1 - tails[0], **bins}

    follow(sampler, exact, right)


def follow(
    sampler: Callable[[PartitionSelection, int], list[Any]],
    exact: Callable[[PartitionSelection], dict[Any, float]],
    right: PartitionSelection,
) -> None:
    """Hold draws against the exact law; draws with 0.7 and 1.3 times the noise must fail."""
    law, runs = exact(right), 1000
    for factor in (0.7, 1.3):
        wrong = scaled(right, factor)
        needed = runs_needed(law, exact(wrong), false_alarm=FALSE_ALARM, miss=MISS)
        assert not fit(sampler(wrong, needed), law, false_alarm=FALSE_ALARM).accepted
        runs = max(runs, needed)
    assert fit(sampler(right, runs), law, false_alarm=FALSE_ALARM).accepted


def test_tables_of_lone_keys_give_next_to_nothing() -> None:
    """A thousand units with one key each: expected keys are a thousand times delta at most."""
    for law in LAWS:
        chosen = selection(law, 1, 1e-6, "add_remove", limits_by_group(1))
        assert upper_tail(chosen.noise, chosen.threshold - chosen.noise.unit) <= 1e-6
        assert len(select_partitions([f"k{i}" for i in range(1000)], np.ones(1000, dtype=np.int64), chosen)) <= 1


@pytest.mark.parametrize("law", LAWS)
def test_names_come_sorted(law: str) -> None:
    chosen = selection(law, 100, 1e-12, "add_remove", limits_by_row(3))
    generator = np.random.default_rng(0)
    names = [f"w{i:03d}" for i in generator.permutation(500)]
    counts = np.where(generator.random(500) < 0.5, 1, 10**6)
    released = release_partitions(names, counts, chosen)
    assert [name for name, _ in released] == sorted(n for n, count in zip(names, counts, strict=True) if count > 1)
    assert all(abs(count - 10**6) < 50 for _, count in released)
    assert select_partitions([], np.array([], dtype=np.int64), chosen) == []
    for bad in ([1, 0], [1, 1, 1]):
        with pytest.raises(InternalError, match="I031"):
            select_partitions(["a", "b"], np.array(bad), chosen)
    with pytest.raises(InternalError, match="I031"):
        select_partitions(["a", "a"], np.array([3, 4]), chosen)


# What is asked of the rows of a key beside its noisy count, and what one person contributes.
ASKED = (["count"], ["avg"], ["variance"])
CONTRIBUTIONS = (Contribution("add_remove"), Contribution("replace", 3, 3, 1), Contribution("add_remove", 6, 2, 3))


def keyed_parts(delta: Fraction) -> Iterator[KeyedNoise]:
    """Yield the parts that release private keys with their numbers, of every law."""
    for contribution, asked, law in itertools.product(CONTRIBUTIONS, ASKED, NOISES):
        blocks = blocks_for(asked, 0.0, 1.0, law)[:1]
        part = keyed_noise("sums", Fraction(1), delta, contribution, blocks, law)
        yield from {part, replace(part, truncated=False)}


def test_keys_of_one_person_are_released_with_numbers_at_a_chance_of_delta_at_most() -> None:
    """A row is one more on the lattice, and its rounding another step; a person has several keys of their own."""
    delta = Fraction(1, 1000)
    for part in keyed_parts(delta):
        noise, highest = part.count_noise, part.count_noise.unit
        if not part.truncated:
            highest = count_law(part.blocks[0], part.noise.lattices[0]).most(1)
        chance = 1 - (1 - noise.tail(part.threshold - highest)) ** part.contribution.groups
        assert delta / 60 < chance <= delta, part
        if part.mu is None:
            assert chance > delta * Fraction(9, 10) or noise.unit == 1, part


def test_keys_of_many_are_released_and_keys_of_one_are_not() -> None:
    """By the noisy count: at this delta a key of one row passes in one of 1e9 runs."""
    rows = np.where(np.arange(300) % 3 == 0, 10**6, 1)
    for part in keyed_parts(Fraction(1, 10**12)):
        sums = [Sums(rows, rows * 0, rows * 0)] * len(part.blocks)
        with Permit(measurement_of(part)).drawing():
            released, blocks = part.draw(sums)
        assert released.tolist() == list(range(0, 300, 3))
        assert all(len(block.counts) == 100 for block in blocks)


def test_the_law_with_the_lowest_threshold_is_taken() -> None:
    for limits, law in (
        (limits_by_group(2), "truncated"),
        (limits_by_group(3), "gaussian"),
        (limits_by_group(1), "laplace"),
    ):
        options: dict[str, Any] = {"epsilon": Fraction(1), "delta": Fraction(1, 10**6), "neighbours": "add_remove"}
        assert partition_selection(limits=limits, **options) == partition_selection(limits=limits, law=law, **options)


@cases("law", LAWS, quick=1)
def test_bad_arguments_are_refused(law: str) -> None:
    good: dict[str, Any] = {
        "epsilon": Fraction(1),
        "delta": Fraction(1, 10**6),
        "neighbours": "replace",
        "limits": limits_by_row(2),
        "law": law,
    }
    for code, bad in [
        ("P0(18|01)", {"epsilon": Fraction(0)}),
        ("P0(18|01)", {"epsilon": 1.0}),
        ("P018", {"neighbours": "bounded"}),
        ("P0(18|27)", {"delta": Fraction(1)}),
        ("P027", {"delta": Fraction(1, 10**301)}),
        ("P018", {"law": "uniform"}),
        ("P038", {"epsilon": Fraction(1, 10**20), "delta": Fraction(1, 10**12)}),
        ("P038", {"limits": limits_by_row(10**13, 10**13)}),
    ]:
        with pytest.raises(ParameterError, match=code):
            partition_selection(**{**good, **bad})
    for given in ((0, 1), (1, 0), (1.0, 1)):
        for limits in (limits_by_row, limits_by_group):
            with pytest.raises(ParameterError, match="P018"):
                limits(*given)  # type: ignore[arg-type]


def test_small_delta_and_large_epsilon() -> None:
    """Bounds in exact arithmetic hold at the ends of what a call may ask for."""
    for law in LAWS:
        tiny = selection(law, 1, 1e-290, "replace", limits_by_row(2, 2))
        assert tiny.noise.tail(tiny.threshold - 2 * tiny.noise.unit) <= Fraction(1, 10**290)
        assert selection(law, 10**5, 1e-6, "add_remove", limits_by_row(2, 2)).least_count < 4


def test_product_law() -> None:
    law = product_law({"a": 0.25, "b": 0.5})
    assert law == {frozenset(): 0.375, frozenset("a"): 0.125, frozenset("b"): 0.375, frozenset("ab"): 0.125}
    assert excess(law, {frozenset(): 1.0}, 1.0) == pytest.approx(0.625)
