"""Start the processes of a gateway together, watch them, restart lost ones, and end them together.

The broker has the data and no network, the front has the network and no data, and boxes, which the zygote forks, have
one statement each. This process has none of these: it starts the others, and waits.

Front, owners' front and boxes, the processes without data, may have another user than the broker. Then the system's
users, in addition to the locks, limit the files that a captured front can open. Before a gateway starts, a process of
that user tests which files it must not and must be able to open:

    python -m dpsql.gateway.serving '{"kept": ["hospital.duckdb"], "needed": ["cert.pem"]}'
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from glob import escape
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from dpsql.dataclass import dataclass
from dpsql.errors import GatewayError
from dpsql.gateway.door import Door

# Rights to change user, change group, and end another user's processes, as bits of CapEff.
_RIGHTS = {"CAP_SETUID": 7, "CAP_SETGID": 6, "CAP_KILL": 5}
_SECONDS = 120.0
# Environment variables for processes without data: no passwords of a ledger and the like.
_PASSED = frozenset(("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH"))
_PASSED_BEGIN = ("LC_", "PYTHON", "SSL_CERT_", "GRPC_", "ARROW_", "OPENBLAS_", "OMP_", "MALLOC_", "GLIBC_")


@dataclass(frozen=True)
class FrontUser:
    """A user of the system.

    Attributes
    ----------
    name : str
    uid, gid : int
        The user's ID, and the ID of its primary group.
    """

    name: str
    uid: int
    gid: int

    @classmethod
    def from_name(cls, name: str) -> FrontUser:
        """Return a user that this process may become.

        Raises
        ------
        GatewayError
            G044: there is no such user, it is root or this process's own, or this process may not become it.
        """
        if sys.platform != "linux":
            raise GatewayError("G044", "users of the front are told apart on Linux alone. Leave --front-user out.")
        try:
            entry = import_module("pwd").getpwnam(name)
        except (KeyError, ValueError):
            raise GatewayError(
                "G044", f"there is no user {name!r}. Make one: useradd --system --shell /usr/sbin/nologin NAME."
            ) from None
        if entry.pw_uid in (0, os.geteuid()):
            raise GatewayError("G044", f"{name!r} has the data. Name a user who owns nothing, made for this.")
        lacking = [right for right, bit in _RIGHTS.items() if not _rights() >> bit & 1]
        if lacking:
            raise GatewayError(
                "G044", f"this process may not become {name!r}. Start it as root, or with {', '.join(lacking)}."
            )
        return cls(name, entry.pw_uid, entry.pw_gid)

    def check(self, *, stores: Iterable[str], needed: Iterable[str]) -> None:
        """Let a process of the user test its access to files.

        Parameters
        ----------
        stores : iterable of str
            Files, existing or not, that it must neither read, write nor replace; this includes files next to them with
            longer names.
        needed : iterable of str
            Files that it must read.

        Raises
        ------
        GatewayError
            G044: it reaches a protected file, or lacks a needed file.
        """
        files = [Path(path).absolute() for path in stores]
        beside = [str(neighbour) for path in files for neighbour in path.parent.glob(f"{escape(path.name)}?*")]
        request = {"kept": [*map(str, files), *beside], "needed": [os.path.abspath(path) for path in needed]}
        try:
            done = subprocess.run(  # noqa: S603 - our own module
                [*python(), "-m", "dpsql.gateway.serving", json.dumps(request)],
                **self.as_started(),
                env=environment(self),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=True,
            )
            report: Mapping[str, Sequence[str]] = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError):
            raise GatewayError(
                "G044",
                f"{self.name!r} cannot run {sys.executable} with dpsql. Install both where every user may read them, "
                "such as /opt.",
            ) from None
        if report["lacking"]:
            raise GatewayError("G044", f"{self.name!r} cannot read {', '.join(report['lacking'])}. Let its group read.")
        if report["reached"]:
            raise GatewayError(
                "G044",
                f"{self.name!r} could read or replace {', '.join(report['reached'])}. Put what a gateway keeps into a "
                "folder of its own user, with mode 0700.",
            )

    def as_started(self) -> dict[str, Any]:
        """Return `subprocess` options that start a process of this user without other groups."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def python() -> list[str]:
    """Return the command that starts this Python.

    Outside a checkout, it imports no module from the working folder, which has data and where others may write.
    """
    return [sys.executable, *([] if Path(__file__).parents[2] == Path.cwd() else ["-P"])]


