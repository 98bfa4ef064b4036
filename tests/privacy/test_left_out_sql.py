"""What limits leave out: when it is charged, its law, the verdict with the truth at hand, and audits of the SQL function.

A right release is rejected with probability at most 1e-6 per test.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsql
from dpsql.contract.measurement import Permit
from dpsql.errors import DpsqlError, ParameterError
from dpsql.functions.grouped.aggregate import AggregatePlan, CountPlan
from dpsql.functions.grouped.left_out import enforced_limits
from dpsql.statistics.aggregates import Sums
from dpsql.testing import AuditReport, audit, fit, runs_needed
from support.broken.left_out import UNCUT
from support.broken.planting import Fault, planted

UNIT = {"privacy_unit": "u", "max_rows_per_unit": 6}
CONFIDENCE = 1 - 1e-6


def plan_of(**given: Any) -> Any:
    return CountPlan.from_arguments("t", {"epsilon": 1, **given})


def test_it_is_charged_where_a_limit_may_leave_rows_out() -> None:
    for given in ({}, {**UNIT, "left_out_share": 0}, {**UNIT, "by": "h", "keys": "private", "delta": 1e-6}):
        plan = plan_of(**given)
        assert (plan.left_out_share, plan.left_out_parts) == (None, ())
        assert plan.remaining_epsilon == 1
        assert "left_out_share" not in plan.public_arguments
    # A person counts once, and cannot be left out without groups.
    assert plan_of(distinct_of="u", privacy_unit="u").left_out_share is None
    assert plan_of(**UNIT).left_out_share == Fraction(1, 20)
    assert plan_of(**UNIT, left_out_share=0.2).remaining_epsilon == Fraction(4, 5)
    parts = plan_of(**UNIT).measurement.parts
    assert [part.name for part in parts] == ["sums", "left out"]
    assert sum(part.epsilon for part in parts) == 1


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(ParameterError, match="P045"):
        plan_of(left_out_share=0.1)
    with pytest.raises(ParameterError, match="P006"):
        plan_of(**UNIT, left_out_share=1)
    given = {"aggregates": ["avg"], "target": "x", "epsilon": 1, **UNIT, "bounds_share": 0.5, "left_out_share": 0.5}
    with pytest.raises(ParameterError, match="P051"):
        AggregatePlan.from_arguments("t", given)


def test_limits_that_others_imply_leave_nothing_out() -> None:
    assert enforced_limits(6, 6, 6, group_count=None, alone=False) == (False, False, True)
    assert enforced_limits(6, 2, 3, group_count=5, alone=False) == (True, True, False)
    assert enforced_limits(2, 2, 1, group_count=2, alone=True) == (False, False, False)
    assert enforced_limits(3, 2, 1, group_count=3, alone=True) == (True, False, False)


@pytest.mark.long
def test_a_named_release_of_before_is_replayed() -> None:
    ctx = dpsql.Context()
    ctx.connection.execute("CREATE TABLE t AS SELECT i // 3 AS u FROM range(60) AS r(i)")
    given = {"epsilon": 1, "privacy_unit": "u", "max_rows_per_unit": 2, "release": "rows"}
    made = ctx.dp_count("t", **given, left_out_share=0)
    again = ctx.dp_count("t", **given)
    assert again.replayed
    assert again.value.equals(made.value)
    with pytest.raises(DpsqlError, match="P014"):
        ctx.dp_count("t", **given, left_out_share=0.1)


@pytest.mark.long
def test_law_of_the_noise() -> None:
    """Discrete Laplace of scale 2 / (share epsilon) for units, and m times that for rows; not 0.7 or 1.3 times it."""
    [part] = plan_of(epsilon=20, **UNIT, left_out_share=0.5).left_out_parts
    nothing = Sums(np.zeros(1, np.int64), np.zeros(1, np.int64))
    for place, scale in enumerate((Fraction(1, 5), Fraction(6, 5))):
        assert part.lattices[place].spread == scale

        def law(factor: float, scale: Fraction = scale) -> dict[int, float]:
            a = math.exp(-1 / (float(scale) * factor))
            found = {x: (1 - a) / (1 + a) * a ** abs(x) for x in range(-5, 6)}
            return found | dict.fromkeys((-6, 6), a**6 / (1 + a))

        runs = max(runs_needed(law(1), law(wrong), false_alarm=1e-6, miss=1e-6) for wrong in (0.7, 1.3))
        many = Sums(*(np.zeros(runs, np.int64) for _ in range(2)))
        with Permit(plan_of(epsilon=20, **UNIT, left_out_share=0.5).measurement).drawing():
            drawn = part.draw([many if one == place else nothing for one in range(2)])[place]
        found = np.clip(drawn.words.integers()[0], -6, 6).tolist()
        assert fit(found, law(1), false_alarm=1e-6).accepted
        for wrong in (0.7, 1.3):
            assert not fit(found, law(wrong), false_alarm=1e-6).accepted


def table(con: Any, seed: int, *, within: bool) -> None:
    """Make weekly visits of 4,000 persons: at most 6 each, or with a long tail, of which about 8 % are beyond 6."""
    rng = np.random.default_rng(seed)
    visits = np.minimum(1 + rng.geometric(0.5 if within else 0.35, 4000), 6 if within else 60)
    u = np.repeat(np.arange(4000), visits)
    columns = {"u": u, "week": rng.integers(0, 50, len(u)), "x": rng.gamma(2, 10, len(u)).clip(0, 100)}
    con.register("visits", pa.table(columns))
    con.execute("CREATE OR REPLACE TABLE t AS FROM visits")


@pytest.mark.long
@pytest.mark.parametrize("within", [True, False])
def test_counts_under_a_cap_that_bites_are_not_clear(within: bool) -> None:
    ctx = dpsql.Context()
    words, inside, advised, calls = [], 0, 0, 20 if within else 3
    for seed in range(calls):
        table(ctx.connection, seed, within=within)
        exact = dict(ctx.connection.execute("SELECT week, count(*) FROM t GROUP BY week").fetchall())
        release = ctx.dp_count("t", by="week", keys=list(range(50)), epsilon=1, **UNIT)
        for row in release.value.to_pylist():
            words.append(row["verdict"])
            inside += row["lower"] <= exact[row["week"]] <= row["upper"]
        assert release.noise["left_out"]["most_rows_of_a_unit"] == 6
        advised += "next_step" in release.noise
        assert release.covers == "rows that count: at most 6 a unit, none without a unit, listed keys"
    if within:
        # Where nothing falls away, noise says so of all groups of a call in 2 % of calls.
        assert advised <= 4
        assert words.count("clear") >= 0.75 * len(words)
        assert inside >= 0.9 * len(words)
    else:
        assert advised == calls
        assert words.count("clear") == 0
        assert inside < 0.5 * len(words)


@pytest.mark.parametrize("optimizer", ["enable", "disable"])
def test_units_without_a_value_beyond_their_limit_are_answered(optimizer: str) -> None:
    """Of no values none fell away, and nothing is divided by their number, with or without DuckDB's optimizer."""
    ctx = dpsql.Context()
    con = ctx.connection
    con.execute(f"PRAGMA {optimizer}_optimizer")
    con.execute("CREATE TABLE t AS SELECT i % 100 AS u, NULL::DOUBLE AS x, i AS y FROM range(1000) AS r(i)")
    given = {"lower": 0, "upper": 10, "epsilon": 1000, "privacy_unit": "u", "max_rows_per_unit": 2}
    for function, number, cut in (("dp_sum", "sum", 2000), ("dp_avg", "rows", 200)):
        release = getattr(ctx, function)("t", target=["x", "y"], **given)
        [without, known] = release.noise["left_out"]["fell_away"]
        assert without[number] == pytest.approx(0, abs=10)
        assert known[number] == pytest.approx(cut, rel=0.05)


