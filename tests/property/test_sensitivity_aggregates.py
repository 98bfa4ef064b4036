"""How far one privacy unit moves the blocks of aggregates in all groups together: on all small units of all shapes."""

from __future__ import annotations

import decimal
import itertools
import math
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pytest

from dpsql.contract.relation import Contribution
from dpsql.errors import InternalError
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, wide_parts
from dpsql.mechanisms.aggregates import GroupedNoise, Lattice, count_law, gaussian_lattice, laplace_lattice, noisy_block
from dpsql.mechanisms.count_noise import CountNoise, GaussianCountNoise, LaplaceCountNoise
from dpsql.mechanisms.keyed_aggregates import KeyedNoise, keyed_noise
from dpsql.statistics.aggregates import (
    AGGREGATES,
    Bernstein,
    Block,
    CentredPair,
    CentredSum,
    Chebyshev,
    DirectSum,
    GroupCount,
    SharedCount,
    SharedTarget,
    Sums,
    TransformedPair,
    UnitCount,
    ValueBlock,
    Words,
    blocks_for,
    shared_count,
)
from support.cases import cases

ONE, GROUPS = 4, 3
BLOCKS: tuple[Block, ...] = (
    GroupCount(),
    DirectSum(-1.0, 1.0, ONE),
    DirectSum(-1.0, 0.25, ONE),
    DirectSum(0.5, 1.0, ONE),
    CentredSum(-1.0, 1.0, ONE),
    TransformedPair(-1.0, 1.0, ONE),
    Bernstein(-1.0, 1.0, ONE),
    CentredPair(-1.0, 1.0, ONE),
    Chebyshev(-1.0, 1.0, ONE),
)
SHAPES = sorted(
    {
        (c.rows, c.groups, c.rows_per_group)
        for m, g, r in itertools.product((1, 2, 3, 4), (1, 2, 3), (1, 2, 3, 4))
        for c in [Contribution("replace", m, g, r)]
    }
)


@pytest.mark.parametrize(("relation", "moved"), [("add_remove", 3), ("replace", 6)])
def test_a_unit_counts_once_in_each_of_its_groups(relation: str, moved: int) -> None:
    contribution = Contribution(relation, 8, 3, 4)
    assert (UnitCount().norm(contribution), UnitCount().squared_norm(contribution)) == (moved, moved)


@pytest.mark.parametrize(("mu", "delta"), [(None, None), (Fraction(1, 5), Fraction(1, 10**6))], ids=["epsilon", "mu"])
def test_blocks_share_the_loss(mu: Fraction | None, delta: Fraction | None) -> None:
    """A block with a part of epsilon, or of mu squared, has the noise that it has alone with that part."""
    contribution, blocks = Contribution("add_remove", 2, 1, 2), (GroupCount(), CentredSum(-1.0, 1.0))
    shares = (Fraction(1, 4), Fraction(3, 4))
    together = GroupedNoise("sums", Fraction(1), delta, mu, contribution, blocks, shares)
    for lattice, block, share in zip(together.lattices, blocks, shares, strict=True):
        if mu is None:
            assert lattice == laplace_lattice(block, contribution, share)
        else:
            assert lattice == gaussian_lattice(block, contribution, share * mu**2)
    for wrong in ((Fraction(1), Fraction(1)), (Fraction(1),), (Fraction(3, 2), Fraction(-1, 2))):
        with pytest.raises(InternalError, match="I032"):
            GroupedNoise("sums", Fraction(1), delta, mu, contribution, blocks, wrong)


def name(block: Block) -> str:
    return f"{block.kind} {block.lower} {block.upper}" if isinstance(block, DirectSum) else block.kind


def codes_of(block: Block, codes: Iterable[int]) -> list[int]:
    """Return the codes that values within the block's bounds can have."""
    low, high = block.limits if isinstance(block, ValueBlock) else (-FIXED_POINT_ONE, FIXED_POINT_ONE)
    return [code for code in codes if low * ONE <= code * FIXED_POINT_ONE <= high * ONE]


