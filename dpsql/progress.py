"""Progress of long work: a bar on a terminal, and the point where Ctrl-C reaches it."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any

_SHOWN_AFTER = 0.7  # seconds; shorter work stays silent


class Progress:
    """Tells how far a call is. Call it with the share done; it raises once the work is to stop.

    Parameters
    ----------
    label : str
        What is being done; public.
    stop : threading.Event, optional
        Set by whoever saw Ctrl-C: DuckDB may run a function on another thread than the one that a signal reaches.
    """

    def __init__(self, label: str, stop: threading.Event | None = None) -> None:
        self._label = label
        self._stop = stop
        self._started = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, share: float) -> None:
        """Show the share of the work that is done, in [0, 1].

        Raises
        ------
        KeyboardInterrupt
            The work is to stop.
        """
        if self._stop is not None and self._stop.is_set():
            raise KeyboardInterrupt
        if self._bar is None:
            if time.monotonic() - self._started < _SHOWN_AFTER or not sys.stderr.isatty():
                return
            self._open()
        self._bar.update(self._task, completed=min(max(share, 0.0), 1.0))

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(self._label, total=1.0)
        self._bar.start()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
