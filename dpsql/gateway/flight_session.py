"""Who calls a verb of Flight SQL, and with which settings: read from the metadata of the call.

A session is a cookie of the client. A client that takes no cookies has none, and is told so when it writes SET: it may
state settings as metadata of each call, which a JDBC driver makes of what stands in its address.

**Results that wait.** What the Flight SQL front keeps for its clients between two calls: answers, prepared statements,
and sessions.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from urllib.parse import unquote

from dpsql.errors import GatewayError
from dpsql.gateway.asked import SETTINGS, read_token, setting_text

_Kept = TypeVar("_Kept")
_BITS = 128


def owner_of(token: str) -> str:
    """Return whose something is: one token's, of which nothing can be told from this."""
    return hashlib.sha256(token.encode()).hexdigest()


@dataclass
class _Entry(Generic[_Kept]):
    owner: str
    thing: _Kept
    size: int
    until: float


class Shelf(Generic[_Kept]):
    """Things kept for some time, each found by 128 random bits and by its owner alone.

    What is not there, too old, taken already, or another's is told in the same words.

    Parameters
    ----------
    what : str
        What they are called in messages.
    seconds : float
        How long each is kept since it was last used.
    most : int
        How many one owner has; the oldest leaves for a new one.
    most_bytes : int
        How much one owner has; likewise.
    most_bytes_of_all : int
        How much all have together.
    clock : callable
        Returns seconds.
    """

    def __init__(
        self,
        what: str,
        *,
        seconds: float,
        most: int,
        most_bytes: int,
        most_bytes_of_all: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what, self._seconds, self._clock = what, seconds, clock
        self._most, self._most_bytes, self._most_of_all = most, most_bytes, most_bytes_of_all
        self._things: OrderedDict[bytes, _Entry[_Kept]] = OrderedDict()  # the one used longest ago is first
        self._bytes = 0
        self._lock = threading.Lock()

    def put(self, owner: str, thing: _Kept, size: int = 0) -> bytes:
        """Keep a thing of so many bytes, and return what finds it.

        Raises
        ------
        GatewayError
            G032: all together have too much.
        """
        with self._lock:
            self._drop_old()
            own = [handle for handle, entry in self._things.items() if entry.owner == owner]
            total = size + sum(self._things[handle].size for handle in own)
            for index, handle in enumerate(own):
                if len(own) - index < self._most and total <= self._most_bytes:
                    break
                total -= self._drop(handle)
            if self._bytes + size > self._most_of_all:
                raise GatewayError(
                    "G032", "too much waits to be fetched. Ask again in a while; what was answered is free."
                )
            handle = secrets.token_bytes(_BITS // 8)
            self._things[handle] = _Entry(owner, thing, size, self._clock() + self._seconds)
            self._bytes += size
            return handle

    def get(self, owner: str, handle: bytes) -> _Kept:
        """Return a thing, and keep it on.

        Raises
        ------
        GatewayError
            G024: the owner has none by this.
        """
        with self._lock:
            entry = self._entry(owner, handle)
            entry.until = self._clock() + self._seconds
            self._things.move_to_end(handle)
            return entry.thing

    def take(self, owner: str, handle: bytes) -> _Kept:
        """Return a thing, and keep it no more; raise as `get` does."""
        with self._lock:
            thing = self._entry(owner, handle).thing
            self._drop(handle)
            return thing

    def _entry(self, owner: str, handle: bytes) -> _Entry[_Kept]:
        self._drop_old()
        entry = self._things.get(handle)
        if entry is None or entry.owner != owner:
            raise GatewayError("G024", f"there is no such {self._what} of yours, or no more. Ask again: that is free.")
        return entry

    def _drop_old(self) -> None:
        now = self._clock()
        for handle in [handle for handle, entry in self._things.items() if entry.until < now]:
            self._drop(handle)

    def _drop(self, handle: bytes) -> int:
        size = self._things.pop(handle).size
        self._bytes -= size
        return size


COOKIE = "arrow_flight_session_id"
# How the identifier of a session begins in which nothing was set, and of one in which something was.
_NEW, _SET = "new-", "set-"
_LONGEST = 1000
Settings = Mapping[str, str]


@dataclass(frozen=True)
class Caller:
    """Who calls.

    Attributes
    ----------
    token : str
    session : str or None
        The identifier in the cookie; None for a client without cookies.
    settings : mapping
        What is stated in the metadata of the call.
    is_java : bool
        Whether it is a driver in Java: these take a statement without known columns for an update.
    """

    token: str
    session: str | None = None
    settings: Settings = field(default_factory=dict)
    is_java: bool = False

    @property
    def owner(self) -> str:
        """Whose things it may use."""
        return owner_of(self.token)


def read_caller(metadata: Sequence[tuple[str, str | bytes]]) -> Caller:
    """Return who calls.

    Raises
    ------
    GatewayError
        G020: there is no token, or more than one. G021: a setting is stated twice, or is of another kind.
    """
    headers: dict[str, list[str]] = {}
    for name, value in metadata:
        if isinstance(value, str):
            headers.setdefault(name.lower(), []).append(value)
    credentials = headers.get("authorization", [])
    if not credentials:
        raise GatewayError("G020", "no token was given. Give it as the password of any user, or as the bearer token.")
    token = read_token([(b"authorization", _as_bearer(credential).encode()) for credential in credentials])
    settings = {}
    for name in (*SETTINGS, "idempotency-key"):
        values = headers.get(name, [])
        if len(values) > 1 or any(len(value) > _LONGEST for value in values):
            raise GatewayError("G021", f"{name} stands more than once in the metadata, or is too long.")
        settings.update({name.replace("-", "_"): value for value in values if value})
        if name in settings and name in SETTINGS:
            settings[name] = _setting(name, settings[name])
    agent = " ".join(headers.get("user-agent", []))
    return Caller(token, _cookie(headers.get("cookie", [])), settings, "java" in agent.lower() or "JDBC" in agent)


def _setting(name: str, value: str) -> str:
    """Return a setting as the broker takes it; raise G021 for one of another kind."""
    truths: Mapping[str, object] = {"true": True, "false": False} if SETTINGS[name] is bool else {}
    return setting_text(name, truths.get(value.lower(), value))


def is_setting(name: str, value: str) -> bool:
    """Return whether a setting may have a value."""
    if not 0 < len(value) <= _LONGEST:
        return False
    try:
        return bool(_setting(name, value))
    except GatewayError:
        return False


def read_headers(metadata: Sequence[tuple[str, str | bytes]]) -> list[tuple[bytes, bytes]]:
    """Return what the metadata of a call say of its token and its address, as headers of HTTP have it."""
    headers = []
    for name, value in metadata:
        if isinstance(value, str) and name.lower() in ("authorization", "x-forwarded-for"):
            text = _as_bearer(value) if name.lower() == "authorization" else value
            headers.append((name.lower().encode(), text.encode()))
    return headers


def address_of(peer: str) -> str:
    """Return the address in what gRPC calls the other end of a connection, such as ``ipv4:127.0.0.1:4711``."""
    kind, _, address = unquote(peer).partition(":")
    return address.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else ""


def _as_bearer(credentials: str) -> str:
    """Return credentials with the token as bearer, where it is the password of a user."""
    scheme, _, rest = credentials.partition(" ")
    if scheme.lower() != "basic":
        return credentials
    try:
        credentials = rest.strip().rstrip("=")  # some drivers leave the end away
        pair = base64.b64decode(credentials + "=" * (-len(credentials) % 4), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
    return f"Bearer {pair.partition(':')[2]}"


def _cookie(headers: Sequence[str]) -> str | None:
    for header in headers:
        for part in header.split(";"):
            name, _, value = part.strip().partition("=")
            if name == COOKIE:
                return value.strip('"')
    return None


class Sessions:
    """The settings of sessions."""

    def __init__(self) -> None:
        self._shelf: Shelf[dict[str, str]] = Shelf(
            "session", seconds=8 * 3600, most=64, most_bytes=1 << 20, most_bytes_of_all=16 << 20
        )

    def settings(self, caller: Caller) -> dict[str, str]:
        """Return the settings of a call: those of its session, before those of its metadata.

        Raises
        ------
        GatewayError
            G024: something was set in a session that is not there any more.
        """
        return {**caller.settings, **self.session_settings(caller)}

    def session_settings(self, caller: Caller) -> dict[str, str]:
        """Return what was set in the session of a call; raise as `settings` does."""
        if caller.session is None or not caller.session.startswith(_SET):
            return {}
        return self._shelf.get(caller.owner, _handle(caller.session))

    def change(self, caller: Caller, changes: Mapping[str, str | None]) -> str:
        """Change settings, None of which is none, and return the identifier that the session has now.

        Raises
        ------
        GatewayError
            G021: the client takes no cookies, so that it would not be remembered.
        """
        if caller.session is None:
            raise GatewayError(
                "G021",
                "the client keeps no session to SET something in. Let it take cookies, or state epsilon as metadata.",
            )
        merged: dict[str, str | None] = {**self.session_settings(caller), **changes}
        settings = {name: value for name, value in merged.items() if value is not None}
        handle = self._shelf.put(caller.owner, settings, sum(len(value) + 100 for value in settings.values()))
        self.close(caller)
        return _SET + handle.hex()

    def close(self, caller: Caller) -> None:
        """Forget a session."""
        if caller.session is not None and caller.session.startswith(_SET):
            try:
                self._shelf.take(caller.owner, _handle(caller.session))
            except GatewayError:
                return


def new_session() -> str:
    """Return the identifier of a session in which nothing is set."""
    return _NEW + secrets.token_hex(16)


def _handle(session: str) -> bytes:
    try:
        return bytes.fromhex(session.removeprefix(_SET))
    except ValueError:
        return b""
