"""What one privacy unit contributes: its rows in a group may become one, and a sample of them counts."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dpsql.engines.duckdb.keys import short_place
from dpsql.engines.duckdb.steps.public_keys import mapped
from dpsql.engines.duckdb.steps.step import UNIT, GroupedFrame, Step, select
from dpsql.engines.duckdb.unit_sample import order_by, partition_by, sampled
from dpsql.rendering import call, cast, text


def limited(frame: GroupedFrame) -> Iterator[Step]:
    """Yield the steps that bound what a unit contributes; none where the unit is a row."""
    if not frame.has_unit:
        return
    rows = "valued"
    if frame.keys and not frame.plan.has_private_keys:
        yield mapped(frame, "mapped", frame.name(rows), *UNIT, *frame.items, *frame.codes, *frame.cell)
        rows = "mapped"
    if frame.plan.merges_units or frame.plan.counts_items:
        yield _merged(frame, rows)
        rows = "merged"
    yield kept(frame, rows)


def _merged(frame: GroupedFrame, rows: str) -> Step:
    """Return the step of one row for each unit and group, or for each item of them: what its values add up to."""
    parts = by = [*UNIT, *frame.groups, *frame.items]
    for position, block in enumerate(frame.plan.target_blocks):
        total = call("sum", f"q{position}")
        if block is None:
            parts = [*parts, f"CASE WHEN {call('count', f'q{position}')} > 0 THEN 0 END AS q{position}"]
            continue
        middle, scale = block.affine
        low, high = block.limits
        moved = call("-", total, cast(text(str(round(middle * scale))), "HUGEINT"))
        # Texts are cast, because the minus of a literal before a cast is a function that callers may replace.
        ends = [cast(text(str(end)), "HUGEINT") for end in (low, high)]
        clipped = call("least", call("greatest", moved, ends[0]), ends[1])
        # least and greatest leave NULL out, which would make a bound of it.
        parts = [*parts, f"CASE WHEN {total} IS NOT NULL THEN {cast(clipped, 'BIGINT')} END AS q{position}"]
    what = "for each different item" if frame.items else "with the sum of its values within the bounds"
    return Step(
        "merged",
        f"One row for each unit and group, {what}.",
        select(parts, frame.name(rows), f"GROUP BY {', '.join(by)}"),
    )


def kept(frame: GroupedFrame, step: str) -> Step:
    """Return the step of the rows of each unit that count: a sample that follows from its own rows and a secret key.

    Limits that follow from the others are not enforced twice: a unit with m rows is in at most m groups, and has at
    most m rows in each.
    """
    plan, groups, unit, rows = frame.plan, frame.groups, list(UNIT), frame.name(step)
    sorted_by = frame.items or [*frame.codes, *frame.cell]
    known: float = math.inf if plan.group_count is None else plan.group_count
    alone = plan.merges_units and not frame.items  # a unit has one row in a group
    in_group: float = 1 if alone else math.inf
    conditions, limits = [], []
    if plan.groups < min(known, plan.max_rows_per_unit):
        order = order_by(["group_place", *groups])
        conditions.append(f"{call('dense_rank')} OVER ({partition_by(unit)} {order}) <= {plan.groups}")
        rows = f"(SELECT *, {short_place(frame.ticket, *unit, *groups)} AS group_place\n  FROM {rows})"
        known = plan.groups
        limits.append(f"{plan.groups} of its groups")
    if plan.rows_per_group < min(in_group, plan.max_rows_per_unit):
        conditions.append(sampled(frame.ticket, [*unit, *groups], sorted_by, plan.rows_per_group))
        in_group = plan.rows_per_group
        limits.append(f"{plan.rows_per_group} of its rows in a group")
    if plan.max_rows_per_unit < known * in_group:
        conditions.append(sampled(frame.ticket, unit, [*groups, *sorted_by], plan.max_rows_per_unit))
        limits.append(f"{plan.max_rows_per_unit} of its rows in all")
    for condition in conditions:
        rows = f"(SELECT * FROM {rows}\n  QUALIFY {condition})"
    note = f"Of each unit count at most {', '.join(limits)}, by keyed hashes." if limits else "Every row counts."
    return Step("kept", note, f"SELECT * FROM {rows}")
