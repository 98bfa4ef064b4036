"""Public cells of one column, fine enough for its quantiles: by its type, and between bounds if there are any.

==========================================  ==========================================================================
bounds                                      cells
==========================================  ==========================================================================
none (`ScaleCounts`)                        the fine cells of `dpsql.kernels.cells`, which ``dp_bounds`` uses, in 64
                                            parts each: 1024 in an octave. Integers and decimals: only cells that hold
                                            a value of the type, one value each if the octave has at most 1024
public, a type of steps with at most        one value each
65536 values between the bounds
public, otherwise                           65536 of equal width, divided where 1024 in each octave are narrower, to a
                                            2**32nd part of the width: bounds may be much too wide
==========================================  ==========================================================================

The type of the source's column is public, and the bounds are public or were released: so the cells are public. The cell
of a value depends on that value alone.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Doubles
from dpsql.kernels.cells import (
    SUBCELLS,
    CellCounts,
    GridCounts,
    TypedCells,
    decimals,
    even_edges,
    magnitude_cells,
    middle,
)

# Parts of a fine cell, and cells within an octave.
_PARTS = 64
_OCTAVE = SUBCELLS * _PARTS
# Cells of equal width between bounds, and most values of a type with a cell each.
EVEN_CELLS = 1 << 16
# Below this, half a step from a value is a separate double.
_TOLD_APART = 2.0**50
# Divided octaves below the width of the bounds.
_OCTAVES = 32


class ScaleCounts(CellCounts):
    """Counts of rows in the cells of a column without bounds.

    Parameters
    ----------
    kind : pyarrow type
        Numeric or boolean.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self._typed = TypedCells.of(kind, _OCTAVE, _PARTS)
        self._positions = _positions(kind)
        super().__init__(self._typed.count)

    def of(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the cells of values that are not missing."""
        return self._positions[magnitude_cells(self._typed.coded(values), _PARTS)]

    def middle(self, cell: int) -> float:
        """Return the middle of a cell; for a type of steps, the middle one of its values."""
        low, high = float(self._typed.low[cell]), float(self._typed.high[cell])
        if self._typed.digits is None:
            return 0.0 if cell == self._typed.zero else middle(low, high)
        return _stepped(_units(low, self._typed.digits), _units(high, self._typed.digits), self._typed.digits)

    def ends(self, first: int, last: int) -> tuple[float | None, float | None]:
        """Return the ends of cells first to last; None for the outermost cells of doubles, which hold infinities."""
        open_ended = self._typed.digits is None
        low = None if open_ended and first == 0 else float(self._typed.low[first])
        high = None if open_ended and last == self.cells - 1 else float(self._typed.high[last])
        return low, high


class CutCounts(CellCounts):
    """Counts of rows between public cuts.

    Parameters
    ----------
    edges : ndarray of float64, shape (cells + 1,)
        Strictly ascending. Cell i holds the values in ``[edges[i], edges[i + 1])``; the outermost cells also hold
        values beyond the ends.
    digits : int or None
        d: values are multiples of ``10**-d``, and only the outermost edges are multiples; None for doubles.
    """

    def __init__(self, edges: Doubles, digits: int | None) -> None:
        super().__init__(len(edges) - 1)
        self._edges, self._digits = edges, digits

    def of(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the cells of values that are not missing."""
        return np.searchsorted(self._edges[1:-1], values, side="right")

    def middle(self, cell: int) -> float:
        """Return the middle of a cell; for a type of steps, the middle one of its values."""
        if self._digits is None:
            return middle(float(self._edges[cell]), float(self._edges[cell + 1]))
        return _stepped(*self._values(cell, cell), self._digits)

    def ends(self, first: int, last: int) -> tuple[float, float]:
        """Return the least and greatest value in the cells first to last."""
        if self._digits is None:
            return float(self._edges[first]), float(self._edges[last + 1])
        low, high = self._values(first, last)
        return low / 10**self._digits, high / 10**self._digits

    def _values(self, first: int, last: int) -> tuple[int, int]:
        """Return the least and greatest value in the cells first to last, in steps."""
        scale = 10 ** (self._digits or 0)
        low = self._edges[0] * scale if first == 0 else np.ceil(self._edges[first] * scale)
        high = self._edges[-1] * scale if last == self.cells - 1 else np.floor(self._edges[last + 1] * scale)
        return round(float(low)), round(float(high))


def cells_between(lower: float, upper: float, kind: pa.DataType, cells: int | None = None) -> CellCounts:
    """Return empty counts between public bounds.

    Parameters
    ----------
    lower, upper : float
        Finite, lower < upper.
    kind : pyarrow type
        The column's type: numeric or boolean.
    cells : int, optional
        Number of cells of equal width; by default, width and type decide, see the module.

    Raises
    ------
    ParameterError
        P036, when the cells are too fine for the bounds.
    """
    return GridCounts(lower, upper, cells) if cells is not None else CutCounts(*_edges(lower, upper, kind))


def most_cells(cells: int | None, *, bounded: bool) -> int:
    """Return the largest number of cells of a column of any type: `cells` if given."""
    if cells is not None:
        return cells
    if bounded:
        return EVEN_CELLS + 2 * (_OCTAVES + 1) * _OCTAVE
    return len(TypedCells.of(pa.float64(), _OCTAVE, _PARTS).starts)


def whole_steps(lower: float, upper: float, kind: pa.DataType) -> tuple[float, float]:
    """Return the bounds rounded outwards to values of the type if it has steps."""
    digits = decimals(kind)
    if digits is None or not max(abs(lower), abs(upper)) * 10**digits < _TOLD_APART:
        return lower, upper
    scale = 10**digits
    return math.floor(lower * scale) / scale, math.ceil(upper * scale) / scale


@lru_cache(maxsize=16)
def _positions(kind: pa.DataType) -> NDArray[np.intp]:
    """Return the cell of each part of a fine cell."""
    starts = TypedCells.of(kind, _OCTAVE, _PARTS).starts
    fine = 2 * int(magnitude_cells(np.zeros(1), _PARTS)[0]) + 1
    return np.repeat(np.arange(len(starts)), np.diff(np.append(starts, fine)))


@lru_cache(maxsize=16, typed=True)
def _edges(lower: float, upper: float, kind: pa.DataType) -> tuple[Doubles, int | None]:
    """Return the edges between bounds, and the type's digits if its values are distinct doubles there."""
    digits = decimals(kind)
    if digits is not None:
        scale = 10**digits
        first, last = lower * scale, upper * scale
        told_apart = max(abs(first), abs(last)) < _TOLD_APART
        if not told_apart or round(first) / scale != lower or round(last) / scale != upper:
            digits = None
        elif last - first < EVEN_CELLS:
            cuts = (np.arange(round(first), round(last)) + 0.5) / scale
            return np.concatenate([[lower], cuts, [upper]]), digits
    even = even_edges(lower, upper, EVEN_CELLS)
    edges = np.unique(np.concatenate([even, _octave_edges(lower, upper)]))
    if digits is not None:
        # Cut half a step above a value, so that a cell holds whole values.
        cuts = (np.floor(edges[1:-1] * 10**digits) + 0.5) / 10**digits
        edges = np.unique(np.concatenate([[lower], cuts[(cuts > lower) & (cuts < upper)], [upper]]))
    return edges, digits


def _octave_edges(lower: float, upper: float) -> Doubles:
    """Return the ends of octave cells between bounds, down to a small part of the bounds' width."""
    top = math.frexp(max(abs(lower), abs(upper)))[1]
    exponents = np.arange(top - _OCTAVES, top + 1)
    ups = np.ldexp(1.0 + np.arange(_OCTAVE) / _OCTAVE, exponents[:, None]).ravel()
    edges = np.concatenate([-ups[::-1], ups])
    return edges[(edges > lower) & (edges < upper)]


def _units(value: float, digits: int) -> int:
    units: int = round(value * 10**digits)
    return units


def _stepped(low: int, high: int, digits: int) -> float:
    """Return the value halfway between two values in steps, rounded down."""
    return float(((low + high) // 2) / 10**digits)
