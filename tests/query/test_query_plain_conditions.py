"""Conditions that cannot fail are written as they are; they keep the rows that they keep within TRY, and never fail."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from dpsql.contract.expression.judge import Bound, cannot_fail
from dpsql.contract.expression.kinds import Type
from dpsql.contract.query import expressions
from support.cases import cases
from tests.support.split_queries import hospital, split_of

PLAIN = (
    "days < 5",
    "days <> -2147483648",
    "patient >= 9223372036854775807",
    "NOT (days >= 5 OR days IS NULL)",
    "visit_date >= '2024-02-01' AND visit_date < DATE '2025-03-05'",
    "visit_date <= DATE '9999-12-31'",
    "visit_date IS NOT NULL AND visit_date = visit_date",
    "days BETWEEN -1 AND 30 AND id <> patient",
)
GUARDED = (
    "days + 1 < 5",  # overflows
    "patient * 2 > 3",
    "cost < 5",  # NaN
    "ward = 'A'",  # bytes that are no text
    "visit_date = 'someday'",
    "visit_date >= '2024-02-31'",
    "visit_date + INTERVAL 1 DAY > DATE '2024-02-01'",
    "days < 5 AND days // 0 > 1",
)


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with hospital() as con:
        con.execute("""
            INSERT INTO visits BY NAME
            SELECT unnest([1, NULL, 9223372036854775807, -9223372036854775808, 0]) AS patient,
              unnest([2147483647, -2147483648, NULL, 0, 5]) AS days,
              unnest([DATE 'infinity', '-infinity', NULL, '0001-01-01', '9999-12-31']) AS visit_date,
              unnest(['NaN'::DOUBLE, 'inf', '-inf', NULL, -0.0]) AS cost, 9223372036854775807 AS id
        """)
        yield con


@cases("condition", [*PLAIN, *GUARDED], quick=6, alone=True)
def test_what_cannot_fail_is_plain_and_keeps_the_same_rows(
    con: duckdb.DuckDBPyConnection, condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = f"SELECT sum(days), count(*) FROM visits WHERE {condition}"
    if condition == "visit_date = 'someday'":
        assert not cannot_fail(_compared("someday"))
        return
    [core] = split_of(con, sql).cores
    assert ("lambda" in core.source) == (condition in GUARDED)
    monkeypatch.setattr(expressions, "cannot_fail", lambda node: False)
    [guarded] = split_of(con, sql).cores
    assert "lambda" in guarded.source
    found, wanted = (con.execute(f"FROM ({one}) ORDER BY ALL").fetchall() for one in (core.source, guarded.source))
    assert repr(found) == repr(wanted)


def _compared(day: str) -> Bound:
    date = Type("DATE")
    literal = Bound("cast", date, (Bound("constant", Type("VARCHAR"), value=day),))
    return Bound("compare", Type("BOOLEAN"), (Bound("column", date, name="d"), literal), name="=")


@cases(
    ("literal", "wanted", "fits"),
    [
        *((("24", "INTEGER"), "DECIMAL(15, 2)", True), (("1e13", "DECIMAL"), "DECIMAL(15, 2)", False)),
        *((("0.05", "DECIMAL"), "DECIMAL(15, 2)", True), (("0.5", "DECIMAL"), "INTEGER", False)),
        *((("300", "INTEGER"), "TINYINT", False), (("-1", "INTEGER"), "UINTEGER", False)),
        *((("255", "INTEGER"), "UTINYINT", True), (("2147483648", "BIGINT"), "INTEGER", False)),
        *((("9.996", "DECIMAL"), "DECIMAL(3, 2)", False), (("x", "VARCHAR"), "INTEGER", False)),
    ],
)
def test_a_literal_that_may_not_fit_is_guarded(literal: tuple[str, str], wanted: str, fits: bool) -> None:
    value, kind = literal
    kind_of, _, sizes = wanted.partition("(")
    target = Type(kind_of, tuple(int(size) for size in sizes.rstrip(")").split(",")) if sizes else ())
    cast = Bound("cast", target, (Bound("constant", Type(kind), value=value),))
    assert cannot_fail(Bound("compare", Type("BOOLEAN"), (Bound("column", target, name="c"), cast), name="<")) == fits


def test_arithmetic_taken_for_what_cannot_fail_would_end_a_statement(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault: rows decide whether the statement runs."""
    monkeypatch.setattr(expressions, "cannot_fail", lambda node: True)
    [core] = split_of(con, "SELECT sum(days), count(*) FROM visits WHERE days * 3 < 5").cores
    with pytest.raises(duckdb.OutOfRangeException):
        con.execute(core.source).fetchall()
