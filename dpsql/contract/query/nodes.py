"""A query as the splitter reads it and writes it: one form for all versions of DuckDB.

Errors name the position of a refused expression in the text: its line, its column and its words.

**Writing.** Parsing the written SQL gives the same nodes, whatever its names are. So a stranger's text never runs:
dpsql parses the text, checks the tree, and runs the SQL written here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import TypeVar

from dpsql.contract.parameters import fold, show
from dpsql.dataclass import dataclass
from dpsql.errors import DpsqlError, InternalError, ParameterError
from dpsql.rendering import call, cast, coalesce, identifier, text

_Value = TypeVar("_Value")


def require(value: _Value | None) -> _Value:
    """Return a part that is never missing after reading and binding."""
    if value is None:
        raise InternalError("I036", "a part of a query is missing. Report the query as a fault.")
    return value


@dataclass(frozen=True)
class Order:
    """A part of an ORDER BY."""

    expression: Expr
    direction: str = ""  # '', 'ASC' or 'DESC'
    nulls: str = ""  # '', 'NULLS FIRST' or 'NULLS LAST'


@dataclass(frozen=True)
class WindowFrame:
    """The frame of a window: two ends with their expressions, and the excluded rows."""

    start: str = ""
    start_by: Expr | None = None
    end: str = ""
    end_by: Expr | None = None
    exclude: str = ""


@dataclass(frozen=True)
class Expr:
    """An expression.

    Attributes
    ----------
    what : str
        column (`names`), constant (`name` is its kind, `value` its text), star (`name` of a relation; excluded `names`;
        `parts` that replace columns), call, window, cast (`name` is the type), compare, and, or, not, null, present,
        coalesce, in, between, case (pairs of WHEN and THEN, then ELSE), element, slice, list, try, grouping, subquery
        (`name` is SCALAR, EXISTS or ANY; `value` the sign), collate, lambda, position; and after names are resolved:
        item (`value` is the relation's number, `name` the column).
    """

    what: str
    name: str = ""
    parts: tuple[Expr, ...] = ()
    names: tuple[str, ...] = ()
    value: str | None = None
    flag: bool = False  # DISTINCT of a call, TRY of a cast; for a COALESCE: it is part of concat
    filter: Expr | None = None
    orders: tuple[Order, ...] = ()
    partitions: tuple[Expr, ...] = ()
    frame: WindowFrame | None = None
    query: Query | None = None
    alias: str = field(default="", compare=False)
    at: int | None = field(default=None, compare=False)  # offset in the text, in bytes

    @property
    def begins(self) -> int | None:
        """The offset of the first part in the text; None if unknown."""
        return min((part.at for part in self.walk() if part.at is not None), default=None)

    def mapped(self, change: Callable[[Expr], Expr]) -> Expr:
        """Return the expression with changed parts; subqueries stay."""
        frame = self.frame
        if frame is not None:
            by = [None if end is None else change(end) for end in (frame.start_by, frame.end_by)]
            frame = replace(frame, start_by=by[0], end_by=by[1])
        return replace(
            self,
            parts=tuple(map(change, self.parts)),
            filter=None if self.filter is None else change(self.filter),
            orders=tuple(replace(order, expression=change(order.expression)) for order in self.orders),
            partitions=tuple(map(change, self.partitions)),
            frame=frame,
        )

    @property
    def inner(self) -> Iterator[Expr]:
        """The direct parts of the expression, without subqueries."""
        yield from self.parts
        if self.filter is not None:
            yield self.filter
        yield from (order.expression for order in self.orders)
        yield from self.partitions
        if self.frame is not None:
            yield from (end for end in (self.frame.start_by, self.frame.end_by) if end is not None)

    def walk(self) -> Iterator[Expr]:
        """Yield the expression and all its parts; enter no subquery."""
        yield self
        for part in self.inner:
            yield from part.walk()


@dataclass(frozen=True)
class From:
    """The FROM of a query."""


@dataclass(frozen=True)
class Nothing(From):
    """No FROM."""


@dataclass(frozen=True)
class TableRef(From):
    """The name of a table, view or WITH query."""

    names: tuple[str, str, str]
    alias: str = ""
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Derived(From):
    """A subquery in FROM."""

    query: Query
    alias: str = ""
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Listed(From):
    """VALUES."""

    rows: tuple[tuple[Expr, ...], ...]
    alias: str = ""
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableFunction(From):
    """A table function."""

    call: Expr
    alias: str = ""
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Show(From):
    """SHOW and DESCRIBE."""

    kind: str
    name: str = ""
    query: Query | None = None


@dataclass(frozen=True)
class Join(From):
    """A join; `kind` is INNER, LEFT, RIGHT, OUTER, SEMI or ANTI. An ASOF join takes the `nearest` row alone."""

    kind: str
    left: From
    right: From
    condition: Expr | None = None
    using: tuple[str, ...] = ()
    natural: bool = False
    nearest: bool = False


@dataclass(frozen=True)
class Modifiers:
    """The clauses at the end of a query."""

    distinct: bool = False
    distinct_on: tuple[Expr, ...] = ()
    orders: tuple[Order, ...] = ()
    limit: Expr | None = None
    offset: Expr | None = None
    percent: bool = False

    @property
    def cuts(self) -> bool:
        """Whether LIMIT or OFFSET may drop rows."""
        return self.limit is not None or self.offset is not None


@dataclass(frozen=True)
class With:
    """A WITH query."""

    name: str
    query: Query
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Query:
    """A SELECT or a set operation."""

    withs: tuple[With, ...] = ()
    modifiers: Modifiers = field(default_factory=Modifiers)


@dataclass(frozen=True)
class Select(Query):
    """One SELECT."""

    items: tuple[Expr, ...] = ()
    source: From = field(default_factory=Nothing)
    where: Expr | None = None
    groups: tuple[Expr, ...] = ()
    sets: tuple[tuple[int, ...], ...] = ()
    group_all: bool = False
    having: Expr | None = None
    qualify: Expr | None = None


@dataclass(frozen=True)
class SetOperation(Query):
    """UNION, EXCEPT or INTERSECT of queries."""

    kind: str = "UNION"
    every: bool = False
    parts: tuple[Query, ...] = ()


_MOST_WORDS = 40
_STANDS = re.compile(r" It stands at line \d+, column \d+: .*\Z", re.DOTALL)


@contextmanager
def about(expr: Expr | None) -> Iterator[None]:
    """Attach the expression's position to the error; the innermost known position wins."""
    try:
        yield
    except DpsqlError as error:
        if error.offset is None and expr is not None:
            error.offset = expr.begins
        raise


@contextmanager
def pointing(sql: str) -> Iterator[None]:
    """Add the noted position to the error's message."""
    try:
        yield
    except DpsqlError as error:
        position = "" if error.offset is None else _position_text(sql.encode(), error.offset)
        if position:
            error.saying(f"{error.message} {position}")
        raise


def unpointed(error: DpsqlError) -> None:
    """Remove the position that `pointing` added: nobody wrote this text."""
    error.saying(_STANDS.sub("", error.message))


def _position_text(sql: bytes, offset: int) -> str:
    """Return line, column and words at an offset; '' if no words follow."""
    before, words = (part.decode(errors="ignore") for part in (sql[:offset], sql[offset:]))
    words = words.split("\n", 1)[0].strip()
    if not words:
        return ""
    if len(words) > _MOST_WORDS:
        words = f"{words[: _MOST_WORDS - 3]}..."
    column = len(before) - (before.rfind("\n") + 1) + 1
    return f"It stands at line {before.count(chr(10)) + 1}, column {column}: {show(words)}."


_INFIX = frozenset(("+", "-", "*", "/", "//", "%"))


class Writer:
    """Writes expressions; subclasses over rows of people or released rows write columns and subqueries."""

    def sql(self, expr: Expr, bound: frozenset[str] = frozenset()) -> str:
        """Return the SQL of an expression.

        Raises
        ------
        ParameterError
            P101: the expression contains a star, as in ``*.n``, which DuckDB would read differently.
        """
        if any(part.what == "star" for part in expr.parts):
            raise ParameterError("P101", "sql: a star within an expression is not read. Write the columns out.")
        writers: dict[str, Callable[[Expr], str]] = {
            "constant": constant_sql,
            "item": lambda node: f"{identifier(str(node.value))}.{identifier(node.name)}",
            "column": lambda node: self.column(node, bound),
            "star": lambda node: self._star(node, bound),
            "call": lambda node: self._call(node, bound),
            "window": lambda node: self._window(node, bound),
            "subquery": lambda node: self.subquery_sql(node, bound),
            "lambda": lambda node: self._lambda(node, bound),
            "collate": lambda node: f"({self.sql(node.parts[0], bound)} COLLATE {_collation(node.name)})",
        }
        writer = writers.get(expr.what)
        if writer is not None:
            return writer(expr)
        return self._operator(expr, [self.sql(part, bound) for part in expr.parts])

    def _operator(self, expr: Expr, parts: list[str]) -> str:
        what = expr.what
        if what in ("and", "or"):
            return f"({f' {what.upper()} '.join(parts)})"
        if what == "compare":
            return f"({parts[0]} {expr.name} {parts[1]})"
        if what == "in":
            return f"({parts[0]} IN ({', '.join(parts[1:])}))"
        if what == "case":
            whens = "".join(f" WHEN {when} THEN {then}" for when, then in zip(parts[:-1:2], parts[1::2], strict=True))
            return f"(CASE{whens} ELSE {parts[-1]} END)"
        if what == "cast":
            return f"TRY_CAST({parts[0]} AS {expr.name})" if expr.flag else cast(parts[0], expr.name)
        if what == "coalesce":
            return coalesce(*parts)
        if what == "element":
            return call("array_extract", *parts)
        if what == "field":
            return call("struct_extract", *parts)
        if what == "slice":
            return call("array_slice", *parts)
        if what == "grouping":
            return f"GROUPING({', '.join(parts)})"
        forms = {"not": "(NOT {})", "null": "({} IS NULL)", "present": "({} IS NOT NULL)", "try": "TRY({})"}
        forms["between"] = "({} BETWEEN {} AND {})"
        if what not in forms:
            raise ParameterError("P101", f"sql: {what} is not read there. Write the query without it.")
        return forms[what].format(*parts)

    def column(self, expr: Expr, bound: frozenset[str]) -> str:
        """Return the SQL of a column; `bound` are the parameters of the enclosing lambdas."""
        return ".".join(map(identifier, expr.names))

    def name(self, expr: Expr) -> str:
        """Return the name of the function that an expression calls."""
        return f"system.main.{expr.name if expr.name.isidentifier() else identifier(expr.name)}"

    def shown(self, expr: Expr) -> str:
        """Return the name of an expression's result column, as DuckDB gives it or nearly so.

        The name of a column is ``''``: DuckDB names it, and it may be a word such as CURRENT_DATE.
        """
        if expr.what == "column":
            return expr.alias
        return default_name(expr) or _DisplayWriter().sql(expr)

    def subquery_sql(self, expr: Expr, bound: frozenset[str]) -> str:
        """Return the SQL of a subquery."""
        return self.compared(expr, f"({query_sql(require(expr.query), self)})", bound)

    def compared(self, expr: Expr, body: str, bound: frozenset[str]) -> str:
        """Return a subquery with its comparison, if any; `body` is in parentheses."""
        if expr.name == "EXISTS":
            return f"EXISTS {body}"
        if expr.name == "SCALAR":
            return body
        child = self.sql(expr.parts[0], bound)
        return f"({child} {expr.value} ANY {body})" if expr.value != "=" else f"({child} IN {body})"

    def _star(self, expr: Expr, bound: frozenset[str]) -> str:
        out = f"{identifier(expr.name)}.*" if expr.name else "*"
        if expr.names:
            out += f" EXCLUDE ({', '.join(map(identifier, expr.names))})"
        if expr.parts:
            listed = (f"{self.sql(part.parts[0], bound)} AS {identifier(part.name)}" for part in expr.parts)
            out += f" REPLACE ({', '.join(listed)})"
        return out

    def _call(self, expr: Expr, bound: frozenset[str]) -> str:
        name = self.name(expr)
        arguments = [self.sql(part, bound) for part in expr.parts]
        if expr.names:
            arguments = [
                f"{identifier(label)} := {argument}" if label else argument
                for label, argument in zip(expr.names, arguments, strict=True)
            ]
        listed = ", ".join(arguments)
        if expr.flag:
            listed = f"DISTINCT {listed}"
        if expr.orders:
            listed += f" ORDER BY {self.orders(expr.orders, bound)}"
        out = f"{name}({listed})"
        if expr.filter is not None:
            out += f" FILTER (WHERE {self.sql(expr.filter, bound)})"
        return out

    def _window(self, expr: Expr, bound: frozenset[str]) -> str:
        arguments = [self.sql(part, bound) for part in expr.parts]
        listed = ", ".join(arguments)
        listed = f"DISTINCT {listed}" if expr.flag else listed
        out = f"{self.name(expr)}({listed}{f' {expr.value}' if expr.value else ''})"
        if expr.filter is not None:
            out += f" FILTER (WHERE {self.sql(expr.filter, bound)})"
        over = []
        if expr.partitions:
            over.append(f"PARTITION BY {', '.join(self.sql(partition, bound) for partition in expr.partitions)}")
        if expr.orders:
            over.append(f"ORDER BY {self.orders(expr.orders, bound)}")
        frame = expr.frame
        if frame is not None and (frame.start, frame.end, frame.exclude) != (
            *("UNBOUNDED_PRECEDING", "CURRENT_ROW_RANGE"),
            "NO_OTHER",
        ):
            over.append(frame_sql(expr))
        return f"{out} OVER ({' '.join(over)})"

    def _lambda(self, expr: Expr, bound: frozenset[str]) -> str:
        names = ", ".join(map(identifier, expr.names))
        return f"lambda {names}: {self.sql(expr.parts[0], bound | frozenset(map(fold, expr.names)))}"

    def orders(self, orders: tuple[Order, ...], bound: frozenset[str] = frozenset()) -> str:
        """Return the SQL of an ORDER BY's parts."""
        if len(orders) == 1 and orders[0].expression.what == "star":
            return f"ALL {order_words(orders[0])}".rstrip()
        return ", ".join(f"{self.sql(order.expression, bound)} {order_words(order)}".rstrip() for order in orders)


class _DisplayWriter(Writer):
    """Writes an expression as DuckDB displays it, to name a column; this text does not run."""

    def column(self, expr: Expr, bound: frozenset[str]) -> str:
        return ".".join(expr.names)

    def name(self, expr: Expr) -> str:
        return expr.name

    def _call(self, expr: Expr, bound: frozenset[str]) -> str:
        if expr.name in _INFIX and len(expr.parts) == 2:
            left, right = (self.sql(part, bound) for part in expr.parts)
            return f"({left} {expr.name} {right})"
        return super()._call(expr, bound)


# Queries.


def query_sql(query: Query, writer: Writer | None = None) -> str:
    """Return the SQL of a query.

    Raises
    ------
    ParameterError
        P101: the query has an unsupported part, such as SHOW.
    """
    own = writer or Writer()
    out = f"WITH {', '.join(_with_sql(clause, own) for clause in query.withs)} " if query.withs else ""
    if isinstance(query, SetOperation):
        word = f" {query.kind}{' ALL' if query.every else ''} "
        return out + word.join(f"({query_sql(part, own)})" for part in query.parts) + ends(query, own)
    if not isinstance(query, Select):
        raise ParameterError("P101", "sql: this is not written anew. Ask one SELECT.")
    return out + select_text(query, own, lambda source: _from_sql(source, own))


def _with_sql(clause: With, writer: Writer) -> str:
    return f"{identifier(clause.name)}{_columns(clause.columns)} AS ({query_sql(clause.query, writer)})"


def _from_sql(source: From, writer: Writer) -> str:
    """Return the SQL of a FROM item that is no join."""
    if isinstance(source, TableRef):
        return ".".join(identifier(name) for name in source.names if name) + _alias_sql(source.alias, source.columns)
    if isinstance(source, Derived):
        return f"({query_sql(source.query, writer)}){_alias_sql(source.alias, source.columns)}"
    if isinstance(source, TableFunction):
        return writer.sql(source.call) + _alias_sql(source.alias, source.columns)
    if isinstance(source, Listed):
        rows = ", ".join(f"({', '.join(map(writer.sql, row))})" for row in source.rows)
        return f"(VALUES {rows}){_alias_sql(source.alias, source.columns)}"
    raise ParameterError("P101", "sql: this part of FROM is not written anew. Write the query without it.")


def _alias_sql(alias: str, columns: Sequence[str]) -> str:
    return f" AS {identifier(alias)}{_columns(columns)}" if alias else ""


def _columns(names: Sequence[str]) -> str:
    return f" ({', '.join(map(identifier, names))})" if names else ""


def select_text(query: Select, writer: Writer, read: Callable[[From], str], extra_columns: Sequence[str] = ()) -> str:
    """Return the SQL of a SELECT without its WITH queries.

    Parameters
    ----------
    query : Select
    writer : Writer
    read : callable
        Returns the SQL of a FROM item that is no join.
    extra_columns : sequence of str
        Expressions after the select list.
    """
    modifiers = query.modifiers
    distinct = "DISTINCT " if modifiers.distinct else ""
    if modifiers.distinct_on:
        distinct = f"DISTINCT ON ({', '.join(map(writer.sql, modifiers.distinct_on))}) "
    listed = []
    for item in query.items:
        name = writer.shown(item)
        alias = f" AS {identifier(name)}" if name and item.what != "star" else ""
        listed.append(f"{writer.sql(item)}{alias}")
    out = f"SELECT {distinct}{', '.join([*listed, *extra_columns])}"
    source = _from_text(query.source, writer, read)
    out += f" FROM {source}" if source else ""
    out += f" WHERE {writer.sql(query.where)}" if query.where is not None else ""
    out += _group_text(query, writer)
    out += f" HAVING {writer.sql(query.having)}" if query.having is not None else ""
    out += f" QUALIFY {writer.sql(query.qualify)}" if query.qualify is not None else ""
    return out + ends(query, writer)


def _group_text(query: Select, writer: Writer) -> str:
    if query.group_all and not query.groups:
        return " GROUP BY ALL"
    if not query.groups and not query.sets:
        return ""
    listed = [writer.sql(group) for group in query.groups]
    if len(query.sets) <= 1:
        return f" GROUP BY {', '.join(listed)}" if listed else ""
    sets = ", ".join(f"({', '.join(listed[index] for index in members)})" for members in query.sets)
    return f" GROUP BY GROUPING SETS ({sets})"


def _from_text(source: From, writer: Writer, read: Callable[[From], str]) -> str:
    if isinstance(source, Nothing):
        return ""
    if isinstance(source, Join):
        sides = [_from_text(side, writer, read) for side in (source.left, source.right)]
        right = f"({sides[1]})" if isinstance(source.right, Join) else sides[1]
        word = {"INNER": "JOIN", "OUTER": "FULL JOIN"}.get(source.kind, f"{source.kind} JOIN")
        if source.natural:
            return f"{sides[0]} NATURAL {word} {right}"
        if source.using:
            return f"{sides[0]} {word} {right} USING ({', '.join(map(identifier, source.using))})"
        if source.condition is None:
            return f"{sides[0]} CROSS JOIN {right}"
        return f"{sides[0]} {word} {right} ON {writer.sql(source.condition)}"
    return read(source)


def leaves(source: From) -> list[From]:
    """Return the FROM items without joins, from left to right."""
    if isinstance(source, Join):
        return [*leaves(source.left), *leaves(source.right)]
    return [] if isinstance(source, Nothing) else [source]


def ends(query: Query, writer: Writer) -> str:
    """Return the SQL of ORDER BY, LIMIT and OFFSET."""
    modifiers = query.modifiers
    out = f" ORDER BY {writer.orders(modifiers.orders)}" if modifiers.orders else ""
    if modifiers.limit is not None:
        out += f" LIMIT {writer.sql(modifiers.limit)}{'%' if modifiers.percent else ''}"
    if modifiers.offset is not None:
        out += f" OFFSET {writer.sql(modifiers.offset)}"
    return out


# Words and literals.


def constant_sql(expr: Expr) -> str:
    """Return the SQL of a constant."""
    if expr.name == "string":
        return text(str(expr.value))
    return "NULL" if expr.name == "NULL" else str(expr.value)


_SPANS = {
    f"to_{name}": name
    for name in (
        *("microseconds", "milliseconds", "seconds", "minutes", "hours", "days", "weeks", "months", "quarters"),
        *("years", "decades", "centuries", "millennia"),
    )
}


def literal_span(name: str, parts: Sequence[Expr]) -> str | None:
    """Return the text of ``INTERVAL 30 DAY``, which the parser turns into a call of a cast of a literal."""
    if name not in _SPANS or len(parts) != 1:
        return None
    [part] = parts
    while part.what == "cast" or (part.what == "call" and part.name == "trunc" and len(part.parts) == 1):
        part = part.parts[0]
    if part.what == "constant" and part.name in ("number", "string") and str(part.value).lstrip("-").isdecimal():
        return f"{part.value} {_SPANS[name]}"
    return None


def interval_sql(expr: Expr) -> str | None:
    """Return the SQL of a literal interval; None for any other expression."""
    span = literal_span(expr.name, expr.parts) if expr.what == "call" else None
    if span is not None:
        return cast(text(span), "INTERVAL")
    is_literal = (expr.what, expr.name) == ("cast", "INTERVAL") and expr.parts[0].what == "constant"
    return cast(constant_sql(expr.parts[0]), "INTERVAL") if is_literal else None


def frame_sql(expr: Expr) -> str:
    """Return the SQL of a window's frame, with literal distances."""
    frame = require(expr.frame)
    mode = next(
        (unit for unit in ("ROWS", "GROUPS", "RANGE") if frame.start.endswith(unit) or frame.end.endswith(unit)), "ROWS"
    )
    ends = []
    for end, by in ((frame.start, frame.start_by), (frame.end, frame.end_by)):
        words = end.removesuffix(f"_{mode}").removeprefix("EXPR_").replace("_", " ")
        if by is not None:
            size = constant_sql(by) if (by.what, by.name) == ("constant", "number") else interval_sql(by)
            if size is None:
                raise ParameterError("P101", "sql: a frame of computed size is not read. Write its size as a literal.")
            words = f"{size} {words}"
        ends.append(words)
    excluded = {"NO_OTHER": ""}.get(frame.exclude, f" EXCLUDE {frame.exclude.replace('_', ' ')}")
    return f"{mode} BETWEEN {ends[0]} AND {ends[1]}{excluded}"


def order_words(order: Order) -> str:
    """Return the direction of an order, and NULLS."""
    return " ".join(word for word in (order.direction, order.nulls) if word)


def default_name(expr: Expr) -> str:
    """Return the name that DuckDB gives a column of the select list; ``''`` if unknown."""
    if expr.alias:
        return expr.alias
    if expr.what == "column":
        return expr.names[-1]
    if expr.what == "call" and not (expr.flag or expr.filter or expr.orders) and all(
        part.what in ("column", "constant") for part in expr.parts
    ):  # fmt: skip
        arguments = ", ".join(
            text(str(part.value)) if part.name == "string" else default_name(part) for part in expr.parts
        )
        if expr.name in _INFIX and len(expr.parts) == 2:
            left, right = map(default_name, expr.parts)
            return f"({left} {expr.name} {right})"
        return f"{expr.name}({arguments})" if expr.name.isidentifier() else ""
    if expr.what == "constant":
        return constant_sql(expr)
    return ""


def _collation(name: str) -> str:
    return ".".join(map(identifier, name.split(".")))
