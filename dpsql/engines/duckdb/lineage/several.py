"""One dataset of several tables of the same people: the owner's declarations, and the joins that lead to a person.

A table has the person's id in a column, ``'patient'``, or points to a table that leads there: ``'visit ->
visits.vid'``. Before it records anything, the module checks names and types alone: paths end, both ends of each path
are compared as bytes, and no table is in another dataset. It neither requires nor checks unique keys, as a check would
tell of rows (`stability` has the proof that uniqueness does not matter).

With periods, each table with the person's id may have a date in a column of its own; the end of a path takes its
parent's date. `rows` says which joins are allowed, and defines undated tables.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace as changed

from dpsql.contract import parameters
from dpsql.contract.names import dotted, parts_of
from dpsql.contract.parameters import fold, show, text
from dpsql.contract.periods import NO_PERIOD
from dpsql.dataclass import dataclass
from dpsql.engines.duckdb.lineage import bound
from dpsql.engines.duckdb.lineage.declarations import PROTECT, Declaration
from dpsql.engines.duckdb.lineage.labels import private_labels_text
from dpsql.engines.duckdb.lineage.rows import INTEGERS
from dpsql.engines.duckdb.lineage.sources import Owned, Sources
from dpsql.errors import BudgetError, ParameterError, SourceError
from dpsql.ledger.budget import Budget
from dpsql.ledger.rows import Facts, path_text, tables_of
from dpsql.rendering import text as literal

DEEPEST = 5  # steps of a path
_HINT = "Give each table its column or its path: tables := {patients: 'id', labs: 'visit -> visits.vid'}."
_ARROW = re.compile(r"^(?P<column>[^>]*?)\s*->\s*(?P<end>.*)$", re.DOTALL)
# Types of ids other than integers: equal values have the same bytes.
_OF_ONE_FORM = frozenset(
    (
        *("BOOLEAN", "HUGEINT", "UHUGEINT", "DECIMAL", "VARCHAR", "BLOB", "UUID", "DATE", "TIME"),
        *("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"),
    )
)


@dataclass(frozen=True)
class TableEntry:
    """An owner's declaration of one table."""

    name: str
    table: Owned
    column: str  # with the unit, or of the path
    end: tuple[str, ...] = ()  # of a path: the parts of the parent's name, and its column


def read_entries(tables: object, owned: Mapping[str, Owned]) -> list[TableEntry]:
    """Read the argument `tables`; the catalog has each table.

    Raises
    ------
    ParameterError
        P013, P020, P111: the struct is wrong.
    """
    if not isinstance(tables, Mapping) or not tables:
        raise ParameterError("P013", f"tables must be a struct by name of the table; got {show(tables)}. {_HINT}")
    entries = []
    for name, description in tables.items():
        description = text("tables", description, hint=_HINT).strip()
        path = _ARROW.match(description)
        if path is None:
            entries.append(TableEntry(name, owned[name], _column(description)))
            continue
        end = parts_of(path["end"], most=4) if path["end"] else []
        if len(end) < 2:
            raise ParameterError(
                "P111", f"the path of {show(name)} ends at no column; got {show(description)}. {_HINT}"
            )
        entries.append(TableEntry(name, owned[name], _column(path["column"]), tuple(end)))
    return entries


def _column(name: str) -> str:
    """Return the name of a column, which may be quoted."""
    parts = parts_of(name, most=None) if name.startswith('"') else [name]
    if len(parts) != 1 or not parts[0]:
        raise ParameterError("P111", f"{show(name)} is not the name of one column. {_HINT}")
    return parts[0]


