"""What the ledger adds to a call, alone and under many drivers.

``python benchmarks/ledger.py [entries]``: milliseconds of each operation, the median over 500, on a SQLite file that
already holds some entries (2,000 by default) of ten datasets. ``held`` is `hold` and the `charge` that completes it.

``python benchmarks/ledger.py fleet [location]``: calls per second, and the wait of a call at the 50th and the 99th
percentile, for 1, 8 and 32 drivers in at most 4 processes; on a new SQLite file or at a URL. Every other call charges
two datasets, in either order.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dpsql.contract.events import cost_of
from dpsql.ledger.ledger import Budget, Entry, Ledger

_event = {"mechanism": "gumbel_noise", "epsilon": "0.001", "rounds": 5}
_call: dict[str, Any] = {
    "event": _event,
    "function": "dp_sis",
    "arguments": {"source": "patients", "k": 5, "epsilon": "0.001", "features": [f"g{i}" for i in range(40)]},
}
_BUDGETS = {
    "patients": Budget.of(epsilon=10**6),
    "visits": Budget.of(rho=10**6),
    "trials": Budget.of(epsilon=10**6, delta=1e-6, accountant="rdp"),
}
_DATASETS = tuple(_BUDGETS)
_PROCESSES = 4
_CALLS = 960  # of all drivers together


def _draw() -> list[dict[str, object]]:
    return [{"rank": i, "feature": f"g{i}"} for i in range(5)]


def median(work: Callable[[], object], times: int = 500) -> float:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return 1000 * statistics.median(taken)


def main(entries: int) -> None:
    """Print one line per operation."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.open(Path(folder) / "x.duckdb.dpsql-ledger")
        for i in range(10):
            ledger.protect(f"dataset {i}", Budget.of(epsilon=10**6, lower=0, upper=1))
        for i in range(entries):
            ledger.charge(f"dataset {i % 10}", draw=_draw, **_call)
        ledger.charge("dataset 3", draw=_draw, name="weekly", **_call)
        fingerprint = Ledger.fingerprint("dataset 3", "dp_sis", _call["arguments"])
        operations: dict[str, Callable[[], object]] = {
            "charge": lambda: ledger.charge("dataset 3", draw=_draw, **_call),
            "held": lambda: _held(ledger),
            "check": lambda: ledger.check("dataset 3", cost_of(_event)),
            "policy": lambda: ledger.policy("dataset 3"),
            "replay": lambda: ledger.replay("dataset 3", "weekly", fingerprint),
            "budgets": ledger.budgets,
        }
        for name, work in operations.items():
            print(f"{name:8} {median(work, 50 if name == 'budgets' else 500):8.3f} ms")
        ledger.close()


def _held(ledger: Ledger) -> Entry:
    hold = ledger.hold("dataset 3", **_call)
    return ledger.charge("dataset 3", draw=_draw, hold=hold.sequence, **_call)


def _drive(ledger: Ledger, driver: int, calls: int) -> list[float]:
    """Make the calls of one driver; return the seconds that each took."""
    taken = []
    for number in range(calls):
        first = (driver + number) % len(_DATASETS)
        also = [_DATASETS[first - 1]] if number % 2 else []
        start = time.perf_counter()
        ledger.charge(_DATASETS[first], also=also, draw=_draw, **_call)
        taken.append(time.perf_counter() - start)
    return taken


def _process(location: str, drivers: range, calls: int, begin: float) -> tuple[list[float], float, float]:
    """Run some drivers in this process from a time on; return seconds per call, the end, and seconds of the CPU."""
    ledger = Ledger.open(location)
    ledger.budgets()
    time.sleep(max(0.0, begin - time.time()))
    spent = time.process_time()
    with ThreadPoolExecutor(len(drivers)) as pool:
        taken = [each for found in pool.map(lambda one: _drive(ledger, one, calls), drivers) for each in found]
    end, spent = time.time(), time.process_time() - spent
    ledger.close()
    return taken, end, spent


def fleet(location: str) -> None:
    """Print one line per number of drivers."""
    ledger = Ledger.open(location)
    for dataset, budget in _BUDGETS.items():
        ledger.protect(dataset, budget)
    print("drivers  calls/s   p50 ms   p99 ms  CPU ms/call")
    for drivers in (1, 8, 32):
        each = -(-drivers // _PROCESSES)
        shares = [range(first, min(first + each, drivers)) for first in range(0, drivers, each)]
        begin = time.time() + 5  # the processes import first
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(len(shares), mp_context=context) as pool:
            running = [pool.submit(_process, location, share, _CALLS // drivers, begin) for share in shares]
            found = [future.result() for future in running]
        taken = sorted(1000 * seconds for times, _, _ in found for seconds in times)
        rate = len(taken) / (max(end for _, end, _ in found) - begin)
        percentiles = (taken[int(len(taken) * part)] for part in (0.5, 0.99))
        cpu = 1000 * sum(spent for _, _, spent in found) / len(taken)
        print(f"{drivers:7} {rate:8.0f} {' '.join(f'{value:8.1f}' for value in percentiles)} {cpu:12.1f}")
    report = ledger.verify()
    if not report.ok:
        raise RuntimeError(report.problem)
    ledger.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["fleet"]:
        with tempfile.TemporaryDirectory() as folder:
            fleet(sys.argv[2] if len(sys.argv) > 2 else str(Path(folder) / "x.dpsql-ledger"))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
