"""Another user of the system, for tests that run as root: made for a test, and taken away again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def missing() -> str | None:
    """Return what a test with another user lacks here; None where it can run."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "only root on Linux makes users"
    lacking = [name for name in ("useradd", "userdel", "unshare", "mount") if shutil.which(name) is None]
    if lacking:
        return f"no {', '.join(lacking)} here"
    done = subprocess.run([*entered(Path("/")), "true"], capture_output=True, check=False)
    return None if done.returncode == 0 else "this system lets nobody mount"


@contextmanager
def user(name: str) -> Iterator[str]:
    """Make a user who owns nothing, and take it away at the end."""
    subprocess.run(["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", name], check=True)
    try:
        yield name
    finally:
        subprocess.run(["userdel", name], check=True)


def entered(held: Path) -> list[str]:
    """Return the words before a command, so that every user may run this Python and read dpsql.

    Both may stand in root's home, which nobody else enters. In a mount namespace of the command's own, such a folder
    is an empty one that everybody enters, with what is needed of it inside; the system does not change.

    Parameters
    ----------
    held : Path
        A folder for the time in between.
    """
    steps = ["set -e"]
    for number, (closed, inside) in enumerate(sorted(_closed())):
        place = held / f"held-{number}"
        steps += [f"mkdir -p '{place}'", f"mount --bind '{inside}' '{place}'"]
        steps += [f"mount -t tmpfs -o mode=755 none '{closed}'", f"mkdir -p '{inside}'"]
        steps += [f"mount --bind '{place}' '{inside}'"]
    return ["unshare", "--mount", "--", "sh", "-c", "; ".join([*steps, 'exec "$@"']), "sh"]


def _closed() -> set[tuple[Path, Path]]:
    """Return folders that others do not enter, each with the one in it that is needed."""
    found = set()
    for needed in {Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), ROOT}:
        path = [*reversed(needed.parents), needed]
        for folder, below in pairwise(path):
            if not folder.stat().st_mode & 1:
                found.add((folder, below))
                break
    return found
