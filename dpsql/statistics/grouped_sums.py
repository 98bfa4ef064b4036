"""Add up every group exactly: rows, values, and their codes, for `dpsql.statistics.aggregates`."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsql.arrays import Longs, struct_rows
from dpsql.contract.fold import Batch, Collector, Fold, KeptRows, field, numbers, record
from dpsql.kernels.fixed_point import WideSums
from dpsql.statistics.aggregates import Sums, Words

# Codes are below 2**21 in absolute value, so sums of this many squares fit into 62 bits.
_MOST_AT_ONCE = 1 << 18
_LOW_BITS = 32  # as of WideSums
_ZERO = np.int64(0)


class GroupedSums(Fold):
    """Sums of groups with known positions.

    Parameters
    ----------
    groups, targets : int
        Numbers of groups and of targets.
    squares : bool
        Whether squares are added up.

    Attributes
    ----------
    rows : ndarray of int64, shape (G,)
        Rows of each group.
    values, totals : ndarray of int64, shape (T, G)
        Rows with a value, and the sum of its codes.
    squares : WideSums or None
        Sums of the squared codes, of the same shape.
    """

    def __init__(self, groups: int, targets: int, *, squares: bool) -> None:
        self.rows = np.zeros(groups, dtype=np.int64)
        self.values = np.zeros((targets, groups), dtype=np.int64)
        self.totals = np.zeros((targets, groups), dtype=np.int64)
        self.squares = WideSums((targets, groups)) if squares else None

    @property
    def size(self) -> int:
        """Bytes of a copy."""
        return int(self.rows.nbytes + 4 * self.values.nbytes)

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Add rows of the first group; their codes are the features, NaN for NULL."""
        self.rows[0] += features.shape[1]
        for position, codes in enumerate(features):
            integers = codes[~np.isnan(codes)].astype(np.int64)
            self.values[position, 0] += len(integers)
            self.totals[position, 0] += integers.sum()
            if self.squares is not None:
                for start in range(0, len(integers), _MOST_AT_ONCE):
                    part = np.zeros_like(self.totals)
                    part[position, 0] = np.square(integers[start : start + _MOST_AT_ONCE]).sum()
                    self.squares.add(part)

    def add_counts(self, counts: Longs) -> None:
        """Add numbers of rows, shape (G,), of groups without targets."""
        self.rows += counts

    def add_groups(self, groups: NDArray[np.intp], sums: GroupRecords) -> None:
        """Add the sums of some groups, at their positions; a position may occur more than once."""
        np.add.at(self.rows, groups, sums.rows)
        for position in range(len(self.values)):
            np.add.at(self.values[position], groups, sums.values[position])
            np.add.at(self.totals[position], groups, sums.totals[position])
        if self.squares is not None:
            self.squares.add_at(groups, sums.high, sums.low)

    def state(self) -> pa.RecordBatch:
        """Return the sums."""
        columns: dict[str, NDArray[np.int64] | pa.Array] = {
            "rows": self.rows,
            "values": self.values.ravel(),
            "totals": self.totals.ravel(),
        }
        if self.squares is not None:
            columns["squares"] = self.squares.column()
        return record(columns)

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other sums."""
        self.rows += numbers(state, "rows")
        self.values += numbers(state, "values").reshape(self.values.shape)
        self.totals += numbers(state, "totals").reshape(self.totals.shape)
        if self.squares is not None:
            self.squares.absorb(state.column("squares").flatten())

    def sums(self) -> list[Sums]:
        """Return the sums by target, after sums of all rows."""
        squares = None if self.squares is None else (self.squares.high, self.squares.low)
        return _sums(self.rows, self.values, self.totals, squares)


def _sums(rows: Longs, values: Longs, totals: Longs, squares: tuple[Longs, Longs] | None) -> list[Sums]:
    """Return the sums of all rows, then of each target; squares are ``high * 2**32 + low``."""
    sums = [Sums(rows, np.zeros_like(rows), None)]
    for position in range(len(values)):
        words = None if squares is None else Words(squares[0][position], squares[1][position], _LOW_BITS)
        sums.append(Sums(values[position], totals[position], words))
    return sums


class GroupRecords:
    """The sums of some groups from an engine.

    Attributes
    ----------
    units, rows : ndarray of int64, shape (k,)
    values, totals, high, low : ndarray of int64, shape (T, k)
        A squared sum is ``high * 2**32 + low``.

    Numbers that the engine did not return are 0, without memory.
    """

    def __init__(self, units: Longs, rows: Longs, values: Longs, totals: Longs, high: Longs, low: Longs) -> None:
        self.units, self.rows, self.values, self.totals, self.high, self.low = units, rows, values, totals, high, low

    @classmethod
    def read(cls, rows: pa.StructArray, targets: int) -> GroupRecords:
        """Read the records of a batch: fields units, n, and n0, s0, high0, low0 and so on of each target."""
        count = len(rows)

        def stacked(name: str) -> Longs:
            if all(rows.type.get_field_index(f"{name}{target}") < 0 for target in range(targets)):
                return np.broadcast_to(_ZERO, (targets, count))
            return np.stack([_column(rows, f"{name}{target}", count) for target in range(targets)])

        return cls(
            *(_column(rows, name, count) for name in ("units", "n")),
            *(stacked(name) for name in ("n", "s", "high", "low")),
        )


def _column(rows: pa.StructArray, name: str, count: int) -> Longs:
    if rows.type.get_field_index(name) < 0:
        return np.broadcast_to(_ZERO, count)
    # A copy: a view would keep the whole batch in memory.
    return np.array(rows.field(name).fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)


class KeyedSums(Collector):
    """Sums of groups whose keys are private."""

    def __init__(self, targets: int) -> None:
        self._targets = targets

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Refuse rows: keys are of tables; SQL adds up groups."""
        raise TypeError("this collector takes groups")

    def sums(self) -> list[Sums]:
        """Return the sums of each target by key, after sums of units and of all rows.

        The order of the keys does not depend on the sums.
        """
        records = self._records()
        units = Sums(records.units, np.zeros_like(records.units))
        return [units, *_sums(records.rows, records.values, records.totals, (records.high, records.low))]

    @abstractmethod
    def _records(self) -> GroupRecords:
        """Return the sums of every key."""


