"""Read the caller of a Flight SQL verb, and the call's settings, from the call's metadata.

A session is a cookie of the client. A client without cookies has no session, and SET returns an error; the client may
send settings as metadata of each call, which a JDBC driver makes from its URL.

The Flight SQL front stores answers, prepared statements and sessions for its clients between two calls.
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
from dataclasses import field
from typing import Generic, TypeVar
from urllib.parse import unquote

from dpsql.dataclass import dataclass
from dpsql.errors import GatewayError
from dpsql.gateway.asked import SETTINGS, read_token, setting_text

_Kept = TypeVar("_Kept")
_BITS = 128


def owner_of(token: str) -> str:
    """Return the owner ID of a token, which reveals nothing about the token."""
    return hashlib.sha256(token.encode()).hexdigest()


@dataclass
class _Entry(Generic[_Kept]):
    owner: str
    thing: _Kept
    size: int
    until: float


class Shelf(Generic[_Kept]):
    """Stores things for some time; 128 random bits and the owner find each.

    Missing, expired, fetched and foreign things give the same error.

    Parameters
    ----------
    what : str
        Their name in messages.
    seconds : float
        Storage time since the last use.
    most : int
        Maximum number per owner; a new thing replaces the oldest.
    most_bytes : int
        Maximum bytes per owner; likewise.
    most_bytes_of_all : int
        Maximum bytes of all owners.
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
        self._things: OrderedDict[bytes, _Entry[_Kept]] = OrderedDict()  # least recently used first
        self._bytes = 0
        self._lock = threading.Lock()

    def put(self, owner: str, thing: _Kept, size: int = 0) -> bytes:
        """Store a thing of `size` bytes, and return its handle.

        Raises
        ------
        GatewayError
            G032: all owners together store too much.
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
        """Return a thing, and keep storing it.

        Raises
        ------
        GatewayError
            G024: the owner has no such thing.
        """
        with self._lock:
            entry = self._entry(owner, handle)
            entry.until = self._clock() + self._seconds
            self._things.move_to_end(handle)
            return entry.thing

    def take(self, owner: str, handle: bytes) -> _Kept:
        """Return and remove a thing; raise as `get` does."""
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
# Prefixes of session identifiers without and with settings.
_NEW, _SET = "new-", "set-"
_LONGEST = 1000
Settings = Mapping[str, str]


@dataclass(frozen=True)
class Caller:
    """The caller of a verb.

    Attributes
    ----------
    token : str
    session : str or None
        The identifier in the cookie; None for a client without cookies.
    settings : mapping
        Settings in the call's metadata.
    is_java : bool
        Whether the caller is a Java driver, which treats a statement without known columns as an update.
    """

    token: str
    session: str | None = None
    settings: Settings = field(default_factory=dict)
    is_java: bool = False

    @property
    def owner(self) -> str:
        """Owner ID of its things."""
        return owner_of(self.token)


def read_caller(metadata: Sequence[tuple[str, str | bytes]]) -> Caller:
    """Return the caller.

    Raises
    ------
    GatewayError
        G020: there is no token, or more than one. G021: a setting is given twice, or has another type.
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
    """Return a setting in the broker's form; raise G021 for another type."""
    truths: Mapping[str, object] = {"true": True, "false": False} if SETTINGS[name] is bool else {}
    return setting_text(name, truths.get(value.lower(), value))


def is_setting(name: str, value: str) -> bool:
    """Return whether a value is valid for a setting."""
    if not 0 < len(value) <= _LONGEST:
        return False
    try:
        return bool(_setting(name, value))
    except GatewayError:
        return False


def read_headers(metadata: Sequence[tuple[str, str | bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the token and the address from a call's metadata, as HTTP headers."""
    headers = []
    for name, value in metadata:
        if isinstance(value, str) and name.lower() in ("authorization", "x-forwarded-for"):
            text = _as_bearer(value) if name.lower() == "authorization" else value
            headers.append((name.lower().encode(), text.encode()))
    return headers


def address_of(peer: str) -> str:
    """Return the address in gRPC's name of a peer, such as ``ipv4:127.0.0.1:4711``."""
    kind, _, address = unquote(peer).partition(":")
    return address.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else ""


def _as_bearer(credentials: str) -> str:
    """Return credentials as a bearer token, if the token is a user's password."""
    scheme, _, rest = credentials.partition(" ")
    if scheme.lower() != "basic":
        return credentials
    try:
        credentials = rest.strip().rstrip("=")  # some drivers drop the padding
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
    """Settings of sessions."""

    def __init__(self) -> None:
        self._shelf: Shelf[dict[str, str]] = Shelf(
            "session", seconds=8 * 3600, most=64, most_bytes=1 << 20, most_bytes_of_all=16 << 20
        )

    def settings(self, caller: Caller) -> dict[str, str]:
        """Return the settings of a call; session settings override metadata.

        Raises
        ------
        GatewayError
            G024: the session had settings and no longer exists.
        """
        return {**caller.settings, **self.session_settings(caller)}

    def session_settings(self, caller: Caller) -> dict[str, str]:
        """Return the settings of a call's session; raise as `settings` does."""
        if caller.session is None or not caller.session.startswith(_SET):
            return {}
        return self._shelf.get(caller.owner, _handle(caller.session))

    def change(self, caller: Caller, changes: Mapping[str, str | None]) -> str:
        """Change settings (None removes a setting), and return the session's new identifier.

        Raises
        ------
        GatewayError
            G021: the client takes no cookies, so the change would be lost.
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
    """Return the identifier of a session without settings."""
    return _NEW + secrets.token_hex(16)


def _handle(session: str) -> bytes:
    try:
        return bytes.fromhex(session.removeprefix(_SET))
    except ValueError:
        return b""
