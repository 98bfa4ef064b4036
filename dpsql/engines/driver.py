"""The driver of a release on an engine: it takes the steps that one DuckDB statement takes for DuckDB's own tables.

The engine computes states (`dpsql.engines.port`). The ledger's process does the rest: it checks types and budget before
it reads a row, merges the states, and charges and draws in one transaction.

Records are numbered at their origin, so the driver sees whether each record came exactly once. Tasks of a job are
numbered from 0, and so are the records of a task. After its records, a task adds a row with only a number, the count of
its records; after the last task, one such row gives the count of tasks. So a lost record leaves a gap, and a repeated
record repeats a number. The engine itself must notice losses before the numbering, such as in a shuffle.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from dpsql.contract.fold import Collector, Ignoring
from dpsql.contract.keys import keys_of_rows, refuse_many
from dpsql.contract.plan import Plan
from dpsql.dataclass import dataclass
from dpsql.engines.attached import Attached
from dpsql.engines.duckdb.part import PartStatements, column_types, with_judged
from dpsql.engines.duckdb.running import RunningCall, resolved
from dpsql.engines.task import Task, parts_of, plain, read_columns
from dpsql.errors import InternalError, ParameterError
from dpsql.functions.grouped.plan import GroupedCall, GroupedPlan

if TYPE_CHECKING:
    from dpsql.contract.call import Call
    from dpsql.engines.duckdb.session import Session
    from dpsql.ledger.ledger import Entry

# A row's place in its job: its task's number, shifted by `PLACES`, plus its number in the task, as Spark's
# monotonically_increasing_id.
NUMBER, PLACES = "dpsql_place", 33
# Whether a row ends a task, or the job; NULL in a record.
END, OF_TASK, OF_JOB = "dpsql_end", 0, 1


class IncompleteError(Exception):
    """A record was lost, or came twice."""


def ending(kind: pa.Schema) -> pa.Schema:
    """Return the type of records plus the rows that end them."""
    return kind.append(pa.field(END, pa.int64()))


def delivered(kind: pa.Schema) -> pa.Schema:
    """Return `ending`, with numbers."""
    return ending(kind).append(pa.field(NUMBER, pa.int64()))


def ended(records: Iterable[pa.RecordBatch], kind: pa.Schema, end: int = OF_TASK) -> Iterator[pa.RecordBatch]:
    """Yield records of a type, then the row that ends them."""
    schema = ending(kind)
    for record in records:
        yield pa.RecordBatch.from_arrays([*record.columns, pa.nulls(record.num_rows, pa.int64())], schema=schema)
    yield pa.RecordBatch.from_pylist([{field.name: end if field.name == END else None for field in schema}], schema)


def numbered(rows: Iterable[pa.RecordBatch], number: int, kind: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows of `ended` with their places, from the start of their task; `kind` comes from `delivered`."""
    for batch in rows:
        numbers = pa.array(range(number, number + batch.num_rows), type=pa.int64())
        yield pa.RecordBatch.from_arrays([*batch.columns, numbers], schema=kind)
        number += batch.num_rows


