"""``method := 'steps'``: exact losses on small tables, the law through SQL, an audit, and faults that it catches."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.contract.measurement import draw_once
from dpsql.errors import ParameterError
from dpsql.functions import best_subset as module
from dpsql.functions.best_subset import BestSubsetPlan, draw_subset
from dpsql.testing import audit_sql, check_exhaustively, to_arrow
from dpsql.testing.distribution import fit
from dpsql.testing.neighbours import RELATIONS, Relation, Row, Table
from support.audits import connecting
from support.broken.subsets import limit_decides_law
from support.cases import cases
from support.laws.best_subset import BestSubsetLaw, StepsLaw
from support.sql_text import named

BOUNDS = {"lower": -1, "upper": 1, "target_lower": -1, "target_upper": 1}
FOUR: list[Row] = [(1.0, 1.0, 1.0, 1.0, 1.0), (1.0, -1.0, -1.0, -1.0, 1.0), (-1.0, 0.5, 1.0, 0.0, 1.0), (0.0,) * 5]
# Many rows pin every coefficient to the ball; the last row is missed by one set of columns, as far as a row can be.
PINNED = ((1.0, 1.0, 1.0, 1.0, 1.0),) * 24
FOR, AGAINST = (1.0, 1.0, 1.0, -1.0, 1.0), (-1.0, -1.0, -1.0, 1.0, 1.0)
PAIR = (*PINNED, FOR), (*PINNED, FOR, AGAINST)


def steps(**arguments: Any) -> StepsLaw:
    return StepsLaw("abcd", **{"k": 3, "epsilon": 2, "method": "steps", **BOUNDS, **arguments})


@cases("relation", RELATIONS)
@cases("more", [{}, {"intercept": True, "radius": 3}, {"k": 1, "epsilon": 8}, {"k": 2}], ids=str)
def test_loss_stays_within_epsilon(relation: Relation, more: dict[str, Any]) -> None:
    law = steps(neighbours=relation, **more)
    report = check_exhaustively(law.law, FOUR, 2, relation)
    assert report.within(law.plan.epsilon), str(report)


def test_loss_of_pinned_rows_is_a_good_share_of_epsilon() -> None:
    first, second = map(steps(epsilon=4, radius=1).law, PAIR)
    loss = max(abs(math.log(first[output] / second[output])) for output in first)
    assert 0.4 < loss <= 4


def test_one_step_is_the_law_of_all_subsets() -> None:
    for k in (1, 2):
        at_once = BestSubsetLaw("abcd", k=k, epsilon=3, method="exact", **BOUNDS).law(PAIR[0])
        assert steps(k=k, epsilon=3).law(PAIR[0]) == pytest.approx(at_once)


@pytest.mark.long
def test_sql_draws_from_the_law() -> None:
    law = steps(epsilon=6, radius=1).law(PAIR[1])
    with dpsql.connect() as connection:
        connection.register("rows", to_arrow(PAIR[1], (*"abcd", "y")))
        connection.execute("CREATE TABLE t AS FROM rows")
        given = {"k": 3, "epsilon": 6, "radius": 1, "method": "steps", "names": list("abcd"), **BOUNDS}
        drawn = connection.execute(
            f"SELECT list_transform(dp_best_subset([a, b, c, d], y, {named(given)}), lambda entry: entry.feature) "
            "FROM t, range(500) AS r(copy) GROUP BY copy"
        ).fetchall()
    assert fit([tuple(sorted(names)) for (names,) in drawn], law, false_alarm=1e-8).accepted


def statement(epsilon: float) -> str:
    given = {"k": 3, "epsilon": epsilon, "radius": 1, "method": "steps", "names": list("abcd"), **BOUNDS}
    return (
        f"SELECT list_transform(dp_best_subset([a, b, c, d], y, {named(given)}), lambda entry: entry.feature) "
        "FROM t, range({count}) AS r(copy) GROUP BY copy"
    )


def audited(opened: list[Any], pair: tuple[Table, Table], *, epsilon: float, claimed: float, runs: int) -> str:
    tables = to_arrow(pair[0], (*"abcd", "y")), to_arrow(pair[1], (*"abcd", "y"))
    report = audit_sql(
        connecting(opened),
        statement(epsilon),
        tables,
        epsilon=claimed,
        runs=runs,
        confidence=1 - 1e-6,
        power=0.3,
        batch=200,
    )
    return str(report.verdict)


# With a 40th of the ranges one row takes {a, b, d} from .45 to .0001.
SPLIT = (*PINNED[:8], (-1.0, -1.0, -1.0, 1.0, 1.0), (-1.0, 1.0, 1.0, -1.0, 1.0))
SPLITS = SPLIT, (*SPLIT, (1.0, -1.0, 1.0, -1.0, 1.0))


@pytest.mark.long
def test_audit(opened: list[Any]) -> None:
    assert audited(opened, SPLITS, epsilon=4, claimed=4, runs=400) != "violates"


@pytest.fixture
def narrow_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step has a 40th of its range."""
    ranges = BestSubsetPlan.ranges

    def broken(plan: BestSubsetPlan, features: int, width: Fraction) -> list[Fraction]:
        return [spread / 40 for spread in ranges(plan, features, width)]

    monkeypatch.setattr(BestSubsetPlan, "ranges", broken)


