"""Finds the groups: the public values of an expression, from declarations, literals, ranges and public tables.

If an expression has no values of its own, DuckDB lists its values over the values of its parts. Nothing here reads rows
of people.

**Conditions on a key.** A counted row meets every condition. If a condition reads nothing but the key's expression, the
row's value decides it: the condition, written over the listed values, is true for the row's value as it is for the row.
So values for which it is not true have no rows, and are not listed: `hour(ts) BETWEEN 8 AND 10`, `ward <> 'A'`. The
same holds for days between literals and conditions on the date, and for moments in steps if the condition is the same
throughout a step. The list still follows from literals, declarations and public tables alone, so it is public: rows do
not choose it. A wrong list would lose or add groups, which changes meaning, never privacy.

Conditions on a part of a date, such as ``year(day) = 2025`` or ``date_trunc('month', day) >= …``, bound its days. A
condition keeps at most the days between these bounds. The bounds choose the groups, and the periods that a query is
charged to; the condition itself still filters the rows.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from dpsql.contract.expression.kinds import FLOATS, INTEGERS, ZONED_TIMESTAMP, Type
from dpsql.contract.keys import MOST_GROUPS
from dpsql.contract.parameters import show
from dpsql.contract.periods import PERIODS
from dpsql.contract.query.catalogue import BEFORE_NARROW_KEYS, BEFORE_TOTAL_ORDERS
from dpsql.contract.query.expressions import ColumnSql, RowExpressions, bucket_width, literal_time
from dpsql.contract.query.intervals import Limits, fails_without, finite_part, has_value, literal_number
from dpsql.contract.query.nodes import Expr, interval_sql
from dpsql.contract.query.relations import PUBLIC, Item, KeyValues, Scope, fraction_text
from dpsql.contract.query.spellings import has_one_spelling
from dpsql.contract.query.split import QueryKey
from dpsql.errors import ParameterError
from dpsql.rendering import call, cast, identifier, text

_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_UNITS = frozenset(("day", "week", *_MONTHS))


def cut_date(expr: Expr) -> tuple[Expr, str] | None:
    """Return the date that an expression truncates, and its unit: ``'number'`` of the year, or one of `_UNITS`."""
    name, parts = expr.name, expr.parts
    if expr.what == "cast" and name in ("DATE", "TIMESTAMP"):
        cut = cut_date(parts[0])
        return cut if cut is not None and cut[1] != "number" else None
    if expr.what != "call":
        return None
    if name == "year" and len(parts) == 1:
        return parts[0], "number"
    if len(parts) != 2 or parts[0].what != "constant":
        return None
    part = str(parts[0].value).lower()
    if name == "date_part" and part == "year":
        return parts[1], "number"
    return (parts[1], part) if name == "date_trunc" and part in _UNITS else None


_MONTH = frozenset(("month", "quarter"))
# The parts of a date that its parts and functions tell; the day of the year tells the others beside the year.
_TOLD = {
    **{name: frozenset((name,)) for name in ("year", "isoyear", "quarter", "week", "day")},
    **{"month": _MONTH, "yearweek": frozenset(("isoyear", "week")), "weekofyear": frozenset(("week",))},
    **{"dayofmonth": frozenset(("day",)), **dict.fromkeys(("doy", "dayofyear"), _MONTH | {"day"})},
}
_TOLD_BY_UNIT = {
    **{"year": _TOLD["year"], "quarter": frozenset(("year", "quarter")), "month": _MONTH | {"year"}},
    "week": _TOLD["yearweek"],
}
_SPECIFIERS = {
    **{"Y": "year", "m": "month", "b": "month", "B": "month", "d": "day", "j": "doy", "G": "isoyear", "V": "week"}
}


def told_parts(expr: Expr) -> tuple[Expr, frozenset[str]]:
    """Return the date that an expression computes from, and the parts of it that tell values apart.

    The parts are `day`, `week`, `month`, `quarter`, `year` and `isoyear`. There are none for what is not known.
    """
    name, parts = expr.name, expr.parts
    if expr.what == "item":
        return expr, frozenset(PERIODS) | {"isoyear"}
    if expr.what == "cast" and name in ("DATE", "TIMESTAMP"):
        return told_parts(parts[0])
    if expr.what == "call" and len(parts) == 1 and name in _TOLD:
        return parts[0], _TOLD[name]
    literal = str(parts[0].value).lower() if len(parts) == 2 and parts[0].what == "constant" else ""
    if expr.what == "call" and name == "date_part" and literal in _TOLD:
        return parts[1], _TOLD[literal]
    if expr.what == "call" and name == "date_trunc" and literal in (*_STEPS, "second", *PERIODS):
        base, names = told_parts(parts[1])
        return base, names & _TOLD_BY_UNIT.get(literal, names)
    if expr.what == "call" and name == "strftime" and len(parts) == 2:
        base, form = parts if parts[1].what == "constant" else parts[::-1]
        specifiers = [_SPECIFIERS.get(specifier) for specifier in re.findall(r"%(-?.)", str(form.value))]
        return base, frozenset[str]().union(*(_TOLD[part] for part in specifiers if part is not None))
    return expr, frozenset()


def day_bounds(part: str, sign: str, literal: Expr) -> Iterator[tuple[str, Expr]]:
    """Yield comparisons that hold for a date if its truncation by `cut_date` compares with a literal.

    Yield nothing if the literal is computed, or no such date.
    """
    start = year_of(literal) if part == "number" else day_of(literal)
    if start is None:
        return
    first = _begin(part, start)
    after = _end(part, first)
    is_first = start == first
    if sign in (">=", ">", "="):
        day = after if (sign == ">" or not is_first) else first
        if day is not None:
            yield ">=", _date_literal(day)
    if sign in ("<=", "<", "="):
        day = first if sign == "<" and is_first else after
        if day is not None:
            yield "<", _date_literal(day)


def day_of(literal: Expr) -> datetime.date | None:
    """Return the day of a literal, which may be truncated; None unless it is midnight."""
    while literal.what == "cast":
        literal = literal.parts[0]
    cut = cut_date(literal)
    if cut is not None and cut[1] != "number":
        day = _day(cut[0])
        return None if day is None else _begin(cut[1], day[0])
    day = _day(literal)
    return day[0] if day is not None and day[1] else None


def year_of(literal: Expr) -> datetime.date | None:
    """Return the first day of the year that a literal numbers."""
    text = str(literal.value)
    number = int(text) if literal.what == "constant" and text.isdigit() and len(text) <= 4 else 0
    return datetime.date(number, 1, 1) if number else None


def _begin(part: str, day: datetime.date) -> datetime.date:
    """Return the first day of the unit that has a day."""
    if part in ("day", "week"):
        return day - datetime.timedelta(days=day.weekday() if part == "week" else 0)
    months = _MONTHS.get(part, 12)
    return day.replace(month=(day.month - 1) // months * months + 1, day=1)


def _end(part: str, first: datetime.date) -> datetime.date | None:
    """Return the first day after the unit that begins on a day; None if there is no such date."""
    if part in ("day", "week"):
        days = first.toordinal() + (7 if part == "week" else 1)
        return datetime.date.fromordinal(days) if days <= datetime.date.max.toordinal() else None
    index = first.year * 12 + first.month - 1 + _MONTHS.get(part, 12)
    return None if index // 12 > datetime.MAXYEAR else datetime.date(index // 12, index % 12 + 1, 1)


def _date_literal(day: datetime.date) -> Expr:
    return Expr("cast", "DATE", (Expr("constant", "string", value=day.isoformat()),))


_MOST_INTEGERS, _MOST_PARTS = 10_000, 3
_MOST_BIGINT = 2**63 - 1
# The origin of keys that are all whole numbers between bounds, whether they occur or not.
WHOLE_NUMBERS = "whole numbers"
_TYPES = frozenset(("BOOLEAN", "ENUM"))
# What conditions on a row consist of.
_OF_ROWS = frozenset(
    (
        *("item", "constant", "and", "or", "not", "null", "present", "coalesce", "compare", "between", "in", "case"),
        *("cast", "call", "collate", "element", "field"),
    )
)
_BOOLEANS = frozenset(("and", "or", "not", "null", "present", "in", "between", "compare"))
_WHOLE = frozenset(("floor", "ceil", "ceiling", "round", "trunc", "//"))
_DAYS = frozenset(
    (
        *("year", "years", "month", "months", "day", "days", "quarter", "quarters", "week", "weeks", "decade"),
        *("century", "millennium", "isoyear", "dow", "isodow", "doy", "dayofmonth", "dayofweek", "weekday"),
        *("dayofyear", "weekofyear", "yearweek", "y", "mon"),
    )
)
# What names of dates say, as specifiers of `strftime`.
_TEXTS_OF_DATES = {"dayname": "A", "monthname": "B"}
_STEPS = {"hour": "1 hour", "hours": "1 hour", "minute": "1 minute", "minutes": "1 minute"}
# Steps of moments at which every value of a coarser local time occurs, also where clocks go forward or back.
_IN_ZONE = {"1 day": "1 hour", "1 hour": "15 minutes", "1 minute": "1 minute"}
# Beyond this many moments are not listed at all; more than `MOST_GROUPS` are listed by so many at once.
_MOST_MOMENTS, _STEPS_AT_ONCE = 100_000_000, 1_000
_DATES = frozenset(("DATE", "TIMESTAMP", ZONED_TIMESTAMP))


Days = Sequence[tuple[datetime.date, datetime.date]]


class KeyFinder:
    """Finds public values of expressions of one query.

    Parameters
    ----------
    scope : Scope
    expressions : RowExpressions
    conditions : sequence of Expr
        Conditions of every counted row.
    interval : callable
        Returns the interval of an expression.
    revised : callable
        As `dpsql.contract.query.work.Splitting.revised`.
    during : callable
        Returns the first and last day of each span of days in which a date of the rows counts; none for any other.
    """

    def __init__(
        self,
        scope: Scope,
        expressions: RowExpressions,
        conditions: Sequence[Expr],
        interval: Callable[[Expr], Limits],
        revised: Callable[..., bool],
        during: Callable[[Expr], Days] = lambda _: (),
    ) -> None:
        self._scope, self._expressions, self._revised, self._during = scope, expressions, revised, during
        self._conditions, self._interval = conditions, interval

    def find(self, expr: Expr) -> KeyValues | None:
        """Return the public values of an expression; None if there are none."""
        return self._direct(expr) or self._within_conditions(expr, self._image(expr))

    def _direct(self, expr: Expr) -> KeyValues | None:
        """Return the values of an expression that are not those of its parts."""
        return self._within_conditions(expr, self._listed(expr))

    def _within_conditions(self, expr: Expr, keys: KeyValues | None) -> KeyValues | None:
        """Return the values that meet the conditions on an expression alone."""
        if keys is None or not any(node.what == "item" for node in expr.walk()):
            return keys
        reading = [c for c in self._conditions if _replaced(c, expr, Expr("item")) != c]
        conditions = [c for c in reading if c not in keys.meets]
        kind = self._type(expr)
        if not conditions or not (has_one_spelling(kind) or kind.kind in FLOATS):
            return keys  # rows may spell the value differently
        where = self._where({expr: '"k0"."v"'}, conditions)
        if not where or not self._revised(True, BEFORE_NARROW_KEYS):
            return keys
        query = f'SELECT v FROM ({values_query(keys, kind)}) AS "k0"("v") WHERE {where}'
        return replace(keys, values=None, query=query)

    def _where(self, listed: Mapping[Expr, str], conditions: Sequence[Expr]) -> str:
        """Return the SQL of conditions that read nothing but listed expressions, over the SQL of their values."""
        read = {("k0", sql): ColumnSql(sql, self._type(expr)) for expr, sql in listed.items()}
        out = []
        for condition in conditions:
            over = condition
            for expr, sql in listed.items():
                over = _replaced(over, expr, Expr("item", sql, value="k0"))
            parts = list(over.walk())
            if over != condition and all(
                part.what in _OF_ROWS and (part.what != "item" or (str(part.value), part.name) in read)
                for part in parts
            ):
                out.append(self._expressions.write(over, read).sql)
        return " AND ".join(out)

    def _listed(self, expr: Expr) -> KeyValues | None:
        if not any(node.what == "item" for node in expr.walk()):
            literal = self._expressions.write(expr, {})
            return KeyValues(None, f"SELECT {literal.sql} AS v", "a literal")
        choices = self._listed_values(expr)
        if choices is not None:
            return choices
        if expr.what == "item":
            return self._column(expr)
        if expr.what in _BOOLEANS:
            return self._of_type(expr, KeyValues(("true", "false"), None, "BOOLEAN"), before=True)
        if expr.what == "case":
            return self._case(expr)
        if expr.what == "coalesce" and not expr.flag:
            return self._coalesced(expr)
        part = finite_part(expr)
        if part is not None:
            values = tuple(map(str, range(part[0], part[1] + 1)))
            return self._dated(expr) or self._of_type(expr, KeyValues(values, None, "the parts of a date"))
        return self._dated(expr) or self._cyclic(expr) or self._integers_of(expr)

    def _column(self, expr: Expr) -> KeyValues | None:
        item, column = self._scope.item(str(expr.value)), self._scope.column(expr)
        keys = column.keys()
        if keys is None and item.relation.level == PUBLIC:
            return self._public(expr)
        if keys is None:
            keys = self._equated(expr, column.type) or self._dated(expr)
        if keys is None and _is_whole(column.type):
            keys = self._integers(expr, column.type)
        if keys is not None and item.optional:
            keys = _with_null(keys, column.type)
        if keys is not None and keys.origin in _TYPES and None in (keys.values or ()) and self._is_present(expr):
            keys = replace(keys, values=tuple(value for value in keys.values or () if value is not None))
        return keys

    def _of_type(self, expr: Expr, keys: KeyValues, *, before: bool = False) -> KeyValues:
        """Return values that follow from a type or from bounds, with NULL if a counted row may have it.

        Earlier versions added NULL according to `before`.
        """
        null = expr.what not in ("null", "present") and not self._is_present(expr)
        before = before and expr.what not in ("null", "present")
        if not self._revised(null != before):
            null = before
        return _with_null(keys, self._type(expr)) if null else keys

    def _is_present(self, expr: Expr) -> bool:
        """Return whether constraints, joins and conditions exclude NULL from all counted rows."""
        if any(fails_without(condition, lambda part: part == expr) for condition in self._conditions):
            return True
        if expr.what == "item":
            item, column = self._scope.item(str(expr.value)), self._scope.column(expr)
            return column.is_present and not (item.optional or item.hidden)
        moved = _moved_part(expr)
        if moved is not None:
            return self._is_present(moved) and self._revised(True, BEFORE_NARROW_KEYS)
        keeps = expr.what in ("cast", *_BOOLEANS) or finite_part(expr) is not None
        if keeps or (expr.name in _WHOLE and (expr.name != "//" or literal_number(expr.parts[1]))):
            return all(map(self._is_present, expr.parts))
        return has_value(expr, self._is_present)

    def _equated(self, expr: Expr, kind: Type) -> KeyValues | None:
        """Return the values of the public column that equals a column in every counted row."""
        twin = self._twin(expr)
        if twin is None:
            return None
        keys = self._public(twin)
        if self._type(twin) == kind:
            return keys
        listed = f"SELECT TRY_CAST(v AS {kind.sql}) AS v FROM ({keys.query}) AS listed(v)"
        return replace(keys, query=f"SELECT DISTINCT v FROM ({listed}) WHERE v IS NOT NULL")

    def _twin(self, expr: Expr) -> Expr | None:
        """Return the public column that conditions equate with a column; None if there is none."""
        for condition in self._conditions:
            if condition.what == "compare" and condition.name == "=" and expr in condition.parts:
                other = condition.parts[1 - condition.parts.index(expr)]
                if other.what == "item" and self._scope.own(other):
                    item = self._scope.item(str(other.value))
                    more = self._type(other).collated and not self._type(expr).collated
                    if item.relation.level == PUBLIC and not item.optional and not self._revised(more):
                        return other
        return None

    def _public(self, expr: Expr) -> KeyValues:
        """Return the values of a column of a public table."""
        item = self._scope.item(str(expr.value))
        return KeyValues(None, self.rows_of(item, [expr]), _public_name(item))

    def rows_of(self, item: Item, exprs: Sequence[Expr]) -> str:
        """Return the query of a public table's combinations of expressions, in the rows that conditions keep.

        Only conditions on this table apply. An outer join adds a row of NULL, for people who match no row.
        """
        own = [
            condition
            for condition in self._conditions
            if self._scope.numbers(condition) == {item.id} and self._scope.own(condition)
        ]
        where = [self._expressions.write(condition, self._scope.columns(condition)).sql for condition in own]
        source = item.relation.sql
        if item.optional:
            columns = item.relation.columns
            names = ", ".join(identifier(column.sql) for column in columns)
            none = ", ".join(cast("NULL", column.type.sql) for column in columns)
            source = f"(SELECT {names} FROM {source} UNION ALL SELECT {none})"
        listed = ", ".join(self._expressions.write(expr, self._scope.columns(expr)).sql for expr in exprs)
        query = f"SELECT DISTINCT {listed} FROM {source} AS {identifier(item.id)}"
        return query + (f" WHERE {' AND '.join(where)}" if where else "")

    def together(self, groups: Sequence[tuple[Expr, QueryKey]]) -> list[QueryKey]:
        """Return the keys of groups; keys from one public table are combined as in its rows.

        The table has far fewer combinations than all values have. Of the caller's keys and declared keys, those remain
        that the table has.
        """
        out = [key for _, key in groups]
        of_item: dict[str, list[int]] = {}
        for index, (expr, _) in enumerate(groups):
            read = {str(part.value) for part in self._over_twins(expr).walk() if part.what == "item"}
            if len(read) == 1:
                of_item.setdefault(read.pop(), []).append(index)
        for id_, indexes in of_item.items():
            item = self._scope.item(id_)
            if item.relation.level != PUBLIC or len(indexes) < 2:
                continue
            declared = [index for index in indexes if out[index].origin in ("stated", "declared")]
            if declared and not self._revised(True, BEFORE_NARROW_KEYS):
                indexes, declared = [index for index in indexes if index not in declared], []
            if len(indexes) > 1:
                query = self._in_rows(item, [(groups[index][0], out[index]) for index in indexes])
                names = tuple(out[index].column for index in indexes)
                for position in indexes:
                    out[position] = replace(
                        out[position], values=None, query=query, origin=_public_name(item), together=names
                    )
        return out

    def _in_rows(self, item: Item, keys: Sequence[tuple[Expr, QueryKey]]) -> str:
        """Return the query of the combinations of keys in the rows of a public table."""
        query = self.rows_of(item, [self._over_twins(expr) for expr, _ in keys])
        values = {expr: f'"k0".{identifier(key.column)}' for expr, key in keys}
        others = [
            condition
            for condition in self._conditions
            if self._scope.numbers(condition) != {item.id} and not all(part.what == "item" for part in condition.parts)
        ]
        where = self._where(values, others)
        where = where if where and self._revised(True, BEFORE_NARROW_KEYS) else ""
        joins = ""
        for expr, key in keys:
            if key.origin in ("stated", "declared"):
                among = values_query(KeyValues(key.values, key.query, key.origin), self._type(expr))
                listed = identifier(f"of_{key.column}")
                joins += f' SEMI JOIN ({among}) AS {listed}("v") ON {listed}."v" IS NOT DISTINCT FROM {values[expr]}'
        if not joins and not where:
            return query
        names = ", ".join(identifier(key.column) for _, key in keys)
        return f'SELECT * FROM ({query}) AS "k0"({names}){joins}' + (f" WHERE {where}" if where else "")

    def _over_twins(self, expr: Expr) -> Expr:
        """Return an expression that reads equal public columns in place of columns of people."""
        if expr.what != "item":
            return expr.mapped(self._over_twins)
        twin = self._twin(expr)
        return expr if twin is None or self._type(twin) != self._type(expr) else twin

    def _case(self, expr: Expr) -> KeyValues | None:
        positions = [*range(1, len(expr.parts) - 1, 2), len(expr.parts) - 1]
        results = [expr.parts[position] for position in positions]
        kind = self._type(expr)
        if all(result.what == "constant" for result in results):
            values = tuple(dict.fromkeys(None if result.name == "NULL" else str(result.value) for result in results))
            return KeyValues(values, None, "the results of CASE")
        branches = [self.find(result) for result in results]
        if any(branch is None for branch in branches):
            return None
        queries = [values_query(branch, kind) for branch in branches if branch is not None]
        return KeyValues(None, " UNION ".join(f"({query})" for query in queries), "the results of CASE")

    def _coalesced(self, expr: Expr) -> KeyValues | None:
        """Return the values of all arguments; the caller's keys leave NULL out."""
        branches = [self.find(part) for part in expr.parts]
        queries = [
            values_query(branch, self._type(part)) for branch, part in zip(branches, expr.parts, strict=True) if branch
        ]
        if len(queries) < len(branches):
            return None
        kind = self._type(expr)
        listed = [f"SELECT CAST(v AS {kind.sql}) AS v FROM ({query}) AS listed(v)" for query in queries]
        some = [f"({query} WHERE v IS NOT NULL)" for query in listed[:-1]]
        origin = ", ".join(dict.fromkeys(branch.origin for branch in branches if branch))
        return KeyValues(None, " UNION ".join([*some, f"({listed[-1]})"]), origin)

    def _type(self, expr: Expr) -> Type:
        return self._expressions.type(expr, self._scope.columns(expr))

    # Values that conditions name.

    def _listed_values(self, expr: Expr) -> KeyValues | None:
        if self._conditions and self._revised(self._type(expr).collated):
            return None  # rows spell the values differently
        for condition in self._conditions:
            values = _values_of(condition, expr)
            if values is not None:
                meets = () if any(part.what == "and" for part in condition.walk()) else (condition,)
                return KeyValues(values, None, "the values in WHERE", meets)
        return None

    # Dates between literals.

    def _dated(self, expr: Expr) -> KeyValues | None:
        base, step = _date_base(expr)
        if base is None:
            return None
        kind = self._type(base)
        if kind.kind not in _DATES or (step is None and kind.kind != "DATE"):
            return None
        bounds = self._range(base)
        if bounds is None:
            return self._zoned(expr, base, step)
        first, last = bounds
        spans = self._periods(base)
        listed = self._points(expr, base, bounds, (step or "1 day",) * 2, apart=len(spans) > 1)
        if listed is None:
            return None
        local = "TIMESTAMP" if kind.kind == ZONED_TIMESTAMP else kind.sql
        inner = f"SELECT CAST(d AS {local}) AS v FROM ({listed}) WHERE d >= {first} AND d <= {last}"
        if len(spans) > 1:  # no period between those that count
            inner += f" AND ({' OR '.join(f'd BETWEEN {start} AND {end}' for start, end in spans)})"
        if kind.kind == ZONED_TIMESTAMP:  # the points above are in the zone
            inner = f"SELECT {call('timezone', text(self._expressions.zone), 'v')} AS v FROM ({inner})"
        return self._of_points(
            expr, base, inner, [c for c in self._conditions if kind.kind == "DATE" or _is_steady(c, base, step)]
        )

    def _points(
        self,
        expr: Expr,
        base: Expr,
        ends: tuple[str, str],
        steps: tuple[str, str],
        *,
        name: str = "d",
        apart: bool = False,
    ) -> str | None:
        """Return the query of moments between two ends, and of the last one; None if the bounds need not be asked.

        Parameters
        ----------
        expr, base : Expr
            The key, and the date that it is computed from.
        ends : tuple of str
        steps : tuple of str
            Steps in which the key's values occur, and those of the list, which may be finer.
        name : str
            The column of the query.
        apart : bool
            Whether the caller's periods are less than all of the time between the ends.

        Raises
        ------
        ParameterError
            P068: the bounds are too far apart. Nothing was listed yet.
        """
        first, last = ends
        own, finer = steps
        series = call("generate_series", first, last, f"CAST('{finer}' AS INTERVAL)")
        listed = f"SELECT {call('unnest', call('list_concat', series, call('list_value', last)))} AS {name}"
        few = MOST_GROUPS * _seconds_of(own)
        seconds = self._seconds(base, ends, few)
        if seconds <= few or not self._revised(True, BEFORE_NARROW_KEYS):
            return listed
        if finite_part(expr) is not None:
            return None
        if seconds > _MOST_MOMENTS * _seconds_of(finer) or (_is_as_fine(expr) and not apart):
            column = identifier(_name_of(base, self._scope))
            raise ParameterError(
                "P068",
                f"sql groups by more than {MOST_GROUPS} steps of {own} between the bounds of {column}. Narrow them, as "
                f"in {column} >= DATE '2026-01-01' AND {column} < DATE '2027-01-01', or group by a longer unit.",
            )
        # One list of all steps would fill the memory.
        count, unit = finer.split()
        series = call("generate_series", first, last, f"CAST('{int(count) * _STEPS_AT_ONCE} {unit}' AS INTERVAL)")
        starts = f"(SELECT {call('unnest', series)} AS t)"
        offsets = f"(SELECT {call('unnest', call('range', '0', str(_STEPS_AT_ONCE)))} AS i)"
        moment = call("+", "t", call("*", f"CAST('{finer}' AS INTERVAL)", "i"))
        inner = f"SELECT {moment} AS {name} FROM {starts}, {offsets}"
        return f"SELECT {name} FROM ({inner}) WHERE {name} <= {last} UNION ALL SELECT {last}"

    def _seconds(self, base: Expr, ends: tuple[str, str], few: float) -> float:
        """Return the seconds between two ends of a date; no more than `few` may be more than there are."""
        days = self.days(base)
        if days is not None:
            first, last = map(datetime.date.fromisoformat, days)
            seconds = 86_400.0 * ((last - first).days + 1)
            if seconds <= few:
                return seconds
        return float(self._expressions.value(call("date_diff", text("second"), *ends)) or 0)

    def _of_points(self, expr: Expr, moment: Expr, points: str, conditions: Sequence[Expr]) -> KeyValues:
        """Return the values of an expression of a moment over points that meet conditions on the moment."""
        value = Expr("item", "v", value="k0")
        read = {("k0", "v"): ColumnSql('"k0"."v"', self._type(moment))}
        image = self._expressions.write(_replaced(expr, moment, value), read)
        query = f'SELECT DISTINCT {image.sql} AS v FROM ({points}) AS "k0"'
        bounding = [condition for *_, condition in self._bounds(moment) if condition.what != "in"]
        where = self._where({moment: '"k0"."v"'}, [c for c in conditions if c not in bounding])
        if where and self._revised(True, BEFORE_NARROW_KEYS):
            query += f" WHERE {where}"
        return KeyValues(None, query, f"the range of {_name_of(moment, self._scope)}", (*bounding, *conditions))

    def _cyclic(self, expr: Expr) -> KeyValues | None:
        """Return the values of an expression of a date that come again in other years, such as the name of a day.

        Every calendar, a first day of the week and a leap year or not, occurs from 2000 to 2027.
        """
        base, form = _date_base(expr)[0], _TEXTS_OF_DATES.get(expr.name)
        if expr.name == "strftime" and base is not None:
            [literal] = [str(part.value) for part in expr.parts if part != base] or [""]
            form = "".join(re.findall(r"%-?(.)", literal))
        if base is None or not form or self._type(base).kind not in ("DATE", "TIMESTAMP"):
            return None
        ends = ("2000-01-01", "2027-12-31", "1 day") if set(form) <= set("aAwubBmdjUW%") else None
        if set(form) <= set("HIMp%"):
            ends = ("2000-01-01", "2000-01-01 23:59:00", "1 minute")
        if ends is None or not self._revised(True, BEFORE_NARROW_KEYS):
            return None
        kind = self._type(base)
        first, last, step = (cast(text(end), "TIMESTAMP") if end != ends[2] else end for end in ends)
        series = call("generate_series", first, last, f"CAST('{step}' AS INTERVAL)")
        points = f"SELECT CAST({call('unnest', series)} AS {kind.sql}) AS v"
        image = self._expressions.write(
            _replaced(expr, base, Expr("item", "v", value="k0")), {("k0", "v"): ColumnSql('"k0"."v"', kind)}
        )
        keys = KeyValues(None, f'SELECT DISTINCT {image.sql} AS v FROM ({points}) AS "k0"', "the parts of a date")
        return keys if self._is_present(base) or self._is_present(expr) else _with_null(keys, self._type(expr))

    def _periods(self, base: Expr) -> list[tuple[str, str]]:
        """Return the first and last moment of a date in each span of periods that the caller names.

        There are none if conditions keep the date within one span.
        """
        spans = self._during(base)
        bounds = self.days(base) if spans else None
        ends = [] if bounds is None else list(map(datetime.date.fromisoformat, bounds))
        if not spans or any(ends and first <= ends[0] and ends[1] <= last for first, last in spans):
            return []
        zoned = self._type(base).kind == ZONED_TIMESTAMP
        return [
            (self._time(f"{first} 00:00:00", zoned=zoned), self._time(f"{last} 23:59:59.999999", zoned=zoned))
            for first, last in (spans if self._revised(True) else ())
        ]

    def _time(self, literal: str, *, zoned: bool) -> str:
        """Return the SQL of a time; a `zoned` time is one of UTC, in the session's zone."""
        moment = cast(text(literal), "TIMESTAMP")
        return (
            call("timezone", text(self._expressions.zone), call("timezone", text("UTC"), moment)) if zoned else moment
        )

    def _zoned(self, expr: Expr, base: Expr, step: str | None) -> KeyValues | None:
        """Return the values of an expression of a moment that time zones move, from moments between literals."""
        moment, bounds = _moved_part(base), None
        while moment is not None and (bounds := self._range(moment)) is None:
            moment = _moved_part(moment)
        if moment is None or bounds is None or step is None or step not in _IN_ZONE:
            return None
        zoned = self._type(moment).kind == ZONED_TIMESTAMP
        one_zone = zoned and base.name == "timezone" and base.parts[1] == moment
        if not self._revised(True, BEFORE_TOTAL_ORDERS if one_zone else BEFORE_NARROW_KEYS):
            return None
        first, last = (call("timezone", text(self._expressions.zone), end) if zoned else end for end in bounds)
        points = self._points(expr, moment, (first, last), (step, _IN_ZONE[step]), name="v")
        if points is None:
            return None
        return self._of_points(expr, moment, points, [c for c in self._conditions if _is_steady(c, base, step)])

    def _range(self, base: Expr) -> tuple[str, str] | None:
        """Return the SQL of the first and last moment of a date between literals, also if an interval moves it.

        Literals are those of conditions and of the periods that the caller names.
        """
        spans = self._periods(base)
        firsts, lasts = [start for start, _ in spans[:1]], [end for _, end in spans[-1:]]
        for sign, value, is_day, _ in self._bounds(base):
            end = cast(self._expressions.write(value, {}, "TIMESTAMP").sql, "TIMESTAMP")
            if sign in (">", ">=", "="):
                firsts.append(end)
            if sign in ("<=", "=") and is_day:
                end = call("+", end, "CAST('1 day' AS INTERVAL)")
            if sign == "<" or (sign in ("<=", "=") and is_day):
                end = call("-", end, "CAST('1 microsecond' AS INTERVAL)")
            if sign in ("<", "<=", "="):
                lasts.append(end)
        if not firsts or not lasts:
            return self._moved_range(base)
        first = firsts[0] if len(firsts) == 1 else call("greatest", *firsts)
        return first, lasts[0] if len(lasts) == 1 else call("least", *lasts)

    def _moved_range(self, base: Expr) -> tuple[str, str] | None:
        """Return the first and last moment of a date that a literal interval moves, from those of the date."""
        span = _span(base)
        bounds = None if span is None else self._range(base.parts[0])
        if span is None or bounds is None or not self._revised(True):
            return None
        first, last = (call(base.name, end, span) for end in bounds)
        return first, last

    def _bounds(self, base: Expr) -> Iterator[tuple[str, Expr, bool, Expr]]:
        """Yield the comparisons of a date with literals, whether they compare its day, and their condition."""
        forms = {base: False, Expr("cast", "DATE", (base,)): True, Expr("cast", "TIMESTAMP", (base,)): False}
        if base.what == "cast" and base.name == "TIMESTAMP":
            forms[base.parts[0]] = False
        for compared, sign, literal, condition in self._compared():
            if compared in forms:
                yield sign, literal, forms[compared], condition
            cut = cut_date(compared)
            if cut is not None and cut[0] in forms:
                days = list(day_bounds(cut[1], sign, literal))
                newer = cut[1] in ("day", "week") or any(part.what == "call" for part in literal.walk())
                if self._revised(newer and bool(days)) or not newer:
                    yield from ((comparison, day, False, condition) for comparison, day in days)

    def _compared(self) -> Iterator[tuple[Expr, str, Expr, Expr]]:
        """Yield the compared expression, sign and literal of conditions, and the condition."""
        for condition in self._conditions:
            if condition.what == "between" and all(map(_literal, condition.parts[1:])):
                yield condition.parts[0], ">=", condition.parts[1], condition
                yield condition.parts[0], "<=", condition.parts[2], condition
            if condition.what == "in" and all(year_of(part) is not None for part in condition.parts[1:]):
                yield (
                    condition.parts[0],
                    ">=",
                    min(condition.parts[1:], key=lambda part: int(str(part.value))),
                    condition,
                )
                yield (
                    condition.parts[0],
                    "<=",
                    max(condition.parts[1:], key=lambda part: int(str(part.value))),
                    condition,
                )
            if condition.what == "compare" and condition.name in ("<", "<=", ">", ">=", "="):
                left, right = condition.parts
                if _literal(right):
                    yield left, condition.name, right, condition
                if _literal(left):
                    yield right, _turned(condition.name), left, condition

    def days(self, base: Expr) -> tuple[str, str] | None:
        """Return the first and last day of a date that literals bound on both sides."""
        first: datetime.date | None = None
        last: datetime.date | None = None
        for sign, value, _, _ in self._bounds(base):
            day = _day(value)
            if day is not None and sign in (">", ">=", "="):
                first = day[0] if first is None else max(first, day[0])
            if day is not None and sign in ("<", "<=", "="):
                end = day[0] - datetime.timedelta(days=1) if sign == "<" and day[1] else day[0]
                last = end if last is None else min(last, end)
        return None if first is None or last is None or last < first else (first.isoformat(), last.isoformat())

    # Whole numbers between bounds.

    def _integers_of(self, expr: Expr) -> KeyValues | None:
        kind = self._type(expr)
        if (expr.what == "call" and expr.name in _WHOLE and len(expr.parts) <= 1 + (expr.name == "//")) or (
            expr.what == "cast" and _is_whole(kind)
        ):
            return self._integers(expr, kind)
        return None

    def _integers(self, expr: Expr, kind: Type) -> KeyValues | None:
        interval = self._interval(expr)
        if interval.lower is None or interval.upper is None or interval.upper - interval.lower > _MOST_INTEGERS:
            return None
        if kind.kind == "DECIMAL" and not self._revised(True, BEFORE_NARROW_KEYS):
            return None
        first, last = (int(bound) for bound in (interval.lower, interval.upper))
        counter = identifier("i")
        value = f"CAST({counter} AS {kind.sql})"
        start, after = first, last + 1
        if not -_MOST_BIGINT < first <= last < _MOST_BIGINT:
            start, after = 0, last + 1 - first
            value = call("+", cast(text(str(first)), kind.sql), f"CAST({counter} AS {kind.sql})")
        query = (
            f"SELECT {value} AS v FROM (SELECT {call('unnest', call('range', str(start), str(after)))} AS {counter})"
        )
        origin = f"{WHOLE_NUMBERS} in [{fraction_text(interval.lower)}, {fraction_text(interval.upper)}]"
        return self._of_type(expr, KeyValues(None, query, origin, tuple(_whole_bounds(self._conditions, expr))))

    # Images.

    def _image(self, expr: Expr) -> KeyValues | None:
        sources: dict[Expr, tuple[str, KeyValues, Type]] = {}
        image = self._substituted(expr, sources, top=True)
        if image is None or not sources or len(sources) > _MOST_PARTS:
            return self._last(expr)
        columns, listed = {}, []
        for name, keys, kind in sources.values():
            columns[(name, "v")] = ColumnSql(f'"{name}"."v"', kind)
            listed.append(f'({values_query(keys, kind)}) AS "{name}"("v")')
        projection = self._expressions.write(image, columns)
        origin = ", ".join(dict.fromkeys(keys.origin for _, keys, _ in sources.values()))
        return KeyValues(None, f"SELECT DISTINCT {projection.sql} AS v FROM {' CROSS JOIN '.join(listed)}", origin)

    def _last(self, expr: Expr) -> KeyValues | None:
        """Return whole numbers between the bounds of an expression, as a last resort."""
        kind = self._type(expr)
        return self._integers(expr, kind) if kind.kind in INTEGERS and expr.what == "call" else None

    def _substituted(
        self, expr: Expr, sources: dict[Expr, tuple[str, KeyValues, Type]], *, top: bool = False
    ) -> Expr | None:
        """Return an expression over the values of its parts; None if a part has none."""
        if not any(node.what == "item" for node in expr.walk()):
            return expr
        # The smallest parts come first: two uses of one column share one value.
        backup = dict(sources)
        own_keys = self._direct(expr) if expr.what == "coalesce" and not expr.flag and not top else None
        if (
            own_keys is None
            and expr.what in ("call", "cast", "coalesce", "element", "case", "collate")
            and not (expr.filter or expr.orders)
        ):
            parts = [self._substituted(part, sources) for part in expr.parts]
            if None not in parts:
                return replace(expr, parts=tuple(part for part in parts if part is not None))
        sources.clear()
        sources.update(backup)
        keys = None if top else own_keys or self._direct(expr)
        if keys is None:
            return None
        if expr not in sources:
            sources[expr] = (f"k{len(sources)}", keys, self._type(expr))
        return Expr("item", "v", value=sources[expr][0])


