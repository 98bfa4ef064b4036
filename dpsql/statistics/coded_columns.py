"""Count the public cells of every column, and of every pair of columns.

Cell 0 is NULL. A number is in a cell of its column's grid. A string is in the cell of its key, or in a last cell for
all other strings. So a row is in one cell of each column, and in one of each pair: `dpsql.mechanisms.private_tree` has
the sensitivities.

Two more things are counted for a number in a cell of several numbers: its grain (`dpsql.kernels.value_grid`), and its
*slot*. Slots divide the cells further: each listed multiple of a step has a slot, the other values of a cell share one
slot for each bucket, and values beyond private bounds have a slot of their own. So a row has at most one grain and one
slot of each column.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsql.arrays import Doubles, Longs
from dpsql.contract.fold import Batch, Fold, field, numbers, record
from dpsql.dataclass import dataclass
from dpsql.kernels.cells import decimals
from dpsql.kernels.columns import is_boolean, is_numeric, is_text, to_doubles, to_texts
from dpsql.kernels.value_grid import (
    BUCKETS,
    Step,
    ValueGrid,
    grains,
    is_near,
    nearest_multiples,
    steps_of,
)

Pair = tuple[int, int]
# Number of rows to code before counting: counting a few rows costs as much as the tables are long.
_WAITING = 1 << 15
# A column with fewer multiples of its step finds cells and slots by the number of the multiple.
_TABLE = 1 << 17


def number_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type of the numbers that code a column's values; None for a column without numbers.

    A date counts in days and a timestamp in microseconds, since 1970.
    """
    if kind == pa.date32():
        return pa.int32()
    if pa.types.is_timestamp(kind) and kind.tz is None and kind.unit == "us":
        return pa.int64()
    return kind if is_numeric(kind) else None


def is_listed(kind: pa.DataType) -> bool:
    """Return whether values are strings."""
    return is_text(kind) or is_boolean(kind)


def to_numbers(column: pa.Array) -> Doubles:
    """Return the numbers of a column, as integers if they are discrete; NaN for NULL."""
    kind = number_type(column.type)
    if kind is None:
        raise TypeError("the column has no numbers")
    values = to_doubles(column if kind == column.type else column.cast(kind))
    digits = decimals(kind)
    return np.rint(values * 10.0**digits) if digits else values


def hashed(column: pa.Array) -> Doubles:
    """Return a number for each string, equal for equal ones; NaN for NULL."""
    listed = to_texts(column).dictionary_encode()
    words = [hashlib.blake2b((text or "").encode(), digest_size=6).digest() for text in listed.dictionary.to_pylist()]
    numbers_of = np.array([*(int.from_bytes(word) for word in words), np.nan])
    return np.asarray(numbers_of[listed.indices.fill_null(len(words)).to_numpy()], dtype=np.float64)


