"""Expressions over one row, in queries and conditions: DuckDB types them, dpsql checks them and writes their SQL.

1. `dpsql.contract.query.tree` reads the tree that DuckDB parses, and `simplified` replaces clocks by literals and
   function aliases by one name.
2. `UntypedSql` writes the expression over columns, and DuckDB types it (`Typing`), from the columns' types alone.
3. `dpsql.contract.expression.judge` looks up every function, operator, cast and literal of the typed tree in its
   tables, and writes the SQL that runs.

The module writes `time_bucket` of a literal width with other functions. As in DuckDB, buckets of months begin in
January 2000, all others on Monday, 3 January 2000.

In a query the SQL is the body of a lambda over a list of one row, in TRY: DuckDB's optimizer does not look there, and
an error is NULL.
"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from dpsql.contract.expression.functions import CALLED
from dpsql.contract.expression.judge import Judge, cannot_fail, unknown
from dpsql.contract.expression.kinds import BY_BYTES, TEXT, ZONED_TIMESTAMP, Type
from dpsql.contract.parameters import fold, show
from dpsql.contract.query.catalogue import Typing
from dpsql.contract.query.nodes import Expr, about, constant_sql, literal_span
from dpsql.contract.query.tree import is_copied_too_often
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.rendering import call, cast, coalesce, field, identifier, text

ROW = "dpsql_one"
_MOST_JOINED = 30
_MOST_CHARACTERS = 1_000_000
_TEXT = "dpsql_text"
# Nested subqueries could double a string until a row ends the statement: longer joined strings become NULL.
_SHORT_ENOUGH = f"lambda {ROW}: CASE WHEN system.main.strlen({ROW}) <= 65536 THEN {ROW} END"
_HINT = "docs/calls.md lists what may be called on rows; compute anything else in a view."
_ALIASES = {
    **{"datediff": "date_diff", "datesub": "date_sub", "datetrunc": "date_trunc", "datepart": "date_part"},
    **{
        "mod": "%",
        "add": "+",
        "date_add": "+",
        "subtract": "-",
        "multiply": "*",
        "divide": "//",
        "pow": "pow",
        "**": "pow",
        "^": "pow",
    },
    **{"lcase": "lower", "ucase": "upper", "char_length": "length", "character_length": "length"},
    **{"position": "strpos", "substring": "substring", "@": "abs", "^@": "starts_with", "like": "~~"},
    **dict.fromkeys(("list_has", "array_has", "array_contains"), "list_contains"),
}
# A number in a literal: sign, digits and exponent.
_NUMBER = re.compile(r"([+-]?)(?=\d|\.\d)\d*(?:\.\d*)?(?:[eE]([+-]?\d{1,4}))?", re.ASCII)
# A decimal within these limits is the same double however it is read.
_EXACT_DIGITS, _MOST_PLACES, _LONGEST_LITERAL = 15, 22, 60
# Every integer of this many digits fits the type.
_SAFE_DIGITS = {
    **{"TINYINT": 2, "SMALLINT": 4, "INTEGER": 9, "BIGINT": 18, "HUGEINT": 38},
    **{"UTINYINT": 2, "USMALLINT": 4, "UINTEGER": 9, "UBIGINT": 19, "UHUGEINT": 38},
}
_SPLITTING = frozenset(("string_split", "str_split", "split", "string_to_array"))
_CONTAINING = frozenset(("contains", "list_contains"))
_EXTRACTING = frozenset(("array_extract", "list_extract", "struct_extract"))
_CLOCK = {
    **dict.fromkeys(("current_date", "today"), "DATE"),
    **dict.fromkeys(("now", "current_timestamp", "get_current_timestamp", "transaction_timestamp"), "TIMESTAMPTZ"),
    **dict.fromkeys(("localtimestamp", "current_localtimestamp"), "TIMESTAMP"),
}
# The allowed target types of a cast over rows, without sizes.
TYPES = frozenset(
    (
        *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER"),
        *("UBIGINT", "FLOAT", "DOUBLE", "DECIMAL", "VARCHAR", "DATE", "TIME", "TIMESTAMP", "INTERVAL", "UUID", "BLOB"),
    )
)
_ZONED_CAST = "TIMESTAMP WITH TIME ZONE"


@dataclass(frozen=True)
class ColumnSql:
    """A column that an expression reads: its SQL at the expression's position, and its type."""

    sql: str
    type: Type


