"""Noise on the blocks of an aggregate call: all groups and all targets in one release.

Every block gets its share of epsilon (Laplace) or of ``mu**2`` (Gaussian), so the joint vector of all blocks is one
mechanism and one event. The groups need no shares: `dpsql.contract.relation` bounds the change of all groups together.

The release puts the block's integers on a *lattice*, as multiples of ``2**bits``. Laplace noise is exact in integers,
and only noise too wide for the sampler gets a coarser lattice. Gaussian noise gets a practically continuous lattice
(`dpsql.mechanisms.gaussian`), or a coarser lattice if it is too wide. A coarser lattice rounds the sums first. A
coordinate that moves by d then moves by at most ``ceil(abs(d) / 2**bits)``, which is below ``abs(d) / 2**bits + 1``;
and only coordinates of groups in which the unit has rows move at all. With C such coordinates, the L1 sensitivity is
``floor((L1 + C (2**bits - 1)) / 2**bits)``, and the L2 sensitivity at most ``L2 / 2**bits + sqrt(C)``.

The limit of `dpsql.mechanisms.gaussian` on the number of coordinates therefore concerns C alone: all other coordinates
have the same law in both tables, independent of the moving coordinates.

**Several numbers of each group in one vector**, with noise by the largest of them: the blocks of all targets are one
vector of d coordinates in each group: the number of rows, shared by targets with a value in every row, the numbers of
values of the other targets, and their sums. In units where one row counts 1, every coordinate of a row is between -1
and 1. So a row's whole vector is at most 1 in the norm of the largest coordinate, for any values and any number of
targets.

Neighbouring tables differ in one privacy unit. They differ by at most ``contribution.norm(1, distance=D)`` in the norm
that adds up, over the groups, the largest change of a coordinate: its proof (`dpsql.contract.relation`) adds rows up by
the triangle inequality alone, so it holds for any norm of a row's vector. D bounds the distance of two rows in one
group: 2 if the vector has sums of values, 1 if only numbers of values differ, and 0 if all rows count the same.

Noise in a group has a chance proportional to ``exp(-max abs(x) / scale)`` (`dpsql.noise.cube`), the scale is that norm
over epsilon, and groups are independent. The density of a whole release at a shifted table is then larger by a factor
of ``exp(epsilon)`` at most: pure epsilon-DP.

Each coordinate has the deviation ``sqrt((d + 1) (d + 2) / 3)``; a Laplace variable for each has ``sqrt(2) d``: 4.3
instead of 8.5 for six numbers. The vector needs no shares: the noise is as small in every coordinate at once. The law
of one coordinate is Laplace's, and the law of two is the law of a `TransformedPair`, turned.

All coordinates are multiples of ``2**-fine`` of the count of a row. The code rounds coordinates in finer units first:
each then moves by less than a step more, and so does the largest coordinate, in every group that changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles, Integers, Longs
from dpsql.contract.events import CubeNoise, Event, additive_noise
from dpsql.contract.gaussian_profile import usable_mu
from dpsql.contract.measurement import Part, sampled
from dpsql.contract.relation import Contribution
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError
from dpsql.mechanisms.gaussian import MOST_COORDINATES, counting_unit, gaussian_noise
from dpsql.noise.cube import LARGEST_CUBE_SCALE, MOST_CUBE_COORDINATES, cube_deviation, cube_noise
from dpsql.noise.discrete import discrete_laplace, laplace_deviation
from dpsql.noise.entropy import SYSTEM, BitSource
from dpsql.statistics.aggregates import (
    AVG,
    COUNT,
    CUBE,
    GAUSSIAN,
    LAPLACE,
    SUM,
    Block,
    CentredPair,
    Chebyshev,
    DirectSum,
    GroupCount,
    Sums,
    ValueBlock,
    Words,
)

# Noise wider than this gets a coarser lattice.
_WIDEST_BITS = 48


@dataclass(frozen=True)
class Lattice:
    """The law of the noise on every coordinate of a block.

    Attributes
    ----------
    noise : {'laplace', 'gaussian', 'cube'}
    bits : int
        Noise is a multiple of ``2**bits`` of the block's integers; below 0 for a finer lattice.
    spread : Fraction
        Scale of Laplace or cube noise, or variance of Gaussian noise, on the lattice.
    together : int
        Coordinates of the vector with cube noise that contains the block; 1 if each coordinate has its own noise.
    """

    noise: str
    bits: int
    spread: Fraction
    together: int = 1

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise on the lattice."""
        if self.noise == CUBE:
            return cube_deviation(self.spread, self.together)
        return laplace_deviation(self.spread) if self.noise == LAPLACE else math.sqrt(self.spread)

    def draw(self, size: int, source: BitSource = SYSTEM) -> Longs:
        """Draw independent noise; a source that is no entropy is for numbers that are released already."""
        if self.noise == CUBE:
            raise InternalError("I032", "noise of a vector was to be drawn one by one. Report it.")
        if self.noise == LAPLACE:
            return discrete_laplace(self.spread, size, source=source)
        parts = range(0, size, MOST_COORDINATES)
        chunks = [gaussian_noise(self.spread, min(MOST_COORDINATES, size - begin), source=source) for begin in parts]
        return np.concatenate(chunks) if chunks else np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class CountLaw:
    """The law of the noise on a block's count of rows, on the lattice: for thresholds on private keys.

    Attributes
    ----------
    noise : {'laplace', 'gaussian'}
    terms : int
        The noise is a sum of this many independent variables.
    spread : Fraction
        Scale of each Laplace variable, or variance of each Gaussian one.
    unit : int
        Lattice units of one row.
    """

    noise: str
    terms: int
    spread: Fraction
    unit: int

    def most(self, rows: int) -> int:
        """Return the largest count on the lattice of `rows` rows without noise, roundings included."""
        return rows * self.unit + self.terms // 2


