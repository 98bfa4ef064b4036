"""Rows of people after FROM, joins and WHERE, and the SQL of computations over them.

A stage is a FROM with its conditions. Groups and windows over one person's rows make another stage above it.

A window that chooses among one person's rows has a total order. The caller's order comes first, then all columns read
from the rows (`spellings.contents`). Rows that still tie are identical, so neither other people's rows nor DuckDB's
threads decide which row comes first. `rank`, `dense_rank` and frames of RANGE and GROUPS use peers, which depend on the
caller's order only.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import cached_property

from dpsql.contract.expression.kinds import FLOATS, INTEGERS, ZONED_TIMESTAMP, Type
from dpsql.contract.parameters import fold
from dpsql.contract.periods import PARTS, days_named
from dpsql.contract.query.catalogue import PathKey
from dpsql.contract.query.expressions import ColumnSql, Written
from dpsql.contract.query.intervals import (
    NOWHERE,
    Limits,
    columns_of,
    fails_without,
    has_value,
    interval,
    literal_number,
    refuses_null,
)
from dpsql.contract.query.joins import ColumnId, Ids, Joining, Member, member_of, of_nobody, person_of
from dpsql.contract.query.keys import KeyFinder, told_parts
from dpsql.contract.query.nodes import (
    Expr,
    From,
    Join,
    Nothing,
    Order,
    Select,
    about,
    frame_sql,
    leaves,
    order_words,
    require,
)
from dpsql.contract.query.relations import (
    DATE,
    PUBLIC,
    ROWS,
    UNIT,
    Column,
    Env,
    Item,
    QueryRelation,
    Scope,
    Splitting,
    check_written,
    item_column,
)
from dpsql.contract.query.spellings import (
    ENDS,
    contents,
    has_one_spelling,
    in_order,
    is_plain,
    one_of_equals,
    one_of_group,
)
from dpsql.contract.query.tree import chosen_by_others
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError, SourceError
from dpsql.rendering import call, cast, identifier

# These functions ignore the frame; first and last values depend on the frame's rows.
NUMBERING = frozenset(("row_number", "lag", "lead"))
_CHOOSING = frozenset(("first_value", "last_value"))
_OF_PEERS = frozenset(("rank", "dense_rank"))
WINDOWS = NUMBERING | _CHOOSING | _OF_PEERS | {"count", "count_star", *ENDS}
_WHOLE = " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
# Exclusions of a frame that do not depend on ties.
_ALONE = frozenset(("NO_OTHER", "CURRENT_ROW"))


@dataclass(frozen=True)
class Window:
    """A window over rows whose columns are complete after all windows of the query are read.

    Attributes
    ----------
    expr : Expr
    arguments : sequence of str
        The SQL of the arguments.
    kind : Type or None
        The type of the first argument.
    partitions : sequence of str
    orders : sequence of (str, str)
        The caller's order: SQL and direction.
    stub : str
        The window's SQL over no rows.
    """

    expr: Expr
    arguments: Sequence[str]
    kind: Type | None
    partitions: Sequence[str]
    orders: Sequence[tuple[str, str]]
    stub: str

    @property
    def is_end(self) -> bool:
        """Whether the window returns the least or the largest value."""
        return self.expr.name in ENDS

    def sql(self, columns: Sequence[Column]) -> str:
        """Return the SQL over rows of these columns."""
        name, frame = self.expr.name, self._frame
        orders = [f"{sql} {words}".rstrip() for sql, words in self.orders]
        if name in _OF_PEERS:
            return self._over(orders)
        ties = [
            f"{sql} ASC NULLS LAST"
            for column in columns
            if not self._is_decided(column)
            for sql in contents(identifier(column.sql), column.type)
        ]
        if name in NUMBERING or self._goes_by_rows:
            return self._over([*orders, *ties], frame, inside=self._by_value)
        if not (name in _CHOOSING or self._by_value):
            return self._over(orders, frame)
        if not frame and not orders:
            frame = _WHOLE  # all rows are peers
        if frame == _WHOLE:
            return self._over([*orders, *ties], frame, inside=self._by_value)
        if self._by_value or frame:
            return self._over(orders, frame, inside=self._by_value or [*orders, *ties])
        # The frame contains all rows up to the last peer.
        if name == "first_value":
            nulls = [f"({self.arguments[0]} IS NULL) ASC"] if self.expr.value else []
            return self._over([*orders, *nulls, *ties])
        if self.expr.value:
            return self._over(orders, inside=[*orders, *ties])
        return self._over(ties, _WHOLE, among=[sql for sql, _ in self.orders])

    @property
    def earlier(self) -> str | None:
        """The SQL as before decision 65, in the caller's order; None if dpsql refused the window."""
        frame, words = self.expr.frame, ""
        if frame is not None and (frame.start, frame.end) != ("UNBOUNDED_PRECEDING", "CURRENT_ROW_RANGE"):
            if "RANGE" in frame.start or (frame.end != "CURRENT_ROW_RANGE" and "RANGE" in frame.end):
                return None
            words = f" {frame_sql(self.expr)}"
        over = f"PARTITION BY {', '.join(self.partitions)}"
        if self.orders:
            over += f" ORDER BY {', '.join(f'{sql} {order}'.strip() for sql, order in self.orders)}"
        nulls = f" {self.expr.value}" if self.expr.value else ""
        return f"system.main.{self.expr.name}({', '.join(self.arguments)}{nulls}) OVER ({over}{words})"

    def _is_decided(self, column: Column) -> bool:
        """Whether rows that tie in a partition and in the caller's order have one value of a column."""
        if column.owner:  # text too: dpsql sees a collation that merges two people in the plan, and refuses it
            return has_one_spelling(column.type)
        compared = (*self.partitions, *(sql for sql, _ in self.orders))
        return identifier(column.sql) in compared and is_plain(column.type)

    @property
    def _by_value(self) -> list[str]:
        """The order that puts the least or largest value first, if equal values have several spellings."""
        if not self.is_end or self.kind is None or self.kind.kind in FLOATS or has_one_spelling(self.kind):
            return []
        return [in_order(self.arguments[0], self.kind, ENDS[self.expr.name])]

    def _over(
        self, orders: Sequence[str], frame: str = "", *, inside: Sequence[str] = (), among: Sequence[str] = ()
    ) -> str:
        """Return the SQL over rows in an order; `inside` is the order of a frame's rows, if different."""
        name = "first_value" if self._by_value else self.expr.name
        arguments = ", ".join(self.arguments)
        arguments += f" ORDER BY {', '.join(inside)}" if inside else ""
        arguments += f" {self.expr.value}" if self.expr.value else ""
        over = f"PARTITION BY {', '.join([*self.partitions, *among])}"
        over += f" ORDER BY {', '.join(orders)}" if orders else ""
        return f"system.main.{name}({arguments}) OVER ({over}{frame})"

    @property
    def _goes_by_rows(self) -> bool:
        """Whether the frame counts rows instead of peers."""
        frame = self.expr.frame
        if frame is None or not any(end.endswith("_ROWS") for end in (frame.start, frame.end)):
            return False
        if frame.exclude not in _ALONE:
            raise ParameterError(
                "P104",
                "sql: a frame of ROWS that leaves out what ties is not computed of one person's rows. Write GROUPS, or "
                "leave EXCLUDE out.",
            )
        return True

    @property
    def _frame(self) -> str:
        """The SQL of the frame; ``''`` for all rows up to the last peer, and if the function ignores the frame."""
        frame = self.expr.frame
        if frame is None or self.expr.name in NUMBERING:
            return ""
        if (frame.start, frame.end, frame.exclude) == ("UNBOUNDED_PRECEDING", "CURRENT_ROW_RANGE", "NO_OTHER"):
            return ""
        if "RANGE" in frame.start or (frame.end != "CURRENT_ROW_RANGE" and "RANGE" in frame.end):
            raise ParameterError("P104", "sql: a frame of RANGE is not computed of one person's rows. Write ROWS.")
        return f" {frame_sql(self.expr)}"


