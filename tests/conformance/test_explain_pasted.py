"""What `explain` prints is the call: pasted where it was printed, it gives the mechanism the same integers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from calls import CALLS, GROUPED, Call
from seam import Watch, watching
from tables import SOURCES, TABLES, base

import dpsql
from dpsql.engines.duckdb.explanation import explain
from dpsql.functions.registry import FUNCTIONS
from support.sessions import session_of

_NAMED = "lower := {'a': -4, 'b': -3, 'e': -2}, upper := {'a': 4, 'b': 3, 'e': 2}"
_FIT = "target := 'z', target_lower := -2, target_upper := 2, epsilon := 1"
# Ways to call that the other tests of this folder have not.
MORE = {
    "bounds by name": ("dp_sis", f"features := ['a', 'b', 'e'], {_NAMED}, k := 2, {_FIT}"),
    "a fit with bounds by name": (
        "dp_linear_regression",
        f"features := ['a', 'b', 'e'], {_NAMED}, {_FIT}, delta := 1e-6",
    ),
    "a pipeline with bounds by name": (
        "dp_pipeline",
        f"features := ['a', 'b', 'e'], {_NAMED}, k := 2, {_FIT}, delta := 1e-6, selector := 'sis'",
    ),
    "sums with bounds by name": (
        "dp_sum",
        "target := ['a', 'e'], lower := {'a': -4, 'e': -2}, upper := {'a': 4, 'e': 2}, epsilon := 1, \"by\" := 'y'",
    ),
    "a condition": ("dp_count", "condition := 'upper(name) <> ''A'' AND (k / 3 > 1 OR\n s < 0.5)', epsilon := 1"),
    "a condition on units": (
        "dp_sis",
        "features := ['a', 'b'], lower := -4, upper := 4, k := 1, condition := 's < 0.5', privacy_unit := 'unit', "
        f"max_rows_per_unit := 2, {_FIT}",
    ),
    "private bounds of units": (
        "dp_avg",
        "target := 'e', epsilon := 1, delta := 1e-6, privacy_unit := 'unit', max_rows_per_unit := 2, \"by\" := 'k', "
        "keys := [9, -3, 0]",
    ),
}
ASKED = (
    *(call for call in (*CALLS, *GROUPED) if call.function in FUNCTIONS and call.sql.startswith("SELECT * FROM")),
    *(
        Call(f"{function}, {name}", f"SELECT * FROM {function}('{{source}}', {given})", "wide", function)
        for name, (function, given) in MORE.items()
    ),
)
# One call of each function, each other way to call, and long rows with names that are drawn.
FEW = [
    *{call.function: call for call in reversed(ASKED[: -len(MORE)])}.values(),
    *ASKED[-len(MORE) :],
    *(call for call in ASKED if "private vocabulary" in call.name or "private groups" in call.name),
]


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    with watching() as opened:
        yield opened


@pytest.fixture(scope="module")
def connection(watch: Watch) -> Iterator[Any]:
    with dpsql.connect() as opened:
        for name in TABLES:
            SOURCES["table"](opened, name, base(name), Path(), 0, "")
        yield opened


def differs(watch: Watch, connection: Any, call: Call) -> str | None:
    sql = call.sql.replace("{source}", call.table)
    shown = explain(session_of(connection), connection, sql)
    number = ASKED.index(call)
    run, pasted = watch.ask(connection, sql, number), watch.ask(connection, shown, number)
    assert run.error is None
    assert run.passes
    return pasted.differs(run)


def test_every_function_is_pasted(watch: Watch, connection: Any) -> None:
    assert {call.function for call in FEW} == set(FUNCTIONS)
    assert {call.name: found for call in FEW if (found := differs(watch, connection, call))} == {}


@pytest.mark.long
def test_every_call_is_pasted(watch: Watch, connection: Any) -> None:
    assert {call.name: found for call in ASKED if (found := differs(watch, connection, call))} == {}
