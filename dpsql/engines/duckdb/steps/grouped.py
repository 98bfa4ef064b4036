"""The steps of a statement with groups: map keys, bound what each privacy unit contributes, and add up.

Keys become a number or text before any comparison (`keys.key`). So no collation applies, and no row's spelling becomes
a label. Public keys are cast to the types of their columns, checked before a row is read, written as texts by the
same rule, and matched with row keys; a row is in one group or in none. A unit's rows in a group may become one, and a
sample of them counts.

Values become integers in SQL. Values and scores first add the gate's zero, which hides them from column statistics.
Exact sums are handed over by public keys, or by numbers and then by the released keys. Nothing in these steps can fail
for one row's value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpsql.engines.duckdb.keys import key, key_of, key_parts, order_by, partition_by, sampled
from dpsql.engines.duckdb.steps.rows import (
    Cap,
    apart,
    batches,
    bounds_pass,
    drawn_bounds,
    flagged,
    opened,
    recorded,
    statistic,
    turn,
    valued,
    within,
)
from dpsql.engines.duckdb.steps.step import ITEM, Frame, GroupedFrame, Step, select, typed_key
from dpsql.functions.grouped.left_out import RECORD, enforced_limits
from dpsql.functions.grouped.plan import GroupedPlan
from dpsql.rendering import call, cast, coalesce, field, identifier, struct, text
from dpsql.statistics.aggregates import UNIT_WEIGHTS


def limited(frame: GroupedFrame) -> Iterator[Step]:
    """Yield the steps that bound a unit's contribution; none if the unit is a row."""
    if not frame.has_unit:
        return
    rows = "valued"
    if frame.keys and not frame.plan.has_private_keys:
        yield mapped(frame, "mapped", frame.name(rows), *frame.unit, *frame.items, *frame.codes, *frame.cell)
        rows = "mapped"
    if frame.plan.merges_units or frame.plan.counts_items:
        yield _merged(frame, rows)
        rows = "merged"
    yield from sample_rows(frame, rows)
    if frame.plan.measures_left_out:
        yield from apart(frame)


def _merged(frame: GroupedFrame, rows: str) -> Step:
    """Return the step of one row per unit and group, or per item of them: the sums of its values."""
    parts = by = [*frame.unit, *frame.groups, *frame.items]
    for position, block in enumerate(frame.plan.target_blocks):
        total = call("sum", f"q{position}")
        if block is None:
            parts = [*parts, f"CASE WHEN {call('count', f'q{position}')} > 0 THEN 0 END AS q{position}"]
            continue
        middle, scale = block.affine
        low, high = block.limits
        moved = call("-", total, cast(text(str(round(middle * scale))), "HUGEINT"))
        # Cast texts: callers may replace the minus function of a literal before a cast.
        ends = [cast(text(str(end)), "HUGEINT") for end in (low, high)]
        clipped = call("least", call("greatest", moved, ends[0]), ends[1])
        # least and greatest ignore NULL, and would return a bound.
        parts = [*parts, f"CASE WHEN {total} IS NOT NULL THEN {cast(clipped, 'BIGINT')} END AS q{position}"]
    what = "for each different item" if frame.items else "with the sum of its values within the bounds"
    return Step(
        "merged",
        f"One row for each unit and group, {what}.",
        select(parts, frame.name(rows), f"GROUP BY {', '.join(by)}"),
    )


