"""Calls that add rows up faster than these reach Python get them from one thread of DuckDB, and get all of them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import dpsql
from dpsql.engines.duckdb.running import Collecting
from support.cases import cases

ROWS = 400_000
CALLS = {
    "dp_sis": "dp_sis('t', target := 'y', features := ['a', 'b'], lower := -1, upper := 1, target_lower := -1, "
    "target_upper := 1, k := 1, epsilon := 1e6, dataset := 't')",
    "dp_sis under a condition": "dp_sis('t', target := 'y', features := ['a', 'b'], lower := -1, upper := 1, "
    "target_lower := -1, target_upper := 1, k := 1, epsilon := 1e6, dataset := 't', condition := 'a > -2')",
    "dp_bounds": "dp_bounds('t', target := 'a', epsilon := 1, dataset := 't')",
    "dp_quantile": "dp_quantile('t', target := 'a', quantiles := [0.5], lower := -1, upper := 1, epsilon := 1, "
    "dataset := 't')",
    "dp_regression_metrics": "dp_regression_metrics('t', target := 'y', prediction := 'a', lower := -1, upper := 1, "
    "epsilon := 1, dataset := 't')",
}


@cases("call", CALLS, quick=1)
def test_one_thread_hands_every_row_over(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """With four threads, and row groups enough for each of them."""
    con = dpsql.connect()
    con.execute("SET threads = 4")
    con.execute(f"CREATE TABLE t AS SELECT sin(range) AS a, cos(range) AS b, sin(range * 2) AS y FROM range({ROWS})")
    threads: set[int] = set()
    rows: list[int] = []
    add = Collecting.add

    def recorded(self: Collecting, running: Any, batch: Any, more: Any) -> None:
        threads.add(threading.get_ident())
        rows.append(len(batch))
        add(self, running, batch, more)

    monkeypatch.setattr(Collecting, "add", recorded)
    con.execute(f"SELECT * FROM {CALLS[call]}").fetchall()
    con.close()
    assert sum(rows) == ROWS
    assert len(threads) == 1
