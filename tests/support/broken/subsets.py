"""Broken selections of a subset: misread rejection, a cut that gives way, the 'mistakes' estimator, a wrong range.

Every function returns an exact output law, subset -> probability. The sampler is
`dpsql.mechanisms.subset_exponential`; its law is `exponential_law` of the scores.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Subset = tuple[int, ...]
Law = dict[Subset, float]


def exponential_law(scores: Mapping[Subset, float], *, utility_range: float, epsilon: float) -> Law:
    """Return the law of the exponential mechanism, which is private: ``P(A)`` proportional to ``exp(-b score(A))``.

    Parameters
    ----------
    scores : mapping
        Subset -> score, smaller is better.
    utility_range : float
        > 0, in the unit of the scores.
    epsilon : float
        > 0.

    Returns
    -------
    law : dict
        Subset -> probability.
    """
    return _normalised({subset: -epsilon / utility_range * score for subset, score in scores.items()})


def accepted_listed_law(
    scores: Mapping[Subset, int], listed: Collection[Subset], lower_bound: int, *, utility_range: float, epsilon: float
) -> Law:
    """Rejection sampling, but a listed set that the tail's uniform draw gives is treated like the others.

    Parameters
    ----------
    scores : mapping
        Subset -> score, for all subsets.
    listed : collection of subsets
        Those with a branch of their own.
    lower_bound : int
        Certified: at most the score of any subset that is not listed.
    utility_range, epsilon : float
        As for `exponential_law`.

    Returns
    -------
    law : dict
        Subset -> probability.

    Notes
    -----
    - **What is wrong**: listed sets come up twice, so the law depends on which sets the solver listed.
    - **Caught by**: the log ratio of exact laws; `fit`.
    - **Counter-example**: two sets with scores (0, 0) and bound 0, with the first or the second listed: 2/3 against
      1/3, log ratio ln 2 at every epsilon, on one table. Nine sets of which the best six are listed: 3.7 epsilon at
      epsilon = 1/4, 1.7 epsilon at 1 (tests/privacy/test_broken_subsets.py, as the numbers below).
    """
    b = epsilon / utility_range
    weights = {subset: -b * max(score, lower_bound) for subset, score in scores.items()}
    for subset in listed:
        weights[subset] = float(np.logaddexp(weights[subset], -b * scores[subset]))
    return _normalised(weights)


def kept_branch_law(
    scores: Mapping[Subset, int], listed: Collection[Subset], lower_bound: int, *, utility_range: float, epsilon: float
) -> Law:
    """Rejection sampling, but after a rejection only the tail's uniform draw is repeated.

    Parameters
    ----------
    scores, listed, lower_bound, utility_range, epsilon
        As for `accepted_listed_law`.

    Returns
    -------
    law : dict
        Subset -> probability.

    Notes
    -----
    - **What is wrong**: the tail keeps the weight of its envelope, ``C(p, s) exp(-b lower_bound)``, however loose.
    - **Counter-example**: as for `accepted_listed_law`, 1/3 against 2/3. Eight of nine sets listed: 9.6 epsilon at
      epsilon = 1/4, 3.2 epsilon at 1.
    """
    b = epsilon / utility_range
    return _split(scores, listed, b, math.log(len(scores)) - b * lower_bound)


def overweight_tail_law(
    scores: Mapping[Subset, int], listed: Collection[Subset], lower_bound: int, *, utility_range: float, epsilon: float
) -> Law:
    """Rejection sampling with a uniform draw among the unlisted sets, but the weight of all of them.

    Parameters
    ----------
    scores, listed, lower_bound, utility_range, epsilon
        As for `accepted_listed_law`.

    Returns
    -------
    law : dict
        Subset -> probability.

    Notes
    -----
    - **What is wrong**: the tail has weight ``C(p, s) exp(-b lower_bound)`` where ``C(p, s) - listed`` belongs: its
      sets are likelier than their scores say, by a factor that depends on the length of the list.
    - **Counter-example**: as for `accepted_listed_law`, 1/3 against 2/3. Eight of nine sets listed: 9.2 epsilon at
      epsilon = 1/4, 2.8 epsilon at 1.
    """
    b = epsilon / utility_range
    log_inflation = math.log(len(scores)) - math.log(max(1, len(scores) - len(listed)))
    return _normalised({A: -b * score + (0.0 if A in listed else log_inflation) for A, score in scores.items()})


def unsound_bound_law(
    scores: Mapping[Subset, int], listed: Collection[Subset], lower_bound: int, *, utility_range: float, epsilon: float
) -> Law:
    """Rejection sampling with a lower bound that some unlisted scores undercut, and nothing that notices.

    Parameters
    ----------
    scores, listed, lower_bound, utility_range, epsilon
        As for `accepted_listed_law`, but for the bound.

    Returns
    -------
    law : dict
        Subset -> probability.

    Notes
    -----
    - **What is wrong**: acceptance probabilities above 1 count as 1, so that an unlisted set has the score
      ``max(score, lower_bound)`` and a listed one its own.
    - **Counter-example**: the last listed score plus twice the range, eight of nine sets listed: 3.0 epsilon.
    """
    kept = {subset: score if subset in listed else max(score, lower_bound) for subset, score in scores.items()}
    return exponential_law(kept, utility_range=utility_range, epsilon=epsilon)


def limit_decides_law(
    at_once: Callable[[Any], Law], in_steps: Callable[[Any], Law], table: Sequence[object], *, limit: int
) -> Law:
    """Draw from one law while a search meets no limit, and from another law where it does.

    Parameters
    ----------
    at_once, in_steps : callable
        Table -> law; each of them is private.
    table : sequence of rows
    limit : int
        What the search may take; here it takes as much as there are rows.

    Returns
    -------
    law : dict
        Subset -> probability.

    Notes
    -----
    - **What is wrong**: which law is drawn depends on the rows. The loss is that of one law against the other.
    - **Counter-example**: 1,001 rows that three of four columns fit together, k = 3, epsilon = 1: more than 2
      (tests/privacy/test_best_subset_steps.py). There is no bound on it.
    """
    return at_once(table) if len(table) <= limit else in_steps(table)


def shrinking_gap_law(
    scores: Mapping[Subset, int], *, gap: float, most: int, utility_range: float, epsilon: float
) -> Law:
    """Scores cut off at the best one plus a gap, which is divided by 4 when more than `most` sets are within it.

    Parameters
    ----------
    scores, utility_range, epsilon
        As for `exponential_law`.
    gap : float
        >= 0, public.
    most : int
        Longest list, public.

    Returns
    -------
    law : dict
        Subset -> probability.

    Notes
    -----
    - **What is wrong**: whether the list overflows depends on the table, and the gap then changes by 3/4 of itself,
      not by the range. ``min(score, best + gap, score of rank most)`` is private.
    - **Counter-example**: two sets with scores (39, 2), then (43, 2), range 4, gap 40, lists of one set at most: loss
      7.4 at epsilon = 1.
    """
    best = min(scores.values())
    if sum(score <= best + gap for score in scores.values()) > most:
        gap /= 4
    cut = {subset: min(score, best + gap) for subset, score in scores.items()}
    return exponential_law(cut, utility_range=utility_range, epsilon=epsilon)


def mistakes_law(scores: Mapping[Subset, float], *, utility_range: float, epsilon: float) -> Law:
    """Draw how many members of the best set to replace, then a set that does: the 'mistakes' estimator.

    ``P(k)`` is proportional to ``C(s, k) C(p - s, k) exp(-b min score)``, the minimum over the sets that differ from
    the best one in k members; the set is uniform among these.

    Parameters
    ----------
    scores, utility_range, epsilon
        As for `exponential_law`.

    Returns
    -------
    law : dict
        Subset -> probability.

    Notes
    -----
    - **What is wrong**: what a set scores depends on its distance to the best set, which is not stable: when the best
      one of two disjoint sets changes, scores jump by as much as they differ at all, in proportion to the rows.
    - **Counter-example**: `near_tie`, one row more, coefficients in a ball of radius 3/2, epsilon = 1: loss 0.46, 2.3,
      9.8 and 40 for 17, 65, 257 and 1025 rows.
    """
    return _mistakes(scores, epsilon / utility_range, lambda members: {A: 1.0 / len(members) for A in members})


def best_of_class_law(scores: Mapping[Subset, float], *, utility_range: float, epsilon: float) -> Law:
    """Draw how many members of the best set to replace, and return the best set that does.

    Parameters
    ----------
    scores, utility_range, epsilon
        As for `exponential_law`.

    Returns
    -------
    law : dict
        Subset -> probability; only one set per number of mistakes.

    Notes
    -----
    The 'mistakes' estimator as its authors' program has it: the best set of a class instead of a uniform one.

    - **What is wrong**: most sets are never returned, and which ones can be depends on the table: infinite loss.
    - **Counter-example**: `near_tie`, one row more.
    """
    return _mistakes(scores, epsilon / utility_range, lambda members: {min(members, key=lambda A: (scores[A], A)): 1.0})


def range_without_radius(*, feature_bound: float, target_bound: float, size: int) -> float:
    """Return the bound on a row's squared residual that forgets how long the coefficients may be.

    Parameters
    ----------
    feature_bound, target_bound : float
        Absolute bounds on features and target, > 0.
    size : int
        Members of a subset.

    Returns
    -------
    utility_range : float
        ``(target_bound + feature_bound sqrt(size))**2``; with coefficients in a ball of radius r it is
        ``(target_bound + feature_bound r sqrt(size))**2``.

    Notes
    -----
    - **Counter-example**: `steep_rows`: radius 3, s = 1, epsilon = 1, one row more: loss 3.3 (0.61 with the radius).
    """
    return (target_bound + feature_bound * math.sqrt(size)) ** 2


def ball_scores(features: ArrayLike, target: ArrayLike, size: int, radius: float) -> dict[Subset, float]:
    """Return every subset's least squares within the ball ``||b|| <= radius``, by brute force in doubles.

    Parameters
    ----------
    features : array_like, shape (n, p)
    target : array_like, shape (n,)
    size : int
        s, members of a subset.
    radius : float
        > 0.

    Returns
    -------
    scores : dict
        Subset -> least sum of squares.
    """
    x, y = np.asarray(features, dtype=np.float64), np.asarray(target, dtype=np.float64)
    return {A: _ball_score(x[:, list(A)], y, radius) for A in itertools.combinations(range(x.shape[1]), size)}


def near_tie(repeats: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], float]:
    """Return a table on which two disjoint pairs of features fit the target equally well, and a row that decides.

    The target is ``x0 + x1 = x2 + x3``, apart from one row that the first pair fits better; x4 is independent of all.

    Parameters
    ----------
    repeats : int
        >= 1; the table has ``16 repeats + 1`` rows.

    Returns
    -------
    features : ndarray of float64, shape (n, 5)
        In [-1/2, 1/2].
    target : ndarray of float64, shape (n,)
        In [-1, 1].
    row : ndarray of float64, shape (5,)
        Features of a further row, which makes the second pair the better one.
    value : float
        Its target.
    """
    block = []
    for sign, mixed, noise in itertools.product((-0.5, 0.5), repeat=3):
        block += [((sign, sign, sign, sign, noise), 2 * sign), ((sign, -sign, mixed, -mixed, noise), 0.0)]
    table = block * repeats + [((0.5, 0.25, 0.25, 0.0, 0.5), 1.0)]
    features = np.array([row for row, _ in table])
    target = np.array([value for _, value in table])
    return features, target, np.array([-0.5, -0.25, 0.25, 0.5, 0.5]), 1.0


def steep_rows(rows: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], float]:
    """Return a table that two features fit equally well with coefficient 3, and a row that one of them misses by 2.

    Parameters
    ----------
    rows : int
        n.

    Returns
    -------
    features : ndarray of float64, shape (n, 2)
        In [-1/2, 1/2].
    target : ndarray of float64, shape (n,)
        In [-1/2, 1/2].
    row : ndarray of float64, shape (2,)
        Features of a further row.
    value : float
        Its target.
    """
    return np.full((rows, 2), 1 / 6), np.full(rows, 0.5), np.array([-0.5, 1 / 6]), 0.5


def _normalised(log_weights: Mapping[Subset, float]) -> Law:
    """Return the law with these log weights, without underflow for all but hopeless subsets."""
    largest = max(log_weights.values())
    total = math.fsum(math.exp(weight - largest) for weight in log_weights.values())
    return {subset: math.exp(weight - largest) / total for subset, weight in log_weights.items()}


def _split(scores: Mapping[Subset, int], listed: Collection[Subset], b: float, log_tail: float) -> Law:
    """Return the law of listed sets with their weights, and a tail with its own that unlisted sets share by theirs."""
    rest = {subset: -b * score for subset, score in scores.items() if subset not in listed}
    weights = {subset: -b * scores[subset] for subset in listed}
    weights |= {subset: log_tail + math.log(share) for subset, share in (_normalised(rest) if rest else {}).items()}
    return _normalised(weights)


def _mistakes(
    scores: Mapping[Subset, float], b: float, members: Callable[[list[Subset]], Mapping[Subset, float]]
) -> Law:
    best = min(scores, key=lambda A: (scores[A], A))
    classes: dict[int, list[Subset]] = {}
    for subset in scores:
        classes.setdefault(len(set(best) - set(subset)), []).append(subset)
    weights = {
        A: math.log(len(group) * share) - b * min(scores[B] for B in group)
        for group in classes.values()
        for A, share in members(group).items()
    }
    return _normalised(weights)


def _ball_score(x: NDArray[np.float64], y: NDArray[np.float64], radius: float) -> float:
    """Least squares with ``||b|| <= radius``: bisection on the multiplier of the ball."""
    values, vectors = np.linalg.eigh(x.T @ x)
    rotated = vectors.T @ (x.T @ y)

    def solution(multiplier: float) -> NDArray[np.float64]:
        return np.divide(rotated, values + multiplier, out=np.zeros_like(rotated), where=values + multiplier > 1e-12)

    low, high = 0.0, float(np.linalg.norm(rotated)) / radius
    if np.linalg.norm(solution(0.0)) > radius:
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if np.linalg.norm(solution(middle)) > radius else (low, middle)
        low = high
    residual = y - x @ (vectors @ solution(low))
    return float(residual @ residual)
