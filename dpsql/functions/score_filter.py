"""dp_score_filter: features whose counts by label score above a threshold, or the k best.

With Gaussian or Laplace noise the counts are released once; scores, thresholds and clusters are post-processing. The
sparse vector technique and the selection of k features read exact scores instead. The module checks the arguments and
their combinations, and computes the cost and the noise on the scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, partial
from typing import ClassVar, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.contract import parameters
from dpsql.contract.arguments import (
    CLASSES,
    DELTA,
    EPSILON,
    OPTIONAL_DELTA,
    Argument,
    Signature,
    integer,
    rational,
    share,
    word,
)
from dpsql.contract.call import Call
from dpsql.contract.fold import Collector
from dpsql.contract.gaussian_profile import usable_mu
from dpsql.contract.json import Json
from dpsql.contract.layout import MOST_FEATURES, Layout
from dpsql.contract.measurement import Measurement, Part, measurement_of
from dpsql.contract.plan import Pass, Quantity
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.feature_counts import (
    PRESENCE,
    Counts,
    FeatureCountsCall,
    FeatureCountsPlan,
    Floats,
    best_cluster,
    point_scores,
)
from dpsql.functions.selection import (
    CONFIDENCE,
    MECHANISMS,
    SelectorPlan,
    log_of_ratio,
    one_shot_noise,
    selector_arguments,
)
from dpsql.mechanisms.count_noise import CountNoise, LaplaceCountNoise, gaussian_count_noise
from dpsql.mechanisms.gaussian import MOST_COORDINATES, GaussianNoise
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.mechanisms.one_shot import OneShotSelection
from dpsql.mechanisms.partition_selection import PartitionSelection, PrivateNames
from dpsql.mechanisms.sparse_vector import ScoresAbove, SparseVector
from dpsql.noise.discrete import laplace_deviation
from dpsql.progress import Progress
from dpsql.released.intervals import score_reach
from dpsql.statistics.feature_counts import (
    INFORMATION_UNIT,
    LARGEST_ROWS,
    RELEASED_FOR,
    SCORES,
    Norms,
    is_monotone,
    released_norms,
    score_range,
    score_sensitivity,
)
from dpsql.statistics.presence import FeatureCounts, NameCounts

NOISES = ("gaussian", "laplace")
METHODS = ("auto", *NOISES, "svt", "cluster", *MECHANISMS)
VOCABULARIES = ("public", "private")
_MOST_CUTOFF = 1_000_000
_MOST_CLUSTERS = 1000
_LEAST_FALSE = Fraction(1, 10**12)

SIGNATURE = selector_arguments(
    word("score", "How features are scored; docs/selection.md defines the scores.", SCORES, "difference_count"),
    Argument(
        "threshold",
        "Report the features whose score is at least this, from 0, in rows or in nats times rows. Give it or k.",
        check=partial(
            parameters.number_from_zero, "threshold", hint="Give the score from which features are reported."
        ),
        exact=True,
    ),
    integer(
        "k",
        "Report the k features with the highest scores. Give it or threshold.",
        hint="Give the number of features.",
        most=MOST_FEATURES,
    ),
    EPSILON,
    replace(OPTIONAL_DELTA, doc=f"{DELTA.doc} Needed for Gaussian noise and for a private vocabulary."),
    word("method", "How the features are found; docs/selection.md compares the ways.", METHODS, "auto"),
    *PRESENCE,
    integer(
        "n_max",
        "Public limit on the number of rows that count, for exact information gain.",
        hint="Give a public limit of the rows that count.",
        most=LARGEST_ROWS,
    ),
    integer(
        "cutoff",
        "For 'svt': the largest number of features to report, from 1 to 1000000.",
        hint="Give how many features to report at most.",
        most=_MOST_CUTOFF,
    ),
    rational(
        "false_positives",
        "Largest expected number of reported features that no row has, from 1e-12 to 1e12.",
        1,
        hint="1 is usual.",
    ),
    integer(
        "clusters", "For 'cluster': number of clusters, from 2 to 1000.", 2, hint="2 is usual.", most=_MOST_CLUSTERS
    ),
    word("vocabulary", "Whether feature names of long rows are public, or drawn privately.", VOCABULARIES, "public"),
    share(
        "vocabulary_share",
        "Share of the budget spent on a private vocabulary, between 0 and 1.",
        0.5,
        hint="0.5 is usual.",
    ),
    CLASSES,
)


def refuse_contradictions(own: Mapping[str, object], layout: Layout) -> None:
    """Raise if arguments that are each valid cannot be combined."""
    _check_method(own)
    false = parameters.narrow(Fraction, own["false_positives"])
    parameters.within("false_positives", false, _LEAST_FALSE, 1 / _LEAST_FALSE, hint="1 is usual.")
    parameters.within("clusters", parameters.narrow(int, own["clusters"]), 2, None, hint="2 is usual.")
    exact = own["method"] == "svt" or own["method"] in MECHANISMS
    _check_most_rows(own, exact)
    _check_delta(own, exact, layout)


def _check_method(own: Mapping[str, object]) -> None:
    """Raise unless the method has the threshold or the number of features that it needs."""
    method, k, threshold = own["method"], own["k"], own["threshold"]
    if method == "cluster":
        if k is not None or threshold is not None:
            _refuse("method 'cluster' finds the features by itself. Leave out threshold and k.")
    elif k is None and threshold is None:
        _ask("give either threshold, the score from which features are reported, or k, how many.")
    elif k is not None and threshold is not None:
        _refuse("threshold and k exclude each other. Leave out one of them.")
    if method in MECHANISMS and k is None:
        _ask(f"method '{method}' selects k features. Give k in place of threshold, or another method.")
    if method == "svt" and threshold is None:
        _ask("method 'svt' compares with a threshold. Give threshold in place of k, or another method.")
    if method == "svt" and own["cutoff"] is None:
        _ask("method 'svt' needs cutoff, the number of features to report at most. Give cutoff := a number.")
    if method != "svt" and own["cutoff"] is not None:
        _refuse("cutoff is for method 'svt'. Leave it out.")


def _check_most_rows(own: Mapping[str, object], exact: bool) -> None:
    """Raise unless a limit on the rows is given exactly if exact information gain needs it."""
    method, of_information = own["method"], own["score"] == "information_gain"
    if of_information and exact and own["n_max"] is None:
        _ask(
            f"method '{method}' on information_gain needs n_max := a public limit of the rows that count. "
            "Or let noise be added to the counts: method := 'gaussian' or 'laplace'."
        )
    useful = of_information and (exact or (method == "auto" and own["k"] is not None))
    if own["n_max"] is not None and not useful:
        _refuse("n_max is for information_gain with methods that look at exact scores. Leave it out.")


def _check_delta(own: Mapping[str, object], exact: bool, layout: Layout) -> None:
    """Raise unless delta is given exactly if a private vocabulary or Gaussian noise needs it."""
    method, delta = own["method"], own["delta"]
    if own["vocabulary"] == "private":
        if layout.names is not None:
            _refuse("names are public, so vocabulary := 'private' would pay for nothing. Leave one of them out.")
        if delta is None:
            _ask("vocabulary := 'private' needs delta, the chance that a name of one row comes out. Try 1e-6.")
    elif delta is None and method == "gaussian":
        _ask("method 'gaussian' needs delta. Try 1e-6, or method := 'laplace'.")
    elif delta is not None and (exact or method == "laplace"):
        _refuse(f"method '{method}' with a public vocabulary has no use for delta. Leave it out.")


def _refuse(message: str) -> NoReturn:
    """Raise: an argument has no use in this combination."""
    raise ParameterError("P045", message)


def _ask(message: str) -> NoReturn:
    """Raise: this combination needs another argument."""
    raise ParameterError("P046", message)


# The number of features that 'auto' assumes if the number is unknown.
_USUAL_FEATURES = 1000
_GAMMA = Fraction(1, 2)
_MANY = 100

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class ScoreFilterPlan(FeatureCountsPlan, SelectorPlan):
    """The checked public arguments of one ``dp_score_filter`` call."""

    score: str
    threshold: Fraction | None
    k: int | None
    delta: Fraction | None
    method: str
    n_max: int | None  # at most 2**32
    cutoff: int | None
    false_positives: Fraction
    clusters: int
    vocabulary: str
    vocabulary_share: Fraction  # of epsilon, and of delta if Gaussian noise takes the rest

    function: ClassVar[str] = "dp_score_filter"
    arguments: ClassVar[Signature] = SIGNATURE
    names_after: ClassVar[str | None] = "method"

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        own = {
            **super()._own(arguments, layout),
            **cls._read(arguments, "score", "threshold"),
            **cls._shared(arguments),
            **cls._read(arguments, "n_max", "cutoff", "delta", "method"),
            **cls._read(arguments, "false_positives", "clusters", "vocabulary", "vocabulary_share"),
        }
        refuse_contradictions(own, layout)
        return own

    def check_features(self, count: int) -> None:
        """Raise if k is too large, or if a call may not release so many numbers."""
        if self.draws_vocabulary:
            _ = self.key_selection
        else:
            SelectorPlan.check_features(self, count)
        if 2 * count + 2 > MOST_COORDINATES:
            raise ParameterError("P026", f"{count} features are more than one call releases. Select some first.")

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scale of Laplace noise on a released number."""
        return (self.noise_scale(count or None),) if self.noise_law == "laplace" else ()

    def gaussian_parts(self, count: int) -> Iterable[Fraction]:
        """Return the share of mu of the Gaussian noise on the counts."""
        return (self.mu / self.max_rows_per_unit,) if self.noise_law == "gaussian" else ()

    def _passes(self) -> tuple[Pass, ...]:
        """Return one pass, after any draw of private names; a limit on rows applies to all rows together."""
        hint = "Leave n_max out, with method := 'laplace'." if self.most_rows is not None else ""
        [scan] = (replace(scan, most_rows=self.most_rows, keeps_rows=hint) for scan in super()._passes())
        names = replace(scan, draws_names=self.layout.kind == "long")
        return (names, scan) if self.draws_vocabulary else (scan,)

    @property
    def draws_vocabulary(self) -> bool:
        """Return whether the feature names are private, and drawn from the rows."""
        return self.vocabulary == "private"

    @property
    def most_rows(self) -> int | None:
        """Return the limit on the rows that count; exact information scores need it, other scores refuse it."""
        return self.n_max if self.noise_law is None else None

    @cached_property
    def score_epsilon(self) -> Fraction:
        """Return epsilon for the scores."""
        return self.epsilon * (1 - self.vocabulary_share) if self.draws_vocabulary else self.epsilon

    @cached_property
    def chosen(self) -> str:
        """Return the method; public numbers resolve ``'auto'``."""
        if self.method != "auto":
            return self.method
        noises = NOISES if self.delta is not None else ("laplace",)
        if self.k is None:
            return noises[0]
        count = max(self.k + 1, _known_features(self.layout) or _USUAL_FEATURES)
        gaps = {noise: self._noisy_gap(noise, self.k, count) for noise in noises}
        if self.score != "information_gain" or self.n_max is not None:
            # For large k noise on the counts is better anyway, and the number of subsets has very many digits.
            mechanisms = MECHANISMS if self.k <= _MANY else MECHANISMS[:1]
            gaps |= {mechanism: self._exact_gap(mechanism, self.k, count) for mechanism in mechanisms}
        return min(gaps, key=lambda method: gaps[method])

    @property
    def noise_law(self) -> str | None:
        """Return the noise distribution of released counts; None if exact scores are compared."""
        if self.chosen == "cluster":
            return "laplace" if self.delta is None else "gaussian"
        return self.chosen if self.chosen in NOISES else None

    @cached_property
    def score_delta(self) -> Fraction | None:
        """Return delta for Gaussian noise on the scores."""
        return self._score_delta(self.noise_law)

    @cached_property
    def mu(self) -> Fraction:
        """Return mu of the scores."""
        return self._mu(self.score_delta)

    @property
    def key_selection(self) -> PartitionSelection:
        """Return noise and threshold of a private vocabulary, from the distribution with the lower threshold."""
        part: PrivateNames = self._vocabulary
        return part.selection

    @cached_property
    def _vocabulary(self) -> PrivateNames:
        return PrivateNames(
            "vocabulary",
            self.epsilon - self.score_epsilon,
            _required(self.delta) - (self.score_delta or 0),
            # With a limit on the rows that count, an added row may replace another row.
            self.neighbours if self.most_rows is None else "replace",
            self.max_features_per_row,
            self.max_rows_per_unit,
        )

    @cached_property
    def measurement(self) -> Measurement:
        """Return the measurement: the vocabulary, if it is private, and the draw of the features."""
        scores: Part
        if self.noise_law == "gaussian":
            delta, shares = _required(self.score_delta), (("counts", self.mu),)
            scores = GaussianNoise("scores", self.mu, self.score_epsilon, delta, shares)
        elif self.noise_law == "laplace":
            scores = LaplaceNoise("scores", self.score_epsilon)
        elif self.chosen == "svt":
            scores = ScoresAbove("scores", self.sparse_vector)
        else:
            scores = OneShotSelection("scores", self.chosen, self.score_epsilon, _required(self.k), _GAMMA)
        return measurement_of(self._vocabulary, scores) if self.draws_vocabulary else measurement_of(scores)

    @property
    def released(self) -> str:
        """Return the name of the statistic that gets noise; see `dpsql.statistics.feature_counts`."""
        if self.chosen == "cluster" and self.score in ("total_count", "difference_count"):
            return "counts"
        return "counts_and_labels" if self.chosen == "cluster" else RELEASED_FOR[self.score]

    def norms(self, count: int | None) -> Norms:
        """Return the sensitivities of the released numbers for `count` features."""
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
        return self._deviation(self.noise_law or "", self.norms(count), self.denominator(count))

    def score_range(self, count: int | None) -> int:
        """Return the range of the exact scores of `count` features."""
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
        """Return the noise of the sparse vector technique."""
        return SparseVector(
            sensitivity=score_sensitivity(
                self.score, self.neighbours, max_rows_per_unit=self.max_rows_per_unit, largest_rows=self.n_max
            ),
            epsilon=self.score_epsilon,
            cutoff=_required(self.cutoff),
            monotone=is_monotone(self.score, self.neighbours),
        )

    @property
    def unit(self) -> int:
        """Return one unit of the user's score, in the unit of `score_range` and `sparse_vector`."""
        return INFORMATION_UNIT if self.score == "information_gain" else 1

    def applied_threshold(self, count: int) -> float:
        """Return the threshold on noisy scores for `count` features.

        Notes
        -----
        The threshold is so large that the expected number of reported features without rows is at most
        `false_positives`. Such a feature is reported if its noise reaches the threshold for ``total_count``, or the
        absolute value of its noise for ``difference_count``. There is no such limit for ``purity``, which depends on
        more than noise for a feature without rows, nor for ``information_gain``, which is not linear in the noise.
        """
        threshold = float(_required(self.threshold))
        sides = {"total_count": 1, "difference_count": 2}.get(self.score)
        if sides is None or self.false_positives >= count:  # includes count == 0
            return threshold
        if self.chosen == "svt":  # only the noise on scores counts: the threshold's noise, less its mean, helps
            run = self.sparse_vector
            reach = float(run.score_scale) * math.log(count / self.false_positives)
            return max(threshold, reach - float(run.score_scale - run.threshold_scale))
        chance = self.false_positives / (sides * count)
        noise: CountNoise
        if self.noise_law == "laplace":
            unit = self.denominator(count)
            noise = LaplaceCountNoise(scale=self.noise_scale(count) * unit, unit=unit)
        else:
            noise = gaussian_count_noise(self.norms(count).squared_l2, self.mu)
        return max(threshold, noise.least(chance) / noise.unit)

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the noise on the scores."""
        out: list[Quantity] = []
        if self.draws_vocabulary:
            selection = self.key_selection
            out += [
                ("vocabulary_threshold", selection.least_count, "noisy number of rows from which a name is released"),
                ("vocabulary_std_error", selection.noise.deviation, "standard deviation of the noise on that number"),
            ]
        out += self._count_noise(n_features) if self.noise_law is not None else self._choice_noise(n_features)
        if self.threshold is not None:
            applied = self.applied_threshold(n_features)
            out.append(("applied_threshold", applied, "score with noise from which a feature is reported"))
        return out

    def _count_noise(self, n_features: int) -> list[Quantity]:
        """Return the noise on released counts."""
        norms = self.norms(n_features)
        return [
            ("count_sensitivity_l1", float(norms.l1), "most that one privacy unit moves all counts, added up"),
            ("count_sensitivity_l2", math.sqrt(norms.squared_l2), "the same as the root of the sum of squares"),
            ("count_std_error", self.deviation(n_features), "standard deviation of the noise on a released count"),
        ]

    def _choice_noise(self, n_features: int) -> list[Quantity]:
        """Return the noise of a comparison of exact scores."""
        if self.chosen == "svt":
            run = self.sparse_vector
            scales = (float(run.score_scale) / self.unit, float(run.threshold_scale) / self.unit)
            return [
                ("score_sensitivity", run.sensitivity / self.unit, "most that one privacy unit can move one score"),
                ("noise_scale", scales[0], "scale of the noise on each score"),
                ("threshold_noise_scale", scales[1], "scale of the noise on the threshold"),
            ]
        return one_shot_noise(
            mechanism=self.chosen,
            gamma=_GAMMA,
            spread=self.score_range(n_features) / self.unit,
            epsilon=self.score_epsilon,
            k=_required(self.k),
            count=n_features,
        )

    def _score_delta(self, noise: str | None) -> Fraction | None:
        if self.delta is None or noise != "gaussian":
            return None
        return self.delta * (1 - self.vocabulary_share) if self.draws_vocabulary else self.delta

    def _mu(self, delta: Fraction | None) -> Fraction:
        return usable_mu(self.score_epsilon, _required(delta))

    def _deviation(self, noise: str, norms: Norms, unit: int = 1) -> float:
        if noise == "gaussian":
            return math.sqrt(norms.squared_l2) / float(self._mu(self._score_delta(noise)))
        return laplace_deviation(norms.l1 / self.score_epsilon, unit)

    def _noisy_gap(self, noise: str, k: int, count: int) -> float:
        """Return the gap of scores from which noisy counts rank the k best first in about 95 % of calls.

        The gap assumes that information scores move as much as a count does.
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
        # The difference of two noise terms has a normal tail, or slightly more than an exponential one.
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


