"""The result of a part of a query, and the state that the parts of the splitter share while they read one query.

**Conditions.** `exclude` decides whether two conditions can hold for one row: from their trees alone, and only in plain
cases. It splits conditions by AND, OR and NOT, whose laws hold for NULL, too. Two atoms exclude each other if they are
a condition and its NOT, or say of one expression that it is among different literals, that it is among some literals
and among none of them, or that it is NULL and any of these. Conditions that hold are not NULL.

The decision chooses noise. If it is wrong, a row counts in the first cell whose condition holds, and the guarantee
stays the same (`dpsql.statistics.aggregates`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations

from dpsql.contract.expression.kinds import Type
from dpsql.contract.names import did_you_mean, read_as_text
from dpsql.contract.parameters import fold, show
from dpsql.contract.query.catalogue import (
    BEFORE_TOTAL_ORDERS,
    Catalogue,
    CatalogueColumn,
    CatalogueTable,
    Options,
    PathKey,
)
from dpsql.contract.query.expressions import ColumnSql, RowExpressions, bucketed, clock, simplified, with_plain_literals
from dpsql.contract.query.intervals import NOWHERE, Limits, literal_number
from dpsql.contract.query.nodes import Expr, Query, about, require
from dpsql.contract.query.split import SPANS, Draws, NoisyNumbers, QueryAggregate, QueryKey, error_names
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError, SourceError
from dpsql.rendering import identifier, text, with_one_spelling

PUBLIC, ROWS, RELEASED = "public", "rows of people", "released"
# The columns of row-level SQL for the owner and the date of a row.
UNIT, DATE = "unit_of_row", "date_of_row"
Noisy = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class KeyValues:
    """The public values of an expression.

    Attributes
    ----------
    values : tuple of (str or None) or None
        As strings.
    query : str or None
        Or a SELECT of one column that lists the values.
    origin : str
    meets : tuple of Expr
        Conditions that the values meet by the way they are listed.
    """

    values: tuple[str | None, ...] | None
    query: str | None
    origin: str
    meets: tuple[Expr, ...] = ()


# How a column follows from released numbers, from best to worst, see `dpsql.contract.query.draws`.
CONSTANT, LINEAR, QUOTIENT, RANK = "constant", "linear", "quotient", "rank"


@dataclass(frozen=True)
class Form:
    """How a column follows from the noise of released numbers.

    Attributes
    ----------
    kind : str
    divisor : str
        The SQL of its divisor with noise; ``''`` without one.
    order, among : str
        Of a rank, the SQL of the number that it ranks, the smallest first, and of what names the rows that it ranks.
    """

    kind: str
    divisor: str = ""
    order: str = ""
    among: str = ""


def _no_keys() -> KeyValues | None:
    return None


@dataclass(frozen=True)
class Column:
    """A column of a relation.

    Attributes
    ----------
    name : str
        The name in the query.
    sql : str
        The name in the relation's SQL.
    type : Type
    interval : Limits
        The public interval of its numbers.
    bounds_from : str
    keys : callable
        Returns the public values, or None.
    owner : bool
        Whether the column holds the owner of a row.
    tie : PathKey or None
        The key of a path in the column.
    dated : bool
        Whether the column is the unchanged date of the rows.
    noisy : frozenset of (str, str)
        The released numbers in the column.
    is_present : bool
        Whether types and constraints guarantee a value in every row.
    noisy_numbers : NoisyNumbers or None
        The count of noisy numbers in the column, 0 without noise; None if it has no computable interval.
    form : Form or None
        How the column follows from the noise; None if that is not known.
    """

    name: str
    sql: str
    type: Type
    interval: Limits = NOWHERE
    bounds_from: str = ""
    keys: Callable[[], KeyValues | None] = _no_keys
    owner: bool = False
    tie: PathKey | None = None
    dated: bool = False
    noisy: Noisy = frozenset()
    is_present: bool = False
    noisy_numbers: NoisyNumbers | None = None
    form: Form | None = None


@dataclass(frozen=True)
class QueryRelation:
    """The relation that a part of a query returns.

    Attributes
    ----------
    level : str
    columns : tuple of Column
    sql : str
        A FROM item without an alias.
    pending : PathKey or None
        The key that owns a row, if that is not yet the privacy unit.
    owned : bool
        Whether rows have an owner; False if each row is its own privacy unit.
    period : str
        The kind of the periods of dated rows; `''` for rows without a date.
    unseen : tuple of Column
        The columns that the query cannot name: owner and date.
    tables : tuple of str
        The protected tables that the relation reads.
    name : tuple of str
        The path, if the relation is a table.
    told : callable or None
        Returns the SQL with intervals after the columns; see `dpsql.contract.query.errors`.
    fixed : bool
        Whether no noise decides which rows exist, for certain.
    write_draws : callable or None
        Returns the SQL for draws of the noise, with hidden columns after the columns; see `dpsql.contract.query.draws`.
    stays : bool
        Whether no noise but that of private keys decides which rows `write_draws` returns.
    chosen : bool
        Whether noise chooses which of these rows the relation has.
    """

    level: str
    columns: tuple[Column, ...]
    sql: str
    pending: PathKey | None = None
    owned: bool = False
    period: str = ""
    unseen: tuple[Column, ...] = ()
    tables: tuple[str, ...] = ()
    name: tuple[str, ...] = ()
    write_intervals: Callable[[Sequence[NoisyNumbers]], str] | None = None
    fixed: bool = False
    write_draws: Callable[[], str] | None = None
    stays: bool = False
    chosen: bool = False

    @cached_property
    def named(self) -> Mapping[str, Column]:
        """The first column of each name, folded."""
        return {fold(column.name): column for column in reversed(self.columns)}

    def renamed(self, names: Sequence[str]) -> QueryRelation:
        """Return the relation with other names for its first columns."""
        columns = [
            replace(column, name=names[index]) if index < len(names) else column
            for index, column in enumerate(self.columns)
        ]
        return replace(self, columns=tuple(columns))


@dataclass(frozen=True)
class Item:
    """A relation in the FROM of a query.

    Attributes
    ----------
    id : str
        The alias in the written SQL.
    relation : QueryRelation
    alias : str
        The name in the query.
    hidden : bool
        Whether the query cannot name the item.
    optional : bool
        Whether an outer join may make its columns NULL.
    """

    id: str
    relation: QueryRelation
    alias: str
    hidden: bool = False
    optional: bool = False

    def column(self, name: str) -> Column | None:
        """Return the column by its name in the query."""
        return self.relation.named.get(fold(name))

    def by_sql(self, name: str) -> Column:
        """Return the column by its name in the SQL."""
        return next(column for column in (*self.relation.columns, *self.relation.unseen) if column.sql == name)

    def sql(self, column: str) -> str:
        """Return the SQL of a column."""
        return f"{identifier(self.id)}.{identifier(column)}"

    @property
    def owner(self) -> list[str]:
        """The SQL names of the owner's columns."""
        return [column.sql for column in (*self.relation.columns, *self.relation.unseen) if column.owner]

    @property
    def dates(self) -> list[str]:
        """The SQL names of the date columns."""
        return [column.sql for column in (*self.relation.columns, *self.relation.unseen) if column.dated]


