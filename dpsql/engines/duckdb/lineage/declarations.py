"""What data owners declared about tables: protected, public, or made from a protected one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dpsql.ledger.rows import Facts

from dpsql.contract.names import MARKED, TableName, parts_of
from dpsql.contract.parameters import fold
from dpsql.contract.periods import Dated
from dpsql.engines.duckdb.lineage.rows import PUBLIC, Key, Leaf
from dpsql.errors import ParameterError

PROTECT, PUBLIC_KIND, DERIVE = "protect", "public", "derive"
# Before the digest of a view that is known by its texts, because DuckDB cannot write its plan down.
BY_TEXT = "text:"


class PathStep(NamedTuple):
    """One step of a path: rows of a table belong to whom the rows of another table belong to that they point to."""

    column: str
    parent: TableName
    key: str  # the parent's column
    is_text: bool  # whether the two are text, which compares as bytes

    @classmethod
    def of(cls, facts: Mapping[str, object]) -> PathStep:
        """Read a step from what the ledger holds."""
        parent = tuple(map(str, facts["parent"])) if isinstance(facts["parent"], (list, tuple)) else ()
        return cls(str(facts["column"]), TableName(*parent), str(facts["key"]), facts["text"] is True)

    @property
    def end(self) -> Key:
        """The key that the column holds."""
        return Key(self.parent, fold(self.key))


class Owner(NamedTuple):
    """Where a table says whose its rows are."""

    unit: str  # the column of the privacy unit: in the table itself or, behind steps, in the parent of the last one
    steps: tuple[PathStep, ...] = ()
    date: str | None = None  # the column of the date, where the unit is


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
    path: PathStep | None = None  # of a table without that column: the first step to one that has it
    rows: int | None = None  # of one of several tables: how many rows a person may have
    # Of a view: the digest of its plan when it was declared, or behind `BY_TEXT` of the texts that it stands on where
    # DuckDB could not write the plan down; '' in ledgers that did not keep these.
    view: str | None = None
    columns: tuple[str, ...] = ()  # the names of the table's columns when it was declared
    anywhere: bool = False
    claims: str = "rows"  # of a budget: which claims of callers it answers, as of `Budget`
    period: str | None = None  # of a budget: the kind of periods by which it is kept
    date: str | None = None  # the column of the date; None where there is none, or the parent has it
    # Of a public table: its columns with their types when it was declared; none in ledgers that did not keep these. And
    # the protected and derived tables of its database that were missing then.
    shape: tuple[str, ...] = ()
    without: tuple[TableName, ...] = ()
    forced: bool = False  # its owner declared it although a protected table had its columns
    # Of one of several tables whose budget has periods: what it is called there, and what is stated of its dates.
    stated: tuple[str, str | None] | None = None
    # The columns whose labels are public, folded, with digests of their types when that was declared.
    labels: Mapping[str, str] = field(default_factory=dict)

    # Whether it is one of several tables that share a budget.
    stated_together: bool = False

    @classmethod
    def of(
        cls,
        kind: str,
        dataset: str,
        facts: Facts | None,
        unit: str | None = None,
        claims: str = "rows",
        dated: Dated | None = None,
    ) -> Declaration:
        """Read a declaration from what the ledger holds."""
        facts = facts or {}
        table, path = facts.get("table"), facts.get("path")
        dated = dated if kind == PROTECT else None
        table_date = None if dated is None else dated.of_table(facts.get("name"))
        column = None if dated is None else dated.column or None
        return cls(
            kind,
            dataset,
            TableName(*table) if table else None,
            facts.get("base"),
            facts.get("unit", unit),
            None if path is None else PathStep.of(path),
            facts.get("rows"),
            facts.get("view"),
            tuple(facts.get("columns", ())),
            anywhere=kind == PROTECT and not facts,
            claims=claims,
            period=None if dated is None else dated.period,
            date=column if table_date is None else table_date[1] if path is None else None,
            shape=tuple(facts.get("shape", ())),
            without=tuple(TableName(*table) for table in facts.get("without", ())),
            forced=facts.get("forced") is True,
            stated=table_date,
            stated_together=kind == PROTECT and "name" in facts,
            labels=dict(facts.get("labels", {})),
        )

    def place_in(self, alias: str) -> tuple[str, str, str] | None:
        """Return where the table would be in a database that is attached under `alias`; None for rows of no catalog."""
        if self.anywhere:
            schema, name = (["main"] + [fold(part) for part in _old_parts(self.dataset)])[-2:]
            return alias, "main" if schema == fold(alias) else schema, name
        return None if self.table is None or self.table.engine is not None else (alias, *self.table[1:])

    @property
    def telling(self) -> tuple[str, ...]:
        """The columns that tell whose a row is."""
        return tuple(name for name in (self.unit, self.path and self.path.column) if name is not None)

    def covers(self, table: TableName, alias: str) -> bool:
        """Whether this is said of a table, which is in a database that is attached under `alias`.

        A budget counts for every table of an engine that has its name, whatever else was declared.
        """
        if table.engine is not None:
            return table == self.table or (self.kind == PROTECT and fold(self.dataset) == table.budget)
        if not self.anywhere:
            # A budget outlives the session, and so holds by the name that a database without a mark is attached under.
            uses_alias = self.kind == PROTECT and not table.database.startswith(MARKED)
            return self.table in (table, TableName.of(alias, table.schema, table.name) if uses_alias else table)
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
    aliases: Mapping[str, str] = field(default_factory=dict)  # the names of datasets that were merged, with the new one

    @property
    def governed(self) -> bool:
        """Whether anything is protected."""
        return any(declaration.kind == PROTECT for declaration in self.listed)

    @property
    def has_public(self) -> bool:
        """Whether anything is protected, and something is public beside it."""
        return self.governed and any(declaration.kind == PUBLIC_KIND for declaration in self.listed)

    def about(self, table: TableName, alias: str) -> list[Declaration]:
        """Return what is declared about a table."""
        return [declaration for declaration in self.listed if declaration.covers(table, alias)]

    def roots(self, declared: Iterable[Declaration]) -> tuple[str, ...]:
        """Return the budgets that declarations lead to: of a derived table, those of what it was made from."""
        roots: dict[str, None] = {}
        open_ones, seen = list(declared), set[str]()
        while open_ones:
            declaration = open_ones.pop(0)
            if declaration.kind == PROTECT:
                roots[declaration.dataset] = None
            elif declaration.kind == DERIVE and declaration.base is not None and declaration.dataset not in seen:
                seen.add(declaration.dataset)
                base = self.aliases.get(declaration.base, declaration.base)
                open_ones += [parent for parent in self.listed if parent.dataset == base and parent.kind != PUBLIC_KIND]
        return tuple(roots)

    def leaf(self, table: TableName, alias: str) -> Leaf | None:
        """Return what a scan of a table stands for; None where nothing is declared."""
        return self._leaf(self.about(table, alias))

    def _leaf(self, declared: Sequence[Declaration]) -> Leaf | None:
        datasets = self.roots(declared)
        if datasets:
            own = [declaration for declaration in declared if declaration.kind != PUBLIC_KIND]
            owners = {(declaration.unit, declaration.path) for declaration in own}
            unit, path = owners.pop() if len(owners) == 1 else (None, None)
            periods = {self.period(name) for name in datasets}
            # A table that was made from a dated one is not known to keep periods apart.
            dates = {declaration.date for declaration in own}
            return Leaf(
                datasets,
                unit if path is None else path.column,
                None if path is None else path.end,
                {end.column: end for declaration in own for end in self._keys.get(declaration.table, ())},
                # Of several budgets, of which some have periods, a row has none.
                period=periods.pop() if len(periods) == 1 else "",
                date=dates.pop() if len(dates) == 1 else None,
                static=len(own) == 1 and self._is_static(own[0]),
            )
        return PUBLIC if any(declaration.kind == PUBLIC_KIND for declaration in declared) else None

    def _is_static(self, declaration: Declaration) -> bool:
        """Whether a table of a dataset with periods has no date, nor leads to a table that has one."""
        end, _ = self._end([declaration])
        return end is not None and end.stated is not None and end.date is None

    @cached_property
    def _keys(self) -> Mapping[TableName | None, frozenset[Key]]:
        """The columns of each table that paths end at."""
        keys: dict[TableName | None, frozenset[Key]] = {}
        for end in (declaration.path.end for declaration in self.listed if declaration.path is not None):
            keys[end.table] = keys.get(end.table, frozenset()) | {end}
        return keys

    def owner(self, table: TableName, alias: str) -> Owner | None:
        """Return where a table says whose its rows are; None where one row is protected, or nothing is.

        `alias` is what the table's database is attached under, as for `about`.
        """
        end, steps = self._end(
            [declaration for declaration in self.about(table, alias) if declaration.kind != PUBLIC_KIND]
        )
        return None if end is None or end.unit is None else Owner(end.unit, tuple(steps), end.date)

    def _end(self, declared: Sequence[Declaration]) -> tuple[Declaration | None, list[PathStep]]:
        """Return what is declared of the table at the end of a path, and the steps to it."""
        steps: list[PathStep] = []
        while len(declared) == 1:
            [declaration] = declared
            if declaration.path is None:
                return declaration, steps
            steps.append(declaration.path)
            end = declaration.path.parent
            declared = [other for other in self.listed if other.kind == PROTECT and other.table == end]
        return None, steps

    def rows_per_unit(self, tables: Iterable[TableName | None]) -> int | None:
        """Return how many rows a person may have in a source that reads tables: the most that is stated of one."""
        read = set(tables)
        return max(
            (
                declaration.rows
                for declaration in self.listed
                if declaration.rows is not None and declaration.table in read
            ),
            default=None,
        )

    def views(self) -> list[Declaration]:
        """Return the declarations about views."""
        return [declaration for declaration in self.listed if declaration.view is not None]

    def view_leaf(self, view: Declaration) -> Leaf:
        """Return what a scan of a declared view stands for."""
        declared = [declaration for declaration in self.listed if declaration.table == view.table]
        return self._leaf(declared) or PUBLIC

    def named(self, dataset: str) -> Declaration | None:
        """Return the declaration that the ledger keeps under a name."""
        name = self.aliases.get(fold(dataset), fold(dataset))
        return next((declaration for declaration in self.listed if fold(declaration.dataset) == name), None)

    def unit(self, dataset: str) -> str | None:
        """Return the privacy unit that a budget states; of several tables, as the first one calls it that has it."""
        units = (
            declaration.unit
            for declaration in self.listed
            if declaration.kind == PROTECT and declaration.dataset == dataset
        )
        return next((unit for unit in units if unit is not None), None)

    def units(self, dataset: str) -> frozenset[str]:
        """Return what the tables of a budget call the privacy unit, folded."""
        units = (
            declaration.unit
            for declaration in self.listed
            if declaration.kind == PROTECT and declaration.dataset == dataset
        )
        return frozenset(fold(unit) for unit in units if unit is not None)

    def date(self, dataset: str) -> str | None:
        """Return the column by whose periods a budget is kept; of several tables, that of the first one with a date."""
        return next(iter(self.dates(dataset)), None)

    def dates(self, dataset: str) -> list[str]:
        """Return what the tables of a budget call the date by whose periods it is kept."""
        dates = (
            declaration.date
            for declaration in self.listed
            if declaration.kind == PROTECT and declaration.dataset == dataset
        )
        return list(dict.fromkeys(date for date in dates if date is not None))

    def period(self, dataset: str) -> str | None:
        """Return the kind of periods by which a budget is kept; None for a budget without periods."""
        return next(
            (
                declaration.period
                for declaration in self.listed
                if declaration.kind == PROTECT and declaration.dataset == dataset
            ),
            None,
        )

    def is_of_several(self, dataset: str) -> bool:
        """Whether a budget with periods is of several tables, each with a date of its own or with none."""
        mine = (
            declaration for declaration in self.listed if declaration.kind == PROTECT and declaration.dataset == dataset
        )
        return any(declaration.stated is not None for declaration in mine)

    def stated_of(self, tables: Iterable[TableName | None]) -> tuple[tuple[str, str | None], ...]:
        """Return what is stated of the dates of those among several tables that are read."""
        read = set(tables)
        dates = {
            declaration.stated
            for declaration in self.listed
            if declaration.stated is not None and declaration.table in read
        }
        return tuple((name, dict(dates)[name]) for name in sorted(dict(dates)))

    def claims(self, dataset: str) -> str:
        """Return which claims of callers a budget answers."""
        return next(
            declaration.claims
            for declaration in self.listed
            if declaration.kind == PROTECT and declaration.dataset == dataset
        )

    @property
    def protected(self) -> list[str]:
        """The names of all budgets."""
        return list(dict.fromkeys(declaration.dataset for declaration in self.listed if declaration.kind == PROTECT))
