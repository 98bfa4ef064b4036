"""Decide which budgets a source is charged to, or why dpsql refuses a call on it.

If the ledger protects anything, dpsql does not answer a source that it cannot place. `place` decides at bind, from
DuckDB's plan of the source and from the declarations of the data's owners: it reads no row and charges nothing. The
statement of a call contains the joins along a table's path to the privacy unit. `place` judges them like any other
input: by DuckDB's plan of the joins.

**Texts.** Only a running call knows the texts of views and macros: it must know all names in them, and no source
without a plan may be next to a table with a budget.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from dpsql.contract.names import TableName, did_you_mean, dotted, is_file, parts_of, source_parts
from dpsql.contract.parameters import fold, show
from dpsql.contract.plan import Placement
from dpsql.engines.duckdb.lineage import bound, paths, refusals
from dpsql.engines.duckdb.lineage.closure import Closure, Option
from dpsql.engines.duckdb.lineage.declarations import BY_TEXT, DERIVE, PUBLIC_KIND, Declaration, Declarations, Owner
from dpsql.engines.duckdb.lineage.labels import EnumLabels
from dpsql.engines.duckdb.lineage.paths import refuse_other_columns
from dpsql.engines.duckdb.lineage.rows import Leaf, Rows, leaf_rows, union_of
from dpsql.engines.duckdb.lineage.stability import Reading, is_shown
from dpsql.engines.duckdb.lineage.texts import Catalogued, relations
from dpsql.engines.provenance import Provenance
from dpsql.errors import BudgetError, InternalError, SourceError
from dpsql.rendering import call, identifier

# The prefix of the query whose plan shows the tables that the joins read.
_PATH = "/* path */ "


def joined_from(path: paths.Path, declarations: Declarations, catalog: paths.Catalog) -> str | None:
    """Return the FROM item of a table with the joins along its path, and the columns of date and unit; or None.

    The item passes the table's own columns on. It compares text by bytes, whatever collation a column or the session
    has, and qualifies every name, so that no object of the caller takes its place.
    """
    owner = declarations.owner(catalog.table(path), path[0])
    if owner is None or not owner.steps:
        return None
    here, joins = "dpsql_rows", []
    for number, step in enumerate(owner.steps):
        parent, alias = catalog.path(step.parent), f"dpsql_owner{number}"
        if parent is None:
            return None
        sides = [f"{here}.{identifier(step.column)}", f"{alias}.{identifier(step.key)}"]
        ends = [call("encode", side) if step.is_text else side for side in sides]
        joins.append(f" JOIN {_qualified_name(parent)} AS {alias} ON {ends[0]} = {ends[1]}")
        here = alias
    names = {
        fold(column)
        for declaration in declarations.about(catalog.table(path), path[0])
        for column in declaration.columns
    }
    added = []
    for column in dict.fromkeys((owner.date, owner.unit)):
        if column is not None:
            name = _free_name(column, owner, names)
            names.add(fold(name))
            added.append(f"{here}.{identifier(column)} AS {identifier(name)}")
    return f"(SELECT dpsql_rows.*, {', '.join(added)} FROM {_qualified_name(path)} AS dpsql_rows{''.join(joins)})"


def _free_name(name: str, owner: Owner, names: Collection[str]) -> str:
    """Return a name for a column of the last parent that differs from the names of the table's columns."""
    while fold(name) in names:
        name = f"{owner.steps[-1].parent.name}_{name}"
    return name


def _qualified_name(path: paths.Path) -> str:
    return ".".join(map(identifier, path))


def joined_query(item: str) -> str:
    """Return the query whose plan shows the tables that a FROM item with joins reads."""
    return f"{_PATH}FROM {item}"


def follows(node: bound.Node, path: paths.Path, declarations: Declarations, catalog: paths.Catalog) -> bool:
    """Whether a plan reads and joins the tables of a path, and nothing else: no table has become a view."""
    owner = declarations.owner(catalog.table(path), path[0])
    along = [] if owner is None else [catalog.path(step.parent) for step in owner.steps]
    read = [bound.table_of(scan) for scan in bound.scans(node)]
    kinds = {bound.kind(operator) for operator in bound.operators(node)}
    path_tables = sorted(tuple(map(fold, table)) for table in (path, *along) if table is not None)
    plan_tables = sorted(tuple(map(fold, table)) for table in read if table is not None)
    return (
        plan_tables == path_tables
        and len(read) == len(plan_tables)
        and kinds <= {"PROJECTION", "COMPARISON_JOIN", "GET"}
    )


