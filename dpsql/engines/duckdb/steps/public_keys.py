"""Public keys: cast to the types of their columns, checked before a row is read, and matched with the keys of rows."""

from __future__ import annotations

from collections.abc import Iterator

from dpsql.engines.duckdb.keys import key
from dpsql.engines.duckdb.steps.source import typed_key
from dpsql.engines.duckdb.steps.step import GroupedFrame, Step, select
from dpsql.functions.grouped.plan import GroupedPlan
from dpsql.rendering import call, cast, field, identifier, struct


def listed_keys(plan: GroupedPlan) -> str:
    """Return the query of the keys that a public table lists, as one list of lists of texts, in their order."""
    names = [identifier(name) for name in plan.by]
    order = ", ".join(f"{name} ASC NULLS LAST" for name in names)
    rows = call("list", f"{call('list_value', *(cast(name, 'VARCHAR') for name in names))} ORDER BY {order}")
    return f"SELECT {rows} FROM (SELECT DISTINCT {', '.join(names)} FROM {plan.keys_table})"


def public_keys(frame: GroupedFrame) -> Iterator[Step]:
    """Yield the steps of the listed keys, as numbers and texts by their positions; none without groups."""
    plan, lists, ticket = frame.plan, [], frame.ticket
    if not plan.by:
        return
    if plan.keys_table is not None and frame.only is None:  # a call that runs a pass alone has learned them
        learned = call("dpsql_learn_keys", frame.ticket, f"({listed_keys(plan)})")
        yield Step("learned", "Read the keys that a public table lists.", f"SELECT {learned} AS ticket", kept=True)
        ticket = frame.ticket_of("learned")
    for column in frame.columns:
        yield _listed(frame, column, ticket)
        entry = struct({name: name for name in ("p", "number", "data", "wrong")})
        rows = call("list", f"{entry} ORDER BY p ASC NULLS LAST")
        lists.append(f"(SELECT {rows} FROM {frame.name(f'listed{column}')})")
    checked = call("dpsql_check_keys", ticket, call("list_value", *lists))
    note = "Refuse a key that is no value of its column's type, or stands twice, before any row is read."
    yield Step("checked", note, f"SELECT {checked} AS ticket", kept=True)
    if plan.lists_combinations:
        combined = call("unnest", call("dpsql_key_rows", ticket))
        parts = [f"{call('list_extract', 'f', str(column + 1))} AS p{column}" for column in frame.columns]
        note = "The public combinations of keys, by their positions."
        yield Step("combinations", note, select(parts, f"(SELECT {combined} AS f)"), kept=True)


def _listed(frame: GroupedFrame, column: int, ticket: str) -> Step:
    listed = call("unnest", call("dpsql_key_list", ticket, str(column)))
    witness = f"SELECT {typed_key(column)} AS witness FROM {frame.name('types')}"
    # A column of its own: DuckDB 1.5.6 moves the cast of a struct's field out of TRY.
    texts = f"SELECT {field('f', 'p')} AS p, {field('f', 'text')} AS given FROM (SELECT {listed} AS f)"
    value = f"TRY({call('cast_to_type', 'given', 'witness')})"
    number, data = key("value", frame.zero)
    return Step(
        f"listed{column}",
        "The public keys of a column by their positions, cast to its type: a number, or a text compared by its bytes.",
        select(
            ["p", f"{number} AS number", f"{data} AS data", "given IS NOT NULL AND value IS NULL AS wrong"],
            f"(SELECT p, given, {value} AS value FROM ({texts}) LEFT JOIN ({witness}) ON true)",
        ),
        kept=True,
    )


def mapped(frame: GroupedFrame, name: str, rows: str, *columns: str) -> Step:
    """Return the step that gives rows the positions of their keys; those of other keys are dropped, or all in one."""
    other, joins = frame.plan.other, []
    for column in frame.columns:
        found = f"found{column}"
        joins.append(
            f"{'LEFT JOIN' if other else 'JOIN'} {frame.name(f'listed{column}')} AS {found} ON {found}.number "
            f"IS NOT DISTINCT FROM k{column}_number AND {found}.data IS NOT DISTINCT FROM k{column}_data"
        )
    parts = [f"found{column}.p AS p{column}" for column in frame.columns]
    query = select([*columns, *parts], "\n    ".join((rows, *joins)))
    positions, combinations = ", ".join(frame.keys), frame.name("combinations")
    listed = frame.keys
    if frame.plan.lists_combinations and other:
        known = f"(SELECT {positions}, true AS known FROM {combinations})"
        query = select([*columns, positions, "known"], f"({query}) LEFT JOIN {known} USING ({positions})")
        listed = ["known"]
    elif frame.plan.lists_combinations:
        query = select(["*"], f"({query}) SEMI JOIN {combinations} USING ({positions})")
    if other:  # the position -1 stands for all other keys
        condition = " AND ".join(f"{name} IS NOT NULL" for name in listed)
        pooled = [f"CASE WHEN {condition} THEN {name} ELSE -1 END AS {name}" for name in frame.keys]
        query = select([*columns, *pooled], f"({query})")
    what = "Other keys are one more group, at -1." if other else "Rows of other keys go."
    return Step(name, f"The position of the public key that a row, or a group, has. {what}", query)
