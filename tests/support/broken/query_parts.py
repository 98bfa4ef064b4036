"""Broken parts of a query: faults that are small enough to look right."""

from __future__ import annotations

from dpsql.engines.duckdb.steps import grouped
from dpsql.engines.duckdb.steps.step import GroupedFrame, Step
from dpsql.rendering import call
from support.broken.planting import Fault


def _keys_of_rows(frame: GroupedFrame, keyed: GroupedFrame) -> Step:
    rows = call("list", call("list_value", *(f"k{column}_data" for column in keyed.columns)))
    learned = call("dpsql_learn_keys", frame.ticket, f"(SELECT {rows} FROM {keyed.name('numbered')})")
    return Step("learned", "", f"SELECT {learned} AS ticket", kept=True)


KEYS_OF_ROWS = Fault(
    "A part of private keys answers all keys that occur, in place of those that are released.",
    ((grouped, "released_keys", _keys_of_rows),),
)
