"""The process that boxes are forked from: it has loaded all that they need, and reads nobody's text.

``python -m dpsql.gateway.zygote --socket PATH`` listens on a Unix socket; each connection gets a box of its own. Every
box inherits one empty DuckDB in memory, as it was opened: to open one costs more than all else that a box does. It has
no thread of its own, which is checked before the first fork: a child has one thread, and all that it holds is whole.

Root becomes nobody before the first box. This process ends every box, by its own clock: when the front closes the box's
channel, when the box has lived too long, and when this process ends. So no box depends on a clock or alarm of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb

from dpsql.gateway import boxed, sandbox

_CREDENTIALS = struct.Struct("3i")
# Seconds that a box lives at most.
LIFE = 3600.0
_CLOSED = select.POLLHUP | getattr(select, "POLLRDHUP", 0)


def serve(path: Path, *, locked: bool = True, most: int = 16, life: float = LIFE) -> None:
    """Fork a box for each connection to a socket, until the process is ended.

    Parameters
    ----------
    path : Path
        Where the socket is made; its folder is to be the user's alone.
    locked : bool
        Whether boxes are locked by the operating system.
    most : int
        How many boxes there are at once; further connections wait.
    life : float
        How many seconds a box lives at most; while private calls run it waits.
    """
    if locked and not sandbox.available().is_complete:
        raise SystemExit("this system has no Landlock or no seccomp: use --without-os-sandbox, or another system")
    signal.signal(signal.SIGTERM, _end)
    os.environ.clear()  # a box that was taken over finds nothing in it
    connection, owner, parent = ready(), os.getuid(), os.getppid()
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        before, beside = os.umask(0o177), path.with_name(f"{path.name}.new")
        beside.unlink(missing_ok=True)
        listener.bind(str(beside))
        os.umask(before)
        listener.listen(128)
        beside.rename(path)  # what is there can be connected to
        try:
            sandbox.become_nobody()
            sandbox.end_with_parent(signal.SIGTERM, parent)  # a process that changes its user forgets it
        except sandbox.SandboxError as error:
            raise SystemExit(f"boxes cannot run: {error}. Use --front-user with a user who owns nothing") from None
        boxes = _Living(life)
        try:
            while True:
                channel = boxes.next_channel(listener if boxes.count < most else None)
                if channel is None:
                    continue
                if not is_own(channel, owner):
                    channel.close()
                    continue
                own, process = os.getpid(), os.fork()
                if process == 0:
                    _become_box(channel, connection, own, locked=locked)
                boxes.add(process, channel)
        finally:
            boxes.end()


class _Living:
    """The boxes that live, with their channels: this process sees when the front closes a channel.

    Parameters
    ----------
    life : float
        How many seconds a box lives at most.
    """

    def __init__(self, life: float) -> None:
        self._life = life
        self._boxes: dict[int, tuple[socket.socket, float]] = {}
        self._woken, waking = socket.socketpair()
        for end in (self._woken, waking):
            end.setblocking(False)
        self._waking = waking
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)

    @property
    def count(self) -> int:
        """How many live."""
        return len(self._boxes)

    def add(self, process: int, channel: socket.socket) -> None:
        """Watch a box from its beginning on."""
        self._boxes[process] = channel, time.monotonic() + self._life

    def next_channel(self, listener: socket.socket | None) -> socket.socket | None:
        """Wait until something happens; end the boxes whose time or channel is up, and return a new connection."""
        poll, of_file = select.poll(), {}
        poll.register(self._woken, select.POLLIN)
        if listener is not None:
            poll.register(listener, select.POLLIN)
        for process, (channel, _) in self._boxes.items():
            poll.register(channel, _CLOSED)
            of_file[channel.fileno()] = process
        ends = min((end for _, end in self._boxes.values()), default=None)
        happened = poll.poll(None if ends is None else max(0.0, ends - time.monotonic()) * 1000 + 1)
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)
        closed = {of_file[number] for number, _ in happened if number in of_file}
        for process, (_, end) in list(self._boxes.items()):
            if process in closed or time.monotonic() >= end:
                os.kill(process, signal.SIGKILL)
                self._forget(process, 0)
            else:
                self._forget(process, os.WNOHANG)
        if listener is None or all(number != listener.fileno() for number, _ in happened):
            return None
        return listener.accept()[0]

    def end(self) -> None:
        """End all boxes."""
        for process in list(self._boxes):
            os.kill(process, signal.SIGKILL)
            self._forget(process, 0)

    def _forget(self, process: int, how: int) -> None:
        """Let go of a box that has ended; its channel is closed then, which tells the front."""
        if os.waitpid(process, how)[0]:
            self._boxes.pop(process)[0].close()


def ready() -> duckdb.DuckDBPyConnection:
    """Return the empty database that boxes inherit; this process has one thread then.

    Raises
    ------
    SandboxError
        Something has started another thread.
    """
    duckdb.close()  # version 1.5 opens a database when it is imported, with a thread
    connection = boxed.connect()
    boxed.warm(connection)
    sandbox.check_alone()
    gc.freeze()  # a box that collects writes to no page that it shares with the others
    return connection


def is_own(channel: socket.socket, owner: int) -> bool:
    """Whether a process of a user, or of the system's, is at the other end."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    credentials = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(credentials)[1] in (0, owner)


def _become_box(channel: socket.socket, connection: duckdb.DuckDBPyConnection, parent: int, *, locked: bool) -> None:
    code = 1
    with contextlib.suppress(BaseException):  # nothing of a stranger's statement is printed
        boxed.run(channel, connection, parent, locked=locked)
        code = 0
    os._exit(code)


def _end(*_: object) -> None:
    sys.exit(0)


def main(words: Sequence[str] | None = None) -> None:
    """Serve as the command line says."""
    parser = argparse.ArgumentParser(prog="dpsql.gateway.zygote")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--without-os-sandbox", action="store_true")
    parser.add_argument("--life", type=float, default=LIFE)
    options = parser.parse_args(words)
    serve(options.socket, locked=not options.without_os_sandbox, life=options.life)


if __name__ == "__main__":
    main()
