"""Reads the tree that DuckDB serializes of a query: one module for all versions.

Limits of size and depth come before anything recursive. Every clause, expression and field is read by an allow list:
what is not known is refused (P101), never passed over.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from dpsql.contract.parameters import fold, show
from dpsql.contract.query.nodes import (
    Derived,
    Expr,
    Frame,
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
    With,
)
from dpsql.contract.query.written_types import type_of_tree
from dpsql.errors import ParameterError

MOST_CHARACTERS, _MOST_NODES, _DEEPEST, _DEEPEST_QUERY = 100_000, 10_000, 40, 20
_DEEPEST_FROM = 60
Json = Mapping[str, object]
# Fields that say nothing about meaning.
_EVERYWHERE = frozenset(
    ("type", "class", "alias", "query_location", "query_location_length", "qualified_name", "named_param_map")
)
_SIGNS = {
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
        P100: it is not one SELECT, or too large. P101: it has a clause that dp_query does not read.
    """
    try:
        found = json.loads(tree)
    except (ValueError, RecursionError):
        raise _too_large("nested too deeply") from None
    if not isinstance(found, dict) or found.get("error"):
        said = str(found.get("error_message", "")) if isinstance(found, dict) else ""
        if "Only SELECT" in said:
            raise ParameterError("P100", "sql is not a SELECT. Ask one SELECT; write PIVOT as GROUP BY of its column.")
        raise ParameterError("P100", f"sql is not understood: {show(said)}. Write one SELECT of DuckDB's SQL.")
    statements = found.get("statements")
    if not isinstance(statements, list) or len(statements) != 1:
        raise ParameterError("P100", "sql holds more than one statement, or none. Ask one SELECT at a time.")
    _check_size(statements[0])
    if statements[0].get("named_param_map"):
        raise ParameterError(
            "P100", "sql holds a parameter of its own. Write its value, or pass the whole of sql as a parameter."
        )
    return _query(_record(statements[0].get("node")))


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
    """Count nodes and depths without recursion."""
    nodes, todo = 0, [(statement, 0, 0, 0)]
    while todo:
        found, deep, queries, joined = todo.pop()
        if isinstance(found, list):
            todo += [(one, deep, queries, joined) for one in found]
            continue
        if not isinstance(found, dict):
            continue
        kind = str(found.get("type", ""))
        if "class" in found and found.get("class") != "TYPE":
            deep, nodes = deep + 1, nodes + 1
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
        todo += [(one, deep, queries, joined) for one in found.values() if isinstance(one, (dict, list))]


# Records.


def _record(value: object) -> Json:
    if not isinstance(value, dict):
        raise _unread("a part of it")
    return value


def _records(value: object) -> list[Json]:
    return [_record(one) for one in value] if isinstance(value, list) else []


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _unread(what: str, instead: str = "Write the query without it.") -> ParameterError:
    return ParameterError("P101", f"sql: {what} is not read by dp_query. {instead}")


def _only(record: Json, known: Collection[str], **usual: Collection[object]) -> None:
    """Raise unless all other fields say nothing, or what is usual."""
    for name, value in record.items():
        if name in _EVERYWHERE or name in known or value in (None, "", False, [], {}, 0):
            continue
        if not (name in usual and value in usual[name]):
            raise _unread(f"{name.replace('_', ' ')} {show(value) if isinstance(value, str) else ''}".strip())


# Queries.


