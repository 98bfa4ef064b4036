"""A proxy before a PostgreSQL server that loses the connection at a chosen COMMIT."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path

_WAIT = 30.0


class Link:
    """One connection through the proxy.

    Attributes
    ----------
    committed : Event
        Set once the server has answered COMMIT.
    silent : bool
        Whether the server's answers are kept from the client.
    """

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.committed = threading.Event()
        self.silent = False

    def hang_up(self, *sides: socket.socket) -> None:
        """Close the connection to the client, to the server, or both."""
        for side in sides or (self.client, self.server):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()


Action = Callable[[Link, bytes], None]


def before(link: Link, _: bytes) -> None:
    """Lose both ends before the server learns of the COMMIT."""
    link.hang_up()


def after(link: Link, commit: bytes) -> None:
    """Let the server commit, and lose its answer."""
    link.silent = True
    link.server.sendall(commit)
    assert link.committed.wait(_WAIT)
    link.hang_up()


def late(link: Link, commit: bytes) -> None:
    """Lose the client, and deliver the COMMIT half a second later."""
    link.silent = True
    link.hang_up(link.client)
    threading.Event().wait(0.5)
    after(link, commit)


class CommitProxy:
    """A TCP port that leads to a server's Unix socket.

    Attributes
    ----------
    away : bool
        Whether new connections are dropped.
    """

    def __init__(self, upstream: Path) -> None:
        self._upstream = upstream
        self._action: Action | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.away = False
        threading.Thread(target=self._accept, daemon=True).start()

    def url_of(self, url: str) -> str:
        """Return the URL of a server's schema, led through the proxy."""
        return f"postgresql://dpsql@127.0.0.1:{self.port}/postgres?options={url.partition('&options=')[2]}"

    def at_commit(self, action: Action) -> None:
        """Do this at the next COMMIT of any connection, once."""
        self._action = action

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            link = Link(client, server)
            try:
                if self.away:
                    raise ConnectionRefusedError
                server.connect(str(self._upstream / ".s.PGSQL.5432"))
            except OSError:
                link.hang_up()
                continue
            for pump in (self._to_server, self._to_client):
                threading.Thread(target=pump, args=(link,), daemon=True).start()

    def _to_server(self, link: Link) -> None:
        with contextlib.suppress(OSError):
            while data := link.client.recv(1 << 16):
                if b"COMMIT\0" in data and self._action is not None:
                    action, self._action = self._action, None
                    action(link, data)
                    return
                link.server.sendall(data)
        link.hang_up()

    def _to_client(self, link: Link) -> None:
        with contextlib.suppress(OSError):
            while data := link.server.recv(1 << 16):
                if link.silent:
                    if b"COMMIT\0" in data:
                        link.committed.set()
                else:
                    link.client.sendall(data)
        link.hang_up()
