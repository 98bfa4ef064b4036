"""Noise on aggregates against its exact law, the spread of every estimate, and the coverage of every interval.

Chances of a false alarm are below 1e-8 per case: moments within six standard errors, coverage likewise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.arrays import Doubles
from dpsql.contract.gaussian_profile import gaussian_mu
from dpsql.contract.measurement import Permit, measurement_of
from dpsql.contract.plan import refuse_small_part, refuse_wide_noise
from dpsql.contract.relation import Contribution
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.grouped.aggregate import FORMS
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, quantise
from dpsql.mechanisms.aggregates import GroupedNoise, NoisyBlock, equal_shares, noise_choice
from dpsql.released.covariance import estimates
from dpsql.released.intervals import laplace_quantile
from dpsql.statistics.aggregates import (
    GAUSSIAN,
    LAPLACE,
    NOISES,
    Bernstein,
    Block,
    CentredPair,
    CentredSum,
    Chebyshev,
    DirectSum,
    GroupCount,
    Sums,
    TransformedPair,
    ValueBlock,
    blocks_for,
    shared_count,
)
from support.audits import judge
from support.cases import cases

DELTA = Fraction(1, 10**6)
ONE_ROW = Contribution("add_remove")
ONE_GROUP = Contribution("replace", 3, 1, 3, keys=1)
SIX = 6.0


def part(
    blocks: Sequence[Block],
    noise: str,
    epsilon: Fraction = Fraction(1),
    contribution: Contribution = ONE_ROW,
    shares: Sequence[Fraction] = (),
) -> GroupedNoise:
    delta, mu = (None, None) if noise == LAPLACE else (DELTA, gaussian_mu(epsilon, DELTA))
    return GroupedNoise(
        "sums", epsilon, delta, mu, contribution, tuple(blocks), tuple(shares) or equal_shares(len(blocks))
    )


def drawn(given: GroupedNoise, sums: Sequence[Sums]) -> list[NoisyBlock]:
    with Permit(measurement_of(given)).drawing():
        return given.draw(sums)


def summed(block: Block, rows: Doubles, groups: int) -> Sums:
    """Return the sums of the same rows in every group."""
    codes = np.zeros(len(rows), dtype=np.int64)
    if isinstance(block, ValueBlock):
        coded = quantise(np.clip(rows, block.lower, block.upper), *block.affine)
        codes = np.clip(coded, *block.limits).astype(np.int64)
    ones = np.ones(groups, dtype=np.int64)
    return Sums(len(rows) * ones, codes.sum() * ones, (codes**2).sum() * ones)


def noisy(rows: Doubles, asked: Sequence[str], noise: str, groups: int, **given: object) -> NoisyBlock:
    """Return noisy sums of the same rows in many groups."""
    bounds = given.pop("bounds", (0.0, 100.0))
    block = blocks_for(asked, *bounds, noise)[0]  # type: ignore[misc]
    return drawn(part([block], noise, **given), [summed(block, rows, groups)])[0]  # type: ignore[arg-type]


def nothing(groups: int) -> Sums:
    zeros = np.zeros(groups, dtype=np.int64)
    return Sums(zeros, zeros, zeros)


def laplace_law(scale: Fraction, most: int) -> dict[int, float]:
    """Return the law of discrete Laplace noise, clipped to [-most, most]."""
    a = math.exp(-1 / scale)
    law = {x: (1 - a) / (1 + a) * a ** abs(x) for x in range(1 - most, most)}
    return law | dict.fromkeys((-most, most), a**most / (1 + a))


@cases(
    ("block", "contribution", "scale"),
    [
        (GroupCount(), ONE_ROW, 1),
        (GroupCount(), Contribution("replace", 6, 3, 2), 12),
        (DirectSum(-1.0, 1.0, 2), Contribution("replace"), 4),
        (TransformedPair(-1.0, 1.0, 1), ONE_ROW, 2),
        (TransformedPair(-1.0, 1.0, 1), Contribution("replace"), 4),
        (Bernstein(-1.0, 1.0, 1), ONE_ROW, 4),
        # Without groups under replace.
        (GroupCount(), ONE_GROUP, 3),
        (GroupCount(), Contribution("replace", 4, 2, 2, keys=3), 6),
        (DirectSum(-1.0, 0.5, 2), ONE_GROUP, 9),
        (DirectSum(0.0, 1.0, 2), ONE_GROUP, 6),
        (CentredPair(-1.0, 1.0, 1), ONE_GROUP, 6),
        (Chebyshev(-1.0, 1.0, 1), Contribution("replace", 8, 1, 8, keys=1), 25),
    ],
    ids=lambda given: getattr(given, "kind", None),
    quick=4,
)
def test_laplace_law(block, contribution, scale):
    """All coordinates have independent discrete Laplace noise of scale L1 / epsilon."""
    epsilon, most = Fraction(scale, 2), 2

    def law(at):
        one = laplace_law(scale / at, most)
        return {at: math.prod(one[x] for x in at) for at in itertools.product(one, repeat=block.size)}

    def sampler(at, runs):
        found = drawn(part([block], LAPLACE, Fraction(at), contribution), [nothing(runs)])[0].words.integers()
        return [tuple(column) for column in np.clip(found.astype(int), -most, most).T.tolist()]

    judge(sampler, law, epsilon)


def follows(noise: NDArray[np.float64], deviation: float) -> bool:
    """Whether independent centred normal numbers have this deviation, and coordinates no correlation."""
    z = noise / deviation
    count = noise.size
    correlated = [abs((one * two).mean()) * math.sqrt(len(one)) for one, two in itertools.combinations(z, 2)]
    spread = abs((z**2).mean() - 1) * math.sqrt(count / 2)
    shape = abs((np.abs(z) < 0.67448975).mean() - 0.5) * 2 * math.sqrt(count)
    return max(spread, abs(z.mean()) * math.sqrt(count), shape, *correlated, 0.0) < SIX


@cases(
    "contribution",
    [ONE_ROW, Contribution("replace", 7, 4, 3), Contribution("add_remove", 9000, 9000, 9000), ONE_GROUP],
    ids=str,
)
@cases(
    "block",
    [GroupCount(), DirectSum(-3.0, 9.0), CentredPair(0.0, 1.0), Chebyshev(0.0, 1.0), TransformedPair(0.0, 1.0)],
    ids=lambda block: block.kind,
)
def test_gaussian_law(block, contribution):
    """The deviation is ``sqrt(squared norm / (share mu**2))``, whatever the lattice; 0.7 and 1.3 times show."""
    share, groups = Fraction(1, 3), 20_000
    right = part([GroupCount(), block], GAUSSIAN, Fraction(1), contribution, (1 - share, share))
    assert right.mu is not None
    stated = math.sqrt(block.squared_norm(contribution) / share) / float(right.mu) / block.unit
    found = drawn(right, [nothing(groups)] * 2)[1]
    assert found.deviation == pytest.approx(stated, rel=1e-6)
    assert follows(found.values, stated)
    for factor in (0.7, 1.3):
        assert not follows(factor * found.values, stated)


@pytest.mark.parametrize("block", [TransformedPair(0.0, 1.0), Bernstein(0.0, 1.0)], ids=lambda block: block.kind)
def test_a_coarse_lattice_has_the_same_law(block):
    """Noise beyond the sampler's range: sums are rounded first, and the noise is hardly wider than without."""
    contribution = Contribution("replace", 1 << 20, 1 << 10, 1 << 10)
    given = part([block], LAPLACE, Fraction(1, 1000), contribution)
    lattice = given.lattices[0]
    assert lattice.bits > 0
    assert lattice.spread <= 1 << 48
    found = drawn(given, [Sums(*(np.full(40_000, 10**9, dtype=np.int64) for _ in range(3)))])[0]
    scale = float(block.norm(contribution) * 1000) / block.unit
    assert found.scale == pytest.approx(scale, rel=1e-6)
    exact = block.coordinates(Sums(*(np.array([10**9]) for _ in range(3)))).astype(float) / block.unit
    off = np.abs(found.values - exact) / scale
    assert abs(off.mean() - 1) < SIX / math.sqrt(off.size)
    assert abs((off > math.log(20)).mean() - 0.05) < SIX * math.sqrt(0.05 * 0.95 / off.size)


