"""One dataset of several tables of the same people: what its owner states of each, and the joins that lead to a person.

A table has the person's id in a column, ``'patient'``, or points to a table that leads there: ``'visit ->
visits.vid'``. What must hold is decided here, before anything is recorded, from names and types alone: paths end, both
ends of each are compared as bytes, and no table is in another dataset. Whether a key is unique is neither required nor
looked at, as that would tell of rows (`stability` has the proof that it does not matter).

With periods each table that has the person's id may have a date, in a column of its own; the end of a path takes the
date of its parent. What may be joined then, and what undated tables are, is in `rows`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed

from dpsql.contract import parameters
from dpsql.contract.names import dotted, parts_of
from dpsql.contract.parameters import fold, show, text
from dpsql.contract.periods import NO_PERIOD
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
# Types of ids beside the integers: of each, equal values have the same bytes.
_OF_ONE_FORM = frozenset(
    (
        *("BOOLEAN", "HUGEINT", "UHUGEINT", "DECIMAL", "VARCHAR", "BLOB", "UUID", "DATE", "TIME"),
        *("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"),
    )
)


@dataclass(frozen=True)
class Stated:
    """What an owner states of one table."""

    name: str
    table: Owned
    column: str  # with the unit, or of the path
    end: tuple[str, ...] = ()  # of a path: the parts of the parent's name, and its column


def stated_of(given: object, owned: Mapping[str, Owned]) -> list[Stated]:
    """Read the argument `tables`, of which each table was found in the catalog.

    Raises
    ------
    ParameterError
        P013, P020, P111: it is no such struct.
    """
    if not isinstance(given, Mapping) or not given:
        raise ParameterError("P013", f"tables must be a struct by name of the table; got {show(given)}. {_HINT}")
    found = []
    for name, said in given.items():
        said = text("tables", said, hint=_HINT).strip()
        path = _ARROW.match(said)
        if path is None:
            found.append(Stated(name, owned[name], _column(said)))
            continue
        end = parts_of(path["end"], most=4) if path["end"] else []
        if len(end) < 2:
            raise ParameterError("P111", f"the path of {show(name)} ends at no column; got {show(said)}. {_HINT}")
        found.append(Stated(name, owned[name], _column(path["column"]), tuple(end)))
    return found


def _column(written: str) -> str:
    """Return the name of a column, which may be quoted."""
    parts = parts_of(written, most=None) if written.startswith('"') else [written]
    if len(parts) != 1 or not parts[0]:
        raise ParameterError("P111", f"{show(written)} is not the name of one column. {_HINT}")
    return parts[0]


def protect_tables(
    sources: Sources,
    dataset: str,
    given: Mapping[str, object],
    stated: Sequence[Stated],
    *,
    public: Sequence[Owned] = (),
    merge: Sequence[str] = (),
    replace: bool = False,
    mark: bool = True,
    dated_ahead: bool = True,
) -> str:
    """Record one budget for several tables, in place of those to `merge`; return what now holds, in words.

    Tables that the dataset has already stay in it: what was charged was charged for their rows, too. Parameters as of
    `Sources.protect`.

    Raises
    ------
    ParameterError
        P111: the tables, their paths or the relation do not fit.
    SourceError
        S002: a table has no such column.
    BudgetError
        B005: another budget or path stands. B009: a table that is to be public has rows of people.
    """
    name = fold(dataset)
    if given.get("privacy_unit") is not None:
        raise ParameterError("P111", "tables say which column holds the privacy unit. Leave privacy_unit out.")
    if given.get("neighbours") not in (None, "add_remove"):
        raise ParameterError(
            "P111",
            "several tables have neighbours := 'add_remove' alone: under 'replace' rows that two people share would "
            "change hands. Leave neighbours out.",
        )
    ended = [fold(each) for each in merge]
    for one in stated:
        _refuse_taken(sources, {name, *ended}, one)
    before = _standing(sources, name, stated)
    caps = _caps(given.get("max_rows_per_unit"), stated)
    given = {**given, "max_rows_per_unit": max(caps.values())} if caps else given
    standing, _ = sources.recorded(name)
    labels = given.get("enum_labels", standing.enum_labels if standing is not None and replace else None) == "public"
    new = _facts(sources, stated, caps, labels=labels)
    tables = _with(before, new)
    _refuse_endless(tables)
    if len({one["kind"] for one in tables if "kind" in one}) > 1:
        raise ParameterError(
            "P111", "the ids of the tables have different types, so no id names one person. Give them one type."
        )
    for each in ended:
        _refuse_merge(sources, name, each, tables)
    units = (str(table["unit"]) for table in tables if table.get("unit") is not None)
    given = {**given, "privacy_unit": next(units), "neighbours": "add_remove"}
    dates = _dates(standing, given, list(zip(stated, new, strict=True)), tables, replace=replace)
    is_longer = _is_longer(standing, dates)
    if dates is not None:
        given["period_of"] = standing.period_of if standing is not None and is_longer else dates
    budget = sources.restated(name, given, replace=replace)
    if is_longer:  # tables are added, which changes nothing of those that stand
        budget = changed(budget, period_of=dates)
    moved = [one["name"] for one in tables if any(_is_moved(one, old) for old in before)]
    if moved and not replace:
        raise BudgetError(
            "B005",
            f"{show(moved[0])} has another column or path in the dataset {show(name)}. Only the data's owner can "
            "change it, with replace := true.",
        )
    stands = [Declaration.of(PROTECT, name, one) for one in tables]
    for shown in public:
        sources.refuse_public(shown, stands=stands)
    if mark:
        for one in stated:
            sources.mark(one.table.path)
        tables = _with(before, _facts(sources, stated, caps, labels=labels))
    facts: Facts = {"table": None, "view": None, "columns": [], "tables": tables}
    merges = {each: _keeps_dates(sources, each, tables, budget) for each in ended}
    alike = sources.second_budget([Declaration.of(PROTECT, name, one) for one in tables], {name, *ended})
    said = sources.keep_budget(
        name, budget, facts, public, replace=replace or is_longer, merge=merges, dated_ahead=dated_ahead
    )
    listed = ", ".join(f"{one['name']} ({path_text(one)})" for one in tables)
    unsaid = private_labels_text(budget.enum_labels, [(one.table.columns, one.table.node) for one in stated])
    return f"{said}; tables {listed}{unsaid}{alike}"


def _standing(sources: Sources, name: str, stated: Sequence[Stated]) -> list[Facts]:
    """Return what is recorded of the tables that a dataset has; raise if its name stands for something else."""
    budget, recorded = sources.recorded(name)
    if budget is None:
        return []
    into = sources.declarations().aliases.get(name)
    if into is not None:
        raise ParameterError("P111", f"{show(name)} was merged into {show(into)}. Give the dataset another name.")
    if recorded is not None and recorded.get("tables"):
        return list(recorded["tables"])
    mine = {sources.catalog().table(one.table.path) for one in stated}
    old = [one for one in sources.declarations().listed if one.kind == PROTECT and one.dataset == name]
    if budget.privacy_unit is None or not mine & {one.table for one in old}:
        raise ParameterError(
            "P111",
            f"there is a budget of the name {show(name)}, which is of other rows. Give the dataset of the tables "
            "another name.",
        )
    return [{**table, "unit": budget.privacy_unit, "path": None, "name": name} for table in tables_of(recorded)]


def _is_moved(one: Facts, old: Facts) -> bool:
    """Whether something else is stated of a table than before; its columns may have changed meanwhile."""
    same = tuple(one["table"] or ()) == tuple(old["table"] or ())
    return same and (one["unit"], one["path"], one.get("rows")) != (old["unit"], old["path"], old.get("rows"))


def _with(before: Sequence[Facts], new: Sequence[Facts]) -> list[Facts]:
    """Return the tables that stand, each as it was stated last, and the new ones."""
    latest = {tuple(one["table"] or ()): one for one in (*before, *new)}
    return list(latest.values())


def _refuse_merge(sources: Sources, name: str, ended: str, tables: Sequence[Facts]) -> None:
    """Raise unless a dataset may end, and what was spent of it count for the new one.

    What was released on it must be private for the same person, under the same relation; and no table of it may be left
    behind. A dataset that begins with what others have spent has spent nothing of its own.
    """
    declarations = sources.declarations()
    if declarations.aliases.get(ended) == name:
        return
    budget, _ = sources.recorded(ended)
    now = {tuple(table["table"] or ()): Declaration.of(PROTECT, name, table) for table in tables}
    old = [one for one in declarations.listed if one.kind == PROTECT and one.dataset == ended]
    wrong = ""
    if budget is None:
        wrong = "has no budget"
    elif ended == name or sources.has_entries(name):
        wrong = f"cannot be merged into {show(name)}, which has entries of its own. Give the dataset a new name"
    elif budget.privacy_unit is None or budget.neighbours == "replace":
        wrong = "protects another unit than a person who comes or goes. Leave it out, with its tables"
    for one in old:
        new = None if one.table is None else now.get(tuple(one.table))
        if one.table is not None and (new is None or (new.telling, new.path) != (one.telling, one.path)):
            wrong = f"has the table {show(one.table.name)}. Give it in tables, with its column or path as it was"
    if wrong:
        raise ParameterError("P111", f"{show(ended)} {wrong}.")


def _keeps_dates(sources: Sources, ended: str, tables: Sequence[Facts], now: Budget) -> bool:
    """Whether the rows of a dataset that ends have the dates under a new budget that they had.

    The end of a path has those of its parent, which is in the same dataset before and after.
    """
    budget, recorded = sources.recorded(ended)
    if budget is None or budget.dated is None or now.dated is None or budget.period_zone != now.period_zone:
        return False
    before, after = budget.period_of, now.period_of
    names = {tuple(one["table"] or ()): str(one["name"]) for one in tables}
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
    """Whether two columns of dates are one, or neither is one."""
    return column == other if column is None or other is None else fold(str(column)) == fold(str(other))


def _dates(
    standing: Budget | None,
    given: Mapping[str, object],
    stated: Sequence[tuple[Stated, Facts]],
    tables: Sequence[Facts],
    *,
    replace: bool,
) -> dict[str, str | None] | None:
    """Return what is stated of the dates of each table, as of `Dated.tables`; None without periods.

    Raises
    ------
    ParameterError
        P111: a table is named that is none of them, or that takes its parent's date. P112: no date, or none of a type
        that has one.
    SourceError
        S002: a table has no such column.
    BudgetError
        B005: a table has another date.
    """
    kept = standing.period_of if standing is not None and replace and given.get("period") is None else None
    said = given.get("period_of")
    if given.get("period") == NO_PERIOD or (given.get("period") is None and kept is None):
        return None
    before = standing.period_of if standing is not None and isinstance(standing.period_of, dict) else {}
    columns = _columns_of_dates(said, stated)
    unknown = set(columns) - {str(one["name"]) for one in tables}
    if unknown:
        raise ParameterError("P111", f"period_of names {show(min(unknown))}, which is no table. {_DATED}")
    found: dict[str, str | None] = {}
    for table in tables:
        name = str(table["name"])
        if table.get("path") is None:
            found[name] = columns[name] if name in columns else before.get(name)
        elif columns.get(name) is not None:
            raise ParameterError(
                "P111", f"{show(name)} is at the end of a path, and takes its parent's date. Leave it out of period_of."
            )
        else:
            found[name] = _whole_path(table, tables)
        if name in before and before[name] != found[name] and not replace:
            raise BudgetError(
                "B005",
                f"{show(name)} has another date in the dataset. Only the data's owner can change it, with "
                "replace := true; every period then begins with what one person lost in all.",
            )
    if not any(found[str(one["name"])] for one in tables if one.get("path") is None):
        raise ParameterError("P112", f"no table has a date. {_DATED}")
    zone = given.get("period_zone") or (standing.period_zone if standing is not None else None)
    for each, facts in stated:
        date = found[str(facts["name"])]
        if not each.end and date is not None:
            _refuse_no_date(each, date, zoned=zone is not None)
    return found


def _whole_path(one: Facts, tables: Sequence[Facts]) -> str:
    """Return the path of a table in words that tell parents of one name in two schemas apart."""
    path = one["path"] or {}
    parent = tuple(path["parent"]) if isinstance(path["parent"], (list, tuple)) else ()
    named = next(str(table["name"]) for table in tables if tuple(table["table"] or ()) == parent)
    return f"{path['column']} -> {named}.{path['key']}"


_DATED = "Give each dated table the column of its date: period_of := {visits: 'day'}."


def _columns_of_dates(said: object, stated: Sequence[tuple[Stated, Facts]]) -> dict[str, str | None]:
    """Return the columns that are given, by the names of tables; one name is of every table that has the column."""
    if said is None:
        return {}
    if isinstance(said, Mapping):
        names = {fold(one.name): str(facts["name"]) for one, facts in stated}
        return {
            names.get(fold(name), fold(name)): None if column is None else text("period_of", column, hint=_DATED)
            for name, column in said.items()
        }
    column = text("period_of", said, hint=_DATED)
    having = [
        str(facts["name"]) for one, facts in stated if not one.end and fold(column) in map(fold, one.table.columns)
    ]
    if not having:
        raise SourceError("S002", f"no table has both the person's id and a column {show(column)}. {_DATED}")
    return dict.fromkeys(having, column)


def _refuse_no_date(one: Stated, column: str, *, zoned: bool) -> None:
    """Raise unless a table has a column of a type that has dates."""
    kind = bound.type_of(_expression(one, column))
    if kind not in (("TIMESTAMP WITH TIME ZONE",) if zoned else ("DATE", "TIMESTAMP")):
        wanted = "TIMESTAMP WITH TIME ZONE, as period_zone says" if zoned else "DATE or TIMESTAMP"
        raise ParameterError(
            "P112", f"{show(one.name)}.{column} is a {kind}, and no {wanted}. Cast it where the table is made."
        )


def _is_longer(standing: Budget | None, dates: Mapping[str, str | None] | None) -> bool:
    """Whether dates are those that stand, and of more tables."""
    before = None if standing is None else standing.period_of
    return isinstance(before, dict) and dates is not None and before.items() < dates.items()


def _refuse_taken(sources: Sources, mine: Collection[str], one: Stated) -> None:
    """Raise if a table belongs to another dataset."""
    declarations = sources.declarations()
    other = [root for root in declarations.roots(sources.about(one.table.path)) if root not in mine]
    if other:
        raise ParameterError(
            "P111",
            f"{show(one.name)} has the budget {show(other[0])}. A table is in one dataset: leave it out, or name that "
            f"budget, merge := [{literal(other[0])}].",
        )


def _caps(given: object, stated: Sequence[Stated]) -> dict[str, int]:
    """Return the rows of a person by the folded name of the table; nothing where one number is for all of them."""
    if not isinstance(given, Mapping):
        return {}
    hint = "Give the rows that one person may have in each table: max_rows_per_unit := {visits: 4, labs: 20}."
    caps = {
        fold(name): parameters.positive_integer("max_rows_per_unit", rows, hint=hint) for name, rows in given.items()
    }
    unknown = set(caps) - {fold(one.name) for one in stated}
    if unknown or not caps:
        raise ParameterError(
            "P111", f"max_rows_per_unit names {show(min(unknown, default=''))}, which is no table. {hint}"
        )
    return caps


def _facts(sources: Sources, stated: Sequence[Stated], caps: Mapping[str, int], *, labels: bool) -> list[Facts]:
    """Return what is recorded of each table."""
    known = [(one, sources.facts(one.table, is_permanent=True, labels=labels)) for one in stated]
    out: list[Facts] = []
    for one, facts in known:
        kind = _kind(one, one.column)
        about: Facts = {**facts, "name": sources.catalog().display(one.table.path)}
        if fold(one.name) in caps:
            about["rows"] = caps[fold(one.name)]
        if not one.end:
            out.append({**about, "unit": one.column, "path": None, "kind": kind})
            continue
        parent, end = _parent(one, known)
        key = one.end[-1]
        if _kind(parent, key) != kind:
            raise ParameterError(
                "P111",
                f"{show(one.name)}.{one.column} and {show(parent.name)}.{key} have different types, so they are not "
                "compared as they are. Give both columns one type.",
            )
        for each in (one, parent):
            if each.table.shown:
                raise ParameterError(
                    "P111", f"a path leads through tables, and {show(each.name)} is a view. Make it one."
                )
        path = {"column": one.column, "parent": end["table"], "key": key, "text": kind == "VARCHAR"}
        out.append({**about, "unit": None, "path": path})
    return out


def _parent(one: Stated, known: Sequence[tuple[Stated, Facts]]) -> tuple[Stated, Facts]:
    """Return the table that a path's step leads to."""
    wanted = [fold(part) for part in one.end[:-1]]
    found = [each for each in known if [fold(part) for part in each[0].table.path][-len(wanted) :] == wanted]
    if len(found) != 1:
        raise ParameterError(
            "P111",
            f"the path of {show(one.name)} leads to {show(dotted(one.end[:-1]))}, which is not one of the tables. Name "
            "it in tables, with its own column or path.",
        )
    return found[0]


