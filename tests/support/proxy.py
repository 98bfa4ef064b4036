"""A TCP proxy before a server, which loses connections when a test says so."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable


class Link:
    """One connection through the proxy."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server

    def hang_up(self, *sides: socket.socket) -> None:
        """Close the connection to the client, to the server, or both."""
        for side in sides or (self.client, self.server):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()


class Proxy:
    """A TCP port that leads to a server.

    Parameters
    ----------
    connect : callable
        Return a new socket that is connected to the server.

    Attributes
    ----------
    port : int
    away : bool
        Whether new connections are dropped.
    answered : int
        Bytes that clients got.
    cuts : int
        How often connections were cut.
    """

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._connect = connect
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.away = False
        self.answered = self.cuts = 0
        self._left: float = float("inf")
        self._stays_away = False
        self._links: list[Link] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, *, away: bool = False) -> None:
        """Hang up every connection, and let no other come if the server is to stay away."""
        with self._lock:
            self.away = self.away or away
            self.cuts += 1
            links, self._links = self._links, []
        for link in links:
            link.hang_up()

    def cut_after(self, size: float, *, away: bool = False) -> None:
        """Cut as `cut` does, once clients got so many more bytes, in the middle of an answer; infinity takes it back."""
        with self._lock:
            self._left, self._stays_away = size, away

    def close(self) -> None:
        self._listener.close()
        self.cut(away=True)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self.away:
                    raise ConnectionRefusedError
                link = self._link(client, self._connect())
            except OSError:
                client.close()
                continue
            with self._lock:
                self._links.append(link)
            for pump in (self._to_server, self._to_client):
                threading.Thread(target=pump, args=(link,), daemon=True).start()

    def _link(self, client: socket.socket, server: socket.socket) -> Link:
        return Link(client, server)

    def _to_server(self, link: Link) -> None:
        with contextlib.suppress(OSError):
            while data := link.client.recv(1 << 16):
                link.server.sendall(data)
        link.hang_up()

    def _to_client(self, link: Link) -> None:
        with contextlib.suppress(OSError):
            while data := link.server.recv(1 << 16):
                with self._lock:
                    ends = len(data) >= self._left
                    if ends:
                        data = data[: int(self._left)]
                    self._left = float("inf") if ends else self._left - len(data)
                    self.answered += len(data)
                link.client.sendall(data)
                if ends:
                    self.cut(away=self._stays_away)
        link.hang_up()