def item_column(item: Item, column: Column) -> Expr:
    """Return the expression of a column of an item."""
    return Expr("item", column.sql, value=item.id)


@dataclass
class Scope:
    """The names that a query's expressions may use.

    Attributes
    ----------
    items : list of Item
    merged : dict of str to Expr
        The columns of USING and NATURAL joins, folded.
    aliases : mapping of str to Expr
        The names of the select list, folded, if they may stand for expressions.
    outer : Scope or None
        The outer scope of a subquery.
    """

    items: list[Item] = field(default_factory=list)
    merged: dict[str, Expr] = field(default_factory=dict)
    aliases: Mapping[str, Expr] = field(default_factory=dict)
    outer: Scope | None = None

    def item(self, number: str) -> Item:
        """Return an item of this scope or an outer scope, by its ID."""
        for item in self.items:
            if item.id == number:
                return item
        if self.outer is None:
            raise KeyError(number)
        return self.outer.item(number)

    def column(self, expr: Expr) -> Column:
        """Return the column of an item's expression."""
        return self.item(str(expr.value)).by_sql(expr.name)

    def columns(self, expr: Expr) -> dict[tuple[str, str], ColumnSql]:
        """Return the columns that an expression reads."""
        columns = {}
        for part in expr.walk():
            if part.what == "item":
                item = self.item(str(part.value))
                columns[(item.id, part.name)] = ColumnSql(item.sql(part.name), item.by_sql(part.name).type)
        return columns

    def resolved(self, names: tuple[str, ...]) -> Expr | None:
        """Return the column of a name in this scope alone; None if there is none."""
        first = fold(names[0])
        if first in self.merged and len(names) == 1:
            return self.merged[first]
        for count in (1, 2, 3):
            if len(names) <= count:
                break
            items = [item for item in self._items_named(names[:count]) if item.column(names[count]) is not None]
            if items:
                return _fields(item_column(items[0], _column_of(items[0], names[count])), names[count + 1 :])
        visible = [item for item in self.items if not item.hidden and item.column(names[0]) is not None]
        if len(visible) > 1:
            raise SourceError("S002", f"sql: column {show(names[0])} is in several tables. Write the table before it.")
        if visible:
            return _fields(item_column(visible[0], _column_of(visible[0], names[0])), names[1:])
        return None

    def _items_named(self, names: tuple[str, ...]) -> list[Item]:
        out = []
        for item in self.items:
            path = tuple(map(fold, item.relation.name))
            reference = tuple(map(fold, names))
            if item.hidden:
                continue
            if (len(names) == 1 and fold(item.alias) == reference[0]) or (
                len(names) > 1 and path[-len(names) :] == reference
            ):
                out.append(item)
        return out

    def own(self, expr: Expr) -> bool:
        """Whether an expression reads only columns of this scope."""
        ids = {item.id for item in self.items}
        return all(str(part.value) in ids for part in expr.walk() if part.what == "item")

    def numbers(self, expr: Expr) -> frozenset[str]:
        """Return the items of this scope that an expression reads."""
        ids = {item.id for item in self.items}
        return frozenset(str(part.value) for part in expr.walk() if part.what == "item" and str(part.value) in ids)


