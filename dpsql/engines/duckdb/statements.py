"""The SQL that a call runs in the caller's own session: bound, aggregate, release.

A statement does not depend on the rows, grows only with the names of the columns, and draws nothing by itself: its
functions that read rows or draw are volatile, so EXPLAIN, DESCRIBE and PREPARE do not run them. `dpsql_gate` checks
types and budget before any row is read: every scan waits for its ticket.

Ordered steps pass the ticket on: key checks, ends of passes and the release each need the ticket that the step before
returned. Rows that wait for a ticket do not suffice: if DuckDB 1.5.6 plans a source as empty, it may never request the
ticket, and a release would come before the passes end.

A statement is a chain of steps (`dpsql.engines.duckdb.steps`), each a query with a note. An explanation adds the notes
as comments, and changes nothing else.

The contents of a source enter a statement in one place, `steps.step.rows_of`, and statements use them in only three
ways:

- *Identities* (privacy units, row ids, labels) become a number or bytes (`identity`) before any join, grouping,
  partition or hash. Names of features become a string that is compared by its bytes (`exact_text`). Collations apply to
  none of them.
- *Samples* (which rows of a unit count) and *blocks* follow from `place_hash`, a 128-bit hash of identities and
  contents under a secret key. With groups, a fast hash of 64 bits replaces it, and the hashed values break ties.
- *Values* go to dpsql's own functions over Arrow, which are opaque to DuckDB. A predicate on a column is not safe:
  DuckDB may decide it at planning time from the minimum and maximum in a Parquet file, which ignore NaN. Scores are the
  one exception: the statement adds a zero to them that only the gate knows (`steps.scores`).

No step calls a macro, not even a macro of dpsql: the holder of a connection may replace any macro, and none of DuckDB's
own functions. A value that is used twice is a column with a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from dpsql.contract.plan import COLLECTED, FEATURE_COUNTS, GROUPED, HISTOGRAM, SCORES, XTY, Plan
from dpsql.engines.duckdb.result_rows import catalogued_sql, rows_sql
from dpsql.engines.duckdb.steps import rows, step, values
from dpsql.engines.duckdb.steps.grouped import grouped_steps
from dpsql.engines.duckdb.steps.step import Frame, GroupedFrame, Step
from dpsql.engines.port import PART
from dpsql.functions.grouped.plan import GroupedPlan
from dpsql.functions.query_bounds import CoreBoundsPlan
from dpsql.functions.query_rows import RowsPlan
from dpsql.functions.registry import FUNCTIONS
from dpsql.rendering import call, cast, text

# The position column of rows that are split into parts.
POSITION = "dpsql_position"


def release_sql(plan: Plan, function: str, *, noted: bool = False) -> str:
    """Return the statement whose one value is the release: its ledger sequence and its rows.

    Columns key0, key1, … are NULLs of the result's key types. With `noted`, each step has its note.
    """
    frame = _frame(plan, function)
    note = "-- Charge, draw and store, in one transaction of the ledger.\n" if noted else ""
    released = call(f"dpsql_release_{FUNCTIONS[function].shape.name}", frame.closing_ticket, _statistic(frame))
    keys = plan.key_columns if isinstance(plan, GroupedPlan) else ()
    by = len(plan.by) if isinstance(plan, GroupedPlan) else 0
    types = [f"(SELECT {step.typed_key(number)} FROM {frame.name('types')})" for number in range(by)]
    types += ["NULL::BOOLEAN"] * (len(keys) - by)
    witnesses = "".join(f", {kind} AS key{number}" for number, kind in enumerate(types))
    return f"{_definitions(frame, noted=noted)}\n{note}SELECT {released} AS release{witnesses}"


def call_sql(plan: Plan, function: str, *, noted: bool = False) -> str:
    """Return the statement that a call of a table function runs: the rows of its release."""
    return rows_sql(plan, release_sql(plan, function, noted=noted))


def statistic_sql(plan: Plan, function: str) -> str:
    """Return the statement with one value, the exact statistic as a list. Not private."""
    return _statistic_sql(_frame(plan, function))


def exact_sql(plan: Plan, function: str) -> str:
    """Return the statement of the exact statistic, one row per feature. Not private."""
    frame = _frame(plan, function)
    listed = call("unnest", call(f"dpsql_{function}", frame.ticket, _statistic(frame)))
    entry = call("unnest", "entry")  # entry.* is a struct_extract, which a caller's macro can replace
    return f"{_definitions(frame)}\nSELECT {entry} FROM (SELECT {listed} AS entry)"


def part_sql(plan: Plan, function: str, number: int, blocks: int | None, *, noted: bool = False) -> str:
    """Return the statement that folds some rows of a call, in pass `number` alone, without its gate.

    Its one value is the list of the collected batches' numbers. `blocks` is the number of blocks that the pass takes as
    wholes, or None for the plan's number for every pass. With `noted`, each step has its note.
    """
    return _statistic_sql(_frame(plan, function, number, blocks), noted=noted)


def split_sql(plan: Plan, function: str, number: int, blocks: int, parts: int) -> str:
    """Return the query of each row's part and position; the part is NULL for rows without a privacy unit."""
    frame = _frame(plan, function, number, blocks)
    return f"{_with(frame, [step.gate(frame)])}\n{rows.parts_of_rows(frame, PART, POSITION, parts)}"