def sample_rows(frame: GroupedFrame, step: str) -> Iterator[Step]:
    """Yield the steps of each unit's rows that count: a sample determined by its own rows and a secret key.

    Limits implied by others are not enforced twice: a unit with m rows is in at most m groups, and has at most m rows
    in each.
    """
    plan, groups, unit, rows = frame.plan, frame.groups, list(frame.unit), frame.name(step)
    sorted_by = frame.items or [*frame.codes, *frame.cell]
    alone = plan.merges_units and not frame.items  # a unit has one row in a group
    limits = plan.max_rows_per_unit, plan.groups, plan.rows_per_group
    enforced = enforced_limits(*limits, group_count=plan.group_count, alone=alone)
    caps, kept_rows = list[Cap](), list[str]()

    def at_most(most: int | str, owner: list[str], order: list[str]) -> None:
        # Rows within earlier limits are hashed with a flag if the other rows are told apart.
        owner_hash = frame.place_of(*owner, *(["true"] if caps and plan.measures_left_out else []))
        caps.append(Cap(sampled(owner_hash, owner, order, most), tuple(owner), most))

    if enforced.groups:
        order = order_by(["group_place", *groups])
        caps.append(Cap(f"{call('dense_rank')} OVER ({partition_by(unit)} {order}) <= {plan.groups}"))
        rows = f"(SELECT *, {frame.place_of(*unit, *groups)} AS group_place\n  FROM {rows})"
        kept_rows.append(f"{plan.groups} of its groups")
    if enforced.rows_per_group:
        at_most(plan.rows_per_group, [*unit, *groups], sorted_by)
        kept_rows.append(f"{plan.rows_per_group} of its rows in a group")
    if enforced.rows or frame.drawing is not None:
        most = plan.max_rows_per_unit if frame.drawing is None else frame.most_of_unit
        at_most(most, unit, [*groups, *sorted_by])
        kept_rows.append(f"{'the drawn number' if frame.drawing else most} of its rows in all")
    note = f"Of each unit count at most {', '.join(kept_rows)}, by keyed hashes." if kept_rows else "Every row counts."
    if plan.measures_left_out:
        yield from flagged(frame, rows, caps or [Cap("true")], note)
        return
    for number, cap in enumerate(caps, start=1):
        before, chosen = within(frame, f"limit{number}", cap, rows)
        yield from before
        rows = f"({chosen})"
    yield Step("kept", note, f"SELECT * FROM {rows}")


def _unless_text(value: str, column: str) -> str:
    """Return a value to sort by; NULL for a text column, which would follow the session's collation."""
    return f"CASE WHEN NOT {_is_text(column)} THEN {value} END"


def _is_text(column: str) -> str:
    return f"{call('typeof', column)} = 'VARCHAR'"


def listed_keys(plan: GroupedPlan) -> str:
    """Return the query of a public table's keys, as lists of texts: by value, texts by their bytes."""
    parts, labels, order = list[str](), list[str](), list[str]()
    for position, name in enumerate(map(identifier, plan.by)):
        parts.append(f"{_unless_text(name, name)} AS v{position}")
        parts.append(f"CASE WHEN {_is_text(name)} THEN {cast(name, 'VARCHAR')} END COLLATE C AS t{position}")
        labels.append(f"coalesce(t{position}, {cast(f'v{position}', 'VARCHAR')})")
        order += [f"v{position}", f"t{position}"]
    rows = call("list", f"{call('list_value', *labels)} {order_by(order)}")
    return f"SELECT {rows} FROM (SELECT DISTINCT {', '.join(parts)} FROM {plan.keys_table})"


def public_keys(frame: GroupedFrame) -> Iterator[Step]:
    """Yield the steps of the listed keys, as numbers and texts by position; none without groups."""
    plan, lists, ticket = frame.plan, [], frame.ticket
    if not plan.by:
        return
    if frame.keyed is not None:
        yield released_keys(frame, frame.keyed)
        ticket = frame.ticket_of("learned")
    elif plan.keys_table is not None and frame.only is None:  # a call with a single pass has learned them
        learned = call("dpsql_learn_keys", frame.ticket, f"({listed_keys(plan)})")
        yield Step(
            "learned", "Read the keys that a public table lists.", f"SELECT {learned} AS ticket", is_materialized=True
        )
        ticket = frame.ticket_of("learned")
    for column in frame.columns:
        yield _listed(frame, column, ticket)
        number, data = key_parts("key")
        entry = struct({"p": cast("p", "BIGINT"), "number": number, "data": data, "wrong": "wrong"})
        rows = call("list", f"{entry} ORDER BY p ASC NULLS LAST")
        lists.append(f"(SELECT {rows} FROM {frame.name(f'listed{column}')})")
    checked = call("dpsql_check_keys", ticket, call("list_value", *lists))
    note = "Refuse a key that is no value of its column's type, or stands twice, before any row is read."
    yield Step("checked", note, f"SELECT {checked} AS ticket", is_materialized=True)
    if plan.lists_combinations:
        combined = call("unnest", call("dpsql_key_rows", ticket))
        parts = [f"{call('list_extract', 'f', str(column + 1))} AS p{column}" for column in frame.columns]
        note = "The public combinations of keys, by their positions."
        yield Step("combinations", note, select(parts, f"(SELECT {combined} AS f)"), is_materialized=True)