@pytest.mark.long
def test_audit_catches_ranges_that_do_not_cover_a_row(opened: list[Any], narrow_ranges: None) -> None:
    assert audited(opened, SPLITS, epsilon=0.5, claimed=0.5, runs=400) == "violates"


def test_a_limit_that_decides_the_law_is_not_private() -> None:
    """Both laws are epsilon-DP; which of them is drawn depends on one row."""
    at_once, in_steps = BestSubsetLaw("abcd", k=3, epsilon=1, method="exact", **BOUNDS), steps(epsilon=1)
    # Three of four columns fit together.
    rows = ((0.3, 0.3, 0.3, 0.0, 1.0),) * 1001
    for law in (at_once, in_steps):
        first, second = law.law(rows), law.law(rows[:-1])
        assert max(abs(math.log(first[each] / second[each])) for each in first) <= 1
    first, second = (limit_decides_law(at_once.law, in_steps.law, table, limit=1000) for table in (rows, rows[:-1]))
    assert max(abs(math.log(first[each] / second[each])) for each in first) > 2


def plan(k: int, method: str = "auto", **more: Any) -> BestSubsetPlan:
    given = {"target": "y", "features": "x", "k": k, "epsilon": 5, "method": method, **BOUNDS, **more}
    return BestSubsetPlan.from_arguments("t", given)


def test_public_numbers_decide_the_law() -> None:
    assert [plan(5).law(features) for features in (6, 250, 262, 264, 2526)] == ["exact"] * 3 + ["steps"] * 2
    assert [plan(2).law(features) for features in (91, 92)] == ["exact", "steps"]
    assert plan(1).law(5000) == "steps"
    assert plan(5, "exact").law(5000) == "exact"
    assert [plan(k).sizes(2526) for k in (1, 2, 3, 5, 6)] == [(1,), (2,), (1, 2), (1, 2, 2), (2, 2, 2)]
    assert plan(40).sizes(5000) == (1,) * 40
    names = {field.name for field in dataclasses.fields(BestSubsetPlan)}
    assert "rows" not in names


def test_steps_share_epsilon_by_their_ranges() -> None:
    ranges = plan(5, intercept=True).ranges(2526, Fraction(0))
    assert np.allclose([float(spread) for spread in ranges], [(1 + 1.1 * s**0.5) ** 2 for s in (2, 4, 6)])


def test_too_much_work_is_refused_before_the_charge() -> None:
    assert plan(1000).law(5000) == "steps"
    with pytest.raises(ParameterError, match="P026"):
        plan(1000).check_work(5000)


def test_estimates_say_what_to_expect() -> None:
    quantities = {name: value for name, value, _ in plan(5).noise(2526, 248)}
    assert quantities["steps"] == 3
    assert quantities["subsets_scored"] == 2526 + math.comb(2525, 2) + math.comb(2523, 2)
    assert 0 < quantities["processor_seconds"] < 60
    assert quantities["noise_scale"] == pytest.approx(sum((1 + 1.1 * s**0.5) ** 2 for s in (1, 3, 5)) / 5)


def test_many_columns_end_and_find_a_strong_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps over 120 columns of which one is the target, in NumPy; with this epsilon it is always found."""
    monkeypatch.setattr(module, "MOST_AT_ONCE", 0)
    rng = np.random.default_rng(1)
    values = rng.choice([-1.0, 1.0], size=(400, 120))
    rows = np.rint(np.column_stack((values, values[:, 7])) * 2**20).astype(np.int64)
    drawn = draw_once(draw_subset, plan(3), rows.T @ rows, lambda: None)
    assert len(set(drawn)) == 3
    assert 7 in drawn