@dataclass(frozen=True, eq=False)
class NoisyBlock:
    """The coordinates of a block with noise, as exact integers on the lattice.

    Attributes
    ----------
    block : Block
    lattice : Lattice
    words : Words
        Shape (size, G), in units of the lattice.
    """

    block: Block
    lattice: Lattice
    words: Words

    @property
    def values(self) -> Doubles:
        """Noisy coordinates, in units of the block's `unit`, shape (size, G)."""
        return self.words.doubles() * self.step

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise on every coordinate, in units of the block's `unit`."""
        return self.lattice.deviation * self.step

    @property
    def scale(self) -> float:
        """Scale of Laplace or cube noise, or standard deviation of Gaussian noise, in the block's `unit`."""
        spread = self.lattice.deviation if self.lattice.noise == GAUSSIAN else float(self.lattice.spread)
        return spread * self.step

    @property
    def targets(self) -> list[NoisyBlock]:
        """The numbers of each target: the block, or its parts for several targets."""
        if self.block.targets == (self.block,):
            return [self]
        parts = enumerate(self.block.targets)
        return [NoisyBlock(block, self.lattice, self.words.at(self.block.places_of(number))) for number, block in parts]

    def take(self, positions: NDArray[np.intp]) -> NoisyBlock:
        """Return the numbers of some groups."""
        return NoisyBlock(self.block, self.lattice, self.words.take(positions))

    @property
    def count_law(self) -> CountLaw:
        """Law of the noise on `counts`."""
        return count_law(self.block, self.lattice)

    @property
    def counts(self) -> Integers:
        """Noisy number of rows, in units of the lattice; `count_law` has the units of one row.

        Shape (G,): int64, or Python ints if the lattice is too fine for int64.
        """
        counted: Integers = self.words.at(list(self.block.count_of)).integers().sum(axis=0)
        return counted

    @property
    def step(self) -> float:
        """One step of the lattice, in units of the block's `unit`."""
        return math.ldexp(1.0 / self.block.unit, self.lattice.bits)


def count_law(block: Block, lattice: Lattice) -> CountLaw:
    """Return the law of the noise on a block's count of rows."""
    unit = Fraction(block.unit) / Fraction(2) ** lattice.bits
    if not block.count_of or unit.denominator != 1:
        raise InternalError("I032", f"{block.kind} does not count rows. Report it.")
    return CountLaw(lattice.noise, len(block.count_of), lattice.spread, int(unit))


