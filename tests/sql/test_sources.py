"""Where rows may come from, and from which connection, cursor or thread a call may be made."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import dpsql

ROOT = Path(__file__).resolve().parents[2]
ARGUMENTS = "target := 'y', k := 1, epsilon := 1, lower := 0, upper := 1"
BODY = "SELECT (i % 7) / 7.0 AS a, (i % 5) / 5.0 AS b, i % 2 = 0 AS y FROM range(500) AS r(i)"


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    opened = dpsql.connect()
    yield opened
    opened.close()


def expected() -> list[tuple[str, int]]:
    with dpsql.connect() as opened:
        opened.execute(f"CREATE TABLE t AS {BODY}")
        return exact(opened, "t")


def exact(con: Any, source: str, prefix: str = "") -> list[tuple[str, int]]:
    quoted = source.replace("'", "''")
    return con.execute(f"FROM {prefix}exact_xty('{quoted}', target := 'y', lower := 0, upper := 1)").fetchall()  # type: ignore[no-any-return]


def select(con: Any, source: str, prefix: str = "", more: str = "") -> list[tuple[int, str]]:
    quoted = source.replace("'", "''")
    return con.execute(f"FROM {prefix}dp_sis('{quoted}', {ARGUMENTS}{more})").fetchall()  # type: ignore[no-any-return]


def check(con: Any, source: str, prefix: str = "") -> None:
    assert exact(con, source, prefix) == expected()
    assert len(select(con, source, prefix)) == 1


def test_tables_views_and_temp_tables(con: Any) -> None:
    con.execute(f"CREATE TABLE t AS {BODY}")
    con.execute("CREATE VIEW v AS SELECT * FROM t")
    con.execute("CREATE TEMP TABLE tt AS FROM t")
    con.execute("CREATE TEMP VIEW tv AS FROM tt")
    con.execute("CREATE SCHEMA s")
    con.execute("CREATE TABLE s.inner_t AS FROM t")
    for source in ("t", "T", "main.t", "memory.main.t", '"t"', "v", "tt", "temp.tt", "tv", "s.inner_t", 's."inner_t"'):
        check(con, source)


def test_parquet_paths_and_views(con: Any, tmp_path: Path) -> None:
    directory = tmp_path / "a dir.with'odd name"
    directory.mkdir()
    path = directory / "x.parquet"
    con.execute(f"COPY ({BODY}) TO '{str(path).replace(chr(39), chr(39) * 2)}'")
    con.execute(f"CREATE VIEW p AS FROM '{str(path).replace(chr(39), chr(39) * 2)}'")
    for source in (str(path), str(directory / "*.parquet"), "p"):
        check(con, source)
    csv = tmp_path / "x.csv"
    con.execute(f"COPY (SELECT a::DOUBLE AS a, b::DOUBLE AS b, y FROM ({BODY})) TO '{csv}'")
    assert len(select(con, str(csv))) == 1
    with pytest.raises(duckdb.Error, match="DPSQL-S002"):
        con.execute(f"FROM dp_sis('p', {ARGUMENTS}, features := ['a', 'file_row_number'])").fetchall()


def test_registered_frames(con: Any) -> None:
    table = pa.table(con.sql(BODY).to_arrow_table())
    con.register("arrow_frame", table)
    con.register("polars_frame", pl.DataFrame(table))
    con.register("Odd name; --", table)
    for source in ("arrow_frame", "polars_frame", "Odd name; --"):
        check(con, source)
    con.unregister("arrow_frame")


def test_python_variables(con: Any) -> None:
    my_frame = pl.DataFrame(con.sql(BODY).to_arrow_table())
    my_table = my_frame.to_arrow()
    assert len(con.execute(f"FROM dp_sis('my_frame', {ARGUMENTS})").fetchall()) == 1
    assert len(con.execute(f"FROM dp_sis('my_table', {ARGUMENTS})").fetchall()) == 1
    unit = ", privacy_unit := 'b', max_rows_per_unit := 5, center := 'target'"
    assert len(con.execute(f"FROM dp_sis('my_table', {ARGUMENTS}{unit}, features := ['a'])").fetchall()) == 1
    rows = con.execute("FROM exact_xty('my_frame', target := 'y', lower := 0, upper := 1)").fetchall()
    assert rows == expected()
    del my_frame, my_table


def test_a_cte_of_the_caller(con: Any) -> None:
    con.execute(f"CREATE TABLE t AS {BODY}")
    rows = con.execute(
        "WITH c AS (FROM t WHERE a < 2) FROM exact_xty('c', target := 'y', lower := 0, upper := 1)"
    ).fetchall()
    assert rows == expected()


COLLIDING = [
    "input",
    "gate",
    "rows",
    "center",
    "target_sums",
    "parts",
    "cells",
    "statistic",
    "admitted",
    "targets",
    "documents",
    "features",
    "centred",
    "present",
    "sums",
    "probe",
    "found",
    "dpsql_source",
    "dpsql_absent",
    "entry",
    "release",
    "ticket",
]


def test_names_that_our_statement_uses_inside(con: Any) -> None:
    for name in COLLIDING:
        con.execute(f'CREATE TABLE "{name}" AS {BODY}')
        assert exact(con, name) == expected(), name
        con.execute(
            f'CREATE OR REPLACE TABLE "{name}" AS SELECT i AS d, i % 2 = 0 AS y, \'a\' AS "{name}" FROM range(10) AS r(i)'
        )
        rows = con.execute(
            f"FROM exact_xty('{name}', target := 'y', features := '{name}', row_id := 'd', names := ['a'], lower := -1, upper := 1)"
        ).fetchall()
        assert rows == [("a", 0)], name
        con.execute(f'DROP TABLE "{name}"')


def test_columns_whose_names_differ_in_unicode_case_only(con: Any) -> None:
    con.execute('CREATE TABLE t AS SELECT 1.0 AS "Ä", 0.0 AS "ä", true AS "Σ", 5 AS "σ"')
    rows = con.execute("FROM exact_xty('t', target := 'Σ', features := ['Ä', 'ä'], lower := 0, upper := 1)").fetchall()
    assert rows == [("Ä", 2**40), ("ä", -(2**40))]


def test_the_callers_own_transaction(con: Any) -> None:
    con.execute(f"CREATE TABLE t AS {BODY}")
    con.begin()
    con.execute("DELETE FROM t")
    con.execute("INSERT INTO t VALUES (1, 0, true)")
    con.execute("CREATE TABLE fresh AS FROM t")
    for source in ("t", "fresh"):
        assert exact(con, source) == [("a", 2**40), ("b", -(2**40))]
        select(con, source)
    con.rollback()
    check(con, "t")


def test_installing_inside_a_transaction() -> None:
    plain = duckdb.connect()
    plain.execute("CREATE TABLE t(a INTEGER)")
    plain.begin()
    plain.execute("INSERT INTO t VALUES (1)")
    session = dpsql.install(plain)
    plain.rollback()
    assert dpsql.install(plain) is session, "what belongs to the instance is not rolled back"
    plain.execute(f"CREATE OR REPLACE TABLE t AS {BODY}")
    check(plain, "t")
    plain.close()


def test_attached_databases_and_use(con: Any, tmp_path: Path) -> None:
    con.execute(f"ATTACH '{tmp_path / 'other.duckdb'}' AS other")
    con.execute(f"CREATE TABLE other.t AS {BODY}")
    con.execute("CREATE SCHEMA other.s")
    con.execute("CREATE TABLE other.s.t2 AS FROM other.t")
    for source in ("other.t", "other.main.t", "other.s.t2"):
        check(con, source)
    con.execute("USE other")
    check(con, "t")
    check(con, "s.t2")
    con.execute("USE memory")


def test_cursors_see_the_macros_by_their_catalog(con: Any) -> None:
    con.execute(f"CREATE TABLE t AS {BODY}")
    cursor = con.cursor()
    with pytest.raises(duckdb.CatalogException):
        cursor.execute(f"FROM dp_sis('t', {ARGUMENTS})")
    check(cursor, "t", "dpsql.")
    assert len(cursor.execute("FROM dpsql.dp_budget()").fetchall()) == 1
    aggregate = "dp_sis([a, b], y, n_features := 2, k := 1, epsilon := 1, lower := 0, upper := 1)"
    assert cursor.execute(f"SELECT dpsql.main.{aggregate} FROM t").fetchall()
    dpsql.install(cursor)
    check(cursor, "t")
    cursor.execute("CREATE TEMP TABLE mine AS FROM t")
    check(cursor, "mine")
    assert con.execute("SELECT count(*) FROM dp_ledger()").fetchall() == [(4,)], "one ledger"
    cursor.close()


@pytest.mark.odds("0: looks at charges")
def test_threads(con: Any) -> None:
    con.execute(f"CREATE TABLE t AS {BODY}")
    con.execute("SELECT dp_protect('t', epsilon := 20)")
    outcomes: list[str] = []

    def work() -> None:
        cursor = con.cursor()
        for _ in range(5):
            try:
                select(cursor, "t", "dpsql.")
                outcomes.append("released")
            except duckdb.Error as error:
                outcomes.append("refused" if "DPSQL-B001" in str(error) else str(error))
        cursor.close()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 10 + ["released"] * 20
    assert dpsql.install(con).ledger.verify().ok


def test_two_connections_to_a_file_share_a_session(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    first = dpsql.connect(path)
    first.execute(f"CREATE TABLE t AS {BODY}")
    first.execute("SELECT dp_protect('t', epsilon := 3)")
    second = dpsql.connect(path)
    assert dpsql.install(first) is dpsql.install(second)
    select(first, "t")
    select(second, "t")
    assert second.execute("SELECT epsilon_remaining FROM dp_budget()").fetchall() == [(1.0,)]
    assert dpsql.connect(path, ledger=tmp_path / "x.duckdb.dpsql-ledger").close() is None
    with pytest.raises(dpsql.LedgerError, match="L011"):
        dpsql.connect(path, ledger=tmp_path / "another.dpsql-ledger")
    first.close()
    del first
    gc.collect()
    select(second, "t")
    with pytest.raises(duckdb.Error, match="DPSQL-B001"):
        select(second, "t")
    second.close()


@pytest.mark.odds("0: looks at charges and at how many rows come")
def test_a_cursor_that_outlives_its_connection_does_not_crash() -> None:
    """DuckDB frees a function with the connection that registered it, and then calls what it freed."""
    script = f"""
