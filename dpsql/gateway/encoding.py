"""Encode answers: JSON for every reader, and Arrow streams that carry their receipts.

JSON has no number for NaN, infinity, and integers that a double does not hold: these are strings.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any

import pyarrow as pa

JSON, ARROW = "application/json", "application/vnd.apache.arrow.stream"
RECEIPTS = b"dpsql.receipts"
_EXACT = 2**53


def plain(value: object) -> Any:
    """Return a value in JSON types; a number that JSON lacks becomes a string."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if -_EXACT <= value <= _EXACT else str(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(name): plain(element) for name, element in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return f"{value.total_seconds()!r} s"
    if isinstance(value, Sequence):
        return [plain(element) for element in value]
    return str(value)


def json_bytes(value: object) -> bytes:
    """Return a value as JSON in UTF-8."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def table_document(
    table: pa.Table, receipts: Sequence[Mapping[str, object]], *, most: int | None = None
) -> dict[str, Any]:
    """Return an answer as a JSON document.

    Parameters
    ----------
    table : pyarrow.Table
    receipts : sequence of dict
    most : int, optional
        Most rows to show; `left_out` then counts the others.
    """
    head = table if most is None else table.slice(0, most)
    columns = [column_values(column) for column in head.columns]
    rows = [list(row) for row in zip(*columns, strict=True)]
    document = {
        "columns": [{"name": field.name, "type": str(field.type)} for field in table.schema],
        "rows": rows,
        "receipts": list(receipts),
    }
    if len(head) < len(table):
        document["left_out"] = len(table) - len(head)
    return document


def column_values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values; dates that Python lacks, such as ``infinity``, are strings."""
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError, pa.ArrowException):
        return [_value(scalar) for scalar in column]


def _value(scalar: pa.Scalar) -> object:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, pa.ArrowException):
        kind = scalar.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_value(value) for value in scalar.values]
    if pa.types.is_struct(kind):
        return {field.name: _value(scalar[field.name]) for field in kind}
    number = getattr(scalar, "value", None)
    most = 2**31 - 1 if pa.types.is_date32(kind) else 2**63 - 1
    if number in (most, -most):
        return "infinity" if number > 0 else "-infinity"
    return f"{number} {'days' if pa.types.is_date32(kind) else getattr(kind, 'unit', '')} since 1970"


def arrow_bytes(table: pa.Table, receipts: Sequence[Mapping[str, object]]) -> bytes:
    """Return an answer as an Arrow stream with the receipts in its schema."""
    metadata = {**(table.schema.metadata or {}), RECEIPTS: json_bytes(receipts)}
    sink = pa.BufferOutputStream()
    answer = table.replace_schema_metadata(metadata)
    with pa.ipc.new_stream(sink, answer.schema) as stream:
        stream.write_table(answer)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def read_arrow(data: bytes) -> tuple[pa.Table, list[dict[str, Any]]]:
    """Return the rows and the receipts of an Arrow stream."""
    with pa.ipc.open_stream(data) as stream:
        table = stream.read_all()
    metadata = dict(table.schema.metadata or {})
    receipts = json.loads(metadata.pop(RECEIPTS, b"[]"))
    return table.replace_schema_metadata(metadata or None), receipts
