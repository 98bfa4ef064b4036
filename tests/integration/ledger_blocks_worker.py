"""Charge blocks of a ledger in a process of its own: ``ledger_blocks_worker.py LOCATION SEED CALLS [ROW]``.

Each call names months by chance, and some are on rows without a date. It prints one line per acknowledged charge,
``sequence hash epsilon blocks``, and ``refused`` for one beyond a limit; CALLS 0 never ends. With ROW the process kills
itself in its first call, when it has written so many rows of it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from fractions import Fraction
from functools import partial
from itertools import count
from typing import Any

from dpsql.contract.periods import Dated, During
from dpsql.errors import BudgetError
from dpsql.ledger.ledger import Charge, Ledger
from dpsql.ledger.transaction import Transaction

TABLES = (("patients", None), ("visits", "day"))
DATED, UNDATED = (Dated("month", column, tables=TABLES) for column in ("day", ""))
STATED: dict[str, Any] = {
    "epsilon": 2, "privacy_unit": "pid", "max_rows_per_unit": 2, "period": "month", "period_of": dict(TABLES),
    "epsilon_total": 9,
}  # fmt: skip


def charge_of(during: During, epsilon: Fraction) -> Charge:
    """Return a charge of each of some blocks."""
    event = {"mechanism": "exponential_noise", "epsilon": str(float(epsilon))}
    arguments = {"k": 2, "during": during.to_json()}
    return Charge(
        "clinic", event, "dp_sis", arguments, privacy_unit="pid", max_rows_per_unit=2, traced=True, during=during
    )


def drawn(draws: random.Random) -> tuple[During, Fraction]:
    """Return the blocks of a call by chance, and its epsilon."""
    epsilon = Fraction(draws.choice([1, 2, 5, 20]), 100)
    first, number = draws.randrange(8), draws.choice([1, 1, 2, 3, 5])
    names = [f"{2025 + month // 12}-{month % 12 + 1:02d}" for month in range(first, first + number)]
    chosen = None if draws.random() < 0.15 else draws.sample(names, len(names))
    during = During.read(chosen, UNDATED if chosen is None else DATED)
    assert during is not None
    return during, epsilon


def kill_at(row: int) -> None:
    """End this process when it has written so many rows of a call, and not yet committed them."""
    append, written = Transaction.append, []

    def appended(self: Any, *given: Any) -> Any:
        entry = append(self, *given)
        written.append(entry)
        if len(written) == row:
            os.kill(os.getpid(), signal.SIGKILL)
        return entry

    setattr(Transaction, "append", appended)  # noqa: B010


if __name__ == "__main__":
    location, seed, calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    ledger, draws = Ledger.open(location), random.Random(seed)
    if len(sys.argv) > 4:
        kill_at(int(sys.argv[4]))
        during = During.read("2025-01/2025-06", DATED)
        assert during is not None
        ledger.charge(charge_of(during, Fraction(1, 10)), lambda: [0])
    for attempt in range(calls) if calls else count():
        during, epsilon = drawn(draws)
        try:
            entry = ledger.charge(charge_of(during, epsilon), partial(list, [attempt]))
            print(entry.sequence, entry.hash, epsilon, ",".join(during.blocks), flush=True)
        except BudgetError:
            print("refused", flush=True)
    ledger.close()
