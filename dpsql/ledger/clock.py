"""Provide a ledger's clock, the only source of an entry's time and calendar period.

By default it is the system clock. A broker `steady`s it: otherwise a person who may set the system clock could begin
new periods of grants, and shorten or extend tokens. A steady clock counts with the kernel's clock, which starts with
the machine and which nobody sets. It follows a forward step of the system clock by up to an hour, and ignores a
backward step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

# The system clock may be at most this far ahead of the elapsed time.
MOST_AHEAD = timedelta(hours=1)


def system() -> datetime:
    """Return the system's time, in UTC."""
    return datetime.now(UTC)


def passed() -> float:
    """Return the seconds of a clock that nobody sets; it counts during sleep if the system has such a clock."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class SteadyClock:
    """A clock that starts at a time, and counts elapsed seconds.

    Parameters
    ----------
    begin : datetime
        The time now.
    system : callable
        Returns the system's time.
    passed : callable
        Returns the seconds of a clock that nobody sets.
    """

    def __init__(
        self, begin: datetime, system: Callable[[], datetime] = system, passed: Callable[[], float] = passed
    ) -> None:
        self._begin, self._began = begin, passed()
        self._system, self._passed = system, passed

    def __call__(self) -> datetime:
        """Return the time: at least the elapsed time, at most an hour more."""
        least = self._begin + timedelta(seconds=self._passed() - self._began)
        return max(least, min(self._system(), least + MOST_AHEAD))


_source: Callable[[], datetime] = system


def now() -> datetime:
    """Return the time, in UTC."""
    return _source()


def steady(begin: datetime) -> None:
    """Make this process's time continue from `begin` by elapsed seconds."""
    global _source
    _source = SteadyClock(begin)


def time_text(when: datetime) -> str:
    """Return a time in the ledger's format, so that strings sort like times."""
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
