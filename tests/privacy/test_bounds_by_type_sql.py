"""Private bounds by the columns' public types, through SQL: what is drawn and paid for, and what coefficients say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

import dpsql
from dpsql.testing import audit_sql
from support.broken import broken_fit
from support.cases import cases
from support.laws.regression import Observation, observe, pair_loss

ROWS = 20_000
DELTA = 1e-6


@pytest.fixture(scope="module")
def context() -> Iterator[dpsql.Context]:
    """Flags of all kinds: 3 % of the rows have one; each lowers y by 1. The numbers follow from the row alone."""
    opened = dpsql.connect()
    flag = "i % 100 < 3"
    opened.execute(
        f"CREATE TABLE t AS SELECT {flag} AS flag, ({flag})::TINYINT AS small, ({flag})::DOUBLE AS number, "
        "((i * 37) % 101) / 50 - 1 AS a, 2 + 0.3 * a - number + ((i * 13) % 31) / 100 AS y, "
        f"(i * 53) % 97 < 30 + 40 * number AS label FROM range({ROWS}) AS r(i)"
    )
    # So few that the sums of all are exact as doubles, which the observation of noise needs.
    opened.execute("CREATE TABLE few AS FROM t LIMIT 2000")
    opened.execute("CREATE TABLE more AS FROM few UNION ALL SELECT true, 127::TINYINT, 1e9, -1e9, 1e9, true")
    made = dpsql.Context(opened)
    # What is loaded with the first call is not to be loaded while it is observed.
    made.dp_linear_regression("t", target="y", features=["a"], epsilon=8, delta=DELTA, method="ada_ssp")
    yield made
    opened.close()


def seen(
    context: dpsql.Context, features: list[str], table: str = "few", answers: Observation | None = None, **more: Any
) -> Observation:
    given = {"target": "y", "features": features, "epsilon": 8, "delta": DELTA, "method": "ada_ssp", **more}
    return observe(
        lambda: context.dp_linear_regression(table, **given).result, None if answers is None else answers.releases
    )


def cells(found: Observation) -> list[int]:
    """How many cells each column was counted in whose bounds were drawn."""
    return [len(one.statistic) for one in found.releases if one.role == "cells"]


def test_a_boolean_is_not_counted_and_its_share_goes_to_the_others(context: dpsql.Context) -> None:
    alone, both = seen(context, ["a"]), seen(context, ["a", "flag"])
    assert cells(alone) == cells(both)
    spreads = [[one.spread[0] for one in found.releases if one.role == "cells"] for found in (alone, both)]
    assert spreads[0] == spreads[1]
    assert both.result["bounds"][1] == [0, 1]
    assert cells(seen(context, ["flag"], target_lower=-2, target_upper=4)) == []


def test_types_decide_on_the_cells_and_neighbours_differ_by_no_more_than_the_noise_is_for(
    context: dpsql.Context,
) -> None:
    """The law depends on the types alone: on a neighbour the same cells get the same noise."""
    first = seen(context, ["small", "number"])
    assert cells(first) == [47, 1033, 1033]
    assert pair_loss(first, seen(context, ["small", "number"], "more", first)).within(8, DELTA)
    with broken_fit("norm of another column"):
        first = seen(context, ["small", "number"])
        loss = pair_loss(first, seen(context, ["small", "number"], "more", first))
    assert sum(loss.squared_mu.values()) > 0


GIVEN: dict[str, Any] = {"target_lower": -2, "target_upper": 4}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "given": ("number", {"lower": [0, -1], "upper": [1, 1], **GIVEN}),
    "boolean": ("flag", {}),
    "drawn": ("small", {}),
}


@cases("method", ["ada_ssp", "boosted_ada_ssp"])
@cases("way", WAYS)
def test_the_coefficient_of_a_rare_flag_is_its_slope(context: dpsql.Context, way: str, method: str) -> None:
    """Three deviations of a flag of 3 % end at half of it; the slope is -1, and no bound moves inwards."""
    name, given = WAYS[way]
    found = context.dp_linear_regression(
        "t", target="y", features=[name, "a"], epsilon=40, delta=DELTA, method=method, **given
    )
    _, slope, other = found.result["coefficients"]
    assert slope == pytest.approx(-1, abs=0.05)
    assert other == pytest.approx(0.3, abs=0.05)
    lower, upper = found.result["bounds"][0]
    assert lower <= 0
    assert upper >= 1
    if way == "given":
        assert [lower, upper] == [0, 1]
    assert "unclear" not in found.result


@cases("way", WAYS)
@cases("epsilon", [3, 40])
def test_the_odds_of_a_rare_flag_are_its_own(context: dpsql.Context, way: str, epsilon: float) -> None:
    """30 of 97 rows without the flag, 70 of 97 with it: odds that differ by 1.75 on the logarithmic scale."""
    name, given = WAYS[way]
    bounds = {side: given[side] for side in ("lower", "upper") if side in given}
    found = context.dp_logistic_regression(
        "t", target="label", features=[name, "a"], epsilon=epsilon, delta=DELTA, **bounds
    )
    assert found.result["coefficients"][1] == pytest.approx(1.75, abs=0.6 if epsilon == 3 else 0.25)


def test_an_interval_that_is_not_clear_makes_no_coefficient_clear(context: dpsql.Context) -> None:
    """At a hundredth of epsilon the rows suffice to see where columns lie, and not to be sure."""
    unclear = 0
    for _ in range(20):
        found = context.dp_linear_regression(
            "t", target="y", features=["small", "a"], epsilon=0.02, delta=DELTA, method="ada_ssp"
        )
        table = found.to_arrow()
        terms = dict(zip(table["term"].to_pylist(), table["verdict"].to_pylist(), strict=True))
        for name in found.result.get("unclear", ()):
            unclear += 1
            assert terms[name] in ("unclear", "undetermined")
    assert unclear


def test_predictions_stay_within_the_targets_interval_unless_not_asked(context: dpsql.Context) -> None:
    given: dict[str, Any] = {"target": "y", "features": ["a"], "epsilon": 40, "delta": DELTA, "lower": -1, "upper": 1}
    narrow = {"target_lower": 2.2, "target_upper": 2.3}
    context.dp_linear_regression("t", **given, **narrow, release="clipped")
    context.dp_linear_regression("t", **given, **narrow, clip=False, release="free")
    context.dp_linear_regression("t", **given, release="drawn")
    clipped, free, drawn = (context.model(name) for name in ("clipped", "free", "drawn"))
    rows = [[-1.0], [0.0], [1.0]]
    assert clipped.prediction_bounds_ == (2.2, 2.3)
    assert set(clipped.predict(rows)) <= {2.2, 2.3} | set(free.predict(rows))
    assert free.prediction_bounds_ is None
    assert drawn.prediction_bounds_ is not None
    assert drawn.prediction_bounds_[0] < 1.2 < 2.4 < drawn.prediction_bounds_[1]


@pytest.mark.slow
@pytest.mark.parametrize("fault", [None, "free bounds"])
def test_the_auditor_on_one_tinyint_column(fault: str | None) -> None:
    """A row of 0 or of 127 among zeros."""
    statement = (
        "SELECT coefficient FROM dp_linear_regression('t', target := 'y', features := ['x'], epsilon := 1, "
        "delta := 0.001, method := 'ada_ssp', neighbours := 'replace', target_lower := 0, target_upper := 1)"
    )
    base = "CREATE TABLE t AS SELECT 0::TINYINT AS x, 0.0 AS y FROM range(20) UNION ALL SELECT {}::TINYINT, 1.0"
    tables = (base.format(0), base.format(127))
    with nullcontext() if fault is None else broken_fit(fault):
        report = audit_sql(dpsql.connect, statement, tables, epsilon=1.0, delta=0.001, runs=200, confidence=1 - 1e-6)
    assert (report.verdict != "violates") == (fault is None), str(report)
