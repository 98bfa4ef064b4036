"""The owners' declarations about tables: protected, public, or derived from a protected table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dpsql.ledger.rows import Facts

from dpsql.contract.names import MARKED, TableName, parts_of
from dpsql.contract.parameters import fold
from dpsql.contract.periods import Dated
from dpsql.dataclass import dataclass
from dpsql.engines.duckdb.lineage.rows import PUBLIC, Key, Leaf
from dpsql.errors import ParameterError

PROTECT, PUBLIC_KIND, DERIVE = "protect", "public", "derive"
# The prefix of a digest of a view's texts, for a view whose plan DuckDB cannot serialize.
BY_TEXT = "text:"


class PathStep(NamedTuple):
    """One step of a path: a row has the owner of the parent's row that it points to."""

    column: str
    parent: TableName
    key: str  # the parent's column
    is_text: bool  # whether both columns are text, which compares as bytes

    @classmethod
    def of(cls, facts: Mapping[str, object]) -> PathStep:
        """Read a step from the ledger's facts."""
        parent = tuple(map(str, facts["parent"])) if isinstance(facts["parent"], (list, tuple)) else ()
        return cls(str(facts["column"]), TableName(*parent), str(facts["key"]), facts["text"] is True)

    @property
    def end(self) -> Key:
        """The key that the column points to."""
        return Key(self.parent, fold(self.key))


class Owner(NamedTuple):
    """The columns that identify the owner of a table's rows."""

    unit: str  # the column of the privacy unit: in the table itself or, after steps, in the last parent
    steps: tuple[PathStep, ...] = ()
    date: str | None = None  # the column of the date, in the table of the unit