def place(
    source: str,
    seen: Sequence[tuple[str, str]],
    declarations: Declarations,
    catalog: paths.Catalog,
    *,
    dataset: str | None = None,
    privacy_unit: str | None = None,
    is_named: bool = True,
) -> Placement:
    """Decide which budgets a source is charged to; raise if dpsql cannot place it.

    `source`, `dataset` and `privacy_unit` are the caller's arguments, and `seen` has the queries of `spellings`, each
    with its plan. The placement records the meaning of the source if the release `is_named`.
    """
    own = _own_path(source, seen, declarations.protected)
    declared = [] if own is None else declarations.about(catalog.table(own), own[0])
    mine = declarations.roots(declared)
    reading = Reading(declarations, catalog)
    views = declared_views(seen, declarations, catalog)
    try:
        node = bound.read(seen[0][1])
        rows = None if node is None else reading.walk(node, views)
    except bound.UnreadableError:
        node = rows = None  # no plan shows all inputs
    if node is not None:
        refuse_other_columns(node, declarations, catalog)
    if node is None or rows is None:
        form = paths.view_form(seen[0][1])
        return _unseen(source, own, declared, mine, reading, dataset, "" if form is None else paths.digest(form))
    is_view, direct = _is_whole(node, views), is_direct(node, own)
    if own is not None and any(declaration.view is not None for declaration in declared) and not is_view:
        raise replaced(catalog.display(own))
    if reading.undeclared:
        raise refusals.undeclared(next(iter(reading.undeclared)), declarations)
    charged = tuple(dict.fromkeys((*mine, *rows.scans, *reading.scanned)))
    if own is not None and not charged and not reading.tables and not declared:
        raise refusals.undeclared(catalog.display(own), declarations)
    refusals.refuse_functions(source, bound.functions(node))
    labels = EnumLabels(declarations, catalog, declared)
    placed = partial(
        Placement,
        declarations.counter,
        written=source,
        source=paths.pinned_source(source, own),
        tables=tuple(reading.tables),
        **reading.facts(rows, node),
        seen=True,
        **(labels.contents(node) if is_named and has_content(node, own) else {}),
        direct=direct,
        generated=direct and not is_stored(node),
        checked=direct and bound.is_checked(bound.children(node)[0]),
        texts=labels.of_source(source, node, direct=direct),
    )
    name = source if own is None else catalog.display(own)
    claim = paths.budget_of(dataset, declarations, catalog)
    columns, unit_column, read = bound.output(node) or [], privacy_unit, node
    if direct and own is not None and rows.pending is not None:
        item, joined = _along_path(own, name, seen, reading)
        rows, columns, read = reading.walk(joined, {}), bound.output(joined) or [], joined
        unit_column = columns[-1] if unit_column is None else unit_column
        placed = partial(
            placed,
            joined=item,
            tables=tuple(reading.tables),
            **reading.facts(rows, joined),
            **(labels.contents(joined) if is_named else {}),
            checked=all(map(bound.is_checked, bound.scans(joined))),
            texts=labels.of_source(source, joined, direct=False),
        )
    spelled = {fold(source), fold(name)} if own is not None or not charged else set[str]()
    first = _named_first(source, dataset, charged, claim, spelled)
    if not first:
        return placed(charged=(name,))
    units = declarations.units(first[0])
    if privacy_unit is not None and units and fold(privacy_unit) not in units and direct:
        return placed(charged=first)  # the check against the owner's policy refuses the call with a better message
    unit = _refuse_far(source, columns, rows, first, declarations, unit_column)
    date, undated = _date_of(source, columns, rows, first, declarations)
    dated = declarations.dates_of_tables(reading.declared)
    numbered = bound.is_numbered(read, privacy_unit or unit)
    return placed(charged=first, unit=unit, date=date, dated=dated, undated=undated, numbered=numbered)


def _along_path(
    own: paths.Path, name: str, seen: Sequence[tuple[str, str]], reading: Reading
) -> tuple[str, bound.Node]:
    """Return the FROM item of a table with the joins along its path, and its plan; raise if the path is broken."""
    item = joined_from(own, reading.declarations, reading.catalog)
    joined = paths.read_plan(dict(seen).get(joined_query(item), "")) if item is not None else None
    if item is None or joined is None or not follows(joined, own, reading.declarations, reading.catalog):
        raise refusals.path_lost(name)
    rows = reading.walk(joined, {})
    if rows.own_rows or rows.pending is not None:
        raise refusals.path_lost(name)
    return item, joined


