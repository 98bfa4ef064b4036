"""min and max as private quantiles: who allows it, which quantile it is, what it costs, and what the answer says."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.contract.measurement import draw_once
from dpsql.errors import InternalError
from dpsql.functions.query_rows import LEVELS, ExtremesPlan
from support.audits import judge
from support.cases import cases
from support.sql_text import literal

ALLOW = "extremes := 'quantiles', replace := true"
FROM = "FROM visits WHERE"


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    """Values from 0 to 1, of which the 1000 rows of a few persons are far away."""
    with dpsql.connect() as opened:
        opened.execute(
            "CREATE TABLE visits AS SELECT i AS patient, i % 1000 / 1000 AS x, i % 100 AS n, ['A', 'B'][1 + i % 2] AS ward, "
            "DATE '2026-01-01' + (i % 200)::INTEGER AS day, TIMESTAMP '2026-01-01' + to_hours(i % 200 * 24) AS seen "
            "FROM range(100000) r(i) UNION ALL SELECT -i, 9, 1000, 'A', DATE '2030-01-01', TIMESTAMP '2030-01-01' FROM range(1, 30) r(i)"
        )
        opened.execute("CREATE TABLE staff AS SELECT i AS nurse, i % 50 AS age FROM range(1000) r(i)")
        for table, unit in (("visits", "patient"), ("staff", "nurse")):
            opened.execute(
                f"SELECT dp_protect('{table}', epsilon := 1e6, delta := 0.01, privacy_unit := '{unit}', max_rows_per_unit := 1)"
            )
        opened.execute(f"SELECT dp_protect('visits', {ALLOW}, keys := {{ward: ['A', 'B']}})")
        yield opened


def ask(con: Any, sql: str, epsilon: float = 10.0, more: str = "") -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = con.execute(
        f"FROM dp_query({literal(sql)}, epsilon := {epsilon!r}{more})"
    ).fetchall()
    return found


def last(con: Any) -> tuple[Any, ...]:
    [found] = con.execute(
        "SELECT status, epsilon, guarantee FROM dp_ledger() ORDER BY sequence DESC LIMIT 1"
    ).fetchall()
    return tuple(found)


@cases(
    ("column", "lowest", "highest"),
    [
        ("x", 0.001, 0.999),
        ("n", 0, 99),
        ("n % 50 + 1", 1, 50),
        ("day", datetime.date(2026, 1, 1), datetime.date(2026, 7, 19)),
        ("seen", datetime.datetime(2026, 1, 1), datetime.datetime(2026, 7, 19)),
    ],
)
def test_they_are_quantiles_and_never_the_farthest_rows(con: Any, column: str, lowest: Any, highest: Any) -> None:
    """29 persons are far away, and no level is nearer to the ends than a thousandth."""
    bounds = "day BETWEEN '2025-01-01' AND '2031-01-01' AND seen >= '2025-01-01' AND seen < '2031-01-01'"
    sql = f"SELECT ward, min({column}) AS low, max({column}) AS high {FROM} {bounds} GROUP BY ward ORDER BY ward"
    near: Any = datetime.timedelta(days=8) if isinstance(lowest, datetime.date) else 0.05 * float(highest)
    for _, low, high in ask(con, sql, 50.0, ", lower := {x: -10, n: -1000}, upper := {x: 10, n: 2000}"):
        assert type(low) is type(lowest) or isinstance(lowest, float)
        assert abs(low - lowest) <= near
        assert abs(high - highest) <= near
    _, spent, guarantee = last(con)
    assert spent == 50.0
    assert guarantee.endswith("; min and max are quantiles")


def test_the_answer_says_which_quantiles(con: Any) -> None:
    [row] = ask(con, "SELECT min(n), max(n) FILTER (ward = 'A') FROM visits", 2.0, ", errors := true")
    assert re.search(r"; min is the quantile 0\.0\d+; max is the quantile 0\.9\d+$", row[-1])
    told = ask(con, "SELECT min(n) FROM visits", 2.0, ", estimate := true")
    assert [quantity for _, quantity, _, _ in told if quantity.startswith("rows_for")] == [
        f"rows_for_{float(level):g}" for level in LEVELS
    ]


@cases(
    ("sql", "words"),
    [
        ("SELECT min(age) FROM staff", "quantile_cont(age, 0.01)"),
        ("SELECT max(age) FROM staff", "quantile_cont(age, 0.99)"),
        ("SELECT max(age) FROM staff", "dp_protect(..., extremes := 'quantiles', replace := true)"),
        ("SELECT max(age) AS m, (SELECT max(n) FROM visits) AS k FROM staff", "extremes := 'quantiles'"),
        ("SELECT min(ward) FROM visits", "count(*) with GROUP BY ward"),
        ("SELECT min(DISTINCT n) FROM visits", "min without DISTINCT"),
    ],
)
def test_what_owners_do_not_allow_is_refused_free(con: Any, sql: str, words: str) -> None:
    """Of a text there is no quantile; of two budgets both owners allow it."""
    before = last(con)
    with pytest.raises(duckdb.Error, match="DPSQL-P106") as refused:
        ask(con, sql)
    assert words in str(refused.value)
    assert last(con) == before


def test_the_declaration_stands_until_it_is_restated(con: Any) -> None:
    declared = "SELECT value FROM dp_policy() WHERE argument = 'extremes'"
    assert con.execute(declared).fetchall() == [("'quantiles'",)]
    for words, allowed in (
        ("epsilon := 2e6", True),
        ("extremes := 'refused'", False),
        (ALLOW[: -len(", replace := true")], True),
    ):
        con.execute(f"SELECT dp_protect('visits', {words}, replace := true)").fetchall()
        assert bool(con.execute(declared).fetchall()) is allowed
    with pytest.raises(duckdb.Error, match=r"DPSQL-P014|DPSQL-P006|extremes must be"):
        con.execute("SELECT dp_protect('visits', extremes := 'exact', replace := true)").fetchall()


def plan_of(epsilon: Fraction, rows: int = 1) -> ExtremesPlan:
    arguments = {"target": "x", "epsilon": epsilon, "quantiles": [0.001], "lower": 0.0, "upper": 1.0, "dataset": "t"}
    arguments |= {"privacy_unit": "u", "max_rows_per_unit": rows} if rows > 1 else {}
    plan = ExtremesPlan.from_arguments("t", arguments, {})
    assert isinstance(plan, ExtremesPlan)
    return plan


def test_the_level_follows_from_a_number_of_rows_with_its_noise() -> None:
    """The law of the level where one person has three rows; 0.7 and 1.3 times the noise are noticed."""
    epsilon, rows = Fraction(1), 3
    needed = int(dict(plan_of(epsilon, rows).rows_for)[Fraction(5, 100)])
    counts = [np.array([needed - 30, 0], dtype=np.int64)]

    def sampler(epsilon_of_rows: Fraction, runs: int) -> list[bool]:
        plan = plan_of(epsilon, rows)
        vars(plan)["rows_part"] = plan_of(epsilon_of_rows, rows).rows_part
        return [draw_once(ExtremesPlan.at_levels_of, plan, counts).at[0] <= Fraction(5, 100) for _ in range(runs)]

    def law_of(epsilon_of_rows: Fraction) -> dict[bool, float]:
        decay = math.exp(-float(epsilon_of_rows) / 10 / rows)
        beyond = decay**30 / (1 + decay)
        return {True: beyond, False: 1 - beyond}

    judge(sampler, law_of, epsilon)


def test_all_parts_together_cost_epsilon() -> None:
    plan = plan_of(Fraction(3))
    assert plan.measurement.event.cost.epsilon == 3
    assert [level for level, _ in plan.rows_for] == list(LEVELS)
    needed = [rows for _, rows in plan.rows_for]
    with pytest.raises(InternalError, match="I034"):
        replace(plan.selection, at=plan.selection.at * 3)
    assert needed == sorted(needed, reverse=True)
