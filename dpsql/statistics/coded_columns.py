"""Columns whose values are in public cells: the counts of every column's cells, and of those of every pair of columns.

Cell 0 is NULL. A number is in a cell of its column's grid, a text in the cell of its key, or in a last one for all
other texts. So a row is in one cell of each column, and in one of each pair: `dpsql.mechanisms.private_tree` has the
sensitivities.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsql.arrays import Doubles, Longs
from dpsql.contract.fold import Batch, Fold, field, numbers, record
from dpsql.kernels.columns import is_boolean, is_numeric, is_text, to_doubles, to_texts
from dpsql.kernels.typed_cells import decimals
from dpsql.kernels.value_grid import ValueGrid

Pair = tuple[int, int]


def number_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type of the numbers that stand for a column's values; None for a column that has none.

    A date counts in days and a timestamp in microseconds, since 1970.
    """
    if kind == pa.date32():
        return pa.int32()
    if pa.types.is_timestamp(kind) and kind.tz is None and kind.unit == "us":
        return pa.int64()
    return kind if is_numeric(kind) else None


def is_listed(kind: pa.DataType) -> bool:
    """Whether a column's values are texts."""
    return is_text(kind) or is_boolean(kind)


def to_numbers(column: pa.Array) -> Doubles:
    """Return the numbers of a column, as integers where they are discrete; NaN for NULL."""
    kind = number_type(column.type)
    if kind is None:
        raise TypeError("the column has no numbers")
    values = to_doubles(column if kind == column.type else column.cast(kind))
    digits = decimals(kind)
    return np.rint(values * 10.0**digits) if digits else values