def place_text(
    source: str,
    plan: str,
    seen: Sequence[tuple[str, str]],
    declarations: Declarations,
    catalog: paths.Catalog,
    *,
    replayed: bool = False,
) -> Placement:
    """Decide which budgets a query's text is charged to, whose last column is the privacy unit.

    Messages call the text `source`, and `plan` is DuckDB's plan of it; `seen` has plans of declared views. A text that
    reads public tables alone is charged to nothing. A `replayed` text reads no row: an earlier version wrote it, for
    which labels were public, and which let DuckDB choose among rows that tie.

    Raises
    ------
    SourceError, BudgetError
        dpsql cannot place the text.
    """
    reading = Reading(declarations, catalog)
    views = declared_views(seen, declarations, catalog)
    try:
        node = bound.read(plan)
        rows = None if node is None else reading.walk(node, views)
    except (bound.UnreadableError, bound.MissingError):
        node = rows = None
    if node is None or rows is None or not is_shown(node):
        raise refusals.cannot_see(source, "a file, a frame, or a form that is not known")
    rows = replace(rows, unfixed="", to_order="", loose=frozenset()) if replayed else rows
    refuse_other_columns(node, declarations, catalog)
    if reading.undeclared:
        raise refusals.undeclared(next(iter(reading.undeclared)), declarations)
    refusals.refuse_functions(source, bound.functions(node))
    labels = EnumLabels(declarations, catalog)
    private = not replayed and labels.refuse_shown(source, node)
    charged = tuple(dict.fromkeys((*rows.scans, *reading.scanned)))
    columns, unit, date, undated = bound.output(node) or [], None, None, False
    if charged:
        last = columns[-1] if columns and any(map(declarations.unit, charged)) else None
        unit = _refuse_far(source, columns, rows, charged, declarations, last)
        date, undated = _date_of(source, columns, rows, charged, declarations)
    return Placement(
        declarations.counter,
        charged,
        source,
        source,
        tables=tuple(reading.tables),
        **reading.facts(rows, node),
        seen=True,
        unit=unit,
        date=date,
        dated=declarations.dates_of_tables(reading.declared),
        undated=undated,
        content=paths.digest(bound.meaning(node, labels=not private)),
        checked=all(map(bound.is_checked, bound.scans(node))),
        plan=paths.digest(plan),
        enums='"id":"ENUM"' in plan,
        numbered=bound.is_numbered(node, unit),
    )


def place_on_engine(
    source: str,
    table: TableName,
    declarations: Declarations,
    *,
    dataset: str | None,
    claim: str | None,
    spelled: Collection[str],
    privacy_unit: str | None,
) -> tuple[tuple[str, ...], str | None, str | None]:
    """Return the budgets that a table of an engine's catalog is charged to, and the columns of the unit and the date.

    The columns are None unless the table is derived; their names may differ from the owner's. The rules are the rules
    of `place` for a direct read of a table. `claim` is the budget that `dataset` names, and `spelled` has the names of
    the table, folded.

    Raises
    ------
    BudgetError
        B006: the table has no declaration.
    SourceError
        S015: the table is not charged to `dataset`. S013, S017: the privacy unit does not identify its rows.
    """
    leaf = declarations.leaf(table, "")
    if leaf is None:
        raise refusals.undeclared(table.path, declarations, engine=table.engine, spelled=source)
    charged = _named_first(source, dataset, leaf.datasets, claim, spelled)
    if not charged or table.budget in charged:  # the check against the owner's policy names the unit
        return charged or (table.budget,), None, None
    columns = [] if leaf.unit is None else [leaf.unit]
    rows = leaf_rows(leaf, columns)
    unit = _refuse_far(source, columns, rows, charged, declarations, privacy_unit)
    return charged, unit, _date_of(source, columns, rows, charged, declarations)[0]


