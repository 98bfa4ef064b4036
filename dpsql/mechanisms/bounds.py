"""Private bounds of columns, from noisy counts over universal cells on a logarithmic scale.

Nothing about the values is given beforehand: the cells are those of `dpsql.kernels.cells.MagnitudeCounts`. Noisy
coarse counts, one per sign and power of two, show between which cells the rows lie; noisy fine counts, 16 within each
of those, then say how much of the outermost two can be left out. The bounds are powers of two, or fine edges.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import ParameterError
from dpsql.kernels.cells import (
    COARSE_CELLS,
    FINE_CELLS,
    SUBCELLS,
    ZERO_FINE,
    coarse_counts,
    fine_cells_of,
    fine_edges,
)
from dpsql.mechanisms.gaussian import LEAST_VARIANCE, gaussian_noise
from dpsql.noise.entropy import SYSTEM, BitSource
from dpsql.statistics.counts import squared_l2_sensitivity

DEFAULT_FAILURE = Fraction(1, 1000)
# Noise of a fraction of a row is negligible; less would only need more bits.
_LARGEST_MU = Fraction(8)
# Totals that are compared with a threshold when both ends are trimmed.
_TOTALS = 2 * (SUBCELLS - 1)


@dataclass(frozen=True)
class Thresholds:
    """What noise alone exceeds only with a small probability.

    Attributes
    ----------
    coarse : float
        For every coarse count, in the unit of the noisy counts.
    fine : tuple of float
        For the total of the outermost 1, 2, ..., 15 fine counts.
    """

    coarse: float
    fine: tuple[float, ...]


def interval_from_counts(
    noisy_fine: NDArray[np.int64], noisy_coarse: NDArray[np.int64], thresholds: Thresholds
) -> tuple[float, float]:
    """Return the interval that noisy counts indicate; post-processing, so it costs no privacy.

    Parameters
    ----------
    noisy_fine : ndarray of int64, shape (FINE_CELLS,)
    noisy_coarse : ndarray of int64, shape (COARSE_CELLS,)
        In the same unit.
    thresholds : Thresholds
        In that unit, too.

    Returns
    -------
    lower, upper : float
        Finite, lower < upper. They run from the lowest to the highest coarse cell whose count exceeds the threshold
        (the largest count alone when none does), less the fine cells at either end whose totals, from the end
        inwards, stay below the thresholds. At most 15 of the 16 fine cells of a coarse cell go. An end in the zero
        cell is 0; when both are, the bounds are those of the zero cell.
    """
    found = np.flatnonzero(noisy_coarse > thresholds.coarse)
    if len(found) == 0:
        found = np.array([np.argmax(noisy_coarse)])
    lowest, highest = fine_cells_of(int(found[0])), fine_cells_of(int(found[-1]))
    first = lowest[_trimmed(noisy_fine[lowest.start : lowest.stop], thresholds)]
    last = highest[-1 - _trimmed(noisy_fine[highest.start : highest.stop][::-1], thresholds)]
    if first > last:
        first, last = lowest[0], highest[-1]
    if first == last == ZERO_FINE:
        return float(_EDGES[ZERO_FINE]), float(_EDGES[ZERO_FINE + 1])
    lower = 0.0 if first == ZERO_FINE else float(_EDGES[first])
    upper = 0.0 if last == ZERO_FINE else float(_EDGES[last + 1])
    return lower, upper


def gaussian_bounds(
    counts: NDArray[np.int64],
    *,
    mu: Fraction,
    neighbours: str,
    max_rows_per_unit: int = 1,
    failure: Fraction = DEFAULT_FAILURE,
    source: BitSource = SYSTEM,
) -> list[tuple[float, float]]:
    """Release bounds that hold the bulk of each of several columns.

    Parameters
    ----------
    counts : ndarray of int64, shape (width, FINE_CELLS)
        Exact counts of columns of the same rows, `dpsql.kernels.cells.MagnitudeCounts.counts`.
    mu : Fraction
        Privacy loss of the release of all columns together, > 0.
    neighbours : {'add_remove', 'replace'}
        The neighbouring relation.
    max_rows_per_unit : int
        Rows that one privacy unit may have, >= 1.
    failure : Fraction
        In (0, 1): bound on the chance that an end is in a coarse cell without rows, or that an empty fine cell at
        either end is kept, provided that some coarse count exceeds the threshold with its rows; for all columns
        together.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    bounds : list of (float, float)
        Lower and upper end of each column, finite, lower < upper, always an answer; see `interval_from_counts`.

    Raises
    ------
    ParameterError
        Depends on public parameters only: P018 (mu, neighbours, max_rows_per_unit, failure), P017 (
        noise beyond its largest scale).

    Notes
    -----
    - **Guarantee**: ``mu``-Gaussian DP for all columns together, hence ``mu**2 / 2``-zCDP.
    - **Neighbouring relation**: add or remove one unit, or replace one.
    - **Sensitivity**: L2, ``m sqrt(2 width)`` or, under replace, ``m sqrt(4 width)``: two histograms per column
      (`dpsql.statistics.counts`).
    - **Randomness**: exact integer sampler, operating-system entropy, no seed. Counts are multiplied by a power of
      two, so that the noise is as fine as the calibration assumes (`dpsql.mechanisms.gaussian`).
    - **Assumes**: every row is in one cell of each column, by its values alone, or in none.
    - **Does not protect**: the cells, which are public; the number of columns; running time.
    """
    if not isinstance(mu, Fraction) or not mu > 0:
        raise ParameterError("P018", f"mu must be a Fraction > 0; got {mu}. Give the privacy loss to spend.")
    width = len(counts)
    chance = _check_failure(failure) / max(width, 1)
    squared = squared_l2_sensitivity(neighbours, histograms=2 * width, max_rows_per_unit=max_rows_per_unit)
    if width == 0:
        return []
    variance = squared / min(mu, _LARGEST_MU) ** 2
    bits = 0
    while variance * 4**bits < LEAST_VARIANCE:
        bits += 1
    variance *= 4**bits
    deviation = math.sqrt(variance)
    thresholds = _thresholds(lambda log, cells: deviation * math.sqrt(2 * cells * log), chance)
    bounds = []
    for column in counts:
        coarse = (coarse_counts(column) << bits) + gaussian_noise(variance, COARSE_CELLS, source=source)
        fine = (column << bits) + gaussian_noise(variance, FINE_CELLS, source=source)
        bounds.append(interval_from_counts(fine, coarse, thresholds))
    return bounds


_EDGES = fine_edges()


def _trimmed(counts: NDArray[np.int64], thresholds: Thresholds) -> int:
    """Return how many fine counts are dropped, from the first on."""
    totals = np.cumsum(counts[: SUBCELLS - 1] if len(counts) > 1 else counts[:0])
    over = np.flatnonzero(totals >= np.array(thresholds.fine[: len(totals)]))
    return int(over[0]) if len(over) else len(totals)


def _thresholds(tail: Callable[[float, int], float], failure: float) -> Thresholds:
    """Return thresholds from ``tail(log, cells)``, which noise over so many cells exceeds with chance ``exp(-log)``."""
    return Thresholds(
        tail(math.log(2 * COARSE_CELLS / failure), 1),
        tuple(tail(math.log(2 * _TOTALS / failure), cells) for cells in range(1, SUBCELLS)),
    )


def _check_failure(failure: Fraction) -> float:
    if not isinstance(failure, Fraction) or not 0 < failure < 1:
        raise ParameterError("P018", f"failure must be a Fraction in (0, 1); got {failure}.")
    return float(failure)
