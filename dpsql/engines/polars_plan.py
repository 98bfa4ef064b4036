"""What Polars' own plan of a lazy frame shows of where its rows come from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import date, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from dpsql.engines.provenance import Provenance, Scan, UnseenError, scan_of_files, union

if TYPE_CHECKING:
    import polars

# Functions whose value in a row follows from their arguments in that row, by the names in Polars' plans. Not here: what
# looks at other rows (shift, rank, cum_sum, is_unique, fill_null with a strategy), draws (shuffle), or runs Python.
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
# Values that are the same in every row; a series would have a value for each.
_CONSTANTS = (bool, int, float, str, bytes, date, time, timedelta, Decimal, type(None))
# A code of a category follows from the order of all rows, so what is cast to or from one is not seen.
_PLAIN_TYPES = frozenset(
    (
        *("Boolean", "Int8", "Int16", "Int32", "Int64", "Int128", "UInt8", "UInt16", "UInt32", "UInt64", "Float32"),
        *("Float64", "Decimal", "String", "Binary", "Date", "Datetime", "Duration", "Time"),
    )
)
_FORMATS = frozenset(("parquet", "ipc", "csv", "ndjson"))
# What a scan may be asked for, beside its rows as they are.
_SCAN_OPTIONS = ("n_rows", "row_index", "include_file_paths", "deletion_files")


def provenance_of(frame: polars.LazyFrame) -> Provenance:
    """Return what the rows of a frame come from; no row is read.

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
    """A walk over a plan of Polars, which it numbers by operators and expressions."""

    def __init__(self, plan: Any) -> None:
        self._plan = plan

    def _shown(self, what: str, number: int | None = None) -> Any:
        """Return an operator or an expression, which Polars may refuse to show."""
        try:
            return getattr(self._plan, what)(*(() if number is None else (number,)))
        except NotImplementedError as hidden:
            raise UnseenError(str(hidden)) from None

    def rows(self, number: int) -> Provenance:
        self._plan.set_node(number)
        node = self._shown("view_current_node")
        schema: dict[str, Any] = dict(self._plan.get_schema())
        kind = type(node).__name__
        if kind == "DataFrameScan":
            return self._scanned(Scan(), node.selection, schema)
        if kind == "Scan":
            form = node.scan_type[0]
            asked = [name for name in _SCAN_OPTIONS if getattr(node.file_options, name, None) is not None]
            if form not in _FORMATS or asked:
                raise UnseenError(f"a scan with {asked[0]}" if asked else f"a scan of {form}")
            return self._scanned(scan_of_files([_plain(path) for path in node.paths]), node.predicate, schema)
        if kind in ("Cache", "SimpleProjection", "Filter", "Sort", "Select", "HStack"):
            if getattr(node, "slice", None) is not None:
                raise UnseenError("Slice")
            below = self.rows(node.input)
            self._plan.set_node(node.input)
            return self._computed(kind, node, below, dict(self._plan.get_schema()), schema)
        if kind == "Union" and getattr(node, "slice", None) is None and getattr(node, "options", None) is None:
            return union([self.rows(one) for one in node.inputs])
        raise UnseenError(kind)

    def _scanned(self, scan: Scan, predicate: Any, schema: dict[str, Any]) -> Provenance:
        if predicate is not None:
            self._refuse(predicate.node, schema)
        return Provenance.of(scan, schema)

    def _computed(
        self, kind: str, node: Any, below: Provenance, read: dict[str, Any], schema: dict[str, Any]
    ) -> Provenance:
        """Return the rows of an operator that reads one other and computes from each row alone."""
        if kind in ("Cache", "Sort"):
            return below
        if kind == "SimpleProjection":
            return below.select((name, below.column(name)) for name in schema)
        if kind == "Filter":
            self._refuse(node.predicate.node, read)
            return below
        made = {one.output_name: self._passed(one.node, below, read) for one in _expressions(node)}
        kept = {} if kind == "Select" else dict(below.columns)
        known = {**kept, **made}
        return below.select((name, known.get(name)) for name in schema)

    def _passed(self, number: int, below: Provenance, read: dict[str, Any]) -> tuple[str, ...] | None:
        """Return the column that an expression is; None for one that computes, from what is on the list."""
        expression = self._shown("view_expression", number)
        if type(expression).__name__ == "Column":
            return below.column(expression.name)
        self._refuse(number, read)
        return None

    def _refuse(self, number: int, read: dict[str, Any]) -> None:
        """Raise unless an expression's value in a row follows from that row."""
        expression = self._shown("view_expression", number)
        kind = type(expression).__name__
        if kind == "Literal":
            values = expression.value if isinstance(expression.value, list) else [expression.value]
            if not all(isinstance(value, _CONSTANTS) for value in values):
                raise UnseenError("a series as a value")
        elif kind == "Function":
            name = str(expression.function_data[0])
            if name not in _FUNCTIONS:
                raise UnseenError(name)
        elif kind == "Cast":
            kinds = [expression.dtype, *self._types(expression.expr, read)]
            if not _PLAIN_TYPES.issuperset(kind.base_type().__name__ for kind in kinds):
                raise UnseenError("a cast of a category")
        elif kind not in ("Column", "BinaryExpr", "Ternary"):
            raise UnseenError(kind)
        for below in _below(expression):
            self._refuse(below, read)

    def _types(self, number: int, read: dict[str, Any]) -> Iterator[Any]:
        """Yield the types of the columns that an expression reads."""
        expression = self._shown("view_expression", number)
        if type(expression).__name__ == "Column":
            yield read[expression.name]
        for below in _below(expression):
            yield from self._types(below, read)


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
    """Return a path by which two spellings of one file are equal."""
    text = str(path)
    return os.path.realpath(text) if "://" not in text else text.rstrip("/")
