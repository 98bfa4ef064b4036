"""Milliseconds that the ledger adds to a call: ``python benchmarks/ledger.py [entries]``.

The median over 500 of each, on a SQLite file that already holds some entries (2,000 by default) of ten datasets.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpsql.contract.events import cost_of
from dpsql.ledger.ledger import Budget, Ledger

_event = {"mechanism": "gumbel_noise", "epsilon": "0.001", "rounds": 5}
_call: dict[str, Any] = {
    "event": _event,
    "function": "dp_sis",
    "arguments": {"source": "patients", "k": 5, "epsilon": "0.001", "features": [f"g{i}" for i in range(40)]},
}


def _median(work: Callable[[], object], times: int = 500) -> float:
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
        draw = lambda: [{"rank": i, "feature": f"g{i}"} for i in range(5)]  # noqa: E731
        for i in range(10):
            ledger.protect(f"dataset {i}", Budget.of(epsilon=10**6, lower=0, upper=1))
        for i in range(entries):
            ledger.charge(f"dataset {i % 10}", draw=draw, **_call)
        ledger.charge("dataset 3", draw=draw, name="weekly", **_call)
        fingerprint = Ledger.fingerprint("dataset 3", "dp_sis", _call["arguments"])
        operations: dict[str, Callable[[], object]] = {
            "charge": lambda: ledger.charge("dataset 3", draw=draw, **_call),
            "check": lambda: ledger.check("dataset 3", cost_of(_event)),
            "policy": lambda: ledger.policy("dataset 3"),
            "replay": lambda: ledger.replay("dataset 3", "weekly", fingerprint),
            "budgets": ledger.budgets,
        }
        for name, work in operations.items():
            print(f"{name:8} {_median(work, 50 if name == 'budgets' else 500):8.3f} ms")
        ledger.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
