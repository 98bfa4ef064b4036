"""Noise on the same sums in several divisions of rows into groups: each margin is a union of the finest groups.

Every division has the blocks of all targets with the same share of epsilon, or of ``mu**2``. A privacy unit has rows in
as many groups of each division as its limits and the division leave it, and all of its rows may be in one group of a
coarse one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dpsql.contract.events import Event, additive_noise
from dpsql.contract.gaussian_profile import usable_mu
from dpsql.contract.measurement import Part, sampled
from dpsql.contract.relation import Contribution
from dpsql.errors import ParameterError
from dpsql.mechanisms.aggregates import Lattice, NoisyBlock, gaussian_lattice, laplace_lattice, noisy_block
from dpsql.mechanisms.gaussian import MOST_COORDINATES
from dpsql.statistics.aggregates import GAUSSIAN, LAPLACE, Block, Sums


@dataclass(frozen=True)
class MarginsNoise(Part):
    """The blocks of all targets in the groups of several divisions, as one mechanism.

    Attributes
    ----------
    epsilon : Fraction
        Of the whole release, > 0.
    delta, mu : Fraction or None
        With them the noise is Gaussian; without them it is Laplace.
    contributions : tuple of Contribution
        What a unit contributes to each division; the finest one is the first.
    blocks : tuple of Block

    Notes
    -----
    - **Guarantee**: Laplace, pure `epsilon`-DP; Gaussian, mu-GDP, hence (epsilon, delta)-DP.
    - **Neighbouring relation**: that of `contributions`.
    - **Sensitivity**: of each block in each division as of `GroupedNoise`; losses of all of them add up to epsilon, and
      their squared distances in standard deviations to ``mu**2``.
    - **Randomness**: exact integer samplers, operating-system entropy, no seed.
    - **Assumes**: groups that do not depend on the rows; fewer than ``2**41`` rows.
    - **Does not protect**: running time, which depends on the noise.
    """

    epsilon: Fraction
    delta: Fraction | None
    mu: Fraction | None
    contributions: tuple[Contribution, ...]
    blocks: tuple[Block, ...]

    def __post_init__(self) -> None:
        moved = sum(block.moved(one) for one in self.contributions for block in self.blocks)
        if self.mu is not None and moved > MOST_COORDINATES:
            raise ParameterError("P038", "a privacy unit is in too many groups for Gaussian noise. Lower their number.")

    @property
    def event(self) -> Event:
        """What the ledger records."""
        return additive_noise(self.epsilon, self.mu, self.delta)

    @cached_property
    def all_lattices(self) -> tuple[tuple[Lattice, ...], ...]:
        """The law of the noise on each block of each division."""
        share = Fraction(1, len(self.contributions) * len(self.blocks))
        mu = self.mu
        if mu is None:
            return tuple(
                tuple(laplace_lattice(block, one, self.epsilon * share) for block in self.blocks)
                for one in self.contributions
            )
        return tuple(
            tuple(gaussian_lattice(block, one, mu**2 * share) for block in self.blocks) for one in self.contributions
        )

    @property
    def lattices(self) -> tuple[Lattice, ...]:
        """The law of the noise on each block of the finest division."""
        return self.all_lattices[0]

    def laplace_scales(self) -> list[Fraction]:
        """Return the scales of all Laplace noise."""
        found = [lattice for lattices in self.all_lattices for lattice in lattices]
        return [lattice.spread for lattice in found if lattice.noise == LAPLACE]

    def gaussian_parts(self) -> list[Fraction]:
        """Return nothing: what is too wide was refused with the noise of one division."""
        return []

    @sampled
    def draw(self, sums: Sequence[Sequence[Sums]]) -> list[list[NoisyBlock]]:
        """Return the blocks with noise by division, from the exact sums of each block's target in each."""
        return [
            [
                noisy_block(block, lattice, block.words(given))
                for block, lattice, given in zip(self.blocks, lattices, of_division, strict=True)
            ]
            for lattices, of_division in zip(self.all_lattices, sums, strict=True)
        ]


def margins_noise(
    name: str,
    epsilon: Fraction,
    delta: Fraction | None,
    contributions: tuple[Contribution, ...],
    blocks: tuple[Block, ...],
    law: str,
) -> MarginsNoise:
    """Return the part that draws blocks in several divisions; parameters and errors as of `grouped_noise`."""
    gaussian = delta if law == GAUSSIAN else None
    mu = None if gaussian is None else usable_mu(epsilon, gaussian)
    return MarginsNoise(name, epsilon, gaussian, mu, contributions, blocks)
