"""The rows of an operator or of a source: their budgets, and how far one row or privacy unit reaches.

With periods, the *owner* of a row is a person in a period: ``(u, t)``. `dpsql.contract.periods` names the period of a
value. NULL, infinite dates and dates without such a name have the period ``none``, of which no call sees a row. Two
databases are neighbours for ``(u, t)`` if one lacks

* every row of a dated table with the id u and a date in t, and
* every row that a path reaches from such rows alone: the end of a path takes its parent's date, so a row that another
  person, or another period of u, also reaches stays.

This is the relation of `stability` with owners in place of persons, and so is its proof, which shows that an owner's
rows are a function of the rows that this owner has or reaches. Periods require two more things:

1. *A date* (`Dates.columns`) is a column whose values are all in the period of the row's owner: the declared column, or
   an expression that keeps a date in its period (`date_column`), such as ``date_trunc('month', day)``, or a cast
   between DATE and TIMESTAMP. Rows with an equal person's id and an equal date have one owner: groups, DISTINCT and
   windows that contain both keep to the owner, and so do joins with equal ids and two equal dates. An id alone would
   mix periods. Pending rows belong to the value of a key, as in `stability`: they have no date, and need none, until
   they match their parent.
2. *An undated table* (`Dates.static`) has rows of a person at all times. These rows are the same in two neighbours for
   ``(u, t)``, so rows of ``(u, t)`` may depend on them: a dated row may look up its person's undated rows, as if these
   were public. A join of both is dated. But dated rows may not keep, choose or make an undated row, because it would
   carry every period into a row without a period: an undated row is only passed on next to a dated row that it matches.

Undated rows of others are never looked up, although the relation for ``(u, t)`` would allow it. So if a person u
leaves, the dated rows of u may go first, one period after the other: each call is charged to as many blocks as it
names. After that no call on dated rows looks up an undated row of u, and these calls do not notice the undated rows.
Calls on undated rows alone are charged to the block ``undated``. So a person's loss, also by undated rows, is
the sum over all calls (`dpsql.ledger.blocks`). Undated rows do *not* have the epsilon of one block: the sum protects
what they add to dated rows.

A join of two dated tables by the id alone has rows of two periods, and dpsql refuses it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import NamedTuple

from dpsql.contract.names import TableName
from dpsql.contract.parameters import fold
from dpsql.contract.periods import PERIODS
from dpsql.dataclass import dataclass
from dpsql.engines.duckdb.lineage import bound

EVERY_PERIOD = frozenset(PERIODS)
# The parts that `date_trunc` may truncate a date to, and the periods that the result stays in.
_FINE = ("hour", "minute", "second", "millisecond", "microsecond")
_KEEPS = {
    **dict.fromkeys((*_FINE, "day"), EVERY_PERIOD),
    "week": frozenset(("week",)),
    "month": frozenset(("month", "quarter", "year")),
    "quarter": frozenset(("quarter", "year")),
    "year": frozenset(("year",)),
}
_TRUNCATES = frozenset(("date_trunc", "datetrunc"))
# Types whose casts and truncations follow no setting of the session.
_PLAIN = frozenset(("DATE", "TIMESTAMP"))


class Equality(NamedTuple):
    """Two equal columns: in bytes (`is_bytewise`), or only in their periods; whether NULL equals NULL."""

    left: int
    right: int
    null: bool
    is_bytewise: bool = True
    periods: frozenset[str] = EVERY_PERIOD  # that rows with the two dates share


@dataclass(frozen=True)
class Dates:
    """The periods of the rows of a dataset with periods.

    Attributes
    ----------
    period : str
        One of `PERIODS`; ``''`` for rows of several datasets, or of dated and undated tables, whose owners are unknown.
    columns : frozenset of int
        The columns with a date.
    static : bool
        Whether a person has the rows at all times.
    """

    period: str
    columns: frozenset[int] = frozenset()
    static: bool = False

    def at(self, columns: Iterable[int]) -> Dates:
        """Return the same with dates in other columns."""
        return replace(self, columns=frozenset(columns))

    def shift(self, width: int) -> Dates:
        """Return the same with the columns after `width` others."""
        return self.at(width + column for column in self.columns)

    def fits(self, other: Dates) -> bool:
        """Whether both have owners in periods of one kind."""
        return self.period == other.period and self.period != ""


def date_column(expression: object) -> tuple[int, frozenset[str]] | None:
    """Return the column that an expression makes a date of, and the periods that the expression keeps.

    `TRY` and `TRY_CAST` make NULL of dates that a TIMESTAMP cannot hold; neither is in a period.
    """
    expression = bound.applied(expression)
    column = bound.reference(expression)
    if column is not None:
        return column, EVERY_PERIOD
    node = expression if isinstance(expression, dict) else {}
    arguments = bound.arguments(node) or [node.get("child")]
    if node.get("type") == "OPERATOR_CAST":
        return date_column(arguments[0]) if {bound.type_of(node), bound.type_of(arguments[0])} <= _PLAIN else None
    if node.get("type") == "OPERATOR_TRY":
        return date_column(arguments[0])
    if bound.called(node) not in _TRUNCATES or not bound.is_own(node) or len(arguments) != 2:
        return None
    part, below = bound.constant(arguments[0]), date_column(arguments[1])
    periods = _KEEPS.get(part.lower()) if isinstance(part, str) else None
    if periods is None or below is None or not {bound.type_of(node), bound.type_of(arguments[1])} <= _PLAIN:
        return None
    return below[0], below[1] & periods


def is_date(expression: object, dates: Dates | None) -> bool:
    """Whether an expression over rows is a date of these rows."""
    if dates is None or not dates.columns:
        return False
    source = date_column(expression)
    return source is not None and source[0] in dates.columns and dates.period in source[1]


def is_whole_period(expression: object, dates: Dates | None) -> bool:
    """Whether an expression is a date of the rows, and the same for all dates of a period."""
    if dates is None or not is_date(expression, dates):
        return False
    node = bound.as_node(bound.applied(expression))
    while node.get("type") in ("OPERATOR_CAST", "OPERATOR_TRY"):
        node = bound.as_node((bound.arguments(node) or [node.get("child")])[0])
    return bound.called(node) in _TRUNCATES and str(bound.constant(bound.arguments(node)[0])).lower() == dates.period


def dates_among(expressions: Sequence[object], dates: Dates | None) -> Dates | None:
    """Return the dates among expressions over rows."""
    return dates and dates.at(index for index, expression in enumerate(expressions) if is_date(expression, dates))


def of_parts(people: Sequence[Dates | None]) -> Dates | None:
    """Return the common periods of inputs with rows of people, without columns; None if no input has periods."""
    kinds = {None if date is None else (date.period, date.static) for date in people}
    first = next(filter(None, people), None)
    return first and (first.at(()) if len(kinds) == 1 else Dates(""))


class Met(NamedTuple):
    """The dates of the rows of a join that matches no rows of two periods."""

    date: Dates | None


def of_one_owner(
    left: Dates | None, right: Dates | None, width: int, name: str, equal: Sequence[Equality], *, pending: bool
) -> Met | None:
    """Return the dates of a join by the person's id or, if the rows are `pending`, by their key.

    None if an owner would match rows of another owner. The left side has `width` columns.
    """
    if left is None or right is None:
        return Met(None) if left is right else None
    if not left.fits(right):
        return None
    if pending or (left.static and right.static):
        return Met(left.at(())) if left.static == right.static else None
    if right.static:
        return Met(left)
    if left.static:  # rows must not choose the rows that they look up
        return Met(right.shift(width)) if name == "INNER" else None
    if not _in_one_period(left, right, equal):
        return None
    return Met(left.at(left.columns | right.shift(width).columns) if name == "INNER" else left)


def of_owner(owner: Dates | None, parent: Dates | None) -> Met | None:
    """Return the dates of an owner's rows with the rows that a path reaches; None if they may not match."""
    if owner is None or parent is None:
        return Met(None) if owner is parent else None
    # Undated rows reach undated rows, and dated rows look these up.
    return Met(owner) if owner.fits(parent) and (owner.static == parent.static or parent.static) else None


