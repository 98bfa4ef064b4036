"""What Arrow's driver of JDBC does not read as it stands, and what it sends otherwise than it was given.

Seen with the driver 19.0.0: it shows the highest bit of an unsigned number as a sign, knows how many digits a DECIMAL
has by the field's metadata alone, writes each number that is bound into the double that it was told of, and sends NULL
for what was not bound.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.ipc

from dpsql.errors import GatewayError

_EXACT = 2**53
# The smallest type with a sign that holds all of an unsigned one.
_SIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}


def for_java(table: pa.Table) -> pa.Table:
    """Return a table whose numbers the driver shows as they are, with the digits of its DECIMAL columns."""
    schema = schema_for_java(table.schema)
    return table if schema == table.schema else table.cast(schema)


def columns_for_java(columns: bytes) -> bytes:
    """Return the schema of a dataset's columns with the types that `for_java` gives them."""
    found: bytes = schema_for_java(pa.ipc.read_schema(pa.py_buffer(columns))).serialize().to_pybytes()
    return found


def schema_for_java(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a table as `for_java` gives it."""
    fields = []
    for field in schema:
        kind = _SIGNED.get(field.type, field.type)
        told = dict(field.metadata or {})
        if pa.types.is_decimal(kind):
            told[b"ARROW:FLIGHT:SQL:PRECISION"] = str(kind.precision).encode()
            told[b"ARROW:FLIGHT:SQL:SCALE"] = str(kind.scale).encode()
        fields.append(field.with_type(kind).with_metadata(told or None))
    return pa.schema(fields, schema.metadata)


def as_given(values: Sequence[object]) -> list[object]:
    """Return what was bound, whole numbers as such again.

    Raises
    ------
    GatewayError
        G013: nothing was bound to a parameter, or a whole number that a double does not tell from its neighbours.
    """
    return [_as_given(value) for value in values]


def _as_given(value: object) -> object:
    if value is None:  # nothing equals NULL: the question would be paid for and tell nothing
        raise GatewayError("G013", "a parameter has no value. Set each one; write IS NULL for what is missing.")
    if not isinstance(value, float) or not value.is_integer():
        return value
    if abs(value) > _EXACT:
        raise GatewayError(
            "G013", "a driver of JDBC does not send a whole number beyond 2**53 as it is. Write it in the statement."
        )
    return int(value)
