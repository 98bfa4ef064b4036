"""How long a look-up of what one period has spent takes in a ledger of many years of nights.

``python benchmarks/periods.py [entries] [location]``: milliseconds, the median over 500, of the look-up of one block,
of twelve, of the check of a call and of a charge, in a ledger that holds 100,000 entries by default. The goal is 2 ms
for one block.
"""

from __future__ import annotations

import sys
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path

from ledger import median

from dpsql.contract.periods import Dated, During, block_of
from dpsql.ledger.charge import append_charges
from dpsql.ledger.ledger import Budget, Charge, Ledger

_DATED = Dated("day", "visit_date")
_FIRST = date(2020, 1, 1)
_NIGHTS = 3653


def call(first: date, days: int = 1) -> Charge:
    """Return the charge of a call on some days."""
    during = During.read(f"{block_of('day', first)}/{block_of('day', first + timedelta(days=days - 1))}", _DATED)
    assert during is not None
    return Charge(
        "visits",
        {"mechanism": "exponential_noise", "epsilon": "0.0001"},
        "dp_count",
        {"during": during.to_json()},
        privacy_unit="patient",
        max_rows_per_unit=4,
        during=during,
    )


def fill(ledger: Ledger, entries: int) -> None:
    """Charge a call on one day after the other, from the first again after ten years, in one transaction."""
    ledger.protect(
        "visits",
        Budget.of(epsilon=1, privacy_unit="patient", max_rows_per_unit=4, period="day", period_of="visit_date"),
    )
    for _ in range(-(-entries // 20_000)):
        start = ledger.head()[0] // 2

        def work(transaction: object, start: int = start) -> None:
            for number in range(start, start + 10_000):
                charge = call(_FIRST + timedelta(days=number % _NIGHTS))
                append_charges(transaction, charge.draft(charge.cost), charge.keys, charge.cost, charge.during)  # type: ignore[arg-type]

        ledger._write(work)


def main(entries: int, location: str) -> None:
    """Print one line per operation."""
    ledger = Ledger.open(location)
    fill(ledger, entries)
    day = _FIRST + timedelta(days=1000)
    names, twelve = call(day).during, call(day, 12)
    assert names is not None
    assert twelve.during is not None
    print(f"{ledger.head()[0]} entries")
    print(f"one block       {median(lambda: ledger._read(lambda found: found.blocks('visits', names.blocks))):8.2f} ms")
    many = twelve.during.blocks
    print(f"twelve blocks   {median(lambda: ledger._read(lambda found: found.blocks('visits', many))):8.2f} ms")
    print(f"check           {median(lambda: ledger.check(call(day))):8.2f} ms")
    print(f"charge          {median(lambda: ledger.charge(call(day), lambda: 1), 100):8.2f} ms")
    start = time.perf_counter()
    print(f"verify          {'ok' if ledger.verify().ok else 'damaged'} in {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(
            int(sys.argv[1]) if len(sys.argv) > 1 else 100_000,
            sys.argv[2] if len(sys.argv) > 2 else str(Path(folder) / "x.duckdb.dpsql-ledger"),
        )
