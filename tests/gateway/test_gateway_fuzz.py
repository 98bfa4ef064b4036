"""Statements at random: whatever is taken scans released tables alone, beside a table that it could have scanned."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator

import duckdb
import pytest

from dpsql.contract.query.nodes import query_sql
from dpsql.contract.query.tree import read_tree
from dpsql.gateway import boxed, statement
from dpsql.gateway.problems import GatewayError
from dpsql.gateway.statement import read
from tests.support.statement_fuzz import Fuzzer

SEED = 20261127


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in which the released tables stand beside one of people."""
    with duckdb.connect(config={"threads": 1, "max_expression_depth": 250}) as found:
        found.execute("CREATE TABLE patients AS SELECT 7 AS id, 'Ann' AS name, 3 AS n, 'k' AS key")
        for number in range(8):
            found.execute(f"CREATE TABLE released_{number} AS SELECT {number} AS n, 'k' AS key")
        yield found


def tables(plan: object) -> Iterator[str]:
    """Yield what a plan scans, by every spelling of a table in it."""
    if isinstance(plan, dict):
        if plan.get("type") == "LOGICAL_GET":
            data = plan.get("function_data")
            yield str(data.get("table")) if isinstance(data, dict) else "?"
        for one in plan.values():
            yield from tables(one)
    elif isinstance(plan, list):
        for one in plan:
            yield from tables(one)


def judged(con: duckdb.DuckDBPyConnection, text: str) -> str:
    """Return what becomes of a statement; fail where a taken one scans what it may not."""

    def parse(sql: str) -> str:
        return con.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()[0][0]

    try:
        found = read(text, parse)
    except GatewayError as error:
        return error.code.removeprefix("DPSQL-")
    if not found.post:
        return "set"
    plan = con.execute("SELECT json_serialize_plan(?)", [found.post]).fetchall()[0][0]
    scanned = set(tables(json.loads(plan)))
    assert scanned <= {f"released_{number}" for number in range(len(found.calls))}, (text, found.post)
    assert read_again(found.post, parse) == found.post, text
    try:
        boxed.check_plan(plan, len(found.calls))
    except GatewayError as error:
        assert error.code == "DPSQL-G091", (text, found.post, error.message)  # it does not bind
        return "unbound"
    return "planned"


def read_again(post: str, parse: Callable[[str], str]) -> str:
    """Return the text over released tables written once more: it is the same to the letter."""
    return query_sql(read_tree(parse(post)))


def fuzzed(con: duckdb.DuckDBPyConnection, seed: int, count: int) -> Counter[str]:
    found: Counter[str] = Counter()
    fuzzer = Fuzzer(seed)
    while found.total() < count:
        found[judged(con, fuzzer.statement())] += 1
    return found


@pytest.mark.long
def test_taken_statements_scan_released_tables_alone(con: duckdb.DuckDBPyConnection) -> None:
    found = fuzzed(con, SEED, 3000)
    assert found["planned"] > 60
    assert {"G001", "G005", "G006", "G007", "G008", "G012", "G014"} <= set(found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_more_taken_statements_scan_released_tables_alone(con: duckdb.DuckDBPyConnection, seed: int) -> None:
    assert fuzzed(con, SEED + seed, 10_000)["planned"] > 200


def test_the_oracle_sees_a_walk_that_lets_tables_pass(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: names of tables are taken for those of WITH queries."""
    monkeypatch.setattr(statement._Walk, "_table", lambda self, source, withs: source)
    with pytest.raises(AssertionError):
        fuzzed(con, SEED, 3000)
