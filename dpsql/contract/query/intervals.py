"""What is known of an expression before any row is read: its bounds, and whether it is non-NULL in every row.

Bounds choose noise and clipping only: a wrong bound costs accuracy, never privacy. So the module does not model the
rounding of doubles beyond a little slack.

`has_value` decides whether an expression is non-NULL in every row, so that it needs no count of its own values. The
decision chooses how numbers are drawn. If it is wrong, a row without a value counts wrongly: this changes meaning,
never privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from fractions import Fraction

from dpsql.contract.query.nodes import Expr
from dpsql.dataclass import dataclass

_LONGEST = 40  # digits of an exponent would make numbers too large


@dataclass(frozen=True)
class Limits:
    """The interval of a number; None for an unknown end."""

    lower: Fraction | None = None
    upper: Fraction | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether the interval has both ends."""
        return self.lower is not None and self.upper is not None

    def within(self, other: Limits) -> Limits:
        """Return the intersection with another interval."""
        lowers = [end for end in (self.lower, other.lower) if end is not None]
        uppers = [end for end in (self.upper, other.upper) if end is not None]
        return Limits(max(lowers, default=None), min(uppers, default=None))

    def hull(self, other: Limits) -> Limits:
        """Return the smallest interval around both."""
        return Limits(_ends(min, self.lower, other.lower), _ends(max, self.upper, other.upper))


NOWHERE = Limits()
_BOOLEAN = frozenset(("and", "or", "not", "null", "present", "in", "between", "compare"))
_PARTS = {
    "month": (1, 12),
    "quarter": (1, 4),
    "day": (1, 31),
    "dayofmonth": (1, 31),
    "hour": (0, 23),
    "minute": (0, 59),
    "dow": (0, 6),
    "dayofweek": (0, 6),
    "weekday": (0, 6),
    "isodow": (1, 7),
    "week": (1, 53),
    "weekofyear": (1, 53),
    "doy": (1, 366),
    "dayofyear": (1, 366),
    "era": (0, 1),
}


def finite_part(expr: Expr) -> tuple[int, int] | None:
    """Return the least and greatest value of a date part with few values."""
    name = expr.name if expr.what == "call" else ""
    if name == "date_part" and expr.parts[0].what == "constant":
        name = str(expr.parts[0].value).lower().removesuffix("s")
        name = {"mon": "month", "d": "day", "h": "hour", "w": "week", "m": "minute", "hr": "hour"}.get(name, name)
    bounds = _PARTS.get(name)
    return None if bounds is None or (name in ("second", "minute") and expr.name == "epoch") else bounds


def literal_number(expr: Expr) -> Fraction | None:
    """Return the number of a literal."""
    if expr.what == "cast" and expr.parts:
        return (
            literal_number(expr.parts[0]) if expr.name.startswith(("DECIMAL", "DOUBLE", "BIGINT", "INTEGER")) else None
        )
    if expr.what != "constant" or expr.name != "number" or len(str(expr.value)) > _LONGEST:
        return None
    try:
        return Fraction(str(expr.value))
    except ValueError:
        return None


def interval(expr: Expr, column: Callable[[Expr], Limits]) -> Limits:
    """Return the interval of an expression; `column` gives the interval of a column or of another known part."""
    limits = column(expr)
    if expr.what == "item" or limits.is_bounded:
        return limits
    literal = literal_number(expr)
    if literal is not None:
        return Limits(literal, literal)
    if expr.what == "constant":
        return Limits(Fraction(int(expr.value == "true")), Fraction(int(expr.value == "true"))) if (
            expr.name == "boolean"
        ) else NOWHERE  # fmt: skip
    if expr.what in _BOOLEAN:
        return Limits(Fraction(0), Fraction(1))
    bounds = finite_part(expr)
    if bounds is not None:
        return Limits(Fraction(bounds[0]), Fraction(bounds[1]))
    intervals = [interval(part, column) for part in expr.parts]
    if expr.what == "case":
        return _hull([*_results(expr, intervals)])
    if expr.what == "coalesce":
        return _hull(intervals)
    if expr.what == "cast":
        return _cast(expr.name, intervals[0])
    if expr.what != "call":
        return NOWHERE
    rule = _RULES.get((expr.name, len(intervals)))
    if rule is not None:
        return rule(*intervals)
    if expr.name in ("greatest", "least") and intervals:
        return _extreme(expr.name, intervals)
    return NOWHERE


def _results(expr: Expr, intervals: list[Limits]) -> list[Limits]:
    """Return the intervals of a CASE's results, without NULLs."""
    positions = [*range(1, len(intervals) - 1, 2), len(intervals) - 1]
    return [intervals[position] for position in positions if not _is_null(expr.parts[position])]


