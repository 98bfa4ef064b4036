"""Audits of fits and summaries through SQL. A right release is accused with probability at most 1e-6."""

from __future__ import annotations

from typing import Any

import pytest

import dpsql
from dpsql.engines.duckdb.keys import identity
from dpsql.testing import AuditReport, audit_sql, check_fresh_draws
from support.audits import connecting
from support.cases import cases
from support.sessions import known_block

CONFIDENCE = 1 - 1e-6
GROUPS = " FROM t, range({count}) AS r(copy) GROUP BY copy"
TUKEY = "method := 'tukey', row_id := 'id'"


def steps(*values: tuple[float, int]) -> str:
    """Return the script of a table that holds each value so many times."""
    parts = (f"SELECT {value}::DOUBLE AS y FROM range({rows})" for value, rows in values)
    return f"CREATE TABLE t AS {' UNION ALL '.join(parts)}"


def corner(rows: int) -> str:
    """Return a table with a row in the middle and rows in a corner of the bounds."""
    return f"CREATE TABLE t AS SELECT 0.0 AS x, 0.0 AS y UNION ALL SELECT 1.0, 1.0 FROM range({rows})"


def owned(units: int) -> str:
    """Return a table of units that have three rows each, in a corner; one unit in the middle."""
    return (
        "CREATE TABLE t AS SELECT i AS u, (i > 0)::DOUBLE AS x, (i > 0)::DOUBLE AS y "
        f"FROM range({units}) AS r(i), range(3) AS s(j)"
    )


def far_units(units: int) -> str:
    """Return a table of 60 rows, and of so many units that have twenty rows each far away, in two groups."""
    return (
        "CREATE TABLE t AS SELECT i AS u, 'a' AS g, 3.0 AS y FROM range(60) AS r(i) UNION ALL "
        f"SELECT 100 + i % {units}, ['a', 'b'][1 + i // {units} % 2], 1e6 FROM range({units * 20}) AS r(i)"
    )


def missed(rows: int) -> str:
    """Return a table of perfect predictions, but for the fourth."""
    return f"CREATE TABLE t AS SELECT 1.0 AS y, CASE WHEN i = 3 THEN -1.0 ELSE 1.0 END AS p FROM range({rows}) AS r(i)"


def blocks_of_one(ones: int, blocks: int) -> str:
    """Return a table with one row in each of so many blocks of a session, the target of all being 1."""
    return (
        "CREATE TABLE t AS SELECT min(i) AS id, 0.0 AS x, 1.0 AS y "
        f"FROM (SELECT i, {known_block(identity('i'))} % {blocks} AS b FROM range(2000) AS r(i)) WHERE b < {ones} GROUP BY b"
    )


def aggregate(call: str, part: str) -> str:
    return f"SELECT list_transform({call}, lambda entry: entry.{part}){GROUPS}"


def quantile(more: str, part: str = "value") -> str:
    return aggregate(f"dp_quantile(y, lower := 0, upper := 8, cells := 8, dataset := 't', {more})", part)


def around_the_middle(low: int, high: int) -> str:
    """Return a table whose median is between two cells of forty rows each, far from both ends of the bounds."""
    return steps((0.5, low), (3.5, 40), (4.5, 40), (7.5, high))


def even(*rows: int) -> str:
    """Return a table that has so many rows in each cell."""
    return steps(*((cell + 0.5, count) for cell, count in enumerate(rows)))


def regression(more: str) -> str:
    public = "lower := -1, upper := 1, target_lower := -1, target_upper := 1, n_features := 1, dataset := 't'"
    return aggregate(f"dp_linear_regression([x], y, {public}, {more})", "coefficient")


def table_form(more: str) -> str:
    return f"SELECT coefficient FROM dp_linear_regression('t', target := 'y', features := ['x'], {more})"


