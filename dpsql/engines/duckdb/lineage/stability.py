"""Stability: how many rows of a bound plan's result one row, or one privacy unit, can change.

A walk over a plan, from its leaves upwards, derives two properties of an operator's rows (`Rows`):

* *Row level.* Each row comes from one row of one protected table, and each row of that table gives at most one. So
  adding or removing a row of the table adds or removes at most one row here, and changing one changes at most one.
* *Own rows.* Each row carries a privacy unit, unchanged, in a column that the walk knows, or NULL and then belongs to
  nobody; and the rows of a unit are a function of the unit's rows, of the rows that it reaches, and of public rows. So
  adding or removing a unit changes only rows that carry that unit, and the row limit per unit bounds their number.

A table may have a path instead of a column with the unit: a column that points to a key of another table, such as
``labs.visit -> visits.vid``. A unit *reaches* a row if the unit has or reaches a row with the key that the row points
to. Two keys are equal if their bytes are, and NULL points to nothing. Removing the unit u removes all rows that carry
u, and every row that u alone reaches. So the rows that another unit w has or reaches stay the same, and the proof need
only show that w's rows here are a function of them. Rows that nobody reaches never change.

Rows are *pending* until a join gives them an owner: `Rows.pending` names the key, and `Rows.unit` has the columns that
point to the key. The same holds of pending rows with a key in place of the unit:

1. *pending on the key K*: the rows that point to a value k of K are a function of those rows of tables with a path to K
   that point to k, of the rows that these reach, and of public rows;
2. *a tie to the key K* (`Rows.ties`) is a column in which every value k, in a row of a unit (or, for pending rows, of a
   value), is the key of a row that this unit (or value) has or reaches. A column at the end of a path is a tie. NULL is
   no value.

By induction over the operators, with "owner" for unit or value:

* A scan has both properties of its own rows, by definition. Projections, filters, unnest and joins with public rows
  look at one row. Groups, DISTINCT and windows use one owner's rows if they contain its column. UNION ALL adds
  functions of one owner's rows, if both inputs have owners of one kind.
* Two inputs have owners of one kind and match by ``owner = owner``: an owner's result is made of its rows of both.
* A left input has a tie to K, a right input is pending on K, and they match by ``tie = owner``: if a row of the owner u
  matches rows that point to k, then by (2) u reaches these, so by (1) the result of u is a function of rows that u
  reaches. The right side's column becomes a tie, since it equals one. The result has the owner of the left side. The
  same holds with the sides exchanged; the rows that a LEFT JOIN adds with NULL in place of an owner are nobody's.
* SEMI, ANTI and MARK joins by these conditions keep or mark an owner's rows by the owner's other rows. But rows that
  have the key must not choose pending rows on the left: they may have several owners, and a row that two owners reach
  would stay because of one of them.
* Two rows that *have* the same key (``visits a JOIN visits b ON a.vid = b.vid``) may belong to two units, since a key
  may repeat: a tie does not match a tie, and a group by a key mixes units. Nothing above uses that a
  key is unique, and the walk does not ask.

If rows are dated, an owner is a person in a period, and a table may be undated: see `rows`.

Rows that are still pending at the root have no known owner: dpsql refuses the source (S017). dpsql drops NULL units,
and applies the row limit, at the root: after the last join, and before any aggregate.

The rows of an operator must follow from the rows of its inputs, and not from the order in which DuckDB reads them
(`orders`). The walk notes a violation as `unfixed`, for public rows, too: rows of people can decide the order in which
DuckDB reads public rows, such as by the filter that a join pushes down.

Both properties follow by induction from a rule for each operator. An operator without a rule has neither property, and
the error names the operator. If even the inputs of an operator are unknown, the walk raises `UnreadableError`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypedDict

from dpsql.contract.names import TableName
from dpsql.contract.parameters import fold
from dpsql.dataclass import dataclass
from dpsql.engines.duckdb.lineage import bound, orders, paths
from dpsql.engines.duckdb.lineage.declarations import Declarations
from dpsql.engines.duckdb.lineage.rows import (
    INTEGERS,
    PUBLIC,
    Dates,
    Equality,
    Key,
    Leaf,
    Met,
    Rows,
    date_column,
    dates_among,
    is_date,
    is_whole_period,
    leaf_rows,
    of_one_owner,
    of_owner,
    together,
    union_of,
)
from dpsql.rendering import identifier


def blind(rows: Rows, expressions: Sequence[object]) -> tuple[Rows, list[bool]]:
    """Return rows, unfixed if an expression on them distinguishes spellings; and which expressions are loose."""
    operation, loose = orders.read(rows, expressions)
    return rows.unfixed_by(operation and f"{operation} of a number with several spellings"), loose


def checked_firsts(node: bound.Node, expressions: Sequence[object]) -> set[int]:
    """Return the aggregates first() of an input that count only for a single row, by address.

    DuckDB writes a subquery in place of a value so: ``CASE WHEN count(*) > 1 THEN error(...) ELSE first(x) END``.
    """
    if bound.kind(node) != "AGGREGATE_AND_GROUP_BY" or bound.listed(node, "groups"):
        return set()
    aggregates, addresses = list(map(bound.as_node, bound.listed(node, "expressions"))), set[int]()
    for expression in map(bound.as_node, expressions):
        checks = expression.get("case_checks")
        check = checks[0] if isinstance(checks, list) and len(checks) == 1 else {}
        when = check.get("when_expr") if isinstance(check, dict) else None
        if not isinstance(when, dict) or when.get("type") != "COMPARE_GREATERTHAN":
            continue
        sides = bound.arguments(when) or [when.get("left"), when.get("right")]
        counted, column = bound.reference(sides[0]), bound.reference(expression.get("else_expr"))
        fails = bound.called(bound.as_node(check["then_expr"])) == "error"
        if not fails or counted is None or column is None or bound.constant(sides[1]) != 1:
            continue
        if bound.called(aggregates[counted]) == "count_star" and bound.references(expressions).count(column) == 1:
            addresses.add(id(aggregates[column]))
    return addresses


def windows_of(rows: Rows, windows: Sequence[bound.Node], node: bound.Node) -> tuple[Rows, frozenset[int]]:
    """Return the input rows of windows, unfixed if an order decides a window; and the loose columns."""
    columns = orders.columns_of(bound.children(node)[0])
    judged = [orders.window(rows, window) for window in windows]
    for dependence, choice in judged:
        rows = orders.loosened(
            rows.unfixed_by(dependence.unfixed, orders.words(columns, dependence.missing, dependence.begun)),
            choice.loose,
        )
    for window in windows:
        rows, _ = blind(rows, orders.parts(window))
    numbering = [window for window in windows if orders.numbers_rows(window)]
    if not rows.unique and not rows.alone and not orders.same_order(numbering):
        rows = rows.unfixed_by("a second order of windows")
    loose = {column for column, (dependence, _) in enumerate(judged, start=rows.width) if dependence.loose}
    return rows, rows.loose | loose


def says_whose(rows: Rows) -> Callable[[object], bool]:
    """Return a test whether an expression has one value in all rows of a unit."""
    return lambda expression: bound.reference(expression) in rows.unit or is_whole_period(expression, rows.date)


def one_number(rows: Rows, conditions: Iterable[bound.Node]) -> Rows:
    """Return the rows that conditions keep if these select one row number.

    Two rows of one partition have different numbers, so the conditions keep at most one of them: the partition is a
    key.
    """
    for condition in conditions:
        sides = bound.arguments(condition) or [condition.get("left"), condition.get("right")]
        first = condition.get("type") == "COMPARE_LESSTHANOREQUALTO" and bound.constant(sides[1]) == 1
        if first or (condition.get("type") == "COMPARE_EQUAL" and any(map(_constant, sides))):
            columns = [bound.reference(side) for side in sides]
            for among in (among for column, among in rows.numbers if column in columns):
                rows = replace(rows, keys=among) if among else replace(rows, once=True)
            for parts in (parts for column, parts in rows.firsts if column in columns):
                rows = replace(rows, unique=rows.unique | {parts})
    return rows


def numbering_of(rows: Rows, window: bound.Node) -> frozenset[int] | None:
    """Return the partition of a window that numbers rows, empty for the rows of a unit; None for others."""
    parts = bound.listed(window, "partitions")
    ordered = bound.listed(window, "arg_orders")  # with an order of its own it numbers a frame
    if window.get("type") != "WINDOW_ROW_NUMBER" or ordered or not parts:
        return None
    if not rows.public:
        return frozenset() if all(map(says_whose(rows), parts)) else None
    keys = [bound.reference(part) for part in parts]
    return None if None in keys else columns_among(keys)


def firsts_of(rows: Rows, windows: Sequence[bound.Node]) -> frozenset[tuple[int, frozenset[int]]]:
    """Return the columns with numbers of rows, each with the columns of its partition."""
    numbers = set[tuple[int, frozenset[int]]]()
    for column, window in enumerate(windows, start=rows.width):
        parts = [bound.reference(part) for part in bound.listed(window, "partitions")]
        plain = window.get("type") == "WINDOW_ROW_NUMBER" and not bound.listed(window, "arg_orders")
        if plain and None not in parts:
            numbers.add((column, columns_among(parts)))
    return frozenset(numbers)


def columns_among(columns: Iterable[int | None]) -> frozenset[int]:
    """Return the columns among expressions."""
    return frozenset(column for column in columns if column is not None)


def conjuncts(expressions: Sequence[object]) -> Iterator[bound.Node]:
    """Yield the conditions that hold for all rows of a filter; conditions below OR, NOT or CASE may fail."""
    for expression in expressions:
        node = bound.as_node(expression)
        if node.get("type") == "CONJUNCTION_AND":
            yield from conjuncts(bound.arguments(node))
        else:
            yield node


def _constant(expression: object) -> bool:
    """Whether an expression is a literal, maybe cast: one value for all rows, unlike random()."""
    node = bound.as_node(expression)
    if node.get("type") == "OPERATOR_CAST":
        [of] = bound.arguments(node) or [node.get("child")]
        return _constant(of)
    return node.get("type") == "VALUE_CONSTANT"


# Joins that return columns of both sides; and joins that return each row of the left side at most once.
BOTH_SIDES = frozenset(("INNER", "LEFT", "RIGHT", "OUTER", "FULL"))
LEFT_SIDE = frozenset(("SEMI", "ANTI", "MARK", "SINGLE"))
_CHOOSING = frozenset(("SEMI", "ANTI", "MARK"))
# NULL equals NULL in a key, and as a unit is nobody, so two rows without a unit may match.
_EQUAL = frozenset(("COMPARE_EQUAL", "COMPARE_NOT_DISTINCT_FROM"))
_ORDERED = frozenset(f"COMPARE_{side}THAN{equal}" for side in ("LESS", "GREATER") for equal in ("", "OREQUALTO"))
_SIZES = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}
# The least value of each integer type, and the first value above its range.
_RANGES = {name: (-(1 << size - 1), 1 << size - 1) for name, size in _SIZES.items()} | {
    f"U{name}": (0, 1 << size) for name, size in _SIZES.items()
}
# Types whose index, comparison and bytes agree, for `PRIMARY KEY` and UNIQUE; BLOB is `encode` of a text, too.
_INDEXED = frozenset((*_RANGES, "BOOLEAN", "VARCHAR", "BLOB", "UUID", "DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"))


class _Owned(TypedDict, total=False):
    """The owners of a join's rows, and whether each has at most one row: fields of `Rows`."""

    once: bool
    unit: frozenset[int]
    pending: Key | None
    ties: frozenset[tuple[int, Key]]
    date: Dates | None


