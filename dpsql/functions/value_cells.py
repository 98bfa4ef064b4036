"""Public cells of numbers, and the cell of a number, in SQL and in Python.

SQL and Python agree on every double: both compare with the same edges, or do the same elementwise arithmetic. A
`DerivedKey` is a group key that a row does not store: it follows from one of the row's values.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError
from dpsql.kernels.cells import (
    FINE_CELLS,
    MAGNITUDE_BITS,
    MAGNITUDE_START,
    ZERO_FINE,
    fine_edges,
    magnitude_cells,
    middle,
)
from dpsql.rendering import call, cast, double, field, plus


class ValueCells(ABC):
    """A public partition of numbers into cells, in ascending order.

    Attributes
    ----------
    edges : ndarray of float64, shape (count - 1,)
        The numbers between the cells, ascending. A number is in cell i or above exactly when it is at least
        ``edges[i - 1]``. `BinCells` and `MagnitudeCells` differ.
    """

    edges: NDArray[np.float64]

    @property
    def count(self) -> int:
        """Number of cells."""
        return len(self.edges) + 1

    @abstractmethod
    def of(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the cells of numbers between the bounds, shape (rows,)."""

    @abstractmethod
    def query(self, numbers: str, lower: float, upper: float, missing: str) -> str:
        """Return the query that turns the column `number` of another query into the column `cell`.

        The query clips numbers to the bounds; `missing` is the cell of NULL and NaN. Numbers must be opaque to the
        planner, which could decide the comparisons from a file's statistics.
        """


class FormulaCells(ValueCells):
    """Cells that one SQL expression computes."""

    @abstractmethod
    def sql(self, value: str) -> str:
        """Return SQL for the cell of a number between the bounds."""

    def clipped_sql(self, value: str, lower: float, upper: float, missing: str) -> str:
        """Return SQL for the cell of any number, clipped to the bounds; `missing` is the cell of NULL and NaN.

        The number must be opaque to the planner, as for `query`.
        """
        lowest, highest = self.of(np.array([lower, upper])).tolist()
        low, high = double(lower), double(upper)
        return (
            f"CASE WHEN {value} BETWEEN {low} AND {high} THEN {self.sql(value)} WHEN {value} < {low} THEN {lowest} "
            f"WHEN {value} > {high} AND NOT {call('isnan', value)} THEN {highest} ELSE {missing} END"
        )

    def query(self, numbers: str, lower: float, upper: float, missing: str) -> str:
        """Return the query that turns numbers into cells."""
        cell = self.clipped_sql("number", lower, upper, missing)
        return f"SELECT * EXCLUDE (number), {cell} AS cell FROM ({numbers})"


