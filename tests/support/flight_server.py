"""A Flight SQL front over any door, in a thread, and a client that sends what it is told to, byte by byte."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pyarrow as pa

from dpsql.gateway import flight
from dpsql.gateway import flight_messages as messages
from dpsql.gateway.addresses import Addresses
from dpsql.gateway.listening import Listening
from support.fake_door import TOKEN

SERVICE = "/arrow.flight.protocol.FlightService/"


@contextmanager
def flying(door: Any, *, body_seconds: float = flight.BODY_SECONDS, factor: float = 100, **where: Any) -> Iterator[str]:
    """Serve a door on a free port of this machine; yield where. An address may fail `factor` times as often."""
    spoken: list[str] = []
    began, loop = threading.Event(), asyncio.new_event_loop()
    end = asyncio.Event()

    async def serve() -> None:
        place = Listening(port=0, **where)
        known = Addresses(factor=factor)
        async with flight.serving(door, place, spoken.append, addresses=known, body_seconds=body_seconds):
            began.set()
            await end.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert began.wait(30)
    try:
        yield spoken[0]
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(30)
        loop.close()


class RawClient:
    """A client of the calls themselves.

    Parameters
    ----------
    address : str
    *metadata
        Pairs that every call has.
    agent : str
        How the client calls itself.
    """

    def __init__(self, address: str, *metadata: tuple[str, str], agent: str = "") -> None:
        options = [("grpc.primary_user_agent", agent), ("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.insecure_channel(address.removeprefix("grpc://"), options)
        self.metadata = list(metadata)
        self.headers: dict[str, str] = {}

    def call(self, name: str, *bodies: bytes, **options: Any) -> list[bytes]:
        """Return the messages that answer some."""
        made = self.channel.stream_stream(SERVICE + name)
        answer = made(iter(bodies), metadata=self.metadata, timeout=options.pop("timeout", 60), **options)
        found = list(answer)
        self.headers = {**dict(answer.initial_metadata()), **dict(answer.trailing_metadata())}
        return found

    def refused(self, name: str, *bodies: bytes, **options: Any) -> tuple[str, str]:
        """Return the status and the text of a call that is refused."""
        try:
            self.call(name, *bodies, **options)
        except grpc.RpcError as error:
            assert isinstance(error, grpc.Call)
            return error.code().name, error.details() or ""
        raise AssertionError("it was answered")

    def info(self, command: Any) -> Any:
        """Return what GetFlightInfo says of a command."""
        [found] = self.call("GetFlightInfo", descriptor(command))
        return messages.read("FlightInfo", found)

    def rows(self, info: Any) -> pa.Table:
        """Return the rows of a flight."""
        return table_of(self.call("DoGet", info.endpoint[0].ticket.SerializeToString()))

    def ask(self, command: Any) -> pa.Table:
        """Return the rows of a command, which have the columns that were said."""
        info = self.info(command)
        found = self.rows(info)
        assert pa.ipc.read_schema(pa.py_buffer(info.schema)) == found.schema
        return found

    def act(self, kind: str, body: bytes = b"") -> list[bytes]:
        """Return the results of an action."""
        found = self.call("DoAction", messages.new("Action", type=kind, body=body).SerializeToString())
        return [messages.read("Result", one).body for one in found]

    def prepare(self, text: str) -> Any:
        """Return what is said of a statement that is kept."""
        [found] = self.act("CreatePreparedStatement", messages.packed(
            messages.new("ActionCreatePreparedStatementRequest", query=text)
        ))  # fmt: skip
        return messages.unpacked(found)[1]

    def close(self) -> None:
        """Close the connection."""
        self.channel.close()


def bearer(token: str = TOKEN) -> tuple[str, str]:
    """Return the metadata of who has a token."""
    return "authorization", f"Bearer {token}"


def descriptor(command: Any) -> bytes:
    """Return a command as GetFlightInfo takes it."""
    found: bytes = messages.new("FlightDescriptor", type=2, cmd=messages.packed(command)).SerializeToString()
    return found


def query(text: str) -> Any:
    """Return the command of a statement."""
    return messages.new("CommandStatementQuery", query=text)


def execution(handle: bytes) -> Any:
    """Return the command of a prepared statement."""
    return messages.new("CommandPreparedStatementQuery", prepared_statement_handle=handle)


def data_of(table: pa.Table, command: Any = None, options: pa.ipc.IpcWriteOptions | None = None) -> list[bytes]:
    """Return a table as DoPut takes it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options or pa.ipc.IpcWriteOptions()) as writer:
        writer.write_table(table)
    found = []
    for message in pa.ipc.MessageReader.open_stream(sink.getvalue()):
        body = b"" if message.body is None else message.body.to_pybytes()
        found.append(messages.new("FlightData", data_header=message.metadata.to_pybytes(), data_body=body))
    if command is not None:
        found[0].flight_descriptor.type, found[0].flight_descriptor.cmd = 2, messages.packed(command)
    return [one.SerializeToString() for one in found]


def table_of(parts: list[bytes]) -> pa.Table:
    """Return the table that the messages of DoGet hold."""
    whole = b""
    for part in parts:
        found = messages.read("FlightData", part)
        header = found.data_header + bytes(-len(found.data_header) % 8)
        whole += b"\xff\xff\xff\xff" + len(header).to_bytes(4, "little") + header + found.data_body
    with pa.ipc.open_stream(whole) as stream:
        return stream.read_all()
