"""Noisy counts of the rows between public cuts around private quantiles, for intervals of these quantiles.

The cuts follow from the private cells (`dpsql.mechanisms.quantile`) and public numbers: both ends of each cell, and
ends at growing distances on either side. The cuts divide the column's cells into bins. Every row is in one bin, by its
value alone, and the counts of all bins get discrete Laplace noise.

`dpsql.released.quantile_spans` computes the intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dpsql.arrays import Longs
from dpsql.contract.events import DiscreteLaplace, Event
from dpsql.contract.measurement import Part, sampled
from dpsql.dataclass import dataclass
from dpsql.noise.discrete import LARGEST_SCALE, discrete_laplace
from dpsql.noise.entropy import SYSTEM, BitSource
from dpsql.statistics.counts import l1_sensitivity

# Cuts on each side of one quantile; for several, the total on one side.
_STEPS, _SHARED_STEPS = 10, 15


def steps_of(count: int) -> int:
    """Return the number of cuts on either side of each of so many quantiles, without its cell's ends."""
    return min(_STEPS, _SHARED_STEPS // count)


def most_bins(count: int) -> int:
    """Return the largest number of bins for so many quantiles."""
    return count * (2 * steps_of(count) + 2) + 1


def cuts_around(centres: Sequence[int], cells: int) -> Longs:
    """Return the cuts, as numbers of cells below them: ascending, from 0 to `cells`.

    Parameters
    ----------
    centres : sequence of int
        The private cells, in [0, cells).
    cells : int
        Number of cells.

    Notes
    -----
    Distances from a private cell grow by a constant factor; the last is short of all cells.
    """
    steps = steps_of(len(centres))
    away = np.rint(float(cells) ** (np.arange(steps) / max(steps, 1))).astype(np.int64)
    cuts = {0, cells}
    for cell in centres:
        cuts.update([cell, cell + 1, *(cell - away).tolist(), *(cell + 1 + away).tolist()])
    return np.array(sorted(cut for cut in cuts if 0 <= cut <= cells), dtype=np.int64)


def bins_between(counts: Longs, cuts: Longs) -> Longs:
    """Return the exact rows between cuts, from the rows in each cell."""
    return np.add.reduceat(counts, cuts[:-1])


def noisy_bins(bins: Sequence[Longs], scale: Fraction, source: BitSource = SYSTEM) -> list[Longs]:
    """Return the counts of disjoint bins with discrete Laplace noise.

    Parameters
    ----------
    bins : sequence of ndarray of int64
        Exact counts, of each group.
    scale : Fraction
        In rows, > 0.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Notes
    -----
    - **Guarantee**: pure ``L1 / scale``-DP for all counts together, with the L1 sensitivity of
      `dpsql.statistics.counts.l1_sensitivity` for one histogram: m rows of a unit leave or come under add_remove, ``2
      m`` under replace, in any bins and groups.
    - **Neighbouring relation**: add or remove one unit, or replace one.
    - **Sensitivity**: L1. Released cells and public numbers fix the cuts, so they are the same for neighbours.
    - **Randomness**: exact sampler, operating-system entropy, no seed.
    - **Assumes**: every row is in one bin of one group, or in none.
    - **Does not protect**: the number of bins; running time.
    """
    return [counts + discrete_laplace(scale, len(counts), source=source) for counts in bins]


@dataclass(frozen=True)
class RankCounts(Part):
    """Noisy counts around private quantiles of one column or of disjoint groups of its rows; see `noisy_bins`.

    Attributes
    ----------
    epsilon : Fraction
    neighbours : str
    max_rows_per_unit : int
        In all groups.
    """

    epsilon: Fraction
    neighbours: str
    max_rows_per_unit: int

    @property
    def event(self) -> Event:
        """Event for the ledger."""
        return DiscreteLaplace(self.epsilon)

    @property
    def scale(self) -> Fraction:
        """Scale of the noise on each count, in rows."""
        return Fraction(l1_sensitivity(self.neighbours, max_rows_per_unit=self.max_rows_per_unit)) / self.epsilon

    @property
    def is_drawable(self) -> bool:
        """Whether the samplers support this noise."""
        return self.scale <= LARGEST_SCALE

    @sampled
    def draw(self, bins: Sequence[Longs]) -> list[Longs]:
        """Return the counts of all groups with noise."""
        return noisy_bins(bins, self.scale)
