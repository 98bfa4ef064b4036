"""A box that was taken over: what its code holds on to, and that the process that boxes are forked from ends it."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from dpsql.errors import GatewayError
from dpsql.gateway import box, frames, sandbox, zygote
from dpsql.gateway.serving import ONE_THREAD, Process
from support.gateway_boxes import LOCKED, running

pytestmark = pytest.mark.skipif(not LOCKED, reason="this system has no Landlock or no seccomp")
# What the code does once it has the box, in place of reading the statement. A futex is a call that a box may make, and
# waits for as long as nobody wakes it; `_asleep` asks for what ended a box before, and then waits.
TAKEN_OVER = """
boxed.warm = lambda _: None
import ctypes, mmap, os, signal, threading
_libc = ctypes.CDLL(None, use_errno=True)
def _asleep(*_):
    _libc.alarm(0)
    lock = threading.Lock()
    lock.acquire()
    while True:
        lock.acquire()
def _filled(kind):
    kept = []
    try:
        while len(kept) < 1100:  # MiB
            kept.append(mmap.mmap(-1, 1 << 20, flags=kind | mmap.MAP_ANONYMOUS))
    except (OSError, ValueError, MemoryError):
        pass
    found = len(kept)
    kept.clear()  # so that there is memory to tell it
    return found
def _told(word):
    raise statement.GatewayError("G001", word)
"""


@contextmanager
def taken_over(folder: Path, read: str, words: Sequence[str] = (), planted: str = "") -> Iterator[box.Boxes]:
    """Serve boxes whose code reads no statement, but does what an attacker wants."""
    path = folder / "zygote"
    program = (
        f"from dpsql.gateway import boxed, sandbox, statement, zygote\n{TAKEN_OVER}{planted}\n{read}\nzygote.main()"
    )
    Path(folder, "taken_over.py").write_text(program)
    process = Process("taken over", ["taken_over", "--socket", str(path), *words])
    process.more = {**ONE_THREAD, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    with running(process, path) as found:
        yield found


def forked_from(opened: box.Box) -> int:
    """Return the process that listens."""
    given = opened._channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(zygote._CREDENTIALS.unpack(given)[0])


def alive(process: int) -> list[int]:
    """Return the boxes of a process that live."""
    found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(one) for one in found if status(int(one)).get("State", "Z")[0] != "Z"]


def status(process: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def eventually(holds: object, seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False


def locked(process: int) -> bool:
    return [status(one).get("Seccomp") for one in alive(process)] == ["2"]


def test_closed_channels_and_times_that_are_up_end_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three boxes that sleep the front leaves one; one may live no longer; the third one is let alone."""
    for name in ("signal", "set_wakeup_fd"):  # those of the test's own process
        monkeypatch.setattr(zygote.signal, name, lambda *_, **__: None)
    living = zygote._Living(60.0)
    fronts = []
    try:
        for life in (60.0, 60.0, 0.0):
            front, channel = socket.socketpair()
            fronts.append(front)
            monkeypatch.setattr(living, "_life", life)
            living.add(os.posix_spawn("/bin/sleep", ["sleep", "60"], {}), channel)
        left, stays, late = living._boxes
        fronts[0].close()
        while living.count > 1:  # a process that another thread forks has the front's end open, too, until it executes
            assert living.next_channel(None) is None
        assert [*living._boxes] == [stays]
        assert all(not Path(f"/proc/{one}").exists() for one in (left, late))
        assert fronts[2].recv(1) == b""  # which tells the front
    finally:
        living.end()
        for one in (*fronts, living._woken, living._waking):
            one.close()
    assert living.count == 0


@pytest.mark.long
def test_a_box_ends_when_its_channel_closes(tmp_path: Path) -> None:
    """`alarm(0)` and a wait held a box for good; now no clock of the box counts."""
    with taken_over(tmp_path, "boxed.read = _asleep") as boxes:
        with boxes.open() as opened:
            listening = forked_from(opened)
            opened._channel.settimeout(3)
            opened._seconds = 3
            with pytest.raises(GatewayError, match="G099"):
                opened.parse("SELECT 1")
            assert locked(listening)
        assert eventually(lambda: not alive(listening))


@pytest.mark.long
def test_a_box_ends_when_its_time_is_up(tmp_path: Path) -> None:
    """However long the front keeps the channel open."""
    with taken_over(tmp_path, "boxed.read = _asleep", ["--life", "2"]) as boxes, boxes.open() as opened:
        with pytest.raises(GatewayError, match="G099"):
            opened.parse("SELECT 1")  # nobody waits as long as the front would: 120 s
        assert not alive(forked_from(opened))


