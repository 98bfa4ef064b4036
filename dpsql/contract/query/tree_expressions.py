"""Reads the expressions of a tree that DuckDB serialized, of every version."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from dpsql.contract.expression.grammar import COMPARED
from dpsql.contract.query.nodes import Expr, Order, Query, WindowFrame
from dpsql.contract.query.tree_fields import Json, as_record, as_records, as_texts, only, place_of, unread
from dpsql.contract.query.written_types import type_of_tree
from dpsql.errors import DpsqlError, ParameterError

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
        found = []
        for one in as_records(as_record(record or {}).get("orders")):
            direction = {"ASCENDING": "ASC", "DESCENDING": "DESC"}.get(str(one.get("type")), "")
            nulls = str(one.get("null_order"))
            nulls = {"NULLS_FIRST": "NULLS FIRST", "NULLS_LAST": "NULLS LAST"}.get(nulls, nulls)
            found.append(
                Order(
                    self.read(as_record(one.get("expression"))), direction, nulls if nulls.startswith("NULLS") else ""
                )
            )
        return tuple(found)

    def maybe(self, value: object) -> Expr | None:
        """Return an expression that may be left out."""
        return None if value is None else self.read(as_record(value))

    def every(self, value: object) -> tuple[Expr, ...]:
        """Return the expressions of a list."""
        return tuple(map(self.read, as_records(value)))

    def read(self, record: Json) -> Expr:
        """Return an expression."""
        place = place_of(record)
        try:
            reader = self._readers.get(str(record.get("class")))
            if reader is None:
                raise unread(f"{str(record.get('class')).replace('_', ' ').lower()}")
            found = reader(record, str(record.get("type")), str(record.get("alias") or ""))
        except DpsqlError as error:
            error.place = place if error.place is None else error.place
            raise
        return found if place is None else replace(found, at=place)

    def _column(self, record: Json, kind: str, alias: str) -> Expr:
        only(record, ("column_names",))
        return Expr("column", names=as_texts(record.get("column_names")), alias=alias)

    def _constant(self, record: Json, kind: str, alias: str) -> Expr:
        only(record, ("literal", "value"))
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
            raise unread(f"a {name} literal", "Write it as a number or a text.")
        value = as_record(record.get("value"))
        shown, found = as_record(value.get("type")), value.get("value")
        name = str(shown.get("id"))
        if value.get("is_null"):
            return Expr("constant", "NULL", alias=alias)
        if name == "VARCHAR":
            return Expr("constant", "string", value=str(found), alias=alias)
        if name == "BOOLEAN":
            return Expr("constant", "boolean", value=str(found).lower(), alias=alias)
        if name == "DECIMAL":
            scale = int(str(as_record(shown.get("type_info")).get("scale") or 0))
            return Expr("constant", "number", value=_decimal(_whole(found), scale), alias=alias)
        if name in ("DOUBLE", "FLOAT"):
            number = float(str(found))
            text = repr(number) if math.isfinite(number) else f"{math.copysign(1, number):.0f}e400"  # as it was read
            return Expr("constant", "number", value=text if "e" in text else f"{text}e0", alias=alias)
        if name.endswith(("INT", "INTEGER")):
            return Expr("constant", "number", value=str(_whole(found)), alias=alias)
        raise unread(f"a literal of type {name}", "Write it as a number or a text.")

    def _star(self, record: Json, kind: str, alias: str) -> Expr:
        only(record, ("relation_name", "exclude_list", "qualified_exclude_list", "replace_list", "columns"))
        excluded = [*as_texts(record.get("exclude_list"))]
        for one in as_records(record.get("qualified_exclude_list")):
            excluded.append(str(one.get("column")))
        replaced = []
        for one in as_records(record.get("replace_list")):
            by = self.read(as_record(one.get("value")))
            replaced.append(Expr("replacement", str(one.get("key")), (by,)))
        return Expr("star", str(record.get("relation_name") or ""), tuple(replaced), tuple(excluded))

    def _arguments(self, record: Json) -> tuple[tuple[Expr, ...], tuple[str, ...]]:
        named = as_records(record.get("arguments"))
        if named or "arguments" in record:
            found = tuple(self.read(as_record(one.get("expression"))) for one in named)
            names = tuple(str(one.get("name") or "") for one in named)
        else:
            found = self.every(record.get("children"))
            name = str(record.get("function_name"))
            names = tuple(one.alias if name == "struct_pack" else "" for one in found)
        return found, names if any(names) else ()

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
        parts += tuple(one for one in map(self.maybe, (record.get("offset_expr"), record.get("default_expr"))) if one)
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
        for one in as_records(record.get("case_checks")):
            parts += [self.read(as_record(one.get(name))) for name in ("when_expr", "then_expr")]
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
        left = self.read(as_record(record.get("lhs")))
        names = [*left.names] if left.what == "column" else [name for one in left.parts for name in one.names]
        return Expr("lambda", parts=(self.read(as_record(record.get("expr"))),), names=tuple(names), alias=alias)

    def _parameter(self, record: Json, kind: str, alias: str) -> Expr:
        raise ParameterError(
            "P100", "sql holds a parameter of its own. Write its value, or pass the whole of sql as a parameter."
        )


def _whole(given: object) -> int:
    if isinstance(given, Mapping):
        return (int(str(given["upper"])) << 64) + int(str(given["lower"]))
    return int(str(given))


def _decimal(digits: int, scale: int) -> str:
    sign, whole = ("-" if digits < 0 else ""), str(abs(digits)).rjust(scale + 1, "0")
    return f"{sign}{whole[: len(whole) - scale]}.{whole[len(whole) - scale :]}"


def _name(record: Json) -> str:
    schema, catalog = str(record.get("schema") or ""), str(record.get("catalog") or "")
    if (catalog, schema) not in (("", ""), ("", "main"), ("system", "main"), ("", "pg_catalog")):
        raise unread(f"the function {schema}.{record.get('function_name')}", "Call DuckDB's own functions.")
    return str(record.get("function_name")).lower()
