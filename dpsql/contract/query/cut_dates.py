"""Which days a condition on a part of a date leaves: ``year(day) = 2025``, ``date_trunc('month', day) >= …``.

A condition keeps at most the days between the bounds that are found here. They choose which groups there are, and which
periods a query is charged to; the condition itself is applied to the rows all the same.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from dpsql.contract.query.nodes import Expr

_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def cut_date(expr: Expr) -> tuple[Expr, str] | None:
    """Return the date that an expression cuts down, and to what: ``'number'`` of the year, or a part of `_MONTHS`."""
    name, parts = expr.name, expr.parts
    if expr.what == "cast" and name in ("DATE", "TIMESTAMP"):
        found = cut_date(parts[0])
        return found if found is not None and found[1] != "number" else None
    if expr.what != "call":
        return None
    if name == "year" and len(parts) == 1:
        return parts[0], "number"
    if len(parts) != 2 or parts[0].what != "constant":
        return None
    part = str(parts[0].value).lower()
    if name == "date_part" and part == "year":
        return parts[1], "number"
    return (parts[1], part) if name == "date_trunc" and part in _MONTHS else None


def days_left(part: str, sign: str, literal: Expr) -> Iterator[tuple[str, Expr]]:
    """Yield comparisons that hold for a date of which what `cut_date` returns compares with a literal like this.

    Nothing is yielded where the literal is computed, or no such date.
    """
    start = year_of(literal) if part == "number" else day_of(literal)
    if start is None:
        return
    first = start.replace(month=(start.month - 1) // _step(part) * _step(part) + 1, day=1)
    after = _later(first, _step(part))
    whole = start == first
    if sign in (">=", ">", "="):
        found = after if (sign == ">" or not whole) else first
        if found is not None:
            yield ">=", _literal(found)
    if sign in ("<=", "<", "="):
        found = first if sign == "<" and whole else after
        if found is not None:
            yield "<", _literal(found)


def day_of(literal: Expr) -> datetime.date | None:
    """Return the day of a literal that is the first moment of one."""
    while literal.what == "cast":
        literal = literal.parts[0]
    try:
        found = datetime.datetime.fromisoformat(str(literal.value).strip())
    except ValueError:
        return None
    return found.date() if literal.name == "string" and found.time() == datetime.time() else None


def year_of(literal: Expr) -> datetime.date | None:
    """Return the first day of the year that a literal is the number of."""
    text = str(literal.value)
    number = int(text) if literal.what == "constant" and text.isdigit() and len(text) <= 4 else 0
    return datetime.date(number, 1, 1) if number else None


def _step(part: str) -> int:
    return _MONTHS.get(part, 12)


def _later(first: datetime.date, months: int) -> datetime.date | None:
    index = first.year * 12 + first.month - 1 + months
    return None if index // 12 > datetime.MAXYEAR else datetime.date(index // 12, index % 12 + 1, 1)


def _literal(day: datetime.date) -> Expr:
    return Expr("cast", "DATE", (Expr("constant", "string", value=day.isoformat()),))
