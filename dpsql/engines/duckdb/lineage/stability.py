"""Stability: how many rows of a bound plan's result one row, or one privacy unit, can change.

Two properties of an operator's rows are derived from the leaves of a plan upwards (`Rows`):

* **Row level.** Each row comes from one row of one protected table, and each row of that table gives at most one. So
  adding or removing a row of the table adds or removes at most one row here, and changing one changes at most one.
* **Own rows.** Each row carries a privacy unit, as it is, in a known column, or NULL and then belongs to nobody; and
  the rows of a unit are a function of the unit's rows, of the rows that it reaches, and of public rows. So adding or
  removing a unit changes only rows that carry that unit, and the cap on rows per unit bounds their number.

**Paths.** A table may have no column with the unit, and one that points to a key of another table: a path, ``labs.visit
-> visits.vid``. A unit *reaches* a row if a row of it, or one that it reaches, has the key that the row points to;
equality is that of bytes, and NULL points to nothing. Removing the unit u removes all rows that carry u, and every row
that u reaches and nobody else does. So what another unit w has or reaches stays as it is, and to show is only that w's
rows here are a function of that. Rows that nobody reaches never change.

Until a join says whose they are, rows are *pending*: `Rows.pending` names the key, and `Rows.unit` has the columns that
point to it. What holds of them is the same with a key in place of the unit:

1. *pending on the key K*: the rows that point to a value k of K are a function of those rows of tables with a path to K
   that point to k, of the rows that these reach, and of public rows;
2. *a tie to the key K* (`Rows.ties`) is a column of which every value k, in a row that belongs to a unit (or, of
   pending rows, to a value), is the key of a row that this unit has or reaches (or that this value does). A column
   that is the end of a path is one. NULL is no value.

By induction over the operators, with "owner" for unit or value:

* A scan has both: of its own rows, by definition. Projections, filters, unnest and joins with public rows look at one
  row. Groups, DISTINCT and windows keep to one owner's rows where they contain its column. UNION ALL adds functions of
  one owner's rows, where both parts have owners of one kind.
* Two inputs with owners of one kind that meet by ``owner = owner``: one owner's result is made of its rows of both.
* A left input with a tie to K, and a right one pending on K, that meet by ``tie = owner``: if a row of the owner u
  meets rows that point to k, then by (2) u reaches these, so by (1) the result of u is a function of what it reaches.
  The right side's column is a tie by then: it equals one. The owner of the result is that of the left side. It is the
  same with the sides exchanged, where a LEFT JOIN adds rows with NULL in place of an owner: they are nobody's.
* SEMI, ANTI and MARK joins by these conditions keep or mark an owner's rows by the owner's other rows. But pending rows
  on the left are not chosen by rows that have the key: these may be of several owners, and a row that two reach would
  stay because of one of them.
* Two rows that *have* the same key (``visits a JOIN visits b ON a.vid = b.vid``) need not be of one unit, since a key
  may repeat: a tie meets no tie, and a group by a key mixes units. Whether a key is unique is not asked, and nothing
  above uses it.

**Periods.** Where rows are dated, an owner is a person in a period, and a table may be undated: see `dates`.

Rows that are still pending at the root belong to nobody that is known: the source is refused (S017). NULL units are
dropped, and the cap is applied, to the rows of the root: after the last join, before anything is added up.

The rows of an operator must follow from those of its inputs, and not from the order in which DuckDB reads them
(`orders`). What breaks this is noted as `unfixed`, of public rows, too: rows of people can decide in which order DuckDB
reads them, such as by the filter that a join pushes down.

Both follow by induction from a rule for each operator. An operator without a rule keeps neither, and the error names
it. If not even the inputs of an operator are known, it is an `UnreadableError`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dpsql.engines.duckdb.lineage import bound, orders, spellings
from dpsql.engines.duckdb.lineage.dates import Equality, is_date, places_of_dates
from dpsql.engines.duckdb.lineage.joins import (
    LEFT_SIDE,
    beside_public,
    chooses,
    equal_columns,
    equal_columns_of,
    matches_one,
    of_people,
    passed_on,
    side_by_side,
)
from dpsql.engines.duckdb.lineage.numbering import (
    blind,
    checked_firsts,
    conjuncts,
    firsts_of,
    numbering_of,
    one_number,
    places,
    says_whose,
    windows_of,
)
from dpsql.engines.duckdb.lineage.rows import (
    PUBLIC,
    Leaf,
    Rows,
    leaf_rows,
    together,
    union_of,
)

# Table functions whose rows depend only on their arguments.
GENERATORS = frozenset(("range", "generate_series", "unnest", "repeat", "repeat_row"))
# Operators that a view's plan can begin with.
_VIEW_KINDS = frozenset(("PROJECTION", "DISTINCT", "ORDER_BY", "LIMIT", "UNION", "SECURE_VIEW", "MATERIALIZED_CTE"))
_PROJECTION_MAP = "a projection map"


def is_shown(node: bound.Node, beside: Collection[str] = ()) -> bool:
    """Whether a plan shows everything that it reads; DuckDB 1.5 also serializes files and frames, by address.

    `beside` are table functions that are read, and whose rows are no part of the source.
    """
    known = {*GENERATORS, *beside}
    return all(bound.table_of(scan) is not None or bound.function_of(scan) in known for scan in bound.scans(node))


@dataclass
class _Walk:
    leaf: Callable[[tuple[str, str, str], Leaf | None], Leaf | None]
    views: Mapping[str, Leaf]
    definitions: Mapping[int, bound.Node]  # of WITH queries that are defined outside the part that is walked
    defined: dict[int, Rows] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)  # the scans met so far, by their address
    covered: Leaf | None = None  # of the outermost declared view that encloses the present operator
    unneeded: set[int] = field(default_factory=set)  # scans of no column, which show rowid instead, by their address
    sorted: dict[int, frozenset[int]] = field(default_factory=dict)  # columns that the operator above sorts as lists
    demanded: dict[int, frozenset[int]] = field(default_factory=dict)  # columns that the filter above wants true
    equated: dict[int, Sequence[Equality]] = field(default_factory=dict)  # and columns that it wants to be equal
    alone: set[int] = field(default_factory=set)  # aggregates of one row at most, or an error is raised, by address

    def rows(self, node: bound.Node) -> Rows:
        name = bound.kind(node)
        found = self._view(node, name)
        if found is not None:
            return found
        rule = _RULES.get(name)
        if rule is None:
            raise bound.UnreadableError(name)
        return rule(self, node)

    def inputs(self, node: bound.Node, count: int | None = None) -> list[Rows]:
        """Return the rows of an operator's inputs; raise unless there are as many as it has by its kind."""
        found = [self.rows(child) for child in bound.children(node)]
        if count is not None and len(found) != count:
            raise bound.UnreadableError(bound.kind(node))
        return found

    def demand(self, node: bound.Node, columns: frozenset[int]) -> None:
        """Note which columns of an operator's first input must be true for a row to be kept."""
        for child in bound.children(node)[:1]:
            self.demanded[id(child)] = columns

    def pass_equated(self, node: bound.Node) -> Sequence[Equality]:
        """Return the columns of a join that the filter above wants to be equal; its first input passes them on."""
        equated = self.equated.get(id(node), ())
        self.equated.update((id(child), equated) for child in bound.children(node)[:1])
        return equated

    def _view(self, node: bound.Node, name: str) -> Rows | None:
        """Return the rows of a declared view if this operator is the whole view."""
        if not self.views or name not in _VIEW_KINDS:
            return None
        leaf = self.views.get(bound.normal_form(node))
        if leaf is None:
            return None
        outer, self.covered = self.covered, self.covered or leaf
        below = _RULES[name](self, node)
        self.covered = outer
        rows = leaf_rows(leaf, bound.output(node) or [])
        if below.public:  # tables that the view covers
            return replace(rows, unfixed=below.unfixed, to_order=below.to_order, loose=below.loose)
        # Both the view and the tables that it reads have budgets: the rows keep the properties that hold for both.
        both = together([rows, below], rows.width)
        same = rows.pending == below.pending
        date = both.date and both.date.at(
            () if rows.date is None or below.date is None else rows.date.columns & below.date.columns
        )
        unit = rows.unit & below.unit if same else frozenset[int]()
        return replace(both, unit=unit, pending=rows.pending, date=date, loose=below.loose)


