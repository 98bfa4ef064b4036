"""Find the catalog table that a source's name stands for, and whether a public name still stands for its table.

**Public names.** Only the table that its owner declared is read free. A name can move to another table: ``ALTER TABLE
patients RENAME TO lookup``. So dpsql knows a public table by its name, its columns and their types. Within one DuckDB
instance dpsql also knows the number of the table (``table_oid``). DuckDB gives a number when a table is made, and keeps
it when the table is altered or renamed. DuckDB never gives a number twice. When a file is opened again, its tables have
new numbers.

If the number of a public table is not known, the table is read free only if every protected or derived table of its
database is where it was declared. If one is missing or was renamed, the public name may stand for that table. Then
the owner declares the public table again. That declaration lists the tables that are missing, so later calls accept
their absence.

Copies are not traced: who copies rows of people into a public table has declared that they are public.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from dpsql.contract.expression.kinds import type_of, without_labels
from dpsql.contract.names import (
    ATTACHED,
    FRAME_PREFIX,
    MARKED,
    TableName,
    display,
    is_file,
    parts_of,
    path_of,
    source_parts,
    source_sql,
)
from dpsql.contract.parameters import fold, is_shown, show
from dpsql.dataclass import dataclass
from dpsql.engines.duckdb.lineage import bound
from dpsql.engines.duckdb.lineage.declarations import PROTECT, PUBLIC_KIND, Declaration, Declarations
from dpsql.engines.duckdb.lineage.refusals import alike, other_columns, other_table
from dpsql.errors import ParameterError
from dpsql.rendering import identifier, text

FROM = "FROM "
# Database, schema and name; the database is empty for a table of an engine, see `TableName.on_engine`.
Path = tuple[str, str, str]


def spellings(source: str, search_path: str, database: str, views: Sequence[Path]) -> list[str]:
    """Return the queries whose plans `place` needs: the source as written, its candidate paths, and declared views.

    `search_path` and `database` are DuckDB's settings of these names in the caller's connection.
    """
    out = [FROM + source_sql(source)]
    if not is_nameless(source):
        parts = [identifier(part) for part in source_parts(source)]
        here = identifier(database)
        if len(parts) == 1:
            schemas = [[identifier(part) for part in parts_of(entry)] for entry in path_of(search_path) or ["main"]]
            prefixes = [["temp", "main"], *(schema if len(schema) == 2 else [here, *schema] for schema in schemas)]
        else:
            prefixes = [[here, parts[0]], [parts[0], "main"]] if len(parts) == 2 else [parts[:2]]
        pinned = [FROM + ".".join([*prefix, parts[-1]]) for prefix in prefixes]
        out += [*pinned, *(map(_listed, pinned) if len(pinned) > 1 else ())]
    return out + [declared_query(view) for view in views]


def _listed(query: str) -> str:
    """Return the query that DuckDB binds only if the catalog has the table of another query.

    Unlike FROM, it never finds a Python variable.
    """
    return f"/* listed */ FROM system.main.pragma_table_info({text(query.removeprefix(FROM))})"


def is_nameless(source: str) -> bool:
    """Whether a source is a file, or a frame registered under a name that nothing else can have."""
    return is_file(source) or source.startswith(FRAME_PREFIX)


def declared_query(path: Path) -> str:
    """Return the query whose plan shows whether a declared view is unchanged."""
    return "/* declared */ FROM " + ".".join(map(identifier, path))


def primary_key(described: Sequence[tuple[str, object]]) -> frozenset[str]:
    """Return the single column of a primary key, from names and keys of DESCRIBE; empty for several columns.

    DESCRIBE marks a column as UNIQUE even if it is unique only together with others.
    """
    columns = [name for name, key in described if key == "PRI"]
    return frozenset(columns if len(columns) == 1 else ())


def unique_keys(constraints: Sequence[tuple[str, Sequence[str]]]) -> list[frozenset[str]]:
    """Return the keys of a table, folded, from kinds and columns of its constraints; no key column may be NULL."""
    filled = {fold(name) for kind, names in constraints if kind in ("NOT NULL", "PRIMARY KEY") for name in names}
    keys = [frozenset(map(fold, names)) for kind, names in constraints if kind in ("PRIMARY KEY", "UNIQUE")]
    return [key for key in keys if key and key <= filled]


def candidate_paths(queries: Sequence[str]) -> list[Path]:
    """Return the candidate paths of a source, from the queries of `spellings`."""
    candidates = (parts_of(query.removeprefix(FROM)) for query in queries[1:] if query.startswith(FROM))
    return [(parts[0], parts[1], parts[2]) for parts in candidates if len(parts) == 3]


def digest(text: str) -> str:
    """Return the sha256 of a text, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def view_form(plan: str) -> str | None:
    """Return the normal form of a view from the plan of its scan; None if DuckDB cannot serialize it."""
    node = read_plan(plan)
    below = [] if node is None or bound.kind(node) != "PROJECTION" else bound.children(node)
    return bound.normal_form(below[0]) if len(below) == 1 else None


