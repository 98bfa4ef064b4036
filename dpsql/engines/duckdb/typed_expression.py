"""DuckDB's typing of conditions: the types of the columns that one names, and the typed tree of what it says.

Types of columns come from the plan of a query of no rows, in the caller's own session, while a call is planned: they
are public, and nothing of a row is in them. The condition itself is bound in a DuckDB of our own, where nobody has
changed a setting, over columns of these types that hold nothing. `dpsql.contract.expression.judge` judges the tree
and writes what runs. A process asks once for each condition and types.
"""

from __future__ import annotations

import atexit
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache

import duckdb

from dpsql.contract.expression.grammar import COMPARED, Phrase, Reader
from dpsql.contract.expression.judge import UNREADABLE, Bound, Judge, Judged, unknown
from dpsql.contract.expression.kinds import ZONED_TIMESTAMP, Type, type_of
from dpsql.contract.feature_columns import MISSING
from dpsql.contract.names import source_sql
from dpsql.contract.parameters import show
from dpsql.contract.plan import Plan
from dpsql.contract.relation import columns_of
from dpsql.errors import ParameterError
from dpsql.rendering import cast, field, identifier, struct

# Begins a query whose plan shows the types of columns, among queries that ask where rows come from.
TYPES = "/* types */ "
ColumnTypes = tuple[tuple[str, Type], ...]
_OPAQUE = f"NULL::STRUCT({MISSING} BOOLEAN)"
# Begins the names of columns that stand for literal texts which are cast.
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
    """Return the query whose plan, once optimised, shows the types of the columns that a condition names.

    Optimised it reads nothing, so that DuckDB can show it for files and frames, too.
    """
    names = ", ".join(map(identifier, columns_of(condition)))
    return f"{TYPES}SELECT {names} FROM (SELECT * FROM {source_sql(source)}) AS dpsql_source WHERE false"


def column_types(condition: str, plan: str) -> ColumnTypes | None:
    """Return the types of the columns that a condition names, from the plan of `types_query`.

    None where the plan does not show them: the source is missing, or lacks one of the columns.
    """
    try:
        found = json.loads(plan)
        root = found["plans"][0]
        if root["type"] == "LOGICAL_EMPTY_RESULT":
            shown = root["return_types"]
        elif root["type"] == "LOGICAL_PROJECTION":  # the session has turned the optimizer off
            shown = [expression["return_type"] for expression in root["expressions"]]
        else:
            return None
        types = [type_of(record) for record in shown]
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    names = columns_of(condition)
    return tuple(zip(names, types, strict=True)) if len(types) == len(names) else None


@lru_cache(maxsize=256)
def judged(condition: str, types: ColumnTypes, row: str) -> Judged:
    """Return what runs in the place of a condition over columns of these types.

    Parameters
    ----------
    condition : str
    types : tuple of (str, Type)
        The columns that it names.
    row : str
        The name of the struct that holds them where it runs.

    Raises
    ------
    ParameterError
        P080, P082, P084: something in it does not take these types.
    """
    columns = dict(types)
    texts: list[str] = []

    def typed(value: str) -> str:
        texts.append(value)
        return identifier(f"{_TEXT}{len(texts)}")

    reader = Reader(condition, identifier, typed=typed)
    sql = cast(reader.whole(), "BOOLEAN")
    judge = Judge(columns, lambda name: field(row, name), _duckdb.newer)
    tree = _duckdb.tree(sql, types, texts)
    if tree is None:
        raise _refusal(reader.parts, columns, types, texts)
    written = judge.write(tree)
    read = {name: f"NULL::{one.sql}" for name, one in types if _readable(one)}
    for name, one in types:
        if name not in read and not _duckdb.hands_over(one):
            raise unknown(f"column {show(name)} is {one.shown}", one)
    return Judged(written, tuple(read), _duckdb.value(f"SELECT typeof({struct(read)})") if read else "")


