"""Whether an expression has a value in every row, so that it needs no number of values of its own.

It decides how numbers are drawn, and what a row without a value would count as where the answer is wrong: meaning, and
never privacy.
"""

from __future__ import annotations

from collections.abc import Callable

from dpsql.contract.query.nodes import Expr

# Calls that have a value where all arguments have, but for overflow, on which the query itself would fail.
_KEEPING = frozenset(("+", "-", "*", "abs", "least", "greatest"))
# Conditions that are true of no NULL; nodes that no value makes fail.
_REFUSING = frozenset(("compare", "between", "in", "present"))
_HARMLESS = frozenset(("item", "constant", "compare", "between", "in", "present", "null", "and", "or", "not"))


def has_value(expr: Expr, column: Callable[[Expr], bool]) -> bool:
    """Return whether an expression has a value in every row; `column` says it of a column."""
    if expr.what == "item":
        return column(expr)
    if expr.what == "constant":
        return expr.name != "NULL"
    if expr.what == "coalesce":
        return any(has_value(one, column) for one in expr.parts)
    if expr.what == "case":
        results = [*expr.parts[1:-1:2], expr.parts[-1]]
        conditions = expr.parts[:-1:2]
        harmless = all(_is_harmless(one) for each in conditions for one in each.walk())
        return harmless and all(has_value(one, column) for one in results)
    return expr.what == "call" and expr.name in _KEEPING and all(has_value(one, column) for one in expr.parts)


def _is_harmless(expr: Expr) -> bool:
    return expr.what in _HARMLESS or (expr.what == "call" and expr.name == "~~")


def refuses_null(condition: Expr, value: Expr) -> bool:
    """Return whether a condition that holds says that a column has a value."""
    if condition.what not in _REFUSING or not condition.parts:
        return False
    sides = condition.parts if condition.what == "compare" else condition.parts[:1]
    return value in sides and condition.name not in ("IS DISTINCT FROM", "IS NOT DISTINCT FROM")
