"""Reads the tree that DuckDB serializes for a query, on every version of DuckDB.

Limits of size and depth apply before any recursion. An allow list names every clause, expression, type and field:
anything else is refused (P101), never ignored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from dpsql.contract.parameters import fold, show
from dpsql.contract.query.nodes import (
    Derived,
    Expr,
    From,
    Join,
    Listed,
    Modifiers,
    Nothing,
    Order,
    Query,
    Select,
    SetOperation,
    Show,
    TableFunction,
    TableRef,
    WindowFrame,
    With,
)
from dpsql.errors import DpsqlError, ParameterError

Json = Mapping[str, object]
# DuckDB marks an unknown position by this offset or more.
_NOWHERE = 1 << 31
# Fields without a meaning.
_EVERYWHERE = frozenset(
    ("type", "class", "alias", "query_location", "query_location_length", "qualified_name", "named_param_map")
)


def as_record(value: object) -> Json:
    """Return a part of a tree that is an object."""
    if not isinstance(value, dict):
        raise unread("a part of it")
    return value


def as_records(value: object) -> list[Json]:
    """Return a list of objects of a tree; an empty list if it is omitted."""
    return [as_record(entry) for entry in value] if isinstance(value, list) else []


def as_texts(value: object) -> tuple[str, ...]:
    """Return a list of strings of a tree."""
    return tuple(map(str, value)) if isinstance(value, list) else ()


def offset_of(record: Json) -> int | None:
    """Return the offset of a part of a tree in the text, in bytes; None if unknown."""
    offset = record.get("query_location")
    return offset if isinstance(offset, int) and 0 <= offset < _NOWHERE else None


def unread(what: str, instead: str = "Write the query without it.") -> ParameterError:
    """Return the refusal of an unsupported part."""
    return ParameterError("P101", f"sql: {what} is not read by dp_query. {instead}")


def only(record: Json, fields: Collection[str], **usual: Collection[object]) -> None:
    """Raise unless all other fields are empty or have a usual value."""
    for name, value in record.items():
        if name in _EVERYWHERE or name in fields or value in (None, "", False, [], {}, 0):
            continue
        if not (name in usual and value in usual[name]):
            raise unread(f"{name.replace('_', ' ')} {show(value) if isinstance(value, str) else ''}".strip())


_NAMES = {
    **{
        name: name
        for name in (
            *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER"),
            *("UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "VARCHAR", "BLOB", "BIT", "UUID", "DATE", "TIME"),
            *("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "INTERVAL", "TIMESTAMP WITH TIME ZONE"),
            *("TIME WITH TIME ZONE", "JSON"),
        )
    },
    **dict.fromkeys(("BOOL", "LOGICAL"), "BOOLEAN"),
    **dict.fromkeys(("INT1",), "TINYINT"),
    **dict.fromkeys(("INT2", "SHORT"), "SMALLINT"),
    **dict.fromkeys(("INT", "INT4", "SIGNED", "INTEGRAL"), "INTEGER"),
    **dict.fromkeys(("INT8", "LONG", "OID"), "BIGINT"),
    **dict.fromkeys(("FLOAT4", "REAL"), "FLOAT"),
    **dict.fromkeys(("FLOAT8", "DOUBLE PRECISION"), "DOUBLE"),
    **dict.fromkeys(("NUMERIC", "DEC"), "DECIMAL"),
    **dict.fromkeys(("TEXT", "STRING", "CHAR", "BPCHAR", "NVARCHAR"), "VARCHAR"),
    **dict.fromkeys(("DATETIME", "TIMESTAMP_US"), "TIMESTAMP"),
    "TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE",
    "TIMETZ": "TIME WITH TIME ZONE",
    **dict.fromkeys(("BYTEA", "VARBINARY", "BINARY"), "BLOB"),
}


def type_of_tree(record: object) -> str | None:
    """Return the SQL of a type of a tree; None if it is not one of DuckDB's own."""
    if not isinstance(record, Mapping):
        return None
    if "type_name" in record:
        return _newer(record)
    name, details = str(record.get("id")).upper(), record.get("type_info")
    details = details if isinstance(details, Mapping) else {}
    if name == "DECIMAL":
        return f"DECIMAL({int(str(details.get('width') or 18))}, {int(str(details.get('scale') or 0))})"
    if name == "LIST":
        inner = type_of_tree(details.get("child_type"))
        return None if inner is None else f"{inner}[]"
    return _NAMES.get(name)


