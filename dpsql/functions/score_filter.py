"""dp_score_filter: features whose counts by label score high, above a threshold or the k best.

With Gaussian or Laplace noise the counts are released once, and scores, thresholds and clusters are post-processing.
The sparse vector technique and the selection of k look at exact scores instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.contract import parameters
from dpsql.contract.arguments import (
    CLASSES,
    COLUMNS,
    DELTA,
    EPSILON,
    OPTIONAL_DELTA,
    PROTECTION,
    Argument,
    Signature,
    integer,
    rational,
    share,
    word,
)
from dpsql.contract.gaussian_profile import usable_mu
from dpsql.contract.layout import MOST_FEATURES, Layout
from dpsql.contract.measurement import Measurement, Part, measurement_of
from dpsql.contract.plan import Quantity, refuse_large_k
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.feature_counts import PRESENCE, Counts, FeatureCountsCall, FeatureCountsPlan
from dpsql.functions.one_shot import CONFIDENCE, MECHANISMS, log_of_ratio, one_shot_noise
from dpsql.mechanisms.choices import OneShotSelection, PrivateNames, ScoresAbove
from dpsql.mechanisms.gaussian import MOST_COORDINATES
from dpsql.mechanisms.partition_selection import (
    PartitionSelection,
    laplace_tail,
    normal_tail,
)
from dpsql.mechanisms.parts import GaussianNoise, LaplaceNoise
from dpsql.mechanisms.sparse_vector import SparseVector
from dpsql.noise.discrete import laplace_deviation
from dpsql.progress import Progress
from dpsql.statistics.feature_counts import (
    INFORMATION_UNIT,
    LARGEST_ROWS,
    RELEASED_FOR,
    SCORES,
    Norms,
    exact_scores,
    is_monotone,
    released_norms,
    score_range,
    score_sensitivity,
)
from dpsql.statistics.fold import Collector
from dpsql.statistics.presence import FeatureCounts, NameCounts

NOISES = ("gaussian", "laplace")
METHODS = ("auto", *NOISES, "svt", "cluster", *MECHANISMS)
VOCABULARIES = ("public", "private")
# Features that the choice of a method is made for where their number is not known.
_USUAL_FEATURES = 1000
_GAMMA = Fraction(1, 2)
_MOST_ROUNDS = 100
_MOST_CUTOFF = 1_000_000
_MOST_CLUSTERS = 1000
_LEAST_FALSE = Fraction(1, 10**12)
_MANY = 100
# Of how many noisy numbers a score is the sum or difference: of purity, the larger of its two.
_NUMBERS = {"totals": 1, "differences": 1, "differences_and_labels": 2, "counts": 2, "counts_and_labels": 4}

Floats = NDArray[np.float64]
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class ScoreFilterPlan(FeatureCountsPlan):
    """The checked public arguments of one ``dp_score_filter`` call.

    Attributes
    ----------
    score : str
        One of `SCORES`.
    threshold : Fraction or None
        Report features whose score is at least this; in rows, of ``information_gain`` in nats times rows.
    k : int or None
        Report the k best features.
    delta : Fraction or None
        In (0, 0.1], for Gaussian noise and for a private vocabulary.
    method : str
        One of `METHODS`, as given.
    n_max : int or None
        Rows that count at most, for exact ``information_gain``; at most ``2**32``.
    cutoff : int or None
        Features that the sparse vector technique reports at most; at most 1e6.
    false_positives : Fraction
        Features that no row has and that are reported all the same, in expectation at most; > 0.
    clusters : int
        Clusters of features, from 2 to 1000.
    vocabulary : {'public', 'private'}
        Whether the features' names are given, or drawn from the rows.
    vocabulary_share : Fraction
        Share of epsilon, and of delta where Gaussian noise takes the rest, that a private vocabulary costs; in (0, 1).
    """

    score: str
    threshold: Fraction | None
    k: int | None
    delta: Fraction | None
    method: str
    n_max: int | None
    cutoff: int | None
    false_positives: Fraction
    clusters: int
    vocabulary: str
    vocabulary_share: Fraction

    function: ClassVar[str] = "dp_score_filter"
    arguments: ClassVar[Signature] = Signature(
        *COLUMNS,
        word("score", "What a feature scores; see the header.", SCORES, "difference_count"),
        Argument(
            "threshold",
            "Report the features whose score is at least this, from 0; in rows, or in nats times rows. Or give k.",
            check=partial(
                parameters.number_from_zero, "threshold", hint="Give the score from which features are reported."
            ),
            exact=True,
        ),
        integer(
            "k",
            "Report the k features of the highest scores. Or give threshold.",
            hint="Give the number of features.",
            most=MOST_FEATURES,
        ),
        EPSILON,
        replace(OPTIONAL_DELTA, doc=f"{DELTA.doc} For Gaussian noise and for a private vocabulary."),
        word("method", "How the features are found; see the README on methods.", METHODS, "auto"),
        *PRESENCE,
        integer(
            "n_max",
            "Public number of rows that count at most, for exact information gain.",
            hint="Give a public limit of the rows that count.",
            most=LARGEST_ROWS,
        ),
        integer(
            "cutoff",
            "For 'svt': features that are reported at most, from 1 to 1000000.",
            hint="Give how many features to report at most.",
            most=_MOST_CUTOFF,
        ),
        rational(
            "false_positives",
            "Features that no row has and that are reported all the same, in expectation; from 1e-12 to 1e12.",
            1,
            hint="1 is usual.",
        ),
        integer(
            "clusters",
            "For 'cluster': number of clusters, from 2 to 1000.",
            2,
            hint="2 is usual.",
            most=_MOST_CLUSTERS,
        ),
        word("vocabulary", "Whether the names of long rows are given, or drawn privately.", VOCABULARIES, "public"),
        share(
            "vocabulary_share",
            "Share of the budget that a private vocabulary costs, between 0 and 1.",
            0.5,
            hint="0.5 is usual.",
        ),
        CLASSES,
        *PROTECTION,
    )
    names_after: ClassVar[str | None] = "method"

    @classmethod
    def _own(cls, given: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
        own = {
            **super()._own(given, layout),
            **cls._read(given, "score", "threshold", "k", "n_max", "cutoff", "delta", "method"),
            **cls._read(given, "false_positives", "clusters", "vocabulary", "vocabulary_share"),
        }
        _refuse_contradictions(own, layout)
        return own

    def check_features(self, count: int) -> None:
        """Raise when k is too large, or when there are more numbers than a call releases."""
        if self.draws_vocabulary:
            _ = self.key_selection
        elif self.k is not None:
            refuse_large_k(self.k, count)
        if 2 * count + 2 > MOST_COORDINATES:
            raise ParameterError("P026", f"{count} features are more than one call releases. Select some first.")

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scale of Laplace noise on a released number."""
        return (self.noise_scale(count or None),) if self.noise_law == "laplace" else ()

    def gaussian_parts(self, count: int) -> Iterable[Fraction]:
        """Return the part of mu of Gaussian noise on the counts."""
        return (self.mu / self.max_rows_per_unit,) if self.noise_law == "gaussian" else ()

    @property
    def passes(self) -> int:
        """How often the rows are read: private names are drawn first."""
        return 2 if self.draws_vocabulary else 1

    @property
    def draws_vocabulary(self) -> bool:
        """Whether the names of the features are private too, and drawn from the rows."""
        return self.vocabulary == "private"

    @property
    def most_rows(self) -> int | None:
        """How many rows count at most: only exact information scores need a limit, and only they allow for one."""
        return self.n_max if self.noise_law is None else None

    @cached_property
    def score_epsilon(self) -> Fraction:
        """What the scores cost."""
        return self.epsilon * (1 - self.vocabulary_share) if self.draws_vocabulary else self.epsilon

    @cached_property
    def chosen(self) -> str:
        """The method, with ``'auto'`` settled by public numbers."""
        if self.method != "auto":
            return self.method
        noises = NOISES if self.delta is not None else ("laplace",)
        if self.k is None:
            return noises[0]
        count = max(self.k + 1, _known_features(self.layout) or _USUAL_FEATURES)
        gaps = {noise: self._noisy_gap(noise, self.k, count) for noise in noises}
        if self.score != "information_gain" or self.n_max is not None:
            # Of many features noise on the counts is better anyhow, and the number of their subsets has many digits.
            mechanisms = MECHANISMS if self.k <= _MANY else MECHANISMS[:1]
            gaps |= {mechanism: self._exact_gap(mechanism, self.k, count) for mechanism in mechanisms}
        return min(gaps, key=lambda method: gaps[method])

    @property
    def noise_law(self) -> str | None:
        """The law of the noise on released counts; None where exact scores are compared."""
        if self.chosen == "cluster":
            return "laplace" if self.delta is None else "gaussian"
        return self.chosen if self.chosen in NOISES else None

    @cached_property
    def score_delta(self) -> Fraction | None:
        """The delta of the scores: of Gaussian noise on them."""
        return self._score_delta(self.noise_law)

    @cached_property
    def mu(self) -> Fraction:
        """Gaussian privacy loss of the scores."""
        return self._mu(self.score_delta)

    @property
    def key_selection(self) -> PartitionSelection:
        """Noise and threshold of a private vocabulary: whichever law has the lower threshold."""
        part: PrivateNames = self._vocabulary
        return part.selection

    @cached_property
    def _vocabulary(self) -> PrivateNames:
        return PrivateNames(
            "vocabulary",
            self.epsilon - self.score_epsilon,
            _given(self.delta) - (self.score_delta or 0),
            # A limit of the rows that count makes an added row replace another.
            self.neighbours if self.most_rows is None else "replace",
            self.max_features_per_row,
            self.max_rows_per_unit,
        )

    @cached_property
    def measurement(self) -> Measurement:
        """What is drawn: the vocabulary where it is private, and what finds the features."""
        scores: Part
        if self.noise_law == "gaussian":
            delta, shares = _given(self.score_delta), (("counts", self.mu),)
            scores = GaussianNoise("scores", self.mu, self.score_epsilon, delta, shares)
        elif self.noise_law == "laplace":
            scores = LaplaceNoise("scores", self.score_epsilon)
        elif self.chosen == "svt":
            scores = ScoresAbove("scores", self.sparse_vector)
        else:
            scores = OneShotSelection("scores", self.chosen, self.score_epsilon, _given(self.k), _GAMMA)
        return measurement_of(self._vocabulary, scores) if self.draws_vocabulary else measurement_of(scores)

    @property
    def released(self) -> str:
        """What noise is added to: see `dpsql.statistics.feature_counts`."""
        if self.chosen == "cluster" and self.score in ("total_count", "difference_count"):
            return "counts"
        return "counts_and_labels" if self.chosen == "cluster" else RELEASED_FOR[self.score]

    def norms(self, count: int | None) -> Norms:
        """Return how far the released numbers of so many features move between neighbouring tables."""
        return released_norms(
            self.released,
            self.neighbours,
            max_features_per_row=self.max_features_per_row,
            n_features=count,
            max_rows_per_unit=self.max_rows_per_unit,
        )

    def noise_scale(self, count: int | None) -> Fraction:
        """Return the scale of Laplace noise on a released number, or mu of Gaussian noise on all of them."""
        if self.noise_law == "gaussian":
            return self.mu
        scores: LaplaceNoise = self.measurement["scores"]
        return scores.scale(self.norms(count).l1)

    def deviation(self, count: int | None) -> float:
        """Return the standard deviation of the noise on a released number, in rows."""
        return self._deviation(self.noise_law or "", self.norms(count))

    def score_range(self, count: int | None) -> int:
        """Return the range of the exact scores of so many features."""
        return score_range(
            self.score,
            self.neighbours,
            max_features_per_row=self.max_features_per_row,
            n_features=count,
            max_rows_per_unit=self.max_rows_per_unit,
            largest_rows=self.n_max,
        )

    @cached_property
    def sparse_vector(self) -> SparseVector:
        """The noise of the sparse vector technique."""
        return SparseVector(
            sensitivity=score_sensitivity(
                self.score, self.neighbours, max_rows_per_unit=self.max_rows_per_unit, largest_rows=self.n_max
            ),
            epsilon=self.score_epsilon,
            cutoff=_given(self.cutoff),
            monotone=is_monotone(self.score, self.neighbours),
        )

    @property
    def unit(self) -> int:
        """What one of the user's score is in units of the exact scores."""
        return INFORMATION_UNIT if self.score == "information_gain" else 1

    def applied_threshold(self, count: int) -> float:
        """Return the noisy score from which features are reported, of so many of them.

        Notes
        -----
        At least so large that of `count` features without rows at most `false_positives` are reported in expectation:
        for ``total_count`` a feature's noise has to reach it, for ``difference_count`` its absolute value. ``purity``
        of a feature without rows is not noise alone, and ``information_gain`` of noisy counts is not linear in the
        noise, so there is no such limit.
        """
        threshold = float(_given(self.threshold))
        sides = {"total_count": 1, "difference_count": 2}.get(self.score)
        if sides is None or self.false_positives >= count:  # no features at all, too
            return threshold
        if self.chosen == "svt":  # only the noise on scores counts: that on the threshold, less its mean, helps
            run = self.sparse_vector
            reached = float(run.score_scale) * math.log(count / self.false_positives)
            return max(threshold, reached - float(run.score_scale - run.threshold_scale))
        chance = self.false_positives / (sides * count)
        if self.noise_law == "laplace":
            return max(threshold, float(laplace_tail(self.noise_scale(count), chance)))
        return max(threshold, self.deviation(count) * normal_tail(chance))

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how noisy the scores would be."""
        out: list[Quantity] = []
        if self.draws_vocabulary:
            found = self.key_selection
            out += [
                ("vocabulary_threshold", found.threshold, "noisy number of rows from which a name is released"),
                ("vocabulary_std_error", found.deviation, "standard deviation of the noise on that number"),
            ]
        if self.noise_law is not None:
            norms = self.norms(n_features)
            out += [
                ("count_sensitivity_l1", float(norms.l1), "most that one privacy unit moves all counts, added up"),
                ("count_sensitivity_l2", math.sqrt(norms.squared_l2), "the same as the root of the sum of squares"),
                ("count_std_error", self.deviation(n_features), "standard deviation of the noise on a released count"),
            ]
        elif self.chosen == "svt":
            run = self.sparse_vector
            scales = (float(run.score_scale) / self.unit, float(run.threshold_scale) / self.unit)
            out += [
                ("score_sensitivity", run.sensitivity / self.unit, "most that one privacy unit can move one score"),
                ("noise_scale", scales[0], "scale of the noise on each score"),
                ("threshold_noise_scale", scales[1], "scale of the noise on the threshold"),
            ]
        else:
            spread = self.score_range(n_features) / self.unit
            out += one_shot_noise(
                mechanism=self.chosen,
                gamma=_GAMMA,
                spread=spread,
                epsilon=self.score_epsilon,
                k=_given(self.k),
                count=n_features,
            )
        if self.threshold is not None:
            applied = self.applied_threshold(n_features)
            out.append(("applied_threshold", applied, "score with noise from which a feature is reported"))
        return out

    def _score_delta(self, noise: str | None) -> Fraction | None:
        if self.delta is None or noise != "gaussian":
            return None
        return self.delta * (1 - self.vocabulary_share) if self.draws_vocabulary else self.delta

    def _mu(self, delta: Fraction | None) -> Fraction:
        return usable_mu(self.score_epsilon, _given(delta))

    def _deviation(self, noise: str, norms: Norms) -> float:
        if noise == "gaussian":
            return math.sqrt(norms.squared_l2) / float(self._mu(self._score_delta(noise)))
        return laplace_deviation(norms.l1 / self.score_epsilon)

    def _noisy_gap(self, noise: str, k: int, count: int) -> float:
        """Return the gap of scores beyond which noise on counts puts the k best first in 95 % of calls, about.

        Information scores are taken to move as much as a count does.
        """
        norms = released_norms(
            RELEASED_FOR[self.score],
            self.neighbours,
            max_features_per_row=self.max_features_per_row,
            n_features=_known_features(self.layout),
            max_rows_per_unit=self.max_rows_per_unit,
        )
        deviation = self._deviation(noise, norms) * (1 if self.score.endswith("count") else math.sqrt(2))
        pairs = log_of_ratio(k * (count - k), 1 - CONFIDENCE)
        # The difference of two noises: a normal tail, or a little more than an exponential one.
        return deviation * (2 * math.sqrt(pairs) if noise == "gaussian" else (pairs + 1) / math.sqrt(2))

    def _exact_gap(self, mechanism: str, k: int, count: int) -> float:
        quantities = one_shot_noise(
            mechanism=mechanism,
            gamma=_GAMMA,
            spread=self.score_range(_known_features(self.layout)) / self.unit,
            epsilon=self.score_epsilon,
            k=k,
            count=count,
        )
        return {name: value for name, value, _ in quantities}["score_gap"]


def _given(value: _T | None) -> _T:
    """Return a number that the checks of the arguments saw to."""
    if value is None:
        raise InternalError("I032", "a number that this method needs is missing. Report it.")
    return value


def _known_features(layout: Layout) -> int | None:
    """Return the number of features where the arguments tell it."""
    if isinstance(layout.features, tuple):
        return len(layout.features) or None
    return layout.n_features or (len(layout.names) if layout.names else None)


def _refuse_contradictions(own: Mapping[str, Any], layout: Layout) -> None:
    """Raise when arguments that are right by themselves do not go together."""
    method, k, delta = own["method"], own["k"], own["delta"]
    private = own["vocabulary"] == "private"
    if method == "cluster":
        if k is not None or own["threshold"] is not None:
            _refuse("method 'cluster' finds the features by itself. Leave out threshold and k.")
    elif k is None and own["threshold"] is None:
        _ask("give either threshold, the score from which features are reported, or k, how many.")
    elif k is not None and own["threshold"] is not None:
        _refuse("threshold and k exclude each other. Leave out one of them.")
    if method in MECHANISMS and k is None:
        _ask(f"method '{method}' selects k features. Give k in place of threshold, or another method.")
    if method == "svt" and own["threshold"] is None:
        _ask("method 'svt' compares with a threshold. Give threshold in place of k, or another method.")
    if method == "svt" and own["cutoff"] is None:
        _ask("method 'svt' needs cutoff, the number of features to report at most. Give cutoff := a number.")
    if method != "svt" and own["cutoff"] is not None:
        _refuse("cutoff is for method 'svt'. Leave it out.")
    parameters.within("false_positives", own["false_positives"], _LEAST_FALSE, 1 / _LEAST_FALSE, hint="1 is usual.")
    parameters.within("clusters", own["clusters"], 2, None, hint="2 is usual.")
    exact = method == "svt" or method in MECHANISMS
    if own["score"] == "information_gain" and exact and own["n_max"] is None:
        _ask(
            f"method '{method}' on information_gain needs n_max := a public limit of the rows that count. "
            "Or let noise be added to the counts: method := 'gaussian' or 'laplace'."
        )
    useful = own["score"] == "information_gain" and (exact or (method == "auto" and k is not None))
    if own["n_max"] is not None and not useful:
        _refuse("n_max is for information_gain with methods that look at exact scores. Leave it out.")
    if private:
        if layout.names is not None:
            _refuse("names are public, so vocabulary := 'private' would pay for nothing. Leave one of them out.")
        if delta is None:
            _ask("vocabulary := 'private' needs delta, the chance that a name of one row comes out. Try 1e-6.")
    elif delta is None and method == "gaussian":
        _ask("method 'gaussian' needs delta. Try 1e-6, or method := 'laplace'.")
    elif delta is not None and (exact or method == "laplace"):
        _refuse(f"method '{method}' with a public vocabulary has no use for delta. Leave it out.")


def _refuse(message: str) -> NoReturn:
    """Raise: an argument has no use beside the others."""
    raise ParameterError("P045", message)


def _ask(message: str) -> NoReturn:
    """Raise: another argument is needed beside the others."""
    raise ParameterError("P046", message)


class ScoreFilterCall(FeatureCountsCall):
    """A dp_score_filter call joined to its source's types."""

    def check(self) -> None:
        """Raise when the arguments do not fit the features, or names cannot be private."""
        super().check()
        if self.plan.draws_vocabulary and self.plan.layout.kind != "long":
            raise ParameterError(
                "P045", "vocabulary := 'private' is for long rows: columns have public names. Leave it out."
            )

    def start(self) -> Collector:
        """Return empty counts: of names where they are private, of features where they are public."""
        if self.plan.draws_vocabulary:
            return NameCounts(self.plan.max_features_per_row)
        return super().start()

    def turn(self, collector: NameCounts, progress: Progress) -> Collector:
        """Draw the names of the features that are released.

        Notes
        -----
        - **Guarantee**: (epsilon, delta)-DP with the vocabulary's shares: `dpsql.mechanisms.partition_selection`.
        - **Assumes**: a row counts for at most `max_features_per_row` names, once for each.
        """
        vocabulary = collector.vocabulary
        counted = np.flatnonzero(collector.counts)  # every row that has a name may keep others
        names = [vocabulary.names[number].decode() for number in counted.tolist()]
        released = self.plan.measurement["vocabulary"].draw(names, collector.counts[counted])
        vocabulary.release(released)
        return FeatureCounts(len(released), collector.most, vocabulary=vocabulary)

    def prepare(self, statistic: FeatureCounts, progress: Progress) -> Callable[[], Any]:
        """Return the draw of the features."""
        counts, vocabulary = self.counts(statistic), statistic.vocabulary
        names = self.features if vocabulary is None else vocabulary.released
        return lambda: draw_features(self.plan, counts, names)


