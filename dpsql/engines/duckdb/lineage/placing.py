"""Whose budgets a source is charged to, or why it is not answered.

In a ledger that protects anything, nothing that cannot be placed is answered. `place` decides at bind, from what
DuckDB's plan of the source says and from what the data's owners declared: no row is read and nothing is charged.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

from dpsql.contract.names import (
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
from dpsql.contract.parameters import fold, show
from dpsql.contract.placement import Placement
from dpsql.engines.duckdb.lineage import bound
from dpsql.engines.duckdb.lineage.declarations import PROTECT, Declaration, Declarations
from dpsql.engines.duckdb.lineage.stability import Leaf, Rows, is_shown, walk
from dpsql.errors import BudgetError, ParameterError, SourceError
from dpsql.rendering import identifier

_FROM = "FROM "
_DECLARED = "/* declared */ FROM "
# Functions whose value may be made of rows that no plan shows, or that tell of a place and not of what is there.
_STATEFUL = frozenset(
    (
        *("getvariable", "nextval", "currval", "setval", "enum_range", "enum_range_boundary"),
        *("stats", "vector_type", "write_log", "current_query"),
    )
)
Path = tuple[str, str, str]


def spellings(source: str, search_path: str, database: str, views: Sequence[Path]) -> list[str]:
    """Return the queries whose plans `place` asks for: the source as written, where it may be, and declared views.

    Parameters
    ----------
    source : str
        The source as the caller wrote it.
    search_path, database : str
        DuckDB's settings of these names, of the caller's connection.
    views : sequence of (database, schema, name)
        The declared views, by the names that databases are attached under.
    """
    out = [_FROM + source_sql(source)]
    if not _nameless(source):
        parts = [identifier(part) for part in source_parts(source)]
        here = identifier(database)
        if len(parts) == 1:
            schemas = [[identifier(part) for part in parts_of(entry)] for entry in path_of(search_path) or ["main"]]
            places = [["temp", "main"], *(schema if len(schema) == 2 else [here, *schema] for schema in schemas)]
        else:
            places = [[here, parts[0]], [parts[0], "main"]] if len(parts) == 2 else [parts[:2]]
        out += [_FROM + ".".join([*place, parts[-1]]) for place in places]
    return out + [_DECLARED + _written(view) for view in views]


def _nameless(source: str) -> bool:
    """Whether a source is a file, or a frame under a name that nobody else can have."""
    return is_file(source) or source.startswith(FRAME_PREFIX)


def _written(path: Path) -> str:
    return ".".join(map(identifier, path))


def digest(text: str) -> str:
    """Return the sha256 of a text, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def view_form(plan: str) -> str | None:
    """Return the normal form of a view from the plan of reading it; None where DuckDB cannot write it down."""
    node = _read(plan)
    below = [] if node is None or bound.kind(node) != "PROJECTION" else bound.children(node)
    return bound.normal_form(below[0]) if len(below) == 1 else None


def _read(plan: str) -> bound.Node | None:
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
        return False
    return False


def pinned_path(source: str, seen: Sequence[tuple[str, str]]) -> Path | None:
    """Return the path of the table that a source stands for; None for a file, a frame, or where it cannot be told.

    A path names its table whatever WITH queries the caller has. It is the first place that the name may mean whose plan
    is the plan of the source as it is written.
    """
    if _nameless(source):
        return None
    text = seen[0][1]
    candidates = [(query, plan) for query, plan in seen[1:] if query.startswith(_FROM)]
    written = _read(text)
    if written is not None:
        same = [query for query, plan in candidates if plan == text]
    else:
        # Plans that cannot be written down cannot be compared. What is found under temp may be a Python variable, which
        # DuckDB finds in every schema: a plain name stands for the first place only where there is nothing.
        same = [query for query, plan in candidates if not is_missing(plan) and _read(plan) is None]
        if len(source_parts(source)) == 1 and not is_missing(candidates[0][1]):
            same = []
    if not same:
        return None
    database, schema, name = parts_of(same[0].removeprefix(_FROM))
    return database, schema, name


