"""The clock of a ledger, which alone says when an entry is made, and in which period of the calendar that is.

It is the system's. A broker `steady`s it: whoever may set the system's clock would begin new periods of grants, and end
or prolong tokens. From then on the time goes with the kernel's clock that counts from the start of the machine and that
nobody sets. A step of the system's clock forwards counts up to an hour, a step back counts nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

# How far the system's clock may be ahead of the time that has passed.
MOST_AHEAD = timedelta(hours=1)


def system() -> datetime:
    """Return the system's time, in UTC."""
    return datetime.now(UTC)


def passed() -> float:
    """Return seconds of a clock that nobody sets, which goes on while the machine sleeps where the system has one."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class SteadyClock:
    """A clock that begins at a time, and goes by the seconds that pass.

    Parameters
    ----------
    begin : datetime
        The time now.
    system : callable
        Returns the system's time.
    passed : callable
        Returns seconds that nobody sets.
    """

    def __init__(
        self, begin: datetime, system: Callable[[], datetime] = system, passed: Callable[[], float] = passed
    ) -> None:
        self._begin, self._began = begin, passed()
        self._system, self._passed = system, passed

    def __call__(self) -> datetime:
        """Return the time: at least what has passed, at most an hour more."""
        least = self._begin + timedelta(seconds=self._passed() - self._began)
        return max(least, min(self._system(), least + MOST_AHEAD))


_source: Callable[[], datetime] = system


def now() -> datetime:
    """Return the time, in UTC."""
    return _source()


def steady(begin: datetime) -> None:
    """Let the time of this process go on from `begin` by the seconds that pass."""
    global _source
    _source = SteadyClock(begin)