def passed_on(left: Rows, right: Rows) -> _Owned:
    """Return the owners of rows in a join with public rows."""
    unit, ties = right.shift(left.width)
    return {
        "unit": left.unit | unit,
        "pending": (right if left.public else left).pending,
        "ties": left.ties | ties,
        "date": left.date if right.public else right.date and right.date.shift(left.width),
    }


def side_by_side(left: Rows, right: Rows, name: str, conditions: Sequence[object] = ()) -> Rows:
    """Return the rows of a join with the properties that do not depend on owners.

    A key of one side and a key of the other are together a key of pairs; with NULL for one side of an outer join, too.
    """
    added = {"SEMI": 0, "ANTI": 0, "MARK": 1}.get(name, right.width)
    rows = together([left, right], left.width + added)
    if name in LEFT_SIDE:
        loose = left.loose | {left.width + column for column in right.loose if name == "SINGLE"}
        return replace(rows, unique=left.unique, tells=left.tells, loose=loose)
    right_keys = frozenset(_shift(left.width, key) for key in right.unique)
    unique = set[frozenset[int]]()
    if name in ("INNER", "LEFT", "RIGHT"):
        unique |= {key | other for key in left.unique for other in right_keys}
    if name in ("INNER", "LEFT") and matches_one(right, conditions, "right"):
        unique |= left.unique
    if name in ("INNER", "RIGHT") and matches_one(left, conditions, "left"):
        unique |= right_keys
    tells = {(left.width + column, left.width + other) for column, other in right.tells}
    loose = left.loose | _shift(left.width, right.loose)
    return replace(rows, unique=frozenset(unique), tells=left.tells | tells, loose=loose)