def _newer(record: Mapping[str, object]) -> str | None:
    """Return the SQL of a type as DuckDB 2.0 writes it: by its name, with its arguments."""
    if record.get("schema") or record.get("catalog"):
        return None
    name = str(record.get("type_name")).upper()
    arguments = record.get("children")
    children = arguments if isinstance(arguments, list) else []
    if name == "LIST":
        inner = type_of_tree(children[0]) if len(children) == 1 else None
        return None if inner is None else f"{inner}[]"
    kind = _NAMES.get(name)
    if kind != "DECIMAL":
        return kind  # the length of a VARCHAR has no meaning
    sizes = []
    for child in children:
        literal = child.get("literal") if isinstance(child, Mapping) else None
        sizes.append(str(literal.get("text")) if isinstance(literal, Mapping) else "")
    if not all(size.isdecimal() for size in sizes) or len(sizes) > 2:
        return None
    return f"DECIMAL({', '.join([*sizes, '0'][:2])})" if sizes else "DECIMAL(18, 3)"


# The comparisons of DuckDB's trees and plans.
COMPARED = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_DISTINCT_FROM": "IS DISTINCT FROM",
    "COMPARE_NOT_DISTINCT_FROM": "IS NOT DISTINCT FROM",
}
_OPERATORS = {
    "OPERATOR_NOT": "not",
    "OPERATOR_IS_NULL": "null",
    "OPERATOR_IS_NOT_NULL": "present",
    "OPERATOR_COALESCE": "coalesce",
    "COMPARE_IN": "in",
    "COMPARE_NOT_IN": "not in",
    "ARRAY_EXTRACT": "element",
    "ARRAY_SLICE": "slice",
    "ARRAY_CONSTRUCTOR": "list",
    "OPERATOR_TRY": "try",
    "GROUPING_FUNCTION": "grouping",
    "STRUCT_EXTRACT": "field",
}