@dataclass(frozen=True)
class GroupedNoise(Part):
    """The blocks of all targets in all groups, with noise, as one mechanism.

    Attributes
    ----------
    epsilon : Fraction
        Of the whole release, > 0.
    delta, mu : Fraction or None
        Set for Gaussian noise, with mu calibrated for epsilon and delta; None for Laplace noise.
    contribution : Contribution
    blocks : tuple of Block
        One or more, of different targets, or a count next to them.
    shares : tuple of Fraction
        Of epsilon, or of ``mu**2``: one per block, > 0, adding up to 1. See `equal_shares`.

    Notes
    -----
    - **Guarantee**: Laplace, pure `epsilon`-DP; Gaussian, mu-GDP in the sense of `gaussian_mu`, hence (epsilon,
      delta)-DP.
    - **Neighbouring relation**: as in `contribution`.
    - **Sensitivity**: of each block, `Block.norm` or `Block.squared_norm`, over all groups. Block i has the scale
      ``norm / (share epsilon)``, or the variance ``squared norm / (share mu**2)``. Losses of blocks add up to epsilon,
      and their squared distances in standard deviations to ``mu**2``.
    - **Randomness**: exact integer samplers, operating-system entropy, no seed.
    - **Assumes**: groups that do not depend on the rows, or a threshold on released keys; fewer than ``2**41`` rows.
    - **Does not protect**: running time, which depends on the noise, and on sums of squares as Python integers.
    """

    epsilon: Fraction
    delta: Fraction | None
    mu: Fraction | None
    contribution: Contribution
    blocks: tuple[Block, ...]
    shares: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        is_complete = len(self.shares) == len(self.blocks) and sum(self.shares) == 1 and min(self.shares) > 0
        if not is_complete or (self.mu is None) != (self.delta is None):
            raise InternalError("I032", f"the shares of {self.name} are not those of its blocks. Report it.")
        if self.mu is not None and sum(block.moved(self.contribution) for block in self.blocks) > MOST_COORDINATES:
            raise ParameterError("P038", "a privacy unit is in too many groups for Gaussian noise. Lower their number.")

    @property
    def event(self) -> Event:
        """Event for the ledger."""
        return additive_noise(self.epsilon, self.mu, self.delta)

    @cached_property
    def lattices(self) -> tuple[Lattice, ...]:
        """Law of the noise on each block."""
        return tuple(self._lattice(block, share) for block, share in zip(self.blocks, self.shares, strict=True))

    def laplace_scales(self) -> list[Fraction]:
        """Return the scales of all Laplace noise, for `dpsql.contract.plan.refuse_wide_noise`."""
        return [lattice.spread for lattice in self.lattices if lattice.noise == LAPLACE]

    def gaussian_parts(self) -> list[Fraction]:
        """Return the mu of one row in each block, rounded down, for `dpsql.contract.plan.refuse_small_part`."""
        if self.mu is None:
            return []
        pairs = zip(self.blocks, self.shares, strict=True)
        return [_row_part(block, self.contribution, self.mu**2 * share) for block, share in pairs]

    @sampled
    def draw(self, sums: Sequence[Sums]) -> list[NoisyBlock]:
        """Return the blocks with noise, from the exact sums of each block's target."""
        return [
            noisy_block(block, lattice, block.words(totals))
            for block, lattice, totals in zip(self.blocks, self.lattices, sums, strict=True)
        ]

    def _lattice(self, block: Block, share: Fraction) -> Lattice:
        if self.mu is None:
            return laplace_lattice(block, self.contribution, self.epsilon * share)
        return gaussian_lattice(block, self.contribution, self.mu**2 * share)


