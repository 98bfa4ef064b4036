"""Copy entries from one ledger to another: backup and restore; and go on where entries were lost."""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from dpsql.errors import LedgerError
from dpsql.ledger.chain import SUFFIX, Head, NotedHead
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.location import is_url


def backup(source: Ledger, destination: str) -> int:
    """Bring a backup up to its ledger; return how many entries it holds then.

    Parameters
    ----------
    source : Ledger
    destination : str
        A new file, or an earlier backup of the same ledger.

    Raises
    ------
    LedgerError
        L036: the destination holds entries that the ledger does not have. L037: it is damaged.
    """
    step = "Give another file."
    with closing(Ledger.open(destination)) as target:
        _refuse_damaged(target, step)
        _carry(source, target, step)
        return target.verify().entries


@dataclass(frozen=True)
class Restored:
    """What a ledger holds after something was lost.

    Attributes
    ----------
    entries : int
        How many it holds.
    lost : Head or None
        The last entry that somebody was told of, if it is not there any more; the ledger records that.
    has_note : bool
        Whether it was known what the last entry had been.
    aside : str or None
        The new name of the file that was set aside.
    """

    entries: int
    lost: Head | None
    has_note: bool
    aside: str | None = None


def restore(source: str, destination: str, *, set_aside: bool = False) -> Restored:
    """Bring a ledger up to a backup; an entry that only the ledger has is never lost.

    Parameters
    ----------
    source : str
        The backup.
    destination : str
        The ledger's file or URL; a file need not be there.
    set_aside : bool
        Where the ledger has other entries or cannot be read: rename its file, and begin again from the backup.

    Raises
    ------
    LedgerError
        L036: the ledger holds entries that the backup does not have. L037: one of the two is damaged.
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
    """Go on with the entries that a ledger still holds, after others were lost; it records that.

    Raises
    ------
    LedgerError
        L037: the ledger is damaged.
    """
    noted = None if is_url(location) else NotedHead(os.path.realpath(location)).read()
    return _accepted(location, noted, "dpsql ledger accept", "Restore a backup with dpsql ledger restore.")


def _accepted(location: str, noted: Head | None, function: str, step: str, source: Ledger | None = None) -> Restored:
    """Bring a ledger up to `source`, if there is one, and let it go on from there without what was lost."""
    with closing(Ledger.open(location, accept=True)) as target:
        _refuse_damaged(target, step)
        if source is not None:
            _carry(source, target, step)
        lost = target.accept(noted, function)
        return Restored(target.verify().entries, noted if lost else None, noted is not None)


def _end_of(path: str) -> Head | None:
    """Return the last entry of a ledger that is to be set aside; None where it cannot be read."""
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
    """Rename a ledger's file with its log and its note; under the new name they stay readable."""
    name = f"{path.name}.aside-{time.strftime('%Y%m%dT%H%M%S')}"
    for suffix in ("-wal", "-shm", SUFFIX, ""):
        old = path.with_name(path.name + suffix)
        if old.exists():
            old.rename(path.with_name(name + suffix))
    return str(path.with_name(name))