def test_shares_are_of_the_whole():
    blocks = (GroupCount(), TransformedPair(0.0, 1.0))
    given = part(blocks, LAPLACE, Fraction(1), shares=(Fraction(1, 4), Fraction(3, 4)))
    assert [float(block.scale) for block in drawn(given, [nothing(1)] * 2)] == pytest.approx([4, 4 / 3])
    assert given.event.cost.epsilon == 1
    normal = part(blocks, GAUSSIAN, Fraction(1), shares=(Fraction(1, 4), Fraction(3, 4)))
    assert normal.mu is not None
    spent = [
        block.squared_norm(ONE_ROW) / float(lattice.spread) * 4.0**-lattice.bits
        for block, lattice in zip(blocks, normal.lattices, strict=True)
    ]
    assert sum(spent) == pytest.approx(float(normal.mu) ** 2, rel=1e-6)
    assert sum(spent) <= float(normal.mu) ** 2
    for shares in ((Fraction(1, 2),), (Fraction(1), Fraction(0)), (Fraction(3, 4), Fraction(1, 2))):
        with pytest.raises(InternalError, match="I032"):
            part(blocks, LAPLACE, Fraction(1), shares=shares)


def test_noise_out_of_range_is_refused_by_public_numbers():
    """What a plan hands to the checks before the gate: scales, and the mu of a row; and no group too many."""
    wide = part([Bernstein(0.0, 1.0)], LAPLACE, Fraction(1, 10**17))
    with pytest.raises(ParameterError, match="P038"):
        for scale in wide.laplace_scales():
            refuse_wide_noise(scale)
    for block in (GroupCount(), TransformedPair(0.0, 1.0), Bernstein(0.0, 1.0)):
        fine = part([block], LAPLACE, Fraction(1, 10**9))
        assert not fine.gaussian_parts()
        for scale in fine.laplace_scales():
            refuse_wide_noise(scale)
        drawn(fine, [nothing(3)])
    many = Contribution("add_remove", 10**9, 1, 10**9)
    with pytest.raises(ParameterError, match="P038"):
        for mu in part([Chebyshev(0.0, 1.0)], GAUSSIAN, contribution=many).gaussian_parts():
            refuse_small_part(mu)
    for block in (GroupCount(), CentredPair(0.0, 1.0), Chebyshev(0.0, 1.0)):
        fine = part([block], GAUSSIAN, contribution=Contribution("replace", 10**7, 1, 10**7))
        assert not fine.laplace_scales()
        for mu in fine.gaussian_parts():
            refuse_small_part(mu)
        drawn(fine, [nothing(3)])
    with pytest.raises(ParameterError, match="P038"):
        part([GroupCount()], GAUSSIAN, contribution=Contribution("add_remove", 10**8, 10**8, 1))


