"""Stability: how many rows of a bound plan's result one row, or one privacy unit, can change.

Two properties of an operator's rows are derived from the leaves of a plan upwards (`Rows`):

* **Row level.** Each row comes from one row of one protected table, and each row of that table gives at most one. So
  adding or removing a row of the table adds or removes at most one row here, and changing one changes at most one.
* **Own rows.** Each row depends only on public rows and on rows of the privacy unit that it carries, as it is, in a
  known column. So adding or removing a unit changes only rows that carry that unit, and the cap on rows per unit
  bounds their number.

An aggregate of a unit's rows keeps the second only if their order does not decide it: DuckDB reads rows in morsels, and
which rows fall into one follows from all rows. So doubles are not added (the last bit would follow from the order), and
lists are sorted by what they hold. What breaks this is noted as `unfixed`.

Both follow by induction from a rule for each operator. An operator without a rule keeps neither, and the error names
it. If not even the inputs of an operator are known, it is an `UnreadableError`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dpsql.contract.parameters import fold
from dpsql.engines.duckdb.lineage.bound import (
    Node,
    UnreadableError,
    arguments,
    as_list,
    as_node,
    called,
    calls,
    children,
    function_of,
    kind,
    listed,
    number,
    output,
    reference,
    references,
    scanned_columns,
    scans,
    table_of,
    whole,
)
from dpsql.engines.duckdb.lineage.functions import groups

# Table functions whose rows depend only on their arguments.
GENERATORS = frozenset(("range", "generate_series", "unnest", "repeat", "repeat_row"))
# Operators that a view's plan can begin with.
_VIEW_KINDS = frozenset(("PROJECTION", "DISTINCT", "ORDER_BY", "LIMIT", "UNION", "SECURE_VIEW", "MATERIALIZED_CTE"))
# Joins that return columns of both sides; and those that return each row of the left side at most once.
_BOTH_SIDES = frozenset(("INNER", "LEFT", "RIGHT", "OUTER", "FULL"))
_INTEGERS = frozenset(f"{sign}{size}" for sign in ("", "U") for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT"))
_LEFT_SIDE = frozenset(("SEMI", "ANTI", "MARK", "SINGLE"))
_CHOOSING = frozenset(("SEMI", "ANTI", "MARK"))
# NULL stands for itself in a key, and for nobody as a unit, so that two rows without a unit may meet.
_EQUAL = frozenset(("COMPARE_EQUAL", "COMPARE_NOT_DISTINCT_FROM"))
# Types that add exactly.
_EXACT = _INTEGERS | frozenset(("BOOLEAN", "HUGEINT", "UHUGEINT", "DECIMAL", "BIGNUM", "INTERVAL"))
_LISTS = frozenset(("list", "array_agg", "string_agg", "group_concat", "listagg"))
_NUMBERING = frozenset(
    f"WINDOW_{name}"
    for name in ("ROW_NUMBER", "FIRST_VALUE", "LAST_VALUE", "NTH_VALUE", "LEAD", "LAG", "NTILE", "FILL")
)
_SORTS = frozenset(("list_sort", "array_sort", "list_reverse_sort", "array_reverse_sort"))
# Predictions for a list of names, each of which counts once: `LinearModel.predict_rows` sorts them.
_PREDICTS = frozenset(("dpsql_predict", "dpsql_predict_class"))
_PROJECTION_MAP = "a projection map"


def is_shown(node: Node, beside: Collection[str] = ()) -> bool:
    """Whether a plan shows everything that it reads; DuckDB 1.5 also serializes files and frames, by address.

    `beside` are table functions that are read, and whose rows are no part of the source.
    """
    known = {*GENERATORS, *beside}
    return all(table_of(scan) is not None or function_of(scan) in known for scan in scans(node))


@dataclass(frozen=True)
class Leaf:
    """The owner's declaration about a table.

    Attributes
    ----------
    datasets : tuple of str
        The budgets that its rows belong to; none for a public table.
    unit : str or None
        Column that holds the privacy unit; None where one row is protected.
    """

    datasets: tuple[str, ...] = ()
    unit: str | None = None


PUBLIC = Leaf()


@dataclass(frozen=True)
class Rows:
    """What an operator returns.

    Attributes
    ----------
    width : int
        Number of columns.
    scans : tuple of str
        The budgets of the tables that were read, repeated for each read; empty for public rows.
    unit : frozenset of int
        Columns that hold the privacy unit unchanged.
    by_unit : bool
        Every protected table that was read states a privacy unit.
    row_level, own_rows : str
        Empty if the property holds, otherwise the operator that broke it.
    unfixed : str
        The aggregate of protected rows that follows from their order; empty if there is none.
    alone : bool
        There is at most one row.
    keys : frozenset of int
        Columns whose combined values differ between any two rows; empty if none are known.
    """

    width: int
    scans: tuple[str, ...] = ()
    unit: frozenset[int] = frozenset()
    by_unit: bool = True
    row_level: str = ""
    own_rows: str = ""
    alone: bool = False
    keys: frozenset[int] = frozenset()
    unfixed: str = ""

    @property
    def public(self) -> bool:
        """Whether no protected table was read."""
        return not self.scans

    def broken(self, by: str) -> Rows:
        """Return these rows without either property, unless they are public."""
        if self.public:
            return self
        return replace(self, row_level=self.row_level or by, own_rows=self.own_rows or by, unit=frozenset())

    def mixed(self, by: str) -> Rows:
        """Return these rows without the row level: one may come from several rows of a table, or from none."""
        return self if self.public else replace(self, row_level=self.row_level or by)

    def columns(self, positions: Sequence[int | None]) -> Rows:
        """Return these rows with other columns, each one of theirs or, as None, a new one."""
        places: dict[int, int] = {}
        for place, position in enumerate(positions):
            if position is not None:
                places.setdefault(position, place)
        unit = frozenset(place for place, position in enumerate(positions) if position in self.unit)
        kept = all(key in places for key in self.keys)
        keys = frozenset(places[key] for key in self.keys) if kept else frozenset()
        return replace(self, width=len(positions), unit=unit, keys=keys)


@dataclass
class _Walk:
    leaf: Callable[[tuple[str, str, str], bool], Leaf | None]
    views: Mapping[str, Leaf]
    normal_form: Callable[[Node], str]
    definitions: Mapping[int, Node] = field(default_factory=dict)  # of WITH queries defined outside the walked part
    defined: dict[int, Rows] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)  # the scans met so far, by their address
    covered: int = 0  # how many declared views enclose the present operator
    unneeded: set[int] = field(default_factory=set)  # scans of no column, which show rowid instead, by their address
    sorted: dict[int, frozenset[int]] = field(default_factory=dict)  # columns that the operator above sorts as lists
    demanded: dict[int, frozenset[int]] = field(default_factory=dict)  # columns that the filter above wants true

    def rows(self, node: Node) -> Rows:
        name = kind(node)
        found = self._view(node, name)
        if found is not None:
            return found
        rule = _RULES.get(name)
        if rule is None:
            raise UnreadableError(name)
        return rule(self, node)

    def all_of(self, node: Node) -> list[Rows]:
        return [self.rows(child) for child in children(node)]

    def demand(self, node: Node, columns: frozenset[int]) -> None:
        """Note which columns of an operator's first input must be true for a row to be kept."""
        for child in children(node)[:1]:
            self.demanded[id(child)] = columns

    def _view(self, node: Node, name: str) -> Rows | None:
        """Return the rows of a declared view if this operator is the whole view."""
        if not self.views or name not in _VIEW_KINDS:
            return None
        leaf = self.views.get(self.normal_form(node))
        if leaf is None:
            return None
        self.covered += 1
        below = _RULES[name](self, node)
        self.covered -= 1
        rows = leaf_rows(leaf, output(node) or [])
        if below.public:
            return rows
        # Both the view and the tables that it reads have budgets: the rows keep the properties that hold for both.
        both = _together([rows, below], rows.width)
        return replace(both, unit=rows.unit & below.unit)