def read_plan(plan: str) -> bound.Node | None:
    """Return a plan's root; None for a plan that is missing or cannot be read."""
    try:
        return bound.read(plan)
    except (bound.MissingError, bound.UnreadableError):
        return None


def is_missing(plan: str) -> bool:
    """Whether a plan says that the catalog has no such table."""
    try:
        bound.read(plan)
    except bound.MissingError:
        return True
    except bound.UnreadableError:
        pass
    return False


# What DuckDB says of a table in a schema or a database that is not there.
_NO_PLACE = re.compile(r'(?:Table with name ".*" does not exist because schema|Catalog ".*" does not exist!$)')


def has_no_place(plan: str) -> bool:
    """Whether a plan says that the catalog has no such schema or database."""
    try:
        document = json.loads(plan)
    except ValueError:
        return False
    is_error = isinstance(document, dict) and document.get("error_type") in ("catalog", "binder")
    return is_error and _NO_PLACE.match(str(document.get("error_message"))) is not None


def pinned_path(source: str, seen: Sequence[tuple[str, str]]) -> Path | None:
    """Return the path of the table that a source stands for; None for a file, a frame, or an unclear name.

    A path names its table regardless of the caller's WITH queries. It is the first candidate whose plan equals the plan
    of the source as written.
    """
    if is_nameless(source):
        return None
    text = seen[0][1]
    candidates = [(query, plan) for query, plan in seen[1:] if query.startswith(FROM)]
    node = read_plan(text)
    if node is not None:
        same = [query for query, plan in candidates if plan == text]
    else:
        # Plans that DuckDB cannot serialize cannot be compared. A name under temp may be a Python variable, which
        # DuckDB finds in every schema, but only where the catalog has no such name: then a plain name stands for the
        # first candidate that the catalog has.
        same = [query for query, plan in candidates if not is_missing(plan) and read_plan(plan) is None]
        count, plans = len(source_parts(source)), dict(seen)
        listed = [query for query, _ in candidates if read_plan(plans.get(_listed(query), "")) is not None]
        if count == 1 and not is_missing(candidates[0][1]):
            same = [query for query in same if query in listed[:1] and query != candidates[0][0]]
        elif count == 2 and len(same) > 1:  # of a missing schema DuckDB says otherwise than of a missing table
            same = [query for query in same if query in listed[:1]] or same
    if not same:
        return None
    database, schema, name = parts_of(same[0].removeprefix(FROM))
    return database, schema, name


def default_path(seen: Sequence[tuple[str, str]]) -> Path | None:
    """Return the path at which DuckDB would create a missing table of that name."""
    for query, _ in seen[1:]:
        parts = parts_of(query.removeprefix(FROM))
        if query.startswith(FROM) and parts[0] != "temp" and len(parts) == 3:
            return parts[0], parts[1], parts[2]
    return None


