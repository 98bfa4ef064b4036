"""Warn an owner at gateway start about sources that may raise an error on a row.

Users see whether a view raises, and the error tells about a row. The list has DuckDB's known errors: lossy casts,
arithmetic overflow, functions outside of their domain, and subqueries with more than one row. No guarantee depends on
the list.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import duckdb

from dpsql.contract.names import source_sql
from dpsql.engines.duckdb.lineage.bound import (
    MissingError,
    Node,
    UnreadableError,
    arguments,
    as_node,
    called,
    expressions,
    read,
    type_of,
)
from dpsql.gateway.granted import Granted
from dpsql.ledger import clock

if TYPE_CHECKING:
    from dpsql.context import Context


def raising(context: Context) -> dict[str, list[str]]:
    """Return the parts that may raise in each granted source, by source name."""
    grants, now = context.ledger.grants(), clock.now()
    granted = (Granted(name, grants.of(name, now), context.ledger).names for name in grants.principals)
    causes = {name: _of_source(context, name) for name in sorted({name for names in granted for name in names})}
    return {name: parts for name, parts in causes.items() if parts}


def _of_source(context: Context, name: str) -> list[str]:
    try:
        [(text,)] = context.connection.execute(
            "SELECT system.main.json_serialize_plan(?)::VARCHAR", [f"FROM {source_sql(name)}"]
        ).fetchall()
        plan = read(text)
    except (duckdb.Error, MissingError, UnreadableError):  # a query of the source is refused
        return []
    return [] if plan is None else may_fail(plan)


_FLOATING = ("DOUBLE", "FLOAT")
_ARITHMETIC = frozenset(("+", "-", "*", "//", "%", "<<", ">>", "abs", "add", "subtract", "multiply"))
_IN_DOMAIN = frozenset(
    (
        *("error", "sqrt", "ln", "log", "log2", "log10", "acos", "asin", "atanh", "cos", "sin", "tan", "cot"),
        *("factorial", "gamma", "lgamma", "gcd", "lcm", "chr", "strptime", "make_date", "make_time", "make_timestamp"),
        *("to_timestamp", "to_days", "to_months", "to_years", "to_hours", "to_minutes", "to_seconds", "unhex"),
        *("from_hex", "from_base64", "decode", "json_extract", "json_extract_string", "->", "->>", "json_value"),
        *("list_slice", "array_slice", "regexp_full_match", "regexp_matches", "regexp_extract", "regexp_replace"),
    )
)
_CAST_2 = "__cast"
# Later types of a row contain all values of the earlier types.
_WIDER = (
    ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "VARCHAR"),
    ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "VARCHAR"),
    ("UTINYINT", "SMALLINT"), ("USMALLINT", "INTEGER"), ("UINTEGER", "BIGINT"), ("UBIGINT", "HUGEINT"),
    ("BOOLEAN", "TINYINT"), ("BOOLEAN", "INTEGER"), ("BOOLEAN", "BIGINT"), ("BOOLEAN", "VARCHAR"),
    ("DECIMAL", "DOUBLE", "VARCHAR"), ("TIMESTAMP", "DATE", "VARCHAR"), ("TIME", "VARCHAR"), ("ENUM", "VARCHAR"),
    ("UUID", "VARCHAR"),
)  # fmt: skip


def may_fail(plan: Node) -> list[str]:
    """Return the sorted descriptions of a plan's parts that may raise."""
    return sorted(set(_failing(plan)))


def _failing(plan: Node) -> Iterator[str]:
    for expression in expressions(plan):
        name = called(expression)
        if expression.get("type") == "OPERATOR_CAST" or name == _CAST_2:
            data = expression.get("function_data")
            tries = expression.get("try_cast") or (isinstance(data, dict) and data.get("try_cast"))
            inner = as_node(expression["child"] if "child" in expression else arguments(expression)[0])
            source, target = type_of(inner), type_of(expression)
            if not tries and inner.get("type") != "VALUE_CONSTANT" and not _is_wider(source, target):
                yield f"CAST from {source} to {target}"
        elif name in _ARITHMETIC and type_of(expression) not in _FLOATING:
            yield f"{name} of {type_of(expression)}"
        elif name in _IN_DOMAIN:
            yield "a subquery in place of a value" if name == "error" else f"{name}()"


def _is_wider(source: str, target: str) -> bool:
    return source == target or any(
        source in row and target in row and row.index(source) < row.index(target) for row in _WIDER
    )
