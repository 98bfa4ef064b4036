"""Ctrl-C at any moment loses no entry, hangs nothing, and comes out of Python's interface as KeyboardInterrupt."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from dpsql.ledger.ledger import Ledger
from dpsql.progress import held_back
from support.cases import cases

# The presses come from a timer of the system, at random moments of the loop, also in C.
PROGRAM = """
import faulthandler, json, random, signal, sys, threading, time, traceback
import dpsql
from dpsql.ledger.charge import Charge

faulthandler.dump_traceback_later(280, exit=True)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background begins without it
place, who, presses = sys.argv[1], sys.argv[2], int(sys.argv[3])
context = dpsql.Context(place)
context.sql("CREATE TABLE t AS SELECT range AS a FROM range(100)")
context.dp_protect("t", epsilon=10**6)
ledger = context.ledger
call = {"event": {"mechanism": "exponential_noise", "epsilon": "0.1"}, "function": "dp_sis", "arguments": {"k": 2}}
outcomes, answered, choose = {}, 0, random.Random(presses)


def charge():
    ledger.charge(Charge("t", **call), lambda: 1)
    ledger.budgets()


def press(number, frame):
    signal.raise_signal(signal.SIGINT)


def work():
    global answered
    if who == "context":
        context.dp_count("t", epsilon=1)
    elif who == "ledger":
        charge()
    else:  # a notebook's cell that waits for its threads
        threads = [threading.Thread(target=charge, name="charge") for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        answered += 1
    answered += 1


longest = 0.03 if who == "context" else 0.004
if who == "ledger":  # on a fast machine a charge is over long before: presses come while it runs
    times = [time.perf_counter()]
    for _ in range(5):
        work()
        times.append(time.perf_counter())
    longest = min(longest, 1.25 * min(after - before for before, after in zip(times, times[1:])))
signal.signal(signal.SIGALRM, press)
for _ in range(presses):
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, choose.uniform(0.0002, longest))
            work()
            outcome = "answered"
        except BaseException as error:
            outcome = type(error).__name__ if isinstance(error, KeyboardInterrupt) else repr(error)
            *_, (frame, _) = traceback.walk_tb(error.__traceback__)
            if isinstance(error, RuntimeError) and frame.f_code.co_filename == threading.__file__:  # Python's own locks
                outcome = "KeyboardInterrupt"
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:  # pressed in one of the lines above
        outcome = "KeyboardInterrupt"
    outcomes[outcome] = outcomes.get(outcome, 0) + 1
signal.setitimer(signal.ITIMER_REAL, 0)
# A thread may be there that its caller was kept from waiting for. One that was kept from beginning stays in the list.
latest = time.monotonic() + 5
for thread in threading.enumerate():
    if thread.name == "charge" and thread._started.wait(max(0, latest - time.monotonic())):
        thread.join()
report = ledger.verify()
releases = ledger.budgets()[0].releases
charge()
print(json.dumps([outcomes, answered, releases, report.ok, ledger.budgets()[0].releases]))
"""


@pytest.mark.odds("0: looks at charges")
@cases("place", ["memory", "file"])
@cases(
    ("who", "presses"),
    [
        ("ledger", 50),
        ("threads", 30),
        ("context", 15),
        *(pytest.param(who, 300, marks=pytest.mark.long) for who in ("ledger", "threads", "context")),
    ],
)
def test_presses_at_any_moment_lose_and_hang_nothing(tmp_path: Path, place: str, who: str, presses: int) -> None:
    where = ":memory:" if place == "memory" else str(tmp_path / f"{who}-{presses}.duckdb")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, where, who, str(presses)], capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    [report] = [line for line in done.stdout.splitlines() if line.startswith("[")]  # DuckDB may draw a bar beside it
    outcomes, answered, releases, ok, after = json.loads(report)
    assert set(outcomes) <= {"answered", "KeyboardInterrupt"}
    assert outcomes["KeyboardInterrupt"] > presses // 10
    assert ok
    assert releases >= answered
    assert after == releases + 1  # the ledger goes on


@pytest.fixture
def pressed(monkeypatch: pytest.MonkeyPatch) -> Any:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def test_a_held_signal_comes_at_the_end(pressed: Any) -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt):  # noqa: SIM117 - the inner one ends before the outer one
        with held_back():
            with held_back():
                pressed()
            reached.append("inner")
            pressed()
            reached.append("outer")
    assert reached == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_held_signal_comes_after_a_failure_too(pressed: Any) -> None:
    with pytest.raises(KeyboardInterrupt), held_back():
        pressed()
        raise ValueError("the body's own")
    with pytest.raises(ValueError, match="own"), held_back():
        raise ValueError("the body's own")


def test_what_is_ignored_or_off_the_main_thread_is_left_alone(pressed: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with held_back():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        pressed()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    seen: list[object] = []

    def work() -> None:
        with held_back():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def test_a_ledger_in_memory_outlives_a_dropped_connection() -> None:
    ledger = Ledger.open()
    ledger.declare("public", "airports", {}, "dp_public")
    engine = ledger._opened()._engine
    with engine.connect() as connection:
        connection.begin()
        connection.exec_driver_sql("INSERT INTO dpsql_ledger_meta VALUES ('x', 'y')")
        connection.invalidate()  # as SQLAlchemy does where an interrupt ends a statement
    assert ledger.verify().entries == 1
    assert ledger.declare("public", "ports", {}, "dp_public")
    ledger.close()
