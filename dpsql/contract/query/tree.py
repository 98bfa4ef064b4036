"""Reads the tree that DuckDB serializes of a query: one module for all versions.

Limits of size and depth come before anything recursive. Every clause, expression and field is read by an allow list:
what is not known is refused (P101), never passed over.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from dpsql.contract.parameters import fold, show
from dpsql.contract.query.nodes import (
    Derived,
    Expr,
    From,
    Join,
    Listed,
    Modifiers,
    Nothing,
    Query,
    Select,
    SetOperation,
    Show,
    TableFunction,
    TableRef,
    With,
)
from dpsql.contract.query.tree_expressions import TreeExpressions
from dpsql.contract.query.tree_fields import Json, as_record, as_records, as_texts, only, unread
from dpsql.errors import ParameterError

MOST_CHARACTERS, _MOST_NODES, _DEEPEST, _DEEPEST_QUERY = 100_000, 10_000, 40, 20
_DEEPEST_FROM = 60
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
    return _query(as_record(statements[0].get("node")))


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
        elif kind == "SET_OPERATION_NODE":  # of several parts a chain, on some versions
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
        todo += [(one, deep, queries, joined) for one in found.values() if isinstance(one, (dict, list))]


# Queries.


def _query(node: Json) -> Query:
    kind = str(node.get("type"))
    withs = tuple(_with(as_record(one)) for one in as_records(as_record(node.get("cte_map") or {}).get("map")))
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
    for one in records:
        kind = one.get("type")
        if kind == "DISTINCT_MODIFIER":
            on = tuple(map(_EXPRESSIONS.read, as_records(one.get("distinct_on_targets"))))
            out = Modifiers(not on, on, out.orders, out.limit, out.offset, out.percent)
        elif kind == "ORDER_MODIFIER":
            out = Modifiers(out.distinct, out.distinct_on, _EXPRESSIONS.orders(one), out.limit, out.offset, out.percent)
        elif kind in ("LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER"):
            limit, offset = (_EXPRESSIONS.maybe(one.get(name)) for name in ("limit", "offset"))
            percent = kind == "LIMIT_PERCENT_MODIFIER" or one.get("limit_type") == "PERCENTAGE"
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
    listed = [one for one in sets if isinstance(one, list)] if isinstance(sets, list) else []
    return Select(
        withs,
        modifiers,
        tuple(map(_EXPRESSIONS.read, as_records(node.get("select_list")))),
        _from(as_record(node.get("from_table"))),
        _EXPRESSIONS.maybe(node.get("where_clause")),
        tuple(map(_EXPRESSIONS.read, as_records(node.get("group_expressions")))),
        tuple(tuple(int(place) for place in one) for one in listed),
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
    if how in ("ASOF", "POSITIONAL", "NEAREST"):
        raise ParameterError(
            "P103",
            f"sql: {how} JOIN is not answered, since other rows decide which rows meet. Join by columns; the last row "
            "before another one is QUALIFY row_number() OVER (PARTITION BY person, id ORDER BY time DESC) = 1.",
        )
    if kind not in _JOINS or how not in ("REGULAR", "CROSS", "NATURAL"):
        raise unread(f"{how} {kind} JOIN")
    sides = [_from(as_record(record.get(side))) for side in ("left", "right")]
    return Join(
        _JOINS[kind],
        sides[0],
        sides[1],
        _EXPRESSIONS.maybe(record.get("condition")),
        as_texts(record.get("using_columns")),
        how == "NATURAL",
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
    """Return the tables that a query names: database, schema and name as written, each ``''`` where it is left out.

    Names of WITH queries are not among them where these are in reach.
    """
    found: dict[tuple[str, str, str], None] = {}
    _tables_of_query(query, frozenset(), found)
    return tuple(found)


def _tables_of_query(query: Query, withs: frozenset[str], found: dict[tuple[str, str, str], None]) -> None:
    for each in query.withs:
        _tables_of_query(each.query, withs, found)
        withs = withs | {fold(each.name)}
    asked: list[Expr] = [one.expression for one in query.modifiers.orders]
    if isinstance(query, SetOperation):
        for one in query.parts:
            _tables_of_query(one, withs, found)
    elif isinstance(query, Select):
        asked += [*query.items, *query.groups, *query.modifiers.distinct_on]
        asked += [given for given in (query.where, query.having, query.qualify) if given is not None]
        _tables_of_source(query.source, withs, found, asked)
    for expr in asked:
        for part in expr.walk():
            if part.query is not None:
                _tables_of_query(part.query, withs, found)


def _tables_of_source(
    source: From, withs: frozenset[str], found: dict[tuple[str, str, str], None], asked: list[Expr]
) -> None:
    if isinstance(source, TableRef):
        named = any(source.names[:2]) or fold(source.names[2]) not in withs
        if named and not is_catalog(source.names):
            found.setdefault(source.names)
    elif isinstance(source, (Derived, Show)):
        if source.query is not None:
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
