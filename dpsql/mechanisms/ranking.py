"""The descending order of scores, as far as the canonical Lipschitz mechanism needs it.

Sorting a million scores takes longer than the rest of a draw, and a draw reads only k + 1 places of the order. The code
sorts the k best scores, puts the others into up to 65536 levels of equal rounded gap, and searches a level when a
candidate falls into it.

All calls use one total order: by score, and equal scores by position. The order of equal keys after a partial sort
differs between calls and between processors, so it plays no part. A partial sort supplies only a *value*, which the
scores alone decide.

The module also has the noise on the rank scores of some features and the number of rows, as one mechanism and one
event, and on the lead of a selection over shuffled targets (`dpsql.statistics.lead`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Integers
from dpsql.contract.events import DiscreteLaplace, Event
from dpsql.contract.measurement import Part, sampled
from dpsql.contract.relation import Relation, relation_of
from dpsql.dataclass import dataclass
from dpsql.mechanisms.count_noise import laplace_reach
from dpsql.noise.discrete import LARGEST_SCALE, discrete_laplace, laplace_deviation
from dpsql.noise.entropy import WordReader
from dpsql.noise.race import Distances, differences, kth_largest, scaled
from dpsql.statistics.lead import lead_sensitivity
from dpsql.statistics.rank_scores import released_sensitivity

# Scores are multiples of 2**-20, or of a coarser unit if noise has more bits than this.
_FINEST, _WIDEST = 20, 1 << 47


@dataclass(frozen=True)
class NoisyScores:
    """Scores and the number of rows, each with noise."""

    scores: list[float]
    rows: float


@dataclass(frozen=True)
class ScoreNoise(Part):
    """Discrete Laplace noise on numbers in the unit of rank scores.

    Attributes
    ----------
    epsilon : Fraction
    neighbours : {'add_remove', 'replace'}
    max_rows_per_unit : int
    """

    epsilon: Fraction
    neighbours: str
    max_rows_per_unit: int

    @property
    def event(self) -> Event:
        """Event for the ledger."""
        return DiscreteLaplace(self.epsilon)

    @property
    def relation(self) -> Relation:
        """The neighbouring relation."""
        return relation_of(self.neighbours, self.max_rows_per_unit)

    def bits(self, *, two_levels: bool) -> int:
        """Return b of the public unit ``2**-b`` of released numbers."""
        width = self._moved(0, two_levels) / self.epsilon
        return next((bits for bits in range(_FINEST, 0, -1) if width * (1 << bits) <= _WIDEST), 0)

    def scale(self, *, two_levels: bool) -> Fraction:
        """Return the scale of the noise on every number, in that unit."""
        return self._moved(self.bits(two_levels=two_levels), two_levels) / self.epsilon

    def deviation(self, *, two_levels: bool) -> float:
        """Return the standard deviation of the noise on every number."""
        return math.ldexp(laplace_deviation(self.scale(two_levels=two_levels)), -self.bits(two_levels=two_levels))

    def reach(self, failure: Fraction, *, two_levels: bool) -> float:
        """Return the bound that one number's error, rounding included, exceeds with at most that chance.

        It is infinite for noise that is too wide to be drawn.
        """
        bits = self.bits(two_levels=two_levels)
        if self.scale(two_levels=two_levels) > LARGEST_SCALE:
            return math.inf
        # Noise is symmetric: use twice the chance for both signs.
        return math.ldexp(laplace_reach(self.scale(two_levels=two_levels), 2 * failure) + 0.5, -bits)

    @abstractmethod
    def _moved(self, bits: int, two_levels: bool) -> int:
        """Return the L1 sensitivity of all numbers, in units of ``2**-bits``."""


@dataclass(frozen=True)
class RankScoreNoise(ScoreNoise):
    """The scores ``|tau_j|`` of k features chosen before, and the number of rows.

    Attributes
    ----------
    k : int

    Notes
    -----
    - **Guarantee**: pure `epsilon`-DP, for every choice of the features: it composes with their selection.
    - **Neighbouring relation**: add or remove one unit, or replace one.
    - **Sensitivity**: L1, of scores and rows as one vector, `dpsql.statistics.rank_scores.released_sensitivity`.
    - **Randomness**: exact integer sampler, operating-system entropy, no seed.
    - **Assumes**: exact scores over all rows, not over blocks.
    - **Does not protect**: running time.
    """

    k: int

    @sampled
    def draw(self, scores: Sequence[Fraction], rows: int, *, two_levels: bool) -> NoisyScores:
        """Return the numbers with noise.

        Parameters
        ----------
        scores : sequence of Fraction, length k
            ``|tau_j|``.
        rows : int
        two_levels : bool
            As for `dpsql.statistics.rank_scores.rank_spread`.
        """
        bits = self.bits(two_levels=two_levels)
        exact = [*(math.floor(score * (1 << bits) + Fraction(1, 2)) for score in scores), rows << bits]
        noise = discrete_laplace(self.scale(two_levels=two_levels), len(exact)).tolist()
        *noisy, count = (math.ldexp(value + by, -bits) for value, by in zip(exact, noise, strict=True))
        return NoisyScores(noisy, count)

    def _moved(self, bits: int, two_levels: bool) -> int:
        return released_sensitivity(self.relation, self.k, two_levels=two_levels, bits=bits)


_LEVELS = 1 << 16
# Up to so many scores are all sorted, with a block for each place.
_SORT_ALL = 256
# Largest change within a block of log p, and of the log of the class size: 1 each.
_STEP = 1.0
_NARROWEST = 1e-200


def log_factorial(n: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return ``log n!`` for integers >= 0; relative error below ``2**-48``."""
    small = _small_log_factorials()
    x = np.maximum(n, len(small)).astype(np.float64)
    # Stirling; the first omitted term is below 1e-15 from 256 on.
    series = (x + 0.5) * np.log(x) - x + 0.5 * math.log(2 * math.pi) + 1.0 / (12.0 * x) - 1.0 / (360.0 * x**3)
    return np.where(n < len(small), small[np.minimum(n, len(small) - 1)], series)


