"""Counts of conditions of which at most one holds for a row: a block of `dpsql.statistics.aggregates`.

A row adds 1 to one of k cells, or nothing: its vector is 0 or a unit vector. So its L1 norm and its squared L2 norm are
1 at most, whatever k is; two rows in different cells differ by 2 in both, D1 and D2, and the product of two rows'
vectors is never negative, c = 0. One row moves one count, where k counts that rows may enter together move by k.

That a row enters one cell alone is no claim of whoever asks: the statement that counts gives a row the first cell whose
condition holds for it (`dpsql.engines.duckdb.steps.values`), so the bounds hold whatever rows and conditions are. Where
conditions overlap, what is counted differs from what was asked; the sensitivity is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpsql.statistics.aggregates import Block, GroupCount, RowBounds, Sums, Words


@dataclass(frozen=True)
class DisjointCounts(Block):
    """The numbers of rows in each of some cells, of which a row is in one at most.

    Attributes
    ----------
    cells : int
        k, >= 1.
    """

    cells: int

    kind = "disjoint_counts"
    row = RowBounds(1, 1, 2, 2)

    @property
    def one(self) -> int:
        """A row counts 1."""
        return 1

    @property
    def targets(self) -> Sequence[Block]:
        """A count for each cell."""
        return (GroupCount(),) * self.cells

    def places_of(self, target: int) -> list[int]:
        """Return the coordinate of a cell."""
        return [target]

    @property
    def form(self) -> tuple[tuple[int, ...], ...]:  # type: ignore[override]
        """The count of every cell."""
        return ((1,),) * self.cells

    @property
    def moments(self) -> tuple[tuple[float, ...], ...]:  # type: ignore[override]
        """The number of rows in any cell; `targets` tell the rest."""
        return ((1.0,) * self.cells,)

    def words(self, sums: Sums) -> Words:
        """Return the counts, which are s1 of shape (k, G)."""
        return Words(sums.s1)
