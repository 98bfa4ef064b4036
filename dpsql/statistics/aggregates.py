"""Define blocks of grouped sums, for estimating counts, sums, means and variances, and add up every group exactly.

A value x of a column with bounds [l, u] becomes an integer q in [-S, S], ``S = 2**20`` (`dpsql.kernels.fixed_point`). A
row whose value is NULL or NaN adds nothing. The engine adds up 1, q and ``q**2`` in every group; a *block* maps these
exact sums to the integers that get noise. The map is linear, so one row adds a fixed vector f(q) to its group's block:

=================  ==============================  ======  ==========  ======  =========  =========
block              f(q)                            L1      squared L2  D1      D2         c
=================  ==============================  ======  ==========  ======  =========  =========
`GroupCount`       (1)                             1       1           0       0          0
`DirectSum`        (q), q between -N and P         S       S**2        S + R   (S + R)^2  S R
`CentredSum`       (q)                             S       S**2        2 S     4 S**2     S**2
`TransformedPair`  (S + q, S - q)                  2 S     4 S**2      4 S     8 S**2     0
`Bernstein`        ((S - q)**2, (S + q)**2,        4 S**2  16 S**4     8 S**2  32 S**4    0
                   2 (S - q) (S + q))
`CentredPair`      (S, q)                          2 S     2 S**2      2 S     4 S**2     0
`Chebyshev`        (S**2, S q, 2 q**2 - S**2)      3 S**2  3 S**4      25/8    5.15 S**4  S**4 / 8
=================  ==============================  ======  ==========  ======  =========  =========

L1 and squared L2 bound the norms of f(q), D1 the L1 norm of ``f(q) - f(q')`` (for `Chebyshev` times ``S**2``), D2 its
squared L2 norm, and c the negative product ``-<f(q), f(q')>``. `dpsql.contract.relation` derives from them how far a
privacy unit moves all groups together.

`DirectSum` knows the codes of its bounds: with ``N = max(0, -l)`` and ``P = max(0, u)`` in codes the larger one is S,
and R is the smaller one. A row's code is between -N and P, and so is the 0 of a row without a value. So two rows differ
by at most ``S + R``, which is less than 2 S if the bounds are not symmetric; without groups a replaced row moves the
sum by ``S + R`` in all, against another row or against none.

Proof of the bounds: `TransformedPair` and `Bernstein` have coordinates that are not negative and whose sum does not
depend on q: 2 S and 4 S**2. So this sum is their L1 norm, and the squared L2 norm and D2 are largest at the corners of
that simplex. The norms of `CentredPair` are largest at ``q = S`` or ``q = -S``. With ``z = q / S`` the norm of
`Chebyshev` is ``1 + z**2 + (2 z**2 - 1)**2 <= 3``; with u the difference and v the sum of z and z', ``abs(u) + abs(v)
<= 2`` gives ``D1 <= u (1 + 2 (2 - u)) <= 25/8``, reached at ``z = 1, z' = -1/4``, and ``D2 <= u**2 (1 + 4 (2 - u)**2)
<= 5.1447``, with the maximum at ``u = (6 - sqrt(2)) / 4``; and with ``z = cos a`` and ``z' = cos b`` the product is ``1
+ (h(a + b) + h(a - b)) / 2``, where ``h(t) = cos t + cos 2 t >= -9/8``. The bounds of a row hold for any q in [-S, S],
whatever the bounds of the column are. A row without a value adds the zero vector, which every bound covers.

All coordinates of a block get noise of one scale. `TransformedPair` gives the sum of data in [0, u] the noise that it
has alone, and the count for free; `Bernstein` does the same for the second moment (Kulesza, Suresh and Wang 2023).
Normal noise has no use for corners: centred sums are best for it. Under 'replace' without groups centred sums are best
for Laplace noise, too: two rows at different corners differ by 4 S, their centred sums by 2 S.
`dpsql.mechanisms.aggregates.log_errors` compares the blocks.

`DisjointCounts` counts rows by conditions of which at most one holds for a row. A row adds 1 to one of k cells, or
nothing: its vector is 0 or a unit vector. So its L1 norm and its squared L2 norm are 1 at most, whatever k is; two rows
in different cells differ by 2 in both, D1 and D2, and the product of two rows' vectors is never negative, c = 0. One
row moves one count. If rows could enter several counts together, k counts would move by k. The statement that counts
ensures that a row enters one cell: it gives a row the first cell whose condition holds
(`dpsql.engines.duckdb.steps.rows`). So the bounds hold whatever rows and conditions are. If conditions overlap, the
counts differ from the request; the sensitivity is the same.

`UnitedGroups` are unions of finer groups: the place of each finer group, and the sums of the unions.

`left_out_blocks` count what a row limit per privacy unit drops: units, rows, and the sum of their values. Let a unit
have e rows beyond its limits, of which e_t have a value of target t, with codes q in [-S, S] that add up to T. The unit
adds to the statistic, over all groups together::

    units    1 if e > 0, else 0
    rows     min(e, m)                                    without targets
    target   n = min(e_t, m) rows with a value, whose codes add up to trunc(T n / e_t)

where m is the largest number of a unit's rows that count in all groups, `dpsql.contract.relation.Contribution.rows`. So
a unit's part is cut to m rows, in proportion to its dropped rows.

The integer ``trunc(T n / e_t)`` is between n times the least and n times the largest code of a row, because its real
number is, and both ends are integers. So n rows with codes exist that have these sums, and a unit moves a block as n <=
m rows in one group do: by `Block.norm` of ``Contribution(neighbours, m, 1, m, keys=1)``. It moves the number of units
by 1, under replace too: both units count 0 or 1.

Without the cut no bound holds: a unit with 1,000 rows would move the number of dropped rows by 1,000 - m. For the same
reason **no number released here bounds the dropped rows from above**: one person with a million rows adds m, as one
with 2 m rows does, and their presence must not show. The release gives, up to noise, a lower bound of the dropped rows.

`SharedCount` has one count w n, and the sums of t targets, whose NULL values count as the middle of the bounds, q = 0.
In units of S its row has the norm ``w + t``, squared ``w**2 + t``, ``D1 = 2 t``, ``D2 = 4 t`` and ``c = max(0, t -
w**2)``: every sum moves by at most S, and two rows count the same. Pairs of a count and a sum for each target, with a
t-th of the loss, have noise of deviation ``2 t / epsilon`` or ``sqrt(2 t) / mu`` in a sum of z; here it is ``sqrt(2) (w
+ t) / epsilon`` or ``sqrt(w**2 + t) / mu``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsql.arrays import Doubles, Integers, Longs, struct_rows, to_numbers
from dpsql.contract.fold import Batch, Collector, Fold, KeptRows, field, numbers, record
from dpsql.contract.relation import Contribution
from dpsql.dataclass import dataclass
from dpsql.errors import InternalError, ParameterError
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, WideSums, affine_map, quantise

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
    numbers = rows.field(name)
    return np.array(to_numbers(numbers.fill_null(0) if numbers.null_count else numbers), dtype=np.int64)


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


LAPLACE, GAUSSIAN = NOISES = ("laplace", "gaussian")
# Joint law of noise in several coordinates (`dpsql.mechanisms.aggregates`).
CUBE = "cube"
COUNT, SUM, AVG, VARIANCE, STDDEV = "count", "sum", "avg", "variance", "stddev"
# Powers of values whose sums an aggregate needs, besides the number of rows.
POWERS = {COUNT: 0, SUM: 1, AVG: 1, VARIANCE: 2, STDDEV: 2}
AGGREGATES = tuple(POWERS)


@dataclass(frozen=True, eq=False)
class Words:
    """Exact integers ``high * 2**bits + low``, in 64 bits each.

    Attributes
    ----------
    high : ndarray of int64
    low : ndarray of int64, or 0
        In ``[0, 2**bits)``; 0 means zeros.
    bits : int
        Of the low word, >= 0.
    """

    high: Longs
    low: Longs | int = 0
    bits: int = 0

    @classmethod
    def of(cls, high: Longs, low: Longs, bits: int) -> Self:
        """Return the words of ``high * 2**bits + low``, for any low word."""
        return cls(high + (low >> bits), low & ((1 << bits) - 1), bits)

    def at(self, rows: list[int]) -> Words:
        """Return the words of rows."""
        return Words(self.high[rows], self.low[rows] if isinstance(self.low, np.ndarray) else 0, self.bits)

    def take(self, positions: NDArray[np.intp]) -> Words:
        """Return some words, along the last axis."""
        low = self.low[..., positions] if isinstance(self.low, np.ndarray) else self.low
        return Words(self.high[..., positions], low, self.bits)

    @classmethod
    def joined(cls, parts: Sequence[Words]) -> Self:
        """Return several words as one, along the last axis; all have the same number of bits."""
        shapes = [np.broadcast_to(part.low, part.high.shape) for part in parts]
        high = np.concatenate([part.high for part in parts], axis=-1)
        return cls(high, np.concatenate(shapes, axis=-1) if parts[0].bits else 0, parts[0].bits)

    def integers(self) -> Integers:
        """Return the integers: int64 if there is no low word, else Python ints."""
        if not self.bits:
            return self.high
        integers: Integers = (self.high.astype(object) << self.bits) + self.low
        return integers

    def doubles(self) -> Doubles:
        """Return the integers, rounded."""
        doubles: Doubles = self.high.astype(np.float64) * 2.0**self.bits + self.low
        return doubles


@dataclass(frozen=True, eq=False)
class Sums:
    """The exact sums of one target in every group, over its rows with a value.

    Attributes
    ----------
    n : ndarray of int64, shape (G,)
        Rows with a value.
    s1 : ndarray of int64, shape (G,)
        Sum of q. Zeros, or anything, if the block only counts. For `SharedCount` a row per target, shape (t, G).
    s2 : ndarray of int64 or of Python ints, shape (G,), or Words, or None
        Sum of ``q**2``, if the block needs squares. Arrow decimals, DuckDB's form of HUGEINT, are fastest as
        ``Words(*wide_parts(column), 32)`` (`dpsql.kernels.fixed_point`).
    """

    n: Longs
    s1: Longs
    s2: Integers | Words | None = None

    def take(self, positions: NDArray[np.intp]) -> Sums:
        """Return the sums of some groups."""
        squares = self.s2
        if squares is not None:
            squares = squares.take(positions) if isinstance(squares, Words) else squares[positions]
        return Sums(self.n[positions], self.s1[..., positions], squares)


class RowBounds(NamedTuple):
    """Bounds on one row's vector in a block, in units where S is 1: a line of the module's table.

    Attributes
    ----------
    l1, squared, l1_distance, distance, opposing : int or Fraction
        Bounds on L1 norm, on squared L2 norm, on D1, on D2, and on c.
    """

    l1: int | Fraction
    squared: int | Fraction
    l1_distance: int | Fraction
    distance: int | Fraction
    opposing: int | Fraction = 0


@dataclass(frozen=True)
class Block(ABC):
    """A vector of integers per group, linear in the exact sums of one target.

    Attributes
    ----------
    kind : str
        Name of the block.
    form : tuple of tuple of int
        A row per coordinate: its weights of n, s1 and s2, as many as it needs; all have the unit S to the degree.
    moments : tuple of tuple of float
        Weights, one per coordinate, of the moments in units of `unit`: the number of rows, the sum of z, and the sum of
        ``z**2``, if the block has them; ``z = q / S``. The number's weights are equal if they are not 0.
    corners : int
        `unit` is this many times S to the `degree`.
    row : RowBounds
    """

    kind: ClassVar[str]
    form: ClassVar[tuple[tuple[int, ...], ...]]
    moments: ClassVar[tuple[tuple[float, ...], ...]]
    corners: ClassVar[int] = 1
    row: ClassVar[RowBounds]

    @property
    @abstractmethod
    def denominator(self) -> int:
        """S, or 1 if no values are coded."""

    @property
    def targets(self) -> Sequence[Block]:
        """The blocks of its targets: itself, if it has one."""
        return (self,)

    def places_of(self, target: int) -> list[int]:
        """Return the coordinates of one of its targets."""
        return [*range(self.size)]

    @property
    def size(self) -> int:
        """Coordinates per group."""
        return len(self.form)

    @property
    def degree(self) -> int:
        """The coordinates are polynomials of this degree in S and q."""
        return len(self.form[0]) - 1

    @property
    def needs_squares(self) -> bool:
        """Whether the engine must add up ``q**2``."""
        return self.degree == 2

    @property
    def count_of(self) -> tuple[int, ...]:
        """The coordinates whose sum is `unit` times the number of rows; empty if there are none."""
        return tuple(position for position, weight in enumerate(self.moments[0]) if weight)

    @property
    def unit(self) -> int:
        """The value of 1 in released coordinates."""
        return self.corners * math.prod([self.denominator] * self.degree)

    def words(self, sums: Sums) -> Words:
        """Return the block's integers, shape (size, G)."""
        form, parts = np.array(self.form), [self.denominator * sums.n, sums.s1]
        if not self.needs_squares:
            return Words(form @ np.stack(parts[: self.degree + 1]))
        # In units of S, like the others, and the remainder.
        squares, low, bits = _squares(sums, self.denominator)
        return Words.of(form @ np.stack([*parts, squares]), form[:, 2:] * low, bits)

    def coordinates(self, sums: Sums) -> Integers:
        """Return the block's integers, shape (size, G): int64, or Python ints if the block needs squares."""
        return self.words(sums).integers()

    def moved(self, contribution: Contribution) -> int:
        """Return how many coordinates differ between neighbouring tables."""
        return self.size * contribution.changed_groups

    def norm(self, contribution: Contribution) -> int:
        """Return the L1 sensitivity of the block in all groups together."""
        factor = math.prod([self.denominator] * self.degree)
        return math.ceil(
            contribution.norm(Fraction(self.row.l1) * factor, distance=Fraction(self.row.l1_distance) * factor)
        )

    def squared_norm(self, contribution: Contribution) -> int:
        """Return the squared L2 sensitivity of the block in all groups together, rounded up."""
        factor = math.prod([self.denominator] * (2 * self.degree))
        bounds = self.row.squared, self.row.distance, self.row.opposing
        squared, distance, opposing = (Fraction(bound) * factor for bound in bounds)
        return math.ceil(contribution.squared_norm(squared, distance=distance, opposing=opposing))


