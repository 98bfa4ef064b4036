"""What a locked process may still do: run in a process of its own, which says so as JSON.

``python -m tests.support.boxes_inside KIND``: *tried* tries to reach what a box must not, *front* what a front must not; *late* is locked while it has
another thread, *unchecked* as well, without the check that refuses this; *connected* has DuckDB's own threads.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb

from dpsql.gateway import boxed, locked_front, sandbox, system_calls

FOLDER = Path(os.environ.get("DPSQL_INSIDE", "."))
HOST, FRONT = socket.gethostname(), system_calls.FRONT[platform.machine()]


def outcome(work: Callable[[], object]) -> str:
    """Return the error of what is tried, or that it went well."""
    try:
        return f"done: {work()!r}"
    except BaseException as error:  # whatever it is, it is told
        return f"{type(error).__name__}: {str(error)[:120]}"


def _beginning(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(9)


def _rows(connection: duckdb.DuckDBPyConnection, text: str) -> object:
    return connection.execute(text).fetchall()


def _called(name: str, *arguments: object) -> int:
    """Call a function of the C library; its error is raised."""
    done = int(getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments))
    if done == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done


def _watch(folder: Path) -> int:
    """Ask to be told when something in a folder changes."""
    return _called("inotify_add_watch", _called("inotify_init"), os.fsencode(folder), 0xFFF)


def _queue_signal(process: int) -> int:
    """Send no signal to a process, by the call that carries a value."""
    return _called("sigqueue", process, 0, None)


def reaching() -> dict[str, Callable[[], object]]:
    """Return ways out of a locked process."""
    parent = os.getppid()
    return {
        "socket.AF_INET": lambda: socket.socket(),
        "socket.AF_UNIX": lambda: socket.socket(socket.AF_UNIX),
        "socketpair": lambda: socket.socketpair(),
        "fork": os.fork,
        "exec": lambda: os.execv("/bin/true", ["true"]),
        "posix_spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
        "subprocess": lambda: subprocess.run(["/bin/true"], check=True),
        "thread": lambda: threading.Thread(target=print).start(),
        "kill": lambda: os.kill(parent, 0),
        "memfd": lambda: os.memfd_create("x"),
        "unshare": lambda: ctypes.CDLL(None, use_errno=True).unshare(0x10000000) and os.strerror(ctypes.get_errno()),
        "write": lambda: (FOLDER / "written").write_text("x"),
        "mkdir": lambda: (FOLDER / "made").mkdir(),
        "unlink": lambda: (FOLDER / "decoy.csv").unlink(),
        "rename": lambda: (FOLDER / "decoy.csv").rename(FOLDER / "renamed"),
        "link": lambda: os.symlink("/etc/passwd", FOLDER / "linked"),
        "truncate": lambda: os.truncate(FOLDER / "decoy.csv", 0),
        "chmod": lambda: os.chmod(FOLDER / "decoy.csv", 0o777),
        "chown": lambda: os.chown(FOLDER / "decoy.csv", 0, 0),
        "utime": lambda: os.utime(FOLDER / "decoy.csv", (1, 1)),
        "setxattr": lambda: os.setxattr(FOLDER / "decoy.csv", "user.seen", b"1"),
        "removexattr": lambda: os.removexattr(FOLDER / "decoy.csv", "user.kept"),
        "inotify": lambda: _watch(FOLDER),
        "queued signal": lambda: _queue_signal(parent),
        "affinity of another": lambda: os.sched_setaffinity(parent, {0}),
        "priority of another": lambda: os.setpriority(os.PRIO_PROCESS, parent, 19),
        "limit of another": lambda: resource.prlimit(parent, resource.RLIMIT_NOFILE),
        "own limit": lambda: len(resource.getrlimit(resource.RLIMIT_NOFILE)),
        "shared memory": lambda: _called("shmat", 1 << 30, None, 0),
        "listdir /proc": lambda: os.listdir("/proc"),
        # Calls that reached the kernel, and with root's rights set the system's clock and name; here with values that
        # change nothing.
        "clock_settime": lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()),
        "settimeofday": lambda: _called("syscall", ctypes.c_long(FRONT["settimeofday"]), None, None),
        "adjtimex": lambda: _called("adjtimex", ctypes.create_string_buffer(512)),
        "clock_adjtime": lambda: _called("clock_adjtime", 0, ctypes.create_string_buffer(512)),
        "sethostname": lambda: socket.sethostname(HOST),
        "setdomainname": lambda: _called("setdomainname", b"(none)", 6),
        "acct": lambda: _called("acct", os.fsencode(FOLDER / "missing")),
        "swapoff": lambda: _called("swapoff", os.fsencode(FOLDER / "missing")),
        "syslog": lambda: _called("klogctl", 10, None, 0),
        **{
            f"open {path}": partial(_beginning, path)
            for path in (
                *("/etc/passwd", "/proc/self/mem", "/proc/self/environ", "/dev/urandom", "/proc/1/environ"),
                *(f"/proc/{parent}/{name}" for name in ("mem", "environ", "maps")),
                *(str(FOLDER / name) for name in ("decoy.csv", "decoy.duckdb")),
            )
        },
    }


def reaching_of_box() -> dict[str, Callable[[], object]]:
    """Return what a front may do, and a box may not."""
    decoy = os.fsencode(FOLDER / "decoy.csv")
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, mmap.PAGESIZE, flags=private)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return {
        "stat": lambda: os.stat(FOLDER / "decoy.csv").st_size,
        "lstat": lambda: os.lstat(FOLDER / "decoy.csv").st_mtime,
        "stat of a write-ahead log": lambda: os.stat(FOLDER / "decoy.duckdb.wal"),
        "statx": lambda: _called("statx", -100, decoy, 0, 0x7FF, ctypes.create_string_buffer(256)),
        "access": lambda: _called("access", decoy, 0),
        "readlink": lambda: os.readlink("/proc/self/exe"),
        "statvfs": lambda: os.statvfs(FOLDER),
        "chdir": lambda: os.chdir("/"),
        "getcwd": os.getcwd,
        "shared anonymous memory": lambda: mmap.mmap(-1, 1 << 20),
        "memory to run": lambda: mmap.mmap(-1, 1 << 20, flags=private, prot=7),
        "memory made to run": lambda: _called("mprotect", ctypes.c_void_p(address), mmap.PAGESIZE, 5),
        "memory locked": lambda: _called("mlockall", 3),
        "alarm": lambda: _called("alarm", 0),
        "timer": lambda: signal.setitimer(signal.ITIMER_REAL, 100),
        "handler": lambda: signal.signal(signal.SIGALRM, signal.SIG_IGN),
        "sleep": lambda: time.sleep(0.001),
        "signal of the parent's end": lambda: _called("prctl", 1, 0, 0, 0, 0),
        "dumpable": lambda: _called("prctl", 4, 1, 0, 0, 0),
        "setuid": lambda: os.setuid(0),
        "setgroups": lambda: os.setgroups([0]),
        "write to another file": lambda: os.write(2, b"x"),
        "pipe": os.pipe,
        "copy of a file": lambda: os.dup(2),
        "memory of the system": lambda: _called("sysinfo", ctypes.create_string_buffer(256)),
        "use of the processor": lambda: resource.getrusage(resource.RUSAGE_SELF),
        "name of the system": os.uname,
    }


def tried_by_front() -> dict[str, str]:
    """Lock this process as the front is, and try everything."""
    _loaded = threading.Thread, subprocess.run, socket.socket
    ways = reaching()
    sandbox.lock_front(locked_front.readable())
    found = {name: outcome(work) for name, work in ways.items()}
    return found | {"read Python": outcome(lambda: len(Path(os.__file__).read_bytes()) > 1000)}


def tried() -> dict[str, str]:
    """Lock this process as a box does, and try everything."""
    sql = {
        "read_text": "SELECT * FROM read_text('/etc/passwd')",
        "read_csv": f"SELECT * FROM read_csv('{FOLDER}/decoy.csv')",
        "glob": "SELECT * FROM glob('/etc/*')",
        "COPY": f"COPY (SELECT 1) TO '{FOLDER}/copied'",
        "ATTACH": f"ATTACH '{FOLDER}/decoy.duckdb' AS decoy",
        "LOAD": "LOAD httpfs",
        "INSTALL": "INSTALL httpfs",
    }
    _loaded = threading.Thread, subprocess.run, socket.socket
    connection = boxed.connect()
    connection.execute("SELECT 1").fetchall()
    ways = reaching() | reaching_of_box()
    sandbox.lock()
    found = {name: outcome(work) for name, work in ways.items()}
    found |= {name: outcome(partial(_rows, connection, text)) for name, text in sql.items()}
    return found


def late(*, checked: bool) -> dict[str, str]:
    """Lock this process while it has another thread, which reads a file afterwards."""
    locked, found = threading.Event(), {}

    def read() -> None:
        locked.wait(60)
        found["read"] = outcome(lambda: (FOLDER / "decoy.csv").read_text())

    other = threading.Thread(target=read)
    other.start()
    if not checked:
        sandbox.check_alone = lambda: None
    found["lock"] = outcome(sandbox.lock)
    found["own"] = outcome(lambda: (FOLDER / "decoy.csv").read_text())
    locked.set()
    other.join()
    return found


def connected() -> dict[str, str]:
    """Lock this process after DuckDB is connected as usual, with the threads that it starts."""
    with duckdb.connect(config={"threads": 4}) as connection:
        connection.execute("SELECT count(*) FROM range(1000000)").fetchall()
        end = time.monotonic() + 10
        while len(os.listdir("/proc/self/task")) < 2 and time.monotonic() < end:
            time.sleep(0.01)
        return {"lock": outcome(sandbox.lock)}


KINDS = {
    "tried": tried,
    "front": tried_by_front,
    "late": lambda: late(checked=True),
    "unchecked": lambda: late(checked=False),
    "connected": connected,
}

if __name__ == "__main__":
    ours, channel = socket.socketpair()
    child = os.fork()  # so that there is one thread, as in a box
    if child:
        channel.close()
        said = b""
        while piece := ours.recv(1 << 16):
            said += piece
        sys.stdout.write(said.decode())
        os.waitpid(child, 0)
    else:
        ours.close()
        channel.sendall(json.dumps(KINDS[sys.argv[1]]()).encode())  # a locked box writes to sockets alone
        os._exit(0)
