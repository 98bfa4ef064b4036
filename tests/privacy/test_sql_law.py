"""The law of what `SELECT * FROM dp_sis(...)` returns, against the exact law, by chi-square.

A right release is rejected with probability at most 1e-6 per test. Noise scaled by 0.7 or 1.3 (which
is what another epsilon does) is rejected by the same test except with probability 1e-5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import dpsql
from dpsql.testing import SqlRelease, fit, runs_needed, to_arrow
from dpsql.testing.sql import load
from support.cases import cases
from support.laws.sis import SisLaw
from support.sql_text import named

FALSE_ALARM = 1e-6
MISS = 1e-5
BOUNDS = "lower := -1, upper := 1, target_lower := -1, target_upper := 1"
FEATURES = ("a", "b", "c", "d", "e")
TABLE = ((1.0, 0.75, 0.5, 0.25, 0.0, 1.0),) * 2
CASES: list[dict[str, Any]] = [
    {"mechanism": "one_shot", "k": 3, "epsilon": 16},
    {"mechanism": "gumbel", "k": 3, "epsilon": 16},
    {"mechanism": "canonical_lipschitz", "k": 2, "epsilon": 8, "gamma": 0.5},
]
MORE_CASES: list[dict[str, Any]] = [
    {"mechanism": "one_shot", "k": 1, "epsilon": 3},
    {"mechanism": "one_shot", "k": 4, "epsilon": 24},
    {"mechanism": "one_shot", "k": 3, "epsilon": 24, "neighbours": "replace"},
    {"mechanism": "gumbel", "k": 1, "epsilon": 3},
    {"mechanism": "gumbel", "k": 4, "epsilon": 24},
    {"mechanism": "gumbel", "k": 3, "epsilon": 24, "neighbours": "replace"},
    {"mechanism": "canonical_lipschitz", "k": 2, "epsilon": 8, "gamma": 0.25},
    {"mechanism": "canonical_lipschitz", "k": 3, "epsilon": 8, "gamma": 0.75},
    {"mechanism": "canonical_lipschitz", "k": 3, "epsilon": 16, "gamma": 0.5, "neighbours": "replace"},
]


def name(case: dict[str, Any]) -> str:
    return " ".join(str(value) for value in case.values())


@pytest.fixture(scope="module")
def connection() -> Iterator[Any]:
    opened = dpsql.connect()
    load(opened, to_arrow(TABLE, (*FEATURES, "y")))
    yield opened
    opened.close()


def exact_law(case: dict[str, Any], factor: float = 1.0) -> dict[tuple[str, ...], float]:
    """The law when noise is `factor` times as wide as it should be."""
    arguments = {**case, "epsilon": case["epsilon"] / factor}
    return SisLaw(FEATURES, lower=-1, upper=1, target_lower=-1, target_upper=1, **arguments).law(TABLE)


def table_form(connection: Any, case: dict[str, Any], runs: int) -> list[tuple[str, ...]]:
    sql = f"SELECT rank, feature FROM dp_sis('t', target := 'y', {BOUNDS}, {named(case)})"
    return [tuple(feature for _, feature in sorted(rows)) for rows in SqlRelease(connection, sql, batch=10)(runs)]


def aggregate_form(connection: Any, case: dict[str, Any], runs: int) -> list[tuple[str, ...]]:
    """Every group of a GROUP BY is a release of its own; all groups hold the same rows."""
    release = f"dp_sis([{', '.join(FEATURES)}], y, names := {list(FEATURES)}, {BOUNDS}, {named(case)})"
    sql = (
        f"SELECT list_transform({release}, lambda entry: entry.feature) "
        "FROM t, range({count}) AS r(copy) GROUP BY copy"
    )
    return SqlRelease(connection, sql, batch=500)(runs)


def check(form: Any, connection: Any, case: dict[str, Any], effort: int = 1) -> None:
    law = exact_law(case)
    runs = effort * max(
        runs_needed(law, exact_law(case, factor), false_alarm=FALSE_ALARM, miss=MISS) for factor in (0.7, 1.3)
    )
    right = fit(form(connection, case, runs), law, false_alarm=FALSE_ALARM)
    assert right.accepted, f"{case}: chi-square {right.statistic:.1f} on {right.degrees} degrees in {runs} runs"
    for factor in (0.7, 1.3):
        scaled = {**case, "epsilon": case["epsilon"] / factor}
        assert not fit(form(connection, scaled, runs), law, false_alarm=FALSE_ALARM).accepted, factor


@pytest.mark.parametrize("case", CASES[:1], ids=name)
def test_output_law_of_the_aggregate_form(connection: Any, case: dict[str, Any]) -> None:
    check(aggregate_form, connection, case)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_output_law_of_the_table_form(connection: Any, case: dict[str, Any]) -> None:
    """A small sample: enough to see noise that is absent or of another order; the slow tests see 0.7 and 1.3."""
    result = fit(table_form(connection, case, 150), exact_law(case), false_alarm=FALSE_ALARM)
    assert result.accepted, f"{case}: chi-square {result.statistic:.1f} on {result.degrees} degrees"


@pytest.mark.slow
@cases("case", [*CASES, *MORE_CASES], ids=name)
def test_output_law_of_the_table_form_at_length(connection: Any, case: dict[str, Any]) -> None:
    check(table_form, connection, case)


@pytest.mark.slow
@cases("case", [*CASES, *MORE_CASES], ids=name)
def test_output_law_of_the_aggregate_form_at_length(connection: Any, case: dict[str, Any]) -> None:
    check(aggregate_form, connection, case, effort=10)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["one_shot", "gumbel", "canonical_lipschitz"])
def test_output_law_with_a_private_centre(connection: Any, mechanism: str) -> None:
    """The mean's noise is integrated out on a grid of means, each of which leads to one selection law."""
    case = {"mechanism": mechanism, "k": 1, "epsilon": 6, "center": "target", "center_share": 0.5}
    law = mixture(case)
    result = fit(aggregate_form(connection, case, 8000), law, false_alarm=FALSE_ALARM)
    assert result.accepted, f"chi-square {result.statistic:.1f} on {result.degrees} degrees"
    public = exact_law({"mechanism": mechanism, "k": 1, "epsilon": 3})
    assert not fit(aggregate_form(connection, case, 8000), public, false_alarm=FALSE_ALARM).accepted


