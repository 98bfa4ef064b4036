"""Which views an owner is warned of, and that these are the ones that raise."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.lineage.bound import read
from dpsql.gateway.raising import may_fail, raising
from dpsql.ledger.grants import Grant
from support import BEFORE_2_0
from support.cases import cases

ROWS = """CREATE TABLE t AS SELECT * FROM (VALUES
    (1::INTEGER, '7', 2.0::DOUBLE, DATE '2026-01-01', 3::TINYINT, 1.5::DECIMAL(18, 1)),
    (2147483647, 'x', -1.0, DATE '5874897-12-31', -128, 99999999999999999.9)) r(i, s, d, day, small, money)"""
# Each raises on the second row.
RAISE = {
    "CAST(s AS INTEGER)": "CAST from VARCHAR to INTEGER", "i::TINYINT": "CAST from INTEGER to TINYINT",
    "d::UTINYINT": "CAST from DOUBLE to UTINYINT", "i + 1": "+ of INTEGER", "i * 2": "* of INTEGER",
    "-small": "- of TINYINT", "abs(small)": "abs of TINYINT",
    "strptime(s, '%Y')": "strptime()", "s::DATE": "CAST from VARCHAR to DATE", "day::TIMESTAMP": "CAST from DATE",
    "(SELECT u.i FROM t u)": "a subquery",  "upper(s::DATE::VARCHAR)": "CAST from VARCHAR",
    "factorial(i)": "factorial()", "make_date(i, 13, 1)": "make_date()",
}  # fmt: skip
if BEFORE_2_0:  # NaN since 2.0
    RAISE |= {"sqrt(d)": "sqrt()", "ln(d)": "ln()", "acos(d - 1)": "acos()"}
# None of these raises, whatever the row holds.
ANSWER = [
    "TRY_CAST(s AS INTEGER)", "i::BIGINT", "i::DOUBLE", "i::VARCHAR", "d * 2", "d + 1e308", "i / 0", "upper(s)",
    "year(day)", "CASE WHEN i > 3 THEN 'a' ELSE s END", "coalesce(i, 3)", "s || 'x'", "s LIKE 'a%'", "small::INTEGER",
    "day > DATE '2020-01-01'", "i BETWEEN 1 AND 3",
]  # fmt: skip


@pytest.fixture
def con() -> duckdb.DuckDBPyConnection:
    found = duckdb.connect()
    found.execute(ROWS)
    return found


def parts(con: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    [(text,)] = con.execute("SELECT json_serialize_plan(?)::VARCHAR", [sql]).fetchall()
    plan = read(text)
    assert plan is not None
    return may_fail(plan)


@cases("written", RAISE, quick=6, alone=True)
def test_what_raises_is_named(con: duckdb.DuckDBPyConnection, written: str) -> None:
    con.execute(f"CREATE VIEW v AS SELECT {written} AS x FROM t")
    with pytest.raises(duckdb.Error):
        con.execute("FROM v").fetchall()
    assert any(part.startswith(RAISE[written]) for part in parts(con, "FROM v")), parts(con, "FROM v")
    assert parts(con, f"SELECT 1 FROM t WHERE ({written}) IS NULL")


@cases("written", ANSWER, quick=7, alone=True)
def test_what_answers_is_not(con: duckdb.DuckDBPyConnection, written: str) -> None:
    con.execute(f"CREATE VIEW v AS SELECT {written} AS x FROM t")
    con.execute("FROM v").fetchall()
    assert parts(con, "FROM v") == []


def test_granted_views_are_looked_at() -> None:
    with dpsql.Context() as context:
        context.sql(ROWS)
        context.sql("CREATE VIEW casts AS SELECT CAST(s AS INTEGER) AS n FROM t")
        context.sql("CREATE VIEW inner_casts AS SELECT n FROM casts")
        context.sql("CREATE VIEW fine AS SELECT i FROM t")
        context.sql("CREATE VIEW hidden AS SELECT i + 1 AS i FROM t")
        context.dp_protect("t", epsilon=1)
        context.ledger.grant(Grant.of("ana", "t", sources=["t", "inner_casts", "fine", "gone"]))
        assert raising(context) == {"inner_casts": ["CAST from VARCHAR to INTEGER"]}
