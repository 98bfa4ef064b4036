"""The suite's tables on every engine, cut into partitions, and what an engine's call comes to."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from calls import Call
from seam import Seen, Watch
from tables import SOURCES

import dpsql
from dpsql.contract.plan import Plan
from dpsql.engines.driver import Attached
from dpsql.engines.duckdb.installation import install
from dpsql.engines.duckdb.statements import release_sql
from dpsql.engines.port import PART, Engine, Work, one_part_each
from dpsql.rendering import identifier

Tables = Mapping[str, pa.Table]
PARTITIONS = (1, 3, 7, 64)
PARTS = (64, 1, 8)
NAMES = ("duckdb", "polars", "datafusion", "sail", "spark")
# Settings of the session with the reference, under which texts compare otherwise.
HOSTILE = ("SET default_collation = 'nocase'", "SET default_null_order = 'NULLS_FIRST'", "SET threads = 3")


class DuckDBEngine:
    """Tables of a plain DuckDB through the port: the shortest engine, of which only the rows' moving can be wrong."""

    name = "duckdb"
    version = duckdb.__version__

    def __init__(self, tables: Tables, partitions: int) -> None:
        self._tables = {name: _cut(table, partitions) for name, table in tables.items()}

    def table(self, source: str) -> tuple[str, ...] | None:
        return None

    def schema(self, source: object) -> pa.Schema:
        return self._tables[str(source)][0].schema

    def check(self, work: Work) -> None:
        return

    def fold(self, source: object, columns: Sequence[str], work: Work) -> Iterator[pa.RecordBatch]:
        for table in self._tables[str(source)]:
            yield from work.run(self._read(table, f"SELECT {_listed(columns)} FROM given"))

    def fold_parts(self, source: object, columns: Sequence[str], work: Work) -> Iterator[pa.RecordBatch]:
        rows = [batch for table in self._tables[str(source)] for batch in work.split(table.select(columns).to_batches())]
        ordered = self._read(pa.Table.from_batches(rows), f"SELECT * FROM given ORDER BY {PART}")
        pieces = (piece for batch in ordered for piece in one_part_each(batch))
        for _, part in groupby(pieces, key=lambda batch: batch.column(PART)[0].as_py()):
            yield from work.run(part)

    def _read(self, table: pa.Table, sql: str) -> Iterator[pa.RecordBatch]:
        with duckdb.connect() as connection:
            connection.register("given", table)
            yield from connection.sql(sql).to_arrow_reader(300)


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(map(identifier, columns))


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


def _of_spark(session: Any) -> Callable[[Tables, int, Path], Engine]:
    def opened(tables: Tables, partitions: int, folder: Path) -> Engine:
        from dpsql.engines.spark import SparkEngine

        for name, table in tables.items():
            place = folder / f"{name}_{partitions}"
            place.mkdir()
            for number, part in enumerate(_cut(table, partitions)):
                pq.write_table(part, place / f"{number}.parquet")
            session.read.parquet(str(place)).createOrReplaceTempView(name)
        return SparkEngine(session)

    return opened


OPENED: dict[str, Callable[[Tables, int, Path], Engine]] = {
    "duckdb": lambda tables, partitions, folder: DuckDBEngine(tables, partitions),
    "polars": _polars,
    "datafusion": _datafusion,
}


@dataclass
class Asked:
    """What an engine's call came to, and its plan.

    Attributes
    ----------
    seen : Seen
    plan : Plan or None
        None if the arguments were refused.
    """

    seen: Seen
    plan: Plan | None = None


@dataclass
class Compared:
    """One set of tables on an engine, and in a DuckDB under hostile settings.

    Parameters
    ----------
    watch : Watch
    engine : Engine
    tables : mapping of str to pyarrow.Table
    parts : int
    """

    watch: Watch
    engine: Engine
    tables: Tables
    parts: int = 64
    plans: list[Plan] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.attached = Attached("other", self.engine, self.parts)
        self._connection = dpsql.connect()
        self._session = install(self._connection)
        self._session.attach(self.attached)
        for statement in HOSTILE:
            self._connection.execute(statement)
        for name, table in self.tables.items():
            types = self.attached.schema(name)  # such as decimals, where the engine has no unsigned integers
            SOURCES["table"](self._connection, name, table.cast(types), Path(), 0, "")

    def close(self) -> None:
        self._connection.close()

    def ask(self, call: Call, number: int = 0) -> Asked:
        """Run a call on the engine."""
        head, bracket, tail = call.sql.format(source=call.table).rpartition(")")
        self.plans.clear()
        seen = self.watch.ask(self._connection, f"{head}, engine := 'other'{bracket}{tail}", number)
        return Asked(seen, self.plans[-1] if self.plans else None)

    def reference(self, plan: Plan, number: int = 0) -> Seen:
        """Run the statement that DuckDB weaves for a plan over the same rows."""
        return self.watch.ask(self._connection, release_sql(replace(plan, engine=None), plan.function), number)

    def difference(self, call: Call, number: int = 0) -> str | None:
        """Say in what the engine's call differs from DuckDB's."""
        asked = self.ask(call, number)
        if asked.plan is None:
            return f"refused: {asked.seen.error}"
        if asked.plan.keeps_rows:
            return None if asked.seen.error == "DPSQL-P073" else "a call that keeps rows was not refused"
        return differs(asked.seen, self.reference(asked.plan, number))


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
        elif (one.integers, one.named) != (other.integers, other.named):
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
