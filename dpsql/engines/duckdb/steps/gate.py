"""The gate: it checks types and budget before any row is read, and every scan waits for its ticket."""

from __future__ import annotations

from dpsql.engines.duckdb.filtering import NAMED
from dpsql.engines.duckdb.result_rows import texts_sql
from dpsql.engines.duckdb.steps.source import key_types
from dpsql.engines.duckdb.steps.step import Frame, Step
from dpsql.rendering import call, field, struct, text


def gate(frame: Frame) -> Step:
    """Return the step of the ticket, and of a zero that nobody knows when the statement is planned."""
    if frame.only is not None:
        return Step(
            "gate",
            "Arguments, column types and budget were checked where the call began. Every scan waits for this ticket.",
            f"SELECT {call('dpsql_part')} AS gate",
            kept=True,
        )
    plan, keys, condition = frame.plan, key_types(frame), _condition_types(frame)
    given = [text(frame.function), text(plan.to_json()), f"(SELECT probe FROM {frame.name('types')})", texts_sql(plan)]
    given += [*(keys or ["NULL::VARCHAR[]"]), *condition] if condition else keys
    return Step(
        "gate",
        "Check arguments, column types and budget before any row is read. Every scan below waits for this ticket.",
        f"SELECT {call('dpsql_gate', *given)} AS gate",
        kept=True,
    )


def _condition_types(frame: Frame) -> list[str]:
    """Return the types of the columns that the condition reads, as one text; nothing without a condition."""
    judged = frame.plan.judged
    if judged is None or not judged.columns:
        return []
    columns = struct({name: field(field("probe", NAMED), name) for name in judged.columns})
    return [call("typeof", f"(SELECT {columns} FROM {frame.name('types')})")]
