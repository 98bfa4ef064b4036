"""A job on Spark, here Sail on this machine: select features, fit a model, and keep both in a ledger file.

It needs ``pip install 'dpsql[sail]'``. On a cluster, give the address of its Spark Connect server; every worker needs
the same version of dpsql. The job may be retried: named releases are drawn and charged once.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pysail.spark import SparkConnectServer
from pyspark.sql.connect.session import SparkSession

import dpsql.spark

EXACT = ("SAIL_EXECUTION__COLLECT_STATISTICS", "SAIL_PARQUET__PRUNING", "SAIL_PARQUET__ENABLE_PAGE_INDEX")
BOUNDS = {"age": (0, 100), "dose": (0, 50), "pulse": (30, 220), "weight": (30, 200)}


def write_visits(folder: Path) -> None:
    """Write made-up visits of 4000 patients as Parquet."""
    generator = np.random.default_rng()
    visits = 20_000
    table = {name: generator.uniform(*bounds, visits) for name, bounds in BOUNDS.items()}
    table["days"] = 2 + 0.2 * table["dose"] + 0.05 * table["age"] + generator.normal(size=visits)
    table["patient"] = generator.integers(0, 4000, visits)
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(table), folder / "visits.parquet")


def nightly(session: SparkSession) -> None:
    """One run of the job."""
    with dpsql.spark.context(session, ledger="visits.dpsql-ledger", strict=True) as dp:
        dp.dp_protect("visits", epsilon=3, delta=1e-6, privacy_unit="patient", max_rows_per_unit=5)
        lower = {name: low for name, (low, _) in BOUNDS.items()}
        upper = {name: high for name, (_, high) in BOUNDS.items()}
        chosen = dp.dp_sis(
            "visits",
            target="days",
            features=list(BOUNDS),
            k=2,
            lower=lower,
            upper=upper,
            target_lower=0,
            target_upper=30,
            epsilon=1,
            release="selection",
        )
        model = dp.dp_linear_regression(
            "visits",
            target="days",
            features=chosen,
            lower=lower,
            upper=upper,
            target_lower=0,
            target_upper=30,
            method="ada_ssp",
            epsilon=2,
            delta=1e-6,
            release="model",
        )
        for release in (chosen, model):
            print(release.value.to_pylist())
            print("the stored result again" if release.replayed else "drawn and charged", "-", release.guarantee)
        print(dp.dp_budget().to_pylist())


def main() -> None:
    folder = Path("visits").resolve()
    write_visits(folder)
    os.environ.update(dict.fromkeys(EXACT, "false"))  # otherwise Sail believes a file's statistics, which leave NaN out
    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    host, port = server.listening_address
    session = SparkSession.builder.remote(f"sc://{host}:{port}").create()
    session.conf.set("dpsql.exactParquet", "true")
    session.sql(f"CREATE TABLE visits USING parquet LOCATION '{folder}'")
    nightly(session)
    nightly(session)  # as after a failure of the scheduler
    session.stop()
    server.stop()


if __name__ == "__main__":
    main()
