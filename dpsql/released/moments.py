"""Counts, sums, means, variances and standard deviations from noisy blocks, with intervals: post-processing alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpsql.arrays import Doubles
from dpsql.mechanisms.aggregates import NoisyBlock


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
        Coverage of every interval, in (0, 1): of these rows, after clipping and caps; of noise, not of sampling.
    ddof : int
        Variances divide by ``n - ddof``; 0 or 1.
    """
    raise NotImplementedError
