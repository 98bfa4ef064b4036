"""Steps of a classifier through SQL: what their noise is worth, what neighbours change, and planted faults."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.mechanisms.objective_perturbation import PerturbedObjective
from support.broken.logistic_steps import BROKEN_STEPS, broken_steps
from support.broken.planting import planted
from support.cases import cases
from support.laws.logistic import observed
from support.laws.logistic import spent as objective_spent
from support.laws.regression import Loss, Observation, Stated, observe, pair_loss, worst_case

ROWS = 2400
PUBLIC = {"lower": -1, "upper": 1}
GAUSSIAN = ("cells", "moments", "step bins", "residuals")
EPSILON, DELTA = 12.0, 1e-5
UNIT = {"privacy_unit": "owner", "max_rows_per_unit": 3}
# How the rows are scaled, and the share of epsilon and delta that this gets: linear fit and steps get half of the rest.
ASKED: dict[str, tuple[dict[str, Any], float]] = {
    "standardized": (PUBLIC, 0.1),
    "as they are": ({**PUBLIC, "standardize": False}, 0.0),
    "private bounds": ({}, 0.35),
}


@pytest.fixture(scope="module")
def context() -> Iterator[dpsql.Context]:
    """A table, and others with a row more, a unit more, or other labels."""
    with dpsql.Context() as opened:
        con = opened.connection
        con.execute(
            f"CREATE TABLE t AS SELECT i AS id, i % {ROWS // 3} AS owner, ((i * 37) % 101) / 50 - 1 AS a, "
            f"((i * 53) % 97) / 48 - 1 AS b, a + ((i * 13) % 31) / 30 > 0.5 AS y FROM range({ROWS}) AS r(i)"
        )
        row = "SELECT 10**6 AS id, 10**6 AS owner, {a} AS a, {b} AS b, {y} AS y"
        con.execute(f"CREATE TABLE more AS {row.format(a=1, b=-1e6, y='false')} UNION ALL FROM t")
        con.execute(f"CREATE TABLE other AS {row.format(a=1, b=0.5, y='true')} UNION ALL FROM t")
        yield opened


def call(context: dpsql.Context, asked: dict[str, Any], table: str = "t", answers: Observation | None = None) -> Any:
    given = {"target": "y", "features": ["a", "b"], "epsilon": EPSILON, "delta": DELTA, "method": "additive", **asked}
    run = context.dp_logistic_regression
    return observe(lambda: run(table, **given).result, None if answers is None else answers.releases)


def losses(
    context: dpsql.Context, case: str, neighbours: str = "add_remove", **unit: Any
) -> tuple[Loss, Loss, tuple[float, float]]:
    """Return what the Gaussian noise of scaling and of steps is worth, and epsilon and delta of the linear fit."""
    with observed() as fits:
        seen = call(context, {**ASKED[case][0], "neighbours": neighbours, **unit})
    releases = [one for one in seen.releases if one.role in GAUSSIAN]
    roles = [one.role for one in releases]
    drawn = {"standardized": ["moments"], "as they are": [], "private bounds": ["cells"] * 2 + ["moments"]}[case]
    assert roles == [*drawn, "step bins", *["residuals"] * 4]
    rows = unit.get("max_rows_per_unit", 1)
    said = Stated(neighbours, ROWS, max_rows_per_unit=rows, features=2)
    scaling, steps = (
        worst_case(Observation(None, [one for one in releases if (one.role in ("cells", "moments")) == first]), said)
        for first in (True, False)
    )
    half = (1 - ASKED[case][1]) / 2
    linear = objective_spent(fits[0], epsilon=half * EPSILON, neighbours=neighbours, max_rows_per_unit=rows)
    return scaling, steps, linear


def is_paid(context: dpsql.Context, case: str, neighbours: str = "add_remove") -> bool:
    scaling, steps, (epsilon, delta) = losses(context, case, neighbours)
    share, half = ASKED[case][1], (1 - ASKED[case][1]) / 2
    return (
        (scaling.within(share * EPSILON, share * DELTA) or share == 0)
        and steps.within(half * EPSILON, half * DELTA)
        and epsilon <= half * EPSILON * (1 + 1e-9)
        and delta <= half * DELTA * (1 + 1e-6)
    )


@cases(("neighbours", "unit"), [("add_remove", {}), ("replace", {}), ("add_remove", UNIT)])
@cases("case", ASKED)
def test_noise_is_worth_what_the_ledger_says(
    context: dpsql.Context, case: str, neighbours: str, unit: dict[str, Any]
) -> None:
    """Bounds and moments have their share, linear fit and steps a half of the rest each, and hardly less."""
    scaling, steps, linear = losses(context, case, neighbours, **unit)
    share, half = ASKED[case][1], (1 - ASKED[case][1]) / 2
    for loss, part in ((scaling, share), (steps, half)) if share else ((steps, half),):
        assert loss.within(part * EPSILON, part * DELTA), loss
        assert not loss.within(0.99 * part * EPSILON, part * DELTA), loss
    assert 0.99 * half * EPSILON <= linear[0] <= half * EPSILON * (1 + 1e-9)
    assert linear[1] <= half * DELTA * (1 + 1e-6)
    [claim] = context.connection.execute(
        "SELECT epsilon, delta FROM dp_ledger() WHERE kind = 'release' ORDER BY sequence DESC LIMIT 1"
    ).fetchall()
    assert claim == (EPSILON, pytest.approx(DELTA, rel=1e-12))


def fixed(part: PerturbedObjective, rows: Any, noise: Any, *, tick: Any) -> np.ndarray:
    """Stand in for the linear fit: coefficients that were released before, of extreme scores."""
    return np.array([0.3, 6.0, -9.0, 5.0])[: rows.width]


def replayed(context: dpsql.Context, asked: dict[str, Any], tables: tuple[str, str]) -> tuple[Loss | str, Loss]:
    """Return what steps cost on two tables, or what differs between them beside releases; and the worst case."""
    with planted((PerturbedObjective, "draw", fixed)):
        first = call(context, asked, tables[0])
        neighbours, rows = asked.get("neighbours", "add_remove"), asked.get("max_rows_per_unit", 1)
        worst = worst_case(first, Stated(neighbours, ROWS, max_rows_per_unit=rows, features=2))
        try:
            return pair_loss(first, call(context, asked, tables[1], first)), worst
        except AssertionError as difference:
            return str(difference), worst


FIXED = {**PUBLIC, "standardize": False}


@cases("asked", [FIXED, {**FIXED, **UNIT}, PUBLIC], ids=["row", "unit", "moments"])
@cases("relation", ["add_remove", "replace"])
def test_neighbours_differ_by_what_the_noise_is_for(
    context: dpsql.Context, relation: str, asked: dict[str, Any]
) -> None:
    """And by nothing else: given the same releases, neighbours have the same noise and the same result."""
    generator = random.Random(4)

    def rows(count: int, owner: int) -> str:
        number = [None, math.nan, math.inf, -1e300, -1.0, 1.0, 0.0]

        def value() -> str:
            found = generator.choice(number) if generator.random() < 0.5 else generator.uniform(-1, 1)
            return "NULL::DOUBLE" if found is None else f"'{found}'::DOUBLE"

        label = generator.choice(["true", "false", "NULL::BOOLEAN"])
        one = f"SELECT {owner} AS id, {owner} AS owner, {value()} AS a, {value()} AS b, {label} AS y"
        return " UNION ALL ".join([one] * count)

    count = asked.get("max_rows_per_unit", 1)
    for number in range(3):
        first, second = (rows(count, 10**6 + place) for place in range(2))
        base = f"FROM t WHERE id % 7 <> {number}"
        opened = context.connection
        opened.execute(f"CREATE OR REPLACE TABLE one AS {base} UNION ALL {first}")
        opened.execute(
            f"CREATE OR REPLACE TABLE two AS {base} {'UNION ALL ' + second if relation == 'replace' else ''}"
        )
        found, worst = replayed(context, {**asked, "neighbours": relation, "dataset": "t"}, ("one", "two"))
        assert isinstance(found, Loss), found
        assert found.exceeds(worst) == []


COSTS = {
    "free weights": ("standardized", "add_remove"),
    "visits of one": ("as they are", "add_remove"),
    "weights of one feature": ("as they are", "add_remove"),
    "labels that cannot turn": ("as they are", "replace"),
}
PAIRS = {
    "scores for chances": ("t", "more"),
    "labels beyond 1": ("t", "more"),
    "weights beyond 1": ("t", "other"),
    "bins of the weights": ("t", "more"),
}


@pytest.mark.parametrize("fault", COSTS)
def test_noise_is_worth_more_than_the_ledger_says(context: dpsql.Context, fault: str) -> None:
    assert is_paid(context, *COSTS[fault])
    with broken_steps(fault):
        assert not is_paid(context, *COSTS[fault])


@pytest.mark.parametrize("fault", [None, *PAIRS])
def test_neighbours_differ_by_more_than_the_noise_is_for(context: dpsql.Context, fault: str | None) -> None:
    """A row of an extreme score, and one of even odds."""
    for tables in [PAIRS[fault]] if fault else [("t", "more"), ("t", "other")]:
        with nullcontext() if fault is None else broken_steps(fault):
            found, worst = replayed(context, FIXED, tables)
        assert (isinstance(found, str) or found.exceeds(worst) != []) == (fault is not None), found


def test_scores_are_those_of_what_was_released(context: dpsql.Context) -> None:
    """With the draw of the linear fit replayed, the steps know nothing else of the rows; a secret fit shows."""
    with broken_steps("steps on a secret fit"):
        first = call(context, FIXED)
        with pytest.raises(AssertionError):
            pair_loss(first, call(context, FIXED, "more", first))


@pytest.mark.parametrize("delta", [DELTA, 1e-2])
def test_few_rows_for_the_noise_get_a_linear_fit_of_all_that_is_left(delta: float) -> None:
    """And cost what 'linear' costs: the same events, whatever noise the fit has."""
    found = []
    for method in ("additive", "linear"):
        with dpsql.Context() as opened:
            opened.connection.execute("CREATE TABLE few AS SELECT i % 2 = 0 AS y, sin(i) AS a FROM range(60) AS r(i)")
            given = {"target": "y", "features": ["a"], "epsilon": 1, "delta": delta, "method": method, **PUBLIC}
            with observed() as fits:
                seen = observe(lambda opened=opened, given=given: opened.dp_logistic_regression("few", **given).result)
            assert [one.role for one in seen.releases if one.role in GAUSSIAN] == ["moments"]
            assert "steps" not in seen.result
            linear = objective_spent(fits[0], epsilon=0.9, neighbours="add_remove", max_rows_per_unit=1)
            assert 0.99 * 0.9 <= linear[0] <= 0.9 * (1 + 1e-9)
            assert linear[1] <= 0.9 * delta * (1 + 1e-6)
            events = opened.connection.execute("SELECT event FROM dp_ledger() WHERE kind = 'release'").fetchall()
            found.append((events, seen.releases[0].spread, fits[0].scale))
    assert found[0] == found[1]


def test_a_linear_fit_of_the_whole_is_refused_before_it_draws(context: dpsql.Context) -> None:
    with broken_steps("a linear fit of the whole"), pytest.raises(dpsql.InternalError, match="I034"):
        call(context, PUBLIC)


def test_every_fault_is_caught_by_something() -> None:
    assert {*COSTS, *PAIRS, "steps on a secret fit", "a linear fit of the whole"} == set(BROKEN_STEPS)
