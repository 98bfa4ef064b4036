"""Audits of grouped aggregates through SQL: the right functions keep what they claim, and half of the noise does not.

The audited table is there many times, each time with keys and units of its own, so that one call is as many releases as
there are copies: noise of different groups is independent, and what a unit adds does not depend on how many groups there are.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from dpsql.functions.grouped.aggregate import CountPlan
from dpsql.testing import AuditReport, audit_sql
from support.audits import connecting
from support.cases import cases

COPIES = 500
KEYS = "by := ['copy', 'h'], keys := {copy: range({count}), h: ['a', 'b']}"
UNIT = "privacy_unit := 'unit', max_groups_per_unit := 2, max_rows_per_unit_group := 2, max_rows_per_unit := 3"
BASE = "SELECT i AS unit, 'a' AS h, 0.0 AS x FROM range(3) AS r(i)"
FULL = f"{BASE} UNION ALL SELECT 9, ['a', 'b'][1 + i % 2], 4.0 FROM range(8) AS r(i)"
OTHER = f"{BASE} UNION ALL SELECT 9, 'b', -4.0 FROM range(8) AS r(i)"
ROW = f"{BASE} UNION ALL SELECT 9, 'b', 4.0"
AVG = "dp_avg('t', target := 'x', lower := -4, upper := 4"
CASES = {
    "count of rows": (f"dp_count('t', {KEYS}", (BASE, ROW), 0),
    "count of rows, replace": (
        f"dp_count('t', {KEYS}, neighbours := 'replace'",
        (ROW, ROW.replace("'b', 4", "'a', 4")),
        0,
    ),
    "count of units": (f"dp_count('t', {KEYS}, {UNIT}", (BASE, FULL), 0),
    "different units": (
        f"dp_count('t', distinct_of := 'unit', {KEYS}, privacy_unit := 'unit', max_groups_per_unit := 2",
        (BASE, FULL),
        0,
    ),
    "mean": (f"{AVG}, {KEYS}, {UNIT}", (BASE, FULL), 0),
    "mean, replace": (f"{AVG}, {KEYS}, {UNIT}, neighbours := 'replace'", (FULL, OTHER), 0),
    "shared count": (
        f"dp_avg('t', target := ['x', 'unit'], lower := -4, upper := 4, nulls := 'middle', {KEYS}",
        (BASE, ROW),
        0,
    ),
    "Gaussian mean": (f"{AVG}, {KEYS}, {UNIT}, delta := 0.01, noise := 'gaussian'", (BASE, FULL), 0.01),
    "variance of sums": (
        f"dp_variance('t', target := 'x', lower := 0, upper := 8, {KEYS}, privacy_unit := 'unit', max_groups_per_unit := 2, "
        "unit_value := 'sum'",
        (BASE, FULL),
        0,
    ),
    "private keys": (
        "dp_count('t', by := ['copy', 'h'], keys := 'private', delta := 0.1, privacy_unit := 'unit', max_groups_per_unit := 2, "
        "max_rows_per_unit_group := 1",
        (BASE, FULL),
        0.1,
    ),
}


def audited(opened: list[Any], name: str, claimed: float, spent: float, runs: int) -> AuditReport:
    call, tables, delta = CASES[name]
    copied = f"SELECT copy, 100 * copy + unit AS unit, h, x FROM ({{}}), range({COPIES}) AS c(copy)"
    scripts = (f"CREATE TABLE t AS {copied.format(tables[0])}", f"CREATE TABLE t AS {copied.format(tables[1])}")
    sql = (
        f"SELECT list(value ORDER BY h, target) FILTER (value IS NOT NULL) FROM range({{count}}) AS c(copy) "
        f"LEFT JOIN {call}, epsilon := {spent}) USING (copy) GROUP BY copy"
    )
    options = {"epsilon": claimed, "delta": delta, "runs": runs, "batch": COPIES}
    return audit_sql(connecting(opened), sql, scripts, confidence=1 - 1e-6, power=0.3, **options)


@cases("name", CASES)
def test_what_is_claimed_is_kept(opened: list[Any], name: str) -> None:
    report = audited(opened, name, 1.0, 1.0, 1000)
    assert report.verdict != "violates", str(report)


@pytest.mark.parametrize(
    ("name", "spent"),
    [("count of rows", 2.5), ("count of units", 4.0), ("mean", 12.0), ("mean, replace", 12.0), ("shared count", 12.0)],
)
def test_the_audit_has_power(opened: list[Any], name: str, spent: float) -> None:
    """What spends many times its claim is found; of continuous values fewer releases are alike."""
    report = audited(opened, name, 1.0, spent, 1000)
    assert report.verdict == "violates", str(report)


ALONE = {
    "count": "dp_count('t', condition := 'x > 0', neighbours := 'replace'",
    "sum": "dp_sum('t', target := 'x', lower := -1, upper := 4, neighbours := 'replace'",
    "mean": "dp_avg('t', target := 'x', lower := -1, upper := 4, neighbours := 'replace'",
    "public size": "dp_avg('t', target := 'x', lower := -1, upper := 4, neighbours := 'replace', group_sizes := 3",
}


def audited_alone(opened: list[Any], name: str, spent: float) -> AuditReport:
    """Audit a call without groups: two zeros, and a row at one bound that is replaced by one at the other."""
    tables = tuple(f"CREATE TABLE t AS FROM (VALUES (0.0), (0.0), ({x})) AS v(x)" for x in (-1.0, 4.0))
    sql = f"SELECT round(value, 1) FROM {ALONE[name]}, epsilon := {spent})"
    return audit_sql(connecting(opened), sql, tables, epsilon=1.0, runs=400, confidence=1 - 1e-6, power=0.3)


@pytest.mark.parametrize("name", ALONE)
def test_one_group_keeps_what_it_claims(opened: list[Any], name: str) -> None:
    """Under replace, with the noise of one row and not of two."""
    report = audited_alone(opened, name, 1.0)
    assert report.verdict != "violates", str(report)


@pytest.mark.parametrize("name", ["count", "sum"])
def test_the_audit_of_one_group_has_power(opened: list[Any], name: str) -> None:
    report = audited_alone(opened, name, 3.0)
    assert report.verdict == "violates", str(report)


@cases("noise", ["laplace", "gaussian", "auto"])
@cases("limits", [(1, 1), (3, 1), (3, 2)])
@cases("neighbours", ["add_remove", "replace"])
def test_a_key_that_one_unit_has_stays_unknown(noise: str, limits: tuple[int, int], neighbours: str) -> None:
    """By the exact law of the noise that is drawn: all lone keys of a unit together, with all its rows."""
    delta = Fraction(1, 10**6)
    given = {"by": "h", "keys": "private", "epsilon": 1, "delta": 1e-6, "noise": noise, "neighbours": neighbours}
    given |= {"privacy_unit": "u", "max_groups_per_unit": limits[0], "max_rows_per_unit_group": limits[1]}
    part: Any = CountPlan.from_arguments("t", given).part
    # Where a unit has several rows in a group, units are counted.
    chance = part.count_noise.tail(part.threshold - part.count_noise.unit)
    assert 1 - (1 - chance) ** limits[0] <= delta
    assert 1 - (1 - part.count_noise.tail(part.threshold - 2 * part.count_noise.unit)) ** limits[0] > delta / 100
