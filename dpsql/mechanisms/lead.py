"""Noise on the lead of a selection over shuffled targets (`dpsql.statistics.lead`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpsql.contract.measurement import sampled
from dpsql.mechanisms.ranking import ScoreNoise
from dpsql.noise.discrete import discrete_laplace
from dpsql.statistics.lead import lead_sensitivity


@dataclass(frozen=True)
class LeadNoise(ScoreNoise):
    """The lead of k features that were chosen before.

    Notes
    -----
    - **Guarantee**: pure `epsilon`-DP, for every choice of the features: it composes with the selection that chose
      them.
    - **Neighbouring relation**: add or remove one unit of one row, or replace one.
    - **Sensitivity**: `dpsql.statistics.lead.lead_sensitivity`, over coupled permutations.
    - **Randomness**: exact integer sampler, and exactly uniform permutations, both of operating-system entropy.
    - **Assumes**: permutations that were drawn for this release alone and were shown to nobody.
    - **Does not protect**: running time.
    """

    @sampled
    def draw(self, lead: Fraction, *, two_levels: bool) -> float:
        """Return the lead with noise.

        Parameters
        ----------
        lead : Fraction
            D.
        two_levels : bool
            As for `dpsql.statistics.rank_scores.rank_spread`.
        """
        bits = self.bits(two_levels=two_levels)
        [noise] = discrete_laplace(self.scale(two_levels=two_levels), 1).tolist()
        return math.ldexp(math.floor(lead * (1 << bits) + Fraction(1, 2)) + noise, -bits)

    def _moved(self, bits: int, two_levels: bool) -> int:
        return lead_sensitivity(self.relation, two_levels=two_levels) << bits