def _query(node: Json) -> Query:
    kind = str(node.get("type"))
    withs = tuple(_with(_record(one)) for one in _records(_record(node.get("cte_map") or {}).get("map")))
    modifiers = _modifiers(_records(node.get("modifiers")))
    if kind == "SELECT_NODE":
        return _select(node, withs, modifiers)
    if kind == "SET_OPERATION_NODE":
        _only(node, ("modifiers", "cte_map", "setop_type", "setop_all", "children", "left", "right"))
        parts = _records(node.get("children")) or [_record(node.get("left")), _record(node.get("right"))]
        name = str(node.get("setop_type"))
        if name not in ("UNION", "EXCEPT", "INTERSECT"):
            raise _unread(f"{name.replace('_', ' ')}", "Write UNION ALL with the columns in one order.")
        return SetOperation(withs, modifiers, name, bool(node.get("setop_all")), tuple(map(_query, parts)))
    if kind == "RECURSIVE_CTE_NODE":
        raise ParameterError("P103", "sql: WITH RECURSIVE is not answered. Write its steps one by one, or a view.")
    raise ParameterError("P100", f"sql holds {kind.removesuffix('_NODE').replace('_', ' ')}. Ask one SELECT.")


def _with(entry: Json) -> With:
    value = _record(entry.get("value"))
    _only(value, ("aliases", "query", "query_node", "materialized"))
    node = value.get("query_node") or _record(value.get("query")).get("node")
    return With(str(entry.get("key")), _query(_record(node)), _texts(value.get("aliases")))


def _modifiers(records: Sequence[Json]) -> Modifiers:
    out = Modifiers()
    for one in records:
        kind = one.get("type")
        if kind == "DISTINCT_MODIFIER":
            on = tuple(map(_expression, _records(one.get("distinct_on_targets"))))
            out = Modifiers(not on, on, out.orders, out.limit, out.offset, out.percent)
        elif kind == "ORDER_MODIFIER":
            out = Modifiers(out.distinct, out.distinct_on, _orders(one), out.limit, out.offset, out.percent)
        elif kind in ("LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER"):
            limit, offset = (_maybe(one.get(name)) for name in ("limit", "offset"))
            percent = kind == "LIMIT_PERCENT_MODIFIER" or one.get("limit_type") == "PERCENTAGE"
            out = Modifiers(out.distinct, out.distinct_on, out.orders, limit, offset, percent)
        else:
            raise _unread(f"{kind}")
    return out


def _orders(record: object) -> tuple[Order, ...]:
    found = []
    for one in _records(_record(record or {}).get("orders")):
        direction = {"ASCENDING": "ASC", "DESCENDING": "DESC"}.get(str(one.get("type")), "")
        nulls = str(one.get("null_order"))
        nulls = {"NULLS_FIRST": "NULLS FIRST", "NULLS_LAST": "NULLS LAST"}.get(nulls, nulls)
        found.append(
            Order(_expression(_record(one.get("expression"))), direction, nulls if nulls.startswith("NULLS") else "")
        )
    return tuple(found)


def _select(node: Json, withs: tuple[With, ...], modifiers: Modifiers) -> Select:
    if node.get("sample") is not None:
        raise _sampled()
    _only(
        node,
        (
            *("modifiers", "cte_map", "select_list", "from_table", "where_clause", "group_expressions", "group_sets"),
            *("having", "qualify"),
        ),
        aggregate_handling=("STANDARD_HANDLING", "FORCE_AGGREGATES"),
    )
    sets = node.get("group_sets")
    listed = [one for one in sets if isinstance(one, list)] if isinstance(sets, list) else []
    return Select(
        withs,
        modifiers,
        tuple(map(_expression, _records(node.get("select_list")))),
        _from(_record(node.get("from_table"))),
        _maybe(node.get("where_clause")),
        tuple(map(_expression, _records(node.get("group_expressions")))),
        tuple(tuple(int(place) for place in one) for one in listed),
        node.get("aggregate_handling") == "FORCE_AGGREGATES",
        _maybe(node.get("having")),
        _maybe(node.get("qualify")),
    )


def _sampled() -> ParameterError:
    return ParameterError("P103", "sql takes a sample. Leave TABLESAMPLE out: the noise is less where all rows count.")


# FROM.


