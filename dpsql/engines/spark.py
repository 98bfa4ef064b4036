"""Spark as an engine: Apache Spark or Sail over Spark Connect, or Apache Spark in the driver's own JVM.

Rows remain with Spark's workers. The driver requests column types, a plan's text, and the records of tasks, which are
the result of one job: Spark accepts one attempt of each task into a result, whatever the number of attempts. But a
client that lost its connection may read a result again, Sail gives no batch's position in it, and neither server gives
the number of batches. So tasks end their records, and the server numbers them (`dpsql.engines.driver`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from socket import create_connection
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException, ArithmeticException, IllegalArgumentException, SparkRuntimeException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, DecimalType, LongType, StringType, StructField, StructType

from dpsql.contract.parameters import positive_integer, show
from dpsql.engines.driver import END, NUMBER, OF_JOB, OF_TASK, PLACES, delivered, ended, ending, numbered
from dpsql.engines.port import NODE, NODES, PART, Mapped, Work
from dpsql.engines.provenance import Provenance, UnseenError, seen_through
from dpsql.engines.spark_plan import ConnectReader, JvmReader
from dpsql.errors import DpsqlError, InternalError, SourceError
from dpsql.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.catalog import Table
    from pyspark.sql.types import DataType

# Functions that make another attempt read other rows, as plans of Spark and Sail spell them. A string in a query may
# look like them; if dpsql sees the plan, the plan decides.
_RANDOM = re.compile(r"\b(rand|randn|random|randstr|shuffle|uniform|uuid)\(|\bSample \d")
# Arrow's types of plain types: PySpark's `to_arrow_type` has other arguments in 4.3 than in 4.1.
_ARROW_TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
# A scan of Parquet files in Sail's plans, and the session setting for a server that reads them exactly.
_SAILS_PARQUET, EXACT_PARQUET = "file_type=parquet", "dpsql.exactParquet"
# Sail's plan node for a count from the statistics of files.
_FROM_STATISTICS = "PlaceholderRowExec"
# A worker's answer to a check.
_CHECKED = pa.schema([("version", pa.string()), ("cores", pa.int64())])
# Number of rows without a privacy unit, enough for every worker to get some.
_NOBODY = 1 << 16
# Tasks per core that read a source.
_PER_CORE = 4
# Names that Spark accepts without quotes.
_PLAIN = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_Result = TypeVar("_Result")


class SparkEngine:
    """Tables, views and frames of a Spark session.

    Parameters
    ----------
    session : pyspark.sql.SparkSession
        A session of Spark Connect, or of the driver's own JVM.
    tasks : int, optional
        Largest number of tasks that read a source; a task reads several partitions if needed. For the default see
        `dpsql.spark.context`.

    Raises
    ------
    SourceError
        S030: the server does not answer.
    ParameterError
        P021: `tasks` is not a number of tasks.
    """

    def __init__(self, session: SparkSession, tasks: int | None = None) -> None:
        self._session = session
        self._fixed_tasks = None if tasks is None else positive_integer("tasks", tasks, hint="Give some for each core.")
        self._tasks = self._fixed_tasks
        self.name, self.version = _ask(lambda: _server(session))

    def table(self, source: str) -> tuple[str, ...] | None:
        """Return catalog, namespace and name of a table, as the catalog spells them; None for a view.

        On Sail, names that differ in case are two tables. The ledger ignores case, so they share one budget.
        """
        return _full_name(_ask(lambda: self._session.catalog.getTable(source), source))

    def catalog(self) -> dict[str, tuple[str, ...]]:
        """Return the tables of the session's current catalog."""

        def listed() -> list[Table]:
            catalog = self._session.catalog
            return [
                table
                for listDatabase in catalog.listDatabases()
                for table in catalog.listTables(_quoted(listDatabase.name))
            ]

        names = [name for name in map(_full_name, _ask(listed, "the catalog")) if name is not None]
        return {".".join(part if _PLAIN.fullmatch(part) else _quoted(part) for part in name): name for name in names}

    def schema(self, source: object) -> pa.Schema:
        """Return the column types that the server resolves.

        The schema omits columns of types that no call reads, such as a map or an interval.

        Raises
        ------
        SourceError
            S024: there is no such source. S030: the server does not answer. S031: the text of the source's plan shows
            that it reads other rows at every attempt. S034: the source is Parquet on a Sail server that may omit NaN.
        """
        frame = self._frame(source)
        fields = _ask(lambda: frame.schema.fields, source)
        plan = _ask(lambda: _plan_text(frame), source)
        draw = _RANDOM.search(plan)
        if draw is not None and not self._is_seen(source):
            raise SourceError(
                "S031",
                f"source {_label(source)} draws at random ({draw[0].rstrip('(').split()[0]}), so every attempt at a "
                "task would read other rows. Write it to a table, and give that.",
            )
        if _SAILS_PARQUET in plan and not _ask(lambda: self._is_exact(frame), source):
            raise SourceError(
                "S034",
                "Sail would believe the minimum and maximum in a Parquet file, which leave NaN out, so one row could "
                "change how others read. Start it with SAIL_EXECUTION__COLLECT_STATISTICS, SAIL_PARQUET__PRUNING and "
                "SAIL_PARQUET__ENABLE_PAGE_INDEX set to false, then say so in the session: "
                f"session.conf.set('{EXACT_PARQUET}', 'true').",
            )
        kinds = [(field.name, _arrow_type(field.dataType)) for field in fields]
        return pa.schema([(name, kind) for name, kind in kinds if kind is not None])

    def _is_exact(self, frame: DataFrame) -> bool:
        """Whether Sail reads Parquet exactly: its user says so, and its plan of a count does not use statistics.

        No plan shows whether a filter skips files by their statistics: for filters, only the user's word counts.
        """
        promise = self._session.conf.get(EXACT_PARQUET, "false") == "true"
        return promise and _FROM_STATISTICS not in _plan_text(frame.groupBy().count())

    def provenance(self, source: object) -> Provenance:
        """Return the origin of a view's or a frame's rows; the server gives only the names of columns."""
        return seen_through(source, self._provenance)

    def _is_seen(self, source: object) -> bool:
        try:
            self.provenance(source)
        except UnseenError:
            return False
        return True

    def _provenance(self, source: object) -> Provenance:
        frame: Any = self._frame(source)
        java = getattr(frame, "_jdf", None)
        if java is not None:
            return _ask(lambda: JvmReader(self.table).rows(java.queryExecution().analyzed()), source)
        client = frame.sparkSession.client

        def names(relation: Any) -> list[str]:
            plan = type(frame_plan)()
            plan.root.CopyFrom(relation)
            return list(_ask(lambda: client.schema(plan).names, source))

        frame_plan = frame._plan.to_proto(client)
        return ConnectReader(self.table, names).rows(frame_plan.root)

    def check(self, work: Work) -> None:
        """Run the work in workers, over no rows; the number of workers gives the useful number of tasks.

        Raises
        ------
        SourceError
            S026: the workers lack dpsql or have another version or Python. S030: the server does not answer.
        """

        def rehearse(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                pass
            [record] = work.run(())
            yield pa.RecordBatch.from_arrays(
                [record.column("version"), pa.array([os.cpu_count()], type=pa.int64())], schema=_CHECKED
            )

        try:
            workers = self._run_on_workers(rehearse, _CHECKED)
        except InternalError:
            _ask(lambda: self._session.conf.get(EXACT_PARQUET, "false"))  # raises if the server is lost
            workers = []
        if {worker["version"] for worker in workers} != {__version__}:
            raise SourceError(
                "S026",
                f"the workers of engine spark {self._lack()}. Install dpsql {__version__} where Spark runs Python, "
                "restart the workers, and let PYSPARK_PYTHON name that Python.",
            )
        if self._fixed_tasks is None:
            elastic = _ask(lambda: self._session.conf.get("spark.dynamicAllocation.enabled", "false")) == "true"
            cores = max(worker["cores"] or 1 for worker in workers)
            self._tasks = None if elastic else _PER_CORE * max(len(workers), cores)

    def fold(self, source: object, columns: Sequence[str], work: Work) -> list[pa.RecordBatch]:
        """Run the work over each of Spark's partitions, without a shuffle of rows.

        The row that ends the job is a partition after all others. The partitions determine the numbers, so another
        attempt or job repeats them: a Sail client that cannot return to its job starts it again, and PySpark appends
        the new results to the earlier ones.
        """
        kind = work.record if work.is_wide else ending(work.record)

        def run(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            records = work.run(_renamed(rows, columns))
            return records if work.is_wide else ended(records, work.record)

        def map_rows() -> DataFrame:
            return self._rows(source, columns).mapInArrow(run, _spark_schema(kind))

        if work.is_wide:
            return self._merged(map_rows, work)
        last = f"CAST({OF_JOB} AS BIGINT) AS {END}"
        return _collected(
            lambda: (
                map_rows()
                .unionAll(self._session.range(0, 1, 1, 1).selectExpr(*map(_null, _spark_schema(work.record)), last))
                .selectExpr("*", f"monotonically_increasing_id() AS {NUMBER}")
            ),
            delivered(work.record),
        )

    def fold_parts(self, source: object, columns: Sequence[str], work: Work) -> list[pa.RecordBatch]:
        """Group the rows by part with a shuffle, and run the work over each group."""

        def split_rows() -> DataFrame:
            rows = self._rows(source, columns)
            kinds = StructType([*rows.schema.fields, StructField(PART, LongType())])
            names = kinds.names

            def split(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                return _renamed(work.split(_renamed(rows, columns)), names)

            return rows.mapInArrow(split, kinds)

        def run(part: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return work.run(_renamed(part, [*columns, PART]))

        def of_part(part: pa.Table) -> pa.Table:
            return pa.Table.from_batches(run(part.to_batches()), work.record)

        if not work.is_wide:
            return self._grouped(split_rows, PART, work.parts, run, work)

        def states() -> DataFrame:
            return split_rows().groupBy(PART).applyInArrow(of_part, _spark_schema(work.record))

        return self._merged(states, work)

    def _merged(self, states: Callable[[], DataFrame], work: Work) -> list[pa.RecordBatch]:
        """Run a job that merges records by node before they reach the driver."""

        def merge(node: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return work.merge(_renamed(node, work.record.names))

        return self._grouped(states, NODE, NODES, merge, work)

    def _grouped(
        self, rows: Callable[[], DataFrame], key: str, count: int, function: Mapped, work: Work
    ) -> list[pa.RecordBatch]:
        """Run a function over the rows of each key, from 0 on, and return its records with numbers.

        Every key gets a row without a privacy unit, and makes at least the row that ends its records. So the number of
        tasks is known, without another task after them: Sail repeats a task after a shuffle only while no parallel task
        has returned anything.
        """
        kind = delivered(work.record)

        def run(group: pa.Table) -> pa.Table:
            nobodys, number = (
                group.column(group.num_columns - 1),
                group.column(group.num_columns - 2)[0].as_py() << PLACES,
            )
            own = group.filter(pc.is_null(nobodys)).remove_column(group.num_columns - 1)
            records = function(own.to_batches()) if own.num_rows else ()
            return pa.Table.from_batches(numbered(ended(records, work.record), number, kind), kind)

        def job() -> DataFrame:
            frame = rows()
            nobody = [f"id AS {key}" if field.name == key else _null(field) for field in frame.schema.fields]
            marked = frame.selectExpr("*", f"CAST(NULL AS BIGINT) AS {END}")
            keys = self._session.range(0, count, 1, 1).selectExpr(*nobody, f"CAST({OF_TASK} AS BIGINT) AS {END}")
            return marked.unionAll(keys).groupBy(key).applyInArrow(run, _spark_schema(kind))

        last = ended((), work.record, OF_JOB)
        return [*_collected(job, kind), *numbered(last, count << PLACES, kind)]

    def map(self, source: object, function: Mapped, added: pa.Schema) -> DataFrame:
        """Return a lazy frame of the rows with more columns, which workers add."""
        frame = self._frame(source)
        kinds = StructType([*frame.schema.fields, *_spark_schema(added).fields])
        return frame.mapInArrow(function, kinds)

    def _frame(self, source: object) -> DataFrame:
        if isinstance(source, DataFrame):
            return source
        if not isinstance(source, str | tuple):
            raise SourceError(
                "S024",
                f"engine spark has no source {_label(source)}. Give the name of a table or a view, or a DataFrame.",
            )
        name = source if isinstance(source, str) else ".".join(map(_quoted, source))
        return _ask(lambda: self._session.table(name), source)

    def _rows(self, source: object, columns: Sequence[str]) -> DataFrame:
        """Return the columns to read, under plain names: Spark reads a point in a name as a path; Sail loses it."""
        rows = self._frame(source).select([*map(_quoted, columns)])
        rows = rows.toDF(*[f"c{number}" for number in range(len(columns))])
        return rows if self._tasks is None else rows.coalesce(self._tasks)

    def _run_on_workers(self, function: Mapped, kind: pa.Schema) -> list[dict[str, Any]]:
        """Return workers' output from rows without a unit: all parallel workers of Apache Spark, one worker on Sail."""
        batches = _collected(lambda: self._session.range(_NOBODY).mapInArrow(function, _spark_schema(kind)), kind)
        return [row for batch in batches for row in batch.to_pylist()]

    def _lack(self) -> str:
        """Return, in words, why the workers cannot run dpsql."""
        kind = pa.schema([("found", pa.string())])

        def probe(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # needs nothing but PyArrow
            for _ in batches:
                pass
            try:
                answer = f"have dpsql {import_module('dpsql').__version__}"
            except ImportError as missing:
                answer = f"lack the package {missing.name}"
            yield pa.RecordBatch.from_arrays([pa.array([answer])], names=["found"])

        try:
            return str(self._run_on_workers(probe, kind)[0]["found"])
        except InternalError:
            return "cannot run Python functions of this session"


def _server(session: SparkSession) -> tuple[str, str]:
    """Return a server's kind and version: Sail gives the session the version of the Spark whose client it serves."""
    [[version]] = session.sql("SELECT version()").collect()
    spark = session.version
    return ("spark", spark) if version.startswith(spark) else ("sail", version)


def _full_name(table: Table) -> tuple[str, ...] | None:
    """Return the full name of a catalog table; None for a view."""
    if table.isTemporary or table.tableType not in ("MANAGED", "EXTERNAL"):
        return None
    return tuple(part for part in (table.catalog, *(table.namespace or ()), table.name) if part)


def _ask(question: Callable[[], _Result], source: object = None) -> _Result:
    """Return the server's answer before any row is read; its messages may quote literals of a query.

    Raises
    ------
    SourceError
        S024: the server cannot resolve the source. S054: it cannot read the source. S030: it does not answer.
    """
    try:
        return question()
    except (DpsqlError, UnseenError):
        raise
    except AnalysisException:
        failure = SourceError(
            "S024",
            f"engine spark cannot resolve source {_label(source)}. Check its name in the catalog, or the DataFrame's "
            "tables and columns; on Sail a session has tables of its own (;session_id= in the URL).",
        )
    except (SparkRuntimeException, IllegalArgumentException, ArithmeticException) as error:
        failure = SourceError(
            "S054",
            f"the server of engine spark cannot read source {_label(source)} ({type(error).__name__}). Nothing was "
            "charged. Check that its files are there, and that all of them have the same columns and types.",
        )
    except Exception as error:
        failure = SourceError(
            "S030",
            f"engine spark does not answer ({type(error).__name__}). Nothing was charged. Check that the server runs, "
            "and that the session is open.",
        )
    raise failure


def _collected(job: Callable[[], DataFrame], kind: pa.Schema) -> list[pa.RecordBatch]:
    """Plan a job, run it, and return its result.

    Raises
    ------
    InternalError
        I001, unchained, replaces Spark's error, which may quote a value, such as a value that a view casts.
    """
    try:
        batches: list[pa.RecordBatch] = job().toArrow().cast(kind).to_batches()
        return batches
    except Exception:
        failure = InternalError("I001", "a job of engine spark failed.")
    raise failure


def _null(field: StructField) -> str:
    return f"CAST(NULL AS {field.dataType.simpleString()}) AS {_quoted(field.name)}"


def _renamed(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    return (batch.rename_columns(list(names)) for batch in batches)


def _label(source: object) -> str:
    return show(source if isinstance(source, str) else type(source).__name__)


def _plan_text(frame: DataFrame) -> str:
    java = getattr(frame, "_jdf", None)
    if java is not None:
        return str(java.queryExecution().toString())
    connected: Any = frame
    return str(connected._explain_string(extended=True))


def _arrow_type(kind: DataType) -> pa.DataType | None:
    """Return the Arrow type in which a worker gets a type's values; None for a type outside this map."""
    if isinstance(kind, StringType):
        return pa.string()
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, ArrayType):
        element = _arrow_type(kind.elementType)
        return None if element is None else pa.list_(element)
    if isinstance(kind, StructType):
        inner = {field.name: _arrow_type(field.dataType) for field in kind.fields}
        return None if None in inner.values() else pa.struct(list(inner.items()))
    return _ARROW_TYPES.get(kind.simpleString())


def _quoted(name: str) -> str:
    return "`{}`".format(name.replace("`", "``"))


def _spark_schema(kind: pa.Schema) -> StructType:
    return from_arrow_schema(kind)


def open_engine(_: str, location: str) -> SparkEngine:
    """Return the engine of a Spark Connect server by its URL; parameters ``dpsql.…`` are settings of the session."""
    from pyspark.sql.connect.session import SparkSession  # a session on a JVM lacks its packages

    address, *parameters = location.split(";")
    ours = dict(parameter.split("=", 1) for parameter in parameters if re.match(r"dpsql\.\w+=", parameter))
    remote = ";".join([address, *(parameter for parameter in parameters if parameter.partition("=")[0] not in ours)])
    url = urlsplit(remote)
    with create_connection((url.hostname, url.port or 15002), timeout=10):  # the client would try for ten minutes
        session: Any = SparkSession.builder.remote(remote).create()  # not another option's session
    for name, value in ours.items():
        session.conf.set(name, value)
    return SparkEngine(session)
