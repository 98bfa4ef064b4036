"""A gateway whose processes are killed at random moments while eight clients ask: every number has its charge."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from dpsql.gateway.listening import FrontSettings, Listening
from dpsql.gateway.sandbox import available
from dpsql.gateway.serving import Process, ServeSettings, Serving
from dpsql.ledger.chain import RESERVED
from dpsql.ledger.ledger import Ledger
from support.gateway_broker import made

CLIENTS, QUESTIONS = 8, 6
COUNT = "SELECT count(*) AS n FROM patients"
SIS = (
    "SELECT * FROM dp_sis('patients', target := 'ward', target_levels := ['A', 'B'], features := ['age'], k := 1, "
    "lower := 0, upper := 90)"
)
# What a client is told while a part is missing: busy, no broker, no box, a box that stopped.
LOST = {"G032", "G033", "G036", "G099", "G030"}


class Client(threading.Thread):
    """Asks each of its questions until it is answered, and then once more.

    Attributes
    ----------
    answers : dict
        By question: rows, entry, and whether it was charged, of each answer.
    """

    def __init__(self, url: str, token: str, number: int) -> None:
        super().__init__()
        self._url, self._token = url, token
        self.answers: dict[tuple[str, str], list[tuple[str, int, bool]]] = {}
        self.failures: list[str] = []
        self.questions = [
            (SIS if number % 4 == 0 and place % 3 == 0 else COUNT, f"0.0{1 + number}{place}")
            for place in range(QUESTIONS)
        ]
        self.stopped = threading.Event()

    def run(self) -> None:
        """Ask."""
        for question in self.questions:
            for _ in range(2):
                while not self.stopped.is_set() and not self._ask(question):
                    time.sleep(0.2)

    def _ask(self, question: tuple[str, str]) -> bool:
        sql, epsilon = question
        body = json.dumps({"sql": sql, "epsilon": float(epsilon)}).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(f"{self._url}/v1/query", body, headers), timeout=60
            ) as got:
                found: dict[str, Any] = json.load(got)
        except urllib.error.HTTPError as error:
            with error:
                told = json.load(error)
            if told["code"] not in LOST:
                self.failures.append(str(told))
                self.stopped.set()
            return False
        except (OSError, ValueError, EOFError):  # the front was killed
            return False
        receipt = found["receipts"][0]
        self.answers.setdefault(question, []).append((str(found["rows"]), receipt["entry"], receipt["charged"]))
        return True


def children(process: int) -> list[int]:
    """Return the processes that one has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int((path / "stat").read_text().rsplit(")", 1)[1].split()[1]) == process:
                found.append(int(path.name))
    return found


def killed(serving: Serving, kind: str, generator: random.Random) -> bool:
    """Kill a part; say whether there was one."""
    part: Process = {"broker": serving.broker, "front": serving.front}.get(kind, serving.boxes)
    if part.process is None or not part.runs:
        return False
    process = part.process.pid
    if kind == "box":
        boxes = children(process)
        if not boxes:
            return False
        process = generator.choice(boxes)
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    return True


def judged(location: str) -> tuple[int, int, int]:
    """Return how many charges, names with a result, and reservations without one a ledger holds; it must verify."""
    with closing(Ledger.open(location, read_only=True)) as ledger:
        assert ledger.verify().ok
        rows = [row for row in ledger.entries("patients") if row.kind == "release"]
        stored = [one for name in [f"c{n}" for n in range(CLIENTS)] for one in ledger.releases_by(name)]
    reserved = sum(row.status == RESERVED for row in rows)
    ended = sum(row.status.startswith("released, charged") for row in rows)
    charges = sum(bool(row.epsilon) for row in rows)
    names = [one.name for one in stored]
    assert len(set(names)) == len(names)
    return charges, len(names), reserved - ended


def run(folder: Path, kills: int, seed: int) -> tuple[Counter[str], list[Client], tuple[int, int, int]]:
    """Serve, ask with eight clients, kill; return what was killed, the clients, and what the ledger holds."""
    gateway, generator = made(folder, **{f"c{n}": {"epsilon": 40} for n in range(CLIENTS)}), random.Random(seed)
    location = f"{gateway.database}.dpsql-ledger"

    def front(broker: str, boxes: str) -> str:
        return FrontSettings(broker, boxes, Listening(port=0)).to_json()

    settings = ServeSettings(gateway.database, front, without_os_sandbox=not available().is_complete)
    seen: Counter[str] = Counter()
    stop = threading.Event()
    with Serving(settings) as serving:

        def mend() -> None:
            while not stop.wait(0.1):
                serving.mend(time.monotonic())

        keeper = threading.Thread(target=mend)
        keeper.start()
        clients = [Client(serving.url, gateway.tokens[f"c{n}"], n) for n in range(CLIENTS)]
        for client in clients:
            client.start()
        try:
            while seen.total() < kills:
                time.sleep(generator.uniform(0.02, 1.5))
                kind = generator.choice(["broker", "broker", "front", "zygote", "box"])
                if killed(serving, kind, generator):
                    seen[kind] += 1
                    judged(location)
            for client in clients:
                client.join(600)
        finally:
            for client in clients:
                client.stopped.set()
            stop.set()
            keeper.join()
            for client in clients:
                client.join()
    return seen, clients, judged(location)


@pytest.mark.odds("0: numbers are compared with their own replays")
@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
@pytest.mark.parametrize("kills", [pytest.param(20, marks=pytest.mark.long), pytest.param(200, marks=pytest.mark.slow)])
def test_killed_at_random_moments_every_number_has_its_charge(tmp_path: Path, kills: int) -> None:
    seen, clients, (charges, names, lost) = run(tmp_path, kills, seed=kills)
    assert [client.failures for client in clients] == [[]] * CLIENTS
    assert seen.total() == kills
    for client in clients:
        assert list(client.answers) == client.questions  # each was answered
        for answers in client.answers.values():
            assert len({(rows, entry) for rows, entry, _ in answers}) == 1  # always with one number
            assert not answers[-1][2]  # and free the second time
    assert names == CLIENTS * QUESTIONS
    assert charges == names + lost, (seen, charges, names, lost)
