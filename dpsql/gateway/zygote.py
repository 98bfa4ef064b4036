"""Fork boxes from a process that has loaded all that they need, and reads no user text.

``python -m dpsql.gateway.zygote --socket PATH`` listens on a Unix socket; each connection gets its own box. Every box
inherits one empty, open DuckDB in memory: to open one costs more than all other work of a box. The zygote has no other
thread, and checks this before the first fork: so a child has one thread, and its state is whole.

Root becomes nobody before the first box. The zygote ends every box, by its own clock: when the front closes the box's
channel, when the box has lived too long, and when the zygote ends. So no box depends on a clock or alarm of its own.
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
# Longest life of a box in seconds.
LIFE = 3600.0
_CLOSED = select.POLLHUP | getattr(select, "POLLRDHUP", 0)


def serve(path: Path, *, locked: bool = True, most: int = 16, life: float = LIFE) -> None:
    """Fork a box for each connection to a socket, until the process ends.

    Parameters
    ----------
    path : Path
        New socket; its folder must be private to the user.
    locked : bool
        Whether the operating system locks boxes.
    most : int
        Most boxes at once; further connections wait.
    life : float
        Longest life of a box in seconds, including waits for private calls.
    """
    if locked and not sandbox.available().is_complete:
        raise SystemExit("this system has no Landlock or no seccomp: use --without-os-sandbox, or another system")
    signal.signal(signal.SIGTERM, _end)
    os.environ.clear()  # a hijacked box finds nothing in it
    connection, owner, parent = ready(), os.getuid(), os.getppid()
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        before, beside = os.umask(0o177), path.with_name(f"{path.name}.new")
        beside.unlink(missing_ok=True)
        listener.bind(str(beside))
        os.umask(before)
        listener.listen(128)
        beside.rename(path)  # this path accepts connections
        try:
            sandbox.become_nobody()
            sandbox.end_with_parent(signal.SIGTERM, parent)  # a change of user clears this
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
    """Living boxes with their channels; this process sees when the front closes a channel.

    Parameters
    ----------
    life : float
        Longest life of a box in seconds.
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
        """The box count."""
        return len(self._boxes)

    def add(self, process: int, channel: socket.socket) -> None:
        """Watch a new box."""
        self._boxes[process] = channel, time.monotonic() + self._life

    def next_channel(self, listener: socket.socket | None) -> socket.socket | None:
        """Wait for an event; end boxes with expired time or closed channel, and return a new connection."""
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
        """Drop a box that has ended, and close its channel, which tells the front."""
        if os.waitpid(process, how)[0]:
            self._boxes.pop(process)[0].close()


def ready() -> duckdb.DuckDBPyConnection:
    """Return the boxes' empty database; check that this process has one thread.

    Raises
    ------
    SandboxError
        Another thread exists.
    """
    duckdb.close()  # DuckDB 1.5 opens a database with a thread on import
    connection = boxed.connect()
    boxed.warm(connection)
    sandbox.check_alone()
    gc.freeze()  # garbage collection in a box writes to no shared page
    return connection


def is_own(channel: socket.socket, owner: int) -> bool:
    """Return whether a process of a user, or of root, is at the other end."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    credentials = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(credentials)[1] in (0, owner)


def _become_box(channel: socket.socket, connection: duckdb.DuckDBPyConnection, parent: int, *, locked: bool) -> None:
    code = 1
    with contextlib.suppress(BaseException):  # print nothing of an untrusted statement
        boxed.run(channel, connection, parent, locked=locked)
        code = 0
    os._exit(code)


def _end(*_: object) -> None:
    sys.exit(0)


def main(words: Sequence[str] | None = None) -> None:
    """Serve by the command line."""
    parser = argparse.ArgumentParser(prog="dpsql.gateway.zygote")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--without-os-sandbox", action="store_true")
    parser.add_argument("--life", type=float, default=LIFE)
    options = parser.parse_args(words)
    serve(options.socket, locked=not options.without_os_sandbox, life=options.life)


if __name__ == "__main__":
    main()
