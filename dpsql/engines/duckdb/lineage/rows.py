"""The rows of an operator or of a source: the budgets that they belong to, and how far one row or unit reaches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dpsql.contract.names import TableName
from dpsql.contract.parameters import fold
from dpsql.engines.duckdb.lineage.dates import Dates, of_parts


class Key(NamedTuple):
    """A column of a table that the rows of other tables point to: the end of a path."""

    table: TableName
    column: str  # folded


@dataclass(frozen=True)
class Leaf:
    """The owner's declaration about a table."""

    datasets: tuple[str, ...] = ()  # the budgets that its rows belong to; none for a public table
    unit: str | None = None  # the column that holds what the rows belong to; None where one row is protected
    pending: Key | None = None  # what that is: the privacy unit, or a key of another table
    keys: Mapping[str, Key] = field(default_factory=dict)  # the columns that rows of other tables point to, folded
    period: str | None = None  # the unit is a person in a period of this kind
    date: str | None = None  # the column that holds the date
    static: bool = False  # the rows of a person are undated, in a dataset with periods
    single: bool = False  # no two rows have one value in the column of what they belong to
    unique: Collection[frozenset[str]] = ()  # keys: sets of columns, folded, in which no two rows agree


PUBLIC = Leaf()


@dataclass(frozen=True)
class Rows:
    """What an operator returns; `row_level` and `own_rows` name the operator that broke a property, if any did."""

    width: int  # the number of columns
    scans: tuple[str, ...] = ()  # the budgets of the tables that were read, repeated for each read; none if public
    unit: frozenset[int] = frozenset()  # columns that hold what each row belongs to, unchanged
    pending: Key | None = None  # what that is: the privacy unit, or until a join says whose it is a key of a table
    ties: frozenset[tuple[int, Key]] = frozenset()  # columns with keys of rows that belong to the same
    by_unit: bool = True  # every protected table that was read states a privacy unit
    row_level: str = ""
    own_rows: str = ""
    alone: bool = False  # there is at most one row
    keys: frozenset[int] = frozenset()  # columns whose combined values differ between any two rows; empty if unknown
    # Columns of which no two rows have the same number that agree in some others, or, with none, are of one unit.
    numbers: frozenset[tuple[int, frozenset[int]]] = frozenset()
    firsts: frozenset[tuple[int, frozenset[int]]] = frozenset()  # the same, whoever the rows belong to
    once: bool = False  # each unit, or value that rows are pending on, has at most one row
    unfixed: str = ""  # the function that follows from the order of rows, see `orders`
    to_order: str = ""  # and the keys that its ORDER BY lacks, as SQL
    unique: frozenset[frozenset[int]] = frozenset()  # keys: sets of columns in which no two rows agree, NULL like NULL
    tells: frozenset[tuple[int, int]] = frozenset()  # columns whose bytes tell those of other columns
    loose: frozenset[int] = frozenset()  # columns of numbers that are fixed but for their spellings, such as -0 for 0
    date: Dates | None = None  # None where nothing read has periods

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
        """Whether rows that agree in some columns are of one unit: of one person and, with periods, in one of them.

        They are in one period if a date is among the columns, or if they are known to be `dated` alike. Rows that
        belong to a key, and undated ones, have no date.
        """
        alike = dated or self.date is None or self.date.static or self.pending is not None
        if not alike and self.date is not None:
            alike = any(key in self.date.columns for key in keys)
        return alike and any(key in self.unit for key in keys)

    def mixed(self, by: str) -> Rows:
        """Return these rows without the row level: one may come from several rows of a table, or from none."""
        return self if self.public else replace(self, row_level=self.row_level or by)

    def unfixed_by(self, function: str, to_order: str = "") -> Rows:
        """Return these rows with a function that follows from their order, and the keys that its ORDER BY lacks."""
        return replace(self, unfixed=function, to_order=to_order) if function and not self.unfixed else self

    def columns(self, positions: Sequence[int | None]) -> Rows:
        """Return these rows with other columns, each one of theirs or, as None, a new one."""
        places: dict[int, int] = {}
        tells = set[tuple[int, int]]()
        for place, position in enumerate(positions):
            if position is not None:
                first = places.setdefault(position, place)
                tells |= {(first, place), (place, first)} if first != place else set()
        tells |= {(places[one], places[other]) for one, other in self.tells if {one, other} <= places.keys()}
        unit = frozenset(place for place, position in enumerate(positions) if position in self.unit)
        kept = all(key in places for key in self.keys)
        keys = frozenset(places[key] for key in self.keys) if kept else frozenset()
        ties = frozenset((place, key) for place, position in enumerate(positions) for key in self.tied(position))
        numbers = frozenset(
            (places[one], frozenset(places[key] for key in among))
            for one, among in self.numbers
            if {one, *among} <= places.keys()
        )
        firsts = frozenset(
            (places[one], frozenset(places[key] for key in among))
            for one, among in self.firsts
            if {one, *among} <= places.keys()
        )
        date = self.date and self.date.at(
            place for place, position in enumerate(positions) if self.date and position in self.date.columns
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
            unique=frozenset(frozenset(places[one] for one in key) for key in self.unique if key <= places.keys()),
            tells=frozenset(tells),
            loose=frozenset(place for place, position in enumerate(positions) if position in self.loose),
        )

    def tied(self, position: int | None) -> frozenset[Key]:
        """Return the keys that a column holds."""
        return frozenset(key for place, key in self.ties if place == position)

    def behind(self, width: int) -> tuple[frozenset[int], frozenset[tuple[int, Key]]]:
        """Return the columns of the unit, and the ties, where they stand behind as many other columns."""
        return frozenset(width + place for place in self.unit), frozenset(
            (width + place, key) for place, key in self.ties
        )


