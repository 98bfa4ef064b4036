"""Which kind of value each parameter of a statement takes: what it is compared with says so.

A driver of JDBC refuses to bind a number to a parameter that is told to be a text, and a text to one that is told to be
a number. The statement is not known to be right when it is prepared, so this reads its words alone: a column beside the
parameter, a function, an argument, a cast. What says nothing is a text, which DuckDB compares with anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from dpsql.functions.registry import FUNCTIONS
from dpsql.gateway.flight_catalog import arrow_type
from dpsql.gateway.flight_parameters import Word, parts_of

# Drivers write what they are given into these: a number of any kind into a double, and milliseconds into a timestamp.
_NUMBER, _TRUTH, _TEXT, _DAY, _TIME = pa.float64(), pa.bool_(), pa.string(), pa.date32(), pa.timestamp("ms")
_CALLS = {
    **dict.fromkeys(("count", "sum", "avg", "mean", "median", "mode", "stddev", "stddev_pop", "stddev_samp"), _NUMBER),
    **dict.fromkeys(("variance", "var_pop", "var_samp", "quantile", "quantile_cont", "quantile_disc", "mad"), _NUMBER),
    **dict.fromkeys(("corr", "covar_pop", "covar_samp", "row_number", "rank", "dense_rank"), _NUMBER),
    **dict.fromkeys(("abs", "ceil", "ceiling", "floor", "round", "trunc", "sign", "sqrt", "exp", "ln"), _NUMBER),
    **dict.fromkeys(("log", "log2", "log10", "pow", "power", "length", "len", "char_length", "strlen"), _NUMBER),
    **dict.fromkeys(("strpos", "date_part", "datepart", "date_diff", "datediff", "epoch", "year", "month"), _NUMBER),
    **dict.fromkeys(("day", "quarter", "week", "dayofweek", "dayofmonth", "dayofyear", "hour", "minute"), _NUMBER),
    **dict.fromkeys(("lower", "upper", "lcase", "ucase", "trim", "ltrim", "rtrim", "left", "right"), _TEXT),
    **dict.fromkeys(("substring", "substr", "concat", "concat_ws", "replace"), _TEXT),
}
# Functions whose value is of the kind of their first argument.
_SAME = ("min", "max", "any_value", "first", "last", "coalesce", "nullif", "ifnull", "greatest", "least")
# Words before brackets that are no call.
_NO_CALLS = (
    *("and", "or", "not", "where", "having", "on", "when", "then", "else", "by", "select", "case", "in", "between"),
    *("is", "as", "like", "ilike", "limit", "offset"),
)
_SIGNS, _SUMS = frozenset("=<>!"), frozenset("+-*/%")
_BEFORE = {"limit": _NUMBER, "offset": _NUMBER, "like": _TEXT, "ilike": _TEXT, "glob": _TEXT, "escape": _TEXT}
_LITERALS = {"date": _DAY, "timestamp": _TIME, "timestamptz": _TIME}


def _arguments() -> dict[str, pa.DataType]:
    """Return the kind of each argument of dpsql's functions that is one number or one text."""
    found: dict[str, pa.DataType] = {}
    for function in FUNCTIONS.values():
        for name, argument in function.plan.arguments.items():
            if argument.exact or argument.kind in ("Integer", "Number"):
                found.setdefault(name, _NUMBER)
    return found


_ARGUMENTS = _arguments()


def parameter_schema(text: str, columns: Mapping[str, pa.DataType]) -> pa.Schema | None:
    """Return the Arrow schema of a statement's parameters; None if there are none.

    Parameters
    ----------
    text : str
    columns : mapping
        The types of the columns of its datasets, by name in lower case.
    """
    parts = list(parts_of(text))
    if not any(part.kind == "value" for part in parts):
        return None
    return _Reader(parts, {name: _kind_of(kind) for name, kind in columns.items()}).schema()


def _kind_of(kind: pa.DataType) -> pa.DataType:
    """Return what is bound to be compared with a column."""
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return _NUMBER
    if types.is_boolean(kind):
        return _TRUTH
    if types.is_date(kind):
        return _DAY
    return _TIME if types.is_timestamp(kind) and kind.tz is None else _TEXT


