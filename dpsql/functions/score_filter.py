"""dp_score_filter: features whose counts by label score above a threshold, or the k best.

With Gaussian or Laplace noise the counts are released once; scores, thresholds and clusters are post-processing.
The sparse vector technique and the selection of k features read exact scores instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.contract.call import Call
from dpsql.contract.fold import Collector
from dpsql.contract.json import Json
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.feature_counts import Counts, FeatureCountsCall, Floats, best_cluster, point_scores
from dpsql.functions.score_filter_plan import ScoreFilterPlan
from dpsql.mechanisms.gaussian import GaussianNoise
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.mechanisms.one_shot import OneShotSelection
from dpsql.mechanisms.partition_selection import PrivateNames
from dpsql.mechanisms.sparse_vector import ScoresAbove
from dpsql.noise.discrete import laplace_deviation
from dpsql.progress import Progress
from dpsql.released.verdicts import score_reach
from dpsql.statistics.presence import FeatureCounts, NameCounts

# Number of noisy values that a score adds or subtracts; for purity, in the larger of its two terms.
_NUMBERS = {"totals": 1, "differences": 1, "differences_and_labels": 2, "counts": 2, "counts_and_labels": 4}


class ScoreFilterCall(FeatureCountsCall):
    """A dp_score_filter call, with the column types of its source."""

    plan: ScoreFilterPlan

    def check(self) -> None:
        """Raise if the arguments do not fit the features, or if the names cannot be private."""
        super().check()
        if self.plan.draws_vocabulary and self.plan.layout.kind != "long":
            raise ParameterError(
                "P045", "vocabulary := 'private' is for long rows: columns have public names. Leave it out."
            )

    def start(self) -> Collector:
        """Return empty counts: of names if they are private, of features if their names are public."""
        if self.plan.draws_vocabulary:
            return NameCounts(self.plan.max_features_per_row)
        return super().start()

    def after(self, collector: Collector) -> Call:
        """Draw the names of the features that are released; return the call that has these features.

        Notes
        -----
        - **Guarantee**: (epsilon, delta)-DP at the vocabulary's shares; see `dpsql.mechanisms.partition_selection`.
        - **Assumes**: a row counts for at most `max_features_per_row` names, once for each; see `NameCounts`.
        """
        if not isinstance(collector, NameCounts):
            return self
        counted = np.flatnonzero(collector.counts)  # a name may be in some row and still have no count
        names = [collector.vocabulary.names[number].decode() for number in counted.tolist()]
        part: PrivateNames = self.plan.measurement["vocabulary"]
        return replace(self, features=tuple(part.draw(names, collector.counts[counted])))

    def turn(self, collector: NameCounts, progress: Progress) -> Collector:
        """Begin the counts of the released features.

        On DuckDB rows refer to every name by one number in both passes. Workers of an engine have no numbers in common:
        they learn the released names as if these were public, which they are by now.
        """
        count, most = len(self.features), collector.most
        one = self.plan.one(count)
        if self.plan.engine is not None:
            return FeatureCounts(count, most, one=one)
        collector.vocabulary.release(self.features)
        return FeatureCounts(count, most, one=one, vocabulary=collector.vocabulary)

    def prepare(self, statistic: FeatureCounts, progress: Progress) -> Callable[[], Json]:
        """Return the draw of the features."""
        counts = self.counts(statistic)
        return lambda: draw_features(self.plan, counts, self.features)


def draw_features(plan: ScoreFilterPlan, counts: Counts, names: Sequence[str]) -> dict[str, Json]:
    """Draw the features to report.

    Parameters
    ----------
    plan : ScoreFilterPlan
    counts : Counts
        Exact counts.
    names : sequence of str, length d
        Public or released names of the features.

    Returns
    -------
    result : dict
        ``names`` by rank (for 'svt' in the order found, for 'canonical_lipschitz' in no order); ``scores`` and
        ``std_error`` if counts are released; ``threshold``, the one applied; and for 'svt' ``stopped_at``, the number
        of features compared.

    Notes
    -----
    - **Guarantee**: (score_epsilon, score_delta)-DP; pure without Gaussian noise. With Gaussian noise also mu-GDP.
    - **Neighbouring relation**: that of the plan.
    - **Sensitivity**: `dpsql.statistics.feature_counts`: L1 (laplace), L2 (gaussian), of one score (svt), range
      (selection of k).
    - **Randomness**: exact samplers, operating-system entropy, no seed.
    - **Assumes**: the features of a row were counted with `max_features_per_row` rows together at most, each once; for
      exact ``information_gain`` at most `n_max` rows.
    - **Does not protect**: running time.
    """
    result: dict[str, Json] = {
        "kind": "score_filter",
        "method": plan.chosen,
        "names": [],
        "scores": None,
        "std_error": None,
        "threshold": None,
        "stopped_at": None,
    }
    return result | (_select_exactly(plan, counts, names) if plan.noise_law is None else _scored(plan, counts, names))


def _select_exactly(plan: ScoreFilterPlan, counts: Counts, names: Sequence[str]) -> dict[str, Json]:
    """Compare exact scores with a threshold or with each other; for the guarantee see `draw_features`."""
    if plan.most_rows is not None and counts.positive_rows + counts.negative_rows > plan.most_rows:
        raise InternalError("I033", "more rows were counted than n_max allows. Report it.")
    scores = counts.scores(plan.score)
    finer = 1 if plan.score == "information_gain" else counts.one
    if plan.chosen != "svt":
        best = select_best(plan, scores, finer) if len(names) else []
        return {"names": [names[position] for position in best]}
    applied = plan.applied_threshold(len(names))
    part: ScoresAbove = plan.measurement["scores"]
    run = part.draw(scores, threshold=Fraction(applied) * plan.unit, finer=finer)
    above = [names[position] for position in run.above]
    return {"names": above, "threshold": applied, "stopped_at": run.stopped_at}


def _scored(plan: ScoreFilterPlan, counts: Counts, names: Sequence[str]) -> dict[str, Json]:
    """Add noise to the counts and report the best features; for the guarantee see `draw_features`."""
    count, applied = len(names), None
    noisy, deviation = noisy_counts(plan, counts)
    scored = noisy_scores(plan, noisy, count)
    best = np.argsort(-scored, kind="stable")
    if plan.chosen == "cluster":
        best = best[best_cluster(noisy[: 2 * count].reshape(2, count).T, scored, plan.clusters)[best]]
    elif plan.k is not None:
        best = best[: plan.k]
    else:
        applied = plan.applied_threshold(count)
        best = best[scored[best] >= applied]
    result: dict[str, Json] = {
        "names": [names[position] for position in best.tolist()],
        "scores": scored[best].tolist(),
        "threshold": applied,
        "compared": count,
    }
    if plan.score == "information_gain":
        return result
    error = deviation * math.sqrt(_NUMBERS[plan.released])
    return result | {"std_error": error, "level": applied or 0.0, "reach": score_reach(error, count)}


def select_best(plan: ScoreFilterPlan, scores: NDArray[np.int64], finer: int) -> list[int]:
    """Select the k best by exact scores, or all features if a private vocabulary has fewer.

    Parameters
    ----------
    plan : ScoreFilterPlan
    scores : ndarray of int64, shape (d,)
    finer : int
        How many units of the scores are one of `ScoreFilterPlan.score_range`.

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.score_epsilon``.
    - **Sensitivity**: range, `dpsql.statistics.feature_counts.score_range`.
    """
    selection: OneShotSelection = plan.measurement["scores"]
    return selection.draw(scores, utility_range=plan.score_range(len(scores)) * finer)


def released_counts(released: str, counts: Counts) -> NDArray[np.int64]:
    """Return the exact numbers that get noise, features first, in units of the counts.

    See `dpsql.statistics.feature_counts`.
    """
    positive, negative = counts.positive, counts.negative
    labels = [counts.positive_rows * counts.one, counts.negative_rows * counts.one]
    parts: dict[str, list[Sequence[int] | NDArray[np.int64]]] = {
        "totals": [positive + negative],
        "differences": [positive - negative],
        "differences_and_labels": [positive - negative, [labels[0] - labels[1]]],
        "counts": [positive, negative],
        "counts_and_labels": [positive, negative, labels],
    }
    return np.concatenate([np.asarray(part, dtype=np.int64) for part in parts[released]])


def noisy_counts(plan: ScoreFilterPlan, counts: Counts) -> tuple[Floats, float]:
    """Add noise to the counts that the plan's score is computed from.

    Returns
    -------
    noisy : ndarray of float64
        Laid out as by `released_counts`, in rows.
    deviation : float
        Standard deviation of the noise, in rows.

    Notes
    -----
    - **Guarantee**: as `draw_features`.
    - **Sensitivity**: L1 or L2 of `dpsql.statistics.feature_counts.released_norms`.
    """
    values = released_counts(plan.released, counts)
    count = len(counts.positive) or None
    if plan.noise_law == "gaussian":
        gaussian: GaussianNoise = plan.measurement["scores"]
        squared = plan.norms(count).squared_l2
        release = gaussian.draw_counts("counts", values, squared_sensitivity=squared, one=counts.one)
        return release.values, release.sigma
    laplace: LaplaceNoise = plan.measurement["scores"]
    noisy = laplace.draw_counts(values, plan.norms(count).l1, one=counts.one)
    return noisy, laplace_deviation(plan.noise_scale(count), counts.one)


def noisy_scores(plan: ScoreFilterPlan, noisy: Floats, count: int) -> Floats:
    """Return the scores of `count` features from `noisy_counts`: post-processing."""
    if plan.released == "totals":
        return noisy
    if plan.released.startswith("differences"):
        difference = noisy[:count]
        if plan.score == "difference_count":
            return np.asarray(np.abs(difference))
        return np.asarray(np.maximum(np.abs(difference), np.abs(noisy[count] - difference)))
    return point_scores(plan.score, noisy[: 2 * count].reshape(2, count).T, noisy[2 * count :])
