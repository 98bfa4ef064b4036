"""The sparse vector technique with a cutoff: which of many scores are above a public threshold.

Only scores found above cost anything, and the run stops after `cutoff` of them. Without the cutoff the loss grows with
the number of scores above, for any noise (`tests/support/broken/filters.py`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.arrays import Integers, Longs
from dpsql.contract.events import Event, SparseVectorTechnique
from dpsql.contract.measurement import Part, sampled
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.noise.discrete import LazyExponential, fraction_bounds
from dpsql.noise.entropy import SYSTEM, BitSource, WordReader
from dpsql.noise.race import LARGEST_SCALED, RELATIVE_ERROR, differences, integer_scores, scaled

_CHUNK = 1 << 14
_RADIUS = 2.0**-40
# Prefixes of U from here on fix its logarithm within `_RADIUS`.
_SMALLEST_PREFIX = np.uint64(1 << 48)
_SHARES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class SparseVector:
    """The public numbers of one run: scales of the noise, and the threshold.

    Attributes
    ----------
    sensitivity : int
        Bound on the change of one score between neighbouring tables, >= 1, in the unit of the scores.
    epsilon : Fraction
        Privacy loss of the run, > 0.
    cutoff : int
        Most scores found above, >= 1.
    monotone : bool
        Whether all scores move in the same direction between any two neighbouring tables. Halves their noise.

    Raises
    ------
    ParameterError
        P018 (epsilon, sensitivity, cutoff).
    """

    sensitivity: int
    epsilon: Fraction
    cutoff: int
    monotone: bool

    def __post_init__(self) -> None:
        if not isinstance(self.epsilon, Fraction) or not self.epsilon > 0:
            raise ParameterError("P018", f"epsilon must be a Fraction > 0; got {self.epsilon}.")
        if not isinstance(self.sensitivity, int) or not self.sensitivity >= 1:
            raise ParameterError("P018", f"sensitivity must be an integer >= 1; got {self.sensitivity}.")
        if not isinstance(self.cutoff, int) or not self.cutoff >= 1:
            raise ParameterError("P018", f"cutoff must be an integer >= 1; got {self.cutoff}.")

    @cached_property
    def threshold_epsilon(self) -> Fraction:
        """The part of epsilon for the threshold: 1 to ``(2 cutoff)**(2/3)``, or ``cutoff**(2/3)`` if monotone."""
        return self.epsilon * Fraction(max(1, round(_SHARES / (1 + self._answers ** (2 / 3)))), _SHARES)

    @cached_property
    def threshold_scale(self) -> Fraction:
        """Mean of the exponential noise on the threshold."""
        return self.sensitivity / self.threshold_epsilon

    @cached_property
    def score_scale(self) -> Fraction:
        """Mean of the exponential noise on each score."""
        return self._answers * self.sensitivity / (self.epsilon - self.threshold_epsilon)

    @property
    def _answers(self) -> int:
        return self.cutoff if self.monotone else 2 * self.cutoff

    def level(self, threshold: Fraction) -> int:
        """Return the integer to compare noisy scores with, for a public threshold in the unit of the scores.

        Both noises are >= 0. The level adds the difference of their means, so they cancel on average.
        """
        return math.ceil(threshold + self.score_scale - self.threshold_scale)


@dataclass(frozen=True)
class SparseVectorRun:
    """The release of a run.

    Attributes
    ----------
    above : tuple of int
        Positions of the scores found above, in the random order of comparison.
    stopped_at : int
        Number of compared scores: all of them, unless the run reached the cutoff before.
    """

    above: tuple[int, ...]
    stopped_at: int


def sparse_vector(
    scores: ArrayLike, parameters: SparseVector, *, level: int, source: BitSource = SYSTEM
) -> SparseVectorRun:
    """Find up to `cutoff` scores above a threshold, in random order.

    Score i is above when ``q_i + E_i >= level + E_0``: ``E_0`` is exponential with mean ``threshold_scale`` and drawn
    once, each ``E_i`` exponential with mean ``score_scale`` and drawn anew.

    Parameters
    ----------
    scores : array_like of int, shape (d,)
        Exact: int64, or Python ints of any size. d is public.
    parameters : SparseVector
    level : int
        Public, in the unit of the scores; `SparseVector.level` of the threshold.
    source : BitSource
        Operating-system entropy; another source is for tests.

    Returns
    -------
    run : SparseVectorRun

    Raises
    ------
    ParameterError
        P018, when `scores` is not one row of integers.

    Notes
    -----
    - **Guarantee**: pure ``epsilon``-DP for the order of comparison, the scores found above and below, and the stop;
      ``epsilon**2 / 2``-zCDP, as any pure guarantee.
    - **Neighbouring relation**: the relation behind `sensitivity` and `monotone`.
    - **Sensitivity**: Delta, of every single score (L-infinity).
    - **Randomness**: comparisons as on real numbers, operating-system entropy, no seed.
    - **Assumes**: exact integer scores; a threshold independent of the rows.
    - **Does not protect**: running time, which shows how many comparisons needed more bits (about one in ``2**38``).

    Proof. The order does not depend on the scores; fix it, and an output with the sets A above and B below. Given ``E_0
    = z`` its probability is a product of ``P(E_i >= level + z - q_i)`` over A and of ``P(E_i < level + z - q_i)`` over
    B. Let q' be the scores of a neighbour, and put ``z + Delta`` for z. In B ``q'_i <= q_i + Delta``, so no factor
    falls. In A the bound rises by at most ``2 Delta``: each factor falls by at most ``exp(2 Delta / score_scale)``, all
    of them by ``exp(epsilon - threshold_epsilon)``, because A has at most `cutoff` scores. The density of ``E_0`` falls
    by ``exp(Delta / threshold_scale)``, and ``z + Delta`` is still in its support. If scores are monotone and rise,
    bounds in A rise by at most Delta with the same substitution; if they fall, leave z as it is: no factor of B falls,
    and bounds in A rise by at most Delta.

    The signs matter: with ``level - E_0``, or with ``q_i - E_i``, the substitution leaves a support, and the loss is
    infinite [1]_.

    References
    ----------
    .. [1] M. Lyu, D. Su, N. Li, Understanding the sparse vector technique for differential privacy, VLDB 2017, for the
       version with Laplace noise. One-sided noise of the same scales has half the variance.
    """
    values = integer_scores(scores)
    order = _random_order(len(values), source)
    reader = WordReader(source)
    bar = LazyExponential(reader)
    above: list[int] = []
    for begin in range(0, len(values), _CHUNK):
        part = order[begin : begin + _CHUNK]
        is_above = _above(values[part], parameters, level, bar, reader, source)
        positions = np.flatnonzero(is_above)[: parameters.cutoff - len(above)]
        above += part[positions].tolist()
        if len(above) == parameters.cutoff:
            return SparseVectorRun(tuple(above), begin + int(positions[-1]) + 1)
    return SparseVectorRun(tuple(above), len(values))


def _random_order(size: int, source: BitSource) -> NDArray[np.intp]:
    """Return a uniform permutation: the order of distinct random words."""
    while True:
        words = source.words(size)
        order = np.argsort(words)
        if size < 2 or (np.diff(words[order]) > 0).all():
            return order


def _above(
    scores: Integers, parameters: SparseVector, level: int, bar: LazyExponential, reader: WordReader, source: BitSource
) -> NDArray[np.bool_]:
    """Decide ``q + E >= level + E_0`` for a batch; in units of the mean of E."""
    words = source.words(len(scores))
    ratio = parameters.threshold_scale / parameters.score_scale
    limit = _bounds_of(bar, ratio)
    certain = words >= _SMALLEST_PREFIX
    noise = -np.log(np.maximum(words, np.uint64(1)).astype(np.float64) * 2.0**-64)
    offset, below = _distance(scores, level, 1 / parameters.score_scale)
    noisy = np.where(below, noise - offset, noise + offset)
    # Roundings of the noise (below 45), of the offset and of their sum, far below twice the radius and these shares.
    spread = 4.0 * _RADIUS + 4.0 * RELATIVE_ERROR * offset
    is_above = noisy - spread >= limit[1]
    certain &= is_above | (noisy + spread < limit[0])
    certain |= offset >= LARGEST_SCALED
    is_above = np.where(offset >= LARGEST_SCALED, ~below, is_above)
    for position in np.flatnonzero(~certain).tolist():
        lead = (int(scores[position]) - level) / parameters.score_scale
        is_above[position] = _exceeds(LazyExponential(reader, int(words[position])), lead, bar, ratio)
    return is_above


def _distance(scores: Integers, level: int, coefficient: Fraction) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return ``coefficient * abs(scores - level)`` within `RELATIVE_ERROR`, and which scores are below the level."""
    if scores.dtype != object and not -(1 << 63) <= level < 1 << 63:
        scores = scores.astype(object)
    distance, below = differences(scores, level)
    return scaled(distance, coefficient), below


