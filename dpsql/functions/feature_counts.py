"""Count rows by label and binary feature, the statistic that dp_score_filter and dp_naive_bayes share.

A boolean feature is present in a row if it is true. A numeric feature is present if its value exceeds the public number
`present_above`, or, in the long layout, if it is not zero. A missing value is never present. The features of a row
count `max_features_per_row` rows together at most: if a row has k features, more than this limit, each feature counts
an equal share (`dpsql.statistics.feature_counts`). A row counts nowhere if its label is neither of the two levels.

Rows hold all features (wide and array layouts), or only the numbers of their features (long layout).

Scores and clusters of binary features follow from noisy counts: post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.contract import parameters
from dpsql.contract.arguments import Argument, integer
from dpsql.contract.call import LONG_POSITIONS, LONG_TARGET, Call
from dpsql.contract.fold import Batch, Collector
from dpsql.contract.layout import Layout
from dpsql.contract.parameters import show
from dpsql.contract.plan import COLLECTED, FEATURE_COUNTS, NOT_STATED, Pass, Plan
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError, SourceError
from dpsql.kernels.columns import is_boolean, is_vector
from dpsql.statistics.feature_counts import exact_scores, fixed_denominator
from dpsql.statistics.presence import FeatureCounts, NameCounts, label_of_cells

Floats = NDArray[np.float64]
_MOST_ROUNDS = 100


def point_scores(score: str, points: Floats, labels: Floats) -> Floats:
    """Return the score of each pair of counts.

    Parameters
    ----------
    score : str
        One of `SCORES`.
    points : ndarray of float64, shape (d, 2)
        Noisy numbers of positive and negative rows in which each feature is present.
    labels : ndarray of float64, shape (2,) or (0,)
        Noisy numbers of positive and negative rows; used for ``purity`` and ``information_gain``.

    Returns
    -------
    scores : ndarray of float64, shape (d,)
        ``information_gain`` is in nats times rows and >= 0, because counts are clipped to possible values.
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
    """Return which features are in the cluster with the highest mean score: post-processing.

    Parameters
    ----------
    points : ndarray of float64, shape (d, 2)
        Noisy counts of each feature by label.
    scores : ndarray of float64, shape (d,)
    clusters : int
        Number of clusters, >= 1; there is at most one cluster per feature.

    Returns
    -------
    member : ndarray of bool, shape (d,)

    Notes
    -----
    The first centre is the feature with the lowest score. Each further centre is the feature farthest from the centres
    before it. The k-means iteration then assigns every feature to its nearest centre and moves every centre to the mean
    of its features, until nothing changes.
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


def _n_log_n(values: Floats | np.float64) -> Floats:
    return np.asarray(values * np.log(np.where(values > 0.0, values, 1.0)))


# Most values per row in DuckDB.
_MOST_PER_ROW = 999_999
# Arguments of every function of feature counts: the definition of a present feature, and the limit per row.
PRESENCE = (
    integer(
        "max_features_per_row",
        "Number of features that count in full per row, from 1 to 999999. Of a row with more, each counts an equal "
        "share of it. A smaller number means less noise.",
        10,
        hint="Give how many features of a row are to count: fewer mean less noise. 10 is usual for texts.",
        most=_MOST_PER_ROW,
    ),
    Argument(
        "present_above",
        "A feature is present in a row if its value is larger than this number. For columns and vectors.",
        default_text="not zero",
        check=partial(
            parameters.finite_float,
            "present_above",
            hint="Give the number above which a value is a present feature, or leave it out for boolean features.",
        ),
        kind="Number",
    ),
)


@dataclass(frozen=True, kw_only=True)
class FeatureCountsPlan(Plan):
    """The plan of a function of binary features and a label."""

    max_features_per_row: int
    present_above: float | None  # None for boolean features and for the long layout

    target_is_label: ClassVar[bool] = True
    target_needs_bounds: ClassVar[bool] = False
    stated_as: ClassVar[Mapping[str, str | None]] = NOT_STATED

    @classmethod
    def _own(cls, arguments: Mapping[str, object], layout: Layout) -> Mapping[str, object]:
        own = cls._read(arguments, "max_features_per_row", "present_above")
        if own["present_above"] is not None and layout.kind == "long":
            raise ParameterError(
                "P045", "present_above is for columns and vectors: long rows hold what is present. Leave it out."
            )
        return own

    def _passes(self) -> tuple[Pass, ...]:
        """Return one pass that collects the rows; in the long layout they hold feature numbers."""
        return (Pass(FEATURE_COUNTS if self.layout.kind == "long" else COLLECTED),)

    def denominator(self, count: int | None) -> int:
        """Return the value of one row in the unit of the counts of `count` features."""
        widest = max(self.laplace_scales(count or 0), default=Fraction(0))
        return fixed_denominator(self.max_features_per_row, count, widest)


@dataclass(frozen=True)
class Counts:
    """Counts of rows by label and feature.

    Attributes
    ----------
    positive, negative : ndarray of int64, shape (d,)
        Rows of the positive and of the negative class in which each feature is present, in units of ``1 / one`` rows.
    positive_rows, negative_rows : int
        Class sizes, in rows.
    denominator : int
        A power of two.
    """

    positive: NDArray[np.int64]
    negative: NDArray[np.int64]
    positive_rows: int
    negative_rows: int
    denominator: int = 1

    def scores(self, score: str) -> NDArray[np.int64]:
        """Return the exact scores of all features; see `dpsql.statistics.feature_counts.exact_scores`."""
        rows = (self.positive_rows, self.negative_rows)
        return exact_scores(score, self.positive, self.negative, *rows, denominator=self.denominator)


class FeatureCountsCall(Call):
    """A call on binary features and a label, with the column types of its source."""

    plan: FeatureCountsPlan

    @classmethod
    def resolve(cls, plan: Plan, row: pa.StructType, others: dict[str, pa.DataType], types: Sequence[str] = ()) -> Self:
        """Resolve the plan as `Call.resolve` does, and refuse features that are not binary."""
        call = super().resolve(plan, row, others)
        if call.plan.layout.kind != "long":
            for position in call.positions[1:]:
                _check_presence(row.field(position).name, row.field(position).type, call.plan.present_above)
        return call

    def start(self) -> Collector:
        """Return empty counts."""
        plan, count = self.plan, len(self.features)
        return FeatureCounts(
            count, plan.max_features_per_row, denominator=plan.denominator(count), above=plan.present_above
        )

    def collect(self, collector: FeatureCounts | NameCounts, rows: pa.StructArray, batch: Batch) -> None:
        """Pass a batch of rows to a collector."""
        if self.plan.layout.kind != "long":
            super().collect(collector, rows, batch)
            return
        labels, features = rows.field(LONG_TARGET), rows.field(LONG_POSITIONS)
        lengths = features.value_lengths().to_numpy().astype(np.int64)
        label = label_of_cells(self.target.code(labels.flatten()), lengths)
        positions = features.flatten()
        if positions.null_count:  # cells of unlisted features
            validity = positions.is_valid().to_numpy(zero_copy_only=False)
            lengths = np.add.reduceat(validity, np.cumsum(lengths) - lengths, dtype=np.int64)
            positions = positions.drop_null()
        collector.add_sparse(label, lengths, positions.to_numpy().astype(np.int64) - 1, batch)

    def counts(self, statistic: FeatureCounts) -> Counts:
        """Return the counts."""
        positive, negative = statistic.counts[:-2].reshape(2, -1)
        return Counts(positive, negative, int(statistic.counts[-2]), int(statistic.counts[-1]), statistic.denominator)


def _check_presence(column: str, kind: pa.DataType, above: float | None) -> None:
    """Raise if `present_above` is missing for a numeric feature, or given for a boolean one."""
    if pa.types.is_struct(kind):
        for field in kind:
            _check_presence(field.name, field.type, above)
    elif is_boolean(kind.value_type if is_vector(kind) else kind):
        if above is not None and not 0 <= above < 1:
            raise ParameterError(
                "P060",
                f"feature {show(column)} is boolean, and present_above := {show(above)} cannot tell true from false. "
                "Compare the numeric columns in a view instead, as in x > 6 AS x, and leave present_above out.",
            )
    elif above is None:
        raise SourceError(
            "S011",
            f"feature {show(column)} is not boolean, and this function takes features that are present or absent. "
            "Give present_above := a number, such as 0: a larger value is present.",
        )
