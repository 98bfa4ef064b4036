"""Planted faults of grouped aggregates: each is caught through SQL, and the right function passes the same check."""

from __future__ import annotations

from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import pytest

import dpsql
from dpsql.testing import AuditReport, audit_sql
from support.audits import connecting
from support.broken import groups as broken
from support.broken.planting import Fault, planted
from support.cases import cases
from support.exact_sums import distances, exact_sums
from support.sessions import one_key

UNIT = "privacy_unit := 'unit', max_groups_per_unit := 2, max_rows_per_unit_group := 1"
ONE_ROW = "privacy_unit := 'unit', max_groups_per_unit := 1, max_rows_per_unit_group := 1"
# The unit of the second table alone has rows in many groups, and many rows in each.
OTHERS = "SELECT 1 + i % 4 AS unit, ['a', 'b', 'c', 'd'][1 + i // 4] AS h FROM range(16) AS r(i)"
MINE = "SELECT 9 AS unit, ['a', 'b', 'y', 'z'][1 + i % 4] AS h FROM range(40) AS r(i)"
UNLISTED = "SELECT 9 AS unit, ['y', 'z'][1 + i % 2] AS h FROM range(40) AS r(i)"
CALL = "FROM dp_count('t', by := 'h', keys := ['a', 'b', 'c'], other := true, {}, epsilon := 1, left_out_share := 0)"


@lru_cache  # the right function is asked the same of several faults
def furthest(fault: Fault | None, mine: str, unit: str) -> float:
    """Return how much further than claimed the sums of neighbouring tables are apart, in samples under other keys.

    The keys are fixed. The first sample that is too far apart is the last; a fault shows in every fifth sample, or more often.
    """
    worst = 0.0
    for number in range(6 if fault is None else 40):
        con = dpsql.connect()
        with planted(*(fault.patches if fault else ())), one_key(number.to_bytes(16, "big")), exact_sums() as seen:
            for rows in (OTHERS, f"{OTHERS} UNION ALL {mine}"):
                con.execute(f"CREATE OR REPLACE TABLE t AS {rows}")
                con.execute(CALL.format(unit)).fetchall()
            for l1, most, l2, squared in distances(seen[-2], seen[-1]):
                worst = max(worst, l1 / most, l2 / squared)
        con.close()
        if worst > 1:
            break
    return worst


@pytest.mark.long
@cases("fault", broken.MOVES, ids=lambda fault: fault.what[:40])
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
        options = {"epsilon": epsilon, "delta": delta, "runs": runs, "batch": COPIES if "{count}" in sql else 1}
        return audit_sql(connecting(opened), sql, tables, confidence=1 - 1e-6, power=0.3, **options)


# One call is a release per copy of the table: noise of different groups is independent.
COPIES = 150
EACH = "SELECT list({} ORDER BY h) FROM range({{count}}) AS c(copy) LEFT JOIN {} USING (copy) GROUP BY copy"
PUBLIC = "dp_count('t', by := ['copy', 'h'], keys := {copy: range({count}), h: ['a', 'b']}, epsilon := 0.1)"
PRIVATE = "dp_count('t', by := ['copy', 'h'], keys := 'private', epsilon := 1, delta := 1e-6, noise := 'laplace')"
ORDERED = "SELECT h FROM dp_count('t', by := 'h', keys := ['a', 'b'], epsilon := 0.1)"
ONE = f"CREATE TABLE t AS SELECT copy, 'a' AS h FROM range({COPIES}) AS c(copy), range({{}})"
LONE = (ONE.format(1), f"{ONE.format(1)} UNION ALL SELECT copy, 'b' FROM range({COPIES}) AS c(copy)")
MANY = (ONE.format(60), ONE.format(61))
TURNED = tuple(f"CREATE TABLE t AS SELECT unnest({keys}) AS h" for keys in (["a", "a", "b"], ["a", "b", "b"]))


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "sql", "tables", "delta"),
    [
        (broken.NOT_EMPTY, EACH.format("h", PUBLIC), LONE, 0),
        pytest.param(broken.BY_COUNT, ORDERED, TURNED, 0, marks=pytest.mark.long),
        (broken.DISTINCT_KEYS, EACH.format("h", PRIVATE), LONE, 1e-6),
        (broken.EXACT_COUNTS, EACH.format("value", PRIVATE), MANY, 1e-6),
    ],
    ids=lambda value: value.what[:40] if isinstance(value, Fault) else None,
)
def test_results_that_tell_exact_counts(
    opened: list[Any], fault: Fault, sql: str, tables: tuple[str, str], delta: float
) -> None:
    epsilon, runs = 1.0 if delta else 0.1, COPIES if "{count}" in sql else 60
    report = audited(opened, fault, sql, tables, epsilon=epsilon, delta=delta, runs=runs)
    assert report.verdict == "violates", str(report)
    right = audited(opened, None, sql, tables, epsilon=epsilon, delta=delta, runs=runs)
    assert right.verdict != "violates", str(right)
