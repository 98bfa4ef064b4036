"""What data owners declared about tables: protected, public, or made from a protected one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpsql.ledger.rows import Facts

from dpsql.contract.names import MARKED, TableName, parts_of
from dpsql.contract.parameters import fold
from dpsql.engines.duckdb.lineage.rows import PUBLIC, Leaf
from dpsql.errors import ParameterError

PROTECT, PUBLIC_KIND, DERIVE = "protect", "public", "derive"
# Before the digest of a view that is known by its texts, because DuckDB cannot write its plan down.
BY_TEXT = "text:"


@dataclass(frozen=True)
class Declaration:
    """One declaration that stands."""

    kind: str  # 'protect', 'public' or 'derive'
    dataset: str  # what the ledger calls it: the name of the budget, or the table's shortest spelling
    # The table or view; None for a budget of rows that are in no catalog, and for one that was stated before ledgers
    # kept tables: its name stands for every table of that name, it is said of tables `anywhere`.
    table: TableName | None = None
    base: str | None = None  # of a derived table: what it was made from
    unit: str | None = None  # the column of the privacy unit
    # Of a view: the digest of its plan when it was declared, or behind `BY_TEXT` of the texts that it stands on where
    # DuckDB could not write the plan down; '' in ledgers that did not keep these.
    view: str | None = None
    columns: tuple[str, ...] = ()  # the names of the table's columns when it was declared
    anywhere: bool = False
    claims: str = "rows"  # of a budget: which claims of callers it answers, as of `Budget`
    date: str | None = None  # of a budget: the column by whose periods it is kept

    @classmethod
    def of(
        cls,
        kind: str,
        dataset: str,
        facts: Facts | None,
        unit: str | None = None,
        claims: str = "rows",
        date: str | None = None,
    ) -> Declaration:
        """Read a declaration from what the ledger holds."""
        facts = facts or {}
        table = facts.get("table")
        return cls(
            kind,
            dataset,
            TableName(*table) if table else None,
            facts.get("base"),
            facts.get("unit", unit),
            facts.get("view"),
            tuple(facts.get("columns", ())),
            anywhere=kind == PROTECT and not facts,
            claims=claims,
            date=date if kind == PROTECT else None,
        )

    def covers(self, table: TableName, alias: str) -> bool:
        """Whether this is said of a table, which is in a database that is attached under `alias`.

        A budget counts for every table of an engine that has its name, whatever else was declared.
        """
        if table.engine is not None:
            return table == self.table or (self.kind == PROTECT and fold(self.dataset) == table.budget)
        if not self.anywhere:
            # A budget outlives the session, and so holds by the name that a database without a mark is attached under.
            named = self.kind == PROTECT and not table.database.startswith(MARKED)
            return self.table in (table, TableName.of(alias, table.schema, table.name) if named else table)
        parts = [fold(part) for part in _old_parts(self.dataset)]
        path = [fold(alias), table.schema, table.name]
        if len(parts) == 2:
            return parts in ([table.schema, table.name], [path[0], table.name] if table.schema == "main" else None)
        return parts == path[-len(parts) :] and (len(parts) != 1 or table.schema == "main")


def _old_parts(dataset: str) -> list[str]:
    try:
        return parts_of(dataset)
    except ParameterError:
        return [dataset]


@dataclass(frozen=True)
class Declarations:
    """All declarations that hold for a connection.

    The counter is the number of the ledger's last declaration, and of the changes to those that hold for this session
    alone: another one means that something was declared since.
    """

    counter: int
    listed: tuple[Declaration, ...]

    @property
    def governed(self) -> bool:
        """Whether anything is protected."""
        return any(one.kind == PROTECT for one in self.listed)

    def about(self, table: TableName, alias: str) -> list[Declaration]:
        """Return what is declared about a table."""
        return [one for one in self.listed if one.covers(table, alias)]

    def roots(self, declared: Iterable[Declaration]) -> tuple[str, ...]:
        """Return the budgets that declarations lead to: of a derived table, those of what it was made from."""
        found: dict[str, None] = {}
        open_ones, seen = list(declared), set[str]()
        while open_ones:
            one = open_ones.pop(0)
            if one.kind == PROTECT:
                found[one.dataset] = None
            elif one.kind == DERIVE and one.base is not None and one.dataset not in seen:
                seen.add(one.dataset)
                open_ones += [base for base in self.listed if base.dataset == one.base and base.kind != PUBLIC_KIND]
        return tuple(found)

    def leaf(self, table: TableName, alias: str) -> Leaf | None:
        """Return what a scan of a table stands for; None where nothing is declared."""
        return self._leaf(self.about(table, alias))

    def _leaf(self, declared: Sequence[Declaration]) -> Leaf | None:
        datasets = self.roots(declared)
        if datasets:
            units = {one.unit for one in declared if one.kind != PUBLIC_KIND}
            # A table that was made from a dated one is not known to keep periods apart.
            dates = {one.date for one in declared if one.kind != PUBLIC_KIND}
            is_dated = any(self.date(name) is not None for name in datasets)
            date = dates.pop() if len(dates) == 1 else None
            return Leaf(datasets, units.pop() if len(units) == 1 else None, is_dated, date)
        return PUBLIC if any(one.kind == PUBLIC_KIND for one in declared) else None

    def views(self) -> list[Declaration]:
        """Return the declarations about views."""
        return [one for one in self.listed if one.view is not None]

    def view_leaf(self, view: Declaration) -> Leaf:
        """Return what a scan of a declared view stands for."""
        declared = [one for one in self.listed if one.table == view.table]
        return self._leaf(declared) or PUBLIC

    def named(self, dataset: str) -> Declaration | None:
        """Return the declaration that the ledger keeps under a name."""
        return next((one for one in self.listed if fold(one.dataset) == fold(dataset)), None)

    def unit(self, dataset: str) -> str | None:
        """Return the privacy unit that a budget states."""
        found = next((one for one in self.listed if one.kind == PROTECT and one.dataset == dataset), None)
        return None if found is None else found.unit

    def date(self, dataset: str) -> str | None:
        """Return the column by whose periods a budget is kept; None for a budget without periods."""
        return next((one.date for one in self.listed if one.kind == PROTECT and one.dataset == dataset), None)

    def claims(self, dataset: str) -> str:
        """Return which claims of callers a budget answers."""
        return next(one.claims for one in self.listed if one.kind == PROTECT and one.dataset == dataset)

    @property
    def protected(self) -> list[str]:
        """The names of all budgets."""
        return [one.dataset for one in self.listed if one.kind == PROTECT]
