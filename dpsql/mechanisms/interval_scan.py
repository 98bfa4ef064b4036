"""A private interval of one column without public bounds: a median cell, two scans outwards, and two counts.

The cells are public (`dpsql.kernels.cells.MagnitudeCounts`), and the cell of a row follows from its value alone; a row
without a value has no cell. A release has three steps, and each step may use the releases before it:

1. *Start*, at 1/4 of epsilon. The exponential mechanism draws a cell for the median (`dpsql.mechanisms.quantile`).
2. *Scans*, at 3/5. From the start upwards, g_i is the number of rows in cells beyond i. One threshold E_0 is drawn, and
   one E_i for each cell, all geometric of scale s on 0, 1, 2, ...; the scan stops at the first cell with
   ``E_i - g_i >= E_0 - r_i``, or at the last cell. Likewise downwards. Only the two cells are released. r_i is public:
   ``ceil(2 s)`` for cells of magnitudes up to 128 times that of the start (up to 2**20 if the start is the cell of
   zeros), and ``ceil(9 s)`` beyond, where noise would otherwise sometimes lead a scan far away from all rows.
3. *Counts*, at 3/20. The rows inside the interval and those outside, with discrete Laplace noise.

If the query clips values to the interval, as sums and means do, the tails are counted, too: start at 1/3, scans
at 31/60, and seven counts instead of two, for ranges of cells that do not overlap (`tail_cuts`): the rows beyond
either end, the rows in the outer eighth and in the rest of the outer half between the start and that end, and the
rows between. Inside and outside are sums of these.

**Scans.** A row beyond the start enters the counts of one scan alone, a row of the start none. Let g_i rise by 0 or
1 in each cell. Continuing gets no less likely, and a stop needs E_i to be one larger:
``P(stop at i) <= exp(1/s) P'(stop at i)``. Conversely E_0 and E_i, one larger each, make
``P'(stop at i) <= exp(2/s) P(stop at i)``. So the log ratio of the
released cell is in [-1/s, 2/s] for a row that leaves, and in [-2/s, 1/s] for a row that comes. At the last cell a scan
always stops, which is post-processing. With m rows per unit:

==========  ==================  ===========================================================================
relation    s                   why
==========  ==================  ===========================================================================
add_remove  ``2 m / (3/5 eps)`` m rows leave, or come: ``2 m / s``
replace     ``3 m / (3/5 eps)`` at most m leave and m come, in pairs: ``(2 + 1) m / s``, whether both are in one
                                scan, in two, or in those of two groups
==========  ==================  ===========================================================================

**Groups.** Disjoint groups of rows have one interval each, for the loss of one: the group of a row depends on that row
alone, the noise of groups is independent, so log ratios add up over the rows that leave and come, in any groups.
Start: the range is 1 for each row that leaves or comes, so a replaced row has the range 2 in two groups as in one.
Counts: every row is in one count of one group, or in none, so their L1 norm is the same as in one group. The rows of a
unit count in all groups together.

**Claims about the interval**, with beta the chance `failure`, use released numbers and public numbers alone. It is
*found* when ``inside - outside >= t1`` and ``inside + outside >= t2``, of the noisy counts. The difference, and the
sum, of two noises reach t1 with a chance of at most beta; ``t2 = t1 + n2``.

- More than half of the rows with a value lie inside: otherwise the difference of the noises is at least t1. (Signs do
  not matter for the two or seven counts that are added up here: their noises are symmetric and independent.)
- The start is not beyond all rows: with fewer than n2 rows, a found interval needs a sum of the noises above t1. With
  n2 or more, each of the at most 4128 cells beyond all rows is ``exp(-c n / 2)`` times as likely as a median cell at
  most, c being the coefficient of the start; n2 makes that beta in all. With a start among the rows a scan passes j
  empty cells with a chance of at most about ``exp(-2) / (j + 1)``, and ``exp(-9) / (j + 1)`` far away.

Each claim fails with a chance of at most beta, so both hold with a chance of at least ``1 - 2 beta``.

**Wider ends.** A scan leaves some scales of rows outside. The sum of clipped values is then off by their excess over
the end. Clipping farther out adds noise, in proportion. `PrivateInterval.widened` weighs both, from released and public
numbers alone, so it costs nothing. With g rows beyond the end, at distance D from the start's middle, and ``g d**-a``
beyond d times that distance, the values exceed an end at ``k D`` by ``g D k**(1 - a) / (a - 1)`` in all. g is a little
more than the mean of the scan's aim and the noisy count beyond, weighted by their variances (`_AIM`, `_MORE`). a is the
fastest fall that the rows in the outer eighth, or in the outer half, show next to g, less 2.5 standard deviations of
their noise (`_SURE`). So the model assumes that rows get fewer beyond the end at least as fast as within it, as in
normal, exponential, lognormal and Pareto laws; a clump of rows far out violates this, and no private number reveals a
clump as small as the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles, Longs
from dpsql.contract.events import Composed, DiscreteLaplace, Event, GumbelNoise, IntervalScan
from dpsql.contract.measurement import Part, sampled
from dpsql.contract.relation import Relation, relation_of
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.kernels.cells import FINE_CELLS, FINE_EDGES, LARGEST_EXPONENT, SUBCELLS, fine_interval, magnitude_cells
from dpsql.mechanisms.count_noise import LaplaceCountNoise
from dpsql.mechanisms.quantile import quantiles
from dpsql.noise.discrete import discrete_laplace, geometric, laplace_deviation
from dpsql.noise.entropy import SYSTEM, BitSource
from dpsql.statistics.counts import l1_sensitivity, rank_utility_range

_MEDIAN = Fraction(1, 2)
# Shares of epsilon for start, scans and counts; then the same with tails.
_SHARES = Fraction(1, 4), Fraction(3, 5), Fraction(3, 20)
_SHARES_WITH_TAILS = Fraction(1, 3), Fraction(31, 60), Fraction(3, 20)
# Cuts of the tails, as shares of the way from the start to an end, and the number of counts.
_CUTS = (0.875, 0.5)
_WITH_TAILS = 2 * len(_CUTS) + 3
# A scan stops when about so many scales of rows remain: near the start, and far from it.
_SCALES_LEFT, _SCALES_LEFT_FAR = 2, 9
# Cells of magnitudes up to 2**7 times that of the start are near it; for a start at zero, up to 2**20.
_NEAR_OCTAVES, _NEAR_ZERO = 7, 20
# Cells per draw of noise in a scan.
_BLOCK = 256
# Standard deviation of the remaining rows of a scan, in scales: near the start, and far from it.
_AIM, _AIM_FAR = 1.2, 1.8
# Standard deviations added to the likely rows beyond an end, and subtracted from the likely rows within.
_MORE, _SURE = 0.5, 2.5
# A slower fall would leave a sum, or a sum of squares, without limit; and the least fall for the choice of ends.
_LEAST_FALL, _USUAL_FALL = 0.05, 4.0
# Tried distances of an end, in units of its distance from the start; and the largest excess over the least cost.
_TIMES = 2.0 ** (np.arange(81) / 16)
_NEARLY = 1.1


@dataclass(frozen=True)
class IntervalNoise:
    """Public noise of one interval, and the numbers that follow from it.

    Attributes
    ----------
    epsilon : Fraction
        Privacy loss of start, scans and counts together, > 0.
    neighbours : {'add_remove', 'replace'}
    max_rows_per_unit : int
        Rows of one privacy unit, in all groups together, >= 1.
    failure : Fraction
        beta: largest chance that one of the two claims about a found interval is false, in (0, 1).
    tails : bool
        Whether to count the rows near either end, too.

    Raises
    ------
    ParameterError
        P018 (all of them).
    """

    epsilon: Fraction
    neighbours: str
    max_rows_per_unit: int
    failure: Fraction
    tails: bool = False

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
        """Event for the ledger."""
        return Composed(
            (
                GumbelNoise(self.start_epsilon),
                IntervalScan(self._shares[1] * self.epsilon),
                DiscreteLaplace(self._shares[2] * self.epsilon),
            )
        )

    @property
    def _shares(self) -> tuple[Fraction, Fraction, Fraction]:
        """The shares of epsilon of start, scans and counts."""
        return _SHARES_WITH_TAILS if self.tails else _SHARES

    @property
    def start_epsilon(self) -> Fraction:
        """Loss of the start."""
        return self._shares[0] * self.epsilon

    @property
    def scan_scale(self) -> Fraction:
        """Scale s of the noise in both scans."""
        return self.relation.pick(2, 3) * self.max_rows_per_unit / (self._shares[1] * self.epsilon)

    @property
    def rows_left(self) -> int:
        """The rows beyond a cell near the start at which a scan stops, without noise."""
        return math.ceil(_SCALES_LEFT * self.scan_scale)

    @property
    def rows_left_far(self) -> int:
        """The same far from the start."""
        return math.ceil(_SCALES_LEFT_FAR * self.scan_scale)

    @property
    def count_scale(self) -> Fraction:
        """Scale of the noise on either count."""
        spent = self._shares[2] * self.epsilon
        return l1_sensitivity(self.neighbours, max_rows_per_unit=self.max_rows_per_unit) / spent

    @property
    def scales(self) -> tuple[Fraction, Fraction]:
        """Scales of the noise in scans and counts."""
        return self.scan_scale, self.count_scale

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise on either count; with tails, on the rows inside."""
        return laplace_deviation(self.count_scale) * math.sqrt(_WITH_TAILS - 2 if self.tails else 1)

    @property
    def count_reach(self) -> int:
        """Bound that the error of one count exceeds with a chance of at most `failure`."""
        # Two counts, and two signs each.
        return LaplaceCountNoise(scale=self.count_scale).least(self.failure / 4) - 1

    @cached_property
    def majority(self) -> int:
        """t1: the difference, or the sum, of the noises reaches it with a chance of at most `failure`."""
        return LaplaceCountNoise(scale=self.count_scale, terms=_WITH_TAILS if self.tails else 2).least(self.failure)

    @cached_property
    def rows_needed(self) -> int:
        """t2: the least noisy number of rows of a found interval."""
        spread = rank_utility_range(_MEDIAN, self.neighbours, is_whole=True, max_rows_per_unit=self.max_rows_per_unit)
        # Round the logarithm up by more than its error.
        log = Fraction(math.log((FINE_CELLS - 1) / self.failure)) + Fraction(1, 10**9)
        return self.majority + math.ceil(2 * spread * log / self.start_epsilon)

    def is_found(self, inside: int, outside: int) -> bool:
        """Whether both claims hold for an interval with these noisy counts."""
        return inside - outside >= self.majority and inside + outside >= self.rows_needed


