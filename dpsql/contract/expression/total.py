"""Which judged expressions cannot fail, whatever a row holds: they need no TRY, and so no lambda around it.

The list is short, because whatever is on it is left to DuckDB's optimizer (`dpsql.engines.duckdb.keys` says what that
does with others): comparisons of integers, decimals and dates of one type with each other or with literals that fit,
tests for NULL, and what AND, OR and NOT make of these. Arithmetic can overflow: a product of two decimals of 15 digits
has 18 in DuckDB. Of doubles files state a minimum and a maximum without NaN. What frames hold as text may be none.
"""

from __future__ import annotations

import datetime
import re
from decimal import Decimal, InvalidOperation

from dpsql.contract.expression.judge import Bound
from dpsql.contract.expression.kinds import Type

_WHOLE = {
    **{name: (-(1 << bits - 1), (1 << bits - 1) - 1) for name, bits in (("TINYINT", 8), ("SMALLINT", 16))},
    **{name: (-(1 << bits - 1), (1 << bits - 1) - 1) for name, bits in (("INTEGER", 32), ("BIGINT", 64))},
    **{name: (0, (1 << bits) - 1) for name, bits in (("UTINYINT", 8), ("USMALLINT", 16), ("UINTEGER", 32))},
}
_PLAIN = frozenset((*_WHOLE, "BOOLEAN", "DECIMAL", "DATE"))
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def cannot_fail(node: Bound) -> bool:
    """Whether an expression has a value, or NULL, for every row."""
    if node.type.kind not in _PLAIN or node.type.alias:
        return False
    if node.what == "column":
        return True
    if node.what == "constant":
        return node.value is not None
    if node.what == "cast":
        [given] = node.children
        return cannot_fail(given) if given.type == node.type else given.what == "constant" and _fits(given, node.type)
    if node.what == "compare":
        return len({child.type for child in node.children}) == 1 and all(map(cannot_fail, node.children))
    return node.what in ("and", "or", "not", "null", "present") and all(map(cannot_fail, node.children))


def _fits(given: Bound, wanted: Type) -> bool:
    """Whether a literal is a value of a type."""
    value = given.value or ""
    if wanted.kind == "DATE" and given.type.kind == "VARCHAR":
        return _is_day(value)
    if given.type.kind not in ("DECIMAL", *_WHOLE):
        return False
    try:
        number = Decimal(value)
    except InvalidOperation:
        return False
    if wanted.kind == "DECIMAL":
        width, scale = wanted.sizes
        return abs(number) < Decimal(10) ** (width - scale) - 1  # it may be rounded up
    if wanted.kind not in _WHOLE or number != number.to_integral_value():
        return False
    least, most = _WHOLE[wanted.kind]
    return least <= number <= most


def _is_day(value: str) -> bool:
    if not _DAY.fullmatch(value):
        return False
    try:
        datetime.date.fromisoformat(value)
    except ValueError:
        return False
    return True
