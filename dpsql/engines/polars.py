"""Polars as an engine: each batch of the streaming engine is folded on its own, and batches are never collected.

The module also reads Polars' plan of a lazy frame for the tables that its rows come from.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars
import pyarrow as pa

from dpsql.contract.parameters import show
from dpsql.engines.driver import JobNumbers, numbered_task
from dpsql.engines.port import PART, Mapped, Work
from dpsql.engines.provenance import Provenance, Scan, UnseenError, scan_of_files, seen_through, union
from dpsql.engines.task import plain
from dpsql.errors import SourceError

if TYPE_CHECKING:
    import polars


# Functions whose value in a row depends only on its arguments there, by their names in Polars' plans. The list
# excludes what reads other rows (shift, rank, cum_sum, is_unique, fill_null with a strategy), draws (shuffle),
# or runs Python.
_FUNCTIONS = frozenset(
    (
        *("abs", "ceil", "clip", "coalesce", "exp", "fill_null", "floor", "log", "log1p", "negate", "pow", "round"),
        *("sign", "sqrt", "cbrt", "max_horizontal", "min_horizontal", "sum_horizontal", "replace", "replace_strict"),
        *(f"BooleanFunction.{name}" for name in ("IsNull", "IsNotNull", "IsNan", "IsNotNan", "IsFinite", "IsInfinite")),
        *(f"BooleanFunction.{name}" for name in ("IsIn", "IsBetween", "IsClose", "Not", "AnyHorizontal")),
        "BooleanFunction.AllHorizontal",
        *(f"StringFunction.{name}" for name in ("ConcatHorizontal", "Contains", "EndsWith", "StartsWith", "LenBytes")),
        *(f"StringFunction.{name}" for name in ("LenChars", "Lowercase", "Uppercase", "Replace", "Slice", "Head")),
        *(f"StringFunction.{name}" for name in ("Tail", "StripChars", "StripCharsStart", "StripCharsEnd")),
        *(f"StringFunction.{name}" for name in ("StripPrefix", "StripSuffix", "ZFill")),
        *(f"TemporalFunction.{name}" for name in ("Year", "IsoYear", "Quarter", "Month", "Week", "WeekDay", "Day")),
        *(f"TemporalFunction.{name}" for name in ("OrdinalDay", "Hour", "Minute", "Second", "Date", "Truncate")),
    )
)
# Values that are the same in every row; a series may have one value per row.
_CONSTANTS = (bool, int, float, str, bytes, date, time, timedelta, Decimal, type(None))
# A category's labels, their order and their codes depend on all rows. So a plan may only pass a category on, cast it
# to text, or compare it for equality.
_EQUAL = frozenset(f"Operator.{name}" for name in ("Eq", "NotEq", "EqValidity", "NotEqValidity"))
_ASKS_LABELS = frozenset(f"BooleanFunction.{name}" for name in ("IsNull", "IsNotNull", "IsIn"))
_PLAIN_TYPES = frozenset(
    (
        *("Boolean", "Int8", "Int16", "Int32", "Int64", "Int128", "UInt8", "UInt16", "UInt32", "UInt64", "Float32"),
        *("Float64", "Decimal", "String", "Binary", "Date", "Datetime", "Duration", "Time"),
    )
)
_FORMATS = frozenset(("parquet", "ipc", "csv", "ndjson"))
# Options of a scan that change its rows.
_SCAN_OPTIONS = ("n_rows", "row_index", "include_file_paths", "deletion_files")


def provenance_of(frame: polars.LazyFrame) -> Provenance:
    """Return the provenance of a frame's rows; read no row.

    Raises
    ------
    UnseenError
        The plan has an operator or a function that is not on the list.
    SourceError
        S052: a file is scanned twice.
    """
    try:
        plan: Any = frame._ldf.visit()
    except Exception as error:
        raise UnseenError(f"a plan that Polars does not show ({type(error).__name__})") from None
    return _Reader(plan).rows(plan.get_node())


class _Reader:
    """A walk over a Polars plan, which numbers its operators and expressions."""

    def __init__(self, plan: Any) -> None:
        self._plan = plan

    def _show_node(self, what: str, number: int | None = None) -> Any:
        """Return an operator or an expression, which Polars may refuse to show."""
        try:
            return getattr(self._plan, what)(*(() if number is None else (number,)))
        except NotImplementedError:
            raise UnseenError("an operator that Polars does not show") from None

    def rows(self, number: int) -> Provenance:
        self._plan.set_node(number)
        node = self._show_node("view_current_node")
        schema: dict[str, Any] = dict(self._plan.get_schema())
        kind = type(node).__name__
        if kind == "DataFrameScan":
            return self._scanned(Scan(), node.selection, schema)
        if kind == "Scan":
            form = node.scan_type[0]
            options = [name for name in _SCAN_OPTIONS if getattr(node.file_options, name, None) is not None]
            if form not in _FORMATS or options:
                raise UnseenError(f"a scan with {options[0]}" if options else f"a scan of {form}")
            return self._scanned(scan_of_files([_plain(path) for path in node.paths]), node.predicate, schema)
        if kind in ("Cache", "SimpleProjection", "Filter", "Sort", "Select", "HStack"):
            if getattr(node, "slice", None) is not None:
                raise UnseenError("Slice")
            below = self.rows(node.input)
            self._plan.set_node(node.input)
            return self._computed(kind, node, below, dict(self._plan.get_schema()), schema)
        if kind == "Union" and getattr(node, "slice", None) is None and getattr(node, "options", None) is None:
            return union([self.rows(branch) for branch in node.inputs])
        raise UnseenError(kind)

    def _scanned(self, scan: Scan, predicate: Any, schema: dict[str, Any]) -> Provenance:
        if predicate is not None:
            self._refuse(predicate.node, schema)
        return Provenance.of(scan, schema)

    def _computed(
        self, kind: str, node: Any, below: Provenance, read: dict[str, Any], schema: dict[str, Any]
    ) -> Provenance:
        """Return the rows of an operator with one input that computes from each row alone."""
        if kind in ("Cache", "Sort"):
            return below
        if kind == "SimpleProjection":
            return below.select((name, below.column(name)) for name in schema)
        if kind == "Filter":
            self._refuse(node.predicate.node, read)
            return below
        new = {expression.output_name: self._passed(expression.node, below, read) for expression in _expressions(node)}
        old = {} if kind == "Select" else dict(below.columns)
        columns = {**old, **new}
        return below.select((name, columns.get(name)) for name in schema)

    def _passed(self, number: int, below: Provenance, read: dict[str, Any]) -> tuple[str, ...] | None:
        """Return the column that an expression passes on; None for a computation from listed functions."""
        expression = self._show_node("view_expression", number)
        if type(expression).__name__ == "Column":
            return below.column(expression.name)
        self._refuse(number, read)
        return None

    def _refuse(self, number: int, read: dict[str, Any], *, labels: bool = False) -> None:
        """Raise unless an expression's value in a row depends only on that row; a column may have `labels`."""
        expression = self._show_node("view_expression", number)
        kind = type(expression).__name__
        asks = str(getattr(expression, "op", "")) in _EQUAL
        if kind == "Column":
            if not labels and _has_labels(read.get(expression.name)):
                raise UnseenError("the order of a category's labels, or a value beside them")
        elif kind == "Literal":
            values = expression.value if isinstance(expression.value, list) else [expression.value]
            if not all(isinstance(value, _CONSTANTS) for value in values):
                raise UnseenError("a series as a value")
        elif kind == "Function":
            name = str(expression.function_data[0])
            if name not in _FUNCTIONS:
                raise UnseenError(name)
            asks = name in _ASKS_LABELS
        elif kind == "Cast":
            asks = expression.dtype == polars.String and self._is_category(expression.expr, read)
            kinds = [expression.dtype, *(() if asks else self._types(expression.expr, read))]
            if not _PLAIN_TYPES.issuperset(kind.base_type().__name__ for kind in kinds):
                raise UnseenError("a cast of a category")
        elif kind not in ("BinaryExpr", "Ternary"):
            raise UnseenError(kind)
        for below in _below(expression):
            self._refuse(below, read, labels=asks)

    def _is_category(self, number: int, read: dict[str, Any]) -> bool:
        """Whether an expression is an unchanged category column."""
        expression = self._show_node("view_expression", number)
        return type(expression).__name__ == "Column" and _is_category(read.get(expression.name))

    def _types(self, number: int, read: dict[str, Any]) -> Iterator[Any]:
        """Yield the types of the columns that an expression reads."""
        expression = self._show_node("view_expression", number)
        if type(expression).__name__ == "Column":
            yield read[expression.name]
        for below in _below(expression):
            yield from self._types(below, read)