def test_drawn_once_and_only_with_a_permit():
    given = part([GroupCount()], LAPLACE)
    with pytest.raises(InternalError, match="I034"):
        given.draw([nothing(1)])
    with Permit(measurement_of(given)).drawing():
        given.draw([nothing(1)])
        with pytest.raises(InternalError, match="I034"):
            given.draw([nothing(1)])


@pytest.mark.parametrize("noise", NOISES)
def test_values_are_the_exact_noisy_integers(noise):
    """``counts`` are the same numbers as ``values``, as integers, also where one row is ``2**42``."""
    for asked in (["count"], ["avg"], ["variance"]):
        block = blocks_for(asked, 0.0, 1.0, noise)[0]
        found = drawn(part([block], noise), [Sums(*(np.full(100, 1 << 34) for _ in range(2)), np.full(100, 0))])[0]
        counted = [float(Fraction(int(count), found.count_law.unit)) for count in found.counts]
        assert counted == pytest.approx((np.array(block.moments[0]) @ found.values).tolist(), rel=1e-15)
        assert abs(np.mean(counted) - 2**34) < SIX * math.sqrt(block.size) * found.deviation / 10
        assert found.count_law.most(3) >= 3 * found.count_law.unit


@pytest.mark.parametrize(("asked", "terms"), [(["count"], 1), (["avg"], 2), (["variance"], 3)])
def test_the_noise_of_a_count_has_as_many_terms_as_it_says(asked, terms):
    """Tails of one, two and three Laplace variables, against the closed forms; the wrong number of terms shows."""
    tails = [
        lambda x: math.exp(-x),
        lambda x: (1 + x / 2) * math.exp(-x),
        lambda x: (x**2 + 5 * x + 8) / 8 * math.exp(-x),
    ]
    runs = 200_000
    found = drawn(part([blocks_for(asked, 0.0, 1.0)[0]], LAPLACE, Fraction(1, 1000)), [nothing(runs)])[0]
    assert found.count_law.terms == terms
    rows = np.abs(found.counts.astype(float)) / found.count_law.unit / 1000
    for number, tail in enumerate(tails, 1):
        off = abs((rows > 4.0).mean() - tail(4.0)) / math.sqrt(tail(4.0) / runs)
        assert (off < SIX) == (number == terms)


