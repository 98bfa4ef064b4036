"""Who is at the other end of a request: its address, how often it failed to say who it is, and another site's pages.

**Failed tokens.** An address may fail 20 times in a minute. Beyond that the front passes on no token from it that it
has not seen to hold: so who tries tokens costs the broker nothing, and who shares the address with them, such as a
dashboard behind the same proxy, is answered as long as its token is known here.
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

# Where an application says that the token of a request held; a good answer alone does not, for some need no token.
HELD = "dpsql.token_held"
_MOST_TOKENS, _HOUR = 4096, 3600.0
_SAFE = ("GET", "HEAD", "OPTIONS")
Headers = Sequence[tuple[bytes, bytes]]


class Addresses:
    """What is known of addresses, and of tokens that held.

    Parameters
    ----------
    trusted : collection of str
        Addresses of proxies, whose header ``X-Forwarded-For`` says who asks; any other's is ignored.
    clock : callable
        Returns seconds.
    factor : float
        By which the rate is multiplied.
    """

    def __init__(
        self, trusted: Collection[str] = (), clock: Callable[[], float] = time.monotonic, factor: float = 1.0
    ) -> None:
        self._trusted = {_folded(address) for address in trusted}
        self._clock = clock
        self._rates = Rates(clock, factor)
        self._tokens: OrderedDict[bytes, float] = OrderedDict()

    def of(self, peer: str, headers: Headers) -> str:
        """Return whose a request is: an address of IPv4, or the first 64 bits of one of IPv6."""
        address = _folded(peer)
        if address in self._trusted:
            hops = b",".join(value for name, value in headers if name.lower() == b"x-forwarded-for")
            for hop in reversed(hops.decode("latin-1").split(",")):
                # The nearest one that is no proxy of ours; whatever stands before it, anybody could have written.
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
        """Raise where an address has failed too often, unless its token has held lately.

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
        """Remember the token of a request, which the broker found to hold."""
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
    """Return an address in its one spelling; empty for none."""
    try:
        host = ipaddress.ip_address(address)
    except ValueError:
        return ""
    mapped = host.ipv4_mapped if isinstance(host, ipaddress.IPv6Address) else None
    return str(mapped or host)


def refuse_other_sites(method: str, headers: Headers, own: Collection[str] = ()) -> None:
    """Raise where the page of another site made a browser send a request that changes something.

    A browser says so with ``Sec-Fetch-Site``; an earlier one with ``Origin``, whose host must be the one asked, or one
    of our `own` names, with any port where the name has none. A program sends neither.

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
