"""Lock the calling process: no files, no network, no other process, no further thread. This needs Linux.

`lock_front` locks less: the front has the network and threads, reads what Python needs, and writes no file.

The order matters (`dpsql.gateway.boxed` keeps it): Landlock and seccomp bind only the calling thread. So the process
must have one thread when it locks itself, and DuckDB must connect before, since DuckDB reads ``/proc/self``. Open files
stay usable: a process first closes the files that it does not need.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
from collections.abc import Iterable
from pathlib import Path

from dpsql.dataclass import dataclass
from dpsql.gateway import system_calls

CPU_SECONDS, MOST_DATA, MOST_FILES = 5, 1 << 30, 64
# Linux's user "nobody", who owns nothing.
NOBODY = 65_534
_PARENT_DEATH = 1
_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF, _ASK_VERSION, _BENEATH = 444, 445, 446, 1, 1
_READ_FILE, _READ_FOLDER = 1 << 2, 1 << 3
# File rights by Landlock version: 13 rights in the first, then REFER, TRUNCATE and IOCTL_DEV.
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_NET_RIGHTS, _SCOPES = 3, 3  # since 4: bind and connect; since 6: abstract sockets and signals

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _ARGUMENT_SIZE, _A_THREAD = 0, 4, 16, 8, 0x10000
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_Steps = list[tuple[int, int, int, int]]


class SandboxError(Exception):
    """The process cannot be locked, or is in the wrong state; the text names the missing part."""


@dataclass(frozen=True)
class SystemLocks:
    """Locks that this system offers.

    Attributes
    ----------
    landlock : int
        The version of Landlock; 0 without it.
    seccomp : bool
        Whether system calls can be filtered, and their numbers are known here.
    """

    landlock: int
    seccomp: bool

    @property
    def is_complete(self) -> bool:
        """Whether both exist."""
        return self.landlock > 0 and self.seccomp


def available() -> SystemLocks:
    """Return the locks that this system offers."""
    if platform.system() != "Linux":
        return SystemLocks(0, False)
    version = _system_call(_CREATE_RULESET, None, 0, _ASK_VERSION)
    return SystemLocks(max(version, 0), platform.machine() in _ARCHITECTURES and _prctl_knows_filters())


def limit(cpu_seconds: int = CPU_SECONDS) -> None:
    """Limit memory, processor time and files of this process; it writes no file and no core.

    All memory counts, shared or not: the process may have `MOST_DATA` more than now.
    """
    sizes = [(resource.RLIMIT_AS, _size() + MOST_DATA)] if platform.system() == "Linux" else []
    for name, most in (
        *sizes,
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_DATA, MOST_DATA),
        (resource.RLIMIT_NOFILE, MOST_FILES),
        (resource.RLIMIT_FSIZE, 0),
    ):
        resource.setrlimit(name, (most, most))


def _size() -> int:
    """Return the bytes of this process's address space."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def become_nobody() -> None:
    """Drop root's rights for good; a process of another user does not change.

    Raises
    ------
    SandboxError
        The system refuses, such as a container without this user.
    """
    if os.getuid() != 0 and os.geteuid() != 0:
        return
    try:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    except OSError as error:
        raise SandboxError(f"root cannot become the user {NOBODY}: {error.strerror}") from None
    if 0 in (os.getuid(), os.geteuid(), os.getgid(), os.getegid()) or os.getgroups():
        raise SandboxError(f"root has not become the user {NOBODY}")


def end_with_parent(signal_: int, parent: int) -> None:
    """Let the kernel send this process a signal when its parent ends; end it if the parent has ended already."""
    if platform.system() == "Linux":
        _checked(_prctl(_PARENT_DEATH, int(signal_), 0, 0, 0), "the signal of a parent's end")
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def check_alone() -> None:
    """Raise unless this process has one thread: a lock binds no other thread.

    Raises
    ------
    SandboxError
    """
    if os.path.isdir("/proc/self/task"):
        count = len(os.listdir("/proc/self/task"))
        if count != 1:
            raise SandboxError(f"the process has {count} threads, and only one would be locked")


def lock() -> None:
    """Block files, the network and other processes for this process, for good.

    Raises
    ------
    SandboxError
        This system lacks Landlock or seccomp, or there is another thread.
    """
    _lock((), network=False, calls=program(platform.machine()))


def lock_front(readable: Iterable[str | os.PathLike[str]]) -> None:
    """Block, for good, other programs, other processes, and all files except some to read.

    The process keeps the network, threads, and open files.

    Parameters
    ----------
    readable : iterable of path
        Files, and folders with their content; missing paths are skipped.

    Raises
    ------
    SandboxError
        As in `lock`.
    """
    _lock(readable, network=True, calls=program_of_front(platform.machine()))


