"""Private means and standard deviations of features, by which rows are scaled before a model is fitted.

Features in half widths of their bounds differ much in how they spread: one fills its bounds, another one a hundredth of
them. Noise on sums of products is the same for all, so it drowns the narrow ones. Here a first release of sums and sums
of squares, with a small share of the loss, tells means and standard deviations; they are public from then on, and the
rows in units of them are a fixed function of each row.

Given what was released, the statistics of the fit are those of rows that are mapped one by one; the losses compose.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dpsql.arrays import Integers
from dpsql.mechanisms.gaussian import GaussianNoise, gaussian_release
from dpsql.noise.entropy import SYSTEM, BitSource
from dpsql.statistics.column_moments import UNIT, moments_sensitivity
from dpsql.statistics.regression import Standard

# Means and deviations are multiples of this.
_RESOLUTION = 2.0**-40


def released_standard(
    moments: Integers, *, squared_mu: Fraction, neighbours: str, max_rows_per_unit: int = 1, source: BitSource = SYSTEM
) -> Standard:
    """Release means and standard deviations of features.

    Parameters
    ----------
    moments : ndarray of Python ints, shape (1 + 2 p,)
        Exact, `dpsql.statistics.column_moments.ColumnMoments.total`; p >= 1.
    squared_mu : Fraction
        The share of ``mu**2`` spent here, > 0.
    neighbours : {'add_remove', 'replace'}
    max_rows_per_unit : int
        Rows that one privacy unit may have, >= 1.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    standard : Standard
        Means in [-1, 1], and deviations in (0, 1]: at least what noise alone would make of a constant, so that a
        feature whose spread is drowned by noise is not blown up. Depends on noisy numbers alone.

    Notes
    -----
    - **Guarantee**: mu-GDP with ``mu**2 = squared_mu``, in the sense of `gaussian_mu`.
    - **Neighbouring relation**: `neighbours`, of privacy units with at most `max_rows_per_unit` rows.
    - **Sensitivity**: L2, `dpsql.statistics.column_moments.moments_sensitivity`.
    - **Randomness**: exact integer sampler, operating-system entropy, no seed.
    - **Assumes**: rows mapped to [-1, 1] one by one.
    - **Does not protect**: running time; p, which is public.
    """
    features = len(moments) // 2
    release = gaussian_release(
        moments,
        sensitivity=moments_sensitivity(neighbours, features, max_rows_per_unit),
        squared_mu=squared_mu,
        source=source,
    )
    values, sigma = release.values / UNIT, release.sigma / UNIT
    rows = max(float(values[0]), 1.0)
    mean = np.clip(values[1 : 1 + features] / rows, -1.0, 1.0)
    variance = values[1 + features :] / rows + 0.5 - mean**2
    deviation = np.sqrt(np.clip(variance, min(1.0, 2.0 * sigma / rows), 1.0))
    mean, deviation = (np.rint(found / _RESOLUTION) * _RESOLUTION for found in (mean, deviation))
    return Standard(mean, np.maximum(deviation, _RESOLUTION))


def draw_standard(
    part: GaussianNoise, share: str, moments: Integers, *, neighbours: str, max_rows_per_unit: int
) -> Standard:
    """Return the means and deviations that a share of Gaussian noise pays for; see `released_standard`."""
    return released_standard(
        moments, squared_mu=part.spend(share) ** 2, neighbours=neighbours, max_rows_per_unit=max_rows_per_unit
    )