def draw_features(plan: ScoreFilterPlan, counts: Counts, names: Sequence[str]) -> dict[str, Any]:
    """Draw the features that are reported.

    Parameters
    ----------
    plan : ScoreFilterPlan
    counts : Counts
        Exact.
    names : sequence of str, length d
        Public or released names of the features.

    Returns
    -------
    result : dict
        ``names`` by rank (of 'svt' as they were found, of 'canonical_lipschitz' in no order), ``scores`` and
        ``std_error`` where counts are released, ``threshold`` that was applied, and of 'svt' how many features were
        compared, ``stopped_at``.

    Notes
    -----
    - **Guarantee**: (score_epsilon, score_delta)-DP; pure where no Gaussian noise is added. With Gaussian noise also
      mu-GDP.
    - **Neighbouring relation**: that of the plan.
    - **Sensitivity**: `dpsql.statistics.feature_counts`: L1 (laplace), L2 (gaussian), of one score (svt), range
      (selection of k).
    - **Randomness**: exact samplers, operating-system entropy, no seed.
    - **Assumes**: at most `max_features_per_row` features of a row were counted, each once; for exact
      ``information_gain`` at most `n_max` rows.
    - **Does not protect**: running time.
    """
    result: dict[str, Any] = {
        "kind": "score_filter",
        "method": plan.chosen,
        "names": [],
        "scores": None,
        "std_error": None,
        "threshold": None,
        "stopped_at": None,
    }
    count = len(names)
    if plan.noise_law is None:
        if plan.most_rows is not None and counts.positive_rows + counts.negative_rows > plan.most_rows:
            raise InternalError("I033", "more rows were counted than n_max allows. Report it.")
        scores = exact_scores(plan.score, counts.positive, counts.negative, counts.positive_rows, counts.negative_rows)
        if plan.chosen == "svt":
            applied = plan.applied_threshold(count)
            level = plan.sparse_vector.level(Fraction(applied) * plan.unit)
            run = plan.measurement["scores"].draw(scores, level=level)
            found: Sequence[int] = run.above
            result |= {"threshold": applied, "stopped_at": run.stopped_at}
        else:
            found = select_best(plan, scores) if count else []
        return result | {"names": [names[position] for position in found]}
    noisy, deviation = noisy_counts(plan, counts)
    scored = noisy_scores(plan, noisy, count)
    best = np.argsort(-scored, kind="stable")
    if plan.chosen == "cluster":
        best = best[best_cluster(noisy[: 2 * count].reshape(2, count).T, scored, plan.clusters)[best]]
    elif plan.k is not None:
        best = best[: plan.k]
    else:
        result["threshold"] = plan.applied_threshold(count)
        best = best[scored[best] >= result["threshold"]]
    linear = plan.score != "information_gain"
    return result | {
        "names": [names[position] for position in best.tolist()],
        "scores": scored[best].tolist(),
        "std_error": deviation * math.sqrt(_NUMBERS[plan.released]) if linear else None,
    }