def _column_of(item: Item, name: str) -> Column:
    return require(item.column(name))


def _fields(expr: Expr, names: tuple[str, ...]) -> Expr:
    for name in names:
        expr = Expr("element", parts=(expr, Expr("constant", "string", value=name)))
    return expr


def fraction_text(value: Fraction | None) -> str:
    """Return a number as text for messages and explain."""
    if value is None:
        return "?"
    return str(value.numerator) if value.denominator == 1 else repr(float(value))


# Larger conditions, and cores of more cells, are not examined.
_MOST_NODES, MOST_CELLS = 200, 64


@dataclass(frozen=True)
class Indicator:
    """A condition for which a value is 1.

    Attributes
    ----------
    holds : Expr
    else_zero : bool
        Whether the value is 0 for some other rows, not NULL.
    """

    holds: Expr
    else_zero: bool


def indicator(value: Expr) -> Indicator | None:
    """Return the condition for which a value is 1, and else 0 or NULL; None for any other value."""
    if value.what != "case" or len(value.parts) != 3:
        return None
    condition, then, otherwise = value.parts
    zero = literal_number(otherwise) == 0
    if not zero and not (otherwise.what == "constant" and otherwise.name == "NULL"):
        return None
    if literal_number(then) == 1:
        return Indicator(condition, zero)
    inner = indicator(then)
    return None if inner is None else Indicator(Expr("and", parts=(condition, inner.holds)), zero or inner.else_zero)


def are_disjoint(aggregates: Iterable[QueryAggregate], indicators: Mapping[str, Indicator]) -> bool:
    """Return whether all aggregates of a core count rows of two or more mutually exclusive conditions."""
    columns: dict[str, Indicator] = {}
    for aggregate in aggregates:
        if aggregate.kind in ("sum", "values"):
            target = indicators.get(str(aggregate.column))
            if target is None or (aggregate.kind == "values" and target.else_zero):
                return False
            columns[str(aggregate.column)] = target
        elif aggregate.kind == "rows":
            return False
    conditions = [column.holds for column in columns.values()]
    small = all(sum(1 for _ in condition.walk()) <= _MOST_NODES for condition in conditions)
    return 2 <= len(conditions) <= MOST_CELLS and small and all(exclude(*two) for two in combinations(conditions, 2))


