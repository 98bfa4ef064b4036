"""Which table a public name stands for: only the table that its owner declared is read free.

A name can move to another table: ``ALTER TABLE patients RENAME TO lookup``. So dpsql knows a public table by its name,
its columns and their types. Within one DuckDB instance dpsql also knows the number of the table (``table_oid``). DuckDB
gives a number when a table is made, and keeps it when the table is altered or renamed. DuckDB never gives a number
twice. When a file is opened again, its tables have new numbers.

If the number of a public table is not known, the table is read free only if every protected or derived table of its
database is where it was declared. If one is missing or was renamed, the public name may stand for that table. Then
the owner declares the public table again. That declaration lists the tables that are missing, so later calls accept
their absence.

Copies are not traced: who copies rows of people into a public table has declared that they are public.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from dpsql.contract.expression.kinds import type_of
from dpsql.contract.names import TableName
from dpsql.contract.parameters import fold
from dpsql.engines.duckdb.lineage import bound, paths
from dpsql.engines.duckdb.lineage.declarations import PUBLIC_KIND, Declaration, Declarations
from dpsql.engines.duckdb.lineage.refusals import alike, other_columns, other_table
from dpsql.rendering import identifier

# Table numbers by folded path.
Numbers = Mapping[paths.Path, int]
# The query for the numbers, inside or outside of the caller's transaction.
NUMBERS = "SELECT database_name, schema_name, table_name, table_oid FROM system.main.duckdb_tables() WHERE NOT internal"


def numbers_of(rows: Iterable[Sequence[object]]) -> dict[paths.Path, int]:
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
    return [f"{identifier(fold(str(name)))} {kind}" for name, kind in zip(names, kinds, strict=True)]


def shape_of_table(node: bound.Node | None) -> list[str]:
    """Return the columns and types of a table from the plan that reads only the table; else none."""
    below = [] if node is None else bound.children(node)
    is_table = len(below) == 1 and bound.kind(below[0]) == "GET" and bound.table_of(below[0]) is not None
    return shape_of(below[0]) if is_table else []


def refuse_other_columns(node: bound.Node, declarations: Declarations, catalog: paths.Catalog) -> None:
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

    def note(self, numbers: Numbers, declarations: Declarations, catalog: paths.Catalog) -> None:
        """Note the numbers of the protected and derived tables that are at their declared names now."""
        tables = dict(_present(numbers, declarations, catalog))
        with self._lock:
            self._people.update(tables)

    def note_public(self, path: paths.Path, numbers: Numbers, catalog: paths.Catalog) -> None:
        """Note that the owner declares the table at a path to be public, whatever the table was before."""
        number = numbers.get(_folded(path))
        if number is not None:
            with self._lock:
                self._people.pop(number, None)
                self._public.add((number, catalog.table(path)))

    def refuse_other_tables(
        self, read: Iterable[paths.Path], numbers: Numbers, declarations: Declarations, catalog: paths.Catalog
    ) -> None:
        """Raise if a table that is read as public may be a protected or derived table under another name.

        Parameters
        ----------
        read : iterable of Path
            Public tables, and the tables that public views read.
        numbers : mapping
            Numbers of all tables in the transaction that reads the tables.
        declarations : Declarations
        catalog : paths.Catalog

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


def missing(path: paths.Path, numbers: Numbers, declarations: Declarations, catalog: paths.Catalog) -> list[list[str]]:
    """Return the protected and derived tables of a path's database that are not at their declared names."""
    entries = _declared_in(path, declarations, catalog)
    return [list(_identity(declaration)) for declaration, location in entries if location not in numbers]


def _moved(
    path: paths.Path,
    numbers: Numbers,
    positions: Mapping[int, paths.Path],
    people: Mapping[int, TableName],
    declarations: Declarations,
    catalog: paths.Catalog,
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


def _declared_in(
    path: paths.Path, declarations: Declarations, catalog: paths.Catalog
) -> Iterator[tuple[Declaration, paths.Path]]:
    """Yield each declaration of a protected or derived table in a path's database, with the table's path."""
    for declaration in declarations.listed:
        if declaration.kind == PUBLIC_KIND or declaration.view is not None:
            continue
        location = declaration.place_in(path[0])
        if location is not None and declaration.covers(catalog.table(location), location[0]):
            yield declaration, _folded(location)


def _present(numbers: Numbers, declarations: Declarations, catalog: paths.Catalog) -> Iterator[tuple[int, TableName]]:
    for database in {path[0] for path in numbers}:
        for _, location in _declared_in((database, "", ""), declarations, catalog):
            if location in numbers:
                yield numbers[location], catalog.table(location)


def _alike(own: TableName, path: paths.Path, declarations: Declarations, catalog: paths.Catalog) -> TableName | None:
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


def _accepted(own: TableName, path: paths.Path, declarations: Declarations) -> frozenset[TableName]:
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


def _displayed(table: TableName, catalog: paths.Catalog) -> str:
    path = catalog.path(table) if table.database else None
    return table.name if path is None else catalog.display(path)


def _folded(path: paths.Path) -> paths.Path:
    return fold(path[0]), fold(path[1]), fold(path[2])
