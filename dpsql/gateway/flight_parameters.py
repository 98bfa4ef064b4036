"""Read the values that a client binds to a prepared statement, and write them into its text as literals.

The gateway judges a statement with its literals as any other. It accepts only values of one row, without dictionaries
and compression, so no message grows when it is read.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple

import pyarrow as pa
import pyarrow.ipc

from dpsql.errors import GatewayError

_SCHEMA, _BATCH = 1, 3
_TAKEN = (
    *(pa.types.is_null, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_date, pa.types.is_timestamp),
)
# Quoted strings and names, comments, words, numbers, and placeholders; an open quote takes the rest.
_PART = re.compile(
    r"""
      (?P<text>[eE]'(?:[^'\\]|\\.|'')*+(?:'|\Z) | '(?:[^']|'')*+(?:'|\Z)) | (?P<name>"(?:[^"]|"")*+(?:"|\Z))
    | (?P<comment>--[^\r\n]*+ | /\*)
    | \$(?P<tag>[^\W\d]\w*+|)\$.*?(?:\$(?P=tag)\$|\Z)
    | (?P<word>[^\W\d][\w$]*+)
    | (?P<value>\?\d{0,4}|\$\d{1,4})
    | (?P<space>\s++)
    | (?P<number>\d[\d_]*+(?:\.\d*+)?(?:[eE][+-]?\d++)?)
    | (?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT = re.compile(r"/\*|\*/")


class Word(NamedTuple):
    """A part of a statement.

    Attributes
    ----------
    kind : str
        ``text``, ``name`` (quoted), ``word``, ``number``, ``value`` (a placeholder), or ``mark`` (one character).
    text : str
    begin, end : int
    """

    kind: str
    text: str
    begin: int
    end: int

    @property
    def name(self) -> str:
        """The name in lower case, without quotes."""
        text = self.text.lower()
        return text[1:-1].replace('""', '"') if self.kind == "name" else text


def parts_of(text: str) -> Iterator[Word]:
    """Yield the parts of a statement, without spaces and comments."""
    at = 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            break
        kind, end = part.lastgroup or "mark", part.end()
        if text.startswith("/*", at):
            end = _end_of_comment(text, at)
        if kind not in ("comment", "space"):
            yield Word("text" if kind == "tag" else kind, text[at:end], at, end)
        at = end


def positions_of(text: str) -> list[tuple[int, int, int]]:
    """Return the parameters (``?``, ``?1``, ``$1``) of a statement: begin, end, and value number from 0."""
    positions: list[tuple[int, int, int]] = []
    for part in parts_of(text):
        if part.kind == "value":
            number = int(part.text[1:]) - 1 if len(part.text) > 1 else len(positions)
            positions.append((part.begin, part.end, number))
    return positions


def _end_of_comment(text: str, at: int) -> int:
    """Return the end of a comment; comments nest."""
    deep = 0
    for mark in _COMMENT.finditer(text, at):
        deep += 1 if mark.group() == "/*" else -1
        if deep == 0:
            return mark.end()
    return len(text)


def with_values(text: str, values: Sequence[object] | None) -> str:
    """Return a statement with literals for its parameters.

    Parameters
    ----------
    text : str
    values : sequence or None
        Bound values; None if none.

    Raises
    ------
    GatewayError
        G013: there are more or fewer values than parameters.
    """
    if values is None:
        return text
    positions = positions_of(text)
    if {number for _, _, number in positions} != set(range(len(values))):
        raise GatewayError("G013", "the statement has another number of parameters than of values. Bind one for each.")
    parts, last = [], 0
    for begin, end, number in positions:
        parts += [text[last:begin], " ", literal(values[number]), " "]
        last = end
    return "".join([*parts, text[last:]])


def literal(value: object) -> str:
    """Return a value as a SQL literal.

    Raises
    ------
    GatewayError
        G013: the type is not accepted.
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime):
        return f"{'TIMESTAMP' if value.tzinfo is None else 'TIMESTAMPTZ'} '{value.isoformat(' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    raise _refused("a value is no number, text, truth or date")


def read_values(messages: Sequence[tuple[bytes, bytes]]) -> list[object]:
    """Return the values of the one row that a client sent.

    Parameters
    ----------
    messages : sequence of pairs of bytes
        Header and body of each message of an Arrow stream.

    Raises
    ------
    GatewayError
        G013: the stream is not one row of plain values.
    """
    kinds = []
    for header, _ in messages:
        try:
            kinds.append(_kind(header))
        except (struct.error, IndexError):
            raise _refused("the values are not read") from None
    if kinds != [_SCHEMA, _BATCH]:
        raise _refused("the values are more or less than one batch of one row, or have a dictionary")
    try:
        with pa.ipc.open_stream(
            b"".join(map(_encapsulated, messages)), options=pa.ipc.IpcReadOptions(use_threads=False)
        ) as stream:
            for field in stream.schema:
                if not any(takes(field.type) for takes in _TAKEN):
                    raise _refused("a value is no number, text, truth or date")
            batch = stream.read_next_batch()
        batch.validate(full=True)
        return [column[0].as_py() for column in batch.columns]
    except (pa.ArrowException, ValueError, OverflowError, OSError, MemoryError, StopIteration):
        raise _refused("the values are not read") from None


def _refused(what: str) -> GatewayError:
    return GatewayError("G013", f"{what}. Bind one row of plain values, or write them.")


def _encapsulated(message: tuple[bytes, bytes]) -> bytes:
    """Return a message in stream format."""
    header, body = message
    header += bytes(-len(header) % 8)
    return struct.pack("<iI", -1, len(header)) + header + body + bytes(-len(body) % 8)


def _kind(header: bytes) -> int:
    """Return a message's kind; raise for a batch that is compressed or has another number of rows than one.

    A message of Arrow is a FlatBuffers table: this function reads its offsets, and Arrow verifies all of it later.
    """
    message = struct.unpack_from("<I", header, 0)[0]
    kind = _field(header, message, 1)
    if kind is None:
        raise IndexError
    message_kind = header[kind]
    if message_kind == _BATCH:
        offset = _field(header, message, 2)
        if offset is None:
            raise IndexError
        batch = offset + struct.unpack_from("<I", header, offset)[0]
        rows = _field(header, batch, 0)
        if rows is None or struct.unpack_from("<q", header, rows)[0] != 1:
            raise _refused("the values are more or less than one row")
        if _field(header, batch, 3) is not None:
            raise _refused("the values are compressed")
    return message_kind


def _field(data: bytes, table: int, number: int) -> int | None:
    """Return the offset of a table's field; None for the default."""
    slots = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, slots)[0] if slots >= 0 else 0
    if slots < 0 or 4 + 2 * number >= size:
        return None
    offset = struct.unpack_from("<H", data, slots + 4 + 2 * number)[0]
    return table + offset if offset else None
