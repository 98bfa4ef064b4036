"""The lock of a box, tried from inside: what it takes, and that it is refused where it would bind one thread of many."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from dpsql.gateway import sandbox, system_calls

MODE = 0o640
ROOT = Path(__file__).resolve().parents[2]
locked = pytest.mark.skipif(not sandbox.available().is_complete, reason="this system has no Landlock or no seccomp")


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


reached_the_kernel = {"clock_settime", "settimeofday", "adjtimex", "clock_adjtime", "sethostname", "setdomainname"}
reached_the_kernel |= {"acct", "swapoff", "syslog"}
of_files = {"stat", "lstat", "stat of a write-ahead log", "statx", "access", "readlink", "statvfs", "chdir", "getcwd"}


@pytest.mark.long
@locked
def test_nothing_is_reached_from_inside(tmp_path: Path) -> None:
    found = inside("tried", tmp_path)
    assert len(found) > 30
    done = {name: told for name, told in found.items() if told.startswith("done")}
    assert done.pop("unshare") == "done: 'Operation not permitted'"
    assert done.keys() <= {"glob", "read_text"}  # files that cannot be looked for are not there, says DuckDB
    assert set(done.values()) <= {"done: []"}
    denied = {name for name, told in found.items() if told.startswith("PermissionError")}
    assert denied >= {*reached_the_kernel, *of_files, "shared anonymous memory", "memory to run", "memory made to run"}
    assert denied >= {"alarm", "sleep", "signal of the parent's end", "setuid", "setgroups"}
    assert len(denied) > 60
    assert [path.name for path in tmp_path.iterdir()] == ["decoy.csv"]
    assert (tmp_path / "decoy.csv").read_text().endswith("Ann\n")
    assert (tmp_path / "decoy.csv").stat().st_mode & 0o777 == MODE


@pytest.mark.long
@locked
def test_a_front_has_the_network_and_threads_and_nothing_else(tmp_path: Path) -> None:
    found = inside("front", tmp_path)
    done = {name for name, told in found.items() if told.startswith("done") and name != "unshare"}
    network = {"socket.AF_INET", "socket.AF_UNIX", "socketpair"}
    assert done == {*network, "thread", "read Python", "open /dev/urandom", "own limit"}
    assert len(found) > 25
    assert {name for name, told in found.items() if told.startswith("PermissionError")} >= reached_the_kernel
    assert [path.name for path in tmp_path.iterdir()] == ["decoy.csv"]
    assert (tmp_path / "decoy.csv").read_text().endswith("Ann\n")
    assert (tmp_path / "decoy.csv").stat().st_mode & 0o777 == MODE


@pytest.mark.long
@locked
def test_a_lock_beside_another_thread_is_refused(tmp_path: Path) -> None:
    found = inside("late", tmp_path)
    assert found["lock"] == "SandboxError: the process has 2 threads, and only one would be locked"
    assert "Ann" in found["own"]


@pytest.mark.long
@locked
def test_the_check_is_needed(tmp_path: Path) -> None:
    """Planted: without it the lock succeeds, and the other thread still reads the file."""
    found = inside("unchecked", tmp_path)
    assert found["lock"] == "done: None"
    assert found["own"].startswith("PermissionError")
    assert "Ann" in found["read"]


@pytest.mark.long
@locked
def test_a_lock_beside_the_threads_of_duckdb_is_refused(tmp_path: Path) -> None:
    assert inside("connected", tmp_path)["lock"].startswith("SandboxError: the process has ")


MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
NUMBERS = range(500)


def answered(written: bytes, architecture: int, number: int, *arguments: int) -> int:
    """Run the kernel's instructions: what a filter answers to a call with some arguments."""
    steps = [struct.unpack_from("=HBBI", written, at) for at in range(0, len(written), 8)]
    given = [*arguments, *[0] * (6 - len(arguments))]
    at, held, seen = 0, 0, {0: number, 4: architecture, **{16 + 8 * i: one & 0xFFFFFFFF for i, one in enumerate(given)}}
    while True:
        code, yes, no, value = steps[at]
        if code == 0x20:
            held, at = seen[value], at + 1
        elif code == 0x54:
            held, at = held & value, at + 1
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


def of_box(machine: str) -> dict[str, int]:
    return {name: call.numbers[machine] for name, call in system_calls.BOX.items() if machine in call.numbers}