@dataclass(frozen=True)
class Declaration:
    """One declaration in force."""

    kind: str  # 'protect', 'public' or 'derive'
    dataset: str  # the ledger's name: the name of the budget, or the table's shortest spelling
    # The table or view. None for a budget of rows in no catalog, and for a budget from before ledgers stored tables,
    # which covers every table of its name, `anywhere`.
    table: TableName | None = None
    base: str | None = None  # of a derived table: its base
    unit: str | None = None  # the column of the privacy unit
    path: PathStep | None = None  # of a table without that column: the first step to a table with it
    rows: int | None = None  # of one of several tables: the row limit per person
    # Of a view: the digest of its plan at the declaration or, after `BY_TEXT`, of its texts if DuckDB could not
    # serialize the plan; '' in ledgers that did not store digests.
    view: str | None = None
    columns: tuple[str, ...] = ()  # the names of the table's columns at the declaration
    anywhere: bool = False
    claims: str = "rows"  # of a budget: the callers' claims that it answers, see `Budget`
    period: str | None = None  # of a budget: the kind of its periods
    date: str | None = None  # the column of the date; None without a date, or if the parent has it
    # Of a public table: its columns with their types at the declaration, empty in ledgers that did not store them; and
    # the protected and derived tables of its database that were missing then.
    shape: tuple[str, ...] = ()
    without: tuple[TableName, ...] = ()
    # Of a view over files: its columns with their types at the declaration; empty in ledgers that did not store them.
    bound: tuple[str, ...] = ()
    forced: bool = False  # whether its owner declared it although a protected table had its columns
    # Of one of several tables whose budget has periods: its name in the budget, and its declared date.
    table_date: tuple[str, str | None] | None = None
    # The columns with public labels, folded, with digests of their types at the declaration.
    labels: Mapping[str, str] = field(default_factory=dict)

    # Whether the table is one of several that share a budget.
    shares_budget: bool = False

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
        """Read a declaration from the ledger's facts."""
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
            bound=tuple(facts.get("bound", ())),
            forced=facts.get("forced") is True,
            table_date=table_date,
            shares_budget=kind == PROTECT and "name" in facts,
            labels=dict(facts.get("labels", {})),
        )

    @property
    def is_over_files(self) -> bool:
        """Whether it is of a view whose plan DuckDB cannot serialize: one over files or frames."""
        return str(self.view or "").startswith(BY_TEXT)

    def place_in(self, alias: str) -> tuple[str, str, str] | None:
        """Return the table's path in a database attached under `alias`; None for rows of no catalog."""
        if self.anywhere:
            schema, name = (["main"] + [fold(part) for part in _old_parts(self.dataset)])[-2:]
            return alias, "main" if schema == fold(alias) else schema, name
        return None if self.table is None or self.table.engine is not None else (alias, *self.table[1:])

    @property
    def telling(self) -> tuple[str, ...]:
        """The columns that identify the owner of a row."""
        return tuple(name for name in (self.unit, self.path and self.path.column) if name is not None)

    def covers(self, table: TableName, alias: str) -> bool:
        """Whether this declaration covers a table in a database that is attached under `alias`.

        A budget covers every table of an engine that has its name, whatever other declarations there are.
        """
        if table.engine is not None:
            return table == self.table or (self.kind == PROTECT and fold(self.dataset) == table.budget)
        if not self.anywhere:
            # A budget outlives the session, and so identifies a database without a database ID by its alias.
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

    The counter counts the ledger's declarations, and the changes to the session's own declarations: a different counter
    means a new declaration.
    """

    counter: int
    listed: tuple[Declaration, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)  # the names of merged datasets, with the new name

    @property
    def governed(self) -> bool:
        """Whether anything is protected."""
        return any(declaration.kind == PROTECT for declaration in self.listed)

    @property
    def has_public(self) -> bool:
        """Whether a table is protected, and another table is public."""
        return self.governed and any(declaration.kind == PUBLIC_KIND for declaration in self.listed)

    def about(self, table: TableName, alias: str) -> tuple[Declaration, ...]:
        """Return the declarations about a table."""
        return self._about(table, alias)

    @cached_property
    def _about(self) -> Callable[[TableName, str], tuple[Declaration, ...]]:
        return lru_cache(1 << 10)(
            lambda table, alias: tuple(declaration for declaration in self.listed if declaration.covers(table, alias))
        )

    def roots(self, declared: Iterable[Declaration]) -> tuple[str, ...]:
        """Return the budgets that declarations lead to; a derived table leads to the budgets of its base."""
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
        """Return the leaf for a scan of a table; None without a declaration."""
        return self._leaf(self.about(table, alias))

    def _leaf(self, declared: Sequence[Declaration]) -> Leaf | None:
        datasets = self.roots(declared)
        if datasets:
            own = [declaration for declaration in declared if declaration.kind != PUBLIC_KIND]
            owners = {(declaration.unit, declaration.path) for declaration in own}
            unit, path = owners.pop() if len(owners) == 1 else (None, None)
            periods = {self.period(name) for name in datasets}
            # A table that is derived from a dated table may mix periods.
            dates = {declaration.date for declaration in own}
            return Leaf(
                datasets,
                unit if path is None else path.column,
                None if path is None else path.end,
                {end.column: end for declaration in own for end in self._keys.get(declaration.table, ())},
                # A row of several budgets, some with periods, has no period.
                period=periods.pop() if len(periods) == 1 else "",
                date=dates.pop() if len(dates) == 1 else None,
                static=len(own) == 1 and self._is_static(own[0]),
            )
        return PUBLIC if any(declaration.kind == PUBLIC_KIND for declaration in declared) else None

    def _is_static(self, declaration: Declaration) -> bool:
        """Whether a table of a dataset with periods has no date, nor a path to a table with a date."""
        end, _ = self._end([declaration])
        return end is not None and end.table_date is not None and end.date is None

    @cached_property
    def _keys(self) -> Mapping[TableName | None, frozenset[Key]]:
        """The columns of each table at which paths end."""
        keys: dict[TableName | None, frozenset[Key]] = {}
        for end in (declaration.path.end for declaration in self.listed if declaration.path is not None):
            keys[end.table] = keys.get(end.table, frozenset()) | {end}
        return keys

    def owner(self, table: TableName, alias: str) -> Owner | None:
        """Return the columns that identify the owner of a table's rows; None for row level protection, or for none.

        `alias` is the alias of the table's database, as for `about`.
        """
        end, steps = self._end(
            [declaration for declaration in self.about(table, alias) if declaration.kind != PUBLIC_KIND]
        )
        return None if end is None or end.unit is None else Owner(end.unit, tuple(steps), end.date)

    def _end(self, declared: Sequence[Declaration]) -> tuple[Declaration | None, list[PathStep]]:
        """Return the declaration of the table at the end of a path, and the steps to it."""
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
        """Return the row limit per person of a source: the largest limit among its tables."""
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
        """Return the leaf for a scan of a declared view."""
        declared = [declaration for declaration in self.listed if declaration.table == view.table]
        return self._leaf(declared) or PUBLIC

    def declaration_of(self, dataset: str) -> Declaration | None:
        """Return the declaration that the ledger stores under a name."""
        name = self.aliases.get(fold(dataset), fold(dataset))
        return next((declaration for declaration in self.listed if fold(declaration.dataset) == name), None)

    def unit(self, dataset: str) -> str | None:
        """Return the privacy unit of a budget; for several tables, its name in the first table that has one."""
        units = (
            declaration.unit
            for declaration in self.listed
            if declaration.kind == PROTECT and declaration.dataset == dataset
        )
        return next((unit for unit in units if unit is not None), None)

    def units(self, dataset: str) -> frozenset[str]:
        """Return the names of the privacy unit in the tables of a budget, folded."""
        units = (
            declaration.unit
            for declaration in self.listed
            if declaration.kind == PROTECT and declaration.dataset == dataset
        )
        return frozenset(fold(unit) for unit in units if unit is not None)

    def date(self, dataset: str) -> str | None:
        """Return the date column of a budget with periods; for several tables, the first date column."""
        return next(iter(self.dates(dataset)), None)

    def dates(self, dataset: str) -> list[str]:
        """Return the date columns in the tables of a budget with periods."""
        dates = (
            declaration.date
            for declaration in self.listed
            if declaration.kind == PROTECT and declaration.dataset == dataset
        )
        return list(dict.fromkeys(date for date in dates if date is not None))

    def period(self, dataset: str) -> str | None:
        """Return the kind of a budget's periods; None for a budget without periods."""
        return next(
            (
                declaration.period
                for declaration in self.listed
                if declaration.kind == PROTECT and declaration.dataset == dataset
            ),
            None,
        )

    def is_of_several(self, dataset: str) -> bool:
        """Whether a budget with periods has several tables, each with its own date or with none."""
        mine = (
            declaration for declaration in self.listed if declaration.kind == PROTECT and declaration.dataset == dataset
        )
        return any(declaration.table_date is not None for declaration in mine)

    def dates_of_tables(self, tables: Iterable[TableName | None]) -> tuple[tuple[str, str | None], ...]:
        """Return the names and dates of the tables that a source reads, among several with one budget."""
        read = set(tables)
        dates = {
            declaration.table_date
            for declaration in self.listed
            if declaration.table_date is not None and declaration.table in read
        }
        return tuple((name, dict(dates)[name]) for name in sorted(dict(dates)))

    def claims(self, dataset: str) -> str:
        """Return the kind of callers' claims that a budget answers."""
        return next(
            declaration.claims
            for declaration in self.listed
            if declaration.kind == PROTECT and declaration.dataset == dataset
        )

    @property
    def protected(self) -> list[str]:
        """The names of all budgets."""
        return list(dict.fromkeys(declaration.dataset for declaration in self.listed if declaration.kind == PROTECT))
