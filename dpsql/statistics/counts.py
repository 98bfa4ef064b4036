"""Compute counts of rows per cell, the utility of a cell for a quantile, and the sensitivity of both.

Cells are disjoint and public, and the cell of a row depends on that row alone. Every row counts in one cell of a
histogram, or in none if its value is missing. A unit has at most m rows.

The table is for w histograms of the same rows, such as a coarse and a fine one for each column:

===========  ============  ==================  ============================================================
relation     L1            squared L2          why
===========  ============  ==================  ============================================================
add_remove   w m           w m**2              at most m rows leave one cell each, all of one cell at worst
replace      2 w m         2 w m**2            at most m rows leave and m come; in the same cell
                                               they cancel, so the squares of both parts add up at worst
===========  ============  ==================  ============================================================

The utility of a cell for the quantile q is ``-max(0, left - q n, q n - right)``, in rows. n is the true number of rows,
``left`` of which lie before the cell and ``right`` before its end. The utility is 0 if the quantile may lie in the
cell, and otherwise minus the distance to it in ranks. Selection needs the range of the utility, the spread of its
changes over all cells. For m rows:

===========  =====================  =======================================================================
relation     range                  why
===========  =====================  =======================================================================
add_remove   2 m max(q, 1 - q)      see `rank_utility_range`: every cell moves by at most max(q, 1 - q),
                                    either way
replace      2 m                    n stays, left and right move by at most 1 either way; a row without a
                                    value counts as removed, which moves no cell further
===========  =====================  =======================================================================

This holds because q n depends on the data. With a fixed rank, public or noisy, an added row moves the utility of a cell
up or down by 1, so the range is 2, even for the median.

In a recursion, a level has one selection per sub-range, each with its own q, and all sub-ranges of a level share one
epsilon. An added row is in one of them. A replaced row may leave one sub-range and enter another: it spends ``c 2
max(q, 1 - q)`` in each, with the coefficient c of that sub-range. Doubling the range, to ``4 m max(q, 1 - q)``, keeps
the sum within the epsilon of the level. The first level has one sub-range and needs no doubling. Each of m rows spends
a share 1/m, in any sub-range.

`MarginalCounts` are marginal counts of a contingency table: totals, rows, columns and cells, in one vector of integers.
A table has a cell for each combination of the keys of D columns. The marginal of some of the columns adds up the cells
over all others; the marginal of no column is the total, and the marginal of all columns is the cells. The statistic is
the vector of all entries of the measured marginals, each with weight 1.

A privacy unit has k_c rows in cell c, at most r in each of at most g cells, and at most m in all
(`dpsql.contract.relation`, K1 and K2). With s marginals, which may include the cells:

===========  =====================  ==============================================================
relation     L1                     squared L2
===========  =====================  ==============================================================
add_remove   s K1                   (s - 1) K1**2 + K2 with the cells among them, else s K1**2
replace      the sum over the       the same of M2
             marginals of their M
===========  =====================  ==============================================================

In a marginal of k entries a unit has at most m rows, in at most g entries, and up to m of them in one:
`dpsql.contract.relation` has M and M2 for this case, with ``K = k``; the cells have their own M and M2. So under
replace the total, with ``k = 1``, moves by m, and a marginal of many entries by 2 m. For the squared L2 norm, entries
are sums of the k_c over disjoint sets of cells; only in the cells no two k_c are added, and their squares add up to at
most K2. The margins pool the cells of a unit: s K2 is not enough. A unit with one row in each of two cells (g = 2, r =
1, so K2 = 2) moves the total by 2, and if the cells share a row of the table the squares are 4 + 4 + 2 + 2 = 12, where
4 K2 is 8 and the bound 14.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from itertools import combinations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Doubles, Longs
from dpsql.contract.fold import Batch, Fold, numbers, record
from dpsql.contract.relation import Contribution, Relation, relation_of
from dpsql.dataclass import dataclass
from dpsql.kernels.cells import FINE_CELLS, CellCounts, MagnitudeCounts
from dpsql.statistics.aggregates import GroupCount


def l1_sensitivity(neighbours: str, *, histograms: int = 1, max_rows_per_unit: int = 1) -> int:
    """Return the L1 sensitivity of the counts of all histograms together.

    Parameters
    ----------
    neighbours : {'add_remove', 'replace'}
    histograms : int
        Number of histograms that count the same rows, >= 1.
    max_rows_per_unit : int
        >= 1.

    Returns
    -------
    sensitivity : int
        In rows.

    Raises
    ------
    ParameterError
        P018 (neighbours, max_rows_per_unit).
    """
    return relation_of(neighbours, max_rows_per_unit).norm(histograms)


def squared_l2_sensitivity(neighbours: str, *, histograms: int = 1, max_rows_per_unit: int = 1) -> int:
    """Return the squared L2 sensitivity of the counts of all histograms together.

    Parameters
    ----------
    neighbours, histograms, max_rows_per_unit
        As for `l1_sensitivity`.

    Returns
    -------
    sensitivity : int
        In rows squared.

    Raises
    ------
    ParameterError
        P018 (neighbours, max_rows_per_unit).
    """
    return relation_of(neighbours, max_rows_per_unit).squared_norm(histograms, opposing=False)


def rank_utility_range(quantile: Fraction, neighbours: str, *, is_whole: bool, max_rows_per_unit: int = 1) -> Fraction:
    """Return the utility range for the selection of one cell.

    Parameters
    ----------
    quantile : Fraction
        In (0, 1), within the sub-range.
    neighbours : {'add_remove', 'replace'}
    is_whole : bool
        Whether the sub-range is the whole table, so that no other selection shares its epsilon.
    max_rows_per_unit : int
        >= 1.

    Returns
    -------
    spread : Fraction
        In rows.

    Raises
    ------
    ParameterError
        P018 (neighbours, max_rows_per_unit).

    Notes
    -----
    Proof for an added row in cell r. The row adds 1 to n, and so q to ``q n``. The distance of a cell is the largest of
    0, ``left - q n`` and ``q n - right``. So it rises by at most the largest rise of these terms, and falls by at most
    their largest fall:

    ==========  ==============  ============  ============  =====================
    cell        left and right  left - q n    q n - right   distance
    ==========  ==============  ============  ============  =====================
    after r     both + 1        1 - q         -(1 - q)      [-(1 - q), 1 - q]
    before r    both + 0        -q            q             [-q, q]
    r itself    0 and + 1       -q            -(1 - q)      [-max(q, 1 - q), 0]
    ==========  ==============  ============  ============  =====================

    All changes lie in ``[-max(q, 1 - q), max(q, 1 - q)]``. Cells after r on both sides of the quantile attain a spread
    of ``2 (1 - q)``, and cells before r on both sides of it ``2 q``, so the range is tight. A removed row is the
    reverse of an added one.

    A replaced row does not change n. It moves ``left`` and ``right`` by at most 1 each, so all distances by at most 1.
    The bound also holds for cells without rows, and so for a candidate outside the sub-range.
    """
    relation = relation_of(neighbours, max_rows_per_unit)
    added = 2 * max(quantile, 1 - quantile)
    if is_whole:
        # A replaced row does not change q n, so every distance moves by at most 1, up or down.
        return relation.rows * relation.pick(added, Fraction(2))
    return relation.spread(added)


class RowCount(Fold):
    """The number of rows."""

    def __init__(self) -> None:
        self.rows = 0

    @staticmethod
    def sensitivity(relation: Relation) -> int:
        """Return the sensitivity: replacing a unit of a rows by one of b rows moves the number by ``|a - b|``."""
        return relation.rise(1)

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Count a batch of rows."""
        self.rows += len(target)

    def state(self) -> pa.RecordBatch:
        """Return the number."""
        return record({"rows": [self.rows]})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add another number."""
        self.rows += int(numbers(state, "rows")[0])


class GridHistogram(Fold):
    """Histogram of the target in public cells; see `dpsql.kernels.cells` and `dpsql.kernels.column_cells`.

    Parameters
    ----------
    cells : CellCounts
        An empty histogram.
    """

    def __init__(self, cells: CellCounts) -> None:
        self.cells = cells

    @staticmethod
    def sensitivity(relation: Relation) -> int:
        """Return the L1 sensitivity of the counts."""
        return relation.norm(1)

    @property
    def size(self) -> int:
        """Bytes of the counts."""
        return 8 * self.cells.cells

    def zero(self) -> GridHistogram:
        """Return empty counts of the same cells."""
        return GridHistogram(self.cells.zero())

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Count a batch of rows."""
        self.cells.add(target)

    def state(self) -> pa.RecordBatch:
        """Return the counts."""
        return record({"counts": self.cells.counts})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other counts."""
        self.cells.add_counts(numbers(state, "counts"))


class MagnitudeHistogram(Fold):
    """Histograms of columns on a public logarithmic scale; see `dpsql.kernels.cells.MagnitudeCounts`.

    Parameters
    ----------
    features : int
        Number of counted features: all, or none.
    target : bool
        Whether the target is counted, after the features.
    """

    def __init__(self, features: int, *, target: bool) -> None:
        self._features = features
        self._target = target
        self.cells = MagnitudeCounts(features + target)

    def sensitivity(self, relation: Relation) -> int:
        """Return the L1 sensitivity of the counts of all columns."""
        return relation.norm(self._features + self._target)

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Count a batch of rows."""
        columns = [features] if self._features else []
        if self._target:
            columns.append(target[np.newaxis])
        if columns:
            self.cells.add(np.concatenate(columns))

    def state(self) -> pa.RecordBatch:
        """Return the counts, column by column."""
        return record({"counts": self.cells.counts})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other counts."""
        self.cells.add_counts(numbers(state, "counts").reshape(-1, FINE_CELLS))


Axes = tuple[int, ...]


def marginals_up_to(order: int, columns: int) -> tuple[Axes, ...]:
    """Return the marginals of at most `order` of some columns, as positions of the columns."""
    return tuple(axes for size in range(order + 1) for axes in combinations(range(columns), size))


@dataclass(frozen=True)
class MarginalCounts(GroupCount):
    """Entries of marginals; the module's text has the sensitivity with its proof.

    Attributes
    ----------
    sizes : tuple of int
        Number of keys of each column.
    measured : tuple of tuple of int
        The marginals, as positions of their columns, ascending.
    """

    sizes: tuple[int, ...]
    measured: tuple[Axes, ...]

    def norm(self, contribution: Contribution) -> int:
        """Return the L1 sensitivity."""
        return sum(self._pooled(contribution, axes).norm(1, distance=0) for axes in self.measured)

    def squared_norm(self, contribution: Contribution) -> int:
        """Return the squared L2 sensitivity."""
        pooled = (self._pooled(contribution, axes) for axes in self.measured)
        return sum(pool.squared_norm(1, distance=0, opposing=0) for pool in pooled)

    def _pooled(self, contribution: Contribution, axes: Axes) -> Contribution:
        """Return a unit's contribution to the entries of one marginal; one entry pools rows of several cells."""
        if len(axes) == len(self.sizes):
            return contribution
        entries = math.prod(self.sizes[axis] for axis in axes)
        return Contribution(
            contribution.neighbours, contribution.rows, contribution.groups, contribution.rows, keys=entries
        )

    def moved(self, contribution: Contribution) -> int:
        """Return how many entries differ between neighbouring tables."""
        return sum(self._pooled(contribution, axes).changed_groups for axes in self.measured)

    def entries(self, cells: Longs) -> Longs:
        """Return the entries of all marginals, one marginal after the other.

        Parameters
        ----------
        cells : ndarray of int64, shape (product of sizes,)
            Exact counts; the last column varies fastest.
        """
        table = cells.reshape(self.sizes)
        return np.concatenate([table.sum(axis=self._others(axes)).ravel() for axes in self.measured])

    def split(self, entries: Doubles) -> dict[Axes, Doubles]:
        """Return the arrays of the marginals from their entries."""
        lengths = [self.length(axes) for axes in self.measured]
        parts = np.split(entries, np.cumsum(lengths)[:-1])
        return {
            axes: part.reshape([self.sizes[axis] for axis in axes])
            for axes, part in zip(self.measured, parts, strict=True)
        }

    def length(self, axes: Iterable[int]) -> int:
        """Return the number of entries of a marginal."""
        return math.prod(self.sizes[axis] for axis in axes)

    def _others(self, axes: Axes) -> Axes:
        return tuple(axis for axis in range(len(self.sizes)) if axis not in axes)
