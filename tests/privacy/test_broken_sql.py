"""Planted faults of SQL functions: the auditor catches each through SQL, and not its right counterpart.

Every right counterpart is accused with probability at most 1e-6; every fault is missed with
probability below 1e-4 (none of 1,000 simulated audits missed).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from private_functions import install_private

from dpsql.testing import AuditReport, audit_sql, check_fresh_draws
from support.broken import BROKEN_FUNCTIONS, install_broken

CONFIDENCE = 1 - 1e-6
COUNTS = ("CREATE TABLE t AS SELECT 1 AS x FROM range(3)", "CREATE TABLE t AS SELECT 1 AS x FROM range(4)")
GROUPS = (
    "CREATE TABLE t(g) AS VALUES (1), (1), (2), (2)",
    "CREATE TABLE t(g) AS VALUES (1), (1), (2), (2), (2)",
)


@pytest.fixture
def opened() -> Iterator[list[duckdb.DuckDBPyConnection]]:
    connections: list[duckdb.DuckDBPyConnection] = []
    yield connections
    for connection in connections:
        connection.close()


def run(
    opened: list[duckdb.DuckDBPyConnection], sql: str, tables: tuple[Any, Any], *, epsilon: float, runs: int
) -> AuditReport:
    def connect() -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect()
        opened.append(connection)
        install_broken(connection)
        install_private(connection)
        return connection

    return audit_sql(connect, sql, tables, epsilon=epsilon, runs=runs, confidence=CONFIDENCE, power=0.3, batch=25)


@pytest.mark.long
def test_half_scale_noise(opened: list[Any]) -> None:
    report = run(opened, "SELECT dp_broken_half_scale(count(*), 1.0) FROM t", COUNTS, epsilon=1.0, runs=1600)
    assert report.verdict == "violates", str(report)
    right = run(opened, "SELECT private_count(count(*), 1.0) FROM t", COUNTS, epsilon=1.0, runs=2400)
    assert right.verdict == "passes", str(right)


@pytest.mark.long
def test_shared_draw_across_rows(opened: list[Any]) -> None:
    query = "SELECT g, {}(count(*), 0.1) FROM t GROUP BY g ORDER BY g"
    report = run(opened, query.format("dp_broken_shared_draw"), GROUPS, epsilon=0.1, runs=400)
    assert report.verdict == "violates", str(report)
    assert report.epsilon_lower > 1
    right = run(opened, query.format("private_count"), GROUPS, epsilon=0.1, runs=400)
    assert right.verdict != "violates", str(right)


@pytest.mark.long
def test_null_passthrough(opened: list[Any]) -> None:
    tables = ("CREATE TABLE t(x BIGINT)", "CREATE TABLE t AS SELECT 1::BIGINT AS x")
    query = "SELECT {}(sum(x)::BIGINT, 0.1) FROM t"
    report = run(opened, query.format("dp_broken_null_passthrough"), tables, epsilon=0.1, runs=400)
    assert report.verdict == "violates", str(report)
    right = run(opened, query.format("private_count"), tables, epsilon=0.1, runs=400)
    assert right.verdict != "violates", str(right)


def test_function_without_side_effects() -> None:
    with duckdb.connect() as connection:
        broken, private = install_broken(connection), install_private(connection)
        report = check_fresh_draws(connection, "SELECT dp_broken_replayed(7, 0.1)")
        assert not report.fresh
        assert (report.prepared, report.runs) == (1, 40)
        assert report.false_alarm < 1e-9
        broken.draws.clear()
        connection.execute("EXPLAIN SELECT dp_broken_replayed(7, 0.1)").fetchall()
        assert broken.draws["dp_broken_replayed"] >= 1

        right = check_fresh_draws(connection, "SELECT private_count(7, 0.1)")
        assert right.fresh
        private.clear()
        connection.execute("EXPLAIN SELECT private_count(7, 0.1)").fetchall()
        assert private["private_count"] == 0


def test_function_without_side_effects_shares_its_noise(opened: list[Any]) -> None:
    """Over a constant, one draw serves every row: copies of one release in one statement agree."""
    with duckdb.connect() as connection:
        install_broken(connection)
        install_private(connection)
        query = "SELECT count(DISTINCT noisy) FROM (SELECT {}(7, 0.01) AS noisy FROM range(50))"
        assert connection.execute(query.format("dp_broken_replayed")).fetchall() == [(1,)]
        assert connection.execute(query.format("private_count")).fetchall()[0][0] > 1


@pytest.mark.long
def test_naive_float_noise(opened: list[Any]) -> None:
    tables = ("CREATE TABLE t(x INTEGER)", "CREATE TABLE t AS SELECT 1 AS x")
    query = "SELECT {}(coalesce(sum(x), 0)::BIGINT, 1.0) AS noisy FROM t"
    report = run(opened, query.format("dp_broken_float_noise"), tables, epsilon=1.0, runs=2400)
    assert report.verdict == "violates", str(report)
    assert "grain" in report.event, str(report)
    right = run(opened, query.format("private_count"), tables, epsilon=1.0, runs=1600)
    assert right.verdict == "passes", str(right)


@pytest.mark.long
def test_half_scale_selection(opened: list[Any]) -> None:
    tables = ("CREATE TABLE t(a, b, y) AS VALUES (1, 1, 1)", "CREATE TABLE t(a, b, y) AS VALUES (1, 1, 1), (1, -1, 1)")
    query = "SELECT {}([abs(sum(a * y)), abs(sum(b * y))]::BIGINT[], 2.0) FROM t"
    report = run(opened, query.format("dp_broken_select"), tables, epsilon=2.0, runs=2000)
    assert report.verdict == "violates", str(report)
    right = run(opened, query.format("private_select"), tables, epsilon=2.0, runs=1000)
    assert right.verdict == "passes", str(right)


@pytest.mark.long
def test_canonical_lipschitz_as_printed(opened: list[Any]) -> None:
    """At a small epsilon the overlapping classes alone, whose weights jump at ties, are many times the claim."""
    rows = "CREATE TABLE t(a, b, c, d, e, f) AS VALUES (1, 1, 1, 1, 1, 1), (1, 0, 0, 0, 0, 0)"
    tables = rows, f"{rows}, (-1, 1, 1, 0, 1, -1)"
    query = f"SELECT {{}}([{', '.join(f'abs(sum({column}))' for column in 'abcdef')}]::BIGINT[], 4, 0.1) FROM t"
    report = run(opened, query.format("dp_broken_canonical"), tables, epsilon=0.1, runs=1600)
    assert report.verdict == "violates", str(report)
    right = run(opened, query.format("private_canonical"), tables, epsilon=0.1, runs=800)
    assert right.verdict != "violates", str(right)


@pytest.mark.long
def test_scaling_by_the_data(opened: list[Any]) -> None:
    base = "SELECT s AS a, IF(i < 4, -s, s) AS b, s AS y FROM (SELECT i, 1.0 - 2 * (i % 2) AS s FROM range(40) r(i))"
    tables = (f"CREATE TABLE t AS {base}", f"CREATE TABLE t AS {base} UNION ALL SELECT 1e6, 1.0, 1.0")
    report = run(opened, "SELECT dp_broken_data_scaling(list([a, b, y]), 1.0) FROM t", tables, epsilon=1.0, runs=400)
    assert report.verdict == "violates", str(report)
    bounded = "SELECT private_select([abs(sum(greatest(-1, least(a, 1)) * y)), abs(sum(b * y))]::BIGINT[], 1.0) FROM t"
    right = run(opened, bounded, tables, epsilon=1.0, runs=400)
    assert right.verdict != "violates", str(right)


def test_query_that_fails_everywhere_is_not_an_audit(opened: list[Any]) -> None:
    with pytest.raises(RuntimeError, match="fails on both tables"):
        run(opened, "SELECT no_such_function(1)", COUNTS, epsilon=1.0, runs=10)


def test_failing_on_one_table_is_a_violation(opened: list[Any]) -> None:
    query = "SELECT IF(count(*) > 3, error('too many rows'), 'fine') FROM t"
    assert run(opened, query, COUNTS, epsilon=1.0, runs=200).verdict == "violates"


@pytest.mark.long
def test_batches_and_arrow_tables(opened: list[Any]) -> None:
    import pyarrow as pa

    tables = pa.table({"x": [1, 1, 1]}), pa.table({"x": [1, 1, 1, 1]})

    def connect() -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect()
        opened.append(connection)
        install_private(connection)
        return connection

    query = "SELECT private_count(count(*), 1.0) AS noisy FROM t"
    report = audit_sql(connect, query, tables, epsilon=1.0, runs=1600, batch=25, confidence=CONFIDENCE, power=0.3)
    assert report.verdict == "passes", str(report)


@pytest.mark.long
def test_broken_functions_are_installed_on_request_only() -> None:
    with duckdb.connect() as connection:
        for name in BROKEN_FUNCTIONS:
            assert not connection.execute("SELECT 1 FROM duckdb_functions() WHERE function_name = ?", [name]).fetchall()
        install_broken(connection)
        for name in BROKEN_FUNCTIONS:
            assert connection.execute("SELECT 1 FROM duckdb_functions() WHERE function_name = ?", [name]).fetchall()
