"""Web sessions and their answers, in this process alone: nothing remains when the process ends.

A cookie with 256 random bits identifies a session; the server stores only its digest. The session holds the token, and
every page asks the broker whether the token is valid, so a revoked token ends the session. Users can see and download
stored answers again; nothing stored is ever asked a second time.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import field
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, Any

from dpsql.dataclass import dataclass
from dpsql.errors import GatewayError

if TYPE_CHECKING:
    import pyarrow as pa

SECONDS = 8 * 3600.0
# Concurrent logins; answers per session, and bytes of all answers.
_MOST, _MOST_ANSWERS, _MOST_BYTES = 512, 20, 256 << 20
# Wrong tokens per address: burst, and per second.
_FAILURES, _FORGIVEN = 20.0, 20.0 / 60
_MOST_ADDRESSES = 10_000


@dataclass(frozen=True)
class KeptAnswer:
    """A stored answer.

    Attributes
    ----------
    sql : str
    settings : mapping of str to str
    table : pyarrow.Table
    receipts : list of dict
    """

    sql: str
    settings: Mapping[str, str]
    table: pa.Table
    receipts: list[dict[str, Any]]


@dataclass
class WebSession:
    """A login session.

    Attributes
    ----------
    token : str
    principal : str
    ends : float
        On the clock of its `Logins`.
    secret : str
        Value in each of its forms.
    answers : OrderedDict of str to KeptAnswer
        Oldest first.
    """

    token: str = field(repr=False)
    principal: str
    ends: float
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    answers: OrderedDict[str, KeptAnswer] = field(default_factory=OrderedDict, repr=False)

    def check(self, secret: str | None) -> None:
        """Refuse a form of another session.

        Raises
        ------
        GatewayError
            G022.
        """
        if not compare_digest((secret or "").encode(), self.secret.encode()):
            raise GatewayError(
                "G022", "the form is none of this session's. Open the page again, and send it from there."
            )


class Logins:
    """Login sessions; threads may share it.

    Parameters
    ----------
    clock : callable
        Returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._of: OrderedDict[bytes, WebSession] = OrderedDict()
        self._failures: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def begin(self, token: str, principal: str) -> str:
        """Begin a session, and return its cookie's text."""
        cookie = secrets.token_urlsafe(32)
        with self._lock:
            now = self._clock()
            for digest in [digest for digest, session in self._of.items() if session.ends <= now]:
                del self._of[digest]
            while len(self._of) >= _MOST:
                self._of.popitem(last=False)
            self._of[_digest(cookie)] = WebSession(token, principal, now + SECONDS)
        return cookie

    def find(self, cookie: str | None) -> WebSession | None:
        """Return a cookie's session; None if it is missing or ended."""
        with self._lock:
            session = self._of.get(_digest(cookie or ""))
            if session is None or session.ends <= self._clock():
                return None
            return session

    def end(self, cookie: str | None) -> None:
        """End the session of a cookie, if there is one."""
        with self._lock:
            self._of.pop(_digest(cookie or ""), None)

    def keep(self, session: WebSession, answer: KeptAnswer) -> str:
        """Store an answer and return its name; sessions drop their oldest answers for it."""
        name = secrets.token_urlsafe(9)
        with self._lock:
            session.answers[name] = answer
            while len(session.answers) > _MOST_ANSWERS:
                session.answers.popitem(last=False)
            size = sum(entry.table.nbytes for login in self._of.values() for entry in login.answers.values())
            for login in self._of.values():
                while size > _MOST_BYTES and login.answers and not (login is session and len(login.answers) == 1):
                    size -= login.answers.popitem(last=False)[1].table.nbytes
        return name

    def check_address(self, address: str) -> None:
        """Refuse an address that sent too many invalid tokens.

        Raises
        ------
        GatewayError
            G030.
        """
        with self._lock:
            if self._chances(address) < 1:
                raise GatewayError("G030", "too many tokens that do not hold came from here. Wait a minute.")

    def count_failure(self, address: str) -> None:
        """Count an invalid token."""
        with self._lock:
            self._failures[address] = (self._chances(address) - 1, self._clock())
            self._failures.move_to_end(address)
            while len(self._failures) > _MOST_ADDRESSES:
                self._failures.popitem(last=False)

    def _chances(self, address: str) -> float:
        chances, then = self._failures.get(address, (_FAILURES, self._clock()))
        return min(_FAILURES, chances + (self._clock() - then) * _FORGIVEN)


def _digest(cookie: str) -> bytes:
    return sha256(b"dpsql session " + cookie.encode("utf-8", "replace")).digest()
