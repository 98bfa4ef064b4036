"""Placement of a source: the origin of its rows, and the budgets that a call on it charges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dpsql.contract.json import Json


@dataclass(frozen=True)
class Placement:
    """Origin of a source's rows.

    Attributes
    ----------
    counter : int
        State of the ledger's declarations at the decision; see `Declarations.counter`.
    charged : tuple of str
        Budgets to charge; the policy of the first budget applies.
    written : str
        The source as the caller wrote it.
    source : str
        Spelling to read, which no WITH query of the caller can shadow.
    tables : tuple of str
        Tables that the source reads, as far as they are visible.
    seen : bool
        Whether DuckDB could serialise the plan.
    claimed : bool
        Whether `charged` rests on the caller's statement alone.
    unit : str or None
        Column of the privacy unit, traced through the plan.
    date : str or None
        Column of the date for the dataset's periods, traced through the plan.
    dated : tuple of (str, str or None)
        Date declarations of the tables that the source reads, if there are several; see `Dated.tables`.
    undated : bool
        Whether the rows of a dataset with periods have no date.
    numbered : bool
        Whether the plan shows that the column of the privacy unit holds integers of at most 64 bits.
    content : str
        Digest of the source's meaning: equal for different spellings, different for different views.
    earlier : str
        Digest with private labels, as earlier versions recorded it; ``''`` if the source reads none.
    direct : bool
        Whether the source is a table of the catalog, not a view, file or frame.
    checked : bool
        Whether DuckDB checked that all text in the source is UTF-8, when it stored the rows.
    governed : bool
        Whether the ledger protects any table.
    views : str
        Digest of the SQL of the views that the source depends on. The gate sets it, so it does not distinguish calls.
    plan : str
        Digest of the source's bound plan.
    enums : bool
        Whether a column that the plan reads has an ENUM type.
    texts : tuple of (str, str)
        Columns with private labels, by name, each with the SQL that reads it as text. They do not distinguish calls:
        the rows are the same.
    state : int or None
        State of the catalog at the decision; see `CatalogState`.
    read : bool
        Whether the texts behind the source were already judged in this state of the catalog.
    generated : bool
        Whether a directly read table has columns that DuckDB computes on reading.
    joined : str
        FROM item of a table with the joins along its path to the privacy unit; ``''`` without joins.
    rows_per_unit : int or None
        Row limit per privacy unit, from declarations of the tables.
    once : bool
        Whether the plan leaves each privacy unit at most one row, so that a row limit of 1 is enough.
    free : tuple of (str, str, str)
        Paths of tables that the source reads as public.
    keyed : tuple of tuple of str
        Table keys that make orders total: database, schema, table, and the key's columns. dpsql reads them again when
        the statement runs.
    loose : tuple of (str, str)
        Number columns, with types, whose values are fixed except for their spelling, such as 0 and -0. A call reads
        them with one spelling.
    engine : str
        Engine that holds the source, and its version; ``''`` for DuckDB.
    """

    counter: int
    charged: tuple[str, ...] = ()
    written: str = ""
    source: str = ""
    tables: tuple[str, ...] = ()
    seen: bool = False
    claimed: bool = False
    unit: str | None = None
    content: str = ""
    direct: bool = False
    checked: bool = False
    governed: bool = True
    earlier: str = field(default="", compare=False)
    views: str = field(default="", compare=False)
    plan: str = field(default="", compare=False)
    enums: bool = field(default=False, compare=False)
    texts: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    state: int | None = field(default=None, compare=False)
    read: bool = field(default=False, compare=False)
    generated: bool = field(default=False, compare=False)
    joined: str = ""
    rows_per_unit: int | None = None
    once: bool = False
    engine: str = ""
    date: str | None = None
    dated: tuple[tuple[str, str | None], ...] = ()
    undated: bool = False
    numbered: bool = field(default=False, compare=False)
    free: tuple[tuple[str, str, str], ...] = field(default=(), compare=False)
    keyed: tuple[tuple[str, ...], ...] = field(default=(), compare=False)
    loose: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def is_plain(self) -> bool:
        """Whether the source is a table that stores all its columns, so that no text is behind it."""
        return self.direct and not self.generated

    @property
    def key(self) -> str:
        """Key for a judgement of the texts behind the source; ``''`` without texts."""
        return "" if self.is_plain else f"{self.enums} {self.plan} {self.source}"

    def rows_stated(self, policy: object) -> object:
        """Return the row limit per privacy unit for a call without one; `policy` is the owner's limit.

        This is a default: any limit on the rows keeps the guarantee.
        """
        return 1 if self.once else self.rows_per_unit or policy

    def to_json(self) -> dict[str, Json]:
        """Return the placement as JSON values."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, record: Mapping[str, object]) -> Placement:
        """Return the placement that `to_json` wrote."""
        plain = {name: _hashable(value) for name, value in record.items()}
        build: Callable[..., Placement] = cls
        return build(**plain)


def _hashable(value: object) -> object:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