def _from(record: Json) -> From:
    kind, alias = str(record.get("type")), str(record.get("alias") or "")
    columns = _texts(record.get("column_name_alias"))
    if record.get("sample") is not None:
        raise _sampled()
    if kind == "EMPTY":
        return Nothing()
    if kind == "BASE_TABLE":
        _only(record, ("schema_name", "table_name", "column_name_alias", "catalog_name"))
        names = (str(record.get("catalog_name") or ""), str(record.get("schema_name") or ""))
        return TableRef((*names, str(record.get("table_name"))), alias, columns)
    if kind == "SUBQUERY":
        _only(record, ("subquery", "column_name_alias"))
        return Derived(_query(_record(_record(record.get("subquery")).get("node"))), alias, columns)
    if kind == "JOIN":
        return _join(record)
    if kind == "EXPRESSION_LIST":
        _only(record, ("values", "expected_names", "expected_types"))
        values = record.get("values")
        rows = tuple(tuple(map(_expression, _records(row))) for row in (values if isinstance(values, list) else ()))
        return Listed(rows, alias, _texts(record.get("expected_names")))
    if kind == "TABLE_FUNCTION":
        _only(record, ("function", "column_name_alias"), with_ordinality=("WITHOUT_ORDINALITY",))
        return TableFunction(_expression(_record(record.get("function"))), alias, columns)
    if kind == "SHOW_REF":
        return _show(record)
    if kind == "PIVOT":
        raise _unread("PIVOT", "Group by the column that it pivots on.")
    raise _unread(kind.replace("_", " "))


def _join(record: Json) -> Join:
    _only(
        record,
        ("left", "right", "condition", "using_columns", "join_type", "ref_type", "is_implicit", "nearest_count"),
        nearest_order_type=("ASCENDING",),
    )
    kind, how = str(record.get("join_type")), str(record.get("ref_type"))
    if how in ("ASOF", "POSITIONAL", "NEAREST"):
        raise ParameterError(
            "P103", f"sql: {how} JOIN is not answered, since other rows decide which rows meet. Join by columns."
        )
    if kind not in _JOINS or how not in ("REGULAR", "CROSS", "NATURAL"):
        raise _unread(f"{how} {kind} JOIN")
    sides = [_from(_record(record.get(side))) for side in ("left", "right")]
    return Join(
        _JOINS[kind],
        sides[0],
        sides[1],
        _maybe(record.get("condition")),
        _texts(record.get("using_columns")),
        how == "NATURAL",
    )


def _show(record: Json) -> Show:
    _only(record, ("table_name", "query", "show_type", "catalog_name", "schema_name"))
    kind, name = str(record.get("show_type")), str(record.get("table_name") or "").strip('"')
    if kind == "SUMMARY":
        raise _unread("SUMMARIZE", "It shows the least and largest values; ask DESCRIBE for columns and types.")
    inner = record.get("query")
    if kind in ("SHOW_SPECIAL", "SHOW_UNQUALIFIED", "SHOW_FROM", "DESCRIBE") or inner is not None:
        return Show(kind, name, None if inner is None else _query(_record(inner)))
    raise _unread(f"SHOW {name}")


# Expressions.


def _maybe(value: object) -> Expr | None:
    return None if value is None else _expression(_record(value))


def _all(value: object) -> tuple[Expr, ...]:
    return tuple(map(_expression, _records(value)))


def _expression(record: Json) -> Expr:
    reader = _READERS.get(str(record.get("class")))
    if reader is None:
        raise _unread(f"{str(record.get('class')).replace('_', ' ').lower()}")
    return reader(record, str(record.get("type")), str(record.get("alias") or ""))


def _column(record: Json, kind: str, alias: str) -> Expr:
    return Expr("column", names=_texts(record.get("column_names")), alias=alias)