def released_keys(frame: GroupedFrame, keyed: GroupedFrame) -> Step:
    """Return the step of another part's released keys, in order; they count as public from then on."""
    labels = call("list_value", *(f"label{column}" for column in keyed.columns))
    rows = call("list", f"{labels} ORDER BY rank ASC NULLS LAST")
    listing = f"(SELECT {rows} FROM {keyed.name('labelled')})"
    learned = call("dpsql_learn_released", frame.ticket, keyed.closing_ticket, listing)
    note = "The groups are those whose keys another part has released."
    return Step("learned", note, f"SELECT {learned} AS ticket", is_materialized=True)


def _listed(frame: GroupedFrame, column: int, ticket: str) -> Step:
    listed = call("unnest", call("dpsql_key_list", ticket, str(column)))
    witness = f"SELECT {typed_key(column)} AS witness FROM {frame.name('types')}"
    # A column of its own: DuckDB 1.5.6 moves the cast of a struct's field out of TRY.
    # Positions have 32 bits: sort keys then take fewer words to compare.
    texts = f"SELECT {cast(field('f', 'p'), 'INTEGER')} AS p, {field('f', 'text')} AS given FROM (SELECT {listed} AS f)"
    value = f"TRY({call('cast_to_type', 'given', 'witness')})"
    return Step(
        f"listed{column}",
        "The public keys of a column by their positions, cast to its type: a number, or a text compared by its bytes.",
        select(
            ["p", f"{key('value', frame.zero)} AS key", "given IS NOT NULL AND value IS NULL AS wrong"],
            f"(SELECT p, given, {value} AS value FROM ({texts}) LEFT JOIN ({witness}) ON true)",
        ),
        is_materialized=True,
    )


def mapped(frame: GroupedFrame, name: str, rows: str, *columns: str) -> Step:
    """Return the step that maps rows to their keys' positions; drop rows of other keys, or put them in one group."""
    other, joins = frame.plan.other, []
    for column in frame.columns:
        alias = f"found{column}"
        joins.append(
            f"{'LEFT JOIN' if other else 'JOIN'} {frame.name(f'listed{column}')} AS {alias} "
            f"ON {alias}.key IS NOT DISTINCT FROM k{column}"
        )
    parts = [f"found{column}.p AS p{column}" for column in frame.columns]
    query = select([*columns, *parts], "\n    ".join((rows, *joins)))
    positions, combinations = ", ".join(frame.keys), frame.name("combinations")
    listed = frame.keys
    if frame.plan.lists_combinations and other:
        subquery = f"(SELECT {positions}, true AS known FROM {combinations})"
        query = select([*columns, positions, "known"], f"({query}) LEFT JOIN {subquery} USING ({positions})")
        listed = ["known"]
    elif frame.plan.lists_combinations:
        query = select(["*"], f"({query}) SEMI JOIN {combinations} USING ({positions})")
    if other:  # the position -1 stands for all other keys
        condition = " AND ".join(f"{name} IS NOT NULL" for name in listed)
        pooled = [f"CASE WHEN {condition} THEN {name} ELSE -1 END AS {name}" for name in frame.keys]
        query = select([*columns, *pooled], f"({query})")
    what = "Other keys are one more group, at -1." if other else "Rows of other keys go."
    return Step(name, f"The position of the public key that a row, or a group, has. {what}", query)


_HALF = 1 << 32