def _is_category(kind: Any) -> bool:
    return isinstance(kind, (polars.Categorical, polars.Enum)) or kind in (polars.Categorical, polars.Enum)


def _has_labels(kind: Any) -> bool:
    """Whether a type is or contains a category."""
    fields = [field.dtype for field in getattr(kind, "fields", ())]
    inner = getattr(kind, "inner", None)
    return kind is not None and (_is_category(kind) or any(map(_has_labels, [*fields, inner])))


def _expressions(node: Any) -> list[Any]:
    return list(node.expr if hasattr(node, "expr") else node.exprs)


def _below(expression: Any) -> Iterator[int]:
    """Yield the numbers of an expression's operands."""
    for name in ("left", "right", "expr", "predicate", "truthy", "falsy"):
        number = getattr(expression, name, None)
        if isinstance(number, int):
            yield number
    yield from getattr(expression, "input", ())


def _plain(path: Any) -> str:
    """Return a path in one spelling for each file."""
    text = str(path)
    return os.path.realpath(text) if "://" not in text else text.rstrip("/")


# Rows of a batch.
_ROWS = 1 << 17
# Earlier versions of Polars have no UInt128.
_WIDE = tuple(getattr(polars, name) for name in ("Int128", "UInt128") if hasattr(polars, name))


