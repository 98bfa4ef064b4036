"""Verify tokens of an identity provider (OpenID Connect, JWT), and fetch its public keys into a file.

The fetching process has the network, and neither data nor tokens. It fetches only from the address that the owner
named; no request triggers a fetch.

    python -m dpsql.gateway.keys https://login.example.org/keys /run/dpsql/keys

The broker verifies tokens with the provider's public keys. The front, which receives the tokens, is not trusted to name
their principals, and the broker has no network. So the keys are in a file: the owner's, or one that the fetching
process writes. The broker reads a changed file again. A token only names its signing key: the broker queries no address
in a token (``jku``, ``x5u``), and accepts no key in a token (``jwk``). An unknown key triggers no fetch.

A token holds if it has one signature by a key of the file for the token's algorithm, from `ALGORITHMS`; the issuer and
the audience that the owner named; a subject; an end in the future, and no beginning in the future. There is no secret
key, so none of these algorithms can be mistaken for an algorithm with a secret key (HS256).
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import build_opener

import jwt

from dpsql.dataclass import dataclass
from dpsql.errors import GatewayError
from dpsql.remote import NoRedirection

# Algorithm -> fields of its keys.
ALGORITHMS: Mapping[str, Mapping[str, str]] = {
    "RS256": {"kty": "RSA"},
    "ES256": {"kty": "EC", "crv": "P-256"},
    "EdDSA": {"kty": "OKP", "crv": "Ed25519"},
}
MOST_BYTES = 8192
MOST_KEYS_BYTES = 1 << 20
_LEEWAY = 30.0  # seconds of clock difference
_MOST_SUBJECT, _LEAST_RSA_BITS = 255, 2048
_is_compact = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+").fullmatch
# Headers that change how a token is read, or contain a key.
_REFUSED = ("jku", "jwk", "x5u", "crit", "b64", "enc", "zip")
_TYPES = (None, "JWT", "at+jwt", "application/at+jwt")


@dataclass(frozen=True)
class Provider:
    """An identity provider.

    Attributes
    ----------
    issuer, audience : str
        Exact values that tokens must have.
    keys : str
        A file: a JWK Set (RFC 7517).
    """

    issuer: str
    audience: str
    keys: str


@dataclass
class Login:
    """Returns the subject of a token; threads may share it.

    Attributes
    ----------
    provider : Provider
    """

    provider: Provider
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _read: tuple[int, ...] = ()
    _keys: Mapping[str, jwt.PyJWK] = field(default_factory=dict, repr=False)

    def subject(self, token: object) -> str | None:
        """Return the subject of a token; None for any invalid token."""
        if not isinstance(token, str) or len(token) > MOST_BYTES or not _is_compact(token):
            return None
        try:
            return self._subject(token)
        except (jwt.PyJWTError, ValueError, TypeError, LookupError, RecursionError):
            return None

    def _subject(self, token: str) -> str | None:
        header = jwt.get_unverified_header(token)
        key = self._of_file().get(header["kid"])
        if key is None or header["alg"] != key.algorithm_name or header.get("typ") not in _TYPES:
            return None
        if any(name in header for name in _REFUSED):
            return None
        claims: dict[str, Any] = jwt.decode(
            token,
            key.key,
            algorithms=[str(key.algorithm_name)],
            issuer=self.provider.issuer,
            audience=self.provider.audience,
            leeway=_LEEWAY,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
        subject = claims["sub"]
        return subject if isinstance(subject, str) and 0 < len(subject) <= _MOST_SUBJECT else None

    def _of_file(self) -> Mapping[str, jwt.PyJWK]:
        """Return the keys by name; the last valid keys, if the file is missing or has none."""
        with self._lock:
            try:
                stat = os.stat(self.provider.keys)
                read = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
                if read != self._read and stat.st_size <= MOST_KEYS_BYTES:
                    self._keys, self._read = keys_of(Path(self.provider.keys).read_bytes()), read
            except (OSError, ValueError):
                pass
            return self._keys


def keys_of(text: bytes) -> dict[str, jwt.PyJWK]:
    """Return a JWK Set's signature keys for our algorithms, by name.

    Raises
    ------
    ValueError
        The text is no JWK Set, or two keys have one name.
    """
    document = json.loads(text)
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError("no JWK Set")
    keys: dict[str, jwt.PyJWK] = {}
    for record in listed:
        key = _key(record) if isinstance(record, dict) else None
        if key is not None:
            if record["kid"] in keys:
                raise ValueError("two keys have one name")
            keys[record["kid"]] = key
    return keys


def _key(record: Mapping[str, Any]) -> jwt.PyJWK | None:
    """Return a key; None for a key that we cannot use."""
    fits = [name for name, of in ALGORITHMS.items() if all(record.get(part) == value for part, value in of.items())]
    if not fits or not isinstance(record.get("kid"), str) or record.get("use", "sig") != "sig":
        return None
    [algorithm] = fits
    if record.get("alg", algorithm) != algorithm or "d" in record:  # refuse a published private key
        return None
    try:
        key = jwt.PyJWK(dict(record), algorithm)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    return key if getattr(key.key, "key_size", _LEAST_RSA_BITS) >= _LEAST_RSA_BITS or algorithm == "ES256" else None


SCHEMES = ("https",)
_SECONDS, _AGAIN, _SOONER = 10.0, 600.0, 60.0


def fetch(url: str, path: Path) -> None:
    """Fetch keys into a file; follow no redirection.

    Raises
    ------
    GatewayError
        G025: the address has no https, cannot be reached, or gives no usable keys.
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
    """Fetch keys again and again; a failure leaves the stored keys."""
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
