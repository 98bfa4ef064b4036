"""Lock the front's process, then load the front: so each thread that a library starts is also locked.

``python -m dpsql.gateway.locked_front SETTINGS`` takes the argument of `dpsql.gateway.front`. The front keeps the
network and its open files, reads Python's files and the certificate, writes no file, and starts no program.
"""

from __future__ import annotations

import gc
import json
import sys
import sysconfig
from importlib import import_module
from pathlib import Path

from dpsql.gateway.sandbox import lock_front

# Libraries, time zones, certificates, name lookup, and randomness for gRPC.
_OF_SYSTEM = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo", "/etc/localtime"),
    *("/etc/ssl", "/etc/pki", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates"),
    *("/etc/hosts", "/etc/host.conf", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/gai.conf"),
    *("/dev/null", "/dev/urandom"),
)


def readable() -> list[str]:
    """Return the paths that a front may read: Python, its packages, and system files.

    The list omits the start folder, since a database may be there, and a checkout of dpsql except its package.
    """
    package = Path(__file__).parents[1]
    installed = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    left_out = {Path.cwd(), *([] if (package / "udfs").exists() else [package.parent])}
    searched = [path for path in sys.path if path and Path(path).resolve() not in left_out]
    return [*installed, *searched, str(package), *_OF_SYSTEM]


def main() -> None:
    """Lock, then serve by the JSON argument."""
    settings = json.loads(sys.argv[1])
    if settings["locked"]:
        certificate = (settings["where"][name] for name in ("tls_cert", "tls_key"))
        lock_front([*readable(), *(path for path in certificate if path is not None)])
    gc.disable()  # what is loaded is no garbage
    front = import_module("dpsql.gateway.front")
    gc.freeze()
    gc.enable()
    front.main()


if __name__ == "__main__":
    main()
