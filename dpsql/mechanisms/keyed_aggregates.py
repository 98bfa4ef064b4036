"""Noise on the blocks of groups whose keys are private: only keys with a large noisy count are released.

The joint vector of all keys gets noise as with public keys (`dpsql.mechanisms.aggregates`), and a key with its numbers
is released when its noisy count reaches a threshold (`dpsql.mechanisms.partition_selection`): one mechanism, one event,
and one delta for the noise and for the threshold. The count is one of the released numbers if possible: if one block
counts rows, and a unit has one row per group. Otherwise `UnitCount`, the number of units per key, is an extra block.

**Weighted units.** Where keys alone are asked for, a unit in k keys may add ``1 / sqrt(k)`` to each of them. Its
weights have an L2 norm of at most 1 for any k, so that Gaussian noise is that of a unit in one key, and a lone key has
at most 1: limits as for the largest number of keys (`dpsql.mechanisms.key_limits.limits_by_weight`). The k of a unit
follows from its own rows that count; another unit moves no weight of it (Gopi et al. 2020, *Differentially Private Set
Union*). Public numbers alone choose between weights and counts.

The mechanism draws noise on the other blocks for released keys alone. This noise is independent of the count's noise,
so the law is the same.

Grouping sets add noise to the same sums in several divisions of rows into groups: each margin is a union of the finest
groups. Every division has the blocks of all targets with the same share of epsilon, or of ``mu**2``. The limits and the
division bound the groups of a privacy unit in each division; one group of a coarse division may have all its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.events import Approximate, Event, additive_noise
from dpsql.contract.gaussian_profile import usable_mu
from dpsql.contract.measurement import Part, sampled
from dpsql.contract.relation import Contribution
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.mechanisms.aggregates import (
    GroupedNoise,
    Lattice,
    NoisyBlock,
    count_law,
    gaussian_lattice,
    laplace_lattice,
    noisy_block,
)
from dpsql.mechanisms.count_noise import CountNoise, GaussianCountNoise, LaplaceCountNoise, TruncatedCountNoise
from dpsql.mechanisms.gaussian import MOST_COORDINATES
from dpsql.mechanisms.key_limits import KeyLimits, gaussian_key_budget, limits_by_group, limits_by_weight
from dpsql.mechanisms.partition_selection import key_threshold, truncated_count_noise
from dpsql.statistics.aggregates import (
    GAUSSIAN,
    LAPLACE,
    UNIT_WEIGHTS,
    Block,
    GroupCount,
    Sums,
    UnitCount,
    WeightedUnits,
    Words,
)


@dataclass(frozen=True)
class MarginsNoise(Part):
    """The blocks of all targets in the groups of several divisions, as one mechanism.

    Attributes
    ----------
    epsilon : Fraction
        Of the whole release, > 0.
    delta, mu : Fraction or None
        Set for Gaussian noise; None for Laplace noise.
    contributions : tuple of Contribution
        A unit's contribution to each division; the finest is first.
    blocks : tuple of Block

    Notes
    -----
    - **Guarantee**: Laplace, pure `epsilon`-DP; Gaussian, mu-GDP, hence (epsilon, delta)-DP.
    - **Neighbouring relation**: as in `contributions`.
    - **Sensitivity**: of each block in each division as for `GroupedNoise`; their losses add up to epsilon, and their
      squared distances in standard deviations to ``mu**2``.
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
        moved = sum(block.moved(contribution) for contribution in self.contributions for block in self.blocks)
        if self.mu is not None and moved > MOST_COORDINATES:
            raise ParameterError("P038", "a privacy unit is in too many groups for Gaussian noise. Lower their number.")

    @property
    def event(self) -> Event:
        """Event for the ledger."""
        return additive_noise(self.epsilon, self.mu, self.delta)

    @cached_property
    def all_lattices(self) -> tuple[tuple[Lattice, ...], ...]:
        """The law of the noise on each block of each division."""
        share = Fraction(1, len(self.contributions) * len(self.blocks))
        mu = self.mu
        if mu is None:
            return tuple(
                tuple(laplace_lattice(block, contribution, self.epsilon * share) for block in self.blocks)
                for contribution in self.contributions
            )
        return tuple(
            tuple(gaussian_lattice(block, contribution, mu**2 * share) for block in self.blocks)
            for contribution in self.contributions
        )

    @property
    def lattices(self) -> tuple[Lattice, ...]:
        """The law of the noise on each block of the finest division."""
        return self.all_lattices[0]

    def laplace_scales(self) -> list[Fraction]:
        """Return the scales of all Laplace noise."""
        laws = [lattice for lattices in self.all_lattices for lattice in lattices]
        return [lattice.spread for lattice in laws if lattice.noise == LAPLACE]

    def gaussian_parts(self) -> list[Fraction]:
        """Return nothing: the check of one division refuses too wide noise."""
        return []

    @sampled
    def draw(self, sums: Sequence[Sequence[Sums]]) -> list[list[NoisyBlock]]:
        """Return the noisy blocks by division, from the exact sums of each target in each division."""
        return [
            [
                noisy_block(block, lattice, block.words(totals))
                for block, lattice, totals in zip(self.blocks, lattices, of_division, strict=True)
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
    """Return the mechanism for blocks in several divisions; parameters and errors as for `grouped_noise`."""
    gaussian = delta if law == GAUSSIAN else None
    mu = None if gaussian is None else usable_mu(epsilon, gaussian)
    return MarginsNoise(name, epsilon, gaussian, mu, contributions, blocks)


# Keys that draw noise together.
_CHUNK = 1 << 20
# Share of the loss for counting units, if no other number can decide.
UNITS_SHARE = Fraction(3, 10)


@dataclass(frozen=True)
class KeyedNoise(Part):
    """The noisy blocks of all targets, for keys that enough units have.

    Attributes
    ----------
    epsilon, delta : Fraction
        Of the whole release.
    mu : Fraction or None
        Set for Gaussian noise, None for Laplace noise.
    truncated : bool
        Whether the noise of the only block, a count, is cut to the threshold: Laplace noise otherwise.
    contribution : Contribution
    blocks : tuple of Block
        The first has the count for the threshold.

    Notes
    -----
    - **Guarantee**: (epsilon, delta)-DP; not zCDP at any rho.
    - **Neighbouring relation**: as in `contribution`.
    - **Sensitivity**: as for `GroupedNoise`, and lone keys as in `dpsql.mechanisms.key_limits`.
    - **Randomness**: exact integer samplers, operating-system entropy, no seed.
    - **Assumes**: no unit has more keys, or more rows per key, than in `contribution`.
    - **Does not protect**: running time, which grows with the number of keys in the table.
    """

    epsilon: Fraction
    delta: Fraction
    mu: Fraction | None
    truncated: bool
    contribution: Contribution
    blocks: tuple[Block, ...]

    @property
    def event(self) -> Event:
        """Event for the ledger."""
        return Approximate(self.epsilon, self.delta, "private keys")

    @cached_property
    def noise(self) -> GroupedNoise:
        """The noise on the blocks."""
        delta = None if self.mu is None else self.delta
        shares = block_shares(self.blocks)
        return GroupedNoise(self.name, self.epsilon, delta, self.mu, self.contribution, self.blocks, shares)

    @cached_property
    def count_noise(self) -> CountNoise:
        """Law of the noise on the deciding count."""
        if self.truncated:
            return truncated_count_noise(
                epsilon=self.epsilon, delta=self.delta, neighbours=self.contribution.neighbours, limits=self.limits
            )
        law = count_law(self.blocks[0], self.noise.lattices[0])
        if law.noise == GAUSSIAN:
            return GaussianCountNoise(variance=law.spread * law.terms, unit=law.unit)
        return LaplaceCountNoise(scale=law.spread, terms=law.terms, unit=law.unit)

    @property
    def limits(self) -> KeyLimits:
        """Bounds on one unit in the deciding count."""
        return key_limits(self.contribution, self.blocks[0])

    @cached_property
    def threshold(self) -> int:
        """On the lattice of the count: a key with at least this noisy count is released."""
        noise = self.count_noise
        if isinstance(noise, TruncatedCountNoise):
            return noise.bound + 1
        least = key_threshold(
            noise,
            epsilon=self.epsilon,
            delta=self.delta,
            neighbours=self.contribution.neighbours,
            limits=self.limits,
            mu=self.mu,
        )
        # Rounding to a coarse lattice may raise each coordinate by half a step.
        law = count_law(self.blocks[0], self.noise.lattices[0])
        return least + (law.most(1) - law.unit)

    @property
    def least_count(self) -> float:
        """The threshold in rows or units; of weighted units those with one key each."""
        return self.threshold / self.count_noise.unit

    @property
    def weighs_units(self) -> bool:
        """Whether a unit in k keys has the weight ``1 / sqrt(k)`` in each of them."""
        return isinstance(self.blocks[0], WeightedUnits)

    @property
    def epsilon_needed(self) -> float:
        """About the epsilon from which half as many rows or units are enough: the threshold beyond 1 falls with it."""
        least = self.least_count
        return float(self.epsilon) * (least - 1.0) / (least / 2.0 - 1.0) if least > 2.0 else float(self.epsilon)

    @property
    def usual_count(self) -> float:
        """The threshold in rows or units; of weighted units those with the square root of the most keys each."""
        return self.least_count * (self.contribution.groups**0.25 if self.weighs_units else 1.0)

    @sampled
    def draw(self, sums: Sequence[Sums]) -> tuple[NDArray[np.intp], list[NoisyBlock]]:
        """Return the positions of the released keys, ascending, and their blocks with noise.

        Parameters
        ----------
        sums : sequence of Sums
            Of each block's target, over all existing keys, in an order that does not depend on the counts.
        """
        first, *others = zip(self.blocks, self.noise.lattices, sums, strict=True)
        positions, chosen = self._decide(*first)
        blocks = [chosen]
        for block, lattice, totals in others:
            blocks.append(noisy_block(block, lattice, block.words(totals.take(positions))))
        return positions, blocks

    def _decide(self, block: Block, lattice: Lattice, sums: Sums) -> tuple[NDArray[np.intp], NoisyBlock]:
        """Draw the noise of the block with the count; return the keys that reach the threshold."""
        positions, words = [], []
        for start in range(0, max(1, len(sums.n)), _CHUNK):
            indices = np.arange(start, min(start + _CHUNK, len(sums.n)))
            exact = block.words(sums.take(indices))
            if self.truncated:
                noisy = NoisyBlock(block, lattice, Words(exact.high + self.count_noise.draw(len(indices))))
            else:
                noisy = noisy_block(block, lattice, exact)
            large = np.flatnonzero(np.asarray(noisy.counts >= self.threshold, dtype=np.bool_))
            positions.append(indices[large])
            words.append(noisy.words.take(large))
        return np.concatenate(positions), NoisyBlock(block, lattice, Words.joined(words))


def deciding_noise(
    name: str, epsilon: Fraction, delta: Fraction, contribution: Contribution, block: GroupCount, law: str
) -> list[KeyedNoise]:
    """Return the mechanisms of one law that release keys by their units: counted, and also weighted if possible.

    A unit in k keys has the weight ``1 / sqrt(k)`` in each. So the noise is that of a unit in one key, however many
    keys a unit may have; counted units need ``sqrt(g)`` times that noise for the largest number g. Weights need
    Gaussian noise, whose size follows from the L2 norm.
    """
    parts = [keyed_noise(name, epsilon, delta, contribution, (block,), law)]
    if law == GAUSSIAN and contribution.groups < len(UNIT_WEIGHTS):
        weighted = keyed_noise(name, epsilon, delta, contribution, (WeightedUnits(),), law)
        parts += [weighted] if weighted.noise.lattices[0].bits <= 0 else []  # a coarser lattice would round weights
    return parts


def key_limits(contribution: Contribution, block: Block) -> KeyLimits:
    """Return the bounds of one unit in a block's count, and its lone keys' share of the vector."""
    if isinstance(block, WeightedUnits):
        return limits_by_weight(contribution.groups)
    limits = limits_by_group(contribution.groups, contribution.rows_per_group, contribution.rows)
    return replace(limits, lone=((1, 1),)) if isinstance(block, UnitCount) else limits


def block_shares(blocks: Sequence[Block]) -> tuple[Fraction, ...]:
    """Return the share of the loss for each block: equal, and a fixed share for counting units."""
    if not isinstance(blocks[0], UnitCount):
        return (Fraction(1, len(blocks)),) * len(blocks)
    rest = len(blocks) - 1
    return (UNITS_SHARE, *((1 - UNITS_SHARE) / rest,) * rest)


def keyed_noise(
    name: str, epsilon: Fraction, delta: Fraction, contribution: Contribution, blocks: Sequence[Block], law: str
) -> KeyedNoise:
    """Return the mechanism for private keys.

    Parameters
    ----------
    name : str
    epsilon, delta : Fraction
    contribution : Contribution
    blocks : sequence of Block
        Blocks of the targets, for this noise.
    law : {'laplace', 'gaussian'}

    Raises
    ------
    ParameterError
        P001, P027, P038: the noise is too large for any table.
    """
    listed = tuple(blocks)
    if contribution.rows_per_group > 1 or len(listed) > 1 or not listed[0].count_of:
        listed = (UnitCount(), *listed)
    if law == LAPLACE:
        plain = KeyedNoise(name, epsilon, delta, None, False, contribution, listed)
        if len(listed) > 1 or not isinstance(listed[0], GroupCount):
            return plain
        return min(plain, replace(plain, truncated=True), key=lambda part: part.least_count)
    share = block_shares(listed)[0]
    squared = Fraction(listed[0].squared_norm(contribution)) / listed[0].unit ** 2 / share
    limits = key_limits(contribution, listed[0])
    mu = gaussian_key_budget(
        epsilon, delta, neighbours=contribution.neighbours, limits=limits, squared_sensitivity=squared
    ).mu
    return KeyedNoise(name, epsilon, delta, mu, False, contribution, listed)