def _is_null(expr: Expr) -> bool:
    return expr.what == "constant" and expr.name == "NULL"


def _hull(intervals: list[Limits]) -> Limits:
    if not intervals:
        return NOWHERE
    out = intervals[0]
    for limits in intervals[1:]:
        out = out.hull(limits)
    return out


def _ends(
    choose: Callable[[Fraction, Fraction], Fraction], first: Fraction | None, second: Fraction | None
) -> Fraction | None:
    return None if first is None or second is None else choose(first, second)


def _cast(name: str, limits: Limits) -> Limits:
    if name.endswith("INT") or name == "INTEGER":
        lower = None if limits.lower is None else Fraction(math.floor(limits.lower))
        upper = None if limits.upper is None else Fraction(math.ceil(limits.upper))
        return Limits(lower, upper)
    return limits if name in ("DOUBLE", "FLOAT") or name.startswith("DECIMAL") else NOWHERE


def _plus(first: Limits, second: Limits) -> Limits:
    add = Fraction.__add__
    return Limits(_both(add, first.lower, second.lower), _both(add, first.upper, second.upper))


def _both(
    act: Callable[[Fraction, Fraction], Fraction], first: Fraction | None, second: Fraction | None
) -> Fraction | None:
    return None if first is None or second is None else act(first, second)


def _negative(limits: Limits) -> Limits:
    return Limits(None if limits.upper is None else -limits.upper, None if limits.lower is None else -limits.lower)


def _minus(first: Limits, second: Limits) -> Limits:
    return _plus(first, _negative(second))


def _times(first: Limits, second: Limits) -> Limits:
    if first.lower is None or first.upper is None or second.lower is None or second.upper is None:
        return NOWHERE
    products = [a * b for a in (first.lower, first.upper) for b in (second.lower, second.upper)]
    return Limits(min(products), max(products))


def _over(first: Limits, second: Limits) -> Limits:
    if second.lower is None or second.upper is None or second.lower <= 0 <= second.upper:
        return NOWHERE
    return _times(first, Limits(1 / second.upper, 1 / second.lower))


def _floor(limits: Limits) -> Limits:
    return Limits(
        None if limits.lower is None else Fraction(math.floor(limits.lower)),
        None if limits.upper is None else Fraction(math.floor(limits.upper)),
    )


def _ceiling(limits: Limits) -> Limits:
    return _negative(_floor(_negative(limits)))


def _rounded(limits: Limits, *_: Limits) -> Limits:
    return Limits(_floor(limits).lower, _ceiling(limits).upper)


def _abs(limits: Limits) -> Limits:
    if limits.lower is None or limits.upper is None:
        return Limits(Fraction(0))
    ends = sorted((abs(limits.lower), abs(limits.upper)))
    return Limits(Fraction(0) if limits.lower <= 0 <= limits.upper else ends[0], ends[1])


def _modulo(first: Limits, second: Limits) -> Limits:
    most = _abs(second).upper
    if most is None:
        return NOWHERE
    low = Fraction(0) if first.lower is not None and first.lower >= 0 else -most
    return Limits(low, most)


def _extreme(name: str, intervals: list[Limits]) -> Limits:
    choose = max if name == "greatest" else min
    lowers, uppers = [limits.lower for limits in intervals], [limits.upper for limits in intervals]
    known_lower = [end for end in lowers if end is not None]
    known_upper = [end for end in uppers if end is not None]
    lower = choose(known_lower) if len(known_lower) == len(intervals) else (
        max(known_lower, default=None) if name == "greatest" else None
    )  # fmt: skip
    upper = choose(known_upper) if len(known_upper) == len(intervals) else (
        min(known_upper, default=None) if name == "least" else None
    )  # fmt: skip
    return Limits(lower, upper)


_RULES: dict[tuple[str, int], Callable[..., Limits]] = {
    ("+", 2): _plus,
    ("-", 2): _minus,
    ("-", 1): _negative,
    ("*", 2): _times,
    ("/", 2): _over,
    ("//", 2): lambda first, second: _rounded(_over(first, second)),
    ("%", 2): _modulo,
    ("abs", 1): _abs,
    ("floor", 1): _floor,
    ("ceil", 1): _ceiling,
    ("ceiling", 1): _ceiling,
    ("round", 1): _rounded,
    ("trunc", 1): _rounded,
    ("round", 2): _rounded,
    ("trunc", 2): _rounded,
    ("sign", 1): lambda _: Limits(Fraction(-1), Fraction(1)),
    ("length", 1): lambda _: Limits(Fraction(0)),
    ("strlen", 1): lambda _: Limits(Fraction(0)),
}


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
