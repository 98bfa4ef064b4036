"""Joins: whose their rows are, from whose the rows of either side are; `stability` has the induction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypedDict

from dpsql.engines.duckdb.lineage import bound
from dpsql.engines.duckdb.lineage.dates import Dates, Equality, Met, kept, of_one_owner, of_owner
from dpsql.engines.duckdb.lineage.rows import INTEGERS, Key, Rows, together

# Joins that return columns of both sides; and those that return each row of the left side at most once.
BOTH_SIDES = frozenset(("INNER", "LEFT", "RIGHT", "OUTER", "FULL"))
LEFT_SIDE = frozenset(("SEMI", "ANTI", "MARK", "SINGLE"))
_CHOOSING = frozenset(("SEMI", "ANTI", "MARK"))
# NULL stands for itself in a key, and for nobody as a unit, so that two rows without a unit may meet.
_EQUAL = frozenset(("COMPARE_EQUAL", "COMPARE_NOT_DISTINCT_FROM"))
_SIZES = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}
# The least value of each integer type, and the first one above all.
_RANGES = {name: (-(1 << size - 1), 1 << size - 1) for name, size in _SIZES.items()} | {
    f"U{name}": (0, 1 << size) for name, size in _SIZES.items()
}


class _Owned(TypedDict, total=False):
    """Whose the rows of a join are, and whether each has one at most: fields of `Rows`."""

    once: bool
    unit: frozenset[int]
    pending: Key | None
    ties: frozenset[tuple[int, Key]]
    date: Dates | None


def passed_on(left: Rows, right: Rows) -> _Owned:
    """Return whose rows they are that stand beside public ones."""
    unit, ties = right.behind(left.width)
    return {
        "unit": left.unit | unit,
        "pending": (right if left.public else left).pending,
        "ties": left.ties | ties,
        "date": left.date if right.public else right.date and right.date.behind(left.width),
    }


def side_by_side(left: Rows, right: Rows, name: str, conditions: Sequence[object] = ()) -> Rows:
    """Return the rows of a join with what holds of them whoever they belong to.

    A key of either side, and a key of the other, are a key of pairs; with NULL for one side of an outer join, too.
    """
    added = {"SEMI": 0, "ANTI": 0, "MARK": 1}.get(name, right.width)
    rows = together([left, right], left.width + added)
    if name in LEFT_SIDE:
        loose = left.loose | {left.width + place for place in right.loose if name == "SINGLE"}
        return replace(rows, unique=left.unique, tells=left.tells, loose=loose)
    there = frozenset(_behind(left.width, key) for key in right.unique)
    unique = set[frozenset[int]]()
    if name in ("INNER", "LEFT", "RIGHT"):
        unique |= {one | other for one in left.unique for other in there}
    if name in ("INNER", "LEFT") and matches_one(right, conditions, "right"):
        unique |= left.unique
    if name in ("INNER", "RIGHT") and matches_one(left, conditions, "left"):
        unique |= there
    tells = {(left.width + one, left.width + other) for one, other in right.tells}
    loose = left.loose | _behind(left.width, right.loose)
    return replace(rows, unique=frozenset(unique), tells=left.tells | tells, loose=loose)


def _behind(width: int, places: frozenset[int]) -> frozenset[int]:
    return frozenset(width + place for place in places)


def matches_one(rows: Rows, conditions: Sequence[object], side: str) -> bool:
    """Whether the conditions of a join determine a key of one side: each row of the other matches one row of it."""
    equal = {_key(condition.get(side)) for condition in _equalities(conditions)}
    return rows.alone or any(key <= equal for key in rows.unique)


def beside_public(rows: Rows, left: Rows, right: Rows, name: str, conditions: Sequence[object]) -> Rows:
    """Return the rows of a join of which one side is public."""
    whose = passed_on(left, right)
    if name not in BOTH_SIDES:
        date = rows.date if left.public else left.date
        whose = {"unit": left.unit, "pending": left.pending, "ties": left.ties, "date": date}
    rows = replace(rows, **whose)
    if name not in BOTH_SIDES | LEFT_SIDE:
        rows = rows.broken(f"{name} JOIN")
    if right.public:
        single = name in LEFT_SIDE or (name in ("INNER", "LEFT") and _at_most_one(right, conditions, "right"))
    else:
        single = name in ("INNER", "RIGHT") and _at_most_one(left, conditions, "left")
    rows = replace(rows, once=(left if right.public else right).once) if single else rows.mixed(f"{name} JOIN")
    return rows if rows.unit else replace(rows, own_rows=rows.own_rows or f"{name} JOIN")


def of_people(left: Rows, right: Rows, name: str, equal: Sequence[Equality], *, choosing: bool) -> _Owned | None:
    """Return whose the rows of a join of people's tables are; None where rows of several people may meet.

    Rows meet by what both belong to; or rows that belong to a key meet a row that has this key. A key that is NULL
    points to nothing. With periods they are those of one period, see `dates`.
    """
    if name not in ("INNER", "LEFT") and not choosing:
        return None
    unit, ties = right.behind(left.width)
    tied = left.ties | ties
    if left.pending == right.pending and _meet(left.unit, right.unit, equal, null=True):
        pending = left.pending is not None
        met = of_one_owner(left.date, right.date, left.width, name, equal, pending=pending)
        owner = left.unit | unit if name == "INNER" else left.unit
        once = left.once and (choosing or right.once)
        return _owned(met, owner, left.pending, left.ties if choosing else tied, once=once)
    below = frozenset(place for place, key in left.ties if key == right.pending)
    if right.pending is not None and _meet(below, right.unit, equal):
        found = tied | frozenset((place, right.pending) for place in unit)
        whose = left.ties if choosing else found
        return _owned(of_owner(left.date, right.date), left.unit, left.pending, whose, once=choosing and left.once)
    above = frozenset(place for place, key in right.ties if key == left.pending)
    if left.pending is not None and not choosing and _meet(left.unit, above, equal):
        found = tied | frozenset((place, left.pending) for place in left.unit)
        met = of_owner(right.date and right.date.behind(left.width), left.date)
        return _owned(met, unit, right.pending, found)
    return None


def _owned(
    met: Met | None, unit: frozenset[int], pending: Key | None, ties: frozenset[tuple[int, Key]], *, once: bool = False
) -> _Owned | None:
    if met is None:
        return None
    return {"unit": unit, "pending": pending, "ties": ties, "date": met.date, "once": once}


def chooses(name: str, conditions: Sequence[object], demanded: bool) -> bool:
    """Whether a join keeps or marks each row by the matches of its unit alone, where a condition is on the unit.

    The mark of ``unit IN (...)`` is NULL instead of false where the other side has a row of nobody, and the mark of a
    row of nobody is NULL where it has any row. An outer join makes a row of nobody where no unit has a value. So the
    mark may only be demanded to be true, as by a filter: then NULL is as good as false. The mark of EXISTS is never
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


