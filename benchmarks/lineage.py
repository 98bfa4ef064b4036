"""What placing costs: dp_sis on a table of 100 columns, or a view of it, beside 50 views; protected and not."""

from __future__ import annotations

import statistics
import time

import duckdb

import dpsql

CALL = (
    "target := 'y', features := ['c1', 'c2'], k := 1, epsilon := 0.001, lower := 0, upper := 1, "
    "target_lower := 0, target_upper := 1"
)


def build(*, protected: bool) -> duckdb.DuckDBPyConnection:
    """Return a connection with the table and its views."""
    con = dpsql.connect()
    columns = ", ".join(f"(i % {j + 2}) / {j + 2} AS c{j}" for j in range(100))
    con.execute(f"CREATE TABLE t AS SELECT i AS id, {columns}, 0.5 AS y FROM range(100) AS r(i)")
    for j in range(50):
        con.execute(f"CREATE VIEW v{j} AS SELECT * FROM t WHERE c{j} > 0.1")
    if protected:
        con.execute("SELECT dp_protect('t', epsilon := 100000)")
    return con


def seconds(con: duckdb.DuckDBPyConnection, source: str) -> float:
    """Return the time of one call."""
    start = time.perf_counter()
    con.execute(f"FROM dp_sis('{source}', {CALL})").fetchall()
    return time.perf_counter() - start


def main() -> None:
    """Print the medians of 40 pairs."""
    free, governed = build(protected=False), build(protected=True)
    for source in ("t", "v3"):
        pairs = [(seconds(free, source), seconds(governed, source)) for _ in range(45)][5:]
        before, after = (1000 * statistics.median(side) for side in zip(*pairs, strict=True))
        print(
            f"DuckDB {duckdb.__version__}, {source}: {before:.1f} ms where nothing is protected, {after:.1f} ms where "
            f"something is: {after - before:.1f} ms"
        )


if __name__ == "__main__":
    main()
