"""How much a principal may ask at once: rates, and one new release at a time per dataset."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from dpsql.errors import GatewayError

# Per second: requests, new releases, and refusals.
REQUESTS, RELEASES, REFUSALS = 10.0, 2.0, 1.0
# How many may come at once before the rate counts.
_BURST = {"requests": 40.0, "releases": 20.0, "refusals": 60.0}
_MOST_WAITING, _MOST_OF_PRINCIPAL = 64, 4


class Rates:
    """Token buckets, one for each principal and kind.

    Parameters
    ----------
    clock : callable
        Returns seconds.
    factor : float
        By which every rate is multiplied.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, factor: float = 1.0) -> None:
        self._clock = clock
        self._rates = {"requests": REQUESTS * factor, "releases": RELEASES * factor, "refusals": REFUSALS * factor}
        self._burst = {kind: most * max(1.0, factor) for kind, most in _BURST.items()}
        self._left: dict[tuple[str, str], tuple[float, float]] = {}
        self._lock = threading.Lock()

    def take(self, principal: str, kind: str) -> None:
        """Count one request, release or refusal.

        Raises
        ------
        GatewayError
            G030.
        """
        with self._lock:
            left = self._has(principal, kind)
            if left < 1:
                raise GatewayError("G030", "too many requests. Wait a minute, and ask again.")
            self._left[principal, kind] = (left - 1, self._clock())

    def refuse(self, principal: str, kind: str) -> None:
        """Raise where none is left, and count nothing."""
        with self._lock:
            if self._has(principal, kind) < 1:
                raise GatewayError("G030", "too many requests. Wait a minute, and ask again.")

    def _has(self, principal: str, kind: str) -> float:
        left, then = self._left.get((principal, kind), (self._burst[kind], self._clock()))
        return min(self._burst[kind], left + (self._clock() - then) * self._rates[kind])


class Lines:
    """Those who wait for a dataset: one new release at a time, in the order in which they came."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._of: dict[str, threading.Lock] = {}
        self._waiting: Counter[str] = Counter()
        self._of_principal: Counter[str] = Counter()

    @contextmanager
    def alone(self, principal: str, datasets: Sequence[str]) -> Iterator[None]:
        """Let nobody else release anything of some datasets in the body of a with statement.

        Raises
        ------
        GatewayError
            G032: too many wait already.
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
            with ExitStack() as held:
                for lock in locks:  # by name, so that nobody waits for each other
                    held.enter_context(lock)
                yield
        finally:
            with self._guard:
                self._of_principal[principal] -= 1
                self._waiting.subtract(names)
