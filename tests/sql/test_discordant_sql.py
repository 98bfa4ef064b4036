"""exact_kendall_sql: plain SQL that gives the kernel's counts, on any DuckDB and on a plain command line."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest

from dpsql.kernels.kendall import RankedTable, pair_counts, rank_column
from support.cases import cases

SQL = Path(__file__).resolve().parents[2] / "sql" / "exact"
VALUES = ["NULL", "'nan'::DOUBLE", "'inf'::DOUBLE", "'-inf'::DOUBLE", "0.0", "-0.0", "1.0", "2.5", "1e308", "5e-324"]


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    opened = duckdb.connect()
    for name in ("fixed_point.sql", "discordant.sql"):
        opened.execute((SQL / name).read_text(encoding="utf-8"))
    yield opened
    opened.close()


def counts(con: duckdb.DuckDBPyConnection, source: str, x: str, y: str) -> tuple[int, int]:
    [row] = con.execute("SELECT * FROM exact_kendall_sql(?, ?, ?)", [source, x, y]).fetchall()
    return row


def kernel(con: duckdb.DuckDBPyConnection, source: str, x: str, y: str) -> tuple[int, int]:
    columns = con.execute(f'SELECT "{x}"::DOUBLE AS x, "{y}"::DOUBLE AS y FROM {source}').fetchnumpy()
    a, b = (rank_column(np.ma.filled(columns[name].astype(float), np.nan)) for name in ("x", "y"))
    concordant, discordant = pair_counts(a, [b])
    return int(concordant[0]), int(discordant[0])


def test_every_kind_of_tie_and_missing_value(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("SELECT setseed(0.25)").fetchall()
    con.execute(
        'CREATE OR REPLACE TABLE ties AS SELECT (random() * 20)::INT AS x, (random() * 20)::INT::DOUBLE AS "y\'s. %", '
        "random() AS z, (random() * 2)::INT AS g, 7 AS same FROM range(400)"
    )
    con.execute("CREATE OR REPLACE TABLE ties AS FROM ties UNION ALL SELECT NULL, 'nan', 0, 1, 7 FROM range(9)")
    names = ["x", "y's. %", "z", "g", "same"]
    for x, y in itertools.product(names, names):
        assert counts(con, "ties", x, y) == kernel(con, "ties", x, y), (x, y)
    assert counts(con, "ties", "same", "z") == (0, 0)
    assert counts(con, "ties", "z", "z")[1] == 0


def test_awkward_values(con: duckdb.DuckDBPyConnection) -> None:
    rows = ", ".join(f"({a}, {b})" for a, b in itertools.product(VALUES, VALUES))
    con.execute(f"CREATE OR REPLACE TABLE awkward(x DOUBLE, y DOUBLE); INSERT INTO awkward VALUES {rows}")
    found = counts(con, "awkward", "x", "y")
    assert found == kernel(con, "awkward", "x", "y")
    levels = len(VALUES) - 3  # NULL and NaN are missing, and the zeros are one
    doubled = (levels + 1) ** 2 * ((levels + 1) ** 2 - 1) // 2
    assert found[0] == found[1] < doubled // 2


@cases("rows", [0, 1, 2, 3, 2047, 2048, 2049, 5000])
def test_sizes(con: duckdb.DuckDBPyConnection, rows: int) -> None:
    con.execute(
        f"CREATE OR REPLACE TABLE sized AS SELECT hash(i) % 97 AS x, hash(-i) % 1000 / 8 AS y FROM range({rows}) AS r(i)"
    )
    assert counts(con, "sized", "x", "y") == kernel(con, "sized", "x", "y")


@cases("kind", ["UTINYINT", "BIGINT", "HUGEINT", "FLOAT", "DECIMAL(18,3)", "BOOLEAN"])
def test_numeric_types(con: duckdb.DuckDBPyConnection, kind: str) -> None:
    con.execute(
        f"CREATE OR REPLACE TABLE typed AS SELECT (hash(i) % 2)::{kind} AS x, (hash(-i) % 90)::{kind} AS y FROM range(80) AS r(i)"
    )
    con.execute("INSERT INTO typed VALUES (NULL, NULL), (1, 0)")
    assert counts(con, "typed", "x", "y") == kernel(con, "typed", "x", "y")


def test_sources_and_shape(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE OR REPLACE TABLE plain AS SELECT i AS a, (i * 7) % 5 AS B FROM range(20) AS r(i)")
    con.execute("CREATE OR REPLACE VIEW seen AS SELECT a * 2 AS a, b FROM plain")
    expected = counts(con, "plain", "a", "b")
    assert counts(con, "seen", "A", "b") == counts(con, "memory.main.plain", "a", "B") == expected
    found = con.sql("WITH cte AS (SELECT * FROM plain) FROM exact_kendall_sql('cte', x := 'a', y := 'b')")
    assert found.fetchall() == [expected]
    assert found.columns == ["concordant", "discordant"]
    assert found.types == ["HUGEINT", "HUGEINT"]
    assert con.sql("SELECT concordant - discordant FROM exact_kendall_sql('plain', 'a', 'a')").fetchall() == [(190,)]


@pytest.mark.long
def test_threads_and_row_order_do_not_matter(con: duckdb.DuckDBPyConnection) -> None:
    con.execute(
        "CREATE OR REPLACE TABLE long AS SELECT hash(i) % 5000 AS x, hash(i + 1) % 300 AS y FROM range(100000) AS r(i)"
    )
    con.execute("CREATE OR REPLACE VIEW turned AS FROM long ORDER BY hash(x, y)")
    expected = kernel(con, "long", "x", "y")
    for threads in (1, 4):
        con.execute(f"SET threads = {threads}")
        assert counts(con, "long", "x", "y") == counts(con, "turned", "x", "y") == expected
    con.execute("RESET threads")


def test_scores_of_a_table(con: duckdb.DuckDBPyConnection) -> None:
    """Concordant less discordant is what the table of ranks scores."""
    con.execute("CREATE OR REPLACE TABLE scored AS SELECT hash(i) % 50 AS x, hash(-i) % 9 AS y FROM range(500) AS r(i)")
    concordant, discordant = counts(con, "scored", "x", "y")
    columns = con.execute("SELECT x::DOUBLE AS x, y::DOUBLE AS y FROM scored").fetchnumpy()
    assert RankedTable([columns["x"], columns["y"]]).scores(1, [0]).tolist() == [[concordant - discordant]]