def _seconds_of(step: str) -> float:
    """Return the length of a step."""
    count, unit = step.split()
    return int(count) * {"day": 86_400, "hour": 3_600, "minute": 60, "millisecond": 0.001}[unit.removesuffix("s")]


def _is_as_fine(expr: Expr) -> bool:
    """Return whether an expression has another value for each step of its date."""
    if expr.what != "call":
        return True
    literal = str(expr.parts[0].value).lower()
    return bucket_width(expr) is not None or (expr.name == "date_trunc" and literal in (*_STEPS, "day", "days"))


def _public_name(item: Item) -> str:
    return f"the public {'.'.join(item.relation.name[-1:]) or 'query'}"


def values_query(keys: KeyValues, kind: Type) -> str:
    """Return the SELECT of one column that lists public values."""
    if keys.query is not None:
        return keys.query
    rows = ", ".join(f"({'NULL' if value is None else text(value)})" for value in keys.values or ())
    return f"SELECT CAST(v AS {kind.sql}) AS v FROM (VALUES {rows}) AS listed(v)"


def _with_null(keys: KeyValues, kind: Type) -> KeyValues:
    if keys.values is not None:
        return replace(keys, values=tuple(dict.fromkeys((*keys.values, None))), meets=())
    return replace(keys, query=f"({keys.query}) UNION (SELECT CAST(NULL AS {kind.sql}))", meets=())


