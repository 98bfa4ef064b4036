"""Conditions that are not of one row: where DuckDB's optimizer reaches them, other rows and a file's statistics decide.

Each fault is a way to keep the rows of a source which meet a condition (`dpsql.engines.duckdb.keys.filtered_rows`). The
checks that catch them are those of ``tests/sql/test_condition_sql.py``: one row that raises ends the statement, or a file
with NaN loses rows.
"""

from __future__ import annotations

from collections.abc import Callable

from dpsql.contract.expression.judge import Judged
from dpsql.engines.duckdb.keys import NAMED, ONE


def _judged(judged: Judged) -> str:
    return judged.sql.replace(ONE, NAMED)


def bare(rows: str, columns: str, judged: Judged, zero: str) -> str:
    """Filter without TRY: a row with 'a' in ``CAST(t AS INTEGER) >= 20`` ends the statement, so its error shows it."""
    return f"SELECT {columns} FROM {rows} WHERE {_judged(judged)}"


def in_the_open(rows: str, columns: str, judged: Judged, zero: str) -> str:
    """Filter by TRY where the optimizer sees it.

    ``CAST(t AS INTEGER) IN (1, ..., 9)`` becomes a join whose CAST is outside of the TRY and raises. And ``x >= 18``
    over a file with 1, 2, NaN and 3 keeps no row, for the maximum is 3: one row with 20 more, and two rows pass.
    """
    return f"SELECT {columns} FROM {rows} WHERE TRY({_judged(judged)})"


def cast_outside(rows: str, columns: str, judged: Judged, zero: str) -> str:
    """Cast the verdict of a TRY outside of it: the condition ``t``, a text, raises for the row with 'a'."""
    verdict = judged.sql.removeprefix("CAST(").removesuffix(" AS BOOLEAN)")
    listed = f"system.main.list_transform(system.main.list_value({NAMED}), lambda {ONE}: TRY({verdict}))"
    return f"SELECT {columns} FROM {rows} WHERE CAST(system.main.list_extract({listed}, 1) AS BOOLEAN)"


FAULTS: dict[str, Callable[[str, str, Judged, str], str]] = {
    "no TRY": bare,
    "TRY in the open": in_the_open,
    "a cast outside of TRY": cast_outside,
}