def walk(
    node: bound.Node,
    leaf: Callable[[tuple[str, str, str], Leaf | None], Leaf | None],
    views: Mapping[str, Leaf],
    within: bound.Node | None = None,
) -> Rows:
    """Return what a plan returns, or the part of one that is defined `within` a whole plan.

    `leaf` takes a table's path, and what is declared of a view that encloses the scan. It returns the declaration about
    the table; None counts as public here, and the caller then refuses the source. `views` has what was declared about
    views, by the normal form of their plans.

    Raises
    ------
    UnreadableError
        The plan has an operator that cannot be interpreted, or a scan outside the operators' children.
    """
    walking = _Walk(leaf, views, {} if within is None else dict(_definitions(within)))
    rows = walking.rows(node)
    # A scan inside an expression is read too, although no operator passes its rows on.
    return rows if {id(scan) for scan in bound.scans(node)} <= walking.seen else rows.broken("SUBQUERY")


def _definitions(node: bound.Node) -> Iterator[tuple[int, bound.Node]]:
    for one in bound.operators(node):
        if bound.kind(one) == "MATERIALIZED_CTE" and bound.children(one):
            yield bound.number(one, "table_index"), bound.children(one)[0]


def _get(walking: _Walk, node: bound.Node) -> Rows:
    walking.seen.add(id(node))
    names = bound.scanned_columns(node)
    table = bound.table_of(node)
    if table is not None:
        if bound.children(node):
            raise bound.UnreadableError("GET")
        rows = leaf_rows(walking.leaf(table, walking.covered) or PUBLIC, names)
        return rows.broken("rowid") if None in names and id(node) not in walking.unneeded else rows
    if bound.function_of(node) not in GENERATORS:
        raise bound.UnreadableError(bound.function_of(node))
    below = walking.inputs(node)  # unnest(column) has the rows that it unnests below it
    width = len(names) + len(bound.listed(node, "projected_input"))
    return together(below, width).broken("UNNEST") if below else Rows(width)