def select_best(plan: ScoreFilterPlan, scores: NDArray[np.int64]) -> list[int]:
    """Select the k best of some exact scores; all of a vocabulary that turned out to be shorter.

    Notes
    -----
    - **Guarantee**: pure DP at ``plan.score_epsilon``.
    - **Sensitivity**: range, `dpsql.statistics.feature_counts.score_range`.
    """
    selection: OneShotSelection = plan.measurement["scores"]
    return selection.draw(scores, utility_range=plan.score_range(len(scores)))


def released_counts(released: str, counts: Counts) -> NDArray[np.int64]:
    """Return the exact numbers that noise is added to, features first; see `dpsql.statistics.feature_counts`."""
    positive, negative = counts.positive, counts.negative
    labels = [counts.positive_rows, counts.negative_rows]
    parts: dict[str, list[Any]] = {
        "totals": [positive + negative],
        "differences": [positive - negative],
        "differences_and_labels": [positive - negative, [labels[0] - labels[1]]],
        "counts": [positive, negative],
        "counts_and_labels": [positive, negative, labels],
    }
    return np.concatenate([np.asarray(part, dtype=np.int64) for part in parts[released]])


def noisy_counts(plan: ScoreFilterPlan, counts: Counts) -> tuple[Floats, float]:
    """Add noise to what the plan's score is made of.

    Returns
    -------
    noisy : ndarray of float64
        As `released_counts`.
    deviation : float
        Standard deviation of the noise.

    Notes
    -----
    - **Guarantee**: as `draw_features`.
    - **Sensitivity**: L1 or L2 of `dpsql.statistics.feature_counts.released_norms`.
    """
    values = released_counts(plan.released, counts)
    count = len(counts.positive) or None
    if plan.noise_law == "gaussian":
        gaussian: GaussianNoise = plan.measurement["scores"]
        release = gaussian.draw_counts("counts", values, squared_sensitivity=plan.norms(count).squared_l2)
        return release.values, release.sigma
    laplace: LaplaceNoise = plan.measurement["scores"]
    noisy = laplace.draw_counts(values, plan.norms(count).l1)
    return noisy.astype(np.float64), laplace_deviation(plan.noise_scale(count))


