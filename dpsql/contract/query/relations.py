"""The result of a part of a query: its level, its columns with public facts about them, and its SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from dpsql.contract.expression.kinds import Type
from dpsql.contract.parameters import fold, show
from dpsql.contract.query.catalogue import PathKey
from dpsql.contract.query.expressions import ColumnSql
from dpsql.contract.query.intervals import NOWHERE, Limits
from dpsql.contract.query.nodes import Expr, require
from dpsql.contract.query.split import NoisyNumbers
from dpsql.errors import SourceError
from dpsql.rendering import identifier

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
    """

    values: tuple[str | None, ...] | None
    query: str | None
    origin: str


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
    dated : bool
        Whether rows have a date.
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
    """

    level: str
    columns: tuple[Column, ...]
    sql: str
    pending: PathKey | None = None
    owned: bool = False
    dated: bool = False
    unseen: tuple[Column, ...] = ()
    tables: tuple[str, ...] = ()
    name: tuple[str, ...] = ()
    write_intervals: Callable[[Sequence[NoisyNumbers]], str] | None = None
    fixed: bool = False

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
        return next((column for column in self.relation.columns if fold(column.name) == fold(name)), None)

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