@dataclass(frozen=True)
class Catalog:
    """The names of databases in a session."""

    main: str  # the main database; displayed tables omit its name
    identities: Mapping[str, str] = field(default_factory=dict)  # of each database, by its folded name in the session
    # Returns the folded columns that are by themselves the primary key of a table.
    single: Callable[[Path], Collection[str]] = field(default=lambda path: (), compare=False)
    # Returns the keys of a table: folded columns that are NOT NULL and together UNIQUE or PRIMARY KEY.
    unique: Callable[[Path], Collection[frozenset[str]]] = field(default=lambda path: (), compare=False)
    state: int | None = field(default=None, compare=False)  # see `CatalogState`

    def knowing(self, keys: Mapping[Path, Collection[str]]) -> Catalog:
        """Return the catalog with the primary keys of some tables."""
        return replace(self, single=lambda path: keys[path] if path in keys else self.single(path))

    def table(self, path: Path) -> TableName:
        """Return the identity of a table."""
        if not path[0]:
            return TableName(*path)
        alias = fold(path[0])
        return TableName.of(self.identities.get(alias, alias), path[1], path[2])

    def display(self, path: Path) -> str:
        """Return the shortest spelling of a table; for an engine's table, the name of its budget."""
        if not path[0]:
            return TableName(*path).budget
        return fold(display(*path, self.main))

    def path(self, table: TableName) -> Path | None:
        """Return the path of a table in this session; None if its database is not attached."""
        aliases = {identity: alias for alias, identity in self.identities.items()}
        alias = aliases.get(table.database, "" if table.database.startswith((MARKED, ATTACHED)) else table.database)
        return (alias, table.schema, table.name) if alias else None


def declaration_of(name: str, declarations: Declarations, catalog: Catalog) -> Declaration | None:
    """Return the declaration of a name, which is the ledger's name or any spelling of the table."""
    declaration = declarations.declaration_of(name)
    if declaration is not None:
        return declaration
    try:
        parts = [fold(part) for part in parts_of(name)]
    except ParameterError:
        return None
    for candidate in declarations.listed:
        path = None if candidate.table is None else catalog.path(candidate.table)
        if path is None:
            continue
        spellings = [[fold(part) for part in path]]
        if fold(path[0]) == fold(catalog.main):
            spellings.append(spellings[0][1:])
        if fold(path[1]) == "main":  # any spelling may omit it
            spellings += [[*spelling[:-2], spelling[-1]] for spelling in list(spellings)]
        if parts in spellings:
            return candidate
    return None


def budget_of(dataset: str | None, declarations: Declarations, catalog: Catalog) -> str | None:
    """Return the budget that the caller names, or None."""
    declaration = None if dataset is None else declaration_of(dataset, declarations, catalog)
    return declaration.dataset if declaration is not None and declaration.kind == PROTECT else None


def public_path(table: str, declarations: Declarations, catalog: Catalog) -> str:
    """Return the full path of a public table, from any spelling of its name.

    Raises
    ------
    ParameterError
        P071: no table of this name was declared public, or it is a view.
    """
    declaration = declaration_of(table, declarations, catalog)
    path = None
    if (
        declaration is not None
        and declaration.kind == PUBLIC_KIND
        and declaration.view is None
        and declaration.table is not None
    ):
        path = catalog.path(declaration.table)
    # A table with a budget is not public, even if its owner declared it public before.
    if path is None or declarations.roots(declarations.about(catalog.table(path), path[0])):
        name = text(table) if is_shown(table) else "'...'"
        raise ParameterError(
            "P071",
            f"keys: {show(table)} is no table that was declared public. Its owner runs SELECT dp_public({name}); or "
            f"list the keys: keys := [{name}, ...].",
        )
    return pinned(path)


def pinned(own: Path) -> str:
    """Return the canonical spelling of a path."""
    return ".".join(part if re.fullmatch(r"[a-z_][a-z0-9_]*", part) else identifier(part) for part in map(fold, own))


def path_of_pinned(text: str) -> Path:
    """Return the path that `pinned` spells."""
    database, schema, name = parts_of(text)
    return database, schema, name


def pinned_source(source: str, own: Path | None) -> str:
    """Return the canonical spelling of a source that has a path; any other source as the caller wrote it."""
    return source if own is None else pinned(own)


def why_unread(plan: str) -> str:
    """Return DuckDB's reason for not binding a text, which follows from names and types alone."""
    try:
        message = str(json.loads(plan).get("error_message", ""))
    except ValueError:
        message = ""
    first = without_labels(message.splitlines()[0]) if message else "there is no plan"
    return first if first.endswith((".", "!", "?")) else f"{first}."