def _bounds_of(bar: LazyExponential, ratio: Fraction) -> tuple[float, float]:
    """Enclose ``ratio * E_0`` by two doubles, from the known bits."""
    low, high = bar.bounds(bar.digits)
    unit = 10**bar.digits
    least = float(min(ratio * low / unit, Fraction(LARGEST_SCALED))) * (1.0 - RELATIVE_ERROR)
    if high is None:
        return least, math.inf
    return least, float(min(ratio * high / unit, Fraction(LARGEST_SCALED))) * (1.0 + RELATIVE_ERROR)


def _exceeds(variable: LazyExponential, lead: Fraction, bar: LazyExponential, ratio: Fraction) -> bool:
    """Decide ``lead + E >= ratio * E_0``; draw bits of both until it is certain."""
    while True:
        digits = max(variable.digits, bar.digits)
        low, high = variable.bounds(digits)
        bar_low, bar_high = bar.bounds(digits)
        lead_low, lead_high = fraction_bounds(lead, digits)
        if bar_high is not None and low + lead_low >= _times(ratio, bar_high)[1]:
            return True
        if high is not None and high + lead_high < _times(ratio, bar_low)[0]:
            return False
        variable.extend()
        bar.extend()


def _times(ratio: Fraction, value: int) -> tuple[int, int]:
    scaled_value = ratio.numerator * value
    return scaled_value // ratio.denominator, -(-scaled_value // ratio.denominator)


@dataclass(frozen=True)
class ScoresAbove(Part):
    """Scores above a threshold by the sparse vector technique."""

    run: SparseVector

    @property
    def event(self) -> Event:
        """Event for the ledger."""
        return SparseVectorTechnique(self.run.epsilon, self.run.cutoff)

    @sampled
    def draw(self, scores: Longs, *, threshold: Fraction, finer: int = 1) -> SparseVectorRun:
        """Return the scores above a threshold in the unit of the run; that unit is `finer` units of the scores."""
        run = replace(self.run, sensitivity=self.run.sensitivity * finer)
        return sparse_vector(scores, run, level=run.level(threshold * finer))
