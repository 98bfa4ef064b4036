"""What dp_query costs and how accurate it is: statements of TPC-H beside DuckDB's own answers.

    PYTHONPATH=tests python benchmarks/queries.py [--customers 10000] [--epsilon 1] [--runs 5] [--cap 100] [--only 1,6]
        [--floor]

The statements are read from ``../shared/queries/tpch.json``. The tables come from DuckDB's extension tpch where it is
installed (scale factor ``customers / 150000``); nothing is downloaded, and elsewhere tables of the same form are made.
Unit: the customer, with at most `cap` rows, or the cap of `CAPS`. Prints for each statement the CPU time of the exact
and of the private answer (median over runs, all threads counted), their ratio, and by column the median over rows and
runs of the relative error. A row without a counterpart, which private keys may leave out, is counted as missing.

With ``--floor`` it is Q1 alone, beside SQL written by hand that holds the same cap, and a `dp_aggregate` of four of
its columns, asked in turn: no way to bound a person's rows does without the join and the count per person.

With ``--ties ROWS`` it is queries of one table of so many rows, ten of each person: those that choose among a person's
rows or among equal values, and others. Each is asked in turn as it is written, and as the caller's order alone would
have it, which is not private.

With ``--files ROWS`` it is the average of a column of a Parquet file with so many rows, ten of each person: by
dp_query, and by dp_avg. Each is asked in turn, of the file and of a table with its rows.

With ``--draws GROUPS`` it is a stored answer of so many groups, read again: counts and sums alone, and with a rank, a
share or a difference, whose intervals follow from draws of the noise.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from typing import Any

import dpsql
from dpsql.contract.query import stages
from dpsql.contract.query.nodes import frame_sql
from support.answers import described
from support.broken.planting import planted
from support.sql_text import literal
from support.worlds import QUERIES, has_tpch, protect_tpch, tpch

ANSWERED = (1, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 19, 21)
# Rows of one customer that meet the conditions, at most: public knowledge of the statement, which the noise follows.
CAPS = {4: 3, 6: 5, 12: 3, 13: 1, 14: 5, 19: 2}
# Q1 with an exact cap and no noise.
FLOOR = """
WITH lines AS MATERIALIZED (
  SELECT o_custkey, l_returnflag, l_linestatus, l_quantity, l_extendedprice, l_discount,
    l_extendedprice * (1 - l_discount) AS disc_price, l_extendedprice * (1 - l_discount) * (1 + l_tax) AS charge
  FROM lineitem JOIN orders ON l_orderkey = o_orderkey WHERE l_shipdate <= DATE '1998-09-02'),
heavy AS MATERIALIZED (SELECT o_custkey FROM lines GROUP BY o_custkey HAVING count(*) > {cap})
SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), sum(disc_price), sum(charge),
  avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*)
FROM (
  SELECT * FROM lines ANTI JOIN heavy USING (o_custkey)
  UNION ALL
  SELECT * FROM lines SEMI JOIN heavy USING (o_custkey)
  QUALIFY row_number() OVER (PARTITION BY o_custkey ORDER BY l_quantity, l_extendedprice, l_discount) <= {cap})
GROUP BY ALL ORDER BY ALL
"""
AGGREGATE = """
FROM dp_aggregate('lineitem', ['count', 'sum'], target := ['l_quantity', 'l_extendedprice', 'l_discount', 'l_tax'],
  by := ['l_returnflag', 'l_linestatus'], epsilon := {epsilon}, max_rows_per_unit := {cap})
"""
VISITS = """
CREATE TABLE visits AS SELECT CAST(hash(r) % {people} AS BIGINT) AS person, DATE '2026-01-01' + CAST(hash(r + 1) % 300
  AS INTEGER) AS day, chr(CAST(65 + hash(r + 2) % 20 AS INTEGER)) || 'ward' AS ward, hash(r + 3) % 1000 / 10 AS x,
  CAST(hash(r + 4) % 50 AS INTEGER) AS n FROM range({rows}) t(r)