def _shift(width: int, columns: frozenset[int]) -> frozenset[int]:
    return frozenset(width + column for column in columns)


def matches_one(rows: Rows, conditions: Sequence[object], side: str) -> bool:
    """Whether a join's conditions determine a key of one side: each row of the other matches one row of it."""
    equal = {_key(condition.get(side)) for condition in _equalities(conditions)}
    return rows.alone or any(key <= equal for key in rows.unique)


def beside_public(rows: Rows, left: Rows, right: Rows, name: str, conditions: Sequence[object]) -> Rows:
    """Return the rows of a join with a public side."""
    whose = passed_on(left, right)
    if name not in BOTH_SIDES:
        date = rows.date if left.public else left.date
        whose = {"unit": left.unit, "pending": left.pending, "ties": left.ties, "date": date}
    rows = replace(rows, **whose)
    if name not in BOTH_SIDES | LEFT_SIDE:
        rows = rows.broken(f"{name} JOIN")
    if right.public:
        single = name in LEFT_SIDE or (name in ("INNER", "LEFT") and _at_most_one(right, conditions, "right"))
        matches = name in ("INNER", "LEFT") and _matches_key(right, conditions, "right")
    else:
        single = name in ("INNER", "RIGHT") and _at_most_one(left, conditions, "left")
        matches = name in ("INNER", "RIGHT") and _matches_key(left, conditions, "left")
    rows = replace(rows, once=(left if right.public else right).once) if single else rows
    rows = rows if single or matches else rows.mixed(f"{name} JOIN")
    return rows if rows.unit else replace(rows, own_rows=rows.own_rows or f"{name} JOIN")


def of_people(left: Rows, right: Rows, name: str, equal: Sequence[Equality], *, choosing: bool) -> _Owned | None:
    """Return the owners of the rows of a join of people's tables; None if rows of several people may match.

    Rows match by their common owner, or rows that belong to a key match a row with this key. A NULL key points to
    nothing. With periods, rows match within one period, see `rows`.
    """
    if name not in ("INNER", "LEFT") and not choosing:
        return None
    unit, ties = right.shift(left.width)
    tied = left.ties | ties
    if left.pending == right.pending and _meet(left.unit, right.unit, equal, null=True):
        pending = left.pending is not None
        met = of_one_owner(left.date, right.date, left.width, name, equal, pending=pending)
        owner = left.unit | unit if name == "INNER" else left.unit
        once = left.once and (choosing or right.once)
        return _owned(met, owner, left.pending, left.ties if choosing else tied, once=once)
    below = frozenset(column for column, key in left.ties if key == right.pending)
    if right.pending is not None and _meet(below, right.unit, equal):
        result_ties = tied | frozenset((column, right.pending) for column in unit)
        whose = left.ties if choosing else result_ties
        return _owned(of_owner(left.date, right.date), left.unit, left.pending, whose, once=choosing and left.once)
    above = frozenset(column for column, key in right.ties if key == left.pending)
    if left.pending is not None and not choosing and _meet(left.unit, above, equal):
        result_ties = tied | frozenset((column, left.pending) for column in left.unit)
        met = of_owner(right.date and right.date.shift(left.width), left.date)
        return _owned(met, unit, right.pending, result_ties)
    return None


