"""Judge expressions over one row by their types: the one place that accepts or refuses them and writes the SQL to run.

DuckDB has typed the expression (`dpsql.engines.duckdb.typed_expression`), so every overload, every implicit cast and
every operator is a node here. The tables of `functions` and `kinds` judge each node, and the judge writes its SQL with
every cast spelled out. So the statement that runs binds to the judged nodes, under any session settings.

The written SQL does not depend on settings:

- ``COLLATE C`` compares text if a column's type names no collation (`default_collation`). If the type names a
  collation, DuckDB has put its functions around the text, and the judge treats them like any others.
- A timestamp with time zone is read as a timestamp in UTC (`TimeZone`, `Calendar`).
- `Allowed.template` defines division by zero and roots of negative numbers (`ieee_floating_point_ops`).

`cannot_fail` finds expressions that cannot fail for any row: they need no TRY, and so no lambda around it. The list is
short, because DuckDB's optimizer gets these expressions (`dpsql.engines.duckdb.keys` describes its effect on others):
comparisons of integers, decimals and dates of one type with each other or with literals that fit, tests for NULL, and
AND, OR and NOT of these. Arithmetic can overflow: a product of two decimals of 15 digits has 18 in DuckDB. Files state
a minimum and a maximum of doubles without NaN. Text in frames may be invalid.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation

from dpsql.contract.expression.functions import Literal, function_of
from dpsql.contract.expression.kinds import (
    INTEGERS,
    NOTHING,
    RANGED,
    RANGES,
    TIMESTAMPS,
    ZONED_TIMESTAMP,
    Type,
    may_cast,
)
from dpsql.contract.json import Json
from dpsql.contract.parameters import show
from dpsql.dataclass import dataclass
from dpsql.errors import ParameterError
from dpsql.rendering import call, cast, coalesce, text

# Operators that widen decimals.
_WIDENING = ("+", "-", "*")
# Functions that replace parts of a text by a literal, and the most bytes of their result.
_REPLACING = frozenset(("replace", "regexp_replace"))
_LONGEST_TEXT = 65_536
_ONE = "dpsql_text_of_row"
# The type of a constant that DuckDB has computed from literals alone during typing.
UNREADABLE = Type("unknown")
# Longest SQL of one expression: it may repeat a value several times.
_MOST_WRITTEN = 200_000
# A timestamp's time with an offset or a zone, which DuckDB silently drops in a TIMESTAMP.
_ZONED = re.compile(r":\d{2}[.\d]*\s*(?:[+-]\s*\d|(?!\(BC\))[A-Za-z])")
_LISTED = "docs/calls.md lists what a condition may call."


@dataclass(frozen=True)
class Bound:
    """A node of an expression that DuckDB has typed.

    Attributes
    ----------
    what : str
        column, constant, cast, function, compare, in, and, or, not, null (IS NULL), present (IS NOT NULL), coalesce, or
        case, whose children are pairs of WHEN and THEN, and ELSE.
    type : Type
    children : tuple of Bound
    name : str
        Name of a function or column, or the sign of a comparison.
    value : str or None
        SQL of a constant, or the text of a constant text.
    tries : bool
        Whether a cast is a TRY_CAST; whether IN is negated.
    """

    what: str
    type: Type
    children: tuple[Bound, ...] = ()
    name: str = ""
    value: str | None = None
    tries: bool = False

    @property
    def columns(self) -> Iterator[Bound]:
        """The node's columns, from left to right."""
        if self.what == "column":
            yield self
        for child in self.children:
            yield from child.columns


@dataclass(frozen=True)
class Judged:
    """A judged condition.

    Attributes
    ----------
    sql : str
        SQL that runs instead.
    columns : tuple of str
        Columns whose values the SQL reads.
    types : str
        Type of a struct of these columns, as `typeof` spells it.
    """

    sql: str
    columns: tuple[str, ...]
    types: str

    def to_json(self) -> dict[str, Json]:
        """Return the JSON form."""
        return {**vars(self), "columns": list(self.columns)}

    @classmethod
    def from_json(cls, record: Mapping[str, object]) -> Judged:
        """Read the output of `to_json`."""
        columns = record["columns"]
        return cls(str(record["sql"]), tuple(columns if isinstance(columns, list) else ()), str(record["types"]))


