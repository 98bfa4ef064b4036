"""Locks the calling process: no files, no network, no other process, no further thread. Linux alone has what it takes.

The front is locked less (`lock_front`): it has the network and threads, reads what Python needs, and writes no file.

The order matters (`dpsql.gateway.box` keeps it): Landlock and seccomp bind only the calling thread. So the process must
have one thread when it locks itself, and DuckDB must be connected before, since it reads ``/proc/self`` on its way.
What is open stays usable: a process closes what it does not need first.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

CPU_SECONDS, MOST_DATA, MOST_FILES = 5, 1 << 30, 64
_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF, _ASK_VERSION, _BENEATH = 444, 445, 446, 1, 1
_READ_FILE, _READ_FOLDER = 1 << 2, 1 << 3
# Rights of files by the version that brought them: 13 of the first, then REFER, TRUNCATE and IOCTL_DEV.
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_NET_RIGHTS, _SCOPES = 3, 3  # since 4: bind and connect; since 6: abstract sockets and signals

# System calls that are refused, by architecture: what begins a process, reads or disturbs another, opens a socket,
# mounts, or changes what Landlock leaves alone: modes, owners, times and attributes of files, and in its first versions
# their length.
_NEWER = {
    **{"pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427},
    **{"open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433},
    **{"pidfd_open": 434, "clone3": 435, "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442},
    **{"process_mrelease": 448, "fchmodat2": 452, "setxattrat": 463, "removexattrat": 466},
}
_CALLS = {
    "x86_64": {
        **{"shmget": 29, "socket": 41, "connect": 42, "accept": 43, "bind": 49, "listen": 50, "socketpair": 53},
        **{"clone": 56, "fork": 57, "vfork": 58, "execve": 59, "kill": 62, "semget": 64, "msgget": 68, "ptrace": 101},
        **{"pivot_root": 155, "setrlimit": 160, "chroot": 161, "mount": 165, "umount2": 166, "reboot": 169},
        **{"init_module": 175, "delete_module": 176, "tkill": 200, "tgkill": 234, "mq_open": 240, "kexec_load": 246},
        **{"add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272, "accept4": 288, "perf_event_open": 298},
        **{"prlimit64": 302, "name_to_handle_at": 303, "open_by_handle_at": 304, "setns": 308},
        **{"process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "memfd_create": 319},
        **{"bpf": 321, "execveat": 322, "userfaultfd": 323, **_NEWER},
        **{"truncate": 76, "chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93, "lchown": 94, "utime": 132},
        **{"setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "removexattr": 197, "lremovexattr": 198},
        **{"fremovexattr": 199, "utimes": 235, "fchownat": 260, "futimesat": 261, "fchmodat": 268, "utimensat": 280},
        **{"shmat": 30, "shmctl": 31, "semop": 65, "semctl": 66, "msgsnd": 69, "msgrcv": 70, "msgctl": 71},
        **{"semtimedop": 220, "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297, "setpriority": 141},
        **{"sched_setparam": 142, "sched_setscheduler": 144, "sched_setaffinity": 203, "ioprio_set": 251},
        **{"sched_setattr": 314, "inotify_add_watch": 254, "fanotify_init": 300},
    },
    "aarch64": {
        **{"umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "unshare": 97, "kexec_load": 104},
        **{"init_module": 105, "delete_module": 106, "ptrace": 117, "kill": 129, "tkill": 130, "tgkill": 131},
        **{"reboot": 142, "setrlimit": 164, "mq_open": 180, "msgget": 186, "semget": 190, "shmget": 194},
        **{"socket": 198, "socketpair": 199, "bind": 200, "listen": 201, "accept": 202, "connect": 203},
        **{"add_key": 217, "request_key": 218, "keyctl": 219, "clone": 220, "execve": 221, "perf_event_open": 241},
        **{"accept4": 242, "prlimit64": 261, "name_to_handle_at": 264, "open_by_handle_at": 265, "setns": 268},
        **{"process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "memfd_create": 279},
        **{"bpf": 280, "execveat": 281, "userfaultfd": 282, **_NEWER},
        **{"setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15, "fremovexattr": 16},
        **{"truncate": 45, "fchmod": 52, "fchmodat": 53, "fchownat": 54, "fchown": 55, "utimensat": 88},
        **{"shmctl": 195, "shmat": 196, "semctl": 191, "semtimedop": 192, "semop": 193, "msgctl": 187, "msgrcv": 188},
        **{"msgsnd": 189, "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240, "setpriority": 140, "sched_setparam": 118},
        **{"sched_setscheduler": 119, "sched_setaffinity": 122, "ioprio_set": 30, "sched_setattr": 274},
        **{"inotify_add_watch": 27, "fanotify_init": 262},
    },
}
# What a process with the network and threads needs of these.
_OF_FRONT = {"socket", "socketpair", "connect", "bind", "listen", "accept", "accept4", "clone", "clone3", "tgkill"}
_OF_FRONT |= {"prlimit64"}
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_FIRST_ARGUMENT, _A_THREAD = 16, 0x10000
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000


class SandboxError(Exception):
    """The process cannot be locked, or is not in the state in which it may be; the text says what is missing."""


@dataclass(frozen=True)
class SystemLocks:
    """What this system has to lock a process with.

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
    def whole(self) -> bool:
        """Whether both are there."""
        return self.landlock > 0 and self.seccomp


