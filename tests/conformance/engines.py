"""The suite's tables on every engine, cut into partitions, and what an engine's call comes to."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from calls import Call
from seam import Seen, Watch
from tables import SOURCES

import dpsql
from dpsql.contract.plan import Plan
from dpsql.engines.attached import Attached, engines_of
from dpsql.engines.duckdb.installation import install
from dpsql.engines.duckdb.planner import release_sql
from dpsql.engines.port import Engine
from dpsql.engines.task import plain
from dpsql.functions.regression.linear import RegressionPlan
from support.arrow_engine import ArrowEngine
from support.spark_servers import EXACT_SAIL

Tables = Mapping[str, pa.Table]
PARTITIONS = (1, 3, 7, 64)
PARTS = (64, 1, 8)
NAMES = ("duckdb", "polars", "datafusion", "sail", "spark")
# Settings of the session with the reference, under which texts compare otherwise.
HOSTILE = ("SET default_collation = 'nocase'", "SET default_null_order = 'NULLS_FIRST'", "SET threads = 3")


def _cut(table: pa.Table, partitions: int) -> list[pa.Table]:
    """Cut a table anywhere, into partitions of which some are empty."""
    generator = random.Random(partitions)
    cuts = sorted(generator.randint(0, len(table)) for _ in range(partitions - 1))
    cuts[1::3] = cuts[: 3 * len(cuts[1::3]) : 3]
    return [table.slice(start, stop - start) for start, stop in zip([0, *cuts], [*cuts, len(table)], strict=True)]


def _polars(tables: Tables, partitions: int, folder: Path) -> Engine:
    import polars as pl

    from dpsql.engines.polars import PolarsEngine

    def frame(table: pa.Table) -> Any:
        return pl.concat([pl.DataFrame(part) for part in _cut(table, partitions)], rechunk=False).lazy()

    return PolarsEngine({name: frame(table) for name, table in tables.items()})


def _datafusion(tables: Tables, partitions: int, folder: Path) -> Engine:
    from datafusion import SessionContext

    from dpsql.engines.datafusion import DataFusionEngine

    session = SessionContext()
    for name, table in tables.items():
        empty = pa.RecordBatch.from_pylist([], schema=table.schema)
        cut = [[empty, *part.to_batches(max_chunksize=300)] for part in _cut(table, partitions)]
        session.register_record_batches(name, cut)
    return DataFusionEngine(session)


def _stored(kind: pa.DataType) -> pa.DataType:
    """Return the type that Spark has for values of a type: it has no unsigned integers."""
    wider = {
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0),
    }
    return wider.get(kind, kind)


def _of_spark(session: Any) -> Callable[[Tables, int, Path], Engine]:
    def opened(tables: Tables, partitions: int, folder: Path) -> Engine:
        from dpsql.engines.spark import SparkEngine

        for name, table in tables.items():
            place = folder / f"{name}_{partitions}"
            place.mkdir()
            stored = table.cast(pa.schema([(column.name, _stored(column.type)) for column in plain(table.schema)]))
            for number, part in enumerate(_cut(stored, partitions)):
                pq.write_table(part, place / f"{number}.parquet")
            session.read.parquet(str(place)).createOrReplaceTempView(name)
        return SparkEngine(session)

    return opened


OPENED: dict[str, Callable[[Tables, int, Path], Engine]] = {
    "duckdb": lambda tables, partitions, folder: ArrowEngine(tables, partitions),  # the port, and nothing else
    "polars": _polars,
    "datafusion": _datafusion,
}


@contextmanager
def hostile() -> Iterator[Any]:
    """Open a DuckDB whose settings compare texts otherwise."""
    with dpsql.connect() as connection:
        for statement in HOSTILE:
            connection.execute(statement)
        yield connection


class Compared:
    """Tables on an engine, and the same tables in a DuckDB under hostile settings.

    Parameters
    ----------
    watch : Watch
    connection : duckdb.DuckDBPyConnection
        See `hostile`; it holds the tables of one object at a time.
    engine : Engine
    tables : mapping of str to pyarrow.Table
    parts : int
    """

    def __init__(self, watch: Watch, connection: Any, engine: Engine, tables: Tables, parts: int = 64) -> None:
        self.watch, self.connection = watch, connection
        attached = Attached("other", engine, parts)
        engines_of(install(connection)).attach(attached)
        for name, table in tables.items():
            types = attached.schema(name)  # such as decimals, where the engine has no unsigned integers
            connection.execute(f"DROP TABLE IF EXISTS {name}")
            SOURCES["table"](connection, name, table.cast(types), Path(), 0, "")

    def ask(self, call: Call, number: int = 0, *, through: bool = False) -> Seen:
        """Run a call on the engine."""
        head, bracket, tail = call.sql.format(source=call.table).rpartition(")")
        return self.watch.ask(self.connection, f"{head}, engine := 'other'{bracket}{tail}", number, through=through)

    def reference(self, plan: Plan, number: int = 0) -> Seen:
        """Run the statement that DuckDB weaves for a plan of the engine."""
        table = plan.source.rpartition(".")[2]  # without the engine's catalog
        woven = release_sql(replace(plan, source=table, engine=None, placement=None), plan.function)
        return self.watch.ask(self.connection, woven, number)

    def difference(self, call: Call, number: int = 0) -> str | None:
        """Say in what the engine's call differs from DuckDB's; None if it does not, or is refused as it should be."""
        seen = self.ask(call, number)
        if seen.plan is None:
            return f"{seen.error} instead of a plan"
        if seen.plan.keeps_rows:
            return None if seen.error == "DPSQL-P073" else "a call that keeps rows was not refused"
        reference = self.reference(seen.plan, number)
        if not (seen.error or reference.error) and (
            seen.plan.readings > len(reference.passes) or _keeps_rows(reference)
        ):
            return self._answers(call, seen.plan, number)
        return differs(seen, reference)

    def _answers(self, call: Call, plan: Plan, number: int) -> str | None:
        """Compare what is released, with the same entropy, where DuckDB keeps rows of which an engine makes passes.

        DuckDB is asked by the engine's method, which may be another one by default.
        """
        session = install(self.connection)
        released = self.ask(call, number, through=True)
        session._released.clear()  # by ticket, and calls of one number have one
        head, bracket, tail = call.sql.format(source=call.table).rpartition(")")
        if isinstance(plan, RegressionPlan) and "method :=" not in head:
            head += f", method := '{plan.method}'"
        woven = self.watch.ask(self.connection, f"{head}{bracket}{tail}", number, through=True)
        session._released.clear()
        if call.function == "dp_logistic_regression" and _near(released, woven):
            return None
        return replace(released, passes=[]).differs(replace(woven, passes=[]))


def _near(one: Seen, other: Seen) -> bool:
    """Whether two fits are alike: the solver stops somewhere within a certified distance, and steps in two ways."""
    terms = [[(row[0], *row[2:]) for row in seen.rows or ()] for seen in (one, other)]
    values = [[float(row[1]) for row in seen.rows or ()] for seen in (one, other)]
    return terms[0] == terms[1] != [] and np.allclose(*values, rtol=0, atol=1e-4)


def _keeps_rows(seen: Seen) -> bool:
    return any(one.state is None and one.integers is None and one.named is None for one in seen.passes)


def _counted(named: Mapping[str, int] | None) -> dict[str, int] | None:
    """Return the names that count. DuckDB's statement knows the others, too, and neither it nor an engine draws them."""
    return None if named is None else {name: rows for name, rows in named.items() if rows}