def log_binomial(n: int, r: int) -> float:
    """Return ``log C(n, r)`` for ``0 <= r <= n``, within about 1e-6."""
    terms = log_factorial(np.array([n, r, n - r]))
    return float(terms[0] - terms[1] - terms[2])


class Ranking:
    """Places of the scores in descending order; the first of equal scores comes first.

    Parameters
    ----------
    scores : ndarray of int64 or object, shape (d,)
        As returned by `dpsql.noise.race.integer_scores`.
    k : int
        In [1, d - 1].

    Attributes
    ----------
    size, k : int
        Number of scores, and of scores in the head.
    head_gaps : ndarray of uint64 or object, shape (k,)
        Score at place i + 1 minus score at place k, descending.
    """

    def __init__(self, scores: Integers, k: int) -> None:
        self.size = len(scores)
        self.k = k
        best = int(scores.max())
        distance, _ = differences(scores, best)
        # Doubles are monotone in the distance, so the k best are all within the k-th double.
        rough = distance.astype(np.float64) if distance.dtype != object else scaled(distance, Fraction(1))
        near = np.flatnonzero(rough <= -kth_largest(-rough, k))
        self._head: NDArray[np.intp] = near[np.argsort(distance[near], kind="stable")[:k]]
        reference = distance[self._head[-1]]
        self.head_gaps: Distances = reference - distance[self._head]
        others = np.ones(self.size, dtype=np.bool_)
        others[self._head] = False
        self._rest: NDArray[np.intp] = np.flatnonzero(others)
        self._gaps: Distances = distance[self._rest] - reference

    def blocks(
        self, coefficient: Fraction, reach: float
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Cut the places behind the head into blocks of similar scores and similar class sizes.

        Parameters
        ----------
        coefficient : Fraction
            > 0; turns a gap into an exponent.
        reach : float
            Exponents above this are so unlikely that they need no own blocks.

        Returns
        -------
        firsts, lasts : ndarray of int64, shape (blocks,)
            Places behind place k, from 1 to d - k, without holes.
        least : ndarray of float64, shape (blocks,)
            Lower bound on ``coefficient * gap`` in the block, up to a relative error of ``2**-45``.
        """
        exponents = scaled(self._gaps, coefficient)
        count = len(exponents)
        if count <= _SORT_ALL:
            order = np.argsort(self._gaps, kind="stable")
            self._rest, self._gaps = self._rest[order], self._gaps[order]
            self._levels: NDArray[np.uint16] = np.arange(count, dtype=np.uint16)
            positions = np.arange(1, count + 1)
            self._ends = positions
            return positions, positions, exponents[order]
        span = min(float(exponents.max()), reach)
        # A span this narrow needs no levels (and its inverse might overflow).
        per_level = (_LEVELS - 1) / span if span > _NARROWEST else 0.0
        # Convert by way of int32, which compilers vectorise.
        self._levels = np.minimum(exponents * per_level, _LEVELS - 1.0).astype(np.int32).astype(np.uint16)
        self._ends = np.cumsum(np.bincount(self._levels, minlength=_LEVELS))
        by_score = self._ends[:: max(1, int(min(_STEP * per_level, _LEVELS)))]
        by_size = _growth_edges(self.size, self.k)
        lasts = np.unique(np.concatenate([by_score, by_size, [count]]))
        lasts = lasts[lasts > 0]
        firsts = np.concatenate([[1], lasts[:-1] + 1])
        level = np.searchsorted(self._ends, firsts)
        least = level / per_level if per_level > 0.0 else np.zeros(len(firsts))
        return firsts, lasts, least

    def gap(self, position: int) -> int:
        """Return the score at place k minus the score at place ``k + position``, position in [1, d - k]."""
        return int(self._gaps[self._locate(position)[1]])

    def subset(self, included: int, last: int, reader: WordReader) -> list[int]:
        """Return a uniform member of the class (h, t) = (`included`, k + `last`); (k - 1, 0) is the head.

        It has the first h, then k - h - 1 out of places h + 2 to t - 1, then place t.
        """
        if last == 0:
            return [int(position) for position in self._head]
        before, final = self._locate(last)
        from_head = self._head[included + 1 :]
        free = self.k - included - 1
        chosen = np.array(sorted(reader.subset(free, len(from_head) + last - 1)), dtype=np.intp)
        split = int(np.searchsorted(chosen, len(from_head)))
        tail: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        if split < free:
            level = int(self._levels[final])
            better = np.flatnonzero(self._levels < level)
            tail = np.concatenate([better, before])[chosen[split:] - len(from_head)]
        head = [*self._head[:included].tolist(), *from_head[chosen[:split]].tolist()]
        return [*head, *self._rest[tail].tolist(), int(self._rest[final])]

    def _locate(self, position: int) -> tuple[NDArray[np.intp], int]:
        """Return the members of its level before `position`, and the one there (indices into the rest)."""
        level = int(np.searchsorted(self._ends, position))
        inside = position - 1 - (int(self._ends[level - 1]) if level else 0)
        members = np.flatnonzero(self._levels == level)
        gaps = self._gaps[members]
        if not gaps.min() < gaps.max():
            return members[:inside], int(members[inside])
        gap = np.partition(gaps, inside)[inside]
        nearer, tied = members[gaps < gap], members[gaps == gap]
        before = inside - len(nearer)
        return np.concatenate([nearer, tied[:before]]), int(tied[before])


@lru_cache(maxsize=8, typed=True)
def _growth_edges(size: int, k: int) -> NDArray[np.int64]:
    """Return last places of blocks in which a class size grows by a factor of at most e.

    From t to t + 1 the size grows by the factor (t - h - 1) / (t - k), most for h = 0, and ever more slowly.
    """
    edges = []
    position = 0
    while position < size - k:
        position += 1
        t = k + position
        position += int(_STEP / math.log((t - 1) / (t - k))) if k > 1 else size
        edges.append(min(position, size - k))
    return np.array(edges, dtype=np.int64)


@lru_cache(maxsize=1)
def _small_log_factorials() -> NDArray[np.float64]:
    return np.array([math.lgamma(n + 1.0) for n in range(256)])


@dataclass(frozen=True)
class LeadNoise(ScoreNoise):
    """The lead of k features chosen before.

    Notes
    -----
    - **Guarantee**: pure `epsilon`-DP, for every choice of the features: it composes with their selection.
    - **Neighbouring relation**: add or remove one unit of one row, or replace one.
    - **Sensitivity**: `dpsql.statistics.lead.lead_sensitivity`, over coupled permutations.
    - **Randomness**: exact integer sampler, and exactly uniform permutations, both of operating-system entropy.
    - **Assumes**: permutations drawn for this release alone and never shown.
    - **Does not protect**: running time.
    """

    @sampled
    def draw(self, lead: Fraction, *, two_levels: bool) -> float:
        """Return the lead with noise.

        Parameters
        ----------
        lead : Fraction
            D.
        two_levels : bool
            As for `dpsql.statistics.rank_scores.rank_spread`.
        """
        bits = self.bits(two_levels=two_levels)
        [noise] = discrete_laplace(self.scale(two_levels=two_levels), 1).tolist()
        return math.ldexp(math.floor(lead * (1 << bits) + Fraction(1, 2)) + noise, -bits)

    def _moved(self, bits: int, two_levels: bool) -> int:
        return lead_sensitivity(self.relation, two_levels=two_levels) << bits
