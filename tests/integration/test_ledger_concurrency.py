"""Many threads, processes and forks on one ledger grant exactly what the budget allows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from ledger_fleet_worker import APPROXIMATE, GAUSSIAN, PURE

from dpsql.errors import BudgetError, LedgerError
from dpsql.ledger.chain import RESERVED
from dpsql.ledger.ledger import Budget, Charge, Ledger

CALL: dict[str, Any] = {
    "event": {"mechanism": "exponential_noise", "epsilon": "0.001"},
    "function": "dp_sis",
    "arguments": {"k": 2},
}


def start_worker(location: str, *arguments: int, script: str = "ledger_worker.py") -> subprocess.Popen[str]:
    import dpsql

    root = str(Path(dpsql.__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    command = [sys.executable, str(Path(__file__).with_name(script)), location, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path})


def test_eight_processes_get_exactly_what_the_budget_allows(durable_location: str) -> None:
    workers = [start_worker(durable_location, 200) for _ in range(8)]  # the tables are created in a race, too
    Ledger.open(durable_location).protect("patients", Budget.of(epsilon=1))
    lines = [line for worker in workers for line in worker.communicate()[0].splitlines()]
    assert [worker.returncode for worker in workers] == [0] * 8
    acknowledged = {tuple(line.split()) for line in lines if line != "refused"}
    ledger = Ledger.open(durable_location)
    rows = ledger.entries()
    (budget,) = ledger.budgets()
    assert (budget.releases, budget.epsilon_spent, budget.epsilon_remaining) == (1000, 1.0, 0.0)
    assert len(lines) == 1600
    assert acknowledged == {(str(row.sequence), row.hash) for row in rows if row.kind == "release"}
    assert ledger.verify().entries == 1001
    ledger.close()


def test_a_killed_process_loses_no_acknowledged_charge(durable_location: str) -> None:
    acknowledged: set[tuple[str, ...]] = set()
    for wanted in (1, 40, 111):
        workers = [start_worker(durable_location, 0) for _ in range(2)]
        for worker in workers:
            assert worker.stdout is not None
            for _ in range(wanted):
                acknowledged.add(tuple(worker.stdout.readline().split()))
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
        for worker in workers:
            rest, _ = worker.communicate()
            assert worker.returncode == -signal.SIGKILL
            acknowledged |= {tuple(line.split()) for line in rest.splitlines(keepends=True) if line.endswith("\n")}
        ledger = Ledger.open(durable_location)
        recorded = {(str(row.sequence), row.hash) for row in ledger.entries()}
        report = ledger.verify()
        ledger.close()
        assert acknowledged <= recorded
        assert report.ok, report
    assert len(acknowledged) >= 2 * (1 + 40 + 111)
    assert len(recorded) <= len(acknowledged) + 6  # a killed worker had at most one charge under way


def test_threads_share_a_ledger(ledger: Ledger) -> None:
    ledger.protect("patients", Budget.of(epsilon=0.1))

    def work(_: int) -> int:
        granted = 0
        for _ in range(20):
            try:
                ledger.charge(Charge("patients", **CALL), lambda: 1)
                granted += 1
            except BudgetError:
                ledger.budgets()
        return granted

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 100
    assert ledger.verify().entries == 101


def test_threads_that_ask_for_one_name_get_one_draw(ledger: Ledger) -> None:
    draws: list[int] = []

    def draw() -> int:
        draws.append(len(draws))
        return len(draws)

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: ledger.charge(Charge("patients", name="weekly", **CALL), draw), range(24)))
    assert draws == [0]
    assert {entry.result for entry in results} == {1}
    assert [entry.replayed for entry in results].count(False) == 1


def start_child(work: Any) -> int:
    """Run `work` in a fork of this process, for at most 60 s; return its process id."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return child