def _in_one_period(left: Dates, right: Dates, equal: Sequence[Equality]) -> bool:
    """Whether a date of one side equals a date of the other."""
    return any(
        pair.left in left.columns and pair.right in right.columns and left.period in pair.periods for pair in equal
    )


class Key(NamedTuple):
    """A column of a table that the rows of other tables point to: the end of a path."""

    table: TableName
    column: str  # folded


@dataclass(frozen=True)
class Leaf:
    """The owner's declaration about a table."""

    datasets: tuple[str, ...] = ()  # the budgets that its rows belong to; none for a public table
    unit: str | None = None  # the column of the unit or key of the rows; None if one row is protected
    pending: Key | None = None  # the key of another table in that column; None for the unit
    keys: Mapping[str, Key] = field(default_factory=dict)  # the columns that rows of other tables point to, folded
    period: str | None = None  # the unit is a person in a period of this kind
    date: str | None = None  # the column that holds the date
    static: bool = False  # the rows of a person are undated, in a dataset with periods
    single: bool = False  # no two rows have the same value in the column `unit`
    unique: Collection[frozenset[str]] = ()  # keys: sets of columns, folded, in which no two rows agree


PUBLIC = Leaf()


@dataclass(frozen=True)
class Rows:
    """The rows of an operator; `row_level` and `own_rows` name the operator that broke a property, if any did."""

    width: int  # the number of columns
    scans: tuple[str, ...] = ()  # the budgets of the tables that were read, repeated for each read; none if public
    unit: frozenset[int] = frozenset()  # columns of the unit or key of each row, unchanged
    pending: Key | None = None  # the key in these columns, until a join finds the unit; None for the unit
    ties: frozenset[tuple[int, Key]] = frozenset()  # columns with keys of rows of the same unit
    by_unit: bool = True  # every protected table has a privacy unit
    row_level: str = ""
    lacks_key: str = ""  # the statement that makes the key of a public table by which a row would meet one row
    own_rows: str = ""
    alone: bool = False  # there is at most one row
    keys: frozenset[int] = frozenset()  # columns whose combined values differ between any two rows; empty if unknown
    # Columns of numbers that differ in rows which agree in other columns or, without any, are of one unit.
    numbers: frozenset[tuple[int, frozenset[int]]] = frozenset()
    firsts: frozenset[tuple[int, frozenset[int]]] = frozenset()  # the same, for rows of all units
    once: bool = False  # each unit, or value of a pending key, has at most one row
    unfixed: str = ""  # the function that depends on the order, see `orders`
    to_order: str = ""  # the keys that its ORDER BY lacks, as SQL
    unique: frozenset[frozenset[int]] = frozenset()  # keys: sets of columns in which no two rows agree, NULL like NULL
    tells: frozenset[tuple[int, int]] = frozenset()  # columns whose bytes tell other columns
    loose: frozenset[int] = frozenset()  # columns of numbers that are fixed except for spellings, such as -0 for 0
    date: Dates | None = None  # None without periods

    @property
    def public(self) -> bool:
        """Whether no protected table was read."""
        return not self.scans

    def broken(self, by: str) -> Rows:
        """Return these rows without either property, unless they are public."""
        if self.public:
            return self
        return replace(
            self,
            row_level=self.row_level or by,
            own_rows=self.own_rows or by,
            unit=frozenset(),
            ties=frozenset(),
            date=self.date and self.date.at(()),
        )

    def one_unit(self, keys: Collection[object], *, dated: bool = False) -> bool:
        """Whether rows that agree in some columns are of one unit: of one person and, with periods, in one period.

        They are in one period if a date is among the columns, or if their dates are equal (`dated`). Rows of a key,
        and undated rows, have no date.
        """
        alike = dated or self.date is None or self.date.static or self.pending is not None
        if not alike and self.date is not None:
            alike = any(key in self.date.columns for key in keys)
        return alike and any(key in self.unit for key in keys)

    def mixed(self, by: str) -> Rows:
        """Return these rows without the row level: a row may come from several rows of a table, or from none."""
        return self if self.public else replace(self, row_level=self.row_level or by)

    def unfixed_by(self, function: str, to_order: str = "") -> Rows:
        """Return these rows with a function that depends on their order, and the keys that its ORDER BY lacks."""
        return replace(self, unfixed=function, to_order=to_order) if function and not self.unfixed else self

    def columns(self, positions: Sequence[int | None]) -> Rows:
        """Return these rows with the columns at `positions`; None is a new column."""
        indexes: dict[int, int] = {}
        tells = set[tuple[int, int]]()
        for index, position in enumerate(positions):
            if position is not None:
                first = indexes.setdefault(position, index)
                tells |= {(first, index), (index, first)} if first != index else set()
        tells |= {
            (indexes[column], indexes[other]) for column, other in self.tells if {column, other} <= indexes.keys()
        }
        unit = frozenset(index for index, position in enumerate(positions) if position in self.unit)
        has_keys = all(key in indexes for key in self.keys)
        keys = frozenset(indexes[key] for key in self.keys) if has_keys else frozenset()
        ties = frozenset((index, key) for index, position in enumerate(positions) for key in self.tied(position))
        numbers = frozenset(
            (indexes[column], frozenset(indexes[key] for key in among))
            for column, among in self.numbers
            if {column, *among} <= indexes.keys()
        )
        firsts = frozenset(
            (indexes[column], frozenset(indexes[key] for key in among))
            for column, among in self.firsts
            if {column, *among} <= indexes.keys()
        )
        date = self.date and self.date.at(
            index for index, position in enumerate(positions) if self.date and position in self.date.columns
        )
        return replace(
            self,
            width=len(positions),
            unit=unit,
            keys=keys,
            ties=ties,
            date=date,
            numbers=numbers,
            firsts=firsts,
            unique=frozenset(
                frozenset(indexes[column] for column in key) for key in self.unique if key <= indexes.keys()
            ),
            tells=frozenset(tells),
            loose=frozenset(index for index, position in enumerate(positions) if position in self.loose),
        )

    def tied(self, position: int | None) -> frozenset[Key]:
        """Return the keys that a column holds."""
        return frozenset(key for column, key in self.ties if column == position)

    def shift(self, width: int) -> tuple[frozenset[int], frozenset[tuple[int, Key]]]:
        """Return the columns of the unit, and the ties, after `width` other columns."""
        return frozenset(width + column for column in self.unit), frozenset(
            (width + column, key) for column, key in self.ties
        )


