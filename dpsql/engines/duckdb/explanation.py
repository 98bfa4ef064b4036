"""Show the work and the cost of a statement. This reads, draws and charges nothing.

An explanation shows each call as its statement (`dpsql.engines.duckdb.planner`), with a note before each step. You
can paste the statement in the same place: it is then the call, with checks, charge and release. Only the suffix of the
step names is random for each statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.contract.events import loss_text
from dpsql.contract.parameters import show
from dpsql.contract.periods import During
from dpsql.contract.plan import Plan
from dpsql.engines.attached import engines_of
from dpsql.engines.driver import call_of
from dpsql.engines.duckdb.part import ROWS
from dpsql.engines.duckdb.planner import Planned, call_sql, part_sql
from dpsql.engines.duckdb.running import protection, row_text
from dpsql.engines.duckdb.session import Session
from dpsql.engines.task import is_direct, parts_of, read_columns
from dpsql.errors import DpsqlError, ParameterError
from dpsql.ledger.blocks import of_person
from dpsql.ledger.charge import guarantee_text
from dpsql.ledger.rows import budget_row, total_row

if TYPE_CHECKING:
    import duckdb


def engine_text(session: Session, plan: Plan, function: str) -> str:
    """Return the work of a call on its source's engine, as text for people; this reads no row."""
    attached = engines_of(session).named(plan.engine)
    try:
        call, schema = call_of(attached, plan)
    except DpsqlError as error:
        return f"-- refused now: {error}"
    first = call.start()
    parts, columns = 0 if first is None else parts_of(plan, first, attached.parts), read_columns(plan, schema)
    at_most = "at most " * any(scan.may_stop for scan in plan.passes)
    readings = "1 pass" if plan.readings == 1 else f"{at_most}{plan.readings} passes"
    grouped = f", grouped into {parts} parts by a keyed hash" if parts else ""
    lines = [
        f"-- engine {attached.name}: {attached.label}",
        f"-- {readings} over the rows{grouped}; columns read: {', '.join(map(show, columns))}",
    ]
    if is_direct(plan):
        lines.append("-- A worker adds up the rows of a partition in exact integers.")
    else:
        portion = "a part" if parts else "a partition"
        lines.append(f"-- A worker adds up the rows of {portion} in exact integers. Its own DuckDB reads them so:")
        lines += _worker_statements(plan, function)
    lines.append("-- Only sums leave the workers. The driver merges them.")
    if plan.readings > 1:
        lines.append("-- Between two passes it draws what the next one needs, which the call pays for.")
    lines.append("-- Then charge, draw and store, in one transaction of the ledger.")
    return "\n".join(lines)


def _worker_statements(plan: Plan, function: str) -> Iterator[str]:
    """Yield the statements of the passes; if passes differ only in their number, yield the first."""
    of_worker, seen = replace(plan, source=ROWS, placement=None), set()
    for number in range(1, plan.readings + 1):
        statement = f"{part_sql(of_worker, function, number, None, noted=True)};\n"
        passed = re.sub(r"_[0-9a-f]{16}\b|\d", "", statement)
        if passed not in seen:
            seen.add(passed)
            yield statement


def explain(session: Session, connection: duckdb.DuckDBPyConnection, statement: str) -> str:
    """Return the work and the cost of a statement, as SQL with comments.

    Parameters
    ----------
    session : Session
    connection : duckdb.DuckDBPyConnection
        Where the statement would run; its tables and settings decide the meaning of names.
    statement : str
        One SQL statement.

    Returns
    -------
    explanation : str
        A comment and a statement for each private call.

    Raises
    ------
    ParameterError
        P064: `statement` is not one statement.
    duckdb.Error
        DuckDB, or a check of public arguments, refuses the statement.

    Notes
    -----
    DuckDB binds the statement, which plans each call, and does not run it. DuckDB would run a statement after a
    semicolon or after ANALYZE, and all but the last step of a dynamic PIVOT: so `explain` parses the statement first.
    """
    calls: list[Planned] = []
    for call in planned_calls(session, connection, statement):
        if call not in calls:  # plans of queries have no hash
            calls.append(call)
    if not calls:
        return "-- No private call: nothing would be charged."
    return "\n\n".join(_explained(session, call) for call in calls)