def in_child(work: Any) -> int:
    """Return 0 when `work` returned in a fork of this process."""
    return os.waitstatus_to_exitcode(os.waitpid(start_child(work), 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_parent_and_children_go_on_at_once_after_a_fork(durable_ledger: Ledger) -> None:
    def work() -> None:
        for _ in range(25):
            durable_ledger.charge(Charge("patients", **CALL), lambda: 1)
            durable_ledger.entries()

    work()
    children = [start_child(work) for _ in range(2)]
    work()
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
    work()
    assert durable_ledger.verify().entries == 125


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_while_another_thread_charges_leaves_no_lock_behind(durable_ledger: Ledger) -> None:
    drawing, go_on = threading.Event(), threading.Event()

    def draw() -> int:
        drawing.set()
        go_on.wait(0.5)  # the fork waits for this charge
        return 1

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: durable_ledger.charge(Charge("patients", **CALL), draw))
        drawing.wait()
        assert in_child(lambda: durable_ledger.charge(Charge("patients", **CALL), lambda: 2)) == 0
        go_on.set()
        assert first.result().sequence == 1
    assert durable_ledger.verify().entries == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_during_a_charge_commits_nothing_twice(durable_ledger: Ledger) -> None:
    codes = []

    def draw() -> int:
        codes.append(in_child(lambda: None))
        return 1

    durable_ledger.charge(Charge("patients", **CALL), draw)
    durable_ledger.charge(Charge("patients", **CALL), lambda: 2)
    assert codes == [0]
    assert durable_ledger.verify().entries == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_ledger_in_memory_does_not_grant_its_budget_twice_after_a_fork() -> None:
    ledger = Ledger.open()
    ledger.protect("patients", Budget.of(epsilon=1))

    def work() -> None:
        with pytest.raises(LedgerError, match="DPSQL-L009"):
            ledger.charge(Charge("patients", **CALL), lambda: 1)

    assert in_child(work) == 0
    ledger.charge(Charge("patients", **CALL), lambda: 1)
    ledger.close()


BUDGETS = {
    "patients": Budget.of(epsilon=0.5),
    "visits": Budget.of(rho=0.02),
    "trials": Budget.of(epsilon=1, delta=1.5e-7),
    "cohorts": Budget.of(epsilon=1, delta=1e-6, accountant="rdp"),
}


# What each was asked for until nothing more of it fits.
LAST_CALLS = {"patients": PURE, "visits": GAUSSIAN, "trials": APPROXIMATE, "cohorts": GAUSSIAN}


def test_a_fleet_of_drivers_spends_what_the_budgets_allow_and_no_more(durable_location: str) -> None:
    ledger = Ledger.open(durable_location)
    for dataset, budget in BUDGETS.items():
        ledger.protect(dataset, budget)
    workers = [start_worker(durable_location, each, 4, 40, script="ledger_fleet_worker.py") for each in range(4)]
    lines = [line for worker in workers for line in worker.communicate(timeout=300)[0].splitlines()]
    assert [worker.returncode for worker in workers] == [0] * 4
    assert len(lines) == 4 * 4 * 40
    report = ledger.verify()
    assert report.ok, report
    rows = {row.sequence: row for row in ledger.entries()}
    acknowledged = [line.split() for line in lines if line != "refused"]
    assert all(rows[int(sequence)].hash == digest for sequence, digest, _ in acknowledged)
    ends = [row for row in rows.values() if "charged in entry" in row.status]
    reserved = [row for row in rows.values() if row.status == RESERVED]
    assert ends
    assert all(row.status.startswith("released") for row in ends)
    charged = Counter(row.dataset for row in rows.values() if row.kind == "release" and row not in ends)
    assert charged == Counter(name for *_, datasets in acknowledged for name in datasets.split(","))
    assert len(reserved) < sum(charged.values())
    found = {row.dataset: row for row in ledger.budgets()}
    assert {dataset: row.releases for dataset, row in found.items()} == charged
    for dataset, budget in BUDGETS.items():
        spent = ledger._read(lambda transaction, of=dataset: transaction.state(of)).spent
        assert all(0 < (spent.charged(name) or 0) <= limit for name, limit in budget.limits.items() if limit)
        with pytest.raises(BudgetError):  # and what is left is less than one more call
            ledger.charge(Charge(dataset, **CALL | {"event": LAST_CALLS[dataset]}), lambda: 1)
    ledger.close()
