"""Exact cross products beside their peers, in one run on the same data (kernel 2 and the whole dp_sis call).

    python benchmarks/xty.py arrays      # 10^7 x 100 doubles (8 GB) against NumPy's dgemv on two threads
    python benchmarks/xty.py database    # 10^6 x 100 in DuckDB: plain sum, exact SQL, and the Arrow path
    python benchmarks/xty.py call        # a whole dp_sis call against its own statistics query
    python benchmarks/xty.py start       # import and first call in a new process

Options: --rows N, --repeats N. Medians; the contenders take turns within each repeat.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from racing import race

import dpsql
from dpsql.kernels import xty
from dpsql.kernels.fixed_point import FIXED_POINT_ONE, quantise

BOUNDS = "lower := -1, upper := 1, target_lower := -1, target_upper := 1"


def show(title: str, medians: dict[str, float], base: str) -> None:
    print(title)
    for name, median in medians.items():
        print(f"  {name:44s} {median * 1e3:9.1f} ms   {median / medians[base]:6.2f} x {base}")


def arrays(rows: int, repeats: int) -> None:
    from threadpoolctl import threadpool_limits

    width = 100
    generator = np.random.default_rng(1)
    features = np.empty((rows, width))
    for start in range(0, rows, 100_000):
        features[start : start + 100_000] = generator.uniform(-1, 1, (min(100_000, rows - start), width))
    target = generator.uniform(-1, 1, rows)
    middle, scale = np.zeros(width), np.full(width, float(FIXED_POINT_ONE))

    def exact() -> np.ndarray:
        step = 1 << 16
        with ThreadPoolExecutor(2) as pool:
            parts = pool.map(
                lambda start: xty.cross_products(
                    quantise(target[start : start + step].copy(), 0.0, float(FIXED_POINT_ONE)),
                    features[start : start + step],
                    middle,
                    scale,
                ),
                range(0, rows, step),
            )
            return sum(parts, np.zeros(width, dtype=np.int64))

    def dgemv() -> np.ndarray:
        with threadpool_limits(2):
            return features.T @ target

    error = np.abs(exact() / FIXED_POINT_ONE**2 - dgemv()).max()
    print(f"largest difference to dgemv: {error:.2e} of a row's largest product")
    medians = race({"dgemv": dgemv, "exact fixed point": exact}, repeats)
    show(f"{rows:,} x {width} doubles, two threads", medians, "dgemv")


def fill(con: object, rows: int, width: int) -> None:
    """Create a wide table w and an array table a of the same numbers."""
    columns = ", ".join(f"2 * random() - 1 AS c{j}" for j in range(width))
    names = ", ".join(f"c{j}" for j in range(width))
    con.execute("SELECT setseed(0.5)").fetchall()  # type: ignore[attr-defined]
    con.execute(f"CREATE OR REPLACE TABLE w AS SELECT 2 * random() - 1 AS y, {columns} FROM range({rows})").fetchall()  # type: ignore[attr-defined]
    con.execute(f"CREATE OR REPLACE TABLE a AS SELECT y, [{names}]::DOUBLE[{width}] AS x FROM w").fetchall()  # type: ignore[attr-defined]


def database(rows: int, repeats: int) -> None:
    con = dpsql.connect()
    fill(con, rows, 100)
    queries = {
        "sum(x * y), doubles": "SELECT sum(COLUMNS(* EXCLUDE y) * y) FROM w",
        "exact SQL": "SELECT exact_xty(COLUMNS(* EXCLUDE y), y, -1, 1, -1, 1) FROM w",
        "Arrow path, array": f"SELECT * FROM exact_xty('a', target := 'y', features := 'x', {BOUNDS})",
        "Arrow path, wide": f"SELECT * FROM exact_xty('w', target := 'y', {BOUNDS})",
    }
    exact = con.execute(queries["exact SQL"]).fetchall()[0]
    for name in ("Arrow path, array", "Arrow path, wide"):
        assert [row[1] for row in con.execute(queries[name]).fetchall()] == list(exact)
    medians = race({name: lambda text=text: con.execute(text).fetchall() for name, text in queries.items()}, repeats)
    show(f"{rows:,} x 100 in DuckDB, equal integers", medians, "exact SQL")
    con.close()


def call(rows: int, repeats: int) -> None:
    del rows
    con = dpsql.connect()
    for count, width, table, layout in (
        (10_000, 1_000, "w", ""),
        (10_000, 1_000, "a", "features := 'x', "),
        (200, 20_000, "a", "features := 'x', "),
        (200, 20_000, "w", ""),
    ):
        if width == 20_000 and table == "a":
            con.execute("SELECT setseed(0.5)").fetchall()
            con.execute(
                f"CREATE OR REPLACE TABLE a AS SELECT 2 * random() - 1 AS y, x::DOUBLE[{width}] AS x FROM "
                f"(SELECT i, list(2 * random() - 1) AS x FROM range({count}) AS r(i), range({width}) GROUP BY i)"
            ).fetchall()
        elif width == 20_000:
            import pyarrow as pa

            values = np.random.default_rng(2).uniform(-1, 1, (width, count))
            frame = pa.table({"y": values[0].copy(), **{f"c{j}": values[j] for j in range(width)}})
            con.register("frame", frame)
            con.execute("CREATE OR REPLACE TABLE w AS FROM frame").fetchall()
            con.unregister("frame")
        elif table == "w":
            fill(con, count, width)
        arguments = f"'{table}', target := 'y', {layout}{BOUNDS}"
        medians = race(
            {
                "statistics query": lambda text=arguments: con.execute(f"SELECT * FROM exact_xty({text})").fetchall(),
                "dp_sis": lambda text=arguments: con.execute(
                    f"SELECT * FROM dp_sis({text}, k := 10, epsilon := 1.0)"
                ).fetchall(),
            },
            repeats,
        )
        show(f"{count:,} x {width:,}, {'wide' if table == 'w' else 'array'}", medians, "statistics query")
    con.close()


def start(rows: int, repeats: int) -> None:
    del rows
    first_call = (
        "import time, dpsql; con = dpsql.connect(); "
        "con.execute('CREATE TABLE t AS SELECT random() AS a, random() AS b, random() AS y FROM range(500)'); "
        "start = time.perf_counter(); con.execute(\"SELECT * FROM dp_sis('t', target := 'y', k := 1, epsilon := 1.0, "
        'lower := 0, upper := 1, target_lower := 0, target_upper := 1)").fetchall(); '
        "print(time.perf_counter() - start); con.close()"
    )
    programs = {
        "import duckdb": "import duckdb",
        "import dpsql": "import dpsql",
        "import duckdb, dpsql": "import duckdb, dpsql",
        "import, connect, first dp_sis": first_call,
    }
    medians = race(
        {
            name: lambda code=code: subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
            for name, code in programs.items()
        },
        repeats,
    )
    show("whole processes", medians, "import duckdb")
    inner = subprocess.run([sys.executable, "-c", first_call], check=True, capture_output=True, text=True).stdout
    print(f"  the first dp_sis itself, connected: {float(inner) * 1e3:.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("arrays", "database", "call", "start"))
    parser.add_argument("--rows", type=int)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    default = {"arrays": 10_000_000, "database": 1_000_000, "call": 0, "start": 0}[options.what]
    if options.what in ("arrays", "database"):
        xty.warm_up()
    {"arrays": arrays, "database": database, "call": call, "start": start}[options.what](
        options.rows or default, options.repeats
    )


if __name__ == "__main__":
    main()
