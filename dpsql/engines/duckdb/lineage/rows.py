"""The rows of an operator or of a source: the budgets that they belong to, and how far one row or unit reaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dpsql.contract.parameters import fold


@dataclass(frozen=True)
class Leaf:
    """The owner's declaration about a table."""

    datasets: tuple[str, ...] = ()  # the budgets that its rows belong to; none for a public table
    unit: str | None = None  # the column that holds the privacy unit; None where one row is protected


PUBLIC = Leaf()


@dataclass(frozen=True)
class Rows:
    """What an operator returns; `row_level` and `own_rows` name the operator that broke a property, if any did."""

    width: int  # the number of columns
    scans: tuple[str, ...] = ()  # the budgets of the tables that were read, repeated for each read; none if public
    unit: frozenset[int] = frozenset()  # columns that hold the privacy unit unchanged
    by_unit: bool = True  # every protected table that was read states a privacy unit
    row_level: str = ""
    own_rows: str = ""
    alone: bool = False  # there is at most one row
    keys: frozenset[int] = frozenset()  # columns whose combined values differ between any two rows; empty if unknown
    unfixed: str = ""  # the aggregate of protected rows that follows from their order

    @property
    def public(self) -> bool:
        """Whether no protected table was read."""
        return not self.scans

    def broken(self, by: str) -> Rows:
        """Return these rows without either property, unless they are public."""
        if self.public:
            return self
        return replace(self, row_level=self.row_level or by, own_rows=self.own_rows or by, unit=frozenset())

    def mixed(self, by: str) -> Rows:
        """Return these rows without the row level: one may come from several rows of a table, or from none."""
        return self if self.public else replace(self, row_level=self.row_level or by)

    def unfixed_by(self, function: str) -> Rows:
        """Return these rows with a function that follows from their order, unless they are public."""
        return self if self.public or not function else replace(self, unfixed=self.unfixed or function)

    def columns(self, positions: Sequence[int | None]) -> Rows:
        """Return these rows with other columns, each one of theirs or, as None, a new one."""
        places: dict[int, int] = {}
        for place, position in enumerate(positions):
            if position is not None:
                places.setdefault(position, place)
        unit = frozenset(place for place, position in enumerate(positions) if position in self.unit)
        kept = all(key in places for key in self.keys)
        keys = frozenset(places[key] for key in self.keys) if kept else frozenset()
        return replace(self, width=len(positions), unit=unit, keys=keys)


def leaf_rows(leaf: Leaf, names: Sequence[str | None]) -> Rows:
    """Return the rows of a scan of columns, whose table's owner declared something."""
    unit = frozenset(
        place
        for place, name in enumerate(names)
        if leaf.unit is not None and name is not None and fold(name) == fold(leaf.unit)
    )
    return Rows(len(names), leaf.datasets, unit, leaf.unit is not None or not leaf.datasets)


def together(parts: Sequence[Rows], width: int) -> Rows:
    """Return rows that read everything that the parts read and have no other known property."""
    return Rows(
        width,
        sum((part.scans for part in parts), ()),
        frozenset(),
        all(part.by_unit for part in parts),
        next((part.row_level for part in parts if part.row_level), ""),
        next((part.own_rows for part in parts if part.own_rows), ""),
        unfixed=next((part.unfixed for part in parts if part.unfixed), ""),
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
    unit = frozenset.intersection(*(part.unit for part in found)) if kept else frozenset()
    return replace(rows, unit=unit) if unit or not rows.by_unit else rows.broken("UNION")
