"""Values that are equal and spelled differently, and the order of rows by all that they hold.

DuckDB chooses where rows are alike by what they are compared by: which of them comes first, and which of two equal
values stands for both. It chooses by the order in which it reads rows, which follows from the rows of everybody. So
whatever chooses among rows of people orders them by all columns that are read of them, and equal values by their
spelling: then rows that still tie are the same.

Most types spell equal values in one way. These do not:

* FLOAT and DOUBLE have two zeros, and NaN of either sign;
* INTERVAL compares a month as 30 days, and a day as 24 hours;
* text is compared by a collation, of its column or of the session;
* lists, structs, maps and unions hold any of these.
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

# Kinds that spell equal values in one way.
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
# What DuckDB makes of texts to compare them by a collation; of those that are not here it compares the bytes.
_COLLATED = {"nocase": "lower", "noaccent": "strip_accents", "nfc": "nfc_normalize"}
# Least and largest values, and the order in which each comes first.
ENDS = {"min": "ASC", "max": "DESC"}


def has_one_spelling(kind: Type) -> bool:
    """Whether equal values of a type are the same.

    Text without a collation of its own counts. The session's may make one of several spellings; of GROUP BY, min and
    max the plan shows that, and is refused.
    """
    if kind.kind in _TEXTS:
        return not kind.collation
    if kind.kind in NESTED:
        return all(leaf.kind in _ONE_SPELLING for leaf in kind.leaves)
    return kind.kind in _ONE_SPELLING


def functions_of(collation: str) -> list[str]:
    """Return the functions of a text whose bytes DuckDB compares where it compares texts by a collation."""
    return [_COLLATED[name] for name in reversed(collation.lower().split(".")) if name in _COLLATED]


def by_collation(expr: Expr, collation: str) -> Expr:
    """Return a text of which DuckDB compares the bytes where it compares texts by a collation."""
    return reduce(lambda inner, name: Expr("call", name, (inner,)), functions_of(collation), expr)


def is_plain(kind: Type) -> bool:
    """Whether equal values of a type are the same, whatever the session's collation is."""
    return kind.kind not in _TEXTS and has_one_spelling(kind)


def contents(sql: str, kind: Type) -> list[str]:
    """Return what rows are ordered by, so that only those with the same value of a column tie.

    Raises
    ------
    ParameterError
        P104: no such order is known of the type.
    """
    if kind.kind in _TEXTS:  # its bytes alone: a collation of the session orders text, too
        return [_bytes(sql)]
    if kind.kind == "STRUCT":
        inside = [content for name, part in kind.fields for content in contents(field(sql, name), part)]
        return [f"({sql} IS NULL)", *inside]
    return [sql] if is_plain(kind) else [sql, _spelling(sql, kind)]


def _spelling(sql: str, kind: Type) -> str:
    """Return what tells values apart that are equal."""
    if kind.kind in FLOATS:
        return call("signbit", sql)
    # A time that no text stands for would end DuckDB's instance.
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
    """Return a FLOAT or DOUBLE that is the same for all spellings of it: 0 has no sign, nor has NaN."""
    nan, zero = (f"'{value}'::{kind.kind}" for value in ("nan", "0"))
    return f"CASE WHEN {call('isnan', sql)} THEN {nan} WHEN {sql} = {zero} THEN {zero} ELSE {sql} END"


def in_order(sql: str, kind: Type, direction: str = "ASC") -> str:
    """Return the ORDER BY of values of a column, in which the smallest spelling of equal ones comes first."""
    tie_breaks = (f"{content} ASC NULLS LAST" for content in contents(sql, kind) if content != sql)
    return ", ".join([f"{sql} {direction} NULLS LAST", *tie_breaks])


def one_of_group(sql: str, kind: Type, direction: str = "ASC") -> str:
    """Return the aggregate that is the smallest spelling of the first value of a column, in an order.

    Raises
    ------
    ParameterError
        P104: DuckDB compares what it makes of the values, and plans the group by that.
    """
    if any(leaf.kind == "INTERVAL" or leaf.collation for leaf in kind.leaves):
        raise ParameterError(
            "P104",
            f"sql: {kind.shown} is not grouped, nor compared in groups of one person's rows, since its values can be "
            "equal and spelled differently. Make a number of it, such as date_part('hour', x) or length(x), or write "
            "min(x) OVER (PARTITION BY person).",
        )
    return element(call("list", f"{sql} ORDER BY {in_order(sql, kind, direction)}"), 1)
