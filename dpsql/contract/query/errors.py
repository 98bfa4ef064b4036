"""The interval of a column that is made of private answers: interval arithmetic over theirs, as SQL.

Every noisy number is taken within an interval of its own. Of a column that is made of j numbers each fails with a j-th
of the chance, so all of them hold with the confidence that was asked for, and then so does what is computed from them.
Where an operation is not known, or a divisor may be 0, the interval is NULL and the verdict ``'undetermined'``.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.contract.expression.kinds import NUMBERS
from dpsql.contract.query.nodes import Expr
from dpsql.contract.query.split import error_names
from dpsql.contract.query.work import CoreDraft
from dpsql.contract.verdicts import CLEAR, UNCLEAR, UNDETERMINED
from dpsql.rendering import call, cast, identifier, text

# The columns beside a column of the result, and what they hold behind its name.
PARTS = ("error", "lower", "upper", "verdict")
_NULL = "CAST(NULL AS DOUBLE)"
# Functions that never fall as their argument rises, on all numbers.
_RISING = frozenset(("round", "floor", "ceil", "ceiling", "trunc"))
Ends = tuple[str, str]


@dataclass(frozen=True)
class ColumnErrors:
    """Writes the error, the interval and the verdict of a column over one core.

    Attributes
    ----------
    core : CoreDraft
    numbers : int
        Of how many noisy numbers the column is made.
    """

    core: CoreDraft
    numbers: int

    def columns(self, expr: Expr, sql: str) -> list[str]:
        """Return SQL of error, lower end, upper end and verdict of an expression, which is `sql`."""
        ends = self.ends(expr)
        error, lower, upper = _NULL, *(ends or (_NULL, _NULL))
        if _number(expr, self.core):
            error = self._own(expr)[0]
        known = f"{lower} IS NULL OR {upper} IS NULL OR {sql} IS NULL"
        away = f"{lower} > 0 OR {upper} < 0"
        verdict = f"CASE WHEN {known} THEN {text(UNDETERMINED)} WHEN {away} THEN {text(CLEAR)} ELSE {text(UNCLEAR)} END"
        if ends is None:
            verdict = text(UNDETERMINED)
        return [error, lower, upper, verdict]

    def ends(self, expr: Expr) -> Ends | None:
        """Return SQL of the ends of an expression's interval, as doubles; None where they are not known."""
        if expr.what == "constant" and expr.name == "number":
            value = cast(text(str(expr.value)), "DOUBLE")
            return value, value
        if expr.what == "item":
            return self._item(expr)
        if expr.what == "cast" and expr.name.partition("(")[0] in NUMBERS:
            return self.ends(expr.parts[0])
        if expr.what == "case" and len(expr.parts) == 3 and expr.parts[1] == Expr("constant", "NULL"):
            return self.ends(expr.parts[2])  # as nullif is written: where it is NULL, so is the column
        if expr.what == "coalesce":
            given = [self.ends(one) for one in expr.parts]
            if None in given:
                return None
            lower, upper = ([ends[side] for ends in given if ends is not None] for side in (0, 1))
            return _all_of(call("least", *lower), lower), _all_of(call("greatest", *upper), upper)
        if expr.what == "call":
            return self._call(expr)
        return None

    def _item(self, expr: Expr) -> Ends | None:
        if _number(expr, self.core):
            _, lower, upper = self._own(expr)
            return lower, upper
        if expr.value != self.core.name or self.core.types[expr.name].kind not in NUMBERS:
            return None
        value = cast(f"{identifier(self.core.name)}.{identifier(expr.name)}", "DOUBLE")
        return value, value

    def _own(self, expr: Expr) -> tuple[str, ...]:
        names = error_names(expr.name, self.numbers)
        return tuple(f"{identifier(self.core.name)}.{identifier(name)}" for name in names)

    def _call(self, expr: Expr) -> Ends | None:
        given = [self.ends(one) for one in expr.parts]
        first = given[0] if given else None
        if first is None:
            return None
        name, others = expr.name, given[1:]
        if name in _RISING and all(one.what == "constant" for one in expr.parts[1:]):
            # Whatever is rounded moves by less than 1, or by less than a unit of its last digit.
            digits = [str(one.value) for one in expr.parts[1:]]
            return tuple(call(name, end, *(cast(text(one), "INTEGER") for one in digits)) for end in first)  # type: ignore[return-value]
        if name == "-" and not others:
            return call("-", first[1]), call("-", first[0])
        if name == "abs" and not others:
            greatest = call("greatest", call("abs", first[0]), call("abs", first[1]))
            inside = f"{first[0]} <= 0 AND {first[1]} >= 0"
            least = call("least", call("abs", first[0]), call("abs", first[1]))
            return f"CASE WHEN {inside} THEN CAST(0 AS DOUBLE) ELSE {least} END", greatest
        if len(others) != 1 or others[0] is None:
            return None
        second = others[0]
        if name == "+":
            return call("+", first[0], second[0]), call("+", first[1], second[1])
        if name == "-":
            return call("-", first[0], second[1]), call("-", first[1], second[0])
        if name in ("*", "/"):
            corners = [call(name, mine, theirs) for mine in first for theirs in second]
            both = [_all_of(call("least", *corners), corners), _all_of(call("greatest", *corners), corners)]
            if name == "/":
                away = f"({second[0]} > 0 OR {second[1]} < 0)"
                both = [f"CASE WHEN {away} THEN {one} END" for one in both]
            return both[0], both[1]
        return None


def _all_of(sql: str, parts: list[str]) -> str:
    """Return an expression that is NULL where a part is; least and greatest leave NULL out."""
    return f"CASE WHEN {' AND '.join(f'{part} IS NOT NULL' for part in parts)} THEN {sql} END"


def _number(expr: Expr, core: CoreDraft) -> bool:
    return expr.what == "item" and expr.value == core.name and expr.name.startswith("a")


def error_columns(names: list[str]) -> list[tuple[str, ...]]:
    """Return the names of the columns beside each column; `_1` and so on behind one that is taken."""
    taken = {name.casefold() for name in names}
    out = []
    for name in names:
        made = []
        for part in PARTS:
            wanted, number = f"{name}_{part}", 0
            while (wanted if not number else f"{wanted}_{number}").casefold() in taken:
                number += 1
            made.append(wanted if not number else f"{wanted}_{number}")
            taken.add(made[-1].casefold())
        out.append(tuple(made))
    return out