def grouped_noise(
    name: str,
    epsilon: Fraction,
    delta: Fraction | None,
    contribution: Contribution,
    blocks: tuple[Block, ...],
    law: str,
) -> GroupedNoise:
    """Return the mechanism for blocks of groups with public keys, each with the same share of the loss.

    Parameters
    ----------
    name : str
    epsilon : Fraction
    delta : Fraction or None
        For Gaussian noise alone.
    contribution : Contribution
    blocks : tuple of Block
        Blocks for this noise.
    law : {'laplace', 'gaussian'}

    Raises
    ------
    ParameterError
        P001, P027, P038: the noise is too large for any table.
    """
    gaussian = delta if law == GAUSSIAN else None
    mu = None if gaussian is None else usable_mu(epsilon, gaussian)
    return GroupedNoise(name, epsilon, gaussian, mu, contribution, blocks, equal_shares(len(blocks)))


def equal_shares(blocks: int) -> tuple[Fraction, ...]:
    """Return the same share for every block."""
    return (Fraction(1, blocks),) * blocks


def noise_choice(epsilon: Fraction, delta: Fraction | None, contribution: Contribution) -> str:
    """Return the noise with the smaller variance on a count: 'laplace' or 'gaussian'. Laplace without delta."""
    mu = drawable_mu(epsilon, delta, contribution.changed_groups)
    if mu is None:
        return LAPLACE
    linear = contribution.norm(1, distance=0)
    squared = contribution.squared_norm(1, distance=0, opposing=0)
    return LAPLACE if laplace_deviation(linear / epsilon) <= math.sqrt(squared / mu**2) else GAUSSIAN


def drawable_mu(epsilon: Fraction, delta: Fraction | None, moved: int) -> Fraction | None:
    """Return mu of Gaussian noise if neighbours differ in `moved` numbers; None if it cannot be drawn."""
    if delta is None or moved > MOST_COORDINATES:
        return None
    try:
        return usable_mu(epsilon, delta)
    except ParameterError:
        return None


def log_errors(blocks: Sequence[Block], lattices: Sequence[Lattice], aggregates: Sequence[str]) -> float:
    """Return the sum of the logarithms of the standard errors of some aggregates, up to constants.

    `dp_estimate` has the same errors: for a group with half of its rows at each bound. They follow from public
    arguments alone, so they may choose the noise.
    """
    errors = [_error(block, lattice, name) for block, lattice in _by_target(blocks, lattices) for name in aggregates]
    return sum(math.log(error) if error > 0.0 else -math.inf for error in errors)


def rows_to_sampling(blocks: Sequence[Block], lattices: Sequence[Lattice], aggregates: Sequence[str]) -> float:
    """Return the least rows of a group at which noise on its count, or mean, is at most the sampling error.

    With n rows, noise on a mean has the standard deviation ``c / n``, in half widths of the bounds, and the mean of
    values, half of them at each bound, has ``1 / sqrt(n)``; noise on a count has c, and a Poisson count ``sqrt(n)``.
    Both give ``c**2`` rows.
    """
    names = [name for name in aggregates if name in (COUNT, AVG)]
    errors = [_error(block, lattice, name) for block, lattice in _by_target(blocks, lattices) for name in names]
    return float(math.ceil(max(errors, default=0.0) ** 2))


def _by_target(blocks: Sequence[Block], lattices: Sequence[Lattice]) -> list[tuple[Block, Lattice]]:
    """Return the block of each target, with the law of its noise."""
    pairs = zip(blocks, lattices, strict=True)
    return [(target, lattice) for block, lattice in pairs for target in block.targets]


def _error(block: Block, lattice: Lattice, aggregate: str) -> float:
    rows, *others = np.array(block.moments, dtype=np.float64)
    form = rows
    if aggregate == SUM and isinstance(block, ValueBlock):
        middle, half = block.middle_and_half
        form = middle * rows + half * others[0]
    elif aggregate != COUNT:
        form = others[0] if aggregate == AVG else others[1] - rows
    return math.ldexp(lattice.deviation / block.unit, lattice.bits) * float(np.linalg.norm(form))


def laplace_lattice(block: Block, contribution: Contribution, epsilon: Fraction) -> Lattice:
    """Return the law of Laplace noise on a block with this much of epsilon."""
    moved = block.moved(contribution)
    l1 = block.norm(contribution)
    # A row must stay a whole number on the lattice: up to the lowest bit of its count.
    for bits in range((block.unit & -block.unit).bit_length()):
        scale = ((l1 + moved * ((1 << bits) - 1)) >> bits) / epsilon
        if scale <= 1 << _WIDEST_BITS:
            break
    return Lattice(LAPLACE, bits, scale)