"""
OVER = "OVER (PARTITION BY person ORDER BY day)"
ROWS = "OVER (PARTITION BY person ORDER BY day ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)"
# By whether DuckDB would choose: among rows, or among equal values.
CHOOSING = {
    "DISTINCT ON": "SELECT DISTINCT ON (person) person, ward, x AS v FROM visits ORDER BY person, day",
    "row_number": f"SELECT person, ward, x AS v FROM visits QUALIFY row_number() {OVER} = 1",
    "lag": f"SELECT person, x - lag(x) {OVER} AS v FROM visits",
    "first_value": f"SELECT person, first_value(n) {OVER} AS v FROM visits",
    "last_value": f"SELECT person, last_value(n) {OVER} AS v FROM visits",
    "max of rows": f"SELECT person, max(n) {ROWS} AS v FROM visits",
    "GROUP BY a DOUBLE": "SELECT person, x AS v, count(*) AS n FROM visits GROUP BY person, x",
}
PLAIN = {
    "rows": "SELECT person, x AS v FROM visits WHERE n > 3",
    "max by person": "SELECT person, max(x) AS v FROM visits GROUP BY person",
    "median by person": "SELECT person, median(x) AS v FROM visits GROUP BY person",
    "DISTINCT": "SELECT DISTINCT person, ward, n AS v FROM visits",
    "rank": f"SELECT person, rank() {OVER} AS v FROM visits",
    "max OVER": "SELECT person, max(x) OVER (PARTITION BY person) AS v FROM visits",
}
NUMBERS = ("DOUBLE", "HUGEINT", "BIGINT", "DECIMAL")


def measured(con: Any, sql: str) -> tuple[float, list[tuple[Any, ...]]]:
    """Return the CPU time of a statement in milliseconds, and its rows."""
    started = time.process_time()
    rows = con.execute(sql).fetchall()
    return (time.process_time() - started) * 1e3, rows


def errors(
    ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]], columns: list[tuple[str, str]]
) -> tuple[dict[str, list[float]], int]:
    """Return the relative errors by column of rows with equal keys, and how many rows are missing."""
    keys, numbers = places(columns, theirs)
    by_key = {tuple(row[place] for place in keys): row for row in ours}
    found: dict[str, list[float]] = {columns[place][0]: [] for place in numbers}
    missing = 0
    for row in theirs:
        mine = by_key.get(tuple(row[place] for place in keys))
        if mine is None:
            missing += 1
            continue
        for place in numbers:
            if row[place] is not None and mine[place] is not None and row[place] != 0:
                found[columns[place][0]].append(abs(float(mine[place]) - float(row[place])) / abs(float(row[place])))
    return found, missing


def places(columns: list[tuple[str, str]], rows: list[tuple[Any, ...]]) -> tuple[list[int], list[int]]:
    """Return which columns are keys: those before the first number with noise, by their names in TPC-H."""
    named = ("l_year", "o_year", "c_count", "s_suppkey")
    numbers = [
        place for place, (name, kind) in enumerate(columns) if kind.startswith(NUMBERS) and name.lower() not in named
    ]
    return [place for place in range(len(columns)) if place not in numbers], numbers


def floor(con: Any, query: str, call: str, options: argparse.Namespace) -> None:
    """Print the CPU time of Q1 in four ways, asked in turn."""
    ways = {
        "exact": query,
        "capped by hand": FLOOR.format(cap=options.cap),
        "dp_aggregate": AGGREGATE.format(epsilon=options.epsilon, cap=options.cap),
        "dp_query": call,
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.runs):
        for name, sql in ways.items():
            taken[name].append(measured(con, sql)[0])
    for name, found in taken.items():
        print(f"Q1 {name:<15} {statistics.median(found):8.1f} ms of CPU, at least {min(found):8.1f} ms", flush=True)


def _as_written(window: stages.Window, _: object) -> str:
    """Return a window with the caller's order alone."""
    expr, frame = window.expr, window.expr.frame
    orders = ", ".join(f"{sql} {words}" for sql, words in window.orders)
    whole = frame is None or (frame.start, frame.end) == ("UNBOUNDED_PRECEDING", "CURRENT_ROW_RANGE")
    end = "" if whole else f" {frame_sql(expr)}"
    over = f"PARTITION BY {', '.join(window.partitions)} ORDER BY {orders or '1'}{end}"
    return f"system.main.{expr.name}({', '.join(window.arguments)}) OVER ({over})"


