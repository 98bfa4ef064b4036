"""Grouped aggregates: whole calls, and their statistics beside the same integers in plain SQL.

    python benchmarks/aggregates.py groups     # a count and two sums in 1000 groups; DuckDB's GROUP BY
    python benchmarks/aggregates.py units      # the same of units with limits; DuckDB's QUALIFY by a hash
    python benchmarks/aggregates.py keys       # a whole call with 10**6 public groups
    python benchmarks/aggregates.py private    # a whole call with as many private keys as rows
    python benchmarks/aggregates.py calls      # whole calls of 10**5 rows

Options: --rows N, --repeats N, --database FILE (keeps the table of `groups` and `units`). CPU time is of all threads.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import duckdb

import dpsql
from dpsql.contract.plan import Placement
from dpsql.engines.duckdb.planner import statistic_sql
from dpsql.functions.registry import FUNCTIONS

GROUPS = 1000
BOUNDS = {"x": (0, 50), "y": (0, 10_000)}
ASKED = {
    "aggregates": ["count", "sum"],
    "target": ["x", "y"],
    "lower": [0, 0],
    "upper": [50, 10_000],
    "epsilon": 1,
}
KEYS = {"k": list(range(GROUPS)), "s": [f"group {number}" for number in range(GROUPS)]}
LIMITS = {
    "m": {"max_rows_per_unit": 5},
    "g, r": {"max_groups_per_unit": 2, "max_rows_per_unit_group": 3},
    "m, g, r": {"max_rows_per_unit": 5, "max_groups_per_unit": 2, "max_rows_per_unit_group": 3},
}


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def race(contenders: dict[str, Callable[[], object]], repeats: int) -> None:
    """Time the contenders in turn; print the median wall and CPU seconds of each, and ratios to the first."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, work in contenders.items():
            wall, used = time.perf_counter(), cpu()
            work()
            times[name].append((time.perf_counter() - wall, cpu() - used))
    medians = {name: [statistics.median(part) for part in zip(*found, strict=True)] for name, found in times.items()}
    first = next(iter(medians.values()))
    for name, (wall, used) in medians.items():
        print(
            f"  {name:36s} wall {wall:8.3f} s {wall / first[0]:5.2f}   CPU {used:8.3f} s {used / first[1]:5.2f}",
            flush=True,
        )


def statement(**given: Any) -> str:
    """Return the statement of a call's exact sums alone, over a table whose text and numbers DuckDB has checked."""
    plan = FUNCTIONS["dp_aggregate"].plan.from_arguments("t", {**ASKED, **given})
    placement = Placement(counter=0, source="t", direct=True, checked=True, numbered=True, governed=False)
    return statistic_sql(replace(plan, placement=placement), "dp_aggregate")


def fetch(connection: duckdb.DuckDBPyConnection, query: str) -> Callable[[], object]:
    return lambda: connection.execute(query).fetchall()


def coded(key: str, *more: str) -> str:
    """Return the rows of t with their values clipped and coded by hand."""
    parts = [f"{key} AS key", *more]
    for name, (low, high) in BOUNDS.items():
        middle, scale = (low + high) / 2, 2**21 / (high - low)
        code = f"floor(({name} - {middle!r}::DOUBLE) * {scale!r}::DOUBLE + 0.5::DOUBLE)::INTEGER"
        parts.append(
            f"CASE WHEN {name} BETWEEN {low}::DOUBLE AND {high}::DOUBLE THEN {code} "
            f"WHEN {name} < {low}::DOUBLE THEN {-(2**20)} WHEN NOT isnan({name}) THEN {2**20} END AS q{name}"
        )
    return f"(SELECT {', '.join(parts)} FROM t)"


def by_hand(rows: str) -> str:
    return f"SELECT key, count(*), count(qx), sum(qx), count(qy), sum(qy) FROM {rows} GROUP BY key"


def capped(
    rows: str, max_rows_per_unit: int = 0, max_groups_per_unit: int = 0, max_rows_per_unit_group: int = 0
) -> str:
    """Return rows with the limits of their units, in the order of a hash."""
    limits = (
        ("dense_rank", "u", "hash(u, key), key", max_groups_per_unit),
        ("row_number", "u, key", "hash(u, key, qx, qy)", max_rows_per_unit_group),
        ("row_number", "u", "hash(u, key, qx, qy)", max_rows_per_unit),
    )
    for rank, owner, order, most in limits:
        if most:
            rows = f"(SELECT * FROM {rows} QUALIFY {rank}() OVER (PARTITION BY {owner} ORDER BY {order}) <= {most})"
    return rows


