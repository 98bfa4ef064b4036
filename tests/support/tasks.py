"""The work of one call on an engine, without the driver: what its workers make, and one statement over the same rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from dpsql.context import Context
from dpsql.engines.driver import call_of, received
from dpsql.engines.duckdb.part import PartStatements
from dpsql.engines.task import Task, fold_of, parts_of, read_columns

KEY, SECRET = b"k" * 16, b"s" * 16


def task_of(context: Context, frame: object, function: str, **arguments: object) -> tuple[Task, list[str]]:
    """Return the first pass of a call over a frame, and the columns that it reads."""
    attached = context._engine
    assert attached is not None
    with attached.holding("rows", frame):
        given = {"epsilon": 1, "dataset": "rows", "engine": attached.name, **arguments}
        plan = context._session.planner.plan(function, "rows", given)
        call, schema = call_of(attached, plan)
    zero = call.start()
    assert zero is not None
    parts = parts_of(plan, zero, 5)
    return Task(call, function, zero, 1, KEY, SECRET, parts, PartStatements()), read_columns(plan, schema)


def state_on(context: Context, frame: object, task: Task, columns: list[str]) -> pa.RecordBatch:
    """Return the merged state of a task that an engine runs."""
    attached = context._engine
    assert attached is not None
    verb = attached.engine.fold_parts if task.parts else attached.engine.fold
    return merged(task, received(verb(frame, columns, task)))


def state_of(task: Task, columns: list[str], rows: pa.Table) -> pa.RecordBatch:
    """Return the state of all rows at once: of the statement that DuckDB runs on its own tables, under the same keys."""
    whole = replace(task, parts=0)
    return merged(whole, whole.run(rows.select(columns).to_batches()))


def merged(task: Task, records: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the merged state of the records of a pass."""
    whole = fold_of(task.zero.zero())
    for batch in records:
        for record in batch.to_pylist():
            with pa.ipc.open_stream(record["state"]) as reader:
                whole.absorb(reader.read_next_batch())
    return whole.state()