def default_path(seen: Sequence[tuple[str, str]]) -> Path | None:
    """Return where a table of a name would be made, which is not there."""
    for query, _ in seen[1:]:
        parts = parts_of(query.removeprefix(_FROM))
        if query.startswith(_FROM) and parts[0] != "temp" and len(parts) == 3:
            return parts[0], parts[1], parts[2]
    return None


@dataclass(frozen=True)
class Catalog:
    """How databases are called in a session.

    Attributes
    ----------
    main : str
        The main database, whose name is left out when a table is displayed.
    identities : mapping
        Identity of each marked database by the name, folded, that it is attached under.
    """

    main: str
    identities: Mapping[str, str] = field(default_factory=dict)

    def table(self, path: Path) -> TableName:
        """Return the identity of a table."""
        alias = fold(path[0])
        return TableName.of(self.identities.get(alias, alias), path[1], path[2])

    def display(self, path: Path) -> str:
        """Return the shortest spelling of a table."""
        return fold(display(*path, self.main))

    def path(self, table: TableName) -> Path | None:
        """Return where a table is in this session; None where its database is not attached."""
        aliases = {identity: alias for alias, identity in self.identities.items()}
        alias = aliases.get(table.database, "" if table.database.startswith(MARKED) else table.database)
        return (alias, table.schema, table.name) if alias else None


def named(name: str, declarations: Declarations, catalog: Catalog) -> Declaration | None:
    """Return the declaration that a name stands for: as the ledger calls it, or in any spelling of its table."""
    found = declarations.named(name)
    if found is not None:
        return found
    try:
        given = [fold(part) for part in parts_of(name)]
    except ParameterError:
        return None
    for one in declarations.listed:
        path = None if one.table is None else catalog.path(one.table)
        if path is None:
            continue
        spellings = [[fold(part) for part in path]]
        if fold(path[0]) == fold(catalog.main):
            spellings.append(spellings[0][1:])
        if fold(path[1]) == "main":  # which is left out wherever it stands
            spellings += [[*spelling[:-2], spelling[-1]] for spelling in list(spellings)]
        if given in spellings:
            return one
    return None


def budget_named(dataset: str | None, declarations: Declarations, catalog: Catalog) -> str | None:
    """Return the budget that the caller names; None for none."""
    found = None if dataset is None else named(dataset, declarations, catalog)
    return found.dataset if found is not None and found.kind == PROTECT else None


@dataclass
class _Reading:
    """What a walk of a plan meets."""

    declarations: Declarations
    catalog: Catalog
    tables: dict[str, Path] = field(default_factory=dict)
    undeclared: dict[str, Path] = field(default_factory=dict)
    scanned: dict[str, None] = field(default_factory=dict)

    def leaf(self, path: Path, covered: bool) -> Leaf | None:
        name = self.catalog.display(path)
        self.tables[name] = path
        found = self.declarations.leaf(self.catalog.table(path), path[0])
        if found is not None:
            self.scanned.update(dict.fromkeys(found.datasets))
        elif not covered:
            self.undeclared[name] = path
        return found


