"""Private bounds: a pass of its own over the values of all rows, from which the bounds of the targets are drawn."""

from __future__ import annotations

from collections.abc import Iterator

from dpsql.engines.duckdb.steps.grouped_frame import UNIT, GroupedFrame
from dpsql.engines.duckdb.steps.passes import batches, turn
from dpsql.engines.duckdb.steps.rows import identities
from dpsql.engines.duckdb.steps.source import rows_of
from dpsql.engines.duckdb.steps.step import Step, select
from dpsql.engines.duckdb.unit_sample import sampled
from dpsql.rendering import call, struct


def bounds_pass(frame: GroupedFrame) -> Iterator[Step]:
    """Yield the steps that hand the values of all rows over, of each unit as many as count.

    Rows of all groups count, and of each unit a sample of as many as its limits leave in all groups.
    """
    values = {f"v{position}": f"v{position}" for position in range(len(frame.plan.targets))}
    parts = [f"{frame.number(f't{position}')} AS v{position}" for position in range(len(values))]
    condition, note = f"WHERE {frame.waits_for} IS NOT NULL", "The values of all rows, to draw bounds from"
    if frame.has_unit:
        parts += identities("unit")
        condition += " AND dpsql_unit IS NOT NULL"
    rows = select(parts, rows_of(frame), condition)
    if frame.has_unit:
        most = frame.plan.max_rows_per_unit
        rows = select(["*"], f"({rows})", f"QUALIFY {sampled(frame.ticket, list(UNIT), list(values), most)}")
        note += f": of each unit at most {most}, sampled by a keyed hash"
    yield Step("scanned", f"{note}.", rows)
    yield batches(frame, 1, frame.name("scanned"), frame.ticket, struct(values))


def drawn_bounds(frame: GroupedFrame) -> Iterator[Step]:
    """Yield the steps that ask how values are coded, once the bounds are drawn."""
    yield turn(frame, 1)
    coded = call("dpsql_drawn_codes", frame.ticket_of("turn1"))
    note = "The private bounds of each target, and how its values are coded within them."
    yield Step("drawn", note, f"SELECT {coded} AS drawn", kept=True)
