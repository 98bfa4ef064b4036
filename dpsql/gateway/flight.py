"""Arrow Flight SQL: the gateway's door over gRPC.

The service reads every call as a stream of bytes, so it checks the token before it waits for the body. The wait takes
no thread and has a time limit. No exception leaves: a client gets a status, a code and a text.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from anyio import CapacityLimiter, to_thread

from dpsql.errors import DpsqlError, GatewayError
from dpsql.gateway.addresses import Addresses
from dpsql.gateway.flight_session import COOKIE, Caller, address_of, new_session, read_caller, read_headers
from dpsql.gateway.flight_sql import AnsweringFlight, FlightSql, Reply
from dpsql.gateway.listening import Listening
from dpsql.gateway.problems import PREFIX, problem_of

MOST_MESSAGE = 1 << 20
# Time limits to receive a client's message, and to send ours.
BODY_SECONDS, SEND_SECONDS = 10.0, 60.0
_SERVICE = "/arrow.flight.protocol.FlightService/"
_MOST_CALLS, _ASKING, _LOOKING = 256, 32, 16
_LONGEST_TEXT = 1500
_STATUS = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
_OPTIONS = (
    ("grpc.so_reuseport", 0),  # refuse another program's port
    ("grpc.max_receive_message_length", MOST_MESSAGE),
    ("grpc.max_metadata_size", 16 << 10),
    ("grpc.absolute_max_metadata_size", 16 << 10),
    ("grpc.max_concurrent_streams", 64),
    ("grpc.compression_enabled_algorithms_bitset", 1),  # none: compressed data may grow
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 600_000),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 10),
)


def status_of(error: BaseException) -> tuple[grpc.StatusCode, str]:
    """Return an error's gRPC status and text; an error outside dpsql gives only its log number."""
    problem = problem_of(error)
    code = str(problem.document["code"])
    status = grpc.StatusCode.RESOURCE_EXHAUSTED if code == "G032" else _STATUS[problem.status]
    text = f"[{PREFIX}{code}] {problem.document['title']}"
    for name in ("hint", "position"):
        if name in problem.document:
            text += f" ({name}: {problem.document[name]})"
    return status, text[:_LONGEST_TEXT]