@dataclass(frozen=True)
class GroupCount(Block):
    """The number of rows: all rows, or rows with a value."""

    kind = "group_count"
    form = ((1,),)
    moments = ((1,),)
    row = RowBounds(1, 1, 0, 0)

    @property
    def denominator(self) -> int:
        """A row counts 1."""
        return 1


@dataclass(frozen=True)
class UnitCount(GroupCount):
    """The number of privacy units in each group: a unit adds 1 to a group, however many rows it has there."""

    kind = "unit_count"

    def norm(self, contribution: Contribution) -> int:
        """Return the L1 sensitivity."""
        return super().norm(_of_units(contribution))

    def squared_norm(self, contribution: Contribution) -> int:
        """Return the squared L2 sensitivity."""
        return super().squared_norm(_of_units(contribution))


@dataclass(frozen=True)
class WeightedUnits(GroupCount):
    """The privacy units of each group: a unit in k groups adds `UNIT_WEIGHTS` [k] to each of them.

    In units of ``2**12`` the weight is ``1 / sqrt(k)``, rounded down. So a unit's weights have an L2 norm of at most 1
    for any k, where ones have ``sqrt(k)``. A unit chooses its own weight, whatever other units do.
    """

    kind = "weighted_units"
    corners = 1 << 12

    def norm(self, contribution: Contribution) -> int:
        """Return the L1 sensitivity: k weights are at most the square root of ``k * 2**24``."""
        units = _of_units(contribution)
        return units.relation.changes * (math.isqrt(units.groups * self.corners**2) + 1)

    def squared_norm(self, contribution: Contribution) -> int:
        """Return the squared L2 sensitivity."""
        return contribution.relation.changes * self.corners**2