def place_seen(
    source: str,
    engine: str,
    provenance: Provenance,
    declarations: Declarations,
    *,
    dataset: str | None,
    claim: str | None,
    privacy_unit: str | None,
) -> tuple[tuple[str, ...], str | None, str | None]:
    """Return the budgets that a view or a frame of an engine is charged to, and the columns of the unit and the date.

    The rules are the rules of `place` for a view. Files and frames in memory count as one table of the budget that the
    caller claims, or as several if they may share rows. `claim` is the budget that `dataset` names.

    Raises
    ------
    BudgetError
        B006: a table of the source has no declaration. B015: the owner answers no claims.
    SourceError
        S012, S013, S017: one row or unit may change too many rows, or the unit has another column. S015: the tables are
        not charged to `dataset`.
    """
    parts: list[Rows] = []
    tables: list[TableName] = []
    for number, scan in enumerate(provenance.scans):
        columns = [None if passed is None else passed[number] for _, passed in provenance.columns]
        if scan.table is None and claim is not None:
            refusals.refuse_claim(source, claim, declarations)
            date = None if declarations.is_of_several(claim) else declarations.date(claim)
            leaf: Leaf | None = Leaf((claim,), declarations.unit(claim), period=declarations.period(claim), date=date)
        else:
            tables.append(TableName.on_engine(engine, scan.table or ()))
            leaf = declarations.leaf(tables[-1], "")
        if leaf is None:
            raise refusals.undeclared(tables[-1].path, declarations, engine=engine, spelled=dotted(scan.table or ()))
        parts.append(leaf_rows(leaf, columns))
    rows = union_of(parts, keeps_duplicates=True)
    charged = tuple(dict.fromkeys(rows.scans))
    first = _named_first(source, dataset, charged, claim, set())
    if not first:
        return tuple(dict.fromkeys(table.budget for table in tables)), None, None
    names = [name for name, _ in provenance.columns]
    unit = _refuse_far(source, names, rows, first, declarations, privacy_unit)
    return first, unit, _date_of(source, names, rows, first, declarations)[0]


def _own_path(source: str, seen: Sequence[tuple[str, str]], protected: Sequence[str]) -> paths.Path | None:
    """Return the path of a source, None for a source without a name; raise if it is missing or ambiguous."""
    if paths.is_missing(seen[0][1]) or paths.has_no_place(seen[0][1]):
        step = "A WITH query is no source: CREATE TEMP VIEW ... AS ..., or use the aggregate form."
        raise missing_table(source, protected, step)
    own = paths.pinned_path(source, seen)
    if own is None and not paths.is_nameless(source):
        name = source_parts(source)[-1]
        raise SourceError(
            "S018",
            f"which table {show(source)} stands for cannot be seen. Name its schema: 'main.{name}', or "
            f"'temp.main.{name}' for a registered frame.",
        )
    return own


def missing_table(source: str, protected: Iterable[str], otherwise: str) -> SourceError:
    """Return the refusal of a source that is no table, with protected names that are near, or another next step."""
    if source in protected:
        otherwise = (
            "It has a budget, but there is no table of that name here: it was dropped or renamed, or is in another "
            "schema or database. SHOW ALL TABLES lists what there is."
        )
    return SourceError(
        "S016", f"source {show(source)} is not a table or view. {did_you_mean(source, protected, otherwise)}"
    )


def declared_views(
    seen: Sequence[tuple[str, str]], declarations: Declarations, catalog: paths.Catalog
) -> dict[str, Leaf]:
    """Return the leaves of declared views that have not changed since, by the normal form of their plans."""
    plans = dict(seen)
    out: dict[str, Leaf] = {}
    for view in declarations.views():
        path = None if view.table is None else catalog.path(view.table)
        form = None if path is None else paths.view_form(plans.get(paths.declared_query(path), ""))
        if form is not None and paths.digest(form) == view.view:
            out[form] = declarations.view_leaf(view)
    return out


def _is_whole(node: bound.Node, views: Mapping[str, Leaf]) -> bool:
    below = bound.children(node)
    return bool(views) and len(below) == 1 and bound.normal_form(below[0]) in views


def _unseen(
    source: str,
    own: paths.Path | None,
    declared: Sequence[Declaration],
    mine: tuple[str, ...],
    reading: Reading,
    dataset: str | None,
    form: str,
) -> Placement:
    """Place a file, a frame, or a view over one by its own declaration and the dataset that the caller names."""
    declarations, catalog = reading.declarations, reading.catalog
    if own is not None and any(stands_still(declaration) and declaration.view != form for declaration in declared):
        raise replaced(catalog.display(own))
    if own is not None and any(declaration.kind == PUBLIC_KIND and declaration.shape for declaration in declared):
        raise refusals.other_columns(catalog.display(own))  # it was a table
    claim = paths.budget_of(dataset, declarations, catalog)
    if not mine and not declared and claim is None:
        raise refusals.cannot_see(source, "a file or a frame")
    charged = tuple(dict.fromkeys([*mine, *([] if claim is None else [claim])]))
    if claim is not None and claim not in mine:
        refusals.refuse_claim(source, claim, declarations)
    name = source if own is None else catalog.display(own)
    dates = [declarations.date(budget) for budget in charged]
    is_shared = any(map(declarations.is_of_several, charged))
    if any(dates) and (is_shared or len(charged) > 1 or any(declaration.kind == DERIVE for declaration in declared)):
        raise refusals.undated(source, charged[0], [date for date in dates if date is not None])
    return Placement(
        declarations.counter,
        charged or (name,),
        source,
        paths.pinned_source(source, own),
        () if own is None else (name,),
        claimed=bool(set(charged) - set(mine)),
        unit=next((declaration.unit for declaration in declared if declaration.unit is not None), None),
    )