# Sums of one person's rows clip values that could overflow a sum of 2**40 rows.
_CLIP = 1 << 80
_FIXED = 20
_SAFE_WIDTH = 26
_PER_PERSON = frozenset(
    (
        *("count_star", "count", "min", "max", "sum", "avg", "mean", "median", "quantile_cont", "bool_and", "bool_or"),
        *("count_if", "countif"),
    )
)
# Aggregates that take DISTINCT; it changes no extreme.
_DISTINCT = frozenset(("count", "sum", "avg", "mean", *ENDS, "bool_and", "bool_or"))
# The alias of a window that chooses rows as DISTINCT ON does.
DISTINCT_ON = "DISTINCT ON"
# Aggregates that return the value of one row; DuckDB reads max_by as arg_max.
_OF_ONE_ROW = frozenset(
    ("arg_max", "arg_min", "argmax", "argmin", "max_by", "min_by", "first", "last", "any_value", "arbitrary")
)
_INTERPOLATED = frozenset(("median", "quantile_cont"))
# Interpolation between decimals of more digits, or dates, may overflow.
_MOST_DIGITS = 18


def _sides(first: Limits, second: Limits) -> tuple[tuple[Fraction | None, Fraction | None], ...]:
    """Return the lower ends of two intervals, and the upper ends."""
    return (first.lower, second.lower), (first.upper, second.upper)