def _projection(walking: _Walk, node: bound.Node) -> Rows:
    """Compute columns.

    A scan that needs no column shows rowid. Where nothing above the scan reads a column, nothing reads that one: each
    row is the same constant, however many rows there are.
    """
    expressions = bound.listed(node, "expressions")
    for child in bound.children(node):
        if bound.kind(child) == "GET" and not bound.references(expressions) and bound.scanned_columns(child) == [None]:
            walking.unneeded.add(id(child))
        walking.sorted[id(child)] = orders.sorted_lists(expressions)
        walking.alone |= checked_firsts(child, expressions)
    [rows] = walking.inputs(node, 1)
    rows, loose = blind(rows, expressions)
    out = rows.columns([bound.reference(expression) for expression in expressions])
    return replace(
        out,
        date=places_of_dates(expressions, rows.date),
        unique=out.unique | orders.keys_of(expressions, rows),
        tells=out.tells | orders.tells(expressions, rows),
        loose=frozenset(place for place, one in enumerate(loose) if one),
    )


def _same(walking: _Walk, node: bound.Node) -> Rows:
    """Keep each row unchanged, or drop it depending on its own contents."""
    found: list[bound.Node] = []
    if bound.kind(node) == "FILTER":
        found = list(conjuncts(bound.listed(node, "expressions")))
        walking.demand(node, places(map(bound.reference, found)))
        walking.equated.update((id(child), equal_columns_of(found)) for child in bound.children(node)[:1])
    [rows] = walking.inputs(node, 1)
    rows, _ = blind(one_number(rows, found), found)
    kept = bound.listed(node, "projection_map")
    return rows.columns([bound.whole(position, _PROJECTION_MAP) for position in kept]) if kept else rows


def _broken(walking: _Walk, node: bound.Node) -> Rows:
    found = walking.inputs(node)
    return together(found, max((rows.width for rows in found), default=0)).broken(bound.kind(node))