@pytest.mark.parametrize(("neighbours", "most"), [("add_remove", 8), ("replace", 4)])
def test_noise_is_chosen_by_public_numbers(neighbours, most):
    """Laplace up to eight groups per unit at (1, 1e-6), up to four under replace; without delta always."""
    for groups in range(1, 30):
        contribution = Contribution(neighbours, groups, groups, 1)
        assert noise_choice(Fraction(1), None, contribution) == LAPLACE
        assert noise_choice(Fraction(1), DELTA, contribution) == (LAPLACE if groups <= most else GAUSSIAN)
    # Where Gaussian noise cannot be drawn.
    assert noise_choice(Fraction(1, 10**6), Fraction(1, 10**300), ONE_ROW) == LAPLACE
    assert noise_choice(Fraction(1), DELTA, Contribution(neighbours, 10**8, 10**8, 1)) == LAPLACE


PLANS = {form.function: form for form, _ in FORMS}
UNIT = {"privacy_unit": "u", "max_rows_per_unit_group": 1}
CHOICES = [
    ("dp_count", {}),
    ("dp_sum", {"target": "x", "lower": 0, "upper": 100}),
    ("dp_sum", {"target": "x", "lower": -2, "upper": 8}),
    ("dp_avg", {"target": "x", "lower": 5, "upper": 6}),
    ("dp_stddev", {"target": "x", "lower": -1, "upper": 1}),
    ("dp_sum", {"target": ["x", "y"], "lower": [0, -1], "upper": [9, 1]}),
    ("dp_aggregate", {"aggregates": ["count", "avg"], "target": ["x", "y"], "lower": 0, "upper": 1}),
    ("dp_avg", {"target": "x"}),
    ("dp_avg", {"target": list("abcdefgh"), "lower": 0, "upper": 1, "nulls": "middle"}),
]


@cases("keys", [None, [1, 2, 3], list(range(300)), "private"], ids=["none", "few", "many", "private"])
@cases("neighbours", ["add_remove", "replace"])
@cases(("function", "more"), CHOICES, quick=3)
def test_auto_takes_what_dp_estimate_says_is_smaller(function, more, neighbours, keys):
    """The product of the errors that dp_estimate states is the smaller one of those with either law."""
    for groups in (1, 5, 9, 40):
        given = {**more, "epsilon": 1, "delta": 1e-6, "neighbours": neighbours}
        if keys is not None:
            given |= {"by": "g", "keys": keys, **UNIT, "max_groups_per_unit": groups}
        errors = {}
        for law in ("auto", LAPLACE, GAUSSIAN):
            noise = PLANS[function].from_arguments("t", {**given, "noise": law}).noise(0, 1000)
            errors[law] = math.prod(value for name, value, _ in noise if name.endswith("_std_error"))
        assert errors["auto"] == pytest.approx(min(errors.values()), rel=1e-6)


