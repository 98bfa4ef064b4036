"""Raw requests: what may be read in two ways, is too long or too slow, is refused, and nothing behind it answered."""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.errors import GatewayError
from dpsql.gateway.listening import END, MOST_HEAD, check_growing, check_head
from support.cases import cases
from support.fake_door import TOKEN, FakeDoor, listening

BODY = b'{"sql": "SELECT 1"}'
AUTH = b"Authorization: Bearer " + TOKEN.encode() + b"\r\n"
KIND = b"Content-Type: application/json\r\n"
POST = b"POST /v1/query HTTP/1.1\r\nHost: x\r\n" + AUTH + KIND
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
SECOND = b"GET /v1/budget HTTP/1.1\r\nHost: x\r\n" + AUTH + b"\r\n"


@pytest.fixture(scope="module")
def door() -> FakeDoor:
    return FakeDoor()


@pytest.fixture(scope="module")
def url(door: FakeDoor) -> Iterator[str]:
    with listening(door) as found:
        yield found


def send(url: str, *pieces: bytes, wait: float = 60, pause: float = 0.0) -> bytes:
    """Send pieces, and return all that comes until the end of the connection; b'open' where it stays open."""
    place = urlsplit(url)
    with closing(socket.create_connection((str(place.hostname), int(place.port or 0)))) as connection:
        connection.settimeout(wait)
        for piece in pieces:
            try:
                connection.sendall(piece)
            except OSError:
                break
            time.sleep(pause)
        found = b""
        try:
            while piece := connection.recv(65536):
                found += piece
        except ConnectionError:
            return found
        except TimeoutError:
            return found or b"open"
        return found