def _owned(
    met: Met | None, unit: frozenset[int], pending: Key | None, ties: frozenset[tuple[int, Key]], *, once: bool = False
) -> _Owned | None:
    if met is None:
        return None
    return {"unit": unit, "pending": pending, "ties": ties, "date": met.date, "once": once}


def chooses(name: str, conditions: Sequence[object], demanded: bool) -> bool:
    """Whether a join with a condition on the unit keeps or marks each row by the matches of its unit alone.

    The mark of ``unit IN (...)`` is NULL instead of false if the other side has a row of nobody, and the mark of a row
    of nobody is NULL if the other side has any row. An outer join makes a row of nobody if no unit has a value. So the
    query may only demand that the mark is true, as a filter does: then NULL equals false. The mark of EXISTS is never
    NULL.
    """
    if name != "MARK":
        return name in _CHOOSING  # further conditions choose among the matches
    if len(conditions) != 1:
        return False
    return demanded or bound.as_node(conditions[0]).get("comparison") == "COMPARE_NOT_DISTINCT_FROM"


def _at_most_one(rows: Rows, conditions: Sequence[object], side: str) -> bool:
    """Whether the conditions determine a key, so that each row of the other side matches at most one row."""
    if rows.alone:
        return True
    equal = {_key(condition.get(side)) for condition in _equalities(conditions)}
    return bool(rows.keys) and rows.keys <= equal


def _matches_key(rows: Rows, conditions: Sequence[object], side: str) -> bool:
    """Whether the conditions determine a key of groups, texts among them, or of a table.

    Two rows that match one row are equal in the compared columns, so they may not differ there. Groups differ wherever
    a comparison, or one of bytes, does. An index tells values of the `_INDEXED` types apart wherever it does.
    """
    compared = [condition.get(side) for condition in _equalities(conditions)]
    indexed = {_identity(column) for column in compared if bound.type_of(column) in _INDEXED}
    return any(key <= indexed for key in rows.unique)


def _key(expression: object) -> int | None:
    """Return the column that an expression passes on, also through a cast between integers, which is injective."""
    if isinstance(expression, dict) and expression.get("type") == "OPERATOR_CAST":
        below = expression.get("child") or next(iter(bound.listed(expression, "children")), None)
        kinds = [bound.type_of(expression), bound.type_of(below)]
        return bound.reference(below) if all(kind in INTEGERS for kind in kinds) else None
    return bound.reference(expression)


def _meet(left: frozenset[int], right: frozenset[int], equal: Sequence[Equality], *, null: bool = False) -> bool:
    """Whether a column of the left side equals a column of the right side; NULL may equal NULL if `null`."""
    return any(
        equality.is_bytewise and equality.left in left and equality.right in right and (null or not equality.null)
        for equality in equal
    )


def equal_columns(conditions: Sequence[object]) -> list[Equality]:
    """Return the columns of either side that a join's conditions demand to be equal."""
    sides = (
        (equality.get("left"), equality.get("right"), equality.get("comparison"))
        for equality in _equalities(conditions)
    )
    equalities = (_equality(left, right, null=comparison != "COMPARE_EQUAL") for left, right, comparison in sides)
    return [equality for equality in equalities if equality is not None]


def _equality(left: object, right: object, *, null: bool) -> Equality | None:
    """Return the equality of two columns that follows from the equality of two expressions."""
    columns = _identity(left), _identity(right)
    if columns[0] is not None and columns[1] is not None:
        return Equality(columns[0], columns[1], null)
    dates = date_column(left), date_column(right)
    if dates[0] is None or dates[1] is None:
        return None
    return Equality(dates[0][0], dates[1][0], null, False, dates[0][1] & dates[1][1])


def equal_columns_of(conditions: Sequence[bound.Node]) -> list[Equality]:
    """Return the columns of one input that conditions demand to be equal, in each pair the first one first."""
    out: list[Equality] = []
    for condition in conditions:
        sides = bound.arguments(condition) or [condition.get("left"), condition.get("right")]
        if condition.get("type") == "COMPARE_EQUAL" and len(sides) == 2:
            equality = _equality(*sides, null=False)
            if equality is not None:
                left, right = sorted((equality.left, equality.right))
                out.append(equality._replace(left=left, right=right))
    return out


def _identity(expression: object) -> int | None:
    """Return the column whose values an expression distinguishes as bytes do, for every type that a path may have.

    A cast to a wider integer never fails, and `encode` gives the bytes of a text. A collation calls another function.
    """
    node = expression if isinstance(expression, dict) else {}
    below = bound.arguments(node) or [node.get("child")]
    if node.get("type") == "OPERATOR_CAST":
        wider, narrow = (_RANGES.get(bound.type_of(operand)) for operand in (node, below[0]))
        if wider is None or narrow is None or not (wider[0] <= narrow[0] and narrow[1] <= wider[1]):
            return None
        return bound.reference(below[0])
    if bound.called(node) == "encode" and len(below) == 1 and bound.is_own(node):
        return bound.reference(below[0])
    return bound.reference(expression)


def _equalities(conditions: Sequence[object]) -> list[bound.Node]:
    return [
        condition for condition in conditions if isinstance(condition, dict) and condition.get("comparison") in _EQUAL
    ]


# Table functions whose rows depend only on their arguments.
GENERATORS = frozenset(("range", "generate_series", "unnest", "repeat", "repeat_row"))
# Operators that a view's plan can begin with.
_VIEW_KINDS = frozenset(("PROJECTION", "DISTINCT", "ORDER_BY", "LIMIT", "UNION", "SECURE_VIEW", "MATERIALIZED_CTE"))
_PROJECTION_MAP = "a projection map"