def protect_tables(
    sources: Sources,
    dataset: str,
    arguments: Mapping[str, object],
    entries: Sequence[TableEntry],
    *,
    public: Sequence[Owned] = (),
    merge: Sequence[str] = (),
    replace: bool = False,
    mark: bool = True,
    dated_ahead: bool = True,
) -> str:
    """Record one budget for several tables, in place of the budgets to `merge`; return a message.

    The dataset keeps its tables: earlier charges were for their rows, too. Parameters as in `Sources.protect`.

    Raises
    ------
    ParameterError
        P111: the tables, their paths or the relation do not fit.
    SourceError
        S002: a table has no such column.
    BudgetError
        B005: another budget or path is declared. B009: a table declared public has rows of people.
    """
    name = fold(dataset)
    if arguments.get("privacy_unit") is not None:
        raise ParameterError("P111", "tables say which column holds the privacy unit. Leave privacy_unit out.")
    if arguments.get("neighbours") not in (None, "add_remove"):
        raise ParameterError(
            "P111",
            "several tables have neighbours := 'add_remove' alone: under 'replace' rows that two people share would "
            "change hands. Leave neighbours out.",
        )
    ended = [fold(other) for other in merge]
    for entry in entries:
        _refuse_taken(sources, {name, *ended}, entry)
    before = _standing(sources, name, entries)
    caps = _caps(arguments.get("max_rows_per_unit"), entries)
    arguments = {**arguments, "max_rows_per_unit": max(caps.values())} if caps else arguments
    standing, _ = sources.recorded(name)
    labels = (
        arguments.get("enum_labels", standing.enum_labels if standing is not None and replace else None) == "public"
    )
    new = _facts(sources, entries, caps, labels=labels)
    tables = _with(before, new)
    _refuse_endless(tables)
    if len({table["kind"] for table in tables if "kind" in table}) > 1:
        raise ParameterError(
            "P111", "the ids of the tables have different types, so no id names one person. Give them one type."
        )
    for other in ended:
        _refuse_merge(sources, name, other, tables)
    units = (str(table["unit"]) for table in tables if table.get("unit") is not None)
    arguments = {**arguments, "privacy_unit": next(units), "neighbours": "add_remove"}
    dates = _dates(standing, arguments, list(zip(entries, new, strict=True)), tables, replace=replace)
    is_longer = _is_longer(standing, dates)
    if dates is not None:
        arguments["period_of"] = standing.period_of if standing is not None and is_longer else dates
    budget = sources.restated(name, arguments, replace=replace)
    if is_longer:  # new tables do not change the present tables
        budget = changed(budget, period_of=dates)
    moved = [table["name"] for table in tables if any(_is_moved(table, old) for old in before)]
    if moved and not replace:
        raise BudgetError(
            "B005",
            f"{show(moved[0])} has another column or path in the dataset {show(name)}. Only the data's owner can "
            "change it, with replace := true.",
        )
    stands = [Declaration.of(PROTECT, name, table) for table in tables]
    for owned in public:
        sources.refuse_public(owned, stands=stands)
    if mark:
        for entry in entries:
            sources.mark(entry.table.path)
        tables = _with(before, _facts(sources, entries, caps, labels=labels))
    facts: Facts = {"table": None, "view": None, "columns": [], "tables": tables}
    merges = {other: _keeps_dates(sources, other, tables, budget) for other in ended}
    alike = sources.second_budget([Declaration.of(PROTECT, name, table) for table in tables], {name, *ended})
    message = sources.keep_budget(
        name, budget, facts, public, replace=replace or is_longer, merge=merges, dated_ahead=dated_ahead
    )
    listed = ", ".join(f"{table['name']} ({path_text(table)})" for table in tables)
    unsaid = private_labels_text(budget.enum_labels, [(entry.table.columns, entry.table.node) for entry in entries])
    return f"{message}; tables {listed}{unsaid}{alike}"


def _standing(sources: Sources, name: str, entries: Sequence[TableEntry]) -> list[Facts]:
    """Return the recorded facts of a dataset's tables; raise if its name has another meaning."""
    budget, recorded = sources.recorded(name)
    if budget is None:
        return []
    into = sources.declarations().aliases.get(name)
    if into is not None:
        raise ParameterError("P111", f"{show(name)} was merged into {show(into)}. Give the dataset another name.")
    if recorded is not None and recorded.get("tables"):
        return list(recorded["tables"])
    mine = {sources.catalog().table(entry.table.path) for entry in entries}
    old = [
        declaration
        for declaration in sources.declarations().listed
        if declaration.kind == PROTECT and declaration.dataset == name
    ]
    if budget.privacy_unit is None or not mine & {declaration.table for declaration in old}:
        raise ParameterError(
            "P111",
            f"there is a budget of the name {show(name)}, which is of other rows. Give the dataset of the tables "
            "another name.",
        )
    return [{**table, "unit": budget.privacy_unit, "path": None, "name": name} for table in tables_of(recorded)]