class NumberedSums(KeyedSums, KeptRows):
    """Sums of groups that one statement has numbered from 1; their keys stay in the engine."""

    def __init__(self, targets: int) -> None:
        super().__init__(targets)
        self._numbers: list[Longs] = []
        self._parts: list[GroupRecords] = []

    def add_groups(self, keys: Longs, sums: GroupRecords) -> None:
        """Add the sums of some keys."""
        self._numbers.append(keys.copy())
        self._parts.append(sums)

    def merge(self, other: NumberedSums) -> None:
        """Add another collector's sums."""
        self._numbers += other._numbers
        self._parts += other._parts

    def _records(self) -> GroupRecords:
        """Return the sums of every key, in the order of their numbers."""
        count = sum(map(len, self._numbers))

        def joined(name: str, *shape: int) -> Longs:
            array = np.zeros((*shape, count), dtype=np.int64)
            for keys, part in zip(self._numbers, self._parts, strict=True):
                values = getattr(part, name)
                if values.strides[-1]:  # anything but zeros for missing numbers
                    array[..., keys - 1] = values
            return array

        columns = (joined(name, self._targets) for name in ("values", "totals", "high", "low"))
        return GroupRecords(joined("units"), joined("rows"), *columns)


class NamedSums(KeyedSums, Fold):
    """Sums of groups by key, for parts of the rows without a common numbering.

    The sums of all parts of a key are added up, so a key has the same integers as from one statement over all rows, and
    the sensitivity is the same. This holds for numbers of units because all rows of a unit are in one part. Keys are
    sorted: a state does not depend on the order or the division of the rows.

    Parameters
    ----------
    targets : int
    columns : int
        Columns of a key: fields k0_number, k0_data and so on, see `dpsql.engines.duckdb.keys.key_parts`.
    """

    grows = True

    def __init__(self, targets: int, columns: int) -> None:
        super().__init__(targets)
        self._names = [name for column in range(columns) for name in (f"k{column}_number", f"k{column}_data")]
        self._parts: list[pa.Table] = []

    def add_groups(self, groups: pa.StructArray) -> None:
        """Add the sums of some keys: the fields of a key and of `GroupRecords.read`."""
        self._parts.append(pa.table(pa.RecordBatch.from_struct_array(groups)))

    def state(self) -> pa.RecordBatch:
        """Return the sorted keys, and their sums; nothing if there are none."""
        groups = self._merged()
        return record({name: groups.column(name).combine_chunks() for name in groups.column_names})

    def absorb(self, state: pa.RecordBatch) -> None:
        """Add other sums."""
        if state.num_columns:
            self._parts.append(pa.table({name: field(state, name) for name in state.schema.names}))

    def _records(self) -> GroupRecords:
        """Return the sums of every key, in the order of the keys."""
        return GroupRecords.read(struct_rows(self._merged()), self._targets)

    def keys(self, positions: NDArray[np.intp]) -> pa.Table:
        """Return some of the keys, by position in that order."""
        merged = self._merged()
        return merged.select([name for name in self._names if name in merged.column_names]).take(pa.array(positions))

    def _merged(self) -> pa.Table:
        """Return every key once, in order; a squared sum is ``high * 2**32 + low`` again."""
        if not self._parts:
            return pa.table({})
        groups = pa.concat_tables(self._parts)
        names = [name for name in groups.column_names if name not in self._names]
        groups = groups.group_by(self._names, use_threads=False).aggregate([(name, "sum") for name in names])
        groups = groups.rename_columns([*self._names, *names])
        for target in range(self._targets):
            if f"low{target}" in names:
                high, low = groups.column(f"high{target}"), groups.column(f"low{target}")
                carried = pc.add(high, pc.shift_right(low, _LOW_BITS))
                groups = groups.set_column(groups.column_names.index(f"high{target}"), f"high{target}", carried)
                remainder = pc.bit_wise_and(low, (1 << _LOW_BITS) - 1)
                groups = groups.set_column(groups.column_names.index(f"low{target}"), f"low{target}", remainder)
        self._parts = [groups.sort_by([(name, "ascending") for name in self._names])]
        return self._parts[0]


