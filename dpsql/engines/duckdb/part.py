"""One pass over some rows of another engine, with the statement that DuckDB runs on its own tables.

A worker has its own DuckDB, in memory and with one thread, because the engine decides the number of workers. This
DuckDB has functions that read rows, and none that plans, charges or draws.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa

from dpsql.contract.fold import Collector
from dpsql.contract.names import FRAME_PREFIX
from dpsql.contract.plan import Plan
from dpsql.engines.duckdb.keys import ONE
from dpsql.engines.duckdb.planner import POSITION, part_sql, split_sql, types_sql
from dpsql.engines.duckdb.running import Calls, Collecting, Result, RunningCall
from dpsql.engines.duckdb.session import silent
from dpsql.engines.duckdb.typed_expression import (
    ColumnTypes,
    judged,
    refuse_other_types,
    types_query,
)
from dpsql.engines.duckdb.typed_expression import column_types as typed_columns
from dpsql.engines.port import PART
from dpsql.errors import ParameterError
from dpsql.kernels.columns import single_chunk
from dpsql.rendering import text
from dpsql.udfs.rows import SPECS as ROW_SPECS
from dpsql.udfs.values import UdfSpec

if TYPE_CHECKING:
    from dpsql.engines.task import Task


# The name of the rows in the worker's DuckDB.
ROWS = f"{FRAME_PREFIX}part"
_TICKET = 1
_KIND = pa.struct([("ticket", pa.int64()), ("zero", pa.float64())])


class _Part(Calls):
    """The only call of a worker."""

    def __init__(self, task: Task) -> None:
        collecting = Collecting(task.zero.zero())
        self._running = RunningCall(task.call, task.function, 1, collecting, key=task.secret, sampling_key=task.key)
        self._running.passed = task.number - 1

    def running(self, ticket: int, *, private: bool | None = None) -> RunningCall:
        """Return the call."""
        return self._running

    def guarded(self, ticket: int, work: Callable[[RunningCall], Result], *, private: bool | None = None) -> Result:
        """Run a part of the call; `Task.run` wraps its exceptions."""
        return work(self._running)


class _Worker:
    """A DuckDB that works on one part at a time."""

    def __init__(self) -> None:
        self.part: _Part | None = None
        self.connection = duckdb.connect(":memory:", config={"threads": 1})
        self._functions: list[Callable[..., object]] = []

        def opened(_: _Part) -> Callable[..., object]:
            return lambda: {"ticket": _TICKET, "zero": 0.0}

        gate = UdfSpec("dpsql_part", opened, "STRUCT(ticket BIGINT, zero DOUBLE)", native=True, nullary=True)
        for spec in (*ROW_SPECS, gate):
            self._functions.append(self._function(spec))  # DuckDB does not keep functions alive
            spec.register(self.connection, self._functions[-1], self.connection.sqltype(spec.returns))

    def _function(self, spec: UdfSpec) -> Callable[..., object]:
        """Return the function to register, which looks up the part at each call."""

        def call(*arguments: object) -> object:
            return spec.run(silent(spec.bind(self.part)), arguments)

        def call_without() -> object:  # DuckDB reads *arguments as one or more
            return call()

        return call_without if spec.nullary else call

    def run(self, part: _Part | None, statement: str, rows: pa.Table) -> pa.Table:
        """Return the result of a statement over some rows; functions that read rows work on the part."""
        self.part = part
        self.connection.register(ROWS, rows)
        try:
            return self.connection.sql(statement).to_arrow_table()
        finally:
            self.connection.unregister(ROWS)
            self.part = None


class _Workers:
    """The workers of this process; every active thread has one."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._lock = threading.Lock()
        atexit.register(self.close)

    def run(self, part: _Part | None, statement: str, rows: pa.Table) -> pa.Table:
        """Return the result of a statement over some rows; functions that read rows work on the part."""
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        worker = worker or _Worker()
        table = worker.run(part, statement, rows)  # do not use a failed worker again
        with self._lock:
            self._idle.append(worker)
        return table

    def close(self) -> None:
        """Close the idle workers."""
        with self._lock:
            for worker in self._idle:
                worker.connection.close()
            self._idle.clear()


_workers = _Workers()


class PartStatements:
    """Runs the statements of a task in this process; a `dpsql.engines.task.TaskStatements`."""

    def fold(self, task: Task, rows: pa.Table) -> Collector:
        """Return a task's collector with some rows added."""
        if with_judged(task.call.plan, rows.schema) != task.call.plan:
            raise ParameterError(
                "P083", "condition: a part of the rows has columns of other types. Cast them in a view."
            )
        part = _Part(task)
        numbers = _workers.run(part, part_sql(_of_part(task), task.function, task.number, task.blocks), rows)
        return part.running(_TICKET).complete(numbers.column(0)[0])

    def parts(self, task: Task, rows: pa.Table) -> pa.Array:
        """Return the part of each row, in row order; NULL for rows without a privacy unit.

        DuckDB loses the order of a table of ten batches or more, even in one thread, if a subquery is next to the scan.
        So every row carries its position.
        """
        statement = split_sql(_of_part(task), task.function, task.number, task.blocks, task.parts)
        table = _workers.run(_Part(task), statement, rows.append_column(POSITION, pa.array(np.arange(len(rows)))))
        order = np.empty(len(rows), dtype=np.int64)
        order[table.column(POSITION).to_numpy()] = np.arange(len(rows))  # this fails unless every row came
        return single_chunk(table.column(PART)).take(pa.array(order))

    def fingerprint(self, rows: pa.Table) -> int:
        """Return the sum of each row's hash. The sum does not depend on the rows' order or division."""
        [total] = _workers.run(None, f"SELECT coalesce(sum(hash({ROWS})), 0) FROM {ROWS}", rows).column(0)
        return int(total.as_py())


def _of_part(task: Task) -> Plan:
    return replace(task.call.plan, source=ROWS, placement=None)


def with_judged(plan: Plan, schema: pa.Schema) -> Plan:
    """Return a plan whose condition is judged for rows of these types.

    Raises
    ------
    ParameterError
        P080, P082, P084: the condition does not fit. P083: the types are unknown.
    """
    if plan.condition is None:
        return plan
    types = _types(plan.condition, schema)
    judgement = None if types is None else judged(plan.condition, types, ONE)
    plan = replace(plan, judged=judgement)
    refuse_other_types(plan, None if judgement is None else judgement.types)
    return plan


@lru_cache(maxsize=64)  # every part of the rows calls this
def _types(condition: str, schema: pa.Schema) -> ColumnTypes | None:
    """Return the types of a condition's columns in a worker's DuckDB."""
    query = text(types_query(ROWS, condition))
    statement = f"SELECT system.main.json_serialize_plan({query}, optimize := true)::VARCHAR AS plan"
    table = _workers.run(None, statement, schema.empty_table())
    return typed_columns(condition, table.column("plan")[0].as_py())


def column_types(plan: Plan, schema: pa.Schema) -> tuple[pa.StructType, tuple[str, ...]]:
    """Return the types of a call's columns by their role in the call, and the SQL types of its grouping columns."""
    statement = types_sql(replace(plan, source=ROWS, placement=None), plan.function)
    table = _workers.run(None, statement, schema.empty_table())
    return table.schema.field("probe").type, tuple(table.column("spelled")[0].as_py() or ())