def _key(expression: object) -> int | None:
    """Return the column that an expression passes on, also through a cast between integers, which is injective."""
    if isinstance(expression, dict) and expression.get("type") == "OPERATOR_CAST":
        below = expression.get("child") or next(iter(bound.listed(expression, "children")), None)
        kinds = [bound.type_of(expression), bound.type_of(below)]
        return bound.reference(below) if all(kind in INTEGERS for kind in kinds) else None
    return bound.reference(expression)


def _meet(left: frozenset[int], right: frozenset[int], equal: Sequence[Equality], *, null: bool = False) -> bool:
    """Whether a column of the left side equals one of the right side; NULL may equal NULL where it is `null`."""
    return any(one.whole and one.left in left and one.right in right and (null or not one.null) for one in equal)


def equal_columns(conditions: Sequence[object]) -> list[Equality]:
    """Return the columns of either side that a join's conditions demand to be equal."""
    sides = ((one.get("left"), one.get("right"), one.get("comparison")) for one in _equalities(conditions))
    found = (_equality(left, right, null=comparison != "COMPARE_EQUAL") for left, right, comparison in sides)
    return [one for one in found if one is not None]


def _equality(left: object, right: object, *, null: bool) -> Equality | None:
    """Return what it says of two columns that two expressions are equal."""
    columns = _identity(left), _identity(right)
    if columns[0] is not None and columns[1] is not None:
        return Equality(columns[0], columns[1], null)
    dates = kept(left), kept(right)
    if dates[0] is None or dates[1] is None:
        return None
    return Equality(dates[0][0], dates[1][0], null, False, dates[0][1] & dates[1][1])


def equal_columns_of(found: Sequence[bound.Node]) -> list[Equality]:
    """Return the columns of one input that conditions on its rows demand to be equal, the first one first."""
    out: list[Equality] = []
    for one in found:
        sides = bound.arguments(one) or [one.get("left"), one.get("right")]
        if one.get("type") == "COMPARE_EQUAL" and len(sides) == 2:
            equality = _equality(*sides, null=False)
            if equality is not None:
                left, right = sorted((equality.left, equality.right))
                out.append(equality._replace(left=left, right=right))
    return out


def _identity(expression: object) -> int | None:
    """Return the column whose values an expression tells apart as bytes do, of every type that a path may have.

    A cast to a wider integer never fails, and `encode` gives the bytes of a text. A collation calls another function.
    """
    node = expression if isinstance(expression, dict) else {}
    below = bound.arguments(node) or [node.get("child")]
    if node.get("type") == "OPERATOR_CAST":
        wider, narrow = (_RANGES.get(bound.type_of(each)) for each in (node, below[0]))
        if wider is None or narrow is None or not (wider[0] <= narrow[0] and narrow[1] <= wider[1]):
            return None
        return bound.reference(below[0])
    if bound.called(node) == "encode" and len(below) == 1 and bound.is_own(node):
        return bound.reference(below[0])
    return bound.reference(expression)


def _equalities(conditions: Sequence[object]) -> list[bound.Node]:
    return [one for one in conditions if isinstance(one, dict) and one.get("comparison") in _EQUAL]