def lacking_function(why: str) -> str:
    """Return the function that DuckDB lacks, from its reason for not binding a text; else an empty text."""
    match = re.match(r'(?:Scalar|Aggregate|Table)? ?Function with name "?(\w+)"? does not exist', why)
    return "" if match is None else match[1]


# Table numbers by folded path.
Numbers = Mapping[Path, int]
# The query for the numbers, inside or outside of the caller's transaction.
NUMBERS = "SELECT database_name, schema_name, table_name, table_oid FROM system.main.duckdb_tables() WHERE NOT internal"


def numbers_of(rows: Iterable[Sequence[object]]) -> dict[Path, int]:
    """Return the numbers of tables from rows of `NUMBERS`."""
    return {
        (fold(str(database)), fold(str(schema)), fold(str(name))): int(str(number))
        for database, schema, name, number in rows
    }


def folded(numbers: Numbers) -> Numbers:
    """Return the numbers of tables by their folded paths."""
    return {_folded(path): number for path, number in numbers.items()}


def shape_of(scan: bound.Node) -> list[str]:
    """Return the columns of the table that a scan reads, each with its type."""
    names, types = bound.listed(scan, "names"), bound.listed(scan, "returned_types")
    kinds = (type_of(bound.as_node(kind)).sql for kind in types)
    return shape_of_columns(zip(map(str, names), kinds, strict=True))


def shape_of_columns(columns: Iterable[tuple[str, str]]) -> list[str]:
    """Return columns with their types in the form that declarations keep."""
    return [f"{identifier(fold(name))} {kind}" for name, kind in columns]


def shape_of_table(node: bound.Node | None) -> list[str]:
    """Return the columns and types of a table from the plan that reads only the table; else none."""
    below = [] if node is None else bound.children(node)
    is_table = len(below) == 1 and bound.kind(below[0]) == "GET" and bound.table_of(below[0]) is not None
    return shape_of(below[0]) if is_table else []


def refuse_other_columns(node: bound.Node, declarations: Declarations, catalog: Catalog) -> None:
    """Raise if a plan reads a public table that has other columns or types than its owner declared.

    Raises
    ------
    BudgetError
        B020.
    """
    for scan in bound.scans(node):
        path = bound.table_of(scan)
        declared = [] if path is None else declarations.about(catalog.table(path), path[0])
        if path is None or not declared or any(declaration.kind != PUBLIC_KIND for declaration in declared):
            continue
        shapes = [declaration.shape for declaration in declared]
        if all(shapes) and sorted(shape_of(scan)) not in [sorted(shape) for shape in shapes]:
            raise other_columns(catalog.display(path))


class Identities:
    """The numbers of the tables of one DuckDB instance that were declared, or are at their declared names."""

    def __init__(self) -> None:
        self._people: dict[int, TableName] = {}  # tables with a budget, and tables derived from one
        self._public: set[tuple[int, TableName]] = set()
        self._lock = threading.Lock()

    def note(self, numbers: Numbers, declarations: Declarations, catalog: Catalog) -> None:
        """Note the numbers of the protected and derived tables that are at their declared names now."""
        tables = dict(_present(numbers, declarations, catalog))
        with self._lock:
            self._people.update(tables)

    def note_public(self, path: Path, numbers: Numbers, catalog: Catalog) -> None:
        """Note that the owner declares the table at a path to be public, whatever the table was before."""
        number = numbers.get(_folded(path))
        if number is not None:
            with self._lock:
                self._people.pop(number, None)
                self._public.add((number, catalog.table(path)))

    def refuse_other_tables(
        self, read: Iterable[Path], numbers: Numbers, declarations: Declarations, catalog: Catalog
    ) -> None:
        """Raise if a table that is read as public may be a protected or derived table under another name.

        Parameters
        ----------
        read : iterable of Path
            Public tables, and the tables that public views read.
        numbers : mapping
            Numbers of all tables in the transaction that reads the tables.
        declarations : Declarations
        catalog : Catalog

        Raises
        ------
        BudgetError
            B021.
        """
        read = list(read)
        if not read:
            return
        self.note(numbers, declarations, catalog)
        positions = {number: path for path, number in numbers.items()}
        with self._lock:
            people, public = dict(self._people), set(self._public)
        for path in read:
            number, own = numbers.get(_folded(path)), catalog.table(path)
            if number is None:
                continue
            moved = people.get(number)
            if moved is None and (number, own) in public:
                continue
            if moved is None:
                accepted = _accepted(own, path, declarations)
                moved = next(_moved(path, numbers, positions, people, declarations, catalog, accepted), None)
            if moved is not None:
                raise other_table(catalog.display(path), _displayed(moved, catalog))
            same = _alike(own, path, declarations, catalog)
            if same is not None:
                raise alike(catalog.display(path), _displayed(same, catalog))
            with self._lock:
                self._public.add((number, own))