def mixture(case: dict[str, Any]) -> dict[tuple[str, ...], float]:
    """The selection law averaged over the released mean.

    At ``S = 2**20`` the noise of the two sums is as good as continuous, so the average is an integral
    over two Laplace variables; the midpoint rule on 400 x 400 quantiles leaves an error far below
    what a few thousand samples resolve.
    """
    import numpy as np

    from dpsql.kernels import fixed_point
    from dpsql.statistics import xty

    law = SisLaw(FEATURES, lower=-1, upper=1, target_lower=-1, target_upper=1, **case)
    scale = xty.target_sums_sensitivity(law.plan.neighbours) / float(law.plan.center_epsilon)
    quantiles = (np.arange(400) + 0.5) / 400
    noise = -scale * np.sign(quantiles - 0.5) * np.log1p(-2 * np.abs(quantiles - 0.5))
    high, low = law.target_sums(TABLE)
    means = [xty.mean_from_sums(high + round(a), low + round(b)) for a in noise for b in noise]
    one = fixed_point.FIXED_POINT_ONE
    counts, edges = np.histogram(means, bins=200, range=(-one, one))
    total: dict[tuple[str, ...], float] = {}
    for count, left, right in zip(counts.tolist(), edges[:-1], edges[1:], strict=True):
        if count:
            for outcome, chance in law.selection_law(law.statistic(TABLE, round((left + right) / 2))).items():
                total[outcome] = total.get(outcome, 0.0) + count / len(means) * chance
    return total
