"""Audits of calls on periods through SQL, where the removed unit is a person in one of them.

Each copy of the table has people of its own, so one call is as many releases as there are copies. A unit of January is
removed: a call on January and February keeps the epsilon that January is charged, and one on February alone shows
nothing of it, however much February is charged.
"""

from __future__ import annotations

from typing import Any

import pytest

from dpsql.testing import AuditReport, audit_sql
from support.audits import connecting
from support.broken import periods as broken
from support.broken.planting import planted

COPIES = 500
OTHERS = "SELECT i AS person, 'b' AS h, DATE '2026-02-10' AS day FROM range(2) AS r(i)"
WITHOUT = f"{OTHERS} UNION ALL SELECT 9, 'b', DATE '2026-02-03'"
WITH = f"{WITHOUT} UNION ALL SELECT 9, 'a', DATE '2026-01-07'"
OWNER = (
    "SELECT dp_protect('t', epsilon := 1e9, privacy_unit := 'person', max_rows_per_unit := 1, period := 'month', "
    "period_of := 'day')"
)


def audited(opened: list[Any], during: str, claimed: float, spent: float) -> AuditReport:
    copied = f"SELECT copy, 100 * copy + person AS person, h, day FROM ({{}}), range({COPIES}) AS c(copy)"
    scripts = tuple(f"CREATE TABLE t AS {copied.format(rows)}; {OWNER}" for rows in (WITHOUT, WITH))
    call = (
        "dp_count('t', by := ['copy', 'h'], keys := {copy: range({count}), h: ['a', 'b']}, max_groups_per_unit := 1, "
        f"max_rows_per_unit_group := 1, left_out_share := 0, during := '{during}', epsilon := {spent})"
    )
    sql = (
        "SELECT list(value ORDER BY h) FILTER (value IS NOT NULL) FROM range({count}) AS c(copy) "
        f"LEFT JOIN {call} USING (copy) GROUP BY copy"
    )
    options: dict[str, Any] = {"epsilon": claimed, "delta": 0, "runs": 1000, "batch": COPIES}
    return audit_sql(connecting(opened), sql, scripts, confidence=1 - 1e-6, power=0.3, **options)


@pytest.mark.parametrize(("during", "claimed", "spent"), [("2026-01/2026-02", 1.0, 1.0), ("2026-02", 0.1, 8.0)])
def test_a_unit_shows_as_far_as_its_own_block_is_charged(
    opened: list[Any], during: str, claimed: float, spent: float
) -> None:
    report = audited(opened, during, claimed, spent)
    assert report.verdict != "violates", str(report)


def test_the_audit_has_power(opened: list[Any]) -> None:
    report = audited(opened, "2026-01/2026-02", 1.0, 4.0)
    assert report.verdict == "violates", str(report)


def test_a_cap_before_the_choice_of_periods_shows_rows_of_another_block(opened: list[Any]) -> None:
    """`cap_before_during`."""
    with planted(*broken.CAP_BEFORE_DURING.patches):
        report = audited(opened, "2026-02", 0.1, 8.0)
    assert report.verdict == "violates", str(report)
