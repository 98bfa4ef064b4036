"""The functions under the macros, called from SQL with what no statement of dpsql gives them.

They answer with a code, charge nothing, and tell nothing about rows: neither what these hold nor how many there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.udfs.specs import SPECS
from dpsql.udfs.values import UdfSpec
from support.cases import cases
from support.sessions import session_of

NONSENSE = {
    "null": "NULL",
    "text": "'nonsense'",
    "negative": "-1",
    "large": "4611686018427387904",
    "double": "0.5::DOUBLE",
    "nan": "'nan'::DOUBLE",
    "struct": "{'a': 1, 'b': 'c'}",
    "list": "[1, NULL, 3]",
    "empty list": "[]",
    "blob": "'x'::BLOB",
    "row": "t",
}
# What these make of a value says nothing that the value does not, and needs no call.
WITHOUT_CALL = {
    *("dpsql_identity", "dpsql_random", "dpsql_centred", "dpsql_help", "dpsql_spellings", "dpsql_type_queries"),
    *("dpsql_unplaced", "dpsql_query_free", "dpsql_query_parsed"),
}
FIRST = ("'dp_sis'", "'dp_nothing'", "'exact_xty'", "'{}'", "'1 {}'", "1")
REST = ("t", "'{}', t", "1, t", "a, b", "1, 1, t, a, b", "[a], '{}'", "NULL, NULL, NULL, NULL")
ROWS = 2777
# DuckDB hands rows over in batches of 2048.
NUMBERS_OF_ROWS = re.compile(rf"(?<!\d)({ROWS}|2048|{ROWS - 2048})(?!\d)")
SIS = "k := 1, epsilon := 1, lower := 0, upper := 1, target_lower := 0, target_upper := 7"
AGGREGATES = {
    "dp_sis": f"dp_sis([a, b], y, n_features := 2, {SIS})",
    "dp_quantile": "dp_quantile(a, quantiles := [0.5], epsilon := 1, lower := 0, upper := 1)",
    "dp_bounds": "dp_bounds(a, epsilon := 1)",
    "dp_covariance": "dp_covariance([a, b], n_features := 2, epsilon := 1, lower := 0, upper := 1)",
    "dp_correlation": "dp_correlation([a, b], n_features := 2, epsilon := 1, lower := 0, upper := 1)",
    "dp_regression_metrics": "dp_regression_metrics(y, a, epsilon := 1, lower := 0, upper := 1)",
    "dp_roc": "dp_roc(z, a, epsilon := 1)",
    "dp_auc": "dp_auc(z, a, epsilon := 1)",
}
TABLES = {"dp_sis": f"dp_sis('t', target := 'y', features := ['a', 'b'], {SIS})"}
CORRELATED = {
    "scalar": "SELECT (SELECT {call} FROM t WHERE t.y = o.i) FROM outside o",
    "scalar, not by equality": "SELECT (SELECT {call} FROM t WHERE t.y + o.i > 1) FROM outside o",
    "exists": "SELECT i FROM outside o WHERE EXISTS (SELECT 1 FROM (SELECT {call} AS c FROM t WHERE t.y = o.i) "
    "WHERE c::VARCHAR <> o.i::VARCHAR)",
    "lateral": "SELECT * FROM outside o, LATERAL (SELECT {call} AS c FROM t WHERE t.y = o.i) AS s",
    "lateral, all rows": "SELECT * FROM outside o, LATERAL (SELECT {call} AS c, o.i + 1 FROM t) AS s",
}
CORRELATED_TABLES = {
    "scalar": "SELECT (SELECT feature FROM {call} WHERE rank = o.i) FROM outside o",
    "exists": "SELECT i FROM outside o WHERE EXISTS (SELECT 1 FROM {call} AS s WHERE s.rank = o.i)",
    "lateral": "SELECT * FROM outside o, LATERAL (SELECT feature, o.i + rank AS z FROM {call}) AS s",
}


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT (i % 2)::DOUBLE AS a, (i % 3)::DOUBLE AS b, (i % 7)::DOUBLE AS y, i % 2 = 0 AS z "
            f"FROM range({ROWS}) AS r(i)"
        )
        yield connection


@pytest.fixture(autouse=True)
def before(con: Any) -> int:
    """How many entries the ledger has before a test."""
    return entries(con)


def entries(con: Any) -> int:
    return int(con.execute("SELECT count(*) FROM dp_ledger()").fetchone()[0])


def refusal(con: Any, statement: str) -> str | None:
    """Return the error of a statement, or None where it gives rows; the connection must live on either way."""
    try:
        con.execute(statement).fetchall()
        found = None
    except duckdb.Error as error:
        found = str(error)
    assert con.execute("SELECT 42").fetchone() == (42,)
    return found


def is_coded(message: str) -> bool:
    """Whether a message is one of ours on a line of its own, without a word of Python's own exceptions."""
    foreign = re.search(r"\b(Key|Type|Value|Index|Attribute|Arithmetic|Overflow|Assertion|Arrow\w*)Error\b", message)
    return (
        foreign is None
        and re.search(r"^(Invalid Input Error: )?\[DPSQL-[A-Z]\d{3}\] ", message, re.MULTILINE) is not None
    )