def leaf_rows(leaf: Leaf, names: Sequence[str | None]) -> Rows:
    """Return the rows of a scan of a declared table's columns."""

    def positions(column: str | None) -> frozenset[int]:
        folded = None if column is None else fold(column)
        return frozenset(index for index, name in enumerate(names) if name is not None and fold(name) == folded)

    ties = frozenset((index, key) for column, key in leaf.keys.items() for index in positions(column))
    by_unit = leaf.unit is not None or not leaf.datasets
    date = None if leaf.period is None else Dates(leaf.period, positions(leaf.date), leaf.static)
    unit = positions(leaf.unit)
    once = leaf.single and bool(unit)
    keys = ([positions(column) for column in key] for key in leaf.unique)
    unique = frozenset(frozenset[int]().union(*key) for key in keys if all(key))
    return Rows(len(names), leaf.datasets, unit, leaf.pending, ties, by_unit, once=once, date=date, unique=unique)


def together(parts: Sequence[Rows], width: int) -> Rows:
    """Return rows with all reads of the parts and no other known property."""
    unfixed = next((part for part in parts if part.unfixed), None)
    return Rows(
        width,
        sum((part.scans for part in parts), ()),
        by_unit=all(part.by_unit for part in parts),
        row_level=next((part.row_level for part in parts if part.row_level), ""),
        lacks_key=next((part.lacks_key for part in parts if part.lacks_key), ""),
        own_rows=next((part.own_rows for part in parts if part.own_rows), ""),
        unfixed="" if unfixed is None else unfixed.unfixed,
        to_order="" if unfixed is None else unfixed.to_order,
        loose=frozenset(range(width) if any(part.loose for part in parts) else ()),
        date=of_parts([part.date for part in parts if not part.public]),
    )


def union_of(parts: Sequence[Rows], *, keeps_duplicates: bool) -> Rows:
    """Return the union of all parts; UNION ALL `keeps_duplicates`. A single part stays as it is."""
    if len(parts) == 1:
        return parts[0]
    rows = together(parts, max((part.width for part in parts), default=0))
    if rows.public:
        return rows
    # If a part is public or reads the same table again, one row of a table can give a second row here.
    apart = not any(part.public for part in parts) and len(set(rows.scans)) == len(rows.scans)
    if not (keeps_duplicates and apart):
        rows = rows.mixed("UNION")
    first = parts[0]
    if not keeps_duplicates or any(part.pending != first.pending for part in parts):
        return rows.broken("UNION") if rows.by_unit else rows
    unit = frozenset.intersection(*(part.unit for part in parts))
    ties = frozenset.intersection(*(part.ties for part in parts))
    columns = [frozenset() if part.date is None else part.date.columns for part in parts]
    date = rows.date and rows.date.at(frozenset.intersection(*columns))
    out = replace(rows, unit=unit, pending=first.pending, ties=ties, date=date)
    return out if unit or not rows.by_unit else out.broken("UNION")


INTEGERS = frozenset(f"{sign}{size}" for sign in ("", "U") for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT"))
