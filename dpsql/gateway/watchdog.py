"""Watches a release: what takes long is charged before its end, and what takes too long is ended.

How long a release takes follows from rows, and so does whether it is ended. So its whole cost stands in the ledger, as
a reservation, before anything of the watchdog shows:

==================  =======================================================================
after `CHARGED`     the release is reserved, if it was not when it began
after its limit     it is interrupted: it fails, and costs what was reserved
`PATIENCE` later    the broker's process is killed. The next one finds the reservation, and
                    ends it; the question is charged again when it is asked again
==================  =======================================================================
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Seconds.
CHARGED, PATIENCE = 10.0, 10.0


@contextmanager
def watched(
    seconds: float,
    *,
    charge: Callable[[], None],
    interrupt: Callable[[], None],
    end: Callable[[], None],
    charged: float = CHARGED,
    patience: float = PATIENCE,
) -> Iterator[None]:
    """Watch the release in the body of a with statement.

    Parameters
    ----------
    seconds : float
        How long it may take.
    charge : callable
        Writes its reservation; where it fails, the release is interrupted.
    interrupt : callable
        Lets it fail, which charges it; not called once it has ended.
    end : callable
        Ends the process. What could not be charged is never ended so.
    charged, patience : float
        Seconds after which it is charged, and from its interrupt to the end of the process.
    """
    done, stopping = threading.Event(), threading.Lock()

    def watch() -> None:
        early = min(charged, seconds)
        if done.wait(early):
            return
        paid = _succeeds(charge)
        if paid and done.wait(seconds - early):
            return
        with stopping:  # what comes after it on this connection is not interrupted
            if not done.is_set():
                interrupt()
        if not done.wait(patience) and paid and _succeeds(charge):  # it may have begun late
            end()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        with stopping:
            done.set()


def end_process() -> None:
    """Kill this process: no handler, no cleaning, since a thread of it does not answer."""
    os.kill(os.getpid(), signal.SIGKILL)


def _succeeds(charge: Callable[[], None]) -> bool:
    try:
        charge()
    except Exception:  # the budgets do not allow it any more, or the ledger cannot be written
        return False
    return True