def _made_up(walking: _Walk, node: bound.Node) -> Rows:
    """Return the rows of a list of constants."""
    walking.inputs(node)
    expressions = bound.listed(node, "expressions")
    if not expressions:
        return Rows(0, alone=bound.kind(node) == "DUMMY_SCAN")
    return Rows(len(bound.as_list(expressions[0])), alone=len(expressions) == 1)


def _distinct(walking: _Walk, node: bound.Node) -> Rows:
    [rows] = walking.inputs(node, 1)
    targets = [bound.reference(target) for target in bound.listed(node, "distinct_targets")]
    keys = places(targets)
    by = [*bound.listed(node, "distinct_targets"), *orders.ordering(node, "order_by")]
    name = "DISTINCT ON" if node.get("distinct_type") == "DISTINCT_ON" else "DISTINCT"
    rows = _chosen(*blind(rows, by)[:1], name, orders.choice(rows, by), node)
    once = rows.once or (None not in targets and keys <= rows.unit)
    rows = replace(rows.mixed("DISTINCT"), keys=keys if None not in targets else frozenset(), once=once)
    if None not in targets:
        rows = replace(rows, unique=rows.unique | {keys})
    return rows if rows.one_unit(keys) else rows.broken("DISTINCT")


def _chosen(rows: Rows, name: str, choice: orders.Choice, node: bound.Node) -> Rows:
    """Return the rows of which an operator chooses or numbers some: unfixed where its order leaves the choice open."""
    if choice.fixed:
        return spellings.loosened(rows, choice.loose)
    begun = bool(orders.ordering(node, "order_by")) or bound.kind(bound.children(node)[0]) == "ORDER_BY"
    return rows.unfixed_by(name, orders.words(orders.columns_of(bound.children(node)[0]), choice.missing, begun))


def _limit(walking: _Walk, node: bound.Node) -> Rows:
    """Keep the first rows: they are fixed where the order right below is total."""
    [rows] = walking.inputs(node, 1)
    [below] = bound.children(node)
    by = orders.ordering(below, "orders") if bound.kind(below) == "ORDER_BY" else []
    return _chosen(rows, "LIMIT", orders.choice(rows, by), node).broken("LIMIT")


def _mixed_up(walking: _Walk, node: bound.Node) -> Rows:
    """Meet rows by their places, or by what DuckDB draws."""
    return _broken(walking, node).unfixed_by(bound.kind(node).replace("_", " "))


def _aggregate(walking: _Walk, node: bound.Node) -> Rows:
    [rows] = walking.inputs(node, 1)
    groups = [bound.reference(group) for group in bound.listed(node, "groups")]
    aggregates = bound.listed(node, "expressions")
    every = frozenset[object](range(len(groups)))
    sets = [frozenset(bound.as_list(one)) for one in bound.listed(node, "grouping_sets")] or [every]
    in_all = frozenset.intersection(*sets)
    in_order = walking.sorted.get(id(node), frozenset())
    by = bound.listed(node, "groups") if len(sets) == 1 else []
    columns = orders.columns_of(bound.children(node)[0])
    rows, loose = blind(rows, bound.listed(node, "groups"))
    for place, one in enumerate(bound.listed(node, "groups")):
        told = spellings.group(one)
        rows = rows.unfixed_by("" if told is None else told)
        loose[place] = loose[place] or told is None
    for place, one in enumerate(map(bound.as_node, aggregates), start=len(groups)):
        judged = orders.aggregate(rows, one, by, is_sorted=place in in_order)
        if id(one) in walking.alone:
            judged = orders.aggregate(replace(rows, alone=True), one, by)
        rows = rows.unfixed_by(judged.unfixed, orders.words(columns, judged.missing, judged.begun))
        loose.append(judged.loose)
    unit = frozenset(place for place, group in enumerate(groups) if group in rows.unit and place in in_all)
    date = places_of_dates(bound.listed(node, "groups"), rows.date)
    ties = frozenset((place, key) for place, group in enumerate(groups) if place in in_all for key in rows.tied(group))
    out = replace(
        rows.mixed("AGGREGATE"),
        width=len(groups) + len(aggregates) + len(bound.listed(node, "grouping_functions")),
        unit=unit,
        ties=ties,
        date=date and date.at(place for place in date.columns if place in in_all),
        alone=len(sets) == 1 and not groups,
        keys=frozenset(range(len(groups) if len(sets) == 1 else 0)),
        unique=frozenset([frozenset(range(len(groups)))] if len(sets) == 1 else ()),
        tells=frozenset(),
        loose=frozenset(place for place, one in enumerate(loose) if one),
        numbers=frozenset(),
        firsts=frozenset(),
        once=len(sets) == 1 and (rows.once or all(map(says_whose(rows), bound.listed(node, "groups")))),
    )
    return out if out.one_unit(range(len(groups))) else out.broken("AGGREGATE")


