"""The part of a measurement that draws one of all k-subsets, at once or in steps.

**Steps** are exponential mechanisms over subsets, one after the other; each scores a public number of subsets in full.

`dpsql.mechanisms.subset_exponential` draws from all k-subsets at once. Its time has no bound: the rows determine how
good a list and a bound on the rest the search finds, and if both are poor, almost every round is rejected. No limit on
its nodes or its rounds helps. Whether a run meets the limit depends on the rows, and the answer in that case, another
law or nothing, may be likely under one table and hardly possible under its neighbour. Two laws that are each private
are not private if the rows choose between them: let one give two subsets 1/2 each under every table, and the other q to
the second one under every table. Both are 0-DP; if one row more makes a search meet its limit, the loss is
``ln(1 / (2 q))``.

So public numbers alone choose the law before a row is read. This module chooses a few columns, one or two in a step::

    for each step, with s columns chosen so far, I, and t to choose:
        score all C(p - s, t) subsets I + T, and draw T with probability proportional to exp(-b score(I + T))

with one coefficient b for all steps. The number of scores is public, and so is the work, but for the rejections in the
next paragraph, which nearly never happen.

**The draw.** Every subset has a certain lower bound on its score, the *floor*, within some rounding errors of the
score. Repeat: draw a subset with weight ``exp(-b floor)`` (an integer, rounded up), score it, and return it with
probability ``exp(-b score)`` over that weight. A round that ends with a subset has the law proportional to
``exp(-b score)``, for any floors, and rounds are independent. So rounds without a result may raise floors: rejected
subsets get their own scores as floors. Only the rounding of weights thins a round that draws a subset with its score
as floor, and there are finitely many subsets, so the draw ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.contract.events import Event, SubsetExponential
from dpsql.contract.measurement import Part, sampled
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError
from dpsql.mechanisms.one_shot import check_selection
from dpsql.mechanisms.subset_exponential import (
    Scores,
    coefficient_of,
    excess_over,
    rejection_threshold,
    subset_exponential,
    top_r_exponential,
)
from dpsql.mechanisms.subsets import uniform_below
from dpsql.noise.discrete import LazyExponential
from dpsql.noise.entropy import SYSTEM, BitSource, WordReader
from dpsql.noise.race import WEIGHT_BITS, integer_scores, scaled, weights_above

_GROWTH = 8
_LARGEST_BATCH = 4096

Chosen = NDArray[np.intp]
Completions = Callable[[Chosen, int, NDArray[np.intp]], NDArray[np.intp]]


def subset_steps(
    sizes: Sequence[int],
    *,
    floors: Callable[[Chosen, Chosen, int], ArrayLike],
    completions: Completions,
    score: Scores,
    n_candidates: int,
    utility_ranges: Sequence[Fraction | int],
    epsilon: Fraction,
    source: BitSource = SYSTEM,
    progress: Callable[[int], object] | None = None,
) -> tuple[int, ...]:
    """Select columns in steps; each step draws with probability proportional to ``exp(-b score)``.

    Parameters
    ----------
    sizes : sequence of int
        Columns to choose in each step, public; their sum is at most p.
    floors : callable
        Takes the chosen columns, the others in ascending order and a size t, and returns certain lower bounds on the
        scores of all sets of the chosen and t others.
    completions : callable
        Takes the others, t and places among these bounds; returns the t columns of each, shape (m, t).
    score : callable
        Takes subsets, shape (m, s), and returns their m exact scores, smaller is better: one function of the table.
    n_candidates : int
        p, public.
    utility_ranges : sequence of Fraction or int
        For each step the bound on the spread of its scores over neighbouring tables, as `utility_range` of
        `subset_exponential`.
    epsilon : Fraction
        Privacy loss of all steps together, > 0.
    source : BitSource
        Operating-system entropy; another source is for tests.
    progress : callable, optional
        Gets the number of rounds so far. May raise.

    Returns
    -------
    subset : tuple of int
        Ascending.

    Raises
    ------
    ParameterError
        Depends on public parameters only: P018 (sizes, ranges, epsilon).
    InternalError
        I019, when a score is below its floor.

    Notes
    -----
    - **Guarantee**: pure ``epsilon``-DP. ``b = epsilon / (sum of the ranges)``: step i is an exponential mechanism with
      ``epsilon_i = b range_i``, with the law and proof of `subset_exponential`, for columns I released by earlier
      steps; ``sum epsilon_i = epsilon``, by adaptive composition. A step is ``epsilon_i**2 / 8``-zCDP, all together
      ``sum epsilon_i**2 / 8 <= epsilon**2 / 8``. The result is the union of the steps' outcomes.
    - **Neighbouring relation**: the relation behind the ranges.
    - **Sensitivity**: range (not a norm), for subsets of as many columns as the step has at its end.
    - **Randomness**: exact, operating-system entropy, no seed.
    - **Does not protect**: running time; the number of scores is public.
    """
    total = sum(utility_ranges)
    if not sizes or min(sizes) < 1 or sum(sizes) > n_candidates or len(sizes) != len(utility_ranges):
        raise ParameterError("P018", f"sizes must be positive, with a range each and {n_candidates} at most in all.")
    coefficient = coefficient_of(total, epsilon)
    chosen: Chosen = np.empty(0, dtype=np.intp)
    for size in sizes:
        others = np.setdiff1d(np.arange(n_candidates), chosen)
        sets = partial(_sets, completions, chosen, others, size)
        position = exponential_above_floors(
            floors(chosen, others, size),
            partial(_scored, score, sets),
            coefficient=coefficient,
            source=source,
            progress=progress,
        )
        chosen = sets(np.array([position]))[0]
    return tuple(chosen.tolist())


def _sets(
    completions: Completions, chosen: Chosen, others: Chosen, size: int, positions: NDArray[np.intp]
) -> NDArray[np.intp]:
    more = completions(others, size, positions)
    return np.sort(np.column_stack((np.broadcast_to(chosen, (len(more), len(chosen))), more)), axis=1)


def _scored(score: Scores, sets: Callable[[NDArray[np.intp]], Chosen], positions: NDArray[np.intp]) -> ArrayLike:
    return score(sets(positions))


def exponential_above_floors(
    floors: ArrayLike,
    score: Callable[[NDArray[np.intp]], ArrayLike],
    *,
    coefficient: Fraction,
    source: BitSource = SYSTEM,
    progress: Callable[[int], object] | None = None,
) -> int:
    """Return a candidate with probability proportional to ``exp(-coefficient score)``; see the module.

    Parameters
    ----------
    floors : array_like of int, shape (m,)
        At most the scores, m >= 1.
    score : callable
        Takes positions, shape (n,), and returns the n exact scores.
    coefficient : Fraction
        > 0.
    source, progress
        As for `subset_steps`.
    """
    check_selection(1, coefficient)
    least = integer_scores(floors).copy()
    bits = min(WEIGHT_BITS, 62 - len(least).bit_length())
    reader = WordReader(source)
    rounds, batch = 0, 1
    while True:
        reference = int(least.min())
        excess, _ = excess_over(least, integer_scores([reference]))
        weights = weights_above(-scaled(excess, coefficient), bits)
        upto = np.cumsum(weights)
        rounds += batch
        if progress is not None:
            progress(rounds)
        candidates = np.searchsorted(upto, uniform_below(int(upto[-1]), batch, source), side="right")
        words = source.words(batch)
        scores = integer_scores(score(candidates))
        if (scores < least[candidates]).any():
            raise InternalError("I019", "a lower bound on the scores of subsets does not hold. Report this.")
        for candidate, exact_score, word in zip(map(int, candidates), scores.tolist(), words.tolist(), strict=True):
            threshold = rejection_threshold(int(weights[candidate]), 1 << bits, coefficient * (exact_score - reference))
            if LazyExponential(reader, word).exceeds(threshold):
                return candidate
        least[candidates] = scores
        batch = min(batch * _GROWTH, _LARGEST_BATCH)


Draw = Callable[..., tuple[int, ...]]
LAWS: Mapping[str, Draw] = MappingProxyType(
    {"exact": subset_exponential, "steps": subset_steps, "top_r": top_r_exponential}
)


@dataclass(frozen=True)
class SubsetSelection(Part):
    """One of all k-subsets.

    Attributes
    ----------
    epsilon : Fraction
    k : int
    method : {'auto', 'exact', 'steps', 'top_r'}
        As in the call; for 'auto', public numbers of the call's columns choose the law.

    Notes
    -----
    Every law is epsilon-DP and ``epsilon**2 / 8``-zCDP: see the three mechanisms.
    """

    epsilon: Fraction
    k: int
    method: str

    @property
    def event(self) -> Event:
        """Event for the ledger."""
        return SubsetExponential(self.epsilon, self.k, self.method)

    @sampled
    def draw(self, law: str, /, *arguments: object, **options: object) -> tuple[int, ...]:
        """Select a subset by one of `LAWS`; parameters as in the mechanism, less epsilon."""
        return LAWS[law](*arguments, epsilon=self.epsilon, **options)
