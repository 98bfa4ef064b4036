"""What is declared in one DuckDB instance: in its ledger, and of databases and engines that the ledger cannot know."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import duckdb

from dpsql.contract.names import ATTACHED, MARKED, TableName
from dpsql.contract.parameters import fold
from dpsql.engines.duckdb import mark
from dpsql.engines.duckdb.lineage import paths
from dpsql.engines.duckdb.lineage.catalog_state import CatalogState
from dpsql.engines.duckdb.lineage.declarations import PROTECT, Declaration, Declarations
from dpsql.errors import BudgetError
from dpsql.ledger.rows import tables_of
from dpsql.rendering import identifier

if TYPE_CHECKING:
    from dpsql.contract.placement import Placement
    from dpsql.ledger.ledger import Ledger
    from dpsql.ledger.rows import Facts, RecordedDeclaration


def _precedence(row: RecordedDeclaration) -> tuple[bool, int]:
    """Order the declarations under a name: a budget takes precedence over all others, then the latest counts."""
    return row.kind != PROTECT, -row.sequence


class Standing:
    """The declarations that stand, and the names of the databases.

    Parameters
    ----------
    ledger : Ledger
        Keeps the declarations.
    main : str
        The main database.
    cursor : callable
        Returns a new connection to the instance, or None when all are closed.
    """

    def __init__(self, ledger: Ledger, main: str, cursor: Callable[[], duckdb.DuckDBPyConnection | None]) -> None:
        self._ledger = ledger
        self._main = main
        self.state = CatalogState(cursor)
        self._cursor = self.state.cursor
        # Declarations in databases without a mark, and on engines, whose catalogs have none; what is opened under the
        # same name elsewhere must not inherit them. With them, how often they changed.
        self._mine: set[mark.Mark] = set()  # of databases that the ledger knows
        self._here: dict[TableName, Declaration] = {}
        self._changes = 0
        self._lock = threading.Lock()
        self._known: tuple[tuple[str, int], Declarations] | None = None

    @property
    def governed(self) -> bool:
        """Whether the ledger protects anything."""
        return self.declarations().governed

    def declarations(self) -> Declarations:
        """Return every declaration that holds here."""
        if self._ledger.untouched:
            return Declarations(0, ())
        found = self._ledger.declarations()
        key = (found.hash, self._changes)
        if self._known is None or self._known[0] != key:
            listed: list[Declaration] = []
            for dataset, kinds in found.latest.items():
                if dataset in found.aliases:
                    continue
                policy = self._ledger.policy(dataset) if PROTECT in kinds else None
                unit = None if policy is None else policy.privacy_unit
                claims, dated = ("rows", None) if policy is None else (policy.claims, policy.dated)
                standing: dict[TableName | None, Declaration] = {}
                for row in sorted(kinds.values(), key=_precedence):
                    facts = row.lineage if row.kind == PROTECT else row.facts
                    for each in tables_of(facts):
                        one = Declaration.of(row.kind, dataset, each, unit, claims, dated)
                        standing.setdefault(one.table, one)
                listed += standing.values()
            listed += self._here.values()
            # Neither number falls, so their sum is another one after every declaration.
            self._known = key, Declarations(found.counter + self._changes, tuple(listed), found.aliases)
        return self._known[1]

    def forget_engine(self, engine: str) -> None:
        """Forget what was declared of the tables of an engine, whose name now stands for another one."""
        with self._lock:
            for table in [one for one in self._here if one.engine == engine]:
                del self._here[table]
                self._changes += 1

    def catalog(self) -> paths.Catalog:
        """Return the present names of the databases.

        Raises
        ------
        LedgerError
            L033: an attached database keeps its budgets in another ledger. L054: the ledger has forgotten it.
        """
        cursor, opened = self.state.numbered()
        if cursor is None:
            return paths.Catalog(self._main)
        with cursor:
            rows = cursor.execute(mark.ROWS).fetchall()
            number = next(number for alias, _, number in rows if alias == "temp")
            state = self.state.of(cursor, number, opened)
        found = mark.marks(rows)
        for alias, one in found.items():
            if one not in self._mine:
                mark.refuse_other(alias, one, self._ledger)
                self._mine.add(one)  # entries of a ledger stay
        # The temporary database is each connection's own, so its number here is not that of the caller's.
        own = ((alias, number) for alias, _, number in rows if alias not in ("temp", "system"))
        identities = {fold(alias): f"{ATTACHED}{number}" for alias, number in own}
        marked = {fold(alias): f"{MARKED}{one.database}" for alias, one in found.items()}
        return paths.Catalog(self._main, identities | marked, lru_cache(maxsize=None)(self._primary_key), state)

    def _primary_key(self, path: paths.Path) -> frozenset[str]:
        """Return the column that is a table's primary key by itself; none of a table of the caller's transaction."""
        cursor = self._cursor()
        if cursor is None:
            return frozenset()
        with cursor:
            try:
                found = cursor.execute(
                    f'SELECT column_name, "key" FROM (DESCRIBE {".".join(map(identifier, path))})'
                ).fetchall()
            except duckdb.Error:
                return frozenset()
        return paths.primary_key([(fold(name), key) for name, key in found])

    def refuse_stale(self, placement: Placement | None) -> None:
        """Raise when something was declared since a statement was planned."""
        if self._ledger.untouched:
            return
        found = self.declarations()
        if placement is None or not placement.governed:
            stale = found.governed
        else:
            stale = placement.counter != found.counter
        if stale:
            raise BudgetError(
                "B008", "the owners of the data declared something since the statement was prepared. Prepare it again."
            )

    def budget_named(self, dataset: str) -> str | None:
        """Return the budget that a caller names; None for none."""
        return paths.budget_named(dataset, self.declarations(), self.catalog())

    def public_path(self, table: str) -> str:
        """Return the full path of a table that was declared public; see `paths.public_path`."""
        return paths.public_path(table, self.declarations(), self.catalog())

    def about(self, path: paths.Path, declarations: Declarations | None = None) -> list[Declaration]:
        """Return what is declared about a table."""
        declarations = self.declarations() if declarations is None else declarations
        return declarations.about(self.catalog().table(path), path[0])

    def mark(self, path: paths.Path) -> None:
        """Mark a table's database with the ledger; a database in memory has none, it ends with the process."""
        cursor = None if self._ledger.in_memory or not path[0] else self._cursor()
        if cursor is None:
            return
        with cursor:
            found = cursor.execute(
                "SELECT path FROM system.main.duckdb_databases() WHERE database_name = ?", [path[0]]
            ).fetchone()
            if found is not None and found[0] is not None:
                marked = mark.write_mark(cursor, path[0], self._ledger.id)
                if marked is not None:  # the declaration follows
                    self._mine.add(mark.Mark.of(self._ledger.id, marked))

    def with_namesakes(self, kind: str, name: str, facts: Facts) -> Facts:
        """Return the facts recorded under a name: of its table, and of tables of that name in other databases."""
        standing = self._ledger.declarations().latest.get(name, {}).get(kind)
        before = None if standing is None else standing.lineage if kind == PROTECT else standing.facts
        if not before or not before["table"] or not facts["table"]:
            return facts
        first = before.copy()
        first.pop("others", None)
        kept = {tuple(one["table"] or ()): one for one in (first, *before.get("others", ()))}
        kept[tuple(facts["table"])] = facts
        head, *others = kept.values()
        return {**head, "others": others} if others else head

    def keep(self, kind: str, path: paths.Path, facts: Facts) -> None:
        """Record a declaration of a table that was checked: in the ledger, or of a database without a mark, here."""
        name, own = self.catalog().display(path), self.catalog().table(path)
        if path[0] and (own.database.startswith(MARKED) or self._ledger.in_memory):
            self._ledger.declare(kind, name, self.with_namesakes(kind, name, facts), f"dp_{kind}")
            return
        stated = Declaration.of(kind, name, facts)
        with self._lock:
            if self._here.get(own) != stated:
                self._here[own] = stated
                self._changes += 1
