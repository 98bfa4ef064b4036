"""DataFusion as an engine: a thread folds the stream of each partition, and nothing is collected.

DataFusion alone decides how much memory it takes. Rows that need no grouping stream through. Rows that need grouping
are sorted, and a sort spills to disk only if the session has a memory pool with a limit
(`RuntimeEnvBuilder.with_fair_spill_pool`). The module also reads DataFusion's logical plan of a frame for its tables.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import datafusion
import pyarrow as pa
from datafusion import DataFrame, SessionConfig, SessionContext, col, udf

from dpsql.contract.parameters import show
from dpsql.engines.driver import JobNumbers, numbered_task
from dpsql.engines.port import PART, Mapped, Work
from dpsql.engines.provenance import Passed, Provenance, Scan, UnseenError, seen_through, union
from dpsql.errors import SourceError

if TYPE_CHECKING:
    from datafusion import Expr
    from datafusion.plan import LogicalPlan


# Expressions whose value in a row depends only on their operands in that row.
_EXPRESSIONS = frozenset(
    (
        *("Alias", "Between", "BinaryExpr", "Case", "Cast", "Column", "ILike", "InList", "IsFalse", "IsNotFalse"),
        *("IsNotNull", "IsNotTrue", "IsNotUnknown", "IsNull", "IsTrue", "IsUnknown", "Like", "Literal", "Negative"),
        *("Not", "TryCast"),
    )
)
# Functions of the same kind, by DataFusion's names of their implementations: a user's function may have any name.
_FUNCTIONS = frozenset(
    (
        *("AbsFunc", "BTrimFunc", "CeilFunc", "CharacterLengthFunc", "CoalesceFunc", "ConcatFunc", "DatePartFunc"),
        *("DateTruncFunc", "EndsWithFunc", "ExpFunc", "FloorFunc", "GreatestFunc", "IsNanFunc", "LeastFunc"),
        *("LeftFunc", "LnFunc", "Log10Func", "Log2Func", "LogFunc", "LowerFunc", "LtrimFunc", "NVLFunc", "NullIfFunc"),
        *("PowerFunc", "ReplaceFunc", "RightFunc", "RoundFunc", "RtrimFunc", "SignumFunc", "SqrtFunc"),
        *("StartsWithFunc", "SubstrFunc", "TruncFunc", "UpperFunc"),
    )
)
# DataFusion shows a function's implementation only in the error that it has no Python form.
_COMPUTED_BY = re.compile(r"[^{]*ScalarFunction \{ func: ScalarUDF \{ inner: (\w+) \{")
# Names of tables that DataFusion makes for rows in memory.
_IN_MEMORY = re.compile(r"c[0-9a-f]{32}|\?table\?")


def provenance_of(
    plan: LogicalPlan,
    table: Callable[[LogicalPlan], tuple[str, ...] | None],
    names: Callable[[LogicalPlan], Sequence[str]],
) -> Provenance:
    """Return the provenance of a plan's rows; read no row.

    Parameters
    ----------
    plan : datafusion.plan.LogicalPlan
    table, names : callable
        Map a scan to the full name of its table (None if the catalog lacks the table), and to the names of its columns.

    Raises
    ------
    UnseenError
        The plan has an operator or a function that is not on the list.
    """
    try:
        node: Any = plan.to_variant()
    except Exception:
        raise UnseenError("an operator that DataFusion does not show") from None
    kind = type(node).__name__
    below = [provenance_of(child, table, names) for child in plan.inputs()]
    if kind == "TableScan":
        for condition in node.filters():
            _refuse(condition)
        in_memory = _IN_MEMORY.fullmatch(node.table_name()) is not None
        path = None if in_memory else table(plan)
        if node.fetch() is not None or not (in_memory or path):
            raise UnseenError("a scan of some rows" if path else "a scan outside of the catalog")
        return Provenance.of(Scan(path), names(plan))
    if kind == "Union":
        return union(below)
    if len(below) != 1 or kind not in ("Filter", "Projection", "Repartition", "Sort", "SubqueryAlias"):
        raise UnseenError(kind)
    if kind == "Filter":
        _refuse(node.predicate())
    elif kind == "Projection":
        return below[0].select(_passed(projection, below[0]) for projection in node.projections())
    elif kind == "Sort" and node.get_fetch_val() is not None:
        raise UnseenError("Limit")
    return below[0]


def _passed(expression: Expr, below: Provenance) -> Passed:
    """Return an expression's name, and the column that it passes on."""
    name = expression.schema_name()
    inner = expression
    while inner.variant_name() == "Alias":
        alias: Any = inner.to_variant()
        inner = alias.expr()
    if inner.variant_name() == "Column":
        column: Any = inner.to_variant()
        name = column.name() if inner is expression else name
        return name, below.column(column.name())
    _refuse(inner)
    return name, None


