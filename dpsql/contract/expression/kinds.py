"""Types of columns and values that expressions may read, and casts between them: one table of each.

A type's *kind* is its name without sizes: DECIMAL, LIST, ENUM. A generator tests every kind and every cast on extreme
values (`tests/conformance/test_expressions.py`), on every version of DuckDB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from dpsql.dataclass import dataclass
from dpsql.rendering import identifier, text

SIGNED = frozenset(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"))
UNSIGNED = frozenset(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"))
INTEGERS = SIGNED | UNSIGNED
FLOATS = frozenset(("FLOAT", "DOUBLE"))
NUMBERS = INTEGERS | FLOATS | {"DECIMAL"}
TEXT = frozenset(("VARCHAR",))
ZONED_TIME, ZONED_TIMESTAMP = "TIME WITH TIME ZONE", "TIMESTAMP WITH TIME ZONE"
TIMES = frozenset(("TIME", "TIME_NS", ZONED_TIME))
TIMESTAMPS = frozenset(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"))
# A literal NULL without a type.
NOTHING = "NULL"

# Kinds of values without parts that expressions may read, and the reason for each.
SCALARS: Mapping[str, str] = {
    "BOOLEAN": "Two values.",
    **dict.fromkeys(sorted(INTEGERS), "Integers: an overflow is an error that TRY catches."),
    **dict.fromkeys(sorted(FLOATS), "Doubles in one total order, in which NaN is the largest and equal to itself."),
    "DECIMAL": "Integers with a fixed point; an overflow is an error that TRY catches.",
    "VARCHAR": "Text that is compared by its bytes, or by the collation that the column's type names.",
    "BLOB": "Bytes.",
    "BIT": "Bits.",
    "UUID": "A number of 128 bits.",
    "DATE": "Days; no calendar but the Gregorian one.",
    **dict.fromkeys(sorted(TIMES), "Time of a day; an offset is part of the value, not of the session."),
    **dict.fromkeys(sorted(TIMESTAMPS), "A date and a time of no zone."),
    "INTERVAL": "Months, days and microseconds, which are compared as if a month had 30 days.",
    "ENUM": "One of the texts that its type lists.",
    "JSON": "Text; a part of it is not looked at.",
    NOTHING: "A literal NULL.",
}
# Kinds with parts; the parts may be of any kind here.
NESTED: Mapping[str, str] = {
    "LIST": "Compared element by element.",
    "ARRAY": "Compared element by element.",
    "STRUCT": "Compared field by field; `a.b` reads a field.",
    "MAP": "Compared entry by entry.",
    "UNION": "Compared by tag and value.",
}
# Expressions may only test columns of other kinds for NULL. VARIANT is such a kind: each of its values has its own
# type, so a row would determine the operand type of an operator.

_DATED = TEXT | TIMESTAMPS
# Casts between two different kinds; casts to other sizes of one kind are allowed too. Text parses the same under every
# setting. A cast of a timestamp with time zone would depend on the session's zone, so this table has none.
CASTS: Mapping[str, frozenset[str]] = {
    "BOOLEAN": NUMBERS | TEXT,
    **dict.fromkeys(sorted(NUMBERS), NUMBERS | TEXT | {"BOOLEAN"}),
    "UHUGEINT": NUMBERS | TEXT | {"BOOLEAN", "UUID"},
    "VARCHAR": frozenset(SCALARS) - {NOTHING},
    "BLOB": TEXT | {"BIT"},
    "BIT": TEXT | INTEGERS | FLOATS | {"BOOLEAN", "BLOB"},
    "UUID": TEXT | {"UHUGEINT", "BLOB"},
    "DATE": _DATED,
    "TIME": TEXT | {ZONED_TIME, "TIME_NS"},
    "TIME_NS": TEXT | {"TIME"},
    ZONED_TIME: TEXT | {"TIME"},
    **dict.fromkeys(sorted(TIMESTAMPS), _DATED | {"DATE", "TIME"}),
    "TIMESTAMP": _DATED | {"DATE", "TIME", ZONED_TIME},
    "INTERVAL": TEXT,
    "ENUM": TEXT | {"TIME", ZONED_TIME, "INTERVAL", "BLOB", "ENUM"},
    "JSON": TEXT | NUMBERS | {"BOOLEAN", "TIME", "INTERVAL"},
    **dict.fromkeys(sorted(NESTED), TEXT),
    NOTHING: frozenset(SCALARS) | frozenset(NESTED),
}
# A frame, a file or a cast number may hold a time or timestamp without a text form. A cast of it to text, to a time or
# to seconds ends DuckDB 2.0's instance, and TRY does not help. So values outside these ranges become NULL.
_ENDS = ("290309-12-22 (BC) 00:00:00", "294247-01-10 04:00:54", "-infinity", "infinity")
RANGES: Mapping[str, tuple[str, ...]] = {
    "TIME": ("00:00:00", "24:00:00"),
    "TIME_NS": ("00:00:00", "24:00:00"),
    ZONED_TIME: ("00:00:00+15:59:59", "24:00:00-15:59:59"),
    "TIMESTAMP": _ENDS,
    "TIMESTAMP_S": _ENDS,
    "TIMESTAMP_MS": _ENDS,
}
RANGED = TEXT | TIMES | {"TIMESTAMP_S"}
# Collations that depend on the text alone. Others follow locale rules, which differ between libraries.
_COLLATIONS = frozenset(("nocase", "noaccent", "nfc", "c", "posix", "binary"))
# Collations that compare bytes.
BY_BYTES = frozenset(("c", "posix", "binary"))
# The labels of an ENUM in a DuckDB text, which may be cut off.
_LABELS = re.compile(r"\bENUM\s*\((?:\s*'(?:[^']|'')*'\s*,?)*\)?")


@dataclass(frozen=True)
class Type:
    """The type of a column or value.

    Attributes
    ----------
    kind : str
    sizes : tuple of int
        Width and scale of a DECIMAL, length of an ARRAY.
    collation : str
        Collation of a VARCHAR; ``''`` for none.
    values : tuple of str
        Labels of an ENUM.
    fields : tuple of (str, Type)
        Fields of a STRUCT, MAP (``key`` and ``value``) or UNION; one unnamed field for a LIST or ARRAY.
    alias : str
        Another name of the type; ``''`` for none.
    """

    kind: str
    sizes: tuple[int, ...] = ()
    collation: str = ""
    values: tuple[str, ...] = ()
    fields: tuple[tuple[str, Type], ...] = ()
    alias: str = ""

    @property
    def known(self) -> bool:
        """Whether expressions may read values of this type."""
        if self.alias or not set(filter(None, self.collation.lower().split("."))) <= _COLLATIONS:
            return False
        return self.kind in SCALARS or (self.kind in NESTED and all(part.known for _, part in self.fields))

    @property
    def sql(self) -> str:
        """The type in SQL."""
        parts = [part.sql for _, part in self.fields]
        members = ", ".join(f"{identifier(name)} {part.sql}" for name, part in self.fields)
        if self.kind == "DECIMAL":
            return f"DECIMAL({', '.join(map(str, self.sizes))})"
        if self.kind == "ENUM":
            return f"ENUM({', '.join(map(text, self.values))})"
        if self.kind in ("LIST", "ARRAY"):
            return f"{parts[0]}[{''.join(map(str, self.sizes))}]"
        if self.kind == "MAP":
            return f"MAP({', '.join(parts)})"
        if self.kind in ("STRUCT", "UNION"):
            return f"{self.kind}({members})"
        return identifier(NOTHING) if self.kind == NOTHING else self.kind

    @property
    def shown(self) -> str:
        """The short form of the type for messages."""
        if self.alias:
            return self.alias
        if self.collation:
            return f"VARCHAR COLLATE {self.collation}"
        if self.kind == "DECIMAL":
            return self.sql
        if self.kind in ("LIST", "ARRAY"):
            return f"{self.fields[0][1].shown}[{''.join(map(str, self.sizes))}]"
        return self.kind

    @property
    def kinds(self) -> frozenset[str]:
        """Kinds of the type and its parts."""
        return frozenset((self.kind,)).union(*(part.kinds for _, part in self.fields))

    @property
    def collated(self) -> bool:
        """Whether the type is text whose equal values may differ."""
        return self.collation.lower() not in ("", *BY_BYTES)

    @property
    def labels(self) -> Iterator[tuple[str, ...]]:
        """Labels of every ENUM in the type."""
        return (leaf.values for leaf in self.leaves if leaf.kind == "ENUM")

    @property
    def without_labels(self) -> Type:
        """The type with VARCHAR for every ENUM, whose labels may come from rows."""
        if self.kind == "ENUM":
            return Type("VARCHAR")
        if not any(self.labels):
            return self
        return replace(self, fields=tuple((name, part.without_labels) for name, part in self.fields), alias="")

    @property
    def leaves(self) -> Iterator[Type]:
        """Leaf types of a nested type."""
        if not self.fields:
            yield self
        for _, part in self.fields:
            yield from part.leaves

    @property
    def comparable(self) -> bool:
        """Whether two values of this type can be compared.

        DuckDB compares text in a list or struct by the session's collation, which no SQL can prevent.
        """
        return self.known and not (self.fields and any(leaf.kind in ("VARCHAR", "JSON") for leaf in self.leaves))

    @property
    def in_utc(self) -> Type:
        """The type in an expression: a timestamp with time zone is a timestamp in UTC."""
        if self.kind == ZONED_TIMESTAMP:
            return Type("TIMESTAMP")
        if self.kind == "STRUCT":
            return replace(self, fields=tuple((name, part.in_utc) for name, part in self.fields))
        return self

    def field(self, name: str) -> Type:
        """Return the type of a struct's field."""
        return next((part for field, part in self.fields if field.lower() == name.lower()), Type("unknown"))