def test_auto_does_not_fail_where_one_law_works():
    """Deltas and numbers of groups that Gaussian noise has no room for; and an epsilon that is too small for both."""
    for given in (
        {"delta": 1e-300, "epsilon": 1e-5},
        {"delta": 1e-6, "epsilon": 1 << 20},
        {"delta": 1e-6, "by": "g", "keys": "private", **UNIT, "max_groups_per_unit": 10**8},
        {"delta": 1e-6, "by": "g", "keys": list(range(9)), **UNIT, "max_groups_per_unit": 10**8},
    ):
        plan = PLANS["dp_count"].from_arguments("t", {"epsilon": 1, **given})
        plan.check_drawable(1)
        assert plan.part.delta in (None, Fraction(1, 10**6))
    rows = {"privacy_unit": "u", "max_rows_per_unit": 10**6}
    hopeless = PLANS["dp_count"].from_arguments("t", {"epsilon": 1e-15, "delta": 1e-9, **rows})
    with pytest.raises(ParameterError, match="P038"):
        hopeless.check_drawable(1)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_groups_of_public_sizes(neighbours, noise):
    """Only the sum from the middle has noise: the width of the bounds under replace, as in diffprivlib; intervals."""
    contribution = Contribution(neighbours, keys=1)
    block = CentredSum(20.0, 80.0)
    given = part([block], noise, contribution=contribution)
    values = np.array([25.0, 30.0, 80.0, 20.0])
    found = estimates(
        drawn(given, [summed(block, values, 40_000)])[0], ["sum", "avg"], sizes=np.full(40_000, 4).tolist()
    )
    moved = 30.0 if neighbours == "add_remove" else 60.0
    stated = moved * (math.sqrt(2) if noise == LAPLACE else 1 / float(gaussian_mu(Fraction(1), DELTA)))
    total, mean = found["sum"], found["avg"]
    assert total.std_error == pytest.approx(stated, rel=1e-4)
    assert spread_of(total.value, stated**2) < SIX
    assert abs(total.value.mean() - values.sum()) < SIX * stated / 200
    for column, truth in ((total, values.sum()), (mean, values.mean())):
        hit = (column.lower <= truth + 1e-3) & (truth - 1e-3 <= column.upper)
        off = hit.mean() - 0.95
        # The mean's is all of the bounds where no mean goes with the number of rows.
        assert -SIX * math.sqrt(0.05 * 0.95 / 40_000) < off < (0.03 if column is mean else 0.01)
    assert ((mean.value >= 20.0) & (mean.value <= 80.0) & (mean.std_error <= 30.0)).all()
    # A wrong number of rows is the caller's: the noise does not depend on it.
    wrong = estimates(drawn(given, [summed(block, values, 2)])[0], ["sum"], sizes=[4, 400])["sum"]
    assert wrong.std_error[0] == wrong.std_error[1]
    many = drawn(given, [summed(block, np.full(1000, 80.0), 40)])[0]
    absurd = estimates(many, ["avg"], sizes=[1000] * 20 + [4] * 20)["avg"]
    is_all = absurd.upper - absurd.lower > 59.0
    # Noise alone carries a mean at the end of the bounds beyond them in one of 40.
    assert is_all[:20].sum() <= 6
    assert is_all[20:].all()


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_targets_that_share_a_count(neighbours, noise):
    """The count and every sum have the stated noise, and intervals of means cover."""
    contribution = Contribution(neighbours, keys=1)
    block = shared_count([(0.0, 10.0)] * 3 + [(-5.0, 5.0)], noise, contribution)
    values = np.array([[0.0, 1.0, 9.0, 5.0, 10.0] * 8] * 3 + [[-5.0, -5.0, -4.0, -5.0, 0.0] * 8])
    groups = 5_000
    codes = [
        quantise(row.copy(), *one.affine).astype(np.int64).sum() for row, one in zip(values, block.shared, strict=True)
    ]
    given = Sums(np.full(groups, 40), np.repeat(np.array(codes)[:, np.newaxis], groups, axis=1))
    [noisy] = drawn(part([block], noise, contribution=contribution), [given])
    norm = block.norm(contribution) if noise == LAPLACE else math.sqrt(block.squared_norm(contribution))
    unit = norm / FIXED_POINT_ONE * (math.sqrt(2) if noise == LAPLACE else 1 / float(gaussian_mu(Fraction(1), DELTA)))
    for one, row in zip(noisy.targets, values, strict=True):
        found = estimates(one, ["count", "sum", "avg"])
        stated = unit * FIXED_POINT_ONE / block.weight
        assert found["count"].std_error == pytest.approx(stated, rel=1e-3)
        assert spread_of(found["count"].value, stated**2) < SIX
        middle, half = one.block.middle_and_half
        squared = (middle * stated) ** 2 + (half * unit) ** 2
        assert spread_of(found["sum"].value, squared) < SIX
        assert found["sum"].value.mean() == pytest.approx(row.sum(), abs=SIX * math.sqrt(squared / groups))
        for name, truth in (("count", 40), ("sum", row.sum()), ("avg", row.mean())):
            hit = (found[name].lower <= truth + 1e-6) & (truth - 1e-6 <= found[name].upper)
            assert hit.mean() > 0.95 - SIX * math.sqrt(0.05 * 0.95 / groups)


