"""The auditor pointed at dp_sis through SQL, on pairs of tables where the loss is large.

A right release is accused with probability at most 1e-6 per audit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import dpsql
from dpsql.testing import AuditReport, SisLaw, audit_sql, check_fresh_draws, to_arrow
from dpsql.testing.neighbours import Table

CONFIDENCE = 1 - 1e-6
BOUNDS = "lower := -1, upper := 1, target_lower := -1, target_upper := 1"
# One row makes two features tie; one row more lifts the first and lowers the second.
PAIR = ((1.0, 1.0, 1.0),), ((1.0, 1.0, 1.0), (1.0, -1.0, 1.0))
# Replacing the second row sends the pair of scores from (2, 0) to (0, 2).
REPLACED = ((1.0, 1.0, 1.0), (1.0, -1.0, 1.0)), ((1.0, 1.0, 1.0), (-1.0, 1.0, 1.0))
CASES: list[tuple[str, tuple[Table, Table], dict[str, Any]]] = [
    ("add_remove", PAIR, {"mechanism": "one_shot", "epsilon": 2}),
    ("add_remove", PAIR, {"mechanism": "gumbel", "epsilon": 3}),
    ("add_remove", PAIR, {"mechanism": "canonical_lipschitz", "epsilon": 3, "gamma": 0.75}),
    ("replace", REPLACED, {"mechanism": "one_shot", "epsilon": 2}),
    ("add_remove", PAIR, {"mechanism": "one_shot", "epsilon": 2.5, "center": "target", "center_share": 0.1}),
]
IDS = [f"{relation} {' '.join(map(str, case.values()))}" for relation, _, case in CASES]


@pytest.fixture
def opened() -> Iterator[list[Any]]:
    connections: list[Any] = []
    yield connections
    for connection in connections:
        connection.close()


def query(**arguments: Any) -> str:
    text = ", ".join(f"{key} := {value!r}" for key, value in arguments.items())
    return f"SELECT rank, feature FROM dp_sis('t', target := 'y', k := 1, {BOUNDS}, {text})"


def run(opened: list[Any], pair: tuple[Table, Table], sql: str, *, epsilon: float, runs: int) -> AuditReport:
    def connect() -> Any:
        opened.append(dpsql.connect())
        return opened[-1]

    arrow = to_arrow(pair[0], ("a", "b", "y")), to_arrow(pair[1], ("a", "b", "y"))
    return audit_sql(connect, sql, arrow, epsilon=epsilon, runs=runs, confidence=CONFIDENCE, power=0.3, batch=10)


@pytest.mark.parametrize(("relation", "pair", "case"), CASES, ids=IDS)
def test_loss_on_the_audited_pair_is_large(relation: str, pair: tuple[Table, Table], case: dict[str, Any]) -> None:
    """An audit of a pair without loss would pass whatever the noise."""
    if case.get("center") == "target":
        pytest.skip("the exact law at full precision is not enumerated")
    law = SisLaw(("a", "b"), lower=-1, upper=1, target_lower=-1, target_upper=1, k=1, neighbours=relation, **case)
    import math

    first, second = map(law.law, pair)
    loss = max(abs(math.log(first[output] / second[output])) for output in first)
    assert 0.45 * case["epsilon"] < loss <= case["epsilon"] * (1 + 1e-9)


@pytest.mark.parametrize(("relation", "pair", "case"), CASES, ids=IDS)
def test_audit_through_sql(opened: list[Any], relation: str, pair: tuple[Table, Table], case: dict[str, Any]) -> None:
    report = run(opened, pair, query(neighbours=relation, **case), epsilon=case["epsilon"], runs=500)
    assert report.verdict != "violates", str(report)


@pytest.mark.slow
@pytest.mark.parametrize(("relation", "pair", "case"), CASES, ids=IDS)
def test_long_audit_through_sql(
    opened: list[Any], relation: str, pair: tuple[Table, Table], case: dict[str, Any]
) -> None:
    report = run(opened, pair, query(neighbours=relation, **case), epsilon=case["epsilon"], runs=5000)
    assert report.verdict == "passes" or case.get("center") == "target", str(report)
    assert report.verdict != "violates", str(report)


def test_the_same_audit_catches_half_the_noise(opened: list[Any]) -> None:
    """The release is given twice the epsilon that the audit is told."""
    report = run(opened, PAIR, query(mechanism="one_shot", epsilon=4), epsilon=2.0, runs=1000)
    assert report.verdict == "violates", str(report)


def test_the_same_audit_catches_the_wrong_relation(opened: list[Any]) -> None:
    """A replacement moves scores twice as far as an addition: add_remove noise does not cover it."""
    report = run(opened, REPLACED, query(mechanism="one_shot", epsilon=2), epsilon=2.0, runs=1000)
    assert report.verdict == "violates", str(report)


def test_draws_are_fresh() -> None:
    connection = dpsql.connect()
    connection.execute("CREATE TABLE t(a DOUBLE, b DOUBLE, y DOUBLE)")
    report = check_fresh_draws(connection, query(epsilon=1), runs=64)
    connection.close()
    # On an empty table both features are equally likely: 64 equal draws have probability 2**-63.
    assert report.fresh, report


def test_empty_table_answers_like_any_other(opened: list[Any]) -> None:
    """Whether a call answers must not depend on the rows: nothing, NULL, NaN and infinities included."""
    nan, inf = float("nan"), float("inf")
    odd = ((nan, inf, 1.0),), ((nan, inf, 1.0), (None, -inf, nan))
    for pair in (((), ((1.0, 1.0, 1.0),)), odd):
        report = run(opened, pair, query(epsilon=1), epsilon=1.0, runs=300)
        assert report.verdict != "violates", str(report)