def ties(rows: int, runs: int) -> None:
    """Print the CPU time of queries that choose, and of others, and its ratio to that of the caller's order alone."""
    before = (
        (stages.Window, "sql", _as_written),
        (stages, "has_one_spelling", lambda kind: True),
        (stages, "one_of_equals", lambda sql, kind: sql),
    )
    with dpsql.connect() as con:
        con.execute(VISITS.format(rows=rows, people=rows // 10))
        con.execute(
            "SELECT dp_protect('hospital', epsilon := 1e9, max_rows_per_unit := 5, tables := {visits: 'person'})"
        )
        for what, queries in (("chooses", CHOOSING), ("does not", PLAIN)):
            for name, inner in queries.items():
                sql = literal(f"SELECT count(*), sum(v) FROM ({inner})")
                call = f"FROM dp_query({sql}, epsilon := 1, lower := 0, upper := 100, fresh := true)"
                own, plain, shares = [], [], []
                for _ in range(runs):
                    own.append(measured(con, call)[0])
                    with planted(*before):
                        plain.append(measured(con, call)[0])
                    shares.append(own[-1] / plain[-1])
                taken, without = statistics.median(own), statistics.median(plain)
                print(
                    f"{what:<9} {name:<18} {taken:8.1f} ms of CPU, {without:8.1f} ms: {taken / without:.3f} x, "
                    f"median of pairs {statistics.median(shares):.3f} x",
                    flush=True,
                )


def of_files(rows: int, runs: int) -> None:
    """Print the CPU time of an average by dp_query and by dp_avg, of a file and of a table, and their ratios."""
    with tempfile.TemporaryDirectory() as folder, dpsql.connect() as con:
        con.execute(VISITS.format(rows=rows, people=rows // 10))
        con.execute(f"COPY visits TO '{folder}/visits.parquet'")
        con.execute(f"CREATE VIEW files AS FROM '{folder}/visits.parquet'")
        for budget, stated in (("rows", ""), ("people", ", privacy_unit := 'person', max_rows_per_unit := 20")):
            taken: dict[tuple[str, str], list[float]] = {}
            for source in ("files", "visits"):
                con.execute(f"SELECT dp_protect('{source}', epsilon := 1e9, replace := true{stated})")
            for run in range(runs):
                for source in ("files", "visits"):
                    sql, ends = (
                        literal(f"SELECT avg(n) FROM {source}"),
                        f"lower := 0, upper := {50 + run}, epsilon := 1",
                    )
                    query, call = f"FROM dp_query({sql}, {ends})", f"FROM dp_avg('{source}', target := 'n', {ends})"
                    taken.setdefault((source, "dp_query"), []).append(measured(con, query)[0])
                    taken.setdefault((source, "dp_avg"), []).append(measured(con, call)[0])
            for source in ("files", "visits"):
                query_ms, call_ms = (statistics.median(taken[source, name]) for name in ("dp_query", "dp_avg"))
                print(
                    f"{budget:<7} {source:<7} dp_query {query_ms:8.1f} ms of CPU, dp_avg {call_ms:8.1f} ms: "
                    f"{query_ms / call_ms:.3f} x",
                    flush=True,
                )


def of_draws(groups: int, runs: int) -> None:
    """Print the CPU time of a replay, with and without columns whose intervals follow from draws."""
    columns = {
        "counts and sums": "",
        "a rank": ", rank() OVER (ORDER BY count(*) DESC)",
        "a share": ", count(*) / sum(count(*)) OVER ()",
        "a difference": ", count(*) - lag(count(*)) OVER (ORDER BY g)",
    }
    with dpsql.connect() as con:
        con.execute(
            f"CREATE TABLE visits AS SELECT r AS person, r % {groups} AS g, r % 11 AS x FROM range({groups * 300}) t(r)"
        )
        con.execute(
            "SELECT dp_protect('visits', epsilon := 1e6, delta := 0.1, privacy_unit := 'person', "
            "max_rows_per_unit := 1, lower := {x: 0}, upper := {x: 10})"
        )
        for name, more in columns.items():
            sql = f"SELECT g, count(*), sum(x){more} FROM visits GROUP BY g"
            call = f"FROM dp_query({literal(sql)}, epsilon := 1, delta := 1e-6, errors := true)"
            con.execute(call).fetchall()
            taken = [measured(con, call)[0] for _ in range(runs)]
            print(f"{name:<16} {statistics.median(taken):7.1f} ms of CPU, at least {min(taken):7.1f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--customers", type=int, default=10_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--cap", type=int, default=100)
    parser.add_argument("--only", default="", help="numbers of statements, such as 1,6")
    parser.add_argument("--floor", action="store_true", help="Q1 alone, beside SQL with the same cap")
    parser.add_argument("--ties", type=int, default=0, metavar="ROWS", help="queries that choose among rows that tie")
    parser.add_argument("--files", type=int, default=0, metavar="ROWS", help="an average over a Parquet file")
    parser.add_argument("--draws", type=int, default=0, metavar="GROUPS", help="intervals by draws of the noise")
    options = parser.parse_args()
    if options.draws:
        of_draws(options.draws, options.runs)
        return
    if options.files:
        of_files(options.files, options.runs)
        return
    if options.ties:
        ties(options.ties, options.runs)
        return
    path = QUERIES / "tpch.json"
    if not path.exists():
        raise SystemExit(f"the statements are not here; they belong into {path.name} in ../shared/queries")
    statements = {one["query"]: one["sql"].rstrip().rstrip(";") for one in json.loads(path.read_text(encoding="utf-8"))}
    with dpsql.connect() as con:
        if has_tpch(con):
            con.execute(f"CALL dbgen(sf = {options.customers / 150_000})")
            protect_tpch(con, options.cap)
            print(f"TPC-H by DuckDB's extension, {options.customers} customers")
        else:
            tpch(con, customers=options.customers, cap=options.cap)
            print(f"tables made in the form of TPC-H, {options.customers} customers")
        if options.floor:
            options.only = "1"
        chosen = [int(one) for one in options.only.split(",")] if options.only else ANSWERED
        for number in chosen:
            sql, cap = statements[number], CAPS.get(number, options.cap)
            call = (
                f"FROM dp_query({literal(sql)}, epsilon := {options.epsilon}, delta := 1e-6, "
                f"max_rows_per_unit := {cap}, fresh := true)"
            )
            if options.floor:
                floor(con, sql, call, options)
                continue
            try:
                columns = described(con, call)
                exact = [measured(con, sql) for _ in range(options.runs)]
                private = [measured(con, call) for _ in range(options.runs)]
            except Exception as error:
                print(f"Q{number:<3} {str(error).splitlines()[0][:150]}")
                continue
            plain, noisy = (statistics.median(taken for taken, _ in runs) for runs in (exact, private))
            found: dict[str, list[float]] = {}
            missing = 0
            for _, rows in private:
                of_run, lacking = errors(rows, exact[0][1], columns)
                missing += lacking
                for name, values in of_run.items():
                    found.setdefault(name, []).extend(values)
            shown = ", ".join(f"{name} {statistics.median(values):.2%}" for name, values in found.items() if values)
            print(
                f"Q{number:<3} exact {plain:7.1f} ms, private {noisy:7.1f} ms ({noisy / plain:5.1f} x), cap {cap}, "
                f"rows {len(exact[0][1])}, missing {missing / options.runs:g}: {shown}",
                flush=True,
            )


if __name__ == "__main__":
    main()