@dataclass
class Stage:
    """Rows of people.

    Attributes
    ----------
    work : Splitting
    scope : Scope
    member : Member
    conditions : list of Expr
        The rest of WHERE.
    """

    work: Splitting
    scope: Scope
    member: Member
    conditions: list[Expr]
    all_conditions: list[Expr] = field(
        default_factory=list
    )  # all conditions that rows meet, including those that became joins

    def write(self, expr: Expr, target: str | None = None) -> Written:
        """Return the SQL of an expression over these rows."""
        return self.work.expressions.write(expr, self.scope.columns(expr), target)

    @property
    def body(self) -> str:
        """The SQL of FROM and WHERE."""
        grouped: dict[frozenset[str], list[Expr]] = {}
        for condition in self.conditions:
            grouped.setdefault(self.scope.numbers(condition), []).append(condition)
        where = []
        for conditions in grouped.values():
            conjunction = conditions[0] if len(conditions) == 1 else Expr("and", parts=tuple(conditions))
            try:
                where.append(self.write(conjunction, "BOOLEAN").sql)
            except ParameterError:
                for conjunct in conditions:  # an error of one conjunct has a position
                    self.write(conjunct, "BOOLEAN")
                raise
        return f"FROM {self.member.text}" + (f" WHERE {' AND '.join(where)}" if where else "")

    @property
    def owner(self) -> str | None:
        """SQL for the privacy unit of a row."""
        return self._least(self.member.owner) if self.member.owned else None

    @property
    def date(self) -> str | None:
        """SQL for the date of a row."""
        return self._least(self.member.dates) if self.member.dates else None

    def _least(self, columns: frozenset[ColumnId]) -> str:
        number_, column = min(columns)
        return self.scope.item(number_).sql(column)

    @property
    def owner_columns(self) -> list[str]:
        """The last columns of every SELECT over these rows: date and owner."""
        columns = ((self.date, DATE), (self.owner, UNIT))
        return [f"{sql} AS {identifier(name)}" for sql, name in columns if sql is not None]

    @property
    def _unseen(self) -> tuple[Column, ...]:
        out = []
        for columns, name in ((self.member.dates, DATE), (self.member.owner, UNIT)):
            if columns:
                number_, column = min(columns)
                kind = self.scope.item(number_).by_sql(column).type
                out.append(Column(name, name, kind, owner=name == UNIT, dated=name == DATE))
        return tuple(out)

    def column_of(self, expr: Expr) -> ColumnId | None:
        """Return the column of an expression, if it is one."""
        return (str(expr.value), expr.name) if expr.what == "item" else None

    def is_owner(self, expr: Expr) -> bool:
        """Whether an expression is the owner of a row."""
        return self.column_of(expr) in self.member.owner

    def ties_of(self, expr: Expr) -> frozenset[PathKey]:
        """Return the keys of paths in an expression."""
        return frozenset(key for column, key in self.member.ties if self.column_of(expr) == column)

    def is_tied(self, expr: Expr) -> bool:
        """Whether rows with one owner and equal values of an expression belong to one row of a path."""
        return bool(self.ties_of(expr))

    def interval(self, expr: Expr) -> Limits:
        """Return the interval of an expression."""
        return interval(expr, self._interval_of)

    def _interval_of(self, expr: Expr) -> Limits:
        limits = self.scope.column(expr).interval if expr.what == "item" else NOWHERE
        return limits.within(self._condition_limits.get(expr, NOWHERE))

    @cached_property
    def _condition_limits(self) -> dict[Expr, Limits]:
        """The intervals of expressions from conditions."""
        out: dict[Expr, Limits] = {}
        for condition in self.all_conditions:
            for expr, limits in _limits(condition):
                out[expr] = out.get(expr, NOWHERE).within(limits)
        return out

    def has_number(self, expr: Expr) -> bool:
        """Return whether constraints, joins and conditions guarantee a number to add up in every row."""
        return has_value(expr, lambda item: self.scope.column(item).type.kind not in FLOATS and self._is_present(item))

    def present(self, expr: Expr) -> bool:
        """Return whether an expression is non-NULL in every row: as `has_number`, but NaN is a value, too."""
        return has_value(expr, self._is_present)

    def _is_present(self, expr: Expr) -> bool:
        item, column = self.scope.item(str(expr.value)), self.scope.column(expr)
        return (column.is_present and not item.optional and not item.hidden) or any(
            refuses_null(condition, expr) for condition in self.all_conditions
        )

    @property
    def keys(self) -> KeyFinder:
        """The finder of public values."""
        conditions, revised = self.all_conditions, self.work.revised
        return KeyFinder(self.scope, self.work.expressions, conditions, self.interval, revised, self._during)

    def _during(self, expr: Expr) -> tuple[tuple[datetime.date, datetime.date], ...]:
        """Return the days of a date whose rows count, as spans: those of the periods that the caller names."""
        if self.column_of(expr) not in self.member.dates or self.scope.item(str(expr.value)).optional:
            return ()
        return days_named(self.work.options.during, self.member.period)

    def relation(self, outputs: Sequence[tuple[Expr, str]]) -> QueryRelation:
        """Return the rows with these columns, followed by date and owner."""
        columns, listed = [], []
        for index, (expr, name) in enumerate(outputs):
            expression = self.write(expr)
            sql = f"c{index}"
            columns.append(self._output(expr, name, sql, expression.type))
            listed.append(f"{expression.sql} AS {identifier(sql)}")
        listed += self.owner_columns
        check_written(self.member.text)
        text = f"(SELECT {', '.join(listed) or '1 AS c0'} {self.body})"
        return QueryRelation(
            ROWS,
            tuple(columns),
            text,
            pending=self.member.pending,
            owned=self.member.owned,
            period=self.member.period,
            unseen=self._unseen,
            tables=self.member.tables,
        )

    def _output(self, expr: Expr, name: str, sql: str, kind: Type) -> Column:
        column = self.column_of(expr)
        tie = min((key for at, key in self.member.ties if at == column), default=None)
        origin = self.scope.column(expr).bounds_from if column is not None else "computed"
        limits, bounds = self.interval(expr), self.work.caller_limits(name)
        if bounds.lower is not None or bounds.upper is not None:
            lower, upper = (end if end is not None else other for end, other in _sides(bounds, limits))
            limits, origin = Limits(lower, upper), "stated"
        return Column(
            name,
            sql,
            kind,
            limits,
            origin,
            lambda: self.keys.find(expr),
            self.is_owner(expr),
            tie,
            column in self.member.dates,
            is_present=self.present(expr),
        )

    # Groups and windows of one person's rows.

    def grouped(self, groups: Sequence[Expr], aggregates: Sequence[Expr]) -> tuple[Stage, dict[Expr, Expr]]:
        """Return the stage of groups of one person's rows, and the replacements of groups and aggregates."""
        inner, columns, outputs, replacements = [], [], [], {}
        item = Item("g0", _empty(self), "")
        names, listed = [], []
        period = self._period_of(groups)
        if period is not None:  # written into GROUP BY itself, it shows that a person has one row in each period
            day = self.write(period.parts[1])
            of_rows = replace(period, parts=(period.parts[0], Expr("item", DATE, value="")))
            names.append(self.work.expressions.write(of_rows, {("", DATE): ColumnSql(identifier(DATE), day.type)}).sql)
            inner.append(f"{day.sql} AS {identifier(DATE)}")
            listed.append(f"{names[0]} AS {identifier(DATE)}")
        for number_, group in enumerate(groups):
            with about(group):
                expression, name = self.write(group), f"g{number_}"
                read = name if self._keeps_spelling(group, expression.type) else f"v{number_}"
                if group == period:
                    listed.append(f"{names[0]} AS {identifier(name)}")
                else:
                    inner.append(f"{expression.sql} AS {identifier(read)}")
                    names.append(identifier(read))
                if read != name:
                    outputs.append(f"{one_of_group(identifier(read), expression.type)} AS {identifier(name)}")
                elif group != period:
                    listed.append(identifier(name))
            columns.append(self._output(group, name, name, expression.type))
            replacements[group] = Expr("item", name, value=item.id)
        for number_, aggregate in enumerate(aggregates):
            with about(aggregate):
                sql, kind, limits = self._aggregate(aggregate, number_, inner)
            outputs.append(f"{sql} AS {identifier(f'x{number_}')}")
            columns.append(Column(f"x{number_}", f"x{number_}", kind, limits, "computed"))
            replacements[aggregate] = Expr("item", f"x{number_}", value=item.id)
        owner = self.owner
        if owner is not None:
            inner.append(f"{owner} AS {identifier(UNIT)}")
            names.append(identifier(UNIT))
            listed.append(identifier(UNIT))
        text = f"SELECT {', '.join([*listed, *outputs])} FROM (SELECT {', '.join(inner) or '1 AS one'} {self.body})"
        text += f" GROUP BY {', '.join(names)}" if names else ""
        unseen = tuple(column for column in self._unseen if column.owner)
        if period is not None:  # a group has no row's date, but may have its period
            unseen += (Column(DATE, DATE, Type("TIMESTAMP"), dated=True),)
        one_of_rows = (*ENDS, *_INTERPOLATED)
        chosen = [
            column
            for aggregate, column in zip(aggregates, columns[len(groups) :], strict=True)
            if aggregate.name in one_of_rows
        ]
        chosen += [column for group, column in zip(groups, columns, strict=False) if not self._says_whose(group)]
        return self._above(self._of_equals(f"({text})", chosen), columns, unseen), replacements

    def _period_of(self, exprs: Sequence[Expr]) -> Expr | None:
        """Return the rows' period, if it follows from expressions of which none is the rows' date itself.

        As a group or partition beside these, it changes nothing, and rows of two periods are never together.
        """
        if any(self.column_of(expr) in self.member.dates for expr in exprs):
            return None
        parts_of: dict[Expr, frozenset[str]] = {}
        for base, parts in map(told_parts, exprs):
            parts_of[base] = parts_of.get(base, frozenset()) | parts
        for base, parts in parts_of.items():
            if self.column_of(base) in self.member.dates and self.write(base).type.kind in ("DATE", "TIMESTAMP"):
                year, others = PARTS[self.member.period]
                if parts >= {year, *(name for name, _ in others)}:
                    unit = Expr("constant", "string", value=self.member.period)
                    return Expr("call", "date_trunc", (unit, base))
        return None

    def _says_whose(self, group: Expr) -> bool:
        """Whether an expression identifies the owner of a row, and so must stay an unchanged column."""
        return self.is_owner(group) or self.is_tied(group)

    def _keeps_spelling(self, group: Expr, kind: Type) -> bool:
        """Whether a group may take any of its rows' values: equal values are or become identical, or are owners."""
        return not self.work.revised(not (has_one_spelling(kind) or kind.kind in FLOATS or self._says_whose(group)))

    def _of_equals(self, text: str, columns: Sequence[Column]) -> str:
        """Return rows with identical equal numbers, in an outer query: DuckDB would aggregate for each mention."""
        same = [
            f"{one_of_equals(identifier(column.sql), column.type)} AS {identifier(column.sql)}"
            for column in columns
            if column.type.kind in FLOATS
        ]
        return f"(SELECT * REPLACE ({', '.join(same)}) FROM {text})" if self.work.revised(bool(same)) else text

    def _above(self, text: str, columns: Sequence[Column], unseen: tuple[Column, ...] | None = None) -> Stage:
        relation = QueryRelation(
            ROWS,
            tuple(columns),
            text,
            pending=self.member.pending,
            owned=self.member.owned,
            period=self.member.period,
            unseen=self._unseen if unseen is None else unseen,
            tables=self.member.tables,
        )
        item = Item("g0", relation, "")
        scope = Scope([item], outer=self.scope.outer)
        return Stage(self.work, scope, member_of(item), [])

    def _aggregate(self, expr: Expr, index: int, inner: list[str]) -> tuple[str, Type, Limits]:
        """Return the SQL of an aggregate of one person's rows, which cannot fail; add its inputs to `inner`."""
        if expr.name not in _PER_PERSON or expr.orders or (expr.flag and expr.name not in _DISTINCT):
            instead = (
                "What one of the person's rows has is a column of it: QUALIFY row_number() OVER (PARTITION BY person "
                "ORDER BY ...) = 1."
                if expr.name in _OF_ONE_ROW
                else "Below a private aggregate there are count, sum, avg, min, max, median, quantile_cont, bool_and "
                "and bool_or."
            )
            if expr.name in _PER_PERSON:
                what = "ORDER BY" if expr.orders else "DISTINCT"
                instead = f"Write it without {what}, or count(DISTINCT ...)."
                raise ParameterError(
                    "P104", f"sql: {expr.name} with {what} is not computed of one person's rows. {instead}"
                )
            raise ParameterError("P104", f"sql: {expr.name} is not computed of one person's rows. {instead}")
        names = []
        kinds = []
        for number_, part in enumerate(expr.parts):
            if number_ and part.what == "constant":
                names.append(str(part.value))
                continue
            argument = part if expr.filter is None else _where(expr.filter, part)
            expression = self.write(argument)
            name = f"a{index}_{number_}"
            inner.append(f"{expression.sql} AS {identifier(name)}")
            names.append(identifier(name))
            kinds.append(expression.type)
        if expr.name == "count_star":
            if expr.filter is None:
                return call("count_star"), Type("BIGINT"), Limits(literal_number(_constant("1")))
            expression = self.write(expr.filter, "BOOLEAN")
            inner.append(f"{expression.sql} AS {identifier(f'a{index}_0')}")
            return call("count_if", identifier(f"a{index}_0")), Type("BIGINT"), Limits(literal_number(_constant("0")))
        limits = self.interval(expr.parts[0])
        kind = kinds[0]
        if expr.name in ("count", "count_if", "countif"):
            distinct = "DISTINCT " if expr.flag else ""
            name = "count" if expr.name == "count" else "count_if"
            return f"system.main.{name}({distinct}{names[0]})", Type("BIGINT"), Limits(literal_number(_constant("0")))
        if expr.name == "sum":
            total, summed = self._sum(names[0], kind, distinct=expr.flag)
            if self.work.revised(kind.kind == "DECIMAL" and summed.kind == "DOUBLE"):
                summed = Type("DECIMAL", (38, kind.sizes[1]))  # the type of DuckDB's sum
                total = f"TRY_CAST({total} AS {summed.sql})"
            return total, summed, NOWHERE
        if expr.name in ("avg", "mean"):
            total, _ = self._sum(names[0], kind, distinct=expr.flag)
            count = call("count", f"{'DISTINCT ' if expr.flag else ''}{names[0]}")
            average = f"CASE WHEN {count} > 0 THEN {call('/', cast(total, 'DOUBLE'), cast(count, 'DOUBLE'))} END"
            return average, Type("DOUBLE"), limits
        if expr.name in _INTERPOLATED and not (
            kind.kind in INTEGERS | FLOATS or (kind.kind == "DECIMAL" and kind.sizes[0] <= _MOST_DIGITS)
        ):
            raise ParameterError(
                "P104", f"sql: {expr.name} does not take a {kind.shown} of one person's rows. Cast it to DOUBLE."
            )
        sql = call(expr.name, *names)
        types = self.work.catalogue.typing.columns(f"SELECT {call(expr.name, f'NULL::{kind.sql}', *names[1:])} AS x")
        if types is None or not (kind.comparable or kind.kind == ZONED_TIMESTAMP):
            raise ParameterError(
                "P104", f"sql: {expr.name} does not take a {kind.shown} of one person's rows. Cast the value."
            )
        bounds = limits if expr.name not in ("bool_and", "bool_or") else NOWHERE
        if self.work.revised(expr.name in ENDS and not (kind.kind in FLOATS or has_one_spelling(kind))):
            sql = one_of_group(names[0], kind, ENDS[expr.name])
        return sql, types[0][1], bounds

    def _sum(self, name: str, kind: Type, *, distinct: bool = False) -> tuple[str, Type]:
        """Return a sum, of distinct values or of all, that cannot overflow and does not depend on the order of rows."""

        def added(values: str) -> str:
            return call("sum", f"{'DISTINCT ' if distinct else ''}{values}")

        if kind.kind in INTEGERS and "HUGE" not in kind.kind:
            return added(name), Type("HUGEINT")
        if kind.kind == "BOOLEAN":
            return added(cast(name, "INTEGER")), Type("HUGEINT")
        if kind.kind in INTEGERS:
            ends = [cast(str(end), "HUGEINT") for end in (_CLIP, -_CLIP)]
            clipped = call("greatest", call("least", f"TRY_CAST({name} AS HUGEINT)", ends[0]), ends[1])
            return added(f"CASE WHEN {name} IS NOT NULL THEN {clipped} END"), Type("HUGEINT")
        if kind.kind == "DECIMAL" and kind.sizes[0] <= _SAFE_WIDTH:
            return added(name), Type("DECIMAL", (38, kind.sizes[1]))
        if kind.kind not in ("DOUBLE", "FLOAT", "DECIMAL"):
            raise ParameterError("P104", f"sql: sum does not take a {kind.shown}. Cast the value to a number.")
        value = cast(name, "DOUBLE")
        most = f"'{float(_CLIP >> _FIXED)!r}'::DOUBLE"
        least = f"'{-float(_CLIP >> _FIXED)!r}'::DOUBLE"
        clipped = f"CASE WHEN {value} >= {most} THEN {most} WHEN {value} <= {least} THEN {least} ELSE {value} END"
        scaled = call(
            "floor", call("+", call("*", f"({clipped})", f"'{float(1 << _FIXED)!r}'::DOUBLE"), "'0.5'::DOUBLE")
        )
        integer = f"CASE WHEN {call('isnan', value)} THEN NULL ELSE TRY_CAST({scaled} AS HUGEINT) END"
        total = call("/", cast(added(integer), "DOUBLE"), f"'{float(1 << _FIXED)!r}'::DOUBLE")
        return total, Type("DOUBLE")

    def windowed(self, windows: Sequence[Expr], others: Sequence[Expr]) -> tuple[Stage, dict[Expr, Expr]]:
        """Return the stage of windows over one person's rows; `others` are other expressions over these rows."""
        inner: list[str] = []
        columns: list[Column] = []
        replacements: dict[Expr, Expr] = {}

        def add_column(expr: Expr) -> str:
            if expr not in replacements:
                name = f"b{len(columns)}"
                expression = self.write(expr)
                inner.append(f"{expression.sql} AS {identifier(name)}")
                columns.append(self._output(expr, name, name, expression.type))
                replacements[expr] = Expr("item", name, value="g0")
            return identifier(replacements[expr].name)

        for other in others:
            for part in other.walk():
                if part.what == "item":
                    add_column(part)
        read = []
        for window_expr in windows:
            with about(window_expr):
                read.append(self._window(window_expr, add_column))
        outputs, wide = [], []
        seen = [
            *columns,
            *(column for column in self._unseen if not (column.dated and any(also.dated for also in columns))),
        ]
        for number_, (window_expr, window) in enumerate(zip(windows, read, strict=True)):
            name = f"w{number_}"
            kinds = self.work.catalogue.typing.columns(f"SELECT {window.stub} AS x")
            if kinds is None:
                raise ParameterError("P104", f"sql: {window_expr.name} does not take these values. Cast them.")
            with about(window_expr):
                outputs.append(f"{self._over(window, seen)} AS {identifier(name)}")
            wide.append(Column(name, name, kinds[0][1]))
            replacements[window_expr] = Expr("item", name, value="g0")
        inner += self.owner_columns
        text = f"(SELECT *, {', '.join(outputs)} FROM (SELECT {', '.join(inner)} {self.body}))"
        text = self._of_equals(text, [column for column, window in zip(wide, read, strict=True) if window.is_end])
        # The owner is among the columns, by its name.
        return self._above(text, [*columns, *wide]), replacements

    def _over(self, window: Window, columns: Sequence[Column]) -> str:
        """Return the SQL of a window over rows of these columns."""
        if self.work.options.earlier and window.earlier is not None:
            self.work.revised()
            return window.earlier
        sql = window.sql(columns)
        self.work.revised(sql != window.earlier)
        return sql

    def _window(self, expr: Expr, add_column: Callable[[Expr], str]) -> Window:
        """Return a window over one person's rows; add its inputs with `add_column`."""
        if expr.name not in WINDOWS or expr.flag or expr.filter is not None:
            raise ParameterError(
                "P104", f"sql: {expr.name} OVER is not computed of one person's rows. There are lag, lead, row_number, "
                "first_value, last_value, rank, dense_rank, count, min and max. Of people, group: SELECT x, "
                f"{expr.name}(y) FROM ... GROUP BY x.",
            )  # fmt: skip
        if not any(self.is_owner(partition) for partition in expr.partitions):
            if expr.alias == DISTINCT_ON:
                raise ParameterError(
                    "P103",
                    "sql: DISTINCT ON chooses among rows of several people. Begin it with the column of the privacy "
                    "unit, DISTINCT ON (person, ...), or write it above an aggregate.",
                )
            raise SourceError(
                "S012",
                f"sql: {expr.name} OVER goes over rows of several people. Write PARTITION BY with the column of the "
                "privacy unit first, or a window over an aggregate: SELECT x, rank() OVER (ORDER BY count(*)) FROM ... "
                "GROUP BY x.",
            )
        period = self._period_of(expr.partitions)
        arguments, stubs = [], []
        for index, part in enumerate(expr.parts):
            if index and part.what != "constant":
                raise ParameterError("P104", f"sql: {expr.name} OVER takes a literal there. Write the number itself.")
            if part.what == "constant" or not any(node.what == "item" for node in part.walk()):
                sql = self.write(part).sql
                arguments.append(sql)
                stubs.append(sql)
            else:
                arguments.append(add_column(part))
                stubs.append(f"NULL::{self.write(part).type.sql}")
        return Window(
            expr,
            arguments,
            self.write(expr.parts[0]).type if expr.parts else None,
            [add_column(partition) for partition in (*expr.partitions, *([] if period is None else [period]))],
            [(add_column(order.expression), order_words(order)) for order in expr.orders],
            f"system.main.{expr.name}({', '.join(stubs)}) OVER ()",
        )