def _readable(kind: Type) -> bool:
    return kind.known or kind.kind == ZONED_TIMESTAMP


def refuse_other_types(plan: Plan, types: str | None) -> None:
    """Raise unless the condition of a plan was judged for the types that its columns have.

    Parameters
    ----------
    plan : Plan
    types : str or None
        The type of a struct of the columns that the condition reads, as DuckDB shows it now.

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
            "P083", "condition: its columns have other types than when the call was planned. Run it again."
        )


def _refusal(
    parts: Sequence[Phrase], columns: Mapping[str, Type], types: ColumnTypes, texts: Sequence[str]
) -> ParameterError:
    """Return the refusal of a condition that DuckDB does not bind: it names the smallest part that does not fit."""
    judge = Judge(columns, identifier, _duckdb.newer)
    for part in parts:
        tree = _duckdb.tree(part.sql, types, texts)
        if tree is None:
            named = ", ".join(f"column {show(name)} is {columns[name].shown}" for name in part.columns)
            opaque = [columns[name] for name in part.columns if not _readable(columns[name])]
            if opaque and opaque[0].kind != "STRUCT":
                return unknown(named, opaque[0])
            return ParameterError(
                "P080",
                f"condition: {part.what} does not fit what it is given there{f': {named}' if named else ''}. "
                "Cast a value to a type that it takes, or compute it in a view. docs/calls.md lists what a condition "
                "may call.",
            )
        try:
            judge.write(tree)
        except ParameterError as error:
            return error
    return ParameterError(
        "P080", "condition is neither true nor false. Compare what it computes with a value, such as ... > 0."
    )


class _DuckDB:
    """A DuckDB without tables, extensions or settings of anybody's, that types expressions."""

    def __init__(self) -> None:
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._lock = threading.Lock()
        atexit.register(self.close)

    def value(self, query: str, *given: str) -> str:
        """Return the one text of a query."""
        with self._lock:
            [row] = self._opened().execute(query, given).fetchall()
        return str(row[0])

    def _opened(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            config: dict[str, str | bool | int | float | list[str]] = {
                "threads": 1,
                "autoload_known_extensions": False,
                "autoinstall_known_extensions": False,
            }
            self._connection = duckdb.connect(":memory:", config=config)
        return self._connection

    @cached_property
    def newer(self) -> bool:
        """Whether DuckDB computes by IEEE 754 by default: from 2.0 on, a logarithm of 0 is no error."""
        return self.value("SELECT TRY(system.main.ln(0::DOUBLE)) IS NOT NULL") == "True"

    def hands_over(self, kind: Type) -> bool:
        """Whether DuckDB hands over values of a type that expressions do not know; 1.5 has none for VARIANT."""
        with self._lock:
            try:
                self._opened().sql(f"SELECT NULL::{kind.sql} AS given").to_arrow_table()
            except duckdb.Error:
                return False
        return True

    def tree(self, sql: str, types: Sequence[tuple[str, Type]], texts: Sequence[str]) -> Bound | None:
        """Return the typed tree of an expression over columns of these types; None if DuckDB does not bind it.

        DuckDB 2.0 computes a cast of a literal while it binds. So the `texts` that are cast are columns. What it
        computes as not a number is no JSON, and counts as not bound.
        """
        given = [f"{_nothing(one.in_utc)} AS {identifier(name)}" for name, one in types]
        given += [f"NULL::VARCHAR AS {identifier(f'{_TEXT}{number}')}" for number in range(1, len(texts) + 1)]
        query = f"SELECT ({sql}) FROM (SELECT {', '.join(given)})"
        try:
            found = json.loads(self.value("SELECT system.main.json_serialize_plan(?)", query))
        except ValueError:
            return None
        if found.get("error"):
            return None
        [expression] = found["plans"][0]["expressions"]
        return _read(expression, [name for name, _ in types], texts)

    def columns(self, query: str) -> tuple[tuple[str, Type], ...] | None:
        """Return the names and types of a query that reads no table; None if DuckDB does not bind it."""
        try:
            found = json.loads(self.value("SELECT system.main.json_serialize_plan(?)", f"SELECT * FROM (\n{query}\n)"))
        except ValueError:
            return None
        if found.get("error"):
            return None
        shown = found["plans"][0]["expressions"]
        return tuple((str(one.get("alias", "")), type_of(one["return_type"])) for one in shown)

    def close(self) -> None:
        """Close it."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


_duckdb = _DuckDB()
# What types the expressions of queries, a `dpsql.contract.query.catalogue.Typing`.
TYPING = _duckdb


def _nothing(kind: Type) -> str:
    """Return a NULL of a type, or of another that has no operators where expressions cannot read values of it."""
    if not kind.known and not kind.fields:
        return _OPAQUE
    return f"NULL::{kind.sql}" + (f" COLLATE {kind.collation}" if kind.collation else "")


def _read(record: Mapping[str, object], names: Sequence[str], texts: Sequence[str]) -> Bound:
    """Return a node from DuckDB's JSON form of it, on every version."""
    what, sort = str(record["type"]), str(record["expression_class"])
    shown = record.get("return_type")
    kind = type_of(shown) if isinstance(shown, Mapping) else _BOOLEAN
    children = tuple(_read(child, names, texts) for child in _children(record))
    if sort == "BOUND_REF":
        place = int(str(record["index"]))
        if place >= len(names):
            return Bound("constant", kind, value=texts[place - len(names)])
        return Bound("column", kind, name=names[place])
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
    return Bound("function", kind, children, name=what)  # which is in no table


def _children(record: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """Yield what a node is made of, in its order."""
    checks = record.get("case_checks")
    for check in checks if isinstance(checks, list) else ():
        yield from (check["when_expr"], check["then_expr"])
    for name in ("left", "right", "child", "else_expr"):
        one = record.get(name)
        if isinstance(one, Mapping):
            yield one
    several = record.get("children")
    yield from several if isinstance(several, list) else ()


def _constant(record: object) -> Bound:
    """Return a constant; of a kind that is not written in a condition, one of a type that nothing takes."""
    if not isinstance(record, Mapping):
        raise TypeError("a constant without a value")
    kind, value = type_of(record["type"]), record.get("value")
    if record.get("is_null"):
        return Bound("constant", kind)
    write: Callable[[object], str] | None = None
    if kind.kind in _WHOLE_NUMBERS or kind.kind == "UHUGEINT":
        write = lambda given: str(_whole(given))  # noqa: E731
    elif kind.kind == "DECIMAL":
        write = lambda given: _decimal(_whole(given), kind.sizes[1])  # noqa: E731
    elif kind.kind in ("FLOAT", "DOUBLE"):
        write = lambda given: f"'{float(str(given))!r}'"  # noqa: E731
    elif kind.kind == "INTERVAL":
        write = _interval
    elif kind.kind in ("BOOLEAN", "VARCHAR"):
        write = str
    return Bound("constant", kind, value=write(value)) if write else Bound("constant", UNREADABLE)


def _whole(given: object) -> int:
    """Return an integer; wide ones come in two words."""
    if isinstance(given, Mapping):
        return (int(given["upper"]) << 64) + int(given["lower"])
    return int(str(given))


def _decimal(digits: int, scale: int) -> str:
    sign, whole = ("-" if digits < 0 else ""), str(abs(digits)).rjust(scale + 1, "0")
    return f"'{sign}{whole[: len(whole) - scale]}{'.' if scale else ''}{whole[len(whole) - scale :]}'"


def _interval(given: object) -> str:
    if not isinstance(given, Mapping):
        raise TypeError("an interval without parts")
    return f"'{given.get('months', 0)} months {given.get('days', 0)} days {given.get('micros', 0)} microseconds'"