@dataclass(frozen=True)
class Tail:
    """Model of the rows beyond one end of an interval; see *Wider ends* above.

    Attributes
    ----------
    rows : float
        Beyond the end, >= 0.
    fall : float
        The power of the distance by which they get fewer, >= 0.
    reach : float
        Distance of the end from the middle of the start, > 0.
    """

    rows: float
    fall: float
    reach: float

    def excess(self, times: Doubles | float, power: int = 1, least: float = 0.0) -> Doubles:
        """Return the total excess over an end of the values beyond it, or of their squares about the start.

        Parameters
        ----------
        times : ndarray of float64, or float
            Distance of the end, in units of the reach, >= 1.
        power : {1, 2}
        least : float
            Least fall: replaces a slower fall.
        """
        fall = max(self.fall, least, power + _LEAST_FALL)
        total = self.rows * self.reach**power * power / (fall - power)
        return np.asarray(total * np.power(times, power - fall), dtype=np.float64)


@dataclass(frozen=True)
class PrivateInterval:
    """A released interval.

    Attributes
    ----------
    ends : (float, float) or None
        Lower and upper bound, finite, lower < upper; None if no interval is found.
    inside, outside : int
        Rows with a value, with noise; they may be negative.
    tails : (Tail, Tail) or None
        Beyond the lower end and the upper end, if counted.
    by_unit : bool
        Whether one row of each privacy unit was counted, so that others have more rows beyond the ends.
    """

    ends: tuple[float, float] | None
    inside: int
    outside: int
    tails: tuple[Tail, Tail] | None = None
    by_unit: bool = False

    def widened(self, noise: float, weight: float = 1.0, power: int = 1) -> tuple[float, float] | None:
        """Return the best ends for clipping values: the nearest ends with a cost close to the least.

        The cost is half of the interval from noise, plus the change by clipping.

        Parameters
        ----------
        noise : float
            Half the width of the interval of a sum over one group, or of a sum of squares, in units of the width of the
            bounds, or of its square, > 0.
        weight : float
            The group's share of all rows, in [0, 1]; 0 leaves the ends as they are.
        power : {1, 2}
            1 for sums of values, 2 for sums of squares.
        """
        if self.ends is None or self.tails is None or not weight > 0.0:
            return self.ends
        below, above = self.tails
        ends = self.ends[0] - (_TIMES[:, np.newaxis] - 1.0) * below.reach, self.ends[1] + (_TIMES - 1.0) * above.reach
        spread = noise * (ends[1] - ends[0]) ** power / 2.0
        beyond = below.excess(_TIMES, power, _USUAL_FALL)[:, np.newaxis] + above.excess(_TIMES, power, _USUAL_FALL)
        cost = spread + weight * beyond
        best = np.where(cost <= _NEARLY * cost.min(), spread, np.inf)
        row, column = np.unravel_index(best.argmin(), best.shape)
        return float(ends[0][row, 0]), float(ends[1][column])

    def clipped(self, ends: tuple[float, float], power: int = 1, rows: float = 0.0) -> float:
        """Return the largest change by clipping of a sum, or a sum of squares; 0 if tails were not counted.

        The two ends move a sum in opposite directions, and a sum of squares in one. `rows` is the noisy number of rows
        in the sum, for an interval of one row of each unit: the others are as often beyond an end.
        """
        if self.ends is None or self.tails is None:
            return 0.0
        times = max(1.0, rows / max(1, self.inside + self.outside)) if self.by_unit else 1.0
        out = abs(ends[0] - self.ends[0]), abs(ends[1] - self.ends[1])
        both = [float(tail.excess(1.0 + far / tail.reach, power)) for tail, far in zip(self.tails, out, strict=True)]
        return times * (sum(both) if power > 1 else max(both))