@cases("spec", SPECS, ids=lambda spec: spec.name, quick=1)
def test_nonsense_has_a_code(con: Any, before: int, spec: UdfSpec) -> None:
    budgets = con.execute("FROM dp_budget()").fetchall()
    for kind, value in NONSENSE.items():
        for count in (1, 2, 3, 4, 5, 12):
            arguments = ", ".join([value] * count)
            source = " FROM t" if kind == "row" else ""
            message = refusal(con, f"SELECT {spec.name}({arguments}){source}")
            if message is None:
                assert spec.name in WITHOUT_CALL or spec.spoken, (kind, count)  # its refusal is its text
            elif spec.nullary:
                assert "No function matches" in message, (kind, count)
            else:
                assert is_coded(message), (kind, count, message)
                assert not NUMBERS_OF_ROWS.search(message), (kind, count, message)
    assert entries(con) == before
    assert con.execute("FROM dp_budget()").fetchall() == budgets


@cases("spec", SPECS, ids=lambda spec: spec.name, quick=47)
def test_no_argument(con: Any, before: int, spec: UdfSpec) -> None:
    message = refusal(con, f"SELECT {spec.name}()")
    assert message is None if spec.nullary else message is not None and "No function matches" in message
    assert entries(con) == before


@cases("spec", SPECS, ids=lambda spec: spec.name, quick=2)
def test_mixed_nonsense_has_a_code(con: Any, before: int, spec: UdfSpec) -> None:
    for first, rest in product(FIRST, REST):
        message = refusal(con, f"SELECT {spec.name}({first}, {rest}) FROM t")
        if message is None:
            assert spec.name in WITHOUT_CALL or spec.spoken, (first, rest)
        elif spec.nullary:
            assert "No function matches" in message, (first, rest)
        else:
            assert is_coded(message), (first, rest, message)
            assert not NUMBERS_OF_ROWS.search(message), (first, rest, message)
    assert entries(con) == before


@pytest.fixture
def plan(con: Any) -> str:
    session = session_of(con)
    given = {"target": "y", "features": ["a", "b"], "k": 1, "epsilon": 1, "lower": 0, "upper": 1}
    return str(session.planner.plan("dp_sis", "t", {**given, "target_lower": 0, "target_upper": 7}).to_json())


ADMIT = """dpsql_admit(p, NULL, NULL, {'views': NULL, 'macros': NULL, 'types': NULL, 'tables': NULL})"""


@cases("call", ["dpsql_gate('dp_sis', p, {'dpsql_row': t}, NULL)", ADMIT])
@cases("source", [f"t LIMIT {ROWS}", "t WHERE a = 1", "t LIMIT 2"])
def test_more_rows_than_it_answers_for(con: Any, before: int, plan: str, call: str, source: str) -> None:
    con.execute("CREATE OR REPLACE TABLE plans AS SELECT ? AS p", [plan])
    statement = f"SELECT {call} FROM plans, (SELECT * FROM "
    assert refusal(con, f"{statement} t LIMIT 1) AS t") is None
    message = refusal(con, f"{statement} {source}) AS t")
    assert message is not None
    assert is_coded(message)
    assert "[DPSQL-P019]" in message
    assert not NUMBERS_OF_ROWS.search(message)
    assert entries(con) == before


@cases("shape", CORRELATED, quick=2)
@cases("function", AGGREGATES)
@cases("outer", [1, 2])
def test_an_aggregate_of_every_outer_row(con: Any, before: int, shape: str, function: str, outer: int) -> None:
    """The plan of the statement shows that each outer row would be a release."""
    con.execute(f"CREATE OR REPLACE TABLE outside AS SELECT i FROM range({outer}) AS r(i)")
    message = refusal(con, CORRELATED[shape].format(call=AGGREGATES[function]))
    assert message is not None
    assert re.search(r"\[DPSQL-(S022|P019)\]", message)
    assert not NUMBERS_OF_ROWS.search(message)
    assert entries(con) == before


@cases("shape", CORRELATED_TABLES)
@cases("outer", [2, ROWS])
def test_a_table_function_of_every_outer_row(con: Any, shape: str, outer: int) -> None:
    """Where DuckDB evaluates the call once it is one release; where it joins the outer rows to it, none."""
    before = entries(con)
    con.execute(f"CREATE OR REPLACE TABLE outside AS SELECT i FROM range({outer}) AS r(i)")
    message = refusal(con, CORRELATED_TABLES[shape].format(call=TABLES["dp_sis"]))
    if message is None:
        assert entries(con) == before + 1
    else:
        assert is_coded(message)
        assert "[DPSQL-P019]" in message
        assert not NUMBERS_OF_ROWS.search(message)
        assert entries(con) == before
