"""Show progress of long work on a terminal, and check for Ctrl-C.

Python delivers Ctrl-C to the main thread only, and DuckDB may run a function on another thread. So dpsql counts presses
of Ctrl-C, and every `Progress` checks whether the count has changed since its work began. Work that must not be
interrupted, such as a transaction of the ledger, holds signals back.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich import progress as rich_progress

_SHOWN_AFTER = 0.7  # seconds; shorter work stays silent
# Signals whose handlers may raise: Ctrl-C, a request to end, and the timers of test runners.
_RAISING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGALRM") if hasattr(signal, name))
_interrupts = 0


def presses() -> int:
    """Return the number of Ctrl-C presses, if `listen` could count them."""
    return _interrupts


def interrupt() -> None:
    """Stop all running work at its next check."""
    global _interrupts
    _interrupts += 1


def listen() -> None:
    """Make Ctrl-C stop dpsql's work on other threads, too; Python still raises KeyboardInterrupt.

    Do nothing off the main thread, or if the program has its own handler.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt_and_raise)


def _interrupt_and_raise(number: int, frame: FrameType | None) -> None:
    interrupt()
    signal.default_int_handler(number, frame)


def held_back() -> AbstractContextManager[None]:
    """Delay signals during the ``with`` block until its end, if Python's handlers raise.

    Off the main thread no signal arrives, and the function does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        return nullcontext()
    handlers = ((number, signal.getsignal(number)) for number in _RAISING)
    # A non-callable handler ends the process, ignores the signal, or is not Python's.
    return _hold_back([(number, handler) for number, handler in handlers if callable(handler)])


@contextmanager
def _hold_back(handlers: Sequence[tuple[int, Callable[[int, FrameType | None], object]]]) -> Iterator[None]:
    if not handlers:
        yield
        return
    (number, handler), *others = handlers
    arrived: list[int] = []
    try:
        signal.signal(number, lambda *_: arrived.append(number))
        with _hold_back(others) if others else nullcontext():
            yield
    finally:
        signal.signal(number, handler)
        if arrived:
            signal.raise_signal(number)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt if Ctrl-C made the ``with`` block fail, whatever error DuckDB raised instead."""
    listen()
    before = _interrupts
    try:
        yield
    except Exception:
        if _interrupts == before:
            raise
    else:
        return
    raise KeyboardInterrupt


class Progress:
    """Report the progress of a call, or that it is running; raise if the work must stop.

    Progress shows only public numbers. Call it with the finished fraction of work whose parts do not depend on the
    rows' values (columns, blocks, rounds). If the length of a search depends on the values, use `tick`, which takes no
    argument; the bar then shows the elapsed time.

    Parameters
    ----------
    label : str
        The name of the work; public.
    stopped : Event, optional
        Setting it stops this work, and no other.
    """

    def __init__(self, label: str, stopped: threading.Event | None = None) -> None:
        self._label, self._stopped = label, stopped
        self._interrupts = _interrupts
        self._started = time.monotonic()
        self._bar: rich_progress.Progress | None = None  # with one task

    def __call__(self, share: float) -> None:
        """Show the finished fraction of the work, in [0, 1]; public.

        Raises
        ------
        KeyboardInterrupt
            Ctrl-C was pressed since the work began.
        TimeoutError
            `stopped` ended this work alone.
        """
        bar = self._visible_bar()
        if bar is not None:
            bar.update(bar.task_ids[0], total=1.0, completed=min(max(share, 0.0), 1.0))

    def tick(self) -> None:
        """Show that the work is still running.

        Raises
        ------
        KeyboardInterrupt
            Ctrl-C was pressed since the work began.
        TimeoutError
            `stopped` ended this work alone.
        """
        bar = self._visible_bar()
        if bar is not None:
            bar.update(bar.task_ids[0])

    def _visible_bar(self) -> rich_progress.Progress | None:
        """Check for Ctrl-C; return the bar once it is visible, after a delay."""
        if _interrupts != self._interrupts:
            raise KeyboardInterrupt
        if self._stopped is not None and self._stopped.is_set():
            raise TimeoutError("stopped")
        if self._bar is None and time.monotonic() - self._started >= _SHOWN_AFTER and sys.stderr.isatty():
            self._open()
        return self._bar

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        bar = Progress(*columns, console=Console(stderr=True), transient=True)
        bar.add_task(self._label, total=None)
        self._bar = bar
        bar.start()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