def walk(
    node: Node,
    leaf: Callable[[tuple[str, str, str], bool], Leaf | None],
    views: Mapping[str, Leaf],
    normal_form: Callable[[Node], str],
    within: Node | None = None,
) -> Rows:
    """Return what a plan returns.

    Parameters
    ----------
    node : Node
        The root of a bound plan.
    leaf : callable
        Takes a table's path, and whether a declared view encloses the scan. Returns the declaration about the table;
        None counts as public here, and the caller then refuses the source.
    views : mapping of str to Leaf
        What was declared about views, by the normal form of their plans.
    normal_form : callable
        Makes the normal form.
    within : Node, optional
        The whole plan that `node` is a part of.

    Raises
    ------
    UnreadableError
        The plan has an operator that cannot be interpreted, or a scan outside the operators' children.
    """
    walking = _Walk(leaf, views, normal_form, {} if within is None else dict(_definitions(within)))
    rows = walking.rows(node)
    # A scan inside an expression is read too, although no operator passes its rows on.
    return rows if {id(scan) for scan in scans(node)} <= walking.seen else rows.broken("SUBQUERY")


def _definitions(node: Node) -> Iterator[tuple[int, Node]]:
    below = children(node)
    if kind(node) == "MATERIALIZED_CTE" and below:
        yield number(node, "table_index"), below[0]
    for child in below:
        yield from _definitions(child)


