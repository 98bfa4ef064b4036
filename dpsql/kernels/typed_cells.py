"""The cells of a column by its public type: as few as the type allows, each a union of fine cells of `cells`.

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

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from dpsql.arrays import Doubles, Longs
from dpsql.kernels.cells import LARGEST_EXPONENT, SUBCELLS, ZERO_FINE, fine_edges

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


@lru_cache
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


@lru_cache
def _of_doubles(octave: int, parts: int) -> TypedCells:
    edges, zero = fine_edges(parts), ZERO_FINE * parts
    ups = np.arange(zero + 1, 2 * zero + 1, SUBCELLS * parts // octave)
    starts = np.concatenate([2 * zero + 1 - np.append(ups[1:], 2 * zero + 1)[::-1], [zero], ups])
    ends = np.append(starts[1:], 2 * zero + 1)
    return TypedCells(starts.astype(np.int64), edges[starts], edges[ends], len(ups), None)
