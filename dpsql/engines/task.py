"""The task of an engine's worker: one pass of one call over some of the rows, down to one record.

A worker has the rows of a partition, or all rows of some parts. It adds them to a collector of its own, and returns the
collector's state with a header. A worker can also merge such records into one, so that few reach the driver.

Two ways lead to the collector, and both end in `Call.collect`:

- Rows go there directly if only their values matter.
- Rows of privacy units, long rows, groups and rows under a condition pass through the statement for DuckDB's own
  tables, in a DuckDB that the task starts (`TaskStatements`).

All rows of a privacy unit are in one part; without units, all cells of a long row, or all rows of a block are. The hash
that decides a row's block also decides its part, so a block is never divided.

Workers also run a released model over the batches of an engine, which reads nothing private.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import field
from functools import cached_property, partial
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa

from dpsql.contract.call import Call
from dpsql.contract.fold import Batch, Collector, Fold, RowTransform
from dpsql.contract.parameters import fold, show
from dpsql.contract.plan import COLLECTED, Plan
from dpsql.contract.query.condition import columns_of
from dpsql.dataclass import dataclass
from dpsql.engines.port import NODE, NODES, PART, parts_apart
from dpsql.errors import InternalError, SourceError
from dpsql.released.model import LinearClassifier, LinearModel
from dpsql.version import __version__


@dataclass(frozen=True)
class Predictor:
    """Adds the columns of `dp_predictions` to batches of rows: ``prediction``, and ``probability`` for a classifier.

    Attributes
    ----------
    model : LinearModel
    """

    model: LinearModel

    @property
    def added(self) -> pa.Schema:
        """The added columns."""
        if isinstance(self.model, LinearClassifier):
            return pa.schema([("prediction", self.model.class_type), ("probability", pa.float64())])
        return pa.schema([("prediction", pa.float64())])

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield each batch with its prediction columns."""
        for batch in batches:
            for added, values in zip(self.added, self._predicted(batch), strict=True):
                batch = batch.append_column(added, values)
            yield batch

    def check(self, schema: pa.Schema) -> None:
        """Raise if the columns do not fit the model; read nothing.

        Raises
        ------
        SourceError
            S002: a feature is missing. S003: a feature is not numeric. S010: the model is of long rows. S037: a source
            column has the name of an added one.
        """
        if self.model.long is not None:
            raise SourceError(
                "S010",
                "the model was fitted to long rows, and an engine predicts from one row each. Pivot the rows in a view "
                "of the engine, and give ctx.model(...).predict its frame; or copy them to DuckDB.",
            )
        names = set(map(fold, schema.names))
        for name in self.added.names:
            if name in names:
                raise SourceError("S037", f"the source has a column {show(name)} already. Rename it in a view.")
        if self.model.vector is not None and fold(self.model.vector) not in names:
            raise SourceError("S002", f"vector {show(self.model.vector)} is not a column of the row. Check the name.")
        list(self.run(schema.empty_table().to_batches() or [pa.RecordBatch.from_pylist([], schema=schema)]))

    def _predicted(self, batch: pa.RecordBatch) -> list[pa.Array]:
        rows = self._rows(batch)
        numbers = self.model.predict_rows(rows)
        predictions = pa.array(numbers, mask=np.isnan(numbers))
        if not isinstance(self.model, LinearClassifier):
            return [predictions]
        classes = pa.array(self.model.predict_classes(rows), type=pa.string())
        return [classes.cast(self.model.class_type), predictions]

    def _rows(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the model's input: a column of vectors, or all columns as one of structs."""
        if self.model.vector is None:
            return pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
        return batch.column([fold(name) for name in batch.schema.names].index(fold(self.model.vector)))


# Rows added at once, and rows per statement; a statement of whole parts reads at least this many.
_BATCH_ROWS = 1 << 16
_STATEMENT_ROWS = 1 << 20
_PART_ROWS = 1 << 17
# The part number in a record whose rows are not grouped.
_NO_PART = -1
# Workers merge states of this many bytes; the driver, the root of the tree, gets one of each node.
_WIDE = 1 << 14
# The sum of row fingerprints is modulo this.
_FINGERPRINTS = 1 << 63
# If an engine has a thread per partition, at most as many add rows at a time as there are cores: threads that wait for
# Python's lock cost time.
_turns = threading.BoundedSemaphore(os.cpu_count() or 1)
Given = TypeVar("Given")
Result = TypeVar("Result")
FAILED = "[DPSQL-I001] a worker of dpsql failed; its rows are not named here."
RECORD = pa.schema(
    [
        ("version", pa.string()),
        ("pass", pa.binary()),
        ("parts", pa.list_(pa.int64())),
        ("rows", pa.list_(pa.int64())),
        ("fingerprint", pa.int64()),
        ("state", pa.binary()),
        (NODE, pa.int64()),
    ]
)


def fold_of(collector: Collector) -> Fold:
    """Return the fold of a collector.

    Raises
    ------
    InternalError
        I032: it keeps rows, against the plan (`dpsql.contract.plan.Pass.keeps_rows`).
    """
    while isinstance(collector, RowTransform):
        collector = collector.inner
    if not isinstance(collector, Fold):
        raise InternalError("I032", "a call that must keep rows was given to an engine. Report it.")
    return collector


@dataclass
class FoldedRows:
    """Rows of a pass, added up, with evidence that every row came once and unchanged.

    Attributes
    ----------
    collector : Collector
    rows : dict of int to int
        Numbers of rows by part. They are as secret as the rows, and so is the fingerprint.
    fingerprint : int
        Sum of a hash of each row's contents; 0 in a call that reads the rows once.
    """

    collector: Collector
    rows: dict[int, int] = field(default_factory=dict)
    fingerprint: int = 0

    def count(self, rows: dict[int, int]) -> None:
        """Count rows of new parts, or of no part.

        Raises
        ------
        ValueError
            A part comes a second time: it was divided, or counted twice.
        """
        for part, number in rows.items():
            if number and part != _NO_PART and part in self.rows:
                raise ValueError("a part of the rows comes twice")
            self.rows[part] = self.rows.get(part, 0) + number


class TaskStatements(Protocol):
    """Runs the statements of a call over some of its rows; workers get it with their task."""

    def fold(self, task: Task, rows: pa.Table) -> Collector:
        """Return the collector of a task after adding some rows."""

    def parts(self, task: Task, rows: pa.Table) -> pa.Array:
        """Return each row's part, in row order; NULL for rows without a unit."""

    def fingerprint(self, rows: pa.Table) -> int:
        """Return the sum of a hash of each row, regardless of the rows' order or division."""


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
        For the hashes of units and rows; secret, fresh for every call.
    secret : bytes
        For the choice of a row's private names.
    parts : int
        Number of parts; 0 if rows need not be grouped.
    statements : TaskStatements
        Runs the SQL of the pass; can be pickled.
    """

    call: Call
    function: str
    zero: Collector
    number: int
    key: bytes
    secret: bytes
    parts: int
    statements: TaskStatements

    @property
    def record(self) -> pa.Schema:
        """The type of a record."""
        return RECORD

    @cached_property
    def is_wide(self) -> bool:
        """Whether many records are too large for one process, so that a tree merges them."""
        state = fold_of(self.zero)
        return state.grows or state.state().nbytes >= _WIDE

    @property
    def blocks(self) -> int:
        """Number of undivided blocks; 0 if there are none."""
        return self.zero.whole_blocks

    @cached_property
    def digest(self) -> bytes:
        """A digest that all records of one pass share, and no others."""
        names = "\n".join(self.call.features)
        text = f"{self.number}\n{self.call.plan.to_json()}\n{names}"
        return hashlib.sha256(self.key + text.encode()).digest()

    @cached_property
    def is_direct(self) -> bool:
        """Whether rows reach the collector directly."""
        return is_direct(self.call.plan)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the record of some rows: of whole parts one after another, or of any rows without parts."""
        yield _silenced(self._folded, batches)

    def merge(self, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one record that merges some records."""
        yield _silenced(lambda batches: self._record(self.read(batches)), records)

    def read(self, records: Iterable[pa.RecordBatch]) -> FoldedRows:
        """Return the merged contents of records. Errors are as secret as rows.

        Raises
        ------
        ValueError
            A record is of another call, or a part comes twice.
        """
        total = FoldedRows(self.zero.zero())
        accumulator = fold_of(total.collector)
        for batch in records:
            for record in batch.to_pylist():
                if record["version"] != __version__ or record["pass"] != self.digest:
                    raise ValueError("a worker returned the record of another call")
                total.count(dict(zip(record["parts"], record["rows"], strict=True)))
                total.fingerprint = (total.fingerprint + record["fingerprint"]) % _FINGERPRINTS
                with pa.ipc.open_stream(record["state"]) as reader:
                    accumulator.absorb(reader.read_next_batch())
        return total

    def _folded(self, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
        total = FoldedRows(self.zero.zero())
        if self.parts:
            tables = _whole_parts(batches)
        else:
            size = _BATCH_ROWS if self.is_direct else _STATEMENT_ROWS
            tables = (({_NO_PART: table.num_rows}, table) for table in _tables(batches, size))
        for rows, table in tables:
            total.count(rows)
            total.fingerprint = (total.fingerprint + self._fingerprint(table)) % _FINGERPRINTS
            with _turns:
                self._add(total.collector, table)
        return self._record(total)

    def _fingerprint(self, table: pa.Table) -> int:
        """Return the sum of a hash of each row, if passes are compared with one another."""
        if self.call.plan.readings == 1:
            return 0
        return self.statements.fingerprint(table)

    def rehearse(self, nothing: pa.Table) -> None:
        """Run over a table without rows, and raise errors of arguments or types; nothing depends on rows."""
        if not self.is_direct:
            self.alone(nothing)
        fold_of(self.zero)

    def alone(self, table: pa.Table) -> Collector:
        """Return the collector of the pass with these rows, by the statement for DuckDB's own tables."""
        return self.statements.fold(self, table)

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

    def _record(self, total: FoldedRows) -> pa.RecordBatch:
        state = fold_of(total.collector).state()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, state.schema) as writer:
            writer.write_batch(state)
        content = sink.getvalue().to_pybytes()
        # Every attempt at the same rows has the same state to the last bit, so the same node.
        node = int.from_bytes(hashlib.sha256(content).digest()[:8]) % NODES
        rows = [list(total.rows), list(total.rows.values())]
        values = [__version__, self.digest, *rows, total.fingerprint, content, node]
        return pa.RecordBatch.from_arrays(
            [pa.array([value], type=field.type) for value, field in zip(values, RECORD, strict=True)], schema=RECORD
        )

    def part_of(self, rows: pa.Table) -> pa.Array:
        """Return every row's part; NULL for rows without a unit, and for cells without a row."""
        return _silenced(partial(self.statements.parts, self), _plain_table(rows))

    def split(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with their part numbers. Leave out rows without a unit, and cells without a row."""
        for table in _tables(batches, _STATEMENT_ROWS):
            part = self.part_of(table)
            rows = table.append_column(PART, part)
            yield from (rows.filter(part.is_valid()) if part.null_count else rows).to_batches()


def _silenced(work: Callable[[Given], Result], argument: Given) -> Result:
    """Return the result of the work. Replace its errors without a chain: they may contain a value.

    Raises
    ------
    RuntimeError
    """
    with np.errstate(all="ignore"), suppress(Exception):  # NumPy's warnings would reveal values, too
        return work(argument)
    raise RuntimeError(FAILED)


def _tables(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.Table]:
    """Yield rows as tables of about `most` rows."""
    buffer: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        buffer.append(batch)
        count += batch.num_rows
        if count >= most:
            yield _plain_table(pa.Table.from_batches(buffer))
            buffer, count = [], 0
    if count:
        yield _plain_table(pa.Table.from_batches(buffer))


def _whole_parts(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[dict[int, int], pa.Table]]:
    """Yield rows that come part after part, as tables of whole parts, each with its row numbers by part.

    One statement for many small parts costs as much as for one part.
    """
    buffer: list[pa.RecordBatch] = []
    counted: dict[int, int] = {}
    last = None
    for batch in batches:
        for part, rows in parts_apart(batch):
            if part != last and sum(counted.values()) >= _PART_ROWS:
                yield counted, _plain_table(pa.Table.from_batches(buffer))
                buffer, counted = [], {}
            elif part != last and part in counted:
                raise ValueError("the rows of a part do not follow one another")
            buffer.append(rows.drop_columns([PART]))
            counted[part] = counted.get(part, 0) + rows.num_rows
            last = part
    if buffer:
        yield counted, _plain_table(pa.Table.from_batches(buffer))


def _plain_table(rows: pa.Table) -> pa.Table:
    return rows.cast(plain(rows.schema))


def plain(schema: pa.Schema) -> pa.Schema:
    """Return a schema without engine-specific forms of one type: dictionaries, views and large offsets."""
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
    """Whether the rows of a call reach its collector directly, without an SQL statement."""
    has_identity = plan.layout.privacy_unit is not None or plan.layout.row_id is not None
    first = plan.passes[0]
    return first.statement == COLLECTED and plan.condition is None and not (has_identity or first.keyed)


def parts_of(plan: Plan, zero: Collector, parts: int) -> int:
    """Return the number of parts for grouping the rows of a pass; 0 if they need no grouping."""
    layout = plan.layout
    needed = layout.privacy_unit is not None or layout.kind == "long" or zero.whole_blocks
    return parts if needed else 0


def read_columns(plan: Plan, schema: pa.Schema) -> list[str]:
    """Return the source columns that a call reads, as the source spells them; at least one, so rows count."""
    layout = plan.layout
    if plan.row_columns is None:
        return list(schema.names)
    names = [*plan.row_columns.values(), layout.privacy_unit, layout.row_id]
    if layout.kind == "long":
        names += [str(layout.features), layout.value]
    if plan.condition is not None:
        names += columns_of(plan.condition)
    if plan.chosen_by_date is not None:
        names.append(plan.chosen_by_date.dated.column)
    keys = {fold(name) for name in names if name is not None}
    return [name for name in schema.names if fold(name) in keys] or schema.names[:1]


def _column(rows: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    """Return a column by its name, compared as in SQL."""
    position = [fold(spelling) for spelling in rows.schema.names].index(fold(name))
    column = rows.column(position)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
