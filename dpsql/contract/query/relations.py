"""What a part of a query returns: its level, its columns with what is public about them, and its text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from dpsql.contract.expression.kinds import Type
from dpsql.contract.parameters import fold, show
from dpsql.contract.query.catalogue import PathKey
from dpsql.contract.query.expressions import ColumnSql
from dpsql.contract.query.intervals import NOWHERE, Limits
from dpsql.contract.query.nodes import Expr, given
from dpsql.contract.query.split import NoisyNumbers
from dpsql.errors import SourceError
from dpsql.rendering import identifier

PUBLIC, ROWS, RELEASED = "public", "rows of people", "released"
# The columns of a row-level text that hold whom a row belongs to, and when it is dated.
UNIT, DATE = "unit_of_row", "date_of_row"
Noisy = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class KeyValues:
    """The public values of an expression.

    Attributes
    ----------
    values : tuple of (str or None) or None
        As texts.
    query : str or None
        Or a SELECT of one column that lists them.
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
        As the query names it.
    sql : str
        Its name in the relation's text.
    type : Type
    interval : Limits
        What its numbers lie in, by public knowledge.
    bounds_from : str
    keys : callable
        Returns its public values, or None.
    owner : bool
        Whether it holds whom a row belongs to.
    tie : PathKey or None
        The key of a path that it holds.
    dated : bool
        Whether it is the column by which rows are dated, unchanged.
    noisy : frozenset of (str, str)
        The released numbers in it.
    whole : bool
        Whether it has a value in every row, as far as types and constraints say.
    made : NoisyNumbers or None
        Of how many noisy numbers it is made, none of one that no noise moves; None where no interval of it can be
        written.
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
    whole: bool = False
    made: NoisyNumbers | None = None


@dataclass(frozen=True)
class PartOfQuery:
    """What a part of a query returns.

    Attributes
    ----------
    level : str
    columns : tuple of Column
    sql : str
        A FROM item without an alias.
    stub : str
        The same over no rows, where nothing but types is in it.
    pending : PathKey or None
        What the owner of a row is, where it is not yet the unit.
    owned : bool
        Whether rows have an owner; False where one row is protected.
    dated : bool
        Whether rows are dated.
    unseen : tuple of Column
        The columns of the text that the query cannot name: the owner's, and the date's.
    tables : tuple of str
        The protected tables that it reads.
    name : tuple of str
        Of a table: its path.
    told : callable or None
        Returns its text with intervals behind its columns, and that over no rows; see `dpsql.contract.query.errors`.
    fixed : bool
        Whether it is known that no noise decides which rows there are.
    """

    level: str
    columns: tuple[Column, ...]
    sql: str
    stub: str = ""
    pending: PathKey | None = None
    owned: bool = False
    dated: bool = False
    unseen: tuple[Column, ...] = ()
    tables: tuple[str, ...] = ()
    name: tuple[str, ...] = ()
    told: Callable[[Sequence[NoisyNumbers]], tuple[str, str]] | None = None
    fixed: bool = False

    def renamed(self, names: Sequence[str]) -> PartOfQuery:
        """Return it with other names for its first columns."""
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
        Its alias in the text that is written.
    relation : PartOfQuery
    alias : str
        Its name in the query.
    hidden : bool
        Whether the query cannot name it.
    optional : bool
        Whether its columns may be NULL by an outer join.
    """

    id: str
    relation: PartOfQuery
    alias: str
    hidden: bool = False
    optional: bool = False

    def column(self, name: str) -> Column | None:
        """Return its column of a name in the query."""
        return next((column for column in self.relation.columns if fold(column.name) == fold(name)), None)

    def by_sql(self, name: str) -> Column:
        """Return its column by its name in the text."""
        return next(column for column in (*self.relation.columns, *self.relation.unseen) if column.sql == name)

    def sql(self, column: str) -> str:
        """Return the SQL of a column."""
        return f"{identifier(self.id)}.{identifier(column)}"

    @property
    def owner(self) -> list[str]:
        """The SQL names of the columns that hold the owner."""
        return [column.sql for column in (*self.relation.columns, *self.relation.unseen) if column.owner]

    @property
    def dates(self) -> list[str]:
        """The SQL names of the columns by which rows are dated."""
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
        The names of the select list, folded, where they may stand for expressions.
    outer : Scope or None
        The scope around a subquery.
    """

    items: list[Item] = field(default_factory=list)
    merged: dict[str, Expr] = field(default_factory=dict)
    aliases: Mapping[str, Expr] = field(default_factory=dict)
    outer: Scope | None = None

    def item(self, number: str) -> Item:
        """Return an item by its number, of this scope or one around it."""
        for item in self.items:
            if item.id == number:
                return item
        if self.outer is None:
            raise KeyError(number)
        return self.outer.item(number)

    def column(self, expr: Expr) -> Column:
        """Return the column that an item's expression names."""
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
        """Return the column of a name, without the scopes around it; None where there is none."""
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
        """Whether an expression reads columns of this scope alone."""
        ids = {item.id for item in self.items}
        return all(str(part.value) in ids for part in expr.walk() if part.what == "item")

    def numbers(self, expr: Expr) -> frozenset[str]:
        """Return the items of this scope that an expression reads."""
        ids = {item.id for item in self.items}
        return frozenset(str(part.value) for part in expr.walk() if part.what == "item" and str(part.value) in ids)


def _column_of(item: Item, name: str) -> Column:
    return given(item.column(name))


def _fields(expr: Expr, names: tuple[str, ...]) -> Expr:
    for name in names:
        expr = Expr("element", parts=(expr, Expr("constant", "string", value=name)))
    return expr


def fraction_text(value: Fraction | None) -> str:
    """Return a number as messages and explain show it."""
    if value is None:
        return "?"
    return str(value.numerator) if value.denominator == 1 else repr(float(value))
