"""Private releases over tables, views and DataFrames of Spark: Apache Spark or Sail, over Spark Connect or in a JVM.

>>> import dpsql.spark
>>> from pyspark.sql import SparkSession
>>> session = SparkSession.builder.remote("sc://localhost:15002").getOrCreate()
>>> dp = dpsql.spark.context(session, ledger="postgresql://ledger.example.org/dpsql")
>>> release = dp.dp_avg("hospital.visits", target="age", lower=0, upper=100, epsilon=1)
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from dpsql.context import Context
from dpsql.contract.boundary import public
from dpsql.engines.attached import PARTS, Attached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dpsql.engines.spark import SparkEngine


@public
def engine(session: SparkSession, *, tasks: int | None = None) -> SparkEngine:
    """Return the engine of a session, for `dpsql.attach_engine`; `tasks` as for `context`."""
    from dpsql.engines.spark import SparkEngine

    return SparkEngine(session, tasks)


@public
def context(
    session: SparkSession,
    *,
    ledger: str | PathLike[str] | None = None,
    strict: bool = False,
    name: str = "spark",
    parts: int = PARTS,
    tasks: int | None = None,
) -> Context:
    """Return a context whose sources are tables and views of a session by name, or its DataFrames.

    Parameters
    ----------
    session : pyspark.sql.SparkSession
        The workers need the driver's version of dpsql.
    ledger : path or URL, optional
        As for `dpsql.connect`.
    strict : bool
        As for `dpsql.connect`.
    name : str
        The engine's name: the first part of its tables' full names.
    parts : int
        Number of groups of rows. All rows of a group are in a worker's memory at once.
    tasks : int, optional
        Maximal number of tasks that read a source; a task may read several partitions. The default is four for each
        task that Apache Spark runs at once. Sail does not report this number, so the default there is four for each
        core of one machine: set it for a cluster of Sail. With Spark's dynamic allocation every partition is a task by
        default.
    """
    return Context(ledger=ledger, strict=strict, engine=Attached(name, engine(session, tasks=tasks), parts))