def _refuse(expression: Expr) -> None:
    """Raise unless an expression's value in a row depends only on that row."""
    kind = expression.variant_name()
    if kind == "ScalarFunction":
        match = None
        try:
            expression.to_variant()
        except Exception as hidden:
            match = _COMPUTED_BY.match(str(hidden))
        if match is None or match[1] not in _FUNCTIONS:
            raise UnseenError(f"{expression.rex_call_operator()}()")
    elif kind not in _EXPRESSIONS:
        raise UnseenError(kind)
    for below in _below(expression):
        _refuse(below)


def _below(expression: Expr) -> Iterator[Expr]:
    """Yield the operands of an expression; columns and constants have none."""
    kind = expression.variant_name()
    if kind == "Case":
        case: Any = expression.to_variant()
        parts = [case.expr(), case.else_expr(), *(operand for pair in case.when_then_expr() for operand in pair)]
        yield from (part for part in parts if part is not None)
    elif kind == "Alias":
        alias: Any = expression.to_variant()
        yield alias.expr()
    elif kind not in ("Column", "Literal"):
        yield from expression.rex_call_operands()


# Text in a plan for scans that skip rows by the minimum and maximum of a file, a row group or a page.
_PRUNED = re.compile("pruning_predicate=|DynamicFilter")
# Names that DataFusion keeps without quotes; it folds other names.
_FOLDED = re.compile("[a-z_][a-z0-9_]*")