def _constant(record: Json, kind: str, alias: str) -> Expr:
    literal = record.get("literal")
    if isinstance(literal, dict):
        name, given = str(literal.get("kind")), str(literal.get("text", ""))
        if name == "NULL_LITERAL":
            return Expr("constant", "NULL", alias=alias)
        if name == "INTEGER":
            return Expr("constant", "number", value=given.replace("_", ""), alias=alias)
        if name == "NUMERIC":
            return Expr("constant", "number", value=given.replace("_", ""), alias=alias)
        if name in ("BOOLEAN", "STRING"):
            return Expr("constant", name.lower(), value=given, alias=alias)
        raise _unread(f"a {name} literal", "Write it as a number or a text.")
    value = _record(record.get("value"))
    shown, given = _record(value.get("type")), value.get("value")
    name = str(shown.get("id"))
    if value.get("is_null"):
        return Expr("constant", "NULL", alias=alias)
    if name == "VARCHAR":
        return Expr("constant", "string", value=str(given), alias=alias)
    if name == "BOOLEAN":
        return Expr("constant", "boolean", value=str(given).lower(), alias=alias)
    if name == "DECIMAL":
        scale = int(str(_record(shown.get("type_info")).get("scale") or 0))
        return Expr("constant", "number", value=_decimal(_whole(given), scale), alias=alias)
    if name in ("DOUBLE", "FLOAT"):
        text = repr(float(str(given)))
        return Expr("constant", "number", value=text if "e" in text else f"{text}e0", alias=alias)
    if name.endswith(("INT", "INTEGER")):
        return Expr("constant", "number", value=str(_whole(given)), alias=alias)
    raise _unread(f"a literal of type {name}", "Write it as a number or a text.")


def _whole(given: object) -> int:
    if isinstance(given, Mapping):
        return (int(str(given["upper"])) << 64) + int(str(given["lower"]))
    return int(str(given))


def _decimal(digits: int, scale: int) -> str:
    sign, whole = ("-" if digits < 0 else ""), str(abs(digits)).rjust(scale + 1, "0")
    return f"{sign}{whole[: len(whole) - scale]}.{whole[len(whole) - scale :]}"


def _star(record: Json, kind: str, alias: str) -> Expr:
    _only(record, ("relation_name", "exclude_list", "qualified_exclude_list", "replace_list", "columns"))
    excluded = [*_texts(record.get("exclude_list"))]
    for one in _records(record.get("qualified_exclude_list")):
        excluded.append(str(one.get("column")))
    replaced = []
    for one in _records(record.get("replace_list")):
        by = _expression(_record(one.get("value")))
        replaced.append(Expr("replacement", str(one.get("key")), (by,)))
    return Expr("star", str(record.get("relation_name") or ""), tuple(replaced), tuple(excluded))


def _arguments(record: Json) -> tuple[tuple[Expr, ...], tuple[str, ...]]:
    named = _records(record.get("arguments"))
    if named or "arguments" in record:
        found = tuple(_expression(_record(one.get("expression"))) for one in named)
        names = tuple(str(one.get("name") or "") for one in named)
    else:
        found = _all(record.get("children"))
        name = str(record.get("function_name"))
        names = tuple(one.alias if name == "struct_pack" else "" for one in found)
    return found, names if any(names) else ()


def _name(record: Json) -> str:
    schema, catalog = str(record.get("schema") or ""), str(record.get("catalog") or "")
    if (catalog, schema) not in (("", ""), ("", "main"), ("system", "main"), ("", "pg_catalog")):
        raise _unread(f"the function {schema}.{record.get('function_name')}", "Call DuckDB's own functions.")
    return str(record.get("function_name")).lower()


def _call(record: Json, kind: str, alias: str) -> Expr:
    _only(
        record,
        (
            *("function_name", "schema", "catalog", "arguments", "children", "filter", "order_bys", "distinct"),
            *("is_operator", "is_legacy_function_call"),
        ),
    )
    parts, names = _arguments(record)
    name = _name(record)
    if name.startswith("!~~"):
        inner = Expr("call", name[1:], parts)
        return Expr("not", parts=(inner,), alias=alias)
    return Expr(
        "call", name, parts, names, None, bool(record.get("distinct")), _maybe(record.get("filter")),
        _orders(record.get("order_bys")), alias=alias,
    )  # fmt: skip