class TreeExpressions:
    """Reads expressions.

    Parameters
    ----------
    query : callable
        Returns the query of a tree's node, for subqueries.
    """

    def __init__(self, query: Callable[[Json], Query]) -> None:
        self._query = query
        self._readers: Mapping[str, Callable[[Json, str, str], Expr]] = {
            "COLUMN_REF": self._column,
            "CONSTANT": self._constant,
            "STAR": self._star,
            "FUNCTION": self._call,
            "WINDOW": self._window,
            "CAST": self._cast,
            "COMPARISON": self._comparison,
            "CONJUNCTION": self._conjunction,
            "OPERATOR": self._operator,
            "BETWEEN": self._between,
            "CASE": self._case,
            "SUBQUERY": self._subquery,
            "COLLATE": self._collate,
            "LAMBDA": self._lambda,
            "PARAMETER": self._parameter,
        }

    def orders(self, record: object) -> tuple[Order, ...]:
        """Return the parts of an ORDER BY."""
        orders = []
        for entry in as_records(as_record(record or {}).get("orders")):
            direction = {"ASCENDING": "ASC", "DESCENDING": "DESC"}.get(str(entry.get("type")), "")
            nulls = str(entry.get("null_order"))
            nulls = {"NULLS_FIRST": "NULLS FIRST", "NULLS_LAST": "NULLS LAST"}.get(nulls, nulls)
            orders.append(
                Order(
                    self.read(as_record(entry.get("expression"))), direction, nulls if nulls.startswith("NULLS") else ""
                )
            )
        return tuple(orders)

    def maybe(self, value: object) -> Expr | None:
        """Return an optional expression."""
        return None if value is None else self.read(as_record(value))

    def every(self, value: object) -> tuple[Expr, ...]:
        """Return the expressions of a list."""
        return tuple(map(self.read, as_records(value)))

    def read(self, record: Json) -> Expr:
        """Return an expression."""
        offset = offset_of(record)
        try:
            reader = self._readers.get(str(record.get("class")))
            if reader is None:
                raise unread(f"{str(record.get('class')).replace('_', ' ').lower()}")
            expression = reader(record, str(record.get("type")), str(record.get("alias") or ""))
        except DpsqlError as error:
            error.offset = offset if error.offset is None else error.offset
            raise
        return expression if offset is None else replace(expression, at=offset)

    def _column(self, record: Json, kind: str, alias: str) -> Expr:
        only(record, ("column_names",))
        return Expr("column", names=as_texts(record.get("column_names")), alias=alias)

    def _constant(self, record: Json, kind: str, alias: str) -> Expr:
        only(record, ("literal", "value"))
        literal = record.get("literal")
        if isinstance(literal, dict):
            name, spelling = str(literal.get("kind")), str(literal.get("text", ""))
            if name == "NULL_LITERAL":
                return Expr("constant", "NULL", alias=alias)
            if name == "INTEGER":
                return Expr("constant", "number", value=spelling.replace("_", ""), alias=alias)
            if name == "NUMERIC":
                return Expr("constant", "number", value=spelling.replace("_", ""), alias=alias)
            if name in ("BOOLEAN", "STRING"):
                return Expr("constant", name.lower(), value=spelling, alias=alias)
            raise unread(f"a {name} literal", "Write it as a number or a text.")
        value = as_record(record.get("value"))
        type_record, content = as_record(value.get("type")), value.get("value")
        name = str(type_record.get("id"))
        if value.get("is_null"):
            return Expr("constant", "NULL", alias=alias)
        if name == "VARCHAR":
            return Expr("constant", "string", value=str(content), alias=alias)
        if name == "BOOLEAN":
            return Expr("constant", "boolean", value=str(content).lower(), alias=alias)
        if name == "DECIMAL":
            scale = int(str(as_record(type_record.get("type_info")).get("scale") or 0))
            return Expr("constant", "number", value=_decimal(_integer(content), scale), alias=alias)
        if name in ("DOUBLE", "FLOAT"):
            number = float(str(content))
            text = repr(number) if math.isfinite(number) else f"{math.copysign(1, number):.0f}e400"  # as it was read
            return Expr("constant", "number", value=text if "e" in text else f"{text}e0", alias=alias)
        if name.endswith(("INT", "INTEGER")):
            return Expr("constant", "number", value=str(_integer(content)), alias=alias)
        raise unread(f"a literal of type {name}", "Write it as a number or a text.")

    def _star(self, record: Json, kind: str, alias: str) -> Expr:
        only(record, ("relation_name", "exclude_list", "qualified_exclude_list", "replace_list", "columns"))
        excluded = [*as_texts(record.get("exclude_list"))]
        for entry in as_records(record.get("qualified_exclude_list")):
            excluded.append(str(entry.get("column")))
        replaced = []
        for entry in as_records(record.get("replace_list")):
            by = self.read(as_record(entry.get("value")))
            replaced.append(Expr("replacement", str(entry.get("key")), (by,)))
        return Expr("star", str(record.get("relation_name") or ""), tuple(replaced), tuple(excluded))

    def _arguments(self, record: Json) -> tuple[tuple[Expr, ...], tuple[str, ...]]:
        entries = as_records(record.get("arguments"))
        if entries or "arguments" in record:
            arguments = tuple(self.read(as_record(entry.get("expression"))) for entry in entries)
            names = tuple(str(entry.get("name") or "") for entry in entries)
        else:
            arguments = self.every(record.get("children"))
            name = str(record.get("function_name"))
            names = tuple(argument.alias if name == "struct_pack" else "" for argument in arguments)
        return arguments, names if any(names) else ()

    def _call(self, record: Json, kind: str, alias: str) -> Expr:
        only(
            record,
            (
                *("function_name", "schema", "catalog", "arguments", "children", "filter", "order_bys", "distinct"),
                *("is_operator", "is_legacy_function_call"),
            ),
        )
        parts, names = self._arguments(record)
        name = _name(record)
        if name.startswith("!~~"):
            inner = Expr("call", name[1:], parts)
            return Expr("not", parts=(inner,), alias=alias)
        return Expr(
            "call", name, parts, names, None, bool(record.get("distinct")), self.maybe(record.get("filter")),
            self.orders(record.get("order_bys")), alias=alias,
        )  # fmt: skip

    def _window(self, record: Json, kind: str, alias: str) -> Expr:
        only(
            record,
            (
                *(
                    "function_name",
                    "schema",
                    "catalog",
                    "arguments",
                    "children",
                    "partitions",
                    "orders",
                    "start",
                    "end",
                ),
                *("start_expr", "end_expr", "offset_expr", "default_expr", "ignore_nulls", "has_ignore_nulls"),
                *("filter_expr", "distinct", "exclude_clause", "is_legacy_function_call", "arg_orders"),
            ),
        )
        parts, names = self._arguments(record)
        parts += tuple(
            argument
            for argument in map(self.maybe, (record.get("offset_expr"), record.get("default_expr")))
            if argument
        )
        frame = WindowFrame(
            str(record.get("start")),
            self.maybe(record.get("start_expr")),
            str(record.get("end")),
            self.maybe(record.get("end_expr")),
            str(record.get("exclude_clause") or "NO_OTHER"),
        )
        if as_records(record.get("arg_orders")):
            raise unread("ORDER BY within a window function's arguments")
        filtered, orders = self.maybe(record.get("filter_expr")), self.orders({"orders": record.get("orders")})
        return Expr(
            "window", _name(record), parts, names, "IGNORE NULLS" if record.get("ignore_nulls") else None,
            bool(record.get("distinct")), filtered, orders,
            self.every(record.get("partitions")), frame, alias=alias,
        )  # fmt: skip

    def _cast(self, record: Json, kind: str, alias: str) -> Expr:
        only(record, ("child", "cast_type", "type_expr", "try_cast"))
        name = type_of_tree(record.get("type_expr") or record.get("cast_type"))
        child = self.read(as_record(record.get("child")))
        if name is None:
            raise unread("a cast to a type that is not DuckDB's own", "Cast to one of DuckDB's types.")
        if name == "BOOLEAN" and child.name == "string" and child.value in ("t", "f") and child.what == "constant":
            return Expr("constant", "boolean", value="true" if child.value == "t" else "false", alias=alias)
        return Expr("cast", name, (child,), flag=bool(record.get("try_cast")), alias=alias)

    def _comparison(self, record: Json, kind: str, alias: str) -> Expr:
        only(record, ("left", "right"))
        if kind not in COMPARED:
            raise unread(kind)
        sides = tuple(self.read(as_record(record.get(side))) for side in ("left", "right"))
        return Expr("compare", COMPARED[kind], sides, alias=alias)

    def _conjunction(self, record: Json, kind: str, alias: str) -> Expr:
        only(record, ("children",))
        return Expr("and" if kind == "CONJUNCTION_AND" else "or", parts=self.every(record.get("children")), alias=alias)

    def _operator(self, record: Json, kind: str, alias: str) -> Expr:
        only(record, ("children",))
        if kind not in _OPERATORS:
            raise unread(kind.replace("_", " ").lower())
        parts = self.every(record.get("children"))
        if kind == "COMPARE_NOT_IN":
            return Expr("not", parts=(Expr("in", parts=parts),), alias=alias)
        if kind == "ARRAY_CONSTRUCTOR":
            return Expr("call", "list_value", parts, alias=alias)
        return Expr(_OPERATORS[kind], parts=parts, alias=alias)

    def _between(self, record: Json, kind: str, alias: str) -> Expr:
        only(record, ("input", "lower", "upper"))
        parts = tuple(self.read(as_record(record.get(side))) for side in ("input", "lower", "upper"))
        return Expr("between", parts=parts, alias=alias)

    def _case(self, record: Json, kind: str, alias: str) -> Expr:
        only(record, ("case_checks", "else_expr"))
        parts: list[Expr] = []
        for check in as_records(record.get("case_checks")):
            parts += [self.read(as_record(check.get(name))) for name in ("when_expr", "then_expr")]
        return Expr("case", parts=(*parts, self.read(as_record(record.get("else_expr")))), alias=alias)

    def _subquery(self, record: Json, kind: str, alias: str) -> Expr:
        only(record, ("subquery", "subquery_type", "child", "comparison_type"))
        how, sign = str(record.get("subquery_type")), str(record.get("comparison_type"))
        child = self.maybe(record.get("child"))
        query = self._query(as_record(as_record(record.get("subquery")).get("node")))
        if how == "NOT_EXISTS":
            return Expr("not", parts=(Expr("subquery", "EXISTS", query=query),), alias=alias)
        if how not in ("SCALAR", "EXISTS", "ANY"):
            raise unread(f"a subquery of kind {how}")
        parts = () if child is None else (child,)
        return Expr("subquery", how, parts, value=COMPARED.get(sign), query=query, alias=alias)

    def _collate(self, record: Json, kind: str, alias: str) -> Expr:
        only(record, ("child", "collation"))
        return Expr("collate", str(record.get("collation")), (self.read(as_record(record.get("child"))),), alias=alias)

    def _lambda(self, record: Json, kind: str, alias: str) -> Expr:
        only(record, ("lhs", "expr"), syntax_type=("LAMBDA_KEYWORD",))
        parameters = self.read(as_record(record.get("lhs")))
        names = (
            [*parameters.names]
            if parameters.what == "column"
            else [name for part in parameters.parts for name in part.names]
        )
        return Expr("lambda", parts=(self.read(as_record(record.get("expr"))),), names=tuple(names), alias=alias)

    def _parameter(self, record: Json, kind: str, alias: str) -> Expr:
        raise _with_parameter()


