"""Kendall pair counts beside scipy.stats.kendalltau, in one run on the same data (kernel 1).

    python benchmarks/kendall.py selection   # rank once and run k rounds, against a loop over kendalltau
    python benchmarks/kendall.py call        # dp_kendall in DuckDB, whole, against the same loop
    python benchmarks/kendall.py memory      # dp_kendall on 10^7 x 20 doubles in Parquet: seconds and peak memory
    python benchmarks/kendall.py counting    # one base column with many: nanoseconds per (pair, row)
    python benchmarks/kendall.py ranking     # one column: against numpy.argsort
    python benchmarks/kendall.py blocks      # pairs within blocks of about 2048 rows
    python benchmarks/kendall.py sql         # exact_kendall_sql against the kernel
    python benchmarks/kendall.py start       # first selection in a new process, small data

Options: --repeats N. Medians; the contenders take turns within each repeat. The loop over kendalltau is timed
on a few columns and scaled linearly to all of them; its rounds are those of google-research/private_kendall,
variant b, the target or the feature chosen last with each feature that is left. Features are continuous,
without ties, each correlated with the target; ties are a line of their own in `counting`.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.resources import files
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from racing import race

from dpsql.kernels import kendall
from dpsql.kernels.kendall import RankedTable, pair_counts, rank_column
from dpsql.statistics.kendall import exact_utilities

SHAPES = ((10_000, 600, 5), (100_000, 100, 5), (1_000_000, 20, 3))


def data(rows: int, width: int) -> np.ndarray:
    """Return columns, shape (width + 1, rows); the target stands last."""
    draw = np.random.default_rng(1)
    columns = draw.standard_normal((width + 1, rows))
    columns[:-1] += np.linspace(0, 1, width)[:, None] * columns[-1]
    return columns


def select(columns: np.ndarray, k: int, threads: int) -> list[int]:
    """Rank and run k rounds without noise."""
    table = RankedTable(columns, threads=threads)
    width = len(columns) - 1
    left, chosen = list(range(width)), [width]
    scores: list[np.ndarray] = []
    for _ in range(k):
        found = np.zeros((1, width), dtype=np.int64)
        found[:, left] = table.scores(chosen[-1], left, threads)
        scores.append(found)
        utility = exact_utilities(scores[0][:, left], [one[:, left] for one in scores[1:]], table.sizes)[0]
        chosen.append(left.pop(int(utility.argmax())))
    return chosen[1:]


def selection(repeats: int) -> None:
    from scipy.stats import kendalltau

    kendall.warm_up()
    for rows, width, k in SHAPES:
        columns = data(rows, width)
        sample = max(2, min(10, 200_000 // rows))
        pairs = sum(width - r for r in range(k))

        def loop(columns: np.ndarray = columns, sample: int = sample, rows: int = rows) -> None:
            for column in columns[:sample]:
                abs(rows / 2 * kendalltau(column, columns[-1]).statistic)

        medians = race(
            {
                "kendalltau": loop,
                "one thread": lambda columns=columns, k=k: select(columns, k, 1),
                "two threads": lambda columns=columns, k=k: select(columns, k, 2),
            },
            repeats,
        )
        peer = medians["kendalltau"] / sample * pairs
        print(f"{rows:,} x {width}, k = {k}: {pairs} pairs of columns")
        print(f"  kendalltau, {sample} columns scaled linearly {peer:9.3f} s")
        for name in ("one thread", "two threads"):
            took = medians[name]
            cell = took / pairs / rows * 1e9
            print(f"  {name:11s} {took:9.3f} s   {peer / took:5.1f} x   {cell:5.2f} ns per (pair, row), ranks included")


def call(repeats: int) -> None:
    from scipy.stats import kendalltau

    import dpsql

    kendall.warm_up()
    for rows, width, k in SHAPES:
        columns = data(rows, width)
        names = [f"x{j}" for j in range(width)]
        frame = pa.table(dict(zip([*names, "y"], columns, strict=True)))
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(columns[:-1].T.ravel()), width)
        con = dpsql.connect()
        con.register("frame", frame)
        con.register("vectors", pa.table({"x": vectors, "y": columns[-1]}))
        con.execute("CREATE TABLE wide AS FROM frame")
        con.execute("CREATE TABLE arrays AS FROM vectors")
        sample = max(2, min(10, 200_000 // rows))
        pairs = sum(width - r for r in range(k))

        def loop(columns: np.ndarray = columns, sample: int = sample, rows: int = rows) -> None:
            for column in columns[:sample]:
                abs(rows / 2 * kendalltau(column, columns[-1]).statistic)

        def select_in(source: str, features: str, con: duckdb.DuckDBPyConnection = con, k: int = k) -> object:
            arguments = f"target := 'y', features := {features}, k := {k}, epsilon := 1"
            return con.execute(f"FROM dp_kendall('{source}', {arguments})").fetchall()

        medians = race(
            {
                "kendalltau": loop,
                "wide": lambda run=select_in, names=names: run("wide", str(names)),
                "array": lambda run=select_in: run("arrays", "'x'"),
            },
            repeats,
        )
        peer = medians["kendalltau"] / sample * pairs
        print(f"{rows:,} x {width}, k = {k}: kendalltau, {sample} columns scaled linearly {peer:.3f} s")
        for name in ("wide", "array"):
            print(f"  dp_kendall, {name:6s} {medians[name]:9.3f} s   {peer / medians[name]:5.1f} x")
        con.close()


def memory(repeats: int) -> None:
    del repeats
    import dpsql

    rows, width = 10_000_000, 20
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        columns = ", ".join(f"hash(i * {width + 1} + {j})::DOUBLE + hash(i)::DOUBLE AS x{j}" for j in range(width))
        copy = f"COPY (SELECT {columns}, hash(i)::DOUBLE AS y FROM range({rows}) AS r(i)) TO '{path}'"
        # In a process of its own, whose memory does not count here.
        subprocess.run(
            [
                sys.executable,
                "-c",
                f"import duckdb; duckdb.execute('SET enable_progress_bar = false'); duckdb.execute({copy!r})",
            ],
            check=True,
        )
        con = dpsql.connect()
        con.execute(f"CREATE VIEW t AS FROM '{path}'")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        con.execute("FROM dp_kendall('t', target := 'y', k := 3, epsilon := 1)").fetchall()
        took = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"{rows:,} x {width}, k = 3: {took:.1f} s, peak {peak / 1e6:.2f} GB (before {before / 1e6:.2f})")
        con.close()


def counting(repeats: int) -> None:
    kendall.warm_up()
    for rows, width, _ in SHAPES:
        width = min(width, 20)
        columns = data(rows, width)
        kinds = {
            "no ties": columns,
            "0.1 % missing": np.where(np.random.default_rng(2).random(columns.shape) < 0.001, np.nan, columns),
            "1000 levels": np.floor(columns * 100),
            "features of 1000 levels, two targets": np.vstack([np.floor(columns[:-1] * 100), columns[-1:] > 0]),
            "two levels each": columns > 0,
        }
        tables = {name: RankedTable(values) for name, values in kinds.items()}
        work = {name: (lambda t=table, d=width: t.scores(d, range(d), 1)) for name, table in tables.items()}
        print(f"{rows:,} rows, one thread: ns per (pair, row)")
        for name, median in race(work, repeats).items():
            print(f"  {name:40s} {median / rows / width * 1e9:6.2f}")


def ranking(repeats: int) -> None:
    kendall.warm_up()
    for rows, _, _ in SHAPES:
        values = data(rows, 1)[0]
        levels = np.floor(values * 100)
        work = {
            "numpy.argsort": lambda v=values: np.argsort(v),
            "rank_column": lambda v=values: rank_column(v),
            "rank_column, 1000 levels": lambda v=levels: rank_column(v),
        }
        print(f"{rows:,} rows: ns per row")
        for name, median in race(work, repeats).items():
            print(f"  {name:40s} {median / rows * 1e9:6.2f}")


def blocks(repeats: int) -> None:
    kendall.warm_up()
    rows, width = 1_000_000, 20
    columns = data(rows, width)
    block = np.random.default_rng(3).integers(0, rows // 2048, rows).astype(np.int32)
    table, whole = RankedTable(columns, block), RankedTable(columns)
    work = {
        "rank": lambda: RankedTable(columns, threads=1),
        "rank in blocks": lambda: RankedTable(columns, block, threads=1),
        "count": lambda: whole.scores(width, range(width), 1),
        "count in blocks": lambda: table.scores(width, range(width), 1),
    }
    print(f"{rows:,} x {width}, {len(table.sizes)} blocks, one thread: ns per cell")
    for name, median in race(work, repeats).items():
        print(f"  {name:40s} {median / rows / width * 1e9:6.2f}")


def sql(repeats: int) -> None:
    kendall.warm_up()
    for rows, _, _ in SHAPES:
        columns = data(rows, 1)
        con = duckdb.connect()
        for name in ("fixed_point", "discordant"):
            con.execute(files("dpsql.sql").joinpath(f"exact/{name}.sql").read_text(encoding="utf-8"))
        con.register("frame", {"x": columns[0], "y": columns[1]})
        con.execute("CREATE TABLE t AS FROM frame").fetchall()

        def in_sql(con: duckdb.DuckDBPyConnection = con) -> tuple[int, int]:
            [found] = con.execute("FROM exact_kendall_sql('t', 'x', 'y')").fetchall()
            return found

        def in_kernel(columns: np.ndarray = columns) -> tuple[int, int]:
            concordant, discordant = pair_counts(rank_column(columns[0]), [rank_column(columns[1])], 1)
            return int(concordant[0]), int(discordant[0])

        assert in_sql() == in_kernel()
        medians = race({"exact_kendall_sql": in_sql, "rank and count": in_kernel}, repeats)
        slow, fast = medians.values()
        print(f"{rows:,} rows, equal counts: {slow * 1e3:.1f} ms in SQL, {slow / fast:.0f} x the kernel")
        con.close()


def start(repeats: int) -> None:
    for rows, width in ((10_000, 20), (1_000, 600)):
        code = (
            "import time, numpy as np; from dpsql.kernels.kendall import RankedTable; "
            f"columns = np.random.default_rng(0).standard_normal(({width}, {rows})); "
            "start = time.perf_counter(); table = RankedTable(columns); "
            f"[table.scores(j, range({width})) for j in range(5)]; print(time.perf_counter() - start)"
        )
        times = [
            float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
            for _ in range(repeats)
        ]
        print(f"{rows:,} x {width}, k = 5, new process: {statistics.median(times) * 1e3:.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    work = {f.__name__: f for f in (selection, call, memory, counting, ranking, blocks, sql, start)}
    parser.add_argument("what", choices=tuple(work))
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    work[options.what](options.repeats)


if __name__ == "__main__":
    main()