class EvenCells(FormulaCells):
    """Cells of equal width over [lower, upper].

    Parameters
    ----------
    lower, upper : float
        lower < upper.
    cells : int
        >= 1.

    Attributes
    ----------
    ends : tuple of float
        Lower and upper.

    Raises
    ------
    ParameterError
        P036: the cells are finer than doubles.
    """

    def __init__(self, lower: float, upper: float, cells: int) -> None:
        # Halved if the width would overflow.
        self._unit = 1.0 if math.isfinite(upper - lower) else 0.5
        self._start, width = lower * self._unit, upper * self._unit - lower * self._unit
        if width <= 0 or not math.isfinite(cells / width):
            raise ParameterError(
                "P036", f"{cells} cells between {lower} and {upper} are finer than doubles. Widen the bounds."
            )
        self._per_unit, self._cells = cells / width, cells
        numbers = np.arange(1, cells)
        edges = np.clip((self._start + width * (numbers / cells)) / self._unit, lower, upper)
        # Find the smallest double of each cell; rounding may put the first guess a few doubles off.
        for _ in range(64):
            low = self.of(edges) < numbers
            if not low.any():
                break
            edges[low] = np.nextafter(edges[low], np.inf)
        for _ in range(64):
            below = np.nextafter(edges, -np.inf)
            high = (self.of(np.maximum(below, lower)) >= numbers) & (below >= lower)
            if not high.any():
                break
            edges[high] = below[high]
        # Near zero doubles are finer than the numbers they are added to, so thousands of steps change nothing.
        far = (self.of(edges) < numbers) | ((self.of(np.maximum(below, lower)) >= numbers) & (below >= lower))
        edges[far] = self._smallest(numbers[far], lower, upper)
        if (self.of(edges) != numbers).any():
            raise ParameterError(
                "P036", f"{cells} cells between {lower} and {upper} are finer than doubles. Widen the bounds."
            )
        self.edges = edges
        self.ends = lower, upper

    def _smallest(self, numbers: NDArray[np.int64], lower: float, upper: float) -> NDArray[np.float64]:
        """Return the smallest double of each cell, by bisection over the doubles between the bounds."""
        # Integers have the order of the doubles with the same bits.
        first, last = (_ordered(np.full(len(numbers), end)) for end in (lower, upper))
        for _ in range(64):
            half = (first >> 1) + (last >> 1) + (first & last & 1)
            enough = self.of(_doubles(half)) >= numbers
            first, last = np.where(enough, first, np.minimum(half + 1, last)), np.where(enough, half, last)
        return _doubles(last)

    def middle(self, cell: int) -> float:
        """Return the middle of a cell: rounded once, and inside the cell."""
        return middle(*self.limits(cell, cell))

    def limits(self, first: int, last: int) -> tuple[float, float]:
        """Return the ends of the range of cells from first to last."""
        lower, upper = self.ends
        start = lower if first == 0 else float(self.edges[first - 1])
        return start, upper if last == len(self.edges) else float(self.edges[last])

    def sql(self, value: str) -> str:
        """Return the cell as SQL."""
        scaled = value if self._unit == 1 else call("*", value, double(self._unit))
        moved = scaled if self._start == 0 else call("-", scaled, double(self._start))
        return _even_cell(moved, double(self._per_unit), str(self._cells - 1))

    @property
    def learned(self) -> tuple[float, float, float, float, int, int]:
        """The input of `LearnedCells`: ends, start of the cells, cells per unit, and the outermost cells."""
        if self._unit != 1:
            raise InternalError("I032", "cells that are drawn are too wide. Report it.")
        return *self.ends, self._start, self._per_unit, 0, self._cells - 1

    def of(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the cells."""
        positions = np.floor((values * self._unit - self._start) * self._per_unit)
        return np.minimum(positions, self._cells - 1).astype(np.int64)


def _ordered(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return integers in the order of the doubles."""
    bits = values.view(np.int64)
    ordered: NDArray[np.int64] = np.where(bits < 0, np.iinfo(np.int64).min - bits, bits)
    return ordered


def _doubles(ordered: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the doubles of the integers of `_ordered`."""
    bits = np.where(ordered < 0, np.iinfo(np.int64).min - ordered, ordered)
    return bits.view(np.float64)


class LearnedCells(ValueCells):
    """Cells of equal width whose ends are drawn while a statement runs: the cells of `EvenCells` for the same ends.

    The list `drawn` next to every number has one entry, `EvenCells.learned`.

    Parameters
    ----------
    most : int
        Largest number of cells.
    """

    def __init__(self, most: int) -> None:
        self._most = most

    @property
    def count(self) -> int:
        """The largest number of cells."""
        return self._most

    def of(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Refuse: the ends are not known in Python."""
        raise InternalError("I032", "cells were asked for whose ends are not drawn. Report it.")

    def query(self, numbers: str, lower: float, upper: float, missing: str) -> str:
        """Return the query that turns numbers into cells."""
        bounds = call("list_extract", "drawn", "1")
        low, high, start, per_unit, first, last = (
            field(bounds, name) for name in ("lower", "upper", "middle", "scale", "low", "high")
        )
        inside = _even_cell(call("-", "number", start), per_unit, last)
        cell = (
            f"CASE WHEN number BETWEEN {low} AND {high} THEN {inside} WHEN number < {low} THEN {first} "
            f"WHEN number > {high} AND NOT {call('isnan', 'number')} THEN {last} ELSE {missing} END"
        )
        return f"SELECT * EXCLUDE (number, drawn), {cell} AS cell FROM ({numbers})"


def _even_cell(moved: str, per_unit: str, last: str) -> str:
    """Return SQL for the cell of equal width of a number, given as distance from the start of the cells."""
    return call("least", cast(call("floor", call("*", moved, per_unit)), "INTEGER"), last)


class CutCells(FormulaCells):
    """Cells between public cut points.

    Parameters
    ----------
    cuts : sequence of float
        Strictly ascending.
    """

    def __init__(self, cuts: Sequence[float]) -> None:
        self.edges = np.array(cuts, dtype=np.float64)

    def sql(self, value: str) -> str:
        """Return the cell as SQL."""
        return plus(*(cast(f"({value} >= {double(cut)})", "INTEGER") for cut in self.edges)) if len(self.edges) else "0"

    def of(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the cells."""
        return np.searchsorted(self.edges, values, side="right").astype(np.int64)


class BinCells(ValueCells):
    """Bins that include their upper end, as in DuckDB's histogram.

    Parameters
    ----------
    edges : sequence of float
        Strictly ascending. Bin i holds the numbers above ``edges[i - 1]`` and up to ``edges[i]``; the first bin holds
        those up to ``edges[0]``, and the last bin those above all edges.
    """

    def __init__(self, edges: Sequence[float]) -> None:
        self.edges = np.array(edges, dtype=np.float64)

    def query(self, numbers: str, lower: float, upper: float, missing: str) -> str:
        """Return the query that turns numbers into bins: a binary search, with one projection per step.

        A thousand edges take ten comparisons per row. Infinity, which no number exceeds, pads the edges. After some
        steps `cell` is the part that holds the number, and the next step compares the edge in its middle.
        """
        steps = len(self.edges).bit_length()
        edges = np.append(self.edges, [math.inf] * ((1 << steps) - 1 - len(self.edges)))
        clipped = call("least", call("greatest", "number", double(lower)), double(upper))
        number = f"CASE WHEN NOT {call('isnan', 'number')} THEN {clipped} END"
        query = f"SELECT * REPLACE ({number} AS number), 0 AS cell FROM ({numbers})"
        for step in range(steps):
            first = 1 << (steps - 1 - step)
            listed = call("list_value", *(double(edge) for edge in edges[first - 1 :: 2 * first]))
            above = f"number > {call('list_extract', listed, plus('cell', '1'))}"
            deeper = plus(call("*", "cell", "2"), f"CASE WHEN {above} THEN 1 ELSE 0 END")
            query = f"SELECT * REPLACE ({deeper} AS cell) FROM ({query})"
        cell = f"CASE WHEN number IS NULL THEN {missing} ELSE cell END"
        return f"SELECT * EXCLUDE (number) REPLACE ({cell} AS cell) FROM ({query})"

    def of(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the bins."""
        return np.searchsorted(self.edges, values, side="left").astype(np.int64)


class MagnitudeCells(FormulaCells):
    """The universal cells on a logarithmic scale of `dpsql.kernels.cells.MagnitudeCounts`."""

    def __init__(self) -> None:
        self.edges = fine_edges()[1:-1]

    def sql(self, value: str) -> str:
        """Return the cell as SQL: exponent and leading bits of the fraction form one number."""
        bits = cast(cast(call("abs", value), "BIT"), "BIGINT")
        steps = call("-", call(">>", bits, str(MAGNITUDE_BITS)), str(MAGNITUDE_START))
        steps = call("least", call("greatest", steps, "0"), str(ZERO_FINE))
        return f"CASE WHEN {value} < 0 THEN {call('-', str(ZERO_FINE), steps)} ELSE {plus(str(ZERO_FINE), steps)} END"

    def of(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the cells."""
        return magnitude_cells(values)

    @property
    def count(self) -> int:
        """Number of cells."""
        return FINE_CELLS


@dataclass(frozen=True)
class DerivedKey:
    """A group key that follows from a value: its public cell.

    The cell of a row depends on that row alone, so grouping by it is like grouping by one more column.

    Attributes
    ----------
    cells : ValueCells
    lower, upper : float
        Public bounds that clip values; infinite for none.
    missing : bool
        Whether NULL and NaN have a cell of their own, the last one. Otherwise rows without a value are in no group.
    divides : bool
        Whether each cell is a group of its own, and a privacy unit has a limited number of them. Otherwise the columns
        of `by` determine the group, and cells only divide its rows.
    """

    cells: ValueCells
    lower: float
    upper: float
    missing: bool
    divides: bool

    @property
    def count(self) -> int:
        """Number of cells."""
        return self.cells.count + self.missing

    def query(self, numbers: str) -> str:
        """Return the query that turns the opaque column `number` into `cell`, and drops rows without a cell."""
        missing = str(self.cells.count) if self.missing else "NULL"
        query = self.cells.query(numbers, self.lower, self.upper, missing)
        return query if self.missing else f"SELECT * FROM ({query}) WHERE cell IS NOT NULL"

    def of(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the cells; -1 for a row in no group. NaN stands for NULL."""
        mask = ~np.isnan(values)
        cells = np.full(len(values), self.cells.count if self.missing else -1, dtype=np.int64)
        cells[mask] = self.cells.of(np.clip(values[mask], self.lower, self.upper))
        return cells