def _window(record: Json, kind: str, alias: str) -> Expr:
    _only(
        record,
        (
            *("function_name", "schema", "catalog", "arguments", "children", "partitions", "orders", "start", "end"),
            *("start_expr", "end_expr", "offset_expr", "default_expr", "ignore_nulls", "has_ignore_nulls"),
            *("filter_expr", "distinct", "exclude_clause", "is_legacy_function_call", "arg_orders"),
        ),
    )
    parts, names = _arguments(record)
    parts += tuple(one for one in map(_maybe, (record.get("offset_expr"), record.get("default_expr"))) if one)
    frame = Frame(
        str(record.get("start")),
        _maybe(record.get("start_expr")),
        str(record.get("end")),
        _maybe(record.get("end_expr")),
        str(record.get("exclude_clause") or "NO_OTHER"),
    )
    if _records(record.get("arg_orders")):
        raise _unread("ORDER BY within a window function's arguments")
    return Expr(
        "window", _name(record), parts, names, "IGNORE NULLS" if record.get("ignore_nulls") else None,
        bool(record.get("distinct")), _maybe(record.get("filter_expr")), _orders({"orders": record.get("orders")}),
        _all(record.get("partitions")), frame, alias=alias,
    )  # fmt: skip


def _cast(record: Json, kind: str, alias: str) -> Expr:
    _only(record, ("child", "cast_type", "type_expr", "try_cast"))
    name = type_of_tree(record.get("type_expr") or record.get("cast_type"))
    child = _expression(_record(record.get("child")))
    if name is None:
        raise _unread("a cast to a type that is not DuckDB's own", "Cast to one of DuckDB's types.")
    if name == "BOOLEAN" and child.name == "string" and child.value in ("t", "f") and child.what == "constant":
        return Expr("constant", "boolean", value="true" if child.value == "t" else "false", alias=alias)
    return Expr("cast", name, (child,), flag=bool(record.get("try_cast")), alias=alias)


def _comparison(record: Json, kind: str, alias: str) -> Expr:
    _only(record, ("left", "right"))
    if kind not in _SIGNS:
        raise _unread(kind)
    sides = tuple(_expression(_record(record.get(side))) for side in ("left", "right"))
    return Expr("compare", _SIGNS[kind], sides, alias=alias)


def _conjunction(record: Json, kind: str, alias: str) -> Expr:
    _only(record, ("children",))
    return Expr("and" if kind == "CONJUNCTION_AND" else "or", parts=_all(record.get("children")), alias=alias)


def _operator(record: Json, kind: str, alias: str) -> Expr:
    _only(record, ("children",))
    if kind not in _OPERATORS:
        raise _unread(kind.replace("_", " ").lower())
    parts = _all(record.get("children"))
    if kind == "COMPARE_NOT_IN":
        return Expr("not", parts=(Expr("in", parts=parts),), alias=alias)
    if kind == "ARRAY_CONSTRUCTOR":
        return Expr("call", "list_value", parts, alias=alias)
    return Expr(_OPERATORS[kind], parts=parts, alias=alias)


def _between(record: Json, kind: str, alias: str) -> Expr:
    _only(record, ("input", "lower", "upper"))
    parts = tuple(_expression(_record(record.get(side))) for side in ("input", "lower", "upper"))
    return Expr("between", parts=parts, alias=alias)


def _case(record: Json, kind: str, alias: str) -> Expr:
    _only(record, ("case_checks", "else_expr"))
    parts: list[Expr] = []
    for one in _records(record.get("case_checks")):
        parts += [_expression(_record(one.get(name))) for name in ("when_expr", "then_expr")]
    return Expr("case", parts=(*parts, _expression(_record(record.get("else_expr")))), alias=alias)


def _subquery(record: Json, kind: str, alias: str) -> Expr:
    _only(record, ("subquery", "subquery_type", "child", "comparison_type"))
    how, sign = str(record.get("subquery_type")), str(record.get("comparison_type"))
    child = _maybe(record.get("child"))
    query = _query(_record(_record(record.get("subquery")).get("node")))
    if how == "NOT_EXISTS":
        return Expr("not", parts=(Expr("subquery", "EXISTS", query=query),), alias=alias)
    if how not in ("SCALAR", "EXISTS", "ANY"):
        raise _unread(f"a subquery of kind {how}")
    parts = () if child is None else (child,)
    return Expr("subquery", how, parts, value=_SIGNS.get(sign), query=query, alias=alias)