def noisy_scores(plan: ScoreFilterPlan, noisy: Floats, count: int) -> Floats:
    """Return the scores of so many features from `noisy_counts`: post-processing."""
    if plan.released == "totals":
        return noisy
    if plan.released.startswith("differences"):
        difference = noisy[:count]
        if plan.score == "difference_count":
            return np.asarray(np.abs(difference))
        return np.asarray(np.maximum(np.abs(difference), np.abs(noisy[count] - difference)))
    return point_scores(plan.score, noisy[: 2 * count].reshape(2, count).T, noisy[2 * count :])


def point_scores(score: str, points: Floats, labels: Floats) -> Floats:
    """Return the scores of pairs of counts.

    Parameters
    ----------
    score : str
        One of `SCORES`.
    points : ndarray of float64, shape (d, 2)
        Positive and negative rows that have the feature, with noise.
    labels : ndarray of float64, shape (2,) or (0,)
        Positive and negative rows; for ``purity`` and ``information_gain``.

    Returns
    -------
    scores : ndarray of float64, shape (d,)
        Of ``information_gain`` in nats times rows, >= 0: counts are cut to what is possible.
    """
    if score == "total_count":
        return np.asarray(points.sum(axis=1))
    difference = points[:, 0] - points[:, 1]
    if score == "difference_count":
        return np.asarray(np.abs(difference))
    if score == "purity":
        return np.asarray(np.maximum(np.abs(difference), np.abs(labels[0] - labels[1] - difference)))
    rows = np.maximum(labels, 0.0)
    ones = np.clip(points, 0.0, rows)
    with_ones, total = ones.sum(axis=1), rows.sum()
    gain = _n_log_n(ones).sum(axis=1) + _n_log_n(rows - ones).sum(axis=1) + _n_log_n(total)
    gain -= _n_log_n(with_ones) + _n_log_n(total - with_ones) + _n_log_n(rows).sum()
    return np.asarray(np.maximum(gain, 0.0))