def leaf_rows(leaf: Leaf, names: Sequence[str | None]) -> Rows:
    """Return the rows of a scan of columns, whose table's owner declared something."""
    unit = frozenset(
        place
        for place, name in enumerate(names)
        if leaf.unit is not None and name is not None and fold(name) == fold(leaf.unit)
    )
    return Rows(len(names), leaf.datasets, unit, leaf.unit is not None or not leaf.datasets)


def _get(walking: _Walk, node: Node) -> Rows:
    walking.seen.add(id(node))
    names = scanned_columns(node)
    table = table_of(node)
    if table is not None:
        if children(node):
            raise UnreadableError("GET")
        rows = leaf_rows(walking.leaf(table, walking.covered > 0) or PUBLIC, names)
        return rows.broken("rowid") if None in names and id(node) not in walking.unneeded else rows
    if function_of(node) not in GENERATORS:
        raise UnreadableError(function_of(node))
    below = walking.all_of(node)  # unnest(column) has the rows that it unnests below it
    width = len(names) + len(listed(node, "projected_input"))
    return _together(below, width).broken("UNNEST") if below else Rows(width)


def _together(parts: Sequence[Rows], width: int) -> Rows:
    """Return rows that read everything that the parts read and have no other known property."""
    return Rows(
        width,
        sum((part.scans for part in parts), ()),
        frozenset(),
        all(part.by_unit for part in parts),
        next((part.row_level for part in parts if part.row_level), ""),
        next((part.own_rows for part in parts if part.own_rows), ""),
        unfixed=next((part.unfixed for part in parts if part.unfixed), ""),
    )


def _only(walking: _Walk, node: Node) -> Rows:
    found = walking.all_of(node)
    if len(found) != 1:
        raise UnreadableError(kind(node))
    return found[0]


def _projection(walking: _Walk, node: Node) -> Rows:
    """Compute columns.

    A scan that needs no column shows rowid. Where nothing above the scan reads a column, nothing reads that one: each
    row is the same constant, however many rows there are.
    """
    expressions = listed(node, "expressions")
    for child in children(node):
        if kind(child) == "GET" and not references(expressions) and scanned_columns(child) == [None]:
            walking.unneeded.add(id(child))
        walking.sorted[id(child)] = _sorted_lists(expressions)
    return _only(walking, node).columns([reference(expression) for expression in listed(node, "expressions")])


def _sorted_lists(expressions: Sequence[object]) -> frozenset[int]:
    """Return the columns that are read as lists to be sorted, or as the names to predict for, and in no other way.

    Then the order of a list is lost.
    """
    read, within = references(expressions), list[int | None]()
    for call in calls(expressions):
        if called(call) in _SORTS:
            within += [reference(argument) for argument in arguments(call)[:1]]
            within += references(call.get("function_data"))  # where DuckDB notes what it sorts by
        elif called(call) in _PREDICTS:
            within += [reference(argument) for argument in arguments(call)[1:] if _is_names(argument)]
    return frozenset(one for one in within if one is not None and read.count(one) == within.count(one))