@dataclass(frozen=True)
class Judge:
    """Writes the SQL of an expression, or refuses it.

    Attributes
    ----------
    types : mapping of str to Type
        Types of the columns in their source.
    column : callable
        Returns the SQL of a column from its name.
    newer : bool
        Whether DuckDB computes by IEEE 754 by default, as from 2.0 on.
    """

    types: Mapping[str, Type]
    column: Callable[[str], str]
    newer: bool

    def write(self, node: Bound) -> str:
        """Return the SQL of a node.

        Raises
        ------
        ParameterError
            P080: a function, operator or cast does not accept these types. P082: an argument must be another literal.
            P084: expressions cannot use values of this type.
        """
        sql = getattr(self, f"_{node.what}")(node)
        if len(sql) > _MOST_WRITTEN:
            raise ParameterError("P070", "condition is too long once it is written out. Compute parts of it in a view.")
        return str(sql)

    def _value(self, node: Bound) -> str:
        """Return the SQL of a node whose value an expression uses."""
        if node.type == UNREADABLE:
            raise ParameterError(
                "P082", "condition casts a literal that it computes. Write it out, such as DATE '2026-01-31'."
            )
        source = self._source(node)
        if not (node.type.known and (source is None or source.known or source.kind == ZONED_TIMESTAMP)):
            raise unknown(described(node), source or node.type)
        return self.write(node)

    def _values(self, node: Bound) -> list[str]:
        return [self._value(child) for child in node.children]

    def _source(self, node: Bound) -> Type | None:
        """Return the source type of a column or of a field of a column; None for any other node."""
        if node.what == "column":
            return self.types[node.name]
        if node.what == "function" and node.name == "struct_extract":
            struct = self._source(node.children[0])
            return None if struct is None else struct.field(str(node.children[1].value))
        return None

    def _in_utc(self, node: Bound, sql: str) -> str:
        """Return a timestamp with time zone as a timestamp in UTC, without the session's zone."""
        source = self._source(node)
        if source is None or source.kind != ZONED_TIMESTAMP:
            return sql
        ends = " ".join(
            f"WHEN {sql} = CAST('{end}' AS TIMESTAMPTZ) THEN CAST('{end}' AS TIMESTAMP)"
            for end in ("infinity", "-infinity")
        )
        return f"(CASE {ends} ELSE {call('make_timestamp', call('epoch_us', sql))} END)"

    # Values.

    def _column(self, node: Bound) -> str:
        return self._in_utc(node, self.column(node.name))

    def _constant(self, node: Bound) -> str:
        if node.value is None:
            return "NULL" if node.type.kind == NOTHING else cast("NULL", node.type.sql)
        if node.type.kind == "VARCHAR":
            return text(node.value)
        return node.value if node.type.kind in ("BOOLEAN", "INTEGER") else cast(node.value, node.type.sql)

    def _cast(self, node: Bound) -> str:
        [operand] = node.children
        if operand.type == node.type:
            return self._value(operand)
        sql = self._value(operand)
        if not may_cast(operand.type, node.type) or _unreadable(operand, node.type):
            of = f"{_article(operand.type.shown)}, which is not allowed: {described(operand) or 'a literal'}"
            raise ParameterError(
                "P080",
                f"condition makes {_article(node.type.shown)} of {of}. "
                f"Compare values of one kind, or cast the column in a view. {_LISTED}",
            )
        if operand.value is not None and node.type.kind in TIMESTAMPS and _ZONED.search(operand.value):
            raise ParameterError(
                "P082",
                f"condition holds the timestamp {show(operand.value)}, whose offset DuckDB would drop. Write the time "
                "in UTC, without an offset.",
            )
        if operand.value is None and node.type.kind in RANGED and operand.type.kind in RANGES:
            sql = _in_range(sql, operand.type.kind)
        word = "TRY_CAST" if node.tries else "CAST"
        return f"{word}({sql} AS {node.type.sql})"

    def _narrow(self, node: Bound) -> str:
        """Return a decimal operand without the width that DuckDB adds for the result: it would add it again."""
        [operand] = node.children if node.what == "cast" and not node.tries else [node]
        if operand is node or operand.type.kind not in INTEGERS | {"DECIMAL"}:
            return self._value(node)
        sql = self._value(operand)
        if operand.type.kind in INTEGERS or operand.type.sizes[1] == node.type.sizes[1]:
            return sql
        (width, scale), (_, digits) = operand.type.sizes, node.type.sizes
        return cast(sql, f"DECIMAL({min(38, width - scale + digits)}, {digits})")

    def _case(self, node: Bound) -> str:
        parts = self._chosen(node)
        whens = "".join(f" WHEN {when} THEN {then}" for when, then in zip(parts[:-1:2], parts[1::2], strict=True))
        return f"(CASE{whens} ELSE {parts[-1]} END)"

    def _coalesce(self, node: Bound) -> str:
        """Return the first value that is not NULL.

        DuckDB 1.5 frees memory twice if a later value fails within TRY, which ends the process: it gets a CASE.
        """
        *first, last = self._chosen(node)
        if self.newer or not first:
            return coalesce(*first, last)
        whens = "".join(f" WHEN {value} IS NOT NULL THEN {value}" for value in first)
        return f"(CASE{whens} ELSE {last} END)"

    def _chosen(self, node: Bound) -> list[str]:
        """Return the values among which a node chooses.

        DuckDB 2.0 has no CASE of arrays; TRY does not catch this.
        """
        if "ARRAY" in node.type.kinds:
            raise _unfit(node.what.upper(), node)
        return self._values(node)

    # Booleans.

    def _and(self, node: Bound) -> str:
        return f"({' AND '.join(map(self.write, node.children))})"

    def _or(self, node: Bound) -> str:
        return f"({' OR '.join(map(self.write, node.children))})"

    def _not(self, node: Bound) -> str:
        return f"(NOT {self.write(node.children[0])})"

    def _null(self, node: Bound) -> str:
        return f"({self.write(node.children[0])} IS NULL)"

    def _present(self, node: Bound) -> str:
        return f"({self.write(node.children[0])} IS NOT NULL)"

    def _compared(self, node: Bound, sign: str) -> list[str]:
        """Return the values that a node compares."""
        values = self._values(node)
        if len({(child.type.kind, child.type.fields) for child in node.children}) > 1 or not all(
            child.type.comparable for child in node.children
        ):
            raise _unfit(sign, node)
        return [
            f"({value} COLLATE C)" if child.type.kind == "VARCHAR" else value
            for value, child in zip(values, node.children, strict=True)
        ]

    def _compare(self, node: Bound) -> str:
        return f"({f' {node.name} '.join(self._compared(node, node.name))})"

    def _in(self, node: Bound) -> str:
        first, *rest = self._compared(node, "IN")
        return f"({first} {'NOT ' if node.tries else ''}IN ({', '.join(rest)}))"

    # Functions.

    def _function(self, node: Bound) -> str:
        if node.name == "struct_extract" and self._source(node) is not None:
            return self._in_utc(node, call(node.name, self.write(node.children[0]), text(str(node.children[1].value))))
        if node.name == "timezone":
            return self._moved(node)
        values, types = self._values(node), [child.type for child in node.children]
        entry = function_of(node.name, types)
        if entry is None:
            raise _unfit(node.name, node)
        for number, take in enumerate(entry.takes):
            if isinstance(take, Literal):
                _check_literal(node, number, take)
        kinds = {f"type{number}": kind.sql for number, kind in enumerate(types)}
        if node.type.kind == "DECIMAL" and node.name in _WIDENING:
            values = [self._narrow(child) for child in node.children]
        template = entry.newer if self.newer and entry.newer else entry.template
        if node.name in _REPLACING:
            return _kept_short(node, values)
        return f"({template.format(*values, call=call(node.name, *values), **kinds)})"

    def _moved(self, node: Bound) -> str:
        """Return a timestamp of one zone as a timestamp of another zone, through an instant used only here."""
        out, instant = node.children[:2]
        if instant.what != "function" or instant.name != "timezone" or len(instant.children) != 2:
            raise _unfit("AT TIME ZONE", node)
        into, value = instant.children
        zones = [str(_bare(zone).value) for zone in (out, into) if _bare(zone).what == "constant"]
        if len(zones) != 2 or value.type.kind != "TIMESTAMP":
            raise _unfit("AT TIME ZONE", node)
        return call("timezone", text(zones[0]), call("timezone", text(zones[1]), self._value(value)))