def environment(user: FrontUser | None) -> dict[str, str]:
    """Return the environment of a process without data.

    Parameters
    ----------
    user : FrontUser or None
        User of the process; None for this process's own user.
    """
    passed = {name: value for name, value in os.environ.items() if name in _PASSED or name.startswith(_PASSED_BEGIN)}
    if user is not None:
        passed.pop("HOME", None)
        passed.pop("TMPDIR", None)
    return passed


def _rights() -> int:
    """Return the rights of this process, as the kernel's bits."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def _is_reached(path: Path) -> bool:
    """Return whether this process's user can read, write or replace a file."""
    folder, own = path.parent, os.getuid()
    if not os.access(folder, os.X_OK):
        return False
    try:
        if path.lstat().st_uid == own or os.access(path, os.R_OK) or os.access(path, os.W_OK):
            return True
        sticky = bool(folder.stat().st_mode & 0o1000)
    except FileNotFoundError:
        sticky = False  # anyone who can write to the folder can put a file there
    return folder.stat().st_uid == own or (os.access(folder, os.W_OK) and not sticky)


def main() -> None:
    """Print as JSON which protected files this process's user reaches, and which needed files it lacks."""
    request = json.loads(sys.argv[1])
    reach = [path for path in request["kept"] if _is_reached(Path(path))]
    lacking = [path for path in request["needed"] if not os.access(path, os.R_OK)]
    print(json.dumps({"reached": reach, "lacking": lacking}))


