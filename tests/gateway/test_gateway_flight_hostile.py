"""Flight SQL and those who mean harm: messages that grow, connections that stay, values that are none, TLS."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from dpsql.errors import GatewayError
from dpsql.gateway import box, flight
from dpsql.gateway import flight_messages as messages
from dpsql.gateway.door import Door
from dpsql.gateway.listening import Listening
from support.cases import cases
from support.fake_door import TOKEN, FakeDoor
from support.flight_server import RawClient, bearer, data_of, descriptor, execution, flying, query
from support.gateway_boxes import boxes_in

CASES = [json.loads(line) for line in (Path(__file__).parent / "hostile.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[FakeDoor, str]]:
    door = FakeDoor()
    with pytest.MonkeyPatch.context() as patch:
        options = [one for one in flight._OPTIONS if one[0] != "grpc.server_handshake_timeout_ms"]
        patch.setattr(flight, "_OPTIONS", [*options, ("grpc.server_handshake_timeout_ms", 500)])
        with flying(door, body_seconds=0.5) as address:
            yield door, address


@pytest.fixture
def address(door: FakeDoor, served: tuple[FakeDoor, str]) -> str:
    return served[1]


@pytest.fixture
def client(address: str) -> Iterator[RawClient]:
    found = RawClient(address, bearer())
    yield found
    found.close()


def still_answers(address: str) -> bool:
    client = RawClient(address, bearer())
    found = client.ask(query("SELECT a")).num_rows == 1
    client.close()
    return found


@cases("size", [flight.MOST_MESSAGE + 1, 5 << 20], quick=1, alone=True)
def test_messages_that_are_too_long(
    door: FakeDoor, client: RawClient, address: str, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    status, _ = client.refused("GetFlightInfo", descriptor(query("SELECT '" + "a" * size + "'")))
    assert status in ("RESOURCE_EXHAUSTED", "CANCELLED")
    assert door.asked == []
    assert caplog.records == []  # who sends too much does not fill the log
    assert still_answers(address)


def test_a_statement_that_is_too_long(door: FakeDoor, client: RawClient) -> None:
    status, text = client.refused("GetFlightInfo", descriptor(query("SELECT '" + "a" * 200_000 + "'")))
    assert (status, text[:12]) == ("INVALID_ARGUMENT", "[DPSQL-G003]")
    assert door.asked == []


def test_streams_that_are_too_long(client: RawClient, address: str) -> None:
    handle = client.prepare("SELECT ?").prepared_statement_handle
    one = data_of(pa.table({"a": ["b" * 400_000]}), execution(handle))
    status, text = client.refused("DoPut", *one, *one, *one, *one)
    assert (status, text[:12]) == ("INVALID_ARGUMENT", "[DPSQL-G021]")
    assert still_answers(address)


@pytest.mark.long
@pytest.mark.parametrize("kind", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_messages_are_not_taken(
    door: FakeDoor, client: RawClient, address: str, kind: grpc.Compression
) -> None:
    bomb = descriptor(query("SELECT '" + "a" * (16 << 20) + "'"))
    assert len(gzip.compress(bomb)) < flight.MOST_MESSAGE
    for body in (bomb, descriptor(query("SELECT a"))):
        status, _ = client.refused("GetFlightInfo", body, compression=kind)
        assert status in ("UNIMPLEMENTED", "INTERNAL", "RESOURCE_EXHAUSTED")
    assert door.asked == []
    assert still_answers(address)


def test_much_metadata(client: RawClient, address: str) -> None:
    client.metadata.append(("x-much", "a" * 100_000))
    assert client.refused("GetFlightInfo", descriptor(query("SELECT a")))[0] in ("RESOURCE_EXHAUSTED", "INTERNAL")
    assert still_answers(address)


@pytest.mark.long
def test_connections_that_say_nothing_end(address: str) -> None:
    host, _, port = address.removeprefix("grpc://").rpartition(":")
    for said in (b"", b"GET / HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nSM", b"\x16\x03\x01\x02\x00\x01"):
        with socket.create_connection((host, int(port)), timeout=20) as half:
            half.sendall(said)
            while half.recv(4096):
                pass
    assert still_answers(address)


@pytest.mark.long
@pytest.mark.parametrize("name", ["GetFlightInfo", "DoPut", "DoAction"])
def test_calls_without_a_message_end_and_hold_nobody_up(address: str, name: str) -> None:
    channels, ended = [RawClient(address, bearer()) for _ in range(4)], threading.Event()
    calls = []
    for one in channels:
        for _ in range(25):
            made = one.channel.stream_stream(f"/arrow.flight.protocol.FlightService/{name}")
            calls.append(made(_never(ended), metadata=one.metadata, timeout=300))
    assert still_answers(address)
    for call in calls:
        with pytest.raises(grpc.RpcError):
            next(call)
        assert call.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "did not come in time" in call.details()
    ended.set()
    for one in channels:
        one.close()


def _never(ended: threading.Event) -> Iterator[bytes]:
    ended.wait()
    yield b""


@pytest.mark.long
def test_who_leaves_does_not_fill_the_log(address: str, caplog: pytest.LogCaptureFixture) -> None:
    ended = threading.Event()
    for _ in range(5):
        client = RawClient(address, bearer())
        made = client.channel.stream_stream("/arrow.flight.protocol.FlightService/GetFlightInfo")
        call = made(_never(ended), metadata=client.metadata, timeout=300)
        time.sleep(0.05)
        call.cancel()
        client.close()
    assert still_answers(address)
    time.sleep(0.7)  # as long as the server waits for a message, and longer; what must not come has time to come
    assert caplog.records == []
    ended.set()


def test_bytes_that_are_no_messages(door: FakeDoor, client: RawClient, address: str) -> None:
    deep = b""
    for _ in range(3000):
        deep = b"\x0a" + _varint(len(deep)) + deep
    garbage = [
        b"\xff" * 100,
        b"\x0a\xff\xff\xff\xff\x0f",
        deep,
        b"\x12\x04\x0a\x02\xc3\x28",
        b"\x08\x02\x12\x02\xff\xff",
    ]
    for name in ("GetFlightInfo", "GetSchema", "DoGet", "DoPut", "DoAction"):
        for one in garbage:
            status, text = client.refused(name, one)
            assert status in ("INVALID_ARGUMENT", "UNIMPLEMENTED", "NOT_FOUND"), (name, one[:20], text)
            assert text.startswith("[DPSQL-G"), (name, one[:20])
    for body in garbage:
        for kind in ("CreatePreparedStatement", "ClosePreparedStatement", "SetSessionOptions", "CancelFlightInfo"):
            action = messages.new("Action", type=kind, body=body).SerializeToString()
            try:
                client.call("DoAction", action)
            except grpc.RpcError as error:
                assert error.code() != grpc.StatusCode.INTERNAL, (kind, body[:20])  # type: ignore[attr-defined]
    assert door.asked == []
    assert still_answers(address)


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def test_an_address_that_tries_tokens_is_asked_to_wait_and_others_there_are_answered() -> None:
    door = FakeDoor()
    with flying(door, factor=1) as address:
        good = RawClient(address, bearer())
        good.call("Handshake")
        said = set()
        for number in range(40):
            guess = RawClient(address, bearer(f"dpsql_{number:043}"))
            said.add(guess.refused("Handshake")[1][:12])
            guess.close()
        assert said == {"[DPSQL-G020]", "[DPSQL-G030]"}
        assert good.ask(query("SELECT a")).num_rows == 1
        good.close()


@pytest.mark.long
def test_hundreds_of_prepared_statements_leave_by_age(client: RawClient) -> None:
    first = client.prepare("SELECT a").prepared_statement_handle
    for _ in range(260):
        last = client.prepare("SELECT a").prepared_statement_handle
    assert client.refused("GetFlightInfo", descriptor(execution(first)))[0] == "NOT_FOUND"
    assert client.ask(execution(last)).num_rows == 1


# Over real boxes.


class Boxed(Door):
    """A door with real boxes, whose broker answers every call with one table, and keeps what it was asked."""

    def __init__(self, boxes: Any) -> None:
        super().__init__("", boxes)
        self.asked: list[dict[str, Any]] = []

    def _ask(self, token: str, request: Any) -> Any:
        if token != TOKEN:
            raise GatewayError("G020", "the token is not known.")
        if request["want"] in ("known", "refused"):  # the latter tells the broker what a box refused
            return {"principal": "ana"}, []
        self.asked.append(dict(request))
        table = pa.table({"n": [3, 1, 2], "key": ["a", "b", None]})
        return {"receipts": []}, [box._stream(table)]


@pytest.mark.parametrize(
    "step", [pytest.param(1, marks=pytest.mark.slow), pytest.param(8, marks=pytest.mark.long)], ids=["all", "some"]
)
def test_hostile_statements_over_flight(tmp_path: Path, step: int) -> None:
    """Each is refused with its code, as it is everywhere else, asked plainly and as a prepared statement."""
    wrong, asked = [], 0
    with boxes_in(tmp_path / "boxes") as boxes:
        door = Boxed(boxes)
        with flying(door) as address:
            client = RawClient(address, bearer())
            for number, case in enumerate(CASES[::step]):
                given = case["text"]
                text = given if isinstance(given, str) else "".join(piece * times for piece, times in given)
                try:
                    size = len(text.encode())
                except UnicodeEncodeError:  # no client can send it
                    continue
                codes = case["code"] if isinstance(case["code"], list) else [case["code"]]
                if None in codes or size > 900_000:
                    continue
                asked += 1
                before = len(door.asked)
                command = query(text) if number % 5 or size > 100_000 else execution(
                    client.prepare(text).prepared_statement_handle
                )  # fmt: skip
                try:
                    client.call("GetFlightInfo", descriptor(command))
                    wrong.append((text[:80], codes, "answered"))
                except grpc.RpcError as error:
                    details = str(error.details())  # type: ignore[attr-defined]
                    if not any(details.startswith(f"[DPSQL-{code}]") for code in [*codes, "G003"]):
                        wrong.append((text[:80], codes, details))
                if len(door.asked) != before:
                    wrong.append((text[:80], codes, "reached the broker"))
            client.close()
    assert asked > 400 // step
    assert wrong == []


# TLS.


@pytest.mark.long
def test_tls_is_spoken_and_plaintext_is_not(tmp_path: Path) -> None:
    dbapi = pytest.importorskip("adbc_driver_flightsql.dbapi")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        capture_output=True,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("openssl makes no certificate here")
    with flying(FakeDoor(), tls_cert=str(cert), tls_key=str(key)) as address:
        assert address.startswith("grpc+tls://")
        options = {
            "adbc.flight.sql.authorization_header": f"Bearer {TOKEN}",
            "adbc.flight.sql.client_option.tls_root_certs": cert.read_text(),
        }
        with dbapi.connect(address, db_kwargs=options, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT a")
            assert cursor.fetchall() == [(42.5,)]
        plain = RawClient(address.replace("grpc+tls", "grpc"), bearer())
        assert plain.refused("GetFlightInfo", descriptor(query("SELECT a")), timeout=20)[0] == "UNAVAILABLE"
        plain.close()


def test_plaintext_is_for_this_machine_alone() -> None:
    async def serve() -> None:
        async with flight.serving(FakeDoor(), Listening(host="0.0.0.0", port=0)):
            pass

    with pytest.raises(GatewayError, match="G023"):
        asyncio.run(serve())
