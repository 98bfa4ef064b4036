"""Count rows per cell exactly: an even grid between public bounds, and universal cells on a logarithmic scale.

The cell of a value depends on that value alone. Counts are integers, so the order of the rows and their division into
batches do not matter. A missing value (NaN) counts in no cell.

**Cells by type.** A column has as few cells as its public type allows, each a union of fine cells.

============================  =================================================================================
type                          cells
============================  =================================================================================
TINYINT … BIGINT              0, and in the octave from ``2**e`` the smaller of ``2**e`` and 4 equal runs of
                              integers; both signs: 47, 111, 239 and 495 cells
unsigned                      the same without negatives
DECIMAL(w, d), w up to 18     the cells of an integer of w digits, in units of ``10**-d``
any other number              0, and 4 equal parts of each octave from ``2**-64`` to ``2**65``; both signs: 1033
============================  =================================================================================

The type of the source's column is public, as all types are, and so are the cells. The cell of a value depends on that
value alone. A value that the type cannot hold counts in the outermost cell, or in the cell of 0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.arrays import Doubles, Longs
from dpsql.dataclass import dataclass
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


# Cells within an octave.
OCTAVE = 4
# For a column of doubles; no type has more.
MOST_CELLS = 2 * OCTAVE * (2 * LARGEST_EXPONENT + 1) + 1
# Bounds at most this many steps apart hold few discrete values, like the bounds of a 0/1 column.
FEW = 4
# Decimals of more digits are counted as doubles.
_MOST_DIGITS = 18


@dataclass(frozen=True, eq=False)
class TypedCells:
    """The cells of a column.

    Attributes
    ----------
    starts : ndarray of int64, shape (m,)
        The first fine cell of each cell.
    low, high : ndarray of float64, shape (m,)
        The ends of each cell, in the column's unit: for discrete cells, their least and greatest value.
    zero : int
        The cell of 0; not the number of a cell if none holds 0.
    digits : int or None
        d: values are multiples of ``10**-d``; None for doubles.
    """

    starts: Longs
    low: Doubles
    high: Doubles
    zero: int
    digits: int | None

    @classmethod
    def of(cls, kind: pa.DataType, octave: int = OCTAVE, parts: int = 1) -> TypedCells:
        """Return the cells of a numeric or boolean type.

        Parameters
        ----------
        kind : pyarrow type
        octave : int
            A power of two: cells within an octave, at most `SUBCELLS` times `parts`.
        parts : int
            A power of two: the number of parts of each fine cell (`dpsql.kernels.cells.magnitude_cells`).
        """
        digits = decimals(kind)
        if pa.types.is_boolean(kind):
            return _of_integers(0, 1, 0, octave, parts)
        if pa.types.is_integer(kind):
            most = (1 << (kind.bit_width - pa.types.is_signed_integer(kind))) - 1
            least = -most - 1 if pa.types.is_signed_integer(kind) else 0
            return _of_integers(least, most, 0, octave, parts)
        if digits is not None:
            most = 10**kind.precision - 1
            return _of_integers(-most, most, digits, octave, parts)
        return _of_doubles(octave, parts)

    def within(self, lower: float, upper: float) -> TypedCells:
        """Return the cells of values in [lower, upper], no wider than that interval, which is public.

        Values beyond the interval count in the outermost cells, as if they were clipped to it.
        """
        inside = np.flatnonzero((self.high >= lower) & (self.low <= upper))
        if not len(inside):  # all values of the interval are in the outermost cell
            inside = np.array([0 if upper < self.low[0] else self.count - 1])
        cut = slice(int(inside[0]), int(inside[-1]) + 1)
        low, high = np.clip(self.low[cut], lower, upper), np.clip(self.high[cut], lower, upper)
        starts = self.starts[cut].copy()
        starts[0] = 0
        return replace(self, starts=starts, low=low, high=high, zero=self.zero - cut.start)

    @property
    def count(self) -> int:
        """m: the number of cells."""
        return len(self.starts)

    @property
    def step(self) -> float:
        """The distance of two neighbouring values; 0 for doubles."""
        return 0.0 if self.digits is None else 1.0 / 10.0**self.digits

    def coded(self, values: Doubles) -> Doubles:
        """Return values as their fine cells count them: decimals as integers, in units of the step."""
        with np.errstate(over="ignore"):
            return np.rint(values * 10.0**self.digits) if self.digits else values

    def counts(self, fine: Longs) -> Longs:
        """Return the rows in each cell from those in the fine cells, exactly."""
        return np.asarray(np.add.reduceat(fine, self.starts), dtype=np.int64)


def decimals(kind: pa.DataType) -> int | None:
    """Return d: the values of a type are multiples of ``10**-d``; None for doubles and types counted as doubles."""
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return 0
    is_counted = pa.types.is_decimal(kind) and kind.precision <= _MOST_DIGITS and kind.scale >= 0
    return int(kind.scale) if is_counted else None


def is_few(interval: tuple[float, float], kind: pa.DataType) -> bool:
    """Return whether an interval holds few values of a type, like a flag's interval: unsuitable for, say, an age.

    Doubles between 0 and 1 count as flags, too.
    """
    step = TypedCells.of(kind).step
    return interval == (0.0, 1.0) or interval[1] - interval[0] <= FEW * step


@lru_cache(typed=True)
def _of_integers(least: int, most: int, digits: int, octave: int, parts: int) -> TypedCells:
    """Return the cells of integers in [least, most], in units of ``10**-digits``; least is about -most or 0."""
    subcells, zero = SUBCELLS * parts, ZERO_FINE * parts
    runs, ups = [], []  # the runs of positive integers, and the first fine cell of each
    for exponent in range(most.bit_length()):
        number = min(1 << exponent, octave)
        width = (1 << exponent) // number
        for run in range(number):
            start = (1 << exponent) + run * width
            if start <= most:
                runs.append((start, min(start + width - 1, most)))
                ups.append(zero + 1 + (LARGEST_EXPONENT + exponent) * subcells + run * (subcells // number))
    mirrored = [(-end, -start) for start, end in reversed(runs)] if least else []
    # A cell ends before the next one begins, and negative cells mirror the positive ones.
    downs = [2 * zero + 1 - following for following in reversed([*ups, 2 * zero + 1])] if least else [0]
    ends = [*mirrored, (0, 0), *runs]
    ends[0] = (least, ends[0][1])
    low, high = (np.array([pair[side] / 10**digits for pair in ends], dtype=np.float64) for side in (0, 1))
    return TypedCells(np.array([*downs, *ups], dtype=np.int64), low, high, len(mirrored), digits)


@lru_cache(typed=True)
def _of_doubles(octave: int, parts: int) -> TypedCells:
    edges, zero = fine_edges(parts), ZERO_FINE * parts
    ups = np.arange(zero + 1, 2 * zero + 1, SUBCELLS * parts // octave)
    starts = np.concatenate([2 * zero + 1 - np.append(ups[1:], 2 * zero + 1)[::-1], [zero], ups])
    ends = np.append(starts[1:], 2 * zero + 1)
    return TypedCells(starts.astype(np.int64), edges[starts], edges[ends], len(ups), None)