_PARENT_DEATH, _AMBIENT, _CLEAR_ALL = 1, 47, 4
_START_SECONDS, _END_SECONDS = 180.0, 15.0
_PAUSE = 0.1
# Libraries start no thread in the zygote.
ONE_THREAD = {
    **{"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"},
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
# A process restarts at once; after more ends within a minute, each wait doubles.
_MOST_ENDS, _FIRST_REST = 6, 0.1


@dataclass
class Process:
    """One process of a gateway.

    Attributes
    ----------
    name : str
    words : sequence of str
        The module, and its arguments.
    says : bool
        Whether it reports on standard output that it works.
    bare : bool
        Whether it has no data, and so no passwords in its environment.
    user : FrontUser or None
        Its user, if different.
    more : mapping
        Additional environment variables.
    process : Popen or None
    ends : deque of float
        Times of its recent ends.
    due : float or None
        Time of its restart; None while it runs.
    """

    name: str
    words: Sequence[str]
    says: bool = False
    bare: bool = False
    user: FrontUser | None = None
    more: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None
    ends: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST_ENDS))
    due: float | None = None

    def start(self) -> None:
        """Start it."""
        as_other: dict[str, Any] = {} if self.user is None else self.user.as_started()
        self.process = subprocess.Popen(  # noqa: S603 - our own modules
            [*python(), "-m", *self.words],
            **as_other,
            env={**(environment(self.user) if self.bare else os.environ), **self.more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if self.says else None,
            text=True,
            start_new_session=True,  # only the parent process handles Ctrl-C
            preexec_fn=_end_with_parent,
        )

    @property
    def runs(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.poll() is None

    def is_due(self, now: float) -> bool:
        """Return whether it has ended and must restart now."""
        if self.due is None:
            self.ends.append(now)
            often = sum(now - end < 60 for end in self.ends)
            self.due = now + (_FIRST_REST * 2**often if often > 1 else 0.0)
        return now >= self.due

    def end(self) -> None:
        """Let it finish its work, and end it."""
        if self.process is None:
            return
        if self.runs:
            self.process.terminate()
            try:
                self.process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def first_line(self, seconds: float) -> str:
        """Return its first output line; empty if it ends or takes too long."""
        if self.process is None or self.process.stdout is None:
            return ""
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        return self.process.stdout.readline().strip() if ready else ""


def _end_with_parent() -> None:
    """Make the kernel end this process with its parent, and pass on none of the parent's rights."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(_PARENT_DEATH, signal.SIGTERM, 0, 0, 0)
        libc.prctl(_AMBIENT, _CLEAR_ALL, 0, 0, 0)


@dataclass(frozen=True)
class ServeSettings:
    """Settings of a gateway.

    Attributes
    ----------
    database : str
    ledger : str or None
    log : str or None
        The audit log.
    seconds : float
        Time limit of one release.
    fixed_time : float or None
        Seconds after which every new answer leaves.
    least_epsilon : str or None
        Minimum epsilon of a new statement; by default `dpsql.gateway.desk.USUAL`.
    log_refused : bool
        Log refused statements with their text.
    oidc_issuer, oidc_audience, oidc_keys : str or None
        Identity provider (see `dpsql.gateway.keys`); its keys are in a file, or at an address.
    without_os_sandbox : bool
        The operating system does not lock boxes and front.
    rates : float
        Multiplies the limits of requests.
    front : callable
        Takes the sockets of broker and boxes, and returns the argument of `dpsql.gateway.front`.
    owner : callable, optional
        The same for a separate front with the owners' pages, on this machine.
    front_user : FrontUser or None
        User of the fronts and the boxes; by default the broker's user.
    """

    database: str
    front: Callable[[str, str], str]
    ledger: str | None = None
    log: str | None = None
    seconds: float = 120.0
    fixed_time: float | None = None
    least_epsilon: str | None = None
    log_refused: bool = False
    oidc_issuer: str | None = None
    oidc_audience: str | None = None
    oidc_keys: str | None = None
    without_os_sandbox: bool = False
    owner: Callable[[str, str], str] | None = None
    rates: float = 1.0
    front_user: FrontUser | None = None


class Serving:
    """A gateway that runs during a ``with`` block.

    Parameters
    ----------
    settings : ServeSettings

    Attributes
    ----------
    url, flight_url : str
        Addresses for HTTP and for Flight SQL; empty if there is none.
    owner_url : str
        Address of the owners' pages; empty if there is none.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self.url = self.flight_url = self.owner_url = ""

    def __enter__(self) -> Self:
        settings = self._settings
        self._folder = tempfile.TemporaryDirectory(prefix="dpsql-", ignore_cleanup_errors=True)  # mode 0700
        broker, boxes = self._socket_paths(Path(self._folder.name))
        keys = str(Path(self._folder.name, "keys"))
        more = [
            *(["--ledger", settings.ledger] if settings.ledger else []),
            *(["--log", settings.log] if settings.log else []),
        ]
        seconds = ["--seconds", str(settings.seconds), "--rates", str(settings.rates)]
        seconds += [] if settings.fixed_time is None else ["--fixed-time", str(settings.fixed_time)]
        seconds += [] if settings.least_epsilon is None else ["--least-epsilon", settings.least_epsilon]
        seconds += ["--log-refused"] if settings.log_refused else []
        of_file = keys if is_address(settings.oidc_keys or "") else settings.oidc_keys
        provider = {"issuer": settings.oidc_issuer, "audience": settings.oidc_audience, "keys": of_file}
        seconds += [word for name, value in provider.items() if value for word in (f"--oidc-{name}", value)]
        user = settings.front_user
        seconds += [] if user is None else ["--front-uid", str(user.uid)]
        self.broker = Process(
            "broker", ["dpsql.gateway.broker", settings.database, "--socket", broker, *more, *seconds]
        )
        self.boxes = boxes_at(boxes, locked=not settings.without_os_sandbox, user=user)
        front = ["dpsql.gateway.locked_front", settings.front(broker, boxes)]
        self.front = Process("front", front, says=True, bare=True, user=user)
        self._parts = [self.broker, self.boxes, self.front]
        self._sockets = {"broker": broker, "boxes": boxes}
        try:
            if is_address(settings.oidc_keys or ""):
                self._parts.insert(0, self._fetching(settings.oidc_keys or "", keys))
            for part in self._parts[:-1]:
                part.start()
            door = Door(broker)
            self._wait(self.broker, lambda: door.health() == {"broker": "ok"})
            door.close()
            self._wait(self.boxes, lambda: _listens(boxes))
            self._start_front()
            if settings.owner is not None:
                self._start_owner(settings.owner(broker, boxes))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _socket_paths(self, folder: Path) -> tuple[str, str]:
        """Return the socket paths of broker and boxes; only the front's user reaches both.

        That user's group may traverse the folder and gets new files in it: so the broker's socket has that group, and
        the broker needs no right for this. Boxes have a folder for their socket.
        """
        user = self._settings.front_user
        if user is None:
            return str(folder / "broker"), str(folder / "boxes")
        of_boxes = folder / "front"
        of_boxes.mkdir()
        for path, mode in ((folder, 0o2710), (of_boxes, 0o770)):
            try:
                os.chown(path, -1, user.gid)
            except PermissionError:
                raise GatewayError(
                    "G044", f"this process is not in the group of {user.name!r}. Start it as root, or in that group."
                ) from None
            path.chmod(mode)
        return str(folder / "broker"), str(of_boxes / "boxes")

    def watch(self) -> None:
        """Restart ended processes, and never return."""
        while True:
            time.sleep(_PAUSE)
            self.mend(time.monotonic())

    def mend(self, now: float) -> None:
        """Restart ended processes; until they work, the front reports this (503)."""
        for part in self._parts:
            if not part.runs and part.is_due(now):
                print(f"dpsql: the {part.name} ended, and begins again.", file=sys.stderr, flush=True)
                part.end()
                part.start()

    def _fetching(self, url: str, path: str) -> Process:
        """Fetch an identity provider's keys, and return the process that fetches them again and again."""
        fetch = import_module("dpsql.gateway.keys").fetch
        fetch(url, Path(path))
        return Process("keys", ["dpsql.gateway.keys", url, path])

    def _start_front(self) -> None:
        self.front.start()
        self.url, _, self.flight_url = self.front.first_line(_START_SECONDS).partition(" ")
        if not self.url:
            raise GatewayError("G043", "the front does not listen. Is the port free, and the one of Flight SQL?")
        module, settings = self.front.words[0], json.loads(self.front.words[1])
        settings["where"]["port"] = urlsplit(self.url).port  # a restart uses the same port
        if self.flight_url:
            settings["flight_port"] = urlsplit(self.flight_url).port
        self.front.words = [module, json.dumps(settings)]

    def _start_owner(self, argument: str) -> None:
        """Start the owners' front: a separate process, so that no owner's token passes through the other front."""
        words, user = ["dpsql.gateway.locked_front", argument], self._settings.front_user
        part = Process("owner's front", words, says=True, bare=True, user=user)
        self._parts.append(part)
        part.start()
        self.owner_url = part.first_line(_START_SECONDS).strip()
        if not self.owner_url:
            raise GatewayError("G043", "the front of owners does not listen. Is the port free?")
        settings = json.loads(argument)
        settings["where"]["port"] = urlsplit(self.owner_url).port
        part.words = [part.words[0], json.dumps(settings)]

    def _wait(self, part: Process, works: Callable[[], bool]) -> None:
        end = time.monotonic() + _START_SECONDS
        while not works():
            if not part.runs:
                raise GatewayError("G043", f"the {part.name} ended before it worked.")
            if time.monotonic() > end:
                raise GatewayError("G043", f"the {part.name} does not work after {_START_SECONDS:.0f} seconds.")
            time.sleep(_PAUSE)

    def _end(self) -> None:
        """End the front first, so that pending requests still get answers."""
        for part in reversed(self._parts):
            part.end()
        self._folder.cleanup()


def boxes_at(path: str, *, locked: bool = True, user: FrontUser | None = None) -> Process:
    """Return the process that forks boxes, for a socket."""
    words = ["dpsql.gateway.zygote", "--socket", path, *([] if locked else ["--without-os-sandbox"])]
    return Process("boxes", words, bare=True, user=user, more=ONE_THREAD)


def is_address(keys: str) -> bool:
    """Return whether a provider's keys are at an address, and not in a file."""
    return "://" in keys


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
        try:
            attempt.connect(path)
        except PermissionError:
            pass  # boxes of another user made the file
        except OSError:
            return False
    return os.path.exists(path)


if __name__ == "__main__":
    main()