def _integer(number: object) -> int:
    if isinstance(number, Mapping):
        return (int(str(number["upper"])) << 64) + int(str(number["lower"]))
    return int(str(number))


def _decimal(digits: int, scale: int) -> str:
    sign, text = ("-" if digits < 0 else ""), str(abs(digits)).rjust(scale + 1, "0")
    return f"{sign}{text[: len(text) - scale]}.{text[len(text) - scale :]}"


def _name(record: Json) -> str:
    schema, catalog = str(record.get("schema") or ""), str(record.get("catalog") or "")
    if (catalog, schema) not in (("", ""), ("", "main"), ("system", "main"), ("", "pg_catalog")):
        raise unread(f"the function {schema}.{record.get('function_name')}", "Call DuckDB's own functions.")
    return str(record.get("function_name")).lower()


MOST_CHARACTERS, _MOST_NODES, _DEEPEST, _DEEPEST_QUERY = 100_000, 10_000, 40, 20
_DEEPEST_FROM = 60
# DuckDB's macros that copy an argument, with the number of copies; BETWEEN compares its value with both ends.
COPYING = {
    "between": 2,
    "round_even": 3,
    **dict.fromkeys(("fmod", "nullif", "array_pop_back", "array_to_string", "array_to_string_comma_default"), 2),
    **dict.fromkeys(("json_group_array", "json_group_object", "map_contains_entry", "split_part", "weighted_avg"), 2),
}
_MOST_COPIES, _COPIES_OF_A_PART = 2_000, 4
_JOINS = {"INNER": "INNER", "LEFT": "LEFT", "RIGHT": "RIGHT", "OUTER": "OUTER", "FULL": "OUTER"} | {
    kind: kind for kind in ("SEMI", "ANTI")
}