def _window(walking: _Walk, node: bound.Node) -> Rows:
    [rows] = walking.inputs(node, 1)
    windows = [bound.as_node(window) for window in bound.listed(node, "expressions")]
    by_unit = all(
        rows.one_unit(places(map(bound.reference, parts)), dated=any(is_date(part, rows.date) for part in parts))
        for parts in (bound.listed(one, "partitions") for one in windows)
    )
    rows, loose = windows_of(rows, windows, node)
    numbering = ((place, numbering_of(rows, one)) for place, one in enumerate(windows, start=rows.width))
    numbers = rows.numbers | {(place, among) for place, among in numbering if among is not None}
    out = replace(rows.mixed("WINDOW"), width=rows.width + len(windows), numbers=numbers, loose=loose)
    out = replace(out, firsts=rows.firsts | firsts_of(rows, windows))
    return out if by_unit else out.broken("WINDOW")


def _unnest(walking: _Walk, node: bound.Node) -> Rows:
    [rows] = walking.inputs(node, 1)
    rows, _ = blind(rows, bound.listed(node, "expressions"))
    width = rows.width + len(bound.listed(node, "expressions"))
    none: frozenset[Any] = frozenset()
    return replace(
        rows.mixed("UNNEST"), width=width, keys=none, alone=False, once=False, numbers=none, firsts=none, unique=none
    )


def _cte(walking: _Walk, node: bound.Node) -> Rows:
    definition, query = _halves(node)
    # A definition counts as read each time it is referenced.
    walking.defined[bound.number(node, "table_index")] = walking.rows(definition)
    return walking.rows(query)


def _cte_reference(walking: _Walk, node: bound.Node) -> Rows:
    index = bound.number(node, "cte_index")
    if index not in walking.defined:
        if index not in walking.definitions:
            raise bound.UnreadableError("CTE_REF")
        walking.defined[index] = walking.rows(walking.definitions[index])
    return walking.defined[index]


def _recursive(walking: _Walk, node: bound.Node) -> Rows:
    first, step = _halves(node)
    start = walking.rows(first).broken("RECURSIVE_CTE")
    walking.defined[bound.number(node, "table_index")] = replace(start, keys=frozenset(), alone=False)
    return together([start, walking.rows(step)], start.width).broken("RECURSIVE_CTE")


def _halves(node: bound.Node) -> list[bound.Node]:
    found = bound.children(node)
    if len(found) != 2:
        raise bound.UnreadableError(bound.kind(node))
    return found


def _cross(walking: _Walk, node: bound.Node) -> Rows:
    equated = walking.pass_equated(node)
    left, right = walking.inputs(node, 2)
    rows = side_by_side(left, right, "INNER")
    if rows.public:
        return replace(rows, alone=left.alone and right.alone)
    if not left.public and not right.public:
        # FROM a, b WHERE a.unit = b.unit: the filter above keeps what a join would.
        found = of_people(left, right, "INNER", _across(equated, left.width), choosing=False) if rows.by_unit else None
        return rows.broken("CROSS_PRODUCT") if found is None else replace(rows.mixed("CROSS_PRODUCT"), **found)
    people, beside = (left, right) if right.public else (right, left)
    rows = replace(replace(rows, **passed_on(left, right)), once=people.once and beside.alone)
    return rows if beside.alone else rows.mixed("CROSS_PRODUCT")


