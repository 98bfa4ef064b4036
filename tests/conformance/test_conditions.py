"""A call under a condition sees what the same call sees of a table that holds only the rows which meet it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from calls import CALLS, Call, literal
from seam import Watch, watching
from tables import SOURCES, TABLES, typed

import dpsql
from dpsql.functions.registry import EXACT, FUNCTIONS
from support.cases import cases

# By table: conditions over numbers with NaN, texts, dates and truth values, some of which raise for some rows.
CONDITIONS = {
    "wide": (
        "s >= 0.25 OR (isnan(n) AND b BETWEEN -2 AND 1.5) OR c <> 1",
        "y IS NOT TRUE AND (t IN ('a', 'b', 'A', 'ä', 'B', 'zz', 'yy') OR day >= '2019-05-01')",
        "k * 4611686018427387904 >= 0 OR CAST(t AS INTEGER) > 0",
    ),
    "vectors": ("z > -1.5 AND len(x) >= 2", "unit LIKE 'p%' OR y", "CAST(unit AS INTEGER) < 9 OR id % 3 > 0"),
    "long": ("v > 0 OR word <> 'other'", "lower(word) LIKE 'w%' AND z >= -1", "ln(v) < 5 OR CAST(word AS INTEGER) > 0"),
}
ASKED = [call for call in CALLS if call.sql.startswith("SELECT * FROM") and call.function in {*FUNCTIONS, *EXACT}]
# One call of each function and layout runs by default.
FEW = tuple({(call.function, call.table): call for call in reversed(ASKED)}.values())


@cache
def kept(table: str, condition: str) -> pa.Table:
    """Return the rows that meet a condition: DuckDB judges the text as it is, one row in a statement."""
    rows = typed(table, "plain", "as made")
    places = []
    with duckdb.connect() as plain:
        plain.register("given", rows)
        plain.execute("CREATE TABLE known AS FROM given")
        plain.execute("PRAGMA disable_optimizer")  # it moves constants, and so some rows do not raise
        for place in range(len(rows)):
            try:
                found = plain.execute(f"SELECT ({condition}) FROM known WHERE rowid = {place}").fetchall()
            except duckdb.Error:
                continue
            if found == [(True,)]:
                places.append(place)
    assert 0 < len(places) < len(rows)
    return rows.take(places)


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    with watching() as opened:
        yield opened


def differences(watch: Watch, source: str, number: int, calls: Sequence[Call], folder: Path) -> list[str]:
    wrong = []
    with dpsql.connect() as whole, dpsql.connect() as few:
        for table in TABLES:
            SOURCES[source](whole, table, typed(table, "plain", "as made"), folder, 300, "")
            SOURCES["table"](few, table, kept(table, CONDITIONS[table][number]), folder, 0, "")
        for place, call in enumerate(calls):
            sql = call.sql.format(source=call.table)
            expected = watch.ask(few, sql, place)
            assert expected.error is None
            under = f"{sql[:-1]}, condition := {literal(CONDITIONS[call.table][number])})"
            differs = watch.ask(whole, under, place).differs(expected)
            if differs:
                wrong.append(f"{call.name}: {differs}")
    return wrong


@pytest.mark.parametrize("number", range(3))
def test_functions_see_the_rows_that_meet_a_condition(watch: Watch, number: int, tmp_path: Path) -> None:
    assert differences(watch, "parquet by pyarrow", number, FEW, tmp_path) == []


@pytest.mark.long
@cases(
    ("source", "number"),
    [
        pytest.param(source, number, marks=() if number == place % 3 else pytest.mark.slow)
        for place, source in enumerate(("table", "view with casts", "parquet by duckdb", "arrow"))
        for number in range(3)
    ],
)
def test_every_call_sees_the_rows_that_meet_a_condition(watch: Watch, source: str, number: int, tmp_path: Path) -> None:
    assert differences(watch, source, number, ASKED, tmp_path) == []