def _required(value: _T | None) -> _T:
    """Return a value that the argument checks guarantee."""
    if value is None:
        raise InternalError("I032", "a number that this method needs is missing. Report it.")
    return value


def _known_features(layout: Layout) -> int | None:
    """Return the number of features if the arguments determine it, else None."""
    if isinstance(layout.features, tuple):
        return len(layout.features) or None
    return layout.n_features or (len(layout.names) if layout.names else None)


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
        """Draw the names of the released features; return the call with these features.

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

        On DuckDB rows refer to every name by one number in both passes. Workers of an engine share no numbers: they get
        the released names, which are public by then.
        """
        count, most = len(self.features), collector.most
        unit = self.plan.denominator(count)
        if self.plan.engine is not None:
            return FeatureCounts(count, most, denominator=unit)
        collector.vocabulary.release(self.features)
        return FeatureCounts(count, most, denominator=unit, vocabulary=collector.vocabulary)

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
        ``std_error`` if counts are released; ``threshold``, the applied threshold; and for 'svt' ``stopped_at``, the
        number of features compared.

    Notes
    -----
    - **Guarantee**: (score_epsilon, score_delta)-DP; pure without Gaussian noise. With Gaussian noise also mu-GDP.
    - **Neighbouring relation**: as in the plan.
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
    finer = 1 if plan.score == "information_gain" else counts.denominator
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
        How many units of the scores are one unit of `ScoreFilterPlan.score_range`.

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
    labels = [counts.positive_rows * counts.denominator, counts.negative_rows * counts.denominator]
    parts: dict[str, list[Sequence[int] | NDArray[np.int64]]] = {
        "totals": [positive + negative],
        "differences": [positive - negative],
        "differences_and_labels": [positive - negative, [labels[0] - labels[1]]],
        "counts": [positive, negative],
        "counts_and_labels": [positive, negative, labels],
    }
    return np.concatenate([np.asarray(part, dtype=np.int64) for part in parts[released]])


def noisy_counts(plan: ScoreFilterPlan, counts: Counts) -> tuple[Floats, float]:
    """Add noise to the counts that determine the plan's score.

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
        release = gaussian.draw_counts("counts", values, squared_sensitivity=squared, denominator=counts.denominator)
        return release.values, release.sigma
    laplace: LaplaceNoise = plan.measurement["scores"]
    noisy = laplace.draw_counts(values, plan.norms(count).l1, denominator=counts.denominator)
    return noisy, laplace_deviation(plan.noise_scale(count), counts.denominator)


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