def missing(path: Path, numbers: Numbers, declarations: Declarations, catalog: Catalog) -> list[list[str]]:
    """Return the protected and derived tables of a path's database that are not at their declared names."""
    entries = _declared_in(path, declarations, catalog)
    return [list(_identity(declaration)) for declaration, location in entries if location not in numbers]


def _moved(
    path: Path,
    numbers: Numbers,
    positions: Mapping[int, Path],
    people: Mapping[int, TableName],
    declarations: Declarations,
    catalog: Catalog,
    accepted: Collection[TableName],
) -> Iterator[TableName]:
    """Yield the protected and derived tables of a path's database that are missing or were renamed."""
    for number, own in people.items():
        position = positions.get(number)
        if position is not None and fold(position[0]) == fold(path[0]) and catalog.table(position) != own:
            yield own
    for declaration, location in _declared_in(path, declarations, catalog):
        if location not in numbers and _identity(declaration) not in accepted:
            yield _identity(declaration)


def _declared_in(path: Path, declarations: Declarations, catalog: Catalog) -> Iterator[tuple[Declaration, Path]]:
    """Yield each declaration of a protected or derived table in a path's database, with the table's path."""
    for declaration in declarations.listed:
        if declaration.kind == PUBLIC_KIND or declaration.view is not None:
            continue
        location = declaration.place_in(path[0])
        if location is not None and declaration.covers(catalog.table(location), location[0]):
            yield declaration, _folded(location)


def _present(numbers: Numbers, declarations: Declarations, catalog: Catalog) -> Iterator[tuple[int, TableName]]:
    for database in {path[0] for path in numbers}:
        for _, location in _declared_in((database, "", ""), declarations, catalog):
            if location in numbers:
                yield numbers[location], catalog.table(location)


def _alike(own: TableName, path: Path, declarations: Declarations, catalog: Catalog) -> TableName | None:
    """Return a protected or derived table with the columns of a public table that was not declared with force."""
    about = [declaration for declaration in declarations.about(own, path[0]) if declaration.kind == PUBLIC_KIND]
    if not about or any(declaration.forced for declaration in about):
        return None
    columns = [frozenset(map(fold, declaration.columns)) for declaration in about if declaration.columns]
    matches = (
        declaration
        for declaration, _ in _declared_in(path, declarations, catalog)
        if frozenset(map(fold, declaration.columns)) in columns
    )
    return next(map(_identity, matches), None)


def _accepted(own: TableName, path: Path, declarations: Declarations) -> frozenset[TableName]:
    """Return the tables that were missing when a public table was declared, or any view that may read the table."""
    about = [declaration for declaration in declarations.about(own, path[0]) if declaration.kind == PUBLIC_KIND]
    views = [view for view in declarations.views() if view.kind == PUBLIC_KIND]
    absences = [frozenset(declaration.without) for declaration in about or views]
    return (
        frozenset[TableName]().union(*absences)
        if about
        else frozenset.intersection(*absences)
        if absences
        else frozenset()
    )


def _identity(declaration: Declaration) -> TableName:
    return TableName("", "", fold(declaration.dataset)) if declaration.table is None else declaration.table


def _displayed(table: TableName, catalog: Catalog) -> str:
    path = catalog.path(table) if table.database else None
    return table.name if path is None else catalog.display(path)


def _folded(path: Path) -> Path:
    return fold(path[0]), fold(path[1]), fold(path[2])