def leaf_rows(leaf: Leaf, names: Sequence[str | None]) -> Rows:
    """Return the rows of a scan of columns, whose table's owner declared something."""

    def named(column: str | None) -> frozenset[int]:
        folded = None if column is None else fold(column)
        return frozenset(place for place, name in enumerate(names) if name is not None and fold(name) == folded)

    ties = frozenset((place, key) for column, key in leaf.keys.items() for place in named(column))
    by_unit = leaf.unit is not None or not leaf.datasets
    date = None if leaf.period is None else Dates(leaf.period, named(leaf.date), leaf.static)
    unit = named(leaf.unit)
    once = leaf.single and bool(unit)
    keys = ([named(column) for column in key] for key in leaf.unique)
    unique = frozenset(frozenset[int]().union(*key) for key in keys if all(key))
    return Rows(len(names), leaf.datasets, unit, leaf.pending, ties, by_unit, once=once, date=date, unique=unique)


def together(parts: Sequence[Rows], width: int) -> Rows:
    """Return rows that read everything that the parts read and have no other known property."""
    unfixed = next((part for part in parts if part.unfixed), None)
    return Rows(
        width,
        sum((part.scans for part in parts), ()),
        by_unit=all(part.by_unit for part in parts),
        row_level=next((part.row_level for part in parts if part.row_level), ""),
        own_rows=next((part.own_rows for part in parts if part.own_rows), ""),
        unfixed="" if unfixed is None else unfixed.unfixed,
        to_order="" if unfixed is None else unfixed.to_order,
        loose=frozenset(range(width) if any(part.loose for part in parts) else ()),
        date=of_parts([part.date for part in parts if not part.public]),
    )


def union_of(found: Sequence[Rows], *, kept: bool) -> Rows:
    """Return the rows of all parts, where equal rows are `kept` as they are; of one part, that part."""
    if len(found) == 1:
        return found[0]
    rows = together(found, max((part.width for part in found), default=0))
    if rows.public:
        return rows
    # If a part is public or reads the same table again, one row of a table can give a second row here.
    apart = not any(part.public for part in found) and len(set(rows.scans)) == len(rows.scans)
    if not (kept and apart):
        rows = rows.mixed("UNION")
    one = found[0]
    if not kept or any(part.pending != one.pending for part in found):
        return rows.broken("UNION") if rows.by_unit else rows
    unit = frozenset.intersection(*(part.unit for part in found))
    ties = frozenset.intersection(*(part.ties for part in found))
    columns = [frozenset() if part.date is None else part.date.columns for part in found]
    date = rows.date and rows.date.at(frozenset.intersection(*columns))
    out = replace(rows, unit=unit, pending=one.pending, ties=ties, date=date)
    return out if unit or not rows.by_unit else out.broken("UNION")


INTEGERS = frozenset(f"{sign}{size}" for sign in ("", "U") for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT"))
