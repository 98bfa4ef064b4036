"""Counts of rows by label and cell of a score: the statistic of ROC curves, areas and confusion matrices.

A row with a label counts in one cell of one class, so sensitivities are those of one histogram (`counts`).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.contract.fold import Batch, Fold, numbers, record
from dpsql.contract.relation import Relation


class Cells(Protocol):
    """Public cells of a score."""

    @property
    def count(self) -> int:
        """Number of cells."""

    def of(self, scores: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the cell of each score; scores are within the bounds."""


class ScoreCounts(Fold):
    """Counts of rows per cell, first of the negative class, then of the positive one.

    Parameters
    ----------
    cells : Cells
    lower, upper : float
        Public bounds that the score is clipped to.
    missing : float
        Score that stands in for a missing one.
    """

    def __init__(self, cells: Cells, lower: float, upper: float, missing: float) -> None:
        self._given = cells, lower, upper, missing
        self.counts = np.zeros(2 * cells.count, dtype=np.int64)

    @staticmethod
    def sensitivity(relation: Relation) -> int:
        """Return the L1 sensitivity of the counts."""
        return relation.norm(1)

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Count a batch of rows. The score is the only feature; rows of neither class are ignored."""
        cells, lower, upper, missing = self._given
        scores = np.where(np.isnan(features[0]), missing, features[0])
        found = cells.of(np.clip(scores, lower, upper)) + (target > 0) * cells.count
        self.counts += np.bincount(found[target != 0], minlength=len(self.counts))

    def state(self) -> pa.RecordBatch:
        """Return the counts."""
        return record({"counts": self.counts})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other counts."""
        self.counts += numbers(state, "counts")