def read_tree(tree: str) -> Query:
    """Return the query of a tree that DuckDB serialized.

    Parameters
    ----------
    tree : str
        The result of ``json_serialize_sql``.

    Raises
    ------
    ParameterError
        P100: the query is not one SELECT, or too large. P101: dp_query does not read one of its clauses.
    """
    try:
        document = json.loads(tree)
    except (ValueError, RecursionError):
        raise _too_large("nested too deeply") from None
    if not isinstance(document, dict) or document.get("error"):
        message = str(document.get("error_message", "")) if isinstance(document, dict) else ""
        if "Only SELECT" in message:
            raise ParameterError("P100", "sql is not a SELECT. Ask one SELECT.")
        raise ParameterError("P100", f"sql is not understood: {show(message)}. Write one SELECT of DuckDB's SQL.")
    statements = document.get("statements")
    if not isinstance(statements, list) or len(statements) != 1:
        raise ParameterError(
            "P100",
            "sql holds more than one statement, or none. Ask one SELECT at a time, each in a dp_query of its own; "
            "several numbers of one table: SELECT count(*), avg(x) FROM ....",
        )
    _check_size(statements[0])
    if statements[0].get("named_param_map"):
        raise _with_parameter()
    return _query(as_record(statements[0].get("node")))


def _with_parameter() -> ParameterError:
    return ParameterError(
        "P100",
        "sql holds a parameter of its own. Write its value, as in age > 40; or pass the whole of sql as a parameter: "
        "FROM dp_query(?, epsilon := 1).",
    )


