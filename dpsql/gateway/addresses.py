"""Identify the client of a request: its address, its failed tokens, and requests from other sites' pages.

An address may fail 20 times in a minute. Beyond that the front forwards only tokens that it has seen hold. So an
attacker who tries tokens costs the broker nothing, and clients that share the address, such as a dashboard behind the
same proxy, still get answers while the front knows their token.
"""

from __future__ import annotations

import hashlib
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from urllib.parse import urlsplit

from dpsql.errors import GatewayError
from dpsql.gateway.limits import Rates

# Scope key that marks a request whose token held; a good answer is no proof, because some need no token.
HELD = "dpsql.token_held"
_MOST_TOKENS, _HOUR = 4096, 3600.0
_SAFE = ("GET", "HEAD", "OPTIONS")
Headers = Sequence[tuple[bytes, bytes]]


class Addresses:
    """Stores the failures of addresses, and the tokens that held.

    Parameters
    ----------
    trusted : collection of str
        Addresses of proxies. Only their header ``X-Forwarded-For`` names the client.
    clock : callable
        Returns seconds.
    factor : float
        Multiplies the rate.
    """

    def __init__(
        self, trusted: Collection[str] = (), clock: Callable[[], float] = time.monotonic, factor: float = 1.0
    ) -> None:
        self._trusted = {_folded(address) for address in trusted}
        self._clock = clock
        self._rates = Rates(clock, factor)
        self._tokens: OrderedDict[bytes, float] = OrderedDict()

    def of(self, peer: str, headers: Headers) -> str:
        """Return a request's client: an IPv4 address, or the first 64 bits of an IPv6 address."""
        address = _folded(peer)
        if address in self._trusted:
            hops = b",".join(value for name, value in headers if name.lower() == b"x-forwarded-for")
            for hop in reversed(hops.decode("latin-1").split(",")):
                # The nearest hop that is no trusted proxy; anybody could have written the hops before it.
                if not (hop_address := _folded(hop.strip())):
                    break
                address = hop_address
                if address not in self._trusted:
                    break
        host = ipaddress.ip_address(address) if address else None
        if isinstance(host, ipaddress.IPv6Address):
            return str(ipaddress.ip_network((int(host) >> 64 << 64, 64)))
        return address

    def refuse(self, address: str, headers: Headers) -> None:
        """Raise if an address has failed too often, unless its token has held lately.

        Raises
        ------
        GatewayError
            G030.
        """
        digest = _digest(headers)
        if digest is not None and not self._holds(digest):
            self._rates.refuse(address, "tokens")

    def count_failure(self, address: str, headers: Headers) -> None:
        """Count a request whose token does not hold."""
        self._tokens.pop(_digest(headers) or b"", None)
        self._rates.count(address, "tokens")

    def remember(self, headers: Headers) -> None:
        """Remember the token of a request after the broker accepted it."""
        digest = _digest(headers)
        if digest is not None:
            self._tokens[digest] = self._clock()
            self._tokens.move_to_end(digest)
            while len(self._tokens) > _MOST_TOKENS:
                self._tokens.popitem(last=False)

    def _holds(self, digest: bytes) -> bool:
        return self._clock() - self._tokens.get(digest, -_HOUR) < _HOUR


def _digest(headers: Headers) -> bytes | None:
    credentials = [value for name, value in headers if name.lower() == b"authorization"]
    return hashlib.sha256(credentials[0]).digest() if credentials else None


def _folded(address: str) -> str:
    """Return an address in its one spelling; empty if invalid."""
    try:
        host = ipaddress.ip_address(address)
    except ValueError:
        return ""
    mapped = host.ipv4_mapped if isinstance(host, ipaddress.IPv6Address) else None
    return str(mapped or host)


def refuse_other_sites(method: str, headers: Headers, own: Collection[str] = ()) -> None:
    """Raise if another site's page made a browser send a request that changes something.

    A browser sends ``Sec-Fetch-Site``; an older browser sends ``Origin``, whose host must be the requested host or one
    of our `own` names (with any port if the name has no port). A program sends neither.

    Raises
    ------
    GatewayError
        G022.
    """
    if method in _SAFE:
        return
    sent: Mapping[bytes, str] = {name.lower(): value.decode("latin-1") for name, value in headers}
    site, origin = sent.get(b"sec-fetch-site"), sent.get(b"origin")
    if site is None and origin is None:
        return
    if site is not None:
        same = site in ("same-origin", "none")
    else:
        host, names = urlsplit(origin or "").netloc.lower(), {name.lower() for name in own}
        same = host in {sent.get(b"host", "").lower(), *names} - {""} or host.rpartition(":")[0] in names
    if not same:
        raise GatewayError("G022", "a page of another site sent this request. Send it from a program, or a page here.")
