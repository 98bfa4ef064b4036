"""dp_naive_bayes: Bernoulli naive Bayes from two counts per feature and the two class sizes.

The model needs only the class sizes and, for each feature, the number of rows of each class that have the feature;
subtraction gives the other rows. So a row moves one class size and at most r feature counts, where r is the number of
features that count per row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsql.contract import parameters
from dpsql.contract.arguments import (
    CLASSES,
    COLUMNS,
    EPSILON,
    OPTIONAL_DELTA,
    PROTECTION,
    Argument,
    Signature,
    flag,
    share,
)
from dpsql.contract.gaussian_profile import share_of_mu, usable_mu
from dpsql.contract.json import Json
from dpsql.contract.layout import Layout
from dpsql.contract.measurement import Measurement, measurement_of
from dpsql.contract.plan import Quantity
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.functions.feature_counts import PRESENCE, Counts, FeatureCountsCall, FeatureCountsPlan
from dpsql.mechanisms.gaussian import MOST_COORDINATES, GaussianNoise
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.noise.discrete import laplace_deviation
from dpsql.progress import Progress
from dpsql.statistics.counts import l1_sensitivity, squared_l2_sensitivity
from dpsql.statistics.feature_counts import Norms, released_norms
from dpsql.statistics.presence import FeatureCounts

_MOST_SMOOTHING = 1e9


def _smoothing(value: object) -> float:
    number = parameters.positive_float("smoothing", value, hint="1 is usual: one row with, one without.")
    parameters.within("smoothing", number, None, _MOST_SMOOTHING, hint="1 is usual.")
    return number


@dataclass(frozen=True, kw_only=True)
class NaiveBayesPlan(FeatureCountsPlan):
    """The checked public arguments of one ``dp_naive_bayes`` call."""

    delta: Fraction | None
    count_share: Fraction  # of epsilon, or of mu squared for Gaussian noise
    smoothing: float
    shrink: bool

    function: ClassVar[str] = "dp_naive_bayes"
    arguments: ClassVar[Signature] = Signature(
        *COLUMNS,
        EPSILON,
        OPTIONAL_DELTA,
        *PRESENCE,
        share(
            "count_share", "Share of the budget spent on the class sizes, between 0 and 1.", 0.1, hint="0.1 is usual."
        ),
        Argument(
            "smoothing",
            "Pseudocount: rows with and rows without each feature to add to each class, above 0 and at most 1e9.",
            1.0,
            check=_smoothing,
        ),
        flag("shrink", "Shrink the two classes' rates together, by as much as noise alone would separate them.", True),
        CLASSES,
        *PROTECTION,
    )
    names_after: ClassVar[str | None] = "delta"

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        return {
            **super()._own(arguments, layout),
            **cls._read(arguments, "delta", "count_share", "smoothing", "shrink"),
        }

    def check_features(self, count: int) -> None:
        """Raise if the counts are more numbers than one call may release."""
        if 2 * count > MOST_COORDINATES:
            raise ParameterError("P026", f"{count} features are more than one call releases. Select some first.")

    def laplace_scales(self, count: int) -> Iterable[Fraction]:
        """Return the scales of Laplace noise."""
        return self.scales(count) if self.delta is None else ()

    def gaussian_parts(self, count: int) -> Iterable[Fraction]:
        """Return the shares of mu of the Gaussian noise."""
        shares = () if self.delta is None else self.shares
        return (share_of_mu(share, self.mu) / self.max_rows_per_unit for share in shares)

    @cached_property
    def mu(self) -> Fraction:
        """Mu of the whole call; 0 for Laplace noise."""
        return Fraction(0) if self.delta is None else usable_mu(self.epsilon, self.delta)

    @property
    def shares(self) -> tuple[Fraction, Fraction]:
        """Shares of the privacy loss spent on the class sizes and on the feature counts."""
        return self.count_share, 1 - self.count_share

    def norms(self, count: int) -> tuple[Norms, Norms]:
        """Return the sensitivities of the class sizes and of the counts of `count` features."""
        unit = self.max_rows_per_unit
        return (
            Norms(
                l1_sensitivity(self.neighbours, max_rows_per_unit=unit),
                squared_l2_sensitivity(self.neighbours, max_rows_per_unit=unit),
            ),
            released_norms(
                "counts",
                self.neighbours,
                max_features_per_row=self.max_features_per_row,
                n_features=count,
                max_rows_per_unit=unit,
            ),
        )

    @property
    def _laplace(self) -> list[LaplaceNoise]:
        """The parts that draw class sizes and feature counts with Laplace noise."""
        return [self.measurement["rows"], self.measurement["features"]]

    def scales(self, count: int) -> tuple[Fraction, ...]:
        """Return the scales of the Laplace noise on a class size and on a feature count."""
        pairs = zip(self.norms(count), self._laplace, strict=True)
        return tuple(part.scale(norms.l1) for norms, part in pairs)

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement: class sizes and feature counts."""
        names = ("rows", "features")
        if self.delta is not None:
            mus = tuple((name, share_of_mu(share, self.mu)) for name, share in zip(names, self.shares, strict=True))
            return measurement_of(GaussianNoise("counts", self.mu, self.epsilon, self.delta, mus))
        parts = zip(names, self.shares, strict=True)
        return measurement_of(*(LaplaceNoise(name, self.epsilon * share) for name, share in parts))

    def noise(self, n_features: int, n_rows: int | None) -> list[Quantity]:
        """Return the expected noise of the counts."""
        rows, feature = self.deviations(n_features)
        return [
            ("count_std_error", feature, "standard deviation of the noise on the rows that have a feature"),
            ("rows_std_error", rows, "standard deviation of the noise on the rows of a level"),
        ]

    def deviations(self, count: int) -> tuple[float, ...]:
        """Return the standard deviations of the noise on a class size and on a feature count."""
        if self.delta is None:
            rows, features = self.scales(count)
            return laplace_deviation(rows), laplace_deviation(features, self.denominator(count))
        pairs = zip(self.norms(count), self.shares, strict=True)
        return tuple(math.sqrt(norms.squared_l2 / share) / float(self.mu) for norms, share in pairs)


