"""Describe the tables of a plain SQL query, and judge the texts that the splitter writes.

The plans of table names describe the tables to the splitter. dpsql judges the splitter's texts by their bound plans,
as any source, so it refuses a splitter that errs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from dpsql.contract.expression.kinds import Type, type_of
from dpsql.contract.keys import key_text
from dpsql.contract.parameters import fold, show
from dpsql.contract.periods import DATED, Dated
from dpsql.contract.plan import Placement
from dpsql.contract.query.catalogue import CatalogueColumn, CatalogueTable, PathKey
from dpsql.dataclass import dataclass
from dpsql.engines.duckdb.lineage import bound, paths, refusals
from dpsql.engines.duckdb.lineage.closure import Closure
from dpsql.engines.duckdb.lineage.declarations import Declarations
from dpsql.engines.duckdb.lineage.labels import EnumLabels, as_text, output_types
from dpsql.engines.duckdb.lineage.paths import refuse_other_columns
from dpsql.engines.duckdb.lineage.placing import is_direct
from dpsql.engines.duckdb.lineage.refusals import function_refused, undeclared
from dpsql.engines.duckdb.lineage.rows import Key, Leaf
from dpsql.engines.duckdb.lineage.stability import GENERATORS, Reading, loose_of
from dpsql.engines.duckdb.lineage.texts import Catalogued, objects
from dpsql.errors import InternalError, SourceError
from dpsql.parsing import PARSER
from dpsql.rendering import cast, identifier

if TYPE_CHECKING:
    from dpsql.ledger.budget import Budget

Reference = tuple[str, str, str]
Plans = Mapping[str, str]
_NAME, _TYPE, _NULLABLE, _KEY = range(4)  # the columns of DESCRIBE
_PARENT = "/* parent */ "
# Catalog functions, with their columns that depend on rows.
_CATALOG: Mapping[str, frozenset[str]] = {
    "duckdb_tables": frozenset(("estimated_size",)),
    **dict.fromkeys(("duckdb_views", "duckdb_columns", "duckdb_schemas", "duckdb_databases"), frozenset[str]()),
}
# The query of table names; its plan scans more of the catalog than it shows.
SHOW_TABLES = "SELECT * FROM (SHOW TABLES)"


def path_sql(path: paths.Path) -> str:
    """Return a path as SQL."""
    return ".".join(map(identifier, path))


def spelled(reference: Reference) -> str:
    """Return the name of a reference, as a query writes it."""
    return ".".join(identifier(part) for part in reference if part)


def parents_of(queries: Sequence[str], declarations: Declarations, catalog: paths.Catalog) -> list[str]:
    """Return the queries whose plans show the tables along the paths of all named tables."""
    parents: dict[str, None] = {}
    for position in paths.candidate_paths(queries):
        owner = declarations.owner(catalog.table(position), position[0])
        for step in () if owner is None else owner.steps:
            path = catalog.path(step.parent)
            if path is not None:
                parents[f"{_PARENT}FROM {path_sql(path)}"] = None
    return list(parents)


def described(reference: Reference) -> str:
    """Return the query whose plan lists the columns of a table with their constraints."""
    return f"SELECT * FROM (DESCRIBE {spelled(reference)})"


def described_columns(plan: str) -> tuple[tuple[str, str], ...]:
    """Return the columns with their types, as SQL, from the plan of a DESCRIBE; none if it shows none."""
    names, types = _cells(plan, _NAME), _cells(plan, _TYPE)
    return tuple(zip(map(str, names), map(str, types), strict=True))


def required_columns(plan: str) -> frozenset[str]:
    """Return the folded NOT NULL columns from the plan of a `described` query; none if it shows none."""
    return frozenset(name for name, null in _column_cells(plan, _NULLABLE) if null == "NO")


def single_columns(plan: str) -> frozenset[str]:
    """Return the folded column that alone is the primary key, from the plan of a `described` query."""
    return paths.primary_key(_column_cells(plan, _KEY))


def _column_cells(plan: str, column: int) -> list[tuple[str, object]]:
    """Return folded column names, each with its cell in a column of DESCRIBE."""
    names = (fold(str(name)) for name in _cells(plan, _NAME))
    return list(zip(names, _cells(plan, column), strict=True))


def _cells(plan: str, column: int) -> list[object]:
    """Return the cells of a column of DESCRIBE, from its plan."""
    node = paths.read_plan(plan)
    for operator in () if node is None else bound.operators(node):
        values = bound.as_node(operator.get("collection") or {}).get("values")
        if isinstance(values, list) and len(values) > column:
            return [bound.as_node(value).get("value") for value in values[column]]
    return []


@dataclass(frozen=True)
class FileView:
    """A declared view over files, which a query names.

    DuckDB does not serialise the plan of what reads a file. So a query's texts are written twice, and the two forms
    differ in the FROM item of this view alone: one has `item`, and runs. The other has `twin`, an item with the same
    columns and types and no row, and its plan is judged. *Proof sketch*: the plan of `twin` tells which view it stands
    for and in which words (`bound.twin_sql`), and lineage takes it for a scan of the view as its owner declared it. By
    the induction of `stability`, what is shown of the judged text holds for any rows of the view, so for those of
    `item`: the same expressions, with the same types and no collation, over the same columns. When the statement runs,
    its gate makes sure that the view has the words of the twin, and that these read each row for itself
    (`placing.read_texts`, `placing.refuse_other_readers`).
    """

    path: paths.Path
    digest: str
    columns: tuple[tuple[str, str], ...]

    @property
    def item(self) -> str:
        """The FROM item that reads the view. Its columns keep their judged types if the files change meanwhile."""
        listed = ", ".join(f"{cast(identifier(name), kind)} AS {identifier(name)}" for name, kind in self.columns)
        return f"(SELECT {listed} FROM {path_sql(self.path)})"

    @property
    def twin(self) -> str:
        """The FROM item that is judged in place of `item`."""
        return bound.twin_sql(self.path, self.digest, self.columns)

    @cached_property
    def node(self) -> bound.Node | None:
        """The plan that reads all of the twin; None if DuckDB without users' types does not bind it."""
        return paths.read_plan(PARSER.plan(f"SELECT * FROM {self.twin}"))