class FlightService(grpc.GenericRpcHandler):  # type: ignore[misc] # gRPC has no types
    """Flight service over the verbs of Flight SQL.

    Parameters
    ----------
    verbs : FlightSql
    addresses : Addresses
    body_seconds : float
        Time limit for a client's message.
    """

    def __init__(self, verbs: FlightSql, addresses: Addresses, body_seconds: float = BODY_SECONDS) -> None:
        self._verbs, self._addresses, self._seconds = verbs, addresses, body_seconds
        self._asking, self._looking = CapacityLimiter(_ASKING), CapacityLimiter(_LOOKING)
        answer = self._answer
        self._calls: Mapping[str, Callable[[Caller, Any], Awaitable[Reply]]] = {
            "Handshake": self._shake_hands,
            "GetFlightInfo": partial(answer, verbs.flight_info, self._asking),
            "GetSchema": partial(answer, verbs.schema, self._looking),
            "DoGet": partial(answer, verbs.get, self._looking),
            "DoAction": partial(answer, verbs.action, self._looking),
            "ListActions": partial(answer, verbs.actions, self._looking),
            "DoPut": self._bind,
            **dict.fromkeys(("ListFlights", "PollFlightInfo", "DoExchange"), _refuse),
        }

    def service(self, details: Any) -> Any:
        """Return a call's handler."""
        name = details.method.removeprefix(_SERVICE)
        if not details.method.startswith(_SERVICE) or name not in self._calls:
            return None
        return grpc.stream_stream_rpc_method_handler(partial(self._handle, name))

    async def _handle(self, name: str, _: object, context: Any) -> None:
        """Answer one call."""
        session: str | None = None
        metadata = context.invocation_metadata() or ()
        headers = read_headers(metadata)
        address = self._addresses.of(address_of(context.peer()), headers)
        try:
            self._addresses.refuse(address, headers)
            caller = read_caller(metadata)
            await to_thread.run_sync(self._verbs.check, caller, limiter=self._looking)
            self._addresses.remember(headers)
            if caller.session is None:
                session = new_session()
            reply = await self._calls[name](caller, context)
            sent = _cookie(reply.session or session)
            if name == "Handshake":
                sent += (("authorization", f"Bearer {caller.token}"),)
            await context.send_initial_metadata(sent)
            for part in reply.parts:
                async with asyncio.timeout(SEND_SECONDS):
                    await context.write(part)
        except Exception as error:
            if context.done():  # the client has left
                return
            if isinstance(error, DpsqlError) and error.code == f"{PREFIX}G024":
                session = new_session()  # report a lost session once
            status, text = status_of(error)
            if status == grpc.StatusCode.UNAUTHENTICATED:
                self._addresses.count_failure(address, headers)
            context.set_code(status)
            context.set_details(text)
            context.set_trailing_metadata(_cookie(session))

    async def _answer(
        self, verb: Callable[[Caller, bytes], Reply], limit: CapacityLimiter, caller: Caller, context: Any
    ) -> Reply:
        body = await self._read(context)
        return await to_thread.run_sync(verb, caller, body if body is not None else b"", limiter=limit)

    async def _bind(self, caller: Caller, context: Any) -> Reply:
        """Bind the values in a stream; `MOST_MESSAGE` limits the whole stream."""
        bodies: list[bytes] = []
        end = asyncio.get_running_loop().time() + self._seconds
        while (body := await self._read(context, end)) is not None:
            bodies.append(body)
            if sum(map(len, bodies)) > MOST_MESSAGE:
                raise GatewayError("G021", f"the stream is longer than {MOST_MESSAGE} bytes. Send less.")
        return await to_thread.run_sync(self._verbs.put, caller, bodies, limiter=self._looking)

    async def _read(self, context: Any, end: float | None = None) -> bytes | None:
        """Return a client's next message; None at the end."""
        try:
            async with asyncio.timeout_at(end or asyncio.get_running_loop().time() + self._seconds):
                message = await context.read()
        except TimeoutError:
            raise GatewayError("G021", "a message did not come in time. Send it again, at once.") from None
        return None if message is grpc.aio.EOF else bytes(message)

    async def _shake_hands(self, caller: Caller, context: Any) -> Reply:
        return Reply([])


async def _refuse(caller: Caller, context: Any) -> Reply:
    raise GatewayError("G031", "there is no such call here. Ask with a driver of Arrow Flight SQL.")


def _cookie(session: str | None) -> tuple[tuple[str, str], ...]:
    return () if session is None else (("set-cookie", f"{COOKIE}={session}"),)


@asynccontextmanager
async def serving(
    door: AnsweringFlight,
    where: Listening,
    listens: Callable[[str], object] | None = None,
    *,
    addresses: Addresses | None = None,
    body_seconds: float = BODY_SECONDS,
) -> AsyncIterator[None]:
    """Serve Flight SQL in the body of an ``async with`` statement.

    Parameters
    ----------
    door : AnsweringFlight
    where : Listening
    listens : callable, optional
        Gets the address once the server listens; port 0 means a free port.
    addresses : Addresses, optional
        Records of client addresses.
    body_seconds : float
        Time limit for a client's message.

    Raises
    ------
    RuntimeError
        Another program has the port.
    """
    where.check()
    server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=_MOST_CALLS)
    server.add_generic_rpc_handlers(
        (FlightService(FlightSql(door), addresses or Addresses(where.trusted_proxies), body_seconds),)
    )
    host = f"[{where.host}]" if ":" in where.host else where.host
    address = f"{host}:{where.port}"
    if where.tls_cert is not None and where.tls_key is not None:
        pair = (Path(where.tls_key).read_bytes(), Path(where.tls_cert).read_bytes())
        port = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    else:
        port = server.add_insecure_port(address)
    await server.start()
    if listens is not None:
        listens(f"{'grpc' if where.tls_cert is None else 'grpc+tls'}://{host}:{port}")
    try:
        yield
    finally:
        await server.stop(10)
