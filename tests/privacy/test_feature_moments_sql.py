"""Covariances and correlations through SQL: what neighbours cost, planted faults, and audits of the outputs alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.testing import AuditReport, audit_sql, check_fresh_draws
from support.audits import connecting
from support.broken.feature_moments import BROKEN_MOMENTS, broken_moments
from support.cases import cases
from support.laws.feature_moments import MomentsSeen, observe_moments
from support.laws.regression import gaussian_profile

CONFIDENCE = 1 - 1e-6
CALL = "FROM {function}('{table}', features := ['a', 'b'], lower := -1, upper := 1, epsilon := 1{more})"
GAUSSIAN, REPLACE = ", delta := 1e-5", ", neighbours := 'replace'"
UNIT = ", privacy_unit := 'u', max_rows_per_unit := 3"
ROWS = {
    "t": "SELECT (i * 37) % 101 / 50 - 1 AS a, (i * 53) % 97 / 48 - 1 AS b, 100 + i // 3 AS u FROM range(300) AS r(i)",
    "corner": "FROM t UNION ALL SELECT 1, 1, 0",
    "other_corner": "FROM t UNION ALL SELECT 1, -1, 0",
    "inner_row": "FROM t UNION ALL SELECT -1 / 3, -1 / 3, 0",
    "missing": "FROM t UNION ALL SELECT 'nan'::DOUBLE, 1, 0",
    "far": "FROM t UNION ALL SELECT 1e9, -1e9, 0",
    "infinite": "FROM t UNION ALL SELECT 'inf'::DOUBLE, '-inf'::DOUBLE, 0",
    "person": "FROM t UNION ALL SELECT 1, 1, 0 FROM range(5)",
    "other_person": "FROM t UNION ALL SELECT 1, -1, 0 FROM range(5)",
}


@pytest.fixture(scope="module")
def connection() -> Iterator[Any]:
    opened = dpsql.connect()
    for name, rows in ROWS.items():
        opened.execute(f"CREATE TABLE {name} AS {rows}")
    yield opened
    opened.close()


def seen(
    connection: Any, table: str, more: str, first: MomentsSeen | None = None, function: str = "dp_covariance"
) -> MomentsSeen:
    statement = CALL.format(function=function, table=table, more=more)
    return observe_moments(lambda: connection.execute(statement).fetchall(), first)


def within(kind: str, loss: float) -> bool:
    """Whether a loss is covered by what the calls here are charged."""
    if kind == "laplace":
        return loss <= 1 + 1e-9
    return loss == 0 or gaussian_profile(loss, 1) <= 1e-5 * (1 + 1e-9)


def judged(connection: Any, tables: tuple[str, str], more: str, function: str = "dp_covariance") -> bool:
    """Whether two tables cost what is charged at most, and the results differ by what was released alone."""
    first = seen(connection, tables[0], more, function=function)
    second = seen(connection, tables[1], more, first, function)
    return within(first.kind, first.loss(second)) and first.rows == second.rows


CASES: dict[str, tuple[tuple[str, str], str]] = {
    "corner": (("t", "corner"), GAUSSIAN),
    "corner, pure": (("t", "corner"), ""),
    "replaced corner": (("corner", "other_corner"), GAUSSIAN + REPLACE),
    "replaced corner, pure": (("corner", "inner_row"), REPLACE),
    "unit": (("t", "person"), GAUSSIAN + UNIT),
    "unit, pure": (("t", "person"), UNIT),
    "replaced unit": (("person", "other_person"), GAUSSIAN + UNIT + REPLACE),
    "missing": (("t", "missing"), GAUSSIAN),
    "far": (("t", "far"), GAUSSIAN),
    "infinite": (("t", "infinite"), ""),
}


@cases("function", ["dp_covariance", "dp_correlation"])
@cases("case", CASES)
def test_neighbours_cost_what_is_charged(connection: Any, case: str, function: str) -> None:
    assert judged(connection, *CASES[case], function=function)


FAULTS: dict[str, str] = {
    "one-sided norm": "replaced corner",
    "one-sided sum": "replaced corner, pure",
    "halved products": "corner",
    "noise for one row": "unit",
    "root of the rows": "unit",
    "exact means": "corner",
    "a NaN in the sums": "missing",
    "values beyond the bounds": "far",
}


@cases("fault", FAULTS)
def test_a_planted_fault_costs_more(connection: Any, fault: str) -> None:
    with broken_moments(fault), np.errstate(all="ignore"):
        assert not judged(connection, *CASES[FAULTS[fault]])


def test_pairs_of_incomplete_rows_are_not_counted(connection: Any) -> None:
    """Rows with NULL in one feature and one count for all pairs: the covariance of the others is wrong."""
    connection.execute("CREATE OR REPLACE TABLE holes AS SELECT CASE WHEN u % 2 = 0 THEN a END AS a, a + b AS b FROM t")
    exact = connection.execute("SELECT covar_samp(a, b) FROM holes WHERE a IS NOT NULL").fetchone()[0]
    call = "SELECT value FROM dp_covariance('holes', features := ['a', 'b'], lower := -2, upper := 2, epsilon := 1e7)"
    assert connection.execute(call).fetchall()[1][0] == pytest.approx(exact, abs=1e-5)
    with broken_moments("one count for all pairs"):
        assert connection.execute(call).fetchall()[1][0] != pytest.approx(exact, abs=1e-2)


def test_every_fault_is_caught_by_something() -> None:
    assert {*FAULTS, "one count for all pairs"} == set(BROKEN_MOMENTS)


GROUPS = " FROM t, range({count}) AS r(copy) GROUP BY copy"
AGGREGATE = (
    "SELECT list_transform(dp_covariance([a, b]::DOUBLE[2], lower := -1, upper := 1, epsilon := 1, "
    "dataset := 't'{more}), lambda entry: entry.value)" + GROUPS
)
BESIDE = "CREATE TABLE t AS SELECT 0.0 AS a, 0.0 AS b FROM range(12)"
# More arguments, two neighbouring tables, and delta.
AUDITS: dict[str, tuple[str, tuple[str, str], float]] = {
    "pure": ("", (BESIDE, f"{BESIDE} UNION ALL SELECT 1, 1"), 0.0),
    "pure, replace": (REPLACE, (f"{BESIDE} UNION ALL SELECT 1, -1", f"{BESIDE} UNION ALL SELECT 1, 1"), 0.0),
    "gaussian": (", delta := 0.01", (BESIDE, f"{BESIDE} UNION ALL SELECT 1, 1"), 0.01),
}


def audited(opened: list[Any], more: str, tables: tuple[str, str], delta: float, runs: int) -> AuditReport:
    return audit_sql(
        connecting(opened),
        AGGREGATE.replace("{more}", more),
        tables,
        epsilon=1,
        delta=delta,
        runs=runs,
        confidence=CONFIDENCE,
        power=0.3,
        batch=250,
    )


@pytest.mark.parametrize("case", AUDITS)
def test_audit(opened: list[Any], case: str) -> None:
    report = audited(opened, *AUDITS[case], runs=500)
    assert report.verdict != "violates", str(report)


@pytest.mark.slow
@pytest.mark.parametrize("case", AUDITS)
def test_long_audit(opened: list[Any], case: str) -> None:
    report = audited(opened, *AUDITS[case], runs=20_000)
    assert report.verdict != "violates", str(report)


def test_the_auditor_sees_values_beyond_the_bounds(opened: list[Any]) -> None:
    with broken_moments("values beyond the bounds"):
        report = audited(opened, "", (BESIDE, f"{BESIDE} UNION ALL SELECT 1e6, 1e6"), 0.0, runs=500)
    assert report.verdict == "violates", str(report)


def test_each_execution_draws_anew(connection: Any) -> None:
    call = "SELECT value FROM dp_covariance('t', features := ['a', 'b'], lower := -1, upper := 1, epsilon := 1)"
    assert check_fresh_draws(connection, call, runs=10).fresh