class PolarsEngine:
    """Frames of Polars.

    Parameters
    ----------
    frames : mapping of str to polars.LazyFrame or polars.DataFrame, optional
        Frames by their names in SQL.
    """

    name = "polars"

    def __init__(self, frames: Mapping[str, polars.LazyFrame | polars.DataFrame] | None = None) -> None:
        self.version = str(polars.__version__)
        self._frames = dict(frames or {})
        self._streams = False  # until tested

    def table(self, source: str) -> tuple[str, ...] | None:
        """Return None: Polars has no catalog, and a frame may contain the rows of any table."""
        self._frame(source)
        return None

    def catalog(self) -> dict[str, tuple[str, ...]]:
        """Return nothing: names refer to frames."""
        return {}

    def schema(self, source: object) -> pa.Schema:
        """Return the column types; a lazy frame resolves them without reading rows."""
        frame = self._frame(source)
        try:
            schema = frame.collect_schema()
        except Exception as error:
            raise SourceError(
                "S024",
                f"frame {show(source if isinstance(source, str) else type(source).__name__)} cannot be read "
                f"({type(error).__name__}). Check it: frame.collect_schema().",
            ) from None
        return as_arrow(schema.to_frame()).schema

    def provenance(self, source: object) -> Provenance:
        """Return the provenance of a frame's rows."""
        try:
            return seen_through(self._frame(source), provenance_of)
        except UnseenError:
            self.schema(source)  # refuses an unreadable frame
            raise

    def check(self, work: Work) -> None:
        """Stream an artificial row, once, as `fold` and `fold_parts` do; the work runs in this process.

        Polars 1.36 silently ends a stream early when a batch fails: a call would count only some of the rows.

        Raises
        ------
        SourceError
            S055: this Polars cannot stream this way.
        """
        if self._streams:
            return
        try:
            nobody = polars.LazyFrame({PART: [0]})
            kinds = nobody.collect_schema()
            list(self._batches(nobody.map_batches(lambda rows: rows, schema=kinds, streamable=True), in_order=False))
            list(self._batches(nobody.sort(PART), in_order=True))
            failing = nobody.map_batches(_fail, schema=kinds, streamable=True)
            is_reported = False
            try:
                list(self._batches(failing, in_order=False))
            except ZeroDivisionError:
                is_reported = True
        except Exception:
            is_reported = False
        if not is_reported:
            raise SourceError(
                "S055",
                f"polars {self.version} cannot stream batches of rows as dpsql needs. Install polars 1.37.1 or later.",
            )
        self._streams = True

    def fold(self, source: object, columns: Sequence[str], work: Work) -> Iterator[pa.RecordBatch]:
        """Run the work over each batch of the streaming engine, in the engine's own threads.

        A worker's statement costs more than the rows of a batch, so each statement reads many batches.
        """
        if not work.is_direct:
            batches = self._batches(self._frame(source).select(list(columns)), in_order=False)
            yield from numbered_task(work.run(batches), work.record)
            return
        numbering = JobNumbers(work.record)
        kinds = polars.DataFrame(numbering.kind.empty_table()).schema

        def run(frame: polars.DataFrame) -> polars.DataFrame:
            records = numbering.task(work.run(as_arrow(frame).to_batches()))
            return polars.DataFrame(pa.Table.from_batches(records, schema=numbering.kind))

        states = self._frame(source).select(list(columns)).map_batches(run, schema=kinds, streamable=True)
        for collect_batch in states.collect_batches(maintain_order=False, engine="streaming"):  # merged on arrival
            yield from as_arrow(collect_batch).cast(numbering.kind).to_batches()
        yield from numbering.last()

    def fold_parts(self, source: object, columns: Sequence[str], work: Work) -> Iterator[pa.RecordBatch]:
        """Sort the rows by part, and run the work over them."""
        frame = self._frame(source).select(list(columns))
        kinds = plain(as_arrow(frame.collect_schema().to_frame()).schema).append(pa.field(PART, pa.int64()))
        nothing = polars.DataFrame(kinds.empty_table())  # has the types of the rows of `work.split`

        def split(rows: polars.DataFrame) -> polars.DataFrame:
            frames = [polars.DataFrame(batch) for batch in work.split(as_arrow(rows).to_batches())]
            return polars.concat(frames) if frames else nothing

        rows = frame.map_batches(split, schema=nothing.schema, streamable=True).sort(PART)
        yield from numbered_task(work.run(self._batches(rows, in_order=True)), work.record)

    def _batches(self, rows: polars.LazyFrame, *, in_order: bool) -> Iterator[pa.RecordBatch]:
        """Yield a frame's rows in batches of the streaming engine."""
        for part in rows.collect_batches(chunk_size=_ROWS, maintain_order=in_order, engine="streaming"):
            yield from as_arrow(part).to_batches()

    def map(self, source: object, function: Mapped, added: pa.Schema) -> polars.LazyFrame:
        """Return a lazy frame with more columns, which the streaming engine computes batch by batch."""
        frame = self._frame(source)

        def run(rows: polars.DataFrame) -> polars.DataFrame:
            frames = [polars.DataFrame(batch.select(added.names)) for batch in function(as_arrow(rows).to_batches())]
            return rows.hstack(polars.concat(frames)) if frames else rows.hstack(polars.DataFrame(added.empty_table()))

        kinds = {**frame.collect_schema(), **polars.DataFrame(added.empty_table()).schema}
        return frame.map_batches(
            run, schema=kinds, streamable=True, projection_pushdown=False, predicate_pushdown=False
        )

    def _frame(self, source: object) -> polars.LazyFrame:
        frame: Any = self._frames.get(source) if isinstance(source, str) else source
        if not isinstance(frame, polars.LazyFrame | polars.DataFrame):
            hint = f" It has: {', '.join(sorted(self._frames))}." if self._frames else ""
            raise SourceError("S024", f"engine polars has no frame {show(source)}.{hint} Give a frame, or its name.")
        return frame.lazy()


