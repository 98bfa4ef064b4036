"""The auditor pointed at dp_sis through SQL, on pairs of tables where the loss is large.

A right release is accused with probability at most 1e-6 per audit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import dpsql
from dpsql.testing import AuditReport, audit_sql, check_fresh_draws, to_arrow
from dpsql.testing.neighbours import Table
from support.audits import connecting
from support.cases import cases
from support.laws.sis import SisLaw
from support.sql_text import named

CONFIDENCE = 1 - 1e-6
BOUNDS = "lower := -1, upper := 1, target_lower := -1, target_upper := 1"
# One row makes two features tie; one row more lifts the first and lowers the second.
PAIR = ((1.0, 1.0, 1.0),), ((1.0, 1.0, 1.0), (1.0, -1.0, 1.0))
# Replacing one row sends the scores from (4, 0) to (2, 2): the second gains 4 on the first.
BASE = ((1.0, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 0.0, 1.0))
REPLACED = (*BASE, (1.0, -1.0, 1.0)), (*BASE, (-1.0, 1.0, 1.0))
# Many rows with the lowest target and neutral features: the private mean is low, and the others keep their weight.
LOW = ((0.0, 0.0, -1.0),) * 60
CASES: list[tuple[str, tuple[Table, Table], dict[str, Any]]] = [
    ("add_remove", PAIR, {"mechanism": "one_shot", "epsilon": 2}),
    ("add_remove", PAIR, {"mechanism": "gumbel", "epsilon": 3}),
    ("add_remove", PAIR, {"mechanism": "canonical_lipschitz", "epsilon": 3, "gamma": 0.75}),
    ("replace", REPLACED, {"mechanism": "one_shot", "epsilon": 2}),
    (
        "add_remove",
        ((*PAIR[0], *LOW), (*PAIR[1], *LOW)),
        {"mechanism": "one_shot", "epsilon": 2.5, "center": "target", "center_share": 0.1},
    ),
]
IDS = [f"{relation} {' '.join(map(str, case.values()))}" for relation, _, case in CASES]


def table_form(**arguments: Any) -> str:
    return f"SELECT rank, feature FROM dp_sis('t', target := 'y', k := 1, {BOUNDS}, {named(arguments)})"


def aggregate_form(**arguments: Any) -> str:
    """Many releases per statement: every group holds the same rows."""
    return (
        f"SELECT dp_sis([a, b], y, names := ['a', 'b'], k := 1, {BOUNDS}, {named(arguments)})[1].feature "
        "FROM t, range({count}) AS r(copy) GROUP BY copy"
    )


def run(
    opened: list[Any],
    pair: tuple[Table, Table],
    sql: str,
    *,
    epsilon: float,
    runs: int,
    columns: tuple[str, ...] = ("a", "b", "y"),
) -> AuditReport:
    arrow = to_arrow(pair[0], columns), to_arrow(pair[1], columns)
    return audit_sql(
        connecting(opened),
        sql,
        arrow,
        epsilon=epsilon,
        runs=runs,
        confidence=CONFIDENCE,
        power=0.3,
        batch=500 if "{count}" in sql else 10,
    )


@pytest.mark.parametrize(("relation", "pair", "case"), CASES[:-1], ids=IDS[:-1])
def test_loss_on_the_audited_pair_is_large(relation: str, pair: tuple[Table, Table], case: dict[str, Any]) -> None:
    """An audit of a pair without loss would pass whatever the noise."""
    law = SisLaw(("a", "b"), lower=-1, upper=1, target_lower=-1, target_upper=1, k=1, neighbours=relation, **case)
    first, second = map(law.law, pair)
    loss = max(abs(math.log(first[output] / second[output])) for output in first)
    assert 0.45 * case["epsilon"] < loss <= case["epsilon"] * (1 + 1e-9)


@pytest.mark.parametrize(("relation", "pair", "case"), CASES, ids=IDS)
def test_audit(opened: list[Any], relation: str, pair: tuple[Table, Table], case: dict[str, Any]) -> None:
    report = run(opened, pair, aggregate_form(neighbours=relation, **case), epsilon=case["epsilon"], runs=600)
    assert report.verdict != "violates", str(report)
    assert report.epsilon_lower > 0.1 * case["epsilon"], str(report)


def test_audit_of_the_table_form(opened: list[Any]) -> None:
    report = run(opened, PAIR, table_form(epsilon=2), epsilon=2.0, runs=160)
    assert report.verdict != "violates", str(report)


@pytest.mark.slow
@cases("form", [table_form, aggregate_form])
@cases(("relation", "pair", "case"), CASES, ids=IDS)
def test_long_audit(
    opened: list[Any], relation: str, pair: tuple[Table, Table], case: dict[str, Any], form: Callable[..., str]
) -> None:
    report = run(opened, pair, form(neighbours=relation, **case), epsilon=case["epsilon"], runs=2400)
    assert report.verdict == "passes", str(report)


@pytest.mark.parametrize("form", [aggregate_form, pytest.param(table_form, marks=pytest.mark.slow)])
def test_the_same_audit_catches_half_the_noise(opened: list[Any], form: Callable[..., str]) -> None:
    """The release is given twice the epsilon that the audit is told."""
    report = run(opened, PAIR, form(mechanism="one_shot", epsilon=4), epsilon=2.0, runs=2000)
    assert report.verdict == "violates", str(report)


# Three units of two rows make a tie; one unit more, of six rows, lifts the first feature alone. With two rows of it
# counted the loss is all of epsilon; with all six under the noise for one row it is six times that.
TIED = tuple((1.0, 1.0, 1.0, float(unit)) for unit in (1, 1, 2, 2, 3, 3))
UNITS = TIED, (*TIED, *((1.0, -1.0, 1.0, 4.0),) * 6)


def test_audit_of_a_privacy_unit(opened: list[Any]) -> None:
    sql = table_form(features=["a", "b"], epsilon=1, privacy_unit="u", max_rows_per_unit=2)
    report = run(opened, UNITS, sql, epsilon=1.0, runs=300, columns=("a", "b", "y", "u"))
    assert report.verdict != "violates", str(report)


def test_the_same_audit_catches_noise_for_one_row_where_a_unit_has_several(opened: list[Any]) -> None:
    sql = table_form(features=["a", "b"], epsilon=1)
    report = run(opened, UNITS, sql, epsilon=1.0, runs=300, columns=("a", "b", "y", "u"))
    assert report.verdict == "violates", str(report)


@pytest.mark.slow
@pytest.mark.parametrize("form", [aggregate_form, table_form])
def test_the_same_audit_catches_the_wrong_relation(opened: list[Any], form: Callable[..., str]) -> None:
    """A replacement moves scores twice as far as an addition: add_remove noise does not cover it."""
    report = run(opened, REPLACED, form(mechanism="one_shot", epsilon=2), epsilon=2.0, runs=2000)
    assert report.verdict == "violates", str(report)


def test_draws_are_fresh() -> None:
    connection = dpsql.connect()
    connection.execute("CREATE TABLE t(a DOUBLE, b DOUBLE, y DOUBLE)")
    report = check_fresh_draws(connection, table_form(epsilon=1), runs=64)
    connection.close()
    # On an empty table both features are equally likely: 64 equal draws have probability 2**-63.
    assert report.fresh, report


@pytest.mark.parametrize("center", ["public", "target"])
def test_whether_a_call_answers_does_not_depend_on_the_rows(opened: list[Any], center: str) -> None:
    """No rows, NULL, NaN and infinities included: an error on one table only would be a violation."""
    nan, inf = float("nan"), float("inf")
    odd = ((nan, inf, 1.0),), ((nan, inf, 1.0), (None, -inf, nan))
    for pair in (((), ((1.0, 1.0, 1.0),)), odd):
        report = run(opened, pair, table_form(epsilon=0.01, center=center), epsilon=0.01, runs=48)
        assert report.verdict != "violates", str(report)
