"""DuckDB's typing of conditions: the types of a condition's columns, and the condition's typed tree.

The column types come from the plan of a query without rows, in the caller's own session, while dpsql plans a call: the
types are public and depend on no row. dpsql's own DuckDB, where nobody has changed a setting, binds the condition
itself, over empty columns of these types. `dpsql.contract.expression.judge` judges the tree and writes the final SQL. A
process does this once for each condition and its types.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import duckdb

from dpsql.contract.call import MISSING
from dpsql.contract.expression.judge import UNREADABLE, Bound, Judged, unknown
from dpsql.contract.expression.kinds import ZONED_TIMESTAMP, Type, type_of
from dpsql.contract.names import source_sql
from dpsql.contract.parameters import show
from dpsql.contract.plan import Plan
from dpsql.contract.query.condition import columns_of, expression
from dpsql.contract.query.expressions import ColumnSql, RowExpressions
from dpsql.contract.query.tree import COMPARED
from dpsql.errors import ParameterError
from dpsql.parsing import PARSER
from dpsql.rendering import identifier, struct

# Marks queries for the types of columns, among queries for the origin of rows.
TYPES = "/* types */ "
ColumnTypes = tuple[tuple[str, Type], ...]
_OPAQUE = f"NULL::STRUCT({MISSING} BOOLEAN)"
# Prefix of the columns that replace cast literal strings.
_TEXT = "dpsql_text"
_BOOLEAN = Type("BOOLEAN")
_OPERATORS = {
    "CONJUNCTION_AND": "and",
    "CONJUNCTION_OR": "or",
    "OPERATOR_NOT": "not",
    "OPERATOR_IS_NULL": "null",
    "OPERATOR_IS_NOT_NULL": "present",
    "OPERATOR_COALESCE": "coalesce",
    "COMPARE_IN": "in",
    "COMPARE_NOT_IN": "in",
}
_WHOLE_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")


def types_query(source: str, condition: str) -> str:
    """Return the query whose optimized plan shows the types of a condition's columns.

    The optimized query reads nothing, so DuckDB can show its plan for files and frames, too.
    """
    names = ", ".join(map(identifier, columns_of(condition)))
    return f"{TYPES}SELECT {names} FROM (SELECT * FROM {source_sql(source)}) AS dpsql_source WHERE false"


def column_types(condition: str, plan: str) -> ColumnTypes | None:
    """Return the types of a condition's columns, from the plan of `types_query`.

    Return None if the plan does not show them: the source is missing, or lacks one of the columns.
    """
    try:
        document = json.loads(plan)
        root = document["plans"][0]
        if root["type"] == "LOGICAL_EMPTY_RESULT":
            records = root["return_types"]
        elif root["type"] == "LOGICAL_PROJECTION":  # the session turned the optimizer off
            records = [expression["return_type"] for expression in root["expressions"]]
        else:
            return None
        types = [type_of(record) for record in records]
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    names = columns_of(condition)
    return tuple(zip(names, types, strict=True)) if len(types) == len(names) else None


@lru_cache(maxsize=256)
def judged(condition: str, types: ColumnTypes, row: str) -> Judged:
    """Return the SQL that replaces a condition over columns of these types.

    Parameters
    ----------
    condition : str
    types : tuple of (str, Type)
        The columns of the condition.
    row : str
        The name of the struct with these columns in the SQL.

    Raises
    ------
    ParameterError
        P080, P082, P084: the condition does not accept these types.
    """
    columns = {("", name): ColumnSql("", kind) for name, kind in types}
    sql = RowExpressions(TYPING, None, row).condition(expression(condition), columns)
    read = {name: f"NULL::{kind.sql}" for name, kind in types if _readable(kind)}
    for name, kind in types:
        if name not in read and not PARSER.hands_over(kind.sql):
            raise unknown(f"column {show(name)} is {kind.shown}", kind)
    return Judged(sql, tuple(read), PARSER.value(f"SELECT typeof({struct(read)})") if read else "")


def _readable(kind: Type) -> bool:
    return kind.known or kind.kind == ZONED_TIMESTAMP


def refuse_other_types(plan: Plan, types: str | None) -> None:
    """Raise unless a plan's condition was judged for the current types of its columns.

    Parameters
    ----------
    plan : Plan
    types : str or None
        The type of a struct of the condition's columns, as DuckDB shows it now.

    Raises
    ------
    ParameterError
        P083.
    """
    if plan.condition is None:
        return
    if plan.judged is None:
        raise ParameterError(
            "P083",
            "condition: the types of its columns are not known before the call. Name a table, a view or a frame that "
            "is there, leave DuckDB's optimizer on (RESET disabled_optimizers), or filter in a view.",
        )
    if plan.judged.columns and types != plan.judged.types:
        raise ParameterError(
            "P083",
            "condition: its columns have other types in the statement than when the call was planned. Prepare a "
            "statement again; if it is new, cast them in a view: CREATE TEMP VIEW chosen AS SELECT CAST(...) ...",
        )


class _Typing:
    """DuckDB's types of expressions and queries without tables: a `dpsql.contract.query.catalogue.Typing`."""

    @property
    def newer(self) -> bool:
        """Whether DuckDB computes by IEEE 754 by default, as since 2.0."""
        return PARSER.newer

    def tree(self, sql: str, types: Sequence[tuple[str, Type]], texts: Sequence[str]) -> Bound | None:
        """Return the typed tree of an expression over columns of these types; None if DuckDB does not bind it.

        DuckDB 2.0 computes a cast of a literal while it binds. So the cast `texts` are columns. A NaN result is not
        JSON, and counts as not bound.
        """
        columns = [f"{_nothing(kind.in_utc)} AS {identifier(name)}" for name, kind in types]
        columns += [f"NULL::VARCHAR AS {identifier(f'{_TEXT}{number}')}" for number in range(1, len(texts) + 1)]
        expressions = _bound(f"SELECT ({sql}) FROM (SELECT {', '.join(columns)})")
        return None if expressions is None else _read(expressions[0], [name for name, _ in types], texts)

    def columns(self, query: str) -> tuple[tuple[str, Type], ...] | None:
        """Return the names and types of a query without tables; None if DuckDB does not bind it."""
        expressions = _bound(f"SELECT * FROM (\n{query}\n)")
        if expressions is None:
            return None
        return tuple((str(column.get("alias", "")), type_of(column["return_type"])) for column in expressions)

    def value(self, sql: str) -> str | None:
        """Return the value of an expression over literals as text; None for NULL, or if it fails."""
        try:
            value = PARSER.value(f"SELECT to_json(CAST(({sql}) AS VARCHAR))::VARCHAR")
        except duckdb.Error:
            return None
        return None if value == "None" else str(json.loads(value))


