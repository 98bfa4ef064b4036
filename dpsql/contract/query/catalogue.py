"""What a query's splitter knows beside its text: tables with their columns, the caller's options, DuckDB's types.

The engine fills all of it in from bound plans and the ledger. It is public: declarations and types, and nothing of a
row.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple, Protocol

from dpsql.contract.expression.judge import Bound
from dpsql.contract.expression.kinds import Type
from dpsql.contract.parameters import fold

Path = tuple[str, str, str]  # database, schema and name of a table, whole


class PathKey(NamedTuple):
    """A column of a table that the rows of other tables point to: the end of a path."""

    table: Path
    column: str


@dataclass(frozen=True)
class CatalogueColumn:
    """A column of a table.

    Attributes
    ----------
    name : str
    type : Type
    values : tuple of (str or None) or None
        The keys that its owner declared, as texts that DuckDB casts to the type.
    lower, upper : Fraction or None
        The bounds that its owner declared.
    required : bool
        Whether it is NOT NULL.
    """

    name: str
    type: Type
    values: tuple[str | None, ...] | None = None
    lower: Fraction | None = None
    upper: Fraction | None = None
    required: bool = False


@dataclass(frozen=True)
class CatalogueTable:
    """A table or view, as the plan of ``FROM <name>`` shows it.

    Attributes
    ----------
    path : tuple of str
        Its database, schema and name, whole.
    columns : tuple of CatalogueColumn
    public : bool
        Whether it reads no rows of people. A table about which nobody declared anything is treated as public here; the
        plans of the written texts show it, and it is refused.
    units : tuple of str
        The columns that hold what each row belongs to, unchanged. None of a protected table: a row is the unit.
    pending : PathKey or None
        What these columns hold: the privacy unit, or a key of another table.
    keys : mapping of str to PathKey
        The columns that rows of other tables point to, folded.
    date : str or None
        The column by which rows are dated, where the dataset has periods.
    by_unit : bool
        Whether its budget protects people; False where one row is protected.
    texts : tuple of (str, str)
        The columns that are read as text, each with the SQL that reads it: their labels may be private.
    loose : tuple of (str, str)
        The columns of numbers, with their types, whose spellings are not fixed; see `Placement.loose`.
    """

    path: Path
    columns: tuple[CatalogueColumn, ...]
    public: bool = True
    units: tuple[str, ...] = ()
    pending: PathKey | None = None
    keys: Mapping[str, PathKey] = field(default_factory=dict)
    date: str | None = None
    by_unit: bool = True
    texts: tuple[tuple[str, str], ...] = ()
    loose: tuple[tuple[str, str], ...] = ()

    def column(self, name: str) -> CatalogueColumn | None:
        """Return a column by its name."""
        return next((column for column in self.columns if fold(column.name) == fold(name)), None)


class Typing(Protocol):
    """DuckDB's types, from a DuckDB without tables and settings of anybody's."""

    @property
    def newer(self) -> bool:
        """Whether DuckDB computes by IEEE 754 by default, as from 2.0 on."""

    def tree(self, sql: str, types: Sequence[tuple[str, Type]], texts: Sequence[str]) -> Bound | None:
        """Return the typed tree of an expression over columns of these types; None if DuckDB does not bind it."""

    def columns(self, query: str) -> tuple[tuple[str, Type], ...] | None:
        """Return the names and types of a query that reads no table; None if DuckDB does not bind it."""


@dataclass(frozen=True)
class Catalogue:
    """All that a query may name.

    Attributes
    ----------
    tables : mapping of tuple of str to CatalogueTable
        By the reference in the query: database, schema and name as they are written, folded, each ``''`` where it is
        left out (`tree.tables_of`).
    typing : Typing
    parents : mapping of Path to CatalogueTable
        The tables along paths, by their whole names, folded.
    """

    tables: Mapping[tuple[str, str, str], CatalogueTable]
    typing: Typing
    parents: Mapping[Path, CatalogueTable] = field(default_factory=dict)

    def table(self, names: tuple[str, str, str]) -> CatalogueTable | None:
        """Return the table of a reference."""
        return self.tables.get(folded(names))

    def parent(self, key: PathKey) -> CatalogueTable | None:
        """Return the table at the end of a step of a path."""
        parent = self.parents.get(folded(key.table))
        return parent or next(
            (table for table in self.tables.values() if folded(table.path) == folded(key.table)), None
        )


def folded(path: Path) -> Path:
    """Return a name as DuckDB compares names."""
    return fold(path[0]), fold(path[1]), fold(path[2])


@dataclass(frozen=True)
class Options:
    """What the caller of a query states beside it.

    Attributes
    ----------
    keys : mapping of str to tuple of (str or None)
        Public keys of grouping columns, by the column's name or the name of the result's column.
    private_keys : bool
        Whether all keys are drawn from the rows (``keys := 'private'``).
    delta : bool
        Whether a delta is given, so that keys may be drawn where none are public.
    lower, upper : mapping of str to Fraction
        Bounds by column; ``''`` for all columns.
    errors : bool
        Whether the result has an interval beside every number.
    zone : str
        The session's time zone, in which timestamps with time zone are read.
    now : datetime or None
        The time at which the statement is bound, in the session's zone: what CURRENT_DATE and now() stand for.
    columns : tuple of (str, str) or None
        Names and SQL types of the original query, as DuckDB binds it; None where they are not known yet.
    earlier : bool
        Whether texts are written as before decision 65: rows that tie, and equal values, as DuckDB reads them. Such a
        text finds a release that was stored, and is never run.
    """

    keys: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    private_keys: bool = False
    delta: bool = False
    lower: Mapping[str, Fraction] = field(default_factory=dict)
    upper: Mapping[str, Fraction] = field(default_factory=dict)
    errors: bool = False
    zone: str = "UTC"
    now: datetime.datetime | None = None
    columns: tuple[tuple[str, str], ...] | None = None
    earlier: bool = False
