"""The auditor pointed at dp_kendall through SQL, on pairs of tables where the loss is large.

A right release is accused with probability at most 1e-6 per audit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import dpsql
from dpsql.testing import AuditReport, audit_sql, check_fresh_draws, to_arrow
from dpsql.testing.neighbours import Table
from support.audits import connecting
from support.cases import cases
from support.laws.kendall import KendallLaw
from support.sql_text import named

CONFIDENCE = 1 - 1e-6
LOW, HIGH = -99.0, 99.0


def rows(*columns: Sequence[Any]) -> Table:
    return tuple(zip(*columns, strict=True))


UP = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
SOME = (3.0, 2.0, 1.0, 0.0, 5.0, 4.0, 6.0)  # 7 of 21 pairs fall
HALF = (4.0, 1.0, 0.0, 2.0, 3.0)  # 5 of 10 pairs fall
ORDERED = rows(UP[:4], (0.0,) * 4, UP[:4])
# a follows the target, b tells nothing; one row more denies a and is the first of b's.
ADDED = ORDERED, (*ORDERED, (LOW, 1.0, HIGH))
# The same, with a value of b that is missing.
GAPPED = (*ORDERED, (4.0, None, 4.0))
MISSING = GAPPED, (*GAPPED, (LOW, 1.0, HIGH))
# The same with ties in all columns.
LEVELS = rows((0.0, 0.0, 1.0, 1.0, 1.0), (5.0,) * 5, (0.0, 0.0, 1.0, 1.0, 1.0))
TIED = LEVELS, (*LEVELS, (-1.0, 6.0, 2.0))
# One row denies b, and then a.
BASE = rows(UP, SOME, UP)
REPLACED = (*BASE, (HIGH, LOW, HIGH)), (*BASE, (LOW, HIGH, HIGH))
# a and c are one feature, b is the target; one row more makes them all alike in both rounds.
COPIED = rows(HALF, UP[:5], HALF, UP[:5])
TWO_ROUNDS = COPIED, (*COPIED, (HIGH, LOW, LOW, HIGH))
PAIRS = {"added": ADDED, "missing": MISSING, "tied": TIED, "replaced": REPLACED, "two rounds": TWO_ROUNDS}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("added", {"k": 1, "epsilon": 3}),
    ("added", {"k": 1, "epsilon": 2, "mechanism": "exponential"}),
    ("missing", {"k": 1, "epsilon": 2, "mechanism": "exponential"}),
    ("tied", {"k": 1, "epsilon": 3, "mechanism": "exponential"}),
    ("replaced", {"k": 1, "epsilon": 3, "neighbours": "replace"}),
    ("replaced", {"k": 1, "epsilon": 2, "neighbours": "replace", "mechanism": "exponential"}),
    ("two rounds", {"k": 2, "epsilon": 3, "mechanism": "exponential"}),
    ("two rounds", {"k": 2, "epsilon": 4, "split": "scaled"}),
]
BLOCKED: list[tuple[str, dict[str, Any]]] = [
    ("added", {"k": 1, "epsilon": 3, "mechanism": "exponential", "blocks": 1, "row_id": "id"}),
]
IDS = [f"{name} {' '.join(map(str, case.values()))}" for name, case in CASES]


def features(pair: tuple[Table, Table]) -> list[str]:
    return list("abc"[: len(pair[0][0]) - 1])


def table_form(names: list[str], **arguments: Any) -> str:
    return f"SELECT rank, feature FROM dp_kendall('t', target := 'y', features := {names}, verdict_share := 0, {named(arguments)})"


def aggregate_form(names: list[str], **arguments: Any) -> str:
    """Many releases per statement: every group holds the same rows."""
    return (
        f"SELECT list_transform(dp_kendall([{', '.join(names)}], y, names := {names}, verdict_share := 0, {named(arguments)}), "
        "lambda entry: entry.feature) FROM t, range({count}) AS r(copy) GROUP BY copy"
    )


def run(
    opened: list[Any],
    pair: tuple[Table, Table],
    sql: str,
    *,
    epsilon: float,
    runs: int,
    columns: Sequence[str] = (),
) -> AuditReport:
    arrow = [
        to_arrow([(*row, number) for number, row in enumerate(table)], columns or (*features(pair), "y", "id"))
        for table in pair
    ]
    return audit_sql(
        connecting(opened),
        sql,
        (arrow[0], arrow[1]),
        epsilon=epsilon,
        runs=runs,
        confidence=CONFIDENCE,
        power=0.3,
        batch=500 if "{count}" in sql else 10,
    )


@cases(("name", "case"), [*CASES, *BLOCKED], ids=[*IDS, "blocked"])
def test_loss_on_the_audited_pair_is_large(name: str, case: dict[str, Any]) -> None:
    """An audit of a pair without loss would pass whatever the noise."""
    law = KendallLaw(features(PAIRS[name]), **case)
    first, second = (law.law(tuple((*row, 0) for row in table)) for table in PAIRS[name])
    loss = max(abs(math.log(first[output] / second[output])) for output in first)
    assert 0.45 * case["epsilon"] < loss <= case["epsilon"] * (1 + 1e-9)


@cases(("name", "case"), CASES[:-2], ids=IDS[:-2])
def test_audit(opened: list[Any], name: str, case: dict[str, Any]) -> None:
    pair = PAIRS[name]
    report = run(opened, pair, aggregate_form(features(pair), **case), epsilon=case["epsilon"], runs=500)
    assert report.verdict != "violates", str(report)
    assert report.epsilon_lower > 0.02 * case["epsilon"], str(report)


@pytest.mark.parametrize(("name", "case"), [CASES[1], *BLOCKED])
def test_audit_of_the_table_form(opened: list[Any], name: str, case: dict[str, Any]) -> None:
    report = run(opened, PAIRS[name], table_form(["a", "b"], **case), epsilon=case["epsilon"], runs=80)
    assert report.verdict != "violates", str(report)


@pytest.mark.slow
@cases(
    ("form", "name", "case"),
    [
        *((aggregate_form, *case) for case in CASES),
        *((table_form, *case) for case in (CASES[0], CASES[5], CASES[6], *BLOCKED)),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_long_audit(opened: list[Any], form: Callable[..., str], name: str, case: dict[str, Any]) -> None:
    pair = PAIRS[name]
    report = run(opened, pair, form(features(pair), **case), epsilon=case["epsilon"], runs=2400)
    assert report.verdict == "passes", str(report)


@pytest.mark.parametrize("form", [aggregate_form, pytest.param(table_form, marks=pytest.mark.slow)])
def test_the_same_audit_catches_half_the_noise(opened: list[Any], form: Callable[..., str]) -> None:
    """The release is given twice the epsilon that the audit is told."""
    sql = form(["a", "b"], k=1, epsilon=4, mechanism="exponential")
    report = run(opened, ADDED, sql, epsilon=2.0, runs=1300)
    assert report.verdict == "violates", str(report)


@pytest.mark.slow
def test_the_same_audit_catches_the_wrong_relation(opened: list[Any]) -> None:
    """A replacement moves scores apart by 4, an addition by 5/2: add_remove noise does not cover it."""
    sql = aggregate_form(["a", "b"], k=1, epsilon=2, mechanism="exponential")
    report = run(opened, REPLACED, sql, epsilon=2.0, runs=4000)
    assert report.verdict == "violates", str(report)


# Forty units of one row say a; one more unit, with twenty rows, says b.
OWNED = tuple((float(i), 0.0, float(i), float(i)) for i in range(40))
UNIT = ((LOW, 1.0, HIGH, HIGH),) * 20
UNITS = OWNED, (*OWNED, *UNIT)
FEW_UNITS = OWNED[:6], (*OWNED[:6], *UNIT)
OWNED_COLUMNS = ("a", "b", "y", "u", "id")


def test_audit_of_a_privacy_unit(opened: list[Any]) -> None:
    """Two of the twenty rows are counted."""
    sql = table_form(["a", "b"], k=1, epsilon=1, mechanism="exponential", privacy_unit="u", max_rows_per_unit=2)
    report = run(opened, UNITS, sql, epsilon=1.0, runs=120, columns=OWNED_COLUMNS)
    assert report.verdict != "violates", str(report)


@pytest.mark.slow
def test_long_audit_of_a_privacy_unit(opened: list[Any]) -> None:
    sql = table_form(["a", "b"], k=1, epsilon=4, mechanism="exponential", privacy_unit="u", max_rows_per_unit=2)
    report = run(opened, FEW_UNITS, sql, epsilon=4.0, runs=2400, columns=OWNED_COLUMNS)
    assert report.verdict == "passes", str(report)


def test_the_same_audit_catches_noise_for_one_row_where_a_unit_has_several(opened: list[Any]) -> None:
    sql = table_form(["a", "b"], k=1, epsilon=1, mechanism="exponential")
    report = run(opened, UNITS, sql, epsilon=1.0, runs=120, columns=OWNED_COLUMNS)
    assert report.verdict == "violates", str(report)


def test_draws_are_fresh(opened: list[Any]) -> None:
    opened.append(dpsql.connect())
    opened[0].register("t", to_arrow(ADDED[1], ("a", "b", "y")))
    report = check_fresh_draws(opened[0], table_form(["a", "b"], k=1, epsilon=0.1), runs=30)
    assert report.fresh, str(report)
    assert report.false_alarm < 1e-3