# Statement, two neighbouring tables, epsilon, delta, what the audit is to see of it in a long run.
CASES: dict[str, tuple[str, tuple[str, str], float, float, float]] = {
    # A cell that is half a row off, and a whole one after the row.
    "quantile": (
        quantile("epsilon := 4, interval_share := 0.1"),
        (around_the_middle(40, 40), around_the_middle(41, 40)),
        4.0,
        0.0,
        0.4,
    ),
    "quantile, replace": (
        quantile("epsilon := 4, neighbours := 'replace', interval_share := 0.1"),
        (around_the_middle(40, 40), around_the_middle(41, 39)),
        4.0,
        0.0,
        0.4,
    ),
    "quantile, its interval": (
        quantile("interval_share := 0.9, epsilon := 6", "upper"),
        (even(2, 2, 2, 2, 2, 2, 2, 2), even(3, 2, 2, 2, 2, 2, 2, 2)),
        6.0,
        0.0,
        1.0,
    ),
    "quartiles": (
        quantile("quantiles := [0.25, 0.5, 0.75], epsilon := 6"),
        (around_the_middle(40, 40), around_the_middle(41, 40)),
        6.0,
        0.0,
        0.1,
    ),
    # The middle of a cell tells the private bounds.
    "quantile, private bounds": (
        aggregate("dp_quantile(y, cells := 8, bounds_share := 0.9, epsilon := 6, dataset := 't')", "value"),
        (steps((3, 60), (1e6, 2)), steps((3, 60), (1e6, 3))),
        6.0,
        0.0,
        0.4,
    ),
    # The noise of a sum is as wide as the private bounds, and its std_error says how wide.
    "sum, private bounds": (
        aggregate("dp_sum(y, bounds_share := 0.9, epsilon := 6, dataset := 't')", "std_error"),
        (steps((3, 60), (1e6, 2)), steps((3, 60), (1e6, 3))),
        6.0,
        0.0,
        0.4,
    ),
    "groups of units, private bounds": (
        "SELECT max(std_error) FROM dp_sum('t', target := 'y', by := 'g', keys := ['a', 'b'], epsilon := 18, "
        "bounds_share := 0.9, privacy_unit := 'u', max_groups_per_unit := 2, max_rows_per_unit_group := 1)",
        (far_units(1), far_units(2)),
        18.0,
        0.0,
        1.0,
    ),
    # As many rows far away as a scan leaves, and one more: it stops at once, or goes on.
    "bounds": (
        f"SELECT dp_bounds(y, epsilon := 6, dataset := 't')[1].upper{GROUPS}",
        (steps((3, 60), (1e6, 2)), steps((3, 60), (1e6, 3))),
        6.0,
        0.0,
        0.5,
    ),
    "metrics": (
        aggregate("dp_regression_metrics(y, p, epsilon := 13, lower := -1, upper := 1, dataset := 't')", "value"),
        (missed(3), missed(4)),
        13.0,
        0.0,
        1.5,
    ),
    "ada_ssp": (
        regression("epsilon := 30, delta := 0.01, method := 'ada_ssp'"),
        (corner(0), corner(1)),
        30.0,
        0.01,
        0.5,
    ),
    "ada_ssp, units": (
        table_form(
            "lower := -1, upper := 1, target_lower := -1, target_upper := 1, epsilon := 30, delta := 0.01, "
            "method := 'ada_ssp', privacy_unit := 'u', max_rows_per_unit := 3"
        ),
        (owned(1), owned(2)),
        30.0,
        0.01,
        0.2,
    ),
    "boosted": (
        regression("epsilon := 30, delta := 0.01, method := 'boosted_ada_ssp', rounds := 2"),
        (corner(0), corner(1)),
        30.0,
        0.01,
        0.1,
    ),
    # The blocks with another model are so many that one more takes the test to its limit.
    "tukey": (
        table_form(f"{TUKEY}, epsilon := 4, delta := 0.01, blocks := 48"),
        (blocks_of_one(7, 48), blocks_of_one(8, 48)),
        4.0,
        0.01,
        0.7,
    ),
}
TABLE_FORMS = [name for name, case in CASES.items() if "{count}" not in case[0]]


def run(opened: list[Any], name: str, runs: int, claim: float | None = None) -> AuditReport:
    sql, tables, epsilon, delta, _ = CASES[name]

    batch = 200 if "{count}" in sql else 20
    return audit_sql(
        connecting(opened),
        sql,
        tables,
        epsilon=claim or epsilon,
        delta=delta,
        runs=runs,
        confidence=CONFIDENCE,
        power=0.1,
        batch=batch,
    )


@cases("name", CASES)
def test_audit(opened: list[Any], name: str) -> None:
    report = run(opened, name, 40 if name in TABLE_FORMS else 100)
    assert report.verdict != "violates", str(report)


@pytest.mark.slow
@cases("name", CASES)
def test_long_audit(opened: list[Any], name: str) -> None:
    """On these pairs a good part of the claim is there to be seen, so that a larger loss would be, too."""
    report = run(opened, name, 700 if name in TABLE_FORMS else 2000)
    assert report.verdict != "violates", str(report)
    assert report.epsilon_lower > CASES[name][-1], str(report)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "claim"), [("metrics", 1.5), ("tukey", 1.0)])
def test_the_same_audit_catches_a_claim_that_is_too_small(opened: list[Any], name: str, claim: float) -> None:
    report = run(opened, name, 700 if name in TABLE_FORMS else 1000, claim)
    assert report.verdict == "violates", str(report)


def test_draws_are_fresh(opened: list[Any]) -> None:
    opened.append(dpsql.connect())
    opened[-1].execute(
        "CREATE TABLE t AS SELECT i AS id, (i * 37) % 101 AS x, (i * 53) % 97 AS y FROM range(400) AS r(i)"
    )
    for more in ("method := 'ada_ssp'", f"{TUKEY}, blocks := 48"):
        sql = table_form(f"epsilon := 60, delta := 0.1, {more}")
        assert None not in {row[0] for row in opened[-1].execute(sql).fetchall()}
        assert check_fresh_draws(opened[-1], sql, runs=5).fresh


ODD = (
    "CREATE TABLE t AS SELECT i AS id, i AS u, x, y FROM (VALUES (0, 'nan'::DOUBLE, 1.0::DOUBLE), "
    "(1, '-inf'::DOUBLE, 'nan'::DOUBLE), (2, 1e300, NULL), (3, NULL, '-inf'::DOUBLE)) AS v(i, x, y)"
)


EMPTY = f"{ODD} WHERE false", f"{ODD} WHERE i = 0"
MISSING = ODD, f"{ODD} WHERE i <> 2"


@cases(
    ("more", "tables"),
    [
        ("method := 'ada_ssp'", MISSING),
        ("method := 'boosted_ada_ssp', rounds := 3", EMPTY),
        ("method := 'boosted_ada_ssp', rounds := 3", MISSING),
        (f"{TUKEY}, blocks := 12", MISSING),
        (f"{TUKEY}, n_rows := 5", EMPTY),
        (TUKEY, MISSING),
    ],
)
def test_whether_a_call_answers_does_not_depend_on_the_rows(
    opened: list[Any], more: str, tables: tuple[str, str]
) -> None:
    """No rows, NULL, NaN and infinities included: an error on one table only would be a violation."""
    sql = table_form(f"epsilon := 0.5, delta := 1e-6, {more}")
    for table in tables:
        opened.append(dpsql.connect())
        opened[-1].execute(table)
        for _ in range(3):
            assert opened[-1].execute(sql).fetchall()
