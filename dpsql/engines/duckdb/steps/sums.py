"""The exact sums of every group, and how they are handed over by public keys."""

from __future__ import annotations

from collections.abc import Iterator

from dpsql.engines.duckdb.steps.grouped_frame import ITEM, UNIT, GroupedFrame
from dpsql.engines.duckdb.steps.passes import batches, statistic
from dpsql.engines.duckdb.steps.public_keys import mapped
from dpsql.engines.duckdb.steps.step import Step, select
from dpsql.rendering import call, cast, coalesce, struct

_HALF = 1 << 32


def _different(names: tuple[str, str]) -> str:
    """Return the number of different identities."""
    return call("count", f"DISTINCT {struct(dict(zip(('number', 'data'), names, strict=True)))}")


def _totals(frame: GroupedFrame) -> dict[str, str]:
    """Return what is added up in a group, by the names of its columns."""
    totals = {"n": _different(ITEM) if frame.plan.counts_items else call("count_star")}
    if frame.plan.counts_units:
        totals["units"] = _different(UNIT) if frame.has_unit else call("count_star")
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
    return Step(
        "grouped",
        "The exact sums of every group." if by else "The exact sums over all rows.",
        select(
            [*by, *(f"{total} AS {name}" for name, total in _totals(frame).items())],
            frame.name("kept" if frame.has_unit else "valued"),
            f"GROUP BY {', '.join(by)}" if by else "",
        ),
    )


def handed_over(frame: GroupedFrame) -> dict[str, str]:
    """Return the fields that a group hands over: sums of squares as two halves of 64 bits."""
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
    """Yield the steps that hand every group over, by the positions of its keys."""
    rows, number = "grouped", frame.plan.passes
    if frame.plan.by and not frame.has_unit:
        yield mapped(frame, "placed", frame.name(rows), *_totals(frame), *frame.cell)
        rows = "placed"
    fields = {name: name for name in (*frame.keys, *frame.cell)} | handed_over(frame)
    yield batches(frame, number, frame.name(rows), frame.ticket, struct(fields))
    yield statistic(frame, number)