def _is_names(expression: object) -> bool:
    """Whether an expression is a list of texts."""
    shown = as_node(expression).get("return_type")
    details = shown.get("type_info") if isinstance(shown, dict) and shown.get("id") == "LIST" else None
    inner = details.get("child_type") if isinstance(details, dict) else None
    return isinstance(inner, dict) and inner.get("id") == "VARCHAR"


def _order_decides(expression: object, *, is_sorted: bool = False) -> str:
    """Return the name of an aggregate whose value follows from the order of its rows; ``''`` if it does not.

    Sums and averages of integers and decimals are exact, so that no order changes them. A list holds the rows' values
    in their order: sorted by itself, its elements that tie are equal.
    """
    node = as_node(expression)
    name = called(node)
    group = groups().get(name)
    if group is None or (group.name == "ordered" and not is_sorted and not _sorted_by_itself(node)):
        return f"{name}()"
    exact = all(_type(argument) in _EXACT for argument in arguments(node))
    return f"{name}() of a {_type(arguments(node)[0])}" if group.name == "addition" and not exact else ""


def _window_order_decides(node: Node) -> str:
    """Return the name of a window function whose value follows from the order of its rows; ``''`` if it does not.

    Without ORDER BY a number, or the first value, is that of whichever row came first. Where rows tie, it is, too, but
    ORDER BY may name a key, which a plan does not show: that is the author's to know (docs/privacy.md).
    """
    kind_of = str(node.get("type"))
    if kind_of == "WINDOW_AGGREGATE":
        return _order_decides(node)
    return (
        f"{kind_of.removeprefix('WINDOW_').lower()}()" if kind_of in _NUMBERING and not listed(node, "orders") else ""
    )


def _sorted_by_itself(node: Node) -> bool:
    """Whether a list is made in the order of its own elements."""
    orders = node.get("order_bys")
    listed_orders = orders.get("orders") if isinstance(orders, dict) else None
    given = arguments(node)
    first = listed_orders[0] if isinstance(listed_orders, list) and listed_orders else None
    by = reference(first.get("expression")) if isinstance(first, dict) else None
    return called(node) in _LISTS and by is not None and bool(given) and reference(given[0]) == by


def _same(walking: _Walk, node: Node) -> Rows:
    """Keep each row unchanged, or drop it depending on its own contents."""
    if kind(node) == "FILTER":
        true = map(reference, _conjuncts(listed(node, "expressions")))
        walking.demand(node, frozenset(place for place in true if place is not None))
    rows = _only(walking, node)
    rows = _numbered_once(node, rows)
    kept = listed(node, "projection_map")
    return rows.columns([whole(position, _PROJECTION_MAP) for position in kept]) if kept else rows


def _broken(walking: _Walk, node: Node) -> Rows:
    found = walking.all_of(node)
    return _together(found, max((rows.width for rows in found), default=0)).broken(kind(node))


def _made_up(walking: _Walk, node: Node) -> Rows:
    """Return the rows of a list of constants."""
    for _ in walking.all_of(node):
        pass
    expressions = listed(node, "expressions")
    if not expressions:
        return Rows(0, alone=kind(node) == "DUMMY_SCAN")
    return Rows(len(as_list(expressions[0])), alone=len(expressions) == 1)


def _distinct(walking: _Walk, node: Node) -> Rows:
    rows = _only(walking, node).mixed("DISTINCT")
    targets = frozenset(reference(target) for target in listed(node, "distinct_targets"))
    keys = frozenset(target for target in targets if target is not None)
    ordered = as_node(node.get("order_by")).get("orders") if node.get("order_by") is not None else None
    if node.get("distinct_type") == "DISTINCT_ON" and not ordered and not rows.public:
        rows = replace(rows, unfixed=rows.unfixed or "DISTINCT ON without ORDER BY")
    rows = replace(rows, keys=keys if None not in targets else frozenset())
    return rows if rows.unit & keys else rows.broken("DISTINCT")


