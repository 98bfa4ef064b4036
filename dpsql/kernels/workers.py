"""Threads of our own for kernels that release the GIL: progress, and a stop that is heeded at once."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
from numpy.typing import NDArray

Progress = Callable[[float], None]
_SECONDS = 0.05  # between two calls of progress


class Signals:
    """What the threads of one call share with its caller.

    Attributes
    ----------
    stop : ndarray of uint8, shape (1,)
        Not 0 once the work is to be given up. Kernels read it now and then.
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


def run(
    job: Callable[[int, int, Signals], None],
    jobs: int,
    total: int,
    threads: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Run ``job(number, thread, signals)`` for each number below `jobs`, in threads.

    Parameters
    ----------
    job : callable
        Adds what it has done to ``signals.done[thread]`` and returns early once ``signals.stop[0]`` is set.
    jobs : int
    total : int
        The work of all jobs, in the unit of ``signals.done``.
    threads : int, optional
        By default one for each processor.
    progress : callable, optional
        Called from this thread with the fraction done. What it raises stops the work and is raised here.
    """
    workers = max(1, min(jobs, default_threads() if threads is None else threads))
    signals = Signals(workers)
    numbers = itertools.count()

    def work(thread: int) -> None:
        while (number := next(numbers)) < jobs and not signals.stop[0]:
            job(number, thread, signals)

    with ThreadPoolExecutor(workers, thread_name_prefix="dpsql-kernel") as pool:
        try:
            pending = {pool.submit(work, thread) for thread in range(workers)}
            while pending:
                finished, pending = wait(pending, timeout=_SECONDS)
                for future in finished:
                    future.result()
                if progress is not None:
                    progress(min(1.0, int(signals.done.sum()) / max(total, 1)))
        finally:
            signals.stop[0] = 1