@dataclass(frozen=True)
class Written:
    """The SQL of an expression.

    Attributes
    ----------
    sql : str
    type : Type
    bare : bool
        Whether the expression is an unchanged column.
    body : str
        The body of the lambda.
    """

    sql: str
    type: Type
    bare: bool
    body: str = ""


Columns = Mapping[tuple[str, str], ColumnSql]


def with_plain_literals(expr: Expr, kind: Callable[[Expr], Type]) -> Expr:
    """Spell equal literals in an expression's comparisons alike; `kind` gives the type of a part.

    Next to a DOUBLE column, ``'1.5'::DOUBLE``, ``1.50`` and ``15e-1`` are the same 8 bytes, and become ``1.5``.
    """
    expr = expr.mapped(lambda part: with_plain_literals(part, kind))
    if expr.what not in ("compare", "between", "in"):
        return expr
    plain = [_plain_literal(part) for part in expr.parts]
    compared = [part for part, literal in zip(expr.parts, plain, strict=True) if literal is None]
    if len(compared) != 1 or all(literal in (None, part) for part, literal in zip(expr.parts, plain, strict=True)):
        return expr
    try:
        type_ = kind(compared[0])
    except ParameterError:  # of an expression not over one row, such as an aggregate
        return expr
    pairs = zip(expr.parts, plain, strict=True)
    return replace(
        expr,
        parts=tuple(literal if literal and _is_exact(part, literal, type_) else part for part, literal in pairs),
    )


def _plain_literal(expr: Expr) -> Expr | None:
    """Return a literal number in the shortest decimal form; None for other expressions or too many digits."""
    inner = expr.parts[0] if expr.what == "cast" and not expr.flag else expr
    spelled = _NUMBER.fullmatch(str(inner.value)) if inner.what == "constant" and inner.name != "NULL" else None
    if spelled is None or len(spelled[0]) > _LONGEST_LITERAL or abs(int(spelled[2] or 0)) > _MOST_PLACES:
        return None
    exact = Decimal(spelled[0]).normalize()
    _, digits, exponent = exact.as_tuple()
    if len(digits) > _EXACT_DIGITS or not -_MOST_PLACES <= int(exponent) <= _MOST_PLACES:
        return None
    return Expr("constant", "number", value=f"{exact:f}" if exact else "0")


def _is_exact(expr: Expr, plain: Expr, compared: Type) -> bool:
    """Return whether a literal compares with a type at the same type and value as its plain form."""
    integer, _, decimals = str(plain.value).lstrip("-").partition(".")
    cast_to = expr.name if expr.what == "cast" else ""
    if cast_to not in ("", "DOUBLE") and not _fits(integer, decimals, *_sizes_of(cast_to)):
        return False
    if compared.kind == "DOUBLE":
        return True
    if compared.kind == "DECIMAL":  # integers and decimals are compared at different types
        width, scale = compared.sizes
        if not decimals:
            return False
        bare = str(expr.parts[0].value if cast_to else expr.value)
        return cast_to != "DOUBLE" and "e" not in bare.lower() and _fits(integer, decimals, width, scale)
    in_place = cast_to in _SAFE_DIGITS or expr.name == "string"
    signed = not (compared.kind.startswith("U") and str(plain.value).startswith("-"))
    return in_place and signed and _fits(integer, decimals, *_sizes_of(compared.kind))


def _sizes_of(kind: str) -> tuple[int, int]:
    """Return how many digits a type always holds, and how many of them after the point; 0 for other types."""
    if kind.startswith("DECIMAL("):
        width, scale = map(int, kind.removeprefix("DECIMAL(").removesuffix(")").split(","))
        return width, scale
    return _SAFE_DIGITS.get(kind, 0), 0


def _fits(integer: str, decimals: str, width: int, scale: int) -> bool:
    return len(decimals) <= scale and len(integer) <= width - scale


def clock(now: datetime.datetime | None, name: str) -> Expr | None:
    """Return the literal for CURRENT_DATE, now() and the like: the statement's bind time."""
    kind = _CLOCK.get(fold(name))
    if kind is None or now is None:
        return None
    moment = now.date().isoformat() if kind == "DATE" else now.replace(tzinfo=None).isoformat(" ")
    return Expr("cast", "DATE" if kind == "DATE" else "TIMESTAMP", (Expr("constant", "string", value=moment),))


def simplified(expr: Expr, now: datetime.datetime | None) -> Expr:
    """Return an expression with literals for clocks and intervals, and one name for each listed function.

    Raises
    ------
    ParameterError
        P070: nested repeated parts would make the SQL too long. P082, P100.
    """
    return _refuse_long(_simplified(expr, now))


