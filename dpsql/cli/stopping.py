"""End a command on Ctrl-C or SIGTERM: interrupt running work, and keep charges in the ledger."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Terminated(SystemExit):
    """SIGTERM asked this process to end. Python by itself would exit without closing anything."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


_REQUESTS: dict[int, type[BaseException]] = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}


class Stop:
    """A request to stop, if one arrived.

    Attributes
    ----------
    requested : BaseException or None
        The exception to raise: KeyboardInterrupt or `Terminated`.
    """

    def __init__(self) -> None:
        self.requested: BaseException | None = None

    def request(self, number: int, _: FrameType | None = None) -> None:
        """Note a signal."""
        self.requested = _REQUESTS[number]()


@contextlib.contextmanager
def noting_stops() -> Iterator[Stop]:
    """Note Ctrl-C and SIGTERM during the ``with`` block instead of raising; do nothing off the main thread."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    numbers = [signal.SIGINT]
    if signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, _raise_terminated):  # keep a program's own handler
        numbers.append(signal.SIGTERM)
    before = {number: signal.signal(number, stop.request) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def raise_on_terminate() -> None:
    """Make SIGTERM raise `Terminated`, unless the program has its own handler."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _raise_terminated)


def _raise_terminated(number: int, frame: FrameType | None) -> None:
    raise Terminated
