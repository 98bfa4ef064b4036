"""Intervals of aggregates of a pair of columns, by interval arithmetic over those of its moments.

What a pair tells are three columns: both in units of the half widths of their bounds, u and v, and w = (u + v) / 2. The
covariance is 2 var(w) - (var(u) + var(v)) / 2, and all aggregates of a pair follow from it, variances, averages and
their number. Of each of these numbers an interval is taken that fails with its share of the chance; so all of them hold
with the confidence that is asked for, and then so does what is computed from them. Where a variance may be 0 there is
none of a quotient. Everything here is free post-processing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.arrays import Doubles
from dpsql.mechanisms.aggregates import NoisyBlock
from dpsql.released.covariance import estimates
from dpsql.statistics.aggregates import AVG, COUNT, VARIANCE

Ends = tuple[Doubles, Doubles]
# By so much fixed point may move a mean, or a variance, of numbers in [-1, 1].
_ROUNDED = 2.0**-18
# Of how many noisy numbers an aggregate is made.
_NUMBERS = {
    **dict.fromkeys(("covar_pop", "covar_samp", "corr", "regr_r2", "regr_slope"), 3),
    **{"regr_intercept": 5, "regr_sxx": 2, "regr_syy": 2, "regr_sxy": 4},
}


@dataclass(frozen=True)
class PairSpans:
    """The intervals of one pair.

    Attributes
    ----------
    blocks : sequence of NoisyBlock
        Of u, v and w.
    y, x : tuple of float
        Bounds of the first and the second argument.
    swapped : bool
        Whether the first argument is v.
    confidence : float
    """

    blocks: Sequence[NoisyBlock]
    y: tuple[float, float]
    x: tuple[float, float]
    swapped: bool
    confidence: float

    def ends(self, kind: str) -> Ends | None:
        """Return the interval of an aggregate, by DuckDB's name; None where it has none."""
        numbers = _NUMBERS.get(kind)
        if numbers is None:
            return None
        chance = 1.0 - (1.0 - self.confidence) / numbers
        half_y, half_x = ((high - low) / 2.0 for low, high in (self.y, self.x))
        at_y, at_x = (1, 0) if self.swapped else (0, 1)
        if kind in ("regr_sxx", "regr_syy"):
            place, half = (at_x, half_x) if kind == "regr_sxx" else (at_y, half_y)
            return _times(_scaled(self._variance(place, chance), half**2), self._count(place, chance))
        product = _scaled(self._product(chance, 1 if kind == "covar_samp" else 0), half_x * half_y)
        if kind in ("covar_pop", "covar_samp"):
            return product
        if kind == "regr_sxy":
            return _times(product, self._count(0, chance))
        of_x = _scaled(self._variance(at_x, chance), half_x**2)
        if kind in ("regr_slope", "regr_intercept"):
            slope = _over(product, of_x)
            if kind == "regr_slope":
                return slope
            means = (self._mean(at_y, self.y, chance), self._mean(at_x, self.x, chance))
            lost = _times(slope, means[1])
            return means[0][0] - lost[1], means[0][1] - lost[0]
        both = _times(of_x, _scaled(self._variance(at_y, chance), half_y**2))
        lower, upper = _over(product, (np.sqrt(np.clip(both[0], 0.0, None)), np.sqrt(both[1])))
        ends = np.clip(lower, -1.0, 1.0), np.clip(upper, -1.0, 1.0)
        if kind == "corr":
            return ends
        squares = ends[0] ** 2, ends[1] ** 2
        return np.where((ends[0] <= 0) & (ends[1] >= 0), 0.0, np.minimum(*squares)), np.maximum(*squares)

    def _count(self, place: int, confidence: float) -> Ends:
        found = estimates(self.blocks[place], (COUNT,), confidence=confidence)[COUNT]
        return np.clip(found.lower, 0.0, None), found.upper

    def _variance(self, place: int, confidence: float, ddof: int = 0) -> Ends:
        """Return the interval of a variance, which is never negative."""
        found = estimates(self.blocks[place], (VARIANCE,), confidence=confidence, ddof=ddof)[VARIANCE]
        return np.clip(found.lower - _ROUNDED, 0.0, None), found.upper + _ROUNDED

    def _mean(self, place: int, bounds: tuple[float, float], confidence: float) -> Ends:
        found = estimates(self.blocks[place], (AVG,), confidence=confidence)[AVG]
        middle, half = (bounds[0] + bounds[1]) / 2.0, (bounds[1] - bounds[0]) / 2.0
        return middle + half * (found.lower - _ROUNDED), middle + half * (found.upper + _ROUNDED)

    def _product(self, confidence: float, ddof: int) -> Ends:
        """Return the interval of the covariance of u and v."""
        u, v, w = (self._variance(place, confidence, ddof) for place in range(3))
        return 2.0 * w[0] - (u[1] + v[1]) / 2.0, 2.0 * w[1] - (u[0] + v[0]) / 2.0


def _scaled(ends: Ends, by: float) -> Ends:
    return ends[0] * by, ends[1] * by


def _times(one: Ends, two: Ends) -> Ends:
    products = [mine * theirs for mine in one for theirs in two]
    return np.minimum.reduce(products), np.maximum.reduce(products)


def _over(one: Ends, two: Ends) -> Ends:
    """Return the interval of a quotient; NaN where the divisor, which is not negative, may be 0."""
    by = np.where(two[0] > 0, two[0], np.nan), np.where(two[0] > 0, two[1], np.nan)
    quotients = [mine / theirs for mine in one for theirs in by]
    return np.minimum.reduce(quotients), np.maximum.reduce(quotients)