def statuses(answer: bytes) -> list[int]:
    return [int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


def test_a_plain_request_is_answered(url: str) -> None:
    assert statuses(send(url, POST + LENGTH + b"\r\n" + BODY)) == [200]


def test_a_request_that_comes_byte_by_byte_is_answered(url: str) -> None:
    whole = POST + LENGTH + b"\r\n" + BODY
    assert statuses(send(url, *(whole[i : i + 1] for i in range(len(whole))))) == [200]


SMUGGLED = b"0\r\n\r\n" + SECOND
REFUSED = {
    "length and encoding": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + SMUGGLED,
    "encoding and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + SMUGGLED,
    "chunked": POST + b"Transfer-Encoding: chunked\r\n\r\n13\r\n" + BODY + b"\r\n0\r\n\r\n" + SECOND,
    "chunked, strangely spelled": POST + b"tRANSFER-eNCODING: \tchunked\r\n\r\n" + SMUGGLED,
    "unknown encoding": POST + b"Transfer-Encoding: xchunked\r\n\r\n" + SMUGGLED,
    "identity": POST + b"Transfer-Encoding: identity\r\n" + LENGTH + b"\r\n" + BODY + SECOND,
    "gzip": POST + b"Content-Encoding: gzip\r\n" + LENGTH + b"\r\n" + BODY + SECOND,
    "two lengths": POST + LENGTH + b"Content-Length: 1\r\n\r\n" + BODY + SECOND,
    "two equal lengths": POST + LENGTH + LENGTH + b"\r\n" + BODY + SECOND,
    "a list of lengths": POST + b"Content-Length: 19, 19\r\n\r\n" + BODY + SECOND,
    "a signed length": POST + b"Content-Length: +19\r\n\r\n" + BODY + SECOND,
    "a negative length": POST + b"Content-Length: -1\r\n\r\n" + BODY + SECOND,
    "a length of many digits": POST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n" + BODY,
    "a space before the colon": POST + b"Content-Length : 19\r\n\r\n" + BODY + SECOND,
    "a folded line": POST + LENGTH + b"X: a\r\n b\r\n\r\n" + BODY + SECOND,
    "two hosts": POST + b"Host: y\r\n" + LENGTH + b"\r\n" + BODY + SECOND,
    "no host": b"POST /v1/query HTTP/1.1\r\n" + AUTH + KIND + LENGTH + b"\r\n" + BODY + SECOND,
    "two tokens": POST + AUTH + LENGTH + b"\r\n" + BODY + SECOND,
    "line feeds alone": (POST + LENGTH + b"\r\n").replace(b"\r\n", b"\n") + BODY + SECOND,
    "one line feed alone": POST + b"X: a\nY: b\r\n" + LENGTH + b"\r\n" + BODY + SECOND,
    "a carriage return alone": POST + b"X: a\rY: b\r\n" + LENGTH + b"\r\n" + BODY + SECOND,
    "a NUL": POST + b"X: a\0b\r\n" + LENGTH + b"\r\n" + BODY + SECOND,
    "70 kB of headers": POST + b"X: " + b"a" * 70_000 + b"\r\n" + LENGTH + b"\r\n" + BODY + SECOND,
    "many headers": POST + b"".join(b"X%d: a\r\n" % i for i in range(3000)) + LENGTH + b"\r\n" + BODY,
    "an endless request line": b"GET /" + b"a" * 20_000,
    "another protocol": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS without TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 300 + END,
    "a whole address": b"GET http://x/v1/budget HTTP/1.1\r\nHost: x\r\n" + AUTH + b"\r\n" + SECOND,
    "a connection to elsewhere": b"CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: x\r\n\r\n",
    "version 0.9": b"GET /v1/budget\r\n\r\n",
}


@cases("what", REFUSED)
def test_a_request_that_may_be_read_in_two_ways_is_refused_and_the_connection_closed(
    door: FakeDoor, url: str, what: str
) -> None:
    before = len(door.asked)
    answer = send(url, REFUSED[what])
    assert statuses(answer) == [400]
    assert b"connection: close" in answer.lower()
    assert json.loads(answer.split(END, 1)[1])["code"] == "G021"
    assert len(door.asked) == before


def test_what_stands_behind_a_request_is_never_answered(url: str) -> None:
    assert statuses(send(url, POST + LENGTH + b"\r\n" + BODY + SECOND)) == [200]
    assert statuses(send(url, SECOND + SECOND)) == [200]
    assert statuses(send(url, POST + LENGTH + b"\r\n" + BODY, SECOND, pause=0.05)) == [200]


def test_a_long_body_is_refused_by_its_length_and_by_what_comes(url: str) -> None:
    answer = send(url, POST + b"Content-Length: 200000\r\n\r\n")
    assert statuses(answer) == [400]
    long = b'{"sql": "' + b"a" * 140_000 + b'"}'
    assert statuses(send(url, POST + b"Content-Length: %d\r\n\r\n" % len(long) + long)) == [400]


def test_a_body_that_stops_is_given_up(door: FakeDoor) -> None:
    with listening(door, body_seconds=0.3, head_seconds=5) as url:
        answer = send(url, POST + LENGTH + b"\r\n" + BODY[:4])
        assert statuses(answer) == [408]


@pytest.mark.long
def test_a_head_that_does_not_end_is_given_up(door: FakeDoor) -> None:
    with listening(door, head_seconds=0.3) as url:
        for begin in (b"", b"GET /v1/budget HTTP/1.1", POST):
            assert statuses(send(url, begin, wait=60)) == [408]  # or the connection would stay open


def test_who_drips_a_head_is_given_up(door: FakeDoor) -> None:
    with listening(door, head_seconds=0.4) as url:
        answer = send(url, *(POST[i : i + 1] for i in range(60)), pause=0.02)
        assert statuses(answer) in ([408], [])


def test_a_wish_to_go_on_is_answered(url: str) -> None:
    answer = send(url, POST + LENGTH + b"Expect: 100-continue\r\n\r\n", BODY, pause=0.2)
    assert statuses(answer) == [100, 200]


@given(st.binary(max_size=200))
@settings(deadline=None, max_examples=300)
def test_any_head_is_judged(head: bytes) -> None:
    for judge in (check_growing, check_head):
        try:
            judge(head + END)
        except GatewayError as error:
            assert error.code == "DPSQL-G021"


def test_a_head_of_the_most_bytes_is_taken() -> None:
    begin = b"GET / HTTP/1.1\r\nHost: x\r\nX: "
    check_head(begin + b"a" * (MOST_HEAD - len(begin) - len(END)) + END)
    with pytest.raises(GatewayError):
        check_head(begin + b"a" * (MOST_HEAD - len(begin) - len(END) + 1) + END)


def test_tls_is_spoken(door: FakeDoor, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("openssl makes no certificate here")
    with listening(door, tls_cert=str(cert), tls_key=str(key)) as url:
        assert url.startswith("https://")
        trusting = ssl.create_default_context(cafile=str(cert))
        request = urllib.request.Request(f"{url}/v1/budget", headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, context=trusting, timeout=10) as answer:
            assert answer.status == 200
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.load_verify_locations(str(cert))
        old.minimum_version = ssl.TLSVersion.TLSv1_2
        place = urlsplit(url)
        with (
            socket.create_connection(("127.0.0.1", int(place.port or 0))) as raw,
            old.wrap_socket(raw, server_hostname="127.0.0.1") as spoken,
        ):
            assert spoken.version() == "TLSv1.3"
