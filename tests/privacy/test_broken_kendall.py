"""Planted faults of selection by Kendall correlation: each is caught, and dp_kendall passes the same check.

A right release is accused with probability at most 1e-6 per audit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from dpsql.testing import AuditReport, audit_sql, check_exhaustively, to_arrow
from dpsql.testing.neighbours import Table
from support.audits import connecting
from support.broken import install_broken_kendall, sensitivity_as_range_law, tau_b_law, tau_b_scores
from support.laws.kendall import KendallLaw

CONFIDENCE = 1 - 1e-6
Pair = tuple[Table, Table]


def loss(first: Mapping[Any, float], second: Mapping[Any, float]) -> float:
    """Return the largest log ratio of two laws; inf where an output is possible under one alone."""
    outputs = {**first, **second}
    ratios = ((first.get(output, 0.0), second.get(output, 0.0)) for output in outputs)
    return max(abs(math.log(a / b)) if a and b else math.inf for a, b in ratios)


def binary(rows: int) -> Pair:
    """Only the first row has y = 1, and a; b has the last row, too. One row more has a = 1, y = 0."""
    table = ((1.0, 1.0, 1.0), *((0.0, 0.0, 0.0),) * (rows - 2), (0.0, 1.0, 0.0))
    return table, (*table, (1.0, 0.0, 0.0))


# b is constant until the last row.
CONSTANT: Pair = ((0.0, 5.0, 0.0), (1.0, 5.0, 1.0)), ((0.0, 5.0, 0.0), (1.0, 5.0, 1.0), (2.0, 6.0, 2.0))


def run(opened: list[Any], sql: str, pair: Pair, *, epsilon: float, runs: int) -> AuditReport:
    arrow = to_arrow(pair[0], ("a", "b", "y")), to_arrow(pair[1], ("a", "b", "y"))
    return audit_sql(
        connecting(opened, install_broken_kendall),
        sql,
        arrow,
        epsilon=epsilon,
        runs=runs,
        confidence=CONFIDENCE,
        power=0.3,
        batch=250,
    )


def broken(epsilon: float) -> str:
    return f"SELECT dp_broken_tau_b(list([a, b, y]), {epsilon}) FROM t, range({{count}}) AS r(copy) GROUP BY copy"


def right(epsilon: float) -> str:
    return (
        f"SELECT dp_kendall([a, b], y, names := ['a', 'b'], k := 1, epsilon := {epsilon})[1].feature "
        "FROM t, range({count}) AS r(copy) GROUP BY copy"
    )


def test_tau_b_moves_by_the_order_of_n() -> None:
    from scipy.stats import kendalltau

    moves, losses = [], []
    for rows in (10, 100, 1000):
        pair = binary(rows)
        scores = [tau_b_scores(table)[0] for table in pair]
        if rows < 1000:
            expected = [kendalltau(*zip(*((a, y) for a, _, y in table), strict=True)).statistic for table in pair]
            assert scores == pytest.approx(
                [len(table) / 2 * abs(tau) for table, tau in zip(pair, expected, strict=True)]
            )
        moves.append(scores[0] - scores[1])
        losses.append(loss(*(tau_b_law(table, epsilon=1) for table in pair)))
        law = KendallLaw("ab", k=1, epsilon=1)
        assert loss(*map(law.law, pair)) <= 1
    assert moves == pytest.approx([1.3, 14.5, 146], rel=0.02)
    assert losses == pytest.approx([0.39, 5.2, 58], rel=0.02)


@pytest.mark.long
def test_tau_b_is_caught_through_sql(opened: list[Any]) -> None:
    report = run(opened, broken(1.0), binary(100), epsilon=1.0, runs=500)
    assert report.verdict == "violates", str(report)
    report = run(opened, right(1.0), binary(100), epsilon=1.0, runs=300)
    assert report.verdict != "violates", str(report)


def test_a_constant_column_wins_for_certain() -> None:
    laws = [tau_b_law(table, epsilon=1) for table in CONSTANT]
    assert laws[0] == {1: 1.0}
    assert laws[1][1] < 1
    assert math.isinf(loss(*laws))
    law = KendallLaw("ab", k=1, epsilon=1)
    assert loss(*map(law.law, CONSTANT)) <= 1
    assert law.law(CONSTANT[0])["b",] < 0.5


@pytest.mark.long
def test_a_constant_column_that_wins_is_caught_through_sql(opened: list[Any]) -> None:
    report = run(opened, broken(0.1), CONSTANT, epsilon=0.1, runs=300)
    assert report.verdict == "violates", str(report)
    report = run(opened, right(0.1), CONSTANT, epsilon=0.1, runs=300)
    assert report.verdict != "violates", str(report)


# a follows y, b is constant; the last row denies a and is the first of b's.
ORDERED: list[tuple[float, ...]] = [*((float(i), 0.0, float(i)) for i in range(5)), (-99.0, 1.0, 99.0)]


def exact_scores(table: Table) -> tuple[Fraction, ...]:
    """Return ``|tau|`` of every feature, from the product's own counts."""
    [(rows, counts)] = KendallLaw("ab", k=1, epsilon=1).statistic(table)
    return tuple(abs(Fraction(score, max(1, rows - 1))) for score in counts[-1])


@pytest.mark.parametrize("noise", ["exponential", "gumbel"])
def test_a_sensitivity_in_place_of_the_range(noise: Any) -> None:
    first, second = exact_scores(tuple(ORDERED[:5])), exact_scores(tuple(ORDERED))
    assert (first, second) == ((Fraction(5, 2), 0), (1, 1))
    # Gumbel noise spends all of epsilon only in the limit.
    epsilon = Fraction(1 if noise == "exponential" else 8)
    laws = [sensitivity_as_range_law(scores, epsilon=epsilon, noise=noise) for scores in (first, second)]
    if noise == "exponential":
        assert loss(*laws) == pytest.approx(5 / 3)
    assert loss(*laws) > 1.5 * epsilon
    law = KendallLaw("ab", k=1, epsilon=epsilon, mechanism=noise)
    assert loss(law.law(tuple(ORDERED[:5])), law.law(tuple(ORDERED))) <= epsilon * (1 + 1e-9)


def test_a_sensitivity_in_place_of_the_range_is_caught_exhaustively() -> None:
    report = check_exhaustively(
        lambda table: sensitivity_as_range_law(exact_scores(table), epsilon=Fraction(1)),
        ORDERED[::2] + ORDERED[-1:],
        4,
        "add_remove",
    )
    assert not report.within(1), str(report)