def of_view_over_files(path: paths.Path, declarations: Declarations, catalog: paths.Catalog) -> Placement:
    """Place a declared view over files alone, as a function that reads it."""
    name = catalog.display(path)
    charged = declarations.roots(declarations.about(catalog.table(path), path[0]))
    return Placement(declarations.counter, charged or (name,), name, paths.pinned(path), (name,))


# The options of `read_parquet` that leave each row its own: neither the names of files nor places in them, nor columns
# that other files have. Where hive partitions are read, their types are the owner's (`sources.Sources.protect`).
_OPTIONS = frozenset(("hive_partitioning", "hive_types", "hive_types_autocast"))
_PARQUET = frozenset(("read_parquet", "parquet_scan"))
# The options with which `read_csv` reads each line for itself: what to write, and the values that do (decision 90).
# *Proof sketch*: no quote and no escape joins lines. One thread does not read a line twice at the end of a buffer. The
# end of a line is not guessed from the first lines. The first line, which may lose a byte order mark, is no row. A line
# that is too long or is not UTF-8 is left out, missing cells are NULL and further ones ignored, so nothing fails. All
# cells are text, so no cell is converted.
_LINES: Mapping[str, tuple[str, frozenset[str]]] = {
    "columns": ("{name: 'VARCHAR', …}", frozenset(("varchar",))),
    "auto_detect": ("false", frozenset(("false",))),
    "header": ("true", frozenset(("true",))),
    "delim": ("','", frozenset((",", ";", "|", "\t", r"\t"))),
    "quote": ("''", frozenset(("",))),
    "escape": ("''", frozenset(("",))),
    "new_line": (r"'\n'", frozenset((r"\n",))),
    "ignore_errors": ("true", frozenset(("true",))),
    "null_padding": ("true", frozenset(("true",))),
    "strict_mode": ("false", frozenset(("false",))),
    "parallel": ("false", frozenset(("false",))),
}
# Columns that DuckDB adds to those of files: they tell of other rows or of the names of files.
_ADDED = frozenset(("filename", "file_index", "file_row_number", "rowid"))


def refuse_other_readers(view: Placement, texts: Catalogued) -> None:
    """Raise if a view over files has a text that plain SQL does not read.

    Plain SQL writes expressions and groups over the columns of the view, judged by the types of its twin. So the text
    reads nothing but Parquet files, and CSV files by options with which a row is what it is whatever other rows are
    there; and no column has a collation, which no DESCRIBE shows.

    Raises
    ------
    SourceError
        S069.
    """
    closure = Closure(view.written, texts)
    closure.source_of_rows(parts_of(view.source)[2])
    views, tables = (
        {fold(path[2]) for path in listed} for listed in ((known.path for known in texts.views), texts.tables)
    )
    relations = [spelled for name, spelled in closure.relations.items() if name not in views - tables]
    reasons = [f"it names {show(name)}, which is no Parquet file" for name in relations if not _is_parquet(name)]
    for reader, options in closure.readers:
        reasons += _of_lines(options) if reader == "read_csv" else _of_parquet(reader, options)
        reasons += ["a CAST fails on a cell, write TRY_CAST"] if reader == "read_csv" and closure.casts else []
    reasons += [f"{word} tells of other rows" for word in sorted(closure.words & _ADDED)]
    reasons += ["it names a collation"] if closure.collated else []
    reasons += ["the paths of its files are no literals"] if closure.hidden else []
    reasons += [] if relations or closure.readers else ["it names no Parquet file"]
    for why in reasons[:1]:
        raise refusals.text_of_files(view.written, why)


def _of_parquet(reader: str, options: Iterable[Option]) -> list[str]:
    """Return why a reader is no reader of Parquet files, each row for itself."""
    if reader not in _PARQUET:
        return [f"{reader}() is a reader of other files than Parquet"]
    return [f"{reader}() has {name or 'another argument'}" for name, _ in options if name not in _OPTIONS]


