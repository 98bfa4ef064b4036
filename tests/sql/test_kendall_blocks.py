"""Blocked Kendall through SQL: rows are counted within their blocks only, whatever way DuckDB hands them over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.engines.duckdb.keys import identity
from dpsql.functions import kendall
from dpsql.statistics.kendall import scaled_tau
from support.cases import cases
from support.sessions import known_block, one_key

ROWS = 1500


@pytest.fixture
def con() -> Iterator[Any]:
    opened = dpsql.connect()
    opened.execute(
        "CREATE TABLE t AS SELECT i AS id, i // 3 AS person, hash(i) % 100 AS a, hash(i + 1) % 7 AS b, "
        f"CASE WHEN i % 50 > 0 THEN hash(i) % 100 + hash(i + 2) % 90 END AS y FROM range({ROWS}) AS r(i)"
    )
    yield opened
    opened.close()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[kendall.Pairs]:
    pairs: list[kendall.Pairs] = []
    original = kendall.peel

    def peel(plan: Any, given: kendall.Pairs, progress: Any) -> list[int]:
        pairs.append(given)
        return original(plan, given, progress)

    monkeypatch.setattr(kendall, "peel", peel)
    return pairs


def call(con: Any, more: str = "") -> None:
    con.execute(f"FROM dp_kendall('t', target := 'y', features := ['a', 'b'], k := 2, epsilon := 1{more})").fetchall()


def tau(pairs: kendall.Pairs) -> list[float]:
    values, unit = scaled_tau(pairs.scores(2, [0, 1], lambda _: None), pairs.sizes)
    return [value / unit for value in values]


def brute(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return S of a and b with y among some rows; NaN ties with everything."""
    a, b, y = rows.T
    sign = [np.nan_to_num(np.sign(column[:, None] - column[None, :])) for column in (a, b, y)]
    return np.array([(sign[0] * sign[2]).sum(), (sign[1] * sign[2]).sum()]) / 2


@cases("blocks", [2, 37, 2000], quick=1, alone=True)
@cases("unit", ["id", "person"])
def test_scores_are_those_of_the_blocks(con: Any, seen: list[kendall.Pairs], blocks: int, unit: str) -> None:
    own = {"id": ", row_id := 'id'", "person": ", privacy_unit := 'person', max_rows_per_unit := 3"}[unit]
    with one_key():
        call(con, f"{own}, blocks := {blocks}")
    rows = con.execute(f"SELECT {known_block(identity(unit))} % {blocks} AS block, a, b, y FROM t").fetchnumpy()
    table = np.column_stack([np.asarray(np.ma.filled(rows[name].astype(float), np.nan)) for name in ("a", "b", "y")])
    expected = np.zeros(2)
    for block in np.unique(rows["block"]):
        mine = table[rows["block"] == block]
        if len(mine) > 1:
            expected += brute(mine) / (len(mine) - 1)
    np.testing.assert_allclose(tau(seen[0]), expected, rtol=1e-12, atol=1e-9)


def test_one_block_is_the_whole_table(con: Any, seen: list[kendall.Pairs]) -> None:
    call(con)
    call(con, ", row_id := 'id', blocks := 1")
    assert tau(seen[0]) == tau(seen[1])
    counts = {
        row[0]: row[1:]
        for row in con.execute("FROM exact_discordant('t', target := 'y', features := ['a', 'b'])").fetchall()
    }
    scores = [int(counts[name][1] - counts[name][0]) for name in ("a", "b")]
    assert seen[0].scores(2, [0, 1], lambda _: None)[0].tolist() == scores


def test_blocks_are_drawn_anew_in_every_call(con: Any, seen: list[kendall.Pairs]) -> None:
    """The key is secret, and of one call; under one key the same row stays in its block."""
    for _ in range(2):
        with one_key():
            call(con, ", row_id := 'id', blocks := 50")
    call(con, ", row_id := 'id', blocks := 50")
    first, again, other = (pairs.sizes.tolist() for pairs in seen)
    assert first == again
    assert tau(seen[0]) == tau(seen[1]) != tau(seen[2])
    assert sum(other) <= ROWS