@pytest.mark.long
def test_boxes_end_with_the_process_that_they_are_forked_from(tmp_path: Path) -> None:
    path = tmp_path / "zygote"
    with taken_over(tmp_path, "boxed.read = _asleep") as boxes, boxes.open() as opened:
        listening = forked_from(opened)
        frames.send(opened._channel, {"text": "hold"})
        assert eventually(lambda: locked(listening))
        [process] = alive(listening)
        os.kill(listening, signal.SIGKILL)
        assert eventually(lambda: status(process).get("State", "Z")[0] == "Z")
    assert path.exists()


@pytest.mark.long
def test_boxes_that_wait_hold_nobody_up_for_good(tmp_path: Path) -> None:
    """All places are taken by boxes that never end; they are free once the front lets go."""
    only_for_some = "boxed.read = lambda text, parse: _asleep() if 'hold' in text else statement.read(text, parse)"
    with taken_over(tmp_path, only_for_some) as boxes:
        held = [boxes.open() for _ in range(16)]
        for one in held:
            frames.send(one._channel, {"text": "hold"})
        assert eventually(lambda: len(alive(forked_from(held[0]))) == 16)
        for one in held:
            one.close()
        with boxes.open() as opened:
            assert opened.parse("SELECT 1 AS x").calls == ()


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="not root")
def test_no_box_runs_as_root(tmp_path: Path) -> None:
    with taken_over(tmp_path, "boxed.read = _asleep") as boxes, boxes.open() as opened:
        listening = forked_from(opened)
        frames.send(opened._channel, {"text": "hold"})
        assert eventually(lambda: locked(listening))
        for process in (listening, *alive(listening)):
            found = status(process)
            assert set(f"{found['Uid']}\t{found['Gid']}".split("\t")) == {str(sandbox.NOBODY)}
            assert found["Groups"] == ""
            assert {found[name].strip("0") for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {""}


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="not root")
def test_planted_a_box_of_root_is_found(tmp_path: Path) -> None:
    with (
        taken_over(tmp_path, "boxed.read = _asleep", planted="sandbox.become_nobody = lambda: None") as boxes,
        boxes.open() as opened,
    ):
        assert status(forked_from(opened))["Uid"].split("\t") == ["0"] * 4


def test_no_box_is_forked_where_root_cannot_be_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise sandbox.SandboxError("root cannot become the user")

    def too_late(*_: object) -> None:
        pytest.fail("the process goes on as root")

    monkeypatch.setattr(sandbox, "become_nobody", refused)
    monkeypatch.setattr(sandbox, "end_with_parent", too_late)
    monkeypatch.setattr(zygote, "ready", lambda: None)
    monkeypatch.setattr(os, "environ", {})  # which the process empties
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit, match="boxes cannot run: root cannot become the user"):
        zygote.serve(tmp_path / "zygote", locked=False)


def memory(folder: Path, kind: str, planted: str = "") -> int:
    """Return how many MiB of a kind of memory a box gets."""
    folder.mkdir()
    read = f"boxed.read = lambda *_: _told(str(_filled(mmap.{kind})))"
    with taken_over(folder, read, planted=planted) as boxes, boxes.open() as opened:
        with pytest.raises(GatewayError) as caught:
            opened.parse("SELECT 1")
        return int(caught.value.message)


@pytest.mark.long
def test_memory_is_limited_whatever_its_kind(tmp_path: Path) -> None:
    """Shared anonymous memory counted in no limit: 16 boxes took 24 GiB of the 16 that they may have."""
    assert memory(tmp_path / "shared", "MAP_SHARED") == 0
    assert memory(tmp_path / "private", "MAP_PRIVATE") <= sandbox.MOST_DATA >> 20


@pytest.mark.long
def test_planted_shared_memory_is_limited_by_the_address_space(tmp_path: Path) -> None:
    """Planted: a filter that lets it pass; the limit of all memory holds. Without both it is taken."""
    passing = "sandbox.program = sandbox.program_of_front"
    assert 0 < memory(tmp_path / "passing", "MAP_SHARED", passing) <= sandbox.MOST_DATA >> 20
    without = f"{passing}\nsandbox._size = lambda: 1 << 40"
    assert memory(tmp_path / "without", "MAP_SHARED", without) > sandbox.MOST_DATA >> 20
