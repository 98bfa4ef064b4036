"""The law of what a query of two cores answers, through SQL, and audits of it on neighbouring tables.

The tables are there many times, with people and groups of their own, so that one call is as many releases. Half of
epsilon is each core's: a count of rows moves by 2, a count of people by 1, for a person is in one group.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.testing import AuditReport, audit_sql
from support.audits import connecting, judge
from support.cases import cases
from support.sql_text import literal

COPIES = 1000
CAP = 2
RUNS = 100_000
# All of epsilon is for the answers, but for a test that says otherwise.
ONE_GROUP = "max_groups_per_unit := 1, left_out_share := 0"
# One person has three rows, of which two count; the other has one.
BASE, MORE = ["(1, 4)"], ["(2, 1)", "(2, 1)", "(2, 3)"]
TWO_CORES = (
    "SELECT a.copy AS copy, a.n AS n, b.m AS m FROM (SELECT copy, count(*) AS n FROM visits GROUP BY copy) a "
    "JOIN (SELECT copy, count(DISTINCT who) AS m FROM visits GROUP BY copy) b USING (copy)"
)


def script(rows: list[str]) -> str:
    """Return the statements that make the table many times, and protect it."""
    return (
        f"CREATE TABLE visits AS SELECT copy, 10 * copy + p AS who, x "
        f"FROM (VALUES {', '.join(rows)}) AS v(p, x), range({COPIES}) AS c(copy); CREATE TABLE t AS SELECT 1 AS one; "
        f"SELECT dp_protect('visits', epsilon := 1e9, privacy_unit := 'who', max_rows_per_unit := {CAP}, lower := {{x: 0}}, "
        f"upper := {{x: 4}}, keys := {{copy: {[*range(COPIES)]}}})"
    )


def geometric(scale: Fraction) -> dict[int, float]:
    decay = math.exp(-1 / scale)
    reach = range(-math.ceil(12 * scale), math.ceil(12 * scale) + 1)
    return {at: (1 - decay) / (1 + decay) * decay ** abs(at) for at in reach}


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with dpsql.connect() as opened:
        for statement in script(BASE + MORE).split("; "):
            opened.execute(statement)
        yield opened


def sampled(con: Any, epsilon: Fraction, runs: int) -> list[tuple[int, int]]:
    """Return the noise of both counts; 3 rows and 2 people count in each group."""
    found: list[tuple[int, int]] = []
    sql = f"SELECT n - 3, m - 2 FROM dp_query({literal(TWO_CORES)}, epsilon := {float(epsilon)!r}, {ONE_GROUP}, fresh := true)"
    while len(found) < runs:
        found += con.execute(sql).fetchall()
    return found[:runs]


def test_two_cores_have_noise_of_half_of_epsilon_each(con: Any) -> None:
    """The joint law of both, so also of any difference across cores; 0.7 and 1.3 times the noise are noticed."""

    def law_of(epsilon: Fraction) -> dict[tuple[int, int], float]:
        rows, people = geometric(2 * CAP / epsilon), geometric(2 / epsilon)
        return {(one, other): p * q for one, p in rows.items() for other, q in people.items()}

    judge(lambda epsilon, runs: sampled(con, epsilon, runs), law_of, Fraction(4), runs=RUNS)


def test_what_row_limits_leave_out_takes_a_twentieth(con: Any) -> None:
    """By default, of each part that may lose rows: the count has the rest of its epsilon."""
    query = "SELECT copy, count(*) AS n FROM visits GROUP BY copy"

    def drawn(epsilon: Fraction, runs: int) -> list[int]:
        found: list[int] = []
        more = f"epsilon := {float(epsilon)!r}, max_groups_per_unit := 1, fresh := true"
        while len(found) < runs:
            rows = con.execute(f"SELECT n - 3 FROM dp_query({literal(query)}, {more})").fetchall()
            found += [noise for (noise,) in rows]
        return found[:runs]

    judge(drawn, lambda epsilon: geometric(CAP / (epsilon * Fraction(19, 20))), Fraction(4), runs=RUNS)


def test_a_difference_across_cores_is_of_independent_noise(con: Any) -> None:
    def law_of(epsilon: Fraction) -> dict[int, float]:
        rows, people = geometric(2 * CAP / epsilon), geometric(2 / epsilon)
        law: dict[int, float] = {}
        for one, p in rows.items():
            for other, q in people.items():
                law[one - other] = law.get(one - other, 0.0) + p * q
        return law

    judge(
        lambda epsilon, runs: [one - other for one, other in sampled(con, epsilon, runs)],
        law_of,
        Fraction(4),
        runs=RUNS,
    )


def test_a_query_over_twelve_blocks_has_noise_for_a_person_in_one() -> None:
    """A person has three rows in each of twelve months, of which two count in each: noise is for two."""
    with dpsql.connect() as opened:
        opened.execute(
            "CREATE TABLE stays AS SELECT copy, copy AS who, DATE '2026-01-05' + INTERVAL (m) MONTH + INTERVAL (d) DAY "
            f"AS day FROM range({COPIES}) AS c(copy), range(12) AS m(m), range(3) AS d(d)"
        )
        opened.execute(
            f"SELECT dp_protect('stays', epsilon := 1e9, privacy_unit := 'who', max_rows_per_unit := {CAP}, "
            f"keys := {{copy: {[*range(COPIES)]}}}, period := 'month', period_of := 'day')"
        )
        query = "SELECT copy, count(*) AS n FROM stays GROUP BY copy"

        def all_months(epsilon: Fraction, runs: int) -> list[int]:
            found: list[int] = []
            more = f"epsilon := {float(epsilon)!r}, during := '2026-01/2026-12', {ONE_GROUP}, fresh := true"
            sql = f"SELECT n - {12 * CAP} FROM dp_query({literal(query)}, {more})"
            while len(found) < runs:
                found += [n for (n,) in opened.execute(sql).fetchall()]
            return found[:runs]

        judge(all_months, lambda epsilon: geometric(CAP / epsilon), Fraction(2), runs=RUNS)
        spent = dict(opened.execute("SELECT block, releases FROM dp_budget() WHERE releases > 0").fetchall())
        months = {spent[f"2026-{month:02}"] for month in range(1, 13)}
        assert len(months) == 1


VECTOR = (
    "SELECT copy, count(*) AS n, sum(x) AS s, sum(CASE WHEN x > 2 THEN x ELSE 0 END) AS m FROM visits GROUP BY copy"
)


def largest(epsilon: Fraction) -> dict[int, float]:
    """Return the law of one coordinate, rounded: up to a radius of a Gamma law of four it is uniform."""
    scale = float(CAP / epsilon)
    radius = np.linspace(0.0, 60.0, 60_001)[1:] * scale
    density = radius**3 * np.exp(-radius / scale) / (6 * scale**4) * (radius[1] - radius[0])
    cells = range(-math.ceil(30 * scale), math.ceil(30 * scale) + 1)

    def below(end: float) -> float:
        return float((density * np.clip((end + radius) / (2 * radius), 0.0, 1.0)).sum())

    return {at: below(at + 0.5) - below(at - 0.5) for at in cells}


def test_a_vector_has_noise_of_a_cube(con: Any) -> None:
    """Three numbers of a group, of which none is NULL: a count, and two sums about the middle of their bounds."""

    def taken(epsilon: Fraction, runs: int) -> list[int]:
        found: list[tuple[int, ...]] = []
        sql = (
            f"SELECT n - 3 FROM dp_query({literal(VECTOR)}, epsilon := {float(epsilon)!r}, {ONE_GROUP}, fresh := true)"
        )
        while len(found) < runs:
            found += con.execute(sql).fetchall()
        return [one for (one,) in found[:runs]]

    judge(taken, largest, Fraction(1), runs=RUNS)


def test_a_vector_with_drawn_bounds_has_noise_of_three_quarters(con: Any) -> None:
    """A quarter draws the bounds of a column, first; the numbers are a count, and a count and a sum of the column."""
    query = "SELECT copy, count(*) AS n, sum(x / who) AS s FROM visits GROUP BY copy"

    def taken(epsilon: Fraction, runs: int) -> list[int]:
        found: list[tuple[int, ...]] = []
        sql = f"SELECT n - 3 FROM dp_query({literal(query)}, epsilon := {float(epsilon)!r}, {ONE_GROUP}, fresh := true)"
        while len(found) < runs:
            found += con.execute(sql).fetchall()
        return [one for (one,) in found[:runs]]

    judge(taken, lambda epsilon: largest(epsilon * Fraction(3, 4)), Fraction(1), runs=RUNS)


def test_disjoint_counts_have_the_noise_of_one(con: Any) -> None:
    """The joint law of both, which are 1 and 2: a row is in one of them, and the noise is for the rows of a person."""
    query = (
        "SELECT copy, sum(CASE WHEN x = 4 THEN 1 ELSE 0 END) AS a, sum(CASE WHEN x <> 4 THEN 1 ELSE 0 END) AS b "
        "FROM visits GROUP BY copy"
    )

    def taken(epsilon: Fraction, runs: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        sql = f"FROM dp_query({literal(query)}, epsilon := {float(epsilon)!r}, {ONE_GROUP}, fresh := true)"
        while len(found) < runs:
            found += [(int(a) - 1, int(b) - 2) for _, a, b in con.execute(sql).fetchall()]
        return found[:runs]

    def law_of(epsilon: Fraction) -> dict[tuple[int, int], float]:
        each = geometric(CAP / epsilon)
        return {(one, other): p * q for one, p in each.items() for other, q in each.items()}

    judge(taken, law_of, Fraction(4), runs=RUNS)


AUDITED = {
    "disjoint counts": (
        "SELECT copy, a + 2 * b AS v FROM (SELECT copy, count_if(x = 1) AS a, count_if(x <> 1) AS b FROM visits "
        "GROUP BY copy)"
    ),
    "two cores": TWO_CORES.replace("a.n AS n, b.m AS m", "a.n + 2 * b.m AS v"),
    "a count and a sum": "SELECT copy, count(*) + sum(x) AS v FROM visits GROUP BY copy",
    "a vector": f"SELECT copy, n + s - m AS v FROM ({VECTOR})",
    "a filter": "SELECT copy, count(*) - count(*) FILTER (WHERE x > 2) AS v FROM visits GROUP BY copy",
    "a person's rows first": (
        "SELECT copy, sum(n) AS v FROM (SELECT copy, who, count(*) AS n FROM visits GROUP BY copy, who) GROUP BY copy"
    ),
    "people who have": "SELECT copy, count(*) AS v FROM visits WHERE who IN (SELECT who FROM visits WHERE x = 3) GROUP BY copy",
}


def audited(opened: list[Any], query: str, spent: float) -> AuditReport:
    more = "lower := {n: 0}, upper := {n: 3}, " if "sum(n)" in query else ""
    sql = (
        f"SELECT v FROM dp_query({literal(query)}, epsilon := {spent}, {more}{ONE_GROUP}, fresh := true) "
        "WHERE copy < {{count}} ORDER BY copy".replace("{{", "{").replace("}}", "}")
    )
    if more:  # its braces are no place for the number of releases
        sql = sql.replace("{n: 0}", "struct_pack(n := 0)").replace("{n: 3}", "struct_pack(n := 3)")
    tables = script(BASE + MORE), script(BASE)
    options = {"epsilon": 1.0, "runs": 4000, "batch": COPIES}
    return audit_sql(connecting(opened), sql, tables, confidence=1 - 1e-6, power=0.3, **options)  # type: ignore[arg-type]


@cases("name", AUDITED)
def test_what_is_claimed_is_kept(opened: list[Any], name: str) -> None:
    report = audited(opened, AUDITED[name], 1.0)
    assert report.verdict != "violates", str(report)


def test_three_times_the_epsilon_is_found(opened: list[Any]) -> None:
    """The audit can fail: the same query with a third of the noise."""
    report = audited(opened, AUDITED["two cores"], 3.0)
    assert report.verdict == "violates", str(report)
