"""Counts, sums, means, variances and standard deviations from noisy blocks, with intervals: post-processing alone.

An interval covers the aggregate *of these rows*, after clipping and caps, with the given confidence: it speaks of noise
and not of sampling, and of each group by itself. Where groups were released because their noisy count was large, it
covers less often. A count may be below 0, and a sum beyond its bounds, so that totals over groups are not biased; the
interval of a count is not below 0, and a mean and a variance are never out of bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpsql.arrays import Doubles
from dpsql.errors import ParameterError
from dpsql.mechanisms.aggregates import NoisyBlock
from dpsql.released.intervals import Interval, mean_interval, noise_quantile, variance_interval
from dpsql.statistics.aggregates import AGGREGATES, AVG, COUNT, SUM, VARIANCE, ValueBlock


@dataclass(frozen=True, eq=False)
class Estimated:
    """One aggregate of one target in every group; NaN stands for NULL.

    Attributes
    ----------
    value, std_error, lower, upper : ndarray of float64, shape (G,)
    """

    value: Doubles
    std_error: Doubles
    lower: Doubles
    upper: Doubles


def estimates(
    noisy: NoisyBlock, aggregates: Sequence[str], *, confidence: float = 0.95, ddof: int = 1
) -> dict[str, Estimated]:
    """Return the aggregates that a noisy block tells.

    Parameters
    ----------
    noisy : NoisyBlock
    aggregates : sequence of str
        Of 'count', 'sum', 'avg', 'variance' and 'stddev', as for `dpsql.statistics.aggregates.block_for`.
    confidence : float
        Coverage of every interval, in (0, 1).
    ddof : int
        Variances divide by ``n - ddof``; 0 or 1. They are NULL where the noisy count is below ``ddof + 1``.

    Raises
    ------
    ParameterError
        P018, when an argument is out of range.
    """
    if not 0.0 < confidence < 1.0 or ddof not in (0, 1) or not set(aggregates) <= set(AGGREGATES):
        raise ParameterError("P018", "confidence, ddof or aggregates is out of range. See the docstring.")
    sums = _Moments(noisy, 1.0 - confidence, ddof)
    return {name: sums.estimate(name) for name in aggregates}


class _Moments:
    """The noisy moments of one block: number of rows, and sums of z and of ``z**2``."""

    def __init__(self, noisy: NoisyBlock, tail: float, ddof: int) -> None:
        self._noisy, self._tail, self._ddof = noisy, tail, ddof
        self._weights = np.array(noisy.block.moments)
        self._sums = self._weights @ noisy.values
        self._rows = np.maximum(self._sums[0], 1.0)

    @property
    def _bounds(self) -> tuple[float, float]:
        """What z = 0 is, and what z = 1 is above it."""
        block = self._noisy.block
        if not isinstance(block, ValueBlock):
            raise ParameterError("P018", "a count tells nothing of values. Take the block of the aggregates.")
        return block.middle_and_half

    def estimate(self, name: str) -> Estimated:
        """Return one aggregate."""
        if name == COUNT:
            counted = self._linear(self._weights[0])
            ends = np.maximum(counted.lower, 0.0), np.maximum(counted.upper, 0.0)
            return Estimated(counted.value, counted.std_error, *ends)
        if name == SUM:
            middle, half = self._bounds
            return self._linear(middle * self._weights[0] + half * self._weights[1])
        if name == AVG:
            return self._mean()
        return self._variance if name == VARIANCE else _root(self._variance)

    def _linear(self, weights: Doubles) -> Estimated:
        """Return a linear form of the coordinates."""
        value: Doubles = weights @ self._noisy.values
        reach = noise_quantile(self._noisy, weights, self._tail)
        error = np.full_like(value, self._noisy.deviation * math.sqrt(weights @ weights))
        return Estimated(value, error, value - reach, value + reach)

    def _centre(self) -> Doubles:
        """Return the mean of z: the share of the upper end, less that of the lower end, of what is positive of both."""
        count, total = self._sums[:2]
        above, below = np.maximum(count + total, 0.0), np.maximum(count - total, 0.0)
        whole = above + below
        centre: Doubles = np.divide(above - below, whole, out=np.zeros_like(whole), where=whole > 0.0)
        return centre

    def _mean(self) -> Estimated:
        centre = self._centre()
        form = self._weights[1] - centre[:, np.newaxis] * self._weights[0]
        error = self._noisy.deviation * np.sqrt((form**2).sum(axis=1)) / self._rows
        ends = _around(centre, mean_interval(self._noisy, self._tail))
        middle, half = self._bounds
        return Estimated(middle + half * centre, half * error, middle + half * ends[0], middle + half * ends[1])

    @cached_property
    def _variance(self) -> Estimated:
        centre = self._centre()
        square = self._sums[2] / self._rows
        spread = np.clip(square - centre**2, 0.0, 1.0 - centre**2)
        # The derivative of the variance by the coordinates, times the count.
        slope = (
            self._weights[2]
            - 2.0 * centre[:, np.newaxis] * self._weights[1]
            + (2.0 * centre**2 - np.clip(square, 0.0, 1.0))[:, np.newaxis] * self._weights[0]
        )
        error = self._noisy.deviation * np.sqrt((slope**2).sum(axis=1)) / self._rows
        known = self._sums[0] >= self._ddof + 1
        rows = np.where(known, self._sums[0], np.nan)
        factor = rows / (rows - self._ddof)
        low, high = _around(spread * factor, variance_interval(self._noisy, self._tail, self._ddof))
        square_of_half = self._bounds[1] ** 2
        columns = (spread * factor, error * factor, np.where(known, low, np.nan), np.where(known, high, np.nan))
        return Estimated(*(square_of_half * column for column in columns))


def _around(value: Doubles, ends: Interval) -> Interval:
    """Return an interval that holds the value, too: alone, where nothing was compatible with the noisy sums."""
    return np.fmin(ends[0], value), np.fmax(ends[1], value)


def _root(variance: Estimated) -> Estimated:
    """Return the standard deviation. Its error is that of the root of the variance raised by its error."""
    value = np.sqrt(variance.value)
    error = np.sqrt(variance.value + variance.std_error) - value
    return Estimated(value, error, np.sqrt(variance.lower), np.sqrt(variance.upper))
