"""Whole calls of dp_covariance and dp_correlation, beside their own scan and exact covariances.

    python benchmarks/covariance.py calls       # both functions, wide and array
    python benchmarks/covariance.py reading     # what becomes of a release of many features

Options: --rows N, --features D, --repeats N.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from racing import race

import dpsql
from dpsql.engines.duckdb.planner import statistic_sql
from dpsql.released.covariance import correlation, covariance

GIVEN = {"epsilon": 1, "delta": 1e-6, "lower": -4, "upper": 4}


def calls(options: argparse.Namespace) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(options.rows, options.features))
    names = [f"x{j}" for j in range(options.features)]
    with dpsql.Context() as context:
        con = context.connection
        wide = pa.table({name: x[:, j] for j, name in enumerate(names)})
        con.register("columns", wide)
        con.execute("CREATE TABLE t AS FROM columns")
        con.register(
            "vectors", pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), options.features)})
        )
        con.execute("CREATE TABLE a AS FROM vectors")
        frame = pl.DataFrame(wide)
        for layout, (source, features) in {"wide": ("t", names), "array": ("a", "x")}.items():
            plan = dpsql.install(con).plan("dp_covariance", source, {"features": features, **GIVEN})
            query = statistic_sql(plan, "dp_covariance")
            times = race(
                {
                    "its own scan": lambda query=query: con.execute(query).fetchall(),
                    "dp_covariance": lambda s=source, f=features: context.dp_covariance(s, features=f, **GIVEN),
                    "dp_correlation": lambda s=source, f=features: context.dp_correlation(s, features=f, **GIVEN),
                    "numpy.cov, rows in memory": lambda: np.cov(x, rowvar=False),
                    "polars corr, columns in memory": frame.corr,
                },
                options.repeats,
            )
            print(f"{options.rows} rows, {options.features} features, {layout}")
            for name, seconds in times.items():
                print(f"  {name:32}{seconds:8.3f} s  {seconds / times['its own scan']:6.2f} x")


def reading(options: argparse.Namespace) -> None:
    p = options.features
    record: Any = {
        "names": [f"x{j}" for j in range(p)],
        "bounds": [[-1.0, 1.0]] * p,
        "rows": 1e6,
        "sums": [0.0] * p,
        "squares": [0.0] * p,
        "products": [0.0] * (p * (p - 1) // 2),
        "std_error": 300.0,
        "reach": 790.0,
        "ddof": 1,
    }
    works = {"covariance": lambda: covariance(record), "correlation": lambda: correlation(record)}
    works["rows"] = lambda: list(correlation(record).rows(diagonal=False))
    for name, seconds in race(works, options.repeats).items():
        print(f"{p} features, {name:16}{seconds:8.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choices = {work.__name__: work for work in (calls, reading)}
    parser.add_argument("what", choices=choices)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    choices[options.what](options)


if __name__ == "__main__":
    main()