def test_blocks_under_replace():
    """Without groups a sum has no count and means have centred sums; corners are best where a row may change groups."""
    for keys, kinds in ((None, ("direct_sum", "centred_pair", "chebyshev")), (9, ("transformed_pair",) * 2)):
        for function, kind in zip(("dp_sum", "dp_avg", "dp_stddev"), kinds, strict=False):
            given = {"target": "x", "lower": 0, "upper": 5, "epsilon": 1, "neighbours": "replace"}
            given |= {} if keys is None else {"by": "g", "keys": list(range(keys))}
            assert [block.kind for block in PLANS[function].from_arguments("t", given).part.blocks] == [kind]


def spread_of(value: Doubles, squared: float) -> float:
    """Return by how many standard errors the variance of some numbers differs from a stated one."""
    kurtosis = ((value - value.mean()) ** 4).mean() / value.var() ** 2
    return abs(value.var() / squared - 1) * math.sqrt(len(value) / (kurtosis - 1))


# Rows, aggregate, and the variance of n times the estimate, in units of half the interval, with epsilon = 1 or mu = 1.
HALF_LOW = np.where(np.arange(20_000) % 2, 100.0, 0.0)
MIDDLE, END, QUARTER = np.full(20_000, 50.0), np.full(20_000, 0.0), np.full(20_000, 25.0)
UNIFORM = (np.arange(20_000) + 0.5) / 200.0


@cases(
    ("noise", "asked", "rows", "stated"),
    [
        (LAPLACE, ["avg"], MIDDLE, 4.0),
        (LAPLACE, ["avg"], END + 1, 8 * (0.01**2 + 0.99**2)),
        (GAUSSIAN, ["avg"], MIDDLE, 2.0),
        (GAUSSIAN, ["avg"], END + 1, 2 * (1 + 0.98**2)),
        (LAPLACE, ["variance"], UNIFORM, 16 / 3),
        (GAUSSIAN, ["variance"], UNIFORM, 0.8333),
        (GAUSSIAN, ["variance"], QUARTER + 10 * (HALF_LOW / 50 - 1), None),
        (LAPLACE, ["variance"], QUARTER + 10 * (HALF_LOW / 50 - 1), None),
    ],
    quick=2,
)
def test_spread_of_means_and_variances(noise, asked, rows, stated):
    """The variances that the mechanisms promise, and `std_error`, which is computed from released numbers alone."""
    epsilon = Fraction(1)
    found = estimates(noisy(rows, asked, noise, 20_000, epsilon=epsilon), asked)[asked[0]]
    unit = 50.0 if asked == ["avg"] else 2500.0
    scale = 1.0 if noise == LAPLACE else 1 / float(gaussian_mu(epsilon, DELTA))
    squared = float(np.median(found.std_error)) ** 2
    if stated is not None:
        # The noise of the count moves the variance of a ratio by a share of about one over the number of rows.
        assert squared == pytest.approx(stated * (unit * scale / len(rows)) ** 2, rel=0.01)
    assert spread_of(found.value, squared) < SIX + 1


@cases(
    ("noise", "groups", "asked", "mean", "deviation"),
    [
        (LAPLACE, 1, "count", 50.0, 1.36),
        (GAUSSIAN, 1, "count", 50.0, 4.22),
        (LAPLACE, 1, "sum", 50.0, 141.4),
        (GAUSSIAN, 1, "sum", 50.0, 422.5),
        (LAPLACE, 1, "avg", 50.0, 0.50),
        (LAPLACE, 1, "avg", 20.0, 0.583),
        (GAUSSIAN, 1, "avg", 50.0, 1.494),
        (GAUSSIAN, 1, "avg", 20.0, 1.742),
        (LAPLACE, 5, "count", 50.0, 7.06),
        (GAUSSIAN, 5, "count", 50.0, 9.45),
        (LAPLACE, 5, "avg", 20.0, 2.92),
        (GAUSSIAN, 5, "avg", 20.0, 3.90),
        (GAUSSIAN, 20, "avg", 50.0, 6.68),
    ],
    quick=3,
)
def test_groups_of_two_hundred(noise, groups, asked, mean, deviation):
    """The table that other libraries are compared with: bounds [0, 100], (1, 1e-6), 200 rows in a group."""
    contribution = Contribution("add_remove", groups, groups, 1)
    found = estimates(noisy(np.full(200, mean), [asked], noise, 40_000, contribution=contribution), [asked])[asked]
    assert math.sqrt(found.value.var()) == pytest.approx(deviation, rel=0.04)
    assert np.median(found.std_error) == pytest.approx(deviation, rel=0.02)


