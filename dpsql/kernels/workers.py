"""Worker threads for kernels that release the GIL, with progress and prompt interruption.

`Compiled` loads kernels in the background, after a process has done enough work to justify it.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from importlib import import_module
from tempfile import mkdtemp
from types import ModuleType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray


class Compiled:
    """One module of compiled kernels.

    Parameters
    ----------
    module : str
        Full name of a module with a function ``compile_all()``.
    worth : int
        Work that a process does in NumPy before it loads the kernels, in a unit of the caller's choice.
    worth_waiting : int, optional
        Work of one call that justifies the wait.
    """

    def __init__(self, module: str, worth: int, worth_waiting: int | None = None) -> None:
        self.kernels: ModuleType | None = None
        self._module = module
        self._worth = worth
        self._worth_waiting = worth_waiting
        self._work = 0
        self._loading: threading.Thread | None = None
        self._lock = threading.Lock()

    def __call__(self, work: int) -> ModuleType | None:
        """Count the coming work; return the kernels if they are ready."""
        if self.kernels is None:
            self._work += work
            if self._worth_waiting is not None and work > self._worth_waiting:
                self.start().join()
            elif self._loading is None and self._work > self._worth:
                self.start()
        return self.kernels

    def start(self) -> threading.Thread:
        """Start loading the kernels; return the thread that loads them."""
        with self._lock:
            if self._loading is None:
                self._loading = threading.Thread(target=self._load, name="dpsql-compile")
                self._loading.start()
            return self._loading

    def _load(self) -> None:
        try:
            kernels = import_module(self._module)
        except RuntimeError:  # numba finds no writable directory for its cache
            _cache_for_this_process()
            kernels = import_module(self._module)
        kernels.compile_all()
        self.kernels = kernels


def _cache_for_this_process() -> None:
    """Give numba a cache directory of this process."""
    import numba

    numba.config.CACHE_DIR = mkdtemp(prefix="dpsql-kernels-")


Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[float], None]
Job = Callable[[int, int, "Signals"], None]
_SECONDS = 0.05  # between two checks of the threads


class Signals:
    """The state that the threads of one call share with its caller.

    Attributes
    ----------
    stop : ndarray of uint8, shape (1,)
        Not 0 once the work must stop. Kernels read it now and then.
    done : ndarray of int64, shape (threads,)
        Work done by each thread so far.
    """

    def __init__(self, threads: int) -> None:
        self.stop: NDArray[np.uint8] = np.zeros(1, dtype=np.uint8)
        self.done: NDArray[np.int64] = np.zeros(threads, dtype=np.int64)


def default_threads() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _pool(workers: int) -> ThreadPoolExecutor:
    """Return threads with NumPy's warnings off, as in the calls that they work for."""
    silence = partial(np.seterr, all="ignore")
    return ThreadPoolExecutor(workers, thread_name_prefix="dpsql-kernel", initializer=silence)


def run(job: Job, jobs: int, total: int, threads: int | None = None, progress: Progress | None = None) -> None:
    """Run ``job(number, thread, signals)`` for each number below `jobs`.

    Parameters
    ----------
    job : callable
        Adds its work to ``signals.done[thread]`` and returns early once ``signals.stop[0]`` is set.
    jobs : int
    total : int
        The work of all jobs, in the unit of ``signals.done``.
    threads : int, optional
        By default one for each processor. If 0, the calling thread does the work.
    progress : callable, optional
        Called from the calling thread with the fraction done. Its exceptions stop the work and propagate.
    """
    workers = min(jobs, default_threads() if threads is None else threads)
    signals = Signals(max(1, workers))
    numbers = itertools.count()

    def report() -> None:
        if progress is not None:
            progress(min(1.0, int(signals.done.sum()) / max(1, total)))

    def work(thread: int) -> None:
        while (number := next(numbers)) < jobs and not signals.stop[0]:
            job(number, thread, signals)

    if workers == 0:
        reported = time.monotonic()
        for number in range(jobs):
            job(number, 0, signals)
            if time.monotonic() > reported + _SECONDS:
                report()
                reported = time.monotonic()
        return
    with _pool(workers) as pool:
        try:
            pending = {pool.submit(work, thread) for thread in range(workers)}
            while pending:
                finished, pending = wait(pending, _SECONDS, FIRST_COMPLETED)
                for future in finished:
                    future.result()
                report()
        finally:
            signals.stop[0] = 1


def stream(
    work: Callable[[Item, NDArray[np.uint8]], Result],
    items: Iterable[Item],
    threads: int | None = None,
    tick: Callable[[], None] | None = None,
) -> list[Result]:
    """Apply ``work(item, stop)`` to items as they come; hold at most one item per thread.

    Parameters
    ----------
    work : callable
        Returns early once ``stop[0]`` is set.
    items : iterable
        Read by the calling thread.
    threads : int, optional
        By default one for each processor.
    tick : callable, optional
        Called from the calling thread now and then. Its exceptions stop the work and propagate.

    Returns
    -------
    results : list
        In the order of the items.
    """
    workers = max(1, default_threads() if threads is None else threads)
    stop = Signals(1).stop
    futures: list[Future[Result]] = []

    def wait_for(limit: int) -> None:
        while len(pending := [future for future in futures if not future.done()]) > limit:
            wait(pending, _SECONDS, FIRST_COMPLETED)
            if tick is not None:
                tick()

    with _pool(workers) as pool:
        try:
            for item in items:
                futures.append(pool.submit(work, item, stop))
                del item
                wait_for(workers - 1)
            wait_for(0)
            return [future.result() for future in futures]
        finally:
            stop[0] = 1
