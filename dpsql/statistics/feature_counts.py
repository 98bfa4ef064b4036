"""Counts of binary features by label: the statistic of feature filters, and its sensitivity.

A row has a positive or a negative label, and holds at most r of d features ("ones"), each once. ``n11_j`` and ``n10_j``
count the positive and the negative rows that hold feature j; ``n1`` and ``n0`` are the class sizes. A row without a
label is ignored. The limit r is enforced by a sample that depends on the row alone; it is never assumed. Repeats of a
feature in a row are dropped first, because they would move one coordinate by more than 1.

Scores of a feature, ``n01 = n1 - n11`` and ``n00 = n0 - n10``:

- ``total_count``: ``n11 + n10``.
- ``difference_count``: ``|n11 - n10|``.
- ``purity``: ``max(|n11 - n10|, |n01 - n00|)``.
- ``information_gain``: n times the mutual information of feature and label, in nats, where n is the number of rows.
  Twice this score is the G statistic of the 2 x 2 table, which is approximately chi-square with one degree of freedom
  if feature and label are independent.

Noise is added to the following numbers, with ``R = min(r, d)``; everything else is computed from the noisy numbers:

=================================  =======================  ============  ============  ==================  ============
released (for the score)           numbers                  A/R: L1       squared L2    replace: L1         squared L2
=================================  =======================  ============  ============  ==================  ============
totals (total_count)               n11 + n10                R             R             min(2 R, d)         min(2 R, d)
differences (difference_count)     n11 - n10                R             R             2 R                 4 R
differences_and_labels (purity)    n11 - n10, n1 - n0       R + 1         R + 1         2 (R + 1)           4 (R + 1)
counts (clusters)                  n11, n10                 R             R             2 R                 2 R
counts_and_labels                  n11, n10, n1, n0         R + 1         R + 1         2 (R + 1)           2 (R + 1)
(information_gain)
=================================  =======================  ============  ============  ==================  ============

Proof. An added row with the set S of at most R features moves one coordinate by 1 for each of them, and one for its
label. A replacement removes a row with S and adds one with T. *totals*: features in both cancel, so each feature in the
symmetric difference of S and T moves by 1: at most 2 R of d. *counts*, different labels: S moves in one half and T in
the other, nothing cancels, and all changes are 1. With equal labels it is the symmetric difference again.
*differences*, different labels: both rows move the differences in the same direction, features in both by 2. With
``a = |S and T|`` the sum of squares is ``|S| + |T| - 2 a + 4 a``, which is largest for S = T. Hence 4 R, twice the
bound for two independent changes. The label difference moves by 2 as well.

For units of up to m rows, the rows can be exchanged one at a time, so norms are multiplied by m and squares by
``m**2``.

Selections and the sparse vector technique read exact scores. Sensitivity of one score, and range over all scores:

==================  ==================================  ========================  ==========================
score               A/R: sensitivity, range             replace                   why
==================  ==================================  ========================  ==========================
total_count         1, 1                                1, 2                      an added row raises or keeps
difference_count    1, min(R, 2)                        2, 2 min(R, 2)            with two features, one can
                                                                                  rise and the other fall
purity              1, 1                                2, 2                      see below
information_gain    D, 2 D                              D, 2 D                    `information_sensitivity`
==================  ==================================  ========================  ==========================

*difference_count* with R = 1 under replace: a changed label moves one score by up to 2 and no other; changed features
move two scores by 1 each. So the range is 2.

*purity* of every feature moves with the label, but most of the change is common to all features and does not affect a
selection. Let s be the difference of a feature and t that of the labels. Then
``max(|s|, |t - s|) = |t| / 2 + |s - t / 2|``. An added row moves ``s - t / 2`` by 1/2, up for features that it holds
and down for others, or the reverse. So the second term moves within [-1/2, 1/2]. A replaced row does so twice.

For units of m rows, multiply by m.

For ``information_gain`` the largest number of rows must be public, because D grows with it. The limit keeps the rows
with the smallest keyed hashes, so in a full table an added row may replace another. The bound covers this, because D
is the same for both relations. The bounds of the other scores do not, so they take no such limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.relation import relation_of
from dpsql.errors import ParameterError
from dpsql.noise.exact import log_bounds

SCORES = ("total_count", "difference_count", "purity", "information_gain")
RELEASED = ("totals", "differences", "differences_and_labels", "counts", "counts_and_labels")
# The statistic that is released for each score.
RELEASED_FOR = {
    "total_count": "totals",
    "difference_count": "differences",
    "purity": "differences_and_labels",
    "information_gain": "counts_and_labels",
}
# One nat, in the unit of exact information scores.
INFORMATION_UNIT = 1 << 20
LARGEST_ROWS = 1 << 32

_DIGITS = 40
# Number of terms n log n in an information score.
_TERMS = 9


@dataclass(frozen=True)
class Norms:
    """Sensitivities of released numbers.

    Attributes
    ----------
    l1 : int
        Largest sum of changes, in rows.
    squared_l2 : int
        Largest sum of squared changes, in rows squared.
    """

    l1: int
    squared_l2: int


def released_norms(
    released: str,
    neighbours: str,
    *,
    max_features_per_row: int,
    n_features: int | None = None,
    max_rows_per_unit: int = 1,
) -> Norms:
    """Return the sensitivities of released numbers.

    Parameters
    ----------
    released : str
        One of `RELEASED`.
    neighbours : {'add_remove', 'replace'}
    max_features_per_row : int
        Largest number of features that one row holds, >= 1; enforced.
    n_features : int, optional
        Public number of features, >= 1. If unknown, it is assumed to be at least as large as a row's number.
    max_rows_per_unit : int
        Largest number of rows of one privacy unit, >= 1.

    Returns
    -------
    norms : Norms

    Raises
    ------
    ParameterError
        P018 (neighbours, max_rows_per_unit, max_features_per_row, n_features).
    """
    relation, ones = relation_of(neighbours, max_rows_per_unit), _ones(max_features_per_row, n_features)
    if released not in RELEASED:
        raise ParameterError("P018", f"released must be one of {', '.join(RELEASED)}; got {released!r}.")
    moved = ones + 1 if released.endswith("labels") else ones
    # Differences move by -1 or by 1, so the effects of a removed and an added row may add up in each of them.
    norms = Norms(relation.norm(moved), relation.squared_norm(moved, opposing=released.startswith("differences")))
    if released == "totals" and n_features is not None:
        # A replaced row moves by 1 each feature that only one of the two rows has, at most all features.
        most = relation.rows * n_features
        return Norms(min(norms.l1, most), min(norms.squared_l2, relation.rows * most))
    return norms


def score_sensitivity(
    score: str, neighbours: str, *, max_rows_per_unit: int = 1, largest_rows: int | None = None
) -> int:
    """Return the sensitivity of one exact score.

    Parameters
    ----------
    score : str
        One of `SCORES`.
    neighbours : {'add_remove', 'replace'}
    max_rows_per_unit : int
        >= 1.
    largest_rows : int, optional
        Public, enforced limit on the number of rows that count; for ``information_gain``.

    Returns
    -------
    sensitivity : int
        In the unit of `exact_scores`.

    Raises
    ------
    ParameterError
        P018 (neighbours, max_rows_per_unit, score, largest_rows).
    """
    relation = relation_of(neighbours, max_rows_per_unit)
    _check_score(score)
    if score == "information_gain":  # the bound holds for an added, a removed and a replaced row
        return relation.rise(information_sensitivity(largest_rows))
    return relation.rise(1) if score == "total_count" else relation.norm(1)


def score_range(
    score: str,
    neighbours: str,
    *,
    max_features_per_row: int,
    n_features: int | None = None,
    max_rows_per_unit: int = 1,
    largest_rows: int | None = None,
) -> int:
    """Return the largest spread of the changes of all exact scores, to which a selection is calibrated.

    Parameters
    ----------
    score, neighbours, max_rows_per_unit, largest_rows
        As for `score_sensitivity`.
    max_features_per_row, n_features
        As for `released_norms`.

    Returns
    -------
    spread : int
        In the unit of `exact_scores`.

    Raises
    ------
    ParameterError
        As `score_sensitivity` and `released_norms` do.
    """
    relation, ones = relation_of(neighbours, max_rows_per_unit), _ones(max_features_per_row, n_features)
    if score == "information_gain":  # up or down; the bound also holds for a replaced row
        return 2 * score_sensitivity(score, neighbours, max_rows_per_unit=max_rows_per_unit, largest_rows=largest_rows)
    _check_score(score)
    # One row may raise the difference of one feature and lower that of another.
    return relation.spread(2 if score == "difference_count" and ones > 1 else 1)


def is_monotone(score: str, neighbours: str) -> bool:
    """Return whether all exact scores move in the same direction between neighbouring tables."""
    return score == "total_count" and relation_of(neighbours).pick(added=True, replaced=False)


def information_sensitivity(largest_rows: int | None) -> int:
    """Return the sensitivity of one exact information score to an added, removed or replaced row.

    Parameters
    ----------
    largest_rows : int
        Largest number of rows of either table, in [1, 2**32].

    Returns
    -------
    sensitivity : int
        In units of 1 / `INFORMATION_UNIT` nats, rounded up; includes the rounding errors of both scores.

    Raises
    ------
    ParameterError
        P018, when `largest_rows` is missing or out of range.

    Notes
    -----
    n times the mutual information moves by at most ``f(n) = n ln n - (n - 1) ln(n - 1) <= 1 + ln n`` between tables
    of at most n rows, under either relation (PrivBayes; every table of up to 41 rows was enumerated in the review,
    up to 15 in the tests). f grows with n, so the bound at the limit holds for all smaller tables.

    `exact_scores` rounds nine terms ``k ln k``, k <= n. A double ``ln k`` is within ``2**-40`` (see
    `dpsql.noise.discrete`), so each term is off by at most ``1/2 + n 2**-19`` units: the product with k and its
    rounding take ``k (2**-20 + 22.2 * 2**-33)``. Two scores of nine terms are off by 18 times that together.
    """
    if not isinstance(largest_rows, int) or not 1 <= largest_rows <= LARGEST_ROWS:
        raise ParameterError(
            "P018",
            "information_gain with this method needs n_max, a public limit of the rows that are counted, "
            f"from 1 to {LARGEST_ROWS}.",
        )
    unit = 10**_DIGITS
    high = largest_rows * log_bounds(largest_rows, _DIGITS)[1]
    low = (largest_rows - 1) * log_bounds(max(1, largest_rows - 1), _DIGITS)[0]
    exact: int = -(-(high - low) * INFORMATION_UNIT // unit)
    rounding = _TERMS + -(-2 * _TERMS * largest_rows // (1 << 19))
    return exact + rounding


def exact_scores(
    score: str, positives: NDArray[np.int64], negatives: NDArray[np.int64], n_positive: int, n_negative: int
) -> NDArray[np.int64]:
    """Return the scores of all features as integers.

    Parameters
    ----------
    score : str
        One of `SCORES`.
    positives, negatives : ndarray of int64, shape (d,)
        ``n11`` and ``n10``.
    n_positive, n_negative : int
        ``n1`` and ``n0``, together at most 2**32 for ``information_gain``.

    Returns
    -------
    scores : ndarray of int64, shape (d,)
        In rows; ``information_gain`` in units of 1 / `INFORMATION_UNIT` nats, within `information_sensitivity`.
    """
    _check_score(score)
    positives, negatives = np.asarray(positives, np.int64), np.asarray(negatives, np.int64)
    if score == "total_count":
        return np.asarray(positives + negatives)
    difference: NDArray[np.int64] = np.abs(positives - negatives)
    if score == "difference_count":
        return difference
    if score == "purity":
        return np.asarray(np.maximum(difference, np.abs((n_positive - n_negative) - (positives - negatives))))
    ones, rows = positives + negatives, n_positive + n_negative
    total = _n_log_n(np.array([rows])) - _n_log_n(np.array([n_positive])) - _n_log_n(np.array([n_negative]))
    inside = _n_log_n(positives) + _n_log_n(negatives)
    inside += _n_log_n(n_positive - positives) + _n_log_n(n_negative - negatives)
    return np.asarray(inside - _n_log_n(ones) - _n_log_n(rows - ones) + total)


def _n_log_n(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``k ln k`` in units of 1 / `INFORMATION_UNIT`, within ``1/2 + k 2**-19``; 0 for k = 0."""
    values = np.maximum(counts, 1).astype(np.float64)
    return np.rint(values * np.log(values) * INFORMATION_UNIT).astype(np.int64)


def _check_score(score: str) -> None:
    if score not in SCORES:
        raise ParameterError("P018", f"score must be one of {', '.join(SCORES)}; got {score!r}.")


def _ones(max_features_per_row: int, n_features: int | None) -> int:
    """Check the arguments and return the largest number of features that one row holds."""
    for name, value in (
        ("max_features_per_row", max_features_per_row),
        ("n_features", 1 if n_features is None else n_features),
    ):
        if not isinstance(value, int) or not value >= 1:
            raise ParameterError("P018", f"{name} must be an integer >= 1; got {value}.")
    return max_features_per_row if n_features is None else min(max_features_per_row, n_features)


def present_in(features: NDArray[np.float32] | NDArray[np.float64], above: float | None) -> NDArray[np.bool_]:
    """Return which features are present: those above a number, or, without a number, neither zero nor NaN."""
    found: NDArray[np.bool_] = (features != 0) & ~np.isnan(features) if above is None else features > above
    return found