def file_view(path: paths.Path, plan: str, declarations: Declarations, catalog: paths.Catalog) -> FileView | None:
    """Return a declared view over files, from the plan of its `described` query; None for anything else.

    Raises
    ------
    SourceError
        S068: the files have other columns or types than at the declaration, or cannot be read. S069: rows may have
        made the values of a column's type.
    """
    declared = [entry for entry in declarations.about(catalog.table(path), path[0]) if entry.is_over_files]
    if not declared:
        return None
    columns = described_columns(plan)
    shape = paths.shape_of_columns(columns)
    if not columns or any(entry.bound and list(entry.bound) != shape for entry in declared):
        raise refusals.other_files(catalog.display(path))
    view = FileView(path, "\n".join(sorted({str(entry.view) for entry in declared})), columns)
    if view.node is None or any(any(kind.labels) for kind in output_types(view.node)):
        raise refusals.text_of_files(catalog.display(path), "a column is an ENUM, or has a type that users made")
    return view


def names_and_types(plan: str, *, described: bool, as_text: bool) -> tuple[tuple[str, str], ...] | None:
    """Return names and SQL types of a query's columns, from its plan or, if `described`, that of a DESCRIBE of it."""
    node = paths.read_plan(plan)
    if described:
        nulls = [f"{cast('NULL', kind)} AS {identifier(name)}" for name, kind in described_columns(plan)]
        node = paths.read_plan(PARSER.plan(f"SELECT {', '.join(nulls)}")) if nulls else None
    return None if node is None else types_of(node, as_text=as_text)


def parent_path(query: str) -> paths.Path | None:
    """Return the table of a `parents_of` query."""
    return paths.candidate_paths(["", query.removeprefix(_PARENT)])[0] if query.startswith(_PARENT) else None


@dataclass(frozen=True)
class SeenTable:
    """A table or view that a query names.

    Attributes
    ----------
    table : CatalogueTable
    direct : bool
        Whether it is a table, not a view.
    private : bool
        Whether it reads a column with private labels.
    """

    table: CatalogueTable
    direct: bool
    private: bool = False

    def as_text(self) -> CatalogueTable:
        """Return the table with text for every ENUM; declared labels stay as keys."""
        columns = tuple(
            replace(
                column,
                type=column.type.without_labels,
                values=column.type.values if column.values is None and self._shows(column) else column.values,
            )
            for column in self.table.columns
        )
        texts = tuple(
            (column.name, as_text(column.name, column.type)) for column in self.table.columns if any(column.type.labels)
        )
        return replace(self.table, columns=columns, texts=texts)

    def _shows(self, column: CatalogueColumn) -> bool:
        return not self.private and column.type.kind == "ENUM"


