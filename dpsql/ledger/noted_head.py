"""The noted head of a ledger: which entry was the last one that anybody was told of, in a file beside the ledger.

SQLite reads its log up to the first frame that is not whole and drops the rest without a word, and the state before is
a ledger whose chain is right. So after each commit, and before the answer leaves, the last entry's number and hash are
written to ``x.dpsql-ledger.head``, which does not share the fate of the log: a ledger that does not hold the noted
entry has lost some. A file copied without its note is taken as it is, unless it comes with a log.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256

from dpsql.ledger.file import create, sync_folder

SUFFIX = ".head"
# A record fills a sector of the disk: a write that a crash cuts in two leaves the other records as they are.
_SECTOR = 512
# A process that is held up between its commit and its note must not overwrite the note of a later entry; it would have
# to be held up for this many entries of others.
_RECORDS = 64
_record = re.compile(rb"([0-9a-f]{32}) ([0-9]{20}) ([0-9a-f]{64}) ([0-9a-f]{16}) *\n")
_sync = getattr(os, "fdatasync", os.fsync)  # the file's size never changes


@dataclass(frozen=True, order=True)
class Head:
    """The last entry of a ledger's chain.

    Attributes
    ----------
    sequence : int
        Its number; 0 for an empty ledger.
    hash : str
    ledger : str
        The ledger's id.
    """

    sequence: int
    hash: str
    ledger: str


class NotedHead:
    """The note beside a ledger's file.

    Parameters
    ----------
    ledger : str
        Path of the ledger's file, with every link resolved.
    """

    def __init__(self, ledger: str) -> None:
        self._ledger = ledger
        self.path = f"{ledger}{SUFFIX}"

    def read(self) -> Head | None:
        """Return the latest entry that was noted; None without a note, or where nothing in it can be read."""
        try:
            with open(self.path, "rb") as file:
                content = file.read(_RECORDS * _SECTOR)
        except FileNotFoundError:
            return None
        sectors = (content[start : start + _SECTOR] for start in range(0, len(content), _SECTOR))
        return max((head for head in map(_head, sectors) if head is not None), default=None)

    def write(self, head: Head) -> None:
        """Note an entry, and wait for the disk; a later one stays noted.

        Raises
        ------
        OSError
            The note cannot be written.
        """
        if not os.path.exists(self.path):
            create(self.path, _content(head))
            self._open_to_the_same_users(self.path)
        with open(self.path, "r+b", buffering=0) as file:
            place = head.sequence % _RECORDS * _SECTOR
            file.seek(place)
            present = _head(file.read(_SECTOR))
            if present is not None and present.ledger == head.ledger and present.sequence >= head.sequence:
                return
            file.seek(place)
            file.write(_sector(head))
            _sync(file.fileno())

    def replace(self, head: Head) -> None:
        """Note an entry, whatever was noted before.

        Raises
        ------
        OSError
            The note cannot be written.
        """
        draft = f"{self.path}.{secrets.token_hex(4)}.new"
        create(draft, _content(head))
        self._open_to_the_same_users(draft)
        os.replace(draft, self.path)
        sync_folder(os.path.dirname(self.path) or ".")

    def _open_to_the_same_users(self, path: str) -> None:
        """Give a file the owner and the permissions of the ledger, as SQLite does with its log."""
        with suppress(OSError):  # of another owner, or on a file system without owners
            found = os.stat(self._ledger)
            os.chmod(path, stat.S_IMODE(found.st_mode))
            if hasattr(os, "chown"):
                os.chown(path, found.st_uid, found.st_gid)


def _content(head: Head) -> bytes:
    sectors = [b"\n".rjust(_SECTOR)] * _RECORDS
    sectors[head.sequence % _RECORDS] = _sector(head)
    return b"".join(sectors)


def _sector(head: Head) -> bytes:
    text = f"{head.ledger} {head.sequence:020d} {head.hash}"
    return f"{text} {_check(text.encode())}".encode().ljust(_SECTOR - 1) + b"\n"


def _head(sector: bytes) -> Head | None:
    """Return what a sector notes; None where it is empty or not what was written."""
    found = _record.fullmatch(sector)
    if found is None or _check(sector[: found.end(3)]) != found.group(4).decode():
        return None
    return Head(int(found.group(2)), found.group(3).decode(), found.group(1).decode())


def _check(text: bytes) -> str:
    return sha256(text).hexdigest()[:16]
