"""A release whose name is NULL is refused: it would be a release without a name, charged at each run."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.functions.registry import FUNCTIONS
from support.cases import cases

NULLS = (
    "NULL",
    "NULL::VARCHAR",
    "'n-' || NULL",
    "'n-' || getvariable('day')",
    "'n-' || getvariable('nobody')",
    "getvariable('day')",
    "CASE WHEN false THEN 'x' END",
    "lower(NULL)",
)


@pytest.fixture
def connection() -> Any:
    connection = dpsql.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT range AS a, range % 2 = 0 AS b FROM range(100); SET VARIABLE day = NULL"
    )
    return connection


def entries(connection: Any) -> int:
    return int(connection.execute("SELECT count(*) FROM dp_ledger()").fetchall()[0][0])


@cases("name", NULLS, quick=1)
@cases("governed", [False, True])
def test_a_name_that_is_null_is_refused_and_charges_nothing(connection: Any, name: str, governed: bool) -> None:
    if governed:
        connection.execute("SELECT dp_protect('t', epsilon := 10)")
    before = entries(connection)
    for call in (
        f"FROM dp_count('t', epsilon := 1, release := {name})",
        f"SELECT dp_count(a, epsilon := 1, dataset := 't', release := {name}) FROM t",
    ):
        with pytest.raises(duckdb.Error, match=r"\[DPSQL-P089\] release is NULL"):
            connection.execute(call)
    assert entries(connection) == before


def test_a_parameter_that_is_null_is_refused(connection: Any) -> None:
    for call in (
        "FROM dp_count('t', epsilon := 1, release := ?)",
        "FROM dp_count('t', epsilon := 1, release := 'n' || ?)",
    ):
        with pytest.raises(duckdb.Error, match="DPSQL-P089"):
            connection.execute(call, [None])
        connection.execute(call, ["x"])
    assert entries(connection) == 2


@pytest.mark.long
def test_a_call_without_a_name_is_one(connection: Any) -> None:
    for written in ("", ", release := false"):
        connection.execute(f"FROM dp_count('t', epsilon := 1{written})").fetchall()
        connection.execute(f"SELECT dp_count(a, epsilon := 1{written}) FROM t").fetchall()
    assert connection.execute("SELECT count(release), count(*) FROM dp_ledger()").fetchall() == [(0, 4)]


def test_python_leaves_a_name_out_with_none() -> None:
    with dpsql.Context() as context:
        context.sql("CREATE TABLE t AS SELECT range AS a FROM range(100)")
        context.dp_count("t", epsilon=1, release=None)
        assert context.dp_ledger().column("release").to_pylist() == [None]


def test_every_function_refuses_it(connection: Any) -> None:
    for name, function in FUNCTIONS.items():
        if "release" in function.plan.arguments:
            with pytest.raises(duckdb.Error, match="DPSQL-P089"):
                connection.execute(f"FROM {name}('t', release := NULL)")