def _collate(record: Json, kind: str, alias: str) -> Expr:
    _only(record, ("child", "collation"))
    return Expr("collate", str(record.get("collation")), (_expression(_record(record.get("child"))),), alias=alias)


def _lambda(record: Json, kind: str, alias: str) -> Expr:
    _only(record, ("lhs", "expr"), syntax_type=("LAMBDA_KEYWORD",))
    left = _expression(_record(record.get("lhs")))
    names = [*left.names] if left.what == "column" else [name for one in left.parts for name in one.names]
    return Expr("lambda", parts=(_expression(_record(record.get("expr"))),), names=tuple(names), alias=alias)


def _parameter(record: Json, kind: str, alias: str) -> Expr:
    raise ParameterError(
        "P100", "sql holds a parameter of its own. Write its value, or pass the whole of sql as a parameter."
    )


_READERS = {
    "COLUMN_REF": _column,
    "CONSTANT": _constant,
    "STAR": _star,
    "FUNCTION": _call,
    "WINDOW": _window,
    "CAST": _cast,
    "COMPARISON": _comparison,
    "CONJUNCTION": _conjunction,
    "OPERATOR": _operator,
    "BETWEEN": _between,
    "CASE": _case,
    "SUBQUERY": _subquery,
    "COLLATE": _collate,
    "LAMBDA": _lambda,
    "PARAMETER": _parameter,
}


def is_catalog(names: tuple[str, str, str]) -> bool:
    """Whether a name is a view of DuckDB's catalog."""
    _, schema, name = map(fold, names)
    return schema in ("information_schema", "pg_catalog") or name.startswith(
        ("duckdb_", "pragma_", "sqlite_", "pg_")
    )


def tables_of(query: Query) -> tuple[tuple[str, str, str], ...]:
    """Return the tables that a query names: database, schema and name as written, each ``''`` where it is left out.

    Names of WITH queries are not among them where these are in reach.
    """
    found: dict[tuple[str, str, str], None] = {}
    _tables_of_query(query, frozenset(), found)
    return tuple(found)


def _tables_of_query(query: Query, withs: frozenset[str], found: dict[tuple[str, str, str], None]) -> None:
    for one in query.withs:
        _tables_of_query(one.query, withs, found)
        withs = withs | {fold(one.name)}
    asked: list[Expr] = [one.expression for one in query.modifiers.orders]
    if isinstance(query, SetOperation):
        for part in query.parts:
            _tables_of_query(part, withs, found)
    elif isinstance(query, Select):
        asked += [*query.items, *query.groups, *query.modifiers.distinct_on]
        asked += [one for one in (query.where, query.having, query.qualify) if one is not None]
        _tables_of_source(query.source, withs, found, asked)
    for each in asked:
        for one in each.walk():
            if one.query is not None:
                _tables_of_query(one.query, withs, found)


def _tables_of_source(
    source: From, withs: frozenset[str], found: dict[tuple[str, str, str], None], asked: list[Expr]
) -> None:
    if isinstance(source, TableRef):
        named = any(source.names[:2]) or fold(source.names[2]) not in withs
        if named and not is_catalog(source.names):
            found.setdefault(source.names)
    elif isinstance(source, Derived) or (isinstance(source, Show) and source.query is not None):
        _tables_of_query(source.query, withs, found)
    elif isinstance(source, Join):
        for side in (source.left, source.right):
            _tables_of_source(side, withs, found, asked)
        if source.condition is not None:
            asked.append(source.condition)
    elif isinstance(source, TableFunction):
        asked.append(source.call)
    elif isinstance(source, Listed):
        asked += [one for row in source.rows for one in row]
