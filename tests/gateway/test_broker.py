"""The broker as a process: killed at any moment, asked by strangers, and never without its charge."""

from __future__ import annotations

import random
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dpsql.errors import DpsqlError, GatewayError
from dpsql.gateway import locked_front
from dpsql.gateway.broker import listen
from dpsql.gateway.door import Door
from dpsql.gateway.frames import receive, send
from support.cases import cases
from support.gateway_broker import ROOT, SECRET, Gateway, count, made


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    found = made(tmp_path_factory.mktemp("broker"), ana={"epsilon": 50}, ben={"epsilon": 0.35})
    found.start()
    yield found
    found.kill()


def loaded(module: str) -> set[str]:
    """Return what a process has loaded that imports a module."""
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


@pytest.mark.long
def test_a_front_knows_no_ledger_and_a_broker_no_network() -> None:
    front = loaded("dpsql.gateway.door")
    assert not {name for name in front if name.startswith(("dpsql.ledger", "sqlalchemy", "duckdb"))}
    broker = loaded("dpsql.gateway.broker")
    assert not broker & {"starlette", "uvicorn", "mcp", "httpx"}
    assert not {name for name in loaded("dpsql") if name.startswith("dpsql.gateway")}
    first = loaded("dpsql.cli.serve, dpsql.gateway.listening, dpsql.gateway.serving, dpsql.gateway.raising")
    assert not first & {"starlette", "mcp", "pydantic", "grpc"}


