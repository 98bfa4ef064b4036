"""Compute the statistics of a comparison of two groups, of two predictions, or of two scores.

For values and errors a row becomes a code q in [-S, S] in one place. With two groups the row's level names the place.
With two predictions all rows have one place, with ``q = S (e1 - e2)`` and also ``q' = S (2 e1 - 1)``, where an error e
is in [0, 1]. Sums of 1, q and ``q**2``, and their sensitivities, are as for grouped aggregates
(`dpsql.statistics.aggregates`): two groups are groups with two public keys, in both of which a unit may have rows. A
row of neither group, or without a value, adds nothing.

T1 and T2 are the concordances of two scores with one label on the same rows (`dpsql.statistics.auc`). The release has
``D = T1 - T2`` and ``M = T1 + T2``. Because ``abs(a - b) + abs(a + b) = 2 max(abs(a), abs(b))``, a row moves both
together, in the L1 norm, by at most twice its effect on one concordance; and because ``(a - b)**2 + (a + b)**2 = 2
(a**2 + b**2)``, also in the L2 norm. The difference alone moves by as much. So the sum, and with it both areas, costs
nothing more. The norm of *both* matters: a row moves D by 2 if one score ranks it first and the other one last.

Q is the number of pairs of a positive and a negative row, over ``n - 1``, that two scores do not both put in the same
strict order. A pair counts g in {0, 1}. Scores are compared by coarse cells, and a pair in one cell of either score
counts as a disagreement, so that Q is never too small:

===========================  =========  =================================================================
step of one row              Q by       why
===========================  =========  =================================================================
added or removed             at most 1  ``s / n - Q_pairs / (n (n - 1))`` with s in [0, n0] and at most
                                        n1 n0 pairs, which lies in [-1, 1]
replaced, in its class       at most 1  it has k <= n - 1 pairs, each of which moves by at most 1
replaced, in the other one   at most 1  at most n0 pairs go and n1 - 1 come, all of one sign each
replaced by no class         at most 1  it is removed
===========================  =========  =================================================================

So a unit of m rows moves Q by at most m, under either relation.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Longs
from dpsql.contract.fold import Batch, Fold, RowTransform, Several, field, numbers, record
from dpsql.contract.parameters import narrow
from dpsql.contract.relation import Relation
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, quantise
from dpsql.statistics.aggregates import GroupedSums, Sums, Words
from dpsql.statistics.auc import Cells, ClassScores, Concordance, ScoreCounts

# Cells of each score for comparing its order with the other score's order.
COARSE = 64
ZERO_ONE, ABSOLUTE, SQUARED = LOSSES = ("zero_one", "absolute", "squared")


class LevelSums(RowTransform[GroupedSums]):
    """The pass that adds up the codes of two groups, named by the two levels of the target.

    Parameters
    ----------
    affine : tuple of float or None
        The map from values to codes; None to count rows.
    counts_values : bool
        Whether a row counts only if the one feature has a value.
    squares : bool
    """

    def __init__(self, affine: tuple[float, float] | None, *, counts_values: bool, squares: bool) -> None:
        super().__init__(GroupedSums(1, 2, squares=squares))
        self._affine, self._counts_values = affine, counts_values

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows."""
        codes = np.zeros(len(target))
        if self._counts_values:
            missing = np.isnan(features[0])
            if self._affine is not None:
                codes = quantise(np.where(missing, 0.0, features[0]), *self._affine)
            codes[missing] = np.nan
        self.inner.add(target, np.stack([np.where(sign, codes, np.nan) for sign in (target < 0, target > 0)]), batch)

    def compared(self) -> list[Sums]:
        """Return the sums of both groups, the first level first, as for one target."""
        both = self.inner.sums()[1:]
        squares = [sums.s2 for sums in both if isinstance(sums.s2, Words)]
        return [
            Sums(
                np.concatenate([sums.n for sums in both]),
                np.concatenate([sums.s1 for sums in both]),
                Words.joined(squares) if squares else None,
            )
        ]