def interval_scan(
    counts: NDArray[np.int64], noise: IntervalNoise, *, alone: bool = True, source: BitSource = SYSTEM
) -> PrivateInterval:
    """Release an interval with the bulk of one column, and the number of its rows.

    Parameters
    ----------
    counts : ndarray of int64, shape (FINE_CELLS,)
        Exact counts, one row of `dpsql.kernels.cells.MagnitudeCounts.counts`.
    noise : IntervalNoise
    alone : bool
        Whether these rows are the whole table, not one of several disjoint groups.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Raises
    ------
    ParameterError
        Depends on public parameters only: P017 (noise beyond its largest scale).

    Notes
    -----
    - **Guarantee**: pure ``epsilon``-DP, and ``(1/4 eps)**2 / 8 + ((3/5 eps)**2 + (3/20 eps)**2) / 2``-zCDP, as the
      losses of the steps add up: the start is one exponential mechanism. With tails the shares are 1/3, 31/60, 3/20.
    - **Neighbouring relation**: add or remove one unit, or replace one.
    - **Sensitivity**: see the module's text.
    - **Randomness**: exact samplers, operating-system entropy, no seed.
    - **Assumes**: every row is in one cell, by its value alone, or in none; the counts are below 2**61.
    - **Does not protect**: the cells, which are public; running time, which depends on the interval.

    Some 2 to 4 scales of rows remain outside either end: with m = 1 and add_remove 7 to 13 over epsilon. Values beyond
    the outermost cells count in these cells, and magnitudes below 2**-64 as 0.
    """
    start = start_cell(counts, noise, alone, source)
    down, up = near_cells(start, len(counts))
    first, last = start - stop(counts[start::-1], noise, source, down), start + stop(counts[start:], noise, source, up)
    cuts = tail_cuts(start, first, last, len(counts)) if noise.tails else (0, first, last + 1, len(counts))
    rows = [int(counts[low:high].sum()) for low, high in pairwise(cuts)]
    if not noise.tails:
        inside, outside = noisy_counts([rows[1], rows[0] + rows[2]], noise, source)
        return PrivateInterval(fine_interval(first, last) if noise.is_found(inside, outside) else None, inside, outside)
    noisy = noisy_counts(rows, noise, source)
    inside, outside = sum(noisy[1:-1]), noisy[0] + noisy[-1]
    if not noise.is_found(inside, outside):
        return PrivateInterval(None, inside, outside)
    ends = fine_interval(first, last)
    far = start - first >= down, last - start >= up
    below = _tail(start, ends[0], cuts[1:4], noisy[:3], noise, far[0], ends[1] - ends[0])
    above = _tail(start, ends[1], cuts[-2:-5:-1], noisy[:-4:-1], noise, far[1], ends[1] - ends[0])
    return PrivateInterval(ends, inside, outside, (below, above))


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
    """Return the number of cells near the start, downwards and upwards."""
    zero = cells // 2
    octaves = _NEAR_OCTAVES if start != zero else LARGEST_EXPONENT + _NEAR_ZERO
    steps = abs(start - zero) + SUBCELLS * octaves
    return start - zero + steps + 1, zero + steps - start + 1