def available() -> SystemLocks:
    """Return what this system has to lock a process with."""
    if platform.system() != "Linux":
        return SystemLocks(0, False)
    version = _system_call(_CREATE_RULESET, None, 0, _ASK_VERSION)
    return SystemLocks(max(version, 0), platform.machine() in _ARCHITECTURES and _prctl_knows_filters())


def limit(cpu_seconds: int = CPU_SECONDS) -> None:
    """Limit the memory, the processor time and the files of this process; it writes no file and no core."""
    for name, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_DATA, MOST_DATA),
        (resource.RLIMIT_NOFILE, MOST_FILES),
        (resource.RLIMIT_FSIZE, 0),
    ):
        resource.setrlimit(name, (most, most))


def check_alone() -> None:
    """Raise unless this process has one thread: no other thread would be locked.

    Raises
    ------
    SandboxError
    """
    if os.path.isdir("/proc/self/task"):
        count = len(os.listdir("/proc/self/task"))
        if count != 1:
            raise SandboxError(f"the process has {count} threads, and only one would be locked")


def lock() -> None:
    """Take files, the network and other processes from this process, for good.

    Raises
    ------
    SandboxError
        This system lacks Landlock or seccomp, or there is another thread.
    """
    _lock((), network=False, calls=program(platform.machine()))


def lock_front(readable: Iterable[str | os.PathLike[str]]) -> None:
    """Take from this process, for good, all files but some to read, other programs, and other processes.

    It keeps the network, threads, and what is open.

    Parameters
    ----------
    readable : iterable of path
        Files, and folders with all that is in them; what is not there is left out.

    Raises
    ------
    SandboxError
        As of `lock`.
    """
    _lock(readable, network=True, calls=program(platform.machine(), of_front=True))


def _lock(readable: Iterable[str | os.PathLike[str]], *, network: bool, calls: bytes) -> None:
    check_alone()
    found = available()
    if not found.whole:
        raise SandboxError("this system has no Landlock or no seccomp")
    # Landlock asks for it where the process has no rights over the system.
    _checked(_prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _lock_files(found.landlock, readable, network=network)
    _filter_calls(calls)


def _lock_files(version: int, readable: Iterable[str | os.PathLike[str]], *, network: bool) -> None:
    """Take all rights to files that Landlock knows, with rules that give back those to read some of them."""
    files = _FILE_RIGHTS[max(known for known in _FILE_RIGHTS if known <= version)]
    net = 0 if network else _NET_RIGHTS
    fields = [files, *([net] if version >= 4 else []), *([_SCOPES] if version >= 6 else [])]
    given = struct.pack(f"={len(fields)}Q", *fields)
    rules = _checked(_system_call(_CREATE_RULESET, given, len(given), 0), "Landlock's rules")
    try:
        for path in readable:
            _allow_reading(rules, path)
        _checked(_system_call(_RESTRICT_SELF, rules, 0), "Landlock")
    finally:
        os.close(rules)


def _allow_reading(rules: int, path: str | os.PathLike[str]) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rights = _READ_FILE | (_READ_FOLDER if os.path.isdir(path) else 0)
        given = struct.pack("=Qi", rights, place)
        _checked(_system_call(_ADD_RULE, rules, _BENEATH, given, 0), "a rule of Landlock")
    finally:
        os.close(place)


def program(machine: str, *, of_front: bool = False) -> bytes:
    """Return the filter of system calls for an architecture, as the kernel's instructions."""
    numbers = _CALLS[machine]
    refused = sorted({number for name, number in numbers.items() if not (of_front and name in _OF_FRONT)})
    head = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, _ARCHITECTURES[machine]), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    if machine == "x86_64":  # numbers of the x32 interface
        head += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _KILL)]
    if of_front:  # clone3, whose flags no filter sees, is unknown: so threads begin by clone, which has to be for one
        head += [(_EQUAL, 0, 1, numbers["clone3"]), (_RETURN, 0, 0, _ERROR | errno.ENOSYS)]
        head += [(_EQUAL, 0, 4, numbers["clone"]), (_LOAD, 0, 0, _FIRST_ARGUMENT), (_ANY_BIT, 0, 1, _A_THREAD)]
        head += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERROR | errno.EPERM)]
        head += [(_EQUAL, 0, 4, numbers["prlimit64"]), (_LOAD, 0, 0, _FIRST_ARGUMENT), (_EQUAL, 0, 1, 0)]  # its own
        head += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERROR | errno.EPERM)]
    tests = [(_EQUAL, len(refused) - place, 0, number) for place, number in enumerate(refused)]
    ends = [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERROR | errno.EPERM)]
    return b"".join(struct.pack("=HBBI", *one) for one in (*head, *tests, *ends))


def _filter_calls(written: bytes) -> None:
    code = ctypes.create_string_buffer(written, len(written))
    given = struct.pack("@HP", len(written) // 8, ctypes.addressof(code))
    _checked(_prctl(_SET_SECCOMP, _FILTER, given, 0, 0), "seccomp")


def _prctl_knows_filters() -> bool:
    # Without a filter the kernel that has filters finds a bad address; another one knows no such mode.
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


def refused_calls(machine: str) -> Sequence[str]:
    """Return the names of the system calls that are refused on an architecture."""
    return tuple(_CALLS[machine])