def _kind(one: Stated, column: str) -> str:
    """Return how a column's values are compared: as integers, as text, or as those of a type of one form.

    Raises
    ------
    SourceError
        S002: there is no such column.
    ParameterError
        P111: the type cannot be seen, or equal values of it may differ.
    """
    expression = _expression(one, column)
    kind = bound.type_of(expression)
    if kind in INTEGERS:
        return "integer"
    if kind not in _OF_ONE_FORM:
        raise ParameterError(
            "P111",
            f"{show(one.name)}.{column} is a {kind}, of which equal values may be written in more than one way. Use a "
            "column of integers, text, dates or UUIDs.",
        )
    return kind if kind == "VARCHAR" else str(bound.as_node(expression).get("return_type"))


def _expression(one: Stated, column: str) -> object:
    """Return what the plan of a table has of a column."""
    names = [fold(name) for name in one.table.columns]
    if one.table.node is None or not names:
        raise ParameterError(
            "P111", f"the types of {show(one.name)} cannot be seen. Make it a table: CREATE TABLE ... AS FROM ...."
        )
    if fold(column) not in names:
        raise SourceError("S002", f"there is no column {show(column)} in {show(one.name)}. Check its name.")
    return bound.listed(one.table.node, "expressions")[names.index(fold(column))]


def _refuse_endless(tables: Sequence[Facts]) -> None:
    """Raise if a path goes in a circle, or has too many steps."""
    steps = {tuple(one["table"] or ()): one.get("path") for one in tables}
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