def check_length(sql: str) -> None:
    """Raise unless the text of a query is short enough to be parsed.

    Raises
    ------
    ParameterError
        P100.
    """
    if len(sql) > MOST_CHARACTERS:
        raise _too_large(f"longer than {MOST_CHARACTERS} characters")


def _too_large(what: str) -> ParameterError:
    return ParameterError("P100", f"sql is {what}. Ask a shorter query, or keep parts of it as views.")


def _check_size(statement: object) -> None:
    """Count nodes, copies and depths without recursion."""
    nodes, copies, todo = 0, 0, [(statement, 0, 0, 0, 1)]
    while todo:
        node, deep, queries, joined, times = todo.pop()
        if isinstance(node, list):
            todo += [(child, deep, queries, joined, times) for child in node]
            continue
        if not isinstance(node, dict):
            continue
        kind = str(node.get("type", ""))
        if "class" in node and node.get("class") != "TYPE":
            deep, nodes, copies = deep + 1, nodes + 1, copies + times - 1
            name = "between" if node["class"] == "BETWEEN" else str(node.get("function_name", "")).lower()
            times *= COPYING.get(name, 1)
        elif kind == "SET_OPERATION_NODE":  # some versions chain several parts
            deep, joined, nodes = 0, joined + 1, nodes + 1
        elif kind.endswith("_NODE"):
            deep, queries, nodes = 0, queries + 1, nodes + 1
        elif kind == "JOIN":
            joined += 1
        if nodes > _MOST_NODES:
            raise _too_large(f"of more than {_MOST_NODES} parts")
        if deep > _DEEPEST or queries > _DEEPEST_QUERY or joined > _DEEPEST_FROM:
            raise _too_large(
                f"nested too deeply: at most {_DEEPEST} levels of expressions, {_DEEPEST_QUERY} of subqueries"
            )
        todo += [(child, deep, queries, joined, times) for child in node.values() if isinstance(child, (dict, list))]
    if is_copied_too_often(copies, nodes):
        raise _too_large("too long once DuckDB has written it out")


def is_copied_too_often(copies: int, parts: int) -> bool:
    """Return whether so many copies of an expression's parts grow with its depth, rather than with its length."""
    return copies > _MOST_COPIES + _COPIES_OF_A_PART * parts


# Queries.


def _query(node: Json) -> Query:
    kind = str(node.get("type"))
    withs = tuple(_with(as_record(record)) for record in as_records(as_record(node.get("cte_map") or {}).get("map")))
    modifiers = _modifiers(as_records(node.get("modifiers")))
    if kind == "SELECT_NODE":
        return _select(node, withs, modifiers)
    if kind == "SET_OPERATION_NODE":
        only(node, ("modifiers", "cte_map", "setop_type", "setop_all", "children", "left", "right"))
        parts = as_records(node.get("children")) or [as_record(node.get("left")), as_record(node.get("right"))]
        name = str(node.get("setop_type"))
        if name not in ("UNION", "EXCEPT", "INTERSECT"):
            raise unread(f"{name.replace('_', ' ')}", "Write UNION ALL with the columns in one order.")
        return SetOperation(withs, modifiers, name, bool(node.get("setop_all")), tuple(map(_query, parts)))
    if kind == "RECURSIVE_CTE_NODE":
        raise ParameterError("P103", "sql: WITH RECURSIVE is not answered. Write its steps one by one, or a view.")
    raise ParameterError("P100", f"sql holds {kind.removesuffix('_NODE').replace('_', ' ')}. Ask one SELECT.")


_EXPRESSIONS = TreeExpressions(_query)


def _with(entry: Json) -> With:
    value = as_record(entry.get("value"))
    only(value, ("aliases", "query", "query_node", "materialized"))
    node = value.get("query_node") or as_record(value.get("query")).get("node")
    return With(str(entry.get("key")), _query(as_record(node)), as_texts(value.get("aliases")))


