"""What the parts of a query's splitter share while one query is read.

**Buckets.** `time_bucket` of a date, written with what may be computed of a row: its width is a literal, as is its
origin.

Buckets of months begin in January 2000, all others on Monday, 3 January 2000, as DuckDB's do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from dpsql.contract.expression.kinds import ZONED_TIMESTAMP, Type
from dpsql.contract.names import read_as_text
from dpsql.contract.parameters import fold, show
from dpsql.contract.query.catalogue import Catalogue, CatalogueColumn, CatalogueTable, Options, PathKey
from dpsql.contract.query.disjoint import Indicator, are_disjoint
from dpsql.contract.query.expressions import RowExpressions, clock, simplified, with_plain_literals
from dpsql.contract.query.intervals import Limits
from dpsql.contract.query.nodes import Expr, Query, about
from dpsql.contract.query.relations import PUBLIC, ROWS, Column, KeyValues, PartOfQuery, Scope
from dpsql.contract.query.split import NoisyNumbers, QueryAggregate, QueryKey
from dpsql.errors import ParameterError, SourceError
from dpsql.rendering import identifier, with_one_spelling

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


_MOST_WRITTEN = 1_000_000


@dataclass(frozen=True)
class Env:
    """Where a query stands.

    Attributes
    ----------
    withs : mapping of str to callable
        What reads the WITH queries that it may name, folded; each is read once, where it is first named.
    outer : callable or None
        Returns the SQL of a column of a released or public query around it; None where there is none.
    depth : int
        How many scopes of rows are around it.
    top : bool
        Whether it is the whole query.
    joined : mapping of str to KeyValues
        The public values that a column of its result is joined with, folded.
    """

    withs: Mapping[str, Callable[[Mapping[str, KeyValues]], PartOfQuery]] = field(default_factory=dict)
    outer: Callable[[tuple[str, ...]], str | None] | None = None
    depth: int = 0
    top: bool = False
    joined: Mapping[str, KeyValues] = field(default_factory=dict)


@dataclass
class CoreDraft:
    """A core while it is put together: equal rows and keys are one core."""

    name: str
    body: str
    unit: str | None
    date: str | None
    keys: list[tuple[str, QueryKey]]
    private: bool
    dates: tuple[str, str] | None
    tables: tuple[str, ...]
    targets: dict[str, str] = field(default_factory=dict)
    aggregates: list[QueryAggregate] = field(default_factory=list)
    types: dict[str, Type] = field(default_factory=dict)
    margin_of: str | None = None  # as `QueryCore.margin_of`
    indicators: dict[str, Indicator] = field(default_factory=dict)  # of targets that are 1 where a condition holds

    @property
    def disjoint(self) -> bool:
        """As `QueryCore.disjoint`."""
        return are_disjoint(self.aggregates, self.indicators)


@dataclass
class Splitting:
    """One query that is split.

    Attributes
    ----------
    catalogue : Catalogue
    options : Options
    query : callable
        Returns the relation of a part of it.
    """

    catalogue: Catalogue
    options: Options
    query: Callable[[Query, Env], PartOfQuery]
    expressions: RowExpressions
    cores: list[CoreDraft] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    told: dict[tuple[str, str, NoisyNumbers], None] = field(default_factory=dict)  # as `Split.told`
    differs: bool = False  # as `Split.differs`

    def revised(self, differs: bool = True) -> bool:
        """Return whether a query is to be other than in earlier versions; note that it is, also where it is not to."""
        self.differs = self.differs or differs
        return differs and not self.options.earlier

    def table(self, table: CatalogueTable) -> PartOfQuery:
        """Return a table of the catalogue as a relation."""
        whole = ".".join(map(identifier, table.path))
        units = {fold(one) for one in table.units}
        keys = {fold(name): key for name, key in table.keys.items()}
        columns = tuple(
            self._column(table, one, fold(one.name) in units, keys.get(fold(one.name))) for one in table.columns
        )
        nothing = ", ".join(f"NULL::{stub_type(one.type)} AS {identifier(one.name)}" for one in table.columns)
        return PartOfQuery(
            PUBLIC if table.public else ROWS,
            columns,
            read_as_text(
                with_one_spelling(whole, table.loose) if self.revised(bool(table.loose)) else whole, table.texts
            ),
            f"(SELECT {nothing} WHERE false)",
            table.pending,
            owned=bool(table.units),
            dated=table.date is not None and not table.public,
            tables=() if table.public else (whole,),
            name=table.path,
        )

    def parent(self, key: PathKey) -> PartOfQuery | None:
        """Return the table at the end of a step of a path."""
        found = self.catalogue.parent(key)
        return None if found is None else self.table(found)

    def _column(self, table: CatalogueTable, column: CatalogueColumn, owner: bool, tie: PathKey | None) -> Column:
        name = fold(column.name)
        stated = [self._stated(side, table, name) for side in (self.options.lower, self.options.upper)]
        declared = Limits(column.lower, column.upper)
        given = Limits(*stated)
        origin = (
            "stated" if given.lower is not None or given.upper is not None else "declared" if declared.known else ""
        )
        bounds = Limits(
            given.lower if given.lower is not None else declared.lower,
            given.upper if given.upper is not None else declared.upper,
        )
        if column.type.kind == "BOOLEAN" and not bounds.known:
            bounds, origin = Limits(Fraction(0), Fraction(1)), "BOOLEAN"
        return Column(
            column.name,
            column.name,
            column.type,
            bounds,
            origin,
            lambda: self._keys(table, column),
            owner,
            tie,
            not table.public and table.date is not None and fold(table.date) == name,
            whole=column.required,
        )

    def _stated(self, side: Mapping[str, Fraction], table: CatalogueTable, name: str) -> Fraction | None:
        found = {fold(key): value for key, value in side.items()}
        return found.get(f"{fold(table.path[2])}.{name}", found.get(name))

    def _keys(self, table: CatalogueTable, column: CatalogueColumn) -> KeyValues | None:
        stated = self.stated_keys(column.name)
        if stated is not None:
            return stated
        if column.values is not None:
            return KeyValues(column.values, None, "declared")
        kind = column.type.kind
        if kind not in ("ENUM", "BOOLEAN"):
            return None
        known: tuple[str | None, ...] = ("true", "false") if kind == "BOOLEAN" else column.type.values
        return KeyValues(known if column.required or not self.revised() else (*known, None), None, kind)

    def stated_limits(self, name: str) -> Limits:
        """Return the bounds that the caller states for a column of a subquery."""
        sides = ({fold(key): value for key, value in side.items()} for side in (self.options.lower, self.options.upper))
        return Limits(*(side.get(fold(name)) for side in sides))

    def stated_keys(self, name: str) -> KeyValues | None:
        """Return the keys that the caller states for a column."""
        found = {fold(key): values for key, values in self.options.keys.items()}.get(fold(name))
        return None if found is None else KeyValues(found, None, "stated")

    def read(self, expr: Expr, scope: Scope) -> Expr:
        """Return an expression with its columns found and its clocks and aliases written out."""
        with about(expr):
            found = simplified(self._found(expr, scope, frozenset()), self.options.now)
        found = bucketed(found, lambda part: self.expressions.type(part, scope.columns(part)))
        plain = with_plain_literals(found, lambda part: self.expressions.type(part, scope.columns(part)))
        return plain if self.revised(plain != found) else found

    def _found(self, expr: Expr, scope: Scope, bound: frozenset[str]) -> Expr:
        if expr.what == "column":
            with about(expr):
                return replace(self._name(expr, scope, bound), alias=expr.alias, at=expr.at)
        inner = bound | frozenset(map(fold, expr.names)) if expr.what == "lambda" else bound
        return expr.mapped(lambda part: self._found(part, scope, inner))

    def _name(self, expr: Expr, scope: Scope, bound: frozenset[str]) -> Expr:
        if fold(expr.names[0]) in bound:
            return expr
        found = scope.resolved(expr.names)
        if found is not None:
            return found
        if len(expr.names) == 1:
            name = fold(expr.names[0])
            if name in scope.aliases:
                return replace(scope.aliases[name], alias="")
            timed = clock(self.options.now, name)
            if timed is not None:
                return timed
        around = scope.outer
        while around is not None:
            found = around.resolved(expr.names)
            if found is not None:
                return found
            around = around.outer
        raise unfound(expr.names, (one.name for item in scope.items for one in item.relation.columns))


def check_written(text: str) -> None:
    """Raise where a text has grown too long: WITH queries stand in it as often as they are named.

    Raises
    ------
    ParameterError
        P100.
    """
    if len(text) > _MOST_WRITTEN:
        raise ParameterError("P100", "sql is too long once it is written out. Keep parts of it as views.")


class UnfoundError(SourceError):
    """A name that no table has."""


def unfound(names: tuple[str, ...], there: Iterable[str]) -> SourceError:
    """Return the refusal of a name that no table has."""
    columns = ", ".join(list(dict.fromkeys(there))[:12])
    return UnfoundError(
        "S002", f"sql: column {show('.'.join(names))} is not found. The columns there are: {columns or 'none'}."
    )


def stub_type(kind: Type) -> str:
    """Return the SQL of a type in a query over no rows."""
    return kind.alias if kind.alias and kind.kind != "ENUM" else kind.sql
