"""Periods in a plan: which columns tell in which period a row is, and where rows of two periods would meet.

With periods what a row belongs to, its *owner*, is a person in a period: ``(u, t)``. The period of a value is the name
that `dpsql.contract.periods` has for it, or none at all: NULL, infinite dates and dates of no such name have the
period ``none``, of which no call sees a row. Two databases are neighbours for ``(u, t)`` if one lacks

* every row of a dated table with the id u and a date in t, and
* every row that a path reaches from such rows alone: the end of a path takes its parent's date, so a row that another
  person, or another period of u, reaches, too, stays.

That is the relation of `stability` with owners in place of persons, and so is its proof, in which to show is that an
owner's rows are a function of what this owner has or reaches. Of periods that asks two things more:

1. *A date* (`Dates.columns`) is a column of which every value is in the period of the row's owner. The column that the
   owner states is one; so is what an expression makes of a date without leaving its period (`kept`):
   ``date_trunc('month', day)``, or a cast between DATE and TIMESTAMP. Then rows that agree in the person's id and in a
   date have one owner: groups, DISTINCT and windows that contain both keep to it, and so do joins in which the ids and
   two dates are equal. An id alone would mix periods. Rows that are still pending belong to the value of a key, as in
   `stability`: they have no date, and need none, until they meet their parent.
2. *An undated table* (`Dates.static`) has rows of a person at all times. These are the same in two neighbours for
   ``(u, t)``, so rows of ``(u, t)`` may depend on them: a dated row may look its person's undated rows up, as if these
   were public. What comes of a join of both is dated. But no undated row may be kept, chosen or made by dated ones,
   because it would carry every period into a row without one: an undated row is only passed on beside a dated row that
   it meets.

**The person.** Undated rows of others are never looked up, although the relation for ``(u, t)`` would allow it. So
where a person u goes, the dated rows of u may go first, one period after the other, for which each call is charged to
as many blocks as it names; after that no call on dated rows looks an undated row of u up, and the undated rows go
unnoticed by these calls. Calls on undated rows alone are charged to the block ``undated``. So what a person may lose
is the sum over all calls (`dpsql.ledger.blocks`), of undated rows, too. It is *not* so that undated rows have the
epsilon of one block: what they add to dated rows is protected by that sum.

A join of two dated tables by the id alone is a row of two periods, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dpsql.contract.periods import PERIODS
from dpsql.engines.duckdb.lineage import bound

EVERY_PERIOD = frozenset(PERIODS)
# The parts that `date_trunc` may cut a date down to, and the periods that the result is still in.
_FINE = ("hour", "minute", "second", "millisecond", "microsecond")
_KEEPS = {
    **dict.fromkeys((*_FINE, "day"), EVERY_PERIOD),
    "week": frozenset(("week",)),
    "month": frozenset(("month", "quarter", "year")),
    "quarter": frozenset(("quarter", "year")),
    "year": frozenset(("year",)),
}
_TRUNCATES = frozenset(("date_trunc", "datetrunc"))
# Types of which a cast, and what truncates, follow no setting of the session.
_PLAIN = frozenset(("DATE", "TIMESTAMP"))


class Equality(NamedTuple):
    """Two columns that are equal, and how: as bytes are, or only in their periods; whether NULL equals NULL."""

    left: int
    right: int
    null: bool
    whole: bool = True
    periods: frozenset[str] = EVERY_PERIOD  # in which rows with the two dates are together


@dataclass(frozen=True)
class Dates:
    """In which periods rows are that belong to a dataset with periods.

    Attributes
    ----------
    period : str
        Of `PERIODS`; ``''`` for rows of several datasets, or of dated and undated tables, whose owners are unknown.
    columns : frozenset of int
        The columns with a date.
    static : bool
        Whether the rows are of a person at all times.
    """

    period: str
    columns: frozenset[int] = frozenset()
    static: bool = False

    def at(self, places: Iterable[int]) -> Dates:
        """Return the same of rows that have dates in other columns."""
        return replace(self, columns=frozenset(places))

    def behind(self, width: int) -> Dates:
        """Return the same where the columns stand behind as many others."""
        return self.at(width + place for place in self.columns)

    def fits(self, other: Dates) -> bool:
        """Whether the rows of both have owners in periods of one kind."""
        return self.period == other.period and self.period != ""


def kept(expression: object) -> tuple[int, frozenset[str]] | None:
    """Return the column that an expression makes a date of, and the periods that no value leaves by it.

    `TRY_CAST` makes NULL of dates that a TIMESTAMP cannot hold; neither is in a period.
    """
    column = bound.reference(expression)
    if column is not None:
        return column, EVERY_PERIOD
    node = expression if isinstance(expression, dict) else {}
    given = bound.arguments(node) or [node.get("child")]
    if node.get("type") == "OPERATOR_CAST":
        return kept(given[0]) if {bound.type_of(node), bound.type_of(given[0])} <= _PLAIN else None
    if bound.called(node) not in _TRUNCATES or not bound.is_own(node) or len(given) != 2:
        return None
    part, below = bound.constant(given[0]), kept(given[1])
    periods = _KEEPS.get(part.lower()) if isinstance(part, str) else None
    if periods is None or below is None or not {bound.type_of(node), bound.type_of(given[1])} <= _PLAIN:
        return None
    return below[0], below[1] & periods


def is_date(expression: object, dates: Dates | None) -> bool:
    """Whether an expression is a date of the rows that it is computed of."""
    if dates is None or not dates.columns:
        return False
    found = kept(expression)
    return found is not None and found[0] in dates.columns and dates.period in found[1]


def is_whole_period(expression: object, dates: Dates | None) -> bool:
    """Whether an expression is a date of the rows, and one and the same for all dates of a period."""
    if dates is None or not is_date(expression, dates):
        return False
    node = bound.as_node(expression)
    while node.get("type") == "OPERATOR_CAST":
        node = bound.as_node((bound.arguments(node) or [node.get("child")])[0])
    return bound.called(node) in _TRUNCATES and str(bound.constant(bound.arguments(node)[0])).lower() == dates.period


def places_of_dates(expressions: Sequence[object], dates: Dates | None) -> Dates | None:
    """Return the dates among expressions that are computed of rows."""
    return dates and dates.at(place for place, one in enumerate(expressions) if is_date(one, dates))


def of_parts(people: Sequence[Dates | None]) -> Dates | None:
    """Return what inputs with rows of people have in common of periods, without columns; None where none has any."""
    found = {None if date is None else (date.period, date.static) for date in people}
    first = next(filter(None, people), None)
    return first and (first.at(()) if len(found) == 1 else Dates(""))


class Met(NamedTuple):
    """The dates of the rows of a join; made only where no rows of two periods meet."""

    date: Dates | None


def of_one_owner(
    one: Dates | None, other: Dates | None, width: int, name: str, equal: Sequence[Equality], *, pending: bool
) -> Met | None:
    """Return the dates where rows of both sides meet by the person's id or, where they are `pending`, by their key.

    None where an owner would meet rows of another one. The left side has as many columns as the `width` says.
    """
    if one is None or other is None:
        return Met(None) if one is other else None
    if not one.fits(other):
        return None
    if pending or (one.static and other.static):
        return Met(one.at(())) if one.static == other.static else None
    if other.static:
        return Met(one)
    if one.static:  # what is looked up must not be chosen by rows that look it up
        return Met(other.behind(width)) if name == "INNER" else None
    if not _in_one_period(one, other, equal):
        return None
    return Met(one.at(one.columns | other.behind(width).columns) if name == "INNER" else one)


def of_owner(owner: Dates | None, reached: Dates | None) -> Met | None:
    """Return the dates of an owner's rows that meet those that they reach along a path; None where they may not."""
    if owner is None or reached is None:
        return Met(None) if owner is reached else None
    # Undated rows reach undated rows, and dated ones look these up.
    return Met(owner) if owner.fits(reached) and (owner.static == reached.static or reached.static) else None


def _in_one_period(one: Dates, other: Dates, equal: Sequence[Equality]) -> bool:
    """Whether a date of one side equals a date of the other."""
    return any(
        each.left in one.columns and each.right in other.columns and one.period in each.periods for each in equal
    )