class NaiveBayesCall(FeatureCountsCall):
    """A dp_naive_bayes call, with the column types of its source."""

    plan: NaiveBayesPlan

    def prepare(self, statistic: FeatureCounts, progress: Progress) -> Callable[[], Json]:
        """Return the draw of the model."""
        counts = self.counts(statistic)
        return lambda: self.draw(counts)

    def draw(self, counts: Counts) -> dict[str, Json]:
        """Draw the counts, and derive the model.

        Notes
        -----
        - **Guarantee**: pure epsilon-DP with Laplace noise, (epsilon, delta)-DP and mu-GDP with Gaussian noise.
        - **Neighbouring relation**: the plan's.
        - **Sensitivity**: an added row moves one of the two class sizes by 1, and the 2 d feature counts by at most r
          together, none by more than 1. So L1 and squared L2 are 1 for the class sizes and r for the counts. A replaced
          row is a removal and an addition, and may change class: 2 and 2 r. `dpsql.statistics.feature_counts` has the
          sensitivities of the counts.
        - **Assumes**: the features of a row count at most `max_features_per_row` rows together, each feature once.
        """
        plan = self.plan
        noisy_rows, noisy = self._noisy(counts)
        if plan.shrink:
            noisy = shrunk(noisy, noisy_rows, plan.deviations(len(self.features))[1])
        weights = log_odds(noisy, noisy_rows, plan.smoothing)
        return {
            "kind": "naive_bayes",
            "method": "gaussian" if plan.delta is not None else "laplace",
            "terms": ["intercept", *self.features],
            "elements": None if self.elements is None else list(self.elements),
            "coefficients": weights.tolist(),
            "std_errors": None,
            "bounds": None,
            "levels": list(self.levels),
            "binary": True,
            "present_above": plan.present_above,
        }

    def _noisy(self, counts: Counts) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return noisy class sizes, and noisy feature counts of shape (2, d); `draw` states the guarantee."""
        plan = self.plan
        rows = np.array([counts.negative_rows, counts.positive_rows], dtype=np.int64)
        features = np.concatenate([counts.negative, counts.positive])
        both = zip((rows, features), plan.norms(len(self.features)), (1, counts.denominator), strict=True)
        if plan.delta is None:
            noisy_rows, noisy = (
                part.draw_counts(counted, norm.l1, denominator=unit)
                for part, (counted, norm, unit) in zip(plan._laplace, both, strict=True)
            )
        else:
            noise: GaussianNoise = plan.measurement["counts"]
            noisy_rows, noisy = (
                noise.draw_counts(name, counted, squared_sensitivity=norm.squared_l2, denominator=unit).values
                for name, (counted, norm, unit) in zip(("rows", "features"), both, strict=True)
            )
        return noisy_rows, noisy.reshape(2, -1)


def shrunk(present: NDArray[np.float64], rows: NDArray[np.float64], deviation: float) -> NDArray[np.float64]:
    """Return counts without the noise's share of the difference between the classes: post-processing.

    Noise gives even a rare feature a positive rate in both classes, and a larger one in the smaller class. So the
    function shrinks the difference of the two rates by the factor ``1 - variance / difference**2``, or to zero if that
    is negative (James and Stein). Without noise the counts do not change.

    Parameters
    ----------
    present : ndarray of float64, shape (2, d)
        Noisy numbers of negative and of positive rows that have each feature.
    rows : ndarray of float64, shape (2,)
        Noisy class sizes; values below one count as one.
    deviation : float
        Standard deviation of the noise on `present`.

    Returns
    -------
    counts : ndarray of float64, shape (2, d)
    """
    shares = np.maximum(rows, 1.0) / np.maximum(rows, 1.0).sum()
    both = present.sum(axis=0)
    difference = present[1] - shares[1] * both
    variance = deviation**2 * np.square(shares).sum()
    squares = np.square(difference)
    # The quotient is at most 1: if noise explains the whole difference, nothing remains.
    remainder = difference * (1 - variance / np.maximum(squares, variance) if variance > 0 else 1.0)
    return np.stack([shares[0] * both - remainder, shares[1] * both + remainder])


def log_odds(present: NDArray[np.float64], rows: NDArray[np.float64], smoothing: float) -> NDArray[np.float64]:
    """Return the log odds of the positive class as a linear model of features coded 0 and 1: post-processing.

    Parameters
    ----------
    present : ndarray of float64, shape (2, d)
        Noisy numbers of negative and of positive rows that have each feature.
    rows : ndarray of float64, shape (2,)
        Noisy class sizes; values below one count as one.
    smoothing : float
        > 0.

    Returns
    -------
    weights : ndarray of float64, shape (1 + d,)
        Intercept first. Without noise they equal scikit-learn's ``BernoulliNB(alpha=smoothing)``.
    """
    rows = np.maximum(rows, 1.0)
    counts, total = np.clip(present, 0.0, rows[:, np.newaxis]), np.log(rows[:, np.newaxis] + 2 * smoothing)
    log_present = np.log(counts + smoothing) - total
    log_absent = np.log(rows[:, np.newaxis] - counts + smoothing) - total
    weights = (log_present[1] - log_absent[1]) - (log_present[0] - log_absent[0])
    intercept = np.log(rows[1]) - np.log(rows[0]) + (log_absent[1] - log_absent[0]).sum()
    return np.concatenate([[intercept], weights])
