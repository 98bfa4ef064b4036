"""A private interval of one column, of which nothing is known: a median cell, two scans outwards, and two counts.

The cells are public (`dpsql.kernels.cells.MagnitudeCounts`), and the cell of a row follows from its value alone; a row
without a value is in none. Each column is drawn in three steps, of which each may use what the steps before released:

1. *Start*, at 1/4 of epsilon. The exponential mechanism draws a cell for the median (`dpsql.mechanisms.quantile`).
2. *Scans*, at 3/5. From the start upwards, g_i is the number of rows in cells beyond i. One threshold E_0 is drawn, and
   one E_i for each cell, all geometric of scale s on 0, 1, 2, ...; the scan stops at the first cell with
   ``E_i - g_i >= E_0 - r_i``, or at the last cell. Likewise downwards. Only the two cells are released. r_i is public:
   ``ceil(2 s)`` for cells of magnitudes up to 128 times that of the start (up to 2**20 if the start is the cell of
   zeros), and ``ceil(9 s)`` beyond, where noise would otherwise lead a scan far away from all rows once in a while.
3. *Counts*, at 3/20. The rows inside the interval and those outside, with discrete Laplace noise.

**Scans.** A row beyond the start enters the counts of one scan alone, a row of the start none. Let g_i rise by 0 or
1 in each cell. Continuing gets no less likely, and a stop needs E_i to be one larger:
``P(stop at i) <= exp(1/s) P'(stop at i)``. Conversely E_0 and E_i, one larger each, make
``P'(stop at i) <= exp(2/s) P(stop at i)``. So the log ratio of the
released cell is in [-1/s, 2/s] for a row that leaves, and in [-2/s, 1/s] for one that comes. At the last cell a scan
stops whatever the noise, which is post-processing. With m rows per unit:

==========  ==================  ===========================================================================
relation    s                   why
==========  ==================  ===========================================================================
add_remove  ``2 m / (3/5 eps)`` m rows leave, or come: ``2 m / s``
replace     ``3 m / (3/5 eps)`` at most m leave and m come, in pairs: ``(2 + 1) m / s``, whether both are in one
                                scan, in two, or in those of two groups
==========  ==================  ===========================================================================

**Groups.** Disjoint groups of rows have one interval each, for the loss of one: the group of a row depends on that row
alone, the noise of groups is independent, so log ratios add up over the rows that leave and come, in whichever groups
they are. Start: the range is 1 for each row that leaves or comes, so a replaced row has the range 2 in two groups as
in one. Counts: every row is in one count of one group, or in none, so their L1 norm is that of one group. The rows of a
unit count in all groups together.

**What is said of the interval**, with beta the chance `failure`, from released numbers and public ones alone. It is
*found* when ``inside - outside >= t1`` and ``inside + outside >= t2``, of the noisy counts. t1 is what the difference,
and the sum, of two noises reach with a chance of at most beta; ``t2 = t1 + n2``.

- More than half of the rows with a value lie inside: otherwise the difference of the noises is at least t1.
- The start is not beyond all rows: of fewer than n2 rows, a found interval needs a sum of the noises above t1. Of n2 or
  more, each of the at most 4128 cells beyond all rows is ``exp(-c n / 2)`` times as likely as a median cell at most, c
  being the coefficient of the start; n2 makes that beta in all. With a start among the rows a scan passes j empty cells
  with a chance of at most about ``exp(-2) / (j + 1)``, and ``exp(-9) / (j + 1)`` far away.

Each claim fails with a chance of at most beta, so both hold with one of at least ``1 - 2 beta``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Longs
from dpsql.contract.events import Composed, DiscreteLaplace, Event, GumbelNoise, IntervalScan
from dpsql.contract.measurement import Part, sampled
from dpsql.contract.relation import Relation, relation_of
from dpsql.errors import ParameterError
from dpsql.kernels.cells import FINE_CELLS, LARGEST_EXPONENT, SUBCELLS, fine_interval
from dpsql.mechanisms.count_noise import LaplaceCountNoise
from dpsql.mechanisms.quantile import quantiles
from dpsql.noise.discrete import discrete_laplace, geometric, laplace_deviation
from dpsql.noise.entropy import SYSTEM, BitSource
from dpsql.statistics.counts import l1_sensitivity, rank_utility_range

_MEDIAN = Fraction(1, 2)
# Shares of epsilon.
_START, _SCANS, _COUNTS = Fraction(1, 4), Fraction(3, 5), Fraction(3, 20)
# A scan stops where about so many scales of rows are left: near the start, and far from it.
_SCALES_LEFT, _SCALES_LEFT_FAR = 2, 9
# Cells of magnitudes up to 2**7 times that of the start are near it; of a start at zero, those up to 2**20.
_NEAR_OCTAVES, _NEAR_ZERO = 7, 20
# Cells that a scan draws noise for at once.
_BLOCK = 256


@dataclass(frozen=True)
class IntervalNoise:
    """The noise of one interval, and what follows from it; public.

    Attributes
    ----------
    epsilon : Fraction
        Privacy loss of start, scans and counts together, > 0.
    neighbours : {'add_remove', 'replace'}
    max_rows_per_unit : int
        Rows of one privacy unit, in all groups together, >= 1.
    failure : Fraction
        beta: the chance, at most, that one of the two claims about a found interval is false, in (0, 1).

    Raises
    ------
    ParameterError
        P018 (all of them).
    """

    epsilon: Fraction
    neighbours: str
    max_rows_per_unit: int
    failure: Fraction

    def __post_init__(self) -> None:
        if not isinstance(self.epsilon, Fraction) or not self.epsilon > 0:
            raise ParameterError(
                "P018", f"epsilon must be a Fraction > 0; got {self.epsilon}. Give the privacy loss to spend."
            )
        if not isinstance(self.failure, Fraction) or not 0 < self.failure < 1:
            raise ParameterError("P018", f"failure must be a Fraction in (0, 1); got {self.failure}.")
        relation_of(self.neighbours, self.max_rows_per_unit)

    @property
    def relation(self) -> Relation:
        """The neighbouring relation."""
        return relation_of(self.neighbours, self.max_rows_per_unit)

    @property
    def event(self) -> Event:
        """What the ledger records."""
        return Composed(
            (
                GumbelNoise(self.start_epsilon),
                IntervalScan(_SCANS * self.epsilon),
                DiscreteLaplace(_COUNTS * self.epsilon),
            )
        )

    @property
    def start_epsilon(self) -> Fraction:
        """Loss of the start."""
        return _START * self.epsilon

    @property
    def scan_scale(self) -> Fraction:
        """Scale s of the noise in both scans."""
        return self.relation.pick(2, 3) * self.max_rows_per_unit / (_SCANS * self.epsilon)

    @property
    def rows_left(self) -> int:
        """The rows beyond a cell near the start at which a scan stops, but for noise."""
        return math.ceil(_SCALES_LEFT * self.scan_scale)

    @property
    def rows_left_far(self) -> int:
        """The same far from the start."""
        return math.ceil(_SCALES_LEFT_FAR * self.scan_scale)

    @property
    def count_scale(self) -> Fraction:
        """Scale of the noise on either count."""
        return l1_sensitivity(self.neighbours, max_rows_per_unit=self.max_rows_per_unit) / (_COUNTS * self.epsilon)

    @property
    def scales(self) -> tuple[Fraction, Fraction]:
        """Scales of the noise in scans and counts."""
        return self.scan_scale, self.count_scale

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise on either count."""
        return laplace_deviation(self.count_scale)

    @property
    def count_reach(self) -> int:
        """What the error of one of the counts exceeds with a chance of at most `failure`."""
        # Two counts, and two signs each.
        return LaplaceCountNoise(scale=self.count_scale).least(self.failure / 4) - 1

    @cached_property
    def majority(self) -> int:
        """t1: what the difference, or the sum, of two noises reaches with a chance of at most `failure`."""
        return LaplaceCountNoise(scale=self.count_scale, terms=2).least(self.failure)

    @cached_property
    def rows_needed(self) -> int:
        """t2: the noisy number of rows below which no interval is found."""
        spread = rank_utility_range(_MEDIAN, self.neighbours, whole=True, max_rows_per_unit=self.max_rows_per_unit)
        # The logarithm is rounded up by more than its error.
        log = Fraction(math.log((FINE_CELLS - 1) / self.failure)) + Fraction(1, 10**9)
        return self.majority + math.ceil(2 * spread * log / self.start_epsilon)

    def found(self, inside: int, outside: int) -> bool:
        """Whether both claims may be made of an interval with these noisy counts."""
        return inside - outside >= self.majority and inside + outside >= self.rows_needed


