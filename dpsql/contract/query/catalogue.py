"""The splitter's input next to the query's text: tables with columns, the caller's options, DuckDB's types.

The engine fills it in from bound plans and the ledger. All of it is public: declarations and types, no rows.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from typing import NamedTuple, Protocol

from dpsql.contract.expression.judge import Bound
from dpsql.contract.expression.kinds import Type
from dpsql.contract.parameters import fold
from dpsql.dataclass import dataclass

Path = tuple[str, str, str]  # a table's full path: database, schema and name
# How far back `Options.earlier` goes: before conditions narrowed public keys, and before decision 65 as well.
BEFORE_NARROW_KEYS, BEFORE_TOTAL_ORDERS = 1, 2


class PathKey(NamedTuple):
    """A column that the rows of other tables refer to: the end of a path."""

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
        Declared keys, as strings that DuckDB casts to the type.
    lower, upper : Fraction or None
        Declared bounds.
    required : bool
        Whether the column is NOT NULL.
    """

    name: str
    type: Type
    values: tuple[str | None, ...] | None = None
    lower: Fraction | None = None
    upper: Fraction | None = None
    required: bool = False


@dataclass(frozen=True)
class CatalogueTable:
    """A table or view, from the plan of ``FROM <name>``.

    Attributes
    ----------
    path : tuple of str
        The full database, schema and name.
    columns : tuple of CatalogueColumn
    public : bool
        Whether the table reads no rows of people. A table without declarations counts as public here; the plans of the
        written SQL reveal it, and the engine refuses it.
    units : tuple of str
        The columns that hold the owner of each row, unchanged. Empty if each row is its own privacy unit.
    pending : PathKey or None
        The content of these columns: the privacy unit, or a key of another table.
    keys : mapping of str to PathKey
        The columns that rows of other tables refer to, folded.
    date : str or None
        The column that dates rows, if the dataset has periods.
    period : str
        The kind of these periods; `''` without a date.
    by_unit : bool
        Whether the budget protects people; False if it protects single rows.
    texts : tuple of (str, str)
        The columns read as text, each with the SQL that reads it: their labels may be private.
    loose : tuple of (str, str)
        The numeric columns without a fixed spelling, with their types; see `Placement.loose`.
    item : str
        The FROM item that reads the table, if it is not its name.
    extremes : bool
        Whether its owner lets private quantiles answer `min` and `max`.
    """

    path: Path
    columns: tuple[CatalogueColumn, ...]
    public: bool = True
    units: tuple[str, ...] = ()
    pending: PathKey | None = None
    keys: Mapping[str, PathKey] = field(default_factory=dict)
    date: str | None = None
    period: str = ""
    by_unit: bool = True
    texts: tuple[tuple[str, str], ...] = ()
    loose: tuple[tuple[str, str], ...] = ()
    item: str = ""
    extremes: bool = False

    def column(self, name: str) -> CatalogueColumn | None:
        """Return a column by its name."""
        return next((column for column in self.columns if fold(column.name) == fold(name)), None)


class Typing(Protocol):
    """DuckDB's types, from a DuckDB without any user's tables or settings."""

    @property
    def newer(self) -> bool:
        """Whether DuckDB computes by IEEE 754 by default, as it does since 2.0."""

    def tree(self, sql: str, types: Sequence[tuple[str, Type]], texts: Sequence[str]) -> Bound | None:
        """Return the typed tree of an expression over typed columns; None if DuckDB does not bind it."""

    def columns(self, query: str) -> tuple[tuple[str, Type], ...] | None:
        """Return the names and types of a query that reads no table; None if DuckDB does not bind it."""

    def value(self, sql: str) -> str | None:
        """Return the value of an expression over literals as text; None for NULL, or if it fails."""


@dataclass(frozen=True)
class Catalogue:
    """All tables and types that a query may name.

    Attributes
    ----------
    tables : mapping of tuple of str to CatalogueTable
        By the reference in the query: folded database, schema and name as written, ``''`` for each absent part
        (`tree.tables_of`).
    typing : Typing
    parents : mapping of Path to CatalogueTable
        The tables along paths, by folded full name.
    """

    tables: Mapping[tuple[str, str, str], CatalogueTable]
    typing: Typing
    parents: Mapping[Path, CatalogueTable] = field(default_factory=dict)

    def table(self, names: tuple[str, str, str]) -> CatalogueTable | None:
        """Return the table of a reference."""
        return self.tables.get(folded(names))

    def parent(self, key: PathKey) -> CatalogueTable | None:
        """Return the table at the end of one step of a path."""
        parent = self.parents.get(folded(key.table))
        return parent or next(
            (table for table in self.tables.values() if folded(table.path) == folded(key.table)), None
        )


def folded(path: Path) -> Path:
    """Return a name as DuckDB compares names."""
    return fold(path[0]), fold(path[1]), fold(path[2])


@dataclass(frozen=True)
class Options:
    """The options of a query's caller.

    Attributes
    ----------
    keys : mapping of str to tuple of (str or None)
        Public keys of grouping columns, by the name of the column or of the result's column.
    private_keys : bool
        Whether all keys are private (``keys := 'private'``).
    lower, upper : mapping of str to Fraction
        Bounds by column; ``''`` for all columns.
    errors : bool
        Whether the result has an interval next to every number.
    zone : str
        The session's time zone, for reading timestamps with time zone.
    now : datetime or None
        The statement's bind time in the session's zone: the value of CURRENT_DATE and now().
    least_units : int or None
        A group whose noisy number of persons is less is not shown.
    during : object
        The periods whose rows count, as the caller names them.
    columns : tuple of (str, str) or None
        Names and SQL types of the original query, as DuckDB binds it; None if not yet known.
    earlier : int
        How far back the version is whose SQL to write: 0 for this one, `BEFORE_NARROW_KEYS`, or `BEFORE_TOTAL_ORDERS`
        (tied rows and equal values in DuckDB's reading order). Earlier SQL finds a stored release, and never runs.
    """

    keys: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    private_keys: bool = False
    lower: Mapping[str, Fraction] = field(default_factory=dict)
    upper: Mapping[str, Fraction] = field(default_factory=dict)
    errors: bool = False
    zone: str = "UTC"
    now: datetime.datetime | None = None
    least_units: int | None = None
    during: object = None
    columns: tuple[tuple[str, str], ...] | None = None
    earlier: int = 0
