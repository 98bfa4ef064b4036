"""The exact sums of every group, handed over by public keys, or by numbers and then by the keys that are released."""

from __future__ import annotations

from collections.abc import Iterator

from dpsql.engines.duckdb.keys import label
from dpsql.engines.duckdb.steps.public_keys import mapped
from dpsql.engines.duckdb.steps.rows import batches, statistic, turn
from dpsql.engines.duckdb.steps.source import typed_key
from dpsql.engines.duckdb.steps.step import ITEM, UNIT, GroupedFrame, Step, select
from dpsql.engines.duckdb.unit_sample import order_by
from dpsql.rendering import call, cast, coalesce, field, struct

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
    rows, number = "grouped", frame.plan.readings
    if frame.plan.by and not frame.has_unit:
        yield mapped(frame, "placed", frame.name(rows), *_totals(frame), *frame.cell)
        rows = "placed"
    fields = {name: name for name in (*frame.keys, *frame.cell)} | handed_over(frame)
    yield batches(frame, number, frame.name(rows), frame.ticket, struct(fields))
    yield statistic(frame, number)


def by_private_keys(frame: GroupedFrame) -> Iterator[Step]:
    """Yield the steps that hand over the sums of every key by a number; then the labels of the keys that are released.

    Some of the rows have no numbers in common with others, so they hand the keys over.
    """
    number = frame.plan.readings
    if frame.only is not None:
        fields = {name: name for name in frame.identities} | handed_over(frame)
        yield batches(frame, number, frame.name("grouped"), frame.ticket, struct(fields))
        yield statistic(frame, number)
        return
    # Keys are numbered in arbitrary order; the numbers only stand for them and decide nothing.
    numbered = select(["*", f"{call('row_number')} OVER () AS j"], frame.name("grouped"))
    yield Step("numbered", "Number the private keys; the numbers mean nothing.", numbered, kept=True)
    yield batches(frame, number, frame.name("numbered"), frame.ticket, struct({"j": "j"} | handed_over(frame)))
    yield turn(frame, number)
    ticket = frame.ticket_of(f"turn{number}")
    released = call("unnest", call("dpsql_released_keys", ticket))
    note = "The numbers of the keys whose noisy count reaches the threshold."
    yield Step("released", note, f"SELECT {released} AS j", kept=True)
    yield from _labelled(frame, f"{frame.name('numbered')} SEMI JOIN {frame.name('released')} USING (j)", ticket)


def labels_alone(frame: GroupedFrame) -> Iterator[Step]:
    """Yield the steps that hand over the labels of released keys that the call itself has."""
    parts = [f"{field('f', 'j')} AS j"]
    for column in frame.columns:
        for part, name in (("number", "numbers"), ("data", "texts")):
            parts.append(f"{call('list_extract', field('f', name), str(column + 1))} AS k{column}_{part}")
    listed = call("unnest", call("dpsql_released_values", frame.ticket))
    note = "The keys whose noisy count reached the threshold."
    yield Step("released", note, select(parts, f"(SELECT {listed} AS f)"), kept=True)
    yield from _labelled(frame, frame.name("released"), frame.ticket)


def _labelled(frame: GroupedFrame, keys: str, ticket: str) -> Iterator[Step]:
    """Yield the steps that hand over the labels of keys, and their ranks in the order of the keys' own types."""
    number = len(frame.plan.passes)
    labels, typed, witnesses = {}, [], []
    for column in frame.columns:
        labels[f"label{column}"] = label(f"witness{column}", f"k{column}_number", f"k{column}_data")
        typed.append(f"TRY({call('cast_to_type', f'label{column}', f'witness{column}')})")
        witnesses.append(f"{typed_key(column)} AS witness{column}")
    known = f"(SELECT {', '.join(witnesses)} FROM {frame.name('types')})"
    rows = select(["*", *(f"{text} AS {name}" for name, text in labels.items())], f"{keys} LEFT JOIN {known} ON true")
    rank = f"{call('row_number')} OVER ({order_by([*typed, *frame.identities])})"
    note = "The released keys by their names, in the order of their type."
    yield Step("labelled", note, select(["j", *labels, f"{rank} AS rank"], f"({rows})"))
    fields = {name: name for name in ("j", "rank", *labels)}
    yield batches(frame, number, frame.name("labelled"), ticket, struct(fields))
    yield statistic(frame, number)