class _Reader:
    """A statement, whose parameters are looked at each with its neighbours."""

    def __init__(self, parts: Sequence[Word], columns: Mapping[str, pa.DataType]) -> None:
        self._parts, self._columns = parts, dict(columns)
        for at in range(1, len(parts) - 1):  # what is called something is of its kind
            if self._is(at, "as") and parts[at + 1].kind in ("word", "name"):
                kind = self._ending(at - 1)
                if kind is not None:
                    self._columns.setdefault(self._name(at + 1), kind)

    def schema(self) -> pa.Schema:
        """Return the kinds of the parameters, in the order of their numbers."""
        found: dict[int, pa.DataType] = {}
        count = 0
        for at, part in enumerate(self._parts):
            if part.kind == "value":
                number = int(part.text[1:]) - 1 if len(part.text) > 1 else count
                count += 1
                kind = self._kind(at)
                found[number] = kind if found.get(number) in (None, kind) else _TEXT
        kinds = [found[number] or _TEXT for number in sorted(found)]
        return pa.schema([(f"parameter_{place}", kind) for place, kind in enumerate(kinds, 1)])

    def _kind(self, at: int) -> pa.DataType | None:
        return self._cast(at) or self._kind_before(at) or self._kind_after(at)

    def _cast(self, at: int) -> pa.DataType | None:
        """Return the kind of ``?::DATE`` and ``CAST(? AS DATE)``."""
        if self._text(at + 1) == ":" and self._text(at + 2) == ":":
            return _kind_of(arrow_type(self._text(at + 3).upper()))
        if self._is(at + 1, "as") and self._text(at - 1) == "(" and self._text(at - 2).lower() in ("cast", "try_cast"):
            return _kind_of(arrow_type(self._text(at + 2).upper()))
        return None

    def _kind_before(self, at: int) -> pa.DataType | None:
        """Return the kind that what stands before a parameter asks for."""
        before, earlier = self._text(at - 1), self._text(at - 2)
        if before.lower() in _BEFORE and self._parts[at - 1].kind == "word":
            return _BEFORE[before.lower()]
        if (earlier, before) in ((":", "="), ("=", ">")):
            return _ARGUMENTS.get(self._name(at - 3))
        if self._is(at - 1, "between"):
            return self._ending(self._without(at - 2, "not"))
        if self._is(at - 1, "and") and self._is(at - 3, "between"):
            return self._ending(self._without(at - 4, "not"))
        if before in _SUMS:
            if before in "+-" and self._kind_at(at - 2) == "mark" and earlier != ")":
                return _NUMBER  # a sign
            return self._number(self._ending(at - 2))
        if before in ("(", ","):
            return self._listed(at - 1)
        place = at - 1
        while self._text(place) in _SIGNS:
            place -= 1
        return self._ending(place) if place < at - 1 else None

    def _listed(self, at: int) -> pa.DataType | None:
        """Return the kind of the values of ``column IN (1, ?)``, from a place among them."""
        while at >= 0 and (self._text(at) in (",", "-") or self._parts[at].kind in ("value", "text", "number")):
            at -= 1
        if self._text(at) == "(" and self._is(at - 1, "in"):
            return self._ending(self._without(at - 2, "not"))
        return None

    def _kind_after(self, at: int) -> pa.DataType | None:
        """Return the kind that what stands behind a parameter asks for."""
        if self._is(at + 1, "between"):
            return self._beginning(at + 2)
        if self._text(at + 1) in _SUMS:
            return self._number(self._beginning(at + 2))
        place = at + 1
        while self._text(place) in _SIGNS:
            place += 1
        return self._beginning(place) if place > at + 1 else None

    def _ending(self, at: int) -> pa.DataType | None:
        """Return the kind of what ends at a place."""
        if not 0 <= at < len(self._parts):
            return None
        part = self._parts[at]
        if part.kind == "number":
            return _NUMBER
        if part.kind == "text":
            return _LITERALS.get(self._text(at - 1).lower(), _TEXT)
        if part.kind in ("word", "name"):
            if self._text(at - 1) == ":" and self._text(at - 2) == ":":
                return _kind_of(arrow_type(part.text.upper()))
            return self._columns.get(self._name(at))
        if part.text != ")":
            return None
        deep, begin = 1, at
        while deep and begin > 0:
            begin -= 1
            deep += {")": 1, "(": -1}.get(self._text(begin), 0)
        return self._called(begin, at)

    def _called(self, begin: int, end: int) -> pa.DataType | None:
        """Return the kind of a call, or of what is in brackets, between two places."""
        before = self._parts[begin - 1] if begin > 0 else None
        if before is None or before.kind != "word" or before.text.lower() in _NO_CALLS:
            compares = any(self._text(at) in _SIGNS for at in range(begin, end))
            return None if compares else self._ending(end - 1)
        name = before.text.lower()
        if name in ("cast", "try_cast"):
            return _kind_of(arrow_type(self._text(end - 1).upper()))
        return self._beginning(begin + 1) if name in _SAME else _CALLS.get(name)

    def _beginning(self, at: int) -> pa.DataType | None:
        """Return the kind of what begins at a place."""
        while self._text(at) in ("-", "("):
            at += 1
        while self._text(at + 1) == ".":
            at += 2
        if not 0 <= at < len(self._parts):
            return None
        part = self._parts[at]
        if part.kind == "word" and self._text(at + 1) == "(":
            end, deep = at + 1, 1
            while deep and end < len(self._parts) - 1:
                end += 1
                deep += {"(": 1, ")": -1}.get(self._text(end), 0)
            return self._called(at + 1, end)
        if part.kind == "word" and part.text.lower() in _LITERALS and self._kind_at(at + 1) == "text":
            return _LITERALS[part.text.lower()]
        return self._ending(at)

    @staticmethod
    def _number(kind: pa.DataType | None) -> pa.DataType | None:
        return kind if kind == _NUMBER else None

    def _without(self, at: int, word: str) -> int:
        """Return a place, or the one before where a word stands there."""
        return at - 1 if self._is(at, word) else at

    def _text(self, at: int) -> str:
        return self._parts[at].text if 0 <= at < len(self._parts) else ""

    def _kind_at(self, at: int) -> str:
        return self._parts[at].kind if 0 <= at < len(self._parts) else ""

    def _is(self, at: int, word: str) -> bool:
        return self._kind_at(at) == "word" and self._parts[at].text.lower() == word

    def _name(self, at: int) -> str:
        return self._parts[at].name if 0 <= at < len(self._parts) else ""