def _refuse_long(expr: Expr) -> Expr:
    """Return an expression, or raise if it would repeat too many parts; visit each part once."""
    sizes: dict[int, int] = {}

    def size(part: Expr) -> int:
        if id(part) not in sizes:
            again = part.parts[:1] if part.what == "between" else ()  # dpsql compares its value with both ends
            sizes[id(part)] = 1 + sum(map(size, (*part.inner, *again)))
        return sizes[id(part)]

    if is_copied_too_often(size(expr) - len(sizes), len(sizes)):
        raise _too_long()
    return expr


def _too_long() -> ParameterError:
    return ParameterError("P070", "sql is too long once it is written out. Compute parts of it in a view.")


def _simplified(expr: Expr, now: datetime.datetime | None) -> Expr:
    expr = expr.mapped(lambda part: _simplified(part, now))
    if expr.what == "try":
        return expr.parts[0]
    if expr.what == "compare" and expr.name == "=" and all(part.name == "row" for part in expr.parts):
        pairs = list(zip(expr.parts[0].parts, expr.parts[1].parts, strict=False))
        return Expr("and", parts=tuple(Expr("compare", "=", pair) for pair in pairs), alias=expr.alias)
    if expr.what == "in" and all(part.name == "row" and part.what == "call" for part in expr.parts):
        return _one_of_rows(expr)
    if expr.what == "call" and expr.name in _EXTRACTING and len(expr.parts) == 2:
        expr = Expr("element", parts=expr.parts, alias=expr.alias, at=expr.at)
    if expr.what == "element" and expr.parts[0].what == "call" and expr.parts[0].name in _SPLITTING:
        return replace(_element_of(*expr.parts), alias=expr.alias)
    if expr.what == "cast" and expr.name == "TIMESTAMP":
        return _without_offset(expr)
    if expr.what != "call":
        return expr
    name, parts = _ALIASES.get(expr.name, expr.name), expr.parts
    timed = clock(now, name) if not parts else None
    if timed is not None:
        return replace(timed, alias=expr.alias)
    span = literal_span(name, parts)
    if span is not None:
        return Expr("cast", "INTERVAL", (Expr("constant", "string", value=span),), alias=expr.alias)
    if name == "+" and len(parts) == 1:
        return replace(parts[0], alias=expr.alias)
    if name == "-" and len(parts) == 1 and parts[0].what == "constant" and parts[0].name == "number":
        value = str(parts[0].value)
        return replace(parts[0], value=value[1:] if value.startswith("-") else f"-{value}", alias=expr.alias)
    if name == "nullif" and len(parts) == 2:
        same = Expr("compare", "=", parts)
        return Expr("case", parts=(same, Expr("constant", "NULL"), parts[0]), alias=expr.alias)
    if name == "if" and len(parts) == 3:
        return Expr("case", parts=parts, alias=expr.alias)
    if name == "ifnull":
        return Expr("coalesce", parts=parts, alias=expr.alias)
    if name == "split_part" and len(parts) == 3:
        return replace(_part_of(*parts), alias=expr.alias)
    if name in ("concat", "concat_ws") and len(parts) > _MOST_JOINED:
        raise ParameterError("P100", f"sql: {name} takes at most {_MOST_JOINED} parts. Join some of them first.")
    if name == "concat" and len(parts) >= 1:
        return replace(_joined([Expr("cast", "VARCHAR", (part,)) for part in parts]), alias=expr.alias)
    if name == "concat_ws" and len(parts) >= 2:
        return replace(_joined_by(parts[0], parts[1:]), alias=expr.alias)
    if name == "age" and len(parts) == 1 and now is not None:
        today = Expr("cast", "TIMESTAMP", (_string(now.date().isoformat()),))
        return replace(expr, parts=(today, *parts))
    if name in _CONTAINING and len(parts) == 2 and _is_list(parts[0]):
        return Expr("in", parts=(parts[1], *parts[0].parts), alias=expr.alias)
    if name == "date_part" and parts and _is_list(parts[0]):
        raise ParameterError(
            "P082", "sql: date_part of a list makes a struct. Write each part by itself: year(d), month(d)."
        )
    return replace(expr, name=name)


def _without_offset(expr: Expr) -> Expr:
    """Return a TIMESTAMP without an offset of 0; DuckDB drops any offset, so another one does not mean what it says."""
    time = literal_time(expr.parts[0])
    if time is None or time.tzinfo is None or time.utcoffset():
        return expr
    return replace(expr, parts=(_string(time.replace(tzinfo=None).isoformat(" ")),))