@dataclass(frozen=True)
class CodedColumn:
    """The cells of one column; public.

    Attributes
    ----------
    name, type : str
        The type in SQL spelling.
    keys : tuple of str, or None
        The strings that have cells; None for numbers, and for strings whose keys are not drawn yet.
    other : bool
        Whether all other strings have a cell.
    grid : ValueGrid or None
        The cells of numbers; None for strings, and for numbers without bounds: they count as NULL.
    digits : int
        Numbers are multiples of ``10**-digits``.
    draws_keys : bool
        Whether the keys are still to be drawn.
    is_drawn : bool
        Whether the bounds of the grid are private; values beyond them are then not requested.
    """

    name: str
    type: str
    keys: tuple[str, ...] | None
    other: bool
    grid: ValueGrid | None
    digits: int
    draws_keys: bool = False
    is_drawn: bool = False

    @property
    def count(self) -> int:
        """Number of cells, including NULL; keys that are not drawn yet have none."""
        listed = 0 if self.keys is None else len(self.keys) + self.other
        return 1 + listed + (0 if self.grid is None else self.grid.count)

    @cached_property
    def wide(self) -> NDArray[np.bool_]:
        """Whether each cell holds several numbers; NULL's does not."""
        wide = np.zeros(self.count, dtype=bool)
        if self.grid is not None:
            wide[1:] = ~self.grid.single
        return wide

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that judge the values in wide cells; none if no cell is wide."""
        return steps_of(self.type) if self.wide.any() else ()

    def numbered(self, column: pa.Array) -> tuple[Doubles, Longs]:
        """Return the numbers of a column with a grid, and their cells."""
        values = to_numbers(column)
        return values, 1 + (self.grid.cells(values) if self.grid is not None else np.full(len(values), -1))

    def cells(self, column: pa.Array) -> Longs:
        """Return the cell of each value."""
        if self.keys is not None:
            texts = to_texts(column)
            result = pc.index_in(texts, value_set=pa.array(self.keys, type=pa.string()))
            cells = 1 + result.fill_null(len(self.keys) if self.other else -1).to_numpy().astype(np.int64)
            return np.where(texts.is_null().to_numpy(zero_copy_only=False), 0, cells)
        if self.grid is None:
            return np.zeros(len(column), dtype=np.int64)
        return self.numbered(column)[1]


@dataclass(frozen=True, eq=False)
class ValueSlots:
    """The slots of one column's numbers; released or public.

    Attributes
    ----------
    column : CodedColumn
        With a grid.
    multipliers, divisors : ndarray of float64
        The step whose multiples each cell of the grid lists.
    first : ndarray of float64
        The number of the first listed multiple.
    counts : ndarray of int64
        Number of listed multiples; 0 for none.
    """

    column: CodedColumn
    multipliers: Doubles
    divisors: Doubles
    first: Doubles
    counts: Longs

    @cached_property
    def starts(self) -> Longs:
        """The slot of the first listed multiple of each cell."""
        return np.cumsum(self.counts) - self.counts

    @cached_property
    def _step(self) -> Step | None:
        """The step, if all listed multiples have the same step."""
        result = {(int(up), int(down)) for up, down in zip(self.multipliers, self.divisors, strict=True)}
        return result.pop() if len(result) == 1 else None

    @property
    def listed(self) -> int:
        """Number of listed multiples, which have the first slots."""
        return int(self.counts.sum())

    @property
    def size(self) -> int:
        """Number of slots: of multiples, of buckets by cell, and of values beyond the bounds."""
        return self.listed + BUCKETS * len(self.counts) + 1

    @cached_property
    def owners(self) -> Longs:
        """The cell of the grid of each listed multiple."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @cached_property
    def multiples(self) -> Doubles:
        """The listed multiples."""
        cells = self.owners
        numbers = self.first[cells] + (np.arange(self.listed) - self.starts[cells])
        result: Doubles = numbers * self.divisors[cells] / self.multipliers[cells]
        return result

    @cached_property
    def _table(self) -> tuple[int, Longs, Longs] | None:
        """The number of the first multiple within the bounds, and the cell and slot of each; None for too many."""
        grid, step = self.column.grid, self._step
        if grid is None or step is None or not self.listed:
            return None
        low, high = (math.floor(end * step[0] / step[1]) for end in (grid.starts[0], grid.upper))
        if high - low >= _TABLE:
            return None
        cells = 1 + grid.cells(np.arange(low, high + 1) * float(step[1]) / step[0])
        slots = np.full(len(cells), -1)
        numbers = self.first[self.owners] + (np.arange(self.listed) - self.starts[self.owners])
        slots[numbers.astype(np.int64) - low] = np.arange(self.listed)
        return low, cells, slots

    def of(self, values: Doubles) -> tuple[Longs, Longs]:
        """Return the cells of the column for values, and the slots of values that have one."""
        grid = self.column.grid
        if grid is None:
            raise TypeError("the column has no numbers")
        if self._table is None or self._step is None:
            cells, slots = 1 + grid.cells(values), np.full(len(values), -1)
            if self.listed:
                at = np.maximum(cells - 1, 0)
                numbers, multiples = nearest_multiples(values, (self.multipliers[at], self.divisors[at]))
                position = numbers - self.first[at]
                listed = np.flatnonzero(
                    is_near(values, multiples, self.column.type) & (position >= 0.0) & (position < self.counts[at])
                )
                slots[listed] = self.starts[at[listed]] + position[listed].astype(np.int64)
        else:
            low, cell_of, slot_of = self._table
            numbers, multiples = nearest_multiples(values, self._step)
            numbers -= low
            near = is_near(values, multiples, self.column.type) & (numbers >= 0.0) & (numbers < len(cell_of))
            number = np.where(near, numbers, 0.0).astype(np.int64)
            cells, slots = cell_of[number], slot_of[number]
            others = np.flatnonzero(~near)
            cells[others], slots[others] = 1 + grid.cells(values[others]), -1
        others = np.flatnonzero((slots < 0) & self.column.wide[cells])
        slots[others] = self.listed + (cells[others] - 1) * BUCKETS + grid.buckets(values[others], cells[others] - 1)
        if self.column.is_drawn:
            slots[(values < grid.starts[0]) | (values > grid.upper)] = self.size - 1
        return cells, slots[slots >= 0]


