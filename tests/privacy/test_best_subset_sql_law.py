"""The law of what ``dp_best_subset`` returns, against the exact law over all subsets, by chi-square.

A right release is rejected with probability at most 1e-6 per test. Noise scaled by 0.7 or 1.3 (which is what another
epsilon does) is rejected by the same test, on samples of full length, except with probability 1e-5.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.kernels import best_subsets as kernel
from dpsql.kernels import subset_strata
from dpsql.kernels.ball_least_squares import SCORE_CAP, SCORE_UNIT, SCORE_WIDTH
from dpsql.kernels.best_subsets import LIST_WIDTH
from dpsql.mechanisms import subset_exponential, subset_selection
from dpsql.statistics.regression import score_sensitivity
from dpsql.testing import SqlRelease, fit, runs_needed, to_arrow
from dpsql.testing.neighbours import Table
from dpsql.testing.sql import load
from support.broken.subsets import ball_scores
from support.cases import cases
from support.laws.best_subset import BestSubsetLaw
from support.sql_text import named

FALSE_ALARM = 1e-6
MISS = 1e-5
SHORT = 150
BOUNDS = {"lower": -1, "upper": 1, "target_lower": -1, "target_upper": 1}
Outcome = tuple[str, ...]
Case = dict[str, Any]


def orthogonal(bits: int, width: int, *coefficients: float) -> Table:
    """Return all signs of some bits, columns that are orthogonal to each other, and a target that a few make up."""
    rows = [[(-1.0) ** (row & column).bit_count() for column in range(1, width + 1)] for row in range(1 << bits)]
    return tuple((*row, sum(a * x for a, x in zip(coefficients, row, strict=False))) for row in rows)


TABLE = orthogonal(4, 10, 0.375, 0.3125, 0.25, 0.0625)
FEATURES = tuple("abcdefghij")
CASES: dict[str, Case] = {
    "default": {"k": 3, "epsilon": 20},
    "one listed": {"k": 3, "epsilon": 20, "list_size": 1},
    "all listed": {"k": 3, "epsilon": 20, "list_size": 120},
    "tree": {"k": 3, "epsilon": 20},
    "tree stopped": {"k": 3, "epsilon": 20, "list_size": 5, "node_limit": 1},
    "strata": {"k": 3, "epsilon": 20, "list_size": 1},
    "top_r": {"k": 3, "epsilon": 40, "method": "top_r", "list_size": 8},
    "top_r gap": {"k": 3, "epsilon": 30, "method": "top_r", "gap": 1.5},
    "replace": {"k": 3, "epsilon": 40, "neighbours": "replace"},
    "intercept": {"k": 2, "epsilon": 20, "intercept": True},
    "ridge": {"k": 2, "epsilon": 16, "ridge": 1.5},
    "ball": {"k": 2, "epsilon": 7, "radius": 0.25},
}
names = pytest.mark.parametrize("name", CASES)
factors = pytest.mark.parametrize("factor", [0.7, 1.3])


@pytest.fixture(scope="module")
def connection() -> Iterator[Any]:
    opened = dpsql.connect()
    load(opened, to_arrow(TABLE, (*FEATURES, "y")))
    yield opened
    opened.close()


@pytest.fixture
def prepare(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have small problems searched or split into strata, as large ones are."""

    def change(name: str) -> None:
        if name.startswith("tree"):
            monkeypatch.setattr(kernel, "_ENUMERATED", 0)
        if name == "strata":
            monkeypatch.setattr(subset_exponential, "_PATIENCE", 1)
            monkeypatch.setattr(subset_strata, "subset_strata", functools.partial(subset_strata.subset_strata, most=12))

    return change


@functools.cache
def exact_law(name: str, factor: float = 1.0) -> dict[Outcome, float]:
    """Return the law when noise is `factor` times as wide as it should be."""
    case = CASES[name]
    return BestSubsetLaw(FEATURES, **BOUNDS, **{**case, "epsilon": case["epsilon"] / factor}).law(TABLE)


@functools.cache
def runs_for(name: str) -> int:
    laws = [exact_law(name, factor) for factor in (0.7, 1.3)]
    return max(runs_needed(exact_law(name), law, false_alarm=FALSE_ALARM, miss=MISS) for law in laws)


def scaled(name: str, factor: float = 1.0) -> Case:
    return {**CASES[name], "epsilon": CASES[name]["epsilon"] / factor}


