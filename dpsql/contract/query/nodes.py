"""A query as the splitter reads it: one form for all versions of DuckDB.

Errors name the position of a refused expression in the text: its line, its column and its words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from dpsql.contract.parameters import show
from dpsql.errors import DpsqlError, InternalError

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
    """A join; `kind` is INNER, LEFT, RIGHT, OUTER, SEMI or ANTI."""

    kind: str
    left: From
    right: From
    condition: Expr | None = None
    using: tuple[str, ...] = ()
    natural: bool = False


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