def place(
    source: str,
    seen: Sequence[tuple[str, str]],
    declarations: Declarations,
    catalog: Catalog,
    *,
    dataset: str | None = None,
    privacy_unit: str | None = None,
    named: bool = True,
) -> Placement:
    """Decide whose budgets a source is charged to.

    Parameters
    ----------
    source : str
        As the caller wrote it.
    seen : sequence of (query, plan)
        The queries of `spellings`, each with its plan.
    declarations : Declarations
    catalog : Catalog
    dataset, privacy_unit : str, optional
        As the caller gave them.
    named : bool
        Whether the release has a name, and so must know what its source means.

    Raises
    ------
    SourceError, BudgetError
        The source cannot be placed; the text has the next step.
    """
    if is_missing(seen[0][1]):
        raise SourceError(
            "S016",
            f"source {show(source)} is not a table or view. A WITH query is no source: CREATE TEMP VIEW ... AS ..., "
            "or use the aggregate form.",
        )
    own = pinned_path(source, seen)
    if own is None and not _nameless(source):
        name = source_parts(source)[-1]
        raise SourceError(
            "S018",
            f"which table {show(source)} stands for cannot be seen. Name its schema: 'main.{name}', or "
            f"'temp.main.{name}' for a registered frame.",
        )
    declared = [] if own is None else declarations.about(catalog.table(own), own[0])
    mine = declarations.roots(declared)
    reading = _Reading(declarations, catalog)
    views = _views(seen, declarations, catalog)
    node, rows = _walked(seen[0][1], reading, views)
    if node is None or rows is None:
        return _unseen(source, own, declared, mine, reading, dataset)
    if own is not None and any(one.view is not None for one in declared) and not _is_whole(node, views):
        raise BudgetError(
            "B007",
            f"the view {show(catalog.display(own))} is another one than was declared. Declare it again with the same "
            "dp_protect, dp_derive or dp_public.",
        )
    if reading.undeclared:
        raise undeclared(next(iter(reading.undeclared)), declarations)
    charged = tuple(dict.fromkeys((*mine, *rows.scans, *reading.scanned)))
    if own is not None and not charged and not reading.tables and not declared:
        raise undeclared(catalog.display(own), declarations)
    tables = tuple(reading.tables)
    if not is_direct(node, own) and not _is_whole(node, views):
        _refuse_functions(source, set(bound.functions(node)))
    content = source_content(node, own) if named else ""
    placed = partial(
        Placement,
        declarations.counter,
        written=source,
        source=_pinned(source, own),
        tables=tables,
        seen=True,
        content=content,
        direct=is_direct(node, own),
    )
    if not charged:
        name = source if own is None else catalog.display(own)
        if dataset is not None and fold(dataset) not in (fold(name), fold(source)):
            raise _other(source, dataset, ())
        return placed(charged=(name,))
    first = _named_first(source, dataset, charged, declarations, own, catalog)
    stated = declarations.unit(first[0])
    if privacy_unit is not None and stated is not None and fold(privacy_unit) != fold(stated) and is_direct(node, own):
        return placed(charged=first)  # the policy, which says it best, refuses the call
    unit = _refuse_far(source, node, rows, first, declarations, privacy_unit)
    return placed(charged=first, unit=unit)


def pinned(own: Path) -> str:
    """Return the one spelling of a path."""
    return ".".join(part if re.fullmatch(r"[a-z_][a-z0-9_]*", part) else identifier(part) for part in map(fold, own))


def _pinned(source: str, own: Path | None) -> str:
    return source if own is None else pinned(own)


def _views(seen: Sequence[tuple[str, str]], declarations: Declarations, catalog: Catalog) -> dict[str, Leaf]:
    """Return what was declared about views, by the normal form of their plans, where that is as it was declared."""
    plans = {query.removeprefix(_DECLARED): plan for query, plan in seen if query.startswith(_DECLARED)}
    out: dict[str, Leaf] = {}
    for view in declarations.views():
        path = None if view.table is None else catalog.path(view.table)
        form = None if path is None else view_form(plans.get(_written(path), ""))
        if form is not None and digest(form) == view.view:
            out[form] = declarations.view_leaf(view)
    return out


def _is_whole(node: bound.Node, views: Mapping[str, Leaf]) -> bool:
    below = bound.children(node)
    return bool(views) and len(below) == 1 and bound.normal_form(below[0]) in views


