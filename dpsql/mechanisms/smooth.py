"""Smooth sensitivity with Cauchy noise: medians of cells and the area under the ROC curve.

The noise follows the data: a statistic that hardly depends on single rows gets little noise. Let f be a statistic and S
an upper bound on the move of f by one step, with ``S(D) <= exp(beta) S(D')`` for D and D' one step apart. Then::

    f(D) + b S(D) C        with a standard Cauchy variable C

is epsilon-DP for one step, exactly when [1]_ ::

    b >= max(1 / (2 sinh(epsilon / 2)), sqrt(exp(-beta) / (2 (cosh(epsilon) - cosh(beta)))))

because the largest log ratio of the densities of two Cauchy laws with centres m, m' and scales s, s' is ``arcosh(1 +
((m - m')**2 + (s - s')**2) / (2 s s'))``. With ``abs(m - m') <= min(S, S')`` and ``S' = exp(u) S`` it is at most
epsilon when ``1 / (2 b**2) <= exp(u) cosh(epsilon) - (exp(2 u) + 1) / 2`` for all u in [0, beta]. The right side rises,
then falls, so its ends decide: the two terms. The first is smaller for beta up to ``log(2 cosh(epsilon) - 1)``; a
larger beta costs noise, and makes S smaller.

The noise has no variance and cannot be scaled up for a privacy unit of more rows, since each row moves S by
``exp(beta)`` more. Instead one step gets a share of epsilon. The steps from one table to its neighbour, each an added,
a removed or a replaced row, are

===========  =====================================================================================================
relation     steps
===========  =====================================================================================================
add_remove   c: at most c rows leave, or come
replace      c, if S holds for replaced rows as well: where k rows leave and l come, min(k, l) rows are replaced and
             the others leave or come, max(k, l) <= c steps in all. Otherwise 2 c rows that leave or come
===========  =====================================================================================================

References
----------
.. [1] K. Nissim, S. Raskhodnikova, A. Smith, Smooth sensitivity and sampling in private data analysis, STOC 2007. This
   module's constant is 6 to 8 times smaller.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Longs
from dpsql.contract.events import Event, SmoothSensitivity
from dpsql.contract.measurement import Part, sampled
from dpsql.contract.relation import relation_of
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.mechanisms.quantile import halving_levels
from dpsql.noise.ball import LazyCauchy
from dpsql.noise.discrete import Bounds, exp_bounds
from dpsql.noise.entropy import SYSTEM, BitSource, WordReader
from dpsql.statistics.auc import area_under_curve

# Largest share in use: the noise is already 1e-14 S, and constants need only a few digits.
_LARGEST_EPSILON = Fraction(64)
_SMALLEST_EPSILON = Fraction(1, 10**12)
_BETA_UNIT = 1 << 40
# Steps of the released area, as bits.
AREA_BITS = 20
# Allowed error of doubles in the choice of terms that can be the largest.
_MARGIN = 2.0**-36


def default_beta(epsilon: Fraction) -> Fraction:
    """Return a good beta for one step at `epsilon`, in (0, epsilon); public.

    It is the larger of ``epsilon / 2`` and ``log(2 cosh(epsilon) - 1)``, the largest without extra noise.
    """
    epsilon = min(epsilon, _LARGEST_EPSILON)
    free = Fraction(int(math.log(2 * math.cosh(float(epsilon)) - 1) * _BETA_UNIT), _BETA_UNIT)
    # Near the largest epsilon the second is close to epsilon; any smaller number is right.
    return max(epsilon / 2, min(free, epsilon * Fraction(15, 16)))


@lru_cache(maxsize=256, typed=True)
def cauchy_scale(epsilon: Fraction, beta: Fraction) -> Fraction:
    """Return the constant b for noise ``b S Cauchy``, rounded up.

    Parameters
    ----------
    epsilon : Fraction
        Privacy loss of one step, in [1e-12, 64].
    beta : Fraction
        In (0, epsilon).

    Returns
    -------
    scale : Fraction
        At least ``max(1 / (2 sinh(epsilon / 2)), sqrt(exp(-beta) / (2 (cosh(epsilon) - cosh(beta)))))``, and at most a
        share of 1e-12 more.

    Raises
    ------
    ParameterError
        P038, when epsilon or beta is out of range.
    """
    if not _SMALLEST_EPSILON <= epsilon <= _LARGEST_EPSILON or not 0 < beta < epsilon:
        raise ParameterError("P038", "epsilon is too small: the noise would drown any table. Raise epsilon.")
    with localcontext() as context:
        # Cancellation loses at most 80 digits; each step is off by less than 1e-199 of itself.
        context.prec = 200
        raised, tilted = (Decimal(part.numerator) / Decimal(part.denominator) for part in (epsilon, beta))
        cosh = (raised.exp() + (-raised).exp()) / 2
        first = 1 / (2 * (cosh - 1))
        second = (-tilted).exp() / (2 * cosh - tilted.exp() - (-tilted).exp())
        scale = Fraction(max(first, second).sqrt()) * (1 + Fraction(1, 10**60))
    return Fraction(math.ceil(scale * (1 << 80)), 1 << 80)


@dataclass(frozen=True)
class SmoothBound:
    """The bound ``S = max(exp(-beta k) u)`` over a few pairs of u and k.

    Attributes
    ----------
    terms : tuple of (Fraction, int)
        ``u > 0``, in the unit of the statistic, and ``k >= 0``; at least one pair.
    beta : Fraction
        > 0.
    """

    terms: tuple[tuple[Fraction, int], ...]
    beta: Fraction

    def bounds(self, digits: int) -> Bounds:
        """Enclose S in units of ``10**-digits``."""
        intervals = []
        for size, steps in self.terms:
            low, high = exp_bounds(-self.beta * steps, digits)
            intervals.append((math.floor(low * size), math.ceil(high * size)))
        return max(low for low, _ in intervals), max(high for _, high in intervals)


def cauchy_release(
    value: Fraction,
    bound: SmoothBound,
    *,
    scale: Fraction,
    lower: Fraction,
    upper: Fraction,
    steps: int,
    source: BitSource = SYSTEM,
) -> int:
    """Return the point of a public grid nearest to ``value + scale S C``, C a standard Cauchy variable.

    Parameters
    ----------
    value : Fraction
        The exact statistic.
    bound : SmoothBound
        S.
    scale : Fraction
        Of `cauchy_scale`.
    lower, upper : Fraction
        Public ends of the grid, lower < upper. An end is nearest beyond it.
    steps : int
        Distances between lower and upper, >= 1.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    point : int
        In [0, steps]: ``lower + point (upper - lower) / steps``. A tie goes to the larger.

    Notes
    -----
    - **Guarantee**: pure DP for one step at the epsilon of `scale`; rounding and cutting off come after the noise.
    - **Neighbouring relation**: the steps behind S.
    - **Sensitivity**: smooth, see the module's text.
    - **Randomness**: the ratio of two coordinates of a point in the unit disk, with as many bits as the nearest point
      of the grid needs: exact, operating-system entropy, no seed.
    - **Assumes**: S is at least the local sensitivity of `value` on either of two neighbours.
    - **Does not protect**: running time, which depends on the noise.
    """
    variable = LazyCauchy(WordReader(source))
    width = (upper - lower) / steps

    def nearest(size: Fraction) -> int:
        moved = value - size if variable.negative else value + size
        return min(steps, max(0, math.floor((moved - lower) / width + Fraction(1, 2))))

    while True:
        digits = 10 + variable.bits * 302 // 1000
        (low, high), (least, most) = bound.bounds(digits), variable.bounds()
        unit = scale / 10**digits
        near = nearest(unit * low * least)
        # Without an upper end yet, the noise may reach the end of the grid.
        far = (0 if variable.negative else steps) if most is None else nearest(unit * high * most)
        if near == far:
            return near
        variable.extend()


def median_bound(counts: NDArray[np.int64], low: int, high: int, first: int, beta: Fraction) -> tuple[int, SmoothBound]:
    """Return the lower median of the rows of some cells, and its smooth sensitivity; both are private.

    Parameters
    ----------
    counts : ndarray of int64, shape (cells,)
        Exact number of rows in each cell.
    low, high : int
        Ends of the possible released cells, low < high.
    first : int
        First cell with counted rows, in [low, high + 1]; the last is `high`.
    beta : Fraction
        > 0.

    Returns
    -------
    median : int
        The cell of row ceil(n / 2) in ascending order; `low` when there are no rows.
    bound : SmoothBound
        In cells.

    Notes
    -----
    With cells ``p_1 <= … <= p_n`` of the rows, ``p_i = low`` for i < 1, ``p_i = high`` for i > n and
    ``m = ceil(n / 2)``, it is::

        S = max over a <= m <= b, a < b, of exp(-beta (b - a - 1)) (p_b - p_a)

    which is the bound of [1]_ (k = b - a - 1) with k up to n + 1. It holds for added, removed and replaced rows. Among
    rows of one cell only the nearest to m counts, on either side. Doubles select the pairs that can be the largest; the
    bound is exact.
    """
    rows = counts[first : high + 1]
    occupied = np.flatnonzero(rows)
    last = np.cumsum(rows[occupied])
    begin = last - rows[occupied] + 1
    total = int(last[-1]) if len(last) else 0
    middle = (total + 1) // 2
    cells = occupied + first
    before, after = begin <= middle, last >= middle
    ranks_a = np.append(0, np.minimum(last[before], middle))
    cells_a = np.append(low, cells[before])
    ranks_b = np.append(np.maximum(begin[after], middle), total + 1)
    cells_b = np.append(cells[after], high)
    width = cells_b[None, :] - cells_a[:, None]
    between = np.maximum(ranks_b[None, :] - ranks_a[:, None] - 1, 0)
    with np.errstate(divide="ignore"):
        logarithm = np.log(width) - float(beta) * between
    best = float(logarithm.max())
    chosen = logarithm >= best - _MARGIN * (1 + abs(best))
    terms = {
        (Fraction(size), steps) for size, steps in zip(width[chosen].tolist(), between[chosen].tolist(), strict=True)
    }
    median = int(cells[np.searchsorted(last, middle)]) if total else low
    return median, SmoothBound(tuple(sorted(terms)), beta)


def smooth_medians(
    counts: NDArray[np.int64],
    *,
    count: int,
    epsilon: Fraction,
    neighbours: str,
    max_rows_per_unit: int = 1,
    source: BitSource = SYSTEM,
) -> list[int]:
    """Return private cells that halve the rows, the halves, and so on, by medians with smooth sensitivity.

    Parameters
    ----------
    counts : ndarray of int64, shape (cells,)
        Exact number of rows in each cell, in ascending order of the cells, at least one cell.
    count : int
        Medians: 1, 3, 7, 15, ...; one less than a power of two.
    epsilon : Fraction
        Privacy loss of all medians together, > 0.
    neighbours : {'add_remove', 'replace'}
        The neighbouring relation.
    max_rows_per_unit : int
        Rows that one privacy unit may have, >= 1.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    cells : list of int
        In [0, cells), `count` of them, not descending.

    Raises
    ------
    ParameterError
        Depends on public parameters only: P018 (neighbours, count), P038 (epsilon).

    Notes
    -----
    - **Guarantee**: pure ``epsilon``-DP for all cells together.
    - **Neighbouring relation**: add or remove one unit, or replace one.
    - **Sensitivity**: smooth, see the module's text and `median_bound`. Each level spends ``epsilon / levels``, and
      `step_epsilon` of that for a step. A level's sub-ranges share it: given the released cells, rows are divided by
      value, up to the cell or after it, so that an added row is in one sub-range. A replaced row may be in two
      sub-ranges, but not at the first level.
    - **Randomness**: see `cauchy_release`.
    - **Assumes**: every row is in one cell, by its value alone, or in none.
    - **Does not protect**: the grid, the number of medians; running time.

    A noisy median beyond the ends of its sub-range becomes the middle of it, for any data.
    """
    relation_of(neighbours)
    if not isinstance(count, int) or count < 1 or count & (count + 1):
        raise ParameterError("P018", f"smooth medians come as 1, 3, 7, 15, 31, ...; got {count}.")
    levels = halving_levels(count)
    cells = [0] * count
    # (ends of possible releases, first cell with rows, positions in the result)
    pending = [(0, len(counts) - 1, 0, 0, count)]
    while pending:
        low, high, first, start, stop = pending.pop()
        if start == stop:
            continue
        middle = (start + stop) // 2
        is_whole = stop - start == count
        loss = step_epsilon(epsilon / levels, neighbours, max_rows_per_unit, replaces=is_whole)
        cell = _smooth_median(counts, low, high, first, loss, source)
        cells[middle] = cell
        pending.append((low, cell, first, start, middle))
        pending.append((cell, high, cell + 1, middle + 1, stop))
    return cells


def step_epsilon(epsilon: Fraction, neighbours: str, max_rows_per_unit: int, *, replaces: bool) -> Fraction:
    """Return the epsilon of one step; all steps between neighbours together spend at most epsilon.

    Parameters
    ----------
    epsilon : Fraction
        Of the release.
    neighbours : {'add_remove', 'replace'}
    max_rows_per_unit : int
        >= 1.
    replaces : bool
        Whether the smooth bound holds for replaced rows, too.
    """
    relation = relation_of(neighbours, max_rows_per_unit)
    return epsilon / (relation.rows if replaces else relation.steps)


def area_bound(smaller: int, neighbours: str, beta: Fraction) -> SmoothBound:
    """Return the smooth sensitivity of the area under the ROC curve, which is private.

    Parameters
    ----------
    smaller : int
        Rows of the smaller class, >= 0.
    neighbours : {'add_remove', 'replace'}
        Kind of steps; 'replace' has replaced, added and removed rows.
    beta : Fraction
        > 0.

    Notes
    -----
    With j rows in the smaller class, and the area 1/2 if it has none, a step moves the area by at most

    ==========  =================  =====================================================================
    step        U(j)               why
    ==========  =================  =====================================================================
    add, remove 1 / max(j, 2)      the area is a mean over the rows of a class of shares in [0, 1]. A row
                                   more in a class of k >= 1 moves it by at most 1 / (k + 1); the first
                                   row of a class moves it from 1/2 to somewhere in [0, 1]
    replace     1 / max(j, 1)      a removal and an addition: in one class at most 1 / k; from class to
                                   class at most the larger of 1 / k and 1 / (l + 1)
    ==========  =================  =====================================================================

    j changes by at most one per step, so ``S = max over k of exp(-beta k) U(max(j - k, 0))`` is smooth. As long as U
    grows with k the logarithm of a term is convex in k, hence largest at either end; where U is constant it falls.
    """
    least = relation_of(neighbours).pick(added=2, replaced=1)
    terms = {(Fraction(1, max(smaller, least)), 0), (Fraction(1, least), max(smaller - least, 0))}
    return SmoothBound(tuple(sorted(terms)), beta)


def smooth_area(
    negatives: NDArray[np.int64],
    positives: NDArray[np.int64],
    *,
    epsilon: Fraction,
    neighbours: str,
    max_rows_per_unit: int = 1,
    source: BitSource = SYSTEM,
) -> Fraction:
    """Return a private area under the ROC curve.

    Parameters
    ----------
    negatives, positives : ndarray of int64, shape (cells,)
        Exact number of rows of each class in each cell, in ascending order of the score.
    epsilon : Fraction
        > 0.
    neighbours : {'add_remove', 'replace'}
        The neighbouring relation.
    max_rows_per_unit : int
        Rows that one privacy unit may have, >= 1.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    area : Fraction
        In [0, 1], a multiple of ``2**-20``. Its noise follows the smaller class: about
        ``1 / (epsilon * rows of that class)``, with a heavy tail.

    Raises
    ------
    ParameterError
        Depends on public parameters only: P018 (neighbours), P038 (epsilon).

    Notes
    -----
    - **Guarantee**: pure ``epsilon``-DP.
    - **Neighbouring relation**: add or remove one unit, or replace one.
    - **Sensitivity**: smooth, see `area_bound`; a unit is max_rows_per_unit steps.
    - **Randomness**: see `cauchy_release`.
    - **Assumes**: every row is in one cell of one class, by its values alone, or in none.
    - **Does not protect**: running time.
    """
    loss = min(step_epsilon(epsilon, neighbours, max_rows_per_unit, replaces=True), _LARGEST_EPSILON)
    beta = default_beta(loss)
    point = cauchy_release(
        area_under_curve(negatives, positives),
        area_bound(min(int(negatives.sum()), int(positives.sum())), neighbours, beta),
        scale=cauchy_scale(loss, beta),
        lower=Fraction(0),
        upper=Fraction(1),
        steps=1 << AREA_BITS,
        source=source,
    )
    return Fraction(point, 1 << AREA_BITS)


def area_noise(smaller: int, epsilon: Fraction, neighbours: str, max_rows_per_unit: int = 1) -> float:
    """Return the median size of the noise of `smooth_area`, given the size of the smaller class."""
    loss = min(step_epsilon(epsilon, neighbours, max_rows_per_unit, replaces=True), _LARGEST_EPSILON)
    beta = default_beta(loss)
    _, high = area_bound(smaller, neighbours, beta).bounds(30)
    return float(cauchy_scale(loss, beta) * high / 10**30)


def _smooth_median(
    counts: NDArray[np.int64], low: int, high: int, first: int, epsilon: Fraction, source: BitSource
) -> int:
    """Release the median of one sub-range at the epsilon of a step."""
    if low == high:
        return low
    epsilon = min(epsilon, _LARGEST_EPSILON)
    beta = default_beta(epsilon)
    median, bound = median_bound(counts, low, high, first, beta)
    # One more cell on either side: outcomes beyond are mere noise, and the middle is a better guess than an end.
    point = cauchy_release(
        Fraction(median),
        bound,
        scale=cauchy_scale(epsilon, beta),
        lower=Fraction(low - 1),
        upper=Fraction(high + 1),
        steps=high - low + 2,
        source=source,
    )
    return low - 1 + point if 0 < point < high - low + 2 else (low + high) // 2


@dataclass(frozen=True)
class SmoothNoise(Part):
    """An area or medians by smooth sensitivity."""

    epsilon: Fraction
    neighbours: str
    max_rows_per_unit: int

    @property
    def event(self) -> Event:
        """Event for the ledger."""
        return SmoothSensitivity(self.epsilon)

    @sampled
    def draw_area(self, negative: Longs, positive: Longs) -> Fraction:
        """Return the area under the ROC curve."""
        return smooth_area(
            negative,
            positive,
            epsilon=self.epsilon,
            neighbours=self.neighbours,
            max_rows_per_unit=self.max_rows_per_unit,
        )

    @sampled
    def draw_medians(self, counts: Longs, *, count: int) -> list[int]:
        """Return the cells of medians of all rows and of halves."""
        return smooth_medians(
            counts,
            count=count,
            epsilon=self.epsilon,
            neighbours=self.neighbours,
            max_rows_per_unit=self.max_rows_per_unit,
        )