def _of_lines(options: Sequence[Option]) -> list[str]:
    """Return why `read_csv` with these options may let one line change others, or fail on it."""
    more = [name or "another argument" for name, _ in options if name not in _LINES]
    if more:
        return [f"read_csv() has {more[0]}"]
    missing = [f"{name} := {text}" for name, (text, _) in _LINES.items() if not _states(name, options)]
    needed = f"read_csv() needs {', '.join(missing)}: without it one line may change others, or fail the call"
    return [needed] if missing else []


def _states(name: str, options: Iterable[Option]) -> bool:
    """Whether options of `read_csv` state one of the right ones, once, with values of `_LINES`."""
    alternatives = [values for option, values in options if option == name]
    return len(alternatives) == 1 and bool(alternatives[0]) and alternatives[0] <= _LINES[name][1]


def _is_parquet(name: str) -> bool:
    return name.lower().endswith(".parquet")


def has_content(node: bound.Node, own: paths.Path | None) -> bool:
    """Whether a plan gives a source its meaning: a table has its path instead, and some plans show nothing."""
    return not is_direct(node, own) and is_shown(node)


def is_direct(node: bound.Node, own: paths.Path | None) -> bool:
    """Whether a plan only reads a table of the catalog, unchanged."""
    below = bound.children(node)
    return (
        own is not None and len(below) == 1 and bound.kind(below[0]) == "GET" and bound.table_of(below[0]) is not None
    )


def is_stored(node: bound.Node) -> bool:
    """Whether a plan that reads a table shows only stored columns, and none that is computed from others."""
    return all(bound.reference(expression) is not None for expression in bound.listed(node, "expressions"))


def _named_first(
    source: str,
    dataset: str | None,
    charged: tuple[str, ...],
    claim: str | None,
    spelled: Collection[str],
) -> tuple[str, ...]:
    """Return the budgets, the one of `dataset` first; raise unless it is among them, or in `spelled`."""
    if dataset is None:
        return charged
    names = {fold(name): name for name in charged}
    budget = names.get(fold(dataset)) if claim is None else claim
    if budget is None and fold(dataset) in spelled:
        return charged
    if budget not in charged:
        raise refusals.other_dataset(source, dataset, charged)
    return (budget, *(name for name in charged if name != budget))


def _refuse_far(
    source: str,
    columns: Sequence[str],
    rows: Rows,
    charged: tuple[str, ...],
    declarations: Declarations,
    privacy_unit: str | None,
) -> str | None:
    """Raise if one row or unit can change too many rows; return the column of the privacy unit, if there is one."""
    units = {name: declarations.unit(name) for name in charged}
    listed = ", ".join(map(repr, charged))
    if rows.unfixed and not (rows.row_level if not rows.by_unit else rows.own_rows or rows.pending):
        raise refusals.order_decides(source, rows.unfixed, rows.to_order)
    if any(position >= len(columns) or columns.count(columns[position]) > 1 for position in rows.loose):
        raise refusals.order_decides(source, "a number with several spellings")
    if not rows.by_unit:
        if any(unit is not None for unit in units.values()):
            raise SourceError(
                "S013",
                f"{show(source)} reads several protected tables, and not all of them have a privacy unit: {listed}. "
                "Release from each, or let the owner state a privacy unit for all of them.",
            )
        if rows.row_level:
            first = f"If each key is there once, say so: {rows.lacks_key}. Else use" if rows.lacks_key else "Use"
            raise SourceError(
                "S012",
                f"one row of {listed} may change many rows of {show(source)} ({rows.row_level}). "
                + ("Write a UNION of one table as one WHERE: a OR b. " if rows.row_level.startswith("UNION") else "")
                + f"{first} a view that only filters and computes columns, looks up at most one row of a public table "
                "(by its PRIMARY KEY, or GROUP BY or DISTINCT ON its key), or have the owner state privacy_unit := the "
                "key, max_rows_per_unit := 1.",
            )
        return None
    date = next(filter(None, map(declarations.date, charged)), None)
    if rows.own_rows:
        raise SourceError(
            "S012",
            f"one privacy unit of {listed} may change rows of others in {show(source)} ({rows.own_rows}). "
            "Keep the unit's column, in every GROUP BY, PARTITION BY, DISTINCT and join of protected tables too."
            + (
                refusals.join_to_write(rows.own_rows)
                if date is None
                else refusals.date_to_keep([column for name in charged for column in declarations.dates(name)])
            )
            + (" Write NOT IN as an ANTI JOIN USING the unit." if rows.own_rows == "MARK JOIN" else ""),
        )
    if rows.pending is not None:
        raise refusals.pending(source, rows.pending, declarations)
    names = [fold(name) for name in columns]
    unit_column = privacy_unit
    if unit_column is None:
        # If a budget has several tables, another table may have a different column of this unit's name.
        is_ambiguous = any(len(declarations.units(name)) > 1 for name in charged)
        passed = {name for position, name in enumerate(names) if position in rows.unit or not is_ambiguous}
        candidates = [unit for unit in units.values() if unit is not None and fold(unit) in passed]
        unit_column = (
            candidates[0]
            if candidates
            else next((names[position] for position in sorted(rows.unit) if position < len(names)), None)
        )
    positions = [
        position for position, name in enumerate(names) if unit_column is not None and name == fold(unit_column)
    ]
    if len(positions) != 1 or positions[0] not in rows.unit:
        unit = next(iter(units.values()))
        raise SourceError(
            "S017",
            f"{show(source)} reads {listed}, whose privacy unit is {show(unit)}, and does not pass that column on as "
            "it is"
            + (f" under the name {show(unit_column)}" if unit_column is not None else "")
            + f". Select {unit} in the view, once; where it has another name, give privacy_unit := that name.",
        )
    return unit_column


