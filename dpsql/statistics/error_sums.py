"""Sums of a target and of the errors of its prediction: the statistic of dp_regression_metrics.

Units: target t and prediction are integers in ``[-S, S]`` by the same public bounds (`fixed_point`). The error e is
their difference, clipped to a public bound B. So the sums of ``1, t, t**2, e**2, abs(e)`` are exact integers. A row
adds 1, a term in [-S, S], and terms from 0 to ``S**2``, ``B**2`` and B; see `sensitivities`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.contract.fold import Batch, Fold, field, record
from dpsql.contract.relation import Relation
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, affine_map, quantise
from dpsql.kernels.wide_sums import WideSums


def sensitivities(relation: Relation, bound: int) -> tuple[int, int, int, int, int]:
    """Return the sensitivity of each of the five sums.

    Parameters
    ----------
    relation : Relation
    bound : int
        B, in units where S is 1, >= 1.
    """
    one = FIXED_POINT_ONE
    # Each row raises every sum except that of t, whose terms may have either sign.
    return (relation.rise(1), relation.norm(one), relation.rise(one**2), relation.rise(bound**2), relation.rise(bound))


class ErrorSums(Fold):
    """The five sums.

    Parameters
    ----------
    lower, upper : float
        Public bounds of target and prediction.
    bound : int
        B, in units where S is 1.
    """

    def __init__(self, lower: float, upper: float, bound: int) -> None:
        self._map = affine_map(lower, upper)
        self._bound = bound
        self._sums = WideSums((5,))

    def sensitivity(self, relation: Relation) -> tuple[int, int, int, int, int]:
        """Return the sensitivity of each sum."""
        return sensitivities(relation, self._bound)

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows. The prediction is the only feature; NULL counts as the middle of the bounds."""
        coded = quantise(target.copy(), *self._map).astype(np.int64)
        error = np.clip(coded - quantise(features[0].copy(), *self._map).astype(np.int64), -self._bound, self._bound)
        parts = [len(coded), *(part.sum() for part in (coded, coded**2, error**2, np.abs(error)))]
        self._sums.add(np.array(parts, dtype=np.int64))

    def sums(self) -> list[int]:
        """Return rows, t, t², e², abs(e)."""
        return self._sums.total().tolist()  # type: ignore[no-any-return]

    def state(self) -> pa.RecordBatch:
        """Return the sums."""
        return record({"sums": self._sums.column()})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other sums."""
        self._sums.absorb(field(state, "sums"))
