"""Whole calls of the regression functions, beside what they cannot do without (kernel 6).

    python benchmarks/regression.py calls       # dp_linear_regression beside its own statistics query, and its methods
    python benchmarks/regression.py predict     # dp_predictions and dp_predict, rows per second
    python benchmarks/regression.py memory      # peak memory beyond the table, as rows grow
    python benchmarks/regression.py neighbour   # with default BLAS threads, beside a busy process
    python benchmarks/regression.py start       # first calls of new processes

Options: --rows N, --features D, --repeats N.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa
from racing import race

import dpsql
from dpsql.engines.duckdb.planner import statistic_sql
from dpsql.functions.regression.linear import RegressionPlan
from dpsql.released.model import LinearModel

BOUNDS = {"lower": -4, "upper": 4, "target_lower": -12, "target_upper": 12}
BUDGET = {"epsilon": 1, "delta": 1e-6}


def opened(options: argparse.Namespace, rows: int | None = None) -> dpsql.Context:
    """Return a context with the table ``t`` of columns and the table ``a`` of arrays."""
    rng = np.random.default_rng(1)
    context = dpsql.Context()
    con = context.connection
    x = rng.normal(size=(rows or options.rows, options.features))
    y = x @ np.linspace(1, 0, options.features) + rng.normal(size=len(x))
    columns = {f"x{j}": x[:, j] for j in range(options.features)}
    con.register("wide", pa.table({**columns, "y": y}))
    con.execute("CREATE TABLE t AS SELECT row_number() OVER () AS id, * FROM wide")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), options.features)
    con.register("arrays", pa.table({"x": vectors, "y": y}))
    con.execute("CREATE TABLE a AS FROM arrays")
    return context


def given(context: dpsql.Context, layout: str) -> dict[str, Any]:
    """Return the columns of a layout as arguments."""
    if layout == "array":
        return {"source": "a", "target": "y", "features": "x"}
    names = [row[0] for row in context.connection.execute("DESCRIBE t").fetchall()]
    return {"source": "t", "target": "y", "features": [name for name in names if name.startswith("x")]}


def calls(options: argparse.Namespace) -> None:
    with opened(options) as context:
        for layout in ("wide", "array"):
            columns = given(context, layout)
            session = dpsql.install(context.connection)
            arguments = {name: value for name, value in columns.items() if name != "source"}
            plan: RegressionPlan = session.planner.plan(
                "dp_linear_regression", columns["source"], {**arguments, **BUDGET, **BOUNDS, "method": "ada_ssp"}
            )
            query = statistic_sql(plan, "dp_linear_regression")

            def statistics_query(query: str = query) -> None:
                context.connection.execute(query).fetchall()

            def fit(method: str, columns: dict[str, Any] = columns, **more: Any) -> None:
                context.dp_linear_regression(**columns, **BUDGET, method=method, **more)

            times = race(
                {
                    "statistics query": statistics_query,
                    "ada_ssp": lambda: fit("ada_ssp", **BOUNDS),
                    "ada_ssp, private bounds": lambda: fit("ada_ssp"),
                    "boosted_ada_ssp, 50 rounds": lambda: fit("boosted_ada_ssp", rounds=50, **BOUNDS),
                    "tukey, bounds and blocks": lambda: fit("tukey", blocks=1000, **BOUNDS),
                    "tukey": lambda: fit("tukey"),
                },
                options.repeats,
            )
            print(f"{options.rows} rows, {options.features} features, {layout}")
            for name, seconds in times.items():
                print(f"  {name:28}{seconds:8.3f} s  {seconds / times['statistics query']:6.2f} x")


def predict(options: argparse.Namespace) -> None:
    """Print rows per second of each form; of normal features, bounds of 4 cut off hardly any, bounds of 1 a third."""
    with opened(options) as context:
        con = context.connection
        names = given(context, "wide")["features"]
        struct = "{" + ", ".join(f"{name}: {name}" for name in names) + "}"
        columns = np.column_stack([con.execute(f"SELECT {name} FROM t").fetchnumpy()[name] for name in names])
        vectors = given(context, "array")
        context.dp_linear_regression(**vectors, **BUDGET, **BOUNDS, method="ada_ssp", release="ma")
        for bound in (4, 1):
            bounds = {**BOUNDS, "lower": -bound, "upper": bound}
            context.dp_linear_regression(
                **given(context, "wide"), **BUDGET, **bounds, method="ada_ssp", release=f"m{bound}"
            )
            model = context.model(f"m{bound}")
            clipped = [f"greatest(least({name}, {bound}::DOUBLE), -{bound}::DOUBLE)" for name in names]
            sums = {
                "by hand, without bounds": (by_hand(model, names), "t"),
                "by hand, least and greatest": (by_hand(model, clipped), "t"),
                "dp_predictions": ("prediction", f"dp_predictions('m{bound}', 't')"),
                "dp_predict, struct of columns": (f"dp_predict('m{bound}', {struct})", "t"),
                "dp_predict, whole row": (f"dp_predict('m{bound}', t)", "t"),
                "dp_predict, array": ("dp_predict('ma', x)", "a"),
            }
            runs = {
                name: lambda value=value, source=source: con.execute(f"SELECT sum({value}) FROM {source}").fetchall()
                for name, (value, source) in sums.items()
            }
            runs["LinearModel.predict, NumPy"] = lambda model=model: model.predict(columns)
            times = race(runs, options.repeats)
            print(f"{options.rows} rows, {options.features} features, bounds of {bound}")
            for name, seconds in times.items():
                print(f"  {name:32}{seconds:8.3f} s  {options.rows / seconds / 1e6:7.1f} million rows/s")


def by_hand(model: LinearModel, values: list[str]) -> str:
    """Return a model as one would write it: coefficients times values, added up."""
    terms = [f"{slope!r}::DOUBLE * {value}" for slope, value in zip(model.coef_.tolist(), values, strict=True)]
    return " + ".join([*terms, f"{model.intercept_!r}::DOUBLE"])


def memory(options: argparse.Namespace) -> None:
    for method in ("ada_ssp", "tukey", "boosted_ada_ssp"):
        for rows in (options.rows, 4 * options.rows):
            command = [sys.executable, __file__, "peak", "--rows", str(rows), "--features", str(options.features)]
            done = subprocess.run([*command, "--method", method], check=True, capture_output=True, text=True)
            print(f"{method:16}{rows:10d} rows  {done.stdout.strip()}")


def peak(options: argparse.Namespace) -> None:
    """Print how far a call raises this process's peak memory; rows come from range(), not from a table in memory."""
    with dpsql.Context() as context:
        context.connection.execute("SET threads = 2")
        columns = ", ".join(f"hash(i + {j}) / 2e19 AS x{j}" for j in range(options.features))
        source = f"CREATE VIEW v AS SELECT {columns}, hash(i) / 2e19 AS y FROM range(%d) AS r(i)"
        call = {"source": "v", "target": "y", **BUDGET, "method": options.method}
        context.connection.execute(source % 50_000)
        context.dp_linear_regression(**call)
        context.connection.execute("DROP VIEW v; " + source % options.rows)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        context.dp_linear_regression(**call)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(f"{grown / 1024:8.1f} MiB beyond a call on 50,000 rows")