ROWS = {
    "even": lambda n: (np.arange(n) + 0.5) * 100 / n,
    "narrow": lambda n: np.full(n, 20.0) + np.arange(n) % 2,
    "ends": lambda n: np.where(np.arange(n) % 2, 100.0, 0.0),
    "low": lambda n: np.full(n, 0.0),
}
EVERYTHING = ["count", "sum", "avg", "variance", "stddev"]
DRAWS = 4000
# Intervals whose coverage is exact, where it is not above.
LEAST = 0.95 - SIX * math.sqrt(0.95 * 0.05 / DRAWS)


@cases("rows", ROWS)
@cases("count", [5, 20, 200])
@cases("asked", [["count"], ["sum"], ["count", "sum", "avg"], EVERYTHING], ids="-".join)
@cases("noise", NOISES, quick=6)
def test_intervals_cover(noise, asked, count, rows):
    """Every interval covers the aggregate of the clipped rows at 95 % or more, at every number of rows."""
    values = ROWS[rows](count)
    truth = dict(
        zip(EVERYTHING, [count, values.sum(), values.mean(), values.var(ddof=1), values.std(ddof=1)], strict=True)
    )
    for bounds in ((0.0, 100.0), (-10.0, 110.0)):
        found = estimates(noisy(values, asked, noise, DRAWS, bounds=bounds), asked)
        for aggregate, column in found.items():
            shown = ~np.isnan(column.value)
            slack = 1e-6 * (1 + abs(truth[aggregate])) + 1e-3  # fixed point
            hit = (column.lower <= truth[aggregate] + slack) & (truth[aggregate] - slack <= column.upper)
            assert hit[shown].mean() >= LEAST, aggregate
            value = np.maximum(column.value, 0.0) if aggregate == "count" else column.value
            assert ((column.lower <= value) & (value <= column.upper))[shown].all()
            if aggregate in ("sum", "avg") and count == 200 and rows != "low":
                assert hit.mean() <= 0.975


@cases("rows", ROWS)
@cases("kind", [DirectSum, CentredPair, pytest.param(Chebyshev, marks=pytest.mark.long)], ids=lambda kind: kind.kind)
def test_intervals_of_one_group_under_replace_cover(kind, rows):
    """Laplace noise on the centred sums, which have smaller constants there; and errors are as stated."""
    asked = {"direct_sum": ["sum"], "centred_pair": ["count", "sum", "avg"]}.get(kind.kind, EVERYTHING)
    for count in (5, 200):
        values = ROWS[rows](count)
        truth = dict(
            zip(EVERYTHING, [count, values.sum(), values.mean(), values.var(ddof=1), values.std(ddof=1)], strict=True)
        )
        block = kind(-10.0, 110.0)
        given = part([block], LAPLACE, contribution=Contribution("replace", keys=1))
        found = estimates(drawn(given, [summed(block, values, DRAWS)])[0], asked)
        for aggregate, column in found.items():
            shown, slack = ~np.isnan(column.value), 1e-6 * (1 + abs(truth[aggregate])) + 1e-3
            hit = (column.lower <= truth[aggregate] + slack) & (truth[aggregate] - slack <= column.upper)
            assert hit[shown].mean() >= LEAST, aggregate
            if aggregate in ("sum", "avg") and count == 200:
                assert spread_of(column.value, float(np.median(column.std_error)) ** 2) < SIX + 2, aggregate


@pytest.mark.long
@pytest.mark.parametrize("confidence", [0.5, 0.999])
@pytest.mark.parametrize("noise", NOISES)
def test_other_confidences(noise, confidence):
    values = ROWS["even"](20)
    found = estimates(noisy(values, EVERYTHING, noise, 20_000), EVERYTHING, confidence=confidence)
    six = SIX * math.sqrt(confidence * (1 - confidence) / 20_000)
    for aggregate, truth in (("count", 20), ("sum", values.sum()), ("avg", values.mean())):
        column = found[aggregate]
        assert abs(((column.lower <= truth) & (truth <= column.upper)).mean() - confidence) < six, aggregate
    for ddof in (0, 1):
        column = estimates(noisy(values, EVERYTHING, noise, 20_000), ["variance"], confidence=confidence, ddof=ddof)
        truth = values.var(ddof=ddof)
        column = column["variance"]
        hit = (column.lower <= truth) & (truth <= column.upper)
        assert hit[~np.isnan(column.value)].mean() > confidence - six