def table_form(connection: Any, case: Case, runs: int) -> list[Outcome]:
    sql = f"SELECT rank, feature FROM dp_best_subset('t', target := 'y', {named(BOUNDS)}, {named(case)})"
    return [tuple(feature for _, feature in sorted(rows)) for rows in SqlRelease(connection, sql, batch=10)(runs)]


def aggregate_form(connection: Any, case: Case, runs: int) -> list[Outcome]:
    """Every group of a GROUP BY is a release of its own; all groups hold the same rows."""
    release = f"dp_best_subset([{', '.join(FEATURES)}], y, names := {list(FEATURES)}, {named(BOUNDS)}, {named(case)})"
    sql = (
        f"SELECT list_transform({release}, lambda entry: entry.feature) "
        "FROM t, range({count}) AS r(copy) GROUP BY copy"
    )
    return SqlRelease(connection, sql, batch=250)(runs)


@names
def test_output_law_in_short(connection: Any, prepare: Callable[[str], None], name: str) -> None:
    """Sees noise that is absent, or a law of another kind; 0.7 and 1.3 need more samples."""
    prepare(name)
    result = fit(aggregate_form(connection, CASES[name], SHORT), exact_law(name), false_alarm=FALSE_ALARM)
    assert result.accepted, f"chi-square {result.statistic:.1f} on {result.degrees} degrees"


def test_output_law(connection: Any) -> None:
    result = fit(aggregate_form(connection, CASES["default"], runs_for("default")), exact_law("default"))
    assert result.accepted, f"chi-square {result.statistic:.1f} on {result.degrees} degrees"


@factors
def test_output_law_of_scaled_noise_is_rejected(connection: Any, factor: float) -> None:
    outputs = aggregate_form(connection, scaled("default", factor), runs_for("default"))
    assert not fit(outputs, exact_law("default"), false_alarm=FALSE_ALARM).accepted


def test_output_law_of_the_table_form(connection: Any) -> None:
    result = fit(table_form(connection, CASES["default"], 60), exact_law("default"), false_alarm=FALSE_ALARM)
    assert result.accepted, f"chi-square {result.statistic:.1f} on {result.degrees} degrees"


@pytest.mark.slow
@cases("form", [table_form, aggregate_form])
@names
def test_output_law_at_length(connection: Any, prepare: Callable[[str], None], name: str, form: Any) -> None:
    prepare(name)
    law, runs = exact_law(name), runs_for(name)
    result = fit(form(connection, CASES[name], runs), law, false_alarm=FALSE_ALARM)
    assert result.accepted, f"chi-square {result.statistic:.1f} on {result.degrees} degrees in {runs} runs"
    for factor in (0.7, 1.3):
        wrong = form(connection, scaled(name, factor), runs)
        assert not fit(wrong, law, false_alarm=FALSE_ALARM).accepted, factor


def test_the_stopped_tree_is_stopped(connection: Any, prepare: Callable[[str], None], spy: list[Any]) -> None:
    """The cases above say what they claim to: a search, one that ends early, no list, a list of all."""
    found = {}
    for name in ("default", "one listed", "all listed", "tree", "tree stopped"):
        prepare(name)
        aggregate_form(connection, CASES[name], 1)
        found[name] = spy.pop()
    assert [len(one.subsets) for one in found.values()] == [23, 1, 120, 23, 5]
    assert [one.exhausted for one in found.values()] == [True] * 4 + [False]
    assert found["all listed"].lower_bound == SCORE_CAP
    assert found["tree stopped"].lower_bound < found["tree stopped"].scores[-1]
    assert [one.nodes > 0 for one in found.values()] == [False] * 3 + [True] * 2