def replaced(expr: Expr, replacements: dict[Expr, Expr]) -> Expr:
    """Return an expression with the replacements of its parts."""
    if expr in replacements:
        return replace(replacements[expr], alias=expr.alias)
    return expr.mapped(lambda part: replaced(part, replacements))


def _constant(value: str) -> Expr:
    return Expr("constant", "number", value=value)


def _where(condition: Expr, then: Expr) -> Expr:
    return Expr("case", parts=(condition, then, Expr("constant", "NULL")))


def _empty(stage: Stage) -> QueryRelation:
    return QueryRelation(ROWS, (), "", owned=stage.member.owned)


def _limits(condition: Expr) -> list[tuple[Expr, Limits]]:
    """Return the intervals that a condition implies."""
    if condition.what == "between":
        low, high = map(literal_number, condition.parts[1:])
        return [(condition.parts[0], Limits(low, high))]
    if condition.what != "compare" or condition.name not in ("<", "<=", ">", ">=", "="):
        return []
    out = []
    turned = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(condition.name, "=")
    first, second = condition.parts
    for sign, left, right in ((condition.name, first, second), (turned, second, first)):
        value = literal_number(right)
        if value is not None:
            lower = value if sign in (">", ">=", "=") else None
            upper = value if sign in ("<", "<=", "=") else None
            out.append((left, Limits(lower, upper)))
    return out


