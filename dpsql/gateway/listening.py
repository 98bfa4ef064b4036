"""Listen on the front's sockets: check, time and answer each request.

Each connection carries one request; later bytes are never answered. The front checks the head before an HTTP parser
reads it, counts the body while it arrives, and lets no exception out.

Two programs that read a request differently can be made to see two requests in one. So the front refuses unusual heads,
judged by their bytes: lines without a carriage return, folded lines, a repeated or missing body length, encodings.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from dpsql.contract.parameters import show
from dpsql.dataclass import dataclass
from dpsql.errors import GatewayError
from dpsql.gateway.addresses import HELD, Addresses, refuse_other_sites
from dpsql.gateway.asked import MOST_BODY
from dpsql.gateway.encoding import json_bytes
from dpsql.gateway.problems import MEDIA_TYPE, Problem, problem_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_HEAD = 16 * 1024
END = b"\r\n\r\n"
_bare = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|[\0-\x08\x0b\x0c\x0e-\x1f\x7f]")
_line = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\r\n]*?)[ \t]*")
_request = re.compile(rb"[A-Z]{1,16} /[!-~]* HTTP/1\.[01]")
_ONCE = (b"host", b"authorization", b"content-length", b"content-type", b"idempotency-key")
_NEVER = (b"transfer-encoding", b"content-encoding")
_hint = "Send a plain request of HTTP/1.1 with Content-Length."


def check_growing(head: bytes) -> None:
    """Refuse the bytes of an incomplete or complete head.

    Raises
    ------
    GatewayError
        G021: the head is too long, or a line does not end in CR LF.
    """
    if len(head) > MOST_HEAD:
        raise GatewayError("G021", f"the head of the request is longer than {MOST_HEAD} bytes. Send fewer headers.")
    if _bare.search(head):
        raise GatewayError("G021", f"the head of the request is no HTTP. {_hint}")


def check_head(head: bytes) -> None:
    """Refuse a complete head.

    Raises
    ------
    GatewayError
        G021: the head is no request, or is ambiguous.
    """
    check_growing(head)
    first, *lines = head.removesuffix(END).split(b"\r\n")
    parsed = [_line.fullmatch(line) for line in lines]
    if _request.fullmatch(first) is None or None in parsed:
        raise GatewayError("G021", f"the head of the request is no HTTP. {_hint}")
    names = Counter(header[1].lower() for header in parsed if header)
    for name in _NEVER:
        if names[name]:
            raise GatewayError("G021", f"the header {name.decode()} is not taken. {_hint}")
    for name in _ONCE:
        if names[name] > 1:
            raise GatewayError("G021", f"the header {name.decode()} was given twice. Send it once.")
    if not names[b"host"]:
        raise GatewayError("G021", f"the header host is missing. {_hint}")
    for header in parsed:
        if header and header[1].lower() == b"content-length" and re.fullmatch(rb"[0-9]{1,9}", header[2]) is None:
            raise GatewayError("G021", f"the header content-length is no length. {_hint}")


HEAD_SECONDS, BODY_SECONDS = 10.0, 30.0
# Concurrent connections; a further client is told to retry.
MOST_CONNECTIONS = 256
_is_public_name = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(?::[0-9]{1,5})?").fullmatch
_CLOSE = (b"connection", b"close")
_OUR_HEADERS = (_CLOSE, (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


class LateRequestError(GatewayError):
    """A request did not come in time.

    Parameters
    ----------
    part : str
        The late part.
    """

    def __init__(self, part: str) -> None:
        super().__init__("G021", f"the {part} of the request did not come in time. Send it again, at once.")


class Guarded:
    """Wraps an application: counts and times bodies, and catches exceptions.

    Parameters
    ----------
    app : ASGI application
    addresses : Addresses
        Refuses addresses that fail too often.
    own : collection of str
        Names of the gateway in browsers, in addition to the requested host.
    body_seconds : float
        Time limit of a body.
    """

    def __init__(
        self, app: ASGIApp, addresses: Addresses, *, own: Collection[str] = (), body_seconds: float = BODY_SECONDS
    ) -> None:
        self.app = app
        self._addresses, self._own = addresses, own
        self.body_seconds = body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or run the application's start and end."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)  # the application's start and end
            return
        started, headers = False, scope["headers"]
        address = self._addresses.of((scope.get("client") or ("",))[0], headers)
        scope = {**scope, "client": (address, 0)}  # an application sets HELD in it

        async def closing(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                if message["status"] == 401:
                    self._addresses.count_failure(address, headers)
                elif scope.get(HELD) or getattr(scope.get("user"), "is_authenticated", False):  # MCP sets user
                    self._addresses.remember(headers)
                rest = [(name, value) for name, value in message.get("headers", ()) if name.lower() != b"connection"]
                message = {**message, "headers": [*rest, *_OUR_HEADERS]}
            await send(message)

        try:
            refuse_other_sites(scope["method"], headers, self._own)
            self._addresses.refuse(address, headers)
            body = await self._body(scope, receive)
            await self.app(scope, _handing_over(body, receive), closing)
        except Exception as error:
            problem = problem_of(error, status=_status(error))
            if started:
                raise ConnectionAbortedError("an answer was cut off") from None
            await send_problem(problem, closing)

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """Return the body; raise if it is too long or too slow."""
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if int(declared) > MOST_BODY:
            raise GatewayError("G021", f"the body is longer than {MOST_BODY} bytes. Send a shorter statement.")
        body = bytearray()
        try:
            async with asyncio.timeout(self.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return bytes(body)
                    body += message.get("body", b"")
                    if len(body) > MOST_BODY:
                        raise GatewayError("G021", f"the body is longer than {MOST_BODY} bytes. Send a shorter one.")
                    if not message.get("more_body"):
                        return bytes(body)
        except TimeoutError:
            raise LateRequestError("body") from None


def _status(error: Exception) -> int | None:
    """Return the status of an error that differs from its code's."""
    return 408 if isinstance(error, LateRequestError) else None