@cases("bounds", [(0.0, 100.0), (-50.0, 30.0), (90.0, 100.0), (-3.0, -1.0)])
@cases("asked", [["count"], ["sum"], ["sum", "avg"], EVERYTHING], ids="-".join)
@cases("noise", NOISES)
def test_a_large_epsilon_gives_the_aggregates_of_the_clipped_rows(noise, asked, bounds):
    values = np.random.default_rng(5).normal(30.0, 60.0, 1000)
    clipped = np.clip(values, *bounds)
    truth = [1000, clipped.sum(), clipped.mean(), clipped.var(ddof=1), clipped.std(ddof=1)]
    found = estimates(noisy(values, asked, noise, 3, bounds=bounds, epsilon=Fraction(400_000)), asked)
    for aggregate in asked:
        column, expected = found[aggregate], truth[EVERYTHING.index(aggregate)]
        assert column.value == pytest.approx([expected] * 3, rel=1e-4, abs=1e-2)
        assert (column.upper - column.lower < 0.02 * (bounds[1] - bounds[0]) * max(1.0, bounds[1] - bounds[0])).all()


def test_nothing_is_left_of_an_empty_group():
    """A count below 0 is released, a mean is within its bounds, and a variance is NULL where rows are missing."""
    for noise in NOISES:
        found = estimates(noisy(np.empty(0), EVERYTHING, noise, 2000), EVERYTHING)
        assert (found["count"].value < 0).any()
        assert (found["count"].lower >= 0).all()
        mean, variance = found["avg"], found["variance"]
        for column in (mean.value, mean.lower, mean.upper):
            assert ((column >= 0) & (column <= 100)).all()
        few = found["count"].value < 2
        for column in (variance.value, variance.std_error, variance.lower, variance.upper, found["stddev"].value):
            assert (np.isnan(column) == few).all()
        assert (variance.value[~few] <= (100 - mean.value[~few]) * mean.value[~few] * 2 + 1e-9).all()


@pytest.mark.long
@cases("rows", [0, 1, 5, 50, 2000])
@cases("bounds", [(0.0, 10.0), (90.0, 100.0), (-5.0, 100.0)])
@cases("noise", NOISES)
def test_standard_errors_are_those_of_the_values(noise, bounds, rows):
    """From an empty group to a large one: the typical `std_error` is within a factor of two of the values' spread."""
    values = bounds[0] + (bounds[1] - bounds[0]) * (0.1 + 0.8 * (np.arange(rows) + 0.5) / max(rows, 1))
    found = estimates(noisy(values, EVERYTHING, noise, 40_000, bounds=bounds), EVERYTHING)
    for aggregate in ("avg", "variance", "stddev"):
        column = found[aggregate]
        shown = ~np.isnan(column.value)
        spread = column.value[shown].std()
        typical = math.sqrt((column.std_error[shown] ** 2).mean())
        assert 0.6 <= typical / spread <= 2.2, (aggregate, typical, spread)


def test_quantiles_of_weighted_laplace_variables():
    """Against the closed forms for one, two and three, and never too small where weights are almost equal."""
    for tail in (0.5, 0.05, 1e-3, 1e-9):
        one = float(laplace_quantile(np.array([2.0]), tail))
        assert one == pytest.approx(-2 * math.log(tail), rel=1e-9)
        for weights, law in (
            ([1.0, 1.0], lambda x: (1 + x / 2) * math.exp(-x)),
            ([1.0, 1.0, 1.0], lambda x: (x**2 + 5 * x + 8) / 8 * math.exp(-x)),
            ([1.0, 0.5], lambda x: (math.exp(-x) - 0.25 * math.exp(-2 * x)) / 0.75),
        ):
            found = float(laplace_quantile(np.array(weights), tail))
            assert law(found) <= tail * (1 + 1e-6)
            assert law(found * (1 - 5e-4)) > tail
    # Convex in the position of the mean, but for weights that are moved apart.
    z = np.linspace(-1, 1, 401)
    for forms in (
        np.stack([1 - z, -1 - z], axis=1),
        np.stack([-1 - z, -z, 1 - z], axis=1),
    ):
        for tail in (0.3, 0.05, 1e-4):
            table = laplace_quantile(np.abs(forms), tail)
            assert (np.diff(table, 2) > -3e-4 * table.max()).all()
