"""A process with several drivers on one ledger: ``ledger_fleet_worker.py LOCATION PROCESS DRIVERS CALLS``.

Each driver makes calls of several mechanisms to one dataset or two, in either order; some are reserved first. It prints one
line per call: ``sequence hash datasets`` once it is acknowledged, or ``refused``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dpsql.errors import BudgetError
from dpsql.ledger.ledger import Charge, Entry, Ledger

PURE = {"mechanism": "exponential_noise", "epsilon": "0.02"}
GAUSSIAN = {"mechanism": "discrete_gaussian", "rho": "0.001"}
APPROXIMATE = {"mechanism": "approximate", "epsilon": "0.01", "delta": "1e-8"}
PAIR = ("patients", "visits")
CALLS: list[tuple[dict[str, str], Sequence[str]]] = [
    (PURE, ("patients",)),
    (PURE, PAIR),
    (APPROXIMATE, ("trials",)),
    (PURE, PAIR[::-1]),
    (GAUSSIAN, ("visits",)),
    (GAUSSIAN, ("cohorts",)),
    (PURE, ("cohorts", "trials")),
    (PURE, ("trials", "visits", "cohorts")),
]


def release(ledger: Ledger, event: dict[str, str], datasets: Sequence[str], number: int) -> Entry:
    """Release one call; every third is reserved first."""
    call: dict[str, Any] = {"event": event, "function": "dp_sis", "arguments": {"k": number}, "also": datasets[1:]}
    reservation = ledger.reserve(Charge(datasets[0], **call)).sequence if number % 3 == 0 else None
    return ledger.charge(Charge(datasets[0], **call), lambda: [number], reservation=reservation)


def drive(ledger: Ledger, driver: int, calls: int) -> list[str]:
    """Make the calls of one driver; return its lines."""
    lines = []
    for number in range(calls):
        event, datasets = CALLS[(driver + number) % len(CALLS)]
        try:
            entry = release(ledger, event, datasets, number)
            lines.append(f"{entry.sequence} {entry.hash} {','.join(datasets)}")
        except BudgetError:
            lines.append("refused")
    return lines


if __name__ == "__main__":
    location, process, drivers, calls = sys.argv[1], *map(int, sys.argv[2:])
    ledger = Ledger.open(location)
    with ThreadPoolExecutor(drivers) as pool:
        for lines in pool.map(lambda each: drive(ledger, drivers * process + each, calls), range(drivers)):
            print(*lines, sep="\n")
    ledger.close()
