"""The processes of a gateway as the kernel sees them: what each of them has given up."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from dpsql.gateway.box import Boxes
from dpsql.gateway.listening import FrontSettings, Listening
from dpsql.gateway.sandbox import available
from dpsql.gateway.serving import ServeSettings, Serving
from support.gateway_broker import made

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux" or not available().is_complete, reason="no Landlock or no seccomp"),
]
ANSWER = pa.table({"n": [3, 1, 2]})


@dataclass
class Served:
    """A gateway that runs, with a token."""

    serving: Serving
    token: str

    def box(self) -> Boxes:
        """Return what opens boxes."""
        return Boxes(Path(self.serving.boxes.words[2]), seconds=60)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    gateway = made(tmp_path_factory.mktemp("processes"), ana={"epsilon": 40})

    def front(broker: str, boxes: str) -> str:
        return FrontSettings(broker, boxes, Listening(port=0)).to_json()

    with Serving(ServeSettings(gateway.database, front)) as serving:
        yield Served(serving, gateway.tokens["ana"])


def status(process: int, name: str) -> str:
    """Return a line of what the kernel says of a process."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(line.split(":")[1].strip() for line in lines if line.startswith(f"{name}:"))


def box_of(process: int, before: set[str]) -> int:
    """Return the box that a process has just started, once it is locked."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for found in sorted(children(process) - before):
            if status(int(found), "Seccomp") == "2":
                return int(found)
        time.sleep(0.02)
    raise TimeoutError("no box is locked")


def children(process: int) -> set[str]:
    """Return the processes that one has started, and that run or were not waited for."""
    return set(Path(f"/proc/{process}/task/{process}/children").read_text().split())


def number(process: subprocess.Popen[str] | None) -> int:
    assert process is not None
    return process.pid


def test_every_process_has_given_up_what_it_does_not_need(served: Served) -> None:
    broker, front, zygote = (
        number(part.process) for part in (served.serving.broker, served.serving.front, served.serving.boxes)
    )
    assert status(broker, "NoNewPrivs") == "1"
    assert int(status(broker, "Umask"), 8) == 0o077
    assert (status(front, "NoNewPrivs"), status(front, "Seccomp")) == ("1", "2")
    assert int(status(front, "Umask"), 8) == 0o077
    for thread in os.listdir(f"/proc/{front}/task"):  # those of libraries, too
        assert "Seccomp:\t2" in Path(f"/proc/{front}/task/{thread}/status").read_text()
    before = children(zygote)
    with served.box().open():
        box = box_of(zygote, before)
        assert (status(box, "NoNewPrivs"), status(box, "Seccomp"), status(box, "Threads")) == ("1", "2", "1")
    opened = {os.readlink(f"/proc/{front}/fd/{one}") for one in os.listdir(f"/proc/{front}/fd")}
    assert not [path for path in opened if "hospital" in path]


@pytest.mark.odds("0: looks at no number")
def test_a_locked_front_answers(served: Served) -> None:
    body = json.dumps({"sql": "SELECT count(*) AS n FROM patients", "epsilon": 0.5}).encode()
    headers = {"Authorization": f"Bearer {served.token}", "Content-Type": "application/json"}
    for path, given in (("query", body), ("datasets", None), ("openapi.json", None)):
        request = urllib.request.Request(f"{served.serving.url}/v1/{path}", given, headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            assert json.load(answer)


@pytest.mark.odds("0: looks at no number")
@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace here")
def test_a_box_opens_no_path_once_it_is_locked(served: Served, tmp_path: Path) -> None:
    """Nothing is even tried: no file, no socket, no process."""
    zygote = number(served.serving.boxes.process)
    before = children(zygote)
    with served.box().open() as box:
        process, log = box_of(zygote, before), tmp_path / "log"
        words = ["strace", "-f", "-o", str(log), "-e", "trace=%file,%network,%process,%ipc", "-p", str(process)]
        tracing = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        assert tracing.stderr is not None
        said = tracing.stderr.readline()
        if "attached" not in said:
            tracing.kill()
            tracing.communicate()
            pytest.skip(f"this system lets nobody trace: {said}")
        statement = box.parse(
            "SELECT sum(n) AS s, count(*) OVER () AS k FROM dp_count('patients') GROUP BY n ORDER BY s"
        )
        found = box.finish([ANSWER] * len(statement.calls))
        assert found.column("s").to_pylist() == [1, 2, 3]
    tracing.communicate(timeout=60)
    seen = [line.split(maxsplit=1)[1] for line in log.read_text().splitlines()]
    calls = {line.split("(")[0] for line in seen if not line.startswith(("+++", "---"))}
    assert calls <= {"exit", "exit_group", "recvfrom", "sendto", "sendmsg", "recvmsg"}, seen