def _modifiers(records: Sequence[Json]) -> Modifiers:
    out = Modifiers()
    for record in records:
        kind = record.get("type")
        if kind == "DISTINCT_MODIFIER":
            on = tuple(map(_EXPRESSIONS.read, as_records(record.get("distinct_on_targets"))))
            out = Modifiers(not on, on, out.orders, out.limit, out.offset, out.percent)
        elif kind == "ORDER_MODIFIER":
            out = Modifiers(
                out.distinct, out.distinct_on, _EXPRESSIONS.orders(record), out.limit, out.offset, out.percent
            )
        elif kind in ("LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER"):
            limit, offset = (_EXPRESSIONS.maybe(record.get(name)) for name in ("limit", "offset"))
            percent = kind == "LIMIT_PERCENT_MODIFIER" or record.get("limit_type") == "PERCENTAGE"
            out = Modifiers(out.distinct, out.distinct_on, out.orders, limit, offset, percent)
        else:
            raise unread(f"{kind}")
    return out


def _select(node: Json, withs: tuple[With, ...], modifiers: Modifiers) -> Select:
    if node.get("sample") is not None:
        raise _sampled()
    only(
        node,
        (
            *("modifiers", "cte_map", "select_list", "from_table", "where_clause", "group_expressions", "group_sets"),
            *("having", "qualify"),
        ),
        aggregate_handling=("STANDARD_HANDLING", "FORCE_AGGREGATES"),
    )
    sets = node.get("group_sets")
    listed = [entry for entry in sets if isinstance(entry, list)] if isinstance(sets, list) else []
    return Select(
        withs,
        modifiers,
        tuple(map(_EXPRESSIONS.read, as_records(node.get("select_list")))),
        _from(as_record(node.get("from_table"))),
        _EXPRESSIONS.maybe(node.get("where_clause")),
        tuple(map(_EXPRESSIONS.read, as_records(node.get("group_expressions")))),
        tuple(tuple(int(index) for index in group) for group in listed),
        node.get("aggregate_handling") == "FORCE_AGGREGATES",
        _EXPRESSIONS.maybe(node.get("having")),
        _EXPRESSIONS.maybe(node.get("qualify")),
    )


def _sampled() -> ParameterError:
    return ParameterError("P103", "sql takes a sample. Leave TABLESAMPLE out: the noise is less where all rows count.")


# FROM.


def _from(record: Json) -> From:
    kind, alias = str(record.get("type")), str(record.get("alias") or "")
    columns = as_texts(record.get("column_name_alias"))
    if record.get("sample") is not None:
        raise _sampled()
    if kind == "EMPTY":
        return Nothing()
    if kind == "BASE_TABLE":
        only(record, ("schema_name", "table_name", "column_name_alias", "catalog_name"))
        names = (str(record.get("catalog_name") or ""), str(record.get("schema_name") or ""))
        return TableRef((*names, str(record.get("table_name"))), alias, columns)
    if kind == "SUBQUERY":
        only(record, ("subquery", "column_name_alias"))
        return Derived(_query(as_record(as_record(record.get("subquery")).get("node"))), alias, columns)
    if kind == "JOIN":
        return _join(record)
    if kind == "EXPRESSION_LIST":
        only(record, ("values", "expected_names", "expected_types"))
        values = record.get("values")
        rows = tuple(
            tuple(map(_EXPRESSIONS.read, as_records(row))) for row in (values if isinstance(values, list) else ())
        )
        return Listed(rows, alias, as_texts(record.get("expected_names")))
    if kind == "TABLE_FUNCTION":
        only(record, ("function", "column_name_alias"), with_ordinality=("WITHOUT_ORDINALITY",))
        return TableFunction(_EXPRESSIONS.read(as_record(record.get("function"))), alias, columns)
    if kind == "SHOW_REF":
        return _show(record)
    if kind == "PIVOT":
        raise unread("PIVOT or UNPIVOT", "Write GROUP BY of the column that it pivots on, or UNION ALL.")
    raise unread(kind.replace("_", " "))