def _is_whole(kind: Type) -> bool:
    """Whether a type has whole numbers only."""
    return kind.kind in INTEGERS or (kind.kind == "DECIMAL" and kind.sizes[1] == 0)


def _whole_bounds(conditions: Sequence[Expr], expr: Expr) -> Iterator[Expr]:
    """Yield the conditions that an expression is between whole numbers, which may be equal to it."""
    for condition in conditions:
        ends = [part for part in condition.parts if part != expr]
        compares = condition.what == "between" or (condition.what == "compare" and condition.name in (">=", "<=", "="))
        numbers = map(literal_number, ends)
        if (
            compares
            and expr in condition.parts
            and all(number is not None and number.denominator == 1 for number in numbers)
        ):
            yield condition


def _values_of(condition: Expr, expr: Expr) -> tuple[str | None, ...] | None:
    """Return the values that a condition allows an expression; None if it does not list them."""
    if condition.what == "in" and condition.parts[0] == expr and all(map(_valued, condition.parts[1:])):
        return tuple(dict.fromkeys(_value(part) for part in condition.parts[1:]))
    if condition.what == "compare" and condition.name == "=":
        for left, right in (condition.parts, condition.parts[::-1]):
            if left == expr and _valued(right):
                return (_value(right),)
    if condition.what == "or":
        branches = [_values_of(part, expr) for part in condition.parts]
        if all(branch is not None for branch in branches):
            return tuple(dict.fromkeys(value for branch in branches for value in branch or ()))
    if condition.what == "and":
        return next((values for part in condition.parts if (values := _values_of(part, expr)) is not None), None)
    return None


