"""Metadata for Flight SQL clients: tables with the protocol's columns about the gateway and its datasets.

A dataset is a table without catalog and schema, since a statement names it by one name. This module reads no row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dpsql.gateway.shape import MOST_BYTES
from dpsql.version import __version__

TABLE = "TABLE"
_TEXT, _WHOLE, _TRUTH = pa.string(), pa.int32(), pa.bool_()


def _schema(**fields: pa.DataType | tuple[pa.DataType]) -> pa.Schema:
    """Return a schema; a type in a tuple is not NULL."""
    return pa.schema(
        pa.field(name, kind[0], nullable=False) if isinstance(kind, tuple) else pa.field(name, kind)
        for name, kind in fields.items()
    )


CATALOGS = _schema(catalog_name=(_TEXT,))
DB_SCHEMAS = _schema(catalog_name=_TEXT, db_schema_name=(_TEXT,))
TABLE_TYPES = _schema(table_type=(_TEXT,))
TABLES = _schema(catalog_name=_TEXT, db_schema_name=_TEXT, table_name=(_TEXT,), table_type=(_TEXT,))
TABLES_WITH_SCHEMA = TABLES.append(pa.field("table_schema", pa.binary(), nullable=False))
PRIMARY_KEYS = _schema(
    catalog_name=_TEXT,
    db_schema_name=_TEXT,
    table_name=(_TEXT,),
    column_name=(_TEXT,),
    key_name=_TEXT,
    key_sequence=(_WHOLE,),
)
FOREIGN_KEYS = _schema(
    pk_catalog_name=_TEXT,
    pk_db_schema_name=_TEXT,
    pk_table_name=(_TEXT,),
    pk_column_name=(_TEXT,),
    fk_catalog_name=_TEXT,
    fk_db_schema_name=_TEXT,
    fk_table_name=(_TEXT,),
    fk_column_name=(_TEXT,),
    key_sequence=(_WHOLE,),
    fk_key_name=_TEXT,
    pk_key_name=_TEXT,
    update_rule=(pa.uint8(),),
    delete_rule=(pa.uint8(),),
)
TYPES = _schema(
    type_name=(_TEXT,),
    data_type=(_WHOLE,),
    column_size=_WHOLE,
    literal_prefix=_TEXT,
    literal_suffix=_TEXT,
    create_params=pa.list_(pa.field("item", _TEXT, nullable=False)),
    nullable=(_WHOLE,),
    case_sensitive=(_TRUTH,),
    searchable=(_WHOLE,),
    unsigned_attribute=_TRUTH,
    fixed_prec_scale=(_TRUTH,),
    auto_increment=_TRUTH,
    local_type_name=_TEXT,
    minimum_scale=_WHOLE,
    maximum_scale=_WHOLE,
    sql_data_type=(_WHOLE,),
    datetime_subcode=_WHOLE,
    num_prec_radix=_WHOLE,
    interval_precision=_WHOLE,
)
_INFO_KINDS = {
    "string_value": _TEXT,
    "bool_value": _TRUTH,
    "bigint_value": pa.int64(),
    "int32_bitmask": _WHOLE,
    "string_list": pa.list_(_TEXT),
    "int32_to_int32_list_map": pa.map_(_WHOLE, pa.list_(_WHOLE)),
}
INFO = pa.schema(
    [
        pa.field("info_name", pa.uint32(), nullable=False),
        pa.field(
            "value",
            pa.dense_union([pa.field(name, kind) for name, kind in _INFO_KINDS.items()]),
            nullable=False,
        ),
    ]
)


def db_schemas(command: Any) -> pa.Table:
    """Return the one, nameless schema if a command asks for it."""
    elsewhere = command.catalog or command.db_schema_filter_pattern.strip("%")
    return pa.Table.from_pylist([] if elsewhere else [{"db_schema_name": ""}], schema=DB_SCHEMAS)


def _facts() -> dict[int, tuple[str, object]]:
    """Return the facts about the gateway by number: kind and value.

    All numbers of JDBC are here, since its drivers require each one. A limit of 0 means unknown.
    """
    texts = {0: "dpsql", 1: __version__, 2: pa.__version__, 504: '"', 513: "\\", 514: "", 529: "", 530: "", 531: ""}
    yes = dict.fromkeys((3, 4, 515, 516, 518, 520, 521, 523), True)
    no = dict.fromkeys(
        (5, 9, 500, 501, 502, 506, 519, 524, 527, 532, 536, 537, 539, 556, 563, 565, 566, *range(572, 577)), False
    )
    limits = {**dict.fromkeys((*range(541, 556), *range(557, 563)), 0), 557: MOST_BYTES}
    # NULLs at the end (507); grouping by unselected columns (522); the smallest grammars (525, 526); all outer joins
    # (528); subqueries (538); UNION and UNION ALL (540); no transactions (564); results are read once (567, 569).
    masks = {
        **dict.fromkeys((8, 101, 503, 505, 533, 534, 535, 568, 570, 571), 0),
        **{100: 3_600_000, 507: 3, 522: 3, 525: 1, 526: 1, 528: 6, 538: 15, 540: 3, 564: 1, 567: 2, 569: 2},
    }
    lists: dict[int, object] = {number: [] for number in range(508, 513)}
    facts: dict[int, tuple[str, object]] = {517: ("int32_to_int32_list_map", [])}
    groups: tuple[tuple[str, Mapping[int, object]], ...] = (
        ("string_value", texts),
        ("bool_value", {**yes, **no}),
        ("bigint_value", limits),
        ("int32_bitmask", masks),
        ("string_list", lists),
    )
    for kind, values in groups:
        facts.update({number: (kind, value) for number, value in values.items()})
    return dict(sorted(facts.items()))


_FACTS = _facts()


def info(numbers: Sequence[int]) -> pa.Table:
    """Return the gateway's facts with some numbers, or all facts."""
    facts = [(number, *_FACTS[number]) for number in (numbers or _FACTS) if number in _FACTS]
    kinds = list(_INFO_KINDS)
    values: dict[str, list[object]] = {kind: [] for kind in kinds}
    offsets = []
    for _, kind, value in facts:
        offsets.append(len(values[kind]))
        values[kind].append(value)
    union = pa.UnionArray.from_dense(
        pa.array([kinds.index(kind) for _, kind, _ in facts], pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(values[kind], kind_of) for kind, kind_of in _INFO_KINDS.items()],
        kinds,
    )
    return pa.Table.from_arrays([pa.array([number for number, _, _ in facts], pa.uint32()), union], schema=INFO)