def _date_of(
    source: str, columns: Sequence[str], rows: Rows, charged: tuple[str, ...], declarations: Declarations
) -> tuple[str | None, bool]:
    """Return the date column of a budget with periods, and whether the rows are undated instead.

    None and false if no budget has periods.

    Raises
    ------
    SourceError
        S017: the source does not pass the date on unchanged. S012: of several budgets, one has periods.
    """
    date_names = [date for name in charged for date in declarations.dates(name)]
    if not date_names:
        return None, False
    if len(charged) > 1:
        raise SourceError(
            "S012",
            f"{show(source)} reads several protected tables, {', '.join(map(repr, charged))}, and one has periods: "
            "a row may be of two. Release from each.",
        )
    names = [fold(name) for name in columns]
    if rows.date is not None and rows.date.static:
        return None, True
    dates = sorted(rows.date.columns if rows.date is not None else ())
    positions = [position for position in dates if position < len(names) and names.count(names[position]) == 1]
    matches = [position for position in positions if names[position] in map(fold, date_names)]
    if not positions:
        raise refusals.undated(source, charged[0], date_names)
    return names[(matches or positions)[0]], False


def read_texts(
    placement: Placement,
    texts: Catalogued,
    declarations: Declarations,
    catalog: paths.Catalog,
    *,
    is_judged: bool,
) -> tuple[str, bool, tuple[paths.Path, ...]]:
    """Judge the texts behind a source; return their digest, whether they call functions, and tables without a budget.

    These are the tables that the texts name if there is no plan. `is_judged` texts were judged in this state of the
    catalog; they are not read again if a plan shows the rest.

    Raises
    ------
    SourceError
        S041, S042, S044: a source may not contain a function, a type or a text. S043: a table with a budget is next
        to a file or a frame.
    BudgetError
        B006, B007: a table is not declared, or a declared view has changed.
    InternalError
        I006: the texts now call a function, and macros were not listed.
    """
    if paths.is_nameless(placement.written):
        return "", False, ()
    database, schema, name = parts_of(placement.source)
    own = database, schema, name
    if not placement.governed or (placement.seen and is_judged):
        return _digest(view_texts(own[2], texts)), True, ()
    closure = Closure(placement.written, texts, enums=placement.enums)
    closure.source_of_rows(own[2])
    if not placement.seen:
        _refuse_replaced(own, closure, declarations, catalog)
    if texts.macros is None and closure.calls:
        raise InternalError("I006", "what the source calls was not listed. Run the statement again.")
    if not placement.seen and closure.ordered:
        raise refusals.order_decides(placement.written, closure.ordered[0], in_files=True)
    _refuse_unwritten(placement, own, texts)
    free: tuple[paths.Path, ...] = ()
    if not placement.seen:
        charged = () if placement.claimed else placement.charged
        refuse_unseen(placement.written, closure, declarations, catalog, charged=charged, claimed=placement.claimed)
        free = _without_budget(closure, declarations, catalog)
    return _digest(view_texts(own[2], texts)), closure.calls, free