def _fail(rows: polars.DataFrame) -> polars.DataFrame:
    raise ZeroDivisionError


def with_decimals(frame: polars.DataFrame) -> polars.DataFrame:
    """Return a frame whose integers of 128 bits are decimals, as Arrow has none: NULL beyond 38 digits.

    Columns of lists or structs of such integers are left out: a call that names one does not find it.
    """
    wide = [name for name, kind in frame.schema.items() if kind in _WIDE]
    nested = [name for name, kind in frame.schema.items() if name not in wide and _has_wide(kind)]
    decimals = [polars.col(name).cast(polars.Decimal(38, 0), strict=False) for name in wide]
    return frame.with_columns(decimals).drop(nested) if wide or nested else frame


def as_arrow(frame: polars.DataFrame) -> pa.Table:
    """Return a frame as Arrow, see `with_decimals`."""
    return with_decimals(frame).to_arrow(compat_level=polars.CompatLevel.oldest())


def _has_wide(kind: object) -> bool:
    inner = [getattr(kind, "inner", None), *(field.dtype for field in getattr(kind, "fields", ()))]
    return kind in _WIDE or any(part is not None and _has_wide(part) for part in inner)


def open_engine(name: str, location: str) -> PolarsEngine:
    """Return the engine of Parquet files as one table."""
    frame = polars.scan_parquet(location)
    frame.collect_schema()
    return PolarsEngine({name: frame})
