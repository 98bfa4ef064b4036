"""Charge a ledger in a process of its own: ``ledger_worker.py LOCATION COUNT``; COUNT 0 never ends.

Prints one line per acknowledged charge, ``sequence hash``, and ``refused`` for one beyond the budget.
"""

from __future__ import annotations

import sys
from itertools import count

from dpsql.errors import BudgetError
from dpsql.ledger.ledger import Charge, Ledger

if __name__ == "__main__":
    location, number = sys.argv[1], int(sys.argv[2])
    ledger = Ledger.open(location)
    for attempt in range(number) if number else count():
        try:
            entry = ledger.charge(
                Charge(
                    "patients",
                    event={"mechanism": "exponential_noise", "epsilon": "0.001"},
                    function="dp_sis",
                    arguments={"k": 2},
                ),
                lambda attempt=attempt: [attempt],
            )
            print(entry.sequence, entry.hash, flush=True)
        except BudgetError:
            print("refused", flush=True)
