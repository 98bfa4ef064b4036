"""The declarations in one DuckDB instance: from its ledger, and of databases and engines that the ledger cannot know.

The module also tells whether the catalog of an instance is still the judged catalog, as DuckDB takes as long to list
all macros and functions as for the rest of a small call. DuckDB numbers every object of an instance from one count:
each object that is created, replaced, altered or dropped in any of its databases takes numbers, and so does each new
connection, for its temporary database. So a new connection's number, less the numbers of the connections that dpsql
itself opens, stays the same only as long as nobody changes the catalog: it is the *state* of the catalog. Rows do not
change the state.

Equal states mean equal catalogs with two exceptions; where either may hold, dpsql remembers nothing. Another connection
may commit an earlier change later, and a statement such as CREATE TABLE AS changes the catalog between its plan and its
first row. So a state counts only if all connections and statements are dpsql's own (`sealed`): none are yet, as the
gateway opens connections that are not counted here. And a transaction may be rolled back: so a state counts only after
two transactions saw it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import duckdb

from dpsql.contract.names import ATTACHED, MARKED, TableName
from dpsql.contract.parameters import fold
from dpsql.engines.duckdb import mark
from dpsql.engines.duckdb.lineage import bound, paths
from dpsql.engines.duckdb.lineage.declarations import PROTECT, Declaration, Declarations
from dpsql.engines.duckdb.lineage.identities import (
    NUMBERS,
    Identities,
    Numbers,
    folded,
    numbers_of,
    refuse_other_columns,
)
from dpsql.engines.duckdb.lineage.labels import EnumLabels
from dpsql.engines.duckdb.lineage.refusals import declaring, second_budget
from dpsql.engines.duckdb.spending_record import SpendingRecord
from dpsql.errors import BudgetError
from dpsql.ledger.rows import path_text, tables_of
from dpsql.rendering import identifier, text

if TYPE_CHECKING:
    import duckdb

    from dpsql.contract.placement import Placement
    from dpsql.ledger.ledger import Ledger
    from dpsql.ledger.rows import Facts, RecordedDeclaration

_MOST_JUDGED = 4096
_NUMBER = "SELECT database_oid FROM system.main.duckdb_databases() WHERE database_name = 'temp'"
_TRIALS = 4


class CatalogState:
    """The judged keys of one instance's catalog, and the state of the catalog.

    Parameters
    ----------
    cursor : callable
        Returns a new connection to the instance, or None when all are closed.
    """

    def __init__(self, cursor: Callable[[], duckdb.DuckDBPyConnection | None]) -> None:
        self._open = cursor
        self._opened = 0
        self._stride: int | None = None  # how many numbers a connection takes
        self._lock = threading.Lock()
        self.sealed = False  # whether only dpsql's own code has a connection
        self._seen: tuple[int, int] | None = None  # the state of the last listing, and its transaction
        self._judged: set[str] = set()
        self._state: int | None = None  # the state of the judged keys

    def cursor(self) -> duckdb.DuckDBPyConnection | None:
        """Return a new connection to the instance, or None when all are closed."""
        return self.numbered()[0]

    def numbered(self) -> tuple[duckdb.DuckDBPyConnection | None, int]:
        """Return a new connection to the instance, and the number of connections so far."""
        with self._lock:
            cursor = self._open()
            self._opened += cursor is not None
            return cursor, self._opened

    def of(self, cursor: duckdb.DuckDBPyConnection, number: int, opened: int) -> int | None:
        """Return the state of the catalog when a cursor was opened; None if it may change in one state.

        Parameters
        ----------
        cursor : duckdb.DuckDBPyConnection
        number : int
            The number of its temporary database.
        opened : int
            The number of cursors so far.
        """
        if not self.sealed:
            return None
        stride = self._measure_stride()
        return number - stride * opened if stride > 0 else None

    def _measure_stride(self) -> int:
        """Return how many numbers a connection takes; too few would only make states differ."""
        if self._stride is None:
            numbers: list[int] = []
            for _ in range(_TRIALS):
                cursor = self.cursor()
                if cursor is None:
                    return 0
                with cursor:
                    numbers.append(cursor.execute(_NUMBER).fetchall()[0][0])
            self._stride = min(later - number for number, later in pairwise(numbers))
        return self._stride

    def is_judged(self, key: str, state: int | None) -> bool:
        """Whether `key` was judged in a state of the catalog."""
        with self._lock:
            return state is not None and state == self._state and key in self._judged

    def judged(self, key: str, state: int | None, transaction: int) -> None:
        """Note that a statement's listing in a `transaction` judged `key`, in a state of the catalog."""
        with self._lock:
            before, self._seen = self._seen, None if state is None else (state, transaction)
            if state is None or before is None or before[0] != state:
                return
            if self._state != state and before[1] == transaction:
                return
            if self._state != state or len(self._judged) >= _MOST_JUDGED:
                self._judged.clear()
            self._state = state
            self._judged.add(key)


