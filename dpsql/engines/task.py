"""What a worker of an engine runs: one pass of one call over some of the rows, down to one record.

A worker has the rows of a partition, or all rows of some parts. It adds them to a collector of its own, and hands over
the collector's state with a header. Two ways lead to the collector, and both end in `Call.collect`:

- Rows whose values are all that matters go there as they are.
- Rows of privacy units, long rows, groups and rows under a condition pass through the statement that DuckDB runs on its
  own tables (`dpsql.engines.duckdb.part`).

All rows of a privacy unit are in one part; without units, all cells of a long row, or all rows of a block are. The part
of a row follows from the hash that decides its block, so a block is never divided.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from dpsql import __version__
from dpsql.contract.call import Call
from dpsql.contract.condition import columns_of
from dpsql.contract.fold import Batch, Collector, Fold, Pass
from dpsql.contract.parameters import fold
from dpsql.contract.plan import COLLECTED, Plan
from dpsql.engines.port import PART, parts_apart
from dpsql.errors import InternalError

# Rows that are added at once, and rows that one statement reads; of whole parts it reads at least so many.
_BATCH_ROWS = 1 << 16
_STATEMENT_ROWS = 1 << 20
_PART_ROWS = 1 << 17
# Stands in a record for the part of rows that are not grouped.
_NO_PART = -1
Given = TypeVar("Given")
Result = TypeVar("Result")
FAILED = "[DPSQL-I001] a worker of dpsql failed; its rows are not named here."
RECORD = pa.schema(
    [
        ("version", pa.string()),
        ("pass", pa.binary()),
        ("parts", pa.list_(pa.int64())),
        ("rows", pa.list_(pa.int64())),
        ("state", pa.binary()),
    ]
)


def fold_of(collector: Collector) -> Fold:
    """Return the fold that a collector consists of.

    Raises
    ------
    InternalError
        I032: it keeps rows, which the plan should have said (`Plan.keeps_rows`).
    """
    while isinstance(collector, Pass):
        collector = collector.inner
    if not isinstance(collector, Fold):
        raise InternalError("I032", "a call that must keep rows was given to an engine. Report it.")
    return collector


@dataclass(frozen=True)
class Task:
    """One pass of a call.

    Attributes
    ----------
    call : Call
    function : str
        The SQL function, such as ``'dp_sis'``.
    zero : Collector
        The empty collector of the pass. It depends only on public or released values, so workers may have it.
    number : int
        Of the pass, from 1.
    key : bytes
        Of the hashes of units and rows; secret, fresh for every call.
    secret : bytes
        Of the sample of the features of a row.
    parts : int
        Number of parts; 0 if rows need not be grouped.
    """

    call: Call
    function: str
    zero: Collector
    number: int
    key: bytes
    secret: bytes
    parts: int

    @property
    def record(self) -> pa.Schema:
        """The type of a record."""
        return RECORD

    @property
    def blocks(self) -> int:
        """Number of blocks that are never divided; 0 if there are none."""
        return self.zero.whole_blocks

    @cached_property
    def digest(self) -> bytes:
        """What the records of one pass have in common, and no others."""
        names = "\n".join(self.call.features)
        text = f"{self.number}\n{self.call.plan.to_json()}\n{names}"
        return hashlib.sha256(self.key + text.encode()).digest()

    @cached_property
    def is_direct(self) -> bool:
        """Whether rows reach the collector as they are."""
        return is_direct(self.call.plan)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the record of some rows: of whole parts one after another, or of any rows if there are no parts."""
        yield _silenced(self._folded, batches)

    def _folded(self, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
        collector, rows = self.zero.zero(), Counter[int]()
        if self.parts:
            for counted, table in _whole_parts(batches):
                if not rows.keys().isdisjoint(counted):
                    raise ValueError("the rows of a part do not follow one another")
                rows.update(counted)
                self._add(collector, table)
        else:
            for table in _tables(batches, _BATCH_ROWS if self.is_direct else _STATEMENT_ROWS):
                rows[_NO_PART] += table.num_rows
                self._add(collector, table)
        return self._record(collector, rows)

    def rehearse(self, nothing: pa.Table) -> None:
        """Run over a table without rows, and raise what the arguments or types cause; nothing depends on rows."""
        if not self.is_direct:
            self.alone(nothing)
        fold_of(self.zero)

    def alone(self, table: pa.Table) -> Collector:
        """Return the collector of the pass with these rows in it, by the statement for DuckDB's own tables."""
        from dpsql.engines.duckdb.part import fold_table

        return fold_table(self, table)

    def _add(self, collector: Collector, table: pa.Table) -> None:
        if not self.is_direct:
            collector.merge(self.alone(table))
            return
        chosen = self.call.plan.row_columns
        if chosen is not None:
            table = pa.table({name: _column(table, column) for name, column in chosen.items()})
        for batch in table.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS):
            rows = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
            self.call.collect(collector, rows, Batch(secret=self.secret))

    def _record(self, collector: Collector, rows: Mapping[int, int]) -> pa.RecordBatch:
        state = fold_of(collector).state()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, state.schema) as writer:
            writer.write_batch(state)
        values = [__version__, self.digest, list(rows), list(rows.values()), sink.getvalue().to_pybytes()]
        return pa.RecordBatch.from_arrays(
            [pa.array([value], type=field.type) for value, field in zip(values, RECORD, strict=True)], schema=RECORD
        )

    def part_of(self, rows: pa.Table) -> pa.Array:
        """Return the part of every row; NULL for rows of no unit, and for cells of no row."""
        from dpsql.engines.duckdb.part import parts_of_rows

        return _silenced(partial(parts_of_rows, self), _plain_table(rows))

    def split(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the number of their part. Rows of no unit are left out, and cells of no row."""
        for table in _tables(batches, _STATEMENT_ROWS):
            part = self.part_of(table)
            rows = table.append_column(PART, part)
            yield from (rows.filter(part.is_valid()) if part.null_count else rows).to_batches()


def _silenced(work: Callable[[Given], Result], given: Given) -> Result:
    """Return what the work gives. What it raises is replaced, and not chained: it may contain a value.

    Raises
    ------
    RuntimeError
    """
    with np.errstate(all="ignore"), suppress(Exception):  # NumPy's warnings would tell of values, too
        return work(given)
    raise RuntimeError(FAILED)


def _tables(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.Table]:
    """Yield rows as tables of about so many rows."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= most:
            yield _plain_table(pa.Table.from_batches(held))
            held, count = [], 0
    if count:
        yield _plain_table(pa.Table.from_batches(held))


def _whole_parts(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[dict[int, int], pa.Table]]:
    """Yield rows that come part after part, as tables of whole parts, each with the number of rows of its parts.

    One statement for many small parts costs what it costs for one.
    """
    held: list[pa.RecordBatch] = []
    counted: dict[int, int] = {}
    last = None
    for batch in batches:
        for part, rows in parts_apart(batch):
            if part != last and sum(counted.values()) >= _PART_ROWS:
                yield counted, _plain_table(pa.Table.from_batches(held))
                held, counted = [], {}
            elif part != last and part in counted:
                raise ValueError("the rows of a part do not follow one another")
            held.append(rows.drop_columns([PART]))
            counted[part] = counted.get(part, 0) + rows.num_rows
            last = part
    if held:
        yield counted, _plain_table(pa.Table.from_batches(held))


def _plain_table(rows: pa.Table) -> pa.Table:
    return rows.cast(plain(rows.schema))


def plain(schema: pa.Schema) -> pa.Schema:
    """Return a schema without the forms of one type by which engines differ: dictionaries, views and large offsets."""
    return pa.schema([field.with_type(_plain(field.type)).remove_metadata() for field in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_large_string(kind) or kind == pa.string_view():
        return pa.string()
    if pa.types.is_large_binary(kind) or kind == pa.binary_view():
        return pa.binary()
    if pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    return kind


def is_direct(plan: Plan) -> bool:
    """Whether the rows of a call reach its collector as they are, without a statement of SQL."""
    named = plan.layout.privacy_unit is not None or plan.layout.row_id is not None
    return plan.statistic == COLLECTED and plan.condition is None and not (named or plan.in_blocks)


def parts_of(plan: Plan, zero: Collector, parts: int) -> int:
    """Return the number of parts that the rows of a pass are grouped into; 0 if they need not be grouped."""
    layout = plan.layout
    needed = layout.privacy_unit is not None or layout.kind == "long" or zero.whole_blocks
    return parts if needed else 0


def read_columns(plan: Plan, schema: pa.Schema) -> list[str]:
    """Return the columns of a source that a call reads, as the source spells them; at least one, so rows count."""
    layout = plan.layout
    if plan.row_columns is None:
        return list(schema.names)
    named = [*plan.row_columns.values(), layout.privacy_unit, layout.row_id]
    if layout.kind == "long":
        named += [str(layout.features), layout.value]
    if plan.condition is not None:
        named += columns_of(plan.condition)
    wanted = {fold(name) for name in named if name is not None}
    return [name for name in schema.names if fold(name) in wanted] or schema.names[:1]


def _column(rows: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    """Return a column by its name as SQL compares names."""
    position = [fold(one) for one in rows.schema.names].index(fold(name))
    column = rows.column(position)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
