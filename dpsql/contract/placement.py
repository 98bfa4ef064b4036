"""The placement of a source: where its rows come from, and which budgets a call on it is charged to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dpsql.contract.json import Json


@dataclass(frozen=True)
class Placement:
    """Where a source's rows come from.

    Attributes
    ----------
    counter : int
        State of the ledger's declarations at the decision; see `Declarations.counter`.
    charged : tuple of str
        The budgets to charge; the policy of the first one applies.
    written : str
        The source as the caller wrote it.
    source : str
        The spelling to read, which no WITH query of the caller can shadow.
    tables : tuple of str
        The tables read, as far as they are visible.
    seen : bool
        Whether DuckDB could serialise the plan.
    claimed : bool
        Whether `charged` rests on the caller's statement alone.
    unit : str or None
        The column that holds the privacy unit, traced through the plan.
    date : str or None
        The column that holds the date by which the dataset has periods, traced through the plan.
    dated : tuple of (str, str or None)
        What is stated of the dates of those among several tables that are read, see `Dated.tables`.
    undated : bool
        Whether the rows of a dataset with periods have no date.
    numbered : bool
        Whether the plan shows that the column of the privacy unit holds integers of at most 64 bits.
    content : str
        Digest of the source's meaning: equal for different spellings, different for different views.
    earlier : str
        The same with private labels in it, as earlier versions recorded it; ``''`` where none are read.
    direct : bool
        Whether the source is a table of the catalog, not a view, file or frame.
    checked : bool
        Whether DuckDB checked that all text in the source is UTF-8: when it stored the rows.
    governed : bool
        Whether the ledger protects any table.
    views : str
        Digest of the SQL of the views that the source depends on. The gate sets it, so it does not tell calls apart.
    plan : str
        Digest of the source's bound plan.
    enums : bool
        Whether a column that the plan reads has an ENUM type.
    texts : tuple of (str, str)
        The columns whose labels are private, by name, each with the SQL that reads it as text. They do not tell calls
        apart: what is read is the same.
    state : int or None
        State of the catalog at the decision; see `CatalogState`.
    read : bool
        Whether the texts behind the source were judged before, in this state of the catalog.
    generated : bool
        Whether a table that is read as it is has columns that are computed when they are read.
    joined : str
        The FROM item of a table with the joins along its path to the privacy unit; ``''`` where none are added.
    rows_per_unit : int or None
        How many rows of one privacy unit count, by what is stated of the tables that are read.
    once : bool
        Whether the plan leaves each privacy unit one row at most, so that no more need to count.
    free : tuple of (str, str, str)
        The paths of tables that are read as public.
    keyed : tuple of tuple of str
        The keys of tables by which orders are total: database, schema, table, and the key's columns. They are read
        again when the statement runs.
    loose : tuple of (str, str)
        The columns of numbers, with their types, whose values are fixed but for their spellings, as 0 and -0 are. A
        call reads them with one spelling.
    engine : str
        The engine that holds the source, and its version; ``''`` for DuckDB.
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
        """Whether the source is a table of which every column is stored, so that no text is behind it."""
        return self.direct and not self.generated

    @property
    def key(self) -> str:
        """What a judgement of the texts behind the source is about; ``''`` where there are none."""
        return "" if self.is_plain else f"{self.enums} {self.plan} {self.source}"

    def rows_stated(self, policy: object) -> object:
        """Return how many rows of one privacy unit count if a call says nothing of it, and its owner's `policy` this.

        It is a default: any limit that is applied to the rows keeps the guarantee.
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
