"""Write SQL function calls, literals, structs and identifiers that no macro of the caller can replace.

DuckDB looks for an unqualified function among the caller's macros first, and operators (``a + b``), literals (``[a]``,
``{'a': b}``), subscripts and ``count(*)`` are functions like any other. So dpsql writes statements with these helpers,
which name every function in full. Comparisons, AND, OR, NOT, CASE, CAST, BETWEEN, COALESCE and IS NULL are not
functions, so no macro can replace them (tests/sql/test_rendering.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from numbers import Integral, Real


def identifier(name: str) -> str:
    """Quote one identifier; any string becomes exactly one name."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """Quote one string literal."""
    return "'" + value.replace("'", "''") + "'"


def double(value: float) -> str:
    """Return a double as a literal, exact to the last bit."""
    return f"'{float(value)!r}'::DOUBLE"


def call(function: str, *arguments: str, **keywords: str) -> str:
    """Return a call of a built-in function, or of a dpsql function.

    Parameters
    ----------
    function : str
        Its name, such as ``'floor'`` or ``'+'``.
    *arguments, **keywords : str
        SQL expressions.
    """
    name = function if function.isidentifier() else identifier(function)
    parts = [*arguments, *(f"{identifier(key)} := {value}" for key, value in keywords.items())]
    return f"system.main.{name}({', '.join(parts)})"


def struct(fields: Mapping[str, str]) -> str:
    """Return a struct of SQL expressions."""
    return call("struct_pack", **fields)


def field(struct_expression: str, name: str) -> str:
    """Return one field of a struct."""
    return call("struct_extract", struct_expression, text(name))


def element(list_expression: str, position: int) -> str:
    """Return one element of a list, counted from 1."""
    return call("list_extract", list_expression, str(position))


def cast(expression: str, kind: str) -> str:
    """Return a cast that fails if a value does not fit."""
    return f"CAST({expression} AS {kind})"


def coalesce(*expressions: str) -> str:
    """Return the first expression that is not NULL."""
    return f"coalesce({', '.join(expressions)})"


def plus(first: str, *more: str) -> str:
    """Return a sum."""
    for term in more:
        first = call("+", first, term)
    return first


def concatenated(first: str, *more: str) -> str:
    """Return the concatenation of byte strings or strings."""
    for part in more:
        first = call("||", first, part)
    return first


def with_one_spelling(source: str, columns: Sequence[tuple[str, str]]) -> str:
    """Return a FROM item that gives each typed number column one zero and one NaN."""
    parts = []
    for name, kind in columns:
        column = identifier(name)
        number = call("+", column, f"CAST(0 AS {kind})")
        parts.append(f"CASE WHEN {call('isnan', column)} THEN CAST('nan' AS {kind}) ELSE {number} END AS {column}")
    return f"(SELECT * REPLACE ({', '.join(parts)}) FROM {source} AS dpsql_loose)"


def literal_of(value: object) -> str | None:
    """Return a value as one SQL literal.

    Parameters
    ----------
    value : object
        A number, boolean, string, date, None, or a list, tuple or mapping of these.

    Returns
    -------
    literal : str or None
        None for any other value.
    """
    if isinstance(value, str):
        return None if "\0" in value else text(value)
    if isinstance(value, date):  # and datetime
        return text(value.isoformat())
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return str(value) if value.is_finite() else None
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):  # and NumPy numbers
        return repr(float(value)) if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        items = [literal_of(item) for item in value]
        return None if None in items else f"[{', '.join(map(str, items))}]"
    if isinstance(value, Mapping):
        fields = {key: literal_of(item) for key, item in value.items()}
        if None in fields.values() or not all(isinstance(key, str) and "\0" not in key for key in fields):
            return None
        return "{" + ", ".join(f"{text(key)}: {field}" for key, field in fields.items()) + "}"
    return None
