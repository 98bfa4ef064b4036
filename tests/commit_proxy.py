"""A proxy before a PostgreSQL server that loses the connection at a chosen COMMIT."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.proxy import Link, Proxy

_WAIT = 30.0


class CommitLink(Link):
    """One connection through the proxy.

    Attributes
    ----------
    committed : Event
        Set once the server has answered COMMIT.
    silent : bool
        Whether the client hears nothing of the server: neither its answers nor that the server has hung up.
    """

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        super().__init__(client, server)
        self.committed = threading.Event()
        self.silent = False


Action = Callable[[CommitLink, bytes], None]


def before(link: CommitLink, _: bytes) -> None:
    """Lose both ends before the server learns of the COMMIT."""
    link.hang_up()


def after(link: CommitLink, commit: bytes) -> None:
    """Let the server commit, and lose its answer."""
    link.silent = True
    link.server.sendall(commit)
    assert link.committed.wait(_WAIT)
    link.hang_up()


def late(link: CommitLink, commit: bytes) -> None:
    """Lose the client, and deliver the COMMIT half a second later."""
    link.silent = True
    link.hang_up(link.client)
    threading.Event().wait(0.5)
    after(link, commit)


class CommitProxy(Proxy):
    """A TCP port that leads to a server's Unix socket."""

    def __init__(self, upstream: Path) -> None:
        self._upstream = upstream
        self._action: Action | None = None
        super().__init__(self._reach)

    def url_of(self, url: str) -> str:
        """Return the URL of a server's schema, led through the proxy."""
        return f"postgresql://dpsql@127.0.0.1:{self.port}/postgres?options={url.partition('&options=')[2]}"

    def at_commit(self, action: Action) -> None:
        """Do this at the next COMMIT of any connection, once."""
        self._action = action

    def _reach(self) -> socket.socket:
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(str(self._upstream / ".s.PGSQL.5432"))
        except OSError:
            server.close()
            raise
        return server

    def _link(self, client: socket.socket, server: socket.socket) -> CommitLink:
        return CommitLink(client, server)

    def _to_server(self, link: Any) -> None:
        with contextlib.suppress(OSError):
            while data := link.client.recv(1 << 16):
                if b"COMMIT\0" in data and self._action is not None:
                    action, self._action = self._action, None
                    action(link, data)
                    return
                link.server.sendall(data)
        link.hang_up()

    def _to_client(self, link: Any) -> None:
        with contextlib.suppress(OSError):
            while data := link.server.recv(1 << 16):
                if link.silent:
                    if b"COMMIT\0" in data:
                        link.committed.set()
                else:
                    link.client.sendall(data)
        link.hang_up(*([link.server] if link.silent else []))
