"""The hash chain over the ledger's rows, and the note of its last entry in a file next to the ledger.

SQLite reads its log up to the first incomplete frame and silently drops the rest. The earlier state is a ledger with a
valid chain. So after each commit, and before the answer leaves, dpsql writes the last entry's number and hash to
``x.dpsql-ledger.head``, which does not share the fate of the log: a ledger without the noted entry has lost some.
dpsql accepts a file copied without its note as it is, unless the file comes with a log.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypedDict

from dpsql.errors import LedgerError
from dpsql.ledger.file import create, sync_folder

# Columns that earlier versions lack.
MISSING_COLUMNS = {
    "1": ("composition", "lineage", "hold", "block", "principal"),
    "2": ("hold", "block", "principal"),
    "3": ("block", "principal"),
    "4": ("principal",),
}
NEW_COLUMNS = MISSING_COLUMNS["1"]
RESERVED = "held, charged before the first draw"  # a reservation's status, as always stored
MERGED = "charged, spent before the merge"
ACCEPTED = "charged, lost entries accepted"  # the owner accepts the spending of entries that the ledger lost
CHAIN, DECLARED, GRANTED = "chain", "declared", "granted"
# A block's spending, and its start after an owner declared new periods: neither declares anything.
CHARGE, CARRY = "charge", "carry"
GRANT, REVOKE, TOKEN = "grant", "revoke", "token"
GRANTS = (GRANT, REVOKE, TOKEN)  # rights to ask through the gateway (see `dpsql.ledger.grants`)
NO_DECLARATIONS = ("release", "replay", CHARGE, CARRY, *GRANTS)
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)  # a walk calls it for every row
Last = tuple[int, str, int]  # sequence and hash of the last row under a key, and their number


class Amounts(TypedDict):
    """The columns of a row's charge, in units of 1e-18; None without a finite amount."""

    epsilon: str | None
    delta: str
    rho: str | None


class Draft(Amounts):
    """The columns of a row that do not depend on earlier rows; see `schema.entry`."""

    kind: str
    dataset: str
    name: str | None
    function: str
    arguments: str
    fingerprint: str
    event: str | None
    guarantee: str
    budget: str | None
    result: str | None
    status: str
    lineage: str | None
    hold: int | None
    block: str | None
    principal: str | None


class Row(Draft):
    """The columns of a row."""

    sequence: int
    recorded_at: str
    epsilon_spent: str | None
    delta_spent: str
    rho_spent: str | None
    releases: int
    budget_sequence: int | None
    hash: str
    composition: str | None


def row_of(columns: Sequence[str], values: Iterable[object]) -> Row:
    """Return the columns of a row by name; a damaged ledger may contain anything, which only the hash shows."""
    record: Any = dict(zip(columns, values, strict=True))
    row: Row = record
    return row


@lru_cache(maxsize=16)
def genesis(ledger_id: str) -> str:
    """Return the hash that the first row chains to."""
    return hashlib.sha256(f"dpsql ledger 1 {ledger_id}".encode()).hexdigest()


def canonical(value: object) -> str:
    """Return `value` as JSON text, equal for equal values; refuse NaN and infinities."""
    return _CANONICAL.encode(value)


def row_hash(previous: str, row: Row) -> str:
    """Return ``sha256(previous || canonical JSON of every column but the hash)``.

    NULL columns that earlier versions lacked are left out, so that old hashes stay valid.
    """
    fields = {
        name: value for name, value in row.items() if name != "hash" and (value is not None or name not in NEW_COLUMNS)
    }
    return hashlib.sha256((previous + canonical(fields)).encode()).hexdigest()


def hash_of_row(previous: str, row: Row) -> str | None:
    """Return `row_hash`, or None for a row whose contents cannot be valid."""
    try:
        return row_hash(previous, row)
    except (TypeError, ValueError):
        return None


def damaged(location: str, sequence: object) -> LedgerError:
    """Return the error for an entry that was changed after it was written."""
    which = f"entry {sequence}" if isinstance(sequence, int) else "an entry"
    return LedgerError(
        "L030",
        f"{which} of ledger {location!r} is damaged: it is not what was written. Nothing was released. "
        "Run dpsql ledger verify, and restore a backup with dpsql ledger restore.",
    )