def types_sql(plan: Plan, function: str) -> str:
    """Return the statement, without rows, of a call's column types and of its keys' SQL types."""
    frame = _frame(plan, function)
    [spelled] = step.key_types(frame) or ["NULL"]
    probe = f"(SELECT probe FROM {frame.name('types')})"
    return f"{_with(frame, [step.types(frame)])}\nSELECT {probe} AS probe, {spelled} AS spelled"


def part_of_query(
    plan: Plan,
    function: str,
    keyed: Frame | None = None,
    drawing: Frame | None = None,
    bounding: Frame | None = None,
) -> tuple[Frame, list[Step], str]:
    """Return a query part's frame, its steps in order, types and gate first, and the SQL of its statistic.

    The part of frame `keyed` releases the group keys, the part of `drawing` draws how many rows of a unit count, and
    the part of `bounding` draws the column bounds.
    """
    frame = replace(_frame(plan, function), drawing=drawing)
    if isinstance(frame, GroupedFrame) and isinstance(keyed, GroupedFrame):
        frame = replace(frame, keyed=keyed)
    if isinstance(frame, GroupedFrame) and isinstance(bounding, GroupedFrame):
        frame = replace(frame, bounding=bounding)
    if isinstance(plan, RowsPlan):
        steps = [step.types(frame), step.gate(frame), *rows.rows_of_units(frame, plan.cells or 1)]
    elif isinstance(plan, CoreBoundsPlan) and isinstance(frame, GroupedFrame):
        steps = [step.types(frame), step.gate(frame), *values.bounds_alone(frame)]
    else:
        steps = list(_steps(frame))
    if drawing is not None:
        steps.insert(2, rows.limited(frame, drawing))
    return frame, steps, _statistic(frame)


def admit_sql(plan: Plan) -> str:
    """Return the statement whose one value is the aggregate form's checked plan; it fails if the budget fails.

    The aggregated rows are in the enclosing statement, whose plan DuckDB serializes before it reads a row.
    """
    statement = cast(call("json_serialize_plan", call("current_query")), "VARCHAR")
    arguments = [
        text(plan.to_json()),
        statement,
        call("current_query"),
        catalogued_sql(listed=True, tables=True, keys=True),
    ]
    return f"SELECT {call('dpsql_admit', *arguments)} AS plan"


_STEPS: Mapping[str, Callable[[Frame], Iterator[Step]]] = {
    XTY: rows.products,
    HISTOGRAM: rows.counts,
    SCORES: rows.compared,
    GROUPED: grouped_steps,
    COLLECTED: rows.in_passes,
    FEATURE_COUNTS: rows.in_passes,
}


def _frame(plan: Plan, function: str, only: int | None = None, blocks: int | None = None) -> Frame:
    if isinstance(plan, GroupedPlan) and plan.statement == GROUPED:
        return GroupedFrame(plan, function, only, blocks)
    return Frame(plan, function, only, blocks)


def _steps(frame: Frame) -> Iterator[Step]:
    """Yield every step up to the statistic."""
    plan = frame.plan
    if frame.only is None or plan.statement == GROUPED:
        yield step.types(frame)
    yield step.gate(frame)
    if plan.statement == FEATURE_COUNTS:
        yield from rows.gathered_names(frame)
    elif plan.statement == COLLECTED and plan.layout.kind == "long":
        yield from rows.gathered(frame)
    yield from _STEPS[plan.statement](frame)


def _definitions(frame: Frame, *, noted: bool = False) -> str:
    return _with(frame, _steps(frame), noted=noted)


def _with(frame: Frame, steps: Iterator[Step] | list[Step], *, noted: bool = False) -> str:
    return "WITH\n" + ",\n".join(frame.sql(step, noted=noted) for step in steps)


def _statistic(frame: Frame) -> str:
    """Return the SQL of the statistic: a list of exact sums, or of the collected batches' numbers.

    The direction is explicit because the caller can set default_order.
    """
    return f"(SELECT {call('list', 's ORDER BY j ASC NULLS LAST')} FROM {frame.name('statistic')})"


def _statistic_sql(frame: Frame, *, noted: bool = False) -> str:
    return f"{_definitions(frame, noted=noted)}\nSELECT {_statistic(frame)} AS statistic"