def _lock(readable: Iterable[str | os.PathLike[str]], *, network: bool, calls: bytes) -> None:
    check_alone()
    support = available()
    if not support.is_complete:
        raise SandboxError("this system has no Landlock or no seccomp")
    # Landlock requires it if the process has no rights over the system.
    _checked(_prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _lock_files(support.landlock, readable, network=network)
    _filter_calls(calls)


def _lock_files(version: int, readable: Iterable[str | os.PathLike[str]], *, network: bool) -> None:
    """Block all file rights that Landlock knows, except to read some files."""
    files = _FILE_RIGHTS[max(level for level in _FILE_RIGHTS if level <= version)]
    net = 0 if network else _NET_RIGHTS
    fields = [files, *([net] if version >= 4 else []), *([_SCOPES] if version >= 6 else [])]
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    rules = _checked(_system_call(_CREATE_RULESET, attributes, len(attributes), 0), "Landlock's rules")
    try:
        for path in readable:
            _allow_reading(rules, path)
        _checked(_system_call(_RESTRICT_SELF, rules, 0), "Landlock")
    finally:
        os.close(rules)


def _allow_reading(rules: int, path: str | os.PathLike[str]) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rights = _READ_FILE | (_READ_FOLDER if os.path.isdir(path) else 0)
        rule = struct.pack("=Qi", rights, descriptor)
        _checked(_system_call(_ADD_RULE, rules, _BENEATH, rule, 0), "a rule of Landlock")
    finally:
        os.close(descriptor)


def program(machine: str) -> bytes:
    """Return a box's filter for an architecture, as kernel instructions: it refuses all unlisted calls.

    A refused call fails and does not kill the box: libraries try calls that a system may lack, and then use others.
    """
    steps = _head(machine)
    for call in system_calls.BOX.values():
        number = call.numbers.get(machine)
        if number is not None:
            judged = [step for argument in call.arguments for step in _judged(argument)] + [(_RETURN, 0, 0, _ALLOW)]
            steps += [(_EQUAL, 0, len(judged), number), *judged]
    steps += [(_AT_LEAST, 0, 1, system_calls.FIRST_UNKNOWN), (_RETURN, 0, 0, _ERROR | system_calls.UNKNOWN)]
    return _encode([*steps, (_RETURN, 0, 0, _ERROR | system_calls.REFUSED)])


def program_of_front(machine: str) -> bytes:
    """Return the filter of a front for an architecture."""
    numbers = system_calls.FRONT[machine]
    steps = _head(machine)
    # A filter cannot see clone3's flags, so clone3 is unknown: threads use clone, which must be for a thread.
    steps += [(_EQUAL, 0, 1, numbers["clone3"]), (_RETURN, 0, 0, _ERROR | errno.ENOSYS)]
    steps += [(_EQUAL, 0, 4, numbers["clone"]), (_LOAD, 0, 0, _FIRST_ARGUMENT), (_ANY_BIT, 0, 1, _A_THREAD)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERROR | errno.EPERM)]
    steps += [(_EQUAL, 0, 4, numbers["prlimit64"]), (_LOAD, 0, 0, _FIRST_ARGUMENT), (_EQUAL, 0, 1, 0)]  # its own
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERROR | errno.EPERM)]
    refused = sorted(set(numbers.values()))
    steps += [(_EQUAL, len(refused) - index, 0, number) for index, number in enumerate(refused)]
    return _encode([*steps, (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERROR | errno.EPERM)])


def _head(machine: str) -> _Steps:
    """Return the steps that end the process on another architecture, and load the call number."""
    steps = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, _ARCHITECTURES[machine]), (_RETURN, 0, 0, _KILL)]
    steps += [(_LOAD, 0, 0, _NUMBER)]
    if machine == "x86_64":  # numbers of the x32 interface
        steps += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _KILL)]
    return steps


def _judged(argument: system_calls.JudgedArgument) -> _Steps:
    """Return the steps that refuse a call unless an argument has one of its values."""
    steps = [(_LOAD, 0, 0, _FIRST_ARGUMENT + _ARGUMENT_SIZE * argument.index), (_AND, 0, 0, argument.mask)]
    count = len(argument.values)
    steps += [(_EQUAL, count - index, 0, value) for index, value in enumerate(argument.values)]
    return [*steps, (_RETURN, 0, 0, _ERROR | system_calls.REFUSED)]


def _encode(steps: _Steps) -> bytes:
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _filter_calls(instructions: bytes) -> None:
    code = ctypes.create_string_buffer(instructions, len(instructions))
    descriptor = struct.pack("@HP", len(instructions) // 8, ctypes.addressof(code))
    _checked(_prctl(_SET_SECCOMP, _FILTER, descriptor, 0, 0), "seccomp")


def _prctl_knows_filters() -> bool:
    # A kernel with filters reports a bad address without one; another kernel does not know the mode.
    return _prctl(_SET_SECCOMP, _FILTER, None, 0, 0) == -1 and ctypes.get_errno() == errno.EFAULT


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _system_call(number: int, *arguments: object) -> int:
    outcome: int = _libc().syscall(ctypes.c_long(number), *map(_word, arguments))
    return outcome


def _prctl(option: int, *arguments: object) -> int:
    outcome: int = _libc().prctl(option, *map(_word, arguments))
    return outcome


def _word(value: object) -> object:
    return ctypes.c_long(value) if isinstance(value, int) else value


def _checked(outcome: int, what: str) -> int:
    if outcome < 0:
        raise SandboxError(f"{what}: {os.strerror(ctypes.get_errno())}")
    return outcome