def stop(counts: NDArray[np.int64], noise: IntervalNoise, source: BitSource, near: int | None = None) -> int:
    """Return the number of cells that a scan goes from the first of `counts`; rows of the first cell never count.

    The first `near` cells are near it; None for all cells.
    """
    beyond = int(counts.sum()) - np.cumsum(counts)
    if near is not None:
        beyond[near:] -= noise.rows_left_far - noise.rows_left
    scale, last = noise.scan_scale, len(counts) - 1
    threshold = int(geometric(scale, 1, source=source)[0]) - noise.rows_left
    for start in range(0, last, _BLOCK):
        rows = beyond[start : min(start + _BLOCK, last)]
        stops = np.flatnonzero(geometric(scale, len(rows), source=source) - rows >= threshold)
        if len(stops):
            return start + int(stops[0])
    return last


def noisy_counts(rows: list[int], noise: IntervalNoise, source: BitSource) -> list[int]:
    """Return noisy counts of rows in ranges that do not overlap, such as inside and outside."""
    errors = discrete_laplace(noise.count_scale, len(rows), source=source)
    noisy: list[int] = (np.array(rows, dtype=np.int64) + errors).tolist()
    return noisy


def tail_cuts(start: int, first: int, last: int, cells: int = FINE_CELLS) -> tuple[int, ...]:
    """Return the first cell of each of the seven ranges, in ascending order, and the number of cells at the end."""
    lower, upper = fine_interval(first, last)
    middle = _middle(start)
    low = (magnitude_cells(middle + np.array(_CUTS) * (lower - middle))).tolist()
    high = (magnitude_cells(middle + np.array(_CUTS) * (upper - middle))).tolist()
    below = [max(min(cell, start), first) for cell in low]
    above = [min(max(cell, start) + 1, last + 1) for cell in reversed(high)]
    return 0, first, *below, *above, last + 1, cells


