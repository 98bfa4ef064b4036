"""Marginal counts of a contingency table: totals, rows, columns and cells, stacked into one vector of integers.

A table has a cell for each combination of the keys of D columns. The marginal of some of the columns adds up the cells
over all others; that of no column is the total, and that of all columns are the cells themselves. The statistic is the
vector of all entries of the marginals that are measured, each with weight 1.

A privacy unit has k_c rows in cell c, at most r in each of at most g cells, and at most m in all
(`dpsql.contract.contribution`, K1 and K2). With s marginals, of which the cells may be one:

===========  =======  =========================  ==========================================================
relation     L1       squared L2                 with cells, one row per unit: L1 and squared L2
===========  =======  =========================  ==========================================================
add_remove   s K1     (s - 1) K1**2 + K2         s, s
replace      2 s K1   2 ((s - 1) K1**2 + K2)     2 s, 2 s
===========  =======  =========================  ==========================================================

Without the cells among them K2 becomes ``K1**2``. *L1*: a row adds 1 to one entry of each marginal. *Squared L2*: the
entries of a marginal are sums of the k_c over disjoint sets of cells, none of them negative, so their squares add up to
at most ``K1**2``; only in the cells no two k_c are added, and the squares add up to at most K2. The margins pool the
cells of a unit: s K2 is not enough. A unit with one row in each of two cells (g = 2, r = 1, so K2 = 2) moves the total
by 2, and if the cells share a row of the table the squares are 4 + 4 + 2 + 2 = 12, where 4 K2 is 8 and the bound 14.
*Replace*: both units have vectors without negative entries, so the squared norm of their difference is at most the sum
of their squared norms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from dpsql.arrays import Doubles, Longs
from dpsql.contract.contribution import Contribution
from dpsql.statistics.aggregates import GroupCount

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
        return len(self.measured) * contribution.norm(1)

    def squared_norm(self, contribution: Contribution) -> int:
        """Return the squared L2 sensitivity."""
        pooled = contribution.rows**2
        squares = (contribution.squared_rows if len(axes) == len(self.sizes) else pooled for axes in self.measured)
        return contribution.relation.squared_norm(sum(squares), opposing=False)

    def moved(self, contribution: Contribution) -> int:
        """Return how many entries differ between neighbouring tables."""
        return len(self.measured) * contribution.changed_groups

    def entries(self, cells: Longs) -> Longs:
        """Return the entries of all marginals, one marginal after the other.

        Parameters
        ----------
        cells : ndarray of int64, shape (product of sizes,)
            Exact counts, those of the last column next to each other.
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
