"""The source: the one place where its rows enter a statement, a look at their types, and the gate before them."""

from __future__ import annotations

from dpsql.contract.feature_columns import MISSING
from dpsql.contract.names import read_as_text, source_sql
from dpsql.contract.plan import Plan
from dpsql.contract.relation import columns_of
from dpsql.engines.duckdb.keys import NAMED, kept, text_of_label, valid_text
from dpsql.engines.duckdb.result_rows import texts_sql
from dpsql.engines.duckdb.steps.periods import DATE, dated
from dpsql.engines.duckdb.steps.step import Frame, Step, select
from dpsql.functions.registry import function_of
from dpsql.rendering import call, field, identifier, struct, text, with_one_spelling


def rows_of(frame: Frame, *, filtered: bool = True, typed: bool = False, also: tuple[str, ...] = ()) -> str:
    """Return the FROM item that names each column by its part in the call and makes absent columns recognizable.

    Only rows of the call's periods that meet its condition are in it, where they are `filtered`. Text is NULL unless it
    is UTF-8. For a look at types alone (`typed`) columns are as they are. `also` names columns of the source that are
    passed on.

    It is repeated wherever rows are read, instead of being a step: DuckDB 1.5.6 crashes on a frame that it finds
    as a Python variable inside a CTE that is not materialized and is read twice.

    A column that the source lacks resolves to the outer relation and shows there as a type that no
    column of interest has; the gate then refuses it with our own message. ``SELECT *`` around the source
    excludes DuckDB's pseudo-columns (rowid, file_row_number): they say where a row is, not what it holds, and
    change when another row is removed.
    """
    plan, whole = frame.plan, frame.name("source")
    is_valid = plan.placement is not None and plan.placement.checked
    parts, named = _columns(plan, whole, checked=not (typed or is_valid))
    absent = ", ".join(f"NULL::STRUCT({MISSING} BOOLEAN) AS {name}" for name in dict.fromkeys(named))
    source = source_of(plan)
    columns = [*(f"{part} AS {name}" for name, part in parts.items()), *also]
    taken = select(columns, f"{f'(SELECT * FROM {source})' if named else source} AS {whole}")
    rows = (
        f"(SELECT found.* FROM (SELECT {absent or 'NULL AS dpsql_none'}) AS {frame.name('absent')}, "
        f"LATERAL ({taken}) AS found) AS input"
    )
    if plan.chosen_by_date is not None and not typed:
        rows = dated(rows, plan.chosen_by_date, frame.zero, filtered=filtered)
        del parts[DATE]
    if not filtered or plan.condition is None:
        return rows
    return f"({kept(rows, ', '.join(parts), plan.judged, frame.zero)}) AS input"


def source_of(plan: Plan) -> str:
    """Return the FROM item of a call's source, with the joins along its path; private labels are read as text."""
    placement = plan.placement
    if placement is None:
        return source_sql(plan.source)
    found = placement.joined or source_sql(plan.source)
    return read_as_text(with_one_spelling(found, placement.loose) if placement.loose else found, placement.texts)


def _columns(plan: Plan, source: str, *, checked: bool) -> tuple[dict[str, str], list[str]]:
    """Return the columns that are selected from a source by their part in the call, and those that are named.

    Columns that must be numbers are as they are, and so is a whole row: no function of SQL takes text from them.
    """
    layout = plan.layout
    named: list[str] = []
    # Which columns of a file or a frame have labels is known only when the statement is bound.
    shown = plan.placement is None or plan.placement.seen or not plan.placement.governed

    def column(name: str | None) -> str:
        if name is None:
            return "NULL::BOOLEAN"
        named.append(identifier(name))
        return identifier(name) if shown else text_of_label(identifier(name))

    def valid(name: str | None) -> str:
        return valid_text(column(name)) if checked and name is not None else column(name)

    row = call("struct_pack", f"*COLUMNS({source}.*)")  # a row named as such is a struct_pack that a macro replaces
    columns = plan.row_columns
    if columns is not None:
        numeric = set(layout.features or ()) if layout.kind == "wide" else {layout.features}
        given = {part: (column if name in numeric else valid)(name) for part, name in columns.items()}
        row = struct(given) if given else "NULL::BOOLEAN"
    parts = {"dpsql_row": row, "dpsql_unit": valid(layout.privacy_unit), "dpsql_row_id": valid(layout.row_id)}
    if layout.kind == "long":
        parts |= {"dpsql_feature": valid(str(layout.features)), "dpsql_value": column(layout.value)}
    if plan.chosen_by_date is not None:
        parts[DATE] = column(plan.chosen_by_date.dated.column)
    if plan.condition is not None:
        parts[NAMED] = struct({name: valid(name) for name in columns_of(plan.condition)})
    return parts, named


def types(frame: Frame) -> Step:
    """Return the step of the types of all columns, and no row; every other look at types is one at it."""
    parts = _columns(frame.plan, "", checked=False)[0]
    return Step(
        "types",
        "The types of the columns, by their part in the call. No row is read.",
        select(
            [f"{struct({part: part for part in parts})} AS probe"],
            rows_of(frame, filtered=False, typed=True),
            "LIMIT 0",
        ),
        kept=True,
    )


def typed_key(column: int) -> str:
    """Return a column that the call groups by as the step of the types has it: a NULL of its type."""
    return field(field("probe", "dpsql_row"), f"k{column}")


def key_types(frame: Frame) -> list[str]:
    """Return the SQL types of the columns that a call groups by, as a list; nothing where it does not group."""
    by = getattr(frame.plan, "by", ())
    kinds = [call("typeof", f"(SELECT {typed_key(column)} FROM {frame.name('types')})") for column in range(len(by))]
    return [call("list_value", *kinds)] if kinds else []


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
    texts = texts_sql(plan) if function_of(frame.function).spends else "NULL"
    given = [text(frame.function), text(plan.to_json()), f"(SELECT probe FROM {frame.name('types')})", texts]
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
