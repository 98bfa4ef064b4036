"""What a limit on rows costs: all rows put in order, beside those of people with more than count alone.

    PYTHONPATH=. python benchmarks/caps.py [--rows 6000000] [--each 30] [--limit 45] [--runs 3]

Both ways are asked in turn in one process, and return answers of the same rows. Prints CPU time and time in seconds.
"""

from __future__ import annotations

import argparse
import time

import dpsql
from dpsql.engines.duckdb.steps import rows

CALLS = {
    "dp_query": "dp_query('SELECT g, count(*), sum(x), avg(y) FROM t GROUP BY g', epsilon := 1, fresh := true)",
    "dp_aggregate": "dp_aggregate('t', ['count', 'sum'], target := ['x', 'y'], by := 'g', epsilon := 1, lower := 0, "
    "upper := 1000)",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (("rows", 6_000_000), ("each", 30), ("limit", 45), ("runs", 3)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    options = parser.parse_args()
    usual = rows._FEW
    with dpsql.connect() as con:
        con.execute(f"""
            CREATE TABLE t AS SELECT CAST(hash(i) % {options.rows // options.each} AS BIGINT) AS who,
              CAST(hash(i, 1) % 6 AS BIGINT) AS g, CAST(hash(i, 2) % 1000 AS DOUBLE) AS x,
              CAST(hash(i, 3) % 1000 AS DOUBLE) AS y FROM range({options.rows}) AS r(i);
            SELECT dp_protect('t', epsilon := 1e9, privacy_unit := 'who', max_rows_per_unit := {options.limit},
              keys := {{g: [0, 1, 2, 3, 4, 5]}}, lower := {{x: 0, y: 0}}, upper := {{x: 1000, y: 1000}});
        """)
        for name, call in CALLS.items():
            for _ in range(options.runs):
                for way, least in (("all in order", 1 << 40), ("as it is", usual)):
                    rows._FEW = least
                    processor, clock = time.process_time(), time.perf_counter()
                    con.execute(f"FROM {call}").fetchall()
                    spent = time.process_time() - processor, time.perf_counter() - clock
                    print(f"{name}, {way}: {spent[0]:.2f} s of CPU, {spent[1]:.2f} s", flush=True)


if __name__ == "__main__":
    main()