def _valued(expr: Expr) -> bool:
    if expr.what == "cast":
        return expr.parts[0].what == "constant" and expr.parts[0].name == "string"
    return expr.what == "constant" and expr.name != "NULL"


def _value(expr: Expr) -> str:
    return str(expr.parts[0].value if expr.what == "cast" else expr.value)


def _literal(expr: Expr) -> bool:
    return all(part.what in ("constant", "cast", "call") for part in expr.walk())


def _day(expr: Expr) -> tuple[datetime.date, bool] | None:
    """Return the day of a literal, and whether it is midnight; None if it is computed, or has an offset."""
    while expr.what == "cast":
        expr = expr.parts[0]
    moment = literal_time(expr)
    return None if moment is None or moment.tzinfo is not None else (moment.date(), moment.time() == datetime.time())


def _turned(sign: str) -> str:
    return {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign)


def _date_base(expr: Expr) -> tuple[Expr | None, str | None]:
    """Return the date that an expression coarsens, and the steps in which all its values occur."""
    if expr.what == "item":
        return expr, None
    if expr.what == "cast" and expr.name == "DATE":
        return expr.parts[0], "1 day"
    if expr.what != "call" or not expr.parts:
        return None, None
    if expr.name in ("date_trunc", "date_part") and expr.parts[0].what == "constant":
        part = str(expr.parts[0].value).lower()
        step = "1 day" if part in _DAYS else _STEPS.get(part)
        return (expr.parts[1], step) if step else (None, None)
    if expr.name == "strftime" and len(expr.parts) == 2:
        base, form = expr.parts if expr.parts[1].what == "constant" else expr.parts[::-1]
        step = _format_step(str(form.value)) if form.what == "constant" else None
        return (base, step) if step else (None, None)
    width = bucket_width(expr)
    if width is not None:
        return width
    if len(expr.parts) == 1 and (expr.name in _DAYS or expr.name in ("dayname", "monthname", "last_day")):
        return expr.parts[0], "1 day"
    return None, None


