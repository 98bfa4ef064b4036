"""What a limit on the rows of a person costs, beside the same call over a table without persons.

    PYTHONPATH=. python benchmarks/caps.py [--rows 1000000] [--limit 5] [--runs 3]

In one table few persons have more rows than count, in the other nearly all have. All calls are asked in turn in one
process. Prints the least CPU time of each, in seconds, and the ratio to the call without persons.
"""

from __future__ import annotations

import argparse
import time

import dpsql

FEATURES = 10
COLUMNS = ", ".join(f"(i * {7 + 3 * number} + {number}) % 1000 / 1000 AS x{number}" for number in range(FEATURES))
NAMES = ", ".join(f"'x{number}'" for number in range(FEATURES))
BOUNDS = "lower := 0, upper := 1"
FIT = f"target := 'y', features := [{NAMES}], {BOUNDS}, target_lower := 0, target_upper := 1, epsilon := 1"
CALLS = {
    "dp_linear_regression": f"dp_linear_regression('{{}}', {FIT}, delta := 1e-6, method := 'ada_ssp')",
    "dp_sis": f"dp_sis('{{}}', {FIT}, k := 3)",
    "dp_count": "dp_count('{}', epsilon := 1)",
    "dp_aggregate": f"dp_aggregate('{{}}', ['count', 'sum', 'avg'], target := 'x0', by := 'g', epsilon := 1, {BOUNDS})",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (("rows", 1_000_000), ("limit", 5), ("runs", 3)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    options = parser.parse_args()
    tables = {"nobody": options.rows, "few": max(1, options.limit - 1), "nearly all": 4 * options.limit}
    with dpsql.connect() as con:
        for number, (name, each) in enumerate(tables.items()):
            unit = "" if name == "nobody" else f", privacy_unit := 'who', max_rows_per_unit := {options.limit}"
            con.execute(f"""
                CREATE TABLE t{number} AS SELECT i % {max(1, options.rows // each)} AS who, {COLUMNS},
                  i * 13 % 997 / 997 AS y, i % 10 AS g FROM range({options.rows}) AS r(i);
                SELECT dp_protect('t{number}', epsilon := 1e9, delta := 0.5,
                  keys := {{g: {list(range(10))}}}{unit});
            """)
        for name, call in CALLS.items():
            least = dict.fromkeys(tables, float("inf"))
            for _ in range(options.runs):
                for number, table in enumerate(tables):
                    before = time.process_time()
                    con.execute(f"FROM {call.format(f't{number}')}").fetchall()
                    least[table] = min(least[table], time.process_time() - before)
            parts = [f"{table} {seconds:.2f} s ({seconds / least['nobody']:.1f} x)" for table, seconds in least.items()]
            print(f"{name}: {', '.join(parts)}", flush=True)


if __name__ == "__main__":
    main()