class ColumnCounts(Fold):
    """The counts of every column's cells, and of each string in columns with private keys.

    Parameters
    ----------
    columns : sequence of CodedColumn
    """

    def __init__(self, columns: Sequence[CodedColumn]) -> None:
        self.columns = tuple(columns)
        self.cell_counts = [np.zeros(column.count, dtype=np.int64) for column in self.columns]
        self.texts: dict[int, dict[str, int]] = {
            position: {} for position, column in enumerate(self.columns) if column.draws_keys
        }
        self.grains = {
            position: np.zeros(1 + len(column.steps), dtype=np.int64)
            for position, column in enumerate(self.columns)
            if column.steps
        }
        self.rows = 0
        self.grows = bool(self.texts)

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Refuse rows of doubles: strings count, too."""
        raise TypeError("this collector takes columns")

    def add_columns(self, columns: Sequence[pa.Array]) -> None:
        """Count a batch of rows, given by column."""
        self.rows += len(columns[0])
        for position, (coded, column) in enumerate(zip(self.columns, columns, strict=True)):
            if position in self.texts:
                texts = to_texts(column)
                self.cell_counts[position][0] += texts.null_count
                self._count(position, pc.value_counts(texts.drop_null()))
            elif position in self.grains:
                values, cells = coded.numbered(column)
                self.cell_counts[position] += np.bincount(cells, minlength=coded.count)
                counts = self.grains[position]
                counts += np.bincount(grains(values[coded.wide[cells]], coded.type), minlength=len(counts))
            else:
                self.cell_counts[position] += np.bincount(coded.cells(column), minlength=coded.count)

    def _count(self, position: int, result: pa.StructArray) -> None:
        counts = self.texts[position]
        for text, count in zip(result.field(0).to_pylist(), result.field(1).to_pylist(), strict=True):
            counts[text] = counts.get(text, 0) + count

    def occurring(self, position: int, *, above: int = 0) -> tuple[list[str], Longs]:
        """Return the strings of a column that occur more than `above` times, sorted, and their counts."""
        texts = sorted(text for text, count in self.texts[position].items() if count > above)
        return texts, np.array([self.texts[position][text] for text in texts], dtype=np.int64)

    def state(self) -> pa.RecordBatch:
        """Return the counts, and the sorted strings of each column."""
        listed = [self.occurring(position) for position in self.texts]
        return record(
            {
                "counts": np.concatenate([*self.cell_counts, [self.rows]]),
                "grains": np.concatenate([np.zeros(0, dtype=np.int64), *self.grains.values()]),
                "names": pa.array([text.encode() for texts, _ in listed for text in texts], type=pa.binary()),
                "found": np.concatenate([np.zeros(0, dtype=np.int64), *(result for _, result in listed)]),
                "lengths": [len(texts) for texts, _ in listed],
            }
        )

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other counts."""
        flat = numbers(state, "counts")
        self.rows += int(flat[-1])
        for arrays, more in ((self.cell_counts, flat[:-1]), (self.grains.values(), numbers(state, "grains"))):
            begin = 0
            for counts in arrays:
                counts += more[begin : begin + len(counts)]
                begin += len(counts)
        texts, result = field(state, "names").cast(pa.string()), field(state, "found")
        start = 0
        for position, length in zip(self.texts, numbers(state, "lengths").tolist(), strict=True):
            part = [column.slice(start, length) for column in (texts, result)]
            self._count(position, pa.StructArray.from_arrays(part, ["text", "count"]))
            start += length