def _aggregate(walking: _Walk, node: Node) -> Rows:
    rows = _only(walking, node)
    groups = [reference(group) for group in listed(node, "groups")]
    width = len(groups) + len(listed(node, "expressions")) + len(listed(node, "grouping_functions"))
    found = listed(node, "grouping_sets")
    sets: list[frozenset[object]] = (
        [frozenset(as_list(one)) for one in found] if found else [frozenset(range(len(groups)))]
    )
    in_all = frozenset.intersection(*sets)
    in_order = walking.sorted.get(id(node), frozenset())
    aggregates = enumerate(listed(node, "expressions"), start=len(groups))
    unfixed = [_order_decides(one, is_sorted=place in in_order) for place, one in aggregates]
    if not rows.public:
        rows = replace(rows, unfixed=rows.unfixed or next(filter(None, unfixed), ""))
    unit = frozenset(place for place, group in enumerate(groups) if group in rows.unit and place in in_all)
    one_set = len(sets) == 1
    out = replace(
        rows.mixed("AGGREGATE"),
        width=width,
        unit=unit,
        alone=one_set and not groups,
        keys=frozenset(range(len(groups))) if one_set else frozenset(),
    )
    return out if unit else out.broken("AGGREGATE")


def _numbered_once(node: Node, rows: Rows) -> Rows:
    """Return public rows with the key of a window that numbers them, where a filter keeps one number.

    Two rows of one partition have different numbers, so at most one of them is kept: the partition is a key.
    """
    below = children(node)
    if kind(node) != "FILTER" or kind(below[0]) != "WINDOW" or not rows.public:
        return rows
    windows = listed(below[0], "expressions")
    for found in _conjuncts(listed(node, "expressions")):
        sides = arguments(found) or [found.get("left"), found.get("right")]
        columns = [reference(side) for side in sides]
        if found.get("type") != "COMPARE_EQUAL" or not any(map(_constant, sides)):
            continue
        for place, window in enumerate(windows, start=rows.width - len(windows)):
            if place in columns and _numbers_rows(as_node(window)):
                keys = [reference(part) for part in listed(as_node(window), "partitions")]
                if keys and None not in keys:
                    return replace(rows, keys=frozenset(key for key in keys if key is not None))
    return rows


def _numbers_rows(window: Node) -> bool:
    """Whether a window function numbers the rows of a partition; with an order of its own it numbers a frame."""
    return window.get("type") == "WINDOW_ROW_NUMBER" and not listed(window, "arg_orders")


def _conjuncts(expressions: Sequence[object]) -> Iterator[Node]:
    """Yield what must hold for each row that a filter keeps; what stands below OR, NOT or CASE need not."""
    for expression in expressions:
        node = as_node(expression)
        if node.get("type") == "CONJUNCTION_AND":
            yield from _conjuncts(arguments(node))
        else:
            yield node


def _constant(expression: object) -> bool:
    """Whether an expression is a literal, maybe cast: one value for all rows, which random() is not."""
    node = as_node(expression)
    if node.get("type") == "OPERATOR_CAST":
        [of] = arguments(node) or [node.get("child")]
        return _constant(of)
    return node.get("type") == "VALUE_CONSTANT"


def _window(walking: _Walk, node: Node) -> Rows:
    rows, expressions = _only(walking, node), listed(node, "expressions")
    by_unit = all(
        any(reference(part) in rows.unit for part in listed(as_node(expression), "partitions"))
        for expression in expressions
    )
    added = [_window_order_decides(as_node(one)) for one in expressions]
    if not rows.public:
        rows = replace(rows, unfixed=rows.unfixed or next(filter(None, added), ""))
    out = replace(rows.mixed("WINDOW"), width=rows.width + len(expressions))
    return out if by_unit else out.broken("WINDOW")


def _unnest(walking: _Walk, node: Node) -> Rows:
    rows = _only(walking, node).mixed("UNNEST")
    return replace(rows, width=rows.width + len(listed(node, "expressions")), keys=frozenset(), alone=False)


def _union(walking: _Walk, node: Node) -> Rows:
    return union_of(walking.all_of(node), kept=bool(node.get("setop_all")))