def differs(seen: Seen, reference: Seen) -> str | None:
    """Say in what an engine's call differs from DuckDB's; rows are compared where both sides saw them come."""
    if seen.error or reference.error:
        return f"{seen.error} instead of {reference.error}"
    if len(seen.passes) != len(reference.passes) or not seen.passes:
        return f"{len(seen.passes)} passes instead of {len(reference.passes)}"
    for number, (one, other) in enumerate(zip(seen.passes, reference.passes, strict=True), 1):
        if one.state is not None and other.state is not None:
            if one.state != other.state:
                return f"pass {number}: {_moved(one.state, other.state)}"
        elif (one.integers, _counted(one.named)) != (other.integers, _counted(other.named)):
            return f"pass {number}: {replace(one, rows=other.rows).differs(other)}"
        elif one.integers is None and one.named is None:
            return f"pass {number}: nothing to compare"
        if one.rows.size and other.rows.size and (one.rows.shape != other.rows.shape or (one.rows != other.rows).any()):
            return f"pass {number}: {replace(one, integers=(), named=None).differs(replace(other, integers=(), named=None))}"
    return None


def _moved(one: tuple[tuple[int, ...], ...], other: tuple[tuple[int, ...], ...]) -> str:
    for field_, (mine, theirs) in enumerate(zip(one, other, strict=True)):
        if len(mine) != len(theirs):
            return f"field {field_} of the state has {len(mine)} integers instead of {len(theirs)}"
        moved = [(a, b) for a, b in zip(mine, theirs, strict=True) if a != b]
        if moved:
            return f"{len(moved)} of {len(mine)} integers of field {field_}, such as {moved[0][0]} instead of {moved[0][1]}"
    return "no difference"


@contextmanager
def spark_session(name: str) -> Iterator[Callable[[Tables, int, Path], Engine]]:
    """Start Sail on a free port, or the JVM, and yield what puts tables there."""
    pytest.importorskip("pyspark")
    pytest.importorskip("dpsql.engines.spark")
    from pyspark.sql import SparkSession

    if name == "spark":
        os.environ["PYSPARK_PYTHON"] = sys.executable  # PATH may name another one
        session = SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1").getOrCreate()
        yield _of_spark(session)
        session.stop()
        return
    sail = pytest.importorskip("pysail.spark")
    os.environ.update(EXACT_SAIL)
    server = sail.SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    host, port = server.listening_address
    # Not another test's session, whose server may have ended.
    session = SparkSession.builder.remote(f"sc://{host}:{port}").create()
    session.conf.set("dpsql.exactParquet", "true")
    try:
        yield _of_spark(session)
    finally:
        session.stop()
        server.stop()
