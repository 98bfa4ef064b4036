"""Bounds of expressions by interval arithmetic: exact over literals and declared columns, in fractions.

Bounds choose noise and clipping alone: a wrong one costs accuracy, never privacy. So rounding of doubles is not
modelled beyond a little slack.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from dpsql.contract.query.nodes import Expr

_LONGEST = 40  # digits of an exponent would make numbers too large


@dataclass(frozen=True)
class Limits:
    """What a number lies in; None where an end is not known."""

    lower: Fraction | None = None
    upper: Fraction | None = None

    @property
    def known(self) -> bool:
        """Whether both ends are known."""
        return self.lower is not None and self.upper is not None

    def within(self, other: Limits) -> Limits:
        """Return the part of it that lies in another one."""
        lowers = [one for one in (self.lower, other.lower) if one is not None]
        uppers = [one for one in (self.upper, other.upper) if one is not None]
        return Limits(max(lowers, default=None), min(uppers, default=None))

    def hull(self, other: Limits) -> Limits:
        """Return what holds both."""
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
    """Return the least and greatest value of a part of a date, where there are few."""
    name = expr.name if expr.what == "call" else ""
    if name == "date_part" and expr.parts[0].what == "constant":
        name = str(expr.parts[0].value).lower().removesuffix("s")
        name = {"mon": "month", "d": "day", "h": "hour", "w": "week", "m": "minute", "hr": "hour"}.get(name, name)
    found = _PARTS.get(name)
    return None if found is None or (name in ("second", "minute") and expr.name == "epoch") else found


def number(expr: Expr) -> Fraction | None:
    """Return the number of a literal."""
    if expr.what == "cast" and expr.parts:
        return number(expr.parts[0]) if expr.name.startswith(("DECIMAL", "DOUBLE", "BIGINT", "INTEGER")) else None
    if expr.what != "constant" or expr.name != "number" or len(str(expr.value)) > _LONGEST:
        return None
    try:
        return Fraction(str(expr.value))
    except ValueError:
        return None


def interval(expr: Expr, column: Callable[[Expr], Limits]) -> Limits:
    """Return what an expression lies in; `column` gives it of a column, or of a part that is known otherwise."""
    found = column(expr)
    if expr.what == "item" or found.known:
        return found
    known = number(expr)
    if known is not None:
        return Limits(known, known)
    if expr.what == "constant":
        return Limits(Fraction(int(expr.value == "true")), Fraction(int(expr.value == "true"))) if (
            expr.name == "boolean"
        ) else NOWHERE  # fmt: skip
    if expr.what in _BOOLEAN:
        return Limits(Fraction(0), Fraction(1))
    part = finite_part(expr)
    if part is not None:
        return Limits(Fraction(part[0]), Fraction(part[1]))
    given = [interval(one, column) for one in expr.parts]
    if expr.what == "case":
        return _hull([*_results(expr, given)])
    if expr.what == "coalesce":
        return _hull(given)
    if expr.what == "cast":
        return _cast(expr.name, given[0])
    if expr.what != "call":
        return NOWHERE
    rule = _RULES.get((expr.name, len(given)))
    if rule is not None:
        return rule(*given)
    if expr.name in ("greatest", "least") and given:
        return _extreme(expr.name, given)
    return NOWHERE


def _results(expr: Expr, given: list[Limits]) -> list[Limits]:
    """Return the intervals of the results of a CASE, without those that are NULL."""
    places = [*range(1, len(given) - 1, 2), len(given) - 1]
    return [given[position] for position in places if not _is_null(expr.parts[position])]


def _is_null(expr: Expr) -> bool:
    return expr.what == "constant" and expr.name == "NULL"


def _hull(given: list[Limits]) -> Limits:
    if not given:
        return NOWHERE
    out = given[0]
    for one in given[1:]:
        out = out.hull(one)
    return out


def _ends(
    choose: Callable[[Fraction, Fraction], Fraction], one: Fraction | None, two: Fraction | None
) -> Fraction | None:
    return None if one is None or two is None else choose(one, two)


def _cast(name: str, given: Limits) -> Limits:
    if name.endswith("INT") or name == "INTEGER":
        lower = None if given.lower is None else Fraction(math.floor(given.lower))
        upper = None if given.upper is None else Fraction(math.ceil(given.upper))
        return Limits(lower, upper)
    return given if name in ("DOUBLE", "FLOAT") or name.startswith("DECIMAL") else NOWHERE


def _plus(one: Limits, two: Limits) -> Limits:
    add = Fraction.__add__
    return Limits(_both(add, one.lower, two.lower), _both(add, one.upper, two.upper))


def _both(act: Callable[[Fraction, Fraction], Fraction], one: Fraction | None, two: Fraction | None) -> Fraction | None:
    return None if one is None or two is None else act(one, two)


def _negative(one: Limits) -> Limits:
    return Limits(None if one.upper is None else -one.upper, None if one.lower is None else -one.lower)


def _minus(one: Limits, two: Limits) -> Limits:
    return _plus(one, _negative(two))


def _times(one: Limits, two: Limits) -> Limits:
    if one.lower is None or one.upper is None or two.lower is None or two.upper is None:
        return NOWHERE
    products = [a * b for a in (one.lower, one.upper) for b in (two.lower, two.upper)]
    return Limits(min(products), max(products))


def _over(one: Limits, two: Limits) -> Limits:
    if two.lower is None or two.upper is None or two.lower <= 0 <= two.upper:
        return NOWHERE
    return _times(one, Limits(1 / two.upper, 1 / two.lower))


def _floor(one: Limits) -> Limits:
    return Limits(
        None if one.lower is None else Fraction(math.floor(one.lower)),
        None if one.upper is None else Fraction(math.floor(one.upper)),
    )


def _ceiling(one: Limits) -> Limits:
    return _negative(_floor(_negative(one)))


def _rounded(one: Limits, *_: Limits) -> Limits:
    return Limits(_floor(one).lower, _ceiling(one).upper)


def _abs(one: Limits) -> Limits:
    if one.lower is None or one.upper is None:
        return Limits(Fraction(0))
    ends = sorted((abs(one.lower), abs(one.upper)))
    return Limits(Fraction(0) if one.lower <= 0 <= one.upper else ends[0], ends[1])


def _modulo(one: Limits, two: Limits) -> Limits:
    most = _abs(two).upper
    if most is None:
        return NOWHERE
    low = Fraction(0) if one.lower is not None and one.lower >= 0 else -most
    return Limits(low, most)


def _extreme(name: str, given: list[Limits]) -> Limits:
    choose = max if name == "greatest" else min
    lowers, uppers = [one.lower for one in given], [one.upper for one in given]
    known_lower = [one for one in lowers if one is not None]
    known_upper = [one for one in uppers if one is not None]
    lower = choose(known_lower) if len(known_lower) == len(given) else (
        max(known_lower, default=None) if name == "greatest" else None
    )  # fmt: skip
    upper = choose(known_upper) if len(known_upper) == len(given) else (
        min(known_upper, default=None) if name == "least" else None
    )  # fmt: skip
    return Limits(lower, upper)


_RULES: dict[tuple[str, int], Callable[..., Limits]] = {
    ("+", 2): _plus,
    ("-", 2): _minus,
    ("-", 1): _negative,
    ("*", 2): _times,
    ("/", 2): _over,
    ("//", 2): lambda one, two: _rounded(_over(one, two)),
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