def is_shown(node: bound.Node, beside: Collection[str] = ()) -> bool:
    """Whether a plan shows everything that it reads; DuckDB 1.5 also serializes files and frames, by address.

    `beside` are table functions whose rows are no part of the source.
    """
    functions = {*GENERATORS, *beside}
    return all(bound.table_of(scan) is not None or bound.function_of(scan) in functions for scan in bound.scans(node))


@dataclass
class _Walk:
    leaf: Callable[[tuple[str, str, str], Leaf | None], Leaf | None]
    views: Mapping[str, Leaf]
    definitions: Mapping[int, bound.Node]  # of WITH queries outside the part that is walked
    defined: dict[int, Rows] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)  # the scans so far, by their address
    covered: Leaf | None = None  # of the outermost declared view around the present operator
    unneeded: set[int] = field(default_factory=set)  # scans of no column, which show rowid instead, by their address
    sorted: dict[int, frozenset[int]] = field(default_factory=dict)  # columns that the operator above sorts as lists
    demanded: dict[int, frozenset[int]] = field(default_factory=dict)  # columns that the filter above wants true
    equated: dict[int, Sequence[Equality]] = field(default_factory=dict)  # columns that it wants to be equal
    alone: set[int] = field(default_factory=set)  # aggregates that raise an error for more than one row, by address

    def rows(self, node: bound.Node) -> Rows:
        name = bound.kind(node)
        rows = self._view(node, name)
        if rows is not None:
            return rows
        rule = _RULES.get(name)
        if rule is None:
            raise bound.UnreadableError(name)
        return rule(self, node)

    def inputs(self, node: bound.Node, count: int | None = None) -> list[Rows]:
        """Return the rows of an operator's inputs; raise unless there are `count`."""
        inputs = [self.rows(child) for child in bound.children(node)]
        if count is not None and len(inputs) != count:
            raise bound.UnreadableError(bound.kind(node))
        return inputs

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
    """Return the rows of a plan, or of a part that is defined `within` a whole plan.

    `leaf` takes a table's path, and the leaf of a declared view around the scan. It returns the leaf of the table; None
    counts as public here, and the caller then refuses the source. `views` has the leaves of declared views, by the
    normal form of their plans.

    Raises
    ------
    UnreadableError
        The plan has an operator that cannot be interpreted, or a scan outside the operators' children.
    """
    walking = _Walk(leaf, views, {} if within is None else dict(_definitions(within)))
    rows = walking.rows(node)
    # The plan also reads a scan inside an expression, although no operator passes its rows on.
    return rows if {id(scan) for scan in bound.scans(node)} <= walking.seen else rows.broken("SUBQUERY")


def _definitions(node: bound.Node) -> Iterator[tuple[int, bound.Node]]:
    for operator in bound.operators(node):
        if bound.kind(operator) == "MATERIALIZED_CTE" and bound.children(operator):
            yield bound.number(operator, "table_index"), bound.children(operator)[0]


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

    A scan that needs no column shows rowid. If no expression above the scan reads a column, also none of a filter such
    as ``WHERE 1 = 1``, none reads rowid: each row is the same constant, however many rows there are. The NULLs of a
    twin stand for the columns of its view, whose rows are those of a table.
    """
    expressions = bound.listed(node, "expressions")
    if [child for child in bound.children(node) if bound.kind(child) == "GET" and bound.is_twin(child)]:
        return _twin(walking, node)
    for child in bound.children(node):
        scan, read = child, list(expressions)
        while bound.kind(scan) == "FILTER":
            read += bound.listed(scan, "expressions")
            [scan] = bound.children(scan)
        if bound.kind(scan) == "GET" and not bound.references(read) and bound.scanned_columns(scan) == [None]:
            walking.unneeded.add(id(scan))
        walking.sorted[id(child)] = orders.sorted_lists(expressions)
        walking.alone |= checked_firsts(child, expressions)
    [rows] = walking.inputs(node, 1)
    rows, loose = blind(rows, expressions)
    out = rows.columns([bound.reference(expression) for expression in expressions])
    return replace(
        out,
        date=dates_among(expressions, rows.date),
        unique=out.unique | orders.keys_of(expressions, rows),
        tells=out.tells | orders.tells(expressions, rows),
        loose=frozenset(column for column, is_loose in enumerate(loose) if is_loose),
    )


def _twin(walking: _Walk, node: bound.Node) -> Rows:
    """Return the rows of the view over files that a twin stands for."""
    [scan] = bound.children(node)
    table, names = bound.table_of(scan), bound.output(node)
    if table is None or names is None or not all(map(_is_null, bound.listed(node, "expressions"))):
        raise bound.UnreadableError("a twin with values")
    walking.seen.add(id(scan))
    return leaf_rows(walking.leaf(table, walking.covered) or PUBLIC, names)


def _is_null(expression: object) -> bool:
    """Whether an expression is NULL, cast to a type."""
    node = bound.as_node(expression)
    if node.get("type") == "OPERATOR_CAST":
        return _is_null((bound.arguments(node) or [node.get("child")])[0])
    value = node.get("value")
    return node.get("type") == "VALUE_CONSTANT" and isinstance(value, dict) and value.get("is_null") is True


def _same(walking: _Walk, node: bound.Node) -> Rows:
    """Keep each row unchanged, or drop it depending on its own contents."""
    conditions: list[bound.Node] = []
    if bound.kind(node) == "FILTER":
        conditions = list(conjuncts(bound.listed(node, "expressions")))
        walking.demand(node, columns_among(map(bound.reference, conditions)))
        walking.equated.update((id(child), equal_columns_of(conditions)) for child in bound.children(node)[:1])
    [rows] = walking.inputs(node, 1)
    rows, _ = blind(one_number(rows, conditions), conditions)
    columns = bound.listed(node, "projection_map")
    return rows.columns([bound.integer(position, _PROJECTION_MAP) for position in columns]) if columns else rows


def _broken(walking: _Walk, node: bound.Node) -> Rows:
    inputs = walking.inputs(node)
    return together(inputs, max((rows.width for rows in inputs), default=0)).broken(bound.kind(node))


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
    keys = columns_among(targets)
    by = [*bound.listed(node, "distinct_targets"), *orders.ordering(node, "order_by")]
    name = "DISTINCT ON" if node.get("distinct_type") == "DISTINCT_ON" else "DISTINCT"
    rows = _chosen(*blind(rows, by)[:1], name, orders.choice(rows, by), node)
    once = rows.once or (None not in targets and keys <= rows.unit)
    rows = replace(rows.mixed("DISTINCT"), keys=keys if None not in targets else frozenset(), once=once)
    if None not in targets:
        rows = replace(rows, unique=rows.unique | {keys})
    return rows if rows.one_unit(keys) else rows.broken("DISTINCT")


def _chosen(rows: Rows, name: str, choice: orders.Choice, node: bound.Node) -> Rows:
    """Return the rows of an operator that chooses or numbers rows: unfixed if its order leaves a choice."""
    if choice.fixed:
        return orders.loosened(rows, choice.loose)
    begun = bool(orders.ordering(node, "order_by")) or bound.kind(bound.children(node)[0]) == "ORDER_BY"
    return rows.unfixed_by(name, orders.words(orders.columns_of(bound.children(node)[0]), choice.missing, begun))


def _limit(walking: _Walk, node: bound.Node) -> Rows:
    """Keep the first rows: they are fixed if the order right below is total."""
    [rows] = walking.inputs(node, 1)
    [below] = bound.children(node)
    by = orders.ordering(below, "orders") if bound.kind(below) == "ORDER_BY" else []
    return _chosen(rows, "LIMIT", orders.choice(rows, by), node).broken("LIMIT")


def _mixed_up(walking: _Walk, node: bound.Node) -> Rows:
    """Match rows by their positions, or by DuckDB's random choice."""
    return _broken(walking, node).unfixed_by(bound.kind(node).replace("_", " "))