# Arguments of calls that are judged by them: what a box needs, and what it must not have.
GOOD = {
    "mmap": [(0, 4096, 3, 0x22), (0, 4096, 0, 0x4022), (0, 4096, 1, 0x32), (0, 4096, 3, 0x20022)],
    "mremap": [(0, 1, 2, 0), (0, 1, 2, 1)],
    "madvise": [(0, 1, 4), (0, 1, 8)],
    "mprotect": [(0, 1, 3), (0, 1, 0)],
    "futex": [(0, 0x80), (0, 0x81), (0, 0x189)],
}
BAD = {
    "mmap": [
        (0, 4096, 3, 0x21),  # shared, anonymous
        (0, 4096, 3, 0x23),
        (0, 4096, 3, 0x01),  # shared, of a file
        (0, 4096, 3, 0x02),  # private, of a file
        (0, 4096, 7, 0x22),  # to be run
        (0, 4096, 4, 0x22),
        (0, 4096, 3, 0x2022),  # locked
        (0, 4096, 3, 0x40022),  # huge pages
        (0, 4096, 3, 0x122),  # that grow downwards
    ],
    "mremap": [(0, 1, 2, 3), (0, 1, 2, 4), (0, 1, 2, 2)],
    "madvise": [(0, 1, 100), (0, 1, 9), (0, 1, 12), (0, 1, 21), (0, 1, 101)],
    "mprotect": [(0, 1, 4), (0, 1, 7), (0, 1, 0x1000003)],
    "futex": [(0, 0), (0, 1), (0, 0x83), (0, 0x84), (0, 0x86), (0, 0x8B)],
}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_filter_of_a_box_allows_its_list_and_nothing_else(machine: str) -> None:
    """Whatever the arguments of a call are that is not in the list; other machines are killed."""
    written, own, numbers = sandbox.program(machine), MACHINES[machine], of_box(machine)
    for arguments in ((), (0, 0x80, 3, 0x22), (2**32 - 1,) * 6):
        found = {number: answered(written, own, number, *arguments) for number in NUMBERS}
        refused = {number: told for number, told in found.items() if number not in numbers.values()}
        assert {told for number, told in refused.items() if number < system_calls.FIRST_UNKNOWN} == {EPERM}
        assert {told for number, told in refused.items() if number >= system_calls.FIRST_UNKNOWN} == {ENOSYS}
    _arguments_are_judged(machine)
    assert {name for name, call in system_calls.BOX.items() if call.arguments} == GOOD.keys() == BAD.keys()
    _foreign_are_killed(written, machine)


def _arguments_are_judged(machine: str) -> None:
    written, own = sandbox.program(machine), MACHINES[machine]
    for name, number in of_box(machine).items():
        assert {answered(written, own, number, *one) for one in GOOD.get(name, [()])} == {ALLOW}, name
        assert {answered(written, own, number, *one) for one in BAD.get(name, [])} <= {EPERM}, name


@pytest.mark.parametrize("machine", MACHINES)
def test_planted_filters_of_boxes_are_found(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: each judged call without its arguments."""
    whole = dict(system_calls.BOX)
    for name in GOOD:
        monkeypatch.setattr(system_calls, "BOX", {**whole, name: replace(whole[name], arguments=())})
        with pytest.raises(AssertionError):
            _arguments_are_judged(machine)
    assert all(call.why for call in whole.values())


def test_a_box_is_given_no_call_of_files_processes_and_clocks() -> None:
    """By name: the list is short enough to be read, and grows by a decision alone."""
    assert set(system_calls.BOX) == {
        *("recvfrom", "sendto", "brk", "mmap", "munmap", "mremap", "madvise", "mprotect", "futex", "getrandom"),
        *("exit", "exit_group", "rt_sigreturn", "restart_syscall", "clock_gettime", "gettimeofday", "time", "getcpu"),
        *("sched_yield", "close", "getpid", "gettid"),
    }


@pytest.mark.parametrize("machine", MACHINES)
def test_the_filter_of_a_front_does_what_it_says(machine: str) -> None:
    written, own, numbers = sandbox.program_of_front(machine), MACHINES[machine], system_calls.FRONT[machine]
    judged = {numbers[name] for name in ("clone", "clone3", "prlimit64")}
    refused = set(numbers.values()) - judged
    assert len(refused) > 80
    assert {answered(written, own, number) for number in refused} == {EPERM}
    assert {answered(written, own, number) for number in set(NUMBERS) - refused - judged} == {ALLOW}
    assert answered(written, own, numbers["clone3"]) == ENOSYS  # a library then takes clone
    assert answered(written, own, numbers["clone"], 0x3D0F00) == ALLOW  # a thread, as glibc begins one
    assert answered(written, own, numbers["clone"], 0x01200011) == EPERM  # a process
    assert answered(written, own, numbers["prlimit64"], 0) == ALLOW
    assert answered(written, own, numbers["prlimit64"], os.getppid()) == EPERM
    _foreign_are_killed(written, machine)


def _foreign_are_killed(written: bytes, machine: str) -> None:
    for architecture in {*MACHINES.values(), 0x40000003, 0x40000028, 0} - {MACHINES[machine]}:  # of 32 bits, too
        assert {answered(written, architecture, number) for number in NUMBERS} == {KILL}
    if machine == "x86_64":
        assert {answered(written, MACHINES[machine], 0x40000000 | number) for number in NUMBERS} == {KILL}


def test_fronts_of_all_architectures_refuse_the_same() -> None:
    """ARM has not what a newer call of the same has in its place, nor ports of x86, and no other calls are missing."""
    older = {"fork", "vfork", "chmod", "chown", "lchown", "utime", "utimes", "futimesat"}
    of_x86 = {"iopl", "ioperm", "uselib", "modify_ldt"}
    x86, arm = (set(system_calls.FRONT[machine]) for machine in ("x86_64", "aarch64"))
    assert x86 - arm == older | of_x86
    assert arm <= x86
    for table in (*system_calls.FRONT.values(), *map(of_box, MACHINES)):
        assert len(set(table.values())) == len(table)
    assert not (older | of_x86) & set(of_headers("aarch64"))
    assert set(of_box("x86_64")) - set(of_box("aarch64")) == {"time"}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_those_of_the_kernel(machine: str) -> None:
    known = of_headers(machine)
    assert len(known) > 250
    for table in (system_calls.FRONT[machine], of_box(machine)):
        assert wrong(table, known) == {}
        for name, number in table.items():  # planted: a number of the next call, and a name with a slip
            if number <= max(known.values()):
                assert wrong({**table, name: number + 1}, known) == {name: number + 1}
                assert wrong({f"{name}x": number}, known) == {f"{name}x": number}
