"""The limit on a unit's rows where a query draws it: the rows of every unit as one value, and the wait for the limit.

The rows of a unit are those of its own identity, in which periods are a part; so every unit has one value, whatever
others have. No other part of the core reads a row before the limit is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator

from dpsql.engines.duckdb.steps.rows import batches, turn, units
from dpsql.engines.duckdb.steps.source import rows_of
from dpsql.engines.duckdb.steps.step import Frame, Step, select
from dpsql.functions.query_rows import STEPS, step_of
from dpsql.rendering import call, field, struct


def rows_of_units(frame: Frame, limits: int) -> Iterator[Step]:
    """Yield the steps that count the rows of every unit, hand the counts over, and draw one of so many limits."""
    condition = f"WHERE {frame.ticket} IS NOT NULL AND dpsql_unit IS NOT NULL"
    rows = select(units(frame), rows_of(frame), condition)
    yield Step("owned", "The unit of every row.", rows)
    counted = select([f"{call('count_star')} AS n"], frame.name("owned"), f"GROUP BY {', '.join(frame.unit)}")
    value = struct({STEPS: step_of("n", limits)})
    yield Step("held", "How many rows a unit has, one value for each unit.", f"SELECT {value} AS r FROM ({counted})")
    yield batches(frame, 1, frame.name("held"), frame.ticket, "r")
    yield turn(frame, 1)
    yield Step("statistic", "The limit is drawn.", "SELECT CAST(NULL AS BIGINT) AS s, 0 AS j WHERE false")


def limited(frame: Frame, drawing: Frame) -> Step:
    """Return the step of the ticket of a part whose limit another one draws, and of the limit."""
    before = f"(SELECT {field('gate', 'ticket')} FROM {frame.name('gate')})"
    learned = call("dpsql_learn_rows", before, drawing.closing_ticket)
    return Step(
        "limited",
        "As many rows of each unit count as were drawn. Every scan below waits for this ticket.",
        select(["ticket", f"{call('dpsql_limit', 'ticket')} AS most"], f"(SELECT {learned} AS ticket)"),
        kept=True,
    )