def planned_calls(session: Session, connection: duckdb.DuckDBPyConnection, statement: str) -> list[Planned]:
    """Return every private call of a statement, in order; for parameters, errors and notes see `explain`."""
    extracts = connection.extract_statements(statement)
    if [extract.type.name for extract in extracts] in ([], ["EXPLAIN"], ["MULTI"]) or len(extracts) > 1:
        raise ParameterError(
            "P064",
            "explain takes one statement, which DuckDB runs in one step. Give it without EXPLAIN or ANALYZE, and "
            "without a PIVOT whose columns follow from the rows.",
        )
    with session.planning() as planned:
        connection.execute(f"EXPLAIN {statement}").fetchall()
    # The macro of the aggregate form requests its plan twice.
    aggregates = [call for call in planned if call.aggregate]
    return [call for call in planned if not call.aggregate] + aggregates[::2]


def _explained(session: Session, call: Planned) -> str:
    lines = [f"-- {' '.join(line.split())}" for line in _costs(session, call)]  # names may hold line breaks
    if call.aggregate:
        lines.append("-- The aggregate form has no statement of its own: dpsql gets the rows of yours as one list.")
    elif call.replays:
        lines.append("-- No table is read: the ledger holds the result.")
    elif call.lines:
        *notes, statement = call.lines
        lines += [f"-- {' '.join(line.split())}" for line in notes]
        lines += ["", f"{statement};"]
    else:
        of_duckdb = call.plan.engine is None
        body = (
            f"{call_sql(call.plan, call.function, noted=True)};"
            if of_duckdb
            else engine_text(session, call.plan, call.function)
        )
        lines += ["", body]
    return "\n".join(lines)


def _costs(session: Session, call: Planned) -> list[str]:
    """Return the cost of a call, line by line."""
    plan = call.plan
    name = f"{call.function} on {plan.source}" if plan.source else f"{call.function}, aggregate form"
    name = call.function if call.lines else name
    if call.replays and call.lines:
        stored = session.past.replay(plan)
        entry = "" if stored is None else f" of entry {stored.sequence} of {stored.recorded_at}"
        return [name, f"charges nothing: free replay{entry}"]
    if call.replays:
        return [name, f"charges nothing: it returns the stored release {plan.release!r}"]
    remaining = {row.dataset: row.remaining_text for row in session.ledger.budgets() if row.block is None}
    cost = plan.event.cost
    loss = loss_text(cost)
    charges = [
        f"charges {dataset}: {loss}; remaining {remaining.get(dataset, 'unlimited')}" for dataset in plan.charged
    ]
    within = ""
    if plan.during is not None:
        within = plan.during.within
        charges = _blocks_charged(session, plan, plan.during)
    guarantee = guarantee_text(cost, row=row_text(plan), lineage=plan.lineage, within=within, **protection(plan))
    refusal = [f"refused now: {call.refusal}"] if call.refusal else []
    condition = [] if plan.condition is None else [f"of the rows that meet: {plan.condition}"]
    return [name, *charges, f"guarantee {guarantee}", *condition, *refusal]


def _blocks_charged(session: Session, plan: Plan, during: During) -> list[str]:
    """Return the charge of each block, and of a person who is in all blocks."""
    cost, state = plan.event.cost, next(iter(session.ledger.states([plan.dataset]).values()))
    blocks, number = session.ledger.blocks(plan.dataset), len(during.blocks)
    counted = f"{number} {'block' if number == 1 else 'blocks'}"
    lines = [f"charges {counted} of {plan.dataset}, {during.text}: {loss_text(cost)} each"]
    if blocks is not None and state.budget is not None:
        rows = (budget_row(plan.dataset, replace(state, spent=blocks.of(state.budget, name))) for name in during.blocks)
        least = min(rows, key=lambda row: row.epsilon_remaining or 0)
        lines[0] += f"; remaining {least.remaining_text}{' at least' if number > 1 else ''}"
    person = loss_text(of_person(cost, number))
    remainder = total_row(plan.dataset, state).remaining_text
    return [*lines, f"may cost one person {person}; remaining over all blocks {remainder}"]