def union_of(found: Sequence[Rows], *, kept: bool) -> Rows:
    """Return the rows of all parts, where equal rows are `kept` as they are; of one part, that part."""
    if len(found) == 1:
        return found[0]
    rows = _together(found, max((part.width for part in found), default=0))
    if rows.public:
        return rows
    # If a part is public or reads the same table again, one row of a table can give a second row here.
    apart = not any(part.public for part in found) and len(set(rows.scans)) == len(rows.scans)
    if not (kept and apart):
        rows = rows.mixed("UNION")
    unit = frozenset.intersection(*(part.unit for part in found)) if kept else frozenset()
    return replace(rows, unit=unit) if unit or not rows.by_unit else rows.broken("UNION")


def _cte(walking: _Walk, node: Node) -> Rows:
    found = children(node)
    if len(found) != 2:
        raise UnreadableError(kind(node))
    # A definition counts as read each time it is referenced.
    walking.defined[number(node, "table_index")] = walking.rows(found[0])
    return walking.rows(found[1])


def _cte_reference(walking: _Walk, node: Node) -> Rows:
    index = number(node, "cte_index")
    if index not in walking.defined:
        if index not in walking.definitions:
            raise UnreadableError("CTE_REF")
        walking.defined[index] = walking.rows(walking.definitions[index])
    return walking.defined[index]


def _recursive(walking: _Walk, node: Node) -> Rows:
    found = children(node)
    if len(found) != 2:
        raise UnreadableError(kind(node))
    start = walking.rows(found[0]).broken("RECURSIVE_CTE")
    walking.defined[number(node, "table_index")] = replace(start, keys=frozenset(), alone=False)
    return _together([start, walking.rows(found[1])], start.width).broken("RECURSIVE_CTE")


def _outer_columns(walking: _Walk, node: Node) -> Rows:
    """Represent the outer columns of a correlated subquery: the join above it has their rows."""
    return Rows(len(listed(node, "chunk_types")))


def _cross(walking: _Walk, node: Node) -> Rows:
    left, right = _two(walking, node)
    rows = _together([left, right], left.width + right.width)
    if rows.public:
        return replace(rows, alone=left.alone and right.alone)
    if not left.public and not right.public:
        return rows.broken("CROSS_PRODUCT")
    rows = replace(rows, unit=left.unit | frozenset(left.width + place for place in right.unit))
    if (right if right.public else left).alone:
        return rows
    return rows.mixed("CROSS_PRODUCT")


def _join(walking: _Walk, node: Node) -> Rows:
    demanded = walking.demanded.get(id(node), frozenset()) if not any(_maps(node)) else frozenset()
    walking.demand(node, demanded)  # a filter over several IN stands over all their joins
    left, right = _two(walking, node)
    name, conditions = str(node.get("join_type", "INNER")), listed(node, "conditions")
    semi = name in ("SEMI", "ANTI")
    width = left.width if semi else left.width + (1 if name == "MARK" else right.width)
    rows = _together([left, right], width)
    if rows.public:
        rows = replace(rows, keys=left.keys if name in _LEFT_SIDE else frozenset())
    elif left.public or right.public:
        unit = left.unit
        if name in _BOTH_SIDES:
            unit = unit | frozenset(left.width + place for place in right.unit)
        rows = replace(rows, unit=unit)
        if name not in _BOTH_SIDES | _LEFT_SIDE:
            rows = rows.broken(f"{name} JOIN")
        if right.public:
            once = name in _LEFT_SIDE or (name in ("INNER", "LEFT") and _at_most_one(right, conditions, "right"))
        else:
            once = name in ("INNER", "RIGHT") and _at_most_one(left, conditions, "left")
        if not once:
            rows = rows.mixed(f"{name} JOIN")
        if not unit:
            rows = replace(rows, own_rows=rows.own_rows or f"{name} JOIN")
    elif rows.by_unit and name in ("INNER", "LEFT") and _same_unit(left, right, conditions):
        unit = left.unit | (frozenset(left.width + place for place in right.unit) if name == "INNER" else frozenset())
        rows = replace(rows.mixed(f"{name} JOIN"), unit=unit)
    elif rows.by_unit and _chooses(name, conditions, left.width in demanded) and _same_unit(left, right, conditions):
        rows = replace(rows.mixed(f"{name} JOIN"), unit=left.unit)
    else:
        rows = rows.broken(f"{name} JOIN")
    return _projected(rows, node, left.width, right.width)


