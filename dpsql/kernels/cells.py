"""Count rows per cell exactly: an even grid between public bounds, and universal cells on a logarithmic scale.

The cell of a value depends on that value alone. Counts are integers, so the order of the rows and their division into
batches do not matter. A missing value (NaN) counts in no cell.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import ParameterError

# Values per step; the working arrays stay in the second-level cache.
_BLOCK = 1 << 14
_LARGEST_GRID = 1 << 24

# Cells of MagnitudeCounts: exponents -64 to 64, 16 cells per exponent; both signs, and zero between them.
LARGEST_EXPONENT = 64
SUBCELLS = 16
_EXPONENTS = 2 * LARGEST_EXPONENT + 1
ZERO_FINE = SUBCELLS * _EXPONENTS
FINE_CELLS = 2 * ZERO_FINE + 1
_SUBCELL_BITS = 4
_FRACTION_BITS = 52
_BIAS = 1023
# A double's steps of magnitude above the zero cell: its bits, less the bits that cells ignore, less a start.
MAGNITUDE_BITS = _FRACTION_BITS - _SUBCELL_BITS
MAGNITUDE_START = ((_BIAS - LARGEST_EXPONENT) << _SUBCELL_BITS) - 1


class CellCounts(ABC):
    """Counts of rows in public cells of one column, in ascending order of their values.

    Parameters
    ----------
    cells : int
        Number of cells, >= 1.
    """

    def __init__(self, cells: int) -> None:
        self.cells = cells
        self._counts = np.zeros(cells, dtype=np.int64)

    @abstractmethod
    def of(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the cells of values that are not missing, shape (rows,)."""

    @abstractmethod
    def middle(self, cell: int) -> float:
        """Return the value that represents a cell, 0 <= cell < cells; it is in the cell."""

    @abstractmethod
    def ends(self, first: int, last: int) -> tuple[float | None, float | None]:
        """Return the least and greatest value that cells first to last hold; None if there is no such limit."""

    @property
    def counts(self) -> NDArray[np.int64]:
        """Rows in each cell, shape (cells,): a copy."""
        return self._counts.copy()

    def add(self, values: NDArray[np.float64]) -> None:
        """Count values of shape (rows,)."""
        for start in range(0, len(values), _BLOCK):
            block = values[start : start + _BLOCK]
            cells = self.of(block[~np.isnan(block)])
            if len(cells) < self.cells // 8:
                np.add.at(self._counts, cells, 1)
            else:
                self._counts += np.bincount(cells, minlength=self.cells)

    def zero(self) -> Self:
        """Return empty counts of the same cells."""
        other = copy(self)
        other._counts = np.zeros_like(self._counts)
        return other

    def add_counts(self, counts: NDArray[np.int64]) -> None:
        """Add counts of other rows, shape (cells,)."""
        self._counts += counts


