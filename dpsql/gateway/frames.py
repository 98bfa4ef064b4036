"""Messages between the gateway's processes: a JSON header, then Arrow tables as bytes.

A frame is the length of the header (u32, big-endian), the header as JSON, and for each table its length (u32) and an
Arrow IPC stream. ``blobs`` in the header counts the tables. `receive` checks each length before it takes memory.
"""

from __future__ import annotations

import json
import math
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from dpsql.gateway.problems import GatewayError

MOST_HEADER, MOST_BLOB, MOST_BLOBS = 1 << 20, 64 << 20, 16
MOST_ENTRIES = 200  # ledger entries in one reply
MOST_ROWS, MOST_BYTES = 1_000_000, 50_000_000  # in a statement's result
_LENGTH = struct.Struct("!I")
_PIECE = 1 << 20


def send(connection: socket.socket, header: Mapping[str, object], blobs: Sequence[bytes] = ()) -> None:
    """Send one frame.

    Raises
    ------
    GatewayError
        G097: the frame is larger than `receive` accepts, or holds a value that is not JSON.
    """
    try:
        text = json.dumps({**header, "blobs": len(blobs)}, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError):
        raise GatewayError("G097", "a message holds what is no JSON. Send texts, whole numbers and lists.") from None
    if len(text) > MOST_HEADER or len(blobs) > MOST_BLOBS or any(len(blob) > MOST_BLOB for blob in blobs):
        raise GatewayError("G097", "a message is too large. Ask for fewer rows.")
    connection.sendall(_LENGTH.pack(len(text)) + text)
    for blob in blobs:
        connection.sendall(_LENGTH.pack(len(blob)))
        connection.sendall(blob)


def receive(
    connection: socket.socket,
    *,
    most_header: int = MOST_HEADER,
    most_blob: int = MOST_BLOB,
    most_blobs: int = MOST_BLOBS,
    seconds: float | None = None,
) -> tuple[dict[str, Any], list[bytes]]:
    """Receive one frame.

    Parameters
    ----------
    connection : socket.socket
    most_header, most_blob, most_blobs : int
        The longest header and table, in bytes, and the most tables.
    seconds : float, optional
        Time limit for the whole frame.

    Raises
    ------
    GatewayError
        G098: a cut, too large or malformed frame; G099: a timeout.
    EOFError
        The peer closed the connection before the frame.
    """
    end = None if seconds is None else time.monotonic() + seconds
    first = _some(connection, _LENGTH.size, end)
    if not first:
        raise EOFError
    length = _length(first + _rest(connection, _LENGTH.size - len(first), end), most_header, "header")
    header = _parsed(_rest(connection, length, end))
    count = header.pop("blobs", None)
    if type(count) is not int or not 0 <= count <= most_blobs:
        _refuse("says no number of tables")
    blobs = []
    for _ in range(count):
        size = _length(_rest(connection, _LENGTH.size, end), most_blob, "table")
        blobs.append(_rest(connection, size, end))
    return header, blobs


def check_result(rows: int, size: int) -> None:
    """Raise if a statement's result has too many rows or bytes.

    Raises
    ------
    GatewayError
        G092.
    """
    if rows > MOST_ROWS or size > MOST_BYTES:
        raise GatewayError("G092", f"the result has more than {MOST_ROWS} rows or {MOST_BYTES} bytes. Limit it.")


def parse_json(text: bytes | str) -> object:
    """Parse JSON without NaN, infinities, repeated keys and numbers that a double does not hold.

    Raises
    ------
    ValueError
        It is not such JSON.
    """
    try:
        return json.loads(text, parse_float=_finite, parse_constant=_no_constant, object_pairs_hook=_distinct)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        header = parse_json(text)
    except ValueError:  # also for invalid UTF-8
        _refuse("has a header that is no JSON")
    if not isinstance(header, dict):
        _refuse("has a header that is no object")
    return header


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _no_constant(digits)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key stands twice")
    return members


def _length(prefix: bytes, most: int, what: str) -> int:
    (length,) = _LENGTH.unpack(prefix)
    if length > most:
        _refuse(f"has a {what} of more than {most} bytes")
    return int(length)


def _some(connection: socket.socket, most: int, end: float | None) -> bytes:
    if end is not None:
        connection.settimeout(max(end - time.monotonic(), 0.001))
    try:
        return connection.recv(min(most, _PIECE))
    except TimeoutError:
        raise GatewayError("G099", "stopped: it took too long. Ask again.") from None
    except ConnectionError:
        return b""


def _rest(connection: socket.socket, count: int, end: float | None) -> bytes:
    pieces = []
    while count:
        piece = _some(connection, count, end)
        if not piece:
            _refuse("is cut")
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def _refuse(why: str) -> NoReturn:
    raise GatewayError("G098", f"a message {why}. Ask again; report it if it stays.")