def exclude(condition: Expr, other: Expr) -> bool:
    """Return whether two conditions never hold for one row."""
    return _exclude(_positive(condition), _positive(other))


def _positive(expr: Expr, *, negated: bool = False) -> Expr:
    """Return a condition with NOT before atoms only; IN becomes an OR of equalities."""
    if expr.what == "in":
        value, *listed = expr.parts
        equal = tuple(Expr("compare", "=", (value, literal)) for literal in listed)
        return _positive(Expr("or", parts=equal), negated=negated)
    if expr.what == "not":
        return _positive(expr.parts[0], negated=not negated)
    if expr.what == "present":
        return _positive(Expr("null", parts=expr.parts), negated=not negated)
    if expr.what in ("and", "or"):
        what = expr.what if not negated else {"and": "or", "or": "and"}[expr.what]
        return Expr(what, parts=tuple(_positive(part, negated=negated) for part in expr.parts))
    return Expr("not", parts=(expr,)) if negated else expr


def _exclude(condition: Expr, other: Expr) -> bool:
    for compound, rest in ((condition, other), (other, condition)):
        if compound.what == "or":
            return all(_exclude(part, rest) for part in compound.parts)
    for compound, rest in ((condition, other), (other, condition)):
        if compound.what == "and":
            return any(_exclude(part, rest) for part in compound.parts)
    (mine, truth), (theirs, other_truth) = _atom(condition), _atom(other)
    if mine == theirs:
        return truth != other_truth
    first, second = _fact(mine, truth=truth), _fact(theirs, truth=other_truth)
    nulls = [atom.parts[0] for atom, holds in ((mine, truth), (theirs, other_truth)) if atom.what == "null" and holds]
    if nulls and any(fact is not None and fact.of in nulls for fact in (first, second)):
        return True
    if first is None or second is None or first.of != second.of:
        return False
    if first.inside and second.inside:  # literals of one kind that differ are different values
        return first.literal != second.literal and first.literal[0] == second.literal[0]
    return first.inside != second.inside and first.literal == second.literal


def _atom(expr: Expr) -> tuple[Expr, bool]:
    return (expr.parts[0], False) if expr.what == "not" else (expr, True)


Literal = tuple[str, str | Fraction]


@dataclass(frozen=True)
class _Fact:
    """An expression equals a literal, or another value."""

    of: Expr
    literal: Literal
    inside: bool


def _fact(expr: Expr, *, truth: bool) -> _Fact | None:
    if expr.what != "compare" or expr.name not in ("=", "<>"):
        return None
    left, right = expr.parts
    value, literal = (left, right) if _literal(left) is None else (right, left)
    constant = _literal(literal)
    if constant is None or _literal(value) is not None:
        return None
    return _Fact(value, constant, (expr.name == "=") == truth)


def _literal(expr: Expr) -> Literal | None:
    """Return a literal with its kind: a number or a string."""
    if expr.what == "constant" and expr.name == "string" and expr.value is not None:
        return "string", expr.value
    value = literal_number(expr)
    return None if value is None else ("number", value)


_MOST_WRITTEN = 1_000_000


@dataclass(frozen=True)
class Env:
    """The context of a query.

    Attributes
    ----------
    withs : mapping of str to callable
        Readers of the WITH queries in scope, by folded name; each reads its query once, at the first use.
    outer : callable or None
        Returns the SQL of a column of the released or public outer query; None without one.
    depth : int
        Number of enclosing scopes of rows.
    top : bool
        Whether this is the whole query.
    joined : mapping of str to KeyValues
        The public values that a result column is joined with, by folded name.
    """

    withs: Mapping[str, Callable[[Mapping[str, KeyValues]], QueryRelation]] = field(default_factory=dict)
    outer: Callable[[tuple[str, ...]], str | None] | None = None
    depth: int = 0
    top: bool = False
    joined: Mapping[str, KeyValues] = field(default_factory=dict)


@dataclass
class CoreDraft:
    """A core under construction: equal rows and keys share one core."""

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
    indicators: dict[str, Indicator] = field(default_factory=dict)  # of targets that are 1 if a condition holds

    @property
    def disjoint(self) -> bool:
        """As `QueryCore.disjoint`."""
        return are_disjoint(self.aggregates, self.indicators)