Leaf = Callable[[From], tuple[QueryRelation, str]]
# Rewrites a condition with a subquery; None if a join replaces it.
Lift = Callable[["RowBlock", Expr, bool], Expr | None]


class RowBlock:
    """Reads the FROM and WHERE of one SELECT.

    Parameters
    ----------
    work : Splitting
    leaf : callable
        Returns the relation of a FROM item, and its name.
    lift : callable
    env : Env
    outer : Scope or None
        The outer scope of a correlated subquery.
    """

    def __init__(self, work: Splitting, leaf: Leaf, lift: Lift, env: Env, outer: Scope | None = None) -> None:
        self.work, self._leaf, self._lift, self.env = work, leaf, lift, env
        self.scope = Scope(outer=outer)
        self.ids = Ids(chr(ord("a") + min(env.depth, 5)))
        self.joining = Joining(
            self.scope, self.ids, work.catalogue, work.expressions, work.parent, work.revised, work.notes
        )
        self.conditions: list[Expr] = []
        self.read_conditions: list[Expr] = []
        self.added: list[Expr] = []  # conditions from subqueries
        self.correlated: list[Expr] = []  # conditions on the outer scope
        self._opened: list[Member] = []
        self.chosen: list[Member] = []  # subqueries that became joins
        self.looked_up: list[tuple[Member, list[Expr]]] = []  # subqueries that became LEFT JOINs
        self._choosing: list[Expr] = []  # SEMI and ANTI joins
        # Conditions of a public table LEFT JOIN rows of people: they keep the table's rows.
        self._outer_conditions: list[Expr] = []
        self.missing: set[str] = set()  # items with NULL columns in rows that only such a table has

    def open(self, source: From) -> None:
        """Read a FROM."""
        self._opened = self._members(source)

    def where(self, where: Expr | None) -> None:
        """Read a WHERE."""
        if where is not None:
            self.conditions += self.conjuncts(where)

    def close(self) -> Stage:
        """Return the stage, after all conditions and all subqueries that became joins are read."""
        self.correlated = [condition for condition in self.conditions if not self.scope.own(condition)]
        own = [condition for condition in self.conditions if self.scope.own(condition)]
        if any(
            self._reads_missing(condition) and not fails_without(condition, columns_of(self.missing))
            for condition in own
        ):
            raise of_nobody()
        self.read_conditions += own
        lifted = [self._lifted(condition) for condition in (*own, *self._choosing, *self._outer_conditions)]
        conditions = [*(condition for condition in lifted if condition is not None), *self.added]
        member = self.joining.together([*self._opened, *self.chosen], conditions)
        for looked_up, on in self.looked_up:
            if any(condition.name != "=" for condition in on):
                member = self.joining.nearest(member, looked_up, on, outer=True)
                continue
            member, on = self._of_one_person(member, looked_up, on)
            equal = list(self.joining.equalities(member, looked_up, on))
            if len(equal) < len(on):
                raise SourceError(
                    "S003", "sql: a subquery is compared with a column of another type. Cast the column in a view."
                )
            member = self.joining.left(member, looked_up, equal)
        all_conditions = [condition for condition in [*self.read_conditions, *self.added] if not _asks(condition)]
        return Stage(self.work, self.scope, member, conditions, all_conditions)

    def _of_one_person(self, member: Member, looked_up: Member, on: list[Expr]) -> tuple[Member, list[Expr]]:
        """Resolve the rows' owner, and demand the same owner, if they look up the end of their path.

        Rows without a match keep their owner that way.
        """
        if member.pending is None or not looked_up.people or looked_up.pending is not None:
            return member, on
        member = self.joining.with_path(member)
        mine, theirs = (Expr("item", name, value=at) for at, name in (min(member.owner), min(looked_up.owner)))
        return member, [*on, Expr("compare", "=", (mine, theirs))]

    @property
    def has_owner(self) -> bool:
        """Whether rows of FROM have a privacy unit."""
        return any(member.owned for member in self._opened)

    @property
    def person(self) -> str:
        """The query's name for the privacy unit's column in FROM; '' if it has none."""
        return next((name for name in map(person_of, self._opened) if name), "")

    def leads_to(self, expr: Expr) -> PathKey | None:
        """Return the key of the path that a column of FROM follows; None for other columns."""
        column = (str(expr.value), expr.name) if expr.what == "item" else None
        keys = (member.pending for member in self._opened if column in member.owner)
        return next(keys, None)

    def lifted(self, expr: Expr) -> Expr:
        """Return an expression with LEFT JOINs in place of its subqueries."""
        if not _asks(expr):
            return expr
        return require(self._lift(self, expr, False))

    def _lifted(self, condition: Expr) -> Expr | None:
        return self._lift(self, condition, True) if _asks(condition) else condition

    def item(self, relation: QueryRelation, alias: str = "", *, hidden: bool = False) -> Item:
        """Return a new item of the scope."""
        item = Item(self.ids.next(), _computed_first(relation), alias, hidden)
        self.scope.items.append(item)
        return item

    def conjuncts(self, condition: Expr) -> list[Expr]:
        """Return the conjuncts of a condition, with resolved columns."""
        return list(_conjuncts(self.work.read(condition, self.scope)))

    # FROM.

    def _members(self, source: From) -> list[Member]:
        if isinstance(source, Join):
            return self._join(source)
        if isinstance(source, Nothing):
            return []
        relation, alias = self._leaf(source)
        return [member_of(self.item(relation, alias))]

    def _join(self, join: Join) -> list[Member]:
        if join.nearest and join.kind not in ("INNER", "LEFT"):
            raise chosen_by_others("ASOF")
        if join.kind == "LEFT" and not join.nearest:
            return self._outer(join)
        if join.kind == "RIGHT":
            return self._outer(replace(join, kind="LEFT", left=join.right, right=join.left), swapped=True)
        if join.kind == "OUTER":
            raise ParameterError(
                "P103",
                "sql: FULL JOIN of rows of people is not answered. Write LEFT JOIN from a table that has all of them: "
                "FROM people LEFT JOIN a USING (person) LEFT JOIN b USING (person).",
            )
        if join.kind in ("SEMI", "ANTI"):
            return self._semi_join(join)
        if join.nearest:
            return [self._nearest_join(join)]
        before = len(self.scope.items)
        left = self._members(join.left)
        middle = len(self.scope.items)
        right = self._members(join.right)
        self.conditions += self._using(join, before, middle)
        if join.condition is not None:
            self.conditions += self.conjuncts(join.condition)
        return [*left, *right]

    def _semi_join(self, join: Join) -> list[Member]:
        """Return the left side of a SEMI or ANTI JOIN; EXISTS or NOT EXISTS in WHERE chooses its rows."""
        before = len(self.scope.items)
        members = self._members(join.left)
        ours = self.scope.items[before:]
        names = join.using
        if join.natural:
            theirs = {fold(column.name) for source in leaves(join.right) for column in self._leaf(source)[0].columns}
            names = tuple(
                column.name for item in ours for column in item.relation.columns if fold(column.name) in theirs
            )
        equal = [Expr("compare", "=", (Expr("column", names=(name,)), self._column_in(ours, name))) for name in names]
        met = [*equal, *([] if join.condition is None else [join.condition])]
        where = met[0] if len(met) == 1 else Expr("and", parts=tuple(met)) if met else None
        literal = Expr("constant", "number", value="1")
        subquery = Expr("subquery", "EXISTS", query=Select(items=(literal,), source=join.right, where=where))
        self._choosing.append(subquery if join.kind == "SEMI" else Expr("not", parts=(subquery,)))
        return members

    def _nearest_join(self, join: Join) -> Member:
        """Return an ASOF JOIN of rows of people with a public table."""
        before = len(self.scope.items)
        around, self.conditions = self.conditions, []
        joined = self._members(join.left)
        middle = len(self.scope.items)
        self._members(join.right)
        theirs = self.scope.items[middle:]
        if len(theirs) > 1 or theirs[0].relation.level != PUBLIC or not any(member.people for member in joined):
            raise chosen_by_others("ASOF")
        on = self._using(join, before, middle)
        on[-1:] = [replace(condition, name=">=") for condition in on[-1:]]
        on += [] if join.condition is None else self.conjuncts(join.condition)
        ours, self.conditions = self.conditions, around
        pairs = [pair for pair in (self._sides(condition, theirs[0].id) for condition in on) if pair is not None]
        if len(pairs) < len(on) or sum(condition.name != "=" for condition in pairs) != 1:
            raise ParameterError(
                "P103",
                "sql: ON of an ASOF JOIN has equalities and one of <, <=, > and >= between the people's table and the "
                "public one. Write other conditions into WHERE.",
            )
        outer = self.joining.together(joined, ours)
        self.conditions += ours
        table = Stage(self.work, Scope(theirs), member_of(theirs[0]), [])
        relation, keys = first_rows(table, [(pair.parts[1], self.compared_as(pair)) for pair in pairs], ())
        item = Item(theirs[0].id, _computed_first(relation), theirs[0].alias, optional=join.kind == "LEFT")
        self.scope.items[middle] = item
        conditions = [
            replace(pair, parts=(pair.parts[0], Expr("item", key, value=item.id)))
            for pair, key in zip(pairs, keys, strict=True)
        ]
        return self.joining.nearest(outer, member_of(item), conditions, outer=join.kind == "LEFT")

    def compared_as(self, condition: Expr) -> str | None:
        """Return the type that a comparison casts its right side to, if the types of its sides differ."""
        kinds = {self.work.expressions.type(side, self.scope.columns(side)).kind for side in condition.parts}
        return "TIMESTAMP" if condition.name != "=" and kinds == {"DATE", "TIMESTAMP"} else None

    def _sides(self, condition: Expr, public: str) -> Expr | None:
        """Return a comparison with a public table's side on the right; None if it is no such comparison."""
        if condition.what != "compare" or condition.name not in TURNED or _asks(condition):
            return None
        for sign, (mine, their) in (
            (condition.name, condition.parts),
            (TURNED[condition.name], condition.parts[::-1]),
        ):
            if self.scope.numbers(their) == {public} and public not in self.scope.numbers(mine) != frozenset():
                return replace(condition, name=sign, parts=(mine, their))
        return None

    def _reads_missing(self, expr: Expr) -> bool:
        return bool(self.scope.numbers(expr) & self.missing)

    def _using(self, join: Join, before: int, middle: int) -> list[Expr]:
        """Return the equalities of USING and NATURAL, and store the column of each name."""
        left, right = self.scope.items[before:middle], self.scope.items[middle:]
        names = join.using
        if join.natural:
            left_names = {fold(column.name) for item in left for column in item.relation.columns}
            names = tuple(
                column.name for item in right for column in item.relation.columns if fold(column.name) in left_names
            )
        out = []
        for name in names:
            sides = [self._column_in(items, name) for items in (left, right)]
            out.append(Expr("compare", "=", tuple(sides)))
            self.scope.merged[fold(name)] = sides[0]
        return out

    def _column_in(self, items: Sequence[Item], name: str) -> Expr:
        for item in items:
            if not item.hidden and (column := item.column(name)) is not None:
                return item_column(item, column)
        raise SourceError("S002", f"sql: column {name} of USING is not found on both sides. Write ON.")

    def _outer(self, join: Join, *, swapped: bool = False) -> list[Member]:
        """Return a LEFT JOIN, with conditions on its right side alone moved into that side."""
        around, self.conditions = self.conditions, []
        before = len(self.scope.items)
        left = self._members(join.left)
        ours, self.conditions = self.conditions, []
        middle, choosing, missing = len(self.scope.items), len(self._choosing), len(self.missing)
        right = self._members(join.right)
        theirs, self.conditions = self.conditions, around
        if len(self._choosing) > choosing or len(self.missing) > missing:
            raise ParameterError(
                "P101",
                "sql: a SEMI, ANTI or LEFT JOIN on the joined side of a LEFT JOIN is not read. Put it into WITH.",
            )
        on = self._using(join, before, middle)
        if join.condition is not None:
            on += self.conjuncts(join.condition)
        ids = {item.id for item in self.scope.items[middle:]}
        if any(map(self._reads_missing, on)):
            self.missing |= ids
        equal = []
        for condition in on:
            if _asks(condition):
                raise ParameterError("P101", "sql: a subquery in the ON of a LEFT JOIN is not read. Put it into WITH.")
            read = self.scope.numbers(condition)
            if read and read <= ids:
                theirs.append(condition)
            else:
                equal.append(condition)
        if not any(member.people for member in left) and any(member.people for member in right):
            self._outer_conditions += [*theirs, *equal]
            self.missing |= ids
            self._optional(ids)
            outer = self.joining.together(left, ours)
            return [self._filtered(outer, ours) if ours else outer, *right]
        inner = self._filtered(self.joining.together(right, theirs), theirs)
        met = [*ours, *self._outer_conditions]
        outer = self.joining.together(left, met)
        ours, self._outer_conditions = (
            [condition for condition in conditions if condition in met] for conditions in (ours, self._outer_conditions)
        )
        if ours:
            outer = self._filtered(outer, ours)
        equal = [part for condition in equal for part in _ends(condition)]
        equalities = list(self.joining.equalities(outer, inner, equal))
        comparisons = list(self.joining.comparisons(outer, inner, equal))
        if len(equalities) + len(comparisons) < len(equal):
            raise ParameterError(
                "P101",
                "sql: ON of a LEFT JOIN has more than comparisons of one side with the other and conditions on the "
                "joined table, such as an OR of both sides. Write the rest into CASE: max(CASE WHEN ... THEN x END).",
            )
        self._optional(ids)
        return [replace(self.joining.left(outer, inner, equalities, comparisons), is_single=False)]

    def _optional(self, ids: set[str]) -> None:
        """Mark items whose columns an outer join may make NULL."""
        for index, item in enumerate(self.scope.items):
            if item.id in ids:
                self.scope.items[index] = replace(item, optional=True)

    def _filtered(self, member: Member, conditions: list[Expr]) -> Member:
        """Return a table with only the rows that meet conditions."""
        if not conditions:
            return member
        if len(member.items) > 1:
            raise ParameterError(
                "P101", "sql: a condition on several tables joined at once in ON is not read. Put them into WITH."
            )
        [item] = member.items
        condition = conditions[0] if len(conditions) == 1 else Expr("and", parts=tuple(conditions))
        where = self.work.expressions.write(condition, self.scope.columns(condition), "BOOLEAN").sql
        name = identifier(item.id)
        return replace(member, text=f"(SELECT * FROM {item.relation.sql} AS {name} WHERE {where}) AS {name}")


TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
_KEY, _PLACE = "dpsql_key", "dpsql_place"


def first_rows(
    stage: Stage, compared: Sequence[tuple[Expr, str | None]], orders: Sequence[Order], value: Expr | None = None
) -> tuple[QueryRelation, list[str]]:
    """Return the first public row for each combination of compared values, and the columns that hold these.

    The order is the caller's and then that of all contents, so no other row decides which row is first: rows that still
    tie are identical. Compared values may be cast. The columns are those of the rows, or the `value` alone.
    """
    keys = [f"{_KEY}{number}" for number in range(len(compared))]
    read = [(item, column) for item in stage.scope.items for column in item.relation.columns]
    columns = [column if value is None else replace(column, sql=f"c{at}") for at, (_, column) in enumerate(read)]
    listed = [
        f"{item.sql(column.sql)} AS {identifier(out.sql)}" for (item, column), out in zip(read, columns, strict=True)
    ]
    kinds = []
    for key, (expr, target) in zip(keys, compared, strict=True):
        expression = stage.write(expr, target)
        kinds.append(expression.type)
        listed.append(f"{expression.sql} AS {identifier(key)}")
    by = []
    for number, order in enumerate(orders):
        listed.append(f"{stage.write(order.expression).sql} AS {identifier(f'dpsql_order{number}')}")
        by.append(f"{identifier(f'dpsql_order{number}')} {order_words(order)}".rstrip())
    by += [f"{sql} ASC NULLS LAST" for column in columns for sql in contents(identifier(column.sql), column.type)]
    if value is not None:
        listed.append(f"{stage.write(value).sql} AS v")
        columns = [Column("v", "v", stage.write(value).type)]
    parted = ", ".join(map(identifier, keys))
    numbering = (
        f"system.main.row_number() OVER (PARTITION BY {parted} ORDER BY {', '.join(by)}) AS {identifier(_PLACE)}"
    )
    names = ", ".join([*(identifier(column.sql) for column in columns), *map(identifier, keys)])
    text = f"(SELECT {names} FROM (SELECT *, {numbering} FROM (SELECT {', '.join(listed)} {stage.body}))"
    unseen = tuple(Column(key, key, kind) for key, kind in zip(keys, kinds, strict=True))
    text = f"{text} WHERE {identifier(_PLACE)} = 1)"
    return QueryRelation(PUBLIC, tuple(columns), text, unseen=unseen, name=stage.scope.items[0].relation.name), keys