def place_aggregate(
    statement: str,
    declarations: Declarations,
    catalog: Catalog,
    *,
    dataset: str,
    governed: bool,
    named: bool,
) -> Placement:
    """Decide whether the rows below an aggregate form belong to the budget that the caller named.

    Parameters
    ----------
    statement : str
        The plan of the whole statement that the aggregate stands in.
    declarations : Declarations
    catalog : Catalog
    dataset : str
        The budget, as the caller named it.
    governed : bool
        Whether anything is protected; otherwise only the statement's shape counts.
    named : bool
        Whether the release has a name.

    Raises
    ------
    ParameterError, SourceError, BudgetError
    """
    node = _read(statement)
    claim = budget_named(dataset, declarations, catalog)
    if node is None or not is_shown(node):  # EXECUTE, a frame, a file
        if named:
            raise ParameterError(
                "P062",
                "release cannot be given here: what the statement aggregates cannot be seen (EXECUTE, a frame or a "
                "file). Leave release out, or use the table form.",
            )
        if governed and claim is None:
            raise _cannot_see("the statement", "EXECUTE, a frame or a file", known=declarations)
        return Placement(declarations.counter, (claim or dataset,), claimed=governed, governed=governed)
    found = list(_aggregates(node))
    if not found:
        raise SourceError(
            "S022",
            "an aggregate form stands in a SELECT of its own: without OVER, and in no subquery that uses columns from "
            "outside. Each row would be a release.",
        )
    if named and any(bound.listed(aggregate, "groups") for aggregate, _ in found):
        raise ParameterError(
            "P047", "each group is a release of its own, and a name holds only one. Leave release out."
        )
    content = digest("".join(bound.meaning(aggregate) for aggregate, _ in found))
    placed = partial(Placement, declarations.counter, content=content, seen=True, governed=governed)
    if not governed:
        return placed(charged=(dataset,))
    reading = _Reading(declarations, catalog)
    for aggregate, rows in found:
        if bound.listed(aggregate, "groups"):
            raise SourceError(
                "S023",
                "GROUP BY tells which groups there are, and charges each of them. Aggregate one group at a time, with "
                "a WHERE over a public list of groups.",
            )
        try:
            below = walk(rows, reading.leaf, {}, bound.normal_form, node)
        except bound.UnreadableError:
            if claim is None:
                raise _cannot_see("the statement", "a file or a frame", known=declarations) from None
            return placed(charged=(claim,), claimed=True)
        if reading.undeclared:
            raise undeclared(next(iter(reading.undeclared)), declarations)
        _refuse_functions("the statement", {*bound.functions(rows), *bound.functions(aggregate["expressions"])})
        charged = tuple(dict.fromkeys((*below.scans, *reading.scanned)))
        if charged and set(charged) != {claim}:
            raise _other("the statement", dataset, charged)
        if not charged and claim is not None:
            raise _other("the statement", dataset, charged)
        if below.row_level and not below.by_unit:
            raise SourceError(
                "S012",
                f"one row of {charged[0]!r} may change many rows of what is aggregated ({below.row_level}). "
                "Aggregate the table, or a query that only filters and computes columns.",
            )
    return placed(charged=(claim or dataset,), tables=tuple(reading.tables))


def _aggregates(node: bound.Node) -> Iterator[tuple[bound.Node, bound.Node]]:
    """Yield every aggregation for a dpsql aggregate, with the rows below it; nothing where one stands anywhere else."""
    found = []
    for operator in bound.operators(node):
        own = {name: value for name, value in operator.items() if name != "children"}
        if not any(name.startswith("dpsql_aggregate_") for name in bound.functions(own)):
            continue
        below = bound.children(operator)
        while len(below) >= 1 and (bound.kind(below[0]) == "FILTER" or _beside_admit(below[0])):
            below = bound.children(below[0])
        if not below or bound.kind(below[0]) != "AGGREGATE_AND_GROUP_BY":
            return
        rows = bound.children(below[0])[0]
        while _beside_admit(rows):
            rows = bound.children(rows)[0]
        found.append((below[0], rows))
    yield from found


def _beside_admit(node: bound.Node) -> bool:
    """Whether an operator only brings the checked plan to the rows."""
    below = bound.children(node)
    return (
        bound.kind(node) == "CROSS_PRODUCT"
        and len(below) == 2
        and "dpsql_admit" in bound.functions(below[1])
        and not any(True for _ in bound.scans(below[1]))
    )


def _walked(plan: str, reading: _Reading, views: Mapping[str, Leaf]) -> tuple[bound.Node | None, Rows | None]:
    """Return the plan and its rows; None where something is read that no plan shows."""
    try:
        node = bound.read(plan)
        return node, None if node is None else walk(node, reading.leaf, views, bound.normal_form)
    except bound.UnreadableError:
        return None, None