def _aggregate(walking: _Walk, node: bound.Node) -> Rows:
    [rows] = walking.inputs(node, 1)
    groups = [bound.reference(group) for group in bound.listed(node, "groups")]
    aggregates = bound.listed(node, "expressions")
    every = frozenset[object](range(len(groups)))
    sets = [frozenset(bound.as_list(grouping_set)) for grouping_set in bound.listed(node, "grouping_sets")] or [every]
    in_all = frozenset.intersection(*sets)
    in_order = walking.sorted.get(id(node), frozenset())
    by = bound.listed(node, "groups") if len(sets) == 1 else []
    columns = orders.columns_of(bound.children(node)[0])
    rows, loose = blind(rows, bound.listed(node, "groups"))
    for position, expression in enumerate(bound.listed(node, "groups")):
        reason = orders.group(expression)
        rows = rows.unfixed_by("" if reason is None else reason)
        loose[position] = loose[position] or reason is None
    for position, expression in enumerate(map(bound.as_node, aggregates), start=len(groups)):
        judged = orders.aggregate(rows, expression, by, is_sorted=position in in_order)
        if id(expression) in walking.alone:
            judged = orders.aggregate(replace(rows, alone=True), expression, by)
        rows = rows.unfixed_by(judged.unfixed, orders.words(columns, judged.missing, judged.begun))
        loose.append(judged.loose)
    unit = frozenset(position for position, group in enumerate(groups) if group in rows.unit and position in in_all)
    date = dates_among(bound.listed(node, "groups"), rows.date)
    ties = frozenset(
        (position, key) for position, group in enumerate(groups) if position in in_all for key in rows.tied(group)
    )
    out = replace(
        rows.mixed("AGGREGATE"),
        width=len(groups) + len(aggregates) + len(bound.listed(node, "grouping_functions")),
        unit=unit,
        ties=ties,
        date=date and date.at(column for column in date.columns if column in in_all),
        alone=len(sets) == 1 and not groups,
        keys=frozenset(range(len(groups) if len(sets) == 1 else 0)),
        unique=frozenset([frozenset(range(len(groups)))] if len(sets) == 1 else ()),
        tells=frozenset(),
        loose=frozenset(position for position, is_loose in enumerate(loose) if is_loose),
        numbers=frozenset(),
        firsts=frozenset(),
        once=len(sets) == 1 and (rows.once or all(map(says_whose(rows), bound.listed(node, "groups")))),
    )
    return out if out.one_unit(range(len(groups))) else out.broken("AGGREGATE")


def _window(walking: _Walk, node: bound.Node) -> Rows:
    [rows] = walking.inputs(node, 1)
    windows = [bound.as_node(window) for window in bound.listed(node, "expressions")]
    by_unit = all(
        rows.one_unit(columns_among(map(bound.reference, parts)), dated=any(is_date(part, rows.date) for part in parts))
        for parts in (bound.listed(window, "partitions") for window in windows)
    )
    rows, loose = windows_of(rows, windows, node)
    numbering = ((column, numbering_of(rows, window)) for column, window in enumerate(windows, start=rows.width))
    numbers = rows.numbers | {(column, among) for column, among in numbering if among is not None}
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
    halves = bound.children(node)
    if len(halves) != 2:
        raise bound.UnreadableError(bound.kind(node))
    return halves


