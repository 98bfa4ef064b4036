"""Private prefix sums of counts: the rows in the first cell, the first two, the first three, and so on.

A strategy is a public integer matrix: it multiplies the exact counts, every product gets exact discrete noise, and
least squares turns the noisy products into estimates of all prefix sums. One row of the table adds a column of the
matrix to the products, so the columns determine the noise of the products, and the matrix determines the noise of the
estimates. With m cells, and a the largest sum of absolute values of a column:

=========  ========================================  ===========  ==============================================
strategy   products                                  a            good for
=========  ========================================  ===========  ==============================================
identity   every count                               1            few cells
tree       counts of 1, 8, 64, ... cells in a row,   levels       many cells, Laplace noise
           fewer than all
wavelet    all rows; left half minus right half,     1 + log2 m   comparison: wider noise than the tree's
           and so on within each half
toeplitz   the square root of the matrix of prefix   grows        Gaussian noise, for which its columns are short:
           sums, rounded down to ``2**-32``                       norm about ``sqrt(1 + log(m) / pi)``
=========  ========================================  ===========  ==============================================

Several histograms can share a release, if every row is in at most one cell of one histogram: ROC counts negatives and
positives. A privacy unit of at most c rows then moves all products together by

===========  ========  ==============  =========================================================================
relation     L1        squared L2      why
===========  ========  ==============  =========================================================================
add_remove   c a       c² b            b is the largest sum of squares of a column: at worst all rows are in one
                                       cell of one histogram
replace      2 c a     2 c² b          at most c rows leave and c come. No two columns have a negative inner
                                       product, so the squares of both parts add up at worst
===========  ========  ==============  =========================================================================

Mean variance of a prefix sum in rows, Laplace noise, one row of sensitivity, epsilon = 1 (noise of variance ``2 a²``):

====  ========  =======  ==============================  ==================================
m     identity  wavelet  8-ary tree with its root        8-ary tree without it (used here)
====  ========  =======  ==============================  ==================================
16    17.0      37.7     30.5                            16.9
64    65.0      87.9     47.7                            38.2
256   257       171      97.6                            71.4
1024  1025      296      187                             131
====  ========  =======  ==============================  ==================================

The root would be the number of all rows: one level more of noise on everything, for one better number.

References
----------
.. [1] X. Xiao, G. Wang, J. Gehrke, Differential privacy via wavelet transforms, TKDE 2011.
.. [2] M. Hay, V. Rastogi, G. Miklau, D. Suciu, Boosting the accuracy of differentially private histograms through
   consistency, VLDB 2010.
.. [3] H. Fichtenberger, M. Henzinger, J. Upadhyay, Constant matters: fine-grained error bound on differentially
   private continual observation, ICML 2023.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Integers, Longs
from dpsql.contract.events import Event, additive_noise
from dpsql.contract.measurement import Part, sampled
from dpsql.contract.parameters import show
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.mechanisms.gaussian import gaussian_counts
from dpsql.noise.discrete import discrete_laplace, laplace_deviation
from dpsql.noise.entropy import SYSTEM, BitSource
from dpsql.statistics.counts import l1_sensitivity, squared_l2_sensitivity

STRATEGIES = ("identity", "tree", "wavelet", "toeplitz")
NOISES = ("laplace", "gaussian")
MOST_CELLS = 1024
_BRANCHING = 8
# A Toeplitz coefficient c is floor(c 2**32): the noise calibration uses it, at almost no loss.
_TOEPLITZ_BITS = 32


@dataclass(frozen=True)
class PrefixStrategy:
    """A strategy: a matrix of products and its properties; public.

    Attributes
    ----------
    name : str
        One of `STRATEGIES`.
    cells : int
        Number m of counts, >= 1.
    matrix : ndarray of int64, shape (k, m)
        The products are ``matrix @ counts``, in units of ``2**-bits`` rows.
    bits : int
        >= 0.
    """

    name: str
    cells: int
    matrix: NDArray[np.int64]
    bits: int

    @cached_property
    def l1(self) -> int:
        """Largest sum of absolute values of a column, in units of ``2**-bits``."""
        return int(np.abs(self.matrix).sum(axis=0).max())

    @cached_property
    def squared_l2(self) -> int:
        """Largest sum of squares of a column, exact, in units of ``4**-bits``."""
        return int(max(sum(value * value for value in column) for column in self.matrix.T.tolist()))

    @cached_property
    def reconstruction(self) -> NDArray[np.float64]:
        """Matrix, shape (m, k), that maps products in rows to least-squares estimates of the prefix sums."""
        scaled = self.matrix / 2.0**self.bits
        prefix = np.tri(self.cells)
        solved = (
            np.linalg.solve(scaled.T, prefix.T).T
            if len(scaled) == self.cells
            else prefix @ np.linalg.solve(scaled.T @ scaled, scaled.T)
        )
        return np.asarray(solved, dtype=np.float64)

    @cached_property
    def unit_covariances(self) -> NDArray[np.float64]:
        """Covariance of every prefix sum with the last, shape (m,), for noise of variance 1."""
        return np.asarray(self.reconstruction @ self.reconstruction[-1], dtype=np.float64)

    @cached_property
    def unit_variances(self) -> NDArray[np.float64]:
        """Variance of every prefix sum, shape (m,), for noise of variance 1 on products in rows."""
        return np.asarray(np.square(self.reconstruction).sum(axis=1), dtype=np.float64)

    @cached_property
    def cell_reconstruction(self) -> NDArray[np.float64]:
        """Matrix, shape (m, k), that maps products in rows to least-squares estimates of the counts."""
        return np.diff(self.reconstruction, axis=0, prepend=0.0)

    @cached_property
    def unit_cell_variances(self) -> NDArray[np.float64]:
        """Variance of every count, shape (m,), for noise of variance 1 on products in rows."""
        return np.asarray(np.square(self.cell_reconstruction).sum(axis=1), dtype=np.float64)

    def mean_variance(self, noise: str) -> float:
        """Return the mean variance of a prefix sum, up to a factor that all strategies with this noise share."""
        squared: float = self.l1**2 if noise == "laplace" else self.squared_l2
        return float(self.unit_variances.mean()) * squared / 4.0**self.bits


@lru_cache(maxsize=64, typed=True)
def prefix_strategy(cells: int, *, name: str = "auto", noise: str = "laplace") -> PrefixStrategy:
    """Return the strategy for a number of cells; depends on public numbers only.

    Parameters
    ----------
    cells : int
        In [1, 1024].
    name : {'auto', 'identity', 'tree', 'wavelet', 'toeplitz'}
        'auto' is the strategy with the smallest mean variance: with Laplace noise identity up to 15 cells and mostly
        the tree above, with Gaussian noise toeplitz from 2 cells on.
    noise : {'laplace', 'gaussian'}
        The noise for 'auto'. Toeplitz needs Gaussian noise.

    Returns
    -------
    strategy : PrefixStrategy

    Raises
    ------
    ParameterError
        P018, when an argument is out of range or toeplitz has Laplace noise.
    """
    if noise not in NOISES or name not in ("auto", *STRATEGIES):
        raise ParameterError("P018", f"curve must be one of auto, {', '.join(STRATEGIES)}; got {show(name)}.")
    if not isinstance(cells, int) or not 1 <= cells <= MOST_CELLS:
        raise ParameterError("P018", f"a curve has 1 to {MOST_CELLS} cells; got {cells}. Ask for fewer thresholds.")
    if name == "toeplitz" and noise == "laplace":
        raise ParameterError("P018", "curve := 'toeplitz' needs Gaussian noise. Give delta, or choose 'tree'.")
    if name == "auto":
        other = "tree" if noise == "laplace" else "toeplitz"
        candidates = [prefix_strategy(cells, name=choice, noise=noise) for choice in ("identity", other)]
        return min(candidates, key=lambda strategy: strategy.mean_variance(noise))
    bits = _TOEPLITZ_BITS if name == "toeplitz" else 0
    return PrefixStrategy(name, cells, _matrices[name](cells), bits)


@dataclass(frozen=True)
class PrefixSums:
    """Noisy prefix sums of one or more histograms.

    Attributes
    ----------
    sums : ndarray of float64, shape (histograms, m)
        Unbiased, in rows: entry i of a histogram estimates the rows of its cells 0 to i. Not ordered, not clipped.
    std_error : ndarray of float64, shape (m,)
        Standard deviation of the noise in each entry, in rows; exact but for roundings, and public.
    covariance : ndarray of float64, shape (m,)
        Covariance of the noise in each entry and in the last entry of the same histogram; public, too.
    """

    sums: NDArray[np.float64]
    std_error: NDArray[np.float64]
    covariance: NDArray[np.float64]


def noisy_prefix_sums(
    counts: NDArray[np.int64],
    *,
    strategy: PrefixStrategy,
    neighbours: str,
    max_rows_per_unit: int = 1,
    epsilon: Fraction | None = None,
    mu: Fraction | None = None,
    source: BitSource = SYSTEM,
) -> PrefixSums:
    """Return prefix sums of histograms with Laplace or Gaussian noise.

    Parameters
    ----------
    counts : ndarray of int64, shape (histograms, m)
        Exact number of rows in each cell, zeros included.
    strategy : PrefixStrategy
        For m cells.
    neighbours : {'add_remove', 'replace'}
        The neighbouring relation.
    max_rows_per_unit : int
        Rows that one privacy unit may have, >= 1.
    epsilon : Fraction, optional
        > 0: Laplace noise.
    mu : Fraction, optional
        > 0: Gaussian noise. Exactly one of `epsilon` and `mu` is given.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    sums : PrefixSums

    Raises
    ------
    ParameterError
        Depends on public parameters only: P017 (noise wider than the sampler draws), P018 (neighbours,
        max_rows_per_unit, not exactly one of epsilon and mu, shapes).

    Notes
    -----
    - **Guarantee**: with `epsilon`, pure ``epsilon``-DP for all histograms together; with `mu`, mu-GDP in the sense of
      `dpsql.contract.gaussian_profile.gaussian_mu`.
    - **Neighbouring relation**: add or remove one unit, or replace one.
    - **Sensitivity**: L1 or L2 of all products of all histograms together, see the module's text. Each histogram has
      the noise of a single histogram: under add_remove a row is in one histogram, and the factor 2 of replace covers a
      row that changes the histogram.
    - **Randomness**: exact integer samplers, operating-system entropy, no seed.
    - **Assumes**: every row is in one cell of one histogram, by its values alone, or in none; empty cells are zeros.
    - **Does not protect**: the number of cells and histograms, the strategy; running time.
    """
    if counts.ndim != 2 or counts.shape[1] != strategy.cells:
        raise ParameterError("P018", f"counts must have {strategy.cells} cells per histogram; got {counts.shape}.")
    if (epsilon is None) == (mu is None):
        raise ParameterError("P018", "noise needs exactly one of epsilon and mu.")
    flat = _products(strategy, counts)
    if epsilon is not None:
        if not epsilon > 0:
            raise ParameterError("P018", f"epsilon must be > 0; got {epsilon}. Give the privacy loss to spend.")
        scale = laplace_scale(strategy, epsilon, neighbours, max_rows_per_unit)
        noisy = (flat + discrete_laplace(scale, len(flat), source=source)).astype(np.float64)
        deviation = laplace_deviation(scale)
    elif mu is not None:
        squared = gaussian_sensitivity(strategy, neighbours, max_rows_per_unit)
        release = gaussian_counts(flat, squared_sensitivity=squared, squared_mu=mu**2, source=source)
        noisy, deviation = release.values, release.sigma
    unit = 2.0**-strategy.bits
    sums = (noisy * unit).reshape(len(counts), -1) @ strategy.reconstruction.T
    deviation *= unit
    return PrefixSums(sums, deviation * np.sqrt(strategy.unit_variances), deviation**2 * strategy.unit_covariances)


def laplace_scale(strategy: PrefixStrategy, epsilon: Fraction, neighbours: str, max_rows_per_unit: int = 1) -> Fraction:
    """Return the scale of the Laplace noise on every product, in units of ``2**-bits`` rows."""
    return strategy.l1 * l1_sensitivity(neighbours, max_rows_per_unit=max_rows_per_unit) / epsilon


def gaussian_sensitivity(strategy: PrefixStrategy, neighbours: str, max_rows_per_unit: int = 1) -> int:
    """Return the squared L2 sensitivity of all products, in units of ``4**-bits`` rows squared."""
    return strategy.squared_l2 * squared_l2_sensitivity(neighbours, max_rows_per_unit=max_rows_per_unit)


def gaussian_deviation(strategy: PrefixStrategy, mu: Fraction, neighbours: str, max_rows_per_unit: int = 1) -> float:
    """Return the standard deviation of the Gaussian noise on every product, in units of ``2**-bits`` rows."""
    return math.sqrt(gaussian_sensitivity(strategy, neighbours, max_rows_per_unit) / mu**2)


def _products(strategy: PrefixStrategy, counts: NDArray[np.int64]) -> Integers:
    """Return the exact products of every histogram, one after the other."""
    if strategy.bits == 0:
        return (counts @ strategy.matrix.T).ravel()
    # Counts times 2**32 do not fit 64 bits: high and low halves do, and Python's integers join them.
    high, low = strategy.matrix >> 16, strategy.matrix & 0xFFFF
    return ((counts @ high.T).astype(object) << 16).ravel() + (counts @ low.T).ravel()


def _identity(cells: int) -> NDArray[np.int64]:
    return np.eye(cells, dtype=np.int64)


def _tree(cells: int) -> NDArray[np.int64]:
    """Return counts of 1, 8, 64, ... adjacent cells; no level is a single count unless there is only one cell."""
    levels = [_identity(cells)]
    size = _BRANCHING
    while size < cells:
        starts = np.arange(cells) // size
        levels.append((starts == np.arange(starts[-1] + 1)[:, None]).astype(np.int64))
        size *= _BRANCHING
    return np.concatenate(levels)


def _wavelet(cells: int) -> NDArray[np.int64]:
    """Return the total and left minus right halves of 2**L cells; cells after the last one are public zeros."""
    size = 1 << (cells - 1).bit_length()
    rows = [np.ones(size, dtype=np.int64)]
    while size > 1:
        for start in range(0, cells, size):
            row = np.zeros(len(rows[0]), dtype=np.int64)
            row[start : start + size // 2], row[start + size // 2 : start + size] = 1, -1
            rows.append(row)
        size //= 2
    return np.array(rows)[:, :cells]


def _toeplitz(cells: int) -> NDArray[np.int64]:
    """Return ``binomial(2 i, i) / 4**i`` on diagonal i, below the main one: squared, the matrix of prefix sums."""
    coefficients = [(math.comb(2 * i, i) << _TOEPLITZ_BITS) >> 2 * i for i in range(cells)]
    lag = np.arange(cells)[:, None] - np.arange(cells)
    return np.where(lag >= 0, np.array(coefficients, dtype=np.int64)[np.abs(lag)], 0)


_matrices = {"identity": _identity, "tree": _tree, "wavelet": _wavelet, "toeplitz": _toeplitz}


@dataclass(frozen=True)
class CumulativeCounts(Part):
    """Noisy prefix sums of some histograms.

    Attributes
    ----------
    epsilon : Fraction
    delta, mu : Fraction or None
        Set for Gaussian noise, None for Laplace noise.
    neighbours : str
    max_rows_per_unit : int
    """

    epsilon: Fraction
    delta: Fraction | None
    mu: Fraction | None
    neighbours: str
    max_rows_per_unit: int

    @property
    def event(self) -> Event:
        """Event for the ledger."""
        return additive_noise(self.epsilon, self.mu, self.delta)

    def laplace_scale(self, strategy: PrefixStrategy) -> Fraction:
        """Return the scale of Laplace noise."""
        return laplace_scale(strategy, self.epsilon, self.neighbours, self.max_rows_per_unit)

    def deviation(self, strategy: PrefixStrategy) -> float:
        """Return the standard deviation of the noise on every product, in rows."""
        if self.mu is None:
            deviation = laplace_deviation(self.laplace_scale(strategy))
        else:
            deviation = gaussian_deviation(strategy, self.mu, self.neighbours, self.max_rows_per_unit)
        return deviation * 2.0**-strategy.bits

    @sampled
    def draw(self, counts: Longs, strategy: PrefixStrategy) -> PrefixSums:
        """Return the sums."""
        return noisy_prefix_sums(
            counts,
            strategy=strategy,
            neighbours=self.neighbours,
            max_rows_per_unit=self.max_rows_per_unit,
            epsilon=self.epsilon if self.mu is None else None,
            mu=self.mu,
        )