def _is_moved(new: Facts, old: Facts) -> bool:
    """Whether a table has another unit, path or row limit than before; its columns may differ."""
    same = tuple(new["table"] or ()) == tuple(old["table"] or ())
    return same and (new["unit"], new["path"], new.get("rows")) != (old["unit"], old["path"], old.get("rows"))


def _with(before: Sequence[Facts], new: Sequence[Facts]) -> list[Facts]:
    """Return the present and new tables, each with its latest facts."""
    latest = {tuple(table["table"] or ()): table for table in (*before, *new)}
    return list(latest.values())


def _refuse_merge(sources: Sources, name: str, ended: str, tables: Sequence[Facts]) -> None:
    """Raise unless a dataset may end, and its spent budget count for the new dataset.

    Its releases must be private for the same person, under the same relation, and the new dataset must have all its
    tables. A dataset that begins with spent budgets of others has spent nothing of its own.
    """
    declarations = sources.declarations()
    if declarations.aliases.get(ended) == name:
        return
    budget, _ = sources.recorded(ended)
    now = {tuple(table["table"] or ()): Declaration.of(PROTECT, name, table) for table in tables}
    old = [
        declaration
        for declaration in declarations.listed
        if declaration.kind == PROTECT and declaration.dataset == ended
    ]
    wrong = ""
    if budget is None:
        wrong = "has no budget"
    elif ended == name or sources.has_entries(name):
        wrong = f"cannot be merged into {show(name)}, which has entries of its own. Give the dataset a new name"
    elif budget.privacy_unit is None or budget.neighbours == "replace":
        wrong = "protects another unit than a person who comes or goes. Leave it out, with its tables"
    for declaration in old:
        new = None if declaration.table is None else now.get(tuple(declaration.table))
        if declaration.table is not None and (
            new is None or (new.telling, new.path) != (declaration.telling, declaration.path)
        ):
            wrong = (
                f"has the table {show(declaration.table.name)}. Give it in tables, with its column or path as it was"
            )
    if wrong:
        raise ParameterError("P111", f"{show(ended)} {wrong}.")


def _keeps_dates(sources: Sources, ended: str, tables: Sequence[Facts], now: Budget) -> bool:
    """Whether the rows of a dataset that ends keep their dates under a new budget.

    The end of a path has its parent's dates; the parent stays in the same dataset.
    """
    budget, recorded = sources.recorded(ended)
    if budget is None or budget.dated is None or now.dated is None or budget.period_zone != now.period_zone:
        return False
    before, after = budget.period_of, now.period_of
    names = {tuple(table["table"] or ()): str(table["name"]) for table in tables}
    for table in tables_of(recorded):
        if table.get("table") is None:
            return False
        was = before.get(str(table["name"])) if isinstance(before, Mapping) else before
        name = names.get(tuple(table["table"] or ()))
        if name is None:
            return False
        new = after.get(name) if isinstance(after, Mapping) else after
        if table.get("path") is None and not _is_same(was, new):
            return False
    return True


def _is_same(column: object, other: object) -> bool:
    """Whether two columns of dates are one, or both are None."""
    return column == other if column is None or other is None else fold(str(column)) == fold(str(other))


