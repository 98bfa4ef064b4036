"""System calls that a box may make, and that a front may not make: numbers, arguments and reasons.

A box has one thread, one open socket, and memory. `strace` over the hostile statements, statements over large answers
and boxes that fail, on DuckDB 1.5.6 and 2.0.1 (728 boxes each; x86-64, Linux 6.18, glibc 2.36), showed ten calls of a
locked box: recvfrom, sendto, brk, mmap, munmap, mremap, madvise, futex, getrandom and exit_group. The other calls of
the list were not traced: other kernels, C libraries and allocators make them for the same purposes. None of them names
a file, another process or a clock to set. The aarch64 numbers are from the kernel's table; no box ran there.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping

from dpsql.dataclass import dataclass

_ALL = 0xFFFFFFFF
# Memory is read and written, never run, and never shared: no limit of a process counts shared memory.
_READ_WRITE = (0, 1, 2, 3)
_PRIVATE_ANONYMOUS = 0x22
_OPTIONAL = 0x10 | 0x4000 | 0x8000 | 0x20000 | 0x100000  # FIXED, NORESERVE, POPULATE, STACK, FIXED_NOREPLACE
_ADVICE = (3, 4, 8, 14, 15, 16, 17)  # WILLNEED, DONTNEED, FREE, HUGEPAGE, NOHUGEPAGE, DONTDUMP, DODUMP
# WAIT, WAKE, WAIT_BITSET and WAKE_BITSET of this process, and waits by the system's clock.
_FUTEX = (0x80, 0x81, 0x89, 0x8A, 0x180, 0x189)


@dataclass(frozen=True)
class JudgedArgument:
    """Allowed values of one argument of a call.

    Attributes
    ----------
    index : int
        0 for the first argument.
    values : tuple of int
        Allowed values of the lower 32 bits; the kernel reads only these bits of these arguments.
    mask : int
        Bits that count.
    """

    index: int
    values: tuple[int, ...]
    mask: int = _ALL


@dataclass(frozen=True)
class AllowedCall:
    """A system call that a box may make.

    Attributes
    ----------
    numbers : mapping of str to int
        By architecture; a missing entry means no such call.
    why : str
    arguments : tuple of JudgedArgument
        All must match.
    """

    numbers: Mapping[str, int]
    why: str
    arguments: tuple[JudgedArgument, ...] = ()


def _call(x86_64: int, aarch64: int | None, why: str, *arguments: JudgedArgument) -> AllowedCall:
    numbers = {"x86_64": x86_64} if aarch64 is None else {"x86_64": x86_64, "aarch64": aarch64}
    return AllowedCall(numbers, why, arguments)


BOX: Mapping[str, AllowedCall] = {
    # Traced.
    "recvfrom": _call(45, 207, "reads the statement and the answers from the channel, its one socket"),
    "sendto": _call(44, 206, "writes to the channel"),
    "brk": _call(12, 214, "the heap of the C library"),
    "mmap": _call(
        9,
        222,
        "memory of allocators: private, anonymous, not to be run",
        JudgedArgument(2, _READ_WRITE),
        JudgedArgument(3, (_PRIVATE_ANONYMOUS,), _ALL & ~_OPTIONAL),
    ),
    "munmap": _call(11, 215, "gives memory back"),
    "mremap": _call(25, 216, "lets a large allocation grow, where it is or elsewhere", JudgedArgument(3, (0, 1))),
    "madvise": _call(28, 233, "gives pages back, or says how they are used", JudgedArgument(2, _ADVICE)),
    "futex": _call(202, 98, "locks of the C++ library, which nobody else holds", JudgedArgument(1, _FUTEX)),
    "getrandom": _call(318, 278, "random() and uuid(), seeds of hashes"),
    "exit_group": _call(231, 94, "ends the box"),
    # Not traced.
    "exit": _call(60, 93, "ends the box's one thread"),
    "mprotect": _call(10, 226, "heaps that the C library enlarges in place", JudgedArgument(2, _READ_WRITE)),
    "rt_sigreturn": _call(15, 139, "returns from a signal's handler"),
    "restart_syscall": _call(219, 128, "goes on with a call that a stop of the process interrupted"),
    "clock_gettime": _call(228, 113, "the time, where the kernel's shared page does not tell it"),
    "gettimeofday": _call(96, 169, "the same"),
    "time": _call(201, None, "the same"),
    "getcpu": _call(309, 168, "allocators that have memory by processor"),
    "sched_yield": _call(24, 124, "locks that spin"),
    "close": _call(3, 57, "closes the channel, and nothing else is open"),
    "getpid": _call(39, 172, "the C library, when it ends a process that is broken"),
    "gettid": _call(186, 178, "the same"),
}

# Newer calls are unknown in a box: a C library then uses the older call, which is judged.
FIRST_UNKNOWN = 424
REFUSED, UNKNOWN = errno.EPERM, errno.ENOSYS

# System calls that a front may not make: calls that start a process, read or disturb another, mount, set a clock or a
# system name, or change what Landlock ignores: modes, owners, times and attributes of files, and in its first versions
# their length. A front runs the libraries of three protocols, which make many and changing calls.
_NEWER = {
    **{"pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427},
    **{"open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433},
    **{"pidfd_open": 434, "clone3": 435, "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442},
    **{"process_mrelease": 448, "fchmodat2": 452, "setxattrat": 463, "removexattrat": 466},
}
FRONT: Mapping[str, Mapping[str, int]] = {
    "x86_64": {
        **{"shmget": 29},
        **{"clone": 56, "fork": 57, "vfork": 58, "execve": 59, "kill": 62, "semget": 64, "msgget": 68, "ptrace": 101},
        **{"pivot_root": 155, "setrlimit": 160, "chroot": 161, "mount": 165, "umount2": 166, "reboot": 169},
        **{"init_module": 175, "delete_module": 176, "tkill": 200, "mq_open": 240, "kexec_load": 246},
        **{"add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272, "perf_event_open": 298},
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
        **{"settimeofday": 164, "adjtimex": 159, "clock_settime": 227, "clock_adjtime": 305, "sethostname": 170},
        **{"setdomainname": 171, "acct": 163, "swapon": 167, "swapoff": 168, "syslog": 103, "quotactl": 179},
        **{"iopl": 172, "ioperm": 173, "vhangup": 153, "uselib": 134, "modify_ldt": 154, "migrate_pages": 256},
        **{"move_pages": 279, "kexec_file_load": 320, "lookup_dcookie": 212, "quotactl_fd": 443},
    },
    "aarch64": {
        **{"umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "unshare": 97, "kexec_load": 104},
        **{"init_module": 105, "delete_module": 106, "ptrace": 117, "kill": 129, "tkill": 130},
        **{"reboot": 142, "setrlimit": 164, "mq_open": 180, "msgget": 186, "semget": 190, "shmget": 194},
        **{"add_key": 217, "request_key": 218, "keyctl": 219, "clone": 220, "execve": 221, "perf_event_open": 241},
        **{"prlimit64": 261, "name_to_handle_at": 264, "open_by_handle_at": 265, "setns": 268},
        **{"process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "memfd_create": 279},
        **{"bpf": 280, "execveat": 281, "userfaultfd": 282, **_NEWER},
        **{"setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15, "fremovexattr": 16},
        **{"truncate": 45, "fchmod": 52, "fchmodat": 53, "fchownat": 54, "fchown": 55, "utimensat": 88},
        **{"shmctl": 195, "shmat": 196, "semctl": 191, "semtimedop": 192, "semop": 193, "msgctl": 187, "msgrcv": 188},
        **{"msgsnd": 189, "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240, "setpriority": 140, "sched_setparam": 118},
        **{"sched_setscheduler": 119, "sched_setaffinity": 122, "ioprio_set": 30, "sched_setattr": 274},
        **{"inotify_add_watch": 27, "fanotify_init": 262},
        **{"settimeofday": 170, "adjtimex": 171, "clock_settime": 112, "clock_adjtime": 266, "sethostname": 161},
        **{"setdomainname": 162, "acct": 89, "swapon": 224, "swapoff": 225, "syslog": 116, "quotactl": 60},
        **{"vhangup": 58, "migrate_pages": 238, "move_pages": 239, "kexec_file_load": 294, "lookup_dcookie": 18},
        **{"quotactl_fd": 443},
    },
}
