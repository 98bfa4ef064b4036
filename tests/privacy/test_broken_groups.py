"""Planted faults of grouped aggregates: each is caught through SQL, and the right function passes the same check."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

import dpsql
from dpsql.testing import AuditReport, audit_sql
from support.audits import connecting
from support.broken import groups as broken
from support.broken.planting import Fault, planted
from support.exact_sums import distances, exact_sums

UNIT = "privacy_unit := 'unit', max_groups_per_unit := 2, max_rows_per_unit_group := 1"
ONE_ROW = "privacy_unit := 'unit', max_groups_per_unit := 1, max_rows_per_unit_group := 1"
# The unit of the second table alone has rows in many groups, and many rows in each.
OTHERS = "SELECT 1 + i % 4 AS unit, ['a', 'b', 'c', 'd'][1 + i // 4] AS h FROM range(16) AS r(i)"
MINE = "SELECT 9 AS unit, ['a', 'b', 'y', 'z'][1 + i % 4] AS h FROM range(40) AS r(i)"
UNLISTED = "SELECT 9 AS unit, ['y', 'z'][1 + i % 2] AS h FROM range(40) AS r(i)"
CALL = "FROM dp_count('t', by := 'h', keys := ['a', 'b', 'c'], other := true, {}, epsilon := 1)"


def furthest(fault: Fault | None, mine: str, unit: str) -> float:
    """Return how much further than claimed the sums of neighbouring tables are apart, in 6 samples under other keys."""
    worst = 0.0
    for _ in range(6):
        con = dpsql.connect()
        with planted(*(fault.patches if fault else ())), exact_sums() as seen:
            for rows in (OTHERS, f"{OTHERS} UNION ALL {mine}"):
                con.execute(f"CREATE OR REPLACE TABLE t AS {rows}")
                con.execute(CALL.format(unit)).fetchall()
            for l1, most, l2, squared in distances(seen[-2], seen[-1]):
                worst = max(worst, l1 / most, l2 / squared)
        con.close()
    return worst


@pytest.mark.parametrize("fault", broken.MOVES, ids=lambda fault: fault.what[:40])
def test_sums_that_move_too_far(fault: Fault) -> None:
    mine = UNLISTED if fault is broken.CAPPED_FIRST else MINE
    unit = ONE_ROW if fault is broken.OVER_ALL_ROWS else UNIT
    assert furthest(fault, mine, unit) > 1
    assert furthest(None, mine, unit) <= 1


def audited(
    opened: list[Any],
    fault: Fault | None,
    sql: str,
    tables: tuple[str, str],
    *,
    epsilon: float,
    delta: float,
    runs: int,
) -> AuditReport:
    with planted(*fault.patches) if fault else nullcontext():
        return audit_sql(
            connecting(opened), sql, tables, epsilon=epsilon, delta=delta, runs=runs, confidence=1 - 1e-6, power=0.3
        )


PUBLIC = "SELECT h FROM dp_count('t', by := 'h', keys := ['a', 'b'], epsilon := 0.1)"
PRIVATE = "SELECT {} FROM dp_count('t', by := 'h', keys := 'private', epsilon := 1, delta := 1e-6, noise := 'laplace')"
ONE = "CREATE TABLE t AS SELECT 'a' AS h FROM range({})"
LONE = (ONE.format(1), f"{ONE.format(1)} UNION ALL SELECT 'b'")
MANY = (ONE.format(60), ONE.format(61))


@pytest.mark.parametrize(
    ("fault", "sql", "tables", "delta"),
    [
        (broken.NOT_EMPTY, PUBLIC, LONE, 0),
        (broken.BY_COUNT, PUBLIC, (f"{ONE.format(2)} UNION ALL SELECT 'b'", LONE[1] + " UNION ALL SELECT 'b'"), 0),
        (broken.DISTINCT_KEYS, PRIVATE.format("h"), LONE, 1e-6),
        (broken.EXACT_COUNTS, PRIVATE.format("value"), MANY, 1e-6),
    ],
    ids=lambda value: value.what[:40] if isinstance(value, Fault) else None,
)
def test_results_that_tell_exact_counts(
    opened: list[Any], fault: Fault, sql: str, tables: tuple[str, str], delta: float
) -> None:
    epsilon = 0.1 if sql == PUBLIC else 1.0
    report = audited(opened, fault, sql, tables, epsilon=epsilon, delta=delta, runs=150)
    assert report.verdict == "violates", str(report)
    right = audited(opened, None, sql, tables, epsilon=epsilon, delta=delta, runs=150)
    assert right.verdict != "violates", str(right)
