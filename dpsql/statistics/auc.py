"""Compute the scaled concordance of a score with a label, for the area under the ROC curve, and two counts.

There are n1 positive and n0 negative rows, ``n = n1 + n0``. S is the number of pairs of one row of each class in which
the positive row has the larger score, less the pairs in which it has the smaller score; a tie counts 0. The
*concordance* is ``T = S / (n - 1)``, and 0 if n < 2. Then::

    area = 1/2 + T (n - 1) / (2 n1 n0)

The area itself may move by 1/2 if a class is small. T does not, because S is divided by the size of the table:

===========================  =========  ==========================  ==================================================
step of one row              T by       (n1, n0) by                 why
===========================  =========  ==========================  ==================================================
added or removed             at most 1  1 in one of them            see below
replaced, in its class       at most 2  nothing                     it has k <= n - 1 pairs, each of which moves S by 2
replaced, in the other one   at most 1  1 in both of them           at most n0 pairs go, and n1 - 1 others come; n0 +
                                                                    n1 - 1 = n - 1
replaced by a row without a  at most 1  1 in one of them            it is removed
class, or the other way
===========================  =========  ==========================  ==================================================

Proof for an added row: let the new row be positive; n1, n0, n and S are before the step. S moves by s with ``abs(s) <=
n0``, and ``abs(S) <= n1 n0``. T moves by ``s / n - S / (n (n - 1))``, hence by at most ``n0 (n - 1 + n1) / (n (n -
1))``. This is at most 1, as ``n0 (2 n - 1 - n0)`` is largest for n0 = n - 1 or n, where it is ``n (n - 1)``. For n < 2
it is plain.

A row of neither class is in no pair and in neither count; n does not count it. So under replace n is not public: a
label may become one of neither class. If such a row were coded midway between the classes, it would move T by up to
3/2.

The rows of a unit are up to `steps` such steps: under replace, a row for a row, and the rest added or removed. The
proof does not depend on which scores are equal: it holds for the scores themselves, and for the cells of a public grid.
The scores themselves decide every pair of different scores, whatever their resolution is.

T is released in units of ``2**-bits``, rounded by ``floor(x + 1/2)``. Numbers that differ by at most an integer do so
after rounding: the sensitivity is T's sensitivity times ``2**bits``, exactly.

`ScoreCounts` counts rows by label and cell of a score, for ROC curves, areas and confusion matrices. A row with a label
counts in one cell of one class, so sensitivities are as for one histogram (`counts`).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Doubles, Longs
from dpsql.contract.fold import Batch, Fold, numbers, record
from dpsql.contract.relation import Relation
from dpsql.dataclass import dataclass


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
        Public bounds that clip the score.
    missing : float
        Score that replaces a missing one.
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
        indices = cells.of(np.clip(scores, lower, upper)) + (target > 0) * cells.count
        self.counts += np.bincount(indices[target != 0], minlength=len(self.counts))

    def state(self) -> pa.RecordBatch:
        """Return the counts."""
        return record({"counts": self.counts})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other counts."""
        self.counts += numbers(state, "counts")


class ClassScores(Fold):
    """The scores of both classes, for comparing pairs: eight bytes a row.

    Parameters
    ----------
    lower, upper : float
        Public bounds that clip the score.
    missing : float
        Score that replaces a missing one.
    """

    grows = True

    def __init__(self, lower: float, upper: float, missing: float) -> None:
        self._given = lower, upper, missing
        self._parts: tuple[list[Doubles], list[Doubles]] = ([], [])

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Store the scores of a batch of rows; rows of neither class are ignored."""
        lower, upper, missing = self._given
        # Adding 0 makes -0.0 0.0: equal scores have the same bits.
        scores = np.clip(np.where(np.isnan(features[0]), missing, features[0]), lower, upper) + 0.0
        for parts, own in zip(self._parts, (target < 0, target > 0), strict=True):
            parts.append(scores[own])

    @property
    def scores(self) -> tuple[Doubles, Doubles]:
        """The scores of the negative and of the positive class, ascending."""
        negatives, positives = (np.sort(np.concatenate([*parts, np.zeros(0)])) for parts in self._parts)
        return negatives, positives

    def state(self) -> pa.RecordBatch:
        """Return the bits of all scores."""
        negatives, positives = (scores.view(np.int64) for scores in self.scores)
        return record({"negatives": negatives, "positives": positives})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other scores."""
        for parts, name in zip(self._parts, ("negatives", "positives"), strict=True):
            parts.append(numbers(state, name).view(np.float64))


@dataclass(frozen=True)
class Concordance:
    """The exact integers behind an area; private.

    Attributes
    ----------
    balance : int
        S: concordant less discordant pairs.
    positives, negatives : int
        Rows of each class.
    """

    balance: int
    positives: int
    negatives: int

    @classmethod
    def of(cls, negatives: Longs, positives: Longs) -> Concordance:
        """Return the concordance of counts.

        Parameters
        ----------
        negatives, positives : ndarray of int64, shape (cells,)
            Rows of each class in each cell, in ascending order of the score.
        """
        twice = below = 0
        for less, more in zip(negatives.tolist(), positives.tolist(), strict=True):
            twice += more * (2 * below + less)
            below += less
        rows = int(positives.sum())
        return cls(twice - rows * below, rows, below)

    @classmethod
    def of_scores(cls, negatives: Doubles, positives: Doubles) -> Concordance:
        """Return the concordance of scores; equal scores are ties.

        Parameters
        ----------
        negatives, positives : ndarray of float64
            The scores of either class, ascending.
        """
        few, many = sorted((negatives, positives), key=len)
        below, up_to = (np.searchsorted(many, few, side) for side in ("left", "right"))
        # For each of the few: how many others are below it, less how many are above it.
        above = int(below.sum(dtype=np.int64)) + int(up_to.sum(dtype=np.int64)) - len(few) * len(many)
        return cls(above if few is positives else -above, len(positives), len(negatives))

    def scaled(self, bits: int) -> int:
        """Return T in units of ``2**-bits``, rounded to the nearest integer; 0 for fewer than two rows."""
        others = self.positives + self.negatives - 1
        return ((self.balance << (bits + 1)) + others) // (2 * others) if others > 0 else 0


def concordance_sensitivity(relation: Relation) -> int:
    """Return how far a privacy unit moves T: 1 for each row added or removed, 2 for each replaced one."""
    return relation.norm(1)


def class_sensitivity(relation: Relation) -> int:
    """Return the L1 norm by which a privacy unit moves the counts of both classes."""
    return relation.norm(1)


def squared_class_sensitivity(relation: Relation) -> int:
    """Return the squared L2 norm by which a privacy unit moves the counts of both classes."""
    return relation.squared_norm(1, opposing=False)


def area_under_curve(negatives: NDArray[np.int64], positives: NDArray[np.int64]) -> Fraction:
    """Return the exact area under the ROC curve of cells; 1/2 when a class has no rows.

    Parameters
    ----------
    negatives, positives : ndarray of int64, shape (cells,)
        Rows of each class in each cell, in ascending order of the score.

    Returns
    -------
    area : Fraction
        In [0, 1]: the chance that a positive row has a larger score than a negative one, a tie counting half.
    """
    exact = Concordance.of(negatives, positives)
    pairs = exact.positives * exact.negatives
    return Fraction(exact.balance + pairs, 2 * pairs) if pairs else Fraction(1, 2)