class DataFusionEngine:
    """Tables and frames of a session of DataFusion.

    Register a file whose types are inferred (CSV, JSON) with its schema: otherwise DataFusion reads rows to find the
    types, and a refusal would depend on these rows.

    Parameters
    ----------
    session : datafusion.SessionContext
    """

    name = "datafusion"

    def __init__(self, session: SessionContext) -> None:
        self.version = str(datafusion.__version__)
        self._session = session

    def table(self, source: str) -> tuple[str, ...] | None:
        """Return catalog, schema and name of a table; None for a view."""
        return self._scanned(self._frame(source).logical_plan())

    def _scanned(self, plan: LogicalPlan) -> tuple[str, ...] | None:
        """Return the full name of a scanned table; None for a larger plan or for another session's table."""
        scan: Any = plan.to_variant()
        if not hasattr(scan, "fqn"):  # a view has the plan of its query
            return None
        catalog, schema, name = scan.fqn()
        catalog = catalog or self._setting("catalog.default_catalog")
        schema = schema or self._setting("catalog.default_schema")
        try:
            table = self._session.catalog(catalog).schema(schema).table(name)
        except Exception:  # DataFusion raises no class of its own
            return None
        return (catalog, schema, name) if table.kind == "physical" else None

    def catalog(self) -> dict[str, tuple[str, ...]]:
        """Return the tables of every catalog in the session."""
        tables: dict[str, tuple[str, ...]] = {}
        for catalog in self._session.catalog_names():
            for schema in self._session.catalog(catalog).names():
                namespace = self._session.catalog(catalog).schema(schema)
                for name in namespace.names():
                    if namespace.table(name).kind == "physical":
                        parts = (catalog, schema, name)
                        tables[".".join(part if _FOLDED.fullmatch(part) else _quoted(part) for part in parts)] = parts
        return tables

    def schema(self, source: object) -> pa.Schema:
        """Return the column types, which DataFusion resolves without reading rows.

        Raises
        ------
        SourceError
            S024: the table does not exist. S034: values would depend on the minimum and maximum of a Parquet file,
            which leave NaN out. If a column has equal minimum and maximum, DataFusion 55 replaces every NaN by that
            value, and a filter skips NaN. So one row would change how others are read.
        """
        frame = self._frame(source)
        plan = frame.execution_plan().display_indent()
        if "file_type=parquet" in plan:
            if self._setting("execution.collect_statistics") == "true":
                raise _believed(source, "SET datafusion.execution.collect_statistics = false")
            if _PRUNED.search(plan):
                raise _believed(source, "Filter with condition :=, not in the query")
        return frame.schema()

    def provenance(self, source: object) -> Provenance:
        """Return the provenance of a view's or a frame's rows."""

        def names(plan: LogicalPlan) -> list[str]:
            return list(self._session.create_dataframe_from_logical_plan(plan).schema().names)

        def read(origin: object) -> Provenance:
            return provenance_of(self._frame(origin).logical_plan(), self._scanned, names)

        return seen_through(source, read)

    def check(self, work: Work) -> None:
        """Do nothing: the work runs in this process."""

    def fold(self, source: object, columns: Sequence[str], work: Work) -> Iterator[pa.RecordBatch]:
        """Run the work over the stream of each partition, in about as many threads as there are cores.

        If an operator deals rows out to partitions, all partitions run at once: it would keep the rows of waiting ones.
        """
        rows = self._frame(source).select(*_columns(columns))
        deals = "RepartitionExec" in rows.execution_plan().display_indent()
        streams = rows.execute_stream_partitioned()
        at_once = max(len(streams) if deals else min(len(streams), 2 * (os.cpu_count() or 1)), 1)
        numbering = JobNumbers(work.record)

        def run(stream: Any) -> list[pa.RecordBatch]:
            return list(numbering.task(work.run(batch.to_pyarrow() for batch in stream)))

        with ThreadPoolExecutor(at_once) as threads:
            for records in threads.map(run, streams):
                yield from records
        yield from numbering.last()

    def fold_parts(self, source: object, columns: Sequence[str], work: Work) -> Iterator[pa.RecordBatch]:
        """Sort the rows by part, which dpsql's own function computes, and run the work over them."""
        frame = self._frame(source).select(*_columns(columns))
        kinds = frame.schema()

        def part_of(*arrays: pa.Array) -> pa.Array:
            return work.part_of(pa.Table.from_arrays(list(arrays), names=kinds.names))

        part = udf(part_of, list(kinds.types), pa.int64(), "immutable", name=PART)
        [key] = _columns([PART])
        rows = frame.select(*_columns(columns), part(*_columns(columns)).alias(PART)).sort(key.sort())
        yield from numbered_task(work.run(batch.to_pyarrow() for batch in rows.execute_stream()), work.record)

    def map(self, source: object, function: Mapped, added: pa.Schema) -> DataFrame:
        """Return a lazy frame of the rows with more columns, which a DataFusion function adds."""
        frame = self._frame(source)
        kinds = frame.schema()

        def work(*arrays: pa.Array) -> pa.Array:
            rows = pa.RecordBatch.from_arrays(list(arrays), names=kinds.names)
            [batch] = function([rows])
            return pa.StructArray.from_arrays([batch.column(name) for name in added.names], fields=list(added))

        columns = _columns(kinds.names)
        mapped = udf(work, list(kinds.types), pa.struct(list(added)), "immutable", name="dpsql_map")(*columns)
        return frame.select(*columns, *(mapped[name].alias(name) for name in added.names))

    def _setting(self, name: str) -> str:
        """Return a setting, even if the session hides its settings."""
        settings = SessionContext(self._session.copied_config().with_information_schema(True))
        [answer] = settings.sql(f"SHOW datafusion.{name}").collect()
        return str(answer.column("value")[0])

    def _frame(self, source: object) -> DataFrame:
        if isinstance(source, DataFrame):  # a frame keeps the settings of its session from its creation
            return self._session.create_dataframe_from_logical_plan(source.logical_plan())
        name = ".".join(map(_quoted, source)) if isinstance(source, tuple) else str(source)
        try:
            return self._session.table(name)
        except KeyError:
            raise SourceError(
                "S024",
                f"engine datafusion has no table {show(source)}. Register it in the session, or give a DataFrame.",
            ) from None


def _believed(source: object, step: str) -> SourceError:
    label = show(source) if isinstance(source, str) else "a DataFrame"
    return SourceError(
        "S034", f"engine datafusion would believe the minimum and maximum in the files of {label}, without NaN. {step}."
    )


def _columns(columns: Sequence[str]) -> list[Expr]:
    """Return columns by their exact names, quoted as SQL for DataFusion."""
    return [col(_quoted(name)) for name in columns]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def open_engine(name: str, location: str) -> DataFusionEngine:
    """Return the engine of Parquet files as one table."""
    session = SessionContext(SessionConfig().set("datafusion.execution.collect_statistics", "false"))
    session.register_parquet(name, location)
    return DataFusionEngine(session)