def table(context: dpsql.Context, rows: int) -> None:
    """Make t: integer and text keys, units of ten rows on average, and two values, half of x beyond its bounds."""
    context.connection.execute(
        f"CREATE TABLE IF NOT EXISTS t AS SELECT (hash(i) % {GROUPS})::INTEGER AS k, "
        f"'group ' || (hash(i) % {GROUPS}) AS s, (hash(i + 7) % {max(1, rows // 10)})::INTEGER AS u, "
        "(hash(i * 3) % 10000) / 100.0::DOUBLE AS x, (hash(i * 5) % 100000)::DOUBLE / 7.0::DOUBLE AS y "
        f"FROM range({rows}) AS r(i)"
    )


def groups(context: dpsql.Context, options: argparse.Namespace) -> None:
    table(context, options.rows or 10_000_000)
    for key, listed in KEYS.items():
        print(f"keys of {'text' if key == 's' else 'integers'}")
        contenders = {
            "DuckDB: GROUP BY of the same integers": fetch(context.connection, by_hand(coded(key))),
            "the exact sums of dp_aggregate": fetch(context.connection, statement(by=key, keys=listed)),
        }
        race(contenders, options.repeats)


def units(context: dpsql.Context, options: argparse.Namespace) -> None:
    table(context, options.rows or 10_000_000)
    for key, listed in KEYS.items():
        for name, limits in LIMITS.items():
            print(f"keys of {'text' if key == 's' else 'integers'}, limits {name}")
            ours = statement(by=key, keys=listed, privacy_unit="u", **limits)
            contenders = {
                "DuckDB: QUALIFY by a hash, GROUP BY": fetch(
                    context.connection, by_hand(capped(coded(key, "u"), **limits))
                ),
                "the exact sums of dp_aggregate": fetch(context.connection, ours),
            }
            race(contenders, options.repeats)


def keys(context: dpsql.Context, options: argparse.Namespace) -> None:
    rows, count = options.rows or 10_000_000, 1_000_000
    context.connection.execute(
        f"CREATE TABLE t AS SELECT (hash(i) % {count})::INTEGER AS k, (hash(i * 3) % 10000) / 100.0::DOUBLE AS x "
        f"FROM range({rows}) AS r(i)"
    )
    _whole(context, {"keys": list(range(count))})


def private(context: dpsql.Context, options: argparse.Namespace) -> None:
    rows = options.rows or 10_000_000
    context.connection.execute(
        f"CREATE TABLE t AS SELECT i AS k, (hash(i) % 10000) / 100.0::DOUBLE AS x FROM range({rows}) AS r(i)"
    )
    _whole(context, {"keys": "private", "delta": 1e-6})


def _whole(context: dpsql.Context, given: dict[str, Any]) -> None:
    """Time one whole call, and print the peak memory of the process."""
    call = {"aggregates": ["count", "sum"], "target": "x", "lower": 0, "upper": 100, "epsilon": 1, "by": "k", **given}
    race({"the whole call": lambda: context.dp_aggregate("t", **call)}, 1)
    print(f"  peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def calls(context: dpsql.Context, options: argparse.Namespace) -> None:
    table(context, options.rows or 100_000)
    given = {**ASKED, "by": "k", "keys": KEYS["k"]}
    unit = {"privacy_unit": "u", **LIMITS["m, g, r"]}
    race(
        {
            "dp_count": lambda: context.dp_count("t", epsilon=1),
            "dp_aggregate, 1000 groups": lambda: context.dp_aggregate("t", **given),
            "dp_aggregate, 1000 groups, units": lambda: context.dp_aggregate("t", **given, **unit),
            "dp_aggregate, private keys": lambda: context.dp_aggregate("t", **{**given, "keys": "private"}, delta=1e-6),
        },
        options.repeats,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    subjects = {"groups": groups, "units": units, "keys": keys, "private": private, "calls": calls}
    parser.add_argument("subject", choices=subjects)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--database", default=":memory:")
    options = parser.parse_args()
    with dpsql.Context(options.database) as context:
        subjects[options.subject](context, options)


if __name__ == "__main__":
    main()
