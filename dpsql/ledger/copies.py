"""Copy entries between ledgers for backup and restore, and continue after lost entries."""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from dpsql.dataclass import dataclass
from dpsql.errors import LedgerError
from dpsql.ledger.chain import SUFFIX, Head, NotedHead
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.location import is_url


def backup(source: Ledger, destination: str) -> int:
    """Copy a ledger's new entries to a backup; return the backup's number of entries.

    Parameters
    ----------
    source : Ledger
    destination : str
        A new file, or an earlier backup of the same ledger.

    Raises
    ------
    LedgerError
        L036: the destination has entries that the ledger lacks. L037: it is damaged.
    """
    step = "Give another file."
    with closing(Ledger.open(destination)) as target:
        _refuse_damaged(target, step)
        _carry(source, target, step)
        return target.verify().entries


@dataclass(frozen=True)
class Restored:
    """The state of a ledger after a loss.

    Attributes
    ----------
    entries : int
        Number of entries in the ledger.
    lost : Head or None
        The last reported entry, if it is missing now; the ledger records the loss.
    has_note : bool
        Whether the former last entry was known.
    aside : str or None
        The new name of the renamed file.
    """

    entries: int
    lost: Head | None
    has_note: bool
    aside: str | None = None


def restore(source: str, destination: str, *, set_aside: bool = False) -> Restored:
    """Copy a backup's new entries to a ledger; never lose an entry that only the ledger has.

    Parameters
    ----------
    source : str
        The backup.
    destination : str
        The ledger's file or URL; the file may be missing.
    set_aside : bool
        If the ledger has other entries or is unreadable: rename its file, and start again from the backup.

    Raises
    ------
    LedgerError
        L036: the ledger has entries that the backup lacks. L037: one of the two is damaged.
    """
    step = "Add --set-aside to rename the file and begin again from the backup."
    path = None if is_url(destination) else os.path.realpath(destination)
    noted = None if path is None else NotedHead(path).read()
    with closing(Ledger.open(source, read_only=True)) as good:
        _refuse_damaged(good, "Give another backup.")
        try:
            return _accepted(destination, noted, "dpsql ledger restore", step, good)
        except LedgerError:
            if not set_aside or path is None or not os.path.exists(path):
                raise
        noted = max((head for head in (noted, _end_of(path)) if head is not None), default=None)
        aside = _set_aside(Path(path))
        return replace(_accepted(destination, noted, "dpsql ledger restore", step, good), aside=aside)


def accept(location: str) -> Restored:
    """Continue with the ledger's remaining entries after a loss, and record the loss.

    Raises
    ------
    LedgerError
        L037: the ledger is damaged.
    """
    noted = None if is_url(location) else NotedHead(os.path.realpath(location)).read()
    return _accepted(location, noted, "dpsql ledger accept", "Restore a backup with dpsql ledger restore.")


def _accepted(location: str, noted: Head | None, function: str, step: str, source: Ledger | None = None) -> Restored:
    """Copy the new entries of `source`, if given, and continue the ledger without its lost entries."""
    with closing(Ledger.open(location, accept=True)) as target:
        _refuse_damaged(target, step)
        if source is not None:
            _carry(source, target, step)
        lost = target.accept(noted, function)
        return Restored(target.verify().entries, noted if lost else None, noted is not None)


def _end_of(path: str) -> Head | None:
    """Return the last entry of a ledger before its renaming; None if the ledger is unreadable."""
    try:
        with closing(Ledger.open(path, read_only=True)) as ledger:
            return Head(*ledger.head(), ledger.id)
    except LedgerError:
        return None


def _carry(source: Ledger, target: Ledger, step: str) -> None:
    if not target.carry(source):
        raise LedgerError("L036", f"{target.location!r} holds entries that {source.location!r} does not have. {step}")


def _refuse_damaged(ledger: Ledger, step: str) -> None:
    report = ledger.verify(noted=False)
    if not report.ok:
        raise LedgerError("L037", f"the ledger {ledger.location!r} is damaged: {report.problem}. {step}")


def _set_aside(path: Path) -> str:
    """Rename a ledger's file with its log and its note; they stay readable under the new name."""
    name = f"{path.name}.aside-{time.strftime('%Y%m%dT%H%M%S')}"
    for suffix in ("-wal", "-shm", SUFFIX, ""):
        old = path.with_name(path.name + suffix)
        if old.exists():
            old.rename(path.with_name(name + suffix))
    return str(path.with_name(name))