def _cross(walking: _Walk, node: bound.Node) -> Rows:
    equated = walking.pass_equated(node)
    left, right = walking.inputs(node, 2)
    rows = side_by_side(left, right, "INNER")
    if rows.public:
        return replace(rows, alone=left.alone and right.alone)
    if not left.public and not right.public:
        # FROM a, b WHERE a.unit = b.unit: the filter above keeps what a join would.
        ownership = (
            of_people(left, right, "INNER", _across(equated, left.width), choosing=False) if rows.by_unit else None
        )
        return rows.broken("CROSS_PRODUCT") if ownership is None else replace(rows.mixed("CROSS_PRODUCT"), **ownership)
    people, beside = (left, right) if right.public else (right, left)
    rows = replace(replace(rows, **passed_on(left, right)), once=people.once and beside.alone)
    return rows if beside.alone else rows.mixed("CROSS_PRODUCT")


def _across(equated: Sequence[Equality], width: int) -> list[Equality]:
    """Return the equalities that a filter demands across a join, whose left side has `width` columns."""
    return [
        equality._replace(right=equality.right - width)
        for equality in equated
        if equality.left < width <= equality.right
    ]


def _join(walking: _Walk, node: bound.Node) -> Rows:
    name, conditions = str(node.get("join_type", "INNER")), bound.listed(node, "conditions")
    equated = walking.pass_equated(node) if name == "INNER" and not any(_maps(node)) else ()
    demanded = walking.demanded.get(id(node), frozenset()) if not any(_maps(node)) else frozenset()
    walking.demand(node, demanded)  # a filter over several IN is above all their joins
    left, right = walking.inputs(node, 2)
    rows = side_by_side(left, right, name, conditions)
    if name == "SINGLE" and not matches_one(right, conditions, "right"):
        rows = rows.unfixed_by("a subquery in place of a value")
    for side, input_rows in (("left", left), ("right", right)):
        rows = rows.unfixed_by(
            blind(input_rows, [bound.as_node(condition).get(side) for condition in conditions])[0].unfixed
        )
    if rows.public:
        rows = replace(rows, keys=left.keys if name in LEFT_SIDE else frozenset())
    elif left.public or right.public:
        rows = beside_public(rows, left, right, name, conditions)
        if rows.row_level and not left.row_level and right.public:
            rows = replace(rows, lacks_key=rows.lacks_key or _key_of(bound.children(node)[1], conditions, "right"))
    else:
        marked = chooses(name, conditions, left.width in demanded)
        equal = [*equal_columns(conditions), *_across(equated, left.width)]
        ownership = of_people(left, right, name, equal, choosing=marked) if rows.by_unit else None
        rows = rows.broken(f"{name} JOIN") if ownership is None else replace(rows.mixed(f"{name} JOIN"), **ownership)
    return _projected(rows, node, left.width, right.width)


def _key_of(node: bound.Node, conditions: Sequence[object], side: str) -> str:
    """Return the statement that makes a key of a table's columns in a join's conditions; ``''`` if they have others."""
    operators = list(bound.operators(node))
    table = bound.table_of(operators[-1]) if bound.kind(operators[-1]) == "GET" else None
    columns = orders.columns_of(node)
    compared = {_identity(condition.get(side)) for condition in _equalities(conditions)}
    if table is None or columns is None or not {*map(bound.kind, operators)} <= {"GET", "FILTER", "PROJECTION"}:
        return ""
    names = [columns[column].name for column in sorted(column for column in compared if column is not None)]
    if not names or None in compared or not {*names} <= {*bound.scanned_columns(operators[-1])}:
        return ""
    return f"ALTER TABLE {'.'.join(map(identifier, table))} ADD PRIMARY KEY ({', '.join(map(identifier, names))})"


def _nearest(walking: _Walk, node: bound.Node) -> Rows:
    """Match each row of the left side with the nearest row of the right side, by equalities and one comparison.

    The left row alone chooses among public rows of which no two agree in all compared columns: there is at most one
    nearest row, whatever other rows there are, and in whatever order DuckDB reads them. The left rows keep their owner,
    and each gives at most one row.
    """
    name, conditions = str(node.get("join_type", "INNER")), bound.listed(node, "conditions")
    walked, lookup = walking.inputs(node, 2)
    rows = side_by_side(walked, lookup, name)
    signs = [bound.as_node(condition).get("comparison") for condition in conditions]
    ordered = [sign for sign in signs if sign not in _EQUAL]
    is_known = name in ("INNER", "LEFT") and len(ordered) == 1 and ordered[0] in _ORDERED and not node.get("predicate")
    if not is_known or not lookup.public or walked.public:
        return rows.broken("ASOF_JOIN").unfixed_by("ASOF JOIN")
    for side, input_rows in (("left", walked), ("right", lookup)):
        rows = rows.unfixed_by(
            blind(input_rows, [bound.as_node(condition).get(side) for condition in conditions])[0].unfixed
        )
    compared = set[int | None]()
    for condition in map(bound.as_node, conditions):
        compared |= {_key(condition.get("right")), _identity(condition.get("right"))}
    if not any(key <= compared for key in lookup.unique):  # DuckDB chooses among rows that tie
        return rows.broken("ASOF_JOIN").unfixed_by("ASOF JOIN")
    rows = replace(replace(rows, **passed_on(walked, lookup)), once=walked.once, unique=walked.unique)
    rows = rows if rows.unit else replace(rows, own_rows=rows.own_rows or "ASOF JOIN")
    return _projected(rows, node, walked.width, lookup.width)