def _different(names: Sequence[str]) -> str:
    """Return the number of different identities."""
    expression = struct(dict(zip(("number", "data"), names, strict=True))) if len(names) > 1 else names[0]
    return call("count", f"DISTINCT {expression}")


# The number of a unit's groups.
_OF_UNIT = "groups_of_unit"


def _totals(frame: GroupedFrame) -> dict[str, str]:
    """Return the sums of a group, by the names of its columns."""
    totals = {"n": _different(ITEM) if frame.plan.counts_items else call("count_star")}
    if frame.plan.weighs_units:
        weights = call("list_value", *map(str, UNIT_WEIGHTS[1 : frame.plan.groups + 1]))
        totals["n"] = cast(call("sum", call("list_extract", weights, _OF_UNIT)), "BIGINT")
    if frame.plan.counts_units:
        totals["units"] = _different(frame.unit) if frame.has_unit else call("count_star")
    for position, (code, block) in enumerate(zip(frame.codes, frame.plan.target_blocks, strict=True)):
        totals[f"n{position}"] = call("count", code)
        if block is not None:
            totals[f"s{position}"] = coalesce(call("sum", code), "0")
        if block is not None and block.needs_squares:
            totals[f"ss{position}"] = coalesce(call("sum", call("*", cast(code, "BIGINT"), code)), "0")
    return totals


def grouped(frame: GroupedFrame) -> Step:
    """Return the step of the exact sums."""
    keys = frame.keys if frame.has_unit or frame.plan.has_private_keys else frame.identities
    by = [*keys, *frame.cell]
    rows = frame.name("kept" if frame.has_unit else "valued")
    if frame.plan.weighs_units:  # a unit has one row in each of its groups
        rows = f"(SELECT *, {call('count_star')} OVER ({partition_by([*frame.unit])}) AS {_OF_UNIT} FROM {rows})"
    return Step(
        "grouped",
        "The exact sums of every group." if by else "The exact sums over all rows.",
        select(
            [*by, *(f"{total} AS {name}" for name, total in _totals(frame).items())],
            rows,
            f"GROUP BY {', '.join(by)}" if by else "",
        ),
    )


def handed_over(frame: GroupedFrame) -> dict[str, str]:
    """Return the fields that a group hands over: sums of squares as two 64-bit halves."""
    fields = {}
    for name in _totals(frame):
        if name.startswith("ss"):
            total = cast(name, "HUGEINT")
            fields[f"high{name[2:]}"] = cast(call("//", total, str(_HALF)), "BIGINT")
            fields[f"low{name[2:]}"] = cast(call("%", total, str(_HALF)), "BIGINT")
        else:
            fields[name] = cast(name, "BIGINT") if name.startswith("s") else name
    return fields


def by_public_keys(frame: GroupedFrame) -> Iterator[Step]:
    """Yield the steps that hand over every group, by the positions of its keys."""
    rows, number = "grouped", frame.plan.readings
    if frame.plan.by and not frame.has_unit:
        yield mapped(frame, "placed", frame.name(rows), *_totals(frame), *frame.cell)
        rows = "placed"
    fields = {name: cast(name, "BIGINT") for name in frame.keys} | {name: name for name in frame.cell}
    fields |= handed_over(frame)
    if frame.plan.measures_left_out:
        yield recorded(frame, frame.name(rows), list(_totals(frame)))
        rows, fields = "recorded", fields | {RECORD: RECORD}
    yield batches(frame, number, frame.name(rows), frame.ticket, struct(fields))
    yield statistic(frame, number)