def _chooses(name: str, conditions: Sequence[object], demanded: bool) -> bool:
    """Whether a join keeps or marks each row by the matches of its unit alone, where its condition is on the unit.

    The mark of ``unit IN (...)`` is NULL instead of false where the other side has a row of nobody, and the mark of a
    row of nobody is NULL where it has any row. An outer join makes a row of nobody where no unit has a value. So the
    mark may only be demanded to be true, as by a filter: then NULL is as good as false. The mark of EXISTS is never
    NULL.
    """
    if len(conditions) != 1 or name not in _CHOOSING:
        return False
    return name != "MARK" or demanded or as_node(conditions[0]).get("comparison") == "COMPARE_NOT_DISTINCT_FROM"


def _two(walking: _Walk, node: Node) -> tuple[Rows, Rows]:
    found = walking.all_of(node)
    if len(found) != 2:
        raise UnreadableError(kind(node))
    return found[0], found[1]


def _maps(node: Node) -> list[list[object]]:
    """Return the columns of either side that a join keeps; nothing where it keeps all."""
    return [list(listed(node, f"{side}_projection_map")) for side in ("left", "right")]


def _projected(rows: Rows, node: Node, left: int, right: int) -> Rows:
    """Return a join's rows with only the columns that its maps keep."""
    kept = _maps(node)
    if not any(kept):
        return rows
    first = [whole(place, _PROJECTION_MAP) for place in kept[0]] or list(range(left))
    if rows.width <= left + 1:  # no column of the right side, or only a mark
        second: list[int] = list(range(left, rows.width))
    else:
        second = [left + whole(place, _PROJECTION_MAP) for place in kept[1]] or list(range(left, left + right))
    return rows.columns([*first, *second])


def _at_most_one(rows: Rows, conditions: Sequence[object], side: str) -> bool:
    """Whether the conditions determine a key, so that each row of the other side matches at most one row."""
    if rows.alone:
        return True
    equal = {
        _key(condition.get(side))
        for condition in conditions
        if isinstance(condition, dict) and condition.get("comparison") in _EQUAL
    }
    return bool(rows.keys) and rows.keys <= equal


def _key(expression: object) -> int | None:
    """Return the column that an expression passes on, also through a cast between integers, which is injective."""
    if isinstance(expression, dict) and expression.get("type") == "OPERATOR_CAST":
        below = expression.get("child") or next(iter(listed(expression, "children")), None)
        kinds = [_type(expression), _type(below)]
        return reference(below) if all(kind in _INTEGERS for kind in kinds) else None
    return reference(expression)


def _type(expression: object) -> str:
    found = expression.get("return_type") if isinstance(expression, dict) else None
    return str(found.get("id", "")) if isinstance(found, dict) else ""


def _same_unit(left: Rows, right: Rows, conditions: Sequence[object]) -> bool:
    return any(
        isinstance(condition, dict)
        and condition.get("comparison") in _EQUAL
        and reference(condition.get("left")) in left.unit
        and reference(condition.get("right")) in right.unit
        for condition in conditions
    )


_RULES: Mapping[str, Callable[[_Walk, Node], Rows]] = {
    "GET": _get,
    "PROJECTION": _projection,
    "FILTER": _same,
    "ORDER_BY": _same,
    "SECURE_VIEW": _same,
    "DUMMY_SCAN": _made_up,
    "EXPRESSION_GET": _made_up,
    "DISTINCT": _distinct,
    "AGGREGATE_AND_GROUP_BY": _aggregate,
    "WINDOW": _window,
    "UNNEST": _unnest,
    "UNION": _union,
    "MATERIALIZED_CTE": _cte,
    "CTE_REF": _cte_reference,
    "RECURSIVE_CTE": _recursive,
    "DELIM_GET": _outer_columns,
    "CROSS_PRODUCT": _cross,
    "COMPARISON_JOIN": _join,
    **dict.fromkeys(
        (
            *("LIMIT", "TOP_N", "SAMPLE", "EXCEPT", "INTERSECT", "PIVOT"),
            *("ANY_JOIN", "ASOF_JOIN", "POSITIONAL_JOIN", "DELIM_JOIN", "DEPENDENT_JOIN"),
        ),
        _broken,
    ),
}