def _spin() -> None:
    while True:
        pass


def neighbour(options: argparse.Namespace) -> None:
    with opened(options) as context:
        columns = given(context, "array")
        methods = ("ada_ssp", "boosted_ada_ssp", "tukey")

        def timed() -> dict[str, float]:
            contenders = {
                method: lambda method=method: context.dp_linear_regression(**columns, **BUDGET, method=method)
                for method in methods
            }
            return race(contenders, options.repeats)

        alone = timed()
        busy = multiprocessing.get_context("spawn").Process(target=_spin, daemon=True)
        busy.start()
        try:
            time.sleep(1)
            beside = timed()
        finally:
            busy.kill()
        for method in methods:
            before, after = alone[method], beside[method]
            print(f"{method:16} alone {before:.3f} s, beside a busy process {after:.3f} s, {after / before:.2f} x")


def start(options: argparse.Namespace) -> None:
    for method in ("ada_ssp", "boosted_ada_ssp", "tukey"):
        code = (
            "import time, dpsql\n"
            "context = dpsql.Context()\n"
            "context.connection.execute('CREATE TABLE t AS SELECT i % 17 AS a, i * 13 % 101 AS b, i % 7 AS c, "
            "i % 17 * 2 + i % 7 AS y FROM range(20000) AS r(i)')\n"
            "start = time.perf_counter()\n"
            "context.dp_linear_regression('t', target='y', features=['a', 'b', 'c'], epsilon=1, delta=1e-6, "
            f"method='{method}')\n"
            "print(time.perf_counter() - start)"
        )
        command = [sys.executable, "-c", code]
        times = [
            float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            for _ in range(options.repeats)
        ]
        print(f"{method:16}{statistics.median(times):7.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choices = {work.__name__: work for work in (calls, predict, memory, neighbour, start, peak)}
    parser.add_argument("what", choices=choices)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--method", default="ada_ssp")
    options = parser.parse_args()
    choices[options.what](options)


if __name__ == "__main__":
    main()