def _format_step(form: str) -> str | None:
    """Return the steps in which all texts of a format occur; None if it has seconds or is unknown."""
    specifiers = set(re.findall(r"%-?(.)", form))
    if specifiers - {*"aAwdbBmyYjUWuGVxHIpM%"}:
        return None
    return "1 minute" if "M" in specifiers else "1 hour" if specifiers & {*"HIp"} else "1 day"


def _moved_part(expr: Expr) -> Expr | None:
    """Return the moment that a time zone or a literal interval moves; None for any other expression."""
    if expr.what == "call" and expr.name == "timezone" and len(expr.parts) == 2:
        return expr.parts[1]
    return None if _span(expr) is None else expr.parts[0]


def _span(expr: Expr) -> str | None:
    """Return the SQL of the literal interval that is added to a date or subtracted from it."""
    moves = expr.what == "call" and expr.name in ("+", "-") and len(expr.parts) == 2
    return interval_sql(expr.parts[1]) if moves else None


def _is_steady(condition: Expr, moment: Expr, step: str | None) -> bool:
    """Return whether a condition is the same for all moments within a step of the clock."""
    base, own = _date_base(condition)
    if condition.what == "call" and condition.name in ("hour", "minute") and len(condition.parts) == 1:
        base, own = condition.parts[0], _STEPS[condition.name]
    if base == moment and step in _IN_ZONE and own in _IN_ZONE:
        steps = list(_IN_ZONE)  # the longest first
        return steps.index(own) <= steps.index(step)
    return condition != moment and all(_is_steady(part, moment, step) for part in condition.inner)


