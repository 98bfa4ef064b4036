"""Audits of calls on several tables of the same people, through SQL: a person goes, whose orders others share.

The tables are there many times, with people, orders and groups of their own, so that one call is as many releases.
"""

from __future__ import annotations

from typing import Any

import pytest

from dpsql.testing import AuditReport, audit_sql
from support.audits import connecting
from support.broken.planting import planted
from support.broken.several import CAP_BEFORE_JOIN

COPIES = 500
# Order 1 is of two people, who share its line; order 2 is there twice, and its lines and parts are of one person alone.
OTHERS, MINE = ["(1, 1)", "(3, 1)"], ["(1, 9)", "(2, 9)", "(2, 9)"]
SHARED, ALONE = ["(1, 11)", "(3, 31)"], ["(2, 21)", "(2, 21)", "(2, 22)", "(2, 23)"]
PROTECT = (
    "SELECT dp_protect('shop', epsilon := 1e9, max_rows_per_unit := 2, "
    "tables := {orders: 'who', lines: 'o -> orders.ok', parts: 'l -> lines.lk'})"
)
VIEWS = (
    "CREATE VIEW bought AS SELECT orders.* FROM orders JOIN (SELECT DISTINCT o FROM lines) ON o = ok; "
    "CREATE VIEW per_order AS SELECT copy, who, n FROM orders JOIN (SELECT o, count(*) AS n FROM lines GROUP BY o) ON o = ok"
)


def script(orders: list[str], lines: list[str]) -> str:
    """Return the statements that make the tables, many times, and declare them."""
    parts = [f"({line.split(', ')[1]}" for line in lines]
    copied = f"range({COPIES}) AS c(copy)"
    return (
        f"CREATE TABLE orders AS SELECT copy, 100 * copy + k AS ok, 100 * copy + p AS who "
        f"FROM (VALUES {', '.join(orders)}) AS v(k, p), {copied}; "
        f"CREATE TABLE lines AS SELECT copy, 100 * copy + k AS o, 100 * copy + i AS lk "
        f"FROM (VALUES {', '.join(lines)}) AS v(k, i), {copied}; "
        f"CREATE TABLE parts AS SELECT copy, 100 * copy + i AS l FROM (VALUES {', '.join(parts)}) AS v(i), {copied}; "
        f"CREATE TABLE t AS SELECT 1 AS one; {PROTECT}; {VIEWS}"
    )


def audited(opened: list[Any], source: str, spent: float) -> AuditReport:
    sql = (
        f"SELECT value FROM dp_count('{source}', by := 'copy', keys := range({{count}}), epsilon := {spent}, "
        "left_out_share := 0) ORDER BY copy"
    )
    tables = script(OTHERS + MINE, SHARED + ALONE), script(OTHERS, SHARED)
    options = {"epsilon": 1.0, "runs": 1000, "batch": COPIES}
    return audit_sql(connecting(opened), sql, tables, confidence=1 - 1e-6, power=0.3, **options)


@pytest.mark.parametrize("source", ["orders", "lines", "parts", "bought", "per_order"])
def test_what_is_claimed_is_kept(opened: list[Any], source: str) -> None:
    report = audited(opened, source, 1.0)
    assert report.verdict != "violates", str(report)


def test_a_cap_before_the_join_is_found(opened: list[Any]) -> None:
    with planted(*CAP_BEFORE_JOIN.patches):
        report = audited(opened, "lines", 1.0)
    assert report.verdict == "violates", str(report)
