"""Exponential mechanism over all s-subsets; only the best subsets need a list.

The mechanism returns subset A with probability proportional to ``exp(-b score(A))``. There are too many subsets to
score, but a list of good subsets and a lower bound on the scores of the rest suffice to draw from exactly this law, by
rejection:

    repeat: draw a branch, listed set k with weight ``exp(-b score_k)``, tail with weight ``C(p, s) exp(-b bound)``.
    A listed set is returned. In the tail draw A uniformly among ALL s-subsets; if A is listed, reject it, else
    return it with probability ``exp(-b (score(A) - bound))``. After any rejection start again from the branch.

Strata may divide the tail, such that every subset is in exactly one, and each stratum has its own bound: a branch of
weight ``N exp(-b bound)`` for a stratum of N subsets, in which A is drawn uniformly among these N.

One round returns a listed set with chance ``exp(-b score_k)`` over the total weight, an unlisted set with ``N exp(-b
bound) * 1/N * exp(-b (score(A) - bound)) = exp(-b score(A))`` over the same total, for any list, strata and bounds. So
a round that ends with a set has that law, and rounds are independent: the law stays the same if rounds with another
list, other strata or bounds follow after rounds without a result. These only set the number of rounds. It has no cap
and no fallback: either would change the law.

Branches have integer weights, rounded up; a round in a branch is thinned to the true weight together with its other
decision, in arithmetic of growing precision (`dpsql.noise.discrete`). Doubles only discard, within certain bounds, tail
proposals that cannot be accepted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.arrays import Integers
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError
from dpsql.mechanisms.one_shot import check_selection
from dpsql.mechanisms.subsets import SubsetList, count_distinct, uniform_below, uniform_subsets
from dpsql.noise.discrete import Bounds, LazyExponential, fraction_bounds, log_bounds
from dpsql.noise.entropy import SYSTEM, BitSource, WordReader
from dpsql.noise.race import RELATIVE_ERROR, WEIGHT_BITS, Distances, integer_scores, scaled, weights_above

Scores = Callable[[NDArray[np.intp]], ArrayLike]

_RADIUS = 2.0**-40
# Rounds at once: first one, since it mostly suffices, then more and more.
_GROWTH = 8
_LARGEST_BATCH = 4096
_LARGEST_WORK = 1 << 24
# Rounds before the call for strata, which takes about as long.
_PATIENCE = 1 << 14
_SCORED_AT_ONCE = 1024


@dataclass(frozen=True)
class Strata:
    """A partition of all s-subsets by their number of members in each class, with bounds on each part's scores.

    There may be several divisions of the candidates into classes, of equal sizes. The classes that all divisions share
    decide: strata with the same counts there have one division.

    Attributes
    ----------
    classes : ndarray of int, shape (divisions, p)
        The class of each candidate, from 0.
    division : ndarray of int, shape (strata,)
        The division of the classes that a stratum counts.
    counts : ndarray of int, shape (strata, number of classes)
        Members of each class in the subsets of a stratum: all possible counts, each once.
    lower_bounds : array_like of int, shape (strata,)
        At most the score of every unlisted subset of the stratum.
    """

    classes: NDArray[np.intp]
    division: NDArray[np.intp]
    counts: NDArray[np.intp]
    lower_bounds: ArrayLike


def subset_exponential(
    subsets: ArrayLike,
    scores: ArrayLike,
    lower_bound: int,
    *,
    n_candidates: int,
    score: Scores,
    utility_range: Fraction | int,
    epsilon: Fraction,
    floor: Scores | None = None,
    strata: Callable[[], Strata] | None = None,
    source: BitSource = SYSTEM,
    progress: Callable[[int], object] | None = None,
) -> tuple[int, ...]:
    """Select one of all s-subsets of p candidates, with probability proportional to ``exp(-b score)``.

    ``b = epsilon / utility_range``; smaller scores are better.

    Parameters
    ----------
    subsets : array_like of int, shape (listed, s)
        Any distinct s-subsets of ``range(n_candidates)``, in any order; may be empty (with its shape) or hold all.
    scores : array_like of int, shape (listed,)
        Their scores, in a public unit: int64, or Python ints of any size.
    lower_bound : int
        At most the score of every unlisted subset. Must be certain.
    n_candidates : int
        p, in [s, 2**32), public, as is s.
    score : callable
        Takes subsets, shape (m, s) with ascending rows, and returns their m scores. The same routine as for `scores`: a
        subset has one score. Called only for unlisted subsets.
    utility_range : Fraction or int
        > 0, in the unit of the scores: bound, over neighbouring tables D and D', on the spread
        ``max_A(score(A, D') - score(A, D)) - min_A(score(A, D') - score(A, D))`` over all s-subsets.
    epsilon : Fraction
        Privacy loss, > 0.
    floor : callable, optional
        Like `score`, but returns certain lower bounds on the scores, in less time: a proposal whose lower bound already
        rejects it needs no score. Does not change the law.
    strata : callable, optional
        Called once, after many rounds without a result; its result replaces `lower_bound`. Does not change the law.
    source : BitSource
        Operating-system entropy; another source is for tests.
    progress : callable, optional
        Gets the number of rounds begun so far, before each batch of rounds or scores. May raise.

    Returns
    -------
    subset : tuple of int
        Ascending.

    Raises
    ------
    ParameterError
        Depends on public parameters and the form of the arguments only: P018 (epsilon, s, utility,
        range, strata that are no partition).
    InternalError
        I019, when an unlisted subset scores below a lower bound or its `floor`: the certificate is wrong.

    Notes
    -----
    - **Guarantee**: pure ``epsilon``-DP. The law is the exponential mechanism's, hence ``epsilon``-bounded-range
      and ``epsilon**2 / 8``-zCDP, in one round.
    - **Neighbouring relation**: the relation behind `utility_range`.
    - **Sensitivity**: range (not a norm). Scores that all rise by amounts in ``[0, Delta]`` when a row is added have
      range ``Delta`` under add_remove and ``2 Delta`` under replace. If the scores in use lie around the true scores,
      in an interval of public width w, the ranges are ``Delta + 2 w`` and ``2 (Delta + w)``.
    - **Randomness**: exact, operating-system entropy, no seed.
    - **Assumes**: `score` is one deterministic function of the table; all lower bounds hold.
    - **Does not protect**: running time. The number of rounds depends on the scores, on the list and on the bounds.

    Proof. The rejection sampler (see the module) has exactly the law ``P(A) = exp(-b score(A)) / sum_B exp(-b
    score(B))`` over all ``C(p, s)`` subsets. Let all scores move from D to D' by amounts in ``[m, m + range]``. Then
    the numerator changes by a factor in ``[exp(-b (m + range)), exp(-b m)]``, and so does the sum; the factors ``exp(-b
    m)`` cancel, so all log ratios lie in one interval that contains 0 and is at most ``b range = epsilon`` long.

    The expected number of rounds is (sum of the listed weights, plus the strata's) over the sum of ``exp(-b score)`` of
    all subsets: near 1 if the listed subsets outweigh the rest. The number of rounds and the length of the list may
    depend on the table, since the law does not.
    """
    coefficient = coefficient_of(utility_range, epsilon)
    listed = SubsetList(subsets, n_candidates)
    return SubsetRejection(listed, scores, lower_bound, score, coefficient, floor, strata).draw(source, progress)


def top_r_exponential(
    scores: ArrayLike,
    *,
    subsets: ArrayLike,
    rank: int,
    n_candidates: int,
    utility_range: Fraction | int,
    epsilon: Fraction,
    gap: int | None = None,
    source: BitSource = SYSTEM,
    progress: Callable[[int], object] | None = None,
) -> tuple[int, ...]:
    """Select one of all s-subsets; all but the best count as equally bad.

    The exponential mechanism for ``q(A) = min(score(A), score of rank r[, best score + gap])``.

    Parameters
    ----------
    scores : array_like of int, shape (listed,)
        As for `subset_exponential`.
    subsets : array_like of int, shape (listed, s)
        Without a gap at least `rank` subsets (or all subsets), none with a score above an unlisted subset. With a gap
        either that, or every subset that scores below the best score + gap.
    rank : int
        r, >= 1, public and the same for every table.
    n_candidates, utility_range, epsilon, source, progress
        As for `subset_exponential`.
    gap : int, optional
        >= 0, in the unit of the scores, public and the same for every table.

    Returns
    -------
    subset : tuple of int
        Ascending.

    Raises
    ------
    ParameterError
        As for `subset_exponential`; P018 also when the list is too short for `rank`.

    Notes
    -----
    - **Guarantee**, **Neighbouring relation**, **Randomness**: as for `subset_exponential`.
    - **Sensitivity**: the range of the scores bounds the range of q if all scores move within one interval ``[m, m +
      range]``, since order statistics, a shift by `gap` and minima move within it too; ties at rank r are harmless.
      Only the list may depend on the table: a `gap` or `rank` that changed if the list grew too long would not be
      private.
    - **Does not protect**: running time.

    An unlisted subset is returned with probability proportional to ``exp(-b q)`` for the largest q: the tail as a whole
    has weight ``(C(p, s) - listed) exp(-b q)``, and every subset in it the same share.
    """
    coefficient = coefficient_of(utility_range, epsilon)
    if not isinstance(rank, int) or rank < 1:
        raise ParameterError("P018", f"rank must be an integer >= 1; got {rank}.")
    if gap is not None and (not isinstance(gap, int) or gap < 0):
        raise ParameterError("P018", f"gap must be an integer >= 0; got {gap}.")
    listed = SubsetList(subsets, n_candidates)
    exact = integer_scores(scores).tolist()
    limits = [] if gap is None or not exact else [min(exact) + gap]
    if len(exact) >= min(rank, listed.total):
        limits.append(sorted(exact)[min(rank, listed.total) - 1])
    if not limits:
        raise ParameterError("P018", "subsets must hold the best ones, as many as rank says.")
    limit = min(limits)
    capped = [min(value, limit) for value in exact]
    # An unlisted subset scores the limit: with that as bound, every uniform draw is accepted.
    return SubsetRejection(listed, capped, limit, lambda rows: [limit] * len(rows), coefficient).draw(source, progress)


class SubsetRejection:
    """The sampler behind `subset_exponential`; each call of `draw` returns an independent outcome.

    Parameters
    ----------
    listed : SubsetList
        Some subsets.
    scores : array_like of int, shape (listed,)
        Theirs.
    lower_bound : int
        On the scores of all others.
    score : callable
        Scores of unlisted subsets, as for `subset_exponential`.
    coefficient : Fraction
        b, > 0.
    floor, strata : callable, optional
        As for `subset_exponential`.
    """

    def __init__(
        self,
        listed: SubsetList,
        scores: ArrayLike,
        lower_bound: int,
        score: Scores,
        coefficient: Fraction,
        floor: Scores | None = None,
        strata: Callable[[], Strata] | None = None,
    ) -> None:
        self._scores = integer_scores(scores)
        if len(self._scores) != len(listed) or not isinstance(lower_bound, int):
            raise ParameterError("P018", "every listed subset must have a score, and lower_bound must be an integer.")
        self._listed, self._coefficient = listed, coefficient
        self._score, self._floor, self._strata = score, floor, strata
        tails = int(len(listed) < listed.total)
        # Candidates by class, for every division; None if all are in one class.
        self._grouped: NDArray[np.intp] | None = None
        self._division = np.zeros(tails, dtype=np.intp)
        self._divide([listed.n_candidates], np.full((tails, 1), listed.size), integer_scores([lower_bound] * tails))

    def draw(self, source: BitSource = SYSTEM, progress: Callable[[int], object] | None = None) -> tuple[int, ...]:
        """Return one outcome: s candidates, ascending."""
        reader = WordReader(source)
        work = max(1, _LARGEST_WORK // self._listed.size**2)
        rounds, batch = 0, 1
        while True:
            rounds += batch
            report = _silence if progress is None else partial(progress, rounds)
            subset = self._rounds(batch, source, reader, report)
            if subset is not None:
                return subset
            if rounds >= _PATIENCE and self._strata is not None:
                self._stratify(self._strata())
                self._strata = None
            batch = min(batch * _GROWTH, _LARGEST_BATCH, work)

    def _stratify(self, strata: Strata) -> None:
        """Replace the tail by strata."""
        classes, bounds = np.asarray(strata.classes), integer_scores(strata.lower_bounds)
        self._grouped, self._division = np.argsort(classes, axis=1, kind="stable"), strata.division
        ordered = np.take_along_axis(classes, self._grouped, axis=1)
        sizes = np.bincount(ordered[0], minlength=strata.counts.shape[1])
        proper = classes.shape[1] == self._listed.n_candidates and (ordered == ordered[0]).all()
        counted = len(sizes) == strata.counts.shape[1] and bool((strata.counts.sum(axis=1) == self._listed.size).all())
        if not (proper and counted and len(bounds) == len(strata.division) == len(strata.counts)):
            raise ParameterError(
                "P018", "strata must count s members in classes of equal sizes, and have a bound each."
            )
        # Disjoint: two strata differ where all divisions agree, or have one division and differ in it.
        varying = np.bincount(classes[:, (classes != classes[0]).any(axis=0)].ravel(), minlength=len(sizes)) > 0
        keys = np.column_stack((strata.counts[:, ~varying], strata.division))
        if count_distinct(strata.counts) < len(bounds) or count_distinct(keys) > count_distinct(keys[:, :-1]):
            raise ParameterError("P018", "strata must be disjoint.")
        self._divide(sizes.tolist(), strata.counts, bounds)

    def _divide(self, sizes: list[int], counts: NDArray[np.intp], bounds: Integers) -> None:
        """Set the branches: listed subsets, then strata."""
        self._sizes, self._counts, self._bounds = sizes, counts, bounds
        members = np.ones(len(counts), dtype=object)
        for size, column in zip(sizes, counts.T, strict=True):
            members *= np.array([math.comb(size, count) for count in range(self._listed.size + 1)], dtype=object)[
                column
            ]
        self._members = members.tolist()
        if 0 in self._members or (len(counts) and sum(self._members) != self._listed.total):
            raise ParameterError("P018", "strata must hold every subset, and none may be empty.")
        levels = self._scores.tolist() + self._bounds.tolist()
        # All weights are relative to exp(-b reference + scale).
        self._reference = min(levels)
        reference = integer_scores([self._reference])
        log_weights = -scaled(excess_over(self._scores, reference)[0], self._coefficient)
        log_sizes = np.array([math.log(size) for size in self._members])
        log_strata = log_sizes - scaled(excess_over(self._bounds, reference)[0], self._coefficient)
        self._scale = max(0.0, float(log_strata.max(initial=0.0)))
        self._unit_bits = min(WEIGHT_BITS, 62 - len(levels).bit_length())
        self._weights = weights_above(np.append(log_weights, log_strata) - self._scale, self._unit_bits)
        self._cumulative = np.cumsum(self._weights)

    def _rounds(
        self, count: int, source: BitSource, reader: WordReader, report: Callable[[], object]
    ) -> tuple[int, ...] | None:
        """Run independent rounds; return the result of the first successful one."""
        report()
        branches = np.searchsorted(
            self._cumulative, uniform_below(int(self._cumulative[-1]), count, source), side="right"
        )
        words = source.words(count)
        winner, end = None, count
        for position in np.flatnonzero(branches < len(self._listed)).tolist():
            branch = int(branches[position])
            if self._accepts(branch, int(self._scores[branch]), int(words[position]), reader):
                winner, end = tuple(self._listed.rows[branch].tolist()), position
                break
        # Only rounds before the first listed subset matter.
        tail = np.flatnonzero(branches[:end] >= len(self._listed))
        if not len(tail):
            return winner
        strata = branches[tail] - len(self._listed)
        proposals = self._proposals(strata, source)
        unlisted = ~self._listed.holds(proposals)
        subset = self._first_accepted(proposals[unlisted], strata[unlisted], words[tail[unlisted]], reader, report)
        return winner if subset is None else subset

    def _proposals(self, strata: NDArray[np.intp], source: BitSource) -> NDArray[np.intp]:
        """Return a uniform member of every stratum, members ascending."""
        proposals = np.empty((len(strata), self._listed.size), dtype=np.intp)
        filled = np.zeros(len(strata), dtype=np.intp)
        start = 0
        for size, counts in zip(self._sizes, self._counts[strata].T, strict=True):
            for count in np.unique(counts[counts > 0]).tolist():
                rows = np.flatnonzero(counts == count)
                chosen = start + uniform_subsets(size, count, len(rows), source)
                positions = filled[rows, None] + np.arange(count)
                proposals[rows[:, None], positions] = (
                    chosen if self._grouped is None else self._grouped[self._division[strata[rows], None], chosen]
                )
                filled[rows] += count
            start += size
        return np.sort(proposals, axis=1)

    def _first_accepted(
        self,
        proposals: NDArray[np.intp],
        strata: NDArray[np.intp],
        words: NDArray[np.uint64],
        reader: WordReader,
        report: Callable[[], object],
    ) -> tuple[int, ...] | None:
        """Return the first accepted proposal of the strata; the words hold the first bits of the rounds' variables."""
        floors = None
        if self._floor is not None and len(proposals):
            floors = _scored(self._floor, proposals)
            excess, below = excess_over(floors, self._bounds[strata])
            excess[below] = 0
            is_open = self._open(excess, words)
            proposals, strata, words, floors = proposals[is_open], strata[is_open], words[is_open], floors[is_open]
        for begin in range(0, len(proposals), _SCORED_AT_ONCE):
            report()
            part = slice(begin, begin + _SCORED_AT_ONCE)
            scores = _scored(self._score, proposals[part])
            excess, below = excess_over(scores, self._bounds[strata[part]])
            if below.any() or (floors is not None and (scores < floors[part]).any()):
                raise InternalError("I019", "a lower bound on the scores of subsets does not hold. Report this.")
            for position in self._open(excess, words[part]).tolist():
                branch = len(self._listed) + int(strata[begin + position])
                if self._accepts(branch, int(scores[position]), int(words[begin + position]), reader):
                    return tuple(proposals[begin + position].tolist())
        return None

    def _open(self, excess: Distances, words: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Return the proposals that are not certain to be rejected."""
        with np.errstate(divide="ignore"):
            at_most = -np.log(words.astype(np.float64) * 2.0**-64)
        at_least = scaled(excess, self._coefficient) * (1.0 - 2.0 * RELATIVE_ERROR)
        return np.flatnonzero(at_most + _RADIUS >= at_least)

    def _accepts(self, branch: int, score: int, word: int, reader: WordReader) -> bool:
        """Accept with probability (true weight) / (integer weight), times ``exp(-b (score - bound))`` in strata."""
        return LazyExponential(reader, word).exceeds(self._threshold(branch, score))

    def _threshold(self, branch: int, score: int) -> Callable[[int], Bounds]:
        """Return a function that encloses minus the logarithm of the acceptance probability."""
        stratum = branch - len(self._listed)
        members = self._members[stratum] if stratum >= 0 else 1
        exponent = self._coefficient * (score - self._reference) + Fraction(self._scale)
        return rejection_threshold(int(self._weights[branch]), members << self._unit_bits, exponent)


def rejection_threshold(weight: int, unit: int, exponent: Fraction) -> Callable[[int], Bounds]:
    """Return a function that encloses minus the logarithm of the chance to accept: ``unit exp(-exponent) / weight``.

    Raises
    ------
    InternalError
        I019, when a call finds a chance above 1.
    """

    def threshold(digits: int) -> Bounds:
        above, below = log_bounds(weight, digits), log_bounds(unit, digits)
        low, high = fraction_bounds(exponent, digits)
        if above[1] - below[0] + high < 0:
            raise InternalError("I019", "a bound of the subset exponential mechanism does not hold. Report this.")
        return above[0] - below[1] + low, above[1] - below[0] + high

    return threshold


def _silence() -> None:
    """Report nothing."""


def coefficient_of(utility_range: Fraction | int, epsilon: Fraction) -> Fraction:
    """Return ``epsilon / utility_range``; raise P018 unless both are positive."""
    check_selection(1, epsilon)
    if not isinstance(utility_range, int | Fraction) or not utility_range > 0:
        raise ParameterError("P018", f"utility_range must be an integer or a Fraction > 0; got {utility_range}.")
    return epsilon / utility_range


def _scored(score: Scores, subsets: NDArray[np.intp]) -> Integers:
    scores = integer_scores(score(subsets))
    if len(scores) != len(subsets):
        raise ParameterError("P018", "score and floor must return one integer per subset.")
    return scores


def excess_over(scores: Integers, references: Integers) -> tuple[Distances, NDArray[np.bool_]]:
    """Return ``abs(scores - references)`` exactly, and which scores are below."""
    below = np.asarray(scores < references, dtype=np.bool_)
    if scores.dtype == object or references.dtype == object:
        return np.abs(scores.astype(object) - references), below
    offset = scores.view(np.uint64) - references.view(np.uint64)  # modulo 2**64
    return np.where(below, np.uint64(0) - offset, offset), below