def literal_time(expr: Expr) -> datetime.datetime | None:
    """Return the time in a literal text; None for any other expression."""
    if expr.what != "constant" or expr.name != "string":
        return None
    try:
        return datetime.datetime.fromisoformat(str(expr.value).strip())
    except ValueError:
        return None


def _at_time_zone(literal: Expr, zone: str) -> Expr:
    """Return a literal TIMESTAMPTZ as a time AT TIME ZONE: 'UTC' if it has an offset, else the session's zone."""
    time = literal_time(literal.parts[0])
    if time is None:
        return literal
    if time.tzinfo is not None:
        try:
            time, zone = time.astimezone(datetime.UTC).replace(tzinfo=None), "UTC"
        except OverflowError:
            return literal
    local = Expr("cast", "TIMESTAMP", (_string(time.isoformat(" ")),), at=literal.at)
    return Expr("call", "timezone", (_string(zone), local), alias=literal.alias, at=literal.at)


def _is_list(expr: Expr) -> bool:
    """Whether an expression is a list of literals."""
    return expr.what == "call" and expr.name == "list_value" and bool(expr.parts) and all(map(_is_value, expr.parts))


def _joined(texts: Sequence[Expr]) -> Expr:
    """Return the concatenation of strings; NULL counts as empty."""
    parts = [Expr("coalesce", parts=(part, _string("")), flag=True) for part in texts]
    joined = parts[0]
    for part in parts[1:]:
        joined = Expr("call", "||", (joined, part))
    return joined


def _joined_by(between: Expr, parts: Sequence[Expr]) -> Expr:
    """Return the non-NULL strings joined by a literal separator."""
    if between.what != "constant" or between.name != "string":
        raise ParameterError("P082", "sql: concat_ws takes a literal text to join by. Write it out.")
    joined = _joined([Expr("call", "||", (between, Expr("cast", "VARCHAR", (part,)))) for part in parts])
    after = Expr("cast", "BIGINT", (Expr("constant", "number", value=str(len(str(between.value)) + 1)),))
    return Expr("call", "substring", (joined, after))


def _one_of_rows(expr: Expr) -> Expr:
    """Return IN of several columns over literals as comparisons; NULL is in no list, as in DuckDB."""
    first, *listed = expr.parts
    if not all(len(row.parts) == len(first.parts) and all(map(_is_value, row.parts)) for row in listed):
        return expr
    false = Expr("constant", "boolean", value="false")
    comparisons = []
    for row in listed:
        same = (Expr("compare", "=", pair) for pair in zip(first.parts, row.parts, strict=True))
        comparisons.append(Expr("and", parts=tuple(Expr("coalesce", parts=(comparison, false)) for comparison in same)))
    return replace(comparisons[0] if len(comparisons) == 1 else Expr("or", parts=tuple(comparisons)), alias=expr.alias)


def _is_value(expr: Expr) -> bool:
    while expr.what == "cast":
        expr = expr.parts[0]
    return expr.what == "constant" and expr.name != "NULL"


def _part_of(value: Expr, by: Expr, position: Expr) -> Expr:
    """Return `split_part`, which is a DuckDB macro over lists, as a regular expression's match."""
    digit = str(position.value) if position.what == "constant" and position.name == "number" else ""
    if by.what != "constant" or by.name != "string" or not by.value or not re.fullmatch("[1-9]", digit):
        raise ParameterError(
            "P082",
            "sql: split_part takes a literal text to split by, and a literal place from 1 to 9. Write both out.",
        )
    end = re.escape(by.value)
    pattern = f"^(?s:(?:.*?{end}){{{int(digit) - 1}}}(.*?)(?:{end}|$))"
    return Expr("call", "regexp_extract", (value, _string(pattern), Expr("constant", "number", value="1")))


def _element_of(listed: Expr, position: Expr) -> Expr:
    """Return an element of a split string by `_part_of`; NULL if the string has fewer parts."""
    value, by, *_ = listed.parts
    part = _part_of(value, by, position)
    before = f"^(?s:(?:.*?{re.escape(str(by.value))}){{{int(str(position.value)) - 1}}})"
    condition = Expr("call", "regexp_matches", (value, _string(before)))
    return part if position.value == "1" else Expr("case", parts=(condition, part, Expr("constant", "NULL")))