TYPING = _Typing()


def _bound(query: str) -> list[Any] | None:
    """Return the expressions of a query's plan; None if DuckDB does not bind it."""
    try:
        plan = json.loads(PARSER.plan(query))
    except ValueError:
        return None
    return None if plan.get("error") else list(plan["plans"][0]["expressions"])


def _nothing(kind: Type) -> str:
    """Return a NULL of a type; if expressions cannot read its values, a NULL of a type without operators."""
    if not kind.known and not kind.fields:
        return _OPAQUE
    return f"NULL::{kind.sql}" + (f" COLLATE {kind.collation}" if kind.collation else "")


def _read(record: Mapping[str, object], names: Sequence[str], texts: Sequence[str]) -> Bound:
    """Return a node from its DuckDB JSON form, in every version."""
    what, sort = str(record["type"]), str(record["expression_class"])
    return_type = record.get("return_type")
    kind = type_of(return_type) if isinstance(return_type, Mapping) else _BOOLEAN
    children = tuple(_read(child, names, texts) for child in _children(record))
    if sort == "BOUND_REF":
        index = int(str(record["index"]))
        if index >= len(names):
            return Bound("constant", kind, value=texts[index - len(names)])
        return Bound("column", kind, name=names[index])
    if sort == "BOUND_CONSTANT":
        return _constant(record["value"])
    if what == "OPERATOR_CAST":
        details = record.get("function_data")
        tries = record.get("try_cast") or (isinstance(details, Mapping) and details.get("try_cast"))
        return Bound("cast", kind, children, tries=bool(tries))
    if what in COMPARED and sort in ("BOUND_COMPARISON", "BOUND_FUNCTION"):
        return Bound("compare", _BOOLEAN, children, name=COMPARED[what])
    if what in _OPERATORS:
        return Bound(_OPERATORS[what], kind, children, tries=what == "COMPARE_NOT_IN")
    if sort == "BOUND_CASE":
        return Bound("case", kind, children)
    if what == "BOUND_FUNCTION":
        path = record.get("qname")
        name = path["path"][-1] if isinstance(path, Mapping) else record["name"]
        return Bound("function", kind, children, name=str(name))
    return Bound("function", kind, children, name=what)  # no table has this name


def _children(record: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """Yield a node's children, in order."""
    checks = record.get("case_checks")
    for check in checks if isinstance(checks, list) else ():
        yield from (check["when_expr"], check["then_expr"])
    for name in ("left", "right", "child", "else_expr"):
        child = record.get(name)
        if isinstance(child, Mapping):
            yield child
    children = record.get("children")
    yield from children if isinstance(children, list) else ()


def _constant(record: object) -> Bound:
    """Return a constant; if a condition cannot contain its kind, use a type that nothing accepts."""
    if not isinstance(record, Mapping):
        raise TypeError("a constant without a value")
    kind, value = type_of(record["type"]), record.get("value")
    if record.get("is_null"):
        return Bound("constant", kind)
    write: Callable[[object], str] | None = None
    if kind.kind in _WHOLE_NUMBERS or kind.kind == "UHUGEINT":
        write = lambda number: str(_integer(number))  # noqa: E731
    elif kind.kind == "DECIMAL":
        write = lambda number: _decimal(_integer(number), kind.sizes[1])  # noqa: E731
    elif kind.kind in ("FLOAT", "DOUBLE"):
        write = lambda number: f"'{float(str(number))!r}'"  # noqa: E731
    elif kind.kind == "INTERVAL":
        write = _interval
    elif kind.kind in ("BOOLEAN", "VARCHAR"):
        write = str
    return Bound("constant", kind, value=write(value)) if write else Bound("constant", UNREADABLE)


def _integer(number: object) -> int:
    """Return an integer; wide ones have two words."""
    if isinstance(number, Mapping):
        return (int(number["upper"]) << 64) + int(number["lower"])
    return int(str(number))


def _decimal(digits: int, scale: int) -> str:
    sign, figures = ("-" if digits < 0 else ""), str(abs(digits)).rjust(scale + 1, "0")
    return f"'{sign}{figures[: len(figures) - scale]}{'.' if scale else ''}{figures[len(figures) - scale :]}'"


def _interval(parts: object) -> str:
    if not isinstance(parts, Mapping):
        raise TypeError("an interval without parts")
    return f"'{parts.get('months', 0)} months {parts.get('days', 0)} days {parts.get('micros', 0)} microseconds'"