def verified_rows(location: str, ledger_id: str, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows from the first on, each after verifying it.

    Raises
    ------
    LedgerError
        L030: a row is missing or changed.
    """
    previous = genesis(ledger_id)
    for sequence, row in enumerate(rows, 1):
        if row["sequence"] != sequence or hash_of_row(previous, row) != row["hash"]:
            raise damaged(location, sequence)
        previous = row["hash"]
        yield row


def dataset_key(dataset: str) -> str:
    """Return the key of a dataset's last row."""
    return f"dataset:{dataset}"


def block_key(dataset: str, block: str) -> str:
    """Return the key of the last row of a block."""
    return f"{blocks_key(dataset)}{block}"


def blocks_key(dataset: str) -> str:
    """Return the prefix of all keys of a dataset's blocks, and of no others."""
    return f"block:{len(dataset)}:{dataset}:"


def name_key(dataset: str, name: str) -> str:
    """Return the key of the row with the result of a named release."""
    return f"release:{len(dataset)}:{dataset}:{name}"


def keys_of(row: Row) -> list[str]:
    """Return the keys under which a new row is the last one."""
    block = row["block"]
    keys = [CHAIN, dataset_key(row["dataset"]) if block is None else block_key(row["dataset"], block)]
    if row["kind"] not in NO_DECLARATIONS:
        keys.append(DECLARED)
    if row["kind"] in GRANTS:
        keys.append(GRANTED)
    if row["name"] is not None and row["result"] is not None:
        keys.append(name_key(row["dataset"], row["name"]))
    return keys


def note(lasts: dict[str, Last], row: Row) -> None:
    """Update `lasts` with a row."""
    for key in keys_of(row):
        lasts[key] = (row["sequence"], row["hash"], lasts.get(key, (0, "", 0))[2] + 1)


def charges(row: Row) -> bool:
    """Whether a row is a release with its own charge, and not with an earlier reservation."""
    return row["kind"] == "release" and row["hold"] is None


def completes(row: Draft, reservation: Row | None) -> bool:
    """Whether a row may end a reservation: both are the same call with the same cost."""
    return reservation is not None and reservation["status"] == RESERVED and _call_of(reservation) == _call_of(row)


def _call_of(row: Draft) -> tuple[str | None, ...]:
    return row["kind"], row["dataset"], row["name"], row["fingerprint"], row["event"]


def amount_text(units: int | None) -> str | None:
    """Return units of 1e-18 as the ledger's text."""
    return None if units is None else str(units)


SUFFIX = ".head"
# A record fills a disk sector: if a crash cuts a write in two, the other records stay intact.
_SECTOR = 512
# A process delayed between its commit and its note must not overwrite the note of a later entry; that would take a
# delay of this many entries of others.
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
    """The note next to a ledger's file.

    Parameters
    ----------
    ledger : str
        Path of the ledger's file, with every link resolved.
    """

    def __init__(self, ledger: str) -> None:
        self._ledger = ledger
        self.path = f"{ledger}{SUFFIX}"

    def read(self) -> Head | None:
        """Return the latest noted entry; None without a readable note."""
        try:
            with open(self.path, "rb") as file:
                content = file.read(_RECORDS * _SECTOR)
        except FileNotFoundError:
            return None
        sectors = (content[start : start + _SECTOR] for start in range(0, len(content), _SECTOR))
        return max((head for head in map(_head, sectors) if head is not None), default=None)

    def write(self, head: Head) -> None:
        """Note an entry, and wait for the disk; a later note stays.

        Raises
        ------
        OSError
            Writing the note failed.
        """
        if not os.path.exists(self.path):
            create(self.path, _content(head))
            self._open_to_the_same_users(self.path)
        with open(self.path, "r+b", buffering=0) as file:
            offset = head.sequence % _RECORDS * _SECTOR
            file.seek(offset)
            present = _head(file.read(_SECTOR))
            if present is not None and present.ledger == head.ledger and present.sequence >= head.sequence:
                return
            file.seek(offset)
            file.write(_sector(head))
            _sync(file.fileno())

    def replace(self, head: Head) -> None:
        """Note an entry, replacing any earlier note.

        Raises
        ------
        OSError
            Writing the note failed.
        """
        draft = f"{self.path}.{secrets.token_hex(4)}.new"
        create(draft, _content(head))
        self._open_to_the_same_users(draft)
        os.replace(draft, self.path)
        sync_folder(os.path.dirname(self.path) or ".")

    def _open_to_the_same_users(self, path: str) -> None:
        """Give a file the owner and permissions of the ledger, as SQLite does with its log."""
        with suppress(OSError):  # of another owner, or no owners on this file system
            status = os.stat(self._ledger)
            os.chmod(path, stat.S_IMODE(status.st_mode))
            if hasattr(os, "chown"):
                os.chown(path, status.st_uid, status.st_gid)


def _content(head: Head) -> bytes:
    sectors = [b"\n".rjust(_SECTOR)] * _RECORDS
    sectors[head.sequence % _RECORDS] = _sector(head)
    return b"".join(sectors)


def _sector(head: Head) -> bytes:
    text = f"{head.ledger} {head.sequence:020d} {head.hash}"
    return f"{text} {_check(text.encode())}".encode().ljust(_SECTOR - 1) + b"\n"


def _head(sector: bytes) -> Head | None:
    """Return a sector's note; None if it is empty or damaged."""
    match = _record.fullmatch(sector)
    if match is None or _check(sector[: match.end(3)]) != match.group(4).decode():
        return None
    return Head(int(match.group(2)), match.group(3).decode(), match.group(1).decode())


def _check(text: bytes) -> str:
    return sha256(text).hexdigest()[:16]