def _of_any_zone(expr: Expr, zoned: Collection[tuple[str, str]]) -> bool:
    """Whether an expression reads columns as seconds since 1970 or in explicit zones only, never in the session's."""
    if expr.what == "call" and expr.name == "timezone" and (str(expr.parts[-1].value), expr.parts[-1].name) in zoned:
        return True
    if expr.what == "call" and (
        expr.name in ("epoch", "epoch_ms") or (expr.name == "date_part" and expr.parts[0].value in ("epoch", "EPOCH"))
    ):
        return True
    return expr.what != "item" and all(_of_any_zone(part, zoned) for part in expr.inner)


def _is_zone(name: str) -> bool:
    """Whether a time zone has this name."""
    try:
        return bool(zoneinfo.ZoneInfo(name))
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return False


def _string(value: str) -> Expr:
    return Expr("constant", "string", value=value)


_WIDTH = re.compile(
    r"\s*(\d{1,9})\s*(microsecond|millisecond|second|minute|hour|day|week|month|quarter|year|decade)s?\s*", re.I
)
_MONTHS = {"month": 1, "quarter": 3, "year": 12, "decade": 120}
_DAYS = {"day": 1, "week": 7}
_MILLISECONDS = {"millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000}
_MONDAY, _MONDAY_MILLISECONDS = "2000-01-03", 946_857_600_000


def bucketed(expr: Expr, kind: Callable[[Expr], Type]) -> Expr:
    """Write out the `time_bucket` calls of an expression; `kind` gives the type of a part.

    Raises
    ------
    ParameterError
        P070: nested buckets would make the SQL too long. P082: a width is not a literal of one unit, a bucket has an
        origin, or a moment has a time zone.
    """
    return _refuse_long(_bucketed(expr, kind))


def _bucketed(expr: Expr, kind: Callable[[Expr], Type]) -> Expr:
    expr = expr.mapped(lambda part: _bucketed(part, kind))
    if expr.what != "call" or expr.name != "time_bucket":
        return expr
    width = _width(expr.parts[0]) if len(expr.parts) == 2 else None
    if width is None:
        raise ParameterError(
            "P082",
            "sql: time_bucket takes a literal width of one unit, and no origin. Write it such as INTERVAL '2 weeks'.",
        )
    count, unit = width
    moment = _refuse_long(expr.parts[1])  # before DuckDB types what the buckets within it have become
    of = kind(moment).kind
    if of == ZONED_TIMESTAMP:
        raise ParameterError(
            "P082",
            "sql: time_bucket of a TIMESTAMPTZ is not read, since buckets of time zones differ. Cast it to TIMESTAMP, "
            "which is the time in the session's zone.",
        )
    timed = of != "DATE"
    if unit in _MILLISECONDS:
        # Some versions round to milliseconds, which would move the end of a bucket into the next one.
        instant = (
            Expr("call", "date_trunc", (Expr("constant", "string", value="millisecond"), moment)) if timed else moment
        )
        since = _minus(Expr("call", "epoch_ms", (instant,)), _number(_MONDAY_MILLISECONDS))
        start = _minus(Expr("call", "epoch_ms", (instant,)), _rest(since, count * _MILLISECONDS[unit]))
        out = Expr("call", "epoch_ms", (start,))
        return replace(out if timed else Expr("cast", "DATE", (out,)), alias=expr.alias)
    date = Expr("cast", "DATE", (moment,)) if timed else moment
    out = _months(date, count * _MONTHS[unit]) if unit in _MONTHS else _days(date, count * _DAYS[unit])
    return replace(Expr("cast", "TIMESTAMP", (out,)) if timed else out, alias=expr.alias)


def bucket_width(expr: Expr) -> tuple[Expr, str] | None:
    """Return the moment and the width of a bucket shorter than a day, in the form of `bucketed`."""
    start = expr.parts[0] if expr.what == "call" and expr.name == "epoch_ms" else expr
    if start.what != "call" or start.name != "-" or [part.name for part in start.parts] != ["epoch_ms", "%"]:
        return None
    [moment], width = start.parts[0].parts, start.parts[1].parts[1]
    moment = moment.parts[1] if moment.name == "date_trunc" else moment
    return (moment, f"{width.value} milliseconds") if width.what == "constant" else None


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
    return Expr("call", "make_date", tuple(Expr("cast", "BIGINT", (part,)) for part in parts))


def _rest(value: Expr, width: int) -> Expr:
    """Return the distance of a number from the last multiple of a width."""
    over = Expr("call", "%", (value, _number(width)))
    return Expr("call", "%", (_plus(over, _number(width)), _number(width)))


def _number(value: int) -> Expr:
    return Expr("constant", "number", value=str(value))


def _plus(first: Expr, second: Expr) -> Expr:
    return Expr("call", "+", (first, second))


def _minus(first: Expr, second: Expr) -> Expr:
    return Expr("call", "-", (first, second))


class RowExpressions:
    """Writes expressions over one row.

    Parameters
    ----------
    typing : Typing
    zone : str or None
        The session's time zone, for reading timestamps with time zone, inside TRY. None for a condition, which reads
        them in UTC.
    row : str
        The name of the row's struct in the SQL.
    """

    def __init__(self, typing: Typing, zone: str | None = "UTC", row: str = ROW) -> None:
        self._typing, self.zone, self._row = typing, zone or "UTC", row
        self._of_condition = zone is None
        self._cache: dict[tuple[Expr, tuple[tuple[str, str, str, Type], ...]], Written] = {}

    def write(self, expr: Expr, columns: Columns, target: str | None = None) -> Written:
        """Return the SQL of an expression over columns, which is NULL where the expression fails.

        Parameters
        ----------
        expr : Expr
            With items as columns.
        columns : mapping
            By the relation's number and the column's name.
        target : str or None
            A type to cast to.

        Raises
        ------
        ParameterError
            P070, P080, P082, P084: the expression is not allowed over rows.
        """
        if expr.what == "item" and target is None:
            source = columns[(str(expr.value), expr.name)]
            return Written(source.sql, source.type, bare=True)
        if target is not None:
            expr = Expr("cast", target, (expr,))
        read = list(dict.fromkeys((str(part.value), part.name) for part in expr.walk() if part.what == "item"))
        key = (expr, tuple((*column, columns[column].sql, columns[column].type) for column in read))
        if key not in self._cache:
            with about(expr):
                self._cache[key] = self._write(expr, read, columns)
        return self._cache[key]

    def value(self, sql: str) -> str | None:
        """Return the value of SQL over literals, as text; None for NULL, or if it fails."""
        return self._typing.value(sql)

    def type(self, expr: Expr, columns: Columns) -> Type:
        """Return the type of an expression."""
        return self.write(expr, columns).type

    def condition(self, expr: Expr, columns: Columns) -> str:
        """Return the SQL that runs for a condition; it may raise errors that TRY catches.

        Raises
        ------
        ParameterError
            P080, P082, P084: a part does not take these types.
        """
        try:
            expr = bucketed(expr, lambda part: self.type(part, columns))
            return self.write(expr, columns, "BOOLEAN").body
        except ParameterError as error:
            message = error.message
            raise error.saying(
                message.replace("sql", "condition", 1) if message.startswith("sql") else message
            ) from None

    def _write(self, expr: Expr, read: Sequence[tuple[str, str]], columns: Columns) -> Written:
        names = {key: key[1] if self._of_condition else f"c{number}" for number, key in enumerate(read)}
        types = [(names[key], columns[key].type) for key in read]
        zoned: set[str] = set()
        if not self._of_condition:
            zoned = {name for name, kind in types if kind.kind == ZONED_TIMESTAMP}
            types = [(name, Type("TIMESTAMP") if name in zoned else kind) for name, kind in types]
        zone = "UTC" if _of_any_zone(expr, [key for key in read if names[key] in zoned]) else self.zone
        texts: list[str] = []
        moved = self._moved(expr, columns, zone)
        sql = UntypedSql(names, texts).sql(moved)
        # Without a column the SQL would have no FROM.
        tree = self._typing.tree(sql, types or [("nothing", Type("BOOLEAN"))], texts)
        if tree is None:
            raise self._refusal(expr, columns)

        def column(name: str) -> str:
            value = field(self._row, name)
            return call("timezone", text(zone), value) if name in zoned else value

        judge = Judge(dict(types), column, self._typing.newer)
        try:
            body = judge.write(tree)
        except ParameterError as error:
            if self._of_condition:
                raise
            message = error.message.replace("condition", "sql", 1)
            for key in read:
                message = message.replace(f"column '{names[key]}'", f"column {show(key[1])}")
            raise error.saying(message) from None
        kind = tree.type
        if self._of_condition:
            return Written("", kind, bare=False, body=body)
        if (zoned or moved != expr) and kind == Type("TIMESTAMP") and self._is_zoned(expr, columns):
            kind, body = Type(ZONED_TIMESTAMP), call("timezone", text(self.zone), f"({body})")
        if not zoned and read and cannot_fail(tree):
            plain = Judge(dict(types), {names[key]: columns[key].sql for key in read}.__getitem__, self._typing.newer)
            return Written(plain.write(tree), kind, bare=False, body=body)
        if not read:
            return Written(f"TRY({body})", tree.type, bare=False, body=body)
        row = ", ".join(f"{identifier(names[key])} := {columns[key].sql}" for key in read)
        rows = call("list_value", f"system.main.struct_pack({row})")
        lambdas = call("list_transform", rows, f"lambda {ROW}: TRY({body})")
        if kind.kind in TEXT and any(part.what == "call" and part.name == "||" for part in expr.walk()):
            lambdas = call("list_transform", lambdas, _SHORT_ENOUGH)
        return Written(call("list_extract", lambdas, "1"), kind, bare=False, body=body)

    def _is_zoned(self, expr: Expr, columns: Columns) -> bool:
        """Whether DuckDB types an expression as timestamp with time zone."""
        read = list(dict.fromkeys((str(part.value), part.name) for part in expr.walk() if part.what == "item"))
        names = {key: f"c{number}" for number, key in enumerate(read)}
        texts: list[str] = []
        sql = UntypedSql(names, texts).sql(expr)
        nulls = [f"NULL::{columns[key].type.sql} AS {identifier(names[key])}" for key in read]
        nulls += [f"NULL::VARCHAR AS {identifier(f'{_TEXT}{number}')}" for number in range(1, len(texts) + 1)]
        types = self._typing.columns(f"SELECT {sql} AS x FROM (SELECT {', '.join(nulls) or '1'})")
        return types is not None and types[0][1].kind == ZONED_TIMESTAMP

    def _moved(self, expr: Expr, columns: Columns, zone: str) -> Expr:
        """Return an expression with plain timestamps in one zone for all timestamps with time zone.

        AT TIME ZONE turns a timestamp into one with time zone, and one with time zone into a timestamp of that zone.
        """
        if expr.what == "cast" and expr.name == _ZONED_CAST and not self._of_condition:
            expr = _at_time_zone(expr, self.zone)
        expression = expr.mapped(lambda part: self._moved(part, columns, zone))
        if expr.what != "call" or expr.name != "timezone":
            return expression
        [literal, value] = expr.parts if len(expr.parts) == 2 else (Expr("constant"), expr)
        if literal.what != "constant" or literal.name != "string" or not _is_zone(str(literal.value)):
            raise ParameterError(
                "P082",
                "sql: AT TIME ZONE takes the name of a zone as a literal, such as 'Europe/Berlin'. Write it out.",
            )
        zones = (literal, _string(zone))
        out, into = zones if self._is_zoned(value, columns) else zones[::-1]
        return Expr("call", "timezone", (out, Expr("call", "timezone", (into, expression.parts[1]))))

    def _refusal(self, expr: Expr, columns: Columns) -> ParameterError:
        """Return the error for an expression that DuckDB does not bind; it names the smallest such part."""
        for part in expr.inner:
            if part.what in ("item", "constant", "lambda"):
                continue
            try:
                self.write(part, columns)
            except ParameterError as error:
                return error
        what = {"call": expr.name, "compare": expr.name, "cast": f"a cast to {expr.name}", "field": "a field"}.get(
            expr.what, expr.what
        )
        read = {part.name: columns[(str(part.value), part.name)].type for part in expr.walk() if part.what == "item"}
        types = ", ".join(f"column {show(name)} is {kind.shown}" for name, kind in read.items())
        if self._of_condition:
            for kind in read.values():
                if not (kind.known or kind.kind in (ZONED_TIMESTAMP, "STRUCT")):
                    return unknown(types, kind)
            if expr == Expr("cast", "BOOLEAN", expr.parts):
                return ParameterError(
                    "P080",
                    "condition is neither true nor false. Compare what it computes with a value, such as ... > 0.",
                )
        of = f": {types}" if types else ""
        return ParameterError(
            "P080",
            f"{'condition' if self._of_condition else 'sql'}: {what} does not fit what it is given there{of}. Cast a "
            f"value to a type that it takes, or compute it in a view. {_HINT}",
        )


class UntypedSql:
    """Writes the SQL that DuckDB types, with full function names, and a column for each string in a cast.

    Parameters
    ----------
    names : mapping of (str, str) to str
        The columns in this SQL, by the relation's number and the column's name.
    texts : list of str
        Collects the strings in casts.
    """

    def __init__(self, names: Mapping[tuple[str, str], str], texts: list[str]) -> None:
        self._names, self._texts = names, texts
        self._writers: Mapping[str, Callable[[Expr], str]] = {
            "item": lambda expr: identifier(self._names[(str(expr.value), expr.name)]),
            "constant": constant_sql,
            "and": lambda expr: f"({' AND '.join(self._all(expr))})",
            "or": lambda expr: f"({' OR '.join(self._all(expr))})",
            "not": lambda expr: f"(NOT {self.sql(expr.parts[0])})",
            "null": lambda expr: f"({self.sql(expr.parts[0])} IS NULL)",
            "present": lambda expr: f"({self.sql(expr.parts[0])} IS NOT NULL)",
            "coalesce": lambda expr: coalesce(*self._all(expr)),
            "compare": lambda expr: "({1} {0} {2})".format(expr.name, *self._all(expr)),
            "between": lambda expr: "({0} >= {1} AND {0} <= {2})".format(*self._all(expr)),
            "in": self._in,
            "case": self._case,
            "cast": self._cast,
            "call": self._call,
            "collate": self._collate,
            "element": self._element,
            "field": self._element,
        }

    def sql(self, expr: Expr) -> str:
        """Return the SQL of an expression.

        Raises
        ------
        ParameterError
            P070: a part is not allowed over one row, or the SQL is too long.
        """
        writer = self._writers.get(expr.what)
        if writer is None:
            raise ParameterError("P070", f"sql: {_description(expr)} cannot be asked of a row. {_HINT}")
        sql = writer(expr)
        if len(sql) > _MOST_CHARACTERS:
            raise _too_long()
        return sql

    def _all(self, expr: Expr) -> list[str]:
        return [self.sql(part) for part in expr.parts]

    def _in(self, expr: Expr) -> str:
        first, *rest = self._all(expr)
        return f"({first} IN ({', '.join(rest)}))"

    def _case(self, expr: Expr) -> str:
        parts = self._all(expr)
        whens = "".join(f" WHEN {when} THEN {then}" for when, then in zip(parts[:-1:2], parts[1::2], strict=True))
        return f"(CASE{whens} ELSE {parts[-1]} END)"

    def _cast(self, expr: Expr) -> str:
        if expr.name == _ZONED_CAST:
            raise ParameterError(
                "P070",
                "sql casts to TIMESTAMPTZ, which would depend on the session's time zone. Cast to TIMESTAMP: a column "
                "with a time zone is one, in UTC.",
            )
        if expr.name.partition("(")[0] not in TYPES or expr.name.endswith("]"):
            raise ParameterError("P070", f"sql casts a row's value to {expr.name}, which it may not. {_HINT}")
        [operand] = expr.parts
        if operand.what == "constant" and operand.name == "string":
            self._texts.append(str(operand.value))
            inner = identifier(f"{_TEXT}{len(self._texts)}")
        else:
            inner = self.sql(operand)
        return f"TRY_CAST({inner} AS {expr.name})" if expr.flag else cast(inner, expr.name)

    def _call(self, expr: Expr) -> str:
        if expr.name == "row":
            raise ParameterError(
                "P070",
                "sql makes a row of several columns. Take different rows of them in a subquery: SELECT count(*) FROM "
                "(SELECT DISTINCT a, b FROM ...).",
            )
        if expr.name not in CALLED:
            raise ParameterError(
                "P070", f"sql calls {show(expr.name)} on rows, which is no function that may be called there. {_HINT}"
            )
        if expr.flag or expr.filter or expr.orders or expr.names:
            raise ParameterError("P070", f"sql: {expr.name} takes no DISTINCT, FILTER, ORDER BY or names. {_HINT}")
        return call(expr.name, *self._all(expr))

    def _collate(self, expr: Expr) -> str:
        if expr.name.lower() not in BY_BYTES:
            raise ParameterError("P070", f"sql: COLLATE {expr.name} cannot be asked of a row. {_HINT}")
        return f"({self.sql(expr.parts[0])} COLLATE C)"

    def _element(self, expr: Expr) -> str:
        struct, key = expr.parts
        if key.what != "constant" or key.name != "string":
            raise ParameterError("P070", f"sql reads an element of a list, which it may not. {_HINT}")
        return call("struct_extract", self.sql(struct), text(str(key.value)))


def _description(expr: Expr) -> str:
    return {
        "subquery": "a subquery that stands there",
        "star": "*",
        "window": f"{expr.name} OVER ()",
    }.get(expr.what, expr.what)


def is_text(kind: Type) -> bool:
    """Whether DuckDB compares values of a type as text."""
    return kind.kind in TEXT
