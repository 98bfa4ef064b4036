"""A readable account of what a statement would run and charge. Nothing is read, drawn or charged.

The statement is built by the same code that builds the one that runs (`dpsql.engines.duckdb.statements`), with the
same steps in the same order. It is written for people: functions by their plain names, steps without the random suffix
that keeps them apart from the caller's tables, and ``$ticket`` for the ticket that each scan waits for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.contract.condition import condition_sql
from dpsql.contract.cost import loss_text
from dpsql.contract.names import source_sql
from dpsql.contract.parameters import show
from dpsql.contract.plan import Plan
from dpsql.engines.driver import call_of
from dpsql.engines.duckdb.planned import Planned
from dpsql.engines.duckdb.running import protection, row_text
from dpsql.engines.duckdb.session import Session
from dpsql.engines.duckdb.statements import Statement
from dpsql.engines.task import is_direct, parts_of, read_columns
from dpsql.errors import DpsqlError, ParameterError
from dpsql.ledger.recording import guarantee_text
from dpsql.rendering import call, identifier, readable, text

if TYPE_CHECKING:
    import duckdb

# The purpose of each step of a statement; a number at the end of a step's name is that of its pass.
NOTES = {
    "gate": "Check arguments, column types and budget before any row is read. Every scan below waits for this ticket.",
    "input": "Name the columns by their part in the call, in the rows that meet its condition.",
    "center": "The centre of the target: 0 between its public bounds, or a private mean, which the call pays for.",
    "target_sums": "Two exact integer sums, from which the private mean of the target is drawn.",
    "rows": "The rows that count: at most so many of one privacy unit, chosen by a keyed hash of what they hold.",
    "parts": "Add up each batch of rows in exact integers: what one batch contributes to every sum.",
    "cells": "One line for each number of each batch, or each cell of the long rows.",
    "statistic": "The exact statistic: integers, or the numbers of the batches that were taken in. It never leaves.",
    "features": "The public names of the features, by their position.",
    "documents": "One row for each row id: of several targets the largest counts. Rows beyond the cap of a unit go.",
    "present": "One row for each feature that a row has: of duplicates the largest value counts.",
    "centred": "The target less its centre, clipped again to its bounds.",
    "sums": "For each feature, what the cells that are present add to the sum.",
    "scored": "Label and score of every row. The gate adds 0 to each score, which hides it from column statistics.",
    "groups": "Count rows by label and by cell of the score's public grid.",
    "judged": "Say which of the two public levels a label is; other rows count for nothing.",
    "counts": "Counts by level and cell.",
    "names": "Number the distinct names; the numbers mean nothing.",
    "vocabulary": "Tell the collector the names.",
    "gathered": "One row for each row id, with the list of its features. Rows beyond the caps go.",
    "keyed": "Every row, with the keyed hash that decides its block, where the call has blocks.",
    "turn": "Draw what the next pass over the rows needs.",
    "listed": "The public keys of a column, cast to its type.",
    "checked": "Refuse a key that is no value of its column's type, or stands twice, before any row is read.",
    "combinations": "The public combinations of keys.",
    "learned": "Read the keys that a public table lists.",
    "scanned": "The values of all rows, of each unit as many as count: private bounds are drawn from them.",
    "drawn": "The private bounds of each target, and how its values are coded within them.",
    "opened": "The key and the values of every row. The gate adds 0 to values, which hides them from statistics.",
    "valued": "The values in fixed point, within their bounds; NULL and NaN have none.",
    "mapped": "Map each row to one public key. Rows of other keys go, or are the group of other keys.",
    "merged": "One row for each unit and group: the sum of its values, or one for each different item.",
    "kept": "At most so many groups of one unit, rows of it in a group, and rows in all, by keyed hashes.",
    "grouped": "The exact sums of every group.",
    "placed": "Map each group to one public key. Groups of other keys go, or are added up.",
    "numbered": "Number the private keys; the numbers mean nothing.",
    "released": "Draw all noise, and take the keys whose noisy count reaches the threshold.",
    "labelled": "The released keys by their names, in the order of their type.",
}
_STEP = re.compile(r"([a-z_]+?)\d*")


def readable_sql(plan: Plan, function: str) -> str:
    """Return the statement of a call for people to read: `release_sql`, step by step."""
    with readable():
        definitions, _, last = _ReadableStatement(plan, function).release().rpartition("\nSELECT ")
    last = _indented(f"SELECT {last}")
    return f"{definitions}\n\n-- Charge, draw and store, in one transaction of the ledger.\n{last};"


def engine_text(session: Session, plan: Plan, function: str) -> str:
    """Return what a call runs on the engine that holds its source, for people to read; no row is read."""
    attached = session.engine(plan.engine)
    try:
        call, schema = call_of(attached, plan)
    except DpsqlError as error:
        return f"-- refused now: {error}"
    first = call.start()
    parts, columns = 0 if first is None else parts_of(plan, first, attached.parts), read_columns(plan, schema)
    readings = "1 pass" if plan.passes == 1 else f"{'at most ' * plan.may_stop_early}{plan.passes} passes"
    grouped = f", grouped into {parts} parts by a keyed hash" if parts else ""
    lines = [
        f"-- engine {attached.name}: {attached.label}",
        f"-- {readings} over the rows{grouped}; columns read: {', '.join(map(show, columns))}",
    ]
    if is_direct(plan):
        lines.append("-- A worker adds up the rows of a partition in exact integers.")
    else:
        held = "a part" if parts else "a partition"
        lines.append(f"-- A worker adds up the rows of {held} in exact integers. Its own DuckDB reads them so:")
        lines += _worker_statements(plan, function)
    lines.append("-- Only sums leave the workers. The driver merges them.")
    if plan.passes > 1:
        lines.append("-- Between two passes it draws what the next one needs, which the call pays for.")
    lines.append("-- Then charge, draw and store, in one transaction of the ledger.")
    return "\n".join(lines)


def _worker_statements(plan: Plan, function: str) -> Iterator[str]:
    """Yield the statements of the passes; of passes that differ in their number alone, the first."""
    seen = set()
    with readable():
        for number in range(1, plan.passes + 1):
            statement = _ReadableStatement(replace(plan, source="rows_of_worker"), function, only=number)
            shown = f"\n{statement.definitions()}\n{_indented(f'SELECT {statement.statistic} AS statistic')};\n"
            if re.sub(r"\d", "", shown) not in seen:
                seen.add(re.sub(r"\d", "", shown))
                yield shown


class _ReadableStatement(Statement):
    """A statement with a comment, and a query on lines of its own, for each step."""

    def __init__(self, plan: Plan, function: str, *, only: int | None = None) -> None:
        super().__init__(plan, function, only=only)
        self.ticket, self.zero = "$ticket", "$zero"
        self._rows_shown: list[str] = []

    def definitions(self) -> str:
        """Return the WITH clause."""
        return super().definitions().replace("WITH \n", "WITH\n", 1)

    def _name(self, step: str) -> str:
        return step

    def _step(self, step: str, query: str, *, kept: bool = False) -> str:
        body = _indented(query, by="  ")
        before = "".join(f"{rows}," for rows in self._rows_shown)
        self._rows_shown.clear()
        return f"{before}\n-- {note_of(step)}\n{step} AS {'MATERIALIZED ' if kept else ''}(\n{body}\n)"

    def _rows(self, *more: str, ticket: str = "") -> str:
        """Return the name of the rows, which are a step of their own here."""
        number = re.sub(r"\D", "", ticket)
        query = super()._rows(*more, ticket=ticket)[1:-1]
        self._rows_shown.append(self._step(f"rows{number}", query))
        return f"rows{number}"

    def _gate(self) -> str:
        columns, _ = self._columns("source", checked=False)
        query = f"SELECT {columns} FROM {source_sql(self.plan.source)} AS source"
        if self.plan.condition is not None:
            query += f" WHERE {condition_sql(self.plan.condition, identifier)}"
        rows = self._step("input", query)
        if self.only is not None:  # the driver has checked everything
            return rows
        checked = call("dpsql_gate", text(self.function), "$arguments", "$column_types", "$views")
        return f"{rows},\n{self._step('gate', f'SELECT {checked} AS ticket', kept=True)}"

    def _input(self, *, probed: bool = False, also: tuple[str, ...] = ()) -> str:
        return "input"


def note_of(step: str) -> str:
    """Return the purpose of a step."""
    found = _STEP.fullmatch(step)
    return NOTES[step if found is None else found.group(1)]


def _indented(query: str, by: str = "") -> str:
    """Return a query on several lines."""
    import sqlglot

    shown = sqlglot.transpile(query, read="duckdb", write="duckdb", pretty=True, normalize_functions=False)[0]
    return "\n".join(by + line for line in shown.splitlines())


def explain(session: Session, connection: duckdb.DuckDBPyConnection, statement: str) -> str:
    """Return what a statement would run and charge, as SQL with comments.

    Parameters
    ----------
    session : Session
    connection : duckdb.DuckDBPyConnection
        Where the statement would run; its tables and settings decide what names mean.
    statement : str
        One SQL statement.

    Returns
    -------
    explanation : str
        A comment and a statement for each private call in it.

    Raises
    ------
    ParameterError
        P064: it is not one statement.
    duckdb.Error
        DuckDB, or a check of public arguments, refuses the statement.

    Notes
    -----
    DuckDB binds the statement, which plans each call, and does not run it. It would run what stands behind a semicolon,
    behind ANALYZE, and the steps before the last one of a dynamic PIVOT: so the statement is parsed by itself first.
    """
    calls = list(dict.fromkeys(planned_calls(session, connection, statement)))
    if not calls:
        return "-- No private call: nothing would be charged."
    return "\n\n".join(_explained(session, one) for one in calls)


def planned_calls(session: Session, connection: duckdb.DuckDBPyConnection, statement: str) -> list[Planned]:
    """Return every private call of a statement, in its order; parameters, errors and notes as of `explain`."""
    found = connection.extract_statements(statement)
    if [one.type.name for one in found] in ([], ["EXPLAIN"], ["MULTI"]) or len(found) > 1:
        raise ParameterError(
            "P064",
            "explain takes one statement, which DuckDB runs in one step. Give it without EXPLAIN or ANALYZE, and "
            "without a PIVOT whose columns follow from the rows.",
        )
    with session.planning() as planned:
        connection.execute(f"EXPLAIN {statement}").fetchall()
    # The macro of the aggregate form asks for its plan twice.
    aggregates = [one for one in planned if one.aggregate]
    return [one for one in planned if not one.aggregate] + aggregates[::2]


def _explained(session: Session, one: Planned) -> str:
    lines = [f"-- {' '.join(line.split())}" for line in _costs(session, one)]  # names may hold line breaks
    if one.aggregate:
        lines.append("-- The aggregate form has no statement of its own: dpsql gets the rows of yours as one list.")
    elif one.replays:
        lines.append("-- No table is read: the ledger holds the result.")
    else:
        of_duckdb = one.plan.engine is None
        shown = readable_sql(one.plan, one.function) if of_duckdb else engine_text(session, one.plan, one.function)
        lines += ["", shown]
    return "\n".join(lines)


def _costs(session: Session, one: Planned) -> list[str]:
    """Return what a call would cost, line by line."""
    plan = one.plan
    name = f"{one.function} on {plan.source}" if plan.source else f"{one.function}, aggregate form"
    if one.replays:
        return [name, f"charges nothing: it returns the stored release {plan.release!r}"]
    remaining = {row.dataset: row.remaining_text for row in session.ledger.budgets()}
    cost = plan.event.cost
    loss = loss_text(cost)
    charges = [
        f"charges {dataset}: {loss}; remaining {remaining.get(dataset, 'unlimited')}" for dataset in plan.charged
    ]
    guarantee = guarantee_text(cost, row=row_text(plan), lineage=plan.lineage, **protection(plan))
    refusal = [f"refused now: {one.refusal}"] if one.refusal else []
    return [name, *charges, f"guarantee {guarantee}", *refusal]
