"""The user of the processes without data: front, owners' front and boxes may have another one than the broker.

Then what a front that was taken over may open is judged by the system's users as well, beside its locks. Before a
gateway starts, a process of that user tries what it must not be able to do, and what it must:

    python -m dpsql.gateway.front_user '{"kept": ["hospital.duckdb"], "needed": ["cert.pem"]}'
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from glob import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from dpsql.errors import GatewayError

# Rights that change a user, a group, and end processes of another one, as bits of CapEff.
_RIGHTS = {"CAP_SETUID": 7, "CAP_SETGID": 6, "CAP_KILL": 5}
_SECONDS = 120.0
# What of the environment reaches a process without data: passwords of a ledger and the like do not.
_PASSED = frozenset(("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH"))
_PASSED_BEGIN = ("LC_", "PYTHON", "SSL_CERT_", "GRPC_", "ARROW_", "OPENBLAS_", "OMP_", "MALLOC_", "GLIBC_")


@dataclass(frozen=True)
class FrontUser:
    """A user of the system.

    Attributes
    ----------
    name : str
    uid, gid : int
        The user's number, and that of the group it has by itself.
    """

    name: str
    uid: int
    gid: int

    @classmethod
    def named(cls, name: str) -> FrontUser:
        """Return a user that this process may become.

        Raises
        ------
        GatewayError
            G044: there is no such user, it is root or this process's own, or this process may not become it.
        """
        if sys.platform != "linux":
            raise GatewayError("G044", "users of the front are told apart on Linux alone. Leave --front-user out.")
        try:
            found = import_module("pwd").getpwnam(name)
        except (KeyError, ValueError):
            raise GatewayError(
                "G044", f"there is no user {name!r}. Make one: useradd --system --shell /usr/sbin/nologin NAME."
            ) from None
        if found.pw_uid in (0, os.geteuid()):
            raise GatewayError("G044", f"{name!r} has the data. Name a user who owns nothing, made for this.")
        lacking = [right for right, bit in _RIGHTS.items() if not _rights() >> bit & 1]
        if lacking:
            raise GatewayError(
                "G044", f"this process may not become {name!r}. Start it as root, or with {', '.join(lacking)}."
            )
        return cls(name, found.pw_uid, found.pw_gid)

    def check(self, *, kept: Iterable[str], needed: Iterable[str]) -> None:
        """Let a process of the user try what it must be able to do and what it must not.

        Parameters
        ----------
        kept : iterable of str
            Files that it must neither read nor write nor replace, whether they are there or not, and so for what
            stands beside them under longer names.
        needed : iterable of str
            Files that it has to read.

        Raises
        ------
        GatewayError
            G044: it reaches what is to be kept from it, or not what it needs.
        """
        files = [Path(path).absolute() for path in kept]
        beside = [str(found) for path in files for found in path.parent.glob(f"{escape(path.name)}?*")]
        given = {"kept": [*map(str, files), *beside], "needed": [os.path.abspath(path) for path in needed]}
        try:
            done = subprocess.run(  # noqa: S603 - our own module
                [*python(), "-m", "dpsql.gateway.front_user", json.dumps(given)],
                **self.as_started(),
                env=environment(self),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=True,
            )
            found: Mapping[str, Sequence[str]] = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError):
            raise GatewayError(
                "G044",
                f"{self.name!r} cannot run {sys.executable} with dpsql. Install both where every user may read them, "
                "such as /opt.",
            ) from None
        if found["lacking"]:
            raise GatewayError("G044", f"{self.name!r} cannot read {', '.join(found['lacking'])}. Let its group read.")
        if found["reached"]:
            raise GatewayError(
                "G044",
                f"{self.name!r} could read or replace {', '.join(found['reached'])}. Put what a gateway keeps into a "
                "folder of its own user, with mode 0700.",
            )

    def as_started(self) -> dict[str, Any]:
        """Return what `subprocess` is told, to start a process of this user without other groups."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def python() -> list[str]:
    """Return the words that start this Python.

    It finds no module in the folder in which it is started, where data are and others may write; but in a checkout.
    """
    return [sys.executable, *([] if Path(__file__).parents[2] == Path.cwd() else ["-P"])]


def environment(user: FrontUser | None) -> dict[str, str]:
    """Return the environment of a process without data.

    Parameters
    ----------
    user : FrontUser or None
        Whose process it is; None for this process's own user.
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
    """Whether this process's user could read, write or replace a file."""
    folder, own = path.parent, os.getuid()
    if not os.access(folder, os.X_OK):
        return False
    try:
        if path.lstat().st_uid == own or os.access(path, os.R_OK) or os.access(path, os.W_OK):
            return True
        sticky = bool(folder.stat().st_mode & 0o1000)
    except FileNotFoundError:
        sticky = False  # whoever may write into the folder may put a file there
    return folder.stat().st_uid == own or (os.access(folder, os.W_OK) and not sticky)


def main() -> None:
    """Say as JSON which files this process's user reaches that are kept from it, and which it lacks."""
    given = json.loads(sys.argv[1])
    reached = [path for path in given["kept"] if _is_reached(Path(path))]
    lacking = [path for path in given["needed"] if not os.access(path, os.R_OK)]
    print(json.dumps({"reached": reached, "lacking": lacking}))


if __name__ == "__main__":
    main()
