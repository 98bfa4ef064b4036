"""Steps per feature on the residuals of a linear fit: an additive model, as explainable boosting machines fit it [1]_.

The first pass counts rows per cell of each feature, and per size of their residual. Neighbouring cells join into *bins*
of about as many rows each. The bound B of residuals is the size that a tenth of the rows exceed. Rounds then go over
the features and visit each feature `VISITS` times: a round sums the residuals of the rows per bin of a few features,
and computes the steps of these features.

*Two losses.* The residual of a classifier is the label less its probability, B is 1, and no size is counted. A row
weighs the curvature of its loss instead of 1 (`dpsql.statistics.score_rows`), and bins hold about as much weight each:
statements about rows below hold for weights. A step is then a Newton step, cut off at `LOGISTIC.farthest`, because the
curvature is computed at the scores of the linear fit. `Loss` has the differences.

*Steps from noisy sums.* Let s be the noisy sums of a feature, N the noisy rows per bin, and f the unknown steps:
``s = N f`` plus noise of known variance, from the release and from the rows themselves. Steps of neighbouring bins are
alike: the prior of f is a centred random walk over the bins of variance t, and t is 0 or a power of 4, 0 being as
likely as all others together. The steps are the mean of f given s, over all t by the likelihood of s. So if noise
explains the sums, the steps are close to 0; elsewhere they are as smooth as the noise demands. N has a similar prior:
rows per cell are even rows, a walk, and jumps of single cells, with the variances that make noisy counts likeliest
(sums over too few rows would look like steps that are too high). All of this reads released numbers alone.

*Rounds.* Features that are alike have like sums, so steps for g features at once add up to at most g times too much.
The fit therefore multiplies them by ``2 / (1 + g)``, and leaves the rest for the next visit. A visit has at most
`MOST_ROUNDS` rounds, and up to so many features g = 1.

*Privacy.* Every release is Gaussian with the sensitivities of `dpsql.statistics.additive`, for either loss. A round
that sums g of c features spends ``g / (c VISITS)`` of the squared mu of all rounds: so the noise of each sum is the
same, and the shares add up to 1. Bins, B and steps are functions of earlier releases.

References
----------
.. [1] H. Nori, R. Caruana, Z. Bu, J. H. Shen, J. Kulkarni, Accuracy, interpretability, and differential privacy via
   explainable boosting, ICML 2021. It has many rounds, and nothing ties the steps of neighbouring bins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dpsql.arrays import Doubles, Integers, Longs
from dpsql.dataclass import dataclass
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.kernels.gram import one_thread
from dpsql.mechanisms.gaussian import GaussianRelease, gaussian_counts
from dpsql.noise.entropy import SYSTEM, BitSource
from dpsql.statistics.additive import (
    CELLS,
    LARGEST_STEP,
    SIZES,
    Steps,
    cells_sensitivity,
    residuals_sensitivity,
    sizes_sensitivity,
)

# Most bins of a feature, visits of each feature, most rounds of a visit.
BINS = 32
VISITS = 2
MOST_ROUNDS = 16
# A feature has fewer rows than the table if its rows are this many deviations below.
_FEWER = 3.0
# Tried variances of rows per cell, over the square of even rows.
_ROW_VARIANCES = tuple(4.0**power for power in range(-4, 4))
# Approximate share of rows with a residual above B.
_BEYOND = 0.1
# Tried variances of the random walk, over the square of B.
_VARIANCES = tuple(4.0**-power for power in range(8))


@dataclass(frozen=True)
class Loss:
    """Public facts about the residuals of a loss.

    Attributes
    ----------
    spread : float
        Their variance per weight of a row, over the square of B.
    farthest : float
        Largest move of a step in a round, over B.
    """

    spread: float
    farthest: float


# A tenth of a normal law of this variance exceeds 1.
SQUARED = Loss(0.37, math.inf)
# A label of probability p has the variance p (1 - p), its weight.
LOGISTIC = Loss(1.0, 2.0)


@dataclass(frozen=True)
class Bins:
    """Released bins of the cells of each feature.

    Attributes
    ----------
    of : ndarray of int64, shape (d, CELLS)
        The bin of each cell, ascending from 0.
    rows : list of ndarray of float64
        Likely rows per bin of each feature, at least 1; or weights.
    """

    of: Longs
    rows: list[Doubles]

    @property
    def features(self) -> list[int]:
        """Features with more than one bin: noise explains the others as constant."""
        return [feature for feature, rows in enumerate(self.rows) if len(rows) > 1]


def release_bins(
    counts: Integers,
    neighbours: str,
    max_rows_per_unit: int = 1,
    *,
    squared_mu: Fraction,
    total: float | None = None,
    denominator: int = 1,
    source: BitSource = SYSTEM,
) -> Bins:
    """Release bins that hold about as many rows each.

    Parameters
    ----------
    counts : ndarray of int64, shape (d, CELLS)
        Exact rows per cell, or weights in units of ``1 / denominator``; d >= 1.
    neighbours : {'add_remove', 'replace'}
    max_rows_per_unit : int
    squared_mu : Fraction
        > 0.
    total : float, optional
        Rows, released before. They replace a feature's rows unless these are fewer than noise explains.
    denominator : int
        A power of two.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Notes
    -----
    - **Guarantee**: mu-GDP with ``mu**2 = squared_mu``, in the sense of `gaussian_mu`.
    - **Neighbouring relation**: `neighbours`, of privacy units with at most `max_rows_per_unit` rows.
    - **Sensitivity**: `dpsql.statistics.additive.cells_sensitivity`.
    - **Randomness**: exact integer sampler, operating-system entropy, no seed.
    - **Assumes**: a row is in one cell of each feature at most, by its own values and released numbers.
    - **Does not protect**: running time; d.
    """
    noisy = gaussian_counts(
        counts.ravel(),
        squared_sensitivity=cells_sensitivity(neighbours, len(counts), max_rows_per_unit),
        squared_mu=squared_mu,
        denominator=denominator,
        source=source,
    )
    of, rows = np.zeros(counts.shape, dtype=np.int64), []
    far = _FEWER * noisy.sigma * CELLS**0.5
    for feature, noisy_rows in enumerate(noisy.values.reshape(counts.shape)):
        here = float(noisy_rows.sum())
        here = max(1.0, here if total is None or here < total - far else total)
        likely = likely_rows(noisy_rows, here, noisy.sigma)
        quota, remainder, load = here / BINS, float(likely.sum()), 0.0
        for cell in range(1, CELLS):
            load += likely[cell - 1]
            remainder -= likely[cell - 1]
            ends = load >= quota and remainder >= quota / 2
            load = 0.0 if ends else load
            of[feature, cell] = of[feature, cell - 1] + ends
        rows.append(np.maximum(np.bincount(of[feature], likely), max(1.0, quota / 4)))
    return Bins(of, rows)


def likely_rows(noisy: Doubles, total: float, sigma: float) -> Doubles:
    """Return the likely rows per cell from noisy rows and the size of the noise; post-processing.

    The prior of the difference from even rows is a walk over the cells and jumps of single cells. The likelihood of
    the noisy rows chooses the variance of both, and 0 is among the choices.

    Parameters
    ----------
    noisy : ndarray of float64, shape (CELLS,)
    total : float
        Rows, about; >= 1.
    sigma : float
        Standard deviation of the noise of each, > 0.

    Returns
    -------
    rows : ndarray of float64, shape (CELLS,)
        >= 0.
    """
    even = total / len(noisy)
    sizes, basis = _walk_basis(len(noisy))
    with one_thread():
        parts = basis.T @ (noisy - even)
    best, gain = -np.inf, np.zeros(len(noisy))
    for smooth in (0.0, *_ROW_VARIANCES):
        for jumps in (0.0, *_ROW_VARIANCES):
            spread = even**2 * (smooth * sizes + jumps)
            noise = spread + sigma**2
            likelihood = -0.5 * float((parts**2 / noise + np.log(noise)).sum())
            if likelihood > best:
                best, gain = likelihood, spread / noise
    with one_thread():
        return np.maximum(even + basis @ (gain * parts), 0.0)


def _walk(length: int) -> Doubles:
    """Return the covariance of a centred random walk, whose mean variance is 1."""
    steps = np.arange(length, dtype=np.float64)
    walk = np.minimum.outer(steps, steps)
    means = walk.mean(axis=0)
    walk = walk - means - means[:, None] + means.mean()
    return np.asarray(walk / np.trace(walk) * length)


@lru_cache(maxsize=1, typed=True)
def _walk_basis(length: int) -> tuple[Doubles, Doubles]:
    """Return eigenvalues and eigenvectors of `_walk`."""
    with one_thread():
        sizes, basis = np.linalg.eigh(_walk(length))
    return np.maximum(sizes, 0.0), basis


def release_bound(
    sizes: Integers,
    neighbours: str,
    max_rows_per_unit: int = 1,
    *,
    squared_mu: Fraction,
    source: BitSource = SYSTEM,
) -> int:
    """Release the bound B of residuals: the smallest of `SIZES` that about a tenth of the rows exceed at most.

    Parameters
    ----------
    sizes : ndarray of int64, shape (1 + len(SIZES),)
        Exact rows per size of the residual, the largest first.
    neighbours, max_rows_per_unit, squared_mu, source
        As for `release_bins`, with the same guarantee for `dpsql.statistics.additive.sizes_sensitivity`.
    """
    noisy = gaussian_counts(
        sizes,
        squared_sensitivity=sizes_sensitivity(neighbours, max_rows_per_unit),
        squared_mu=squared_mu,
        source=source,
    )
    beyond = np.cumsum(noisy.values)[:-1]
    within = beyond <= _BEYOND * max(1.0, float(noisy.values.sum()))
    last = len(SIZES) if within.all() else int(np.argmin(within))
    return int(SIZES[max(0, last - 1)])


def release_residuals(
    sums: Integers,
    neighbours: str,
    features: int,
    most: int,
    max_rows_per_unit: int = 1,
    *,
    squared_mu: Fraction,
    source: BitSource = SYSTEM,
) -> GaussianRelease:
    """Add noise to the sums of residuals per bin of some features.

    Parameters
    ----------
    sums : ndarray of Python ints
        Exact, of all bins of these features.
    neighbours, features, most, max_rows_per_unit
        As for `dpsql.statistics.additive.residuals_sensitivity`, the sensitivity.
    squared_mu, source
        As for `release_bins`, with the same guarantee.
    """
    return gaussian_counts(
        sums,
        squared_sensitivity=residuals_sensitivity(neighbours, features, most, max_rows_per_unit),
        squared_mu=squared_mu,
        source=source,
    )


@dataclass(frozen=True)
class AdditiveSteps:
    """Released steps.

    Attributes
    ----------
    values : ndarray of float64, shape (d, CELLS)
        Integers, with S the scale of the target; log odds of a classifier.
    std_errors : ndarray of float64, shape (d, CELLS)
        Standard deviation of each from the noise of the rounds, to first order.
    """

    values: Doubles
    std_errors: Doubles


class StepRounds:
    """Rounds of a fit: the next residuals to sum, and the steps from their sums.

    Parameters
    ----------
    bins : Bins
    most : int
        B, released.
    mu : Fraction
        Privacy loss of all rounds together, > 0.
    neighbours : {'add_remove', 'replace'}
    max_rows_per_unit : int
    loss : Loss
    source : BitSource
        Operating-system entropy; another source is for tests.

    Notes
    -----
    - **Guarantee**: mu-GDP in the sense of `gaussian_mu`, for all rounds together, from any starting steps.
    - **Neighbouring relation**: `neighbours`, of privacy units with at most `max_rows_per_unit` rows.
    - **Sensitivity**: `dpsql.statistics.additive.residuals_sensitivity`, in every round of its features; residuals are
      clipped in every round. A sum over a bin adds sums of cells, which keeps the norm of one row.
    - **Randomness**: exact integer sampler, operating-system entropy, no seed.
    - **Assumes**: `take` gets the sums of `ResidualSums` for the present `steps` and `features`; fewer than 2**32 rows.
    - **Does not protect**: running time; d, the bins and B, which are released.
    """

    def __init__(
        self,
        bins: Bins,
        most: int,
        *,
        mu: Fraction,
        neighbours: str,
        max_rows_per_unit: int = 1,
        loss: Loss = SQUARED,
        source: BitSource = SYSTEM,
    ) -> None:
        self._bins, self._most, self._mu, self._loss = bins, most, mu, loss
        self._unit, self._source = (neighbours, max_rows_per_unit), source
        self._values = np.zeros((len(bins.of), CELLS + 1))
        self._variances = np.zeros((len(bins.of), CELLS))
        self._rounds = [group for visit in range(VISITS) for group in _groups(bins.features, visit)]
        self._next = 0

    @classmethod
    def draw(
        cls,
        cells: Integers,
        sizes: Integers,
        neighbours: str,
        max_rows_per_unit: int,
        *,
        mus: Mapping[str, Fraction],
        rows: float | None,
    ) -> StepRounds:
        """Draw bins and the bound of residuals, and return the rounds.

        Parameters
        ----------
        cells, sizes : ndarray of int64
            Exact, as for `release_bins` and `release_bound`.
        neighbours, max_rows_per_unit
            As for the class.
        mus : mapping
            Privacy loss of ``'bins'``, ``'residuals'`` and ``'steps'``, each > 0; their squares add up.
        rows : float or None
            Rows, released before.
        """
        bins = release_bins(cells, neighbours, max_rows_per_unit, squared_mu=mus["bins"] ** 2, total=rows)
        most = release_bound(sizes, neighbours, max_rows_per_unit, squared_mu=mus["residuals"] ** 2)
        return cls(bins, most, mu=mus["steps"], neighbours=neighbours, max_rows_per_unit=max_rows_per_unit)

    @classmethod
    def of_scores(
        cls, weights: Integers, neighbours: str, max_rows_per_unit: int, *, mus: Mapping[str, Fraction]
    ) -> StepRounds:
        """Draw the bins of a classifier, and return the rounds.

        Parameters
        ----------
        weights : ndarray of int64, shape (d, CELLS)
            Exact, as `dpsql.statistics.score_rows` has them: four times the curvature, in units of ``1 / S``.
        neighbours, max_rows_per_unit
            As for the class.
        mus : mapping
            Privacy loss of ``'bins'`` and ``'steps'``, each > 0; their squares add up.
        """
        denominator, mu = FIXED_POINT_ONE, mus["steps"]
        bins = release_bins(
            weights, neighbours, max_rows_per_unit, squared_mu=mus["bins"] ** 2, denominator=denominator
        )
        curved = Bins(bins.of, [weight / 4 for weight in bins.rows])
        return cls(
            curved, denominator, mu=mu, neighbours=neighbours, max_rows_per_unit=max_rows_per_unit, loss=LOGISTIC
        )

    @property
    def rounds_left(self) -> int:
        """Number of remaining rounds."""
        return len(self._rounds) - self._next

    @property
    def features(self) -> list[int]:
        """Features of the next round."""
        return self._rounds[self._next]

    @property
    def steps(self) -> Steps:
        """The present steps, which define the residuals of the next round."""
        return Steps(self._values.copy(), self._most)

    def take(self, sums: Integers) -> None:
        """Draw the next round.

        Parameters
        ----------
        sums : ndarray of Python ints, shape (features of the round, CELLS)
            Exact.
        """
        features = self.features
        self._next += 1
        bins = [self._bins.of[feature] for feature in features]
        lengths = [len(self._bins.rows[feature]) for feature in features]
        exact = np.concatenate([_joined(row, of, length) for row, of, length in zip(sums, bins, lengths, strict=True)])
        noisy = release_residuals(
            exact,
            self._unit[0],
            len(features),
            self._most,
            self._unit[1],
            squared_mu=self._mu**2 * Fraction(len(features), len(self._bins.features) * VISITS),
            source=self._source,
        )
        rate, ends = 2.0 / (1 + len(features)), np.cumsum(lengths)[:-1]
        sigma = noisy.sigma / self._most
        for feature, of, word in zip(features, bins, np.split(noisy.values / self._most, ends), strict=True):
            step, variance = smooth_steps(word, self._bins.rows[feature], sigma, self._loss.spread)
            step = np.clip(step, -self._loss.farthest, self._loss.farthest)
            moved = self._values[feature, :CELLS] + np.rint(rate * self._most * step)[of]
            self._values[feature, :CELLS] = np.clip(moved, -LARGEST_STEP, LARGEST_STEP)
            self._variances[feature] += ((rate * self._most) ** 2 * variance)[of]

    def result(self) -> AdditiveSteps:
        """Return the steps after the last round."""
        return AdditiveSteps(self._values[:, :CELLS], np.sqrt(self._variances))


def _groups(features: list[int], visit: int) -> list[list[int]]:
    """Return the features of each round of a visit; table neighbours are apart, and each visit groups differently."""
    count = min(len(features), MOST_ROUNDS)
    groups: list[list[int]] = [[] for _ in range(count)]
    for number, feature in enumerate(features):
        groups[(number + visit * (number // count)) % count].append(feature)
    return [group for group in groups if group]


def _joined(sums: Integers, of: Longs, length: int) -> Integers:
    """Return exact sums of bins from exact cell sums."""
    totals = np.zeros(length, dtype=object)
    np.add.at(totals, of, sums)
    return totals


def smooth_steps(
    sums: Doubles, rows: Doubles, sigma: float, of_residuals: float = SQUARED.spread
) -> tuple[Doubles, Doubles]:
    """Return the likely steps from noisy sums, and their variance from the noise; post-processing.

    Parameters
    ----------
    sums : ndarray of float64, shape (bins,)
        Noisy sums of residuals, with B = 1.
    rows : ndarray of float64, shape (bins,)
        Rows per bin, >= 1.
    sigma : float
        Standard deviation of the noise of a sum, > 0.
    of_residuals : float
        Variance of the residual of a row, > 0.

    Returns
    -------
    steps, variances : ndarray of float64, shape (bins,)
        Close to 0 if noise explains the sums best.
    """
    walk = _walk(len(sums)) * rows[:, None]
    noise = sigma**2 + of_residuals * rows
    # Prior: no steps are as likely as all variances together, which are equally likely.
    none = math.log(len(_VARIANCES)) - 0.5 * float((sums**2 / noise + np.log(noise)).sum())
    likelihoods, gains = [none], [np.zeros_like(walk)]
    with one_thread():
        for variance in _VARIANCES:
            spread = variance * walk * rows + np.diag(noise)
            root = np.linalg.cholesky(spread)
            solved = np.linalg.solve(root, sums)
            likelihoods.append(-0.5 * float(solved @ solved) - float(np.log(np.diag(root)).sum()))
            gains.append(np.asarray(np.linalg.solve(spread, variance * walk).T, dtype=np.float64))
    weights = np.exp(np.array(likelihoods) - max(likelihoods))
    gain = np.tensordot(weights / weights.sum(), np.array(gains), 1)
    return gain @ sums, sigma**2 * (gain**2).sum(axis=1)
