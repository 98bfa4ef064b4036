"""Noise on several numbers of each group at once, by the largest of them: counts and sums of a query in one vector.

The blocks of all targets are one vector of d coordinates in each group: the number of rows, shared by targets with a
value in every row, the numbers of values of the other targets, and their sums. In units where one row counts 1, every
coordinate of a row is between -1 and 1. So a row's whole vector is at most 1 in the norm of the largest coordinate, for
any values and any number of targets.

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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from dpsql.contract.events import CubeNoise, Event
from dpsql.contract.measurement import Part, sampled
from dpsql.contract.relation import Contribution
from dpsql.errors import InternalError
from dpsql.mechanisms.aggregates import Lattice, NoisyBlock, on_lattice
from dpsql.noise.cube import LARGEST_CUBE_SCALE, MOST_CUBE_COORDINATES, cube_noise
from dpsql.statistics.aggregates import (
    CUBE,
    Block,
    CentredPair,
    Chebyshev,
    DirectSum,
    GroupCount,
    Sums,
    ValueBlock,
    Words,
)

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

    def sensitivity(self, fine: int) -> int:
        """Return the sensitivity on the lattice of ``2**-fine``."""
        rounded = any(target.unit_bits > fine for target in self.targets)
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