def _bare(node: Bound) -> Bound:
    """Return a node without casts to its own type."""
    while node.what == "cast" and node.type == node.children[0].type:
        [node] = node.children
    return node


def _kept_short(node: Bound, values: list[str]) -> str:
    """Return a text with parts replaced, or NULL if it may become too long; this reads a row's text once."""
    pattern, put = (str(_bare(child).value) for child in node.children[1:3])
    before, after = len(pattern.encode()), len(put.encode())
    plain = node.name == "replace"
    if not put or (plain and after <= before) or (not plain and put.startswith("\\")):
        return f"({call(node.name, *values)})"
    # A pattern may match at every place, also between two letters.
    most = _LONGEST_TEXT * before // after if plain else _LONGEST_TEXT // (after + 1) - 1
    name = f"{_ONE}{values[0].count(_ONE)}"
    shortened = f"CASE WHEN {call('strlen', name)} <= {most} THEN {call(node.name, name, *values[1:])} END"
    return call(
        "list_extract", call("list_transform", call("list_value", values[0]), f"lambda {name}: {shortened}"), "1"
    )


def _in_range(value: str, kind: str) -> str:
    """Return a time or timestamp, or NULL if it has no text form."""
    lowest, highest, *infinite = (f"CAST('{end}' AS {kind})" for end in RANGES[kind])
    more = "".join(f" OR {value} = {end}" for end in infinite)
    return f"(CASE WHEN {value} BETWEEN {lowest} AND {highest}{more} THEN {value} END)"