def type_of(record: Mapping[str, object]) -> Type:
    """Return a type from its JSON form in DuckDB."""
    kind = str(record.get("id"))
    details = record.get("type_info")
    if not isinstance(details, Mapping):
        return Type(kind)
    alias = str(details.get("alias") or "")
    if kind == "VARCHAR" and alias == "JSON":
        return Type("JSON")
    sizes = [details[name] for name in ("width", "scale", "size") if name in details]
    children = details.get("child_types") or ()
    fields = [(str(child["first"]), type_of(child["second"])) for child in _records(children)]
    inner = details.get("child_type")
    if isinstance(inner, Mapping):
        fields = list(type_of(inner).fields) if kind == "MAP" else [("", type_of(inner))]
    if kind == "UNION":
        fields = fields[1:]  # the first is the tag
    values = details.get("values") or ()
    return Type(
        kind,
        tuple(int(str(size)) for size in sizes),
        str(details.get("collation") or ""),
        tuple(map(str, values)) if isinstance(values, list) else (),
        tuple(fields),
        alias,
    )


def _records(entry: object) -> list[dict[str, dict[str, object]]]:
    return entry if isinstance(entry, list) else []


def has_labels(text: str) -> bool:
    """Return whether a DuckDB text contains types with labels."""
    return _LABELS.search(text) is not None


def without_labels(text: str) -> str:
    """Return a DuckDB text about types, without the labels of an ENUM."""
    return _LABELS.sub("ENUM", text)


def may_cast(source: Type, target: Type) -> bool:
    """Return whether a cast from one type to another is allowed."""
    if source == target:
        return True
    if not (source.known and target.known):
        return False
    if source.kind in NESTED and target.kind in NESTED:
        parts = list(zip(source.fields, target.fields, strict=False))
        same = source.kind == target.kind or {source.kind, target.kind} <= {"LIST", "ARRAY"}
        return same and len(source.fields) == len(target.fields) and all(may_cast(a[1], b[1]) for a, b in parts)
    if source.kind in NESTED and target.kind in TEXT:
        return not source.kinds & set(RANGES) and all(may_cast(leaf, target) for leaf in source.leaves)
    return source.kind == target.kind != "ENUM" or target.kind in CASTS[source.kind]