class Labels(KeptRows):
    """The labels of released keys.

    Parameters
    ----------
    numbers : ndarray of int64
        The numbers of the released keys, ascending.
    keys : pyarrow.Table, optional
        The keys (`NamedSums.keys`), if no statement has them by number.

    Attributes
    ----------
    entries : dict
        Rank in the order of the keys' own type, and labels, of every key by its number.
    """

    def __init__(self, numbers: Longs, keys: pa.Table | None = None) -> None:
        self.numbers, self.keys = numbers, keys
        self.entries: dict[int, tuple[int, tuple[str | None, ...]]] = {}

    def add(self, target: NDArray[np.float64], features: NDArray[np.float64], batch: Batch) -> None:
        """Refuse rows: labels are of groups."""
        raise TypeError("this collector takes labels")

    def add_labels(self, rows: pa.StructArray, columns: int) -> None:
        """Add the labels of a batch of keys: fields j, rank, label0 and so on."""
        labels = zip(*(rows.field(f"label{column}").to_pylist() for column in range(columns)), strict=True)
        ranked = zip(rows.field("rank").to_pylist(), labels, strict=True)
        self.entries.update(zip(rows.field("j").to_pylist(), ranked, strict=True))

    def merge(self, other: Labels) -> None:
        """Add other labels."""
        self.entries |= other.entries

    def in_order(self, columns: int) -> tuple[NDArray[np.intp], list[list[str | None]]]:
        """Return the released keys in the order of their type: positions in `numbers`, and labels by column."""
        entries = [self.entries[number] for number in self.numbers.tolist()]
        order = np.argsort(np.array([rank for rank, _ in entries], dtype=np.int64), kind="stable")
        return order, [[entries[index][1][column] for index in order.tolist()] for column in range(columns)]