@pytest.mark.long
@pytest.mark.parametrize("function", ["dp_sum", "dp_avg"])
def test_sums_and_averages_that_lack_heavy_persons_are_biased(function: str) -> None:
    """Persons of 20 rows have 90, others of one row have 10: the mean of all rows is far above that of rows that count."""
    ctx = dpsql.Context()
    con = ctx.connection
    con.execute("CREATE TABLE t AS SELECT i AS u, 10.0 AS x FROM range(3000) AS r(i)")
    con.execute("INSERT INTO t SELECT 5000 + i // 20, 90.0 FROM range(20000) AS r(i)")
    given = {"target": "x", "lower": 0, "upper": 100, "epsilon": 2, "privacy_unit": "u"}
    [short] = getattr(ctx, function)("t", **given, max_rows_per_unit=1).value.to_pylist()
    assert short["verdict"] == "biased"
    # Noise alone shows something in 5 % of calls; nine of 30 are seen once in 10**5 runs.
    whole = [getattr(ctx, function)("t", **given, max_rows_per_unit=20).value.to_pylist()[0] for _ in range(30)]
    assert {row["verdict"] for row in whole} <= {"clear", "biased"}
    assert sum(row["verdict"] == "biased" for row in whole) < 9


RUNS = 100
FEW = "SELECT i AS u FROM range(3) AS r(i)"
# A person of 1,006 rows, of which 6 count.
MANY = f"{FEW} UNION ALL SELECT 9 FROM range(1006)"


def of_a_function(ctx: dpsql.Context) -> Any:
    return ctx.dp_count("t", epsilon=1, **UNIT, left_out_share=0.5).noise["left_out"]


def of_a_query(ctx: dpsql.Context) -> Any:
    """Plain SQL takes the unit and its limit from the budget."""
    ctx.connection.execute("SELECT dp_protect('t', epsilon := 1e9, privacy_unit := 'u', max_rows_per_unit := 6)")
    release = ctx.query("SELECT count(*) FROM t", epsilon=1, left_out_share=0.5, fresh=True)
    [left_out] = release.noise["left_out"]  # type: ignore[misc]
    return left_out


def audited(fault: Fault | None, ask: Any) -> AuditReport:
    """Audit what fell away, as the receipt tells it, for its share of epsilon: a half."""
    ctx = dpsql.Context()

    def release(rows: str, runs: int) -> list[float]:
        ctx.connection.execute(f"CREATE OR REPLACE TABLE t AS {rows}")
        return [ask(ctx)["fell_away"][0]["rows"] // 8 for _ in range(runs)]

    with planted(*fault.patches) if fault else nullcontext():
        return audit(release, (FEW, MANY), epsilon=0.5, runs=RUNS, confidence=CONFIDENCE, power=0.3)


@pytest.mark.parametrize("ask", [of_a_function, of_a_query])
@pytest.mark.long
def test_one_person_with_many_rows_does_not_show(ask: Any) -> None:
    assert audited(None, ask).verdict != "violates"


@pytest.mark.parametrize("ask", [of_a_function, of_a_query])
@pytest.mark.long
def test_rows_that_are_not_cut_are_found(ask: Any) -> None:
    assert audited(UNCUT, ask).verdict == "violates"