def _precedence(row: RecordedDeclaration) -> tuple[bool, int]:
    """Order the declarations under a name: a budget takes precedence over all others, then the latest counts.

    A table that was derived in place of its budget counts as a budget.
    """
    return row.kind != PROTECT and not row.facts.get("in_place"), -row.sequence


class Standing:
    """The present declarations, and the names of the databases.

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
        self._record = SpendingRecord(ledger, self._cursor)
        self._mine: set[mark.Mark] = set()  # of databases that the ledger knows
        # Declarations in databases without a mark, and on engines, whose catalogs have no mark: a database of the same
        # name elsewhere must not inherit them. `_changes` counts their changes.
        self._here: dict[TableName, Declaration] = {}
        self._changes = 0
        self.identities = Identities()
        self._lock = threading.Lock()
        self._snapshot: tuple[tuple[str, int], Declarations] | None = None

    @property
    def governed(self) -> bool:
        """Whether the ledger protects anything."""
        return self.declarations().governed

    def declarations(self) -> Declarations:
        """Return every declaration that holds here."""
        if self._ledger.untouched:
            return Declarations(0, ())
        snapshot = self._ledger.declarations()
        key = (snapshot.hash, self._changes)
        if self._snapshot is None or self._snapshot[0] != key:
            listed: list[Declaration] = []
            for dataset, kinds in snapshot.latest.items():
                if dataset in snapshot.aliases:
                    continue
                policy = self._ledger.policy(dataset) if PROTECT in kinds else None
                unit = None if policy is None else policy.privacy_unit
                claims, dated = ("rows", None) if policy is None else (policy.claims, policy.dated)
                standing: dict[TableName | None, Declaration] = {}
                for row in sorted(kinds.values(), key=_precedence):
                    facts = row.lineage if row.kind == PROTECT else row.facts
                    for table in tables_of(facts):
                        declaration = Declaration.of(row.kind, dataset, table, unit, claims, dated)
                        standing.setdefault(declaration.table, declaration)
                listed += standing.values()
            listed += self._here.values()
            # Neither number falls, so their sum changes with every declaration.
            self._snapshot = key, Declarations(snapshot.counter + self._changes, tuple(listed), snapshot.aliases)
        return self._snapshot[1]

    def forget_engine(self, engine: str) -> None:
        """Forget the declarations of an engine's tables; its name now means another engine."""
        with self._lock:
            for table in [table for table in self._here if table.engine == engine]:
                del self._here[table]
                self._changes += 1

    def catalog(self) -> paths.Catalog:
        """Return the present names of the databases.

        Raises
        ------
        LedgerError
            L033: an attached database keeps its budgets in another ledger. L054: the ledger forgot it.
        """
        cursor, opened = self.state.numbered()
        if cursor is None:
            return paths.Catalog(self._main)
        with cursor:
            rows, marks = self.compare(cursor)
            numbers = numbers_of(cursor.execute(NUMBERS).fetchall()) if self.declarations().has_public else {}
            number = next(number for alias, _, number in rows if alias == "temp")
            state = self.state.of(cursor, number, opened)
        # Each connection has its own temporary database, so its number here is not the caller's.
        own = ((alias, number) for alias, _, number in rows if alias not in ("temp", "system"))
        identities = {fold(alias): f"{ATTACHED}{number}" for alias, number in own}
        marked = {fold(alias): f"{MARKED}{entry.database}" for alias, entry in marks.items()}
        catalog = paths.Catalog(
            self._main, identities | marked, lru_cache(maxsize=None)(self._primary_key), self._unique_keys, state
        )
        self.identities.note(numbers, self.declarations(), catalog)
        return catalog

    def refuse_other_tables(self, read: Iterable[paths.Path], numbers: Numbers) -> None:
        """Raise if a table read as public may be another table, see `Identities.refuse_other_tables`."""
        listed = list(read)
        if listed:
            self.identities.refuse_other_tables(listed, folded(numbers), self.declarations(), self.catalog())

    def compare(
        self, cursor: duckdb.DuckDBPyConnection, *, only: str | None = None
    ) -> tuple[list[tuple[str, str, int]], dict[str, mark.Mark]]:
        """Compare the marked databases with the ledger; return all schemas, and the marks by alias.

        With `only`, compare only the database of this alias. Errors as in `catalog`, and L057: a database remembers
        entries that the ledger lacks.
        """
        rows = cursor.execute(mark.ROWS).fetchall()
        marks = mark.marks(rows)
        mine = {alias: entry for alias, entry in marks.items() if only in (None, alias)}
        for alias, entry in mine.items():
            if entry not in self._mine:
                mark.refuse_other(alias, entry, self._ledger)
                self._mine.add(entry)  # entries of a ledger stay
        self._record.look(cursor, mine, {alias: number for alias, _, number in rows})
        return rows, marks

    def _primary_key(self, path: paths.Path) -> frozenset[str]:
        """Return the column that alone is a table's primary key; none for a table of the caller's transaction."""
        cursor = self._cursor()
        if cursor is None:
            return frozenset()
        with cursor:
            try:
                rows = cursor.execute(
                    f'SELECT column_name, "key" FROM (DESCRIBE {".".join(map(identifier, path))})'
                ).fetchall()
            except duckdb.Error:
                return frozenset()
        return paths.primary_key([(fold(name), key) for name, key in rows])

    def _unique_keys(self, path: paths.Path) -> list[frozenset[str]]:
        """Return the keys of a table; a statement that needs them checks them again when it runs."""
        cursor = self._cursor()
        if cursor is None:
            return []
        with cursor:
            constraints = cursor.execute(
                "SELECT constraint_type, constraint_column_names FROM system.main.duckdb_constraints() WHERE "
                "lower(database_name) = lower(?) AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?)",
                list(path),
            ).fetchall()
        return paths.unique_keys(constraints)

    def refuse_stale(self, placement: Placement | None) -> None:
        """Raise if owners declared something after the statement was planned."""
        if self._ledger.untouched:
            return
        declarations = self.declarations()
        if placement is None or not placement.governed:
            stale = declarations.governed
        else:
            stale = placement.counter != declarations.counter
        if stale:
            raise BudgetError(
                "B008", "the owners of the data declared something since the statement was prepared. Prepare it again."
            )

    def budget_of(self, dataset: str) -> str | None:
        """Return the budget that a caller names; None for none."""
        return paths.budget_of(dataset, self.declarations(), self.catalog())

    def public_path(self, table: str) -> str:
        """Return the full path of a table that was declared public; see `paths.public_path`."""
        catalog = self.catalog()
        path = paths.public_path(table, self.declarations(), catalog)
        cursor = self._cursor() if self.governed else None
        if cursor is not None:
            with cursor:
                query = f"SELECT system.main.json_serialize_plan({text(paths.FROM + path)})::VARCHAR"
                [(plan,)] = cursor.execute(query).fetchall()
            node = paths.read_plan(plan)  # none for a table of the caller's transaction
            if node is not None:
                refuse_other_columns(node, self.declarations(), catalog)
        return path

    def about(self, path: paths.Path, declarations: Declarations | None = None) -> list[Declaration]:
        """Return the declarations of a table."""
        declarations = self.declarations() if declarations is None else declarations
        return declarations.about(self.catalog().table(path), path[0])

    def second_budget(self, stands: Sequence[Declaration], datasets: Collection[str]) -> str:
        """Return a warning if a budget other than `datasets` may be of the same people; else ``''``.

        It compares the names of privacy units, and names and types of columns, which are public.
        """
        catalog = self.catalog()
        for mine in stands:
            for other in self.declarations().listed:
                if other.kind != PROTECT or other.dataset in datasets or mine.table is None or other.table is None:
                    continue
                if mine.unit is not None and other.unit is not None and fold(mine.unit) == fold(other.unit):
                    return second_budget(mine, other, f"privacy unit {other.unit!r}")
                if mine.columns and set(map(fold, mine.columns)) == set(map(fold, other.columns)):
                    types = [
                        self._types(catalog.path(declaration.table))
                        for declaration in (mine, other)
                        if declaration.table is not None
                    ]
                    if types[0] == types[1] or not all(types):
                        return second_budget(mine, other, "columns and types")
        return ""

    def _types(self, path: paths.Path | None) -> dict[str, str]:
        """Return the types of a table's columns, without their parameters; none for a missing table."""
        cursor = None if path is None else self._cursor()
        if cursor is None or path is None:
            return {}
        with cursor:
            try:
                rows = cursor.execute(
                    f"SELECT column_name, column_type FROM (DESCRIBE {'.'.join(map(identifier, path))})"
                ).fetchall()
            except duckdb.Error:
                return {}
        return {fold(name): kind.partition("(")[0] for name, kind in rows}

    def undeclared_labels(self) -> list[tuple[str, list[str], str]]:
        """Return budgets with private labels, the columns with these labels, and the statement to paste."""
        declarations, catalog, cursor = self.declarations(), self.catalog(), self._cursor()
        budgets: dict[str, list[str]] = {}
        if cursor is None:
            return []
        with cursor:
            for declaration in declarations.listed:
                path = (
                    None
                    if declaration.table is None or declaration.table.engine is not None
                    else catalog.path(declaration.table)
                )
                if declaration.kind != PROTECT or declaration.table is None or path is None:
                    continue
                query = f"FROM {'.'.join(map(identifier, path))}"
                [plan] = cursor.execute("SELECT system.main.json_serialize_plan($1)::VARCHAR", [query]).fetchone() or [
                    ""
                ]
                node = paths.read_plan(plan)
                labels = EnumLabels(declarations, catalog, declarations.about(declaration.table, path[0]))
                private = {} if node is None else labels.private(node)
                names = [] if node is None else [name for name in bound.output(node) or () if fold(name) in private]
                listed = budgets.setdefault(declaration.dataset, [])
                listed += [name for name in names if name not in listed]
        return [(name, columns, self._declaring_labels(name)) for name, columns in budgets.items() if columns]

    def _declaring_labels(self, name: str) -> str:
        """Return the statement that declares the labels of a budget's tables."""
        row = self._ledger.declarations().latest.get(name, {}).get(PROTECT)
        entries = () if row is None or row.lineage is None else row.lineage.get("tables") or ()
        listed = ", ".join(f"{identifier(str(entry['name']))}: {text(path_text(entry))}" for entry in entries)
        tables = f"tables := {{{listed}}}, " if listed else ""
        return f"SELECT dp_protect({text(name)}, {tables}enum_labels := 'public', replace := true);"

    def unplaced(self, tables: Iterable[tuple[paths.Path, str]]) -> list[dict[str, str]]:
        """Return the undeclared tables, each with the statements that would declare it.

        Each table comes with its name in a statement; ``''`` for its shortest spelling.
        """
        declarations, catalog = self.declarations(), self.catalog()
        out = []
        for path, spelled in sorted(tables):
            table = catalog.table(path)
            if declarations.about(table, path[0]) or mark.parse(path[1]) is not None:
                continue
            name = catalog.display(path) if table.engine is None else table.path
            spelled, engine = spelled or name, table.engine
            out.append(
                {
                    "table_name": name,
                    "if_public": declaring("dp_public", spelled, engine=engine) + ";",
                    "if_derived": declaring("dp_derive", spelled, "...", more="...", engine=engine) + ";",
                    "if_protected": declaring("dp_protect", spelled, more="epsilon := 3.0", engine=engine) + ";",
                }
            )
        return out

    def mark(self, path: paths.Path) -> None:
        """Mark a table's database with the ledger, but no database in memory, which ends with the process."""
        cursor = None if self._ledger.in_memory or not path[0] else self._cursor()
        if cursor is None:
            return
        with cursor:
            row = cursor.execute(
                "SELECT path FROM system.main.duckdb_databases() WHERE database_name = ?", [path[0]]
            ).fetchone()
            if row is not None and row[0] is not None:
                # The declaration follows, and other connections see the ID before it.
                mark.write_mark(cursor, path[0], self._ledger.id, self._mine.add)

    def with_namesakes(self, kind: str, name: str, facts: Facts) -> Facts:
        """Return the facts recorded under a name: of its table, and of tables of that name in other databases."""
        standing = self._ledger.declarations().latest.get(name, {}).get(kind)
        before = None if standing is None else standing.lineage if kind == PROTECT else standing.facts
        if not before or not before["table"] or not facts["table"]:
            return facts
        first = before.copy()
        first.pop("others", None)
        records = {tuple(record["table"] or ()): record for record in (first, *before.get("others", ()))}
        records[tuple(facts["table"])] = facts
        head, *others = records.values()
        return {**head, "others": others} if others else head

    def keep(self, kind: str, path: paths.Path, facts: Facts) -> None:
        """Record a checked table's declaration: in the ledger or, for a database without a mark, here."""
        name, own = self.catalog().display(path), self.catalog().table(path)
        if path[0] and (own.database.startswith(MARKED) or self._ledger.in_memory):
            self._ledger.declare(kind, name, self.with_namesakes(kind, name, facts), f"dp_{kind}")
            return
        declaration = Declaration.of(kind, name, facts)
        with self._lock:
            if self._here.get(own) != declaration:
                self._here[own] = declaration
                self._changes += 1
