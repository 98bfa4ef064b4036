"""Limit a principal's requests, and fix the times at which answers leave.

The duration of a release depends on rows: their number, and the work that a condition does on each. So the answer to a
new question leaves at the next of a few times since its start. The chosen time still depends on the rows, so about
three bits remain; a fixed time leaves none, and longer releases are interrupted and charged.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from dpsql.errors import GatewayError

# Per second: requests, new releases and refusals of a principal, and failed tokens of an address.
_RATES = {"requests": 10.0, "releases": 2.0, "refusals": 1.0, "tokens": 1 / 3}
# Allowed burst before the rate applies.
_BURST = {"requests": 40.0, "releases": 20.0, "refusals": 60.0, "tokens": 20.0}
# Above this number of buckets, full buckets are dropped.
_MOST_BUCKETS = 10_000
_MOST_WAITING, _MOST_OF_PRINCIPAL = 64, 4
_INTERRUPTED = 0.8


class Rates:
    """Token buckets, one for each principal and kind.

    Parameters
    ----------
    clock : callable
        Returns seconds.
    factor : float
        Multiplies every rate.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, factor: float = 1.0) -> None:
        self._clock = clock
        self._rates = {kind: rate * factor for kind, rate in _RATES.items()}
        self._burst = {kind: most * max(1.0, factor) for kind, most in _BURST.items()}
        self._balances: dict[tuple[str, str], tuple[float, float]] = {}
        self._lock = threading.Lock()

    def take(self, principal: str, kind: str) -> None:
        """Count one request, release or refusal.

        Raises
        ------
        GatewayError
            G030.
        """
        with self._lock:
            balance = self._has(principal, kind)
            if balance < 1:
                raise _too_many()
            self._set(principal, kind, balance - 1)

    def count(self, principal: str, kind: str) -> None:
        """Count one more, even if the bucket is empty."""
        with self._lock:
            self._set(principal, kind, max(0.0, self._has(principal, kind) - 1))

    def refuse(self, principal: str, kind: str) -> None:
        """Raise if the bucket is empty, and count nothing."""
        with self._lock:
            if self._has(principal, kind) < 1:
                raise _too_many()

    def _set(self, principal: str, kind: str, balance: float) -> None:
        if len(self._balances) >= _MOST_BUCKETS:
            self._balances = {
                key: entry for key, entry in self._balances.items() if self._has(*key) < self._burst[key[1]]
            }
        self._balances[principal, kind] = (balance, self._clock())

    def _has(self, principal: str, kind: str) -> float:
        balance, then = self._balances.get((principal, kind), (self._burst[kind], self._clock()))
        return min(self._burst[kind], balance + (self._clock() - then) * self._rates[kind])


def _too_many() -> GatewayError:
    return GatewayError("G030", "too many requests. Wait a minute, and ask again.")


class Buckets:
    """The times, since a release began, at which its answer may leave.

    Parameters
    ----------
    fixed : float, optional
        The only time, in seconds; by default 0.1, 0.2, 0.4 and so on to 3.2, then every 10 s.
    clock, sleep : callable
    """

    def __init__(
        self,
        fixed: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._fixed, self._clock, self._sleep = fixed, clock, sleep

    def most(self, seconds: float) -> float:
        """Return the seconds after which a release with this time limit is interrupted.

        A fixed time limits them to 80 % of it, so an interrupted release has failed when its answer leaves.
        """
        return seconds if self._fixed is None else min(seconds, _INTERRUPTED * self._fixed)

    def leaves(self, took: float) -> float:
        """Return when the answer of a release of `took` seconds leaves."""
        if self._fixed is not None and took <= self._fixed:
            return self._fixed
        doubled = next((0.1 * 2**k for k in range(6) if took <= 0.1 * 2**k), None)
        return 10.0 * math.ceil(took / 10) if doubled is None else doubled

    @contextmanager
    def padded(self) -> Iterator[None]:
        """End the ``with`` block at one of the times, even after an error."""
        began = self._clock()
        try:
            yield
        finally:
            took = self._clock() - began
            self._sleep(max(0.0, self.leaves(took) - took))


class Lines:
    """Queues for datasets: one new release at a time, in order of arrival."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._of: dict[str, threading.Lock] = {}
        self._waiting: Counter[str] = Counter()
        self._of_principal: Counter[str] = Counter()

    @contextmanager
    def alone(self, principal: str, datasets: Sequence[str]) -> Iterator[None]:
        """Let nobody else release anything of some datasets during the ``with`` block.

        Raises
        ------
        GatewayError
            G032: too many requests already wait.
        """
        names = sorted(set(datasets))
        with self._guard:
            if self._of_principal[principal] >= _MOST_OF_PRINCIPAL or any(
                self._waiting[name] >= _MOST_WAITING for name in names
            ):
                raise GatewayError("G032", "too many new questions wait. Ask again in a while.")
            self._of_principal[principal] += 1
            self._waiting.update(names)
            locks = [self._of.setdefault(name, threading.Lock()) for name in names]
        try:
            with ExitStack() as stack:
                for lock in locks:  # sorted by name, which prevents deadlock
                    stack.enter_context(lock)
                yield
        finally:
            with self._guard:
                self._of_principal[principal] -= 1
                self._waiting.subtract(names)


class Questions:
    """Makes equal questions wait for each other: the first runs, and the others read its answer."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._of: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Let nobody else ask a question of the same name during the ``with`` block."""
        with self._guard:
            lock, waiting = self._of.get(name, (threading.Lock(), 0))
            self._of[name] = lock, waiting + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, waiting = self._of[name]
                if waiting == 1:
                    del self._of[name]
                else:
                    self._of[name] = lock, waiting - 1