class JobNumbers:
    """Numbers the records of one job of an engine in this process, whichever threads run its tasks.

    Parameters
    ----------
    kind : pyarrow.Schema
        Type of the records.
    """

    def __init__(self, kind: pa.Schema) -> None:
        self._kind = kind
        self.kind = delivered(kind)
        self._tasks = itertools.count()

    def task(self, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a task's records with numbers."""
        return numbered(ended(records, self._kind), next(self._tasks) << PLACES, self.kind)

    def last(self) -> Iterator[pa.RecordBatch]:
        """Yield the row that ends the job, after all tasks."""
        return numbered(ended((), self._kind, OF_JOB), next(self._tasks) << PLACES, self.kind)


def numbered_task(records: Iterable[pa.RecordBatch], kind: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the numbered records of a job with one task, and the row that ends the job."""
    numbering = JobNumbers(kind)
    yield from numbering.task(records)
    yield from numbering.last()


def received(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the records of a job without their numbers.

    Raises
    ------
    IncompleteError
        A record came twice; or, at the end, one was lost. Discard all results from earlier records.
    """
    seen: set[int] = set()
    ends: dict[int, list[int]] = {OF_TASK: [], OF_JOB: []}
    for batch in batches:
        numbers = batch.column(NUMBER).to_pylist()
        if len({*numbers}) < len(numbers) or not seen.isdisjoint(numbers):
            raise IncompleteError("a record came twice")
        seen.update(numbers)
        marks = batch.column(END).to_pylist()
        for number, mark in zip(numbers, marks, strict=True):
            if mark is not None:
                ends[mark].append(number)
        records = batch.drop_columns([END, NUMBER])
        positions = [position for position, mark in enumerate(marks) if mark is None]
        if positions:
            yield records if len(positions) == len(marks) else records.take(pa.array(positions, type=pa.int64()))
    task_numbers = {number for end in ends[OF_TASK] for number in range(end >> PLACES << PLACES, end + 1)}
    if ends[OF_JOB] != [len(ends[OF_TASK]) << PLACES] or {*task_numbers, *ends[OF_JOB]} != seen:
        raise IncompleteError("a record was lost")
    if {end >> PLACES for end in ends[OF_TASK]} != {*range(len(ends[OF_TASK]))}:
        raise IncompleteError("a task was lost")


INCOMPLETE = (
    "got not every record of its job once: the connection to the engine, or the engine, lost one or sent it again. "
    "The charge stands, and nothing was released. Run the call again."
)


def call_of(attached: Attached, plan: Plan) -> tuple[Call, pa.Schema]:
    """Return the call of a plan, from the column types of its source on an engine; read no row.

    Raises
    ------
    ParameterError
        P073: the call would have to keep single rows, which no engine does. P080 to P084: its condition does not fit
        the types of its columns.
    """
    if plan.keeps_rows:
        raise ParameterError(
            "P073",
            f"on an engine {plan.function} cannot run in this form, which keeps rows one by one. {plan.keeps_rows}",
        )
    schema = attached.schema(attached.source(plan))
    probe, spelled = column_types(plan, schema)
    resolved(plan, plan.function, probe, spelled)  # refuses missing columns
    plan = with_judged(plan, plain(schema))
    return resolved(plan, plan.function, probe, spelled), schema


def engine_key_types(attached: Attached, plan: Plan) -> tuple[str, ...]:
    """Return the SQL types of the keys of a call's result; read no row."""
    if not isinstance(plan, GroupedPlan) or not plan.key_columns:
        return ()
    _, spelled = column_types(plan, attached.schema(attached.source(plan)))
    return (*spelled, *["BOOLEAN"] * (len(plan.key_columns) - len(spelled)))


def release(session: Session, attached: Attached, plan: Plan) -> Entry:
    """Run a call on an engine: check, fold once per pass, then charge and draw.

    Raises
    ------
    DpsqlError
        From the checks, before a row is read.
    InternalError
        I001: the engine failed after dpsql asked it to read rows; the charge remains. I008: it did not return every
        record of a job once; the charge remains.
    """
    stored = session.past.replay(plan)
    if stored is not None:
        return session.stored(plan)
    call, schema = call_of(attached, plan)
    call = _with_keys(session, call)
    session.sources.refuse_stale(plan.placement)
    session.check(plan)
    ticket = session.open_call(call, plan.function)
    nothing = pa.schema([schema.field(name) for name in read_columns(plan, schema)]).empty_table()
    running = session.running(ticket)
    run = _Run(attached, call, nothing, running.sampling_key, running.key)
    try:
        run.rehearse(running)
    except BaseException:
        session.close_call(ticket)
        raise

    def work(running: RunningCall) -> Entry:
        try:
            return passes(running)
        except InternalError:
            if run.incomplete:  # the engine's fault, independent of the rows
                raise InternalError("I008", f"{plan.function} {INCOMPLETE}") from None
            raise

    def passes(running: RunningCall) -> Entry:
        if plan.readings > 1:  # workers get the draws of an earlier pass
            entry = session.reserve(running)
            if entry is not None:
                return entry
        last = len(plan.passes)
        for number in range(1, last):
            session.turn(ticket, number, partial(run.fold, number))
        return session.finish(ticket, running, session.guarded(ticket, partial(run.fold, last)))

    return session.release_once(ticket, work)


@dataclass
class _Run:
    """The passes of one call over the rows of its source.

    Attributes
    ----------
    attached : Attached
    call : Call
    nothing : pyarrow.Table
        Zero rows of the source, with the columns that the call reads.
    key, secret : bytes
        As in `Task`.
    seen : dict
        Numbers of rows by part, for each way in which passes divided the rows; as secret as the rows.
    fingerprints : set of int
        Of the rows: one for all passes unless they differ; as secret as the rows.
    incomplete : bool
        Whether a record was lost on its way, or came twice.
    """

    attached: Attached
    call: Call
    nothing: pa.Table
    key: bytes
    secret: bytes
    seen: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)
    fingerprints: set[int] = field(default_factory=set)
    incomplete: bool = False

    def task(self, running: RunningCall, number: int) -> Task:
        """Return the workers' task of a pass."""
        if running.collecting is None:
            raise InternalError("I032", "a call without a collector was given to an engine. Report it.")
        plan = replace(running.call.plan, placement=None)
        call = replace(running.call, plan=plan)
        zero = running.collecting.first
        parts = parts_of(plan, zero, self.attached.parts)
        return Task(call, plan.function, zero, number, self.key, self.secret, parts, PartStatements())

    def rehearse(self, running: RunningCall) -> None:
        """Run the first pass over zero rows, here and in a worker: all errors of arguments and types come now."""
        task = self.task(running, 1)
        task.rehearse(self.nothing)
        self.attached.engine.check(task)

    def fold(self, number: int, running: RunningCall) -> Collector:
        """Return the collector of a pass, with every row in it; read no row if the pass ignores rows."""
        if running.collecting is not None and isinstance(running.collecting.first, Ignoring):
            return running.collecting.first
        task = self.task(running, number)
        if not self.call.plan.passes[number - 1].reads_rows:
            return task.alone(self.nothing)
        engine, source = self.attached.engine, self.attached.source(self.call.plan)
        verb = engine.fold_parts if task.parts else engine.fold
        return self._merged(task, verb(source, self.nothing.column_names, task))

    def _merged(self, task: Task, records: Iterable[pa.RecordBatch]) -> Collector:
        """Merge all records of a pass. Its errors are as secret as rows: `Session.guarded` hides them."""
        try:
            total = task.read(received(records))
        except IncompleteError:
            self.incomplete = True
            raise
        counted = {part: rows for part, rows in total.rows.items() if rows}
        self.fingerprints.add(total.fingerprint)
        agree = self.seen.setdefault((task.parts, task.blocks), counted) == counted and len(self.fingerprints) == 1
        if not agree or len({sum(rows.values()) for rows in self.seen.values()}) > 1:
            raise ValueError("the source yields other rows at every reading")
        return total.collector


def _with_keys(session: Session, call: Call) -> Call:
    """Return a call that has learned the listed keys of a public DuckDB table."""
    if not isinstance(call, GroupedCall) or call.plan.keys_table is None:
        return call
    keys = keys_of_rows(session.sources.listed(call.plan), len(call.plan.by))
    refuse_many(keys.count)
    return replace(call, listed=keys)