def sums(tables: np.ndarray) -> Sums:
    """Return the sums of coded rows, shape (tables, rows)."""
    return Sums(np.full(len(tables), tables.shape[1]), tables.sum(axis=1), (tables**2).sum(axis=1))


def rows_of(block: Block, codes: np.ndarray) -> np.ndarray:
    """Return the vector of one row with each code, shape (codes, size)."""
    return block.coordinates(sums(codes[:, np.newaxis])).T.astype(np.int64)


@lru_cache(maxsize=16)
def units(
    rows: int, groups: int, rows_per_group: int, codes: tuple[int, ...], keys: int = GROUPS
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return all units within the caps: multisets of (group, code)."""
    cells = list(itertools.product(range(keys), codes))
    found = []
    for size in range(rows + 1):
        for unit in itertools.combinations_with_replacement(cells, size):
            places = [group for group, _ in unit]
            if len(set(places)) <= groups and all(places.count(group) <= rows_per_group for group in set(places)):
                found.append(unit)
    return tuple(found)


def vectors(block: Block, shape: tuple[int, int, int], keys: int = GROUPS) -> np.ndarray:
    """Return what each unit adds to all groups, shape (units, keys * size)."""
    # The codes at which norms, distances and products are extreme.
    codes = tuple(codes_of(block, (-ONE, 0, 1, ONE) if shape[0] < 4 else (-ONE, 1, ONE)))
    row = dict(zip(codes, rows_of(block, np.array(codes)), strict=True))
    added = []
    for unit in units(*shape, codes, keys):
        total = np.zeros((keys, block.size), dtype=np.int64)
        for group, code in unit:
            total[group] += row[code]
        added.append(total.ravel())
    return np.array(added)


@cases("block", BLOCKS, ids=name)
def test_one_row(block):
    """The bounds of one row, or of none, hold for all codes; only D2 of `Chebyshev` is not reached."""
    codes = np.array(codes_of(block, range(-ONE, ONE + 1)))
    row = np.vstack([rows_of(block, codes), np.zeros((1, block.size))])
    unit = float(block.denominator) ** block.degree
    products = row @ row.T / unit**2
    squares = np.diag(products)
    distances = squares[:, np.newaxis] + squares - 2 * products
    apart = np.abs(row[:, np.newaxis] - row).sum(axis=2).max() / unit
    assert np.abs(row).sum(axis=1).max() / unit == block.row.l1
    assert apart == max(block.row.l1, block.row.l1_distance)
    assert squares.max() == block.row.squared
    assert max(0.0, -products.min()) == block.row.opposing
    assert distances.max() <= max(block.row.squared, block.row.distance)
    assert distances.max() == max(block.row.squared, block.row.distance) or block.kind == "chebyshev"


def test_the_distance_of_chebyshev():
    block = Chebyshev(-1.0, 1.0, 1 << 12)
    row = rows_of(block, np.arange(-(1 << 12), (1 << 12) + 1, 8)) / 2.0**24
    squares = (row**2).sum(axis=1)
    most = (squares[:, np.newaxis] + squares - 2 * row @ row.T).max()
    assert most == pytest.approx(5.1446, abs=1e-4)
    assert most <= block.row.distance


@cases("shape", SHAPES, ids=str, quick=21)
@cases("block", BLOCKS, ids=name)
def test_a_unit_that_comes_moves_as_stated(block, shape):
    """Both bounds are reached under add_remove."""
    stated = Contribution("add_remove", *shape)
    added = vectors(block, shape)
    assert np.abs(added).sum(axis=1).max() == block.norm(stated)
    assert (added**2).sum(axis=1).max() == block.squared_norm(stated)


def changes(block: Block, shape: tuple[int, int, int], keys: int) -> tuple[float, float]:
    """Return the largest L1 norm and the largest squared L2 norm of the difference of two units."""
    added = vectors(block, shape, keys).astype(float)
    squares = (added**2).sum(axis=1)
    most = max(
        float((squares[i : i + 500, np.newaxis] + squares - 2 * added[i : i + 500] @ added.T).max())
        for i in range(0, len(added), 500)
    )
    return max(float(np.abs(added - one).sum(axis=1).max()) for one in added), most


@cases(("keys", "shape"), [(keys, shape) for keys in (1, 2, 3) for shape in SHAPES if shape[1] <= keys], quick=24)
@cases("block", BLOCKS, ids=name)
def test_a_unit_that_is_replaced_moves_as_stated(block, shape, keys):
    """In K public groups the bounds are reached, but for D2 of `Chebyshev`, and where r does not divide m."""
    stated = Contribution("replace", *shape, keys)
    longest, most = changes(block, shape, keys)
    assert longest == block.norm(stated)
    assert most <= block.squared_norm(stated)
    even = shape[0] % shape[2] == 0 or block.row.opposing == 0
    assert most == block.squared_norm(stated) or not even or block.kind == "chebyshev"
    # Where the number of groups is not public the bounds are those of many groups.
    unknown = Contribution("replace", *shape)
    many = Contribution("replace", *shape, 2 * shape[1])
    assert block.norm(unknown) == block.norm(many) >= block.norm(stated)
    assert block.squared_norm(unknown) == block.squared_norm(many) >= block.squared_norm(stated)


def shared(weight: int, targets: int = 2) -> SharedCount:
    return SharedCount((SharedTarget(-1.0, 1.0, ONE, weight),) * targets)


def shared_vectors(block: SharedCount, shape: tuple[int, int, int], keys: int) -> np.ndarray:
    """Return what each unit adds to all groups, with each target of a row at an end of its bounds."""
    codes = tuple(itertools.product((-ONE, ONE), repeat=len(block.shared)))
    one = np.array([1])
    row = {code: block.words(Sums(one, np.array(code)[:, np.newaxis])).integers()[:, 0] for code in codes}
    added = []
    for unit in units(*shape, codes, keys):
        total = np.zeros((keys, block.size), dtype=np.int64)
        for group, code in unit:
            total[group] += row[code]
        added.append(total.ravel())
    return np.array(added).astype(float)


@cases("shape", [shape for shape in SHAPES if shape[0] <= 3], ids=str, quick=22)
@cases("weight", [1, ONE, 2 * ONE, 9])
def test_a_shared_count_moves_as_stated(weight: int, shape: tuple[int, int, int]) -> None:
    """Two targets with one count: under add_remove the bounds are reached, under replace where r divides m."""
    block = shared(weight)
    added = shared_vectors(block, shape, GROUPS)
    coming = Contribution("add_remove", *shape)
    assert np.abs(added).sum(axis=1).max() == block.norm(coming)
    assert (added**2).sum(axis=1).max() == block.squared_norm(coming)
    for keys in range(shape[1], GROUPS + 1):
        stated = Contribution("replace", *shape, keys)
        added = shared_vectors(block, shape, keys)
        longest = max(float(np.abs(added - one).sum(axis=1).max()) for one in added)
        most = max(float(((added - one) ** 2).sum(axis=1).max()) for one in added)
        assert longest == block.norm(stated)
        assert most <= block.squared_norm(stated)
        assert most == block.squared_norm(stated) or shape[0] % shape[2] or block.row.opposing


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_weight_of_a_shared_count(noise: str) -> None:
    """A free weight moves nothing farther; else it is the one that makes the variance at a bound least."""
    bounds = [(0.0, 1.0)] * 8
    alone = Contribution("replace", keys=1)
    block = shared_count(bounds, noise, alone)
    lighter = SharedCount(tuple(SharedTarget(0.0, 1.0, weight=block.weight // 2) for _ in bounds))
    norm = Block.norm if noise == "laplace" else Block.squared_norm
    assert norm(block, alone) == norm(lighter, alone)
    coming = Contribution("add_remove")
    chosen = shared_count(bounds, noise, coming)

    def variance(weight: int) -> float:
        other = SharedCount(tuple(SharedTarget(0.0, 1.0, weight=weight) for _ in bounds))
        moved = 2.0 * other.norm(coming) ** 2 if noise == "laplace" else float(other.squared_norm(coming))
        return moved * (1.0 + (FIXED_POINT_ONE / weight) ** 2)

    assert variance(chosen.weight) < 1.001 * min(variance(int(chosen.weight * part)) for part in (0.7, 0.9, 1.1, 1.4))


@pytest.mark.parametrize(("rows", "moved"), [(1, 1), (3, 3)])
def test_one_group_needs_half_the_noise(rows, moved):
    """Without `by`: a count moves by m and not by 2 m, a sum of values in [0, u] by ``m u``, in [-2, 8] by 10 m."""
    one = Contribution("replace", rows, 1, rows, keys=1)
    assert GroupCount().norm(one) == moved
    assert GroupCount().squared_norm(one) == moved**2
    assert UnitCount().norm(one) == UnitCount().squared_norm(one) == 1
    for lower, upper, width in ((0.0, 5.0, 1), (5.0, 9.0, 1), (-2.0, 8.0, Fraction(5, 4)), (-3.0, 3.0, 2)):
        block = DirectSum(lower, upper)
        assert block.norm(one) == moved * width * FIXED_POINT_ONE
        assert block.squared_norm(one) == (moved * width * FIXED_POINT_ONE) ** 2


@cases("block", BLOCKS, ids=name)
def test_rounding_moves_a_coordinate_by_at_most_one_more(block):
    """Sums on a coarser lattice: the L1 norm of what a unit changes, against the bound of `laplace_lattice`."""
    random = np.random.default_rng(1)
    shape = (3, 2, 2)
    stated = Contribution("replace", *shape)
    added = vectors(block, shape)
    moved = block.size * stated.changed_groups
    for bits in range(1, 5):
        bound = (block.norm(stated) + moved * ((1 << bits) - 1)) >> bits
        base = random.integers(-1000, 1000, (4000, added.shape[1]))
        first, second = (base + added[random.integers(0, len(added), 4000)] for _ in range(2))
        half = 1 << (bits - 1)
        change = ((first + half) >> bits) - ((second + half) >> bits)
        assert np.abs(change).sum(axis=1).max() <= bound


@pytest.mark.parametrize("kind", [DirectSum, TransformedPair, Bernstein, CentredPair, Chebyshev])
def test_noise_on_a_coarse_lattice_is_for_what_rounding_adds(kind):
    """So wide that the lattice is coarser than the codes: a unit then moves each coordinate by up to one more."""
    block, shape = kind(0.0, 1.0), Contribution("replace", 3, 2, 2)
    norm, moved, squared = block.norm(shape), block.moved(shape), block.squared_norm(shape)
    assert moved == 4 * block.size  # two groups that a unit leaves, and two that it comes to
    epsilon = Fraction(norm, 1 << 53)
    lattice = laplace_lattice(block, shape, epsilon)
    assert lattice.bits > 0
    assert lattice.spread * epsilon == (norm + moved * ((1 << lattice.bits) - 1)) >> lattice.bits
    mu = Fraction(math.isqrt(squared), 1 << 56)
    lattice = gaussian_lattice(block, shape, mu**2)
    assert lattice.bits > 0
    least = math.sqrt(squared) / 2.0**lattice.bits + math.sqrt(moved)
    assert math.sqrt(lattice.spread) * float(mu) >= least * (1 - 1e-12)


KEYED: dict[str, list[Block]] = {
    "rows": [GroupCount()],
    "two coordinates": [TransformedPair(0.0, 1.0)],
    "two targets": [TransformedPair(0.0, 1.0), TransformedPair(0.0, 9.0)],
    "units alone": [CentredSum(-1.0, 1.0)],
}


def added_noise(part: KeyedNoise) -> CountNoise:
    """Return the law of what a key's count has beside its rows, from the noise of each coordinate that it adds up."""
    block, lattice = part.blocks[0], part.noise.lattices[0]
    unit, terms = math.ldexp(block.unit, -lattice.bits), len(block.count_of)
    if lattice.noise == "gaussian":
        return GaussianCountNoise(variance=lattice.spread * terms, unit=int(unit))
    return LaplaceCountNoise(scale=lattice.spread, unit=int(unit), terms=terms)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("relation", ["add_remove", "replace"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (4, 2, 2), (2, 1, 2)], ids=str)
@pytest.mark.parametrize("kind", KEYED)
def test_keys_of_one_unit_pass_the_threshold_with_delta_at_most(
    kind: str, shape: tuple[int, int, int], relation: str, law: str
) -> None:
    """All rows that a unit may have in keys of its own, in as many keys as it may have them."""
    rows, groups, each = shape
    delta = Fraction(1, 10**4)
    part = keyed_noise("sums", Fraction(1), delta, Contribution(relation, rows, groups, each), KEYED[kind], law)
    assert sum(part.noise.shares) == 1
    counts_units = isinstance(part.blocks[0], UnitCount)
    assert counts_units == (kind not in ("rows", "two coordinates") or each > 1)
    noise, most = added_noise(part), 1 if counts_units else each
    if part.truncated:
        noise = part.count_noise
        assert (noise.unit, noise.tail(noise.bound + 1)) == (1, 0)
    # A coordinate that is rounded may be half a step too high.
    lone = most * noise.unit + (0 if part.truncated else len(part.blocks[0].count_of) // 2)
    assert 1 - (1 - noise.tail(part.threshold - lone)) ** groups <= delta
    assert part.least_count == part.threshold / noise.unit


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_a_lone_row_passes_the_threshold_with_delta_at_most(relation, law):
    """Counts of keys that are told by sums of two rounded coordinates, of which a row adds a half each."""
    delta = Fraction(1, 10**4)
    part = keyed_noise("sums", Fraction(1), delta, Contribution(relation, 1, 1, 1), [TransformedPair(0.0, 1.0)], law)
    rows = count_law(part.blocks[0], part.noise.lattices[0])
    assert rows.terms == 2
    assert part.count_noise.tail(part.threshold - rows.most(1)) <= delta


@pytest.mark.parametrize(("relation", "moved"), [("add_remove", 3), ("replace", 6)])
def test_a_unit_is_counted_once_in_each_of_its_groups(relation, moved):
    shape = Contribution(relation, 5, 3, 2)
    assert UnitCount().norm(shape) == UnitCount().squared_norm(shape) == moved


@cases("noise", ["laplace", "gaussian"])
@cases("size", [1, 2, 5])
def test_blocks_tell_what_they_are_asked_for(noise, size):
    for asked in itertools.combinations(AGGREGATES, size):
        block = blocks_for(asked, -2.0, 3.0, noise)[0]
        told = len(block.moments)
        assert told >= (3 if {"variance", "stddev"} & set(asked) else 1 if asked == ("count",) else 2)
        assert block.count_of or asked == ("sum",)


@cases("block", BLOCKS, ids=name)
def test_moments_are_those_of_the_rows(block):
    """The number of rows, and the sums of z and z**2, come back from the coordinates."""
    random = np.random.default_rng(2)
    codes = random.integers(-ONE, ONE + 1, (50, 20))
    z = codes / ONE
    told = np.array(block.moments) @ (block.coordinates(sums(codes)).astype(float) / block.unit)
    expected = np.array([np.full(50, 20.0), z.sum(axis=1), (z**2).sum(axis=1)])
    if block.kind in ("direct_sum", "centred_sum"):
        expected[0] = 0.0
    assert np.allclose(told, expected[: len(told)], rtol=0, atol=1e-12)


def test_the_pair_adds_up_to_the_count():
    """``A + B = 2 S n`` whatever the values are: without it the L1 norm is larger than 2 S."""
    codes = np.random.default_rng(3).integers(-ONE, ONE + 1, (30, 9))
    for block in (TransformedPair(-1.0, 1.0, ONE), Bernstein(-1.0, 1.0, ONE)):
        coordinates = block.coordinates(sums(codes))
        assert (coordinates >= 0).all()
        assert (coordinates.sum(axis=0) == block.unit * 9).all()


def test_squares_do_not_overflow():
    """``4 S**2 n`` is beyond 64 bits from ``2**21`` rows on."""
    n = np.array([1 << 35])
    block = Bernstein(0.0, 1.0)
    found = block.coordinates(Sums(n, n << 20, n.astype(object) << 40))
    assert found[:, 0].tolist() == [0, 0, 1 << 77]
    assert Chebyshev(0.0, 1.0).coordinates(Sums(n, n << 20, n.astype(object) << 40))[:, 0].tolist() == [1 << 75] * 3


def test_sums_of_squares_may_come_as_decimals():
    """Decimals of Arrow, Python ints and 64 bits give the same integers."""
    s2 = np.array([0, 5, (1 << 40) + 3, (1 << 62) - 1])
    n, s1 = np.array([1, 2, 3, 1 << 23]), np.array([0, -7, 11, 13])
    column = pa.array([decimal.Decimal(int(value)) for value in s2], type=pa.decimal128(38, 0))
    for block in (Bernstein(0.0, 1.0), Chebyshev(0.0, 1.0)):
        found = [
            block.coordinates(Sums(n, s1, given)).tolist()
            for given in (s2, s2.astype(object), Words(*wide_parts(column), 32))
        ]
        assert found[0] == found[1] == found[2]


@cases("bits", [-30, -5, 0, 3, 20, 25, 40])
@cases("block", [Bernstein(0.0, 1.0), Chebyshev(0.0, 1.0), TransformedPair(0.0, 1.0)], ids=name)
def test_words_are_exact_on_every_lattice(monkeypatch, block, bits):
    """Rounded sums plus noise, in 64-bit words, against Python's integers; up to ``2**38`` rows in a group."""
    random = np.random.default_rng(4)
    n = random.integers(0, 1 << 38, 50)
    s1 = (random.uniform(-(1 << 20), 1 << 20, 50) * n).astype(np.int64)
    s2 = np.array([int(count) * int(square) for count, square in zip(n, random.integers(0, 1 << 40, 50), strict=True)])
    exact = block.coordinates(Sums(n, s1, s2)).astype(object)
    rows, first, second = ((1 << 20) * n.astype(object), s1.astype(object), s2)
    stated = {
        "bernstein": [
            (rows << 20) - (first << 21) + second,
            2 * ((rows << 20) - second),
            (rows << 20) + (first << 21) + second,
        ],
        "chebyshev": [rows << 20, first << 20, 2 * second - (rows << 20)],
        "transformed_pair": [rows + first, rows - first],
    }[block.kind]
    assert (exact == np.array(stated)).all()
    noise = random.integers(-(1 << 50), 1 << 50, exact.size)
    monkeypatch.setattr(Lattice, "draw", lambda lattice, size: noise)
    found = noisy_block(block, Lattice("laplace", bits, Fraction(1)), block.words(Sums(n, s1, s2))).words.integers()
    rounded = exact << -bits if bits <= 0 else (exact + (1 << (bits - 1))) >> bits
    assert (found == rounded + noise.reshape(exact.shape).astype(object)).all()


def test_direct_codes():
    """One bound has the code S or -S, the other its own, and the sensitivity of the raw sum is its largest value."""
    block = DirectSum(90.0, 100.0)
    assert block.affine == (0.0, (1 << 20) / 100.0)
    assert block.limits == (math.floor(0.9 * (1 << 20) + 0.5), 1 << 20)
    assert DirectSum(-4.0, 1.0).limits == (-(1 << 20), 1 << 18)