def _dates(
    standing: Budget | None,
    arguments: Mapping[str, object],
    entries: Sequence[tuple[TableEntry, Facts]],
    tables: Sequence[Facts],
    *,
    replace: bool,
) -> dict[str, str | None] | None:
    """Return the declared dates of each table, as in `Dated.tables`; None without periods.

    Raises
    ------
    ParameterError
        P111: a name is no table, or its table takes its parent's date. P112: no table has a date, or a column's type
        has none.
    SourceError
        S002: a table has no such column.
    BudgetError
        B005: a table has another date.
    """
    old_dates = standing.period_of if standing is not None and replace and arguments.get("period") is None else None
    argument = arguments.get("period_of")
    if arguments.get("period") == NO_PERIOD or (arguments.get("period") is None and old_dates is None):
        return None
    before = standing.period_of if standing is not None and isinstance(standing.period_of, dict) else {}
    columns = _columns_of_dates(argument, entries)
    unknown = set(columns) - {str(table["name"]) for table in tables}
    if unknown:
        raise ParameterError("P111", f"period_of names {show(min(unknown))}, which is no table. {_DATED}")
    dates: dict[str, str | None] = {}
    for table in tables:
        name = str(table["name"])
        if table.get("path") is None:
            dates[name] = columns[name] if name in columns else before.get(name)
        elif columns.get(name) is not None:
            raise ParameterError(
                "P111", f"{show(name)} is at the end of a path, and takes its parent's date. Leave it out of period_of."
            )
        else:
            dates[name] = _path_words(table, tables)
        if name in before and before[name] != dates[name] and not replace:
            raise BudgetError(
                "B005",
                f"{show(name)} has another date in the dataset. Only the data's owner can change it, with "
                "replace := true; every period then begins with what one person lost in all.",
            )
    if not any(dates[str(table["name"])] for table in tables if table.get("path") is None):
        raise ParameterError("P112", f"no table has a date. {_DATED}")
    zone = arguments.get("period_zone") or (standing.period_zone if standing is not None else None)
    for entry, facts in entries:
        date = dates[str(facts["name"])]
        if not entry.end and date is not None:
            _refuse_no_date(entry, date, zoned=zone is not None)
    return dates


def _path_words(table: Facts, tables: Sequence[Facts]) -> str:
    """Return a table's path as text that distinguishes parents of one name in two schemas."""
    path = table["path"] or {}
    parent = tuple(path["parent"]) if isinstance(path["parent"], (list, tuple)) else ()
    name = next(str(candidate["name"]) for candidate in tables if tuple(candidate["table"] or ()) == parent)
    return f"{path['column']} -> {name}.{path['key']}"


_DATED = "Give each dated table the column of its date: period_of := {visits: 'day'}."


def _columns_of_dates(argument: object, entries: Sequence[tuple[TableEntry, Facts]]) -> dict[str, str | None]:
    """Return the date columns by table name; a single column is for every table that has it."""
    if argument is None:
        return {}
    if isinstance(argument, Mapping):
        names = {fold(entry.name): str(facts["name"]) for entry, facts in entries}
        return {
            names.get(fold(name), fold(name)): None if column is None else text("period_of", column, hint=_DATED)
            for name, column in argument.items()
        }
    column = text("period_of", argument, hint=_DATED)
    having = [
        str(facts["name"])
        for entry, facts in entries
        if not entry.end and fold(column) in map(fold, entry.table.columns)
    ]
    if not having:
        raise SourceError("S002", f"no table has both the person's id and a column {show(column)}. {_DATED}")
    return dict.fromkeys(having, column)


def _refuse_no_date(entry: TableEntry, column: str, *, zoned: bool) -> None:
    """Raise unless a table has a column of a type that has dates."""
    kind = bound.type_of(_expression(entry, column))
    if kind not in (("TIMESTAMP WITH TIME ZONE",) if zoned else ("DATE", "TIMESTAMP")):
        types = "TIMESTAMP WITH TIME ZONE, as period_zone says" if zoned else "DATE or TIMESTAMP"
        raise ParameterError(
            "P112", f"{show(entry.name)}.{column} is a {kind}, and no {types}. Cast it where the table is made."
        )


def _is_longer(standing: Budget | None, dates: Mapping[str, str | None] | None) -> bool:
    """Whether dates are the present dates, and more tables'."""
    before = None if standing is None else standing.period_of
    return isinstance(before, dict) and dates is not None and before.items() < dates.items()


def _refuse_taken(sources: Sources, mine: Collection[str], entry: TableEntry) -> None:
    """Raise if a table belongs to another dataset."""
    declarations = sources.declarations()
    other = [root for root in declarations.roots(sources.about(entry.table.path)) if root not in mine]
    if other:
        raise ParameterError(
            "P111",
            f"{show(entry.name)} has the budget {show(other[0])}. A table is in one dataset: leave it out, or name "
            f"that budget, merge := [{literal(other[0])}].",
        )


def _caps(argument: object, entries: Sequence[TableEntry]) -> dict[str, int]:
    """Return the row limits per person by folded table name; none if one limit is for all tables."""
    if not isinstance(argument, Mapping):
        return {}
    hint = "Give the rows that one person may have in each table: max_rows_per_unit := {visits: 4, labs: 20}."
    caps = {
        fold(name): parameters.positive_integer("max_rows_per_unit", rows, hint=hint) for name, rows in argument.items()
    }
    unknown = set(caps) - {fold(entry.name) for entry in entries}
    if unknown or not caps:
        raise ParameterError(
            "P111", f"max_rows_per_unit names {show(min(unknown, default=''))}, which is no table. {hint}"
        )
    return caps


