"""Which heads of requests are refused before anything reads them, judged on the bytes that came.

Two programs that read a request differently can be made to see two requests in one. So what is unusual is refused:
lines without a carriage return, folded lines, a body whose length is said twice or not at all, encodings.
"""

from __future__ import annotations

import re
from collections import Counter

from dpsql.errors import GatewayError

MOST_HEAD = 16 * 1024
END = b"\r\n\r\n"
_bare = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|[\0-\x08\x0b\x0c\x0e-\x1f\x7f]")
_line = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\r\n]*?)[ \t]*")
_request = re.compile(rb"[A-Z]{1,16} /[!-~]* HTTP/1\.[01]")
_ONCE = (b"host", b"authorization", b"content-length", b"content-type", b"idempotency-key")
_NEVER = (b"transfer-encoding", b"content-encoding")
_hint = "Send a plain request of HTTP/1.1 with Content-Length."


def check_growing(head: bytes) -> None:
    """Refuse the bytes of a head that is not yet complete, or is.

    Raises
    ------
    GatewayError
        G021: it is too long, or a line in it ends in another way than CR LF.
    """
    if len(head) > MOST_HEAD:
        raise GatewayError("G021", f"the head of the request is longer than {MOST_HEAD} bytes. Send fewer headers.")
    if _bare.search(head):
        raise GatewayError("G021", f"the head of the request is no HTTP. {_hint}")


def check_head(head: bytes) -> None:
    """Refuse a complete head.

    Raises
    ------
    GatewayError
        G021: it is no request, or may be read in two ways.
    """
    check_growing(head)
    first, *lines = head.removesuffix(END).split(b"\r\n")
    parsed = [_line.fullmatch(line) for line in lines]
    if _request.fullmatch(first) is None or None in parsed:
        raise GatewayError("G021", f"the head of the request is no HTTP. {_hint}")
    names = Counter(one[1].lower() for one in parsed if one)
    for name in _NEVER:
        if names[name]:
            raise GatewayError("G021", f"the header {name.decode()} is not taken. {_hint}")
    for name in _ONCE:
        if names[name] > 1:
            raise GatewayError("G021", f"the header {name.decode()} was given twice. Send it once.")
    if not names[b"host"]:
        raise GatewayError("G021", f"the header host is missing. {_hint}")
    for one in parsed:
        if one and one[1].lower() == b"content-length" and re.fullmatch(rb"[0-9]{1,9}", one[2]) is None:
            raise GatewayError("G021", f"the header content-length is no length. {_hint}")
