"""Rows of people after joins and WHERE, and the SQL of computations over them.

A stage is a FROM with its conditions. Groups and windows over one person's rows make another stage above it.

A window that chooses among one person's rows has a total order. The caller's order comes first, then all columns read
from the rows (`spellings.contents`). Rows that still tie are identical, so neither other people's rows nor DuckDB's
threads decide which row comes first. `rank`, `dense_rank` and frames of RANGE and GROUPS use peers, which depend on the
caller's order only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from dpsql.contract.expression.kinds import FLOATS, INTEGERS, ZONED_TIMESTAMP, Type
from dpsql.contract.query.catalogue import PathKey
from dpsql.contract.query.expressions import Written
from dpsql.contract.query.intervals import NOWHERE, Limits, has_value, interval, number, refuses_null
from dpsql.contract.query.joins import ColumnId, Member, member_of
from dpsql.contract.query.keys import KeyFinder
from dpsql.contract.query.nodes import Expr, about, frame_sql, order_words
from dpsql.contract.query.relations import (
    DATE,
    ROWS,
    UNIT,
    Column,
    Item,
    QueryRelation,
    Scope,
    Splitting,
    check_written,
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
from dpsql.errors import ParameterError, SourceError
from dpsql.rendering import call, cast, identifier

# These functions ignore the frame; first and last values depend on the frame's rows.
_NUMBERING = frozenset(("row_number", "lag", "lead"))
_CHOOSING = frozenset(("first_value", "last_value"))
_OF_PEERS = frozenset(("rank", "dense_rank"))
WINDOWS = _NUMBERING | _CHOOSING | _OF_PEERS | {"count", "count_star", *ENDS}
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
        if name in _NUMBERING or self._goes_by_rows:
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
        if frame is None or self.expr.name in _NUMBERING:
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
        return KeyFinder(self.scope, self.work.expressions, self.all_conditions, self.interval, self.work.revised)

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
            dated=self.member.dated,
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
        for number_, group in enumerate(groups):
            with about(group):
                expression, name = self.write(group), f"g{number_}"
                read = name if self._keeps_spelling(group, expression.type) else f"v{number_}"
                inner.append(f"{expression.sql} AS {identifier(read)}")
                if read == name:
                    listed.append(identifier(name))
                else:
                    outputs.append(f"{one_of_group(identifier(read), expression.type)} AS {identifier(name)}")
            columns.append(self._output(group, name, name, expression.type))
            names.append(identifier(read))
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
        unseen = tuple(column for column in self._unseen if column.owner)  # a group has no row's date
        one_of_rows = (*ENDS, *_INTERPOLATED)
        chosen = [
            column
            for aggregate, column in zip(aggregates, columns[len(groups) :], strict=True)
            if aggregate.name in one_of_rows
        ]
        chosen += [column for group, column in zip(groups, columns, strict=False) if not self._says_whose(group)]
        return self._above(self._of_equals(f"({text})", chosen), columns, unseen), replacements

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
            dated=self.member.dated,
            unseen=self._unseen if unseen is None else unseen,
            tables=self.member.tables,
        )
        item = Item("g0", relation, "")
        scope = Scope([item], outer=self.scope.outer)
        return Stage(self.work, scope, member_of(item), [])

    def _aggregate(self, expr: Expr, index: int, inner: list[str]) -> tuple[str, Type, Limits]:
        """Return the SQL of an aggregate of one person's rows, which cannot fail; add its inputs to `inner`."""
        if expr.name not in _PER_PERSON or expr.orders or (expr.flag and expr.name != "count"):
            instead = (
                "What one of the person's rows has is a column of it: QUALIFY row_number() OVER (PARTITION BY person "
                "ORDER BY ...) = 1."
                if expr.name in _OF_ONE_ROW
                else "Below a private aggregate there are count, sum, avg, min, max, median, quantile_cont, bool_and "
                "and bool_or."
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
                return call("count_star"), Type("BIGINT"), Limits(number(_constant("1")))
            expression = self.write(expr.filter, "BOOLEAN")
            inner.append(f"{expression.sql} AS {identifier(f'a{index}_0')}")
            return call("count_if", identifier(f"a{index}_0")), Type("BIGINT"), Limits(number(_constant("0")))
        limits = self.interval(expr.parts[0])
        kind = kinds[0]
        if expr.name in ("count", "count_if", "countif"):
            distinct = "DISTINCT " if expr.flag else ""
            name = "count" if expr.name == "count" else "count_if"
            return f"system.main.{name}({distinct}{names[0]})", Type("BIGINT"), Limits(number(_constant("0")))
        if expr.name == "sum":
            return *self._sum(names[0], kind), NOWHERE
        if expr.name in ("avg", "mean"):
            total, _ = self._sum(names[0], kind)
            count = call("count", names[0])
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

    def _sum(self, name: str, kind: Type) -> tuple[str, Type]:
        """Return a sum that cannot overflow and does not depend on the order of rows."""
        if kind.kind in INTEGERS and "HUGE" not in kind.kind:
            return call("sum", name), Type("HUGEINT")
        if kind.kind == "BOOLEAN":
            return call("sum", cast(name, "INTEGER")), Type("HUGEINT")
        if kind.kind in INTEGERS:
            ends = [cast(str(end), "HUGEINT") for end in (_CLIP, -_CLIP)]
            clipped = call("greatest", call("least", f"TRY_CAST({name} AS HUGEINT)", ends[0]), ends[1])
            return call("sum", f"CASE WHEN {name} IS NOT NULL THEN {clipped} END"), Type("HUGEINT")
        if kind.kind == "DECIMAL" and kind.sizes[0] <= _SAFE_WIDTH:
            return call("sum", name), Type("DECIMAL", (38, kind.sizes[1]))
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
        total = call("/", cast(call("sum", integer), "DOUBLE"), f"'{float(1 << _FIXED)!r}'::DOUBLE")
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
                "first_value, last_value, rank, dense_rank, count, min and max.",
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
                "privacy unit first.",
            )
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
            [add_column(partition) for partition in expr.partitions],
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
        low, high = map(number, condition.parts[1:])
        return [(condition.parts[0], Limits(low, high))]
    if condition.what != "compare" or condition.name not in ("<", "<=", ">", ">=", "="):
        return []
    out = []
    turned = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(condition.name, "=")
    first, second = condition.parts
    for sign, left, right in ((condition.name, first, second), (turned, second, first)):
        value = number(right)
        if value is not None:
            lower = value if sign in (">", ">=", "=") else None
            upper = value if sign in ("<", "<=", "=") else None
            out.append((left, Limits(lower, upper)))
    return out