@dataclass(frozen=True)
class PrivateInterval:
    """A released interval.

    Attributes
    ----------
    ends : (float, float) or None
        Lower and upper bound, finite, lower < upper; None where no interval is found.
    inside, outside : int
        Rows with a value, with noise; they may be negative.
    """

    ends: tuple[float, float] | None
    inside: int
    outside: int


def interval_scan(
    counts: NDArray[np.int64], noise: IntervalNoise, *, alone: bool = True, source: BitSource = SYSTEM
) -> PrivateInterval:
    """Release an interval that holds the bulk of one column, and how many rows it holds.

    Parameters
    ----------
    counts : ndarray of int64, shape (FINE_CELLS,)
        Exact counts, one row of `dpsql.kernels.cells.MagnitudeCounts.counts`.
    noise : IntervalNoise
    alone : bool
        Whether these rows are the whole table, and not one of several disjoint groups.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Raises
    ------
    ParameterError
        Depends on public parameters only: P017 (noise beyond its largest scale).

    Notes
    -----
    - **Guarantee**: pure ``epsilon``-DP, and ``(1/4 eps)**2 / 8 + ((3/5 eps)**2 + (3/20 eps)**2) / 2``-zCDP, as the
      losses of the steps add up: the start is one exponential mechanism.
    - **Neighbouring relation**: add or remove one unit, or replace one.
    - **Sensitivity**: see the module's text.
    - **Randomness**: exact samplers, operating-system entropy, no seed.
    - **Assumes**: every row is in one cell, by its value alone, or in none; the counts are below 2**61.
    - **Does not protect**: the cells, which are public; running time, which depends on the interval.

    At either end some 2 to 4 scales of rows are left outside: with m = 1 and add_remove 7 to 13 over epsilon. Values
    beyond the outermost cells count in these, and magnitudes below 2**-64 as 0.
    """
    start = start_cell(counts, noise, alone, source)
    down, up = near_cells(start, len(counts))
    first, last = start - stop(counts[start::-1], noise, source, down), start + stop(counts[start:], noise, source, up)
    within = int(counts[first : last + 1].sum())
    inside, outside = noisy_counts([within, int(counts.sum()) - within], noise, source)
    ends = fine_interval(first, last) if noise.found(inside, outside) else None
    return PrivateInterval(ends, inside, outside)


