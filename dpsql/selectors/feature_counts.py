"""Counts of rows by label and binary feature: the one statistic behind dp_score_filter and dp_naive_bayes.

A feature is present in a row when its value is neither zero nor missing. Of the features present in a row at most
`max_features_per_row` count, drawn by a hash that only this call knows, so that a row moves at most so many pairs of
counts. A row whose label is neither of the two levels moves none.

Long rows are counted in SQL (`dpsql.statements`), rows of the other layouts by `FeatureCounts`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsql import parameters
from dpsql.call import Batch, Call, Collector
from dpsql.errors import ParameterError
from dpsql.noise.entropy import SYSTEM
from dpsql.plan import COLLECTED, FEATURE_COUNTS, NOT_STATED, Plan
from dpsql.source import Layout

# DuckDB keeps at most so many values per row.
_MOST_PER_ROW = 999_999


@dataclass(frozen=True, kw_only=True)
class FeatureCountsPlan(Plan):
    """The plan of a function of binary features and a label.

    Attributes
    ----------
    max_features_per_row : int
        Features of a row that count, >= 1.
    """

    max_features_per_row: int

    target_is_label: ClassVar[bool] = True
    target_needs_bounds: ClassVar[bool] = False
    stated_as: ClassVar[Mapping[str, str | None]] = NOT_STATED

    @classmethod
    def _own(cls, given: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
        most = parameters.positive_integer(
            "max_features_per_row",
            given["max_features_per_row"],
            code="P031",
            hint="Give how many features of a row are to count: fewer mean less noise. 10 is usual for texts.",
        )
        if most > _MOST_PER_ROW:
            raise ParameterError("P031", f"max_features_per_row must be at most {_MOST_PER_ROW}. 10 is usual.")
        return {"max_features_per_row": most}

    @property
    def statistic(self) -> str:
        """Which statement counts: SQL where rows are sparse."""
        return FEATURE_COUNTS if self.layout.kind == "long" else COLLECTED


@dataclass(frozen=True)
class Counts:
    """What was counted.

    Attributes
    ----------
    positive, negative : ndarray of int64, shape (d,)
        Rows of the positive and of the negative level that have the feature.
    positive_rows, negative_rows : int
        Rows of each level.
    """

    positive: NDArray[np.int64]
    negative: NDArray[np.int64]
    positive_rows: int
    negative_rows: int


class FeatureCountsCall(Call):
    """A call of binary features and a label joined to its source's types."""

    def start(self) -> Collector | None:
        """Return empty counts, where SQL does not count."""
        if self.plan.statistic != COLLECTED:
            return None
        return FeatureCounts(len(self.features), self.plan.max_features_per_row)

    @property
    def statistic_length(self) -> int:
        """How many counts there are."""
        return 2 * len(self.features) + 2

    def counts(self, statistic: Any) -> Counts:
        """Return what was counted, in SQL or here."""
        counted = statistic.counts if isinstance(statistic, FeatureCounts) else np.asarray(statistic, dtype=np.int64)
        positive, negative = counted[:-2].reshape(2, -1)
        return Counts(positive, negative, int(counted[-2]), int(counted[-1]))


class FeatureCounts(Collector):
    """Counts of rows that come as dense batches.

    Parameters
    ----------
    width : int
        Features.
    most : int
        Features of a row that count.
    """

    def __init__(self, width: int, most: int) -> None:
        self._most = most
        self._counts = np.zeros(2 * width + 2, dtype=np.int64)
        self._lock = threading.Lock()

    @property
    def counts(self) -> NDArray[np.int64]:
        """Counts so far, shape (2 * d + 2,): of the positive level, of the negative one, and rows of each."""
        return self._counts

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Count a batch of rows."""
        present = (features != 0) & ~np.isnan(features)
        overfull = np.flatnonzero(present.sum(axis=0) > self._most)
        if len(overfull):
            present[:, overfull] = _sample(present[:, overfull], self._most)
        sides = (target > 0, target < 0)
        parts = [present[:, side].sum(axis=1) for side in sides]
        counted = np.concatenate([*parts, [side.sum() for side in sides]])
        with self._lock:
            self._counts += counted


def _sample(present: NDArray[np.bool_], most: int) -> NDArray[np.bool_]:
    """Keep `most` features of each row, any of them as likely, of shape (d, rows)."""
    keys = np.where(present, SYSTEM.words(present.size).reshape(present.shape), np.uint64(2**64 - 1))
    kept = np.zeros_like(present)
    np.put_along_axis(kept, np.argpartition(keys, most - 1, axis=0)[:most], True, axis=0)
    return kept & present
