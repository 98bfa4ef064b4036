"""The plan of dp_score_filter: its checked arguments, their cost, and the noise on the scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, TypeVar

from dpsql.contract.arguments import Signature
from dpsql.contract.gaussian_profile import usable_mu
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Measurement, Part, measurement_of
from dpsql.contract.plan import Pass, Quantity
from dpsql.contract.selection import SelectorPlan
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.feature_counts import FeatureCountsPlan
from dpsql.functions.one_shot import CONFIDENCE, MECHANISMS, log_of_ratio, one_shot_noise
from dpsql.functions.score_filter_arguments import NOISES, SIGNATURE, refuse_contradictions
from dpsql.mechanisms.count_noise import CountNoise, LaplaceCountNoise, gaussian_count_noise
from dpsql.mechanisms.gaussian import MOST_COORDINATES, GaussianNoise
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.mechanisms.one_shot import OneShotSelection
from dpsql.mechanisms.partition_selection import PartitionSelection, PrivateNames
from dpsql.mechanisms.sparse_vector import ScoresAbove, SparseVector
from dpsql.noise.discrete import laplace_deviation
from dpsql.statistics.feature_counts import (
    INFORMATION_UNIT,
    RELEASED_FOR,
    Norms,
    is_monotone,
    released_norms,
    score_range,
    score_sensitivity,
)

# The number of features that 'auto' assumes if it is not known.
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
    def _own(cls, given: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        own = {
            **super()._own(given, layout),
            **cls._read(given, "score", "threshold"),
            **cls._shared(given),
            **cls._read(given, "n_max", "cutoff", "delta", "method"),
            **cls._read(given, "false_positives", "clusters", "vocabulary", "vocabulary_share"),
        }
        refuse_contradictions(own, layout)
        return own

    def check_features(self, count: int) -> None:
        """Raise if k is too large, or if there are more numbers than one call may release."""
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
        """One pass, after one that draws private names; with a limit, some rows do not tell which of all count."""
        kept = "Leave n_max out, with method := 'laplace'." if self.most_rows is not None else ""
        [one] = (replace(one, most_rows=self.most_rows, keeps_rows=kept) for one in super()._passes())
        names = replace(one, draws_names=self.layout.kind == "long")
        return (names, one) if self.draws_vocabulary else (one,)

    @property
    def draws_vocabulary(self) -> bool:
        """Whether the feature names are private, and drawn from the rows."""
        return self.vocabulary == "private"

    @property
    def most_rows(self) -> int | None:
        """Limit on the number of rows that count; only exact information scores need one, and only they allow it."""
        return self.n_max if self.noise_law is None else None

    @cached_property
    def score_epsilon(self) -> Fraction:
        """Epsilon spent on the scores."""
        return self.epsilon * (1 - self.vocabulary_share) if self.draws_vocabulary else self.epsilon

    @cached_property
    def chosen(self) -> str:
        """The method, with ``'auto'`` resolved from public numbers."""
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
        """The noise distribution of released counts; None if exact scores are compared."""
        if self.chosen == "cluster":
            return "laplace" if self.delta is None else "gaussian"
        return self.chosen if self.chosen in NOISES else None

    @cached_property
    def score_delta(self) -> Fraction | None:
        """Delta spent on Gaussian noise for the scores."""
        return self._score_delta(self.noise_law)

    @cached_property
    def mu(self) -> Fraction:
        """Mu of the scores."""
        return self._mu(self.score_delta)

    @property
    def key_selection(self) -> PartitionSelection:
        """Noise and threshold of a private vocabulary, from the distribution with the lower threshold."""
        part: PrivateNames = self._vocabulary
        return part.selection

    @cached_property
    def _vocabulary(self) -> PrivateNames:
        return PrivateNames(
            "vocabulary",
            self.epsilon - self.score_epsilon,
            _required(self.delta) - (self.score_delta or 0),
            # With a limit on the rows that count, an added row may replace another.
            self.neighbours if self.most_rows is None else "replace",
            self.max_features_per_row,
            self.max_rows_per_unit,
        )

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement: the vocabulary, if it is private, and the draw of the features."""
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
        """Name of the statistic that gets noise; see `dpsql.statistics.feature_counts`."""
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
        return self._deviation(self.noise_law or "", self.norms(count), self.one(count))

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
        """The noise of the sparse vector technique."""
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
        """One unit of the user's score, in the unit of `score_range` and `sparse_vector`."""
        return INFORMATION_UNIT if self.score == "information_gain" else 1

    def applied_threshold(self, count: int) -> float:
        """Return the threshold on noisy scores for `count` features.

        Notes
        -----
        The threshold is so large that the expected number of reported features without rows is at most
        `false_positives`. Such a feature is reported if its noise reaches the threshold for ``total_count``, or the
        absolute value of its noise for ``difference_count``. There is no such limit for ``purity``, which is not noise
        alone for a feature without rows, nor for ``information_gain``, which is not linear in the noise.
        """
        threshold = float(_required(self.threshold))
        sides = {"total_count": 1, "difference_count": 2}.get(self.score)
        if sides is None or self.false_positives >= count:  # includes count == 0
            return threshold
        if self.chosen == "svt":  # only the noise on scores counts: that on the threshold, less its mean, helps
            run = self.sparse_vector
            reached = float(run.score_scale) * math.log(count / self.false_positives)
            return max(threshold, reached - float(run.score_scale - run.threshold_scale))
        chance = self.false_positives / (sides * count)
        noise: CountNoise
        if self.noise_law == "laplace":
            one = self.one(count)
            noise = LaplaceCountNoise(scale=self.noise_scale(count) * one, unit=one)
        else:
            noise = gaussian_count_noise(self.norms(count).squared_l2, self.mu)
        return max(threshold, noise.least(chance) / noise.unit)

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return how noisy the scores would be."""
        out: list[Quantity] = []
        if self.draws_vocabulary:
            found = self.key_selection
            out += [
                ("vocabulary_threshold", found.least_count, "noisy number of rows from which a name is released"),
                ("vocabulary_std_error", found.noise.deviation, "standard deviation of the noise on that number"),
            ]
        out += self._count_noise(n_features) if self.noise_law is not None else self._choice_noise(n_features)
        if self.threshold is not None:
            applied = self.applied_threshold(n_features)
            out.append(("applied_threshold", applied, "score with noise from which a feature is reported"))
        return out

    def _count_noise(self, n_features: int) -> list[Quantity]:
        """Return how noisy released counts would be."""
        norms = self.norms(n_features)
        return [
            ("count_sensitivity_l1", float(norms.l1), "most that one privacy unit moves all counts, added up"),
            ("count_sensitivity_l2", math.sqrt(norms.squared_l2), "the same as the root of the sum of squares"),
            ("count_std_error", self.deviation(n_features), "standard deviation of the noise on a released count"),
        ]

    def _choice_noise(self, n_features: int) -> list[Quantity]:
        """Return how noisy a comparison of exact scores would be."""
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

    def _deviation(self, noise: str, norms: Norms, one: int = 1) -> float:
        if noise == "gaussian":
            return math.sqrt(norms.squared_l2) / float(self._mu(self._score_delta(noise)))
        return laplace_deviation(norms.l1 / self.score_epsilon, one)

    def _noisy_gap(self, noise: str, k: int, count: int) -> float:
        """Return the gap of scores from which noisy counts rank the k best first in about 95 % of calls.

        Assumes that information scores move as much as a count does.
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
