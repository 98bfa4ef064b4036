"""Compute the sampling error of released numbers from released moments, at no privacy cost.

A release covers the noise in a number of *these* rows. Sampling covers other rows of the same population: for n values
in z, which lie in [-1, 1], the mean differs from the population's mean with a variance of ``V / n``. A release has n
and V with noise, so n is the lower and V the upper end of their intervals.

The code adds four values, two at either end of the bounds, as Agresti and Coull (1998) do for shares: a sample without
a single rare value has no variance of its own, but its population may have some. This widens an interval by about the
noise at epsilon = 1. The quantile is Student's t with the degrees of freedom of n and these four. Sums of two levels
move in steps of 2 / n, and a quarter of a step makes up for that: of ten pairs of group sizes from 5 + 5 to 100 + 1,000
two equal shares differ in 4.2 % at most, at any share.

Rows of one privacy unit may depend on each other. A unit has at most m rows, so the variance of a sum is at most m
times the variance for independent rows: n rows count as ``n / m``.

Noise and sampling are independent, so their distances from the number to the end of an interval add up in squares. This
is exact for two normal laws at one level, and conservative if one of them is Laplace, at levels of 90 % and more.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from dpsql.arrays import Doubles
from dpsql.errors import ParameterError
from dpsql.mechanisms.aggregates import NoisyBlock
from dpsql.released.covariance import Estimated
from dpsql.released.intervals import noise_quantile
from dpsql.statistics.aggregates import ValueBlock

# Degrees of freedom above which a series is close, and their maximum.
_MANY, _MOST = 200.0, 1e4
# Added values, half of them at either end; and the addition to a distance, over the rows.
_ADDED, _STEP = 4.0, 0.5


@lru_cache(maxsize=4096, typed=True)
def student(tail: float, freedom: float) -> float:
    """Return the t that Student's t exceeds in either direction with a chance of `tail`.

    With ``t = sqrt(freedom) tan(a)`` the density of the angle a is ``cos(a)**(freedom - 1)``, scaled. Above 200 degrees
    of freedom the normal quantile is corrected to order 2.
    """
    if freedom > _MANY:
        z = -NormalDist().inv_cdf(tail / 2.0)
        return z + (z**3 + z) / (4.0 * freedom) + (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / (96.0 * freedom**2)
    angles = np.linspace(0.0, math.pi / 2.0, 8193)
    density = np.cos(angles) ** (freedom - 1.0)
    beyond = np.append(np.cumsum(((density[1:] + density[:-1]) / 2.0)[::-1])[::-1], 0.0)
    return math.sqrt(freedom) * math.tan(float(np.interp(tail, (beyond / beyond[0])[::-1], angles[::-1])))


def mean_reaches(mean: Doubles, variance: Doubles, rows: Doubles, tail: float) -> tuple[Doubles, Doubles, Doubles]:
    """Return how far the population means lie below and above the means of these rows, and standard deviations.

    Parameters
    ----------
    mean : ndarray of float64
        In [-1, 1].
    variance : ndarray of float64
        Of the values, divided by their number, in [0, 1]; an upper bound.
    rows : ndarray of float64
        Independent rows, >= 0; a lower bound.
    tail : float
        Chance that the population's mean lies outside.
    """
    total = rows + _ADDED
    centre = mean * rows / total
    spread = (rows * (variance + mean * mean) + _ADDED) / total - centre * centre
    deviation = np.sqrt(np.maximum(spread, 0.0) / total)
    # Few degrees of freedom in steps of 1/8, rounded down.
    steps, indices = np.unique(np.minimum(np.floor(8.0 * (total - 1.0)), 8.0 * _MOST), return_inverse=True)
    away = np.array([student(tail, step / 8.0) for step in steps.tolist()])[indices].reshape(total.shape) * deviation
    shift, step = mean - centre, _STEP / np.maximum(rows, 1.0)
    return np.maximum(away + shift, 0.0) + step, np.maximum(away - shift, 0.0) + step, deviation


def sampled_mean(noisy: NoisyBlock, mean: Estimated, fewest: Doubles, *, tail: float, rows_per_unit: int) -> Estimated:
    """Return the means of groups with intervals for the population means.

    Parameters
    ----------
    noisy : NoisyBlock
        Of a column with bounds. If it has no squares, the largest variance at each mean counts.
    mean : Estimated
        With intervals for noise alone.
    fewest : ndarray of float64, shape (G,)
        Lower ends of the noisy counts.
    tail : float
        Chance that an interval does not hold.
    rows_per_unit : int
        Maximum rows of one unit in a group.
    """
    block = noisy.block
    if not isinstance(block, ValueBlock):
        raise ParameterError("P018", "a count tells nothing of values. Take the block of the aggregates.")
    middle, half = block.middle_and_half
    value, low, high = ((part - middle) / half for part in (mean.value, mean.lower, mean.upper))
    # The largest variance of values in [-1, 1], at the compatible mean nearest to 0.
    nearest = np.where((low <= 0.0) & (high >= 0.0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    variance = np.maximum(1.0 - nearest**2, 0.0)
    if block.needs_squares:
        # The sum of squares about any number is at least that about the mean.
        rows, values, squares = np.array(block.moments)
        form = squares - 2.0 * value[:, np.newaxis] * values + value[:, np.newaxis] ** 2 * rows
        about = (form * noisy.values.T).sum(axis=1) + noise_quantile(noisy, form, tail)
        variance = np.minimum(variance, np.maximum(about, 0.0) / np.maximum(fewest, 1.0))
    below, above, deviation = mean_reaches(value, variance, np.maximum(fewest, 0.0) / rows_per_unit, tail)
    down, up = np.hypot(mean.value - mean.lower, half * below), np.hypot(mean.upper - mean.value, half * above)
    return Estimated(mean.value, np.hypot(mean.std_error, half * deviation), mean.value - down, mean.value + up)


def count_reach_of_sampling(rows: float, rows_per_unit: int, tail: float) -> tuple[float, float]:
    """Return how far a count of Poisson units, or a difference of counts, is off its expectation, and its error.

    Parameters
    ----------
    rows : float
        Upper bound of the rows counted in all.
    rows_per_unit : int
        Maximum rows of a unit.
    tail : float
    """
    deviation = math.sqrt(rows_per_unit * (max(0.0, rows) + _ADDED * rows_per_unit))
    return -NormalDist().inv_cdf(tail / 2.0) * deviation, deviation
