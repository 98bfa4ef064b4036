"""What the parts of a query's splitter share while one query is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from dpsql.contract.expression.kinds import Type
from dpsql.contract.names import read_as_text
from dpsql.contract.parameters import fold, show
from dpsql.contract.query.catalogue import Catalogue, CatalogueColumn, CatalogueTable, Options, PathKey
from dpsql.contract.query.disjoint import Indicator, are_disjoint
from dpsql.contract.query.expressions import RowExpressions, bucketed, clock, simplified, with_plain_literals
from dpsql.contract.query.intervals import Limits
from dpsql.contract.query.nodes import Expr, Query, about
from dpsql.contract.query.relations import PUBLIC, ROWS, Column, KeyValues, PartOfQuery, Scope
from dpsql.contract.query.split import NoisyNumbers, QueryAggregate, QueryKey
from dpsql.errors import ParameterError, SourceError
from dpsql.rendering import identifier, with_one_spelling

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