def _facts(sources: Sources, entries: Sequence[TableEntry], caps: Mapping[str, int], *, labels: bool) -> list[Facts]:
    """Return the facts to record of each table."""
    pairs = [(entry, sources.facts(entry.table, is_permanent=True, labels=labels)) for entry in entries]
    out: list[Facts] = []
    for entry, facts in pairs:
        kind = _kind(entry, entry.column)
        about: Facts = {**facts, "name": sources.catalog().display(entry.table.path)}
        if fold(entry.name) in caps:
            about["rows"] = caps[fold(entry.name)]
        if not entry.end:
            out.append({**about, "unit": entry.column, "path": None, "kind": kind})
            continue
        parent, end = _parent(entry, pairs)
        key = entry.end[-1]
        if _kind(parent, key) != kind:
            raise ParameterError(
                "P111",
                f"{show(entry.name)}.{entry.column} and {show(parent.name)}.{key} have different types, so they are "
                "not compared as they are. Give both columns one type.",
            )
        for side in (entry, parent):
            if side.table.is_traced_view or side.table.described:
                raise ParameterError(
                    "P111", f"a path leads through tables, and {show(side.name)} is a view. Make it one."
                )
        path = {"column": entry.column, "parent": end["table"], "key": key, "text": kind == "VARCHAR"}
        out.append({**about, "unit": None, "path": path})
    return out


def _parent(entry: TableEntry, pairs: Sequence[tuple[TableEntry, Facts]]) -> tuple[TableEntry, Facts]:
    """Return the table that a path's step leads to."""
    name = [fold(part) for part in entry.end[:-1]]
    parents = [pair for pair in pairs if [fold(part) for part in pair[0].table.path][-len(name) :] == name]
    if len(parents) != 1:
        raise ParameterError(
            "P111",
            f"the path of {show(entry.name)} leads to {show(dotted(entry.end[:-1]))}, which is not one of the tables. "
            "Name it in tables, with its own column or path.",
        )
    return parents[0]


def _kind(entry: TableEntry, column: str) -> str:
    """Return how a column's values are compared: as integers, as text, or as another type.

    Raises
    ------
    SourceError
        S002: there is no such column.
    ParameterError
        P111: the type is unknown, or its equal values may differ.
    """
    expression = _expression(entry, column)
    kind = bound.type_of(expression)
    if kind in INTEGERS:
        return "integer"
    if kind not in _OF_ONE_FORM:
        raise ParameterError(
            "P111",
            f"{show(entry.name)}.{column} is a {kind}, of which equal values may be written in more than one way. Use "
            "a column of integers, text, dates or UUIDs.",
        )
    return kind if kind == "VARCHAR" else str(bound.as_node(expression).get("return_type"))


def _expression(entry: TableEntry, column: str) -> object:
    """Return a column's expression in its table's plan."""
    node = entry.table.shown
    names = [] if node is None else [fold(name) for name in bound.output(node) or ()]
    if node is None or not names:
        raise ParameterError(
            "P111", f"the types of {show(entry.name)} cannot be seen. Make it a table: CREATE TABLE ... AS FROM ...."
        )
    if fold(column) not in names:
        raise SourceError("S002", f"there is no column {show(column)} in {show(entry.name)}. Check its name.")
    return bound.listed(node, "expressions")[names.index(fold(column))]


def _refuse_endless(tables: Sequence[Facts]) -> None:
    """Raise if a path goes in a circle, or has too many steps."""
    steps = {tuple(table["table"] or ()): table.get("path") for table in tables}
    for table in tables:
        at, count = tuple(table["table"] or ()), 0
        while (path := steps.get(at)) is not None:
            count += 1
            if count > DEEPEST:
                raise ParameterError(
                    "P111",
                    f"the path of {show(table['name'])} has more than {DEEPEST} steps, or goes in a circle. Let it end "
                    "at a table that has the person's id.",
                )
            at = tuple(path["parent"]) if isinstance(path["parent"], (list, tuple)) else ()
