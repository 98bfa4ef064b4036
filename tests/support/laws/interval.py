"""Exact laws of private intervals, from the definition of the start, the scans and the counts.

Independent of the product: rows are a list of cells, counts beyond a cell are counted row by row, and the geometric
variables are summed over their threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from support.laws.quantile import Rows, rank_law

# Thresholds that are less likely than this are left out.
_NEGLIGIBLE = 1e-40
# (rows beyond each cell of a scan, scale, rows left) -> law of the cell at which it stops
ScanLaw = Callable[[Sequence[int], float, int], dict[int, float]]
Ends = tuple[int, int]


def scan_law(beyond: Sequence[int], scale: float, left: int | Sequence[int]) -> dict[int, float]:
    """Return the law of the cell at which a scan stops.

    Parameters
    ----------
    beyond : sequence of int
        Rows beyond each cell, from the start on.
    scale : float
        Of every geometric variable.
    left : int or sequence of int
        r, or that of each cell: the scan stops where ``E_i - beyond_i >= E_0 - r_i``, or at the last cell.
    """
    lefts = [left] * len(beyond) if isinstance(left, int) else left
    decay = math.exp(-1 / scale)
    law = dict.fromkeys(range(len(beyond)), 0.0)
    threshold = 0
    while (chance := (1 - decay) * decay**threshold) > _NEGLIGIBLE:
        for cell, rows in enumerate(beyond):
            stops = decay ** max(0, threshold - lefts[cell] + rows) if cell < len(beyond) - 1 else 1.0
            law[cell] += chance * stops
            chance *= 1 - stops
        threshold += 1
    return law


def ends_law(
    rows: Rows, cells: int, start: int, scale: float, left: int, scan: ScanLaw = scan_law
) -> dict[Ends, float]:
    """Return the joint law of the first and the last cell of an interval that starts at a cell."""
    known = [row for row in rows if row is not None]
    below = scan([sum(row < cell for row in known) for cell in range(start, -1, -1)], scale, left)
    above = scan([sum(row > cell for row in known) for cell in range(start, cells)], scale, left)
    return {
        (start - down, start + up): chance * other
        for down, chance in below.items()
        for up, other in above.items()
    }  # fmt: skip


def interval_law(
    rows: Rows, cells: int, *, epsilon: Fraction, neighbours: str, max_rows_per_unit: int = 1, left: int | None = None
) -> dict[tuple[int, int, int], float]:
    """Return the joint law of the start and of both ends.

    Parameters
    ----------
    rows, cells
        As for `dpsql.mechanisms.interval_scan.interval_scan`, on a grid of so many cells.
    epsilon : Fraction
        Of start, scans and counts; the counts have 3/20 of it.
    neighbours, max_rows_per_unit
        As there.
    left : int, optional
        In place of two scales, rounded up.
    """
    known = [row for row in rows if row is not None]
    both = 2 if neighbours == "replace" else 1
    scale = Fraction(1 + both) * max_rows_per_unit / (Fraction(3, 5) * epsilon)
    starts = rank_law(known, 0, cells - 1, Fraction(len(known), 2), epsilon / (4 * both * max_rows_per_unit))
    return {
        (start, *ends): chance * other
        for start, chance in starts.items()
        for ends, other in ends_law(
            known, cells, start, float(scale), math.ceil(2 * scale) if left is None else left
        ).items()
    }
