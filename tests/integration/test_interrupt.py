"""Ctrl-C in raw SQL: long work stops on whatever thread DuckDB runs it, and the charge stands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, os, signal, sys, threading, time
import dpsql
from dpsql import progress
from dpsql.functions.registry import FUNCTIONS

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background begins without it
con = dpsql.connect(sys.argv[1])
con.execute("CREATE TABLE t AS SELECT range AS a, range * 7 % 13 AS b, range % 5 AS y FROM range(100)")
started = threading.Event()


def slow(self, statistic, report):
    started.set()
    while True:  # it ends where it is interrupted, or not at all
        report(0.5)
        time.sleep(0.01)


FUNCTIONS["dp_kendall"].call.prepare = slow


def press():
    started.wait()
    os.kill(os.getpid(), signal.SIGINT)


threading.Thread(target=press, daemon=True).start()
try:
    con.execute("FROM dp_kendall('t', target := 'y', k := 1, epsilon := 1)").fetchall()
    outcome = "answered"
except BaseException as error:
    outcome = type(error).__name__
ledger = con.execute("SELECT status, epsilon FROM dp_ledger()").fetchall()
print(json.dumps([outcome, ledger]))
"""


@pytest.mark.odds("0: looks at the charge")
@pytest.mark.parametrize("attempt", range(3))
def test_interrupt_stops_the_work_and_keeps_the_charge(tmp_path: Path, attempt: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "t.duckdb")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    outcome, ledger = json.loads(done.stdout.splitlines()[0])
    assert outcome != "answered"
    assert ledger == [["charged, no result", 1.0]]