def _middle(start: int) -> float:
    return float(FINE_EDGES[start] + FINE_EDGES[start + 1]) / 2.0


def _tail(
    start: int, end: float, cuts: Sequence[int], noisy: Sequence[int], noise: IntervalNoise, far: bool, width: float
) -> Tail:
    """Return the model of one tail from noisy counts, from beyond the end inwards, and the cells between them."""
    # With nearly no noise, both are set to a millionth of a row, so that none is 0.
    error, scale = (max(1e-6, size) for size in (laplace_deviation(noise.count_scale), float(noise.scan_scale)))
    reach = abs(end - _middle(start))
    if reach == 0.0:  # The end is the start, so there is no tail: rows beyond lie a width outside.
        return Tail(max(0.0, noisy[0] - _SURE * error), 2.0, width)
    aim, spread = (noise.rows_left_far, _AIM_FAR * scale) if far else (noise.rows_left, _AIM * scale)
    precision = spread**-2 + error**-2
    rows = (aim * spread**-2 + noisy[0] * error**-2) / precision
    rows = max(rows, scale / 2.0) + _MORE * precision**-0.5
    fall, within = 0.0, 0
    for number, (cut, count) in enumerate(zip(cuts[1:], noisy[1:], strict=True), start=1):
        within += count
        sure = within - _SURE * error * math.sqrt(number)
        share = abs(float(FINE_EDGES[cut]) - _middle(start)) / reach
        if sure > 0.0 and 0.0 < share < 1.0:
            fall = max(fall, -math.log1p(sure / rows) / math.log(share))
    return Tail(rows, fall, reach)


@dataclass(frozen=True)
class ScannedInterval(Part):
    """An interval with the bulk of one column, or of each of several disjoint groups of rows.

    All groups together cost as much as one group; see `interval_scan`.
    """

    noise: IntervalNoise

    @property
    def event(self) -> Event:
        """Event for the ledger."""
        return self.noise.event

    @sampled
    def draw(self, counts: Longs) -> PrivateInterval:
        """Return the interval, from counts of shape (cells,)."""
        return interval_scan(counts, self.noise)

    @sampled
    def draw_groups(self, counts: Longs) -> list[PrivateInterval]:
        """Return the interval of each group, from counts of shape (groups, cells)."""
        return [interval_scan(group, self.noise, alone=False) for group in counts]
