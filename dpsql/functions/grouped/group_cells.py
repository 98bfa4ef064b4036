"""The cells of a group with the values that stand for them."""

from __future__ import annotations

import math

from dpsql.functions.value_cells import EvenCells


class GroupCells:
    """The cells of a group, with the values that stand for them; of whole numbers these are whole.

    Parameters
    ----------
    grid : EvenCells
    whole : bool
        Whether the values of the column are whole numbers.
    """

    def __init__(self, grid: EvenCells, *, whole: bool) -> None:
        self._grid = grid
        self._whole = whole

    def middle(self, cell: int) -> float:
        """Return the value that stands for a cell; it is within the bounds."""
        found = self._grid.middle(cell)
        lower, upper = self._grid.ends
        return min(max(float(round(found)), lower), upper) if self._whole else found

    def ends(self, first: int, last: int) -> tuple[float, float]:
        """Return the least and the greatest value in the cells first to last."""
        lower, upper = self._grid.limits(first, last)
        if not self._whole:
            return lower, upper
        inside = upper if upper == self._grid.ends[1] else math.nextafter(upper, -math.inf)
        ends = float(math.ceil(lower)), float(math.floor(inside))
        return ends if ends[0] <= ends[1] else (lower, upper)