@dataclass
class Splitting:
    """The split of one query.

    Attributes
    ----------
    catalogue : Catalogue
    options : Options
    query : callable
        Returns the relation of a query part.
    """

    catalogue: Catalogue
    options: Options
    query: Callable[[Query, Env], QueryRelation]
    expressions: RowExpressions
    cores: list[CoreDraft] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    intervals: dict[tuple[str, str, NoisyNumbers], None] = field(default_factory=dict)  # as `Split.intervals`
    without_rows: dict[str, str] = field(default_factory=dict)  # of public SQL, SQL with its columns that reads nothing
    differs: set[int] = field(default_factory=set)  # as `Split.differs`
    lacking: tuple[str, int | None] | None = None  # as `Split.lacking`
    draws: Draws | None = None  # as `Split.draws`
    split_again: bool = False  # whether a SELECT was split twice, so that some cores may be read by nobody

    def revised(self, differs: bool = True, before: int = BEFORE_TOTAL_ORDERS) -> bool:
        """Return whether to differ from earlier versions; note the difference even if the caller wants none."""
        self.differs |= {before} if differs else set()
        return differs and self.options.earlier < before

    def table(self, table: CatalogueTable) -> QueryRelation:
        """Return a table of the catalogue as a relation."""
        path = ".".join(map(identifier, table.path))
        units = {fold(unit) for unit in table.units}
        keys = {fold(name): key for name, key in table.keys.items()}
        columns = tuple(
            self._column(table, column, fold(column.name) in units, keys.get(fold(column.name)))
            for column in table.columns
        )
        item = table.item or path
        source = with_one_spelling(item, table.loose) if self.revised(bool(table.loose)) else item
        sql = read_as_text(source, table.texts)
        if table.public:
            self.without_rows[sql] = nulls_sql((column.name, column.type) for column in table.columns)
        return QueryRelation(
            PUBLIC if table.public else ROWS,
            columns,
            sql,
            table.pending,
            owned=bool(table.units),
            period="" if table.public else table.period,
            tables=() if table.public else (path,),
            name=table.path,
        )

    def bound(self, sql: str) -> tuple[tuple[str, Type], ...] | None:
        """Return the names and types of SQL over released and public tables; None if DuckDB does not bind it.

        DuckDB binds the SQL where no table exists: cores are WITH queries without rows, and so is the SQL of a table.
        Replaced words within a string literal change no type.
        """
        for source in sorted(self.without_rows, key=len, reverse=True):
            sql = sql.replace(source, self.without_rows[source])
        heads = [f"{name} AS {self._head(core)}" for core in self.cores if (name := identifier(core.name)) in sql]
        heads += [f"{identifier(SPANS)} AS ({self.draws.spans})"] if self.draws is not None else []
        before = f"WITH {', '.join(heads)} " if heads else ""
        return self.catalogue.typing.columns(f"{before}SELECT * FROM {sql} AS dpsql_bound")

    def _head(self, core: CoreDraft) -> str:
        """Return the SQL of a core's released columns without rows: keys, aggregates and errors of aggregates."""
        names = [key.column for _, key in core.keys] + [aggregate.name for aggregate in core.aggregates]
        columns = [(name, core.types[name]) for name in names]
        told = [(name, count) for core_name, name, count in self.intervals if core_name == core.name]
        columns += [(error, Type("DOUBLE")) for name, count in told for error in error_names(name, count)]
        return nulls_sql(columns)

    def parent(self, key: PathKey) -> QueryRelation | None:
        """Return the table at the end of a step of a path."""
        table = self.catalogue.parent(key)
        return None if table is None else self.table(table)

    def _column(self, table: CatalogueTable, column: CatalogueColumn, owner: bool, tie: PathKey | None) -> Column:
        name = fold(column.name)
        sides = [self._bound(side, table, name) for side in (self.options.lower, self.options.upper)]
        declared = Limits(column.lower, column.upper)
        limits = Limits(*sides)
        origin = (
            "stated"
            if limits.lower is not None or limits.upper is not None
            else "declared"
            if declared.is_bounded
            else ""
        )
        bounds = Limits(
            limits.lower if limits.lower is not None else declared.lower,
            limits.upper if limits.upper is not None else declared.upper,
        )
        if column.type.kind == "BOOLEAN" and not bounds.is_bounded:
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
            is_present=column.required,
        )

    def _bound(self, side: Mapping[str, Fraction], table: CatalogueTable, name: str) -> Fraction | None:
        bounds = {fold(key): value for key, value in side.items()}
        return bounds.get(f"{fold(table.path[2])}.{name}", bounds.get(name))

    def _keys(self, table: CatalogueTable, column: CatalogueColumn) -> KeyValues | None:
        keys = self.caller_keys(column.name)
        if keys is not None:
            return keys
        if column.values is not None:
            return KeyValues(column.values, None, "declared")
        kind = column.type.kind
        if kind not in ("ENUM", "BOOLEAN"):
            return None
        values: tuple[str | None, ...] = ("true", "false") if kind == "BOOLEAN" else column.type.values
        return KeyValues(values if column.required or not self.revised() else (*values, None), None, kind)

    def caller_limits(self, name: str) -> Limits:
        """Return the caller's bounds for a column of a subquery."""
        sides = ({fold(key): value for key, value in side.items()} for side in (self.options.lower, self.options.upper))
        return Limits(*(side.get(fold(name)) for side in sides))

    def caller_keys(self, name: str) -> KeyValues | None:
        """Return the caller's keys for a column."""
        listing = {fold(key): values for key, values in self.options.keys.items()}.get(fold(name))
        return None if listing is None else KeyValues(listing, None, "stated")

    def read(self, expr: Expr, scope: Scope) -> Expr:
        """Return an expression with resolved columns, clocks and aliases."""
        with about(expr):
            expression = simplified(self._resolve(expr, scope, frozenset()), self.options.now)
        expression = bucketed(expression, lambda part: self.expressions.type(part, scope.columns(part)))
        plain = with_plain_literals(expression, lambda part: self.expressions.type(part, scope.columns(part)))
        return plain if self.revised(plain != expression) else expression

    def _resolve(self, expr: Expr, scope: Scope, bound: frozenset[str]) -> Expr:
        if expr.what == "column":
            with about(expr):
                return replace(self._name(expr, scope, bound), alias=expr.alias, at=expr.at)
        inner = bound | frozenset(map(fold, expr.names)) if expr.what == "lambda" else bound
        return expr.mapped(lambda part: self._resolve(part, scope, inner))

    def _name(self, expr: Expr, scope: Scope, bound: frozenset[str]) -> Expr:
        if fold(expr.names[0]) in bound:
            return expr
        reference = scope.resolved(expr.names)
        if reference is not None:
            return reference
        if len(expr.names) == 1:
            name = fold(expr.names[0])
            if name in scope.aliases:
                return replace(scope.aliases[name], alias="")
            timed = clock(self.options.now, name)
            if timed is not None:
                return timed
        around = scope.outer
        while around is not None:
            reference = around.resolved(expr.names)
            if reference is not None:
                return reference
            around = around.outer
        raise unfound(expr.names, (column.name for item in scope.items for column in item.relation.columns))