def _handing_over(body: bytes, receive: Receive) -> Receive:
    """Return the application's `receive`: the body as one message, then the end of the connection."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def read() -> Message:
        return waiting.pop() if waiting else await receive()

    return read


async def send_problem(problem: Problem, send: Send) -> None:
    """Send an error as the whole answer."""
    body = json_bytes(problem.document)
    headers = [(name.encode(), value.encode()) for name, value in problem.headers.items()]
    headers += [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class CarefulProtocol(H11Protocol):
    """One connection: checks the head as bytes, within a time limit."""

    head_seconds = HEAD_SECONDS

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head: bytearray | None = bytearray()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Start the timer for the head."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(self.head_seconds, lambda: self._refuse(LateRequestError("head"), 408))

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Collect and check the head; then pass all bytes on."""
        if self.transport.is_closing():
            return
        if self._head is None:
            super().data_received(data)
            return
        self._head += data
        end = self._head.find(END)
        head = bytes(self._head[: end + len(END)] if end >= 0 else self._head)
        try:
            if end < 0:
                check_growing(head)
                return
            check_head(head)
        except GatewayError as error:
            self._refuse(error, 400)
            return
        beginning, self._head = bytes(self._head), None
        self._stop_timer()
        super().data_received(beginning)

    def eof_received(self) -> None:
        """Close a connection with an incomplete head."""
        if self._head is not None:
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, error: GatewayError, status: int) -> None:
        """Answer with a problem, read nothing more, and close."""
        self._stop_timer()
        if self.transport.is_closing():
            return
        problem = problem_of(error, status=status)
        body = json_bytes(problem.document)
        head = (
            f"HTTP/1.1 {problem.status} Refused\r\nContent-Type: {MEDIA_TYPE}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


@dataclass(frozen=True)
class Listening:
    """The address of the front.

    Attributes
    ----------
    host, port : str and int
    tls_cert, tls_key : str or None
        Certificate file and key file; without them plaintext.
    insecure_plaintext : bool
        Listen without TLS beyond this machine.
    trusted_proxies : sequence of str
        Addresses of proxies, whose ``X-Forwarded-For`` names the client.
    public_names : sequence of str
        Names of the gateway for browsers and models.
    """

    host: str = "127.0.0.1"
    port: int = 8642
    tls_cert: str | None = None
    tls_key: str | None = None
    insecure_plaintext: bool = False
    trusted_proxies: Sequence[str] = ()
    public_names: Sequence[str] = ()

    def check(self) -> None:
        """Refuse settings that would show tokens to others.

        Raises
        ------
        GatewayError
            G023: plaintext on a network, half a certificate or an unusable one, a proxy without an address, or an
            invalid name.
        """
        for name in self.public_names:
            if not _is_public_name(name):
                raise GatewayError(
                    "G023", f"--public-name is a name such as dpsql.example.org, or NAME:PORT; got {show(name)}."
                )
        for proxy in self.trusted_proxies:
            if not is_address(proxy):
                raise GatewayError("G023", "a trusted proxy is named by its address, such as 10.0.0.7.")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise GatewayError("G023", "TLS needs a certificate and its key. Give --tls-cert and --tls-key.")
        if self.tls_cert is None and not self.insecure_plaintext and not is_local(self.host):
            raise GatewayError(
                "G023",
                "without TLS others on the network read tokens and results. Give --tls-cert and --tls-key, or listen "
                "on 127.0.0.1; behind a proxy that speaks TLS, --insecure-plaintext.",
            )
        if self.tls_cert is not None:
            self._check_certificate(self.tls_cert)

    def _check_certificate(self, certificate: str) -> None:
        try:  # an empty password prevents a prompt
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, self.tls_key, password=b"")
        except ssl.SSLError:
            raise GatewayError(
                "G023",
                f"{certificate} and {self.tls_key} are no certificate and its key. Give both in PEM, the key without "
                "a password.",
            ) from None
        except OSError as error:
            raise GatewayError(
                "G023", f"the certificate or its key cannot be read: {error.strerror}. Check --tls-cert and --tls-key."
            ) from None

    def check_free(self) -> None:
        """Refuse an address on which this process cannot listen.

        Raises
        ------
        GatewayError
            G043.
        """
        try:
            addresses = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, kind, protocol, _, address in addresses[:1]:
                with socket.socket(family, kind, protocol) as attempt:
                    attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    attempt.bind(address)
        except (OSError, OverflowError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "it is none"
            raise GatewayError(
                "G043", f"{show(self.host)}, port {self.port}, cannot be listened on: {reason}."
            ) from None

    @property
    def url(self) -> str:
        """URL for clients."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls_cert is None else 'https'}://{host}:{self.port}"


@dataclass(frozen=True)
class FrontSettings:
    """Start settings of a front, as JSON.

    Attributes
    ----------
    broker, boxes : str
        Sockets.
    where : Listening
    agent_epsilon : str or None
        Models' epsilon limit per token.
    serial : bool
        See `dpsql.gateway.door.Door`.
    flight_port : int or None
        Port of Flight SQL; None for no port, 0 for a free port.
    locked : bool
        Whether the operating system locks the process.
    owner : bool
        Whether this front has only the pages of owners and auditors.
    """

    broker: str
    boxes: str
    where: Listening
    agent_epsilon: str | None = None
    serial: bool = False
    flight_port: int | None = None
    locked: bool = True
    owner: bool = False

    def to_json(self) -> str:
        """Return the settings as one argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, argument: str) -> FrontSettings:
        """Return the settings in an argument."""
        fields = json.loads(argument)
        return cls(**{**fields, "where": Listening(**fields["where"])})


def is_address(host: str) -> bool:
    """Return whether a host is an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_local(host: str) -> bool:
    """Return whether a host is only this machine."""
    return ipaddress.ip_address(host).is_loopback if is_address(host) else host == "localhost"


class Front(uvicorn.Server):
    """A server of one application, with the rules of this module.

    Parameters
    ----------
    app : ASGI application
    where : Listening
    listens : callable, optional
        Receives the final address once the server accepts requests.
    addresses : Addresses, optional
    """

    def __init__(
        self,
        app: ASGIApp,
        where: Listening,
        listens: Callable[[Listening], None] | None = None,
        addresses: Addresses | None = None,
    ) -> None:
        where.check()
        self._where, self._listens = where, listens
        config = uvicorn.Config(
            Guarded(app, addresses or Addresses(where.trusted_proxies), own=where.public_names),
            host=where.host,
            port=where.port,
            http=CarefulProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=10,
            ssl_certfile=where.tls_cert,
            ssl_keyfile=where.tls_key,
        )
        config.load()
        if config.ssl is not None:
            config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and report the address."""
        await super().startup(sockets)
        if self.started and self._listens is not None:
            port = self.servers[0].sockets[0].getsockname()[1]
            self._listens(replace(self._where, port=port))
