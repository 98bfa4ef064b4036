"""The process that boxes are forked from: it has loaded all that they need, and reads nobody's text.

``python -m dpsql.gateway.zygote --socket PATH`` listens on a Unix socket; each connection gets a box of its own. Every
box inherits one empty DuckDB in memory, as it was opened: to open one costs more than all else that a box does. It has
no thread of its own, which is checked before the first fork: a child has one thread, and all that it holds is whole.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb

from dpsql.gateway import boxed, sandbox

_CREDENTIALS = struct.Struct("3i")


def serve(path: Path, *, locked: bool = True, most: int = 16) -> None:
    """Fork a box for each connection to a socket, until the process is ended.

    Parameters
    ----------
    path : Path
        Where the socket is made; its folder is to be the user's alone.
    locked : bool
        Whether boxes are locked by the operating system.
    most : int
        How many boxes there are at once; further connections wait.
    """
    if locked and not sandbox.available().whole:
        raise SystemExit("this system has no Landlock or no seccomp: use --without-os-sandbox, or another system")
    signal.signal(signal.SIGTERM, _end)
    os.environ.clear()  # a box that was taken over finds nothing in it
    connection = ready()
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        before, beside = os.umask(0o177), path.with_name(f"{path.name}.new")
        beside.unlink(missing_ok=True)
        listener.bind(str(beside))
        os.umask(before)
        listener.listen(128)
        beside.rename(path)  # what is there can be connected to
        boxes: set[int] = set()
        while True:
            while len(boxes) >= most:
                boxes.discard(os.waitpid(-1, 0)[0])
            channel, _ = listener.accept()
            with channel:
                boxes -= _ended(boxes)
                if not is_own(channel):
                    continue
                process = os.fork()
                if process == 0:
                    _become_box(channel, connection, locked=locked)
                boxes.add(process)


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


def is_own(channel: socket.socket) -> bool:
    """Whether a process of the same user, or of the system's, is at the other end."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    given = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(given)[1] in (0, os.getuid())


def _become_box(channel: socket.socket, connection: duckdb.DuckDBPyConnection, *, locked: bool) -> None:
    code = 1
    with contextlib.suppress(BaseException):  # nothing of a stranger's statement is printed
        boxed.run(channel, connection, locked=locked)
        code = 0
    os._exit(code)


def _ended(boxes: set[int]) -> set[int]:
    found = set()
    for process in boxes:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(process, os.WNOHANG)[0]:
                found.add(process)
    return found


def _end(*_: object) -> None:
    sys.exit(0)


def main(words: Sequence[str] | None = None) -> None:
    """Serve as the command line says."""
    parser = argparse.ArgumentParser(prog="dpsql.gateway.zygote")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--without-os-sandbox", action="store_true")
    given = parser.parse_args(words)
    serve(given.socket, locked=not given.without_os_sandbox)


if __name__ == "__main__":
    main()
