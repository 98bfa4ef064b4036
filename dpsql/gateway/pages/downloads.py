"""Answers as files: CSV that a spreadsheet takes for no formula, Parquet, and an Arrow stream with its receipts."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpsql.gateway.encoding import ARROW, RECEIPTS, arrow_bytes, column_values, json_bytes, plain
from dpsql.gateway.pages.sessions import KeptAnswer

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_bytes(answer: KeptAnswer) -> bytes:
    """Return the rows as CSV.

    A text that a spreadsheet would compute gets an apostrophe before it; numbers are left alone.
    """
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, lineterminator="\r\n")
    writer.writerow([_cell(name) for name in answer.table.column_names])
    for row in zip(*map(column_values, answer.table.columns), strict=True):
        writer.writerow([_cell(value) for value in row])
    return lines.getvalue().encode("utf-8", "replace")


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int | float):
        return str(value)
    found = plain(value)
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return f"'{text}" if text.startswith(_FORMULA) else text


def parquet_bytes(answer: KeptAnswer) -> bytes:
    """Return the rows as Parquet, with the receipts in the metadata of the schema."""
    metadata = {**(answer.table.schema.metadata or {}), RECEIPTS: json_bytes(answer.receipts)}
    sink = pa.BufferOutputStream()
    pq.write_table(answer.table.replace_schema_metadata(metadata), sink)
    found: bytes = sink.getvalue().to_pybytes()
    return found


# By the ending of a file: what it is, and how it is made.
FILES: dict[str, tuple[str, str, Any]] = {
    "csv": ("CSV", "text/csv; charset=utf-8", csv_bytes),
    "parquet": ("Parquet", "application/vnd.apache.parquet", parquet_bytes),
    "arrows": ("Arrow", ARROW, lambda answer: arrow_bytes(answer.table, answer.receipts)),
}