def hashed(column: pa.Array) -> Doubles:
    """Return a number for each text, the same for equal ones; NaN for NULL."""
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
        The type as SQL spells it.
    keys : tuple of str, or None
        The texts that have cells; None for numbers, and for texts whose keys are not drawn yet.
    other : bool
        Whether all other texts have a cell, too.
    grid : ValueGrid or None
        The cells of numbers; None for texts, and for numbers without bounds: they count as NULL.
    digits : int
        Numbers are multiples of ``10**-digits``.
    draws_keys : bool
        Whether the keys are still to be drawn.
    """

    name: str
    type: str
    keys: tuple[str, ...] | None
    other: bool
    grid: ValueGrid | None
    digits: int
    draws_keys: bool = False

    @property
    def count(self) -> int:
        """Number of cells, that of NULL included; of keys that are not drawn yet none."""
        listed = 0 if self.keys is None else len(self.keys) + self.other
        return 1 + listed + (0 if self.grid is None else self.grid.count)

    def cells(self, column: pa.Array) -> Longs:
        """Return the cell of each value."""
        if self.keys is not None:
            texts = to_texts(column)
            found = pc.index_in(texts, value_set=pa.array(self.keys, type=pa.string()))
            places = 1 + found.fill_null(len(self.keys) if self.other else -1).to_numpy().astype(np.int64)
            return np.where(texts.is_null().to_numpy(zero_copy_only=False), 0, places)
        if self.grid is None:
            return np.zeros(len(column), dtype=np.int64)
        return 1 + self.grid.cells(to_numbers(column))


class ColumnCounts(Fold):
    """The counts of every column's cells, and how often each text occurs in the columns whose keys are drawn.

    Parameters
    ----------
    columns : sequence of CodedColumn
    """

    def __init__(self, columns: Sequence[CodedColumn]) -> None:
        self.columns = tuple(columns)
        self.cell_counts = [np.zeros(column.count, dtype=np.int64) for column in self.columns]
        self.texts: dict[int, dict[str, int]] = {
            place: {} for place, column in enumerate(self.columns) if column.draws_keys
        }
        self.rows = 0
        self.grows = bool(self.texts)

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Refuse rows of doubles: texts are counted, too."""
        raise TypeError("this collector takes columns")

    def add_columns(self, columns: Sequence[pa.Array]) -> None:
        """Count a batch of rows, given by column."""
        self.rows += len(columns[0])
        for place, (coded, column) in enumerate(zip(self.columns, columns, strict=True)):
            if place in self.texts:
                texts = to_texts(column)
                self.cell_counts[place][0] += texts.null_count
                self._count(place, pc.value_counts(texts.drop_null()))
            else:
                self.cell_counts[place] += np.bincount(coded.cells(column), minlength=coded.count)

    def _count(self, place: int, found: pa.StructArray) -> None:
        known = self.texts[place]
        for text, count in zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True):
            known[text] = known.get(text, 0) + count

    def occurring(self, place: int, *, above: int = 0) -> tuple[list[str], Longs]:
        """Return the texts of a column that occur more often than so, in their order, and how often each does."""
        texts = sorted(text for text, count in self.texts[place].items() if count > above)
        return texts, np.array([self.texts[place][text] for text in texts], dtype=np.int64)

    def state(self) -> pa.RecordBatch:
        """Return the counts, and the texts of each column in their order."""
        listed = [self.occurring(place) for place in self.texts]
        return record(
            {
                "counts": np.concatenate([*self.cell_counts, [self.rows]]),
                "names": pa.array([text.encode() for texts, _ in listed for text in texts], type=pa.binary()),
                "found": np.concatenate([np.zeros(0, dtype=np.int64), *(found for _, found in listed)]),
                "lengths": [len(texts) for texts, _ in listed],
            }
        )

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other counts."""
        flat = numbers(state, "counts")
        self.rows += int(flat[-1])
        parts = np.split(flat[:-1], np.cumsum([len(counts) for counts in self.cell_counts])[:-1])
        for counts, more in zip(self.cell_counts, parts, strict=True):
            counts += more
        texts, found = field(state, "names").cast(pa.string()), field(state, "found")
        start = 0
        for place, length in zip(self.texts, numbers(state, "lengths").tolist(), strict=True):
            part = [column.slice(start, length) for column in (texts, found)]
            self._count(place, pa.StructArray.from_arrays(part, ["text", "count"]))
            start += length


class PairTables(Fold):
    """The counts of every pair of columns, in united cells.

    Parameters
    ----------
    columns : sequence of CodedColumn
    places : sequence of ndarray of int64
        The united cell of each cell of each column; released.
    """

    def __init__(self, columns: Sequence[CodedColumn], places: Sequence[Longs]) -> None:
        self.columns, self.places = tuple(columns), tuple(places)
        self.sizes = [int(place.max(initial=0)) + 1 for place in self.places]
        self._starts: dict[Pair, int] = {}
        length = 0
        for i, j in combinations(range(len(self.columns)), 2):
            self._starts[i, j] = length
            length += self.sizes[i] * self.sizes[j]
        self._counts = np.zeros(length, dtype=np.int64)

    @property
    def size(self) -> int:
        """Bytes of the counts."""
        return self._counts.nbytes

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Refuse rows of doubles."""
        raise TypeError("this collector takes columns")

    def add_columns(self, columns: Sequence[pa.Array]) -> None:
        """Count a batch of rows, given by column."""
        united = [
            place[coded.cells(column)] for coded, place, column in zip(self.columns, self.places, columns, strict=True)
        ]
        for (i, j), start in self._starts.items():
            length = self.sizes[i] * self.sizes[j]
            both = united[i] * self.sizes[j] + united[j]
            self._counts[start : start + length] += np.bincount(both, minlength=length)

    def table(self, pair: Pair) -> Longs:
        """Return the counts of a pair, shape (cells of i, cells of j), i below j."""
        i, j = pair
        start = self._starts[pair]
        return self._counts[start : start + self.sizes[i] * self.sizes[j]].reshape(self.sizes[i], self.sizes[j])

    def state(self) -> pa.RecordBatch:
        """Return the counts."""
        return record({"counts": self._counts})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other counts."""
        self._counts += numbers(state, "counts")
