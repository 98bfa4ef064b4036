"""The sources of one DuckDB instance: the declarations about its tables, and the budgets that calls are charged to.

`Judgements` judges a source when its statement runs: the texts behind the source, and the functions that it may call.
It remembers a judgement under the source, its plan and the state of the catalog, which fixes the texts
(`CatalogState`); never under a plan alone, or under anything else that rows may decide.

**The state of the catalog.** `CatalogState` tells whether the catalog of an instance is still the judged catalog, as
DuckDB takes as long to list all macros and functions as for the rest of a small call. DuckDB numbers every object of an
instance from one count: each object that is created, replaced, altered or dropped in any of its databases takes
numbers, and so does each new connection, for its temporary database. So a new connection's number, less the numbers of
the connections that dpsql itself opens, stays the same only as long as nobody changes the catalog: it is the *state* of
the catalog. Rows do not change the state.

Equal states mean equal catalogs with two exceptions; where either may hold, dpsql remembers nothing. Another connection
may commit an earlier change later, and a statement such as CREATE TABLE AS changes the catalog between its plan and its
first row. So a state counts only if all connections and statements are dpsql's own (`sealed`): none are yet, as the
gateway opens connections that are not counted here. And a transaction may be rolled back: so a state counts only after
two transactions saw it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import duckdb

from dpsql.contract.grant_fields import Defaults
from dpsql.contract.names import ATTACHED, MARKED, TableName, did_you_mean, is_file
from dpsql.contract.parameters import fold, show, text
from dpsql.contract.plan import Placement
from dpsql.dataclass import dataclass
from dpsql.engines.duckdb.lineage import bound, paths
from dpsql.engines.duckdb.lineage.aggregates import Around, place_aggregate
from dpsql.engines.duckdb.lineage.declarations import DERIVE, PROTECT, PUBLIC_KIND, Declaration, Declarations
from dpsql.engines.duckdb.lineage.functions import EXTENSIONS, refuse_foreign
from dpsql.engines.duckdb.lineage.labels import EnumLabels, digests, private_labels_text
from dpsql.engines.duckdb.lineage.paths import (
    NUMBERS,
    Identities,
    Numbers,
    folded,
    missing,
    numbers_of,
    refuse_other_columns,
    shape_of_table,
)
from dpsql.engines.duckdb.lineage.placing import (
    has_content,
    is_direct,
    joined_from,
    joined_query,
    of_view_over_files,
    place,
    read_texts,
    refuse_lost_keys,
    refuse_other_readers,
    text_digest,
)
from dpsql.engines.duckdb.lineage.queries import FileView, read_query_texts
from dpsql.engines.duckdb.lineage.refusals import declaring, refuse_alike, second_budget
from dpsql.engines.duckdb.lineage.stability import is_shown
from dpsql.engines.duckdb.lineage.texts import Catalogued
from dpsql.engines.duckdb.spending_record import (
    ROWS,
    Mark,
    SpendingRecord,
    marks_of,
    parse_mark,
    refuse_other,
    write_mark,
)
from dpsql.engines.duckdb.steps.grouped import listed_keys
from dpsql.errors import BudgetError, InternalError, ParameterError, SourceError
from dpsql.ledger.budget import ENDED, Budget
from dpsql.ledger.rows import EVERY_OTHER, path_text, tables_of
from dpsql.rendering import identifier
from dpsql.rendering import text as literal

if TYPE_CHECKING:
    import duckdb

    from dpsql.contract.plan import Placement
    from dpsql.functions.grouped.plan import GroupedPlan
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
        self._mine: set[Mark] = set()  # of databases that the ledger knows
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
    ) -> tuple[list[tuple[str, str, int]], dict[str, Mark]]:
        """Compare the marked databases with the ledger; return all schemas, and the marks by alias.

        With `only`, compare only the database of this alias. Errors as in `catalog`, and L057: a database remembers
        entries that the ledger lacks.
        """
        rows = cursor.execute(ROWS).fetchall()
        marks = marks_of(rows)
        mine = {alias: entry for alias, entry in marks.items() if only in (None, alias)}
        for alias, entry in mine.items():
            if entry not in self._mine:
                refuse_other(alias, entry, self._ledger)
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
                "lower(database_name) = lower(?) AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?) "
                "AND database_name IN (SELECT database_name FROM system.main.duckdb_databases() WHERE type = 'duckdb')",
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
                query = f"SELECT system.main.json_serialize_plan({literal(paths.FROM + path)})::VARCHAR"
                [(plan,)] = cursor.execute(query).fetchall()
            node = paths.read_plan(plan)  # none for a table of the caller's transaction
            if node is not None:
                refuse_other_columns(node, self.declarations(), catalog)
        return path

    def about(self, path: paths.Path, declarations: Declarations | None = None) -> tuple[Declaration, ...]:
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
        columns = () if path is None else self._columns(path)
        return {fold(name): kind.partition("(")[0] for name, kind in columns}

    def _columns(self, path: paths.Path) -> tuple[tuple[str, str], ...]:
        """Return the columns of a table or view with their types; none for one that other connections lack."""
        cursor = self._cursor()
        if cursor is None:
            return ()
        with cursor:
            try:
                rows = cursor.execute(
                    f"SELECT column_name, column_type FROM (DESCRIBE {'.'.join(map(identifier, path))})"
                ).fetchall()
            except duckdb.Error:
                return ()
        return tuple((str(name), str(kind)) for name, kind in rows)

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
        return [
            (name, columns, self._restating(name, "enum_labels := 'public'"))
            for name, columns in budgets.items()
            if columns
        ]

    def _restating(self, name: str, setting: str) -> str:
        """Return the statement that changes one setting of a budget."""
        row = self._ledger.declarations().latest.get(name, {}).get(PROTECT)
        entries = () if row is None or row.lineage is None else row.lineage.get("tables") or ()
        listed = ", ".join(f"{identifier(str(entry['name']))}: {literal(path_text(entry))}" for entry in entries)
        tables = f"tables := {{{listed}}}, " if listed else ""
        return f"SELECT dp_protect({literal(name)}, {tables}{setting}, replace := true);"

    def unplaced(self, tables: Iterable[tuple[paths.Path, str]]) -> list[dict[str, str]]:
        """Return the undeclared tables, each with the statements that would declare it.

        Each table comes with its name in a statement; ``''`` for its shortest spelling.
        """
        declarations, catalog = self.declarations(), self.catalog()
        out = []
        for path, spelled in sorted(tables):
            table = catalog.table(path)
            if declarations.about(table, path[0]) or parse_mark(path[1]) is not None:
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
                write_mark(cursor, path[0], self._ledger.id, self._mine.add)

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


class Judgements(Standing):
    """The declarations in force, and the judgements in the present state of the catalog."""

    def with_judgement(self, placement: Placement, catalog: paths.Catalog) -> Placement:
        """Return a placement that notes whether its texts were judged in the present state of the catalog."""
        state = catalog.state
        return replace(placement, state=state, read=self.state.is_judged(placement.key, state))

    def read_texts(self, placement: Placement, texts: Catalogued, catalog: paths.Catalog) -> str:
        """Raise if the texts behind a source name anything that no plan shows; return their digest.

        If DuckDB shows no plan, the declarations decide, too, so each call reads the texts. This does not need the list
        of macros if the texts call nothing.
        """
        refuse_lost_keys(placement, texts)
        is_known = self._is_known(placement, texts, catalog)
        digest, calls, unseen = read_texts(placement, texts, self.declarations(), catalog, is_judged=is_known)
        self.refuse_other_tables(unseen, texts.numbers)
        if not is_known and (placement.seen or not calls):
            self._note(placement, texts, catalog)
        return digest

    def read_query_texts(
        self, placement: Placement, texts: Sequence[str], catalogued: Catalogued, catalog: paths.Catalog
    ) -> None:
        """Raise if the FROM items of a query name anything that calls a forbidden function."""
        if self._is_known(placement, catalogued, catalog):
            return
        declarations = self.declarations()
        for path in placement.files:
            view = of_view_over_files(path, declarations, catalog)
            _, _, unseen = read_texts(view, catalogued, declarations, catalog, is_judged=False)
            refuse_other_readers(view, catalogued)
            self.refuse_other_tables(unseen, catalogued.numbers)
        read_query_texts([f"FROM {text}" for text in texts], catalogued, enums=placement.enums)
        self._note(placement, catalogued, catalog)

    def read_functions(self, placement: Placement, texts: Catalogued, catalog: paths.Catalog) -> None:
        """Raise if a statement may call a foreign overload of a function; a table needs no other judgement."""
        if texts.functions is not None:
            refuse_foreign(texts.functions, self.extensions)
        if placement.is_plain and not self._is_known(placement, texts, catalog):
            self._note(placement, texts, catalog)

    def extensions(self) -> Collection[str]:
        """Return the files of the loaded extensions; empty if the caller forbids DuckDB to look for them."""
        cursor = self._cursor()
        if cursor is None:
            return ()
        with cursor, suppress(duckdb.Error):
            [(files,)] = cursor.execute(EXTENSIONS).fetchall()
            return tuple(files or ())
        return ()

    def _is_known(self, placement: Placement, texts: Catalogued, catalog: paths.Catalog) -> bool:
        """Whether the catalog was not listed because the source was judged in the catalog's present state.

        Raises
        ------
        InternalError
            I006: the catalog was not listed, and its state has changed.
        """
        if not placement.governed or texts.functions is not None:
            return False
        if not self.state.is_judged(placement.key, catalog.state):
            raise InternalError("I006", "the catalog has changed. Run the statement again, or prepare it again.")
        return True

    def _note(self, placement: Placement, texts: Catalogued, catalog: paths.Catalog) -> None:
        """Note that a source was judged, if the catalog has not changed since before it was listed."""
        same = placement.state == catalog.state
        self.state.judged(placement.key, catalog.state if same else None, texts.transaction)


Seen = Sequence[tuple[str, str]]
# File readers that infer column types from the rows unless the caller gives types.
_SNIFFED = re.compile(
    r"\bread_(csv|csv_auto|json|json_auto|ndjson|ndjson_auto)\b|\.(csv|tsv|json|jsonl|ndjson)\b", re.I
)
_TYPED = re.compile(r"\b(columns|types|dtypes)\b", re.I)
# Folders whose names a reader may turn into a column, of a type that fits all names; and the options that set the type
# or turn this off.
_FOLDERS = re.compile(r"""(\*\*|\*[^'"/]*/|=[^'"/]*/)[^'"]*\.parquet|\bhive_partitioning\b""", re.I)
_FOLDERS_TYPED = re.compile(r"\bhive_types(_autocast)?\b|\bhive_partitioning\W+(false\b|(CAST\()?'f)", re.I)
_UNCHECKED = "; its text is not checked: a file with text that is not UTF-8 ends a call, a table is checked when filled"


def _default_of(name: str, dataset: str, policy: Budget | None, granted: Defaults) -> Fraction | None:
    """Return the default of a budget: of the asker's grant, else of the owner; None without one."""
    own = [amount for of, what, amount in granted if (fold(of), what) == (fold(dataset), name)]
    stated: Fraction | None = None if policy is None else getattr(policy, f"default_{name}")
    return own[0] if own else stated


def columns_of_source(seen: Seen) -> list[str] | None:
    """Return the names of a source's columns; None if its plan does not show them."""
    node = paths.read_plan(seen[0][1])
    names = None if node is None else bound.output(node)
    return names if names and all(names) else None


def _refuse_sniffed(dataset: str, table: Owned) -> None:
    """Raise if a view reads a file whose types follow from its rows."""
    for view in table.texts.views:
        if view.path == table.path and _SNIFFED.search(view.sql) and not _TYPED.search(view.sql):
            raise SourceError(
                "S020",
                f"the types of {show(dataset)} follow from the rows of a CSV or JSON file, so an error would "
                "tell of them. Give the reader columns := {...} in the view, then protect it.",
            )
        if view.path == table.path and _FOLDERS.search(view.sql) and not _FOLDERS_TYPED.search(view.sql):
            raise SourceError(
                "S020",
                f"the types of {show(dataset)} may follow from the names of folders, which rows make. Give the reader "
                "hive_types := {'ward': VARCHAR}, or hive_partitioning := false, in the view, then protect it.",
            )


@dataclass(frozen=True)
class Owned:
    """A table or view that its owner names; the DuckDB fields are empty for a table of an engine."""

    path: paths.Path  # for a table of an engine: `TableName.on_engine`
    spelling: str  # the owner's spelling
    columns: tuple[str, ...] = ()  # their names; empty if they are unclear
    seen: Seen = ()  # the queries and plans that show its inputs
    node: bound.Node | None = None  # its plan; None if DuckDB cannot serialise it
    texts: Catalogued = field(default_factory=Catalogued)
    described: tuple[tuple[str, str], ...] = ()  # the columns of a view over files with their types, if they are known

    @property
    def shown(self) -> bound.Node | None:
        """A plan with its columns: its own or, if DuckDB cannot serialise that, of a twin; None for neither."""
        return self.node or (FileView(self.path, "", self.described).node if self.described else None)

    @property
    def engine(self) -> str | None:
        """The engine that holds the table; None for DuckDB."""
        return None if self.path[0] else self.path[1]

    @property
    def checked(self) -> bool:
        """Whether it reads tables alone: DuckDB and the engines check text when they store it."""
        if self.engine is not None:
            return True
        return self.node is not None and all(bound.table_of(scan) is not None for scan in bound.scans(self.node))

    @property
    def is_traced_view(self) -> bool:
        """Whether it is a view whose plan shows its inputs."""
        return self.node is not None and not is_direct(self.node, self.path)


class Sources(Judgements):
    """The tables that calls read, and the declarations of their owners."""

    def __init__(self, ledger: Ledger, main: str, cursor: Callable[[], duckdb.DuckDBPyConnection | None]) -> None:
        super().__init__(ledger, main, cursor)
        # The declarations and the catalog for the statement of each system thread. A planner asks twice, and both
        # answers must use one catalog, whatever other threads attach or declare in between. The statement notices later
        # changes when it runs. `threading.local` does not work: on a thread that Python did not start, such as a thread
        # of a remote client, it lasts for one call of a function.
        self._bound: dict[int, tuple[Declarations, paths.Catalog]] = {}

    @property
    def governed_at_bind(self) -> bool:
        """Whether the ledger protected anything when `spellings` last looked in this thread."""
        return threading.get_ident() in self._bound

    def spellings(self, source: str, search_path: str, database: str, *, always: bool = True) -> list[str] | None:
        """Return the queries whose plans show the origin of a source's rows, see `paths.spellings`.

        If nothing is protected, return None, unless `always`.
        """
        self._bound.pop(threading.get_ident(), None)
        declarations = self.declarations()
        catalog = self.catalog() if always or declarations.governed else None
        if catalog is not None and declarations.governed:
            self._bound[threading.get_ident()] = declarations, catalog
        if catalog is None:
            return None
        declared = [view.table for view in declarations.views() if view.table is not None]
        views = [path for path in map(catalog.path, declared) if path is not None]
        queries = paths.spellings(source, search_path, database, list(dict.fromkeys(views)))
        joined = (joined_from(path, declarations, catalog) for path in paths.candidate_paths(queries))
        return queries + [joined_query(item) for item in joined if item is not None]

    def place(
        self, source: str, seen: Seen, dataset: str | None, privacy_unit: str | None, *, is_named: bool
    ) -> Placement:
        """Decide which budgets a source is charged to, see `placing.place`."""
        declarations, catalog = self._bound.get(threading.get_ident()) or (self.declarations(), self.catalog())
        placement = place(
            source, seen, declarations, catalog, dataset=dataset, privacy_unit=privacy_unit, is_named=is_named
        )
        if not placement.is_plain:
            plan = paths.digest(seen[0][1]) if placement.seen else ""
            placement = replace(placement, plan=plan, enums='"id":"ENUM"' in seen[0][1])
        return self.with_judgement(placement, catalog)

    def identified(self, source: str, seen: Seen, dataset: str) -> Placement:
        """Identify the table behind a source if nothing is protected: a named release must keep its table."""
        gone = paths.is_missing(seen[0][1])  # a stored release outlives its table
        own = paths.default_path(seen) if gone else paths.pinned_path(source, seen)
        node = paths.read_plan(seen[0][1])
        return Placement(
            self._ledger.declarations().counter,
            (fold(dataset),),
            source,
            paths.pinned_source(source, own),
            seen=node is not None,
            content="" if node is None or not has_content(node, own) else paths.digest(bound.meaning(node)),
            direct=gone or (node is not None and is_direct(node, own)),
            governed=False,
        )

    def place_aggregate(self, around: Around, texts: Catalogued, dataset: str, *, is_named: bool) -> Placement:
        """Decide whether an aggregate's rows belong to a budget, see `aggregates.place_aggregate`."""
        declarations = self.declarations()
        if declarations.governed and texts.functions is not None:
            refuse_foreign(texts.functions, self.extensions)
        placed = place_aggregate(
            around,
            texts,
            declarations,
            self.catalog(),
            dataset=dataset,
            governed=declarations.governed,
            has_release=is_named,
        )
        self.refuse_other_tables(placed.free, texts.numbers)
        return placed

    # Declarations of owners.

    def protect(
        self,
        dataset: str,
        settings: Mapping[str, object],
        table: Owned | None,
        *,
        public: Sequence[Owned] = (),
        replace: bool = False,
        mark: bool = True,
        dated_ahead: bool = True,
    ) -> str:
        """Record a budget and its policy; return the policy in words.

        Without a `table`, `dataset` is a name for rows in no catalog. `settings` are arguments of `Budget.of`; if they
        `replace` another budget, omitted arguments keep their values. The ledger records the `public` tables together
        with the budget, or none. The table's database gets a `mark`, its database ID. If periods are new, rows may be
        `dated_ahead`.
        """
        facts: Facts = {"table": None, "view": None, "columns": []}
        name = dataset
        if isinstance(settings.get("period_of"), Mapping):
            raise ParameterError("P112", "period_of of one table is a column. Give tables, too, or name the column.")
        if table is not None:
            if table.engine is None:
                _refuse_sniffed(dataset, table)
            standing = [declaration for declaration in self.about(table.path) if declaration.kind == PROTECT]
            name = standing[0].dataset if standing else self.catalog().display(table.path)
        self._refuse_several(name, dataset)
        budget = self.restated(name, settings, replace=replace)
        if table is not None:
            unit = budget.privacy_unit
            if unit is not None and table.columns and fold(unit) not in map(fold, table.columns):
                raise SourceError("S002", f"there is no column {show(unit)} in {show(dataset)}. Check its name.")
            date = None if budget.dated is None else budget.dated.column
            if date and table.columns and fold(date) not in map(fold, table.columns):
                raise SourceError("S002", f"there is no column {show(date)} in {show(dataset)}. Check its name.")
            facts = self.facts(table, is_permanent=True, labels=budget.enum_labels == "public")
        for public_table in public:
            self.refuse_public(public_table, stands=[Declaration.of(PROTECT, name, facts, budget.privacy_unit)])
        if table is not None and mark:  # only now: a refused call leaves no database ID that the ledger does not know
            self.mark(table.path)
            facts = self.facts(table, is_permanent=True, labels=budget.enum_labels == "public")
        facts = self.with_namesakes(PROTECT, name, facts)
        alike = self.second_budget([Declaration.of(PROTECT, name, facts, budget.privacy_unit)], {name})
        message = self.keep_budget(name, budget, facts, public, replace=replace, dated_ahead=dated_ahead)
        message += private_labels_text(budget.enum_labels, [] if table is None else [(table.columns, table.node)])
        return f"{message}{'' if table is None or table.checked else _UNCHECKED}{alike}"

    def usual(
        self, name: str, arguments: Mapping[str, object], datasets: Sequence[str], granted: Defaults
    ) -> dict[str, Fraction]:
        """Return the default of ``'epsilon'`` or ``'delta'`` for a call that leaves it out, by its name.

        Of each budget it is the default of the asker's grant or, without one, of the owner; of several budgets, the
        smallest. All follow from declarations, and from no row.

        Parameters
        ----------
        name : str
        arguments : mapping
        datasets : sequence of str
            The charged budgets.
        granted : tuple of (str, str, Fraction)
            As `Asker.defaults`.

        Raises
        ------
        ParameterError
            P001: the call states no epsilon, and nobody else does.
        """
        if arguments.get(name) is not None:
            return {}
        policies = {dataset: self._ledger.policy(dataset) for dataset in datasets}
        amounts = [_default_of(name, dataset, policy, granted) for dataset, policy in policies.items()]
        stated_amounts = [amount for amount in amounts if amount is not None]
        if name == "epsilon" and not stated_amounts and any(policies.values()):
            declaring = self._restating(
                next(dataset for dataset in datasets if policies[dataset]), "default_epsilon := 0.1"
            )
            raise ParameterError(
                "P001",
                "epsilon is missing. Give epsilon := 1.0, or what else the call may spend. Or let the data's owner "
                f"state what calls without it spend: {declaring}",
            )
        return {name: min(stated_amounts)} if stated_amounts else {}

    def recorded(self, name: str) -> tuple[Budget | None, Facts | None]:
        """Return the budget of a name, and the recorded facts about its tables."""
        declaration = self._ledger.declarations().latest.get(name, {}).get(PROTECT)
        return self._ledger.policy(name), None if declaration is None else declaration.lineage

    def has_entries(self, name: str) -> bool:
        """Whether the ledger holds a budget of a name, or a charge to it."""
        return any(row.dataset == name for row in self._ledger.budgets())

    def restated(self, name: str, settings: Mapping[str, object], *, replace: bool) -> Budget:
        """Return an owner's new budget; if it may `replace` the present budget, omitted settings stay.

        Raises
        ------
        BudgetError
            B005: the table has another budget.
        """
        policy = self._ledger.policy(name)
        budget = Budget.of(**settings) if policy is None or not replace else policy.restated(settings)
        if policy is not None and policy != budget and not replace:
            self._ledger.protect(name, budget)  # refuses before any database is marked
        return budget

    def keep_budget(
        self,
        name: str,
        budget: Budget,
        facts: Facts,
        public: Sequence[Owned],
        *,
        replace: bool,
        merge: Mapping[str, bool] | None = None,
        dated_ahead: bool = True,
    ) -> str:
        """Record a checked budget, and declare tables public with it; return both in words.

        `merge` maps each dataset to merge to whether its rows keep their dates.
        """
        datasets = [dataset for dataset, keeps_dates in (merge or {}).items() if keeps_dates]
        self._ledger.protect(
            name,
            budget,
            replace=replace,
            lineage=facts,
            merge=[*(merge or {})],
            keep_dates=datasets,
            dated_ahead=dated_ahead,
        )
        for table in public:
            self._declare_public(table)
        mine = [row for row in self._ledger.budgets() if fold(row.dataset) == fold(name)]
        spent = next(row for row in mine if row.block in (None, EVERY_OTHER))
        balances = [spent.rho_remaining] if budget.rho is not None else [spent.epsilon_remaining]
        nothing = "; nothing remains: what was spent counts" if not any(balances) else ""
        if "others" in facts:
            nothing += "; shared with the tables of this name in other databases of the ledger"
        names = [self.catalog().display(table.path) for table in public]
        listed = f"; public {', '.join(names)}" if names else ""
        return f"{name}: {budget.policy_text}{nothing}{listed}"

    def _refuse_several(self, name: str, dataset: str) -> None:
        """Raise if a name, or a table, belongs to a dataset of several tables."""
        _, recorded = self.recorded(name)
        into = self.declarations().aliases.get(name)
        if into is not None:
            raise ParameterError("P111", f"{show(dataset)} was merged into {show(into)}. Give the budget another name.")
        if recorded is not None and recorded.get("tables"):
            raise ParameterError(
                "P111",
                f"{show(dataset)} belongs to the dataset {show(name)} of several tables. Give them: "
                f"dp_protect({literal(name)}, tables := {{...}}, replace := true, ...).",
            )

    def public(self, table: Owned, *, force: bool = False) -> str:
        """Record that a table is public."""
        self.refuse_public(table, force=force)
        self._declare_public(table, forced=force)
        return self.catalog().display(table.path)

    def listed(self, plan: GroupedPlan) -> list[list[str | None]]:
        """Return the keys that a public table lists, as strings, in their order."""
        cursor = self._cursor()
        if cursor is None:
            return []
        with cursor:
            numbers = numbers_of(cursor.execute(NUMBERS).fetchall())
            self.refuse_other_tables(plan.placement.free if plan.placement is not None else (), numbers)
            row = cursor.execute(listed_keys(plan)).fetchone()
        return row[0] or [] if row is not None else []

    def refuse_public(self, table: Owned, *, force: bool = False, stands: Sequence[Declaration] = ()) -> None:
        """Raise if a table may not be declared public, given the new declarations in `stands`."""
        catalog, declarations = self.catalog(), self.declarations()
        declarations = replace(declarations, listed=(*declarations.listed, *stands))
        name = catalog.display(table.path)
        if any(declaration.kind != PUBLIC_KIND for declaration in self.about(table.path, declarations)):
            raise BudgetError(
                "B009",
                f"{show(name)} has a budget, or is made from a table that has one, so it is not public. Declare a "
                "table of what everybody may know: CREATE TABLE known (...); SELECT dp_public('known').",
            )
        if table.node is not None and table.is_traced_view:
            read = {bound.table_of(scan) for scan in bound.scans(table.node)} - {None}
            protected = [
                path for path in read if path and declarations.roots(declarations.about(catalog.table(path), path[0]))
            ]
            if protected:
                raise BudgetError(
                    "B009",
                    f"{show(name)} reads {show(catalog.display(protected[0]))}, which has a budget: it is not public.",
                )
        if not force:
            refuse_alike(name, table.columns, declarations, engine=table.engine, spelling=table.spelling)

    def derive(
        self,
        table: Owned,
        base: str,
        *,
        privacy_unit: str | None = None,
        own_rows_only: bool = False,
        one_row_each: bool = False,
    ) -> str:
        """Record that a table is derived from a protected table."""
        declarations, catalog = self.declarations(), self.catalog()
        name = catalog.display(table.path)
        parent = paths.declaration_of(base, declarations, catalog)
        if parent is None or parent.kind == PUBLIC_KIND:
            step = did_you_mean(base, declarations.protected, "Run dp_protect first.")
            raise BudgetError("B010", f"{show(base)} has no budget, so nothing is derived from it. {step}")
        own = [declaration for declaration in self.about(table.path) if declaration.kind == PROTECT]
        self._refuse_spent(name, own)
        of_person = parent.unit if parent.path is None else declarations.unit(parent.dataset)
        unit = None
        if of_person is not None:
            unit = of_person if privacy_unit is None else privacy_unit
            if table.columns and fold(unit) not in map(fold, table.columns):
                raise SourceError(
                    "S017",
                    f"{show(name)} has no column {show(unit)}, the privacy unit of {show(parent.dataset)}. Keep it in "
                    "the table, or give privacy_unit := its name there.",
                )
            if not own_rows_only and not (table.is_traced_view and self._keeps(name, table.seen, unit)):
                raise ParameterError(
                    "P061",
                    "own_rows_only := true is missing: say that each row is made of rows of its own privacy unit and "
                    "of public tables alone. A table with means, ranks or encodings over other people is none.",
                )
        elif not one_row_each and not (table.is_traced_view and self._keeps(name, table.seen, None)):
            raise ParameterError(
                "P061",
                f"one_row_each := true is missing: say that one row of {show(parent.dataset)} gives at most one row "
                "here, made of it alone.",
            )
        facts: Facts = {"base": parent.dataset, "unit": unit}
        if own:  # the budget ends first: a call that runs now is charged to neither
            self._ledger.protect(name, ENDED, replace=True, lineage=self.recorded(name)[1])
            self._refuse_spent(name, own)
            facts["in_place"] = True
        self._declare(DERIVE, table, facts)
        return name

    def _refuse_spent(self, name: str, own: Sequence[Declaration]) -> None:
        """Raise if a table's own budget has charges, or cannot end."""
        is_marked = all(
            declaration.table is not None and declaration.table.database.startswith(MARKED) for declaration in own
        )
        ends = {declaration.dataset for declaration in own} <= {name} and (is_marked or self._ledger.in_memory)
        if own and (not ends or self._ledger.states([name])[name].spent.releases):
            raise BudgetError("B009", f"{show(name)} has a budget of its own, so it is not derived.")

    def _keeps(self, name: str, seen: Seen, unit: str | None) -> bool:
        """Whether the plan of a view already proves a declaration."""
        try:
            placement = self.place(name, seen, None, unit, is_named=False)
        except (SourceError, BudgetError):
            return False
        return placement.seen and (unit is None or placement.unit is not None)

    def owned(self, function: str, table: str, seen: Seen, names: Sequence[str], texts: Catalogued) -> Owned:
        """Return a table or view of DuckDB that its owner names in a call of a `function`; `names` are for a hint.

        Raises
        ------
        SourceError
            S018, S019, S021: the name stands for no table or view.
        """
        text("dataset", table, hint="Give the name of a table or view.")
        if is_file(table):
            raise SourceError(
                "S021",
                f"{show(table)} is a file, and many paths lead to one. Make a view over it; name that in {function}.",
            )
        if paths.is_missing(seen[0][1]):
            hint = did_you_mean(table, names, "SHOW ALL TABLES lists what there is.")
            raise SourceError(
                "S019",
                f"there is no table {show(table)}. {hint} For rows that are in no catalog: "
                "dp_protect(..., source := false).",
            )
        own = paths.pinned_path(table, seen)
        if own is None:
            raise SourceError(
                "S018", f"which table {show(table)} stands for cannot be seen. Name its schema: 'main.{table}'."
            )
        node = paths.read_plan(seen[0][1])
        columns = [] if node is None else bound.output(node) or []
        described = self._columns(own) if node is None or not is_shown(node) else ()
        return Owned(own, table, tuple(columns), seen, node, texts, described)

    def facts(self, table: Owned, *, is_permanent: bool = False, labels: bool = False) -> Facts:
        """Return the facts about a table that the ledger records with its declaration.

        A declaration that `is_permanent` outlives the session, and so names a database without a database ID by its
        alias; any other holds for the object that is attached now. `labels` adds digests of public labels.
        """
        view = None
        if table.engine is None:
            form = paths.view_form(table.seen[0][1])
            if table.node is None or not is_shown(table.node):
                view = text_digest(table.path, table.texts)
            elif table.is_traced_view:
                view = "" if form is None else paths.digest(form)
        own = self.catalog().table(table.path)
        if is_permanent and own.database.startswith(ATTACHED):
            own = TableName.of(*table.path)
        facts: Facts = {"table": list(own), "view": view, "columns": list(table.columns)}
        if table.described:
            facts["bound"] = paths.shape_of_columns(table.described)
        return {**facts, "labels": digests(table.columns, table.node)} if labels else facts

    def _declare_public(self, table: Owned, *, forced: bool = False) -> None:
        """Record that a table is public: under its name, with its columns and types, and by its number."""
        catalog, numbers = self.catalog(), folded(table.texts.numbers)
        more: Facts = {}
        if table.engine is None:
            shape, without = shape_of_table(table.node), missing(table.path, numbers, self.declarations(), catalog)
            more = {"shape": shape, "without": without, "forced": forced}
        self._declare(PUBLIC_KIND, table, more)
        if table.engine is None:
            self.identities.note_public(table.path, numbers, self.catalog())

    def _declare(self, kind: str, table: Owned, more: Facts | None = None) -> None:
        """Record a checked declaration; `more` are facts of its own kind."""
        self.mark(table.path)
        self.keep(kind, table.path, {**self.facts(table), **(more or {})})
