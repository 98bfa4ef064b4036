"""The public cells of a column within public bounds, and values drawn from them in integer arithmetic.

Numbers are divided into runs: one for each value of a discrete column where there are few, else equal parts of the
interval, and between them four parts of each power of two, so that a column with a long tail has narrow cells where its
values crowd. Zero and either end have a cell of their own, as values often pile up there.

Nothing here depends on rows, and the same arguments give the same cells and values on every platform: edges are doubles
from single operations of IEEE 754, values of discrete columns are integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles, Longs

# Equal parts of an interval; a discrete column of at most `_EACH` values has a cell for each.
_PARTS, _EACH = 128, 256
# Powers of two below so many halves of the larger end have no cells of their own.
_OCTAVES, _QUARTERS = 14, 4
_LARGEST = 2.0**53


@dataclass(frozen=True)
class ValueGrid:
    """Cells of numbers.

    Attributes
    ----------
    starts : tuple of float
        The least number in each cell, ascending. A cell ends where the next one starts.
    upper : float
        The largest number in the last cell.
    discrete : bool
        Whether all numbers are integers.
    """

    starts: tuple[float, ...]
    upper: float
    discrete: bool

    @classmethod
    def of_integers(cls, lower: Fraction, upper: Fraction) -> ValueGrid:
        """Return the cells of integers within bounds, which are rounded outwards; within ``2**53``."""
        limit = int(_LARGEST)
        low, high = (min(max(end, -limit), limit) for end in (math.floor(lower), math.ceil(upper)))
        count = high - low + 1
        if count <= _EACH:
            return cls(tuple(float(low + place) for place in range(count)), float(high), discrete=True)
        edges = {low, low + 1, high, *(low + count * part // _PARTS for part in range(_PARTS))}
        for edge in _powers(max(abs(low), abs(high))):
            edges |= {math.ceil(edge), 1 - math.ceil(edge)}
        edges |= {0, 1}
        return cls(tuple(float(edge) for edge in sorted(edges) if low <= edge <= high), float(high), discrete=True)

    @classmethod
    def of_doubles(cls, lower: float, upper: float) -> ValueGrid:
        """Return the cells of doubles within bounds, ``lower < upper``."""
        width = upper - lower
        edges = {lower, upper, 0.0, *(lower + width * (part / _PARTS) for part in range(_PARTS))}
        edges |= {math.nextafter(lower, math.inf), math.nextafter(0.0, math.inf)}
        for edge in _powers(max(abs(lower), abs(upper))):
            edges |= {float(edge), -float(edge)}
        return cls(tuple(sorted(edge + 0.0 for edge in edges if lower <= edge <= upper)), upper, discrete=False)

    @property
    def count(self) -> int:
        """Number of cells."""
        return len(self.starts)

    @property
    def widths(self) -> Doubles:
        """How many integers a cell has, or how wide it is."""
        return np.diff([*self.starts, self.upper + self.discrete])

    def cells(self, values: Doubles) -> Longs:
        """Return the cell of each value, values beyond the bounds in the outermost ones; -1 for NaN."""
        found = np.searchsorted(np.array(self.starts), values, side="right") - 1
        return np.where(np.isnan(values), -1, np.maximum(found, 0)).astype(np.int64)

    def values(self, cells: Longs, words: NDArray[np.uint64]) -> Doubles:
        """Return a value of each cell, evenly by a uniform word."""
        starts = np.array(self.starts)
        width = self.widths[cells]
        if self.discrete:
            return starts[cells] + (words % width.astype(np.uint64)).astype(np.float64)
        found = starts[cells] + width * ((words >> np.uint64(11)).astype(np.float64) * 2.0**-53)
        return np.where(found >= starts[cells] + width, starts[cells], found)


def _powers(largest: float) -> Sequence[Fraction]:
    """Return the edges of the cells between powers of two, from the largest number downwards."""
    if not largest > 0:
        return []
    top = math.frexp(largest)[1]
    return [
        Fraction(2) ** exponent * Fraction(_QUARTERS + part, _QUARTERS)
        for exponent in range(top - _OCTAVES, top)
        for part in range(_QUARTERS)
    ]
