"""Passes over the rows: each hands them to the call's collector, in batches, and all but the first wait for a round."""

from __future__ import annotations

from collections.abc import Iterator

from dpsql.contract.call import LONG_POSITIONS, LONG_TARGET, LONG_VALUES
from dpsql.contract.plan import COLLECTED
from dpsql.engines.duckdb.steps.rows import NO_KEY, block_key, counted
from dpsql.engines.duckdb.steps.step import Frame, Step
from dpsql.rendering import call, struct

# Up to so many columns one thread hands rows over faster, or at less cost, than several.
_FEW_COLUMNS = 17


def in_passes(frame: Frame) -> Iterator[Step]:
    """Yield the steps that read the rows as often as the call asks for, and the statistic."""
    if frame.only is not None:
        yield from _pass(frame, frame.only, frame.ticket)
        yield statistic(frame, frame.only)
        return
    ticket, last = frame.ticket, frame.plan.passes
    for number in range(1, last):
        yield from _pass(frame, number, ticket)
        yield turn(frame, number)
        ticket = frame.ticket_of(f"turn{number}")
    yield from _pass(frame, last, ticket)
    yield statistic(frame, last)


def _pass(frame: Frame, number: int, ticket: str) -> Iterator[Step]:
    """Yield the steps of one pass over the rows, which waits for its ticket."""
    plan, key = frame.plan, block_key(frame)
    if plan.layout.kind == "long":
        parts = {LONG_TARGET: "target", LONG_POSITIONS: "js"}
        if plan.statistic == COLLECTED:
            parts[LONG_VALUES] = "vs"
        gathered = f"{frame.name('gathered')} WHERE {ticket} IS NOT NULL"
        rows = f"(SELECT {struct(parts)} AS dpsql_row, {key} AS key FROM {gathered})"
    else:
        yield counted(frame, f"rows{number}", ticket, keyed=True)
        rows = f"(SELECT dpsql_row, {key} AS key FROM {frame.name(f'rows{number}')})"
    given, note = ["dpsql_row"], "Every row"
    if key != NO_KEY:
        given.append("key")
        note += ", with the keyed hash that decides its block"
    if frame.blocks:
        block = call("%", "key", f"{frame.blocks}::UBIGINT")
        rows = f"(SELECT dpsql_row, {block} AS key FROM {rows})"
        rows = f"(SELECT *, {call('count_star')} OVER (PARTITION BY key) AS size FROM {rows})"
        given.append("size")
        note += ", block by block, and the number of rows in the block"
    columns = ", ".join(given)
    if _in_one_thread(frame):
        rows = f"(SELECT {columns}, {call('row_number')} OVER () AS position FROM {rows})\n  WHERE position > 0"
        note += "; rows are numbered, so that one thread hands them over"
    yield Step(f"keyed{number}", f"{note}.", f"SELECT {columns}\n  FROM {rows}")
    yield batches(frame, number, frame.name(f"keyed{number}"), ticket, *given)


def batches(frame: Frame, number: int, rows: str, ticket: str, *given: str) -> Step:
    """Return the step that hands rows to the collector of a pass, and has the numbers of its batches."""
    collect = call("dpsql_collect", ticket, *given)
    return Step(
        f"parts{number}",
        "Add up each batch of rows in exact integers; what is left here is the batch's number.",
        f"SELECT s\n  FROM (SELECT {collect} AS s FROM {rows})\n  WHERE s IS NOT NULL",
    )


def turn(frame: Frame, number: int) -> Step:
    """Return the step that ends a pass and hands its ticket on; a pass that runs alone follows one that ended."""
    ticket = frame.ticket
    if frame.only is None:
        found = f"(SELECT {call('list', 's')} FROM {frame.name(f'parts{number}')})"
        ticket = call("dpsql_turn", frame.ticket, str(number), found)
    note = "Draw what the next pass over the rows needs, which the call pays for."
    return Step(f"turn{number}", note, f"SELECT {ticket} AS ticket", kept=True)


def statistic(frame: Frame, last: int) -> Step:
    """Return the statistic that consists of the numbers of a pass's batches."""
    note = "The exact statistic is with the collector; here are the numbers of the batches that it took in."
    return Step("statistic", note, f"SELECT s, s AS j FROM {frame.name(f'parts{last}')}")


def _in_one_thread(frame: Frame) -> bool:
    """Whether one thread hands all rows over, because more would only wait for Python's lock.

    DuckDB numbers rows in one thread. Every number is positive; the comparison keeps them from being left out.
    """
    plan = frame.plan
    columns = plan.row_columns
    few = columns is not None and len(columns) <= _FEW_COLUMNS
    return plan.adds_fast and few and plan.layout.kind == "wide" and plan.layout.privacy_unit is None