def gaussian_lattice(block: Block, contribution: Contribution, squared_mu: Fraction) -> Lattice:
    """Return the law of Gaussian noise on a block with this much of ``mu**2``."""
    finer, sensitivity = counting_unit(block.squared_norm(contribution), squared_mu)
    variance = sensitivity**2 / squared_mu
    coarser = max(0, math.isqrt(math.ceil(variance)).bit_length() - _WIDEST_BITS)
    if coarser:
        moved = math.isqrt(block.moved(contribution)) + 1
        variance = (Fraction(sensitivity, 1 << coarser) + moved) ** 2 / squared_mu
    return Lattice(GAUSSIAN, coarser - finer, variance)


def noisy_block(block: Block, lattice: Lattice, exact: Words) -> NoisyBlock:
    """Add noise to the exact integers of a block, shape (size, G). `GroupedNoise` has the guarantee."""
    rounded = on_lattice(exact, lattice.bits)
    noise = lattice.draw(rounded.high.size).reshape(rounded.high.shape)
    return NoisyBlock(block, lattice, Words.of(rounded.high, rounded.low + noise, rounded.bits))


def on_lattice(exact: Words, bits: int) -> Words:
    """Return the integers in units of ``2**bits``, rounded if the unit is larger than 1."""
    if bits <= 0:
        return Words(exact.high, exact.low << -bits, exact.bits - bits)
    half = exact.low + (1 << (bits - 1))
    if bits <= exact.bits:
        return Words(exact.high, half >> bits, exact.bits - bits)
    return Words((exact.high + (half >> exact.bits)) >> (bits - exact.bits))


def expected_block(block: Block, lattice: Lattice, rows: int) -> NoisyBlock:
    """Return the average release of one group with half of its rows at each bound."""
    number = np.array([rows], dtype=np.int64)
    squares = Words(number, 0, 2 * (block.denominator.bit_length() - 1))
    exact = block.words(Sums(number, np.zeros_like(number), squares))
    return NoisyBlock(block, lattice, on_lattice(exact, lattice.bits))


def _row_part(block: Block, contribution: Contribution, squared_mu: Fraction) -> Fraction:
    square = squared_mu * block.unit**2 / block.squared_norm(contribution) * 10**30
    return Fraction(math.isqrt(math.floor(square)), 10**15)


_BLOCKS = GroupCount, CentredPair, Chebyshev, DirectSum
# The lattice is so fine that the law is practically continuous, and its integers fit 64 bits.
_LEAST_FINE, _MOST_FINE, _LEAST_SCALE = 20, 56, 1 << 24


@dataclass(frozen=True)
class CubeTarget:
    """Place of a target in the vector.

    Attributes
    ----------
    block : Block
        A `GroupCount`, `CentredPair`, `Chebyshev` or `DirectSum` with coordinates within the count of a row.
    shared : bool
        Whether it counts all rows: a row without a value has the code `fill`.
    fill : int
        Between -S and S.
    """

    block: Block
    shared: bool = False
    fill: int = 0

    def __post_init__(self) -> None:
        denominator = self.block.denominator
        if type(self.block) not in _BLOCKS or abs(self.fill) > denominator or (self.shared and not self.block.count_of):
            raise InternalError("I032", f"{self.block.kind} has no place in a vector. Report it.")

    @property
    def unit_bits(self) -> int:
        """Logarithm of the count of a row, in units of the block's integers."""
        return self.block.unit.bit_length() - 1

    def sums(self, rows: Sums, own: Sums) -> Sums:
        """Return the exact sums for the block: the sums of all rows if the count is shared."""
        if not self.shared:
            return own
        return replace(own, n=rows.n, s1=own.s1 + self.fill * (rows.n - own.n))