class GridCounts(CellCounts):
    """Counts of rows in the cells of an even grid over [lower, upper].

    Parameters
    ----------
    lower, upper : float
        Public bounds, finite, lower < upper. Values outside the bounds count in the outermost cells.
    cells : int
        In [1, 2**24].

    Attributes
    ----------
    edges : ndarray of float64, shape (cells + 1,)
        Strictly ascending, from lower to upper. Cell i holds the values in ``[edges[i], edges[i + 1])``; the last cell
        also holds upper.

    Raises
    ------
    ParameterError
        P018, when the bounds are not finite or not ascending; P036, when the grid is too fine for the bounds.
    """

    def __init__(self, lower: float, upper: float, cells: int) -> None:
        if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper):
            raise ParameterError("P018", f"bounds must be finite with lower < upper; got {lower} and {upper}.")
        if not 1 <= cells <= _LARGEST_GRID:
            raise ParameterError("P018", f"cells must be an integer in [1, {_LARGEST_GRID}]; got {cells}.")
        super().__init__(cells)
        # Halving prevents overflow of the range's width. Every step is monotone, roundings included.
        self._half_lower, self._half_width = lower / 2, upper / 2 - lower / 2
        self.edges = even_edges(lower, upper, cells)
        if not (self.edges[:-1] < self.edges[1:]).all():
            raise ParameterError(
                "P036", f"{cells} cells between {lower} and {upper} are finer than doubles. Widen the bounds."
            )

    def middle(self, cell: int) -> float:
        """Return the middle of a cell, 0 <= cell < cells: rounded once, and in the cell."""
        return middle(float(self.edges[cell]), float(self.edges[cell + 1]))

    def ends(self, first: int, last: int) -> tuple[float, float]:
        """Return the ends of the cells first to last."""
        return float(self.edges[first]), float(self.edges[last + 1])

    def of(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the cells of values that are not missing."""
        values = np.clip(values, self.edges[0], self.edges[-1])
        # A guess, right but for roundings; the edges decide. Close bounds may even make it NaN.
        with np.errstate(all="ignore"):
            cells = ((values / 2 - self._half_lower) / self._half_width * self.cells).astype(np.intp)
        cells = np.clip(cells, 0, self.cells - 1)
        wrong = np.flatnonzero((values < self.edges[cells]) | (values >= self.edges[cells + 1]))
        exact = np.searchsorted(self.edges, values[wrong], side="right") - 1
        cells[wrong] = np.minimum(exact, self.cells - 1)
        return cells


def even_edges(lower: float, upper: float, cells: int) -> NDArray[np.float64]:
    """Return the ends of this many cells of equal width, shape (cells + 1,); not descending."""
    shares = np.arange(cells + 1) / cells
    # Halving prevents overflow of the range's width.
    edges: NDArray[np.float64] = np.clip(2 * (lower / 2 + (upper / 2 - lower / 2) * shares), lower, upper)
    edges[0], edges[-1] = lower, upper
    return edges


def middle(start: float, end: float) -> float:
    """Return the middle of [start, end): rounded once, and inside."""
    return min(float((Fraction(start) + Fraction(end)) / 2), math.nextafter(end, start))


class MagnitudeCounts:
    """Counts of rows in universal cells on a logarithmic scale, for several columns at once.

    Parameters
    ----------
    width : int
        Columns, >= 0.

    Notes
    -----
    The cells do not depend on the data: a positive value with ``2**e <= x < 2**(e + 1)`` and e in [-64, 64]
    is in one of the 16 equal parts of that octave, closed at the end nearer to 0. Negative cells mirror them. Smaller
    magnitudes are in the zero cell; larger magnitudes and infinities are in the outermost cells. Cells ascend by value.
    See `fine_edges`.
    """

    def __init__(self, width: int) -> None:
        self._counts = np.zeros((width, FINE_CELLS), dtype=np.int64)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Rows in each fine cell, shape (width, FINE_CELLS): a copy."""
        return self._counts.copy()

    def add(self, columns: Sequence[NDArray[np.float64]] | NDArray[np.float64]) -> None:
        """Count values of shape (width, rows), or columns of shape (rows,)."""
        for number, column in enumerate(columns):
            counts = np.zeros(FINE_CELLS + 1, dtype=np.int64)
            for start in range(0, len(column), _BLOCK):
                cells = magnitude_cells(column[start : start + _BLOCK])
                counts += np.bincount(cells, minlength=FINE_CELLS + 1)
            self._counts[number] += counts[:FINE_CELLS]

    def zero(self) -> MagnitudeCounts:
        """Return empty counts of equal width."""
        return MagnitudeCounts(len(self._counts))

    def add_counts(self, counts: NDArray[np.int64]) -> None:
        """Add counts of other rows, shape (width, FINE_CELLS)."""
        self._counts += counts


def magnitude_cells(values: NDArray[np.float64], parts: int = 1) -> NDArray[np.int64]:
    """Return the fine cell of each value of shape (rows,); FINE_CELLS for a missing value.

    `parts`, a power of two, is the number of equal parts of each fine cell except the zero cell. Part numbers are
    consecutive, and a missing value has the number after the last part.
    """
    bits = np.ascontiguousarray(values, dtype=np.float64).view(np.int64)
    more = parts.bit_length() - 1
    # Exponent and leading fraction bits are one number, which grows with the magnitude; the sign is dropped.
    steps = (bits >> (MAGNITUDE_BITS - more)) & ((1 << (11 + _SUBCELL_BITS + more)) - 1)
    steps -= ((MAGNITUDE_START + 1) << more) - 1
    np.clip(steps, 0, ZERO_FINE * parts, out=steps)
    sign = bits >> 63
    steps ^= sign
    steps -= sign
    steps += ZERO_FINE * parts
    steps[np.isnan(values)] = 2 * ZERO_FINE * parts + 1
    return steps


def fine_edges(parts: int = 1) -> NDArray[np.float64]:
    """Return the ends of the fine cells, or of their parts: exact ascending doubles, one more than cells.

    The outermost cells, which end at ``-2**65`` and ``2**65``, also count infinities and larger values.
    """
    exponents = np.arange(-LARGEST_EXPONENT, LARGEST_EXPONENT + 1)
    number = SUBCELLS * parts
    starts = np.ldexp(1.0 + np.arange(number) / number, exponents[:, None]).ravel()
    positive = np.append(starts, 2.0 ** (LARGEST_EXPONENT + 1))
    return np.concatenate([-positive[::-1], positive])


def fine_interval(first: int, last: int) -> tuple[float, float]:
    """Return the ends of fine cells, 0 <= first <= last < FINE_CELLS, as finite bounds with lower < upper.

    An end in the zero cell is 0, as if its values were 0; if both ends are in it, the interval is the zero cell.
    """
    if first == last == ZERO_FINE:
        return float(FINE_EDGES[first]), float(FINE_EDGES[last + 1])
    lower = 0.0 if first == ZERO_FINE else float(FINE_EDGES[first])
    upper = 0.0 if last == ZERO_FINE else float(FINE_EDGES[last + 1])
    return lower, upper


FINE_EDGES = fine_edges()
