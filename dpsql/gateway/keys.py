"""The public keys of an identity provider, fetched from the one address that the owner named, into a file.

It is a process of its own: it has the network, and neither data nor tokens. Nothing that anybody sends makes it fetch.

    python -m dpsql.gateway.keys https://login.example.org/keys /run/dpsql/keys
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import build_opener

from dpsql.errors import GatewayError
from dpsql.gateway.login import MOST_KEYS_BYTES, keys_of
from dpsql.remote import NoRedirection

SCHEMES = ("https",)
_SECONDS, _AGAIN, _SOONER = 10.0, 600.0, 60.0


def fetch(url: str, path: Path) -> None:
    """Fetch keys, and put them into a file; no redirection is followed.

    Raises
    ------
    GatewayError
        G025: the address has no https, cannot be reached, or gives no keys that can be used.
    """
    if urlsplit(url).scheme not in SCHEMES:
        raise GatewayError("G025", "the keys of a provider come over https, or from a file. Give another --oidc-keys.")
    try:
        with build_opener(NoRedirection()).open(url, timeout=_SECONDS) as answer:
            text: bytes = answer.read(MOST_KEYS_BYTES + 1)
        usable = len(text) <= MOST_KEYS_BYTES and keys_of(text)
    except (OSError, ValueError):
        usable = False
    if not usable:
        raise GatewayError("G025", "the address of --oidc-keys cannot be reached, or gives no keys. Check it.")
    new = path.with_name(f"{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(text)
    new.replace(path)


def main() -> None:
    """Fetch keys again and again; those that are there stay where it fails."""
    url, path = sys.argv[1], Path(sys.argv[2])
    wait = _AGAIN
    while True:
        time.sleep(wait)
        try:
            fetch(url, path)
            wait = _AGAIN
        except GatewayError as error:
            print(f"dpsql: {error.message}", file=sys.stderr, flush=True)
            wait = _SOONER


if __name__ == "__main__":
    main()
