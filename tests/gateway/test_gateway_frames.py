"""Frames between the gateway's processes: what is cut, too long or lies is refused before memory is taken for it."""

from __future__ import annotations

import ast
import contextlib
import json
import socket
import struct
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.gateway import frames
from dpsql.gateway.problems import GatewayError
from support.cases import cases

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    left, right = socket.socketpair()
    with left, right:
        yield left, right


def raw(header: bytes, *blobs: bytes) -> bytes:
    return b"".join(struct.pack("!I", len(part)) + part for part in (header, *blobs))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.long
@given(
    header=st.dictionaries(st.text().filter(lambda key: key != "blobs"), json_values),
    blobs=st.lists(st.binary(), max_size=4),
)
def test_what_is_sent_is_received(header: dict[str, object], blobs: list[bytes]) -> None:
    left, right = socket.socketpair()
    with left, right:
        sent = threading.Thread(target=frames.send, args=(left, header, blobs))
        sent.start()
        assert frames.receive(right) == (header, blobs)
        sent.join()


def test_large_tables_pass(pair: Pair) -> None:
    blob = bytes(range(256)) * 40_000
    sent = threading.Thread(target=frames.send, args=(pair[0], {"a": 1}, [blob, b""]))
    sent.start()
    assert frames.receive(pair[1]) == ({"a": 1}, [blob, b""])
    sent.join()


@cases(
    "sent",
    [
        b"\0\0",
        struct.pack("!I", 10) + b"{}",
        struct.pack("!I", 2**32 - 1),
        struct.pack("!I", frames.MOST_HEADER + 1),
        raw(b""),
        raw(b"[]"),
        raw(b"3"),
        raw(b"{}"),
        raw(b"nothing"),
        raw(b"\xff\xfe"),
        raw(b'{"blobs": 0, "x": NaN}'),
        raw(b'{"blobs": 0, "x": 1e400}'),
        raw(b'{"blobs": 0, "x": -Infinity}'),
        raw(b'{"blobs": 0, "blobs": 0}'),
        raw(b'{"blobs": 0, "x": {"a": 1, "a": 2}}'),
        raw(b'{"blobs": 0, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        raw(b'{"blobs": 0, "x": ' + b"9" * 5_000 + b"}"),
        raw(b'{"blobs": -1}'),
        raw(b'{"blobs": 17}'),
        raw(b'{"blobs": 1e0}', b"x"),
        raw(b'{"blobs": true}', b"x"),
        raw(b'{"blobs": "1"}', b"x"),
        raw(b'{"blobs": 2}', b"x"),
        raw(b'{"blobs": 1}') + struct.pack("!I", 2**32 - 1),
        raw(b'{"blobs": 1}') + struct.pack("!I", 5) + b"abc",
    ],
    ids=lambda sent: repr(sent[:40]),
    alone=True,
)
def test_what_is_no_frame_is_refused(pair: Pair, sent: bytes) -> None:
    def send() -> None:
        with contextlib.suppress(OSError):  # what is refused early is not read to its end
            pair[0].sendall(sent)
            pair[0].shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    with pytest.raises(GatewayError) as caught:
        frames.receive(pair[1])
    pair[1].close()
    sender.join()
    assert caught.value.code == "DPSQL-G098"


def test_a_length_takes_no_memory_before_it_is_judged(pair: Pair) -> None:
    pair[0].sendall(raw(b'{"blobs": 1}') + struct.pack("!I", frames.MOST_BLOB) + b"x")
    pair[0].shutdown(socket.SHUT_WR)
    tracemalloc.start()
    with pytest.raises(GatewayError, match="is cut"):
        frames.receive(pair[1])
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_a_closed_connection_is_no_frame(pair: Pair) -> None:
    pair[0].close()
    with pytest.raises(EOFError):
        frames.receive(pair[1])


def test_a_slow_frame_is_stopped(pair: Pair) -> None:
    pair[0].sendall(b"\0")
    with pytest.raises(GatewayError) as caught:
        frames.receive(pair[1], seconds=0.05)
    assert caught.value.code == "DPSQL-G099"


@pytest.mark.parametrize(
    ("header", "blobs"),
    [
        ({"x": float("nan")}, []),
        ({"x": b"bytes"}, []),
        ({"x": "a" * frames.MOST_HEADER}, []),
        ({}, [b""] * 17),
        ({}, [bytes(frames.MOST_BLOB + 1)]),
    ],
)
def test_what_cannot_be_received_is_not_sent(pair: Pair, header: dict[str, object], blobs: list[bytes]) -> None:
    with pytest.raises(GatewayError) as caught:
        frames.send(pair[0], header, blobs)
    assert caught.value.code == "DPSQL-G097"
    pair[1].setblocking(False)
    with pytest.raises(BlockingIOError):
        pair[1].recv(1)


@pytest.mark.parametrize("text", ['{"a": 1}', "[1, 2]", json.dumps("é")])
def test_usual_json_is_parsed(text: str) -> None:
    assert frames.parse_json(text) == json.loads(text)


def test_nothing_of_the_gateway_unpickles() -> None:
    for path in (Path(frames.__file__).parent).rglob("*.py"):
        names = {
            alias.name.split(".")[0]
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        assert not names & {"pickle", "marshal", "shelve", "dill", "cloudpickle", "multiprocessing"}, path


def test_import_dpsql_imports_nothing_of_the_gateway() -> None:
    shown = "import sys, dpsql; print([name for name in sys.modules if 'gateway' in name])"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
