"""The lock of a box, tried from inside: what it takes, and that it is refused where it would bind one thread of many."""

from __future__ import annotations

import json
import os
import platform
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from dpsql.gateway import sandbox

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not sandbox.available().whole, reason="this system has no Landlock or no seccomp")


def inside(kind: str, folder: Path) -> dict[str, str]:
    (folder / "decoy.csv").write_text("id,name\n7,Ann\n")
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.boxes_inside", kind],
        cwd=ROOT,
        env={**os.environ, "DPSQL_INSIDE": str(folder), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_nothing_is_reached_from_inside(tmp_path: Path) -> None:
    found = inside("tried", tmp_path)
    assert len(found) > 30
    harmless = {"glob": "done: []", "unshare": "done: 'Operation not permitted'"}
    assert {name: told for name, told in found.items() if told.startswith("done")} == harmless
    denied = [name for name, told in found.items() if told.startswith("PermissionError")]
    assert len(denied) > 20
    assert [path.name for path in tmp_path.iterdir()] == ["decoy.csv"]
    assert (tmp_path / "decoy.csv").read_text().endswith("Ann\n")


def test_a_front_has_the_network_and_threads_and_nothing_else(tmp_path: Path) -> None:
    found = inside("front", tmp_path)
    done = {name for name, told in found.items() if told.startswith("done") and name != "unshare"}
    assert done == {"socket.AF_INET", "socket.AF_UNIX", "socketpair", "thread", "read Python", "open /dev/urandom"}
    assert len(found) > 25
    assert [path.name for path in tmp_path.iterdir()] == ["decoy.csv"]
    assert (tmp_path / "decoy.csv").read_text().endswith("Ann\n")


def test_a_lock_beside_another_thread_is_refused(tmp_path: Path) -> None:
    found = inside("late", tmp_path)
    assert found["lock"] == "SandboxError: the process has 2 threads, and only one would be locked"
    assert "Ann" in found["own"]


def test_the_check_is_needed(tmp_path: Path) -> None:
    """Planted: without it the lock succeeds, and the other thread still reads the file."""
    found = inside("unchecked", tmp_path)
    assert found["lock"] == "done: None"
    assert found["own"].startswith("PermissionError")
    assert "Ann" in found["read"]


def test_a_lock_beside_the_threads_of_duckdb_is_refused(tmp_path: Path) -> None:
    assert inside("connected", tmp_path)["lock"].startswith("SandboxError: the process has ")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_does_what_it_says(machine: str) -> None:
    """The kernel's instructions, run here: each refused call gives EPERM, others pass, other machines are killed."""
    written = sandbox.program(machine)
    steps = [struct.unpack_from("=HBBI", written, at) for at in range(0, len(written), 8)]

    def run(architecture: int, number: int) -> int:
        at, held = 0, 0
        while True:
            code, yes, no, value = steps[at]
            if code == 0x20:
                held, at = {0: number, 4: architecture}[value], at + 1
            elif code == 0x06:
                return value
            else:
                holds = held == value if code == 0x15 else held >= value
                at += 1 + (yes if holds else no)

    own = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
    refused = sandbox._CALLS[machine]
    assert {run(own[machine], number) for number in refused.values()} == {0x00050001}
    passed = set(range(500)) - set(refused.values())
    assert {run(own[machine], number) for number in passed} == {0x7FFF0000}
    other = own["aarch64" if machine == "x86_64" else "x86_64"]
    assert run(other, 0) == 0x80000000
    assert machine != "x86_64" or run(own[machine], 0x40000000) == 0x80000000


def test_all_architectures_refuse_the_same() -> None:
    """ARM has no fork of its own, and no other calls are missing."""
    assert set(sandbox.refused_calls("x86_64")) - set(sandbox.refused_calls("aarch64")) == {"fork", "vfork"}
    assert set(sandbox.refused_calls("aarch64")) <= set(sandbox.refused_calls("x86_64"))


def test_the_numbers_are_those_of_this_system() -> None:
    """By the system's own header, where it is installed."""
    header = Path("/usr/include") / f"{platform.machine()}-linux-gnu" / "asm" / "unistd_64.h"
    if platform.machine() != "x86_64" or not header.exists():
        pytest.skip("no header of system calls")
    lines = (line.split() for line in header.read_text().splitlines() if line.startswith("#define __NR_"))
    known = {words[1].removeprefix("__NR_"): int(words[2]) for words in lines if words[2].isdecimal()}
    assert {
        name: number for name, number in sandbox._CALLS["x86_64"].items() if known.get(name, number) != number
    } == {}
