"""The types of columns and values that expressions may read, and the casts between them: one table of each.

A type's *kind* is its name without sizes: DECIMAL, LIST, ENUM. Every kind and every cast is tried by a generator on
extreme values (`tests/conformance/test_expressions.py`), on every version of DuckDB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

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
# A literal NULL, which has no type of its own.
NOTHING = "NULL"

# Kinds without parts that values of an expression may have, and why each is right.
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
# Kinds with parts, whose parts are of any kind here.
NESTED: Mapping[str, str] = {
    "LIST": "Compared element by element.",
    "ARRAY": "Compared element by element.",
    "STRUCT": "Compared field by field; `a.b` reads a field.",
    "MAP": "Compared entry by entry.",
    "UNION": "Compared by tag and value.",
}
# Columns of other kinds can be asked whether they are NULL, and nothing else. VARIANT is one: its values have types of
# their own, so that a row would decide what an operator meets.

_DATED = TEXT | TIMESTAMPS
# The casts between kinds, where the two differ; a cast to other sizes of one kind is allowed as well. Text parses the
# same under every setting. A cast of a timestamp with time zone would depend on the session's zone, so there is none.
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
# A frame or file may hold a time or timestamp that no text stands for; a number may become one, too. Made text of (or a
# time, or seconds), it ends DuckDB 2.0's instance, and TRY does not help. So values outside of these become NULL there.
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
# Collations that are functions of the text alone. Others follow a locale's rules, which differ between libraries.
_COLLATIONS = frozenset(("nocase", "noaccent", "nfc", "c", "posix", "binary"))
# Those of them that compare bytes.
BY_BYTES = frozenset(("c", "posix", "binary"))
# The labels of an ENUM in a text of DuckDB's, which may be cut off.
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
        Of a VARCHAR; ``''`` for none.
    values : tuple of str
        Of an ENUM.
    fields : tuple of (str, Type)
        Of a STRUCT, MAP (``key`` and ``value``) or UNION; of a LIST or ARRAY one without a name.
    alias : str
        Another name that the type was given; ``''`` for none.
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
        """The type as SQL spells it."""
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
        """The type as messages show it: short."""
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
        """Its kind and those of its parts."""
        return frozenset((self.kind,)).union(*(part.kinds for _, part in self.fields))

    @property
    def collated(self) -> bool:
        """Whether it is text of which equal values may differ."""
        return self.collation.lower() not in ("", *BY_BYTES)

    @property
    def labels(self) -> Iterator[tuple[str, ...]]:
        """The labels of every ENUM in it."""
        return (leaf.values for leaf in self.leaves if leaf.kind == "ENUM")

    @property
    def without_labels(self) -> Type:
        """The type with VARCHAR in the place of every ENUM, whose labels rows may have made."""
        if self.kind == "ENUM":
            return Type("VARCHAR")
        if not any(self.labels):
            return self
        return replace(self, fields=tuple((name, part.without_labels) for name, part in self.fields), alias="")

    @property
    def leaves(self) -> Iterator[Type]:
        """The types of the values in it that have no parts."""
        if not self.fields:
            yield self
        for _, part in self.fields:
            yield from part.leaves

    @property
    def comparable(self) -> bool:
        """Whether two values of this type can be compared.

        Text in a list or struct would be compared by the session's collation, which nothing written can prevent.
        """
        return self.known and not (self.fields and any(leaf.kind in ("VARCHAR", "JSON") for leaf in self.leaves))

    @property
    def in_utc(self) -> Type:
        """The type with which an expression sees it: a timestamp with time zone is a timestamp in UTC."""
        if self.kind == ZONED_TIMESTAMP:
            return Type("TIMESTAMP")
        if self.kind == "STRUCT":
            return replace(self, fields=tuple((name, part.in_utc) for name, part in self.fields))
        return self

    def field(self, name: str) -> Type:
        """Return the type of a struct's field."""
        return next((part for field, part in self.fields if field.lower() == name.lower()), Type("unknown"))


def type_of(record: Mapping[str, object]) -> Type:
    """Return a type from DuckDB's JSON form of it."""
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
    """Whether types of which a text of DuckDB's speaks have labels."""
    return _LABELS.search(text) is not None


def without_labels(text: str) -> str:
    """Return a text of DuckDB's in which types stand, without the labels of an ENUM."""
    return _LABELS.sub("ENUM", text)


def may_cast(source: Type, target: Type) -> bool:
    """Whether a value of one type may become one of another."""
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