def _check_literal(node: Bound, number: int, parameter: Literal) -> None:
    """Raise unless an argument is an allowed literal of a function."""
    argument = _bare(node.children[number])
    others = [child.type for position, child in enumerate(node.children) if position != number]
    if argument.what == "constant" and parameter.takes(argument.value, others):
        return
    of = f" of {_article(others[0].shown)}" if parameter.words and others else ""
    listed = f": {', '.join(parameter.listed(others))}" if parameter.words else ""
    addition = f"; got {show(argument.value)}" if argument.value is not None else ""
    raise ParameterError(
        "P082",
        f"condition: {node.name} takes a literal as its {parameter.what}{of}{listed}{addition}. "
        f"Write it out, or compute it in a view.",
    )


def _unreadable(constant: Bound, target: Type) -> bool:
    """Return whether a constant NULL becomes a value of a type that expressions do not know."""
    return constant.type.kind == NOTHING and not target.known


def _article(kind: str) -> str:
    return f"{'an' if kind[:1] in 'AEIOU' else 'a'} {kind}"


def _unfit(sign: str, node: Bound) -> ParameterError:
    """Return the error for a function or operator that does not accept these types."""
    types = ", ".join(child.type.shown for child in node.children)
    columns = described(node)
    return ParameterError(
        "P080",
        f"condition: {sign} does not take ({types}) there{f': {columns}' if columns else ''}. "
        f"Cast a value to a type that it takes, or compute it in a view. {_LISTED}",
    )


def described(node: Bound) -> str:
    """Return the columns in a node with their types, in words."""
    return ", ".join(
        sorted({f"column {show(column.name)} is {_article(column.type.shown)}" for column in node.columns})
    )


def unknown(columns: str, kind: Type) -> ParameterError:
    """Return the error for a value of an unknown type, given its columns in words."""
    may = "ask whether it is NULL, and read its fields" if kind.kind == "STRUCT" else "only ask whether it is NULL"
    return ParameterError(
        "P084",
        f"condition computes with {_article(kind.shown)}: {columns}. It can {may}. Cast it to another type in a view.",
    )


_WHOLE = {
    **{name: (-(1 << bits - 1), (1 << bits - 1) - 1) for name, bits in (("TINYINT", 8), ("SMALLINT", 16))},
    **{name: (-(1 << bits - 1), (1 << bits - 1) - 1) for name, bits in (("INTEGER", 32), ("BIGINT", 64))},
    **{name: (0, (1 << bits) - 1) for name, bits in (("UTINYINT", 8), ("USMALLINT", 16), ("UINTEGER", 32))},
}
_PLAIN = frozenset((*_WHOLE, "BOOLEAN", "DECIMAL", "DATE"))
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def cannot_fail(node: Bound) -> bool:
    """Return whether an expression has a value, or NULL, for every row."""
    if node.type.kind not in _PLAIN or node.type.alias:
        return False
    if node.what == "column":
        return True
    if node.what == "constant":
        return node.value is not None
    if node.what == "cast":
        [operand] = node.children
        return (
            cannot_fail(operand)
            if operand.type == node.type
            else operand.what == "constant" and _fits(operand, node.type)
        )
    if node.what == "compare":
        return len({child.type for child in node.children}) == 1 and all(map(cannot_fail, node.children))
    return node.what in ("and", "or", "not", "null", "present") and all(map(cannot_fail, node.children))


def _fits(literal: Bound, target: Type) -> bool:
    """Return whether a literal is a value of a type."""
    value = literal.value or ""
    if target.kind == "DATE" and literal.type.kind == "VARCHAR":
        return _is_day(value)
    if literal.type.kind not in ("DECIMAL", *_WHOLE):
        return False
    try:
        number = Decimal(value)
    except InvalidOperation:
        return False
    if target.kind == "DECIMAL":
        width, scale = target.sizes
        return abs(number) < Decimal(10) ** (width - scale) - 1  # it may round up
    if target.kind not in _WHOLE or number != number.to_integral_value():
        return False
    least, most = _WHOLE[target.kind]
    return least <= number <= most


def _is_day(value: str) -> bool:
    if not _DAY.fullmatch(value):
        return False
    try:
        datetime.date.fromisoformat(value)
    except ValueError:
        return False
    return True