def start_cell(counts: NDArray[np.int64], noise: IntervalNoise, alone: bool, source: BitSource) -> int:
    """Return a cell for the median."""
    [cell] = quantiles(
        counts,
        quantiles=[_MEDIAN],
        epsilon=noise.start_epsilon,
        neighbours=noise.neighbours,
        max_rows_per_unit=noise.max_rows_per_unit,
        alone=alone,
        source=source,
    )
    return cell


def near_cells(start: int, cells: int = FINE_CELLS) -> tuple[int, int]:
    """Return how many cells from the start on are near it, downwards and upwards."""
    zero = cells // 2
    octaves = _NEAR_OCTAVES if start != zero else LARGEST_EXPONENT + _NEAR_ZERO
    steps = abs(start - zero) + SUBCELLS * octaves
    return start - zero + steps + 1, zero + steps - start + 1


def stop(counts: NDArray[np.int64], noise: IntervalNoise, source: BitSource, near: int | None = None) -> int:
    """Return how many cells a scan goes from the first of `counts`; the rows of that cell itself never count.

    `near` cells from the first on are near it; None for all of them.
    """
    beyond = int(counts.sum()) - np.cumsum(counts)
    if near is not None:
        beyond[near:] -= noise.rows_left_far - noise.rows_left
    scale, last = noise.scan_scale, len(counts) - 1
    threshold = int(geometric(scale, 1, source=source)[0]) - noise.rows_left
    for start in range(0, last, _BLOCK):
        left = beyond[start : min(start + _BLOCK, last)]
        stops = np.flatnonzero(geometric(scale, len(left), source=source) - left >= threshold)
        if len(stops):
            return start + int(stops[0])
    return last


def noisy_counts(rows: list[int], noise: IntervalNoise, source: BitSource) -> tuple[int, int]:
    """Return the rows inside and outside with noise."""
    inside, outside = (np.array(rows, dtype=np.int64) + discrete_laplace(noise.count_scale, 2, source=source)).tolist()
    return inside, outside


@dataclass(frozen=True)
class ScannedInterval(Part):
    """An interval that holds the bulk of one column, or of each of several disjoint groups of rows.

    The interval of every group costs what that of one costs; see `interval_scan`.
    """

    noise: IntervalNoise

    @property
    def event(self) -> Event:
        """What the ledger records."""
        return self.noise.event

    @sampled
    def draw(self, counts: Longs) -> PrivateInterval:
        """Return the interval, from counts of shape (cells,)."""
        return interval_scan(counts, self.noise)

    @sampled
    def draw_groups(self, counts: Longs) -> list[PrivateInterval]:
        """Return the interval of each group, from counts of shape (groups, cells)."""
        return [interval_scan(group, self.noise, alone=False) for group in counts]
