"""Copy entries from one ledger to another: backup and restore."""

from __future__ import annotations

import os
import time
from pathlib import Path

from dpsql.errors import LedgerError
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
    return _carry(source, destination, "Give another file.")


def restore(source: str, destination: str, *, set_aside: bool = False) -> tuple[int, str | None]:
    """Bring a ledger up to a backup; an entry that only the ledger has is never lost.

    Parameters
    ----------
    source : str
        The backup.
    destination : str
        The ledger's file or URL; a file need not be there.
    set_aside : bool
        Where the ledger has other entries or cannot be read: rename its file, and begin again from the backup.

    Returns
    -------
    entries : int
        How many the ledger holds then.
    aside : str or None
        The new name of the file that was set aside.

    Raises
    ------
    LedgerError
        L036: the ledger holds entries that the backup does not have. L037: one of the two is damaged.
    """
    step = "Add --set-aside to rename the file and begin again from the backup."
    good = Ledger.open(source, read_only=True)
    try:
        _refuse_damaged(good, "Give another backup.")
        try:
            return _carry(good, destination, step), None
        except LedgerError:
            if not set_aside or is_url(destination) or not os.path.exists(destination):
                raise
        aside = _set_aside(Path(os.path.realpath(destination)))
        return _carry(good, destination, step), aside
    finally:
        good.close()


def _carry(source: Ledger, destination: str, step: str) -> int:
    target = Ledger.open(destination)
    try:
        _refuse_damaged(target, step)
        if not target.carry(source):
            raise LedgerError(
                "L036", f"{target.location!r} holds entries that {source.location!r} does not have. {step}"
            )
        return target.verify().entries
    finally:
        target.close()


def _refuse_damaged(ledger: Ledger, step: str) -> None:
    report = ledger.verify()
    if not report.ok:
        raise LedgerError("L037", f"the ledger {ledger.location!r} is damaged: {report.problem}. {step}")


def _set_aside(path: Path) -> str:
    """Rename a ledger's file and its log; under the new name they stay readable."""
    name = f"{path.name}.aside-{time.strftime('%Y%m%dT%H%M%S')}"
    for suffix in ("-wal", "-shm", ""):
        old = path.with_name(path.name + suffix)
        if old.exists():
            old.rename(path.with_name(name + suffix))
    return str(path.with_name(name))
