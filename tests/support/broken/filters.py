"""Broken feature filters: unlimited thresholds, exact memberships, and sensitivities of old.

The first part gives exact laws of mechanisms that were published or that a careless reading leads to. The second plants
faults in `dp_score_filter` itself, for tests through SQL.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.contract.gaussian_profile import gaussian_delta, gaussian_mu
from dpsql.functions import score_filter
from dpsql.kernels import xty
from dpsql.kernels.xty import add_shares, distinct_features
from dpsql.mechanisms import partition_selection as keys
from dpsql.mechanisms.key_limits import limits_by_row
from dpsql.statistics import feature_counts, presence
from support.broken.planting import Fault, planted
from support.laws.filters import Bits, Noise, comparison_chance, comparison_law, product_law


def one_threshold_law(scores: Sequence[int], *, epsilon: float, threshold: float) -> dict[Bits, float]:
    """Return the law of a private threshold that exact scores are compared with.

    Parameters
    ----------
    scores : sequence of int
        Each of sensitivity 1.
    epsilon : float
        Claimed loss, > 0; the noise is Laplace of scale ``1 / epsilon``.
    threshold : float

    Returns
    -------
    law : dict
        Which scores are at least the noisy threshold -> probability.

    Notes
    -----
    - **What is wrong**: the scores have no noise of their own. One above beside one below tells their order.
      Theorem 2 of Stoddard et al. (2014) claims epsilon for any number of scores, Corollary 3.4 for monotone ones.
    - **Caught by**: the log ratio of exact laws.
    - **Counter-example**: threshold 0, epsilon = 1. Scores (0, 1) against (1, 0): the output (below, above) has
      probability 0.316 against 0. Monotone scores (0, 0) against (1, 0): (above, below) 0 against 0.316.
    """
    return comparison_law(
        scores, threshold=Noise("laplace", 1 / epsilon), score=Noise("none"), level=threshold, cutoff=None
    )


def noisycut_log_ratio(pairs: int, *, epsilon: float, monotone: bool = False) -> float:
    """Return the loss of noisycut for one output: a threshold that any number of noisy scores may pass.

    Parameters
    ----------
    pairs : int
        Scores above that fall by 1, and as many below that rise by 1; of monotone scores the former stay.
    epsilon : float
        Claimed loss.
    monotone : bool

    Returns
    -------
    log_ratio : float

    Notes
    -----
    - **What is wrong**: Laplace noise of scale ``4 / epsilon`` on the threshold and ``4 / (3 epsilon)`` on every score
      (Lee and Clifton 2014), without a limit on the scores found above.
    - **Caught by**: the log ratio of exact laws, which grows with the number of pairs.
    - **Counter-example**: epsilon = 1: 1.03, 2.19, 5.85, 12.1 and 24.9 for 1, 2, 5, 10 and 20 pairs; 0.57, 1.21,
      3.27, 6.83 and 14.1 for monotone scores. The sparse vector technique with a cutoff stays at epsilon.
    """
    above, below = 1 if not monotone else 0, 1
    bits = [True] * pairs + [False] * pairs
    chances = [
        comparison_chance(
            [high] * pairs + [low] * pairs,
            bits,
            threshold=Noise("laplace", 4 / epsilon),
            score=Noise("laplace", 4 / (3 * epsilon)),
            level=0,
        )
        for high, low in ((above, 0), (0, below))
    ]
    return abs(math.log(chances[0] / chances[1]))


def flipped_sparse_vector_law(
    scores: Sequence[int], *, threshold_scale: float, score_scale: float, level: float, cutoff: int, signs: str
) -> dict[Bits, float]:
    """Return the law of the sparse vector technique with exponential noise taken away instead of added.

    Parameters
    ----------
    scores : sequence of int
    threshold_scale, score_scale, level, cutoff
        As of `dpsql.mechanisms.sparse_vector`.
    signs : {'-+', '+-', '--'}
        Signs of the noise on the threshold and on the scores.

    Returns
    -------
    law : dict
        What each comparison gave -> probability.

    Notes
    -----
    - **What is wrong**: one-sided noise must be shifted away from its end. With '-+' and '+-' outputs become impossible
      on one of two neighbours; with '--' the loss grows with the number of scores below.
    - **Caught by**: the log ratio of exact laws.
    - **Counter-example**: level 0, at every scale: with '-+' a score of 0 is always above, one of -1 may be below; with
      '+-' a score of 0 is never above, one of 1 may be. With '--' and cutoff 1 the loss passes 2 epsilon with six
      scores below.
    """
    kinds: dict[str, Any] = {"+": "exponential", "-": "negative_exponential"}
    return comparison_law(
        scores,
        threshold=Noise(kinds[signs[0]], threshold_scale),
        score=Noise(kinds[signs[1]], score_scale),
        level=level,
        cutoff=cutoff,
    )


def exact_membership_law(scores: Sequence[int], *, scale: float, centres: tuple[float, float]) -> dict[Bits, float]:
    """Return the law of clusters with noisy centres and exact members.

    Parameters
    ----------
    scores : sequence of int
        Of the features, on a line.
    scale : float
        Of the Laplace noise on both centres.
    centres : (float, float)
        Before noise.

    Returns
    -------
    law : dict
        Which features are nearer to the upper centre -> probability.

    Notes
    -----
    - **What is wrong**: exact scores are divided at the middle of the noisy centres, so the feature of higher score can
      never be in the lower cluster alone. Besides, a row moves many features (Stoddard et al. 2014,
      cluster selection).
    - **Caught by**: the log ratio of exact laws.
    - **Counter-example**: scores (2, 1) against (1, 2), one centre at 0 and one at 3: infinite at every scale.
    """
    middle = sum(centres) / 2

    def at_most(x: float) -> float:
        """P(middle of the noisy centres <= x): noise is half the sum of two Laplace variables."""
        y = abs(x - middle) * 2 / scale
        tail = (2 + y) * math.exp(-y) / 4
        return tail if x < middle else 1 - tail

    edges = [-math.inf, *sorted(set(scores)), math.inf]
    law: dict[Bits, float] = {}
    for low, high in itertools.pairwise(edges):
        chance = (1.0 if high == math.inf else at_most(high)) - (0.0 if low == -math.inf else at_most(low))
        bits = tuple(score > low for score in scores)  # the middle is in (low, high]
        law[bits] = law.get(bits, 0.0) + chance
    return law


def repeated_features_delta(epsilon: Fraction, delta: Fraction, *, max_features_per_row: int) -> Fraction:
    """Return the true delta of Gaussian noise for sqrt(r) when one row may count r times for one feature.

    Parameters
    ----------
    epsilon, delta : Fraction
        Claimed.
    max_features_per_row : int
        r.

    Returns
    -------
    delta : Fraction
        At the claimed epsilon.

    Notes
    -----
    - **What is wrong**: repeats of a word in a row are not dropped before the first r are kept, so that one count moves
      by r and the L2 norm is r.
    - **Counter-example**: (1, 1e-6) and r = 10: 0.050; r = 20: 0.148.
    """
    return underestimated_delta(epsilon, delta, true_square=max_features_per_row**2, used_square=max_features_per_row)


def underestimated_delta(epsilon: Fraction, delta: Fraction, *, true_square: int, used_square: int) -> Fraction:
    """Return the true delta of Gaussian noise for a squared L2 sensitivity that is too small.

    Parameters
    ----------
    epsilon, delta : Fraction
        Claimed.
    true_square, used_square : int
        Squared L2 sensitivities.

    Returns
    -------
    delta : Fraction
        At the claimed epsilon.

    Notes
    -----
    - **Counter-example**: differences of counts under replace, r features: the footprint says 2 r, but a changed label
      moves r of them by 2, which is 4 r: 2.2e-4 in place of 1e-6 at epsilon = 1. A row of 3 r features where r was
      assumed, not enforced: 3 r for r, 1.6e-3.
    """
    ratio = Fraction(math.isqrt((true_square << 40) // used_square), 1 << 20)
    return gaussian_delta(gaussian_mu(epsilon, delta) * ratio, epsilon)


def present_cells_law(counts: Mapping[str, int], *, chance: Callable[[int], float]) -> dict[frozenset[str], float]:
    """Return the law of a report that draws noise for the keys in the table only.

    Parameters
    ----------
    counts : mapping
        Rows by key, of keys in the table.
    chance : callable
        Probability that a key of that count is reported.

    Returns
    -------
    law : dict
        Set of reported keys -> probability.

    Notes
    -----
    - **What is wrong**: a key without rows can never be reported, as GROUP BY leaves it out; the list of keys is a
      private vocabulary that nobody paid for.
    - **Caught by**: the log ratio of exact laws.
    - **Counter-example**: one row with a new word, any noise: infinite.
    """
    return dict(product_law({key: chance(count) for key, count in counts.items() if count > 0}))


def broken_filter(name: str) -> AbstractContextManager[None]:
    """Plant one fault of `BROKEN_FILTERS` for as long as the context lasts. Never private; for tests only.

    Notes
    -----
    ``tests/privacy/test_score_filter_sql.py`` catches each through SQL, by what it costs on two neighbouring tables;
    the right function passes the same test.
    """
    return planted(*BROKEN_FILTERS[name].patches)


def _added_rows_only(released: str, neighbours: str, **options: Any) -> Any:
    """Norms of an added row, whatever the relation."""
    return feature_counts.released_norms(released, "add_remove", **options)


def _without_labels(released: str, neighbours: str, **options: Any) -> Any:
    return feature_counts.released_norms(released.removesuffix("_and_labels"), neighbours, **options)


def _footprint(released: str, neighbours: str, **options: Any) -> Any:
    """Norms by how many features a row touches, each by 1."""
    return feature_counts.released_norms("totals", neighbours, **{**options, "n_features": None})


def _of_one_row(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given, **options: real(*given, **{**options, "max_rows_per_unit": 1})


def _half(real: Callable[..., int]) -> Callable[..., int]:
    return lambda *given, **options: max(1, real(*given, **options) // 2)


def _every_name(names: Sequence[str], counts: Any, selection: Any, **_: Any) -> list[str]:
    return sorted(names)


_partition_selection = keys.partition_selection


def _threshold_of_one(**options: Any) -> Any:
    """For units of several rows: the noise of c r keys, with the threshold of a key that rises by 1."""
    right = _partition_selection(**options)
    rows = max(rows for _, rows in options["limits"].lone)
    return replace(right, threshold=right.threshold - (rows - 1) * right.noise.unit)


def _limits_of_one_row(keys_per_row: int, rows: int) -> Any:
    return limits_by_row(keys_per_row)


def _unlimited(counts: Any, sides: Any, lengths: Any, positions: Any, most: int, one: int) -> None:
    """As many features of a row as it has."""
    add_shares(counts, sides, lengths, positions, 1000, one)


def _repeated(counts: Any, sides: Any, lengths: Any, positions: Any, most: int, one: int) -> None:
    """Repeats of a feature in a row count, up to as many as features may."""
    for row, stop in enumerate(np.cumsum(lengths)):
        if sides[row] >= 0:
            np.add.at(counts, sides[row] + positions[stop - lengths[row] : stop][:most], one)


def _rounded_up(held: Any, most: int, one: int) -> Any:
    return np.where(held > most, -(-most * one // np.maximum(held, 1)), one)


def _chosen_by_label(counts: Any, sides: Any, lengths: Any, positions: Any, most: int, one: int) -> None:
    """A row of one class counts its first features, a row of the other its last."""
    rows, features = distinct_features(lengths, positions)
    for row in np.flatnonzero(sides >= 0).tolist():
        own = features[rows == row]
        counts[sides[row] + (own[:most] if sides[row] else own[-most:])] += one


BROKEN_FILTERS = {
    "added rows only": Fault(
        "norms of an added row under replace", ((score_filter, "released_norms", _added_rows_only),)
    ),
    "free labels": Fault(
        "noise for the features' counts alone, though the labels' are released too",
        ((score_filter, "released_norms", _without_labels),),
    ),
    "footprint": Fault(
        "differences under replace as if 2 r of them moved by 1", ((score_filter, "released_norms", _footprint),)
    ),
    "norms of one row": Fault(
        "units of several rows, noise for one",
        ((score_filter, "released_norms", _of_one_row(feature_counts.released_norms)),),
    ),
    "range of one row": Fault(
        "units of several rows, a selection for one",
        ((score_filter, "score_range", _of_one_row(feature_counts.score_range)),),
    ),
    "sensitivity as range": Fault(
        "a selection calibrated to how far one score moves, though two can move apart",
        ((score_filter, "score_range", _half(feature_counts.score_range)),),
    ),
    "all scores are monotone": Fault(
        "the sparse vector technique with half the noise, though scores move both ways",
        ((score_filter, "is_monotone", lambda score, neighbours: True),),
    ),
    "row sensitivity": Fault(
        "the sparse vector technique of single rows for units of several",
        ((score_filter, "score_sensitivity", _of_one_row(feature_counts.score_sensitivity)),),
    ),
    "free vocabulary": Fault("every name in the table is released", ((keys, "select_partitions", _every_name),)),
    "threshold of one": Fault(
        "a key of a unit may have several rows, the threshold is for one",
        ((keys, "partition_selection", _threshold_of_one),),
    ),
    "vocabulary of one row": Fault(
        "the vocabulary is drawn with the noise for single rows",
        ((keys, "limits_by_row", _limits_of_one_row),),
    ),
    "unlimited rows": Fault("a row counts for all its features", ((presence, "add_shares", _unlimited),)),
    "repeated features": Fault("a feature counts as often as a row repeats it", ((presence, "add_shares", _repeated),)),
    "shares rounded up": Fault(
        "the shares of a crowded row add up to more than it may count",
        ((xty, "feature_shares", _rounded_up), (presence, "feature_shares", _rounded_up)),
    ),
    "label chooses": Fault(
        "rows that differ in nothing but their label count for other features",
        ((presence, "add_shares", _chosen_by_label),),
    ),
}
