"""dp_synthetic through SQL: what neighbouring tables cost, step by step; planted faults cost more, or show."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.contract.events import zcdp_epsilon
from dpsql.contract.gaussian_profile import normal_tail
from dpsql.contract.measurement import Permit, measurement_of
from dpsql.functions.synthetic import SyntheticPlan
from dpsql.mechanisms import private_tree
from dpsql.mechanisms.private_tree import (
    BOUNDS,
    CELLS,
    CROWDS,
    EDGES,
    GRAINS,
    ONE,
    REPORT,
    TREE,
    VALUES,
    key_reach,
)
from support.broken.synthetic import BROKEN_SYNTHETIC, broken_synthetic
from support.cases import cases
from support.laws.synthetic import Seen, observe

NAMES = itertools.count()
REPLACE = ", neighbours := 'replace'"
UNIT = ", privacy_unit := 'u', max_rows_per_unit := 3"
KEYS = ", keys := {'g': ['x', 'y', 'z']}, columns := ['a', 'b', 'g', 'f']"
CALL = (
    "FROM dp_synthetic('{table}', lower := {{'a': 0, 'b': -1}}, upper := {{'a': 40, 'b': 1}}, target := 'g', "
    "dataset := 'd', release := '{name}', epsilon := {epsilon}, delta := 1e-5{more})"
)
DRAWN = CALL.replace("lower := {{'a': 0, 'b': -1}}, upper := {{'a': 40, 'b': 1}}, ", "")
HUB = CALL.replace("target := 'g', ", "")
ROWS = {
    "t": "SELECT (i * 7) % 41 AS a, CASE WHEN (i * 53) % 97 < 48 THEN 0.25 ELSE 0.2501 END::DOUBLE AS b, ['x', 'y', 'z'][1 + (i * 7) % 41 // 14] AS g, (i * 53) % 97 < 48 AS f, "
    "100 + i // 3 AS u FROM range(600) AS r(i)",
    "row": "FROM t UNION ALL SELECT 40, 0.25, 'x', true, 0",
    "other": "FROM t UNION ALL SELECT 0, 0.2501, 'y', false, 0",
    "missing": "FROM t UNION ALL SELECT NULL, 'nan'::DOUBLE, NULL, NULL, 0",
    "far": "FROM t UNION ALL SELECT 1000000000, '-inf'::DOUBLE, 'unknown', true, 0",
    "person": "FROM t UNION ALL SELECT 40, 0.25, 'x', true, 0 FROM range(5)",
    "other_person": "FROM t UNION ALL SELECT 0, 0.2501, 'y', false, 0 FROM range(5)",
}
CASES: dict[str, tuple[tuple[str, str], str]] = {
    "row": (("t", "row"), ""),
    "row away": (("row", "t"), ""),
    "replaced": (("row", "other"), REPLACE),
    "missing": (("t", "missing"), ""),
    "far": (("t", "far"), ""),
    "person": (("t", "person"), UNIT),
    "replaced person": (("person", "other_person"), UNIT + REPLACE),
}


@pytest.fixture(scope="module")
def connection() -> Iterator[Any]:
    opened = dpsql.connect()
    for name, rows in ROWS.items():
        opened.execute(f"CREATE TABLE {name} AS {rows}")
    yield opened
    opened.close()


def run(
    connection: Any, table: str, more: str, first: Seen | None = None, *, call: str = CALL, epsilon: int = 4
) -> Seen:
    def asked() -> Any:
        name = f"r{next(NAMES)}"
        text = call.format(table=table, name=name, more=KEYS + more, epsilon=epsilon)
        report = connection.execute(text).fetchall()
        rows = connection.execute(f"FROM dp_synthetic_rows('{name}', n := 2000, seed := 1)").fetchall()
        return report, rows

    return observe(asked, first)


def over(connection: Any, case: str, *, call: str = CALL) -> float:
    """Return the largest loss of a step over what it may spend; infinite if the results differ."""
    (one, two), more = CASES[case]
    first = run(connection, one, more, call=call)
    second = run(connection, two, more, first, call=call)
    if first.result != second.result:
        return math.inf
    losses = first.losses(second)
    part = plan(more, drawn=call is DRAWN).noise_part
    # Of a and b the latter has cells of several numbers, and lists its multiples of a ten-thousandth.
    steps = [*([BOUNDS] * 2 if call is DRAWN else [CROWDS]), CELLS, GRAINS, VALUES]
    rounds = [loss for kind, loss in losses if kind != "gaussian"]
    others = [loss for kind, loss in losses if kind == "gaussian"]
    spent = {step: 0.0 for step, _ in part.shares}
    edges = [EDGES] * (len(others) - len(steps) - 1)
    for step, loss in zip([*steps, *edges, REPORT], others, strict=True):
        spent[step] += loss
    spent[TREE] = max(rounds) * len(rounds)  # no round may spend another one's share
    limits = {step: float(part.rho_of(step)) for step in spent}
    most = 2 if call is not HUB else 4
    limits[EDGES] += limits[TREE] * (most - len(rounds)) / most
    limits[TREE] *= len(rounds) / most
    return max(spent[step] / limits[step] for step in spent)


def plan(more: str, *, drawn: bool) -> SyntheticPlan:
    given: dict[str, Any] = {
        "columns": ["a", "b", "g", "f"],
        "epsilon": 4,
        "delta": 1e-5,
        "keys": {"g": ["x", "y", "z"]},
    }
    if not drawn:
        given |= {"lower": {"a": 0, "b": -1}, "upper": {"a": 40, "b": 1}}
    if "replace" in more:
        given["neighbours"] = "replace"
    if "privacy_unit" in more:
        given |= {"privacy_unit": "u", "max_rows_per_unit": 3}
    return SyntheticPlan.from_arguments("t", given)


@cases("case", CASES, quick=3)
def test_neighbours_cost_what_is_charged(connection: Any, case: str) -> None:
    assert over(connection, case) <= 1 + 1e-9


@pytest.mark.parametrize(
    "case", ["row", *(pytest.param(case, marks=pytest.mark.long) for case in ("replaced person", "missing"))]
)
def test_drawn_bounds_cost_what_is_charged(connection: Any, case: str) -> None:
    assert over(connection, case, call=DRAWN) <= 1 + 1e-9


@cases("case", CASES, quick=1)
def test_a_drawn_hub_costs_what_is_charged(connection: Any, case: str) -> None:
    assert over(connection, case, call=HUB) <= 1 + 1e-9


def test_a_row_costs_all_of_it(connection: Any) -> None:
    """The stated sensitivities are attained: a row in one cell of each column spends all that counts may."""
    assert over(connection, "row") == pytest.approx(1, abs=1e-6)


def test_with_private_keys_all_rows_are_one_table_more(connection: Any) -> None:
    """A row is in one cell of each of four columns, and in the number of all rows: it spends all that counts may."""
    more = ", private_keys := true, columns := ['a', 'b', 'g', 'f']"

    def asked(table: str, first: Seen | None = None) -> Seen:
        text = CALL.format(table=table, name=f"r{next(NAMES)}", more=more, epsilon=4)
        return observe(lambda: connection.execute(text).fetchall(), first)

    first = asked("t")
    _, loss = [loss for kind, loss in first.losses(asked("row", first)) if kind == "gaussian"][:2]  # after crowds
    given = {"columns": ["a", "b", "g", "f"], "epsilon": 4, "delta": 1e-5, "private_keys": True}
    part = SyntheticPlan.from_arguments(
        "t", {**given, "lower": {"a": 0, "b": -1}, "upper": {"a": 40, "b": 1}}
    ).noise_part
    assert loss == pytest.approx(float(part.rho_of(CELLS)), rel=1e-6)


FAULTS = {
    "noise for one table": "row",
    "distances of one pair": "person",
    "qualities of one row": "person",
    "star for nothing": "row",
    "exact total": "person",
    "values for nothing": "row",
    "grains of one row": "person",
    "exact atoms": "person",
    "bounds of the data": "far",
}


@cases("fault", FAULTS, quick=2)
def test_a_planted_fault_shows(connection: Any, fault: str) -> None:
    with broken_synthetic(fault):
        assert over(connection, FAULTS[fault], call=DRAWN if fault == "bounds of the data" else CALL) > 1.01


def test_a_reference_of_exact_margins_moves_too_far() -> None:
    """The quality of a pair is stated to move by one row; with a reference that is not released it moves by more."""
    one, two = np.array([[2, 0], [0, 30]]), np.array([[3, 0], [0, 30]])
    expected = np.outer([2.0, 30.0], [2.0, 30.0]) / 32.0

    def moved() -> float:
        found = [private_tree._quality(table, expected, 1.0) for table in (one, two)]
        return abs(found[0] - found[1]) / ONE

    assert moved() == 1
    with broken_synthetic("exact margins"):
        assert moved() > 3


def first_round(tables: tuple[Any, Any], relation: str, hub: int | None) -> float:
    """Return the loss of the first round over its share: four columns, and the tables of two neighbours by pair."""
    part, rounds = plan("", drawn=False).noise_part, 4 if hub is None else 2
    even = np.full((2, 2), 250.0)

    def run(table: Any) -> Any:
        def draw() -> None:
            with Permit(measurement_of(part)).drawing():
                private_tree.draw_tree(
                    part,
                    table,
                    [np.array([500.0, 500.0])] * 4,
                    1000.0,
                    lambda _: dict.fromkeys(itertools.combinations(range(4), 2), even),
                    hub=hub,
                    neighbours=relation,
                    rows=1,
                )

        return draw

    first = observe(run(tables[0]))
    losses = [loss for kind, loss in first.losses(observe(run(tables[1]), first)) if kind != "gaussian"]
    return losses[0] / (float(part.rho_of(TREE)) / rounds)


def test_a_hub_moves_with_all_its_pairs() -> None:
    """A row more in the fullest cell of each of six pairs moves the quality of every one of four hubs by three."""
    one, two = np.array([[400, 100], [100, 400]]), np.array([[401, 100], [100, 400]])

    def over() -> float:
        return first_round((lambda _: one, lambda _: two), "add_remove", None)

    assert over() == pytest.approx(1 / 4, rel=1e-6)  # in one direction; a row less moves it in the other
    with broken_synthetic("hub of one pair"):
        assert over() > 2


def test_a_replaced_row_moves_pairs_both_ways() -> None:
    """A row from an empty cell of one pair to a full one, and the other way in another pair: all that a round may cost."""
    away, back = np.array([[400, 100], [100, 400]]), np.array([[401, 99], [100, 400]])

    def over() -> float:
        tables = [{(0, 1): one, (0, 2): two} for one, two in ((away, back), (back, away))]
        return first_round(
            (lambda pair: tables[0].get(pair, away), lambda pair: tables[1].get(pair, away)), "replace", 3
        )

    assert over() == pytest.approx(1, rel=1e-6)
    for fault in ("one-way qualities", "twice the epsilon"):
        with broken_synthetic(fault):
            assert over() > 3.9


def test_every_fault_is_caught_by_something() -> None:
    assert {*FAULTS, "exact margins", "hub of one pair", "one-way qualities", "twice the epsilon"} == set(
        BROKEN_SYNTHETIC
    )


def test_shares_add_up() -> None:
    bounds = {"lower": {"a": 0}, "upper": {"a": 9}}
    for given in ({}, bounds, {"private_keys": True}, {**bounds, "report_share": 0, "bounds_share": 0.2}):
        part = SyntheticPlan.from_arguments("t", {"epsilon": 1, "delta": 1e-5, **given}).noise_part
        assert sum(rho for _, rho in part.shares) == part.rho
        assert zcdp_epsilon(part.rho, part.delta) <= part.epsilon == 1
        assert part.delta + (part.key_delta or 0) == Fraction(1, 10**5)
        cost = part.event.cost
        assert (cost.epsilon, cost.delta) == (1, Fraction(1, 10**5))
        assert (cost.rho is None) == bool(given.get("private_keys"))


@pytest.mark.parametrize(("relation", "rows"), [("add_remove", 1), ("add_remove", 3), ("replace", 3)])
def test_a_lone_value_stays_private(relation: str, rows: int) -> None:
    """All values that one person alone has: at most m for each column, each on at most m rows."""
    epsilon, delta, columns = Fraction(1), Fraction(1, 10**6), 4
    reach = key_reach(epsilon, delta, columns, relation, rows)
    chance = columns * rows * float(normal_tail(Fraction(reach) - Fraction(1, 256)))
    both = 1 if relation == "add_remove" else 1 + math.e
    assert chance * both <= float(delta) <= 1.2 * chance * both


def test_private_values_are_those_of_many(connection: Any) -> None:
    """A value of one row is never among the keys, and NULL, other values and rows add up."""
    connection.execute("CREATE OR REPLACE TABLE w AS SELECT CASE WHEN i < 5 THEN 'lone' || i WHEN i % 2 = 0 THEN 'even' "
                       "ELSE 'odd' END AS g, i % 7 AS a FROM range(2000) AS r(i)")  # fmt: skip
    connection.execute(
        "FROM dp_synthetic('w', epsilon := 4, delta := 1e-6, private_keys := true, lower := {'a': 0}, "
        "upper := {'a': 6}, release := 'w')"
    )
    found = connection.execute("SELECT DISTINCT g FROM dp_synthetic_rows('w') ORDER BY ALL").fetchall()
    assert {("even",), ("odd",)} <= set(found) <= {("even",), ("odd",), ("other",), (None,)}


@pytest.mark.long
def test_draws_are_fresh(connection: Any) -> None:
    check = "SELECT list(error) FROM dp_synthetic('t', columns := ['a', 'b'], epsilon := 1, delta := 1e-5)"
    assert len({str(connection.execute(check).fetchone()) for _ in range(4)}) == 4