def _replaced(expr: Expr, part: Expr, by: Expr) -> Expr:
    same = expr == part or _one_form(expr) == _one_form(part)
    return by if same else expr.mapped(lambda node: _replaced(node, part, by))


# The names of a part of a date, by the name that `date_part` takes here.
_PART_NAMES = {
    **{name: name for name in ("year", "quarter", "month", "week", "day", "hour", "minute", "isodow", "isoyear")},
    **{"dow": "dow", "dayofweek": "dow", "weekday": "dow", "doy": "doy", "dayofyear": "doy"},
    **{"dayofmonth": "day", "weekofyear": "week"},
}


def _one_form(expr: Expr) -> Expr:
    """Return one form of a part of a date: ``extract(hour FROM ts)`` is ``hour(ts)``."""
    if expr.what != "call" or expr.name != "date_part" or len(expr.parts) != 2 or expr.parts[0].what != "constant":
        return replace(expr, name=_PART_NAMES.get(expr.name, expr.name)) if expr.what == "call" else expr
    name = _PART_NAMES.get(str(expr.parts[0].value).lower())
    return expr if name is None else replace(expr, name=name, parts=expr.parts[1:])


def _name_of(expr: Expr, scope: Scope) -> str:
    return scope.column(expr).name if expr.what == "item" else show(expr.what)
