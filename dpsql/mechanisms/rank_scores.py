"""Noise on the rank scores of some features and on the number of rows, as one mechanism and one event."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.contract.events import DiscreteLaplace, Event
from dpsql.contract.measurement import Part, sampled
from dpsql.contract.relation import Relation, relation_of
from dpsql.mechanisms.count_noise import laplace_reach
from dpsql.noise.discrete import discrete_laplace, laplace_deviation
from dpsql.statistics.rank_scores import released_sensitivity

# Scores are multiples of 2**-20, or of a coarser unit where noise would have more bits than this.
_FINEST, _WIDEST = 20, 1 << 47


@dataclass(frozen=True)
class NoisyScores:
    """Scores and the number of rows, each with noise."""

    scores: list[float]
    rows: float


@dataclass(frozen=True)
class RankScoreNoise(Part):
    """The scores ``|tau_j|`` of k features that were chosen before, and the number of rows.

    Attributes
    ----------
    epsilon : Fraction
    neighbours : {'add_remove', 'replace'}
    max_rows_per_unit : int
    k : int

    Notes
    -----
    - **Guarantee**: pure `epsilon`-DP, for every choice of the features: it composes with the selection that chose
      them.
    - **Neighbouring relation**: add or remove one unit, or replace one.
    - **Sensitivity**: L1, of scores and rows as one vector, `dpsql.statistics.rank_scores.released_sensitivity`.
    - **Randomness**: exact integer sampler, operating-system entropy, no seed.
    - **Assumes**: exact scores over all rows; not those of blocks.
    - **Does not protect**: running time.
    """

    epsilon: Fraction
    neighbours: str
    max_rows_per_unit: int
    k: int

    @property
    def event(self) -> Event:
        """What the ledger records."""
        return DiscreteLaplace(self.epsilon)

    @property
    def relation(self) -> Relation:
        """The neighbouring relation."""
        return relation_of(self.neighbours, self.max_rows_per_unit)

    def bits(self, *, two_levels: bool) -> int:
        """Return b: numbers are released in units of ``2**-b``, which is public."""
        width = self._moved(0, two_levels) / self.epsilon
        return next((bits for bits in range(_FINEST, 0, -1) if width * (1 << bits) <= _WIDEST), 0)

    def scale(self, *, two_levels: bool) -> Fraction:
        """Return the scale of the noise on every number, in that unit."""
        return self._moved(self.bits(two_levels=two_levels), two_levels) / self.epsilon

    def deviation(self, *, two_levels: bool) -> float:
        """Return the standard deviation of the noise on every number."""
        return math.ldexp(laplace_deviation(self.scale(two_levels=two_levels)), -self.bits(two_levels=two_levels))

    def reach(self, failure: Fraction, *, two_levels: bool) -> float:
        """Return what the error of one number, its rounding included, is above with that chance at most."""
        bits = self.bits(two_levels=two_levels)
        # Of both signs with twice the chance: noise is symmetric.
        return math.ldexp(laplace_reach(self.scale(two_levels=two_levels), 2 * failure) + 0.5, -bits)

    @sampled
    def draw(self, scores: Sequence[Fraction], rows: int, *, two_levels: bool) -> NoisyScores:
        """Return the numbers with noise.

        Parameters
        ----------
        scores : sequence of Fraction, length k
            ``|tau_j|``.
        rows : int
        two_levels : bool
            As for `dpsql.statistics.rank_scores.rank_spread`.
        """
        bits = self.bits(two_levels=two_levels)
        exact = [*(math.floor(score * (1 << bits) + Fraction(1, 2)) for score in scores), rows << bits]
        noise = discrete_laplace(self.scale(two_levels=two_levels), len(exact)).tolist()
        *noisy, count = (math.ldexp(value + by, -bits) for value, by in zip(exact, noise, strict=True))
        return NoisyScores(noisy, count)

    def _moved(self, bits: int, two_levels: bool) -> int:
        return released_sensitivity(self.relation, self.k, two_levels=two_levels, bits=bits)
