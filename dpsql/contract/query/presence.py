"""Decides whether an expression is non-NULL in every row, so that it needs no count of its own values.

The decision chooses how numbers are drawn. If it is wrong, a row without a value counts wrongly: this changes meaning,
never privacy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from dpsql.contract.query.nodes import Expr

# Calls that are non-NULL if all arguments are; on overflow the query itself fails.
_KEEPING = frozenset(("+", "-", "*", "abs", "least", "greatest"))
# Conditions that no NULL satisfies; nodes that no value makes fail.
_REFUSING = frozenset(("compare", "between", "in", "present"))
_HARMLESS = frozenset(("item", "constant", "compare", "between", "in", "present", "null", "and", "or", "not"))


def has_value(expr: Expr, column: Callable[[Expr], bool]) -> bool:
    """Return whether an expression is non-NULL in every row; `column` answers for a column."""
    if expr.what == "item":
        return column(expr)
    if expr.what == "constant":
        return expr.name != "NULL"
    if expr.what == "coalesce":
        return any(has_value(part, column) for part in expr.parts)
    if expr.what == "case":
        results = [*expr.parts[1:-1:2], expr.parts[-1]]
        conditions = expr.parts[:-1:2]
        harmless = all(_is_harmless(part) for condition in conditions for part in condition.walk())
        return harmless and all(has_value(part, column) for part in results)
    return expr.what == "call" and expr.name in _KEEPING and all(has_value(part, column) for part in expr.parts)


def _is_harmless(expr: Expr) -> bool:
    return expr.what in _HARMLESS or (expr.what == "call" and expr.name == "~~")


def refuses_null(condition: Expr, value: Expr) -> bool:
    """Return whether a true condition implies that a column is non-NULL."""
    if condition.what not in _REFUSING or not condition.parts:
        return False
    sides = condition.parts if condition.what == "compare" else condition.parts[:1]
    return value in sides and condition.name not in ("IS DISTINCT FROM", "IS NOT DISTINCT FROM")


# Signs that may be true for NULL, and calls that skip NULL.
_SEEING = frozenset(("IS DISTINCT FROM", "IS NOT DISTINCT FROM"))
_PASSING_OVER = frozenset(("greatest", "least", "concat_ws", "row", "struct_pack", "list_value"))
# Decides whether an expression is missing.
Missing = Callable[[Expr], bool]


def columns_of(items: Collection[str]) -> Missing:
    """Return the test that an expression is a column of some items."""
    return lambda expr: expr.what == "item" and str(expr.value) in items


def is_null_without(expr: Expr, missing: Missing) -> bool:
    """Return whether an expression is certainly NULL in a row with NULL for all `missing`."""
    if missing(expr):
        return True
    parts = [is_null_without(part, missing) for part in expr.parts]
    if expr.what == "item":
        return False
    if expr.what == "constant":
        return expr.name == "NULL"
    if expr.what == "case":
        whens = [fails_without(part, missing) for part in expr.parts[:-1:2]]
        return all(when or then for when, then in zip(whens, parts[1:-1:2], strict=True)) and parts[-1]
    if expr.what in ("coalesce", "and", "or"):
        return all(parts)
    if expr.what in ("cast", "not"):
        return parts[0]
    if expr.what in ("in", "between", "element"):
        return parts[0]
    if expr.what == "compare":
        return any(parts) and expr.name not in _SEEING
    return expr.what == "call" and any(parts) and (expr.name not in _PASSING_OVER or all(parts))


def fails_without(condition: Expr, missing: Missing) -> bool:
    """Return whether a condition certainly fails in a row with NULL for all `missing`."""
    if condition.what in ("and", "or"):
        fails = [fails_without(part, missing) for part in condition.parts]
        return any(fails) if condition.what == "and" else all(fails)
    if condition.what == "present":
        return is_null_without(condition.parts[0], missing)
    return is_null_without(condition, missing)


def counts_nothing_without(aggregate: Expr, missing: Missing) -> bool:
    """Return whether an aggregate ignores the rows with NULL for all `missing`."""
    if aggregate.filter is not None and fails_without(aggregate.filter, missing):
        return True
    if aggregate.name in ("count_if", "countif"):
        return fails_without(aggregate.parts[0], missing)
    if aggregate.name == "sum" and not aggregate.flag and _adds_nothing_without(aggregate.parts[0], missing):
        return True
    return any(is_null_without(part, missing) for part in aggregate.parts)


def _adds_nothing_without(expr: Expr, missing: Missing) -> bool:
    """Return whether a value is NULL or 0 in a row with NULL for all `missing`."""
    zero = expr.what == "constant" and expr.value == "0"
    if expr.what == "case":
        whens = [fails_without(part, missing) for part in expr.parts[:-1:2]]
        thens = [_adds_nothing_without(part, missing) for part in (*expr.parts[1:-1:2], expr.parts[-1])]
        return all(when or then for when, then in zip(whens, thens[:-1], strict=True)) and thens[-1]
    if expr.what == "coalesce":
        return all(_adds_nothing_without(part, missing) for part in expr.parts)
    return zero or is_null_without(expr, missing)
