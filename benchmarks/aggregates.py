"""Time and memory of one grouped query: count and mean of 50 groups, 10⁶ rows.

    python benchmarks/aggregates.py [--rows 1000000] [--calls 5]

Each contender runs in a process of its own: dpsql's dp_aggregate in DuckDB, with and without a privacy unit; DuckDB's
own GROUP BY; and OpenDP's Context, if installed with the version of Polars that it reads, once with the sum and the
count that a mean needs. Prints the first call, the median of the others, and the memory beyond imports and table.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

GROUPS = 50
KEYS = [f"h{number:02d}" for number in range(GROUPS)]
CONTENDERS = ("dpsql", "dpsql, five groups per person", "DuckDB", "DuckDB, five groups per person", "OpenDP")
# What DuckDB alone needs to bound rows in the same way, with its own hash.
_BOUNDED = (
    "SELECT k, u, x FROM t QUALIFY dense_rank() OVER (PARTITION BY u ORDER BY hash(k, u), k) <= 5 "
    "AND row_number() OVER (PARTITION BY u, k ORDER BY hash(x)) <= 1"
)


def rows(count: int) -> dict[str, np.ndarray]:
    """Return the columns of the table: a key, a person with five rows on average, and a value."""
    random = np.random.default_rng(20240607)
    keys = np.array(KEYS)[random.integers(0, GROUPS, count)]
    return {"k": keys, "u": random.integers(0, count // 5, count), "x": random.uniform(0.0, 100.0, count)}


def _in_duckdb(name: str, count: int) -> Callable[[], object]:
    import pyarrow as pa

    import dpsql

    context = dpsql.Context()
    context.connection.register("frame", pa.table(rows(count)))
    context.connection.execute("CREATE TABLE t AS SELECT * FROM frame")
    context.connection.unregister("frame")
    if name.startswith("DuckDB"):
        source = "t" if name == "DuckDB" else f"({_BOUNDED})"
        return lambda: context.connection.execute(f"SELECT k, count(*), avg(x) FROM {source} GROUP BY k").fetchall()
    arguments: dict[str, object] = {
        "aggregates": ["count", "avg"],
        "target": "x",
        "lower": 0,
        "upper": 100,
        "epsilon": 1.0,
    }
    arguments |= {"by": ["k"], "keys": KEYS}
    if name != "dpsql":
        arguments |= {"privacy_unit": "u", "max_groups_per_unit": 5, "max_rows_per_unit_group": 1}
    return lambda: context.dp_aggregate("t", **arguments).to_arrow()


def _opendp(name: str, count: int) -> Callable[[], object]:
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    frame, keys = pl.DataFrame(rows(count)), pl.LazyFrame({"k": KEYS})
    margin = dp.polars.Margin(by=["k"], max_length=count, max_groups=GROUPS)
    x = pl.col("x").fill_nan(0.0).fill_null(0.0)

    def call() -> object:
        context = dp.Context.compositor(
            data=frame.lazy(), privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(epsilon=1.0),
            split_evenly_over=1, margins=[margin],
        )  # fmt: skip
        query = context.query().group_by("k").agg(dp.len(signed=True), x.dp.sum((0.0, 100.0))).with_keys(keys)
        return query.release().collect()

    return call


def measure(name: str, count: int, calls: int) -> dict[str, float]:
    """Return seconds and MiB of one contender, in this process."""
    call = (_opendp if name == "OpenDP" else _in_duckdb)(name, count)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    taken = []
    for _ in range(calls + 1):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "first": taken[0],
        "median": statistics.median(taken[1:]),
        "MiB": (after - before) / 1024,
        "all": after / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--only", choices=CONTENDERS, help="measure one contender here, and print JSON")
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measure(options.only, options.rows, options.calls)))
        return
    for name in CONTENDERS:
        command = [sys.executable, __file__, "--rows", str(options.rows), "--calls", str(options.calls), "--only", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{name:32} not measured: {done.stderr.strip().splitlines()[-1][:90]}")
            continue
        found = json.loads(done.stdout.strip().splitlines()[-1])
        print(
            f"{name:32} first {found['first'] * 1e3:7.0f} ms, median {found['median'] * 1e3:7.0f} ms, "
            f"memory +{found['MiB']:.0f} MiB (peak {found['all']:.0f})"
        )


if __name__ == "__main__":
    main()
