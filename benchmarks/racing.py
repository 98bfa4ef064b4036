"""Contenders that take turns, for the scripts beside this one."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def race(contenders: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Time the contenders in turn; return the median seconds of each."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, work in contenders.items():
            start = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}