def refuse_lost_keys(placement: Placement, texts: Catalogued) -> None:
    """Raise if a key that makes an order total is not a key of its table in the transaction that reads it."""
    for database, schema, name, *columns in placement.keyed:
        if not any(key <= set(columns) for key in texts.unique((database, schema, name))):
            raise BudgetError(
                "B008",
                f"the constraints of {show(name)} are others than when the statement was prepared. Prepare it again.",
            )


def view_texts(name: str, texts: Catalogued) -> dict[str, str]:
    """Return the texts of the views of a name, and of the views that they name; all texts of views of one name.

    Named releases store a digest of these texts, so the form stays.
    """
    definitions: dict[str, str] = {}
    names, seen = [fold(name)], set[str]()
    while names:
        name = names.pop()
        if name in seen:
            continue
        seen.add(name)
        for view in texts.views:
            if fold(view.path[2]) == name and view.sql:
                definitions[name] = "\n".join(sorted((*filter(None, [definitions.get(name)]), view.sql)))
                names += map(fold, relations(view.sql))
    return definitions


def _digest(texts: Mapping[str, str]) -> str:
    return paths.digest("\n".join(f"{name}\n{text}" for name, text in sorted(texts.items())))


def _folded(path: paths.Path) -> tuple[str, ...]:
    return tuple(map(fold, path))


def _refuse_unwritten(placement: Placement, own: paths.Path, texts: Catalogued) -> None:
    """Raise if DuckDB shows a plan of the source and no text: it is a Python relation."""
    definitions = [view.sql for view in texts.views if _folded(view.path) == _folded(own)]
    if placement.seen and not any(definitions) and _folded(own) not in map(_folded, texts.tables):
        raise refusals.unreadable_text(placement.written)


def refuse_unseen(
    source: str,
    closure: Closure,
    declarations: Declarations,
    catalog: paths.Catalog,
    *,
    charged: tuple[str, ...],
    claimed: bool,
) -> None:
    """Raise if a source without a plan is next to a table that has a budget or is undeclared.

    `charged` are the budgets of the source's own declaration, never a claimed budget. The source is `claimed` if the
    caller names its budget.
    """
    files = [*closure.files, *(name for name in closure.relations.values() if is_file(name))]
    mine = {fold(name) for name in charged}
    names: set[str] = set()
    for declaration in declarations.listed:
        name = fold(declaration.dataset) if declaration.table is None else declaration.table.name
        names.add(name)
        roots = {fold(root) for root in declarations.roots([declaration])}
        if name in closure.relations and roots and not roots <= mine:
            raise refusals.beside_unseen(source, declaration.dataset, files)
    for path in closure.catalogued.tables:
        if claimed and fold(path[2]) in closure.relations and fold(path[2]) not in names:
            raise refusals.undeclared(catalog.display(path), declarations)


def _without_budget(closure: Closure, declarations: Declarations, catalog: paths.Catalog) -> tuple[paths.Path, ...]:
    """Return the tables in the texts without rows of people, as far as names tell."""
    tables = (path for path in closure.catalogued.tables if fold(path[2]) in closure.relations)
    return tuple(path for path in tables if not declarations.roots(declarations.about(catalog.table(path), path[0])))


def text_digest(own: paths.Path, texts: Catalogued) -> str:
    """Return the digest that identifies a view that DuckDB cannot serialize: of the texts behind the view."""
    closure = Closure(own[2], texts)
    for view in texts.views:
        if _folded(view.path) == _folded(own):
            closure.view(view)
    return BY_TEXT + _digest(closure.texts)


def _refuse_replaced(own: paths.Path, closure: Closure, declarations: Declarations, catalog: paths.Catalog) -> None:
    """Raise if the source reads a declared view whose text has changed."""
    for view in declarations.views():
        path = None if view.table is None else catalog.path(view.table)
        if path is None or view.view is None or not view.view.startswith(BY_TEXT):
            continue
        read = _folded(path) == _folded(own) or fold(path[2]) in closure.relations
        if read and text_digest(path, closure.catalogued) != view.view:
            raise replaced(catalog.display(path))


def replaced(view: str) -> BudgetError:
    """Return the refusal of a declared view that has changed."""
    return BudgetError(
        "B007",
        f"the view {show(view)} is another one than was declared. Declare it again with the same dp_protect, dp_derive "
        "or dp_public.",
    )


def stands_still(declaration: Declaration) -> bool:
    """Whether a view was declared by its plan, so that a view without a plan is another view."""
    return bool(declaration.view) and not str(declaration.view).startswith(BY_TEXT)