def _across(equated: Sequence[Equality], width: int) -> list[Equality]:
    """Return what a filter above a join demands of one column of either side, the left one of so many columns."""
    return [one._replace(right=one.right - width) for one in equated if one.left < width <= one.right]


def _join(walking: _Walk, node: bound.Node) -> Rows:
    name, conditions = str(node.get("join_type", "INNER")), bound.listed(node, "conditions")
    equated = walking.pass_equated(node) if name == "INNER" and not any(_maps(node)) else ()
    demanded = walking.demanded.get(id(node), frozenset()) if not any(_maps(node)) else frozenset()
    walking.demand(node, demanded)  # a filter over several IN stands over all their joins
    left, right = walking.inputs(node, 2)
    rows = side_by_side(left, right, name, conditions)
    if name == "SINGLE" and not matches_one(right, conditions, "right"):
        rows = rows.unfixed_by("a subquery in place of a value")
    for side, each in (("left", left), ("right", right)):
        rows = rows.unfixed_by(blind(each, [bound.as_node(one).get(side) for one in conditions])[0].unfixed)
    if rows.public:
        rows = replace(rows, keys=left.keys if name in LEFT_SIDE else frozenset())
    elif left.public or right.public:
        rows = beside_public(rows, left, right, name, conditions)
    else:
        marked = chooses(name, conditions, left.width in demanded)
        equal = [*equal_columns(conditions), *_across(equated, left.width)]
        found = of_people(left, right, name, equal, choosing=marked) if rows.by_unit else None
        rows = rows.broken(f"{name} JOIN") if found is None else replace(rows.mixed(f"{name} JOIN"), **found)
    return _projected(rows, node, left.width, right.width)


def _maps(node: bound.Node) -> list[list[object]]:
    """Return the columns of either side that a join keeps; nothing where it keeps all."""
    return [list(bound.listed(node, f"{side}_projection_map")) for side in ("left", "right")]


def _projected(rows: Rows, node: bound.Node, left: int, right: int) -> Rows:
    """Return a join's rows with only the columns that its maps keep."""
    kept = _maps(node)
    if not any(kept):
        return rows
    first = [bound.whole(place, _PROJECTION_MAP) for place in kept[0]] or list(range(left))
    if rows.width <= left + 1:  # no column of the right side, or only a mark
        second: list[int] = list(range(left, rows.width))
    else:
        second = [left + bound.whole(place, _PROJECTION_MAP) for place in kept[1]] or list(range(left, left + right))
    return rows.columns([*first, *second])


_RULES: Mapping[str, Callable[[_Walk, bound.Node], Rows]] = {
    "GET": _get,
    "PROJECTION": _projection,
    **dict.fromkeys(("FILTER", "ORDER_BY", "SECURE_VIEW"), _same),
    **dict.fromkeys(("DUMMY_SCAN", "EXPRESSION_GET"), _made_up),
    "DISTINCT": _distinct,
    "AGGREGATE_AND_GROUP_BY": _aggregate,
    "WINDOW": _window,
    "UNNEST": _unnest,
    "UNION": lambda walking, node: union_of(walking.inputs(node), kept=bool(node.get("setop_all"))),
    "MATERIALIZED_CTE": _cte,
    "CTE_REF": _cte_reference,
    "RECURSIVE_CTE": _recursive,
    "EMPTY_RESULT": lambda _, node: Rows(len(bound.listed(node, "return_types"))),
    # The outer columns of a correlated subquery: the join above it has their rows.
    "DELIM_GET": lambda _, node: Rows(len(bound.listed(node, "chunk_types"))),
    "CROSS_PRODUCT": _cross,
    "COMPARISON_JOIN": _join,
    **dict.fromkeys(
        (
            *("EXCEPT", "INTERSECT", "PIVOT"),
            *("ANY_JOIN", "DELIM_JOIN", "DEPENDENT_JOIN"),
        ),
        _broken,
    ),
    "LIMIT": _limit,
    **dict.fromkeys(("TOP_N", "SAMPLE", "ASOF_JOIN", "POSITIONAL_JOIN"), _mixed_up),
}
