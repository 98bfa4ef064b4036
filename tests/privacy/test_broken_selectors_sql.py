"""Planted faults of subset and two-stage selection: the auditor catches each through SQL, and not the right function.

Every right function is accused with probability at most 1e-6; every fault is missed with probability below 1e-4.
"""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from dpsql.testing import AuditReport, audit_sql, to_arrow
from dpsql.testing.neighbours import Table
from support.audits import connecting
from support.broken import BROKEN_SELECTORS, install_broken_selectors
from support.cases import cases

CONFIDENCE = 1 - 1e-6
BOUNDS = "lower := -1, upper := 1, target_lower := -1, target_upper := 1"
# Every feature fits these rows with coefficient 5; the row more is missed by the first, by up to 6.
STEEP = ((0.2, 0.2, 0.2, 0.2, 1.0),) * 100
STEEPER = STEEP, (*STEEP, (-1.0, 0.2, 0.2, 0.2, 1.0))
# The row that all features but the first miss becomes one that the first misses.
PINNED = ((1.0,) * 9,) * 24
REPLACED = (*PINNED, (1.0, *(-1.0,) * 7, 1.0)), (*PINNED, (-1.0, *(1.0,) * 7, 1.0))
# The first feature is ahead by very little, then behind by very little.
NEAR = ((1.0, 1.0, 1.0), (1.0, 0.75, 1.0))
TURNED = NEAR, (*NEAR, (0.5, 1.0, 1.0))
# Sums of 4 rows that begin at a multiple of 4 are 0 for b and not for a; those of 5 rows are 0 for a and not for b.
WAVES = tuple(((1.0, 0.5, -1.0, 0.5, -1.0)[i % 5], (1.0, -1.0)[i % 2], 1.0) for i in range(100))
BATCHES = WAVES[:99], WAVES


def columns(pair: tuple[Table, Table]) -> list[str]:
    return [*"abcdefgh"[: len(pair[0][0]) - 1], "y"]


def run(opened: list[Any], pair: tuple[Table, Table], sql: str, *, epsilon: float, runs: int) -> AuditReport:
    names = columns(pair)
    tables = [
        to_arrow(tuple((i, *row) for i, row in enumerate(table)), ["id", *names], ["int64", *["double"] * len(names)])
        for table in pair
    ]
    batch = 200 if "{count}" in sql else 25
    return audit_sql(
        connecting(opened, install_broken_selectors),
        sql,
        (tables[0], tables[1]),
        epsilon=epsilon,
        runs=runs,
        confidence=CONFIDENCE,
        power=0.3,
        batch=batch,
    )


def broken(name: str, pair: tuple[Table, Table], radius: float, epsilon: float) -> str:
    rows = f"(SELECT list([{', '.join(columns(pair))}] ORDER BY id) FROM t)"
    return f"SELECT unnest({name}({rows}, 1, {radius}, {epsilon}, {{count}}))[1]"


def right(pair: tuple[Table, Table], epsilon: float, more: str) -> str:
    names = columns(pair)[:-1]
    return (
        f"SELECT dp_best_subset([{', '.join(names)}], y, names := {names}, k := 1, epsilon := {epsilon}, {BOUNDS}, "
        f"{more})[1].feature FROM t, range({{count}}) AS r(copy) GROUP BY copy"
    )


@cases(
    ("fault", "radius"),
    [("no_radius", 5.0), ("target_range", 5.0), ("no_ball", 1.1)],
    ids=lambda value: str(value),
    quick=1,
)
def test_range_that_does_not_cover_a_row(opened: list[Any], fault: str, radius: float) -> None:
    sql = broken(f"dp_broken_subset_{fault}", STEEPER, radius, 0.5)
    report = run(opened, STEEPER, sql, epsilon=0.5, runs=1200)
    assert report.verdict == "violates", str(report)


@pytest.mark.long
@pytest.mark.parametrize("radius", [5, 1.1])
def test_range_that_covers_a_row(opened: list[Any], radius: float) -> None:
    report = run(opened, STEEPER, right(STEEPER, 0.5, f"radius := {radius}"), epsilon=0.5, runs=100)
    assert report.verdict != "violates", str(report)


@pytest.mark.long
def test_range_of_an_addition_for_a_replacement(opened: list[Any]) -> None:
    sql = broken("dp_broken_subset_one_sided", REPLACED, 1.0, 2.0)
    report = run(opened, REPLACED, sql, epsilon=2.0, runs=6000)
    assert report.verdict == "violates", str(report)


@pytest.mark.long
def test_range_of_a_replacement(opened: list[Any]) -> None:
    sql = right(REPLACED, 2, "radius := 1, neighbours := 'replace'")
    report = run(opened, REPLACED, sql, epsilon=2.0, runs=200)
    assert report.verdict != "violates", str(report)


@pytest.mark.long
@pytest.mark.parametrize("fault", ["accepted", "kept_branch", "overweight"])
def test_rejection_sampling_misread(opened: list[Any], fault: str) -> None:
    sql = broken(f"dp_broken_subset_{fault}", TURNED, 1.1, 0.05)
    report = run(opened, TURNED, sql, epsilon=0.05, runs=2000)
    assert report.verdict == "violates", str(report)


@pytest.mark.long
def test_rejection_sampling_as_meant(opened: list[Any]) -> None:
    """The same list of one subset, which is another one on the other table."""
    report = run(opened, TURNED, right(TURNED, 0.05, "list_size := 1"), epsilon=0.05, runs=150)
    assert report.verdict != "violates", str(report)


def test_batches_whose_borders_move(opened: list[Any]) -> None:
    """99 rows make 20 batches of 4, all of which vote for a; 100 make 20 of 5, all of which vote for b."""
    rows = "(SELECT list([a, b, y] ORDER BY id) FROM t)"
    sql = f"SELECT unnest(dp_broken_two_stage_batches({rows}, 20, 0.5, {{count}}))"
    report = run(opened, BATCHES, sql, epsilon=0.5, runs=400)
    assert report.verdict == "violates", str(report)


@pytest.mark.long
def test_blocks_that_do_not_move(opened: list[Any]) -> None:
    """The same table and Lasso, each row in the block of its own id."""
    sql = (
        "SELECT feature FROM dp_two_stage('t', target := 'y', features := ['a', 'b'], k := 1, epsilon := 0.5, "
        "blocks := 20, penalty := 0.05, standardize := false, intercept := false, row_id := 'id')"
    )
    report = run(opened, BATCHES, sql, epsilon=0.5, runs=40)
    assert report.verdict != "violates", str(report)


def test_broken_functions_are_installed_on_request_only() -> None:
    found = "SELECT count(*) FROM duckdb_functions() WHERE function_name IN (SELECT unnest(?))"
    with duckdb.connect() as connection:
        assert connection.execute(found, [list(BROKEN_SELECTORS)]).fetchall() == [(0,)]
        install_broken_selectors(connection)
        assert connection.execute(found, [list(BROKEN_SELECTORS)]).fetchall() == [(len(BROKEN_SELECTORS),)]
