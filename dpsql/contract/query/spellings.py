"""Equal values with different spellings, and a total order of rows.

When rows compare equal, DuckDB chooses which row comes first, and which of two equal values stands for both. It chooses
by its reading order, which depends on everybody's rows. So SQL that chooses among rows of people orders them by all
columns it reads, and equal values by their spelling: rows that still tie are identical.

Most types have one spelling for equal values. These do not:

* FLOAT and DOUBLE have two zeros, and NaN of either sign;
* INTERVAL compares a month as 30 days, and a day as 24 hours;
* text compares by a collation, of its column or of the session;
* lists, structs, maps and unions contain any of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from dpsql.contract.expression.kinds import (
    FLOATS,
    INTEGERS,
    NESTED,
    RANGES,
    TIMES,
    TIMESTAMPS,
    ZONED_TIMESTAMP,
    Type,
)
from dpsql.contract.query.nodes import Expr
from dpsql.errors import ParameterError
from dpsql.rendering import call, cast, element, field

# Kinds with one spelling for equal values.
_ONE_SPELLING: Mapping[str, str] = {
    "BOOLEAN": "Two values.",
    **dict.fromkeys(sorted(INTEGERS), "One form of each number."),
    "BIGNUM": "One form of each number.",
    "DECIMAL": "Integers; the scale is one of the type.",
    "BLOB": "Compared by its bytes.",
    "BIT": "Compared by its bits, and by how many they are.",
    "UUID": "One form of each number.",
    "DATE": "One form of each day.",
    **dict.fromkeys(sorted(TIMES), "Times that differ in their offset differ."),
    **dict.fromkeys(sorted(TIMESTAMPS | {ZONED_TIMESTAMP}), "One form of each moment."),
    "ENUM": "One form of each label.",
}
_TEXTS = frozenset(("VARCHAR", "JSON"))
# The function that DuckDB applies to compare strings by a collation; by any other collation it compares bytes.
_COLLATED = {"nocase": "lower", "noaccent": "strip_accents", "nfc": "nfc_normalize"}
# The aggregates of extreme values, and the order that puts each value first.
ENDS = {"min": "ASC", "max": "DESC"}


def has_one_spelling(kind: Type) -> bool:
    """Whether equal values of a type are identical.

    True for text without its own collation. The session's collation may merge several spellings; in GROUP BY, min and
    max the plan shows that, and dpsql refuses it.
    """
    if kind.kind in _TEXTS:
        return not kind.collation
    if kind.kind in NESTED:
        return all(leaf.kind in _ONE_SPELLING for leaf in kind.leaves)
    return kind.kind in _ONE_SPELLING


def functions_of(collation: str) -> list[str]:
    """Return the functions that DuckDB applies to strings before it compares bytes, for a collation."""
    return [_COLLATED[name] for name in reversed(collation.lower().split(".")) if name in _COLLATED]


def by_collation(expr: Expr, collation: str) -> Expr:
    """Return the string whose bytes DuckDB compares for a collation."""
    return reduce(lambda inner, name: Expr("call", name, (inner,)), functions_of(collation), expr)


def is_plain(kind: Type) -> bool:
    """Whether equal values of a type are identical under any session collation."""
    return kind.kind not in _TEXTS and has_one_spelling(kind)


def contents(sql: str, kind: Type) -> list[str]:
    """Return order expressions for a column, by which only rows with the identical value tie.

    Raises
    ------
    ParameterError
        P104: the type has no known order of this kind.
    """
    if kind.kind in _TEXTS:  # bytes only: the session's collation orders text, too
        return [_bytes(sql)]
    if kind.kind == "STRUCT":
        inside = [content for name, part in kind.fields for content in contents(field(sql, name), part)]
        return [f"({sql} IS NULL)", *inside]
    return [sql] if is_plain(kind) else [sql, _spelling(sql, kind)]


def _spelling(sql: str, kind: Type) -> str:
    """Return SQL that tells equal values apart."""
    if kind.kind in FLOATS:
        return call("signbit", sql)
    # A time without a text form would end DuckDB's instance.
    if kind.kind == "INTERVAL" or (kind.kind in NESTED and kind.known and not kind.kinds & set(RANGES)):
        return _bytes(sql)
    raise ParameterError(
        "P104",
        f"sql: values of type {kind.shown} can be equal and different, so no order of them says which row comes first, "
        "or which of them stands for all. Leave that column out, or cast it in a view.",
    )


def _bytes(sql: str) -> str:
    return call("encode", cast(sql, "VARCHAR"))


def one_of_equals(sql: str, kind: Type) -> str:
    """Return a FLOAT or DOUBLE with one spelling: neither 0 nor NaN has a sign."""
    nan, zero = (f"'{value}'::{kind.kind}" for value in ("nan", "0"))
    return f"CASE WHEN {call('isnan', sql)} THEN {nan} WHEN {sql} = {zero} THEN {zero} ELSE {sql} END"


def in_order(sql: str, kind: Type, direction: str = "ASC") -> str:
    """Return the ORDER BY of a column's values, with the smallest spelling of equal values first."""
    tie_breaks = (f"{content} ASC NULLS LAST" for content in contents(sql, kind) if content != sql)
    return ", ".join([f"{sql} {direction} NULLS LAST", *tie_breaks])


def one_of_group(sql: str, kind: Type, direction: str = "ASC") -> str:
    """Return the aggregate for the smallest spelling of a column's first value in an order.

    Raises
    ------
    ParameterError
        P104: DuckDB compares transformed values, and plans the group by these.
    """
    if any(leaf.kind == "INTERVAL" or leaf.collation for leaf in kind.leaves):
        raise ParameterError(
            "P104",
            f"sql: {kind.shown} is not grouped, nor compared in groups of one person's rows, since its values can be "
            "equal and spelled differently. Make a number of it, such as date_part('hour', x) or length(x), or write "
            "min(x) OVER (PARTITION BY person).",
        )
    return element(call("list", f"{sql} ORDER BY {in_order(sql, kind, direction)}"), 1)