def by_private_keys(frame: GroupedFrame) -> Iterator[Step]:
    """Yield the steps that hand over the sums of every key by a number, then the labels of released keys.

    Parts of the rows share no numbers, so each part hands over its keys.
    """
    number = frame.plan.readings
    if frame.only is not None:
        fields: dict[str, str] = {}
        for name in frame.identities:
            fields[f"{name}_number"], fields[f"{name}_data"] = key_parts(name)
        fields |= handed_over(frame)
        yield batches(frame, number, frame.name("grouped"), frame.ticket, struct(fields))
        yield statistic(frame, number)
        return
    # The order of key numbers is arbitrary; they only replace the keys and decide nothing.
    numbered = select(["*", f"{call('row_number')} OVER () AS j"], frame.name("grouped"))
    yield Step("numbered", "Number the private keys; the numbers mean nothing.", numbered, is_materialized=True)
    yield batches(frame, number, frame.name("numbered"), frame.ticket, struct({"j": "j"} | handed_over(frame)))
    yield turn(frame, number)
    ticket = frame.ticket_of(f"turn{number}")
    released = call("unnest", call("dpsql_released_keys", ticket))
    note = "The numbers of the keys whose noisy count reaches the threshold."
    yield Step("released", note, f"SELECT {released} AS j", is_materialized=True)
    yield from _labelled(frame, f"{frame.name('numbered')} SEMI JOIN {frame.name('released')} USING (j)", ticket)


def labels_alone(frame: GroupedFrame) -> Iterator[Step]:
    """Yield the steps that hand over the labels of the call's own released keys."""
    parts = [f"{field('f', 'j')} AS j"]
    for column in frame.columns:
        number, data = (call("list_extract", field("f", name), str(column + 1)) for name in ("numbers", "texts"))
        parts.append(f"{key_of(f'witness{column}', number, data)} AS k{column}")
    listed = call("unnest", call("dpsql_released_values", frame.ticket))
    note = "The keys whose noisy count reached the threshold."
    rows = f"(SELECT {listed} AS f) LEFT JOIN {_witnesses(frame)} ON true"
    yield Step("released", note, select(parts, rows), is_materialized=True)
    yield from _labelled(frame, frame.name("released"), frame.ticket)


def _witnesses(frame: GroupedFrame) -> str:
    """Return the FROM item of one row: a NULL of each group column's type."""
    columns = ", ".join(f"{typed_key(column)} AS witness{column}" for column in frame.columns)
    return f"(SELECT {columns} FROM {frame.name('types')})"


def _labelled(frame: GroupedFrame, keys: str, ticket: str) -> Iterator[Step]:
    """Yield the steps that hand over the labels of keys, and their ranks: by value, of texts by their bytes."""
    number = len(frame.plan.passes)
    labels, order = dict[str, str](), list[str]()
    for column in frame.columns:
        labels[f"label{column}"] = cast(f"k{column}", "VARCHAR")
        witness = f"witness{column}"
        typed = f"TRY({call('cast_to_type', f'label{column}', witness)})"
        order += [_unless_text(typed, witness), f"k{column}"]
    source = f"{keys} LEFT JOIN {_witnesses(frame)} ON true"
    rows = select(["*", *(f"{text} AS {name}" for name, text in labels.items())], source)
    rank = f"{call('row_number')} OVER ({order_by(order)})"
    note = "The released keys by their names, in the order of their type; texts by their bytes."
    yield Step("labelled", note, select(["j", *labels, f"{rank} AS rank"], f"({rows})"))
    fields = {name: name for name in ("j", "rank", *labels)}
    yield batches(frame, number, frame.name("labelled"), ticket, struct(fields))
    yield statistic(frame, number)


def grouped_steps(frame: Frame) -> Iterator[Step]:
    """Yield the steps that add up the rows of every group; the last one is the statistic."""
    if not isinstance(frame, GroupedFrame):
        raise TypeError("the statistic is of another plan")
    plan, only = frame.plan, frame.only
    if only is not None and only > plan.readings:
        yield from labels_alone(frame)
        return
    if not plan.has_private_keys:
        yield from public_keys(frame)
    if frame.draws_bounds and only in (None, 1):
        yield from bounds_pass(frame)
    if frame.draws_bounds and only == 1:
        yield statistic(frame, 1)
        return
    if frame.is_bounded:
        yield from drawn_bounds(frame)
    yield opened(frame)
    yield valued(frame)
    yield from limited(frame)
    yield grouped(frame)
    yield from by_private_keys(frame) if plan.has_private_keys else by_public_keys(frame)