def table_of(
    path: paths.Path,
    node: bound.Node,
    views: Mapping[str, Leaf],
    declarations: Declarations,
    catalog: paths.Catalog,
    policy_of: Callable[[str], Budget | None],
    description: str = "",
    *,
    replayed: bool = False,
) -> SeenTable:
    """Describe a table or view from the plan that reads all of it, and the plan of its `described` query.

    A `replayed` view may use private labels, as in earlier versions.
    """
    reading = Reading(declarations, catalog)
    refuse_other_columns(node, declarations, catalog)
    names = bound.output(node) or []
    types = [_type(expression) for expression in bound.listed(node, "expressions")]
    try:
        rows = reading.walk(node, views)
    except bound.UnreadableError:
        raise SourceError(
            "S014",
            f"what {show(catalog.display(path))} reads cannot be seen. Make a table of it, CREATE TABLE t AS FROM ..., "
            "and declare that.",
        ) from None
    policy = policy_of(rows.scans[0]) if rows.scans else None
    direct = is_direct(node, path)
    labels = EnumLabels(declarations, catalog, declarations.about(catalog.table(path), path[0]))
    private = labels.private(node) if replayed else labels.of_source(catalog.display(path), node, direct=direct)
    required = required_columns(description) if direct and description else frozenset()
    declared = {} if policy is None else dict(policy.bounds or {})
    columns = tuple(_column(name, kind, declared, required) for name, kind in zip(names, types, strict=True))
    dates = [names[column] for column in sorted(rows.date.columns if rows.date is not None else ())]
    table = CatalogueTable(
        path,
        columns,
        public=rows.public and not reading.scanned,
        units=tuple(names[column] for column in sorted(rows.unit)),
        pending=None if rows.pending is None else _key(rows.pending, catalog),
        keys={fold(names[column]): end for column, key in rows.ties if (end := _key(key, catalog)) is not None},
        date=dates[0] if dates else None,
        period=rows.date.period if dates and rows.date is not None else "",
        by_unit=rows.by_unit,
        loose=loose_of(rows, node),
        extremes=bool(rows.scans) and all(_has_quantiles(policy_of(dataset)) for dataset in rows.scans),
    )
    return SeenTable(table, direct, bool(private))


def _has_quantiles(policy: Budget | None) -> bool:
    return policy is not None and policy.extremes == "quantiles"


def grouped_source(
    path: paths.Path, node: bound.Node, terms: Mapping[str, object], placement: Placement
) -> CatalogueTable:
    """Describe a function's source from the plan that reads all of it: rows whose values the owner declared."""
    texts, dated = {fold(name) for name, _ in placement.texts}, terms.get(DATED)
    columns = []
    for name, part in zip(bound.output(node) or [], bound.listed(node, "expressions"), strict=False):
        kind = _type(part)
        columns.append(_column(name, kind.without_labels if fold(name) in texts else kind, terms, frozenset()))
    period = dated.period if isinstance(dated, Dated) and placement.date is not None else ""
    return CatalogueTable(path, tuple(columns), public=False, date=placement.date, period=period)


def _key(key: Key, catalog: paths.Catalog) -> PathKey | None:
    path = catalog.path(key.table)
    return None if path is None else PathKey(path, key.column)


def _type(expression: object) -> Type:
    return type_of(bound.as_node(bound.as_node(expression).get("return_type")))


def types_of(node: bound.Node, *, as_text: bool = False) -> tuple[tuple[str, str], ...]:
    """Return names and SQL types of the columns of ``SELECT *`` from a query; `as_text` makes ENUMs text."""
    kinds = map(_type, bound.listed(node, "expressions"))
    types = ((kind.without_labels if as_text else kind).sql for kind in kinds)
    return tuple(zip(bound.output(node) or (), types, strict=True))


def _column(name: str, kind: Type, bounds: Mapping[str, object], required: frozenset[str]) -> CatalogueColumn:
    keys = bounds.get("keys") or {}
    values = keys.get(fold(name)) if isinstance(keys, Mapping) else None
    return CatalogueColumn(
        name,
        kind,
        None if values is None else tuple(map(key_text, values)),
        _bound_of(bounds.get("lower"), name),
        _bound_of(bounds.get("upper"), name),
        fold(name) in required,
    )


