"""The front's client for boxes: isolated processes that read and finish one statement each."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.ipc

from dpsql.gateway import frames
from dpsql.gateway.problems import GatewayError
from dpsql.gateway.statement import WHOLE, PrivateCall, Statement


class Boxes:
    """Opens boxes.

    Parameters
    ----------
    path : Path
        The socket of `dpsql.gateway.zygote`.
    seconds : float
        Time limit to read a statement, and to finish it.
    """

    def __init__(self, path: Path, seconds: float = 60) -> None:
        self._path, self._seconds = path, seconds

    def open(self) -> Box:
        """Return a box for one statement.

        Raises
        ------
        GatewayError
            G036: no box is reachable.
        """
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        channel.settimeout(self._seconds)
        try:
            channel.connect(str(self._path))
        except OSError:
            channel.close()
            raise GatewayError("G036", "statements cannot be read now. Ask again in a while.") from None
        return Box(channel, self._seconds)


class Box:
    """A process for one statement; `close` ends it.

    Parameters
    ----------
    channel : socket.socket
    seconds : float
        Time limit for each of its two answers.
    """

    def __init__(self, channel: socket.socket, seconds: float) -> None:
        self._channel, self._seconds = channel, seconds

    def parse(self, text: str) -> Statement:
        """Return a statement's calls and settings; SQL over the answers stays in the box, except `WHOLE`.

        Raises
        ------
        GatewayError
            G001 to G016: it is refused. G099: reading took too much time or memory.
        """
        header, _ = self._exchange({"text": text}, ())
        calls, settings, is_whole = header.get("calls"), header.get("settings"), header.get("whole")
        if not isinstance(calls, list) or not isinstance(settings, dict) or (is_whole and len(calls) != 1):
            raise _malformed()
        return Statement(tuple(map(_call, calls)), settings, WHOLE if is_whole else "")

    def finish(self, tables: Sequence[pa.Table | bytes]) -> pa.Table:
        """Return the result of the statement.

        Parameters
        ----------
        tables : sequence of pyarrow.Table or bytes
            Answers of its calls, in order; bytes are Arrow streams.

        Raises
        ------
        GatewayError
            G090 to G093: the SQL over the answers fails, or its result is too large. G099: it took too long.
        """
        blobs = [table if isinstance(table, bytes) else _stream(table) for table in tables]
        _, answers = self._exchange({}, blobs)
        if len(answers) != 1:
            raise _malformed()
        try:
            table = pa.ipc.open_stream(answers[0]).read_all()
            table.validate(full=True)  # an attacker may control the box
        except (pa.ArrowException, ValueError, OSError):
            raise _malformed() from None
        return table

    def close(self) -> None:
        """End the box."""
        self._channel.close()

    def _exchange(self, header: Mapping[str, object], blobs: Sequence[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        try:
            self._channel.settimeout(self._seconds)
            frames.send(self._channel, header, blobs)
            reply, streams = frames.receive(self._channel, most_blobs=1, seconds=self._seconds)
        except (EOFError, OSError):
            raise GatewayError(
                "G099", "stopped: the statement took too much time or memory. Ask for less at once."
            ) from None
        error = reply.get("error")
        if error is None:
            return reply, streams
        if not isinstance(error, dict) or not re.fullmatch(r"G\d{3}", str(error.get("code"))):
            raise _malformed()
        raise GatewayError.from_json(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _call(record: object) -> PrivateCall:
    if not isinstance(record, dict):
        raise _malformed()
    function, source, arguments = (record.get(name) for name in ("function", "source", "arguments"))
    if not isinstance(function, str) or not isinstance(source, str | None) or not isinstance(arguments, dict):
        raise _malformed()
    return PrivateCall(function, source, arguments)


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _malformed() -> GatewayError:
    return GatewayError("G098", "a box answered what is not known. Ask again; report it if it stays.")
