"""`time_bucket` of a date, written with what may be computed of a row: its width is a literal, as is its origin.

Buckets of months begin in January 2000, all others on Monday, 3 January 2000, as DuckDB's do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from dpsql.contract.expression.kinds import ZONED_TIMESTAMP, Type
from dpsql.contract.query.nodes import Expr
from dpsql.errors import ParameterError

_WIDTH = re.compile(
    r"\s*(\d{1,9})\s*(microsecond|millisecond|second|minute|hour|day|week|month|quarter|year|decade)s?\s*", re.I
)
_MONTHS = {"month": 1, "quarter": 3, "year": 12, "decade": 120}
_DAYS = {"day": 1, "week": 7}
_MILLISECONDS = {"millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000}
_MONDAY, _MONDAY_MILLISECONDS = "2000-01-03", 946_857_600_000


def bucketed(expr: Expr, kind: Callable[[Expr], Type]) -> Expr:
    """Return an expression whose calls of `time_bucket` are written out; `kind` gives the type of a part.

    Raises
    ------
    ParameterError
        P082: a width is not a literal of one unit, a bucket has an origin of its own, or a moment has a time zone.
    """
    expr = expr.mapped(lambda part: bucketed(part, kind))
    if expr.what != "call" or expr.name != "time_bucket":
        return expr
    found = _width(expr.parts[0]) if len(expr.parts) == 2 else None
    if found is None:
        raise ParameterError(
            "P082",
            "sql: time_bucket takes a literal width of one unit, and no origin. Write it such as INTERVAL '2 weeks'.",
        )
    count, unit = found
    given = expr.parts[1]
    of = kind(given).kind
    if of == ZONED_TIMESTAMP:
        raise ParameterError(
            "P082",
            "sql: time_bucket of a TIMESTAMPTZ is not read, since buckets of time zones differ. Cast it to TIMESTAMP, "
            "which is the time in the session's zone.",
        )
    timed = of != "DATE"
    if unit in _MILLISECONDS:
        # Some versions round to milliseconds, which would put the end of a bucket into the next one.
        whole = Expr("call", "date_trunc", (Expr("constant", "string", value="millisecond"), given)) if timed else given
        since = _minus(Expr("call", "epoch_ms", (whole,)), _number(_MONDAY_MILLISECONDS))
        start = _minus(Expr("call", "epoch_ms", (whole,)), _rest(since, count * _MILLISECONDS[unit]))
        out = Expr("call", "epoch_ms", (start,))
        return replace(out if timed else Expr("cast", "DATE", (out,)), alias=expr.alias)
    date = Expr("cast", "DATE", (given,)) if timed else given
    out = _months(date, count * _MONTHS[unit]) if unit in _MONTHS else _days(date, count * _DAYS[unit])
    return replace(Expr("cast", "TIMESTAMP", (out,)) if timed else out, alias=expr.alias)


def bucket_width(expr: Expr) -> tuple[Expr, str] | None:
    """Return the moment and the width of a bucket that is shorter than a day, as `bucketed` writes it."""
    start = expr.parts[0] if expr.what == "call" and expr.name == "epoch_ms" else expr
    if start.what != "call" or start.name != "-" or [one.name for one in start.parts] != ["epoch_ms", "%"]:
        return None
    [given], width = start.parts[0].parts, start.parts[1].parts[1]
    given = given.parts[1] if given.name == "date_trunc" else given
    return (given, f"{width.value} milliseconds") if width.what == "constant" else None


def _width(expr: Expr) -> tuple[int, str] | None:
    if expr.what != "cast" or expr.name != "INTERVAL" or expr.parts[0].name != "string":
        return None
    match = _WIDTH.fullmatch(str(expr.parts[0].value))
    if match is None or int(match[1]) == 0 or match[2].lower() == "microsecond":
        return None
    return int(match[1]), match[2].lower()


def _days(date: Expr, width: int) -> Expr:
    monday = Expr("cast", "DATE", (Expr("constant", "string", value=_MONDAY),))
    return _minus(date, Expr("cast", "INTEGER", (_rest(_minus(date, monday), width),)))


def _months(date: Expr, width: int) -> Expr:
    year, month = (Expr("call", name, (date,)) for name in ("year", "month"))
    since = _plus(Expr("call", "*", (_minus(year, _number(2000)), _number(12))), _minus(month, _number(1)))
    start = _plus(_minus(since, _rest(since, width)), _number(2000 * 12))
    parts = (
        Expr("call", "//", (start, _number(12))),
        _plus(Expr("call", "%", (start, _number(12))), _number(1)),
        Expr("cast", "BIGINT", (_number(1),)),
    )
    return Expr("call", "make_date", tuple(Expr("cast", "BIGINT", (one,)) for one in parts))


def _rest(value: Expr, width: int) -> Expr:
    """Return how far a number is behind the last multiple of a width."""
    over = Expr("call", "%", (value, _number(width)))
    return Expr("call", "%", (_plus(over, _number(width)), _number(width)))


def _number(value: int) -> Expr:
    return Expr("constant", "number", value=str(value))


def _plus(one: Expr, two: Expr) -> Expr:
    return Expr("call", "+", (one, two))


def _minus(one: Expr, two: Expr) -> Expr:
    return Expr("call", "-", (one, two))