def test_the_strata_are_used(connection: Any, prepare: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Most draws of that case go on with several strata, and these hold more than one subset each."""
    prepare("strata")
    split = subset_strata.subset_strata
    counts: list[int] = []

    def counted(*problem: Any) -> Any:
        strata = split(*problem)
        counts.append(len(strata[-1]))
        return strata

    monkeypatch.setattr(subset_strata, "subset_strata", counted)
    aggregate_form(connection, CASES["strata"], 60)
    assert len(counts) > 20
    assert 1 < min(counts) <= max(counts) < 120


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the solver answered."""
    answers: list[Any] = []
    solve = kernel.best_subsets

    def recorded(*problem: Any, **options: Any) -> Any:
        answers.append(solve(*problem, **options))
        return answers[-1]

    monkeypatch.setattr(kernel, "best_subsets", recorded)
    return answers


# 16 features, 4 of which make up the target: 1820 subsets.
WIDE = orthogonal(5, 16, 0.25, 0.1875, 0.1875, 0.125, *[1 / 64] * 12)
WIDE_FEATURES = tuple(f"f{j}" for j in range(16))


def wide(connection: Any, epsilon: float, runs: int) -> list[Outcome]:
    load(connection, to_arrow(WIDE, (*WIDE_FEATURES, "y")), "wide")
    sql = (
        f"SELECT list_transform(dp_best_subset([{', '.join(WIDE_FEATURES)}], y, names := {list(WIDE_FEATURES)}, "
        f"{named(BOUNDS)}, k := 4, epsilon := {epsilon}), lambda entry: entry.feature) "
        "FROM wide, range({count}) AS r(copy) GROUP BY copy"
    )
    return SqlRelease(connection, sql, batch=100)(runs)


@pytest.mark.slow
def test_output_law_over_1820_subsets(connection: Any) -> None:
    """Rare subsets share a cell: every cell of the chi-square expects 10 samples or more."""
    law = BestSubsetLaw(WIDE_FEATURES, **BOUNDS, k=4, epsilon=36).law(WIDE)
    assert len(law) == 1820
    wrong = {f: BestSubsetLaw(WIDE_FEATURES, **BOUNDS, k=4, epsilon=36 / f).law(WIDE) for f in (0.7, 1.3)}
    runs = max(runs_needed(law, one, false_alarm=FALSE_ALARM, miss=MISS) for one in wrong.values())
    result = fit(wide(connection, 36, runs), law, false_alarm=FALSE_ALARM)
    assert result.accepted, f"chi-square {result.statistic:.1f} on {result.degrees} degrees in {runs} runs"
    assert result.degrees > 10
    for factor in wrong:
        assert not fit(wide(connection, 36 / factor, runs), law, false_alarm=FALSE_ALARM).accepted, factor


def test_short_sample_over_1820_subsets(connection: Any) -> None:
    law = BestSubsetLaw(WIDE_FEATURES, **BOUNDS, k=4, epsilon=36).law(WIDE)
    assert fit(wide(connection, 36, 40), law, false_alarm=FALSE_ALARM).accepted


DENSE = ((0.5, -0.25, 1.0, 0.75), (-1.0, 0.5, 0.25, 1.0), (0.125, 1.0, -0.5, -1.0), (-0.25, -0.5, 0.75, 0.25))


@cases("table", [(), DENSE[:1], DENSE[:2], DENSE, DENSE * 9], ids=len)
@cases("intercept", [False, True])
def test_scores_are_those_of_dense_least_squares(table: Table, intercept: bool) -> None:
    """Against a dense solver: a ridge is rows ``sqrt(ridge) e_j`` with target 0, an intercept a column of ones."""
    rows = np.array([(1.0, *row) for row in table]).reshape(len(table), 5)[:, 0 if intercept else 1 :]
    width = rows.shape[1] - 1
    target = np.append(rows[:, -1], np.zeros(width))
    balls = [(1.1, 0.0), (0.25, 0.0), (5.0, 0.0), (1.1, 0.5), (3.0, 4.0)]
    for k, (radius, ridge) in itertools.product((1, 2, 3), balls):
        law = BestSubsetLaw("abc", k=k, epsilon=1, radius=radius, ridge=ridge, intercept=intercept, **BOUNDS)
        features = np.vstack([rows[:, :-1], math.sqrt(ridge) * np.eye(width)])
        reference = ball_scores(features, target, k + intercept, radius)
        for subset, score in zip(law.subsets, law.scores(table), strict=True):
            dense = reference[(0, *(j + 1 for j in subset)) if intercept else subset]
            above = float(score * SCORE_UNIT) - dense + float(SCORE_UNIT)
            assert -1e-12 <= above <= float(SCORE_WIDTH) + 1e-12, (k, radius, ridge, subset)


def test_law_does_not_depend_on_the_product_path() -> None:
    """The law once more, from doubles and the formula."""
    scores = ball_scores([row[:-1] for row in TABLE], [row[-1] for row in TABLE], 3, 1.1)
    coefficient = 20 / (1 + 1.1 * math.sqrt(3)) ** 2
    weights = {subset: math.exp(-coefficient * score) for subset, score in scores.items()}
    total = math.fsum(weights.values())
    expected = {tuple(FEATURES[j] for j in subset): weight / total for subset, weight in weights.items()}
    assert exact_law("default") == pytest.approx(expected, rel=1e-5)


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[Fraction]:
    """Ranges that calls gave to the mechanism, in units of squared half widths."""
    seen: list[Fraction] = []

    def spied(draw: Any) -> Any:
        def run(*arguments: Any, **options: Any) -> Any:
            seen.append(options["utility_range"] * SCORE_UNIT)
            return draw(*arguments, **options)

        return run

    laws = {law: spied(draw) for law, draw in subset_selection.LAWS.items()}
    monkeypatch.setattr(subset_selection, "LAWS", laws)
    return seen


@pytest.mark.parametrize("method", ["exact", "top_r"])
def test_range_of_rows_units_and_relations(ranges: list[Fraction], method: str) -> None:
    """Delta = (1 + r sqrt s)^2; times the rows of a unit; times two under replace; two widths more."""
    with dpsql.connect() as opened:
        load(opened, to_arrow(TABLE, (*FEATURES, "y")))
        opened.execute("CREATE TABLE owned AS SELECT *, row_number() OVER () // 5 AS owner FROM t")
        unit = ", privacy_unit := 'owner', max_rows_per_unit := 3"
        for relation, more in itertools.product(("add_remove", "replace"), ("", unit)):
            opened.execute(
                f"FROM dp_best_subset('owned', target := 'y', features := {list(FEATURES)}, k := 3, epsilon := 1, "
                f"{named(BOUNDS)}, method := '{method}', neighbours := '{relation}'{more})"
            ).fetchall()
        delta = score_sensitivity(3, Fraction(11, 10))
        assert float(delta) == pytest.approx((1 + 1.1 * math.sqrt(3)) ** 2, rel=1e-12)
        width = SCORE_WIDTH + (LIST_WIDTH if method == "top_r" else 0)
        assert ranges == [factor * delta + 2 * width for factor in (1, 3, 2, 6)]


def test_ledger(connection: Any) -> None:
    """An exponential mechanism has a bounded range: epsilon^2 / 8, whatever the method."""
    with dpsql.connect() as opened:
        load(opened, to_arrow(TABLE, (*FEATURES, "y")))
        for method in ("exact", "top_r"):
            table_form(opened, {"k": 3, "epsilon": 3, "method": method, "neighbours": "replace"}, 1)
        rows = opened.execute(
            "SELECT epsilon, delta, rho, guarantee, event FROM dp_ledger() ORDER BY sequence"
        ).fetchall()
    for row, method in zip(rows, ("exact", "top_r"), strict=True):
        assert row[:4] == (3.0, 0.0, 9 / 8, "pure 3-DP, replace of one row")
        assert json.loads(row[4]) == {"mechanism": "subset_exponential", "k": 3, "epsilon": "3", "method": method}


@pytest.mark.slow
def test_output_law_of_a_privacy_unit(connection: Any) -> None:
    """Owners have one row each, and three times the noise since they might have three."""
    connection.execute("CREATE OR REPLACE TABLE owned AS SELECT *, row_number() OVER () AS owner FROM t")
    more: Case = {"features": list(FEATURES), "privacy_unit": "owner", "max_rows_per_unit": 3}

    def outputs(epsilon: float, runs: int) -> list[Outcome]:
        case = {"k": 3, "epsilon": epsilon, **more}
        sql = f"SELECT rank, feature FROM dp_best_subset('owned', target := 'y', {named(BOUNDS)}, {named(case)})"
        return [tuple(feature for _, feature in sorted(rows)) for rows in SqlRelease(connection, sql, batch=10)(runs)]

    law = BestSubsetLaw(FEATURES, **BOUNDS, k=3, epsilon=60, privacy_unit="owner", max_rows_per_unit=3).law(TABLE)
    assert fit(outputs(60, runs_for("default")), law, false_alarm=FALSE_ALARM).accepted
    for factor in (0.7, 1.3):
        assert not fit(outputs(60 / factor, runs_for("default")), law, false_alarm=FALSE_ALARM).accepted
