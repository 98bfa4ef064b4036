"""Broken selections: half-scale noise, DP-SIS Algorithm 1 and Algorithm 2 as printed, a forgotten clip."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsql.noise.entropy import SYSTEM
from dpsql.testing.neighbours import Table
from support.laws.races import ordered_race_law, race_law

_UNIT = 1 << 20


def half_scale_law(
    utility: Sequence[int], *, utility_range: int, epsilon: Fraction, k: int = 1
) -> dict[tuple[int, ...], float]:
    """Exponential-noise top-k with noise of half the scale it needs.

    Notes
    -----
    - **What is wrong**: the range of ``|s_j|`` is twice its sensitivity, because one row can raise
      one score and lower another; here the sensitivity is used in its place.
    - **Caught by**: `check_exhaustively` (loss up to ``2 epsilon``), `audit`, `fit`.
    - **Counter-example**: four features, at most 3 rows, k = 2, epsilon = 1: loss 2.00 under add_remove,
      1.81 under replace.

    Parameters
    ----------
    utility, utility_range, epsilon, k
        As in `support.laws.races.ordered_race_law`.

    Returns
    -------
    law : dict
        Ordered tuple of k positions -> probability.
    """
    return dict(ordered_race_law(utility, utility_range=utility_range, epsilon=2 * epsilon, k=k))


def printed_canonical_lipschitz_law(
    utility: Sequence[int], *, utility_range: int, epsilon: Fraction, k: int, gamma: Fraction
) -> dict[tuple[int, ...], float]:
    """Exact law of the canonical Lipschitz mechanism as printed in the DP-SIS paper (Algorithm 2).

    Parameters
    ----------
    utility : sequence of int
        Scores, in the unit of `utility_range`.
    utility_range : int
        Twice the sensitivity of a score.
    epsilon : Fraction
        Claimed privacy loss, > 0.
    k : int
        Size of the subset, in [1, len(utility)].
    gamma : Fraction
        Weight in (0, 1).

    Returns
    -------
    law : dict
        Ascending tuple of k positions -> probability.

    Notes
    -----
    - **What is wrong**: the class (h, t) should leave out the best index that is not included,
      ``j_(h+1)``; as printed its body comes from ``{j_(h+1), ..., j_(t-1)}``, so that classes overlap
      and their sizes ``C(t-h-1, k-h-1)`` sum to more than ``C(d, k)`` (32 instead of 20 for 6, 3).
      The law then depends on how ties are ordered.
    - **Caught by**: `check_exhaustively`; through SQL by `audit_sql` on dp_broken_canonical.
    - **Counter-example**: epsilon = 1, gamma = 1/2, tables of at most 3 rows: loss 1.19 for d = 4, k = 2 and
      1.66 for d = 5, k = 3; gamma = 3/4 and scores (6, 6, 6, 6, 0) against (5, 5, 6, 7, 1): 1.77.
    """
    order = _order(utility)
    law: dict[tuple[int, ...], float] = {}
    classes, leads, sizes = _printed_classes(utility, order, utility_range, epsilon, k, gamma)
    for (h, t), chance in zip(classes, race_law(leads, sizes).tolist(), strict=True):
        bodies = _printed_bodies(h, t, k)
        for body in bodies:
            chosen = tuple(sorted(order[place] for place in (*range(h), *body, t - 1)))
            law[chosen] = law.get(chosen, 0.0) + chance / len(bodies)
    return law


def printed_canonical_lipschitz(
    utility: Sequence[int], *, utility_range: int, epsilon: Fraction, k: int, gamma: Fraction
) -> list[int]:
    """Draw from `printed_canonical_lipschitz_law`; ascending positions."""
    outputs, weights = _printed_outputs(tuple(utility), utility_range, epsilon, k, gamma)
    return list(random.Random(int(SYSTEM.words(1)[0])).choices(outputs, weights)[0])


def algorithm_1_scores(table: Table) -> NDArray[np.float64]:
    """Scores of DP-SIS Algorithm 1 as printed: centred by the data's means, scaled by the data's maxima.

    Parameters
    ----------
    table : tuple of tuple
        Rows of finite floats, the target last.

    Returns
    -------
    scores : ndarray of float64, shape (features,)
        Claimed to have sensitivity 1.

    Notes
    -----
    - **What is wrong**: one row moves every mean and every maximum, so the sensitivity grows with
      the number of rows.
    - **Caught by**: `check_sensitivity`, `check_exhaustively`, `audit`.
    - **Counter-example**: n rows (1, 1) and (-1, -1); one row (1e6, 1e6) more moves the score from
      n to less than 2: by 9.0, 99 and 999 for n = 10, 100 and 1000. The claim is 1.
    """
    rows = np.array(table, dtype=np.float64)
    if len(rows) == 0:
        return np.zeros(0)
    centred = rows - rows.mean(axis=0)
    largest = np.abs(centred).max(axis=0)
    scaled = centred / np.where(largest > 0, largest, 1.0)
    scores: NDArray[np.float64] = np.abs(scaled[:, :-1].T @ scaled[:, -1])
    return scores


def algorithm_1_law(table: Table, *, epsilon: Fraction, k: int = 1) -> dict[tuple[int, ...], float]:
    """Exponential-noise top-k on `algorithm_1_scores`, as if their sensitivity were 1.

    Notes
    -----
    - **What is wrong**: see `algorithm_1_scores`.
    - **Counter-example**: two features, n rows, top-1, epsilon = 1; one row with an outlier in one
      feature more: loss 4.4, 45.8 and 496 for n = 10, 100 and 1000.
    """
    utility = [round(score * _UNIT) for score in algorithm_1_scores(table)]
    return dict(ordered_race_law(utility, utility_range=2 * _UNIT, epsilon=epsilon, k=k))


def unclipped_centred_target(target: NDArray[np.int64], mean: int) -> NDArray[np.int64]:
    """Centre the target by a released mean, and forget to clip it again.

    Parameters
    ----------
    target : ndarray of int64, shape (n,)
        In ``[-S, S]``.
    mean : int
        A released number in ``[-S, S]``.

    Returns
    -------
    centred : ndarray of int64, shape (n,)
        In ``[-2 S, 2 S]``: a product with a feature has sensitivity up to ``2 S**2``, not ``S**2``.

    Notes
    -----
    - **Caught by**: `check_exhaustively` on the joint law of mean and selection.
    - **Counter-example**: targets in {-1, 0, 1}, two features, total epsilon 1.8, at most 2 rows: loss 2.70
      under add_remove with even shares, 1.91 under replace with a share of 0.3.
    """
    return target - mean


@lru_cache(maxsize=64)
def _printed_outputs(
    utility: tuple[int, ...], utility_range: int, epsilon: Fraction, k: int, gamma: Fraction
) -> tuple[list[tuple[int, ...]], list[float]]:
    law = printed_canonical_lipschitz_law(utility, utility_range=utility_range, epsilon=epsilon, k=k, gamma=gamma)
    return list(law), list(law.values())


def _order(utility: Sequence[int]) -> list[int]:
    """Positions from the largest score to the smallest; ties in their order."""
    return sorted(range(len(utility)), key=lambda j: (-utility[j], j))


def _printed_classes(
    utility: Sequence[int], order: Sequence[int], utility_range: int, epsilon: Fraction, k: int, gamma: Fraction
) -> tuple[list[tuple[int, int]], list[float], list[int]]:
    ranked = [utility[j] for j in order]
    classes = [(k - 1, k)] + [(h, t) for t in range(k + 1, len(ranked) + 1) for h in range(k)]
    coefficient = Fraction(epsilon) / utility_range
    leads = [float(coefficient * (gamma * ranked[t - 1] - (1 - gamma) * ranked[h])) for h, t in classes]
    sizes = [1 if t == k else math.comb(t - h - 1, k - h - 1) for h, t in classes]
    return classes, leads, sizes


def _printed_bodies(h: int, t: int, k: int) -> list[tuple[int, ...]]:
    """Places (from 0) that fill class (h, t) between its head and ``j_t``."""
    return list(itertools.combinations(range(h, t - 1), k - h - 1))