class PairTables(Fold):
    """The counts of every pair of columns, in fine cells that form united cells; and of values in slots.

    Parameters
    ----------
    columns : sequence of CodedColumn
    positions : sequence of ndarray of int64
        The fine cell of each cell of each column; released.
    unions : sequence of ndarray of int64, or None
        The united cell of each fine cell; released. None if they are the same.
    slots : mapping of int to ValueSlots
        By column number; released.
    """

    def __init__(
        self,
        columns: Sequence[CodedColumn],
        positions: Sequence[Longs],
        unions: Sequence[Longs] | None = None,
        slots: Mapping[int, ValueSlots] | None = None,
    ) -> None:
        self.columns, self.positions = tuple(columns), tuple(positions)
        self.sizes = [int(position.max(initial=0)) + 1 for position in self.positions]
        self.unions = [np.arange(size) for size in self.sizes] if unions is None else list(unions)
        self.slots = {} if slots is None else dict(slots)
        self._values = {position: np.zeros(of.size, dtype=np.int64) for position, of in self.slots.items()}
        self._starts: dict[Pair, int] = {}
        length = 0
        for i, j in combinations(range(len(self.columns)), 2):
            self._starts[i, j] = length
            length += self.sizes[i] * self.sizes[j]
        self._counts = np.zeros(length, dtype=np.int64)
        self._waiting: list[list[Longs]] = []
        self._rows, self._united = 0, dict[Pair, Longs]()

    @property
    def size(self) -> int:
        """Bytes of the counts."""
        return self._counts.nbytes + sum(counts.nbytes for counts in self._values.values())

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Refuse rows of doubles."""
        raise TypeError("this collector takes columns")

    def add_columns(self, columns: Sequence[pa.Array]) -> None:
        """Count a batch of rows, given by column."""
        coded = []
        for number, (column, position, array) in enumerate(zip(self.columns, self.positions, columns, strict=True)):
            if number in self.slots:
                cells, slots = self.slots[number].of(to_numbers(array))
                np.add.at(self._values[number], slots, 1)
            else:
                cells = column.cells(array)
            coded.append(position[cells])
        self._waiting.append(coded)
        self._rows += len(columns[0])
        if self._rows >= _WAITING:
            self._settle()

    def _settle(self) -> None:
        """Count the coded rows."""
        if not self._waiting:
            return
        joined = [np.concatenate(parts) for parts in zip(*self._waiting, strict=True)]
        self._waiting, self._rows, self._united = [], 0, {}
        for (i, j), start in self._starts.items():
            length = self.sizes[i] * self.sizes[j]
            both = joined[i] * self.sizes[j] + joined[j]
            self._counts[start : start + length] += np.bincount(both, minlength=length)

    def fine_table(self, pair: Pair) -> Longs:
        """Return the counts of a pair in fine cells, shape (cells of i, cells of j), i below j."""
        self._settle()
        i, j = pair
        start = self._starts[pair]
        return self._counts[start : start + self.sizes[i] * self.sizes[j]].reshape(self.sizes[i], self.sizes[j])

    def table(self, pair: Pair) -> Longs:
        """Return the counts of a pair in united cells, shape (cells of i, cells of j), i below j."""
        fine = self.fine_table(pair)
        if pair not in self._united:
            for axis, union in enumerate(self.unions[position] for position in pair):
                if int(union.max(initial=0)) + 1 < len(union):
                    order = np.argsort(union, kind="stable")
                    starts = np.searchsorted(union[order], np.arange(int(union.max()) + 1))
                    fine = np.add.reduceat(fine.take(order, axis=axis), starts, axis=axis)
            self._united[pair] = fine
        return self._united[pair]

    def values(self, position: int) -> Longs:
        """Return the counts of the slots of a column."""
        return self._values[position]

    def state(self) -> pa.RecordBatch:
        """Return the counts."""
        self._settle()
        return record({"counts": np.concatenate([self._counts, *self._values.values()])})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other counts."""
        flat, start = numbers(state, "counts"), len(self._counts)
        self._united = {}
        self._counts += flat[:start]
        for counts in self._values.values():
            counts += flat[start : start + len(counts)]
            start += len(counts)
