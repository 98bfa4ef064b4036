"""Whether two conditions of a query can hold for one row: by their trees alone, and only where it is plain.

Conditions are taken apart by AND, OR and NOT, whose laws hold for NULL, too. Two atoms exclude each other where they
are one condition and its NOT, or say of the same expression that it is among different literals, or that it is among
some literals and among none of them, or that it is NULL and anything of that. Conditions that hold are not NULL.

What is said here chooses noise: where it is wrong, a row counts in the first cell whose condition holds, and the
guarantee is what it was (`dpsql.statistics.aggregates`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from dpsql.contract.query.intervals import number
from dpsql.contract.query.nodes import Expr
from dpsql.contract.query.split import QueryAggregate

# Larger conditions are not looked at, and no core of more cells.
_MOST_NODES, MOST_CELLS = 200, 64


@dataclass(frozen=True)
class Indicator:
    """A condition for which a value is 1.

    Attributes
    ----------
    holds : Expr
    else_zero : bool
        Whether it is 0 for some other rows, rather than NULL.
    """

    holds: Expr
    else_zero: bool


def indicator(value: Expr) -> Indicator | None:
    """Return the condition for which a value is 1, and else 0 or NULL; None where it is not of this kind."""
    if value.what != "case" or len(value.parts) != 3:
        return None
    condition, then, otherwise = value.parts
    zero = number(otherwise) == 0
    if not zero and not (otherwise.what == "constant" and otherwise.name == "NULL"):
        return None
    if number(then) == 1:
        return Indicator(condition, zero)
    inner = indicator(then)
    return None if inner is None else Indicator(Expr("and", parts=(condition, inner.holds)), zero or inner.else_zero)


def are_disjoint(aggregates: Iterable[QueryAggregate], known: Mapping[str, Indicator]) -> bool:
    """Return whether all aggregates of a core count rows of conditions, several of them, of which one holds at most."""
    columns: dict[str, Indicator] = {}
    for one in aggregates:
        if one.kind in ("sum", "values"):
            found = known.get(str(one.column))
            if found is None or (one.kind == "values" and found.else_zero):
                return False
            columns[str(one.column)] = found
        elif one.kind == "rows":
            return False
    conditions = [found.holds for found in columns.values()]
    small = all(sum(1 for _ in one.walk()) <= _MOST_NODES for one in conditions)
    return 2 <= len(conditions) <= MOST_CELLS and small and all(exclude(*two) for two in combinations(conditions, 2))


def exclude(one: Expr, other: Expr) -> bool:
    """Return whether two conditions never hold for one row."""
    return _exclude(_positive(one), _positive(other))


def _positive(expr: Expr, *, negated: bool = False) -> Expr:
    """Return a condition in which NOT stands before atoms alone; IN is an OR of equalities."""
    if expr.what == "in":
        value, *listed = expr.parts
        equal = tuple(Expr("compare", "=", (value, one)) for one in listed)
        return _positive(Expr("or", parts=equal), negated=negated)
    if expr.what == "not":
        return _positive(expr.parts[0], negated=not negated)
    if expr.what == "present":
        return _positive(Expr("null", parts=expr.parts), negated=not negated)
    if expr.what in ("and", "or"):
        what = expr.what if not negated else {"and": "or", "or": "and"}[expr.what]
        return Expr(what, parts=tuple(_positive(part, negated=negated) for part in expr.parts))
    return Expr("not", parts=(expr,)) if negated else expr


def _exclude(one: Expr, other: Expr) -> bool:
    for taken, left in ((one, other), (other, one)):
        if taken.what == "or":
            return all(_exclude(part, left) for part in taken.parts)
    for taken, left in ((one, other), (other, one)):
        if taken.what == "and":
            return any(_exclude(part, left) for part in taken.parts)
    (mine, held), (theirs, also_held) = _atom(one), _atom(other)
    if mine == theirs:
        return held != also_held
    first, second = _told(mine, held=held), _told(theirs, held=also_held)
    nulls = [atom.parts[0] for atom, holds in ((mine, held), (theirs, also_held)) if atom.what == "null" and holds]
    if nulls and any(found is not None and found.of in nulls for found in (first, second)):
        return True
    if first is None or second is None or first.of != second.of:
        return False
    if first.inside and second.inside:  # literals of one kind that differ are different values
        return first.literal != second.literal and first.literal[0] == second.literal[0]
    return first.inside != second.inside and first.literal == second.literal


def _atom(expr: Expr) -> tuple[Expr, bool]:
    return (expr.parts[0], False) if expr.what == "not" else (expr, True)


Literal = tuple[str, str | Fraction]


@dataclass(frozen=True)
class _Told:
    """That an expression is a literal, or another value."""

    of: Expr
    literal: Literal
    inside: bool


def _told(expr: Expr, *, held: bool) -> _Told | None:
    if expr.what != "compare" or expr.name not in ("=", "<>"):
        return None
    left, right = expr.parts
    value, literal = (left, right) if _literal(left) is None else (right, left)
    found = _literal(literal)
    if found is None or _literal(value) is not None:
        return None
    return _Told(value, found, (expr.name == "=") == held)


def _literal(expr: Expr) -> Literal | None:
    """Return a literal with its kind: a number, or a text."""
    if expr.what == "constant" and expr.name == "string" and expr.value is not None:
        return "string", expr.value
    found = number(expr)
    return None if found is None else ("number", found)
