"""Define counts of binary features by label, the statistic of feature filters, and their sensitivity.

A row has a positive or a negative label, and holds k of d features ("ones"), each once. All features of a row count r
rows together at most: each counts ``v = 1`` if k <= r, and ``v = r / k`` in a crowded row, which has more. ``n11_j``
and ``n10_j`` add up the counts of feature j in the positive and in the negative rows; ``n1`` and ``n0`` are the class
sizes. A row without a label is ignored. Repeats of a feature in a row are dropped first, because they would move one
coordinate by more than 1.

Counts are integers in units of ``1 / denominator`` rows (`fixed_denominator`), and the share of a crowded row is
rounded down in it, so that ``k v <= r`` holds exactly. If d <= r no row can be crowded: then the unit is a row. Noise
has the same unit as the counts, and follows from public numbers alone. No row has random choices: the same rows give
the same integers on every engine, and rows that differ only in their label count alike.

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

Proof. An added row moves the coordinates of its label by a vector s with entries in [0, 1] whose sum is at most R: each
of k <= R features counts 1, of more r / k or less. So ``|s|_1 <= R``, and ``|s|_2**2 <= |s|_1 <= R`` because no entry
is above 1. The label moves one coordinate by 1. A replacement removes a row with s and adds one with t. *totals*: an
entry of ``t - s`` is at most 1, so L1 is at most d, and at most 2 R; squares are no larger. *counts*, different labels:
s moves in one half and t in the other, 2 R in L1 and in squares. With equal labels ``t - s`` has the squares ``|s|**2 +
|t|**2 - 2 s t``, which is no more, because no entry is negative. *differences*, different labels: both rows move the
differences in the same direction, and ``|s + t|_2**2 <= (2 sqrt(R))**2 = 4 R``, twice the bound for two independent
changes; s = t attains it. The label difference moves by 2 as well.

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

*difference_count*: the rise of one score and the fall of another by an added row are together at most the two largest
entries of s, hence at most min(R, 2). A replacement adds the ranges of two rows. With R = 1 a changed label moves one
score by up to 2 and no other; changed features move two scores by 1 each.

*purity* of every feature moves with the label, but most of the change is common to all features and does not affect a
selection. Let s be the difference of a feature and t the difference of the labels. Then ``max(|s|, |t - s|) = |t| / 2 +
|s - t / 2|``. An added row moves s by v in [0, 1] and t by 1, in the same direction, hence ``s - t / 2`` by ``v -
1/2``. So the second term moves within [-1/2, 1/2]. A replaced row does so twice.

For units of m rows, multiply by m.

For ``information_gain`` the largest number of rows must be public, because D grows with it. The limit keeps the rows
with the smallest keyed hashes, so in a full table an added row may replace another. The bound covers this, because D is
the same for both relations. The bounds of the other scores do not, so they have no such limit.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.parameters import show
from dpsql.contract.relation import relation_of
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.kernels.fixed_point import FIXED_POINT_ONE
from dpsql.noise.discrete import LARGEST_SCALE, log_bounds

SCORES = ("total_count", "difference_count", "purity", "information_gain")
RELEASED = ("totals", "differences", "differences_and_labels", "counts", "counts_and_labels")
# The released statistic of each score.
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


def fixed_denominator(max_features_per_row: int, n_features: int | None, widest: Fraction) -> int:
    """Return one row in the unit of the counts: a power of two that follows from public numbers.

    It is 1 if no row can have more features than count. Otherwise it is ``2**20``, or less to keep the noise within the
    sampler's range.

    Parameters
    ----------
    max_features_per_row : int
    n_features : int or None
        None if the number is not known yet.
    widest : Fraction
        Largest scale of Laplace noise on a count, in rows; 0 without such noise.
    """
    if n_features is not None and n_features <= max_features_per_row:
        return 1
    denominator = FIXED_POINT_ONE
    while denominator > 1 and widest * denominator > LARGEST_SCALE:
        denominator //= 2
    return denominator


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
        raise ParameterError("P018", f"released must be one of {', '.join(RELEASED)}; got {show(released)}.")
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
    """Return the largest spread of the changes of all exact scores, for calibrating a selection.

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
    # One row may raise one feature's difference and lower another one.
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
    n times the mutual information moves by at most ``f(n) = n ln n - (n - 1) ln(n - 1) <= 1 + ln n`` between tables of
    at most n rows, under either relation (PrivBayes; the review enumerated every table of up to 41 rows, the tests up
    to 15). f grows with n, so the bound at the limit holds for all smaller tables.

    A row of a crowded table lies in two cells: v of it has the feature, 1 - v has not. The bound holds for any v. Let
    ``g(x) = x ln x``, ``L_w(x) = g(x + w) - g(x)``, which grows with x and is concave. Let (a, b) be the parts of the
    rows of one label with and without the feature, (a', b') the parts of the other label, m and m' their sums, which
    are whole numbers, A = a + a' and B = b + b', so that n - 1 = m + m' rows are common to both tables. A row adds
    ``q(a, b; v) = L_1(a + b) - L_v(a) - L_{1-v}(b)`` to the entropy of (a, b) times its sum. If a = b = 0 this is the
    entropy h of v; else it is from h to ``L_1(a + b)``: it is least if (a, b) is parallel to (v, 1 - v), and largest if
    a or b is 0.

    - *Added*: the score rises by ``q(A, B; v) - q(a, b; v)``, a difference of two numbers between h and f(n); for m =
      0 < n - 1 the second is h, and for n = 1 the difference is 0.
    - *Replaced, equal labels*, from v to w > v: it rises by ``L_{w-v}(B + 1 - w) - L_{w-v}(b + 1 - w)``, which is
      from 0 to ``L_1(n - 1) - L_1(0) = f(n)``, and falls by ``L_{w-v}(A + v) - L_{w-v}(a + v)``, with the same range.
    - *Replaced, other labels*, from w at (a', b') to v at (a, b): ``L_v(a) <= L_v(A)`` and the same for b leave
      ``L_1(m') - L_1(m) + L_w(A) - L_w(a') + L_{1-w}(B) - L_{1-w}(b')``. With derivatives ``L_w(A) - L_w(a') = integral
      over t in [0, 1] of w ln(1 + a / (a' + t w))``, and Jensen's inequality bounds both integrands together by ``ln(1
      + m / t)``, whose integral is L_1(m). So the rest is at most ``L_1(m') <= f(n)``.

    `exact_scores` rounds nine terms ``k ln k``, k <= n. A double ``ln k`` is within ``2**-40`` (see
    `dpsql.noise.discrete`), so each term is off by at most ``1/2 + n 2**-19`` units: the product with k and its
    rounding take ``k (2**-20 + 22.2 * 2**-33)``. Two scores of nine terms are off by 18 times that together. Counts in
    units of ``1 / denominator`` rows are below ``2**53``, so k is the exact double.
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
    score: str,
    positives: NDArray[np.int64],
    negatives: NDArray[np.int64],
    n_positive: int,
    n_negative: int,
    denominator: int = 1,
) -> NDArray[np.int64]:
    """Return the scores of all features as integers.

    Parameters
    ----------
    score : str
        One of `SCORES`.
    positives, negatives : ndarray of int64, shape (d,)
        ``n11`` and ``n10``, in units of ``1 / denominator`` rows.
    n_positive, n_negative : int
        ``n1`` and ``n0`` in rows, together at most 2**32 for ``information_gain``.
    denominator : int
        A power of two, at most 2**20.

    Returns
    -------
    scores : ndarray of int64, shape (d,)
        In units of ``1 / denominator`` rows; ``information_gain`` in units of 1 / `INFORMATION_UNIT` nats, within
        `information_sensitivity`.
    """
    _check_score(score)
    positives, negatives = np.asarray(positives, np.int64), np.asarray(negatives, np.int64)
    n_positive, n_negative = n_positive * denominator, n_negative * denominator
    if score == "total_count":
        return np.asarray(positives + negatives)
    difference: NDArray[np.int64] = np.abs(positives - negatives)
    if score == "difference_count":
        return difference
    if score == "purity":
        return np.asarray(np.maximum(difference, np.abs((n_positive - n_negative) - (positives - negatives))))
    ones, rows = positives + negatives, n_positive + n_negative
    all_rows, *classes = _n_log_n(np.array([rows, n_positive, n_negative]), denominator).tolist()
    inside = _n_log_n(positives, denominator) + _n_log_n(negatives, denominator)
    inside += _n_log_n(n_positive - positives, denominator) + _n_log_n(n_negative - negatives, denominator)
    return np.asarray(
        inside - _n_log_n(ones, denominator) - _n_log_n(rows - ones, denominator) + all_rows - sum(classes)
    )


def _n_log_n(counts: NDArray[np.int64], denominator: int) -> NDArray[np.int64]:
    """Return ``k ln k`` of ``k = counts / denominator`` in 1 / `INFORMATION_UNIT`, within ``1/2 + k 2**-19``."""
    values = np.where(counts > 0, counts, denominator) / denominator  # 0 for k = 0
    return np.rint(values * np.log(values) * INFORMATION_UNIT).astype(np.int64)


def _check_score(score: str) -> None:
    if score not in SCORES:
        raise ParameterError("P018", f"score must be one of {', '.join(SCORES)}; got {show(score)}.")


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
    """Return which features are present: above a number, or, without a number, neither zero nor NaN."""
    is_present: NDArray[np.bool_] = (features != 0) & ~np.isnan(features) if above is None else features > above
    return is_present