import gc, duckdb, dpsql
con = dpsql.connect()
con.execute("CREATE TABLE t AS {BODY}")
cursor = con.cursor()
del con
gc.collect()
try:
    cursor.execute("FROM dpsql.dp_sis('t', {ARGUMENTS})").fetchall()
except duckdb.Error as error:
    print('L013' in str(error))
dpsql.install(cursor)
print(len(cursor.execute("FROM dp_sis('t', {ARGUMENTS})").fetchall()))
"""
    assert run(script) == ["True", "1"]


def run(script: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.odds("0: looks at charges and at how many rows come")
def test_reopening_keeps_the_budget_and_closing_frees_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    con = dpsql.connect(path)
    con.execute(f"CREATE TABLE t AS {BODY}")
    con.execute("SELECT dp_protect('t', epsilon := 3)")
    select(con, "t")
    opened = (
        f"import duckdb; c = duckdb.connect({str(path)!r}); print(c.execute('SELECT count(*) FROM t').fetchall()[0][0])"
    )
    with pytest.raises(AssertionError, match="lock"):
        run(opened)
    con.close()
    assert run(opened) == ["500"], "nothing of ours keeps the instance alive"
    again = dpsql.connect(path)
    assert again.execute("SELECT epsilon_spent, epsilon_remaining FROM dp_budget()").fetchall() == [(1.0, 2.0)]
    again.close()
    assert (tmp_path / "x.duckdb.dpsql-ledger").exists()


def test_nothing_of_ours_is_in_the_users_file(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    con = dpsql.connect(path)
    con.execute(f"CREATE TABLE t AS {BODY}")
    select(con, "t")
    con.close()
    plain = duckdb.connect(str(path))
    found = plain.execute(
        "SELECT function_name FROM duckdb_functions() WHERE function_name LIKE 'dp\\_%' ESCAPE '\\' "
        "OR function_name LIKE 'dpsql%' OR function_name LIKE 'exact\\_%' ESCAPE '\\'"
    ).fetchall()
    assert found == []
    assert plain.execute("SELECT database_name FROM duckdb_databases() WHERE NOT internal").fetchall() == [("x",)]
    assert plain.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [("t",)]
    plain.close()


@pytest.mark.parametrize("name", ["dpsql", "dpsql_macros"])
def test_a_database_with_our_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.duckdb"
    con = dpsql.connect(path)
    con.execute(f"CREATE TABLE t AS {BODY}")
    check(con, "t")
    check(con, f"{name}.t")
    (catalog,) = con.execute(
        "SELECT DISTINCT database_name FROM duckdb_functions() WHERE function_name = 'dp_sis' AND database_name <> 'temp'"
    ).fetchone() or ("",)
    assert catalog not in ("", name)
    check(con.cursor(), "t", f"{catalog}.")
    con.close()


def test_read_only_database(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    with duckdb.connect(str(path)) as made:
        made.execute(f"CREATE TABLE t AS {BODY}")
    con = dpsql.connect(path, read_only=True)
    check(con, "t")
    check(con.cursor(), "t", "dpsql.")
    con.close()
    again = dpsql.connect(path, read_only=True)
    assert again.execute("SELECT releases FROM dp_budget()").fetchall() == [(2,)]
    again.close()


def test_locked_down_connection() -> None:
    con = dpsql.connect(config={"enable_external_access": "false", "python_enable_replacements": "false"})
    con.execute(f"CREATE TABLE t AS {BODY}")
    con.execute("SET lock_configuration = true")
    check(con, "t")
    con.close()


def test_a_failed_connect_leaves_the_file_free(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    with pytest.raises(dpsql.LedgerError):
        dpsql.connect(path, ledger=tmp_path / "no" / "such" / "directory" / "ledger")
    con = dpsql.connect(path)
    con.execute(f"CREATE TABLE t AS {BODY}")
    check(con, "t")
    con.close()


def test_many_connections_one_after_another() -> None:
    for _ in range(12):
        con = dpsql.connect()
        con.execute("CREATE TABLE t AS SELECT 1.0 AS a, true AS y")
        assert con.execute("SELECT count(*) FROM dp_ledger()").fetchall() == [(0,)], "each has its own ledger"
        select(con, "t")
        con.close()
