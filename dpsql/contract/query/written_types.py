"""The types that a query may cast to, as its tree names them on every version of DuckDB, and as SQL."""

from __future__ import annotations

from collections.abc import Mapping

_NAMES = {
    **{
        name: name
        for name in (
            *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER"),
            *("UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "VARCHAR", "BLOB", "BIT", "UUID", "DATE", "TIME"),
            *("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "INTERVAL", "TIMESTAMP WITH TIME ZONE"),
            *("TIME WITH TIME ZONE", "JSON"),
        )
    },
    **dict.fromkeys(("BOOL", "LOGICAL"), "BOOLEAN"),
    **dict.fromkeys(("INT1",), "TINYINT"),
    **dict.fromkeys(("INT2", "SHORT"), "SMALLINT"),
    **dict.fromkeys(("INT", "INT4", "SIGNED", "INTEGRAL"), "INTEGER"),
    **dict.fromkeys(("INT8", "LONG", "OID"), "BIGINT"),
    **dict.fromkeys(("FLOAT4", "REAL"), "FLOAT"),
    **dict.fromkeys(("FLOAT8", "DOUBLE PRECISION"), "DOUBLE"),
    **dict.fromkeys(("NUMERIC", "DEC"), "DECIMAL"),
    **dict.fromkeys(("TEXT", "STRING", "CHAR", "BPCHAR", "NVARCHAR"), "VARCHAR"),
    **dict.fromkeys(("DATETIME", "TIMESTAMP_US"), "TIMESTAMP"),
    "TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE",
    "TIMETZ": "TIME WITH TIME ZONE",
    **dict.fromkeys(("BYTEA", "VARBINARY", "BINARY"), "BLOB"),
}


def type_of_tree(record: object) -> str | None:
    """Return the SQL of a type of a tree; None where it is not one of DuckDB's own."""
    if not isinstance(record, Mapping):
        return None
    if "type_name" in record:
        return _newer(record)
    name, details = str(record.get("id")).upper(), record.get("type_info")
    details = details if isinstance(details, Mapping) else {}
    if name == "DECIMAL":
        return f"DECIMAL({int(str(details.get('width') or 18))}, {int(str(details.get('scale') or 0))})"
    if name == "LIST":
        inner = type_of_tree(details.get("child_type"))
        return None if inner is None else f"{inner}[]"
    return _NAMES.get(name)


def _newer(record: Mapping[str, object]) -> str | None:
    """Return the SQL of a type as DuckDB 2.0 writes it: by its name, with its arguments."""
    if record.get("schema") or record.get("catalog"):
        return None
    name = str(record.get("type_name")).upper()
    given = record.get("children")
    children = given if isinstance(given, list) else []
    if name == "LIST":
        inner = type_of_tree(children[0]) if len(children) == 1 else None
        return None if inner is None else f"{inner}[]"
    known = _NAMES.get(name)
    if known != "DECIMAL":
        return known  # a length of a VARCHAR says nothing
    sizes = []
    for child in children:
        literal = child.get("literal") if isinstance(child, Mapping) else None
        sizes.append(str(literal.get("text")) if isinstance(literal, Mapping) else "")
    if not all(size.isdecimal() for size in sizes) or len(sizes) > 2:
        return None
    return f"DECIMAL({', '.join([*sizes, '0'][:2])})" if sizes else "DECIMAL(18, 3)"