def _bound_of(limit: object, name: str) -> Fraction | None:
    if isinstance(limit, Mapping):
        limit = next((value for key, value in limit.items() if fold(str(key)) == fold(name)), None)
    return Fraction(str(limit)) if isinstance(limit, (int, float, Fraction)) and not isinstance(limit, bool) else None


def refuse_people(
    node: bound.Node | None, source: str, declarations: Declarations, catalog: paths.Catalog, listing: str = ""
) -> tuple[paths.Path, ...]:
    """Return the tables that a plan reads; raise unless it reads only public tables, lists and the catalog.

    `listing` is the plan of `SHOW_TABLES`, which counts as the catalog if it is a part of the plan.

    Raises
    ------
    SourceError
        S014: the plan hides a source, or reads rows of people. S041: it calls a function of dpsql.
    """
    if node is None:
        raise _people(source)
    tables_plan = paths.read_plan(listing) if listing else None
    below = [] if tables_plan is None else bound.children(tables_plan)
    forms = {bound.normal_form(operator) for operator in below}
    listed = [operator for operator in bound.operators(node) if bound.normal_form(operator) in forms] if forms else []
    within = {id(scan) for operator in listed for scan in bound.scans(operator)}
    reading = Reading(declarations, catalog)
    for scan in bound.scans(node):
        table, function = bound.table_of(scan), bound.function_of(scan)
        if table is not None:
            leaf = reading.leaf(table)
            if leaf is None:
                raise undeclared(catalog.display(table), declarations)
            if leaf.datasets:
                raise _people(source)
        elif function not in GENERATORS and id(scan) not in within:
            columns = _CATALOG.get(function)
            if columns is None or columns & set(bound.scanned_columns(scan)):
                raise _people(source)
    for name in bound.functions(node):
        if name.startswith("dpsql_"):
            raise function_refused(source, name)
    refuse_other_columns(node, declarations, catalog)
    return tuple(reading.free)


def _own_with(node: Mapping[str, object]) -> Iterator[object]:
    """Yield the FROM of a SELECT if it is a plain name that its own WITH defines."""
    source, withs = node.get("from_table"), node.get("cte_map")
    defined = withs.get("map") if isinstance(withs, dict) else None
    names = {entry.get("key") for entry in defined if isinstance(entry, dict)} if isinstance(defined, list) else set()
    if not isinstance(source, dict) or source.get("catalog_name") or source.get("schema_name"):
        return
    if node.get("type") == "SELECT_NODE" and source.get("table_name") in names:
        yield source


def refuse_unpinned(tree: str, cores: Collection[str]) -> None:
    """Raise if a WITH query of the caller could capture a table name of a text.

    Every table name has its database and schema. Only two kinds are plain: released tables, which the statement itself
    defines around the text, and names of a SELECT's own WITH, which come before all others.

    Raises
    ------
    InternalError
        I036.
    """
    parts = list(objects(json.loads(tree)))
    own = {id(source) for part in parts for source in _own_with(part)}
    for part in parts:
        if part.get("type") != "BASE_TABLE" or id(part) in own:
            continue
        is_qualified = part.get("catalog_name") and part.get("schema_name")
        if not is_qualified and part.get("table_name") not in cores:
            raise InternalError(
                "I036",
                f"what was written of the query names {show(part.get('table_name'))} without its place. Report it.",
            )


def _people(source: str) -> SourceError:
    return SourceError(
        "S014",
        f"what {source} reads besides private answers is not public. Have the owner of each table declare it: "
        "SELECT dp_public('...').",
    )


def read_query_texts(texts: Collection[str], catalogued: Catalogued, *, enums: bool) -> dict[str, str]:
    """Raise if a text of a query makes a call that no source may; return view texts by path."""
    closure = Closure("the query", catalogued, enums=enums)
    for text in texts:
        closure.query(text)
    return closure.texts


def are_alike(ours: tuple[str, str], theirs: tuple[str, str]) -> bool:
    """Whether two columns have the same type and name; in plans of DuckDB 1.5 a constant may have no name."""
    return ours[1] == theirs[1] and (ours[0] == theirs[0] or "" in (ours[0], theirs[0]))


def as_catalogued(path: paths.Path, node: bound.Node) -> paths.Path:
    """Return a path as the catalog spells it, if the plan shows it; otherwise folded, as DuckDB compares names."""
    for scan in bound.scans(node) if is_direct(node, path) else ():
        table = bound.table_of(scan)
        if table is not None:
            return table
    return fold(path[0]), fold(path[1]), fold(path[2])