def check_written(text: str) -> None:
    """Raise if a text is too long: it repeats each WITH query at every use.

    Raises
    ------
    ParameterError
        P100.
    """
    if len(text) > _MOST_WRITTEN:
        raise ParameterError("P100", "sql is too long once it is written out. Keep parts of it as views.")


class UnboundError(ParameterError):
    """A part over released and public tables does not bind on its own."""


class UnfoundError(SourceError):
    """A name that no table has."""


def unfound(names: tuple[str, ...], candidates: Iterable[str]) -> SourceError:
    """Return the refusal of a name that no table has."""
    columns = list(dict.fromkeys(candidates))
    listed = f"The columns there are: {', '.join(columns[:12]) or 'none'}. For a text write {text(names[-1])}."
    step = did_you_mean(names[-1], columns, listed)
    return UnfoundError("S002", f"sql: column {show('.'.join(names))} is not found. {step}")


def nulls_sql(columns: Iterable[tuple[str, Type]]) -> str:
    """Return a query of columns with these names and types, and without rows."""
    nulls = (
        f"NULL::{kind.alias if kind.alias and kind.kind != 'ENUM' else kind.sql} AS {identifier(name)}"
        for name, kind in columns
    )
    return f"(SELECT {', '.join(nulls)} WHERE false)"