class ErrorDifferences(RowTransform[GroupedSums]):
    """The pass that adds up, over all rows, the difference of two errors and the first error.

    Parameters
    ----------
    loss : {'zero_one', 'absolute', 'squared'}
    lower, upper : float
        Public bounds of predictions, and of a numeric truth. A missing prediction counts as the middle.
    thresholds : tuple of float
        Of each score, for 'zero_one': a score of at least the threshold predicts the positive class.
    levels : bool
        Whether the truth is a label, coded below and above 0 for the bounds; else it is a number.
    squares : bool
    """

    def __init__(
        self, loss: str, bounds: tuple[float, float], thresholds: tuple[float, ...], *, levels: bool, squares: bool
    ) -> None:
        super().__init__(GroupedSums(1, 2, squares=squares))
        self._loss, self._bounds, self._thresholds, self._levels = loss, bounds, thresholds, levels

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows; rows without a truth add nothing."""
        has_truth = target != 0 if self._levels else ~np.isnan(target)
        first, second = (self._error(target[has_truth], scores[has_truth], at) for at, scores in enumerate(features))
        codes = np.stack([first - second, 2.0 * first - 1.0]) * FIXED_POINT_ONE
        # The bounds of the codes hold for any rounding errors.
        codes = np.clip(np.floor(codes + 0.5), -FIXED_POINT_ONE, FIXED_POINT_ONE)
        self.inner.add(target[has_truth], codes, batch)

    def _error(self, truth: NDArray[np.float64], scores: NDArray[np.float64], at: int) -> NDArray[np.float64]:
        """Return the error of each row, in [0, 1]."""
        lower, upper = self._bounds
        clipped = np.clip(np.where(np.isnan(scores), lower / 2 + upper / 2, scores), lower, upper)
        if self._loss == ZERO_ONE:
            return np.asarray((clipped >= self._thresholds[at]) != (truth > 0), dtype=np.float64)
        right = np.where(truth > 0, upper, lower) if self._levels else np.clip(truth, lower, upper)
        size = np.abs(right / (upper - lower) - clipped / (upper - lower))
        return np.minimum(size, 1.0) if self._loss == ABSOLUTE else np.minimum(size, 1.0) ** 2

    def compared(self) -> list[Sums]:
        """Return the sums of the difference, and of the first error."""
        return self.inner.sums()[1:]


class PairedScores(Fold):
    """Two scores of every row, and counts of rows by label and by coarse cells of both at once.

    Parameters
    ----------
    cells : Cells
        Cells for the coarse comparison of both orders: scores in one cell are in one coarse cell.
    lower, upper : float
        Public bounds of both scores. A missing score counts as the middle.
    tied : bool
        Whether scores in one cell are also tied in the areas; else only equal scores are.
    """

    def __init__(self, cells: Cells, lower: float, upper: float, *, tied: bool) -> None:
        missing = lower / 2 + upper / 2
        self._given = cells, lower, upper, missing
        kinds: Iterator[ClassScores | ScoreCounts] = (
            ScoreCounts(cells, lower, upper, missing) if tied else ClassScores(lower, upper, missing) for _ in range(2)
        )
        self._scores = Several(*kinds)
        self.grows = self._scores.grows
        self.coarse = min(COARSE, cells.count)
        self.joint = np.zeros((2, self.coarse, self.coarse), dtype=np.int64)  # class, cells of both scores

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add a batch of rows; rows of neither class are ignored."""
        for fold, scores in zip(self._scores.folds, features, strict=True):
            fold.add(target, scores[np.newaxis], batch)
        cells, lower, upper, missing = self._given
        labelled = target != 0
        scores = np.clip(np.where(np.isnan(features), missing, features)[:, labelled], lower, upper)
        first, second = (cells.of(score) * self.coarse // cells.count for score in scores)
        flat = ((target[labelled] > 0) * self.coarse + first) * self.coarse + second
        self.joint += np.bincount(flat, minlength=self.joint.size).reshape(self.joint.shape)

    def state(self) -> pa.RecordBatch:
        """Return both states, and the counts."""
        scores = self._scores.state()
        fields = {name: field(scores, name) for name in scores.schema.names}
        return record({**fields, "joint": pa.array(self.joint.ravel())})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other scores and counts."""
        self._scores.absorb(state.select([name for name in state.schema.names if name != "joint"]))
        self.joint += numbers(state, "joint").reshape(self.joint.shape)

    def concordances(self) -> tuple[Concordance, Concordance]:
        """Return the exact concordance of each score."""
        first, second = (
            Concordance.of_scores(*fold.scores)
            if isinstance(fold, ClassScores)
            else Concordance.of(*narrow(ScoreCounts, fold).counts.reshape(2, -1))
            for fold in self._scores.folds
        )
        return first, second

    def disagreement(self, bits: int) -> int:
        """Return Q in units of ``2**-bits``, rounded to the nearest integer; 0 for fewer than two rows."""
        return scaled_pairs(disagreeing_pairs(*self.joint), int(self.joint.sum()), bits)


def disagreeing_pairs(negatives: Longs, positives: Longs) -> int:
    """Return the number of pairs of both classes that two scores do not both put in the same strict order.

    Parameters
    ----------
    negatives, positives : ndarray of int64, shape (k, k)
        Rows by the cells of both scores, each in ascending order.
    """
    # Rows below both, and above both; sums of products may exceed 64 bits.
    below = np.zeros((len(negatives) + 1,) * 2, dtype=np.int64)
    below[1:, 1:] = negatives.cumsum(axis=0).cumsum(axis=1)
    above = negatives.sum() - below[-1:, 1:] - below[1:, -1:] + below[1:, 1:]
    agreeing = (positives.astype(object) * (below[:-1, :-1] + above)).sum()
    return int(positives.sum()) * int(negatives.sum()) - int(agreeing)


def scaled_pairs(pairs: int, rows: int, bits: int) -> int:
    """Return a number of pairs over ``rows - 1``, in units of ``2**-bits``, rounded; 0 for fewer than two rows."""
    others = rows - 1
    return ((pairs << (bits + 1)) + others) // (2 * others) if others > 0 else 0


def disagreement_sensitivity(relation: Relation) -> int:
    """Return how far a privacy unit moves Q: 1 for each of its rows."""
    return relation.rise(1)