@dataclass(frozen=True)
class CubeVector(Part):
    """The numbers of all targets in all groups, with noise, as one mechanism.

    Attributes
    ----------
    epsilon : Fraction
        Of the whole release, > 0.
    contribution : Contribution
    targets : tuple of CubeTarget
        One or more.

    Notes
    -----
    - **Guarantee**: pure `epsilon`-DP.
    - **Neighbouring relation**: as in `contribution`.
    - **Sensitivity**: the largest change of a coordinate, added up over groups: ``contribution.norm``, see above.
    - **Randomness**: exact integer sampler, operating-system entropy, no seed.
    - **Assumes**: groups that do not depend on the rows; codes within -S and S; fewer than ``2**41`` rows.
    - **Does not protect**: running time, which depends on the noise.
    """

    epsilon: Fraction
    contribution: Contribution
    targets: tuple[CubeTarget, ...]

    @property
    def event(self) -> Event:
        """Event for the ledger."""
        return CubeNoise(self.epsilon)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The block of each target."""
        return tuple(target.block for target in self.targets)

    @cached_property
    def positions(self) -> tuple[tuple[int, ...], ...]:
        """Coordinates of the vector for each target; the shared count is the first."""
        following = int(any(target.shared for target in self.targets))
        coordinates = []
        for target in self.targets:
            common = (0,) if target.shared else ()
            own = target.block.size - len(common)
            coordinates.append((*common, *range(following, following + own)))
            following += own
        return tuple(coordinates)

    @property
    def coordinates(self) -> int:
        """Number of different coordinates in a group, d."""
        return 1 + max(coordinate for position in self.positions for coordinate in position)

    @property
    def distance(self) -> int:
        """Largest distance of two rows' vectors in one group, D."""
        if any(isinstance(target.block, ValueBlock) for target in self.targets):
            return 2
        return 0 if all(target.shared for target in self.targets) else 1

    @cached_property
    def finest(self) -> int:
        """The most `unit_bits` of a target."""
        return max(target.unit_bits for target in self.targets)

    def sensitivity(self, fine: int) -> int:
        """Return the sensitivity on the lattice of ``2**-fine``."""
        rounded = self.finest > fine
        moved = self.contribution.norm(1 << fine, distance=self.distance << fine)
        return moved + (self.contribution.changed_groups if rounded else 0)

    @cached_property
    def fine(self) -> int:
        """The logarithm of the lattice steps in the count of a row."""
        fine = _LEAST_FINE
        while self.sensitivity(fine) / self.epsilon < _LEAST_SCALE and fine < _MOST_FINE:
            fine += 1
        return fine

    @property
    def scale(self) -> Fraction:
        """The scale of the noise on the lattice."""
        return self.sensitivity(self.fine) / self.epsilon

    @property
    def is_drawable(self) -> bool:
        """Whether the noise is within the sampler's range."""
        return self.coordinates <= MOST_CUBE_COORDINATES and _LEAST_SCALE <= self.scale <= LARGEST_CUBE_SCALE

    @property
    def lattices(self) -> tuple[Lattice, ...]:
        """The law of the noise on each block."""
        return tuple(
            Lattice(CUBE, target.unit_bits - self.fine, self.scale, self.coordinates) for target in self.targets
        )

    def laplace_scales(self) -> list[Fraction]:
        """Return nothing: there is no Laplace noise."""
        return []

    def gaussian_parts(self) -> list[Fraction]:
        """Return nothing: there is no Gaussian noise."""
        return []

    @sampled
    def draw(self, sums: Sequence[Sums]) -> list[NoisyBlock]:
        """Return the blocks with noise, from the exact sums over all rows and then of each target.

        A shared count is one number with one noise: all targets that share it get this number.
        """
        rows, *own = sums
        noise = cube_noise(self.scale, self.coordinates, len(rows.n))
        blocks = []
        for target, position, lattice, totals in zip(self.targets, self.positions, self.lattices, own, strict=True):
            exact = on_lattice(target.block.words(target.sums(rows, totals)), lattice.bits)
            words = Words.of(exact.high, exact.low + noise[list(position)], exact.bits)
            blocks.append(NoisyBlock(target.block, lattice, words))
        return blocks