# The weight of a unit by the number of its groups, from 0.
UNIT_WEIGHTS = (0, *(math.isqrt(WeightedUnits.corners**2 // groups) for groups in range(1, 1025)))


def _of_units(contribution: Contribution) -> Contribution:
    """Return the contribution of a unit that has one row in each of its groups."""
    return Contribution(contribution.neighbours, contribution.groups, contribution.groups, 1, contribution.keys)


@dataclass(frozen=True)
class ValueBlock(Block):
    """A block over the coded values of a column.

    Attributes
    ----------
    lower, upper : float
        Public bounds of the column.
    denominator : int
        S. Tests use other powers of two than `dpsql.kernels.fixed_point`.
    """

    lower: float
    upper: float
    denominator: int = FIXED_POINT_ONE

    @property
    def affine(self) -> tuple[float, float]:
        """The map (middle, scale) from values to codes, before clipping and rounding."""
        return affine_map(self.lower, self.upper)

    @property
    def middle_and_half(self) -> tuple[float, float]:
        """The value at z = 0, and its distance to z = 1."""
        middle, scale = self.affine
        return middle, FIXED_POINT_ONE / scale

    @property
    def limits(self) -> tuple[int, int]:
        """The codes of the bounds. Codes are clipped to them."""
        return -FIXED_POINT_ONE, FIXED_POINT_ONE


class DirectSum(ValueBlock):
    """The sum of values, coded from zero: ``q = floor(clip(x, l, u) S / M + 1/2)`` with ``M = max(abs(l), abs(u))``.

    The engine adds up these codes, by this block's own `affine`, and clips them to `limits`, for the sensitivity.
    """

    kind = "direct_sum"
    form = ((0, 1),)
    moments = ((0,), (1,))

    @property
    def row(self) -> RowBounds:  # type: ignore[override]
        """Bounds on both sides of 0: S on one and at most R on the other."""
        low, high = self.limits
        other = Fraction(min(max(0, -low), max(0, high)), FIXED_POINT_ONE)
        return RowBounds(1, 1, 1 + other, (1 + other) ** 2, other)

    @property
    def affine(self) -> tuple[float, float]:
        """The map (0, S / M)."""
        largest = max(abs(self.lower), abs(self.upper))
        return affine_map(-largest, largest)

    @property
    def limits(self) -> tuple[int, int]:
        """The codes of the bounds. One of them is S or -S; values beyond the other have codes of their own."""
        low, high = quantise(np.array([self.lower, self.upper]), *self.affine).astype(int).tolist()
        return low, high


class CentredSum(ValueBlock):
    """The sum of values from the middle of their bounds, without a count: for groups whose sizes are public."""

    kind = "centred_sum"
    form = ((0, 1),)
    moments = ((0,), (1,))
    row = RowBounds(1, 1, 2, 4, 1)


class TransformedPair(ValueBlock):
    """Sums of S + q and of S - q: for Laplace noise on a count, a sum or a mean."""

    kind = "transformed_pair"
    form = ((1, 1), (1, -1))
    moments = ((1, 1), (1, -1))
    corners = 2
    row = RowBounds(2, 4, 4, 8)


class Bernstein(ValueBlock):
    """The Bernstein polynomials of degree 2, times 4 S**2: for Laplace noise on a variance."""

    kind = "bernstein"
    form = ((1, -2, 1), (2, 0, -2), (1, 2, 1))
    moments = ((1, 1, 1), (-1, 0, 1), (1, -1, 1))
    corners = 4
    row = RowBounds(4, 16, 8, 32)


class CentredPair(ValueBlock):
    """The count and the sum from the middle of the bounds: for Gaussian noise on a count, a sum or a mean."""

    kind = "centred_pair"
    form = ((1, 0), (0, 1))
    moments = ((1, 0), (0, 1))
    row = RowBounds(2, 2, 2, 4)


class Chebyshev(ValueBlock):
    """The Chebyshev polynomials of degree 0, 1 and 2, times S**2: for Gaussian noise on a variance."""

    kind = "chebyshev"
    form = ((1, 0, 0), (0, 1, 0), (-1, 0, 2))
    moments = ((1, 0, 0), (0, 1, 0), (0.5, 0, 0.5))
    row = RowBounds(3, 3, Fraction(25, 8), Fraction(103, 20), Fraction(1, 8))


def _squares(sums: Sums, denominator: int) -> tuple[Longs, Longs, int]:
    """Return the sums of squares as words, in units of S and of 1: ``4 S**2 n`` needs more than 64 bits for most n."""
    if sums.s2 is None:
        raise InternalError("I032", "the sums of squares are missing. Report it.")
    bits = denominator.bit_length() - 1
    if isinstance(sums.s2, Words):
        low = sums.s2.low + np.zeros_like(sums.s2.high)
        return (sums.s2.high << (sums.s2.bits - bits)) + (low >> bits), low & (denominator - 1), bits
    return (sums.s2 >> bits).astype(np.int64), (sums.s2 & (denominator - 1)).astype(np.int64), bits


def blocks_for(
    aggregates: Collection[str], lower: float | None = None, upper: float | None = None, noise: str = LAPLACE
) -> tuple[Block, ...]:
    """Return the blocks for estimating some aggregates of one target, one or more.

    Parameters
    ----------
    aggregates : collection of str
        Of `AGGREGATES`; at least one.
    lower, upper : float or None
        Public bounds of the target; None only if the block just counts rows.
    noise : {'laplace', 'gaussian'}

    Raises
    ------
    ParameterError
        P003: bounds are missing. P018: `aggregates` or `noise` is unknown.

    Notes
    -----
    The first one is never worse than the others under 'add_remove'. Under 'replace' with few public groups blocks about
    the middle, or a sum alone, move less than corners do.
    """
    names = set(aggregates)
    if not names or not names <= set(AGGREGATES) or noise not in NOISES:
        raise ParameterError("P018", f"aggregates must be some of {', '.join(AGGREGATES)}, and noise one of {NOISES}.")
    powers = max(POWERS[name] for name in names)
    if not powers:
        return (GroupCount(),)
    if lower is None or upper is None:
        raise ParameterError("P003", "sums need bounds. Give both bounds from domain knowledge, not from the table.")
    corners, centred = ((Bernstein, Chebyshev), (TransformedPair, CentredPair))[powers == 1]
    kinds: list[type[ValueBlock]] = [corners, centred] if noise == LAPLACE else [centred]
    if names == {SUM}:
        kinds.insert(0 if lower != 0 and upper != 0 else len(kinds), DirectSum)
    return tuple(kind(lower, upper) for kind in kinds)


@dataclass(frozen=True)
class DisjointCounts(Block):
    """The numbers of rows in each of some disjoint cells.

    Attributes
    ----------
    cells : int
        k, >= 1.
    """

    cells: int

    kind = "disjoint_counts"
    row = RowBounds(1, 1, 2, 2)

    @property
    def denominator(self) -> int:
        """A row counts 1."""
        return 1

    @property
    def targets(self) -> Sequence[Block]:
        """A count for each cell."""
        return (GroupCount(),) * self.cells

    def places_of(self, target: int) -> list[int]:
        """Return the coordinate of a cell."""
        return [target]

    @property
    def form(self) -> tuple[tuple[int, ...], ...]:  # type: ignore[override]
        """The count of every cell."""
        return ((1,),) * self.cells

    @property
    def moments(self) -> tuple[tuple[float, ...], ...]:  # type: ignore[override]
        """The number of rows in any cell; `targets` have the rest."""
        return ((1.0,) * self.cells,)

    def words(self, sums: Sums) -> Words:
        """Return the counts, which are s1 of shape (k, G)."""
        return Words(sums.s1)


KeyLabels = Sequence[Sequence[str | None]]


@dataclass(frozen=True, eq=False)
class UnitedGroups:
    """The groups of some of the key columns.

    Attributes
    ----------
    labels : list of list of (str or None)
        The key of each group, a list per column.
    positions : ndarray of int, shape (G,)
        The group that each finest group is in.
    count : int
        Number of groups.
    """

    labels: list[list[str | None]]
    positions: NDArray[np.intp]
    count: int

    @classmethod
    def of(cls, labels: KeyLabels, columns: Sequence[int], groups: int) -> UnitedGroups:
        """Return the groups of some columns of the finest groups' keys, in order of appearance."""
        if not columns:
            return cls([], np.zeros(groups, dtype=np.intp), 1)
        numbers: dict[tuple[str | None, ...], int] = {}
        rows = zip(*(labels[column] for column in columns), strict=True)
        positions = np.array([numbers.setdefault(row, len(numbers)) for row in rows], dtype=np.intp)
        return cls(
            [list(column) for column in zip(*numbers, strict=True)] or [[] for _ in columns], positions, len(numbers)
        )

    def sums(self, finest: Sums) -> Sums:
        """Return the exact sums of the groups."""
        squares = finest.s2
        if isinstance(squares, Words):
            low = squares.low if isinstance(squares.low, np.ndarray) else np.zeros_like(squares.high)
            squares = Words.of(self._added(squares.high), self._added(low), squares.bits)
        elif squares is not None:
            squares = self._added(squares)
        return Sums(self._added(finest.n), self._added(finest.s1), squares)

    def _added(self, values: Any) -> Any:
        out = np.zeros((*values.shape[:-1], self.count), dtype=values.dtype)
        np.add.at(out.T, self.positions, values.T)
        return out


class UnitsOver(UnitCount):
    """The number of privacy units with rows beyond their limits, in one group: a unit counts once."""

    kind = "units_over"


def left_out_contribution(contribution: Contribution) -> Contribution:
    """Return a unit's contribution to the dropped rows, as one group: as many rows as count of it in all."""
    return Contribution(contribution.neighbours, contribution.rows, 1, contribution.rows, keys=1)


def left_out_blocks(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Return the blocks of dropped rows, for the blocks of counted rows: of units, then of each target or of all rows.

    Codes are the codes of the target's own block. Sums have the number of rows, free with Laplace noise.
    """
    return (UnitsOver(), *map(_of_target, blocks))


def _of_target(block: Block) -> Block:
    if not isinstance(block, ValueBlock):
        return GroupCount()
    kind = DirectSum if isinstance(block, DirectSum) else TransformedPair
    return kind(block.lower, block.upper, block.denominator)


def shortened(rows: int, total: int, most: int) -> tuple[int, int]:
    """Return what a unit with `rows` rows beyond its limits adds: rows, and their sum of codes.

    The step `beyond` does the same (`dpsql.engines.duckdb.steps.rows`).
    """
    count = min(rows, most)
    if not rows:
        return 0, 0
    size = abs(total) * count // rows
    return count, size if total >= 0 else -size


@dataclass(frozen=True)
class SharedTarget(ValueBlock):
    """One target of a `SharedCount`: the weighted count, and the sum from the middle of the bounds.

    Attributes
    ----------
    weight : int
        w, > 0, where S is 1.
    """

    weight: int = FIXED_POINT_ONE

    kind = "shared_target"
    form = ((1, 0), (0, 1))

    @property
    def row(self) -> RowBounds:  # type: ignore[override]
        """Same as `SharedCount` with one target."""
        return _shared_row(Fraction(self.weight, self.denominator), 1)

    @property
    def moments(self) -> tuple[tuple[float, ...], ...]:  # type: ignore[override]
        """The number of rows is the count's coordinate over w."""
        return ((self.denominator / self.weight, 0.0), (0.0, 1.0))

    def words(self, sums: Sums) -> Words:
        """Return (w n, s1)."""
        return Words(np.stack([self.weight * sums.n, sums.s1]))


@dataclass(frozen=True)
class SharedCount(Block):
    """One count and the sums of several targets; NULL counts as the middle of the bounds.

    Attributes
    ----------
    shared : tuple of SharedTarget
        Of each target; all have one weight.
    """

    shared: tuple[SharedTarget, ...]

    kind = "shared_count"

    @property
    def targets(self) -> Sequence[Block]:
        """The count with each of the sums."""
        return self.shared

    def places_of(self, target: int) -> list[int]:
        """Return the coordinates of the count and of one sum."""
        return [0, target + 1]

    @property
    def weight(self) -> int:
        """The weight of the count, w."""
        return self.shared[0].weight

    @property
    def denominator(self) -> int:
        """S."""
        return self.shared[0].denominator

    @property
    def form(self) -> tuple[tuple[int, ...], ...]:  # type: ignore[override]
        """The count, and the sum of each target."""
        return ((1, 0), *((0, 1) for _ in self.shared))

    @property
    def moments(self) -> tuple[tuple[float, ...], ...]:  # type: ignore[override]
        """The number of rows; `targets` have the rest."""
        return ((self.denominator / self.weight, *(0.0 for _ in self.shared)),)

    @property
    def row(self) -> RowBounds:  # type: ignore[override]
        """The count moves by w, and every sum by at most S."""
        return _shared_row(Fraction(self.weight, self.denominator), len(self.shared))

    def words(self, sums: Sums) -> Words:
        """Return w n, and s1 of every target, shape (t, G)."""
        return Words(np.concatenate([self.weight * sums.n[np.newaxis], sums.s1]))


def _shared_row(weight: Fraction, count: int) -> RowBounds:
    return RowBounds(weight + count, weight**2 + count, 2 * count, 4 * count, max(Fraction(0), count - weight**2))


def shared_count(bounds: Sequence[tuple[float, float]], noise: str, contribution: Contribution) -> SharedCount:
    """Return the block of several targets with one count, with the best weight for means.

    Parameters
    ----------
    bounds : sequence of (float, float)
        Of each of t targets; public.
    noise : {'laplace', 'gaussian'}
    contribution : Contribution

    Notes
    -----
    The mean of values at a bound has the variance of a sum and of the count together. A weight of ``t**(1/4)`` with
    Gaussian noise, and of about ``t**(1/3)`` with Laplace noise, minimises it: ``(sqrt(t) + 1)**2 / mu**2`` in place of
    ``4 t / mu**2``. Under 'replace' without groups two rows differ by 2 t, and in squares by 4 t, so a weight of t, or
    of ``sqrt(3 t)``, costs nothing.
    """
    count = len(bounds)
    if contribution.norm(1, distance=0) < contribution.norm(1, distance=2):
        root = math.sqrt(3 * count) if noise == GAUSSIAN else count
    else:
        root = count ** (1 / 4 if noise == GAUSSIAN else 1 / 3)
    # Few bits: a row stays a whole number on a coarser lattice.
    weight = math.floor(root * 1024) * (FIXED_POINT_ONE // 1024)
    return SharedCount(tuple(SharedTarget(lower, upper, weight=weight) for lower, upper in bounds))