def _maps(node: bound.Node) -> list[list[object]]:
    """Return the columns of either side that a join keeps; empty if it keeps all."""
    return [list(bound.listed(node, f"{side}_projection_map")) for side in ("left", "right")]


def _projected(rows: Rows, node: bound.Node, left: int, right: int) -> Rows:
    """Return a join's rows with only the columns that its maps keep."""
    maps = _maps(node)
    if not any(maps):
        return rows
    first = [bound.integer(column, _PROJECTION_MAP) for column in maps[0]] or list(range(left))
    if rows.width <= left + 1:  # no column of the right side, or only a mark
        second: list[int] = list(range(left, rows.width))
    else:
        second = [left + bound.integer(column, _PROJECTION_MAP) for column in maps[1]] or list(
            range(left, left + right)
        )
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
    "UNION": lambda walking, node: union_of(walking.inputs(node), keeps_duplicates=bool(node.get("setop_all"))),
    "MATERIALIZED_CTE": _cte,
    "CTE_REF": _cte_reference,
    "RECURSIVE_CTE": _recursive,
    "EMPTY_RESULT": lambda _, node: Rows(len(bound.listed(node, "return_types"))),
    # The outer columns of a correlated subquery: the join above it has their rows.
    "DELIM_GET": lambda _, node: Rows(len(bound.listed(node, "chunk_types"))),
    "CROSS_PRODUCT": _cross,
    "COMPARISON_JOIN": _join,
    "ASOF_JOIN": _nearest,
    **dict.fromkeys(
        (
            *("EXCEPT", "INTERSECT", "PIVOT"),
            *("ANY_JOIN", "DELIM_JOIN", "DEPENDENT_JOIN"),
        ),
        _broken,
    ),
    "LIMIT": _limit,
    **dict.fromkeys(("TOP_N", "SAMPLE", "POSITIONAL_JOIN"), _mixed_up),
}


@dataclass
class Reading:
    """The tables that a walk over a plan has read."""

    declarations: Declarations
    catalog: paths.Catalog
    tables: dict[str, paths.Path] = field(default_factory=dict)
    undeclared: dict[str, paths.Path] = field(default_factory=dict)
    scanned: dict[str, None] = field(default_factory=dict)
    declared: set[TableName | None] = field(default_factory=set)  # as they were declared
    free: dict[paths.Path, None] = field(default_factory=dict)  # the tables that are read as public
    keyed: bool = False  # whether the keys of tables are read
    keys: dict[paths.Path, Collection[frozenset[str]]] = field(default_factory=dict)  # the keys that were read

    def walk(self, node: bound.Node, views: Mapping[str, Leaf], within: bound.Node | None = None) -> Rows:
        """Return the rows of a plan, see `stability.walk`; read keys of tables only if an order or a row lacks one."""
        rows = walk(node, self.leaf, views, within)
        lacking = rows.unfixed or (rows.row_level and not rows.by_unit)
        if not lacking or self.keyed:
            return rows
        self.keyed = True
        return walk(node, self.leaf, views, within)

    def facts(self, rows: Rows, node: bound.Node) -> dict[str, Any]:
        """Return the facts about `rows`, which read these tables by a plan, for a `Placement`.

        If the plan leaves a person one row, the limit is one row. It applies to the rows themselves, so that a mistake
        here would cost rows and not privacy.
        """
        rows_per_unit = self.declarations.rows_per_unit(self.declared)
        keyed = tuple((*path, *sorted(key)) for path, keys in self.keys.items() for key in keys)
        return {
            "rows_per_unit": rows_per_unit,
            "once": rows.once and bool(rows.unit),
            "keyed": keyed,
            "loose": loose_of(rows, node),
            "free": tuple(self.free),
        }

    def leaf(self, path: paths.Path, covered: Leaf | None = None) -> Leaf | None:
        """Note that a plan reads a table, and return its leaf; `covered` is the leaf of a declared view around it."""
        name = self.catalog.display(path)
        self.tables[name] = path
        leaf = self._leaf(path, covered)
        if not self.keyed:
            return leaf
        self.keys[path] = self.catalog.unique(path)
        return replace(leaf or PUBLIC, unique=self.keys[path]) if self.keys[path] else leaf

    def _leaf(self, path: paths.Path, covered: Leaf | None) -> Leaf | None:
        name = self.catalog.display(path)
        leaf = self.declarations.leaf(self.catalog.table(path), path[0])
        if leaf is not None:
            self.declared |= {
                declaration.table for declaration in self.declarations.about(self.catalog.table(path), path[0])
            }
            self.scanned.update(dict.fromkeys(leaf.datasets))
            if leaf.unit is not None and fold(leaf.unit) in self.catalog.single(path):
                return replace(leaf, single=True)
        elif covered is None:
            self.undeclared[name] = path
        of = covered if leaf is None else leaf
        if of is not None and not of.datasets:
            self.free[path] = None
        return leaf


def loose_of(rows: Rows, node: bound.Node) -> tuple[tuple[str, str], ...]:
    """Return the names and types of the loose columns of a plan's rows."""
    columns = orders.columns_of(node) or ()
    return tuple((columns[column].name, orders.name_of(columns[column].kind)) for column in sorted(rows.loose))
