"""The lock of a box, tried from inside: what it takes, and that it is refused where it would bind one thread of many."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dpsql.gateway import sandbox

MODE = 0o640
ROOT = Path(__file__).resolve().parents[2]
locked = pytest.mark.skipif(not sandbox.available().whole, reason="this system has no Landlock or no seccomp")


def inside(kind: str, folder: Path) -> dict[str, str]:
    (folder / "decoy.csv").write_text("id,name\n7,Ann\n")
    (folder / "decoy.csv").chmod(MODE)
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


@locked
def test_nothing_is_reached_from_inside(tmp_path: Path) -> None:
    found = inside("tried", tmp_path)
    assert len(found) > 30
    harmless = {"glob": "done: []", "unshare": "done: 'Operation not permitted'"}
    assert {name: told for name, told in found.items() if told.startswith("done")} == harmless
    denied = [name for name, told in found.items() if told.startswith("PermissionError")]
    assert len(denied) > 20
    assert [path.name for path in tmp_path.iterdir()] == ["decoy.csv"]
    assert (tmp_path / "decoy.csv").read_text().endswith("Ann\n")
    assert (tmp_path / "decoy.csv").stat().st_mode & 0o777 == MODE


@locked
def test_a_front_has_the_network_and_threads_and_nothing_else(tmp_path: Path) -> None:
    found = inside("front", tmp_path)
    done = {name for name, told in found.items() if told.startswith("done") and name != "unshare"}
    network = {"socket.AF_INET", "socket.AF_UNIX", "socketpair"}
    assert done == {*network, "thread", "read Python", "open /dev/urandom", "own limit"}
    assert len(found) > 25
    assert [path.name for path in tmp_path.iterdir()] == ["decoy.csv"]
    assert (tmp_path / "decoy.csv").read_text().endswith("Ann\n")
    assert (tmp_path / "decoy.csv").stat().st_mode & 0o777 == MODE


@locked
def test_a_lock_beside_another_thread_is_refused(tmp_path: Path) -> None:
    found = inside("late", tmp_path)
    assert found["lock"] == "SandboxError: the process has 2 threads, and only one would be locked"
    assert "Ann" in found["own"]


@locked
def test_the_check_is_needed(tmp_path: Path) -> None:
    """Planted: without it the lock succeeds, and the other thread still reads the file."""
    found = inside("unchecked", tmp_path)
    assert found["lock"] == "done: None"
    assert found["own"].startswith("PermissionError")
    assert "Ann" in found["read"]


@locked
def test_a_lock_beside_the_threads_of_duckdb_is_refused(tmp_path: Path) -> None:
    assert inside("connected", tmp_path)["lock"].startswith("SandboxError: the process has ")


MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026


def answered(written: bytes, architecture: int, number: int, first: int = 0) -> int:
    """Run the kernel's instructions: what a filter answers to a call with a first argument."""
    steps = [struct.unpack_from("=HBBI", written, at) for at in range(0, len(written), 8)]
    at, held, seen = 0, 0, {0: number, 4: architecture, 16: first & 0xFFFFFFFF}
    while True:
        code, yes, no, value = steps[at]
        if code == 0x20:
            held, at = seen[value], at + 1
        elif code == 0x06:
            return value
        else:
            holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
            at += 1 + (yes if holds else no)


def of_headers(machine: str) -> dict[str, int]:
    """Return the numbers of system calls by the kernel's headers: those of ARM are the generic ones."""
    names = {"x86_64": "x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "asm-generic/unistd.h"}
    header = Path("/usr/include") / names[machine]
    if not header.exists():
        pytest.skip(f"no {header}: Debian has it in linux-libc-dev")
    found = re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)\s*$", header.read_text(), re.MULTILINE)
    return {name: int(number) for name, number in found if name != "syscalls"}