# Name, JDBC number, size, whether quoted, whether unsigned, scale, and radix.
_TYPE_ROWS: tuple[tuple[str, int, int | None, bool, bool | None, int | None, int | None], ...] = (
    ("BOOLEAN", -7, 1, False, None, None, None),
    ("TINYINT", -6, 3, False, False, 0, 10),
    ("BIGINT", -5, 19, False, False, 0, 10),
    ("DECIMAL", 3, 38, False, False, 38, 10),
    ("INTEGER", 4, 10, False, False, 0, 10),
    ("SMALLINT", 5, 5, False, False, 0, 10),
    ("FLOAT", 7, 24, False, False, None, 2),
    ("DOUBLE", 8, 53, False, False, None, 2),
    ("VARCHAR", 12, None, True, None, None, None),
    ("DATE", 91, 10, True, None, None, None),
    ("TIME", 92, 15, True, None, None, None),
    ("TIMESTAMP", 93, 26, True, None, None, None),
)
_SUBCODES = {"DATE": 1, "TIME": 2, "TIMESTAMP": 3}


def types(number: int | None) -> pa.Table:
    """Return the column type with a number, or all types."""
    rows = [
        {
            "type_name": name,
            "data_type": kind,
            "column_size": size,
            "literal_prefix": "'" if quoted else None,
            "literal_suffix": "'" if quoted else None,
            "nullable": 1,
            "case_sensitive": name == "VARCHAR",
            "searchable": 3 if name == "VARCHAR" else 2,
            "unsigned_attribute": unsigned,
            "fixed_prec_scale": False,
            "auto_increment": None if unsigned is None else False,
            "local_type_name": name,
            "minimum_scale": None if scale is None else 0,
            "maximum_scale": scale,
            "sql_data_type": 9 if name in _SUBCODES else kind,
            "datetime_subcode": _SUBCODES.get(name),
            "num_prec_radix": radix,
        }
        for name, kind, size, quoted, unsigned, scale, radix in _TYPE_ROWS
        if number is None or kind == number
    ]
    return pa.Table.from_pylist(rows, schema=TYPES)


_ARROW = {
    **{"BOOLEAN": pa.bool_(), "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32()},
    **{"BIGINT": pa.int64(), "UTINYINT": pa.uint8(), "USMALLINT": pa.uint16(), "UINTEGER": pa.uint32()},
    **{"UBIGINT": pa.uint64(), "HUGEINT": pa.decimal128(38, 0), "FLOAT": pa.float32(), "DOUBLE": pa.float64()},
    **{"DATE": pa.date32(), "TIME": pa.time64("us"), "TIMESTAMP": pa.timestamp("us")},
    **{"TIMESTAMP_S": pa.timestamp("s"), "TIMESTAMP_MS": pa.timestamp("ms"), "TIMESTAMP_NS": pa.timestamp("ns")},
    **{"TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"), "BLOB": pa.binary(), "VARCHAR": pa.string()},
}
_DECIMAL = re.compile(r"DECIMAL\((\d{1,2}),\s*(\d{1,2})\)")


def arrow_type(name: str) -> pa.DataType:
    """Return a DuckDB type's Arrow type; string for any other type, such as a list."""
    match = _DECIMAL.fullmatch(name)
    if match is not None and 0 < int(match[1]) <= 38 and int(match[2]) <= int(match[1]):
        return pa.decimal128(int(match[1]), int(match[2]))
    return _ARROW.get(name, pa.string())


def columns_schema(table: str, columns: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the schema of a dataset's columns as an Arrow message."""
    fields = []
    for column in columns:
        properties = {
            "TABLE_NAME": table,
            "TYPE_NAME": str(column["type"]),
            "IS_READ_ONLY": "1",
            "IS_AUTO_INCREMENT": "0",
        }
        metadata = {f"ARROW:FLIGHT:SQL:{name}": value for name, value in properties.items()}
        fields.append(pa.field(str(column["name"]), arrow_type(str(column["type"])), metadata=metadata))
    message: bytes = pa.schema(fields).serialize().to_pybytes()
    return message


def is_like(name: str, pattern: str) -> bool:
    r"""Return whether a name matches a pattern: ``%`` is any text, ``_`` any character, and ``\\`` quotes them.

    Its time is at most the product of both lengths: if the text after a ``%`` does not fit, the last ``%`` takes one
    character more, and no earlier ``%`` is tried again.
    """
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    at = part = 0
    again: tuple[int, int] | None = None
    while at < len(name):
        if part < len(parts) and parts[part] == "%":
            part += 1
            again = (at, part)
        elif part < len(parts) and (parts[part] == "_" or parts[part][-1] == name[at]):
            at, part = at + 1, part + 1
        elif again is not None:
            again = (again[0] + 1, again[1])
            at, part = again
        else:
            return False
    return all(mark == "%" for mark in parts[part:])