def _join(record: Json) -> Join:
    only(
        record,
        ("left", "right", "condition", "using_columns", "join_type", "ref_type", "is_implicit", "nearest_count"),
        nearest_order_type=("ASCENDING",),
    )
    kind, how = str(record.get("join_type")), str(record.get("ref_type"))
    if how in ("POSITIONAL", "NEAREST"):
        raise chosen_by_others(how)
    if kind not in _JOINS or how not in ("REGULAR", "CROSS", "NATURAL", "ASOF"):
        raise unread(f"{how} {kind} JOIN")
    sides = [_from(as_record(record.get(side))) for side in ("left", "right")]
    return Join(
        _JOINS[kind],
        sides[0],
        sides[1],
        _EXPRESSIONS.maybe(record.get("condition")),
        as_texts(record.get("using_columns")),
        how == "NATURAL",
        how == "ASOF",
    )


def chosen_by_others(how: str) -> ParameterError:
    """Return the refusal of a join in which other rows decide which rows meet."""
    of_public = " An ASOF JOIN takes a public table or query on its right side." if how == "ASOF" else ""
    return ParameterError(
        "P103",
        f"sql: {how} JOIN is not answered, since other rows decide which rows meet.{of_public} Join by columns; the "
        "last row before another one is QUALIFY row_number() OVER (PARTITION BY person, id ORDER BY time DESC) = 1.",
    )


def _show(record: Json) -> Show:
    only(record, ("table_name", "query", "show_type", "catalog_name", "schema_name"))
    kind, name = str(record.get("show_type")), str(record.get("table_name") or "").strip('"')
    if kind == "SUMMARY":
        raise unread("SUMMARIZE", "It shows the least and largest values; ask DESCRIBE for columns and types.")
    inner = record.get("query")
    if kind in ("SHOW_SPECIAL", "SHOW_UNQUALIFIED", "SHOW_FROM", "DESCRIBE") or inner is not None:
        return Show(kind, name, None if inner is None else _query(as_record(inner)))
    raise unread(f"SHOW {name}")


def is_catalog(names: tuple[str, str, str]) -> bool:
    """Whether a name is a view of DuckDB's catalog."""
    _, schema, name = map(fold, names)
    return schema in ("information_schema", "pg_catalog") or name.startswith(("duckdb_", "pragma_", "sqlite_", "pg_"))


def tables_of(query: Query) -> tuple[tuple[str, str, str], ...]:
    """Return the tables that a query names: database, schema and name as written, each ``''`` if omitted.

    Names of WITH queries in scope are not included.
    """
    tables: dict[tuple[str, str, str], None] = {}
    _tables_of_query(query, frozenset(), tables)
    return tuple(tables)


def _tables_of_query(query: Query, withs: frozenset[str], tables: dict[tuple[str, str, str], None]) -> None:
    for clause in query.withs:
        _tables_of_query(clause.query, withs, tables)
        withs = withs | {fold(clause.name)}
    expressions: list[Expr] = [order.expression for order in query.modifiers.orders]
    if isinstance(query, SetOperation):
        for operand in query.parts:
            _tables_of_query(operand, withs, tables)
    elif isinstance(query, Select):
        expressions += [*query.items, *query.groups, *query.modifiers.distinct_on]
        expressions += [condition for condition in (query.where, query.having, query.qualify) if condition is not None]
        _tables_of_source(query.source, withs, tables, expressions)
    for expr in expressions:
        for part in expr.walk():
            if part.query is not None:
                _tables_of_query(part.query, withs, tables)


def _tables_of_source(
    source: From, withs: frozenset[str], tables: dict[tuple[str, str, str], None], expressions: list[Expr]
) -> None:
    if isinstance(source, TableRef):
        is_table = any(source.names[:2]) or fold(source.names[2]) not in withs
        if is_table and not is_catalog(source.names):
            tables.setdefault(source.names)
    elif isinstance(source, (Derived, Show)):
        if source.query is not None:
            _tables_of_query(source.query, withs, tables)
    elif isinstance(source, Join):
        for side in (source.left, source.right):
            _tables_of_source(side, withs, tables, expressions)
        if source.condition is not None:
            expressions.append(source.condition)
    elif isinstance(source, TableFunction):
        expressions.append(source.call)
    elif isinstance(source, Listed):
        expressions += [cell for row in source.rows for cell in row]