def _unseen(
    source: str,
    own: Path | None,
    declared: Sequence[Declaration],
    mine: tuple[str, ...],
    reading: _Reading,
    dataset: str | None,
) -> Placement:
    """Place a file, a frame or a view over one by what its own name was declared as, and by the caller's word."""
    declarations, catalog = reading.declarations, reading.catalog
    claim = budget_named(dataset, declarations, catalog)
    if not mine and not declared and claim is None:
        raise _cannot_see(source, "a file or a frame", known=declarations)
    charged = tuple(dict.fromkeys([*mine, *([] if claim is None else [claim])]))
    name = source if own is None else catalog.display(own)
    return Placement(
        declarations.counter,
        charged or (name,),
        source,
        _pinned(source, own),
        () if own is None else (name,),
        claimed=bool(set(charged) - set(mine)),
        unit=next((one.unit for one in declared if one.unit is not None), None),
    )


def _refuse_functions(source: str, names: set[str]) -> None:
    """Raise where a function may know of other rows: one with a state, or one that the user has registered."""
    for name in sorted(names):
        if name in _STATEFUL or not (name in built_in_functions() or name.startswith("dpsql_")):
            raise _cannot_see(source, f"{name}()")


@cache
def built_in_functions() -> frozenset[str]:
    """Return the names of the functions that DuckDB itself has, of its extensions in the wheel too."""
    import duckdb

    with duckdb.connect() as plain:
        rows = plain.execute("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()
    return frozenset((*(row[0] for row in rows), "", "__cast", "IS NOT DISTINCT FROM", "IS DISTINCT FROM"))


def source_content(node: bound.Node, own: Path | None) -> str:
    """Return a digest of what a source means; nothing for a table, whose path says it, and for what is not shown."""
    return "" if is_direct(node, own) or not is_shown(node) else digest(bound.meaning(node))


def is_direct(node: bound.Node, own: Path | None) -> bool:
    """Whether a plan reads a table of the catalog, as it is."""
    below = bound.children(node)
    return (
        own is not None and len(below) == 1 and bound.kind(below[0]) == "GET" and bound.table_of(below[0]) is not None
    )


def _named_first(
    source: str,
    dataset: str | None,
    charged: tuple[str, ...],
    declarations: Declarations,
    own: Path | None,
    catalog: Catalog,
) -> tuple[str, ...]:
    """Return the budgets with the one that the caller named first, which must be among them."""
    if dataset is None:
        return charged
    names = {fold(name): name for name in charged}
    claim = budget_named(dataset, declarations, catalog)
    named = names.get(fold(dataset)) if claim is None else claim
    if named is None and own is not None and fold(dataset) in {fold(source), fold(catalog.display(own))}:
        return charged
    if named not in charged:
        raise _other(source, dataset, charged)
    return (named, *(name for name in charged if name != named))


def _refuse_far(
    source: str,
    node: bound.Node,
    rows: Rows,
    charged: tuple[str, ...],
    declarations: Declarations,
    privacy_unit: str | None,
) -> str | None:
    """Raise where one row or one unit reaches too far; return the column that holds the unit, if one is protected."""
    units = {name: declarations.unit(name) for name in charged}
    listed = ", ".join(map(repr, charged))
    if not rows.by_unit:
        if any(unit is not None for unit in units.values()):
            raise SourceError(
                "S013",
                f"{show(source)} reads several protected tables, and not all of them have a privacy unit: {listed}. "
                "Release from each, or let the owner state a privacy unit for all of them.",
            )
        if rows.row_level:
            raise SourceError(
                "S012",
                f"one row of {listed} may change many rows of {show(source)} ({rows.row_level}). Use a view that only "
                "filters and computes columns, looks up at most one row of a public table (GROUP BY or DISTINCT ON its "
                "key), or have the owner state privacy_unit := the key, max_rows_per_unit := 1.",
            )
        return None
    if rows.own_rows:
        raise SourceError(
            "S012",
            f"one privacy unit of {listed} may change rows of others in {show(source)} ({rows.own_rows}). "
            "Keep the unit's column, in every GROUP BY, PARTITION BY, DISTINCT and join of protected tables too.",
        )
    names = [fold(name) for name in bound.output(node) or []]
    wanted = privacy_unit
    if wanted is None:
        known = [unit for unit in units.values() if unit is not None and fold(unit) in names]
        wanted = known[0] if known else next((names[place] for place in sorted(rows.unit) if place < len(names)), None)
    places = [place for place, name in enumerate(names) if wanted is not None and name == fold(wanted)]
    if len(places) != 1 or places[0] not in rows.unit:
        unit = next(iter(units.values()))
        raise SourceError(
            "S017",
            f"{show(source)} reads {listed}, whose privacy unit is {show(unit)}, and does not pass that column on as "
            "it is"
            + (f" under the name {show(wanted)}" if wanted is not None else "")
            + f". Select {unit} in the view, once; where it has another name, give privacy_unit := that name.",
        )
    return wanted


def undeclared(name: str, declarations: Declarations) -> BudgetError:
    """Return the refusal of a table of which nothing is known, with the lines that declare it."""
    protected = declarations.protected
    return BudgetError(
        "B006",
        f"{show(name)} has no budget, and the ledger protects data. If it has rows of a protected dataset: "
        f"SELECT dp_derive('{_quoted(name)}', '{_quoted(protected[0] if protected else '...')}', ...). "
        f"If it tells of nobody: SELECT dp_public('{_quoted(name)}').",
    )


def _quoted(name: str) -> str:
    return name.replace("'", "''")


def _other(source: str, dataset: str, charged: tuple[str, ...]) -> SourceError:
    reads = f"reads {', '.join(map(repr, charged))}" if charged else "is public"
    return SourceError(
        "S015", f"{show(source)} {reads}, which dataset := {show(dataset)} would not charge. Leave dataset out."
    )


def _cannot_see(source: str, what: str, known: Declarations | None = None) -> SourceError:
    first = known.protected[0] if known is not None and known.protected else "..."
    return SourceError(
        "S014",
        f"what {show(source)} reads cannot be seen ({what}). Name the budget that its rows belong to: "
        f"dataset := '{_quoted(first)}'.",
    )


def refuse_hidden(
    placement: Placement,
    texts: Mapping[str, str],
    declarations: Declarations,
) -> str:
    """Raise where the text of a view reads what no plan shows; return a digest of the texts that a source stands on.

    Parameters
    ----------
    placement : Placement
    texts : mapping of str to str
        Every view's CREATE VIEW text by its name, folded; of views of one name, all texts.
    declarations : Declarations

    Notes
    -----
    Texts are read as words, so a view may be taken to read more than it does, and never less.
    """
    source = placement.written
    if _nameless(source):
        return ""
    open_ones, seen, words = [fold(source_parts(placement.source)[-1])], dict[str, str](), set[str]()
    while open_ones:
        name = open_ones.pop()
        if name in seen or name not in texts:
            continue
        seen[name] = texts[name]
        found = words_of(texts[name])
        words |= found
        open_ones += sorted(found)
    stateful = sorted(_STATEFUL & words)
    if stateful and placement.governed:
        raise _cannot_see(source, f"{stateful[0]}()")
    if not placement.seen and placement.governed:
        charged = {fold(name) for name in placement.charged}
        for one in declarations.listed:
            name = fold(one.dataset) if one.table is None else one.table.name
            roots = {fold(root) for root in declarations.roots([one])}
            if name in words and roots and not roots <= charged:
                raise SourceError(
                    "S014",
                    f"what {show(source)} reads cannot be seen, and the text of a view that it stands on names "
                    f"{show(one.dataset)}. Read that table in a view of its own.",
                )
    return digest("\n".join(f"{name}\n{text}" for name, text in sorted(seen.items())))


def words_of(text: str) -> set[str]:
    """Return the identifiers of a SQL text, folded."""
    return {
        fold(quoted.replace('""', '"') if quoted else plain)
        for quoted, plain in re.findall(r'"((?:[^"]|"")+)"|([A-Za-z_\u0080-\uffff][\w$]*)', text)
    }