def _computed_first(relation: QueryRelation) -> QueryRelation:
    """Materialize a public query, so that DuckDB computes all its rows, matched or not.

    If the query fails, it must fail for any rows of people.
    """
    if relation.level != PUBLIC or not relation.sql.startswith("("):
        return relation
    text = f"(WITH query_public AS MATERIALIZED (SELECT * FROM {relation.sql} AS q) SELECT * FROM query_public)"
    return replace(relation, sql=text)


def _conjuncts(expr: Expr) -> list[Expr]:
    """Return the conditions that must all hold, including the common conditions of an OR's parts."""
    if expr.what == "and":
        return [conjunct for part in expr.parts for conjunct in _conjuncts(part)]
    if expr.what == "or":
        demanded = [_conjuncts(part) for part in expr.parts]
        common = [conjunct for conjunct in demanded[0] if all(conjunct in conjuncts for conjuncts in demanded[1:])]
        return [*common, expr]
    return [expr]


def _ends(condition: Expr) -> tuple[Expr, ...]:
    """Return the comparisons of a condition: two for BETWEEN."""
    if condition.what != "between":
        return (condition,)
    value, least, most = condition.parts
    return Expr("compare", ">=", (value, least)), Expr("compare", "<=", (value, most))


def _asks(expr: Expr) -> bool:
    """Whether an expression holds a subquery."""
    return any(part.what == "subquery" for part in expr.walk())


def asks(expr: Expr) -> bool:
    """Whether an expression holds a subquery."""
    return _asks(expr)


def levels(relations: Sequence[QueryRelation]) -> str:
    """Return the level of relations read together."""
    kinds = {relation.level for relation in relations}
    return ROWS if ROWS in kinds else next((level for level in kinds if level != PUBLIC), PUBLIC)


def first_of(groups: Sequence[Expr], orders: tuple[Order, ...]) -> Expr:
    """Return the QUALIFY condition that keeps the first row of each group in an order, as DISTINCT ON does."""
    number = Expr("window", "row_number", orders=orders, partitions=tuple(groups), alias=DISTINCT_ON)
    return Expr("compare", "=", (number, Expr("constant", "number", value="1")))
