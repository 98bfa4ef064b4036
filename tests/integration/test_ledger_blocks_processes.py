"""Many processes charge blocks of one ledger: none above its limit, no person above the total, each call whole or not at all."""

from __future__ import annotations

import random
import signal
from collections import Counter
from fractions import Fraction

import pytest
from ledger_blocks_worker import STATED, charge_of, drawn
from test_ledger_concurrency import start_worker

from dpsql.errors import BudgetError
from dpsql.ledger.chain import CHARGE
from dpsql.ledger.ledger import Budget, Ledger
from dpsql.ledger.rows import EVERY_OTHER, TOTAL
from support.cases import cases

SCRIPT = "ledger_blocks_worker.py"


def begin(location: str) -> None:
    ledger = Ledger.open(location)
    ledger.protect("clinic", Budget.of(**STATED))
    ledger.close()


def checked(ledger: Ledger) -> Counter[str]:
    """Return what is spent of each block, in hundredths; raise unless each release has all of its blocks, and no limit is passed."""
    report = ledger.verify()
    assert report.ok, report
    spent, person, open_ones = Counter[str](), Fraction(0), 0
    for row in ledger.entries():
        if row.kind == "release":
            assert open_ones == 0
            person += Fraction(str(row.epsilon))
            open_ones = round(100 * (row.epsilon or 0))
        elif row.kind == CHARGE:
            amount = round(100 * (row.epsilon or 0))
            spent[row.block or ""] += amount
            open_ones -= amount
    assert open_ones == 0
    rows = {str(row.block): row.epsilon_spent for row in ledger.budgets()}
    assert rows.pop(EVERY_OTHER) == 0
    assert rows.pop(TOTAL) == float(person) <= STATED["epsilon_total"]
    assert rows == {name: amount / 100 for name, amount in spent.items()}
    assert max(spent.values(), default=0) <= 100 * STATED["epsilon"]
    return spent


@pytest.mark.long
def test_eight_processes_charge_no_block_and_no_person_above_the_limit(durable_location: str) -> None:
    begin(durable_location)
    workers = [start_worker(durable_location, seed, 100, script=SCRIPT) for seed in range(8)]
    lines = [line for worker in workers for line in worker.communicate()[0].splitlines()]
    assert [worker.returncode for worker in workers] == [0] * 8
    assert len(lines) == 800
    ledger = Ledger.open(durable_location)
    spent, acknowledged = checked(ledger), Counter[str]()
    recorded = {(row.sequence, row.hash) for row in ledger.entries() if row.kind == "release"}
    said = [line.split() for line in lines if line != "refused"]
    assert {(int(sequence), digest) for sequence, digest, _, _ in said} == recorded
    for _, _, amount, blocks in said:
        for name in blocks.split(","):
            acknowledged[name] += int(100 * Fraction(amount))
    assert acknowledged == spent
    # Something was refused by now, and what is left is too little for what is asked next.
    assert len(said) < 800
    left = 100 * STATED["epsilon_total"] - sum(spent.values())
    draws = random.Random(9)
    for _ in range(40):
        during, epsilon = drawn(draws)
        fits = all(spent[name] + 100 * epsilon <= 100 * STATED["epsilon"] for name in during.blocks)
        fits = fits and 100 * epsilon * len(during.blocks) <= left
        if fits:
            ledger.charge(charge_of(during, epsilon), lambda: 1)
            spent.update(dict.fromkeys(during.blocks, int(100 * epsilon)))
            left -= int(100 * epsilon) * len(during.blocks)
        else:
            with pytest.raises(BudgetError, match="DPSQL-B001"):
                ledger.charge(charge_of(during, epsilon), lambda: 1)
    assert checked(ledger) == spent
    ledger.close()


@pytest.mark.long
@cases("row", [1, 2, 4, 7])
def test_a_process_killed_between_the_rows_of_a_call_charges_nothing(durable_location: str, row: int) -> None:
    """The call has a row of its own and one for each of six months; the last one is written before the commit."""
    begin(durable_location)
    ledger = Ledger.open(durable_location)
    head = ledger.head()
    worker = start_worker(durable_location, 0, 0, row, script=SCRIPT)
    assert worker.communicate()[0] == ""
    assert worker.returncode == -signal.SIGKILL
    assert ledger.head() == head
    assert checked(ledger) == Counter()
    during, _ = drawn(random.Random(0))
    ledger.charge(charge_of(during, Fraction(1, 10)), lambda: 1)  # the lock was left with the process
    assert checked(ledger) == Counter(dict.fromkeys(during.blocks, 10))
    ledger.close()


@pytest.mark.long
def test_killed_processes_leave_whole_calls(durable_location: str) -> None:
    begin(durable_location)
    acknowledged: set[tuple[int, str]] = set()
    for wanted in (1, 7, 12):
        workers = [start_worker(durable_location, wanted + each, 0, script=SCRIPT) for each in range(2)]
        lines = []
        for worker in workers:
            assert worker.stdout is not None
            lines += [worker.stdout.readline() for _ in range(wanted)]
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
        for worker in workers:
            lines += [line for line in worker.communicate()[0].splitlines(keepends=True) if line.endswith("\n")]
        acknowledged |= {(int(parts[0]), parts[1]) for parts in map(str.split, lines) if parts != ["refused"]}
    ledger = Ledger.open(durable_location)
    checked(ledger)
    assert acknowledged <= {(row.sequence, row.hash) for row in ledger.entries()}
    assert len(acknowledged) > 10
    ledger.close()