@pytest.mark.parametrize("is_checkout", [False, True])
def test_a_front_reads_its_own_packages_and_no_checkout(
    is_checkout: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages may lie in a folder that is only on the path; a checkout has other things beside the package."""
    package = tmp_path / "dpsql"
    (package / "gateway").mkdir(parents=True)
    if not is_checkout:
        (package / "udfs").mkdir()
    monkeypatch.setattr(locked_front, "__file__", str(package / "gateway" / "locked_front.py"))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert (str(tmp_path) in locked_front.readable()) is not is_checkout
    assert str(package) in locked_front.readable()


@pytest.mark.long
def test_only_this_user_reaches_the_socket(gateway: Gateway) -> None:
    path = Path(gateway.socket)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_others_enter_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "open"
    place.mkdir(mode=0o755)
    with pytest.raises(GatewayError, match="DPSQL-G035"):
        listen(str(place / "broker"))


@pytest.mark.long
@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="no peer credentials here")
def test_another_user_is_sent_away(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpsql.gateway import broker

    one, other = socket.socketpair()
    assert broker.is_own(one)
    monkeypatch.setattr(broker.os, "getuid", lambda: 12345)
    assert not broker.is_own(other)
    one.close()
    other.close()


@cases(
    "sent",
    [b"", b"\x00", b"\xff\xff\xff\xff", struct.pack("!I", 5) + b"{}", struct.pack("!I", 2) + b"[]",
     struct.pack("!I", 4) + b"NaN ", struct.pack("!I", 14) + b'{"blobs": 999}', b"GET / HTTP/1.1\r\n\r\n"],
)  # fmt: skip
def test_broken_frames_end_a_connection_and_nothing_else(gateway: Gateway, sent: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(gateway.socket)
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(20)
        with suppress(ConnectionResetError):
            assert connection.recv(100) == b""
    door = Door(gateway.socket)
    assert door.health() == {"broker": "ok"}
    door.close()


@pytest.mark.long
def test_the_door_passes_calls_on(gateway: Gateway) -> None:
    door, token = Door(gateway.socket), gateway.tokens["ana"]
    reply, [stream] = door.call(token, count("0.21"), {})
    with pa.ipc.open_stream(stream) as reader:
        table = reader.read_all()
    assert table.num_rows == 1
    entry = reply["receipts"][0]["entry"]
    again = door.release(token, entry)
    assert again.table.column("value").to_pylist() == table.column("value").to_pylist()
    assert entry in [one["entry"] for one in door.releases(token)]
    assert door.budget(token)[0]["dataset"] == "patients"
    assert door.describe(token, "patients")["name"] == "patients"
    assert [one["name"] for one in door.datasets(token)] == ["patients"]
    with pytest.raises(GatewayError, match="DPSQL-G015"):
        door.describe(token, "staff")
    with pytest.raises(GatewayError, match="DPSQL-G033"):  # it has no boxes
        door.answer(token, "SELECT 1", {})
    with pytest.raises(GatewayError, match="DPSQL-G020"):
        door.answer("nobody", "SELECT 1", {})
    door.close()


class FakeCall:
    """A private call, as a box reads it."""

    def __init__(self, record: dict[str, object]) -> None:
        self._record = record

    def to_json(self) -> dict[str, object]:
        """Return the call."""
        return self._record


class FakeStatement:
    """What a box reads of a text: calls of dp_count by their epsilons."""

    is_whole = False

    def __init__(self, text: str) -> None:
        self.settings = {"epsilon": {"number": "1"}, "fresh": True} if text.startswith("SET") else {}
        self.calls = tuple(FakeCall(count(each)) for each in text.split())


class FakeBoxes:
    """Boxes that add up the values of all calls."""

    @contextmanager
    def open(self) -> Iterator[FakeBoxes]:
        """Return itself."""
        yield self

    def parse(self, text: str) -> FakeStatement:
        """Read a text."""
        return FakeStatement(text)

    def finish(self, tables: list[Any]) -> pa.Table:
        """Add up."""
        total = 0.0
        for each in tables:
            with pa.ipc.open_stream(each) as reader:
                total += sum(reader.read_all().column("value").to_pylist())
        return pa.table({"total": [total]})


def test_a_statement_with_two_calls(gateway: Gateway) -> None:
    door, token = Door(gateway.socket, FakeBoxes()), gateway.tokens["ana"]
    first = door.answer(token, "0.22 0.23 0.22", {})
    assert [one["charged"] for one in first.receipts] == [True, True, False]
    second = door.answer(token, "0.22 0.23 0.22", {})
    assert second.table == first.table
    assert not any(one["charged"] for one in second.receipts)
    assert door.answer(token, "SET epsilon = 1", {}).settings == {"epsilon": "1", "fresh": "true"}
    priced = door.estimate(token, "0.22 0.4", {})
    assert [one["free"] for one in priced["calls"]] == [True, False]
    assert not priced["free"]
    door.close()


def test_refusals_of_dpsql_keep_their_code_and_kind(gateway: Gateway) -> None:
    door = Door(gateway.socket)
    for call, code in ((count("0"), "P001"), (count("0.1", by="nothing"), "S0"), (count("99"), "G017")):
        with pytest.raises(DpsqlError, match=f"DPSQL-{code}") as caught:
            door.call(gateway.tokens["ana"], call, {})
        assert SECRET not in str(caught.value)
    door.close()


def test_an_answer_that_was_sent_by_nobody_is_a_lost_broker(tmp_path: Path) -> None:
    door = Door(str(tmp_path / "nothing"))
    assert door.health() == {"broker": "lost"}
    with pytest.raises(GatewayError, match="DPSQL-G033"):
        door.datasets("x")


def test_a_token_of_another_is_another_principal(gateway: Gateway) -> None:
    door = Door(gateway.socket)
    entry = door.call(gateway.tokens["ana"], count("0.24"), {})[0]["receipts"][0]["entry"]
    with pytest.raises(GatewayError, match="DPSQL-G018"):
        door.release(gateway.tokens["ben"], entry)
    door.close()


@pytest.mark.odds("0: numbers are compared with their own replays")
@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_killed_at_random_moments_every_question_is_charged_once(tmp_path: Path, seed: int) -> None:
    """No acknowledged charge is lost, no result is without its charge, and what is asked again is replayed."""
    gateway, generator = made(tmp_path, ana={"epsilon": 50}), random.Random(seed)
    token, answers = gateway.tokens["ana"], dict[str, set[tuple[int, float]]]()
    guard, stop = threading.Lock(), threading.Event()
    questions = [f"0.{number:03}" for number in range(11, 35)]

    def ask(epsilon: str, door: Door) -> bool:
        try:
            reply, [stream] = door.call(token, count(epsilon), {})
        except GatewayError as error:
            assert error.code in ("DPSQL-G033", "DPSQL-G032"), error
            return False
        with pa.ipc.open_stream(stream) as reader:
            value = reader.read_all().column("value").to_pylist()[0]
        with guard:
            answers.setdefault(epsilon, set()).add((reply["receipts"][0]["entry"], value))
        return True

    def client(mine: list[str]) -> None:
        door = Door(gateway.socket)
        for epsilon in mine:
            while not ask(epsilon, door) and not stop.is_set():
                time.sleep(0.1)
        door.close()

    gateway.start()
    clients = [threading.Thread(target=client, args=(questions[number::3],)) for number in range(3)]
    for each in clients:
        each.start()
    try:
        for _ in range(4):
            time.sleep(generator.uniform(0.3, 3.0))
            gateway.kill()
            gateway.start()
        for each in clients:
            each.join(300)
    finally:
        stop.set()
    door = Door(gateway.socket)
    for epsilon in questions:
        assert ask(epsilon, door)
    door.close()
    gateway.kill()
    assert {len(each) for each in answers.values()} == {1}  # one entry, one value
    with gateway.ledger() as ledger:
        assert ledger.verify().ok
        assert ledger.granted_budgets("ana")[0].releases == len(questions)
        spent = {row.dataset: row.releases for row in ledger.budgets()}
        assert spent == {"patients": len(questions), "staff": 0}
        assert {one.sequence for one in ledger.releases_by("ana")} == {entry for [(entry, _)] in answers.values()}


def test_a_request_of_a_frame_is_answered_by_a_frame(gateway: Gateway) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(gateway.socket)
        for _ in range(3):
            send(connection, {"want": "health"})
            assert receive(connection)[0]["health"] == {"broker": "ok"}
