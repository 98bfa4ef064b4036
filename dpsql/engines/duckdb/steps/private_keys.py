"""Private keys: groups are handed over by numbers, and then the keys that are released by their names."""

from __future__ import annotations

from collections.abc import Iterator

from dpsql.engines.duckdb.keys import label
from dpsql.engines.duckdb.steps.grouped_frame import GroupedFrame
from dpsql.engines.duckdb.steps.passes import batches, statistic, turn
from dpsql.engines.duckdb.steps.source import typed_key
from dpsql.engines.duckdb.steps.step import Step, select
from dpsql.engines.duckdb.steps.sums import handed_over
from dpsql.engines.duckdb.unit_sample import order_by
from dpsql.rendering import call, field, struct


def by_private_keys(frame: GroupedFrame) -> Iterator[Step]:
    """Yield the steps that hand over the sums of every key by a number; then the labels of the keys that are released.

    Some of the rows have no numbers in common with others, so they hand the keys over.
    """
    number = frame.plan.passes
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
    number = frame.plan.passes + frame.plan.closing_passes
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