def wrong(table: Mapping[str, int], known: Mapping[str, int]) -> dict[str, int]:
    """Return what a table says otherwise than a header, and names that the header's time had and it has not."""
    newest = max(known.values())
    return {
        name: number for name, number in table.items() if known.get(name, 0 if number <= newest else number) != number
    }


@pytest.mark.parametrize("machine", MACHINES)
def test_the_filter_does_what_it_says(machine: str) -> None:
    """Each refused call gives EPERM, others pass, other machines are killed."""
    written, own = sandbox.program(machine), MACHINES[machine]
    refused = sandbox._CALLS[machine]
    assert len(refused) > 80
    assert {answered(written, own, number) for number in refused.values()} == {EPERM}
    passed = set(range(500)) - set(refused.values())
    assert {answered(written, own, number) for number in passed} == {ALLOW}
    _foreign_are_killed(written, machine)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_filter_of_a_front_does_what_it_says(machine: str) -> None:
    written, own, numbers = sandbox.program(machine, of_front=True), MACHINES[machine], sandbox._CALLS[machine]
    judged = {numbers[name] for name in ("clone", "clone3", "prlimit64")}
    refused = {number for name, number in numbers.items() if name not in sandbox._OF_FRONT}
    assert {answered(written, own, number) for number in refused} == {EPERM}
    assert {answered(written, own, number) for number in set(range(500)) - refused - judged} == {ALLOW}
    assert answered(written, own, numbers["clone3"]) == ENOSYS  # a library then takes clone
    assert answered(written, own, numbers["clone"], 0x3D0F00) == ALLOW  # a thread, as glibc begins one
    assert answered(written, own, numbers["clone"], 0x01200011) == EPERM  # a process
    assert answered(written, own, numbers["prlimit64"], 0) == ALLOW
    assert answered(written, own, numbers["prlimit64"], os.getppid()) == EPERM
    _foreign_are_killed(written, machine)


def _foreign_are_killed(written: bytes, machine: str) -> None:
    for architecture in {*MACHINES.values(), 0x40000003, 0x40000028, 0} - {MACHINES[machine]}:  # of 32 bits, too
        assert {answered(written, architecture, number) for number in range(500)} == {KILL}
    if machine == "x86_64":
        assert {answered(written, MACHINES[machine], 0x40000000 | number) for number in range(500)} == {KILL}


@pytest.mark.parametrize("machine", MACHINES)
def test_what_python_duckdb_and_arrow_need_passes(machine: str) -> None:
    known, written = of_headers(machine), sandbox.program(machine)
    needed = ("read", "write", "mmap", "munmap", "mprotect", "madvise", "brk", "futex", "close", "exit", "exit_group")
    needed += ("recvfrom", "recvmsg", "sendto", "sendmsg", "getrandom", "clock_gettime", "rt_sigreturn", "sched_yield")
    assert {answered(written, MACHINES[machine], known[name]) for name in needed} == {ALLOW}


def test_all_architectures_refuse_the_same() -> None:
    """ARM has not what a newer call of the same has in its place, and no other calls are missing."""
    older = {"fork", "vfork", "chmod", "chown", "lchown", "utime", "utimes", "futimesat"}
    assert set(sandbox.refused_calls("x86_64")) - set(sandbox.refused_calls("aarch64")) == older
    assert set(sandbox.refused_calls("aarch64")) <= set(sandbox.refused_calls("x86_64"))
    for machine in MACHINES:
        assert not older & set(of_headers("aarch64"))
        assert len(set(sandbox._CALLS[machine].values())) == len(sandbox._CALLS[machine])


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_those_of_the_kernel(machine: str) -> None:
    table, known = sandbox._CALLS[machine], of_headers(machine)
    assert len(known) > 250
    assert wrong(table, known) == {}
    for name, number in table.items():  # planted: a number of the next call, and a name with a slip
        if number <= max(known.values()):
            assert wrong({**table, name: number + 1}, known) == {name: number + 1}
            assert wrong({f"{name}x": number}, known) == {f"{name}x": number}