def best_cluster(points: Floats, scores: Floats, clusters: int) -> NDArray[np.bool_]:
    """Return which features are in the cluster whose features score highest on average: post-processing.

    Parameters
    ----------
    points : ndarray of float64, shape (d, 2)
        Noisy counts of each feature by label.
    scores : ndarray of float64, shape (d,)
    clusters : int
        >= 1; no more than features are made.

    Returns
    -------
    member : ndarray of bool, shape (d,)

    Notes
    -----
    The first centre is the feature of lowest score, every other one that which is farthest from all before. Then, as in
    k-means, every feature goes to the nearest centre and every centre to the middle of its features, until they stay.
    """
    if len(points) == 0:
        return np.zeros(0, dtype=np.bool_)
    starts = [int(np.argmin(scores))]
    distance = ((points - points[starts[0]]) ** 2).sum(axis=1)
    while len(starts) < min(clusters, len(points)):
        starts.append(int(np.argmax(distance)))
        distance = np.minimum(distance, ((points - points[starts[-1]]) ** 2).sum(axis=1))
    centres = points[starts]
    for _ in range(_MOST_ROUNDS):
        nearest = ((points - centres[0]) ** 2).sum(axis=1)
        member = np.zeros(len(points), dtype=np.intp)
        for number, centre in enumerate(centres[1:], start=1):
            away = ((points - centre) ** 2).sum(axis=1)
            member[away < nearest] = number
            nearest = np.minimum(away, nearest)
        sizes = np.bincount(member, minlength=len(centres))
        moved = centres.copy()
        for side in (0, 1):
            sums = np.bincount(member, points[:, side], len(centres))
            np.divide(sums, sizes, out=moved[:, side], where=sizes > 0)
        if (moved == centres).all():
            break
        centres = moved
    means = np.full(len(centres), -np.inf)
    np.divide(np.bincount(member, scores, len(centres)), sizes, out=means, where=sizes > 0)
    return np.asarray(member == int(np.argmax(means)), dtype=np.bool_)


def _n_log_n(values: Any) -> Any:
    return np.asarray(values) * np.log(np.where(np.asarray(values) > 0.0, values, 1.0))
