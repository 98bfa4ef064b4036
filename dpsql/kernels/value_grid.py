"""The public cells of a column within public bounds, and values drawn from them in integer arithmetic.

A discrete column of few values has a cell for each value. Otherwise the cells are equal parts of the interval, and
between them four parts of each power of two, so a column with a long tail has narrow cells where its values crowd. Zero
and either end have a cell of their own, as values often pile up there.

A cell of several numbers has finer parts. Values are often multiples of a step, such as whole numbers, cents or full
minutes. The steps are public, and each step divides the next. The *grain* of a value is the coarsest step that divides
it. The module lists the multiples of a step in a cell. Every value has a *bucket*: its quarter of the cell, and one bit
of a public hash. So the counts of buckets show values that fill only a part of the cell, or that repeat.

Nothing here depends on rows, and the same arguments give the same cells and values on every platform: edges are doubles
from single operations of IEEE 754, values of discrete columns are integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.arrays import Doubles, Longs
from dpsql.dataclass import dataclass

# Equal parts of an interval; a discrete column of at most `_EACH` values has a cell for each.
_PARTS, _EACH = 128, 256
# Powers of two below this many halvings of the larger end have no cells of their own.
_OCTAVES, _QUARTERS = 14, 4
_LARGEST = 2.0**53
# Equal parts of a cell, with two buckets each.
_CELL_PARTS = 4
BUCKETS = 2 * _CELL_PARTS

# A multiplier and a divisor: a value is a multiple of the step if value * multiplier / divisor is an integer.
Step = tuple[int, int]
_WHOLE: tuple[Step, ...] = tuple((1, digit * 10**exponent) for exponent in range(7) for digit in (1, 5))
_DECIMAL: tuple[Step, ...] = (*((10**exponent, 1) for exponent in (6, 5, 4, 3, 2)), (20, 1), (10, 1), (2, 1))
_TIME: tuple[Step, ...] = tuple((1, size) for size in (1, 1000, 10**6, 60 * 10**6, 3600 * 10**6, 86400 * 10**6))
# The grains of most numbers; the search for finer and coarser grains starts there.
_CENT, _ONE = _DECIMAL.index((100, 1)), len(_DECIMAL)
# Tolerance of a multiple of a step, as a share of the value: a few units in its last place.
_DOUBLE_SLACK, _SINGLE_SLACK = 2.0**-50, 2.0**-23


def steps_of(kind: str) -> tuple[Step, ...]:
    """Return the steps of a type, as SQL spells it, from the finest; each step divides the next."""
    if kind == "TIMESTAMP":
        return _TIME
    return (*_DECIMAL, *_WHOLE) if kind in ("DOUBLE", "FLOAT") else _WHOLE


def nearest_multiples(values: Doubles, step: tuple[Doubles, Doubles] | Step) -> tuple[Doubles, Doubles]:
    """Return the number of the nearest multiple of a step for each value, and that multiple."""
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(step[0], int) and 1 in step:  # same numbers, one operation less
            numbers = np.rint(values * step[0] if step[1] == 1 else values / step[1])
            return numbers, numbers / step[0] if step[1] == 1 else numbers * step[1]
        numbers = np.rint(values * step[0] / step[1])
        return numbers, numbers * step[1] / step[0]


def is_near(values: Doubles, multiples: Doubles, kind: str) -> NDArray[np.bool_]:
    """Return whether values are multiples, as far as the type tells."""
    if kind not in ("DOUBLE", "FLOAT"):
        return np.asarray(values == multiples)
    slack = _SINGLE_SLACK if kind == "FLOAT" else _DOUBLE_SLACK
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(multiples - values) <= slack * np.abs(values))


def grains(values: Doubles, kind: str) -> Longs:
    """Return the grain of each value by its place in `steps_of`, counted from 1; 0 if no step divides it.

    Values of a discrete column are integers, so their grain is 1 at least.
    """
    steps = steps_of(kind)
    result = np.zeros(len(values), dtype=np.int64)
    if kind not in ("DOUBLE", "FLOAT"):
        _rise(result, np.arange(len(values)), values, 0, len(steps), kind)
        return result
    is_whole = np.rint(values) == values
    _rise(result, np.flatnonzero(is_whole), values, _ONE, len(steps), kind)
    rows = np.flatnonzero(~is_whole)
    candidates = values[rows]
    in_cents = is_near(candidates, nearest_multiples(candidates, steps[_CENT])[1], kind)
    _rise(result, rows[in_cents], values, _CENT, _ONE, kind)
    rows, candidates = rows[~in_cents], candidates[~in_cents]
    _rise(result, rows[is_near(candidates, nearest_multiples(candidates, steps[0])[1], kind)], values, 0, _CENT, kind)
    return result


def _rise(result: Longs, rows: Longs, values: Doubles, position: int, end: int, kind: str) -> None:
    """Record the coarsest step before `end` for rows whose values are multiples of the step at `position`."""
    steps = steps_of(kind)
    candidates = values[rows]
    while len(rows):
        result[rows] = position + 1
        position += 1
        if position >= end:
            return
        fits = is_near(candidates, nearest_multiples(candidates, steps[position])[1], kind)
        rows, candidates = rows[fits], candidates[fits]


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
        """Return the cells of integers within bounds, rounded outwards, and within ``2**53``."""
        limit = int(_LARGEST)
        low, high = (min(max(end, -limit), limit) for end in (math.floor(lower), math.ceil(upper)))
        count = high - low + 1
        if count <= _EACH:
            return cls(tuple(float(low + position) for position in range(count)), float(high), discrete=True)
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
            edges |= {edge, -edge}
        return cls(tuple(sorted(edge + 0.0 for edge in edges if lower <= edge <= upper)), upper, discrete=False)

    def refined(self, crowds: Sequence[tuple[float, float, int]]) -> ValueGrid:
        """Return narrower cells where values crowd, and whole powers of two elsewhere.

        Parameters
        ----------
        crowds : sequence of (float, float, int)
            Closed intervals, each with its number of equal parts; without intervals, the cells stay.
        """
        if not crowds:
            return self
        starts, edges = np.array(self.starts), {*self.starts[:2], self.starts[-1]}
        powers = [starts, 1.0 - starts] if self.discrete else [starts, -starts]
        is_edge = (starts == 0.0) | (starts == (1.0 if self.discrete else math.nextafter(0.0, math.inf)))
        is_edge |= np.logical_or(*(np.frexp(of)[0] == 0.5 for of in powers))
        for low, high, parts in crowds:
            is_edge |= (low <= starts) & (starts <= high)
            ends = (low + (high - low) * (part / parts) for part in range(parts + 1))
            edges |= {float(math.ceil(edge)) if self.discrete else edge + 0.0 for edge in ends}
        edges |= set(starts[is_edge].tolist())
        inside = sorted(edge for edge in edges if self.starts[0] <= edge <= self.upper)
        return ValueGrid(tuple(inside), self.upper, self.discrete)

    @property
    def count(self) -> int:
        """Number of cells."""
        return len(self.starts)

    @property
    def widths(self) -> Doubles:
        """The number of integers in each cell, or its width."""
        return np.diff([*self.starts, self.upper + self.discrete])

    @property
    def single(self) -> NDArray[np.bool_]:
        """Whether each cell holds one number only."""
        starts = np.array([*self.starts, self.upper])
        if self.discrete:
            return np.asarray(self.widths <= 1.0)
        return np.asarray(starts[1:] <= np.nextafter(starts[:-1], math.inf))

    def multiples(self, step: Step) -> tuple[Doubles, Doubles]:
        """Return the number of the first multiple of a step in each cell, and the number of multiples in the cell."""
        starts = np.array(self.starts)
        first = np.ceil(starts * step[0] / step[1])
        # Rounding a multiple to a double may move it across the cell's edge.
        first = np.where((first - 1.0) * step[1] / step[0] >= starts, first - 1.0, first)
        first = np.where(first * step[1] / step[0] < starts, first + 1.0, first)
        end = math.floor(self.upper * step[0] / step[1])
        end += (end + 1) * step[1] / step[0] <= self.upper
        end -= end * step[1] / step[0] > self.upper
        return first, np.maximum(np.diff([*first, end + 1.0]), 0.0)

    def cells(self, values: Doubles) -> Longs:
        """Return the cell of each value: the outermost cells for values beyond the bounds, -1 for NaN."""
        result = np.searchsorted(np.array(self.starts), values, side="right") - 1
        return np.where(np.isnan(values), -1, np.maximum(result, 0)).astype(np.int64)

    def buckets(self, values: Doubles, cells: Longs) -> Longs:
        """Return the bucket of each value within its cell: the same for equal values."""
        width = self.widths[cells]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            share = np.nan_to_num((values - np.array(self.starts)[cells]) / width, posinf=0.0, neginf=0.0)
        part = np.clip(share * _CELL_PARTS, 0, _CELL_PARTS - 1).astype(np.int64)
        bits = np.ascontiguousarray(values + 0.0, dtype=np.float64).view(np.uint64)
        mixed = (bits ^ (bits >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
        return np.asarray(2 * part + (mixed >> np.uint64(63)).astype(np.int64), dtype=np.int64)

    def values(self, cells: Longs, words: NDArray[np.uint64]) -> Doubles:
        """Return a uniform value of each cell, by a uniform word."""
        starts = np.array(self.starts)
        width = self.widths[cells]
        if self.discrete:
            return starts[cells] + (words % width.astype(np.uint64)).astype(np.float64)
        result = starts[cells] + width * ((words >> np.uint64(11)).astype(np.float64) * 2.0**-53)
        return np.where(result >= starts[cells] + width, starts[cells], result)

    def grained(
        self, cells: Longs, words: NDArray[np.uint64], choices: NDArray[np.uint64], mixture: Sequence[Sequence[int]]
    ) -> Doubles:
        """Return a value of each cell: a multiple of a step that a uniform word chooses by weight.

        Parameters
        ----------
        cells : ndarray of int64
        words, choices : ndarray of uint64
            Uniform words.
        mixture : sequence of (int, int, int)
            Multiplier, divisor and weight of each step, from the finest one; 0 and 0 for any value of the cell. In a
            cell without a multiple of the chosen step, the next finer step with a multiple applies, or any value.
        """
        ends = np.cumsum([weight for *_, weight in mixture], dtype=np.int64)
        chosen = np.searchsorted(ends, (choices % np.uint64(ends[-1])).astype(np.int64), side="right")
        result, open_ = self.values(cells, words), np.zeros(len(cells), dtype=bool)
        for position in reversed(range(len(mixture))):
            open_ |= chosen == position
            step = mixture[position][0], mixture[position][1]
            if not step[0]:
                break
            first, count = (of[cells] for of in self.multiples(step))
            able = open_ & (count > 0.0)
            numbers = first[able] + (words[able] % count[able].astype(np.uint64)).astype(np.float64)
            result[able] = numbers * step[1] / step[0]
            open_ &= ~able
        return result


def _powers(largest: float) -> Sequence[float]:
    """Return the edges of the cells between powers of two, from the largest number downwards."""
    if not largest > 0:
        return []
    top = math.frexp(largest)[1]
    return [
        math.ldexp((_QUARTERS + part) / _QUARTERS, exponent)
        for exponent in range(top - _OCTAVES, top)
        for part in range(_QUARTERS)
    ]
