"""What the Flight SQL front keeps for its clients between two calls: answers, prepared statements, and sessions."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from dpsql.errors import GatewayError

_Kept = TypeVar("_Kept")
_BITS = 128


def owner_of(token: str) -> str:
    """Return whose something is: one token's, of which nothing can be told from this."""
    return hashlib.sha256(token.encode()).hexdigest()


@dataclass
class _One(Generic[_Kept]):
    owner: str
    kept: _Kept
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
        self._kept: OrderedDict[bytes, _One[_Kept]] = OrderedDict()  # the one used longest ago is first
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
            own = [handle for handle, one in self._kept.items() if one.owner == owner]
            left = size + sum(self._kept[handle].size for handle in own)
            for place, handle in enumerate(own):
                if len(own) - place < self._most and left <= self._most_bytes:
                    break
                left -= self._drop(handle)
            if self._bytes + size > self._most_of_all:
                raise GatewayError(
                    "G032", "too much waits to be fetched. Ask again in a while; what was answered is free."
                )
            handle = secrets.token_bytes(_BITS // 8)
            self._kept[handle] = _One(owner, thing, size, self._clock() + self._seconds)
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
            one = self._found(owner, handle)
            one.until = self._clock() + self._seconds
            self._kept.move_to_end(handle)
            return one.kept

    def take(self, owner: str, handle: bytes) -> _Kept:
        """Return a thing, and keep it no more; raise as `get` does."""
        with self._lock:
            found = self._found(owner, handle).kept
            self._drop(handle)
            return found

    def _found(self, owner: str, handle: bytes) -> _One[_Kept]:
        self._drop_old()
        one = self._kept.get(handle)
        if one is None or one.owner != owner:
            raise GatewayError("G024", f"there is no such {self._what} of yours, or no more. Ask again: that is free.")
        return one

    def _drop_old(self) -> None:
        now = self._clock()
        for handle in [handle for handle, one in self._kept.items() if one.until < now]:
            self._drop(handle)

    def _drop(self, handle: bytes) -> int:
        size = self._kept.pop(handle).size
        self._bytes -= size
        return size
